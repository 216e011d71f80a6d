//! What is made of the values that came into a window: a table of rows, and one running total for
//! each that a rule asks for. Two totals of one kind, the earlier first, merge into one.

use crate::budget::{Budget, Failed};
use crate::value::{Number, Value};

/// A function of a window, and all that users read of it.
#[derive(Debug)]
pub struct Aggregate {
    pub name: &'static str,
    /// Its arguments as a person writes them.
    pub takes: &'static str,
    pub says: &'static str,
    /// An expression and its result as JSON, where `payload.v` was 3, 1, 2, 2 and null; a test.
    pub example: (&'static str, &'static str),
    pub(crate) kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
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
    kind: Kind,
) -> Aggregate {
    Aggregate { name, takes, says, example, kind }
}

pub const AGGREGATES: &[Aggregate] = &[
    row("avg", "number", "The mean, null of none.", ("avg(payload.v)", "2.0"), Kind::Avg),
    row(
        "collect",
        "value",
        "All values as an array, null too.",
        ("collect(payload.v)", "[3,1,2,2,null]"),
        Kind::Collect,
    ),
    row(
        "count",
        "* or value",
        "How many messages, or values that are not null.",
        ("[count(*), count(payload.v)]", "[5,4]"),
        Kind::Count,
    ),
    row(
        "count_distinct",
        "value",
        "How many different values.",
        ("count_distinct(payload.v)", "3"),
        Kind::CountDistinct,
    ),
    row(
        "distinct",
        "value",
        "The different values as an array, in the order in which they came.",
        ("distinct(payload.v)", "[3,1,2]"),
        Kind::Distinct,
    ),
    row(
        "first_value",
        "value",
        "The first that is not null.",
        ("first_value(payload.v)", "3"),
        Kind::First,
    ),
    row(
        "last_value",
        "value",
        "The last that is not null.",
        ("last_value(payload.v)", "2"),
        Kind::Last,
    ),
    row("max", "value", "The largest number or text.", ("max(payload.v)", "3"), Kind::Max),
    row("min", "value", "The smallest number or text.", ("min(payload.v)", "1"), Kind::Min),
    row(
        "percentile_cont",
        "number, part",
        "Below which such a part of the numbers is, between two of them if need be.",
        ("percentile_cont(payload.v, 0.75)", "2.25"),
        Kind::PercentileCont,
    ),
    row(
        "percentile_disc",
        "number, part",
        "The same, and always one of the numbers.",
        ("percentile_disc(payload.v, 0.75)", "2"),
        Kind::PercentileDisc,
    ),
    row(
        "stddev",
        "number",
        "The standard deviation of the numbers as they are.",
        ("round(stddev(payload.v) * 1000)", "707"),
        Kind::Stddev,
    ),
    row("sum", "number", "The sum, 0 of none.", ("sum(payload.v)", "8"), Kind::Sum),
    row(
        "window_end",
        "",
        "When the window ended, in ms since 1970.",
        ("window_end() >= window_start()", "true"),
        Kind::End,
    ),
    row(
        "window_start",
        "",
        "When it began; where it has no beginning of its own, its first message.",
        ("is_int(window_start())", "true"),
        Kind::Start,
    ),
];

pub(crate) fn by_name(name: &str) -> Option<&'static Aggregate> {
    AGGREGATES.iter().find(|row| row.name.eq_ignore_ascii_case(name))
}

impl Kind {
    pub(crate) fn arity(self) -> usize {
        match self {
            Kind::End | Kind::Start => 0,
            Kind::PercentileCont | Kind::PercentileDisc => 2,
            _ => 1,
        }
    }

    fn wants_numbers(self) -> bool {
        use Kind::{Avg, PercentileCont, PercentileDisc, Stddev, Sum};
        matches!(self, Avg | PercentileCont | PercentileDisc | Stddev | Sum)
    }

    /// Whether it has all of its values still.
    pub(super) fn lists(self) -> bool {
        use Kind::{Collect, CountDistinct, Distinct, PercentileCont, PercentileDisc};
        matches!(self, Collect | CountDistinct | Distinct | PercentileCont | PercentileDisc)
    }

    /// What a message may add: else the rule fails for it.
    pub(crate) fn check(self, name: &'static str, value: &Value<'_>) -> Result<(), Failed> {
        let fits = match value {
            Value::Null | Value::JsonNull | Value::Int(_) | Value::Float(_) => true,
            _ => !self.wants_numbers(),
        };
        match fits {
            true => Ok(()),
            false => {
                let (at, wants, got) = (1, "a number", value.kind());
                Err(Failed::Argument { function: name, at, wants, got })
            }
        }
    }

    /// A total that has seen nothing.
    pub(crate) fn total(self) -> Total {
        match self {
            Kind::CountDistinct | Kind::Distinct => Total::Distinct(Distinct::default()),
            kind if kind.lists() => Total::List(Vec::new()),
            Kind::Avg | Kind::Count | Kind::Stddev | Kind::Sum => Total::Sum(Sum::default()),
            _ => Total::One(Value::Null),
        }
    }
}

/// What is known of the values so far.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Total {
    Distinct(Distinct),
    List(Vec<Value<'static>>),
    One(Value<'static>),
    Sum(Sum),
}

/// Values of which none is equal to another.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Distinct {
    values: Vec<Value<'static>>,
    /// One for each: only values whose hashes are the same are compared.
    hashes: Vec<u64>,
}

/// A value on its way into a total.
pub(crate) struct Coming {
    value: Value<'static>,
    place: Place,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Any,
    /// Its equal is there.
    Known,
    New {
        hash: u64,
    },
}

impl Distinct {
    /// Of a record.
    pub(super) fn of(values: Vec<Value<'static>>) -> Option<Distinct> {
        let mut plenty = Budget { steps: u64::MAX, bytes: u64::MAX, rows: 0 };
        let hashes = values.iter().map(|value| value.hash(&mut plenty).ok());
        Some(Distinct { hashes: hashes.collect::<Option<_>>()?, values })
    }

    pub(super) fn values(&self) -> &[Value<'static>] {
        &self.values
    }

    fn find(&self, value: &Value<'_>, hash: u64, budget: &mut Budget) -> Result<Place, Failed> {
        budget.scan(self.hashes.len())?;
        for (known, _) in self.values.iter().zip(&self.hashes).filter(|(_, own)| **own == hash) {
            if known.equals(value, budget)? {
                return Ok(Place::Known);
            }
        }
        Ok(Place::New { hash })
    }

    fn push(&mut self, value: Value<'static>, hash: u64) {
        self.values.push(value);
        self.hashes.push(hash);
    }

    fn merge(&mut self, later: &Distinct, budget: &mut Budget) -> Result<(), Failed> {
        for (value, hash) in later.values.iter().zip(&later.hashes) {
            if self.find(value, *hash, budget)? == Place::Known {
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

/// Integers are summed apart, so that they stay exact.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Sum {
    pub(crate) ints: i128,
    pub(crate) floats: f64,
    /// Squares of how far each is from the mean, summed: squares of the numbers themselves would
    /// leave nothing of what differs in large ones (Welford, Technometrics 4:3, 1962).
    pub(crate) deviations: f64,
    pub(crate) count: u64,
    pub(crate) has_floats: bool,
}

impl Sum {
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

    fn merge(&mut self, other: Sum) {
        let (apart, both) = (other.mean() - self.mean(), (self.count + other.count).max(1));
        let between = apart * apart * (self.count as f64) * (other.count as f64) / both as f64;
        self.deviations += other.deviations + between;
        self.ints = self.ints.saturating_add(other.ints);
        self.floats += other.floats;
        self.count += other.count;
        self.has_floats |= other.has_floats;
    }
}

impl Total {
    /// Pays for a value that comes into it. Nothing is changed before all values of a message are
    /// paid for.
    pub(crate) fn weigh(
        &self,
        value: Value<'static>,
        budget: &mut Budget,
    ) -> Result<Coming, Failed> {
        let place = match self {
            Total::Distinct(known) if !value.is_null() => {
                let hash = value.hash(budget)?;
                known.find(&value, hash, budget)?
            }
            _ => {
                budget.scan(value.as_bytes().map_or(0, <[u8]>::len))?;
                Place::Any
            }
        };
        Ok(Coming { value, place })
    }

    /// One more value. How many values it keeps beside those before.
    pub(crate) fn add(&mut self, kind: Kind, coming: Coming) -> usize {
        let Coming { value, place } = coming;
        match self {
            _ if value.is_null() && kind != Kind::Collect => 0,
            Total::Distinct(known) => match place {
                Place::New { hash } => {
                    known.push(value, hash);
                    1
                }
                Place::Any | Place::Known => 0,
            },
            Total::Sum(sum) => {
                sum.add(&value);
                0
            }
            Total::List(list) => {
                list.push(value);
                1
            }
            Total::One(known) => {
                if known.is_null() || prevails(kind, &value, known) {
                    *known = value;
                }
                0
            }
        }
    }

    /// What its last value takes, which is all that one more may change.
    pub(crate) fn last_bytes(&self) -> usize {
        let last = match self {
            Total::Distinct(known) => known.values.last(),
            Total::List(list) => list.last(),
            Total::One(value) => Some(value).filter(|value| !value.is_null()),
            Total::Sum(_) => None,
        };
        last.map_or(0, |value| value.size().1 as usize)
    }

    /// What came after it, of the same kind.
    pub(crate) fn merge(
        &mut self,
        kind: Kind,
        later: &Total,
        budget: &mut Budget,
    ) -> Result<(), Failed> {
        match (self, later) {
            (Total::Sum(sum), Total::Sum(more)) => sum.merge(*more),
            (Total::Distinct(known), Total::Distinct(more)) => known.merge(more, budget)?,
            (Total::List(list), Total::List(more)) => {
                for value in more {
                    let (steps, bytes) = value.size();
                    budget.step(steps)?;
                    budget.take(bytes as usize)?;
                    list.push(value.clone());
                }
            }
            (Total::One(known), Total::One(value))
                if !value.is_null() && (known.is_null() || prevails(kind, value, known)) =>
            {
                budget.take(value.size().1 as usize)?;
                *known = value.clone();
            }
            _ => {}
        }
        Ok(())
    }

    /// What comes out. `part` is a percentile's.
    pub(crate) fn finish(
        self,
        kind: Kind,
        part: f64,
        budget: &mut Budget,
    ) -> Result<Value<'static>, Failed> {
        match (self, kind) {
            (Total::Sum(sum), Kind::Count) => Ok(Value::Int(sum.count as i64)),
            (Total::Sum(Sum { count: 0, .. }), Kind::Avg | Kind::Stddev) => Ok(Value::Null),
            (Total::Sum(sum), Kind::Avg) => Ok(Value::Float(sum.float() / sum.count as f64)),
            (Total::Sum(sum), Kind::Stddev) => {
                Ok(Value::Float((sum.deviations / sum.count as f64).max(0.0).sqrt()))
            }
            (Total::Sum(sum), _) if sum.has_floats => Ok(Value::Float(sum.float())),
            (Total::Sum(sum), _) => i64::try_from(sum.ints)
                .map(Value::Int)
                .map_err(|_| Failed::Arithmetic { operator: "sum", why: "overflow" }),
            (Total::Distinct(known), Kind::CountDistinct) => {
                Ok(Value::Int(known.values.len() as i64))
            }
            (Total::Distinct(known), _) => Ok(Value::Array(known.values)),
            (Total::List(list), Kind::PercentileCont | Kind::PercentileDisc) => {
                percentile(list, kind, part, budget)
            }
            (Total::List(list), _) => Ok(Value::Array(list)),
            (Total::One(value), _) => Ok(value),
        }
    }
}

/// Whether a value that comes later takes the place of the one that is known.
fn prevails(kind: Kind, value: &Value<'_>, known: &Value<'_>) -> bool {
    match kind {
        Kind::First => false,
        Kind::Max => value.order(known).is_some_and(|order| order.is_gt()),
        Kind::Min => value.order(known).is_some_and(|order| order.is_lt()),
        _ => true,
    }
}

fn percentile(
    list: Vec<Value<'static>>,
    kind: Kind,
    part: f64,
    budget: &mut Budget,
) -> Result<Value<'static>, Failed> {
    let count = list.len();
    budget.step(count as u64 * u64::from(count.max(2).ilog2()))?;
    let float = |value: &Value<'_>| value.number().map_or(0.0, Number::float);
    let mut sorted = list;
    sorted.sort_by(|one, other| float(one).total_cmp(&float(other)));
    let Some(last) = count.checked_sub(1) else { return Ok(Value::Null) };
    if kind == Kind::PercentileDisc {
        let rank = (part * count as f64).ceil() as usize;
        return Ok(sorted.swap_remove(rank.saturating_sub(1).min(last)));
    }
    let at = part * last as f64;
    let (below, above) = (at.floor() as usize, at.ceil() as usize);
    let (low, high) = (float(&sorted[below.min(last)]), float(&sorted[above.min(last)]));
    Ok(Value::Float(low + (high - low) * at.fract()))
}
