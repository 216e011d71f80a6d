//! SUBSCRIBE and UNSUBSCRIBE, automatic and preset subscriptions, and answers of other shards and
//! servers about subscriptions.

use crate::broker_event::BrokerEvent;
use crate::connection::conn::{ConnState, PendingSubAck};
use crate::ids::{ConnId, RequestId, SessionId, SessionRef, SubscriptionFlags};
use crate::interface::authz::AuthzDecision;
use crate::interface::outbox::{Effect, Outbox};
use crate::limits::LINK_IDS;
use crate::options::auto_subscription::AutoSubscription;
use crate::refusal::{CloseReason, Refusal};
use crate::routing::exclusive::{ClaimOutcome, ExclusiveClaim};
use crate::session::subscribe_checks::{SubscribeOutcome, bridge_options};
use crate::shard::Shard;
use crate::special_topics::{EXCLUSIVE, strip_exclusive};
use mqtt::{
    Packet, Properties, Property, ReasonCode, Subscribe, SubscribeOptions, UnsubAck, Unsubscribe,
    Violation,
};
use std::sync::Arc;

impl Shard {
    /// Handles the answer of the filter's owner. If the session ended or no longer waits, a granted
    /// filter is released again.
    pub(crate) fn on_claim_answer(
        &mut self,
        filter: &Arc<str>,
        member: SessionRef,
        is_granted: bool,
        out: &mut Outbox,
    ) {
        let id = member.session;
        let is_here = self.sessions.is_current(id, member.generation);
        let claims = if is_here {
            self.connections.take_claims(id, filter, &self.sessions)
        } else {
            Vec::new()
        };
        if is_granted && claims.is_empty() && !(is_here && self.sessions.has_exclusive(id, filter))
        {
            return self.routing.exclusives.released.push((filter.clone(), member));
        }
        for exclusive_claim in claims {
            let code = match is_granted {
                true => self.routing.subscribe_claimed(id, &exclusive_claim, &mut self.sessions),
                false => Refusal::ExclusiveTaken.reason().code(),
            };
            let client_id = self.sessions.get(id).client_id.clone();
            out.events.push(BrokerEvent::Subscribed {
                client_id,
                filter: exclusive_claim.said,
                code,
            });
            let conn =
                self.sessions.get(id).conn().and_then(|conn| self.connections.conn_mut(conn));
            if let Some(ConnState::AwaitingSubAck { suback, .. }) =
                conn.map(|known| &mut known.state)
            {
                suback.codes[exclusive_claim.at] = code;
                if !is_granted {
                    suback.what = suback.what.or(Some(Refusal::ExclusiveTaken.description()));
                }
            }
        }
        if is_here {
            self.connections.send_ready_suback(id, &mut self.sessions, out);
        }
    }

    /// Makes the automatic subscriptions of a client that has received CONNACK. Links are exempt.
    pub(crate) fn auto_subscribe(&mut self, id: SessionId, out: &mut Outbox) {
        if self.sessions.context.options.auto_subscriptions.is_empty() {
            return;
        }
        // Links make all subscriptions themselves.
        if self.sessions.get(id).client_id.starts_with(LINK_IDS) {
            return;
        }
        let autos = self.sessions.context.options.auto_subscriptions.clone();
        for AutoSubscription { filter, options } in autos.iter() {
            let Some(filter) =
                filter.fill(&self.connections.placeholder_values(id, &self.sessions), |_| "")
            else {
                continue;
            };
            let options = self.subscribed_options_or(id, &filter, *options);
            let granted = self.subscribe_filter(id, &filter, true, options.0, options.1, out);
            // No answer is due, so an invalid name, filled from the client's own values, is
            // skipped.
            let Ok(granted) = granted else { continue };
            let code = match granted {
                Ok(SubscribeOutcome::Own { known, qos, is_new }) => {
                    let sent = SubscribeOptions { qos, ..options.0 };
                    let Shard { routing, sessions, .. } = self;
                    routing.start_retained_feed(id, known, is_new, sent, options.1, sessions);
                    qos as u8
                }
                Ok(SubscribeOutcome::Shared { qos, .. }) => qos as u8,
                Ok(SubscribeOutcome::Pending { .. }) => continue,
                Err(refusal) => refusal.reason().code(),
            };
            let client_id = self.sessions.get(id).client_id.clone();
            out.events.push(BrokerEvent::Subscribed { client_id, filter: filter.into(), code });
        }
        self.sessions.wake_cursors(id);
    }

    /// Returns the options and the Subscription Identifier of an existing subscription to the
    /// filter, so a resumed session keeps both; else `options` and 0.
    fn subscribed_options_or(
        &self,
        id: SessionId,
        filter: &str,
        options: SubscribeOptions,
    ) -> (SubscribeOptions, u32) {
        let session = self.sessions.get(id);
        let named = self.connections.rewrite_filter(id, filter, &self.sessions).unwrap_or_default();
        let known = session.add_filter_prefix(&named).unwrap_or_default();
        let handling = options.retain_handling;
        let shares = session.extras.as_ref().map_or(&[][..], |extras| &extras.shares);
        if let Some(share) = shares.iter().find(|share| *share.group == *known) {
            return (share.options, share.id);
        }
        let own = self.routing.topics.find(&known).and_then(|filter| {
            let at = session.subscription(filter)?;
            let place = session.subscriptions[at as usize].place;
            Some(&self.routing.topics.filter(filter).subscribers[place as usize])
        });
        own.map_or((options, 0), |own| {
            (SubscribeOptions { retain_handling: handling, ..own.options.options() }, own.id)
        })
    }

    /// Creates the preset sessions that this shard owns and that do not exist. Called before
    /// clients may connect.
    pub fn make_presets(&mut self) {
        let presets = self.sessions.context.options.presets.clone();
        for preset in presets.iter() {
            if self.sessions.context.owner_of(&preset.client_id) == self.sessions.context.id
                && self.sessions.find(&preset.client_id).is_none()
            {
                self.routing.make_preset(preset, &mut self.sessions);
            }
        }
    }

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
                    let sent = SubscribeOptions { qos, ..options };
                    let Shard { routing, sessions, .. } = self;
                    routing.start_retained_feed(id, known, is_new, sent, subscription_id, sessions);
                    qos as u8
                }
                Ok(SubscribeOutcome::Shared { qos, awaited }) => {
                    groups.extend(awaited);
                    qos as u8
                }
                Ok(SubscribeOutcome::Pending { filter: known, options }) => {
                    let (at, said) = (codes.len(), filter.into());
                    let filter = known;
                    claims.push(ExclusiveClaim { at, said, filter, options, subscription_id });
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
        let Shard { connections, authorization, routing, sessions, .. } = self;
        let inner = share.map_or(filter, |share| share.filter);
        // [MQTT-4.7.1-1] [MQTT-4.7.1-2] [MQTT-4.7.3-1]
        mqtt::topic::check_filter(inner)?;
        let named = match connections.rewrite_filter(id, filter, sessions) {
            Ok(named) => named,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let alone = named.strip_prefix(EXCLUSIVE);
        if let Some(Err(refusal)) = alone.map(|filter| sessions.context.permit_exclusive(filter)) {
            return Ok(Err(refusal));
        }
        let named = alone.unwrap_or(&named);
        let inner = mqtt::SharedFilter::parse(named)?.map_or(named, |share| share.filter);
        // Permissions are checked for the client's name of the filter, the namespaced name is
        // stored.
        let Some(known) = sessions.get(id).add_filter_prefix(named) else {
            return Ok(Err(Refusal::TopicFilterInvalid));
        };
        let known = &*known;
        let is_shared = share.is_some();
        if let Err(refusal) =
            routing.check_filter(id, inner, known, is_shared, subscription_id, sessions)
        {
            return Ok(Err(refusal));
        }
        if !has_room {
            return Ok(Err(Refusal::QuotaExceeded));
        }
        // [MQTT-3.2.2-10]
        let qos = options.qos.min(sessions.qos_max_of(id));
        if let Err(refusal) = authorization.may_subscribe(id, inner, qos as u8, sessions, out) {
            return Ok(Err(refusal));
        }
        let options = SubscribeOptions { qos, ..options };
        if share.is_some() {
            let awaited =
                routing.subscribe_shared(id, known, options, subscription_id, sessions, out);
            sessions.write_filter(id, known, SubscriptionFlags::new(options), subscription_id);
            return Ok(Ok(SubscribeOutcome::Shared { qos, awaited }));
        }
        if alone.is_some() {
            match routing.claim_exclusive(id, known, sessions, out) {
                ClaimOutcome::Pending(filter) => {
                    return Ok(Ok(SubscribeOutcome::Pending { filter, options }));
                }
                ClaimOutcome::Granted => {}
                ClaimOutcome::Taken => return Ok(Err(Refusal::ExclusiveTaken)),
            }
        }
        let (filter, is_new) = routing.subscribe_own(id, known, options, subscription_id, sessions);
        sessions.write_filter(id, known, SubscriptionFlags::new(options), subscription_id);
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

    /// Handles a decision of the authorization server. A decision for an earlier request has no
    /// effect.
    pub(crate) fn on_authz_decision(
        &mut self,
        request_id: RequestId,
        answer: AuthzDecision,
        out: &mut Outbox,
    ) {
        let Some(conn) = request_id.conn else {
            return self.authorization.on_reauthorization_decision(
                request_id,
                answer,
                &mut self.routing,
                &mut self.sessions,
                out,
            );
        };
        let Some(known) = self.connections.conn_mut(conn) else { return };
        let Some(inquiry) = known.state.pending_authz() else { return };
        let open = inquiry.all.get_mut(request_id.at as usize);
        let Some(open) = open.filter(|open| open.answer.is_none()) else { return };
        if inquiry.number != request_id.number {
            return;
        }
        open.answer = Some(answer);
        inquiry.unanswered -= 1;
        if inquiry.unanswered == 0 {
            self.authorization.resume_after_authz(
                conn,
                &mut self.connections,
                &mut self.sessions,
                out,
            );
        }
    }
}
