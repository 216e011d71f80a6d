//! Events for rules and sinks. Events of clients and sessions are derived from each
//! [`BrokerEvent`]; events of messages are recorded where the outcome is decided. Both are recorded
//! only if a consumer is configured. Rules receive the events at the end of the input that caused
//! them.

use super::{RuleOutcome, RuleTrigger};
use crate::broker_event::BrokerEvent;
use crate::connection::connect::refuse_connect;
use crate::connection::connection_table::ConnectionTable;
use crate::connection::negotiation::ConnectProperties;
use crate::ids::ConnId;
use crate::interface::outbox::Outbox;
use crate::interface::rule_event::{LinkEvent, RuleClient, RuleEvent, event_index};
use crate::limits::LINK_IDS;
use crate::message::IncomingPublish;
use crate::message::namespace::split_client_id;
use crate::refusal::{CloseReason, Refusal};
use crate::rules::rule_engine::RuleEngine;
use crate::session::session_table::SessionTable;
use mqtt::{Connect, QoS};
use rules::{EVENTS, Value};
use std::sync::Arc;

/// State for events of a shard which `EventQueue`, a part of the `SessionTable`, cannot hold.
#[derive(Debug)]
pub(crate) struct EventCollector {
    /// Number of events in `Outbox::events` already examined by `collect_events`.
    pub(crate) events_seen: usize,
    /// Client id and user name of the CONNECT whose refusal is being reported.
    pub(crate) refused: Option<(Box<str>, Option<Arc<str>>)>,
    pub(crate) stopwatch: fn() -> u64,
}

impl Default for EventCollector {
    fn default() -> EventCollector {
        EventCollector { events_seen: 0, refused: None, stopwatch: || 0 }
    }
}

/// Least number of steps for each event. A single read may bring thousands of packets, and rules
/// with little work must receive all events.
pub(crate) const STEPS_OF_EVENT: u64 = 1_000;

impl RuleEngine {
    pub(crate) fn run_event_rules(
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
        connections: &ConnectionTable,
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
    pub(crate) fn on_link_event(&self, told: LinkEvent, sessions: &mut SessionTable) {
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
    pub(crate) fn count_overflow(&self, sessions: &mut SessionTable, out: &mut Outbox) {
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

    /// Counts the refusal and answers with a CONNACK that carries the reason [MQTT-4.12.0-4].
    pub(crate) fn refuse_client(
        &mut self,
        conn: ConnId,
        packet: &Connect<'_>,
        asked: &ConnectProperties<'_>,
        refusal: Refusal,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) -> CloseReason {
        sessions.counters.connections_refused += 1;
        self.event_collector.refused =
            Some((packet.client_id.into(), packet.user_name.map(Into::into)));
        let said = (refusal.reason(), refusal.description());
        refuse_connect(conn, packet.version, said.0, said.1, asked.packet_bytes_max, out);
        refusal.into()
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
