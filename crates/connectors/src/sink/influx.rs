//! Lines of InfluxDB's line protocol. A value from a client cannot leave its position: characters
//! that the protocol cannot escape there are written as %XX.
//!
//! ```text
//! MEASUREMENT,TAG=VALUE,... FIELD=VALUE,... NANOSECONDS
//! ```
//!
//! A tag or field is omitted if a placeholder has no value.

use super::columns;
use super::influx_time::PointTime;
use super::message::{MessageField, MessageValue, SinkMessage};
use super::template::{SinkTemplate, ValueEncoding, text_of};
use serde_json::Value as Json;

/// Templates of a line, from the options `influx.*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InfluxLines {
    pub measurement: SinkTemplate,
    pub tags: Vec<(String, SinkTemplate)>,
    pub fields: Vec<(String, InfluxFieldKind)>,
    pub time: Option<PointTime>,
}

/// Type of a field, given by the form of its template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InfluxFieldKind {
    /// `${payload.x}`: the type of the JSON value. Numbers with and without a fraction are both
    /// floats.
    Own(MessageField),
    /// `${payload.x}i`: an integer.
    Integer(MessageField),
    /// Any other template, with or without quotes: a string.
    Text(SinkTemplate),
}

impl InfluxLines {
    pub fn parse(
        measurement: &str,
        tags: &[String],
        fields: &[String],
        time: Option<PointTime>,
    ) -> Result<InfluxLines, String> {
        let named = |text: &String| {
            columns::parse(text).map(|(name, template)| (escaped(&name, NAME), template))
        };
        Ok(InfluxLines {
            measurement: SinkTemplate::parse(measurement)?,
            tags: tags.iter().map(named).collect::<Result<_, _>>()?,
            fields: fields.iter().map(|text| parse_field(text)).collect::<Result<_, _>>()?,
            time,
        })
    }

    /// Appends the line of a message, or returns why the message has none: no measurement, no
    /// field, or an invalid time.
    pub fn write(&self, message: &SinkMessage, out: &mut Vec<u8>) -> Result<(), String> {
        let filled = |template: &SinkTemplate, special| {
            escaped(&fill_complete(template, message).unwrap_or_default(), special)
        };
        let mut line = filled(&self.measurement, MEASUREMENT);
        if line.is_empty() {
            return Err(NO_MEASUREMENT.into());
        }
        for (name, template) in &self.tags {
            let value = filled(template, NAME);
            if !value.is_empty() {
                line.push_str(&format!(",{name}={value}"));
            }
        }
        let mut mark = ' ';
        for (name, shape) in &self.fields {
            if let Some(value) = shape.value(message) {
                line.push_str(&format!("{mark}{name}={value}"));
                mark = ',';
            }
        }
        if mark == ' ' {
            return Err(NO_FIELD.into());
        }
        let own = self.time.as_ref().map_or(Ok(None), |time| time.read_ns(message))?;
        let nanoseconds =
            own.unwrap_or_else(|| i64::try_from(message.taken_ns).unwrap_or(i64::MAX));
        line.push_str(&format!(" {nanoseconds}"));
        out.extend_from_slice(line.as_bytes());
        Ok(())
    }
}

impl InfluxFieldKind {
    fn value(&self, message: &SinkMessage) -> Option<String> {
        match self {
            InfluxFieldKind::Own(field) => match own_value(message, field) {
                MessageValue::Nothing => None,
                MessageValue::Bool(is) => Some(is.to_string()),
                MessageValue::Number(number) => Some(number.to_string()),
                MessageValue::Json(Json::Number(number)) => Some(number.to_string()),
                value => Some(quoted(&text_of(&value))),
            },
            InfluxFieldKind::Integer(field) => match own_value(message, field) {
                MessageValue::Number(number) => i64::try_from(number).ok().map(|n| format!("{n}i")),
                MessageValue::Json(json) => json.as_i64().map(|number| format!("{number}i")),
                _ => None,
            },
            InfluxFieldKind::Text(template) => {
                fill_complete(template, message).map(|text| quoted(&text))
            }
        }
    }
}

/// Returns the value of a field. A payload which is a JSON number or truth value keeps its type.
fn own_value<'a>(message: &'a SinkMessage, field: &MessageField) -> MessageValue<'a> {
    match (field, message.json()) {
        (MessageField::Payload(steps), Some(Json::Bool(is))) if steps.is_empty() => {
            MessageValue::Bool(*is)
        }
        (MessageField::Payload(steps), Some(json @ Json::Number(_))) if steps.is_empty() => {
            MessageValue::Json(json)
        }
        _ => message.value(field),
    }
}

/// Parses `NAME=${...}`, `NAME=${...}i` or `NAME="text with ${...}"`; also used as the check of the
/// option.
pub(super) fn parse_field(text: &str) -> Result<(String, InfluxFieldKind), String> {
    let (name, template) = columns::parse(text)?;
    let (_, value) = text.split_once('=').unwrap_or_default();
    let shape = match value.trim() {
        value if value.len() > 1 && value.starts_with('"') && value.ends_with('"') => {
            InfluxFieldKind::Text(SinkTemplate::parse(&value[1..value.len() - 1])?)
        }
        value => match (template.only_field(), value.strip_suffix('i').map(SinkTemplate::parse)) {
            (Some(field), _) => InfluxFieldKind::Own(field.clone()),
            (None, Some(Ok(counted))) => match counted.only_field() {
                Some(field) => InfluxFieldKind::Integer(field.clone()),
                None => InfluxFieldKind::Text(template),
            },
            _ => InfluxFieldKind::Text(template),
        },
    };
    Ok((escaped(&name, NAME), shape))
}

/// Returns the filled text, or `None` if a placeholder has no value: half a name or half a sentence
/// would be wrong.
fn fill_complete(template: &SinkTemplate, message: &SinkMessage) -> Option<String> {
    if !template.has_all_values(message) {
        return None;
    }
    let mut text = Vec::new();
    template.fill(message, ValueEncoding::Plain, &mut text);
    Some(String::from_utf8_lossy(&text).into_owned())
}

const NO_FIELD: &str = "none of influx.fields has a value in this message";
const NO_MEASUREMENT: &str = "influx.measurement has no value in this message";

const MEASUREMENT: &[char] = &[',', ' '];
/// Characters to escape in tag names, field names and tag values.
const NAME: &[char] = &[',', ' ', '='];

fn escaped(text: &str, special: &[char]) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            // A backslash before a comma would escape the comma, so it is encoded.
            '\\' => out.push_str("%5C"),
            // A line which begins with "#" is a comment.
            '#' if out.is_empty() => out.push_str("%23"),
            c if c.is_ascii_control() => out.push_str(&format!("%{:02X}", u32::from(c))),
            c => {
                if special.contains(&c) {
                    out.push('\\');
                }
                out.push(c);
            }
        }
    }
    out
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(fields: &[&str], topic: &str, payload: &str) -> String {
        let owned = |all: &[&str]| all.iter().map(ToString::to_string).collect::<Vec<_>>();
        let tags = owned(&["a b=${topic}", "none=${clientid}"]);
        let lines = InfluxLines::parse("m ${topic[1]}", &tags, &owned(fields), None).unwrap();
        let payload = payload.as_bytes().to_vec();
        let message =
            SinkMessage { topic: topic.into(), payload, taken_ns: 7, ..SinkMessage::default() };
        let mut out = Vec::new();
        let is_one = lines.write(&message, &mut out).is_ok();
        assert_eq!(is_one, !out.is_empty());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn values_are_what_they_are_in_json() {
        let fields = ["x=${payload.x}", "n=${payload.x}i", "t=\"${payload.x}\"", "q=${qos}i"];
        for (payload, expected) in [
            (r#"{"x":21}"#, r#"x=21,n=21i,t="21",q=0i"#),
            (r#"{"x":-2.5}"#, r#"x=-2.5,t="-2.5",q=0i"#),
            (r#"{"x":true}"#, r#"x=true,t="true",q=0i"#),
            (r#"{"x":"a\\\"b"}"#, r#"x="a\\\"b",t="a\\\"b",q=0i"#),
            (r#"{"x":[1]}"#, r#"x="[1]",t="[1]",q=0i"#),
            (r#"{"x":""}"#, r#"x="",t="",q=0i"#),
            (r#"{"x":null}"#, "q=0i"),
            (r#"{"y":1}"#, "q=0i"),
            ("no json", "q=0i"),
        ] {
            let expected = format!("m\\ a,a\\ b=a {expected} 7");
            assert_eq!(line(&fields, "a", payload), expected);
        }
        let whole = ["p=${payload}", "n=${payload}i"];
        assert_eq!(line(&whole, "a", "5"), "m\\ a,a\\ b=a p=5,n=5i 7");
        assert_eq!(line(&whole, "a", "true"), "m\\ a,a\\ b=a p=true 7");
        assert_eq!(line(&whole, "a", "x y"), "m\\ a,a\\ b=a p=\"x y\" 7");
        assert_eq!(line(&["p=${payload.gone}"], "a", "5"), "", "no field, no line");
    }

    /// Each row: tags, fields, payload, and the line or the error.
    #[test]
    fn what_has_no_value_is_left_out() {
        const FULL: &str = r#"{"a":1,"b":"two"}"#;
        for (tags, fields, payload, expected) in [
            ("d=${payload.b}", "x=${payload.a}", FULL, "m,d=two x=1"),
            ("d=${payload.c}", "x=${payload.a}", FULL, "m x=1"),
            ("d=of-${payload.c}", "x=${payload.a}", FULL, "m x=1"),
            ("d=of-${payload.b}", "x=${payload.a}", FULL, "m,d=of-two x=1"),
            ("d=x", "x=\"${payload.a} of ${payload.b}\"", FULL, "m,d=x x=\"1 of two\""),
            ("d=x", "x=\"${payload.a} of ${payload.c}\"", FULL, NO_FIELD),
            ("d=x", "x=at ${payload.c}", FULL, NO_FIELD),
            ("d=x", "x=${payload.b}i", FULL, NO_FIELD),
            ("d=x", "x=${payload.a[0]}", FULL, NO_FIELD),
            ("d=x", "x=\"${properties.user.unit}\"", FULL, NO_FIELD),
            ("d=x", "x=${payload.a}", "no json", NO_FIELD),
            ("d=x", "x=${payload.a}", "", NO_FIELD),
            ("d=x", "x=${payload.a}", r#"{"a":null}"#, NO_FIELD),
            ("d=x", "x=constant", "no json", "m,d=x x=\"constant\""),
            ("d=x", "x=\"${clientid}\"", FULL, NO_FIELD),
        ] {
            let lines = InfluxLines::parse("m", &[tags.into()], &[fields.into()], None).unwrap();
            let bytes = payload.as_bytes().to_vec();
            let message = SinkMessage {
                topic: "t".into(),
                payload: bytes,
                taken_ns: 7,
                ..SinkMessage::default()
            };
            let mut out = Vec::new();
            let found = match lines.write(&message, &mut out) {
                Ok(()) => String::from_utf8(out).unwrap().strip_suffix(" 7").unwrap().to_string(),
                Err(why) => why,
            };
            assert_eq!(found, expected, "{tags} {fields} {payload}");
        }
        let lines = InfluxLines::parse("m-${payload.c}", &[], &["x=1".into()], None).unwrap();
        let message = SinkMessage { payload: FULL.into(), ..SinkMessage::default() };
        assert_eq!(lines.write(&message, &mut Vec::new()), Err(NO_MEASUREMENT.into()));
    }

    #[test]
    fn a_value_does_not_leave_its_place() {
        for (topic, expected) in [
            ("a,b=c d", "m\\ a\\,b=c\\ d,a\\ b=a\\,b\\=c\\ d"),
            ("a\nb\\", "m\\ a%0Ab%5C,a\\ b=a%0Ab%5C"),
            ("a\\,b=\\ ", "m\\ a%5C\\,b=%5C\\ ,a\\ b=a%5C\\,b\\=%5C\\ "),
        ] {
            assert_eq!(line(&["x=1"], topic, ""), format!("{expected} x=\"1\" 7"));
        }
        assert_eq!(escaped("#no comment", MEASUREMENT), "%23no\\ comment");
    }
}
