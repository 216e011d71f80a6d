//! The queue of requests that wait for a connection to a server. Requests of closed clients are
//! skipped. The oldest request comes first while waits are short, and the newest after a long wait
//! of the oldest, as in the authenticator's queue.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::oneshot::{self, Sender};
use transport::ConnectionLiveness;

pub(crate) struct ConnectionQueue {
    state: Mutex<ConnectionQueueState>,
}

struct ConnectionQueueState {
    /// Number of connections that may still be used or opened.
    free: usize,
    waiting: VecDeque<WaitingRequest>,
}

struct WaitingRequest {
    since: Instant,
    liveness: ConnectionLiveness,
    permit_sender: Sender<ConnectionPermit>,
}

/// The right to use one connection; on drop the next request in the [`ConnectionQueue`] gets the
/// permit.
pub(crate) struct ConnectionPermit {
    queue: Option<Arc<ConnectionQueue>>,
}

/// Error: the request was removed from the queue, to make room for another or because the client of
/// the request has closed its connection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RequestEvicted;

/// A longer wait of the oldest request means overload: `next` then takes the newest.
const OVERLOAD_WAIT: Duration = Duration::from_millis(500);

impl ConnectionQueue {
    pub(crate) fn new(connections_max: usize) -> Arc<ConnectionQueue> {
        let state = ConnectionQueueState { free: connections_max.max(1), waiting: VecDeque::new() };
        Arc::new(ConnectionQueue { state: Mutex::new(state) })
    }

    pub(crate) async fn acquire(
        self: &Arc<ConnectionQueue>,
        liveness: &ConnectionLiveness,
    ) -> Result<ConnectionPermit, RequestEvicted> {
        let turn = {
            let mut state = self.state();
            if state.free > 0 {
                state.free -= 1;
                return Ok(ConnectionPermit { queue: Some(self.clone()) });
            }
            let (turn, comes) = oneshot::channel();
            let liveness = liveness.clone();
            state.waiting.push_back(WaitingRequest {
                since: Instant::now(),
                liveness,
                permit_sender: turn,
            });
            comes
        };
        turn.await.map_err(|_| RequestEvicted)
    }

    /// Evicts the oldest waiting request, to make room. Returns whether there was one; its client
    /// may have closed already.
    pub(crate) fn evict_oldest(&self) -> bool {
        self.state().waiting.pop_front().is_some()
    }

    fn grant_next(self: &Arc<ConnectionQueue>) {
        let mut permit = ConnectionPermit { queue: Some(self.clone()) };
        loop {
            let next = {
                let mut state = self.state();
                let next = state.next(Instant::now());
                if next.is_none() {
                    permit.queue = None;
                    state.free += 1;
                    return;
                }
                next
            };
            match next.map(|question| question.permit_sender.send(permit)) {
                // The request was abandoned: offer the permit to the next.
                Some(Err(unused)) => permit = unused,
                _ => return,
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, ConnectionQueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionQueueState {
    fn next(&mut self, now: Instant) -> Option<WaitingRequest> {
        while self.waiting.front().is_some_and(|oldest| !oldest.is_wanted()) {
            self.waiting.pop_front();
        }
        let oldest = self.waiting.front()?;
        if now.saturating_duration_since(oldest.since) <= OVERLOAD_WAIT {
            return self.waiting.pop_front();
        }
        while let Some(newest) = self.waiting.pop_back() {
            if newest.is_wanted() {
                return Some(newest);
            }
        }
        None
    }
}

impl WaitingRequest {
    fn is_wanted(&self) -> bool {
        self.liveness.is_open() && !self.permit_sender.is_closed()
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        if let Some(queue) = self.queue.take() {
            queue.grant_next();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};

    type Turn<'a> = Pin<&'a mut dyn Future<Output = Result<ConnectionPermit, RequestEvicted>>>;

    fn poll(turn: &mut Turn<'_>) -> Poll<Result<ConnectionPermit, RequestEvicted>> {
        turn.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_question_of_a_closed_connection_is_passed_by() {
        let queue = ConnectionQueue::new(1);
        let [open, closed] = [(); 2].map(|()| ConnectionLiveness::default());
        let mut first: Turn<'_> = pin!(queue.acquire(&open));
        let mut second: Turn<'_> = pin!(queue.acquire(&closed));
        let mut third: Turn<'_> = pin!(queue.acquire(&open));
        let Poll::Ready(Ok(permit)) = poll(&mut first) else { panic!("it is free") };
        assert!(poll(&mut second).is_pending() && poll(&mut third).is_pending());
        closed.close();
        drop(permit);
        let Poll::Ready(Ok(permit)) = poll(&mut third) else { panic!("its turn") };
        assert!(matches!(poll(&mut second), Poll::Ready(Err(RequestEvicted))));
        drop(permit);
        assert_eq!(queue.state().free, 1);
    }

    #[test]
    fn a_question_that_is_not_waited_for_gives_its_turn_away() {
        let queue = ConnectionQueue::new(1);
        let open = ConnectionLiveness::default();
        let Poll::Ready(Ok(permit)) = poll(&mut (pin!(queue.acquire(&open)) as Turn<'_>)) else {
            panic!("it is free")
        };
        {
            let mut timed_out: Turn<'_> = pin!(queue.acquire(&open));
            assert!(poll(&mut timed_out).is_pending());
        }
        {
            let mut too_late: Turn<'_> = pin!(queue.acquire(&open));
            assert!(poll(&mut too_late).is_pending());
            drop(permit);
        }
        assert_eq!(queue.state().free, 1, "its permit came back");
    }

    #[test]
    fn the_newest_comes_first_under_overload_and_the_oldest_makes_room() {
        let queue = ConnectionQueue::new(1);
        let open = ConnectionLiveness::default();
        let mut held: Turn<'_> = pin!(queue.acquire(&open));
        let Poll::Ready(Ok(permit)) = poll(&mut held) else { panic!("it is free") };
        let mut turns: [Turn<'_>; 3] =
            [pin!(queue.acquire(&open)), pin!(queue.acquire(&open)), pin!(queue.acquire(&open))];
        turns.iter_mut().for_each(|turn| assert!(poll(turn).is_pending()));
        assert!(queue.evict_oldest());
        assert!(matches!(poll(&mut turns[0]), Poll::Ready(Err(RequestEvicted))));
        let late = Instant::now() + OVERLOAD_WAIT + Duration::from_secs(1);
        let newest = queue.state().next(late).expect("somebody waits");
        assert!(newest.permit_sender.send(permit).is_ok());
        let Poll::Ready(Ok(permit)) = poll(&mut turns[2]) else { panic!("the newest") };
        drop(permit);
        assert!(matches!(poll(&mut turns[1]), Poll::Ready(Ok(_))));
        assert!(!queue.evict_oldest());
    }
}
