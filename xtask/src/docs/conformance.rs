//! docs/conformance.md: for every normative statement the code that keeps it and the tests that
//! show it. Places are files and functions, never lines, so that an edit elsewhere changes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use super::clauses::{Clause, Lists, Statement, Version, tags};
use crate::source::{Function, Source};
use crate::tree::Tree;

/// Where a clause is claimed.
#[derive(Clone, Default)]
struct Places {
    code: BTreeSet<String>,
    tests: BTreeSet<String>,
}

/// How far a statement is shown; the order is the order in the document.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Standing {
    Neither,
    CodeOnly,
    TestOnly,
    Shown,
}

pub(super) fn write(tree: &Tree) -> Result<String, String> {
    let lists = Lists::read(tree)?;
    let claimed = claimed(tree, &lists)?;
    let nothing = Places::default();
    let mut rows = Vec::new();
    for statement in &lists.statements {
        if !lists.not_ours.contains_key(&statement.clause) {
            let all = shares(statement, &lists);
            let all = all.iter().map(|clause| claimed.get(clause).unwrap_or(&nothing));
            let own = claimed.get(&statement.clause).unwrap_or(&nothing);
            rows.push((statement, standing(own, all.clone().collect()), union(own, all)));
        }
    }
    Ok(document(&lists, &rows))
}

/// The 5.0 statements that say what a 3.1.1 statement says; none for one of 5.0.
fn shares(statement: &Statement, lists: &Lists) -> Vec<Clause> {
    lists.same.get(&statement.clause).cloned().unwrap_or_default()
}

/// A statement is kept by its own tag, or by all the statements that say it in other words.
fn standing(own: &Places, all: Vec<&Places>) -> Standing {
    let shared = |has: fn(&Places) -> bool| !all.is_empty() && all.iter().all(|one| has(one));
    let code = !own.code.is_empty() || shared(|one| !one.code.is_empty());
    let tests = !own.tests.is_empty() || shared(|one| !one.tests.is_empty());
    match (code, tests) {
        (false, false) => Standing::Neither,
        (true, false) => Standing::CodeOnly,
        (false, true) => Standing::TestOnly,
        (true, true) => Standing::Shown,
    }
}

fn union<'a>(own: &Places, all: impl Iterator<Item = &'a Places>) -> Places {
    all.fold(own.clone(), |mut sum, one| {
        sum.code.extend(one.code.iter().cloned());
        sum.tests.extend(one.tests.iter().cloned());
        sum
    })
}

/// All tags of the crates, gathered; a tag that names no statement is refused.
fn claimed(tree: &Tree, lists: &Lists) -> Result<BTreeMap<Clause, Places>, String> {
    let mut claimed: BTreeMap<Clause, Places> = BTreeMap::new();
    let mut unknown = Vec::new();
    for source in tree.sources.iter().filter(|source| source.path.starts_with("crates/")) {
        let functions = source.functions();
        for (clause, line) in found_in(source) {
            if !lists.has(&clause) {
                let (path, line) = (&source.path, line + 1);
                unknown.push(format!("{path}:{line}: no statement {} in the lists", clause.id));
                continue;
            }
            let place = place(source, &functions, line);
            let places = claimed.entry(clause).or_default();
            // A comment above a test function speaks for it, though it stands outside.
            let test = source.test[line] || source.test.get(line + 1) == Some(&true);
            if test { &mut places.tests } else { &mut places.code }.insert(place);
        }
    }
    if unknown.is_empty() { Ok(claimed) } else { Err(unknown.join("\n")) }
}

/// Code claims in comments. Tests may do so in their tables and transcripts, too.
fn found_in(source: &Source) -> Vec<(Clause, usize)> {
    let mut found = tags(&source.comments);
    let inside = tags(&source.text).into_iter().filter(|(_, line)| source.test[*line]);
    found.extend(inside);
    found
}

/// The file, and the function that the line is in or right above.
fn place(source: &Source, functions: &[Function], line: usize) -> String {
    let path = source.path.trim_start_matches("crates/").replace("/src/", "/");
    let inside = functions.iter().rev().find(|f| (f.first..=f.last).contains(&line));
    let below =
        || functions.iter().find(|f| f.first > line && only_comments(source, line, f.first));
    match inside.or_else(below) {
        Some(function) => format!("{path} {}", function.name),
        None => path,
    }
}

/// Between a comment and the function that it is about stand only more comments and attributes.
fn only_comments(source: &Source, from: usize, to: usize) -> bool {
    let between = source.code.lines().skip(from).take(to - from).map(str::trim);
    between.into_iter().all(|line| line.is_empty() || line.starts_with('#'))
}

type Row<'a> = (&'a Statement, Standing, Places);

fn document(lists: &Lists, rows: &[Row<'_>]) -> String {
    let mut text = String::from(HEAD);
    text.push_str(
        "\n| | statements | code and test | code only | test only | neither | not ours |\n",
    );
    text.push_str("|---|--:|--:|--:|--:|--:|--:|\n");
    for version in [Version::V5, Version::V311] {
        let of = |rows: &&Row<'_>| rows.0.clause.version == version;
        let count = |is: Standing| rows.iter().filter(of).filter(|row| row.1 == is).count();
        let not_ours = lists.not_ours.keys().filter(|clause| clause.version == version).count();
        let all = lists.statements.iter().filter(|s| s.clause.version == version).count();
        let shown = count(Standing::Shown);
        let (code, tests) = (count(Standing::CodeOnly), count(Standing::TestOnly));
        let neither = count(Standing::Neither);
        line(
            &mut text,
            &format!("| {version} | {all} | {shown} | {code} | {tests} | {neither} | {not_ours} |"),
        );
    }
    for (is, title) in [
        (Standing::Neither, "Neither code nor test"),
        (Standing::CodeOnly, "Code without a test"),
        (Standing::TestOnly, "Test without tagged code"),
        (Standing::Shown, "Code and test"),
    ] {
        section(&mut text, title, rows.iter().filter(|row| row.1 == is));
    }
    line(&mut text, "\n## Not ours\n\n| version | id | statement | why |\n|---|---|---|---|");
    for statement in &lists.statements {
        if let Some(why) = lists.not_ours.get(&statement.clause) {
            let Statement { clause, paraphrase, .. } = statement;
            line(
                &mut text,
                &format!(
                    "| {} | {} | {} | {} |",
                    clause.version,
                    clause.id,
                    cell(paraphrase),
                    cell(why)
                ),
            );
        }
    }
    text
}

fn section<'a>(text: &mut String, title: &str, rows: impl Iterator<Item = &'a Row<'a>>) {
    let mut rows = rows.peekable();
    if rows.peek().is_none() {
        return;
    }
    line(text, &format!("\n## {title}\n"));
    line(text, "| version | id | binds | statement | code | tests |\n|---|---|---|---|---|---|");
    for (statement, _, places) in rows {
        let Statement { clause, binds, paraphrase } = statement;
        line(
            text,
            &format!(
                "| {} | {} | {binds} | {} | {} | {} |",
                clause.version,
                clause.id,
                cell(paraphrase),
                list(&places.code),
                list(&places.tests)
            ),
        );
    }
}

fn line(text: &mut String, line: &str) {
    writeln!(text, "{line}").expect("a String takes all that is written");
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

fn list(places: &BTreeSet<String>) -> String {
    places.iter().map(String::as_str).collect::<Vec<_>>().join("<br>")
}

const HEAD: &str = "\
# Conformance

Every normative statement of the OASIS specifications MQTT 5.0 and MQTT 3.1.1, in our own words,
with the code that keeps it and the tests that show it. Made by `cargo x gen` from the lists in
`docs/clauses` and the tags `[MQTT-...]` in code and tests: do not edit. S binds the server, B both
sides, C the client (a server may have to see it). A statement of 3.1.1 counts by its own tag, or by
the 5.0 statements that `docs/clauses/same.tsv` says are the same.
";

#[cfg(test)]
mod tests {
    use super::write;
    use crate::tree::{File, Tree};

    const V5: &str = "id\tbinds\tparaphrase\nMQTT-1.1.0-1\tS\tone\nMQTT-1.1.0-2\tS\ttwo\n\
                      MQTT-1.1.0-3\tC\tthree\nMQTT-1.1.0-4\tB\tfour\n";
    const V311: &str =
        "id\tbinds\tparaphrase\nMQTT-1.1.0-1\tS\tone and two\nMQTT-1.1.0-9\tB\tnine\n";
    const CODE: &str = "//! A.\nfn publish() {\n    // [MQTT-1.1.0-1]\n}\n/// [MQTT-1.1.0-2]\n\
                        fn retain() {}\n#[cfg(test)]\nmod tests {\n    // [MQTT-1.1.0-1]\n    \
                        #[test]\n    fn one_holds() { t(\"[3.1.1:MQTT-1.1.0-9]\"); }\n}\n";

    fn tree(code: &str, same: &str) -> Tree {
        let file = |path: &str, text: &str| File {
            path: path.into(),
            bytes: text.len() as u64,
            text: Some(text.into()),
        };
        Tree::new(vec![
            file("docs/clauses/normative_v5.tsv", V5),
            file("docs/clauses/normative_v311.tsv", V311),
            file("docs/clauses/same.tsv", same),
            file("docs/clauses/not-ours.tsv", "5.0\tMQTT-1.1.0-3\ta client's own choice\n"),
            file("crates/broker/src/publish.rs", code),
        ])
    }

    #[test]
    fn statements_stand_by_what_shows_them_with_the_bare_ones_on_top() {
        let same = "MQTT-1.1.0-1\tMQTT-1.1.0-1\nMQTT-1.1.0-1\tMQTT-1.1.0-2\n";
        let text = write(&tree(CODE, same)).expect("good lists");
        let (_, tables) = text.split_once("\n\n| |").expect("a head and tables");
        assert_eq!(
            tables,
            " statements | code and test | code only | test only | neither | not ours |\n\
             |---|--:|--:|--:|--:|--:|--:|\n\
             | 5.0 | 4 | 1 | 1 | 0 | 1 | 1 |\n\
             | 3.1.1 | 2 | 0 | 1 | 1 | 0 | 0 |\n\
             \n## Neither code nor test\n\n\
             | version | id | binds | statement | code | tests |\n|---|---|---|---|---|---|\n\
             | 5.0 | MQTT-1.1.0-4 | B | four |  |  |\n\
             \n## Code without a test\n\n\
             | version | id | binds | statement | code | tests |\n|---|---|---|---|---|---|\n\
             | 5.0 | MQTT-1.1.0-2 | S | two | broker/publish.rs retain |  |\n\
             | 3.1.1 | MQTT-1.1.0-1 | S | one and two | broker/publish.rs publish<br>\
             broker/publish.rs retain | broker/publish.rs one_holds |\n\
             \n## Test without tagged code\n\n\
             | version | id | binds | statement | code | tests |\n|---|---|---|---|---|---|\n\
             | 3.1.1 | MQTT-1.1.0-9 | B | nine |  | broker/publish.rs one_holds |\n\
             \n## Code and test\n\n\
             | version | id | binds | statement | code | tests |\n|---|---|---|---|---|---|\n\
             | 5.0 | MQTT-1.1.0-1 | S | one | broker/publish.rs publish | \
             broker/publish.rs one_holds |\n\
             \n## Not ours\n\n| version | id | statement | why |\n|---|---|---|---|\n\
             | 5.0 | MQTT-1.1.0-3 | three | a client's own choice |\n"
        );
    }

    #[test]
    fn a_tag_that_names_no_statement_is_refused_with_its_place() {
        let why = write(&tree("//! A.\n// [MQTT-7.7.7-7]\n", "")).expect_err("no such statement");
        assert_eq!(why, "crates/broker/src/publish.rs:2: no statement MQTT-7.7.7-7 in the lists");
    }

    #[test]
    fn a_list_that_names_no_statement_is_refused_with_its_line() {
        let why = write(&tree(CODE, "# why\nMQTT-1.1.0-8\tMQTT-1.1.0-1\n")).expect_err("no such");
        assert_eq!(why, "docs/clauses/same.tsv:2: no statement MQTT-1.1.0-8 in 3.1.1");
    }
}
