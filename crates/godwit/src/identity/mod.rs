//! Who a client is: the porter whom the shards ask, the backends behind it, and the user file.
//!
//! Nothing here runs on a shard but [`Porter::hear`], which takes a question and returns. Threads
//! exist from the first question on, and end when there was none for a while.

#[cfg(feature = "http")]
mod answer;
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
#[cfg(feature = "remote")]
pub(crate) mod remote;
pub(crate) mod scram;
#[cfg(feature = "tables")]
pub(crate) mod tables;
pub(crate) mod throttle;
pub(crate) mod users;

use crate::notes::some;
use backend::{Case, Chain};
use broker::judge::Verdict;
use broker::{Claim, Few, Now, Refusal, Source};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use throttle::Throttle;
use tracing::info;

/// Shared by the shards, which ask, and the threads, which find out.
pub(crate) struct Porter {
    state: Mutex<State>,
    /// Rings when there is something in the queue.
    bell: Condvar,
    began: Instant,
}

struct State {
    chain: Arc<Chain>,
    throttle: Throttle,
    queue: VecDeque<Case>,
    /// What the claims in it bring.
    queue_bytes: usize,
    limits: Limits,
    /// Notes of whom we did not let in.
    refusals: Few,
    /// The same of addresses.
    barred: Few,
    threads: usize,
    /// Of those the ones that wait at the bell.
    idle: usize,
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
/// Names and passwords may be long: so many bytes of them wait.
const QUEUE_BYTES_MAX: usize = 4 * 1024 * 1024;

impl Porter {
    pub(crate) fn new(chain: Chain, limits: Limits) -> Arc<Porter> {
        chain.begin();
        let state = State {
            chain: Arc::new(chain),
            throttle: Throttle::new(limits.failures_max),
            queue: VecDeque::new(),
            queue_bytes: 0,
            limits,
            refusals: Few::default(),
            barred: Few::default(),
            threads: 0,
            idle: 0,
        };
        Arc::new(Porter { state: Mutex::new(state), bell: Condvar::new(), began: Instant::now() })
    }

    /// Other backends for whoever is not in yet.
    pub(crate) fn change(&self, chain: Chain, limits: Limits) {
        chain.begin();
        let mut state = self.state();
        state.chain = Arc::new(chain);
        state.limits = limits;
        state.throttle.set_tries(limits.failures_max);
    }

    /// A question of a shard, on the shard's thread: it goes into the queue, or is answered at once
    /// where that needs no work.
    pub(crate) fn hear(self: &Arc<Porter>, claim: Claim, answer: Box<dyn FnOnce(Verdict) + Send>) {
        let mut state = self.state();
        let source = Source::from(claim.peer);
        if is_nobody(&claim) && claim.certificate.is_none() {
            let chain = state.chain.clone();
            drop(state);
            return Case { claim: claim.into(), chain, at: 0, work: None, answer }
                .end_unknown(self);
        }
        let refusal = if state.throttle.is_barred(source, Instant::now()) {
            Some(Refusal::TooManyFailures)
        } else if state.queue.len() >= state.limits.queue_max
            || state.queue_bytes + bytes_of(&claim) > QUEUE_BYTES_MAX
        {
            Some(Refusal::TooBusy)
        } else {
            None
        };
        if let Some(refusal) = refusal {
            drop(state);
            return answer(Verdict::Deny(refusal));
        }
        let chain = state.chain.clone();
        state.queue_bytes += bytes_of(&claim);
        state.queue.push_back(Case { claim: claim.into(), chain, at: 0, work: None, answer });
        self.call(state);
    }

    /// The next backend's turn. It is let in whatever the queue's bound, where it was before.
    fn go_on_later(self: &Arc<Porter>, case: Case) {
        let mut state = self.state();
        state.queue_bytes += bytes_of(&case.claim);
        state.queue.push_front(case);
        self.call(state);
    }

    /// Somebody takes what is in the queue.
    fn call(self: &Arc<Porter>, mut state: MutexGuard<'_, State>) {
        if state.idle > 0 || state.threads >= state.limits.threads.max(1) {
            drop(state);
            return self.bell.notify_one();
        }
        state.threads += 1;
        drop(state);
        let porter = self.clone();
        let thread = thread::Builder::new().name("auth".into()).stack_size(STACK_BYTES);
        if thread.spawn(move || porter.work()).is_err() {
            self.state().threads -= 1;
        }
    }

    fn work(self: Arc<Porter>) {
        // Whoever is in comes before whoever wants to come in.
        let _ = rustix::process::setpriority_process(None, NICENESS);
        while let Some(case) = self.next() {
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
    fn next(&self) -> Option<Case> {
        let mut state = self.state();
        loop {
            if let Some(case) = state.queue.pop_front() {
                state.queue_bytes -= bytes_of(&case.claim);
                return Some(case);
            }
            state.idle += 1;
            let waited = self.bell.wait_timeout(state, IDLE);
            let (again, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            state = again;
            state.idle -= 1;
            if timeout.timed_out() && state.queue.is_empty() {
                state.threads -= 1;
                return None;
            }
        }
    }

    /// Whether one more refusal may be told of, and how many before it were not.
    fn tells_refusal(&self) -> Option<u64> {
        self.state().refusals.count(self.now())
    }

    fn now(&self) -> Now {
        Now(self.began.elapsed().as_millis() as u64)
    }

    fn fail(&self, source: Source) {
        let mut state = self.state();
        let now = Instant::now();
        state.throttle.fail(source, now);
        if state.throttle.is_barred(source, now) {
            let told = state.barred.count(self.now());
            drop(state);
            if let Some(withheld) = told {
                let withheld = some(withheld);
                info!(
                    target: "godwit::auth", address = %source, withheld,
                    "too many failed attempts: refused now"
                );
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // The state is whole between any two statements of ours.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Below everything that serves clients.
const NICENESS: i32 = 10;

fn bytes_of(claim: &Claim) -> usize {
    let password = claim.password.as_ref().map_or(0, |secret| secret.0.len());
    let user_name = claim.user_name.as_ref().map_or(0, |name| name.len());
    let step = claim.step.as_ref().map_or(0, |step| {
        step.data.0.len() + step.memory.as_ref().map_or(0, |memory| memory.0.len())
    });
    size_of::<Case>() + claim.client_id.len() + user_name + password + step
}

/// Brings no proof of its own.
fn is_nobody(claim: &Claim) -> bool {
    claim.user_name.is_none() && claim.password.is_none() && claim.step.is_none()
}
