//! Allowed dependencies between crates: a crate exists only to forbid a dependency, so the table
//! [`CRATE_RULES`] is the reason for every crate.

use super::TidyFinding;
use crate::tree::SourceTree;

/// Rule of a crate: the project's crates in `may` are allowed, and external crates in `never` are
/// banned.
struct CrateRule {
    name: &'static str,
    may: &'static [&'static str],
    never: &'static [&'static str],
}

/// Crates which read clocks, open files or sockets, or share memory: not allowed in a pure crate.
const IMPURE: &[&str] =
    &["async-std", "crossbeam", "mio", "parking_lot", "rand", "rayon", "serde", "smol", "tokio"];
const RUNTIMES: &[&str] = &["async-std", "axum", "hyper", "reqwest", "smol", "tokio"];

const CRATE_RULES: &[CrateRule] = &[
    CrateRule { name: "netem", may: &[], never: RUNTIMES },
    CrateRule { name: "command_line", may: &[], never: IMPURE },
    CrateRule { name: "config", may: &["mqtt"], never: IMPURE },
    CrateRule { name: "mqtt", may: &[], never: IMPURE },
    CrateRule { name: "broker", may: &["mqtt", "rules"], never: IMPURE },
    CrateRule { name: "broker_options", may: &["broker", "config", "mqtt"], never: IMPURE },
    CrateRule { name: "rules", may: &["mqtt"], never: IMPURE },
    CrateRule { name: "websocket_codec", may: &[], never: IMPURE },
    CrateRule { name: "zmtp_sp", may: &["websocket_codec"], never: IMPURE },
    CrateRule { name: "transport", may: &["websocket_codec"], never: RUNTIMES },
    CrateRule { name: "store", may: &[], never: RUNTIMES },
    CrateRule {
        name: "engine",
        may: &["broker", "config", "mqtt", "rules", "store", "transport", "websocket_codec"],
        never: RUNTIMES,
    },
    CrateRule {
        name: "sim",
        may: &["broker", "broker_options", "config", "mqtt", "rules", "store"],
        never: RUNTIMES,
    },
    CrateRule {
        name: "connectors",
        may: &["broker", "config", "engine", "mqtt", "net", "rules", "transport", "zmtp_sp"],
        never: &["async-std", "smol"],
    },
    CrateRule { name: "net", may: &["config", "transport"], never: &["async-std", "smol"] },
    CrateRule {
        name: "auth",
        may: &["broker", "config", "engine", "mqtt", "net"],
        never: &["async-std", "smol"],
    },
    CrateRule { name: "import", may: &["broker", "config", "mqtt"], never: RUNTIMES },
    CrateRule {
        name: "godwit",
        may: &[
            "auth",
            "broker",
            "broker_options",
            "command_line",
            "config",
            "connectors",
            "engine",
            "import",
            "mqtt",
            "net",
            "rules",
            "store",
            "transport",
        ],
        never: &["async-std", "smol"],
    },
    CrateRule {
        name: "bench",
        may: &["command_line", "mqtt", "netem", "transport"],
        never: &["async-std", "smol"],
    },
    CrateRule { name: "xtask", may: &[], never: RUNTIMES },
];

/// Further crates allowed as dev-dependencies: transcripts are replayed by many crates.
const TESTS_MAY: &[&str] = &["godwit", "mqtt", "netem", "sim", "transport", "websocket_codec"];

pub(super) fn find(tree: &SourceTree) -> Vec<TidyFinding> {
    let mut found = Vec::new();
    for file in &tree.files {
        let (Some(name), Some(text)) = (crate_of(&file.path), file.text.as_deref()) else {
            continue;
        };
        let Some(room) = CRATE_RULES.iter().find(|room| room.name == name) else {
            let what = format!(
                "crate {name} is not in the house; give it a row in tidy/dependency_edges.rs"
            );
            found.push(TidyFinding::new(&file.path, 1, what));
            continue;
        };
        for edge in edges(text) {
            found.extend(
                check_edge(room, &edge).map(|what| TidyFinding::new(&file.path, edge.line, what)),
            );
        }
    }
    found
}

fn check_edge(room: &CrateRule, edge: &DependencyEdge) -> Option<String> {
    let to = edge.to.as_str();
    if CRATE_RULES.iter().any(|other| other.name == to) {
        let allowed = room.may.contains(&to) || edge.dev && TESTS_MAY.contains(&to);
        let may = if room.may.is_empty() { "none of ours".into() } else { room.may.join(", ") };
        return (!allowed).then(|| {
            format!("{} must not depend on {to}; it may use {may}: turn the edge round", room.name)
        });
    }
    let banned = !edge.dev && room.never.contains(&to);
    banned.then(|| {
        format!(
            "{} must not depend on {to}; move what needs it behind a seam of engine or godwit",
            room.name
        )
    })
}

struct DependencyEdge {
    to: String,
    line: usize,
    dev: bool,
}

/// Returns the dependencies named by a Cargo.toml, in all its tables and both notations.
fn edges(text: &str) -> Vec<DependencyEdge> {
    let (mut found, mut inside) = (Vec::new(), None);
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        if let Some(table) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            let dev = table.contains("dev-dependencies");
            let (before, after) = table.rsplit_once("dependencies").unwrap_or(("", "?"));
            inside = (after.is_empty() && !before.starts_with("workspace")).then_some(dev);
            if let Some(name) = after.strip_prefix('.') {
                found.push(DependencyEdge {
                    to: name.trim_matches('"').to_string(),
                    line: at + 1,
                    dev,
                });
            }
        } else if let Some(dev) = inside.filter(|_| !line.starts_with('#')) {
            let to: String = line.chars().take_while(|c| !" .=".contains(*c)).collect();
            if !to.is_empty() && line.contains('=') {
                found.push(DependencyEdge { to, line: at + 1, dev });
            }
        }
    }
    found
}

fn crate_of(path: &str) -> Option<&str> {
    let folder = path.strip_suffix("/Cargo.toml")?;
    let name = folder.strip_prefix("crates/").unwrap_or(folder);
    (folder != "fuzz" && !name.contains('/')).then_some(name)
}
