//! A rule that has been read: what it looks at, in which order, and what comes out. Immutable;
//! names of fields and functions are resolved and patterns compiled.

use crate::events::event_index;
use crate::functions::{RegexMatcher, RuleFunction};
use crate::operators::{LikePattern, Operator};
use crate::rule_input::RuleField;
use crate::value::Value;
use crate::windows::WindowPlan;

/// A rule, ready to run. `Send + Sync`: all shards share one behind an `Arc`.
#[derive(Debug)]
pub struct RulePlan {
    pub(crate) filters: Vec<Box<str>>,
    /// The name that `metadata.rule_id` tells.
    pub(crate) rule_id: Box<str>,
    pub(crate) shape: PlanShape,
    pub(crate) condition: Option<Expr>,
    /// The condition says an alias, so that columns come first.
    pub(crate) condition_uses_alias: bool,
    pub(crate) reads: PlanReads,
    /// Plan of the window, for a rule with one.
    pub(crate) window_plan: Option<Box<WindowPlan>>,
}

/// Parts of a message that a plan reads, so that the caller need not supply the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlanReads {
    pub payload: bool,
    pub properties: bool,
    /// User name, address, id or node.
    pub publisher: bool,
    /// `now_ms`, for functions that say the time.
    pub now: bool,
    pub chance: bool,
}

#[derive(Debug)]
pub(crate) enum PlanShape {
    Select(Box<[PlanColumn]>),
    Foreach {
        /// Values with names of their own, which come before the array.
        before: Box<[PlanColumn]>,
        array: Expr,
        /// Name of an element in DO and INCASE.
        item: Box<str>,
        /// Without DO a row has the fields of the message, and the element.
        columns: Option<Box<[PlanColumn]>>,
        incase: Option<Expr>,
    },
}

#[derive(Debug)]
pub(crate) enum PlanColumn {
    /// `*`
    All,
    /// An expression and where it stands in the row: more than one name is a map in a map.
    One { expr: Expr, under: Box<[AliasStep]> },
}

/// A part of the place where a column stands: `payload.list[2].x`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum AliasStep {
    /// From 1, or from the end from -1.
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
    /// Operators of one precedence from left to right, so that a long chain is not a deep one.
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

/// First part of a path.
#[derive(Debug)]
pub(crate) enum PathRoot {
    /// A column of this row that stands before it, or a value that stands before FOREACH's array.
    Alias(Box<str>),
    /// The value of an expression: `split(topic, '/')[1]`.
    Expr(Box<Expr>),
    Field(RuleField),
    /// The element of FOREACH.
    Item,
    /// A field of an event.
    EventField(Box<str>),
    /// A total of a window, by its index.
    Total(usize),
}

#[derive(Debug)]
pub(crate) enum PathStep {
    /// From 1, or from the end from -1.
    At(i64),
    /// Index or key, known when it runs.
    Computed(Expr),
    Key(Box<str>),
    Range(i64, i64),
}

impl RulePlan {
    /// Sets the rule's name, which `metadata.rule_id` returns.
    #[must_use]
    pub fn with_rule_id(self, name: &str) -> RulePlan {
        RulePlan { rule_id: name.into(), ..self }
    }

    /// The topic filters of FROM, in their order. All are valid; one may be said twice.
    pub fn topics(&self) -> impl Iterator<Item = &str> {
        self.filters().filter(|filter| !filter.starts_with("$events/"))
    }

    /// Returns the filters of FROM, with events as `$events/` and their names.
    pub fn filters(&self) -> impl Iterator<Item = &str> {
        self.filters.iter().map(|filter| &**filter)
    }

    /// Returns the events of FROM as indexes of the event table.
    pub fn events(&self) -> impl Iterator<Item = usize> {
        self.filters().filter_map(|filter| event_index(filter.strip_prefix("$events/")?))
    }

    pub fn reads(&self) -> PlanReads {
        self.reads
    }

    /// Whether a message may become more than one row.
    pub fn is_foreach(&self) -> bool {
        matches!(self.shape, PlanShape::Foreach { .. })
    }
}
