//! Handling of SUBSCRIBE and UNSUBSCRIBE.

use crate::connection::conn::{CloseReason, ConnState, PendingSubAck};
use crate::connection::connection_table::ConnectionTable;
use crate::connection::reason_string::encode_with_reason;
use crate::connection::refusal::Refusal;
use crate::connection::send_gate::SendGate;
use crate::context::ShardContext;
use crate::input::{ConnId, SessionId, SessionRef, ShardMessage};
use crate::limits::{LINK_IDS, SHARES_MAX};
use crate::outbox::{Effect, Outbox};
use crate::routing::ShardRouting;
use crate::routing::exclusive::{ClaimOutcome, EXCLUSIVE, ExclusiveClaim, strip_exclusive};
use crate::routing::topics::{FilterId, FilterSubscriber, SubscriptionFlags, is_wildcard};
use crate::session::retained_feed::RetainedCursor;
use crate::session::session_table::GroupMembership;
use crate::session::session_table::SessionTable;
use crate::session::subscriptions::Subscription;
use crate::shard::Shard;
use crate::statistics::broker_event::BrokerEvent;
use mqtt::{
    Packet, Properties, Property, QoS, ReasonCode, SubAck, Subscribe, SubscribeOptions, UnsubAck,
    Unsubscribe, Violation, varint_len,
};
use std::sync::Arc;

/// Returns the options that a bridge of MQTT 3.x would request if the protocol had them.
fn bridge_options(filter: &str, options: SubscribeOptions) -> SubscribeOptions {
    // No Local is an error for a shared subscription [MQTT-3.8.3-4].
    let no_local = !filter.starts_with("$share/");
    SubscribeOptions { no_local, retain_as_published: true, ..options }
}

/// Whether a link subscribes to topics below the link's own client id, to which rules publish.
pub(crate) fn is_own_link_topic(client_id: &str, filter: &str) -> bool {
    let rest = filter.strip_prefix(client_id).filter(|_| client_id.starts_with(LINK_IDS));
    rest.is_some_and(|rest| rest.starts_with('/'))
}

impl Shard {
    pub(crate) fn subscribe(
        &mut self,
        conn: ConnId,
        id: SessionId,
        packet: Subscribe<'_>,
        out: &mut Outbox,
    ) -> Result<(), CloseReason> {
        self.sessions.check_ack_size(id, packet.filters.len())?;
        let mut subscription_id = 0;
        for property in packet.properties.iter() {
            if let Property::SubscriptionIdentifier(given) = property {
                subscription_id = given;
            }
        }
        let (mut codes, mut groups, mut claims) = (Vec::new(), Vec::new(), Vec::new());
        let mut what = None;
        // [MQTT-3.8.4-5]: as in separate packets, with one SUBACK for all filters.
        let is_bridge = self.connections.conn(conn).is_some_and(|known| known.is_bridge);
        let most = self.sessions.context.filters_per_tick();
        for (at, (filter, options)) in packet.filters.iter().enumerate() {
            let options = if is_bridge { bridge_options(filter, options) } else { options };
            let asked = (filter, at < most);
            let granted =
                self.subscribe_filter(id, asked.0, asked.1, options, subscription_id, out)?;
            let code = match granted {
                Ok(SubscribeOutcome::Own { known, qos, is_new }) => {
                    self.routing.start_retained_feed(
                        id,
                        known,
                        qos,
                        is_new,
                        options,
                        subscription_id,
                        &mut self.sessions,
                    );
                    qos as u8
                }
                Ok(SubscribeOutcome::Shared { qos, awaited }) => {
                    groups.extend(awaited);
                    qos as u8
                }
                Ok(SubscribeOutcome::Pending { filter: known, options }) => {
                    let said = filter.into();
                    let at = codes.len();
                    claims.push(ExclusiveClaim {
                        at,
                        said,
                        filter: known,
                        options,
                        subscription_id,
                    });
                    codes.push(0);
                    continue;
                }
                Err(refusal) => {
                    what = what.or(Some(refusal.description()));
                    refusal.reason().code()
                }
            };
            let client_id = self.sessions.get(id).client_id.clone();
            out.events.push(BrokerEvent::Subscribed { client_id, filter: filter.into(), code });
            // [MQTT-3.8.4-6] [MQTT-3.8.4-7] [MQTT-3.9.3-1]
            codes.push(code);
        }
        let held = PendingSubAck { packet_id: packet.packet_id, codes, what, groups, claims };
        if held.groups.is_empty() && held.claims.is_empty() {
            self.connections.send_suback(conn, id, &held, &mut self.sessions, out);
            return Ok(());
        }
        if let Some(known) = self.connections.conn_mut(conn) {
            known.state = ConnState::AwaitingSubAck { session: id, suback: Box::new(held) };
            out.effects.push(Effect::Hold { conn });
        }
        Ok(())
    }

    /// Subscribes to one filter. The outer error ends the connection; the inner error is the reason
    /// code of this filter in SUBACK. With `has_room` false the result is `Refusal::QuotaExceeded`.
    pub(crate) fn subscribe_filter(
        &mut self,
        id: SessionId,
        filter: &str,
        has_room: bool,
        options: SubscribeOptions,
        subscription_id: u32,
        out: &mut Outbox,
    ) -> Result<Result<SubscribeOutcome, Refusal>, CloseReason> {
        let share = mqtt::SharedFilter::parse(filter)?;
        // [MQTT-3.8.3-4]
        if share.is_some() && options.no_local {
            return Err(Violation::NoLocalOnShared.into());
        }
        self.update_memory_pressure();
        let inner = share.map_or(filter, |share| share.filter);
        // [MQTT-4.7.1-1] [MQTT-4.7.1-2] [MQTT-4.7.3-1]
        mqtt::topic::check_filter(inner)?;
        let named = match self.connections.rewrite_filter(id, filter, &self.sessions) {
            Ok(named) => named,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let alone = named.strip_prefix(EXCLUSIVE);
        if let Some(Err(refusal)) =
            alone.map(|filter| self.sessions.context.permit_exclusive(filter))
        {
            return Ok(Err(refusal));
        }
        let named = alone.unwrap_or(&named);
        let inner = mqtt::SharedFilter::parse(named)?.map_or(named, |share| share.filter);
        // Permissions are checked for the client's name of the filter, the namespaced name is
        // stored.
        let Some(known) = self.sessions.get(id).add_filter_prefix(named) else {
            return Ok(Err(Refusal::TopicFilterInvalid));
        };
        let known = &*known;
        let judged = (inner, known, share.is_some());
        if let Err(refusal) = self.routing.check_filter(
            id,
            judged.0,
            judged.1,
            judged.2,
            subscription_id,
            &self.sessions,
        ) {
            return Ok(Err(refusal));
        }
        if !has_room {
            return Ok(Err(Refusal::QuotaExceeded));
        }
        // [MQTT-3.2.2-10]
        let qos = options.qos.min(self.sessions.qos_max_of(id));
        if let Err(refusal) =
            self.authorization.may_subscribe(id, inner, qos as u8, &mut self.sessions, out)
        {
            return Ok(Err(refusal));
        }
        let options = SubscribeOptions { qos, ..options };
        if share.is_some() {
            let awaited = self.routing.subscribe_shared(
                id,
                known,
                options,
                subscription_id,
                &mut self.sessions,
                out,
            );
            self.sessions.write_filter(id, known, SubscriptionFlags::new(options), subscription_id);
            return Ok(Ok(SubscribeOutcome::Shared { qos, awaited }));
        }
        if alone.is_some() {
            match self.routing.claim_exclusive(id, known, &mut self.sessions, out) {
                ClaimOutcome::Pending(filter) => {
                    return Ok(Ok(SubscribeOutcome::Pending { filter, options }));
                }
                ClaimOutcome::Granted => {}
                ClaimOutcome::Taken => return Ok(Err(Refusal::ExclusiveTaken)),
            }
        }
        let (filter, is_new) =
            self.routing.subscribe_own(id, known, options, subscription_id, &mut self.sessions);
        self.sessions.write_filter(id, known, SubscriptionFlags::new(options), subscription_id);
        Ok(Ok(SubscribeOutcome::Own { known: filter, qos, is_new }))
    }

    pub(crate) fn unsubscribe(
        &mut self,
        conn: ConnId,
        id: SessionId,
        packet: Unsubscribe<'_>,
        out: &mut Outbox,
    ) -> Result<(), CloseReason> {
        self.sessions.check_ack_size(id, packet.filters.len())?;
        let mut codes = Vec::new();
        for filter in packet.filters.iter() {
            let share = mqtt::SharedFilter::parse(filter)?;
            if share.is_none() {
                // [MQTT-4.7.1-1] [MQTT-4.7.1-2] [MQTT-4.7.3-1]
                mqtt::topic::check_filter(filter)?;
            }
            // A filter too long for a name, or without a name, cannot be subscribed.
            let named =
                self.connections.rewrite_filter(id, filter, &self.sessions).unwrap_or_default();
            let known = self
                .sessions
                .get(id)
                .add_filter_prefix(strip_exclusive(&named))
                .unwrap_or_default();
            let found = match share {
                Some(_) => self.routing.unsubscribe_shared(id, &known, &mut self.sessions, out),
                None => self.routing.unsubscribe_own(id, &known, &mut self.sessions),
            };
            let reason =
                if found { ReasonCode::Success } else { ReasonCode::NoSubscriptionExisted };
            let (client_id, code) = (self.sessions.get(id).client_id.clone(), reason.code());
            out.events.push(BrokerEvent::Unsubscribed { client_id, filter: filter.into(), code });
            // [MQTT-3.11.3-1]
            codes.push(code);
        }
        // [MQTT-3.10.4-4] [MQTT-3.10.4-5] [MQTT-3.10.4-6]
        let version = self.sessions.get(id).version;
        let mut bytes = Vec::with_capacity(8 + codes.len());
        let ack = UnsubAck {
            packet_id: packet.packet_id,
            properties: Properties::default(),
            codes: &codes,
        };
        Packet::UnsubAck(ack).encode(version, &mut bytes);
        let waits = self.sessions.waits_for_store(id);
        self.connections.send_when_durable(conn, &bytes, waits, &mut self.sessions, out);
        Ok(())
    }
}

impl ShardRouting {
    /// Starts to send retained messages to a subscription, if Retain Handling asks for them.
    pub(crate) fn start_retained_feed(
        &mut self,
        id: SessionId,
        filter: FilterId,
        qos: QoS,
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
                options: SubscriptionFlags::new(SubscribeOptions { qos, ..options }),
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
    pub(crate) fn add_interest(&mut self, filter: &str, sessions: &mut SessionTable) {
        if sessions.context.shards > 1 {
            self.interest.add(sessions.context.id.0, filter, &mut self.shard_interest);
        }
    }

    pub(crate) fn remove_interest(&mut self, filter: &str, sessions: &mut SessionTable) {
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
    fn subscribe_shared(
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
        if owner == sessions.context.id {
            self.join_group(
                &group,
                member,
                &session.client_id.clone(),
                options,
                subscription_id,
                lasts,
                sessions,
            );
            return None;
        }
        let name = group.clone();
        let join = ShardMessage::JoinGroup {
            group: name,
            member,
            client_id,
            options,
            subscription_id,
            lasts,
        };
        out.lanes[usize::from(owner.0)].push_back(join);
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
}

impl ConnectionTable {
    /// Sends SUBACK, once the subscriptions are durable [MQTT-3.8.4-1] [MQTT-3.8.4-2]
    /// [MQTT-2.2.1-6].
    pub(crate) fn send_suback(
        &mut self,
        conn: ConnId,
        id: SessionId,
        held: &PendingSubAck,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) {
        let session = sessions.get(id);
        let what = held.what.filter(|_| session.wants_reason_strings());
        let bytes = encode_with_reason(what, session.packet_bytes_max, |properties, bytes| {
            let ack = SubAck { packet_id: held.packet_id, properties, codes: &held.codes };
            ack.encode(session.version, bytes);
        });
        let waits = sessions.waits_for_store(id);
        self.send_when_durable(conn, &bytes, waits, sessions, out);
        sessions.wake_cursors(id);
    }

    /// Handles `ShardMessage::GroupJoined`: the owner of a shared group has added a member of this
    /// shard.
    pub(crate) fn on_group_joined(
        &mut self,
        group: &str,
        member: SessionRef,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) {
        if !sessions.is_current(member.session, member.generation) {
            return;
        }
        let Some(conn) = sessions.get(member.session).conn() else { return };
        let Some(known) = self.conn_mut(conn) else { return };
        let ConnState::AwaitingSubAck { suback, .. } = &mut known.state else { return };
        suback.groups.retain(|awaited| **awaited != *group);
        self.send_ready_suback(member.session, sessions, out);
    }
}

impl SessionTable {
    /// Checks the size of SUBACK or UNSUBACK, which have a byte per filter: no other answer can
    /// exceed the Maximum Packet Size of a client that received CONNACK [MQTT-3.1.2-24].
    fn check_ack_size(&self, id: SessionId, filters: usize) -> Result<(), Refusal> {
        // Packet id, no properties, codes.
        let remaining = 2 + 1 + filters;
        let len = 1 + varint_len(remaining as u32) + remaining;
        let fits = len <= self.get(id).packet_bytes_max as usize;
        if fits { Ok(()) } else { Err(Refusal::AnswerTooLarge) }
    }

    /// Returns the maximum QoS of the session's listener.
    pub(crate) fn qos_max_of(&self, id: SessionId) -> QoS {
        let own = self.context.options.options_of_session(self.get(id));
        QoS::from_bits(own.qos_max).unwrap_or(QoS::ExactlyOnce)
    }
}

impl ShardContext {
    pub(crate) fn qos_max(&self) -> QoS {
        QoS::from_bits(self.options.qos_max).unwrap_or(QoS::ExactlyOnce)
    }
}

pub(crate) enum SubscribeOutcome {
    Own {
        known: FilterId,
        qos: QoS,
        is_new: bool,
    },
    Shared {
        qos: QoS,
        awaited: Option<Arc<str>>,
    },
    /// Another shard decides whether the session may have the exclusive filter.
    Pending {
        filter: Arc<str>,
        options: SubscribeOptions,
    },
}
