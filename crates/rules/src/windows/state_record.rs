//! A window's state as bytes, to be kept over a restart. docs/store-format.md draws the record.

use super::{PANE_BYTES, RunningTotal, TOTAL_BYTES, WindowPane, WindowState};
use crate::plan::RulePlan;
use crate::value::{Value, ValueMap};
use crate::windows::totals::{DistinctValues, RunningSum};
use mqtt::ByteReader;
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
        let mut from = ByteReader::new(bytes);
        if from.u8()? != FORMAT {
            return None;
        }
        let mut gathering = WindowState { next: from.u64_le()?, ..WindowState::default() };
        let sliding = matches!(plan.window()?, super::WindowSpec::Sliding { .. });
        for _ in 0..read_count(&mut from)? {
            let (pane_from, last, messages) = (from.u64_le()?, from.u64_le()?, from.u64_le()?);
            if read_count(&mut from)? != kinds.len() {
                return None;
            }
            let mut pane = WindowPane { from: pane_from, last, messages, ..WindowPane::default() };
            pane.bytes = PANE_BYTES + TOTAL_BYTES * kinds.len();
            pane.values = usize::from(sliding);
            for kind in &kinds {
                let total = match (read_total(&mut from)?, kind.total()) {
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
        (from.is_empty() && in_order(&gathering.panes)).then_some(gathering)
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

/// Reads the number of elements, each of which takes at least a byte.
fn read_count(from: &mut ByteReader<'_>) -> Option<usize> {
    let count = usize::try_from(from.u64_le()?).ok()?;
    (count <= from.rest().len()).then_some(count)
}

fn read_bytes<'a>(from: &mut ByteReader<'a>) -> Option<&'a [u8]> {
    let len = usize::try_from(from.u64_le()?).ok()?;
    from.bytes(len)
}

fn read_text(from: &mut ByteReader<'_>) -> Option<String> {
    String::from_utf8(read_bytes(from)?.to_vec()).ok()
}

fn read_float(from: &mut ByteReader<'_>) -> Option<f64> {
    from.u64_le().map(f64::from_bits)
}

fn read_total(from: &mut ByteReader<'_>) -> Option<RunningTotal> {
    Some(match from.u8()? {
        b'l' => {
            let count = read_count(from)?;
            RunningTotal::List(
                (0..count).map(|_| read_value(from, DEPTH_MAX)).collect::<Option<_>>()?,
            )
        }
        b'o' => RunningTotal::One(read_value(from, DEPTH_MAX)?),
        b'd' => RunningTotal::Sum(RunningSum {
            ints: from.array().map(i128::from_le_bytes)?,
            floats: read_float(from)?,
            deviations: read_float(from)?,
            count: from.u64_le()?,
            has_floats: from.u8()? == 1,
        }),
        _ => return None,
    })
}

fn read_value(from: &mut ByteReader<'_>, depth: u32) -> Option<Value<'static>> {
    let deeper = depth.checked_sub(1)?;
    Some(match from.u8()? {
        b'n' => Value::Null,
        b'b' => Value::Bool(from.u8()? == 1),
        b'i' => Value::Int(from.array().map(i64::from_le_bytes)?),
        b'f' => Value::Float(read_float(from)?),
        b't' => Value::Text(read_text(from)?.into()),
        b'y' => Value::Bytes(read_bytes(from)?.to_vec().into()),
        b'a' => {
            let count = read_count(from)?;
            Value::Array((0..count).map(|_| read_value(from, deeper)).collect::<Option<_>>()?)
        }
        b'm' => {
            let mut map = ValueMap::default();
            for _ in 0..read_count(from)? {
                let key = read_text(from)?;
                map.push(key.into(), read_value(from, deeper)?);
            }
            Value::Map(map)
        }
        _ => return None,
    })
}
