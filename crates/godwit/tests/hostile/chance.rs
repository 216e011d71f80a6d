//! What attackers draw: the same each time, so that what was found is found again.

pub(crate) struct HostileRng(u64);

impl HostileRng {
    pub(crate) fn new() -> HostileRng {
        HostileRng(0x9e37_79b9_7f4a_7c15)
    }

    pub(crate) fn draw(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 as usize % below
    }
}
