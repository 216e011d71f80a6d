//! Lines that `conn`, `pub` and `sub` print while a test runs.

use crate::load_stats::{COUNTS, LatencySampler, LoadStats};
use crate::test_driver::SecondRow;
use std::io::{IsTerminal, Write};

/// Printer of emqtt_bench's lines: each second the counters of [`COUNTS`] whose value changed.
#[derive(Debug)]
pub(super) struct ConsolePrinter {
    began_ns: u64,
    /// Lines go to stderr if the report is written to stdout.
    is_on_stderr: bool,
    /// Whether `--log_to null` is set.
    is_silent: bool,
    is_terminal: bool,
}

impl ConsolePrinter {
    pub(super) fn new(is_on_stderr: bool, is_silent: bool) -> ConsolePrinter {
        let is_terminal = match is_on_stderr {
            true => std::io::stderr().is_terminal(),
            false => std::io::stdout().is_terminal(),
        };
        ConsolePrinter { began_ns: 0, is_on_stderr, is_silent, is_terminal }
    }

    pub(super) fn print(&mut self, row: &SecondRow, total: &LoadStats) {
        if self.began_ns == 0 {
            self.began_ns = row.from_ns;
        }
        let elapsed = format_span((row.until_ns - self.began_ns) / 1_000_000_000);
        let seconds = (row.until_ns - row.from_ns).max(1) as f64 / 1e9;
        let start = if self.is_terminal { "\r" } else { "" };
        let mut text = String::new();
        for (count, name) in COUNTS {
            let n = row.stats.count(*count);
            if n == 0 || name.contains("bytes") {
                continue;
            }
            let (total, rate) = (total.count(*count), n as f64 / seconds);
            text += &format!("{start}{elapsed} {name} total={total} rate={rate:.2}/sec\n");
        }
        for (sampler, name) in
            [(LatencySampler::Pub, "publish_latency"), (LatencySampler::Sub, "e2e_latency")]
        {
            let times = row.stats.times(sampler);
            if !times.is_empty() {
                let mean = times.mean() / 1e3;
                let p99 = times.value_at_quantile(0.99) as f64 / 1e3;
                text += &format!("{start}{elapsed} {name} avg={mean:.3}ms p99={p99:.3}ms\n");
            }
        }
        self.write(&text);
    }

    pub(super) fn write(&self, text: &str) {
        if self.is_silent {
            return;
        }
        // A reader that closed the stream has read enough; the exit code still gives the outcome.
        let _ = match self.is_on_stderr {
            true => std::io::stderr().write_all(text.as_bytes()),
            false => std::io::stdout().write_all(text.as_bytes()),
        };
    }
}

/// Formats a duration in seconds as `1h2m3s`.
pub(super) fn format_span(seconds: u64) -> String {
    let (h, m, s) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    match (h, m) {
        (0, 0) => format!("{s}s"),
        (0, _) => format!("{m}m{s}s"),
        _ => format!("{h}h{m}m{s}s"),
    }
}
