//! Options of a session: expiry, queues, and subscriptions.

use super::{BrokerOptionTables, BrokerOptionTarget};
use broker::options::{QueuePolicy, SharedStrategy};
use config::row::{EXPIRY, KIB, OptionRow, OptionScope, TIB, count};
use config::value::{NumberUnit, OptionKind, one_of};

impl<S: BrokerOptionTarget + 'static> BrokerOptionTables<S> {
    /// Rows of the options of sessions and their queues, for example `queue.policy`.
    pub const SESSIONS: &'static [OptionRow<S>] = &[
        OptionRow {
            key: "queue.age_s_max",
            kind: EXPIRY,
            default: "never",
            live: true,
            also_for: &[
                OptionScope::Listener,
                OptionScope::Group,
                OptionScope::Link,
                OptionScope::Sink,
            ],
            short: "how long a message waits in a session's queue",
            long: "Counted from when it was published. An older one is dropped, though nobody \
                   comes for it; what only the store has, after a start, when its turn comes.",
            source: "",
            set: |settings, value| settings.broker().queue_age_s_max = value.u32(),
        },
        OptionRow {
            key: "queue.bytes_max",
            kind: OptionKind::Number {
                min: KIB,
                max: TIB,
                unit: NumberUnit::Bytes,
                word: Some(("auto", u64::MAX)),
            },
            default: "auto",
            live: true,
            also_for: &[
                OptionScope::Listener,
                OptionScope::Group,
                OptionScope::Link,
                OptionScope::Sink,
            ],
            short: "most bytes that wait in the queue of a session or shared group",
            long: "`auto` is 1 GiB for what waits on disk (QoS 1 and 2 messages of a session that \
                   outlives the process, or of a shared group with such a member), and 64 MiB for \
                   what waits in memory alone. Payloads, topics and properties count. \
                   `queue.policy` says what happens to a full queue, `store.bytes_max` bounds all \
                   queues together. Less than `connection.packet_bytes_max` is refused: one packet \
                   must fit.",
            source: "",
            set: |settings, value| settings.broker().queue_bytes_max = value.number(),
        },
        OptionRow {
            key: "queue.messages_max",
            kind: OptionKind::Number {
                min: 1,
                max: 1_000_000_000,
                unit: NumberUnit::Named("messages"),
                word: Some(("auto", u32::MAX as u64)),
            },
            default: "auto",
            live: true,
            also_for: &[
                OptionScope::Listener,
                OptionScope::Group,
                OptionScope::Link,
                OptionScope::Sink,
            ],
            short: "most messages that wait in the queue of a session or shared group",
            long: "`auto` is not a bound but `queue.bytes_max` for what waits on disk, since a \
                   message that was acknowledged is not given up for a number, and 10000 for what \
                   waits in memory alone. Messages in flight do not count. `queue.policy` says \
                   what happens to a full queue.",
            source: "",
            set: |settings, value| settings.broker().queue_messages_max = value.u32(),
        },
        OptionRow {
            key: "queue.policy",
            kind: OptionKind::Choice(&["disconnect", "drop_newest", "drop_oldest"]),
            default: "drop_oldest",
            live: true,
            also_for: &[
                OptionScope::Listener,
                OptionScope::Group,
                OptionScope::Link,
                OptionScope::Sink,
            ],
            short: "what happens when a session's queue is full",
            long: "A message that was acknowledged is lost by this, so every drop is counted by \
                   client and reason, and logged as a warning with the options that decide, at \
                   most once a second a client. `disconnect` closes the slow client and keeps its \
                   session as it is. Two cases know one policy alone, whatever stands here. Of a \
                   session whose client has not come back since the start, the queue is not read, \
                   and once as much as `queue.messages_max` and `queue.bytes_max` allow has come \
                   since then, the newest is dropped. A disk that is full, or `store.bytes_max`, \
                   refuses the newest to its publisher. A shared group drops its oldest with \
                   `drop_oldest`, and else the newest.",
            source: "",
            set: |settings, value| {
                settings.broker().queue_policy = match value.text() {
                    "disconnect" => QueuePolicy::Disconnect,
                    "drop_newest" => QueuePolicy::DropNewest,
                    _ => QueuePolicy::DropOldest,
                }
            },
        },
        OptionRow {
            key: "queue.qos0",
            kind: OptionKind::Bool,
            default: "false",
            live: true,
            also_for: &[
                OptionScope::Listener,
                OptionScope::Group,
                OptionScope::Link,
                OptionScope::Sink,
            ],
            short: "whether QoS 0 messages wait for a client that is away",
            long: "Those for a client that is only slow always wait.",
            source: "MQTT 5.0, 4.1",
            set: |settings, value| settings.broker().queue_qos0 = value.bool(),
        },
        OptionRow {
            key: "session.expiry_s_default",
            kind: EXPIRY,
            default: "never",
            live: true,
            also_for: &[],
            short: "when a session of a 3.x client ends after the client has gone",
            long: "For clients that connect with Clean Session 0; 3.1 and 3.1.1 have no way to \
                   ask. Never longer than `session.expiry_s_max`.",
            source: "MQTT 3.1.1, 3.1.2.4",
            set: |settings, value| settings.broker().session_expiry_s_default = value.u32(),
        },
        OptionRow {
            key: "session.expiry_s_max",
            kind: EXPIRY,
            default: "never",
            live: true,
            also_for: &[],
            short: "longest that any session lives after its client has gone",
            long: "A 5.0 client that asks for more is told what it gets.",
            source: "MQTT 5.0, 3.2.2.3.2",
            set: |settings, value| settings.broker().session_expiry_s_max = value.u32(),
        },
        OptionRow {
            key: "session.inflight_max",
            kind: count(1, 65_000, "messages"),
            default: "1024",
            live: true,
            also_for: &[OptionScope::Listener, OptionScope::Group, OptionScope::Link],
            short: "unacknowledged QoS 1 and 2 messages towards one client",
            long: "A client that asks for fewer by its Receive Maximum gets fewer. The others wait \
                   in the session's queue. A change holds for a client from its next CONNECT on.",
            source: "MQTT 5.0, 4.9",
            set: |settings, value| settings.broker().inflight_max = value.u16(),
        },
        OptionRow {
            key: "session.subscriptions_max",
            kind: count(1, u32::MAX as u64, "subscriptions"),
            default: "100000",
            live: true,
            also_for: &[OptionScope::Listener, OptionScope::Group],
            short: "subscriptions of one session",
            long: "Further ones are refused with 0x97.",
            source: "",
            set: |settings, value| settings.broker().subscriptions_max = value.u32(),
        },
        OptionRow {
            key: "shared.available",
            kind: OptionKind::Bool,
            default: "true",
            live: true,
            also_for: &[],
            short: "whether shared subscriptions ($share/group/filter) are offered",
            long: "Otherwise they are refused with 0x9E and 5.0 clients are told so on connecting.",
            source: "MQTT 5.0, 3.2.2.3.13",
            set: |settings, value| settings.broker().shared_available = value.bool(),
        },
        OptionRow {
            key: "shared.strategies",
            kind: OptionKind::Map {
                of: "GROUP",
                value: "STRATEGY",
                check: |_, strategy| check_strategy(strategy),
            },
            default: "",
            live: true,
            also_for: &[],
            short: "strategies of single groups, by group name",
            long: "Groups that are not named here go by `shared.strategy`.",
            source: "",
            set: |settings, value| {
                let pair = |(group, name): &(String, String)| (group.clone(), strategy(name));
                settings.broker().shared_strategies = value.map().iter().map(pair).collect();
            },
        },
        OptionRow {
            key: "shared.strategy",
            kind: OptionKind::Choice(STRATEGIES),
            default: "round_robin",
            live: true,
            also_for: &[],
            short: "how a shared subscription chooses the member that gets a message",
            long: "`sticky` stays with one member as long as it can; `hash_client` and \
                   `hash_topic` give what comes from one publisher, or on one topic, to the same \
                   member. Members that are connected and have room go first.",
            source: "MQTT 5.0, 4.8.2",
            set: |settings, value| settings.broker().shared_strategy = strategy(value.text()),
        },
        OptionRow {
            key: "subscription.exclusive_available",
            kind: OptionKind::Bool,
            default: "false",
            live: true,
            also_for: &[],
            short: "whether a client may have a subscription for itself, by `$exclusive/FILTER`",
            long: "While its session has it, `$exclusive/` with the same filter is refused to \
                   others with 0x97; the plain filter is not. Otherwise such a filter is refused \
                   with 0x8F.",
            source: "",
            set: |settings, value| settings.broker().exclusive_available = value.bool(),
        },
        OptionRow {
            key: "subscription.ids_available",
            kind: OptionKind::Bool,
            default: "true",
            live: true,
            also_for: &[],
            short: "whether subscription identifiers are offered",
            long: "Otherwise a SUBSCRIBE with one is refused with 0xA1.",
            source: "MQTT 5.0, 3.2.2.3.12",
            set: |settings, value| settings.broker().subscription_ids_available = value.bool(),
        },
        OptionRow {
            key: "subscription.wildcard_available",
            kind: OptionKind::Bool,
            default: "true",
            live: true,
            also_for: &[],
            short: "whether filters with + and # are offered",
            long: "Otherwise they are refused with 0xA2.",
            source: "MQTT 5.0, 3.2.2.3.11",
            set: |settings, value| settings.broker().wildcard_available = value.bool(),
        },
    ];
}

const STRATEGIES: &[&str] = &["hash_client", "hash_topic", "random", "round_robin", "sticky"];

fn check_strategy(name: &str) -> Result<(), String> {
    let known = STRATEGIES.contains(&name);
    if known { Ok(()) } else { Err(format!("no such strategy, use {}", one_of(STRATEGIES))) }
}

/// Returns the strategy of a name in `STRATEGIES`, already checked by `check_strategy`.
fn strategy(name: &str) -> SharedStrategy {
    match name {
        "hash_client" => SharedStrategy::HashClient,
        "hash_topic" => SharedStrategy::HashTopic,
        "random" => SharedStrategy::Random,
        "sticky" => SharedStrategy::Sticky,
        _ => SharedStrategy::RoundRobin,
    }
}
