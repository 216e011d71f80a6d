//! Totals of a window: a table of the functions, and a running total for each call in a rule. Two
//! totals of one kind, the earlier first, merge into one.

use crate::budget::{Budget, RunError};
use crate::value::{Number, Value};

/// A function of a window with its documentation, a row of [`AGGREGATES`].
#[derive(Debug)]
pub struct AggregateFunction {
    pub name: &'static str,
    /// The arguments in the notation of the documentation.
    pub parameters: &'static str,
    pub description: &'static str,
    /// An expression and its result as JSON, for `payload.v` of 3, 1, 2, 2 and null; every example
    /// is run as a test.
    pub example: (&'static str, &'static str),
    pub(crate) kind: AggregateKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AggregateKind {
    Avg,
    Collect,
    Count,
    CountDistinct,
    Distinct,
    End,
    First,
    Last,
    Max,
    Min,
    PercentileCont,
    PercentileDisc,
    Start,
    Stddev,
    Sum,
}

const fn row(
    name: &'static str,
    takes: &'static str,
    says: &'static str,
    example: (&'static str, &'static str),
    kind: AggregateKind,
) -> AggregateFunction {
    AggregateFunction { name, parameters: takes, description: says, example, kind }
}

pub const AGGREGATES: &[AggregateFunction] = &[
    row("avg", "number", "The mean, null of none.", ("avg(payload.v)", "2.0"), AggregateKind::Avg),
    row(
        "collect",
        "value",
        "All values as an array, null too.",
        ("collect(payload.v)", "[3,1,2,2,null]"),
        AggregateKind::Collect,
    ),
    row(
        "count",
        "* or value",
        "How many messages, or values that are not null.",
        ("[count(*), count(payload.v)]", "[5,4]"),
        AggregateKind::Count,
    ),
    row(
        "count_distinct",
        "value",
        "How many different values.",
        ("count_distinct(payload.v)", "3"),
        AggregateKind::CountDistinct,
    ),
    row(
        "distinct",
        "value",
        "The different values as an array, in the order in which they came.",
        ("distinct(payload.v)", "[3,1,2]"),
        AggregateKind::Distinct,
    ),
    row(
        "first_value",
        "value",
        "The first that is not null.",
        ("first_value(payload.v)", "3"),
        AggregateKind::First,
    ),
    row(
        "last_value",
        "value",
        "The last that is not null.",
        ("last_value(payload.v)", "2"),
        AggregateKind::Last,
    ),
    row("max", "value", "The largest number or text.", ("max(payload.v)", "3"), AggregateKind::Max),
    row(
        "min",
        "value",
        "The smallest number or text.",
        ("min(payload.v)", "1"),
        AggregateKind::Min,
    ),
    row(
        "percentile_cont",
        "number, part",
        "Below which such a part of the numbers is, between two of them if need be.",
        ("percentile_cont(payload.v, 0.75)", "2.25"),
        AggregateKind::PercentileCont,
    ),
    row(
        "percentile_disc",
        "number, part",
        "The same, and always one of the numbers.",
        ("percentile_disc(payload.v, 0.75)", "2"),
        AggregateKind::PercentileDisc,
    ),
    row(
        "stddev",
        "number",
        "The standard deviation of the numbers as they are.",
        ("round(stddev(payload.v) * 1000)", "707"),
        AggregateKind::Stddev,
    ),
    row("sum", "number", "The sum, 0 of none.", ("sum(payload.v)", "8"), AggregateKind::Sum),
    row(
        "window_end",
        "",
        "When the window ended, in ms since 1970.",
        ("window_end() >= window_start()", "true"),
        AggregateKind::End,
    ),
    row(
        "window_start",
        "",
        "When it began; where it has no beginning of its own, its first message.",
        ("is_int(window_start())", "true"),
        AggregateKind::Start,
    ),
];

pub(crate) fn by_name(name: &str) -> Option<&'static AggregateFunction> {
    AGGREGATES.iter().find(|row| row.name.eq_ignore_ascii_case(name))
}

impl AggregateKind {
    pub(crate) fn arity(self) -> usize {
        match self {
            AggregateKind::End | AggregateKind::Start => 0,
            AggregateKind::PercentileCont | AggregateKind::PercentileDisc => 2,
            _ => 1,
        }
    }

    fn wants_numbers(self) -> bool {
        use AggregateKind::{Avg, PercentileCont, PercentileDisc, Stddev, Sum};
        matches!(self, Avg | PercentileCont | PercentileDisc | Stddev | Sum)
    }

    /// Whether the total keeps its values, which count against `VALUES_MAX`.
    pub(super) fn keeps_values(self) -> bool {
        use AggregateKind::{Collect, CountDistinct, Distinct, PercentileCont, PercentileDisc};
        matches!(self, Collect | CountDistinct | Distinct | PercentileCont | PercentileDisc)
    }

    /// Checks that a message's value can be added; otherwise the rule fails for the message.
    pub(crate) fn check(self, name: &'static str, value: &Value<'_>) -> Result<(), RunError> {
        let fits = match value {
            Value::Null | Value::JsonNull | Value::Int(_) | Value::Float(_) => true,
            _ => !self.wants_numbers(),
        };
        match fits {
            true => Ok(()),
            false => {
                let (at, wants, got) = (1, "a number", value.kind());
                Err(RunError::Argument { function: name, at, wants, got })
            }
        }
    }

    /// Creates an empty total.
    pub(crate) fn total(self) -> RunningTotal {
        match self {
            AggregateKind::CountDistinct | AggregateKind::Distinct => {
                RunningTotal::Distinct(DistinctValues::default())
            }
            kind if kind.keeps_values() => RunningTotal::List(Vec::new()),
            AggregateKind::Avg
            | AggregateKind::Count
            | AggregateKind::Stddev
            | AggregateKind::Sum => RunningTotal::Sum(RunningSum::default()),
            _ => RunningTotal::One(Value::Null),
        }
    }
}

/// State of an [`AggregateKind`] over the messages so far.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum RunningTotal {
    Distinct(DistinctValues),
    List(Vec<Value<'static>>),
    One(Value<'static>),
    Sum(RunningSum),
}

/// Values of which no two are equal by [`Value::equals`].
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct DistinctValues {
    values: Vec<Value<'static>>,
    /// Hashes of the values: only values with equal hashes are compared.
    hashes: Vec<u64>,
}

/// A value charged by [`RunningTotal::charge_value`], ready to be added.
pub(crate) struct WeighedValue {
    value: Value<'static>,
    place: ValuePlacement,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ValuePlacement {
    Unchecked,
    /// An equal value is already in the total.
    Duplicate,
    New {
        hash: u64,
    },
}

impl DistinctValues {
    /// Restores the distinct values from a record, and computes their hashes.
    pub(super) fn of(values: Vec<Value<'static>>) -> Option<DistinctValues> {
        let mut plenty = Budget { steps: u64::MAX, bytes: u64::MAX, rows: 0 };
        let hashes = values.iter().map(|value| value.hash(&mut plenty).ok());
        Some(DistinctValues { hashes: hashes.collect::<Option<_>>()?, values })
    }

    pub(super) fn values(&self) -> &[Value<'static>] {
        &self.values
    }

    fn find(
        &self,
        value: &Value<'_>,
        hash: u64,
        budget: &mut Budget,
    ) -> Result<ValuePlacement, RunError> {
        budget.scan(self.hashes.len())?;
        for (known, _) in self.values.iter().zip(&self.hashes).filter(|(_, own)| **own == hash) {
            if known.equals(value, budget)? {
                return Ok(ValuePlacement::Duplicate);
            }
        }
        Ok(ValuePlacement::New { hash })
    }

    fn push(&mut self, value: Value<'static>, hash: u64) {
        self.values.push(value);
        self.hashes.push(hash);
    }

    fn merge(&mut self, later: &DistinctValues, budget: &mut Budget) -> Result<(), RunError> {
        for (value, hash) in later.values.iter().zip(&later.hashes) {
            if self.find(value, *hash, budget)? == ValuePlacement::Duplicate {
                continue;
            }
            let (steps, bytes) = value.size();
            budget.step(steps)?;
            budget.take(bytes as usize)?;
            self.push(value.clone(), *hash);
        }
        Ok(())
    }
}

/// Sum, mean and variance of numbers. Integers are summed in `ints`, so integer sums stay exact.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct RunningSum {
    pub(crate) ints: i128,
    pub(crate) floats: f64,
    /// Sum of the squared distances from the mean, updated with every number: a sum of the squares
    /// themselves would lose the differences of large numbers (Welford, Technometrics 4:3, 1962).
    pub(crate) deviations: f64,
    pub(crate) count: u64,
    pub(crate) has_floats: bool,
}

impl RunningSum {
    fn add(&mut self, value: &Value<'_>) {
        let before = self.mean();
        self.count += 1;
        match value {
            Value::Int(of) => self.ints = self.ints.saturating_add(i128::from(*of)),
            Value::Float(of) => {
                self.floats += of;
                self.has_floats = true;
            }
            _ => {}
        }
        let of = value.number().map_or(0.0, Number::float);
        self.deviations += (of - before) * (of - self.mean());
    }

    fn float(&self) -> f64 {
        self.ints as f64 + self.floats
    }

    fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.float() / self.count as f64 }
    }

    fn merge(&mut self, other: RunningSum) {
        let (apart, both) = (other.mean() - self.mean(), (self.count + other.count).max(1));
        let between = apart * apart * (self.count as f64) * (other.count as f64) / both as f64;
        self.deviations += other.deviations + between;
        self.ints = self.ints.saturating_add(other.ints);
        self.floats += other.floats;
        self.count += other.count;
        self.has_floats |= other.has_floats;
    }
}

impl RunningTotal {
    /// Charges for a value to be added. A total is only changed after all values of the message are
    /// charged.
    pub(crate) fn charge_value(
        &self,
        value: Value<'static>,
        budget: &mut Budget,
    ) -> Result<WeighedValue, RunError> {
        let place = match self {
            RunningTotal::Distinct(known) if !value.is_null() => {
                let hash = value.hash(budget)?;
                known.find(&value, hash, budget)?
            }
            _ => {
                budget.scan(value.as_bytes().map_or(0, <[u8]>::len))?;
                ValuePlacement::Unchecked
            }
        };
        Ok(WeighedValue { value, place })
    }

    /// Adds a value. Returns how many more values the total keeps than before.
    pub(crate) fn add(&mut self, kind: AggregateKind, coming: WeighedValue) -> usize {
        let WeighedValue { value, place } = coming;
        match self {
            _ if value.is_null() && kind != AggregateKind::Collect => 0,
            RunningTotal::Distinct(known) => match place {
                ValuePlacement::New { hash } => {
                    known.push(value, hash);
                    1
                }
                ValuePlacement::Unchecked | ValuePlacement::Duplicate => 0,
            },
            RunningTotal::Sum(sum) => {
                sum.add(&value);
                0
            }
            RunningTotal::List(list) => {
                list.push(value);
                1
            }
            RunningTotal::One(known) => {
                if known.is_null() || replaces(kind, &value, known) {
                    *known = value;
                }
                0
            }
        }
    }

    /// Returns the memory of the last value, the only one which [`RunningTotal::add`] may replace.
    pub(crate) fn last_bytes(&self) -> usize {
        let last = match self {
            RunningTotal::Distinct(known) => known.values.last(),
            RunningTotal::List(list) => list.last(),
            RunningTotal::One(value) => Some(value).filter(|value| !value.is_null()),
            RunningTotal::Sum(_) => None,
        };
        last.map_or(0, |value| value.size().1 as usize)
    }

    /// Merges a later total of the same kind.
    pub(crate) fn merge(
        &mut self,
        kind: AggregateKind,
        later: &RunningTotal,
        budget: &mut Budget,
    ) -> Result<(), RunError> {
        match (self, later) {
            (RunningTotal::Sum(sum), RunningTotal::Sum(more)) => sum.merge(*more),
            (RunningTotal::Distinct(known), RunningTotal::Distinct(more)) => {
                known.merge(more, budget)?
            }
            (RunningTotal::List(list), RunningTotal::List(more)) => {
                for value in more {
                    let (steps, bytes) = value.size();
                    budget.step(steps)?;
                    budget.take(bytes as usize)?;
                    list.push(value.clone());
                }
            }
            (RunningTotal::One(known), RunningTotal::One(value))
                if !value.is_null() && (known.is_null() || replaces(kind, value, known)) =>
            {
                budget.take(value.size().1 as usize)?;
                *known = value.clone();
            }
            _ => {}
        }
        Ok(())
    }

    /// Returns the result. `part` is the fraction of a percentile.
    pub(crate) fn finish(
        self,
        kind: AggregateKind,
        part: f64,
        budget: &mut Budget,
    ) -> Result<Value<'static>, RunError> {
        match (self, kind) {
            (RunningTotal::Sum(sum), AggregateKind::Count) => Ok(Value::Int(sum.count as i64)),
            (
                RunningTotal::Sum(RunningSum { count: 0, .. }),
                AggregateKind::Avg | AggregateKind::Stddev,
            ) => Ok(Value::Null),
            (RunningTotal::Sum(sum), AggregateKind::Avg) => {
                Ok(Value::Float(sum.float() / sum.count as f64))
            }
            (RunningTotal::Sum(sum), AggregateKind::Stddev) => {
                Ok(Value::Float((sum.deviations / sum.count as f64).max(0.0).sqrt()))
            }
            (RunningTotal::Sum(sum), _) if sum.has_floats => Ok(Value::Float(sum.float())),
            (RunningTotal::Sum(sum), _) => i64::try_from(sum.ints)
                .map(Value::Int)
                .map_err(|_| RunError::Arithmetic { operator: "sum", why: "overflow" }),
            (RunningTotal::Distinct(known), AggregateKind::CountDistinct) => {
                Ok(Value::Int(known.values.len() as i64))
            }
            (RunningTotal::Distinct(known), _) => Ok(Value::Array(known.values)),
            (
                RunningTotal::List(list),
                AggregateKind::PercentileCont | AggregateKind::PercentileDisc,
            ) => percentile(list, kind, part, budget),
            (RunningTotal::List(list), _) => Ok(Value::Array(list)),
            (RunningTotal::One(value), _) => Ok(value),
        }
    }
}

/// Whether a later value replaces the known value.
fn replaces(kind: AggregateKind, value: &Value<'_>, known: &Value<'_>) -> bool {
    match kind {
        AggregateKind::First => false,
        AggregateKind::Max => value.order(known).is_some_and(|order| order.is_gt()),
        AggregateKind::Min => value.order(known).is_some_and(|order| order.is_lt()),
        _ => true,
    }
}

fn percentile(
    list: Vec<Value<'static>>,
    kind: AggregateKind,
    part: f64,
    budget: &mut Budget,
) -> Result<Value<'static>, RunError> {
    let count = list.len();
    budget.step(count as u64 * u64::from(count.max(2).ilog2()))?;
    let float = |value: &Value<'_>| value.number().map_or(0.0, Number::float);
    let mut sorted = list;
    sorted.sort_by(|one, other| float(one).total_cmp(&float(other)));
    let Some(last) = count.checked_sub(1) else { return Ok(Value::Null) };
    if kind == AggregateKind::PercentileDisc {
        let rank = (part * count as f64).ceil() as usize;
        return Ok(sorted.swap_remove(rank.saturating_sub(1).min(last)));
    }
    let at = part * last as f64;
    let (below, above) = (at.floor() as usize, at.ceil() as usize);
    let (low, high) = (float(&sorted[below.min(last)]), float(&sorted[above.min(last)]));
    Ok(Value::Float(low + (high - low) * at.fract()))
}
