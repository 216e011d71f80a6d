//! Delivery to a member of a shared group.

use crate::ids::{QueueRecordId, SessionRef, ShardId, SubscriptionFlags};
use crate::interface::input::DispatchTarget;
use crate::interface::outbox::Outbox;
use crate::limits::NONE;
use crate::message::{IncomingPublish, Message};
use crate::session::deliver::Delivery;
use crate::session::session_table::SessionTable;
use crate::session::subscriptions::packed_ids;
use mqtt::SubscribeOptions;
use std::sync::Arc;

impl SessionTable {
    /// Removes the old record of a moved message in the same batch as the record at its new place.
    pub(crate) fn remove_moved_record(&mut self, origin: Option<QueueRecordId>) {
        if let Some(place) = origin {
            self.write_batch.remove_queue_record(place);
        }
    }

    pub(crate) fn deliver_as_member(
        &mut self,
        group: &Arc<str>,
        given: DispatchTarget,
        draft: &mut IncomingPublish<'_>,
        out: &mut Outbox,
    ) {
        let DispatchTarget { member: SessionRef { session, .. }, options, id } = given;
        let group = self.keep_group(group);
        let hit = Delivery {
            session,
            options: SubscriptionFlags::new(options), // [MQTT-4.8.2-3]
            // In addition to the copy for a subscription of the session's own, with another id
            // [MQTT-3.3.4-5].
            ids: if id == 0 { packed_ids::NONE } else { id },
            group,
            from_retained: false,
            alone: true,
        };
        self.deliver_with_events(hit, draft, out);
        let member = self.get(session);
        if !member.has_room() {
            self.room_changes.push(session);
        }
    }

    /// Delivers a message dispatched by the owner on another shard. If the session ended or is
    /// disconnected, the message returns to the owner for another member.
    pub(crate) fn on_dispatched(
        &mut self,
        owner: ShardId,
        group: &Arc<str>,
        given: DispatchTarget,
        message: &Message,
        origin: Option<QueueRecordId>,
        out: &mut Outbox,
    ) {
        let member = given.member;
        let known = self.is_current(member.session, member.generation);
        if !known || self.get(member.session).conn == NONE {
            // The group's record, if there is one, is still in the store.
            return self.send_return(owner, group.clone(), message.clone(), origin, out);
        }
        let mut draft = message.draft();
        self.deliver_as_member(group, given, &mut draft, out);
        self.remove_moved_record(origin);
        let shares = self.get_mut(member.session).extras.iter_mut();
        let mut shares = shares.flat_map(|extras| &mut extras.shares);
        if let Some(share) = shares.find(|share| share.group == *group) {
            share.granted = share.granted.saturating_sub(1);
            self.room_changes.push(member.session);
        }
    }

    pub(crate) fn group_name(&self, at: u32) -> Arc<str> {
        self.group_names[at].name.clone()
    }

    /// Adds a reference to the name of a group. Returns the index for [`FlightSlot::group`].
    pub(crate) fn keep_group(&mut self, group: &Arc<str>) -> u32 {
        if let Some(&at) = self.groups_by_name.get(group) {
            self.group_names[at].refs += 1;
            return at;
        }
        let at = self.group_names.insert(GroupName { name: group.clone(), refs: 1 });
        self.groups_by_name.insert(group.clone(), at);
        at
    }

    pub(crate) fn release_group(&mut self, at: u32) {
        let group = &mut self.group_names[at];
        group.refs -= 1;
        if group.refs == 0
            && let Some(group) = self.group_names.remove(at)
        {
            self.groups_by_name.remove(&group.name);
        }
    }
}

/// Membership of a shared group, in the state of the member's shard.
#[derive(Clone, Debug)]
pub(crate) struct GroupMembership {
    pub(crate) group: Arc<str>,
    /// Index of the group's name in `SessionTable::group_names`.
    pub(crate) name: u32,
    /// The shard that owns the group.
    pub(crate) owner: ShardId,
    pub(crate) options: SubscribeOptions,
    pub(crate) id: u32,
    /// Whether the member was connected, as last reported to an owner on another shard.
    pub(crate) online: bool,
    /// Number of messages that the owner may still send to the member, by the last reports.
    pub(crate) granted: u32,
}

impl GroupMembership {
    /// Returns how many more messages the owner may dispatch, or `None` if no report is needed: a
    /// member with more than half of its room granted does not report every acknowledgement.
    pub(crate) fn update_grant(&mut self, online: bool, room: u32) -> Option<u32> {
        let came_or_went = self.online != online;
        self.online = online;
        if !online {
            self.granted = 0;
            return came_or_went.then_some(0);
        }
        let more = room.saturating_sub(self.granted);
        if !came_or_went && (more == 0 || self.granted > room / 2) {
            return None;
        }
        self.granted += more;
        Some(more)
    }
}

/// Name of a shared group, with the number of slots and memberships that refer to the name.
#[derive(Debug)]
pub(crate) struct GroupName {
    name: Arc<str>,
    refs: u32,
}
