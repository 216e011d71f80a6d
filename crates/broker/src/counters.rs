//! The counters of a shard, and the rows of the `$SYS/broker` tree which are computed from them.
//! Topics have the names of mosquitto where mosquitto has such a value.

/// Reason why a message did not reach a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum DropReason {
    /// The Message Expiry Interval passed while the message was queued.
    Expired,
    /// QoS 0 for a disconnected client, or for a session that ends with its connection.
    Offline,
    /// The packet would exceed the client's Maximum Packet Size (MQTT 5.0, 3.1.2.11.4).
    PacketTooLarge,
    QueueFull,
    /// The bound `memory_bytes_max`.
    OutOfMemory,
    /// The publisher lacks the permission, or the packet is invalid; or the subscriber lost its
    /// permission.
    Refused,
    /// The store is full: its disk, or its bound.
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

impl DropReason {
    pub const ALL: [DropReason; DROPS] = [
        DropReason::Expired,
        DropReason::Offline,
        DropReason::PacketTooLarge,
        DropReason::QueueFull,
        DropReason::OutOfMemory,
        DropReason::Refused,
        DropReason::StoreFull,
    ];

    /// Returns the options that cause drops for this reason; `None` if a limit of the client does.
    pub fn options(self) -> Option<&'static str> {
        match self {
            DropReason::Expired => Some("queue.age_s_max"),
            DropReason::Offline => Some("queue.qos0"),
            DropReason::PacketTooLarge => None,
            DropReason::QueueFull => Some("queue.bytes_max, queue.messages_max, queue.policy"),
            DropReason::OutOfMemory => Some("memory.bytes_max"),
            DropReason::Refused => Some("acl.file"),
            DropReason::StoreFull => Some("store.bytes_max"),
        }
    }

    pub fn name(self) -> &'static str {
        DROP_NAMES[self as usize]
    }
}

/// Counters in plain integers: a shard adds, and the `$SYS` round copies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShardCounters {
    pub bytes_received: u64,
    pub bytes_sent: u64,
    pub messages_received: u64,
    /// Packets sent, without PUBLISH.
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
    /// Connections refused by an authentication decision, for `permissions/denied/connect`.
    pub denied_connects: u64,
    pub denied_publishes: u64,
    pub denied_subscribes: u64,
    /// Requests to authorization backends, and those without an answer in time.
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
    /// Clients with a stalled window: see `StallSearch`.
    pub stalled: u64,
}

/// A published value: its topic below `$SYS/broker/`, its documentation, and its computation.
pub struct SysRow {
    pub topic: &'static str,
    pub about: &'static str,
    pub value: fn(&ShardCounters) -> u64,
}

/// All values of the tree which are sums over the shards.
pub const SYS_ROWS: &[SysRow] = &[
    SysRow { topic: "bytes/received", about: "bytes read", value: |c| c.bytes_received },
    SysRow { topic: "bytes/sent", about: "bytes written", value: |c| c.bytes_sent },
    SysRow { topic: "clients/connected", about: "clients connected now", value: |c| c.online },
    SysRow {
        topic: "clients/disconnected",
        about: "sessions whose client is away",
        value: |c| c.sessions - c.online.min(c.sessions),
    },
    SysRow {
        topic: "clients/expired",
        about: "sessions ended by their expiry interval",
        value: |c| c.sessions_expired,
    },
    SysRow {
        topic: "clients/flapped",
        about: "times that a client was kept out because it came and went too often",
        value: |c| c.clients_flapped,
    },
    SysRow {
        topic: "clients/stalled",
        about: "clients that have left a message unacknowledged for over 30 seconds",
        value: |c| c.stalled,
    },
    SysRow { topic: "clients/total", about: "sessions", value: |c| c.sessions },
    SysRow {
        topic: "connections/accepted",
        about: "CONNECT packets accepted",
        value: |c| c.connections_accepted,
    },
    SysRow {
        topic: "connections/not_opened",
        about: "connections that ended before CONNECT: a wrong or slow handshake or PROXY header",
        value: |c| c.connections_not_opened,
    },
    SysRow {
        topic: "connections/paced",
        about: "times that a client was not read for a while because it was ahead of its rate",
        value: |c| c.paced,
    },
    SysRow {
        topic: "connections/refused",
        about: "CONNECT packets refused",
        value: |c| c.connections_refused,
    },
    SysRow {
        topic: "connections/turned_away",
        about: "connections closed as they were accepted",
        value: |c| c.connections_turned_away,
    },
    SysRow {
        topic: "connections/violations",
        about: "connections closed because the peer broke the protocol",
        value: |c| c.violations,
    },
    SysRow {
        topic: "delayed/messages/bytes",
        about: "bytes of messages that are to be published later",
        value: |c| c.delayed_bytes,
    },
    SysRow {
        topic: "delayed/messages/count",
        about: "messages that are to be published later",
        value: |c| c.delayed_messages,
    },
    SysRow {
        topic: "messages/received",
        about: "packets of any type received",
        value: |c| c.messages_received,
    },
    SysRow {
        topic: "messages/sent",
        about: "packets of any type sent",
        value: |c| c.messages_sent + c.publish_sent,
    },
    SysRow {
        topic: "permissions/asked",
        about: "questions put to a server whether a client may publish or subscribe",
        value: |c| c.asked,
    },
    SysRow {
        topic: "permissions/denied/connect",
        about: "CONNECT packets refused because of who it was or could not be shown to be",
        value: |c| c.denied_connects,
    },
    SysRow {
        topic: "permissions/denied/publish",
        about: "PUBLISH packets and wills that the rules do not permit",
        value: |c| c.denied_publishes,
    },
    SysRow {
        topic: "permissions/denied/subscribe",
        about: "subscriptions that the rules do not permit, or do not any more",
        value: |c| c.denied_subscribes,
    },
    SysRow {
        topic: "permissions/unanswered",
        about: "of the questions whether a client may those that had no answer in time",
        value: |c| c.unanswered,
    },
    SysRow {
        topic: "publish/bytes/received",
        about: "payload bytes of received PUBLISH packets",
        value: |c| c.publish_bytes_received,
    },
    SysRow {
        topic: "publish/messages/dropped",
        about: "messages that did not reach a session, for any reason",
        value: |c| c.drops.iter().sum(),
    },
    SysRow {
        topic: "publish/messages/dropped/expired",
        about: "dropped: expired while queued",
        value: |c| c.drops[DropReason::Expired as usize],
    },
    SysRow {
        topic: "publish/messages/dropped/offline",
        about: "dropped: QoS 0 for a client that was away",
        value: |c| c.drops[DropReason::Offline as usize],
    },
    SysRow {
        topic: "publish/messages/dropped/out_of_memory",
        about: "dropped: memory.bytes_max was reached",
        value: |c| c.drops[DropReason::OutOfMemory as usize],
    },
    SysRow {
        topic: "publish/messages/dropped/packet_too_large",
        about: "dropped: above the client's Maximum Packet Size",
        value: |c| c.drops[DropReason::PacketTooLarge as usize],
    },
    SysRow {
        topic: "publish/messages/dropped/queue_full",
        about: "dropped: the session's queue was full",
        value: |c| c.drops[DropReason::QueueFull as usize],
    },
    SysRow {
        topic: "publish/messages/dropped/refused",
        about: "dropped: the publisher may not say it, or not so",
        value: |c| c.drops[DropReason::Refused as usize],
    },
    SysRow {
        topic: "publish/messages/dropped/store_full",
        about: "dropped: the store was full",
        value: |c| c.drops[DropReason::StoreFull as usize],
    },
    SysRow {
        topic: "publish/messages/received",
        about: "PUBLISH packets received",
        value: |c| c.publish_received,
    },
    SysRow {
        topic: "publish/messages/sent",
        about: "PUBLISH packets sent",
        value: |c| c.publish_sent,
    },
    SysRow {
        topic: "shared_subscriptions/count",
        about: "memberships of shared groups",
        value: |c| c.shared_subscriptions,
    },
    SysRow {
        topic: "store/messages/bytes",
        about: "bytes of messages that queues and flights keep",
        value: |c| c.stored_bytes,
    },
    SysRow {
        topic: "store/messages/count",
        about: "messages that queues and flights keep",
        value: |c| c.stored_messages,
    },
    SysRow { topic: "subscriptions/count", about: "subscriptions", value: |c| c.subscriptions },
];

/// Values published as averages per minute in `load/.../1min`, `5min` and `15min`.
pub const LOAD_ROWS: &[SysRow] = &[
    SysRow { topic: "load/bytes/received", about: "bytes read", value: |c| c.bytes_received },
    SysRow { topic: "load/bytes/sent", about: "bytes written", value: |c| c.bytes_sent },
    SysRow {
        topic: "load/connections",
        about: "CONNECT packets, accepted or refused",
        value: |c| c.connections_accepted + c.connections_refused,
    },
    SysRow {
        topic: "load/messages/received",
        about: "packets of any type received",
        value: |c| c.messages_received,
    },
    SysRow {
        topic: "load/messages/sent",
        about: "packets of any type sent",
        value: |c| c.messages_sent + c.publish_sent,
    },
    SysRow {
        topic: "load/publish/dropped",
        about: "messages that did not reach a session",
        value: |c| c.drops.iter().sum(),
    },
    SysRow {
        topic: "load/publish/received",
        about: "PUBLISH packets received",
        value: |c| c.publish_received,
    },
    SysRow { topic: "load/publish/sent", about: "PUBLISH packets sent", value: |c| c.publish_sent },
];

impl ShardCounters {
    pub(crate) fn add(&mut self, other: &ShardCounters) {
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
