//! `mosquitto.conf`: a line an option, `key value`. A `listener` or `connection` begins what
//! belongs to it, `include_dir` names a folder of more.

use super::draft::Draft;
use super::row::Row;
use super::table::mosquitto::{BRIDGES, ROWS};
use super::table::mosquitto_access::ACCESS;
use super::tree::{Entry, Folder, Node, Place, read};
use crate::options::nearest::nearest;
use std::collections::BTreeSet;
use std::rc::Rc;

/// Reads a file into the draft.
pub(super) fn take_in(text: &str, file: Rc<str>, draft: &mut Draft) {
    let mut reader = Reader {
        draft,
        listener: DEFAULT.to_string(),
        bridge: None,
        lines: 0,
        included: false,
        once: BTreeSet::new(),
    };
    reader.file(text, file);
}

/// The listener that there is without a `listener` line.
pub(super) const DEFAULT: &str = "default";

struct Reader<'a> {
    draft: &'a mut Draft,
    listener: String,
    bridge: Option<String>,
    /// Each listener and bridge is called by its number.
    lines: usize,
    included: bool,
    /// Keys of [`ONCE`] that were read, and whose they are.
    once: BTreeSet<(String, String)>,
}

impl Reader<'_> {
    fn file(&mut self, text: &str, file: Rc<str>) {
        for (at, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let place = Place { file: file.clone(), line: at + 1 };
            let (key, value) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
            let mut value = value.trim();
            if FLAGS.contains(&key) {
                // What stands behind it is not read there.
                value = value.split_whitespace().next().unwrap_or_default();
                if !value.is_empty() && !["true", "false", "1", "0"].contains(&value) {
                    let why = "no truth value of mosquitto's, use true or false";
                    self.draft.wrongs.push(format!("{place}: {key}: {why}"));
                    continue;
                }
            }
            self.line(&place, key, value);
        }
    }

    fn line(&mut self, place: &Place, key: &str, value: &str) {
        self.lines += 1;
        let node = Node::text_at(place, value);
        if value.is_empty() {
            let why = format!("{place}: {key} has no value, use {key} VALUE");
            return self.draft.wrongs.push(why);
        }
        let (row, name) = match (find_both(key), find(BRIDGES, key)) {
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
            _ => return self.draft.unknown(place, key, unknown(key)),
        };
        if ONCE.contains(&key) && !self.once.insert((self.owner(key), key.to_string())) {
            let why = format!(
                "{place}: {key} stands twice, and mosquitto does not start with that: leave one out"
            );
            return self.draft.wrongs.push(why);
        }
        let entry = Entry { key: key.to_string(), names: vec![name], node: &node };
        self.draft.take(row, &entry);
        if key == "include_dir" && !self.included {
            self.included = true;
            self.folder(&entry);
            self.included = false;
        }
    }

    /// The listener whose the key is; empty where it is everybody's.
    fn owner(&self, key: &str) -> String {
        let of_all = ["acl_file", "password_file", "psk_file"].contains(&key);
        match key {
            "bind_address" => DEFAULT.to_string(),
            _ if of_all && !self.draft.scope.is_per_listener() => String::new(),
            _ => self.listener.clone(),
        }
    }

    /// Its `.conf` files in the order of their names.
    fn folder(&mut self, entry: &Entry<'_>) {
        let place = &entry.node.place;
        let files = files(&self.draft.folder, entry.node.text().unwrap_or_default());
        match files {
            Ok(files) => {
                // Each begins outside of any listener and connection, and the rest of this one goes
                // on where it was.
                let listener = std::mem::replace(&mut self.listener, DEFAULT.to_string());
                let bridge = self.bridge.take();
                for (file, text) in files {
                    (self.listener, self.bridge) = (DEFAULT.to_string(), None);
                    self.file(&text, file);
                }
                (self.listener, self.bridge) = (listener, bridge);
            }
            Err(why) => self.draft.wrongs.push(format!("{place}: include_dir: {why}")),
        }
    }
}

fn files(folder: &Folder, named: &str) -> Result<Vec<(Rc<str>, String)>, String> {
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

/// mosquitto's order of names: letter by letter, and only for the same letter by its case. The last
/// of several values counts.
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

fn find_both(key: &str) -> Option<&'static Row> {
    find(ROWS, key).or_else(|| find(ACCESS, key))
}

fn find(rows: &'static [Row], key: &str) -> Option<&'static Row> {
    // What a plugin is told has a name of the plugin's.
    let is = |row: &&Row| match row.key.strip_suffix('*') {
        Some(start) => key.starts_with(start),
        None => row.key == key,
    };
    rows.iter().find(is)
}

/// How many of these lines are mosquitto's.
pub(super) fn score(text: &str) -> usize {
    let key = |line: &str| line.split_whitespace().next().map(str::to_string);
    let known = |key: &String| find_both(key).is_some() || find(BRIDGES, key).is_some();
    let lines = text.lines().map(str::trim).filter(|line| !line.contains(['=', '{', '}']));
    lines.filter_map(key).filter(known).count()
}

fn unknown(key: &str) -> String {
    let names = ROWS.iter().chain(ACCESS).chain(BRIDGES).map(|row| row.key);
    match nearest(key, names) {
        Some(meant) => format!("{key} is not known here, did you mean {meant}?"),
        None => format!("{key} is not known here, leave it out; docs/import.md has all keys"),
    }
}
