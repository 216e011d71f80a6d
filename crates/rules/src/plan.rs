//! A parsed rule: its sources, its condition and its columns. A plan is immutable; names of fields
//! and functions are resolved and patterns compiled.

use crate::events::event_index;
use crate::functions::{RegexMatcher, RuleFunction};
use crate::operators::{LikePattern, Operator};
use crate::rule_input::RuleField;
use crate::value::Value;
use crate::windows::WindowPlan;

/// A rule, ready for [`RulePlan::run`]. `Send + Sync`: all shards share a plan behind an `Arc`.
#[derive(Debug)]
pub struct RulePlan {
    pub(crate) filters: Vec<Box<str>>,
    /// Value of `metadata.rule_id`.
    pub(crate) rule_id: Box<str>,
    pub(crate) shape: PlanShape,
    pub(crate) condition: Option<Expr>,
    /// The condition refers to an alias, so the columns have to be evaluated first.
    pub(crate) condition_uses_alias: bool,
    pub(crate) reads: PlanReads,
    /// Window, keys and totals of a rule with GROUP BY.
    pub(crate) window_plan: Option<Box<WindowPlan>>,
}

/// Parts of a message read by a plan; the caller need not supply the rest of [`crate::RuleInput`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlanReads {
    pub payload: bool,
    pub properties: bool,
    /// Whether the plan reads fields of the publisher: user name, address, message id or node.
    pub publisher: bool,
    /// Whether the plan reads `now_ms`, for functions of the time of day.
    pub now: bool,
    pub chance: bool,
}

#[derive(Debug)]
pub(crate) enum PlanShape {
    Select(Box<[PlanColumn]>),
    Foreach {
        /// Values before the array, each with an alias.
        before: Box<[PlanColumn]>,
        array: Expr,
        /// Name of an element in DO and INCASE.
        item: Box<str>,
        /// Columns of DO. `None` selects all fields of the message, and the element.
        columns: Option<Box<[PlanColumn]>>,
        incase: Option<Expr>,
    },
}

#[derive(Debug)]
pub(crate) enum PlanColumn {
    /// `*`: all fields.
    All,
    /// An expression and its place in the row: several names nest maps.
    One { expr: Expr, under: Box<[AliasStep]> },
}

/// A step of an alias such as `payload.list[2].x`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum AliasStep {
    /// Position counted from 1, or backwards from -1.
    At(i64),
    /// A new element before the first, written `[0]`.
    Head,
    Key(Box<str>),
    /// A new element behind the last, written `[-0]`.
    Tail,
}

#[derive(Debug)]
pub(crate) enum Expr {
    Array(Box<[Expr]>),
    Between {
        of: Box<Expr>,
        low: Box<Expr>,
        high: Box<Expr>,
        negated: bool,
    },
    Call {
        function: &'static RuleFunction,
        arguments: Box<[Expr]>,
        regex: Option<Box<RegexMatcher>>,
    },
    Case {
        of: Option<Box<Expr>>,
        arms: Box<[(Expr, Expr)]>,
        otherwise: Option<Box<Expr>>,
    },
    /// Operators of one precedence from left to right, so a long chain does not nest deeply.
    Chain {
        first: Box<Expr>,
        rest: Box<[(Operator, Expr)]>,
    },
    Const(Value<'static>),
    In {
        of: Box<Expr>,
        list: Box<[Expr]>,
        negated: bool,
    },
    IsNull {
        of: Box<Expr>,
        negated: bool,
    },
    Like {
        of: Box<Expr>,
        pattern: LikePattern,
        negated: bool,
    },
    Negative(Box<Expr>),
    Not(Box<Expr>),
    Path {
        root: PathRoot,
        steps: Box<[PathStep]>,
    },
}

/// Start of a path.
#[derive(Debug)]
pub(crate) enum PathRoot {
    /// An earlier column of this row, or a value before the array of FOREACH.
    Alias(Box<str>),
    /// The value of an expression, such as `split(topic, '/')[1]`.
    Expr(Box<Expr>),
    Field(RuleField),
    /// The current element of FOREACH.
    Item,
    /// A field of an event other than the fields of messages, by name.
    EventField(Box<str>),
    /// A total of a window, as an index into [`WindowPlan`]'s aggregates.
    Total(usize),
}

#[derive(Debug)]
pub(crate) enum PathStep {
    /// Position counted from 1, or backwards from -1.
    At(i64),
    /// Index or key, evaluated in each run.
    Computed(Expr),
    Key(Box<str>),
    Range(i64, i64),
}

impl RulePlan {
    /// Sets the rule's name, returned by `metadata.rule_id`.
    #[must_use]
    pub fn with_rule_id(self, name: &str) -> RulePlan {
        RulePlan { rule_id: name.into(), ..self }
    }

    /// Returns the topic filters of FROM, in their order. All are valid; duplicates stay.
    pub fn topics(&self) -> impl Iterator<Item = &str> {
        self.filters().filter(|filter| !filter.starts_with("$events/"))
    }

    /// Returns the topic filters and events of FROM, events as `$events/` and their canonical
    /// names.
    pub fn filters(&self) -> impl Iterator<Item = &str> {
        self.filters.iter().map(|filter| &**filter)
    }

    /// Returns the events of FROM as indexes of [`crate::EVENTS`].
    pub fn events(&self) -> impl Iterator<Item = usize> {
        self.filters().filter_map(|filter| event_index(filter.strip_prefix("$events/")?))
    }

    pub fn reads(&self) -> PlanReads {
        self.reads
    }

    /// Whether a message may become more than one row, as `PlanShape::Foreach` allows.
    pub fn is_foreach(&self) -> bool {
        matches!(self.shape, PlanShape::Foreach { .. })
    }
}
