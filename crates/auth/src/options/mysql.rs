//! Options of authentication and rules with a MySQL or MariaDB server.

use super::sql::{any_query, query, user_query};
use super::{AuthOptionTables, AuthOptionTarget};
use config::row::{OptionRow, OptionScope};
use config::value::OptionKind;
use net::server_url::ServerUrl;
use net::sql::mysql::{MysqlDatabase, SCHEMES};

const URL: OptionKind = OptionKind::Text {
    of: "a URL",
    check: |text| {
        if text.is_empty() { Ok(()) } else { ServerUrl::parse(text, SCHEMES).map(|_| ()) }
    },
};
impl<S: AuthOptionTarget + 'static> AuthOptionTables<S> {
    /// Options `auth.mysql_*`.
    pub(super) const MYSQL: &'static [OptionRow<S>] = &[
        OptionRow {
            key: "auth.mysql_rules",
            kind: any_query::<MysqlDatabase>(),
            default: "",
            live: true,
            also_for: &[OptionScope::Listener],
            short: "query for what a client may do",
            long: "A row a rule, in their order: `permission` (allow or deny), `action` (publish, \
                   subscribe or all), `topic` (a filter, which may have `${clientid}` and \
                   `${username}`) and, if wanted, `qos` and `retain`. They are read when the \
                   client connects. The rules of `acl.file` come after them, and what no rule \
                   allows is refused. Placeholders as in `auth.mysql_user`.",
            source: "MQTT 5.0, 5.4.2",
            set: |settings, value| {
                settings.security().mysql.rules =
                    query::<MysqlDatabase>(value.text()).expect("it was checked when it was read");
            },
        },
        OptionRow {
            key: "auth.mysql_tls",
            kind: OptionKind::Bool,
            default: "false",
            live: true,
            also_for: &[OptionScope::Listener],
            short: "whether MySQL or MariaDB is spoken to over TLS",
            long: "Only a server whose certificate `auth.backend_ca` vouches for is asked then. \
                   Without it whoever is on the way reads and changes everything.",
            source: "",
            set: |settings, value| settings.security().mysql.tls = value.bool(),
        },
        OptionRow {
            key: "auth.mysql_url",
            kind: OptionKind::Hidden(&URL),
            default: "",
            live: true,
            also_for: &[OptionScope::Listener],
            short: "MySQL or MariaDB server that knows users and their hashed passwords",
            long: "`mysql://USER:PASSWORD@HOST:PORT/DATABASE`; what is special in a URL is \
                   percent-encoded. The environment keeps it out of the file: \
                   GODWIT_AUTH__MYSQL_URL. docs/security.md explains it.",
            source: "MQTT 5.0, 5.4.1",
            set: |settings, value| {
                settings.security().mysql.url = ServerUrl::parse(value.text(), SCHEMES).ok()
            },
        },
        OptionRow {
            key: "auth.mysql_user",
            kind: user_query::<MysqlDatabase>(),
            default: "SELECT password_hash, salt, is_superuser FROM mqtt_user \
                      WHERE username = ${username} LIMIT 2",
            live: true,
            also_for: &[OptionScope::Listener],
            short: "query for a client's hashed password",
            long: "At most one row, with `password_hash` and, if wanted, `salt`, `is_superuser` \
                   and `groups` (with commas between them). `${username}`, `${clientid}`, \
                   `${peerhost}`, `${listener}`, `${cert_cn}` and `${cert_subject}` are bound as \
                   values and stand without quotes. A client without a row is left to the others. \
                   What counts as equal is the database's to say: use a column that tells `Ann` \
                   from `ann`.",
            source: "MQTT 5.0, 5.4.1",
            set: |settings, value| {
                settings.security().mysql.user =
                    query::<MysqlDatabase>(value.text()).expect("it was checked when it was read");
            },
        },
    ];
}
