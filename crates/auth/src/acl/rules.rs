//! The ACL file in TOML. The first rule that matches an action decides; an action without a
//! matching rule is denied.
//!
//! ```toml
//! [groups]
//! operators = ["ann", "bob"]
//!
//! [[rule]]
//! deny = "subscribe"                  # or allow; "publish", "subscribe" or "all"
//! topic = ["plant/+/secret/#"]        # a filter or several; without one, every topic
//! filter = ["#", "+/#"]               # or a subscription with exactly one of these filters
//!
//! [[rule]]
//! allow = "all"
//! group = "operators"                 # or user, client_id, anonymous, address, listener
//!
//! [[rule]]
//! allow = "publish"
//! topic = "sensors/${clientid}/#"
//! qos = [0, 1]
//! retain = false
//! ```

use broker::ListenerId;
use broker::access_rules::acl_rules::{AclRule, NamePattern, TopicPattern, UserGroups};
use config::nearest::nearest_word;
use config::source::{LineErrors, TomlReader, TomlValue};
use std::collections::HashMap;
use toml::de::{DeTable, DeValue};

pub(super) fn read(
    source: &str,
    ports: &[Option<u16>],
) -> Result<(Vec<AclRule>, UserGroups), LineErrors> {
    TomlReader::read(source, |reader, document| {
        let mut file = AclFileParser { reader, ports, groups: HashMap::new() };
        if let Some(groups) = document.get("groups") {
            file.read_groups(groups);
        }
        let mut rules = Vec::new();
        for (key, value) in document {
            match key.get_ref().as_ref() {
                "groups" => {}
                "rule" => rules = file.read_rules(value),
                other => {
                    let why = format!("{other:?} is nothing here, use [groups] and [[rule]]");
                    file.reader.report_error(key.span().start, why);
                }
            }
        }
        let mut members = UserGroups::default();
        for (group, users) in &file.groups {
            for user in users {
                members.entry(user.as_str().into()).or_default().push(group.as_str().into());
            }
        }
        (rules, members)
    })
}

struct AclFileParser<'a, 'b> {
    reader: &'a mut TomlReader<'b>,
    ports: &'a [Option<u16>],
    groups: HashMap<String, Vec<String>>,
}

const KEYS: [&str; 12] = [
    "address",
    "allow",
    "anonymous",
    "client_id",
    "deny",
    "filter",
    "group",
    "listener",
    "qos",
    "retain",
    "topic",
    "user",
];

impl AclFileParser<'_, '_> {
    fn read_groups(&mut self, groups: &TomlValue<'_>) {
        let DeValue::Table(table) = groups.get_ref() else {
            let at = groups.span().start;
            return self.reader.report_error(at, "use [groups] and under it NAME = [USERS]");
        };
        for (name, users) in table {
            let users = self.reader.read_texts(users, "a list of users");
            self.groups.insert(name.get_ref().to_string(), users);
        }
    }

    fn read_rules(&mut self, rules: &TomlValue<'_>) -> Vec<AclRule> {
        let DeValue::Array(rules) = rules.get_ref() else {
            self.reader.report_error(rules.span().start, "a rule begins with [[rule]]");
            return Vec::new();
        };
        let mut all = Vec::new();
        for rule in rules {
            match rule.get_ref() {
                DeValue::Table(table) => self.read_rule(rule.span().start, table, &mut all),
                _ => self.reader.report_error(rule.span().start, "a rule begins with [[rule]]"),
            }
        }
        all
    }

    /// Reads a rule. A group of the file stands for its users, and a group from a backend for
    /// itself, so a rule for groups becomes two consecutive rules.
    fn read_rule(&mut self, at: usize, table: &DeTable<'_>, all: &mut Vec<AclRule>) {
        let (mut rule, mut action, mut members) = (AclRule::default(), None, Vec::new());
        for (key, value) in table {
            let at = key.span().start;
            match key.get_ref().as_ref() {
                name @ ("allow" | "deny") => {
                    if action.is_some() {
                        self.reader.report_error(at, "allow and deny exclude each other, use one");
                    }
                    rule.allows = name == "allow";
                    action = Some(value);
                }
                "address" => rule.addresses = super::read_networks(self.reader, value),
                "anonymous" => rule.anonymous_only = self.read_bool(value),
                "client_id" => rule.client_ids = self.read_names(value),
                "group" => {
                    for group in self.reader.read_texts(value, "groups") {
                        members.extend(self.groups.get(&group).cloned().unwrap_or_default());
                        rule.groups.push(group.into());
                    }
                }
                "listener" => rule.listeners = self.read_listeners(value),
                "qos" => rule.qos = self.read_qos_set(value),
                "retain" => rule.retain = Some(self.read_bool(value)),
                "filter" => self.read_patterns(value, TopicPattern::exactly, &mut rule),
                "topic" => self.read_patterns(value, TopicPattern::parse, &mut rule),
                "user" => rule.users = self.read_names(value),
                other => {
                    let meant = nearest_word(other, KEYS.into_iter());
                    let meant = meant.unwrap_or("one of the others");
                    self.reader
                        .report_error(at, format!("a rule has no {other}, did you mean {meant}?"));
                }
            }
        }
        self.read_action(at, action, &mut rule);
        if !rule.groups.is_empty() && !rule.users.is_empty() {
            self.reader.report_error(at, "user and group exclude each other, use two rules");
        }
        if rule.anonymous_only && !(rule.groups.is_empty() && rule.users.is_empty()) {
            self.reader
                .report_error(at, "a client without a name is not a user and not in a group");
        }
        if rule.retain.is_some() && rule.subscribe {
            self.reader
                .report_error(at, "retain is about publishing: use allow or deny = \"publish\"");
        }
        if !members.is_empty() {
            let users =
                members.iter().map(|name| NamePattern::Exactly(name.as_str().into())).collect();
            all.push(AclRule { users, groups: Vec::new(), ..rule.clone() });
        }
        all.push(rule);
    }

    fn read_patterns(
        &mut self,
        value: &TomlValue<'_>,
        parse: fn(&str) -> Result<TopicPattern, String>,
        rule: &mut AclRule,
    ) {
        for text in self.reader.read_texts(value, "topic filters") {
            match parse(&text) {
                Ok(pattern) => rule.topics.push(pattern),
                Err(why) => self.reader.report_error(value.span().start, why),
            }
        }
    }

    fn read_action(&mut self, at: usize, action: Option<&TomlValue<'_>>, rule: &mut AclRule) {
        let Some(action) = action else {
            return self.reader.report_error(at, "the rule says neither allow nor deny");
        };
        match action.get_ref() {
            DeValue::String(text) if text == "all" => {}
            DeValue::String(text) if text == "publish" => rule.subscribe = false,
            DeValue::String(text) if text == "subscribe" => rule.publish = false,
            _ => {
                let why = "no such deed, use \"publish\", \"subscribe\" or \"all\"";
                self.reader.report_error(action.span().start, why);
            }
        }
    }

    fn read_bool(&mut self, value: &TomlValue<'_>) -> bool {
        let DeValue::Boolean(yes) = value.get_ref() else {
            self.reader.report_error(value.span().start, "use true or false");
            return false;
        };
        *yes
    }

    fn read_names(&mut self, value: &TomlValue<'_>) -> Vec<NamePattern> {
        self.reader.read_texts(value, "names").iter().map(|name| NamePattern::parse(name)).collect()
    }

    fn read_qos_set(&mut self, value: &TomlValue<'_>) -> u8 {
        let mut all = 0;
        for (at, number) in self.read_numbers(value) {
            match number {
                Some(qos @ 0..=2) => all |= 1 << qos,
                _ => self.reader.report_error(at, "a QoS is 0, 1 or 2"),
            }
        }
        all
    }

    fn read_listeners(&mut self, value: &TomlValue<'_>) -> Vec<ListenerId> {
        let mut all = Vec::new();
        for (at, number) in self.read_numbers(value) {
            let is_meant = |port: u16| Some(u64::from(port)) == number;
            let with = (0..).zip(self.ports).filter(|(_, port)| port.is_some_and(is_meant));
            let with: Vec<ListenerId> = with.map(|(listener, _)| ListenerId(listener)).collect();
            if with.is_empty() {
                let ports: Vec<String> = self.ports.iter().flatten().map(u16::to_string).collect();
                let ports = ports.join(", ");
                self.reader
                    .report_error(at, format!("no listener has this port, use one of {ports}"));
            }
            all.extend(with);
        }
        all
    }

    /// Reads a number or a list of numbers, each with its position.
    fn read_numbers(&self, value: &TomlValue<'_>) -> Vec<(usize, Option<u64>)> {
        let one = |value: &TomlValue<'_>| match value.get_ref() {
            DeValue::Integer(number) => {
                (value.span().start, u64::from_str_radix(number.as_str(), number.radix()).ok())
            }
            _ => (value.span().start, None),
        };
        match value.get_ref() {
            DeValue::Array(many) => many.iter().map(one).collect(),
            _ => vec![one(value)],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrongs(source: &str) -> Vec<String> {
        let wrongs = read(source, &[Some(1883), None, Some(8883)]).unwrap_err();
        wrongs.iter().map(|(line, why)| format!("{line}: {why}")).collect()
    }

    #[test]
    fn the_example_above_is_read() {
        let example: String = include_str!("rules.rs")
            .lines()
            .skip_while(|line| *line != "//! ```toml")
            .skip(1)
            .take_while(|line| *line != "//! ```")
            .map(|line| format!("{}\n", line.trim_start_matches("//!").trim_start()))
            .collect();
        let (rules, members) = read(&example, &[Some(1883)]).unwrap();
        assert_eq!(members.get("ann"), Some(&vec!["operators".into()]));
        assert_eq!(rules.len(), 4);
        assert!(!rules[0].allows && !rules[0].publish && rules[0].subscribe);
        assert_eq!(rules[1].users, [NamePattern::parse("ann"), NamePattern::parse("bob")]);
        assert!(rules[1].groups.is_empty() && rules[2].users.is_empty());
        assert_eq!(rules[2].groups, ["operators".into()]);
        assert_eq!((rules[3].qos, rules[3].retain), (0b011, Some(false)));
    }

    #[test]
    fn a_filter_is_a_pattern_of_its_own() {
        let rules = read("[[rule]]\ndeny = \"subscribe\"\nfilter = [\"#\"]\ntopic = \"#\"", &[]);
        let topics = &rules.unwrap().0[0].topics;
        assert_eq!(topics.len(), 2);
        assert!(topics.contains(&TopicPattern::exactly("#").unwrap()), "{topics:?}");
        assert!(topics.contains(&TopicPattern::parse("#").unwrap()), "{topics:?}");
    }

    #[test]
    fn listeners_are_known_by_their_ports() {
        let ports = [Some(1883), Some(8883), None, Some(8883)];
        let rules = read("[[rule]]\nallow = \"all\"\nlistener = [8883]", &ports);
        assert_eq!(rules.unwrap().0[0].listeners, [ListenerId(1), ListenerId(3)]);
        assert!(read("", &[]).unwrap().0.is_empty());
    }

    #[test]
    fn every_error_has_its_line_and_what_would_be_right() {
        let source = "[[rule]]\nalow = \"all\"\n\n[[rule]]\nallow = \"pub\"\nqos = [1, 3]\n\
                      topic = [\"a/#/b\"]\n[[rule]]\ndeny = \"all\"\nretain = true\nuser = []\n\
                      address = \"10.0.0.0/40\"\nlistener = 1884\n[groups]\na = 1\n";
        assert_eq!(
            wrongs(source),
            [
                "15: use a list of users, as text in quotes or a list",
                "2: a rule has no alow, did you mean allow?",
                "1: the rule says neither allow nor deny",
                "6: a QoS is 0, 1 or 2",
                "7: \"a/#/b\" is not a topic filter, use one like \"a/+/c\" or \"a/#\"",
                "5: no such deed, use \"publish\", \"subscribe\" or \"all\"",
                "12: \"10.0.0.0/40\" is neither an address nor a network, \
                 use one like \"192.0.2.7\" or \
                 \"2001:db8::/32\"",
                "13: no listener has this port, use one of 1883, 8883",
                "11: use names, as text in quotes or a list",
                "8: retain is about publishing: use allow or deny = \"publish\"",
            ]
        );
        assert!(wrongs("[[rule]\n")[0].starts_with("1: not TOML"));
        assert_eq!(wrongs("[x]\n"), ["1: \"x\" is nothing here, use [groups] and [[rule]]"]);
    }
}
