//! Events for rules, and the rows of windows on their way to the owner of a window.

use crate::broker_event::BrokerEvent;
use crate::message::Message;
use crate::options::rule::DeliveryEventOptions;
use crate::peer::PeerAddress;
use mqtt::{QoS, ReasonCode};
use rules::{EVENTS, Value};
use std::sync::Arc;

/// An event of a link, from the control plane.
#[derive(Clone, Debug)]
pub struct LinkEvent {
    /// Name of the event without the prefix `$events/`.
    pub event: &'static str,
    pub fields: Vec<(&'static str, String)>,
}

/// A row for a window, on its way to the owner of `key`.
#[derive(Clone, Debug)]
pub struct WindowRow {
    pub(crate) rule: Arc<str>,
    pub(crate) text: Arc<str>,
    pub(crate) key: Box<str>,
    pub(crate) values: Vec<Value<'static>>,
    /// Number of rules before this rule in the chain, at most `DEPTH_MAX`.
    pub(crate) depth: u8,
}

impl WindowRow {
    /// Returns the memory of the row in transit between shards.
    pub(crate) fn bytes(&self) -> usize {
        let values = self.values.iter().map(|value| value.to_string().len() + 32);
        self.key.len() + values.sum::<usize>() + 96
    }
}

/// An event on its way to the rules.
#[derive(Debug)]
pub(crate) struct RuleEvent {
    /// Index in `EVENTS`.
    pub(crate) event: usize,
    pub(crate) client: RuleClient,
    pub(crate) extra_fields: Vec<(&'static str, Value<'static>)>,
    pub(crate) message: Option<Message>,
    pub(crate) qos: QoS,
    /// Client id with its namespace, for a [`BrokerEvent::Delivery`]; `None` if only rules want the
    /// event.
    pub(crate) reported_client_id: Option<Box<str>>,
}

impl RuleEvent {
    pub(crate) fn fields(&self) -> Vec<(&str, Value<'_>)> {
        self.extra_fields.iter().map(|(name, value)| (*name, value.view())).collect()
    }

    /// Returns the event as a [`BrokerEvent::Delivery`], for sinks.
    pub(crate) fn delivery_event(&self) -> Option<BrokerEvent> {
        let (client_id, message) = (self.reported_client_id.clone()?, self.message.clone()?);
        let (event, user) = (EVENTS[self.event].label, self.client.user.clone());
        Some(BrokerEvent::Delivery { event, client_id, user, qos: self.qos, message })
    }
}

/// Events of a shard's sessions, until `emit_events` passes them to the rules.
#[derive(Debug, Default)]
pub(crate) struct EventQueue {
    pub(crate) filter: EventFilter,
    pub(crate) events: Vec<RuleEvent>,
    /// Events beyond `EVENTS_PER_INPUT_MAX` in this input, by index in `EVENTS`.
    pub(crate) overflow_counts: [u64; EVENTS.len()],
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

impl EventFilter {
    /// Whether every delivery has to be observed, by `deliver_with_events`.
    #[inline]
    pub(crate) fn wants_deliveries(self) -> bool {
        self.delivered | self.delivery_dropped
    }
}

impl DeliveryEventOptions {
    pub(crate) fn has(self, event: &str) -> bool {
        match event {
            "message/delivered" => self.delivered,
            "message/acked" => self.acked,
            _ => false,
        }
    }
}

/// Events per input for rules. Further events are counted as `failed/events`.
pub(crate) const EVENTS_PER_INPUT_MAX: usize = 16 * 1024;

/// Returns the index of an event in `EVENTS`.
pub(crate) fn event_index(name: &str) -> Option<usize> {
    rules::event_index(name)
}

/// Returns the reason as EMQX writes it: `BadUserNameOrPassword` is `bad_username_or_password`.
pub(crate) fn snake_case_reason(reason: ReasonCode) -> Value<'static> {
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

/// The publisher of a message, or the client of an event.
#[derive(Debug, Default)]
pub(crate) struct RuleClient {
    pub(crate) client_id: Box<str>,
    pub(crate) user: Option<Arc<str>>,
    pub(crate) address: Option<String>,
    pub(crate) id: String,
}

/// Returns the text of an address without its port.
pub(crate) fn host_text(address: PeerAddress) -> String {
    match address {
        PeerAddress::Network(address) => address.ip().to_canonical().to_string(),
        unix @ PeerAddress::Unix { .. } => unix.to_string(),
    }
}
