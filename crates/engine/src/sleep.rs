//! When a shard sleeps, for how long, and how other threads learn of it.

use crate::pause_detector::PauseDetector;
use crate::ring::ShardWaker;
use crate::shard_driver::ShardDriver;
use crate::store_client::StoreClient;
use mio::Events;
use std::io;
use std::time::{Duration, Instant};

impl ShardDriver {
    /// Returns the time to wait before the next turn: zero for no sleep, and `None` to wait for an
    /// event without a limit. Before a sleep the shard marks itself as asleep in its
    /// [`ShardWaker`], and then looks into its rings once more.
    pub(crate) fn prepare_sleep(&mut self, now: Instant) -> Option<Duration> {
        let timeout = self.next_timeout(now);
        self.wake_at = timeout.map(|timeout| now + timeout);
        if timeout != Some(Duration::ZERO) {
            let awaits_disk = self.awaits_disk();
            self.waker().set_asleep(self.on_worker, awaits_disk);
            if self.rings.has_input() || (awaits_disk && self.has_disk_progress()) {
                self.mark_awake();
                return Some(Duration::ZERO);
            }
        }
        timeout
    }

    pub(crate) fn mark_awake(&self) {
        self.waker().set_awake();
    }

    pub(crate) fn waker(&self) -> &ShardWaker {
        &self.rings.wakers[usize::from(self.id.0)]
    }

    /// Whether a turn would find work without a poller event: ring items, a due timer, or progress
    /// of the store.
    pub(crate) fn has_due_work(&self, now: Instant) -> bool {
        self.rings.has_input()
            || self.wake_at.is_some_and(|due| due <= now)
            || (self.awaits_disk() && self.has_disk_progress())
    }

    /// Waits at the shard's own poller, on a worker thread, and returns the time of the wake-up.
    pub(crate) fn wait_on_worker(
        &mut self,
        events: &mut Events,
        pauses: &mut PauseDetector,
    ) -> io::Result<Instant> {
        let now = Instant::now();
        let timeout = self.prepare_sleep(now);
        let polled = self.poll.poll(events, pauses.plan_wait(now, timeout));
        self.mark_awake();
        pauses.record_wake(polled)
    }

    fn next_timeout(&self, now: Instant) -> Option<Duration> {
        if !self.out.is_empty() {
            return Some(Duration::ZERO);
        }
        if self.blocked {
            // The other shard has no way to report that its ring has room again.
            return Some(Duration::from_millis(1));
        }
        if !self.listed.is_empty() {
            return Some(Duration::ZERO);
        }
        let leaving = self.lingering.front().map(|(at, _)| *at);
        let accepts = self.has_accepts.then_some(self.accept_pause.until);
        let again = self.accept_pause.rate_until.map(|at| at.max(self.accept_pause.until));
        let opening = self.handshaking.front().map(|(at, _)| self.extend_handshake(*at));
        let gives_back = self.has_memory_to_trim.then_some(self.trim_after);
        let own = leaving.into_iter().chain(opening).chain(self.stop_at);
        let own = own.chain(accepts).chain(again).chain(gives_back).chain(self.release.at);
        let next = self.shard.next_tick().into_iter().chain(own).min();
        // Milliseconds are rounded down, and the comparison uses the same rounding: without the
        // extra one the last turn would spin.
        let (instant, now) = (now, self.clock.at(now));
        let next = next.map(|at| Duration::from_millis(at.0.saturating_sub(now.0)));
        let retry = self.store.as_ref().and_then(StoreClient::retry_after);
        let quic = self.quic.as_ref().and_then(|quic| quic.timeout(instant));
        next.into_iter().chain(retry).chain(quic).min()
    }
}
