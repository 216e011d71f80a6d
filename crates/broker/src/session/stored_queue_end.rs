//! The part of a queue that only the store holds: removal of what an ended session left.

use crate::durability::records;
use crate::durability::records::{QueueRecord, RecordBody};
use crate::durability::stored_body::{LOW_WATER, READ_MESSAGES, read_body};
use crate::ids::{QueueRecordId, RecordNumber, SessionId};
use crate::interface::outbox::{Effect, Outbox};
use crate::interface::store_access::{RecordSpace, StoreReadRequest, StoreReader, number_key};
use crate::session::session_table::SessionTable;
use mqtt::QoS;

impl SessionTable {
    /// Requests the next piece of a queue that only the store has, if fewer than [`LOW_WATER`]
    /// messages wait.
    pub(crate) fn request_stored_queue(&mut self, id: SessionId, out: &mut Outbox) {
        let session = self.get_mut(id);
        let generation = session.generation;
        let waiting = session.flight.as_ref().map_or(0, |flight| flight.waiting.len());
        let Some(persistent) = &mut session.persistent else { return };
        let may_read = !persistent.is_reading && !persistent.is_unreadable;
        if persistent.stored_from.is_some() && may_read && waiting < LOW_WATER {
            persistent.is_reading = true;
            out.effects.push(Effect::ReadStore {
                reading: StoreReadRequest::Queue { session: id, generation },
            });
        }
    }

    /// Removes the queue of an ended session in pieces. Messages of groups go back to the groups.
    /// An unreadable record and the tombstone stay until the next start.
    pub(crate) fn collect_tombstone(
        &mut self,
        number: RecordNumber,
        stored: &dyn StoreReader,
        out: &mut Outbox,
    ) {
        let prefix = number_key(number);
        let Ok(grave) = stored.get(RecordSpace::Sessions, &records::tombstone_key(number)) else {
            return;
        };
        let unsent = grave.and_then(|bytes| Some(u64::from_le_bytes(bytes.try_into().ok()?)));
        let unsent = unsent.unwrap_or(0);
        let mut found = Vec::new();
        let scanned = stored.scan(RecordSpace::Queues, &prefix, &prefix, &mut |key, value| {
            found.extend(records::position_of(key).map(|at| (at, value.to_vec())));
            found.len() < READ_MESSAGES
        });
        let ends = found.len() < READ_MESSAGES;
        let mut is_whole = scanned.is_ok();
        for (position, value) in found {
            let origin = QueueRecordId { number, position };
            let record = records::read_queue(&value);
            let body = record.as_ref().map_or(RecordBody::None, |(_, body)| *body);
            let Ok(message) = read_body(body, stored) else {
                is_whole = false;
                continue;
            };
            let may_move =
                |entry: &QueueRecord| entry.qos != QoS::ExactlyOnce || position >= unsent;
            let group = record.and_then(|(entry, _)| Some(entry).filter(may_move)?.group);
            match (group, message) {
                (Some(group), Some(message)) => {
                    self.orphans.push((group, message, Some(origin)));
                }
                _ => self.write_batch.remove_queue_record(origin),
            }
        }
        match ends {
            _ if !is_whole => {}
            true => self.write_batch.push_change(
                RecordSpace::Sessions,
                records::tombstone_key(number),
                None,
            ),
            false => out.effects.push(Effect::ReadStore {
                reading: StoreReadRequest::Tombstone { number: number.0 },
            }),
        }
    }
}
