//! An application message: immutable, in a single buffer, shared by reference count.
//!
//! ```text
//! | at u64 | expiry_s u32 | properties len u32 | topic len u16 | flags u8 | publisher u32 |
//! | topic | properties | payload |
//! ```
//!
//! An `IncomingPublish` is the message before it is stored: borrowed from the read buffer, and
//! copied to a `Message` only for the retained store or another shard. Queues and flights of one
//! shard hold the same bytes as a `PooledMessage`, whose reference count is not atomic.

pub mod namespace;
pub(crate) mod will;

use crate::ids::{ArenaRange, MonotonicMs, RecordNumber};
use crate::memory::cost;
use crate::slab::Slab;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use mqtt::QoS;
use std::sync::Arc;

pub(crate) const NO_EXPIRY: u32 = u32::MAX;

/// A message which several shards or the retained store may hold: a clone copies no bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message(Arc<[u8]>);

const HEAD: usize = 23;
const RETAIN: u8 = 4;
/// Position of the two bits of `Durability` in the flags.
const KEEP_AT: u8 = 3;
const KEEP: u8 = 3;
/// Flag of a message which a rule published.
const MADE: u8 = 1 << 5;

impl Message {
    pub(crate) fn new(draft: &IncomingPublish<'_>) -> Message {
        let len = draft.len();
        if len > SPARE_BYTES_MAX {
            let mut bytes = Vec::new();
            draft.write(&mut bytes);
            return Message(bytes.into());
        }
        // Building small messages on the stack saves the allocation of a `Vec`.
        let (mut bytes, mut at) = ([0; SPARE_BYTES_MAX], 0);
        draft.visit_parts(|part| {
            bytes[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        });
        Message(bytes[..len].into())
    }

    #[inline]
    pub(crate) fn view(&self) -> MessageView<'_> {
        MessageView(&self.0)
    }

    pub fn topic(&self) -> &str {
        self.view().topic()
    }

    pub fn payload(&self) -> &[u8] {
        self.view().payload()
    }

    pub(crate) fn qos(&self) -> QoS {
        self.view().qos()
    }

    pub(crate) fn retain(&self) -> bool {
        self.view().draft().retain
    }

    /// Returns the bytes of the message that count towards `memory_bytes_max`.
    pub fn bytes(&self) -> usize {
        self.view().bytes()
    }

    pub(crate) fn is_expired(&self, now: MonotonicMs) -> bool {
        self.view().is_expired(now)
    }

    /// Decodes a message from the store. Returns `None` if the bytes are malformed.
    pub(crate) fn read(bytes: &[u8]) -> Option<Message> {
        MessageView::read(bytes).map(|view| Message(view.0.into()))
    }

    pub(crate) fn draft(&self) -> IncomingPublish<'_> {
        IncomingPublish { message: Some(self.clone()), ..self.view().draft() }
    }

    /// Returns the time of expiry, or `None` for a message without Message Expiry Interval.
    pub(crate) fn expires_at(&self) -> Option<MonotonicMs> {
        let (at, expiry_s) = (self.view().at(), self.view().expiry_s());
        (expiry_s != NO_EXPIRY).then(|| MonotonicMs(at.0 + u64::from(expiry_s) * 1000))
    }
}

/// The bytes of a message in the layout above, borrowed from a `Message` or from a `MessagePool`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MessageView<'a>(&'a [u8]);

impl<'a> MessageView<'a> {
    /// Checks bytes from outside this process (lengths, UTF-8 of the topic, durability), and
    /// returns them as a view; `None` if the bytes are invalid.
    fn read(bytes: &'a [u8]) -> Option<MessageView<'a>> {
        let view = MessageView(bytes);
        let fits = bytes.len() >= HEAD && view.payload_at() <= bytes.len();
        let named = fits && std::str::from_utf8(&bytes[HEAD..HEAD + view.topic_len()]).is_ok();
        (named && Durability::from_bits(bytes[18] >> KEEP_AT & KEEP).is_some()).then_some(view)
    }

    pub(crate) fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    fn u32_at(self, at: usize) -> u32 {
        u32::from_le_bytes([self.0[at], self.0[at + 1], self.0[at + 2], self.0[at + 3]])
    }

    /// Time at which the message was published.
    pub(crate) fn at(self) -> MonotonicMs {
        MonotonicMs(u64::from(self.u32_at(0)) | u64::from(self.u32_at(4)) << 32)
    }

    fn expiry_s(self) -> u32 {
        self.u32_at(8)
    }

    fn qos(self) -> QoS {
        QoS::from_bits(self.0[18] & 3).unwrap_or_default()
    }

    fn topic_len(self) -> usize {
        usize::from(u16::from_le_bytes([self.0[16], self.0[17]]))
    }

    fn topic(self) -> &'a str {
        let bytes = &self.0[HEAD..HEAD + self.topic_len()];
        std::str::from_utf8(bytes).expect("it was a str when it was copied")
    }

    fn payload_at(self) -> usize {
        HEAD + self.topic_len() + self.u32_at(12) as usize
    }

    fn payload(self) -> &'a [u8] {
        &self.0[self.payload_at()..]
    }

    pub(crate) fn bytes(self) -> usize {
        self.0.len() + 32
    }

    pub(crate) fn is_expired(self, now: MonotonicMs) -> bool {
        is_expired(self.at(), self.expiry_s(), now)
    }

    /// Whether the message was published at least `age_s` seconds ago; `u32::MAX` is unlimited.
    pub(crate) fn is_older(self, age_s: u32, now: MonotonicMs) -> bool {
        is_expired(self.at(), age_s, now)
    }

    pub(crate) fn draft(self) -> IncomingPublish<'a> {
        IncomingPublish {
            topic: self.topic(),
            properties: &self.0[HEAD + self.topic_len()..self.payload_at()],
            payload: self.payload(),
            qos: self.qos(),
            // The RETAIN flag as it was published.
            retain: self.0[18] & RETAIN != 0,
            expiry_s: self.expiry_s(),
            at: self.at(),
            durability: Durability::from_bits(self.0[18] >> KEEP_AT & KEEP).unwrap_or_default(),
            publisher: self.u32_at(19),
            by_rule: self.0[18] & MADE != 0,
            exactly_once: false,
            encoded: EncodedRanges::default(),
            message: None,
            pooled: None,
        }
    }
}

pub(crate) fn is_expired(at: MonotonicMs, expiry_s: u32, now: MonotonicMs) -> bool {
    expiry_s != NO_EXPIRY && now.0 >= at.0 + u64::from(expiry_s) * 1000
}

/// Ranges of this tick's arena which hold an encoding of the message, reused for further receivers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EncodedRanges {
    /// Prefix length of the receivers' names: an encoding serves one length only. See `namespace`.
    pub(crate) prefix_len: u8,
    /// QoS 0, by version (5.0 or not) and retain flag.
    pub(crate) qos0: [Option<ArenaRange>; 4],
    /// The first encoding with a packet id, by `numbered_key`. Subscribers with the same key
    /// (packet id, version, QoS) share the range.
    pub(crate) numbered: Option<(u32, ArenaRange)>,
}

impl EncodedRanges {
    pub(crate) fn of_prefix_len(mount: u8) -> EncodedRanges {
        EncodedRanges { prefix_len: mount, ..EncodedRanges::default() }
    }

    #[inline]
    pub(crate) fn numbered_as(&self, key: u32) -> Option<ArenaRange> {
        self.numbered.filter(|(known, _)| *known == key).map(|(_, range)| range)
    }
}

/// A message on its way to receivers, borrowed from a packet, a stored message or a rule's output.
#[derive(Clone, Debug)]
pub(crate) struct IncomingPublish<'a> {
    pub(crate) topic: &'a str,
    /// Encoded properties, only those which are forwarded unaltered.
    pub(crate) properties: &'a [u8],
    pub(crate) payload: &'a [u8],
    pub(crate) qos: QoS,
    pub(crate) retain: bool,
    pub(crate) expiry_s: u32,
    /// Time of arrival, or of publication for a delayed message.
    pub(crate) at: MonotonicMs,
    pub(crate) durability: Durability,
    /// Hash of the publisher's client id, for shared groups with the strategy `HashClient`.
    pub(crate) publisher: u32,
    /// Whether a rule published the message.
    pub(crate) by_rule: bool,
    /// Whether the message must be delivered exactly once even after a power cut. Other shards then
    /// receive the message by the log of `cross_shard_log`.
    pub(crate) exactly_once: bool,
    pub(crate) encoded: EncodedRanges,
    pub(crate) message: Option<Message>,
    /// The kept message, once a queue or flight has stored it. A caller which releases that
    /// reference must reset this field, since the place may be reused.
    pub(crate) pooled: Option<PooledMessageId>,
}

impl<'a> IncomingPublish<'a> {
    /// Makes a QoS 0 message without properties or expiry.
    pub(crate) fn new(topic: &'a str, payload: &'a [u8], now: MonotonicMs) -> IncomingPublish<'a> {
        IncomingPublish {
            topic,
            properties: &[],
            payload,
            qos: QoS::AtMostOnce,
            retain: false,
            expiry_s: NO_EXPIRY,
            at: now,
            durability: Durability::Memory,
            publisher: 0,
            by_rule: false,
            exactly_once: false,
            encoded: EncodedRanges::default(),
            message: None,
            pooled: None,
        }
    }

    /// Returns the number of bytes which `write` appends.
    pub(crate) fn len(&self) -> usize {
        HEAD + self.topic.len() + self.properties.len() + self.payload.len()
    }

    #[inline]
    fn write(&self, to: &mut Vec<u8>) {
        to.reserve_exact(self.len());
        self.visit_parts(|part| to.extend_from_slice(part));
    }

    /// Passes the parts of the layout above to `put`, in order.
    #[inline]
    fn visit_parts(&self, mut put: impl FnMut(&[u8])) {
        let (topic, properties) = (self.topic.as_bytes(), self.properties);
        let mut head = [0; HEAD];
        head[0..8].copy_from_slice(&self.at.0.to_le_bytes());
        head[8..12].copy_from_slice(&self.expiry_s.to_le_bytes());
        head[12..16].copy_from_slice(&(properties.len() as u32).to_le_bytes());
        head[16..18].copy_from_slice(&(topic.len() as u16).to_le_bytes());
        head[18] = self.qos as u8
            | if self.retain { RETAIN } else { 0 }
            | if self.by_rule { MADE } else { 0 }
            | (self.durability as u8) << KEEP_AT;
        head[19..23].copy_from_slice(&self.publisher.to_le_bytes());
        put(&head);
        put(topic);
        put(properties);
        put(self.payload);
    }

    /// Returns the message with bytes of its own, for other shards, the retained store or a group's
    /// queue. The first call copies the bytes; sessions of this shard use [`MessagePool::keep`].
    pub(crate) fn message(&mut self) -> &Message {
        if self.message.is_none() {
            self.message = Some(Message::new(self));
        }
        self.message.as_ref().expect("it was just made")
    }
}

/// Index of a message in the `MessagePool` of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PooledMessageId(pub(crate) u32);

/// A message in the pool, with the number of slots and borrowers which refer to it.
#[derive(Debug)]
struct PooledMessage {
    bytes: MessageBytes,
    refs: u32,
}

/// Bytes of a `PooledMessage`, with or without another owner.
#[derive(Debug)]
pub(crate) enum MessageBytes {
    /// Bytes used only by sessions of this shard: no atomic count, and a reusable buffer.
    Own(Vec<u8>),
    /// Bytes which the retained store or another shard refers to as well.
    Shared(Message),
}

impl MessageBytes {
    #[inline]
    pub(crate) fn view(&self) -> MessageView<'_> {
        match self {
            MessageBytes::Own(bytes) => MessageView(bytes),
            MessageBytes::Shared(message) => message.view(),
        }
    }
}

/// The messages that the sessions of this shard hold. References are counted in a plain integer,
/// and the buffer of a released message serves the next.
#[derive(Debug, Default)]
pub(crate) struct MessagePool {
    kept: Slab<PooledMessage>,
    spare: Vec<Vec<u8>>,
    pub(crate) bytes: u64,
    /// Messages with a single record in the store for several sessions, by `PooledMessageId`.
    bodies: HashMap<u32, RecordNumber, FixedState>,
    /// Stored records which no session refers to any more.
    dead_bodies: Vec<RecordNumber>,
    /// References of `move_body`, held until the store has written the record of the new place.
    moving: Vec<PooledMessageId>,
    /// Memory of the messages, their entries, the slots in queues and flights that refer to them,
    /// and the spare buffers. A single number, since every delivery reads it.
    held: u64,
}

/// Number of spare buffers, and bound of a spare buffer in bytes.
const SPARE_MAX: usize = 8 * 1024;
const SPARE_BYTES_MAX: usize = 512;

impl MessagePool {
    /// Adds a reference to the draft's message. The first call copies the message to the pool.
    #[inline(always)]
    pub(crate) fn keep(&mut self, draft: &mut IncomingPublish<'_>) -> PooledMessageId {
        match draft.pooled {
            Some(id) => {
                self.add_reference(id);
                id
            }
            None => self.keep_first(draft),
        }
    }

    #[inline(never)]
    fn keep_first(&mut self, draft: &mut IncomingPublish<'_>) -> PooledMessageId {
        let bytes = match &draft.message {
            Some(message) => MessageBytes::Shared(message.clone()),
            None => {
                let mut buffer = match self.spare.pop() {
                    Some(buffer) => {
                        self.held -= SPARE_BYTES_MAX as u64;
                        buffer
                    }
                    None => Vec::new(),
                };
                draft.write(&mut buffer);
                MessageBytes::Own(buffer)
            }
        };
        let len = bytes.view().bytes() as u64;
        self.bytes += len;
        self.held += len + cost::KEPT + cost::SLOT;
        let id = PooledMessageId(self.kept.insert(PooledMessage { bytes, refs: 1 }));
        draft.pooled = Some(id);
        id
    }

    #[inline]
    pub(crate) fn get(&self, id: PooledMessageId) -> MessageView<'_> {
        self.kept[id.0].bytes.view()
    }

    /// Returns the message as a `Message`, for the retained store or another shard.
    pub(crate) fn message(&self, id: PooledMessageId) -> Message {
        match &self.kept[id.0].bytes {
            MessageBytes::Own(bytes) => Message(bytes[..].into()),
            MessageBytes::Shared(message) => message.clone(),
        }
    }

    /// Takes the bytes out, so that a caller can read them while sessions change. `restore` returns
    /// them.
    pub(crate) fn lend(&mut self, id: PooledMessageId) -> MessageBytes {
        let kept = &mut self.kept[id.0];
        kept.refs += 1;
        self.held += cost::SLOT;
        std::mem::replace(&mut kept.bytes, MessageBytes::Own(Vec::new()))
    }

    pub(crate) fn restore(&mut self, id: PooledMessageId, bytes: MessageBytes) {
        self.kept[id.0].bytes = bytes;
        self.release(id);
    }

    #[inline(always)]
    pub(crate) fn release(&mut self, id: PooledMessageId) {
        self.held -= cost::SLOT;
        let kept = &mut self.kept[id.0];
        kept.refs -= 1;
        if kept.refs == 0 {
            self.drop_unreferenced(id);
        }
    }

    #[inline(never)]
    fn drop_unreferenced(&mut self, id: PooledMessageId) {
        let len = self.kept[id.0].bytes.view().bytes() as u64;
        self.bytes -= len;
        self.held -= len + cost::KEPT;
        if !self.bodies.is_empty()
            && let Some(body) = self.bodies.remove(&id.0)
        {
            self.dead_bodies.push(body);
        }
        if let Some(PooledMessage { bytes: MessageBytes::Own(mut buffer), .. }) =
            self.kept.remove(id.0)
            && buffer.capacity() <= SPARE_BYTES_MAX
            && self.spare.len() < SPARE_MAX
        {
            buffer.clear();
            self.spare.push(buffer);
            self.held += SPARE_BYTES_MAX as u64;
        }
    }

    /// Adds a reference to a kept message, for a further queue or flight.
    #[inline(always)]
    pub(crate) fn add_reference(&mut self, id: PooledMessageId) {
        self.kept[id.0].refs += 1;
        self.held += cost::SLOT;
    }

    pub(crate) fn body(&self, id: PooledMessageId) -> Option<RecordNumber> {
        self.bodies.get(&id.0).copied()
    }

    pub(crate) fn set_body(&mut self, id: PooledMessageId, body: RecordNumber) {
        self.bodies.insert(id.0, body);
    }

    pub(crate) fn take_dead_bodies(&mut self) -> Vec<RecordNumber> {
        std::mem::take(&mut self.dead_bodies)
    }

    pub(crate) fn has_dead_bodies(&self) -> bool {
        !self.dead_bodies.is_empty()
    }

    /// Holds a stored message which moves to another queue. The store may postpone the new record,
    /// yet perform the removal of the old record at once; the extra reference delays the removal.
    pub(crate) fn move_body(&mut self, id: PooledMessageId) {
        if self.bodies.contains_key(&id.0) {
            self.add_reference(id);
            self.moving.push(id);
        }
    }

    /// Releases the references of `move_body`, once the store has taken all writes.
    pub(crate) fn end_moves(&mut self) {
        while let Some(id) = self.moving.pop() {
            self.release(id);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.kept.len()
    }

    #[inline]
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.held
    }
}

/// Durability of a message, which decides when the publisher receives its acknowledgement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Durability {
    /// The message is lost when the process ends.
    #[default]
    Memory,
    /// The message reaches the disk within `store.lazy_ms`. The acknowledgement is sent before.
    Lazy,
    /// The acknowledgement is sent once the message is on the disk.
    Sync,
}

impl Durability {
    pub(crate) fn from_bits(bits: u8) -> Option<Durability> {
        [Durability::Memory, Durability::Lazy, Durability::Sync].get(usize::from(bits)).copied()
    }
}
