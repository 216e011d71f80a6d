//! PUBLISH towards a subscriber, from a draft's parts: the header differs per subscriber, the
//! property tail and the payload are copied as they came.

use crate::alias::Alias;
use crate::message::Draft;
use mqtt::{PacketId, Properties, Property, QoS, Version, encode_remaining_len, varint_len};

/// What differs between two subscribers' copies of one message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Form<'a> {
    pub(crate) version: Version,
    pub(crate) qos: QoS,
    pub(crate) retain: bool,
    pub(crate) dup: bool,
    pub(crate) id: Option<PacketId>,
    pub(crate) subscription_ids: &'a [u32],
    pub(crate) alias: Alias,
    /// Seconds that the message waited here [MQTT-3.3.2-6].
    pub(crate) waited_s: u32,
    pub(crate) cut: Cut,
}

/// What a client in a namespace does not see of a message: see `mount`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cut {
    /// Bytes in front of the topic.
    topic: usize,
    response: Option<ResponseTopic>,
}

/// The Response Topic among the properties, and what is left of it.
#[derive(Clone, Copy, Debug)]
struct ResponseTopic {
    start: usize,
    end: usize,
    /// Where its name goes on; none where the client cannot reach it, and does not hear of it.
    name_at: Option<usize>,
}

impl Cut {
    #[inline]
    pub(crate) fn new(mount: u8, draft: &Draft<'_>) -> Cut {
        if mount == 0 { Cut::default() } else { Cut::of(usize::from(mount), draft) }
    }

    #[cold]
    fn of(topic: usize, draft: &Draft<'_>) -> Cut {
        let (mut start, mut response) = (0, None);
        for (property, bytes) in Properties::trusted(draft.properties).iter_with_bytes() {
            let end = start + bytes.len();
            if let Property::ResponseTopic(name) = property {
                let is_inside = name.len() > topic && name.get(..topic) == draft.topic.get(..topic);
                let name_at = is_inside.then_some(end - name.len() + topic);
                response = Some(ResponseTopic { start, end, name_at });
            }
            start = end;
        }
        Cut { topic, response }
    }

    /// What the client calls the topic.
    pub(crate) fn topic<'a>(&self, draft: &Draft<'a>) -> &'a str {
        &draft.topic[self.topic..]
    }

    fn properties_len(&self, draft: &Draft<'_>) -> usize {
        let response = self.response.map_or(0, |response| match response.name_at {
            Some(_) => self.topic,
            None => response.end - response.start,
        });
        draft.properties.len() - response
    }

    #[cold]
    fn write_properties(response: ResponseTopic, properties: &[u8], out: &mut Vec<u8>) {
        let ResponseTopic { start, end, name_at } = response;
        out.extend_from_slice(&properties[..start]);
        if let Some(at) = name_at {
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

impl Form<'_> {
    fn topic_len(&self, draft: &Draft<'_>) -> usize {
        if matches!(self.alias, Alias::Known(_)) { 0 } else { draft.topic.len() - self.cut.topic }
    }

    fn properties_len(&self, draft: &Draft<'_>) -> usize {
        let expiry = if draft.expiry_s == crate::message::NO_EXPIRY { 0 } else { 5 };
        let ids: usize = self.subscription_ids.iter().map(|&id| 1 + varint_len(id)).sum();
        let alias = if self.alias == Alias::None { 0 } else { 3 };
        expiry + ids + alias + self.cut.properties_len(draft)
    }

    /// Remaining Length and, in 5.0, Property Length.
    #[inline]
    fn lens(&self, draft: &Draft<'_>) -> (usize, usize) {
        let id = if self.id.is_some() { 2 } else { 0 };
        let plain = 2 + self.topic_len(draft) + id + draft.payload.len();
        if self.version != Version::V5 {
            return (plain, 0);
        }
        let properties = self.properties_len(draft);
        (plain + varint_len(properties as u32) + properties, properties)
    }

    /// The whole packet's length.
    #[inline]
    pub(crate) fn len(&self, draft: &Draft<'_>) -> usize {
        let (remaining, _) = self.lens(draft);
        1 + varint_len(remaining as u32) + remaining
    }

    #[inline]
    pub(crate) fn write(&self, draft: &Draft<'_>, out: &mut Vec<u8>) {
        let (remaining, properties) = self.lens(draft);
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
        if self.version == Version::V5 {
            encode_remaining_len(properties, out);
            if properties > 0 {
                self.write_properties(draft, out);
            }
        }
        out.extend_from_slice(draft.payload);
    }

    fn write_properties(&self, draft: &Draft<'_>, out: &mut Vec<u8>) {
        if draft.expiry_s != crate::message::NO_EXPIRY {
            out.push(MESSAGE_EXPIRY_INTERVAL);
            let left = draft.expiry_s.saturating_sub(self.waited_s);
            out.extend_from_slice(&left.to_be_bytes());
        }
        if let Alias::Known(alias) | Alias::New(alias) = self.alias {
            out.push(TOPIC_ALIAS);
            out.extend_from_slice(&alias.to_be_bytes());
        }
        for &id in self.subscription_ids {
            out.push(SUBSCRIPTION_IDENTIFIER);
            encode_remaining_len(id as usize, out);
        }
        match self.cut.response {
            None => out.extend_from_slice(draft.properties),
            Some(response) => Cut::write_properties(response, draft.properties, out),
        }
    }
}
