//! CONNECT: admission of a client, authentication, the choice of the shard that owns the client id,
//! and the start or resumption of the session.

use crate::broker_event::BrokerEvent;
use crate::connection::conn::{ConnState, ConnectOutcome};
use crate::connection::connect::{ConnectTerms, protocol_level, refuse_connect, with_will_topic};
use crate::connection::negotiation::{ConnectProperties, NegotiatedOptions, accepting_connack};
use crate::ids::{ConnId, MonotonicMs, SessionId, ShardId};
use crate::interface::outbox::{Effect, Outbox};
use crate::message::namespace::NamespacedClientId;
use crate::options::bans::BanSubject;
use crate::peer::PeerAddress;
use crate::peer::authentication::{AuthDecision, AuthOutcome, AuthStep, Principal};
use crate::permissions::client_permissions::ClientPermissions;
use crate::refusal::{CloseReason, Refusal};
use crate::shard::Shard;
use crate::timer::ShardTimer;
use mqtt::{Connect, PacketFrame, ProtocolVersion, ReasonCode, Violation};

impl Shard {
    /// Whether an accepted connection from this address is refused by a ban. If so, counts the
    /// connection.
    pub fn refuse_banned_address(
        &mut self,
        now: MonotonicMs,
        address: PeerAddress,
        out: &mut Outbox,
    ) -> bool {
        if self.sessions.context.options.bans.is_none() {
            return false;
        }
        self.sessions.context.now = now;
        let Some((_, reason)) = self.authorization.find_ban(
            BanSubject { address: address.ip(), ..BanSubject::default() },
            &self.sessions,
        ) else {
            return false;
        };
        let why = if reason.is_empty() { "the address is banned" } else { &*reason };
        self.authorization.count_turned_away(
            address,
            &format!("{why} (bans.file)"),
            &mut self.sessions,
            out,
        );
        true
    }

    /// Counts a connection refused at accept, by `AdmissionControl`.
    pub fn note_refused_connection(
        &mut self,
        now: MonotonicMs,
        peer: PeerAddress,
        refusal: Refusal,
        out: &mut Outbox,
    ) {
        self.sessions.context.now = now;
        let option = refusal.options().map(|options| format!(" ({options})"));
        let why = format!("{}{}", refusal.description(), option.unwrap_or_default());
        self.authorization.count_turned_away(peer, &why, &mut self.sessions, out);
    }

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
        let packet = Connect::decode(frame)
            .map_err(|violation| self.refuse_undecodable(conn, frame, violation, out))?;
        self.trace_connect(conn, packet.client_id, packet.version);
        let asked = ConnectProperties::new(packet.properties);
        self.admit_connect(conn, &packet, &asked, out).map_err(|refusal| {
            let Shard { rule_engine, sessions, .. } = self;
            rule_engine.refuse_client(conn, &packet, &asked, refusal, sessions, out)
        })
    }

    /// Starts a trace if traces are on and the client is among the traced ones.
    fn trace_connect(&mut self, conn: ConnId, client_id: &str, version: ProtocolVersion) {
        let Shard { statistics, connections, sessions, .. } = self;
        if sessions.context.is_tracing() {
            statistics.start_trace(conn, client_id, version, connections, sessions);
        }
    }

    /// Checks the client by bans, limits and authentication, negotiates the options, and moves the
    /// connection to the shard that owns the client id.
    fn admit_connect(
        &mut self,
        conn: ConnId,
        packet: &Connect<'_>,
        asked: &ConnectProperties<'_>,
        out: &mut Outbox,
    ) -> Result<ConnectOutcome, Refusal> {
        let Shard { connections, authorization, sessions, .. } = self;
        authorization.check_connect_bans(conn, packet, connections, sessions, out)?;
        let admitted = connections.check_connect(conn, packet, asked, sessions)?;
        if connections.authenticates_at(conn, sessions) && connections.auth_decision(conn).is_none()
        {
            let step = AuthStep::of_connect(packet.properties);
            connections.request_authentication(conn, packet, step, sessions, out);
            return Ok(ConnectOutcome::Pending);
        }
        let named = authorization.apply_auth_decision(
            conn,
            packet,
            admitted,
            connections,
            sessions,
            out,
        )?;
        let agreed = connections.negotiate_options(conn, packet, asked, &named, sessions)?;
        // The client id of such a client is assigned later, so any shard may own the session.
        let home = match packet.client_id {
            "" if !connections.has_other_client_id(conn) => sessions.context.random_shard(),
            _ => sessions.context.owner_of(&named.key),
        };
        if self.move_home(conn, home, out) {
            return Ok(ConnectOutcome::OtherShard);
        }
        if packet.client_id.is_empty() {
            self.trace_connect(conn, &named.client_id, packet.version);
        }
        self.enter_connect(conn, packet, asked, &agreed, &named, out)
    }

    /// Checks room, will and client group on the shard that owns the client id, then accepts the
    /// client.
    fn enter_connect(
        &mut self,
        conn: ConnId,
        packet: &Connect<'_>,
        asked: &ConnectProperties<'_>,
        agreed: &NegotiatedOptions,
        named: &NamespacedClientId,
        out: &mut Outbox,
    ) -> Result<ConnectOutcome, Refusal> {
        let Shard { connections, authorization, sessions, .. } = self;
        let NamespacedClientId { client_id, key } = named;
        sessions.check_session_room(packet, agreed.session_expiry_s, key)?;
        let renamed = connections.rewrite_will_topic(conn, client_id, packet, sessions)?;
        let packet = with_will_topic(packet, renamed.as_deref());
        if let Some(will) = &packet.will
            && authorization.uses_authz
            && authorization.hold_for_will_authz(conn, client_id, will, connections, sessions, out)
        {
            return Ok(ConnectOutcome::Pending);
        }
        let answered = connections.will_decision(conn);
        let mut rights = connections.take_permissions(conn, sessions);
        if let Some(will) = &packet.will {
            sessions.authorize_will(answered, rights.as_deref_mut(), client_id, will)?;
        }
        connections.join_client_group(conn, key, rights.as_deref_mut(), sessions)?;
        let terms = ConnectTerms { packet: &packet, asked, agreed };
        self.accept_connect(conn, &terms, key, rights, out);
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
        self.trace_connect(conn, "", ProtocolVersion::V5);
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
    fn accept_connect(
        &mut self,
        conn: ConnId,
        terms: &ConnectTerms<'_>,
        client_id: &str,
        rights: Option<Box<ClientPermissions>>,
        out: &mut Outbox,
    ) {
        let ConnectTerms { packet, agreed, .. } = *terms;
        let peer = self.connections.conn(conn).map(|known| known.peer.address);
        let Some(peer) = peer else { return };
        let kept =
            self.find_kept_session(packet.clean_start, client_id, peer, rights.as_deref(), out);
        // [MQTT-3.2.2-2] [MQTT-3.2.2-3]
        let present = kept.is_some();
        let id = match kept {
            Some(id) => id,                                          // [MQTT-3.1.2-5]
            None => self.sessions.create(client_id, packet.version), // [MQTT-3.1.2-6]
        };
        self.connections.begin_session(conn, id, terms, rights, &mut self.sessions);
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

    /// Ends an older connection of the client id, and returns the session if the client resumes it.
    fn find_kept_session(
        &mut self,
        clean_start: bool,
        client_id: &str,
        peer: PeerAddress,
        rights: Option<&ClientPermissions>,
        out: &mut Outbox,
    ) -> Option<SessionId> {
        // [MQTT-3.1.3-2]
        if let Some(old) = self.sessions.find(client_id) {
            self.take_over(old, peer, out);
        }
        // The takeover may have ended the session as well.
        let kept = self.sessions.find(client_id)?;
        // [MQTT-3.1.2-4] [MQTT-3.1.4-4] [3.1.1:MQTT-3.1.2-6]
        if clean_start || self.sessions.belongs_to_other_user(kept, rights) {
            self.end_session(kept, false, out);
            return None;
        }
        Some(kept)
    }

    /// Handles the backend's decision. A decision for an earlier generation of the connection, or
    /// after the deadline, has no effect.
    pub(crate) fn on_auth_decision(
        &mut self,
        conn: ConnId,
        case: u32,
        verdict: AuthDecision,
        out: &mut Outbox,
    ) {
        let now = self.sessions.context.now;
        let Some(known) = self.connections.conn_mut(conn) else { return };
        if known.generation != case {
            return;
        }
        if !matches!(known.state, ConnState::Authenticating | ConnState::Challenged) {
            return self.on_reauthentication(conn, verdict, out);
        }
        let decided = match verdict {
            AuthDecision::Challenge { data, memory } => {
                match self.connections.send_challenge(conn, &data, memory, &mut self.sessions, out)
                {
                    Ok(()) => return,
                    Err(refusal) => Err(refusal),
                }
            }
            AuthDecision::Allow(principal) => Ok(principal),
            AuthDecision::Deny(refusal) => Err(refusal),
        };
        let Some(known) = self.connections.conn_mut(conn) else { return };
        let expires = decided.as_ref().ok().and_then(|principal| principal.expires_in_ms);
        let answers = known.exchange.as_ref().map_or(0, |exchange| exchange.auth_packets());
        let expires = expires.map(|ms| MonotonicMs(now.0.saturating_add(ms)));
        known.peer.set_auth_outcome(AuthOutcome {
            decision: decided,
            expires,
            auth_packets: answers,
        });
        known.state = ConnState::AwaitingConnect;
        out.effects.push(Effect::Resume { conn });
    }

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
        let mut rights = self.connections.take_permissions(conn, &self.sessions);
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
