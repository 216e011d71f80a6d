//! What peers have said and the session here was not told yet. Each of them has its turn, so that
//! whoever says much, or may say no more for now, keeps nobody else waiting.

use super::parcel::{PeerId, cost};
use patterns::Message;
use std::collections::{BTreeMap, VecDeque};

#[derive(Default)]
pub(super) struct Intake {
    /// Of whom there is something, also of those that have gone.
    said: BTreeMap<PeerId, Said>,
    round: VecDeque<PeerId>,
    messages: usize,
    bytes: usize,
}

#[derive(Default)]
struct Said {
    messages: VecDeque<Message>,
    bytes: usize,
}

/// Peers that have something to say and had no room for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waiting {
    All,
    It,
    Nobody,
}

const MESSAGES_MAX: usize = 4096;
const BYTES_MAX: usize = 1 << 20;
/// One message of a peer that has nothing here has room beyond that, up to so much of all.
const ALL_BYTES_MAX: usize = 16 << 20;

impl Intake {
    /// Whether there is room for one more of this peer. None has more than half of it.
    pub(super) fn has_room(&self, id: PeerId) -> bool {
        match self.said.get(&id) {
            None => self.bytes < ALL_BYTES_MAX,
            Some(own) => {
                !self.is_full()
                    && own.messages.len() < MESSAGES_MAX / 2
                    && own.bytes < BYTES_MAX / 2
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.said.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.messages
    }

    pub(super) fn is_full(&self) -> bool {
        self.messages >= MESSAGES_MAX || self.bytes >= BYTES_MAX
    }

    pub(super) fn push(&mut self, id: PeerId, message: Message) {
        let bytes = cost(&message);
        let own = self.said.entry(id).or_default();
        if own.messages.is_empty() {
            self.round.push_back(id);
        }
        own.messages.push_back(message);
        own.bytes += bytes;
        self.messages += 1;
        self.bytes += bytes;
    }

    /// The next of somebody who may say it, each in turn; and who may have been waiting for that.
    pub(super) fn take(
        &mut self,
        may: impl Fn(PeerId) -> bool,
    ) -> Option<(PeerId, Message, Waiting)> {
        let at = self.round.iter().position(|id| may(*id))?;
        self.round.rotate_left(at);
        let id = self.round.pop_front()?;
        let waiting = match (self.is_full(), self.has_room(id)) {
            (true, _) => Waiting::All,
            (false, false) => Waiting::It,
            (false, true) => Waiting::Nobody,
        };
        let own = self.said.get_mut(&id)?;
        let message = own.messages.pop_front()?;
        let bytes = cost(&message);
        own.bytes -= bytes;
        self.messages -= 1;
        self.bytes -= bytes;
        match own.messages.is_empty() {
            true => _ = self.said.remove(&id),
            false => self.round.push_back(id),
        }
        Some((id, message, waiting))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(len: usize) -> Message {
        Message { envelope: Vec::new(), frames: vec![vec![0; len]] }
    }

    #[test]
    fn who_says_much_takes_turns_with_who_says_little() {
        let mut intake = Intake::default();
        (0..3).for_each(|_| intake.push(1, message(1)));
        intake.push(2, message(1));
        let order: Vec<PeerId> =
            std::iter::from_fn(|| intake.take(|_| true)).map(|(id, ..)| id).collect();
        assert_eq!(order, [1, 2, 1, 1]);
    }

    #[test]
    fn who_may_not_speak_keeps_nobody_waiting() {
        let mut intake = Intake::default();
        while intake.has_room(1) {
            intake.push(1, message(1000));
        }
        assert!(intake.has_room(2));
        intake.push(2, message(7));
        let other = intake.take(|id| id != 1);
        assert_eq!(other, Some((2, message(7), Waiting::Nobody)));
        assert_eq!(intake.take(|id| id != 1), None);
        let held = intake.take(|_| true);
        assert!(held.is_some_and(|(id, _, waiting)| id == 1 && waiting == Waiting::It));
    }

    #[test]
    fn there_is_an_end_to_it() {
        let mut intake = Intake::default();
        for id in 0..100 {
            if intake.has_room(id) {
                intake.push(id, message(1 << 20));
            }
        }
        assert!(intake.bytes < 2 * ALL_BYTES_MAX && intake.is_full());
        while intake.take(|_| true).is_some() {}
        assert_eq!((intake.messages, intake.bytes, intake.said.len()), (0, 0, 0));
    }
}
