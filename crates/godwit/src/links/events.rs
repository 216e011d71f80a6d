//! What happens to clients and sessions, for sinks that want to hear of it.
//!
//! Shards note it anyway. What is noted goes into the bounded channel of each sink that asked for
//! it, and where that is full it is dropped and counted: no shard waits.

use super::lock;
use super::sink::message::Message;
use super::sink::settings::SinkSettings;
use super::tally::{Loss, Tally};
use crate::timestamp::Timestamp;
use broker::limits::LINK_IDS;
use broker::mount::parts;
use broker::{Address, Note};
use serde_json::{Map, Value, json};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// All events, as EMQX calls them where it has the same.
pub(crate) const NAMES: &[&str] = &[
    "client.connack",
    "client.connected",
    "client.denied",
    "client.disconnected",
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
}

/// A note, and when it was made.
struct Event {
    name: &'static str,
    note: Note,
    at_ms: u64,
}

/// The other end of a sink's channel.
pub(crate) struct Heard(Option<Receiver<Event>>);

impl Hub {
    pub(crate) fn listen(&self, sink: &SinkSettings, tally: &Arc<Tally>) -> Heard {
        let mut ears = lock(&self.ears);
        ears.retain(|ear| !ear.to.is_closed());
        let heard = (!sink.events.is_empty()).then(|| {
            let (to, heard) = channel(sink.events_max);
            let (tally, wants) = (tally.clone(), sink.events.clone());
            ears.push(Ear { sink: sink.name.clone(), wants, tally, to });
            heard
        });
        self.is_heard.store(!ears.is_empty(), Relaxed);
        Heard(heard)
    }

    /// From a shard's thread.
    pub(crate) fn hear(&self, note: &Note) {
        if !self.is_heard.load(Relaxed) {
            return;
        }
        let Some(name) = name_of(note) else { return };
        let at_ms = Timestamp::now().0.as_millis() as u64;
        for ear in &*lock(&self.ears) {
            if !ear.wants.iter().any(|wanted| wanted == "*" || wanted == name) {
                continue;
            }
            let event = Event { name, note: note.clone(), at_ms };
            if let Err(tokio::sync::mpsc::error::TrySendError::Full(_)) = ear.to.try_send(event) {
                ear.tally.lose(&ear.sink, Loss::EventsFull, name);
            }
        }
    }
}

impl Heard {
    /// Never, where nobody asked for any.
    pub(crate) async fn next(&mut self) -> Message {
        let event = match &mut self.0 {
            Some(heard) => heard.recv().await,
            None => None,
        };
        match event {
            Some(event) => event.message(),
            None => std::future::pending().await,
        }
    }
}

impl Event {
    fn message(self) -> Message {
        let mut body = describe(&self.note);
        let (namespace, client_id) = parts(client_of(&self.note).unwrap_or_default());
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
    if client_of(note)?.starts_with(LINK_IDS) {
        return None;
    }
    match note {
        Note::Connected { .. } => Some("client.connected"),
        Note::Refused { .. } => Some("client.connack"),
        Note::Disconnected { .. } | Note::Lost { .. } | Note::Violated { .. } => {
            Some("client.disconnected")
        }
        Note::Denied { .. } => Some("client.denied"),
        Note::Dropped { .. } => Some("message.dropped"),
        Note::Subscribed { .. } => Some("session.subscribed"),
        Note::TakenOver { .. } => Some("session.takenover"),
        Note::SessionEnded { .. } => Some("session.terminated"),
        Note::Unsubscribed { .. } => Some("session.unsubscribed"),
        _ => None,
    }
}

fn client_of(note: &Note) -> Option<&str> {
    match note {
        Note::Connected { client_id, .. }
        | Note::Denied { client_id, .. }
        | Note::Disconnected { client_id, .. }
        | Note::Dropped { client_id, .. }
        | Note::Lost { client_id, .. }
        | Note::Refused { client_id, .. }
        | Note::SessionEnded { client_id, .. }
        | Note::Subscribed { client_id, .. }
        | Note::TakenOver { client_id, .. }
        | Note::Unsubscribed { client_id, .. }
        | Note::Violated { client_id, .. } => Some(client_id),
        _ => None,
    }
}

fn describe(note: &Note) -> Map<String, Value> {
    let said = match note {
        Note::Connected { peer, version, session_present, keep_alive_s, .. } => json!({
            "peername": peer_name(peer),
            "proto_ver": version.to_string(),
            "session_present": session_present,
            "keepalive": keep_alive_s,
        }),
        Note::Disconnected { reason, .. } => json!({ "reason": reason.to_string() }),
        Note::Lost { .. } => json!({ "reason": "connection lost" }),
        Note::Violated { peer, violation, .. } => {
            json!({ "reason": violation.what(), "peername": peer_name(peer) })
        }
        Note::Refused { peer, refusal, .. } => {
            json!({ "reason": refusal.reason().to_string(), "peername": peer_name(peer) })
        }
        Note::TakenOver { by, .. } => json!({ "peername": peer_name(by) }),
        Note::SessionEnded { expired, .. } => {
            json!({ "reason": if *expired { "expired" } else { "ended" } })
        }
        Note::Subscribed { filter, code, .. } | Note::Unsubscribed { filter, code, .. } => {
            json!({ "topic": filter, "reason_code": code })
        }
        Note::Denied { user, deed, topic, count, .. } => {
            json!({ "username": user.as_deref(), "action": deed, "topic": topic, "count": count })
        }
        Note::Dropped { drop, count, .. } => json!({ "reason": drop.name(), "count": count }),
        _ => json!({}),
    };
    match said {
        Value::Object(said) => said,
        _ => Map::new(),
    }
}

fn peer_name(peer: &Address) -> String {
    peer.to_string()
}
