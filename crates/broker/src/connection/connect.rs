//! Checks of CONNECT by the limits of its listener, and `begin_session`, which attaches a
//! connection to its session.

use crate::connection::conn::ConnState;
use crate::connection::connection_table::ConnectionTable;
use crate::connection::negotiation::{ConnectProperties, NegotiatedOptions};
use crate::ids::{ConnId, ListenerId, MonotonicMs, SessionId};
use crate::interface::outbox::Outbox;
use crate::limits::{LINK_IDS, NONE};
use crate::message::namespace::{self, NamespacedClientId};
use crate::message::will::SessionWill;
use crate::permissions::client_permissions::ClientPermissions;
use crate::reason_string::encode_with_reason;
use crate::refusal::Refusal;
use crate::session::alias::OutboundAliases;
use crate::session::rate_meter::RateMeter;
use crate::session::send_gate::SendGate;
use crate::session::session_table::SessionTable;
use crate::timer::ShardTimer;
use mqtt::{ConnAck, Connect, Packet, ProtocolVersion, ReasonCode, Will};

/// The CONNECT of a client, its decoded properties, and the options that the broker agreed to.
#[derive(Clone, Copy)]
pub(crate) struct ConnectTerms<'a> {
    pub(crate) packet: &'a Connect<'a>,
    pub(crate) asked: &'a ConnectProperties<'a>,
    pub(crate) agreed: &'a NegotiatedOptions,
}

impl ConnectionTable {
    /// Checks a CONNECT against the limits of the listener before any authentication. Returns the
    /// namespaced client id, or the refusal for the CONNACK [MQTT-3.1.4-2].
    pub(crate) fn check_connect(
        &self,
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
    pub(crate) fn begin_session(
        &mut self,
        conn: ConnId,
        id: SessionId,
        terms: &ConnectTerms<'_>,
        rights: Option<Box<ClientPermissions>>,
        sessions: &mut SessionTable,
    ) {
        let ConnectTerms { packet, asked, agreed } = *terms;
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

/// Returns the CONNECT with `name`, the result of a topic rewrite, as the topic of its will.
pub(crate) fn with_will_topic<'a>(packet: &Connect<'a>, name: Option<&'a str>) -> Connect<'a> {
    let will = packet.will.map(|will| Will { topic: name.unwrap_or(will.topic), ..will });
    Connect { will, ..*packet }
}

/// Returns the protocol level, the byte after the protocol name, of a CONNECT that could not be
/// decoded; 0 if the body is too short.
pub(crate) fn protocol_level(body: &[u8]) -> u8 {
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
