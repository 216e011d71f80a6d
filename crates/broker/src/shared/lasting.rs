//! Groups whose members outlive the process: the store has their queues too.

use crate::journal::{Number, Positions, Space, Stored, Unreadable};
use crate::message::Message;
use crate::options::Durability;
use crate::records::{self, Body, Entry, kind};
use crate::shard::Shard;
use mqtt::QoS;

impl Shard {
    /// A member outlives the process, and so does what waits for it.
    pub(super) fn make_group_lasting(&mut self, at: u32) {
        if self.groups.groups[at].lasting.is_some() || !self.sessions.journal.is_on {
            return;
        }
        let number = self.sessions.journal.number();
        self.groups.groups[at].lasting = Some((number, Positions::from_mark(0)));
        self.count_lasting(1);
        self.write_group(at);
    }

    /// The last member left. What waited goes, and what is still on its way to a member.
    pub(super) fn forget_group(&mut self, name: &str, number: Number) {
        self.count_lasting(-1);
        let journal = &mut self.sessions.journal;
        journal.change(Space::Sessions, records::text_key(kind::GROUP, name), None);
        journal.change(Space::Sessions, records::grave_key(number), Some(Vec::new()));
        self.graves.push(number);
    }

    /// All that were made by sessions that came back: the member may be on the disk and the group
    /// not yet.
    pub(crate) fn make_groups_lasting(&mut self) {
        let all: Vec<u32> = self.groups.by_name.values().copied().collect();
        all.into_iter().for_each(|at| self.make_group_lasting(at));
    }

    fn write_group(&mut self, at: u32) {
        let group = &self.groups.groups[at];
        let Some((number, positions)) = group.lasting else { return };
        let key = records::text_key(kind::GROUP, &group.name);
        let value = records::group_value(number, positions.mark());
        self.sessions.journal.change(Space::Sessions, key, Some(value));
    }

    /// The store's record of a message that waits in a group.
    pub(super) fn write_waiting(&mut self, at: u32, message: &Message) -> Option<u64> {
        let draft = message.view().draft();
        let (durability, qos, retain) = (draft.durability, draft.qos, draft.retain);
        let (number, positions) = self.groups.groups[at].lasting.as_mut()?;
        if durability == Durability::Memory || qos == QoS::AtMostOnce {
            return None;
        }
        let number = *number;
        let (position, moved) = positions.give();
        if moved {
            self.write_group(at);
        }
        let entry = Entry::new(qos, retain);
        let value = records::queue_value(&entry, Body::Here(message.view().as_bytes()));
        let key = records::queue_key(number, position);
        self.sessions.journal.change(Space::Queues, key, Some(value));
        if durability == Durability::Sync {
            self.sessions.journal.hurry();
            self.sessions.journal.keeps = true;
        }
        Some(position)
    }

    /// What a group had waiting when the process ended: it is read when a member has room.
    pub(crate) fn restore_group(
        &mut self,
        name: &str,
        number: Number,
        mark: u64,
        stored: &dyn Stored,
    ) -> Result<bool, Unreadable> {
        let Some(&at) = self.groups.by_name.get(name) else { return Ok(false) };
        self.groups.groups[at].lasting = Some((number, Positions::from_mark(mark)));
        self.count_lasting(1);
        let tail = &mut self.groups.groups[at].tail;
        (tail.begins, tail.unread) = (mark, Some(0));
        let mut is_empty = true;
        let prefix = records::number_key(number);
        stored.scan(Space::Queues, &prefix, &prefix, &mut |_, _| {
            is_empty = false;
            false
        })?;
        if is_empty {
            self.groups.groups[at].tail.unread = None;
        }
        Ok(true)
    }
}
