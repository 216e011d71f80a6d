//! Metrics of rules, published below `$SYS/broker/rule/`.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counters of a rule. Shards add to them concurrently, which costs little compared with a run.
#[derive(Debug, Default)]
pub struct RuleMetrics {
    pub(crate) matched: AtomicU64,
    pub(crate) passed: AtomicU64,
    pub(crate) published: AtomicU64,
    /// Rows sent to links.
    pub(crate) sent: AtomicU64,
    pub(crate) steps: AtomicU64,
    pub(crate) ns: AtomicU64,
    pub(super) failed: [AtomicU64; FAILURES.len()],
}

/// Reasons for the failure of a run or of an action, in the order of `RuleMetrics::failed`.
pub const FAILURES: [&str; 15] = [
    "arithmetic",
    "bytes",
    "events",
    "function",
    "keys",
    "link",
    "loop",
    "memory",
    "property",
    "rows",
    "steps",
    "store",
    "topic",
    "type",
    "values",
];

/// A value below `$SYS/broker/rule/{name}/`.
pub struct RuleMetricRow {
    pub topic: &'static str,
    pub about: &'static str,
    pub value: fn(&RuleMetrics) -> u64,
}

pub const RULE_METRIC_ROWS: &[RuleMetricRow] = &[
    RuleMetricRow {
        topic: "matched",
        about: "messages that its filters match",
        value: |metrics| metrics.matched.load(Relaxed),
    },
    RuleMetricRow {
        topic: "passed",
        about: "those of which there was a row, or that came into a window",
        value: |metrics| metrics.passed.load(Relaxed),
    },
    RuleMetricRow {
        topic: "published",
        about: "messages that it made",
        value: |metrics| metrics.published.load(Relaxed),
    },
    RuleMetricRow {
        topic: "sent",
        about: "rows that a link has in its queue; several links count several times",
        value: |metrics| metrics.sent.load(Relaxed),
    },
    RuleMetricRow {
        topic: "steps",
        about: "steps of its budget that it used, of some ten nanoseconds each",
        value: |metrics| metrics.steps.load(Relaxed),
    },
    RuleMetricRow {
        topic: "time_us",
        about: "microseconds that it took, with what it made; every sixteenth run is timed",
        value: |metrics| metrics.ns.load(Relaxed) / 1000,
    },
];

impl RuleMetrics {
    pub(crate) fn count_failure(&self, reason: &str) {
        self.count_failures(reason, 1);
    }

    pub(crate) fn count_failures(&self, reason: &str, times: u64) {
        if let Some(at) = FAILURES.iter().position(|known| *known == reason) {
            self.failed[at].fetch_add(times, Relaxed);
        }
    }

    /// Topics below `$SYS/broker/rule/{name}/` and their values. Failures appear once they are not
    /// 0.
    pub(crate) fn values(&self) -> impl Iterator<Item = (String, u64)> {
        let rows = RULE_METRIC_ROWS.iter().map(|row| (row.topic.to_string(), (row.value)(self)));
        let failed = FAILURES.iter().zip(&self.failed);
        let failed = failed.map(|(why, count)| (format!("failed/{why}"), count.load(Relaxed)));
        rows.chain(failed.filter(|(_, count)| *count > 0))
    }
}
