//! Options that limit rates and connections of a listener. All of these options may also be set in
//! a `[[listener]]`, for this listener alone, and some in a `[[group]]`.

use super::{BrokerOptionTables, BrokerOptionTarget};
use config::row::{GIB, OptionRow, OptionScope};
use config::value::{NumberUnit, OptionKind};

const fn limit(unit: &'static str) -> OptionKind {
    let word = Some(("off", 0));
    OptionKind::Number { min: 0, max: 1_000_000_000, unit: NumberUnit::Named(unit), word }
}

const BYTES_A_SECOND: OptionKind =
    OptionKind::Number { min: 0, max: GIB, unit: NumberUnit::Bytes, word: Some(("off", 0)) };

impl<S: BrokerOptionTarget + 'static> BrokerOptionTables<S> {
    /// Rows of the limits on rates and connections, for example `limits.connections_max`.
    pub const LIMITS: &'static [OptionRow<S>] = &[
        OptionRow {
            key: "limits.address_connections_max",
            kind: limit("connections"),
            default: "off",
            live: true,
            also_for: &[OptionScope::Listener],
            short: "connections from one address to one listener",
            long: "Further ones are refused with 0x97; once many are, most are closed without a \
                   word. An IPv6 address counts with its /64, a client of a unix socket as its \
                   user. Behind a proxy the address is the one that its header names. A limit that \
                   is set while the broker runs counts who comes from then on.",
            source: "MQTT 5.0, 3.2.2.2",
            set: |settings, value| settings.broker().address_connections_max = value.u32(),
        },
        OptionRow {
            key: "limits.address_connections_per_s",
            kind: limit("connections a second"),
            default: "off",
            live: true,
            also_for: &[OptionScope::Listener],
            short: "how fast one address may connect to one listener",
            long: "A second's worth may come at once. Further ones are refused with 0x9F; once \
                   many are, most are closed without a word.",
            source: "MQTT 5.0, 3.2.2.2",
            set: |settings, value| settings.broker().address_connections_per_s = value.u32(),
        },
        OptionRow {
            key: "limits.bytes_out_per_s",
            kind: BYTES_A_SECOND,
            default: "off",
            live: true,
            also_for: &[OptionScope::Listener, OptionScope::Group],
            short: "bytes of messages a second to one client",
            long: "Whole PUBLISH packets count. A second's worth may go at once. What comes faster \
                   waits in the session's queue, under its bounds and policy, as if the client did \
                   not acknowledge; no publisher waits. A change holds for a client from its next \
                   CONNECT on.",
            source: "",
            set: |settings, value| settings.broker().bytes_out_per_s = value.u32(),
        },
        OptionRow {
            key: "limits.bytes_per_s",
            kind: BYTES_A_SECOND,
            default: "off",
            live: true,
            also_for: &[OptionScope::Listener, OptionScope::Group],
            short: "bytes a second from one client",
            long: "Whole packets count. A second's worth may come at once. A client that is ahead \
                   is not read until time has caught up: nothing is dropped, and nobody else \
                   waits. A change holds for a client from its next CONNECT on.",
            source: "",
            set: |settings, value| settings.broker().bytes_per_s = value.u32(),
        },
        OptionRow {
            key: "limits.connections_max",
            kind: limit("connections"),
            default: "off",
            live: true,
            also_for: &[OptionScope::Listener, OptionScope::Group],
            short: "connections of one listener",
            long: "Further ones are refused with 0x97; once many are, most are closed without a \
                   word, and so are those that would need a TLS handshake to be told. In a \
                   `[[group]]` its clients count, once it is known who they are. A limit that is \
                   set while the broker runs counts who comes from then on.",
            source: "MQTT 5.0, 3.2.2.2",
            set: |settings, value| settings.broker().connections_max = value.u32(),
        },
        OptionRow {
            key: "limits.connections_per_s",
            kind: limit("connections a second"),
            default: "off",
            live: true,
            also_for: &[OptionScope::Listener, OptionScope::Group],
            short: "how fast one listener accepts connections",
            long: "A second's worth may come at once. Further ones wait to be accepted. In a \
                   `[[group]]` its clients count, once it is known who they are, and further ones \
                   are refused with 0x9F: whoever waited would keep others from being heard.",
            source: "",
            set: |settings, value| settings.broker().connections_per_s = value.u32(),
        },
        OptionRow {
            key: "limits.messages_out_per_s",
            kind: limit("messages a second"),
            default: "off",
            live: true,
            also_for: &[OptionScope::Listener, OptionScope::Group],
            short: "messages a second to one client",
            long: "Of every QoS. What happens above is as with `limits.bytes_out_per_s`.",
            source: "",
            set: |settings, value| settings.broker().messages_out_per_s = value.u32(),
        },
        OptionRow {
            key: "limits.messages_per_s",
            kind: limit("messages a second"),
            default: "off",
            live: true,
            also_for: &[OptionScope::Listener, OptionScope::Group],
            short: "messages a second from one client",
            long: "PUBLISH packets count, of every QoS. What happens above is as with \
                   `limits.bytes_per_s`.",
            source: "",
            set: |settings, value| settings.broker().messages_per_s = value.u32(),
        },
    ];
}
