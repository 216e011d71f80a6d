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

use crate::connection::authentication::{
    AuthDecision, AuthOutcome, AuthRequest, Principal, SecretBytes,
};
use crate::connection::conn::{CloseReason, ConnState};
use crate::connection::connect::refuse_connect;
use crate::connection::connection_table::ConnectionTable;
use crate::connection::refusal::Refusal;
use crate::input::{ConnId, MonotonicMs, SessionId};
use crate::limits::NONE;
use crate::outbox::{Effect, Outbox};
use crate::session::session_table::SessionTable;
use crate::shard::Shard;
use crate::timer::ShardTimer;
use mqtt::{
    Auth, Connect, Disconnect, Packet, PacketFrame, PacketType, Properties, PropertiesBuf,
    Property, ProtocolVersion, ReasonCode, Violation,
};

/// Data of the client in one step of an authentication exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthStep {
    pub method: Box<str>,
    pub data: SecretBytes,
    /// State that the backend returned with the last challenge; `None` in the first step.
    pub memory: Option<SecretBytes>,
}

/// State of a connection with an authentication method [MQTT 5.0, 4.12].
#[derive(Clone, Debug)]
pub(crate) struct AuthExchange {
    pub(crate) method: Box<str>,
    /// The client's Maximum Packet Size in bytes.
    packet_bytes_max: u32,
    /// State of the backend while the client owes the response to a challenge.
    memory: Option<SecretBytes>,
    /// Number of AUTH packets behind CONNECT that are handled but not yet consumed.
    auth_packets: u8,
    /// Whether an accepted client waits for the decision on a re-authentication.
    asked: bool,
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
    fn encode_auth(&self, reason: ReasonCode, data: Option<&[u8]>) -> Result<Vec<u8>, Refusal> {
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

impl AuthStep {
    /// Returns the first step of the exchange if CONNECT has an Authentication Method.
    pub(crate) fn of_connect(properties: Properties<'_>) -> Option<AuthStep> {
        let (method, data) = auth_properties(properties);
        Some(AuthStep { method: method?.into(), data: SecretBytes(data.into()), memory: None })
    }
}

/// Returns Authentication Method and Authentication Data.
fn auth_properties(properties: Properties<'_>) -> (Option<&str>, &[u8]) {
    let (mut method, mut data): (_, &[u8]) = (None, &[]);
    for property in properties.iter() {
        match property {
            Property::AuthenticationMethod(text) => method = Some(text),
            Property::AuthenticationData(bytes) => data = bytes,
            _ => {}
        }
    }
    (method, data)
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

    fn find_auth_packet(
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
        sessions: &mut SessionTable,
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

impl Shard {
    /// Looks behind the CONNECT for the AUTH packet that answers a challenge. No byte is consumed,
    /// because CONNECT is read again after the decision.
    pub(crate) fn read_auth_answer(&mut self, conn: ConnId, bytes: &[u8], out: &mut Outbox) {
        match self.connections.find_auth_packet(conn, bytes, &mut self.sessions, out) {
            Ok(()) => {}
            Err(end) => {
                if let CloseReason::Violation(violation) = end {
                    let said = (violation.reason(), violation.description());
                    refuse_connect(conn, ProtocolVersion::V5, said.0, said.1, u32::MAX, out);
                }
                self.end_connection(conn, end, out);
                out.consumed = bytes.len();
            }
        }
    }

    /// Handles the decision on a re-authentication. A denial ends the connection.
    pub(crate) fn on_reauthentication(
        &mut self,
        conn: ConnId,
        verdict: AuthDecision,
        out: &mut Outbox,
    ) {
        let Some(known) = self.connections.conn_mut(conn) else { return };
        let (Some(id), Some(exchange)) = (known.session(), &mut known.exchange) else { return };
        if !std::mem::take(&mut exchange.asked) {
            return;
        }
        let answer = match verdict {
            AuthDecision::Challenge { data, memory } => {
                exchange.memory = Some(memory);
                exchange.encode_auth(ReasonCode::ContinueAuthentication, Some(&data))
            }
            AuthDecision::Allow(principal) => {
                let answer =
                    exchange.encode_auth(ReasonCode::Success, principal.auth_data.as_deref());
                answer.and_then(|answer| {
                    self.renew_principal(conn, id, principal, out).map(|()| answer)
                })
            }
            // 0x86 is valid in CONNACK only.
            AuthDecision::Deny(_) => Err(Refusal::NotRenewed),
        };
        match answer {
            Ok(bytes) => self.sessions.send_packet(id, &bytes, out),
            // [MQTT-4.12.1-2]
            Err(refusal) => self.end_connection(conn, CloseReason::Refusal(refusal), out),
        }
    }

    /// Replaces the principal of a client that has re-authenticated. `Refusal::NotRenewed` if the
    /// user or the namespace differs.
    fn renew_principal(
        &mut self,
        conn: ConnId,
        id: SessionId,
        principal: Box<Principal>,
        out: &mut Outbox,
    ) -> Result<(), Refusal> {
        let now = self.sessions.context.now;
        let expires = principal.expires_in_ms.map(|ms| MonotonicMs(now.0.saturating_add(ms)));
        let Some(known) = self.connections.conn_mut(conn) else { return Ok(()) };
        known.peer.set_auth_outcome(AuthOutcome {
            decision: Ok(principal),
            expires,
            auth_packets: 0,
        });
        // The session keeps the namespace, so the client must too.
        let is_elsewhere = match self.connections.namespace_at(conn, &self.sessions) {
            Ok(namespace) => *namespace != *self.sessions.get(id).namespace(),
            Err(_) => true,
        };
        let mut rights = self.connections.take_permissions(conn, &mut self.sessions);
        if is_elsewhere || self.sessions.belongs_to_other_user(id, rights.as_deref()) {
            return Err(Refusal::NotRenewed);
        }
        // The client keeps the place in the client group and the decision on the will.
        let before = self.sessions.get_mut(id).permissions.as_mut();
        if let (Some(rights), Some(before)) = (&mut rights, before) {
            rights.group_guard = before.group_guard.take();
            rights.will_is_allowed = before.will_is_allowed;
        }
        self.sessions.set_permissions(id, rights);
        let listener = self.sessions.get(id).listener;
        if self.sessions.context.options.permissions_at(listener).is_some() {
            self.authorization.reauthorize_session(id, &mut self.routing, &mut self.sessions, out);
        }
        let Some(known) = self.connections.conn_mut(conn) else { return Ok(()) };
        if let Some(at) = expires.filter(|at| *at < known.timer_at) {
            known.timer_at = at;
            let timer = ShardTimer::Conn { index: conn.0, generation: known.generation };
            self.sessions.context.timers.set(at, timer);
        }
        Ok(())
    }
}
