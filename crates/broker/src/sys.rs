//! What a shard counts, and the `$SYS/broker` tree that shard 0 publishes from all of them.
//! Names are mosquitto's where it has one for the thing.

use crate::input::{Now, SessionId};
use crate::message::Draft;
use crate::outbox::Outbox;
use crate::shard::Shard;
use mqtt::Version;

/// Why a message did not reach a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Drop {
    /// Message Expiry Interval passed while it waited.
    Expired,
    /// QoS 0 for a client that was away, or a session that ends with its connection.
    Offline,
    /// Above the client's Maximum Packet Size.
    PacketTooLarge,
    QueueFull,
    /// `memory_bytes_max`.
    OutOfMemory,
}

pub const DROPS: usize = 5;

pub const DROP_NAMES: [&str; DROPS] =
    ["expired", "offline", "packet_too_large", "queue_full", "out_of_memory"];

impl Drop {
    pub fn name(self) -> &'static str {
        DROP_NAMES[self as usize]
    }
}

/// Plain numbers: a shard adds, the `$SYS` round copies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub bytes_received: u64,
    pub bytes_sent: u64,
    pub messages_received: u64,
    /// Packets sent beside PUBLISH.
    pub messages_sent: u64,
    pub publish_received: u64,
    pub publish_bytes_received: u64,
    pub publish_sent: u64,
    pub connections_accepted: u64,
    pub connections_refused: u64,
    pub violations: u64,
    pub sessions_expired: u64,
    pub drops: [u64; DROPS],
    // Gauges, filled in for a round.
    pub sessions: u64,
    pub online: u64,
    pub subscriptions: u64,
    pub shared_subscriptions: u64,
    pub retained: u64,
    pub stored_messages: u64,
    pub stored_bytes: u64,
}

/// One published value: its topic below `$SYS/broker/`, what it says, how to read it.
pub struct Row {
    pub topic: &'static str,
    pub about: &'static str,
    pub value: fn(&Counters) -> u64,
}

/// Every value of the tree that is a sum over shards.
pub const ROWS: &[Row] = &[
    Row { topic: "bytes/received", about: "bytes read", value: |c| c.bytes_received },
    Row { topic: "bytes/sent", about: "bytes written", value: |c| c.bytes_sent },
    Row { topic: "clients/connected", about: "clients connected now", value: |c| c.online },
    Row {
        topic: "clients/disconnected",
        about: "sessions whose client is away",
        value: |c| c.sessions - c.online.min(c.sessions),
    },
    Row {
        topic: "clients/expired",
        about: "sessions ended by their expiry interval",
        value: |c| c.sessions_expired,
    },
    Row { topic: "clients/total", about: "sessions", value: |c| c.sessions },
    Row {
        topic: "connections/accepted",
        about: "CONNECT packets accepted",
        value: |c| c.connections_accepted,
    },
    Row {
        topic: "connections/refused",
        about: "CONNECT packets refused",
        value: |c| c.connections_refused,
    },
    Row {
        topic: "connections/violations",
        about: "connections closed because the peer broke the protocol",
        value: |c| c.violations,
    },
    Row {
        topic: "messages/received",
        about: "packets of any type received",
        value: |c| c.messages_received,
    },
    Row {
        topic: "messages/sent",
        about: "packets of any type sent",
        value: |c| c.messages_sent + c.publish_sent,
    },
    Row {
        topic: "publish/bytes/received",
        about: "payload bytes of received PUBLISH packets",
        value: |c| c.publish_bytes_received,
    },
    Row {
        topic: "publish/messages/dropped",
        about: "messages that did not reach a session, for any reason",
        value: |c| c.drops.iter().sum(),
    },
    Row {
        topic: "publish/messages/dropped/expired",
        about: "dropped: expired while queued",
        value: |c| c.drops[Drop::Expired as usize],
    },
    Row {
        topic: "publish/messages/dropped/offline",
        about: "dropped: QoS 0 for a client that was away",
        value: |c| c.drops[Drop::Offline as usize],
    },
    Row {
        topic: "publish/messages/dropped/out_of_memory",
        about: "dropped: memory.bytes_max was reached",
        value: |c| c.drops[Drop::OutOfMemory as usize],
    },
    Row {
        topic: "publish/messages/dropped/packet_too_large",
        about: "dropped: above the client's Maximum Packet Size",
        value: |c| c.drops[Drop::PacketTooLarge as usize],
    },
    Row {
        topic: "publish/messages/dropped/queue_full",
        about: "dropped: the session's queue was full",
        value: |c| c.drops[Drop::QueueFull as usize],
    },
    Row {
        topic: "publish/messages/received",
        about: "PUBLISH packets received",
        value: |c| c.publish_received,
    },
    Row {
        topic: "publish/messages/sent",
        about: "PUBLISH packets sent",
        value: |c| c.publish_sent,
    },
    Row {
        topic: "shared_subscriptions/count",
        about: "memberships of shared groups",
        value: |c| c.shared_subscriptions,
    },
    Row {
        topic: "store/messages/bytes",
        about: "bytes of messages that queues and flights keep",
        value: |c| c.stored_bytes,
    },
    Row {
        topic: "store/messages/count",
        about: "messages that queues and flights keep",
        value: |c| c.stored_messages,
    },
    Row { topic: "subscriptions/count", about: "subscriptions", value: |c| c.subscriptions },
];

impl Counters {
    fn add(&mut self, other: &Counters) {
        self.bytes_received += other.bytes_received;
        self.bytes_sent += other.bytes_sent;
        self.messages_received += other.messages_received;
        self.messages_sent += other.messages_sent;
        self.publish_received += other.publish_received;
        self.publish_bytes_received += other.publish_bytes_received;
        self.publish_sent += other.publish_sent;
        self.connections_accepted += other.connections_accepted;
        self.connections_refused += other.connections_refused;
        self.violations += other.violations;
        self.sessions_expired += other.sessions_expired;
        for (sum, drops) in self.drops.iter_mut().zip(other.drops) {
            *sum += drops;
        }
        self.sessions += other.sessions;
        self.online += other.online;
        self.subscriptions += other.subscriptions;
        self.shared_subscriptions += other.shared_subscriptions;
        self.stored_messages += other.stored_messages;
        self.stored_bytes += other.stored_bytes;
        // Every shard holds the same retained messages.
        self.retained = self.retained.max(other.retained);
    }
}

/// Shard 0's memory of the last round, so that only what changed is published.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    pub(crate) shards: Vec<Counters>,
    published: hashbrown::HashMap<String, String, foldhash::fast::FixedState>,
    clients_maximum: u64,
}

impl Tree {
    /// The topics and values that changed since the last round.
    pub(crate) fn changes(&mut self, now: Now) -> Vec<(String, String)> {
        let mut sum = Counters::default();
        self.shards.iter().for_each(|counters| sum.add(counters));
        self.clients_maximum = self.clients_maximum.max(sum.online);
        let mut all: Vec<(String, String)> = ROWS
            .iter()
            .map(|row| (format!("$SYS/broker/{}", row.topic), (row.value)(&sum).to_string()))
            .collect();
        all.push(("$SYS/broker/retained messages/count".into(), sum.retained.to_string()));
        all.push(("$SYS/broker/clients/maximum".into(), self.clients_maximum.to_string()));
        all.push(("$SYS/broker/version".into(), VERSION.into()));
        all.push(("$SYS/broker/uptime".into(), format!("{} seconds", now.0 / 1000)));
        if self.shards.len() > 1 {
            for (at, counters) in self.shards.iter().enumerate() {
                for row in ROWS {
                    let topic = format!("$SYS/broker/shards/{at}/{}", row.topic);
                    all.push((topic, (row.value)(counters).to_string()));
                }
            }
        }
        all.retain(|(topic, value)| self.published.get(topic) != Some(value));
        for (topic, value) in &all {
            self.published.insert(topic.clone(), value.clone());
        }
        all
    }
}

const VERSION: &str = concat!("godwit version ", env!("CARGO_PKG_VERSION"));

impl Shard {
    /// `$SYS/broker/client/{client id}/online` and `.../offline`, for whoever subscribes to them.
    pub(crate) fn announce(&mut self, id: SessionId, online: bool, out: &mut Outbox) {
        if self.options.sys_interval_s == 0 || self.draining {
            return;
        }
        let session = self.sessions.get(id);
        let mut topic = String::from("$SYS/broker/client/");
        // What a topic name must not hold, and what would add levels, is escaped as in a URL.
        for letter in session.client_id.chars() {
            match letter {
                '%' | '/' | '+' | '#' => topic.push_str(&format!("%{:02X}", u32::from(letter))),
                other => topic.push(other),
            }
        }
        topic.push_str(if online { "/online" } else { "/offline" });
        let version = match session.version {
            Version::V31 => "3.1",
            Version::V311 => "3.1.1",
            Version::V5 => "5.0",
        };
        let mut draft = Draft::new(&topic, version.as_bytes(), self.now);
        self.route(None, &mut draft, out);
    }
}
