//! The peers that are connected now, and what waits for each and from all of them.
//!
//! Invariant: nothing here grows without a bound. A peer's queue has one in messages and bytes;
//! what came from peers has one (`intake`), and while it is reached none of them is read; what is
//! half-way here and what they subscribe to have one, of all of them.

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

#[derive(Default)]
pub(super) struct PeerSet {
    state: Mutex<PeerSetState>,
    /// Notified when a peer comes or goes, has room, or sends a message.
    pub(super) changed: Notify,
}

#[derive(Default)]
struct PeerSetState {
    peers: BTreeMap<PeerId, PeerEntry>,
    next: PeerId,
    /// Number of peers that have left.
    departed: u64,
    /// Peer that was given the last message.
    last_assigned: PeerId,
    intake: PeerIntake,
    /// Bytes of half-received messages and of subscriptions of all peers.
    held: usize,
    /// Messages that a departed peer was not given.
    unassigned: VecDeque<Arc<PeerMessage>>,
    /// Messages that wait behind all of those.
    aside: QuarantineQueue,
    receipts: Vec<SessionReceipt>,
    /// Messages with a receipt that were given to peers and have not arrived.
    owed: usize,
    /// Whether no peer is read any more.
    is_deaf: bool,
    /// When everyone has ended, once that is to be.
    end: Option<Instant>,
}

/// Why one has to go.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum PeerCutReason {
    /// The peer held the most when all together held too much.
    HeldMost,
    /// The peer had most of all messages and took none, while others had none.
    TookNothing,
}

struct PeerEntry {
    queue: VecDeque<Arc<PeerMessage>>,
    queue_bytes: usize,
    /// Subscriptions; `None` for patterns where every peer gets everything.
    topics: Option<PrefixSubscriptions>,
    /// Bytes of its half-received message and of its subscriptions.
    held: usize,
    /// Number of its messages for which there was no room.
    blocked_messages: usize,
    cut: Option<PeerCutReason>,
    /// Number of messages with a receipt that were sent to it and have not arrived.
    unarrived: usize,
    /// When anything of them arrived last, or the first was begun.
    last_progress: Instant,
    /// Time since which the peer takes none of the messages that wait for it.
    stuck_since: Option<Instant>,
    wake: Arc<Notify>,
}

/// Time for messages that wait for sockets when the gateway stops.
const FINISH: Duration = Duration::from_secs(1);
/// A peer that takes nothing for so long gives what waits for it to one that has nothing.
const STUCK: Duration = Duration::from_millis(200);
/// Time after which a peer that takes nothing is disconnected, if its messages keep the window from
/// the other peers.
pub(super) const STALLED: Duration = Duration::from_secs(10);

impl PeerEntry {
    /// A message that is alone always has room.
    fn has_room(&self, bytes: usize, settings: &GatewaySettings) -> bool {
        self.queue.is_empty()
            || self.queue.len() < settings.queue_messages_max as usize
                && self.queue_bytes + bytes <= settings.queue_bytes_max as usize
    }

    /// Whether the peer takes nothing of messages that another peer could get; messages to all
    /// peers and responses are not among them. Returns whether that is new.
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
    /// A place for one more, unless there is none.
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

    /// `begun` is what it was sent and does not have as a whole. Says how many messages nobody has
    /// any more because everyone ends.
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
            // It was given before what waits for anybody.
            let behind = std::mem::take(&mut present.unassigned);
            let (doubted, left): (Vec<_>, Vec<_>) = left.partition(|message| message.is_suspect());
            present.unassigned = left.into_iter().chain(behind).collect();
            doubted.into_iter().for_each(|message| present.aside.push(message, Instant::now()));
        }
        drop(present);
        self.changed.notify_one();
        lost
    }

    /// A peer is about to leave for its own reasons with this half-way to it. Says how many have.
    pub(super) fn count_disconnect(&self, message: &PeerMessage) -> u32 {
        lock(&self.state).aside.count_disconnect(message)
    }

    #[cfg(test)]
    pub(super) fn quarantined(&self) -> usize {
        lock(&self.state).aside.len()
    }

    /// Says whether there was room.
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

    /// Whether no peer is left, and all their messages are taken in.
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

    /// Returns how many peers have left so far.
    pub(super) fn departed_count(&self) -> u64 {
        lock(&self.state).departed
    }

    /// Returns which of these peers are gone.
    pub(super) fn departed_of(&self, ids: impl Iterator<Item = PeerId>) -> BTreeSet<PeerId> {
        let present = lock(&self.state);
        ids.filter(|id| !present.peers.contains_key(id)).collect()
    }

    /// The last that came, whether it is there or not: whoever comes has a larger number.
    pub(super) fn newest(&self) -> PeerId {
        lock(&self.state).next
    }

    /// To all who want it. Says to how many, and past how many who had no room.
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

    /// Whether somebody could take a message of any size.
    pub(super) fn has_room(&self, settings: &GatewaySettings) -> bool {
        let present = lock(&self.state);
        let most = settings.message_bytes_max as usize;
        present.unassigned.is_empty()
            && present.peers.values().any(|seat| seat.has_room(most, settings))
    }

    /// Gives returned messages to the connected peers as far as they have room, before new ones.
    /// Returns which peer has which request now.
    pub(super) fn redistribute(&self, settings: &GatewaySettings) -> Vec<(u32, PeerId)> {
        lock(&self.state).redistribute(settings)
    }

    /// To one of them, each in turn; somebody has room. Says to whom.
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

    /// To this one, or why not.
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

    /// Returns the next message for a peer. A peer leaves as much of the session's Receive Maximum
    /// to others as it has in flight itself, so that a stuck one does not keep the messages of all.
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
        // Who asks for more has room, also for what waits for others.
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

    /// Marks a peer without room for the messages that wait for it.
    pub(super) fn mark_stuck(&self, id: PeerId, settings: &GatewaySettings) {
        if lock(&self.state).peers.get_mut(&id).is_some_and(|seat| seat.is_stuck(settings)) {
            self.changed.notify_one();
        }
    }

    /// When what waits for one that takes nothing goes to another, or it goes itself; or when what
    /// stands aside is tried.
    pub(super) fn next_relief_at(&self, settings: &GatewaySettings) -> Option<Instant> {
        let present = lock(&self.state);
        let is_stuck = |seat: &&PeerEntry| !seat.queue.is_empty();
        let since = present.peers.values().filter(is_stuck).filter_map(|seat| seat.stuck_since);
        let first = since.min().filter(|_| present.has_idle_peer()).map(|since| since + STUCK);
        let stalled = present.stalled_since(settings).map(|since| since + STALLED);
        let tried = present.aside.next_retry_at().filter(|_| !present.peers.is_empty());
        first.into_iter().chain(stalled).chain(tried).min()
    }

    /// When this one is to end at the latest, which it is once everything is written.
    pub(super) fn close_deadline(&self) -> Option<Instant> {
        lock(&self.state).end
    }

    pub(super) fn take_receipts(&self) -> Vec<SessionReceipt> {
        std::mem::take(&mut lock(&self.state).receipts)
    }

    /// A peer has more of what it was sent, and be it a part of one message.
    pub(super) fn record_progress(&self, id: PeerId) {
        if let Some(seat) = lock(&self.state).peers.get_mut(&id) {
            seat.last_progress = Instant::now();
        }
    }

    /// A peer has something that it was sent.
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

    /// Hands on what a peer said, as far as there is room for it.
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

    /// Whether no peer can send a new message: there is none, or none is read any more.
    pub(super) fn is_quiet(&self) -> bool {
        let present = lock(&self.state);
        present.is_deaf || present.peers.is_empty()
    }

    /// The session here was told all that was read.
    pub(super) fn has_relayed_all(&self) -> bool {
        self.unrelayed_count() == 0
    }

    /// Returns how many received messages the local session does not have yet.
    pub(super) fn unrelayed_count(&self) -> usize {
        let present = lock(&self.state);
        let waiting: usize = present.peers.values().map(|seat| seat.blocked_messages).sum();
        present.intake.len() + waiting
    }

    /// Takes a received message of the peer whose turn it is.
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

    /// A peer has so many bytes here of what it has begun to say, beside what it subscribes to.
    /// Where all together have too many those that have most are to go; says why this one may not
    /// stay.
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

    /// Drops receipts for a connection to the local session that has ended.
    pub(super) fn drop_receipts(&self) {
        lock(&self.state).receipts.clear();
        self.recall_queued();
    }

    /// No peer begins what the session here has again.
    pub(super) fn recall_queued(&self) {
        let mut present = lock(&self.state);
        present.unassigned.retain(|message| message.receipt.is_none());
        present.aside.forget();
        for seat in present.peers.values_mut() {
            seat.queue.retain(|message| message.receipt.is_none());
            seat.queue_bytes = seat.queue.iter().map(|message| cost(&message.message)).sum();
        }
    }

    /// Closes all peers until the returned time. Returns how many messages are lost as well.
    pub(super) fn close(&self) -> (Instant, usize) {
        let mut present = lock(&self.state);
        let end = *present.end.get_or_insert_with(|| Instant::now() + FINISH);
        present.peers.values().for_each(|seat| seat.wake.notify_one());
        let lost = present.unassigned.drain(..).filter(|message| message.receipt.is_none()).count();
        (end, lost)
    }
}

impl PeerSetState {
    /// Returns the size of the window of messages in flight, without those in quarantine.
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
        // One that takes nothing has its turn where nobody else has room.
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

    /// Whether any responsive peer has an empty queue.
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
