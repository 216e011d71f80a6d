//! Timeouts of the control plane that survive a pause of the process: a timer that fires late shows
//! that no task ran meanwhile, so the awaited data may have arrived unread.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

pub use tokio::time::error::Elapsed;

/// Delay of a timer that counts as a pause.
const PAUSE_MIN: Duration = Duration::from_millis(500);

/// Works as `tokio::time::timeout`, but after a pause the work gets the length of the pause as
/// additional time, at most `within`.
pub async fn timeout<T>(within: Duration, work: impl Future<Output = T>) -> Result<T, Elapsed> {
    timeout_until(Instant::now() + within, within, work).await
}

async fn timeout_until<T>(
    mut deadline: Instant,
    within: Duration,
    work: impl Future<Output = T>,
) -> Result<T, Elapsed> {
    let mut work = pin!(work);
    loop {
        match timeout_at(deadline, work.as_mut()).await {
            Err(elapsed) => match extended_deadline(deadline, Instant::now(), within) {
                Some(extended) => deadline = extended,
                None => return Err(elapsed),
            },
            done => return done,
        }
    }
}

/// Returns the extended deadline if a pause came before `now`, when the deadline was noticed.
pub fn extended_deadline(deadline: Instant, now: Instant, within: Duration) -> Option<Instant> {
    let late = now.saturating_duration_since(deadline);
    (late >= PAUSE_MIN).then(|| now + late.min(within))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_is_extended_by_a_pause_and_never_by_more_than_it_was() {
        let (deadline, within) = (Instant::now(), Duration::from_secs(5));
        assert_eq!(extended_deadline(deadline, deadline + PAUSE_MIN / 2, within), None);
        let now = deadline + Duration::from_secs(2);
        assert_eq!(extended_deadline(deadline, now, within), Some(now + Duration::from_secs(2)));
        let now = deadline + Duration::from_secs(60);
        assert_eq!(extended_deadline(deadline, now, within), Some(now + within));
    }

    #[test]
    fn nobody_waits_for_what_never_comes() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("this host has room for it").block_on(async {
            let never = timeout(Duration::from_millis(20), std::future::pending::<()>());
            assert!(never.await.is_err());
        });
    }
}
