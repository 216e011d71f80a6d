//! The queue of clients that wait for authentication. An entry lives as long as its connection, and
//! the queue is bounded in entries and bytes.
//!
//! The oldest entry comes first while waits are short. After a long wait of the oldest entry the
//! newest comes first: clients time out and reconnect, so the oldest are about to close, and the
//! newest will still be there for the answer. Then addresses take turns, so that an address which
//! floods the queue does not starve the others.

use super::backend::AuthAttempt;
use broker::AuthRequest;
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::time::{Duration, Instant};

#[derive(Default)]
pub(crate) struct AuthQueue {
    /// Entries that a backend has already handled, which precede the others.
    resumed: AuthQueueLane,
    arrived: AuthQueueLane,
    /// Bytes of the requests in `resumed` and `arrived`.
    bytes: usize,
    /// Entries added since the last removal of closed connections.
    pushed: usize,
}

#[derive(Default)]
struct AuthQueueLane {
    cases: VecDeque<AuthAttempt>,
    /// Entries served in this overload, by address.
    served: BTreeMap<Option<IpAddr>, u32>,
}

/// Number of addresses in `served`; beyond it all counts start again.
const ADDRESSES_MAX: usize = 4_096;

/// Overload: if the oldest request in a queue has waited longer, newer requests are served first.
const OVERLOAD_WAIT: Duration = Duration::from_millis(500);
/// Bound of queued bytes, since names and passwords may be long.
const QUEUE_BYTES_MAX: usize = 4 * 1024 * 1024;

impl AuthQueue {
    /// Adds an entry and returns the evicted entries with open connections, which have waited
    /// longest.
    pub(crate) fn push(&mut self, case: AuthAttempt, len_max: usize) -> Vec<AuthAttempt> {
        self.bytes += attempt_bytes(&case.request);
        self.arrived.cases.push_back(case);
        self.pushed += 1;
        // The cost of the scan is shared by the many entries added since the last scan.
        if self.is_above(len_max) && self.pushed > len_max / 8 {
            self.drop_closed();
        }
        let mut evicted = Vec::new();
        while self.is_above(len_max) {
            let Some(oldest) = self.arrived.cases.pop_front() else { break };
            self.bytes -= attempt_bytes(&oldest.request);
            if oldest.liveness.is_open() {
                evicted.push(oldest);
            }
        }
        evicted
    }

    /// Adds an entry that continues with its next backend or with [`AuthAttempt::work`].
    pub(crate) fn push_resumed(&mut self, case: AuthAttempt) {
        self.bytes += attempt_bytes(&case.request);
        self.resumed.cases.push_back(case);
    }

    /// Removes and returns the next entry whose connection is open; entries before with a closed
    /// connection are dropped.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<AuthAttempt> {
        let bytes = &mut self.bytes;
        self.resumed.pop(now, bytes).or_else(|| self.arrived.pop(now, bytes))
    }

    pub(crate) fn len(&self) -> usize {
        self.resumed.cases.len() + self.arrived.cases.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn is_above(&self, len_max: usize) -> bool {
        // The newest entry is kept even if its bytes exceed the bound.
        let len = self.arrived.cases.len();
        len > 1 && (len > len_max || self.bytes > QUEUE_BYTES_MAX)
    }

    fn drop_closed(&mut self) {
        self.pushed = 0;
        let bytes = &mut self.bytes;
        for lane in [&mut self.resumed, &mut self.arrived] {
            lane.cases.retain(|case| {
                let is_open = case.liveness.is_open();
                *bytes -= if is_open { 0 } else { attempt_bytes(&case.request) };
                is_open
            });
        }
    }
}

impl AuthQueueLane {
    fn pop(&mut self, now: Instant, bytes: &mut usize) -> Option<AuthAttempt> {
        while let Some(oldest) = self.cases.pop_front() {
            if !oldest.liveness.is_open() {
                *bytes -= attempt_bytes(&oldest.request);
                continue;
            }
            if now.saturating_duration_since(oldest.arrived_at) <= OVERLOAD_WAIT {
                *bytes -= attempt_bytes(&oldest.request);
                self.served.clear();
                return Some(oldest);
            }
            self.cases.push_front(oldest);
            break;
        }
        while let Some(next) = self.least_served().and_then(|at| self.cases.remove(at)) {
            *bytes -= attempt_bytes(&next.request);
            if next.liveness.is_open() {
                if self.served.len() >= ADDRESSES_MAX {
                    self.served.clear();
                }
                *self.served.entry(next.request.peer.ip()).or_default() += 1;
                return Some(next);
            }
        }
        None
    }

    /// Returns the index of the newest entry of the address served least in this overload.
    fn least_served(&self) -> Option<usize> {
        let served = |case: &AuthAttempt| self.served.get(&case.request.peer.ip()).copied();
        let all = self.cases.iter().enumerate().rev();
        all.min_by_key(|(_, case)| served(case).unwrap_or_default()).map(|(at, _)| at)
    }
}

fn attempt_bytes(request: &AuthRequest) -> usize {
    let password = request.password.as_ref().map_or(0, |secret| secret.0.len());
    let user_name = request.user_name.as_ref().map_or(0, |name| name.len());
    let step = request.step.as_ref().map_or(0, |step| {
        step.data.0.len() + step.memory.as_ref().map_or(0, |memory| memory.0.len())
    });
    size_of::<AuthAttempt>() + request.client_id.len() + user_name + password + step
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::BackendChain;
    use broker::{ListenerId, PeerAddress};
    use engine::ConnectionLiveness;

    fn case(id: &str, since: Instant) -> AuthAttempt {
        let request = AuthRequest {
            peer: PeerAddress::Network(([192, 0, 2, 1], 1).into()),
            version: mqtt::ProtocolVersion::V5,
            client_id: id.into(),
            user_name: None,
            password: None,
            listener: ListenerId(0),
            certificate: None,
            step: None,
        };
        AuthAttempt {
            request: request.into(),
            chain: BackendChain::default().into(),
            backend_index: 0,
            arrived_at: since,
            liveness: ConnectionLiveness::default(),
            work: None,
            answer: Box::new(|_| {}),
        }
    }

    fn drain(queue: &mut AuthQueue, now: Instant) -> Vec<String> {
        let all = std::iter::from_fn(|| queue.pop(now));
        all.map(|case| case.request.client_id.to_string()).collect()
    }

    #[test]
    fn the_oldest_comes_first_until_it_has_waited_too_long() {
        let start = Instant::now();
        let fill = || {
            let mut queue = AuthQueue::default();
            for id in ["a", "b", "c"] {
                assert!(queue.push(case(id, start), 10).is_empty());
            }
            queue.push_resumed(case("r", start));
            queue
        };
        assert_eq!(drain(&mut fill(), start + OVERLOAD_WAIT), ["r", "a", "b", "c"]);
        let mut queue = fill();
        let late = start + OVERLOAD_WAIT + Duration::from_millis(1);
        assert_eq!(drain(&mut queue, late), ["r", "c", "b", "a"]);
        assert_eq!((queue.bytes, queue.is_empty()), (0, true));
    }

    /// In an overload the newest request is served first, which a flooding client always has:
    /// addresses must take turns.
    #[test]
    fn addresses_take_turns_where_not_all_can_be_served() {
        let start = Instant::now();
        let late = start + OVERLOAD_WAIT + Duration::from_millis(1);
        let mut queue = AuthQueue::default();
        let from = |id: &str, host: u8| {
            let mut case = case(id, start);
            let peer = PeerAddress::Network(([192, 0, 2, host], 1).into());
            case.request = AuthRequest { peer, ..(*case.request).clone() }.into();
            case
        };
        for (id, host) in [("a", 7), ("b", 8), ("x1", 9), ("x2", 9), ("c", 7), ("x3", 9)] {
            queue.push(from(id, host), 100);
        }
        let next = |queue: &mut AuthQueue| queue.pop(late).unwrap().request.client_id.to_string();
        let mut came = Vec::new();
        for at in 0..9 {
            came.push(next(&mut queue));
            queue.push(from(&format!("y{at}"), 9), 100);
        }
        assert_eq!(came[..3], ["x3", "c", "b"], "one of each address, the newest first");
        assert!(came[3..6].contains(&"a".to_string()), "{came:?}");
    }

    #[test]
    fn a_closed_connection_is_never_served() {
        let start = Instant::now();
        let mut queue = AuthQueue::default();
        let closed: Vec<_> = (0..9).map(|_| case("gone", start)).collect();
        let flags: Vec<_> = closed.iter().map(|case| case.liveness.clone()).collect();
        for (at, case) in closed.into_iter().enumerate() {
            if at % 2 == 0 {
                queue.push_resumed(case);
            } else {
                queue.push(case, 100);
            }
        }
        queue.push(case("here", start), 100);
        flags.iter().for_each(ConnectionLiveness::close);
        assert_eq!(drain(&mut queue, start), ["here"]);
        assert_eq!((queue.bytes, queue.is_empty()), (0, true));
    }

    #[test]
    fn a_full_queue_lets_the_oldest_go_and_closed_ones_before_it() {
        let start = Instant::now();
        let mut queue = AuthQueue::default();
        for id in ["a", "b", "c"] {
            queue.push(case(id, start), 3);
        }
        let evicted = queue.push(case("d", start), 3);
        assert_eq!(evicted.len(), 1);
        assert_eq!(&*evicted[0].request.client_id, "a");
        queue.arrived.cases[1].liveness.close();
        assert!(queue.push(case("e", start), 3).is_empty(), "c made room");
        assert_eq!(drain(&mut queue, start), ["b", "d", "e"]);
        assert_eq!(queue.bytes, 0);
    }

    #[test]
    fn long_passwords_count_by_their_bytes() {
        let start = Instant::now();
        let mut queue = AuthQueue::default();
        let long = || {
            let mut long = case("long", start);
            let password =
                Some(broker::peer::authentication::SecretBytes(vec![0; 64 * 1024].into()));
            long.request = AuthRequest { password, ..(*long.request).clone() }.into();
            long
        };
        let evicted: usize = (0..100).map(|_| queue.push(long(), 1000).len()).sum();
        assert!((36..=40).contains(&evicted), "{evicted}");
        assert!(queue.bytes <= QUEUE_BYTES_MAX);
    }
}
