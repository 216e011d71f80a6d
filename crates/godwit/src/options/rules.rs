//! Reads the tables `[[rule]]` of a configuration file.

use super::file::OptionFileReader;
use super::links::{LinkOptions, LinkTables, check_name};
use super::{OptionError, OptionOrigin, OptionPlan};
use broker::limits::LINK_IDS;
use broker::options::rule::{PublishAction, Rule, RuleActions, SendAction};
use config::row::{ANY, OptionRow, defaults};
use config::value::{NumberUnit, OptionKind, OptionValue};
use mqtt::QoS;
use std::num::NonZeroU32;
use std::sync::Arc;
use toml::de::DeTable;

/// A `[[rule]]` as written in the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RuleOptions {
    name: String,
    sql: String,
    drops: bool,
    prints: bool,
    publish: RuleMessageOptions,
    send_to: Vec<String>,
    send: RuleMessageOptions,
}

/// Options of the message that a `[[rule]]` makes of each row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct RuleMessageOptions {
    topic: String,
    payload: String,
    qos: Option<QoS>,
    retain: Option<bool>,
    keeps_properties: bool,
    expiry_s: Option<NonZeroU32>,
    user_properties: Vec<(String, String)>,
}

/// A [`Rule`] with the origin in the file.
#[derive(Clone, Debug)]
pub(crate) struct RuleDefinition {
    pub(crate) origin: OptionOrigin,
    pub(crate) rule: Rule,
}

const TEMPLATE: OptionKind = OptionKind::Text {
    of: "text with ${name} and the like",
    check: |text| rules::RowTemplate::parse(text).map(drop),
};
const LINKS: OptionKind = OptionKind::List {
    of: "links like sink/NAME",
    check: |text| match text.split_once('/') {
        Some(("bridge" | "gateway" | "sink", name)) if !name.is_empty() => Ok(()),
        _ => Err(format!("{text:?} is not a link, use bridge/NAME, gateway/NAME or sink/NAME")),
    },
};
const QOS: OptionKind = OptionKind::Choice(&["as_published", "0", "1", "2"]);
const EXPIRY_S: OptionKind = OptionKind::Number {
    min: 0,
    max: u32::MAX as u64,
    unit: NumberUnit::Named("seconds"),
    word: None,
};
const USER_PROPERTIES: OptionKind = OptionKind::Map {
    of: "NAME",
    value: "TEMPLATE",
    check: |name, text| match name.is_empty() || name.contains('\0') {
        true => Err("a User Property needs a name".to_string()),
        false => rules::RowTemplate::parse(text).map(drop),
    },
};

pub(crate) const ROWS: &[OptionRow<RuleOptions>] = &[
    OptionRow {
        key: "name",
        kind: ANY,
        default: "",
        live: true,
        also_for: &[],
        short: "what the rule is called: in logs and in `$SYS/broker/rule/`",
        long: "",
        source: "",
        set: |rule, value| rule.name = value.text().into(),
    },
    OptionRow {
        key: "sql",
        kind: ANY,
        default: "",
        live: true,
        also_for: &[],
        short: "what it looks at, when, and what comes out: see rules.md",
        long: "A rule sees each message that a client publishes or leaves as its will, once, with \
               its whole topic name (that of a client in a namespace with the namespace in front), \
               and what other rules publish. It sees events that it names: see rules.md.",
        source: "",
        set: |rule, value| rule.sql = value.text().into(),
    },
    OptionRow {
        key: "drop",
        kind: OptionKind::Bool,
        default: "false",
        live: true,
        also_for: &[],
        short: "whether a message of which there is a row goes nowhere else",
        long: "It is not retained and reaches no subscriber; its publisher hears that it was \
               taken. Other rules see it all the same. A rule that fails on a message, as on one \
               whose payload takes more steps than a run may, lets it through.",
        source: "",
        set: |rule, value| rule.drops = value.bool(),
    },
    OptionRow {
        key: "print",
        kind: OptionKind::Bool,
        default: "false",
        live: true,
        also_for: &[],
        short: "whether each row is a line of the log, at most 20 a second of all rules",
        long: "",
        source: "",
        set: |rule, value| rule.prints = value.bool(),
    },
    OptionRow {
        key: "publish.topic",
        kind: TEMPLATE,
        default: "",
        live: true,
        also_for: &[],
        short: "where each row is published: `alarms/${room}`",
        long: "Sinks, bridges and clients that subscribe there get it. A row that has not all of \
               it, and what is no topic name, is not published and counted (`failed/topic`). A \
               rule does not see what it published itself, and what comes of rules that go on \
               from each other ends after eight of them (`failed/loop`).",
        source: "",
        set: |rule, value| rule.publish.topic = value.text().into(),
    },
    OptionRow {
        key: "publish.payload",
        kind: TEMPLATE,
        default: "${.}",
        live: true,
        also_for: &[],
        short: "with which payload; `${.}` is the row as JSON",
        long: "What the row does not have is `null`.",
        source: "",
        set: |rule, value| rule.publish.payload = value.text().into(),
    },
    OptionRow {
        key: "publish.qos",
        kind: QOS,
        default: "as_published",
        live: true,
        also_for: &[],
        short: "at which QoS; `as_published` is that of the message",
        long: "",
        source: "MQTT 5.0, 4.3",
        set: |rule, value| rule.publish.qos = qos(value),
    },
    OptionRow {
        key: "publish.retain",
        kind: OptionKind::Choice(&["false", "true", "as_published"]),
        default: "false",
        live: true,
        also_for: &[],
        short: "whether it is retained; `as_published` is as the message",
        long: "",
        source: "MQTT 5.0, 3.3.1.3",
        set: |rule, value| {
            rule.publish.retain = match value.text() {
                "true" => Some(true),
                "false" => Some(false),
                _ => None,
            };
        },
    },
    OptionRow {
        key: "publish.properties",
        kind: OptionKind::Choice(&["none", "keep"]),
        default: "none",
        live: true,
        also_for: &[],
        short: "whether it has the properties of the message, and expires when that does",
        long: "",
        source: "MQTT 5.0, 3.3.2.3",
        set: |rule, value| rule.publish.keeps_properties = value.text() == "keep",
    },
    OptionRow {
        key: "publish.expiry_s",
        kind: EXPIRY_S,
        default: "0",
        live: true,
        also_for: &[],
        short: "after how long it expires; 0 is when `publish.properties` says",
        long: "One that is longer than `message.expiry_s_max` is shortened to that.",
        source: "MQTT 5.0, 3.3.2.3.3",
        set: |rule, value| rule.publish.expiry_s = NonZeroU32::new(value.u32()),
    },
    OptionRow {
        key: "publish.user_properties",
        kind: USER_PROPERTIES,
        default: "",
        live: true,
        also_for: &[],
        short: "User Properties that it has beside these",
        long: "",
        source: "MQTT 5.0, 3.3.2.3.7",
        set: |rule, value| rule.publish.user_properties = value.map().to_vec(),
    },
    OptionRow {
        key: "send.to",
        kind: LINKS,
        default: "",
        live: true,
        also_for: &[],
        short: "links to which each row goes: [\"sink/history\", \"bridge/cloud\"]",
        long: "Also gateways. A row is a message in the link's own queue, which no client, no \
               other rule and no other link sees; filters and maps are not asked. It waits \
               there, and survives, like what the link subscribes to. What a link that is just \
               being made does not take yet is counted (`failed/link`).",
        source: "",
        set: |rule, value| rule.send_to = value.list().to_vec(),
    },
    OptionRow {
        key: "send.topic",
        kind: TEMPLATE,
        default: "",
        live: true,
        also_for: &[],
        short: "what it is called there; empty is the message's topic, or the event's name",
        long: "Of a window that is the rule's name. A bridge and a gateway call it so on the other \
               side, a sink's `${topic}` is this.",
        source: "",
        set: |rule, value| rule.send.topic = value.text().into(),
    },
    OptionRow {
        key: "send.payload",
        kind: TEMPLATE,
        default: "${.}",
        live: true,
        also_for: &[],
        short: "with which payload; `${.}` is the row as JSON",
        long: "So that a sink finds the row's columns as `${payload.NAME}`.",
        source: "",
        set: |rule, value| rule.send.payload = value.text().into(),
    },
    OptionRow {
        key: "send.qos",
        kind: QOS,
        default: "as_published",
        live: true,
        also_for: &[],
        short: "at which QoS; `as_published` is that of the message",
        long: "Events without a message and windows have 0: what is to wait for a link that is \
               away needs 1 or 2.",
        source: "MQTT 5.0, 4.3",
        set: |rule, value| rule.send.qos = qos(value),
    },
    OptionRow {
        key: "send.properties",
        kind: OptionKind::Choice(&["none", "keep"]),
        default: "none",
        live: true,
        also_for: &[],
        short: "whether it has the properties of the message, and expires when that does",
        long: "",
        source: "MQTT 5.0, 3.3.2.3",
        set: |rule, value| rule.send.keeps_properties = value.text() == "keep",
    },
    OptionRow {
        key: "send.expiry_s",
        kind: EXPIRY_S,
        default: "0",
        live: true,
        also_for: &[],
        short: "after how long it expires; 0 is when `send.properties` says",
        long: "One that is longer than `message.expiry_s_max` is shortened to that.",
        source: "MQTT 5.0, 3.3.2.3.3",
        set: |rule, value| rule.send.expiry_s = NonZeroU32::new(value.u32()),
    },
    OptionRow {
        key: "send.user_properties",
        kind: USER_PROPERTIES,
        default: "",
        live: true,
        also_for: &[],
        short: "User Properties that it has beside these",
        long: "",
        source: "MQTT 5.0, 3.3.2.3.7",
        set: |rule, value| rule.send.user_properties = value.map().to_vec(),
    },
];

fn qos(value: &OptionValue) -> Option<QoS> {
    match value.text() {
        "0" => Some(QoS::AtMostOnce),
        "1" => Some(QoS::AtLeastOnce),
        "2" => Some(QoS::ExactlyOnce),
        _ => None,
    }
}

/// Largest number of `[[rule]]` tables, above any realistic number.
const RULES_MAX: usize = 4096;

impl OptionFileReader<'_> {
    pub(super) fn read_rule(&mut self, at: usize, table: &DeTable<'_>) {
        let mut own = LinkOptions::new(self.origin(at), ROWS);
        let tables = LinkTables { rows: ROWS, scope: None };
        for (name, value) in table {
            self.read_link_option(&mut own, &tables, name.get_ref(), name.span().start, value);
        }
        let others = self.plan.rules.iter().map(|other| &*other.rule.name);
        if let Some(why) = check_name("rule", &own.settings.name, others) {
            return self.report_error(at, why);
        }
        if self.plan.rules.len() == RULES_MAX {
            return self.report_error(at, format!("there is room for {RULES_MAX} rules"));
        }
        match own.settings.build_rule() {
            Err(why) => self.report_error(at, why),
            Ok(rule) => self.plan.rules.push(RuleDefinition { origin: own.origin, rule }),
        }
    }
}

impl RuleOptions {
    /// Builds the [`Rule`]; the error is about several options together.
    fn build_rule(&self) -> Result<Rule, String> {
        if self.sql.is_empty() {
            return Err("a rule needs sql = 'SELECT * FROM \"a/#\"'".to_string());
        }
        let plan = rules::RulePlan::parse(&self.sql)
            .map_err(|refused| format!("sql, line {}", refused.show(&self.sql)))?
            .with_rule_id(&self.name);
        if self.drops && plan.topics().next().is_none() {
            return Err("drop is for messages: sql has no topic filter in FROM".to_string());
        }
        if self.drops && plan.window().is_some() {
            return Err("drop is for messages, and a window is over long after them".to_string());
        }
        let plain: RuleOptions = defaults(ROWS);
        let is_said = |own: &RuleMessageOptions, plain: &RuleMessageOptions| {
            let topic = own.topic.clone();
            *own != RuleMessageOptions { topic, ..plain.clone() }
        };
        let publishes = match self.publish.topic.is_empty() {
            true if is_said(&self.publish, &plain.publish) => {
                return Err("publish.topic says where it is published, and is missing".to_string());
            }
            true => None,
            false => Some(self.publish.build_publish()?),
        };
        let sends = match self.send_to.is_empty() {
            true if self.send != plain.send => {
                return Err("send.to says which links it is for, and is missing".to_string());
            }
            true => None,
            false => Some(self.build_send()?),
        };
        let acts = RuleActions {
            drops_message: self.drops,
            logs_rows: self.prints,
            publish: publishes,
            send: sends,
        };
        if acts == RuleActions::default() {
            let why = "a rule does something: give it publish.topic, send.to, drop or print";
            return Err(why.to_string());
        }
        let (name, text) = (self.name.as_str().into(), self.sql.as_str().into());
        Ok(Rule { name, text, plan: plan.into(), actions: acts, metrics: Arc::default() })
    }

    fn build_send(&self) -> Result<SendAction, String> {
        let mut to: Vec<Box<str>> = Vec::new();
        for link in &self.send_to {
            let id = format!("{LINK_IDS}{link}").into();
            if to.contains(&id) {
                return Err(format!("send.to names {link} twice: each row goes there once"));
            }
            to.push(id);
        }
        Ok(SendAction { to, message: self.send.build_publish()? })
    }
}

impl RuleMessageOptions {
    fn build_publish(&self) -> Result<PublishAction, String> {
        let template = |text: &str| rules::RowTemplate::parse(text);
        let named = |(name, text): &(String, String)| Ok((name.as_str().into(), template(text)?));
        Ok(PublishAction {
            topic: (!self.topic.is_empty()).then(|| template(&self.topic)).transpose()?,
            payload: template(&self.payload)?,
            qos: self.qos,
            retain: self.retain,
            keeps_properties: self.keeps_properties,
            expiry_s: self.expiry_s,
            user_properties: self
                .user_properties
                .iter()
                .map(named)
                .collect::<Result<_, String>>()?,
        })
    }
}

impl OptionPlan {
    pub(super) fn rules(&self) -> Arc<[Rule]> {
        self.rules.iter().map(|given| given.rule.clone()).collect()
    }

    /// Takes over the rules of `next`, with the metrics of rules of equal names. Returns whether
    /// the rules differ.
    pub(super) fn replace_rules(&mut self, next: &OptionPlan) -> bool {
        let before = std::mem::replace(&mut self.rules, next.rules.clone());
        for RuleDefinition { rule, .. } in &mut self.rules {
            if let Some(same) = before.iter().find(|same| same.rule.name == rule.name) {
                rule.metrics = same.rule.metrics.clone();
            }
        }
        let own = |all: &[RuleDefinition]| -> Vec<Rule> {
            all.iter().map(|given| given.rule.clone()).collect()
        };
        own(&before) != own(&self.rules)
    }

    /// Whether a rule sends to the link with the client identifier `link_id`.
    pub(super) fn is_sent_to(&self, link_id: &str) -> bool {
        let sends = self.rules.iter().filter_map(|given| given.rule.actions.send.as_ref());
        sends.flat_map(|sends| &sends.to).any(|to| **to == *link_id)
    }

    /// Checks that rules send only to existing links.
    pub(super) fn check_sends(&self, wrongs: &mut Vec<OptionError>) {
        let known = self.link_names();
        for RuleDefinition { origin, rule } in &self.rules {
            for to in rule.actions.send.iter().flat_map(|sends| &sends.to) {
                let name = to.strip_prefix(LINK_IDS).unwrap_or(to);
                if known.iter().any(|known| known == name) {
                    continue;
                }
                let meant = config::nearest::nearest_word(name, known.iter().map(String::as_str));
                let hint = match (meant, known.is_empty()) {
                    (Some(meant), _) => format!("did you mean {meant}?"),
                    (None, false) => format!("there are {}", known.join(", ")),
                    (None, true) => "there is none at all".to_string(),
                };
                let (origin, rule) = (origin.clone(), &rule.name);
                let why = format!("send.to of rule {rule}: no link is named {name}, {hint}");
                wrongs.push(OptionError { origin, why });
            }
        }
    }
}
