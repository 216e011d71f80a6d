//! Text with placeholders for fields of a message. A value never becomes part of the text's
//! language: it is escaped by the kind of the text, or bound as a parameter.
//!
//! Bytes which are not UTF-8 are written as a data URL [RFC 2397], `data:;base64,...`, wherever
//! text is needed.

use super::message::{MessageField, MessageValue, SinkMessage};
use base64ct::{Base64, Encoding};
use mqtt::template::{TemplatePart, TextTemplate};
use net::server_url::percent_encode;
use net::sql::{BOUND, quote_after};
use std::borrow::Cow;

/// A parsed template. Fields are [`MessageField`]s.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SinkTemplate(TextTemplate<SinkPlaceholder>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct SinkPlaceholder {
    field: MessageField,
    /// Whether the placeholder is inside a JSON string.
    is_inside: bool,
}

/// Encoding of values in [`SinkTemplate::fill`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ValueEncoding {
    /// As JSON; within a JSON string without further quotes.
    #[default]
    Json,
    /// Percent-encoded.
    Url,
    Plain,
    /// Unchanged, including bytes which are not text.
    Bytes,
}

impl SinkTemplate {
    pub fn parse(text: &str) -> Result<SinkTemplate, String> {
        let mut template = TextTemplate::parse(text, |name| {
            Ok(SinkPlaceholder { field: MessageField::parse(name)?, is_inside: false })
        })?;
        let mut is_inside = false;
        for part in template.parts_mut() {
            match part {
                TemplatePart::Text(text) => is_inside = in_string_after(is_inside, text),
                TemplatePart::Value(place) => place.is_inside = is_inside,
            }
        }
        Ok(SinkTemplate(template))
    }

    /// Checks that the filled template is JSON for any values.
    pub fn check_json(&self) -> Result<(), String> {
        let mut sample = String::new();
        self.0.fill(&mut sample, |place, out| out.push(if place.is_inside { 'x' } else { '0' }));
        let read = serde_json::from_str::<serde_json::Value>(&sample);
        read.map(drop).map_err(|error| format!("not JSON once it is filled: {error}"))
    }

    pub fn fill(&self, message: &SinkMessage, tongue: ValueEncoding, out: &mut Vec<u8>) {
        self.0.fill(out, |SinkPlaceholder { field, is_inside }, out| match tongue {
            ValueEncoding::Json if *is_inside => {
                let text = text_of(&message.value(field)).into_owned();
                let quoted = serde_json::Value::String(text).to_string();
                out.extend_from_slice(&quoted.as_bytes()[1..quoted.len() - 1]);
            }
            ValueEncoding::Json => json_of(message, field, out),
            ValueEncoding::Url => {
                let mut text = String::new();
                percent_encode(text_of(&message.value(field)).as_bytes(), &mut text);
                out.extend_from_slice(text.as_bytes());
            }
            ValueEncoding::Bytes => match message.value(field) {
                MessageValue::Bytes(bytes) => out.extend_from_slice(&bytes),
                value => out.extend_from_slice(text_of(&value).as_bytes()),
            },
            ValueEncoding::Plain => {
                out.extend_from_slice(text_of(&message.value(field)).as_bytes());
            }
        });
    }

    /// Appends a JSON value: the value of a single placeholder, or else the filled text as a
    /// string.
    pub fn fill_value(&self, message: &SinkMessage, out: &mut Vec<u8>) {
        if let Some(field) = self.only_field() {
            return json_of(message, field, out);
        }
        let mut text = Vec::new();
        self.fill(message, ValueEncoding::Plain, &mut text);
        let text = String::from_utf8_lossy(&text).into_owned();
        out.extend_from_slice(serde_json::Value::String(text).to_string().as_bytes());
    }

    /// Returns the value of a single placeholder with its type, or else the filled text.
    pub fn value<'a>(&self, message: &'a SinkMessage) -> MessageValue<'a> {
        match self.only_field() {
            Some(field) => message.value(field),
            None => {
                let mut text = Vec::new();
                self.fill(message, ValueEncoding::Plain, &mut text);
                MessageValue::Bytes(text.into())
            }
        }
    }

    /// Returns a relative path. A value cannot contain a slash or lead to a parent folder.
    pub fn fill_path(&self, message: &SinkMessage) -> String {
        self.fill_by(message, |_, value, path| push_segment(value, path))
    }

    /// Returns the filled text; `push` appends each value to the text so far.
    pub fn fill_by(
        &self,
        message: &SinkMessage,
        push: impl Fn(&MessageField, &str, &mut String),
    ) -> String {
        let mut all = String::new();
        self.0.fill(&mut all, |place, out| {
            push(&place.field, &text_of(&message.value(&place.field)), out);
        });
        all
    }

    /// Whether every placeholder has a value. A JSON null is not a value.
    pub fn has_all_values(&self, message: &SinkMessage) -> bool {
        self.0.values().all(|place| message.value(&place.field) != MessageValue::Nothing)
    }

    /// Returns the field if the template is a single placeholder.
    pub fn only_field(&self) -> Option<&MessageField> {
        self.0.only_value().map(|place| &place.field)
    }

    /// Returns the text if the template has no placeholders.
    pub fn only_text(&self) -> Option<String> {
        let mut text = String::new();
        let filled = self.0.try_fill(&mut text, |_, _| Err(()));
        filled.is_ok().then_some(text)
    }

    /// Returns the text of a statement with `mark(n)` for each value, and the fields of the values.
    /// A placeholder within quotes is an error.
    pub fn bind(&self, mark: fn(usize) -> String) -> Result<(String, Vec<MessageField>), String> {
        let (statement, places) = self.0.bind(mark, quote_after).ok_or(BOUND)?;
        Ok((statement, places.into_iter().map(|place| place.field.clone()).collect()))
    }
}

/// Whether a JSON string is open after `text`.
fn in_string_after(mut is_inside: bool, text: &str) -> bool {
    let mut is_escaped = false;
    for byte in text.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = is_inside,
            b'"' => is_inside = !is_inside,
            _ => {}
        }
    }
    is_inside
}

/// Returns a value as text; an absent value is empty.
pub(crate) fn text_of<'a>(value: &MessageValue<'a>) -> Cow<'a, str> {
    match value {
        MessageValue::Nothing => "".into(),
        MessageValue::Bool(is) => is.to_string().into(),
        MessageValue::Number(number) => number.to_string().into(),
        MessageValue::Json(json) => json.to_string().into(),
        MessageValue::Bytes(Cow::Borrowed(bytes)) => match std::str::from_utf8(bytes) {
            Ok(text) => text.into(),
            Err(_) => url_of(bytes).into(),
        },
        MessageValue::Bytes(Cow::Owned(bytes)) => match std::str::from_utf8(bytes) {
            Ok(text) => text.to_string().into(),
            Err(_) => url_of(bytes).into(),
        },
    }
}

fn url_of(bytes: &[u8]) -> String {
    format!("data:;base64,{}", Base64::encode_string(bytes))
}

/// Appends a value as JSON. A JSON payload stays JSON, in one line.
fn json_of(message: &SinkMessage, field: &MessageField, out: &mut Vec<u8>) {
    if matches!(field, MessageField::Payload(steps) if steps.is_empty()) && message.json().is_some()
    {
        // Line breaks stand only between JSON tokens: within strings they are escaped.
        let in_line = |byte: &u8| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte };
        out.extend(message.payload.trim_ascii().iter().map(in_line));
        return;
    }
    match message.value(field) {
        MessageValue::Nothing => out.extend_from_slice(b"null"),
        value @ MessageValue::Bytes(_) => {
            let text = serde_json::Value::String(text_of(&value).into_owned());
            out.extend_from_slice(text.to_string().as_bytes());
        }
        value => out.extend_from_slice(text_of(&value).as_bytes()),
    }
}

/// Appends a value to a path. Only letters, digits, `-` and `_` stay, and a dot after a letter or
/// digit; a value thus cannot be `..`.
fn push_segment(value: &str, path: &mut String) {
    let value = if value.is_empty() { "_" } else { value };
    for byte in value.bytes().take(SEGMENT_BYTES_MAX) {
        let follows = path.bytes().last().is_some_and(|last| last.is_ascii_alphanumeric());
        match byte {
            b'-' | b'_' => path.push(char::from(byte)),
            b'.' if follows => path.push('.'),
            _ if byte.is_ascii_alphanumeric() => path.push(char::from(byte)),
            _ => path.push_str(&format!("%{byte:02X}")),
        }
    }
}

/// Largest number of bytes of a value in a path. Each may become three characters, and file systems
/// accept names of that length.
const SEGMENT_BYTES_MAX: usize = 60;

#[cfg(test)]
mod tests {
    use super::*;
    use mqtt::{PropertiesBuf, Property};

    fn message(topic: &str, payload: &[u8]) -> SinkMessage {
        let mut properties = PropertiesBuf::default();
        properties.push(Property::ContentType("a/b"));
        properties.push(Property::UserProperty("k", "v\"v"));
        let payload = payload.to_vec();
        SinkMessage {
            topic: topic.into(),
            payload,
            properties,
            timestamp_ms: 7,
            ..SinkMessage::default()
        }
    }

    fn filled(text: &str, message: &SinkMessage, tongue: ValueEncoding) -> String {
        let mut out = Vec::new();
        SinkTemplate::parse(text).unwrap().fill(message, tongue, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn each_placeholder_stands_for_its_value() {
        let one = message("a/b/c", br#"{"t":21.50,"on":true,"list":[{"x":"y"}],"none":null}"#);
        for (text, expected) in [
            ("${topic}|${topic[1]}|${topic[3]}|${topic[4]}", "a/b/c|a|c|"),
            ("${payload.t} ${payload.on} ${payload.list[0].x}", "21.5 true y"),
            ("${payload.list} ${payload.none}${payload.gone.far}", r#"[{"x":"y"}] "#),
            ("${qos} ${retain} ${timestamp_ms}", "0 false 7"),
            ("${properties.content_type} ${properties.user.k}", "a/b v\"v"),
            ("${properties.user.none}${clientid}${event}", "message.publish"),
        ] {
            assert_eq!(filled(text, &one, ValueEncoding::Plain), expected, "{text}");
        }
        assert_eq!(filled("${payload.t}", &message("t", b"no JSON"), ValueEncoding::Plain), "");
    }

    #[test]
    fn a_value_does_not_leave_its_place_in_json() {
        let body =
            r#"{"t":"${topic}","p":${payload},"q":${qos},"x":${payload.a},"s":"${payload}"}"#;
        SinkTemplate::parse(body).unwrap().check_json().unwrap();
        for payload in [
            &b"\"},{\"evil\":\"1"[..],
            b"{\"a\":\n[1,\r\n2]}",
            b"\0\n\r\t\\\"",
            b"\xff\xfe",
            b"",
            b"1e400",
            "\u{2028}\u{fffd}".as_bytes(),
        ] {
            let one = message("a\"/\\b", payload);
            let text = filled(body, &one, ValueEncoding::Json);
            assert!(!text.contains('\n') && !text.contains('\r'), "{text}");
            let read: serde_json::Value = serde_json::from_str(&text).expect(&text);
            assert_eq!(read["t"], "a\"/\\b");
            assert_eq!(read.as_object().unwrap().len(), 5, "{text}");
            assert_eq!(read["s"], *text_of(&MessageValue::Bytes(payload.into())));
        }
        let wrong = SinkTemplate::parse("{\"a\":${payload}").unwrap().check_json().unwrap_err();
        assert!(wrong.contains("not JSON"), "{wrong}");
    }

    #[test]
    fn no_value_leaves_its_folder() {
        let path = |topic: &str| {
            let template = SinkTemplate::parse("d/${topic[1]}${topic[2]}/x-${topic}.log").unwrap();
            template.fill_path(&message(topic, b""))
        };
        assert_eq!(path("a/b.c"), "d/ab.c/x-a%2Fb.c.log");
        assert_eq!(path("../.."), "d/%2E.%2E./x-%2E.%2F.%2E.log");
        assert_eq!(path("\u{e9}/"), "d/%C3%A9_/x-%C3%A9%2F.log");
        assert_eq!(path("~\0x/$"), "d/%7E%00x%24/x-%7E%00x%2F%24.log");
        assert!(path(&"x".repeat(9000)).len() < 200);
    }

    #[test]
    fn statements_have_marks_in_the_place_of_values() {
        let bind = |text: &str| SinkTemplate::parse(text).unwrap().bind(|n| format!("${n}"));
        let (statement, fields) = bind("INSERT INTO m VALUES (${topic}, ${payload.a})").unwrap();
        assert_eq!(statement, "INSERT INTO m VALUES ($1, $2)");
        assert_eq!(fields, [MessageField::Topic, MessageField::Payload(vec!["a".into()])]);
        assert!(bind("VALUES ('${topic}')").unwrap_err().contains("without quotes"));
    }

    #[test]
    fn what_is_no_placeholder_is_told() {
        for wrong in ["${user}", "${topic", "${topic[0]}", "${topic.1}", "${payload.}", "${qos.x}"]
        {
            SinkTemplate::parse(wrong).unwrap_err();
        }
        let why = SinkTemplate::parse("${properties.nothing}").unwrap_err();
        assert!(why.contains("use content_type"), "{why}");
    }
}
