//! A file to which a sink appends. The file ends with a whole line, is renamed when it is large or
//! old, and only a bounded number of renamed files stays.
//!
//! Invariant: bytes for which [`AppendFile::append`] has returned success are whole lines in the
//! file, and on the disk if `sync` was set.

use super::settings::{FileFormat, FileSinkSettings};
use config::source::absolute_path;
use net::timestamp::UnixTimestamp;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// An open file with its length and its rotation period.
pub(super) struct AppendFile {
    path: PathBuf,
    file: File,
    len: u64,
    /// Number of the period of `rotate_s` seconds to which the file belongs.
    period: u64,
}

/// Identity and length of a file closed after a whole line. If both are unchanged at the next open,
/// the file's end need not be searched.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct ClosedFileMark {
    inode: FileInode,
    len: u64,
}

impl ClosedFileMark {
    fn from_metadata(known: &fs::Metadata) -> ClosedFileMark {
        ClosedFileMark { inode: inode(known), len: known.len() }
    }
}

impl AppendFile {
    /// Opens or creates the file and cuts off an incomplete last line: a crash left the line, which
    /// was not acknowledged and comes again. A CSV file with another header is renamed, since the
    /// ends of its rows are unknown.
    pub(super) fn open(
        path: &Path,
        settings: &FileSinkSettings,
        left: Option<ClosedFileMark>,
    ) -> io::Result<AppendFile> {
        make_folder_of(path)?;
        let mut options = OpenOptions::new();
        let mut file = options.read(true).write(true).create(true).truncate(false).open(path)?;
        let known = file.metadata()?;
        let is_as_left = left == Some(ClosedFileMark::from_metadata(&known));
        if settings.format == FileFormat::Csv
            && !is_as_left
            && !has_expected_header(&file, settings)?
        {
            let other = AppendFile { path: path.to_path_buf(), file, len: known.len(), period: 0 };
            other.rotate(settings)?;
            return AppendFile::open(path, settings, None);
        }
        let whole = match settings.format {
            _ if is_as_left => known.len(),
            FileFormat::Csv => end_of_last_row(&file)?,
            FileFormat::Json => end_of_last_line(&file, known.len())?,
        };
        if whole < known.len() {
            file.set_len(whole)?;
        }
        file.seek(SeekFrom::Start(whole))?;
        if settings.sync && !is_as_left {
            sync_folder(path)?;
        }
        let written = if whole == 0 { SystemTime::now() } else { known.modified()? };
        let period = period(written, settings);
        Ok(AppendFile { path: path.to_path_buf(), file, len: whole, period })
    }

    pub(super) fn close(self) -> io::Result<ClosedFileMark> {
        let inode = self.file.metadata().map(|known| inode(&known))?;
        Ok(ClosedFileMark { inode, len: self.len })
    }

    /// Whether `more` bytes belong into the next file, with `waiting` bytes still to be written.
    pub(super) fn must_rotate(
        &self,
        waiting: usize,
        more: usize,
        settings: &FileSinkSettings,
    ) -> bool {
        let (len, most) = (self.len + waiting as u64, settings.rotate_bytes);
        let is_large = most > 0 && len + more as u64 > most;
        len > 0 && (is_large || self.period != period(SystemTime::now(), settings))
    }

    /// Whether another process has renamed, removed, truncated or changed the file.
    pub(super) fn was_replaced(&self) -> bool {
        let here = self.file.metadata().map(|known| ClosedFileMark::from_metadata(&known));
        let now = fs::metadata(&self.path).map(|known| ClosedFileMark::from_metadata(&known));
        let ours = |here: ClosedFileMark| here.len == self.len;
        !matches!((here, now), (Ok(here), Ok(now)) if here == now && ours(here))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends all of `lines`, or truncates the file to its old length and fails.
    pub(super) fn append(&mut self, lines: &[u8], sync: bool) -> io::Result<()> {
        let mut written = self.file.write_all(lines);
        if written.is_ok() && sync {
            written = self.file.sync_data();
        }
        match written {
            Ok(()) => self.len += lines.len() as u64,
            Err(_) => {
                // If this fails too, the next open cuts off the incomplete line.
                let _ = self.file.set_len(self.len);
                let _ = self.file.seek(SeekFrom::Start(self.len));
            }
        }
        written
    }

    /// Renames the file, with its time in the name, and removes the oldest renamed files above
    /// `keep`.
    pub(super) fn rotate(self, settings: &FileSinkSettings) -> io::Result<()> {
        let series = FileSeries { stem: self.path.clone().into(), extension: "" };
        fs::rename(&self.path, series.free_name()?)?;
        drop(self.file);
        series.remove_oldest(settings.keep)?;
        if settings.sync { sync_folder(&self.path) } else { Ok(()) }
    }
}

/// Device and inode number.
pub(super) type FileInode = (u64, u64);

fn inode(known: &fs::Metadata) -> FileInode {
    (known.dev(), known.ino())
}

/// Returns the identity of the file at a path.
pub(super) fn inode_at(path: &Path) -> io::Result<FileInode> {
    fs::metadata(path).map(|known| inode(&known))
}

/// Returns the number of the rotation period, or 0 if `rotate_s` is 0.
fn period(at: SystemTime, settings: &FileSinkSettings) -> u64 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    since.as_secs().checked_div(u64::from(settings.rotate_s)).unwrap_or(0)
}

/// Renamed files with the same stem, which differ in the time of renaming.
pub(super) struct FileSeries {
    stem: OsString,
    extension: &'static str,
}

const PARQUET: &str = ".parquet";

impl FileSeries {
    /// Returns the series of a Parquet file: readers need the extension at the end of the name.
    pub(super) fn of_parquet(path: &Path) -> FileSeries {
        let stem = path.to_str().and_then(|path| path.strip_suffix(PARQUET));
        let stem = stem.map_or_else(|| path.as_os_str().to_os_string(), OsString::from);
        FileSeries { stem, extension: PARQUET }
    }

    fn named(&self, part: &str) -> PathBuf {
        let mut name = self.stem.clone();
        name.push(format!(".{part}{}", self.extension));
        name.into()
    }

    /// Returns the name of an unfinished file.
    pub(super) fn unfinished(&self) -> PathBuf {
        let mut name = self.stem.clone();
        name.push(".unfinished");
        name.into()
    }

    pub(super) fn free_name(&self) -> io::Result<PathBuf> {
        let time = UnixTimestamp::now().seconds().replace(['-', ':'], "");
        let name = |number: u32| self.named(&format!("{time}-{number:03}"));
        // The next number after the largest one in use, since a removed file had a smaller number.
        let number = (0..=NUMBER_MAX).rev().find(|number| name(*number).exists());
        let number = number.map_or(0, |number| number + 1);
        match number > NUMBER_MAX {
            true => Err(io::Error::other("its files have no name left in this second")),
            false => Ok(name(number)),
        }
    }

    /// Removes the oldest files above `keep`; 0 keeps all. Names sort by time.
    pub(super) fn remove_oldest(&self, keep: u32) -> io::Result<()> {
        let stem = Path::new(&self.stem);
        let (Some(folder), Some(name)) = (stem.parent(), stem.file_name()) else { return Ok(()) };
        if keep == 0 {
            return Ok(());
        }
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        let prefix = format!("{}.", name.to_string_lossy());
        let mut old: Vec<PathBuf> = Vec::new();
        for entry in fs::read_dir(folder)? {
            let (entry, rest) =
                (entry?, |name: &str| Some(name.strip_prefix(&prefix)?.to_string()));
            let rest = entry.file_name().to_str().and_then(rest);
            if rest.is_some_and(|rest| rest.strip_suffix(self.extension).is_some_and(is_time)) {
                old.push(entry.path());
            }
        }
        old.sort();
        old[..old.len().saturating_sub(keep as usize)].iter().try_for_each(fs::remove_file)
    }
}

/// Whether the text has the form `20261122T163000-000`.
fn is_time(text: &str) -> bool {
    let shape = |(at, byte): (usize, u8)| match at {
        8 => byte == b'T',
        15 => byte == b'-',
        _ => byte.is_ascii_digit(),
    };
    text.len() == 19 && text.bytes().enumerate().all(shape)
}

/// Creates the folder of a sink's file, with its parents.
pub(super) fn make_folder_of(path: &Path) -> io::Result<()> {
    let Some(folder) = path.parent() else { return Ok(()) };
    fs::create_dir_all(folder).map_err(|error| {
        let why = match error.kind() {
            io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => {
                "a part of the path is a file".to_string()
            }
            _ => error.to_string(),
        };
        io::Error::new(error.kind(), format!("its folder cannot be made: {why}"))
    })
}

/// Returns the log text of an error of a file, with the absolute path.
pub(super) fn describe_file_error(path: &Path, error: &io::Error) -> String {
    format!("{} (option file.path) cannot be written: {error}", absolute_path(path).display())
}

pub(super) fn sync_folder(path: &Path) -> io::Result<()> {
    match path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        Some(folder) => File::open(folder)?.sync_all(),
        None => File::open(".")?.sync_all(),
    }
}

/// Returns the offset after the last line break, searched from the end of the file.
fn end_of_last_line(file: &File, len: u64) -> io::Result<u64> {
    let (mut end, mut buffer) = (len, vec![0; READ_BYTES]);
    while end > 0 {
        let begin = end.saturating_sub(READ_BYTES as u64);
        let part = &mut buffer[..(end - begin) as usize];
        file.read_exact_at(part, begin)?;
        if let Some(at) = part.iter().rposition(|byte| *byte == b'\n') {
            return Ok(begin + at as u64 + 1);
        }
        end = begin;
    }
    Ok(0)
}

/// Whether the file begins with the CSV header, or with a part of it left by a crash.
fn has_expected_header(file: &File, settings: &FileSinkSettings) -> io::Result<bool> {
    let (mut header, mut first) = (Vec::new(), Vec::new());
    settings.columns.write_header(&mut header);
    first
        .resize(header.len().min(usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX)), 0);
    file.read_exact_at(&mut first, 0)?;
    Ok(header.starts_with(&first))
}

/// Returns the end of the last row of a CSV file. A line break within quotes does not end a row,
/// and quotes are only known by reading from the beginning.
fn end_of_last_row(mut file: &File) -> io::Result<u64> {
    let (mut at, mut whole, mut is_quoted) = (0_u64, 0_u64, false);
    let mut buffer = vec![0; READ_BYTES];
    loop {
        let len = file.read(&mut buffer)?;
        if len == 0 {
            return Ok(whole);
        }
        for byte in &buffer[..len] {
            at += 1;
            match byte {
                b'"' => is_quoted = !is_quoted,
                b'\n' if !is_quoted => whole = at,
                _ => {}
            }
        }
    }
}

const READ_BYTES: usize = 64 * 1024;
const NUMBER_MAX: u32 = 999;

#[cfg(test)]
mod tests {
    use super::super::columns::SinkColumns;
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("godwit-{}-sink-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        path
    }

    fn settings(format: FileFormat) -> FileSinkSettings {
        let columns = ["a=${topic}", "b=${payload}"].map(String::from);
        let columns = SinkColumns::parse(&columns).unwrap();
        FileSinkSettings {
            columns,
            format,
            keep: 2,
            rotate_bytes: 10,
            ..FileSinkSettings::default()
        }
    }

    #[test]
    fn a_torn_line_goes_when_the_file_is_opened() {
        let folder = folder("torn");
        let path = folder.join("below/a");
        for (format, torn, whole) in [
            (FileFormat::Json, &b"{\"a\":1}\n{\"a\":"[..], &b"{\"a\":1}\n"[..]),
            (FileFormat::Json, b"{\"a", b""),
            (FileFormat::Json, b"{}\n", b"{}\n"),
            (FileFormat::Csv, b"a,b\r\n1,\"x\r\ny\"\r\n2,\"x\r\ny", b"a,b\r\n1,\"x\r\ny\"\r\n"),
            (FileFormat::Csv, b"a,b\r\n1,\"x\"\"\r\ny\"\r\n", b"a,b\r\n1,\"x\"\"\r\ny\"\r\n"),
        ] {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, torn).unwrap();
            let mut file = AppendFile::open(&path, &settings(format), None).unwrap();
            assert_eq!(fs::read(&path).unwrap(), whole);
            file.append(b"3\n", true).unwrap();
            assert_eq!(fs::read(&path).unwrap(), [whole, b"3\n"].concat());
        }
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn what_somebody_else_wrote_stays_whole_under_another_name() {
        let folder = folder("others");
        let path = folder.join("a");
        let theirs = b"size,unit\r\n5\",inch\r\n6,cm\r\n";
        fs::write(&path, theirs).unwrap();
        let settings = settings(FileFormat::Csv);
        let mut file = AppendFile::open(&path, &settings, None).unwrap();
        assert!(file.is_empty());
        file.append(b"a,b\r\nx,y\r\n", true).unwrap();
        drop(file);
        assert!(!AppendFile::open(&path, &settings, None).unwrap().is_empty(), "it is ours");
        let mut all: Vec<Vec<u8>> = fs::read_dir(&folder)
            .unwrap()
            .map(|one| fs::read(one.unwrap().path()).unwrap())
            .collect();
        all.sort();
        assert_eq!(all, [b"a,b\r\nx,y\r\n".to_vec(), theirs.to_vec()]);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn the_end_of_a_long_line_is_found_from_behind() {
        let folder = folder("long");
        let path = folder.join("a");
        for before in [0, 1, READ_BYTES - 2, READ_BYTES - 1, READ_BYTES, 2 * READ_BYTES] {
            for torn in [0, 1, READ_BYTES - 1, READ_BYTES, READ_BYTES + 1, 3 * READ_BYTES] {
                let whole = [vec![b'a'; before], b"\n".to_vec()].concat();
                fs::write(&path, [whole.clone(), vec![b'b'; torn]].concat()).unwrap();
                AppendFile::open(&path, &settings(FileFormat::Json), None).unwrap();
                assert!(fs::read(&path).unwrap() == whole, "{before} {torn}");
            }
        }
        fs::remove_dir_all(folder).unwrap();
    }

    /// The unclosed quote reveals a search from the beginning of the file.
    #[test]
    fn only_a_file_that_is_as_it_was_left_is_not_read() {
        let folder = folder("left");
        let (path, settings) = (folder.join("a"), settings(FileFormat::Csv));
        let open = |left| AppendFile::open(&path, &settings, left).unwrap();
        let mut file = open(None);
        file.append(b"\"1\r\n", false).unwrap();
        let left = file.close().unwrap();
        let file = open(Some(left));
        assert!(!file.is_empty() && !file.was_replaced());
        fs::write(&path, "\"1\r\n2\r\n").unwrap();
        assert!(file.was_replaced(), "somebody else writes");
        assert!(open(Some(left)).is_empty(), "it was read");
        fs::write(folder.join("b"), "\"1\r\n").unwrap();
        fs::rename(folder.join("b"), &path).unwrap();
        assert!(open(Some(left)).is_empty(), "it is another one");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn large_files_retire_and_the_oldest_go() {
        let folder = folder("retire");
        let path = folder.join("a.log");
        fs::write(folder.join("a.log.mine"), "not ours").unwrap();
        let settings = settings(FileFormat::Json);
        for number in 0..5 {
            let mut file = AppendFile::open(&path, &settings, None).unwrap();
            assert!(!file.must_rotate(0, 100, &settings), "an empty one is never too large");
            file.append(format!("line {number}\n").as_bytes(), false).unwrap();
            assert!(!file.must_rotate(0, 3, &settings) && file.must_rotate(0, 4, &settings));
            assert!(file.must_rotate(1, 3, &settings));
            file.rotate(&settings).unwrap();
        }
        let mut names: Vec<PathBuf> =
            fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        names.sort();
        let texts: Vec<String> =
            names.iter().map(|path| fs::read_to_string(path).unwrap()).collect();
        assert_eq!(texts, ["line 3\n", "line 4\n", "not ours"], "{names:?}");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn time_is_cut_where_everyone_cuts_it() {
        let hourly = FileSinkSettings { rotate_s: 3600, ..FileSinkSettings::default() };
        let at = |s| UNIX_EPOCH + Duration::from_secs(s);
        assert_eq!(period(at(3599), &hourly), period(at(0), &hourly));
        assert_ne!(period(at(3600), &hourly), period(at(3599), &hourly));
        assert_eq!(period(at(3600), &FileSinkSettings::default()), 0);
    }
}
