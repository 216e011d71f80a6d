//! Which thread runs which shard.
//!
//! One thread, the host, runs all shards as long as it keeps up: their sockets are registered with
//! its poller, and a message from one shard to another wakes nobody. A host that is busy most of
//! the time gives its busiest shard to a thread of its own, a guest, and so on until every shard
//! has one. A guest gives its shard back and ends when the host could do what both do, judged by
//! what the host did before: threads that wake each other compute more and may deliver less. A
//! shard has one owner at any time; it changes hands by being moved.

use crate::body::{Body, WAKER, named};
use crate::clock::Clock;
use crate::pause::PauseWatch;
use mio::{Events, Poll, Registry};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicU64, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long the host looks at its load before it gives a shard away. What it did in this time is
/// what guests have to surpass, so it is long enough to be no matter of chance.
const WINDOW: Duration = Duration::from_millis(200);
/// Busy for more than this much of a window, it does.
const BUSY_PERCENT_MAX: u32 = 80;
/// How often the host tells its guests what it does.
const TOLD: Duration = Duration::from_millis(50);
/// How long a guest looks at what it and the host do before it gives its shard back.
const TRIAL: Duration = Duration::from_millis(100);
/// The host must be able to do it in so much of its time ...
const FITS_PERCENT_MAX: u32 = 95;
/// ... and if it takes more than this, it tries no guest again for a while.
const CALM_PERCENT_MAX: u32 = 40;
const PATIENCE: Duration = Duration::from_secs(10);
/// Retained trees are walked by recursion, which `topic_levels_max` bounds.
pub(crate) const STACK_BYTES: usize = 1024 * 1024;
const EVENTS: usize = 512;
/// When nobody is there and nothing is to be done for so long, code that was needed may go.
const STILL: Duration = Duration::from_millis(500);
/// What one shard says to another arrives in the same turn, and the other's answer.
const HOPS: usize = 2;

/// What a thread did in a window of time.
#[derive(Clone, Copy, Debug)]
struct Did {
    /// How much of the window it computed. Time of the processor and not of the clock: on a machine
    /// that is busy with other things a second thread would only add to it.
    percent: u32,
    /// `Body::work` a second.
    work: u64,
}

impl Did {
    /// How much of its time a thread that did this would need for other work of the kind.
    fn percent_for(self, work: u64) -> u32 {
        (u64::from(self.percent) * work / self.work.max(1)).min(u64::from(u32::MAX)) as u32
    }
}

struct Load {
    since: Instant,
    computed: Duration,
    work: u64,
}

impl Load {
    fn new(now: Instant, work: u64) -> Load {
        Load { since: now, computed: computed(), work }
    }

    /// What was done since the last time, once a window is over. `work` is all that was ever done.
    fn look(&mut self, now: Instant, window: Duration, work: u64) -> Option<Did> {
        let passed = now - self.since;
        if passed < window {
            return None;
        }
        let next = Load::new(now, work);
        let computed = next.computed.saturating_sub(self.computed);
        let percent = (computed.as_micros() * 100 / passed.as_micros()) as u32;
        let work = (work - self.work) * 1_000_000 / passed.as_micros() as u64;
        *self = next;
        Some(Did { percent, work })
    }
}

/// Processor time of this thread.
fn computed() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// A shard that comes back.
struct Back {
    body: Body,
    /// How busy it will keep the host, with what is there already.
    percent: u32,
}

pub(crate) struct Host {
    /// The shards that run here, each with its work in this window.
    bodies: Vec<(Body, u64)>,
    /// Where their sockets are registered.
    poll: Poll,
    pub(crate) waker: Arc<mio::Waker>,
    /// Shards that come back from guests.
    back: Receiver<Back>,
    to_back: Sender<Back>,
    /// Gives no shard away before.
    patient_until: Instant,
    /// Lets no code go before.
    clings_until: Instant,
    guests: Vec<JoinHandle<()>>,
    /// All that was done here.
    work: u64,
    /// The same a second, in the last window, for guests to see.
    work_rate: Arc<AtomicU64>,
    /// Shards that have not ended, wherever they run.
    alive: Arc<AtomicUsize>,
    pauses: PauseWatch,
}

impl Host {
    /// For so many shards, which `give` hands to it.
    pub(crate) fn new(shards: usize, clock: Clock) -> io::Result<Host> {
        let (to_back, back) = channel();
        let poll = Poll::new()?;
        let waker = mio::Waker::new(poll.registry(), WAKER)?.into();
        Ok(Host {
            bodies: Vec::new(),
            poll,
            waker,
            back,
            to_back,
            patient_until: Instant::now(),
            clings_until: Instant::now(),
            guests: Vec::new(),
            work: 0,
            work_rate: Arc::default(),
            alive: Arc::new(AtomicUsize::new(shards)),
            pauses: PauseWatch::new(clock),
        })
    }

    pub(crate) fn registry(&self) -> io::Result<Registry> {
        self.poll.registry().try_clone()
    }

    /// One more to run, whose sockets are registered here.
    pub(crate) fn give(&mut self, body: Body) {
        body.bell().say_hosted(true);
        self.bodies.push((body, 0));
    }

    pub(crate) fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(EVENTS);
        self.pauses = PauseWatch::new(self.pauses.clock());
        let (mut load, mut told) = (Load::new(Instant::now(), 0), Load::new(Instant::now(), 0));
        while self.alive.load(SeqCst) > 0 {
            let mut came_back = false;
            while let Ok(Back { mut body, percent }) = self.back.try_recv() {
                body.move_in(self.registry()?)?;
                self.give(body);
                came_back = true;
                if percent > CALM_PERCENT_MAX {
                    self.patient_until = Instant::now() + PATIENCE;
                }
            }
            let now = self.wait(&mut events, came_back)?;
            self.turn(now, &events, came_back);
            for (body, work) in &mut self.bodies {
                let done = body.take_work();
                *work += done;
                self.work += done;
            }
            if let Some(did) = told.look(now, TOLD, self.work) {
                self.work_rate.store(did.work, Relaxed);
            }
            if let Some(did) = load.look(now, WINDOW, self.work) {
                let is_busy = did.percent > BUSY_PERCENT_MAX && now >= self.patient_until;
                if is_busy && self.bodies.len() > 1 {
                    self.give_away(did)?;
                }
                self.bodies.iter_mut().for_each(|(_, work)| *work = 0);
            }
        }
        for guest in self.guests {
            guest.join().map_err(|_| io::Error::other("a shard's thread panicked"))?;
        }
        Ok(())
    }

    /// Sleeps until any shard has something to do, and says when that was.
    fn wait(&mut self, events: &mut Events, came_back: bool) -> io::Result<Instant> {
        let now = Instant::now();
        // Shutting down, the last shards may be with guests, and end there.
        let ends = self.bodies.is_empty().then_some(TOLD);
        // Each says that it sleeps before its rings are looked into a last time.
        let timeouts = self.bodies.iter_mut().map(|(body, _)| body.doze(now));
        let timeout = timeouts.fold(ends, |soonest, next| soonest.into_iter().chain(next).min());
        let timeout = if came_back { Some(Duration::ZERO) } else { timeout };
        if timeout.is_none_or(|long| long >= STILL) && now >= self.clings_until {
            self.let_go(now);
        }
        let polled = self.poll.poll(events, self.pauses.plan(now, timeout));
        self.bodies.iter().for_each(|(body, _)| body.wake_up());
        self.pauses.wake(polled)
    }

    /// What `$SYS` alone draws in, every ten seconds, is half of what an idle broker takes.
    fn let_go(&mut self, now: Instant) {
        if self.bodies.iter().all(|(body, _)| body.is_alone()) {
            self.clings_until = now + STILL;
            crate::code::let_go();
        }
    }

    /// Gives each shard that has something to do its turn: first all take in, then they hand each
    /// other what they have for each other, then all act. So nobody is written to twice.
    fn turn(&mut self, now: Instant, events: &Events, came_back: bool) {
        let mut ready = 0_u64;
        for event in events {
            // Whoever rings for one shard may mean any.
            let all = event.token() == WAKER;
            ready |= if all { u64::MAX } else { 1 << named(event.token()).0 };
        }
        if came_back {
            ready = u64::MAX;
        }
        for (body, _) in &mut self.bodies {
            let bit = 1 << body.id.0;
            if ready & bit != 0 || body.has_work(now) {
                ready |= bit;
                body.take_in(now, events);
                body.push_lanes();
            }
        }
        let mut hops = 0;
        while hops < HOPS {
            hops += 1;
            for (body, _) in &mut self.bodies {
                if body.rings.has_input() {
                    ready |= 1 << body.id.0;
                    body.take_what_others_say(now);
                }
                if body.has_publishers() {
                    hops = 0;
                    body.read_publishers();
                }
                body.push_lanes();
            }
        }
        let has_listed = self.bodies.iter().any(|(body, _)| body.has_listed());
        let (timers_fire, pause) = self.pauses.look(events, has_listed);
        for (body, _) in &mut self.bodies {
            if let Some(pause) = pause {
                body.end_pause(pause);
                ready |= 1 << body.id.0;
            }
            if ready >> body.id.0 & 1 == 1 {
                if timers_fire {
                    body.tick();
                }
                body.act();
            }
        }
        let before = self.bodies.len();
        self.bodies.retain(|(body, _)| !body.has_ended());
        self.alive.fetch_sub(before - self.bodies.len(), SeqCst);
    }

    /// The busiest shard gets a thread of its own.
    fn give_away(&mut self, did: Did) -> io::Result<()> {
        let busiest = self.bodies.iter().enumerate().max_by_key(|(_, (_, work))| *work);
        let Some((at, _)) = busiest else { return Ok(()) };
        let (body, _) = self.bodies.remove(at);
        body.bell().say_hosted(false);
        self.guests.retain(|guest| !guest.is_finished());
        let guest = Guest {
            body,
            did,
            host_rate: self.work_rate.clone(),
            back: self.to_back.clone(),
            alive: self.alive.clone(),
        };
        let guest = thread::Builder::new()
            .name(format!("shard-{}", guest.body.id.0))
            .stack_size(STACK_BYTES)
            .spawn(move || watch(guest.run()))?;
        self.guests.push(guest);
        Ok(())
    }
}

/// Without its poller a shard serves nobody: the process ends, loudly, instead of standing there.
pub(crate) fn watch(ended: io::Result<()>) {
    if let Err(fault) = ended {
        panic!("a shard cannot go on: {fault}");
    }
}

/// What a thread that runs one shard knows.
struct Guest {
    body: Body,
    /// What the host did when it still had the shard.
    did: Did,
    host_rate: Arc<AtomicU64>,
    back: Sender<Back>,
    alive: Arc<AtomicUsize>,
}

impl Guest {
    /// Until the shard ends, or the host can run it as well.
    fn run(mut self) -> io::Result<()> {
        self.body.move_out()?;
        let mut events = Events::with_capacity(EVENTS);
        let mut work = 0;
        let mut load = Load::new(Instant::now(), work);
        let mut pauses = PauseWatch::new(self.body.clock.clone());
        loop {
            let body = &mut self.body;
            let now = body.wait(&mut events, &mut pauses)?;
            body.take_in(now, &events);
            while body.has_publishers() {
                body.read_publishers();
            }
            let (timers_fire, pause) = pauses.look(&events, body.has_listed());
            if let Some(pause) = pause {
                body.end_pause(pause);
            }
            if timers_fire {
                body.tick();
            }
            body.act();
            if body.has_ended() {
                self.alive.fetch_sub(1, SeqCst);
                return Ok(());
            }
            work += body.take_work();
            let Some(own) = load.look(now, TRIAL, work) else { continue };
            if body.is_stopping() || body.is_heavy() {
                continue;
            }
            // Another guest that looks before the host's next window sees what this one adds.
            let (did, rate) = (self.did, &self.host_rate);
            let fits = |work: u64| (did.percent_for(work) < FITS_PERCENT_MAX).then_some(work);
            let both = rate.fetch_update(Relaxed, Relaxed, |host| fits(host + own.work));
            let Ok(host) = both else { continue };
            let percent = did.percent_for(host + own.work);
            let (id, bells) = (usize::from(body.id.0), body.rings.bells.clone());
            if self.back.send(Back { body: self.body, percent }).is_ok() {
                bells[id].ring_out();
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
        let did = Did { percent: 90, work: 9_000 };
        assert_eq!(did.percent_for(5_000), 50);
        assert_eq!(did.percent_for(18_000), 180);
        assert_eq!(did.percent_for(0), 0);
        assert_eq!(Did { percent: 90, work: 0 }.percent_for(u64::from(u32::MAX)), u32::MAX);
    }

    #[test]
    fn a_window_is_looked_at_once_it_is_over() {
        let window = Duration::from_millis(50);
        let start = Instant::now();
        let mut load = Load::new(start, 100);
        assert!(load.look(start + window / 2, window, 150).is_none());
        let did = load.look(start + 2 * window, window, 300).expect("a window has passed");
        assert_eq!(did.work, 2_000, "200 in a tenth of a second");
        assert!(load.look(start + 2 * window, window, 300).is_none());
    }
}
