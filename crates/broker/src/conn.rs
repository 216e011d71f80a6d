//! One socket's protocol state, and the way of its packets to where they are decided.

use crate::ask::Inquiry;
use crate::ends::detail_of;
use crate::exchange::Exchange;
use crate::exclusive::Claim;
use crate::explain::explained;
use crate::input::{ConnId, Now, SessionId};
use crate::judge::Verdict;
use crate::meter::Meter;
use crate::note::Note;
use crate::outbox::{Effect, Outbox};
use crate::peer::Peer;
use crate::receipt::{PUBACK, PUBCOMP, PUBREC};
use crate::refusal::Refusal;
use crate::session::Sessions;
use crate::shard::Shard;
use crate::timer::Timer;
use mqtt::{
    Ack, Disconnect, Frame, PINGRESP, Packet, PacketId, PacketType, Property, Publish, QoS, Reason,
    Subscribe, Unsubscribe, Version, Violation,
};
use std::sync::Arc;

/// What every packet looks at stands first, and together.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) state: State,
    pub(crate) heard: Now,
    /// Where there are limits to how fast it may talk.
    pub(crate) meter: Option<Box<Meter>>,
    /// [MQTT-3.2.2-15]
    pub(crate) packet_bytes_max: u32,
    /// Answers to it that wait for the disk.
    pub(crate) owed: u32,
    pub(crate) generation: u32,
    /// One and a half times the keep-alive; 0 is never.
    pub(crate) silence_ms_max: u32,
    /// When the only timer that counts is due.
    pub(crate) timer_at: Now,
    pub(crate) peer: Peer,
    /// Where CONNECT named an authentication method.
    pub(crate) exchange: Option<Box<Exchange>>,
    /// Alias `n` stands at `n - 1`. Gone with the connection [MQTT-3.3.2-7].
    pub(crate) aliases: Vec<Option<Arc<str>>>,
    /// What those cost.
    pub(crate) alias_bytes: u32,
    pub(crate) topic_alias_max: u16,
    /// As CONNACK said, whatever the options say since.
    pub(crate) receive_maximum: u16,
    pub(crate) version: Version,
    /// What it publishes does not come back to it.
    pub(crate) is_bridge: bool,
    /// Came here from another shard: this one is its home.
    pub(crate) moved: bool,
}

#[derive(Debug)]
pub(crate) enum State {
    /// Nothing but CONNECT may come [MQTT-3.1.0-1].
    Greeting,
    /// CONNECT came, and waits for a verdict.
    Asked,
    /// The backend wants to know more, and the client was told: nothing but AUTH and DISCONNECT may
    /// come.
    Challenged,
    Live {
        session: SessionId,
    },
    /// CONNACK waits until the disk has forgotten the client's last session: what the client says
    /// meanwhile stays unread.
    Unwelcomed {
        session: SessionId,
    },
    /// The store is crowded, and the client's next packet would add to it: it stays unread.
    Crowded {
        session: SessionId,
    },
    /// The client is ahead of its rate: what it says next stays unread for a while.
    Paced {
        session: SessionId,
    },
    /// Somebody is asked whether the client may do what its next packet wants: that stays unread.
    Unpermitted {
        session: SessionId,
        inquiry: Box<Inquiry>,
    },
    /// The same of a CONNECT with a will.
    Willing {
        inquiry: Box<Inquiry>,
    },
    /// Somebody was asked about the will of the CONNECT that is read next.
    Willed {
        is_allowed: bool,
    },
    /// A SUBACK waits until the owners of shared groups have answered: the same.
    Held {
        session: SessionId,
        suback: Box<HeldSubAck>,
    },
}

// Each connection has one.
const _: () = assert!(size_of::<State>() == 16 || size_of::<usize>() != 8);

#[derive(Debug)]
pub(crate) struct HeldSubAck {
    pub(crate) packet_id: PacketId,
    pub(crate) codes: Vec<u8>,
    /// The first refusal among the codes, in words.
    pub(crate) what: Option<&'static str>,
    pub(crate) groups: Vec<Arc<str>>,
    /// Filters that it asks for alone, where another shard knows whose they are.
    pub(crate) claims: Vec<Claim>,
}

/// Why we end a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The client said so; its will is gone or not as it said.
    Asked(Reason),
    Violation(Violation),
    Refusal(Refusal),
}

impl From<Violation> for End {
    fn from(violation: Violation) -> End {
        End::Violation(violation)
    }
}

impl From<Refusal> for End {
    fn from(refusal: Refusal) -> End {
        End::Refusal(refusal)
    }
}

impl Conn {
    pub(crate) fn session(&self) -> Option<SessionId> {
        match self.state {
            State::Asked
            | State::Challenged
            | State::Greeting
            | State::Willed { .. }
            | State::Willing { .. } => None,
            State::Live { session }
            | State::Crowded { session }
            | State::Paced { session }
            | State::Held { session, .. }
            | State::Unpermitted { session, .. }
            | State::Unwelcomed { session } => Some(session),
        }
    }

    /// Whether it is we who do not listen.
    pub(crate) fn waits_for_us(&self) -> bool {
        use State::{Crowded, Paced, Unpermitted};
        matches!(self.state, Crowded { .. } | Paced { .. } | Unpermitted { .. })
    }

    /// When keep-alive ends it, if nothing more is heard.
    pub(crate) fn silent_at(&self) -> Option<Now> {
        let ms = u64::from(self.silence_ms_max);
        (ms > 0).then_some(Now(self.heard.0 + ms))
    }

    /// The session of one that has had its CONNACK: nothing else goes before that
    /// [MQTT-3.2.0-1] [MQTT-3.14.0-1].
    pub(crate) fn welcomed(&self) -> Option<SessionId> {
        self.session().filter(|_| !matches!(self.state, State::Unwelcomed { .. }))
    }
}

impl Shard {
    /// Takes packets until the bytes, the outbox or the connection's patience end.
    pub(crate) fn bytes(&mut self, conn: ConnId, bytes: &[u8], out: &mut Outbox) {
        out.consumed = 0;
        self.note_heard(conn);
        while !out.is_full() {
            // Nothing is read after what ended the connection [MQTT-3.1.4-6].
            let Some(known) = self.conn(conn) else {
                out.consumed = bytes.len();
                return;
            };
            let live = match known.state {
                State::Challenged => return self.hear_answer(conn, bytes, out),
                State::Greeting | State::Willed { .. } => None,
                State::Live { session } => Some(session),
                // It waits for somebody.
                _ => return,
            };
            let (is_metered, bytes_max) = (known.meter.is_some(), known.packet_bytes_max);
            let rest = &bytes[out.consumed..];
            if let Some(session) = live
                && !self.is_tracing()
                && !is_metered
            {
                let taken = self.acknowledgements(conn, session, rest, out);
                out.consumed += taken;
                if taken > 0 {
                    continue;
                }
            }
            let frame = match mqtt::cut(rest, bytes_max) {
                Ok(Some(frame)) => frame,
                Ok(None) if live.is_none() => return self.check_first(conn, rest, out),
                Ok(None) => return,
                Err(violation) => {
                    self.detail_frame(rest, bytes_max, live.is_some());
                    self.end(conn, End::Violation(violation), out);
                    out.consumed = bytes.len();
                    return;
                }
            };
            let may_wait = is_metered | self.store_is_crowded | self.asks;
            if may_wait && self.waits(conn, live, frame, out) {
                return;
            }
            self.sessions.counters.messages_received += 1;
            self.sessions.counters.bytes_received += frame.len as u64;
            let traces = self.is_tracing();
            if traces && live.is_some() {
                self.trace_received(conn, frame, out);
            }
            let ended = match live {
                Some(session) => self.packet(conn, session, frame, out),
                None => match self.connect(conn, frame, out) {
                    Ok(Moved::Away | Moved::Nowhere) => return self.leave_unread(frame.len),
                    came => {
                        if traces {
                            self.trace_received(conn, frame, out);
                        }
                        came.map(|_| ())
                    }
                },
            };
            out.consumed += frame.len;
            if let Err(end) = ended {
                self.detail_first(frame, live.is_some());
                self.end(conn, end, out);
            }
        }
    }

    #[inline]
    fn note_heard(&mut self, conn: ConnId) {
        let now = self.now;
        if let Some(known) = self.conn_mut(conn) {
            known.heard = now;
        }
    }

    /// How many bytes of acknowledgements come first, and need no more than to be counted off.
    #[inline]
    fn acknowledgements(
        &mut self,
        conn: ConnId,
        session: SessionId,
        bytes: &[u8],
        out: &mut Outbox,
    ) -> usize {
        match bytes.first() {
            Some(&PUBACK) => self.sessions.pubacks(session, bytes, out),
            Some(&PUBREC) if !self.owes(conn) => self.sessions.pubrecs(session, bytes, out),
            Some(&PUBCOMP) => self.sessions.pubcomps(session, bytes),
            _ => 0,
        }
    }

    /// A CONNECT that goes with its connection, or waits: it is read, and counted, again.
    fn leave_unread(&mut self, len: usize) {
        self.sessions.counters.messages_received -= 1;
        self.sessions.counters.bytes_received -= len as u64;
    }

    #[inline]
    fn packet(
        &mut self,
        conn: ConnId,
        session: SessionId,
        frame: Frame<'_>,
        out: &mut Outbox,
    ) -> Result<(), End> {
        let version = self.sessions.get(session).version;
        match PacketType::from_byte(frame.first) {
            Some(PacketType::Publish) => {
                let packet = Publish::decode(frame, version)?;
                self.publish(conn, session, packet, out)
            }
            Some(PacketType::PubAck) => {
                let ack = Ack::decode(frame, version)?;
                Ok(self.sessions.puback(session, ack.packet_id, out)?)
            }
            Some(PacketType::PubRec) => {
                let ack = Ack::decode(frame, version)?;
                if let Some((reason, waits)) = self.sessions.pubrec(session, &ack, out)? {
                    let answer = (PacketType::PubRel, ack.packet_id, reason);
                    self.acknowledge_when_kept(conn, answer, waits, out);
                }
                Ok(())
            }
            Some(PacketType::PubRel) => {
                let ack = Ack::decode(frame, version)?;
                let (reason, waits) = self.sessions.pubrel(session, ack.packet_id);
                let answer = (PacketType::PubComp, ack.packet_id, reason);
                self.acknowledge_when_kept(conn, answer, waits, out);
                Ok(())
            }
            Some(PacketType::PubComp) => {
                let ack = Ack::decode(frame, version)?;
                Ok(self.sessions.pubcomp(session, ack.packet_id, out)?)
            }
            Some(PacketType::Subscribe) => {
                self.subscribe(conn, session, Subscribe::decode(frame, version)?, out)
            }
            Some(PacketType::Unsubscribe) => {
                self.unsubscribe(conn, session, Unsubscribe::decode(frame, version)?, out)
            }
            Some(PacketType::PingReq | PacketType::Disconnect | PacketType::Auth)
                if self.sessions.get(session).is_branch =>
            {
                Err(Violation::OffControlStream.into())
            }
            Some(PacketType::PingReq) => self.pingreq(session, frame, out),
            Some(PacketType::Disconnect) => {
                let packet = Disconnect::decode(frame, version)?;
                self.disconnect(session, &packet)
            }
            Some(PacketType::Auth) if version == Version::V5 => {
                self.auth(conn, session, frame, out)
            }
            // [MQTT-3.1.0-2]
            Some(PacketType::Connect) => Err(Violation::SecondConnect.into()),
            _ => Err(Violation::PacketFromServerOnly.into()),
        }
    }

    /// Holds a connection before a packet that has to wait. Says whether it has to.
    #[cold]
    fn waits(
        &mut self,
        conn: ConnId,
        live: Option<SessionId>,
        frame: Frame<'_>,
        out: &mut Outbox,
    ) -> bool {
        let Some(id) = live else { return false };
        let waits = (self.store_is_crowded && self.waits_for_room(conn, id, frame, out))
            || self.waits_for_pace(conn, id, out)
            || (self.asks && self.waits_for_answers(conn, id, frame, out));
        if !waits {
            self.pace(conn, frame);
        }
        waits
    }

    /// Holds a connection whose next packet the crowded store would have to take. Says whether it
    /// is such a one.
    fn waits_for_room(
        &mut self,
        conn: ConnId,
        id: SessionId,
        frame: Frame<'_>,
        out: &mut Outbox,
    ) -> bool {
        let session = self.sessions.get(id);
        let (version, lasts) = (session.version, session.lasting.is_some());
        if PacketType::from_byte(frame.first) != Some(PacketType::Publish) {
            return false;
        }
        // What is wrong with it is found out by whoever takes it.
        let Ok(packet) = Publish::decode(frame, version) else { return false };
        let aliased = match packet.topic {
            "" => self.topic_of_alias(conn, &packet),
            _ => None,
        };
        let topic = aliased.as_deref().unwrap_or(packet.topic);
        let topic = &*self.sessions.get(id).mounted(topic);
        let waits = (packet.qos == QoS::ExactlyOnce && lasts)
            || self.needs_store(topic, &packet)
            || (!self.ruling.is_empty() && self.rules_need_store(topic, packet.qos, packet.retain));
        if waits {
            if let Some(known) = self.conn_mut(conn) {
                known.state = State::Crowded { session: id };
            }
            self.crowd.push(conn);
            out.effects.push(Effect::Hold { conn });
        }
        waits
    }

    fn pingreq(
        &mut self,
        session: SessionId,
        frame: Frame<'_>,
        out: &mut Outbox,
    ) -> Result<(), End> {
        Packet::decode(frame, self.sessions.get(session).version)?;
        // [MQTT-3.12.4-1]
        self.sessions.reply(session, &PINGRESP, out);
        Ok(())
    }

    /// DISCONNECT from the client. Its Session Expiry Interval replaces CONNECT's.
    fn disconnect(&mut self, id: SessionId, packet: &Disconnect<'_>) -> Result<(), End> {
        let max = self.options.session_expiry_s_max;
        let session = self.sessions.get_mut(id);
        for property in packet.properties.iter() {
            if let Property::SessionExpiryInterval(seconds) = property {
                if !session.asked_to_stay && seconds > 0 {
                    return Err(Violation::SessionExpiryRaised.into());
                }
                session.expiry_s = seconds.min(max);
            }
        }
        // [MQTT-3.14.4-3]
        if packet.reason == Reason::Success
            && self.sessions.set_will(id, None).is_some()
            && self.sessions.get(id).lasting.is_some()
        {
            // A power cut would bring it back: it is to be short of a sync, and not of a second.
            self.sessions.hurry();
        }
        Err(End::Asked(packet.reason))
    }

    /// We end a connection: what the version allows us to say about it, then the close
    /// [MQTT-4.13.1-1] [MQTT-4.13.2-1] [MQTT-3.2.2-7] [MQTT-3.14.4-2].
    pub(crate) fn end(&mut self, conn: ConnId, end: End, out: &mut Outbox) {
        let detail = std::mem::take(&mut self.violation_detail);
        let Some(known) = self.conn(conn) else { return };
        let (peer, session, welcomed) = (known.peer.address, known.session(), known.welcomed());
        let client_id: Box<str> =
            session.map(|id| self.sessions.get(id).client_id.clone()).unwrap_or_default();
        let refused = self.ear.refused.take();
        let note = match end {
            End::Asked(reason) => Some(Note::Disconnected { client_id, conn, reason }),
            End::Violation(violation) => {
                self.sessions.counters.violations += 1;
                let detail = detail_of(violation, detail);
                let told = self.tells_end();
                told.map(|withheld| Note::Violated {
                    client_id,
                    conn,
                    peer,
                    violation,
                    detail,
                    withheld,
                })
            }
            End::Refusal(refusal) => {
                let told = self.tells_end();
                let (client_id, user) = match session {
                    Some(_) => (client_id, None),
                    None => refused.unwrap_or_default(),
                };
                told.map(|withheld| Note::Refused {
                    client_id,
                    user,
                    conn,
                    peer,
                    refusal,
                    was_in: welcomed.is_some(),
                    withheld,
                })
            }
        };
        out.notes.extend(note);
        if self.ruling.hears() {
            self.gather(out);
        }
        let said = match end {
            End::Asked(_) => None,
            End::Violation(violation) => Some((violation.reason(), violation.what())),
            End::Refusal(refusal) => Some((refusal.reason(), refusal.what())),
        };
        // Before CONNACK there is no DISCONNECT [MQTT-3.14.0-1].
        if let (Some(id), Some((reason, what))) = (welcomed, said) {
            self.sessions.say_disconnect(id, reason, Some(what), out);
        }
        out.effects.push(Effect::Close { conn });
        self.forget_conn(conn, out);
    }

    /// The greeting's deadline, then the keep-alive: one timer a connection counts, and it moves
    /// only when it fires and finds that something was heard since.
    pub(crate) fn check_conn(&mut self, index: u32, generation: u32, out: &mut Outbox) {
        let (now, conn) = (self.now, ConnId(index));
        let Some(known) = self.conn_mut(conn) else { return };
        if known.generation != generation || now < known.timer_at {
            return;
        }
        let (timer_at, session) = (known.timer_at, known.session());
        let due = self.extend_conn(timer_at, session);
        let pause = self.pause;
        let Some(known) = self.conn_mut(conn) else { return };
        if now < due {
            known.timer_at = due;
            return self.timers.set(due, Timer::Conn { index, generation });
        }
        if matches!(known.state, State::Asked | State::Challenged) {
            let case = known.generation;
            return self.judged(conn, case, Verdict::Deny(Refusal::NoVerdict), out);
        }
        let Some(session) = known.session() else {
            if matches!(known.state, State::Willing { .. }) {
                return self.go_on_answered(conn, out);
            }
            let ms = self.options.connect_timeout_ms;
            self.violation_detail =
                format!("no CONNECT came in time: connect.timeout_ms = {ms}").into();
            return self.end(conn, End::Violation(Violation::ConnectExpected), out);
        };
        if known.waits_for_us() {
            // It is we who do not listen.
            known.heard = now;
        }
        let silent_at = known.silent_at().map(|at| pause.extend(at, known.silence_ms_max));
        let expires = self.sessions.get(session).expires();
        if expires.is_some_and(|at| now >= at) {
            return self.end(conn, End::Refusal(Refusal::Expired), out);
        }
        if silent_at.is_some_and(|at| now >= at) {
            // [MQTT-3.1.2-22]
            return self.end(conn, End::Violation(Violation::KeepAliveTimeout), out);
        }
        let Some(due) = silent_at.into_iter().chain(expires).min() else { return };
        let Some(known) = self.conn_mut(conn) else { return };
        known.timer_at = due;
        self.timers.set(due, Timer::Conn { index, generation });
        self.sessions.get_mut(session).rest();
    }

    /// The transport went by itself.
    pub(crate) fn closed(&mut self, conn: ConnId, out: &mut Outbox) {
        let Some(known) = self.conn(conn) else { return };
        if let Some(id) = known.session() {
            let session = self.sessions.get(id);
            if !session.is_branch {
                let client_id = session.client_id.clone();
                out.notes.push(Note::Lost { client_id, conn });
                if self.ruling.hears() {
                    self.gather(out);
                }
            }
        }
        self.forget_conn(conn, out);
    }

    fn forget_conn(&mut self, conn: ConnId, out: &mut Outbox) {
        let session = self.take_conn(conn).and_then(|known| known.session());
        match session {
            Some(id) if self.sessions.get(id).is_branch => self.end_branch(id, out),
            Some(id) => self.go_away(id, out),
            None => {}
        }
    }
}

/// Where a connection went on after its CONNECT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moved {
    Away,
    Here,
    /// It waits for a verdict.
    Nowhere,
}

impl Sessions {
    /// A packet that is not PUBLISH to a connected client: no window holds it back
    /// [MQTT-3.3.4-10] [MQTT-4.9.0-3].
    pub(crate) fn reply(&mut self, id: SessionId, bytes: &[u8], out: &mut Outbox) {
        let session = self.get_mut(id);
        let Some(conn) = session.conn() else { return };
        out.write(conn, &mut session.write).own.extend_from_slice(bytes);
        out.count_bytes(bytes.len());
        self.counters.messages_sent += 1;
        self.counters.bytes_sent += bytes.len() as u64;
    }

    /// DISCONNECT, which only 5.0 has from a server [MQTT-3.14.4-1]. A reason and its words are all
    /// that it says [MQTT-3.14.2-2].
    pub(crate) fn say_disconnect(
        &mut self,
        id: SessionId,
        reason: Reason,
        what: Option<&str>,
        out: &mut Outbox,
    ) {
        let session = self.get(id);
        // A stream just ends: the connection goes on.
        if session.version == Version::V5 && !session.is_branch {
            let bytes = explained(what, session.packet_bytes_max, |properties, bytes| {
                Disconnect { reason, properties }.encode(Version::V5, bytes);
            });
            self.reply(id, &bytes, out);
        }
    }
}
