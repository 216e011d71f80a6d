//! Which rule applies to a query, and how rules apply to filters.

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
                // The only case that `covers` does not detect.
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
            assert!(!matches || rule.may_match(head_bytes(topic), !0), "{filter} {topic}");
        }
        assert!(!rule.may_match(head_bytes("other"), !0) || filter.starts_with(['+', '#']));
        for other in FILTERS.into_iter().chain(long) {
            let (head, mask) = head_of_matching_topics(other);
            let skips = !rule.may_match(head, mask);
            assert!(!skips || !covers(filter, other), "{filter} covers {other}");
            assert!(!skips || !overlaps(filter, other), "{filter} overlaps {other}");
        }
    }
}

fn who(user: Option<&str>) -> AclSubject {
    AclSubject {
        user: user.map(Into::into),
        groups: ["ops".into()].into(),
        address: Some([10, 1, 2, 3].into()),
        listener: ListenerId(1),
        common_name: None,
        is_superuser: false,
        own: None,
    }
}

fn allow(topic: &str) -> AclRule {
    AclRule {
        allows: true,
        topics: vec![TopicPattern::parse(topic).unwrap()],
        ..AclRule::default()
    }
}

fn publish(topic: &str) -> AclQuery<'_> {
    AclQuery::Publish { topic, qos: 0, retain: false }
}

fn subscribe(filter: &str) -> AclQuery<'_> {
    AclQuery::Subscribe { filter, qos: 0 }
}

#[test]
fn the_first_rule_about_it_decides() {
    let rules = AclRuleSet::new(vec![
        AclRule { allows: false, ..allow("a/secret/#") },
        AclRule { users: vec![NamePattern::parse("ann")], ..allow("b/#") },
        AclRule { subscribe: false, ..allow("a/+") },
        allow("a/#"),
        AclRule { users: vec![NamePattern::parse("ann")], allows: false, ..allow("c") },
        AclRule { users: vec![NamePattern::parse("a*")], ..allow("c") },
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
    let exactly = |text: &str| AclRule {
        topics: vec![TopicPattern::exactly(text).unwrap()],
        ..AclRule::default()
    };
    let rules = AclRuleSet::new(vec![
        exactly("#"),
        exactly("+/#"),
        exactly("own/${clientid}"),
        AclRule { allows: true, ..exactly("x/+") },
        AclRule { allows: false, ..allow("$SYS/#") },
        AclRule { publish: false, ..allow("#") },
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
    assert!(TopicPattern::exactly("a/#/b").is_err());
}

#[test]
fn a_denial_names_the_rule_that_stands_against_it() {
    let rules = AclRuleSet::new(vec![
        AclRule { allows: false, ..allow("a/secret/#") },
        AclRule { publish: false, ..allow("house/+/temperature") },
    ]);
    let why = |deed| rules.denial_cause(&who(None), "id", deed).to_string();
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
    let about = |rule: AclRule| rule.matches(&who(Some("ann")), &[], "dev-1", publish("a"));
    assert!(about(allow("a")));
    assert!(about(AclRule { client_ids: vec![NamePattern::parse("dev-*")], ..allow("a") }));
    assert!(!about(AclRule { client_ids: vec![NamePattern::parse("dev")], ..allow("a") }));
    assert!(about(AclRule { groups: vec!["x".into(), "ops".into()], ..allow("a") }));
    assert!(!about(AclRule { groups: vec!["x".into()], ..allow("a") }));
    let network = |text| vec![IpNetwork::parse(text).unwrap()];
    assert!(about(AclRule { addresses: network("10.0.0.0/8"), ..allow("a") }));
    assert!(about(AclRule { addresses: network("0.0.0.0/0"), ..allow("a") }));
    assert!(!about(AclRule { addresses: network("10.1.2.4"), ..allow("a") }));
    assert!(!about(AclRule { addresses: network("::/0"), ..allow("a") }));
    assert!(about(AclRule { listeners: vec![ListenerId(1)], ..allow("a") }));
    assert!(!about(AclRule { listeners: vec![ListenerId(0)], ..allow("a") }));
    assert!(!about(AclRule { anonymous_only: true, ..allow("a") }));
    assert!(!about(AclRule { qos: 0b110, ..allow("a") }));
    assert!(!about(AclRule { retain: Some(true), ..allow("a") }));
    assert!(!about(AclRule { publish: false, ..allow("a") }));
    assert!(!about(AclRule { wildcard_names_only: true, ..allow("a") }));
    let mapped = "::ffff:10.1.2.3".parse().unwrap();
    assert!(IpNetwork::parse("10.1.0.0/16").unwrap().contains(mapped));
    assert!(IpNetwork::parse("10.0.0.0/33").is_none() && IpNetwork::parse("x").is_none());
}

#[test]
fn who_is_in_a_group_is_so_by_the_rules_of_today() {
    let rule = AclRule { groups: vec!["night".into()], ..allow("a") };
    let members = [("ann".into(), vec!["night".into()])];
    let rules = AclRuleSet::new(vec![rule]);
    let today = rules.clone().with_members(members.into());
    let says = |rules: &AclRuleSet, user| rules.decide(&who(user), "id", publish("a"));
    assert_eq!(says(&today, Some("ann")), Some(true));
    assert_eq!((says(&today, Some("bob")), says(&today, None)), (None, None));
    assert_eq!(says(&rules, Some("ann")), None);
}

#[test]
fn a_name_stands_for_itself_and_for_nothing_more() {
    let rule = allow("u/${username}/${clientid}/#");
    fn about(rule: &AclRule, user: Option<&str>, id: &str, topic: &str) -> bool {
        rule.matches(&who(user), &[], id, publish(topic))
    }
    assert!(about(&rule, Some("ann"), "x", "u/ann/x/1"));
    assert!(!about(&rule, Some("ann"), "x", "u/bob/x/1"));
    assert!(!about(&rule, None, "x", "u//x/1"));
    for name in ["+", "#", "a/b", "$a", "a\0"] {
        let topic = format!("u/ann/{name}/1");
        assert!(!about(&rule, Some("ann"), name, &topic), "{name}");
        let denies = AclRule { allows: false, ..rule.clone() };
        assert!(about(&denies, Some("ann"), name, "anything"), "{name}");
    }
    assert!(TopicPattern::parse("a/${client}/b").unwrap_err().contains("unknown variable"));
    assert!(TopicPattern::parse("a/#/b").unwrap_err().contains("topic filter"));
}
