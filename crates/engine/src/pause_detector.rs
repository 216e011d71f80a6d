//! Pauses of the process and changes of the time of day, as a shard's thread finds them out.
//!
//! After a pause it wakes later than it wanted to.
//! Until every socket that has something was read, no timer fires: whoever spoke in time is heard
//! before the question is asked whether anybody spoke.

use crate::clock::SystemClock;
use crate::shard_driver::ShardDriver;
use broker::{BrokerEvent, MonotonicMs, ProcessPause, ShardId};
use mio::Events;
use std::io;
use std::time::{Duration, Instant};

/// Whether a thread runs late, and what it has to do before its timers fire.
#[derive(Debug)]
pub(crate) struct PauseDetector {
    clock: SystemClock,
    /// When the last turn began.
    turn_at: MonotonicMs,
    /// When the thread wanted to wake.
    planned: Option<MonotonicMs>,
    catch_up: Option<CatchUp>,
}

/// A thread is late, and reads sockets before its timers fire.
#[derive(Debug)]
struct CatchUp {
    late_since: MonotonicMs,
    /// Timers fire then, whatever is still ready.
    ends_at: MonotonicMs,
    /// The poller has looked at the sockets since.
    is_polled: bool,
    rounds_left: u32,
}

/// A thread that wakes less late than this had no pause.
const LATE_MS: u64 = 50;
/// A turn that took longer than this kept its sockets waiting as a pause does.
const TURN_MS_MAX: u64 = 500;
/// A pause that is longer than this is logged.
const LOGGED_MS: u64 = 2_000;
/// Timers have a resolution of a wheel's turn, and may have been due that much before they fire.
const TIMER_MS: u64 = 200;
/// Clients that speak without end cannot hold up timers for more rounds than this, once all that
/// was ready has been read, ...
const ROUNDS_MAX: u32 = 8;
/// ... nor for longer than this.
const CATCH_UP_MS_MAX: u64 = 5_000;

impl PauseDetector {
    pub(crate) fn new(clock: SystemClock) -> PauseDetector {
        let turn_at = clock.now();
        PauseDetector { clock, turn_at, planned: None, catch_up: None }
    }

    pub(crate) fn clock(&self) -> SystemClock {
        self.clock.clone()
    }

    /// The thread is about to wait for so long; how long it may.
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

    /// The poller has returned. An interruption says nothing of sockets: whatever stopped the
    /// process may have interrupted it.
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

    /// Whether the thread was late, and still reads sockets before its timers fire.
    pub(crate) fn is_catching_up(&self) -> bool {
        self.catch_up.is_some()
    }

    /// Whether timers may fire in this turn, whose sockets were read, and what pause is over now.
    pub(crate) fn check_timers(
        &mut self,
        events: &Events,
        has_listed: bool,
    ) -> (bool, Option<ProcessPause>) {
        let Some(catch_up) = &mut self.catch_up else { return (true, None) };
        let now = self.clock.now();
        let is_quiet = catch_up.is_polled && events.is_empty() && !has_listed;
        if !is_quiet && catch_up.rounds_left > 0 && now < catch_up.ends_at {
            // With as many events as a poller tells of at once there are more to come.
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

impl ShardDriver {
    /// Ends the catch-up: everything received is read, and deadlines that passed during the pause
    /// are extended.
    pub(crate) fn end_pause(&mut self, pause: ProcessPause) {
        self.shard.note_pause(pause);
        let ms = pause.until.0 - pause.from.0;
        if ms >= LOGGED_MS && self.id == ShardId(0) {
            (self.log)(&BrokerEvent::ProcessPaused { ms });
        }
    }

    /// The time of day may have been changed since the last turn.
    pub(crate) fn check_time_of_day(&mut self) {
        let Some(by_ms) = self.shard.set_time_of_day(self.clock.time_of_day_offset_ms()) else {
            return;
        };
        if self.id == ShardId(0) {
            self.shard.keep_clock(&self.clock.reading());
            (self.log)(&BrokerEvent::TimeOfDayStepped { by_ms });
        }
    }

    pub(crate) fn has_listed_sockets(&self) -> bool {
        !self.listed.is_empty()
    }

    /// When a connection that is not open yet has to go.
    pub(crate) fn extend_handshake(&self, until: MonotonicMs) -> MonotonicMs {
        self.shard.last_pause().extend(until, self.connect_timeout_ms)
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

    /// An interrupted poller has not looked at sockets, however short the time was.
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
