//! What an open finds, what of it is damage, and what is done about it. Of the log, a batch that is
//! missing is damage if anything says that it was durable: the mark, or a later record. Else it is
//! the torn tail of a process that ended in the middle of a write, and nobody was promised it.

use crate::disk::{Sealed, Segment};
use crate::files::{Folder, Host, number, read};
use crate::manifest::{MANIFEST, MANIFEST_NEW, MARK, Manifest, Mark};
use crate::table::{self, Draft, Table};
use crate::{Damage, Fault, Seq, record, writer};
use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// What an open or a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The last batch that is there.
    pub seq: Seq,
    /// Batches that were read from the log.
    pub batches: u64,
    /// Bytes at the end of the log that were never promised to anyone, and were cut off.
    pub torn_bytes: u64,
    pub damage: Vec<Damage>,
}

/// Reads everything and changes nothing.
pub fn check(path: &Path) -> Result<Report, Fault> {
    // A check makes no folder.
    std::fs::metadata(path)?;
    check_in(&Host::lock(path)?)
}

pub fn check_in(folder: &dyn Folder) -> Result<Report, Fault> {
    let Some(mut survey) = Survey::of(folder)? else {
        return Ok(Report::default());
    };
    for table in &survey.tables {
        table.verify(&mut survey.report.damage)?;
    }
    Ok(survey.report)
}

/// What a store starts from.
pub(crate) struct Opened {
    pub manifest: Manifest,
    pub tables: Vec<Arc<Table>>,
    /// What was in the log alone.
    pub replayed: Option<Sealed>,
    pub segments: Vec<Segment>,
    pub log_number_next: u64,
    pub report: Report,
}

pub(crate) fn open(folder: &dyn Folder, repair: bool) -> Result<Opened, Fault> {
    let Some(mut survey) = Survey::of(folder)? else {
        return Ok(create(folder)?);
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

fn create(folder: &dyn Folder) -> io::Result<Opened> {
    // The standard library's hasher is keyed from the system's randomness.
    let id = RandomState::new().build_hasher().finish();
    Mark { id, seq: 0 }.create(folder)?;
    let manifest = Manifest { id, number_next: 1, ..Manifest::default() };
    manifest.save(folder)?;
    Ok(Opened {
        manifest,
        tables: Vec::new(),
        replayed: None,
        segments: Vec::new(),
        log_number_next: 1,
        report: Report::default(),
    })
}

struct Log {
    number: u64,
    bytes: Vec<u8>,
    /// Where the last record ends that counts.
    end: usize,
}

/// Where a record stands that counts.
struct Place {
    log: usize,
    at: usize,
}

struct Survey {
    manifest: Manifest,
    tables: Vec<Arc<Table>>,
    logs: Vec<Log>,
    places: Vec<Place>,
    report: Report,
}

impl Survey {
    /// None if there is no store.
    fn of(folder: &dyn Folder) -> Result<Option<Survey>, Fault> {
        let names = folder.names().map_err(Fault::Disk)?;
        let numbers = |kind| {
            let mut numbers: Vec<_> = names.iter().filter_map(|name| number(name, kind)).collect();
            numbers.sort_unstable();
            numbers
        };
        let (logs, tables) = (numbers(writer::KIND), numbers(table::KIND));
        let has = |name: &str| names.iter().any(|found| found == name);
        let mut damage = Vec::new();
        let manifest = if has(MANIFEST) { Manifest::load(folder)? } else { None };
        let mark = if has(MARK) { Mark::load(folder).map_err(Fault::Disk)? } else { None };
        // A store that was never finished has no manifest, and nothing but a mark at 0 either.
        let is_new = !has(MANIFEST) && logs.is_empty() && tables.is_empty();
        if is_new && mark.is_none_or(|mark| mark.seq == 0) {
            return Ok(None);
        }
        let mark = mark.filter(|mark| manifest.as_ref().is_none_or(|found| found.id == mark.id));
        let (manifest, tables) = match (manifest, mark) {
            (Some(manifest), _) => {
                let tables = listed(folder, &manifest, &mut damage)?;
                (manifest, tables)
            }
            (None, Some(mark)) => {
                damage.push(Damage::Manifest);
                found(folder, mark.id, tables, &mut damage)?
            }
            // Without the id no record can be told from chance.
            (None, None) => return Err(Fault::Damaged(vec![Damage::Manifest, Damage::Mark])),
        };
        if mark.is_none() {
            damage.push(Damage::Mark);
        }
        let mut survey = Survey {
            report: Report { seq: Seq(manifest.flushed), damage, ..Report::default() },
            manifest,
            tables,
            logs: Vec::new(),
            places: Vec::new(),
        };
        for number in logs {
            let bytes = read(folder, &writer::name(number)).map_err(Fault::Disk)?;
            survey.logs.push(Log { number, bytes, end: 0 });
        }
        survey.read_logs(mark.map_or(0, |mark| mark.seq));
        Ok(Some(survey))
    }

    /// Finds the records that count, and what is missing between and behind them.
    fn read_logs(&mut self, mark: u64) {
        let mut records = Vec::new();
        let mut known = mark;
        for (n, log) in self.logs.iter().enumerate() {
            scan(&log.bytes, self.manifest.id, |at, record| {
                known = known.max(record.durable);
                records.push((n, at, record.len(), record.seq));
            });
        }
        // What a failed write left stands again in a later log, and may have holes where it is.
        records.sort_by_key(|(.., seq)| *seq);
        let (mut last, mut covered) = (self.manifest.flushed, 0);
        for (n, at, len, seq) in records {
            if seq > last + 1 {
                if last + 1 > known {
                    break;
                }
                let (from, to) = (Seq(last + 1), Seq(seq - 1));
                self.report.damage.push(Damage::Batches { from, to });
            }
            covered += len as u64;
            // What stands twice, or in a table already, counts once.
            if seq > last {
                last = seq;
                self.logs[n].end = self.logs[n].end.max(at + len);
                self.places.push(Place { log: n, at });
            }
        }
        if last < known {
            self.report.damage.push(Damage::Batches { from: Seq(last + 1), to: Seq(known) });
        }
        let bytes: u64 = self.logs.iter().map(|log| log.bytes.len() as u64).sum();
        let is_missing = |damage: &Damage| matches!(damage, Damage::Batches { .. });
        // What is not covered is else what is missing.
        if !self.report.damage.iter().any(is_missing) {
            self.report.torn_bytes = bytes - covered;
        }
        self.report.batches = self.places.len() as u64;
        self.report.seq = Seq(last.max(known));
    }

    /// Everything is there: the log stands until the keeper has made a table of what it holds.
    fn resume(self, folder: &dyn Folder) -> Result<Opened, Fault> {
        let last = self.report.seq.0;
        let replayed = self.replay();
        let mut segments = Vec::new();
        for log in &self.logs {
            let name = writer::name(log.number);
            if log.end == 0 {
                folder.remove(&name)?;
            } else {
                let file = folder.open(&name)?;
                if log.end < log.bytes.len() {
                    file.cut(log.end as u64)?;
                }
                // What was read may have been in the system's memory alone.
                file.sync()?;
                segments.push(Segment { number: log.number, last, bytes: log.end as u64 });
            }
        }
        sweep(folder, &self.manifest)?;
        folder.sync()?;
        let log_number_next = self.logs.last().map_or(1, |log| log.number + 1);
        let Survey { manifest, tables, report, .. } = self;
        Ok(Opened { manifest, tables, replayed, segments, log_number_next, report })
    }

    /// Something is missing: what is left becomes a store that does not miss it any more.
    fn rewrite(mut self, folder: &dyn Folder) -> Result<Opened, Fault> {
        let id = self.manifest.id;
        if let Some(sealed) = self.replay() {
            let number = self.manifest.number_next;
            let mut draft = Draft::create(folder, id, number, sealed.upto)?;
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
            folder.remove(&writer::name(log.number))?;
        }
        Mark { id, seq: self.manifest.flushed }.create(folder)?;
        sweep(folder, &self.manifest)?;
        folder.sync()?;
        let log_number_next = self.logs.last().map_or(1, |log| log.number + 1);
        let Survey { manifest, tables, report, .. } = self;
        let (replayed, segments) = (None, Vec::new());
        Ok(Opened { manifest, tables, replayed, segments, log_number_next, report })
    }

    fn replay(&self) -> Option<Sealed> {
        let mut pairs = BTreeMap::new();
        for place in &self.places {
            let bytes = &self.logs[place.log].bytes[place.at..];
            let record = record::read(bytes, self.manifest.id).expect("it was read before");
            record::changes(record.body, |change| {
                pairs.insert(change.space.key(&change.key), change.value);
            });
        }
        (!pairs.is_empty()).then_some(Sealed { pairs, upto: self.report.seq.0 })
    }

    /// Copies what can be read of tables that have damaged blocks, or no index.
    fn salvage(&mut self, folder: &dyn Folder) -> Result<(), Fault> {
        for table in std::mem::take(&mut self.tables) {
            let before = self.report.damage.len();
            table.verify(&mut self.report.damage)?;
            if self.report.damage.len() == before && table.has_index {
                self.tables.push(table);
                continue;
            }
            let number = self.manifest.number_next;
            self.manifest.number_next += 1;
            let mut draft = Draft::create(folder, self.manifest.id, number, table.last)?;
            for (key, value) in table.from(&[]).flatten() {
                draft.put(&key, value.as_deref())?;
            }
            self.tables.extend(draft.finish()?.map(Arc::new));
        }
        Ok(())
    }
}

/// Calls `visit` with every record and where it stands, over whatever lies between them.
fn scan(bytes: &[u8], id: u64, mut visit: impl FnMut(usize, &record::Record<'_>)) {
    let (mut at, marker) = (0, record::marker(id));
    while at < bytes.len() {
        let Some(record) = record::read(&bytes[at..], id) else {
            let next = bytes[at + 1..].windows(marker.len()).position(|four| four == marker);
            at = next.map_or(bytes.len(), |n| at + 1 + n);
            continue;
        };
        visit(at, &record);
        at += record.len();
    }
}

/// The tables of a manifest.
fn listed(
    folder: &dyn Folder,
    manifest: &Manifest,
    damage: &mut Vec<Damage>,
) -> Result<Vec<Arc<Table>>, Fault> {
    let mut tables = Vec::new();
    for &(number, bytes) in &manifest.tables {
        let table = found_or_none(Table::open(folder, manifest.id, number))?;
        if let Some(table) = table.filter(|table| table.bytes == bytes) {
            tables.push(Arc::new(table));
            continue;
        }
        let left = Table::open_without_index(folder, manifest.id, number, manifest.flushed);
        match found_or_none(left)? {
            Some(table) => {
                damage.push(Damage::Index { table: number, blocks: table.blocks() });
                tables.push(Arc::new(table));
            }
            None => damage.push(Damage::Table { table: number }),
        }
    }
    Ok(tables)
}

/// The tables that are there, in the order in which they were made, where no manifest says it.
fn found(
    folder: &dyn Folder,
    id: u64,
    numbers: Vec<u64>,
    damage: &mut Vec<Damage>,
) -> Result<(Manifest, Vec<Arc<Table>>), Fault> {
    let number_next = numbers.last().map_or(1, |number| number + 1);
    let mut tables = Vec::new();
    for number in numbers {
        match found_or_none(Table::open(folder, id, number))? {
            Some(table) => tables.push(Arc::new(table)),
            None => damage.push(Damage::Table { table: number }),
        }
    }
    // What was merged has the last batch of the newest that went into it, and a higher number.
    tables.sort_by_key(|table| (table.last, table.number));
    let flushed = tables.last().map_or(0, |table| table.last);
    Ok((Manifest { id, flushed, number_next, tables: Vec::new() }, tables))
}

fn found_or_none(opened: io::Result<Option<Table>>) -> Result<Option<Table>, Fault> {
    match opened {
        Ok(table) => Ok(table),
        Err(fault) if fault.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(fault) => Err(Fault::Disk(fault)),
    }
}

/// Removes what a process that ended in the middle of its work left behind.
fn sweep(folder: &dyn Folder, manifest: &Manifest) -> Result<(), Fault> {
    for name in folder.names()? {
        let number = number(&name, table::KIND);
        let kept = |number| manifest.tables.iter().any(|table| table.0 == number);
        if name == MANIFEST_NEW || number.is_some_and(|number| !kept(number)) {
            folder.remove(&name)?;
        }
    }
    Ok(())
}
