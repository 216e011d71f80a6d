//! Conversion between messages of MQTT and messages of sockets.
//!
//! | form | of a topic and a payload |
//! |---|---|
//! | frames | the first frame is the topic, the others are the payload |
//! | delimited | one frame: topic, delimiter, payload |
//! | json | one frame: an object with topic, payload, qos, retain and properties |
//! | raw | one frame: the payload |

use super::rules::{GatewayRules, InboundRule, NO_TOPIC};
use super::settings::GatewaySettings;
use crate::metrics::LinkDropReason;
use base64ct::{Base64, Encoding};
use mqtt::{PropertiesBuf, Property, Publish, QoS};
use serde_json::value::RawValue;
use serde_json::{Map, Value as Json};
use std::collections::BTreeMap;

/// Form of socket messages, from the option `form`; see the table of the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum GatewayFormat {
    /// Topic, delimiter and payload in one frame; the text ends the topic.
    Delimited(String),
    #[default]
    Frames,
    Json,
    Raw,
}

/// Conversion of a payload with several frames, from the option `multipart`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MultipartPolicy {
    #[default]
    Join,
    /// A JSON array of texts.
    Json,
    Refuse,
}

/// A message of a socket, decoded for publication at this broker.
#[derive(Debug)]
pub(super) struct InboundMessage {
    pub(super) topic: String,
    pub(super) payload: Vec<u8>,
    pub(super) qos: QoS,
    pub(super) retain: bool,
    pub(super) properties: PropertiesBuf,
}

/// A JSON object with unparsed values. Of a repeated name the last value counts.
type RawJsonObject<'a> = BTreeMap<String, &'a RawValue>;

/// Prefix of a data URL, the form of bytes which are not UTF-8 [RFC 2397].
const DATA: &str = "data:;base64,";

/// Encodes a message for sockets in the configured form. `name` is the mapped topic, with "/"
/// between levels.
pub(super) fn encode_outbound(
    settings: &GatewaySettings,
    name: &str,
    publish: &Publish<'_>,
) -> Vec<Vec<u8>> {
    let name = name.replace('/', &settings.separator);
    match &settings.form {
        GatewayFormat::Frames => vec![name.into_bytes(), publish.payload.to_vec()],
        GatewayFormat::Delimited(delimiter) => {
            vec![[name.as_bytes(), delimiter.as_bytes(), publish.payload].concat()]
        }
        GatewayFormat::Json => vec![encode_json(&name, publish).to_string().into_bytes()],
        GatewayFormat::Raw => vec![publish.payload.to_vec()],
    }
}

/// Encodes a response to a socket. Only JSON contains a topic, because the requester needs none.
pub(super) fn encode_response(settings: &GatewaySettings, publish: &Publish<'_>) -> Vec<Vec<u8>> {
    match settings.form {
        GatewayFormat::Json => vec![encode_json(publish.topic, publish).to_string().into_bytes()],
        _ => vec![publish.payload.to_vec()],
    }
}

/// Decodes a message of a socket and maps its topic by the first matching [`InboundRule`]. An error
/// has the reason and a text for the log.
pub(super) fn decode_inbound(
    settings: &GatewaySettings,
    frames: Vec<Vec<u8>>,
) -> Result<InboundMessage, (LinkDropReason, String)> {
    let rules = &*settings.rules;
    match &settings.form {
        GatewayFormat::Frames => {
            let mut frames = frames.into_iter();
            let topic = text_of(&frames.next().unwrap_or_default(), &settings.separator)?;
            let rule = find_rule(rules, &topic)?;
            Ok(plain_message(
                local_topic(rule, &topic)?,
                rule,
                join_frames(settings.multipart, frames.collect())?,
            ))
        }
        GatewayFormat::Raw => {
            let rule = find_rule(rules, NO_TOPIC)?;
            let payload = join_frames(settings.multipart, frames)?;
            Ok(plain_message(local_topic(rule, NO_TOPIC)?, rule, payload))
        }
        GatewayFormat::Delimited(delimiter) => {
            let whole = join_frames(settings.multipart, frames)?;
            decode_delimited(settings, &whole, delimiter)
        }
        GatewayFormat::Json => {
            let whole = join_frames(settings.multipart, frames)?;
            decode_json(settings, &whole)
        }
    }
}

/// Decodes a response of a socket. A topic in the response is ignored: the request decides the
/// topic.
pub(super) fn decode_response(
    settings: &GatewaySettings,
    frames: Vec<Vec<u8>>,
) -> Result<(Vec<u8>, PropertiesBuf), (LinkDropReason, String)> {
    let whole = join_frames(settings.multipart, frames)?;
    match &settings.form {
        GatewayFormat::Json => {
            let object = parse_object(&whole)?;
            Ok((payload(&object)?, read_properties(settings, &object)))
        }
        _ => Ok((whole, PropertiesBuf::default())),
    }
}

fn plain_message(topic: String, rule: &InboundRule, payload: Vec<u8>) -> InboundMessage {
    let properties = PropertiesBuf::default();
    InboundMessage { topic, payload, qos: rule.qos, retain: rule.retain, properties }
}

fn find_rule<'r>(
    rules: &'r GatewayRules,
    topic: &str,
) -> Result<&'r InboundRule, (LinkDropReason, String)> {
    let found = rules.inward.iter().find(|rule| rule.map.matches(topic));
    found.ok_or_else(|| (LinkDropReason::NoRule, truncate_topic(topic)))
}

/// Returns the topic at this broker. A socket cannot publish to topics with "$" unless the template
/// of the rule begins with "$".
fn local_topic(rule: &InboundRule, topic: &str) -> Result<String, (LinkDropReason, String)> {
    let name = rule.map.apply(topic).filter(|name| !name.starts_with('$') || rule.is_dollar);
    name.ok_or_else(|| (LinkDropReason::NoName, truncate_topic(topic)))
}

/// Returns at most 100 characters of a topic, for the log.
fn truncate_topic(topic: &str) -> String {
    topic.chars().take(100).collect()
}

fn text_of(bytes: &[u8], separator: &str) -> Result<String, (LinkDropReason, String)> {
    let wrong = || (LinkDropReason::Unreadable, "its topic is not text".to_string());
    let text = std::str::from_utf8(bytes).map_err(|_| wrong())?;
    Ok(if separator == "/" { text.to_string() } else { text.replace(separator, "/") })
}

fn join_frames(
    multipart: MultipartPolicy,
    mut frames: Vec<Vec<u8>>,
) -> Result<Vec<u8>, (LinkDropReason, String)> {
    match multipart {
        _ if frames.len() < 2 => Ok(frames.pop().unwrap_or_default()),
        MultipartPolicy::Join => Ok(frames.concat()),
        MultipartPolicy::Json => {
            let all: Vec<Json> = frames.iter().map(|frame| Json::String(text(frame))).collect();
            Ok(Json::Array(all).to_string().into_bytes())
        }
        MultipartPolicy::Refuse => {
            let why = format!("its payload has {} frames", frames.len());
            Err((LinkDropReason::Unreadable, why))
        }
    }
}

/// Decodes topic, delimiter and payload. The topic ends at the first delimiter. If the delimiter is
/// also the separator of levels, the topic has as many levels as the filter of a rule.
fn decode_delimited(
    settings: &GatewaySettings,
    whole: &[u8],
    delimiter: &str,
) -> Result<InboundMessage, (LinkDropReason, String)> {
    let (mark, separator) = (delimiter.as_bytes(), settings.separator.as_str());
    let mut ends = Vec::new();
    let levels_max = settings.rules.inward.iter().map(|rule| rule.levels).max().unwrap_or(1);
    let is_counted = delimiter == separator;
    let mut from = 0;
    while ends.len() < if is_counted { levels_max } else { 1 }
        && let Some(at) = find(&whole[from..], mark)
    {
        ends.push(from + at);
        from += at + mark.len();
    }
    if ends.is_empty() {
        return Err((LinkDropReason::Unreadable, format!("there is no {delimiter:?} in it")));
    }
    let mut topic = String::new();
    for rule in &settings.rules.inward {
        let Some(end) = ends.get(if is_counted { rule.levels - 1 } else { 0 }) else { continue };
        topic = text_of(&whole[..*end], separator)?;
        if rule.map.matches(&topic) {
            let payload = whole[end + mark.len()..].to_vec();
            return Ok(plain_message(local_topic(rule, &topic)?, rule, payload));
        }
    }
    Err((LinkDropReason::NoRule, truncate_topic(&topic)))
}

fn find(bytes: &[u8], mark: &[u8]) -> Option<usize> {
    bytes.windows(mark.len()).position(|window| window == mark)
}

fn decode_json(
    settings: &GatewaySettings,
    whole: &[u8],
) -> Result<InboundMessage, (LinkDropReason, String)> {
    let object = parse_object(whole)?;
    let Some(Json::String(topic)) = object.get("topic").and_then(|value| read(value)) else {
        return Err((LinkDropReason::Unreadable, "its JSON has no topic".to_string()));
    };
    let topic = text_of(topic.as_bytes(), &settings.separator)?;
    let rule = find_rule(&settings.rules, &topic)?;
    let properties = read_properties(settings, &object);
    Ok(InboundMessage {
        properties,
        ..plain_message(local_topic(rule, &topic)?, rule, payload(&object)?)
    })
}

fn parse_object(whole: &[u8]) -> Result<RawJsonObject<'_>, (LinkDropReason, String)> {
    serde_json::from_slice(whole)
        .map_err(|_| (LinkDropReason::Unreadable, "it is not an object of JSON".to_string()))
}

fn read(value: &RawValue) -> Option<Json> {
    serde_json::from_str(value.get()).ok()
}

/// Returns the payload: a JSON string as its text, and other JSON values as written.
fn payload(object: &RawJsonObject<'_>) -> Result<Vec<u8>, (LinkDropReason, String)> {
    let Some(value) = object.get("payload") else { return Ok(Vec::new()) };
    if !value.get().starts_with('"') {
        return Ok(value.get().into());
    }
    match read(value) {
        Some(Json::String(text)) => Ok(bytes(&text)),
        _ => Err((LinkDropReason::Unreadable, "the payload in its JSON is not text".to_string())),
    }
}

fn bytes(text: &str) -> Vec<u8> {
    let decoded = text.strip_prefix(DATA).and_then(|data| Base64::decode_vec(data).ok());
    decoded.unwrap_or_else(|| text.as_bytes().to_vec())
}

fn text(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        // A text which looks like a data URL would be decoded as one, so it is encoded too.
        Ok(text) if !text.starts_with(DATA) => text.to_string(),
        _ => format!("{DATA}{}", Base64::encode_string(bytes)),
    }
}

/// Encodes a message as JSON, with the properties of PUBLISH which matter to a socket.
fn encode_json(name: &str, publish: &Publish<'_>) -> Json {
    let (mut all, mut user) = (Map::new(), Map::new());
    for property in publish.properties.iter() {
        let (key, value) = match property {
            Property::ContentType(value) => ("content_type", value.into()),
            Property::CorrelationData(value) => ("correlation_data", text(value).into()),
            Property::MessageExpiryInterval(value) => ("message_expiry_interval", value.into()),
            Property::PayloadFormatIndicator(value) => ("payload_format_indicator", value.into()),
            Property::ResponseTopic(value) => ("response_topic", value.into()),
            Property::UserProperty(name, value) => {
                push_user_property(&mut user, name, value);
                continue;
            }
            _ => continue,
        };
        all.insert(key.to_string(), value);
    }
    if !user.is_empty() {
        all.insert("user".to_string(), user.into());
    }
    serde_json::json!({
        "topic": name,
        "payload": text(publish.payload),
        "qos": publish.qos as u8,
        "retain": publish.retain,
        "properties": all,
    })
}

/// Adds a User Property. A repeated name gets a list of values, since names in a JSON object are
/// unique.
fn push_user_property(user: &mut Map<String, Json>, name: &str, value: &str) {
    match user.get_mut(name) {
        None => _ = user.insert(name.to_string(), value.into()),
        Some(Json::Array(all)) => all.push(value.into()),
        Some(first) => *first = vec![first.take(), value.into()].into(),
    }
}

/// Reads the MQTT properties of a JSON object, without invalid properties.
fn read_properties(settings: &GatewaySettings, object: &RawJsonObject<'_>) -> PropertiesBuf {
    let mut found = PropertiesBuf::default();
    let all = object.get("properties").and_then(|value| read(value));
    let Some(Json::Object(all)) = all else { return found };
    let fits = |text: &&str| text.len() <= usize::from(u16::MAX) && !text.contains('\0');
    let word = |key: &str| all.get(key).and_then(Json::as_str).filter(fits);
    // The gateway sets the routing properties of requests and responses itself, and each at most
    // once [MQTT-3.3.2-13].
    let own = settings.pattern.sends_requests() || settings.pattern.sends_replies();
    let routing = |key: &str| word(key).filter(|_| !own);
    if let Some(value) = all.get("payload_format_indicator").and_then(Json::as_u64) {
        found.push(Property::PayloadFormatIndicator(u8::from(value == 1)));
    }
    let expiry = all.get("message_expiry_interval").and_then(Json::as_u64);
    if let Some(seconds) = expiry.and_then(|value| u32::try_from(value).ok()) {
        found.push(Property::MessageExpiryInterval(seconds));
    }
    if let Some(value) = word("content_type") {
        found.push(Property::ContentType(value));
    }
    if let Some(value) =
        routing("response_topic").filter(|name| mqtt::topic::check_topic(name).is_ok())
    {
        found.push(Property::ResponseTopic(value));
    }
    if let Some(value) = routing("correlation_data") {
        found.push(Property::CorrelationData(&bytes(value)));
    }
    if let Some(Json::Object(user)) = all.get("user") {
        for (name, value) in user.iter().filter(|(name, _)| fits(&name.as_str())) {
            let all = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
            for value in all.iter().filter_map(Json::as_str).filter(fits) {
                found.push(Property::UserProperty(name, value));
            }
        }
    }
    found
}
