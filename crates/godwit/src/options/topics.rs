//! The tables `[[rewrite]]`, `[[auto_subscribe]]`, `[[preset]]` and `[[cache]]` of a file: topic
//! rewriting, subscriptions and sessions created for clients, and caches of messages.

use super::OptionPlan;
use super::file::OptionFileReader;
use super::links::{LinkOptions, LinkTables, check_name};
use broker::access_rules::acl_rules::AclAction;
use broker::limits::CACHE_ANSWER_MESSAGES_MAX;
use broker::options::auto_subscription::AutoSubscription;
use broker::options::cache_config::CacheConfig;
use broker::options::preset::PresetSession;
use broker::options::rewrite::TopicRewrite;
use config::row::{ANY, EXPIRY, OptionRow, TIB, bytes, count};
use config::value::{NumberUnit, OptionKind};
use mqtt::{QoS, SubscribeOptions};
use toml::de::DeTable;

const FILTER: OptionKind = OptionKind::Text {
    of: "topic filter",
    check: |text| {
        let why = |_| "no topic filter, use one like \"a/+/c\" or \"a/#\"".to_string();
        mqtt::topic::check_filter(text).map_err(why)
    },
};

/// A `[[rewrite]]` as written in the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RewriteSettings {
    action: Option<AclAction>,
    source: String,
    regex: String,
    dest: String,
}

pub(crate) const REWRITE: &[OptionRow<RewriteSettings>] = &[
    OptionRow {
        key: "action",
        kind: OptionKind::Choice(&["all", "publish", "subscribe"]),
        default: "all",
        live: true,
        also_for: &[],
        short: "what it goes for: topics of PUBLISH and wills, filters of SUBSCRIBE and \
                UNSUBSCRIBE, or both",
        long: "",
        source: "",
        set: |own, value| {
            own.action = match value.text() {
                "publish" => Some(AclAction::Publish),
                "subscribe" => Some(AclAction::Subscribe),
                _ => None,
            };
        },
    },
    OptionRow {
        key: "source",
        kind: FILTER,
        default: "#",
        live: true,
        also_for: &[],
        short: "which names it is about, as a topic filter",
        long: "A wildcard in a client's filter is taken as it stands: `a/#` matches the filter \
               `a/+`. `#` is not about names that begin with `$`.",
        source: "",
        set: |own, value| own.source = value.text().into(),
    },
    OptionRow {
        key: "regex",
        kind: ANY,
        default: "",
        live: true,
        also_for: &[],
        short: "the regular expression that a name must match somewhere: `^y/(.+)/z/(.+)$`",
        long: "Its time is linear in the name's length. Backslashes stand as they are between \
               single quotes.",
        source: "",
        set: |own, value| own.regex = value.text().into(),
    },
    OptionRow {
        key: "dest",
        kind: ANY,
        default: "",
        live: true,
        also_for: &[],
        short: "the name in its place: `y/z/$2`",
        long: "`$1` and so on are the groups of `regex`. `%c` or `${clientid}` is the client id, \
               `%u` or `${username}` the user name that was checked, `%h` or `${host}` the \
               address, `${cert_cn}` the common name of the certificate. What becomes no name, or \
               needs one that the client has not or that is no single level, is refused with 0x90 \
               (a topic) or 0x8F (a filter).",
        source: "",
        set: |own, value| own.dest = value.text().into(),
    },
];

/// An `[[auto_subscribe]]` as written in the file.
#[derive(Clone, Debug, Default)]
pub(crate) struct AutoSubscribeSettings {
    topic: String,
    options: SubscribeOptions,
}

const QOS: OptionKind = OptionKind::Choice(&["0", "1", "2"]);

fn qos(text: &str) -> QoS {
    match text {
        "1" => QoS::AtLeastOnce,
        "2" => QoS::ExactlyOnce,
        _ => QoS::AtMostOnce,
    }
}

pub(crate) const AUTO_SUBSCRIBE: &[OptionRow<AutoSubscribeSettings>] = &[
    OptionRow {
        key: "topic",
        kind: ANY,
        default: "",
        live: true,
        also_for: &[],
        short: "the topic filter: `clients/${clientid}/#`",
        long: "`%c` or `${clientid}` is the client id, `%u` or `${username}` the user name that \
               was checked, `%h` or `${host}` the address, `${cert_cn}` the common name of the \
               certificate. A client that has no such name, or one that is no single level, is \
               not subscribed.",
        source: "",
        set: |own, value| own.topic = value.text().into(),
    },
    OptionRow {
        key: "qos",
        kind: QOS,
        default: "0",
        live: true,
        also_for: &[],
        short: "the highest QoS that it is sent with",
        long: "",
        source: "MQTT 5.0, 3.8.3.1",
        set: |own, value| own.options.qos = qos(value.text()),
    },
    OptionRow {
        key: "no_local",
        kind: OptionKind::Bool,
        default: "false",
        live: true,
        also_for: &[],
        short: "whether what the client publishes itself does not come back to it",
        long: "",
        source: "MQTT 5.0, 3.8.3.1",
        set: |own, value| own.options.no_local = value.bool(),
    },
    OptionRow {
        key: "retain_as_published",
        kind: OptionKind::Bool,
        default: "false",
        live: true,
        also_for: &[],
        short: "whether RETAIN is as it was published",
        long: "",
        source: "MQTT 5.0, 3.8.3.1",
        set: |own, value| own.options.retain_as_published = value.bool(),
    },
    OptionRow {
        key: "retain_handling",
        kind: QOS,
        default: "0",
        live: true,
        also_for: &[],
        short: "retained messages: 0 at every CONNECT, 1 where the subscription is new, 2 none",
        long: "",
        source: "MQTT 5.0, 3.8.3.1",
        set: |own, value| own.options.retain_handling = qos(value.text()) as u8,
    },
];

/// A `[[preset]]` as written in the file.
#[derive(Clone, Debug, Default)]
pub(crate) struct PresetSettings {
    client_id: String,
    user: String,
    subscriptions: Vec<String>,
    qos: QoS,
    expiry_s: u32,
}

pub(crate) const PRESET: &[OptionRow<PresetSettings>] = &[
    OptionRow {
        key: "client_id",
        kind: ANY,
        default: "",
        live: true,
        also_for: &[],
        short: "whose session it is; of a client that is in no namespace",
        long: "",
        source: "",
        set: |own, value| own.client_id = value.text().into(),
    },
    OptionRow {
        key: "user",
        kind: ANY,
        default: "",
        live: true,
        also_for: &[],
        short: "the user name that its client must have shown to be its own; empty is anyone's",
        long: "Where clients are asked who they are. Somebody else with this client id gets a \
               session of his own, and the preset one ends.",
        source: "",
        set: |own, value| own.user = value.text().into(),
    },
    OptionRow {
        key: "subscriptions",
        kind: OptionKind::List { of: "FILTER", check: |text| FILTER.read_text(text).map(drop) },
        default: "",
        live: true,
        also_for: &[],
        short: "its topic filters: [\"commands/7/#\"]",
        long: "",
        source: "",
        set: |own, value| own.subscriptions = value.list().to_vec(),
    },
    OptionRow {
        key: "qos",
        kind: QOS,
        default: "1",
        live: true,
        also_for: &[],
        short: "the highest QoS that its messages are kept with",
        long: "",
        source: "MQTT 5.0, 3.8.3.1",
        set: |own, value| own.qos = qos(value.text()),
    },
    OptionRow {
        key: "expiry_s",
        kind: EXPIRY,
        default: "never",
        live: true,
        also_for: &[],
        short: "how long it waits for its client, from when it is made",
        long: "What the client's CONNECT says counts from then on.",
        source: "MQTT 5.0, 3.1.2.11.2",
        set: |own, value| own.expiry_s = value.u32(),
    },
];

/// A `[[cache]]` as written in the file.
#[derive(Clone, Debug, Default)]
pub(crate) struct CacheSettings {
    name: String,
    filters: Vec<String>,
    messages_max: u32,
    topics_max: u32,
    bytes_max: u64,
    age_s_max: u32,
}

pub(crate) const CACHE: &[OptionRow<CacheSettings>] = &[
    OptionRow {
        key: "name",
        kind: ANY,
        default: "",
        live: true,
        also_for: &[],
        short: "what the cache is called: it is read by `$cache/{name}`",
        long: "",
        source: "",
        set: |own, value| own.name = value.text().into(),
    },
    OptionRow {
        key: "filters",
        kind: OptionKind::List { of: "FILTER", check: |text| FILTER.read_text(text).map(drop) },
        default: "",
        live: true,
        also_for: &[],
        short: "the topic filters of what it keeps: [\"sensors/#\"]",
        long: "They go for whole names: those of a client in a namespace with the namespace in \
               front. Names that begin with `$` are in no cache.",
        source: "",
        set: |own, value| own.filters = value.list().to_vec(),
    },
    OptionRow {
        key: "messages_max",
        kind: count(1, CACHE_ANSWER_MESSAGES_MAX as u64, "messages"),
        default: "1",
        live: true,
        also_for: &[],
        short: "how many messages of each topic it keeps: the newest",
        long: "",
        source: "",
        set: |own, value| own.messages_max = value.u32(),
    },
    OptionRow {
        key: "topics_max",
        kind: count(1, u32::MAX as u64, "topics"),
        default: "100000",
        live: true,
        also_for: &[],
        short: "of how many topics it keeps messages",
        long: "With one more the topic goes that was written longest ago.",
        source: "",
        set: |own, value| own.topics_max = value.u32(),
    },
    OptionRow {
        key: "bytes_max",
        kind: bytes(1, TIB),
        default: "64MiB",
        live: true,
        also_for: &[],
        short: "most bytes of all that it keeps together",
        long: "A message counts with its topic, properties, payload and some 120 bytes, a topic \
               with its name and some 190 more. With more the topic goes that was written longest \
               ago. All of it is part of what `memory.bytes_max` bounds, and while that is \
               crowded no cache grows.",
        source: "",
        set: |own, value| own.bytes_max = value.number(),
    },
    OptionRow {
        key: "age_s_max",
        kind: OptionKind::Number {
            min: 1,
            max: u32::MAX as u64,
            unit: NumberUnit::Named("seconds"),
            word: Some(("never", u32::MAX as u64)),
        },
        default: "never",
        live: true,
        also_for: &[],
        short: "how old a message may become in it",
        long: "",
        source: "",
        set: |own, value| own.age_s_max = value.u32(),
    },
];

/// Largest number of rewrites, since each name is compared with all, and of subscriptions made at
/// CONNECT.
const REWRITES_MAX: usize = 256;
const AUTO_MAX: usize = 64;
const PRESETS_MAX: usize = 100_000;
/// Largest number of caches, since each topic is compared with the filters of all.
const CACHES_MAX: usize = 64;
const CACHE_FILTERS_MAX: usize = 64;

impl OptionFileReader<'_> {
    pub(super) fn read_rewrite(&mut self, at: usize, table: &DeTable<'_>) {
        let Some(RewriteSettings { action, source, regex, dest }) =
            self.read_settings(REWRITE, at, table)
        else {
            return;
        };
        let made = match regex.is_empty() || dest.is_empty() {
            true => Err("a rewrite needs regex = '^a/(.+)$' and dest = \"b/$1\"".to_string()),
            false => TopicRewrite::parse(action, &source, &regex, &dest),
        };
        match made {
            Err(why) => self.report_error(at, why),
            Ok(_) if self.plan.topics.rewrites.len() == REWRITES_MAX => {
                self.report_error(at, format!("there is room for {REWRITES_MAX} rewrites"));
            }
            Ok(made) => self.plan.topics.rewrites.push(made),
        }
    }

    pub(super) fn read_auto_subscribe(&mut self, at: usize, table: &DeTable<'_>) {
        let Some(AutoSubscribeSettings { topic, options }) =
            self.read_settings(AUTO_SUBSCRIBE, at, table)
        else {
            return;
        };
        match AutoSubscription::parse(&topic, options) {
            Err(why) => self.report_error(at, why),
            Ok(_) if self.plan.topics.autos.len() == AUTO_MAX => {
                self.report_error(at, format!("there is room for {AUTO_MAX} subscriptions"));
            }
            Ok(made) => self.plan.topics.autos.push(made),
        }
    }

    pub(super) fn read_preset(&mut self, at: usize, table: &DeTable<'_>) {
        let Some(own) = self.read_settings(PRESET, at, table) else { return };
        let PresetSettings { client_id, user, subscriptions, qos, expiry_s } = own;
        let user = Some(&*user).filter(|user| !user.is_empty());
        match PresetSession::parse(&client_id, user, &subscriptions, qos, expiry_s) {
            Err(why) => self.report_error(at, why),
            Ok(_) if !self.preset_ids.insert(client_id) => {
                self.report_error(at, "a preset of this client_id stands above".to_string());
            }
            Ok(_) if self.plan.topics.presets.len() == PRESETS_MAX => {
                self.report_error(at, format!("there is room for {PRESETS_MAX} presets"));
            }
            Ok(made) => self.plan.topics.presets.push(made),
        }
    }

    pub(super) fn read_cache(&mut self, at: usize, table: &DeTable<'_>) {
        let Some(own) = self.read_settings(CACHE, at, table) else { return };
        let others = self.plan.topics.caches.iter().map(|other| &*other.name);
        if let Some(why) = check_name("cache", &own.name, others) {
            return self.report_error(at, why);
        }
        let CacheSettings { name, filters, messages_max, topics_max, bytes_max, age_s_max } = own;
        match CacheConfig::parse(&name, &filters, messages_max, topics_max, bytes_max, age_s_max) {
            Err(why) => self.report_error(at, why),
            Ok(_) if filters.len() > CACHE_FILTERS_MAX => {
                self.report_error(at, format!("filters: there is room for {CACHE_FILTERS_MAX}"));
            }
            Ok(_) if self.plan.topics.caches.len() == CACHES_MAX => {
                self.report_error(at, format!("there is room for {CACHES_MAX} caches"));
            }
            Ok(made) => self.plan.topics.caches.push(made),
        }
    }

    /// Reads a table by its rows; `None` after an error, which is reported.
    pub(super) fn read_settings<S: Clone + Default>(
        &mut self,
        rows: &'static [OptionRow<S>],
        at: usize,
        table: &DeTable<'_>,
    ) -> Option<S> {
        let before = self.error_count();
        let mut own = LinkOptions::new(self.origin(at), rows);
        let tables = LinkTables { rows, scope: None };
        for (name, value) in table {
            self.read_link_option(&mut own, &tables, name.get_ref(), name.span().start, value);
        }
        (self.error_count() == before).then_some(own.settings)
    }
}

/// Lists about topics in a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TopicOptions {
    pub(super) rewrites: Vec<TopicRewrite>,
    pub(super) autos: Vec<AutoSubscription>,
    pub(super) presets: Vec<PresetSession>,
    pub(super) caches: Vec<CacheConfig>,
}

impl TopicOptions {
    pub(super) fn apply_to(&self, options: &mut broker::BrokerOptions) {
        options.rewrites = self.rewrites.as_slice().into();
        options.auto_subscriptions = self.autos.as_slice().into();
        options.presets = self.presets.as_slice().into();
        options.caches = self.caches.as_slice().into();
    }
}

impl OptionPlan {
    /// Takes over the topic lists of `next`, and returns the names of changed lists.
    pub(super) fn replace_topics(&mut self, next: &OptionPlan) -> Vec<&'static str> {
        let before = std::mem::replace(&mut self.topics, next.topics.clone());
        for cache in &mut self.topics.caches {
            if let Some(same) = before.caches.iter().find(|same| same.name == cache.name) {
                cache.metrics = same.metrics.clone();
            }
        }
        let mut changed = Vec::new();
        if before.rewrites != self.topics.rewrites {
            changed.push("rewrite");
        }
        if before.autos != self.topics.autos {
            changed.push("auto_subscribe");
        }
        if before.presets != self.topics.presets {
            changed.push("preset");
        }
        if before.caches != self.topics.caches {
            changed.push("cache");
        }
        changed
    }
}
