//! A quick test of topics: excludes nearly every topic which no rule matches, without a lookup in
//! the index of the rules' filters.

/// Prefixes of filters: a Bloom filter with a single hash function.
#[derive(Debug)]
pub(super) struct PrefixFilter {
    /// The number of bits is a power of two.
    bits: Box<[u64]>,
    /// Lengths of the prefixes as bits: 1, 2, 4, 8, 16 bytes.
    lens: u8,
    /// Whether a filter begins with a wildcard.
    any: bool,
}

impl PrefixFilter {
    pub(crate) fn new(filters: &[&str]) -> PrefixFilter {
        let room = (filters.len() * BITS_A_FILTER).next_power_of_two();
        let mut heads =
            PrefixFilter { bits: vec![0; room.div_ceil(64)].into(), lens: 0, any: false };
        for filter in filters {
            // `a/#` matches `a` too.
            let begins = filter.strip_suffix("/#").unwrap_or(filter);
            let begins = begins.find(['+', '#']).map_or(begins, |at| &begins[..at]);
            let Some(len) = begins.len().checked_ilog2().map(|len| len.min(LEN_MAX)) else {
                heads.any = true;
                continue;
            };
            heads.lens |= 1 << len;
            if let Some((word, bit)) = heads.bit_position(begins.as_bytes(), len) {
                heads.bits[word] |= bit;
            }
        }
        heads
    }

    /// Returns `false` only if no filter matches the topic.
    #[inline]
    pub(super) fn may_match(&self, topic: &str) -> bool {
        let mut lens = self.lens;
        while lens != 0 {
            let place = self.bit_position(topic.as_bytes(), lens.trailing_zeros());
            if place.is_some_and(|(word, bit)| self.bits[word] & bit != 0) {
                return true;
            }
            lens &= lens - 1;
        }
        self.any
    }

    /// Returns the bit of the first `1 << len` bytes, or `None` if `name` is shorter. The hash has
    /// no key: topics chosen to collide only cost the lookup in the index.
    #[inline]
    fn bit_position(&self, name: &[u8], len: u32) -> Option<(usize, u64)> {
        let (head, tail) = match len {
            0 => (u64::from(*name.first()?), 0),
            1 => (u64::from(u16::from_le_bytes(*name.first_chunk()?)), 0),
            2 => (u64::from(u32::from_le_bytes(*name.first_chunk()?)), 0),
            3 => (u64::from_le_bytes(*name.first_chunk()?), 0),
            _ => {
                let both: &[u8; 16] = name.first_chunk()?;
                let both = u128::from_le_bytes(*both);
                (both as u64, (both >> 64) as u64)
            }
        };
        let mixed = (head ^ tail.rotate_left(29)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let bit = (mixed ^ mixed >> 32).wrapping_mul(0xD6E8_FEB8_6659_FD93) >> 32;
        let bit = bit as usize & (self.bits.len() * 64 - 1);
        Some((bit / 64, 1 << (bit % 64)))
    }
}

/// Bits per filter: about 6 of 100 unrelated topics then have a bit in `bits`.
const BITS_A_FILTER: usize = 16;
/// Longest prefix, 16 bytes, as a power of two.
const LEN_MAX: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use mqtt::filter_matches;

    /// All topics of one to three levels with the level names `of`.
    fn names(of: &[&str]) -> Vec<String> {
        let mut all: Vec<String> = of.iter().map(|name| name.to_string()).collect();
        let mut from = 0;
        for _ in 0..2 {
            let to = all.len();
            for at in from..to {
                all.extend(of.iter().map(|name| format!("{}/{name}", all[at])).collect::<Vec<_>>());
            }
            from = to;
        }
        all
    }

    #[test]
    fn what_a_filter_matches_is_never_told_from_it() {
        let filters = names(&["", "a", "a-level", "+"]);
        let topics = names(&["", "a", "b", "a-level", "$a"]);
        for filter in filters.iter().flat_map(|filter| [filter.clone(), format!("{filter}/#")]) {
            let heads = PrefixFilter::new(&[&filter]);
            for topic in &topics {
                assert!(
                    heads.may_match(topic) || !filter_matches(&filter, topic),
                    "{filter} {topic}"
                );
            }
        }
    }

    #[test]
    fn most_others_are() {
        let filters: Vec<String> = (0..1000).map(|at| format!("site/{at}/+/value")).collect();
        let filters: Vec<&str> = filters.iter().map(|filter| &**filter).collect();
        let heads = PrefixFilter::new(&filters);
        let taken = (0..1000).filter(|at| heads.may_match(&format!("{at}/bench"))).count();
        assert!(taken < 200, "{taken}");
        assert!(!PrefixFilter::new(&[]).may_match("a"));
        assert!(PrefixFilter::new(&["#"]).may_match("a"));
    }
}
