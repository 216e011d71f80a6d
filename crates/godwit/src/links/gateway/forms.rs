//! How a message of MQTT becomes one of sockets, and back.
//!
//! | form | of a topic and a payload |
//! |---|---|
//! | frames | the first frame is the topic, the others are the payload |
//! | delimited | one frame: topic, delimiter, payload |
//! | json | one frame: an object with topic, payload, qos, retain and properties |
//! | raw | one frame: the payload |

use super::rules::{GateRules, InRule, NO_TOPIC};
use super::settings::GatewaySettings;
use crate::links::tally::Loss;
use base64ct::{Base64, Encoding};
use mqtt::{PropertiesBuf, Property, Publish, QoS};
use serde_json::value::RawValue;
use serde_json::{Map, Value as Json};
use std::collections::BTreeMap;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Form {
    /// Ends the topic.
    Delimited(String),
    #[default]
    Frames,
    Json,
    Raw,
}

/// What several frames of a payload become.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Multipart {
    #[default]
    Join,
    /// An array of their texts.
    Json,
    Refuse,
}

/// What comes from a socket, as it is published.
#[derive(Debug)]
pub(super) struct Inward {
    pub(super) topic: String,
    pub(super) payload: Vec<u8>,
    pub(super) qos: QoS,
    pub(super) retain: bool,
    pub(super) properties: PropertiesBuf,
}

/// One of JSON, of which each value stands as it is written. A name that comes again has its last.
type Object<'a> = BTreeMap<String, &'a RawValue>;

/// A data URL, as what is no text is written elsewhere too (RFC 2397).
const DATA: &str = "data:;base64,";

/// The frames of a message whose topic has this name among sockets.
pub(super) fn outward(
    settings: &GatewaySettings,
    name: &str,
    publish: &Publish<'_>,
) -> Vec<Vec<u8>> {
    let name = name.replace('/', &settings.separator);
    match &settings.form {
        Form::Frames => vec![name.into_bytes(), publish.payload.to_vec()],
        Form::Delimited(delimiter) => {
            vec![[name.as_bytes(), delimiter.as_bytes(), publish.payload].concat()]
        }
        Form::Json => vec![envelope(&name, publish).to_string().into_bytes()],
        Form::Raw => vec![publish.payload.to_vec()],
    }
}

/// The answer to a socket that has asked: it knows what it asked for.
pub(super) fn answer(settings: &GatewaySettings, publish: &Publish<'_>) -> Vec<Vec<u8>> {
    match settings.form {
        Form::Json => vec![envelope(publish.topic, publish).to_string().into_bytes()],
        _ => vec![publish.payload.to_vec()],
    }
}

/// What a socket has sent, by the first rule that matches.
pub(super) fn inward(
    settings: &GatewaySettings,
    frames: Vec<Vec<u8>>,
) -> Result<Inward, (Loss, String)> {
    let rules = &*settings.rules;
    match &settings.form {
        Form::Frames => {
            let mut frames = frames.into_iter();
            let topic = text_of(&frames.next().unwrap_or_default(), &settings.separator)?;
            let rule = rule_of(rules, &topic)?;
            Ok(plain(name_of(rule, &topic)?, rule, one(settings.multipart, frames.collect())?))
        }
        Form::Raw => {
            let rule = rule_of(rules, NO_TOPIC)?;
            let payload = one(settings.multipart, frames)?;
            Ok(plain(name_of(rule, NO_TOPIC)?, rule, payload))
        }
        Form::Delimited(delimiter) => {
            let whole = one(settings.multipart, frames)?;
            delimited(settings, &whole, delimiter)
        }
        Form::Json => {
            let whole = one(settings.multipart, frames)?;
            json(settings, &whole)
        }
    }
}

/// What a socket answered: nobody asks for its topic.
pub(super) fn answered(
    settings: &GatewaySettings,
    frames: Vec<Vec<u8>>,
) -> Result<(Vec<u8>, PropertiesBuf), (Loss, String)> {
    let whole = one(settings.multipart, frames)?;
    match &settings.form {
        Form::Json => {
            let object = object(&whole)?;
            Ok((payload(&object)?, properties(settings, &object)))
        }
        _ => Ok((whole, PropertiesBuf::default())),
    }
}

fn plain(topic: String, rule: &InRule, payload: Vec<u8>) -> Inward {
    let properties = PropertiesBuf::default();
    Inward { topic, payload, qos: rule.qos, retain: rule.retain, properties }
}

fn rule_of<'r>(rules: &'r GateRules, topic: &str) -> Result<&'r InRule, (Loss, String)> {
    let found = rules.inward.iter().find(|rule| rule.map.matches(topic));
    found.ok_or_else(|| (Loss::NoRule, shown(topic)))
}

/// What it is called here. Names of the broker's own no socket has, unless its rule says so.
fn name_of(rule: &InRule, topic: &str) -> Result<String, (Loss, String)> {
    let name = rule.map.apply(topic).filter(|name| !name.starts_with('$') || rule.is_dollar);
    name.ok_or_else(|| (Loss::NoName, shown(topic)))
}

/// For people, and not more of it than a line has room for.
fn shown(topic: &str) -> String {
    topic.chars().take(100).collect()
}

fn text_of(bytes: &[u8], separator: &str) -> Result<String, (Loss, String)> {
    let wrong = || (Loss::Unreadable, "its topic is no text".to_string());
    let text = std::str::from_utf8(bytes).map_err(|_| wrong())?;
    Ok(if separator == "/" { text.to_string() } else { text.replace(separator, "/") })
}

fn one(multipart: Multipart, mut frames: Vec<Vec<u8>>) -> Result<Vec<u8>, (Loss, String)> {
    match multipart {
        _ if frames.len() < 2 => Ok(frames.pop().unwrap_or_default()),
        Multipart::Join => Ok(frames.concat()),
        Multipart::Json => {
            let all: Vec<Json> = frames.iter().map(|frame| Json::String(text(frame))).collect();
            Ok(Json::Array(all).to_string().into_bytes())
        }
        Multipart::Refuse => {
            let why = format!("its payload has {} frames", frames.len());
            Err((Loss::Unreadable, why))
        }
    }
}

/// The topic ends at the first delimiter; where that also separates levels, after as many levels
/// as a rule has.
fn delimited(
    settings: &GatewaySettings,
    whole: &[u8],
    delimiter: &str,
) -> Result<Inward, (Loss, String)> {
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
        return Err((Loss::Unreadable, format!("there is no {delimiter:?} in it")));
    }
    let mut topic = String::new();
    for rule in &settings.rules.inward {
        let Some(end) = ends.get(if is_counted { rule.levels - 1 } else { 0 }) else { continue };
        topic = text_of(&whole[..*end], separator)?;
        if rule.map.matches(&topic) {
            let payload = whole[end + mark.len()..].to_vec();
            return Ok(plain(name_of(rule, &topic)?, rule, payload));
        }
    }
    Err((Loss::NoRule, shown(&topic)))
}

fn find(bytes: &[u8], mark: &[u8]) -> Option<usize> {
    bytes.windows(mark.len()).position(|window| window == mark)
}

fn json(settings: &GatewaySettings, whole: &[u8]) -> Result<Inward, (Loss, String)> {
    let object = object(whole)?;
    let Some(Json::String(topic)) = object.get("topic").and_then(|value| read(value)) else {
        return Err((Loss::Unreadable, "its JSON has no topic".to_string()));
    };
    let topic = text_of(topic.as_bytes(), &settings.separator)?;
    let rule = rule_of(&settings.rules, &topic)?;
    let properties = properties(settings, &object);
    Ok(Inward { properties, ..plain(name_of(rule, &topic)?, rule, payload(&object)?) })
}

fn object(whole: &[u8]) -> Result<Object<'_>, (Loss, String)> {
    serde_json::from_slice(whole)
        .map_err(|_| (Loss::Unreadable, "it is no object of JSON".to_string()))
}

fn read(value: &RawValue) -> Option<Json> {
    serde_json::from_str(value.get()).ok()
}

/// Text as it is, everything else of JSON as it is written.
fn payload(object: &Object<'_>) -> Result<Vec<u8>, (Loss, String)> {
    let Some(value) = object.get("payload") else { return Ok(Vec::new()) };
    if !value.get().starts_with('"') {
        return Ok(value.get().into());
    }
    match read(value) {
        Some(Json::String(text)) => Ok(bytes(&text)),
        _ => Err((Loss::Unreadable, "the payload in its JSON is no text".to_string())),
    }
}

fn bytes(text: &str) -> Vec<u8> {
    let decoded = text.strip_prefix(DATA).and_then(|data| Base64::decode_vec(data).ok());
    decoded.unwrap_or_else(|| text.as_bytes().to_vec())
}

fn text(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        // One that looks like a data URL would be read as what it stands for.
        Ok(text) if !text.starts_with(DATA) => text.to_string(),
        _ => format!("{DATA}{}", Base64::encode_string(bytes)),
    }
}

/// A message with everything that MQTT says of it.
fn envelope(name: &str, publish: &Publish<'_>) -> Json {
    let (mut all, mut user) = (Map::new(), Map::new());
    for property in publish.properties.iter() {
        let (key, value) = match property {
            Property::ContentType(value) => ("content_type", value.into()),
            Property::CorrelationData(value) => ("correlation_data", text(value).into()),
            Property::MessageExpiryInterval(value) => ("message_expiry_interval", value.into()),
            Property::PayloadFormatIndicator(value) => ("payload_format_indicator", value.into()),
            Property::ResponseTopic(value) => ("response_topic", value.into()),
            Property::UserProperty(name, value) => {
                repeat(&mut user, name, value);
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

/// A name that comes again has a list: an object has each of its names once.
fn repeat(user: &mut Map<String, Json>, name: &str, value: &str) {
    match user.get_mut(name) {
        None => _ = user.insert(name.to_string(), value.into()),
        Some(Json::Array(all)) => all.push(value.into()),
        Some(first) => *first = vec![first.take(), value.into()].into(),
    }
}

/// What of an object's properties MQTT has; what does not fit is left out.
fn properties(settings: &GatewaySettings, object: &Object<'_>) -> PropertiesBuf {
    let mut found = PropertiesBuf::default();
    let all = object.get("properties").and_then(|value| read(value));
    let Some(Json::Object(all)) = all else { return found };
    let fits = |text: &&str| text.len() <= usize::from(u16::MAX) && !text.contains('\0');
    let word = |key: &str| all.get(key).and_then(Json::as_str).filter(fits);
    // Questions and answers have those that bring the answer back, and each no more than once
    // [MQTT-3.3.2-13].
    let own = settings.pattern.asks() || settings.pattern.answers();
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
