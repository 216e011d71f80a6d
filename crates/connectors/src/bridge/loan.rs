//! The pipe of a bridge on the thread of the shard that has its session: while nothing but packets
//! passes, no other thread wakes for them. The bridge's task keeps the time and all that is rare,
//! and has the pipe again when the connection ends or the task wants it back.

use super::relay::{Relay, RelayEnd};
use crate::connection::UnreadBytes;
use engine::{LinkRelay, RelaySocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// The task's end.
pub(super) struct LineLoan {
    pub(super) returned: oneshot::Receiver<PipeReturn>,
    pub(super) activity: Arc<LineActivity>,
    /// The task has asked for the pipe.
    pub(super) is_recalled: bool,
}

/// The result of a relay in a shard.
pub(super) struct PipeReturn {
    pub(super) pipe: Box<Relay>,
    pub(super) near_read: UnreadBytes,
    pub(super) far_read: UnreadBytes,
    pub(super) socket: RelaySocket,
    /// Why it ended, where the pipe found that out.
    pub(super) end: Option<RelayEnd>,
}

/// When the other broker last said something, and when something was last said to it.
#[derive(Debug)]
pub(super) struct LineActivity {
    since: Instant,
    /// In microseconds after `since`.
    heard_us: AtomicU64,
    said_us: AtomicU64,
}

/// The shard's end.
struct HostedPipe {
    pipe: Box<Relay>,
    near_read: UnreadBytes,
    far_read: UnreadBytes,
    end: Option<RelayEnd>,
    activity: Arc<LineActivity>,
    back: oneshot::Sender<PipeReturn>,
}

impl LineLoan {
    /// With what a shard is to have.
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

    /// Rounded up, so that what comes right after a question is an answer to it.
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
        // The task may have gone with the process.
        let _ = back.send(PipeReturn { pipe, near_read, far_read, socket, end });
    }
}
