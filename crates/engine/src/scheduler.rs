//! Decides which thread runs which shard.
//!
//! The scheduler's thread runs all shards as long as it keeps up: their sockets are registered with
//! its poller, and a message from one shard to another wakes no thread. A scheduler that is busy
//! for most of a window gives its busiest shard to a worker thread, until every shard has a thread
//! of its own. A worker thread gives its shard back and ends when the scheduler could run both
//! shards; the scheduler's work in earlier windows decides that, since threads that wake each other
//! compute more and may deliver less. A shard has one owner at any time, and moving the
//! [`ShardDriver`] changes its owner.

use crate::clock::SystemClock;
use crate::pause_detector::PauseDetector;
use crate::poll_token::{WAKER, split_token};
use crate::shard_driver::ShardDriver;
use mio::{Events, Poll, Registry};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Window over which the scheduler measures its load before moving a shard to a worker thread. A
/// single burst must not decide, so the window is long.
const LOAD_WINDOW: Duration = Duration::from_millis(200);
/// Load in percent of [`LOAD_WINDOW`] above which the busiest shard moves to a worker thread.
const BUSY_PERCENT_MAX: u32 = 80;
/// Interval at which the scheduler publishes its rate of work to worker threads.
const RATE_INTERVAL: Duration = Duration::from_millis(50);
/// Window over which a worker thread compares its work with the scheduler's before giving its shard
/// back.
const WORKER_WINDOW: Duration = Duration::from_millis(100);
/// Load of the scheduler in percent, with the shard of a worker added, below which the shard
/// returns to the scheduler.
const FITS_PERCENT_MAX: u32 = 95;
/// Load of the scheduler in percent, with a shard that returns from a worker included. Above this
/// load no shard moves to a worker for [`WORKER_RETRY_DELAY`].
const CALM_PERCENT_MAX: u32 = 40;
const WORKER_RETRY_DELAY: Duration = Duration::from_secs(10);
/// Stack of a thread with shards. Retained trees are walked by recursion, bounded by
/// `topic_levels_max`.
pub(crate) const STACK_BYTES: usize = 1024 * 1024;
const EVENTS_MAX: usize = 512;
/// Length of a planned sleep from which a broker without connections runs `drop_clean_pages`, and
/// the shortest interval between two runs.
const IDLE_BEFORE_DROP: Duration = Duration::from_millis(500);
/// Passes over the rings in one turn: a message to another shard arrives in the same turn, and so
/// does the answer.
const RING_HOPS_MAX: usize = 2;

/// Work and load of a thread in one window, measured by [`LoadMeter`].
#[derive(Clone, Copy, Debug)]
struct LoadSample {
    /// Processor time of the thread as a percentage of the window. Wall time would count other
    /// processes: on a busy machine a second thread would only add to the load.
    percent: u32,
    /// Units of [`ShardDriver::take_work`] per second.
    work: u64,
}

impl LoadSample {
    /// Returns the percentage of its time which the thread would need for `work` of the same kind.
    fn percent_for(self, work: u64) -> u32 {
        (u64::from(self.percent) * work / self.work.max(1)).min(u64::from(u32::MAX)) as u32
    }
}

struct LoadMeter {
    since: Instant,
    computed: Duration,
    work: u64,
}

impl LoadMeter {
    fn new(now: Instant, work: u64) -> LoadMeter {
        LoadMeter { since: now, computed: thread_cpu_time(), work }
    }

    /// Returns the load since the last sample, or `None` if less than `window` has passed. `work`
    /// is the total amount so far.
    fn sample(&mut self, now: Instant, window: Duration, work: u64) -> Option<LoadSample> {
        let passed = now - self.since;
        if passed < window {
            return None;
        }
        let next = LoadMeter::new(now, work);
        let computed = next.computed.saturating_sub(self.computed);
        let percent = (computed.as_micros() * 100 / passed.as_micros()) as u32;
        let work = (work - self.work) * 1_000_000 / passed.as_micros() as u64;
        *self = next;
        Some(LoadSample { percent, work })
    }
}

/// Processor time of the calling thread.
fn thread_cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// A shard on its way from a worker thread to the scheduler.
struct ReturnedShard {
    driver: ShardDriver,
    /// Expected load of the scheduler with this shard added, in percent.
    percent: u32,
}

pub(crate) struct Scheduler {
    /// The shards of this thread, each with its work in the current load window.
    drivers: Vec<(ShardDriver, u64)>,
    /// The poller where the sockets of [`Scheduler::drivers`] are registered.
    poll: Poll,
    waker: Arc<mio::Waker>,
    /// Shards returned by worker threads.
    returned: Receiver<ReturnedShard>,
    return_sender: Sender<ReturnedShard>,
    /// No shard moves to a worker thread before this time.
    no_worker_until: Instant,
    /// Time before which `drop_clean_pages` is not called.
    keeps_code_until: Instant,
    workers: Vec<JoinHandle<()>>,
    /// Total amount of work done by this thread.
    work: u64,
    /// Work per second in the last [`RATE_INTERVAL`], read by worker threads.
    work_rate: Arc<AtomicU64>,
    /// Number of shards which have not ended, on any thread.
    alive: Arc<AtomicUsize>,
    pauses: PauseDetector,
}

impl Scheduler {
    /// Creates a scheduler for `shards` shards, added later by [`Scheduler::add_shard`].
    pub(crate) fn new(shards: usize, clock: SystemClock) -> io::Result<Scheduler> {
        let (to_back, back) = channel();
        let poll = Poll::new()?;
        let waker = mio::Waker::new(poll.registry(), WAKER)?.into();
        Ok(Scheduler {
            drivers: Vec::new(),
            poll,
            waker,
            returned: back,
            return_sender: to_back,
            no_worker_until: Instant::now(),
            keeps_code_until: Instant::now(),
            workers: Vec::new(),
            work: 0,
            work_rate: Arc::default(),
            alive: Arc::new(AtomicUsize::new(shards)),
            pauses: PauseDetector::new(clock),
        })
    }

    pub(crate) fn registry(&self) -> io::Result<Registry> {
        self.poll.registry().try_clone()
    }

    /// Waker of the poller of [`Scheduler::registry`], for the wakers of all shards.
    pub(crate) fn waker(&self) -> Arc<mio::Waker> {
        self.waker.clone()
    }

    /// Adds a shard whose sockets are registered with the poller of [`Scheduler::registry`].
    pub(crate) fn add_shard(&mut self, body: ShardDriver) {
        body.waker().set_on_scheduler(true);
        self.drivers.push((body, 0));
    }

    pub(crate) fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(EVENTS_MAX);
        self.pauses = PauseDetector::new(self.pauses.clock());
        let (mut load, mut told) =
            (LoadMeter::new(Instant::now(), 0), LoadMeter::new(Instant::now(), 0));
        while self.alive.load(SeqCst) > 0 {
            let mut came_back = false;
            while let Ok(ReturnedShard { driver: mut body, percent }) = self.returned.try_recv() {
                body.move_to_scheduler_poller(self.registry()?)?;
                self.add_shard(body);
                came_back = true;
                if percent > CALM_PERCENT_MAX {
                    self.no_worker_until = Instant::now() + WORKER_RETRY_DELAY;
                }
            }
            let now = self.wait(&mut events, came_back)?;
            self.run_turn(now, &events, came_back);
            for (body, work) in &mut self.drivers {
                let done = body.take_work();
                *work += done;
                self.work += done;
            }
            if let Some(did) = told.sample(now, RATE_INTERVAL, self.work) {
                self.work_rate.store(did.work, Relaxed);
            }
            if let Some(did) = load.sample(now, LOAD_WINDOW, self.work) {
                let is_busy = did.percent > BUSY_PERCENT_MAX && now >= self.no_worker_until;
                // The thread that takes a shard knows nothing of a pause, and its timers would fire
                // before all sockets are read.
                if is_busy && self.drivers.len() > 1 && !self.pauses.is_catching_up() {
                    self.move_busiest_to_worker(did)?;
                }
                self.drivers.iter_mut().for_each(|(_, work)| *work = 0);
            }
        }
        for guest in self.workers {
            guest.join().map_err(|_| io::Error::other("a shard's thread panicked"))?;
        }
        Ok(())
    }

    /// Sleeps until any shard has something to do, and returns the time of the wake-up.
    fn wait(&mut self, events: &mut Events, came_back: bool) -> io::Result<Instant> {
        let now = Instant::now();
        // While shutting down, the last shards may be with worker threads, and end there.
        let ends = self.drivers.is_empty().then_some(RATE_INTERVAL);
        // Each shard marks itself as asleep before a last look into its rings.
        let timeouts = self.drivers.iter_mut().map(|(body, _)| body.prepare_sleep(now));
        let timeout = timeouts.fold(ends, |soonest, next| soonest.into_iter().chain(next).min());
        let timeout = if came_back { Some(Duration::ZERO) } else { timeout };
        if timeout.is_none_or(|long| long >= IDLE_BEFORE_DROP) && now >= self.keeps_code_until {
            self.drop_idle_code(now);
        }
        let polled = self.poll.poll(events, self.pauses.plan_wait(now, timeout));
        self.drivers.iter().for_each(|(body, _)| body.mark_awake());
        self.pauses.record_wake(polled)
    }

    /// Unmaps code not needed by an idle broker. Publishing `$SYS` every ten seconds maps half of
    /// an idle broker's memory again.
    fn drop_idle_code(&mut self, now: Instant) {
        if self.drivers.iter().all(|(body, _)| body.has_no_connections()) {
            self.keeps_code_until = now + IDLE_BEFORE_DROP;
            crate::code_pages::drop_clean_pages();
        }
    }

    /// Runs one turn of the shards with input: first all take input, then exchange ring items, then
    /// act. So each connection gets at most one write per turn.
    fn run_turn(&mut self, now: Instant, events: &Events, came_back: bool) {
        let mut ready = 0_u64;
        for event in events {
            // A wake-up by the waker may be for any shard.
            let all = event.token() == WAKER;
            ready |= if all { u64::MAX } else { 1 << split_token(event.token()).0 };
        }
        if came_back {
            ready = u64::MAX;
        }
        for (body, _) in &mut self.drivers {
            let bit = 1 << body.id().0;
            if ready & bit != 0 || body.has_due_work(now) {
                ready |= bit;
                body.collect_input(now, events);
                body.push_lanes();
            }
        }
        let mut hops = 0;
        while hops < RING_HOPS_MAX {
            hops += 1;
            for (body, _) in &mut self.drivers {
                if body.has_ring_input() {
                    ready |= 1 << body.id().0;
                    body.take_ring_input(now);
                }
                if body.has_publishers() {
                    hops = 0;
                    body.read_publishers();
                }
                body.push_lanes();
            }
        }
        let has_listed = self.drivers.iter().any(|(body, _)| body.has_listed_sockets());
        let (timers_fire, pause) = self.pauses.check_timers(events, has_listed);
        for (body, _) in &mut self.drivers {
            if let Some(pause) = pause {
                body.end_pause(pause);
                ready |= 1 << body.id().0;
            }
            if ready >> body.id().0 & 1 == 1 {
                if timers_fire {
                    body.tick();
                }
                body.perform_outbox();
            }
        }
        let before = self.drivers.len();
        self.drivers.retain(|(body, _)| !body.has_ended());
        self.alive.fetch_sub(before - self.drivers.len(), SeqCst);
    }

    /// Moves the shard with the most work in this window to a new worker thread.
    fn move_busiest_to_worker(&mut self, did: LoadSample) -> io::Result<()> {
        let busiest = self.drivers.iter().enumerate().max_by_key(|(_, (_, work))| *work);
        let Some((at, _)) = busiest else { return Ok(()) };
        let (body, _) = self.drivers.remove(at);
        body.waker().set_on_scheduler(false);
        self.workers.retain(|guest| !guest.is_finished());
        let guest = WorkerThread {
            driver: body,
            scheduler_load: did,
            scheduler_work_rate: self.work_rate.clone(),
            return_sender: self.return_sender.clone(),
            alive: self.alive.clone(),
        };
        let guest = thread::Builder::new()
            .name(format!("shard-{}", guest.driver.id().0))
            .stack_size(STACK_BYTES)
            .spawn(move || panic_on_failure(guest.run()))?;
        self.workers.push(guest);
        Ok(())
    }
}

/// Ends the process by a panic when a thread has failed: a shard without its poller serves no
/// client.
pub(crate) fn panic_on_failure(ended: io::Result<()>) {
    if let Err(fault) = ended {
        panic!("a shard cannot go on: {fault}");
    }
}

/// A thread which runs one shard.
struct WorkerThread {
    driver: ShardDriver,
    /// Load of the scheduler in the window before the shard left.
    scheduler_load: LoadSample,
    scheduler_work_rate: Arc<AtomicU64>,
    return_sender: Sender<ReturnedShard>,
    alive: Arc<AtomicUsize>,
}

impl WorkerThread {
    /// Runs the shard until the shard ends or fits on the scheduler's thread again.
    fn run(mut self) -> io::Result<()> {
        self.driver.move_to_worker_poller()?;
        let mut events = Events::with_capacity(EVENTS_MAX);
        let mut work = 0;
        let mut load = LoadMeter::new(Instant::now(), work);
        let mut pauses = PauseDetector::new(self.driver.clock());
        loop {
            let body = &mut self.driver;
            let now = body.wait_on_worker(&mut events, &mut pauses)?;
            body.collect_input(now, &events);
            while body.has_publishers() {
                body.read_publishers();
            }
            let (timers_fire, pause) = pauses.check_timers(&events, body.has_listed_sockets());
            if let Some(pause) = pause {
                body.end_pause(pause);
            }
            if timers_fire {
                body.tick();
            }
            body.perform_outbox();
            if body.has_ended() {
                self.alive.fetch_sub(1, SeqCst);
                return Ok(());
            }
            work += body.take_work();
            let Some(own) = load.sample(now, WORKER_WINDOW, work) else { continue };
            if body.is_stopping() || body.has_many_sockets() || pauses.is_catching_up() {
                continue;
            }
            // Another worker thread that checks before the scheduler's next window counts this
            // shard's work too.
            let (did, rate) = (self.scheduler_load, &self.scheduler_work_rate);
            let fits = |work: u64| (did.percent_for(work) < FITS_PERCENT_MAX).then_some(work);
            let both = rate.fetch_update(Relaxed, Relaxed, |host| fits(host + own.work));
            let Ok(host) = both else { continue };
            let percent = did.percent_for(host + own.work);
            let (id, wakers) = (usize::from(body.id().0), body.wakers());
            if self.return_sender.send(ReturnedShard { driver: self.driver, percent }).is_ok() {
                wakers[id].wake_always();
            }
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_did_more_in_less_time_needs_less_for_the_rest() {
        let did = LoadSample { percent: 90, work: 9_000 };
        assert_eq!(did.percent_for(5_000), 50);
        assert_eq!(did.percent_for(18_000), 180);
        assert_eq!(did.percent_for(0), 0);
        assert_eq!(LoadSample { percent: 90, work: 0 }.percent_for(u64::from(u32::MAX)), u32::MAX);
    }

    #[test]
    fn a_window_is_looked_at_once_it_is_over() {
        let window = Duration::from_millis(50);
        let start = Instant::now();
        let mut load = LoadMeter::new(start, 100);
        assert!(load.sample(start + window / 2, window, 150).is_none());
        let did = load.sample(start + 2 * window, window, 300).expect("a window has passed");
        assert_eq!(did.work, 2_000, "200 in a tenth of a second");
        assert!(load.sample(start + 2 * window, window, 300).is_none());
    }
}
