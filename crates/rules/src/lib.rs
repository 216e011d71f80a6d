//! Rules in SQL: text to a [`RulePlan`], and a plan run on a message. A function of its arguments:
//! no I/O, no clock, no thread, no chance of its own.
//!
//! ```
//! use rules::{Budget, RuleInput, RulePlan};
//!
//! let plan = RulePlan::parse(r#"SELECT payload.t AS t FROM "car/+/speed" WHERE payload.t > 20"#)?;
//! let seen = RuleInput { topic: "car/7/speed", payload: br#"{"t": 21}"#, ..RuleInput::default() };
//! let (mut budget, mut rows) = (Budget::default(), Vec::new());
//! plan.run(&seen, &mut budget, &mut rows).expect("21 > 20 can be said");
//! assert_eq!(rows[0].to_string(), r#"{"t":21}"#);
//! # Ok::<(), rules::RuleParseError>(())
//! ```
//!
//! # For whoever runs rules in a broker
//!
//! * **A plan is immutable and `Send + Sync`.** Parse on the control plane, put it into an `Arc`
//!   and hand that to all shards. Parsing takes some ten microseconds and is bounded by the length
//!   of the text (32 KB), so a reload may parse a thousand rules at once.
//! * **Which rules want a message** is the caller's to find out: [`RulePlan::filters`] are checked
//!   topic filters to enter into an index beside those of sessions, so that a rule that does not
//!   match costs nothing. `run` does not look at them again. A rule with two filters that both
//!   match runs once. Names that begin with `$events/` are no filters but events, which
//!   [`RulePlan::events`] tells apart; `RuleInput::event` is the label of one.
//! * **What a plan reads** of a message says [`RulePlan::reads`]: where nothing needs the time, the
//!   publisher or the properties, a shard need not look them up.
//! * **What a run may cost** is its [`Budget`]. It pays for all that it does before it does it, so
//!   steps bound its time, and bytes its memory and all that it appends to the rows. Hand one
//!   budget to all rules of a message, or each its own; rows of a failed run are the caller's to
//!   drop (`rows.truncate`). A failed run leaves nothing else behind; [`RunError::reason`] is a
//!   label for counters.
//! * **Rows borrow** from the plan and the message. Write them out ([`ValueMap::write_json`], or
//!   [`ValueMap::get`] for templates) before the message goes, or keep them by
//!   [`ValueMap::into_owned`].
//! * **Nothing is remembered** between two runs. A rule with a window ([`RulePlan::window`]) is not
//!   run but asked what a message brings into it ([`RulePlan::offer`]); what comes together under a
//!   key is a [`WindowState`], which the caller keeps, bounds in number, closes when it is due, and
//!   may write down.
#![forbid(unsafe_code)]

mod budget;
mod events;
pub mod functions;
pub mod fuzz;

mod equality;
mod evaluation;
mod index;
mod json;
mod operators;
mod plan;
mod row;
mod rule_input;
mod template;
mod text;
mod value;
mod windows;

pub use budget::{Budget, RunError};
pub use events::{EVENTS, EventRow, event_index};
pub use plan::{PlanReads, RulePlan};
pub use rule_input::{FIELDS, RuleField, RuleFieldRow, RuleInput};
pub use template::RowTemplate;
pub use text::{RuleParseError, split};
pub use value::{Value, ValueMap};
pub use windows::{
    AGGREGATES, AggregateRow, VALUES_MAX, WindowInput, WindowSpec, WindowState, WindowTime,
};
