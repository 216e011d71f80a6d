//! A window's state as bytes, to be kept over a restart. docs/store-format.md draws the record.

use super::{PANE_BYTES, RunningTotal, TOTAL_BYTES, WindowPane, WindowState};
use crate::plan::RulePlan;
use crate::value::{Value, ValueMap};
use crate::windows::totals::{DistinctValues, RunningSum};
use std::collections::VecDeque;

const FORMAT: u8 = 1;

/// Deepest nesting of values, the same as for JSON.
const DEPTH_MAX: u32 = 64;

impl WindowState {
    pub fn encode(&self, to: &mut Vec<u8>) {
        to.push(FORMAT);
        put(to, self.next);
        put(to, self.panes.len() as u64);
        for pane in &self.panes {
            put(to, pane.from);
            put(to, pane.last);
            put(to, pane.messages);
            put(to, pane.totals.len() as u64);
            pane.totals.iter().for_each(|total| put_total(to, total));
        }
    }

    /// Decodes a record of [`WindowState::encode`]. `None` for bytes which are not a state of this
    /// plan.
    pub fn decode(plan: &RulePlan, bytes: &[u8]) -> Option<WindowState> {
        let kinds: Vec<_> =
            plan.window_plan.as_ref()?.aggregates.iter().map(|one| one.function.kind).collect();
        let mut from = WindowStateReader(bytes);
        if from.byte()? != FORMAT {
            return None;
        }
        let mut gathering = WindowState { next: from.u64()?, ..WindowState::default() };
        let sliding = matches!(plan.window()?, super::WindowSpec::Sliding { .. });
        for _ in 0..from.count()? {
            let (pane_from, last, messages) = (from.u64()?, from.u64()?, from.u64()?);
            if from.count()? != kinds.len() {
                return None;
            }
            let mut pane = WindowPane { from: pane_from, last, messages, ..WindowPane::default() };
            pane.bytes = PANE_BYTES + TOTAL_BYTES * kinds.len();
            pane.values = usize::from(sliding);
            for kind in &kinds {
                let total = match (from.total()?, kind.total()) {
                    (RunningTotal::List(list), RunningTotal::Distinct(_)) => {
                        RunningTotal::Distinct(DistinctValues::of(list)?)
                    }
                    (total, _) => total,
                };
                if std::mem::discriminant(&total) != std::mem::discriminant(&kind.total()) {
                    return None;
                }
                let bytes = |value: &Value<'_>| value.size().1 as usize;
                let list = match &total {
                    RunningTotal::Distinct(known) => known.values(),
                    RunningTotal::List(list) => list,
                    RunningTotal::One(value) if !value.is_null() => std::slice::from_ref(value),
                    RunningTotal::One(_) | RunningTotal::Sum(_) => &[],
                };
                pane.values += if kind.keeps_values() { list.len() } else { 0 };
                pane.bytes += list.iter().map(bytes).sum::<usize>();
                pane.totals.push(total);
            }
            gathering.values += pane.values;
            gathering.bytes += pane.bytes;
            gathering.panes.push_back(pane);
        }
        let in_order = |panes: &VecDeque<WindowPane>| {
            panes.iter().zip(panes.iter().skip(1)).all(|(one, next)| one.from <= next.from)
        };
        (from.0.is_empty() && in_order(&gathering.panes)).then_some(gathering)
    }
}

fn put(to: &mut Vec<u8>, number: u64) {
    to.extend_from_slice(&number.to_le_bytes());
}

fn put_bytes(to: &mut Vec<u8>, bytes: &[u8]) {
    put(to, bytes.len() as u64);
    to.extend_from_slice(bytes);
}

fn put_total(to: &mut Vec<u8>, total: &RunningTotal) {
    match total {
        RunningTotal::Distinct(known) => put_list(to, known.values()),
        RunningTotal::List(list) => put_list(to, list),
        RunningTotal::One(value) => {
            to.push(b'o');
            put_value(to, value);
        }
        RunningTotal::Sum(RunningSum { ints, floats, deviations, count, has_floats }) => {
            to.push(b'd');
            to.extend_from_slice(&ints.to_le_bytes());
            put(to, floats.to_bits());
            put(to, deviations.to_bits());
            put(to, *count);
            to.push(u8::from(*has_floats));
        }
    }
}

fn put_list(to: &mut Vec<u8>, list: &[Value<'_>]) {
    to.push(b'l');
    put(to, list.len() as u64);
    list.iter().for_each(|value| put_value(to, value));
}

fn put_value(to: &mut Vec<u8>, value: &Value<'_>) {
    match value {
        Value::Null | Value::JsonNull => to.push(b'n'),
        Value::Bool(of) => to.extend_from_slice(&[b'b', u8::from(*of)]),
        Value::Int(of) => {
            to.push(b'i');
            to.extend_from_slice(&of.to_le_bytes());
        }
        Value::Float(of) => {
            to.push(b'f');
            put(to, of.to_bits());
        }
        Value::Text(of) => {
            to.push(b't');
            put_bytes(to, of.as_bytes());
        }
        Value::Bytes(of) => {
            to.push(b'y');
            put_bytes(to, of);
        }
        Value::Array(of) => {
            to.push(b'a');
            put(to, of.len() as u64);
            of.iter().for_each(|value| put_value(to, value));
        }
        Value::Map(of) => {
            to.push(b'm');
            put(to, of.len() as u64);
            for (key, value) in of.iter() {
                put_bytes(to, key.as_bytes());
                put_value(to, value);
            }
        }
    }
}

struct WindowStateReader<'a>(&'a [u8]);

impl<'a> WindowStateReader<'a> {
    fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        Some(self.bytes(1)?[0])
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.bytes(8)?.try_into().ok()?))
    }

    /// Reads the number of elements, each of which takes at least a byte.
    fn count(&mut self) -> Option<usize> {
        let count = usize::try_from(self.u64()?).ok()?;
        (count <= self.0.len()).then_some(count)
    }

    fn length_prefixed(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.u64()?).ok()?;
        self.bytes(len)
    }

    fn text(&mut self) -> Option<String> {
        String::from_utf8(self.length_prefixed()?.to_vec()).ok()
    }

    fn total(&mut self) -> Option<RunningTotal> {
        Some(match self.byte()? {
            b'l' => {
                let count = self.count()?;
                RunningTotal::List(
                    (0..count).map(|_| self.value(DEPTH_MAX)).collect::<Option<_>>()?,
                )
            }
            b'o' => RunningTotal::One(self.value(DEPTH_MAX)?),
            b'd' => RunningTotal::Sum(RunningSum {
                ints: i128::from_le_bytes(self.bytes(16)?.try_into().ok()?),
                floats: f64::from_bits(self.u64()?),
                deviations: f64::from_bits(self.u64()?),
                count: self.u64()?,
                has_floats: self.byte()? == 1,
            }),
            _ => return None,
        })
    }

    fn value(&mut self, depth: u32) -> Option<Value<'static>> {
        let deeper = depth.checked_sub(1)?;
        Some(match self.byte()? {
            b'n' => Value::Null,
            b'b' => Value::Bool(self.byte()? == 1),
            b'i' => Value::Int(i64::from_le_bytes(self.bytes(8)?.try_into().ok()?)),
            b'f' => Value::Float(f64::from_bits(self.u64()?)),
            b't' => Value::Text(self.text()?.into()),
            b'y' => Value::Bytes(self.length_prefixed()?.to_vec().into()),
            b'a' => {
                let count = self.count()?;
                Value::Array((0..count).map(|_| self.value(deeper)).collect::<Option<_>>()?)
            }
            b'm' => {
                let mut map = ValueMap::default();
                for _ in 0..self.count()? {
                    let key = self.text()?;
                    map.push(key.into(), self.value(deeper)?);
                }
                Value::Map(map)
            }
            _ => return None,
        })
    }
}
