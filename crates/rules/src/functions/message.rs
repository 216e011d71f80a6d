//! Functions of the message, of topics, and of chance.

use super::{CallArguments, EvalResult, FunctionNeeds, RuleFunction, charge_output, row};
use crate::evaluation::EvalFrame;
use crate::operators::matches_filter;
use crate::rule_input::RuleField;
use crate::value::Value;
use std::fmt::Write as _;

pub(super) const ROWS: &[RuleFunction] = &[
    field(
        RuleField::ClientId,
        row("clientid", 0..=0, "", "The field.", ("clientid()", r#""""#), |f, _| {
            f.field(RuleField::ClientId)
        }),
    ),
    field(
        RuleField::PeerHost,
        row("clientip", 0..=0, "", "The field `peerhost`.", ("clientip()", "null"), |f, _| {
            f.field(RuleField::PeerHost)
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
        RuleField::Flags,
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
        RuleField::Flags,
        row(
            "flags",
            0..=0,
            "",
            "The field.",
            ("flags()", r#"{"retain":false,"dup":false}"#),
            |f, _| f.field(RuleField::Flags),
        ),
    ),
    field(
        RuleField::Id,
        row("msgid", 0..=0, "", "The field `id`.", ("msgid()", r#""""#), |f, _| {
            f.field(RuleField::Id)
        }),
    ),
    field(
        RuleField::Payload,
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
        RuleField::PeerHost,
        row("peerhost", 0..=0, "", "The field.", ("peerhost()", "null"), |f, _| {
            f.field(RuleField::PeerHost)
        }),
    ),
    field(
        RuleField::QoS,
        row("qos", 0..=0, "", "The field.", ("qos()", "0"), |f, _| f.field(RuleField::QoS)),
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
        RuleField::Username,
        row("username", 0..=0, "", "The field.", ("username()", "null"), |f, _| {
            f.field(RuleField::Username)
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

const fn field(field: RuleField, of: RuleFunction) -> RuleFunction {
    RuleFunction { needs: FunctionNeeds::Field(field), ..of }
}

const fn chance(of: RuleFunction) -> RuleFunction {
    RuleFunction { needs: FunctionNeeds::Chance, ..of }
}

fn contains<'a>(
    f: &mut EvalFrame<'_, 'a>,
    a: &mut CallArguments<'_, 'a>,
    matches: fn(&str, &str) -> bool,
) -> EvalResult<'a> {
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

fn flag<'a>(f: &mut EvalFrame<'_, 'a>, a: &mut CallArguments<'_, 'a>) -> EvalResult<'a> {
    let name = a.text(0)?;
    Ok(match f.field(RuleField::Flags)? {
        Value::Map(mut flags) => flags.take(&name).unwrap_or_default(),
        _ => Value::Null,
    })
}

fn payload<'a>(f: &mut EvalFrame<'_, 'a>, a: &mut CallArguments<'_, 'a>) -> EvalResult<'a> {
    if a.len() == 0 {
        return f.field(RuleField::Payload);
    }
    let path = a.text(0)?;
    f.budget.scan(path.len())?;
    f.payload_under(&path)
}

fn topic<'a>(f: &mut EvalFrame<'_, 'a>, a: &mut CallArguments<'_, 'a>) -> EvalResult<'a> {
    if a.len() == 0 {
        return f.field(RuleField::Topic);
    }
    match topic_level(f, a)? {
        Value::Text(level) if a.int(0)? > 0 => Ok(Value::Text(level)),
        _ => a.fail("the topic has no such level"),
    }
}

fn topic_level<'a>(f: &mut EvalFrame<'_, 'a>, a: &mut CallArguments<'_, 'a>) -> EvalResult<'a> {
    let topic = f.input.topic;
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

fn topic_matches<'a>(f: &mut EvalFrame<'_, 'a>, a: &mut CallArguments<'_, 'a>) -> EvalResult<'a> {
    let (topic, filter) = (a.text(0)?, a.text(1)?);
    f.budget.scan(topic.len() + filter.len())?;
    Ok(Value::Bool(matches_filter(&filter, &topic)))
}

fn random<'a>(f: &mut EvalFrame<'_, 'a>, _: &mut CallArguments<'_, 'a>) -> EvalResult<'a> {
    Ok(Value::Float(f.chance.f64()))
}

/// Returns a UUID of version 4 (RFC 9562, section 5.4) from the run's random generator.
fn uuid<'a>(f: &mut EvalFrame<'_, 'a>, between: &str) -> EvalResult<'a> {
    charge_output(f.budget, 36)?;
    let of = f.chance.u128(..);
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
