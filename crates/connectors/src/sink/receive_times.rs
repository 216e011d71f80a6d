//! Times of receipt of unacknowledged messages. A message which is sent again, for example after a
//! lost connection, keeps its time, so destinations recognize the duplicate.

use super::message::SinkMessage;
use mqtt::PacketId;
use std::collections::HashMap;

/// Times by packet id. Bounded by the session's Receive Maximum.
#[derive(Default)]
pub(super) struct ReceiveTimes(HashMap<PacketId, ReceiveTime>);

struct ReceiveTime {
    ms: u64,
    ns: u64,
}

impl ReceiveTimes {
    /// Gives a message the time of its first receipt. `is_again` is the DUP flag of PUBLISH.
    pub(super) fn assign_time(&mut self, message: &mut SinkMessage, is_again: bool) {
        let Some(packet_id) = message.packet_id else { return };
        match self.0.get(&packet_id) {
            Some(time) if is_again => {
                message.timestamp_ms = time.ms;
                message.taken_ns = time.ns;
            }
            _ => {
                let time = ReceiveTime { ms: message.timestamp_ms, ns: message.taken_ns };
                self.0.insert(packet_id, time);
            }
        }
    }

    /// Forgets an acknowledged packet id, which may belong to another message from now on.
    pub(super) fn forget(&mut self, packet_id: PacketId) {
        self.0.remove(&packet_id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_message_has_the_same_time() {
        let mut times = ReceiveTimes::default();
        let mut take = |packet_id, ns, is_again| {
            let packet_id = PacketId::new(packet_id);
            let mut message =
                SinkMessage { packet_id, taken_ns: ns, timestamp_ms: ns, ..SinkMessage::default() };
            times.assign_time(&mut message, is_again);
            assert_eq!(message.timestamp_ms, message.taken_ns);
            if ns == 30 {
                times.forget(packet_id.expect("it has one"));
            }
            message.taken_ns
        };
        // Messages with QoS 0 are never sent again.
        assert_eq!((take(0, 1, false), take(0, 2, false)), (1, 2));
        assert_eq!((take(7, 10, false), take(7, 11, true), take(8, 12, true)), (10, 10, 12));
        assert_eq!(take(7, 20, false), 20, "another session's");
        assert_eq!((take(7, 30, true), take(7, 31, true)), (20, 31), "acknowledged in between");
    }
}
