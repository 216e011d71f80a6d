//! The protocol state of one connection, and the dispatch of received packets to their handlers.

mod close;
mod timer;

use crate::authorization::authz::PendingAuthz;
use crate::connection::auth_exchange::AuthExchange;
use crate::connection::connection_table::ConnectionTable;
use crate::connection::peer::PeerInfo;
use crate::connection::rate_meter::RateMeter;
use crate::connection::reason_string::encode_with_reason;
use crate::connection::receipt::{PUBACK, PUBCOMP, PUBREC};
use crate::connection::refusal::Refusal;
use crate::input::{ConnId, MonotonicMs, SessionId};
use crate::outbox::{Effect, Outbox};
use crate::routing::exclusive::ExclusiveClaim;
use crate::session::session_table::SessionTable;
use crate::shard::Shard;
use mqtt::{
    Disconnect, PINGRESP, Packet, PacketFrame, PacketId, PacketType, Property, ProtocolVersion,
    Publish, PublishAck, QoS, ReasonCode, Subscribe, Unsubscribe, Violation,
};
use std::sync::Arc;

/// Protocol state of a connection. Fields that every packet uses come first, side by side.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) state: ConnState,
    pub(crate) last_activity: MonotonicMs,
    /// Meter of the packets from the client; absent without a rate limit.
    pub(crate) meter: Option<Box<RateMeter>>,
    /// Bytes of the largest packet accepted from the client [MQTT-3.2.2-15].
    pub(crate) packet_bytes_max: u32,
    /// Acknowledgements to the client, held until the store has committed a batch.
    pub(crate) pending_acks: u32,
    pub(crate) generation: u32,
    /// Longest allowed silence of the client in milliseconds: one and a half times the keep-alive,
    /// or 0 for no limit [MQTT 5.0, 3.1.2.10].
    pub(crate) silence_ms_max: u32,
    /// Due time of the only valid `ShardTimer::Conn`; a timer that fires earlier is ignored.
    pub(crate) timer_at: MonotonicMs,
    pub(crate) peer: PeerInfo,
    /// State of the authentication exchange; absent if CONNECT had no Authentication Method.
    pub(crate) exchange: Option<Box<AuthExchange>>,
    /// Topics of the client's aliases: alias `n` is at index `n - 1`. The list ends with the
    /// connection [MQTT-3.3.2-7].
    pub(crate) aliases: Vec<Option<Arc<str>>>,
    /// Bytes of memory of the topics in `aliases`.
    pub(crate) alias_bytes: u32,
    pub(crate) topic_alias_max: u16,
    /// Receive Maximum as sent in CONNACK, even if the options have changed since.
    pub(crate) receive_maximum: u16,
    pub(crate) version: ProtocolVersion,
    /// Whether the client is a bridge, to which the broker does not return the bridge's own
    /// messages.
    pub(crate) is_bridge: bool,
    /// Whether the connection came from another shard; a connection moves at most once.
    pub(crate) moved: bool,
}

#[derive(Debug)]
pub(crate) enum ConnState {
    /// Only CONNECT is allowed [MQTT-3.1.0-1].
    AwaitingConnect,
    /// CONNECT has arrived and waits for an authentication decision.
    Authenticating,
    /// The backend has asked for a further step, and the client has received AUTH 0x18: only AUTH
    /// and DISCONNECT are allowed.
    Challenged,
    Live {
        session: SessionId,
    },
    /// CONNACK waits for the commit that erases the client's previous session. Packets from the
    /// client stay unread until then.
    AwaitingCommit {
        session: SessionId,
    },
    /// The store has a backlog, and the next packet would add to the backlog: the packet stays
    /// unread.
    StoreBacklogged {
        session: SessionId,
    },
    /// The client has exceeded the rate limit: the next packet stays unread until
    /// `resume_rate_limited`.
    RateLimited {
        session: SessionId,
    },
    /// The next packet stays unread until a decision of the authorization server, or the deadline.
    Authorizing {
        session: SessionId,
        inquiry: Box<PendingAuthz>,
    },
    /// A CONNECT with a will stays unread until a decision of the authorization server on the will.
    AuthorizingWill {
        inquiry: Box<PendingAuthz>,
    },
    /// The authorization server has decided on the will of the CONNECT to be read next.
    WillAuthorized {
        is_allowed: bool,
    },
    /// SUBACK waits for answers from the shards that own the shared groups or exclusive filters.
    /// Packets from the client stay unread until then.
    AwaitingSubAck {
        session: SessionId,
        suback: Box<PendingSubAck>,
    },
}

// Every connection has a `Conn`, so the size is a cost for idle clients.
const _: () = assert!(size_of::<ConnState>() == 16 || size_of::<usize>() != 8);
const _: () = assert!(size_of::<Option<Conn>>() <= 152);

#[derive(Debug)]
pub(crate) struct PendingSubAck {
    pub(crate) packet_id: PacketId,
    pub(crate) codes: Vec<u8>,
    /// Description of the first refusal among `codes`, for the Reason String.
    pub(crate) what: Option<&'static str>,
    pub(crate) groups: Vec<Arc<str>>,
    /// Exclusive filters whose owner is known to another shard.
    pub(crate) claims: Vec<ExclusiveClaim>,
}

/// Reason for which the broker ends a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CloseReason {
    /// The client sent DISCONNECT with this reason code; the will has been handled accordingly.
    ClientDisconnect(ReasonCode),
    Violation(Violation),
    Refusal(Refusal),
}

impl From<Violation> for CloseReason {
    fn from(violation: Violation) -> CloseReason {
        CloseReason::Violation(violation)
    }
}

impl From<Refusal> for CloseReason {
    fn from(refusal: Refusal) -> CloseReason {
        CloseReason::Refusal(refusal)
    }
}

impl Conn {
    pub(crate) fn session(&self) -> Option<SessionId> {
        match self.state {
            ConnState::Authenticating
            | ConnState::Challenged
            | ConnState::AwaitingConnect
            | ConnState::WillAuthorized { .. }
            | ConnState::AuthorizingWill { .. } => None,
            ConnState::Live { session }
            | ConnState::StoreBacklogged { session }
            | ConnState::RateLimited { session }
            | ConnState::AwaitingSubAck { session, .. }
            | ConnState::Authorizing { session, .. }
            | ConnState::AwaitingCommit { session } => Some(session),
        }
    }

    /// Whether the broker has stopped reading from the client, in which case silence is not the
    /// client's fault.
    pub(crate) fn is_read_blocked(&self) -> bool {
        use ConnState::{Authorizing, RateLimited, StoreBacklogged};
        matches!(self.state, StoreBacklogged { .. } | RateLimited { .. } | Authorizing { .. })
    }

    /// Returns the time at which keep-alive ends the connection unless a packet arrives; `None`
    /// without a keep-alive.
    pub(crate) fn keep_alive_deadline(&self) -> Option<MonotonicMs> {
        let ms = u64::from(self.silence_ms_max);
        (ms > 0).then_some(MonotonicMs(self.last_activity.0 + ms))
    }

    /// Returns the session if the client has received CONNACK, which must be the first packet to a
    /// client [MQTT-3.2.0-1] [MQTT-3.14.0-1].
    pub(crate) fn connacked_session(&self) -> Option<SessionId> {
        self.session().filter(|_| !matches!(self.state, ConnState::AwaitingCommit { .. }))
    }
}

impl Shard {
    /// Handles the packets in `bytes` until the bytes are used up, the outbox is full, or the
    /// connection has to wait in a [`ConnState`] without reading. `out.consumed` is the number of
    /// bytes handled.
    pub(crate) fn read_packets(&mut self, conn: ConnId, bytes: &[u8], out: &mut Outbox) {
        out.consumed = 0;
        self.connections.note_activity(conn, &mut self.sessions);
        while !out.is_full() {
            // Bytes after the end of the connection are discarded [MQTT-3.1.4-6].
            let Some(known) = self.connections.conn(conn) else {
                out.consumed = bytes.len();
                return;
            };
            let live = match known.state {
                ConnState::Challenged => return self.read_auth_answer(conn, bytes, out),
                ConnState::AwaitingConnect | ConnState::WillAuthorized { .. } => None,
                ConnState::Live { session } => Some(session),
                // Every other state waits for a decision, a commit or a timer.
                _ => return,
            };
            let (is_metered, bytes_max) = (known.meter.is_some(), known.packet_bytes_max);
            let rest = &bytes[out.consumed..];
            if let Some(session) = live
                && !self.sessions.context.is_tracing()
                && !is_metered
            {
                let taken =
                    self.connections.read_acks(conn, session, rest, &mut self.sessions, out);
                out.consumed += taken;
                if taken > 0 {
                    continue;
                }
            }
            let frame = match mqtt::split_frame(rest, bytes_max) {
                Ok(Some(frame)) => frame,
                Ok(None) if live.is_none() => return self.check_first_byte(conn, rest, out),
                Ok(None) => return,
                Err(violation) => {
                    self.connections.detail_frame(rest, bytes_max, live.is_some());
                    self.end_connection(conn, CloseReason::Violation(violation), out);
                    out.consumed = bytes.len();
                    return;
                }
            };
            let may_wait = is_metered
                | self.sessions.durability.store_is_backlogged
                | self.authorization.uses_authz;
            if may_wait && self.hold_packet(conn, live, frame, out) {
                return;
            }
            self.sessions.counters.messages_received += 1;
            self.sessions.counters.bytes_received += frame.len as u64;
            let traces = self.sessions.context.is_tracing();
            if traces && live.is_some() {
                self.statistics.trace_received(conn, frame, &mut self.sessions, out);
            }
            let ended = match live {
                Some(session) => self.dispatch_packet(conn, session, frame, out),
                None => match self.connect(conn, frame, out) {
                    Ok(ConnectOutcome::OtherShard | ConnectOutcome::Pending) => {
                        return self.sessions.uncount_packet(frame.len);
                    }
                    came => {
                        if traces {
                            self.statistics.trace_received(conn, frame, &mut self.sessions, out);
                        }
                        came.map(|_| ())
                    }
                },
            };
            out.consumed += frame.len;
            if let Err(end) = ended {
                self.connections.detail_packet(frame, rest, live, end, &mut self.sessions);
                self.end_connection(conn, end, out);
            }
        }
    }

    /// Decodes one packet of a connected client and passes it to the handler of its type. An error
    /// ends the connection.
    #[inline]
    fn dispatch_packet(
        &mut self,
        conn: ConnId,
        session: SessionId,
        frame: PacketFrame<'_>,
        out: &mut Outbox,
    ) -> Result<(), CloseReason> {
        let version = self.sessions.get(session).version;
        match PacketType::from_byte(frame.first) {
            Some(PacketType::Publish) => {
                let packet = Publish::decode(frame, version)?;
                self.publish(conn, session, packet, out)
            }
            Some(PacketType::PubAck) => {
                let ack = PublishAck::decode(frame, version)?;
                Ok(self.sessions.puback(session, ack.packet_id, out)?)
            }
            Some(PacketType::PubRec) => {
                let ack = PublishAck::decode(frame, version)?;
                if let Some((reason, waits)) = self.sessions.pubrec(session, &ack, out)? {
                    let answer = (PacketType::PubRel, ack.packet_id, reason);
                    self.connections.acknowledge_when_durable(
                        conn,
                        answer.0,
                        answer.1,
                        answer.2,
                        waits,
                        &mut self.sessions,
                        out,
                    );
                }
                Ok(())
            }
            Some(PacketType::PubRel) => {
                let ack = PublishAck::decode(frame, version)?;
                let (reason, waits) = self.sessions.pubrel(session, ack.packet_id);
                let answer = (PacketType::PubComp, ack.packet_id, reason);
                self.connections.acknowledge_when_durable(
                    conn,
                    answer.0,
                    answer.1,
                    answer.2,
                    waits,
                    &mut self.sessions,
                    out,
                );
                Ok(())
            }
            Some(PacketType::PubComp) => {
                let ack = PublishAck::decode(frame, version)?;
                Ok(self.sessions.pubcomp(session, ack.packet_id, out)?)
            }
            Some(PacketType::Subscribe) => {
                self.subscribe(conn, session, Subscribe::decode(frame, version)?, out)
            }
            Some(PacketType::Unsubscribe) => {
                self.unsubscribe(conn, session, Unsubscribe::decode(frame, version)?, out)
            }
            Some(PacketType::PingReq | PacketType::Disconnect | PacketType::Auth)
                if self.sessions.get(session).is_data_stream =>
            {
                Err(Violation::OffControlStream.into())
            }
            Some(PacketType::PingReq) => self.sessions.pingreq(session, frame, out),
            Some(PacketType::Disconnect) => {
                let packet = Disconnect::decode(frame, version)?;
                self.sessions.disconnect(session, &packet)
            }
            Some(PacketType::Auth) if version == ProtocolVersion::V5 => {
                self.connections.auth(conn, session, frame, &mut self.sessions, out)
            }
            // [MQTT-3.1.0-2]
            Some(PacketType::Connect) => Err(Violation::SecondConnect.into()),
            _ => Err(Violation::PacketFromServerOnly.into()),
        }
    }

    /// Stops reading from a connection whose next packet has to wait for the store, a rate limit or
    /// an authorization decision. Returns whether the packet waits.
    #[cold]
    fn hold_packet(
        &mut self,
        conn: ConnId,
        live: Option<SessionId>,
        frame: PacketFrame<'_>,
        out: &mut Outbox,
    ) -> bool {
        let Some(id) = live else { return false };
        let waits = (self.sessions.durability.store_is_backlogged
            && self.hold_for_store(conn, id, frame, out))
            || self.connections.hold_for_rate(conn, id, &mut self.sessions, out)
            || (self.authorization.uses_authz
                && self.authorization.hold_for_authz(
                    conn,
                    id,
                    frame,
                    &mut self.connections,
                    &mut self.sessions,
                    out,
                ));
        if !waits {
            self.connections.charge_packet(conn, frame, &mut self.sessions);
        }
        waits
    }

    /// Stops reading from a connection whose next packet is a PUBLISH that the store would have to
    /// take during a backlog. Returns whether the packet waits.
    fn hold_for_store(
        &mut self,
        conn: ConnId,
        id: SessionId,
        frame: PacketFrame<'_>,
        out: &mut Outbox,
    ) -> bool {
        let session = self.sessions.get(id);
        let (version, lasts) = (session.version, session.persistent.is_some());
        if PacketType::from_byte(frame.first) != Some(PacketType::Publish) {
            return false;
        }
        // The normal path reports the violation of a malformed packet.
        let Ok(packet) = Publish::decode(frame, version) else { return false };
        let aliased = match packet.topic {
            "" => self.connections.topic_of_alias(conn, &packet),
            _ => None,
        };
        let topic = aliased.as_deref().unwrap_or(packet.topic);
        let topic = &*self.sessions.get(id).add_prefix(topic);
        let waits = (packet.qos == QoS::ExactlyOnce && lasts)
            || self.routing.needs_store(topic, &packet, &mut self.sessions)
            || (!self.rule_engine.rule_index.is_empty()
                && self.rule_engine.rules_need_store(
                    topic,
                    packet.qos,
                    packet.retain,
                    &mut self.routing,
                    &mut self.sessions,
                ));
        if waits {
            if let Some(known) = self.connections.conn_mut(conn) {
                known.state = ConnState::StoreBacklogged { session: id };
            }
            self.connections.store_waiters.push(conn);
            out.effects.push(Effect::Hold { conn });
        }
        waits
    }
}

impl ConnectionTable {
    #[inline]
    fn note_activity(&mut self, conn: ConnId, sessions: &mut SessionTable) {
        let now = sessions.context.now;
        if let Some(known) = self.conn_mut(conn) {
            known.last_activity = now;
        }
    }

    /// Handles the acknowledgements at the front of `bytes` that need no decoding, because their
    /// form is the shortest. Returns the length in bytes.
    #[inline]
    fn read_acks(
        &mut self,
        conn: ConnId,
        session: SessionId,
        bytes: &[u8],
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) -> usize {
        match bytes.first() {
            Some(&PUBACK) => sessions.pubacks(session, bytes, out),
            Some(&PUBREC) if !self.has_pending_acks(conn, sessions) => {
                sessions.pubrecs(session, bytes, out)
            }
            Some(&PUBCOMP) => sessions.pubcomps(session, bytes),
            _ => 0,
        }
    }
}

impl SessionTable {
    /// Takes back the count of a CONNECT that moves to another shard or waits: the packet is read
    /// and counted again later.
    fn uncount_packet(&mut self, len: usize) {
        self.counters.messages_received -= 1;
        self.counters.bytes_received -= len as u64;
    }

    fn pingreq(
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
    fn disconnect(&mut self, id: SessionId, packet: &Disconnect<'_>) -> Result<(), CloseReason> {
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
}

/// Result of handling a CONNECT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectOutcome {
    OtherShard,
    Accepted,
    /// The client waits for an authentication or authorization decision.
    Pending,
}

impl SessionTable {
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
