//! Options of the store: its use of disk and memory, and the durability of topics.

use super::{EngineOptionTables, EngineOptionTarget};
use config::row::{KIB, MIB, OptionRow, TIB, bytes, count};
use config::value::{NumberUnit, OptionKind};

impl<S: EngineOptionTarget + 'static> EngineOptionTables<S> {
    /// Rows of the options of the store, such as `store.bytes_max`.
    pub const STORE: &'static [OptionRow<S>] = &[
        OptionRow {
            key: "store.bytes_max",
            kind: OptionKind::Number {
                min: 16 * MIB,
                max: TIB * 1024,
                unit: NumberUnit::Bytes,
                word: Some(("none", u64::MAX)),
            },
            default: "none",
            live: false,
            also_for: &[],
            short: "bytes of disk that the store may use",
            long: "At the limit, and when the disk is full, whatever would have to be kept is \
                   refused with 0x97 (Quota exceeded); the rest goes on, and so does this once \
                   there is room. What is refused is the newest, whatever `queue.policy` says: \
                   nothing that waits is given up for it. A client before 5.0, which cannot be \
                   told, loses its connection, and QoS 0 is dropped. Merging old data needs up to \
                   as much again for as long as it runs.",
            source: "",
            set: |settings, value| settings.store().bytes_max = value.number(),
        },
        OptionRow {
            key: "store.lazy_ms",
            kind: count(1, 60_000, "ms"),
            default: "1000",
            live: false,
            also_for: &[],
            short: "how long what nobody waits for may wait for the disk",
            long: "",
            source: "",
            set: |settings, value| {
                settings.store().lazy = std::time::Duration::from_millis(value.number());
            },
        },
        OptionRow {
            key: "store.memory_bytes",
            kind: bytes(64 * KIB, 1024 * MIB),
            default: "1 MiB",
            live: false,
            also_for: &[],
            short: "memory for what is new in the store",
            long: "Once it is full it becomes a sorted file, so more of it means fewer and larger \
                   files.",
            source: "",
            set: |settings, value| settings.store().memory_bytes = value.number() as usize,
        },
        OptionRow {
            key: "store.repair",
            kind: OptionKind::Bool,
            default: "false",
            live: false,
            also_for: &[],
            short: "start although the store is damaged, without what is missing",
            long: "Without it a damaged store ends the start, with a list of what is missing. Look \
                   with `godwit store check` first.",
            source: "",
            set: |settings, value| settings.store().repair = value.bool(),
        },
    ];
}
