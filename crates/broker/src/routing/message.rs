//! An application message: immutable, one buffer, shared by reference count.
//!
//! ```text
//! | at u64 | expiry_s u32 | properties len u32 | topic len u16 | flags u8 | publisher u32 |
//! | topic | properties | payload |
//! ```
//!
//! A [`IncomingPublish`] is the same message before anyone keeps it: borrowed from the read buffer,
//! made into a `Message` only when the retained store or another shard wants it. Queues and flights
//! of one shard keep the same bytes as a `PooledMessage`, counted in a plain number.

use crate::durability::write_batch::RecordNumber;
use crate::input::MonotonicMs;
use crate::memory::cost;
use crate::options::Durability;
use crate::outbox::ArenaRange;
use crate::slab::Slab;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use mqtt::QoS;
use std::sync::Arc;

pub(crate) const NO_EXPIRY: u32 = u32::MAX;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message(Arc<[u8]>);

const HEAD: usize = 23;
const RETAIN: u8 = 4;
/// Position of the two bits for the durability.
const KEEP_AT: u8 = 3;
const KEEP: u8 = 3;
/// A rule made it.
const MADE: u8 = 1 << 5;

impl Message {
    pub(crate) fn new(draft: &IncomingPublish<'_>) -> Message {
        let len = draft.len();
        if len > SPARE_BYTES_MAX {
            let mut bytes = Vec::new();
            draft.write(&mut bytes);
            return Message(bytes.into());
        }
        // Put together on the stack, it takes one allocation and not two.
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

    /// From the store. None where the bytes are no message.
    pub(crate) fn read(bytes: &[u8]) -> Option<Message> {
        MessageView::read(bytes).map(|view| Message(view.0.into()))
    }

    pub(crate) fn draft(&self) -> IncomingPublish<'_> {
        IncomingPublish { message: Some(self.clone()), ..self.view().draft() }
    }

    /// When it expires, if it does.
    pub(crate) fn expires_at(&self) -> Option<MonotonicMs> {
        let (at, expiry_s) = (self.view().at(), self.view().expiry_s());
        (expiry_s != NO_EXPIRY).then(|| MonotonicMs(at.0 + u64::from(expiry_s) * 1000))
    }
}

/// A message's bytes, whoever keeps them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MessageView<'a>(&'a [u8]);

impl<'a> MessageView<'a> {
    /// Bytes that did not come from a `IncomingPublish` of this process.
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

    /// When it was published.
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

    /// Whether that was more than so long ago; `u32::MAX` is for ever.
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

/// Positions in this tick's arena of the message's encodings so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EncodedRanges {
    /// For clients whose names are so much shorter: see `mount`.
    pub(crate) prefix_len: u8,
    /// QoS 0, by version (5.0 or not) and retain flag.
    pub(crate) qos0: [Option<ArenaRange>; 4],
    /// The first form with a packet id: subscribers in step with it share even that.
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

#[derive(Clone, Debug)]
pub(crate) struct IncomingPublish<'a> {
    pub(crate) topic: &'a str,
    /// Encoded, only those that are forwarded unaltered.
    pub(crate) properties: &'a [u8],
    pub(crate) payload: &'a [u8],
    pub(crate) qos: QoS,
    pub(crate) retain: bool,
    pub(crate) expiry_s: u32,
    /// When it came in.
    pub(crate) at: MonotonicMs,
    pub(crate) durability: Durability,
    /// A hash of the publisher's client id, for shared groups that choose by it.
    pub(crate) publisher: u32,
    /// By a rule.
    pub(crate) by_rule: bool,
    /// Through a power cut too it is to come once: other shards get it by `transit`.
    pub(crate) exactly_once: bool,
    pub(crate) encoded: EncodedRanges,
    pub(crate) message: Option<Message>,
    /// Taken back by whoever forgets the slot that it was kept for: the place may be free again.
    pub(crate) pooled: Option<PooledMessageId>,
}

impl<'a> IncomingPublish<'a> {
    /// Plain: no properties, no expiry.
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

    /// Returns the length of the layout above.
    fn len(&self) -> usize {
        HEAD + self.topic.len() + self.properties.len() + self.payload.len()
    }

    #[inline]
    fn write(&self, to: &mut Vec<u8>) {
        to.reserve_exact(self.len());
        self.visit_parts(|part| to.extend_from_slice(part));
    }

    /// The layout above, from its beginning to its end.
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

    pub(crate) fn message(&mut self) -> &Message {
        if self.message.is_none() {
            self.message = Some(Message::new(self));
        }
        self.message.as_ref().expect("it was just made")
    }
}

/// A message kept by queues and flights of one shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PooledMessageId(pub(crate) u32);

#[derive(Debug)]
struct PooledMessage {
    bytes: MessageBytes,
    refs: u32,
}

#[derive(Debug)]
pub(crate) enum MessageBytes {
    /// Only sessions of this shard want it: no atomic count, and a buffer that is used again.
    Own(Vec<u8>),
    /// The retained store or other shards have it too.
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

/// The messages that this shard's sessions keep. Who keeps one is counted in a plain number, and
/// the buffer of a message that is done serves the next.
#[derive(Debug, Default)]
pub(crate) struct MessagePool {
    kept: Slab<PooledMessage>,
    spare: Vec<Vec<u8>>,
    pub(crate) bytes: u64,
    /// Messages that the store keeps once for several sessions.
    bodies: HashMap<u32, RecordNumber, FixedState>,
    /// Stored messages that no session needs any more.
    dead_bodies: Vec<RecordNumber>,
    /// Messages that a session gives up, until the store has recorded that.
    moving: Vec<PooledMessageId>,
    /// Memory of the messages, their entries, the slots in queues and flights that refer to them,
    /// and the spare buffers. A single number, since every delivery reads it.
    held: u64,
}

/// At most this many buffers of at most so many bytes wait to be used again.
const SPARE_MAX: usize = 8 * 1024;
const SPARE_BYTES_MAX: usize = 512;

impl MessagePool {
    /// Adds a reference to the draft's message, and keeps the message at the first one.
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

    /// For those who keep it longer than this shard does.
    pub(crate) fn message(&self, id: PooledMessageId) -> Message {
        match &self.kept[id.0].bytes {
            MessageBytes::Own(bytes) => Message(bytes[..].into()),
            MessageBytes::Shared(message) => message.clone(),
        }
    }

    /// Takes the bytes out, to be read while the sessions change. They come back by `restore`.
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

    /// Adds a reference to a kept message.
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

    /// A message goes on to somebody else. The store may refuse that for now, and takes the
    /// removal of what it has all the same: so that is not to be removed before.
    pub(crate) fn move_body(&mut self, id: PooledMessageId) {
        if self.bodies.contains_key(&id.0) {
            self.add_reference(id);
            self.moving.push(id);
        }
    }

    /// The store has taken all that was written.
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
