//! Received messages which the local session does not have yet. The peers take turns, so a peer
//! with many messages, or a blocked one, does not delay the other peers.

use super::peer_message::{PeerId, cost};
use std::collections::{BTreeMap, VecDeque};
use zmtp_sp::MultipartMessage;

/// Received messages by peer, bounded in messages and bytes, and taken round robin.
#[derive(Default)]
pub(super) struct PeerIntake {
    /// Backlogs by peer, including departed peers.
    by_peer: BTreeMap<PeerId, PeerBacklog>,
    round: VecDeque<PeerId>,
    messages: usize,
    bytes: usize,
}

#[derive(Default)]
struct PeerBacklog {
    messages: VecDeque<MultipartMessage>,
    bytes: usize,
}

/// Peers which may have waited for the room that a taken message frees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockedPeers {
    All,
    ThisPeer,
    NoPeer,
}

const MESSAGES_MAX: usize = 4096;
const BYTES_MAX: usize = 1 << 20;
/// Bound of all bytes when first messages of peers without a backlog are added to `BYTES_MAX`.
const ALL_BYTES_MAX: usize = 16 << 20;

impl PeerIntake {
    /// Whether there is room for a message of this peer. A peer may use half of each bound; the
    /// first message of a peer has the larger bound `ALL_BYTES_MAX`.
    pub(super) fn has_room(&self, id: PeerId) -> bool {
        match self.by_peer.get(&id) {
            None => self.bytes < ALL_BYTES_MAX,
            Some(own) => {
                !self.is_full()
                    && own.messages.len() < MESSAGES_MAX / 2
                    && own.bytes < BYTES_MAX / 2
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_peer.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.messages
    }

    pub(super) fn is_full(&self) -> bool {
        self.messages >= MESSAGES_MAX || self.bytes >= BYTES_MAX
    }

    pub(super) fn push(&mut self, id: PeerId, message: MultipartMessage) {
        let bytes = cost(&message);
        let own = self.by_peer.entry(id).or_default();
        if own.messages.is_empty() {
            self.round.push_back(id);
        }
        own.messages.push_back(message);
        own.bytes += bytes;
        self.messages += 1;
        self.bytes += bytes;
    }

    /// Takes a message of the next peer for which `may` returns true; `None` if no such peer has a
    /// message. Also returns which peers may have waited for room.
    pub(super) fn take_next(
        &mut self,
        may: impl Fn(PeerId) -> bool,
    ) -> Option<(PeerId, MultipartMessage, BlockedPeers)> {
        let at = self.round.iter().position(|id| may(*id))?;
        self.round.rotate_left(at);
        let id = self.round.pop_front()?;
        let waiting = match (self.is_full(), self.has_room(id)) {
            (true, _) => BlockedPeers::All,
            (false, false) => BlockedPeers::ThisPeer,
            (false, true) => BlockedPeers::NoPeer,
        };
        let own = self.by_peer.get_mut(&id)?;
        let message = own.messages.pop_front()?;
        let bytes = cost(&message);
        own.bytes -= bytes;
        self.messages -= 1;
        self.bytes -= bytes;
        match own.messages.is_empty() {
            true => _ = self.by_peer.remove(&id),
            false => self.round.push_back(id),
        }
        Some((id, message, waiting))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(len: usize) -> MultipartMessage {
        MultipartMessage { envelope: Vec::new(), frames: vec![vec![0; len]] }
    }

    #[test]
    fn who_says_much_takes_turns_with_who_says_little() {
        let mut intake = PeerIntake::default();
        (0..3).for_each(|_| intake.push(1, message(1)));
        intake.push(2, message(1));
        let order: Vec<PeerId> =
            std::iter::from_fn(|| intake.take_next(|_| true)).map(|(id, ..)| id).collect();
        assert_eq!(order, [1, 2, 1, 1]);
    }

    #[test]
    fn who_may_not_speak_keeps_nobody_waiting() {
        let mut intake = PeerIntake::default();
        while intake.has_room(1) {
            intake.push(1, message(1000));
        }
        assert!(intake.has_room(2));
        intake.push(2, message(7));
        let other = intake.take_next(|id| id != 1);
        assert_eq!(other, Some((2, message(7), BlockedPeers::NoPeer)));
        assert_eq!(intake.take_next(|id| id != 1), None);
        let held = intake.take_next(|_| true);
        assert!(held.is_some_and(|(id, _, waiting)| id == 1 && waiting == BlockedPeers::ThisPeer));
    }

    #[test]
    fn there_is_an_end_to_it() {
        let mut intake = PeerIntake::default();
        for id in 0..100 {
            if intake.has_room(id) {
                intake.push(id, message(1 << 20));
            }
        }
        assert!(intake.bytes < 2 * ALL_BYTES_MAX && intake.is_full());
        while intake.take_next(|_| true).is_some() {}
        assert_eq!((intake.messages, intake.bytes, intake.by_peer.len()), (0, 0, 0));
    }
}
