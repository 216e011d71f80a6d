//! Options: one table, three layers, one plan. Flags take precedence over the environment, and the
//! environment over a file; the table has the defaults.
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
pub(crate) mod option_text;
pub(crate) mod rules;
pub(crate) mod settings;
#[cfg(feature = "sink")]
mod sinks;
pub(crate) mod table;
pub(crate) mod topics;

#[cfg(test)]
mod tests;

use auth::settings::ListenerAccessFlags;
use broker::access_rules::client_group_counter::ClientGroupCounter;
use broker::options::client_groups::ClientGroup;
use config::listen_url::ListenUrl;
use config::value::OptionValue;
use links::LINK_KINDS;
use settings::{ListenerSettings, ProgramSettings};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use table::ProgramOption;

/// Sources of the option layers.
#[derive(Clone, Debug, Default)]
pub(crate) struct OptionSources {
    pub(crate) config: Option<PathBuf>,
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) flags: Vec<flags::OptionFlag>,
}

/// Every option value from a layer, by key, and the tables of the file. Options without a value
/// have the default of their row.
#[derive(Clone, Debug, Default)]
pub(crate) struct OptionPlan {
    given: BTreeMap<&'static str, RawOption>,
    listeners: Vec<ListenerOptions>,
    groups: Vec<GroupOptions>,
    rules: Vec<rules::RuleDefinition>,
    topics: topics::TopicOptions,
    imported: Vec<(OptionOrigin, imported::ImportedListener)>,
    #[cfg(feature = "bridge")]
    bridges: Vec<bridges::BridgeOptions>,
    #[cfg(feature = "gateway")]
    gateways: Vec<gateways::GatewayOptions>,
    #[cfg(feature = "sink")]
    sinks: Vec<sinks::SinkOptions>,
}

/// A `[[listener]]`: the URL, and the options in `given`, which override the options for all.
#[derive(Clone, Debug)]
pub(crate) struct ListenerOptions {
    pub(crate) url: String,
    pub(crate) origin: OptionOrigin,
    given: BTreeMap<&'static str, RawOption>,
}

/// A `[[group]]`: the name, and the limits in `given`, which override the options for all.
#[derive(Clone, Debug)]
pub(crate) struct GroupOptions {
    pub(crate) name: String,
    pub(crate) origin: OptionOrigin,
    given: BTreeMap<&'static str, RawOption>,
    /// Counter of the group's connections, which a reload keeps.
    present: ClientGroupCounter,
}

impl GroupOptions {
    fn new(origin: OptionOrigin) -> GroupOptions {
        let (given, present) = (BTreeMap::new(), ClientGroupCounter::default());
        GroupOptions { name: String::new(), origin, given, present }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct RawOption {
    pub(crate) value: OptionValue,
    pub(crate) origin: OptionOrigin,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OptionOrigin {
    Default,
    Environment(String),
    File { path: PathBuf, line: usize },
    Flag(String),
}

/// An error of an option: `origin` and `why`, with the right form.
#[derive(Clone, Debug)]
pub(crate) struct OptionError {
    pub(crate) origin: OptionOrigin,
    pub(crate) why: String,
}

/// Changed options of a reload: `live` options are applied, `restart` options need a restart.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct OptionChanges {
    pub(crate) live: Vec<&'static str>,
    pub(crate) restart: Vec<&'static str>,
}

impl OptionPlan {
    /// Reads all layers, the lowest precedence first.
    pub(crate) fn read(sources: &OptionSources) -> Result<OptionPlan, Vec<OptionError>> {
        let mut plan = OptionPlan::default();
        let mut wrongs = Vec::new();
        if let Some(path) = &sources.config {
            file::read_file(path, &mut plan, &mut wrongs);
        }
        environment::read_environment(&sources.environment, &mut plan, &mut wrongs);
        flags::apply_flags(&sources.flags, &mut plan, &mut wrongs);
        if wrongs.is_empty() {
            checks::check_plan(&plan, &mut wrongs);
        }
        if wrongs.is_empty() { Ok(plan) } else { Err(wrongs) }
    }

    pub(crate) fn value(&self, row: &ProgramOption) -> OptionValue {
        self.given.get(row.key).map_or_else(|| row.default_value(), |given| given.value.clone())
    }

    pub(crate) fn origin(&self, key: &str) -> OptionOrigin {
        self.given.get(key).map_or(OptionOrigin::Default, |given| given.origin.clone())
    }

    pub(crate) fn settings(&self, memory_bytes: u64) -> ProgramSettings {
        let mut settings = ProgramSettings::new(memory_bytes);
        for row in table::rows() {
            (row.set)(&mut settings, &self.value(row));
        }
        settings.broker.rules = self.rules();
        self.topics.apply_to(&mut settings.broker);
        settings.broker.client_groups = self.client_groups(&settings);
        settings.listeners = self.listener_settings(&settings);
        LINK_KINDS.iter().for_each(|kind| (kind.add_settings)(self, &mut settings));
        settings
    }

    /// Returns the settings of `listen`, whose default applies only without other listeners, and of
    /// the other listeners.
    fn listener_settings(&self, settings: &ProgramSettings) -> Vec<ListenerSettings> {
        let wanted = self.given.contains_key("listen") || self.listeners.is_empty();
        let urls = settings.listen.iter().filter(|_| wanted);
        let like_all = |url: &ListenUrl| {
            let (url, transport) = (url.clone(), settings.transport.clone());
            let (anonymous, security) = (settings.allow_anonymous, settings.security.clone());
            let own_access = ListenerAccessFlags::default();
            ListenerSettings { url, transport, broker: None, anonymous, security, own_access }
        };
        let own = self.listeners.iter().map(|listener| {
            let mut own = override_settings(settings, &listener.given);
            own.broker.client_groups = self.client_groups(&own);
            let url = ListenUrl::parse(&listener.url).expect("it was checked when it was read");
            let broker = (own.broker != settings.broker).then(|| own.broker.into());
            let ProgramSettings { allow_anonymous: anonymous, transport, security, .. } = own;
            let has = |is_one: fn(&str) -> bool| listener.given.keys().any(|key| is_one(key));
            let own_access = ListenerAccessFlags {
                anonymous: has(|key| key == "allow_anonymous"),
                backends: has(|key| key.starts_with("auth.")),
                rules: has(|key| key.starts_with("acl.")),
            };
            ListenerSettings { url, transport, broker, anonymous, security, own_access }
        });
        urls.map(like_all).chain(own).collect()
    }

    /// Returns the options of each group, with `settings` for everything else.
    fn client_groups(&self, settings: &ProgramSettings) -> Vec<ClientGroup> {
        let mut settings = settings.clone();
        // Bounds of a listener's connections do not apply to groups.
        settings.broker.connections_max = 0;
        settings.broker.connections_per_s = 0;
        let class = |group: &GroupOptions| ClientGroup {
            name: group.name.as_str().into(),
            options: override_settings(&settings, &group.given).broker.into(),
            present: group.present.clone(),
        };
        self.groups.iter().map(class).collect()
    }

    /// Returns the origin of an option at a listener: of `[[listener]]`, or of the option for all.
    pub(crate) fn origin_at(&self, at: usize, key: &str) -> OptionOrigin {
        let by_list = self.settings(1).listeners.len() - self.listeners.len();
        let own = at.checked_sub(by_list).and_then(|at| self.listeners.get(at));
        let given = own.and_then(|own| own.given.get(key));
        given.map_or_else(|| self.origin(key), |given| given.origin.clone())
    }

    /// Returns the origin of a listener: of its `[[listener]]` table, or of `listen`.
    pub(crate) fn listener_origin(&self, at: usize) -> OptionOrigin {
        let by_list = self.settings(1).listeners.len() - self.listeners.len();
        match at.checked_sub(by_list).and_then(|at| self.listeners.get(at)) {
            Some(own) => own.origin.clone(),
            None => self.origin("listen"),
        }
    }

    fn group_origin(&self, name: &str) -> OptionOrigin {
        let group = self.groups.iter().find(|group| group.name == name);
        group.map_or(OptionOrigin::Default, |group| group.origin.clone())
    }

    /// Returns the number of tables of each kind in the file, such as `[[listener]]`.
    pub(crate) fn table_counts(&self) -> Vec<(&'static str, usize)> {
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
        tables.extend(LINK_KINDS.iter().map(|kind| (kind.name, (kind.names)(self).len())));
        tables.retain(|(_, count)| *count > 0);
        tables
    }

    /// Returns the rows whose value differs from the default, with the [`RawOption`].
    pub(crate) fn changed(&self) -> impl Iterator<Item = (&'static ProgramOption, &RawOption)> {
        table::rows().filter_map(|row| {
            let given = self.given.get(row.key)?;
            (given.value != row.default_value()).then_some((row, given))
        })
    }

    /// Takes over the live options of `next`, and returns which options changed and which need a
    /// restart.
    pub(crate) fn reload(&mut self, next: OptionPlan) -> OptionChanges {
        let mut changes = OptionChanges::default();
        for row in table::rows().filter(|row| self.value(row) != next.value(row)) {
            if row.live {
                changes.live.push(row.key);
            } else {
                changes.restart.push(row.key);
            }
        }
        self.take_listeners(&next, &mut changes);
        let own = |plan: &OptionPlan| -> Vec<_> {
            let values = |group: &GroupOptions| -> Vec<_> {
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
        if self.replace_rules(&next) {
            changes.live.push("rule");
        }
        changes.live.extend(self.replace_topics(&next));
        for kind in LINK_KINDS {
            if (kind.replace)(self, &next) {
                changes.live.push(kind.name);
            }
        }
        let fixed = |key: &&'static str| table::find(key).is_some_and(|row| !row.live);
        self.given.retain(|key, _| fixed(key));
        self.given.extend(next.given.into_iter().filter(|(key, _)| !fixed(key)));
        changes
    }

    /// Takes over the listeners of `next`, unless addresses or options that are not live differ.
    fn take_listeners(&mut self, next: &OptionPlan, changes: &mut OptionChanges) {
        let bound = |plan: &OptionPlan| -> Vec<(String, Vec<(&'static str, OptionValue)>)> {
            let is_fixed = |key: &str| table::find(key).is_some_and(|row| !row.live);
            let fixed = |own: &ListenerOptions| -> Vec<(&'static str, OptionValue)> {
                let all = own.given.iter().filter(|(key, _)| is_fixed(key));
                all.map(|(key, given)| (*key, given.value.clone())).collect()
            };
            plan.listeners.iter().map(|own| (own.url.clone(), fixed(own))).collect()
        };
        if bound(self) != bound(next) {
            changes.restart.push("listener");
        } else {
            let own = |plan: &OptionPlan| -> Vec<_> {
                let values = plan.listeners.iter().flat_map(|own| &own.given);
                values.map(|(key, given)| (*key, given.value.clone())).collect()
            };
            if own(self) != own(next) {
                changes.live.push("listener");
            }
            self.listeners = next.listeners.clone();
        }
    }

    fn set_value(&mut self, row: &'static ProgramOption, value: OptionValue, origin: OptionOrigin) {
        self.given.insert(row.key, RawOption { value, origin });
    }
}

/// Returns the settings with the values of `given` applied.
fn override_settings(
    settings: &ProgramSettings,
    given: &BTreeMap<&'static str, RawOption>,
) -> ProgramSettings {
    let mut own = settings.clone();
    for (key, given) in given {
        let row = table::find(key).expect("only rows are given");
        (row.set)(&mut own, &given.value);
    }
    own
}

impl fmt::Display for OptionOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OptionOrigin::Default => f.write_str("default"),
            OptionOrigin::Environment(name) => write!(f, "environment {name}"),
            OptionOrigin::File { path, line } => write!(f, "{}:{line}", path.display()),
            OptionOrigin::Flag(flag) => f.write_str(flag),
        }
    }
}

impl fmt::Display for OptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.origin, self.why)
    }
}

/// Returns the key of the option that the user probably meant, if any.
fn meant_option(key: &str) -> Option<&'static str> {
    let last = key.rsplit('.').next().unwrap_or(key);
    let by_key = config::nearest::nearest_word(key, table::rows().map(|row| row.key));
    // The name without its section may be given.
    let by_name = || table::rows().find(|row| row.name() == last).map(|row| row.key);
    by_key.or_else(by_name)
}

/// Returns the error text for an unknown key, with the key that was probably meant.
fn unknown_option(key: &str) -> String {
    match meant_option(key) {
        Some(meant) => format!("{key} is not an option, did you mean {meant}?"),
        None => format!("{key} is not an option, `godwit options` lists them all"),
    }
}
