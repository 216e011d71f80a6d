//! Options of messages: bounds of PUBLISH, topics, delayed messages and retained messages.

use super::{BrokerOptionTables, BrokerOptionTarget};
use config::row::{OptionRow, OptionScope, TIB, bytes, count};
use config::value::{NumberUnit, OptionKind};

impl<S: BrokerOptionTarget + 'static> BrokerOptionTables<S> {
    /// Rows of the options of messages and topics, for example `message.qos_max`.
    pub const MESSAGES: &'static [OptionRow<S>] = &[
        OptionRow {
            key: "delayed.bytes_max",
            kind: bytes(0, TIB),
            default: "64MiB",
            live: true,
            also_for: &[],
            short: "most bytes of all delayed messages together",
            long: "Each counts with its topic, properties, payload and some 150 bytes. One that \
                   would be too many is refused with 0x97.",
            source: "",
            set: |settings, value| settings.broker().delayed_bytes_max = value.number(),
        },
        OptionRow {
            key: "delayed.client_percent_max",
            kind: count(1, 100, "percent"),
            default: "50",
            live: true,
            also_for: &[],
            short: "how much of `delayed.messages_max` and `delayed.bytes_max` one client may have",
            long: "So none of them fills it for all. One message more is refused with 0x97; a \
                   broker with one client that delays has 100.",
            source: "",
            set: |settings, value| {
                settings.broker().delayed_client_percent_max = value.number() as u8
            },
        },
        OptionRow {
            key: "delayed.messages_max",
            kind: count(0, u32::MAX as u64, "messages"),
            default: "100000",
            live: true,
            also_for: &[],
            short: "most messages that wait to be published by `$delayed/`",
            long: "`$delayed/{seconds}/{topic}` is published to `{topic}` after 1 to 4294967 \
                   seconds, see topics.md. A message that would be one too many is refused with \
                   0x97; with 0 none is taken.",
            source: "",
            set: |settings, value| settings.broker().delayed_messages_max = value.u32(),
        },
        OptionRow {
            key: "message.check_payload_format",
            kind: OptionKind::Bool,
            default: "false",
            live: true,
            also_for: &[],
            short: "whether payloads that claim to be UTF-8 text are checked",
            long: "A message that breaks its claim is refused with 0x99.",
            source: "MQTT 5.0, 3.3.2.3.2",
            set: |settings, value| settings.broker().check_payload_format = value.bool(),
        },
        OptionRow {
            key: "message.expiry_s_max",
            kind: OptionKind::Number {
                min: 1,
                max: u32::MAX as u64,
                unit: NumberUnit::Named("seconds"),
                word: Some(("never", u32::MAX as u64)),
            },
            default: "never",
            live: true,
            also_for: &[],
            short: "longest that a message may wait to be delivered",
            long: "Shortens a longer Message Expiry Interval and gives one to messages that have \
                   none.",
            source: "MQTT 5.0, 3.3.2.3.3",
            set: |settings, value| settings.broker().message_expiry_s_max = value.u32(),
        },
        OptionRow {
            key: "message.qos_max",
            kind: count(0, 2, ""),
            default: "2",
            live: false,
            also_for: &[OptionScope::Listener],
            short: "highest QoS that a client may publish with",
            long: "Announced as Maximum QoS. A PUBLISH or a will above it is refused with 0x9B; a \
                   subscription is granted at most this.",
            source: "MQTT 5.0, 3.2.2.3.4",
            set: |settings, value| settings.broker().qos_max = value.u16() as u8,
        },
        OptionRow {
            key: "retain.available",
            kind: OptionKind::Bool,
            default: "true",
            live: false,
            also_for: &[],
            short: "whether messages may be retained",
            long: "Otherwise a PUBLISH or a will with RETAIN is refused with 0x9A.",
            source: "MQTT 5.0, 3.2.2.3.5",
            set: |settings, value| settings.broker().retain_available = value.bool(),
        },
        OptionRow {
            key: "retain.bytes_max",
            kind: bytes(0, TIB),
            default: "1GiB",
            live: true,
            also_for: &[],
            short: "most bytes of all retained messages together",
            long: "A message that would be one too many is refused with 0x97.",
            source: "",
            set: |settings, value| settings.broker().retained_bytes_max = value.number(),
        },
        OptionRow {
            key: "retain.messages_max",
            kind: count(0, u32::MAX as u64, "messages"),
            default: "10000000",
            live: true,
            also_for: &[],
            short: "most retained messages",
            long: "A message that would be one too many is refused with 0x97.",
            source: "",
            set: |settings, value| settings.broker().retained_messages_max = value.u32(),
        },
        OptionRow {
            key: "topic.bytes_max",
            kind: bytes(1, 65_535),
            default: "65535",
            live: true,
            also_for: &[OptionScope::Listener, OptionScope::Group],
            short: "longest topic name or filter",
            long: "A longer name is refused with 0x90, a longer filter with 0x8F.",
            source: "MQTT 5.0, 4.7.3",
            set: |settings, value| settings.broker().topic_bytes_max = value.u16(),
        },
        OptionRow {
            key: "topic.levels_max",
            kind: count(1, 1024, "levels"),
            default: "128",
            live: true,
            also_for: &[OptionScope::Listener, OptionScope::Group],
            short: "most levels of a topic name or filter",
            long: "A deeper name is refused with 0x90, a deeper filter with 0x8F.",
            source: "MQTT 5.0, 4.7.3",
            set: |settings, value| settings.broker().topic_levels_max = value.u16(),
        },
    ];
}
