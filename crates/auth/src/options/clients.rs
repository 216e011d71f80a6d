//! Options of identity and permission: who may connect, and what they may do.

use super::{AuthOptionTables, AuthOptionTarget};
use crate::certificate::CertificateNameField;
use crate::jwt::{MatchedNames, TokenLocation};
use config::row::{ANY, OptionRow, OptionScope, PATH, count};
use config::value::{NumberUnit, OptionKind};

const KEYS: OptionKind = if cfg!(feature = "http") {
    OptionKind::Hidden(&OptionKind::Text { of: "a path or a URL", check: check_keys })
} else {
    PATH
};
const PARTS: &[&str] = &["off", "common_name", "subject", "alternative_name"];

fn part(word: &str) -> Option<CertificateNameField> {
    match word {
        "alternative_name" => Some(CertificateNameField::AlternativeName),
        "common_name" => Some(CertificateNameField::CommonName),
        "subject" => Some(CertificateNameField::Subject),
        _ => None,
    }
}

/// Checks a URL; a path is checked when the file is read.
fn check_keys(text: &str) -> Result<(), String> {
    #[cfg(feature = "http")]
    if text.contains("://") {
        use net::{http_client::SCHEMES, server_url::ServerUrl};
        return ServerUrl::parse(text, SCHEMES).map(|_| ());
    }
    let _ = text;
    Ok(())
}

impl<S: AuthOptionTarget + 'static> AuthOptionTables<S> {
    /// The option `acl.file`.
    pub(super) const ACL: &'static [OptionRow<S>] = &[OptionRow {
        key: "acl.file",
        kind: PATH,
        default: "",
        live: true,
        also_for: &[OptionScope::Listener],
        short: "file of rules: who may publish and subscribe what",
        long: "A file whose name ends in `.toml` has our rules, any other is read as an acl_file \
               of mosquitto's. What no rule allows, nor `acl.http_url`, is refused with 0x87. \
               SIGHUP reads it again, for connected clients too. docs/security.md explains both. \
               Without a file everyone may do everything.",
        source: "MQTT 5.0, 5.4.2",
        set: |settings, value| settings.security().acl_file = value.text().into(),
    }];
}

impl<S: AuthOptionTarget + 'static> AuthOptionTables<S> {
    /// Options of authentication.
    pub(super) const CLIENTS: &'static [OptionRow<S>] = &[
        OptionRow {
            key: "auth.certificate",
            kind: OptionKind::Choice(PARTS),
            default: "off",
            live: true,
            also_for: &[OptionScope::Listener],
            short: "what of a client's certificate is its user name",
            long: "On listeners that ask clients for a certificate. Of alternative names the first \
                   counts. A client without a certificate is for the other means of \
                   authentication. Of a client with a key (`tls.psk_file`) its identity is the \
                   common name, and there are no other names.",
            source: "MQTT 5.0, 5.4.1",
            set: |settings, value| settings.security().certificate_user = part(value.text()),
        },
        OptionRow {
            key: "auth.certificate_client_id",
            kind: OptionKind::Choice(PARTS),
            default: "off",
            live: true,
            also_for: &[OptionScope::Listener],
            short: "what of a client's certificate is its client id",
            long: "In place of the one that CONNECT has. Needs `auth.certificate`.",
            source: "MQTT 5.0, 5.4.1",
            set: |settings, value| settings.security().certificate_client_id = part(value.text()),
        },
        OptionRow {
            key: "auth.failures_max",
            kind: OptionKind::Number {
                min: 0,
                max: 1_000_000,
                unit: NumberUnit::Named("attempts"),
                word: Some(("off", 0)),
            },
            default: "20",
            live: true,
            also_for: &[],
            short: "wrong passwords of one address in a minute",
            long: "After so many the address is refused with 0x9F, whoever it is, and gets one \
                   attempt back every sixtieth of a minute times this number. An IPv6 address \
                   counts with its /64. `off` lets everyone guess as fast as passwords can be \
                   checked.",
            source: "",
            set: |settings, value| settings.security().limits.failures_max = value.u32(),
        },
        OptionRow {
            key: "auth.jwt_acl_claim",
            kind: ANY,
            default: "",
            live: true,
            also_for: &[OptionScope::Listener],
            short: "claim of a token that holds the client's own rules",
            long: "A list like `[{\"allow\": \"publish\", \"topic\": [\"a/#\"]}]`, with `qos` and \
                   `retain` as conditions, or as EMQX has it: rules with `permission` and \
                   `action`, or an object of `pub`, `sub` and `all`, beside which nothing is \
                   allowed. The rules of `acl.file` come after them. With a name here clients \
                   without rules may do nothing. Empty reads none.",
            source: "MQTT 5.0, 5.4.2",
            set: |settings, value| settings.security().jwt_claims.permissions = value.text().into(),
        },
        OptionRow {
            key: "auth.jwt_audience",
            kind: ANY,
            default: "",
            live: true,
            also_for: &[OptionScope::Listener],
            short: "who a token has to be for (`aud`)",
            long: "Empty takes any.",
            source: "MQTT 5.0, 5.4.1",
            set: |settings, value| settings.security().jwt_claims.audience = value.text().into(),
        },
        OptionRow {
            key: "auth.jwt_client_id_claim",
            kind: ANY,
            default: "",
            live: true,
            also_for: &[OptionScope::Listener],
            short: "claim of a token that is the client id",
            long: "In place of the one that CONNECT has; a token without it is refused. Empty \
                   leaves the client its own.",
            source: "MQTT 5.0, 5.4.1",
            set: |settings, value| settings.security().jwt_claims.client_id = value.text().into(),
        },
        OptionRow {
            key: "auth.jwt_from",
            kind: OptionKind::Choice(&["password", "user_name"]),
            default: "password",
            live: true,
            also_for: &[OptionScope::Listener],
            short: "where in CONNECT a token is",
            long: "What does not look like a token is left to the other means of authentication.",
            source: "MQTT 5.0, 5.4.1",
            set: |settings, value| {
                let name = value.text() == "user_name";
                settings.security().jwt_place =
                    if name { TokenLocation::UserName } else { TokenLocation::Password };
            },
        },
        OptionRow {
            key: "auth.jwt_groups_claim",
            kind: ANY,
            default: "",
            live: true,
            also_for: &[OptionScope::Listener],
            short: "claim of a token that names the client's groups",
            long: "A list of names, or one; a token without it is of no group. Empty reads none.",
            source: "",
            set: |settings, value| settings.security().jwt_claims.groups = value.text().into(),
        },
        OptionRow {
            key: "auth.jwt_issuer",
            kind: ANY,
            default: "",
            live: true,
            also_for: &[OptionScope::Listener],
            short: "who has to have issued a token (`iss`)",
            long: "Empty takes any.",
            source: "MQTT 5.0, 5.4.1",
            set: |settings, value| settings.security().jwt_claims.issuer = value.text().into(),
        },
        OptionRow {
            key: "auth.jwt_keys",
            kind: KEYS,
            default: "",
            live: true,
            also_for: &[OptionScope::Listener],
            short: "file or URL of keys: clients may come with a token (JWT)",
            long: "A JWK set, public keys in PEM, or a secret of at least 32 bytes; at a URL \
                   (`https://` or `http://`) a JWK set, see `auth.jwt_refresh_s`. Signatures: \
                   HS256, HS384, HS512, RS256 to RS512, PS256 to PS512, ES256, ES384, EdDSA, each \
                   by keys of its own kind only. A client goes with 0xA0 when its token expires. \
                   SIGHUP reads them again.",
            source: "MQTT 5.0, 5.4.1",
            set: |settings, value| settings.security().set_keys(value.text()),
        },
        #[cfg(feature = "http")]
        OptionRow {
            key: "auth.jwt_refresh_s",
            kind: count(1, 86_400, "seconds"),
            default: "300",
            live: true,
            also_for: &[OptionScope::Listener],
            short: "how often keys are fetched from a URL",
            long: "Also when a token names a key that is not there, at most every 10 seconds. Keys \
                   stay when others cannot be fetched. Before the first are there, tokens are \
                   refused with 0x88.",
            source: "",
            set: |settings, value| settings.security().jwt_refresh_s = value.u32(),
        },
        OptionRow {
            key: "auth.jwt_match",
            kind: OptionKind::Choice(&["off", "user_name", "client_id", "both"]),
            default: "off",
            live: true,
            also_for: &[OptionScope::Listener],
            short: "which names of CONNECT have to be those of the token",
            long: "Without it a client is whom its token names, whatever CONNECT says. With it a \
                   CONNECT with another name than the token's is refused.",
            source: "MQTT 5.0, 5.4.1",
            set: |settings, value| {
                let text = value.text();
                settings.security().jwt_claims.matched = MatchedNames {
                    user: ["user_name", "both"].contains(&text),
                    client_id: ["client_id", "both"].contains(&text),
                };
            },
        },
        OptionRow {
            key: "auth.jwt_namespace_claim",
            kind: ANY,
            default: "",
            live: true,
            also_for: &[OptionScope::Listener],
            short: "claim of a token that is the client's namespace",
            long: "In place of the one that its listener or its group has; a token without it is \
                   refused. Empty reads none.",
            source: "",
            set: |settings, value| settings.security().jwt_claims.namespace = value.text().into(),
        },
        OptionRow {
            key: "auth.jwt_user_claim",
            kind: ANY,
            default: "sub",
            live: true,
            also_for: &[OptionScope::Listener],
            short: "claim of a token that is the user name",
            long: "A token without it is refused.",
            source: "MQTT 5.0, 5.4.1",
            set: |settings, value| settings.security().jwt_claims.user = value.text().into(),
        },
        OptionRow {
            key: "auth.password_cache_s",
            kind: OptionKind::Number {
                min: 0,
                max: 86_400,
                unit: NumberUnit::Named("seconds"),
                word: Some(("off", 0)),
            },
            default: "300",
            live: true,
            also_for: &[],
            short: "how long a password that was right is not hashed again",
            long: "For clients that come back all at once. A keyed hash of the stored hash and the \
                   password is kept in memory, of at most 10,000 of them; SIGHUP forgets them. A \
                   user with another password is checked by that at once, as without. Wrong \
                   passwords, and the first ten in a second, are always hashed. `off` hashes each.",
            source: "",
            set: |settings, value| settings.security().password_cache_s = value.u32(),
        },
        OptionRow {
            key: "auth.queue_max",
            kind: count(1, 1_000_000, "clients"),
            default: "1000",
            live: true,
            also_for: &[],
            short: "clients that wait for their password to be checked",
            long: "Where more come, the one that has waited longest is refused with 0x89. A client \
                   that leaves waits no longer. Once somebody has waited for half a second the \
                   client that came last is served first.",
            source: "",
            set: |settings, value| settings.security().limits.queue_max = value.u32() as usize,
        },
        OptionRow {
            key: "auth.threads",
            kind: OptionKind::Number {
                min: 0,
                max: 64,
                unit: NumberUnit::Named("threads"),
                word: Some(("auto", 0)),
            },
            default: "auto",
            live: true,
            also_for: &[],
            short: "threads that check passwords",
            long: "They exist while somebody waits. The first one gets up to a third of a core \
                   where shards need all of them, the others what is idle. `auto` is one for each \
                   core, up to 4. A password of `godwit passwd` takes some 4 ms and 8 MiB of one.",
            source: "",
            set: |settings, value| settings.security().limits.threads = usize::from(value.u16()),
        },
        OptionRow {
            key: "auth.timeout_ms",
            kind: count(100, 600_000, "milliseconds"),
            default: "5000",
            live: true,
            also_for: &[],
            short: "how long a client waits to be let in",
            long: "A client of whom nobody can say by then whether it may connect is refused with \
                   0x88. What `acl.http_url` is asked about waits as long, and is refused with \
                   0x87.",
            source: "MQTT 5.0, 3.1.4",
            set: |settings, value| settings.broker().verdict_timeout_ms = value.u32(),
        },
        OptionRow {
            key: "auth.users",
            kind: PATH,
            default: "",
            live: true,
            also_for: &[OptionScope::Listener],
            short: "file of users and hashed passwords",
            long: "`godwit passwd FILE USER` writes it; files of mosquitto_passwd are read too. \
                   SIGHUP reads it again, for whoever connects from then on.",
            source: "MQTT 5.0, 5.4.1",
            set: |settings, value| settings.security().users = value.text().into(),
        },
    ];
}

impl<S: AuthOptionTarget + 'static> AuthOptionTables<S> {
    /// Options of who may not come in.
    pub(super) const BANS: &'static [OptionRow<S>] = &[OptionRow {
        key: "bans.file",
        kind: PATH,
        default: "",
        live: true,
        also_for: &[],
        short: "file of clients, users and addresses that may not come in",
        long: "Tables `[[ban]]` with `client_id`, `user` or `address`, and, if wanted, `until` \
                   and `reason`. A banned address is turned away as it is accepted, anything else \
                   at CONNECT with 0x8A. SIGHUP reads the file again and ends the connections of \
                   whoever is banned now, with 0x98. docs/security.md explains it.",
        source: "MQTT 5.0, 3.2.2.2",
        set: |settings, value| settings.security().bans_file = value.text().into(),
    }];
}
