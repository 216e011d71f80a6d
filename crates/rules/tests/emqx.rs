//! The documented examples of EMQX's SQL (`emqx.tsv`): every row gives the same result, or
//! docs/rules.md states the deviation.

use rules::{Budget, RuleInput, RulePlan, Value, ValueMap};

const TABLE: &str = include_str!("emqx.tsv");
const BOOK: &str = include_str!("../../../docs/rules.md");

struct EmqxRow<'t> {
    line: usize,
    payload: &'t str,
    sql: &'t str,
    documented: &'t str,
    /// Words of docs/rules.md about the deviation; empty if there is none.
    deviation: &'t str,
    ours: &'t str,
}

fn table() -> Vec<EmqxRow<'static>> {
    let lines = TABLE.lines().enumerate().filter(|(_, line)| !line.starts_with('#'));
    lines
        .map(|(at, line)| {
            let columns: Vec<&str> = line.split('\t').collect();
            let [_, payload, sql, documented, deviation, ours] = columns[..] else {
                panic!("emqx.tsv:{}: six columns, got {}", at + 1, columns.len());
            };
            EmqxRow { line: at + 1, payload, sql, documented, deviation, ours }
        })
        .collect()
}

/// Result of a rule: rows, or the reason why there are none.
enum EmqxOutcome {
    Refused(String),
    Failed(String),
    Rows(Vec<ValueMap<'static>>),
}

fn run(row: &EmqxRow<'_>) -> EmqxOutcome {
    let rule = match is_statement(row.sql) {
        true => row.sql.to_string(),
        false => format!("SELECT {} AS v FROM \"t/#\"", row.sql),
    };
    let plan = match RulePlan::parse(&rule) {
        Ok(plan) => plan.with_rule_id("rule:1"),
        Err(refused) => return EmqxOutcome::Refused(refused.show(&rule)),
    };
    let seen = RuleInput {
        topic: "t/a/b",
        payload: row.payload.as_bytes(),
        qos: 1,
        retain: true,
        clientid: "c_emqx",
        username: Some("u_emqx"),
        peerhost: Some("192.168.1.10"),
        id: "0006",
        timestamp_ms: 1_708_671_600_766,
        now_ms: 1_708_671_600_766,
        chance: 5,
        ..RuleInput::default()
    };
    let mut rows = Vec::new();
    match plan.run(&seen, &mut Budget::default(), &mut rows) {
        Ok(()) => EmqxOutcome::Rows(rows.into_iter().map(ValueMap::into_owned).collect()),
        Err(failed) => EmqxOutcome::Failed(failed.to_string()),
    }
}

fn is_statement(sql: &str) -> bool {
    sql.starts_with("SELECT ") || sql.starts_with("FOREACH ")
}

/// Whether an outcome equals the result in a column of the table.
fn is_told(row: &EmqxRow<'_>, outcome: &EmqxOutcome, told: &str) -> bool {
    match (told, outcome) {
        ("refused", EmqxOutcome::Refused(_)) | ("fails", EmqxOutcome::Failed(_)) => true,
        (_, EmqxOutcome::Refused(_) | EmqxOutcome::Failed(_)) => false,
        (told, EmqxOutcome::Rows(rows)) if is_statement(row.sql) => match told.split_once(' ') {
            None => told == "rows" && rows.is_empty(),
            Some((word, all)) => {
                let all = values(all);
                let fits = |(row, told): (&ValueMap<'_>, &Value<'_>)| match (word, told) {
                    ("has", Value::Map(told)) => told
                        .iter()
                        .all(|(name, value)| row.get(name).is_some_and(|own| same(own, value))),
                    ("rows", told) => same(&Value::Map(row.clone()), told),
                    _ => false,
                };
                rows.len() == all.len() && rows.iter().zip(&all).all(fits)
            }
        },
        (told, EmqxOutcome::Rows(rows)) => {
            let value = rows[0].get("v").expect("the column is there");
            match (told, told.strip_prefix('~')) {
                ("undefined", _) => *value == Value::Null,
                (_, Some(near)) => match (value, near.parse::<f64>()) {
                    (Value::Float(own), Ok(near)) => (own - near).abs() <= near.abs() * 1e-12,
                    _ => false,
                },
                _ => Value::from_json(told).is_some_and(|told| same(value, &told)),
            }
        }
    }
}

/// Parses a sequence of JSON values.
fn values(text: &str) -> Vec<Value<'static>> {
    let all = format!("[{}]", text.replace("} {", "},{"));
    match Value::from_json(&all).map(Value::into_owned) {
        Some(Value::Array(values)) => values,
        _ => panic!("{text} is not JSON"),
    }
}

/// Compares two values; only the order of map entries may differ.
fn same(one: &Value<'_>, two: &Value<'_>) -> bool {
    match (one, two) {
        (Value::Map(one), Value::Map(two)) => {
            one.len() == two.len()
                && one.iter().all(|(name, value)| two.get(name).is_some_and(|two| same(value, two)))
        }
        (Value::Array(one), Value::Array(two)) => {
            one.len() == two.len() && one.iter().zip(two).all(|(one, two)| same(one, two))
        }
        // A row tells null of what is not there.
        (Value::Null, Value::JsonNull) => true,
        (one, two) => one == two,
    }
}

fn shown(outcome: &EmqxOutcome) -> String {
    match outcome {
        EmqxOutcome::Refused(why) => format!("refused: {why}"),
        EmqxOutcome::Failed(why) => format!("fails: {why}"),
        EmqxOutcome::Rows(rows) => {
            rows.iter().map(ValueMap::to_string).collect::<Vec<_>>().join(" ")
        }
    }
}

/// Returns the section of docs/rules.md on differences from EMQX, without line breaks.
fn differences() -> String {
    let (_, part) = BOOK.split_once("## What is different from EMQX").expect("the heading");
    let part = part.split("\n## ").next().unwrap_or("");
    part.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn every_row_is_equal_or_the_document_says_why_not() {
    let (table, differences) = (table(), differences());
    let mut wrong = Vec::new();
    for row in &table {
        let outcome = run(row);
        let told = if row.deviation.is_empty() { row.documented } else { row.ours };
        if !is_told(row, &outcome, told) {
            let (line, sql, payload) = (row.line, row.sql, row.payload);
            let shown = shown(&outcome);
            wrong.push(format!(
                "emqx.tsv:{line}: {sql} on {payload}\n  told {told}\n  gave {shown}"
            ));
        }
        if !row.deviation.is_empty() && !differences.contains(row.deviation) {
            wrong.push(format!("emqx.tsv:{}: docs/rules.md lacks \"{}\"", row.line, row.deviation));
        }
    }
    assert!(wrong.is_empty(), "{} of {} rows:\n{}", wrong.len(), table.len(), wrong.join("\n"));
}

/// A row with a deviation must not give EMQX's result; otherwise the deviation is obsolete.
#[test]
fn deviating_rows_deviate() {
    for row in table().iter().filter(|row| !row.deviation.is_empty()) {
        assert!(!is_told(row, &run(row), row.documented), "emqx.tsv:{}: {}", row.line, row.sql);
    }
}

#[test]
fn the_table_has_every_function_and_hundreds_of_rows() {
    let table = table();
    assert!(table.len() >= 1000, "{}", table.len());
    let all = rules::functions::GROUPS.iter().flat_map(|(_, rows)| *rows);
    // What EMQX does not have.
    let own = ["range", "topic_level", "topic_matches"];
    for function in all.filter(|function| !own.contains(&function.name)) {
        let call = format!("{}(", function.name);
        let rows = table.iter().filter(|row| row.sql.contains(&call)).count();
        assert!(rows >= 1, "{} has no row", function.name);
    }
}
