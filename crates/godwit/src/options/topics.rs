//! `[[rewrite]]`, `[[auto_subscribe]]`, `[[preset]]` and `[[cache]]` in a file: what becomes of
//! names, what clients have without asking for it, and which messages are kept to be asked for.

use super::Plan;
use super::file::Reader;
use super::links::{LinkGiven, name_misfit};
use super::table::{EXPIRY, Row, TIB, bytes, count};
use super::value::{Kind, Unit};
use broker::ask::Action;
use broker::auto::Auto;
use broker::caches::Cache;
use broker::limits::CACHE_ANSWER_MESSAGES_MAX;
use broker::preset::Preset;
use broker::rewrite::Rewrite;
use mqtt::{QoS, SubscribeOptions};
use toml::de::DeTable;

const ANY: Kind = Kind::Text { of: "text", check: |_| Ok(()) };
const FILTER: Kind = Kind::Text {
    of: "topic filter",
    check: |text| {
        let why = |_| "no topic filter, use one like \"a/+/c\" or \"a/#\"".to_string();
        mqtt::topic::check_filter(text).map_err(why)
    },
};

/// A `[[rewrite]]` as it stands in the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RewriteSettings {
    action: Option<Action>,
    source: String,
    regex: String,
    dest: String,
}

pub(crate) const REWRITE: &[Row<RewriteSettings>] = &[
    Row {
        key: "action",
        kind: Kind::Choice(&["all", "publish", "subscribe"]),
        default: "all",
        live: true,
        short: "what it goes for: topics of PUBLISH and wills, filters of SUBSCRIBE and \
                UNSUBSCRIBE, or both",
        long: "",
        source: "",
        set: |own, value| {
            own.action = match value.text() {
                "publish" => Some(Action::Publish),
                "subscribe" => Some(Action::Subscribe),
                _ => None,
            };
        },
    },
    Row {
        key: "source",
        kind: FILTER,
        default: "#",
        live: true,
        short: "which names it is about, as a topic filter",
        long: "A wildcard in a client's filter is taken as it stands: `a/#` matches the filter \
               `a/+`. `#` is not about names that begin with `$`.",
        source: "",
        set: |own, value| own.source = value.text().into(),
    },
    Row {
        key: "regex",
        kind: ANY,
        default: "",
        live: true,
        short: "the regular expression that a name must match somewhere: `^y/(.+)/z/(.+)$`",
        long: "Its time is linear in the name's length. Backslashes stand as they are between \
               single quotes.",
        source: "",
        set: |own, value| own.regex = value.text().into(),
    },
    Row {
        key: "dest",
        kind: ANY,
        default: "",
        live: true,
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

/// An `[[auto_subscribe]]` as it stands in the file.
#[derive(Clone, Debug, Default)]
pub(crate) struct AutoSettings {
    topic: String,
    options: SubscribeOptions,
}

const QOS: Kind = Kind::Choice(&["0", "1", "2"]);

fn qos(text: &str) -> QoS {
    match text {
        "1" => QoS::AtLeastOnce,
        "2" => QoS::ExactlyOnce,
        _ => QoS::AtMostOnce,
    }
}

pub(crate) const AUTO_SUBSCRIBE: &[Row<AutoSettings>] = &[
    Row {
        key: "topic",
        kind: ANY,
        default: "",
        live: true,
        short: "the topic filter: `clients/${clientid}/#`",
        long: "`%c` or `${clientid}` is the client id, `%u` or `${username}` the user name that \
               was checked, `%h` or `${host}` the address, `${cert_cn}` the common name of the \
               certificate. A client that has no such name, or one that is no single level, is \
               not subscribed.",
        source: "",
        set: |own, value| own.topic = value.text().into(),
    },
    Row {
        key: "qos",
        kind: QOS,
        default: "0",
        live: true,
        short: "the highest QoS that it is sent with",
        long: "",
        source: "MQTT 5.0, 3.8.3.1",
        set: |own, value| own.options.qos = qos(value.text()),
    },
    Row {
        key: "no_local",
        kind: Kind::Bool,
        default: "false",
        live: true,
        short: "whether what the client publishes itself does not come back to it",
        long: "",
        source: "MQTT 5.0, 3.8.3.1",
        set: |own, value| own.options.no_local = value.bool(),
    },
    Row {
        key: "retain_as_published",
        kind: Kind::Bool,
        default: "false",
        live: true,
        short: "whether RETAIN is as it was published",
        long: "",
        source: "MQTT 5.0, 3.8.3.1",
        set: |own, value| own.options.retain_as_published = value.bool(),
    },
    Row {
        key: "retain_handling",
        kind: QOS,
        default: "0",
        live: true,
        short: "retained messages: 0 at every CONNECT, 1 where the subscription is new, 2 none",
        long: "",
        source: "MQTT 5.0, 3.8.3.1",
        set: |own, value| own.options.retain_handling = qos(value.text()) as u8,
    },
];

/// A `[[preset]]` as it stands in the file.
#[derive(Clone, Debug, Default)]
pub(crate) struct PresetSettings {
    client_id: String,
    user: String,
    subscriptions: Vec<String>,
    qos: QoS,
    expiry_s: u32,
}

pub(crate) const PRESET: &[Row<PresetSettings>] = &[
    Row {
        key: "client_id",
        kind: ANY,
        default: "",
        live: true,
        short: "whose session it is; of a client that is in no namespace",
        long: "",
        source: "",
        set: |own, value| own.client_id = value.text().into(),
    },
    Row {
        key: "user",
        kind: ANY,
        default: "",
        live: true,
        short: "the user name that its client must have shown to be its own; empty is anyone's",
        long: "Where clients are asked who they are. Somebody else with this client id gets a \
               session of his own, and the preset one ends.",
        source: "",
        set: |own, value| own.user = value.text().into(),
    },
    Row {
        key: "subscriptions",
        kind: Kind::List { of: "FILTER", check: |text| FILTER.read_text(text).map(drop) },
        default: "",
        live: true,
        short: "its topic filters: [\"commands/7/#\"]",
        long: "",
        source: "",
        set: |own, value| own.subscriptions = value.list().to_vec(),
    },
    Row {
        key: "qos",
        kind: QOS,
        default: "1",
        live: true,
        short: "the highest QoS that its messages are kept with",
        long: "",
        source: "MQTT 5.0, 3.8.3.1",
        set: |own, value| own.qos = qos(value.text()),
    },
    Row {
        key: "expiry_s",
        kind: EXPIRY,
        default: "never",
        live: true,
        short: "how long it waits for its client, from when it is made",
        long: "What the client's CONNECT says counts from then on.",
        source: "MQTT 5.0, 3.1.2.11.2",
        set: |own, value| own.expiry_s = value.u32(),
    },
];

/// A `[[cache]]` as it stands in the file.
#[derive(Clone, Debug, Default)]
pub(crate) struct CacheSettings {
    name: String,
    filters: Vec<String>,
    messages_max: u32,
    topics_max: u32,
    bytes_max: u64,
    age_s_max: u32,
}

pub(crate) const CACHE: &[Row<CacheSettings>] = &[
    Row {
        key: "name",
        kind: ANY,
        default: "",
        live: true,
        short: "what the cache is called: it is read by `$cache/{name}`",
        long: "",
        source: "",
        set: |own, value| own.name = value.text().into(),
    },
    Row {
        key: "filters",
        kind: Kind::List { of: "FILTER", check: |text| FILTER.read_text(text).map(drop) },
        default: "",
        live: true,
        short: "the topic filters of what it keeps: [\"sensors/#\"]",
        long: "They go for whole names: those of a client in a namespace with the namespace in \
               front. Names that begin with `$` are in no cache.",
        source: "",
        set: |own, value| own.filters = value.list().to_vec(),
    },
    Row {
        key: "messages_max",
        kind: count(1, CACHE_ANSWER_MESSAGES_MAX as u64, "messages"),
        default: "1",
        live: true,
        short: "how many messages of each topic it keeps: the newest",
        long: "",
        source: "",
        set: |own, value| own.messages_max = value.u32(),
    },
    Row {
        key: "topics_max",
        kind: count(1, u32::MAX as u64, "topics"),
        default: "100000",
        live: true,
        short: "of how many topics it keeps messages",
        long: "With one more the topic goes that was written longest ago.",
        source: "",
        set: |own, value| own.topics_max = value.u32(),
    },
    Row {
        key: "bytes_max",
        kind: bytes(1, TIB),
        default: "64MiB",
        live: true,
        short: "most bytes of all that it keeps together",
        long: "A message counts with its topic, properties, payload and some 120 bytes, a topic \
               with its name and some 190 more. With more the topic goes that was written longest \
               ago. All of it is part of what `memory.bytes_max` bounds, and while that is \
               crowded no cache grows.",
        source: "",
        set: |own, value| own.bytes_max = value.number(),
    },
    Row {
        key: "age_s_max",
        kind: Kind::Number {
            min: 1,
            max: u32::MAX as u64,
            unit: Unit::Of("seconds"),
            word: Some(("never", u32::MAX as u64)),
        },
        default: "never",
        live: true,
        short: "how old a message may become in it",
        long: "",
        source: "",
        set: |own, value| own.age_s_max = value.u32(),
    },
];

/// So many rewrites a name is compared with at most, and so many subscriptions a CONNECT makes.
const REWRITES_MAX: usize = 256;
const AUTO_MAX: usize = 64;
const PRESETS_MAX: usize = 100_000;
/// A topic is compared with the filters of all.
const CACHES_MAX: usize = 64;
const CACHE_FILTERS_MAX: usize = 64;

impl Reader<'_> {
    pub(super) fn rewrite(&mut self, at: usize, table: &DeTable<'_>) {
        let Some(RewriteSettings { action, source, regex, dest }) = self.own(REWRITE, at, table)
        else {
            return;
        };
        let made = match regex.is_empty() || dest.is_empty() {
            true => Err("a rewrite needs regex = '^a/(.+)$' and dest = \"b/$1\"".to_string()),
            false => Rewrite::parse(action, &source, &regex, &dest),
        };
        match made {
            Err(why) => self.wrong(at, why),
            Ok(_) if self.plan.topics.rewrites.len() == REWRITES_MAX => {
                self.wrong(at, format!("there is room for {REWRITES_MAX} rewrites"));
            }
            Ok(made) => self.plan.topics.rewrites.push(made),
        }
    }

    pub(super) fn auto_subscribe(&mut self, at: usize, table: &DeTable<'_>) {
        let Some(AutoSettings { topic, options }) = self.own(AUTO_SUBSCRIBE, at, table) else {
            return;
        };
        match Auto::parse(&topic, options) {
            Err(why) => self.wrong(at, why),
            Ok(_) if self.plan.topics.autos.len() == AUTO_MAX => {
                self.wrong(at, format!("there is room for {AUTO_MAX} subscriptions"));
            }
            Ok(made) => self.plan.topics.autos.push(made),
        }
    }

    pub(super) fn preset(&mut self, at: usize, table: &DeTable<'_>) {
        let Some(own) = self.own(PRESET, at, table) else { return };
        let PresetSettings { client_id, user, subscriptions, qos, expiry_s } = own;
        let user = Some(&*user).filter(|user| !user.is_empty());
        match Preset::parse(&client_id, user, &subscriptions, qos, expiry_s) {
            Err(why) => self.wrong(at, why),
            Ok(_) if !self.preset_ids.insert(client_id) => {
                self.wrong(at, "a preset of this client_id stands above".to_string());
            }
            Ok(_) if self.plan.topics.presets.len() == PRESETS_MAX => {
                self.wrong(at, format!("there is room for {PRESETS_MAX} presets"));
            }
            Ok(made) => self.plan.topics.presets.push(made),
        }
    }

    pub(super) fn cache(&mut self, at: usize, table: &DeTable<'_>) {
        let Some(own) = self.own(CACHE, at, table) else { return };
        let others = self.plan.topics.caches.iter().map(|other| &*other.name);
        if let Some(why) = name_misfit("cache", &own.name, others) {
            return self.wrong(at, why);
        }
        let CacheSettings { name, filters, messages_max, topics_max, bytes_max, age_s_max } = own;
        match Cache::parse(&name, &filters, messages_max, topics_max, bytes_max, age_s_max) {
            Err(why) => self.wrong(at, why),
            Ok(_) if filters.len() > CACHE_FILTERS_MAX => {
                self.wrong(at, format!("filters: there is room for {CACHE_FILTERS_MAX}"));
            }
            Ok(_) if self.plan.topics.caches.len() == CACHES_MAX => {
                self.wrong(at, format!("there is room for {CACHES_MAX} caches"));
            }
            Ok(made) => self.plan.topics.caches.push(made),
        }
    }

    /// None where one of its options is wrong, which is said.
    pub(super) fn own<S: Clone + Default>(
        &mut self,
        rows: &'static [Row<S>],
        at: usize,
        table: &DeTable<'_>,
    ) -> Option<S> {
        let before = self.wrongs();
        let mut own = LinkGiven::new(self.origin(at), rows);
        for (name, value) in table {
            self.link_option(&mut own, (rows, &[]), name.get_ref(), name.span().start, value);
        }
        (self.wrongs() == before).then_some(own.settings)
    }
}

/// What the lists of a file say of topics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Topics {
    pub(super) rewrites: Vec<Rewrite>,
    pub(super) autos: Vec<Auto>,
    pub(super) presets: Vec<Preset>,
    pub(super) caches: Vec<Cache>,
}

impl Topics {
    pub(super) fn set(&self, options: &mut broker::Options) {
        options.rewrites = self.rewrites.as_slice().into();
        options.autos = self.autos.as_slice().into();
        options.presets = self.presets.as_slice().into();
        options.caches = self.caches.as_slice().into();
    }
}

impl Plan {
    /// Takes what another plan says of topics. The lists that are others.
    pub(super) fn take_topics(&mut self, next: &Plan) -> Vec<&'static str> {
        let before = std::mem::replace(&mut self.topics, next.topics.clone());
        for cache in &mut self.topics.caches {
            if let Some(same) = before.caches.iter().find(|same| same.name == cache.name) {
                cache.tally = same.tally.clone();
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
