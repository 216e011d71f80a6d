//! Quarantine of messages in flight when several connections ended. A socket which refuses a long
//! message closes its connection without a reason, and the next socket would get the same message
//! first.
//!
//! The cause is only a guess, so no message is dropped: the suspects wait while other messages
//! pass, and are retried with growing pauses. If the local session sends a message again, the
//! message is recognized by its packet id and length.

use super::peer_message::PeerMessage;
use mqtt::PacketId;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::time::Instant;

/// Suspect messages and the schedule of their retries.
pub(super) struct QuarantineQueue {
    /// Length of each message, and the number of connections which ended while the message was in
    /// flight.
    disconnects: BTreeMap<PacketId, (usize, u32)>,
    /// Waiting messages. The local session holds them too.
    waiting: VecDeque<Arc<PeerMessage>>,
    next: Instant,
    /// Pause before the retry after the next one.
    pause: Duration,
}

/// Number of ended connections which make a message suspect: fewer may be restarts of the peer or
/// of a proxy.
const HANDFUL: u32 = 3;
const PAUSE_FIRST: Duration = Duration::from_secs(1);
const PAUSE_LAST: Duration = Duration::from_secs(60);
/// Number of remembered messages; a forgotten message is counted from the beginning.
const ENDED_MAX: usize = 1024;

impl PeerMessage {
    /// Whether the message was in flight when at least `HANDFUL` connections ended.
    pub(super) fn is_suspect(&self) -> bool {
        self.ends.load(Relaxed) >= HANDFUL
    }
}

impl Default for QuarantineQueue {
    fn default() -> QuarantineQueue {
        QuarantineQueue {
            disconnects: BTreeMap::new(),
            waiting: VecDeque::new(),
            next: Instant::now(),
            pause: PAUSE_FIRST,
        }
    }
}

impl QuarantineQueue {
    /// Returns the number of messages in quarantine.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Counts a connection which ended with this message in flight. Returns the number of such
    /// connections.
    pub(super) fn count_disconnect(&mut self, message: &PeerMessage) -> u32 {
        let count = message.ends.fetch_add(1, Relaxed) + 1;
        if let Some((_, id)) = message.receipt {
            self.disconnects.insert(id, (message.message.len(), count));
            if self.disconnects.len() > ENDED_MAX {
                self.disconnects.pop_first();
            }
        }
        count
    }

    /// Whether the message is a suspect. Recognizes a message which the session has sent again.
    pub(super) fn contains(&self, message: &PeerMessage) -> bool {
        let known = message.receipt.and_then(|(_, id)| self.disconnects.get(&id));
        if let Some((len, count)) = known
            && *len == message.message.len()
        {
            message.ends.store(*count, Relaxed);
        }
        message.is_suspect()
    }

    /// Adds a suspect. Requests, which expire, and messages without a receipt, which would be lost
    /// anyway, are not kept.
    pub(super) fn push(&mut self, message: Arc<PeerMessage>, now: Instant) {
        if message.is_request() || message.receipt.is_none() {
            return;
        }
        if self.waiting.is_empty() {
            self.next = self.next.max(now + PAUSE_FIRST);
        }
        self.waiting.push_back(message);
    }

    /// Returns the time of the next retry, or `None` without messages.
    pub(super) fn next_retry_at(&self) -> Option<Instant> {
        (!self.waiting.is_empty()).then_some(self.next)
    }

    /// Returns the next message to retry and doubles the pause before the following one.
    pub(super) fn next_retry(&mut self, now: Instant) -> Option<Arc<PeerMessage>> {
        self.next_retry_at().filter(|due| *due <= now)?;
        self.next = now + self.pause;
        self.pause = PAUSE_LAST.min(self.pause * 2);
        self.waiting.pop_front()
    }

    /// Puts back a message for which no peer had room.
    pub(super) fn return_unsent(&mut self, message: Arc<PeerMessage>) {
        self.waiting.push_front(message);
    }

    /// Records the arrival of a message. If it was a suspect, the peers accept long messages again,
    /// and the others are retried at once.
    pub(super) fn on_arrived(&mut self, id: PacketId, now: Instant) {
        if self.disconnects.remove(&id).is_some_and(|(_, count)| count >= HANDFUL) {
            self.pause = PAUSE_FIRST;
            self.next = now;
        }
    }

    /// Drops the waiting messages: the local session sends them again.
    pub(super) fn forget(&mut self) {
        self.waiting.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::super::peer_message::parcel;
    use super::super::peer_set::PeerSet;
    use super::super::settings::GatewaySettings;
    use super::super::tests::gateway;
    use super::*;
    use std::iter;
    use zmtp_sp::MultipartMessage;

    const LONG: usize = 500;
    const NOTHING: [usize; 0] = [];

    fn of(len: usize, id: u16) -> Arc<PeerMessage> {
        given("push", len, id)
    }

    fn given(pattern: &str, len: usize, id: u16) -> Arc<PeerMessage> {
        let frames = vec![vec![b'x'; len]];
        let message = match pattern {
            "req" => MultipartMessage::new_request(u32::from(id), frames),
            _ => MultipartMessage { envelope: Vec::new(), frames },
        };
        parcel(message, PacketId::new(id).map(|id| (1, id)))
    }

    fn settings(pattern: &str) -> GatewaySettings {
        let own = [("protocol", "sp"), ("pattern", pattern), ("listen", "tcp://127.0.0.1:1")];
        gateway(&own, &[&[("filter", "out/#")]], &[]).unwrap()
    }

    /// Connects a peer which closes its connection with the first long message. Returns the lengths
    /// of the messages before.
    fn goes_with_what_is_long(peers: &PeerSet, settings: &GatewaySettings) -> Vec<usize> {
        let id = peers.add_peer(settings, Arc::default()).unwrap();
        peers.redistribute(settings);
        let mut taken = Vec::new();
        while let Some(message) = peers.next_for_peer(id, settings) {
            if message.message.len() >= LONG {
                peers.count_disconnect(&message);
                peers.remove_peer(id, iter::once(message), true);
                return taken;
            }
            taken.push(message.message.frames[0].len());
            peers.record_arrival(id, message.receipt);
        }
        peers.remove_peer(id, iter::empty(), true);
        taken
    }

    #[test]
    fn what_connections_end_with_lets_others_pass() {
        for pattern in ["push", "pair", "req"] {
            let (peers, settings) = (PeerSet::default(), settings(pattern));
            let all = [(LONG, 1), (1, 2), (2, 3)].map(|(len, id)| given(pattern, len, id));
            all.into_iter().for_each(|message| _ = peers.assign(message, &settings));
            for _ in 0..HANDFUL {
                assert_eq!(goes_with_what_is_long(&peers, &settings), NOTHING, "{pattern}");
            }
            assert_eq!(goes_with_what_is_long(&peers, &settings), [1, 2], "{pattern}");
            assert_eq!(
                peers.quarantined(),
                usize::from(pattern != "req"),
                "a question has its time"
            );
        }
    }

    #[test]
    fn what_the_session_sends_again_is_known_by_its_id_and_its_length() {
        let (peers, settings) = (PeerSet::default(), settings("push"));
        for _ in 0..HANDFUL {
            peers.drop_receipts();
            peers.assign(of(LONG, 1), &settings);
            assert_eq!(goes_with_what_is_long(&peers, &settings), NOTHING);
        }
        peers.drop_receipts();
        assert_eq!(peers.quarantined(), 0);
        for (len, id) in [(LONG, 1), (1, 2), (LONG, 3)] {
            peers.assign(of(len, id), &settings);
        }
        assert_eq!(peers.quarantined(), 1);
        assert_eq!(goes_with_what_is_long(&peers, &settings), [1]);
        // The packet id is the same, and the message is another one.
        peers.drop_receipts();
        peers.assign(of(1, 1), &settings);
        assert_eq!(peers.quarantined(), 0);
    }

    #[test]
    fn one_at_a_time_is_tried_again_and_the_rest_once_that_is_taken() {
        let (mut aside, start) = (QuarantineQueue::default(), Instant::now());
        let all = [1, 2, 3].map(|id| of(LONG, id));
        for message in &all {
            (0..HANDFUL).for_each(|_| _ = aside.count_disconnect(message));
            aside.push(message.clone(), start);
        }
        let id = |message: Option<Arc<PeerMessage>>| message?.receipt.map(|(_, id)| id.get());
        let mut now = start;
        assert_eq!(id(aside.next_retry(now)), None);
        for (expected, pause) in [(1, 1), (2, 1), (3, 2), (1, 4)] {
            now += Duration::from_secs(pause);
            assert_eq!(id(aside.next_retry(now - Duration::from_millis(1))), None);
            let taken = aside.next_retry(now).expect("it is time");
            assert_eq!(id(Some(taken.clone())), Some(expected));
            assert_eq!(id(aside.next_retry(now)), None, "one at a time");
            if expected != 1 || pause == 1 {
                aside.push(taken, now);
            }
        }
        aside.on_arrived(PacketId::MIN, now);
        assert_eq!(id(aside.next_retry(now)), Some(2));
        assert_eq!(aside.next_retry_at(), Some(now + PAUSE_FIRST));
    }

    #[test]
    fn what_is_remembered_has_a_bound() {
        let mut aside = QuarantineQueue::default();
        (1..=u16::MAX).for_each(|id| _ = aside.count_disconnect(&of(1, id)));
        assert_eq!(aside.disconnects.len(), ENDED_MAX);
    }
}
