//! Cost of a delivery without the kernel: `cargo bench -p broker --bench delivery`. Time is
//! measured only while the shard runs, from a publisher's bytes to the receiver's acknowledgement.
//!
//! `delivery count PATH QOS TURNS` runs one path once, for `valgrind --tool=callgrind`: the
//! difference between two numbers of turns is the cost of as many messages.

use broker::access_rules::acl_rules::{self, AclRuleSet, TopicPattern};
use broker::options::rule::{Rule, RuleActions};
use broker::{
    BrokerOptions, ConnId, Interest, MonotonicMs, Outbox, PeerInfo, Shard, ShardId, ShardInput,
};
use mqtt::{
    Connect, Packet, PacketId, Properties, ProtocolVersion, Publish, QoS, Subscribe,
    SubscribeOptions, SubscriptionListBuf,
};
use rules::RulePlan;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [count, path, qos, turns] = &arguments[..]
        && count == "count"
    {
        let qos = [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce][number(qos)];
        return count_path(path, qos, number(turns) as u32);
    }
    for qos in [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce] {
        report("fan-out 10 to 500, 20 a read", qos, || Bench::new(10, 500, true, qos).run(20, 40));
        report("1000 pairs, 4 a read", qos, || Bench::new(1000, 1000, false, qos).run(4, 60));
        report("the same under 1000 rules", qos, || {
            let permissions = Some(permissions(1000));
            let options = BrokerOptions { permissions, ..BrokerOptions::default() };
            Bench::with(1000, 1000, false, qos, options).run(4, 60)
        });
        let others: [(&str, usize, usize, &str); 6] = [
            ("beside a rule in SQL", 0, 1, "site"),
            ("beside 1000 rules in SQL", 0, 1000, "site"),
            ("beside a rule of alike topics", 0, 1, "bench"),
            ("with a rule for two fields", 1, 0, "site"),
            ("with ten rules for two fields", 10, 0, "site"),
            ("with these ten of 1000 rules", 10, 990, "site"),
        ];
        for (name, matching, beside, site) in others {
            report(name, qos, || {
                let rules = rules(matching, beside, site);
                let options = BrokerOptions { rules, ..BrokerOptions::default() };
                Bench::with(1000, 1000, false, qos, options).run(4, 60)
            });
        }
    }
}

fn number(text: &str) -> usize {
    text.parse().expect("a number")
}

/// Runs one path for the subcommand `count`; paths with rules and permissions are not included.
fn count_path(path: &str, qos: QoS, turns: u32) {
    let (bench, batch) = match path {
        "fan-out" => (Bench::new(1, 500, true, qos), 20),
        "pairs" => (Bench::new(10, 10, false, qos), 20),
        "skips" => (Bench::new(10, 10, false, qos).withholding(3), 20),
        "lasting" => (Bench::lasting(10, 10, qos), 20),
        "lasting-skips" => (Bench::lasting(10, 10, qos).withholding(3), 20),
        _ => panic!("paths: fan-out, pairs, skips, lasting, lasting-skips"),
    };
    let (deliveries, _) = bench.deliver(batch, turns);
    println!("{path} {qos:?}: {deliveries} deliveries");
}

/// Prints the shortest of 25 rounds: disturbances only lengthen a round.
fn report(name: &str, qos: QoS, round: impl Fn() -> f64) {
    let best = (0..25).map(|_| round()).fold(f64::MAX, f64::min);
    println!("{name:<32} {qos:?}: {best:7.1} ns a delivery");
}

/// Returns `count` access rules for all clients, of which the last one allows the topics of the
/// benchmark.
fn permissions(count: usize) -> Arc<AclRuleSet> {
    let one = |at: usize| {
        let filter = if at + 1 == count { "bench/#".into() } else { format!("site/{at}/+/value") };
        let topics = vec![TopicPattern::parse(&filter).expect("a filter")];
        acl_rules::AclRule { allows: true, topics, ..Default::default() }
    };
    Arc::new(AclRuleSet::new((0..count).map(one).collect()))
}

/// Returns SQL rules: `matching` ones that select all messages of the benchmark, and `beside` ones
/// that select none.
fn rules(matching: usize, beside: usize, site: &str) -> Arc<[Rule]> {
    let one = |at: usize| {
        let filter = if at < matching { "bench/#".into() } else { format!("{site}/{at}/+/value") };
        let text = format!("SELECT payload.a, payload.b FROM \"{filter}\"");
        let plan = Arc::new(RulePlan::parse(&text).expect("it is a rule"));
        let (name, text) = (at.to_string().into(), text.into());
        Rule { name, text, plan, actions: RuleActions::default(), metrics: Arc::default() }
    };
    (0..matching + beside).map(one).collect()
}

/// Payload of a typical sensor message.
const PAYLOAD: &[u8; 64] = br#"{"a": 2.5, "b": "hall", "c": [1, 2, 3], "d": "2026-11-23T12:00"}"#;

struct Bench {
    shard: Shard,
    out: Outbox,
    publishers: u32,
    subscribers: u32,
    fan_out: bool,
    qos: QoS,
    spent: Duration,
    /// Zero-based packet id of the next message of each publisher.
    next_id: u16,
    /// Zero-based packet id of the next message of each subscriber.
    next_received: u16,
    /// Number of messages that each subscriber never acknowledges. Their packet ids are skipped in
    /// every round.
    withheld: u16,
    /// Whether sessions survive their connections, with a store that commits at once.
    lasts: bool,
    seq: u64,
    published: u64,
    /// Bytes received by all subscribers in the last turn.
    received_bytes: usize,
}

impl Bench {
    fn new(publishers: u32, subscribers: u32, fan_out: bool, qos: QoS) -> Bench {
        Bench::with(publishers, subscribers, fan_out, qos, BrokerOptions::default())
    }

    fn with(
        publishers: u32,
        subscribers: u32,
        fan_out: bool,
        qos: QoS,
        options: BrokerOptions,
    ) -> Bench {
        Bench::closed(publishers, subscribers, fan_out, qos, options).opened()
    }

    fn lasting(publishers: u32, subscribers: u32, qos: QoS) -> Bench {
        let mut bench =
            Bench::closed(publishers, subscribers, false, qos, BrokerOptions::default());
        bench.shard.open_store(1);
        bench.lasts = true;
        bench.opened()
    }

    /// Leaves the first `count` messages of each subscriber unacknowledged for the whole run.
    fn withholding(mut self, count: u16) -> Bench {
        self.turn_withholding(count);
        self.withheld = count;
        self.next_received = count;
        self
    }

    fn closed(
        publishers: u32,
        subscribers: u32,
        fan_out: bool,
        qos: QoS,
        options: BrokerOptions,
    ) -> Bench {
        let options = BrokerOptions { sys_interval_s: 0, ..options };
        let interest = Arc::new(Interest::new(7, 1));
        let shard = Shard::new(
            ShardId(0),
            1,
            Arc::new(options),
            interest,
            Arc::default(),
            7,
            8,
            MonotonicMs(0),
        );
        let (out, spent) = (Outbox::new(1), Duration::ZERO);
        Bench {
            shard,
            out,
            publishers,
            subscribers,
            fan_out,
            qos,
            spent,
            next_id: 0,
            next_received: 0,
            withheld: 0,
            lasts: false,
            seq: 0,
            published: 0,
            received_bytes: 0,
        }
    }

    fn opened(self) -> Bench {
        let mut bench = self;
        let (publishers, subscribers) = (bench.publishers, bench.subscribers);
        for conn in 0..publishers + subscribers {
            bench.open(ConnId(conn));
            if conn >= publishers {
                bench.subscribe(ConnId(conn));
            }
        }
        bench.spent = Duration::ZERO;
        bench
    }

    fn open(&mut self, conn: ConnId) {
        let peer = PeerInfo::from_address(([127, 0, 0, 1], 1).into());
        let opened = ShardInput::Opened { conn, peer, since: MonotonicMs(0), moved: false };
        self.shard.handle(MonotonicMs(0), opened, &mut self.out);
        self.say(
            conn,
            &encoded(Packet::Connect(Connect {
                is_bridge: false,
                version: ProtocolVersion::V311,
                clean_start: !self.lasts || conn.0 < self.publishers,
                keep_alive_s: 0,
                client_id: &format!("client-{}", conn.0),
                will: None,
                user_name: None,
                password: None,
                properties: Properties::default(),
            })),
        );
        self.out.clear();
    }

    fn topic(&self, conn: u32) -> String {
        format!("bench/{}", if self.fan_out { 0 } else { conn % self.publishers })
    }

    fn subscribe(&mut self, conn: ConnId) {
        let mut filters = SubscriptionListBuf::default();
        let topic = self.topic(conn.0);
        filters.push(&topic, SubscribeOptions { qos: self.qos, ..Default::default() });
        let filters = filters.as_subscriptions();
        let (packet_id, properties) = (PacketId::MIN, Properties::default());
        self.say(conn, &encoded(Packet::Subscribe(Subscribe { packet_id, properties, filters })));
        self.out.clear();
    }

    fn say(&mut self, conn: ConnId, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let began = Instant::now();
            self.shard.handle(
                MonotonicMs(1),
                ShardInput::Bytes { conn, bytes: rest },
                &mut self.out,
            );
            self.spent += began.elapsed();
            rest = &rest[self.out.consumed..];
            if self.lasts {
                self.commit();
            }
            if !rest.is_empty() {
                self.out.clear();
            }
        }
    }

    /// Reports all written records as committed and durable.
    fn commit(&mut self) {
        while self.shard.has_records() {
            std::hint::black_box(self.shard.take_records());
            self.seq += 1;
            let committed = ShardInput::Committed { seq: self.seq, durable: self.seq };
            self.shard.handle(MonotonicMs(1), committed, &mut self.out);
        }
    }

    /// Sends acknowledgements of one type, given by the first byte, for `count` packet ids on each
    /// connection.
    fn acknowledge(&mut self, first: u8, conns: std::ops::Range<u32>, from: u16, count: u16) {
        let mut bytes = Vec::new();
        let withheld = if conns.start == 0 { 0 } else { self.withheld };
        for at in 0..count {
            let [high, low] = next_but(withheld, from, at).to_be_bytes();
            bytes.extend_from_slice(&[first, 2, high, low]);
        }
        conns.for_each(|conn| self.say(ConnId(conn), &bytes));
        self.out.clear();
    }

    fn run(self, batch: u16, turns: u32) -> f64 {
        let (deliveries, spent) = self.deliver(batch, turns);
        spent.as_nanos() as f64 / deliveries as f64
    }

    fn deliver(mut self, batch: u16, turns: u32) -> (u64, Duration) {
        for _ in 0..turns {
            self.turn(batch);
        }
        let each = if self.fan_out { self.subscribers } else { 1 };
        let messages = usize::from(batch) * self.publishers as usize * each as usize;
        assert!(self.received_bytes >= messages * PAYLOAD.len(), "messages wait for nothing");
        (self.published * u64::from(each), self.spent)
    }

    fn turn(&mut self, batch: u16) {
        self.publish(batch);
        let (publishers, everyone) = (self.publishers, self.publishers + self.subscribers);
        let got = if self.fan_out { batch * publishers as u16 } else { batch };
        let from = self.next_received;
        if self.qos == QoS::AtLeastOnce {
            self.acknowledge(0x40, publishers..everyone, from, got);
        }
        if self.qos == QoS::ExactlyOnce {
            self.release(batch);
            self.acknowledge(0x50, publishers..everyone, from, got);
            self.acknowledge(0x70, publishers..everyone, from, got);
        }
        self.next_id = next(self.next_id, batch) - 1;
        self.next_received = next_but(self.withheld, from, got) - 1;
    }

    /// Publishes a batch that the subscribers do not acknowledge.
    fn turn_withholding(&mut self, batch: u16) {
        self.publish(batch);
        if self.qos == QoS::ExactlyOnce {
            self.release(batch);
        }
        self.next_id = next(self.next_id, batch) - 1;
    }

    fn release(&mut self, batch: u16) {
        self.acknowledge(0x62, 0..self.publishers, self.next_id, batch);
    }

    fn publish(&mut self, batch: u16) {
        for conn in 0..self.publishers {
            let mut bytes = Vec::new();
            let topic = self.topic(conn);
            for at in 0..batch {
                let id = PacketId::new(next(self.next_id, at));
                bytes.extend(encoded(Packet::Publish(Publish {
                    dup: false,
                    qos: self.qos,
                    retain: false,
                    topic: &topic,
                    packet_id: id.filter(|_| self.qos > QoS::AtMostOnce),
                    properties: Properties::default(),
                    payload: PAYLOAD,
                })));
            }
            self.say(ConnId(conn), &bytes);
            self.published += u64::from(batch);
        }
        let to_subscriber =
            |write: &&broker::interface::outbox::ConnWrite| write.conn.0 >= self.publishers;
        let writes = self.out.writes();
        let slices = writes.iter().filter(to_subscriber).flat_map(|it| it.slices(&self.out.arena));
        self.received_bytes = slices.map(<[u8]>::len).sum();
        self.out.clear();
    }
}

/// Returns the packet id `at` places after the zero-based `from`.
fn next(from: u16, at: u16) -> u16 {
    ((u32::from(from) + u32::from(at)) % 65_535) as u16 + 1
}

/// Like [`next`], with the first `passed` ids left out.
fn next_but(passed: u16, from: u16, at: u16) -> u16 {
    let of = 65_535 - u32::from(passed);
    ((u32::from(from - passed) + u32::from(at)) % of) as u16 + passed + 1
}

fn encoded(packet: Packet<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    packet.encode(ProtocolVersion::V311, &mut bytes);
    bytes
}
