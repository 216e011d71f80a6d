//! `godwit store check | export | import`: checks a data folder, and transfers its content to
//! another folder as lines of JSON. A lock prevents concurrent use by a running broker.

use crate::{fail, fail_with_usage_error, parse_line, print};
use command_line::{Arg, Command, FlagRow, PossibleValuesParser};
use config::source::absolute_path;
use std::ffi::OsString;
use std::fmt::{Display, Write as _};
use std::io::{self, BufRead, BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use store::{
    DiskStore, KeySpace, KeyValueStore, RecoveryReport, StoreBatch, StoreBuilder, StoreOptions,
};

pub(crate) fn command() -> Command {
    let verb = Arg::new(VERB)
        .required(true)
        .value_parser(PossibleValuesParser::new(["check", "export", "import"]));
    command_line::command("store", "Looks at a data folder that no broker uses", FLAGS)
        .arg(verb.value_name("check|export|import").help("what to do"))
        .arg(command_line::words(FOLDER, "").hide(true))
        .after_help(HELP)
}

pub(crate) fn run(arguments: &[OsString]) -> ExitCode {
    let matches = match parse_line(command(), arguments) {
        Ok(matches) => matches,
        Err(code) => return code,
    };
    let verb = command_line::text(&matches, VERB).unwrap_or_default();
    if let Some(place) = command_line::words_of(&matches, FOLDER).first() {
        let place = place.to_string_lossy();
        let right = format!("godwit store {verb} --data {place}");
        return fail_with_usage_error(&[format!(
            "{place}: the folder is named with --data, use {right}"
        )]);
    }
    let repair = matches.contains_id("--repair");
    if repair && verb != "export" {
        return fail_with_usage_error(&["only export takes --repair".to_string()]);
    }
    let folder = Path::new(command_line::text(&matches, "--data").unwrap_or_default());
    let done = match verb {
        "check" => check(folder),
        "export" => export(folder, repair),
        _ => import(folder),
    };
    done.unwrap_or_else(|why| fail(&[why]))
}

const VERB: &str = "VERB";
const FOLDER: &str = "FOLDER";

type CommandResult = Result<ExitCode, String>;

/// Checks the folder. Exit code 1 reports damage to scripts.
fn check(folder: &Path) -> CommandResult {
    let report = store::check(folder).map_err(|fault| describe_error(folder, fault))?;
    print(&describe(&report));
    Ok(if report.damage.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn describe(report: &RecoveryReport) -> String {
    let mut text = format!("last batch {}, of them in the log {}\n", report.seq.0, report.batches);
    if report.torn_bytes > 0 {
        let _ = writeln!(text, "torn tail: {} bytes that nobody was promised", report.torn_bytes);
    }
    for damage in &report.damage {
        let _ = writeln!(text, "damaged: {damage}");
    }
    if report.damage.is_empty() {
        text.push_str("whole\n");
    }
    text
}

fn export(folder: &Path, repair: bool) -> CommandResult {
    // `DiskStore::open` would create a missing folder; an export must not.
    std::fs::metadata(folder).map_err(|fault| describe_error(folder, fault))?;
    let options = StoreOptions { repair, ..StoreOptions::default() };
    let opened = DiskStore::open(folder, options, Box::new(|_| {}));
    let (store, report) = opened.map_err(|fault| describe_error(folder, fault))?;
    for damage in &report.damage {
        crate::print_errors(&[format!("damaged: {damage}")]);
    }
    let mut out = BufWriter::new(io::stdout().lock());
    let mut progress = TransferProgress::new();
    for space in KeySpace::ALL {
        let mut trouble = Ok(());
        let mut visit = |key: &[u8], value: &[u8]| {
            trouble = writeln!(
                out,
                r#"{{"space":"{}","key":"{}","value":"{}"}}"#,
                space_name(space),
                encode_hex(key),
                encode_hex(value)
            );
            progress.step();
            trouble.is_ok()
        };
        let scanned = store.handle().scan(space, b"", b"", &mut visit);
        scanned.map_err(|fault| describe_error(folder, fault))?;
        trouble.map_err(|fault| format!("stdout: {fault}"))?;
    }
    let ended = writeln!(out, "{}", end_line(progress.pairs)).and_then(|()| out.flush());
    ended.map_err(|fault| format!("stdout: {fault}"))?;
    progress.end();
    Ok(ExitCode::SUCCESS)
}

fn import(folder: &Path) -> CommandResult {
    let Some(mut build) =
        StoreBuilder::begin(folder).map_err(|fault| describe_error(folder, fault))?
    else {
        return Err(describe_error(folder, "there is a store already; import makes a new one"));
    };
    let mut progress = TransferProgress::new();
    read_pairs(folder, &mut build, &mut progress)?;
    build.finish().map_err(|fault| describe_error(folder, fault))?;
    progress.end();
    Ok(ExitCode::SUCCESS)
}

/// Reads pairs up to the [`ExportLine::End`], which must be the last line.
fn read_pairs(
    folder: &Path,
    build: &mut StoreBuilder,
    progress: &mut TransferProgress,
) -> Result<(), String> {
    let (mut batch, mut lines, mut is_whole) = (StoreBatch::default(), 0_u64, false);
    for line in io::stdin().lock().lines() {
        lines += 1;
        let wrong = |why: &str| format!("stdin:{lines}: {why}");
        let line = line.map_err(|fault| wrong(&fault.to_string()))?;
        match parse_export_line(&line) {
            _ if is_whole => return Err(wrong(BEHIND_THE_END)),
            Some(ExportLine::Pair(space, key, value)) => batch.put(space, key, value),
            Some(ExportLine::End(pairs)) if pairs == progress.pairs => {
                is_whole = true;
                continue;
            }
            Some(ExportLine::End(pairs)) => {
                let came = progress.pairs;
                let why = format!("{pairs} pairs were exported and {came} are here: export anew");
                return Err(wrong(&why));
            }
            None => return Err(wrong(NO_LINE)),
        }
        progress.step();
        if batch.bytes() >= BATCH {
            build
                .commit(std::mem::take(&mut batch))
                .map_err(|fault| describe_error(folder, fault))?;
        }
    }
    if !is_whole {
        return Err(format!(
            "stdin:{}: the end is missing, so this may be a part only: export anew, or add {} if \
             these are all",
            lines + 1,
            end_line(progress.pairs)
        ));
    }
    build.commit(batch).map_err(|fault| describe_error(folder, fault))
}

fn describe_error(folder: &Path, why: impl Display) -> String {
    format!("{}: {why}", absolute_path(folder).display())
}

/// Progress of a transfer: a line on stderr about once a second, and at the end.
struct TransferProgress {
    pairs: u64,
    said: Instant,
}

impl TransferProgress {
    fn new() -> TransferProgress {
        TransferProgress { pairs: 0, said: Instant::now() }
    }

    fn step(&mut self) {
        self.pairs += 1;
        if self.pairs.is_multiple_of(1000) && self.said.elapsed() >= Duration::from_secs(1) {
            self.said = Instant::now();
            self.end();
        }
    }

    fn end(&self) {
        crate::print_errors(&[format!("{} pairs", self.pairs)]);
    }
}

/// A line of an export.
enum ExportLine {
    Pair(KeySpace, Vec<u8>, Vec<u8>),
    /// Number of pairs, at the end of a complete export.
    End(u64),
}

fn end_line(pairs: u64) -> String {
    format!(r#"{{"pairs":{pairs}}}"#)
}

/// Parses a line as `export` writes it; spaces between the parts are allowed. No part contains a
/// quote or a backslash, so there is no unescaping.
fn parse_export_line(line: &str) -> Option<ExportLine> {
    let parts: Vec<_> = line.split('"').collect();
    if let [open, "pairs", rest] = parts[..] {
        let pairs = rest.trim().strip_prefix(':')?.strip_suffix('}')?.trim();
        return Some(ExportLine::End(pairs.parse().ok().filter(|_| open.trim() == "{")?));
    }
    let [open, "space", c1, space, s1, "key", c2, key, s2, "value", c3, value, close] = parts[..]
    else {
        return None;
    };
    let marks = [open, c1, s1, c2, s2, c3, close].map(str::trim);
    if marks != ["{", ":", ",", ":", ",", ":", "}"] {
        return None;
    }
    let space = KeySpace::ALL.into_iter().find(|known| space_name(*known) == space)?;
    Some(ExportLine::Pair(space, decode_hex(key)?, decode_hex(value)?))
}

fn space_name(space: KeySpace) -> &'static str {
    match space {
        KeySpace::Messages => "messages",
        KeySpace::Queues => "queues",
        KeySpace::Retained => "retained",
        KeySpace::Sessions => "sessions",
    }
}

fn encode_hex(bytes: &[u8]) -> String {
    let digit = |n: u8| char::from(b"0123456789abcdef"[usize::from(n)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 0xF)]).collect()
}

fn decode_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16).map(|n| n as u8);
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else {
        return None;
    };
    pairs.iter().map(|[high, low]| Some(digit(high)? << 4 | digit(low)?)).collect()
}

const FLAGS: &[FlagRow] = &[
    FlagRow::new(&["--data"], &["DIR"], "the data folder").with_default("./godwit-data"),
    FlagRow::new(&["--repair"], &[], "export what is left of a damaged store"),
];

const BEHIND_THE_END: &str = "nothing may follow the line with the number of pairs";
const NO_LINE: &str = "not a line that export writes, use one like \
                       {\"space\":\"queues\",\"key\":\"00ff\",\"value\":\"\"}";

/// Bytes of one batch of an import.
const BATCH: usize = 256 << 10;

const HELP: &str = "\
Verbs:
  check    reads everything, changes nothing; exit code 1 if anything is damaged
  export   writes every key and value to stdout, a line of JSON each, bytes in hexadecimal,
           and their number in the last line
  import   reads such lines from stdin into a new folder; all of them, or none if anything is
           wrong or missing";
