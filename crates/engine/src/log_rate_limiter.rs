//! Log lines of which there may be very many: so many a second are written. What is withheld comes
//! as one line when the second is over, though nothing else happens, and at the end of the process.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Limits one kind of log line.
#[derive(Clone, Debug)]
pub struct LogRateLimiter {
    per_s: u32,
    period: Arc<Mutex<LogRatePeriod>>,
}

/// The second that runs.
#[derive(Default)]
struct LogRatePeriod {
    ends: Option<Instant>,
    written: u32,
    withheld: u64,
    /// Writes the first line that was withheld, with the number of all.
    line: Option<Box<dyn FnOnce(u64) + Send>>,
}

impl std::fmt::Debug for LogRatePeriod {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogPeriod").field("withheld", &self.withheld).finish_non_exhaustive()
    }
}

/// Returns the count for a field of a log line, which is absent where it is 0.
pub fn nonzero(count: u64) -> Option<u64> {
    (count > 0).then_some(count)
}

const PERIOD: Duration = Duration::from_secs(1);

impl LogRateLimiter {
    pub fn new(per_s: u32) -> LogRateLimiter {
        LogRateLimiter { per_s, period: Arc::default() }
    }

    /// Counts `times` events, and logs if a line is due. `line` receives the number of events since
    /// the line before.
    pub fn log(&self, times: u64, line: impl FnOnce(u64) + Send + 'static) {
        let now = Instant::now();
        let mut period = lock(&self.period);
        if period.withheld == 0 && period.ends.is_none_or(|ends| now >= ends) {
            (period.ends, period.written) = (Some(now + PERIOD), 0);
        }
        if period.withheld == 0 && period.written < self.per_s {
            period.written += 1;
            drop(period);
            return line(times);
        }
        period.withheld += times;
        if period.line.is_none() {
            period.line = Some(Box::new(line));
            let ends = period.ends.unwrap_or(now);
            drop(period);
            schedule(ends, self.period.clone());
        }
    }
}

impl Default for LogRateLimiter {
    fn default() -> LogRateLimiter {
        LogRateLimiter::new(1)
    }
}

/// Periods with withheld lines, in the order of their ends. A thread waits for them while there are
/// any.
struct WithheldLines {
    waiting: Vec<(Instant, Arc<Mutex<LogRatePeriod>>)>,
    is_served: bool,
}

static LINES: Mutex<WithheldLines> =
    Mutex::new(WithheldLines { waiting: Vec::new(), is_served: false });

fn schedule(ends: Instant, period: Arc<Mutex<LogRatePeriod>>) {
    let mut lines = lock(&LINES);
    lines.waiting.push((ends, period));
    if lines.is_served {
        return;
    }
    let served = thread::Builder::new().name("log-withheld".to_string()).spawn(serve);
    // Without a thread they come with the end of the process.
    lines.is_served = served.is_ok();
}

fn serve() {
    loop {
        let mut lines = lock(&LINES);
        let Some(&(ends, _)) = lines.waiting.first() else {
            lines.is_served = false;
            return;
        };
        let now = Instant::now();
        if ends > now {
            drop(lines);
            thread::sleep(ends - now);
            continue;
        }
        let (_, period) = lines.waiting.remove(0);
        drop(lines);
        write(&period);
    }
}

/// The process ends: all that was withheld is written.
pub fn flush() {
    let waiting = std::mem::take(&mut lock(&LINES).waiting);
    waiting.iter().for_each(|(_, period)| write(period));
}

fn write(period: &Mutex<LogRatePeriod>) {
    let mut period = lock(period);
    let (line, count) = (period.line.take(), std::mem::take(&mut period.withheld));
    (period.ends, period.written) = (Some(Instant::now() + PERIOD), 1);
    drop(period);
    if let Some(line) = line {
        line(count);
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    // Whole between any two statements of ours.
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn what_is_withheld_comes_though_nothing_else_happens() {
        let limiter = LogRateLimiter::new(2);
        let (to, from) = mpsc::channel();
        for _ in 0..9 {
            let to = to.clone();
            limiter.log(1, move |count| to.send(count).unwrap_or_default());
        }
        drop(to);
        // The last one is written by the thread; a minute is for a loaded host.
        let waits = Duration::from_secs(60);
        let told: Vec<_> = std::iter::from_fn(|| from.recv_timeout(waits).ok()).collect();
        assert_eq!(told, [1, 1, 7]);
    }
}
