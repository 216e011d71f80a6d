//! Errors of invalid rules with their places and texts, and tests that no text exhausts the stack.

use super::*;

/// Checks that the rule is refused with exactly this error, which includes line and column.
#[track_caller]
fn refuses(rule: &str, expected: &str) {
    match RulePlan::parse(rule) {
        Ok(plan) => panic!("{rule} is taken: {plan:?}"),
        Err(refused) => assert_eq!(refused.to_string(), expected, "{}", refused.show(rule)),
    }
}

#[test]
fn what_is_no_rule_is_refused_where_it_goes_wrong() {
    refuses(
        "",
        "1:1: a rule begins with SELECT or FOREACH; SELECT what FROM \"topic/filter\", or \
        FOREACH array FROM \"topic/filter\"",
    );
    refuses("SELECT", "1:7: an expression is missing at the end");
    let mut wrong = Vec::new();
    for (rule, begins) in [
        ("SELECT topic FROM", "1:18: the rule ends where a topic filter in double quotes"),
        ("SELECT topic\nFROM t", "2:6: t stands where a topic filter in double quotes"),
        ("SELECT topic, FROM \"t\"", "1:15: an expression is missing before FROM"),
        ("SELECT topic WHERE 1 = 1", "1:14: WHERE stands where FROM and a topic filter"),
        ("SELECT topic FROM \"a/#/b\"", "1:19: \"a/#/b\" is not a topic filter; `+` stands"),
        ("SELECT topic FROM \"$share/g/t\"", "1:19: a rule has no shared subscription"),
        ("SELECT topic FROM \"$events/Bad!\"", "1:19: $events/Bad! is not an event"),
        ("SELECT 'a FROM \"t\"", "1:8: unterminated string literal"),
        ("SELECT topi FROM \"t\"", "1:8: a message has no topi; payload.topi is in the payload"),
        (
            "SELECT topic\n, uper(topic) FROM \"t\"",
            "2:3: no function is named uper; there are upper",
        ),
        ("SELECT upper() FROM \"t\"", "1:8: upper has 0 arguments; it takes upper(text)"),
        ("SELECT regex_match(topic, '(') FROM \"t\"", "1:27: unclosed group"),
        (
            "SELECT regex_match(topic, '(a)\\1') FROM \"t\"",
            "1:27: backreferences are not supported",
        ),
        (
            "SELECT regex_match(topic, '((a{99}){99}){99}') FROM \"t\"",
            "1:27: the pattern is too large",
        ),
        ("SELECT (topic FROM \"t\"", "1:15: FROM stands where ) was expected"),
        (
            "SELECT topic FROM \"t\" WHERE qos IN (SELECT 1)",
            "1:29: rules do not have this; a rule sees",
        ),
        ("SELECT topic FROM \"t\" WHERE qos IN 1", "1:36: 1 stands where ( was expected"),
        ("SELECT (SELECT 1) FROM \"t\"", "1:9: a rule in a rule; a rule sees one message"),
        (
            "SELECT topic FROM \"t\" JOIN \"u\"",
            "1:23: JOIN stands where the end of the rule was \
            expected; a rule sees one message",
        ),
        (
            "SELECT topic FROM \"t\" GROUP BY topic",
            "1:32: groups need a window; GROUP BY payload.dev, TUMBLINGWINDOW",
        ),
        ("SELECT topic FROM \"t\" WHERE qos = 1 ORDER BY 1", "1:37: ORDER stands where the end"),
        ("SELECT DISTINCT topic FROM \"t\"", "1:8: SELECT DISTINCT; a rule sees one message"),
        ("SELECT topic FROM \"t\" AS x", "1:23: a topic has no alias"),
        ("SELECT topic AS a[x] FROM \"t\"", "1:19: x stands where the place of an element: [1]"),
        ("SELECT topic AS a[1 FROM \"t\"", "1:21: FROM stands where ] was expected"),
        ("SELECT topic AS from FROM \"t\"", "1:17: from stands where a name was expected"),
        ("SELECT topic ILIKE 'a' FROM \"t\"", "1:8: rules do not have this; lower(a) LIKE"),
        ("SELECT topic LIKE payload FROM \"t\"", "1:19: the pattern of LIKE stands in the rule"),
        ("SELECT 1..2 FROM \"t\"", "1:10: .. is not an operator here; a range stands in brackets"),
        ("SELECT payload.a[1..2].b FROM \"t\"", "1:8: a range is the end of its path"),
        ("SELECT 9223372036854775808 FROM \"t\"", "1:8: 9223372036854775808 is too large"),
        ("SELECT CASE WHEN 1 = 1 END FROM \"t\"", "1:24: END stands where THEN was expected"),
        ("SELECT topic FROM \"t\" WHERE", "1:28: an expression is missing at the end"),
        ("SELECT topic % 2 FROM \"t\"", "1:14: % stands where FROM and a topic filter"),
        (
            "SELECT * FROM \"t\" WHERE a.b = 1",
            "1:25: a message has no a; payload.a is in the payload",
        ),
        ("FOREACH payload.a, payload.b FROM \"t\"", "1:9: a value before the array of FOREACH"),
        ("SELECT [1..2, 3] FROM \"t\"", "1:9: a range stands alone in its brackets"),
        ("SELECT * FROM \"$bridges/mqtt:x\"", "1:15: no rule sees what is below $bridges/"),
        ("FOREACH payload.a AS x.y FROM \"t\"", "1:22: an element has one name"),
        ("FOREACH payload.a WHERE 1 = 1", "1:19: WHERE stands where FROM and a topic filter"),
        ("FOREACH payload.a AS s DO s.b FROM \"t\" WHERE s.b = 1", "1:46: a message has no s"),
        ("SELECT topic FROM \"t\" FROM \"u\"", "1:23: FROM stands where the end of the rule"),
        ("SELECT ? FROM \"t\"", "1:8: an expression cannot begin with ?"),
        ("SELECT x'41' FROM \"t\"", "1:8: an expression cannot begin with"),
        ("DELETE FROM \"t\"", "1:1: a rule begins with SELECT or FOREACH"),
    ] {
        let refused = RulePlan::parse(rule).map(|plan| format!("{plan:?}")).expect_err(rule);
        if !refused.to_string().starts_with(begins) {
            wrong.push(format!("{}\n{begins}", refused.show(rule)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn a_caret_shows_the_place() {
    let rule = "SELECT topic\n\t, \u{e4}\u{e4}(topic) FROM \"t\"";
    let refused = RulePlan::parse(rule).unwrap_err();
    assert_eq!(
        refused.show(rule),
        "2:4: no function is named \u{e4}\u{e4}; docs/rules.md has all functions\n    \t, \
         \u{e4}\u{e4}(topic) FROM \"t\"\n    \t  ^"
    );
}

#[test]
fn texts_are_bounded_in_length_breadth_and_depth() {
    let select = |expr: &str| format!("SELECT {expr} AS v FROM \"t\"");
    let begins = |rule: &str, begins: &str| {
        let refused = RulePlan::parse(rule).unwrap_err().to_string();
        assert!(refused.contains(begins), "{refused}");
    };
    begins(&select(&"x".repeat(40_000)), "1:1: the rule has 400");
    begins(&select(&"1,".repeat(9000)), "words and signs");
    begins(&select(&format!("1{}", "+1".repeat(1001))), "too many operators");
    begins(&select(&format!("{}1{}", "(".repeat(41), ")".repeat(41))), "too deep");
    begins(&select(&"NOT ".repeat(100)), "too deep");
    begins(&select(&"- ".repeat(100)), "too deep");
    begins(&select(&"[".repeat(100)), "too deep");
    begins(&select(&"abs(".repeat(100)), "too deep");
    begins(&select(&"CASE WHEN ".repeat(100)), "too deep");
    begins(&select(&"payload[".repeat(100)), "too deep");
    begins(&select(&"1 IN (".repeat(100)), "too deep");
    // Valid rules are also run: the deepest and the longest chain fit the smallest stack.
    for expr in [
        format!("1{}", "+1".repeat(900)),
        format!("payload{}", ".a".repeat(3000)),
        format!("{}1{}", "(".repeat(30), ")".repeat(30)),
        format!("1 = 1{}", " AND 1 = 1".repeat(400)),
        format!("'a'{}", " || 'a'".repeat(900)),
        format!("{}1{}", "abs(".repeat(30), ")".repeat(30)),
    ] {
        for rule in [select(&expr), format!("SELECT {expr} FROM \"t\"")] {
            let plan = RulePlan::parse(&rule).unwrap_or_else(|refused| panic!("{refused}"));
            let (mut budget, mut rows) = (crate::Budget::default(), Vec::new());
            plan.run(&crate::RuleInput::default(), &mut budget, &mut rows).unwrap();
            assert_eq!(rows.len(), 1);
        }
    }
}

#[test]
fn a_plan_tells_what_it_reads() {
    let reads = |rule: &str| RulePlan::parse(rule).unwrap().reads();
    let none = crate::PlanReads::default();
    assert_eq!(reads("SELECT topic, qos, clientid FROM \"t\""), none);
    let payload = crate::PlanReads { payload: true, ..none };
    assert_eq!(reads("SELECT topic FROM \"t\" WHERE payload.a = 1"), payload);
    let time = crate::PlanReads { now: true, chance: true, ..none };
    assert_eq!(reads("SELECT now_timestamp() AS t, random() AS r FROM \"t\""), time);
    let publisher = crate::PlanReads { publisher: true, properties: true, ..none };
    assert_eq!(reads("SELECT username, pub_props FROM \"t\""), publisher);
}

#[test]
fn several_rules_in_a_text_have_semicolons_between_them() {
    let text = "-- one; two\nSELECT ';' FROM \"a;b\"; ;\n/* ; */ ;SELECT '\u{e4}''s;'; -- end;\n";
    let rules: Vec<_> = split(text).into_iter().map(|(_, rule)| rule.trim()).collect();
    assert_eq!(rules, ["-- one; two\nSELECT ';' FROM \"a;b\"", "SELECT '\u{e4}''s;'"]);
    for (start, rule) in split(text) {
        assert!(text[start..].starts_with(rule));
    }
    for text in ["", ";", "'", "\"", "--", "/*", "/*/", "-", "a;'"] {
        split(text);
    }
}

#[test]
fn a_byte_order_mark_before_a_rule_is_left_out() {
    let sql = "SELECT payload.x\r\n FROM \"car/#\"";
    assert_eq!(RulePlan::parse(&format!("\u{feff}{sql}")).is_ok(), RulePlan::parse(sql).is_ok());
    assert!(RulePlan::parse(sql).is_ok());
}
