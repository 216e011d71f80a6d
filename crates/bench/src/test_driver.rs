//! Runs a test through its phases and gathers the results of the load threads.
//!
//! ```text
//! connect and subscribe -> warm up -> measure -> drain -> over
//! ```

use crate::clock::{RunClock, SECOND_NS, seconds_ns};
use crate::load::{
    self, LoadStage, LoadThreadHandle, SharedCounters, StreamSummary, ThreadSecond, ThreadSummary,
};
use crate::load_stats::{LoadCounter, LoadStats};
use crate::plan::{ConsumerIndex, LoadPlan, StartMode};
use crate::track::TrackTotals;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// Results of a test, merged from one `ProcessOutcome` or more.
#[derive(Debug)]
pub(crate) struct TestOutcome {
    pub(crate) phases: TestPhases,
    pub(crate) total: LoadStats,
    /// Counters of the measured phase. Latencies are in `total`, because a message due in this
    /// phase may arrive later.
    pub(crate) measured: LoadStats,
    pub(crate) rows: Vec<SecondRow>,
    pub(crate) streams: Vec<MessageStream>,
    /// Clients that were live when publishing began.
    pub(crate) live_at_start: u64,
    pub(crate) was_interrupted: bool,
}

/// Starts of the phases in nanoseconds of the Unix epoch. A phase that did not take place is empty.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TestPhases {
    pub(crate) began: u64,
    pub(crate) connected: u64,
    pub(crate) start: u64,
    pub(crate) measure_from: u64,
    pub(crate) publish_until: u64,
    pub(crate) drained: u64,
}

/// A second of the whole test.
#[derive(Clone, Debug)]
pub(crate) struct SecondRow {
    pub(crate) from_ns: u64,
    pub(crate) until_ns: u64,
    pub(crate) live: u64,
    pub(crate) stats: LoadStats,
    /// Processor time of the busiest thread, as a share of the second.
    pub(crate) thread_cpu_max: f64,
}

/// The messages of a publisher on one topic, with the deliveries to all consumers.
#[derive(Clone, Debug)]
pub(crate) struct MessageStream {
    pub(crate) end: StreamSummary,
    pub(crate) consumers: u64,
    /// Whether payloads have a `PayloadStamp`. Without stamps, received messages cannot be assigned
    /// to sent messages.
    pub(crate) is_stamped: bool,
    pub(crate) tracked: TrackTotals,
}

impl MessageStream {
    pub(crate) fn expected(&self) -> u64 {
        if self.is_stamped { self.end.sent * self.consumers } else { 0 }
    }

    pub(crate) fn lost(&self) -> u64 {
        self.expected().saturating_sub(self.tracked.received)
    }
}

/// Results of one process; [`merge_outcomes`] combines one or more into a `TestOutcome`.
#[derive(Debug)]
pub(crate) struct ProcessOutcome {
    pub(crate) phases: TestPhases,
    pub(crate) total: LoadStats,
    pub(crate) measured: LoadStats,
    pub(crate) rows: Vec<SecondRow>,
    pub(crate) ends: Vec<ThreadSummary>,
    pub(crate) live_at_start: u64,
    pub(crate) was_interrupted: bool,
}

/// Decides when publishing begins, once the clients are connected: receives the number of live
/// clients and returns the time, or `None` for no start.
pub(crate) type StartGate<'a> = &'a mut dyn FnMut(u64) -> Option<u64>;

/// Runs the plan through all phases. `see` is called with every complete second and the totals.
pub(crate) fn run_phases(
    plan: &Arc<LoadPlan>,
    clock: RunClock,
    stop: &AtomicBool,
    gate: StartGate<'_>,
    see: &mut dyn FnMut(&SecondRow, &LoadStats),
) -> io::Result<ProcessOutcome> {
    let shared = Arc::new(SharedCounters::new(plan));
    let (sender, seconds) = channel();
    let hands = load::start_threads(plan, &shared, clock, &sender)?;
    drop(sender);
    let mut conductor = TestDriver {
        plan,
        clock,
        shared,
        threads: hands,
        seconds,
        stop,
        see,
        pending: BTreeMap::new(),
        rows: Vec::new(),
        total: LoadStats::new(),
        measured: LoadStats::new(),
        phases: TestPhases { began: clock.began_ns, ..TestPhases::default() },
        was_interrupted: false,
    };
    let live_at_start = conductor.run(gate);
    conductor.finish(live_at_start)
}

/// Returns the gate of a single process: publishing begins `START_LEAD_NS` later, if a client is
/// live.
pub(crate) fn start_at_once(clock: RunClock) -> impl FnMut(u64) -> Option<u64> {
    move |live| (live > 0).then(|| clock.now_ns() + START_LEAD_NS)
}

/// Merges the results of processes. `parts` has at least one element.
pub(crate) fn merge_outcomes(plan: &LoadPlan, parts: Vec<ProcessOutcome>) -> TestOutcome {
    let (mut total, mut measured) = (LoadStats::new(), LoadStats::new());
    let (mut phases, mut live_at_start, mut was_interrupted) = (TestPhases::default(), 0, false);
    let (mut rows, mut ends) = (BTreeMap::<u64, SecondRow>::new(), Vec::new());
    for part in parts {
        total.merge(&part.total);
        measured.merge(&part.measured);
        phases.widen(&part.phases);
        live_at_start += part.live_at_start;
        was_interrupted |= part.was_interrupted;
        ends.extend(part.ends);
        for row in part.rows {
            // Clocks of hosts agree within half a row, so rows of one second get one key.
            let key = (row.from_ns + ROW_NS / 2) / ROW_NS;
            match rows.get_mut(&key) {
                None => {
                    rows.insert(key, row);
                }
                Some(sum) => {
                    sum.live += row.live;
                    sum.stats.merge(&row.stats);
                    sum.thread_cpu_max = sum.thread_cpu_max.max(row.thread_cpu_max);
                }
            }
        }
    }
    let streams = collect_streams(plan, ends);
    let rows = rows.into_values().collect();
    TestOutcome { phases, total, measured, rows, streams, live_at_start, was_interrupted }
}

impl TestPhases {
    /// Extends the phases: earliest starts, latest ends.
    fn widen(&mut self, other: &TestPhases) {
        let first = |a: u64, b: u64| if a == 0 { b } else { a.min(b) };
        self.began = first(self.began, other.began);
        self.start = first(self.start, other.start);
        self.measure_from = first(self.measure_from, other.measure_from);
        self.connected = self.connected.max(other.connected);
        self.publish_until = self.publish_until.max(other.publish_until);
        self.drained = self.drained.max(other.drained);
    }
}

struct TestDriver<'a> {
    plan: &'a LoadPlan,
    clock: RunClock,
    shared: Arc<SharedCounters>,
    threads: Vec<LoadThreadHandle>,
    seconds: Receiver<ThreadSecond>,
    stop: &'a AtomicBool,
    see: &'a mut dyn FnMut(&SecondRow, &LoadStats),
    /// Seconds that still lack the part of a thread.
    pending: BTreeMap<u64, (usize, SecondRow)>,
    rows: Vec<SecondRow>,
    total: LoadStats,
    measured: LoadStats,
    phases: TestPhases,
    was_interrupted: bool,
}

impl TestDriver<'_> {
    fn run(&mut self, gate: StartGate<'_>) -> u64 {
        let clients = self.shared.clients.load(SeqCst);
        if self.plan.start == StartMode::Together {
            self.gather_until(u64::MAX, |shared| shared.settled.load(SeqCst) >= clients);
        }
        let now = self.clock.now_ns();
        self.phases.connected = now;
        let live = self.shared.live.load(SeqCst).max(0) as u64;
        let start = match self.plan.start {
            _ if self.was_interrupted => None,
            StartMode::Each => Some(now),
            StartMode::Together => gate(live),
        };
        let Some(start) = start else {
            // A signal may be the reason that the gate did not open.
            self.was_interrupted |= self.stop.load(SeqCst);
            self.set_stage(LoadStage::Over);
            return live;
        };
        self.run_publish_phase(start);
        self.set_stage(LoadStage::Draining);
        let limit = self.clock.now_ns() + seconds_ns(self.plan.drain_s);
        // The threads need time to report their last turn.
        self.gather_until(self.clock.now_ns() + START_LEAD_NS, |_| false);
        let is_alone = self.plan.share.count == 1;
        self.gather_until(limit, |shared| {
            // With several agents, the deliveries of other agents are not visible here.
            is_alone && shared.undelivered() == 0 && shared.flights.load(SeqCst) <= 0
        });
        self.phases.drained = self.clock.now_ns();
        self.set_stage(LoadStage::Over);
        live
    }

    fn run_publish_phase(&mut self, start: u64) {
        let measure_from = start + seconds_ns(self.plan.warm_s);
        let until = self.plan.measure_s.map(|s| measure_from.saturating_add(seconds_ns(s)));
        let until = until.unwrap_or(u64::MAX);
        self.shared.start_ns.store(start, SeqCst);
        self.shared.measure_from_ns.store(measure_from, SeqCst);
        self.shared.publish_until_ns.store(until, SeqCst);
        self.set_stage(LoadStage::Publishing);
        (self.phases.start, self.phases.measure_from) = (start, measure_from);
        // A test with a planned end continues: messages due without a connection count as missed.
        let is_endless = until == u64::MAX;
        self.gather_until(until, |shared| {
            shared.has_sent_all() || is_endless && shared.has_no_clients_left()
        });
        let until = until.min(self.clock.now_ns());
        self.shared.publish_until_ns.store(until, SeqCst);
        self.phases.publish_until = until;
    }

    fn set_stage(&self, stage: LoadStage) {
        self.shared.set_stage(stage);
        for hand in &self.threads {
            // A thread without the wake-up notices the change at its next poll timeout.
            let _ = hand.waker.wake();
        }
    }

    /// Merges the threads' results until a time, a condition, a signal, or the end of all threads.
    /// A signal does not end the drain: messages in flight would count as lost.
    fn gather_until(&mut self, at_ns: u64, is_done: impl Fn(&SharedCounters) -> bool) {
        while !is_done(&self.shared) {
            if self.stop.load(SeqCst) && self.shared.stage() != LoadStage::Draining {
                self.was_interrupted = true;
                return;
            }
            let wait = self.clock.until(at_ns).min(POLL_INTERVAL);
            if wait.is_zero() {
                return;
            }
            match self.seconds.recv_timeout(wait) {
                Ok(second) => self.merge_second(second),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn merge_second(&mut self, second: ThreadSecond) {
        let is_measured = second.from_ns >= self.phases.measure_from
            && self.phases.measure_from > 0
            && second.until_ns <= self.shared.publish_until_ns.load(SeqCst);
        if is_measured {
            self.measured.merge(&second.stats);
        }
        let (parts, row) = self.pending.entry(second.from_ns).or_insert_with(|| {
            let row = SecondRow {
                from_ns: second.from_ns,
                until_ns: second.until_ns,
                live: 0,
                stats: LoadStats::new(),
                thread_cpu_max: 0.0,
            };
            (0, row)
        });
        *parts += 1;
        row.stats.merge(&second.stats);
        row.thread_cpu_max = row.thread_cpu_max.max(second.busy);
        while let Some(first) = self.pending.first_entry()
            && first.get().0 >= self.threads.len()
        {
            let (_, row) = first.remove();
            self.finish_row(row);
        }
    }

    fn finish_row(&mut self, mut row: SecondRow) {
        row.live = self.shared.live.load(SeqCst).max(0) as u64;
        self.total.merge(&row.stats);
        self.forget_lost_deliveries(&row);
        (self.see)(&row, &self.total);
        self.rows.push(row);
    }

    /// Writes off the deliveries in flight after a second without deliveries in a closed loop: the
    /// loop would otherwise wait for lost messages, and in the end stop.
    fn forget_lost_deliveries(&self, row: &SecondRow) {
        let is_silent =
            row.stats.count(LoadCounter::Recv) == 0 && row.until_ns - row.from_ns >= SECOND_NS;
        if is_silent && self.plan.is_closed_loop() && self.shared.stage() == LoadStage::Publishing {
            self.shared.received.fetch_add(self.shared.undelivered(), SeqCst);
        }
    }

    fn finish(mut self, live_at_start: u64) -> io::Result<ProcessOutcome> {
        let mut ends = Vec::new();
        for hand in std::mem::take(&mut self.threads) {
            let end = hand.thread.join().map_err(|_| io::Error::other("a load thread panicked"))?;
            ends.push(end?);
        }
        while let Ok(second) = self.seconds.try_recv() {
            self.merge_second(second);
        }
        for (_, row) in std::mem::take(&mut self.pending).into_values() {
            self.finish_row(row);
        }
        self.rows.sort_by_key(|row| row.from_ns);
        Ok(ProcessOutcome {
            phases: self.phases,
            total: self.total,
            measured: self.measured,
            rows: self.rows,
            ends,
            live_at_start,
            was_interrupted: self.was_interrupted,
        })
    }
}

/// Joins the messages of publishers with the deliveries to consumers, across all threads.
fn collect_streams(plan: &LoadPlan, ends: Vec<ThreadSummary>) -> Vec<MessageStream> {
    let (mut wanted, mut tracked) = (ConsumerIndex::default(), HashMap::<u32, TrackTotals>::new());
    let mut streams = Vec::new();
    for end in ends {
        for (filter, consumers) in &end.consumers {
            wanted.add(filter, *consumers);
        }
        for (stream, one) in end.tracked {
            *tracked.entry(stream).or_default() += one;
        }
        streams.extend(end.streams);
    }
    streams.sort_by_key(|end| end.stream);
    let mut streams: Vec<MessageStream> = streams
        .into_iter()
        .map(|end| {
            let number = (plan.seed as u32).wrapping_add(end.stream);
            let tracked = tracked.remove(&number).unwrap_or_default();
            let is_stamped = plan.publishing(end.stream).is_none_or(|one| one.body.is_stamped());
            MessageStream { consumers: wanted.consumers_of(&end.topic), is_stamped, tracked, end }
        })
        .collect();
    // Streams of publishers in other processes: only the received part is known.
    let mut others: Vec<(u32, TrackTotals)> = tracked.into_iter().collect();
    others.sort_by_key(|(number, _)| *number);
    streams.extend(others.into_iter().map(|(stream, tracked)| MessageStream {
        end: StreamSummary {
            stream,
            client: "elsewhere".into(),
            topic: String::new(),
            sent: tracked.received + tracked.holes,
            unanswered: 0,
        },
        consumers: 1,
        is_stamped: true,
        tracked,
    }));
    streams
}

const ROW_NS: u64 = SECOND_NS / 10;
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Time between the announcement of a start and the start, so that every thread knows in time.
const START_LEAD_NS: u64 = 100_000_000;
