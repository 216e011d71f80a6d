//! The tables `[[imported]]` of a file: requirements of another broker for the clients of a
//! listener, as `godwit import` found them.
//!
//! Invariant: options that require less than an entry are refused, at the start, by `check` and by
//! a reload, until the entry is changed or removed.

use super::file::OptionFileReader;
use super::settings::{ListenerSettings, ProgramSettings};
use super::{OptionError, OptionOrigin, OptionPlan};
use auth::settings::AnonymousAccess;
use config::listen_url::{ListenHost, ListenUrl};
use config::row::OptionRow;
use config::value::OptionKind;
use std::net::IpAddr;
use toml::de::DeTable;

/// A listener's requirements in a file written by `godwit import`, as read from the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ImportedListener {
    pub(super) listener: String,
    pub(super) credentials: bool,
    pub(super) client_certificate: bool,
    pub(super) roots: bool,
    pub(super) namespace: bool,
    pub(super) rules: bool,
    pub(super) unresolved: Vec<String>,
}

pub(crate) const IMPORTED: &[OptionRow<ImportedListener>] = &[
    OptionRow {
        key: "listener",
        kind: OptionKind::Text {
            of: "HOST:PORT or the path of a socket",
            check: |text| ListenerAddress::parse(text).map(drop),
        },
        default: "*:1883",
        live: true,
        also_for: &[],
        short: "where the other broker listened: an address and a port, or the path of a socket",
        long: "`*` is every address. A listener of this port must not be reachable from further \
               away.",
        source: "",
        set: |own, value| own.listener = value.text().into(),
    },
    OptionRow {
        key: "credentials",
        kind: OptionKind::Bool,
        default: "false",
        live: true,
        also_for: &[],
        short: "whether a client there had to prove who it is",
        long: "Then `allow_anonymous` must not let clients without a name in.",
        source: "",
        set: |own, value| own.credentials = value.bool(),
    },
    OptionRow {
        key: "client_certificate",
        kind: OptionKind::Bool,
        default: "false",
        live: true,
        also_for: &[],
        short: "whether a client there had to show a certificate, or that it has a key",
        long: "Then the listener needs `tls.client_certificate = \"required\"` or `tls.psk_file`.",
        source: "",
        set: |own, value| own.client_certificate = value.bool(),
    },
    OptionRow {
        key: "roots",
        kind: OptionKind::Bool,
        default: "false",
        live: true,
        also_for: &[],
        short: "whether only roots, and CAs that lead to one, vouched for clients there",
        long: "Then `tls.client_ca` must not have a certificate that another one has issued \
               without that other one. OpenSSL, and with it mosquitto, trusts none of these; here \
               whatever stands in the file is trusted itself.",
        source: "",
        set: |own, value| own.roots = value.bool(),
    },
    OptionRow {
        key: "namespace",
        kind: OptionKind::Bool,
        default: "false",
        live: true,
        also_for: &[],
        short: "whether clients there saw the topics of a mount point alone",
        long: "Then the listener needs a `namespace`.",
        source: "",
        set: |own, value| own.namespace = value.bool(),
    },
    OptionRow {
        key: "rules",
        kind: OptionKind::Bool,
        default: "false",
        live: true,
        also_for: &[],
        short: "whether rules there said what clients may publish and subscribe",
        long: "Then the listener needs `acl.file`, or a backend that brings rules.",
        source: "",
        set: |own, value| own.rules = value.bool(),
    },
    OptionRow {
        key: "unresolved",
        kind: OptionKind::List { of: "texts", check: |_| Ok(()) },
        default: "",
        live: true,
        also_for: &[],
        short: "what decided there about access and could not be carried over",
        long: "Nothing starts while there is any: put something in its place, or decide to do \
               without it, and take it out of the list.",
        source: "",
        set: |own, value| own.unresolved = value.list().to_vec(),
    },
];

/// Address of an imported listener: `*` is a host of `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ListenerAddress {
    Network { host: Option<ListenHost>, port: u16 },
    Unix { path: String },
}

impl ListenerAddress {
    fn parse(text: &str) -> Result<ListenerAddress, String> {
        const RIGHT: &str = "use ADDRESS:PORT, *:PORT or the path of a socket";
        if text.starts_with('/') {
            return Ok(ListenerAddress::Unix { path: text.to_string() });
        }
        if let Some(port) = text.strip_prefix("*:") {
            let port = port.parse().map_err(|_| RIGHT.to_string())?;
            return Ok(ListenerAddress::Network { host: None, port });
        }
        match ListenUrl::parse(&format!("tcp://{text}")) {
            Ok(ListenUrl::Network { host, port, .. }) if text.contains(':') => {
                Ok(ListenerAddress::Network { host: Some(host), port })
            }
            _ => Err(RIGHT.to_string()),
        }
    }

    /// Whether a listener has the same port or path.
    fn matches(&self, url: &ListenUrl) -> bool {
        match (self, url) {
            (ListenerAddress::Network { port, .. }, ListenUrl::Network { port: own, .. }) => {
                port == own
            }
            (ListenerAddress::Unix { path }, ListenUrl::Unix { path: own }) => {
                own.to_str() == Some(path)
            }
            _ => false,
        }
    }

    /// Whether every client that can reach the listener `url` could reach this imported listener.
    fn covers(&self, url: &ListenUrl) -> bool {
        let (ListenerAddress::Network { host, .. }, ListenUrl::Network { host: own, .. }) =
            (self, url)
        else {
            return self.matches(url);
        };
        let is_any = |address: &IpAddr| address.is_unspecified();
        self.matches(url)
            && match (host, own) {
                (None, _) => true,
                (Some(ListenHost::Address(all)), ListenHost::Address(own)) if is_any(all) => {
                    // A socket for all IPv6 addresses accepts IPv4 as well.
                    all.is_ipv6() || own.is_ipv4() || own.is_loopback()
                }
                (Some(ListenHost::Address(all)), _) if is_any(all) => true,
                (Some(ListenHost::Address(host)), _) if host.is_loopback() => url.is_loopback(),
                (Some(ListenHost::Name(host)), _) if host == "localhost" => url.is_loopback(),
                (Some(host), own) => host == own,
            }
    }
}

impl ImportedListener {
    fn address(&self) -> Option<ListenerAddress> {
        ListenerAddress::parse(&self.listener).ok()
    }

    /// Returns the requirements of this `[[imported]]` table that a listener does not meet.
    fn unmet_requirements(
        &self,
        listener: &ListenerSettings,
        settings: &ProgramSettings,
    ) -> Vec<String> {
        let (url, mut all) = (&listener.url, Vec::new());
        if self.credentials && listener.admits_nameless() {
            all.push(format!(
                "{url} lets in clients that do not prove who they are, and before the import \
                 they had to: set allow_anonymous = \"false\" and name users with auth.users, or \
                 set credentials = false here to accept it"
            ));
        }
        if self.client_certificate && !listener.requires_credentials() {
            all.push(format!(
                "{url} asks clients for no certificate and no key, and before the import they \
                 needed one: set tls.client_certificate = \"required\" or tls.psk_file, or set \
                 client_certificate = false here to accept it"
            ));
        }
        let rootless = match self.roots {
            true => listener.transport.tls.authorities_without_root(),
            false => Vec::new(),
        };
        all.extend(rootless.first().map(|subject| {
            format!(
                "{url} trusts {subject} of tls.client_ca itself, and before the import it trusted \
                 roots alone: put the root into the file, or set roots = false here to accept it"
            )
        }));
        let options = listener.broker.as_deref().unwrap_or(&settings.broker);
        if self.namespace && options.namespace.is_none() {
            all.push(format!(
                "{url} shows clients every topic, and before the import it showed them those of \
                 a mount point: give it a namespace, or set namespace = false here to accept it"
            ));
        }
        if self.rules && !listener.security.has_rules() {
            all.push(format!(
                "{url} has no rules of who may publish and subscribe what, and before the import \
                 it had: name them with acl.file, or set rules = false here to accept it"
            ));
        }
        all
    }
}

/// Returns the requirements that all entries share, for a listener without an entry.
fn shared_requirements(entries: &[(OptionOrigin, ImportedListener)]) -> ImportedListener {
    let all = |asks: fn(&ImportedListener) -> bool| entries.iter().all(|(_, one)| asks(one));
    ImportedListener {
        credentials: all(|one| one.credentials),
        client_certificate: all(|one| one.client_certificate),
        roots: all(|one| one.roots),
        namespace: all(|one| one.namespace),
        rules: all(|one| one.rules),
        ..ImportedListener::default()
    }
}

impl ListenerSettings {
    /// Whether a client may connect without authentication by name, whatever its transport proves.
    fn admits_nameless(&self) -> bool {
        match self.anonymous {
            AnonymousAccess::Always => true,
            AnonymousAccess::Loopback => !self.security.requires_authentication(),
            AnonymousAccess::Never => false,
        }
    }
}

impl OptionFileReader<'_> {
    pub(super) fn read_imported(&mut self, at: usize, table: &DeTable<'_>) {
        if let Some(own) = self.read_settings(IMPORTED, at, table) {
            let origin = self.origin(at);
            self.plan.imported.push((origin, own));
        }
    }
}

impl OptionPlan {
    /// Checks that every listener requires as much as before the import.
    pub(super) fn check_imported(&self, settings: &ProgramSettings, wrongs: &mut Vec<OptionError>) {
        let Some((first, _)) = self.imported.first() else { return };
        for (origin, entry) in &self.imported {
            wrongs.extend(entry.unresolved.iter().map(|what| OptionError {
                origin: origin.clone(),
                why: format!(
                    "unresolved: {what}: it decided about access and is not carried over: put \
                     something in its place and take this out of the list"
                ),
            }));
        }
        for listener in &settings.listeners {
            let same = self.imported.iter().filter_map(|(origin, entry)| {
                let address = entry.address()?;
                address.matches(&listener.url).then_some((origin, entry, address))
            });
            let same: Vec<_> = same.collect();
            let covering = same.iter().filter(|(.., address)| address.covers(&listener.url));
            // An entry for the same address takes precedence over an entry for all addresses.
            let nearest = covering.min_by_key(|(.., address)| match address {
                ListenerAddress::Network { host: None, .. } => 2,
                ListenerAddress::Network { host: Some(ListenHost::Address(all)), .. } => {
                    u8::from(all.is_unspecified())
                }
                _ => 0,
            });
            let (origin, whys) = match (nearest, same.first()) {
                (Some((origin, entry, _)), _) => {
                    (*origin, entry.unmet_requirements(listener, settings))
                }
                (None, Some((origin, entry, _))) => {
                    let why = format!(
                        "{} can be reached from further away than before the import, when it \
                         was {}: listen there, or change listener here to accept it",
                        listener.url, entry.listener
                    );
                    (*origin, vec![why])
                }
                (None, None) => (
                    first,
                    shared_requirements(&self.imported).unmet_requirements(listener, settings),
                ),
            };
            wrongs.extend(whys.into_iter().map(|why| OptionError { origin: origin.clone(), why }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::OptionSources;
    use super::*;

    #[test]
    fn an_address_covers_what_only_its_clients_reach() {
        for (entry, url, covers) in [
            ("*:1883", "tcp://0.0.0.0:1883", true),
            ("*:1883", "tcp://[::]:1883", true),
            ("*:1883", "tcp://0.0.0.0:1884", false),
            ("0.0.0.0:1883", "tls://10.0.0.1:1883", true),
            ("0.0.0.0:1883", "tcp://[::]:1883", false),
            ("0.0.0.0:1883", "tcp://[::1]:1883", true),
            ("[::]:1883", "tcp://0.0.0.0:1883", true),
            ("127.0.0.1:1883", "ws://[::1]:1883/mqtt", true),
            ("127.0.0.1:1883", "tcp://localhost:1883", true),
            ("localhost:1883", "tcp://127.0.0.1:1883", true),
            ("127.0.0.1:1883", "tcp://0.0.0.0:1883", false),
            ("127.0.0.1:1883", "tcp://broker.lan:1883", false),
            ("10.0.0.1:1883", "tcp://10.0.0.2:1883", false),
            ("10.0.0.1:1883", "tcp://10.0.0.1:1883", true),
            ("/run/mqtt.sock", "unix:///run/mqtt.sock", true),
            ("/run/mqtt.sock", "tcp://127.0.0.1:1883", false),
        ] {
            let address = ListenerAddress::parse(entry).unwrap();
            let url = ListenUrl::parse(url).unwrap();
            assert_eq!(address.covers(&url), covers, "{entry} {url}");
        }
        for wrong in ["", "1883", "*", "*:x", "tcp://127.0.0.1:1883", "a b:1"] {
            assert!(ListenerAddress::parse(wrong).is_err(), "{wrong}");
        }
    }

    fn complaints(source: &str) -> Vec<String> {
        let folder = std::env::temp_dir().join(format!("godwit-imported-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("godwit.toml");
        std::fs::write(&path, source).unwrap();
        let read =
            OptionPlan::read(&OptionSources { config: Some(path), ..OptionSources::default() });
        let wrongs = read.err().unwrap_or_default();
        let shown = format!("{}/", folder.display());
        wrongs.iter().map(|wrong| wrong.to_string().replace(&shown, "")).collect()
    }

    #[test]
    fn a_listener_that_asks_for_less_than_before_is_refused() {
        const USERS: &str = "auth.users = \"users\"\n";
        const LOCAL: &str = "[[listener]]\nurl = \"tcp://127.0.0.1:1883\"\n";
        const WIDE: &str = "[[listener]]\nurl = \"tcp://0.0.0.0:1883\"\n";
        const ENTRY: &str = "[[imported]]\nlistener = \"127.0.0.1:1883\"\n";
        let with = |line: &str| format!("{ENTRY}{line}\n");
        let other = |port: u16| format!("[[imported]]\nlistener = \"*:{port}\"\n");
        const CERTIFICATE: &str = "3: tcp://127.0.0.1:1883 asks clients for no certificate";
        for (options, listener, entry, wanted) in [
            ("", LOCAL, ENTRY.to_string(), None),
            (USERS, WIDE, ENTRY.to_string(), Some("4: tcp://0.0.0.0:1883 can be reached from")),
            ("", LOCAL, with("credentials = true"), Some("3: tcp://127.0.0.1:1883 lets")),
            (USERS, LOCAL, with("credentials = true"), None),
            ("", LOCAL, with("rules = true"), Some("3: tcp://127.0.0.1:1883 has no rules")),
            ("acl.file = \"rules\"\n", LOCAL, with("rules = true"), None),
            ("", LOCAL, with("namespace = true"), Some("3: tcp://127.0.0.1:1883 shows clients")),
            ("namespace = \"a\"\n", LOCAL, with("namespace = true"), None),
            ("", LOCAL, with("client_certificate = true"), Some(CERTIFICATE)),
            ("", LOCAL, with("unresolved = [\"plugin\"]"), Some("3: unresolved: plugin: it")),
            // A listener on another port must meet the requirements of all entries.
            ("", LOCAL, other(9) + "credentials = true\n", Some("3: tcp://127.0.0.1:1883 lets")),
            ("", LOCAL, other(9) + "credentials = true\n" + &other(8), None),
            ("", LOCAL, format!("[[imported]]\ncredentials = true\n{ENTRY}"), None),
        ] {
            let found = complaints(&format!("{options}{listener}{entry}"));
            match wanted {
                None => assert_eq!(found, [""; 0], "{options}{listener}{entry}"),
                Some(wanted) => {
                    let wanted = format!("godwit.toml:{wanted}");
                    let is_so = found.len() == 1 && found[0].starts_with(&wanted);
                    assert!(is_so, "{found:?}, {wanted}");
                }
            }
        }
        let found = complaints("[[imported]]\nlistener = \"1883\"\n");
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("use ADDRESS:PORT, *:PORT or the path of a socket"), "{found:?}");
    }
}
