//! The shards with subscribers of a topic: one table for the process, wait-free to read.
//!
//! A filter without wildcards sets its shard's bit in the bucket of its hash. A wildcard filter has
//! a `FilterShape` (positions of `+`, depth, whether it ends in `#`) and sets the bit in the bucket
//! of its literal levels; a topic is looked up once per shape in use. A shard counts its own
//! filters per bucket and is the only writer of its bits. A false hit costs a forward; a miss is
//! impossible once the bit is set, and the broker sends SUBACK only after that.
//!
//! The table grows by generations. Every shard enters its filters into the next generation before
//! any shard reads it. Old generations stay allocated: together a third of the newest.

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::hash::BuildHasher;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize};

const BUCKETS_FIRST: usize = 4096;
const GENERATIONS: usize = 8;
const SHAPES_MAX: usize = 64;
/// Depth up to which a shape records `+`. A filter with a deeper `+` has no shape: such filters are
/// rare, and their shard receives every message.
const PLUS_LEVELS: u32 = 32;

/// The filters of all shards in a process, as a table of bits. Each shard writes only its own bits.
#[derive(Debug)]
pub struct Interest {
    seed: u64,
    shards: u32,
    tables: [OnceLock<Box<[AtomicU64]>>; GENERATIONS],
    joined: [AtomicU32; GENERATIONS],
    /// The generation which readers use.
    current: AtomicUsize,
    /// The generation which shards have to enter their filters into.
    wanted: AtomicUsize,
    /// A `FilterShape` in the low 56 bits, and the number of shards which use the shape above.
    shapes: [AtomicU64; SHAPES_MAX],
    /// Number of places in `shapes` up to the last one ever used.
    shapes_len: AtomicUsize,
    /// Bits of the shards with filters outside `shapes`, which receive every message.
    everything: AtomicU64,
    /// Bits of the shards with sessions that outlive the process.
    persistent: AtomicU64,
    /// Bits of the shards that own a shared group.
    grouped: AtomicU64,
}

/// Bits 0..32 are the levels with `+`, 32..48 the depth without `#`, 48 is set if the filter ends
/// in `#`, 49 is always set, so that a shape is never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct FilterShape(u64);

const SHAPE_BITS: u64 = (1 << 56) - 1;
const SHARD_ONE: u64 = 1 << 56;

impl FilterShape {
    fn of_filter(filter: &str) -> Option<FilterShape> {
        let (mut plus, mut depth, mut hash) = (0_u64, 0_u64, 0_u64);
        for level in filter.split('/') {
            if level == "#" {
                hash = 1 << 48;
                break;
            }
            if level == "+" {
                plus |= (depth < u64::from(PLUS_LEVELS)).then_some(1 << depth)?;
            }
            depth += 1;
        }
        (depth < 1 << 16).then_some(FilterShape(plus | depth << 32 | hash | 1 << 49))
    }

    fn depth(self) -> usize {
        (self.0 >> 32 & 0xffff) as usize
    }

    fn has_hash(self) -> bool {
        self.0 >> 48 & 1 == 1
    }

    fn is_plus(self, level: usize) -> bool {
        level < PLUS_LEVELS as usize && self.0 >> level & 1 == 1
    }

    fn fits(self, levels: usize) -> bool {
        if self.has_hash() { levels >= self.depth() } else { levels == self.depth() }
    }
}

/// The entries of one shard in the shared tables of [`Interest`].
#[derive(Debug, Default)]
pub(crate) struct ShardInterest {
    /// Number of filters by bucket, in the present generation and in the next.
    counts: [HashMap<u32, u32, FixedState>; 2],
    shapes: HashMap<u64, u32, FixedState>,
    shapeless: u32,
    generation: usize,
    /// The generation of `counts[1]`, once the shard has entered its filters.
    next: Option<usize>,
}

impl Interest {
    pub fn new(seed: u64, shards: usize) -> Interest {
        assert!((1..=crate::limits::SHARDS_MAX).contains(&shards), "a shard has one bit");
        let interest = Interest {
            seed,
            shards: shards as u32,
            tables: std::array::from_fn(|_| OnceLock::new()),
            joined: std::array::from_fn(|_| AtomicU32::new(0)),
            current: AtomicUsize::new(0),
            wanted: AtomicUsize::new(0),
            shapes: std::array::from_fn(|_| AtomicU64::new(0)),
            shapes_len: AtomicUsize::new(0),
            everything: AtomicU64::new(0),
            persistent: AtomicU64::new(0),
            grouped: AtomicU64::new(0),
        };
        interest.table(0);
        interest
    }

    fn table(&self, generation: usize) -> &[AtomicU64] {
        self.tables[generation].get_or_init(|| {
            (0..BUCKETS_FIRST << (2 * generation)).map(|_| AtomicU64::new(0)).collect()
        })
    }

    /// Returns the shards which may have subscribers of this topic, one bit each. `levels` is a
    /// scratch buffer.
    pub(crate) fn interested_shards(&self, topic: &str, levels: &mut Vec<u64>) -> u64 {
        let table = self.table(self.current.load(SeqCst));
        let at = |hash: u64| table[(hash as usize) & (table.len() - 1)].load(SeqCst);
        let hasher = FixedState::with_seed(self.seed);
        let mut shards = self.everything.load(SeqCst) | at(hasher.hash_one(topic));
        let shapes = self.shapes_len.load(SeqCst);
        if shapes > 0 {
            levels.clear();
            levels.extend(topic.split('/').map(|level| hasher.hash_one(level)));
        }
        for shape in &self.shapes[..shapes] {
            let shape = FilterShape(shape.load(SeqCst) & SHAPE_BITS);
            if shape.0 != 0 && shape.fits(levels.len()) {
                shards |= at(hash_literals(shape, levels));
            }
        }
        shards
    }

    /// Whether any session of the shard outlives the process. The bit is set before the SUBACK of
    /// the session.
    pub(crate) fn has_persistent(&self, shard: u8) -> bool {
        self.persistent.load(SeqCst) >> shard & 1 == 1
    }

    pub(crate) fn set_persistent(&self, shard: u8, any: bool) {
        set_shard_bit(&self.persistent, shard, any);
    }

    /// Whether any shard owns a shared group. The bit is set before the SUBACK of the first member.
    pub(crate) fn has_groups(&self) -> bool {
        self.grouped.load(SeqCst) != 0
    }

    pub(crate) fn set_grouped(&self, shard: u8, any: bool) {
        set_shard_bit(&self.grouped, shard, any);
    }

    fn hash_of(&self, filter: &str, shape: Option<FilterShape>) -> u64 {
        let hasher = FixedState::with_seed(self.seed);
        let Some(shape) = shape else { return hasher.hash_one(filter) };
        let levels: Vec<u64> = filter.split('/').map(|level| hasher.hash_one(level)).collect();
        hash_literals(shape, &levels)
    }

    /// Adds a filter of this shard. All shards see the interest once the call returns.
    pub(crate) fn add(&self, shard: u8, filter: &str, interest: &mut ShardInterest) {
        let Some(hash) = self.enter_shape(shard, filter, interest) else { return };
        self.count(shard, hash, interest, 0);
        if interest.next.is_some() {
            self.count(shard, hash, interest, 1);
        }
        let buckets = self.table(interest.generation).len();
        let crowded = interest.counts[0].len() * self.shards as usize > buckets / 4;
        if crowded && interest.generation + 1 < GENERATIONS {
            let _ = self.wanted.compare_exchange(
                interest.generation,
                interest.generation + 1,
                SeqCst,
                SeqCst,
            );
        }
    }

    fn count(&self, shard: u8, hash: u64, interest: &mut ShardInterest, which: usize) {
        let generation = if which == 0 { interest.generation } else { interest.next.unwrap_or(0) };
        let table = self.table(generation);
        let bucket = hash as usize & (table.len() - 1);
        let count = interest.counts[which].entry(bucket as u32).or_insert(0);
        *count += 1;
        if *count == 1 {
            table[bucket].fetch_or(1 << shard, SeqCst);
        }
    }

    fn uncount(&self, shard: u8, hash: u64, interest: &mut ShardInterest, which: usize) {
        let generation = if which == 0 { interest.generation } else { interest.next.unwrap_or(0) };
        let table = self.table(generation);
        let bucket = hash as usize & (table.len() - 1);
        let Some(count) = interest.counts[which].get_mut(&(bucket as u32)) else { return };
        *count -= 1;
        if *count == 0 {
            interest.counts[which].remove(&(bucket as u32));
            if interest.counts[which].is_empty() {
                interest.counts[which] = HashMap::default();
            }
            table[bucket].fetch_and(!(1 << shard), SeqCst);
        }
    }

    pub(crate) fn remove(&self, shard: u8, filter: &str, interest: &mut ShardInterest) {
        let wildcard = crate::routing::topics::is_wildcard(filter);
        let shape = if wildcard { FilterShape::of_filter(filter) } else { None };
        if wildcard && shape.is_none_or(|shape| !interest.shapes.contains_key(&shape.0)) {
            interest.shapeless -= 1;
            if interest.shapeless == 0 {
                self.everything.fetch_and(!(1 << shard), SeqCst);
            }
            return;
        }
        let hash = self.hash_of(filter, shape);
        self.uncount(shard, hash, interest, 0);
        if interest.next.is_some() {
            self.uncount(shard, hash, interest, 1);
        }
        if let Some(shape) = shape {
            self.leave_shape(shape, interest);
        }
    }

    /// Returns the hash to count the filter under, or `None` if the shard must receive every
    /// message.
    fn enter_shape(&self, shard: u8, filter: &str, interest: &mut ShardInterest) -> Option<u64> {
        if !crate::routing::topics::is_wildcard(filter) {
            return Some(self.hash_of(filter, None));
        }
        let shape = FilterShape::of_filter(filter).filter(|&shape| {
            // Once a filter of a shape found no place, later filters of that shape must not get one
            // either, or `remove` could not distinguish them.
            interest.shapes.contains_key(&shape.0)
                || (interest.shapeless == 0 && self.claim_shape(shape))
        });
        let Some(shape) = shape else {
            interest.shapeless += 1;
            self.everything.fetch_or(1 << shard, SeqCst);
            return None;
        };
        *interest.shapes.entry(shape.0).or_insert(0) += 1;
        Some(self.hash_of(filter, Some(shape)))
    }

    /// Counts this shard as a user of a shape. Returns `false` if all `SHAPES_MAX` places are used.
    fn claim_shape(&self, shape: FilterShape) -> bool {
        let mut free = None;
        for (at, place) in self.shapes.iter().enumerate() {
            let mut held = place.load(SeqCst);
            while held & SHAPE_BITS == shape.0 {
                match place.compare_exchange(held, held + SHARD_ONE, SeqCst, SeqCst) {
                    Ok(_) => return true,
                    Err(now) => held = now,
                }
            }
            if held == 0 && free.is_none() {
                free = Some(at);
            }
        }
        let Some(at) = free else { return false };
        // Raised first: a reader must look up every shape which another shard has found claimed.
        self.shapes_len.fetch_max(at + 1, SeqCst);
        if self.shapes[at].compare_exchange(0, shape.0 | SHARD_ONE, SeqCst, SeqCst).is_err() {
            return self.claim_shape(shape);
        }
        true
    }

    fn leave_shape(&self, shape: FilterShape, interest: &mut ShardInterest) {
        let Some(count) = interest.shapes.get_mut(&shape.0) else { return };
        *count -= 1;
        if *count > 0 {
            return;
        }
        interest.shapes.remove(&shape.0);
        // Two shards may have claimed two places for one shape: releasing either is correct.
        for place in &self.shapes {
            let mut held = place.load(SeqCst);
            while held & SHAPE_BITS == shape.0 {
                let left = held - SHARD_ONE;
                let left = if left & !SHAPE_BITS == 0 { 0 } else { left };
                match place.compare_exchange(held, left, SeqCst, SeqCst) {
                    Ok(_) => return,
                    Err(now) => held = now,
                }
            }
        }
    }

    /// Enters this shard's filters into the next generation when the table grows. Called once per
    /// tick, cheap if the table does not grow.
    pub(crate) fn follow_growth<'a>(
        &self,
        shard: u8,
        interest: &mut ShardInterest,
        filters: impl Iterator<Item = &'a str>,
    ) {
        let wanted = self.wanted.load(SeqCst);
        if interest.next.is_none() && wanted > interest.generation {
            interest.next = Some(interest.generation + 1);
            for filter in filters {
                let shape = crate::routing::topics::is_wildcard(filter)
                    .then(|| FilterShape::of_filter(filter))
                    .flatten();
                let shapeless = crate::routing::topics::is_wildcard(filter)
                    && shape.is_none_or(|shape| !interest.shapes.contains_key(&shape.0));
                if !shapeless {
                    let hash = self.hash_of(filter, shape);
                    self.count(shard, hash, interest, 1);
                }
            }
            let next = interest.generation + 1;
            if self.joined[next].fetch_add(1, SeqCst) + 1 == self.shards {
                self.current.store(next, SeqCst);
            }
        }
        if let Some(next) = interest.next
            && self.current.load(SeqCst) >= next
        {
            interest.counts[0] = std::mem::take(&mut interest.counts[1]);
            interest.generation = next;
            interest.next = None;
        }
    }
}

fn hash_literals(shape: FilterShape, levels: &[u64]) -> u64 {
    let mut hash = shape.0;
    for (at, level) in levels.iter().take(shape.depth()).enumerate() {
        if !shape.is_plus(at) {
            hash = (hash.rotate_left(5) ^ level).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
    }
    hash ^ hash >> 32
}

fn set_shard_bit(bits: &AtomicU64, shard: u8, any: bool) {
    match any {
        true => bits.fetch_or(1 << shard, SeqCst),
        false => bits.fetch_and(!(1 << shard), SeqCst),
    };
}
