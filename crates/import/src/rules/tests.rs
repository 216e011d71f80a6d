//! Conversion of rules: grants never become wider, and denials never narrower.

use super::super::config_tree::ConfigFolder;
use super::*;
use std::path::Path;

fn read_version(text: &str, language: AclLanguage) -> ConfigDraft {
    let mut draft =
        ConfigDraft::new(godwit::option_catalog(), ConfigFolder::of_file(Path::new("nowhere/x")));
    draft.acl_language = language;
    let place = SourceLocation { file: "acl.conf".into(), line: 1 };
    read_terms(&mut draft, &ConfigNode::text_at(&place, text));
    draft
}

fn read(text: &str) -> (Vec<String>, Vec<String>, Vec<String>) {
    let draft = read_version(text, AclLanguage::Version5);
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
         {deny, {'and', [{user, \"a\"}, {client, \"b\"}]}, all, [{eq, \"x/y\"}]}.\n\
         {deny, all, subscribe, [\"$SYS/#\", {eq, \"#\"}, \"eq +/#\"]}.\n\
         {allow, {'or', [{user, \"a\"}, {clientid, \"b\"}]}, publish, [\"t\"]}.\n\
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
            "allow = \"publish\" client_id = [\"b\"] topic = [\"t\"]",
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
        ("{allow, {zone, \"x\"}, all, [\"a\"]}.", None, "\"zone\" is not a condition here: nobody"),
        (
            "{deny, {zone, \"x\"}, all, [\"a\"]}.",
            Some("deny = \"all\" topic = [\"a\"]"),
            "denied to more clients",
        ),
        ("{allow, {client_attr, \"g\", \"x\"}, all, [\"a\"]}.", None, "nobody is allowed"),
        ("{allow, {user, {re, \"^a.*z$\"}}, all, [\"#\"]}.", None, "names by the expression"),
        (
            "{deny, {user, {re, \"^a.*z$\"}}, all, [\"#\"]}.",
            Some("deny = \"all\" user = [\"a*\"]"),
            "denied to more clients",
        ),
        (
            "{deny, {user, {re, \"a\"}}, all, [\"#\"]}.",
            Some("deny = \"all\""),
            "denied to more clients",
        ),
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

/// EMQX 4 replaces `%c` in a topic by the client id; EMQX 5 takes `%c` as two characters.
#[test]
fn percent_names_count_where_the_project_has_them() {
    let rules = |language| {
        let both = if language == AclLanguage::Version4 { "pubsub" } else { "all" };
        let text = format!(
            "{{allow, all, {both}, [\"a/%c\"]}}.\n{{deny, all, {both}, [\"b/%u\", \"c/x%c\"]}}."
        );
        let draft = read_version(&text, language);
        draft.rules.iter().map(|rule| rule.topics.join(" ")).collect::<Vec<_>>()
    };
    assert_eq!(rules(AclLanguage::Version5), ["a/%c", "b/+ c/x%c"]);
    assert_eq!(rules(AclLanguage::Version4), ["a/${clientid}", "b/${username} c/x%c"]);
}

/// Placeholders of a client's names are converted in topics, and only if all versions of the
/// project know them.
#[test]
fn names_of_the_client_are_those_of_each_version() {
    use AclLanguage::{Version4, Version5};
    for (language, topic, own) in [
        (Version5, "\"a/${clientid}/${username}x\"", "topic a/${clientid}/${username}x"),
        (Version5, "\"a/${cert_common_name}\"", ""),
        (Version5, "\"a/${cn}\"", ""),
        (Version5, "\"a/${cert_cn}\"", ""),
        (Version5, "{eq, \"a/${username}\"}", ""),
        (Version5, "\"eq a/${username}\"", ""),
        (Version5, "{eq, \"a/+\"}", "filter a/+"),
        (Version4, "\"a/%u\"", "topic a/${username}"),
        (Version4, "\"a/${clientid}\"", ""),
        (Version4, "{eq, \"a/%c\"}", "filter a/%c"),
        (Version4, "{eq, \"a/${clientid}\"}", ""),
        (Version4, "\"a/x%u\"", "topic a/x%u"),
    ] {
        let shown = |word: &str| {
            let both = if language == Version4 { "pubsub" } else { "all" };
            let text = format!("{{{word}, all, {both}, [{topic}]}}.");
            let draft = read_version(&text, language);
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

/// Two conditions on the address in a denial may be different spellings of one network, so the
/// denial must stay; a condition that cannot be expressed widens the denial.
#[test]
fn addresses_with_a_second_condition_deny_more() {
    let deny = |who: &str| read(&format!("{{deny, {{{who}}}, all, [\"#\"]}}.")).0.concat();
    let both = "'and', [{ipaddr, \"10.0.0.1\"}, {ipaddr, \"10.0.0.1/32\"}]";
    assert!(deny(both).contains("address = [\"10.0.0.1\"]"), "{}", deny(both));
    let both = "'and', [{ipaddr, \"::1\"}, {ipaddrs, [\"0:0::1\", \"10.0.0.1\"]}]";
    assert!(deny(both).contains("address = [\"::1\"]"), "{}", deny(both));
    for mapped in ["::ffff:10.0.0.1", "::/0", "::/80", "::ffff:0:0/100"] {
        assert_eq!(deny(&format!("ipaddr, \"{mapped}\"")), "deny = \"all\"", "{mapped}");
    }
    assert!(deny("ipaddr, \"fd00::/8\"").contains("address = [\"fd00::/8\"]"));
}

/// The prefix `eq` for a literal filter is of EMQX 5 only; in EMQX 4 such a text is a topic.
#[test]
fn a_text_with_a_prefix_is_a_topic_of_emqx_4() {
    let text = "{deny, all, pubsub, [\"eq a/+\"]}.\n{allow, all, pubsub, [\"eq a/+\"]}.";
    let draft = read_version(text, AclLanguage::Version4);
    let rules = draft.rules.iter().map(|rule| (rule.topics.join(" "), rule.filters.join(" ")));
    let both = ("eq a/+".to_string(), "a/+".to_string());
    assert_eq!(rules.collect::<Vec<_>>(), [both.clone(), (both.0, String::new())]);
}

#[test]
fn broken_terms_have_their_line() {
    for (text, why) in [
        ("{allow, all}", "acl.conf:1: a rule ends with a point"),
        ("\n{allow, all, fly, []}.", "acl.conf:2: a rule: no such deed"),
        ("{allow, all", "acl.conf:1: use a comma, or }"),
        ("{permit, all}.", "acl.conf:1: a rule: a rule begins with allow or deny"),
        ("{allow, {ipaddr, \"x\"}, all, [\"a\"]}.", "acl.conf:1: a rule: no address"),
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
    for text in ["{deny, all}.\n{deny, all, all, [\"j\u{fffd}rg/#\"]}.", "{deny, all}.\n% \u{fffd}"]
    {
        let wrongs = read(text).2;
        assert!(wrongs[0].contains(":2: not UTF-8 text"), "{wrongs:?}");
    }
}

/// Wildcards of the original also match topics that begin with `$`.
#[test]
fn a_denial_covers_topics_with_a_dollar_sign() {
    for language in [AclLanguage::Version4, AclLanguage::Version5] {
        let read = |topic: &str| {
            let draft = read_version(&format!("{{deny, all, publish, [{topic}]}}."), language);
            assert!(draft.wrongs.is_empty(), "{:?}", draft.wrongs);
            (draft.rules[0].topics.join(" "), draft.demands.unresolved.len())
        };
        assert_eq!(read("\"a\", \"#\""), (String::new(), 0));
        assert_eq!(read("\"+/y\""), ("+/y".to_string(), 1));
        assert_eq!(read("\"a/#\", \"b/+\""), ("a/# b/+".to_string(), 0));
    }
}

/// The original ignores all rules if one has an invalid form.
#[test]
fn forms_are_those_of_each_version() {
    use AclLanguage::{Version4, Version5};
    for (language, rule, why) in [
        (Version4, "{allow, {client, all}, pubsub, [\"a\"]}.", ""),
        (Version4, "{allow, {'or', [{user, \"a\"}, {ipaddrs, [\"::1\"]}]}, publish, [\"a\"]}.", ""),
        (Version4, "{allow, all, all, [\"a\"]}.", "use publish, subscribe or pubsub"),
        (Version4, "{allow, {clientid, \"x\"}, publish, [\"a\"]}.", "no such condition"),
        (Version4, "{allow, {user, {re, \"x\"}}, publish, [\"a\"]}.", "no such condition"),
        (Version4, "{allow, all, {publish, [{qos, 1}]}, [\"a\"]}.", "an action is publish"),
        (Version4, "{allow, all, publish, [\"\u{e9}\"]}.", "beyond ASCII"),
        (Version4, "{allow, all, publish, [<<\"\u{e9}\">>]}.", "/utf8"),
        (Version5, "{allow, all, publish, [<<\"\u{e9}\"/utf8>>]}.", ""),
        (Version5, "{allow, all, pubsub, [\"a\"]}.", "use --from emqx4"),
        (Version5, "{allow, {client, \"x\"}}.", "a rule is {allow, all}"),
        (Version5, "{allow, all, publish}.", "a rule is {allow, all}"),
        (Version5, "{allow, all, publish, \"a\"}.", "topics stand in [brackets]"),
        (Version5, "{allow, {or, [{user, \"a\"}]}, publish, [\"a\"]}.", "use 'or'"),
        (Version5, "{allow, all}.{deny, all}.", "a blank or a new line"),
        (Version5, "{allow, all}.% all of them", ""),
        (Version5, "{allow, all}.\n\u{3000}", "no value begins so"),
    ] {
        let draft = read_version(rule, language);
        match why {
            "" => assert!(draft.wrongs.is_empty() && draft.missing.is_empty(), "{rule}"),
            why => assert!(draft.wrongs.join(" ").contains(why), "{rule}: {:?}", draft.wrongs),
        }
    }
    // EMQX joins the names to a single client identifier, "bc".
    let draft = read_version("{allow, {clientid, [\"b\", \"c\"]}, all, [\"t\"]}.", Version5);
    assert_eq!((draft.rules.len(), draft.missing.len()), (0, 1));
}
