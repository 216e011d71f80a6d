//! Log lines with a rate limit. The count of withheld events is logged as one line at the end of
//! the second, even without a further event, and at the end of the process.

use crate::clock::SystemClock;
use broker::{LogRateLimiter, MonotonicMs};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// Log lines of one kind, written at the rate that a [`LogRateLimiter`] allows.
#[derive(Clone, Debug)]
pub struct LimitedLog(Arc<Mutex<LimitedLogState>>);

struct LimitedLogState {
    limiter: LogRateLimiter,
    /// Writes the first withheld line, with the number of all withheld events.
    line: Option<Box<dyn FnOnce(u64) + Send>>,
}

impl std::fmt::Debug for LimitedLogState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LimitedLogState").field("limiter", &self.limiter).finish_non_exhaustive()
    }
}

/// Returns the count for a field of a log line; `None` for 0, so that the field is absent.
pub fn nonzero(count: u64) -> Option<u64> {
    (count > 0).then_some(count)
}

impl LimitedLog {
    pub fn new(lines_per_s: u16) -> LimitedLog {
        let limiter = LogRateLimiter::new(lines_per_s);
        LimitedLog(Arc::new(Mutex::new(LimitedLogState { limiter, line: None })))
    }

    /// Counts `events`, and logs if a line is allowed now. `line` receives the number of events
    /// since the previous line.
    pub fn log(&self, events: u64, line: impl FnOnce(u64) + Send + 'static) {
        let mut state = lock(&self.0);
        if let Some(count) = state.limiter.count(events, now()) {
            state.line = None;
            drop(state);
            return line(count);
        }
        if state.line.is_none() {
            state.line = Some(Box::new(line));
            let due = state.limiter.next_line_at();
            drop(state);
            schedule(due, self.clone());
        }
    }

    /// Writes the withheld line, if there is one.
    fn flush(&self) {
        let mut state = lock(&self.0);
        let (line, count) = (state.line.take(), state.limiter.flush(now()));
        drop(state);
        if let (Some(line), Some(count)) = (line, count) {
            line(count);
        }
    }
}

impl Default for LimitedLog {
    fn default() -> LimitedLog {
        LimitedLog::new(1)
    }
}

/// Logs with a withheld line, and when each line is due. One thread serves the queue until the
/// queue is empty.
struct WithheldLines {
    waiting: Vec<(MonotonicMs, LimitedLog)>,
    is_served: bool,
}

static LINES: Mutex<WithheldLines> =
    Mutex::new(WithheldLines { waiting: Vec::new(), is_served: false });

fn schedule(due: MonotonicMs, log: LimitedLog) {
    let mut lines = lock(&LINES);
    lines.waiting.push((due, log));
    if lines.is_served {
        return;
    }
    let served = thread::Builder::new().name("log-withheld".to_string()).spawn(serve);
    // Without a thread, the lines are written at the end of the process.
    lines.is_served = served.is_ok();
}

fn serve() {
    loop {
        let mut lines = lock(&LINES);
        let Some(&(due, _)) = lines.waiting.first() else {
            lines.is_served = false;
            return;
        };
        let early_ms = due.0.saturating_sub(now().0);
        if early_ms > 0 {
            drop(lines);
            thread::sleep(Duration::from_millis(early_ms));
            continue;
        }
        let (_, log) = lines.waiting.remove(0);
        drop(lines);
        log.flush();
    }
}

/// Writes all withheld lines, at the end of the process.
pub fn flush() {
    let waiting = std::mem::take(&mut lock(&LINES).waiting);
    waiting.iter().for_each(|(_, log)| log.flush());
}

/// Returns a time whose origin is arbitrary: only differences are meaningful.
fn now() -> MonotonicMs {
    MonotonicMs(SystemClock::monotonic_ns() / 1_000_000)
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    // After a panic of a lock holder the state is still consistent.
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn what_is_withheld_comes_though_nothing_else_happens() {
        let log = LimitedLog::new(2);
        let (to, from) = mpsc::channel();
        for _ in 0..9 {
            let to = to.clone();
            log.log(1, move |count| to.send(count).unwrap_or_default());
        }
        drop(to);
        // The last one is written by the thread; a minute is for a loaded host.
        let waits = Duration::from_secs(60);
        let told: Vec<_> = std::iter::from_fn(|| from.recv_timeout(waits).ok()).collect();
        assert_eq!(told, [1, 1, 7]);
    }
}
