//! A sorted, immutable file of keys and values, and a [`MergeIterator`] over several sources. The
//! format is specified in docs/store-format.md.

use crate::crc::crc;
use crate::files::{StoreFile, StoreFolder};
use crate::log_record::{REMOVED, take_array};
use crate::{Fault, StoreDamage};
use crc32fast::Hasher;
use std::io;
use std::sync::Arc;

/// A key with its space as the first byte, and its value; `None` where the key was removed.
pub(crate) type KeyValuePair = (Vec<u8>, Option<Vec<u8>>);

/// A table whose index is in memory; its blocks stay on the disk.
pub(crate) struct SortedTable {
    file: Box<dyn StoreFile>,
    id: u64,
    pub number: u64,
    pub bytes: u64,
    /// The last batch with a change in this table.
    pub last: u64,
    pub entries: u64,
    pub removals: u64,
    /// Whether the index was read from the file, or recovered by `open_without_index`.
    pub has_index: bool,
    blocks: Vec<BlockIndexEntry>,
}

/// Position and first key of a block.
struct BlockIndexEntry {
    at: u64,
    len: u32,
    first: Box<[u8]>,
}

impl SortedTable {
    /// Opens a table. Returns `None` if the file is not a complete table of this store.
    pub(crate) fn open(
        folder: &dyn StoreFolder,
        id: u64,
        number: u64,
    ) -> io::Result<Option<SortedTable>> {
        let file = folder.open(&table_file_name(number))?;
        let bytes = file.bytes()?;
        let Some(foot_at) = bytes.checked_sub(FOOT as u64) else {
            return Ok(None);
        };
        let mut foot = [0; FOOT];
        file.read_at(foot_at, &mut foot)?;
        let mut rest = &foot[8..];
        let mut field = || take_array(&mut rest).map_or(0, u64::from_le_bytes);
        let (index_at, of, last, entries, removals) = (field(), field(), field(), field(), field());
        let Some(index_len) = foot_at.checked_sub(index_at) else {
            return Ok(None);
        };
        let mut index = vec![0; usize::try_from(index_len).map_err(io::Error::other)?];
        file.read_at(index_at, &mut index)?;
        let sum = crc(&[&id.to_le_bytes(), &index, &foot[8..]]).to_le_bytes();
        if foot[..4] != *MAGIC || foot[4..8] != sum || of != number {
            return Ok(None);
        }
        let blocks = parse_index(&index);
        let table = |blocks| {
            let has_index = true;
            SortedTable { file, id, number, bytes, last, entries, removals, has_index, blocks }
        };
        Ok(blocks.map(table))
    }

    /// Opens a table whose index is lost, block by block from the start: a block ends where its
    /// checksum matches. Returns `None` if there is no such block.
    pub(crate) fn open_without_index(
        folder: &dyn StoreFolder,
        id: u64,
        number: u64,
        last: u64,
    ) -> io::Result<Option<SortedTable>> {
        let file = folder.open(&table_file_name(number))?;
        let bytes = file.bytes()?;
        let (mut entries, mut removals, mut blocks) = (0, 0, Vec::new());
        let mut at = 0;
        while let Some(found) = find_block(&*file, id, at, bytes)? {
            blocks.push(BlockIndexEntry { at, len: found.len, first: found.first });
            at += u64::from(found.len);
            (entries, removals) = (entries + found.entries, removals + found.removals);
        }
        let has_index = false;
        let table =
            SortedTable { file, id, number, bytes, last, entries, removals, has_index, blocks };
        Ok((!table.blocks.is_empty()).then_some(table))
    }

    pub(crate) fn blocks(&self) -> u64 {
        self.blocks.len() as u64
    }

    pub(crate) fn find(&self, key: &[u8]) -> Result<Option<Option<Vec<u8>>>, Fault> {
        let Some(n) = self.blocks.partition_point(|block| *block.first <= *key).checked_sub(1)
        else {
            return Ok(None);
        };
        let bytes = self.block(n)?;
        let mut rest = &bytes[..];
        while let Some((found, value)) = read_entry(&mut rest) {
            if found >= key {
                return Ok((found == key).then(|| value.map(<[u8]>::to_vec)));
            }
        }
        Ok(None)
    }

    /// Iterates over the pairs from `key` on.
    pub(crate) fn pairs_from(self: &Arc<SortedTable>, key: &[u8]) -> TableCursor {
        let after = self.blocks.partition_point(|block| *block.first <= *key);
        let next = after.saturating_sub(1);
        let table = Arc::clone(self);
        TableCursor { table, next, bytes: Vec::new(), at: 0, skip_below: key.to_vec() }
    }

    /// Appends all blocks with a wrong checksum to `found`.
    pub(crate) fn verify(&self, found: &mut Vec<StoreDamage>) -> Result<(), Fault> {
        for n in 0..self.blocks.len() {
            match self.block(n) {
                Ok(_) => {}
                Err(Fault::Damaged(damage)) => found.extend(damage),
                Err(fault) => return Err(fault),
            }
        }
        Ok(())
    }

    fn block(&self, n: usize) -> Result<Vec<u8>, Fault> {
        let block = &self.blocks[n];
        let damaged =
            || Fault::Damaged(vec![StoreDamage::Block { table: self.number, at: block.at }]);
        let mut bytes = vec![0; block.len as usize];
        match self.file.read_at(block.at, &mut bytes) {
            Ok(()) => {}
            Err(fault) if fault.kind() == io::ErrorKind::UnexpectedEof => return Err(damaged()),
            Err(fault) => return Err(Fault::Disk(fault)),
        }
        let sum = bytes.split_last_chunk::<4>().map(|(_, sum)| *sum);
        bytes.truncate(bytes.len().saturating_sub(4));
        if sum
            != Some(crc(&[&self.id.to_le_bytes(), &block.at.to_le_bytes(), &bytes]).to_le_bytes())
        {
            return Err(damaged());
        }
        Ok(bytes)
    }
}

/// A block found by its checksum, for a table without index.
struct ScannedBlock {
    len: u32,
    first: Box<[u8]>,
    entries: u64,
    removals: u64,
}

/// Finds the end of the block that begins at `at`, in a file of `of` bytes, by reading entries
/// until the checksum of the block follows. Returns `None` if no valid block begins there.
fn find_block(file: &dyn StoreFile, id: u64, at: u64, of: u64) -> io::Result<Option<ScannedBlock>> {
    let mut len = 2 * BLOCK as u64;
    loop {
        let here = len.min(of - at);
        let mut bytes = vec![0; here as usize];
        file.read_at(at, &mut bytes)?;
        let found = read_block(&bytes, id, at);
        if found.is_some() || here < len || len > BLOCK_MAX {
            return Ok(found);
        }
        // A long value can exceed the target size of a block.
        len *= 4;
    }
}

fn read_block(bytes: &[u8], id: u64, at: u64) -> Option<ScannedBlock> {
    let mut sum = Hasher::new();
    sum.update(&id.to_le_bytes());
    sum.update(&at.to_le_bytes());
    let (mut rest, mut first, mut entries, mut removals) = (bytes, None, 0, 0);
    loop {
        let before = rest;
        let (key, value) = read_entry(&mut rest)?;
        sum.update(&before[..before.len() - rest.len()]);
        let first = *first.get_or_insert(key);
        entries += 1;
        removals += u64::from(value.is_none());
        if rest.first_chunk() == Some(&sum.clone().finalize().to_le_bytes()) {
            let len = (bytes.len() - rest.len() + 4) as u32;
            return Some(ScannedBlock { len, first: first.into(), entries, removals });
        }
    }
}

fn parse_index(mut rest: &[u8]) -> Option<Vec<BlockIndexEntry>> {
    let mut blocks = Vec::new();
    while !rest.is_empty() {
        let at = u64::from_le_bytes(take_array(&mut rest)?);
        let len = u32::from_le_bytes(take_array(&mut rest)?);
        let key_len = u32::from_le_bytes(take_array(&mut rest)?) as usize;
        blocks.push(BlockIndexEntry { at, len, first: rest.split_off(..key_len)?.into() });
    }
    Some(blocks)
}

fn read_entry<'a>(rest: &mut &'a [u8]) -> Option<(&'a [u8], Option<&'a [u8]>)> {
    let key_len = u32::from_le_bytes(take_array(rest)?) as usize;
    let value_len = u32::from_le_bytes(take_array(rest)?);
    let key = rest.split_off(..key_len)?;
    match value_len {
        REMOVED => Some((key, None)),
        len => Some((key, Some(rest.split_off(..len as usize)?))),
    }
}

/// Iterates over a table, one block at a time.
pub(crate) struct TableCursor {
    table: Arc<SortedTable>,
    /// Index of the block after the one in `bytes`.
    next: usize,
    bytes: Vec<u8>,
    at: usize,
    skip_below: Vec<u8>,
}

impl Iterator for TableCursor {
    type Item = Result<KeyValuePair, Fault>;

    fn next(&mut self) -> Option<Result<KeyValuePair, Fault>> {
        loop {
            let mut rest = &self.bytes[self.at..];
            while let Some((key, value)) = read_entry(&mut rest) {
                self.at = self.bytes.len() - rest.len();
                if *key >= *self.skip_below {
                    return Some(Ok((key.to_vec(), value.map(<[u8]>::to_vec))));
                }
            }
            if self.next == self.table.blocks.len() {
                return None;
            }
            // A caller which continues after a fault skips the unreadable block.
            self.next += 1;
            self.at = 0;
            match self.table.block(self.next - 1) {
                Ok(bytes) => self.bytes = bytes,
                Err(fault) => {
                    self.bytes.clear();
                    return Some(Err(fault));
                }
            }
        }
    }
}

/// Merges sorted sources. For equal keys the pair of the first source wins.
pub(crate) struct MergeIterator<'a> {
    sources: Vec<PairSource<'a>>,
    heads: Vec<Option<KeyValuePair>>,
}

pub(crate) type PairSource<'a> = Box<dyn Iterator<Item = Result<KeyValuePair, Fault>> + 'a>;

impl<'a> MergeIterator<'a> {
    pub(crate) fn new(sources: Vec<PairSource<'a>>) -> Result<MergeIterator<'a>, Fault> {
        let heads = sources.iter().map(|_| None).collect();
        let mut merge = MergeIterator { sources, heads };
        for n in 0..merge.sources.len() {
            merge.pull(n)?;
        }
        Ok(merge)
    }

    fn pull(&mut self, n: usize) -> Result<Option<KeyValuePair>, Fault> {
        let next = self.sources[n].next().transpose()?;
        Ok(std::mem::replace(&mut self.heads[n], next))
    }

    fn next_pair(&mut self) -> Result<Option<KeyValuePair>, Fault> {
        let live = self.heads.iter().enumerate().filter_map(|(n, head)| Some((n, head.as_ref()?)));
        let Some((first, _)) = live.min_by(|(_, a), (_, b)| a.0.cmp(&b.0)) else {
            return Ok(None);
        };
        let pair = self.pull(first)?;
        for n in first + 1..self.heads.len() {
            if self.heads[n].as_ref().map(|head| &head.0) == pair.as_ref().map(|pair| &pair.0) {
                self.pull(n)?;
            }
        }
        Ok(pair)
    }
}

impl Iterator for MergeIterator<'_> {
    type Item = Result<KeyValuePair, Fault>;

    fn next(&mut self) -> Option<Result<KeyValuePair, Fault>> {
        self.next_pair().transpose()
    }
}

/// A table while it is written. An unfinished file is in no manifest, and the next open removes it.
pub(crate) struct TableBuilder {
    file: Box<dyn StoreFile>,
    id: u64,
    number: u64,
    last: u64,
    /// Bytes already written to the file, and bytes which are not.
    written: u64,
    bytes: Vec<u8>,
    /// Start in `bytes` of the block that is being filled. Complete blocks are before it.
    block: usize,
    blocks: Vec<BlockIndexEntry>,
    first: Option<Box<[u8]>>,
    entries: u64,
    removals: u64,
}

impl TableBuilder {
    pub(crate) fn create(
        folder: &dyn StoreFolder,
        id: u64,
        number: u64,
        last: u64,
    ) -> io::Result<TableBuilder> {
        Ok(TableBuilder {
            file: folder.create(&table_file_name(number))?,
            id,
            number,
            last,
            written: 0,
            bytes: Vec::new(),
            block: 0,
            blocks: Vec::new(),
            first: None,
            entries: 0,
            removals: 0,
        })
    }

    /// Appends a key with its value, or with `None` for a removal. The keys must ascend. A block
    /// ends at [`BLOCK`] bytes, and buffered bytes are written at [`WRITE`].
    pub(crate) fn put(&mut self, key: &[u8], value: Option<&[u8]>) -> io::Result<()> {
        self.first.get_or_insert_with(|| key.into());
        self.entries += 1;
        self.removals += u64::from(value.is_none());
        let value_len = value.map_or(REMOVED, |value| value.len() as u32);
        self.bytes.extend_from_slice(&(key.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(&value_len.to_le_bytes());
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value.unwrap_or_default());
        if self.bytes.len() - self.block >= BLOCK {
            self.end_block();
        }
        if self.bytes.len() >= WRITE {
            self.write()?;
        }
        Ok(())
    }

    /// Writes the index and the footer. Returns `None` for an empty table.
    pub(crate) fn finish(mut self) -> io::Result<Option<SortedTable>> {
        if self.entries == 0 {
            return Ok(None);
        }
        self.end_block();
        let index_at = self.written + self.bytes.len() as u64;
        let mut sum = Hasher::new();
        sum.update(&self.id.to_le_bytes());
        for n in 0..self.blocks.len() {
            let start = self.bytes.len();
            let block = &self.blocks[n];
            self.bytes.extend_from_slice(&block.at.to_le_bytes());
            self.bytes.extend_from_slice(&block.len.to_le_bytes());
            self.bytes.extend_from_slice(&(block.first.len() as u32).to_le_bytes());
            self.bytes.extend_from_slice(&block.first);
            sum.update(&self.bytes[start..]);
            if self.bytes.len() >= WRITE {
                self.write()?;
            }
        }
        let mut foot = [0; FOOT];
        foot[..4].copy_from_slice(MAGIC);
        let fields = [index_at, self.number, self.last, self.entries, self.removals];
        for (place, field) in foot[8..].chunks_exact_mut(8).zip(fields) {
            place.copy_from_slice(&field.to_le_bytes());
        }
        sum.update(&foot[8..]);
        foot[4..8].copy_from_slice(&sum.finalize().to_le_bytes());
        self.bytes.extend_from_slice(&foot);
        self.write()?;
        Ok(Some(SortedTable {
            file: self.file,
            id: self.id,
            number: self.number,
            bytes: self.written,
            last: self.last,
            entries: self.entries,
            removals: self.removals,
            has_index: true,
            blocks: self.blocks,
        }))
    }

    fn end_block(&mut self) {
        let Some(first) = self.first.take() else {
            return;
        };
        let at = self.written + self.block as u64;
        let sum = crc(&[&self.id.to_le_bytes(), &at.to_le_bytes(), &self.bytes[self.block..]]);
        self.bytes.extend_from_slice(&sum.to_le_bytes());
        let len = (self.bytes.len() - self.block) as u32;
        self.blocks.push(BlockIndexEntry { at, len, first });
        self.block = self.bytes.len();
    }

    /// Writes the complete blocks and syncs them. One sync at the end would write much data at
    /// once, and syncs of the log would have to wait for it.
    fn write(&mut self) -> io::Result<()> {
        let whole = if self.first.is_some() { self.block } else { self.bytes.len() };
        self.file.write_at(self.written, &self.bytes[..whole])?;
        self.file.sync()?;
        self.written += whole as u64;
        self.bytes.drain(..whole);
        self.block -= self.block.min(whole);
        Ok(())
    }
}

pub(crate) fn table_file_name(number: u64) -> String {
    format!("{KIND}.{number}")
}

pub(crate) const KIND: &str = "table";
const MAGIC: &[u8; 4] = b"GWTB";
const FOOT: usize = 48;

/// Target size of a block in bytes. A lookup reads one block, and an iteration one at a time.
const BLOCK: usize = 8 << 10;

/// Largest length of a block that `find_block` tries, in bytes; far above the size of any value.
const BLOCK_MAX: u64 = 1 << 30;

/// Bytes of a table under construction that are buffered before each write and sync.
const WRITE: usize = 128 << 10;
