//! Metrics of a link: counters and state, written by the link's task and readable from any thread.

use super::{LinkKind, lock};
use engine::limited_log::LimitedLog;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tracing::warn;

/// Reason why a link did not pass on a message. `LOSSES` has the names in the same order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum LinkDropReason {
    /// No rule of the link covers the topic; perhaps a rule was removed.
    NoRule,
    /// The rule's `TopicMap` does not yield a valid topic name.
    NoName,
    /// Above the Maximum Packet Size of the receiving side.
    TooLarge,
    /// The remote side refused the message.
    Refused,
    /// This broker refused the message.
    RefusedHere,
    /// The link sent this message to the remote side, and received a copy of it. See
    /// [`LinkMetrics::count_echo`].
    Echo,
    /// The channel of events of a sink was full: see `events_max` and `EventHub`.
    EventsFull,
    /// A peer reads more slowly than its messages arrive.
    PeerSlow,
    /// The message has no topic, or does not have the format of the options.
    Unreadable,
    /// No response arrived in time.
    NoAnswer,
    /// The response matches no pending request, or a request to another peer.
    NoQuestion,
    /// No room for a partly received message, a subscription or a request.
    NoRoom,
    /// The requester or the last peer disconnected, or the gateway stopped, and no session keeps
    /// the message.
    NoPeer,
    /// The remote broker sent an invalid PUBLISH.
    InvalidPublish,
    /// The message passed this bridge before and came back through other brokers.
    Loop,
}

const LOSSES: [&str; 15] = [
    "no_rule",
    "no_name",
    "packet_too_large",
    "refused",
    "refused_here",
    "echo",
    "events_full",
    "peer_slow",
    "unreadable",
    "no_answer",
    "no_question",
    "no_room",
    "no_peer",
    "invalid_publish",
    "loop",
];
const OF_BRIDGES: &[LinkDropReason] = &[
    LinkDropReason::NoRule,
    LinkDropReason::NoName,
    LinkDropReason::TooLarge,
    LinkDropReason::Refused,
    LinkDropReason::RefusedHere,
    LinkDropReason::Echo,
    LinkDropReason::InvalidPublish,
    LinkDropReason::Loop,
];
const OF_GATEWAYS: &[LinkDropReason] = &[
    LinkDropReason::NoRule,
    LinkDropReason::NoName,
    LinkDropReason::TooLarge,
    LinkDropReason::Refused,
    LinkDropReason::RefusedHere,
    LinkDropReason::PeerSlow,
    LinkDropReason::Unreadable,
    LinkDropReason::NoAnswer,
    LinkDropReason::NoQuestion,
    LinkDropReason::NoRoom,
    LinkDropReason::NoPeer,
];
const OF_SINKS: &[LinkDropReason] = &[LinkDropReason::Refused, LinkDropReason::EventsFull];

/// Figures of a link: the task of the link counts, and
/// [`LinkReporter`](super::report::LinkReporter) publishes.
#[derive(Debug, Default)]
pub struct LinkMetrics {
    pub kind: LinkKind,
    pub is_up: AtomicBool,
    /// Index of the server of the present or last connection.
    pub server: AtomicUsize,
    pub connects: AtomicU64,
    /// Batches which the destination of a sink accepted; `failures` counts failed attempts.
    pub batches: AtomicU64,
    pub failures: AtomicU64,
    pub messages_out: AtomicU64,
    pub bytes_out: AtomicU64,
    pub messages_in: AtomicU64,
    pub bytes_in: AtomicU64,
    /// Connected peers of a gateway.
    pub peers: AtomicU64,
    losses: [AtomicU64; LOSSES.len()],
    last_error: Mutex<String>,
    noted: [LimitedLog; LOSSES.len()],
    pace: Mutex<MessageRates>,
}

/// Message rates, out and in, with the time and the counts of their last computation.
#[derive(Debug, Default)]
struct MessageRates {
    at: Option<Instant>,
    counts: [u64; 2],
    rates: [f64; 2],
}

/// Minimum time between two computations of the rates; an earlier call returns the previous rates.
const PACED_OVER: Duration = Duration::from_millis(500);

/// Maximum number of log lines a second for each [`LinkDropReason`]: enough to name a few topics.
const LINES_PER_SECOND: u16 = 5;

impl LinkMetrics {
    pub fn for_kind(kind: LinkKind) -> LinkMetrics {
        let pace = MessageRates { at: Some(Instant::now()), ..MessageRates::default() };
        let noted = std::array::from_fn(|_| LimitedLog::new(LINES_PER_SECOND));
        LinkMetrics { kind, pace: Mutex::new(pace), noted, ..LinkMetrics::default() }
    }

    /// Returns messages a second, out and in, since the last computation or the start of the link.
    pub fn rates(&self, now: Instant) -> [f64; 2] {
        let mut pace = lock(&self.pace);
        let since = pace.at.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        if pace.at.is_some() && since < PACED_OVER {
            return pace.rates;
        }
        let counts = [self.messages_out.load(Relaxed), self.messages_in.load(Relaxed)];
        if !since.is_zero() {
            let rate =
                |at: usize| counts[at].saturating_sub(pace.counts[at]) as f64 / since.as_secs_f64();
            pace.rates = [rate(0), rate(1)];
        }
        (pace.at, pace.counts) = (Some(now), counts);
        pace.rates
    }

    /// Counts a message of `bytes` bytes of payload to the other side.
    pub fn count_out(&self, bytes: usize) {
        self.messages_out.fetch_add(1, Relaxed);
        self.bytes_out.fetch_add(bytes as u64, Relaxed);
    }

    pub fn count_in(&self, bytes: usize) {
        self.messages_in.fetch_add(1, Relaxed);
        self.bytes_in.fetch_add(bytes as u64, Relaxed);
    }

    /// Counts an echo. An echo is not a loss, so there is no log line.
    pub fn count_echo(&self) {
        self.losses[LinkDropReason::Echo as usize].fetch_add(1, Relaxed);
    }

    /// Counts a dropped message and logs the drop, at most `LINES_PER_SECOND` for each reason.
    /// `about` is the topic of the message, or the reason given by the other side.
    pub fn count_drop(&self, link: &str, loss: LinkDropReason, about: &str) {
        self.count_drops(link, loss, about, 1);
    }

    pub fn count_drops(&self, link: &str, loss: LinkDropReason, about: &str, times: u64) {
        if times == 0 {
            return;
        }
        self.losses[loss as usize].fetch_add(times, Relaxed);
        let (kind, reason) = (self.kind, LOSSES[loss as usize]);
        let (link, about) = (link.to_string(), about.to_string());
        self.noted[loss as usize].log(times, move |count| match kind {
            LinkKind::Bridge => {
                warn!(
                    target: "godwit::bridge", bridge = link, reason, about, count,
                    "not passed on"
                );
            }
            LinkKind::Gateway => {
                warn!(
                    target: "godwit::gateway", gateway = link, reason, about, count,
                    "not passed on"
                );
            }
            LinkKind::Sink => {
                warn!(
                    target: "godwit::sink", sink = link, reason, about, count, "not passed on"
                );
            }
        });
    }

    pub fn record_failure(&self, link: &str, why: String) {
        match self.kind {
            LinkKind::Bridge => warn!(target: "godwit::bridge", bridge = link, "{why}"),
            LinkKind::Gateway => warn!(target: "godwit::gateway", gateway = link, "{why}"),
            LinkKind::Sink => warn!(target: "godwit::sink", sink = link, "{why}"),
        }
        self.set_error(why);
    }

    pub fn set_error(&self, why: String) {
        *lock(&self.last_error) = why;
    }

    pub fn last_error(&self) -> String {
        lock(&self.last_error).clone()
    }

    /// Returns the drops by name, for the reasons which exist for this kind of link.
    pub fn drop_counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let count = move |loss: &LinkDropReason| {
            let at = *loss as usize;
            (LOSSES[at], self.losses[at].load(Relaxed))
        };
        let all = match self.kind {
            LinkKind::Bridge => OF_BRIDGES,
            LinkKind::Gateway => OF_GATEWAYS,
            LinkKind::Sink => OF_SINKS,
        };
        all.iter().map(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_of_the_time_since_they_were_asked_for() {
        let metrics = LinkMetrics::for_kind(LinkKind::Bridge);
        let begun = Instant::now();
        let at = |ms: u64| begun + Duration::from_millis(ms);
        assert_eq!(metrics.rates(at(1000)), [0.0; 2]);
        (0..30).for_each(|_| metrics.count_out(1));
        (0..5).for_each(|_| metrics.count_in(1));
        assert_eq!(metrics.rates(at(1400)), [0.0; 2], "it is too soon");
        assert_eq!(metrics.rates(at(3000)), [15.0, 2.5]);
        assert_eq!(metrics.rates(at(3100)), [15.0, 2.5], "whoever asks beside hears the same");
        assert_eq!(metrics.rates(at(4000)), [0.0; 2]);
    }
}
