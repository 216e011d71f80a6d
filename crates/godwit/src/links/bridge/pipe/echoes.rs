//! What comes back from a broker to which it was sent.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

/// What was sent to a broker that sends everything back, as 3.x has it: what comes in with the same
/// name and payload is taken for that, so often as it was sent.
#[derive(Debug, Default)]
pub(super) struct Echoes {
    sent: VecDeque<u64>,
    counts: HashMap<u64, u32>,
}

impl Echoes {
    const MAX: usize = 16 * 1024;

    pub(super) fn remember(&mut self, topic: &str, payload: &[u8]) {
        if self.sent.len() == Echoes::MAX
            && let Some(oldest) = self.sent.pop_front()
        {
            self.take(oldest);
        }
        let hash = hash(topic, payload);
        self.sent.push_back(hash);
        *self.counts.entry(hash).or_default() += 1;
    }

    pub(super) fn forget(&mut self, topic: &str, payload: &[u8]) -> bool {
        if self.counts.is_empty() {
            return false;
        }
        self.take(hash(topic, payload))
    }

    fn take(&mut self, hash: u64) -> bool {
        let Some(count) = self.counts.get_mut(&hash) else { return false };
        *count -= 1;
        if *count == 0 {
            self.counts.remove(&hash);
        }
        true
    }
}

fn hash(topic: &str, payload: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    (topic, payload).hash(&mut hasher);
    hasher.finish()
}
