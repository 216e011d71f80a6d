//! Windows collect values of many messages under one key. A [`WindowState`] is the state of one
//! key; the caller keeps the states, adds messages to them, closes them when they are due, and
//! stores their records. Time is an argument, and a state is bounded in values and bytes.

mod state_record;
mod totals;

use crate::budget::{Budget, RunError};
use crate::evaluation::EvalFrame;
use crate::plan::{Expr, RulePlan};
use crate::rule_input::RuleInput;
use crate::value::{Value, ValueMap};
use std::collections::VecDeque;
pub(crate) use totals::{AggregateFunction, AggregateKind, RunningTotal, by_name};

pub use totals::{AGGREGATES, AggregateFunction as AggregateRow};

/// When a window is closed, and which messages its row covers. Times are in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowSpec {
    /// Closed after this number of messages.
    Count { messages: u64 },
    /// Covers the last `long` milliseconds, closed every `hop` milliseconds.
    Hopping { long: u64, hop: u64 },
    /// Closed after a pause of `gap`, and after `long` at the latest.
    Session { long: u64, gap: u64 },
    /// Covers the last `long` milliseconds, closed with each message.
    Sliding { long: u64 },
    /// Closed every `long` milliseconds; each message belongs to a single window.
    Tumbling { long: u64 },
}

/// Plan of GROUP BY and HAVING.
#[derive(Debug)]
pub(crate) struct WindowPlan {
    pub(crate) window: WindowSpec,
    pub(crate) keys: Box<[Expr]>,
    pub(crate) aggregates: Box<[AggregateCall]>,
    pub(crate) having: Option<Expr>,
}

/// A call of an [`AggregateFunction`] in a column or HAVING.
#[derive(Debug)]
pub(crate) struct AggregateCall {
    pub(crate) function: &'static AggregateFunction,
    /// `None` for `count(*)`, and for the start and end of the window.
    pub(crate) argument: Option<Expr>,
    pub(crate) percentile: f64,
}

/// Contribution of a message to a window, from [`RulePlan::offer`].
#[derive(Clone, Debug, PartialEq)]
pub struct WindowInput {
    /// The values of GROUP BY, as JSON separated by commas.
    pub key: Box<str>,
    /// Values, one for each total of the plan.
    pub values: Vec<Value<'static>>,
}

/// Time of an operation on a window: `now` is monotonic and measures the window; the offset gives
/// the time of day for columns.
#[derive(Clone, Copy, Debug)]
pub struct WindowTime {
    pub now: u64,
    pub time_of_day_offset_ms: i64,
}

impl WindowTime {
    fn time_of_day(self, time: u64) -> i64 {
        (time as i64).saturating_add(self.time_of_day_offset_ms)
    }
}

/// State of a window for one key.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WindowState {
    /// Parts of the window, each added and forgotten as a whole.
    panes: VecDeque<WindowPane>,
    /// When the next hopping window ends.
    next: u64,
    values: usize,
    bytes: usize,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct WindowPane {
    from: u64,
    last: u64,
    messages: u64,
    totals: Vec<RunningTotal>,
    values: usize,
    bytes: usize,
}

/// Most values kept for a key by `collect` and similar totals, and most messages in a sliding
/// window.
pub const VALUES_MAX: usize = 1000;
/// Most bytes of a key, `WindowInput::key`.
const KEY_BYTES_MAX: usize = 1024;
/// Memory of a window's state in addition to its values.
const GROUP_BYTES: usize = 256;
/// Memory of a [`WindowPane`] in addition to its values; [`TOTAL_BYTES`] is that of a total.
const PANE_BYTES: usize = 64;
const TOTAL_BYTES: usize = 64;

impl RulePlan {
    /// Returns the window of a rule with GROUP BY.
    pub fn window(&self) -> Option<WindowSpec> {
        self.window_plan.as_ref().map(|grouping| grouping.window)
    }

    /// Computes a message's contribution to the window of its key; `None` if WHERE excludes the
    /// message.
    pub fn offer(
        &self,
        seen: &RuleInput<'_>,
        budget: &mut Budget,
    ) -> Result<Option<WindowInput>, RunError> {
        let Some(grouping) = &self.window_plan else { return Ok(None) };
        let mut frame = EvalFrame::new(self, *seen, budget, Vec::new());
        if !frame.is_true(self.condition.as_ref())? {
            return Ok(None);
        }
        let mut key = String::new();
        for (at, expr) in grouping.keys.iter().enumerate() {
            key.push_str(if at == 0 { "" } else { "," });
            frame.eval(expr)?.write_json(&mut key);
            frame.budget.scan(key.len())?;
            if key.len() > KEY_BYTES_MAX {
                return Err(RunError::Bytes);
            }
        }
        let mut values = Vec::with_capacity(grouping.aggregates.len());
        for AggregateCall { function: row, argument: of, .. } in &grouping.aggregates {
            let value = match of {
                Some(expr) => frame.eval(expr)?,
                None => Value::Bool(true),
            };
            row.kind.check(row.name, &value)?;
            frame.budget.take(value.size().1 as usize)?;
            values.push(value.into_owned());
        }
        Ok(Some(WindowInput { key: key.into(), values }))
    }
}

impl WindowState {
    /// Adds the values of a [`WindowInput`]. Returns whether the window has to be closed at once.
    /// Windows which are due must be closed before.
    pub fn add(
        &mut self,
        plan: &RulePlan,
        values: Vec<Value<'static>>,
        now: u64,
        budget: &mut Budget,
    ) -> Result<bool, RunError> {
        let Some(grouping) = &plan.window_plan else { return Ok(false) };
        let is_sliding = matches!(grouping.window, WindowSpec::Sliding { .. });
        if let WindowSpec::Sliding { long } = grouping.window {
            self.forget_before((now + 1).saturating_sub(long));
        }
        let lists =
            grouping.aggregates.iter().filter(|asked| asked.function.kind.keeps_values()).count();
        if self.values + usize::from(is_sliding) + lists > VALUES_MAX {
            return Err(RunError::Values);
        }
        let from = grouping.window.pane_of(now);
        let goes_on = self.panes.back().filter(|pane| match grouping.window {
            WindowSpec::Sliding { .. } => false,
            WindowSpec::Count { .. } | WindowSpec::Session { .. } => true,
            _ => pane.from == from,
        });
        let fresh = goes_on.is_none().then(|| grouping.pane(from));
        let mut coming = Vec::with_capacity(values.len());
        let totals = goes_on.or(fresh.as_ref()).map(|pane| &*pane.totals).unwrap_or_default();
        for (total, value) in totals.iter().zip(values) {
            coming.push(total.charge_value(value, budget)?);
        }
        if let Some(pane) = fresh {
            if let WindowSpec::Hopping { hop, .. } = grouping.window
                && self.panes.is_empty()
            {
                self.next = (now / hop).saturating_add(1).saturating_mul(hop);
            }
            self.bytes += pane.bytes;
            self.values += pane.values;
            self.panes.push_back(pane);
        }
        let Some(pane) = self.panes.back_mut() else { return Ok(false) };
        (pane.last, pane.messages) = (now, pane.messages.saturating_add(1));
        for ((total, value), asked) in pane.totals.iter_mut().zip(coming).zip(&grouping.aggregates)
        {
            let before = total.last_bytes();
            let values = total.add(asked.function.kind, value);
            let gone = if values == 0 { before } else { 0 };
            let bytes = total.last_bytes();
            (pane.values, self.values) = (pane.values + values, self.values + values);
            pane.bytes = pane.bytes + bytes - gone;
            self.bytes = self.bytes + bytes - gone;
        }
        Ok(match grouping.window {
            WindowSpec::Count { messages } => pane.messages >= messages,
            WindowSpec::Sliding { .. } => true,
            _ => false,
        })
    }

    /// Returns when the window has to be closed; `None` if empty, or closed by the number of
    /// messages.
    pub fn due(&self, plan: &RulePlan) -> Option<u64> {
        let (first, last) = (self.panes.front()?, self.panes.back()?);
        match plan.window()? {
            WindowSpec::Count { .. } => None,
            WindowSpec::Hopping { .. } => Some(self.next),
            WindowSpec::Session { long, gap } => {
                Some(first.from.saturating_add(long).min(last.last.saturating_add(gap)))
            }
            WindowSpec::Sliding { long } => Some(last.last.saturating_add(long)),
            WindowSpec::Tumbling { long } => Some(first.from.saturating_add(long)),
        }
    }

    /// Closes a window as [`WindowState::close_at`], with `now` also as the time of day.
    pub fn close<'a>(
        &mut self,
        plan: &'a RulePlan,
        now: u64,
        budget: &mut Budget,
        out: &mut Vec<ValueMap<'a>>,
    ) -> Result<(), RunError> {
        self.close_at(plan, WindowTime { now, time_of_day_offset_ms: 0 }, budget, out)
    }

    /// Closes a window: appends its row if HAVING is true, and keeps the panes needed by the next
    /// window.
    pub fn close_at<'a>(
        &mut self,
        plan: &'a RulePlan,
        time: WindowTime,
        budget: &mut Budget,
        out: &mut Vec<ValueMap<'a>>,
    ) -> Result<(), RunError> {
        let now = time.now;
        let Some(window) = plan.window() else { return Ok(()) };
        let Some(due) = self.due(plan).or(Some(now)) else { return Ok(()) };
        let first = self.panes.front().map_or(now, |pane| pane.from);
        let (start, end) = match window {
            WindowSpec::Count { .. } => (first, now),
            WindowSpec::Hopping { long, .. } => (self.next.saturating_sub(long), self.next),
            WindowSpec::Session { .. } => (first, due.min(now)),
            WindowSpec::Sliding { long } => ((now + 1).saturating_sub(long), now),
            WindowSpec::Tumbling { long } => (first, first.saturating_add(long)),
        };
        let is_stale = matches!(window, WindowSpec::Sliding { .. }) && now >= due;
        let made = match is_stale {
            true => Ok(()),
            false => self.make_row(plan, start, end, time, budget, out),
        };
        match window {
            WindowSpec::Hopping { long, hop } => {
                self.next = self.next.saturating_add(hop);
                self.forget_before(self.next.saturating_sub(long));
            }
            WindowSpec::Sliding { .. } if !is_stale => {}
            _ => *self = WindowState::default(),
        }
        made
    }

    fn make_row<'a>(
        &self,
        plan: &'a RulePlan,
        start: u64,
        end: u64,
        time: WindowTime,
        budget: &mut Budget,
        out: &mut Vec<ValueMap<'a>>,
    ) -> Result<(), RunError> {
        let Some(grouping) = &plan.window_plan else { return Ok(()) };
        let mut totals: Vec<RunningTotal> =
            grouping.aggregates.iter().map(|asked| asked.function.kind.total()).collect();
        for pane in self.panes.iter().filter(|pane| (start..=end).contains(&pane.from)) {
            budget.step(totals.len() as u64)?;
            for ((total, more), asked) in
                totals.iter_mut().zip(&pane.totals).zip(&grouping.aggregates)
            {
                total.merge(asked.function.kind, more, budget)?;
            }
        }
        let mut values = Vec::with_capacity(totals.len());
        for (total, asked) in totals.into_iter().zip(&grouping.aggregates) {
            values.push(match asked.function.kind {
                AggregateKind::Start => Value::Int(time.time_of_day(start)),
                AggregateKind::End => Value::Int(time.time_of_day(end)),
                kind => total.finish(kind, asked.percentile, budget)?,
            });
        }
        let seen = RuleInput {
            has_message: false,
            now_ms: time.time_of_day(time.now),
            timestamp_ms: time.time_of_day(time.now),
            ..RuleInput::default()
        };
        EvalFrame::new(plan, seen, budget, values).window_row(plan, grouping.having.as_ref(), out)
    }

    fn forget_before(&mut self, time: u64) {
        while self.panes.front().is_some_and(|pane| pane.from < time) {
            if let Some(pane) = self.panes.pop_front() {
                self.values -= pane.values;
                self.bytes -= pane.bytes;
            }
        }
    }

    /// Whether the state has no message left, and may be dropped.
    pub fn is_empty(&self) -> bool {
        self.panes.is_empty()
    }

    /// Returns roughly the memory of the state in bytes.
    pub fn bytes(&self) -> usize {
        GROUP_BYTES + self.bytes
    }
}

impl WindowPlan {
    /// Creates a pane without messages.
    fn pane(&self, from: u64) -> WindowPane {
        let totals = self.aggregates.iter().map(|asked| asked.function.kind.total()).collect();
        let bytes = PANE_BYTES + TOTAL_BYTES * self.aggregates.len();
        let values = usize::from(matches!(self.window, WindowSpec::Sliding { .. }));
        WindowPane { from, totals, bytes, values, ..WindowPane::default() }
    }
}

impl WindowSpec {
    /// Returns the start of the pane for a message of this time.
    fn pane_of(self, now: u64) -> u64 {
        match self {
            WindowSpec::Count { .. } | WindowSpec::Session { .. } | WindowSpec::Sliding { .. } => {
                now
            }
            WindowSpec::Hopping { long, hop } => now - now % gcd(long, hop),
            WindowSpec::Tumbling { long } => now - now % long,
        }
    }
}

/// Returns the greatest common divisor, at least 1.
pub(crate) fn gcd(one: u64, other: u64) -> u64 {
    if other == 0 { one.max(1) } else { gcd(other, one % other) }
}
