//! Equality of two values, and a hash shared by equal values. Comparing and hashing is charged to
//! the budget.

use crate::budget::{Budget, RunError};
use crate::value::{Number, Value, ValueMap};
use std::cmp::Ordering;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Differences allowed between two equal values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EqualityMode {
    /// No difference: 1 is not equal to 1.0.
    Exact,
    /// A text may be equal to a number or a boolean of the same text.
    Loose,
    /// An integer may be equal to a float of the same size.
    Numeric,
}

impl Value<'_> {
    pub(crate) fn equals(&self, other: &Value<'_>, budget: &mut Budget) -> Result<bool, RunError> {
        self.is_same(other, EqualityMode::Loose, budget)
    }

    pub(crate) fn is_same(
        &self,
        other: &Value<'_>,
        sameness: EqualityMode,
        budget: &mut Budget,
    ) -> Result<bool, RunError> {
        budget.step(1)?;
        Ok(match (self, other) {
            (Value::Array(one), Value::Array(two)) => {
                if one.len() != two.len() {
                    return Ok(false);
                }
                for (one, two) in one.iter().zip(two) {
                    if !one.is_same(two, sameness, budget)? {
                        return Ok(false);
                    }
                }
                true
            }
            (Value::Map(one), Value::Map(two)) => same_maps(one, two, sameness, budget)?,
            (one, two) if sameness != EqualityMode::Loose && !one.can_equal(two, sameness) => false,
            (one, two) if one.is_null() && two.is_null() => true,
            (Value::Bool(truth), Value::Text(text)) | (Value::Text(text), Value::Bool(truth)) => {
                *text == bool_text(*truth)
            }
            _ => {
                let looked = match (self.as_bytes(), other.as_bytes()) {
                    (Some(one), Some(two)) => one.len().min(two.len()),
                    // To read a text as a number all of it is scanned.
                    (Some(text), None) | (None, Some(text)) => text.len(),
                    (None, None) => 0,
                };
                budget.step(looked as u64 / 16)?;
                self.order(other) == Some(Ordering::Equal)
            }
        })
    }

    /// Whether the kinds of two values permit equality in a mode other than `EqualityMode::Loose`:
    /// a text then equals only text and bytes.
    fn can_equal(&self, other: &Value<'_>, sameness: EqualityMode) -> bool {
        let number = |value: &Value<'_>| matches!(value, Value::Int(_) | Value::Float(_));
        if sameness == EqualityMode::Numeric && number(self) && number(other) {
            return true;
        }
        let bytes = self.as_bytes().is_some() && other.as_bytes().is_some();
        bytes || std::mem::discriminant(self) == std::mem::discriminant(other)
    }

    /// Returns a hash equal for all values which [`EqualityMode::Loose`] calls equal. The hash has
    /// no secret key: a client making collisions on purpose pays for the comparisons.
    pub(crate) fn hash(&self, budget: &mut Budget) -> Result<u64, RunError> {
        let mut hasher = DefaultHasher::new();
        self.feed_hasher(&mut hasher, budget)?;
        Ok(hasher.finish())
    }

    fn feed_hasher(&self, to: &mut DefaultHasher, budget: &mut Budget) -> Result<(), RunError> {
        budget.scan(self.as_bytes().map_or(0, <[u8]>::len))?;
        match self {
            Value::Null | Value::JsonNull => to.write_u8(b'n'),
            Value::Bool(truth) => feed_bytes(bool_text(*truth).as_bytes(), to),
            Value::Int(_) | Value::Float(_) => {
                feed_number(self.number().map_or(f64::NAN, Number::float), to);
            }
            // A text is equal to the number in it, so both have one hash.
            Value::Text(text) => match self.number() {
                Some(number) => feed_number(number.float(), to),
                None => feed_bytes(text.as_bytes(), to),
            },
            Value::Bytes(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) => return Value::text(text).feed_hasher(to, budget),
                Err(_) => feed_bytes(bytes, to),
            },
            Value::Array(values) => {
                to.write_u8(b'a');
                to.write_usize(values.len());
                for value in values {
                    value.feed_hasher(to, budget)?;
                }
            }
            Value::Map(map) => {
                // A sum, since the order of the names does not matter.
                let mut all = 0_u64;
                for (name, value) in map.iter() {
                    budget.scan(name.len())?;
                    let mut hasher = DefaultHasher::new();
                    name.hash(&mut hasher);
                    value.feed_hasher(&mut hasher, budget)?;
                    all = all.wrapping_add(hasher.finish());
                }
                to.write_u8(b'm');
                to.write_u64(all);
            }
        }
        Ok(())
    }
}

fn feed_bytes(bytes: &[u8], to: &mut DefaultHasher) {
    to.write_u8(b't');
    bytes.hash(to);
}

/// Hashes a number as a float, since an integer may equal a float; adding 0.0 makes both zeros
/// equal.
fn feed_number(number: f64, to: &mut DefaultHasher) {
    to.write_u8(b'd');
    to.write_u64((number + 0.0).to_bits());
}

fn bool_text(truth: bool) -> &'static str {
    if truth { "true" } else { "false" }
}

/// Compares two maps independent of the order of names. Most maps compared come from the same
/// program with the same order, so only the rest behind the first difference is sorted.
fn same_maps(
    one: &ValueMap<'_>,
    two: &ValueMap<'_>,
    sameness: EqualityMode,
    budget: &mut Budget,
) -> Result<bool, RunError> {
    if one.len() != two.len() {
        return Ok(false);
    }
    let mut alike = 0;
    for ((name, value), (other_name, other)) in one.iter().zip(two.iter()) {
        budget.step(name.len() as u64 / 16)?;
        if name != other_name {
            break;
        }
        if !value.is_same(other, sameness, budget)? {
            return Ok(false);
        }
        alike += 1;
    }
    let (ones, twos) = (sorted(one, alike, budget)?, sorted(two, alike, budget)?);
    for ((name, value), (other_name, other)) in ones.into_iter().zip(twos) {
        if name != other_name || !value.is_same(other, sameness, budget)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns the entries from `from` on, sorted by name. Entries of an equal name keep their order.
fn sorted<'m, 'a>(
    map: &'m ValueMap<'a>,
    from: usize,
    budget: &mut Budget,
) -> Result<Vec<(&'m str, &'m Value<'a>)>, RunError> {
    let count = map.len() - from;
    if count == 0 {
        return Ok(Vec::new());
    }
    // A stable sort uses half as much memory again.
    budget.take(count * size_of::<(&str, &Value<'_>)>() * 3 / 2)?;
    let mut rest: Vec<_> = map.iter().skip(from).collect();
    let looked = rest.iter().map(|(name, _)| 1 + name.len() as u64 / 32).sum::<u64>();
    budget.step(looked * u64::from(1 + count.ilog2()))?;
    rest.sort_by_key(|(name, _)| *name);
    Ok(rest)
}
