//! What a rule sees: one message, or one event, as fields. Nothing is copied and nothing is asked
//! for: time, chance and ids are among the fields.

use crate::value::{Map, Value};
use mqtt::{Properties, Property};
use std::borrow::Cow;

/// A message as it was published, or an event about a client, session, message or link.
///
/// For an event `topic`, `payload` and the others are what the event is about, where it is about
/// a message, and else null; what it has beside them, or in their stead, stands in `more` under the
/// names that the rule says.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// `message.publish`, or the event's label.
    pub event: &'a str,
    /// Whether it is a message, or about one.
    pub has_message: bool,
    pub topic: &'a str,
    pub payload: &'a [u8],
    pub qos: u8,
    pub retain: bool,
    pub dup: bool,
    pub clientid: &'a str,
    pub username: Option<&'a str>,
    /// The address without its port.
    pub peerhost: Option<&'a str>,
    pub properties: Properties<'a>,
    /// An id of the message, hexadecimal as a rule.
    pub id: &'a str,
    /// When the publisher's packet was read, in ms since 1970.
    pub timestamp_ms: i64,
    /// The time of day, in ms since 1970.
    pub now_ms: i64,
    pub node: &'a str,
    /// Where `random()` and `uuid_v4()` of this run begin; another number for every run.
    pub chance: u64,
    /// Fields that only some events have.
    pub more: &'a [(&'a str, Value<'a>)],
}

impl Default for Seen<'_> {
    fn default() -> Self {
        Seen {
            event: MESSAGE,
            has_message: true,
            topic: "",
            payload: &[],
            qos: 0,
            retain: false,
            dup: false,
            clientid: "",
            username: None,
            peerhost: None,
            properties: Properties::default(),
            id: "",
            timestamp_ms: 0,
            now_ms: 0,
            node: "godwit",
            chance: 0,
            more: &[],
        }
    }
}

/// The event of a message that a client publishes.
const MESSAGE: &str = "message.publish";

/// A field by its name in a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    ClientId,
    Dup,
    Event,
    Flags,
    Id,
    /// What is known of the rule itself: a map of `rule_id`.
    Metadata,
    Node,
    Payload,
    PeerHost,
    PubProps,
    QoS,
    Retain,
    Timestamp,
    Topic,
    Username,
}

/// What users see of a field.
pub struct FieldRow {
    pub name: &'static str,
    pub field: Field,
    /// Whether it is among those that `*` stands for.
    pub in_all: bool,
    /// Whether events have it that are about no message.
    pub of_all: bool,
    pub says: &'static str,
}

const fn row(name: &'static str, field: Field, in_all: bool, says: &'static str) -> FieldRow {
    let of_all = !matches!(
        field,
        Field::Dup
            | Field::Flags
            | Field::Id
            | Field::Payload
            | Field::PubProps
            | Field::QoS
            | Field::Retain
            | Field::Topic
    );
    FieldRow { name, field, in_all, of_all, says }
}

pub const FIELDS: &[FieldRow] = &[
    row("clientid", Field::ClientId, true, "the publisher's client id"),
    row("dup", Field::Dup, false, "the same as `flags.dup`"),
    row("event", Field::Event, true, "`message.publish`, or the name of the event"),
    row("flags", Field::Flags, true, "a map of `retain` and `dup`"),
    row("id", Field::Id, true, "an id of the message, as text"),
    row("metadata", Field::Metadata, false, "a map of `rule_id`, which is the rule's name"),
    row("node", Field::Node, true, "`godwit`"),
    row(
        "payload",
        Field::Payload,
        true,
        "text, or bytes where they are not UTF-8; what stands \
         behind `payload.` is looked up in it as JSON, and null where it is none",
    ),
    row("peerhost", Field::PeerHost, true, "the publisher's address without its port"),
    row(
        "pub_props",
        Field::PubProps,
        true,
        "the properties of MQTT 5.0 as a map, by their \
         names with `-`: `pub_props.'Content-Type'`; User Properties as a map under \
         `User-Property`, and all of them in their order under `User-Property-Pairs`",
    ),
    row("publish_received_at", Field::Timestamp, false, "the same as `timestamp`"),
    row("qos", Field::QoS, true, "0, 1 or 2"),
    row("retain", Field::Retain, false, "the same as `flags.retain`"),
    row("timestamp", Field::Timestamp, true, "when it was received, in ms since 1970"),
    row("topic", Field::Topic, true, "the topic name"),
    row("username", Field::Username, true, "the publisher's user name, null where it has none"),
];

impl Field {
    pub(crate) fn by_name(name: &str) -> Option<Field> {
        FIELDS.iter().find(|row| row.name.eq_ignore_ascii_case(name)).map(|row| row.field)
    }
}

impl<'a> Seen<'a> {
    /// What a field holds; the second number is the bytes of memory that it took.
    pub(crate) fn field(&self, field: Field) -> (Value<'a>, usize) {
        if !self.has_message
            && let Some(row) = FIELDS.iter().find(|row| row.field == field && !row.of_all)
        {
            let (value, (_, bytes)) = self.more(row.name);
            return (value, bytes as usize);
        }
        let optional = |text: Option<&'a str>| text.map_or(Value::Null, Value::text);
        let value = match field {
            Field::ClientId => Value::text(self.clientid),
            Field::Dup => Value::Bool(self.dup),
            Field::Event => Value::text(self.event),
            Field::Flags => {
                let mut flags = Map::with_room(2);
                flags.push("retain".into(), Value::Bool(self.retain));
                flags.push("dup".into(), Value::Bool(self.dup));
                return (Value::Map(flags), 128);
            }
            Field::Id => Value::text(self.id),
            // The run knows the rule.
            Field::Metadata => Value::Null,
            Field::Node => Value::text(self.node),
            Field::Payload => Value::of_bytes(self.payload),
            Field::PeerHost => optional(self.peerhost),
            Field::PubProps => return self.pub_props(),
            Field::QoS => Value::Int(i64::from(self.qos)),
            Field::Retain => Value::Bool(self.retain),
            Field::Timestamp => Value::Int(self.timestamp_ms),
            Field::Topic => Value::text(self.topic),
            Field::Username => optional(self.username),
        };
        (value, 0)
    }

    /// A field of an event, null where it has none of the name; and its size.
    pub(crate) fn more(&self, name: &str) -> (Value<'a>, (u64, u64)) {
        let found = self.more.iter().find(|(known, _)| *known == name);
        found.map_or((Value::Null, (1, 0)), |(_, value)| (value.view(), value.size()))
    }

    fn pub_props(&self) -> (Value<'a>, usize) {
        let mut map = Map::default();
        let (mut users, mut pairs) = (Map::default(), Vec::new());
        for property in self.properties.iter() {
            if let Property::UserProperty(name, value) = property {
                // A map has each name once, so the last of a name is seen there.
                users.put(name, Value::text(value));
                let mut pair = Map::with_room(2);
                pair.push("key".into(), Value::text(name));
                pair.push("value".into(), Value::text(value));
                pairs.push(Value::Map(pair));
            } else if let Some((name, value)) = property_field(property) {
                map.put(name, value);
            }
        }
        let bytes = 64 * (map.len() + users.len() + 4 * pairs.len());
        if !pairs.is_empty() {
            map.push("User-Property".into(), Value::Map(users));
            map.push("User-Property-Pairs".into(), Value::Array(pairs));
        }
        (Value::Map(map), bytes)
    }
}

fn property_field(property: Property<'_>) -> Option<(Cow<'static, str>, Value<'_>)> {
    let (name, value) = match property {
        Property::ContentType(text) => ("Content-Type", Value::text(text)),
        Property::CorrelationData(bytes) => ("Correlation-Data", Value::of_bytes(bytes)),
        Property::MessageExpiryInterval(s) => ("Message-Expiry-Interval", Value::Int(s.into())),
        Property::PayloadFormatIndicator(of) => ("Payload-Format-Indicator", Value::Int(of.into())),
        Property::ResponseTopic(text) => ("Response-Topic", Value::text(text)),
        Property::SubscriptionIdentifier(id) => ("Subscription-Identifier", Value::Int(id.into())),
        Property::TopicAlias(alias) => ("Topic-Alias", Value::Int(alias.into())),
        _ => return None,
    };
    Some((Cow::Borrowed(name), value))
}
