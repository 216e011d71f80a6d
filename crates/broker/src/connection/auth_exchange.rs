//! Extended authentication in several steps (MQTT 5.0, 4.12).
//!
//! ```text
//!         CONNECT, method                 AuthDecision::Challenge
//! AwaitingConnect -------> Authenticating ----------------> Challenged, AUTH 0x18 sent
//!                               ^                                  |
//!                               +----------------------------------+
//!                                  AUTH 0x18 came: asked again
//! ```
//!
//! CONNECT and the client's AUTH packets stay unread in the transport until the last decision. An
//! accepted client may re-authenticate (0x19); no other packet of the connection waits meanwhile.

use crate::connection::conn::ConnState;
use crate::connection::connection_table::ConnectionTable;
use crate::ids::{ConnId, SessionId};
use crate::interface::outbox::{Effect, Outbox};
use crate::limits::NONE;
use crate::peer::authentication::{AuthRequest, AuthStep, SecretBytes, auth_properties};
use crate::refusal::{CloseReason, Refusal};
use crate::session::session_table::SessionTable;
use mqtt::{
    Auth, Connect, Disconnect, Packet, PacketFrame, PacketType, PropertiesBuf, Property,
    ProtocolVersion, ReasonCode, Violation,
};

/// State of a connection with an authentication method [MQTT 5.0, 4.12].
#[derive(Clone, Debug)]
pub(crate) struct AuthExchange {
    pub(in crate::connection) method: Box<str>,
    /// The client's Maximum Packet Size in bytes.
    packet_bytes_max: u32,
    /// State of the backend while the client owes the response to a challenge.
    pub(crate) memory: Option<SecretBytes>,
    /// Number of AUTH packets behind CONNECT that are handled but not yet consumed.
    auth_packets: u8,
    /// Whether an accepted client waits for the decision on a re-authentication.
    pub(crate) asked: bool,
}

/// Largest number of AUTH packets in one exchange. No known method needs more.
const ANSWERS_MAX: u8 = 8;

impl AuthExchange {
    pub(crate) fn new(method: &str, packet_bytes_max: u32) -> AuthExchange {
        AuthExchange {
            method: method.into(),
            packet_bytes_max,
            memory: None,
            auth_packets: 0,
            asked: false,
        }
    }

    /// Creates the state for an accepted client, for a later re-authentication.
    pub(crate) fn for_accepted(method: &str, packet_bytes_max: u32, answers: u8) -> AuthExchange {
        AuthExchange { auth_packets: answers, ..AuthExchange::new(method, packet_bytes_max) }
    }

    pub(crate) fn auth_packets(&self) -> u8 {
        self.auth_packets
    }

    /// Encodes an AUTH packet. `Refusal::AnswerTooLarge` above the client's Maximum Packet Size
    /// [MQTT-3.1.2-24]. Optional properties are left out [MQTT-3.15.2-2] [MQTT-3.15.2-3].
    pub(crate) fn encode_auth(
        &self,
        reason: ReasonCode,
        data: Option<&[u8]>,
    ) -> Result<Vec<u8>, Refusal> {
        let (mut properties, mut bytes) = (PropertiesBuf::default(), Vec::new());
        push_auth_properties(&self.method, data, &mut properties);
        let auth = Auth { reason, properties: properties.as_properties() };
        Packet::Auth(auth).encode(ProtocolVersion::V5, &mut bytes);
        match bytes.len() > self.packet_bytes_max as usize {
            true => Err(Refusal::AnswerTooLarge),
            false => Ok(bytes),
        }
    }
}

/// Writes the properties of AUTH and CONNACK. The method must be the method of CONNECT
/// [MQTT-4.12.0-5].
pub(crate) fn push_auth_properties(method: &str, data: Option<&[u8]>, into: &mut PropertiesBuf) {
    into.push(Property::AuthenticationMethod(method));
    if let Some(data) = data {
        into.push(Property::AuthenticationData(data));
    }
}

impl ConnectionTable {
    /// Sends a challenge of the backend to a client before CONNACK [MQTT-4.12.0-2]. The deadline of
    /// the request stays in force.
    pub(crate) fn send_challenge(
        &mut self,
        conn: ConnId,
        data: &[u8],
        memory: SecretBytes,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) -> Result<(), Refusal> {
        let Some(known) = self.conn_mut(conn) else { return Ok(()) };
        let Some(exchange) = &mut known.exchange else { return Ok(()) };
        exchange.memory = Some(memory);
        let bytes = exchange.encode_auth(ReasonCode::ContinueAuthentication, Some(data))?;
        // The deadline of the request goes on.
        known.state = ConnState::Challenged;
        let mut slot = NONE;
        out.write(conn, &mut slot).own.extend_from_slice(&bytes);
        sessions.counters.messages_sent += 1;
        sessions.counters.bytes_sent += bytes.len() as u64;
        out.effects.push(Effect::Resume { conn });
        Ok(())
    }

    pub(crate) fn find_auth_packet(
        &mut self,
        conn: ConnId,
        bytes: &[u8],
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) -> Result<(), CloseReason> {
        let Some(known) = self.conn(conn) else { return Ok(()) };
        let Some(exchange) = &known.exchange else { return Ok(()) };
        let max = known.packet_bytes_max;
        let Some(first) = mqtt::split_frame(bytes, max)? else { return Ok(()) };
        let mut rest = &bytes[first.len..];
        for _ in 0..exchange.auth_packets {
            let Some(frame) = mqtt::split_frame(rest, max)? else { return Ok(()) };
            rest = &rest[frame.len..];
        }
        let Some(frame) = mqtt::split_frame(rest, max)? else { return Ok(()) };
        let packet = Connect::decode(first)?;
        // [MQTT-3.1.2-30]
        match PacketType::from_byte(frame.first) {
            Some(PacketType::Auth) => {}
            Some(PacketType::Disconnect) => {
                return Err(CloseReason::ClientDisconnect(
                    Disconnect::decode(frame, ProtocolVersion::V5)?.reason,
                ));
            }
            _ => return Err(Violation::AuthExpected.into()),
        }
        if exchange.auth_packets == ANSWERS_MAX {
            return Err(Violation::AuthOutOfTurn.into());
        }
        let step = self.parse_auth_step(conn, frame)?;
        if let Some(exchange) = self.conn_mut(conn).and_then(|known| known.exchange.as_mut()) {
            exchange.auth_packets += 1;
        }
        self.request_authentication(conn, &packet, Some(step), sessions, out);
        Ok(())
    }

    /// Parses an AUTH packet. A [`Violation`] if no method is agreed, the method differs, or no
    /// AUTH is due in this state.
    fn parse_auth_step(
        &mut self,
        conn: ConnId,
        frame: PacketFrame<'_>,
    ) -> Result<AuthStep, Violation> {
        let packet = Auth::decode(frame, ProtocolVersion::V5)?;
        let exchange = self.conn_mut(conn).and_then(|known| known.exchange.as_mut());
        // [MQTT-4.12.0-7]
        let exchange = exchange.ok_or(Violation::AuthWithoutMethod)?;
        let (method, data) = auth_properties(packet.properties);
        // [MQTT-4.12.0-5]
        if method != Some(&exchange.method) {
            return Err(Violation::AuthMethodChanged);
        }
        let memory = exchange.memory.take();
        match (packet.reason, &memory) {
            // [MQTT-4.12.0-3]
            (ReasonCode::ContinueAuthentication, Some(_)) => {}
            // [MQTT-4.12.1-1]
            (ReasonCode::ReAuthenticate, None) if !exchange.asked => {}
            _ => return Err(Violation::AuthOutOfTurn),
        }
        Ok(AuthStep { method: exchange.method.clone(), data: SecretBytes(data.into()), memory })
    }

    /// Handles AUTH from an accepted client: skips packets of the initial exchange, else requests a
    /// decision on the re-authentication.
    pub(crate) fn auth(
        &mut self,
        conn: ConnId,
        id: SessionId,
        frame: PacketFrame<'_>,
        sessions: &SessionTable,
        out: &mut Outbox,
    ) -> Result<(), CloseReason> {
        if let Some(known) = self.conn_mut(conn)
            && let Some(exchange) = &mut known.exchange
            && exchange.auth_packets > 0
        {
            exchange.auth_packets -= 1;
            return Ok(());
        }
        let step = self.parse_auth_step(conn, frame)?;
        let client_id = sessions.get(id).own_client_id().into();
        let Some(known) = self.conn_mut(conn) else { return Ok(()) };
        if let Some(exchange) = &mut known.exchange {
            exchange.asked = true;
        }
        let request = AuthRequest {
            peer: known.peer.address,
            version: known.version,
            client_id,
            user_name: None,
            password: None,
            listener: known.peer.listener,
            certificate: known.peer.certificate().cloned(),
            step: Some(step),
        };
        let case = known.generation;
        out.effects.push(Effect::Authenticate { conn, case, request: Box::new(request) });
        Ok(())
    }
}
