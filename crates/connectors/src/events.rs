//! Events about clients, sessions and messages, for sinks whose option asks for them.
//!
//! Shards report most events in any case. They report deliveries and acknowledgements only if a
//! sink needs them, see [`needed_delivery_events`]. Each sink has a bounded channel; an event which
//! finds the channel full is dropped and counted, so a shard never waits.

use super::lock;
use super::metrics::{LinkDropReason, LinkMetrics};
use broker::BrokerEvent;
use broker::limits::LINK_IDS;
use broker::options::rule::DeliveryEventOptions;
use net::timestamp::UnixTimestamp;
use std::future::pending;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Names of all events. Events which EMQX also has carry EMQX's names.
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

/// Distributes [`BrokerEvent`]s of the shards to the channels of sinks.
#[derive(Default)]
pub struct EventHub {
    /// Whether any sink subscribes to events; lets shards skip the mutex.
    has_subscribers: AtomicBool,
    subscribers: Mutex<Vec<SinkEventSubscriber>>,
}

/// The sending end of the channel to a sink, with the events which the sink wants.
struct SinkEventSubscriber {
    sink: Arc<str>,
    wants: Vec<String>,
    metrics: Arc<LinkMetrics>,
    to: Sender<SinkEvent>,
    bytes: Arc<AtomicUsize>,
}

/// An event and the time at which a shard reported the event, in Unix milliseconds.
pub struct SinkEvent {
    pub name: &'static str,
    pub broker_event: BrokerEvent,
    pub at_ms: u64,
}

/// The receiving end of a sink's channel, and the bytes of messages in the channel. `None` for a
/// sink without events.
pub struct SinkEventReceiver(Option<(Receiver<SinkEvent>, Arc<AtomicUsize>)>);

/// Largest number of bytes of messages in the events which wait for one sink.
const BYTES_MAX: usize = 64 * 1024 * 1024;

impl EventHub {
    /// Returns the receiver of the events that `sink` `wants`; at most `events_max` wait in it.
    pub fn add_subscriber(
        &self,
        sink: &Arc<str>,
        wants: &[String],
        events_max: usize,
        metrics: &Arc<LinkMetrics>,
    ) -> SinkEventReceiver {
        let mut ears = lock(&self.subscribers);
        ears.retain(|ear| !ear.to.is_closed());
        let heard = (!wants.is_empty()).then(|| {
            let (to, heard) = channel(events_max);
            let (sink, metrics, wants) = (sink.clone(), metrics.clone(), wants.to_vec());
            let bytes = Arc::new(AtomicUsize::new(0));
            ears.push(SinkEventSubscriber { sink, wants, metrics, to, bytes: bytes.clone() });
            (heard, bytes)
        });
        self.has_subscribers.store(!ears.is_empty(), Relaxed);
        SinkEventReceiver(heard)
    }

    /// Sends an event to the sinks which want the event's name. Runs on a shard's thread and never
    /// waits; a full channel counts [`LinkDropReason::EventsFull`].
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

/// Returns the delivery events which shards have to record for sinks that want `events`.
pub fn needed_delivery_events(events: &[String]) -> DeliveryEventOptions {
    let is_wanted = |name| is_selected(events, name);
    DeliveryEventOptions {
        delivered: is_wanted("message.delivered"),
        acked: is_wanted("message.acked"),
    }
}

fn is_selected(events: &[String], name: &str) -> bool {
    events.iter().any(|wanted| wanted == "*" || wanted == name)
}

impl SinkEventSubscriber {
    /// Returns false if the channel holds `events_max` events or `BYTES_MAX` bytes. A closed
    /// channel counts as sent.
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
    /// Returns the next event. Never returns for a sink without events.
    pub async fn next_event(&mut self) -> SinkEvent {
        let Some((heard, bytes)) = &mut self.0 else { return pending().await };
        let Some(event) = heard.recv().await else { return pending().await };
        bytes.fetch_sub(event.byte_size(), Relaxed);
        event
    }
}

impl SinkEvent {
    fn byte_size(&self) -> usize {
        match &self.broker_event {
            BrokerEvent::Delivery { message, .. } => message.bytes(),
            _ => 0,
        }
    }
}

/// Returns the name of an event for sinks. Events of links and without a client id have none, since
/// links are not clients.
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
