//! What the message itself says, topics, and chance.

use super::{Arguments, Function, Needs, Outcome, room, row};
use crate::operate::matches_filter;
use crate::run::Frame;
use crate::seen::Field;
use crate::value::Value;
use std::fmt::Write as _;

pub(super) const ROWS: &[Function] = &[
    field(
        Field::ClientId,
        row("clientid", 0..=0, "", "The field.", ("clientid()", r#""""#), |f, _| {
            f.field(Field::ClientId)
        }),
    ),
    field(
        Field::PeerHost,
        row("clientip", 0..=0, "", "The field `peerhost`.", ("clientip()", "null"), |f, _| {
            f.field(Field::PeerHost)
        }),
    ),
    row(
        "contains_topic",
        2..=3,
        "array, topic[, qos]",
        "Whether a topic is among those of an array, or under `topic` of its maps, and there with \
         this `qos`.",
        ("contains_topic(['a/b', 'c'], 'c')", "true"),
        |f, a| contains(f, a, |filter, topic| filter == topic),
    ),
    row(
        "contains_topic_match",
        2..=3,
        "array, topic[, qos]",
        "The same for filters that the topic matches.",
        ("contains_topic_match(['a/#', 'c'], 'a/b')", "true"),
        |f, a| contains(f, a, matches_filter),
    ),
    field(
        Field::Flags,
        row(
            "flag",
            1..=1,
            "name",
            "One of the message's `flags`.",
            ("flag('retain')", "false"),
            flag,
        ),
    ),
    field(
        Field::Flags,
        row(
            "flags",
            0..=0,
            "",
            "The field.",
            ("flags()", r#"{"retain":false,"dup":false}"#),
            |f, _| f.field(Field::Flags),
        ),
    ),
    field(
        Field::Id,
        row("msgid", 0..=0, "", "The field `id`.", ("msgid()", r#""""#), |f, _| f.field(Field::Id)),
    ),
    field(
        Field::Payload,
        row(
            "payload",
            0..=1,
            "[path]",
            "The field, or what stands in it under a path of names with dots.",
            ("payload()", r#""{}""#),
            payload,
        ),
    ),
    field(
        Field::PeerHost,
        row("peerhost", 0..=0, "", "The field.", ("peerhost()", "null"), |f, _| {
            f.field(Field::PeerHost)
        }),
    ),
    field(
        Field::QoS,
        row("qos", 0..=0, "", "The field.", ("qos()", "0"), |f, _| f.field(Field::QoS)),
    ),
    chance(row(
        "random",
        0..=0,
        "",
        "A float from 0 to below 1.",
        ("random() < 1", "true"),
        random,
    )),
    row(
        "topic",
        0..=1,
        "[index]",
        "The field, or a level of it, counted from 1; one that is not there is an error.",
        ("topic(1)", r#""car""#),
        topic,
    ),
    row(
        "topic_level",
        1..=1,
        "index",
        "A level of the topic, counted from 1, or from the last from -1; null where there is none.",
        ("topic_level(-1)", r#""speed""#),
        topic_level,
    ),
    row(
        "topic_matches",
        2..=2,
        "topic, filter",
        "Whether a filter selects a topic, the same as `topic =~ filter`.",
        ("topic_matches('a/b/c', 'a/+/c')", "true"),
        topic_matches,
    ),
    field(
        Field::Username,
        row("username", 0..=0, "", "The field.", ("username()", "null"), |f, _| {
            f.field(Field::Username)
        }),
    ),
    chance(row("uuid_v4", 0..=0, "", "A UUID by chance.", ("strlen(uuid_v4())", "36"), |f, _| {
        uuid(f, "-")
    })),
    chance(row(
        "uuid_v4_no_hyphen",
        0..=0,
        "",
        "The same without hyphens.",
        ("strlen(uuid_v4_no_hyphen())", "32"),
        |f, _| uuid(f, ""),
    )),
];

const fn field(field: Field, of: Function) -> Function {
    Function { needs: Needs::Field(field), ..of }
}

const fn chance(of: Function) -> Function {
    Function { needs: Needs::Chance, ..of }
}

fn contains<'a>(
    f: &mut Frame<'_, 'a>,
    a: &mut Arguments<'_, 'a>,
    matches: fn(&str, &str) -> bool,
) -> Outcome<'a> {
    let qos = if a.len() == 3 { Some(a.int(2)?) } else { None };
    let topic = a.text(1)?;
    for value in a.array(0)? {
        let filter = match &value {
            Value::Text(filter) if qos.is_none() => filter,
            Value::Map(map) => match (map.get("topic"), qos, map.get("qos")) {
                (Some(Value::Text(filter)), None, _) => filter,
                (Some(Value::Text(filter)), Some(qos), Some(Value::Int(own))) if qos == *own => {
                    filter
                }
                _ => continue,
            },
            _ => continue,
        };
        f.budget.scan(filter.len() + topic.len())?;
        if matches(filter, &topic) {
            return Ok(Value::Bool(true));
        }
    }
    Ok(Value::Bool(false))
}

fn flag<'a>(f: &mut Frame<'_, 'a>, a: &mut Arguments<'_, 'a>) -> Outcome<'a> {
    let name = a.text(0)?;
    Ok(match f.field(Field::Flags)? {
        Value::Map(mut flags) => flags.take(&name).unwrap_or_default(),
        _ => Value::Null,
    })
}

fn payload<'a>(f: &mut Frame<'_, 'a>, a: &mut Arguments<'_, 'a>) -> Outcome<'a> {
    if a.len() == 0 {
        return f.field(Field::Payload);
    }
    let path = a.text(0)?;
    f.budget.scan(path.len())?;
    f.payload_under(&path)
}

fn topic<'a>(f: &mut Frame<'_, 'a>, a: &mut Arguments<'_, 'a>) -> Outcome<'a> {
    if a.len() == 0 {
        return f.field(Field::Topic);
    }
    match topic_level(f, a)? {
        Value::Text(level) if a.int(0)? > 0 => Ok(Value::Text(level)),
        _ => a.no("the topic has no such level"),
    }
}

fn topic_level<'a>(f: &mut Frame<'_, 'a>, a: &mut Arguments<'_, 'a>) -> Outcome<'a> {
    let topic = f.seen.topic;
    f.budget.scan(topic.len())?;
    let index = a.int(0)?;
    let at = usize::try_from(index.unsigned_abs()).unwrap_or(usize::MAX);
    let level = match index {
        0 => None,
        1.. => topic.split('/').nth(at - 1),
        _ => topic.rsplit('/').nth(at - 1),
    };
    Ok(level.map_or(Value::Null, Value::text))
}

fn topic_matches<'a>(f: &mut Frame<'_, 'a>, a: &mut Arguments<'_, 'a>) -> Outcome<'a> {
    let (topic, filter) = (a.text(0)?, a.text(1)?);
    f.budget.scan(topic.len() + filter.len())?;
    Ok(Value::Bool(matches_filter(&filter, &topic)))
}

/// The next number of this run (SplitMix64).
fn draw(f: &mut Frame<'_, '_>) -> u64 {
    f.chance = f.chance.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let of = (f.chance ^ f.chance >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let of = (of ^ of >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    of ^ of >> 31
}

fn random<'a>(f: &mut Frame<'_, 'a>, _: &mut Arguments<'_, 'a>) -> Outcome<'a> {
    let bits = draw(f) >> 11;
    Ok(Value::Float(bits as f64 / (1u64 << 53) as f64))
}

/// RFC 9562, section 5.4.
fn uuid<'a>(f: &mut Frame<'_, 'a>, between: &str) -> Outcome<'a> {
    room(f.budget, 36)?;
    let of = u128::from(draw(f)) << 64 | u128::from(draw(f));
    let of = of & !(0xf << 76) | 0x4 << 76;
    let of = of & !(0x3 << 62) | 0x2 << 62;
    let digits = format!("{of:032x}");
    let mut out = String::with_capacity(36);
    for (at, digit) in digits.chars().enumerate() {
        let _ = match at {
            8 | 12 | 16 | 20 => write!(out, "{between}{digit}"),
            _ => write!(out, "{digit}"),
        };
    }
    Ok(Value::Text(out.into()))
}
