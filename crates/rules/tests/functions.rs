//! The example in the row of each function gives the stated result, and the rows are in order.

use rules::functions::GROUPS;
use rules::{Budget, RuleInput, RulePlan};

/// Returns the input of all examples.
fn seen() -> RuleInput<'static> {
    RuleInput {
        topic: "car/7/speed",
        payload: b"{}",
        now_ms: 1_795_334_400_250,
        ..RuleInput::default()
    }
}

fn value(expr: &str) -> Result<String, String> {
    let rule = format!("SELECT {expr} AS v FROM \"#\"");
    let plan = RulePlan::parse(&rule).map_err(|refused| refused.show(&rule))?;
    let mut rows = Vec::new();
    plan.run(&seen(), &mut Budget::default(), &mut rows).map_err(|failed| failed.to_string())?;
    Ok(rows[0].get("v").expect("the column is there").to_string())
}

#[test]
fn every_example_is_true() {
    let mut wrong = Vec::new();
    for function in GROUPS.iter().flat_map(|(_, rows)| *rows) {
        let (expr, expected) = function.example;
        assert!(expr.contains(&format!("{}(", function.name)), "{expr} calls {}", function.name);
        match value(expr) {
            Ok(got) if got == expected => {}
            got => wrong.push(format!("{expr}: {got:?}, not {expected}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn names_are_sorted_and_stand_once() {
    let mut all: Vec<&str> = Vec::new();
    for (group, rows) in GROUPS {
        let names: Vec<&str> = rows.iter().map(|row| row.name).collect();
        assert!(names.is_sorted(), "{group}: {names:?}");
        all.extend(names);
    }
    all.sort_unstable();
    let count = all.len();
    all.dedup();
    assert_eq!(all.len(), count);
    assert!(count > 100, "{count}");
}

/// Calls each function with unusual arguments at each position; no call panics.
#[test]
fn no_function_panics_whatever_it_gets() {
    let odd = [
        "null",
        "true",
        "0",
        "-1",
        "9223372036854775807",
        "-9223372036854775807 - 1",
        "1.5",
        "-1e308",
        "''",
        "'\u{e4}\u{1f600}'",
        "'a,b,,c'",
        "'%'",
        "'%Y%z%3N'",
        "'second'",
        "'trailing'",
        "'+08:00'",
        "'2026-02-29'",
        "'['",
        "'a+'",
        "'AFF'",
        "'{\"a\":[1,{}]}'",
        "[]",
        "[null, [1], 'a']",
        "map_new()",
        "map('{\"a\":{\"b\":1}}')",
        "hexstr2bin('ff00')",
        "payload",
        "9007199254740993",
        "64",
    ];
    let (mut ran, mut good) = (0, 0);
    for function in GROUPS.iter().flat_map(|(_, rows)| *rows) {
        for count in function.arity.clone().take_while(|count| *count <= 6) {
            let places = if count < 3 { odd.len().pow(count as u32) } else { 600 };
            for at in 0..places {
                let nth = |place: usize| match count < 3 {
                    true => odd[at / odd.len().pow(place as u32) % odd.len()],
                    // Some of very many: each place goes through them at a pace of its own.
                    false => odd[(at * (2 * place + 1) + at / odd.len() * (place + 3)) % odd.len()],
                };
                let arguments: Vec<&str> = (0..count).map(nth).collect();
                let expr = format!("{}({})", function.name, arguments.join(", "));
                ran += 1;
                good += usize::from(value(&expr).is_ok());
            }
        }
    }
    assert!(good > 1000 && good < ran, "{good} of {ran} had a result");
}

#[test]
fn what_functions_do_at_their_edges() {
    let none = "no result";
    for (expr, expected) in [
        ("substr('abcdef', 2)", r#""cdef""#),
        ("substr('abc', 7)", r#""""#),
        ("split('a//b', '/')", r#"["a","b"]"#),
        ("split('a//b', '/', 'notrim')", r#"["a","","b"]"#),
        ("split('a/b/c', '/', 'trailing')", r#"["a/b","c"]"#),
        ("split('', '/')", "[]"),
        ("tokens('a/b\nc', '/', 'nocrlf')", r#"["a","b","c"]"#),
        ("split('abc', '')", r#"["abc"]"#),
        ("find('eeabcabcee', 'abc')", r#""abcabcee""#),
        ("replace('abab', 'b', 'c', 'trailing')", r#""abac""#),
        ("replace('abab', '', 'c')", r#""abab""#),
        ("pad('abc', 5)", r#""abc  ""#),
        ("pad('abc', 6, 'both', '*')", r#""*abc**""#),
        ("pad('abc', 2)", r#""abc""#),
        ("sublist(3, [1, 2])", "[1,2]"),
        ("sublist(0, 1, [1])", none),
        ("nth(-1, [1, 2])", "2"),
        ("range(3, 1)", "[]"),
        ("range(1, 9223372036854775807)", none),
        ("range(-9223372036854775807, 9223372036854775807)", none),
        ("pad('a', 9223372036854775807)", none),
        ("subbits('abc', 8)", "97"),
        ("subbits('abc', 9, 8)", "98"),
        ("subbits('abc', 9, 16, 'integer', 'signed', 'big')", "25187"),
        ("subbits('abc', 17, 9)", "99"),
        ("subbits('abc', 25, 1)", "null"),
        ("bin2hexstr(subbits('abc', 1, 12, 'bits'))", "\"0616\""),
        ("subbits(hexstr2bin('FFFE'), 1, 16, 'integer', 'signed')", "-2"),
        ("subbits(hexstr2bin('40490FDB'), 1, 32, 'float')", "3.1415927410125732"),
        ("subbits('', 0)", "null"),
        ("subbits('abcabcabc', 72)", none),
        ("bitsl(1, 62)", "4611686018427387904"),
        ("bitsl(1, 63)", none),
        ("bitsl(0, 100)", "0"),
        ("bitsr(-8, 1)", "-4"),
        ("bitsr(-8, 100)", "-1"),
        ("bitsl(8, -1)", "4"),
        ("bin2hexstr(hexstr2bin('ABEF123'))", r#""0ABEF123""#),
        ("hexstr2bin('xy')", none),
        ("base64_decode('x')", none),
        ("json_decode('{')", none),
        ("json_encode(map('{ \"a\" : 1.0 }'))", r#""{\"a\":1.0}""#),
        ("map_put('a', 2, map('{\"a\":1}'))", r#"{"a":2}"#),
        ("map_put('a.b', 2, map('{\"a\":1}'))", r#"{"a":{"b":2}}"#),
        ("map_get('a.b', map('{\"a\":1}'), 5)", "5"),
        (r#"map_get('a', '{"a":1}')"#, "1"),
        (r#"map_get('a.b', map_put('a', '{"b":2}', map_new()))"#, "2"),
        (r#"map_get('a.b.c', '{"a":"{\"b\":1}"}', 5)"#, "5"),
        (r#"mget('a.b', '{"a.b":1}')"#, "1"),
        (r#"map_keys('{"a":1}')"#, r#"["a"]"#),
        (r#"map_values('{"a":1}')"#, "[1]"),
        (r#"map_size('{"a":1}')"#, "1"),
        (r#"map_to_entries('{"a": 1}')"#, r#"[{"key":"a","value":1}]"#),
        (r#"map_put('b', 2, '{"a":1}')"#, r#"{"a":1,"b":2}"#),
        ("map_keys('[1]')", none),
        ("map_get('a', 'x')", "null"),
        ("mget('a', 'x')", none),
        ("regex_match('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!', '^(a+)+$')", "false"),
        ("regex_match('abc', concat('a', '.c'))", "true"),
        ("regex_match('abc', concat('(', ''))", none),
        ("regex_match('abc', concat('((a{500}){500})', ''))", none),
        ("regex_extract('a', 'b')", "[]"),
        ("regex_replace('aaa', '', '-')", r#""-a-a-a-""#),
        ("regex_replace('abcd', 'c', '[&]')", r#""ab[c]d""#),
        (r"regex_replace('abcd', 'c', '[\&]')", r#""ab[&]d""#),
        (r"regex_replace('abcd', '(c)(x)?', '[\1\2\g1\g{1}1\7]')", r#""ab[ccc1]d""#),
        (r"regex_replace('abcd', 'c', '$1$$\\\0\n\g{x}\')", r#""ab$1$$\\0ng{x}\\d""#),
        ("int('x')", none),
        ("int(1e300)", none),
        ("int(true)", "1"),
        ("float('1.25')", "1.25"),
        ("abs(-9223372036854775807 - 1)", none),
        ("round(-2.5)", "-3"),
        ("sqrt(-1)", none),
        ("log(0)", none),
        ("power(10, 400)", none),
        ("fmod(1, 0)", none),
        (
            "format_date('millisecond', 'Z', '%Y-%m-%d %H:%M:%S.%3N%z', -1)",
            r#""1969-12-31 23:59:59.999+0000""#,
        ),
        ("format_date('second', 28800, '%H', 0)", r#""08""#),
        ("format_date('second', 'Z', '%Q', 0)", r#""%Q""#),
        ("format_date('second', 'Z', '%Y', 9223372036854775807)", none),
        ("format_date('second', 'local', '%Y', 0)", none),
        ("date_to_unix_ts('millisecond', '+08:00', '%Y-%m-%d', '1970-01-01')", "-28800000"),
        ("rfc3339_to_unix_ts('1970-01-01T00:00:00.1239Z', 'millisecond')", "123"),
        ("unix_ts_to_rfc3339(1, 'microsecond')", r#""1970-01-01T00:00:00.000001Z""#),
        ("topic_level(1)", r#""car""#),
        ("topic_level(0)", "null"),
        ("topic_level(9223372036854775807)", "null"),
        ("contains_topic_match([map('{\"topic\":\"car/#\",\"qos\":1}')], topic)", "true"),
        ("coalesce(null, payload.no)", "null"),
        ("UPPER('a')", r#""A""#),
    ] {
        let got = value(expr);
        match expected == none {
            true => assert!(got.is_err(), "{expr}: {got:?}"),
            false => assert_eq!(got.as_deref(), Ok(expected), "{expr}"),
        }
    }
}
