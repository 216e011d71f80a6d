//! Places the value of a column in a row: under a name, in nested maps, or at a position of an
//! array. Existing values stay, unless the new value replaces them.

use crate::budget::{Budget, RunError};
use crate::index::position;
use crate::plan::AliasStep;
use crate::value::{Value, ValueMap};
use std::borrow::Cow;

/// The field whose text may be JSON.
const PAYLOAD: &str = "payload";

impl<'a> ValueMap<'a> {
    /// Sets a value in the row at the path `under` of an alias, as in `AS payload.a.b`. If the path
    /// goes into a payload of JSON text, that is parsed first, so its other values are kept.
    pub(crate) fn put_under(
        &mut self,
        under: &'a [AliasStep],
        value: Value<'a>,
        budget: &mut Budget,
    ) -> Result<(), RunError> {
        budget.take(64 * under.len())?;
        budget.step(self.len() as u64 / 4)?;
        let Some((AliasStep::Key(first), rest)) = under.split_first() else { return Ok(()) };
        let mut slot = self.entry(Cow::Borrowed(first));
        if !rest.is_empty() && &**first == PAYLOAD {
            open_payload(slot, budget)?;
        }
        for step in rest {
            let Some(next) = step_into(slot, step, budget)? else { return Ok(()) };
            slot = next;
        }
        *slot = value;
        Ok(())
    }
}

/// Parses a payload as JSON before a value is set inside. A payload other than JSON would be lost,
/// so the rule fails with [`RunError::PayloadNotJson`].
fn open_payload<'a>(slot: &mut Value<'a>, budget: &mut Budget) -> Result<(), RunError> {
    if slot.as_bytes().is_none() {
        return Ok(());
    }
    let payload = std::mem::take(slot);
    *slot = match payload.open_json(budget)? {
        inside @ (Value::Map(_) | Value::Array(_)) => inside,
        _ => return Err(RunError::PayloadNotJson),
    };
    Ok(())
}

/// Returns the place of a step inside of `slot`, creating maps and arrays; `None` if the array has
/// no such position.
fn step_into<'s, 'a>(
    slot: &'s mut Value<'a>,
    step: &'a AliasStep,
    budget: &mut Budget,
) -> Result<Option<&'s mut Value<'a>>, RunError> {
    if let Value::Text(_) = slot {
        *slot = std::mem::take(slot).open_json(budget)?;
    }
    match step {
        AliasStep::Key(name) => {
            if !matches!(slot, Value::Map(_)) {
                *slot = Value::Map(ValueMap::default());
            }
            let Value::Map(map) = slot else { return Ok(None) };
            budget.step(map.len() as u64 / 4)?;
            Ok(Some(map.entry(Cow::Borrowed(name))))
        }
        AliasStep::At(0) => Ok(None),
        // A value other than an array is replaced by an array with this element.
        _ if !matches!(slot, Value::Array(_)) => {
            *slot = Value::Array(vec![Value::Null]);
            let Value::Array(values) = slot else { return Ok(None) };
            Ok(values.last_mut())
        }
        AliasStep::At(index) => {
            let Value::Array(values) = slot else { return Ok(None) };
            Ok(position(*index, values.len()).and_then(|at| values.get_mut(at)))
        }
        AliasStep::Head | AliasStep::Tail => {
            let Value::Array(values) = slot else { return Ok(None) };
            let at = if matches!(step, AliasStep::Head) { 0 } else { values.len() };
            budget.step(values.len() as u64 / 8)?;
            values.insert(at, Value::Null);
            Ok(values.get_mut(at))
        }
    }
}
