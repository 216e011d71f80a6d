//! The configuration to write: options with the line of their source, listeners, bridges, rules,
//! users, and a list of keys without an equivalent.

use super::auth_databases::AuthDatabases;
use super::bridge::DraftBridge;
use super::chain::AuthChains;
use super::config_tree::{ConfigEntry, ConfigFolder, SourceLocation};
use super::emqx::EmqxDataFlows;
use super::listener::{ClientRequirements, DraftListener};
use super::row::unknown_row;
use super::row::{ImportRow, ImportTarget, ImportValue, ValueReader};
use super::rules::{AclLanguage, DraftRule};
use super::table::mosquitto_access::ListenerScope;
use config::catalog::OptionCatalog;
use config::value::{NumberUnit, OptionKind, OptionValue};
use std::collections::BTreeSet;

/// A `key = value` of the written file.
#[derive(Clone, Debug)]
pub(super) struct DraftSetting {
    pub(super) key: &'static str,
    pub(super) value: OptionValue,
    pub(super) toml: String,
    /// Source of the value.
    pub(super) note: String,
    /// Why the value differs from the value in the source.
    pub(super) clamped: Option<String>,
}

impl DraftSetting {
    /// Whether this option authenticates clients by name.
    pub(super) fn proves_names(&self) -> bool {
        const BY: &[&str] = &[
            "auth.users",
            "auth.http_url",
            "auth.postgres_url",
            "auth.mysql_url",
            "auth.redis_url",
            "auth.jwt_keys",
        ];
        match self.key {
            "auth.certificate" => self.value.text() != "off",
            key => BY.contains(&key),
        }
    }
}

/// A key without an equivalent, and why.
#[derive(Clone, Debug)]
pub(super) struct UnsupportedKey {
    pub(super) place: SourceLocation,
    pub(super) key: String,
    pub(super) why: String,
}

pub(super) struct ConfigDraft {
    /// Options of the program for which the draft is written.
    pub(super) catalog: &'static OptionCatalog,
    pub(super) folder: ConfigFolder,
    pub(super) settings: Vec<DraftSetting>,
    pub(super) listeners: Vec<DraftListener>,
    pub(super) scope: ListenerScope,
    /// Requirements of the original for every client, at any listener.
    pub(super) demands: ClientRequirements,
    pub(super) bridges: Vec<DraftBridge>,
    /// Largest number of messages queued per bridge, with its source.
    pub(super) bridge_queue: Option<(ImportValue, String)>,
    pub(super) rules: Vec<DraftRule>,
    /// Whether a rule of NanoMQ's with `and` was read.
    pub(super) has_and_rule: bool,
    /// Decision where no rule applies, with its source.
    pub(super) no_match: Option<(bool, String)>,
    /// Version of EMQX's language of rules.
    pub(super) acl_language: AclLanguage,
    /// Setting by which the original assigns client identifiers, while clients choose them here.
    pub(super) free_client_ids: Option<String>,
    pub(super) users: Vec<DraftUser>,
    pub(super) tables: AuthDatabases,
    pub(super) wires: EmqxDataFlows,
    pub(super) chains: AuthChains,
    /// Setting by which the original authenticates every client.
    pub(super) credentials_note: Option<String>,
    /// Whether no client can connect before an operator adds users.
    pub(super) has_no_users: bool,
    /// Setting by which the original accepts user names without a password; such names do not count
    /// here.
    pub(super) unchecked_names: Option<String>,
    /// Token keys from the configuration itself.
    pub(super) token_key: Option<Vec<u8>>,
    /// Whether further files may be written next to the main file.
    pub(super) has_out: bool,
    /// Whether an unknown key is an error.
    pub(super) is_strict: bool,
    /// Files of rules or users that are named and do not exist.
    pub(super) lost: Vec<&'static str>,
    /// Files of EMQX 4's `load` that were read, and the module of its rules if named there.
    pub(super) loaded: Vec<&'static str>,
    /// Switches of the original that change the meaning of other keys, for example `bridge.sqlite`
    /// if disabled.
    pub(super) off: Vec<&'static str>,
    /// Default number of disconnections in the window before a ban; `None` if the original has no
    /// such bans.
    pub(super) flapping_count: Option<&'static str>,
    pub(super) missing: Vec<UnsupportedKey>,
    /// Notes on missing equivalents without a key of their own.
    pub(super) notes: Vec<String>,
    pub(super) wrongs: Vec<String>,
    /// Keys of the rows that matched an entry.
    pub(super) hit: BTreeSet<&'static str>,
}

/// A user whose password is in plain text in the original.
#[derive(Clone, Default)]
pub(super) struct DraftUser {
    pub(super) at: String,
    pub(super) name: String,
    pub(super) password: String,
}

impl ConfigDraft {
    pub(super) fn new(catalog: &'static OptionCatalog, folder: ConfigFolder) -> ConfigDraft {
        ConfigDraft {
            catalog,
            folder,
            settings: Vec::new(),
            listeners: Vec::new(),
            scope: ListenerScope::default(),
            demands: ClientRequirements::default(),
            bridges: Vec::new(),
            bridge_queue: None,
            rules: Vec::new(),
            has_and_rule: false,
            no_match: None,
            acl_language: AclLanguage::Version5,
            free_client_ids: None,
            users: Vec::new(),
            tables: AuthDatabases::default(),
            wires: EmqxDataFlows::default(),
            chains: AuthChains::default(),
            credentials_note: None,
            has_no_users: false,
            unchecked_names: None,
            token_key: None,
            has_out: true,
            is_strict: false,
            lost: Vec::new(),
            loaded: Vec::new(),
            off: Vec::new(),
            flapping_count: None,
            missing: Vec::new(),
            notes: Vec::new(),
            wrongs: Vec::new(),
            hit: BTreeSet::new(),
        }
    }

    /// Applies a row to an entry: sets options, calls the row's function or reports the key.
    pub(super) fn apply_row(&mut self, row: &'static ImportRow, entry: &ConfigEntry<'_>) {
        self.hit.insert(row.key);
        if !row.key.ends_with("terms")
            && !row.key.ends_with("rules")
            && entry.node.has_invalid_utf8()
        {
            let (place, key) = (&entry.node.place, &entry.key);
            let why = "not UTF-8 text, which it has to be: save the file as UTF-8";
            return self.wrongs.push(format!("{place}: {key}: {why}"));
        }
        let tunes = ["mqtt.", "auth.cache.", "stream_plugin"]
            .iter()
            .any(|part| entry.key.starts_with(part));
        // With a blank behind them these leave the default, which lets in no fewer.
        let is_word = entry.node.text().is_some_and(|text| {
            ["allow", "deny", "disconnect", "false", "ignore", "true"].contains(&text)
        });
        let may_decide = super::access::may_have_access_keys(&entry.key) && !tunes && !is_word;
        if may_decide && entry.node.has_unclear_text() {
            let why = "versions read this in different ways: write it in plain quotes, without \
                       escapes, and without a blank behind a word";
            return self.wrongs.push(format!("{}: {}: {why}", entry.node.place, entry.key));
        }
        let is_secret = ["password", "secret"].contains(&entry.last_word());
        if is_secret && entry.node.text().is_some_and(|text| text.starts_with("file://")) {
            let why = "secrets in files are not read: write the secret itself";
            return self.wrongs.push(format!("{}: {}: {why}", entry.node.place, entry.key));
        }
        let done = match &row.to {
            ImportTarget::All(key, by) => self.set_global_option(key, *by, entry),
            ImportTarget::Listener(key, by) => self.set_listener_option(key, *by, entry),
            ImportTarget::Bridge(key, by) => self.set_bridge_option(key, *by, entry),
            ImportTarget::Custom(_, make) => make(self, entry),
            ImportTarget::Unsupported(why) => {
                self.report_unsupported(entry, *why);
                Ok(())
            }
            ImportTarget::Restriction(why) => {
                if !entry.is_switched_off() {
                    self.apply_restriction(entry, why);
                }
                Ok(())
            }
            ImportTarget::Remainder(harmless, why) => {
                self.apply_remainder(row.key, harmless, why, entry);
                Ok(())
            }
        };
        if let Err(why) = done {
            // The value is not repeated in the message, since it may be a secret.
            self.wrongs.push(format!("{}: {}: {why}", entry.node.place, entry.key));
        }
    }

    /// Reports an access decision without an equivalent. The broker does not start before an
    /// operator has replaced it.
    pub(super) fn leave_unresolved(&mut self, entry: &ConfigEntry<'_>, why: impl Into<String>) {
        let why = why.into();
        self.demands.unresolved.push(format!("{}: {why}", entry.note()));
        self.report_unsupported(entry, why);
    }

    /// Leaves a key of a listener unresolved for that listener alone.
    pub(super) fn leave_listener_unresolved(&mut self, entry: &ConfigEntry<'_>, why: &str) {
        let what = format!("{}: {why}", entry.note());
        self.listener_of_entry(entry).demands.unresolved.push(what);
        self.report_unsupported(entry, why);
    }

    /// Leaves the key of a restriction unresolved: for its listener, or for all if the key is
    /// global in EMQX or NanoMQ.
    fn apply_restriction(&mut self, entry: &ConfigEntry<'_>, why: &str) {
        if ["listener.", "listeners."].iter().any(|part| entry.key.starts_with(part)) {
            self.leave_listener_unresolved(entry, why);
        } else {
            self.leave_unresolved(entry, why);
        }
    }

    /// Handles a key that matches only a remainder pattern: a harmless word is reported, a key that
    /// may decide about access is an error, and any other key stays an unresolved restriction.
    fn apply_remainder(
        &mut self,
        pattern: &str,
        harmless: &[&str],
        why: &str,
        entry: &ConfigEntry<'_>,
    ) {
        let depth = pattern.split('.').count() - 1;
        let word = entry.key.split('.').nth(depth).unwrap_or_default();
        if harmless.contains(&word) {
            self.report_unsupported(entry, why);
        } else if entry.may_decide_about_access() {
            self.refuse_access_key(&entry.node.place, &unknown_row(&entry.key));
        } else {
            let why = "it is not known here and may restrict clients: write its meaning by hand";
            self.apply_restriction(entry, why);
        }
    }

    pub(super) fn report_unsupported(&mut self, entry: &ConfigEntry<'_>, why: impl Into<String>) {
        let (place, key) = (entry.node.place.clone(), entry.key.clone());
        self.missing.push(UnsupportedKey { place, key, why: why.into() });
    }

    pub(super) fn set_global_option(
        &mut self,
        key: &'static str,
        by: ValueReader,
        entry: &ConfigEntry<'_>,
    ) -> Result<(), String> {
        let said = by(entry)?;
        self.push_option(key, said, entry);
        Ok(())
    }

    /// Sets an option for all listeners. The later of two values counts.
    pub(super) fn push_option(
        &mut self,
        key: &'static str,
        said: ImportValue,
        entry: &ConfigEntry<'_>,
    ) {
        match build_option(self.catalog, key, said, entry.note()) {
            Ok(setting) => put_setting(&mut self.settings, setting),
            Err(why) => self.report_unsupported(entry, why),
        }
    }

    /// Sets a restricting option for all listeners: of two values the stricter, which is the
    /// smaller, counts.
    pub(super) fn push_strictest(
        &mut self,
        key: &'static str,
        said: ImportValue,
        entry: &ConfigEntry<'_>,
    ) {
        let before = self.setting(key).cloned();
        self.push_option(key, said, entry);
        let Some(before) = before else { return };
        // "false" sorts before "true", and 0 before 2.
        if self.setting(key).is_some_and(|now| before.toml < now.toml) {
            let why = format!("{} is stricter, and counts for all", before.note);
            self.report_unsupported(entry, why);
            put_setting(&mut self.settings, before);
        }
    }

    fn set_listener_option(
        &mut self,
        key: &'static str,
        by: ValueReader,
        entry: &ConfigEntry<'_>,
    ) -> Result<(), String> {
        let said = by(entry)?;
        self.push_listener_option(key, said, entry);
        Ok(())
    }

    /// Sets an option of the listener that the entry belongs to.
    pub(super) fn push_listener_option(
        &mut self,
        key: &'static str,
        said: ImportValue,
        entry: &ConfigEntry<'_>,
    ) {
        match build_option(self.catalog, key, said, entry.note()) {
            Ok(setting) => put_setting(&mut self.listener_of_entry(entry).settings, setting),
            Err(why) => self.report_unsupported(entry, why),
        }
    }

    /// Returns mosquitto's default listener, which exists without a `listener` line.
    pub(super) fn default_listener(&mut self, entry: &ConfigEntry<'_>) -> &mut DraftListener {
        self.listener_by_id(super::mosquitto::DEFAULT, &entry.node.place)
    }

    /// Returns the listener of an entry: by number in mosquitto's files, else by kind and name.
    pub(super) fn listener_of_entry(&mut self, entry: &ConfigEntry<'_>) -> &mut DraftListener {
        let mut words = entry.key.split('.');
        let id = match (words.next(), words.next(), entry.names.first()) {
            (Some("listeners" | "listener"), Some(kind), Some(first)) => {
                let name = entry.names.get(1).unwrap_or(first);
                format!("{kind}.{name}")
            }
            (Some(part @ ("tls" | "websocket")), ..) => part.to_string(),
            (_, _, Some(name)) => name.clone(),
            _ => String::new(),
        };
        self.listener_by_id(&id, &entry.node.place)
    }

    pub(super) fn listener_by_id(
        &mut self,
        id: &str,
        place: &SourceLocation,
    ) -> &mut DraftListener {
        let at = self.listeners.iter().position(|listener| listener.id == id);
        let at = at.unwrap_or_else(|| {
            self.listeners.push(DraftListener::new(self.catalog, id, place));
            self.listeners.len() - 1
        });
        &mut self.listeners[at]
    }

    /// Returns the requirements that a listener's written options enforce, together with the
    /// original's `demands`.
    pub(super) fn requirements_of(&self, listener: &DraftListener) -> ClientRequirements {
        let is = |key: &str, text: &str| {
            let own = listener.settings.iter().find(|setting| setting.key == key);
            let setting = own.or_else(|| self.setting(key));
            setting.is_some_and(|setting| setting.value.text() == text)
        };
        const RULES: &[&str] = &[
            "acl.file",
            "acl.http_url",
            "auth.mysql_rules",
            "auth.postgres_rules",
            "auth.redis_rules",
        ];
        let written = ClientRequirements {
            credentials: is("allow_anonymous", "false")
                || self.requires_authentication() && !is("allow_anonymous", "true"),
            client_certificate: listener.demands_certificate() || listener.has("tls.psk_file"),
            roots: listener.has("tls.client_certificate"),
            namespace: listener.has("namespace") || self.setting("namespace").is_some(),
            rules: !self.rules.is_empty()
                || RULES.iter().any(|key| self.setting(key).is_some() || listener.has(key)),
            unresolved: Vec::new(),
        };
        // What nobody has resolved for all is said once.
        let is_first = self.listeners.first().is_none_or(|first| first.id == listener.id);
        let mut of_all = self.demands.clone();
        if !is_first {
            of_all.unresolved.clear();
        }
        written.union(&of_all).union(&listener.demands)
    }

    /// Whether any user or option authenticates clients.
    pub(super) fn requires_authentication(&self) -> bool {
        !self.users.is_empty() || self.settings.iter().any(DraftSetting::proves_names)
    }

    pub(super) fn setting(&self, key: &str) -> Option<&DraftSetting> {
        self.settings.iter().find(|setting| setting.key == key)
    }

    /// Sets an option that follows from the absence of a key.
    pub(super) fn add_implied(&mut self, key: &'static str, text: &str, note: &str) {
        put_implied(self.catalog, &mut self.settings, key, text, note);
    }
}

/// Sets an option that follows from the absence of a key, in `settings`.
pub(super) fn put_implied(
    catalog: &OptionCatalog,
    settings: &mut Vec<DraftSetting>,
    key: &'static str,
    text: &str,
    note: &str,
) {
    let said = ImportValue::Text(text.to_string());
    if let Ok(setting) = build_option(catalog, key, said, note.to_string()) {
        put_setting(settings, setting);
    }
}

pub(super) fn put_setting(settings: &mut Vec<DraftSetting>, setting: DraftSetting) {
    settings.retain(|there| there.key != setting.key);
    settings.push(setting);
}

/// Builds an option of the catalog from a value; the error says why the value has no equivalent.
pub(super) fn build_option(
    catalog: &OptionCatalog,
    key: &'static str,
    said: ImportValue,
    note: String,
) -> Result<DraftSetting, String> {
    let option = catalog.find(key);
    let option = option.ok_or_else(|| format!("this build of godwit has no {key}"))?;
    if let Some(feature) = option.missing_feature {
        return Err(format!("{key} needs a build with --features {feature}"));
    }
    build_setting(key, option.kind, said, note)
}

pub(super) fn build_setting(
    key: &'static str,
    kind: OptionKind,
    said: ImportValue,
    note: String,
) -> Result<DraftSetting, String> {
    let (said, given) = nearest_number(key, kind, said);
    let value = match kind {
        // A secret may be written to a file if the source has it in a file as well.
        OptionKind::Hidden(kind) => {
            read_value(*kind, said).map_err(|_| format!("use {}", kind.expected()))
        }
        kind => read_value(kind, said),
    };
    let value = value.map_err(|why| format!("{key} does not take this: {why}"))?;
    let kind = if let OptionKind::Hidden(kind) = kind { *kind } else { kind };
    let toml = kind.format_value(&value);
    let clamped = given.filter(|given| value != OptionValue::Number(*given));
    let clamped = clamped.map(|given| {
        format!("{given} is beyond what {key} takes ({}): {toml} was taken", kind.expected())
    });
    Ok(DraftSetting { key, toml, value, note, clamped })
}

/// Clamps a number to the range of its option, and returns the original number if changed.
/// Parameters of password hashes are not clamped.
fn nearest_number(key: &str, kind: OptionKind, said: ImportValue) -> (ImportValue, Option<u64>) {
    let OptionKind::Number { min, max, word, .. } = kind else { return (said, None) };
    let ImportValue::Text(text) = &said else { return (said, None) };
    let Ok(given) = text.parse::<u64>() else { return (said, None) };
    let is_word = word.is_some_and(|(_, special)| special == given);
    if is_word || (min..=max).contains(&given) || key.starts_with("auth.password") {
        return (said, None);
    }
    (ImportValue::Text(given.clamp(min, max).to_string()), Some(given))
}

fn read_value(kind: OptionKind, said: ImportValue) -> Result<OptionValue, String> {
    match (kind, said) {
        (_, ImportValue::Unsupported(why)) => Err(why.to_string()),
        (OptionKind::Number { word: Some((word, _)), .. }, ImportValue::Unlimited) => {
            kind.read_text(word)
        }
        (
            OptionKind::Number { max, unit: NumberUnit::Bytes | NumberUnit::Named(_), .. },
            ImportValue::Unlimited,
        ) => Ok(OptionValue::Number(max)),
        (OptionKind::List { check, .. }, ImportValue::List(items)) => {
            items.iter().try_for_each(|item| check(item)).map(|()| OptionValue::List(items))
        }
        (OptionKind::Map { check, .. }, ImportValue::Map(pairs)) => {
            let fits = pairs.iter().try_for_each(|(name, value)| check(name, value));
            fits.map(|()| OptionValue::Map(pairs))
        }
        (_, ImportValue::Text(text)) => kind.read_text(&text),
        _ => Err(format!("use {}", kind.expected())),
    }
}
