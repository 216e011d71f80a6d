//! Recovery at open: finds damage, and resumes or repairs the store. A missing batch of the log is
//! damage if the durable mark or a later record shows that the batch was durable. Otherwise it
//! belongs to the torn tail of a process which ended during a write, and was never acknowledged.

use crate::disk::{LogSegment, SealedMemtable};
use crate::files::{LockedFolder, StoreFolder, file_number, read_file};
use crate::manifest::{DurableMark, MANIFEST, MANIFEST_NEW, MARK, Manifest};
use crate::table::{self, SortedTable, TableBuilder};
use crate::{BatchSeq, Fault, StoreDamage, log_record, log_writer};
use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Result of [`DiskStore::open`](crate::DiskStore::open) or [`check`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// The last batch in the store.
    pub seq: BatchSeq,
    /// Number of batches read from the log.
    pub batches: u64,
    /// Bytes at the end of the log that were never acknowledged, and were cut off.
    pub torn_bytes: u64,
    pub damage: Vec<StoreDamage>,
}

/// Reads and verifies the whole store. Changes nothing in it.
pub fn check(path: &Path) -> Result<RecoveryReport, Fault> {
    // A check does not create the folder.
    std::fs::metadata(path)?;
    check_in(&LockedFolder::lock(path)?)
}

pub fn check_in(folder: &dyn StoreFolder) -> Result<RecoveryReport, Fault> {
    let Some(mut survey) = RecoveryScan::scan_folder(folder)? else {
        return Ok(RecoveryReport::default());
    };
    for table in &survey.tables {
        table.verify(&mut survey.report.damage)?;
    }
    Ok(survey.report)
}

/// The parts from which an opened store starts.
pub(crate) struct RecoveredStore {
    pub manifest: Manifest,
    pub tables: Vec<Arc<SortedTable>>,
    /// Batches which are in the log and in no table.
    pub replayed: Option<SealedMemtable>,
    pub segments: Vec<LogSegment>,
    pub log_number_next: u64,
    pub report: RecoveryReport,
}

pub(crate) fn open_store(folder: &dyn StoreFolder, repair: bool) -> Result<RecoveredStore, Fault> {
    let Some(mut survey) = RecoveryScan::scan_folder(folder)? else {
        return Ok(create_store(folder)?);
    };
    if repair {
        survey.salvage(folder)?;
    }
    match survey.report.damage.is_empty() {
        true => survey.resume(folder),
        false if repair => survey.rewrite(folder),
        false => Err(Fault::Damaged(survey.report.damage)),
    }
}

fn create_store(folder: &dyn StoreFolder) -> io::Result<RecoveredStore> {
    // The standard library's hasher is keyed from the system's randomness.
    let id = RandomState::new().build_hasher().finish();
    DurableMark { id, seq: 0 }.create(folder)?;
    let manifest = Manifest { id, number_next: 1, ..Manifest::default() };
    manifest.save(folder)?;
    Ok(RecoveredStore {
        manifest,
        tables: Vec::new(),
        replayed: None,
        segments: Vec::new(),
        log_number_next: 1,
        report: RecoveryReport::default(),
    })
}

/// A file of the log, as read at an open.
struct LogFile {
    number: u64,
    bytes: Vec<u8>,
    /// End of the last record that is replayed. Bytes behind it are cut off.
    end: usize,
}

/// Position of a record to replay.
struct LogPosition {
    log: usize,
    at: usize,
}

/// The contents of a folder with a store, before a decision to resume, repair or fail.
struct RecoveryScan {
    manifest: Manifest,
    tables: Vec<Arc<SortedTable>>,
    logs: Vec<LogFile>,
    places: Vec<LogPosition>,
    report: RecoveryReport,
}

impl RecoveryScan {
    /// Reads the folder. Returns `None` if there is no store.
    fn scan_folder(folder: &dyn StoreFolder) -> Result<Option<RecoveryScan>, Fault> {
        let names = folder.names().map_err(Fault::Disk)?;
        let numbers = |kind| {
            let mut numbers: Vec<_> =
                names.iter().filter_map(|name| file_number(name, kind)).collect();
            numbers.sort_unstable();
            numbers
        };
        let (logs, tables) = (numbers(log_writer::KIND), numbers(table::KIND));
        let has = |name: &str| names.iter().any(|found| found == name);
        let mut damage = Vec::new();
        let manifest = if has(MANIFEST) { Manifest::load(folder)? } else { None };
        let mark = if has(MARK) { DurableMark::load(folder).map_err(Fault::Disk)? } else { None };
        // A store whose creation was interrupted has no manifest, and at most a mark at 0.
        let is_new = !has(MANIFEST) && logs.is_empty() && tables.is_empty();
        if is_new && mark.is_none_or(|mark| mark.seq == 0) {
            return Ok(None);
        }
        let mark = mark.filter(|mark| manifest.as_ref().is_none_or(|found| found.id == mark.id));
        let (manifest, tables) = match (manifest, mark) {
            (Some(manifest), _) => {
                let tables = open_listed_tables(folder, &manifest, &mut damage)?;
                (manifest, tables)
            }
            (None, Some(mark)) => {
                damage.push(StoreDamage::Manifest);
                open_found_tables(folder, mark.id, tables, &mut damage)?
            }
            // Without the id, valid records cannot be distinguished from random bytes.
            (None, None) => {
                return Err(Fault::Damaged(vec![StoreDamage::Manifest, StoreDamage::DurableMark]));
            }
        };
        if mark.is_none() {
            damage.push(StoreDamage::DurableMark);
        }
        let mut survey = RecoveryScan {
            report: RecoveryReport {
                seq: BatchSeq(manifest.flushed),
                damage,
                ..RecoveryReport::default()
            },
            manifest,
            tables,
            logs: Vec::new(),
            places: Vec::new(),
        };
        for number in logs {
            let bytes =
                read_file(folder, &log_writer::log_file_name(number)).map_err(Fault::Disk)?;
            survey.logs.push(LogFile { number, bytes, end: 0 });
        }
        survey.read_logs(mark.map_or(0, |mark| mark.seq));
        Ok(Some(survey))
    }

    /// Finds the records to replay, and the batches missing between and behind them.
    fn read_logs(&mut self, mark: u64) {
        let mut records = Vec::new();
        let mut known = mark;
        for (n, log) in self.logs.iter().enumerate() {
            scan_records(&log.bytes, self.manifest.id, |at, record| {
                known = known.max(record.durable);
                records.push((n, at, record.len(), record.seq));
            });
        }
        // Records of a failed write are repeated in a later log, and may be incomplete in the
        // earlier.
        records.sort_by_key(|(.., seq)| *seq);
        let (mut last, mut covered) = (self.manifest.flushed, 0);
        for (n, at, len, seq) in records {
            if seq > last + 1 {
                if last + 1 > known {
                    break;
                }
                let (from, to) = (BatchSeq(last + 1), BatchSeq(seq - 1));
                self.report.damage.push(StoreDamage::Batches { from, to });
            }
            covered += len as u64;
            // A record which occurs twice, or whose batch is in a table, counts once.
            if seq > last {
                last = seq;
                self.logs[n].end = self.logs[n].end.max(at + len);
                self.places.push(LogPosition { log: n, at });
            }
        }
        if last < known {
            self.report
                .damage
                .push(StoreDamage::Batches { from: BatchSeq(last + 1), to: BatchSeq(known) });
        }
        let bytes: u64 = self.logs.iter().map(|log| log.bytes.len() as u64).sum();
        let is_missing = |damage: &StoreDamage| matches!(damage, StoreDamage::Batches { .. });
        // With missing batches, uncovered bytes may be the missing batches.
        if !self.report.damage.iter().any(is_missing) {
            self.report.torn_bytes = bytes - covered;
        }
        self.report.batches = self.places.len() as u64;
        self.report.seq = BatchSeq(last.max(known));
    }

    /// Starts a store that is complete. The log stays until the compactor has written its batches
    /// to a table.
    fn resume(self, folder: &dyn StoreFolder) -> Result<RecoveredStore, Fault> {
        let last = self.report.seq.0;
        let replayed = self.replay();
        let mut segments = Vec::new();
        for log in &self.logs {
            let name = log_writer::log_file_name(log.number);
            if log.end == 0 {
                folder.remove(&name)?;
            } else {
                let file = folder.open(&name)?;
                if log.end < log.bytes.len() {
                    file.truncate(log.end as u64)?;
                }
                // The bytes read may so far be in the page cache only.
                file.sync()?;
                segments.push(LogSegment { number: log.number, last, bytes: log.end as u64 });
            }
        }
        remove_unlisted_tables(folder, &self.manifest)?;
        folder.sync()?;
        let log_number_next = self.logs.last().map_or(1, |log| log.number + 1);
        let RecoveryScan { manifest, tables, report, .. } = self;
        Ok(RecoveredStore { manifest, tables, replayed, segments, log_number_next, report })
    }

    /// Starts a damaged store: writes the readable data as tables, with a manifest without the
    /// damage.
    fn rewrite(mut self, folder: &dyn StoreFolder) -> Result<RecoveredStore, Fault> {
        let id = self.manifest.id;
        if let Some(sealed) = self.replay() {
            let number = self.manifest.number_next;
            let mut draft = TableBuilder::create(folder, id, number, sealed.upto)?;
            for (key, value) in &sealed.pairs {
                draft.put(key, value.as_deref())?;
            }
            self.tables.extend(draft.finish()?.map(Arc::new));
            self.manifest.number_next += 1;
        }
        self.manifest.flushed = self.report.seq.0;
        self.manifest.tables =
            self.tables.iter().map(|table| (table.number, table.bytes)).collect();
        self.manifest.save(folder)?;
        for log in &self.logs {
            folder.remove(&log_writer::log_file_name(log.number))?;
        }
        DurableMark { id, seq: self.manifest.flushed }.create(folder)?;
        remove_unlisted_tables(folder, &self.manifest)?;
        folder.sync()?;
        let log_number_next = self.logs.last().map_or(1, |log| log.number + 1);
        let RecoveryScan { manifest, tables, report, .. } = self;
        let (replayed, segments) = (None, Vec::new());
        Ok(RecoveredStore { manifest, tables, replayed, segments, log_number_next, report })
    }

    fn replay(&self) -> Option<SealedMemtable> {
        let mut pairs = BTreeMap::new();
        for place in &self.places {
            let bytes = &self.logs[place.log].bytes[place.at..];
            let record =
                log_record::read_record(bytes, self.manifest.id).expect("it was read before");
            log_record::read_changes(record.body, |change| {
                pairs.insert(change.space.prefixed_key(&change.key), change.value);
            });
        }
        (!pairs.is_empty()).then_some(SealedMemtable { pairs, upto: self.report.seq.0 })
    }

    /// Copies the readable blocks of tables with damaged blocks or without index to new tables.
    fn salvage(&mut self, folder: &dyn StoreFolder) -> Result<(), Fault> {
        for table in std::mem::take(&mut self.tables) {
            let before = self.report.damage.len();
            table.verify(&mut self.report.damage)?;
            if self.report.damage.len() == before && table.has_index {
                self.tables.push(table);
                continue;
            }
            let number = self.manifest.number_next;
            self.manifest.number_next += 1;
            let mut draft = TableBuilder::create(folder, self.manifest.id, number, table.last)?;
            for (key, value) in table.pairs_from(&[]).flatten() {
                draft.put(&key, value.as_deref())?;
            }
            self.tables.extend(draft.finish()?.map(Arc::new));
        }
        Ok(())
    }
}

/// Calls `visit` with each valid record and its position. Bytes between records are skipped.
fn scan_records(bytes: &[u8], id: u64, mut visit: impl FnMut(usize, &log_record::LogRecord<'_>)) {
    let (mut at, marker) = (0, log_record::marker(id));
    while at < bytes.len() {
        let Some(record) = log_record::read_record(&bytes[at..], id) else {
            let next = bytes[at + 1..].windows(marker.len()).position(|four| four == marker);
            at = next.map_or(bytes.len(), |n| at + 1 + n);
            continue;
        };
        visit(at, &record);
        at += record.len();
    }
}

/// Opens the tables of a manifest.
fn open_listed_tables(
    folder: &dyn StoreFolder,
    manifest: &Manifest,
    damage: &mut Vec<StoreDamage>,
) -> Result<Vec<Arc<SortedTable>>, Fault> {
    let mut tables = Vec::new();
    for &(number, bytes) in &manifest.tables {
        let table = none_if_not_found(SortedTable::open(folder, manifest.id, number))?;
        if let Some(table) = table.filter(|table| table.bytes == bytes) {
            tables.push(Arc::new(table));
            continue;
        }
        let left = SortedTable::open_without_index(folder, manifest.id, number, manifest.flushed);
        match none_if_not_found(left)? {
            Some(table) => {
                damage.push(StoreDamage::Index { table: number, blocks: table.blocks() });
                tables.push(Arc::new(table));
            }
            None => damage.push(StoreDamage::Table { table: number }),
        }
    }
    Ok(tables)
}

/// Opens all tables found in the folder, in the order of their creation, without a manifest.
fn open_found_tables(
    folder: &dyn StoreFolder,
    id: u64,
    numbers: Vec<u64>,
    damage: &mut Vec<StoreDamage>,
) -> Result<(Manifest, Vec<Arc<SortedTable>>), Fault> {
    let number_next = numbers.last().map_or(1, |number| number + 1);
    let mut tables = Vec::new();
    for number in numbers {
        match none_if_not_found(SortedTable::open(folder, id, number))? {
            Some(table) => tables.push(Arc::new(table)),
            None => damage.push(StoreDamage::Table { table: number }),
        }
    }
    // A merged table has the last batch of its newest input, and a higher number.
    tables.sort_by_key(|table| (table.last, table.number));
    let flushed = tables.last().map_or(0, |table| table.last);
    Ok((Manifest { id, flushed, number_next, tables: Vec::new() }, tables))
}

fn none_if_not_found(
    opened: io::Result<Option<SortedTable>>,
) -> Result<Option<SortedTable>, Fault> {
    match opened {
        Ok(table) => Ok(table),
        Err(fault) if fault.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(fault) => Err(Fault::Disk(fault)),
    }
}

/// Removes tables outside the manifest: leftovers of a process that ended during its work.
fn remove_unlisted_tables(folder: &dyn StoreFolder, manifest: &Manifest) -> Result<(), Fault> {
    for name in folder.names()? {
        let number = file_number(&name, table::KIND);
        let kept = |number| manifest.tables.iter().any(|table| table.0 == number);
        if name == MANIFEST_NEW || number.is_some_and(|number| !kept(number)) {
            folder.remove(&name)?;
        }
    }
    Ok(())
}
