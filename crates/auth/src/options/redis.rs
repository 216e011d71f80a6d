//! Options of authentication and rules with a Redis server.

use super::{AuthOptionTables, AuthOptionTarget};
use crate::tables::redis::RedisCommand;
use config::row::{OptionRow, OptionScope};
use config::value::OptionKind;
use net::redis::SCHEMES;
use net::server_url::ServerUrl;

const URL: OptionKind = OptionKind::Text {
    of: "a URL",
    check: |text| {
        if text.is_empty() { Ok(()) } else { ServerUrl::parse(text, SCHEMES).map(|_| ()) }
    },
};
const USER: OptionKind =
    OptionKind::Text { of: "a command", check: |text| RedisCommand::parse(text).map(|_| ()) };
const RULES: OptionKind = OptionKind::Text {
    of: "a command",
    check: |text| {
        if text.is_empty() { Ok(()) } else { RedisCommand::parse_rules(text).map(|_| ()) }
    },
};

impl<S: AuthOptionTarget + 'static> AuthOptionTables<S> {
    /// Options `auth.redis_*`.
    pub(super) const REDIS: &'static [OptionRow<S>] = &[
        OptionRow {
            key: "auth.redis_rules",
            kind: RULES,
            default: "",
            live: true,
            also_for: &[OptionScope::Listener],
            short: "command for what a client may do",
            long: "`HGETALL KEY`: a field is a topic filter, which may have `${clientid}` and \
                   `${username}`, and its value publish, subscribe or all (or 2, 1 or 3), or an \
                   object of JSON with `action` and, if wanted, `qos` and `retain`. Fields have no \
                   order, so they can only allow. They are read when the client connects. The \
                   rules of `acl.file` come after them, and what no rule allows is refused.",
            source: "MQTT 5.0, 5.4.2",
            set: |settings, value| {
                settings.security().redis.rules = RedisCommand::parse_rules(value.text()).ok();
            },
        },
        OptionRow {
            key: "auth.redis_url",
            kind: OptionKind::Hidden(&URL),
            default: "",
            live: true,
            also_for: &[OptionScope::Listener],
            short: "Redis server that knows users and their hashed passwords",
            long: "`redis://USER:PASSWORD@HOST:PORT/NUMBER`, and `rediss://` over TLS, where \
                   `auth.backend_ca` vouches for the server; what is special in a URL is \
                   percent-encoded. The environment keeps it out of the file: \
                   GODWIT_AUTH__REDIS_URL. docs/security.md explains it.",
            source: "MQTT 5.0, 5.4.1",
            set: |settings, value| {
                settings.security().redis.url = ServerUrl::parse(value.text(), SCHEMES).ok()
            },
        },
        OptionRow {
            key: "auth.redis_user",
            kind: USER,
            default: "HMGET mqtt_user:${username} password_hash salt is_superuser",
            live: true,
            also_for: &[OptionScope::Listener],
            short: "command for a client's hashed password",
            long: "`HMGET KEY FIELD...`, `HGET KEY FIELD`, `HGETALL KEY`, or `GET KEY` of the hash \
                   itself, with the fields `password_hash` and, if wanted, `salt`, `is_superuser` \
                   and `groups` (with commas between them). In the key may be `${username}`, \
                   `${clientid}`, `${peerhost}`, `${listener}`, `${cert_cn}` and \
                   `${cert_subject}`. A client without a hash is left to the others.",
            source: "MQTT 5.0, 5.4.1",
            set: |settings, value| {
                settings.security().redis.user = RedisCommand::parse(value.text()).ok();
            },
        },
    ];
}
