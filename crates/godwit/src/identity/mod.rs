//! Who a client is: the porter whom the shards ask, the backends behind it, and the user file.
//!
//! Nothing here runs on a shard but [`Porter::hear`], which takes a question and returns. Threads
//! exist from the first question on, and end when there was none for a while.

#[cfg(feature = "http")]
pub(crate) mod answer;
pub(crate) mod backend;
pub(crate) mod base64;
pub(crate) mod certificate;
#[cfg(test)]
mod contract;
pub(crate) mod forge;
pub(crate) mod hash;
#[cfg(feature = "http")]
pub(crate) mod http;
#[cfg(feature = "http")]
pub(crate) mod jwks;
pub(crate) mod jwt;
pub(crate) mod keys;
pub(crate) mod passwd;
#[cfg(feature = "tables")]
pub(crate) mod password;
mod queue;
#[cfg(feature = "remote")]
pub(crate) mod remote;
pub(crate) mod scram;
#[cfg(feature = "tables")]
pub(crate) mod tables;
pub(crate) mod throttle;
pub(crate) mod users;
pub(crate) mod verified;

use crate::notes::some;
use crate::withheld::LogRateLimiter;
use backend::{Case, ListenerChains};
use broker::judge::Verdict;
use broker::{Claim, Refusal, Source};
use engine::ConnectionLiveness;
use queue::PendingQueue;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use throttle::Throttle;
use tracing::info;

/// Shared by the shards, which ask, and the threads, which find out.
pub(crate) struct Porter {
    state: Mutex<State>,
    /// Ring when there is something in the queue: one for each class of thread.
    bells: [Condvar; 2],
}

struct State {
    chains: ListenerChains,
    throttle: Throttle,
    queue: PendingQueue,
    limits: Limits,
    /// Notes of whom we did not let in.
    refusals: LogRateLimiter,
    /// The same of addresses.
    barred: LogRateLimiter,
    /// Threads of each class, and those of them that wait at their bell.
    threads: [usize; 2],
    idle: [usize; 2],
}

/// What a thread may take from the shards.
#[derive(Clone, Copy, Debug)]
enum ThreadClass {
    /// The first thread has a share of a core however busy the shards are: a third at most.
    Guaranteed = 0,
    /// The others use cores that would be idle, and a tenth of one that would not.
    IdleOnly = 1,
}

impl ThreadClass {
    /// Above the niceness that the process was started with.
    fn niceness(self) -> i32 {
        match self {
            ThreadClass::Guaranteed => 3,
            ThreadClass::IdleOnly => 10,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Threads that hash, and ask.
    pub(crate) threads: usize,
    /// Clients that wait for one.
    pub(crate) queue_max: usize,
    /// Wrong answers of an address in a minute; 0 is any number.
    pub(crate) failures_max: u32,
}

/// A thread without work ends after this.
const IDLE: Duration = Duration::from_secs(10);
/// Hashing is on the stack of its thread for the least part.
const STACK_BYTES: usize = 256 * 1024;

impl Porter {
    pub(crate) fn new(chains: impl Into<ListenerChains>, limits: Limits) -> Arc<Porter> {
        let chains = chains.into();
        chains.begin();
        let state = State {
            chains,
            throttle: Throttle::new(limits.failures_max),
            queue: PendingQueue::default(),
            limits,
            refusals: LogRateLimiter::new(REFUSALS_PER_S),
            barred: LogRateLimiter::new(REFUSALS_PER_S),
            threads: [0; 2],
            idle: [0; 2],
        };
        let bells = [Condvar::new(), Condvar::new()];
        Arc::new(Porter { state: Mutex::new(state), bells })
    }

    /// Other backends for whoever is not in yet.
    pub(crate) fn change(&self, chains: impl Into<ListenerChains>, limits: Limits) {
        let chains = chains.into();
        chains.begin();
        let mut state = self.state();
        state.chains = chains;
        state.limits = limits;
        state.throttle.set_tries(limits.failures_max);
    }

    /// A question of a shard, on the shard's thread: it goes into the queue, or is answered at once
    /// where that needs no work. A full queue refuses the question that has waited longest.
    pub(crate) fn hear(
        self: &Arc<Porter>,
        claim: Claim,
        liveness: ConnectionLiveness,
        answer: Box<dyn FnOnce(Verdict) + Send>,
    ) {
        let mut state = self.state();
        let (source, since) = (Source::from(claim.peer), Instant::now());
        let chain = state.chains.of(claim.listener).clone();
        let is_answered = chain.leaves_out(&claim);
        let case = Case { claim: claim.into(), chain, at: 0, since, liveness, work: None, answer };
        if is_answered {
            drop(state);
            return case.end_unknown(self);
        }
        if state.throttle.is_barred(source, since) {
            drop(state);
            return (case.answer)(Verdict::Deny(Refusal::TooManyFailures));
        }
        let queue_max = state.limits.queue_max;
        let evicted = state.queue.push(case, queue_max);
        self.call(state);
        for case in evicted {
            (case.answer)(Verdict::Deny(Refusal::TooBusy));
        }
    }

    /// The next backend's turn. It is let in whatever the queue's bound, where it was before.
    fn go_on_later(self: &Arc<Porter>, case: Case) {
        let mut state = self.state();
        state.queue.push_resumed(case);
        self.call(state);
    }

    /// Somebody takes what is in the queue.
    fn call(self: &Arc<Porter>, mut state: MutexGuard<'_, State>) {
        let mut waiting = state.queue.len();
        for class in [ThreadClass::Guaranteed, ThreadClass::IdleOnly] {
            let at = class as usize;
            if state.idle[at] > 0 {
                self.bells[at].notify_one();
                // A thread that was called before may not be awake yet.
                waiting = waiting.saturating_sub(state.idle[at]);
                if waiting == 0 {
                    return;
                }
                continue;
            }
            let threads_max = match class {
                ThreadClass::Guaranteed => 1,
                ThreadClass::IdleOnly => state.limits.threads.saturating_sub(1),
            };
            if state.threads[at] < threads_max {
                state.threads[at] += 1;
                drop(state);
                return self.start_thread(class);
            }
        }
    }

    fn start_thread(self: &Arc<Porter>, class: ThreadClass) {
        let porter = self.clone();
        let thread = thread::Builder::new().name("auth".into()).stack_size(STACK_BYTES);
        if thread.spawn(move || porter.work(class)).is_err() {
            self.state().threads[class as usize] -= 1;
        }
    }

    fn work(self: Arc<Porter>, class: ThreadClass) {
        // Clients that are in come before clients that want to come in.
        let _ = rustix::process::nice(class.niceness());
        while let Some(case) = self.next(class) {
            // It may have waited long, and its address may have been wrong meanwhile.
            let source = Source::from(case.claim.peer);
            if self.state().throttle.is_barred(source, Instant::now()) {
                (case.answer)(Verdict::Deny(Refusal::TooManyFailures));
            } else {
                case.go_on(&self);
            }
        }
    }

    /// Waits for a case; none once there was none for a while.
    fn next(&self, class: ThreadClass) -> Option<Case> {
        let at = class as usize;
        let mut state = self.state();
        if state.queue.is_empty() {
            drop(state);
            // Only a crowd needs it again at once.
            hash::free_memory();
            state = self.state();
        }
        loop {
            if let Some(case) = state.queue.pop(Instant::now()) {
                return Some(case);
            }
            state.idle[at] += 1;
            let waited = self.bells[at].wait_timeout(state, IDLE);
            let (again, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            state = again;
            state.idle[at] -= 1;
            if timeout.timed_out() && state.queue.is_empty() {
                state.threads[at] -= 1;
                return None;
            }
        }
    }

    /// Tells of one more refusal, or withholds it for a while.
    fn tell_refusal(&self, line: impl FnOnce(u64) + Send + 'static) {
        let refusals = self.state().refusals.clone();
        refusals.log(1, line);
    }

    fn fail(&self, source: Source) {
        let mut state = self.state();
        let now = Instant::now();
        state.throttle.fail(source, now);
        if state.throttle.is_barred(source, now) {
            let barred = state.barred.clone();
            drop(state);
            barred.log(1, move |count| {
                let withheld = some(count - 1);
                info!(
                    target: "godwit::auth", address = %source, withheld,
                    option = "auth.failures_max", "too many failed attempts: refused now"
                );
            });
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // The state is whole between any two statements of ours.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lines about clients that were not let in.
const REFUSALS_PER_S: u32 = 20;

/// Brings no proof of its own.
fn is_nobody(claim: &Claim) -> bool {
    claim.user_name.is_none() && claim.password.is_none() && claim.step.is_none()
}
