//! Authentication by an HTTP server, with requests in the form of EMQX and NanoMQ and answers in
//! the form of EMQX.

use super::backend::BackendOutcome;
use super::http_answer;
use super::remote::http_call::{HttpAnswerFormat, HttpCall, HttpCallSettings};
use super::remote::template::{AuthVariable, AuthVariableSource};
use super::remote::{IdentityLookup, IdentityServer};
use broker::AuthRequest;
use broker::peer::authentication::Principal;
use net::http_client::HttpRoute;
use net::http_proxy::HttpProxy;
use net::server_pool::{RemoteError, RemoteServer};
use ring::digest;
use ring::rand::{SecureRandom, SystemRandom};
use rustls::ClientConfig;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Values of the option rows about authentication by HTTP.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HttpAuthSettings {
    pub call: HttpCallSettings,
    pub answer: HttpAnswerFormat,
    pub proxy: HttpProxy,
    pub takes_rules: bool,
    pub cache_s: u32,
}

pub struct HttpAuthServer {
    call: HttpCall,
    ports: Vec<Option<u16>>,
    answer: HttpAnswerFormat,
    takes_rules: bool,
    /// Whether requests contain the user name. If not, a response that allows the client does not
    /// confirm its user name.
    is_asked_by_name: bool,
    cache: Option<AuthResponseCache>,
}

impl HttpAuthServer {
    /// Creates the server of the options; `None` if the options have no URL. `tls` is the
    /// configuration for `https`, and `ports` are the listeners' ports in order.
    pub fn new(
        settings: &HttpAuthSettings,
        tls: Option<Arc<ClientConfig>>,
        ports: &[Option<u16>],
    ) -> Option<HttpAuthServer> {
        let route = HttpRoute { tls, proxy: settings.proxy.clone(), follows_redirects: false };
        Some(HttpAuthServer {
            call: HttpCall::new(&settings.call, &route)?,
            ports: ports.to_vec(),
            answer: settings.answer,
            takes_rules: settings.takes_rules,
            is_asked_by_name: settings.call.uses_variable(AuthVariable::UserName),
            cache: AuthResponseCache::new(settings.cache_s),
        })
    }

    fn question(&self, request: &AuthRequest) -> Option<(String, Vec<u8>)> {
        self.call.build_request(AuthVariableSource::Client { request, ports: &self.ports })
    }
}

impl IdentityServer for HttpAuthServer {
    fn name(&self) -> &'static str {
        "http"
    }

    fn can_identify(&self, _: &AuthRequest) -> bool {
        true
    }

    /// Requests are sent for clients with only a client id as well, and a denial counts: like in
    /// EMQX and NanoMQ, the server may know clients by client id.
    fn accepts_client_id_only(&self) -> bool {
        true
    }

    fn cached_outcome(&self, request: &AuthRequest) -> Option<BackendOutcome> {
        let cache = self.cache.as_ref()?;
        let (target, body) = self.question(request)?;
        cache.lookup(&cache.key(request, &target, &body))
    }
}

impl RemoteServer for HttpAuthServer {
    type Conn = ();
    type Question = AuthRequest;
    type Reply = IdentityLookup;

    /// Does nothing: the HTTP client opens a connection for each concurrent request.
    async fn connect(&self) -> Result<(), String> {
        Ok(())
    }

    async fn request(
        &self,
        _conn: &mut (),
        request: &AuthRequest,
    ) -> Result<IdentityLookup, RemoteError> {
        let Some((target, body)) = self.question(request) else {
            return Ok(IdentityLookup::Verdict(BackendOutcome::Ignore));
        };
        let key = self.cache.as_ref().map(|cache| cache.key(request, &target, &body));
        let answer = self.call.send(&target, body).await?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let mut outcome =
            http_answer::read_outcome(&answer, self.answer, request, self.takes_rules, now);
        if let BackendOutcome::Allow(principal) = &mut outcome
            && !self.is_asked_by_name
        {
            principal.user = None;
        }
        if let (Some(cache), Some(key)) = (&self.cache, key) {
            cache.store(key, &outcome);
        }
        Ok(IdentityLookup::Verdict(outcome))
    }
}

/// Cached answers, each under a keyed hash of its request. Without the key the request, which may
/// contain a password, cannot be guessed from the hash.
struct AuthResponseCache {
    salt: [u8; 32],
    lifetime: Duration,
    answers: Mutex<HashMap<[u8; 32], AuthCacheEntry>>,
}

struct AuthCacheEntry {
    until: Instant,
    decision: CachedDecision,
}

#[derive(Clone)]
enum CachedDecision {
    Allow { principal: Box<Principal>, expires: Option<Instant> },
    Deny(&'static str),
    Ignore,
}

/// Largest number of cached answers; further requests are made each time.
const ANSWERS_MAX: usize = 10_000;

impl AuthResponseCache {
    fn new(seconds: u32) -> Option<AuthResponseCache> {
        let mut salt = [0; 32];
        let drawn = SystemRandom::new().fill(&mut salt).is_ok();
        let lifetime = Duration::from_secs(u64::from(seconds));
        // Without random bytes there is no key, and nothing is cached.
        (seconds > 0 && drawn).then(|| AuthResponseCache {
            salt,
            lifetime,
            answers: Mutex::default(),
        })
    }

    /// Hashes everything that the answer and its consequences depend on.
    fn key(&self, request: &AuthRequest, target: &str, body: &[u8]) -> [u8; 32] {
        let mut all = digest::Context::new(&digest::SHA256);
        let user = request.user_name.as_deref().unwrap_or_default();
        all.update(&self.salt);
        for part in [user.as_bytes(), target.as_bytes(), body] {
            all.update(&(part.len() as u64).to_be_bytes());
            all.update(part);
        }
        let mut key = [0; 32];
        key.copy_from_slice(all.finish().as_ref());
        key
    }

    fn lookup(&self, key: &[u8; 32]) -> Option<BackendOutcome> {
        let now = Instant::now();
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = answers.get(key).filter(|kept| kept.until > now)?;
        Some(match kept.decision.clone() {
            CachedDecision::Allow { mut principal, expires } => {
                let left = |at: Instant| at.saturating_duration_since(now).as_millis() as u64;
                principal.expires_in_ms = expires.map(left);
                BackendOutcome::Allow(principal)
            }
            CachedDecision::Deny(why) => BackendOutcome::Deny(why),
            CachedDecision::Ignore => BackendOutcome::Ignore,
        })
    }

    fn store(&self, key: [u8; 32], outcome: &BackendOutcome) {
        let now = Instant::now();
        let mut until = now + self.lifetime;
        let said = match outcome {
            BackendOutcome::Allow(principal) => {
                let expires = principal.expires_in_ms.map(|ms| now + Duration::from_millis(ms));
                until = expires.map_or(until, |at| until.min(at));
                CachedDecision::Allow { principal: principal.clone(), expires }
            }
            BackendOutcome::Deny(why) => CachedDecision::Deny(why),
            BackendOutcome::Ignore => CachedDecision::Ignore,
            // Failures are temporary and are not cached; an HTTP server sends no challenge.
            BackendOutcome::Busy | BackendOutcome::Challenge { .. } | BackendOutcome::Fail(_) => {
                return;
            }
        };
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        if answers.len() >= ANSWERS_MAX {
            answers.retain(|_, kept| kept.until > now);
        }
        if answers.len() < ANSWERS_MAX {
            answers.insert(key, AuthCacheEntry { until, decision: said });
        }
    }
}
