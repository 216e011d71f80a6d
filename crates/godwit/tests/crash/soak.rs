//! A long run of the broker with sessions that appear, miss messages, return or never return, and
//! expire. Once as many sessions expire as appear, neither memory nor the data folder may grow.

use crate::broker::CrashBroker;
use crate::chance::CrashRng;
use crate::line::BrokerPacket;
use crate::peer::CrashPeer;
use crate::{said, seed};
use mqtt::{Disconnect, Packet, PacketId, PacketType, Properties, Publish, QoS, ReasonCode};
use mqtt::{ProtocolVersion, Subscribe, SubscribeOptions, SubscriptionListBuf};
use std::fs;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

/// Runs for ten seconds, or `GODWIT_SOAK_S`.
#[test]
fn sessions_that_come_and_go_leave_nothing_behind() {
    let seconds = said("GODWIT_SOAK_S").unwrap_or(10);
    let mut soak = SoakTest::new(seconds);
    let samples = soak.run(Duration::from_secs(seconds));
    print(&samples);
    assert!(soak.came > 0 && soak.acknowledged > 0, "nobody came");
    // The first quarter fills what stays full.
    let quarter = samples.len() / 4;
    let grows = |what: &str, of: fn(&SoakSample) -> u64, percent: u64, slack_kb: u64| {
        let median = |from: usize| median(samples[from..from + quarter].iter().map(of).collect());
        let (second, third, fourth) = (median(quarter), median(2 * quarter), median(3 * quarter));
        println!("{what}: medians of the quarters {second}, {third} and {fourth} KB");
        let most = second + second * percent / 100 + slack_kb;
        assert!(third.max(fourth) <= most, "{what} grows: more than {most} KB");
    };
    grows("memory", |sample| sample.resident_kb, MEMORY_PERCENT, MEMORY_SLACK_KB);
    grows("folder", |sample| sample.folder_kb, FOLDER_PERCENT, FOLDER_SLACK_KB);
}

struct SoakTest {
    broker: CrashBroker,
    rng: CrashRng,
    publisher: CrashPeer,
    /// Packet id of the message that waits for PUBACK.
    published: Option<PacketId>,
    acknowledged: u64,
    guests: Vec<SoakClient>,
    /// Number of sessions so far.
    made: u64,
    /// Number of messages that arrived at the sessions.
    came: u64,
    sessions_a_second: f64,
    expiry_s_max: u64,
}

/// The client of one session.
struct SoakClient {
    peer: CrashPeer,
    topic: u64,
    /// Number of visits left; the client does not return after the last one.
    visits: u64,
    /// Time at which the client connects next, or disconnects.
    turns_at: Instant,
    here: bool,
}

struct SoakSample {
    second: u64,
    resident_kb: u64,
    folder_kb: u64,
    made: u64,
    acknowledged: u64,
    came: u64,
}

impl SoakTest {
    fn new(seconds: u64) -> SoakTest {
        // With little memory the store meets tables and merges early.
        let options = vec!["store.memory_bytes=64KiB".to_string()];
        let mut broker = CrashBroker::new(&format!("soak-{seconds}"), options);
        broker.start(1);
        SoakTest {
            broker,
            rng: CrashRng::new(seed()),
            publisher: CrashPeer::new("publisher".to_string(), ProtocolVersion::V5, u16::MAX),
            published: None,
            acknowledged: 0,
            guests: Vec::new(),
            made: 0,
            came: 0,
            // What leaks shows itself by its number, so a short run has more of them.
            sessions_a_second: if seconds < 60 { 200.0 } else { 50.0 },
            expiry_s_max: (seconds / 10).clamp(1, 20),
        }
    }

    fn run(&mut self, span: Duration) -> Vec<SoakSample> {
        let began = Instant::now();
        let mut samples = Vec::new();
        while began.elapsed() < span {
            self.broker.look();
            let passed = began.elapsed().as_secs_f64();
            if self.made < (passed * self.sessions_a_second) as u64 {
                self.invite();
            }
            let due = self.acknowledged < (passed * MESSAGES_A_SECOND) as u64;
            let mut moved = self.publish(due);
            let (address, rng, came) = (self.broker.address, &mut self.rng, &mut self.came);
            self.guests.retain_mut(|guest| {
                moved |= guest.turn(address, rng, came);
                guest.visits > 0 || guest.here
            });
            if samples.len() < passed as usize {
                samples.push(self.sample(samples.len() as u64 + 1));
            }
            if !moved {
                thread::sleep(IDLE);
            }
        }
        samples
    }

    fn invite(&mut self) {
        self.made += 1;
        let version = ProtocolVersion::V5;
        let window = self.rng.of(&[1, 20, u16::MAX]);
        let mut peer = CrashPeer::new(format!("guest{}", self.made), version, window);
        peer.expiry_s = 1 + self.rng.below(self.expiry_s_max) as u32;
        self.guests.push(SoakClient {
            peer,
            topic: self.rng.below(TOPICS),
            visits: 1 + self.rng.below(4),
            turns_at: Instant::now(),
            here: false,
        });
    }

    fn publish(&mut self, due: bool) -> bool {
        let heard = self.publisher.turn(self.broker.address);
        for heard in &heard {
            if let BrokerPacket::Ack { packet_id, .. } = heard {
                assert_eq!(self.published.take(), Some(*packet_id));
                self.acknowledged += 1;
            }
        }
        if due && self.publisher.is_here() && self.published.is_none() {
            let packet_id = PacketId::new(1 + (self.acknowledged % 1000) as u16);
            let topic = format!("soak/{}", self.rng.below(TOPICS));
            self.publisher.say(Packet::Publish(Publish {
                dup: false,
                qos: QoS::AtLeastOnce,
                retain: false,
                topic: &topic,
                packet_id,
                properties: Properties::default(),
                payload: &[b'.'; PAYLOAD],
            }));
            self.published = packet_id;
        }
        self.publisher.flush();
        !heard.is_empty()
    }

    fn sample(&self, second: u64) -> SoakSample {
        let SoakTest { made, acknowledged, came, .. } = *self;
        let resident_kb = self.broker.resident_kb();
        let files = fs::read_dir(self.broker.store()).expect("the store is there");
        // A file may go while its size is asked.
        let bytes: u64 = files.flatten().filter_map(|file| Some(file.metadata().ok()?.len())).sum();
        SoakSample { second, resident_kb, folder_kb: bytes >> 10, made, acknowledged, came }
    }
}

impl SoakClient {
    fn turn(&mut self, address: SocketAddr, rng: &mut CrashRng, came: &mut u64) -> bool {
        let now = Instant::now();
        if !self.here && now < self.turns_at {
            return false;
        }
        // On a machine that stood still its session may have expired: then it stays away.
        let late = now.saturating_duration_since(self.turns_at);
        if !self.here && self.peer.is_known && late > LATE_OF_A_SECOND * self.peer.expiry_s {
            self.visits = 0;
            return false;
        }
        self.here = true;
        let heard = self.peer.turn(address);
        let moved = !heard.is_empty();
        for heard in heard {
            match heard {
                BrokerPacket::Welcome { .. } => {
                    self.turns_at = Instant::now() + VISIT;
                    if !self.peer.is_known {
                        self.subscribe();
                    }
                }
                BrokerPacket::Subscribed { .. } => self.peer.is_known = true,
                BrokerPacket::Message { packet_id, .. } => {
                    *came += 1;
                    self.peer.acknowledge(PacketType::PubAck, packet_id.expect("QoS 1"));
                }
                other => panic!("nobody asked for {other:?}"),
            }
        }
        self.peer.flush();
        if self.peer.is_here() && self.peer.is_known && Instant::now() > self.turns_at {
            self.leave(rng);
        }
        moved
    }

    fn subscribe(&mut self) {
        let mut filters = SubscriptionListBuf::default();
        let options = SubscribeOptions { qos: QoS::AtLeastOnce, ..Default::default() };
        filters.push(&format!("soak/{}", self.topic), options);
        let (packet_id, properties) = (PacketId::MIN, Properties::default());
        let filters = filters.as_subscriptions();
        self.peer.say(Packet::Subscribe(Subscribe { packet_id, properties, filters }));
    }

    fn leave(&mut self, rng: &mut CrashRng) {
        if rng.once_in(2) {
            let (reason, properties) = (ReasonCode::Success, Properties::default());
            self.peer.say(Packet::Disconnect(Disconnect { reason, properties }));
            self.peer.flush();
        }
        self.peer.cut();
        self.here = false;
        self.visits -= 1;
        // Early enough for a session that must still be there.
        let away_ms = rng.below(u64::from(self.peer.expiry_s) * 600);
        self.turns_at = Instant::now() + Duration::from_millis(away_ms);
    }
}

fn median(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or(0)
}

fn print(samples: &[SoakSample]) {
    println!("| second | resident KB | folder KB | sessions made | acknowledged | delivered |");
    println!("|--:|--:|--:|--:|--:|--:|");
    for sample in samples.iter().step_by((samples.len() / ROWS).max(1)) {
        let SoakSample { second, resident_kb, folder_kb, made, acknowledged, came } = sample;
        println!("| {second} | {resident_kb} | {folder_kb} | {made} | {acknowledged} | {came} |");
    }
}

const MESSAGES_A_SECOND: f64 = 50.0;
const TOPICS: u64 = 50;
const PAYLOAD: usize = 100;

/// Shortest length of a visit.
const VISIT: Duration = Duration::from_millis(200);
/// Largest delay of a visit for each second of the session expiry.
const LATE_OF_A_SECOND: Duration = Duration::from_millis(200);
const IDLE: Duration = Duration::from_millis(1);

/// Permitted growth of the medians of the later quarters over the second quarter, in percent.
const MEMORY_PERCENT: u64 = 5;
const MEMORY_SLACK_KB: u64 = 256;
/// Permitted growth of the folder, in percent: logs are removed and tables merged in steps of some
/// hundred kilobytes.
const FOLDER_PERCENT: u64 = 20;
const FOLDER_SLACK_KB: u64 = 512;

const ROWS: usize = 20;
