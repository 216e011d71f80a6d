//! Events for rules and sinks. Events of clients and sessions are derived from each
//! [`BrokerEvent`]; events of messages are recorded where the outcome is decided. Both are recorded
//! only if a consumer is configured. Rules receive the events at the end of the input that caused
//! them.

use super::{DEPTH_MAX, RuleClient, RuleOutcome, RuleTrigger, STEPS_OF_ALL, host_text};
use crate::connection::connection_table::ConnectionTable;
use crate::connection::refusal::Refusal;
use crate::input::SessionId;
use crate::limits::LINK_IDS;
use crate::outbox::Outbox;
use crate::routing::message::{IncomingPublish, Message};
use crate::routing::namespace::split_client_id;
use crate::rules::rule_engine::RuleEngine;
use crate::session::delivery::Delivery;
use crate::session::flight::granted_qos;
use crate::session::session_table::SessionTable;
use crate::shard::Shard;
use crate::statistics::broker_event::BrokerEvent;
use crate::statistics::sys::DropReason;
use mqtt::Publish;
use mqtt::{QoS, ReasonCode};
use rules::{EVENTS, Value};
use std::sync::Arc;

/// An event on its way to the rules.
#[derive(Debug)]
pub(crate) struct RuleEvent {
    /// Index in `EVENTS`.
    pub(super) event: usize,
    client: RuleClient,
    extra_fields: Vec<(&'static str, Value<'static>)>,
    message: Option<Message>,
    qos: QoS,
    /// Client id with its namespace, for a [`BrokerEvent::Delivery`]; `None` if only rules want the
    /// event.
    reported_client_id: Option<Box<str>>,
}

/// Delivery events which sinks want: see `BrokerEvent::Delivery`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeliveryEventOptions {
    pub delivered: bool,
    pub acked: bool,
}

/// Kinds of events which rules or sinks need, from `RuleIndex::event_filter`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EventFilter {
    /// Whether any event is needed, with a message or without.
    pub(crate) any: bool,
    pub(crate) delivery_options: DeliveryEventOptions,
    pub(crate) delivered: bool,
    pub(crate) acked: bool,
    pub(crate) dropped: bool,
    pub(crate) delivery_dropped: bool,
}

impl DeliveryEventOptions {
    fn has(self, event: &str) -> bool {
        match event {
            "message/delivered" => self.delivered,
            "message/acked" => self.acked,
            _ => false,
        }
    }
}

impl EventFilter {
    /// Whether every delivery has to be observed, by `deliver_with_events`.
    #[inline]
    pub(crate) fn wants_deliveries(self) -> bool {
        self.delivered | self.delivery_dropped
    }
}

/// Events of a shard's sessions, until `emit_events` passes them to the rules.
#[derive(Debug, Default)]
pub(crate) struct EventQueue {
    pub(crate) filter: EventFilter,
    events: Vec<RuleEvent>,
    /// Events beyond `EVENTS_PER_INPUT_MAX` in this input, by index in `EVENTS`.
    pub(super) overflow_counts: [u64; EVENTS.len()],
}

/// State for events of a shard which `EventQueue`, a part of the `SessionTable`, cannot hold.
#[derive(Debug)]
pub(crate) struct EventCollector {
    /// Number of events in `Outbox::events` already examined by `collect_events`.
    pub(crate) events_seen: usize,
    /// Client id and user name of the CONNECT whose refusal is being reported.
    pub(crate) refused: Option<(Box<str>, Option<Arc<str>>)>,
    pub(super) stopwatch: fn() -> u64,
}

impl Default for EventCollector {
    fn default() -> EventCollector {
        EventCollector { events_seen: 0, refused: None, stopwatch: || 0 }
    }
}

/// An event of a link, from the control plane.
#[derive(Clone, Debug)]
pub struct LinkEvent {
    /// Name of the event without the prefix `$events/`.
    pub event: &'static str,
    pub fields: Vec<(&'static str, String)>,
}

/// Events per input for rules. Further events are counted as `failed/events`.
const EVENTS_PER_INPUT_MAX: usize = 16 * 1024;

/// Least number of steps for each event. A single read may bring thousands of packets, and rules
/// with little work must receive all events.
const STEPS_OF_EVENT: u64 = 1_000;

/// Returns the index of an event in `EVENTS`.
pub(super) fn event_index(name: &str) -> Option<usize> {
    rules::event_index(name)
}

impl RuleEvent {
    pub(super) fn fields(&self) -> Vec<(&str, Value<'_>)> {
        self.extra_fields.iter().map(|(name, value)| (*name, value.view())).collect()
    }

    /// Returns the event as a [`BrokerEvent::Delivery`], for sinks.
    fn delivery_event(&self) -> Option<BrokerEvent> {
        let (client_id, message) = (self.reported_client_id.clone()?, self.message.clone()?);
        let (event, user) = (EVENTS[self.event].label, self.client.user.clone());
        Some(BrokerEvent::Delivery { event, client_id, user, qos: self.qos, message })
    }
}

impl Shard {
    /// Runs the rules for the events since the last call, and for the events which their outputs
    /// cause, up to `DEPTH_MAX` rounds. All rules share `STEPS_OF_ALL`, since the cause is a single
    /// input.
    #[cold]
    pub(crate) fn emit_events(&mut self, out: &mut Outbox) {
        let mut steps = STEPS_OF_ALL;
        for round in 0_u8.. {
            self.rule_engine.collect_events(&mut self.connections, &mut self.sessions, out);
            let happened = std::mem::take(&mut self.sessions.event_queue.events);
            if happened.is_empty() {
                break;
            }
            let depth = round.min(DEPTH_MAX);
            for one in &happened {
                out.events.extend(one.delivery_event());
                let least = steps.max(STEPS_OF_EVENT);
                let mut left = least;
                let ruled = self.rule_engine.run_event_rules(
                    one,
                    depth,
                    &mut left,
                    &mut self.sessions,
                    out,
                );
                self.publish_outputs_within(ruled, &mut left, out);
                steps = steps.saturating_sub(least - left);
            }
            self.finish_input(out);
            if depth == DEPTH_MAX {
                break;
            }
        }
        self.rule_engine.count_overflow(&mut self.sessions, out);
        self.sessions.durability.pending_acks.requested.clear();
    }
}

impl RuleEngine {
    fn run_event_rules(
        &mut self,
        one: &RuleEvent,
        depth: u8,
        steps: &mut u64,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) -> RuleOutcome {
        let mut ruled = RuleOutcome::default();
        ruled.budget.steps = *steps;
        let mut found = self.rule_index.rules_of_event(one.event).to_vec();
        let mut draft = match &one.message {
            Some(message) => message.draft(),
            None => IncomingPublish::new("", b"", sessions.context.now),
        };
        draft.qos = one.qos;
        // Without this check a rule whose own message is delivered would trigger itself for ever.
        if draft.by_rule {
            let all = self.rule_index.all.clone();
            found.retain(|at| {
                let rule = &all[*at as usize];
                let goes_on = rule.actions.publish.is_some();
                if goes_on {
                    rule.metrics.count_failure("loop");
                }
                !goes_on
            });
        }
        let looked = RuleTrigger {
            draft: &draft,
            client: &one.client,
            is_dup: false,
            depth,
            event: Some(one),
        };
        self.run_rules(&found, &looked, &mut ruled, sessions, out);
        *steps = ruled.budget.steps;
        ruled
    }

    /// Queues the events of each new [`BrokerEvent`], while the session still exists.
    #[cold]
    pub(crate) fn collect_events(
        &mut self,
        connections: &mut ConnectionTable,
        sessions: &mut SessionTable,
        out: &Outbox,
    ) {
        let from = std::mem::replace(&mut self.event_collector.events_seen, out.events.len());
        for broker_event in out.events.get(from..).unwrap_or_default() {
            for event in events_of(broker_event) {
                let Some(event) = event_index(event) else { continue };
                if self.rule_index.rules_of_event(event).is_empty() {
                    continue;
                }
                let happened = connections.rule_event_of(event, broker_event, sessions);
                sessions.event_queue.events.push(happened);
            }
        }
    }

    /// Handles an event of a link, which only the control plane observes.
    pub(crate) fn on_link_event(&mut self, told: LinkEvent, sessions: &mut SessionTable) {
        let Some(event) =
            event_index(told.event).filter(|at| !self.rule_index.rules_of_event(*at).is_empty())
        else {
            return;
        };
        let more = told.fields.into_iter();
        let more = more.map(|(name, value)| (name, Value::Text(value.into()))).collect();
        let (who, qos) = (RuleClient::default(), QoS::AtMostOnce);
        let happened = RuleEvent {
            event,
            client: who,
            extra_fields: more,
            message: None,
            qos,
            reported_client_id: None,
        };
        sessions.event_queue.events.push(happened);
    }

    /// Counts events beyond the bound as failures of their rules, and reports `DeliveriesSkipped`.
    fn count_overflow(&mut self, sessions: &mut SessionTable, out: &mut Outbox) {
        for (event, count) in
            std::mem::take(&mut sessions.event_queue.overflow_counts).into_iter().enumerate()
        {
            for &at in self.rule_index.rules_of_event(event).iter().filter(|_| count > 0) {
                self.rule_index.all[at as usize].metrics.count_failures("events", count);
            }
            if count > 0 && sessions.context.options.event_options.delivery.has(EVENTS[event].name)
            {
                out.events
                    .push(BrokerEvent::DeliveriesSkipped { event: EVENTS[event].label, count });
            }
        }
    }
}

impl ConnectionTable {
    fn rule_event_of(
        &self,
        event: usize,
        broker_event: &BrokerEvent,
        sessions: &SessionTable,
    ) -> RuleEvent {
        let whole = broker_event.client_id().unwrap_or_default();
        let (namespace, said) = split_client_id(whole);
        let session = sessions.find(whole).filter(|_| !whole.is_empty());
        let mut who = session.map(|id| self.rule_client_of(id, sessions)).unwrap_or_default();
        who.client_id = said.into();
        let mut more = broker_event.fields();
        let now = sessions.context.time_of_day_ms(sessions.context.now.0);
        match broker_event {
            BrokerEvent::Connected { peer, .. } => {
                who.address = Some(host_text(*peer));
                let expiry_s = session.map_or(0, |id| sessions.get(id).expiry_s);
                more.push(("expiry_interval", Value::Int(expiry_s.into())));
                more.push(("connected_at", Value::Int(now)));
                more.push(("reason_code", Value::text("success")));
            }
            BrokerEvent::Refused { peer, refusal, user, .. } => {
                who.address = Some(host_text(*peer));
                who.user = who.user.or_else(|| user.clone());
                more.push(("reason_code", snake_case_reason(refusal.reason())));
                more.push(("result", Value::text("deny")));
            }
            BrokerEvent::Denied { .. } => more.push(("result", Value::text("deny"))),
            BrokerEvent::Subscribed { code, .. } => more.push(("qos", Value::Int((*code).into()))),
            _ => {}
        }
        if EVENTS[event].fields.contains(&"disconnected_at") {
            more.push(("disconnected_at", Value::Int(now)));
        }
        more.extend(namespace.map(|name| ("namespace", Value::Text(name.to_string().into()))));
        more.retain(|(name, _)| EVENTS[event].fields.contains(name));
        RuleEvent {
            event,
            client: who,
            extra_fields: more,
            message: None,
            qos: QoS::AtMostOnce,
            reported_client_id: None,
        }
    }
}

impl SessionTable {
    /// Reports `message/dropped` for a published message without a receiver.
    #[cold]
    pub(crate) fn on_message_dropped(
        &mut self,
        id: SessionId,
        draft: &mut IncomingPublish<'_>,
        why: &'static str,
    ) {
        if self.event_queue.filter.dropped {
            self.on_event(id, "message/dropped", draft.qos, Some(why), draft);
        }
    }

    /// Reports `message/dropped` for a PUBLISH which was refused before it became a message.
    #[cold]
    pub(crate) fn on_publish_refused(
        &mut self,
        id: SessionId,
        packet: &Publish<'_>,
        drop: DropReason,
    ) {
        let mut draft = IncomingPublish::new(packet.topic, packet.payload, self.context.now);
        (draft.qos, draft.retain) = (packet.qos, packet.retain);
        self.on_message_dropped(id, &mut draft, drop.name());
    }
}

impl SessionTable {
    /// Delivers a message and reports the outcome to rules. The outcome is read from counters, so
    /// that `deliver` does no work for events.
    pub(crate) fn deliver_with_events(
        &mut self,
        hit: Delivery,
        draft: &mut IncomingPublish<'_>,
        out: &mut Outbox,
    ) {
        let before = self.sent_counts();
        self.deliver(hit, draft, out);
        self.on_delivered(hit.session, granted_qos(draft.qos, hit.options), before, draft);
    }

    /// Returns the number of messages written to clients, and of messages above Maximum Packet
    /// Size.
    pub(crate) fn sent_counts(&self) -> (u64, u64) {
        (self.counters.publish_sent, self.counters.drops[DropReason::PacketTooLarge as usize])
    }

    /// Reports deliveries since the counts `before`.
    pub(crate) fn on_delivered(
        &mut self,
        id: SessionId,
        qos: QoS,
        before: (u64, u64),
        draft: &mut IncomingPublish<'_>,
    ) {
        if !self.event_queue.filter.wants_deliveries() {
            return;
        }
        let (sent, too_large) = self.sent_counts();
        if sent > before.0 && self.event_queue.filter.delivered {
            self.on_event(id, "message/delivered", qos, None, draft);
        }
        if too_large > before.1 {
            self.on_delivery_dropped(id, DropReason::PacketTooLarge, draft);
        }
    }

    /// Reports `message/acked`: the client has acknowledged a message.
    #[cold]
    pub(crate) fn on_message_acked(&mut self, id: SessionId, draft: &mut IncomingPublish<'_>) {
        self.on_event(id, "message/acked", draft.qos, None, draft);
    }

    /// Reports `message/delivery_dropped`: a message does not reach a client.
    #[cold]
    pub(crate) fn on_delivery_dropped(
        &mut self,
        id: SessionId,
        drop: DropReason,
        draft: &mut IncomingPublish<'_>,
    ) {
        if self.event_queue.filter.delivery_dropped {
            let why = Some(drop.name());
            self.on_event(id, "message/delivery_dropped", draft.qos, why, draft);
        }
    }

    fn on_event(
        &mut self,
        id: SessionId,
        event: &str,
        qos: QoS,
        why: Option<&'static str>,
        draft: &mut IncomingPublish<'_>,
    ) {
        let session = self.get(id);
        let told =
            self.event_queue.filter.delivery_options.has(event).then(|| session.client_id.clone());
        let Some(event) = event_index(event) else { return };
        if session.own_client_id().starts_with(LINK_IDS) || draft.topic.starts_with("$SYS/") {
            return;
        }
        if self.event_queue.events.len() >= EVENTS_PER_INPUT_MAX {
            self.event_queue.overflow_counts[event] += 1;
            return;
        }
        let who = RuleClient {
            client_id: session.own_client_id().into(),
            user: session.permissions.as_ref().and_then(|rights| rights.subject.user.clone()),
            ..RuleClient::default()
        };
        let more = why.map(|why| ("reason", Value::text(why))).into_iter().collect();
        let message = Some(draft.message().clone());
        self.event_queue.events.push(RuleEvent {
            event,
            client: who,
            extra_fields: more,
            message,
            qos,
            reported_client_id: told,
        });
    }
}

/// Returns the events which a [`BrokerEvent`] stands for. Links are not clients and have none.
fn events_of(event: &BrokerEvent) -> &'static [&'static str] {
    if event.client_id().is_none_or(|id| split_client_id(id).1.starts_with(LINK_IDS)) {
        return &[];
    }
    match event {
        BrokerEvent::Connected { .. } => &["client/connack", "client/connected"],
        BrokerEvent::Refused { was_in: true, .. } => &["client/disconnected"],
        BrokerEvent::Refused { refusal, .. } if is_about_identity(*refusal) => {
            &["client/connack", "auth/check_authn_complete"]
        }
        BrokerEvent::Refused { .. } => &["client/connack"],
        BrokerEvent::Disconnected { .. } | BrokerEvent::Lost { .. } => &["client/disconnected"],
        BrokerEvent::Violated { client_id, .. } if !client_id.is_empty() => {
            &["client/disconnected"]
        }
        BrokerEvent::Denied { .. } => &["auth/check_authz_complete"],
        BrokerEvent::Subscribed { code, .. } if *code < 0x80 => &["session/subscribed"],
        BrokerEvent::Unsubscribed { code: 0, .. } => &["session/unsubscribed"],
        BrokerEvent::TakenOver { .. } => &["session/takenover"],
        BrokerEvent::SessionEnded { expired: true, .. } => &["session/expired"],
        BrokerEvent::SessionEnded { .. } => &["session/terminated"],
        _ => &[],
    }
}

/// Whether a refusal counts as `auth/check_authn_complete`: the client's identity is the reason.
fn is_about_identity(refusal: Refusal) -> bool {
    matches!(
        refusal,
        Refusal::AuthMethodUnsupported
            | Refusal::BadCredentials
            | Refusal::NoNamespace
            | Refusal::NoVerdict
            | Refusal::NotRenewed
            | Refusal::NotWelcome
    )
}

/// Returns the reason as EMQX writes it: `BadUserNameOrPassword` is `bad_username_or_password`.
fn snake_case_reason(reason: ReasonCode) -> Value<'static> {
    let plain = format!("{reason:?}").replace("UserName", "Username");
    let mut word = String::new();
    for letter in plain.chars() {
        if letter.is_ascii_uppercase() && !word.is_empty() {
            word.push('_');
        }
        word.push(letter.to_ascii_lowercase());
    }
    Value::Text(word.into())
}
