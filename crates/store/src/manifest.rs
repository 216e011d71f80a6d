//! The files `store`, a [`Manifest`] of the tables, and `mark`, the last durable batch. The format
//! is specified in docs/store-format.md.

use crate::Fault;
use crate::crc::crc;
use crate::files::{StoreFile, StoreFolder, read_file};
use crate::log_record::take_array;
use std::io;

/// The tables of the store, and the last batch of which they hold all changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Manifest {
    /// Random number, chosen when the store is created.
    pub id: u64,
    pub flushed: u64,
    /// The number of the next table.
    pub number_next: u64,
    /// Numbers and lengths of the tables, oldest first.
    pub tables: Vec<(u64, u64)>,
}

impl Manifest {
    /// Replaces the manifest atomically and durably.
    pub(crate) fn save(&self, folder: &dyn StoreFolder) -> io::Result<()> {
        self.replace(folder)?;
        folder.sync()
    }

    /// Replaces the manifest without a final sync of the folder: a power cut may restore the old
    /// manifest. On a fault the old manifest stays.
    pub(crate) fn replace(&self, folder: &dyn StoreFolder) -> io::Result<()> {
        let mut body = Vec::new();
        for number in [self.id, self.flushed, self.number_next, self.tables.len() as u64] {
            body.extend_from_slice(&number.to_le_bytes());
        }
        for (number, bytes) in &self.tables {
            body.extend_from_slice(&number.to_le_bytes());
            body.extend_from_slice(&bytes.to_le_bytes());
        }
        let mut whole = MAGIC.to_vec();
        whole.extend_from_slice(&VERSION.to_le_bytes());
        whole.extend_from_slice(&crc(&[&body]).to_le_bytes());
        whole.extend_from_slice(&body);
        let file = folder.create(MANIFEST_NEW)?;
        file.write_at(0, &whole)?;
        file.sync()?;
        // The file system may sync names in any order, so the tables' names are synced before the
        // name of a manifest which lists them.
        folder.sync()?;
        folder.rename(MANIFEST_NEW, MANIFEST)
    }

    /// Loads the manifest. Returns `None` if the file is malformed.
    pub(crate) fn load(folder: &dyn StoreFolder) -> Result<Option<Manifest>, Fault> {
        let bytes = read_file(folder, MANIFEST).map_err(Fault::Disk)?;
        let mut rest = &bytes[..];
        if take_array(&mut rest) != Some(*MAGIC) {
            return Ok(None);
        }
        // Checked before the checksum, since another format may have another checksum.
        match take_array(&mut rest).map(u32::from_le_bytes) {
            Some(VERSION) => Ok(Manifest::parse(rest)),
            Some(version) => Err(Fault::Version(version)),
            None => Ok(None),
        }
    }

    fn parse(mut rest: &[u8]) -> Option<Manifest> {
        let sum = u32::from_le_bytes(take_array(&mut rest)?);
        if crc(&[rest]) != sum {
            return None;
        }
        let mut number = || take_array(&mut rest).map(u64::from_le_bytes);
        let (id, flushed, number_next, count) = (number()?, number()?, number()?, number()?);
        let mut tables = Vec::new();
        for _ in 0..count {
            tables.push((number()?, number()?));
        }
        Some(Manifest { id, flushed, number_next, tables })
    }
}

/// The last batch known to be durable. A gap below it is damage, and a gap above it a torn tail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DurableMark {
    pub id: u64,
    pub seq: u64,
}

impl DurableMark {
    pub(crate) fn create(self, folder: &dyn StoreFolder) -> io::Result<()> {
        let file = folder.create(MARK)?;
        self.write(&*file, 0)?;
        self.write(&*file, 1)?;
        file.sync()?;
        folder.sync()
    }

    /// Writes one of two slots in turn, so that a torn write leaves the other slot intact.
    pub(crate) fn write(self, file: &dyn StoreFile, turn: u64) -> io::Result<()> {
        let mut slot = [0; 24];
        slot[8..16].copy_from_slice(&self.id.to_le_bytes());
        slot[16..].copy_from_slice(&self.seq.to_le_bytes());
        slot[..4].copy_from_slice(MARK_MAGIC);
        let sum = crc(&[&slot[8..]]).to_le_bytes();
        slot[4..8].copy_from_slice(&sum);
        file.write_at(turn % 2 * SLOT, &slot)
    }

    /// Returns the later of the valid slots.
    pub(crate) fn load(folder: &dyn StoreFolder) -> io::Result<Option<DurableMark>> {
        let bytes = read_file(folder, MARK)?;
        let slots = [bytes.get(..), bytes.get(SLOT as usize..)];
        Ok(slots.into_iter().flatten().filter_map(DurableMark::parse).max_by_key(|mark| mark.seq))
    }

    fn parse(mut rest: &[u8]) -> Option<DurableMark> {
        let magic = take_array::<4>(&mut rest)?;
        let sum = u32::from_le_bytes(take_array(&mut rest)?);
        let held = magic == *MARK_MAGIC && crc(&[rest.get(..16)?]) == sum;
        let id = u64::from_le_bytes(take_array(&mut rest)?);
        held.then_some(DurableMark { id, seq: u64::from_le_bytes(take_array(&mut rest)?) })
    }
}

pub(crate) const VERSION: u32 = 1;
pub(crate) const MANIFEST: &str = "store";
pub(crate) const MANIFEST_NEW: &str = "store.new";
pub(crate) const MARK: &str = "mark";
const MAGIC: &[u8; 8] = b"GODWITST";
const MARK_MAGIC: &[u8; 4] = b"GWMK";

/// Distance of the two slots in bytes. At least a sector of any disk, so that one write never
/// affects both.
const SLOT: u64 = 4096;
