//! Our own trouble with what is below us, and what of a store can be damaged.

use crate::BatchSeq;
use std::fmt;
use std::io;
use std::path::PathBuf;

#[derive(Debug)]
pub enum Fault {
    /// The store has ended; a handle that outlives it takes nothing more.
    Closed,
    /// The stored data differ from the data that were written. An open with `repair` goes on
    /// without the damaged part.
    Damaged(Vec<StoreDamage>),
    Disk(io::Error),
    /// No room: the quota, the disk, or what may wait for the disk. Nothing of the batch was taken,
    /// and the store has room again by itself once there is some.
    Full,
    /// Another process has the folder.
    Locked(PathBuf),
    /// The store was written in a format that this program does not know.
    Version(u32),
}

/// A part of the store that is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreDamage {
    /// Batches that were durable, both ends included.
    Batches { from: BatchSeq, to: BatchSeq },
    /// The keys and values of one block.
    Block { table: u64, at: u64 },
    /// The index of a table. The first `blocks` blocks can be read without it, up to one that does
    /// not match its checksum.
    Index { table: u64, blocks: u64 },
    /// The file that says which tables belong to the store.
    Manifest,
    /// The file with the last durable Seq.
    DurableMark,
    /// A whole table.
    Table { table: u64 },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Closed => f.write_str("the store is closed"),
            Fault::Damaged(damage) => {
                f.write_str("the store is damaged: ")?;
                for (n, damage) in damage.iter().enumerate() {
                    write!(f, "{}{damage}", if n == 0 { "" } else { "; " })?;
                }
                Ok(())
            }
            Fault::Disk(fault) => write!(f, "the disk: {fault}"),
            Fault::Full => f.write_str("the store is full"),
            Fault::Locked(path) => {
                write!(f, "another process uses the data folder {}", path.display())
            }
            Fault::Version(version) => write!(
                f,
                "the store has format {version}, and this program knows format {} alone: use the \
                 program that wrote it to export the data",
                crate::manifest::VERSION
            ),
        }
    }
}

impl std::error::Error for Fault {}

impl From<io::Error> for Fault {
    fn from(fault: io::Error) -> Fault {
        match fault.kind() {
            kind if is_full(kind) => Fault::Full,
            _ => Fault::Disk(fault),
        }
    }
}

impl fmt::Display for StoreDamage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreDamage::Batches { from, to } if from == to => {
                write!(f, "batch {} is missing", from.0)
            }
            StoreDamage::Batches { from, to } => {
                write!(f, "batches {} to {} are missing", from.0, to.0)
            }
            StoreDamage::Block { table, at } => {
                write!(f, "the block at byte {at} of table.{table} does not match its checksum")
            }
            StoreDamage::Index { table, blocks } => write!(
                f,
                "table.{table} has no readable index, and {blocks} blocks can be read without it"
            ),
            StoreDamage::Manifest => f.write_str("the file store is missing or unreadable"),
            StoreDamage::DurableMark => f.write_str("the file mark is missing or unreadable"),
            StoreDamage::Table { table } => write!(f, "table.{table} is missing or unreadable"),
        }
    }
}

/// The kinds of a disk, a quota and a file that cannot take more.
pub(crate) fn is_full(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(kind, FileTooLarge | QuotaExceeded | StorageFull)
}
