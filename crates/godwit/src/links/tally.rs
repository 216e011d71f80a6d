//! What a link did, and how it is: numbers that its task counts and anybody may read.

use super::{LinkKind, lock};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tracing::warn;

/// Why a message went no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Loss {
    /// No rule, or no longer one, has a name for its topic.
    NoRule,
    /// The rule makes no topic name of it.
    NoName,
    /// Above the other side's Maximum Packet Size.
    TooLarge,
    /// The other side does not take it.
    Refused,
    /// This broker does not take it.
    RefusedHere,
    /// The same was sent there, and came back.
    Echo,
    /// More events than a sink may keep in memory.
    EventsFull,
    /// A peer takes less than there is for it.
    PeerSlow,
    /// There is no topic in it, or it is not as the options say.
    Unreadable,
    /// Nobody answered in time.
    NoAnswer,
    /// It was half-way here, or a peer subscribed to it, when all of that was too much.
    NoRoom,
}

const LOSSES: [&str; 11] = [
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
    "no_room",
];
const OF_BRIDGES: &[Loss] =
    &[Loss::NoRule, Loss::NoName, Loss::TooLarge, Loss::Refused, Loss::RefusedHere, Loss::Echo];
const OF_GATEWAYS: &[Loss] = &[
    Loss::NoRule,
    Loss::NoName,
    Loss::TooLarge,
    Loss::RefusedHere,
    Loss::PeerSlow,
    Loss::Unreadable,
    Loss::NoAnswer,
    Loss::NoRoom,
];
const OF_SINKS: &[Loss] = &[Loss::Refused, Loss::EventsFull];

#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) kind: LinkKind,
    pub(crate) is_up: AtomicBool,
    /// Which of the servers it is, or was, connected to.
    pub(crate) server: AtomicUsize,
    pub(crate) connects: AtomicU64,
    /// Batches that a sink's far side took, and times that it did not take one.
    pub(crate) batches: AtomicU64,
    pub(crate) failures: AtomicU64,
    pub(crate) messages_out: AtomicU64,
    pub(crate) bytes_out: AtomicU64,
    pub(crate) messages_in: AtomicU64,
    pub(crate) bytes_in: AtomicU64,
    /// Those of a gateway that are connected.
    pub(crate) peers: AtomicU64,
    losses: [AtomicU64; LOSSES.len()],
    last_error: Mutex<String>,
    noted: Mutex<Noted>,
}

/// A loss is noted once a second, with the number since the last.
#[derive(Debug, Default)]
struct Noted {
    at: Option<Instant>,
    since: u64,
}

const NOTED_EVERY: Duration = Duration::from_secs(1);

impl Tally {
    pub(crate) fn of(kind: LinkKind) -> Tally {
        Tally { kind, ..Tally::default() }
    }

    pub(crate) fn count_out(&self, bytes: usize) {
        self.messages_out.fetch_add(1, Relaxed);
        self.bytes_out.fetch_add(bytes as u64, Relaxed);
    }

    pub(crate) fn count_in(&self, bytes: usize) {
        self.messages_in.fetch_add(1, Relaxed);
        self.bytes_in.fetch_add(bytes as u64, Relaxed);
    }

    /// It is nothing that anybody would miss.
    pub(crate) fn count_echo(&self) {
        self.losses[Loss::Echo as usize].fetch_add(1, Relaxed);
    }

    /// `about` is the message's topic, or what the other side says of it.
    pub(crate) fn lose(&self, link: &str, loss: Loss, about: &str) {
        self.losses[loss as usize].fetch_add(1, Relaxed);
        let mut noted = lock(&self.noted);
        noted.since += 1;
        let now = Instant::now();
        if noted.at.is_none_or(|at| now >= at + NOTED_EVERY) {
            let (reason, count) = (LOSSES[loss as usize], noted.since);
            match self.kind {
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
                        target: "godwit::sink", sink = link, reason, about, count,
                        "not passed on"
                    );
                }
            }
            *noted = Noted { at: Some(now), since: 0 };
        }
    }

    pub(crate) fn fail(&self, link: &str, why: String) {
        match self.kind {
            LinkKind::Bridge => warn!(target: "godwit::bridge", bridge = link, "{why}"),
            LinkKind::Gateway => warn!(target: "godwit::gateway", gateway = link, "{why}"),
            LinkKind::Sink => warn!(target: "godwit::sink", sink = link, "{why}"),
        }
        self.set_error(why);
    }

    pub(crate) fn set_error(&self, why: String) {
        *lock(&self.last_error) = why;
    }

    pub(crate) fn last_error(&self) -> String {
        lock(&self.last_error).clone()
    }

    /// By their names, those that a link of this kind may have.
    pub(crate) fn losses(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let count = move |loss: &Loss| {
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
