//! Persistent groups: a group with a member that outlives the process has its queue in the store
//! too.

use crate::durability::records::{self, QueueRecord, RecordBody, kind};
use crate::durability::write_batch::PositionAllocator;
use crate::ids::RecordNumber;
use crate::interface::store_access::{
    RecordSpace, StoreReadError, StoreReader, number_key, queue_key,
};
use crate::message::{Durability, Message};
use crate::routing::ShardRouting;
use crate::session::session_table::SessionTable;
use mqtt::QoS;

impl ShardRouting {
    /// Makes a group persistent, for the first member that outlives the process.
    pub(crate) fn make_group_persistent(&mut self, at: u32, sessions: &mut SessionTable) {
        if self.groups.groups[at].stored_queue.is_some() || !sessions.write_batch.has_store {
            return;
        }
        let number = sessions.write_batch.allocate_number();
        self.groups.groups[at].stored_queue = Some((number, PositionAllocator::from_mark(0)));
        self.count_persistent(1, sessions);
        self.write_group(at, sessions);
    }

    /// Removes the records of a group whose last member left, and by a tombstone those of its
    /// queue.
    pub(crate) fn forget_group(
        &self,
        name: &str,
        number: RecordNumber,
        sessions: &mut SessionTable,
    ) {
        self.count_persistent(-1, sessions);
        let journal = &mut sessions.write_batch;
        journal.push_change(RecordSpace::Sessions, records::text_key(kind::GROUP, name), None);
        journal.push_change(
            RecordSpace::Sessions,
            records::tombstone_key(number),
            Some(Vec::new()),
        );
        sessions.durability.tombstones.push(number);
    }

    /// Makes the groups of restored sessions persistent: a power cut may come between the record of
    /// a member and the record of its group.
    pub(crate) fn make_groups_persistent(&mut self, sessions: &mut SessionTable) {
        let all: Vec<u32> = self.groups.by_name.values().copied().collect();
        all.into_iter().for_each(|at| self.make_group_persistent(at, sessions));
    }

    fn write_group(&self, at: u32, sessions: &mut SessionTable) {
        let group = &self.groups.groups[at];
        let Some((number, positions)) = group.stored_queue else { return };
        let key = records::text_key(kind::GROUP, &group.name);
        let value = records::group_value(number, positions.mark());
        sessions.write_batch.push_change(RecordSpace::Sessions, key, Some(value));
    }

    /// Stores a message of a group's queue and returns its position. Returns `None` for a message
    /// that is not stored: QoS 0, `Durability::Memory`, or a group without a stored queue.
    pub(crate) fn write_group_message(
        &mut self,
        at: u32,
        message: &Message,
        sessions: &mut SessionTable,
    ) -> Option<u64> {
        let draft = message.view().draft();
        let (durability, qos, retain) = (draft.durability, draft.qos, draft.retain);
        let (number, positions) = self.groups.groups[at].stored_queue.as_mut()?;
        if durability == Durability::Memory || qos == QoS::AtMostOnce {
            return None;
        }
        let number = *number;
        let (position, moved) = positions.allocate();
        if moved {
            self.write_group(at, sessions);
        }
        let entry = QueueRecord::new(qos, retain);
        let value = records::queue_value(&entry, RecordBody::Inline(message.view().as_bytes()));
        let key = queue_key(number, position);
        sessions.write_batch.push_change(RecordSpace::Queues, key, Some(value));
        if durability == Durability::Sync {
            sessions.write_batch.mark_urgent();
            sessions.write_batch.stores_routed = true;
        }
        Some(position)
    }

    /// Restores a group's queue. The messages are read later, when a member has room. Returns
    /// `false` if the group has no restored member.
    pub(crate) fn restore_group(
        &mut self,
        name: &str,
        number: RecordNumber,
        mark: u64,
        stored: &dyn StoreReader,
        sessions: &mut SessionTable,
    ) -> Result<bool, StoreReadError> {
        let Some(&at) = self.groups.by_name.get(name) else { return Ok(false) };
        self.groups.groups[at].stored_queue = Some((number, PositionAllocator::from_mark(mark)));
        self.count_persistent(1, sessions);
        let tail = &mut self.groups.groups[at].tail;
        (tail.process_from, tail.stored_from) = (mark, Some(0));
        let mut is_empty = true;
        let prefix = number_key(number);
        stored.scan(RecordSpace::Queues, &prefix, &prefix, &mut |_, _| {
            is_empty = false;
            false
        })?;
        if is_empty {
            self.groups.groups[at].tail.stored_from = None;
        }
        Ok(true)
    }
}
