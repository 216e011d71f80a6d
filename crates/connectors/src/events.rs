//! What happens to clients, sessions and messages, for sinks that want to hear of it.
//!
//! Shards note it anyway, but for what becomes of messages, which they note where a sink wants it
//! (`needed_delivery_events`). What is noted goes into the bounded channel of each sink that asked
//! for it, and where that is full it is dropped and counted: no shard waits.

use super::lock;
use super::metrics::{LinkDropReason, LinkMetrics};
use super::sink::message::{MessageValue::Bytes, SinkMessage};
use super::sink::settings::SinkSettings;
use super::sink::template::text_of;
use broker::BrokerEvent;
use broker::limits::LINK_IDS;
use broker::routing::namespace::split_client_id;
use broker::rules::DeliveryEventOptions;
use net::timestamp::UnixTimestamp;
use serde_json::{Map, Value};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// All events, as EMQX calls them where it has the same.
pub const NAMES: &[&str] = &[
    "client.connack",
    "client.connected",
    "client.denied",
    "client.disconnected",
    "message.acked",
    "message.delivered",
    "message.dropped",
    "session.subscribed",
    "session.takenover",
    "session.terminated",
    "session.unsubscribed",
];

#[derive(Default)]
pub struct EventHub {
    /// Whether anybody listens.
    has_subscribers: AtomicBool,
    subscribers: Mutex<Vec<SinkEventSubscriber>>,
}

struct SinkEventSubscriber {
    sink: Arc<str>,
    wants: Vec<String>,
    metrics: Arc<LinkMetrics>,
    to: Sender<SinkEvent>,
    bytes: Arc<AtomicUsize>,
}

/// A note, and when it was made.
struct SinkEvent {
    name: &'static str,
    broker_event: BrokerEvent,
    at_ms: u64,
}

/// The other end of a sink's channel, and how many bytes of messages what is in it holds.
pub struct SinkEventReceiver(Option<(Receiver<SinkEvent>, Arc<AtomicUsize>)>);

/// Bytes of messages in the events that wait for one sink.
const BYTES_MAX: usize = 64 * 1024 * 1024;

impl EventHub {
    pub fn add_subscriber(
        &self,
        sink: &SinkSettings,
        metrics: &Arc<LinkMetrics>,
    ) -> SinkEventReceiver {
        let mut ears = lock(&self.subscribers);
        ears.retain(|ear| !ear.to.is_closed());
        let heard = (!sink.events.is_empty()).then(|| {
            let (to, heard) = channel(sink.events_max);
            let (metrics, wants) = (metrics.clone(), sink.events.clone());
            let bytes = Arc::new(AtomicUsize::new(0));
            ears.push(SinkEventSubscriber {
                sink: sink.name.clone(),
                wants,
                metrics,
                to,
                bytes: bytes.clone(),
            });
            (heard, bytes)
        });
        self.has_subscribers.store(!ears.is_empty(), Relaxed);
        SinkEventReceiver(heard)
    }

    /// From a shard's thread.
    pub fn on_event(&self, broker_event: &BrokerEvent) {
        if !self.has_subscribers.load(Relaxed) {
            return;
        }
        let (name, untold) = match broker_event {
            BrokerEvent::DeliveriesSkipped { event, count } => (*event, *count),
            broker_event => match event_name(broker_event) {
                Some(name) => (name, 0),
                None => return,
            },
        };
        let at_ms = UnixTimestamp::now().0.as_millis() as u64;
        for ear in lock(&self.subscribers).iter().filter(|ear| is_selected(&ear.wants, name)) {
            if untold > 0 {
                ear.metrics.count_drops(&ear.sink, LinkDropReason::EventsFull, name, untold);
                continue;
            }
            if !ear.send(SinkEvent { name, broker_event: broker_event.clone(), at_ms }) {
                ear.metrics.count_drop(&ear.sink, LinkDropReason::EventsFull, name);
            }
        }
    }
}

/// Returns the delivery events that shards have to record for these sinks.
pub fn needed_delivery_events(sinks: &[SinkSettings]) -> DeliveryEventOptions {
    let is_wanted = |name| sinks.iter().any(|sink| is_selected(&sink.events, name));
    DeliveryEventOptions {
        delivered: is_wanted("message.delivered"),
        acked: is_wanted("message.acked"),
    }
}

fn is_selected(events: &[String], name: &str) -> bool {
    events.iter().any(|wanted| wanted == "*" || wanted == name)
}

impl SinkEventSubscriber {
    /// Whether there is room for it, or nobody who would come for it any more.
    fn send(&self, event: SinkEvent) -> bool {
        let bytes = event.byte_size();
        if self.bytes.fetch_add(bytes, Relaxed) + bytes <= BYTES_MAX
            && !matches!(self.to.try_send(event), Err(TrySendError::Full(_)))
        {
            return true;
        }
        self.bytes.fetch_sub(bytes, Relaxed);
        false
    }
}

impl SinkEventReceiver {
    /// Never, where nobody asked for any.
    pub async fn next_message(&mut self) -> SinkMessage {
        let event = match &mut self.0 {
            Some((heard, bytes)) => heard.recv().await.inspect(|event| {
                bytes.fetch_sub(event.byte_size(), Relaxed);
            }),
            None => None,
        };
        match event {
            Some(event) => event.into_message(),
            None => std::future::pending().await,
        }
    }
}

impl SinkEvent {
    fn byte_size(&self) -> usize {
        match &self.broker_event {
            BrokerEvent::Delivery { message, .. } => message.bytes(),
            _ => 0,
        }
    }

    fn into_message(self) -> SinkMessage {
        let fields = self.broker_event.fields();
        let json = fields.iter().map(|(name, value)| (name.to_string(), json_of(value)));
        let mut body: Map<String, Value> = json.collect();
        let (namespace, client_id) =
            split_client_id(self.broker_event.client_id().unwrap_or_default());
        body.insert("event".into(), self.name.into());
        body.insert("timestamp".into(), self.at_ms.into());
        body.insert("clientid".into(), client_id.into());
        if let Some(namespace) = namespace {
            body.insert("namespace".into(), namespace.into());
        }
        SinkMessage::from_event(self.name, client_id, &Value::Object(body), self.at_ms)
    }
}

/// None of links, which are nobody's clients.
fn event_name(broker_event: &BrokerEvent) -> Option<&'static str> {
    if broker_event.client_id()?.starts_with(LINK_IDS) {
        return None;
    }
    match broker_event {
        BrokerEvent::Connected { .. } => Some("client.connected"),
        BrokerEvent::Refused { was_in: false, .. } => Some("client.connack"),
        BrokerEvent::Refused { .. }
        | BrokerEvent::Disconnected { .. }
        | BrokerEvent::Lost { .. }
        | BrokerEvent::Violated { .. } => Some("client.disconnected"),
        BrokerEvent::Denied { .. } => Some("client.denied"),
        BrokerEvent::Dropped { .. } => Some("message.dropped"),
        BrokerEvent::Delivery { event, .. } => Some(event),
        BrokerEvent::Subscribed { .. } => Some("session.subscribed"),
        BrokerEvent::TakenOver { .. } => Some("session.takenover"),
        BrokerEvent::SessionEnded { .. } => Some("session.terminated"),
        BrokerEvent::Unsubscribed { .. } => Some("session.unsubscribed"),
        _ => None,
    }
}

fn json_of(value: &rules::Value<'_>) -> Value {
    match value {
        rules::Value::Bool(of) => Value::Bool(*of),
        rules::Value::Int(of) => Value::from(*of),
        rules::Value::Text(of) => Value::from(&**of),
        rules::Value::Bytes(of) => Value::from(text_of(&Bytes(of.as_ref().into()))),
        _ => Value::Null,
    }
}
