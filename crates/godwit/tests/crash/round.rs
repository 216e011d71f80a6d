//! A round: clients of all kinds with one data folder, while the broker is killed again and again.

use crate::broker::CrashBroker;
use crate::chance::CrashRng;
use crate::judge::DeliveryJudge;
use crate::publisher::CrashPublisher;
use crate::reader::RetainedReader;
use crate::subscriber::{CrashSubscriber, SubscriberHabit};
use crate::trace::TraceStep;
use crate::witness::TraceWitness;
use mqtt::{ProtocolVersion, QoS};
use std::thread;
use std::time::{Duration, Instant};

pub(crate) struct CrashRound {
    pub(crate) broker: CrashBroker,
    shards: usize,
    /// Whether the broker has one shard during the whole round. Otherwise the number of shards
    /// changes.
    one_shard: bool,
    rng: CrashRng,
    judge: DeliveryJudge,
    publishers: Vec<CrashPublisher>,
    subscribers: Vec<CrashSubscriber>,
    reader: RetainedReader,
}

/// Moment at which the process is killed: after a time, or after a number of events.
#[derive(Clone, Copy, Debug)]
enum KillMoment {
    After(Duration),
    Acknowledgements(u64),
    Arrivals(u64),
    Sends(u64),
}

impl CrashRound {
    pub(crate) fn new(name: &str, seed: u64, shards: usize) -> CrashRound {
        let mut rng = CrashRng::new(seed);
        let inflight = rng.of(&[8, 50, 1024]);
        let memory = rng.of(&[64 << 10, 1 << 20]);
        let options = vec![
            "queue.messages_max=1000000".to_string(),
            format!("session.inflight_max={inflight}"),
            format!("store.memory_bytes={memory}"),
        ];
        let mut round = CrashRound {
            broker: CrashBroker::new(name, options),
            shards,
            one_shard: shards == 1,
            judge: DeliveryJudge::default(),
            publishers: Vec::new(),
            subscribers: Vec::new(),
            reader: RetainedReader::default(),
            rng,
        };
        round.people();
        round
    }

    fn people(&mut self) {
        let (judge, rng) = (&mut self.judge, &mut self.rng);
        let versions = [ProtocolVersion::V311, ProtocolVersion::V5];
        let both = [QoS::AtLeastOnce, QoS::ExactlyOnce];
        for at in 0..4 {
            let (version, qos) = (rng.of(&versions), both[at % 2]);
            let id = format!("p{at}");
            self.publishers.push(CrashPublisher::new(id, version, qos, false, judge, rng));
        }
        for (at, qos) in both.into_iter().enumerate() {
            let (version, id) = (rng.of(&versions), format!("k{at}"));
            self.publishers.push(CrashPublisher::new(id, version, qos, true, judge, rng));
        }
        let habits = [SubscriberHabit::Steady, SubscriberHabit::Fickle, SubscriberHabit::Sleeper];
        for habit in habits {
            for qos in both {
                let id = format!("{habit:?}{}", qos as u8).to_lowercase();
                let claim = judge.claim(id.clone(), qos, &["c/", "r/"], false);
                let wants = (&["c/#", "r/#"][..], qos);
                let version = rng.of(&versions);
                let one = CrashSubscriber::new(id, version, wants, claim, habit, rng);
                self.subscribers.push(one);
            }
        }
        for (group, filters, qos) in [
            ("one", &["$share/one/c/#"][..], QoS::AtLeastOnce),
            ("two", &["$share/two/c/#"][..], QoS::ExactlyOnce),
        ] {
            let claim = judge.claim(group.to_string(), qos, &["c/"], true);
            for (at, habit) in habits.into_iter().enumerate() {
                let (version, id) = (rng.of(&versions), format!("{group}{at}"));
                let one = CrashSubscriber::new(id, version, (filters, qos), claim, habit, rng);
                self.subscribers.push(one);
            }
        }
    }

    pub(crate) fn run(mut self) {
        self.broker.start(self.shards);
        self.begin();
        for _ in 0..3 + self.rng.below(3) {
            self.live(MESSAGES);
        }
        self.subscribers.iter_mut().for_each(|one| one.live(true));
        for _ in 0..1 + self.rng.below(2) {
            self.live(0);
        }
        self.finish();
        self.broker.kill();
        self.broker.start(self.shards);
        self.finish();
        println!(
            "{} messages acknowledged, {} arrivals",
            self.judge.acknowledgements, self.judge.arrivals
        );
    }

    fn begin(&mut self) {
        let subscribed =
            |round: &CrashRound| round.subscribers.iter().all(CrashSubscriber::is_subscribed);
        self.turn_publishers_until(false, "subscribe", subscribed);
        // The first message makes a publisher's session known for good.
        let known = |round: &CrashRound| round.publishers.iter().all(|one| one.peer.is_known);
        self.turn_until("begin", known);
        self.subscribers.iter_mut().for_each(|one| one.live(false));
    }

    /// Runs a process under strace, which the caller ends. All publishes are acknowledged at the
    /// end, so a [`TraceWitness`] knows as much as the publishers.
    pub(crate) fn live_traced(&mut self, is_first: bool, is_last: bool) {
        self.broker.start(self.shards);
        if is_first {
            self.begin();
        }
        for one in &mut self.publishers {
            one.left = 1 + self.rng.below(MESSAGES) as u32;
        }
        let most = self.judge.acknowledgements + MESSAGES * 2;
        self.turn_until("publish", |round| match is_last {
            true => round.judge.acknowledgements >= most || round.is_published(),
            false => round.is_published(),
        });
    }

    fn is_published(&self) -> bool {
        self.publishers.iter().all(CrashPublisher::is_done)
    }

    /// Applies a step of a trace to the clients, as far as they could know of it.
    pub(crate) fn see(&mut self, step: &TraceStep, witness: &mut TraceWitness) {
        witness.see(step, &mut self.publishers, &mut self.subscribers, &mut self.judge);
    }

    /// Starts the broker on the present data folder, and checks that no acknowledged message is
    /// missing.
    pub(crate) fn stand(mut self) {
        self.subscribers.iter_mut().for_each(|one| one.live(true));
        self.broker.start(self.shards);
        self.finish();
    }

    /// Lets the process run until a random moment, kills it, and starts it again.
    fn live(&mut self, messages: u64) {
        for one in &mut self.publishers {
            one.left = if messages > 0 { self.rng.below(messages) as u32 } else { one.left };
        }
        let moment = match self.rng.below(5) {
            0 => KillMoment::After(Duration::from_micros(self.rng.below(30_000))),
            1 => KillMoment::After(Duration::from_millis(10 + self.rng.below(150))),
            2 => KillMoment::Acknowledgements(1 + self.rng.below(300)),
            3 => KillMoment::Arrivals(1 + self.rng.below(2_000)),
            _ => KillMoment::Sends(1 + self.rng.below(300)),
        };
        self.judge.note(|_| format!("-- until {moment:?}"));
        let began = Instant::now();
        let counts = |judge: &DeliveryJudge| (judge.acknowledgements, judge.arrivals, judge.sends);
        let before = counts(&self.judge);
        let (mut now, mut changed) = (before, began);
        while began.elapsed() < LIFE_MAX {
            if counts(&self.judge) != now || !self.is_published() {
                (now, changed) = (counts(&self.judge), Instant::now());
            }
            let over = match moment {
                KillMoment::After(time) => began.elapsed() >= time,
                // What is to be counted does not come any more.
                _ if changed.elapsed() > STILL => true,
                KillMoment::Acknowledgements(count) => now.0 >= before.0 + count,
                KillMoment::Arrivals(count) => now.1 >= before.1 + count,
                KillMoment::Sends(count) => now.2 >= before.2 + count,
            };
            if over {
                break;
            }
            self.turn(true);
        }
        self.broker.kill();
        if self.rng.once_in(3) {
            self.shards = self.shards_next();
        }
        self.judge.note(|_| "-- killed".to_string());
        self.reader = RetainedReader::default();
        self.broker.start(self.shards);
    }

    fn shards_next(&mut self) -> usize {
        if self.one_shard { 1 } else { 1 + self.rng.below(3) as usize }
    }

    /// Connects all clients, and reads until no message is missing and no further message arrives.
    fn finish(&mut self) {
        self.judge.note(|_| "-- finish".to_string());
        self.publishers.iter_mut().for_each(|one| one.left = 0);
        self.turn_until("publish", CrashRound::is_published);
        self.turn_until("drain", |round| round.judge.missing().is_none());
        let done = |round: &CrashRound| round.subscribers.iter().all(CrashSubscriber::is_done);
        self.turn_until("answer", done);
        // All packets sent before a PINGREQ have arrived when its PINGRESP arrives.
        for _ in 0..2 {
            self.subscribers.iter_mut().for_each(CrashSubscriber::ping);
            let quiet = |round: &CrashRound| {
                let mut all = round.subscribers.iter();
                all.all(|one| one.is_done() && one.pings_left() == 0)
            };
            self.turn_until("be quiet", quiet);
        }
        self.reader = RetainedReader::default();
        self.turn_until("look at what is retained", |round| round.reader.is_done);
    }

    fn turn_until(&mut self, what: &str, over: impl Fn(&CrashRound) -> bool) {
        self.turn_publishers_until(true, what, over);
    }

    fn turn_publishers_until(
        &mut self,
        publishers: bool,
        what: &str,
        over: impl Fn(&CrashRound) -> bool,
    ) {
        let (mut waited, mut arrivals) = (Duration::ZERO, self.judge.arrivals);
        while !over(self) {
            let began = Instant::now();
            self.turn(publishers);
            // A host that stood still is no broker that does.
            waited += began.elapsed().min(TURN_MAX);
            if arrivals < self.judge.arrivals {
                (waited, arrivals) = (Duration::ZERO, self.judge.arrivals);
            }
            if waited > PATIENCE {
                panic!("{what}: nothing came any more. {:?}", self.judge.missing());
            }
        }
    }

    fn turn(&mut self, publishers: bool) {
        self.broker.look();
        let (address, judge, rng) = (self.broker.address, &mut self.judge, &mut self.rng);
        let mut moved = false;
        if publishers {
            for one in &mut self.publishers {
                moved |= one.turn(address, judge, rng);
            }
        }
        for one in &mut self.subscribers {
            moved |= one.turn(address, judge, rng);
        }
        moved |= self.reader.turn(address, judge);
        if !moved {
            thread::sleep(IDLE);
        }
    }
}

impl Drop for CrashRound {
    fn drop(&mut self) {
        if thread::panicking() {
            self.judge.write_history(&self.broker.folder.join("history"));
        }
    }
}

/// Largest number of messages of a publisher between two kills.
const MESSAGES: u64 = 80;

const LIFE_MAX: Duration = Duration::from_secs(2);
const STILL: Duration = Duration::from_millis(50);
/// Longest wait for a message: longer than a sync takes on a disk to which other processes write
/// gigabytes.
const PATIENCE: Duration = Duration::from_secs(60);
const TURN_MAX: Duration = Duration::from_millis(20);
const IDLE: Duration = Duration::from_micros(100);
