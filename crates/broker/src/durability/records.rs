//! Encoding of the store's keys and values, byte by byte; docs/store-format.md has the diagrams.
//!
//! Numbers in keys are big-endian, so that keys sort by number; numbers in values are
//! little-endian.

use crate::durability::id_shifts::{IdShift, IdShifts};
use crate::ids::{RecordNumber, RetainStamp, ShardId, SlotState};
use crate::message::Message;
use crate::message::will::{DelayedPublisher, SessionWill};
use crate::owner_shard::ShardHasher;
use mqtt::{ByteReader, PacketId, ProtocolVersion, QoS};

/// First byte of a key in `RecordSpace::Sessions`.
pub(crate) mod kind {
    /// Number of starts of the store, and the [`ShardHasher`](super::ShardHasher) of the last
    /// process.
    pub(crate) const BOOT: u8 = b'b';
    /// Readings of the clocks at the start of a process, or at the last change of the time of day.
    pub(crate) const CLOCK: u8 = b'c';
    /// A delayed message in format 4 or older; key: number.
    pub(crate) const DELAYED_FORMAT_4: u8 = b'd';
    /// A subscription; key: number of the session, filter.
    pub(crate) const FILTER: u8 = b'f';
    /// Tombstone of a session or group that ended, whose queue has to be removed; key: number.
    pub(crate) const TOMBSTONE: u8 = b'g';
    /// A delayed message with the publisher; key: number.
    pub(crate) const DELAYED_WITH_PUBLISHER: u8 = b'l';
    /// A shared group with a queue; key: filter.
    pub(crate) const GROUP: u8 = b'q';
    /// A received QoS 2 message without PUBREL; key: number of the session, packet id.
    pub(crate) const RECEIVED: u8 = b'r';
    /// A session; key: client id.
    pub(crate) const SESSION: u8 = b's';
    /// State of a rule's window for a key; key: name of the rule, NUL, window key.
    pub(crate) const WINDOW: u8 = b'w';
}

/// A slot of a queue, without the message: see [`RecordBody`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct QueueRecord {
    pub(crate) qos: QoS,
    pub(crate) retain: bool,
    pub(crate) state: SlotState,
    pub(crate) ids: Box<[u32]>,
    pub(crate) group: Option<std::sync::Arc<str>>,
    /// Route of a record in a cross-shard log; `None` in a session's or group's queue.
    pub(crate) route: Option<CrossShardRoute>,
}

impl QueueRecord {
    pub(crate) fn new(qos: QoS, retain: bool) -> QueueRecord {
        QueueRecord {
            qos,
            retain,
            state: SlotState::Sent,
            ids: Box::default(),
            group: None,
            route: None,
        }
    }
}

/// Destination of a record in a cross-shard log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CrossShardRoute {
    pub(crate) to: ShardId,
    /// Stamp of a retained message.
    pub(crate) stamp: RetainStamp,
}

/// Location of the message of a queue record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordBody<'a> {
    Inline(&'a [u8]),
    Shared(RecordNumber),
    /// The client has received the message; only PUBREL and PUBCOMP are missing
    /// (`SlotState::Released`).
    None,
}

/// Version of all formats here, stored in the [`kind::BOOT`] record, which is read first.
const FORMAT: u8 = 6;
/// Older formats that can be read. Format 5 has no [`IdShifts`]; 4 has only the client id of a
/// delayed message's publisher; 3 has no outputs of rules and no windows; 2 has no owners of
/// sessions.
const FORMATS_BEFORE: [u8; 4] = [2, 3, 4, 5];

const RETAIN: u8 = 1 << 2;
const RELEASED: u8 = 1 << 3;
const ELSEWHERE: u8 = 1 << 4;
const GROUPED: u8 = 1 << 5;
const ON_ITS_WAY: u8 = 1 << 6;
/// Flags in the byte with the protocol version in a session's record: the record has an `owner`
/// ([`OWNED`]), or shifts of packet ids ([`SHIFTED`]).
const OWNED: u8 = 1 << 7;
const SHIFTED: u8 = 1 << 6;

/// Returns the position in the key of a queue record.
pub(crate) fn position_of(key: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(key.get(8..16)?.try_into().ok()?))
}

pub(crate) fn queue_value(entry: &QueueRecord, body: RecordBody<'_>) -> Vec<u8> {
    let mut flags = entry.qos as u8;
    flags |= if entry.retain { RETAIN } else { 0 };
    flags |= if body == RecordBody::None { RELEASED } else { 0 };
    flags |= if let RecordBody::Shared(_) = body { ELSEWHERE } else { 0 };
    flags |= if entry.group.is_some() { GROUPED } else { 0 };
    flags |= if entry.route.is_some() { ON_ITS_WAY } else { 0 };
    let mut value = vec![flags];
    value.extend_from_slice(&(entry.ids.len() as u32).to_le_bytes());
    for id in &entry.ids {
        value.extend_from_slice(&id.to_le_bytes());
    }
    if let Some(group) = &entry.group {
        put_text(&mut value, group);
    }
    if let Some(CrossShardRoute { to, stamp }) = entry.route {
        value.push(to.0);
        put_stamp(&mut value, stamp);
    }
    match body {
        RecordBody::Inline(bytes) => value.extend_from_slice(bytes),
        RecordBody::Shared(number) => value.extend_from_slice(&number.0.to_le_bytes()),
        RecordBody::None => {}
    }
    value
}

pub(crate) fn read_queue(value: &[u8]) -> Option<(QueueRecord, RecordBody<'_>)> {
    let mut from = ByteReader::new(value);
    let flags = from.u8()?;
    let count = from.u32_le()? as usize;
    let ids = (0..count.min(value.len())).map(|_| from.u32_le()).collect::<Option<Box<[u32]>>>()?;
    let group = if flags & GROUPED != 0 { Some(read_text(&mut from)?.into()) } else { None };
    let way = if flags & ON_ITS_WAY != 0 { Some(read_route(&mut from)?) } else { None };
    let released = flags & RELEASED != 0;
    let entry = QueueRecord {
        qos: QoS::from_bits(flags & 3)?,
        retain: flags & RETAIN != 0,
        state: if released { SlotState::Released } else { SlotState::Sent },
        ids,
        group,
        route: way,
    };
    let body = match () {
        () if released => RecordBody::None,
        () if flags & ELSEWHERE != 0 => RecordBody::Shared(RecordNumber(from.u64_le()?)),
        () => RecordBody::Inline(from.rest()),
    };
    Some((entry, body))
}

/// Encodes the retained message of a topic.
pub(crate) fn retained_value(stamp: RetainStamp, message: &[u8]) -> Vec<u8> {
    let mut value = Vec::new();
    put_stamp(&mut value, stamp);
    value.extend_from_slice(message);
    value
}

pub(crate) fn read_retained(value: &[u8]) -> Option<(RetainStamp, Message)> {
    let mut from = ByteReader::new(value);
    Some((read_stamp(&mut from)?, Message::read(from.rest())?))
}

pub(crate) fn boot_value(boot: u32, homes: ShardHasher) -> Vec<u8> {
    let mut value = vec![FORMAT];
    value.extend_from_slice(&boot.to_le_bytes());
    value.push(homes.shards);
    value.extend_from_slice(&homes.key.to_le_bytes());
    value
}

/// Decodes the `BOOT` record. `None` for an unknown format, in which all records may be unreadable.
pub(crate) fn read_boot(value: &[u8]) -> Option<(u32, ShardHasher)> {
    let mut from = ByteReader::new(value);
    let format = from.u8()?;
    let (boot, shards, key) = (from.u32_le()?, from.u8()?, from.u64_le()?);
    let is_known = format == FORMAT || FORMATS_BEFORE.contains(&format);
    (is_known && from.is_empty()).then_some((boot, ShardHasher { key, shards }))
}

/// Stored state of a session without subscriptions and queue.
#[derive(Debug)]
pub(crate) struct SessionRecord {
    pub(crate) number: RecordNumber,
    /// Mark of the [`PositionAllocator`](crate::durability::write_batch::PositionAllocator).
    pub(crate) mark: u64,
    pub(crate) shifts: IdShifts,
    /// No message from this position on was ever sent.
    pub(crate) unsent: u64,
    pub(crate) version: ProtocolVersion,
    pub(crate) expiry_s: u32,
    /// Time at which the client went offline; `None` while online.
    pub(crate) away_at: Option<u64>,
    pub(crate) will_at: Option<u64>,
    /// User that owns the session, if one does.
    pub(crate) owner: Option<Box<str>>,
    /// The will as read from the store; `session_value` takes the will as an argument instead.
    pub(crate) will: Option<Box<SessionWill>>,
}

pub(crate) fn text_key(kind: u8, text: &str) -> Vec<u8> {
    [&[kind], text.as_bytes()].concat()
}

pub(crate) fn filter_key(number: RecordNumber, filter: &str) -> Vec<u8> {
    [&[kind::FILTER], &number.0.to_be_bytes()[..], filter.as_bytes()].concat()
}

/// Encodes a subscription. An exclusive subscription has one byte more, see `read_filter`.
pub(crate) fn filter_value(options: u8, id: u32, is_exclusive: bool) -> Vec<u8> {
    let mut value = vec![options];
    value.extend_from_slice(&id.to_le_bytes());
    value.extend(is_exclusive.then_some(1));
    value
}

/// Encodes the number and the mark of a group.
pub(crate) fn group_value(number: RecordNumber, mark: u64) -> Vec<u8> {
    [number.0.to_le_bytes(), mark.to_le_bytes()].concat()
}

pub(crate) fn read_group(value: &[u8]) -> Option<(RecordNumber, u64)> {
    let mut from = ByteReader::new(value);
    Some((RecordNumber(from.u64_le()?), from.u64_le()?))
}

pub(crate) fn read_filter(value: &[u8]) -> Option<(u8, u32, bool)> {
    let mut from = ByteReader::new(value);
    Some((from.u8()?, from.u32_le()?, !from.is_empty()))
}

/// Returns the key of a delayed message, of [`kind::DELAYED_WITH_PUBLISHER`] or
/// [`kind::DELAYED_FORMAT_4`].
pub(crate) fn delayed_key(kind: u8, number: RecordNumber) -> Vec<u8> {
    [&[kind], &number.0.to_be_bytes()[..]].concat()
}

/// Encodes a delayed message after the publisher. The time in the message is the due time; an empty
/// user or address stands for none.
pub(crate) fn delayed_value(by: &DelayedPublisher, message: &[u8]) -> Vec<u8> {
    let mut value = Vec::new();
    put_text(&mut value, &by.client_id);
    put_text(&mut value, by.user.as_deref().unwrap_or_default());
    put_text(&mut value, by.address.as_deref().unwrap_or_default());
    value.extend_from_slice(message);
    value
}

pub(crate) fn read_delayed(kind: u8, value: &[u8]) -> Option<(DelayedPublisher, Message)> {
    let mut from = ByteReader::new(value);
    let client_id = read_text(&mut from)?.into();
    let (mut user, mut address) = ("", "");
    if kind == kind::DELAYED_WITH_PUBLISHER {
        (user, address) = (read_text(&mut from)?, read_text(&mut from)?);
    }
    let given = |text: &'_ str| !text.is_empty();
    let by = DelayedPublisher {
        client_id,
        user: Some(user).filter(|text| given(text)).map(Into::into),
        address: Some(address).filter(|text| given(text)).map(Into::into),
    };
    Some((by, Message::read(from.rest())?))
}

pub(crate) fn received_key(number: RecordNumber, id: PacketId) -> Vec<u8> {
    [&[kind::RECEIVED], &number.0.to_be_bytes()[..], &id.get().to_be_bytes()].concat()
}

pub(crate) fn tombstone_key(number: RecordNumber) -> Vec<u8> {
    [&[kind::TOMBSTONE], &number.0.to_be_bytes()[..]].concat()
}

pub(crate) fn window_key(rule: &str, key: &str) -> Vec<u8> {
    [&[kind::WINDOW], rule.as_bytes(), &[0], key.as_bytes()].concat()
}

/// Returns the rule's name and the window key, the arguments of [`window_key`].
pub(crate) fn read_window_key(key: &[u8]) -> Option<(&str, &str)> {
    std::str::from_utf8(key.get(1..)?).ok()?.split_once('\0')
}

pub(crate) fn window_value(rule: u64, depth: u8, gathering: &rules::WindowState) -> Vec<u8> {
    let mut value = rule.to_le_bytes().to_vec();
    value.push(depth);
    gathering.encode(&mut value);
    value
}

pub(crate) fn read_window(value: &[u8]) -> Option<(u64, u8, &[u8])> {
    let mut from = ByteReader::new(value);
    Some((from.u64_le()?, from.u8()?, from.rest()))
}

/// Returns the number after the kind in a key, and the rest of the key.
pub(crate) fn read_number(key: &[u8]) -> Option<(RecordNumber, &[u8])> {
    let (number, rest) = key.get(1..)?.split_first_chunk::<8>()?;
    Some((RecordNumber(u64::from_be_bytes(*number)), rest))
}

pub(crate) fn session_value(record: &SessionRecord, will: Option<&SessionWill>) -> Vec<u8> {
    let mut value = record.number.0.to_le_bytes().to_vec();
    value.extend_from_slice(&record.mark.to_le_bytes());
    value.extend_from_slice(&record.unsent.to_le_bytes());
    let shifts = record.shifts.as_slice();
    let owned = if record.owner.is_some() { OWNED } else { 0 };
    let shifted = if shifts.is_empty() { 0 } else { SHIFTED };
    value.push(record.version as u8 | owned | shifted);
    value.extend_from_slice(&record.expiry_s.to_le_bytes());
    // No valid time is `u64::MAX`, which stands for none.
    value.extend_from_slice(&record.away_at.unwrap_or(u64::MAX).to_le_bytes());
    value.extend_from_slice(&record.will_at.unwrap_or(u64::MAX).to_le_bytes());
    if let Some(owner) = &record.owner {
        put_text(&mut value, owner);
    }
    if !shifts.is_empty() {
        value.extend_from_slice(&(shifts.len() as u32).to_le_bytes());
    }
    for IdShift { from, by } in shifts {
        value.extend_from_slice(&from.to_le_bytes());
        value.extend_from_slice(&by.to_le_bytes());
    }
    let Some(will) = will else { return value };
    value.extend_from_slice(&will.delay_s.to_le_bytes());
    value.extend_from_slice(&will.expiry_s.to_le_bytes());
    value.push(will.qos as u8 | if will.retain { RETAIN } else { 0 });
    put_text(&mut value, &will.topic);
    value.extend_from_slice(&(will.properties.len() as u32).to_le_bytes());
    value.extend_from_slice(&will.properties);
    value.extend_from_slice(&will.payload);
    value
}

pub(crate) fn read_session(value: &[u8]) -> Option<SessionRecord> {
    let mut from = ByteReader::new(value);
    let time = |time: u64| (time != u64::MAX).then_some(time);
    let (number, mark) = (RecordNumber(from.u64_le()?), from.u64_le()?);
    let (unsent, level) = (from.u64_le()?, from.u8()?);
    let versions = [ProtocolVersion::V31, ProtocolVersion::V311, ProtocolVersion::V5];
    let mut record = SessionRecord {
        number,
        mark,
        shifts: IdShifts::default(),
        unsent,
        version: versions
            .into_iter()
            .find(|version| *version as u8 == level & !(OWNED | SHIFTED))?,
        expiry_s: from.u32_le()?,
        away_at: time(from.u64_le()?),
        will_at: time(from.u64_le()?),
        owner: None,
        will: None,
    };
    if level & OWNED != 0 {
        record.owner = Some(read_text(&mut from)?.into());
    }
    if level & SHIFTED != 0 {
        let count = from.u32_le()? as usize;
        let shifts = (0..count.min(value.len()))
            .map(|_| Some(IdShift { from: from.u64_le()?, by: from.u16_le()? }));
        record.shifts = IdShifts::from_vec(shifts.collect::<Option<_>>()?);
    }
    if !from.is_empty() {
        let (delay_s, expiry_s, flags) = (from.u32_le()?, from.u32_le()?, from.u8()?);
        let topic = read_text(&mut from)?.into();
        let properties_len = from.u32_le()? as usize;
        let properties = from.bytes(properties_len)?.into();
        record.will = Some(Box::new(SessionWill {
            topic,
            payload: from.rest().into(),
            properties,
            qos: QoS::from_bits(flags & 3)?,
            retain: flags & RETAIN != 0,
            delay_s,
            expiry_s,
        }));
    }
    Some(record)
}

fn put_stamp(to: &mut Vec<u8>, stamp: RetainStamp) {
    to.extend_from_slice(&stamp.at.to_le_bytes());
    to.extend_from_slice(&stamp.counter.to_le_bytes());
    to.push(stamp.shard);
}

fn put_text(to: &mut Vec<u8>, text: &str) {
    to.extend_from_slice(&(text.len() as u16).to_le_bytes());
    to.extend_from_slice(text.as_bytes());
}

fn read_route(from: &mut ByteReader<'_>) -> Option<CrossShardRoute> {
    Some(CrossShardRoute { to: ShardId(from.u8()?), stamp: read_stamp(from)? })
}

fn read_stamp(from: &mut ByteReader<'_>) -> Option<RetainStamp> {
    Some(RetainStamp { at: from.u64_le()?, counter: from.u32_le()?, shard: from.u8()? })
}

fn read_text<'a>(from: &mut ByteReader<'a>) -> Option<&'a str> {
    let len = from.u16_le()?;
    std::str::from_utf8(from.bytes(usize::from(len))?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::MonotonicMs;
    use crate::message::IncomingPublish;

    fn record(owner: Option<&str>) -> SessionRecord {
        SessionRecord {
            number: RecordNumber(7),
            mark: 65_536,
            shifts: IdShifts::from_vec(vec![IdShift { from: 70_000, by: 65_534 }]),
            unsent: 3,
            version: ProtocolVersion::V5,
            expiry_s: 60,
            away_at: Some(1_000),
            will_at: None,
            owner: owner.map(Into::into),
            will: None,
        }
    }

    #[test]
    fn a_session_comes_back_with_its_owner_and_its_will() {
        let will = SessionWill {
            topic: "w".into(),
            payload: b"gone".as_slice().into(),
            properties: Box::default(),
            qos: QoS::AtLeastOnce,
            retain: true,
            delay_s: 5,
            expiry_s: u32::MAX,
        };
        for owner in [None, Some(""), Some("ann")] {
            for will in [None, Some(&will)] {
                let value = session_value(&record(owner), will);
                let back = read_session(&value).expect("it was just written");
                assert_eq!((back.number, back.version), (RecordNumber(7), ProtocolVersion::V5));
                assert_eq!(back.shifts, record(owner).shifts);
                assert_eq!((back.away_at, back.will_at), (Some(1_000), None));
                assert_eq!(back.owner.as_deref(), owner);
                let topic = back.will.as_ref().map(|will| &*will.topic);
                assert_eq!(topic, will.map(|will| &*will.topic));
                assert!(read_session(&value[..40]).is_none(), "half a record is none");
            }
        }
    }

    /// Fields that an older format lacks are empty, and the rest is unchanged.
    #[test]
    fn a_store_of_a_format_before_is_read_and_others_are_not() {
        let homes = ShardHasher { key: 5, shards: 2 };
        let value = boot_value(9, homes);
        let of = |format: u8| [&[format], &value[1..]].concat();
        assert_eq!(read_boot(&value), Some((9, homes)));
        for before in FORMATS_BEFORE {
            assert_eq!(read_boot(&of(before)), Some((9, homes)));
        }
        assert_eq!([read_boot(&of(1)), read_boot(&of(FORMAT + 1))], [None; 2]);
    }

    #[test]
    fn a_delayed_message_is_of_whom_its_record_says() {
        let message = Message::new(&IncomingPublish::new("t", b"1", MonotonicMs(7)));
        let bytes = message.view().as_bytes();
        let by = DelayedPublisher {
            client_id: "c".into(),
            user: Some("ann".into()),
            address: Some("192.0.2.1".into()),
        };
        let read = |kind, value: &[u8]| read_delayed(kind, value).map(|(by, _)| by);
        assert_eq!(read(kind::DELAYED_WITH_PUBLISHER, &delayed_value(&by, bytes)), Some(by));
        let nobody = DelayedPublisher { client_id: "c".into(), user: None, address: None };
        assert_eq!(
            read(kind::DELAYED_WITH_PUBLISHER, &delayed_value(&nobody, bytes)),
            Some(nobody.clone())
        );
        // Written by an older format.
        let mut before = Vec::new();
        put_text(&mut before, "c");
        before.extend_from_slice(bytes);
        assert_eq!(read(kind::DELAYED_FORMAT_4, &before), Some(nobody));
        assert_eq!(read(kind::DELAYED_WITH_PUBLISHER, &before[..4]), None);
    }
}
