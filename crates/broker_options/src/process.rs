//! Options of the broker that belong to the process as a whole: namespaces, durability, memory,
//! `$SYS` and bans of flapping clients.

use super::{BrokerOptionTables, BrokerOptionTarget};
use broker::message::Durability;
use broker::options::namespace_template::NamespaceTemplate;
use config::row::{KIB, OptionRow, OptionScope, TIB, count};
use config::value::{NumberUnit, OptionKind, one_of};

impl<S: BrokerOptionTarget + 'static> BrokerOptionTables<S> {
    /// Row of the option `namespace`: the namespace of clients, which prefixes their topics.
    pub const NAMESPACE: OptionRow<S> = OptionRow {
        key: "namespace",
        kind: OptionKind::Text {
            of: "a topic's beginning",
            check: |text| NamespaceTemplate::parse(text).map(drop),
        },
        default: "",
        live: true,
        also_for: &[OptionScope::Listener, OptionScope::Group],
        short: "the namespace that clients are mounted under, like \"tenant\"",
        long: "What a client calls `a/b` is `tenant/a/b` for whoever is in no namespace, and not \
               there for whoever is in another; client ids, shared groups and sessions are apart \
               as well. `${username}` and `${cert_cn}` stand for the client's own name. \
               docs/security.md explains it. A change holds for a client from its next CONNECT \
               on. Empty is none.",
        source: "",
        set: |settings, value| {
            let namespace = NamespaceTemplate::parse(value.text());
            settings.broker().namespace = namespace.expect("the row has checked it");
        },
    };

    /// Durability of all state that no filter of `store.topics` matches.
    pub const DURABILITY: OptionRow<S> = OptionRow {
        key: "durability",
        kind: OptionKind::Choice(DURABILITIES),
        default: "sync",
        live: false,
        also_for: &[],
        short: "how well sessions, queues and retained messages are kept",
        long: "`sync`: PUBACK, PUBREC, PUBCOMP, SUBACK and UNSUBACK leave when the disk has what \
               they promise. `lazy`: it reaches the disk within `store.lazy_ms`, and receipts do \
               not wait. `memory`: everything ends with the process, and no file is opened. \
               Sessions that end with their connection never cost a disk write.",
        source: "MQTT 5.0, 4.1",
        set: |settings, value| settings.broker().durability = durability(value.text()),
    };

    /// Row of the option `memory.bytes_max`: the memory limit of the process, in bytes.
    pub const MEMORY_BYTES_MAX: OptionRow<S> = OptionRow {
        key: "memory.bytes_max",
        kind: OptionKind::Number {
            min: KIB * KIB,
            max: TIB,
            unit: NumberUnit::Bytes,
            word: Some(("auto", 0)),
        },
        default: "auto",
        live: true,
        also_for: &[],
        short: "most memory for everything that clients have us hold",
        long: "Connections, partial packets, unsent output, sessions, subscriptions, queued and \
               retained messages of the whole process. A quarter is for partial packets and \
               unsent output, an eighth for what cannot be counted. When the rest holds half of \
               the bound, queues on disk leave memory, every other queue counts as full and \
               nothing new is retained (0x97), from nine \
               sixteenths on new sessions, subscriptions and QoS 1 and 2 messages above 4 KiB are \
               refused with 0x97, from five eighths on all QoS 1 and 2 messages. QoS 0 \
               messages to clients that read them go on. Beyond the quarter whoever holds longest \
               without getting on ends with 0x97, and a slow reader's messages wait in its queue. \
               `auto` is half of the host's memory, or of the control group's limit.",
        source: "",
        set: |settings, value| {
            if value.number() != 0 {
                settings.broker().memory_bytes_max = value.number();
            }
        },
    };

    /// Row of the option `sys.interval_s`: the interval of the `$SYS` topics, in seconds.
    pub const SYS_INTERVAL_S: OptionRow<S> = OptionRow {
        key: "sys.interval_s",
        kind: OptionKind::Number {
            min: 0,
            max: 86_400,
            unit: NumberUnit::Named("seconds"),
            word: Some(("off", 0)),
        },
        default: "10",
        live: true,
        also_for: &[],
        short: "how often the $SYS/broker/... topics are published",
        long: "",
        source: "MQTT 5.0, 4.7.2",
        set: |settings, value| settings.broker().sys_interval_s = value.u32(),
    };

    /// Rows of the options `flapping.*`, about bans of clients that reconnect too often.
    pub const FLAPPING: &'static [OptionRow<S>] = &[
        OptionRow {
            key: "flapping.ban_s",
            kind: count(1, 31_536_000, "seconds"),
            default: "300",
            live: true,
            also_for: &[],
            short: "how long a client is kept out that comes and goes too often",
            long: "",
            source: "",
            set: |settings, value| settings.broker().flapping_ban_s = value.u32(),
        },
        OptionRow {
            key: "flapping.count_max",
            kind: OptionKind::Number {
                min: 0,
                max: 1_000_000,
                unit: NumberUnit::Named("times"),
                word: Some(("off", 0)),
            },
            default: "off",
            live: true,
            also_for: &[],
            short: "how often a client may go within the window before it is kept out",
            long: "Counted by client id, however its connections end. It is refused with 0x8A for \
                   `flapping.ban_s`. Whoever can connect with another's client id can have it kept \
                   out: bind ids to users where users are not to be trusted.",
            source: "MQTT 5.0, 3.2.2.2",
            set: |settings, value| settings.broker().flapping_count_max = value.u32(),
        },
        OptionRow {
            key: "flapping.window_s",
            kind: count(1, 86_400, "seconds"),
            default: "60",
            live: true,
            also_for: &[],
            short: "the window in which `flapping.count_max` counts",
            long: "",
            source: "",
            set: |settings, value| settings.broker().flapping_window_s = value.u32(),
        },
    ];

    /// Row of the option `store.topics`: the durability of messages by topic filter.
    pub const STORE: &'static [OptionRow<S>] = &[OptionRow {
        key: "store.topics",
        kind: OptionKind::Map { of: "FILTER", value: "DURABILITY", check: check_durability },
        default: "",
        live: true,
        also_for: &[],
        short: "durability of single topics, by topic filter; the first that matches counts",
        long: "Topics that no filter matches go by `durability`. With `durability = \
                   \"memory\"` nothing is stored, and this has no effect.",
        source: "",
        set: |settings, value| {
            let pair = |(filter, name): &(String, String)| (filter.clone(), durability(name));
            settings.broker().durabilities = value.map().iter().map(pair).collect();
        },
    }];
}

/// Names of the durabilities, see [`Durability`].
const DURABILITIES: &[&str] = &["lazy", "memory", "sync"];

/// Returns the durability of a name in [`DURABILITIES`]; an unknown name counts as `sync`.
fn durability(name: &str) -> Durability {
    match name {
        "lazy" => Durability::Lazy,
        "memory" => Durability::Memory,
        _ => Durability::Sync,
    }
}

fn check_durability(filter: &str, durability: &str) -> Result<(), String> {
    if mqtt::topic::check_filter(filter).is_err() {
        return Err(format!("{filter:?} is not a topic filter, use one like \"a/+/c\" or \"a/#\""));
    }
    let known = DURABILITIES.contains(&durability);
    if known { Ok(()) } else { Err(format!("no such durability, use {}", one_of(DURABILITIES))) }
}
