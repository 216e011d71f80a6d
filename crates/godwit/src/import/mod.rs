//! `godwit import`: reads a configuration of mosquitto, NanoMQ or EMQX and writes ours, with the
//! line that each value comes from and a list of what has no equal.
//!
//! Invariant: a key that is read is written, in the list, or an error; with an error nothing is
//! written.

mod bridge;
mod clients;
mod draft;
mod emqx;
mod flat;
mod hocon;
mod listener;
mod mosquitto;
mod page;
mod row;
mod rules;
mod table;
mod tables;
mod terms;
mod tree;
mod units;
mod write;

#[cfg(test)]
mod tests;

use crate::flags::{self, Flag};
use crate::options::{Plan, Sources};
use crate::{complain, fail, print, refuse};
use draft::{Draft, Missing};
use row::Row;
use std::ffi::OsString;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;
use tree::{Folder, Node, Place};

/// A broker whose configuration is read.
struct Project {
    /// As `--from` says it.
    name: &'static str,
    title: &'static str,
    about: &'static str,
    form: Form,
    rows: &'static [&'static [Row]],
    /// What counts there where no rule says anything.
    allows_by_default: bool,
    arrange: fn(Node, &mut Draft) -> Node,
    /// What is there without a word, and is not here.
    imply: fn(&mut Draft),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Flat,
    Hocon,
    Mosquitto,
}

const PROJECTS: &[Project] = &[
    Project {
        name: "mosquitto",
        title: "mosquitto",
        about: "`mosquitto.conf` of 2.0 and 2.1, with `include_dir`.",
        form: Form::Mosquitto,
        rows: &[table::mosquitto::ROWS, table::mosquitto::BRIDGES],
        allows_by_default: false,
        arrange: |node, _| node,
        imply: table::mosquitto::imply,
    },
    Project {
        name: "nanomq",
        title: "NanoMQ",
        about: "`nanomq.conf` in HOCON, with its files of passwords and rules.",
        form: Form::Hocon,
        rows: &[table::nanomq::ROWS],
        allows_by_default: true,
        arrange: table::nanomq::arrange,
        imply: table::nanomq::imply,
    },
    Project {
        name: "nanomq-old",
        title: "NanoMQ, the old file",
        about: "`nanomq.conf` by lines, which NanoMQ reads with `--old_conf`.",
        form: Form::Flat,
        rows: &[table::nanomq_old::ROWS],
        allows_by_default: true,
        arrange: |node, _| node,
        imply: table::nanomq_old::imply,
    },
    Project {
        name: "emqx",
        title: "EMQX",
        about: "`emqx.conf`, `base.hocon` or `cluster.hocon` of 5 and 6. Without `no_match` what \
                no rule allows is refused.",
        form: Form::Hocon,
        rows: &[table::emqx::ROWS],
        allows_by_default: false,
        arrange: emqx::arrange,
        imply: emqx::imply,
    },
];

const FLAGS: &[Flag] = &[
    Flag {
        names: &["--from"],
        values: &["KIND"],
        doc: "mosquitto, nanomq, nanomq-old or emqx; told by the keys without it",
    },
    Flag { names: &["--out"], values: &["FILE"], doc: "where to write; it must not be there yet" },
    Flag { names: &["--markdown"], values: &[], doc: "the tables, as the page docs/import.md" },
    Flag { names: &["-h", "--help"], values: &[], doc: "this" },
];

const HELP: &str = "\
Usage: godwit import [--from KIND] [--out FILE] FILE

Reads a configuration of mosquitto, NanoMQ or EMQX and writes ours, to stdout or FILE, with the line
that each value comes from. What has no equal stands at its end and on stderr. Rules and plain
passwords go to files beside FILE. Exit code 2 if anything is wrong; nothing is written then.

";

pub(crate) fn run(arguments: &[OsString]) -> ExitCode {
    let order = match read(arguments) {
        Ok(Some(order)) => order,
        Ok(None) => return print(&format!("{HELP}{}", flags::help(FLAGS))),
        Err(wrongs) => return refuse(&wrongs),
    };
    let Order::Import { file, from, out } = order else { return print(&page::markdown()) };
    let made = convert_file(&file, from.as_deref()).and_then(|draft| make(draft, &file, &out));
    let made = match made {
        Ok(made) => made,
        Err(wrongs) => return refuse(&wrongs),
    };
    if let Err(why) = put(&made) {
        return fail(&[why]);
    }
    complain(&made.missing);
    match &out {
        None => print(&made.files[0].1),
        Some(out) => {
            // Files that it names may be on another host: those are for `check` to look at.
            let sources = Sources { config: Some(out.clone()), ..Sources::default() };
            let left = Plan::read(&sources).err().unwrap_or_default();
            complain(&left.iter().map(|one| format!("still to do: {one}")).collect::<Vec<_>>());
            ExitCode::SUCCESS
        }
    }
}

enum Order {
    Import { file: PathBuf, from: Option<String>, out: Option<PathBuf> },
    Markdown,
}

fn read(arguments: &[OsString]) -> Result<Option<Order>, Vec<String>> {
    // The file may stand before the flags or behind them.
    let is_flag = |word: &OsString| word.to_string_lossy().starts_with('-');
    let (mut words, mut file) = (arguments.to_vec(), None);
    if words.first().is_some_and(|word| !is_flag(word)) {
        file = Some(words.remove(0));
    } else if words.len() > 1 {
        let before = words[words.len() - 2].to_string_lossy().into_owned();
        let last = words.last().filter(|word| !is_flag(word));
        if last.is_some() && !["--from", "--out"].contains(&before.as_str()) {
            file = words.pop();
        }
    }
    let used = flags::read(FLAGS, &words)?;
    let named = |name: &str| used.iter().rev().find(|used| used.name == name);
    if named("--help").is_some() {
        return Ok(None);
    }
    if named("--markdown").is_some() {
        return Ok(Some(Order::Markdown));
    }
    let file = file.ok_or_else(|| vec!["use godwit import [--out FILE] FILE".to_string()])?;
    let from = named("--from").map(|used| used.value().to_string());
    if let Some(from) = &from
        && !PROJECTS.iter().any(|project| project.name == from)
    {
        let names: Vec<&str> = PROJECTS.iter().map(|project| project.name).collect();
        let right = crate::options::value::one_of(&names);
        return Err(vec![format!("--from {from}: there is no such kind, use {right}")]);
    }
    let out = named("--out").map(|used| PathBuf::from(used.value()));
    Ok(Some(Order::Import { file: PathBuf::from(file), from, out }))
}

fn convert_file(file: &Path, from: Option<&str>) -> Result<Draft, Vec<String>> {
    let text = tree::read(file).map_err(|why| vec![why])?;
    convert(&text, &file.display().to_string(), from, Folder::of(file))
}

/// What is to be written, or everything that is wrong.
fn convert(
    text: &str,
    shown: &str,
    from: Option<&str>,
    folder: Folder,
) -> Result<Draft, Vec<String>> {
    let file: Rc<str> = shown.into();
    let named = PROJECTS.iter().find(|project| Some(project.name) == from);
    let project = match named {
        Some(project) => project,
        None => recognise(text, &file, &folder)?,
    };
    let mut draft = Draft::new(folder);
    match project.form {
        Form::Mosquitto => mosquitto::take_in(text, file, &mut draft),
        Form::Flat => flat::take_in(text, &file, &mut draft),
        Form::Hocon => {
            let root = hocon::read(text, file, &draft.folder)?;
            let root = (project.arrange)(root, &mut draft);
            row::walk(project.rows[0], &root, &mut draft);
        }
    }
    if !draft.wrongs.is_empty() {
        return Err(draft.wrongs);
    }
    finish(project, &mut draft);
    Ok(draft)
}

/// Whose file this is: theirs who know most of its keys.
fn recognise(text: &str, file: &Rc<str>, folder: &Folder) -> Result<&'static Project, Vec<String>> {
    let tree = hocon::read(text, file.clone(), folder);
    let scores = PROJECTS.iter().map(|project| match (project.form, &tree) {
        (Form::Mosquitto, _) => mosquitto::score(text),
        (Form::Flat, _) => flat::score(text),
        (Form::Hocon, Ok(root)) => row::score(project.rows[0], root),
        (Form::Hocon, Err(_)) => 0,
    });
    let mut scores: Vec<(usize, &Project)> = scores.zip(PROJECTS).collect();
    scores.sort_by_key(|(score, _)| std::cmp::Reverse(*score));
    let [(most, project), (next, _), ..] = scores[..] else {
        return Err(vec!["there are no tables".to_string()]);
    };
    match tree {
        Err(wrongs) if has_braces(text) => Err(wrongs),
        _ if most > next => Ok(project),
        _ => Err(vec![format!(
            "{file}:1: nothing tells whose configuration this is, say it with --from mosquitto, \
             nanomq, nanomq-old or emqx"
        )]),
    }
}

fn has_braces(text: &str) -> bool {
    let lines = text.lines().map(str::trim).filter(|line| !line.starts_with(['#', '/']));
    lines.into_iter().any(|line| line.ends_with('{') || line == "}")
}

/// What shows only once everything is read.
fn finish(project: &Project, draft: &mut Draft) {
    tables::finish(draft);
    emqx::finish(draft);
    (project.imply)(draft);
    listener::finish(draft);
    bridge::finish(draft);
    rules::finish(draft, project.allows_by_default);
    fit(draft);
}

/// Options that must fit each other, as `options::checks` has it.
fn fit(draft: &mut Draft) {
    let authenticates = draft.authenticates();
    let has_certificate =
        draft.setting("auth.certificate").is_some_and(|there| there.value.text() != "off");
    let (missing, settings) = (&mut draft.missing, &mut draft.settings);
    settings.retain(|setting| {
        let why = match setting.key {
            "allow_anonymous" if setting.value.text() == "false" && !authenticates => {
                "nobody could come in: name users with auth.users"
            }
            "auth.certificate_client_id" if !has_certificate => {
                "it needs auth.certificate, which says who the client is"
            }
            _ => return true,
        };
        missing.push(left_out(&setting.note, why));
        false
    });
    for listener in &mut draft.listeners {
        listener.settings.retain(|setting| {
            let asks = setting.key == "namespace" && setting.toml.contains("${username}");
            if asks && !authenticates {
                missing.push(left_out(&setting.note, "nobody is asked who it is"));
            }
            !asks || authenticates
        });
    }
    let number = |draft: &Draft, key: &str, default: u64| {
        draft.setting(key).map_or(default, |setting| setting.value.number())
    };
    let packet = number(draft, "connection.packet_bytes_max", 2 << 20);
    if packet > number(draft, "queue.bytes_max", 64 << 20) {
        draft.imply("queue.bytes_max", &packet.to_string(), "one packet must fit into a queue");
    }
}

/// Of what comes from `FILE:LINE KEY`. There may be spaces in either of them.
fn left_out(note: &str, why: &str) -> Missing {
    let parts = note.match_indices(' ').find_map(|(space, _)| {
        let (file, line) = note[..space].rsplit_once(':')?;
        let line: usize = line.parse().ok()?;
        Some((Place { file: file.into(), line }, note[space + 1..].to_string()))
    });
    let unknown = || (Place { file: "".into(), line: 1 }, note.to_string());
    let (place, key) = parts.unwrap_or_else(unknown);
    Missing { place, key, why: why.to_string() }
}

/// All files, the main one first.
struct Made {
    files: Vec<(Option<PathBuf>, String)>,
    missing: Vec<String>,
}

fn make(mut draft: Draft, file: &Path, out: &Option<PathBuf>) -> Result<Made, Vec<String>> {
    let from = file.display().to_string();
    let mut beside = Vec::new();
    let needs = |what: &str| vec![format!("{from}: {what} go to a file of their own, use --out")];
    if !draft.rules.is_empty() {
        let out = out.as_ref().ok_or_else(|| needs("rules"))?;
        let path = out.with_extension("rules.toml");
        draft.imply("acl.file", &path.display().to_string(), "the rules, in a file of their own");
        beside.push((Some(path), write::rules(&draft, &from)));
    }
    if !draft.users.is_empty() {
        let out = out.as_ref().ok_or_else(|| needs("passwords"))?;
        let path = out.with_extension("users");
        let note = "the users, in a file of their own";
        draft.imply("auth.users", &path.display().to_string(), note);
        beside.push((Some(path), write::users(&draft).map_err(|why| vec![why])?));
    }
    let mut files = vec![(out.clone(), write::options(&draft, &from))];
    files.append(&mut beside);
    let missing = write::missing(&draft).iter().map(|line| format!("no equal: {line}")).collect();
    Ok(Made { files, missing })
}

/// All of them or none.
fn put(made: &Made) -> Result<(), String> {
    let mut there: Vec<&Path> = Vec::new();
    for (path, text) in &made.files {
        let Some(path) = path else { continue };
        let open = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        let written = open.and_then(|mut file| {
            there.push(path);
            file.write_all(text.as_bytes())?;
            file.sync_all()
        });
        if let Err(error) = written {
            there.iter().for_each(|path| _ = fs::remove_file(path));
            return Err(format!("{}: {error}; nothing was written", path.display()));
        }
    }
    Ok(())
}
