//! Persistent sessions and retained messages: their records, and their restoration.

use crate::durability::persistent_session::PersistentSession;
use crate::durability::records;
use crate::durability::records::SessionRecord;
use crate::ids::{MonotonicMs, RecordNumber, RetainStamp, SessionId};
use crate::interface::store_access::RecordSpace;
use crate::message::{Durability, IncomingPublish, Message};
use crate::routing::ShardRouting;
use crate::session::session_table::SessionTable;
use crate::timer::ShardTimer;
use mqtt::QoS;
use mqtt::client::PacketIds;

impl ShardRouting {
    /// Makes a session persistent if the session outlives the connection and the options ask for a
    /// durable store. An existing persistent session is marked as online.
    pub(crate) fn make_persistent(&self, id: SessionId, sessions: &mut SessionTable) {
        let lasts = sessions.write_batch.has_store
            && sessions.context.options.durability != Durability::Memory
            && sessions.get(id).expiry_s > 0;
        if sessions.get(id).persistent.is_none() {
            if !lasts {
                return;
            }
            let number = sessions.write_batch.allocate_number();
            let session = sessions.get_mut(id);
            // Packet ids go on where they were.
            let flight = session.flight.as_ref();
            let used = flight.map_or(session.first_id, |flight| flight.next_id());
            session.persistent = Some(Box::new(PersistentSession::new(number, u64::from(used))));
            self.count_persistent(1, sessions);
        }
        if let Some(persistent) = &mut sessions.get_mut(id).persistent {
            persistent.unsent = u64::MAX;
        }
        sessions.make_dirty(id);
    }

    pub(crate) fn count_persistent(&self, by: i64, sessions: &mut SessionTable) {
        sessions.durability.lasting_sessions += by;
        let any = sessions.durability.lasting_sessions > 0;
        self.interest.set_persistent(sessions.context.id.0, any);
    }

    /// Restores a session as offline. If the client was connected at the end of the process,
    /// `away_at` is absent and the expiry starts anew.
    pub(crate) fn restore_session(
        &self,
        client_id: &str,
        mut record: SessionRecord,
        now: MonotonicMs,
        sessions: &mut SessionTable,
    ) -> SessionId {
        let id = sessions.create(client_id, record.version);
        let (expiry_s, was_here) = (record.expiry_s, record.away_at.is_none());
        let away_at = record.away_at.unwrap_or(now.0);
        let ends_at = MonotonicMs(away_at + u64::from(expiry_s) * 1000);
        let will_at = match (&record.will, record.will_at) {
            (None, _) => None,
            (Some(_), Some(at)) => Some(MonotonicMs(at)),
            (Some(will), None) => Some(MonotonicMs(away_at + u64::from(will.delay_s) * 1000)),
        };
        sessions.set_will(id, record.will.take());
        let session = sessions.get_mut(id);
        session.expiry_s = expiry_s;
        let SessionRecord { number, mark, unsent, .. } = record;
        let mut persistent = Box::new(PersistentSession::restored(number, mark, unsent));
        persistent.shifts = record.shifts;
        persistent.owner = record.owner.take();
        session.persistent = Some(persistent);
        let generation = session.generation;
        let ends_at = (expiry_s != u32::MAX).then_some(ends_at);
        if ends_at.is_some() || will_at.is_some() {
            let extras = session.extras();
            (extras.ends_at, extras.will_at) = (ends_at, will_at);
        }
        for at in ends_at.into_iter().chain(will_at) {
            sessions.context.timers.set(at, ShardTimer::Session { index: id.0, generation });
        }
        self.count_persistent(1, sessions);
        if was_here {
            sessions.make_dirty(id);
        }
        id
    }

    /// Erases the records of a session that ends; `write_tombstone` leaves a queue in the store to
    /// `collect_tombstone`.
    pub(crate) fn forget_persistent(&self, id: SessionId, sessions: &mut SessionTable) {
        let session = sessions.get_mut(id);
        let Some(persistent) = session.persistent.take() else { return };
        let number: RecordNumber = persistent.number;
        let received = session.flight.as_ref().map(|flight| flight.received.clone());
        let client_id = session.client_id.clone();
        for packet_id in received.iter().flat_map(PacketIds::iter) {
            let key = records::received_key(number, packet_id);
            sessions.write_batch.push_change(RecordSpace::Sessions, key, None);
        }
        let grave = sessions.write_tombstone(&persistent, &client_id);
        sessions.durability.tombstones.extend(grave);
        sessions.get_mut(id).persistent = Some(persistent);
        self.count_persistent(-1, sessions);
        if sessions.request_sync() {
            sessions.note_session_end(id);
        }
    }

    /// Writes the retained message of a topic, on the topic's owner shard only and in the order of
    /// its decisions, so the store and every shard agree. A cleared topic keeps a record with the
    /// stamp until no older message can arrive any more.
    pub(crate) fn write_retained(
        &self,
        message: &Message,
        stamp: RetainStamp,
        sessions: &mut SessionTable,
    ) {
        let draft = message.view().draft();
        if draft.durability == Durability::Memory
            || sessions.context.owner_of(message.topic()) != sessions.context.id
        {
            return;
        }
        let newest = self.retained.newest(message.topic());
        let waits = draft.durability == Durability::Sync && draft.qos != QoS::AtMostOnce;
        let value = match newest {
            // A later message has replaced this one, perhaps in a batch that no answer waits for.
            // The publisher of this message then waits for the later one.
            Some((later, _)) if later != stamp && !waits => return,
            Some((later, Some(newest))) => {
                Some(records::retained_value(later, newest.view().as_bytes()))
            }
            Some((later, None)) => {
                let clear = Message::new(&IncomingPublish::new(message.topic(), b"", draft.at));
                Some(records::retained_value(later, clear.view().as_bytes()))
            }
            None => None,
        };
        sessions.write_batch.push_change(RecordSpace::Retained, message.topic().into(), value);
        if waits {
            sessions.write_batch.mark_urgent();
            sessions.write_batch.stores_routed = true;
        }
    }
}
