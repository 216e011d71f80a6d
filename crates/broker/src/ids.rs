//! Identifiers of connections, sessions, shards, records and filters, and points in time.

use mqtt::{QoS, SubscribeOptions};

/// Index of a socket, chosen by the engine. The number is free again once the engine has reported
/// `ShardInput::Closed` or has performed `Effect::Close` or `Effect::Move`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnId(pub u32);

/// Index of a session in its shard. Together with a generation it identifies a session:
/// `SessionRef`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(pub u32);

/// Number of a shard. Shard 0 also publishes the `$SYS` tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ShardId(pub u8);

/// Milliseconds of a clock which never goes back. The clock starts at the time of day (milliseconds
/// since 1970), so a stored `MonotonicMs` is still valid after a restart and rules can show a date.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct MonotonicMs(pub u64);

/// Session of any shard, as the owner of a shared group or of an exclusive filter refers to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SessionRef {
    pub shard: ShardId,
    pub session: SessionId,
    /// Slots of sessions are reused: `generation` tells the present session of a slot from earlier
    /// ones.
    pub generation: u32,
}

/// Version of a retained message. For one topic the highest `RetainStamp` wins on every shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct RetainStamp {
    pub at: u64,
    pub counter: u32,
    pub shard: u8,
}

impl RetainStamp {
    /// Returns a stamp higher than this one, whatever the clock shows: clocks of shards differ by
    /// up to a tick, and a client may answer another client within a millisecond.
    pub(crate) fn next(self, now: MonotonicMs, shard: ShardId) -> RetainStamp {
        let shard = shard.0;
        match now.0 > self.at {
            true => RetainStamp { at: now.0, counter: 0, shard },
            false => RetainStamp { at: self.at, counter: self.counter + 1, shard },
        }
    }
}

/// Identifies a session, a group or a message body for as long as the store has the record: the
/// start of the process, the shard, and a count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct RecordNumber(pub(crate) u64);

impl RecordNumber {
    /// Returns the number of a shard's cross-shard log: count 0, since other counts begin at 1.
    pub(crate) fn of_cross_shard_log(boot: u32, shard: u8) -> RecordNumber {
        RecordNumber(first_record_number(boot) | u64::from(shard) << SHARD_AT)
    }
}

const BOOT_AT: u32 = 44;

const SHARD_AT: u32 = 38;

/// Returns the first number that belongs to a start of the process.
pub(crate) fn first_record_number(boot: u32) -> u64 {
    u64::from(boot) << BOOT_AT
}

/// Key of a stored message that moves to another queue. The shard that stores the message next
/// removes the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueRecordId {
    pub(crate) number: RecordNumber,
    pub(crate) position: u64,
}

/// A range of bytes in `Outbox::arena`, valid until the end of the tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArenaRange {
    pub start: u32,
    pub end: u32,
}

impl ArenaRange {
    pub(crate) fn len(self) -> usize {
        (self.end - self.start) as usize
    }
}

/// Identifies a request; returned with the decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestId {
    /// Connection that waits; `None` for a reauthorization of existing subscriptions.
    pub(crate) conn: Option<ConnId>,
    pub(crate) number: u32,
    pub(crate) at: u32,
}

/// Index of a listener in the list of configured listeners.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ListenerId(pub u8);

impl ListenerId {
    /// No listener: the listener is unknown, or the connection came from this process.
    pub const NONE: ListenerId = ListenerId(u8::MAX);
}

/// Index of a filter in the `FilterIndex` of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FilterId(pub(crate) u32);

/// `SubscribeOptions` without retain handling, which only SUBSCRIBE itself needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SubscriptionFlags(u8);

impl SubscriptionFlags {
    pub(crate) fn new(options: SubscribeOptions) -> SubscriptionFlags {
        let flag = |set: bool, bit: u8| if set { bit } else { 0 };
        let flags = flag(options.no_local, 4) | flag(options.retain_as_published, 8);
        SubscriptionFlags(options.qos as u8 | flags)
    }

    /// Returns the options as the byte in a record of the store: QoS in bits 0 and 1, No Local 4,
    /// Retain As Published 8.
    pub(crate) fn bits(self) -> u8 {
        self.0
    }

    pub(crate) fn from_bits(bits: u8) -> SubscriptionFlags {
        SubscriptionFlags(bits & 15)
    }

    pub(crate) fn options(self) -> SubscribeOptions {
        SubscribeOptions {
            qos: self.qos(),
            no_local: self.no_local(),
            retain_as_published: self.retain_as_published(),
            ..SubscribeOptions::default()
        }
    }

    #[inline]
    pub(crate) fn qos(self) -> QoS {
        match self.0 & 3 {
            0 => QoS::AtMostOnce,
            1 => QoS::AtLeastOnce,
            _ => QoS::ExactlyOnce,
        }
    }

    #[inline]
    pub(crate) fn no_local(self) -> bool {
        self.0 & 4 != 0
    }

    /// Combines two subscriptions of one session: the higher QoS, and each flag which either sets.
    pub(crate) fn union(self, other: SubscriptionFlags) -> SubscriptionFlags {
        let qos = (self.0 & 3).max(other.0 & 3);
        SubscriptionFlags(qos | (self.0 | other.0) & !3)
    }

    #[inline]
    pub(crate) fn retain_as_published(self) -> bool {
        self.0 & 8 != 0
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotState {
    /// PUBLISH sent, without an answer.
    Sent,
    /// PUBREC received, PUBREL sent.
    Released,
}

/// Returns the zero-based id that is `by` later, modulo [`IDS`].
pub(crate) fn add_to_id(id: u16, by: u16) -> u16 {
    ((u32::from(id) + u32::from(by)) % IDS) as u16
}

pub(crate) const IDS: u32 = u16::MAX as u32;
