//! Records of sessions: filters, retained messages and the session itself, written to a batch.

use crate::durability::records::{self, SessionRecord, kind};
use crate::durability::write_batch::RecordSpace;
use crate::input::{RetainStamp, SessionId};
use crate::limits::NONE;
use crate::options::Durability;
use crate::routing::ShardRouting;
use crate::routing::message::{IncomingPublish, Message};
use crate::routing::topics::SubscriptionFlags;
use crate::session::session_table::SessionTable;
use mqtt::QoS;

impl SessionTable {
    /// Adds the record of a new or changed subscription to the write batch, if the session is
    /// persistent.
    pub(crate) fn write_filter(
        &mut self,
        id: SessionId,
        filter: &str,
        options: SubscriptionFlags,
        given: u32,
    ) {
        let Some(persistent) = &self.get(id).persistent else { return };
        let key = records::filter_key(persistent.number, filter);
        let value = records::filter_value(options.bits(), given, self.has_exclusive(id, filter));
        self.write_batch.push_change(RecordSpace::Sessions, key, Some(value));
        self.request_sync();
    }

    pub(crate) fn erase_filter(&mut self, id: SessionId, filter: &str) {
        let Some(persistent) = &self.get(id).persistent else { return };
        let key = records::filter_key(persistent.number, filter);
        self.write_batch.push_change(RecordSpace::Sessions, key, None);
        self.request_sync();
    }

    pub(crate) fn write_session(&mut self, id: SessionId) {
        if !self.contains(id) {
            return;
        }
        let now = self.context.now.0;
        let session = self.get_mut(id);
        let Some(persistent) = session.persistent.as_mut().filter(|persistent| persistent.dirty)
        else {
            return;
        };
        persistent.dirty = false;
        let away = session.conn == NONE;
        let extras = session.extras.as_deref();
        let persistent = session.persistent.as_deref();
        let Some(persistent) = persistent else { return };
        let expiry_ms = u64::from(session.expiry_s) * 1000;
        let ends_at = extras.and_then(|extras| extras.ends_at);
        let away_at = ends_at.map_or(now, |at| at.0.saturating_sub(expiry_ms));
        let record = SessionRecord {
            number: persistent.number,
            mark: persistent.positions.mark(),
            shifts: persistent.shifts.clone(),
            unsent: if away { persistent.unsent } else { u64::MAX },
            version: session.version,
            expiry_s: session.expiry_s,
            away_at: away.then_some(away_at),
            will_at: extras.and_then(|extras| extras.will_at).map(|at| at.0),
            // A session without an owner belongs to the next client.
            owner: session.owner().filter(|owner| !owner.is_empty()).map(Box::from),
            will: None,
        };
        let will = extras.and_then(|extras| extras.will.as_deref());
        let value = records::session_value(&record, will);
        let key = records::text_key(kind::SESSION, &session.client_id);
        self.write_batch.push_change(RecordSpace::Sessions, key, Some(value));
    }
}

impl ShardRouting {
    /// Writes the retained message of a topic, on the topic's owner shard only and in the order of
    /// its decisions, so the store and every shard agree. A cleared topic keeps a record with the
    /// stamp until no older message can arrive any more.
    pub(crate) fn write_retained(
        &mut self,
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
