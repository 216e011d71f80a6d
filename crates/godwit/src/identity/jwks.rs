//! Keys of tokens that another server publishes: fetched at the start, again from time to time,
//! and when a token names a key that we have not seen.
//!
//! Invariant: keys that we have stay until others are here, whatever becomes of the server.

use super::backend::{Outcome, Reply};
use super::jwt::Reading;
use super::keys::Keys;
use super::remote::http::{Answer, Site};
use super::remote::url::Url;
use super::remote::{Bounds, Trouble};
use crate::patience::timeout;
use crate::runtime::Runtime;
use broker::Claim;
use rustls::ClientConfig;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use tokio::time::sleep;
use tracing::{info, warn};

pub(crate) struct Jwks {
    url: Url,
    site: Site,
    refresh: Duration,
    bounds: Bounds,
    runtime: Arc<Runtime>,
    state: Mutex<State>,
    /// One fetches; whoever came meanwhile has what it brought.
    turn: tokio::sync::Mutex<()>,
    waiting: AtomicUsize,
}

#[derive(Default)]
struct State {
    keys: Option<Arc<Keys>>,
    /// How often somebody has fetched them.
    fetches: u64,
    begun: Option<Instant>,
    is_fetching: bool,
    /// Why there are none, or no newer ones.
    why: String,
}

/// Names of keys are invented easily: so often somebody looks whether there is one.
const AGAIN: Duration = Duration::from_secs(10);

impl Jwks {
    /// `before` is what was asked until now; of the same place its keys are good until there are
    /// others.
    pub(crate) fn new(
        url: &Url,
        tls: Option<Arc<ClientConfig>>,
        refresh_s: u32,
        bounds: Bounds,
        runtime: Arc<Runtime>,
        before: &[Arc<Jwks>],
    ) -> Arc<Jwks> {
        let same = before.iter().find(|before| before.url == *url);
        let keys = same.and_then(|before| before.keys());
        Arc::new(Jwks {
            url: url.clone(),
            site: Site::new(url, tls),
            refresh: Duration::from_secs(u64::from(refresh_s)),
            bounds,
            runtime,
            state: Mutex::new(State { keys, ..State::default() }),
            turn: tokio::sync::Mutex::new(()),
            waiting: AtomicUsize::new(0),
        })
    }

    /// Fetches them, and again as long as somebody has this.
    pub(crate) fn begin(self: &Arc<Jwks>) {
        self.state().is_fetching = true;
        let kept = Arc::downgrade(self);
        self.runtime.spawn(Jwks::stay_fresh(kept));
    }

    async fn stay_fresh(kept: Weak<Jwks>) {
        while let Some(set) = kept.upgrade() {
            set.fetch().await;
            let pause = if set.keys().is_some() { set.refresh } else { AGAIN.min(set.refresh) };
            drop(set);
            sleep(pause).await;
        }
    }

    /// Judges by the key that a token names, once it is here or cannot be had.
    pub(crate) fn judge(
        self: &Arc<Jwks>,
        reading: &Arc<Reading>,
        claim: &Claim,
        id: Option<&str>,
        reply: Reply,
    ) {
        if !self.is_worth_waiting(id) {
            return reply.give(self.check(reading, claim));
        }
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= self.bounds.questions_max {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            return reply.give(Outcome::Busy);
        }
        let (set, reading) = (self.clone(), reading.clone());
        self.runtime.spawn(async move {
            set.renew().await;
            set.waiting.fetch_sub(1, Ordering::Relaxed);
            reply.work_out(move |claim| set.check(&reading, claim));
        });
    }

    fn check(&self, reading: &Reading, claim: &Claim) -> Outcome {
        match self.keys() {
            Some(keys) => reading.check(&keys, claim),
            None => Outcome::Fail(self.state().why.clone()),
        }
    }

    /// Whether the key is not here and may come.
    fn is_worth_waiting(&self, id: Option<&str>) -> bool {
        let mut state = self.state();
        if state.keys.as_ref().is_some_and(|keys| keys.knows(id)) {
            return false;
        }
        if state.begun.is_none_or(|begun| begun.elapsed() >= AGAIN) {
            state.is_fetching = true;
        }
        state.is_fetching
    }

    async fn renew(&self) {
        let before = self.state().fetches;
        let turn = self.turn.lock().await;
        if self.state().fetches == before {
            self.fetch_alone().await;
        }
        drop(turn);
    }

    async fn fetch(&self) {
        let _turn = self.turn.lock().await;
        self.fetch_alone().await;
    }

    async fn fetch_alone(&self) {
        self.state().begun = Some(Instant::now());
        let within = Duration::from_millis(u64::from(self.bounds.timeout_ms));
        let fetched = match timeout(within, self.ask()).await {
            Ok(fetched) => fetched,
            Err(_) => Err(format!("no answer within {} ms", self.bounds.timeout_ms)),
        };
        let mut state = self.state();
        state.is_fetching = false;
        state.fetches += 1;
        match fetched {
            Ok(keys) => {
                if state.keys.is_none() {
                    info!(target: "godwit::auth", from = %self.url, "keys of tokens are here");
                }
                state.keys = Some(Arc::new(keys));
            }
            Err(why) => {
                let kept = state.keys.is_some();
                warn!(target: "godwit::auth", from = %self.url, %why, kept, "no keys of tokens");
                state.why = why;
            }
        }
    }

    async fn ask(&self) -> Result<Keys, String> {
        let mut conn = self.site.connect().await?;
        let target = if self.url.path.starts_with('/') {
            self.url.path.clone()
        } else {
            format!("/{}", self.url.path)
        };
        let asked = self.site.request(&mut conn, "GET", &target, &[], Vec::new()).await;
        let Answer { status, body, .. } = asked.map_err(|trouble| match trouble {
            Trouble::Answered(why) | Trouble::Broken(why) => why,
        })?;
        match status {
            // Only a set: a page that says "not found" is no secret.
            200 => Keys::from_set(&body),
            status => Err(format!("it answered with status {status}")),
        }
    }

    /// As if nobody had looked for a while.
    #[cfg(test)]
    pub(crate) fn let_time_pass(&self) {
        self.state().begun = None;
    }

    fn keys(&self) -> Option<Arc<Keys>> {
        self.state().keys.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
