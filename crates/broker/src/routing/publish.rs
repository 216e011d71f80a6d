//! From a PUBLISH to a message. `publish` performs every check which can refuse the packet, in
//! order; `client_permissions`, `topic_resolution`, `delayed` and `caches` contain those of theirs.

use crate::authorization::ShardAuthorization;
use crate::caches;
use crate::connection::conn::CloseReason;
use crate::connection::connection_table::ConnectionTable;
use crate::connection::reason_string::encode_with_reason;
use crate::connection::refusal::Refusal;
use crate::input::{ConnId, RetainStamp, SessionId, ShardId, ShardMessage};
use crate::limits::NONE;
use crate::memory::SMALL_BYTES_MAX;
use crate::options::Durability;
use crate::outbox::Outbox;
use crate::routing::ShardRouting;
use crate::routing::message::{IncomingPublish, Message, NO_EXPIRY};
use crate::routing::namespace;
use crate::routing::topics::{FilterId, FilterSubscriber};
use crate::session::delivery::Delivery;
use crate::session::session_table::{SessionTable, ids};
use crate::shard::Shard;
use crate::statistics::sys::DropReason;
use mqtt::{
    PacketType, Property, ProtocolVersion, Publish, PublishAck, QoS, ReasonCode, Violation,
};

/// Properties of a PUBLISH which the broker evaluates.
struct PublishProperties {
    alias: Option<u16>,
    expiry_s: u32,
    is_text: bool,
    /// Whether the namespace makes the Response Topic longer than MQTT allows.
    is_too_long: bool,
    /// Whether `ScratchBuffers::properties` holds the forwarded properties; else all are.
    filtered: bool,
}

impl Shard {
    /// Checks a PUBLISH, routes or delays the message and answers. An error ends the connection.
    pub(crate) fn publish(
        &mut self,
        conn: ConnId,
        id: SessionId,
        packet: Publish<'_>,
        out: &mut Outbox,
    ) -> Result<(), CloseReason> {
        self.sessions.counters.publish_received += 1;
        self.sessions.counters.publish_bytes_received += packet.payload.len() as u64;
        let said = self.read_properties(conn, id, &packet)?;
        let aliased =
            self.connections.resolve_alias(conn, &packet, said.alias, &mut self.sessions)?;
        let topic = aliased.as_deref().unwrap_or(packet.topic);
        self.sessions.check_capabilities(id, &packet)?;
        if packet.qos == QoS::ExactlyOnce
            && self.connections.is_duplicate(conn, id, &packet, &mut self.sessions)?
        {
            self.connections.send_receipt(
                conn,
                &packet,
                ReasonCode::Success,
                false,
                &mut self.sessions,
                out,
            );
            return Ok(());
        }
        self.update_memory_pressure();
        let coming;
        let (topic, delay_s) = match self.sessions.context.is_plain_topic(topic) {
            true => (topic, 0),
            false if topic.starts_with(caches::PREFIX) => {
                return self.request_from_cache(conn, id, &packet, topic, out);
            }
            false => {
                coming = self.connections.resolve_topic(id, topic, &self.sessions);
                match &coming {
                    Ok(coming) => (&*coming.topic, coming.delay_s),
                    Err(refusal) => {
                        return self.connections.refuse_publish(
                            conn,
                            id,
                            &packet,
                            *refusal,
                            &mut self.sessions,
                            out,
                        );
                    }
                }
            }
        };
        if let Err(refusal) =
            self.authorization.authorize_publish(id, topic, &packet, &said, &mut self.sessions, out)
        {
            return self.connections.refuse_publish(
                conn,
                id,
                &packet,
                refusal,
                &mut self.sessions,
                out,
            );
        }
        // From here on the topic includes the namespace.
        let mut name = std::mem::take(&mut self.routing.scratch.name);
        let topic = self.sessions.get(id).add_prefix_in(topic, &mut name);
        if let Err(refusal) = self.routing.check_publish_room(topic, &packet, &mut self.sessions) {
            return self.connections.refuse_publish(
                conn,
                id,
                &packet,
                refusal,
                &mut self.sessions,
                out,
            );
        }
        let properties = std::mem::take(&mut self.routing.scratch.properties);
        let mut draft = IncomingPublish::new(topic, packet.payload, self.sessions.context.now);
        draft.properties = if said.filtered { &properties } else { packet.properties.as_bytes() };
        draft.qos = packet.qos;
        draft.retain = packet.retain;
        draft.expiry_s = said.expiry_s.min(self.sessions.context.options.message_expiry_s_max);
        // Only shared groups use the hash. The group may belong to another shard.
        if self.routing.interest.has_groups() {
            draft.publisher = self.sessions.publisher_hash(id);
        }
        draft.durability = self.sessions.durability_of(topic);
        draft.exactly_once = packet.qos == QoS::ExactlyOnce
            && needs_durable_ack(&draft)
            && self.sessions.waits_for_store(id);
        self.sessions.write_batch.stores_routed = false;
        self.sessions.durability.pending_acks.requested.clear();
        let matched = match delay_s {
            0 => Ok(self.apply_rules_and_route(id, &mut draft, packet.dup, out)),
            _ => self.delay_message(id, &mut draft, delay_s).map(|()| true),
        };
        if matches!(matched, Ok(false)) {
            self.sessions.on_message_dropped(id, &mut draft, "no_subscribers");
        }
        (self.routing.scratch.properties, self.routing.scratch.name) = (properties, name);
        match matched {
            Ok(matched) => self.connections.acknowledge_publish(
                conn,
                id,
                &packet,
                matched,
                &mut self.sessions,
                out,
            ),
            Err(refusal) => {
                return self.connections.refuse_publish(
                    conn,
                    id,
                    &packet,
                    refusal,
                    &mut self.sessions,
                    out,
                );
            }
        }
        Ok(())
    }

    #[inline]
    fn read_properties(
        &mut self,
        conn: ConnId,
        id: SessionId,
        packet: &Publish<'_>,
    ) -> Result<PublishProperties, CloseReason> {
        let mut said = PublishProperties {
            alias: None,
            expiry_s: NO_EXPIRY,
            is_text: false,
            is_too_long: false,
            filtered: false,
        };
        if packet.properties.is_empty() {
            said.filtered = self.sessions.context.options.event_options.bridge_path
                && self.write_bridge_path(conn, id);
            return Ok(said);
        }
        let session = self.sessions.get(id);
        let forwarded = &mut self.routing.scratch.properties;
        forwarded.clear();
        for (property, bytes) in packet.properties.iter_with_bytes() {
            match property {
                Property::TopicAlias(alias) => said.alias = Some(alias),
                Property::MessageExpiryInterval(seconds) => said.expiry_s = seconds,
                // [MQTT-3.3.4-6]
                Property::SubscriptionIdentifier(_) => {
                    return Err(Violation::SubscriptionIdFromClient.into());
                }
                // [MQTT-3.3.2-4] [MQTT-3.3.2-15] [MQTT-3.3.2-16] [MQTT-3.3.2-17] [MQTT-3.3.2-18]
                // [MQTT-3.3.2-20]: the remaining properties are forwarded unaltered.
                other => {
                    said.is_text |= other == Property::PayloadFormatIndicator(1);
                    said.is_too_long |= !session.add_property_prefix(other, bytes, forwarded);
                }
            }
        }
        said.filtered = true;
        Ok(said)
    }

    /// Updates a held message before it is sent to another shard. A `Retain` which is no longer the
    /// newest of its topic becomes a `Publish`: it could arrive after the tombstone of a later
    /// clear.
    pub fn update_late_message(&self, cross: ShardMessage) -> ShardMessage {
        match cross {
            ShardMessage::Retain { message, stamp, ticket, origin }
                if !message.payload().is_empty()
                    && self.routing.retained.newest(message.topic()).map(|(at, _)| at)
                        != Some(stamp) =>
            {
                ShardMessage::Publish { message, ticket, origin }
            }
            cross => cross,
        }
    }
}

impl ConnectionTable {
    /// Acknowledges an accepted PUBLISH with Success or No Matching Subscribers.
    #[inline]
    pub(crate) fn acknowledge_publish(
        &mut self,
        conn: ConnId,
        id: SessionId,
        packet: &Publish<'_>,
        matched: bool,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) {
        // The message is routed, so the broker has taken over responsibility [MQTT-4.3.2-4]
        // [MQTT-4.3.3-8]. Packet ids of QoS 1 are free again at once [MQTT-4.3.2-5].
        if let (QoS::ExactlyOnce, Some(packet_id)) = (packet.qos, packet.packet_id) {
            sessions.get_mut(id).flight().received.insert(packet_id);
            sessions.write_received(id, packet_id);
        }
        let reason = if matched { ReasonCode::Success } else { ReasonCode::NoMatchingSubscribers };
        let asked = sessions.durability.await_requested_commits();
        let waits = sessions.write_batch.stores_routed || asked;
        self.send_receipt(conn, packet, reason, waits, sessions, out);
    }

    /// Whether a QoS 2 message is a duplicate: received and not yet released by PUBREL. The broker
    /// acknowledges duplicates and does not deliver them again [MQTT-4.3.3-10].
    fn is_duplicate(
        &mut self,
        conn: ConnId,
        id: SessionId,
        packet: &Publish<'_>,
        sessions: &mut SessionTable,
    ) -> Result<bool, CloseReason> {
        let Some(packet_id) = packet.packet_id else { return Ok(false) };
        let receive_maximum = self.conn(conn).map_or(u16::MAX, |known| known.receive_maximum);
        let session = sessions.get(id);
        let Some(flight) = &session.flight else { return Ok(false) };
        if flight.received.contains(packet_id) {
            return Ok(true);
        }
        // [MQTT-3.3.4-7]: 3.x has no Receive Maximum.
        if session.version == ProtocolVersion::V5
            && flight.received.len() >= usize::from(receive_maximum)
        {
            return Err(Violation::ReceiveMaximumExceeded.into());
        }
        Ok(false)
    }

    /// Counts the drop and answers with the reason, or ends the connection: see `Refusal`.
    #[cold]
    pub(crate) fn refuse_publish(
        &mut self,
        conn: ConnId,
        id: SessionId,
        packet: &Publish<'_>,
        refusal: Refusal,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) -> Result<(), CloseReason> {
        let drop = match refusal {
            Refusal::QuotaExceeded => DropReason::OutOfMemory,
            Refusal::StoreFull => DropReason::StoreFull,
            _ => DropReason::Refused,
        };
        sessions.counters.drops[drop as usize] += 1;
        sessions.on_publish_refused(id, packet, drop);
        let version = sessions.get(id).version;
        if packet.qos == QoS::AtMostOnce {
            return Ok(());
        }
        // [3.1.1:MQTT-4.8.0-2]
        if version != ProtocolVersion::V5 && !refusal.is_acknowledged_in_v3() {
            return Err(refusal.into());
        }
        // In 3.x a QoS 2 exchange continues with PUBREL. In 5.0 the exchange ends here, and the
        // packet id is free [MQTT-4.3.3-9].
        if version != ProtocolVersion::V5
            && let (QoS::ExactlyOnce, Some(packet_id)) = (packet.qos, packet.packet_id)
        {
            sessions.get_mut(id).flight().received.insert(packet_id);
        }
        self.send_refusal(conn, id, packet, refusal, sessions, out);
        Ok(())
    }

    /// Sends PUBACK or PUBREC, as the QoS requires [MQTT-3.3.4-1].
    #[inline]
    fn send_receipt(
        &mut self,
        conn: ConnId,
        packet: &Publish<'_>,
        reason: ReasonCode,
        waits: bool,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) {
        let Some(packet_id) = packet.packet_id else { return };
        let kind = match packet.qos {
            QoS::AtMostOnce => return,
            QoS::AtLeastOnce => PacketType::PubAck,
            QoS::ExactlyOnce => PacketType::PubRec,
        };
        self.acknowledge_when_durable(conn, kind, packet_id, reason, waits, sessions, out);
    }

    /// Refuses a PUBLISH, with a reason string if the client wants them.
    #[cold]
    fn send_refusal(
        &mut self,
        conn: ConnId,
        id: SessionId,
        packet: &Publish<'_>,
        refusal: Refusal,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) {
        let session = sessions.get(id);
        let Some(packet_id) = packet.packet_id.filter(|_| session.wants_reason_strings()) else {
            return self.send_receipt(conn, packet, refusal.reason(), false, sessions, out);
        };
        let two = packet.qos == QoS::ExactlyOnce;
        let kind = if two { PacketType::PubRec } else { PacketType::PubAck };
        let bytes = encode_with_reason(
            Some(refusal.description()),
            session.packet_bytes_max,
            |properties, to| {
                PublishAck { packet_id, reason: refusal.reason(), properties }.encode(
                    kind,
                    ProtocolVersion::V5,
                    to,
                );
            },
        );
        self.send_when_durable(conn, &bytes, false, sessions, out);
    }
}

impl SessionTable {
    /// Checks a PUBLISH against the capabilities announced in CONNACK [MQTT-3.2.2-11]
    /// [MQTT-3.2.2-14].
    #[inline]
    fn check_capabilities(&self, id: SessionId, packet: &Publish<'_>) -> Result<(), CloseReason> {
        // Without listeners that have options of their own, the session need not be read.
        let qos_max = match self.context.options.listeners.is_empty() {
            true => self.context.options.qos_max,
            false => self.context.options.options_of_session(self.get(id)).qos_max,
        };
        if packet.qos as u8 > qos_max {
            return Err(Refusal::QoSUnsupported.into());
        }
        if packet.retain && !self.context.options.retain_available {
            return Err(Refusal::RetainUnsupported.into());
        }
        Ok(())
    }
}

impl ShardAuthorization {
    /// Checks topic, payload format, memory and the client's permission, in this order.
    #[inline]
    fn authorize_publish(
        &mut self,
        id: SessionId,
        topic: &str,
        packet: &Publish<'_>,
        said: &PublishProperties,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) -> Result<(), Refusal> {
        let session = sessions.get(id);
        let options = sessions.context.options.options_of_session(session);
        options.check_topic(topic)?;
        namespace::check_name(usize::from(session.prefix_len), topic)?;
        if said.is_too_long {
            return Err(Refusal::TopicNameInvalid);
        }
        if said.is_text
            && options.check_payload_format
            && std::str::from_utf8(packet.payload).is_err()
        {
            return Err(Refusal::PayloadFormatInvalid);
        }
        // QoS 0 messages are not stored for connected readers, and are dropped elsewhere.
        let large = packet.payload.len() > SMALL_BYTES_MAX;
        if packet.qos != QoS::AtMostOnce
            && (sessions.is_pressure_critical() || (large && sessions.is_pressure_high()))
        {
            return Err(Refusal::QuotaExceeded);
        }
        let manner = (packet.qos as u8, packet.retain);
        let has_rules = sessions.context.options.permissions_at(session.listener).is_some();
        if has_rules && !self.may_publish(id, topic, manner, sessions, out) {
            return Err(Refusal::NotPermitted);
        }
        Ok(())
    }
}

impl ShardRouting {
    /// Refuses with 0x97 if the retained messages or the store have no room for the message.
    #[inline]
    fn check_publish_room(
        &mut self,
        topic: &str,
        packet: &Publish<'_>,
        sessions: &mut SessionTable,
    ) -> Result<(), Refusal> {
        if packet.retain && self.lacks_room_to_retain(topic, packet.payload, sessions) {
            return Err(Refusal::QuotaExceeded);
        }
        match sessions.durability.store_is_full && self.needs_store(topic, packet, sessions) {
            true => Err(Refusal::StoreFull),
            false => Ok(()),
        }
    }

    /// Whether a bound forbids to retain this message. A replacement of at most the same size is
    /// allowed. A clear is refused if it would only leave a tombstone under high memory pressure.
    #[cold]
    fn lacks_room_to_retain(&self, topic: &str, payload: &[u8], sessions: &SessionTable) -> bool {
        if payload.is_empty() {
            return sessions.is_pressure_high() && self.retained.get(topic).is_none();
        }
        let before = self.retained.get(topic).map_or(0, |old| old.payload().len());
        let more = payload.len().saturating_sub(before) as u64;
        self.retained_is_full(topic, sessions)
            || (more > 0 && sessions.would_elevate_pressure(more))
    }

    /// Whether the message needs a record in the store, which is full or backlogged.
    #[cold]
    pub(crate) fn needs_store(
        &mut self,
        topic: &str,
        packet: &Publish<'_>,
        sessions: &mut SessionTable,
    ) -> bool {
        if sessions.durability_of(topic) == Durability::Memory {
            return false;
        }
        if packet.retain {
            return !packet.payload.is_empty();
        }
        packet.qos != QoS::AtMostOnce && self.has_persistent_subscriber(topic, sessions)
    }

    /// Returns whether the output of a rule needs a record in the store.
    #[cold]
    pub(crate) fn rule_output_needs_store(
        &mut self,
        draft: &IncomingPublish<'_>,
        sessions: &mut SessionTable,
    ) -> bool {
        let keeps = draft.durability != Durability::Memory;
        let retains = draft.retain && !draft.payload.is_empty();
        keeps
            && (retains
                || (draft.qos != QoS::AtMostOnce
                    && self.has_persistent_subscriber(draft.topic, sessions)))
    }

    /// Whether a persistent session subscribes to the topic, or may do so on another shard.
    fn has_persistent_subscriber(&mut self, topic: &str, sessions: &mut SessionTable) -> bool {
        let shards =
            self.interest.interested_shards(topic, &mut Vec::new()) & !(1 << sessions.context.id.0);
        let elsewhere = (0..sessions.context.shards as u8)
            .any(|shard| shards >> shard & 1 == 1 && self.interest.has_persistent(shard));
        let mut filters = Vec::new();
        self.topics.matching(topic, &mut filters);
        let lasts = |session| sessions.get(session).persistent.is_some();
        elsewhere
            || filters.iter().map(|&filter| self.topics.filter(filter)).any(|filter| {
                filter.subscribers.iter().any(|subscriber| lasts(subscriber.session))
                    || filter.groups().iter().any(|&group| self.groups.is_persistent(group))
            })
    }

    /// Whether the limits allow to retain a delayed message, a will or a rule's output at `topic`.
    pub(crate) fn has_room_to_retain(&self, topic: &str, sessions: &SessionTable) -> bool {
        !self.retained_is_full(topic, sessions) && !sessions.is_pressure_elevated()
    }

    #[cold]
    fn retained_is_full(&self, topic: &str, sessions: &SessionTable) -> bool {
        let full = self.retained.messages >= sessions.context.options.retained_messages_max
            || self.retained.bytes >= sessions.context.options.retained_bytes_max;
        full && self.retained.get(topic).is_none()
    }

    /// Stores or clears the topic's retained message, here and on every other shard.
    pub(crate) fn retain_message(
        &mut self,
        draft: &mut IncomingPublish<'_>,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) {
        let stamp = self.retain_stamp.next(sessions.context.now, sessions.context.id);
        let message = draft.message().clone();
        let keeper = sessions.context.owner_of(draft.topic);
        let own = usize::from(sessions.context.id.0);
        // An exactly-once message has a record only for the topic's owner and for interested
        // shards.
        let wanting = if draft.exactly_once {
            self.interest.interested_shards(draft.topic, &mut Vec::new())
        } else {
            !0
        };
        for lane in (0..sessions.context.shards).filter(|&lane| lane != own) {
            let shard = ShardId(lane as u8);
            let wants = wanting >> lane & 1 == 1 && self.interest.has_persistent(shard.0);
            let asks = needs_durable_ack(draft) && (shard == keeper || wants);
            let (ticket, origin) = sessions.request_commit(shard, asks, draft, stamp);
            let message = message.clone();
            sessions.ledger.crossing += message.bytes() as i64;
            out.lanes[lane].push_back(ShardMessage::Retain { message, stamp, ticket, origin });
        }
        self.set_retained(&message, stamp, sessions.context.shards > 1, sessions);
    }

    /// Sets the retained message here and, if this shard owns the topic, in the store.
    pub(crate) fn set_retained(
        &mut self,
        message: &Message,
        stamp: RetainStamp,
        keeps_tombstone: bool,
        sessions: &mut SessionTable,
    ) {
        self.retain_stamp = self.retain_stamp.max(stamp);
        self.retained.set(message.clone(), stamp, sessions.context.now, keeps_tombstone);
        self.write_retained(message, stamp, sessions);
    }

    /// Routes to all shards. Returns whether a filter matched; `Interest` may have false hits.
    #[inline]
    pub(crate) fn route_message(
        &mut self,
        from: Option<SessionId>,
        draft: &mut IncomingPublish<'_>,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) -> bool {
        if sessions.context.shards == 1 {
            return self.route_here(from, draft, sessions, out);
        }
        let mut levels = std::mem::take(&mut self.scratch.levels);
        let shards = self.interest.interested_shards(draft.topic, &mut levels);
        self.scratch.levels = levels;
        let mut others = shards & !(1 << sessions.context.id.0);
        let matched =
            shards != others && self.route_here(from, draft, sessions, out) || others != 0;
        // `ShardMessage::Retain` went to every shard and stores and delivers in one step: a new
        // subscription there gets the message as retained or as live, and never misses it.
        while others != 0 && !draft.retain {
            let shard = others.trailing_zeros() as usize;
            others &= others - 1;
            self.forward_to_shard(shard, draft, sessions, out);
        }
        matched
    }

    /// Sends a message to another shard. The ledger counts the bytes in transit.
    fn forward_to_shard(
        &mut self,
        shard: usize,
        draft: &mut IncomingPublish<'_>,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) {
        if sessions.is_pressure_critical() {
            sessions.counters.drops[DropReason::OutOfMemory as usize] += 1;
            return;
        }
        let message = draft.message().clone();
        sessions.ledger.crossing += message.bytes() as i64;
        let id = ShardId(shard as u8);
        let asks = needs_durable_ack(draft) && self.interest.has_persistent(id.0);
        let (ticket, origin) = sessions.request_commit(id, asks, draft, RetainStamp::default());
        out.lanes[shard].push_back(ShardMessage::Publish { message, ticket, origin });
    }

    /// Delivers to this shard's subscribers with a matching filter, and to the shared groups which
    /// this shard owns [MQTT-4.5.0-1] [MQTT-3.3.2-3].
    #[inline]
    pub(crate) fn route_here(
        &mut self,
        from: Option<SessionId>,
        draft: &mut IncomingPublish<'_>,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) -> bool {
        let mut filters = std::mem::take(&mut self.scratch.filters);
        self.topics.matching(draft.topic, &mut filters);
        let from = from.unwrap_or(SessionId(NONE));
        // [MQTT-3.8.3-3]
        let takes = |subscriber: &FilterSubscriber| {
            !(subscriber.options.no_local() && subscriber.session == from)
        };
        match filters[..] {
            [] => {}
            [filter] if !sessions.event_queue.filter.wants_deliveries() => {
                let filter = self.topics.filter(filter);
                let alone = filter.subscribers.len() == 1;
                for subscriber in filter.subscribers.iter().filter(|one| takes(one)) {
                    let hit = Delivery {
                        session: subscriber.session,
                        options: subscriber.options,
                        ids: subscriber.id,
                        group: NONE,
                        from_retained: false,
                        alone,
                    };
                    sessions.deliver(hit, draft, out);
                }
            }
            _ => self.deliver_overlapping(&filters, |_, one| takes(one), draft, sessions, out),
        }
        if self.groups.any {
            self.dispatch_to_groups(&filters, draft, sessions, out);
        }
        let matched = !filters.is_empty();
        self.scratch.filters = filters;
        matched
    }

    /// Delivers for several matching filters: each session gets one copy, at the highest QoS
    /// granted and with all Subscription Identifiers [MQTT-3.3.4-2] [MQTT-3.3.4-3] [MQTT-3.3.4-4].
    pub(crate) fn deliver_overlapping(
        &mut self,
        filters: &[FilterId],
        takes: impl Fn(&SessionTable, &FilterSubscriber) -> bool,
        draft: &mut IncomingPublish<'_>,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) {
        let mut hits = std::mem::take(&mut self.scratch.hits);
        hits.clear();
        for &filter in filters {
            for subscriber in &self.topics.filter(filter).subscribers {
                if !takes(&sessions, subscriber) {
                    continue;
                }
                let hit = Delivery {
                    session: subscriber.session,
                    options: subscriber.options,
                    ids: ids::NONE,
                    group: NONE,
                    from_retained: false,
                    alone: false,
                };
                hits.push((hit, subscriber.id));
            }
        }
        hits.sort_unstable_by_key(|(hit, _)| hit.session);
        let alone = hits.len() == 1;
        for same in hits.chunk_by(|(one, _), (two, _)| one.session == two.session) {
            let mut hit = same[0].0;
            hit.options = same.iter().fold(hit.options, |all, (hit, _)| all.union(hit.options));
            hit.alone = alone;
            hit.ids = match same {
                [(_, id)] => *id,
                _ => {
                    let list: Vec<u32> =
                        same.iter().map(|&(_, id)| id).filter(|&id| id != 0).collect();
                    sessions.keep_ids(&list)
                }
            };
            sessions.deliver_with_events(hit, draft, out);
        }
        self.scratch.hits = hits;
    }
}

/// Whether the acknowledgement must wait until all receivers' records are on the disk.
pub(crate) fn needs_durable_ack(draft: &IncomingPublish<'_>) -> bool {
    draft.durability == Durability::Sync && draft.qos != QoS::AtMostOnce
}
