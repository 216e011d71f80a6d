//! What happens to clients, sessions and messages, for sinks that want to hear of it.
//!
//! Shards note it anyway, but for what becomes of messages, which they note where a sink wants it
//! (`fates`). What is noted goes into the bounded channel of each sink that asked for
//! it, and where that is full it is dropped and counted: no shard waits.

use super::lock;
use super::sink::message::{Message, Value::Bytes};
use super::sink::settings::SinkSettings;
use super::sink::template::text_of;
use super::tally::{Loss, Tally};
use crate::timestamp::Timestamp;
use broker::Note;
use broker::limits::LINK_IDS;
use broker::mount::parts;
use broker::rules::Fates;
use serde_json::{Map, Value};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// All events, as EMQX calls them where it has the same.
pub(crate) const NAMES: &[&str] = &[
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
pub(crate) struct Hub {
    /// Whether anybody listens.
    is_heard: AtomicBool,
    ears: Mutex<Vec<Ear>>,
}

struct Ear {
    sink: Arc<str>,
    wants: Vec<String>,
    tally: Arc<Tally>,
    to: Sender<Event>,
    bytes: Arc<AtomicUsize>,
}

/// A note, and when it was made.
struct Event {
    name: &'static str,
    note: Note,
    at_ms: u64,
}

/// The other end of a sink's channel, and how many bytes of messages what is in it holds.
pub(crate) struct Heard(Option<(Receiver<Event>, Arc<AtomicUsize>)>);

/// What events that wait for one sink may hold of messages.
const BYTES_MAX: usize = 64 * 1024 * 1024;

impl Hub {
    pub(crate) fn listen(&self, sink: &SinkSettings, tally: &Arc<Tally>) -> Heard {
        let mut ears = lock(&self.ears);
        ears.retain(|ear| !ear.to.is_closed());
        let heard = (!sink.events.is_empty()).then(|| {
            let (to, heard) = channel(sink.events_max);
            let (tally, wants) = (tally.clone(), sink.events.clone());
            let bytes = Arc::new(AtomicUsize::new(0));
            ears.push(Ear { sink: sink.name.clone(), wants, tally, to, bytes: bytes.clone() });
            (heard, bytes)
        });
        self.is_heard.store(!ears.is_empty(), Relaxed);
        Heard(heard)
    }

    /// From a shard's thread.
    pub(crate) fn hear(&self, note: &Note) {
        if !self.is_heard.load(Relaxed) {
            return;
        }
        let (name, untold) = match note {
            Note::Untold { event, count } => (*event, *count),
            note => match name_of(note) {
                Some(name) => (name, 0),
                None => return,
            },
        };
        let at_ms = Timestamp::now().0.as_millis() as u64;
        for ear in lock(&self.ears).iter().filter(|ear| wants(&ear.wants, name)) {
            if untold > 0 {
                ear.tally.lose_times(&ear.sink, Loss::EventsFull, name, untold);
                continue;
            }
            if !ear.take(Event { name, note: note.clone(), at_ms }) {
                ear.tally.lose(&ear.sink, Loss::EventsFull, name);
            }
        }
    }
}

/// What shards have to note for these sinks beside what they note anyway.
pub(crate) fn fates(sinks: &[SinkSettings]) -> Fates {
    let is_wanted = |name| sinks.iter().any(|sink| wants(&sink.events, name));
    Fates { delivered: is_wanted("message.delivered"), acked: is_wanted("message.acked") }
}

fn wants(events: &[String], name: &str) -> bool {
    events.iter().any(|wanted| wanted == "*" || wanted == name)
}

impl Ear {
    /// Whether there is room for it, or nobody who would come for it any more.
    fn take(&self, event: Event) -> bool {
        let bytes = event.bytes();
        if self.bytes.fetch_add(bytes, Relaxed) + bytes <= BYTES_MAX
            && !matches!(self.to.try_send(event), Err(TrySendError::Full(_)))
        {
            return true;
        }
        self.bytes.fetch_sub(bytes, Relaxed);
        false
    }
}

impl Heard {
    /// Never, where nobody asked for any.
    pub(crate) async fn next(&mut self) -> Message {
        let event = match &mut self.0 {
            Some((heard, bytes)) => heard.recv().await.inspect(|event| {
                bytes.fetch_sub(event.bytes(), Relaxed);
            }),
            None => None,
        };
        match event {
            Some(event) => event.message(),
            None => std::future::pending().await,
        }
    }
}

impl Event {
    fn bytes(&self) -> usize {
        match &self.note {
            Note::Fate { message, .. } => message.bytes(),
            _ => 0,
        }
    }

    fn message(self) -> Message {
        let fields = self.note.fields();
        let json = fields.iter().map(|(name, value)| (name.to_string(), json_of(value)));
        let mut body: Map<String, Value> = json.collect();
        let (namespace, client_id) = parts(self.note.client_id().unwrap_or_default());
        body.insert("event".into(), self.name.into());
        body.insert("timestamp".into(), self.at_ms.into());
        body.insert("clientid".into(), client_id.into());
        if let Some(namespace) = namespace {
            body.insert("namespace".into(), namespace.into());
        }
        Message::of_event(self.name, client_id, &Value::Object(body), self.at_ms)
    }
}

/// None of links, which are nobody's clients.
fn name_of(note: &Note) -> Option<&'static str> {
    if note.client_id()?.starts_with(LINK_IDS) {
        return None;
    }
    match note {
        Note::Connected { .. } => Some("client.connected"),
        Note::Refused { was_in: false, .. } => Some("client.connack"),
        Note::Refused { .. }
        | Note::Disconnected { .. }
        | Note::Lost { .. }
        | Note::Violated { .. } => Some("client.disconnected"),
        Note::Denied { .. } => Some("client.denied"),
        Note::Dropped { .. } => Some("message.dropped"),
        Note::Fate { event, .. } => Some(event),
        Note::Subscribed { .. } => Some("session.subscribed"),
        Note::TakenOver { .. } => Some("session.takenover"),
        Note::SessionEnded { .. } => Some("session.terminated"),
        Note::Unsubscribed { .. } => Some("session.unsubscribed"),
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
