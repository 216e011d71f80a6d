//! The relay of a bridge on the thread of the shard with its session: while only packets pass, no
//! other thread wakes. The bridge's task keeps timeouts and rare work, and gets the relay back when
//! the connection ends or the task recalls it.

use super::relay::{Relay, RelayEnd};
use crate::connection::UnreadBytes;
use engine::{LinkRelay, RelaySocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// The task's half of a loan: receives the relay when the loan ends.
pub(super) struct LineLoan {
    pub(super) returned: oneshot::Receiver<PipeReturn>,
    pub(super) activity: Arc<LineActivity>,
    /// The task has recalled the relay, so the end of the loan is not an error.
    pub(super) is_recalled: bool,
}

/// State which a shard returns at the end of a loan.
pub(super) struct PipeReturn {
    pub(super) pipe: Box<Relay>,
    pub(super) near_read: UnreadBytes,
    pub(super) far_read: UnreadBytes,
    pub(super) socket: RelaySocket,
    /// The end, if [`Relay`] detected it; `None` for a recall or a fault of the socket.
    pub(super) end: Option<RelayEnd>,
}

/// Times of the last bytes from and to the remote broker. The shard writes them, and the task reads
/// them for its timeouts.
#[derive(Debug)]
pub(super) struct LineActivity {
    since: Instant,
    /// Microseconds after `since`.
    heard_us: AtomicU64,
    said_us: AtomicU64,
}

/// The shard's half of a loan: implements [`LinkRelay`].
struct HostedPipe {
    pipe: Box<Relay>,
    near_read: UnreadBytes,
    far_read: UnreadBytes,
    end: Option<RelayEnd>,
    activity: Arc<LineActivity>,
    back: oneshot::Sender<PipeReturn>,
}

impl LineLoan {
    /// Returns the task's half, and the relay for the shard.
    pub(super) fn new(
        pipe: Box<Relay>,
        near_read: UnreadBytes,
        far_read: UnreadBytes,
        activity: LineActivity,
    ) -> (LineLoan, Box<dyn LinkRelay>) {
        let (back, returned) = oneshot::channel();
        let activity = Arc::new(activity);
        let loan = LineLoan { returned, activity: activity.clone(), is_recalled: false };
        let hosted = HostedPipe { pipe, near_read, far_read, end: None, activity, back };
        (loan, Box::new(hosted))
    }
}

impl LineActivity {
    pub(super) fn new(heard: Instant, said: Instant) -> LineActivity {
        let since = heard.min(said);
        let activity = LineActivity { since, heard_us: 0.into(), said_us: 0.into() };
        activity.heard_us.store(activity.us_at(heard), Relaxed);
        activity.note_said(said);
        activity
    }

    pub(super) fn heard(&self) -> Instant {
        self.since + Duration::from_micros(self.heard_us.load(Relaxed))
    }

    pub(super) fn said(&self) -> Instant {
        self.since + Duration::from_micros(self.said_us.load(Relaxed))
    }

    pub(super) fn note_said(&self, now: Instant) {
        self.said_us.store(self.us_at(now), Relaxed);
    }

    /// Returns microseconds after `since`, plus one: bytes which arrive right after a ping then
    /// count as later than the ping.
    fn us_at(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.since).as_micros() as u64 + 1
    }
}

impl LinkRelay for HostedPipe {
    fn hear_near(&mut self, bytes: &[u8]) {
        if self.end.is_some() {
            return;
        }
        let pipe = &mut *self.pipe;
        pipe.now = Instant::now().into_std();
        self.end = self.near_read.pass(bytes, |all| pipe.read_local(all)).err();
    }

    fn hear_far(&mut self, bytes: &[u8]) {
        if self.end.is_some() {
            return;
        }
        let (pipe, now) = (&mut *self.pipe, Instant::now());
        pipe.now = now.into_std();
        self.activity.heard_us.store(self.activity.us_at(now), Relaxed);
        self.end = self.far_read.pass(bytes, |all| pipe.read_remote(all)).err();
    }

    fn to_near(&mut self) -> &mut Vec<u8> {
        &mut self.pipe.to_local
    }

    fn to_far(&mut self) -> &mut Vec<u8> {
        &mut self.pipe.to_remote
    }

    fn note_sent(&mut self) {
        self.activity.note_said(Instant::now());
    }

    fn is_over(&self) -> bool {
        self.end.is_some()
    }

    fn held_bytes(&self) -> usize {
        self.near_read.capacity() + self.far_read.capacity()
    }

    fn give_back(self: Box<Self>, socket: RelaySocket) {
        let HostedPipe { pipe, near_read, far_read, end, back, .. } = *self;
        // The task ends before the shard when the process stops.
        let _ = back.send(PipeReturn { pipe, near_read, far_read, socket, end });
    }
}
