//! Random numbers from a seed, so that a failure can be reproduced.

pub(crate) struct StoreRng(fastrand::Rng);

impl StoreRng {
    pub(crate) fn new(seed: u64) -> StoreRng {
        StoreRng(fastrand::Rng::with_seed(seed))
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0.u64(..bound)
    }
}
