//! One shard with any number of clients, without sockets.

use broker::{
    BrokerOptions, ConnId, Interest, MonotonicMs, Outbox, PeerInfo, ProcessMemory, Shard, ShardId,
    ShardInput,
};
use mqtt::{
    Connect, Packet, PacketId, Properties, ProtocolVersion, Publish, QoS, Subscribe,
    SubscribeOptions, SubscriptionListBuf,
};
use std::sync::Arc;

pub(crate) struct SubscriberCrowd {
    pub(crate) shard: Shard,
    pub(crate) out: Outbox,
    conns: u32,
    bytes: Vec<u8>,
}

/// Number of filters in one SUBSCRIBE.
const FILTERS_A_PACKET: usize = 500;

impl SubscriberCrowd {
    pub(crate) fn new() -> SubscriberCrowd {
        SubscriberCrowd::with(BrokerOptions::default())
    }

    /// Creates a shard with these options; limits that large numbers of clients would reach are
    /// raised.
    pub(crate) fn with(options: BrokerOptions) -> SubscriberCrowd {
        let options = BrokerOptions {
            memory_bytes_max: 1 << 50,
            retained_bytes_max: 1 << 50,
            subscriptions_max: u32::MAX,
            retained_messages_max: u32::MAX,
            sys_interval_s: 0,
            ..options
        };
        let (interest, memory) =
            (Arc::new(Interest::new(1, 1)), Arc::new(ProcessMemory::default()));
        let options = Arc::new(options);
        let shard = Shard::new(ShardId(0), 1, options, interest, memory, 1, 1, MonotonicMs(0));
        SubscriberCrowd { shard, out: Outbox::new(1), conns: 0, bytes: Vec::new() }
    }

    /// Opens a connection and sends CONNECT.
    pub(crate) fn connect(&mut self, client_id: &str) -> ConnId {
        let conn = ConnId(self.conns);
        self.conns += 1;
        let peer = PeerInfo::from_address(([127, 0, 0, 1], 1).into());
        let opened = ShardInput::Opened { conn, peer, since: MonotonicMs(0), moved: false };
        self.shard.handle(MonotonicMs(1), opened, &mut self.out);
        self.send(
            conn,
            Packet::Connect(Connect {
                is_bridge: false,
                version: ProtocolVersion::V311,
                clean_start: true,
                keep_alive_s: 60,
                client_id,
                will: None,
                user_name: None,
                password: None,
                properties: Properties::default(),
            }),
        );
        conn
    }

    fn send(&mut self, conn: ConnId, packet: Packet<'_>) {
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        packet.encode(ProtocolVersion::V311, &mut bytes);
        self.give(conn, &bytes);
        self.bytes = bytes;
        self.out.clear();
    }

    /// Passes received bytes to the shard. The output of the shard stays in the outbox.
    pub(crate) fn give(&mut self, conn: ConnId, bytes: &[u8]) {
        self.shard.handle(MonotonicMs(1), ShardInput::Bytes { conn, bytes }, &mut self.out);
        assert_eq!(self.out.consumed, bytes.len(), "all of it is taken");
    }

    pub(crate) fn subscribe(&mut self, conn: ConnId, filters: &[String]) {
        for filters in filters.chunks(FILTERS_A_PACKET) {
            let bytes = encode_subscribe(filters);
            self.give(conn, &bytes);
            self.out.clear();
        }
    }

    /// Publishes a retained message to the topic.
    pub(crate) fn retain(&mut self, conn: ConnId, topic: &str) {
        let publish = Publish { retain: true, ..message(topic) };
        self.send(conn, Packet::Publish(publish));
    }
}

pub(crate) fn encode_subscribe(filters: &[String]) -> Vec<u8> {
    let mut all = SubscriptionListBuf::default();
    for filter in filters {
        all.push(filter, SubscribeOptions::default());
    }
    let (packet_id, properties) = (PacketId::MIN, Properties::default());
    let filters = all.as_subscriptions();
    let mut bytes = Vec::new();
    Packet::Subscribe(Subscribe { packet_id, properties, filters })
        .encode(ProtocolVersion::V311, &mut bytes);
    bytes
}

pub(crate) fn encode_publish(topic: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    Packet::Publish(message(topic)).encode(ProtocolVersion::V311, &mut bytes);
    bytes
}

fn message(topic: &str) -> Publish<'_> {
    Publish {
        dup: false,
        qos: QoS::AtMostOnce,
        retain: false,
        topic,
        packet_id: None,
        properties: Properties::default(),
        payload: &[b'x'; 64],
    }
}

/// Ten filters that match `TOPIC`.
pub(crate) const MATCHING: [&str; 10] = [
    "#",
    "home/#",
    "home/1/+/temperature",
    "home/1/kitchen/temperature",
    "home/+/kitchen/temperature",
    "home/1/kitchen/#",
    "+/1/kitchen/temperature",
    "home/1/kitchen/+",
    "home/+/+/+",
    "home/1/kitchen/temperature/#",
];
pub(crate) const TOPIC: &str = "home/1/kitchen/temperature";

/// Returns number `at` of the filters that do not match `TOPIC`: exact filters, and wildcards at
/// every level, half of them below levels of `TOPIC`. No filter matches a topic of another.
pub(crate) fn other(at: usize) -> String {
    let number = at / 6;
    match at % 6 {
        0 => format!("plant/{number}/line/speed"),
        1 => format!("home/1/kitchen/{number}"),
        2 => format!("plant/{number}/+/speed"),
        3 => format!("home/1/{number}/#"),
        4 => format!("home/{number}x/+/+"),
        _ => format!("plant/+/{number}/speed"),
    }
}
