//! Pending requests in both directions, with the data needed to deliver their responses.
//!
//! Invariant: each direction has a bound in bytes, even if requesters disconnect.

use super::peer_message::{PeerId, SessionReceipt};
use super::peer_set::PeerSet;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use tokio::time::Instant;

/// A request of an MQTT client to sockets.
pub(super) struct OutboundRequest {
    pub(super) topic: Box<str>,
    pub(super) response: Option<Box<str>>,
    pub(super) correlation: Option<Box<[u8]>>,
    /// Receipt for the local session, due with the response or at the timeout.
    pub(super) receipt: Option<SessionReceipt>,
    pub(super) due: Instant,
    /// Peer which has the request; for a survey the newest peer at the time of the request.
    pub(super) assigned_peer: Option<PeerId>,
}

/// A request of a socket to MQTT clients.
pub(super) struct InboundRequest {
    pub(super) peer: PeerId,
    pub(super) envelope: Vec<Vec<u8>>,
    pub(super) due: Instant,
}

/// Pending requests with their deadlines. Request ids are random, see `random_number`.
#[derive(Default)]
pub(super) struct PendingRequests {
    outbound: BTreeMap<u32, OutboundRequest>,
    inbound: BTreeMap<u64, InboundRequest>,
    /// Memory of the requests to sockets.
    outbound_bytes: usize,
    outbound_by_deadline: BTreeSet<(Instant, u32)>,
    inbound_by_deadline: BTreeSet<(Instant, u64)>,
    /// Number of requests of each peer.
    inbound_by_peer: BTreeMap<PeerId, usize>,
    /// Memory of the requests of peers.
    inbound_bytes: usize,
    /// Requests of departed sockets. They stay while there is room, so a response is counted as
    /// `NoPeer` and not as an unknown one.
    abandoned: BTreeSet<(Instant, u64)>,
    /// Number of departed peers at the last search for abandoned requests.
    left: u64,
    drawn: u64,
    random: RandomState,
}

/// Largest number of pending requests of each direction.
const MOST: usize = 4096;
/// Number of pending requests below which a socket may send one more, even above [`MOST`], while
/// there are bytes.
const MOST_OF_ONE: usize = 16;
/// Memory of a request in addition to its bytes.
const QUESTION_BYTES: usize = 256;
/// Memory of a frame of an envelope in addition to its bytes.
const FRAME_BYTES: usize = 48;
/// Number of request ids: SP and ZeroMQ requests use 31 bits.
const NUMBERS: u64 = 1 << 31;

impl OutboundRequest {
    fn cost(&self) -> usize {
        let response = self.response.as_ref().map_or(0, |topic| topic.len());
        let correlation = self.correlation.as_ref().map_or(0, |data| data.len());
        QUESTION_BYTES + self.topic.len() + response + correlation
    }
}

impl InboundRequest {
    fn cost(&self) -> usize {
        QUESTION_BYTES + self.envelope.iter().map(|own| own.len() + FRAME_BYTES).sum::<usize>()
    }
}

impl PendingRequests {
    /// Whether requests to sockets have reached a bound. A first request always has room.
    pub(super) fn is_full(&self, bytes_max: usize) -> bool {
        self.outbound.len() >= MOST || self.outbound_bytes >= bytes_max
    }

    /// Whether a socket may send one more request.
    pub(super) fn has_room_for_peer(&self, peer: PeerId, bytes_max: usize) -> bool {
        let has_few = self.inbound_by_peer.get(&peer).is_none_or(|own| *own < MOST_OF_ONE);
        !self.is_above_half(bytes_max) || has_few && self.inbound_bytes < bytes_max
    }

    /// Whether only peers with few requests may send more: half of the bytes are reserved for them.
    fn is_above_half(&self, bytes_max: usize) -> bool {
        self.inbound.len() >= MOST || self.inbound_bytes >= bytes_max / 2
    }

    /// Drops requests of departed peers if there is no room for the next request.
    pub(super) fn make_room(&mut self, bytes_max: usize, peers: &PeerSet) {
        if !self.is_above_half(bytes_max) {
            return;
        }
        let left = peers.departed_count();
        if self.abandoned.is_empty() && left != self.left {
            self.left = left;
            let gone = peers.departed_of(self.inbound_by_peer.keys().copied());
            let is_gone =
                |number| self.inbound.get(number).is_some_and(|own| gone.contains(&own.peer));
            let all = self.inbound_by_deadline.iter().filter(|(_, number)| is_gone(number));
            self.abandoned = all.copied().collect();
        }
        while self.is_above_half(bytes_max)
            && let Some((_, number)) = self.abandoned.first().copied()
        {
            self.take_inbound(number);
        }
    }

    /// Records that the requester has disconnected.
    pub(super) fn mark_requester_gone(&mut self, number: u64) {
        if let Some(told) = self.inbound.get(&number) {
            self.abandoned.insert((told.due, number));
        }
    }

    /// Returns a random number, different for each gateway, so peers cannot guess request ids.
    fn random_number(&mut self) -> u64 {
        self.drawn += 1;
        self.random.hash_one(self.drawn)
    }

    /// Adds a request and returns its random id. Sockets may send responses over a new connection;
    /// a response to an earlier gateway or another process must not match a request.
    pub(super) fn add_outbound(&mut self, asked: OutboundRequest) -> u32 {
        let number = loop {
            let number = (self.random_number() % NUMBERS) as u32;
            if !self.outbound.contains_key(&number) {
                break number;
            }
        };
        self.outbound_by_deadline.insert((asked.due, number));
        self.outbound_bytes += asked.cost();
        self.outbound.insert(number, asked);
        number
    }

    /// Returns the proof of a request. A peer which reconnects shows by the proof that it got the
    /// request.
    pub(super) fn proof(&self, number: u32) -> [u8; 8] {
        self.random.hash_one(("asked", number)).to_be_bytes()
    }

    /// Records which peer has the request now.
    pub(super) fn assign_peer(&mut self, number: u32, peer: PeerId) {
        if let Some(asked) = self.outbound.get_mut(&number) {
            asked.assigned_peer = Some(peer);
        }
    }

    pub(super) fn assigned_peer(&self, number: u32) -> Option<PeerId> {
        self.outbound.get(&number)?.assigned_peer
    }

    /// Returns the request to which a response belongs, by its number; `None` if the request is
    /// unknown or has ended. `is_last` removes the request; a survey stays for further responses.
    pub(super) fn take_outbound(&mut self, number: u32, is_last: bool) -> Option<OutboundRequest> {
        if is_last {
            return self.remove_outbound(number);
        }
        let asked = self.outbound.get(&number)?;
        Some(OutboundRequest {
            topic: asked.topic.clone(),
            response: asked.response.clone(),
            correlation: asked.correlation.clone(),
            receipt: None,
            due: asked.due,
            assigned_peer: asked.assigned_peer,
        })
    }

    fn remove_outbound(&mut self, number: u32) -> Option<OutboundRequest> {
        let asked = self.outbound.remove(&number)?;
        self.outbound_by_deadline.remove(&(asked.due, number));
        self.outbound_bytes -= asked.cost();
        Some(asked)
    }

    /// Adds a request and returns its random id. Any client which knows the id may respond.
    pub(super) fn add_inbound(&mut self, told: InboundRequest) -> u64 {
        let number = loop {
            let number = self.random_number();
            if !self.inbound.contains_key(&number) {
                break number;
            }
        };
        self.inbound_by_deadline.insert((told.due, number));
        *self.inbound_by_peer.entry(told.peer).or_default() += 1;
        self.inbound_bytes += told.cost();
        self.inbound.insert(number, told);
        number
    }

    pub(super) fn take_inbound(&mut self, number: u64) -> Option<InboundRequest> {
        let told = self.inbound.remove(&number)?;
        self.inbound_by_deadline.remove(&(told.due, number));
        self.abandoned.remove(&(told.due, number));
        self.inbound_bytes -= told.cost();
        if let Some(own) = self.inbound_by_peer.get_mut(&told.peer) {
            *own -= 1;
            if *own == 0 {
                self.inbound_by_peer.remove(&told.peer);
            }
        }
        Some(told)
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let asked = self.outbound_by_deadline.first().map(|(due, _)| *due);
        let told = self.inbound_by_deadline.first().map(|(due, _)| *due);
        asked.into_iter().chain(told).min()
    }

    /// Removes expired requests. Returns topics and receipts of requests to sockets.
    pub(super) fn expire(&mut self, now: Instant) -> Vec<(Box<str>, Option<SessionReceipt>)> {
        let mut found = Vec::new();
        while let Some((due, number)) = self.outbound_by_deadline.first().copied()
            && due <= now
        {
            found.extend(self.remove_outbound(number).map(|asked| (asked.topic, asked.receipt)));
        }
        while let Some((due, number)) = self.inbound_by_deadline.first().copied()
            && due <= now
        {
            self.take_inbound(number);
        }
        found
    }

    /// Drops requests whose receipts belong to an ended connection: the session sends these
    /// requests again.
    pub(super) fn forget_receipts(&mut self) {
        self.outbound.retain(|_, asked| asked.receipt.is_none());
        let asked = &self.outbound;
        self.outbound_by_deadline.retain(|(_, number)| asked.contains_key(number));
        self.outbound_bytes = asked.values().map(OutboundRequest::cost).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::gateway;
    use super::*;
    use mqtt::PacketId;
    use std::sync::Arc;
    use std::time::Duration;

    fn asked(due: Instant) -> OutboundRequest {
        let (response, correlation) = (Some("r".into()), None);
        OutboundRequest {
            topic: "t".into(),
            response,
            correlation,
            receipt: None,
            due,
            assigned_peer: None,
        }
    }

    #[test]
    fn an_answer_finds_its_question_once_and_in_time() {
        let (mut errands, now) = (PendingRequests::default(), Instant::now());
        let second = now + Duration::from_secs(1);
        let (one, other) =
            (errands.add_outbound(asked(second)), errands.add_outbound(asked(second)));
        assert_eq!(errands.next_deadline(), Some(second));
        assert!(
            errands.take_outbound(one, true).is_some()
                && errands.take_outbound(one, true).is_none()
        );
        assert_eq!(errands.expire(now).len(), 0);
        assert_eq!(errands.expire(second).len(), 1);
        assert!(errands.take_outbound(other, true).is_none());
        assert_eq!(errands.next_deadline(), None);
    }

    #[test]
    fn numbers_of_questions_are_not_to_be_guessed() {
        let told = |errands: &mut PendingRequests| {
            errands.add_inbound(InboundRequest {
                peer: 1,
                envelope: Vec::new(),
                due: Instant::now(),
            })
        };
        let asked =
            |errands: &mut PendingRequests| u64::from(errands.add_outbound(asked(Instant::now())));
        let kinds: [&dyn Fn(&mut PendingRequests) -> u64; 2] = [&told, &asked];
        for draw in kinds {
            let numbers = |mut errands: PendingRequests| [draw(&mut errands), draw(&mut errands)];
            let (one, other) =
                (numbers(PendingRequests::default()), numbers(PendingRequests::default()));
            assert!(one.iter().all(|number| !other.contains(number)), "{one:?} {other:?}");
            assert_ne!(one[1].wrapping_sub(one[0]), other[1].wrapping_sub(other[0]));
        }
    }

    #[test]
    fn a_survey_is_answered_until_it_is_over() {
        let (mut errands, now) = (PendingRequests::default(), Instant::now());
        let number = errands.add_outbound(asked(now));
        assert!(
            errands.take_outbound(number, false).is_some()
                && errands.take_outbound(number, false).is_some()
        );
        assert_eq!(errands.expire(now).len(), 1);
        assert!(errands.take_outbound(number, false).is_none());
    }

    #[test]
    fn questions_that_are_answered_leave_room_for_others() {
        let (mut errands, now) = (PendingRequests::default(), Instant::now());
        let (told, later) =
            (|| InboundRequest { peer: 1, envelope: Vec::new(), due: now }, asked(now));
        // A pending request without a response must not block further requests.
        errands.add_inbound(told());
        errands.add_outbound(later);
        for _ in 0..3 * MOST {
            assert!(
                errands.has_room_for_peer(1, usize::MAX) && !errands.is_full(2 * QUESTION_BYTES)
            );
            let numbers = (errands.add_inbound(told()), errands.add_outbound(asked(now)));
            assert!(errands.take_inbound(numbers.0).is_some());
            assert!(errands.take_outbound(numbers.1, true).is_some());
        }
        (0..MOST).for_each(|_| _ = errands.add_outbound(asked(now)));
        assert!(errands.is_full(usize::MAX));
        errands.expire(now);
        assert_eq!(errands.outbound_bytes, 0);
    }

    #[test]
    fn long_questions_are_fewer() {
        const BYTES_MAX: usize = 1 << 20;
        let (mut errands, now) = (PendingRequests::default(), Instant::now());
        let long = || OutboundRequest {
            response: Some("r".repeat(1 << 15).into()),
            correlation: Some(vec![0; 1 << 15].into()),
            receipt: Some((1, PacketId::MIN)),
            ..asked(now)
        };
        let mut count = 0;
        while !errands.is_full(BYTES_MAX) {
            errands.add_outbound(long());
            count += 1;
        }
        assert_eq!(count, 16);
        errands.forget_receipts();
        assert!(!errands.is_full(1), "nobody asks any more");
    }

    #[test]
    fn who_asks_much_leaves_room_for_who_asks_little() {
        let (mut errands, now) = (PendingRequests::default(), Instant::now());
        let told = |peer| InboundRequest { peer, envelope: Vec::new(), due: now };
        let may = |errands: &PendingRequests, peer| errands.has_room_for_peer(peer, usize::MAX);
        while may(&errands, 1) {
            errands.add_inbound(told(1));
        }
        assert_eq!(errands.inbound.len(), MOST);
        (0..MOST_OF_ONE).for_each(|_| {
            assert!(may(&errands, 2));
            errands.add_inbound(told(2));
        });
        assert!(!may(&errands, 2) && may(&errands, 3));
        errands.expire(now);
        assert!(may(&errands, 1) && errands.inbound_by_peer.is_empty());
    }

    /// The bound holds for any number of requesters, connected or not.
    #[test]
    fn what_sockets_ask_has_a_bound_of_bytes() {
        const BYTES_MAX: usize = 1 << 20;
        let settings = gateway(
            &[("protocol", "sp"), ("pattern", "rep"), ("listen", "tcp://127.0.0.1:1")],
            &[],
            &[&[("topic", "questions")]],
        );
        let (settings, peers, now) = (settings.unwrap(), PeerSet::default(), Instant::now());
        let mut errands = PendingRequests::default();
        let mut asks = |peer, count: usize| {
            for at in 0..count {
                errands.make_room(BYTES_MAX, &peers);
                if !errands.has_room_for_peer(peer, BYTES_MAX) {
                    return at;
                }
                errands.add_inbound(InboundRequest {
                    peer,
                    envelope: vec![vec![b'i'; 255]; 15],
                    due: now,
                });
                let all = errands.inbound.values().map(InboundRequest::cost).sum::<usize>();
                assert_eq!(all, errands.inbound_bytes);
                assert!(all < BYTES_MAX + 5000 && errands.abandoned.len() <= errands.inbound.len());
            }
            count
        };
        let enter = || peers.add_peer(&settings, Arc::default()).unwrap();
        let stays = enter();
        let own = asks(stays, MOST);
        assert!(own > 100, "{own} of one that stays, which is half of all");
        for _ in 0..1000 {
            let goes = enter();
            assert_eq!(asks(goes, MOST_OF_ONE), MOST_OF_ONE, "others have gone");
            assert_eq!(asks(goes, 1), 0);
            peers.remove_peer(goes, std::iter::empty(), false);
        }
        assert_eq!(asks(stays, 1), 0);
        let stay: Vec<usize> = (0..20).map(|_| asks(enter(), MOST_OF_ONE)).collect();
        assert_eq!((stay[0], stay[19]), (MOST_OF_ONE, 0), "nobody has gone");
        peers.remove_peer(stays, std::iter::empty(), false);
        assert_eq!(asks(enter(), MOST_OF_ONE), MOST_OF_ONE);
    }
}
