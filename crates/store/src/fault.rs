//! Errors of the store, [`Fault`], and the parts of a store which can be damaged, [`StoreDamage`].

use crate::BatchSeq;
use std::fmt;
use std::io;
use std::path::PathBuf;

/// An error of the store: a refused commit, a failed read, or a store that cannot be opened.
#[derive(Debug)]
pub enum Fault {
    /// The store was closed; a remaining `StoreHandle` accepts no more commits.
    Closed,
    /// The stored data differ from the data that were written. An open with `StoreOptions::repair`
    /// continues without the damaged parts.
    Damaged(Vec<StoreDamage>),
    Disk(io::Error),
    /// No room: the quota, the disk, or the bound of bytes which wait for the disk. The batch was
    /// not committed. Later commits succeed once there is room again.
    Full,
    /// Another process has locked the folder.
    Locked(PathBuf),
    /// The store was written in a format that this program does not know.
    Version(u32),
}

/// A part of the store that is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreDamage {
    /// Batches that were durable, both ends included.
    Batches { from: BatchSeq, to: BatchSeq },
    /// The keys and values of one block, at byte `at` of the table.
    Block { table: u64, at: u64 },
    /// The index of a table. The first `blocks` blocks are readable without it, up to the first
    /// block with a wrong checksum.
    Index { table: u64, blocks: u64 },
    /// The manifest, which lists the tables of the store.
    Manifest,
    /// The file with the last durable `BatchSeq`.
    DurableMark,
    /// A whole table: the file is missing, or neither index nor first block is readable.
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

/// Whether an error means that a disk, a quota or a file cannot grow.
pub(crate) fn is_full(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(kind, FileTooLarge | QuotaExceeded | StorageFull)
}
