//! What is to be written: our options with the line that each comes from, listeners, bridges,
//! rules, users, and whatever has no equal here.

use super::bridge::Bridge;
use super::chain::Chains;
use super::emqx::Wires;
use super::listener::{ClientDemands, Listener};
use super::row::unknown_row;
use super::row::{As, Row, Said, To};
use super::rules::DraftRule;
use super::table::mosquitto_access::ListenerScope;
use super::tables::Tables;
use super::tree::{Entry, Folder, Place};
use crate::options::table::{self, Row as Option_};
use crate::options::value::{Kind, Unit, Value};
use std::collections::BTreeSet;

/// One `key = value` of the file that is written.
#[derive(Clone, Debug)]
pub(super) struct Setting {
    pub(super) key: &'static str,
    pub(super) value: Value,
    pub(super) toml: String,
    /// Where it comes from.
    pub(super) note: String,
    /// Why it is not the value that stood there.
    pub(super) clamped: Option<String>,
}

impl Setting {
    /// Whether clients show by it who they are.
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

/// A key that has no equal, and why.
#[derive(Clone, Debug)]
pub(super) struct Missing {
    pub(super) place: Place,
    pub(super) key: String,
    pub(super) why: String,
}

pub(super) struct Draft {
    pub(super) folder: Folder,
    pub(super) settings: Vec<Setting>,
    pub(super) listeners: Vec<Listener>,
    pub(super) scope: ListenerScope,
    /// What the original asks of every client, whatever the listener.
    pub(super) demands: ClientDemands,
    pub(super) bridges: Vec<Bridge>,
    /// How many messages may wait for each, and what says so.
    pub(super) bridge_queue: Option<(Said, String)>,
    pub(super) rules: Vec<DraftRule>,
    /// What is to happen where no rule says anything, and what says so.
    pub(super) no_match: Option<(bool, String)>,
    /// Whether `%c` and `%u` stand for names in rules.
    pub(super) percent_names: bool,
    /// What gives client ids there, where clients choose them here.
    pub(super) free_client_ids: Option<String>,
    pub(super) users: Vec<User>,
    pub(super) tables: Tables,
    pub(super) wires: Wires,
    pub(super) chains: Chains,
    /// What asks every client of the original who it is.
    pub(super) credentials_note: Option<String>,
    /// Whether nobody can come in before somebody names users.
    pub(super) has_no_users: bool,
    /// What says that names counted without proof there; they count for nothing here.
    pub(super) unchecked_names: Option<String>,
    /// Keys of tokens that stood in the file itself.
    pub(super) token_key: Option<Vec<u8>>,
    /// Whether other files may be written beside the main one.
    pub(super) has_out: bool,
    /// Whether a key that nobody knows is an error.
    pub(super) is_strict: bool,
    /// Files of rules or users that are named and not there.
    pub(super) lost: Vec<&'static str>,
    /// Files that were read of what EMQX 4 loads.
    pub(super) loaded: Vec<&'static str>,
    /// Parts of the file that a key of it switches off.
    pub(super) off: Vec<&'static str>,
    pub(super) missing: Vec<Missing>,
    /// What has no equal and no key of its own.
    pub(super) notes: Vec<String>,
    pub(super) wrongs: Vec<String>,
    /// The rows that something was about.
    pub(super) hit: BTreeSet<&'static str>,
}

/// A user whose password stood there in plain text.
#[derive(Clone, Default)]
pub(super) struct User {
    pub(super) at: String,
    pub(super) name: String,
    pub(super) password: String,
}

impl Draft {
    pub(super) fn new(folder: Folder) -> Draft {
        Draft {
            folder,
            settings: Vec::new(),
            listeners: Vec::new(),
            scope: ListenerScope::default(),
            demands: ClientDemands::default(),
            bridges: Vec::new(),
            bridge_queue: None,
            rules: Vec::new(),
            no_match: None,
            percent_names: false,
            free_client_ids: None,
            users: Vec::new(),
            tables: Tables::default(),
            wires: Wires::default(),
            chains: Chains::default(),
            credentials_note: None,
            has_no_users: false,
            unchecked_names: None,
            token_key: None,
            has_out: true,
            is_strict: false,
            lost: Vec::new(),
            loaded: Vec::new(),
            off: Vec::new(),
            missing: Vec::new(),
            notes: Vec::new(),
            wrongs: Vec::new(),
            hit: BTreeSet::new(),
        }
    }

    /// Does what a row says.
    pub(super) fn take(&mut self, row: &'static Row, entry: &Entry<'_>) {
        self.hit.insert(row.key);
        if !row.key.ends_with("terms") && !row.key.ends_with("rules") && entry.node.is_garbled() {
            let (place, key) = (&entry.node.place, &entry.key);
            let why = "not UTF-8 text, which it has to be: save the file as UTF-8";
            return self.wrongs.push(format!("{place}: {key}: {why}"));
        }
        let done = match &row.to {
            // What nobody knows of a listener may be who it lets in.
            To::Nothing(_) if row.is_for_others() && entry.may_decide_about_access() => {
                let why = format!(
                    "{}; it may decide about access: write its meaning by hand and leave it out",
                    unknown_row(&entry.key)
                );
                self.wrongs.push(format!("{}: {why}", entry.node.place));
                Ok(())
            }
            To::All(key, by) => self.all(key, *by, entry),
            To::Listener(key, by) => self.of_listener(key, *by, entry),
            To::Bridge(key, by) => self.of_bridge(key, *by, entry),
            To::Made(_, make) => make(self, entry),
            To::Nothing(why) => {
                self.miss(entry, *why);
                Ok(())
            }
        };
        if let Err(why) = done {
            // What stands there is not repeated: it may be a secret.
            self.wrongs.push(format!("{}: {}: {why}", entry.node.place, entry.key));
        }
    }

    /// Something that decides about access and has no equal: it stands in the list, and nothing
    /// starts before somebody has put something in its place.
    pub(super) fn leave_unresolved(&mut self, entry: &Entry<'_>, why: impl Into<String>) {
        let why = why.into();
        self.demands.unresolved.push(format!("{}: {why}", entry.note()));
        self.miss(entry, why);
    }

    pub(super) fn miss(&mut self, entry: &Entry<'_>, why: impl Into<String>) {
        let (place, key) = (entry.node.place.clone(), entry.key.clone());
        self.missing.push(Missing { place, key, why: why.into() });
    }

    pub(super) fn all(
        &mut self,
        key: &'static str,
        by: As,
        entry: &Entry<'_>,
    ) -> Result<(), String> {
        let said = by(entry)?;
        self.say(key, said, entry);
        Ok(())
    }

    /// An option for all. The later of two counts.
    pub(super) fn say(&mut self, key: &'static str, said: Said, entry: &Entry<'_>) {
        match option(key, said, entry.note()) {
            Ok(setting) => put(&mut self.settings, setting),
            Err(why) => self.miss(entry, why),
        }
    }

    fn of_listener(&mut self, key: &'static str, by: As, entry: &Entry<'_>) -> Result<(), String> {
        let said = by(entry)?;
        self.say_at_listener(key, said, entry);
        Ok(())
    }

    /// An option of the listener that an entry is about.
    pub(super) fn say_at_listener(&mut self, key: &'static str, said: Said, entry: &Entry<'_>) {
        match option(key, said, entry.note()) {
            Ok(setting) => put(&mut self.listener(entry).settings, setting),
            Err(why) => self.miss(entry, why),
        }
    }

    /// mosquitto's that needs no line.
    pub(super) fn default_listener(&mut self, entry: &Entry<'_>) -> &mut Listener {
        self.listener_called(super::mosquitto::DEFAULT, &entry.node.place)
    }

    /// The listener that an entry is about: mosquitto's by its number, others' by kind and name.
    pub(super) fn listener(&mut self, entry: &Entry<'_>) -> &mut Listener {
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
        self.listener_called(&id, &entry.node.place)
    }

    pub(super) fn listener_called(&mut self, id: &str, place: &Place) -> &mut Listener {
        let at = self.listeners.iter().position(|listener| listener.id == id);
        let at = at.unwrap_or_else(|| {
            self.listeners.push(Listener::new(id, place));
            self.listeners.len() - 1
        });
        &mut self.listeners[at]
    }

    /// What is written of access, and what the original asked beside that.
    pub(super) fn demands_of(&self, listener: &Listener) -> ClientDemands {
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
        let written = ClientDemands {
            credentials: is("allow_anonymous", "false")
                || self.authenticates() && !is("allow_anonymous", "true"),
            client_certificate: listener.asks && listener.needs || listener.has("tls.psk_file"),
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
        written.and(&of_all).and(&listener.demands)
    }

    /// Whether anything asks clients who they are.
    pub(super) fn authenticates(&self) -> bool {
        !self.users.is_empty() || self.settings.iter().any(Setting::proves_names)
    }

    pub(super) fn setting(&self, key: &str) -> Option<&Setting> {
        self.settings.iter().find(|setting| setting.key == key)
    }

    /// What follows from nothing that stands there, but from what does not.
    pub(super) fn imply(&mut self, key: &'static str, text: &str, note: &str) {
        if let Ok(setting) = option(key, Said::Text(text.to_string()), note.to_string()) {
            put(&mut self.settings, setting);
        }
    }
}

pub(super) fn put(settings: &mut Vec<Setting>, setting: Setting) {
    settings.retain(|there| there.key != setting.key);
    settings.push(setting);
}

/// An option of the table; the error says why the value has no equal.
pub(super) fn option(key: &'static str, said: Said, note: String) -> Result<Setting, String> {
    let row: Option<&Option_> = table::find(key);
    let row = row.ok_or_else(|| format!("this build of godwit has no {key}"))?;
    if key == "tls.psk_file" && !cfg!(feature = "psk") {
        return Err(format!("{key} needs a build with --features psk"));
    }
    setting(key, row.kind, said, note)
}

pub(super) fn setting(
    key: &'static str,
    kind: Kind,
    said: Said,
    note: String,
) -> Result<Setting, String> {
    let (said, given) = nearest_number(key, kind, said);
    let value = match kind {
        // It goes into a file for who has it in a file already, and nowhere else.
        Kind::Hidden(kind) => read(*kind, said).map_err(|_| format!("use {}", kind.right())),
        kind => read(kind, said),
    };
    let value = value.map_err(|why| format!("{key} does not take this: {why}"))?;
    let kind = if let Kind::Hidden(kind) = kind { *kind } else { kind };
    let toml = kind.write(&value);
    let clamped = given.filter(|given| value != Value::Number(*given));
    let clamped = clamped.map(|given| {
        format!("{given} is beyond what {key} takes ({}): {toml} was taken", kind.right())
    });
    Ok(Setting { key, toml, value, note, clamped })
}

/// A number beyond the range of its option becomes the nearest one in it; what was given comes
/// back beside it. What passwords cost is not changed.
fn nearest_number(key: &str, kind: Kind, said: Said) -> (Said, Option<u64>) {
    let Kind::Number { min, max, word, .. } = kind else { return (said, None) };
    let Said::Text(text) = &said else { return (said, None) };
    let Ok(given) = text.parse::<u64>() else { return (said, None) };
    let is_word = word.is_some_and(|(_, special)| special == given);
    if is_word || (min..=max).contains(&given) || key.starts_with("auth.password") {
        return (said, None);
    }
    (Said::Text(given.clamp(min, max).to_string()), Some(given))
}

fn read(kind: Kind, said: Said) -> Result<Value, String> {
    match (kind, said) {
        (_, Said::Nothing(why)) => Err(why.to_string()),
        (Kind::Number { word: Some((word, _)), .. }, Said::Endless) => kind.read_text(word),
        (Kind::Number { max, unit: Unit::Bytes | Unit::Of(_), .. }, Said::Endless) => {
            Ok(Value::Number(max))
        }
        (Kind::List { check, .. }, Said::List(items)) => {
            items.iter().try_for_each(|item| check(item)).map(|()| Value::List(items))
        }
        (Kind::Map { check, .. }, Said::Map(pairs)) => {
            let fits = pairs.iter().try_for_each(|(name, value)| check(name, value));
            fits.map(|()| Value::Map(pairs))
        }
        (_, Said::Text(text)) => kind.read_text(&text),
        _ => Err(format!("use {}", kind.right())),
    }
}
