//! Chance from a seed, so that a failure can be had again.

pub(crate) struct StoreRng(u64);

impl StoreRng {
    pub(crate) fn new(seed: u64) -> StoreRng {
        StoreRng(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }
}
