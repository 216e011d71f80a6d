//! Pause of a link between two attempts to connect or to deliver.

use std::time::Duration;

/// Returns the pause after `failures` failed attempts: `first`, doubled each time up to `longest`,
/// and shortened by a random part of up to half. The random part spreads the retries of links which
/// lost the same server.
pub(crate) fn retry_delay(failures: u32, first: Duration, longest: Duration) -> Duration {
    if failures == 0 {
        return first;
    }
    let pause = first.saturating_mul(1 << (failures - 1).min(20)).min(longest.max(first));
    pause.mul_f64(1.0 - f64::from(random_seed() % 256) / 512.0)
}

/// Returns a random number for `retry_delay` and for first request ids.
pub(crate) fn random_seed() -> u16 {
    let mut bytes = [0; 2];
    // A failure of the generator leaves zeros: ids of requests are then easier to guess, and pauses
    // have no random part.
    let _ = ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut bytes);
    u16::from_ne_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pause_is_longer_until_the_longest() {
        let (first, longest) = (Duration::from_millis(100), Duration::from_secs(3));
        assert_eq!(retry_delay(0, first, longest), first);
        for (failures, whole) in [(1, 100), (2, 200), (5, 1600), (6, 3000), (u32::MAX, 3000)] {
            let found = retry_delay(failures, first, longest).as_millis();
            assert!((whole / 2..=whole).contains(&found), "{failures}: {found}");
        }
    }

    /// Links which lost the same server at once are spread over half of the pause.
    #[test]
    fn pauses_of_many_links_are_not_the_same() {
        let (first, longest) = (Duration::from_millis(100), Duration::from_secs(3));
        let drawn: Vec<_> = (0..100).map(|_| retry_delay(4, first, longest).as_millis()).collect();
        let (least, most) = (drawn.iter().min().unwrap(), drawn.iter().max().unwrap());
        assert!(*least >= 400 && *most <= 800, "{drawn:?}");
        assert!(most - least > 200, "{drawn:?}");
        let halves = drawn.iter().filter(|one| **one > 600).count();
        assert!((20..=80).contains(&halves), "{halves} of 100 are in the upper half");
    }
}
