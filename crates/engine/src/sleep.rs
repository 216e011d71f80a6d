//! When a shard sleeps, for how long, and how others find out.

use crate::body::Body;
use crate::pause::PauseWatch;
use crate::ring::Bell;
use crate::shelf::Shelf;
use mio::Events;
use std::io;
use std::time::{Duration, Instant};

impl Body {
    /// Whether the wait before the next turn may be a sleep, and for how long. A shard that may
    /// sleep says so to the others first, and then looks into its rings once more.
    pub(crate) fn doze(&mut self, now: Instant) -> Option<Duration> {
        let timeout = self.timeout(now);
        self.due = timeout.map(|timeout| now + timeout);
        if timeout != Some(Duration::ZERO) {
            let awaits_disk = self.awaits_disk();
            self.bell().say_asleep(self.with_guest, awaits_disk);
            if self.rings.has_input() || (awaits_disk && self.disk_has_more()) {
                self.wake_up();
                return Some(Duration::ZERO);
            }
        }
        timeout
    }

    pub(crate) fn wake_up(&self) {
        self.bell().say_awake();
    }

    pub(crate) fn bell(&self) -> &Bell {
        &self.rings.bells[usize::from(self.id.0)]
    }

    /// Whether a turn would find anything that no event tells of.
    pub(crate) fn has_work(&self, now: Instant) -> bool {
        self.rings.has_input()
            || self.due.is_some_and(|due| due <= now)
            || (self.awaits_disk() && self.disk_has_more())
    }

    /// Waits with a guest, and says when it woke.
    pub(crate) fn wait(
        &mut self,
        events: &mut Events,
        pauses: &mut PauseWatch,
    ) -> io::Result<Instant> {
        let now = Instant::now();
        let timeout = self.doze(now);
        let polled = self.poll.poll(events, pauses.plan(now, timeout));
        self.wake_up();
        pauses.wake(polled)
    }

    fn timeout(&self, now: Instant) -> Option<Duration> {
        if !self.out.is_empty() {
            return Some(Duration::ZERO);
        }
        if self.blocked {
            // The other shard has no way to say that its ring has room again.
            return Some(Duration::from_millis(1));
        }
        if !self.listed.is_empty() {
            return Some(Duration::ZERO);
        }
        let leaving = self.leaving.front().map(|(at, _)| *at);
        let accepts = self.accepts.then_some(self.accept_pause.until);
        let again = self.accept_pause.rate_until.map(|at| at.max(self.accept_pause.until));
        let opening = self.opening.front().map(|(at, _)| self.extend_opening(*at));
        let gives_back = self.left_behind.then_some(self.gives_back_from);
        let own = leaving.into_iter().chain(opening).chain(self.stop_at);
        let own = own.chain(accepts).chain(again).chain(gives_back).chain(self.release.at);
        let next = self.shard.next_tick().into_iter().chain(own).min();
        // Whole milliseconds round down: without the one more the last turn would spin.
        let (instant, now) = (now, self.clock.at(now));
        let next = next.map(|at| Duration::from_millis(at.0.saturating_sub(now.0)));
        let retry = self.shelf.as_ref().and_then(Shelf::retry_after);
        let quic = self.quic.as_ref().and_then(|quic| quic.timeout(instant));
        next.into_iter().chain(retry).chain(quic).min()
    }
}
