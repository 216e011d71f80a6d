//! Token keys published by another server: fetched at the start, periodically, and when a token
//! names an unknown key.
//!
//! Invariant: keys stay in use until new keys arrive, even if the server fails.

use super::backend::{BackendOutcome, BackendReply};
use super::jwt::JwtValidator;
use super::key_set::KeySet;
use broker::AuthRequest;
use net::control_runtime::ControlRuntime;
use net::http_client::{HttpClient, HttpResponse, HttpRoute};
use net::pause_aware_timeout::timeout;
use net::server_pool::{RemoteError, RemoteLimits};
use net::server_url::ServerUrl;
use rustls::ClientConfig;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use tokio::time::sleep;
use tracing::{info, warn};

pub struct RemoteJwks {
    url: ServerUrl,
    client: HttpClient,
    refresh: Duration,
    bounds: RemoteLimits,
    runtime: Arc<ControlRuntime>,
    state: Mutex<JwksState>,
    /// Held by the task that fetches; concurrent tasks wait and use its result.
    turn: tokio::sync::Mutex<()>,
    waiting: AtomicUsize,
}

#[derive(Default)]
struct JwksState {
    keys: Option<Arc<KeySet>>,
    /// Number of completed fetches, by which a waiting task sees that another task has fetched.
    fetches: u64,
    begun: Option<Instant>,
    is_fetching: bool,
    /// Reason for which the last fetch failed, so that there are no keys or only older ones.
    last_error: String,
}

/// Minimum interval between fetches for unknown key ids, which clients can invent, and longest
/// pause of the periodic fetch while there are no keys.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);

impl RemoteJwks {
    /// Creates the key set with a direct route to the server, without a proxy or redirects.
    /// [`RemoteJwks::with_route`] describes the other parameters.
    pub fn new(
        url: &ServerUrl,
        tls: Option<Arc<ClientConfig>>,
        refresh_s: u32,
        bounds: RemoteLimits,
        runtime: Arc<ControlRuntime>,
        before: &[Arc<RemoteJwks>],
    ) -> Arc<RemoteJwks> {
        let route = HttpRoute { tls, ..HttpRoute::default() };
        RemoteJwks::with_route(url, &route, refresh_s, bounds, runtime, before)
    }

    /// Creates the key set of a URL, without keys: see [`RemoteJwks::start_fetching`]. `refresh_s`
    /// is the interval of fetches in seconds. `before` lists the present key sets: keys of the same
    /// URL stay valid until new keys arrive.
    pub fn with_route(
        url: &ServerUrl,
        route: &HttpRoute,
        refresh_s: u32,
        bounds: RemoteLimits,
        runtime: Arc<ControlRuntime>,
        before: &[Arc<RemoteJwks>],
    ) -> Arc<RemoteJwks> {
        let same = before.iter().find(|before| before.url == *url);
        let keys = same.and_then(|before| before.keys());
        Arc::new(RemoteJwks {
            url: url.clone(),
            client: HttpClient::new(url, route),
            refresh: Duration::from_secs(u64::from(refresh_s)),
            bounds,
            runtime,
            state: Mutex::new(JwksState { keys, ..JwksState::default() }),
            turn: tokio::sync::Mutex::new(()),
            waiting: AtomicUsize::new(0),
        })
    }

    /// Starts the periodic fetch, which ends when the last reference to this [`RemoteJwks`] is
    /// dropped.
    pub fn start_fetching(self: &Arc<RemoteJwks>) {
        self.state().is_fetching = true;
        let kept = Arc::downgrade(self);
        self.runtime.spawn(RemoteJwks::refresh_periodically(kept));
    }

    async fn refresh_periodically(kept: Weak<RemoteJwks>) {
        while let Some(set) = kept.upgrade() {
            set.fetch().await;
            let pause =
                if set.keys().is_some() { set.refresh } else { RETRY_INTERVAL.min(set.refresh) };
            drop(set);
            sleep(pause).await;
        }
    }

    /// Validates a token after its key was fetched, or could not be fetched.
    pub fn authenticate(
        self: &Arc<RemoteJwks>,
        reading: &Arc<JwtValidator>,
        request: &AuthRequest,
        id: Option<&str>,
        reply: BackendReply,
    ) {
        if !self.should_wait_for_key(id) {
            return reply.send(self.check(reading, request));
        }
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= self.bounds.questions_max {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            return reply.send(BackendOutcome::Busy);
        }
        let (set, reading) = (self.clone(), reading.clone());
        self.runtime.spawn(async move {
            set.fetch_or_join().await;
            set.waiting.fetch_sub(1, Ordering::Relaxed);
            reply.run_later(move |request| set.check(&reading, request));
        });
    }

    fn check(&self, reading: &JwtValidator, request: &AuthRequest) -> BackendOutcome {
        match self.keys() {
            Some(keys) => reading.check(&keys, request),
            None => BackendOutcome::Fail(self.state().last_error.clone()),
        }
    }

    /// Whether the key is unknown and a fetch may find it.
    fn should_wait_for_key(&self, id: Option<&str>) -> bool {
        let mut state = self.state();
        if state.keys.as_ref().is_some_and(|keys| keys.knows(id)) {
            return false;
        }
        if state.begun.is_none_or(|begun| begun.elapsed() >= RETRY_INTERVAL) {
            state.is_fetching = true;
        }
        state.is_fetching
    }

    async fn fetch_or_join(&self) {
        let before = self.state().fetches;
        let turn = self.turn.lock().await;
        if self.state().fetches == before {
            self.fetch_holding_turn().await;
        }
        drop(turn);
    }

    async fn fetch(&self) {
        let _turn = self.turn.lock().await;
        self.fetch_holding_turn().await;
    }

    async fn fetch_holding_turn(&self) {
        self.state().begun = Some(Instant::now());
        let within = Duration::from_millis(u64::from(self.bounds.timeout_ms));
        let fetched = match timeout(within, self.request_keys()).await {
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
                state.last_error = why;
            }
        }
    }

    async fn request_keys(&self) -> Result<KeySet, String> {
        let target = if self.url.path.starts_with('/') {
            self.url.path.clone()
        } else {
            format!("/{}", self.url.path)
        };
        let asked = self.client.request("GET", &target, &[], Vec::new()).await;
        let HttpResponse { status, body, .. } = asked.map_err(RemoteError::into_text)?;
        match status {
            // Only a JWKS is accepted: an error page is not a shared secret.
            200 => KeySet::from_set(&body),
            status => Err(format!("it answered with status {status}")),
        }
    }

    /// Makes the next unknown key start a fetch, as after `RETRY_INTERVAL`.
    #[cfg(test)]
    pub fn let_time_pass(&self) {
        self.state().begun = None;
    }

    fn keys(&self) -> Option<Arc<KeySet>> {
        self.state().keys.clone()
    }

    fn state(&self) -> MutexGuard<'_, JwksState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
