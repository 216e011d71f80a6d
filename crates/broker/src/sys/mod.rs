//! What a shard counts, and the rows of the `$SYS/broker` tree that are made from it. Names are
//! mosquitto's where it has one for the thing.

mod tree;

pub(crate) use tree::Tree;

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
    /// The publisher may not say it, or not so.
    Refused,
    /// The disk, or what the store may take of it.
    StoreFull,
}

pub const DROPS: usize = 7;

pub const DROP_NAMES: [&str; DROPS] = [
    "expired",
    "offline",
    "packet_too_large",
    "queue_full",
    "out_of_memory",
    "refused",
    "store_full",
];

impl Drop {
    pub const ALL: [Drop; DROPS] = [
        Drop::Expired,
        Drop::Offline,
        Drop::PacketTooLarge,
        Drop::QueueFull,
        Drop::OutOfMemory,
        Drop::Refused,
        Drop::StoreFull,
    ];

    /// The options that decide, where the client's own words do not.
    pub fn options(self) -> Option<&'static str> {
        match self {
            Drop::Expired => Some("queue.age_s_max"),
            Drop::Offline => Some("queue.qos0"),
            Drop::PacketTooLarge => None,
            Drop::QueueFull => Some("queue.bytes_max, queue.messages_max, queue.policy"),
            Drop::OutOfMemory => Some("memory.bytes_max"),
            Drop::Refused => Some("acl.file"),
            Drop::StoreFull => Some("store.bytes_max"),
        }
    }

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
    pub connections_not_opened: u64,
    pub connections_turned_away: u64,
    pub clients_flapped: u64,
    pub paced: u64,
    /// Of those refused, by a verdict.
    pub denied_connects: u64,
    pub denied_publishes: u64,
    pub denied_subscribes: u64,
    /// Questions whether a client may, and those that nobody answered.
    pub asked: u64,
    pub unanswered: u64,
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
    pub delayed_messages: u64,
    pub delayed_bytes: u64,
    /// Clients whose windows do not move.
    pub stalled: u64,
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
    Row {
        topic: "clients/flapped",
        about: "times that a client was kept out because it came and went too often",
        value: |c| c.clients_flapped,
    },
    Row {
        topic: "clients/stalled",
        about: "clients that have left a message unacknowledged for over 30 seconds",
        value: |c| c.stalled,
    },
    Row { topic: "clients/total", about: "sessions", value: |c| c.sessions },
    Row {
        topic: "connections/accepted",
        about: "CONNECT packets accepted",
        value: |c| c.connections_accepted,
    },
    Row {
        topic: "connections/not_opened",
        about: "connections that ended before CONNECT: a wrong or slow handshake or PROXY header",
        value: |c| c.connections_not_opened,
    },
    Row {
        topic: "connections/paced",
        about: "times that a client was not read for a while because it was ahead of its rate",
        value: |c| c.paced,
    },
    Row {
        topic: "connections/refused",
        about: "CONNECT packets refused",
        value: |c| c.connections_refused,
    },
    Row {
        topic: "connections/turned_away",
        about: "connections closed as they were accepted",
        value: |c| c.connections_turned_away,
    },
    Row {
        topic: "connections/violations",
        about: "connections closed because the peer broke the protocol",
        value: |c| c.violations,
    },
    Row {
        topic: "delayed/messages/bytes",
        about: "bytes of messages that are to be published later",
        value: |c| c.delayed_bytes,
    },
    Row {
        topic: "delayed/messages/count",
        about: "messages that are to be published later",
        value: |c| c.delayed_messages,
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
        topic: "permissions/asked",
        about: "questions put to a server whether a client may publish or subscribe",
        value: |c| c.asked,
    },
    Row {
        topic: "permissions/denied/connect",
        about: "CONNECT packets refused because of who it was or could not be shown to be",
        value: |c| c.denied_connects,
    },
    Row {
        topic: "permissions/denied/publish",
        about: "PUBLISH packets and wills that the rules do not permit",
        value: |c| c.denied_publishes,
    },
    Row {
        topic: "permissions/denied/subscribe",
        about: "subscriptions that the rules do not permit, or do not any more",
        value: |c| c.denied_subscribes,
    },
    Row {
        topic: "permissions/unanswered",
        about: "of the questions whether a client may those that had no answer in time",
        value: |c| c.unanswered,
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
        topic: "publish/messages/dropped/refused",
        about: "dropped: the publisher may not say it, or not so",
        value: |c| c.drops[Drop::Refused as usize],
    },
    Row {
        topic: "publish/messages/dropped/store_full",
        about: "dropped: the store was full",
        value: |c| c.drops[Drop::StoreFull as usize],
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

/// What `load/.../1min`, `5min` and `15min` average, a minute.
pub const LOADS: &[Row] = &[
    Row { topic: "load/bytes/received", about: "bytes read", value: |c| c.bytes_received },
    Row { topic: "load/bytes/sent", about: "bytes written", value: |c| c.bytes_sent },
    Row {
        topic: "load/connections",
        about: "CONNECT packets, accepted or refused",
        value: |c| c.connections_accepted + c.connections_refused,
    },
    Row {
        topic: "load/messages/received",
        about: "packets of any type received",
        value: |c| c.messages_received,
    },
    Row {
        topic: "load/messages/sent",
        about: "packets of any type sent",
        value: |c| c.messages_sent + c.publish_sent,
    },
    Row {
        topic: "load/publish/dropped",
        about: "messages that did not reach a session",
        value: |c| c.drops.iter().sum(),
    },
    Row {
        topic: "load/publish/received",
        about: "PUBLISH packets received",
        value: |c| c.publish_received,
    },
    Row { topic: "load/publish/sent", about: "PUBLISH packets sent", value: |c| c.publish_sent },
];

impl Counters {
    pub(crate) fn add(&mut self, other: &Counters) {
        self.bytes_received += other.bytes_received;
        self.bytes_sent += other.bytes_sent;
        self.messages_received += other.messages_received;
        self.messages_sent += other.messages_sent;
        self.publish_received += other.publish_received;
        self.publish_bytes_received += other.publish_bytes_received;
        self.publish_sent += other.publish_sent;
        self.connections_accepted += other.connections_accepted;
        self.connections_refused += other.connections_refused;
        self.connections_not_opened += other.connections_not_opened;
        self.connections_turned_away += other.connections_turned_away;
        self.clients_flapped += other.clients_flapped;
        self.paced += other.paced;
        self.denied_connects += other.denied_connects;
        self.denied_publishes += other.denied_publishes;
        self.denied_subscribes += other.denied_subscribes;
        self.asked += other.asked;
        self.unanswered += other.unanswered;
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
        self.delayed_messages += other.delayed_messages;
        self.delayed_bytes += other.delayed_bytes;
        self.stalled += other.stalled;
        // Every shard holds the same retained messages.
        self.retained = self.retained.max(other.retained);
    }
}
