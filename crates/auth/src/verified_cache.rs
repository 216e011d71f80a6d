//! Cache of recently verified passwords, so that a reconnect needs no second hash. Entries are
//! keyed hashes of the stored hash and the password together; neither is stored. Whether a password
//! matches a stored hash never changes, so an entry cannot become wrong, and a removed user or a
//! changed hash does not match any entry.

use ring::hmac;
use ring::rand::SystemRandom;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub struct VerifiedCache {
    /// Random key, new at each start and reload.
    key: hmac::Key,
    lifetime: Duration,
    entries: Mutex<VerifiedEntries>,
}

#[derive(Default)]
struct VerifiedEntries {
    /// Start of the second that `checks` counts.
    began: Option<Instant>,
    checks: u32,
    until: HashMap<VerifiedTag, Instant>,
    /// Oldest first, which is the order of expiry.
    order: VecDeque<(VerifiedTag, Instant)>,
}

/// Prints no content, since logs must not have it.
impl fmt::Debug for VerifiedCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

type VerifiedTag = [u8; 32];

/// Checks per second that are computed despite a cached result, so that response times hide whether
/// a password was used before.
const CHECKS_BY_WORK: u32 = 10;
/// Largest number of entries; the oldest entry makes room.
pub const ENTRIES_MAX: usize = 10_000;

impl VerifiedCache {
    /// Creates a cache; `None` for a lifetime of 0, or without random bytes for a key.
    pub fn new(lifetime_s: u32) -> Option<VerifiedCache> {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new()).ok()?;
        let lifetime = Duration::from_secs(u64::from(lifetime_s));
        (lifetime_s > 0).then(|| VerifiedCache { key, lifetime, entries: Mutex::default() })
    }

    /// Whether the password is right, by the cache or by `verify`. Only a right password is ever
    /// fast: a wrong password and an unknown user take the whole time.
    pub fn check(&self, stored: &str, password: &[u8], verify: impl FnOnce() -> bool) -> bool {
        let (tag, now) = (self.tag(stored, password), Instant::now());
        if self.count_check(now) && self.knows(&tag, now) {
            return true;
        }
        let is_right = verify();
        if is_right {
            self.store(tag, Instant::now());
        }
        is_right
    }

    /// Does the work of a failed lookup in [`VerifiedCache::check`], for an unknown user.
    pub fn simulate_check(&self, stored: &str, password: &[u8]) {
        let tag = self.tag(stored, password);
        let now = Instant::now();
        std::hint::black_box(self.count_check(now) && self.knows(&tag, now));
    }

    /// Counts a check. Returns whether this second had `CHECKS_BY_WORK` computed checks already.
    fn count_check(&self, now: Instant) -> bool {
        let mut entries = self.entries();
        if entries.began.is_none_or(|began| now >= began + Duration::from_secs(1)) {
            (entries.began, entries.checks) = (Some(now), 0);
        }
        entries.checks = entries.checks.saturating_add(1);
        entries.checks > CHECKS_BY_WORK
    }

    fn tag(&self, stored: &str, password: &[u8]) -> VerifiedTag {
        let mut all = hmac::Context::with_key(&self.key);
        all.update(&(stored.len() as u64).to_be_bytes());
        all.update(stored.as_bytes());
        all.update(password);
        let mut tag = VerifiedTag::default();
        tag.copy_from_slice(all.sign().as_ref());
        tag
    }

    fn knows(&self, tag: &VerifiedTag, now: Instant) -> bool {
        self.entries().until.get(tag).is_some_and(|until| *until > now)
    }

    fn store(&self, tag: VerifiedTag, now: Instant) {
        let until = now + self.lifetime;
        let mut entries = self.entries();
        // Two threads may have verified the same password concurrently.
        if entries.until.get(&tag).is_none_or(|known| *known <= now) {
            entries.until.insert(tag, until);
            entries.order.push_back((tag, until));
        }
        while let Some(&(oldest, at)) = entries.order.front()
            && (at <= now || entries.order.len() > ENTRIES_MAX)
        {
            entries.order.pop_front();
            // A renewed entry has another element further back.
            if entries.until.get(&oldest) == Some(&at) {
                entries.until.remove(&oldest);
            }
        }
    }

    fn entries(&self) -> MutexGuard<'_, VerifiedEntries> {
        // Entries are independent of each other, so a poisoned lock is usable.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn a_right_password_is_hashed_once_and_a_wrong_one_each_time() {
        let cache = VerifiedCache::new(60).unwrap();
        // A second that began later does not end earlier.
        cache.entries().began = Some(Instant::now() + Duration::from_secs(3600));
        let hashed = Cell::new(0);
        let check = |stored: &str, password: &str, is_right: bool| {
            cache.check(stored, password.as_bytes(), || {
                hashed.set(hashed.get() + 1);
                is_right
            })
        };
        for _ in 0..CHECKS_BY_WORK {
            assert!(check("h1", "right", true));
        }
        assert_eq!(hashed.get(), CHECKS_BY_WORK, "so few cost little");
        assert!(check("h1", "right", true) && check("h1", "right", true));
        assert_eq!(hashed.get(), CHECKS_BY_WORK);
        hashed.set(1);
        for _ in 0..3 {
            assert!(!check("h1", "wrong", false));
        }
        assert_eq!(hashed.get(), 4);
        // Another hash with the same password, and other splits of the same text, do not match.
        assert!(!check("h2", "right", false) && !check("h1r", "ight", false));
        assert!(!check("h", "1right", false));
        assert_eq!(hashed.get(), 7);
        cache.simulate_check("h1", b"never");
        assert!(!check("h1", "never", false), "what was pretended is not remembered");
    }

    #[test]
    fn nothing_is_remembered_for_longer_than_its_time_nor_without_bound() {
        assert!(VerifiedCache::new(0).is_none());
        let cache = VerifiedCache::new(10).unwrap();
        let start = Instant::now();
        cache.store([1; 32], start);
        assert!(cache.knows(&[1; 32], start + Duration::from_millis(9_999)));
        assert!(!cache.knows(&[1; 32], start + Duration::from_secs(10)));
        for at in 0..ENTRIES_MAX + 10 {
            let mut tag = VerifiedTag::default();
            tag[..8].copy_from_slice(&(at as u64 + 7).to_be_bytes());
            cache.store(tag, start);
            cache.store(tag, start);
        }
        let entries = cache.entries();
        assert_eq!((entries.until.len(), entries.order.len()), (ENTRIES_MAX, ENTRIES_MAX));
        drop(entries);
        assert!(!cache.knows(&[1; 32], start), "the oldest made room");
        let late = start + Duration::from_secs(11);
        cache.store([2; 32], late);
        assert_eq!(cache.entries().until.len(), 1, "what has expired is gone");
    }
}
