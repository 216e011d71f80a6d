//! The bytes of a connection: packets are cut, held back or dispatched, until the connection ends.

use crate::broker_event::BrokerEvent;
use crate::connection::conn::{ConnState, ConnectOutcome};
use crate::connection::end_detail::{describe_first_bytes, describe_violation, may_be_connect};
use crate::durability::pending_acks::AckPacket;
use crate::ids::{ConnId, SessionId};
use crate::interface::outbox::{Effect, Outbox};
use crate::limits::NONE;
use crate::refusal::CloseReason;
use crate::shard::Shard;
use mqtt::{
    Disconnect, PacketFrame, PacketType, ProtocolVersion, Publish, PublishAck, QoS, Subscribe,
    Unsubscribe, Violation,
};

impl Shard {
    /// Ends a data stream without a will and without an event: the control connection of the client
    /// either lives on or reports the end.
    pub(crate) fn end_data_stream(&mut self, id: SessionId, out: &mut Outbox) {
        self.sessions.get_mut(id).conn = NONE;
        self.end_session(id, false, out);
    }

    /// Ends a connection whose first byte cannot begin a CONNECT, without waiting for the rest.
    pub(crate) fn check_first_byte(&mut self, conn: ConnId, bytes: &[u8], out: &mut Outbox) {
        let Some(&first) = bytes.first() else { return };
        if !may_be_connect(first) {
            self.connections.violation_detail = describe_first_bytes(bytes).into();
            out.consumed += bytes.len();
            self.end_connection(conn, CloseReason::Violation(Violation::ConnectExpected), out);
        }
    }

    /// Handles the packets in `bytes` until the bytes are used up, the outbox is full, or the
    /// connection has to wait in a [`ConnState`] without reading. `out.consumed` is the number of
    /// bytes handled.
    pub(crate) fn read_packets(&mut self, conn: ConnId, bytes: &[u8], out: &mut Outbox) {
        out.consumed = 0;
        self.connections.note_activity(conn, &self.sessions);
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
            if live.is_some() && self.sessions.context.is_tracing() {
                self.statistics.trace_received(conn, frame, &self.sessions, out);
            }
            let ended = match live {
                Some(session) => self.dispatch_packet(conn, session, frame, out),
                None => match self.read_connect(conn, frame, out) {
                    Some(ended) => ended,
                    None => return,
                },
            };
            out.consumed += frame.len;
            if let Err(end) = ended {
                self.connections.detail_packet(frame, rest, live, end, &self.sessions);
                self.end_connection(conn, end, out);
            }
        }
    }

    /// Handles the first packet of a connection. `None` if the packet waits, here or on the shard
    /// that owns the client id.
    fn read_connect(
        &mut self,
        conn: ConnId,
        frame: PacketFrame<'_>,
        out: &mut Outbox,
    ) -> Option<Result<(), CloseReason>> {
        let outcome = self.connect(conn, frame, out);
        if let Ok(ConnectOutcome::OtherShard | ConnectOutcome::Pending) = outcome {
            self.sessions.uncount_packet(frame.len);
            return None;
        }
        if self.sessions.context.is_tracing() {
            self.statistics.trace_received(conn, frame, &self.sessions, out);
        }
        Some(outcome.map(|_| ()))
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
                    let answer = AckPacket::new(PacketType::PubRel, ack.packet_id, reason);
                    let Shard { connections, sessions, .. } = self;
                    connections.acknowledge_when_durable(conn, answer, waits, sessions, out);
                }
                Ok(())
            }
            Some(PacketType::PubRel) => {
                let ack = PublishAck::decode(frame, version)?;
                let (reason, waits) = self.sessions.pubrel(session, ack.packet_id);
                let answer = AckPacket::new(PacketType::PubComp, ack.packet_id, reason);
                let Shard { connections, sessions, .. } = self;
                connections.acknowledge_when_durable(conn, answer, waits, sessions, out);
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
                self.connections.auth(conn, session, frame, &self.sessions, out)
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
            self.connections.charge_packet(conn, frame, &self.sessions);
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
            || self.routing.needs_store(topic, &packet, &self.sessions)
            || (!self.rule_engine.rule_index.is_empty()
                && self.rule_engine.rules_need_store(
                    topic,
                    packet.qos,
                    packet.retain,
                    &self.routing,
                    &self.sessions,
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

    /// Ends a connection: reports an event, sends the reason if the version has a packet for the
    /// purpose, and closes the transport [MQTT-4.13.1-1] [MQTT-4.13.2-1] [MQTT-3.2.2-7]
    /// [MQTT-3.14.4-2].
    pub(crate) fn end_connection(&mut self, conn: ConnId, end: CloseReason, out: &mut Outbox) {
        let detail = std::mem::take(&mut self.connections.violation_detail);
        let Some(known) = self.connections.conn(conn) else { return };
        let (peer, session, welcomed) =
            (known.peer.address, known.session(), known.connacked_session());
        let client_id: Box<str> =
            session.map(|id| self.sessions.get(id).client_id.clone()).unwrap_or_default();
        let refused = self.rule_engine.event_collector.refused.take();
        let event = match end {
            CloseReason::ClientDisconnect(reason) => {
                Some(BrokerEvent::Disconnected { client_id, conn, reason })
            }
            CloseReason::Violation(violation) => {
                self.sessions.counters.violations += 1;
                let detail = describe_violation(violation, detail);
                let told = self.connections.count_end_event(&mut self.sessions);
                told.map(|withheld| BrokerEvent::Violated {
                    client_id,
                    conn,
                    peer,
                    violation,
                    detail,
                    withheld,
                })
            }
            CloseReason::Refusal(refusal) => {
                let told = self.connections.count_end_event(&mut self.sessions);
                let (client_id, user) = match session {
                    Some(_) => (client_id, None),
                    None => refused.unwrap_or_default(),
                };
                told.map(|withheld| BrokerEvent::Refused {
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
        out.events.extend(event);
        if self.rule_engine.rule_index.wants_events() {
            self.rule_engine.collect_events(&self.connections, &mut self.sessions, out);
        }
        let said = match end {
            CloseReason::ClientDisconnect(_) => None,
            CloseReason::Violation(violation) => {
                Some((violation.reason(), violation.description()))
            }
            CloseReason::Refusal(refusal) => Some((refusal.reason(), refusal.description())),
        };
        // Before CONNACK no DISCONNECT may be sent [MQTT-3.14.0-1].
        if let (Some(id), Some((reason, what))) = (welcomed, said) {
            self.sessions.send_disconnect(id, reason, Some(what), out);
        }
        out.effects.push(Effect::Close { conn });
        self.forget_conn(conn, out);
    }

    /// Handles the end of the transport without a DISCONNECT.
    pub(crate) fn on_closed(&mut self, conn: ConnId, out: &mut Outbox) {
        let Some(known) = self.connections.conn(conn) else { return };
        if let Some(id) = known.session() {
            let session = self.sessions.get(id);
            if !session.is_data_stream {
                let client_id = session.client_id.clone();
                out.events.push(BrokerEvent::Lost { client_id, conn });
                if self.rule_engine.rule_index.wants_events() {
                    self.rule_engine.collect_events(&self.connections, &mut self.sessions, out);
                }
            }
        }
        self.forget_conn(conn, out);
    }

    pub(super) fn forget_conn(&mut self, conn: ConnId, out: &mut Outbox) {
        let session =
            self.connections.take_conn(conn, &mut self.sessions).and_then(|known| known.session());
        match session {
            Some(id) if self.sessions.get(id).is_data_stream => self.end_data_stream(id, out),
            Some(id) => self.detach_session(id, out),
            None => {}
        }
    }
}
