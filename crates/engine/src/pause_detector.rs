//! Detects pauses of the process and changes of the time of day on the thread of a shard.
//!
//! After a pause the thread wakes later than planned. No timer fires until every ready socket has
//! been read, so a client that sent in time is never timed out by a pause of the broker.

use crate::clock::SystemClock;
use broker::{MonotonicMs, ProcessPause};
use mio::Events;
use std::io;
use std::time::{Duration, Instant};

/// Detects a late thread, and delays its timers until all ready sockets are read.
#[derive(Debug)]
pub(crate) struct PauseDetector {
    clock: SystemClock,
    /// Start of the last turn.
    turn_at: MonotonicMs,
    /// Planned time of the wake-up; `None` to sleep without a timeout.
    planned: Option<MonotonicMs>,
    catch_up: Option<CatchUp>,
}

/// A thread which woke late, and reads sockets before its timers fire.
#[derive(Debug)]
struct CatchUp {
    late_since: MonotonicMs,
    /// Timers fire at this time, even if sockets are still ready.
    ends_at: MonotonicMs,
    /// The poller has returned since the pause without an interruption.
    is_polled: bool,
    rounds_left: u32,
}

/// Lateness of a wake-up in milliseconds up to which no pause is assumed.
const LATE_MS: u64 = 50;
/// Duration of a turn in milliseconds above which the turn counts as a pause for its sockets.
const TURN_MS_MAX: u64 = 500;
/// Resolution of the timer wheel in milliseconds: a timer may have been due this long before
/// firing.
const TIMER_MS: u64 = 200;
/// Largest number of rounds of reading after all ready sockets were read: clients sending without
/// end must not delay timers for ever.
const ROUNDS_MAX: u32 = 8;
/// Longest delay of timers after a pause, in milliseconds.
const CATCH_UP_MS_MAX: u64 = 5_000;

impl PauseDetector {
    pub(crate) fn new(clock: SystemClock) -> PauseDetector {
        let turn_at = clock.now();
        PauseDetector { clock, turn_at, planned: None, catch_up: None }
    }

    pub(crate) fn clock(&self) -> SystemClock {
        self.clock.clone()
    }

    /// Plans a wait of `timeout`, where `None` is a wait without a limit, and returns the timeout
    /// for the poller: zero while catching up.
    pub(crate) fn plan_wait(
        &mut self,
        now: Instant,
        timeout: Option<Duration>,
    ) -> Option<Duration> {
        let now = self.clock.at(now);
        if self.catch_up.is_none() && now.0 > self.turn_at.0 + TURN_MS_MAX {
            self.begin_catch_up(self.turn_at, now);
        }
        if self.catch_up.is_some() {
            return Some(Duration::ZERO);
        }
        self.planned = timeout.map(|timeout| MonotonicMs(now.0 + timeout.as_millis() as u64));
        timeout
    }

    fn begin_catch_up(&mut self, late_since: MonotonicMs, now: MonotonicMs) {
        self.catch_up = Some(CatchUp {
            late_since,
            ends_at: MonotonicMs(now.0 + CATCH_UP_MS_MAX),
            is_polled: false,
            rounds_left: ROUNDS_MAX,
        });
    }

    /// Records the return of the poller and returns the time. An interrupted call says nothing
    /// about sockets, and the signal may be the cause of the pause: catching up begins.
    pub(crate) fn record_wake(&mut self, polled: io::Result<()>) -> io::Result<Instant> {
        let is_interrupted = match polled {
            Err(fault) if fault.kind() == io::ErrorKind::Interrupted => true,
            other => {
                other?;
                false
            }
        };
        let moment = Instant::now();
        self.clock.read_other_clocks(moment);
        let now = self.clock.at(moment);
        self.turn_at = now;
        match &mut self.catch_up {
            Some(catch_up) => catch_up.is_polled |= !is_interrupted,
            None => {
                let planned = self.planned.filter(|planned| now.0 > planned.0 + LATE_MS);
                if let Some(late_since) = planned.or(is_interrupted.then_some(now)) {
                    self.begin_catch_up(late_since, now);
                }
            }
        }
        Ok(moment)
    }

    /// Whether the thread woke late and still reads sockets before its timers fire.
    pub(crate) fn is_catching_up(&self) -> bool {
        self.catch_up.is_some()
    }

    /// Decides whether timers fire in this turn, after its sockets were read. Returns the pause, if
    /// a catch-up ends here.
    pub(crate) fn check_timers(
        &mut self,
        events: &Events,
        has_listed: bool,
    ) -> (bool, Option<ProcessPause>) {
        let Some(catch_up) = &mut self.catch_up else { return (true, None) };
        let now = self.clock.now();
        let is_quiet = catch_up.is_polled && events.is_empty() && !has_listed;
        if !is_quiet && catch_up.rounds_left > 0 && now < catch_up.ends_at {
            // A full event list means that the poller has more to report.
            let was_all = catch_up.is_polled && events.iter().count() < events.capacity();
            catch_up.rounds_left -= u32::from(was_all);
            return (false, None);
        }
        let late_since = catch_up.late_since;
        let from = MonotonicMs(late_since.0.saturating_sub(TIMER_MS));
        let was_late = now.0 > late_since.0 + LATE_MS;
        self.catch_up = None;
        self.turn_at = now;
        (true, was_late.then_some(ProcessPause { from, until: now }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch() -> PauseDetector {
        PauseDetector::new(SystemClock::starting())
    }

    #[test]
    fn timers_of_a_thread_that_is_on_time_fire_at_once() {
        let mut watch = watch();
        watch.plan_wait(Instant::now(), Some(Duration::from_secs(60)));
        watch.record_wake(Ok(())).expect("it was polled");
        assert_eq!(watch.check_timers(&Events::with_capacity(8), true), (true, None));
    }

    #[test]
    fn timers_of_a_thread_that_is_late_wait_until_nothing_is_ready() {
        let (mut watch, none) = (watch(), Events::with_capacity(8));
        let since = MonotonicMs(watch.clock.now().0 - 3 * LATE_MS);
        watch.planned = Some(since);
        watch.record_wake(Ok(())).expect("it was polled");
        assert!(watch.is_catching_up(), "no shard goes to another thread meanwhile");
        assert_eq!(watch.check_timers(&none, false), (false, None), "it was late when it polled");
        assert_eq!(
            watch.plan_wait(Instant::now(), None),
            Some(Duration::ZERO),
            "it does not sleep"
        );
        watch.record_wake(Ok(())).expect("it was polled");
        assert_eq!(watch.check_timers(&none, true), (false, None), "a socket is listed");
        watch.record_wake(Ok(())).expect("it was polled");
        let (fires, pause) = watch.check_timers(&none, false);
        let pause = pause.expect("it was late");
        assert!(fires && pause.from.0 == since.0 - TIMER_MS);
        assert!(pause.until.0 >= since.0 + 3 * LATE_MS);
        assert_eq!(watch.check_timers(&none, true), (true, None), "it is over");
    }

    #[test]
    fn a_turn_that_took_long_is_a_pause() {
        let mut watch = watch();
        watch.turn_at = MonotonicMs(watch.turn_at.0 - 2 * TURN_MS_MAX);
        assert_eq!(watch.plan_wait(Instant::now(), None), Some(Duration::ZERO));
        assert!(
            !watch.check_timers(&Events::with_capacity(8), false).0,
            "nothing was polled since"
        );
        watch.record_wake(Ok(())).expect("it was polled");
        assert!(watch.check_timers(&Events::with_capacity(8), false).1.is_some());
    }

    /// An interrupted poller has not looked at sockets, whatever the duration of the wait.
    #[test]
    fn timers_wait_for_one_more_look_after_an_interruption() {
        let (mut watch, none) = (watch(), Events::with_capacity(8));
        watch.plan_wait(Instant::now(), Some(Duration::from_secs(60)));
        for _ in 0..2 {
            watch.record_wake(Err(io::ErrorKind::Interrupted.into())).expect("that is not a fault");
            assert!(!watch.check_timers(&none, false).0);
        }
        watch.record_wake(Ok(())).expect("it was polled");
        assert_eq!(watch.check_timers(&none, false), (true, None));
        assert!(watch.record_wake(Err(io::ErrorKind::BrokenPipe.into())).is_err());
    }

    #[test]
    fn clients_that_never_fall_silent_do_not_hold_up_timers_for_ever() {
        let (mut watch, none) = (watch(), Events::with_capacity(8));
        watch.begin_catch_up(MonotonicMs(0), watch.clock.now());
        watch.record_wake(Ok(())).expect("it was polled");
        let rounds = (0..).take_while(|_| !watch.check_timers(&none, true).0).count();
        assert_eq!(rounds, ROUNDS_MAX as usize);
    }
}
