//! Records of sessions, filters, delayed messages and windows for the store.

use crate::durability::records;
use crate::durability::records::{SessionRecord, kind};
use crate::ids::{RecordNumber, SessionId, SessionRef, SubscriptionFlags};
use crate::interface::store_access::RecordSpace;
use crate::limits::NONE;
use crate::message::Durability;
use crate::message::will::DelayedMessage;
use crate::session::group_member::GroupMembership;
use crate::session::session_table::SessionTable;
use mqtt::SubscribeOptions;
use std::sync::Arc;

impl SessionTable {
    pub(crate) fn write_delayed(
        &mut self,
        one: &DelayedMessage,
        durability: Durability,
    ) -> (u8, RecordNumber) {
        let journal = &mut self.write_batch;
        let key = (kind::DELAYED_WITH_PUBLISHER, journal.allocate_number());
        let value = records::delayed_value(&one.by, one.message.view().as_bytes());
        journal.push_change(RecordSpace::Sessions, records::delayed_key(key.0, key.1), Some(value));
        if durability == Durability::Sync {
            journal.mark_urgent();
            journal.stores_routed = true;
        }
        key
    }

    pub(crate) fn restore_share(
        &mut self,
        id: SessionId,
        group: &Arc<str>,
        options: SubscribeOptions,
        given: u32,
    ) -> (SessionRef, Box<str>) {
        let (name, owner) = (self.keep_group(group), self.context.owner_of(group));
        let session = self.get_mut(id);
        session.is_member = true;
        let group = group.clone();
        session.extras().shares.push(GroupMembership {
            group,
            name,
            owner,
            options,
            id: given,
            online: false,
            granted: 0,
        });
        let client_id = session.client_id.clone();
        (self.session_ref(id), client_id)
    }

    pub(crate) fn erase_retained(&mut self, topic: &str) {
        if self.write_batch.has_store && self.context.owner_of(topic) == self.context.id {
            self.write_batch.push_change(RecordSpace::Retained, topic.into(), None);
        }
    }

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

    pub(crate) fn erase_window(&mut self, stored: Option<Vec<u8>>) {
        if let Some(key) = stored {
            self.write_batch.push_change(RecordSpace::Sessions, key, None);
        }
    }
}
