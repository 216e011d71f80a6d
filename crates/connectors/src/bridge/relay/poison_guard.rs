//! Search for the message which makes a remote broker close the connection. A 3.1.1 broker cannot
//! give the reason, so the message stays in the session and the log names the suspect.

use mqtt::PacketId;

/// Suspects of one connection.
#[derive(Debug, Default)]
pub struct PoisonCandidates {
    /// The largest message without an acknowledgement.
    largest: Option<PoisonCandidate>,
    /// Whether the remote broker acknowledged any message of the connection.
    is_answered: bool,
}

#[derive(Debug)]
struct PoisonCandidate {
    id: PacketId,
    topic: String,
    bytes: usize,
}

/// Suspect over several connections in a row.
#[derive(Debug, Default)]
pub struct PoisonGuard {
    id: Option<PacketId>,
    hang_ups: u32,
}

/// Number of closed connections in a row before a report: fewer may be a restart of the remote
/// broker or of a proxy.
const HANG_UPS: u32 = 3;

impl PoisonCandidates {
    pub(super) fn record_sent(&mut self, id: PacketId, topic: &str, bytes: usize) {
        let is_larger = self.largest.as_ref().is_none_or(|one| bytes > one.bytes);
        if is_larger && !self.is_answered {
            self.largest = Some(PoisonCandidate { id, topic: topic.into(), bytes });
        }
    }

    pub(super) fn record_answer(&mut self) {
        self.is_answered = true;
    }
}

impl PoisonGuard {
    /// Records a connection which the remote broker closed. Returns the text for the log after
    /// `HANG_UPS` connections with the same suspect.
    pub fn record_hang_up(&mut self, suspects: &PoisonCandidates) -> Option<String> {
        if suspects.is_answered {
            *self = PoisonGuard::default();
            return None;
        }
        let suspect = suspects.largest.as_ref()?;
        let is_same = self.id == Some(suspect.id);
        self.hang_ups = if is_same { self.hang_ups + 1 } else { 1 };
        self.id = Some(suspect.id);
        let PoisonCandidate { topic, bytes, .. } = suspect;
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

    fn sent(id: u16) -> PoisonCandidates {
        let mut suspects = PoisonCandidates::default();
        suspects.record_sent(PacketId::new(id).expect("a number"), "t", 9);
        suspects.record_sent(PacketId::new(99).expect("a number"), "t", 8);
        suspects
    }

    #[test]
    fn one_that_was_the_largest_often_enough_is_named() {
        let mut suspicion = PoisonGuard::default();
        for id in [7, 7, 8, 8] {
            assert_eq!(suspicion.record_hang_up(&sent(id)), None);
        }
        // A connection without sent messages is no evidence.
        assert_eq!(suspicion.record_hang_up(&PoisonCandidates::default()), None);
        let said = suspicion.record_hang_up(&sent(8)).expect("the third time");
        assert!(said.contains("3 times") && said.contains("9 bytes to \"t\""), "{said}");
    }

    #[test]
    fn who_acknowledges_something_hangs_up_for_another_reason() {
        let mut suspicion = PoisonGuard::default();
        for answers in [false, false, true, false, false] {
            let mut suspects = sent(7);
            if answers {
                suspects.record_answer();
            }
            assert_eq!(suspicion.record_hang_up(&suspects), None);
        }
        assert!(suspicion.record_hang_up(&sent(7)).is_some());
    }
}
