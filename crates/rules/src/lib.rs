//! Rules in SQL: parses a text into a [`RulePlan`], and runs a plan on a message. The crate is free
//! of I/O, clocks, threads and random seeds: all of these are arguments.
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
//! # Running rules in a broker
//!
//! * **A plan is immutable and `Send + Sync`.** Parse on the control plane, put the plan into an
//!   `Arc` and share it with all shards. Parsing takes some ten microseconds and is bounded by the
//!   length of the text (32 KB), so a reload may parse a thousand rules at once.
//! * **The caller selects the rules for a message**: [`RulePlan::filters`] are checked topic
//!   filters for an index, like those of sessions, so that a rule that does not match costs
//!   nothing. `run` does not check them again. A rule with two filters that both match runs once.
//!   Names that begin with `$events/` are events and not filters: [`RulePlan::events`] returns
//!   their indexes, and `RuleInput::event` is the label of one.
//! * **[`RulePlan::reads`] tells which parts of a message a plan reads**: where no plan needs the
//!   time, the publisher or the properties, a shard need not look them up.
//! * **A [`Budget`] bounds the cost of a run.** Every operation is charged before it is done, so
//!   steps bound the time, and bytes the memory and the rows. Pass one budget to all rules of a
//!   message, or one to each; the caller has to drop the rows of a failed run (`rows.truncate`). A
//!   failed run has no other effect; [`RunError::reason`] is a label for counters.
//! * **Rows borrow** from the plan and the message. Write them ([`ValueMap::write_json`], or
//!   [`ValueMap::get`] for templates) before the message goes, or keep them by
//!   [`ValueMap::into_owned`].
//! * **A plan keeps no state** between two runs. A rule with a window ([`RulePlan::window`]) is not
//!   run: [`RulePlan::offer`] computes the contribution of a message, and a [`WindowState`] for
//!   each key collects the contributions. The caller keeps the states, bounds their number, closes
//!   them when they are due, and may store them.
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
