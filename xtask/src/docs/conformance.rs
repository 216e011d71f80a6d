//! Writes docs/conformance.md: for every normative statement the code that keeps it and the tests
//! that show it. Places are files and functions, never lines, so an edit elsewhere does not change
//! the document. A statement without code or without a test is an error: then no document is
//! written.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use super::clauses::{ClauseId, NormativeStatement, SpecVersion, StatementLists, claimed_clauses};
use crate::source::{FunctionSpan, SourceFile};
use crate::tree::SourceTree;

/// Places which claim a clause.
#[derive(Clone, Default)]
struct ClauseEvidence {
    code: BTreeSet<CodeLocation>,
    tests: BTreeSet<CodeLocation>,
}

/// Claims by clause: what the server keeps, and what the client half of `mqtt` does. A statement
/// that binds both sides is no less the server's for what a client does.
#[derive(Default)]
struct ClaimedEvidence {
    server: BTreeMap<ClauseId, ClauseEvidence>,
    client: BTreeMap<ClauseId, ClauseEvidence>,
}

/// A file, and the function in the file if the tag belongs to a function.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct CodeLocation {
    path: String,
    function: String,
}

pub(super) fn write(tree: &SourceTree) -> Result<String, String> {
    let lists = StatementLists::read(tree)?;
    let ClaimedEvidence { server: claimed, client } = collect_evidence(tree, &lists)?;
    let nothing = ClauseEvidence::default();
    let (mut rows, mut bare) = (Vec::new(), Vec::new());
    for statement in &lists.statements {
        if !lists.not_applicable.contains_key(&statement.clause) {
            let all = equivalent_clauses(statement, &lists);
            let all = all.iter().map(|clause| claimed.get(clause).unwrap_or(&nothing));
            let own = claimed.get(&statement.clause).unwrap_or(&nothing);
            bare.extend(missing_evidence(statement, own, &all.clone().collect::<Vec<_>>()));
            rows.push((statement, merge_evidence(own, all)));
        }
    }
    let clients = client_rows(&lists, &client, &mut bare);
    if bare.is_empty() { Ok(document(&lists, &rows, &clients)) } else { Err(bare.join("\n")) }
}

/// Returns the statements that the client's part of the protocol claims. Each must bind a client,
/// and have code and a test there.
fn client_rows<'a>(
    lists: &'a StatementLists,
    claimed: &BTreeMap<ClauseId, ClauseEvidence>,
    bare: &mut Vec<String>,
) -> Vec<ConformanceRow<'a>> {
    let mut rows = Vec::new();
    for statement in &lists.statements {
        let Some(evidence) = claimed.get(&statement.clause) else { continue };
        if statement.binds == "S" {
            let ClauseId { version, id } = &statement.clause;
            bare.push(format!("{version} {id} binds servers alone, and {CLIENT} claims it"));
        }
        let missing = missing_evidence(statement, evidence, &[]);
        bare.extend(missing.map(|missing| format!("{CLIENT}: {missing}")));
        rows.push((statement, evidence.clone()));
    }
    rows
}

/// Returns the 5.0 statements equivalent to a 3.1.1 statement; empty for a 5.0 statement.
fn equivalent_clauses(statement: &NormativeStatement, lists: &StatementLists) -> Vec<ClauseId> {
    lists.equivalents.get(&statement.clause).cloned().unwrap_or_default()
}

/// Returns the evidence missing for a statement. A statement is shown by its own tag, or by the
/// tags of all its `equivalents`.
fn missing_evidence(
    statement: &NormativeStatement,
    own: &ClauseEvidence,
    all: &[&ClauseEvidence],
) -> Option<String> {
    let shared =
        |has: fn(&ClauseEvidence) -> bool| !all.is_empty() && all.iter().all(|one| has(one));
    let code = !own.code.is_empty() || shared(|one| !one.code.is_empty());
    let tests = !own.tests.is_empty() || shared(|one| !one.tests.is_empty());
    let missing = match (code, tests) {
        (false, false) => "neither code nor test",
        (true, false) => "no test",
        (false, true) => "no code",
        (true, true) => return None,
    };
    let NormativeStatement { clause, paraphrase, .. } = statement;
    Some(format!("{} {} has {missing}: {paraphrase}", clause.version, clause.id))
}

fn merge_evidence<'a>(
    own: &ClauseEvidence,
    all: impl Iterator<Item = &'a ClauseEvidence>,
) -> ClauseEvidence {
    all.fold(own.clone(), |mut sum, one| {
        sum.code.extend(one.code.iter().cloned());
        sum.tests.extend(one.tests.iter().cloned());
        sum
    })
}

/// Collects the tags of all crates as [`ClauseEvidence`]; a tag without a statement is an error.
fn collect_evidence(tree: &SourceTree, lists: &StatementLists) -> Result<ClaimedEvidence, String> {
    let mut claimed = ClaimedEvidence::default();
    let mut unknown = Vec::new();
    for source in tree.sources.iter().filter(|source| source.path.starts_with("crates/")) {
        let functions = source.functions();
        for (clause, line) in claims_in(source) {
            if !lists.has(&clause) {
                unknown.push(unknown_at(&source.path, line, &clause));
                continue;
            }
            let place = code_location(source, &functions, line);
            let is_client = source.path.starts_with(CLIENT);
            let side = if is_client { &mut claimed.client } else { &mut claimed.server };
            let places = side.entry(clause).or_default();
            // A comment above a test function counts for the test, though it stands outside of it.
            let test = source.test[line] || source.test.get(line + 1) == Some(&true);
            if !test && source.path.starts_with("crates/sim/") {
                // The oracle of the simulator knows the rules too, but does not keep them for a
                // client.
                continue;
            }
            if test { &mut places.tests } else { &mut places.code }.insert(place);
        }
    }
    for (path, clause, line) in vector_claims(tree) {
        if lists.has(&clause) {
            let place = CodeLocation { path: path.to_string(), function: String::new() };
            claimed.server.entry(clause).or_default().tests.insert(place);
        } else {
            unknown.push(unknown_at(path, line, &clause));
        }
    }
    if unknown.is_empty() { Ok(claimed) } else { Err(unknown.join("\n")) }
}

fn unknown_at(path: &str, line: usize, clause: &ClauseId) -> String {
    format!("{path}:{}: no statement {} in the lists", line + 1, clause.id)
}

/// Returns the clauses shown by packet vectors: the tags in comments of `vectors/*.txt`.
fn vector_claims(tree: &SourceTree) -> impl Iterator<Item = (&str, ClauseId, usize)> {
    let is = |path: &str| {
        path.starts_with("crates/") && path.contains("/vectors/") && path.ends_with(".txt")
    };
    let files = tree.files.iter().filter(move |file| is(&file.path));
    files.flat_map(|file| {
        let text = file.text.as_deref().unwrap_or_default();
        claimed_clauses(text).into_iter().map(|(clause, line)| (file.path.as_str(), clause, line))
    })
}

/// Returns the tags of a file: in comments, and in tests also in strings.
fn claims_in(source: &SourceFile) -> Vec<(ClauseId, usize)> {
    let mut found = claimed_clauses(&source.comments);
    let inside = claimed_clauses(&source.text).into_iter().filter(|(_, line)| source.test[*line]);
    found.extend(inside);
    found
}

/// Returns the file, and the function around the line or right below.
fn code_location(source: &SourceFile, functions: &[FunctionSpan], line: usize) -> CodeLocation {
    let inside = functions.iter().rev().find(|f| (f.first..=f.last).contains(&line));
    let below =
        || functions.iter().find(|f| f.first > line && only_comments(source, line, f.first));
    let function = inside.or_else(below).map(|function| function.name.clone());
    CodeLocation { path: source.path.clone(), function: function.unwrap_or_default() }
}

/// Whether the lines between a comment and a function hold only comments and attributes.
fn only_comments(source: &SourceFile, from: usize, to: usize) -> bool {
    let between = source.code.lines().skip(from).take(to - from).map(str::trim);
    between.into_iter().all(|line| line.is_empty() || line.starts_with('#'))
}

type ConformanceRow<'a> = (&'a NormativeStatement, ClauseEvidence);

fn document(
    lists: &StatementLists,
    rows: &[ConformanceRow<'_>],
    clients: &[ConformanceRow<'_>],
) -> String {
    let mut text = String::from(HEAD);
    line(&mut text, "\n| | statements | code and test | do not apply |\n|---|--:|--:|--:|");
    for version in [SpecVersion::V5, SpecVersion::V311] {
        let shown = rows.iter().filter(|row| row.0.clause.version == version).count();
        let not_ours =
            lists.not_applicable.keys().filter(|clause| clause.version == version).count();
        let all = shown + not_ours;
        line(&mut text, &format!("| {version} | {all} | {shown} | {not_ours} |"));
    }
    for version in [SpecVersion::V5, SpecVersion::V311] {
        line(&mut text, &format!("\n## MQTT {version}\n"));
        line(&mut text, "| id | binds | statement | code | tests |\n|---|---|---|---|---|");
        for row in rows.iter().filter(|row| row.0.clause.version == version) {
            line(&mut text, &format!("| {}", evidence_cells(row)));
        }
    }
    if !clients.is_empty() {
        text.push_str(CLIENT_HEAD);
        for row in clients {
            line(&mut text, &format!("| {} | {}", row.0.clause.version, evidence_cells(row)));
        }
    }
    line(&mut text, "\n## Do not apply\n\n| version | id | statement | why |\n|---|---|---|---|");
    for statement in &lists.statements {
        if let Some(why) = lists.not_applicable.get(&statement.clause) {
            let NormativeStatement { clause: ClauseId { version, id }, paraphrase, .. } = statement;
            let (what, why) = (cell(paraphrase), cell(why));
            line(&mut text, &format!("| {version} | {id} | {what} | {why} |"));
        }
    }
    text
}

fn evidence_cells(row: &ConformanceRow<'_>) -> String {
    let (statement, places) = row;
    let NormativeStatement { clause, binds, paraphrase } = statement;
    let (id, what) = (&clause.id, cell(paraphrase));
    let (code, tests) = (location_links(&places.code), location_links(&places.tests));
    format!("{id} | {binds} | {what} | {code} | {tests} |")
}

fn line(text: &mut String, line: &str) {
    writeln!(text, "{line}").expect("a String takes all that is written");
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

fn location_links(places: &BTreeSet<CodeLocation>) -> String {
    places.iter().map(CodeLocation::link).collect::<Vec<_>>().join("<br>")
}

impl CodeLocation {
    /// Returns a Markdown link to the file, and the function's name.
    fn link(&self) -> String {
        let CodeLocation { path, function } = self;
        let short = path.trim_start_matches("crates/").replace("/src/", "/");
        format!("[{short}](../{path}) {function}").trim_end().to_string()
    }
}

const HEAD: &str = "\
# Conformance

Every normative statement of the OASIS specifications MQTT 5.0 and MQTT 3.1.1, in our own words,
with the code that keeps it and the tests that show it. Made by `cargo x gen` from the lists in
`docs/clauses` and the tags `[MQTT-...]` in code, tests and packet vectors: do not edit. S binds the
server, B both sides, C the client (a server may have to see it). A statement of 3.1.1 counts by its
own tag, or by the 5.0 statements that `docs/clauses/same.tsv` says are the same. A statement that
has no code or no test fails `cargo x gen`, and with it CI.
";

/// Source folder of the client's part of the protocol.
const CLIENT: &str = "crates/mqtt/src/client/";

const CLIENT_HEAD: &str = "
## The client half

What `mqtt::client` keeps of the statements that bind clients, for bridges and other links, for
`godwit pub` and `sub`, and for the load tester. No statement above counts by it.

| version | id | binds | statement | code | tests |
|---|---|---|---|---|---|
";

#[cfg(test)]
mod tests {
    use super::write;
    use crate::tree::{SourceTree, TreeFile};

    const V5: &str = "id\tbinds\tparaphrase\nMQTT-1.1.0-1\tS\tone\nMQTT-1.1.0-2\tS\ttwo\n\
                      MQTT-1.1.0-3\tC\tthree\nMQTT-1.1.0-4\tB\tfour\n";
    const V311: &str =
        "id\tbinds\tparaphrase\nMQTT-1.1.0-1\tS\tone and two\nMQTT-1.1.0-9\tB\tnine\n";
    const SAME: &str = "MQTT-1.1.0-1\tMQTT-1.1.0-1\nMQTT-1.1.0-1\tMQTT-1.1.0-2\n";
    const CODE: &str = "//! A. [3.1.1:MQTT-1.1.0-9]\nuse x;\nfn publish() {\n    \
                        // [MQTT-1.1.0-1]\n}\n/// [MQTT-1.1.0-2] [MQTT-1.1.0-4]\n\
                        fn retain() {}\n#[cfg(test)]\n\
                        mod tests {\n    // [MQTT-1.1.0-1] [MQTT-1.1.0-2]\n    #[test]\n    \
                        fn one_holds() { t(\"[3.1.1:MQTT-1.1.0-9]\"); }\n}\n";
    const VECTORS: &str = "# Four. [MQTT-1.1.0-4]\nany  00\n     ! Four\n";

    fn tree(code: &str, vectors: &str, same: &str) -> SourceTree {
        let file = |path: &str, text: &str| TreeFile {
            path: path.into(),
            bytes: text.len() as u64,
            text: Some(text.into()),
        };
        SourceTree::new(vec![
            file("docs/clauses/normative_v5.tsv", V5),
            file("docs/clauses/normative_v311.tsv", V311),
            file("docs/clauses/same.tsv", same),
            file("docs/clauses/not-ours.tsv", "5.0\tMQTT-1.1.0-3\ta client's own choice\n"),
            file("crates/broker/src/publish.rs", code),
            file("crates/mqtt/vectors/four.txt", vectors),
        ])
    }

    #[test]
    fn a_statement_leads_to_its_code_and_its_tests() {
        let text = write(&tree(CODE, VECTORS, SAME)).expect("good lists");
        let (_, tables) = text.split_once("\n\n| |").expect("a head and tables");
        let publish = "[broker/publish.rs](../crates/broker/src/publish.rs)";
        let vectors = "[mqtt/vectors/four.txt](../crates/mqtt/vectors/four.txt)";
        assert_eq!(
            tables,
            format!(
                " statements | code and test | do not apply |\n|---|--:|--:|--:|\n\
                 | 5.0 | 4 | 3 | 1 |\n| 3.1.1 | 2 | 2 | 0 |\n\
                 \n## MQTT 5.0\n\n\
                 | id | binds | statement | code | tests |\n|---|---|---|---|---|\n\
                 | MQTT-1.1.0-1 | S | one | {publish} publish | {publish} one_holds |\n\
                 | MQTT-1.1.0-2 | S | two | {publish} retain | {publish} one_holds |\n\
                 | MQTT-1.1.0-4 | B | four | {publish} retain | {vectors} |\n\
                 \n## MQTT 3.1.1\n\n\
                 | id | binds | statement | code | tests |\n|---|---|---|---|---|\n\
                 | MQTT-1.1.0-1 | S | one and two | {publish} publish<br>{publish} retain | \
                 {publish} one_holds |\n\
                 | MQTT-1.1.0-9 | B | nine | {publish} | {publish} one_holds |\n\
                 \n## Do not apply\n\n| version | id | statement | why |\n|---|---|---|---|\n\
                 | 5.0 | MQTT-1.1.0-3 | three | a client's own choice |\n"
            )
        );
    }

    /// Returns a source tree with a file of the client's part.
    fn tree_with_client(code: &str, client: &str) -> SourceTree {
        let mut files = tree(code, VECTORS, SAME).files;
        let (path, bytes) = ("crates/mqtt/src/client/ids.rs".to_string(), client.len() as u64);
        files.push(TreeFile { path, bytes, text: Some(client.into()) });
        SourceTree::new(files)
    }

    #[test]
    fn what_the_client_half_keeps_stands_apart() {
        let client = "//! A.\n/// [MQTT-1.1.0-3] [MQTT-1.1.0-4]\nfn id() {}\n#[cfg(test)]\n\
                      mod tests {\n    // [MQTT-1.1.0-3] [MQTT-1.1.0-4]\n    #[test]\n    \
                      fn both_hold() {}\n}\n";
        let text = write(&tree_with_client(CODE, client)).expect("both have all");
        let ids = "[mqtt/client/ids.rs](../crates/mqtt/src/client/ids.rs)";
        let section = format!(
            "|---|---|---|---|---|---|\n\
             | 5.0 | MQTT-1.1.0-3 | C | three | {ids} id | {ids} both_hold |\n\
             | 5.0 | MQTT-1.1.0-4 | B | four | {ids} id | {ids} both_hold |\n\
             \n## Do not apply\n"
        );
        assert!(text.contains(&section), "{text}");
        // The server has to keep its own.
        let code = CODE.replace(" [MQTT-1.1.0-4]", "");
        let why = write(&tree_with_client(&code, client)).expect_err("four has no code");
        assert_eq!(why, "5.0 MQTT-1.1.0-4 has no code: four");
    }

    #[test]
    fn the_client_half_claims_what_binds_clients_and_tests_it() {
        let client = "//! A.\n/// [MQTT-1.1.0-1] [MQTT-1.1.0-4]\nfn id() {}\n";
        let why = write(&tree_with_client(CODE, client)).expect_err("no tests");
        assert_eq!(
            why,
            "5.0 MQTT-1.1.0-1 binds servers alone, and crates/mqtt/src/client/ claims it\n\
             crates/mqtt/src/client/: 5.0 MQTT-1.1.0-1 has no test: one\n\
             crates/mqtt/src/client/: 5.0 MQTT-1.1.0-4 has no test: four"
        );
    }

    #[test]
    fn a_statement_that_loses_its_test_fails() {
        let code = CODE.replace("// [MQTT-1.1.0-1] [MQTT-1.1.0-2]", "// [MQTT-1.1.0-1]");
        let why = write(&tree(&code, VECTORS, "")).expect_err("two has no test");
        assert_eq!(
            why,
            "5.0 MQTT-1.1.0-2 has no test: two\n\
             3.1.1 MQTT-1.1.0-1 has neither code nor test: one and two"
        );
        let why = write(&tree(CODE, "", SAME)).expect_err("four's vector is gone");
        assert_eq!(why, "5.0 MQTT-1.1.0-4 has no test: four");
    }

    #[test]
    fn a_statement_that_loses_its_code_fails() {
        let code = CODE.replace(" [MQTT-1.1.0-4]", "");
        let why = write(&tree(&code, VECTORS, SAME)).expect_err("four has no code");
        assert_eq!(why, "5.0 MQTT-1.1.0-4 has no code: four");
    }

    #[test]
    fn one_half_of_a_3_1_1_statement_is_not_enough() {
        let code = CODE.replace("// [MQTT-1.1.0-1] [MQTT-1.1.0-2]", "// [MQTT-1.1.0-2]");
        let why = write(&tree(&code, VECTORS, SAME)).expect_err("one has no test");
        assert_eq!(
            why,
            "5.0 MQTT-1.1.0-1 has no test: one\n3.1.1 MQTT-1.1.0-1 has no test: one and two"
        );
    }

    #[test]
    fn a_tag_that_names_no_statement_is_refused_with_its_place() {
        let why = write(&tree("//! A.\n// [MQTT-7.7.7-7]\n", "# [MQTT-7.7.7-8]\n", ""));
        assert_eq!(
            why.expect_err("no such statements"),
            "crates/broker/src/publish.rs:2: no statement MQTT-7.7.7-7 in the lists\n\
             crates/mqtt/vectors/four.txt:1: no statement MQTT-7.7.7-8 in the lists"
        );
    }

    #[test]
    fn a_list_that_names_no_statement_is_refused_with_its_line() {
        let same = "# why\nMQTT-1.1.0-8\tMQTT-1.1.0-1\n";
        let why = write(&tree(CODE, VECTORS, same)).expect_err("no such");
        assert_eq!(why, "docs/clauses/same.tsv:2: no statement MQTT-1.1.0-8 in 3.1.1");
    }
}
