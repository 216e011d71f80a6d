//! The connected peers, with the messages to each and from all of them.
//!
//! Invariant: all memory is bounded. The queue of a peer has a bound in messages and bytes.
//! Received messages have the bounds of [`PeerIntake`]; peers are not read while they are reached.
//! Partly received messages and subscriptions have one bound for all peers.

mod stalled;

use super::intake::{BlockedPeers, PeerIntake};
use super::peer_message::{PeerId, PeerMessage, SessionReceipt, cost};
use super::quarantine::QuarantineQueue;
use super::settings::GatewaySettings;
use crate::lock;
use crate::metrics::LinkDropReason;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;
use zmtp_sp::{MultipartMessage, PrefixSubscriptions, ProtocolFamily, RoutingStrategy};

/// The connected peers of a gateway, shared by the session task and the tasks of the peers.
#[derive(Default)]
pub(super) struct PeerSet {
    state: Mutex<PeerSetState>,
    /// Notified when a peer connects, disconnects, has room, or sends a message.
    pub(super) changed: Notify,
}

#[derive(Default)]
struct PeerSetState {
    peers: BTreeMap<PeerId, PeerEntry>,
    next: PeerId,
    /// Number of peers which have disconnected.
    departed: u64,
    /// Peer which got the last message; the next peer is served next.
    last_assigned: PeerId,
    intake: PeerIntake,
    /// Bytes of partly received messages and subscriptions of all peers.
    held: usize,
    /// Messages of departed or stuck peers, which go to another peer before new messages.
    unassigned: VecDeque<Arc<PeerMessage>>,
    /// Suspect messages, retried with pauses.
    aside: QuarantineQueue,
    receipts: Vec<SessionReceipt>,
    /// Number of messages with a receipt given to peers and not arrived.
    owed: usize,
    /// Whether reading from all peers has stopped.
    is_deaf: bool,
    /// Deadline of all peers, once the gateway closes.
    end: Option<Instant>,
}

/// Reason to disconnect a peer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum PeerCutReason {
    /// The peer held the most bytes when all peers together held more than `peers_bytes_max`.
    HeldMost,
    /// The peer had the most messages in flight and received none for [`STALLED`], while another
    /// peer had none.
    TookNothing,
}

struct PeerEntry {
    queue: VecDeque<Arc<PeerMessage>>,
    queue_bytes: usize,
    /// Subscriptions; `None` for patterns without subscriptions, where every peer gets everything.
    topics: Option<PrefixSubscriptions>,
    /// Bytes of the peer's partly received message and subscriptions.
    held: usize,
    /// Number of the peer's messages for which the intake had no room.
    blocked_messages: usize,
    cut: Option<PeerCutReason>,
    /// Number of messages with a receipt sent to the peer and not arrived.
    unarrived: usize,
    /// Time of the last arrival, or of the first message in flight.
    last_progress: Instant,
    /// Time since which the peer accepts none of its queued messages.
    stuck_since: Option<Instant>,
    wake: Arc<Notify>,
}

/// Time for queued messages when the gateway stops.
const FINISH: Duration = Duration::from_secs(1);
/// Time after which the queue of a stuck peer goes to a peer with an empty queue.
const STUCK: Duration = Duration::from_millis(200);
/// Time after which a peer without progress is disconnected, if its messages in flight keep the
/// receive window from other peers.
pub(super) const STALLED: Duration = Duration::from_secs(10);

impl PeerEntry {
    /// Whether the queue has room for a message. An empty queue has room for any message.
    fn has_room(&self, bytes: usize, settings: &GatewaySettings) -> bool {
        self.queue.is_empty()
            || self.queue.len() < settings.queue_messages_max as usize
                && self.queue_bytes + bytes <= settings.queue_bytes_max as usize
    }

    /// Marks the peer as stuck if its queue has messages which another peer could get; broadcasts
    /// and responses could not. Returns whether the peer was not stuck before.
    fn is_stuck(&mut self, settings: &GatewaySettings) -> bool {
        let could = settings.pattern.routing() == RoutingStrategy::One && !self.queue.is_empty();
        let is_new = could && self.stuck_since.is_none();
        if is_new {
            self.stuck_since = Some(Instant::now());
        }
        is_new
    }

    fn push(&mut self, message: Arc<PeerMessage>) {
        self.queue_bytes += cost(&message.message);
        self.queue.push_back(message);
        self.wake.notify_one();
    }
}

impl PeerSet {
    /// Adds a peer. Fails if the gateway stops, or for a second peer of a pair.
    pub(super) fn add_peer(
        &self,
        settings: &GatewaySettings,
        wake: Arc<Notify>,
    ) -> Result<PeerId, &'static str> {
        let mut present = lock(&self.state);
        if present.is_deaf || present.end.is_some() {
            return Err("the gateway stops");
        }
        if settings.pattern.is_pair() && !present.peers.is_empty() {
            return Err("a pair has one peer, and there is one");
        }
        present.next += 1;
        let id = present.next;
        let chooses =
            settings.family == ProtocolFamily::Zmq && settings.pattern.receives_subscriptions();
        let topics = chooses.then(PrefixSubscriptions::default);
        let seat = PeerEntry {
            queue: VecDeque::new(),
            queue_bytes: 0,
            topics,
            held: 0,
            blocked_messages: 0,
            cut: None,
            unarrived: 0,
            last_progress: Instant::now(),
            stuck_since: None,
            wake,
        };
        present.peers.insert(id, seat);
        drop(present);
        self.changed.notify_one();
        Ok(id)
    }

    /// Removes a peer. `begun` has the messages which have not arrived as a whole; if `keeps`, they
    /// go to other peers. Returns the number of messages lost because the gateway closes.
    pub(super) fn remove_peer(
        &self,
        id: PeerId,
        begun: impl Iterator<Item = Arc<PeerMessage>>,
        keeps: bool,
    ) -> usize {
        let mut present = lock(&self.state);
        let Some(seat) = present.peers.remove(&id) else { return 0 };
        present.departed += 1;
        present.held -= seat.held;
        present.owed -= seat.unarrived;
        let mut lost = 0;
        let left = begun.chain(seat.queue);
        if present.end.is_some() {
            lost = left.filter(|message| message.receipt.is_none()).count();
        } else if keeps {
            // These messages are older than the unassigned ones.
            let behind = std::mem::take(&mut present.unassigned);
            let (doubted, left): (Vec<_>, Vec<_>) = left.partition(|message| message.is_suspect());
            present.unassigned = left.into_iter().chain(behind).collect();
            doubted.into_iter().for_each(|message| present.aside.push(message, Instant::now()));
        }
        drop(present);
        self.changed.notify_one();
        lost
    }

    /// Counts a connection which ended with this message in flight. Returns the number of such
    /// connections.
    pub(super) fn count_disconnect(&self, message: &PeerMessage) -> u32 {
        lock(&self.state).aside.count_disconnect(message)
    }

    #[cfg(test)]
    pub(super) fn quarantined(&self) -> usize {
        lock(&self.state).aside.len()
    }

    /// Adds a subscription. Returns false if the peer would have more than `most`.
    pub(super) fn subscribe(&self, id: PeerId, prefix: &[u8], most: usize) -> bool {
        let mut present = lock(&self.state);
        let topics = present.peers.get_mut(&id).and_then(|seat| seat.topics.as_mut());
        topics.is_none_or(|topics| topics.add(prefix, most))
    }

    pub(super) fn unsubscribe(&self, id: PeerId, prefix: &[u8]) {
        let mut present = lock(&self.state);
        if let Some(topics) = present.peers.get_mut(&id).and_then(|seat| seat.topics.as_mut()) {
            topics.remove(prefix);
        }
    }

    /// Whether there are no peers and the local session has all received messages.
    pub(super) fn is_drained(&self) -> bool {
        let present = lock(&self.state);
        present.peers.is_empty() && present.intake.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        lock(&self.state).peers.len()
    }

    pub(super) fn has(&self, id: PeerId) -> bool {
        lock(&self.state).peers.contains_key(&id)
    }

    /// Returns the number of peers which have disconnected so far.
    pub(super) fn departed_count(&self) -> u64 {
        lock(&self.state).departed
    }

    /// Returns which of the given peers have disconnected.
    pub(super) fn departed_of(&self, ids: impl Iterator<Item = PeerId>) -> BTreeSet<PeerId> {
        let present = lock(&self.state);
        ids.filter(|id| !present.peers.contains_key(id)).collect()
    }

    /// Returns the id of the newest peer, connected or not. Later peers have larger ids.
    pub(super) fn newest(&self) -> PeerId {
        lock(&self.state).next
    }

    /// Queues a message for all subscribed peers. Returns the number of peers which got it, and of
    /// slow peers without room.
    pub(super) fn broadcast(
        &self,
        message: &Arc<PeerMessage>,
        settings: &GatewaySettings,
    ) -> (usize, usize) {
        let bytes = cost(&message.message);
        let first = message.message.frames.first().map(Vec::as_slice).unwrap_or_default();
        let (mut given, mut slow) = (0, 0);
        for seat in lock(&self.state).peers.values_mut() {
            if seat.topics.as_ref().is_some_and(|topics| !topics.matches(first)) {
                continue;
            }
            if seat.has_room(bytes, settings) {
                seat.push(message.clone());
                given += 1;
            } else {
                slow += 1;
            }
        }
        (given, slow)
    }

    /// Whether a peer has room for a message of `message_bytes_max`, and no returned message waits.
    pub(super) fn has_room(&self, settings: &GatewaySettings) -> bool {
        let present = lock(&self.state);
        let most = settings.message_bytes_max as usize;
        present.unassigned.is_empty()
            && present.peers.values().any(|seat| seat.has_room(most, settings))
    }

    /// Assigns returned messages to connected peers with room, before new messages. Returns the
    /// peers which now have a request, by request id.
    pub(super) fn redistribute(&self, settings: &GatewaySettings) -> Vec<(u32, PeerId)> {
        lock(&self.state).redistribute(settings)
    }

    /// Queues a message for one peer, in turn. Returns the peer, or `None` if the message waits, in
    /// quarantine or for a peer with room.
    pub(super) fn assign(
        &self,
        message: Arc<PeerMessage>,
        settings: &GatewaySettings,
    ) -> Option<PeerId> {
        let mut present = lock(&self.state);
        if present.aside.contains(&message) {
            present.aside.push(message, Instant::now());
            return None;
        }
        match present.assign(message, settings) {
            Ok(id) => Some(id),
            Err(message) => {
                present.unassigned.push_back(message);
                None
            }
        }
    }

    /// Queues a message for this peer, or returns why that fails.
    pub(super) fn send_to(
        &self,
        id: PeerId,
        message: Arc<PeerMessage>,
        settings: &GatewaySettings,
    ) -> Result<(), LinkDropReason> {
        let mut present = lock(&self.state);
        let seat = present.peers.get_mut(&id).ok_or(LinkDropReason::NoPeer)?;
        if !seat.has_room(cost(&message.message), settings) {
            return Err(LinkDropReason::PeerSlow);
        }
        seat.push(message);
        Ok(())
    }

    /// Takes the next message for a peer. A peer leaves as much of the session's Receive Maximum to
    /// other peers as it has in flight itself, so a stuck peer does not hold the whole window.
    pub(super) fn next_for_peer(
        &self,
        id: PeerId,
        settings: &GatewaySettings,
    ) -> Option<Arc<PeerMessage>> {
        let mut present = lock(&self.state);
        let present = &mut *present;
        let free = present.window(settings).saturating_sub(present.owed);
        let seat = present.peers.get_mut(&id)?;
        if seat.unarrived > 0 && free < seat.unarrived + 2 && !settings.pattern.is_pair() {
            if seat.is_stuck(settings) {
                self.changed.notify_one();
            }
            return None;
        }
        // A peer which asks for a message has room, also for messages queued for stuck peers.
        if seat.stuck_since.take().is_some() {
            self.changed.notify_one();
        }
        let message = seat.queue.pop_front()?;
        seat.queue_bytes -= cost(&message.message);
        if message.receipt.is_some() {
            if seat.unarrived == 0 {
                seat.last_progress = Instant::now();
            }
            seat.unarrived += 1;
            present.owed += 1;
        }
        self.changed.notify_one();
        Some(message)
    }

    /// Marks a peer without room for its queued messages.
    pub(super) fn mark_stuck(&self, id: PeerId, settings: &GatewaySettings) {
        if lock(&self.state).peers.get_mut(&id).is_some_and(|seat| seat.is_stuck(settings)) {
            self.changed.notify_one();
        }
    }

    /// Returns the next time at which `redistribute` has work: a stuck queue moves, a stalled peer
    /// is disconnected, or a message in quarantine is retried.
    pub(super) fn next_relief_at(&self, settings: &GatewaySettings) -> Option<Instant> {
        let present = lock(&self.state);
        let is_stuck = |seat: &&PeerEntry| !seat.queue.is_empty();
        let since = present.peers.values().filter(is_stuck).filter_map(|seat| seat.stuck_since);
        let first = since.min().filter(|_| present.has_idle_peer()).map(|since| since + STUCK);
        let stalled = present.stalled_since(settings).map(|since| since + STALLED);
        let tried = present.aside.next_retry_at().filter(|_| !present.peers.is_empty());
        first.into_iter().chain(stalled).chain(tried).min()
    }

    /// Returns the latest time of the end of all peers, or `None` while the gateway runs.
    pub(super) fn close_deadline(&self) -> Option<Instant> {
        lock(&self.state).end
    }

    pub(super) fn take_receipts(&self) -> Vec<SessionReceipt> {
        std::mem::take(&mut lock(&self.state).receipts)
    }

    /// Records that more bytes arrived at the peer, perhaps a part of a message.
    pub(super) fn record_progress(&self, id: PeerId) {
        if let Some(seat) = lock(&self.state).peers.get_mut(&id) {
            seat.last_progress = Instant::now();
        }
    }

    /// Records that a message has arrived at the peer, and queues its receipt.
    pub(super) fn record_arrival(&self, id: PeerId, receipt: Option<SessionReceipt>) {
        let mut present = lock(&self.state);
        let present = &mut *present;
        if let Some(seat) = present.peers.get_mut(&id) {
            seat.unarrived -= 1;
            seat.stuck_since = None;
            present.owed -= 1;
        }
        if let Some((_, id)) = receipt {
            present.aside.on_arrived(id, Instant::now());
        }
        present.receipts.extend(receipt);
        self.changed.notify_one();
    }

    /// Moves received messages of a peer to the intake, as far as there is room.
    pub(super) fn accept_inbound(&self, id: PeerId, said: &mut VecDeque<MultipartMessage>) {
        if said.is_empty() {
            return;
        }
        let mut present = lock(&self.state);
        while present.intake.has_room(id)
            && let Some(message) = said.pop_front()
        {
            present.intake.push(id, message);
        }
        if let Some(seat) = present.peers.get_mut(&id) {
            seat.blocked_messages = said.len();
        }
        drop(present);
        self.changed.notify_one();
    }

    /// Stops reading from all peers.
    pub(super) fn stop_reading(&self) {
        lock(&self.state).is_deaf = true;
    }

    pub(super) fn has_stopped_reading(&self) -> bool {
        lock(&self.state).is_deaf
    }

    /// Whether no peer can send a new message: there is none, or reading has stopped.
    pub(super) fn is_quiet(&self) -> bool {
        let present = lock(&self.state);
        present.is_deaf || present.peers.is_empty()
    }

    /// Whether the local session has all received messages.
    pub(super) fn has_relayed_all(&self) -> bool {
        self.unrelayed_count() == 0
    }

    /// Returns the number of received messages which the local session does not have yet.
    pub(super) fn unrelayed_count(&self) -> usize {
        let present = lock(&self.state);
        let waiting: usize = present.peers.values().map(|seat| seat.blocked_messages).sum();
        present.intake.len() + waiting
    }

    /// Takes a received message of the peer whose turn it is, and wakes peers for which there is
    /// room now.
    pub(super) fn take_inbound(
        &self,
        may: impl Fn(PeerId) -> bool,
    ) -> Option<(PeerId, MultipartMessage)> {
        let mut present = lock(&self.state);
        let (id, message, waiting) = present.intake.take_next(may)?;
        match waiting {
            BlockedPeers::All => present.peers.values().for_each(|seat| seat.wake.notify_one()),
            BlockedPeers::ThisPeer => {
                present.peers.get(&id).into_iter().for_each(|s| s.wake.notify_one())
            }
            BlockedPeers::NoPeer => {}
        }
        Some((id, message))
    }

    /// Records the bytes of a peer's partly received messages. Above `peers_bytes_max` the peers
    /// with the most bytes are marked for disconnection. Returns the reason if this peer has to
    /// disconnect.
    pub(super) fn charge_bytes(
        &self,
        id: PeerId,
        bytes: usize,
        settings: &GatewaySettings,
    ) -> Result<(), PeerCutReason> {
        let mut present = lock(&self.state);
        let present = &mut *present;
        let Some(seat) = present.peers.get_mut(&id) else { return Ok(()) };
        if let Some(cut) = seat.cut {
            return Err(cut);
        }
        let bytes = bytes + seat.topics.as_ref().map_or(0, PrefixSubscriptions::bytes);
        present.held = present.held - seat.held + bytes;
        seat.held = bytes;
        while present.held > settings.peers_bytes_max as usize
            && let Some(most) = present.peers.values_mut().max_by_key(|seat| seat.held)
        {
            present.held -= std::mem::take(&mut most.held);
            most.cut = Some(PeerCutReason::HeldMost);
            most.wake.notify_one();
        }
        present.peers.get(&id).and_then(|seat| seat.cut).map_or(Ok(()), Err)
    }

    /// Drops the receipts of a connection to the local session which has ended.
    pub(super) fn drop_receipts(&self) {
        lock(&self.state).receipts.clear();
        self.recall_queued();
    }

    /// Drops queued messages with a receipt, which the local session sends again.
    pub(super) fn recall_queued(&self) {
        let mut present = lock(&self.state);
        present.unassigned.retain(|message| message.receipt.is_none());
        present.aside.forget();
        for seat in present.peers.values_mut() {
            seat.queue.retain(|message| message.receipt.is_none());
            seat.queue_bytes = seat.queue.iter().map(|message| cost(&message.message)).sum();
        }
    }

    /// Closes all peers. Returns the latest time of their end, and the number of lost messages
    /// without a peer.
    pub(super) fn close(&self) -> (Instant, usize) {
        let mut present = lock(&self.state);
        let end = *present.end.get_or_insert_with(|| Instant::now() + FINISH);
        present.peers.values().for_each(|seat| seat.wake.notify_one());
        let lost = present.unassigned.drain(..).filter(|message| message.receipt.is_none()).count();
        (end, lost)
    }
}

impl PeerSetState {
    /// Returns the number of messages which may be in flight: the Receive Maximum without messages
    /// in quarantine.
    fn window(&self, settings: &GatewaySettings) -> usize {
        usize::from(settings.limits.inflight_max).saturating_sub(self.aside.len())
    }

    fn assign(
        &mut self,
        message: Arc<PeerMessage>,
        settings: &GatewaySettings,
    ) -> Result<PeerId, Arc<PeerMessage>> {
        let bytes = cost(&message.message);
        let after = self.peers.range((Excluded(self.last_assigned), Unbounded));
        let round = after.chain(self.peers.range(..=self.last_assigned));
        let mut round = round.filter(|(_, seat)| seat.has_room(bytes, settings));
        let first = round.next();
        let is_stuck = |seat: &PeerEntry| seat.stuck_since.is_some();
        // A stuck peer gets a message only if no other peer has room.
        let other = first
            .filter(|(_, seat)| is_stuck(seat))
            .and_then(|_| round.find(|(_, seat)| !is_stuck(seat)));
        let Some(id) = other.or(first).map(|(id, _)| *id) else { return Err(message) };
        self.last_assigned = id;
        if let Some(seat) = self.peers.get_mut(&id) {
            seat.push(message);
        }
        Ok(id)
    }

    fn redistribute(&mut self, settings: &GatewaySettings) -> Vec<(u32, PeerId)> {
        let mut given = Vec::new();
        self.reassign_stuck();
        self.disconnect_stalled(settings);
        if !self.peers.is_empty()
            && let Some(message) = self.aside.next_retry(Instant::now())
            && let Err(message) = self.assign(message, settings)
        {
            self.aside.return_unsent(message);
        }
        while let Some(message) = self.unassigned.pop_front() {
            let number = message.message.request_id();
            match self.assign(message, settings) {
                Ok(id) => given.extend(number.map(|number| (number, id))),
                Err(message) => {
                    self.unassigned.push_front(message);
                    break;
                }
            }
        }
        given
    }

    /// Whether a responsive peer has an empty queue.
    fn has_idle_peer(&self) -> bool {
        self.peers.values().any(|seat| seat.queue.is_empty() && seat.stuck_since.is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::super::peer_message::parcel;
    use super::super::tests::gateway;
    use super::*;
    use mqtt::PacketId;

    #[test]
    fn where_nobody_is_there_nothing_is_tried() {
        let own = [("protocol", "sp"), ("pattern", "push"), ("listen", "tcp://127.0.0.1:1")];
        let settings = gateway(&own, &[&[("filter", "out/#")]], &[]).unwrap();
        let mut present = PeerSetState::default();
        let message = MultipartMessage { envelope: Vec::new(), frames: vec![vec![b'x']] };
        let long_ago = Instant::now() - Duration::from_secs(10);
        present.aside.push(parcel(message, Some((1, PacketId::MIN))), long_ago);
        let due = present.aside.next_retry_at();
        assert!(due.is_some_and(|due| due <= Instant::now()), "{due:?}");
        present.redistribute(&settings);
        assert_eq!(present.aside.next_retry_at(), due, "it is not put off");
    }
}
