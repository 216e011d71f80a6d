//! Options of a connection: CONNECT, packets and write buffer.

use super::{BrokerOptionTables, BrokerOptionTarget};
use config::row::{ANY, GIB, KIB, OptionRow, OptionScope, bytes, count};
use config::value::{NumberUnit, OptionKind};

impl<S: BrokerOptionTarget + 'static> BrokerOptionTables<S> {
    /// Rows of the options of a connection, for example `connect.timeout_ms`.
    pub const CONNECTIONS: &'static [OptionRow<S>] = &[
        OptionRow {
            key: "connect.client_id_bytes_max",
            kind: count(23, 65_535, "bytes"),
            default: "1024",
            live: true,
            also_for: &[],
            short: "longest client id",
            long: "A CONNECT with a longer one is refused with 0x85. Every server must take 23 \
                   bytes.",
            source: "MQTT 5.0, 3.1.3.1",
            set: |settings, value| settings.broker().client_id_bytes_max = value.u16(),
        },
        OptionRow {
            key: "connect.keep_alive_s_max",
            kind: OptionKind::Number {
                min: 0,
                max: 65_535,
                unit: NumberUnit::Named("seconds"),
                word: Some(("off", 0)),
            },
            default: "off",
            live: true,
            also_for: &[],
            short: "longest keep-alive that a client may ask for",
            long: "5.0 clients that ask for more, or for none, get this one as Server Keep Alive. \
                   3.x clients cannot be told of another, so theirs holds, and the log says so \
                   when they connect. A connection that is silent for one and a half times its \
                   keep-alive is closed.",
            source: "MQTT 5.0, 3.2.2.3.14",
            set: |settings, value| settings.broker().keep_alive_s_max = value.u16(),
        },
        OptionRow {
            key: "connect.response_information",
            kind: ANY,
            default: "",
            live: true,
            also_for: &[],
            short: "text for clients that ask for Response Information",
            long: "Usually the beginning of a topic under which a client may put its response \
                   topics. Empty sends none.",
            source: "MQTT 5.0, 3.2.2.3.15",
            set: |settings, value| {
                settings.broker().response_information = value.text().to_string()
            },
        },
        OptionRow {
            key: "connect.timeout_ms",
            kind: count(100, 600_000, "milliseconds"),
            default: "10000",
            live: true,
            also_for: &[],
            short: "how long a new connection may take to send its CONNECT",
            long: "A connection that has not sent a whole CONNECT by then is closed.",
            source: "MQTT 5.0, 3.1.4",
            set: |settings, value| settings.broker().connect_timeout_ms = value.u32(),
        },
        OptionRow {
            key: "connection.packet_bytes_max",
            kind: bytes(KIB, 268_435_455),
            default: "2MiB",
            live: true,
            also_for: &[OptionScope::Listener, OptionScope::Group],
            short: "largest packet that is read",
            long: "Announced as Maximum Packet Size. A larger packet ends the connection with \
                   0x95 before its body is stored. A change holds for a client from its next \
                   CONNECT on.",
            source: "MQTT 5.0, 3.2.2.3.6",
            set: |settings, value| settings.broker().packet_bytes_max = value.u32(),
        },
        OptionRow {
            key: "connection.receive_maximum",
            kind: count(1, 65_535, "messages"),
            default: "16384",
            live: true,
            also_for: &[OptionScope::Listener, OptionScope::Group],
            short: "QoS 2 messages from one client that may wait for its PUBREL",
            long: "Announced as Receive Maximum, and so what a client or a bridge may have under \
                   way, of QoS 1 as well: over a line with a round trip of 200 ms that is five \
                   times as many a second. Each costs 2 bytes of memory. A client that sends more \
                   QoS 2 messages loses its connection with 0x93. A change holds for a client \
                   from its next CONNECT on.",
            source: "MQTT 5.0, 3.2.2.3.3",
            set: |settings, value| settings.broker().receive_maximum = value.u16(),
        },
        OptionRow {
            key: "connection.topic_alias_max",
            kind: count(0, 65_535, "aliases"),
            default: "64",
            live: true,
            also_for: &[OptionScope::Listener],
            short: "topic aliases that a client may use towards us",
            long: "Announced as Topic Alias Maximum. Each costs its topic in memory; 0 forbids \
                   them.",
            source: "MQTT 5.0, 3.2.2.3.8",
            set: |settings, value| settings.broker().topic_alias_max = value.u16(),
        },
        OptionRow {
            key: "connection.topic_alias_out_max",
            kind: count(0, 65_535, "aliases"),
            default: "64",
            live: true,
            also_for: &[],
            short: "topic aliases that we use towards a client",
            long: "Never more than the client allows. 0 uses none.",
            source: "MQTT 5.0, 3.1.2.11.5",
            set: |settings, value| settings.broker().topic_alias_out_max = value.u16(),
        },
        OptionRow {
            key: "connection.write_bytes_max",
            kind: bytes(KIB, GIB),
            default: "1MiB",
            live: true,
            also_for: &[],
            short: "unsent bytes after which a connection counts as congested",
            long: "Messages then wait in its session's queue, under the queue's bounds and \
                   policy.",
            source: "",
            set: |settings, value| settings.broker().write_bytes_max = value.u32(),
        },
    ];
}
