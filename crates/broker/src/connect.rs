//! CONNECT: who is let in, where it is at home, and how its session begins or goes on.

use crate::agreed::{Agreed, Asked, welcoming};
use crate::alias::AliasesOut;
use crate::conn::{End, Moved, State};
use crate::exchange::Step;
use crate::explain::explained;
use crate::gate::Gate;
use crate::input::{ConnId, Now, SessionId, ShardId};
use crate::limits::{LINK_IDS, NONE};
use crate::memory::SMALL;
use crate::meter::Meter;
use crate::mount::{self, Admitted};
use crate::note::Note;
use crate::outbox::{Effect, Outbox};
use crate::peer::ListenerId;
use crate::refusal::Refusal;
use crate::rights::Rights;
use crate::shard::Shard;
use crate::timer::Timer;
use crate::will::Will;
use mqtt::{ConnAck, Connect, Frame, Packet, Reason, Version, Violation};

impl Shard {
    /// The first packet of a connection. What the specification asks of a client is all that we
    /// ask [MQTT-7.0.0-2].
    pub(crate) fn connect(
        &mut self,
        conn: ConnId,
        frame: Frame<'_>,
        out: &mut Outbox,
    ) -> Result<Moved, End> {
        if frame.packet_type() != mqtt::PacketType::Connect as u8 {
            return Err(Violation::ConnectExpected.into());
        }
        // [MQTT-3.1.4-1]
        let mut packet = Connect::decode(frame)
            .map_err(|violation| self.refuse_unknown(conn, frame, violation, out))?;
        if self.is_tracing() {
            self.trace_from_here(conn, packet.client_id, packet.version);
        }
        let asked = Asked::new(packet.properties);
        let admitted = self.check_claimed(conn, &packet, out);
        let admitted = admitted.and_then(|()| self.admit(conn, &packet, &asked));
        if admitted.is_ok() && self.judges_at(conn) && self.decided(conn).is_none() {
            self.inquire(conn, &packet, Step::first(packet.properties), out);
            return Ok(Moved::Nowhere);
        }
        let admitted = admitted.and_then(|one| self.obey(conn, &packet, one, out));
        let agreed = admitted.and_then(|one| Ok((self.agree(conn, &packet, &asked, &one)?, one)));
        let (agreed, Admitted { client_id, key }) = match agreed {
            Ok(agreed) => agreed,
            Err(refusal) => return Err(self.refuse(conn, &packet, &asked, refusal, out)),
        };
        // A client without an id is at home wherever chance sends it.
        let home = match packet.client_id {
            "" if !self.is_renamed(conn) => ShardId((self.draw() % self.shards as u64) as u8),
            _ => self.home_of(&key),
        };
        if home != self.id
            && self.conn(conn).is_some_and(|known| !known.moved)
            && let Some(known) = self.take_conn(conn)
        {
            self.trace_no_more(conn);
            out.effects.push(Effect::Move { conn, shard: home, peer: known.peer });
            return Ok(Moved::Away);
        }
        if self.is_tracing() && packet.client_id.is_empty() {
            self.trace_from_here(conn, &client_id, packet.version);
        }
        let placed = self.check_place(&packet, &agreed, &key);
        let renamed = match placed.and_then(|()| self.renamed_will(conn, &client_id, &packet)) {
            Ok(renamed) => renamed,
            Err(refusal) => return Err(self.refuse(conn, &packet, &asked, refusal, out)),
        };
        rename(packet.will.as_mut(), renamed.as_deref());
        if let Some(will) = &packet.will
            && self.asks
            && self.waits_for_will(conn, &client_id, will, out)
        {
            return Ok(Moved::Nowhere);
        }
        let answered = self.answered_of_will(conn);
        let mut rights = self.take_rights(conn);
        if let Some(will) = &packet.will
            && let Err(refusal) =
                self.permit_will(answered, rights.as_deref_mut(), &client_id, will)
        {
            return Err(self.refuse(conn, &packet, &asked, refusal, out));
        }
        if let Err(refusal) = self.take_place(conn, &key, rights.as_deref_mut()) {
            return Err(self.refuse(conn, &packet, &asked, refusal, out));
        }
        self.welcome(conn, &packet, &asked, &agreed, &key, rights, out);
        Ok(Moved::Here)
    }

    /// Whether there is room for this client.
    fn check_place(
        &self,
        packet: &Connect<'_>,
        agreed: &Agreed,
        client_id: &str,
    ) -> Result<(), Refusal> {
        if !self.has_memory_for(packet, client_id) {
            return Err(Refusal::QuotaExceeded);
        }
        let is_new = self.sessions.find(client_id).is_none();
        match self.store_is_full && agreed.session_expiry_s > 0 && is_new {
            true => Err(Refusal::StoreFull),
            false => Ok(()),
        }
    }

    /// Whether a tight memory has room for this client: a session that is there already costs
    /// nothing, and its client may take from us what waits for it.
    fn has_memory_for(&self, packet: &Connect<'_>, client_id: &str) -> bool {
        let will = packet.will.as_ref();
        let small = will.is_none_or(|will| {
            will.topic.len() + will.payload.len() + will.properties.as_bytes().len() <= SMALL
        });
        !self.sessions.is_tight() || (small && self.sessions.find(client_id).is_some())
    }

    /// CONNACK with why not [MQTT-4.12.0-4].
    fn refuse(
        &mut self,
        conn: ConnId,
        packet: &Connect<'_>,
        asked: &Asked<'_>,
        refusal: Refusal,
        out: &mut Outbox,
    ) -> End {
        self.sessions.counters.connections_refused += 1;
        self.ear.refused = Some((packet.client_id.into(), packet.user_name.map(Into::into)));
        let said = (refusal.reason(), refusal.what());
        self.refuse_connect(conn, packet.version, said, asked.packet_bytes_max, out);
        refusal.into()
    }

    /// The client id to go on with, or why not [MQTT-3.1.4-2].
    fn admit(
        &mut self,
        conn: ConnId,
        packet: &Connect<'_>,
        asked: &Asked<'_>,
    ) -> Result<Admitted, Refusal> {
        if self.draining {
            return Err(Refusal::Draining);
        }
        let listener = self.conn(conn).map_or(ListenerId::NONE, |known| known.peer.listener);
        // [MQTT-4.12.0-1]
        if asked.method.is_some_and(|method| !self.options.knows_method(listener, method)) {
            return Err(Refusal::AuthMethodUnsupported);
        }
        let namespace = match self.decided(conn) {
            None if self.judges_at(conn) => "".into(),
            Some(Err(_)) => "".into(),
            _ => self.namespace_at(conn)?,
        };
        if let Some(will) = &packet.will {
            // [MQTT-3.2.2-12] [MQTT-3.2.2-13]
            if will.qos as u8 > self.limits_at(conn).qos_max {
                return Err(Refusal::QoSUnsupported);
            }
            if will.retain && !self.options.retain_available {
                return Err(Refusal::RetainUnsupported);
            }
            self.limits_at(conn).permit_topic(will.topic)?;
            mount::permit(mount::len(&namespace), will.topic)?;
        }
        if !packet.client_id.is_empty() {
            // [MQTT-3.1.3-5]: any text up to the option's length.
            if packet.client_id.len() > usize::from(self.options.client_id_bytes_max) {
                return Err(Refusal::ClientIdTooLong); // [3.1.1:MQTT-3.1.3-9]
            }
            self.check_reserved(conn, packet.client_id)?;
            return Ok(Admitted::new(&namespace, packet.client_id.into()));
        }
        // [MQTT-3.1.3-6] [MQTT-3.1.3-8] [3.1.1:MQTT-3.1.3-7] [3.1.1:MQTT-3.1.3-8]: 3.1 has no
        // assigned ids, and 3.1.1 cannot say which one a session got that is to be kept.
        match packet.version {
            Version::V31 => Err(Refusal::ClientIdMissing),
            Version::V311 if !packet.clean_start => Err(Refusal::ClientIdMissing),
            // A verdict may bring another one.
            Version::V311 | Version::V5 if self.judges_at(conn) => Ok(Admitted::new("", "".into())),
            Version::V311 | Version::V5 => {
                Ok(Admitted::new(&namespace, self.assign_client_id(&namespace)))
            }
        }
    }

    /// Whether a connection's CONNECT waits for a verdict.
    pub(crate) fn judges_at(&self, conn: ConnId) -> bool {
        let listener = self.conn(conn).map_or(ListenerId::NONE, |known| known.peer.listener);
        self.options.judges_at(listener)
    }

    /// Sessions of links are nobody else's to take.
    pub(crate) fn check_reserved(&self, conn: ConnId, client_id: &str) -> Result<(), Refusal> {
        let is_own = self.conn(conn).is_some_and(|known| known.peer.is_own());
        match client_id.starts_with(LINK_IDS) && !is_own {
            true => Err(Refusal::ClientIdReserved),
            false => Ok(()),
        }
    }

    /// Unique, and at home on this shard.
    pub(crate) fn assign_client_id(&mut self, namespace: &str) -> Box<str> {
        loop {
            let client_id = format!("godwit-{:016x}{:08x}", self.draw(), self.draw() as u32);
            let key = mount::key(namespace, &client_id);
            if self.home_of(&key) == self.id && self.sessions.find(&key).is_none() {
                return client_id.into();
            }
        }
    }

    /// A protocol level that we do not speak is told so, in the words of the nearest one that we
    /// do [MQTT-3.1.2-2] [3.1.1:MQTT-3.1.2-2]. Anything else wrong with a CONNECT of 3.x just
    /// closes [3.1.1:MQTT-3.1.4-1].
    fn refuse_unknown(
        &mut self,
        conn: ConnId,
        frame: Frame<'_>,
        violation: Violation,
        out: &mut Outbox,
    ) -> End {
        if self.is_tracing() {
            self.trace_from_here(conn, "", Version::V5);
        }
        let (level, said) = (protocol_level(frame.body), (violation.reason(), violation.what()));
        if violation == Violation::ProtocolVersionUnknown {
            let version = if level > 5 { Version::V5 } else { Version::V311 };
            self.refuse_connect(conn, version, said, u32::MAX, out);
        } else if level == 5 {
            self.refuse_connect(conn, Version::V5, said, u32::MAX, out);
        }
        violation.into()
    }

    pub(crate) fn refuse_connect(
        &mut self,
        conn: ConnId,
        version: Version,
        (reason, what): (Reason, &str),
        packet_bytes_max: u32,
        out: &mut Outbox,
    ) {
        // [3.1.1:MQTT-3.2.2-6]
        if version != Version::V5 && reason.connack_v3().is_none() {
            return;
        }
        let bytes = explained(Some(what), packet_bytes_max, |properties, bytes| {
            let ack = ConnAck { session_present: false, reason, properties };
            Packet::ConnAck(ack).encode(version, bytes);
        });
        let mut slot = NONE;
        out.write(conn, &mut slot).own.extend_from_slice(&bytes);
    }

    #[expect(clippy::too_many_arguments, reason = "what was agreed on, piece by piece")]
    fn welcome(
        &mut self,
        conn: ConnId,
        packet: &Connect<'_>,
        asked: &Asked<'_>,
        agreed: &Agreed,
        client_id: &str,
        rights: Option<Box<Rights>>,
        out: &mut Outbox,
    ) {
        let peer = self.conn(conn).map(|known| known.peer.address);
        let Some(peer) = peer else { return };
        // [MQTT-3.1.3-2]
        let mut kept = self.sessions.find(client_id);
        if let Some(old) = kept {
            self.take_over(old, peer, out);
            // Its session may have ended with its connection.
            kept = self.sessions.find(client_id);
        }
        // [MQTT-3.1.2-4] [MQTT-3.1.4-4] [3.1.1:MQTT-3.1.2-6]
        let is_stranger = |old| self.is_of_another(old, rights.as_deref());
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
        self.begin(conn, id, packet, asked, agreed, rights);
        self.make_lasting(id);
        let max = self.limits_at(conn).keep_alive_s_max;
        let keeps_own_keep_alive =
            max > 0 && (agreed.keep_alive_s == 0 || agreed.keep_alive_s > max);
        out.notes.push(Note::Connected {
            client_id: client_id.into(),
            conn,
            peer,
            version: packet.version,
            session_present: present,
            keep_alive_s: agreed.keep_alive_s,
            keeps_own_keep_alive,
        });
        // The first packet, before whatever waits, and the only one of its kind [MQTT-3.1.4-5]
        // [MQTT-3.2.0-1] [MQTT-3.2.0-2].
        let mut bytes = Vec::with_capacity(64);
        welcoming(packet.version, present, agreed).encode(packet.version, &mut bytes);
        match !present && self.has_forgotten(client_id) {
            true => self.welcome_when_kept(conn, id, bytes, out),
            false => {
                self.sessions.reply(id, &bytes, out);
                self.subscribe_for(id, out);
            }
        }
        // What an earlier connection subscribed to this one may not have.
        if present && self.options.permissions_at(self.sessions.get(id).listener).is_some() {
            self.doubt(id, out);
        }
        self.announce(id, true, out);
        if let Some(flight) = &mut self.sessions.get_mut(id).flight {
            flight.forget_seen();
        }
        self.resume_when_kept(conn, id);
        self.sessions.flow(id, out);
        if self.sessions.get(id).is_member {
            self.sessions.rooms.push(id);
        }
    }

    /// The session takes this connection and what was agreed on.
    fn begin(
        &mut self,
        conn: ConnId,
        id: SessionId,
        packet: &Connect<'_>,
        asked: &Asked<'_>,
        agreed: &Agreed,
        rights: Option<Box<Rights>>,
    ) {
        let Some(listener) = self.conn(conn).map(|known| known.peer.listener) else { return };
        let all = self.options.clone();
        let class = rights.as_ref().and_then(|rights| rights.class);
        let options = all.of_client(listener, class);
        self.sessions.online += 1;
        self.sessions.counters.connections_accepted += 1;
        let session = self.sessions.get_mut(id);
        session.conn = conn.0;
        session.version = packet.version;
        session.gate = Gate::default();
        session.gate.set(Gate::QUIET, rights.as_ref().is_some_and(|rights| rights.is_quiet));
        session.listener = listener;
        session.problem_information = asked.problem_information;
        session.window = asked.receive_maximum.min(options.inflight_max);
        session.packet_bytes_max = asked.packet_bytes_max;
        session.expiry_s = agreed.session_expiry_s;
        session.asked_to_stay = asked.session_expiry_s.is_some_and(|seconds| seconds > 0);
        // [MQTT-3.1.2-27]
        let aliases = asked.topic_alias_max.min(options.topic_alias_out_max);
        if let Some(rare) = &mut session.rare {
            // [MQTT-3.1.3-9]: back before the delay was over.
            rare.will_at = None;
            rare.ends_at = None;
        }
        // A CONNECT without a will leaves none [MQTT-3.1.2-7] [3.1.1:MQTT-3.1.2-12].
        let session = self.sessions.get(id);
        let will = packet.will.as_ref().map(|will| Box::new(Will::of(session, will)));
        self.sessions.set_will(id, will);
        let aliases = (aliases > 0).then(|| Box::new(AliasesOut::new(aliases)));
        self.sessions.set_aliases(id, aliases);
        self.sessions.set_rights(id, rights);
        self.sessions.set_meter(id, Meter::outward(options));
        let expires = self.sessions.get(id).expires();
        let silence_ms_max = u32::from(agreed.keep_alive_s) * 1500;
        let now = self.now;
        if let Some(known) = self.conn_mut(conn) {
            known.state = State::Live { session: id };
            known.meter = Meter::inward(options);
            known.receive_maximum = options.receive_maximum;
            known.packet_bytes_max = options.packet_bytes_max;
            known.version = packet.version;
            known.is_bridge = packet.is_bridge;
            known.exchange = agreed.exchange.clone().map(Box::new);
            known.silence_ms_max = silence_ms_max;
            if packet.version == Version::V5 {
                known.topic_alias_max = options.topic_alias_max;
            }
            let silent_at = Some(Now(now.0 + u64::from(silence_ms_max)));
            let silent_at = silent_at.filter(|_| silence_ms_max > 0);
            if let Some(due) = silent_at.into_iter().chain(expires).min()
                && due < known.timer_at
            {
                known.timer_at = due;
                let timer = Timer::Conn { index: conn.0, generation: known.generation };
                self.timers.set(due, timer);
            }
        }
    }
}

/// From here on it is as if the client had said that name.
fn rename<'a>(will: Option<&mut mqtt::Will<'a>>, name: Option<&'a str>) {
    if let (Some(will), Some(name)) = (will, name) {
        will.topic = name;
    }
}

/// The level byte that follows the protocol name, in a CONNECT that could not be decoded.
fn protocol_level(body: &[u8]) -> u8 {
    let name_len = match body {
        [high, low, ..] => usize::from(u16::from_be_bytes([*high, *low])),
        _ => 0,
    };
    body.get(2 + name_len).copied().unwrap_or(0)
}
