//! The peers that are connected now, and what waits for each and from all of them.
//!
//! Invariant: nothing here grows without a bound. A peer's queue has one in messages and bytes;
//! what came from peers has one (`intake`), and while it is reached none of them is read; what is
//! half-way here and what they subscribe to have one, of all of them.

use super::aside::Aside;
use super::intake::{Intake, Waiting};
use super::parcel::{Parcel, PeerId, Receipt, cost};
use super::settings::GatewaySettings;
use crate::links::lock;
use crate::links::tally::Loss;
use patterns::{Family, Manner, Message, Topics};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

#[derive(Default)]
pub(super) struct Crowd {
    present: Mutex<Present>,
    /// Somebody came or went, has room, or said something.
    pub(super) changed: Notify,
}

#[derive(Default)]
struct Present {
    peers: BTreeMap<PeerId, Seat>,
    next: PeerId,
    /// So many have left.
    left: u64,
    /// Who was given something last.
    turn: PeerId,
    intake: Intake,
    /// Of messages that are half-way here and of subscriptions, of all of them.
    held: usize,
    /// What a peer that went was not given.
    returned: VecDeque<Arc<Parcel>>,
    /// What waits behind all of that.
    aside: Aside,
    taken: Vec<Receipt>,
    /// What all of them were given with a receipt and does not have arrived.
    owed: usize,
    /// Nobody is read any more.
    is_deaf: bool,
    /// When everyone has ended, once that is to be.
    end: Option<Instant>,
}

/// Why one has to go.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Cut {
    /// It held most when all held too much.
    HeldMost,
    /// It had most of what all have, took nothing of it, and others had nothing.
    TookNothing,
}

struct Seat {
    queue: VecDeque<Arc<Parcel>>,
    queue_bytes: usize,
    /// Everything, where nobody says what they want.
    topics: Option<Topics>,
    /// Of what it has begun to say, and of what it subscribes to.
    held: usize,
    /// So many messages it has said that there was no room for.
    unheard: usize,
    cut: Option<Cut>,
    /// So many that it has begun to be sent with a receipt have not arrived.
    owed: usize,
    /// When anything of them arrived last, or the first was begun.
    owed_since: Instant,
    /// Since then it takes nothing of what waits for it.
    stuck_since: Option<Instant>,
    wake: Arc<Notify>,
}

/// What waits for sockets when everyone ends may still go.
const FINISH: Duration = Duration::from_secs(1);
/// A peer that takes nothing for so long gives what waits for it to one that has nothing.
const STUCK: Duration = Duration::from_millis(200);
/// One that takes nothing for so long goes where those that take something cannot have the whole of
/// the window otherwise.
pub(super) const STALLED: Duration = Duration::from_secs(10);

impl Seat {
    /// A message that is alone always has room.
    fn has_room(&self, bytes: usize, settings: &GatewaySettings) -> bool {
        self.queue.is_empty()
            || self.queue.len() < settings.queue_messages_max as usize
                && self.queue_bytes + bytes <= settings.queue_bytes_max as usize
    }

    /// What waits for it could be another's; what is for all, or answers somebody, could not. Says
    /// whether that is new.
    fn is_stuck(&mut self, settings: &GatewaySettings) -> bool {
        let could = settings.pattern.manner() == Manner::One && !self.queue.is_empty();
        let is_new = could && self.stuck_since.is_none();
        if is_new {
            self.stuck_since = Some(Instant::now());
        }
        is_new
    }

    fn push(&mut self, parcel: Arc<Parcel>) {
        self.queue_bytes += cost(&parcel.message);
        self.queue.push_back(parcel);
        self.wake.notify_one();
    }
}

impl Crowd {
    /// A place for one more, unless there is none.
    pub(super) fn enter(
        &self,
        settings: &GatewaySettings,
        wake: Arc<Notify>,
    ) -> Result<PeerId, &'static str> {
        let mut present = lock(&self.present);
        if present.is_deaf || present.end.is_some() {
            return Err("the gateway stops");
        }
        if settings.pattern.is_pair() && !present.peers.is_empty() {
            return Err("a pair has one peer, and there is one");
        }
        present.next += 1;
        let id = present.next;
        let chooses = settings.family == Family::Zmq && settings.pattern.is_subscribed_to();
        let topics = chooses.then(Topics::default);
        let seat = Seat {
            queue: VecDeque::new(),
            queue_bytes: 0,
            topics,
            held: 0,
            unheard: 0,
            cut: None,
            owed: 0,
            owed_since: Instant::now(),
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
    pub(super) fn leave(
        &self,
        id: PeerId,
        begun: impl Iterator<Item = Arc<Parcel>>,
        keeps: bool,
    ) -> usize {
        let mut present = lock(&self.present);
        let Some(seat) = present.peers.remove(&id) else { return 0 };
        present.left += 1;
        present.held -= seat.held;
        present.owed -= seat.owed;
        let mut lost = 0;
        let left = begun.chain(seat.queue);
        if present.end.is_some() {
            lost = left.filter(|parcel| parcel.receipt.is_none()).count();
        } else if keeps {
            // It was given before what waits for anybody.
            let behind = std::mem::take(&mut present.returned);
            let (doubted, left): (Vec<_>, Vec<_>) = left.partition(|parcel| parcel.is_doubted());
            present.returned = left.into_iter().chain(behind).collect();
            doubted.into_iter().for_each(|parcel| present.aside.push(parcel, Instant::now()));
        }
        drop(present);
        self.changed.notify_one();
        lost
    }

    /// A peer is about to leave for its own reasons with this half-way to it. Says how many have.
    pub(super) fn ends_with(&self, parcel: &Parcel) -> u32 {
        lock(&self.present).aside.ends_with(parcel)
    }

    #[cfg(test)]
    pub(super) fn aside(&self) -> usize {
        lock(&self.present).aside.len()
    }

    /// Says whether there was room.
    pub(super) fn subscribe(&self, id: PeerId, prefix: &[u8], most: usize) -> bool {
        let mut present = lock(&self.present);
        let topics = present.peers.get_mut(&id).and_then(|seat| seat.topics.as_mut());
        topics.is_none_or(|topics| topics.add(prefix, most))
    }

    pub(super) fn cancel(&self, id: PeerId, prefix: &[u8]) {
        let mut present = lock(&self.present);
        if let Some(topics) = present.peers.get_mut(&id).and_then(|seat| seat.topics.as_mut()) {
            topics.remove(prefix);
        }
    }

    /// Nobody is there, and what those said who were is taken in.
    pub(super) fn is_over(&self) -> bool {
        let present = lock(&self.present);
        present.peers.is_empty() && present.intake.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        lock(&self.present).peers.len()
    }

    pub(super) fn has(&self, id: PeerId) -> bool {
        lock(&self.present).peers.contains_key(&id)
    }

    /// How many have left until now.
    pub(super) fn left(&self) -> u64 {
        lock(&self.present).left
    }

    /// Who of them is not there.
    pub(super) fn gone(&self, ids: impl Iterator<Item = PeerId>) -> BTreeSet<PeerId> {
        let present = lock(&self.present);
        ids.filter(|id| !present.peers.contains_key(id)).collect()
    }

    /// The last that came, whether it is there or not: whoever comes has a larger number.
    pub(super) fn newest(&self) -> PeerId {
        lock(&self.present).next
    }

    /// To all who want it. Says to how many, and past how many who had no room.
    pub(super) fn spread(
        &self,
        parcel: &Arc<Parcel>,
        settings: &GatewaySettings,
    ) -> (usize, usize) {
        let bytes = cost(&parcel.message);
        let first = parcel.message.frames.first().map(Vec::as_slice).unwrap_or_default();
        let (mut given, mut slow) = (0, 0);
        for seat in lock(&self.present).peers.values_mut() {
            if seat.topics.as_ref().is_some_and(|topics| !topics.want(first)) {
                continue;
            }
            if seat.has_room(bytes, settings) {
                seat.push(parcel.clone());
                given += 1;
            } else {
                slow += 1;
            }
        }
        (given, slow)
    }

    /// Whether somebody could take a message of any size.
    pub(super) fn has_room(&self, settings: &GatewaySettings) -> bool {
        let present = lock(&self.present);
        let most = settings.message_bytes_max as usize;
        present.returned.is_empty()
            && present.peers.values().any(|seat| seat.has_room(most, settings))
    }

    /// What was given back goes to those who are there, as far as they have room; new messages are
    /// behind it. Says who has which question now.
    pub(super) fn give_again(&self, settings: &GatewaySettings) -> Vec<(u32, PeerId)> {
        lock(&self.present).give_again(settings)
    }

    /// To one of them, each in turn; somebody has room. Says to whom.
    pub(super) fn give(&self, parcel: Arc<Parcel>, settings: &GatewaySettings) -> Option<PeerId> {
        let mut present = lock(&self.present);
        if present.aside.recalls(&parcel) {
            present.aside.push(parcel, Instant::now());
            return None;
        }
        match present.give(parcel, settings) {
            Ok(id) => Some(id),
            Err(parcel) => {
                present.returned.push_back(parcel);
                None
            }
        }
    }

    /// To this one, or why not.
    pub(super) fn answer(
        &self,
        id: PeerId,
        parcel: Arc<Parcel>,
        settings: &GatewaySettings,
    ) -> Result<(), Loss> {
        let mut present = lock(&self.present);
        let seat = present.peers.get_mut(&id).ok_or(Loss::NoPeer)?;
        if !seat.has_room(cost(&parcel.message), settings) {
            return Err(Loss::PeerSlow);
        }
        seat.push(parcel);
        Ok(())
    }

    /// What is next for this one. It leaves of the session's Receive Maximum as much for others as
    /// it has under way itself, or one that takes nothing would keep the messages of all.
    pub(super) fn next(&self, id: PeerId, settings: &GatewaySettings) -> Option<Arc<Parcel>> {
        let mut present = lock(&self.present);
        let present = &mut *present;
        let free = present.window(settings).saturating_sub(present.owed);
        let seat = present.peers.get_mut(&id)?;
        if seat.owed > 0 && free < seat.owed + 2 && !settings.pattern.is_pair() {
            if seat.is_stuck(settings) {
                self.changed.notify_one();
            }
            return None;
        }
        // Who asks for more has room, also for what waits for others.
        if seat.stuck_since.take().is_some() {
            self.changed.notify_one();
        }
        let parcel = seat.queue.pop_front()?;
        seat.queue_bytes -= cost(&parcel.message);
        if parcel.receipt.is_some() {
            if seat.owed == 0 {
                seat.owed_since = Instant::now();
            }
            seat.owed += 1;
            present.owed += 1;
        }
        self.changed.notify_one();
        Some(parcel)
    }

    /// It has no room for what waits for it.
    pub(super) fn takes_nothing(&self, id: PeerId, settings: &GatewaySettings) {
        if lock(&self.present).peers.get_mut(&id).is_some_and(|seat| seat.is_stuck(settings)) {
            self.changed.notify_one();
        }
    }

    /// When what waits for one that takes nothing goes to another, or it goes itself; or when what
    /// stands aside is tried.
    pub(super) fn relieves_at(&self, settings: &GatewaySettings) -> Option<Instant> {
        let present = lock(&self.present);
        let is_stuck = |seat: &&Seat| !seat.queue.is_empty();
        let since = present.peers.values().filter(is_stuck).filter_map(|seat| seat.stuck_since);
        let first = since.min().filter(|_| present.has_hungry()).map(|since| since + STUCK);
        let stalled = present.stalled_since(settings).map(|since| since + STALLED);
        let tried = present.aside.due().filter(|_| !present.peers.is_empty());
        first.into_iter().chain(stalled).chain(tried).min()
    }

    /// When this one is to end at the latest, which it is once everything is written.
    pub(super) fn end(&self) -> Option<Instant> {
        lock(&self.present).end
    }

    pub(super) fn take_receipts(&self) -> Vec<Receipt> {
        std::mem::take(&mut lock(&self.present).taken)
    }

    /// A peer has more of what it was sent, and be it a part of one message.
    pub(super) fn moves(&self, id: PeerId) {
        if let Some(seat) = lock(&self.present).peers.get_mut(&id) {
            seat.owed_since = Instant::now();
        }
    }

    /// A peer has something that it was sent.
    pub(super) fn arrived(&self, id: PeerId, receipt: Option<Receipt>) {
        let mut present = lock(&self.present);
        let present = &mut *present;
        if let Some(seat) = present.peers.get_mut(&id) {
            seat.owed -= 1;
            seat.stuck_since = None;
            present.owed -= 1;
        }
        if let Some((_, id)) = receipt {
            present.aside.arrived(id, Instant::now());
        }
        present.taken.extend(receipt);
        self.changed.notify_one();
    }

    /// Hands on what a peer said, as far as there is room for it.
    pub(super) fn hand_in(&self, id: PeerId, said: &mut VecDeque<Message>) {
        if said.is_empty() {
            return;
        }
        let mut present = lock(&self.present);
        while present.intake.has_room(id)
            && let Some(message) = said.pop_front()
        {
            present.intake.push(id, message);
        }
        if let Some(seat) = present.peers.get_mut(&id) {
            seat.unheard = said.len();
        }
        drop(present);
        self.changed.notify_one();
    }

    /// What was read until now is all.
    pub(super) fn stop_hearing(&self) {
        lock(&self.present).is_deaf = true;
    }

    pub(super) fn is_deaf(&self) -> bool {
        lock(&self.present).is_deaf
    }

    /// Nobody says anything new: nobody is there, or none of them is read any more.
    pub(super) fn is_quiet(&self) -> bool {
        let present = lock(&self.present);
        present.is_deaf || present.peers.is_empty()
    }

    /// The session here was told all that was read.
    pub(super) fn is_heard_out(&self) -> bool {
        self.unheard() == 0
    }

    /// How many messages were read that the session here was not told.
    pub(super) fn unheard(&self) -> usize {
        let present = lock(&self.present);
        let waiting: usize = present.peers.values().map(|seat| seat.unheard).sum();
        present.intake.len() + waiting
    }

    /// What somebody said who may say it now.
    pub(super) fn take_inbound(&self, may: impl Fn(PeerId) -> bool) -> Option<(PeerId, Message)> {
        let mut present = lock(&self.present);
        let (id, message, waiting) = present.intake.take(may)?;
        match waiting {
            Waiting::All => present.peers.values().for_each(|seat| seat.wake.notify_one()),
            Waiting::It => present.peers.get(&id).into_iter().for_each(|s| s.wake.notify_one()),
            Waiting::Nobody => {}
        }
        Some((id, message))
    }

    /// A peer has so many bytes here of what it has begun to say, beside what it subscribes to.
    /// Where all together have too many those that have most are to go; says why this one may not
    /// stay.
    pub(super) fn hold(
        &self,
        id: PeerId,
        bytes: usize,
        settings: &GatewaySettings,
    ) -> Result<(), Cut> {
        let mut present = lock(&self.present);
        let present = &mut *present;
        let Some(seat) = present.peers.get_mut(&id) else { return Ok(()) };
        if let Some(cut) = seat.cut {
            return Err(cut);
        }
        let bytes = bytes + seat.topics.as_ref().map_or(0, Topics::bytes);
        present.held = present.held - seat.held + bytes;
        seat.held = bytes;
        while present.held > settings.peers_bytes_max as usize
            && let Some(most) = present.peers.values_mut().max_by_key(|seat| seat.held)
        {
            present.held -= std::mem::take(&mut most.held);
            most.cut = Some(Cut::HeldMost);
            most.wake.notify_one();
        }
        present.peers.get(&id).and_then(|seat| seat.cut).map_or(Ok(()), Err)
    }

    /// What the last connection to the session here owed nobody waits for any more.
    pub(super) fn forget(&self) {
        lock(&self.present).taken.clear();
        self.take_back();
    }

    /// No peer begins what the session here has again.
    pub(super) fn take_back(&self) {
        let mut present = lock(&self.present);
        present.returned.retain(|parcel| parcel.receipt.is_none());
        present.aside.forget();
        for seat in present.peers.values_mut() {
            seat.queue.retain(|parcel| parcel.receipt.is_none());
            seat.queue_bytes = seat.queue.iter().map(|parcel| cost(&parcel.message)).sum();
        }
    }

    /// Everyone ends, by the time that this says first. Says, too, how many messages nobody has any
    /// more.
    pub(super) fn close(&self) -> (Instant, usize) {
        let mut present = lock(&self.present);
        let end = *present.end.get_or_insert_with(|| Instant::now() + FINISH);
        present.peers.values().for_each(|seat| seat.wake.notify_one());
        let lost = present.returned.drain(..).filter(|parcel| parcel.receipt.is_none()).count();
        (end, lost)
    }
}

impl Present {
    /// So many messages the session here gives out beside those that stand aside.
    fn window(&self, settings: &GatewaySettings) -> usize {
        usize::from(settings.limits.inflight_max).saturating_sub(self.aside.len())
    }

    fn give(
        &mut self,
        parcel: Arc<Parcel>,
        settings: &GatewaySettings,
    ) -> Result<PeerId, Arc<Parcel>> {
        let bytes = cost(&parcel.message);
        let after = self.peers.range((Excluded(self.turn), Unbounded));
        let round = after.chain(self.peers.range(..=self.turn));
        let mut round = round.filter(|(_, seat)| seat.has_room(bytes, settings));
        let first = round.next();
        let is_stuck = |seat: &Seat| seat.stuck_since.is_some();
        // One that takes nothing has its turn where nobody else has room.
        let other = first
            .filter(|(_, seat)| is_stuck(seat))
            .and_then(|_| round.find(|(_, seat)| !is_stuck(seat)));
        let Some(id) = other.or(first).map(|(id, _)| *id) else { return Err(parcel) };
        self.turn = id;
        if let Some(seat) = self.peers.get_mut(&id) {
            seat.push(parcel);
        }
        Ok(id)
    }

    fn give_again(&mut self, settings: &GatewaySettings) -> Vec<(u32, PeerId)> {
        let mut given = Vec::new();
        self.relieve();
        self.cut_stalled(settings);
        if !self.peers.is_empty()
            && let Some(parcel) = self.aside.take(Instant::now())
            && let Err(parcel) = self.give(parcel, settings)
        {
            self.aside.put_back(parcel);
        }
        while let Some(parcel) = self.returned.pop_front() {
            let number = parcel.message.answered();
            match self.give(parcel, settings) {
                Ok(id) => given.extend(number.map(|number| (number, id))),
                Err(parcel) => {
                    self.returned.push_front(parcel);
                    break;
                }
            }
        }
        given
    }

    /// Somebody takes what comes and has nothing.
    fn has_hungry(&self) -> bool {
        self.peers.values().any(|seat| seat.queue.is_empty() && seat.stuck_since.is_none())
    }

    /// Since when one takes nothing of what it was sent while that, with what others were sent, is
    /// all that the session here gives out before it is told more, and somebody has nothing.
    fn stalled_since(&self, settings: &GatewaySettings) -> Option<Instant> {
        let has_all = self.owed >= self.window(settings);
        let awaits = |seat: &Seat| seat.queue.is_empty() && seat.owed == 0;
        let is_over = self.peers.values().any(|seat| seat.cut.is_some());
        if !has_all || is_over || !self.peers.values().any(awaits) {
            return None;
        }
        let owe = self.peers.values().filter(|seat| seat.owed > 0);
        owe.map(|seat| seat.owed_since).min()
    }

    /// Of those that have taken nothing for long whoever has most goes.
    fn cut_stalled(&mut self, settings: &GatewaySettings) {
        if self.stalled_since(settings).is_none_or(|since| since.elapsed() < STALLED) {
            return;
        }
        let stalled = |seat: &&mut Seat| seat.owed > 0 && seat.owed_since.elapsed() >= STALLED;
        if let Some(most) = self.peers.values_mut().filter(stalled).max_by_key(|seat| seat.owed) {
            most.cut = Some(Cut::TookNothing);
            most.wake.notify_one();
        }
    }

    /// What waits for those that take nothing is for those that do.
    fn relieve(&mut self) {
        if !self.has_hungry() {
            return;
        }
        for seat in self.peers.values_mut() {
            if seat.stuck_since.is_some_and(|since| since.elapsed() >= STUCK) {
                seat.queue_bytes = 0;
                self.returned.extend(seat.queue.drain(..));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::parcel::parcel;
    use super::super::tests::gateway;
    use super::*;
    use mqtt::PacketId;

    #[test]
    fn where_nobody_is_there_nothing_is_tried() {
        let own = [("protocol", "sp"), ("pattern", "push"), ("listen", "tcp://127.0.0.1:1")];
        let settings = gateway(&own, &[&[("filter", "out/#")]], &[]).unwrap();
        let mut present = Present::default();
        let message = Message { envelope: Vec::new(), frames: vec![vec![b'x']] };
        let long_ago = Instant::now() - Duration::from_secs(10);
        present.aside.push(parcel(message, Some((1, PacketId::MIN))), long_ago);
        let due = present.aside.due();
        assert!(due.is_some_and(|due| due <= Instant::now()), "{due:?}");
        present.give_again(&settings);
        assert_eq!(present.aside.due(), due, "it is not put off");
    }
}
