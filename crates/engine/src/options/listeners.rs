//! Options of the layers below MQTT of a listener: TLS, a PROXY header, QUIC, the permissions of a
//! unix socket. All of them may also stand in a `[[listener]]`, for this listener alone, and so may
//! some of other sections.

use super::{EngineOptionTables, EngineOptionTarget};
use crate::proxy::ProxyVersions;
use crate::tls::{ClientCertificateMode, TlsVersionMin};
use config::row::{KIB, MIB, OptionRow, OptionScope, PATH, bytes, count};
use config::value::{OptionKind, file_mode};

const FILES: OptionKind = OptionKind::List { of: "paths", check: |_| Ok(()) };

impl<S: EngineOptionTarget + 'static> EngineOptionTables<S> {
    /// Rows of the options of listener transports, such as `tls.certificate`; each sets a field of
    /// `ListenerTransportSettings`.
    pub const LISTENERS: &'static [OptionRow<S>] = &[
        OptionRow {
            key: "tls.certificate",
            kind: FILES,
            default: "",
            live: true,
            also_for: &[OptionScope::Listener],
            short: "certificates of tls listeners, PEM or DER, each with the chain below it",
            long: "With several a client gets the first that has the name it asks for (SNI) and a \
                   kind of key that it understands; the first is for everyone else. SIGHUP reads \
                   the files again: handshakes from then on use the new ones, and nobody is \
                   dropped.",
            source: "RFC 6066, 3",
            set: |settings, value| {
                settings.transport().tls.certificates =
                    value.list().iter().map(Into::into).collect();
            },
        },
        OptionRow {
            key: "tls.chain",
            kind: FILES,
            default: "",
            live: true,
            also_for: &[OptionScope::Listener],
            short: "certificates that complete the chain of tls.certificate, PEM or DER",
            long: "A listener shows its certificate and those that lead from it to a CA. Where a \
                   file of `tls.certificate` has only the first of them, the others are looked \
                   for here and in `tls.client_ca`, as OpenSSL looks for them in its file of \
                   CAs. A root is never shown.",
            source: "RFC 8446, 4.4.2",
            set: |settings, value| {
                settings.transport().tls.chain = value.list().iter().map(Into::into).collect();
            },
        },
        OptionRow {
            key: "tls.client_ca",
            kind: PATH,
            default: "",
            live: true,
            also_for: &[OptionScope::Listener],
            short: "certificates of the CAs that may vouch for clients, PEM or DER",
            long: "A certificate here that is not a CA's (basicConstraints CA:FALSE) is accepted \
                   itself and vouches for no other. A client's certificate of X.509 version 1 is \
                   accepted where a CA of this file signed it.",
            source: "",
            set: |settings, value| settings.transport().tls.client_authorities = path(value.text()),
        },
        OptionRow {
            key: "tls.client_certificate",
            kind: OptionKind::Choice(&["off", "optional", "required"]),
            default: "off",
            live: true,
            also_for: &[OptionScope::Listener],
            short: "whether clients show a certificate",
            long: "`optional` lets in who shows none; a certificate that is expired, revoked, \
                   for another use or from another CA ends the handshake all the same. A \
                   listener that requires one may be reached from other hosts without \
                   `allow_anonymous`.",
            source: "MQTT 5.0, 5.4.1",
            set: |settings, value| {
                settings.transport().tls.client = match value.text() {
                    "optional" => ClientCertificateMode::Optional,
                    "required" => ClientCertificateMode::Required,
                    _ => ClientCertificateMode::Off,
                }
            },
        },
        OptionRow {
            key: "tls.crl",
            kind: FILES,
            default: "",
            live: true,
            also_for: &[OptionScope::Listener],
            short: "lists of revoked client certificates, PEM or DER",
            long: "With any list a client's CA must have one, and an outdated list lets nobody \
                   in: it does not say what was revoked since. SIGHUP reads them again; who is \
                   connected stays.",
            source: "RFC 5280, 5",
            set: |settings, value| {
                settings.transport().tls.revoked = value.list().iter().map(Into::into).collect();
            },
        },
        OptionRow {
            key: "tls.key",
            kind: FILES,
            default: "",
            live: true,
            also_for: &[OptionScope::Listener],
            short: "private keys of the certificates, PEM or DER, in the same order",
            long: "PKCS #8, PKCS #1 or SEC 1, without a password: RSA, ECDSA P-256 or P-384, \
                   Ed25519. ECDSA costs a tenth of RSA's handshake.",
            source: "",
            set: |settings, value| {
                settings.transport().tls.keys = value.list().iter().map(Into::into).collect();
            },
        },
        OptionRow {
            key: "tls.psk_file",
            kind: OptionKind::Text { of: "a path", check: psk_file },
            default: "",
            live: true,
            also_for: &[OptionScope::Listener],
            short: "keys that clients of tls listeners have too, in place of certificates \
                    (TLS-PSK)",
            long: "Lines `IDENTITY:KEY`, the key in hexadecimal, as in a psk_file of \
                   mosquitto's. Who has no such key does not get in, so the listener may be \
                   reached from other hosts without `allow_anonymous`; the identity counts as a \
                   certificate's common name (`auth.certificate`). TLS 1.2 only. A listener that \
                   has it makes no use of `tls.certificate`; to have both give each a \
                   `[[listener]]`. SIGHUP reads the file again, and nobody is dropped. Needs a \
                   build with `--features psk`, which links OpenSSL.",
            source: "RFC 4279",
            set: |settings, value| settings.transport().psk_file = path(value.text()),
        },
        OptionRow {
            key: "tls.version_min",
            kind: OptionKind::Choice(&["1.2", "1.3"]),
            default: "1.2",
            live: true,
            also_for: &[OptionScope::Listener],
            short: "the oldest version of TLS that is spoken",
            long: "",
            source: "RFC 8996",
            set: |settings, value| {
                let oldest =
                    if value.text() == "1.3" { TlsVersionMin::V13 } else { TlsVersionMin::V12 };
                settings.transport().tls.version_min = oldest;
            },
        },
        OptionRow {
            key: "proxy.protocol",
            kind: OptionKind::Choice(&["off", "v1", "v2", "auto"]),
            default: "off",
            live: true,
            also_for: &[OptionScope::Listener],
            short: "PROXY protocol header that every connection must begin with",
            long: "The address in it counts as the client's. `auto` takes both versions. Whoever \
                   can reach the listener can claim any address: let only the proxy reach it.",
            source: "",
            set: |settings, value| {
                settings.transport().proxy = match value.text() {
                    "v1" => Some(ProxyVersions::V1),
                    "v2" => Some(ProxyVersions::V2),
                    "auto" => Some(ProxyVersions::Both),
                    _ => None,
                }
            },
        },
        OptionRow {
            key: "quic.early_data",
            kind: OptionKind::Bool,
            default: "false",
            live: true,
            also_for: &[OptionScope::Listener],
            short: "whether a client that comes back may say something in its first datagram \
                    (0-RTT)",
            long: "It saves a round trip. What is said so early has no forward secrecy. Sessions \
                   are kept by the broker then, 4096 at most, and each is good for once, so that \
                   nobody can say it again. Where clients are asked for certificates there is \
                   none.",
            source: "RFC 8446, 8",
            set: |settings, value| settings.transport().quic.early_data = value.bool(),
        },
        OptionRow {
            key: "quic.idle_timeout_ms",
            kind: count(0, 86_400_000, "milliseconds"),
            default: "0",
            live: true,
            also_for: &[OptionScope::Listener],
            short: "silence after which a connection of quic ends; 0 is never",
            long: "The client may ask for less. Silence is that of QUIC, which its clients can \
                   break without a packet of MQTT; MQTT's keep-alive counts beside it.",
            source: "RFC 9000, 10.1",
            set: |settings, value| settings.transport().quic.idle_timeout_ms = value.u32(),
        },
        OptionRow {
            key: "quic.streams_max",
            kind: count(1, 1000, "streams"),
            default: "10",
            live: true,
            also_for: &[OptionScope::Listener],
            short: "streams of a connection of quic that may be open at once",
            long: "The first one carries CONNECT and what belongs to the connection. On each \
                   other one a client may publish and subscribe as well, with packet ids of its \
                   own: what it subscribes to there comes there, until it ends the stream.",
            source: "RFC 9000, 4.6",
            set: |settings, value| settings.transport().quic.streams_max = value.u32(),
        },
        OptionRow {
            key: "quic.window_bytes",
            kind: bytes(4 * KIB, 16 * MIB),
            default: "64KiB",
            live: true,
            also_for: &[OptionScope::Listener],
            short: "what a client of quic may send ahead of what is read",
            long: "All streams of a connection together; one stream half of it. So much a round \
                   trip is the most that a client gets through, and so much memory it can make \
                   the broker hold by leaving gaps.",
            source: "RFC 9000, 4.1",
            set: |settings, value| settings.transport().quic.window_bytes = value.u32(),
        },
        OptionRow {
            key: "unix.mode",
            kind: OptionKind::Text {
                of: "a file mode like \"660\"",
                check: |text| file_mode(text).map(drop),
            },
            default: "660",
            live: false,
            also_for: &[OptionScope::Listener],
            short: "permissions of the files of unix listeners",
            long: "Who may write to the file may connect.",
            source: "",
            set: |settings, value| {
                settings.transport().unix_mode =
                    file_mode(value.text()).expect("the row has checked it");
            },
        },
        OptionRow {
            key: "ws.address_header",
            kind: OptionKind::Text {
                of: "a header's name like \"x-forwarded-for\"",
                check: header,
            },
            default: "",
            live: true,
            also_for: &[OptionScope::Listener],
            short: "request header in which a proxy names its client",
            long: "Of several addresses in it the first counts, as the client's: for bans, \
                   limits, rules and the log. A request without it comes from the address that \
                   it comes from; one whose header has no IP address is refused with 400. \
                   Whoever can reach the listener can claim any address: let only the proxy \
                   reach it, and let the proxy replace the header instead of adding to it. \
                   Empty, no header counts.",
            source: "RFC 7239, 7.4",
            set: |settings, value| {
                let name = value.text();
                settings.transport().ws_address_header =
                    (!name.is_empty()).then(|| name.to_string());
            },
        },
        OptionRow {
            key: "ws.origins",
            kind: OptionKind::List { of: "origins like \"https://example.org\"", check: origin },
            default: "",
            live: true,
            also_for: &[OptionScope::Listener],
            short: "whose pages may connect by WebSocket",
            long: "A browser says which page it acts for, as a scheme, a host and a port that is \
                   not the scheme's own, or `null` for a file; `*` stands for every page. \
                   Without a list every page may, but where a listener lets in who is on this \
                   host without proof (`allow_anonymous`): there only pages of this host may, \
                   because any page that somebody here looks at could connect otherwise. Other \
                   clients need not say an origin.",
            source: "RFC 6455, 10.2",
            set: |settings, value| settings.transport().ws_origins = value.list().to_vec(),
        },
    ];
}

fn path(text: &str) -> Option<std::path::PathBuf> {
    (!text.is_empty()).then(|| text.into())
}

fn psk_file(path: &str) -> Result<(), String> {
    match path.is_empty() || cfg!(feature = "psk") {
        true => Ok(()),
        false => {
            let why =
                "not in this build, use one with OpenSSL: cargo build --release --features psk";
            Err(why.to_string())
        }
    }
}

/// Checks the name of a header: a token of at most 100 bytes (RFC 9110, 5.1).
fn header(text: &str) -> Result<(), String> {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    match text.len() <= 100 && text.bytes().all(legal) {
        true => Ok(()),
        false => Err("no header's name, use one like \"x-forwarded-for\"".to_string()),
    }
}

fn origin(text: &str) -> Result<(), String> {
    let (scheme, host) = text.split_once("://").unwrap_or_default();
    let legal = |byte: u8| byte.is_ascii_graphic() && !b"/?#@\\*".contains(&byte);
    let is_one = !scheme.is_empty() && !host.is_empty() && host.bytes().all(legal);
    match is_one || text == "*" || text == "null" {
        true => Ok(()),
        false => Err("no origin, use one like \"https://example.org\", null or *".to_string()),
    }
}
