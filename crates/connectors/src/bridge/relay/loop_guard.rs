//! Echo detection: a bridge's messages which the remote broker sends back.

use mqtt::{Properties, Property};
use ring::rand::{SecureRandom, SystemRandom};
use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// User Property of 5.0 which marks the messages of this process, so their echoes are recognized.
pub(super) const MARK: &str = "godwit-bridge";

/// Returns the value of [`MARK`]: the process and a hash of the message. A client may copy the
/// properties of a request into a response; the hash tells the response from an echo.
pub(super) fn loop_mark(topic: &str, payload: &[u8]) -> String {
    format!("{:016x}{:016x}", own_mark(), hash(topic, payload))
}

/// Returns the random id of this process.
pub(super) fn own_mark() -> u64 {
    static OWN: LazyLock<u64> = LazyLock::new(|| {
        let mut bytes = [0; 8];
        // Without randomness two processes could take each other's messages for echoes and drop
        // them, so a failure ends the program.
        let filled = SystemRandom::new().fill(&mut bytes);
        filled.expect("the system gives random bytes, TLS needs them too");
        u64::from_ne_bytes(bytes)
    });
    *OWN
}

/// Whether this process sent this message: the properties contain its `loop_mark`.
pub(super) fn is_marked(properties: Properties<'_>, topic: &str, payload: &[u8]) -> bool {
    let mut marks = properties.iter().filter_map(|property| match property {
        Property::UserProperty(MARK, mark) => Some(mark),
        _ => None,
    });
    marks.next().is_some_and(|said| said == loop_mark(topic, payload))
}

/// Recent messages to a 3.x broker, which sends every message back to a subscribed bridge. An
/// incoming message with the same topic and payload within [`LIFETIME`] counts as the echo, once
/// for each sent message.
#[derive(Debug, Default)]
pub(super) struct LoopGuard {
    /// Sent messages in order, including messages whose echo has arrived.
    sent: VecDeque<EchoCandidate>,
    next: u64,
    /// Numbers of the messages without an echo, in order, by hash.
    awaited: HashMap<u64, VecDeque<u64>>,
}

#[derive(Debug)]
struct EchoCandidate {
    number: u64,
    hash: u64,
    at: Instant,
}

/// Time after which an echo is no longer expected: the remote broker does not send every message
/// back.
pub(super) const LIFETIME: Duration = Duration::from_secs(10);

impl LoopGuard {
    const MAX: usize = 16 * 1024;

    /// Records a sent message. A message sent again may have arrived the first time; one echo is
    /// expected for both.
    pub(super) fn record_sent(
        &mut self,
        topic: &str,
        payload: &[u8],
        is_again: bool,
        now: Instant,
    ) {
        self.evict_expired(now, LoopGuard::MAX - 1);
        let (number, hash) = (self.next, hash(topic, payload));
        if is_again && self.awaited.contains_key(&hash) {
            return;
        }
        self.next += 1;
        self.sent.push_back(EchoCandidate { number, hash, at: now });
        self.awaited.entry(hash).or_default().push_back(number);
    }

    pub(super) fn take_echo(&mut self, topic: &str, payload: &[u8], now: Instant) -> bool {
        self.evict_expired(now, LoopGuard::MAX);
        if self.awaited.is_empty() {
            return false;
        }
        self.take(hash(topic, payload), |_| true)
    }

    /// Removes entries older than [`LIFETIME`], and the oldest above `most`.
    fn evict_expired(&mut self, now: Instant, most: usize) {
        let is_over = |oldest: &EchoCandidate| now.saturating_duration_since(oldest.at) >= LIFETIME;
        while self.sent.len() > most || self.sent.front().is_some_and(is_over) {
            let Some(EchoCandidate { number, hash, .. }) = self.sent.pop_front() else { return };
            // An entry whose echo has arrived must not remove a later entry of the same hash.
            self.take(hash, |first| first == number);
        }
    }

    fn take(&mut self, hash: u64, is_meant: impl Fn(u64) -> bool) -> bool {
        let Some(numbers) = self.awaited.get_mut(&hash) else { return false };
        let takes = numbers.front().is_some_and(|first| is_meant(*first));
        if takes {
            numbers.pop_front();
        }
        if numbers.is_empty() {
            self.awaited.remove(&hash);
        }
        takes
    }
}

fn hash(topic: &str, payload: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    (topic, payload).hash(&mut hasher);
    hasher.finish()
}
