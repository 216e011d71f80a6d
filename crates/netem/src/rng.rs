//! Chance from a seed, so that the same packets in the same order meet the same weather.

#[derive(Debug)]
pub(crate) struct NetemRng(u64);

impl NetemRng {
    pub(crate) fn new(seed: u64) -> NetemRng {
        NetemRng(seed)
    }

    /// In so many of a hundred cases.
    pub(crate) fn occurs(&mut self, percent: f64) -> bool {
        // A seed that differs in one bit gives other draws from the first on (splitmix64).
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut drawn = self.0;
        drawn = (drawn ^ (drawn >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        drawn = (drawn ^ (drawn >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        drawn ^= drawn >> 31;
        ((drawn >> 11) as f64) < percent / 100.0 * (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_of_a_hundred_and_the_same_ones_each_time() {
        let draw = |seed| {
            let mut rng = NetemRng::new(seed);
            (0..100_000).map(|_| rng.occurs(2.0)).collect::<Vec<bool>>()
        };
        let hits = draw(7).iter().filter(|hit| **hit).count();
        assert!((1800..2200).contains(&hits), "{hits}");
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }
}
