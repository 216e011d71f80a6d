//! Packets other than PUBLISH to and from a client.

use crate::ids::SessionId;
use crate::interface::outbox::Outbox;
use crate::reason_string::encode_with_reason;
use crate::refusal::CloseReason;
use crate::session::session_table::SessionTable;
use mqtt::{
    Disconnect, PINGRESP, Packet, PacketFrame, Property, ProtocolVersion, ReasonCode, Violation,
};

impl SessionTable {
    /// Takes back the count of a CONNECT that moves to another shard or waits: the packet is read
    /// and counted again later.
    pub(crate) fn uncount_packet(&mut self, len: usize) {
        self.counters.messages_received -= 1;
        self.counters.bytes_received -= len as u64;
    }

    pub(crate) fn pingreq(
        &mut self,
        session: SessionId,
        frame: PacketFrame<'_>,
        out: &mut Outbox,
    ) -> Result<(), CloseReason> {
        Packet::decode(frame, self.get(session).version)?;
        // [MQTT-3.12.4-1]
        self.send_packet(session, &PINGRESP, out);
        Ok(())
    }

    /// Handles DISCONNECT from the client. The Session Expiry Interval replaces the value of
    /// CONNECT, bounded by `session_expiry_s_max`; `Violation::SessionExpiryRaised` if CONNECT had
    /// 0 or none.
    pub(crate) fn disconnect(
        &mut self,
        id: SessionId,
        packet: &Disconnect<'_>,
    ) -> Result<(), CloseReason> {
        let max = self.context.options.session_expiry_s_max;
        let session = self.get_mut(id);
        for property in packet.properties.iter() {
            if let Property::SessionExpiryInterval(seconds) = property {
                if !session.asked_to_stay && seconds > 0 {
                    return Err(Violation::SessionExpiryRaised.into());
                }
                session.expiry_s = seconds.min(max);
            }
        }
        // [MQTT-3.14.4-3]
        if packet.reason == ReasonCode::Success
            && self.set_will(id, None).is_some()
            && self.get(id).persistent.is_some()
        {
            // A power cut before the sync would restore the will: request the sync now instead of
            // waiting up to a second.
            self.request_sync();
        }
        Err(CloseReason::ClientDisconnect(packet.reason))
    }

    /// Sends a packet other than PUBLISH to a connected client, without regard to the window
    /// [MQTT-3.3.4-10] [MQTT-4.9.0-3].
    pub(crate) fn send_packet(&mut self, id: SessionId, bytes: &[u8], out: &mut Outbox) {
        let session = self.get_mut(id);
        let Some(conn) = session.conn() else { return };
        out.write(conn, &mut session.write).own.extend_from_slice(bytes);
        out.count_bytes(bytes.len());
        self.counters.messages_sent += 1;
        self.counters.bytes_sent += bytes.len() as u64;
    }

    /// Sends DISCONNECT to a client of 5.0, the only version in which the server may
    /// [MQTT-3.14.4-1]. The packet has at most a reason code and a Reason String [MQTT-3.14.2-2].
    pub(crate) fn send_disconnect(
        &mut self,
        id: SessionId,
        reason: ReasonCode,
        what: Option<&str>,
        out: &mut Outbox,
    ) {
        let session = self.get(id);
        // A data stream ends without DISCONNECT, because the connection goes on.
        if session.version == ProtocolVersion::V5 && !session.is_data_stream {
            let bytes = encode_with_reason(what, session.packet_bytes_max, |properties, bytes| {
                Disconnect { reason, properties }.encode(ProtocolVersion::V5, bytes);
            });
            self.send_packet(id, &bytes, out);
        }
    }
}
