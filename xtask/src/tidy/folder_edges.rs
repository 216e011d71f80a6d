//! Directions between the folders of a crate: a folder uses only those that stand before it in
//! [`FOLDER_ORDERS`]. A file directly under `src` counts as a folder.

use super::TidyFinding;
use crate::source::{SourceFile, identifier, line_of, match_positions};
use crate::tree::SourceTree;

/// The folders of a crate, the lowest first.
struct FolderOrder {
    name: &'static str,
    folders: &'static [&'static str],
}

const FOLDER_ORDERS: &[FolderOrder] = &[FolderOrder {
    name: "broker",
    folders: &[
        "limits",
        "ids",
        "slab",
        "owner_shard",
        "leaky_bucket",
        "log_rate_limiter",
        "timer",
        "memory",
        "refusal",
        "process_pause",
        "reason_string",
        "special_topics",
        "access_rules",
        "peer",
        "message",
        "counters",
        "broker_event",
        "options",
        "interface",
        "context",
        "permissions",
        "durability",
        "session",
        "routing",
        "connection",
        "authorization",
        "caches",
        "rules",
        "statistics",
        "shard",
    ],
}];

pub(super) fn find(tree: &SourceTree) -> Vec<TidyFinding> {
    tree.sources.iter().flat_map(find_in_file).collect()
}

fn find_in_file(source: &SourceFile) -> Vec<TidyFinding> {
    let Some((order, inside)) = FOLDER_ORDERS.iter().find_map(|order| {
        let folder = format!("crates/{}/src/", order.name);
        Some((order, source.path.strip_prefix(&folder)?))
    }) else {
        return Vec::new();
    };
    let own = inside.split(['/', '.']).next().unwrap_or_default();
    if own == "lib" {
        return Vec::new();
    }
    let place = |folder: &str| order.folders.iter().position(|known| *known == folder);
    let Some(own_place) = place(own) else {
        let what = format!("folder {own} has no place; give it one in tidy/folder_edges.rs");
        return vec![TidyFinding::new(&source.path, 1, what)];
    };
    let mut found = Vec::new();
    for at in match_positions(&source.code, "crate::") {
        let line = line_of(&source.code, at);
        if source.test.get(line).copied().unwrap_or(false) {
            continue;
        }
        for used in used_folders(&source.code[at + "crate::".len()..]) {
            let what = match place(&used) {
                Some(place) if place <= own_place => continue,
                Some(_) => format!(
                    "{own} must not use {used}, which stands above it: pass what is needed as an \
                     argument, or move the shared data below both"
                ),
                None => format!("crate::{used} hides its folder; write the path with the folder"),
            };
            found.push(TidyFinding::new(&source.path, line + 1, what));
        }
    }
    found
}

/// Returns the first segments of the paths behind `crate::`: one, or those between braces.
fn used_folders(code: &str) -> Vec<String> {
    let Some(list) = code.strip_prefix('{') else { return vec![identifier(code)] };
    let (mut found, mut depth, mut begins) = (Vec::new(), 0, true);
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => begins = true,
            _ if begins && !c.is_whitespace() => {
                found.push(identifier(&list[at..]));
                begins = false;
            }
            _ => {}
        }
    }
    found
}
