//! Random decisions from a seed, so that the same packets in the same order have the same fate.

#[derive(Debug)]
pub(crate) struct NetemRng(fastrand::Rng);

impl NetemRng {
    pub(crate) fn new(seed: u64) -> NetemRng {
        NetemRng(fastrand::Rng::with_seed(seed))
    }

    /// Returns true with a probability of `percent` percent.
    pub(crate) fn occurs(&mut self, percent: f64) -> bool {
        self.0.f64() < percent / 100.0
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
