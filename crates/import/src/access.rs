//! Access decisions common to all importers: which clients connect without authentication, unknown
//! keys that may matter, and listeners that stay closed where a requirement of the original was not
//! carried over.
//!
//! Invariant: the written configuration never admits a client that the original would have refused.

use super::config_tree::SourceLocation;
use super::draft::{ConfigDraft, DraftSetting, UnsupportedKey, build_option, put_setting};
use super::listener::DraftListener;
use super::row::ImportValue;
use super::rules::DraftRule;
use config::catalog::OptionCatalog;

impl ConfigDraft {
    /// Records that the original authenticates every client, with the first setting that says so as
    /// `note`.
    pub(super) fn ask_for_credentials(&mut self, note: &str) {
        self.credentials_note.get_or_insert_with(|| note.to_string());
    }

    /// Sets an option that follows from the absence of a key, unless the option is already set.
    pub(super) fn imply_once(&mut self, key: &'static str, text: &str, note: &str) {
        if self.setting(key).is_none() {
            self.add_implied(key, text, note);
        }
    }

    pub(super) fn allow_all(&mut self, note: &str) {
        let note = note.to_string();
        self.rules.push(DraftRule { note, allows: true, deed: "all", ..DraftRule::default() });
    }

    /// Refuses the file for an unknown key that may decide about access.
    pub(super) fn refuse_access_key(&mut self, place: &SourceLocation, why: &str) {
        let advice = "it may decide about access: write its meaning by hand and leave it out";
        self.wrongs.push(format!("{place}: {why}; {advice}"));
    }

    /// Reports a key without a row in `missing`. A key that may decide about access is an error,
    /// and with `is_strict` so is every unknown key.
    pub(super) fn report_unknown_key(&mut self, place: &SourceLocation, key: &str, why: String) {
        if may_decide_about_access(key) {
            return self.refuse_access_key(place, &why);
        }
        if self.is_strict {
            return self.wrongs.push(format!("{place}: {why}"));
        }
        self.missing.push(UnsupportedKey { place: place.clone(), key: key.to_string(), why });
    }
}

/// Parts of a file that do not decide which clients may connect to this broker.
const OTHER_PARTS: &[&str] = &[
    "actions",
    "api_key",
    "aws",
    "bridge",
    "bridges",
    "cluster",
    "connector",
    "connectors",
    "dashboard",
    "dds",
    "exchange_client",
    "forward_rules",
    "gateway",
    "http_server",
    "license",
    "local",
    "log",
    "management",
    "node",
    "parquet",
    "plugins",
    "prometheus",
    "remote",
    "rpc",
    "rule",
    "rule_engine",
    "rule_option",
    "rules",
    "sources",
    "sqlite",
    "ssl_dist",
    "sysmon",
    "system",
    "telemetry",
    "web",
    "webhook",
];

/// Words in the names of keys about access.
const ACCESS_WORDS: &[&str] = &[
    "access",
    "acl",
    "address",
    "allow",
    "anonymous",
    "auth",
    "authentication",
    "authn",
    "authorization",
    "authz",
    "ban",
    "banned",
    "bind",
    "blacklist",
    "bypass",
    "cacertfile",
    "cafile",
    "capath",
    "cert",
    "certificate",
    "credentials",
    "crl",
    "deny",
    "group",
    "identity",
    "interface",
    "nomatch",
    "ocsp",
    "passwd",
    "password",
    "peer",
    "permission",
    "permit",
    "plugin",
    "precondition",
    "psk",
    "require",
    "role",
    "secret",
    "superuser",
    "tls",
    "token",
    "user",
    "username",
    "users",
    "verify",
    "whitelist",
];

pub(super) fn may_decide_about_access(key: &str) -> bool {
    let mut words = key.split(['.', '_', '-']).map(str::to_ascii_lowercase);
    let first_part = key.split('.').next().unwrap_or_default();
    let first_word = words.clone().next().unwrap_or_default();
    if OTHER_PARTS.contains(&first_part) || OTHER_PARTS.contains(&first_word.as_str()) {
        return false;
    }
    words.any(|word| ACCESS_WORDS.contains(&word.as_str()))
}

/// Whether a part of a file may contain keys about access: every part outside of `OTHER_PARTS`, and
/// `gateway` and `plugins`, which may admit clients of their own.
pub(super) fn may_have_access_keys(part: &str) -> bool {
    let first = part.split('.').next().unwrap_or_default();
    !OTHER_PARTS.contains(&first) || ["gateway", "plugins"].contains(&first)
}

/// Whether `[[listener]]` may override the option `key`.
fn has_listener_override(catalog: &OptionCatalog, key: &str) -> bool {
    catalog.find(key).is_some_and(|option| option.has_listener_scope)
}

/// Decides, after all entries are known, which clients connect without authentication, on all
/// listeners and on each.
pub(super) fn finish_access(draft: &mut ConfigDraft) {
    let note = draft.credentials_note.clone();
    if let Some(note) = &note {
        draft.add_implied("allow_anonymous", "false", note);
    }
    let mut listeners = std::mem::take(&mut draft.listeners);
    for listener in &mut listeners {
        finish_listener_access(listener, draft);
    }
    draft.listeners = listeners;
    let says = |text: &str| {
        draft.setting("allow_anonymous").is_some_and(|there| there.value.text() == text)
    };
    draft.has_no_users = says("false") && !draft.requires_authentication();
}

/// Finishes the authentication of one listener of EMQX.
fn finish_listener_access(listener: &mut DraftListener, draft: &mut ConfigDraft) {
    let is_asked = listener.asks_nobody.is_none();
    let own = listener.own_backends.take().filter(|_| is_asked);
    let own = own.and_then(|own| in_place_of_all(own, draft));
    let asks = draft.credentials_note.is_some() || own.is_some();
    if let Some(note) = listener.asks_nobody.take().filter(|_| asks) {
        let setting = build_option(
            draft.catalog,
            "allow_anonymous",
            ImportValue::Text("true".into()),
            note.clone(),
        );
        match setting {
            Ok(setting) if has_listener_override(draft.catalog, "allow_anonymous") => {
                put_setting(&mut listener.settings, setting);
            }
            _ => {
                let why = "clients of this listener are asked who they are, as all others are";
                draft.missing.push(super::unsupported_of_note(&note, why));
            }
        }
    }
    if let Some(own) = own {
        own.into_iter().for_each(|setting| put_setting(&mut listener.settings, setting));
        listener.demands.credentials = true;
        listener.own_chain = None;
    }
    if let Some(note) = listener.own_chain.take() {
        listener.closed = Some(format!(
            "{note}: it has authentication of its own, which is not carried over: write it with \
             auth.* in its [[listener]]"
        ));
    }
    const NAMELESS: &[&str] = &["auth.http_url", "auth.jwt_keys"];
    let takes_nameless =
        NAMELESS.iter().any(|key| draft.setting(key).is_some() || listener.has(key));
    if let Some(note) = listener.refuses_nameless.take().filter(|_| !asks || takes_nameless) {
        listener.closed = Some(format!(
            "{note}: clients without a user name are refused there, and a name that nobody checks \
             is no proof here: name users with auth.users"
        ));
    }
}

/// Returns a listener's own backends, with all other `auth.*` options set to their defaults, since
/// the backends of all listeners do not apply there. `None` if the result would admit more clients,
/// or would drop rules.
fn in_place_of_all(own: Vec<DraftSetting>, draft: &ConfigDraft) -> Option<Vec<DraftSetting>> {
    const RULES: &[&str] = &["auth.postgres_rules", "auth.mysql_rules", "auth.redis_rules"];
    let note = own.first()?.note.clone();
    let mut all = own;
    for there in draft.settings.iter().filter(|there| there.key.starts_with("auth.")) {
        let gives_names = there.key == "auth.certificate" && there.value.text() != "off";
        if gives_names || RULES.contains(&there.key) {
            return None;
        }
        let is_own = all.iter().any(|setting| setting.key == there.key);
        if !is_own && has_listener_override(draft.catalog, there.key) {
            let default = draft.catalog.find(there.key)?.default;
            let note = format!("{note}: not as for all");
            all.push(
                build_option(
                    draft.catalog,
                    there.key,
                    ImportValue::Text(default.to_string()),
                    note,
                )
                .ok()?,
            );
        }
    }
    let closed =
        build_option(draft.catalog, "allow_anonymous", ImportValue::Text("false".into()), note)
            .ok()?;
    all.push(closed);
    let all_fit = all.iter().all(|setting| has_listener_override(draft.catalog, setting.key));
    all_fit.then_some(all)
}

/// Reports values that were clamped to a bound of their option.
pub(super) fn note_clamped(draft: &mut ConfigDraft) {
    let of_all = draft.settings.iter();
    let of_listeners = draft.listeners.iter().flat_map(|one| one.settings.iter());
    let of_bridges = draft.bridges.iter().flat_map(|one| one.settings.iter());
    let clamped = |setting: &DraftSetting| Some((setting.note.clone(), setting.clamped.clone()?));
    let all: Vec<(String, String)> =
        of_all.chain(of_listeners).chain(of_bridges).filter_map(clamped).collect();
    for (note, why) in all {
        draft.missing.push(super::unsupported_of_note(&note, &why));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_may_decide_about_access_are_told_by_their_words() {
        for key in [
            "auth.ldap",
            "listeners.tcp.default.authz",
            "allow_guests",
            "mqtt.peer_cert_as_x",
            "tls.verify_depth",
            "acl_default",
        ] {
            assert!(may_decide_about_access(key), "{key}");
        }
        for key in [
            "mqtt.max_topic_alias",
            "bridges.mqtt.a.password_encrypted",
            "bridge.mqtt.a.tls.x",
            "bridge_tls_alpn_list",
            "http_server.auth_type",
            "remote_username_file",
            "log.to",
        ] {
            assert!(!may_decide_about_access(key), "{key}");
        }
    }
}
