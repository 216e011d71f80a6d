//! A PUBLISH becomes a message. The order of the checks is the order of this file's first
//! function; everything that can refuse stands in it.

use crate::caches;
use crate::conn::End;
use crate::deliver::Hit;
use crate::explain::explained;
use crate::input::{ConnId, Cross, SessionId, ShardId, Stamp};
use crate::limits::NONE;
use crate::memory::SMALL;
use crate::message::{Draft, Message, NO_EXPIRY};
use crate::mount;
use crate::options::Durability;
use crate::outbox::Outbox;
use crate::refusal::Refusal;
use crate::session::{Sessions, ids};
use crate::shard::Shard;
use crate::sys::Drop;
use crate::topics::{FilterId, Subscriber};
use mqtt::{Ack, PacketType, Property, Publish, QoS, Reason, Version, Violation};

/// What the properties of one PUBLISH say, beside what is forwarded.
struct Said {
    alias: Option<u16>,
    expiry_s: u32,
    is_text: bool,
    /// Its namespace makes the Response Topic longer than a name may be.
    is_too_long: bool,
    /// Whether `Scratch::properties` holds the forwarded ones; else all of them are.
    filtered: bool,
}

impl Shard {
    pub(crate) fn publish(
        &mut self,
        conn: ConnId,
        id: SessionId,
        packet: Publish<'_>,
        out: &mut Outbox,
    ) -> Result<(), End> {
        self.sessions.counters.publish_received += 1;
        self.sessions.counters.publish_bytes_received += packet.payload.len() as u64;
        let said = self.read_properties(conn, id, &packet)?;
        let aliased = self.resolve_alias(conn, &packet, said.alias)?;
        let topic = aliased.as_deref().unwrap_or(packet.topic);
        self.check_ability(id, &packet)?;
        if packet.qos == QoS::ExactlyOnce && self.is_duplicate(conn, id, &packet)? {
            self.receipt(conn, &packet, Reason::Success, false, out);
            return Ok(());
        }
        self.weigh();
        let coming;
        let (topic, delay_s) = match self.is_plain(topic) {
            true => (topic, 0),
            false if topic.starts_with(caches::PREFIX) => {
                return self.ask_cache(conn, id, (&packet, topic), out);
            }
            false => {
                coming = self.coming(id, topic);
                match &coming {
                    Ok(coming) => (&*coming.topic, coming.delay_s),
                    Err(refusal) => return self.refuse_publish(conn, id, &packet, *refusal, out),
                }
            }
        };
        if let Err(refusal) = self.permit(id, topic, (&packet, &said), out) {
            return self.refuse_publish(conn, id, &packet, refusal, out);
        }
        // From here on it has its whole name.
        let mut name = std::mem::take(&mut self.scratch.name);
        let topic = self.sessions.get(id).mounted_in(topic, &mut name);
        if let Err(refusal) = self.has_place(topic, &packet) {
            return self.refuse_publish(conn, id, &packet, refusal, out);
        }
        let properties = std::mem::take(&mut self.scratch.properties);
        let mut draft = Draft::new(topic, packet.payload, self.now);
        draft.properties = if said.filtered { &properties } else { packet.properties.as_bytes() };
        draft.qos = packet.qos;
        draft.retain = packet.retain;
        draft.expiry_s = said.expiry_s.min(self.options.message_expiry_s_max);
        // Only groups ask, and one may belong to another shard.
        if self.interest.has_groups() {
            draft.publisher = self.publisher_hash(id);
        }
        draft.durability = self.durability_of(topic);
        draft.once = packet.qos == QoS::ExactlyOnce && awaited(&draft) && self.waits_for_store(id);
        self.sessions.journal.keeps = false;
        self.owed.asked.clear();
        let matched = match delay_s {
            0 => Ok(self.spread(id, &mut draft, packet.dup, out)),
            _ => self.put_off(id, &mut draft, delay_s).map(|()| true),
        };
        if matches!(matched, Ok(false)) {
            self.heed_dropped(id, &mut draft, "no_subscribers");
        }
        (self.scratch.properties, self.scratch.name) = (properties, name);
        match matched {
            Ok(matched) => self.answer_for(conn, id, &packet, matched, out),
            Err(refusal) => return self.refuse_publish(conn, id, &packet, refusal, out),
        }
        Ok(())
    }

    /// The message is taken: its publisher hears so.
    #[inline]
    pub(crate) fn answer_for(
        &mut self,
        conn: ConnId,
        id: SessionId,
        packet: &Publish<'_>,
        matched: bool,
        out: &mut Outbox,
    ) {
        // Whoever is to have it has it or will get it: now it is ours to answer for [MQTT-4.3.2-4]
        // [MQTT-4.3.3-8]. Ids of QoS 1 are free again at once [MQTT-4.3.2-5].
        if let (QoS::ExactlyOnce, Some(packet_id)) = (packet.qos, packet.packet_id) {
            self.sessions.get_mut(id).flight().received.insert(packet_id);
            self.sessions.write_received(id, packet_id);
        }
        let reason = if matched { Reason::Success } else { Reason::NoMatchingSubscribers };
        let asked = self.await_asked();
        let waits = self.sessions.journal.keeps || asked;
        self.receipt(conn, packet, reason, waits, out);
    }

    #[inline]
    fn read_properties(
        &mut self,
        conn: ConnId,
        id: SessionId,
        packet: &Publish<'_>,
    ) -> Result<Said, End> {
        let mut said = Said {
            alias: None,
            expiry_s: NO_EXPIRY,
            is_text: false,
            is_too_long: false,
            filtered: false,
        };
        if packet.properties.is_empty() {
            said.filtered = self.options.noted.bridged && self.mark_bridged(conn, id);
            return Ok(said);
        }
        let session = self.sessions.get(id);
        let forwarded = &mut self.scratch.properties;
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
                // [MQTT-3.3.2-20]: the rest travels as it came.
                other => {
                    said.is_text |= other == Property::PayloadFormatIndicator(1);
                    said.is_too_long |= !session.mount_property(other, bytes, forwarded);
                }
            }
        }
        said.filtered = true;
        Ok(said)
    }

    /// What we said in CONNACK that we cannot do [MQTT-3.2.2-11] [MQTT-3.2.2-14].
    #[inline]
    fn check_ability(&self, id: SessionId, packet: &Publish<'_>) -> Result<(), End> {
        // Where no listener has options of its own, the session need not be looked at.
        let qos_max = match self.options.listeners.is_empty() {
            true => self.options.qos_max,
            false => self.options.of_session(self.sessions.get(id)).qos_max,
        };
        if packet.qos as u8 > qos_max {
            return Err(Refusal::QoSUnsupported.into());
        }
        if packet.retain && !self.options.retain_available {
            return Err(Refusal::RetainUnsupported.into());
        }
        Ok(())
    }

    /// A QoS 2 message that we have already and the client has not released: answered again, not
    /// delivered again [MQTT-4.3.3-10].
    fn is_duplicate(
        &mut self,
        conn: ConnId,
        id: SessionId,
        packet: &Publish<'_>,
    ) -> Result<bool, End> {
        let Some(packet_id) = packet.packet_id else { return Ok(false) };
        let receive_maximum = self.conn(conn).map_or(u16::MAX, |known| known.receive_maximum);
        let session = self.sessions.get(id);
        let Some(flight) = &session.flight else { return Ok(false) };
        if flight.received.contains(packet_id) {
            return Ok(true);
        }
        // [MQTT-3.3.4-7]: 3.x clients know of no such maximum.
        if session.version == Version::V5 && flight.received.len() >= usize::from(receive_maximum) {
            return Err(Violation::ReceiveMaximumExceeded.into());
        }
        Ok(false)
    }

    /// What a client may not say, and what we have no room for.
    #[inline]
    fn permit(
        &mut self,
        id: SessionId,
        topic: &str,
        (packet, said): (&Publish<'_>, &Said),
        out: &mut Outbox,
    ) -> Result<(), Refusal> {
        let session = self.sessions.get(id);
        let options = self.options.of_session(session);
        options.permit_topic(topic)?;
        mount::permit(usize::from(session.mount), topic)?;
        if said.is_too_long {
            return Err(Refusal::TopicNameInvalid);
        }
        if said.is_text
            && options.check_payload_format
            && std::str::from_utf8(packet.payload).is_err()
        {
            return Err(Refusal::PayloadFormatInvalid);
        }
        // QoS 0 messages need no memory where somebody reads them, and where nobody does they are
        // dropped there.
        let large = packet.payload.len() > SMALL;
        if packet.qos != QoS::AtMostOnce
            && (self.sessions.is_full() || (large && self.sessions.is_tight()))
        {
            return Err(Refusal::QuotaExceeded);
        }
        let manner = (packet.qos as u8, packet.retain);
        let has_rules = self.options.permissions_at(session.listener).is_some();
        if has_rules && !self.may_publish(id, topic, manner, out) {
            return Err(Refusal::NotPermitted);
        }
        Ok(())
    }

    /// Whether there is room for what would be kept under a topic's name.
    #[inline]
    fn has_place(&mut self, topic: &str, packet: &Publish<'_>) -> Result<(), Refusal> {
        if packet.retain && self.has_no_place_to_retain(topic, packet.payload) {
            return Err(Refusal::QuotaExceeded);
        }
        match self.store_is_full && self.needs_store(topic, packet) {
            true => Err(Refusal::StoreFull),
            false => Ok(()),
        }
    }

    /// Whether a bound stands against retaining this message. One that takes the place of another
    /// of its size is let through, and so is a clear, unless it would only leave a tombstone.
    #[cold]
    fn has_no_place_to_retain(&self, topic: &str, payload: &[u8]) -> bool {
        if payload.is_empty() {
            return self.sessions.is_tight() && self.retained.get(topic).is_none();
        }
        let before = self.retained.get(topic).map_or(0, |old| old.payload().len());
        let more = payload.len().saturating_sub(before) as u64;
        self.retained_is_full(topic) || (more > 0 && self.sessions.is_crowded_by(more))
    }

    /// Whether the store, which is full or crowded, would have to take this message.
    #[cold]
    pub(crate) fn needs_store(&mut self, topic: &str, packet: &Publish<'_>) -> bool {
        if self.durability_of(topic) == Durability::Memory {
            return false;
        }
        if packet.retain {
            return !packet.payload.is_empty();
        }
        packet.qos != QoS::AtMostOnce && self.is_wanted_for_good(topic)
    }

    /// The same of what a rule made.
    #[cold]
    pub(crate) fn wants_store(&mut self, draft: &Draft<'_>) -> bool {
        let keeps = draft.durability != Durability::Memory;
        let retains = draft.retain && !draft.payload.is_empty();
        keeps && (retains || (draft.qos != QoS::AtMostOnce && self.is_wanted_for_good(draft.topic)))
    }

    /// Whether a session that outlives the process wants the topic, or may.
    fn is_wanted_for_good(&mut self, topic: &str) -> bool {
        let shards = self.interest.of(topic, &mut Vec::new()) & !(1 << self.id.0);
        let elsewhere = (0..self.shards as u8)
            .any(|shard| shards >> shard & 1 == 1 && self.interest.lasts(shard));
        let mut filters = Vec::new();
        self.topics.matching(topic, &mut filters);
        let lasts = |session| self.sessions.get(session).lasting.is_some();
        elsewhere
            || filters.iter().map(|&filter| self.topics.filter(filter)).any(|filter| {
                filter.subscribers.iter().any(|subscriber| lasts(subscriber.session))
                    || filter.groups().iter().any(|&group| self.groups.lasts(group))
            })
    }

    /// Whether a message that was taken long ago, or that nobody sent, may be retained yet.
    pub(crate) fn has_room_to_retain(&self, topic: &str) -> bool {
        !self.retained_is_full(topic) && !self.sessions.is_crowded()
    }

    #[cold]
    fn retained_is_full(&self, topic: &str) -> bool {
        let full = self.retained.messages >= self.options.retained_messages_max
            || self.retained.bytes >= self.options.retained_bytes_max;
        full && self.retained.get(topic).is_none()
    }

    /// The table of `refusal`.
    #[cold]
    pub(crate) fn refuse_publish(
        &mut self,
        conn: ConnId,
        id: SessionId,
        packet: &Publish<'_>,
        refusal: Refusal,
        out: &mut Outbox,
    ) -> Result<(), End> {
        let drop = match refusal {
            Refusal::QuotaExceeded => Drop::OutOfMemory,
            Refusal::StoreFull => Drop::StoreFull,
            _ => Drop::Refused,
        };
        self.sessions.counters.drops[drop as usize] += 1;
        self.heed_refused(id, packet, drop);
        let version = self.sessions.get(id).version;
        if packet.qos == QoS::AtMostOnce {
            return Ok(());
        }
        // [3.1.1:MQTT-4.8.0-2]
        if version != Version::V5 && !refusal.acknowledged_in_v3() {
            return Err(refusal.into());
        }
        // In 3.x a QoS 2 exchange goes on: PUBREL will come and be answered. In 5.0 it is over, and
        // the id is free [MQTT-4.3.3-9].
        if version != Version::V5
            && let (QoS::ExactlyOnce, Some(packet_id)) = (packet.qos, packet.packet_id)
        {
            self.sessions.get_mut(id).flight().received.insert(packet_id);
        }
        self.refused_receipt(conn, id, packet, refusal, out);
        Ok(())
    }

    /// PUBACK or PUBREC, as the QoS demands [MQTT-3.3.4-1].
    #[inline]
    fn receipt(
        &mut self,
        conn: ConnId,
        packet: &Publish<'_>,
        reason: Reason,
        waits: bool,
        out: &mut Outbox,
    ) {
        let Some(packet_id) = packet.packet_id else { return };
        let kind = match packet.qos {
            QoS::AtMostOnce => return,
            QoS::AtLeastOnce => PacketType::PubAck,
            QoS::ExactlyOnce => PacketType::PubRec,
        };
        self.acknowledge_when_kept(conn, (kind, packet_id, reason), waits, out);
    }

    /// The same with the reason in words.
    #[cold]
    fn refused_receipt(
        &mut self,
        conn: ConnId,
        id: SessionId,
        packet: &Publish<'_>,
        refusal: Refusal,
        out: &mut Outbox,
    ) {
        let session = self.sessions.get(id);
        let Some(packet_id) = packet.packet_id.filter(|_| session.is_explained_to()) else {
            return self.receipt(conn, packet, refusal.reason(), false, out);
        };
        let two = packet.qos == QoS::ExactlyOnce;
        let kind = if two { PacketType::PubRec } else { PacketType::PubAck };
        let bytes = explained(Some(refusal.what()), session.packet_bytes_max, |properties, to| {
            Ack { packet_id, reason: refusal.reason(), properties }.encode(kind, Version::V5, to);
        });
        self.answer(conn, &bytes, false, out);
    }

    /// Stores or clears the topic's retained message, here and on every other shard.
    pub(crate) fn retain(&mut self, draft: &mut Draft<'_>, out: &mut Outbox) {
        let stamp = self.stamp.next(self.now, self.id);
        let message = draft.message().clone();
        let keeper = self.home_of(draft.topic);
        let own = usize::from(self.id.0);
        // Of the others only those that want it need what is written for them.
        let wanting = if draft.once { self.interest.of(draft.topic, &mut Vec::new()) } else { !0 };
        for lane in (0..self.shards).filter(|&lane| lane != own) {
            let shard = ShardId(lane as u8);
            let wants = wanting >> lane & 1 == 1 && self.interest.lasts(shard.0);
            let asks = awaited(draft) && (shard == keeper || wants);
            let (ticket, origin) = self.entrust(shard, asks, draft, stamp);
            let message = message.clone();
            self.ledger.crossing += message.bytes() as i64;
            out.lanes[lane].push_back(Cross::Retain { message, stamp, ticket, origin });
        }
        self.set_retained(&message, stamp, self.shards > 1);
    }

    /// Here and, where the topic is at home, in the store, unless something later is here.
    pub(crate) fn set_retained(&mut self, message: &Message, stamp: Stamp, keeps_tombstone: bool) {
        self.stamp = self.stamp.max(stamp);
        self.retained.set(message.clone(), stamp, self.now, keeps_tombstone);
        self.write_retained(message, stamp);
    }

    /// Whether a word for another shard still says what it was to say. One that waited may come
    /// after the tombstone of a clear that it knows nothing of: a retained message that is not the
    /// topic's newest any more goes on to subscribers alone.
    pub fn say_late(&self, cross: Cross) -> Cross {
        match cross {
            Cross::Retain { message, stamp, ticket, origin }
                if !message.payload().is_empty()
                    && self.retained.newest(message.topic()).map(|(at, _)| at) != Some(stamp) =>
            {
                Cross::Publish { message, ticket, origin }
            }
            cross => cross,
        }
    }

    /// To everyone who wants it, on this shard and on the others. Says whether anyone may.
    #[inline]
    pub(crate) fn route(
        &mut self,
        from: Option<SessionId>,
        draft: &mut Draft<'_>,
        out: &mut Outbox,
    ) -> bool {
        if self.shards == 1 {
            return self.route_here(from, draft, out);
        }
        let mut levels = std::mem::take(&mut self.scratch.levels);
        let shards = self.interest.of(draft.topic, &mut levels);
        self.scratch.levels = levels;
        let mut others = shards & !(1 << self.id.0);
        let matched = shards != others && self.route_here(from, draft, out) || others != 0;
        // A retained message went to every shard already, to be stored and delivered at once:
        // a subscription over there sees it as the one or as the other, never as neither.
        while others != 0 && !draft.retain {
            let shard = others.trailing_zeros() as usize;
            others &= others - 1;
            self.forward(shard, draft, out);
        }
        matched
    }

    /// To another shard's subscribers. On its way a message takes memory too.
    fn forward(&mut self, shard: usize, draft: &mut Draft<'_>, out: &mut Outbox) {
        if self.sessions.is_full() {
            self.sessions.counters.drops[Drop::OutOfMemory as usize] += 1;
            return;
        }
        let message = draft.message().clone();
        self.ledger.crossing += message.bytes() as i64;
        let id = ShardId(shard as u8);
        let asks = awaited(draft) && self.interest.lasts(id.0);
        let (ticket, origin) = self.entrust(id, asks, draft, Stamp::default());
        out.lanes[shard].push_back(Cross::Publish { message, ticket, origin });
    }

    /// To this shard's subscribers, every one whose filter matches, and the shared groups that it
    /// owns [MQTT-4.5.0-1] [MQTT-3.3.2-3].
    #[inline]
    pub(crate) fn route_here(
        &mut self,
        from: Option<SessionId>,
        draft: &mut Draft<'_>,
        out: &mut Outbox,
    ) -> bool {
        let mut filters = std::mem::take(&mut self.scratch.filters);
        self.topics.matching(draft.topic, &mut filters);
        let from = from.unwrap_or(SessionId(NONE));
        // [MQTT-3.8.3-3]
        let takes = |subscriber: &Subscriber| {
            !(subscriber.options.no_local() && subscriber.session == from)
        };
        match filters[..] {
            [] => {}
            [filter] if !self.sessions.heard.heeds.watches() => {
                let filter = self.topics.filter(filter);
                let alone = filter.subscribers.len() == 1;
                for subscriber in filter.subscribers.iter().filter(|one| takes(one)) {
                    let hit = Hit {
                        session: subscriber.session,
                        options: subscriber.options,
                        ids: subscriber.id,
                        group: NONE,
                        from_retained: false,
                        alone,
                    };
                    self.sessions.deliver(hit, draft, out);
                }
            }
            _ => self.deliver_overlapping(&filters, |_, one| takes(one), draft, out),
        }
        if self.groups.any {
            self.dispatch_all(&filters, draft, out);
        }
        let matched = !filters.is_empty();
        self.scratch.filters = filters;
        matched
    }

    /// Several filters match: each session gets one copy, at the highest QoS granted and with all
    /// Subscription Identifiers [MQTT-3.3.4-2] [MQTT-3.3.4-3] [MQTT-3.3.4-4].
    pub(crate) fn deliver_overlapping(
        &mut self,
        filters: &[FilterId],
        takes: impl Fn(&Sessions, &Subscriber) -> bool,
        draft: &mut Draft<'_>,
        out: &mut Outbox,
    ) {
        let mut hits = std::mem::take(&mut self.scratch.hits);
        hits.clear();
        for &filter in filters {
            for subscriber in &self.topics.filter(filter).subscribers {
                if !takes(&self.sessions, subscriber) {
                    continue;
                }
                let hit = Hit {
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
                    self.sessions.keep_ids(&list)
                }
            };
            self.sessions.deliver_heeded(hit, draft, out);
        }
        self.scratch.hits = hits;
    }
}

/// Whether the publisher is to hear nothing before whoever keeps it has it on the disk.
pub(crate) fn awaited(draft: &Draft<'_>) -> bool {
    draft.durability == Durability::Sync && draft.qos != QoS::AtMostOnce
}
