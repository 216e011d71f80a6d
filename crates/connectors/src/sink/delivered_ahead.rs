//! Messages which the destination has accepted although an earlier message of the batch was
//! refused. They are not sent again.
//!
//! A message is identified by its time of receipt, `taken_ns`, which a repeated message keeps: see
//! `ReceiveTimes`.

use super::destination::{BatchError, SinkError};
use super::message::SinkMessage;
use std::collections::HashSet;
use std::sync::Arc;

/// Times of receipt of the messages delivered ahead of a refused one.
#[derive(Clone, Default)]
pub(super) struct DeliveredAhead(HashSet<u64>);

impl DeliveredAhead {
    /// Returns the messages of a batch which the destination does not have yet. Drops entries older
    /// than the batch.
    pub(super) fn undelivered<'a>(
        &mut self,
        batch: &'a [Arc<SinkMessage>],
    ) -> Vec<&'a Arc<SinkMessage>> {
        // Batches before this one are acknowledged, so their entries are not needed.
        let oldest_ns = batch.iter().map(|message| message.taken_ns).min().unwrap_or_default();
        self.0.retain(|taken_ns| *taken_ns >= oldest_ns);
        batch.iter().filter(|message| !self.0.contains(&message.taken_ns)).collect()
    }

    /// Records the result of each sent message. The first message which was not delivered decides
    /// how the sink continues, see [`BatchError`].
    pub(super) fn record_results(
        &mut self,
        batch: &[Arc<SinkMessage>],
        sent: &[&Arc<SinkMessage>],
        said: Vec<Result<(), SinkError>>,
    ) -> Result<(), BatchError> {
        let mut all = sent.iter().zip(said);
        let Some((first, what)) = all.find_map(|(one, said)| said.err().map(|what| (one, what)))
        else {
            return Ok(());
        };
        let is_there = all.filter(|(_, said)| said.is_ok()).map(|(one, _)| one.taken_ns);
        self.0.extend(is_there);
        let taken = batch.iter().position(|one| one.taken_ns == first.taken_ns);
        Err(BatchError { accepted: taken.unwrap_or_default(), error: what })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_not_sent_again_and_forgotten_once_it_is_behind() {
        let one = |taken_ns| Arc::new(SinkMessage { taken_ns, ..SinkMessage::default() });
        let batch: Vec<_> = (1..=4).map(one).collect();
        let mut ahead = DeliveredAhead::default();
        let times =
            |all: Vec<&Arc<SinkMessage>>| all.iter().map(|one| one.taken_ns).collect::<Vec<_>>();
        let sent = ahead.undelivered(&batch);
        let refused = || Err(SinkError::Rejected("no".into()));
        let said = vec![Ok(()), refused(), Ok(()), refused()];
        let setback = ahead.record_results(&batch, &sent, said).unwrap_err();
        assert_eq!(setback.accepted, 1);
        // The same messages again, for example after a lost connection.
        let again: Vec<_> = (2..=5).map(one).collect();
        assert_eq!(times(ahead.undelivered(&again)), [2, 4, 5]);
        let sent = ahead.undelivered(&again);
        ahead.record_results(&again, &sent, vec![Ok(()), Ok(()), Ok(())]).unwrap();
        assert_eq!(times(ahead.undelivered(&again[..1])), [2], "only what is behind something");
        ahead.undelivered(&[one(9)]);
        assert!(ahead.0.is_empty());
    }
}
