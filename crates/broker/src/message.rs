//! An application message: immutable, one allocation, shared by reference count.
//!
//! ```text
//! | at u64 | expiry_s u32 | properties len u32 | topic len u16 | flags u8 | publisher u32 |
//! | topic | properties | payload |
//! ```
//!
//! A [`Draft`] is the same message before anyone keeps it: borrowed from the read buffer, made
//! into a `Message` only when a queue, a flight, the retained store or another shard wants it.

use crate::input::Now;
use crate::outbox::Range;
use crate::slab::Slab;
use mqtt::QoS;
use std::sync::Arc;

pub(crate) const NO_EXPIRY: u32 = u32::MAX;

#[derive(Clone, Debug)]
pub struct Message(Arc<[u8]>);

const HEAD: usize = 23;
const RETAIN: u8 = 4;

impl Message {
    pub(crate) fn new(draft: &Draft<'_>) -> Message {
        let (topic, properties) = (draft.topic.as_bytes(), draft.properties);
        let len = HEAD + topic.len() + properties.len() + draft.payload.len();
        let mut bytes: Arc<[u8]> = std::iter::repeat_n(0, len).collect();
        let to = Arc::get_mut(&mut bytes).expect("nobody else has seen it");
        to[0..8].copy_from_slice(&draft.at.0.to_le_bytes());
        to[8..12].copy_from_slice(&draft.expiry_s.to_le_bytes());
        to[12..16].copy_from_slice(&(properties.len() as u32).to_le_bytes());
        to[16..18].copy_from_slice(&(topic.len() as u16).to_le_bytes());
        to[18] = draft.qos as u8 | if draft.retain { RETAIN } else { 0 };
        to[19..23].copy_from_slice(&draft.publisher.to_le_bytes());
        let (topic_at, payload_at) = (HEAD + topic.len(), HEAD + topic.len() + properties.len());
        to[HEAD..topic_at].copy_from_slice(topic);
        to[topic_at..payload_at].copy_from_slice(properties);
        to[payload_at..].copy_from_slice(draft.payload);
        Message(bytes)
    }

    fn u32_at(&self, at: usize) -> u32 {
        u32::from_le_bytes([self.0[at], self.0[at + 1], self.0[at + 2], self.0[at + 3]])
    }

    pub(crate) fn at(&self) -> Now {
        Now(u64::from(self.u32_at(0)) | u64::from(self.u32_at(4)) << 32)
    }

    pub(crate) fn expiry_s(&self) -> u32 {
        self.u32_at(8)
    }

    pub(crate) fn qos(&self) -> QoS {
        QoS::from_bits(self.0[18] & 3).unwrap_or_default()
    }

    /// The RETAIN flag as it was published.
    pub(crate) fn retain(&self) -> bool {
        self.0[18] & RETAIN != 0
    }

    fn topic_len(&self) -> usize {
        usize::from(u16::from_le_bytes([self.0[16], self.0[17]]))
    }

    pub fn topic(&self) -> &str {
        let bytes = &self.0[HEAD..HEAD + self.topic_len()];
        std::str::from_utf8(bytes).expect("it was a str when it was copied")
    }

    fn payload_at(&self) -> usize {
        HEAD + self.topic_len() + self.u32_at(12) as usize
    }

    pub fn payload(&self) -> &[u8] {
        &self.0[self.payload_at()..]
    }

    pub(crate) fn properties(&self) -> &[u8] {
        &self.0[HEAD + self.topic_len()..self.payload_at()]
    }

    /// What it holds of the memory that `memory_bytes_max` bounds.
    pub(crate) fn bytes(&self) -> usize {
        self.0.len() + 32
    }

    pub(crate) fn draft(&self) -> Draft<'_> {
        Draft {
            topic: self.topic(),
            properties: self.properties(),
            payload: self.payload(),
            qos: self.qos(),
            retain: self.retain(),
            expiry_s: self.expiry_s(),
            at: self.at(),
            publisher: self.u32_at(19),
            forms: Forms::default(),
            message: Some(self.clone()),
            kept: None,
        }
    }

    pub(crate) fn is_expired(&self, now: Now) -> bool {
        is_expired(self.at(), self.expiry_s(), now)
    }

    /// When it expires, if it does.
    pub(crate) fn expires_at(&self) -> Option<Now> {
        let expiry_s = self.expiry_s();
        (expiry_s != NO_EXPIRY).then(|| Now(self.at().0 + u64::from(expiry_s) * 1000))
    }
}

pub(crate) fn is_expired(at: Now, expiry_s: u32, now: Now) -> bool {
    expiry_s != NO_EXPIRY && now.0 >= at.0 + u64::from(expiry_s) * 1000
}

/// Where this tick's arena already holds the message in some wire form.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Forms {
    /// QoS 0, by version (5.0 or not) and retain flag.
    pub(crate) qos0: [Option<Range>; 4],
    /// The last form with a packet id: subscribers in step share even that.
    pub(crate) numbered: Option<(u32, Range)>,
}

#[derive(Clone, Debug)]
pub(crate) struct Draft<'a> {
    pub(crate) topic: &'a str,
    /// Encoded, only those that are forwarded unaltered.
    pub(crate) properties: &'a [u8],
    pub(crate) payload: &'a [u8],
    pub(crate) qos: QoS,
    pub(crate) retain: bool,
    pub(crate) expiry_s: u32,
    /// When it came in.
    pub(crate) at: Now,
    /// A hash of the publisher's client id, for shared groups that choose by it.
    pub(crate) publisher: u32,
    pub(crate) forms: Forms,
    pub(crate) message: Option<Message>,
    /// Taken back by whoever forgets the slot that it was kept for: the place may be free again.
    pub(crate) kept: Option<KeptId>,
}

impl<'a> Draft<'a> {
    /// Plain: no properties, no expiry.
    pub(crate) fn new(topic: &'a str, payload: &'a [u8], now: Now) -> Draft<'a> {
        Draft {
            topic,
            properties: &[],
            payload,
            qos: QoS::AtMostOnce,
            retain: false,
            expiry_s: NO_EXPIRY,
            at: now,
            publisher: 0,
            forms: Forms::default(),
            message: None,
            kept: None,
        }
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
pub(crate) struct KeptId(pub(crate) u32);

#[derive(Debug)]
struct Kept {
    message: Message,
    refs: u32,
}

/// The messages that this shard's sessions keep. One atomic reference for all of them together:
/// the count of who keeps it here is a plain number.
#[derive(Debug, Default)]
pub(crate) struct Messages {
    kept: Slab<Kept>,
    pub(crate) bytes: u64,
}

impl Messages {
    /// One more reference to the draft's message.
    #[inline]
    pub(crate) fn keep(&mut self, draft: &mut Draft<'_>) -> KeptId {
        if let Some(id) = draft.kept {
            self.kept[id.0].refs += 1;
            return id;
        }
        let message = draft.message().clone();
        self.bytes += message.bytes() as u64;
        let id = KeptId(self.kept.insert(Kept { message, refs: 1 }));
        draft.kept = Some(id);
        id
    }

    #[inline]
    pub(crate) fn get(&self, id: KeptId) -> &Message {
        &self.kept[id.0].message
    }

    #[inline]
    pub(crate) fn release(&mut self, id: KeptId) {
        let kept = &mut self.kept[id.0];
        kept.refs -= 1;
        if kept.refs == 0 {
            self.bytes -= kept.message.bytes() as u64;
            self.kept.remove(id.0);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.kept.len()
    }
}
