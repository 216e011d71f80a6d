//! Detection of the project of a configuration: by its keys, by the project's names for values, and
//! finally by the name of the file.

use super::config_tree::{ConfigFolder, ConfigNode, ConfigTree};
use super::draft::ConfigDraft;
use super::hocon::HoconDialect;
use super::{ConfigSyntax, PROJECTS, SourceProject, flat, hocon, mosquitto, row};
use config::catalog::OptionCatalog;
use std::path::Path;
use std::rc::Rc;

/// Returns the project whose rows match most of the file; keys of several projects do not decide.
pub(super) fn recognize(
    text: &str,
    file: &Rc<str>,
    folder: &ConfigFolder,
    catalog: &'static OptionCatalog,
) -> Result<&'static SourceProject, Vec<String>> {
    let tree = hocon::read(text, HoconDialect::Standard, file.clone(), folder);
    let scores = PROJECTS.iter().map(|project| match (project.form, &tree) {
        (ConfigSyntax::Mosquitto, _) => 2 * mosquitto::score_text(text),
        (ConfigSyntax::Flat, _) if has_braces(text) => 0,
        (ConfigSyntax::Flat, _) => flat::score_text(project.rows, text),
        (ConfigSyntax::Hocon, Ok(root)) => {
            let mut scratch =
                ConfigDraft::new(catalog, ConfigFolder::of_file(Path::new("nowhere/x")));
            let root = (project.arrange)(root.clone(), &mut scratch);
            row::score(project.rows, &root)
        }
        (ConfigSyntax::Hocon, Err(_)) => 0,
    });
    let scores: Vec<(usize, &SourceProject)> = scores.zip(PROJECTS).collect();
    let most = scores.iter().map(|(score, _)| *score).max().unwrap_or(0);
    let best: Vec<&SourceProject> =
        scores.iter().filter(|(score, _)| *score == most).map(|(_, project)| *project).collect();
    match tree {
        Err(wrongs) if has_braces(text) => return Err(wrongs),
        // `acl.conf` has one format, and where versions differ, EMQX 5's interpretation allows
        // less.
        Ok(root) if is_terms(&root) => {
            let name = if file.contains("nanomq") { "nanomq" } else { "emqx" };
            return PROJECTS.iter().find(|project| project.name == name).ok_or_else(Vec::new);
        }
        _ => {}
    }
    if let [project] = best[..] {
        return match mixed_key(project, text).or_else(|| other_name(project, file)) {
            Some(why) => Err(vec![format!("{file}:1: {why}")]),
            None => Ok(project),
        };
    }
    // Nothing is of 4.x only.
    if best.iter().all(|project| project.name.starts_with("emqx")) && most > 0 {
        return Ok(best[0]);
    }
    by_file_name(file, &best).ok_or_else(|| {
        let names: Vec<&str> = super::kinds().collect();
        vec![format!(
            "{file}:1: nothing tells whose configuration this is, say it with --from {}",
            names.join(", ")
        )]
    })
}

/// Returns the error if a file of lines may be of another project: one of its keys is known only to
/// that project.
fn mixed_key(project: &SourceProject, text: &str) -> Option<String> {
    let is_flat = |one: &&SourceProject| matches!(one.form, ConfigSyntax::Flat);
    let mut others = PROJECTS.iter().filter(|one| is_flat(one) && one.name != project.name);
    let foreign = |other: &SourceProject| {
        let key = flat::foreign_key(other.rows, project.rows, text)?;
        let (own, other) = (project.name, other.name);
        Some(format!(
            "most keys are of {own}, and {key} is of {other}: say with --from which it is"
        ))
    };
    is_flat(&project).then(|| others.find_map(foreign)).flatten()
}

/// Returns the error for a file with NanoMQ's keys whose name contains `emqx`: a plugin of EMQX 4
/// has the same keys, and interprets the responses of servers differently.
fn other_name(project: &SourceProject, file: &str) -> Option<String> {
    let name = Path::new(file).file_name()?.to_string_lossy().to_lowercase();
    let is_other = project.name == "nanomq-old" && name.contains("emqx") && !name.contains("nano");
    is_other.then(|| {
        "its keys are of nanomq-old, and its name of emqx4: say with --from which it is".to_string()
    })
}

fn by_file_name(file: &str, among: &[&'static SourceProject]) -> Option<&'static SourceProject> {
    let name = Path::new(file).file_name()?.to_string_lossy().to_lowercase();
    let named = |project: &&&SourceProject| {
        let word = project.name.trim_end_matches("-old").trim_end_matches('4');
        name.contains(word)
    };
    let mut named = among.iter().filter(named);
    named.next().copied()
}

fn has_braces(text: &str) -> bool {
    let lines = text.lines().map(str::trim).filter(|line| !line.starts_with(['#', '/']));
    lines.into_iter().any(|line| line.ends_with('{') || line == "}")
}

/// Whether the file has only rules of an `acl.conf`.
pub(super) fn is_terms(root: &ConfigNode) -> bool {
    let ConfigTree::Object(fields) = &root.tree else { return false };
    fields.len() == 1 && fields[0].0 == hocon::TERMS
}

/// Whether a file has only blank lines and comments.
pub(super) fn is_blank(text: &str) -> bool {
    let is_comment = |line: &str| {
        let line = line.trim();
        line.is_empty() || line.starts_with(['#', '%']) || line.starts_with("//")
    };
    text.lines().all(is_comment)
}
