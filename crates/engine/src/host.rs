//! Which thread runs which shard.
//!
//! One thread, the host, runs all shards as long as it keeps up: it sleeps on all their pollers at
//! once, and a message from one shard to another wakes nobody. A host that is busy most of the
//! time gives its busiest shard to a thread of its own, a guest, and so on until every shard has
//! one. A guest whose shard falls quiet gives it back and ends. A shard has one owner at any time;
//! it changes hands by being moved.

use crate::body::Body;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicU32, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long one look at the load takes.
const WINDOW: Duration = Duration::from_millis(20);
/// Busy for more than this much of a window, the host gives a shard away.
const BUSY_PERCENT_MAX: u32 = 70;
/// A guest gives its shard back when both together would be busy for less than this, ...
const TOGETHER_PERCENT_MAX: u32 = 35;
/// ... for this many windows in a row.
const QUIET_WINDOWS: u32 = 50;
/// Retained trees are walked by recursion, which `topic_levels_max` bounds.
pub(crate) const STACK_BYTES: usize = 1024 * 1024;
const EVENTS: usize = 1024;

/// How much of its time a thread computes, window by window. Time of the processor and not of the
/// clock: on a machine that is busy with other things a second thread would only add to it.
struct Load {
    since: Instant,
    computed: Duration,
}

impl Load {
    fn new(now: Instant) -> Load {
        Load { since: now, computed: computed() }
    }

    /// The last window's percentage, once it is over.
    fn percent(&mut self, now: Instant) -> Option<u32> {
        let window = now - self.since;
        if window < WINDOW {
            return None;
        }
        let next = Load::new(now);
        let busy = next.computed.saturating_sub(self.computed);
        *self = next;
        Some((busy.as_micros() * 100 / window.as_micros()) as u32)
    }
}

/// Processor time of this thread.
fn computed() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

pub(crate) struct Host {
    /// The shards that run here, each with its time in this window.
    bodies: Vec<(Body, Duration)>,
    /// Readable when one of the bodies' pollers is.
    poll: Poll,
    /// Shards that come back from guests.
    back: Receiver<Body>,
    to_back: Sender<Body>,
    guests: Vec<JoinHandle<()>>,
    /// The host's last percentage, for guests to see.
    percent: Arc<AtomicU32>,
    /// Shards that have not ended, wherever they run.
    alive: Arc<AtomicUsize>,
}

impl Host {
    pub(crate) fn new(bodies: Vec<Body>) -> io::Result<Host> {
        let (to_back, back) = channel();
        let shards = bodies.len();
        let mut host = Host {
            bodies: Vec::new(),
            poll: Poll::new()?,
            back,
            to_back,
            guests: Vec::new(),
            percent: Arc::new(AtomicU32::new(0)),
            alive: Arc::new(AtomicUsize::new(shards)),
        };
        for body in bodies {
            host.take_in(body)?;
        }
        Ok(host)
    }

    fn take_in(&mut self, body: Body) -> io::Result<()> {
        let token = Token(usize::from(body.id.0));
        let poller = body.poll.as_raw_fd();
        self.poll.registry().register(&mut SourceFd(&poller), token, Interest::READABLE)?;
        self.bodies.push((body, Duration::ZERO));
        Ok(())
    }

    pub(crate) fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(EVENTS);
        let mut ready = Events::with_capacity(broker::limits::SHARDS_MAX);
        let mut load = Load::new(Instant::now());
        while self.alive.load(SeqCst) > 0 {
            while let Ok(body) = self.back.try_recv() {
                self.take_in(body)?;
            }
            let began = match self.bodies.len() {
                // Shutting down: the last shards are with guests.
                0 => self.wait_for_guests()?,
                1 => self.turn_alone(&mut events)?,
                _ => self.turn_all(&mut ready, &mut events)?,
            };
            if let Some(percent) = load.percent(began) {
                self.percent.store(percent, Relaxed);
                if percent > BUSY_PERCENT_MAX && self.bodies.len() > 1 {
                    self.give_away()?;
                }
                self.bodies.iter_mut().for_each(|(_, busy)| *busy = Duration::ZERO);
            }
        }
        for guest in self.guests {
            guest.join().map_err(|_| io::Error::other("a shard's thread panicked"))?;
        }
        Ok(())
    }

    fn wait_for_guests(&mut self) -> io::Result<Instant> {
        if let Ok(body) = self.back.recv_timeout(WINDOW) {
            self.take_in(body)?;
        }
        Ok(Instant::now())
    }

    /// One shard: its own poller is all there is to wait for.
    fn turn_alone(&mut self, events: &mut Events) -> io::Result<Instant> {
        let (body, _) = &mut self.bodies[0];
        let timeout = body.doze();
        body.wait(events, timeout)?;
        let turn = body.turn(events);
        if turn.ended {
            self.bodies.clear();
            self.alive.fetch_sub(1, SeqCst);
        }
        Ok(turn.began)
    }

    /// Sleeps until any shard has something to do, and gives each that has its turn.
    fn turn_all(&mut self, ready: &mut Events, events: &mut Events) -> io::Result<Instant> {
        // Each says that it sleeps before its rings are looked into a last time.
        let timeouts: Vec<_> = self.bodies.iter_mut().map(|(body, _)| body.doze()).collect();
        let timeout = timeouts.into_iter().flatten().min();
        match self.poll.poll(ready, timeout) {
            Err(fault) if fault.kind() != io::ErrorKind::Interrupted => return Err(fault),
            _ => {}
        }
        self.bodies.iter().for_each(|(body, _)| body.wake_up());
        let began = Instant::now();
        let is_ready =
            |body: &Body| ready.iter().any(|event| event.token().0 == usize::from(body.id.0));
        let mut ended = Vec::new();
        let mut last = began;
        for (at, (body, busy)) in self.bodies.iter_mut().enumerate() {
            let ready = is_ready(body);
            if !ready && !body.has_work() {
                continue;
            }
            // More events than fit are told of by the poller only once.
            loop {
                events.clear();
                if ready {
                    body.wait(events, Some(Duration::ZERO))?;
                }
                if body.turn(events).ended {
                    ended.push(at);
                    break;
                }
                if events.iter().count() < EVENTS {
                    break;
                }
            }
            let now = Instant::now();
            *busy += now - last;
            last = now;
        }
        events.clear();
        for &at in ended.iter().rev() {
            let (body, _) = self.bodies.remove(at);
            self.let_go(&body)?;
            self.alive.fetch_sub(1, SeqCst);
        }
        // What they have for each other needs nobody's poller.
        for (body, _) in self.bodies.iter_mut().filter(|(body, _)| body.takes_parcels()) {
            body.turn(events);
        }
        Ok(began)
    }

    fn let_go(&self, body: &Body) -> io::Result<()> {
        let poller = body.poll.as_raw_fd();
        self.poll.registry().deregister(&mut SourceFd(&poller))
    }

    /// The busiest shard gets a thread of its own.
    fn give_away(&mut self) -> io::Result<()> {
        let busiest = self.bodies.iter().enumerate().max_by_key(|(_, (_, busy))| *busy);
        let Some((at, _)) = busiest else { return Ok(()) };
        let (body, _) = self.bodies.remove(at);
        self.let_go(&body)?;
        self.guests.retain(|guest| !guest.is_finished());
        let (back, percent) = (self.to_back.clone(), self.percent.clone());
        let alive = self.alive.clone();
        let guest = thread::Builder::new()
            .name(format!("shard-{}", body.id.0))
            .stack_size(STACK_BYTES)
            .spawn(move || watch(guest(body, &back, &percent, &alive)))?;
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

/// Runs one shard until it ends or has been quiet for long.
fn guest(
    mut body: Body,
    back: &Sender<Body>,
    host_percent: &AtomicU32,
    alive: &AtomicUsize,
) -> io::Result<()> {
    let mut events = Events::with_capacity(EVENTS);
    let mut load = Load::new(Instant::now());
    let mut quiet = 0;
    loop {
        let timeout = body.doze();
        body.wait(&mut events, timeout)?;
        let turn = body.turn(&events);
        if turn.ended {
            alive.fetch_sub(1, SeqCst);
            return Ok(());
        }
        let Some(percent) = load.percent(turn.began) else { continue };
        let together = percent + host_percent.load(Relaxed);
        quiet = if together < TOGETHER_PERCENT_MAX { quiet + 1 } else { 0 };
        if quiet < QUIET_WINDOWS || body.is_stopping() {
            continue;
        }
        let bells = body.rings.bells.clone();
        if back.send(body).is_ok() {
            // Whatever shard the host runs, one of these wakes it.
            bells.iter().for_each(|bell| drop(bell.waker.wake()));
        }
        return Ok(());
    }
}
