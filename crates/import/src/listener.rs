//! Listeners of the original, written as `[[listener]]`.

use super::config_tree::{ConfigEntry, SourceLocation};
use super::draft::{
    ConfigDraft, DraftSetting, UnsupportedKey, build_option, put_implied, put_setting,
};
use super::row::ImportValue;
use config::catalog::OptionCatalog;
use config::listen_url::ListenUrl;

/// Requirements of the original for clients, set by importers from the input, also for parts that
/// are not carried over: `check` compares the written options with them.
#[derive(Clone, Debug, Default)]
pub(super) struct ClientRequirements {
    /// Whether clients must be authenticated.
    pub(super) credentials: bool,
    /// Whether clients must present a certificate or use a pre-shared key.
    pub(super) client_certificate: bool,
    /// Whether only roots of the CA file are trust anchors for client certificates, not
    /// intermediate CAs.
    pub(super) roots: bool,
    /// Whether clients must be confined to the topics of a mount point.
    pub(super) namespace: bool,
    /// Whether rules must limit publishes and subscriptions of clients.
    pub(super) rules: bool,
    /// Access decisions that are not carried over: the broker does not start before an operator has
    /// replaced them.
    pub(super) unresolved: Vec<String>,
}

impl ClientRequirements {
    /// Returns the union of two sets of requirements.
    pub(super) fn union(&self, other: &ClientRequirements) -> ClientRequirements {
        let mut unresolved = self.unresolved.clone();
        unresolved.extend(other.unresolved.iter().cloned());
        ClientRequirements {
            credentials: self.credentials || other.credentials,
            client_certificate: self.client_certificate || other.client_certificate,
            roots: self.roots || other.roots,
            namespace: self.namespace || other.namespace,
            rules: self.rules || other.rules,
            unresolved,
        }
    }
}

pub(super) struct DraftListener {
    /// Options of the program for which the draft is written.
    pub(super) catalog: &'static OptionCatalog,
    pub(super) id: String,
    pub(super) place: SourceLocation,
    pub(super) key: String,
    pub(super) host: String,
    /// Port as written; empty for the default port.
    pub(super) port: String,
    pub(super) path: String,
    pub(super) kind: DraftTransport,
    pub(super) is_off: bool,
    /// Whether the listener requests a client certificate (`asks`), and refuses clients without one
    /// (`needs`).
    pub(super) asks: bool,
    pub(super) needs: bool,
    pub(super) settings: Vec<DraftSetting>,
    /// Requirements in addition to `ConfigDraft::demands`.
    pub(super) demands: ClientRequirements,
    /// Setting by which clients are not authenticated.
    pub(super) asks_nobody: Option<String>,
    /// Setting by which only clients without a user name are refused.
    pub(super) refuses_nameless: Option<String>,
    /// Setting by which the listener has its own chain of authenticators.
    pub(super) own_chain: Option<String>,
    /// Options of the listener's own chain, if carried over completely.
    pub(super) own_backends: Option<Vec<DraftSetting>>,
    /// Part of the certificate verification that is not carried over.
    pub(super) unverified: Option<String>,
    /// Setting by which the original accepts user names without a password; such names do not count
    /// here.
    pub(super) unchecked_names: Option<String>,
    /// Why no client may connect to the listener.
    pub(super) closed: Option<String>,
    /// Why the listener must not be written: it would admit more clients than the original.
    pub(super) refusals: Vec<String>,
    /// Whether mosquitto's key `psk_hint` was read; evaluated after the last line.
    pub(super) has_psk_hint: bool,
    pub(super) has_tls_key: bool,
    pub(super) interface: String,
    pub(super) psk_file: Option<(String, String)>,
    pub(super) socket_domain: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DraftTransport {
    /// TCP, with TLS if there is a certificate.
    Plain,
    Quic,
    Tls,
    Unix,
    /// WebSocket, with TLS if there is a certificate.
    Web,
    WebTls,
}

impl DraftListener {
    /// Whether clients must present a certificate. MsQuic requires a certificate whenever it asks
    /// for one.
    pub(super) fn demands_certificate(&self) -> bool {
        self.asks && (self.needs || self.kind == DraftTransport::Quic)
    }

    /// Whether the original has a key for the listener.
    fn is_named(&self) -> bool {
        !self.key.is_empty() || !self.settings.is_empty()
    }

    pub(super) fn new(
        catalog: &'static OptionCatalog,
        id: &str,
        place: &SourceLocation,
    ) -> DraftListener {
        let kind = match id.split('.').next().unwrap_or_default() {
            "quic" => DraftTransport::Quic,
            "ssl" | "tls" => DraftTransport::Tls,
            "ws" | "websocket" => DraftTransport::Web,
            "wss" => DraftTransport::WebTls,
            _ => DraftTransport::Plain,
        };
        DraftListener {
            catalog,
            id: id.to_string(),
            place: place.clone(),
            key: String::new(),
            host: String::new(),
            port: String::new(),
            path: String::new(),
            kind,
            is_off: false,
            asks: false,
            needs: false,
            settings: Vec::new(),
            demands: ClientRequirements::default(),
            asks_nobody: None,
            refuses_nameless: None,
            own_chain: None,
            own_backends: None,
            unverified: None,
            unchecked_names: None,
            closed: None,
            refusals: Vec::new(),
            has_psk_hint: false,
            has_tls_key: false,
            interface: String::new(),
            psk_file: None,
            socket_domain: String::new(),
        }
    }

    /// Returns the address of the original listener, as in an `[[imported]]` table.
    pub(super) fn address(&self) -> String {
        match ListenUrl::parse(&self.url()) {
            Ok(ListenUrl::Network { port, .. }) => {
                let host = match self.host.as_str() {
                    "" => "*".to_string(),
                    host if host.contains(':') && !host.starts_with('[') => format!("[{host}]"),
                    host => host.to_string(),
                };
                format!("{host}:{port}")
            }
            _ => self.path.clone(),
        }
    }

    /// Sets an option of the listener that follows from the absence of a key.
    pub(super) fn add_implied(&mut self, key: &'static str, text: &str, note: &str) {
        put_implied(self.catalog, &mut self.settings, key, text, note);
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.settings.iter().any(|setting| setting.key == key)
    }

    pub(super) fn url(&self) -> String {
        let secret = self.has("tls.certificate") || self.has("tls.psk_file");
        let scheme = match self.kind {
            DraftTransport::Plain if secret => "tls",
            DraftTransport::Plain => "tcp",
            DraftTransport::Quic => "quic",
            DraftTransport::Tls => "tls",
            DraftTransport::Unix => return format!("unix://{}", self.path),
            DraftTransport::Web if secret => "wss",
            DraftTransport::Web => "ws",
            DraftTransport::WebTls => "wss",
        };
        let host = match self.host.as_str() {
            "" => "0.0.0.0".to_string(),
            host if host.contains(':') && !host.starts_with('[') => format!("[{host}]"),
            host => host.to_string(),
        };
        let colon = if self.port.is_empty() { "" } else { ":" };
        format!("{scheme}://{host}{colon}{}{}", self.port, self.path)
    }
}

/// Reads the address of the listener to which the key belongs.
pub(super) fn read_bind(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    let id = draft.listener_of_entry(entry).id.clone();
    bind_at(&id, draft, entry)
}

/// Reads the address of the listener `id`: a port, `host:port`, `:port` or, for WebSocket,
/// `host:port/path`.
pub(super) fn bind_at(
    id: &str,
    draft: &mut ConfigDraft,
    entry: &ConfigEntry<'_>,
) -> Result<(), String> {
    let text = entry.text()?;
    let text = text.split_once("://").map_or(text, |(_, rest)| rest);
    let (place, path) = match text.find('/') {
        Some(at) => text.split_at(at),
        None => (text, ""),
    };
    let (host, port) = place.rsplit_once(':').unwrap_or(("", place));
    let number: u16 =
        port.parse().map_err(|_| "use HOST:PORT or a port, 1 to 65535".to_string())?;
    let key = entry.key.clone();
    let listener = draft.listener_by_id(id, &entry.node.place);
    listener.is_off |= number == 0;
    (listener.host, listener.port) = (host.to_string(), number.to_string());
    listener.key = key;
    if !path.is_empty() {
        listener.path = path.to_string();
    }
    Ok(())
}

/// Reads whether the listener is enabled.
pub(super) fn read_enabled(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    let is_off = !super::units::is_true(entry.text()?)?;
    draft.listener_of_entry(entry).is_off |= is_off;
    Ok(())
}

pub(super) fn web_path(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    let path = entry.text()?.to_string();
    draft.listener_of_entry(entry).path = path;
    Ok(())
}

/// Reads the key `verify`: `verify_peer` or a true value requests client certificates.
pub(super) fn read_verify(draft: &mut ConfigDraft, entry: &ConfigEntry<'_>) -> Result<(), String> {
    let asks = match entry.text()? {
        "verify_peer" => true,
        "verify_none" => false,
        text => super::units::is_true(text)?,
    };
    draft.listener_of_entry(entry).asks = asks;
    Ok(())
}

pub(super) fn needs_certificate(
    draft: &mut ConfigDraft,
    entry: &ConfigEntry<'_>,
) -> Result<(), String> {
    let needs = super::units::is_true(entry.text()?)?;
    draft.listener_of_entry(entry).needs = needs;
    Ok(())
}

/// Completes the listeners after all entries are known.
pub(super) fn finish_listeners(draft: &mut ConfigDraft) {
    let catalog = draft.catalog;
    let tls = |setting: &&DraftSetting| setting.key.starts_with("tls.");
    let secret = draft.listeners.iter().find(|one| one.kind == DraftTransport::Tls);
    let (asks, needs) = secret.map_or((false, false), |one| (one.asks, one.needs));
    let files: Vec<DraftSetting> =
        secret.map_or(Vec::new(), |one| one.settings.iter().filter(tls).cloned().collect());
    let mut listeners = std::mem::take(&mut draft.listeners);
    for listener in &mut listeners {
        // NanoMQ's `wss` uses the certificate files of its `ssl`.
        if listener.kind == DraftTransport::WebTls && !listener.has("tls.certificate") {
            let more = files.iter().filter(|file| !listener.has(file.key)).cloned();
            let more: Vec<DraftSetting> = more.collect();
            listener.settings.extend(more);
            // Requirements of the listener itself remain.
            (listener.asks, listener.needs) = (listener.asks || asks, listener.needs || needs);
        }
        let note = format!("{} {}", listener.place, listener.key);
        let is_secret = matches!(
            listener.kind,
            DraftTransport::Tls | DraftTransport::WebTls | DraftTransport::Quic
        );
        if listener.demands_certificate() && is_secret && !listener.has("tls.client_ca") {
            listener.closed = Some(
                "clients need a certificate there, of an authority that is not named: name its \
                 file in tls.client_ca, with tls.client_certificate = \"required\""
                    .to_string(),
            );
        }
        if let Some(note) = listener.unverified.take().filter(|_| listener.asks) {
            listener.closed = Some(format!(
                "{note} refuses certificates there that would be good here: see tls.crl"
            ));
        }
        if listener.asks && listener.has("tls.client_ca") {
            let word = if listener.demands_certificate() { "required" } else { "optional" };
            let said = ImportValue::Text(word.to_string());
            if let Ok(setting) = build_option(catalog, "tls.client_certificate", said, note) {
                put_setting(&mut listener.settings, setting);
            }
        } else {
            let has_certificate = listener.has("tls.certificate");
            listener.settings.retain_mut(|setting| {
                // OpenSSL and Erlang complete the server's certificate chain from the CA file.
                if setting.key == "tls.client_ca" && has_certificate {
                    let file = ImportValue::Text(setting.value.text().to_string());
                    let chain = build_option(catalog, "tls.chain", file, setting.note.clone());
                    return chain.map(|chain| *setting = chain).is_ok();
                }
                let is_idle = ["tls.client_ca", "tls.crl"].contains(&setting.key);
                if is_idle {
                    let why = "clients are not asked for a certificate there, so it does nothing";
                    draft.missing.push(super::unsupported_of_note(&setting.note, why));
                }
                !is_idle
            });
        }
    }
    let had_any = listeners.iter().any(DraftListener::is_named);
    listeners.retain(|listener| is_writable(listener, draft));
    if had_any && listeners.is_empty() {
        // An empty `listen` disables this broker's default listener, which the original does not
        // have.
        let note = "none of its listeners can be written".to_string();
        if let Ok(setting) = build_option(catalog, "listen", ImportValue::List(Vec::new()), note) {
            put_setting(&mut draft.settings, setting);
        }
    }
    draft.listeners = listeners;
}

/// Whether a listener can be written; otherwise the reason is reported.
fn is_writable(listener: &DraftListener, draft: &mut ConfigDraft) -> bool {
    if listener.key.is_empty() && listener.settings.is_empty() {
        return false;
    }
    let url = listener.url();
    let needs_files = ["tls:", "wss:", "quic:"].iter().any(|scheme| url.starts_with(scheme));
    let has_files = listener.has("tls.certificate") && listener.has("tls.key");
    let why = match ListenUrl::parse(&url) {
        _ if listener.is_off => "it is switched off there".to_string(),
        _ if listener.key.is_empty() => "it says nowhere where it listens".to_string(),
        _ if !listener.refusals.is_empty() => {
            format!("the listener is not written: {}", listener.refusals.join("; "))
        }
        _ if listener.demands_certificate()
            && !(needs_files && listener.has("tls.client_certificate")) =>
        {
            "the listener is not written: clients need a certificate there, and no certificate of \
             its own and file of CAs to check it by is named"
                .to_string()
        }
        Err(why) => why,
        Ok(_) if listener.closed.is_some() => listener.closed.clone().unwrap_or_default(),
        Ok(_) if needs_files && !has_files && !listener.has("tls.psk_file") => {
            format!("{url} needs a certificate and a key, which are not named there")
        }
        Ok(_) => return true,
    };
    let key = if listener.key.is_empty() { &listener.id } else { &listener.key };
    let (place, key) = (listener.place.clone(), key.clone());
    draft.missing.push(UnsupportedKey { place, key, why });
    false
}
