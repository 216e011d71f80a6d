//! Schedules of clients: queues of equal intervals, and a timer finer than a poller's milliseconds.

use crate::clock::SECOND_NS;
use crate::limits::GRID_NS;
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use std::collections::VecDeque;
use std::io;

/// Clients that are due periodically with one common interval. The queue therefore stays sorted,
/// and taking the next client costs the same for any number of clients.
#[derive(Debug, Default)]
pub(crate) struct IntervalQueue {
    pub(crate) interval_ns: u64,
    queue: VecDeque<(u64, u32)>,
}

impl IntervalQueue {
    pub(crate) fn new(interval_ns: u64) -> IntervalQueue {
        IntervalQueue { interval_ns, queue: VecDeque::new() }
    }

    /// Inserts in order of time; the place is almost always the end.
    pub(crate) fn insert(&mut self, at_ns: u64, client: u32) {
        if self.queue.back().is_none_or(|(last, _)| *last <= at_ns) {
            self.queue.push_back((at_ns, client));
            return;
        }
        let at = self.queue.partition_point(|(other, _)| *other <= at_ns);
        self.queue.insert(at, (at_ns, client));
    }

    pub(crate) fn next_at(&self) -> Option<u64> {
        self.queue.front().map(|(at, _)| *at)
    }

    /// Returns the next due client with its intended time in nanoseconds, and puts the client back,
    /// one interval later. `None` if no client is due at `now_ns`.
    #[inline]
    pub(crate) fn reschedule_due(&mut self, now_ns: u64) -> Option<(u64, u32)> {
        let (at, client) = self.pop_due(now_ns)?;
        self.queue.push_back((at + self.interval_ns, client));
        Some((at, client))
    }

    /// Removes and returns the next due client with its intended time in nanoseconds; `None` if no
    /// client is due at `now_ns`.
    #[inline]
    pub(crate) fn pop_due(&mut self, now_ns: u64) -> Option<(u64, u32)> {
        if self.next_at()? > now_ns {
            return None;
        }
        self.queue.pop_front()
    }

    pub(crate) fn clear(&mut self) {
        self.queue.clear();
    }
}

/// Returns the first time of the grid at or after `at_ns`.
#[inline]
pub(crate) fn round_up_to_grid(at_ns: u64) -> u64 {
    at_ns.next_multiple_of(GRID_NS)
}

/// A timerfd that wakes the poller: epoll_wait(2) counts milliseconds, and a load schedule is
/// finer.
#[derive(Debug)]
pub(crate) struct PollTimer {
    fd: OwnedFd,
    set_for: u64,
}

impl PollTimer {
    pub(crate) fn new(registry: &Registry, token: Token) -> io::Result<PollTimer> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let fd = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        registry.register(&mut SourceFd(&fd.as_raw_fd()), token, Interest::READABLE)?;
        Ok(PollTimer { fd, set_for: 0 })
    }

    /// Sets the timer to `at_ns`. A time in the past fires at once, also if the same time was set
    /// before.
    pub(crate) fn set(&mut self, at_ns: u64, now_ns: u64) -> io::Result<()> {
        if self.set_for == at_ns && at_ns > now_ns {
            return Ok(());
        }
        self.set_for = at_ns;
        let wait = at_ns.saturating_sub(now_ns).max(1);
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let value =
            Timespec { tv_sec: (wait / SECOND_NS) as i64, tv_nsec: (wait % SECOND_NS) as i64 };
        let spec = Itimerspec { it_interval: zero, it_value: value };
        timerfd_settime(&self.fd, TimerfdTimerFlags::empty(), &spec)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_stays_in_order_and_never_drifts() {
        let mut line = IntervalQueue::new(10);
        for (at, client) in [(100, 0), (103, 1), (101, 2)] {
            line.insert(at, client);
        }
        let mut seen = Vec::new();
        // A late caller still receives every intended time.
        while let Some(due) = line.reschedule_due(113) {
            seen.push(due);
        }
        assert_eq!(seen, [(100, 0), (101, 2), (103, 1), (110, 0), (111, 2), (113, 1)]);
        assert_eq!(line.next_at(), Some(120));
    }
}
