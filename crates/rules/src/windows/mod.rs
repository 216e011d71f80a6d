//! Windows: what of many messages comes together under one key. A [`Gathering`] is what is known of
//! a key; whoever keeps them adds to them, closes them when they are due, and keeps their records.
//! Time is an argument, and a gathering is bounded in values and bytes.

mod record;
mod totals;

use crate::budget::{Budget, Failed};
use crate::plan::{Expr, Plan};
use crate::run::Frame;
use crate::seen::Seen;
use crate::value::{Map, Value};
use std::collections::VecDeque;
pub(crate) use totals::{Aggregate, Kind, Total, by_name};

pub use totals::{AGGREGATES, Aggregate as AggregateRow};

/// When what has come together goes out. Times are milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// After so many messages.
    Count { messages: u64 },
    /// Of the last `long`, every `hop`.
    Hopping { long: u64, hop: u64 },
    /// After a pause of `gap`, and after `long` at the latest.
    Session { long: u64, gap: u64 },
    /// Of the last `long`, with each message.
    Sliding { long: u64 },
    /// Every `long`, and nothing is in two of them.
    Tumbling { long: u64 },
}

/// What GROUP BY and HAVING say.
#[derive(Debug)]
pub(crate) struct Grouping {
    pub(crate) window: Window,
    pub(crate) keys: Box<[Expr]>,
    pub(crate) asked: Box<[Asked]>,
    pub(crate) having: Option<Expr>,
}

/// A total that a column or HAVING says.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) row: &'static Aggregate,
    /// None counts messages.
    pub(crate) of: Option<Expr>,
    pub(crate) part: f64,
}

/// What a message brings into a window.
#[derive(Clone, Debug, PartialEq)]
pub struct Offer {
    /// The values of GROUP BY, as JSON.
    pub key: Box<str>,
    /// One for each total.
    pub values: Vec<Value<'static>>,
}

/// When something happens to a window: by the clock that its length is measured by, which nobody
/// changes, and what the time of day is beside that.
#[derive(Clone, Copy, Debug)]
pub struct WindowTime {
    pub now: u64,
    pub time_of_day_offset_ms: i64,
}

impl WindowTime {
    fn of_day(self, time: u64) -> i64 {
        (time as i64).saturating_add(self.time_of_day_offset_ms)
    }
}

/// What is known of a key.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Gathering {
    /// Parts of the window that come and go as wholes.
    panes: VecDeque<Pane>,
    /// When the next hopping window ends.
    next: u64,
    values: usize,
    bytes: usize,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Pane {
    from: u64,
    last: u64,
    messages: u64,
    totals: Vec<Total>,
    values: usize,
    bytes: usize,
}

/// Of one key: of what `collect` and the like keep, and messages in a sliding window.
pub const VALUES_MAX: usize = 1000;
/// Of a key's text.
const KEY_BYTES_MAX: usize = 1024;
/// What a gathering takes beside its values.
const GROUP_BYTES: usize = 256;
/// The same of a pane, and of each total in it.
const PANE_BYTES: usize = 64;
const TOTAL_BYTES: usize = 64;

impl Plan {
    /// The window of a rule that has one.
    pub fn window(&self) -> Option<Window> {
        self.grouping.as_ref().map(|grouping| grouping.window)
    }

    /// What a message brings into the window of its key; nothing where WHERE says so.
    pub fn offer(&self, seen: &Seen<'_>, budget: &mut Budget) -> Result<Option<Offer>, Failed> {
        let Some(grouping) = &self.grouping else { return Ok(None) };
        let mut frame = Frame::new(self, *seen, budget, Vec::new());
        if !frame.holds(self.condition.as_ref())? {
            return Ok(None);
        }
        let mut key = String::new();
        for (at, expr) in grouping.keys.iter().enumerate() {
            key.push_str(if at == 0 { "" } else { "," });
            frame.eval(expr)?.write_json(&mut key);
            frame.budget.scan(key.len())?;
            if key.len() > KEY_BYTES_MAX {
                return Err(Failed::Bytes);
            }
        }
        let mut values = Vec::with_capacity(grouping.asked.len());
        for Asked { row, of, .. } in &grouping.asked {
            let value = match of {
                Some(expr) => frame.eval(expr)?,
                None => Value::Bool(true),
            };
            row.kind.check(row.name, &value)?;
            frame.budget.take(value.size().1 as usize)?;
            values.push(value.into_owned());
        }
        Ok(Some(Offer { key: key.into(), values }))
    }
}

impl Gathering {
    /// One message more. Says whether the window is to be closed at once. What is due has to be
    /// closed before.
    pub fn add(
        &mut self,
        plan: &Plan,
        values: Vec<Value<'static>>,
        now: u64,
        budget: &mut Budget,
    ) -> Result<bool, Failed> {
        let Some(grouping) = &plan.grouping else { return Ok(false) };
        let is_sliding = matches!(grouping.window, Window::Sliding { .. });
        if let Window::Sliding { long } = grouping.window {
            self.forget_before((now + 1).saturating_sub(long));
        }
        let lists = grouping.asked.iter().filter(|asked| asked.row.kind.lists()).count();
        if self.values + usize::from(is_sliding) + lists > VALUES_MAX {
            return Err(Failed::Values);
        }
        let from = grouping.window.pane_of(now);
        let goes_on = self.panes.back().filter(|pane| match grouping.window {
            Window::Sliding { .. } => false,
            Window::Count { .. } | Window::Session { .. } => true,
            _ => pane.from == from,
        });
        let fresh = goes_on.is_none().then(|| grouping.pane(from));
        let mut coming = Vec::with_capacity(values.len());
        let totals = goes_on.or(fresh.as_ref()).map(|pane| &*pane.totals).unwrap_or_default();
        for (total, value) in totals.iter().zip(values) {
            coming.push(total.weigh(value, budget)?);
        }
        if let Some(pane) = fresh {
            if let Window::Hopping { hop, .. } = grouping.window
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
        for ((total, value), asked) in pane.totals.iter_mut().zip(coming).zip(&grouping.asked) {
            let before = total.last_bytes();
            let values = total.add(asked.row.kind, value);
            let gone = if values == 0 { before } else { 0 };
            let bytes = total.last_bytes();
            (pane.values, self.values) = (pane.values + values, self.values + values);
            pane.bytes = pane.bytes + bytes - gone;
            self.bytes = self.bytes + bytes - gone;
        }
        Ok(match grouping.window {
            Window::Count { messages } => pane.messages >= messages,
            Window::Sliding { .. } => true,
            _ => false,
        })
    }

    /// When it is to be closed, if time alone closes it.
    pub fn due(&self, plan: &Plan) -> Option<u64> {
        let (first, last) = (self.panes.front()?, self.panes.back()?);
        match plan.window()? {
            Window::Count { .. } => None,
            Window::Hopping { .. } => Some(self.next),
            Window::Session { long, gap } => {
                Some(first.from.saturating_add(long).min(last.last.saturating_add(gap)))
            }
            Window::Sliding { long } => Some(last.last.saturating_add(long)),
            Window::Tumbling { long } => Some(first.from.saturating_add(long)),
        }
    }

    /// The same where `now` is the time of day.
    pub fn close<'a>(
        &mut self,
        plan: &'a Plan,
        now: u64,
        budget: &mut Budget,
        out: &mut Vec<Map<'a>>,
    ) -> Result<(), Failed> {
        self.close_at(plan, WindowTime { now, time_of_day_offset_ms: 0 }, budget, out)
    }

    /// The window is over: appends its row, if HAVING holds, and keeps what the next needs.
    pub fn close_at<'a>(
        &mut self,
        plan: &'a Plan,
        time: WindowTime,
        budget: &mut Budget,
        out: &mut Vec<Map<'a>>,
    ) -> Result<(), Failed> {
        let now = time.now;
        let Some(window) = plan.window() else { return Ok(()) };
        let Some(due) = self.due(plan).or(Some(now)) else { return Ok(()) };
        let first = self.panes.front().map_or(now, |pane| pane.from);
        let (start, end) = match window {
            Window::Count { .. } => (first, now),
            Window::Hopping { long, .. } => (self.next.saturating_sub(long), self.next),
            Window::Session { .. } => (first, due.min(now)),
            Window::Sliding { long } => ((now + 1).saturating_sub(long), now),
            Window::Tumbling { long } => (first, first.saturating_add(long)),
        };
        let is_stale = matches!(window, Window::Sliding { .. }) && now >= due;
        let made = match is_stale {
            true => Ok(()),
            false => self.make_row(plan, (start, end), time, budget, out),
        };
        match window {
            Window::Hopping { long, hop } => {
                self.next = self.next.saturating_add(hop);
                self.forget_before(self.next.saturating_sub(long));
            }
            Window::Sliding { .. } if !is_stale => {}
            _ => *self = Gathering::default(),
        }
        made
    }

    fn make_row<'a>(
        &self,
        plan: &'a Plan,
        (start, end): (u64, u64),
        time: WindowTime,
        budget: &mut Budget,
        out: &mut Vec<Map<'a>>,
    ) -> Result<(), Failed> {
        let Some(grouping) = &plan.grouping else { return Ok(()) };
        let mut totals: Vec<Total> =
            grouping.asked.iter().map(|asked| asked.row.kind.total()).collect();
        for pane in self.panes.iter().filter(|pane| (start..=end).contains(&pane.from)) {
            budget.step(totals.len() as u64)?;
            for ((total, more), asked) in totals.iter_mut().zip(&pane.totals).zip(&grouping.asked) {
                total.merge(asked.row.kind, more, budget)?;
            }
        }
        let mut values = Vec::with_capacity(totals.len());
        for (total, asked) in totals.into_iter().zip(&grouping.asked) {
            values.push(match asked.row.kind {
                Kind::Start => Value::Int(time.of_day(start)),
                Kind::End => Value::Int(time.of_day(end)),
                kind => total.finish(kind, asked.part, budget)?,
            });
        }
        let seen = Seen {
            has_message: false,
            now_ms: time.of_day(time.now),
            timestamp_ms: time.of_day(time.now),
            ..Seen::default()
        };
        Frame::new(plan, seen, budget, values).window_row(plan, grouping.having.as_ref(), out)
    }

    fn forget_before(&mut self, time: u64) {
        while self.panes.front().is_some_and(|pane| pane.from < time) {
            if let Some(pane) = self.panes.pop_front() {
                self.values -= pane.values;
                self.bytes -= pane.bytes;
            }
        }
    }

    /// Whether there is nothing left of it to keep.
    pub fn is_empty(&self) -> bool {
        self.panes.is_empty()
    }

    /// Roughly the memory that it takes.
    pub fn bytes(&self) -> usize {
        GROUP_BYTES + self.bytes
    }
}

impl Grouping {
    /// One that has seen nothing.
    fn pane(&self, from: u64) -> Pane {
        let totals = self.asked.iter().map(|asked| asked.row.kind.total()).collect();
        let bytes = PANE_BYTES + TOTAL_BYTES * self.asked.len();
        let values = usize::from(matches!(self.window, Window::Sliding { .. }));
        Pane { from, totals, bytes, values, ..Pane::default() }
    }
}

impl Window {
    /// Where the part begins that a message of this time belongs to.
    fn pane_of(self, now: u64) -> u64 {
        match self {
            Window::Count { .. } | Window::Session { .. } | Window::Sliding { .. } => now,
            Window::Hopping { long, hop } => now - now % divisor(long, hop),
            Window::Tumbling { long } => now - now % long,
        }
    }
}

/// The greatest that both have.
pub(crate) fn divisor(one: u64, other: u64) -> u64 {
    if other == 0 { one.max(1) } else { divisor(other, one % other) }
}
