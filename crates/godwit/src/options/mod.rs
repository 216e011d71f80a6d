//! Options: one table, three layers, one plan. A file is overruled by the environment, the
//! environment by flags; what no layer gives has the table's default.
//!
//! Invariant: a plan exists only if every layer was read without an error, and all errors are
//! reported together.

#[cfg(feature = "bridge")]
mod bridges;
pub(crate) mod checks;
pub(crate) mod environment;
pub(crate) mod file;
pub(crate) mod flags;
#[cfg(feature = "gateway")]
mod gateways;
pub(crate) mod imported;
pub(crate) mod links;
pub(crate) mod nearest;
pub(crate) mod rules;
pub(crate) mod settings;
#[cfg(feature = "sink")]
mod sinks;
pub(crate) mod table;
pub(crate) mod text;
pub(crate) mod topics;
pub(crate) mod value;

#[cfg(test)]
mod tests;

#[cfg(feature = "gateway")]
use crate::links::gateway::settings::GatewaySettings;
#[cfg(feature = "bridge")]
use crate::links::{bridge::settings::BridgeSettings, near};
#[cfg(feature = "sink")]
use crate::links::{events::fates, sink::settings::SinkSettings};
use crate::listen::ListenUrl;
use broker::classes::{Class, Headcount};
use settings::{ListenerSettings, OwnAccess, Settings};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use table::Row;
use value::Value;

/// Where the layers come from.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sources {
    pub(crate) config: Option<PathBuf>,
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) flags: Vec<flags::OptionFlag>,
}

/// Every value that differs in its origin from the table, by key.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    given: BTreeMap<&'static str, Given>,
    listeners: Vec<ListenerGiven>,
    groups: Vec<GroupGiven>,
    rules: Vec<rules::RuleGiven>,
    topics: topics::Topics,
    imported: Vec<(Origin, imported::ImportedListener)>,
    #[cfg(feature = "bridge")]
    bridges: Vec<bridges::BridgeGiven>,
    #[cfg(feature = "gateway")]
    gateways: Vec<gateways::GatewayGiven>,
    #[cfg(feature = "sink")]
    sinks: Vec<sinks::SinkGiven>,
}

/// A `[[listener]]`: its URL, and the options that it has for itself.
#[derive(Clone, Debug)]
pub(crate) struct ListenerGiven {
    pub(crate) url: String,
    pub(crate) origin: Origin,
    given: BTreeMap<&'static str, Given>,
}

/// A `[[group]]`: its name, and the limits that it has for itself.
#[derive(Clone, Debug)]
pub(crate) struct GroupGiven {
    pub(crate) name: String,
    pub(crate) origin: Origin,
    given: BTreeMap<&'static str, Given>,
    /// How many of it are here: the same number before and after a reload.
    present: Headcount,
}

impl GroupGiven {
    fn new(origin: Origin) -> GroupGiven {
        let (given, present) = (BTreeMap::new(), Headcount::default());
        GroupGiven { name: String::new(), origin, given, present }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Given {
    pub(crate) value: Value,
    pub(crate) origin: Origin,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Default,
    Environment(String),
    File { path: PathBuf, line: usize },
    Flag(String),
}

/// What is wrong, where, and what would be right.
#[derive(Clone, Debug)]
pub(crate) struct Wrong {
    pub(crate) origin: Origin,
    pub(crate) why: String,
}

/// The changes that a reload asks for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    pub(crate) live: Vec<&'static str>,
    pub(crate) restart: Vec<&'static str>,
}

impl Plan {
    /// Reads every layer, the weakest first.
    pub(crate) fn read(sources: &Sources) -> Result<Plan, Vec<Wrong>> {
        let mut plan = Plan::default();
        let mut wrongs = Vec::new();
        if let Some(path) = &sources.config {
            file::read(path, &mut plan, &mut wrongs);
        }
        environment::read(&sources.environment, &mut plan, &mut wrongs);
        flags::read(&sources.flags, &mut plan, &mut wrongs);
        if wrongs.is_empty() {
            checks::check(&plan, &mut wrongs);
        }
        if wrongs.is_empty() { Ok(plan) } else { Err(wrongs) }
    }

    pub(crate) fn value(&self, row: &Row) -> Value {
        self.given.get(row.key).map_or_else(|| row.default_value(), |given| given.value.clone())
    }

    pub(crate) fn origin(&self, key: &str) -> Origin {
        self.given.get(key).map_or(Origin::Default, |given| given.origin.clone())
    }

    pub(crate) fn settings(&self, memory_bytes: u64) -> Settings {
        let mut settings = Settings::new(memory_bytes);
        for row in table::rows() {
            (row.set)(&mut settings, &self.value(row));
        }
        settings.broker.rules = self.rules();
        self.topics.set(&mut settings.broker);
        settings.broker.classes = self.classes(&settings);
        settings.listeners = self.listeners(&settings);
        #[cfg(feature = "bridge")]
        {
            settings.bridges = self.bridges(&settings);
            settings.broker.noted.bridged = settings.bridges.iter().any(|own| own.detects_loops);
            let class = |own: &BridgeSettings| near::class(&own.link_id(), &own.limits);
            settings.broker.classes.extend(settings.bridges.iter().map(class));
        }
        #[cfg(feature = "gateway")]
        {
            settings.gateways = self.gateways(&settings);
            let class = |own: &GatewaySettings| near::class(&own.link_id(), &own.limits);
            settings.broker.classes.extend(settings.gateways.iter().map(class));
        }
        #[cfg(feature = "sink")]
        {
            settings.sinks = self.sinks(&settings);
            settings.broker.noted.fates = fates(&settings.sinks);
            let class = |own: &SinkSettings| near::class(&own.link_id(), &own.limits);
            settings.broker.classes.extend(settings.sinks.iter().map(class));
        }
        settings
    }

    /// Those of `listen`, whose default stands only where nothing else listens, and the others.
    fn listeners(&self, settings: &Settings) -> Vec<ListenerSettings> {
        let wanted = self.given.contains_key("listen") || self.listeners.is_empty();
        let urls = settings.listen.iter().filter(|_| wanted);
        let like_all = |url: &ListenUrl| {
            let (url, door) = (url.clone(), settings.door.clone());
            let (anonymous, security) = (settings.allow_anonymous, settings.security.clone());
            let own_access = OwnAccess::default();
            ListenerSettings { url, door, broker: None, anonymous, security, own_access }
        };
        let own = self.listeners.iter().map(|listener| {
            let mut own = overruled(settings, &listener.given);
            own.broker.classes = self.classes(&own);
            let url = ListenUrl::parse(&listener.url).expect("it was checked when it was read");
            let broker = (own.broker != settings.broker).then(|| own.broker.into());
            let Settings { allow_anonymous: anonymous, door, security, .. } = own;
            let has = |is_one: fn(&str) -> bool| listener.given.keys().any(|key| is_one(key));
            let own_access = OwnAccess {
                anonymous: has(|key| key == "allow_anonymous"),
                backends: has(|key| key.starts_with("auth.")),
                rules: has(|key| key.starts_with("acl.")),
            };
            ListenerSettings { url, door, broker, anonymous, security, own_access }
        });
        urls.map(like_all).chain(own).collect()
    }

    /// What each group has where `settings` go for everyone else.
    fn classes(&self, settings: &Settings) -> Vec<Class> {
        let mut settings = settings.clone();
        // A listener's connections are not a group's.
        settings.broker.connections_max = 0;
        settings.broker.connections_per_s = 0;
        let class = |group: &GroupGiven| Class {
            name: group.name.as_str().into(),
            options: overruled(&settings, &group.given).broker.into(),
            present: group.present.clone(),
        };
        self.groups.iter().map(class).collect()
    }

    /// Where a listener says an option for itself; else where it is said for all.
    pub(crate) fn origin_at(&self, at: usize, key: &str) -> Origin {
        let by_list = self.settings(1).listeners.len() - self.listeners.len();
        let own = at.checked_sub(by_list).and_then(|at| self.listeners.get(at));
        let given = own.and_then(|own| own.given.get(key));
        given.map_or_else(|| self.origin(key), |given| given.origin.clone())
    }

    /// Where a listener comes from, and each option behind it.
    pub(crate) fn listener_origin(&self, at: usize) -> Origin {
        let by_list = self.settings(1).listeners.len() - self.listeners.len();
        match at.checked_sub(by_list).and_then(|at| self.listeners.get(at)) {
            Some(own) => own.origin.clone(),
            None => self.origin("listen"),
        }
    }

    fn group_origin(&self, name: &str) -> Origin {
        let group = self.groups.iter().find(|group| group.name == name);
        group.map_or(Origin::Default, |group| group.origin.clone())
    }

    /// Tables of the file that have options of their own, and how many there are of each.
    pub(crate) fn tables(&self) -> Vec<(&'static str, usize)> {
        let topics = &self.topics;
        let mut tables = vec![
            ("listener", self.listeners.len()),
            ("group", self.groups.len()),
            ("rule", self.rules.len()),
            ("rewrite", topics.rewrites.len()),
            ("auto_subscribe", topics.autos.len()),
            ("preset", topics.presets.len()),
            ("cache", topics.caches.len()),
            ("imported", self.imported.len()),
        ];
        #[cfg(feature = "bridge")]
        tables.push(("bridge", self.bridges.len()));
        #[cfg(feature = "gateway")]
        tables.push(("gateway", self.gateways.len()));
        #[cfg(feature = "sink")]
        tables.push(("sink", self.sinks.len()));
        tables.retain(|(_, count)| *count > 0);
        tables
    }

    /// The rows whose value is not the default one, with where it comes from.
    pub(crate) fn changed(&self) -> impl Iterator<Item = (&'static Row, &Given)> {
        table::rows().filter_map(|row| {
            let given = self.given.get(row.key)?;
            (given.value != row.default_value()).then_some((row, given))
        })
    }

    /// Takes over what may change live from `next`, and says what may not.
    pub(crate) fn reload(&mut self, next: Plan) -> Changes {
        let mut changes = Changes::default();
        for row in table::rows().filter(|row| self.value(row) != next.value(row)) {
            if row.live {
                changes.live.push(row.key);
            } else {
                changes.restart.push(row.key);
            }
        }
        self.take_listeners(&next, &mut changes);
        let own = |plan: &Plan| -> Vec<_> {
            let values = |group: &GroupGiven| -> Vec<_> {
                group.given.iter().map(|(key, given)| (*key, given.value.clone())).collect()
            };
            plan.groups.iter().map(|group| (group.name.clone(), values(group))).collect()
        };
        if own(self) != own(&next) {
            changes.live.push("group");
        }
        let before = std::mem::replace(&mut self.groups, next.groups.clone());
        for group in &mut self.groups {
            if let Some(same) = before.iter().find(|same| same.name == group.name) {
                group.present = same.present.clone();
            }
        }
        if self.take_rules(&next) {
            changes.live.push("rule");
        }
        changes.live.extend(self.take_topics(&next));
        #[cfg(feature = "bridge")]
        {
            if self.bridges_differ(&next) {
                changes.live.push("bridge");
            }
            self.bridges = next.bridges.clone();
        }
        #[cfg(feature = "gateway")]
        {
            if self.gateways_differ(&next) {
                changes.live.push("gateway");
            }
            self.gateways = next.gateways.clone();
        }
        #[cfg(feature = "sink")]
        {
            if self.sinks_differ(&next) {
                changes.live.push("sink");
            }
            self.sinks = next.sinks.clone();
        }
        let fixed = |key: &&'static str| table::find(key).is_some_and(|row| !row.live);
        self.given.retain(|key, _| fixed(key));
        self.given.extend(next.given.into_iter().filter(|(key, _)| !fixed(key)));
        changes
    }

    /// Takes over the listeners of `next`, unless others listen, or what is fixed differs.
    fn take_listeners(&mut self, next: &Plan, changes: &mut Changes) {
        let bound = |plan: &Plan| -> Vec<(String, Vec<(&'static str, Value)>)> {
            let is_fixed = |key: &str| table::find(key).is_some_and(|row| !row.live);
            let fixed = |own: &ListenerGiven| -> Vec<(&'static str, Value)> {
                let all = own.given.iter().filter(|(key, _)| is_fixed(key));
                all.map(|(key, given)| (*key, given.value.clone())).collect()
            };
            plan.listeners.iter().map(|own| (own.url.clone(), fixed(own))).collect()
        };
        if bound(self) != bound(next) {
            changes.restart.push("listener");
        } else {
            let own = |plan: &Plan| -> Vec<_> {
                let values = plan.listeners.iter().flat_map(|own| &own.given);
                values.map(|(key, given)| (*key, given.value.clone())).collect()
            };
            if own(self) != own(next) {
                changes.live.push("listener");
            }
            self.listeners = next.listeners.clone();
        }
    }

    fn give(&mut self, row: &'static Row, value: Value, origin: Origin) {
        self.given.insert(row.key, Given { value, origin });
    }
}

/// With some rows in place of what stands for all.
fn overruled(settings: &Settings, given: &BTreeMap<&'static str, Given>) -> Settings {
    let mut own = settings.clone();
    for (key, given) in given {
        let row = table::find(key).expect("only rows are given");
        (row.set)(&mut own, &given.value);
    }
    own
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::Environment(name) => write!(f, "environment {name}"),
            Origin::File { path, line } => write!(f, "{}:{line}", path.display()),
            Origin::Flag(flag) => f.write_str(flag),
        }
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.origin, self.why)
    }
}

/// "x is no option", with the key that was probably meant.
fn unknown(key: &str) -> String {
    let last = key.rsplit('.').next().unwrap_or(key);
    let by_key = nearest::nearest(key, table::rows().map(|row| row.key));
    // Somebody who remembers the name but not its section.
    let by_name = || table::rows().find(|row| row.name() == last).map(|row| row.key);
    match by_key.or_else(by_name) {
        Some(meant) => format!("{key} is no option, did you mean {meant}?"),
        None => format!("{key} is no option, `godwit options` lists them all"),
    }
}
