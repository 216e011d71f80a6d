//! The normative statements of the MQTT specifications, as listed in `docs/clauses`, and the tags
//! with which code and tests claim them: `[MQTT-3.3.1-8]` for 5.0, with `3.1.1:` in front for
//! 3.1.1, and `, -9` behind for a further number of the section.

use std::collections::BTreeMap;
use std::fmt;

use crate::tree::SourceTree;

/// Name of a [`NormativeStatement`]: the specification, and the number there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ClauseId {
    pub(crate) version: SpecVersion,
    pub(crate) id: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SpecVersion {
    V311,
    V5,
}

impl fmt::Display for SpecVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == SpecVersion::V5 { "5.0" } else { "3.1.1" })
    }
}

/// A row of a list of statements.
pub(crate) struct NormativeStatement {
    pub(crate) clause: ClauseId,
    pub(crate) binds: String,
    pub(crate) paraphrase: String,
}

/// The statements of both versions, from `docs/clauses`.
pub(crate) struct StatementLists {
    pub(crate) statements: Vec<NormativeStatement>,
    /// Statements of 5.0 equivalent to a statement of 3.1.1, by the latter.
    pub(crate) equivalents: BTreeMap<ClauseId, Vec<ClauseId>>,
    /// Statements which a server can neither keep nor break, with the reason.
    pub(crate) not_applicable: BTreeMap<ClauseId, String>,
}

impl StatementLists {
    pub(crate) fn read(tree: &SourceTree) -> Result<StatementLists, String> {
        let mut lists = StatementLists {
            statements: vec![],
            equivalents: BTreeMap::new(),
            not_applicable: BTreeMap::new(),
        };
        for (path, version) in [(V5, SpecVersion::V5), (V311, SpecVersion::V311)] {
            for row in read_rows(tree, path)?.into_iter().filter(|row| row.cells[0] != "id") {
                let [id, binds, paraphrase] = row.to_cells(path)?;
                let clause = ClauseId { version, id };
                lists.statements.push(NormativeStatement { clause, binds, paraphrase });
            }
        }
        for row in read_rows(tree, EQUIVALENTS)? {
            let at = row.line;
            let [id, v5] = row.to_cells(EQUIVALENTS)?;
            let clause = lists.find_clause(SpecVersion::V311, id, EQUIVALENTS, at)?;
            let v5 = lists.find_clause(SpecVersion::V5, v5, EQUIVALENTS, at)?;
            lists.equivalents.entry(clause).or_default().push(v5);
        }
        for row in read_rows(tree, NOT_APPLICABLE)? {
            let at = row.line;
            let [version, id, why] = row.to_cells(NOT_APPLICABLE)?;
            let version = match version.as_str() {
                "5.0" => SpecVersion::V5,
                "3.1.1" => SpecVersion::V311,
                other => return Err(format!("{NOT_APPLICABLE}:{at}: {other} is not 5.0 or 3.1.1")),
            };
            let clause = lists.find_clause(version, id, NOT_APPLICABLE, at)?;
            lists.not_applicable.insert(clause, why);
        }
        Ok(lists)
    }

    pub(crate) fn has(&self, clause: &ClauseId) -> bool {
        self.statements.iter().any(|statement| statement.clause == *clause)
    }

    fn find_clause(
        &self,
        version: SpecVersion,
        id: String,
        path: &str,
        at: usize,
    ) -> Result<ClauseId, String> {
        let clause = ClauseId { version, id };
        if self.has(&clause) {
            return Ok(clause);
        }
        Err(format!("{path}:{at}: no statement {} in {version}", clause.id))
    }
}

struct StatementRow<'a> {
    line: usize,
    cells: Vec<&'a str>,
}

impl StatementRow<'_> {
    fn to_cells<const N: usize>(&self, path: &str) -> Result<[String; N], String> {
        let cells: Vec<String> = self.cells.iter().map(ToString::to_string).collect();
        cells.try_into().map_err(|_| format!("{path}:{}: wants {N} cells with tabs", self.line))
    }
}

fn read_rows<'a>(tree: &'a SourceTree, path: &str) -> Result<Vec<StatementRow<'a>>, String> {
    let text = tree.text(path).ok_or_else(|| format!("{path} is not there"))?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.starts_with('#'));
    let row = |(at, line): (usize, &'a str)| StatementRow {
        line: at + 1,
        cells: line.split('\t').collect(),
    };
    Ok(lines.map(row).collect())
}

/// Returns the clauses claimed in a text, each with its line, counted from 0.
pub(crate) fn claimed_clauses(text: &str) -> Vec<(ClauseId, usize)> {
    let mut found = Vec::new();
    for (at, line) in text.lines().enumerate() {
        for (start, _) in line.match_indices('[') {
            found.extend(parse_tag(&line[start + 1..]).into_iter().map(|clause| (clause, at)));
        }
    }
    found
}

/// Parses a tag without its bracket, such as `MQTT-4.8.2-4, -5]`, into its clauses; empty for text
/// other than a tag.
fn parse_tag(text: &str) -> Vec<ClauseId> {
    let Some((inside, _)) = text.split_once(']') else {
        return Vec::new();
    };
    let (version, inside) = match inside.strip_prefix("3.1.1:") {
        Some(rest) => (SpecVersion::V311, rest),
        None => (SpecVersion::V5, inside),
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
        found.push(ClauseId { version, id: format!("{section}-{number}") });
    }
    found
}

const V5: &str = "docs/clauses/normative_v5.tsv";
const V311: &str = "docs/clauses/normative_v311.tsv";
const EQUIVALENTS: &str = "docs/clauses/same.tsv";
const NOT_APPLICABLE: &str = "docs/clauses/not-ours.tsv";

#[cfg(test)]
mod tests {
    use super::claimed_clauses;

    #[test]
    fn a_tag_names_its_version_and_its_neighbours() {
        let text = "// [MQTT-3.3.1-8] and [3.1.1:MQTT-4.7.1-2]\na[0] [MQTT-4.8.2-4, -5] [MQTT-x]";
        let found: Vec<String> = claimed_clauses(text)
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
