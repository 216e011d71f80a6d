//! Whether two values are the same. What is looked at is paid for.

use crate::budget::{Budget, Failed};
use crate::value::{Map, Value};
use std::cmp::Ordering;

impl Value<'_> {
    pub(crate) fn equals(&self, other: &Value<'_>, budget: &mut Budget) -> Result<bool, Failed> {
        budget.step(1)?;
        Ok(match (self, other) {
            (Value::Null, Value::Null) => true,
            (Value::Bool(truth), Value::Text(text)) | (Value::Text(text), Value::Bool(truth)) => {
                *text == word(*truth)
            }
            (Value::Array(one), Value::Array(two)) => {
                if one.len() != two.len() {
                    return Ok(false);
                }
                for (one, two) in one.iter().zip(two) {
                    if !one.equals(two, budget)? {
                        return Ok(false);
                    }
                }
                true
            }
            (Value::Map(one), Value::Map(two)) => same_maps(one, two, budget)?,
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
}

fn word(truth: bool) -> &'static str {
    if truth { "true" } else { "false" }
}

/// In whichever order the names stand. Most maps that are compared come from one program and have
/// one order; only what is behind the first difference of names is sorted.
fn same_maps(one: &Map<'_>, two: &Map<'_>, budget: &mut Budget) -> Result<bool, Failed> {
    if one.len() != two.len() {
        return Ok(false);
    }
    let mut alike = 0;
    for ((name, value), (other_name, other)) in one.iter().zip(two.iter()) {
        budget.step(name.len() as u64 / 16)?;
        if name != other_name {
            break;
        }
        if !value.equals(other, budget)? {
            return Ok(false);
        }
        alike += 1;
    }
    let (ones, twos) = (sorted(one, alike, budget)?, sorted(two, alike, budget)?);
    for ((name, value), (other_name, other)) in ones.into_iter().zip(twos) {
        if name != other_name || !value.equals(other, budget)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// By name, from a place on. Of a name that stands twice the order stays.
fn sorted<'m, 'a>(
    map: &'m Map<'a>,
    from: usize,
    budget: &mut Budget,
) -> Result<Vec<(&'m str, &'m Value<'a>)>, Failed> {
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
