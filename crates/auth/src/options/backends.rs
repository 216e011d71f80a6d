//! Options of all servers that authenticate or authorize clients.

use super::{AuthOptionTables, AuthOptionTarget};
use config::row::{OptionRow, OptionScope, PATH, count};

impl<S: AuthOptionTarget + 'static> AuthOptionTables<S> {
    /// Options common to all such servers.
    pub(super) const BACKENDS: &'static [OptionRow<S>] = &[
        OptionRow {
            key: "auth.backend_ca",
            kind: PATH,
            default: "",
            live: true,
            also_for: &[OptionScope::Listener],
            short: "PEM file of the CAs that vouch for the servers that are asked",
            long: "Empty are those that this host trusts. Trust in everyone is not possible.",
            source: "",
            set: |settings, value| settings.security().remote.authorities = value.text().into(),
        },
        OptionRow {
            key: "auth.backend_connections_max",
            kind: count(1, 1000, "connections"),
            default: "4",
            live: true,
            also_for: &[OptionScope::Listener],
            short: "connections to each server that is asked",
            long: "Questions wait for one, up to `auth.queue_max` of them; whoever comes then is \
                   refused with 0x89, or with 0x87 what `acl.http_url` would be asked about.",
            source: "",
            set: |settings, value| {
                settings.security().remote.bounds.connections_max = value.u32() as usize;
            },
        },
        OptionRow {
            key: "auth.backend_timeout_ms",
            kind: count(10, 600_000, "milliseconds"),
            default: "3000",
            live: true,
            also_for: &[OptionScope::Listener],
            short: "how long a server has for its answer",
            long: "Who waited so long is refused with 0x88.",
            source: "",
            set: |settings, value| settings.security().remote.bounds.timeout_ms = value.u32(),
        },
    ];
}
