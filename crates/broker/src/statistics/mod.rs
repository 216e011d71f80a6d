//! Statistics: counters, `$SYS` topics, events for the log and traces of clients.

pub mod broker_event;
pub mod log_rate_limiter;
pub mod sys;
pub(crate) mod trace;
