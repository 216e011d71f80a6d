//! The rules of a shard with their state.

use crate::broker_event::BURST_LINES_PER_S;
use crate::log_rate_limiter::LogRateLimiter;
use crate::options::rule::Rule;
use crate::rules::windows::RuleWindows;
use crate::rules::{EventCollector, RuleIndex};
use std::sync::Arc;

/// The rules of a shard: their index, windows, and events for them.
#[derive(Debug)]
pub(crate) struct RuleEngine {
    pub(crate) rule_index: RuleIndex,
    pub(crate) windows: RuleWindows,
    pub(crate) event_collector: EventCollector,
    /// Limits log events of rules.
    pub(crate) rule_log_limiter: LogRateLimiter,
}

impl RuleEngine {
    pub(crate) fn new(seed: u64, rules: Arc<[Rule]>) -> RuleEngine {
        RuleEngine {
            rule_index: RuleIndex::new(seed, rules),
            windows: RuleWindows::new(seed),
            event_collector: EventCollector::default(),
            rule_log_limiter: LogRateLimiter::new(BURST_LINES_PER_S),
        }
    }
}
