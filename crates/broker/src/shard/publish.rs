//! PUBLISH: the order of the checks, the rules, and the way to caches, retained messages and
//! subscribers.

use crate::durability::records;
use crate::ids::{ConnId, MonotonicMs, SessionId};
use crate::interface::cache_message::{
    CacheQuery, CacheReplyTarget, CacheRequest, CacheRequestError, ParsedCacheRequest,
};
use crate::interface::outbox::Outbox;
use crate::interface::store_access::RecordSpace;
use crate::limits::{CACHE_READS_MAX, DUE_PER_TICK};
use crate::message::will::DelayedMessage;
use crate::message::{Durability, IncomingPublish, NO_EXPIRY};
use crate::refusal::{CloseReason, Refusal};
use crate::routing::bridge_path::{BRIDGE_PATH, hop_name};
use crate::routing::publish::{PublishProperties, needs_durable_ack};
use crate::rules::RuleOutcome;
use crate::shard::Shard;
use crate::special_topics::CACHE_PREFIX;
use mqtt::{Property, Publish, QoS, ReasonCode, Violation};

impl Shard {
    /// Writes a path to `ScratchBuffers::properties` if a 3.1.1 bridge publishes, and returns
    /// whether it did. A message of 3.1.1 has no properties of its own.
    #[inline(never)]
    pub(crate) fn write_bridge_path(&mut self, conn: ConnId, id: SessionId) -> bool {
        let is_bridge = self.connections.conn(conn).is_some_and(|known| known.is_bridge);
        if is_bridge {
            let path = format!("{}@0", hop_name(&self.sessions.get(id).client_id));
            let properties = &mut self.routing.scratch.properties;
            properties.clear();
            Property::UserProperty(BRIDGE_PATH, &path).encode(properties);
        }
        is_bridge
    }

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
        let Shard { connections, sessions, .. } = self;
        let aliased = connections.resolve_alias(conn, &packet, said.alias, sessions)?;
        let topic = aliased.as_deref().unwrap_or(packet.topic);
        sessions.check_capabilities(id, &packet)?;
        if packet.qos == QoS::ExactlyOnce
            && connections.is_duplicate(conn, id, &packet, sessions)?
        {
            let reason = ReasonCode::Success;
            connections.send_receipt(conn, &packet, reason, false, sessions, out);
            return Ok(());
        }
        self.update_memory_pressure();
        if topic.starts_with(CACHE_PREFIX) && !self.sessions.context.is_plain_topic(topic) {
            return self.request_from_cache(conn, id, &packet, topic, out);
        }
        let accepted = self.accept_publish(id, topic, &packet, &said, out);
        let Shard { connections, sessions, .. } = self;
        match accepted {
            Ok(matched) => {
                connections.acknowledge_publish(conn, id, &packet, matched, sessions, out);
                Ok(())
            }
            Err(refusal) => connections.refuse_publish(conn, id, &packet, refusal, sessions, out),
        }
    }

    /// Checks what may refuse a PUBLISH, then routes or delays the message. Returns whether a
    /// subscriber or a rule matched.
    #[inline]
    fn accept_publish(
        &mut self,
        id: SessionId,
        topic: &str,
        packet: &Publish<'_>,
        said: &PublishProperties,
        out: &mut Outbox,
    ) -> Result<bool, Refusal> {
        let Shard { connections, authorization, routing, sessions, .. } = self;
        let resolved;
        let (topic, delay_s) = match sessions.context.is_plain_topic(topic) {
            true => (topic, 0),
            false => {
                resolved = connections.resolve_topic(id, topic, sessions)?;
                (&*resolved.topic, resolved.delay_s)
            }
        };
        authorization.authorize_publish(id, topic, packet, said, sessions, out)?;
        // From here on the topic includes the namespace.
        let mut name = std::mem::take(&mut routing.scratch.name);
        let topic = sessions.get(id).add_prefix_in(topic, &mut name);
        routing.check_publish_room(topic, packet, sessions)?;
        let properties = std::mem::take(&mut routing.scratch.properties);
        let mut draft = IncomingPublish::new(topic, packet.payload, sessions.context.now);
        draft.properties = if said.filtered { &properties } else { packet.properties.as_bytes() };
        draft.qos = packet.qos;
        draft.retain = packet.retain;
        draft.expiry_s = said.expiry_s.min(sessions.context.options.message_expiry_s_max);
        // Only shared groups use the hash. The group may belong to another shard.
        if routing.interest.has_groups() {
            draft.publisher = sessions.publisher_hash(id);
        }
        draft.durability = sessions.durability_of(topic);
        draft.exactly_once = packet.qos == QoS::ExactlyOnce
            && needs_durable_ack(&draft)
            && sessions.waits_for_store(id);
        sessions.write_batch.stores_routed = false;
        sessions.durability.pending_acks.clear_requests();
        let matched = match delay_s {
            0 => Ok(self.apply_rules_and_route(id, &mut draft, packet.dup, out)),
            _ => self.delay_message(id, &mut draft, delay_s).map(|()| true),
        };
        if matches!(matched, Ok(false)) {
            self.sessions.on_message_dropped(id, &mut draft, "no_subscribers");
        }
        (self.routing.scratch.properties, self.routing.scratch.name) = (properties, name);
        matched
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

    /// Stores a message to publish after `delay_s` seconds. Refuses with `DelayedFull` beyond the
    /// bounds of messages or bytes, of the process or of one client.
    pub(crate) fn delay_message(
        &mut self,
        id: SessionId,
        draft: &mut IncomingPublish<'_>,
        delay_s: u32,
    ) -> Result<(), Refusal> {
        let due = MonotonicMs(self.sessions.context.now.0 + u64::from(delay_s) * 1000);
        draft.at = due;
        let message = draft.message().clone();
        let mut one = DelayedMessage {
            by: self.connections.delayed_publisher(id, &self.sessions),
            message,
            key: None,
        };
        let is_kept = draft.durability != Durability::Memory && draft.qos != QoS::AtMostOnce;
        if is_kept && self.sessions.durability.store_is_full {
            return Err(Refusal::StoreFull);
        }
        let bytes = one.bytes();
        let options = &self.sessions.context.options;
        let most = (u64::from(options.delayed_messages_max), options.delayed_bytes_max);
        if self.sessions.would_elevate_pressure(bytes) {
            return Err(Refusal::QuotaExceeded);
        }
        let has_part =
            self.routing.delayed.has_room_for(&one, most, options.delayed_client_percent_max);
        if !has_part || !self.sessions.ledger.add_delayed(bytes, most) {
            return Err(Refusal::DelayedFull);
        }
        if is_kept {
            one.key = Some(self.sessions.write_delayed(&one, draft.durability));
        }
        self.routing.delayed.put(due, one);
        self.routing.set_delayed_timer(&mut self.sessions);
        Ok(())
    }

    /// Publishes due messages, at most `DUE_PER_TICK` and while the outbox has room.
    pub(crate) fn publish_due(&mut self, out: &mut Outbox) {
        let mut room = DUE_PER_TICK;
        while room > 0
            && !out.is_full()
            && let Some(one) = self.routing.delayed.take_due(self.sessions.context.now)
        {
            room -= 1;
            self.sessions.ledger.remove_delayed(one.bytes());
            self.publish_delayed(&one, out);
        }
        self.routing.set_delayed_timer(&mut self.sessions);
    }

    /// Publishes a message and removes its record in the same batch, so that a power cut leaves
    /// either the record or the published message.
    fn publish_delayed(&mut self, one: &DelayedMessage, out: &mut Outbox) {
        if let Some(key) = one.key {
            let key = records::delayed_key(key.0, key.1);
            self.sessions.write_batch.push_change(RecordSpace::Sessions, key, None);
        }
        let mut draft = one.message.view().draft();
        // The Message Expiry Interval starts at publication.
        draft.at = self.sessions.context.now;
        draft.retain = draft.retain
            && self.sessions.context.options.retain_available
            && self.routing.has_room_to_retain(draft.topic, &self.sessions);
        draft.durability = self.sessions.durability_of(draft.topic);
        draft.exactly_once = needs_durable_ack(&draft);
        let mut ruled =
            self.rule_engine.run_delayed_rules(&one.by, &draft, &mut self.sessions, out);
        ruled.exactly_once = draft.exactly_once;
        // [MQTT-3.8.3-3]: No Local applies if the publisher's session is on this shard.
        let from = self.sessions.find(&one.by.client_id);
        self.retain_and_route(&ruled, from, &mut draft, out);
        self.publish_outputs(ruled, out);
    }

    /// Applies the rules to a message, stores and routes it, then publishes the rules' outputs.
    /// Returns whether a subscriber or a rule matched.
    #[inline]
    pub(crate) fn apply_rules_and_route(
        &mut self,
        id: SessionId,
        draft: &mut IncomingPublish<'_>,
        is_dup: bool,
        out: &mut Outbox,
    ) -> bool {
        let ruled = match self.rule_engine.rule_index.is_empty() {
            true => RuleOutcome::default(),
            false => self.rule_engine.run_message_rules(
                id,
                draft,
                is_dup,
                &self.connections,
                &mut self.sessions,
                out,
            ),
        };
        let matched = self.retain_and_route(&ruled, Some(id), draft, out) | ruled.passed;
        if ruled.has_outputs() {
            let once = draft.qos == QoS::ExactlyOnce && self.sessions.waits_for_store(id);
            self.publish_outputs(RuleOutcome { exactly_once: once, ..ruled }, out);
        }
        matched
    }

    /// Stores in caches, retains and routes a message, unless `drops_message` is set. Returns
    /// whether a filter matched.
    #[inline]
    pub(crate) fn retain_and_route(
        &mut self,
        ruled: &RuleOutcome,
        from: Option<SessionId>,
        draft: &mut IncomingPublish<'_>,
        out: &mut Outbox,
    ) -> bool {
        if ruled.drops_message {
            return false;
        }
        if !self.sessions.context.options.caches.is_empty() {
            self.caches.store_in_caches(draft, &mut self.sessions, out);
        }
        // [MQTT-3.3.1-8]
        if draft.retain {
            self.routing.retain_message(draft, &mut self.sessions, out);
        }
        self.routing.route_message(from, draft, &mut self.sessions, out)
    }

    /// Handles a PUBLISH to `$cache/`: acknowledges the packet first, then sends the request to the
    /// cache's owner.
    pub(crate) fn request_from_cache(
        &mut self,
        conn: ConnId,
        id: SessionId,
        packet: &Publish<'_>,
        topic: &str,
        out: &mut Outbox,
    ) -> Result<(), CloseReason> {
        self.sessions.write_batch.stores_routed = false;
        self.sessions.durability.pending_acks.clear_requests();
        let to = match self.authorization.reply_target_of(
            id,
            packet,
            &self.connections,
            &mut self.sessions,
            out,
        ) {
            Ok(to) => to,
            Err(refusal) => {
                return self.connections.refuse_publish(
                    conn,
                    id,
                    packet,
                    refusal,
                    &mut self.sessions,
                    out,
                );
            }
        };
        match self.parse_cache_request(id, packet, topic, &to, out) {
            Ok(read) => {
                self.connections.acknowledge_publish(
                    conn,
                    id,
                    packet,
                    true,
                    &mut self.sessions,
                    out,
                );
                self.caches.send_cache_request(read, &mut self.routing, &mut self.sessions, out);
            }
            Err(CacheRequestError { refusal, why }) => {
                self.connections.refuse_publish(
                    conn,
                    id,
                    packet,
                    refusal,
                    &mut self.sessions,
                    out,
                )?;
                self.routing.publish_cache_reply(
                    id,
                    &to,
                    &[("cache_error", &why)],
                    None,
                    &mut self.sessions,
                    out,
                );
            }
        }
        Ok(())
    }

    fn parse_cache_request(
        &mut self,
        id: SessionId,
        packet: &Publish<'_>,
        topic: &str,
        to: &CacheReplyTarget,
        out: &mut Outbox,
    ) -> Result<Box<CacheRequest>, CacheRequestError> {
        let request = ParsedCacheRequest::parse(topic, packet.payload)?;
        let caches = &self.sessions.context.options.caches;
        let cache = caches.iter().find(|cache| *cache.name == *request.cache);
        let cache = cache.ok_or(Refusal::CacheUnknown)?.name.clone();
        let filter =
            self.connections.rewrite_filter(id, &request.filter, &self.sessions)?.into_owned();
        let listener = self.sessions.get(id).listener;
        if self.sessions.context.options.permissions_at(listener).is_some() {
            self.authorization.may_subscribe(
                id,
                &filter,
                packet.qos as u8,
                &mut self.sessions,
                out,
            )?;
        }
        if self.caches.unanswered >= CACHE_READS_MAX || self.sessions.is_pressure_high() {
            return Err(Refusal::QuotaExceeded.into());
        }
        let session = self.sessions.get(id);
        let known = |name: &str| -> Box<str> { session.add_prefix(name).into() };
        let wanted = CacheQuery {
            filter: known(&filter),
            prefix_len: session.prefix_len,
            messages_max: request.messages_max.unwrap_or(u32::MAX),
            after_ms: request.after_ms,
            before_ms: request.before_ms,
            from: request.next.map(|(number, topic)| (number, known(&topic))),
        };
        Ok(Box::new(CacheRequest {
            cache,
            asker: self.sessions.session_ref(id),
            wanted,
            to: to.clone(),
        }))
    }
}
