//! Which rule is about a case, and what it says of filters.

use super::*;

const FILTERS: [&str; 16] = [
    "#", "+", "+/+", "+/#", "a", "a/#", "a/+", "a/b", "a/+/c", "a/b/#", "+/b", "+/b/#", "$S/#",
    "$S/+", "$S/a", "/",
];
const TOPICS: [&str; 14] = [
    "a", "b", "a/b", "a/c", "a/b/c", "a/b/d", "a/e/c", "b/b", "b/b/c", "$S/a", "$S/a/b", "$S/b",
    "/", "/b",
];

#[test]
fn covering_and_overlapping_agree_with_matching() {
    for one in FILTERS {
        for other in FILTERS {
            let both = |topic: &&&str| filter_matches(other, topic) && filter_matches(one, topic);
            let common = TOPICS.iter().filter(both).count();
            let inner = TOPICS.iter().filter(|topic| filter_matches(other, topic)).count();
            assert_eq!(overlaps(one, other), common > 0, "{one} overlaps {other}");
            assert_eq!(overlaps(one, other), overlaps(other, one), "{one} and {other}");
            if covers(one, other) {
                assert_eq!(common, inner, "{one} covers {other}");
            } else {
                // The one that is not seen.
                assert!(common < inner || (one, other) == ("+/#", "#"), "{one} {other}");
            }
        }
    }
}

#[test]
fn the_first_bytes_of_a_topic_rule_out_no_match() {
    let long =
        ["long/topic/name", "long/topic/#", "long/top/+", "long/to", "\u{e9}/\u{fc}/x", "\u{e9}/+"];
    for filter in FILTERS.into_iter().chain(long) {
        let rule = allow(filter);
        for topic in TOPICS.into_iter().chain(long) {
            let matches = filter_matches(filter, topic);
            assert!(!matches || rule.may_match((head_of(topic), !0)), "{filter} {topic}");
        }
        assert!(!rule.may_match((head_of("other"), !0)) || filter.starts_with(['+', '#']));
        for other in FILTERS.into_iter().chain(long) {
            let skips = !rule.may_match(head_of_filter(other));
            assert!(!skips || !covers(filter, other), "{filter} covers {other}");
            assert!(!skips || !overlaps(filter, other), "{filter} overlaps {other}");
        }
    }
}

fn who(user: Option<&str>) -> Who {
    Who {
        user: user.map(Into::into),
        groups: ["ops".into()].into(),
        address: Some([10, 1, 2, 3].into()),
        listener: ListenerId(1),
        common_name: None,
        is_superuser: false,
        own: None,
    }
}

fn allow(topic: &str) -> Rule {
    Rule { allows: true, topics: vec![Pattern::parse(topic).unwrap()], ..Rule::default() }
}

fn publish(topic: &str) -> Deed<'_> {
    Deed::Publish { topic, qos: 0, retain: false }
}

fn subscribe(filter: &str) -> Deed<'_> {
    Deed::Subscribe { filter, qos: 0 }
}

#[test]
fn the_first_rule_about_it_decides() {
    let rules = Permissions::new(vec![
        Rule { allows: false, ..allow("a/secret/#") },
        Rule { users: vec![Name::parse("ann")], ..allow("b/#") },
        Rule { subscribe: false, ..allow("a/+") },
        allow("a/#"),
        Rule { users: vec![Name::parse("ann")], allows: false, ..allow("c") },
        Rule { users: vec![Name::parse("a*")], ..allow("c") },
    ]);
    let ann = who(Some("ann"));
    let says = |deed| rules.decide(&ann, "id", deed);
    assert_eq!(says(publish("a/secret/x")), Some(false));
    assert_eq!(says(publish("a/x")), Some(true));
    assert_eq!(says(publish("b/x")), Some(true));
    assert_eq!(says(publish("c")), Some(false));
    assert_eq!(says(publish("d")), None);
    assert_eq!(says(subscribe("a/+")), Some(false), "a/secret/# matches a/secret, too");
    assert_eq!(says(subscribe("a/#")), Some(false), "it would bring the secrets");
    assert_eq!(says(subscribe("a/x/#")), Some(true));
    assert_eq!(says(subscribe("#")), Some(false));
    assert_eq!(rules.decide(&who(None), "id", publish("b/x")), None);
    assert_eq!(rules.decide(&who(Some("al")), "id", publish("c")), Some(true));
}

#[test]
fn an_exact_filter_is_about_no_other_filter() {
    let exactly =
        |text: &str| Rule { topics: vec![Pattern::exactly(text).unwrap()], ..Rule::default() };
    let rules = Permissions::new(vec![
        exactly("#"),
        exactly("+/#"),
        exactly("own/${clientid}"),
        Rule { allows: true, ..exactly("x/+") },
        Rule { allows: false, ..allow("$SYS/#") },
        Rule { publish: false, ..allow("#") },
    ]);
    let says = |deed| rules.decide(&who(None), "id", deed);
    for (filter, allowed) in [
        ("#", false),
        ("+/#", false),
        ("own/id", false),
        ("+", true),
        ("a/#", true),
        ("own/other", true),
        ("x/+", true),
    ] {
        assert_eq!(says(subscribe(filter)), Some(allowed), "{filter}");
    }
    assert_eq!(says(subscribe("$SYS/a")), Some(false));
    assert_eq!(says(publish("x/1")), None, "the rule is about the filter, not about topics");
    assert!(Pattern::exactly("a/#/b").is_err());
}

#[test]
fn a_denial_names_the_rule_that_stands_against_it() {
    let rules = Permissions::new(vec![
        Rule { allows: false, ..allow("a/secret/#") },
        Rule { publish: false, ..allow("house/+/temperature") },
    ]);
    let why = |deed| rules.cause(&who(None), "id", deed).to_string();
    assert_eq!(why(publish("a/secret/x")), "a rule denies a/secret/#");
    assert_eq!(why(subscribe("a/#")), "a rule denies a/secret/#");
    assert_eq!(
        why(subscribe("house/#")),
        "the filter is wider than house/+/temperature, which a rule allows"
    );
    assert_eq!(why(subscribe("garden/#")), "no rule allows it");
    assert_eq!(why(publish("house/x/temperature")), "no rule allows it");
}

#[test]
fn every_condition_must_hold() {
    let about = |rule: Rule| rule.is_about((&who(Some("ann")), &[]), "dev-1", publish("a"));
    assert!(about(allow("a")));
    assert!(about(Rule { client_ids: vec![Name::parse("dev-*")], ..allow("a") }));
    assert!(!about(Rule { client_ids: vec![Name::parse("dev")], ..allow("a") }));
    assert!(about(Rule { groups: vec!["x".into(), "ops".into()], ..allow("a") }));
    assert!(!about(Rule { groups: vec!["x".into()], ..allow("a") }));
    let network = |text| vec![Network::parse(text).unwrap()];
    assert!(about(Rule { addresses: network("10.0.0.0/8"), ..allow("a") }));
    assert!(about(Rule { addresses: network("0.0.0.0/0"), ..allow("a") }));
    assert!(!about(Rule { addresses: network("10.1.2.4"), ..allow("a") }));
    assert!(!about(Rule { addresses: network("::/0"), ..allow("a") }));
    assert!(about(Rule { listeners: vec![ListenerId(1)], ..allow("a") }));
    assert!(!about(Rule { listeners: vec![ListenerId(0)], ..allow("a") }));
    assert!(!about(Rule { anonymous: true, ..allow("a") }));
    assert!(!about(Rule { qos: 0b110, ..allow("a") }));
    assert!(!about(Rule { retain: Some(true), ..allow("a") }));
    assert!(!about(Rule { publish: false, ..allow("a") }));
    assert!(!about(Rule { wild_names: true, ..allow("a") }));
    let mapped = "::ffff:10.1.2.3".parse().unwrap();
    assert!(Network::parse("10.1.0.0/16").unwrap().contains(mapped));
    assert!(Network::parse("10.0.0.0/33").is_none() && Network::parse("x").is_none());
}

#[test]
fn who_is_in_a_group_is_so_by_the_rules_of_today() {
    let rule = Rule { groups: vec!["night".into()], ..allow("a") };
    let members = [("ann".into(), vec!["night".into()])];
    let rules = Permissions::new(vec![rule]);
    let today = rules.clone().with_members(members.into());
    let says = |rules: &Permissions, user| rules.decide(&who(user), "id", publish("a"));
    assert_eq!(says(&today, Some("ann")), Some(true));
    assert_eq!((says(&today, Some("bob")), says(&today, None)), (None, None));
    assert_eq!(says(&rules, Some("ann")), None);
}

#[test]
fn a_name_stands_for_itself_and_for_nothing_more() {
    let rule = allow("u/${username}/${clientid}/#");
    fn about(rule: &Rule, user: Option<&str>, id: &str, topic: &str) -> bool {
        rule.is_about((&who(user), &[]), id, publish(topic))
    }
    assert!(about(&rule, Some("ann"), "x", "u/ann/x/1"));
    assert!(!about(&rule, Some("ann"), "x", "u/bob/x/1"));
    assert!(!about(&rule, None, "x", "u//x/1"));
    for name in ["+", "#", "a/b", "$a", "a\0"] {
        let topic = format!("u/ann/{name}/1");
        assert!(!about(&rule, Some("ann"), name, &topic), "{name}");
        let denies = Rule { allows: false, ..rule.clone() };
        assert!(about(&denies, Some("ann"), name, "anything"), "{name}");
    }
    assert!(Pattern::parse("a/${client}/b").unwrap_err().contains("unknown variable"));
    assert!(Pattern::parse("a/#/b").unwrap_err().contains("no topic filter"));
}
