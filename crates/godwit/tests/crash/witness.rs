//! The clients as seen in a trace: each has received what the broker wrote to its socket, and sent
//! what the broker read. Clients cannot know of more when the power goes.

use crate::judge::DeliveryJudge;
use crate::line;
use crate::publisher::CrashPublisher;
use crate::subscriber::CrashSubscriber;
use crate::trace::{TraceStep, TracedCall};
use mqtt::{Packet, ProtocolVersion};
use std::collections::HashMap;

#[derive(Default)]
pub(crate) struct TraceWitness {
    talks: HashMap<u32, TracedConnection>,
}

/// A connection in the trace, with the bytes of both directions.
struct TracedConnection {
    version: ProtocolVersion,
    who: Option<ClientRole>,
    from_client: Vec<u8>,
    from_broker: Vec<u8>,
}

/// Index of a client among the publishers or subscribers.
#[derive(Clone, Copy)]
enum ClientRole {
    Publisher(usize),
    Subscriber(usize),
}

impl TraceWitness {
    pub(crate) fn see(
        &mut self,
        step: &TraceStep,
        publishers: &mut [CrashPublisher],
        subscribers: &mut [CrashSubscriber],
        judge: &mut DeliveryJudge,
    ) {
        match &step.call {
            TracedCall::Accepted { fd } => drop(self.talks.insert(*fd, TracedConnection::new())),
            TracedCall::Closed { fd } => drop(self.talks.remove(fd)),
            TracedCall::Killed { .. } => self.talks.clear(),
            TracedCall::Heard { fd, bytes } => {
                let Some(connection) = self.talks.get_mut(fd) else { return };
                connection.from_client.extend_from_slice(bytes);
                let TracedConnection { version, who, from_client, .. } = connection;
                line::take(from_client, version, |packet, version| match packet {
                    Packet::Connect(connect) => {
                        *version = connect.version;
                        *who = find(connect.client_id, publishers, subscribers);
                    }
                    Packet::Publish(publish) => {
                        let Some(ClientRole::Publisher(at)) = *who else {
                            panic!("who publishes?")
                        };
                        publishers[at].made(&publish, judge);
                    }
                    _ => {}
                });
            }
            TracedCall::Said { fd, bytes } => {
                let Some(connection) = self.talks.get_mut(fd) else { return };
                connection.from_broker.extend_from_slice(bytes);
                let TracedConnection { version, who, from_broker, .. } = connection;
                line::take(from_broker, version, |packet, _| {
                    let Some(heard) = line::hear(packet) else { return };
                    match *who {
                        Some(ClientRole::Publisher(at)) => publishers[at].hear(heard, judge),
                        Some(ClientRole::Subscriber(at)) => subscribers[at].hear(heard, judge),
                        None => {}
                    }
                });
            }
            _ => {}
        }
    }
}

impl TracedConnection {
    fn new() -> TracedConnection {
        TracedConnection {
            version: ProtocolVersion::V5,
            who: None,
            from_client: Vec::new(),
            from_broker: Vec::new(),
        }
    }
}

/// Returns the role of a client id; `None` for the client that only reads retained messages.
fn find(
    id: &str,
    publishers: &[CrashPublisher],
    subscribers: &[CrashSubscriber],
) -> Option<ClientRole> {
    let publisher = publishers.iter().position(|one| one.peer.id == id).map(ClientRole::Publisher);
    let subscriber =
        || subscribers.iter().position(|one| one.peer.id == id).map(ClientRole::Subscriber);
    publisher.or_else(subscriber)
}
