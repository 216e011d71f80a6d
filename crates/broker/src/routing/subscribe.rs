//! Subscriptions of sessions: filters and groups are added and removed.

use crate::counters::DropReason;
use crate::ids::{FilterId, MonotonicMs, SessionId, SubscriptionFlags};
use crate::interface::input::{GroupJoin, ShardMessage};
use crate::interface::outbox::Outbox;
use crate::limits::{LINK_IDS, NONE, SHARES_MAX};
use crate::message::namespace::{filter_behind_share, parse_known_share};
use crate::options::preset::PresetSession;
use crate::permissions::access_check::AccessCheck;
use crate::permissions::client_permissions::ClientPermissions;
use crate::refusal::Refusal;
use crate::routing::ShardRouting;
use crate::routing::topics::{FilterSubscriber, is_wildcard};
use crate::session::flight::SlotMarks;
use crate::session::group_member::GroupMembership;
use crate::session::retained_cursors::RetainedCursor;
use crate::session::send_gate::SendGate;
use crate::session::session_table::SessionTable;
use crate::session::subscribe_checks::is_own_link_topic;
use crate::session::subscriptions::Subscription;
use crate::timer::ShardTimer;
use mqtt::{ProtocolVersion, SubscribeOptions, filter_matches};
use std::sync::Arc;

impl ShardRouting {
    pub(crate) fn make_preset(&mut self, preset: &PresetSession, sessions: &mut SessionTable) {
        // The client's version replaces this one at CONNECT.
        let id = sessions.create(&preset.client_id, ProtocolVersion::V5);
        let session = sessions.get_mut(id);
        session.expiry_s = preset.expiry_s;
        let generation = session.generation;
        if let Some(user) = &preset.user {
            sessions.set_permissions(id, Some(Box::new(ClientPermissions::of_absent_user(user))));
        }
        self.make_persistent(id, sessions);
        let qos = preset.qos.min(sessions.context.qos_max());
        let options = SubscribeOptions { qos, ..SubscribeOptions::default() };
        for filter in &preset.filters {
            self.subscribe_own(id, filter, options, 0, sessions);
            sessions.write_filter(id, filter, SubscriptionFlags::new(options), 0);
        }
        if preset.expiry_s != u32::MAX {
            let at = MonotonicMs(sessions.context.now.0 + u64::from(preset.expiry_s) * 1000);
            sessions.get_mut(id).extras().ends_at = Some(at);
            sessions.context.timers.set(at, ShardTimer::Session { index: id.0, generation });
        }
        sessions.note_away(id);
    }

    /// Starts to send retained messages to a subscription, if Retain Handling asks for them.
    /// `options` has the granted QoS.
    pub(crate) fn start_retained_feed(
        &self,
        id: SessionId,
        filter: FilterId,
        is_new: bool,
        options: SubscribeOptions,
        subscription_id: u32,
        sessions: &mut SessionTable,
    ) {
        // [MQTT-3.3.1-9] [MQTT-3.3.1-10] [MQTT-3.3.1-11] [MQTT-3.8.4-4]
        if options.retain_handling == 0 || (options.retain_handling == 1 && is_new) {
            let session = sessions.get_mut(id);
            let waits_since = session.gate.has(SendGate::QUIET).then_some(self.retain_stamp);
            session.extras().cursors.push(RetainedCursor {
                filter,
                after: None,
                waits_since,
                options: SubscriptionFlags::new(options),
                id: subscription_id,
            });
        }
    }

    pub(crate) fn check_filter(
        &self,
        id: SessionId,
        filter: &str,
        known: &str,
        is_shared: bool,
        subscription_id: u32,
        sessions: &SessionTable,
    ) -> Result<(), Refusal> {
        let session = sessions.get(id);
        let options = sessions.context.options.options_of_session(session);
        if subscription_id != 0 && !options.subscription_ids_available {
            return Err(Refusal::SubscriptionIdsUnsupported);
        }
        if is_shared && !options.shared_available {
            return Err(Refusal::SharedUnsupported);
        }
        if !options.wildcard_available && is_wildcard(filter) {
            return Err(Refusal::WildcardUnsupported); // [3.1.1:MQTT-3.8.3-2]
        }
        let levels = filter.split('/').count();
        if filter.len() > usize::from(options.topic_bytes_max)
            || levels > usize::from(options.topic_levels_max)
        {
            return Err(Refusal::TopicFilterInvalid);
        }
        if filter.starts_with(LINK_IDS) && !is_own_link_topic(&session.client_id, filter) {
            return Err(Refusal::NotAuthorized);
        }
        let room = options.subscriptions_max as usize;
        let shares = session.extras.as_ref().map_or(&[][..], |extras| &extras.shares);
        if sessions.durability.store_is_full && session.persistent.is_some() {
            return Err(Refusal::StoreFull);
        }
        let crowd = is_shared && shares.len() >= SHARES_MAX;
        if session.subscriptions.len() + shares.len() >= room
            || crowd
            || sessions.is_pressure_high()
        {
            // A replacement needs no room.
            let replaces = match is_shared {
                true => shares.iter().any(|share| *share.group == *known),
                false => {
                    let own = self.topics.find(known);
                    own.and_then(|filter| session.subscription(filter)).is_some()
                }
            };
            if !replaces {
                return Err(Refusal::QuotaExceeded);
            }
        }
        Ok(())
    }

    /// Adds a session's own subscription, or replaces the subscription to the same filter
    /// [MQTT-3.8.4-3]. Returns the filter, and whether the subscription is new.
    pub(crate) fn subscribe_own(
        &mut self,
        id: SessionId,
        text: &str,
        options: SubscribeOptions,
        subscription_id: u32,
        sessions: &mut SessionTable,
    ) -> (FilterId, bool) {
        let (filter, unknown) = self.topics.find_or_insert(text);
        if unknown {
            self.add_interest(text, sessions);
        }
        let packed = SubscriptionFlags::new(options);
        let session = sessions.get_mut(id);
        if let Some(at) = session.subscription(filter) {
            let place = session.subscriptions[at as usize].place;
            let subscriber = &mut self.topics.filter_mut(filter).subscribers[place as usize];
            subscriber.options = packed;
            subscriber.id = subscription_id;
            return (filter, false);
        }
        let entry = session.subscriptions.len() as u32;
        let subscriber =
            FilterSubscriber { session: id, entry, id: subscription_id, options: packed };
        let place = self.topics.add_subscriber(filter, subscriber);
        session.add_subscription(Subscription { filter, place });
        (filter, true)
    }

    /// Registers interest in a filter that is new on this shard, so other shards forward messages.
    pub(crate) fn add_interest(&mut self, filter: &str, sessions: &SessionTable) {
        if sessions.context.shards > 1 {
            self.interest.add(sessions.context.id.0, filter, &mut self.shard_interest);
        }
    }

    pub(crate) fn remove_interest(&mut self, filter: &str, sessions: &SessionTable) {
        if sessions.context.shards > 1 {
            self.interest.remove(sessions.context.id.0, filter, &mut self.shard_interest);
        }
    }

    /// Removes a subscription from the session's list and the filter's list. The last entry of each
    /// list may move into the free place, and the indexes are corrected.
    pub(crate) fn drop_subscription(
        &mut self,
        id: SessionId,
        at: u32,
        sessions: &mut SessionTable,
    ) {
        let session = sessions.get_mut(id);
        let Subscription { filter, place } = session.subscriptions[at as usize];
        if let Some(moved) = session.take_subscription(at) {
            let subscribers = &mut self.topics.filter_mut(moved.filter).subscribers;
            subscribers[moved.place as usize].entry = at;
        }
        if let Some(moved) = self.topics.remove_subscriber(filter, place) {
            let session = sessions.get_mut(moved.session);
            session.subscriptions[moved.entry as usize].place = place;
        }
        let unused = self.topics.filter(filter).subscribers.is_empty();
        let text = if unused { self.topics.filter(filter).text.clone() } else { "".into() };
        if unused && self.topics.remove_if_unused(filter) {
            self.remove_interest(&text, sessions);
        }
    }

    /// Adds the session to a shared group. Returns the group if the owner is another shard, whose
    /// answer SUBACK has to await.
    pub(crate) fn subscribe_shared(
        &mut self,
        id: SessionId,
        group: &str,
        options: SubscribeOptions,
        subscription_id: u32,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) -> Option<Arc<str>> {
        let group: Arc<str> = group.into();
        let owner = sessions.context.owner_of(&group);
        let known = sessions.get_mut(id).extras().shares.iter_mut();
        match known.into_iter().find(|share| share.group == group) {
            Some(share) => (share.options, share.id) = (options, subscription_id),
            None => {
                let name = sessions.keep_group(&group);
                let session = sessions.get_mut(id);
                session.is_member = true;
                session.extras().shares.push(GroupMembership {
                    group: group.clone(),
                    name,
                    owner,
                    options,
                    id: subscription_id,
                    // The state that `join` assumes.
                    online: true,
                    granted: 0,
                });
            }
        }
        sessions.room_changes.push(id);
        let member = sessions.session_ref(id);
        let session = sessions.get(id);
        let (client_id, lasts) = ((*session.client_id).into(), session.persistent.is_some());
        let join = GroupJoin { options, id: subscription_id, lasts };
        if owner == sessions.context.id {
            self.join_group(&group, member, &session.client_id.clone(), join, sessions);
            return None;
        }
        let name = group.clone();
        let joining = ShardMessage::JoinGroup { group: name, member, client_id, join };
        out.lanes[usize::from(owner.0)].push_back(joining);
        Some(group)
    }

    /// Removes a subscription and the cursor of the retained messages. Messages in the queue or in
    /// flight stay [MQTT-3.10.4-1] [MQTT-3.10.4-2] [MQTT-3.10.4-3].
    pub(crate) fn unsubscribe_own(
        &mut self,
        id: SessionId,
        text: &str,
        sessions: &mut SessionTable,
    ) -> bool {
        let Some(filter) = self.topics.find(text) else { return false };
        let Some(at) = sessions.get(id).subscription(filter) else { return false };
        sessions.erase_filter(id, text);
        self.release_exclusive(id, text, sessions);
        self.drop_subscription(id, at, sessions);
        // Retained messages not yet sent for the subscription are not sent any more.
        if let Some(extras) = &mut sessions.get_mut(id).extras {
            extras.cursors.remove(filter);
        }
        true
    }

    pub(crate) fn unsubscribe_shared(
        &mut self,
        id: SessionId,
        group: &str,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) -> bool {
        let member = sessions.session_ref(id);
        sessions.erase_filter(id, group);
        let session = sessions.get_mut(id);
        let Some(extras) = &mut session.extras else { return false };
        let Some(at) = extras.shares.iter().position(|share| *share.group == *group) else {
            return false;
        };
        let share = extras.shares.swap_remove(at);
        session.is_member = !extras.shares.is_empty();
        sessions.release_group(share.name);
        let owner = sessions.context.owner_of(group);
        if owner == sessions.context.id {
            self.leave_group(group, member, sessions);
        } else {
            let group = share.group;
            out.lanes[usize::from(owner.0)].push_back(ShardMessage::LeaveGroup { group, member });
        }
        true
    }

    /// Removes a subscription that the client may not keep, if still present, and reports the
    /// denial.
    pub(crate) fn revoke_subscription(
        &mut self,
        id: SessionId,
        filter: &str,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) {
        let found = match parse_known_share(filter) {
            Some(_) => self.unsubscribe_shared(id, filter, sessions, out),
            None => self.unsubscribe_own(id, filter, sessions),
        };
        if !found {
            return;
        }
        if parse_known_share(filter).is_none() {
            self.drop_revoked(id, filter, sessions, out);
        }
        sessions.counters.denied_subscribes += 1;
        let said = sessions.get(id).strip_prefix(filter_behind_share(filter)).to_string();
        let qos = sessions.qos_max_of(id) as u8;
        sessions.note_denial(id, "keep the subscription", AccessCheck::subscribe(&said, qos), out);
    }

    /// Drops queued messages that only a revoked subscription matches. Messages that may have been
    /// sent stay in the window.
    fn drop_revoked(
        &self,
        id: SessionId,
        filter: &str,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) {
        // A link may act as another user from now on, but the queue is the link's.
        if sessions.get(id).client_id.starts_with(LINK_IDS) {
            return;
        }
        if let Some(persistent) = &mut sessions.get_mut(id).persistent {
            persistent.may_hold_revoked = true;
        }
        let mut at = 0;
        loop {
            let flight = sessions.get(id).flight.as_ref();
            let Some(&slot) = flight.and_then(|flight| flight.waiting.get(at)) else { return };
            let is_new = slot.group == NONE
                && !slot.marks.has(SlotMarks::RELEASED)
                && !slot.marks.has(SlotMarks::WAS_SENT);
            let goes = is_new && {
                let message = sessions.messages.message(slot.message);
                let topic = message.topic();
                filter_matches(filter, topic) && !self.has_subscription_for(id, topic, sessions)
            };
            if !goes {
                at += 1;
            } else if let Some(slot) = sessions.take_waiting(id, at) {
                sessions.drop_slot(id, slot, DropReason::Refused, out);
            }
        }
    }

    /// Whether a subscription of the session, shared groups excluded, matches a topic.
    pub(crate) fn has_subscription_for(
        &self,
        id: SessionId,
        topic: &str,
        sessions: &SessionTable,
    ) -> bool {
        let own = &sessions.get(id).subscriptions;
        own.iter().any(|one| filter_matches(&self.topics.filter(one.filter).text, topic))
    }
}
