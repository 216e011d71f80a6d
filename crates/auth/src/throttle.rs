//! Bound of authentication failures per address. Each failure uses one of a few tries, which return
//! within `WINDOW`; requests of an address without tries are refused. At most `SOURCES_MAX`
//! addresses are stored.

use broker::PeerSource;
use std::collections::HashMap;
use std::time::{Duration, Instant};

#[derive(Debug)]
pub struct AuthThrottle {
    /// Number of tries per address; 0 disables the bound.
    tries: u32,
    sources: HashMap<PeerSource, AuthFailures>,
    swept: Instant,
}

#[derive(Clone, Copy, Debug)]
struct AuthFailures {
    count: u32,
    since: Instant,
}

/// Time after which all failures of an address are forgiven.
const WINDOW: Duration = Duration::from_secs(60);
const SOURCES_MAX: usize = 16 * 1024;
/// Interval between two sweeps, since a sweep delays requests.
const SWEPT_EVERY: Duration = Duration::from_secs(1);

impl AuthThrottle {
    pub fn new(tries: u32) -> AuthThrottle {
        AuthThrottle { tries, sources: HashMap::new(), swept: Instant::now() }
    }

    pub fn set_tries(&mut self, tries: u32) {
        self.tries = tries;
    }

    pub fn is_barred(&self, source: PeerSource, now: Instant) -> bool {
        let failed = self.sources.get(&source);
        self.tries > 0
            && failed.is_some_and(|failed| failed.count_remaining(now, self.tries) >= self.tries)
    }

    pub fn count_failure(&mut self, source: PeerSource, now: Instant) {
        if self.tries == 0 {
            return;
        }
        let tries = self.tries;
        if self.sources.len() >= SOURCES_MAX && now >= self.swept + SWEPT_EVERY {
            self.swept = now;
            self.sources.retain(|_, failed| failed.count_remaining(now, tries) > 0);
        }
        // With many failing addresses any of them is dropped: otherwise a peer with that many
        // addresses could guess without bound from further ones.
        if self.sources.len() >= SOURCES_MAX
            && !self.sources.contains_key(&source)
            && let Some(any) = self.sources.keys().next().copied()
        {
            self.sources.remove(&any);
        }
        let failed = self.sources.entry(source).or_insert(AuthFailures { count: 0, since: now });
        *failed = AuthFailures { count: failed.count_remaining(now, tries) + 1, since: now };
    }
}

impl AuthFailures {
    /// Returns the failures that are not forgiven yet.
    fn count_remaining(self, now: Instant, tries: u32) -> u32 {
        let passed = now.saturating_duration_since(self.since).as_millis();
        let back = passed * u128::from(tries) / WINDOW.as_millis();
        self.count.saturating_sub(u32::try_from(back).unwrap_or(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use broker::PeerAddress;
    use std::net::IpAddr;

    fn at(address: &str) -> PeerSource {
        let address: IpAddr = address.parse().unwrap();
        PeerAddress::Network((address, 1).into()).into()
    }

    #[test]
    fn tries_are_used_up_and_come_back() {
        let (start, one) = (Instant::now(), at("192.0.2.1"));
        let mut throttle = AuthThrottle::new(3);
        for _ in 0..3 {
            assert!(!throttle.is_barred(one, start));
            throttle.count_failure(one, start);
        }
        assert!(throttle.is_barred(one, start));
        assert!(!throttle.is_barred(at("192.0.2.2"), start));
        assert!(throttle.is_barred(one, start + WINDOW / 3 - Duration::from_millis(1)));
        assert!(!throttle.is_barred(one, start + WINDOW / 3));
        throttle.count_failure(one, start + WINDOW / 3);
        assert!(throttle.is_barred(one, start + WINDOW / 3));
        assert!(!throttle.is_barred(one, start + WINDOW * 2));
        throttle.set_tries(0);
        assert!(!throttle.is_barred(one, start));
    }

    #[test]
    fn a_network_of_ipv6_is_one_address_and_a_mapped_one_is_ipv4() {
        let start = Instant::now();
        let mut throttle = AuthThrottle::new(1);
        throttle.count_failure(at("2001:db8::1"), start);
        assert!(throttle.is_barred(at("2001:db8::ffff:2"), start));
        assert!(!throttle.is_barred(at("2001:db8:0:1::1"), start));
        throttle.count_failure(at("::ffff:192.0.2.1"), start);
        assert!(throttle.is_barred(at("192.0.2.1"), start));
    }

    #[test]
    fn a_user_of_this_host_has_the_tries_of_all_its_processes() {
        let start = Instant::now();
        let mut throttle = AuthThrottle::new(1);
        throttle.count_failure(PeerAddress::Unix { user: 7, process: 1 }.into(), start);
        assert!(throttle.is_barred(PeerAddress::Unix { user: 7, process: 2 }.into(), start));
        assert!(!throttle.is_barred(PeerAddress::Unix { user: 8, process: 1 }.into(), start));
    }

    #[test]
    fn a_crowd_of_addresses_is_bounded() {
        let start = Instant::now();
        let mut throttle = AuthThrottle::new(1);
        for at in 0..SOURCES_MAX as u32 + 200 {
            let source = PeerSource::Network(at.to_be_bytes().into());
            throttle.count_failure(source, start);
            assert!(throttle.is_barred(source, start), "the newest is wrong, too");
        }
        assert_eq!(throttle.sources.len(), SOURCES_MAX);
        throttle.count_failure(at("10.9.9.9"), start + WINDOW);
        assert_eq!(throttle.sources.len(), 1);
    }
}
