//! Operators on values, and the patterns of LIKE.

use crate::budget::{Budget, RunError};
use crate::value::{Number, Value};
use std::cmp::Ordering;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operator {
    Add,
    And,
    Concat,
    Divide,
    Equal,
    Greater,
    GreaterOrEqual,
    IntDivide,
    /// `<> NULL`: whether the left side is neither absent nor the null of JSON. The right side is
    /// not evaluated.
    IsNotNull,
    IsNull,
    Less,
    LessOrEqual,
    Modulo,
    Multiply,
    NotEqual,
    Or,
    Subtract,
    /// `=~`: the topic on the left, a filter on the right.
    TopicMatches,
}

impl Operator {
    fn sign(self) -> &'static str {
        match self {
            Operator::Add => "+",
            Operator::And => "and",
            Operator::Concat => "||",
            Operator::Divide => "/",
            Operator::Equal => "=",
            Operator::Greater => ">",
            Operator::GreaterOrEqual => ">=",
            Operator::IntDivide => "div",
            Operator::IsNotNull => "<>",
            Operator::IsNull => "=",
            Operator::Less => "<",
            Operator::LessOrEqual => "<=",
            Operator::Modulo => "mod",
            Operator::Multiply => "*",
            Operator::NotEqual => "<>",
            Operator::Or => "or",
            Operator::Subtract => "-",
            Operator::TopicMatches => "=~",
        }
    }
}

/// Applies an operator other than AND, OR and the tests for null, which do not always evaluate both
/// sides.
pub(crate) fn apply_operator<'a>(
    operator: Operator,
    left: Value<'a>,
    right: Value<'a>,
    budget: &mut Budget,
) -> Result<Value<'a>, RunError> {
    if let Operator::Equal | Operator::NotEqual = operator {
        // An absent value is neither equal nor unequal to any value but another absent value.
        if left.is_absent() || right.is_absent() {
            let both = left.is_absent() && right.is_absent();
            return Ok(Value::Bool(both && operator == Operator::Equal));
        }
        let same = left.equals(&right, budget)?;
        return Ok(Value::Bool(same == (operator == Operator::Equal)));
    }
    if let (Some(one), Some(two)) = (left.as_bytes(), right.as_bytes()) {
        budget.scan(one.len().min(two.len()))?;
    }
    let ordered = |wanted: &[Ordering]| {
        Value::Bool(left.order(&right).is_some_and(|order| wanted.contains(&order)))
    };
    Ok(match operator {
        Operator::Greater => ordered(&[Ordering::Greater]),
        Operator::GreaterOrEqual => ordered(&[Ordering::Greater, Ordering::Equal]),
        Operator::Less => ordered(&[Ordering::Less]),
        Operator::LessOrEqual => ordered(&[Ordering::Less, Ordering::Equal]),
        Operator::TopicMatches => match (&left, &right) {
            (Value::Text(topic), Value::Text(filter)) => Value::Bool(matches_filter(filter, topic)),
            _ => Value::Bool(false),
        },
        Operator::Concat => concatenate(&left, &right, budget)?,
        Operator::Add if left.as_bytes().is_some() || right.as_bytes().is_some() => {
            let mut out = String::new();
            write_string(&left, &mut out, budget)?;
            write_string(&right, &mut out, budget)?;
            Value::Text(out.into())
        }
        _ => calculate(operator, &left, &right)?,
    })
}

/// Whether a topic matches a filter (`=~`); an invalid filter matches no topic.
pub(crate) fn matches_filter(filter: &str, topic: &str) -> bool {
    mqtt::topic::check_filter(filter).is_ok() && mqtt::filter_matches(filter, topic)
}

fn concatenate<'a>(
    left: &Value<'_>,
    right: &Value<'_>,
    budget: &mut Budget,
) -> Result<Value<'a>, RunError> {
    let mut out = String::new();
    for side in [left, right] {
        write_text(side, &mut out, budget)?;
    }
    Ok(Value::Text(out.into()))
}

/// Appends a value as text, charged before the writing.
pub(crate) fn write_text(
    value: &Value<'_>,
    out: &mut String,
    budget: &mut Budget,
) -> Result<(), RunError> {
    match value.as_bytes() {
        // An invalid byte becomes a replacement character of three bytes.
        Some(bytes) => budget.take(bytes.len() * 3)?,
        None => charge_json(value, budget)?,
    }
    value.write_text(out);
    Ok(())
}

/// Appends a value as the function `str` does: a float with at most ten decimals, and `undefined`
/// for an absent value.
pub(crate) fn write_string(
    value: &Value<'_>,
    out: &mut String,
    budget: &mut Budget,
) -> Result<(), RunError> {
    match value {
        Value::Null => {
            budget.take(UNDEFINED.len())?;
            out.push_str(UNDEFINED);
            Ok(())
        }
        Value::Float(of) => {
            budget.take(FLOAT_DIGITS_MAX)?;
            out.push_str(&decimal(*of, 10));
            Ok(())
        }
        other => write_text(other, out, budget),
    }
}

const UNDEFINED: &str = "undefined";

/// Upper bound of the length of [`decimal`]: 309 digits of the largest float and at most 253
/// decimals.
pub(crate) const FLOAT_DIGITS_MAX: usize = 570;

/// Writes a float with at most so many decimals, without trailing zeros but with at least one
/// decimal.
pub(crate) fn decimal(of: f64, decimals: usize) -> String {
    let text = fixed(of, decimals);
    let Some((whole, part)) = text.split_once('.') else { return text };
    match part.trim_end_matches('0') {
        "" => format!("{whole}.0"),
        part => format!("{whole}.{part}"),
    }
}

/// Writes a float with exactly so many decimals, rounded as by Erlang's `float_to_list`: half away
/// from zero, as far as 53 bits tell.
pub(crate) fn fixed(of: f64, decimals: usize) -> String {
    let (size, whole) = (of.abs(), of.abs().floor());
    if size >= EXACT_MAX || decimals > EXACT_DECIMALS_MAX {
        return format!("{of:.decimals$}");
    }
    let sign = if of.is_sign_negative() { "-" } else { "" };
    if decimals == 0 {
        return format!("{sign}{}", size.round() as u64);
    }
    let tenfold = 10_f64.powi(i32::try_from(decimals).unwrap_or(0));
    let part = ((size - whole) * tenfold).round();
    let (whole, part) = if part >= tenfold { (whole + 1.0, 0.0) } else { (whole, part) };
    // As integers, which are written with all of their digits.
    format!("{sign}{}.{:0>decimals$}", whole as u64, part as u64)
}

/// 2^53: from this size on a float has no fraction.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
/// Most decimals whose scaled fraction still fits in a `u64` for [`fixed`].
const EXACT_DECIMALS_MAX: usize = 18;

/// Charges the budget for the JSON text of a value.
pub(crate) fn charge_json(value: &Value<'_>, budget: &mut Budget) -> Result<(), RunError> {
    budget.step(1)?;
    match value {
        Value::Text(text) => budget.take(text.len() * 6 + 2),
        Value::Bytes(bytes) => budget.take(bytes.len() * 6 + 2),
        Value::Array(values) => {
            budget.take(values.len() + 2)?;
            values.iter().try_for_each(|value| charge_json(value, budget))
        }
        Value::Map(map) => {
            budget.take(4 * map.len() + 2)?;
            map.iter().try_for_each(|(key, value)| {
                budget.take(key.len() * 6)?;
                charge_json(value, budget)
            })
        }
        _ => budget.take(24),
    }
}

fn calculate<'a>(
    operator: Operator,
    left: &Value<'_>,
    right: &Value<'_>,
) -> Result<Value<'a>, RunError> {
    let sign = operator.sign();
    // A text is not a number here: `'1' + 1` is more often a mistake than intended.
    let number = |value: &Value<'_>| match value {
        Value::Int(of) => Some(Number::Int(*of)),
        Value::Float(of) => Some(Number::Float(*of)),
        _ => None,
    };
    let (Some(one), Some(two)) = (number(left), number(right)) else {
        return Err(RunError::Operands { operator: sign, left: left.kind(), right: right.kind() });
    };
    let arithmetic = |why| RunError::Arithmetic { operator: sign, why };
    if let (Number::Int(one), Number::Int(two)) = (one, two)
        && operator != Operator::Divide
    {
        return integer_result(operator, one, two).map_err(arithmetic).map(Value::Int);
    }
    let (one, two) = (one.float(), two.float());
    let result = match operator {
        Operator::Add => one + two,
        Operator::Subtract => one - two,
        Operator::Multiply => one * two,
        Operator::Divide if two == 0.0 => return Err(arithmetic("division by zero")),
        Operator::Divide => one / two,
        _ => return Err(arithmetic("is for two integers")),
    };
    if result.is_finite() { Ok(Value::Float(result)) } else { Err(arithmetic("overflow")) }
}

fn integer_result(operator: Operator, one: i64, two: i64) -> Result<i64, &'static str> {
    let result = match operator {
        Operator::Add => one.checked_add(two),
        Operator::Subtract => one.checked_sub(two),
        Operator::Multiply => one.checked_mul(two),
        Operator::IntDivide | Operator::Modulo if two == 0 => return Err("division by zero"),
        Operator::IntDivide => one.checked_div(two),
        Operator::Modulo => one.checked_rem(two),
        _ => return Err("is not for numbers"),
    };
    result.ok_or("overflow")
}

/// A pattern of LIKE: `%` matches any text, `_` any one character, and the escape character makes
/// the next character literal.
#[derive(Debug)]
pub(crate) struct LikePattern {
    parts: Box<[LikePart]>,
}

#[derive(Debug, PartialEq)]
enum LikePart {
    AnyText,
    AnyChar,
    Char(char),
}

impl LikePattern {
    pub(crate) fn new(text: &str, escape: char) -> LikePattern {
        let mut parts = Vec::new();
        let mut chars = text.chars();
        while let Some(c) = chars.next() {
            parts.push(match c {
                _ if c == escape => LikePart::Char(chars.next().unwrap_or(c)),
                '%' if parts.last() == Some(&LikePart::AnyText) => continue,
                '%' => LikePart::AnyText,
                '_' => LikePart::AnyChar,
                c => LikePart::Char(c),
            });
        }
        LikePattern { parts: parts.into() }
    }

    /// Takes at most as many comparisons as the product of both lengths, since only the last `%` is
    /// retried. Charges all comparisons.
    pub(crate) fn matches(&self, text: &str, budget: &mut Budget) -> Result<bool, RunError> {
        let (mut at, mut rest) = (0, text);
        let mut again: Option<(usize, &str)> = None;
        let mut looked = 0;
        let matched = loop {
            looked += 1;
            if looked % 16 == 0 {
                budget.step(1)?;
            }
            let c = rest.chars().next();
            match (self.parts.get(at), c) {
                (None, None) => break true,
                (Some(LikePart::AnyText), _) => {
                    again = Some((at + 1, rest));
                    at += 1;
                    continue;
                }
                (Some(LikePart::AnyChar), Some(c)) => {
                    (at, rest) = (at + 1, &rest[c.len_utf8()..]);
                    continue;
                }
                (Some(LikePart::Char(wanted)), Some(c)) if *wanted == c => {
                    (at, rest) = (at + 1, &rest[c.len_utf8()..]);
                    continue;
                }
                _ => {}
            }
            let Some((behind, from)) = again else { break false };
            let Some(c) = from.chars().next() else { break false };
            let from = &from[c.len_utf8()..];
            again = Some((behind, from));
            (at, rest) = (behind, from);
        };
        Ok(matched)
    }
}
