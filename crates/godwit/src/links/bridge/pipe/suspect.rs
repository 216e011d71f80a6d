//! Which message it may be that the other broker hangs up on. One that speaks 3.1.1 cannot say why
//! it does, and so nobody knows: the message stays, and a person hears of it.

use mqtt::PacketId;

/// Of one connection.
#[derive(Debug, Default)]
pub(crate) struct Suspects {
    /// The largest of those that are not acknowledged.
    largest: Option<Suspect>,
    /// It has acknowledged something.
    is_answered: bool,
}

#[derive(Debug)]
struct Suspect {
    id: PacketId,
    topic: String,
    bytes: usize,
}

/// Of one connection after the other.
#[derive(Debug, Default)]
pub(crate) struct Suspicion {
    id: Option<PacketId>,
    hang_ups: u32,
}

/// Once it may be a restart of the other broker, and twice that of what stands between.
const HANG_UPS: u32 = 3;

impl Suspects {
    pub(super) fn send(&mut self, id: PacketId, topic: &str, bytes: usize) {
        let is_larger = self.largest.as_ref().is_none_or(|one| bytes > one.bytes);
        if is_larger && !self.is_answered {
            self.largest = Some(Suspect { id, topic: topic.into(), bytes });
        }
    }

    pub(super) fn answer(&mut self) {
        self.is_answered = true;
    }
}

impl Suspicion {
    /// After a connection that the other broker has ended: what is to be said of it, if anything.
    pub(crate) fn hang_up(&mut self, suspects: &Suspects) -> Option<String> {
        if suspects.is_answered {
            *self = Suspicion::default();
            return None;
        }
        let suspect = suspects.largest.as_ref()?;
        let is_same = self.id == Some(suspect.id);
        self.hang_ups = if is_same { self.hang_ups + 1 } else { 1 };
        self.id = Some(suspect.id);
        let Suspect { topic, bytes, .. } = suspect;
        (self.hang_ups >= HANG_UPS).then(|| {
            format!(
                "{} times in a row with one message unanswered, {bytes} bytes to {topic:?}: if it \
                 is too large there, packet_bytes_max of the bridge has such messages dropped",
                self.hang_ups
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(id: u16) -> Suspects {
        let mut suspects = Suspects::default();
        suspects.send(PacketId::new(id).expect("a number"), "t", 9);
        suspects.send(PacketId::new(99).expect("a number"), "t", 8);
        suspects
    }

    #[test]
    fn one_that_was_the_largest_often_enough_is_named() {
        let mut suspicion = Suspicion::default();
        for id in [7, 7, 8, 8] {
            assert_eq!(suspicion.hang_up(&sent(id)), None);
        }
        // Nothing was sent, which says nothing.
        assert_eq!(suspicion.hang_up(&Suspects::default()), None);
        let said = suspicion.hang_up(&sent(8)).expect("the third time");
        assert!(said.contains("3 times") && said.contains("9 bytes to \"t\""), "{said}");
    }

    #[test]
    fn who_acknowledges_something_hangs_up_for_another_reason() {
        let mut suspicion = Suspicion::default();
        for answers in [false, false, true, false, false] {
            let mut suspects = sent(7);
            if answers {
                suspects.answer();
            }
            assert_eq!(suspicion.hang_up(&suspects), None);
        }
        assert!(suspicion.hang_up(&sent(7)).is_some());
    }
}
