//! Resolves paths such as `payload.a[1].b`: in JSON text where possible, otherwise in values.

use super::*;
use crate::budget::{Budget, RunError};
use crate::index::{position, range};
use crate::json::TapeIndex;
use crate::plan::{PathRoot, PathStep};
use crate::rule_input::RuleField;
use crate::value::Value;
use std::borrow::Cow;

impl<'r, 'a> EvalFrame<'r, 'a> {
    pub(super) fn resolve_path(
        &mut self,
        root: &'a PathRoot,
        steps: &'a [PathStep],
    ) -> Result<PathTarget<'a>, RunError> {
        let value = match root {
            PathRoot::Field(RuleField::Payload) if !steps.is_empty() => {
                if self.payload()?.is_none() {
                    return Ok(PathTarget::Value(Value::Null));
                }
                return self.walk_payload(TapeIndex::ROOT, steps);
            }
            PathRoot::Item => match &self.item {
                ForeachElement::Place(place) => {
                    let place = *place;
                    return self.walk_payload(place, steps);
                }
                ForeachElement::Value(_) => return self.resolve_borrowed(None, steps),
                ForeachElement::None => Value::Null,
            },
            PathRoot::Alias(name) => return self.resolve_borrowed(Some(name), steps),
            PathRoot::Field(field) => self.field(*field)?,
            PathRoot::EventField(name) => {
                let (value, (steps, bytes)) = self.input.extra_field(name);
                self.budget.step(steps)?;
                self.budget.take(bytes as usize)?;
                value
            }
            PathRoot::Expr(expr) => self.eval(expr)?,
            PathRoot::Total(at) => {
                let value = self.totals.get(*at).unwrap_or(&Value::Null);
                let (steps, bytes) = value.size();
                self.budget.step(steps)?;
                self.budget.take(bytes as usize)?;
                value.clone()
            }
        };
        self.descend(value, steps).map(PathTarget::Value)
    }

    /// Follows steps in the JSON text of the payload as far as each step leads to a single value.
    pub(super) fn walk_payload(
        &mut self,
        from: TapeIndex,
        steps: &'a [PathStep],
    ) -> Result<PathTarget<'a>, RunError> {
        let mut at = from;
        for (done, step) in steps.iter().enumerate() {
            self.budget.step(1)?;
            let next = match self.resolve_step(step)? {
                ResolvedStep::Key(key) => {
                    let Some(Some(tape)) = &self.tape else { break };
                    tape.find_key(at, &key, self.budget)?
                }
                ResolvedStep::At(index) => self.nth_element(at, index)?,
                ResolvedStep::Range(..) => {
                    let value = self.value(PathTarget::Place(at))?;
                    return self.descend(value, &steps[done..]).map(PathTarget::Value);
                }
            };
            let Some(next) = next else {
                let is_text = matches!(&self.tape, Some(Some(tape)) if tape.is_text(at));
                if !is_text {
                    return Ok(PathTarget::Value(Value::Null));
                }
                let text = self.value(PathTarget::Place(at))?;
                return self.descend(text, &steps[done..]).map(PathTarget::Value);
            };
            at = next;
        }
        Ok(PathTarget::Place(at))
    }

    pub(super) fn nth_element(
        &mut self,
        array: TapeIndex,
        index: i64,
    ) -> Result<Option<TapeIndex>, RunError> {
        let Some(Some(tape)) = &self.tape else { return Ok(None) };
        let mut looked = 0;
        let at = match index {
            1.. => Some(index - 1),
            0 => None,
            _ => {
                let count = tape.elements(array).inspect(|_| looked += 1).count();
                index.checked_add_unsigned(count as u64).filter(|at| *at >= 0)
            }
        };
        let at = at.and_then(|at| usize::try_from(at).ok());
        let found = at.and_then(|at| tape.elements(array).inspect(|_| looked += 1).nth(at));
        self.budget.step(looked / 4)?;
        Ok(found)
    }

    /// Resolves a path in the row so far, or in an element outside the payload: only the value at
    /// the end is copied.
    pub(super) fn resolve_borrowed(
        &mut self,
        alias: Option<&str>,
        steps: &'a [PathStep],
    ) -> Result<PathTarget<'a>, RunError> {
        // Steps may call functions, which need `&mut self`, so they are evaluated before anything
        // is borrowed.
        let mut moves = Vec::with_capacity(steps.len());
        for step in steps {
            moves.push(self.resolve_step(step)?);
        }
        let mut at = match (alias, &self.item) {
            (Some(name), _) => self.row.get(name).or_else(|| self.before.get(name)),
            (None, ForeachElement::Value(value)) => Some(value),
            (None, _) => None,
        };
        for (done, step) in moves.iter().enumerate() {
            self.budget.step(1)?;
            at = match (at, step) {
                (Some(text @ Value::Text(_)), _) => {
                    self.budget.take(text.size().1 as usize)?;
                    let mut inside = text.clone();
                    for step in &moves[done..] {
                        inside = step_into(inside, step, self.budget)?;
                    }
                    return Ok(PathTarget::Value(inside));
                }
                (Some(Value::Map(map)), ResolvedStep::Key(key)) => {
                    self.budget.step(map.len() as u64 / 4)?;
                    map.get(key)
                }
                (Some(Value::Array(values)), ResolvedStep::At(index)) => {
                    position(*index, values.len()).map(|at| &values[at])
                }
                (Some(Value::Array(values)), ResolvedStep::Range(from, to)) => {
                    let part = &values[range(*from, *to, values.len())];
                    for (steps, bytes) in part.iter().map(Value::size) {
                        self.budget.step(steps)?;
                        self.budget.take(bytes as usize)?;
                    }
                    // A range is the end of its path.
                    return Ok(PathTarget::Value(Value::Array(part.to_vec())));
                }
                _ => None,
            };
        }
        let Some(value) = at else { return Ok(PathTarget::Value(Value::Null)) };
        let (steps, bytes) = value.size();
        self.budget.step(steps)?;
        self.budget.take(bytes as usize)?;
        Ok(PathTarget::Value(value.clone()))
    }

    pub(super) fn descend(
        &mut self,
        from: Value<'a>,
        steps: &'a [PathStep],
    ) -> Result<Value<'a>, RunError> {
        let mut at = from;
        for step in steps {
            let step = self.resolve_step(step)?;
            at = step_into(at, &step, self.budget)?;
        }
        Ok(at)
    }

    pub(super) fn resolve_step(
        &mut self,
        step: &'a PathStep,
    ) -> Result<ResolvedStep<'a>, RunError> {
        Ok(match step {
            PathStep::Key(key) => ResolvedStep::Key(Cow::Borrowed(key)),
            PathStep::At(index) => ResolvedStep::At(*index),
            PathStep::Range(from, to) => ResolvedStep::Range(*from, *to),
            PathStep::Computed(expr) => match self.eval(expr)? {
                Value::Text(key) => ResolvedStep::Key(key),
                Value::Int(index) => ResolvedStep::At(index),
                // Index 0 does not exist in any array.
                _ => ResolvedStep::At(0),
            },
        })
    }
}

/// Takes one step into a value. A text is parsed as JSON first, as a payload is.
pub(super) fn step_into<'a>(
    from: Value<'a>,
    step: &ResolvedStep<'_>,
    budget: &mut Budget,
) -> Result<Value<'a>, RunError> {
    budget.step(1)?;
    Ok(match (step, from.open_json(budget)?) {
        (ResolvedStep::Key(key), Value::Map(mut map)) => {
            budget.step(map.len() as u64 / 4)?;
            map.take(key).unwrap_or_default()
        }
        (ResolvedStep::At(index), Value::Array(mut values)) => {
            let at = position(*index, values.len());
            at.map_or(Value::Null, |at| values.swap_remove(at))
        }
        (ResolvedStep::Range(from, to), Value::Array(mut values)) => {
            let range = range(*from, *to, values.len());
            Value::Array(values.drain(range).collect())
        }
        _ => Value::Null,
    })
}
