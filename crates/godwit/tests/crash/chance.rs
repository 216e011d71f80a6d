//! Chance from a seed, so that a failure can be had again as far as threads allow.

pub(crate) struct CrashRng(u64);

impl CrashRng {
    pub(crate) fn new(seed: u64) -> CrashRng {
        let mut rng = CrashRng(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        // Seeds that differ in one bit begin with steps that differ in few.
        (0..16).for_each(|_| _ = rng.below(2));
        rng
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }

    /// Once in so many times.
    pub(crate) fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    pub(crate) fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }
}
