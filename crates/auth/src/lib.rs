//! Authentication of clients: the authenticator that shards call, the backends, and the user file.
//!
//! On a shard only [`Authenticator::authenticate`] runs, which queues a request and returns.
//! Threads start with the first request, and end after `IDLE` without requests.

#![forbid(unsafe_code)]
#![cfg_attr(
    not(all(feature = "http", feature = "mysql", feature = "postgres", feature = "redis")),
    allow(
        dead_code,
        unused_imports,
        unused_variables,
        reason = "a build without some of the backends has no use for parts of the others"
    )
)]

pub mod acl;
pub mod auth_resources;
pub mod backend;
pub mod bans;
pub mod certificate;
#[cfg(test)]
mod contract;
pub mod fuzz_targets;
#[cfg(feature = "http")]
pub mod http;
#[cfg(feature = "http")]
pub mod http_answer;
#[cfg(feature = "http")]
pub mod jwks;
pub mod jwt;
mod jwt_crypto;
pub mod key_set;
#[cfg(test)]
mod mutations;
pub mod options;
pub mod password_format;
pub mod password_hash;
#[cfg(feature = "psk")]
pub mod psk_file;
mod queue;
#[cfg(feature = "remote")]
pub mod remote;
pub mod security_state;
pub mod settings;
#[cfg(feature = "tables")]
pub mod tables;
pub mod test_tokens;
pub mod throttle;
pub mod users;
pub mod verified_cache;

use backend::{AuthAttempt, ListenerChains};
use broker::{AuthDecision, AuthRequest, PeerSource, Refusal};
use engine::ConnectionLiveness;
use engine::limited_log::{LimitedLog, nonzero};
use queue::AuthQueue;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use throttle::AuthThrottle;
use tracing::info;

/// Authenticates clients. Shared by the shards, which send requests, and by the threads, which run
/// the backends.
pub struct Authenticator {
    state: Mutex<AuthenticatorState>,
    /// Condition variables of the waiting threads, one for each `AuthThreadClass`; signalled for
    /// each new request.
    wakeups: [Condvar; 2],
}

struct AuthenticatorState {
    chains: ListenerChains,
    throttle: AuthThrottle,
    queue: AuthQueue,
    limits: AuthenticatorLimits,
    /// Limits log lines about refused clients to `REFUSALS_PER_S`.
    refusals: LimitedLog,
    /// Limits log lines about addresses with too many failures.
    barred_sources: LimitedLog,
    /// Number of threads of each `AuthThreadClass` (`threads`), and of those that wait in `wakeups`
    /// (`idle`).
    threads: [usize; 2],
    idle: [usize; 2],
}

/// Priority of a thread in comparison with the shards.
#[derive(Clone, Copy, Debug)]
enum AuthThreadClass {
    /// The first thread, with a share of a core under any load of the shards: at most a third.
    Guaranteed = 0,
    /// Further threads, which use idle cores, and a tenth of a busy core.
    IdleOnly = 1,
}

impl AuthThreadClass {
    /// Returns the increment to the niceness of the process.
    fn niceness(self) -> i32 {
        match self {
            AuthThreadClass::Guaranteed => 3,
            AuthThreadClass::IdleOnly => 10,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AuthenticatorLimits {
    /// Number of threads that hash passwords and call backends; 0 is automatic.
    pub threads: usize,
    /// Largest number of queued clients.
    pub queue_max: usize,
    /// Failures of an address per minute before it is barred; 0 is unlimited.
    pub failures_max: u32,
}

/// Time without work after which a thread of the authenticator ends.
const IDLE: Duration = Duration::from_secs(10);
/// Stack of a thread; hashing uses heap memory (`password_hash::free_memory`).
const STACK_BYTES: usize = 256 * 1024;

impl Authenticator {
    pub fn new(
        chains: impl Into<ListenerChains>,
        limits: AuthenticatorLimits,
    ) -> Arc<Authenticator> {
        let chains = chains.into();
        chains.start_backends();
        let state = AuthenticatorState {
            chains,
            throttle: AuthThrottle::new(limits.failures_max),
            queue: AuthQueue::default(),
            limits,
            refusals: LimitedLog::new(REFUSALS_PER_S),
            barred_sources: LimitedLog::new(REFUSALS_PER_S),
            threads: [0; 2],
            idle: [0; 2],
        };
        let bells = [Condvar::new(), Condvar::new()];
        Arc::new(Authenticator { state: Mutex::new(state), wakeups: bells })
    }

    /// Replaces the backends. Clients that are not admitted yet are decided by the new backends.
    pub fn replace_backends(&self, chains: impl Into<ListenerChains>, limits: AuthenticatorLimits) {
        let chains = chains.into();
        chains.start_backends();
        let mut state = self.state();
        state.chains = chains;
        state.limits = limits;
        state.throttle.set_tries(limits.failures_max);
    }

    /// Queues a request, on the shard's thread, or answers at once if no backend is needed. A full
    /// queue refuses the oldest request.
    pub fn authenticate(
        self: &Arc<Authenticator>,
        request: AuthRequest,
        liveness: ConnectionLiveness,
        answer: Box<dyn FnOnce(AuthDecision) + Send>,
    ) {
        let mut state = self.state();
        let (source, since) = (PeerSource::from(request.peer), Instant::now());
        let chain = state.chains.chain_of_listener(request.listener).clone();
        let is_answered = chain.skips_all_backends(&request);
        let case = AuthAttempt {
            request: request.into(),
            chain,
            backend_index: 0,
            arrived_at: since,
            liveness,
            work: None,
            answer,
        };
        if is_answered {
            drop(state);
            return case.finish_unknown(self);
        }
        if state.throttle.is_barred(source, since) {
            drop(state);
            return (case.answer)(AuthDecision::Deny(Refusal::TooManyFailures));
        }
        let queue_max = state.limits.queue_max;
        let evicted = state.queue.push(case, queue_max);
        self.wake_threads(state);
        for case in evicted {
            (case.answer)(AuthDecision::Deny(Refusal::TooBusy));
        }
    }

    /// Queues an attempt again for its next backend. The bound `queue_max` does not apply.
    fn requeue_attempt(self: &Arc<Authenticator>, case: AuthAttempt) {
        let mut state = self.state();
        state.queue.push_resumed(case);
        self.wake_threads(state);
    }

    /// Wakes or starts threads for the requests in the queue.
    fn wake_threads(self: &Arc<Authenticator>, mut state: MutexGuard<'_, AuthenticatorState>) {
        let mut waiting = state.queue.len();
        for class in [AuthThreadClass::Guaranteed, AuthThreadClass::IdleOnly] {
            let at = class as usize;
            if state.idle[at] > 0 {
                self.wakeups[at].notify_one();
                // A thread that was notified before may not be awake yet.
                waiting = waiting.saturating_sub(state.idle[at]);
                if waiting == 0 {
                    return;
                }
                continue;
            }
            let threads_max = match class {
                AuthThreadClass::Guaranteed => 1,
                AuthThreadClass::IdleOnly => state.limits.threads.saturating_sub(1),
            };
            if state.threads[at] < threads_max {
                state.threads[at] += 1;
                drop(state);
                return self.start_thread(class);
            }
        }
    }

    fn start_thread(self: &Arc<Authenticator>, class: AuthThreadClass) {
        let authenticator = self.clone();
        let thread = thread::Builder::new().name("auth".into()).stack_size(STACK_BYTES);
        if thread.spawn(move || authenticator.run_thread(class)).is_err() {
            self.state().threads[class as usize] -= 1;
        }
    }

    fn run_thread(self: Arc<Authenticator>, class: AuthThreadClass) {
        // Shards with admitted clients take precedence over authentication.
        let _ = rustix::process::nice(class.niceness());
        while let Some(case) = self.next_attempt(class) {
            // The request may have waited long, and other requests of its address may have failed.
            let source = PeerSource::from(case.request.peer);
            if self.state().throttle.is_barred(source, Instant::now()) {
                (case.answer)(AuthDecision::Deny(Refusal::TooManyFailures));
            } else {
                case.ask_next_backend(&self);
            }
        }
    }

    /// Waits for a request; `None` after `IDLE` without a request.
    fn next_attempt(&self, class: AuthThreadClass) -> Option<AuthAttempt> {
        let at = class as usize;
        let mut state = self.state();
        if state.queue.is_empty() {
            drop(state);
            // The memory is only needed again soon under load.
            password_hash::free_memory();
            state = self.state();
        }
        loop {
            if let Some(case) = state.queue.pop(Instant::now()) {
                return Some(case);
            }
            state.idle[at] += 1;
            let waited = self.wakeups[at].wait_timeout(state, IDLE);
            let (again, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            state = again;
            state.idle[at] -= 1;
            if timeout.timed_out() && state.queue.is_empty() {
                state.threads[at] -= 1;
                return None;
            }
        }
    }

    /// Logs a refusal, rate-limited.
    fn log_refusal(&self, line: impl FnOnce(u64) + Send + 'static) {
        let refusals = self.state().refusals.clone();
        refusals.log(1, line);
    }

    fn count_failure(&self, source: PeerSource) {
        let mut state = self.state();
        let now = Instant::now();
        state.throttle.count_failure(source, now);
        if state.throttle.is_barred(source, now) {
            let barred = state.barred_sources.clone();
            drop(state);
            barred.log(1, move |count| {
                let withheld = nonzero(count - 1);
                info!(
                    target: "godwit::auth", address = %source, withheld,
                    option = "auth.failures_max", "too many failed attempts: refused now"
                );
            });
        }
    }

    fn state(&self) -> MutexGuard<'_, AuthenticatorState> {
        // No statement above leaves the state inconsistent, so a poisoned lock is usable.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Largest number of log lines about refused clients per second.
const REFUSALS_PER_S: u16 = 20;

/// Whether a CONNECT has neither a user name, nor a password, nor an authentication exchange. A
/// client certificate does not count.
fn has_no_credentials(request: &AuthRequest) -> bool {
    request.user_name.is_none() && request.password.is_none() && request.step.is_none()
}
