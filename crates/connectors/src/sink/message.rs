//! A message or an event on its way through a sink, with the fields which templates can name.

use super::template::text_of;
use crate::events::SinkEvent;
use crate::local_session::row_name;
use broker::message::namespace::split_client_id;
use mqtt::{PacketId, Properties, PropertiesBuf, Property, Publish, QoS};
use serde_json::{Map, Value as Json};
use std::borrow::Cow;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The value of `${event}` for messages of clients.
pub const PUBLISHED: &str = "message.publish";

/// A message or event in a batch.
#[derive(Debug, Default)]
pub struct SinkMessage {
    /// Empty for an event.
    pub topic: String,
    pub payload: Vec<u8>,
    pub qos: QoS,
    pub retain: bool,
    /// Time of receipt by the sink, in Unix milliseconds.
    pub timestamp_ms: u64,
    /// Time of receipt in nanoseconds, unique for each message: time-series databases tell points
    /// apart by the time.
    pub taken_ns: u64,
    pub properties: PropertiesBuf,
    /// Present if the session waits for an acknowledgement.
    pub packet_id: Option<PacketId>,
    /// Name of the event; `client_id` is the client of the event.
    pub event: Option<&'static str>,
    pub client_id: Option<String>,
    pub(super) json: OnceLock<Option<Json>>,
}

/// A value of a message, from [`SinkMessage::value`].
#[derive(Clone, Debug, PartialEq)]
pub enum MessageValue<'a> {
    Nothing,
    Bool(bool),
    Number(u64),
    /// Text, or bytes which are not UTF-8.
    Bytes(Cow<'a, [u8]>),
    Json(&'a Json),
}

/// A field which a template can name, see [`MessageField::parse`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MessageField {
    ClientId,
    Event,
    /// A level of the topic, counted from 0.
    Level(usize),
    /// Steps into a JSON payload; without steps the whole payload.
    Payload(Vec<String>),
    Property(PropertyField),
    QoS,
    Retain,
    Timestamp,
    Topic,
}

/// A property of PUBLISH which a template can name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PropertyField {
    ContentType,
    CorrelationData,
    ExpiryInterval,
    FormatIndicator,
    ResponseTopic,
    User(String),
}

impl SinkMessage {
    pub fn from_publish(publish: &Publish<'_>, timestamp_ms: u64) -> SinkMessage {
        let mut properties = PropertiesBuf::default();
        for property in publish.properties.iter() {
            // The Subscription Identifier belongs to the sink's own subscription.
            if !matches!(property, Property::SubscriptionIdentifier(_)) {
                properties.push(property);
            }
        }
        SinkMessage {
            topic: row_name(publish.topic).unwrap_or(publish.topic).into(),
            payload: publish.payload.into(),
            qos: publish.qos,
            retain: publish.retain,
            packet_id: publish.packet_id,
            timestamp_ms,
            taken_ns: monotonic_ns(timestamp_ms),
            properties,
            ..SinkMessage::default()
        }
    }

    pub fn from_event(event: SinkEvent) -> SinkMessage {
        let SinkEvent { name, broker_event, at_ms } = event;
        let fields = broker_event.fields();
        let json = fields.iter().map(|(name, value)| (name.to_string(), json_of(value)));
        let mut body: Map<String, Json> = json.collect();
        let (namespace, client_id) = split_client_id(broker_event.client_id().unwrap_or_default());
        body.insert("event".into(), name.into());
        body.insert("timestamp".into(), at_ms.into());
        body.insert("clientid".into(), client_id.into());
        if let Some(namespace) = namespace {
            body.insert("namespace".into(), namespace.into());
        }
        SinkMessage {
            event: Some(name),
            client_id: Some(client_id.into()),
            payload: Json::Object(body).to_string().into_bytes(),
            timestamp_ms: at_ms,
            taken_ns: monotonic_ns(at_ms),
            ..SinkMessage::default()
        }
    }

    /// Returns the bytes which count for `batch.bytes_max`: topic, payload and properties.
    pub fn size_bytes(&self) -> usize {
        self.topic.len() + self.payload.len() + self.properties.as_properties().as_bytes().len()
    }

    pub fn value(&self, field: &MessageField) -> MessageValue<'_> {
        let text = |text: &'_ str| -> MessageValue<'_> {
            MessageValue::Bytes(text.as_bytes().to_vec().into())
        };
        match field {
            MessageField::ClientId => self.client_id.as_deref().map_or(MessageValue::Nothing, text),
            MessageField::Event => text(self.event.unwrap_or(PUBLISHED)),
            MessageField::Level(at) => match self.topic.split('/').nth(*at) {
                Some(level) if self.event.is_none() => MessageValue::Bytes(level.as_bytes().into()),
                _ => MessageValue::Nothing,
            },
            MessageField::Payload(steps) if steps.is_empty() => {
                MessageValue::Bytes(self.payload.as_slice().into())
            }
            MessageField::Payload(steps) => self.payload_value(steps),
            MessageField::Property(named) => named.find_in(self.properties.as_properties()),
            MessageField::QoS => MessageValue::Number(self.qos as u64),
            MessageField::Retain => MessageValue::Bool(self.retain),
            MessageField::Timestamp => MessageValue::Number(self.timestamp_ms),
            MessageField::Topic if self.event.is_some() => MessageValue::Nothing,
            MessageField::Topic => MessageValue::Bytes(self.topic.as_bytes().into()),
        }
    }

    /// Returns the payload as JSON, or `None` if it is not JSON. Parsed once.
    pub fn json(&self) -> Option<&Json> {
        self.json.get_or_init(|| serde_json::from_slice(&self.payload).ok()).as_ref()
    }

    fn payload_value(&self, steps: &[String]) -> MessageValue<'_> {
        let mut at = self.json();
        for step in steps {
            at = at.and_then(|at| match at {
                Json::Array(all) => all.get(step.parse::<usize>().ok()?),
                other => other.get(step),
            });
        }
        match at {
            None | Some(Json::Null) => MessageValue::Nothing,
            Some(Json::Bool(is)) => MessageValue::Bool(*is),
            Some(Json::String(text)) => MessageValue::Bytes(text.as_bytes().into()),
            Some(other) => MessageValue::Json(other),
        }
    }
}

/// Largest step back of the clock which `monotonic_ns` bridges.
const PUT_BACK_NS: u64 = 60_000_000_000;

/// Returns a time larger than all earlier ones, even if the clock stands still or steps back by
/// less than `PUT_BACK_NS`.
fn monotonic_ns(timestamp_ms: u64) -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let now = timestamp_ms.saturating_mul(1_000_000);
    // After a large step back the earlier time was wrong.
    let is_put_back = |last: u64| last.saturating_sub(now) > PUT_BACK_NS;
    let next = |last: u64| if is_put_back(last) { now } else { (last + 1).max(now) };
    let last = LAST.fetch_update(Relaxed, Relaxed, |last| Some(next(last)));
    last.map_or_else(next, next)
}

impl PropertyField {
    fn find_in<'a>(&self, properties: Properties<'a>) -> MessageValue<'a> {
        let found = properties.iter().find_map(|property| match (self, property) {
            (PropertyField::ContentType, Property::ContentType(text))
            | (PropertyField::ResponseTopic, Property::ResponseTopic(text)) => {
                Some(MessageValue::Bytes(text.as_bytes().into()))
            }
            (PropertyField::CorrelationData, Property::CorrelationData(bytes)) => {
                Some(MessageValue::Bytes(bytes.into()))
            }
            (PropertyField::ExpiryInterval, Property::MessageExpiryInterval(seconds)) => {
                Some(MessageValue::Number(seconds.into()))
            }
            (PropertyField::FormatIndicator, Property::PayloadFormatIndicator(what)) => {
                Some(MessageValue::Number(what.into()))
            }
            (PropertyField::User(name), Property::UserProperty(key, value)) if key == name => {
                Some(MessageValue::Bytes(value.as_bytes().into()))
            }
            _ => None,
        });
        found.unwrap_or(MessageValue::Nothing)
    }
}

impl MessageField {
    pub fn parse(name: &str) -> Result<MessageField, String> {
        let (root, rest) = name.split_at(name.find(['.', '[']).unwrap_or(name.len()));
        let steps =
            parse_steps(rest).ok_or_else(|| format!("${{{name}}} is not a placeholder{SHAPE}"))?;
        match (root, &steps[..]) {
            ("clientid", []) => Ok(MessageField::ClientId),
            ("event", []) => Ok(MessageField::Event),
            ("payload", _) => Ok(MessageField::Payload(steps)),
            ("qos", []) => Ok(MessageField::QoS),
            ("retain", []) => Ok(MessageField::Retain),
            ("timestamp_ms", []) => Ok(MessageField::Timestamp),
            ("topic", []) => Ok(MessageField::Topic),
            ("topic", [level]) if rest.starts_with('[') => match level.parse::<usize>() {
                Ok(level) if level > 0 => Ok(MessageField::Level(level - 1)),
                _ => Err(format!("${{{name}}}: levels are counted from 1 on, use ${{topic[1]}}")),
            },
            ("properties", [group, key]) if group == "user" => {
                Ok(MessageField::Property(PropertyField::User(key.clone())))
            }
            ("properties", [name]) => match PROPERTIES.iter().find(|(known, _)| known == name) {
                Some((_, named)) => Ok(MessageField::Property(named.clone())),
                None => {
                    let known: Vec<&str> = PROPERTIES.iter().map(|(known, _)| *known).collect();
                    Err(format!(
                        "no property is named {name}, use {} or user.NAME",
                        known.join(", ")
                    ))
                }
            },
            _ => Err(format!("${{{name}}} is not a placeholder{SHAPE}")),
        }
    }
}

const SHAPE: &str = ", use ${topic} ${topic[1]} ${payload} ${payload.a.b[0]} ${qos} ${retain} \
                     ${timestamp_ms} ${clientid} ${event} ${properties.content_type} or \
                     ${properties.user.NAME}";

const PROPERTIES: &[(&str, PropertyField)] = &[
    ("content_type", PropertyField::ContentType),
    ("correlation_data", PropertyField::CorrelationData),
    ("message_expiry_interval", PropertyField::ExpiryInterval),
    ("payload_format_indicator", PropertyField::FormatIndicator),
    ("response_topic", PropertyField::ResponseTopic),
];

/// Parses steps of the form `.a.b[0]`.
fn parse_steps(mut rest: &str) -> Option<Vec<String>> {
    let mut steps = Vec::new();
    while !rest.is_empty() {
        let (step, after) = match rest.strip_prefix('[') {
            Some(inside) => inside.split_once(']')?,
            None => {
                let inside = rest.strip_prefix('.')?;
                inside.split_at(inside.find(['.', '[']).unwrap_or(inside.len()))
            }
        };
        if step.is_empty() {
            return None;
        }
        steps.push(step.to_string());
        rest = after;
    }
    Some(steps)
}

fn json_of(value: &rules::Value<'_>) -> Json {
    match value {
        rules::Value::Bool(of) => Json::Bool(*of),
        rules::Value::Int(of) => Json::from(*of),
        rules::Value::Text(of) => Json::from(&**of),
        rules::Value::Bytes(of) => Json::from(text_of(&MessageValue::Bytes(of.as_ref().into()))),
        _ => Json::Null,
    }
}
