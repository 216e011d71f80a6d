//! The part of a queue that only the store holds, read back as the client takes messages.

use crate::counters::DropReason;
use crate::durability::records;
use crate::durability::records::QueueRecord;
use crate::durability::stored_body::{READ_BYTES, READ_MESSAGES, read_body};
use crate::ids::{QueueRecordId, RecordNumber, SessionId, SlotState};
use crate::interface::outbox::Outbox;
use crate::interface::store_access::{
    RecordSpace, StoreReadRequest, StoreReader, number_key, queue_key,
};
use crate::limits::{LINK_IDS, NONE};
use crate::message::{Message, PooledMessageId};
use crate::routing::ShardRouting;
use crate::session::flight::{FlightSlot, SlotMarks};
use crate::session::session_table::SessionTable;
use mqtt::QoS;

impl ShardRouting {
    /// Handles the engine's response to `Effect::ReadStore`.
    pub(crate) fn on_store_ready(
        &mut self,
        reading: StoreReadRequest,
        stored: &dyn StoreReader,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) {
        match reading {
            StoreReadRequest::Queue { session, generation } => {
                if sessions.is_current(session, generation) {
                    self.load_stored_queue(session, stored, sessions, out);
                }
            }
            StoreReadRequest::Group { group, number } => {
                self.load_group_tail(group, number, stored, sessions, out)
            }
            StoreReadRequest::Tombstone { number } => {
                sessions.collect_tombstone(RecordNumber(number), stored, out)
            }
            StoreReadRequest::GarbageScan => sessions.continue_garbage_collection(stored, out),
        }
    }

    pub(crate) fn load_stored_queue(
        &self,
        id: SessionId,
        stored: &dyn StoreReader,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) {
        let is_crowded = sessions.is_pressure_elevated();
        let Some(persistent) = &mut sessions.get_mut(id).persistent else { return };
        persistent.is_reading = false;
        let Some(from) = persistent.stored_from else { return };
        // Only messages added since the start are counted.
        let (number, begins) = (persistent.number, persistent.process_from);
        let (mut found, mut bytes) = (Vec::new(), 0);
        let (messages_max, bytes_max) = match is_crowded {
            true => (READ_MESSAGES / 64, READ_BYTES / 64),
            false => (READ_MESSAGES, READ_BYTES),
        };
        let scanned = stored.scan(
            RecordSpace::Queues,
            &number_key(number),
            &queue_key(number, from),
            &mut |key, value| {
                bytes += value.len();
                found.extend(records::position_of(key).map(|at| (at, value.to_vec())));
                found.len() < messages_max && bytes < bytes_max
            },
        );
        // The engine has logged the error. Later messages wait behind the unreadable part, so that
        // order is kept after a repair.
        let is_unreadable = scanned.is_err();
        // Messages of this turn are not in the store yet. Counted are messages added since the
        // start, in `spooled` and among the found ones.
        let since_start = found.iter().filter(|(position, _)| *position >= begins).count();
        let is_behind =
            since_start < persistent.spooled as usize && !sessions.write_batch.is_empty();
        let more = found.len() >= messages_max || bytes >= bytes_max || is_unreadable || is_behind;
        let next = found.last().map_or(from, |(position, _)| position + 1);
        let (mut count, mut counted) = (0, 0);
        for (position, value) in found {
            let taken = self.load_queue_record(id, position, &value, stored, sessions, out);
            if position >= begins {
                (count, counted) = (count + 1, counted + taken);
            }
        }
        let session = sessions.get_mut(id);
        if let Some(persistent) = &mut session.persistent {
            persistent.is_unreadable = is_unreadable;
            persistent.stored_from = more.then_some(next);
            let left = persistent.spooled.saturating_sub(count);
            let left_bytes = persistent.spooled_bytes.saturating_sub(counted);
            (persistent.spooled, persistent.spooled_bytes) = match more && left > 0 {
                true => (left, left_bytes),
                false => (0, 0),
            };
        }
        sessions.drain_queue(id, out);
    }

    /// Restores one record of a session's queue to memory. Returns the bytes of the message, as
    /// counted in `spooled_bytes`; 0 without a message.
    fn load_queue_record(
        &self,
        id: SessionId,
        position: u64,
        value: &[u8],
        stored: &dyn StoreReader,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) -> u64 {
        let Some((mut entry, body)) = records::read_queue(value) else { return 0 };
        // The engine has logged the error. The record stays: unreadable is not lost.
        let Ok(message) = read_body(body, stored) else { return 0 };
        let message_bytes = message.as_ref().map_or(0, |message| message.bytes() as u64);
        if message.is_none() && entry.state != SlotState::Released {
            // The body was removed with the last reference, and the store has that change without a
            // later change of this record: at QoS 2 the client may be waiting for PUBREL.
            let Some(persistent) = &sessions.get(id).persistent else { return 0 };
            if entry.qos != QoS::ExactlyOnce || position >= persistent.unsent_unread {
                let number = persistent.number;
                sessions.write_batch.remove_queue_record(QueueRecordId { number, position });
                return 0;
            }
            entry.state = SlotState::Released;
        }
        if self.drop_if_revoked(id, position, &entry, message.as_ref(), sessions, out) {
            return message_bytes;
        }
        let kept = match &message {
            Some(message) => sessions.messages.keep(&mut message.draft()),
            None => PooledMessageId(NONE),
        };
        let ids = sessions.keep_ids(&entry.ids);
        let group = entry.group.as_ref().map_or(NONE, |group| sessions.keep_group(group));
        let mut slot = FlightSlot::new(kept, entry.qos, entry.retain, ids, group);
        slot.position = position as u32;
        slot.marks.set(SlotMarks::STORED);
        slot.marks.set(SlotMarks::WAITS);
        slot.state = entry.state;
        let session = sessions.get_mut(id);
        let window = session.window;
        let unsent = session.persistent.as_ref().map_or(0, |persistent| persistent.unsent_unread);
        if let Some(persistent) = &mut session.persistent
            && session.flight.as_ref().is_none_or(|flight| flight.has_no_inflight())
            && !persistent.is_lifting_barrier
        {
            persistent.set_barrier_after(Some(position));
        }
        let persistent = session.persistent.as_ref();
        let open = persistent.is_none_or(|persistent| persistent.is_before_barrier(position));
        let at = persistent.map_or(0, |persistent| persistent.shifts.id_of(position));
        let flight = session.flight();
        let early = flight.waiting.is_empty() && flight.can_use_id(at) && open;
        if entry.state == SlotState::Released {
            slot.marks.set(SlotMarks::RELEASED);
        }
        let was_sent = entry.state == SlotState::Released
            || (position < unsent && flight.unacknowledged < window);
        if early && was_sent {
            flight.resend_stored(at, slot);
        } else {
            if position < unsent {
                slot.marks.set(SlotMarks::WAS_SENT);
            }
            flight.waiting_bytes += message_bytes;
            flight.waiting.push_back(slot);
        }
        message_bytes
    }

    /// Whether a stored and never sent message only matched a subscription that the rules have
    /// revoked (`may_hold_revoked`).
    fn is_revoked(
        &self,
        id: SessionId,
        position: u64,
        topic: &str,
        sessions: &SessionTable,
    ) -> bool {
        let session = sessions.get(id);
        let is_doubtful = session.persistent.as_ref().is_some_and(|persistent| {
            persistent.may_hold_revoked && position >= persistent.unsent_unread
        });
        is_doubtful
            && sessions.context.options.permissions_at(session.listener).is_some()
            && !session.client_id.starts_with(LINK_IDS)
            && !self.has_subscription_for(id, topic, sessions)
    }

    fn drop_if_revoked(
        &self,
        id: SessionId,
        position: u64,
        entry: &QueueRecord,
        message: Option<&Message>,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) -> bool {
        let own = message.filter(|_| entry.group.is_none());
        if !own.is_some_and(|message| self.is_revoked(id, position, message.topic(), sessions)) {
            return false;
        }
        let Some(persistent) = &sessions.get(id).persistent else { return false };
        let number = persistent.number;
        sessions.write_batch.remove_queue_record(QueueRecordId { number, position });
        sessions.note_drop(id, DropReason::Refused, 1, out);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::durability::records;
    use crate::durability::records::{QueueRecord, RecordBody};
    use crate::durability::write_batch::WriteBatch;
    use crate::ids::{ConnId, MonotonicMs, RecordNumber, ShardId};
    use crate::interface::outbox::Outbox;
    use crate::interface::store_access::{StoreReadError, queue_key};
    use crate::shard::Shard;
    use crate::{BrokerOptions, Interest, ProcessMemory};
    use mqtt::QoS;
    use std::sync::Arc;

    const GRAVE: RecordNumber = RecordNumber(7);

    /// A queue with one record, whose shared body is missing or cannot be read.
    #[derive(Debug)]
    struct OneRecordReader {
        is_readable: bool,
    }

    impl StoreReader for OneRecordReader {
        fn get(&self, space: RecordSpace, _: &[u8]) -> Result<Option<Vec<u8>>, StoreReadError> {
            if space == RecordSpace::Messages && !self.is_readable {
                Err(StoreReadError)
            } else {
                Ok(None)
            }
        }

        fn scan(
            &self,
            _: RecordSpace,
            _: &[u8],
            _: &[u8],
            visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
        ) -> Result<(), StoreReadError> {
            let entry = QueueRecord::new(QoS::AtLeastOnce, false);
            let value = records::queue_value(&entry, RecordBody::Shared(RecordNumber(9)));
            visit(&queue_key(GRAVE, 1), &value);
            Ok(())
        }
    }

    #[test]
    fn what_cannot_be_read_is_not_taken_for_gone() {
        let (interest, memory) =
            (Arc::new(Interest::new(1, 1)), Arc::new(ProcessMemory::default()));
        let options = Arc::new(BrokerOptions { sys_interval_s: 0, ..BrokerOptions::default() });
        let mut shard = Shard::new(ShardId(0), 1, options, interest, memory, 1, 1, MonotonicMs(0));
        shard.sessions.write_batch = WriteBatch::open(2, 0);
        let mut out = Outbox::new(1);
        shard.sessions.collect_tombstone(GRAVE, &OneRecordReader { is_readable: false }, &mut out);
        assert!(shard.sessions.write_batch.is_empty() && out.effects.is_empty());
        shard.sessions.collect_tombstone(GRAVE, &OneRecordReader { is_readable: true }, &mut out);
        assert!(!shard.sessions.write_batch.is_empty());
    }

    /// A store with a queue whose second piece cannot be read.
    #[derive(Debug)]
    struct TornQueueReader;

    impl StoreReader for TornQueueReader {
        fn get(&self, _: RecordSpace, _: &[u8]) -> Result<Option<Vec<u8>>, StoreReadError> {
            Ok(None)
        }

        fn scan(
            &self,
            _: RecordSpace,
            _: &[u8],
            _: &[u8],
            visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
        ) -> Result<(), StoreReadError> {
            let message =
                Message::new(&crate::message::IncomingPublish::new("t", b"1", MonotonicMs(0)));
            let entry = QueueRecord::new(QoS::AtLeastOnce, false);
            let value = records::queue_value(&entry, RecordBody::Inline(message.view().as_bytes()));
            visit(&queue_key(RecordNumber(7), 1), &value);
            Err(StoreReadError)
        }
    }

    #[test]
    fn nothing_overtakes_what_cannot_be_read() {
        let (interest, memory) =
            (Arc::new(Interest::new(1, 1)), Arc::new(ProcessMemory::default()));
        let options = Arc::new(BrokerOptions { sys_interval_s: 0, ..BrokerOptions::default() });
        let mut shard = Shard::new(ShardId(0), 1, options, interest, memory, 1, 1, MonotonicMs(0));
        shard.sessions.write_batch = WriteBatch::open(2, 0);
        let id = shard.sessions.create("a", mqtt::ProtocolVersion::V5);
        let persistent =
            Box::new(crate::durability::persistent_session::PersistentSession::restored(
                RecordNumber(7),
                10,
                10,
            ));
        shard.sessions.get_mut(id).persistent = Some(persistent);
        let mut out = Outbox::new(1);
        let unread = |shard: &Shard| {
            shard.sessions.get(id).persistent.as_ref().and_then(|it| it.stored_from)
        };
        let asks = |out: &mut Outbox| !std::mem::take(&mut out.effects).is_empty();
        shard.sessions.request_stored_queue(id, &mut out);
        assert!(asks(&mut out));
        shard.routing.load_stored_queue(id, &TornQueueReader, &mut shard.sessions, &mut out);
        assert_eq!(unread(&shard), Some(2), "what comes now comes behind it");
        shard.sessions.request_stored_queue(id, &mut out);
        assert!(!asks(&mut out), "nobody asks again and again");
        shard.connections.resume_when_durable(ConnId(0), id, &mut shard.sessions);
        shard.sessions.request_stored_queue(id, &mut out);
        assert!(asks(&mut out));
    }

    /// A readable queue of five messages of an earlier process.
    #[derive(Debug)]
    struct OldQueue;

    impl StoreReader for OldQueue {
        fn get(&self, _: RecordSpace, _: &[u8]) -> Result<Option<Vec<u8>>, StoreReadError> {
            Ok(None)
        }

        fn scan(
            &self,
            _: RecordSpace,
            _: &[u8],
            _: &[u8],
            visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
        ) -> Result<(), StoreReadError> {
            let message =
                Message::new(&crate::message::IncomingPublish::new("t", b"1", MonotonicMs(0)));
            let entry = QueueRecord::new(QoS::AtLeastOnce, false);
            let value = records::queue_value(&entry, RecordBody::Inline(message.view().as_bytes()));
            (0..5).all(|position| visit(&queue_key(RecordNumber(7), position), &value));
            Ok(())
        }
    }

    #[test]
    fn a_queue_is_not_at_its_end_while_its_newest_message_is_on_its_way_to_the_store() {
        let (interest, memory) =
            (Arc::new(Interest::new(1, 1)), Arc::new(ProcessMemory::default()));
        let options = Arc::new(BrokerOptions { sys_interval_s: 0, ..BrokerOptions::default() });
        let mut shard = Shard::new(ShardId(0), 1, options, interest, memory, 1, 1, MonotonicMs(0));
        shard.sessions.write_batch = WriteBatch::open(2, 0);
        let id = shard.sessions.create("a", mqtt::ProtocolVersion::V5);
        let mut persistent = crate::durability::persistent_session::PersistentSession::restored(
            RecordNumber(7),
            10,
            10,
        );
        persistent.spooled = 1;
        shard.sessions.get_mut(id).persistent = Some(Box::new(persistent));
        shard.sessions.write_batch.push_change(
            RecordSpace::Queues,
            queue_key(RecordNumber(7), 10),
            None,
        );
        shard.routing.load_stored_queue(id, &OldQueue, &mut shard.sessions, &mut Outbox::new(1));
        let persistent = shard.sessions.get(id).persistent.as_ref().expect("it lasts");
        assert_eq!((persistent.stored_from, persistent.spooled), (Some(5), 1));
    }
}
