//! Random numbers from a seed, so that a failure can be reproduced as far as threads allow.

pub(crate) struct CrashRng(fastrand::Rng);

impl CrashRng {
    pub(crate) fn new(seed: u64) -> CrashRng {
        CrashRng(fastrand::Rng::with_seed(seed))
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0.u64(..bound)
    }

    /// Returns true with a probability of one in `times`.
    pub(crate) fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    pub(crate) fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }
}
