//! `godwit import`: converts a configuration of mosquitto, NanoMQ or EMQX. Every written value has
//! the line of its source, and keys without an equivalent are listed.
//!
//! Invariant: each key read is written, listed, or an error; with an error nothing is written.

#![forbid(unsafe_code)]

mod access;
mod auth_databases;
mod bridge;
mod chain;
mod clients;
mod config_tree;
mod draft;
mod emqx;
mod emqx_access;
mod emqx_listeners;
mod erlang_terms;
mod flapping;
mod flat;
mod hocon;
mod import_reference;
mod listener;
mod mosquitto;
mod nanomq_rules;
mod origin;
mod row;
mod rules;
mod shipped;
mod table;
mod units;
mod write;

#[cfg(test)]
mod tests;

use config::catalog::OptionCatalog;
use config_tree::{ConfigFolder, ConfigNode, SourceLocation};
use draft::{ConfigDraft, DraftSetting, UnsupportedKey};
use hocon::HoconDialect;
use row::{ImportValue, RowTables};
use rules::AclLanguage;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// A project whose configurations can be imported.
struct SourceProject {
    /// The project's name for `--from`.
    name: &'static str,
    title: &'static str,
    about: &'static str,
    form: ConfigSyntax,
    rows: RowTables,
    /// Decision of the original where no rule applies.
    allows_by_default: bool,
    /// Version of EMQX's language of rules.
    acl_language: AclLanguage,
    arrange: fn(ConfigNode, &mut ConfigDraft) -> ConfigNode,
    /// Adds defaults of the original that differ from the defaults here.
    imply: fn(&mut ConfigDraft),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ConfigSyntax {
    Flat,
    Hocon,
    Mosquitto,
}

const PROJECTS: &[SourceProject] = &[
    SourceProject {
        name: "mosquitto",
        title: "mosquitto",
        about: "`mosquitto.conf` of 2.0 and 2.1, with `include_dir`. By default mosquitto delivers \
                a retained message only while its publisher may still publish it; here it stays \
                until somebody clears it, also where the rules change.",
        form: ConfigSyntax::Mosquitto,
        rows: &[table::mosquitto_access::ACCESS, table::mosquitto::ROWS, table::mosquitto::BRIDGES],
        allows_by_default: false,
        acl_language: AclLanguage::Version5,
        arrange: |node, _| node,
        imply: table::mosquitto::imply,
    },
    SourceProject {
        name: "nanomq",
        title: "NanoMQ",
        about: "`nanomq.conf` in HOCON, with its files of passwords and rules. NanoMQ ignores what \
                it does not expect in a rule: a grant with such a part is left out, and a denial \
                is for more clients or topics, each with a line. A denial of `#` is for topics \
                that begin with `$` too, one of `a/+` is for `a` too, as versions differ, and one \
                that begins with `+` is unresolved.",
        form: ConfigSyntax::Hocon,
        rows: &[table::nanomq::ROWS],
        allows_by_default: true,
        acl_language: AclLanguage::NanoMq,
        arrange: table::nanomq::arrange,
        imply: table::nanomq::imply,
    },
    SourceProject {
        name: "nanomq-old",
        title: "NanoMQ, the old file",
        about: "`nanomq.conf` by lines, which NanoMQ reads with `--old_conf`.",
        form: ConfigSyntax::Flat,
        rows: &[table::nanomq_old::ROWS],
        allows_by_default: true,
        acl_language: AclLanguage::NanoMq,
        arrange: |node, _| node,
        imply: table::nanomq_old::imply,
    },
    SourceProject {
        name: "emqx",
        title: "EMQX",
        about: "`emqx.conf`, `base.hocon` or `cluster.hocon` of 5 and 6. Without `no_match` what \
                no rule allows is refused.",
        form: ConfigSyntax::Hocon,
        rows: &[table::emqx::ROWS, table::emqx::LISTENERS],
        allows_by_default: false,
        acl_language: AclLanguage::Version5,
        arrange: emqx::arrange_tree,
        imply: emqx::add_defaults,
    },
    SourceProject {
        name: "emqx4",
        title: "EMQX 4",
        about: "`emqx.conf` of 4.x, with its `acl.conf`. What plugins do is not read.",
        form: ConfigSyntax::Flat,
        rows: &[table::emqx4::ROWS],
        allows_by_default: true,
        acl_language: AclLanguage::Version4,
        arrange: |node, _| node,
        imply: table::emqx4::imply,
    },
];

/// Input and output of an import.
#[derive(Clone, Debug, Default)]
pub struct ImportRequest {
    pub file: PathBuf,
    /// Kind of configuration, one of [`kinds`]; detected by its keys if absent.
    pub from: Option<String>,
    /// Main file to write.
    pub out: Option<PathBuf>,
    /// Whether an unknown key is an error.
    pub strict: bool,
}

/// Converts a configuration to the files to write, or returns every error.
pub fn import(
    request: &ImportRequest,
    catalog: &'static OptionCatalog,
) -> Result<ImportOutput, Vec<String>> {
    let ImportRequest { file, from, out, strict } = request;
    if let Some(from) = from
        && !PROJECTS.iter().any(|project| project.name == from)
    {
        let right = config::value::one_of(&kinds().collect::<Vec<_>>());
        return Err(vec![format!("--from {from}: unknown kind, use {right}")]);
    }
    let options = ImportOptions { from: from.as_deref(), strict: *strict, has_out: out.is_some() };
    convert_file(file, &options, catalog).and_then(|draft| build_output(draft, file, out))
}

/// Kinds of configurations, for `ImportRequest::from`.
pub fn kinds() -> impl Iterator<Item = &'static str> {
    PROJECTS.iter().map(|project| project.name)
}

/// Prints the tables as the page `docs/import.md`.
pub fn markdown() -> String {
    import_reference::markdown()
}

/// Options of an import.
struct ImportOptions<'a> {
    from: Option<&'a str>,
    /// Whether an unknown key is an error.
    strict: bool,
    /// Whether further files may be written next to the main file.
    has_out: bool,
}

fn convert_file(
    file: &Path,
    options: &ImportOptions<'_>,
    catalog: &'static OptionCatalog,
) -> Result<ConfigDraft, Vec<String>> {
    let text = config_tree::read(file).map_err(|why| vec![why])?;
    convert(&text, &file.display().to_string(), options, ConfigFolder::of_file(file), catalog)
}

/// Converts the text of a configuration to a draft, or returns every error.
fn convert(
    text: &str,
    shown: &str,
    options: &ImportOptions<'_>,
    folder: ConfigFolder,
    catalog: &'static OptionCatalog,
) -> Result<ConfigDraft, Vec<String>> {
    let file: Rc<str> = shown.into();
    let has_carriage_returns = text.contains('\r');
    let text = &text.replace("\r\n", "\n");
    let named = PROJECTS.iter().find(|project| Some(project.name) == options.from);
    let mut draft = ConfigDraft::new(catalog, folder);
    (draft.is_strict, draft.has_out) = (options.strict, options.has_out);
    if origin::is_blank(text) && named.is_none() {
        draft.notes.push(format!("{shown}: it sets nothing, so every option keeps its default"));
        return Ok(draft);
    }
    let project = match named {
        Some(project) => project,
        None => origin::recognize(text, &file, &draft.folder, catalog)?,
    };
    if project.name == "nanomq-old" && has_carriage_returns {
        let why = "NanoMQ reads the carriage return at the end of a line as part of the value, so \
                   that true is not true: save the file with the ends of lines of Unix";
        return Err(vec![format!("{shown}:1: {why}")]);
    }
    draft.acl_language = project.acl_language;
    // A file with only rules or users says nothing about other options.
    let mut is_part = false;
    match project.form {
        ConfigSyntax::Mosquitto => mosquitto::read_mosquitto_file(text, file, &mut draft),
        ConfigSyntax::Flat => flat::read_flat_file(project.rows, text, &file, &mut draft),
        ConfigSyntax::Hocon => {
            let is_nanomq = project.name == "nanomq";
            let dialect = if is_nanomq { HoconDialect::NanoMq } else { HoconDialect::Emqx };
            let mut root = hocon::read(text, dialect, file.clone(), &draft.folder)?;
            is_part = origin::is_terms(&root);
            if is_nanomq && table::nanomq::is_user_file(&file, &root) {
                (root, is_part) = (table::nanomq::user_file(root), true);
            }
            if is_nanomq {
                is_part |= table::nanomq_nodes::arrange_rule_file(&mut root);
            }
            let root = (project.arrange)(root, &mut draft);
            row::apply_rows(project.rows, &root, &mut draft);
        }
    }
    if !draft.wrongs.is_empty() {
        return Err(draft.wrongs);
    }
    finish_draft(project, is_part, &mut draft);
    Ok(draft)
}

/// Completes the draft after all entries are known.
fn finish_draft(project: &SourceProject, is_part: bool, draft: &mut ConfigDraft) {
    auth_databases::finish_databases(draft);
    emqx::finish_rules(draft);
    flapping::finish_flapping(draft);
    if !is_part {
        (project.imply)(draft);
    }
    access::finish_access(draft);
    listener::finish_listeners(draft);
    bridge::finish_bridges(draft);
    rules::finish_rules(draft, project.allows_by_default && !is_part);
    fit_options(draft);
    access::note_clamped(draft);
}

/// Removes options that do not fit the other options, as `options::checks` in `godwit` requires.
fn fit_options(draft: &mut ConfigDraft) {
    let authenticates = draft.requires_authentication();
    let has_certificate =
        draft.setting("auth.certificate").is_some_and(|there| there.value.text() != "off");
    let (missing, settings) = (&mut draft.missing, &mut draft.settings);
    settings.retain(|setting| {
        let why = match setting.key {
            "auth.certificate_client_id" if !has_certificate => {
                "it needs auth.certificate, which says who the client is"
            }
            _ => return true,
        };
        missing.push(unsupported_of_note(&setting.note, why));
        false
    });
    for listener in &mut draft.listeners {
        let demands = &mut listener.demands;
        let proves = |one: &DraftSetting| one.proves_names() && !one.value.text().is_empty();
        let authenticates = authenticates || listener.settings.iter().any(proves);
        listener.settings.retain(|setting| {
            let asks = setting.key == "namespace" && setting.toml.contains("${username}");
            if asks && !authenticates {
                let why = "it mounts clients by their names, and nobody is asked who it is: name \
                           users with auth.*, or take a namespace without a name";
                demands.unresolved.push(format!("{}: {why}", setting.note));
                demands.namespace = true;
                missing.push(unsupported_of_note(&setting.note, "nobody is asked who it is"));
            }
            !asks || authenticates
        });
    }
    let number = |draft: &ConfigDraft, key: &str, default: u64| {
        draft.setting(key).map_or(default, |setting| setting.value.number())
    };
    let packet = number(draft, "connection.packet_bytes_max", 2 << 20);
    if packet > number(draft, "queue.bytes_max", 64 << 20) {
        draft.add_implied(
            "queue.bytes_max",
            &packet.to_string(),
            "one packet must fit into a queue",
        );
    }
}

/// Splits a note in the form `FILE:LINE KEY`. Both parts may contain spaces.
fn unsupported_of_note(note: &str, why: &str) -> UnsupportedKey {
    let parts = note.match_indices(' ').find_map(|(space, _)| {
        let (file, line) = note[..space].rsplit_once(':')?;
        let line: usize = line.parse().ok()?;
        Some((SourceLocation { file: file.into(), line }, note[space + 1..].to_string()))
    });
    let unknown = || (SourceLocation { file: "".into(), line: 1 }, note.to_string());
    let (place, key) = parts.unwrap_or_else(unknown);
    UnsupportedKey { place, key, why: why.to_string() }
}

/// Result of an import.
pub struct ImportOutput {
    /// All files, the main file first; a path of `None` is stdout.
    pub files: Vec<(Option<PathBuf>, Vec<u8>)>,
    /// Keys without an equivalent, one per line.
    pub missing: Vec<String>,
}

fn build_output(
    mut draft: ConfigDraft,
    file: &Path,
    out: &Option<PathBuf>,
) -> Result<ImportOutput, Vec<String>> {
    let from = file.display().to_string();
    let mut beside = Vec::new();
    let needs = |what: &str| vec![format!("{from}: {what} go to a file of their own, use --out")];
    if !draft.rules.is_empty() {
        let out = out.as_ref().ok_or_else(|| needs("rules"))?;
        let path = out.with_extension("rules.toml");
        draft.add_implied(
            "acl.file",
            &path.display().to_string(),
            "the rules, in a file of their own",
        );
        beside.push((Some(path), write::write_rules(&draft, &from).into_bytes()));
    }
    if let Some(key) = draft.token_key.take() {
        let out = out.as_ref().ok_or_else(|| needs("keys"))?;
        let path = out.with_extension("jwt-key");
        let note = draft.setting("auth.jwt_keys").map_or(String::new(), |there| there.note.clone());
        draft.add_implied("auth.jwt_keys", &path.display().to_string(), &note);
        beside.push((Some(path), [&key[..], b"\n"].concat()));
    }
    if draft.has_no_users {
        draft.notes.push(
            "auth.users: nobody can come in yet, because nothing that says who clients are was \
             carried over: add users with godwit passwd FILE USER, or write auth.* by hand"
                .to_string(),
        );
    }
    if !draft.users.is_empty() || draft.has_no_users && out.is_some() {
        let out = out.as_ref().ok_or_else(|| needs("passwords"))?;
        let path = out.with_extension("users");
        let note = "the users, in a file of their own";
        draft.add_implied("auth.users", &path.display().to_string(), note);
        let users = write::write_users(&draft).map_err(|why| vec![why])?;
        beside.push((Some(path), users.into_bytes()));
    }
    if let Some(path) = name_nobody(&mut draft, out).map_err(|()| needs("passwords"))? {
        beside
            .push((Some(path), write::write_users(&draft).map_err(|why| vec![why])?.into_bytes()));
    }
    let mut files = vec![(out.clone(), write::write_options(&draft, &from).into_bytes())];
    files.append(&mut beside);
    let missing =
        write::list_unsupported(&draft).iter().map(|line| format!("no equal: {line}")).collect();
    Ok(ImportOutput { files, missing })
}

/// Writes an empty file of users, so that clients with a name are refused if the original accepted
/// names without a password. Returns the path of the file unless already written; an error if no
/// file may be written.
fn name_nobody(draft: &mut ConfigDraft, out: &Option<PathBuf>) -> Result<Option<PathBuf>, ()> {
    let of_listeners = draft.listeners.iter().filter_map(|one| one.unchecked_names.clone());
    let notes: Vec<String> = draft.unchecked_names.iter().cloned().chain(of_listeners).collect();
    if notes.is_empty() {
        return Ok(None);
    }
    let path = out.as_ref().ok_or(())?.with_extension("users");
    let said = || ImportValue::Text(path.display().to_string());
    for listener in &mut draft.listeners {
        let note = listener.unchecked_names.take();
        let setting = note
            .and_then(|note| draft::build_option(draft.catalog, "auth.users", said(), note).ok());
        setting.into_iter().for_each(|setting| draft::put_setting(&mut listener.settings, setting));
    }
    let is_written = draft.has_no_users;
    if let Some(note) = draft.unchecked_names.take().filter(|_| !is_written) {
        draft.add_implied("auth.users", &path.display().to_string(), &note);
    }
    draft.notes.extend(notes);
    Ok((!is_written).then_some(path))
}

/// Writes all files, or none: an error removes the files written so far.
pub fn write_files(made: &ImportOutput) -> Result<(), String> {
    let mut there: Vec<&Path> = Vec::new();
    for (path, text) in &made.files {
        let Some(path) = path else { continue };
        let open = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        let written = open.and_then(|mut file| {
            there.push(path);
            file.write_all(text)?;
            file.sync_all()
        });
        if let Err(error) = written {
            there.iter().for_each(|path| _ = fs::remove_file(path));
            return Err(format!("{}: {error}; nothing was written", path.display()));
        }
    }
    Ok(())
}
