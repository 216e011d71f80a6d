//! Extended authentication: who a client is, found out in several steps (MQTT 5.0, 4.12).
//!
//! ```text
//!         CONNECT, method                  Verdict::Challenge
//! Greeting ----------------> Asked, held ---------------------> Challenged, AUTH 0x18 sent
//!                               ^                                   |
//!                               +-----------------------------------+
//!                                  AUTH 0x18 came: asked again
//! ```
//!
//! CONNECT stays unread in the transport until the last verdict, and the client's answers behind
//! it. A client that is in may begin again (0x19): nothing else of its connection waits meanwhile.

use crate::conn::{End, State};
use crate::input::{ConnId, Now, SessionId};
use crate::judge::{Claim, Grant, Pass, Secret, Verdict};
use crate::limits::NONE;
use crate::outbox::{Effect, Outbox};
use crate::refusal::Refusal;
use crate::shard::Shard;
use crate::timer::Timer;
use mqtt::{
    Auth, Connect, Disconnect, Frame, Packet, PacketType, Properties, PropertiesBuf, Property,
    Reason, Version, Violation,
};

/// What the client says in one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub method: Box<str>,
    pub data: Secret,
    /// What the backend wanted kept when it challenged the client; none in the first step.
    pub memory: Option<Secret>,
}

/// What a connection with an authentication method keeps of it.
#[derive(Clone, Debug)]
pub(crate) struct Exchange {
    pub(crate) method: Box<str>,
    /// The client's Maximum Packet Size.
    packet_bytes_max: u32,
    /// There while the client owes an answer to a challenge.
    memory: Option<Secret>,
    /// Packets of the client behind its CONNECT that were understood already.
    answers: u8,
    /// A client that is in waits for a verdict.
    asked: bool,
}

/// No method that there is takes more.
const ANSWERS_MAX: u8 = 8;

impl Exchange {
    pub(crate) fn new(method: &str, packet_bytes_max: u32) -> Exchange {
        Exchange { method: method.into(), packet_bytes_max, memory: None, answers: 0, asked: false }
    }

    /// That of a client that comes in, whose answers are read once more.
    pub(crate) fn accepted(method: &str, packet_bytes_max: u32, answers: u8) -> Exchange {
        Exchange { answers, ..Exchange::new(method, packet_bytes_max) }
    }

    pub(crate) fn answers(&self) -> u8 {
        self.answers
    }

    /// AUTH from us, unless the client would not take it [MQTT-3.1.2-24]. It says nothing that the
    /// client could do without [MQTT-3.15.2-2] [MQTT-3.15.2-3].
    fn auth(&self, reason: Reason, data: Option<&[u8]>) -> Result<Vec<u8>, Refusal> {
        let (mut properties, mut bytes) = (PropertiesBuf::default(), Vec::new());
        say(&self.method, data, &mut properties);
        let auth = Auth { reason, properties: properties.as_properties() };
        Packet::Auth(auth).encode(Version::V5, &mut bytes);
        match bytes.len() > self.packet_bytes_max as usize {
            true => Err(Refusal::AnswerTooLarge),
            false => Ok(bytes),
        }
    }
}

impl Step {
    /// The first one of a CONNECT, where that names a method.
    pub(crate) fn first(properties: Properties<'_>) -> Option<Step> {
        let (method, data) = said(properties);
        Some(Step { method: method?.into(), data: Secret(data.into()), memory: None })
    }
}

/// Authentication Method and Authentication Data.
fn said(properties: Properties<'_>) -> (Option<&str>, &[u8]) {
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

/// Of AUTH and of CONNACK: the method is the one of CONNECT [MQTT-4.12.0-5].
pub(crate) fn say(method: &str, data: Option<&[u8]>, into: &mut PropertiesBuf) {
    into.push(Property::AuthenticationMethod(method));
    if let Some(data) = data {
        into.push(Property::AuthenticationData(data));
    }
}

impl Shard {
    /// The backend wants to know more of a client that is not in yet [MQTT-4.12.0-2].
    pub(crate) fn challenge(
        &mut self,
        conn: ConnId,
        data: &[u8],
        memory: Secret,
        out: &mut Outbox,
    ) -> Result<(), Refusal> {
        let Some(known) = self.conn_mut(conn) else { return Ok(()) };
        let Some(exchange) = &mut known.exchange else { return Ok(()) };
        exchange.memory = Some(memory);
        let bytes = exchange.auth(Reason::ContinueAuthentication, Some(data))?;
        // The deadline of the question goes on.
        known.state = State::Challenged;
        let mut slot = NONE;
        out.write(conn, &mut slot).own.extend_from_slice(&bytes);
        self.sessions.counters.messages_sent += 1;
        self.sessions.counters.bytes_sent += bytes.len() as u64;
        out.effects.push(Effect::Resume { conn });
        Ok(())
    }

    /// Looks behind the CONNECT for the answer to a challenge. Nothing is consumed: who comes in
    /// has its CONNECT read again.
    pub(crate) fn hear_answer(&mut self, conn: ConnId, bytes: &[u8], out: &mut Outbox) {
        match self.find_answer(conn, bytes, out) {
            Ok(()) => {}
            Err(end) => {
                if let End::Violation(violation) = end {
                    let said = (violation.reason(), violation.what());
                    self.refuse_connect(conn, Version::V5, said, u32::MAX, out);
                }
                self.end(conn, end, out);
                out.consumed = bytes.len();
            }
        }
    }

    fn find_answer(&mut self, conn: ConnId, bytes: &[u8], out: &mut Outbox) -> Result<(), End> {
        let Some(known) = self.conn(conn) else { return Ok(()) };
        let Some(exchange) = &known.exchange else { return Ok(()) };
        let max = known.packet_bytes_max;
        let Some(first) = mqtt::cut(bytes, max)? else { return Ok(()) };
        let mut rest = &bytes[first.len..];
        for _ in 0..exchange.answers {
            let Some(frame) = mqtt::cut(rest, max)? else { return Ok(()) };
            rest = &rest[frame.len..];
        }
        let Some(frame) = mqtt::cut(rest, max)? else { return Ok(()) };
        let packet = Connect::decode(first)?;
        // [MQTT-3.1.2-30]
        match PacketType::from_byte(frame.first) {
            Some(PacketType::Auth) => {}
            Some(PacketType::Disconnect) => {
                return Err(End::Asked(Disconnect::decode(frame, Version::V5)?.reason));
            }
            _ => return Err(Violation::AuthExpected.into()),
        }
        if exchange.answers == ANSWERS_MAX {
            return Err(Violation::AuthOutOfTurn.into());
        }
        let step = self.step(conn, frame)?;
        if let Some(exchange) = self.conn_mut(conn).and_then(|known| known.exchange.as_mut()) {
            exchange.answers += 1;
        }
        self.inquire(conn, &packet, Some(step), out);
        Ok(())
    }

    /// What an AUTH says, if it is its turn.
    fn step(&mut self, conn: ConnId, frame: Frame<'_>) -> Result<Step, Violation> {
        let packet = Auth::decode(frame, Version::V5)?;
        let exchange = self.conn_mut(conn).and_then(|known| known.exchange.as_mut());
        // [MQTT-4.12.0-7]
        let exchange = exchange.ok_or(Violation::AuthWithoutMethod)?;
        let (method, data) = said(packet.properties);
        // [MQTT-4.12.0-5]
        if method != Some(&exchange.method) {
            return Err(Violation::AuthMethodChanged);
        }
        let memory = exchange.memory.take();
        match (packet.reason, &memory) {
            // [MQTT-4.12.0-3]
            (Reason::ContinueAuthentication, Some(_)) => {}
            // [MQTT-4.12.1-1]
            (Reason::ReAuthenticate, None) if !exchange.asked => {}
            _ => return Err(Violation::AuthOutOfTurn),
        }
        Ok(Step { method: exchange.method.clone(), data: Secret(data.into()), memory })
    }

    /// AUTH from a client that is in.
    pub(crate) fn auth(
        &mut self,
        conn: ConnId,
        id: SessionId,
        frame: Frame<'_>,
        out: &mut Outbox,
    ) -> Result<(), End> {
        if let Some(known) = self.conn_mut(conn)
            && let Some(exchange) = &mut known.exchange
            && exchange.answers > 0
        {
            exchange.answers -= 1;
            return Ok(());
        }
        let step = self.step(conn, frame)?;
        let client_id = self.sessions.get(id).said_id().into();
        let Some(known) = self.conn_mut(conn) else { return Ok(()) };
        if let Some(exchange) = &mut known.exchange {
            exchange.asked = true;
        }
        let claim = Claim {
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
        out.effects.push(Effect::Judge { conn, case, claim: Box::new(claim) });
        Ok(())
    }

    /// The verdict on a client that is in, which began again.
    pub(crate) fn judged_again(&mut self, conn: ConnId, verdict: Verdict, out: &mut Outbox) {
        let Some(known) = self.conn_mut(conn) else { return };
        let (Some(id), Some(exchange)) = (known.session(), &mut known.exchange) else { return };
        if !std::mem::take(&mut exchange.asked) {
            return;
        }
        let answer = match verdict {
            Verdict::Challenge { data, memory } => {
                exchange.memory = Some(memory);
                exchange.auth(Reason::ContinueAuthentication, Some(&data))
            }
            Verdict::Allow(grant) => {
                let answer = exchange.auth(Reason::Success, grant.says.as_deref());
                answer.and_then(|answer| self.renew(conn, id, grant, out).map(|()| answer))
            }
            // 0x86 is CONNACK's alone.
            Verdict::Deny(_) => Err(Refusal::NotRenewed),
        };
        match answer {
            Ok(bytes) => self.sessions.reply(id, &bytes, out),
            // [MQTT-4.12.1-2]
            Err(refusal) => self.end(conn, End::Refusal(refusal), out),
        }
    }

    /// The same client, proved anew.
    fn renew(
        &mut self,
        conn: ConnId,
        id: SessionId,
        grant: Box<Grant>,
        out: &mut Outbox,
    ) -> Result<(), Refusal> {
        let now = self.now;
        let expires = grant.expires_in_ms.map(|ms| Now(now.0.saturating_add(ms)));
        let Some(known) = self.conn_mut(conn) else { return Ok(()) };
        known.peer.give(Pass { decided: Ok(grant), expires, answers: 0 });
        // The session stays where it is, and so has to its client.
        let is_elsewhere = match self.namespace_at(conn) {
            Ok(namespace) => *namespace != *self.sessions.get(id).namespace(),
            Err(_) => true,
        };
        let mut rights = self.take_rights(conn);
        if is_elsewhere || self.is_of_another(id, rights.as_deref()) {
            return Err(Refusal::NotRenewed);
        }
        // Its place in its class stays its own.
        let before = self.sessions.get_mut(id).rights.as_mut();
        if let (Some(rights), Some(before)) = (&mut rights, before) {
            rights.presence = before.presence.take();
            rights.will_is_allowed = before.will_is_allowed;
        }
        self.sessions.set_rights(id, rights);
        let listener = self.sessions.get(id).listener;
        if self.options.permissions_at(listener).is_some() {
            self.doubt(id, out);
        }
        let Some(known) = self.conn_mut(conn) else { return Ok(()) };
        if let Some(at) = expires.filter(|at| *at < known.timer_at) {
            known.timer_at = at;
            let timer = Timer::Conn { index: conn.0, generation: known.generation };
            self.timers.set(at, timer);
        }
        Ok(())
    }
}
