//! What comes back from a broker to which it was sent.

use mqtt::{Properties, Property};
use ring::rand::{SecureRandom, SystemRandom};
use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// User Property of 5.0 by which what this process sent is known when it comes back.
pub(super) const MARK: &str = "godwit-bridge";

/// The mark's value: whose it is, and of which message, so that somebody who answers with the
/// properties of a question is heard.
pub(super) fn loop_mark(topic: &str, payload: &[u8]) -> String {
    format!("{:016x}{:016x}", own_mark(), hash(topic, payload))
}

/// Returns a random mark of this process.
pub(super) fn own_mark() -> u64 {
    static OWN: LazyLock<u64> = LazyLock::new(|| {
        let mut bytes = [0; 8];
        // Without it two processes could take each other's messages for their own: then none does.
        let filled = SystemRandom::new().fill(&mut bytes);
        filled.expect("the system gives random bytes, TLS needs them too");
        u64::from_ne_bytes(bytes)
    });
    *OWN
}

/// Whether this process sent that.
pub(super) fn is_marked(properties: Properties<'_>, topic: &str, payload: &[u8]) -> bool {
    let mut marks = properties.iter().filter_map(|property| match property {
        Property::UserProperty(MARK, mark) => Some(mark),
        _ => None,
    });
    marks.next().is_some_and(|said| said == loop_mark(topic, payload))
}

/// Messages sent to a broker that sends everything back, as 3.x does. A message that comes in soon
/// after with the same topic and payload counts as the echo, as often as it was sent.
#[derive(Debug, Default)]
pub(super) struct LoopGuard {
    /// In their order, also those that came back.
    sent: VecDeque<EchoCandidate>,
    next: u64,
    /// Numbers of those that did not, in their order.
    awaited: HashMap<u64, VecDeque<u64>>,
}

#[derive(Debug)]
struct EchoCandidate {
    number: u64,
    hash: u64,
    at: Instant,
}

/// Time after which an echo is not expected any more: another subscriber got the message, or the
/// broker sends none back.
pub(super) const LIFETIME: Duration = Duration::from_secs(10);

impl LoopGuard {
    const MAX: usize = 16 * 1024;

    /// Records a sent message. A message that is sent again may have arrived before or not: one
    /// echo is expected of both.
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

    /// Removes entries that are too old, or too many.
    fn evict_expired(&mut self, now: Instant, most: usize) {
        let is_over = |oldest: &EchoCandidate| now.saturating_duration_since(oldest.at) >= LIFETIME;
        while self.sent.len() > most || self.sent.front().is_some_and(is_over) {
            let Some(EchoCandidate { number, hash, .. }) = self.sent.pop_front() else { return };
            // It may have come back, and an equal one that was sent later has not.
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
