//! A server that is asked by HTTP, with EMQX's and NanoMQ's questions and EMQX's answers.

use super::answer;
use super::backend::Outcome;
use super::remote::call::{AnswerForm, Call, CallSettings};
use super::remote::template::Values;
use super::remote::{Found, Identifies, Server, Trouble};
use broker::Claim;
use broker::judge::Grant;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::client::conn::http1::SendRequest;
use ring::digest;
use ring::rand::{SecureRandom, SystemRandom};
use rustls::ClientConfig;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// What the rows of the table say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HttpSettings {
    pub(crate) call: CallSettings,
    pub(crate) answer: AnswerForm,
    pub(crate) takes_rules: bool,
    pub(crate) cache_s: u32,
}

pub(crate) struct Http {
    call: Call,
    ports: Vec<Option<u16>>,
    answer: AnswerForm,
    takes_rules: bool,
    cache: Option<Cache>,
}

impl Http {
    /// `None` where there is no URL.
    pub(crate) fn new(
        settings: &HttpSettings,
        tls: Option<Arc<ClientConfig>>,
        ports: &[Option<u16>],
    ) -> Option<Http> {
        Some(Http {
            call: Call::new(&settings.call, tls)?,
            ports: ports.to_vec(),
            answer: settings.answer,
            takes_rules: settings.takes_rules,
            cache: Cache::new(settings.cache_s),
        })
    }

    fn question(&self, claim: &Claim) -> Option<(String, Vec<u8>)> {
        self.call.question(Values::Client { claim, ports: &self.ports })
    }
}

impl Identifies for Http {
    fn name(&self) -> &'static str {
        "http"
    }

    fn is_for(&self, _: &Claim) -> bool {
        true
    }

    /// As EMQX and NanoMQ do: the server may know clients by their id, and its no counts.
    fn is_for_unproven(&self) -> bool {
        true
    }

    fn recall(&self, claim: &Claim) -> Option<Outcome> {
        let cache = self.cache.as_ref()?;
        let (target, body) = self.question(claim)?;
        cache.recall(&cache.key(claim, &target, &body))
    }
}

impl Server for Http {
    type Conn = SendRequest<Full<Bytes>>;
    type Question = Claim;
    type Found = Found;

    async fn connect(&self) -> Result<Self::Conn, String> {
        self.call.connect().await
    }

    async fn ask(&self, conn: &mut Self::Conn, claim: &Claim) -> Result<Found, Trouble> {
        let Some((target, body)) = self.question(claim) else {
            return Ok(Found::Verdict(Outcome::Ignore));
        };
        let key = self.cache.as_ref().map(|cache| cache.key(claim, &target, &body));
        let answer = self.call.ask(conn, &target, body).await?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let outcome = answer::read(&answer, self.answer, claim, self.takes_rules, now);
        if let (Some(cache), Some(key)) = (&self.cache, key) {
            cache.keep(key, &outcome);
        }
        Ok(Found::Verdict(outcome))
    }
}

/// Answers that are still good, each under a hash of its question. The hash is keyed, so what it
/// was made of, a password among it, is not found by trying.
struct Cache {
    salt: [u8; 32],
    lifetime: Duration,
    answers: Mutex<HashMap<[u8; 32], Kept>>,
}

struct Kept {
    until: Instant,
    said: Said,
}

#[derive(Clone)]
enum Said {
    Allow { grant: Box<Grant>, expires: Option<Instant> },
    Deny(&'static str),
    Ignore,
}

/// What comes when there are so many is asked each time.
const ANSWERS_MAX: usize = 10_000;

impl Cache {
    fn new(seconds: u32) -> Option<Cache> {
        let mut salt = [0; 32];
        let drawn = SystemRandom::new().fill(&mut salt).is_ok();
        let lifetime = Duration::from_secs(u64::from(seconds));
        // Without chance there is no key, and without a key nothing is kept.
        (seconds > 0 && drawn).then(|| Cache { salt, lifetime, answers: Mutex::default() })
    }

    /// Of everything that the answer or what becomes of it depends on.
    fn key(&self, claim: &Claim, target: &str, body: &[u8]) -> [u8; 32] {
        let mut all = digest::Context::new(&digest::SHA256);
        let user = claim.user_name.as_deref().unwrap_or_default();
        all.update(&self.salt);
        for part in [user.as_bytes(), target.as_bytes(), body] {
            all.update(&(part.len() as u64).to_be_bytes());
            all.update(part);
        }
        let mut key = [0; 32];
        key.copy_from_slice(all.finish().as_ref());
        key
    }

    fn recall(&self, key: &[u8; 32]) -> Option<Outcome> {
        let now = Instant::now();
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = answers.get(key).filter(|kept| kept.until > now)?;
        Some(match kept.said.clone() {
            Said::Allow { mut grant, expires } => {
                let left = |at: Instant| at.saturating_duration_since(now).as_millis() as u64;
                grant.expires_in_ms = expires.map(left);
                Outcome::Allow(grant)
            }
            Said::Deny(why) => Outcome::Deny(why),
            Said::Ignore => Outcome::Ignore,
        })
    }

    fn keep(&self, key: [u8; 32], outcome: &Outcome) {
        let now = Instant::now();
        let mut until = now + self.lifetime;
        let said = match outcome {
            Outcome::Allow(grant) => {
                let expires = grant.expires_in_ms.map(|ms| now + Duration::from_millis(ms));
                until = expires.map_or(until, |at| until.min(at));
                Said::Allow { grant: grant.clone(), expires }
            }
            Outcome::Deny(why) => Said::Deny(why),
            Outcome::Ignore => Said::Ignore,
            // Trouble passes; an answer of its is not one. A challenge is never the server's.
            Outcome::Busy | Outcome::Challenge { .. } | Outcome::Fail(_) => return,
        };
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        if answers.len() >= ANSWERS_MAX {
            answers.retain(|_, kept| kept.until > now);
        }
        if answers.len() < ANSWERS_MAX {
            answers.insert(key, Kept { until, said });
        }
    }
}
