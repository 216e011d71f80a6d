//! What must outlive the process: ordered keys and values in named spaces, written a batch at a
//! time. Nothing here knows what a packet is; records and recovery stand above.
//!
//! A batch is all or nothing, and batches have an order: [`Seq`]. What was committed may be read
//! at once; it is kept for good once `durable` has reached its `Seq`.
#![forbid(unsafe_code)]

mod memory;

pub use memory::Memory;

/// The place of a batch in the order of all batches; the first is 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seq(pub u64);

/// Keys of different spaces never meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Space {
    Messages,
    Queues,
    Retained,
    Sessions,
}

/// One tick's changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    changes: Vec<Change>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Change {
    space: Space,
    key: Vec<u8>,
    /// None removes the key.
    value: Option<Vec<u8>>,
}

/// Our own trouble with what is below us.
#[derive(Debug)]
pub enum Fault {
    Disk(std::io::Error),
    /// The quota of the store is used up; nothing of the batch was written.
    Full,
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Fault::Disk(fault) => write!(f, "the disk: {fault}"),
            Fault::Full => f.write_str("the store is full"),
        }
    }
}

impl std::error::Error for Fault {}

/// What `scan` calls for each pair; false stops it.
pub type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> bool + 'a;

pub trait Store: Send {
    /// Writes the whole batch or, on a fault, nothing of it.
    fn commit(&mut self, batch: Batch) -> Result<Seq, Fault>;

    /// The last batch that survives whatever happens now.
    fn durable(&self) -> Seq;

    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Vec<u8>>, Fault>;

    /// Visits the keys that begin with `prefix` and are not below `from`, in order.
    fn scan(
        &self,
        space: Space,
        prefix: &[u8],
        from: &[u8],
        visit: &mut Visit<'_>,
    ) -> Result<(), Fault>;
}

impl Batch {
    pub fn put(&mut self, space: Space, key: Vec<u8>, value: Vec<u8>) {
        self.changes.push(Change { space, key, value: Some(value) });
    }

    pub fn remove(&mut self, space: Space, key: Vec<u8>) {
        self.changes.push(Change { space, key, value: None });
    }

    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Key and value bytes: what a quota counts.
    pub fn bytes(&self) -> usize {
        let value = |change: &Change| change.value.as_ref().map_or(0, Vec::len);
        self.changes.iter().map(|change| change.key.len() + value(change)).sum()
    }
}
