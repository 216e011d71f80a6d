//! Input of a rule: the fields of one message or one event. Values are borrowed, and time, random
//! seed and ids are fields too, so a run needs no further source.

use crate::value::{Value, ValueMap};
use mqtt::{Properties, Property};
use std::borrow::Cow;

/// A message as published, or an event about a client, session, message or link.
///
/// For an event about a message `topic`, `payload` and the rest of the message fields describe the
/// message; for all remaining events rules read these fields as null, unless `extra_fields` has a
/// value of the same name.
#[derive(Clone, Copy, Debug)]
pub struct RuleInput<'a> {
    /// `message.publish`, or the `label` of the event.
    pub event: &'a str,
    /// Whether the input is a message, or an event about a message.
    pub has_message: bool,
    pub topic: &'a str,
    pub payload: &'a [u8],
    pub qos: u8,
    pub retain: bool,
    pub dup: bool,
    pub clientid: &'a str,
    pub username: Option<&'a str>,
    /// Address of the client without its port.
    pub peerhost: Option<&'a str>,
    pub properties: Properties<'a>,
    /// Id of the message, usually hexadecimal.
    pub id: &'a str,
    /// When the publisher's packet was read, in milliseconds since 1970.
    pub timestamp_ms: i64,
    /// The time of day, in milliseconds since 1970.
    pub now_ms: i64,
    pub node: &'a str,
    /// Seed of `random()` and `uuid_v4()` in this run; the caller draws a new number for every run.
    pub chance: u64,
    /// Fields specific to an event, by name.
    pub extra_fields: &'a [(&'a str, Value<'a>)],
}

impl Default for RuleInput<'_> {
    fn default() -> Self {
        RuleInput {
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
            extra_fields: &[],
        }
    }
}

/// Value of `event` for a message published by a client.
const MESSAGE: &str = "message.publish";

/// A field of messages, as a rule names it. [`FIELDS`] has the names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleField {
    ClientId,
    Dup,
    Event,
    Flags,
    Id,
    /// A map with the name of the rule as `rule_id`.
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

/// A row of [`FIELDS`], with its documentation.
pub struct RuleFieldRow {
    pub name: &'static str,
    pub field: RuleField,
    /// Whether `*` includes the field.
    pub in_star: bool,
    /// Whether events without a message have the field too.
    pub in_all_events: bool,
    pub description: &'static str,
}

const fn row(
    name: &'static str,
    field: RuleField,
    in_all: bool,
    says: &'static str,
) -> RuleFieldRow {
    let of_all = !matches!(
        field,
        RuleField::Dup
            | RuleField::Flags
            | RuleField::Id
            | RuleField::Payload
            | RuleField::PubProps
            | RuleField::QoS
            | RuleField::Retain
            | RuleField::Topic
    );
    RuleFieldRow { name, field, in_star: in_all, in_all_events: of_all, description: says }
}

pub const FIELDS: &[RuleFieldRow] = &[
    row("clientid", RuleField::ClientId, true, "the publisher's client id"),
    row("dup", RuleField::Dup, false, "the same as `flags.dup`"),
    row("event", RuleField::Event, true, "`message.publish`, or the name of the event"),
    row("flags", RuleField::Flags, true, "a map of `retain` and `dup`"),
    row("id", RuleField::Id, true, "an id of the message, as text"),
    row("metadata", RuleField::Metadata, false, "a map of `rule_id`, which is the rule's name"),
    row("node", RuleField::Node, true, "`godwit`"),
    row(
        "payload",
        RuleField::Payload,
        true,
        "text, or bytes where they are not UTF-8; what stands \
         behind `payload.` is looked up in it as JSON, and null where it is none",
    ),
    row("peerhost", RuleField::PeerHost, true, "the publisher's address without its port"),
    row(
        "pub_props",
        RuleField::PubProps,
        true,
        "the properties of MQTT 5.0 as a map, by their \
         names with `-`: `pub_props.'Content-Type'`; User Properties as a map under \
         `User-Property`, and all of them in their order under `User-Property-Pairs`",
    ),
    row("publish_received_at", RuleField::Timestamp, false, "the same as `timestamp`"),
    row("qos", RuleField::QoS, true, "0, 1 or 2"),
    row("retain", RuleField::Retain, false, "the same as `flags.retain`"),
    row("timestamp", RuleField::Timestamp, true, "when it was received, in ms since 1970"),
    row("topic", RuleField::Topic, true, "the topic name"),
    row("username", RuleField::Username, true, "the publisher's user name, null where it has none"),
];

impl RuleField {
    pub(crate) fn by_name(name: &str) -> Option<RuleField> {
        FIELDS.iter().find(|row| row.name.eq_ignore_ascii_case(name)).map(|row| row.field)
    }
}

impl<'a> RuleInput<'a> {
    /// Returns the value of a field, and the bytes of memory allocated for the value.
    pub(crate) fn field(&self, field: RuleField) -> (Value<'a>, usize) {
        if !self.has_message
            && let Some(row) = FIELDS.iter().find(|row| row.field == field && !row.in_all_events)
        {
            let (value, (_, bytes)) = self.extra_field(row.name);
            return (value, bytes as usize);
        }
        let optional = |text: Option<&'a str>| text.map_or(Value::Null, Value::text);
        let value = match field {
            RuleField::ClientId => Value::text(self.clientid),
            RuleField::Dup => Value::Bool(self.dup),
            RuleField::Event => Value::text(self.event),
            RuleField::Flags => {
                let mut flags = ValueMap::with_room(2);
                flags.push("retain".into(), Value::Bool(self.retain));
                flags.push("dup".into(), Value::Bool(self.dup));
                return (Value::Map(flags), 128);
            }
            RuleField::Id => Value::text(self.id),
            // `EvalFrame::field` knows the rule and handles this field.
            RuleField::Metadata => Value::Null,
            RuleField::Node => Value::text(self.node),
            RuleField::Payload => Value::of_bytes(self.payload),
            RuleField::PeerHost => optional(self.peerhost),
            RuleField::PubProps => return self.pub_props(),
            RuleField::QoS => Value::Int(i64::from(self.qos)),
            RuleField::Retain => Value::Bool(self.retain),
            RuleField::Timestamp => Value::Int(self.timestamp_ms),
            RuleField::Topic => Value::text(self.topic),
            RuleField::Username => optional(self.username),
        };
        (value, 0)
    }

    /// Returns a field of an event and its [`Value::size`]; null if the event has no such field.
    pub(crate) fn extra_field(&self, name: &str) -> (Value<'a>, (u64, u64)) {
        let found = self.extra_fields.iter().find(|(known, _)| *known == name);
        found.map_or((Value::Null, (1, 0)), |(_, value)| (value.view(), value.size()))
    }

    fn pub_props(&self) -> (Value<'a>, usize) {
        let mut map = ValueMap::default();
        let (mut users, mut pairs) = (ValueMap::default(), Vec::new());
        for property in self.properties.iter() {
            if let Property::UserProperty(name, value) = property {
                // A map has each name once, so the last value of a name is in the map.
                users.put(name, Value::text(value));
                let mut pair = ValueMap::with_room(2);
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
