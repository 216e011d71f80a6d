//! PUBACK, PUBREC, PUBREL and PUBCOMP from a client: its side of the handshakes.

use crate::flight::State;
use crate::input::SessionId;
use crate::outbox::Outbox;
use crate::session::Sessions;
use mqtt::{Ack, PacketId, PacketType, Properties, QoS, Reason};

impl Sessions {
    /// A run of PUBACKs without a reason, which is what a busy subscriber sends. How many bytes it
    /// takes; the first that is anything else is left to the codec.
    pub(crate) fn pubacks(&mut self, id: SessionId, bytes: &[u8], out: &mut Outbox) -> usize {
        let mut taken = 0;
        while let [0x40, 2, high, low, ..] = bytes[taken..]
            && let Some(packet_id) = PacketId::new(u16::from_be_bytes([high, low]))
            && !out.is_full()
        {
            taken += 4;
            self.puback(id, packet_id, out);
        }
        self.counters.messages_received += taken as u64 / 4;
        self.counters.bytes_received += taken as u64;
        taken
    }

    /// A QoS 1 message is unacknowledged until here [MQTT-4.3.2-3], and no longer, whatever the
    /// reason says [MQTT-4.4.0-2] [MQTT-4.8.2-6].
    #[inline]
    pub(crate) fn puback(&mut self, id: SessionId, packet_id: PacketId, out: &mut Outbox) {
        self.finish(id, packet_id, State::Sent, QoS::AtLeastOnce, out);
    }

    /// The message is the client's now, and is not sent again [MQTT-4.3.3-3] [MQTT-4.3.3-6]. A
    /// reason from 0x80 on ends the exchange [MQTT-4.4.0-2] [MQTT-4.8.2-6].
    pub(crate) fn pubrec(&mut self, id: SessionId, ack: &Ack<'_>, out: &mut Outbox) {
        let flight = self.get_mut(id).flight.as_mut();
        let slot = flight.and_then(|flight| flight.find(ack.packet_id));
        let slot = slot.filter(|slot| slot.qos == QoS::ExactlyOnce);
        let Some(slot) = slot else {
            let reason = Reason::PacketIdentifierNotFound;
            return self.acknowledge(id, PacketType::PubRel, ack.packet_id, reason, out);
        };
        if ack.reason.is_error() {
            if slot.state == State::Sent {
                self.finish(id, ack.packet_id, State::Sent, QoS::ExactlyOnce, out);
            }
            return;
        }
        slot.state = State::Released;
        if !slot.released {
            slot.released = true;
            let message = slot.message;
            self.messages.release(message);
        }
        // [MQTT-4.3.3-4]
        self.acknowledge(id, PacketType::PubRel, ack.packet_id, Reason::Success, out);
    }

    /// PUBREL is unacknowledged until here [MQTT-4.3.3-5].
    pub(crate) fn pubcomp(&mut self, id: SessionId, packet_id: PacketId, out: &mut Outbox) {
        self.finish(id, packet_id, State::Released, QoS::ExactlyOnce, out);
    }

    /// The client forgets the id of its QoS 2 message: from here on the id is a new message
    /// [MQTT-4.3.3-11] [MQTT-4.3.3-12]. What became of the old one, expired or not, does not matter
    /// [MQTT-4.3.3-13].
    pub(crate) fn pubrel(&mut self, id: SessionId, packet_id: PacketId, out: &mut Outbox) {
        let flight = self.get_mut(id).flight();
        let place = flight.received.iter().position(|&received| received == packet_id);
        let reason = match place {
            Some(place) => {
                flight.received.remove(place);
                Reason::Success
            }
            None => Reason::PacketIdentifierNotFound,
        };
        self.acknowledge(id, PacketType::PubComp, packet_id, reason, out);
    }

    /// A slot in the given state is done; what waited for its place may go.
    #[inline]
    fn finish(
        &mut self,
        id: SessionId,
        packet_id: PacketId,
        state: State,
        qos: QoS,
        out: &mut Outbox,
    ) {
        let session = self.get_mut(id);
        let Some(flight) = &mut session.flight else { return };
        let Some(slot) = flight.finish(packet_id, state, qos) else { return };
        let waits = !flight.waiting.is_empty() || flight.has_unseen();
        let feeds = session.rare.as_ref().is_some_and(|rare| !rare.cursors.is_empty());
        if session.is_member {
            self.rooms.push(id);
        }
        self.forget(slot, false);
        if waits || feeds {
            self.flow(id, out);
        }
    }

    /// Writes one of the four acknowledgements under the id that it answers [MQTT-2.2.1-5], in its
    /// shortest form. 3.x knows no reasons.
    #[inline]
    pub(crate) fn acknowledge(
        &mut self,
        id: SessionId,
        kind: PacketType,
        packet_id: PacketId,
        reason: Reason,
        out: &mut Outbox,
    ) {
        let session = self.get_mut(id);
        let version = session.version;
        let Some(conn) = session.conn() else { return };
        let own = &mut out.write(conn, &mut session.write).own;
        let before = own.len();
        let ack = Ack { packet_id, reason, properties: Properties::default() };
        ack.encode(kind, version, own);
        let bytes = own.len() - before;
        out.count_bytes(bytes);
        self.counters.messages_sent += 1;
        self.counters.bytes_sent += bytes as u64;
    }
}
