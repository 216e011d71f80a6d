//! The clients as a trace shows them: they have heard what the broker had written to their sockets,
//! and sent what it had read. That is the most that they may rely on when the power goes.

use crate::judge::Judge;
use crate::line;
use crate::publisher::Publisher;
use crate::subscriber::Subscriber;
use crate::trace::{Call, Step};
use mqtt::{Packet, Version};
use std::collections::HashMap;

#[derive(Default)]
pub(crate) struct Witness {
    talks: HashMap<u32, Talk>,
}

/// One connection, both ways.
struct Talk {
    version: Version,
    who: Option<Who>,
    from_client: Vec<u8>,
    from_broker: Vec<u8>,
}

/// A place among the publishers or subscribers.
#[derive(Clone, Copy)]
enum Who {
    Publisher(usize),
    Subscriber(usize),
}

impl Witness {
    pub(crate) fn see(
        &mut self,
        step: &Step,
        publishers: &mut [Publisher],
        subscribers: &mut [Subscriber],
        judge: &mut Judge,
    ) {
        match &step.call {
            Call::Accepted { fd } => drop(self.talks.insert(*fd, Talk::new())),
            Call::Closed { fd } => drop(self.talks.remove(fd)),
            Call::Killed { .. } => self.talks.clear(),
            Call::Heard { fd, bytes } => {
                let Some(talk) = self.talks.get_mut(fd) else { return };
                talk.from_client.extend_from_slice(bytes);
                let Talk { version, who, from_client, .. } = talk;
                line::take(from_client, version, |packet, version| match packet {
                    Packet::Connect(connect) => {
                        *version = connect.version;
                        *who = find(connect.client_id, publishers, subscribers);
                    }
                    Packet::Publish(publish) => {
                        let Some(Who::Publisher(at)) = *who else { panic!("who publishes?") };
                        publishers[at].made(&publish, judge);
                    }
                    _ => {}
                });
            }
            Call::Said { fd, bytes } => {
                let Some(talk) = self.talks.get_mut(fd) else { return };
                talk.from_broker.extend_from_slice(bytes);
                let Talk { version, who, from_broker, .. } = talk;
                line::take(from_broker, version, |packet, _| {
                    let Some(heard) = line::hear(packet) else { return };
                    match *who {
                        Some(Who::Publisher(at)) => publishers[at].hear(heard, judge),
                        Some(Who::Subscriber(at)) => subscribers[at].hear(heard, judge),
                        None => {}
                    }
                });
            }
            _ => {}
        }
    }
}

impl Talk {
    fn new() -> Talk {
        Talk { version: Version::V5, who: None, from_client: Vec::new(), from_broker: Vec::new() }
    }
}

/// None where it only looks.
fn find(id: &str, publishers: &[Publisher], subscribers: &[Subscriber]) -> Option<Who> {
    let publisher = publishers.iter().position(|one| one.peer.id == id).map(Who::Publisher);
    let subscriber = || subscribers.iter().position(|one| one.peer.id == id).map(Who::Subscriber);
    publisher.or_else(subscriber)
}
