//! Encoding of PUBLISH to a subscriber, from the parts of an [`IncomingPublish`]: the header
//! differs per subscriber; properties and payload are copied unchanged.

use crate::message::IncomingPublish;
use crate::session::alias::AliasChoice;
use mqtt::{
    PacketId, Properties, Property, ProtocolVersion, QoS, encode_remaining_len, varint_len,
};

/// The parts in which the copies of one message for two subscribers differ.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EncodedPublish<'a> {
    pub(in crate::session) version: ProtocolVersion,
    pub(in crate::session) qos: QoS,
    pub(in crate::session) retain: bool,
    pub(in crate::session) dup: bool,
    pub(in crate::session) id: Option<PacketId>,
    pub(in crate::session) subscription_ids: &'a [u32],
    pub(in crate::session) alias: AliasChoice,
    /// Seconds since the broker received the message, subtracted from the expiry [MQTT-3.3.2-6].
    pub(in crate::session) waited_s: u32,
    pub(in crate::session) strip: NamespaceStrip,
}

/// The parts of a message hidden from a client in a namespace: see `namespace`. Kept small, since
/// every delivery has a `NamespaceStrip`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NamespaceStrip {
    /// Length in bytes of the namespace prefix of the topic.
    topic: u32,
    /// Start of the Response Topic among the properties. `end` is 0 without a Response Topic.
    start: u32,
    end: u32,
    /// Start of the Response Topic behind the namespace prefix. Equal to `end` for a topic outside
    /// of the namespace, which is hidden.
    name_at: u32,
}

impl NamespaceStrip {
    #[inline]
    pub(crate) fn new(mount: u8, draft: &IncomingPublish<'_>) -> NamespaceStrip {
        if mount == 0 {
            NamespaceStrip::default()
        } else {
            NamespaceStrip::find_response_topic(usize::from(mount), draft)
        }
    }

    #[inline(never)]
    fn find_response_topic(topic: usize, draft: &IncomingPublish<'_>) -> NamespaceStrip {
        let mut cut = NamespaceStrip { topic: topic as u32, ..NamespaceStrip::default() };
        let mut start = 0;
        for (property, bytes) in Properties::trusted(draft.properties).iter_with_bytes() {
            let end = start + bytes.len();
            if let Property::ResponseTopic(name) = property {
                let is_inside = name.len() > topic && name.get(..topic) == draft.topic.get(..topic);
                let name_at = if is_inside { end - name.len() + topic } else { end };
                cut = NamespaceStrip {
                    start: start as u32,
                    end: end as u32,
                    name_at: name_at as u32,
                    ..cut
                };
            }
            start = end;
        }
        cut
    }

    /// Returns the topic without the namespace prefix.
    pub(crate) fn topic<'a>(&self, draft: &IncomingPublish<'a>) -> &'a str {
        &draft.topic[self.topic as usize..]
    }

    /// Returns the number of bytes by which the properties become shorter.
    #[inline]
    fn properties_cut(&self) -> usize {
        match self.name_at < self.end {
            true => self.topic as usize,
            false => (self.end - self.start) as usize,
        }
    }

    #[inline(never)]
    fn write_properties(&self, properties: &[u8], out: &mut Vec<u8>) {
        let (start, end, at) = (self.start as usize, self.end as usize, self.name_at as usize);
        out.extend_from_slice(&properties[..start]);
        if at < end {
            out.push(RESPONSE_TOPIC);
            out.extend_from_slice(&((end - at) as u16).to_be_bytes());
            out.extend_from_slice(&properties[at..end]);
        }
        out.extend_from_slice(&properties[end..]);
    }
}

const MESSAGE_EXPIRY_INTERVAL: u8 = 0x02;
const RESPONSE_TOPIC: u8 = 0x08;
const SUBSCRIPTION_IDENTIFIER: u8 = 0x0b;
const TOPIC_ALIAS: u8 = 0x23;

impl EncodedPublish<'_> {
    fn topic_len(&self, draft: &IncomingPublish<'_>) -> usize {
        if matches!(self.alias, AliasChoice::Known(_)) {
            0
        } else {
            draft.topic.len() - self.strip.topic as usize
        }
    }

    fn properties_len(&self, draft: &IncomingPublish<'_>) -> usize {
        let expiry = if draft.expiry_s == crate::message::NO_EXPIRY { 0 } else { 5 };
        let ids: usize = self.subscription_ids.iter().map(|&id| 1 + varint_len(id)).sum();
        let alias = if self.alias == AliasChoice::None { 0 } else { 3 };
        expiry + ids + alias + draft.properties.len() - self.strip.properties_cut()
    }

    /// Returns Remaining Length and, in 5.0, Property Length.
    #[inline]
    fn lengths(&self, draft: &IncomingPublish<'_>) -> (usize, usize) {
        let id = if self.id.is_some() { 2 } else { 0 };
        let plain = 2 + self.topic_len(draft) + id + draft.payload.len();
        if self.version != ProtocolVersion::V5 {
            return (plain, 0);
        }
        let properties = self.properties_len(draft);
        (plain + varint_len(properties as u32) + properties, properties)
    }

    /// Returns the length of the whole packet in bytes.
    #[inline]
    pub(crate) fn len(&self, draft: &IncomingPublish<'_>) -> usize {
        let (remaining, _) = self.lengths(draft);
        1 + varint_len(remaining as u32) + remaining
    }

    #[inline]
    pub(crate) fn write(&self, draft: &IncomingPublish<'_>, out: &mut Vec<u8>) {
        let (remaining, properties) = self.lengths(draft);
        out.reserve(remaining + 5);
        let dup = if self.dup { 0x08 } else { 0 };
        out.push(0x30 | dup | (self.qos as u8) << 1 | u8::from(self.retain));
        encode_remaining_len(remaining, out);
        let topic_len = self.topic_len(draft);
        out.extend_from_slice(&(topic_len as u16).to_be_bytes());
        let topic_at = draft.topic.len() - topic_len;
        out.extend_from_slice(&draft.topic.as_bytes()[topic_at..]);
        if let Some(id) = self.id {
            out.extend_from_slice(&id.get().to_be_bytes());
        }
        if self.version == ProtocolVersion::V5 {
            encode_remaining_len(properties, out);
            if properties > 0 {
                self.write_properties(draft, out);
            }
        }
        out.extend_from_slice(draft.payload);
    }

    fn write_properties(&self, draft: &IncomingPublish<'_>, out: &mut Vec<u8>) {
        if draft.expiry_s != crate::message::NO_EXPIRY {
            out.push(MESSAGE_EXPIRY_INTERVAL);
            let left = draft.expiry_s.saturating_sub(self.waited_s);
            out.extend_from_slice(&left.to_be_bytes());
        }
        if let AliasChoice::Known(alias) | AliasChoice::New(alias) = self.alias {
            out.push(TOPIC_ALIAS);
            out.extend_from_slice(&alias.to_be_bytes());
        }
        for &id in self.subscription_ids {
            out.push(SUBSCRIPTION_IDENTIFIER);
            encode_remaining_len(id as usize, out);
        }
        match self.strip.end {
            0 => out.extend_from_slice(draft.properties),
            _ => self.strip.write_properties(draft.properties, out),
        }
    }
}
