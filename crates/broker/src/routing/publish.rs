//! From a checked PUBLISH to retained messages, shards, filters and groups.

use crate::counters::DropReason;
use crate::ids::{FilterId, RetainStamp, SessionId, ShardId};
use crate::interface::cache_message::CacheReplyTarget;
use crate::interface::input::ShardMessage;
use crate::interface::outbox::Outbox;
use crate::limits::NONE;
use crate::message::{Durability, IncomingPublish, Message, NO_EXPIRY};
use crate::refusal::Refusal;
use crate::routing::ShardRouting;
use crate::routing::topics::FilterSubscriber;
use crate::session::deliver::Delivery;
use crate::session::session_table::SessionTable;
use crate::session::subscriptions::packed_ids;
use mqtt::{Properties, PropertiesBuf, Property, Publish, QoS};

/// Properties of a PUBLISH which the broker evaluates.
pub(crate) struct PublishProperties {
    pub(crate) alias: Option<u16>,
    pub(crate) expiry_s: u32,
    pub(crate) is_text: bool,
    /// Whether the namespace makes the Response Topic longer than MQTT allows.
    pub(crate) is_too_long: bool,
    /// Whether `ScratchBuffers::properties` holds the forwarded properties; else all are.
    pub(crate) filtered: bool,
}

impl ShardRouting {
    /// Refuses with 0x97 if the retained messages or the store have no room for the message.
    #[inline]
    pub(crate) fn check_publish_room(
        &mut self,
        topic: &str,
        packet: &Publish<'_>,
        sessions: &SessionTable,
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
        sessions: &SessionTable,
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
        sessions: &SessionTable,
    ) -> bool {
        let keeps = draft.durability != Durability::Memory;
        let retains = draft.retain && !draft.payload.is_empty();
        keeps
            && (retains
                || (draft.qos != QoS::AtMostOnce
                    && self.has_persistent_subscriber(draft.topic, sessions)))
    }

    /// Whether a persistent session subscribes to the topic, or may do so on another shard.
    fn has_persistent_subscriber(&mut self, topic: &str, sessions: &SessionTable) -> bool {
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
        &self,
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
                match &self.topics.filter(filter).subscribers[..] {
                    [one] => deliver_to_one(one, from, true, draft, sessions, out),
                    all => deliver_to_all(all, from, draft, sessions, out),
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
                if !takes(sessions, subscriber) {
                    continue;
                }
                let hit = Delivery {
                    session: subscriber.session,
                    options: subscriber.options,
                    ids: packed_ids::NONE,
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

    /// Publishes a value of the tree as a retained message.
    pub(crate) fn publish_sys_value(
        &mut self,
        topic: &str,
        value: &str,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) {
        let mut draft = IncomingPublish::new(topic, value.as_bytes(), sessions.context.now);
        draft.retain = true;
        self.retain_message(&mut draft, sessions, out);
        self.route_message(None, &mut draft, sessions, out);
    }

    /// Publishes a response as a message of the client. Rules and caches do not receive the
    /// response, and the response is not stored.
    pub(crate) fn publish_cache_reply(
        &mut self,
        id: SessionId,
        to: &CacheReplyTarget,
        own: &[(&str, &str)],
        kept: Option<&IncomingPublish<'_>>,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) {
        let mut properties = PropertiesBuf::default();
        if let Some(correlation) = &to.correlation {
            properties.push(Property::CorrelationData(correlation));
        }
        for (name, value) in own {
            properties.push(Property::UserProperty(name, value));
        }
        let theirs = Properties::trusted(kept.map_or(&[][..], |kept| kept.properties));
        for property in theirs.iter() {
            match property {
                // The response has the request's Correlation Data.
                Property::ResponseTopic(_) | Property::CorrelationData(_) => {}
                // Only the broker sets properties of this name.
                Property::UserProperty(name, _) if name.starts_with("cache_") => {}
                other => {
                    properties.push(other);
                }
            }
        }
        let mut draft = IncomingPublish::new(
            &to.topic,
            kept.map_or(&[], |kept| kept.payload),
            sessions.context.now,
        );
        draft.properties = properties.as_properties().as_bytes();
        draft.qos = to.qos;
        if let Some(kept) = kept.filter(|kept| kept.expiry_s != NO_EXPIRY) {
            // The remaining Message Expiry Interval [MQTT-3.3.2-6].
            let waited_s = sessions.context.now.0.saturating_sub(kept.at.0) / 1000;
            draft.expiry_s = kept.expiry_s.saturating_sub(waited_s as u32);
        }
        if self.interest.has_groups() {
            draft.publisher = sessions.publisher_hash(id);
        }
        self.route_message(None, &mut draft, sessions, out);
    }
}

/// Whether the acknowledgement must wait until all receivers' records are on the disk.
pub(crate) fn needs_durable_ack(draft: &IncomingPublish<'_>) -> bool {
    draft.durability == Durability::Sync && draft.qos != QoS::AtMostOnce
}

/// Delivers to the subscribers of one filter. A function of its own, so that the loop over many
/// subscribers has its registers for itself.
#[inline(never)]
fn deliver_to_all(
    subscribers: &[FilterSubscriber],
    from: SessionId,
    draft: &mut IncomingPublish<'_>,
    sessions: &mut SessionTable,
    out: &mut Outbox,
) {
    for subscriber in subscribers {
        deliver_to_one(subscriber, from, false, draft, sessions, out);
    }
}

/// Delivers to a subscriber, but not to the publisher with No Local. `alone` is set for the only
/// subscriber.
#[inline(always)]
fn deliver_to_one(
    subscriber: &FilterSubscriber,
    from: SessionId,
    alone: bool,
    draft: &mut IncomingPublish<'_>,
    sessions: &mut SessionTable,
    out: &mut Outbox,
) {
    // [MQTT-3.8.3-3]
    if subscriber.options.no_local() && subscriber.session == from {
        return;
    }
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
