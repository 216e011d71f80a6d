//! mosquitto.conf(5): which clients may connect, on which listeners, and from which addresses. A
//! key without an equivalent closes its listener, or stays unresolved until an operator replaces
//! it.

use super::super::config_tree::ConfigEntry;
use super::super::draft::{ConfigDraft, DraftSetting, build_option, put_setting};
use super::super::listener::{DraftListener, DraftTransport};
use super::super::row::{ImportRow, ImportValue, custom_row, listener_row, unsupported_row};
use super::super::units::{is_true, read_flag};
use super::super::unsupported_of_note;
use super::mount_point;
use std::path::Path;

pub(crate) const ACCESS: &[ImportRow] = &[
    custom_row(
        "per_listener_settings",
        "where it is true, what follows goes for the listener that it stands under",
        per_listener,
    ),
    custom_row("acl_file", "`acl.file`", acl_file),
    custom_row(
        "allow_anonymous",
        "`allow_anonymous`; where a listener is named and this is not, false",
        anonymous,
    ),
    listener_row("listener_allow_anonymous", "allow_anonymous", read_flag),
    custom_row("password_file", "`auth.users`", password_file),
    custom_row("plugin_opt_acl_file", "`acl.file`", acl_file),
    custom_row("plugin_opt_password_file", "`auth.users`", password_file),
    custom_row("auth_plugin", PLUGIN, plugin),
    custom_row("plugin", PLUGIN, plugin),
    custom_row("plugin_load", PLUGIN, plugin),
    custom_row("global_plugin", PLUGIN, plugin),
    unsupported_row("plugin_use", "what plugin_load names is not carried over"),
    unsupported_row("auth_opt_*", "what the plugin is told is the plugin's"),
    unsupported_row("plugin_opt_*", "what the plugin is told is the plugin's"),
    custom_row(
        "allow_zero_length_clientid",
        "unresolved where it is false: clients without an id get one",
        zero_length,
    ),
    custom_row(
        "clientid_prefixes",
        "unresolved: connecting is for `auth.*` to decide, and a rule with \
         `client_id = \"PREFIX*\"` allows topics",
        prefixes,
    ),
    custom_row(
        "use_username_as_clientid",
        "unresolved where it is true: bind ids to users by rules with `${clientid}`, or by \
         `auth.certificate_client_id` and `auth.jwt_client_id_claim`",
        name_as_id,
    ),
    custom_row("listener", "`[[listener]]`, its `url`", begin_listener),
    custom_row("port", "the port of the `[[listener]]` that needs no line", port),
    custom_row(
        "bind_address",
        "the address of the `[[listener]]` that needs no line",
        bind_address,
    ),
    custom_row(
        "bind_interface",
        "the loopback address where it is lo; no other listener is written",
        bind_interface,
    ),
    custom_row("socket_domain", "the address of the `[[listener]]`", socket_domain),
    custom_row(
        "mount_point",
        "`namespace`; without a slash at its end no listener is written",
        mount,
    ),
    custom_row("capath", "nothing: name the CAs in one file, `tls.client_ca`", capath),
    custom_row(
        "require_certificate",
        "`tls.client_certificate`; without a cafile no listener is written",
        require_certificate,
    ),
    custom_row(
        "use_identity_as_username",
        "`auth.certificate` of the listener: common_name",
        |draft, entry| certificate(draft, entry, "common_name"),
    ),
    custom_row(
        "use_subject_as_username",
        "`auth.certificate` of the listener: subject",
        subject_certificate,
    ),
    custom_row("psk_file", "`tls.psk_file` of listeners with a psk_hint", psk_file),
    custom_row(
        "psk_hint",
        "`tls.psk_file`; in a build without it no listener is written",
        psk_hint,
    ),
];

const PLUGIN: &str = "unresolved, unless it is known not to decide about access: users and rules \
                      come from `auth.*` and `acl.*`, also by HTTP, SQL, Redis and JWT";

/// State of the earlier lines on which the meaning of an entry depends.
#[derive(Default)]
pub(crate) struct ListenerScope {
    per_listener: bool,
    has_security: bool,
    /// Whether a listener is named. Without any, mosquitto listens on loopback only.
    names_listener: bool,
    psk_file: Option<PskFile>,
}

impl ListenerScope {
    pub(crate) fn is_per_listener(&self) -> bool {
        self.per_listener
    }
}

/// A file of pre-shared keys, and the listener of its section.
struct PskFile {
    path: String,
    note: String,
    listener: String,
}

/// Sets an option for all, or with `per_listener_settings` for the listener of the section.
fn say_scoped(
    draft: &mut ConfigDraft,
    entry: &ConfigEntry<'_>,
    key: &'static str,
    said: ImportValue,
) {
    draft.scope.has_security = true;
    match draft.scope.per_listener {
        true => draft.push_listener_option(key, said, entry),
        false => draft.push_option(key, said, entry),
    }
}

fn leave_scoped(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>, why: &str) {
    if !draft.scope.per_listener {
        return draft.leave_unresolved(entry, why);
    }
    draft.leave_listener_unresolved(entry, why);
}

fn per_listener(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    let yes = is_true(entry.text()?)?;
    if yes && draft.scope.has_security {
        return Err("it stands before what it is about, allow_anonymous and the like".to_string());
    }
    if !yes && draft.scope.per_listener && draft.scope.has_security {
        // In mosquitto the earlier lines would then be lost, and later lines would apply to all
        // listeners.
        let why = "it takes back what an earlier line says, and with it what listeners have for \
                   themselves: say it once";
        return Err(why.to_string());
    }
    draft.scope.per_listener = yes;
    Ok(())
}

fn acl_file(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    say_scoped(draft, entry, "acl.file", ImportValue::Text(entry.text()?.to_string()));
    draft.report_unsupported(
        entry,
        "a subscription whose filter is wider than its rules is granted there, and brings what \
         they allow; here it is refused: subscribe to the filters of the rules. The log names \
         the rule",
    );
    Ok(())
}

fn password_file(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    say_scoped(draft, entry, "auth.users", ImportValue::Text(entry.text()?.to_string()));
    Ok(())
}

fn anonymous(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    draft.scope.has_security = true;
    let said = read_flag(entry)?;
    say_scoped(draft, entry, "allow_anonymous", said);
    Ok(())
}

/// Plugins of mosquitto 2.1 whose functions are options here, and keys without influence on access.
const HARMLESS: &[&str] =
    &["mosquitto_acl_file", "mosquitto_password_file", "persist_sqlite", "sparkplug_aware"];

fn plugin(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    draft.scope.has_security = true;
    let stem = Path::new(entry.text()?).file_stem().and_then(|stem| stem.to_str());
    if stem.is_some_and(|stem| HARMLESS.contains(&stem)) {
        draft.report_unsupported(entry, "plugins are not supported");
        return Ok(());
    }
    let why = "plugins are not supported: who may come in and do what is for auth.* and acl.* to \
               say, also by HTTP, SQL, Redis and JWT (docs/security.md)";
    leave_scoped(draft, entry, why);
    Ok(())
}

fn zero_length(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    draft.scope.has_security = true;
    if !is_true(entry.text()?)? {
        leave_scoped(draft, entry, "clients without an id always get one");
    }
    Ok(())
}

fn prefixes(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    let why = "client ids do not decide who may connect: that is for auth.* to do, and a rule \
               with client_id = \"PREFIX*\" allows topics";
    draft.leave_unresolved(entry, why);
    Ok(())
}

fn name_as_id(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    if is_true(entry.text()?)? {
        let why = "clients choose their own ids: bind them to users by rules with ${clientid}";
        draft.leave_listener_unresolved(entry, why);
    }
    Ok(())
}

/// mosquitto's numbers for MQTT 3.1, 3.1.1 and 5.0.
const VERSIONS: [&str; 3] = ["3", "4", "5"];

/// Reads the versions of MQTT that a listener accepts, such as `4,5`.
pub(super) fn protocol_versions(
    draft: &mut ConfigDraft,
    entry: &ConfigEntry<'_>,
) -> Result<(), String> {
    let words: Vec<&str> = entry.text()?.split([',', ' ']).filter(|one| !one.is_empty()).collect();
    if let Some(wrong) = words.iter().find(|word| !VERSIONS.contains(word)) {
        return Err(format!("{wrong} is not a version there, use a list of 3, 4 and 5"));
    }
    if !VERSIONS.iter().all(|version| words.contains(version)) {
        let why = "clients of other versions are refused there: 3.1, 3.1.1 and 5.0 are all spoken";
        draft.leave_listener_unresolved(entry, why);
    }
    Ok(())
}

/// Reads the key `listener`: `PORT [ADDRESS]`. Port 0 with a path is a unix socket.
fn begin_listener(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    draft.scope.names_listener = true;
    let mut words = entry.text()?.split_whitespace();
    let port = words.next().unwrap_or_default();
    let host = words.next().filter(|word| !word.starts_with('#')).unwrap_or_default().to_string();
    let number: u16 = port.parse().map_err(|_| "use listener PORT [ADDRESS]".to_string())?;
    let key = entry.key.clone();
    let listener = draft.listener_of_entry(entry);
    listener.key = key;
    if number == 0 {
        (listener.kind, listener.path) = (DraftTransport::Unix, host);
    } else {
        (listener.host, listener.port) = (host, number.to_string());
    }
    Ok(())
}

/// Reads the port of the default listener, which exists without a `listener` line.
fn port(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    draft.scope.names_listener = true;
    let number: u16 = entry.text()?.parse().map_err(|_| "use a port, 1 to 65535".to_string())?;
    let key = entry.key.clone();
    let listener = draft.default_listener(entry);
    (listener.key, listener.port) = (key, number.to_string());
    listener.is_off |= number == 0;
    Ok(())
}

fn bind_address(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    draft.scope.names_listener = true;
    let (host, key) = (entry.text()?.to_string(), entry.key.clone());
    let listener = draft.default_listener(entry);
    listener.host = host;
    if listener.key.is_empty() {
        listener.key = key;
    }
    Ok(())
}

fn bind_interface(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    let name = entry.text()?.to_string();
    draft.listener_of_entry(entry).interface = name;
    Ok(())
}

fn socket_domain(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    let word = match entry.text()? {
        word @ ("ipv4" | "ipv6") => word.to_string(),
        _ => return Err("no such domain, use ipv4 or ipv6".to_string()),
    };
    draft.listener_of_entry(entry).socket_domain = word;
    Ok(())
}

/// Reads a mount point. Without its namespace the listener would show all topics to all clients, so
/// an error closes the listener.
fn mount(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    let stands_for_itself = entry.text()?.contains("${");
    match mount_point(entry)? {
        _ if stands_for_itself => {
            let why =
                "mount_point: ${ stands for a name of the client's here, and for itself there";
            draft.listener_of_entry(entry).refusals.push(why.to_string());
        }
        ImportValue::Unsupported(why) => {
            draft.listener_of_entry(entry).refusals.push(format!("mount_point: {why}"))
        }
        said => match build_option(draft.catalog, "namespace", said, entry.note()) {
            Ok(setting) => put_setting(&mut draft.listener_of_entry(entry).settings, setting),
            Err(why) => draft.listener_of_entry(entry).refusals.push(format!("mount_point: {why}")),
        },
    }
    Ok(())
}

fn capath(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    draft.listener_of_entry(entry).has_tls_key = true;
    draft.report_unsupported(entry, "name the CAs in one file: tls.client_ca");
    Ok(())
}

fn require_certificate(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    let yes = is_true(entry.text()?)?;
    let listener = draft.listener_of_entry(entry);
    (listener.asks, listener.needs) = (yes, yes);
    Ok(())
}

/// Reads whether a certificate alone authenticates: then no password is needed, and a client
/// without a certificate is refused.
fn certificate(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>, what: &str) -> Result<(), String> {
    if is_true(entry.text()?)? {
        draft.push_listener_option("auth.certificate", ImportValue::Text(what.into()), entry);
        draft.push_listener_option("auth.users", ImportValue::Text(String::new()), entry);
        draft.push_listener_option("allow_anonymous", ImportValue::Text("false".into()), entry);
    } else if draft.listener_of_entry(entry).has("auth.certificate") {
        return Err("it takes back what stands before it, leave both out".to_string());
    }
    Ok(())
}

fn subject_certificate(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    certificate(draft, entry, "subject")?;
    if is_true(entry.text()?)? {
        draft.leave_listener_unresolved(entry, super::SUBJECT_FORMS);
    }
    Ok(())
}

fn psk_file(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    draft.scope.has_security = true;
    let (path, note) = (entry.text()?.to_string(), entry.note());
    let listener = entry.names.first().cloned().unwrap_or_default();
    let file = PskFile { path, note, listener };
    match draft.scope.per_listener {
        true => draft.listener_of_entry(entry).psk_file = Some((file.path, file.note)),
        false => draft.scope.psk_file = Some(file),
    }
    Ok(())
}

fn psk_hint(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    draft.listener_of_entry(entry).has_psk_hint = true;
    draft.report_unsupported(entry, "no hint is sent");
    Ok(())
}

/// Completes the listeners after all lines were read.
pub(crate) fn finish(draft: &mut ConfigDraft) {
    let scope = std::mem::take(&mut draft.scope);
    let mut listeners = std::mem::take(&mut draft.listeners);
    let without = listeners.len() == 1 && listeners[0].key.is_empty();
    if without {
        // Without a `listener` line mosquitto listens on loopback only.
        let only = &mut listeners[0];
        (only.host, only.port) = ("127.0.0.1".to_string(), "1883".to_string());
        only.key = "its listener without a word".to_string();
    }
    let any_hint = listeners.iter().any(|listener| listener.has_psk_hint);
    for listener in &mut listeners {
        if !listener.key.is_empty() && listener.port.is_empty() {
            listener.port = "1883".to_string();
        }
        reach(listener);
        keys(listener, &scope, any_hint);
        const TLS: &[&str] = &["tls.certificate", "tls.key", "tls.client_ca"];
        let has_any = listener.has_tls_key || TLS.iter().any(|key| listener.has(key));
        if has_any && !(listener.has("tls.certificate") && listener.has("tls.key")) {
            let why = "it is to speak TLS, and certfile and keyfile are not both named";
            listener.refusals.push(why.to_string());
        }
        let shows = listener.needs && listener.asks || listener.has("tls.psk_file");
        if listener.has("auth.certificate") && !shows {
            let why = "nobody comes in by a certificate or a key that clients are not asked for";
            listener.refusals.push(why.to_string());
        }
    }
    draft.listeners = listeners;
    default_of_anonymous(draft, &scope);
    mounted_rules(draft);
    unchecked_names(draft, &scope);
}

/// Leaves rules with a mount point unresolved: mosquitto's rules apply to topics including the
/// mount point, and rules here to the topics that clients use.
fn mounted_rules(draft: &mut ConfigDraft) {
    let of_all = draft.setting("acl.file").map(|there| there.note.clone());
    let (mut listeners, mut missing) = (std::mem::take(&mut draft.listeners), Vec::new());
    for listener in &mut listeners {
        let find = |key: &str| listener.settings.iter().find(|there| there.key == key);
        let rules = find("acl.file").map(|there| there.note.clone()).or_else(|| of_all.clone());
        let (Some(mount), Some(rules)) = (find("namespace"), rules) else { continue };
        let what = format!(
            "{}: its rules ({rules}) are about topics with the mount point in front there, and \
             here about those that the client names: give the [[listener]] an acl.file of its own \
             without the mount point",
            mount.note
        );
        missing.push(unsupported_of_note(
            &mount.note,
            "rules of acl_file name it in front of their topics",
        ));
        listener.demands.unresolved.push(what);
    }
    draft.listeners = listeners;
    draft.missing.extend(missing);
}

/// Handles user names without a password file. mosquitto trusts such a name: rules for users apply
/// to it, and rules for clients without a name do not. Here a name needs authentication, so clients
/// with a name are refused.
fn unchecked_names(draft: &mut ConfigDraft, scope: &ListenerScope) {
    const WHY: &str = "there a user name counts without a password, and here nobody's does: \
                       clients with a name are refused until godwit passwd FILE USER adds them";
    let says = |settings: &[DraftSetting], key: &str, text: Option<&str>| {
        let found = settings.iter().find(|there| there.key == key);
        found.is_some_and(|there| text.is_none_or(|text| there.value.text() == text))
    };
    let note_of = |settings: &[DraftSetting]| {
        let rules = settings.iter().find(|there| there.key == "acl.file")?;
        let is_checked = says(settings, "auth.users", None);
        (!is_checked).then(|| format!("{} ({WHY})", rules.note))
    };
    let is_open = |settings: &[DraftSetting]| says(settings, "allow_anonymous", Some("true"));
    if scope.per_listener {
        for listener in draft.listeners.iter_mut().filter(|one| is_open(&one.settings)) {
            listener.unchecked_names = note_of(&listener.settings);
        }
        return;
    }
    let is_local = !scope.names_listener;
    let any_open = draft.listeners.iter().any(|one| is_open(&one.settings));
    if is_local || any_open || is_open(&draft.settings) {
        draft.unchecked_names = note_of(&draft.settings);
        if is_local && draft.unchecked_names.is_some() {
            draft.imply_once("allow_anonymous", "true", "what it is there without a listener");
        }
    }
}

const NO_WORD: &str = "what it is there without a word, where a listener is named";

/// Sets mosquitto 2's default of `allow_anonymous`: false as soon as a listener is named. (Before
/// 2.0 the default was true; the file does not show the version.)
fn default_of_anonymous(draft: &mut ConfigDraft, scope: &ListenerScope) {
    if !scope.names_listener {
        return;
    }
    if !scope.per_listener {
        if draft.setting("allow_anonymous").is_none() {
            draft.add_implied("allow_anonymous", "false", NO_WORD);
        }
        return;
    }
    for listener in draft.listeners.iter_mut().filter(|one| !one.has("allow_anonymous")) {
        listener.add_implied("allow_anonymous", "false", NO_WORD);
    }
}

/// Sets the address of a listener by its `socket_domain`.
fn reach(listener: &mut DraftListener) {
    let is_v6 = |host: &str| host.contains(':');
    let is_v4 = |host: &str| host.parse::<std::net::Ipv4Addr>().is_ok();
    let domain = std::mem::take(&mut listener.socket_domain);
    match (domain.as_str(), listener.host.as_str()) {
        ("", _) | ("ipv4", "") => {}
        ("ipv4", "localhost") => listener.host = "127.0.0.1".to_string(),
        ("ipv6", "localhost") => listener.host = "::1".to_string(),
        ("ipv4", host) if is_v4(host) => {}
        ("ipv6", host) if is_v6(host) => {}
        _ => listener.refusals.push(format!(
            "socket_domain {domain}: name an address of that family, a listener for every address \
             takes both"
        )),
    }
    let interface = std::mem::take(&mut listener.interface);
    let is_loopback = matches!(&*listener.host, "127.0.0.1" | "::1" | "localhost");
    match interface.as_str() {
        "" => {}
        "lo" if listener.host.is_empty() => listener.host = "127.0.0.1".to_string(),
        "lo" if is_loopback => {}
        _ => listener.refusals.push(
            "bind_interface: a listener is reached by every interface: name the address of that \
             one in its place"
                .to_string(),
        ),
    }
}

/// Sets pre-shared keys as a replacement for certificates.
fn keys(listener: &mut DraftListener, scope: &ListenerScope, any_hint: bool) {
    let of_all = scope.psk_file.as_ref();
    let own = listener.psk_file.take();
    // Without any hint the file applies to the listener of its section.
    let stands_here = of_all.is_some_and(|file| file.listener == listener.id) || own.is_some();
    if !listener.has_psk_hint && (any_hint || !stands_here) {
        return;
    }
    let of_all = of_all.map(|file| (file.path.clone(), file.note.clone()));
    let Some((path, note)) = own.or(of_all) else {
        return listener.refusals.push("psk_hint without a psk_file: nobody has a key".to_string());
    };
    match build_option(listener.catalog, "tls.psk_file", ImportValue::Text(path), note) {
        Ok(setting) => put_setting(&mut listener.settings, setting),
        Err(why) => listener.refusals.push(format!("psk_file: {why}")),
    }
}
