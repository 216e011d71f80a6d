//! CONNECT: admission of a client, the choice of the shard that owns the client id, and the start
//! or resumption of the session.

use crate::authorization::client_permissions::ClientPermissions;
use crate::connection::alias::OutboundAliases;
use crate::connection::auth_exchange::AuthStep;
use crate::connection::conn::{CloseReason, ConnState, ConnectOutcome};
use crate::connection::connection_table::ConnectionTable;
use crate::connection::negotiation::{ConnectProperties, NegotiatedOptions, accepting_connack};
use crate::connection::peer::ListenerId;
use crate::connection::rate_meter::RateMeter;
use crate::connection::reason_string::encode_with_reason;
use crate::connection::refusal::Refusal;
use crate::connection::send_gate::SendGate;
use crate::context::ShardContext;
use crate::input::{ConnId, MonotonicMs, SessionId, ShardId};
use crate::limits::{LINK_IDS, NONE};
use crate::memory::SMALL_BYTES_MAX;
use crate::outbox::{Effect, Outbox};
use crate::routing::namespace::{self, NamespacedClientId};
use crate::rules::rule_engine::RuleEngine;
use crate::session::session_table::SessionTable;
use crate::session::will::SessionWill;
use crate::shard::Shard;
use crate::statistics::broker_event::BrokerEvent;
use crate::timer::ShardTimer;
use mqtt::{ConnAck, Connect, Packet, PacketFrame, ProtocolVersion, ReasonCode, Violation};

impl Shard {
    /// Handles the first packet of a connection, which must be CONNECT. The broker requires no more
    /// of a client than the specification does [MQTT-7.0.0-2]. `ConnectOutcome::Pending` leaves the
    /// packet unread until a decision on the client or the will arrives.
    pub(crate) fn connect(
        &mut self,
        conn: ConnId,
        frame: PacketFrame<'_>,
        out: &mut Outbox,
    ) -> Result<ConnectOutcome, CloseReason> {
        if frame.packet_type() != mqtt::PacketType::Connect as u8 {
            return Err(Violation::ConnectExpected.into());
        }
        // [MQTT-3.1.4-1]
        let mut packet = Connect::decode(frame)
            .map_err(|violation| self.refuse_undecodable(conn, frame, violation, out))?;
        if self.sessions.context.is_tracing() {
            self.statistics.start_trace(
                conn,
                packet.client_id,
                packet.version,
                &mut self.connections,
                &mut self.sessions,
            );
        }
        let asked = ConnectProperties::new(packet.properties);
        let admitted = self.authorization.check_connect_bans(
            conn,
            &packet,
            &mut self.connections,
            &mut self.sessions,
            out,
        );
        let admitted = admitted.and_then(|()| {
            self.connections.check_connect(conn, &packet, &asked, &mut self.sessions)
        });
        if admitted.is_ok()
            && self.connections.authenticates_at(conn, &self.sessions)
            && self.connections.auth_decision(conn).is_none()
        {
            let step = AuthStep::of_connect(packet.properties);
            self.connections.request_authentication(conn, &packet, step, &mut self.sessions, out);
            return Ok(ConnectOutcome::Pending);
        }
        let admitted = admitted.and_then(|one| {
            self.authorization.apply_auth_decision(
                conn,
                &packet,
                one,
                &mut self.connections,
                &mut self.sessions,
                out,
            )
        });
        let agreed = admitted.and_then(|one| {
            Ok((
                self.connections.negotiate_options(conn, &packet, &asked, &one, &self.sessions)?,
                one,
            ))
        });
        let (agreed, NamespacedClientId { client_id, key }) = match agreed {
            Ok(agreed) => agreed,
            Err(refusal) => {
                return Err(self.rule_engine.refuse_client(
                    conn,
                    &packet,
                    &asked,
                    refusal,
                    &mut self.sessions,
                    out,
                ));
            }
        };
        // The client id of such a client is assigned later, so any shard may own the session.
        let home = match packet.client_id {
            "" if !self.connections.has_other_client_id(conn) => {
                self.sessions.context.random_shard()
            }
            _ => self.sessions.context.owner_of(&key),
        };
        if self.move_home(conn, home, out) {
            return Ok(ConnectOutcome::OtherShard);
        }
        if self.sessions.context.is_tracing() && packet.client_id.is_empty() {
            self.statistics.start_trace(
                conn,
                &client_id,
                packet.version,
                &mut self.connections,
                &mut self.sessions,
            );
        }
        let placed = self.sessions.check_session_room(&packet, &agreed, &key);
        let renamed = match placed.and_then(|()| {
            self.connections.rewrite_will_topic(conn, &client_id, &packet, &self.sessions)
        }) {
            Ok(renamed) => renamed,
            Err(refusal) => {
                return Err(self.rule_engine.refuse_client(
                    conn,
                    &packet,
                    &asked,
                    refusal,
                    &mut self.sessions,
                    out,
                ));
            }
        };
        set_will_topic(packet.will.as_mut(), renamed.as_deref());
        if let Some(will) = &packet.will
            && self.authorization.uses_authz
            && self.authorization.hold_for_will_authz(
                conn,
                &client_id,
                will,
                &mut self.connections,
                &mut self.sessions,
                out,
            )
        {
            return Ok(ConnectOutcome::Pending);
        }
        let answered = self.connections.will_decision(conn);
        let mut rights = self.connections.take_permissions(conn, &mut self.sessions);
        if let Some(will) = &packet.will
            && let Err(refusal) =
                self.sessions.authorize_will(answered, rights.as_deref_mut(), &client_id, will)
        {
            return Err(self.rule_engine.refuse_client(
                conn,
                &packet,
                &asked,
                refusal,
                &mut self.sessions,
                out,
            ));
        }
        if let Err(refusal) = self.connections.join_client_group(
            conn,
            &key,
            rights.as_deref_mut(),
            &mut self.sessions,
        ) {
            return Err(self.rule_engine.refuse_client(
                conn,
                &packet,
                &asked,
                refusal,
                &mut self.sessions,
                out,
            ));
        }
        self.accept_connect(conn, &packet, &asked, &agreed, &key, rights, out);
        Ok(ConnectOutcome::Accepted)
    }

    /// Moves a connection to the shard `home` that owns the client id. Returns `false` if the
    /// connection stays: `home` is this shard, or the connection has moved once already.
    fn move_home(&mut self, conn: ConnId, home: ShardId, out: &mut Outbox) -> bool {
        if home == self.sessions.context.id
            || self.connections.conn(conn).is_none_or(|known| known.moved)
        {
            return false;
        }
        let Some(known) = self.connections.take_conn(conn, &mut self.sessions) else {
            return false;
        };
        self.statistics.stop_trace(conn);
        out.effects.push(Effect::Move { conn, shard: home, peer: known.peer });
        true
    }

    /// Answers a CONNECT that cannot be decoded. An unknown protocol level gets a CONNACK in the
    /// nearest supported version [MQTT-3.1.2-2] [3.1.1:MQTT-3.1.2-2], a malformed 5.0 CONNECT the
    /// reason; a malformed CONNECT of 3.x just closes the connection [3.1.1:MQTT-3.1.4-1].
    fn refuse_undecodable(
        &mut self,
        conn: ConnId,
        frame: PacketFrame<'_>,
        violation: Violation,
        out: &mut Outbox,
    ) -> CloseReason {
        if self.sessions.context.is_tracing() {
            self.statistics.start_trace(
                conn,
                "",
                ProtocolVersion::V5,
                &mut self.connections,
                &mut self.sessions,
            );
        }
        let (level, said) =
            (protocol_level(frame.body), (violation.reason(), violation.description()));
        if violation == Violation::ProtocolVersionUnknown {
            let version = if level > 5 { ProtocolVersion::V5 } else { ProtocolVersion::V311 };
            refuse_connect(conn, version, said.0, said.1, u32::MAX, out);
        } else if level == 5 {
            refuse_connect(conn, ProtocolVersion::V5, said.0, said.1, u32::MAX, out);
        }
        violation.into()
    }

    /// Accepts a CONNECT that was authenticated and permitted: ends an older connection of the
    /// client id, resumes or creates the session, and sends CONNACK.
    #[expect(clippy::too_many_arguments, reason = "what was agreed on, piece by piece")]
    fn accept_connect(
        &mut self,
        conn: ConnId,
        packet: &Connect<'_>,
        asked: &ConnectProperties<'_>,
        agreed: &NegotiatedOptions,
        client_id: &str,
        rights: Option<Box<ClientPermissions>>,
        out: &mut Outbox,
    ) {
        let peer = self.connections.conn(conn).map(|known| known.peer.address);
        let Some(peer) = peer else { return };
        // [MQTT-3.1.3-2]
        let mut kept = self.sessions.find(client_id);
        if let Some(old) = kept {
            self.take_over(old, peer, out);
            // The takeover may have ended the session as well.
            kept = self.sessions.find(client_id);
        }
        // [MQTT-3.1.2-4] [MQTT-3.1.4-4] [3.1.1:MQTT-3.1.2-6]
        let is_stranger = |old| self.sessions.belongs_to_other_user(old, rights.as_deref());
        if let Some(old) = kept.filter(|&old| packet.clean_start || is_stranger(old)) {
            self.end_session(old, false, out);
            kept = None;
        }
        // [MQTT-3.2.2-2] [MQTT-3.2.2-3]
        let present = kept.is_some();
        let id = match kept {
            Some(id) => id,                                          // [MQTT-3.1.2-5]
            None => self.sessions.create(client_id, packet.version), // [MQTT-3.1.2-6]
        };
        self.connections.begin_session(conn, id, packet, asked, agreed, rights, &mut self.sessions);
        self.routing.make_persistent(id, &mut self.sessions);
        let max = self.connections.limits_at(conn, &self.sessions).keep_alive_s_max;
        let keeps_own_keep_alive =
            max > 0 && (agreed.keep_alive_s == 0 || agreed.keep_alive_s > max);
        out.events.push(BrokerEvent::Connected {
            client_id: client_id.into(),
            conn,
            peer,
            version: packet.version,
            session_present: present,
            keep_alive_s: agreed.keep_alive_s,
            keeps_own_keep_alive,
        });
        // CONNACK is the first packet, before any queued message, and is sent once [MQTT-3.1.4-5]
        // [MQTT-3.2.0-1] [MQTT-3.2.0-2].
        let mut bytes = Vec::with_capacity(64);
        accepting_connack(packet.version, present, agreed).encode(packet.version, &mut bytes);
        match !present && self.sessions.has_uncommitted_end(client_id) {
            true => self.connections.accept_when_durable(conn, id, bytes, &mut self.sessions, out),
            false => {
                self.sessions.send_packet(id, &bytes, out);
                self.auto_subscribe(id, out);
            }
        }
        // The client's permissions may exclude filters from an earlier connection.
        if present
            && self
                .sessions
                .context
                .options
                .permissions_at(self.sessions.get(id).listener)
                .is_some()
        {
            self.authorization.reauthorize_session(id, &mut self.routing, &mut self.sessions, out);
        }
        self.publish_presence(id, true, out);
        if let Some(flight) = &mut self.sessions.get_mut(id).flight {
            flight.forget_seen();
        }
        self.connections.resume_when_durable(conn, id, &mut self.sessions);
        self.sessions.drain_queue(id, out);
        if self.sessions.get(id).is_member {
            self.sessions.room_changes.push(id);
        }
    }
}

impl ShardContext {
    fn random_shard(&mut self) -> ShardId {
        ShardId((self.next_random() % self.shards as u64) as u8)
    }
}

impl SessionTable {
    /// Checks for room for this client. `Refusal::QuotaExceeded` under memory pressure,
    /// `Refusal::StoreFull` for a new persistent session while the store is full.
    fn check_session_room(
        &self,
        packet: &Connect<'_>,
        agreed: &NegotiatedOptions,
        client_id: &str,
    ) -> Result<(), Refusal> {
        if !self.has_memory_for_connect(packet, client_id) {
            return Err(Refusal::QuotaExceeded);
        }
        let is_new = self.find(client_id).is_none();
        match self.durability.store_is_full && agreed.session_expiry_s > 0 && is_new {
            true => Err(Refusal::StoreFull),
            false => Ok(()),
        }
    }

    /// Whether the memory allows this client in. Under pressure only a client with an existing
    /// session and at most `SMALL_BYTES_MAX` bytes of will may enter: the session needs no more
    /// memory, and the client can drain the queue.
    fn has_memory_for_connect(&self, packet: &Connect<'_>, client_id: &str) -> bool {
        let will = packet.will.as_ref();
        let small = will.is_none_or(|will| {
            will.topic.len() + will.payload.len() + will.properties.as_bytes().len()
                <= SMALL_BYTES_MAX
        });
        !self.is_pressure_high() || (small && self.find(client_id).is_some())
    }

    /// Returns a new random client id, unique in the namespace and owned by this shard.
    pub(crate) fn assign_client_id(&mut self, namespace: &str) -> Box<str> {
        loop {
            let client_id = format!(
                "godwit-{:016x}{:08x}",
                self.context.next_random(),
                self.context.next_random() as u32
            );
            let key = namespace::namespaced_id(namespace, &client_id);
            if self.context.owner_of(&key) == self.context.id && self.find(&key).is_none() {
                return client_id.into();
            }
        }
    }
}

impl RuleEngine {
    /// Counts the refusal and answers with a CONNACK that carries the reason [MQTT-4.12.0-4].
    fn refuse_client(
        &mut self,
        conn: ConnId,
        packet: &Connect<'_>,
        asked: &ConnectProperties<'_>,
        refusal: Refusal,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) -> CloseReason {
        sessions.counters.connections_refused += 1;
        self.event_collector.refused =
            Some((packet.client_id.into(), packet.user_name.map(Into::into)));
        let said = (refusal.reason(), refusal.description());
        refuse_connect(conn, packet.version, said.0, said.1, asked.packet_bytes_max, out);
        refusal.into()
    }
}

impl ConnectionTable {
    /// Checks a CONNECT against the limits of the listener before any authentication. Returns the
    /// namespaced client id, or the refusal for the CONNACK [MQTT-3.1.4-2].
    fn check_connect(
        &mut self,
        conn: ConnId,
        packet: &Connect<'_>,
        asked: &ConnectProperties<'_>,
        sessions: &mut SessionTable,
    ) -> Result<NamespacedClientId, Refusal> {
        if self.draining {
            return Err(Refusal::Draining);
        }
        let listener = self.conn(conn).map_or(ListenerId::NONE, |known| known.peer.listener);
        // [MQTT-4.12.0-1]
        if asked
            .method
            .is_some_and(|method| !sessions.context.options.supports_auth_method(listener, method))
        {
            return Err(Refusal::AuthMethodUnsupported);
        }
        let namespace = match self.auth_decision(conn) {
            None if self.authenticates_at(conn, sessions) => "".into(),
            Some(Err(_)) => "".into(),
            _ => self.namespace_at(conn, sessions)?,
        };
        if let Some(will) = &packet.will {
            // [MQTT-3.2.2-12] [MQTT-3.2.2-13]
            if will.qos as u8 > self.limits_at(conn, sessions).qos_max {
                return Err(Refusal::QoSUnsupported);
            }
            if will.retain && !sessions.context.options.retain_available {
                return Err(Refusal::RetainUnsupported);
            }
            self.limits_at(conn, sessions).check_topic(will.topic)?;
            namespace::check_name(namespace::prefix_len(&namespace), will.topic)?;
        }
        if !packet.client_id.is_empty() {
            // [MQTT-3.1.3-5]: any text up to the option's length.
            if packet.client_id.len() > usize::from(sessions.context.options.client_id_bytes_max) {
                return Err(Refusal::ClientIdTooLong); // [3.1.1:MQTT-3.1.3-9]
            }
            self.check_reserved(conn, packet.client_id)?;
            return Ok(NamespacedClientId::new(&namespace, packet.client_id.into()));
        }
        // [MQTT-3.1.3-6] [MQTT-3.1.3-8] [3.1.1:MQTT-3.1.3-7] [3.1.1:MQTT-3.1.3-8]: 3.1 has no
        // assigned ids, and the CONNACK of 3.1.1 cannot report the id assigned to a persistent
        // session.
        match packet.version {
            ProtocolVersion::V31 => Err(Refusal::ClientIdMissing),
            ProtocolVersion::V311 if !packet.clean_start => Err(Refusal::ClientIdMissing),
            // The authentication decision may name another client id or namespace.
            ProtocolVersion::V311 | ProtocolVersion::V5
                if self.authenticates_at(conn, sessions) =>
            {
                Ok(NamespacedClientId::new("", "".into()))
            }
            ProtocolVersion::V311 | ProtocolVersion::V5 => {
                Ok(NamespacedClientId::new(&namespace, sessions.assign_client_id(&namespace)))
            }
        }
    }

    /// Whether a CONNECT of this connection waits for an authentication decision, by
    /// `authenticates_at` of [`BrokerOptions`](crate::options::BrokerOptions).
    pub(crate) fn authenticates_at(&self, conn: ConnId, sessions: &SessionTable) -> bool {
        let listener = self.conn(conn).map_or(ListenerId::NONE, |known| known.peer.listener);
        sessions.context.options.authenticates_at(listener)
    }

    /// Refuses a client id with the prefix `LINK_IDS` with `Refusal::ClientIdReserved`, unless the
    /// connection comes from this process: such sessions belong to links.
    pub(crate) fn check_reserved(&self, conn: ConnId, client_id: &str) -> Result<(), Refusal> {
        let is_own = self.conn(conn).is_some_and(|known| known.peer.is_internal());
        match client_id.starts_with(LINK_IDS) && !is_own {
            true => Err(Refusal::ClientIdReserved),
            false => Ok(()),
        }
    }

    /// Attaches the connection to the session `id` and stores the negotiated options in both.
    fn begin_session(
        &mut self,
        conn: ConnId,
        id: SessionId,
        packet: &Connect<'_>,
        asked: &ConnectProperties<'_>,
        agreed: &NegotiatedOptions,
        rights: Option<Box<ClientPermissions>>,
        sessions: &mut SessionTable,
    ) {
        let Some(listener) = self.conn(conn).map(|known| known.peer.listener) else { return };
        let all = sessions.context.options.clone();
        let class = rights.as_ref().and_then(|rights| rights.client_group);
        let options = all.options_of_client(listener, class);
        sessions.online += 1;
        sessions.counters.connections_accepted += 1;
        let session = sessions.get_mut(id);
        session.conn = conn.0;
        session.version = packet.version;
        session.gate = SendGate::default();
        session.gate.set(SendGate::QUIET, rights.as_ref().is_some_and(|rights| rights.is_quiet));
        session.listener = listener;
        session.problem_information = asked.problem_information;
        session.window = asked.receive_maximum.min(options.inflight_max);
        session.packet_bytes_max = asked.packet_bytes_max;
        session.expiry_s = agreed.session_expiry_s;
        session.asked_to_stay = asked.session_expiry_s.is_some_and(|seconds| seconds > 0);
        // [MQTT-3.1.2-27]
        let aliases = asked.topic_alias_max.min(options.topic_alias_out_max);
        if let Some(extras) = &mut session.extras {
            // [MQTT-3.1.3-9]: the client is back before the will delay has passed.
            extras.will_at = None;
            extras.ends_at = None;
        }
        // A CONNECT without a will removes an earlier will [MQTT-3.1.2-7] [3.1.1:MQTT-3.1.2-12].
        let session = sessions.get(id);
        let will = packet.will.as_ref().map(|will| Box::new(SessionWill::of(session, will)));
        sessions.set_will(id, will);
        let aliases = (aliases > 0).then(|| Box::new(OutboundAliases::new(aliases)));
        sessions.set_aliases(id, aliases);
        sessions.set_permissions(id, rights);
        sessions.set_meter(id, RateMeter::of_writes(options));
        let expires = sessions.get(id).expires();
        let silence_ms_max = u32::from(agreed.keep_alive_s) * 1500;
        let now = sessions.context.now;
        if let Some(known) = self.conn_mut(conn) {
            known.state = ConnState::Live { session: id };
            known.meter = RateMeter::of_reads(options);
            known.receive_maximum = options.receive_maximum;
            known.packet_bytes_max = options.packet_bytes_max;
            known.version = packet.version;
            known.is_bridge = packet.is_bridge;
            known.exchange = agreed.exchange.clone().map(Box::new);
            known.silence_ms_max = silence_ms_max;
            if packet.version == ProtocolVersion::V5 {
                known.topic_alias_max = options.topic_alias_max;
            }
            let silent_at = Some(MonotonicMs(now.0 + u64::from(silence_ms_max)));
            let silent_at = silent_at.filter(|_| silence_ms_max > 0);
            if let Some(due) = silent_at.into_iter().chain(expires).min()
                && due < known.timer_at
            {
                known.timer_at = due;
                let timer = ShardTimer::Conn { index: conn.0, generation: known.generation };
                sessions.context.timers.set(due, timer);
            }
        }
    }
}

/// Replaces the topic of the will by `name`, the result of a topic rewrite.
fn set_will_topic<'a>(will: Option<&mut mqtt::Will<'a>>, name: Option<&'a str>) {
    if let (Some(will), Some(name)) = (will, name) {
        will.topic = name;
    }
}

/// Returns the protocol level, the byte after the protocol name, of a CONNECT that could not be
/// decoded; 0 if the body is too short.
fn protocol_level(body: &[u8]) -> u8 {
    let name_len = match body {
        [high, low, ..] => usize::from(u16::from_be_bytes([*high, *low])),
        _ => 0,
    };
    body.get(2 + name_len).copied().unwrap_or(0)
}

/// Answers a CONNECT with a CONNACK that carries the reason code and, within `packet_bytes_max`,
/// the reason as text.
pub(crate) fn refuse_connect(
    conn: ConnId,
    version: ProtocolVersion,
    reason: ReasonCode,
    what: &str,
    packet_bytes_max: u32,
    out: &mut Outbox,
) {
    // [3.1.1:MQTT-3.2.2-6]
    if version != ProtocolVersion::V5 && reason.connack_v3().is_none() {
        return;
    }
    let bytes = encode_with_reason(Some(what), packet_bytes_max, |properties, bytes| {
        let ack = ConnAck { session_present: false, reason, properties };
        Packet::ConnAck(ack).encode(version, bytes);
    });
    let mut slot = NONE;
    out.write(conn, &mut slot).own.extend_from_slice(&bytes);
}
