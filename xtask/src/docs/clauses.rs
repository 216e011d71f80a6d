//! The normative statements of the MQTT specifications, as listed in `docs/clauses`, and the tags
//! by which code and tests claim them: `[MQTT-3.3.1-8]` for 5.0, with `3.1.1:` before it for
//! 3.1.1, and `, -9` after it for a neighbour.

use std::collections::BTreeMap;
use std::fmt;

use crate::tree::Tree;

/// A statement's name: the specification that makes it, and its number there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Clause {
    pub(crate) version: Version,
    pub(crate) id: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Version {
    V311,
    V5,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Version::V5 { "5.0" } else { "3.1.1" })
    }
}

/// One statement of a list.
pub(crate) struct Statement {
    pub(crate) clause: Clause,
    pub(crate) binds: String,
    pub(crate) paraphrase: String,
}

/// All lists together.
pub(crate) struct Lists {
    pub(crate) statements: Vec<Statement>,
    /// What a 3.1.1 statement says in 5.0, in one statement or several.
    pub(crate) same: BTreeMap<Clause, Vec<Clause>>,
    /// Statements that no server can keep or break, and why.
    pub(crate) not_ours: BTreeMap<Clause, String>,
}

impl Lists {
    pub(crate) fn read(tree: &Tree) -> Result<Lists, String> {
        let mut lists =
            Lists { statements: vec![], same: BTreeMap::new(), not_ours: BTreeMap::new() };
        for (path, version) in [(V5, Version::V5), (V311, Version::V311)] {
            for row in rows(tree, path)?.into_iter().filter(|row| row.cells[0] != "id") {
                let [id, binds, paraphrase] = row.take(path)?;
                let clause = Clause { version, id };
                lists.statements.push(Statement { clause, binds, paraphrase });
            }
        }
        for row in rows(tree, SAME)? {
            let at = row.line;
            let [id, v5] = row.take(SAME)?;
            let clause = lists.known(Version::V311, id, SAME, at)?;
            let v5 = lists.known(Version::V5, v5, SAME, at)?;
            lists.same.entry(clause).or_default().push(v5);
        }
        for row in rows(tree, NOT_OURS)? {
            let at = row.line;
            let [version, id, why] = row.take(NOT_OURS)?;
            let version = match version.as_str() {
                "5.0" => Version::V5,
                "3.1.1" => Version::V311,
                other => return Err(format!("{NOT_OURS}:{at}: {other} is not 5.0 or 3.1.1")),
            };
            let clause = lists.known(version, id, NOT_OURS, at)?;
            lists.not_ours.insert(clause, why);
        }
        Ok(lists)
    }

    pub(crate) fn has(&self, clause: &Clause) -> bool {
        self.statements.iter().any(|statement| statement.clause == *clause)
    }

    fn known(&self, version: Version, id: String, path: &str, at: usize) -> Result<Clause, String> {
        let clause = Clause { version, id };
        if self.has(&clause) {
            return Ok(clause);
        }
        Err(format!("{path}:{at}: no statement {} in {version}", clause.id))
    }
}

struct Row<'a> {
    line: usize,
    cells: Vec<&'a str>,
}

impl Row<'_> {
    fn take<const N: usize>(&self, path: &str) -> Result<[String; N], String> {
        let cells: Vec<String> = self.cells.iter().map(ToString::to_string).collect();
        cells.try_into().map_err(|_| format!("{path}:{}: wants {N} cells with tabs", self.line))
    }
}

fn rows<'a>(tree: &'a Tree, path: &str) -> Result<Vec<Row<'a>>, String> {
    let text = tree.text(path).ok_or_else(|| format!("{path} is not there"))?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.starts_with('#'));
    let row =
        |(at, line): (usize, &'a str)| Row { line: at + 1, cells: line.split('\t').collect() };
    Ok(lines.map(row).collect())
}

/// The clauses that a text claims, each with the line, from 0, where it does.
pub(crate) fn tags(text: &str) -> Vec<(Clause, usize)> {
    let mut found = Vec::new();
    for (at, line) in text.lines().enumerate() {
        for (start, _) in line.match_indices('[') {
            found.extend(tag(&line[start + 1..]).into_iter().map(|clause| (clause, at)));
        }
    }
    found
}

/// `MQTT-4.8.2-4, -5]` as its two clauses; nothing where it is no tag.
fn tag(text: &str) -> Vec<Clause> {
    let Some((inside, _)) = text.split_once(']') else {
        return Vec::new();
    };
    let (version, inside) = match inside.strip_prefix("3.1.1:") {
        Some(rest) => (Version::V311, rest),
        None => (Version::V5, inside),
    };
    let (mut found, mut section) = (Vec::new(), String::new());
    for part in inside.split(',').map(str::trim) {
        let number = match part.strip_prefix("MQTT-").and_then(|rest| rest.rsplit_once('-')) {
            Some((name, number)) => {
                section = format!("MQTT-{name}");
                number
            }
            None => part.strip_prefix('-').unwrap_or(""),
        };
        let numeric = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
        if !numeric || section.is_empty() {
            return Vec::new();
        }
        found.push(Clause { version, id: format!("{section}-{number}") });
    }
    found
}

const V5: &str = "docs/clauses/normative_v5.tsv";
const V311: &str = "docs/clauses/normative_v311.tsv";
const SAME: &str = "docs/clauses/same.tsv";
const NOT_OURS: &str = "docs/clauses/not-ours.tsv";

#[cfg(test)]
mod tests {
    use super::tags;

    #[test]
    fn a_tag_names_its_version_and_its_neighbours() {
        let text = "// [MQTT-3.3.1-8] and [3.1.1:MQTT-4.7.1-2]\na[0] [MQTT-4.8.2-4, -5] [MQTT-x]";
        let found: Vec<String> = tags(text)
            .into_iter()
            .map(|(clause, at)| format!("{at} {} {}", clause.version, clause.id))
            .collect();
        assert_eq!(
            found,
            [
                "0 5.0 MQTT-3.3.1-8",
                "0 3.1.1 MQTT-4.7.1-2",
                "1 5.0 MQTT-4.8.2-4",
                "1 5.0 MQTT-4.8.2-5"
            ]
        );
    }
}
