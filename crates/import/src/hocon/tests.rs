//! Tests of the HOCON parser: the syntax, and that no text crashes or stalls the parser.

use super::*;
use std::path::Path;

fn shown(node: &ConfigNode) -> String {
    match &node.tree {
        ConfigTree::Null => "null".to_string(),
        ConfigTree::Text(text) | ConfigTree::UnclearText(text) => format!("{text:?}"),
        ConfigTree::List(nodes) => {
            format!("[{}]", nodes.iter().map(shown).collect::<Vec<_>>().join(" "))
        }
        ConfigTree::Object(fields) => {
            let fields = fields.iter().map(|(key, node)| format!("{key}={}", shown(node)));
            format!("{{{}}}", fields.collect::<Vec<_>>().join(" "))
        }
        ConfigTree::Pieces(_) | ConfigTree::Variable { .. } | ConfigTree::Override(_) => {
            "unresolved".to_string()
        }
    }
}

fn read_dialect(text: &str, dialect: HoconDialect) -> Result<ConfigNode, String> {
    let folder = ConfigFolder::of_file(Path::new("nowhere/t.conf"));
    super::read(text, dialect, "t.conf".into(), &folder).map_err(|wrongs| wrongs.join("\n"))
}

fn read_text(text: &str) -> Result<ConfigNode, String> {
    read_dialect(text, HoconDialect::Standard)
}

fn check(text: &str, expected: &str) {
    assert_eq!(read_text(text).map(|node| shown(&node)).as_deref(), Ok(expected), "{text}");
}

#[test]
fn the_forms_of_a_file_are_understood() {
    check("a = 1\nb: two words # not this\n", r#"{a="1" b="two words"}"#);
    check("{\"a\": {\"b\": [1, \"x\\ty\"]}}", r#"{a={b=["1" "x\ty"]}}"#);
    check("a.b.c = x\na { b { d = y } }\n", r#"{a={b={c="x" d="y"}}}"#);
    check("a {\n x = 1\n}\na = {y = 2}, a.x = 3", r#"{a={x="3" y="2"}}"#);
    check("l = [\n a\n b, {c = 1}\n]\nl += d", r#"{l=["a" "b" {c="1"} "d"]}"#);
    check("u = mqtt-tcp://127.0.0.1:1883\n// no\n", r#"{u="mqtt-tcp://127.0.0.1:1883"}"#);
    check("t = \"\"\"a\"b\"\"\"\nh.\"x.y\" = 1", r#"{t="a\"b" h={x.y="1"}}"#);
    check("a = 1\na = null\nb = {}", r#"{b={}}"#);
    check("a = \"null\"\nb = [x]\nb { c = 1 }", r#"{a="null" b={c="1"}}"#);
    check("a.1 = x\na = [y]", r#"{a=["y"]}"#);
}

#[test]
fn names_stand_for_what_is_elsewhere() {
    check("p = ${d}\"/x\"\nd = \"/etc\"", r#"{p="/etc/x" d="/etc"}"#);
    check("a = ${b} {y = 2}\nb {x = 1}", r#"{a={x="1" y="2"} b={x="1"}}"#);
    check("a = ${b.c}[z]\nb.c = [x]", r#"{a=["x" "z"] b={c=["x"]}}"#);
    check("a = ${?nothing.here}\nb = 1", r#"{b="1"}"#);
    for (text, why) in [
        ("\na = ${nothing.here}", "t.conf:2: ${nothing.here} is not a key"),
        ("a = ${b}\nb = ${a}", "a name that stands for itself"),
        // The value would be that of the importer's host.
        ("a = ${PATH}", "${PATH} is not a key of the file"),
        ("a = x\nb = ${a}[1]", "text, lists and braces do not go together"),
    ] {
        assert!(read_text(text).unwrap_err().contains(why), "{text}");
    }
    // Ten names, each ten times as large as the previous name.
    let mut text = "a0 = [x]\n".to_string();
    for at in 1..10 {
        text += &format!("a{at} = [{}]\n", format!("${{a{}}} ", at - 1).repeat(10));
    }
    assert!(read_text(&text).unwrap_err().contains("too long"));
}

#[test]
fn what_is_wrong_has_its_line_and_what_would_be_right() {
    for (text, why) in [
        ("a {\n b = 1\n", "t.conf:1: this brace is never closed, use }"),
        ("a = 1\n}", "t.conf:2: '}' closes nothing"),
        ("a = [1,\n2", "t.conf:1: this bracket is never closed, use ]"),
        ("a = \"x\nb = 1", "t.conf:1: this quote is never closed"),
        ("a = 1\nword\n", "t.conf:2: word has no value, use word = VALUE"),
        ("a =\n\n}", "t.conf:3: a value is missing here"),
        ("= 1", "t.conf:1: here a key has to stand"),
        ("a = \"\\q\"", "t.conf:1: no such escape"),
        ("\na = [x]\na.1 = y", "t.conf:2: a part of this list is written again by its number"),
        ("a = [{b = 1}]\na { \"1\" { c = 2 } }", "t.conf:1: a part of this list"),
        ("x = [1]\na = ${x}\na.2 = y", "t.conf:2: a part of this list"),
    ] {
        assert!(read_text(text).unwrap_err().starts_with(why), "{text}: {:?}", read_text(text));
    }
    let deep = "a {".repeat(1000);
    assert!(read_text(&deep).unwrap_err().contains("deeper than 32 braces"));
    assert!(read_text(&"a = [".repeat(1000)).is_err());
}

#[test]
fn an_unset_optional_name_leaves_the_earlier_value() {
    for (text, whole) in [
        ("a = true\na = ${?NO_SUCH_NAME}", "{a=\"true\"}"),
        ("a { b = 1 }\na = ${?NO_SUCH_NAME}", "{a={b=\"1\"}}"),
        ("x = 2\na = 1\na = ${?x}", "{x=\"2\" a=\"2\"}"),
        ("x { c = 2 }\na { b = 1 }\na = ${x}", "{x={c=\"2\"} a={b=\"1\" c=\"2\"}}"),
        ("x = [1]\na = ${x}\na += 2", "{x=[\"1\"] a=[\"1\" \"2\"]}"),
    ] {
        assert_eq!(shown(&read_text(text).unwrap()), whole, "{text}");
    }
}

/// EMQX's older versions read escapes in three quotes too, and have no `\u` and no `\/`.
#[test]
fn texts_that_versions_read_differently_are_marked() {
    for (text, is_unclear) in [
        (r#"a = "x\n\"y""#, false),
        (r#"a = """x "y" z""""#, false),
        (r#"a = "x\"""#, true),
        (r#"a = "\u0041""#, true),
        (r#"a = "x\/y""#, true),
        (r#"a = """x\ny""""#, true),
        (r#"a = b """x\ny""" c"#, true),
        (r#"l = [{ b = """x\ny""" }]"#, true),
    ] {
        assert_eq!(read_text(text).unwrap().has_unclear_text(), is_unclear, "{text}");
    }
}

#[test]
fn what_versions_of_nanomq_read_differently_is_refused_or_marked() {
    let read = |text: &str| read_dialect(text, HoconDialect::NanoMq);
    for text in [
        "a = 1\na = 2",
        "a { b = 1 }\na.b = 2",
        "a { b { c = 1 } }\na { b { c = 2 } }",
        "a { b = 1 }\nA { c = 2 }",
        "a { b = 1, B = 2 }",
        "l = [{ \"permit\" : \"allow\", \"Permit\" : \"deny\" }]",
        "a = [1]\na = [2]",
    ] {
        assert!(read(text).unwrap_err().contains("stands twice, leave one out"), "{text}");
        assert!(read_text(text).is_ok(), "{text}");
    }
    assert!(read("a { b = 1 } { b = 2 }").unwrap_err().contains("only one object"));
    check("a { b = 1 }\na { c = 2 }\na.d = 3", r#"{a={b="1" c="2" d="3"}}"#);
    assert!(read("a { b = 1 }\na { c = 2 }\na.d = 3").is_ok());
    for (text, is_unclear) in [
        ("a = allow", false),
        ("a = allow\nb = { c : deny, d : \"x\" }", false),
        ("a = allow # why", true),
        ("a = { c : deny , d : x }", true),
        ("a = \"p\\\\q\"", true),
        ("a = \"x\" # why", false),
    ] {
        assert_eq!(read(text).unwrap().has_unclear_text(), is_unclear, "{text}");
    }
}
