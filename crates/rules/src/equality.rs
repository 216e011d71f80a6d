//! Whether two values are the same, and a hash that those which are the same share. What is looked
//! at is paid for.

use crate::budget::{Budget, RunError};
use crate::value::{Number, Value, ValueMap};
use std::cmp::Ordering;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Differences that two equal values may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EqualityMode {
    /// No difference: 1 is not equal to 1.0.
    Exact,
    /// A text may say the other value, a number or a boolean.
    Loose,
    /// An integer may be the float of the same size.
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
                    // The number that it says takes all of it.
                    (Some(text), None) | (None, Some(text)) => text.len(),
                    (None, None) => 0,
                };
                budget.step(looked as u64 / 16)?;
                self.order(other) == Some(Ordering::Equal)
            }
        })
    }

    /// Whether values of these kinds may be the same where a text is no other value.
    fn can_equal(&self, other: &Value<'_>, sameness: EqualityMode) -> bool {
        let number = |value: &Value<'_>| matches!(value, Value::Int(_) | Value::Float(_));
        if sameness == EqualityMode::Numeric && number(self) && number(other) {
            return true;
        }
        let bytes = self.as_bytes().is_some() && other.as_bytes().is_some();
        bytes || std::mem::discriminant(self) == std::mem::discriminant(other)
    }

    /// Values that are equal have the same. It needs no key: whoever makes two of one hash on
    /// purpose has them compared, and pays for that.
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
            // A text beside a number is the number that it says.
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
                // A sum, since the order of names is nothing.
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

/// As a float, since an integer may be equal to one; and the zeros are equal.
fn feed_number(number: f64, to: &mut DefaultHasher) {
    to.write_u8(b'd');
    to.write_u64((number + 0.0).to_bits());
}

fn bool_text(truth: bool) -> &'static str {
    if truth { "true" } else { "false" }
}

/// In whichever order the names stand. Most maps that are compared come from one program and have
/// one order; only what is behind the first difference of names is sorted.
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

/// By name, from a place on. Of a name that stands twice the order stays.
fn sorted<'m, 'a>(
    map: &'m ValueMap<'a>,
    from: usize,
    budget: &mut Budget,
) -> Result<Vec<(&'m str, &'m Value<'a>)>, RunError> {
    let count = map.len() - from;
    if count == 0 {
        return Ok(Vec::new());
    }
    // Sorting takes half as much again.
    budget.take(count * size_of::<(&str, &Value<'_>)>() * 3 / 2)?;
    let mut rest: Vec<_> = map.iter().skip(from).collect();
    let looked = rest.iter().map(|(name, _)| 1 + name.len() as u64 / 32).sum::<u64>();
    budget.step(looked * u64::from(1 + count.ilog2()))?;
    rest.sort_by_key(|(name, _)| *name);
    Ok(rest)
}
