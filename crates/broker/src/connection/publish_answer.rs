//! The answer to a PUBLISH: an acknowledgement, a refusal, or nothing.

use crate::connection::connection_table::ConnectionTable;
use crate::counters::DropReason;
use crate::durability::pending_acks::AckPacket;
use crate::ids::{ConnId, SessionId};
use crate::interface::outbox::Outbox;
use crate::reason_string::encode_with_reason;
use crate::refusal::{CloseReason, Refusal};
use crate::session::session_table::SessionTable;
use mqtt::{PacketType, ProtocolVersion, Publish, PublishAck, QoS, ReasonCode, Violation};

impl ConnectionTable {
    /// Acknowledges an accepted PUBLISH with Success or No Matching Subscribers.
    #[inline]
    pub(crate) fn acknowledge_publish(
        &mut self,
        conn: ConnId,
        id: SessionId,
        packet: &Publish<'_>,
        matched: bool,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) {
        // The message is routed, so the broker has taken over responsibility [MQTT-4.3.2-4]
        // [MQTT-4.3.3-8]. Packet ids of QoS 1 are free again at once [MQTT-4.3.2-5].
        if let (QoS::ExactlyOnce, Some(packet_id)) = (packet.qos, packet.packet_id) {
            sessions.get_mut(id).flight().received.insert(packet_id);
            sessions.write_received(id, packet_id);
        }
        let reason = if matched { ReasonCode::Success } else { ReasonCode::NoMatchingSubscribers };
        let asked = sessions.durability.pending_acks.await_requested_commits();
        let waits = sessions.write_batch.stores_routed || asked;
        self.send_receipt(conn, packet, reason, waits, sessions, out);
    }

    /// Whether a QoS 2 message is a duplicate: received and not yet released by PUBREL. The broker
    /// acknowledges duplicates and does not deliver them again [MQTT-4.3.3-10].
    pub(crate) fn is_duplicate(
        &self,
        conn: ConnId,
        id: SessionId,
        packet: &Publish<'_>,
        sessions: &SessionTable,
    ) -> Result<bool, CloseReason> {
        let Some(packet_id) = packet.packet_id else { return Ok(false) };
        let receive_maximum = self.conn(conn).map_or(u16::MAX, |known| known.receive_maximum);
        let session = sessions.get(id);
        let Some(flight) = &session.flight else { return Ok(false) };
        if flight.received.contains(packet_id) {
            return Ok(true);
        }
        // [MQTT-3.3.4-7]: 3.x has no Receive Maximum.
        if session.version == ProtocolVersion::V5
            && flight.received.len() >= usize::from(receive_maximum)
        {
            return Err(Violation::ReceiveMaximumExceeded.into());
        }
        Ok(false)
    }

    /// Counts the drop and answers with the reason, or ends the connection: see `Refusal`.
    #[cold]
    pub(crate) fn refuse_publish(
        &mut self,
        conn: ConnId,
        id: SessionId,
        packet: &Publish<'_>,
        refusal: Refusal,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) -> Result<(), CloseReason> {
        let drop = match refusal {
            Refusal::QuotaExceeded => DropReason::OutOfMemory,
            Refusal::StoreFull => DropReason::StoreFull,
            _ => DropReason::Refused,
        };
        sessions.counters.drops[drop as usize] += 1;
        sessions.on_publish_refused(id, packet, drop);
        let version = sessions.get(id).version;
        if packet.qos == QoS::AtMostOnce {
            return Ok(());
        }
        // [3.1.1:MQTT-4.8.0-2]
        if version != ProtocolVersion::V5 && !refusal.is_acknowledged_in_v3() {
            return Err(refusal.into());
        }
        // In 3.x a QoS 2 exchange continues with PUBREL. In 5.0 the exchange ends here, and the
        // packet id is free [MQTT-4.3.3-9].
        if version != ProtocolVersion::V5
            && let (QoS::ExactlyOnce, Some(packet_id)) = (packet.qos, packet.packet_id)
        {
            sessions.get_mut(id).flight().received.insert(packet_id);
        }
        self.send_refusal(conn, id, packet, refusal, sessions, out);
        Ok(())
    }

    /// Sends PUBACK or PUBREC, as the QoS requires [MQTT-3.3.4-1].
    #[inline]
    pub(crate) fn send_receipt(
        &mut self,
        conn: ConnId,
        packet: &Publish<'_>,
        reason: ReasonCode,
        waits: bool,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) {
        let Some(packet_id) = packet.packet_id else { return };
        let kind = match packet.qos {
            QoS::AtMostOnce => return,
            QoS::AtLeastOnce => PacketType::PubAck,
            QoS::ExactlyOnce => PacketType::PubRec,
        };
        let ack = AckPacket::new(kind, packet_id, reason);
        self.acknowledge_when_durable(conn, ack, waits, sessions, out);
    }

    /// Refuses a PUBLISH, with a reason string if the client wants them.
    #[cold]
    fn send_refusal(
        &mut self,
        conn: ConnId,
        id: SessionId,
        packet: &Publish<'_>,
        refusal: Refusal,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) {
        let session = sessions.get(id);
        let Some(packet_id) = packet.packet_id.filter(|_| session.wants_reason_strings()) else {
            return self.send_receipt(conn, packet, refusal.reason(), false, sessions, out);
        };
        let two = packet.qos == QoS::ExactlyOnce;
        let kind = if two { PacketType::PubRec } else { PacketType::PubAck };
        let bytes = encode_with_reason(
            Some(refusal.description()),
            session.packet_bytes_max,
            |properties, to| {
                PublishAck { packet_id, reason: refusal.reason(), properties }.encode(
                    kind,
                    ProtocolVersion::V5,
                    to,
                );
            },
        );
        self.send_when_durable(conn, &bytes, false, sessions, out);
    }
}
