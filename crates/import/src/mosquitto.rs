//! `mosquitto.conf`: lines of `key value`. `listener` or `connection` begins a section, and
//! `include_dir` names a folder of further files.

use super::config_tree::{ConfigEntry, ConfigFolder, ConfigNode, SourceLocation, read};
use super::draft::ConfigDraft;
use super::row::ImportRow;
use super::table::mosquitto::{BRIDGES, ROWS};
use super::table::mosquitto_access::ACCESS;
use config::nearest::nearest_word;
use std::collections::BTreeSet;
use std::rc::Rc;

/// Reads a file, with included files, into the draft.
pub(super) fn read_mosquitto_file(text: &str, file: Rc<str>, draft: &mut ConfigDraft) {
    let mut reader = MosquittoReader {
        draft,
        listener: DEFAULT.to_string(),
        bridge: None,
        lines: 0,
        included: false,
        once: BTreeSet::new(),
    };
    reader.read_file(text, file);
}

/// Identifier of the listener that exists without a `listener` line.
pub(super) const DEFAULT: &str = "default";

struct MosquittoReader<'a> {
    draft: &'a mut ConfigDraft,
    listener: String,
    bridge: Option<String>,
    /// Number of lines read; a listener or bridge is identified by its line number.
    lines: usize,
    included: bool,
    /// Keys of [`ONCE`] read so far, each with its owner.
    once: BTreeSet<(String, String)>,
}

impl MosquittoReader<'_> {
    fn read_file(&mut self, text: &str, file: Rc<str>) {
        for (at, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let place = SourceLocation { file: file.clone(), line: at + 1 };
            let (key, value) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
            let mut value = value.trim();
            if FLAGS.contains(&key) {
                // mosquitto ignores further words of a truth value.
                value = value.split_whitespace().next().unwrap_or_default();
                if !value.is_empty() && !["true", "false", "1", "0"].contains(&value) {
                    let why = "no truth value of mosquitto's, use true or false";
                    self.draft.wrongs.push(format!("{place}: {key}: {why}"));
                    continue;
                }
            }
            self.read_line(&place, key, value);
        }
    }

    fn read_line(&mut self, place: &SourceLocation, key: &str, value: &str) {
        self.lines += 1;
        let node = ConfigNode::text_at(place, value);
        if value.is_empty() {
            let why = format!("{place}: {key} has no value, use {key} VALUE");
            return self.draft.wrongs.push(why);
        }
        let (row, name) = match (find_access_row(key), find_row(BRIDGES, key)) {
            (Some(row), _) => {
                if key == "listener" {
                    self.listener = format!("{}", self.lines);
                }
                (row, self.listener.clone())
            }
            (None, Some(row)) => {
                if key == "connection" {
                    self.bridge = Some(format!("{}#{value}", self.lines));
                }
                let Some(bridge) = &self.bridge else {
                    let why = format!("{place}: {key} stands before any connection, begin one");
                    return self.draft.wrongs.push(why);
                };
                (row, bridge.clone())
            }
            _ => return self.draft.report_unknown_key(place, key, unknown_key(key)),
        };
        if ONCE.contains(&key) && !self.once.insert((self.owner(key), key.to_string())) {
            let why = format!(
                "{place}: {key} stands twice, and mosquitto does not start with that: leave one out"
            );
            return self.draft.wrongs.push(why);
        }
        let entry = ConfigEntry { key: key.to_string(), names: vec![name], node: &node };
        self.draft.apply_row(row, &entry);
        if key == "include_dir" && !self.included {
            self.included = true;
            self.read_folder(&entry);
            self.included = false;
        }
    }

    /// Returns the listener that owns a key; empty if the key applies to all listeners.
    fn owner(&self, key: &str) -> String {
        let of_all = ["acl_file", "password_file", "psk_file"].contains(&key);
        match key {
            "bind_address" => DEFAULT.to_string(),
            _ if of_all && !self.draft.scope.is_per_listener() => String::new(),
            _ => self.listener.clone(),
        }
    }

    /// Reads the `.conf` files of a folder in mosquitto's order.
    fn read_folder(&mut self, entry: &ConfigEntry<'_>) {
        let place = &entry.node.place;
        let files = files(&self.draft.folder, entry.node.text().unwrap_or_default());
        match files {
            Ok(files) => {
                // Each file begins outside of any section; afterwards this file continues in its
                // own section.
                let listener = std::mem::replace(&mut self.listener, DEFAULT.to_string());
                let bridge = self.bridge.take();
                for (file, text) in files {
                    (self.listener, self.bridge) = (DEFAULT.to_string(), None);
                    self.read_file(&text, file);
                }
                (self.listener, self.bridge) = (listener, bridge);
            }
            Err(why) => self.draft.wrongs.push(format!("{place}: include_dir: {why}")),
        }
    }
}

fn files(folder: &ConfigFolder, named: &str) -> Result<Vec<(Rc<str>, String)>, String> {
    let path = folder.find(named)?;
    let wrong = |error: std::io::Error| format!("{}: {error}", path.display());
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(&path).map_err(wrong)? {
        let path = entry.map_err(wrong)?.path();
        if path.extension().is_some_and(|extension| extension == "conf") {
            paths.push(path);
        }
    }
    paths.sort_by_key(|path| order_of(&path.file_name().unwrap_or_default().to_string_lossy()));
    let one = |path: &std::path::PathBuf| Ok((path.display().to_string().into(), read(path)?));
    paths.iter().map(one).collect()
}

/// Sort key of mosquitto's file order: by letter regardless of case, then by case. The order
/// matters because the last of several values counts.
fn order_of(name: &str) -> Vec<(u8, u8)> {
    name.bytes().map(|byte| (byte.to_ascii_uppercase(), byte)).collect()
}

/// Keys about access that a listener, or all of them, have once.
const ONCE: &[&str] = &[
    "acl_file",
    "bind_address",
    "cafile",
    "capath",
    "certfile",
    "crlfile",
    "keyfile",
    "mount_point",
    "password_file",
    "psk_file",
    "psk_hint",
];

/// Truth values that decide about access.
const FLAGS: &[&str] = &[
    "allow_anonymous",
    "allow_zero_length_clientid",
    "listener_allow_anonymous",
    "per_listener_settings",
    "require_certificate",
    "use_identity_as_username",
    "use_subject_as_username",
    "use_username_as_clientid",
];

fn find_access_row(key: &str) -> Option<&'static ImportRow> {
    find_row(ROWS, key).or_else(|| find_row(ACCESS, key))
}

fn find_row(rows: &'static [ImportRow], key: &str) -> Option<&'static ImportRow> {
    // Options of a plugin have names defined by the plugin.
    let is = |row: &&ImportRow| match row.key.strip_suffix('*') {
        Some(start) => key.starts_with(start),
        None => row.key == key,
    };
    rows.iter().find(is)
}

/// Returns the number of lines with mosquitto's keys, to detect the project.
pub(super) fn score_text(text: &str) -> usize {
    let key = |line: &str| line.split_whitespace().next().map(str::to_string);
    let known = |key: &String| find_access_row(key).is_some() || find_row(BRIDGES, key).is_some();
    let lines = text.lines().map(str::trim).filter(|line| !line.contains(['=', '{', '}']));
    lines.filter_map(key).filter(known).count()
}

fn unknown_key(key: &str) -> String {
    let names = ROWS.iter().chain(ACCESS).chain(BRIDGES).map(|row| row.key);
    match nearest_word(key, names) {
        Some(meant) => format!("{key} is not known here, did you mean {meant}?"),
        None => format!("{key} is not known here, leave it out; docs/import.md has all keys"),
    }
}
