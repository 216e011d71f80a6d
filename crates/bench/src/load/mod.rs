//! The load: threads that each own some of the clients, and the state shared between threads.
//!
//! Invariant: a client belongs to one thread for its whole life, and so do all members of a shared
//! subscription; threads share only the numbers in [`SharedCounters`].

mod client;
mod distribution;
mod incoming;
mod outgoing;
mod payload;
mod quic_io;
mod schedule;
mod thread;
mod transport;

pub(crate) use thread::{LoadThread, StreamSummary, ThreadSummary};

use crate::clock::RunClock;
use crate::load_stats::LoadStats;
use crate::plan::LoadPlan;
use mio::Waker;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;

/// Counters shared by all load threads and the driver.
#[derive(Debug)]
pub(crate) struct SharedCounters {
    stage: AtomicU8,
    pub(crate) start_ns: AtomicU64,
    pub(crate) measure_from_ns: AtomicU64,
    pub(crate) publish_until_ns: AtomicU64,
    /// Clients of this process, and the clients that are `Live` or have failed.
    pub(crate) clients: AtomicU64,
    pub(crate) settled: AtomicU64,
    /// Clients in state `ClientState::Over`, which will not connect again.
    pub(crate) over: AtomicU64,
    pub(crate) live: AtomicI64,
    /// Deliveries expected from the sent messages, and deliveries received.
    pub(crate) expected: AtomicU64,
    pub(crate) received: AtomicU64,
    /// Unacknowledged messages of QoS 1 and 2.
    pub(crate) flights: AtomicI64,
    /// Number of messages that each group may still publish; a group without `messages_max` starts
    /// with a number that is never used up.
    pub(crate) messages_left: Vec<AtomicI64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum LoadStage {
    Connecting,
    Publishing,
    Draining,
    Over,
}

impl SharedCounters {
    pub(crate) fn new(plan: &LoadPlan) -> SharedCounters {
        let left = |group: &crate::plan::PlanGroup| {
            let messages = group.publish.as_ref().and_then(|publish| publish.messages_max);
            AtomicI64::new(messages.map_or(i64::MAX, |n| n as i64))
        };
        SharedCounters {
            stage: AtomicU8::new(LoadStage::Connecting as u8),
            start_ns: AtomicU64::new(u64::MAX),
            measure_from_ns: AtomicU64::new(u64::MAX),
            publish_until_ns: AtomicU64::new(u64::MAX),
            clients: AtomicU64::new(0),
            settled: AtomicU64::new(0),
            over: AtomicU64::new(0),
            live: AtomicI64::new(0),
            expected: AtomicU64::new(0),
            received: AtomicU64::new(0),
            flights: AtomicI64::new(0),
            messages_left: plan.groups.iter().map(left).collect(),
        }
    }

    pub(crate) fn stage(&self) -> LoadStage {
        match self.stage.load(Ordering::Acquire) {
            0 => LoadStage::Connecting,
            1 => LoadStage::Publishing,
            2 => LoadStage::Draining,
            _ => LoadStage::Over,
        }
    }

    pub(crate) fn set_stage(&self, stage: LoadStage) {
        self.stage.store(stage as u8, Ordering::Release);
    }

    pub(crate) fn undelivered(&self) -> u64 {
        self.expected.load(SeqCst).saturating_sub(self.received.load(SeqCst))
    }

    /// Whether no client is `Live` or will connect again.
    pub(crate) fn has_no_clients_left(&self) -> bool {
        self.over.load(SeqCst) >= self.clients.load(SeqCst)
    }

    /// Whether every group with `messages_max` has published all its messages; false without such
    /// groups.
    pub(crate) fn has_sent_all(&self) -> bool {
        let bounded = |left: &&AtomicI64| left.load(SeqCst) < i64::MAX / 2;
        let mut bounds = self.messages_left.iter().filter(bounded).peekable();
        bounds.peek().is_some() && bounds.all(|left| left.load(SeqCst) <= 0)
    }
}

/// Statistics of a thread for a second, or for part of a second if a phase began within.
#[derive(Debug)]
pub(crate) struct ThreadSecond {
    pub(crate) from_ns: u64,
    pub(crate) until_ns: u64,
    pub(crate) stats: LoadStats,
    /// Processor time since the previous `ThreadSecond`, as a fraction of the time since then: a
    /// late hand-over covers more than its second.
    pub(crate) busy: f64,
}

/// A running load thread with its `Waker`.
pub(crate) struct LoadThreadHandle {
    pub(crate) thread: JoinHandle<io::Result<ThreadSummary>>,
    pub(crate) waker: Waker,
}

/// Distributes the clients of `plan` and starts a thread for each part.
pub(crate) fn start_threads(
    plan: &Arc<LoadPlan>,
    shared: &Arc<SharedCounters>,
    clock: RunClock,
    seconds: &Sender<ThreadSecond>,
) -> io::Result<Vec<LoadThreadHandle>> {
    let mut hands = Vec::new();
    let parts = distribution::distribute_clients(plan);
    shared.clients.store(parts.iter().map(|part| part.clients.len() as u64).sum(), SeqCst);
    for (index, part) in parts.into_iter().enumerate() {
        let poll = mio::Poll::new()?;
        let waker = Waker::new(poll.registry(), thread::WAKER)?;
        let (plan, shared, seconds) = (Arc::clone(plan), Arc::clone(shared), seconds.clone());
        let load = LoadThread::new(index, plan, shared, clock, seconds, poll, part)?;
        let name = format!("load-{index}");
        let thread = std::thread::Builder::new().name(name).spawn(move || load.run())?;
        hands.push(LoadThreadHandle { thread, waker });
    }
    Ok(hands)
}
