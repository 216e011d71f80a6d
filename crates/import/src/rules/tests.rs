//! What becomes of rules: never wider, and nothing of a denial is lost.

use super::super::config_tree::ConfigFolder;
use super::*;
use std::path::Path;

fn read_version(text: &str, percent_names: bool) -> ConfigDraft {
    let mut draft =
        ConfigDraft::new(godwit::option_catalog(), ConfigFolder::of_file(Path::new("nowhere/x")));
    draft.percent_names = percent_names;
    let place = SourceLocation { file: "acl.conf".into(), line: 1 };
    read_terms(&mut draft, &ConfigNode::text_at(&place, text));
    draft
}

fn read(text: &str) -> (Vec<String>, Vec<String>, Vec<String>) {
    let draft = read_version(text, false);
    let rules = draft.rules.iter().map(|rule| {
        let mut text = String::new();
        rule.write(&mut text);
        text.lines().skip(2).collect::<Vec<_>>().join(" ").replace("[[rule]] ", "")
    });
    let missing = draft.missing.iter().map(|one| format!("{}: {}", one.place, one.why));
    (rules.collect(), missing.collect(), draft.wrongs)
}

#[test]
fn terms_become_rules() {
    let (rules, missing, wrongs) = read(
        "%% who looks\n{allow, {username, {re, \"^dashboard$\"}}, subscribe, [\"$SYS/#\"]}.\n\
         {allow, {ipaddr, \"127.0.0.1\"}, all, [\"$SYS/#\", \"a/${clientid}\"]}.\n\
         {deny, {'and', [{user, \"a\"}, {client, \"b\"}]}, pubsub, [{eq, \"x/y\"}]}.\n\
         {deny, all, subscribe, [\"$SYS/#\", {eq, \"#\"}, \"eq +/#\"]}.\n\
         {allow, {'or', [{user, \"a\"}, {clientid, [\"b\", \"c\"]}]}, publish, \"t\"}.\n\
         {allow, all, {all, [{qos, [0, 1]}, {retain, false}]}, [\"r\"]}.\n\
         {allow, all, publish, []}.\n\
         {allow, all}.\n{deny, all}.",
    );
    assert_eq!(
        rules,
        [
            "allow = \"subscribe\" user = [\"dashboard\"] topic = [\"$SYS/#\"]",
            "allow = \"all\" address = [\"127.0.0.1\"] topic = [\"$SYS/#\", \"a/${clientid}\"]",
            "deny = \"all\" user = [\"a\"] client_id = [\"b\"] filter = [\"x/y\"]",
            "deny = \"subscribe\" topic = [\"$SYS/#\"] filter = [\"#\", \"+/#\"]",
            "allow = \"publish\" user = [\"a\"] topic = [\"t\"]",
            "allow = \"publish\" client_id = [\"b\", \"c\"] topic = [\"t\"]",
            "allow = \"publish\" topic = [\"r\"] qos = [0, 1] retain = false",
            "allow = \"subscribe\" topic = [\"r\"] qos = [0, 1]",
            "allow = \"all\" topic = [\"#\"]",
            "deny = \"all\"",
        ]
    );
    assert_eq!((missing.len(), wrongs.len()), (0, 0), "{missing:?} {wrongs:?}");
}

#[test]
fn what_has_no_equal_allows_nothing_and_keeps_its_denial() {
    for (term, rule, why) in [
        ("{allow, {zone, \"x\"}, all, [\"a\"]}.", None, "\"zone\" is no condition here: nobody"),
        (
            "{deny, {zone, \"x\"}, all, [\"a\"]}.",
            Some("deny = \"all\" topic = [\"a\"]"),
            "denied to more clients",
        ),
        ("{allow, {client_attr, \"g\", \"x\"}, all, [\"a\"]}.", None, "nobody is allowed"),
        ("{allow, {user, {re, \"^a.*z$\"}}}.", None, "names by the expression"),
        (
            "{deny, {user, {re, \"^a.*z$\"}}}.",
            Some("deny = \"all\" user = [\"a*\"]"),
            "denied to more clients",
        ),
        ("{deny, {user, {re, \"a\"}}}.", Some("deny = \"all\""), "denied to more clients"),
        ("{allow, all, all, [\"a/${client_attrs.g}/b\"]}.", None, "nobody is allowed it"),
        (
            "{deny, all, all, [\"a/${client_attrs.g}/b\"]}.",
            Some("deny = \"all\" topic = [\"a/#\"]"),
            "\"a/#\" is denied",
        ),
        (
            "{allow, all, all, [\"a/${client_attrs.g}/b\", \"c\"]}.",
            Some("allow = \"all\" topic = [\"c\"]"),
            "nobody is allowed it",
        ),
    ] {
        let (rules, missing, wrongs) = read(term);
        assert!(wrongs.is_empty(), "{wrongs:?}");
        assert_eq!(rules, rule.map(String::from).into_iter().collect::<Vec<_>>(), "{term}");
        assert!(missing.len() == 1 && missing[0].contains(why), "{term}: {missing:?}");
    }
}

/// EMQX 5 reads `%c` as two characters; EMQX 4 reads it as the client id.
#[test]
fn percent_names_count_where_the_project_has_them() {
    let rules = |percent_names: bool| {
        let text = "{allow, all, all, [\"a/%c\"]}.\n{deny, all, all, [\"b/%u\", \"c/x%c\"]}.";
        let draft = read_version(text, percent_names);
        draft.rules.iter().map(|rule| rule.topics.join(" ")).collect::<Vec<_>>()
    };
    assert_eq!(rules(false), ["a/%c", "b/+ c/x%c"]);
    assert_eq!(rules(true), ["a/${clientid}", "b/${username} c/#"]);
}

/// Names of the client count in patterns, and only those that each version has.
#[test]
fn names_of_the_client_are_those_of_each_version() {
    for (percent_names, topic, own) in [
        (false, "\"a/${clientid}/${username}x\"", "topic a/${clientid}/${username}x"),
        (false, "\"a/${cert_common_name}\"", "topic a/${cert_cn}"),
        (false, "\"a/${cn}\"", ""),
        (false, "\"a/${cert_cn}\"", ""),
        (false, "{eq, \"a/${username}\"}", ""),
        (false, "\"eq a/${username}\"", ""),
        (false, "{eq, \"a/+\"}", "filter a/+"),
        (true, "\"a/%u\"", "topic a/${username}"),
        (true, "\"a/${clientid}\"", ""),
        (true, "{eq, \"a/%c\"}", "filter a/%c"),
        (true, "{eq, \"a/${clientid}\"}", ""),
        (true, "\"a/x%u\"", ""),
    ] {
        let shown = |word: &str| {
            let text = format!("{{{word}, all, all, [{topic}]}}.");
            let draft = read_version(&text, percent_names);
            assert!(draft.wrongs.is_empty(), "{:?}", draft.wrongs);
            let list = |kind: &str, names: &[String]| match names {
                [] => String::new(),
                names => format!("{kind} {}", names.join(" ")),
            };
            let shown =
                |rule: &DraftRule| list("topic", &rule.topics) + &list("filter", &rule.filters);
            draft.rules.iter().map(shown).collect::<String>()
        };
        assert_eq!(shown("allow"), own, "{topic}");
        let denied = if own.is_empty() { "topic a/#" } else { own };
        assert_eq!(shown("deny"), denied, "{topic}");
    }
}

/// Two spellings of a network are no reason to deny nobody.
#[test]
fn addresses_with_a_second_condition_deny_more() {
    let deny = |who: &str| read(&format!("{{deny, {{{who}}}}}.")).0.concat();
    let both = "'and', [{ipaddr, \"10.0.0.1\"}, {ipaddr, \"10.0.0.1/32\"}]";
    assert!(deny(both).contains("address = [\"10.0.0.1\"]"), "{}", deny(both));
    let both = "'and', [{ipaddr, \"::1\"}, {ipaddrs, [\"0:0::1\", \"10.0.0.1\"]}]";
    assert!(deny(both).contains("address = [\"::1\"]"), "{}", deny(both));
    for mapped in ["::ffff:10.0.0.1", "::/0", "::/80", "::ffff:0:0/100"] {
        assert_eq!(deny(&format!("ipaddr, \"{mapped}\"")), "deny = \"all\"", "{mapped}");
    }
    assert!(deny("ipaddr, \"fd00::/8\"").contains("address = [\"fd00::/8\"]"));
}

/// EMQX 4 has no prefix for a filter to be taken as it is.
#[test]
fn a_text_with_a_prefix_is_a_topic_of_emqx_4() {
    let text = "{deny, all, pubsub, [\"eq a/+\"]}.\n{allow, all, pubsub, [\"eq a/+\"]}.";
    let draft = read_version(text, true);
    let rules = draft.rules.iter().map(|rule| (rule.topics.join(" "), rule.filters.join(" ")));
    let both = ("eq a/+".to_string(), "a/+".to_string());
    assert_eq!(rules.collect::<Vec<_>>(), [both.clone(), (both.0, String::new())]);
}

#[test]
fn broken_terms_have_their_line() {
    for (text, why) in [
        ("{allow, all}", "acl.conf:1: a rule ends with a point"),
        ("\n{allow, all, fly}.", "acl.conf:2: a rule: no such deed"),
        ("{allow, all", "acl.conf:1: use a comma, or }"),
        ("{maybe, all}.", "acl.conf:1: a rule: a rule begins with allow or deny"),
        ("{allow, {ipaddr, \"x\"}}.", "acl.conf:1: a rule: no address"),
        ("{allow, all, {publish, [{qos, 3}]}, [\"a\"]}.", "acl.conf:1: a rule: conditions are"),
    ] {
        let wrongs = read(text).2;
        assert!(wrongs[0].starts_with(why), "{text}: {wrongs:?}");
    }
    assert!(!read(&"{".repeat(10_000)).2.is_empty());
}

#[test]
fn first_condition_of_each_name_counts() {
    for (conditions, rule) in [
        ("{qos, []}", None),
        ("{retain, true}, {retain, all}", Some("retain = true")),
        ("{qos, 1}, {qos, 2}", Some("qos = [1]")),
    ] {
        let text = format!("{{allow, all, {{publish, [{conditions}]}}, [\"a\"]}}.");
        let (rules, missing, wrongs) = read(&text);
        assert!(wrongs.is_empty(), "{wrongs:?}");
        assert_eq!(rules.len(), rule.iter().count(), "{text}: {rules:?}");
        assert_eq!(missing.is_empty(), rule.is_some(), "{text}: {missing:?}");
        assert!(rule.is_none_or(|rule| rules[0].contains(rule)), "{text}: {rules:?}");
    }
}

#[test]
fn an_at_sign_is_part_of_the_topic() {
    let rules = read("{deny, all, all, [\"@admin/#\"]}.").0;
    assert!(rules[0].contains("topic = [\"@admin/#\"]"), "{rules:?}");
}

#[test]
fn escapes_are_those_of_erlang() {
    let text = r#"{deny, {clientid, "\x61nn"}, all, ["\x{f6}\x2f\043", "a\sb\101"]}."#;
    let (rules, missing, wrongs) = read(text);
    assert!(wrongs.is_empty() && missing.is_empty(), "{wrongs:?} {missing:?}");
    assert!(rules[0].contains("client_id = [\"ann\"]"), "{rules:?}");
    assert!(rules[0].contains("topic = [\"\u{f6}/#\", \"a bA\"]"), "{rules:?}");
    for wrong in [r#"{deny, all, all, ["\xzz"]}."#, r#"{deny, all, all, ["\x{61"]}."#] {
        assert!(read(wrong).2[0].contains("no such escape"), "{wrong}");
    }
}

#[test]
fn a_rule_that_is_not_utf_8_is_an_error() {
    let wrongs = read("% J\u{fffd}rg\n{deny, all, all, [\"j\u{fffd}rg/#\"]}.").2;
    assert!(wrongs[0].contains(":2: a rule with characters that are not UTF-8"), "{wrongs:?}");
    assert!(read("% J\u{fffd}rg\n{deny, all}.").2.is_empty());
}
