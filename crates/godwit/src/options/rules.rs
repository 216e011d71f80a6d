//! `[[rule]]` in a file.

use super::Plan;
use super::file::Reader;
use super::links::{LinkGiven, defaults, name_misfit};
use super::table::Row;
use super::value::Kind;
use broker::rules::{Acts, Publishing, Rule};
use mqtt::QoS;
use std::sync::Arc;
use toml::de::DeTable;

/// One as it stands in the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RuleSettings {
    name: String,
    sql: String,
    drops: bool,
    prints: bool,
    topic: String,
    payload: String,
    qos: Option<QoS>,
    retain: Option<bool>,
    keeps_properties: bool,
    user_properties: Vec<(String, String)>,
}

const ANY: Kind = Kind::Text { of: "text", check: |_| Ok(()) };
const TEMPLATE: Kind = Kind::Text {
    of: "text with ${name} and the like",
    check: |text| rules::Template::parse(text).map(drop),
};

pub(crate) const ROWS: &[Row<RuleSettings>] = &[
    Row {
        key: "name",
        kind: ANY,
        default: "",
        live: true,
        short: "what the rule is called: in logs and in `$SYS/broker/rule/`",
        long: "",
        source: "",
        set: |rule, value| rule.name = value.text().into(),
    },
    Row {
        key: "sql",
        kind: ANY,
        default: "",
        live: true,
        short: "what it looks at, when, and what comes out: see rules.md",
        long: "A rule sees each message that a client publishes or leaves as its will, once, with \
               its whole topic name (that of a client in a namespace with the namespace in front), \
               and what other rules publish. It sees events that it names: see rules.md.",
        source: "",
        set: |rule, value| rule.sql = value.text().into(),
    },
    Row {
        key: "drop",
        kind: Kind::Bool,
        default: "false",
        live: true,
        short: "whether a message of which there is a row goes nowhere else",
        long: "It is not retained and reaches no subscriber; its publisher hears that it was \
               taken. Other rules see it all the same. A rule that fails on a message, as on one \
               whose payload takes more steps than a run may, lets it through.",
        source: "",
        set: |rule, value| rule.drops = value.bool(),
    },
    Row {
        key: "print",
        kind: Kind::Bool,
        default: "false",
        live: true,
        short: "whether each row is a line of the log, at most 20 a second of all rules",
        long: "",
        source: "",
        set: |rule, value| rule.prints = value.bool(),
    },
    Row {
        key: "publish.topic",
        kind: TEMPLATE,
        default: "",
        live: true,
        short: "where each row is published: `alarms/${room}`",
        long: "Sinks, bridges and clients that subscribe there get it. A row that has not all of \
               it, and what is no topic name, is not published and counted (`failed/topic`). A \
               rule does not see what it published itself, and what comes of rules that go on \
               from each other ends after eight of them (`failed/loop`).",
        source: "",
        set: |rule, value| rule.topic = value.text().into(),
    },
    Row {
        key: "publish.payload",
        kind: TEMPLATE,
        default: "${.}",
        live: true,
        short: "with which payload; `${.}` is the row as JSON",
        long: "What the row does not have is `null`.",
        source: "",
        set: |rule, value| rule.payload = value.text().into(),
    },
    Row {
        key: "publish.qos",
        kind: Kind::Choice(&["as_published", "0", "1", "2"]),
        default: "as_published",
        live: true,
        short: "at which QoS; `as_published` is that of the message",
        long: "",
        source: "MQTT 5.0, 4.3",
        set: |rule, value| {
            rule.qos = match value.text() {
                "0" => Some(QoS::AtMostOnce),
                "1" => Some(QoS::AtLeastOnce),
                "2" => Some(QoS::ExactlyOnce),
                _ => None,
            };
        },
    },
    Row {
        key: "publish.retain",
        kind: Kind::Choice(&["false", "true", "as_published"]),
        default: "false",
        live: true,
        short: "whether it is retained; `as_published` is as the message",
        long: "",
        source: "MQTT 5.0, 3.3.1.3",
        set: |rule, value| {
            rule.retain = match value.text() {
                "true" => Some(true),
                "false" => Some(false),
                _ => None,
            };
        },
    },
    Row {
        key: "publish.properties",
        kind: Kind::Choice(&["none", "keep"]),
        default: "none",
        live: true,
        short: "whether it has the properties of the message, and expires when that does",
        long: "",
        source: "MQTT 5.0, 3.3.2.3",
        set: |rule, value| rule.keeps_properties = value.text() == "keep",
    },
    Row {
        key: "publish.user_properties",
        kind: Kind::Map {
            of: "NAME",
            value: "TEMPLATE",
            check: |name, text| match name.is_empty() || name.contains('\0') {
                true => Err("a User Property needs a name".to_string()),
                false => rules::Template::parse(text).map(drop),
            },
        },
        default: "",
        live: true,
        short: "User Properties that it has beside these",
        long: "",
        source: "MQTT 5.0, 3.3.2.3.7",
        set: |rule, value| rule.user_properties = value.map().to_vec(),
    },
];

/// Options of the broker that are lists of rules: so many is far more than anybody writes.
const RULES_MAX: usize = 4096;

impl Reader<'_> {
    pub(super) fn rule(&mut self, at: usize, table: &DeTable<'_>) {
        let mut own = LinkGiven::new(self.origin(at), ROWS);
        for (name, value) in table {
            self.link_option(&mut own, (ROWS, &[]), name.get_ref(), name.span().start, value);
        }
        let others = self.plan.rules.iter().map(|other| &*other.name);
        if let Some(why) = name_misfit("rule", &own.settings.name, others) {
            return self.wrong(at, why);
        }
        if self.plan.rules.len() == RULES_MAX {
            return self.wrong(at, format!("there is room for {RULES_MAX} rules"));
        }
        match own.settings.rule() {
            Err(why) => self.wrong(at, why),
            Ok(rule) => self.plan.rules.push(rule),
        }
    }
}

impl RuleSettings {
    /// Or what no row can see alone.
    fn rule(&self) -> Result<Rule, String> {
        if self.sql.is_empty() {
            return Err("a rule needs sql = 'SELECT * FROM \"a/#\"'".to_string());
        }
        let plan = rules::Plan::parse(&self.sql)
            .map_err(|refused| format!("sql, line {}", refused.show(&self.sql)))?;
        if self.drops && plan.topics().next().is_none() {
            return Err("drop is for messages: sql has no topic filter in FROM".to_string());
        }
        if self.drops && plan.window().is_some() {
            return Err("drop is for messages, and a window is over long after them".to_string());
        }
        let template = |text: &str| rules::Template::parse(text);
        let alone = RuleSettings { topic: self.topic.clone(), ..defaults(ROWS) };
        let publishing = |one: &RuleSettings| {
            let words = (one.payload.clone(), one.qos, one.retain, one.keeps_properties);
            (words, one.user_properties.clone())
        };
        let publishes = match self.topic.is_empty() {
            true if publishing(self) != publishing(&alone) => {
                return Err("publish.topic says where it is published, and is missing".to_string());
            }
            true => None,
            false => Some(Publishing {
                topic: template(&self.topic)?,
                payload: template(&self.payload)?,
                qos: self.qos,
                retain: self.retain,
                keeps_properties: self.keeps_properties,
                user_properties: self
                    .user_properties
                    .iter()
                    .map(|(name, text)| Ok((name.as_str().into(), template(text)?)))
                    .collect::<Result<_, String>>()?,
            }),
        };
        let acts = Acts { drops: self.drops, prints: self.prints, publishes };
        if acts == Acts::default() {
            return Err("a rule does something: give it publish.topic, drop or print".to_string());
        }
        let (name, text) = (self.name.as_str().into(), self.sql.as_str().into());
        Ok(Rule { name, text, plan: plan.into(), acts, tally: Arc::default() })
    }
}

impl Plan {
    /// Takes the rules of another plan. Says whether they are others.
    pub(super) fn take_rules(&mut self, next: &Plan) -> bool {
        let before = std::mem::replace(&mut self.rules, next.rules.clone());
        for rule in &mut self.rules {
            if let Some(same) = before.iter().find(|same| same.name == rule.name) {
                rule.tally = same.tally.clone();
            }
        }
        before != self.rules
    }
}
