//! Output of the load threads: requests, acknowledgements, due messages, and writes to sockets.

use super::client::{ClientState, LoadClient, PublishFlight};
use super::schedule::round_up_to_grid;
use super::thread::{LoadThread, STEPS_PER_TIME_CHECK};
use crate::limits::{SPARE_BYTES_MAX, SPARES_MAX, UNSENT_BYTES_MAX};
use crate::load_stats::{LatencySampler, LoadCounter, LoadFailure};
use crate::plan::{PublishPace, PublishPlan};
use crate::stamp::PayloadStamp;
use crate::template::TemplateValues;
use mqtt::property::{PropertiesBuf, Property};
use mqtt::{
    Connect, Disconnect, PacketId, PacketType, Properties, Publish, QoS, ReasonCode, Subscribe,
    SubscribeOptions, SubscriptionListBuf,
};
use std::sync::atomic::Ordering::SeqCst;

impl LoadThread {
    pub(super) fn send_connect(&mut self, at: u32) {
        let plan = std::sync::Arc::clone(&self.plan);
        self.clients[at as usize].state = ClientState::AwaitingConnAck;
        self.send(at, |client, out| {
            let group = &plan.groups[usize::from(client.group)];
            let mut rng = super::distribution::client_rng(&plan, client.index);
            let who = TemplateValues {
                number: client.number,
                topics: group.topics,
                client_id: &client.id,
                ..TemplateValues::default()
            };
            let user_name = group.user_name(&who, &mut rng);
            let mut properties = PropertiesBuf::default();
            if group.session_expiry_s > 0 {
                properties.push(Property::SessionExpiryInterval(group.session_expiry_s));
            }
            let connect = Connect {
                is_bridge: false,
                version: client.version,
                clean_start: group.clean_start,
                keep_alive_s: group.keep_alive_s,
                client_id: &client.id,
                will: None,
                user_name: user_name.as_deref(),
                password: group.password.as_deref().map(str::as_bytes),
                properties: properties.as_properties(),
            };
            connect.encode(client.version, out);
        });
    }

    pub(super) fn send_subscribe(&mut self, at: u32, now_ns: u64) {
        let client = &mut self.clients[at as usize];
        client.state = ClientState::Subscribing;
        client.requested_ns = now_ns;
        let qos = self.plan.groups[usize::from(client.group)].subscribe_qos;
        self.send(at, |client, out| {
            let mut filters = SubscriptionListBuf::default();
            let options = SubscribeOptions { qos, ..SubscribeOptions::default() };
            for filter in &client.filters {
                filters.push(filter, options);
            }
            let subscribe = Subscribe {
                packet_id: PacketId::MIN,
                properties: Properties::default(),
                filters: filters.as_subscriptions(),
            };
            subscribe.encode(client.version, out);
        });
    }

    pub(super) fn send_disconnect(&mut self, at: u32) {
        self.send(at, |client, out| {
            let reason = ReasonCode::NormalDisconnection;
            let properties = Properties::default();
            Disconnect { reason, properties }.encode(client.version, out);
        });
    }

    #[inline]
    pub(super) fn send_ack(&mut self, at: u32, kind: PacketType, packet_id: PacketId) {
        let [high, low] = packet_id.get().to_be_bytes();
        self.send(at, |_, out| out.extend_from_slice(&[kind.first_byte(), 2, high, low]));
    }

    /// Appends the output of `encode` to the client's buffer. Without a connection nothing is
    /// encoded.
    #[inline]
    pub(super) fn send(&mut self, at: u32, encode: impl FnOnce(&LoadClient, &mut Vec<u8>)) {
        let client = &mut self.clients[at as usize];
        if client.transport.is_none() {
            return;
        }
        let mut out = std::mem::take(&mut client.out);
        if out.capacity() == 0 {
            out = self.spares.pop().unwrap_or_default();
        }
        encode(client, &mut out);
        client.out = out;
        if !client.is_dirty {
            client.is_dirty = true;
            self.dirty.push(at);
        }
    }

    /// Publishes the messages that are due by `now`. Returns true if a closed loop has room left.
    pub(super) fn publish_due(&mut self, now: u64) -> bool {
        let until = self.shared.publish_until_ns.load(SeqCst);
        if now < self.shared.start_ns.load(SeqCst) {
            return false;
        }
        for group in 0..self.schedules.len() {
            // A message is sent when its point of the grid has passed.
            let by = now - now % crate::limits::GRID_NS;
            while let Some((at_ns, at)) = self.schedules[group].reschedule_due(by) {
                // A late turn still sends the messages that were due before the end of publishing.
                if at_ns >= until || self.shared.messages_left[group].load(SeqCst) <= 0 {
                    self.schedules[group].clear();
                    break;
                }
                self.publish_or_defer(at, round_up_to_grid(at_ns), now);
            }
        }
        if now >= until {
            self.end_publishing();
            return false;
        }
        self.publish_closed_loop(now)
    }

    fn publish_or_defer(&mut self, at: u32, due_ns: u64, now: u64) {
        let client = &mut self.clients[at as usize];
        let group = &self.plan.groups[usize::from(client.group)];
        let (Some(publisher), Some(publishing)) = (&mut client.publisher, &group.publish) else {
            return;
        };
        if client.state != ClientState::Live {
            self.stats.add(LoadCounter::PubMissed, 1);
            return;
        }
        let unsent = client.out.len() - client.out_from;
        if publisher.backlog_len > 0 || !has_room(publishing, publisher.flights.len(), unsent) {
            if publisher.backlog_len == 0 {
                publisher.backlog_due_ns = due_ns;
            }
            publisher.backlog_len += 1;
            self.stats.add(LoadCounter::PubOverrun, 1);
            return;
        }
        self.publish(at, due_ns, now);
    }

    /// Sends due messages that had found no room, while there is room.
    pub(super) fn send_backlog(&mut self, at: u32) {
        while let Some(due_ns) = self.next_backlogged(at) {
            let now = self.clock.now_ns();
            self.publish(at, due_ns, now);
        }
    }

    fn next_backlogged(&mut self, at: u32) -> Option<u64> {
        let client = &mut self.clients[at as usize];
        let unsent = client.unsent_len();
        let publisher = client.publisher.as_mut()?;
        let group = &self.plan.groups[usize::from(client.group)];
        let publishing = group.publish.as_ref()?;
        let has_room = has_room(publishing, publisher.flights.len(), unsent);
        if client.state != ClientState::Live || publisher.backlog_len == 0 || !has_room {
            return None;
        }
        let due_ns = publisher.backlog_due_ns;
        publisher.backlog_len -= 1;
        if let PublishPace::EveryNs(interval) = publishing.pace {
            publisher.backlog_due_ns += interval;
        }
        Some(due_ns)
    }

    fn publish_closed_loop(&mut self, now: u64) -> bool {
        let mut room = false;
        for group in 0..self.closed_loop.len() {
            let count = self.closed_loop[group].clients.len();
            if count == 0 {
                continue;
            }
            let threads = self.plan.threads as u64;
            let under_way = self.shared.undelivered();
            let mut budget = self.plan.window.saturating_sub(under_way).div_ceil(threads);
            // Only a part of the room is used per turn, so that input is read in between.
            let (mut tries, mut without_room) = (count * CLOSED_LOOP_BURST, 0);
            while tries > 0
                && without_room < count
                && budget > 0
                && self.shared.messages_left[group].load(SeqCst) > 0
            {
                tries -= 1;
                let takers = &mut self.closed_loop[group];
                let at = takers.clients[takers.next];
                takers.next = (takers.next + 1) % count;
                match self.publish_if_room(group, at, now) {
                    Some(fan) => {
                        budget = budget.saturating_sub(fan);
                        without_room = 0;
                    }
                    None => without_room += 1,
                }
            }
            // Without room, an acknowledgement or a writable socket wakes the thread.
            room |= budget > 0 && without_room < count;
        }
        room
    }

    /// Publishes if the client is `Live` and has room. Returns the number of deliveries that the
    /// message causes, or `None` without room.
    fn publish_if_room(&mut self, group: usize, at: u32, now: u64) -> Option<u64> {
        let client = &self.clients[at as usize];
        let publisher = client.publisher.as_ref()?;
        let publishing = self.plan.groups[group].publish.as_ref()?;
        let fan = publisher.consumer_count;
        let has_room = has_room(publishing, publisher.flights.len(), client.unsent_len());
        if client.state != ClientState::Live || !has_room {
            return None;
        }
        self.publish(at, now, now);
        Some(fan)
    }

    fn publish(&mut self, at: u32, due_ns: u64, now: u64) {
        let client = &mut self.clients[at as usize];
        let at_group = usize::from(client.group);
        let plan = &self.plan;
        let (Some(publisher), Some(publishing)) =
            (&mut client.publisher, &plan.groups[at_group].publish)
        else {
            return;
        };
        if publishing.messages_max.is_some()
            && self.shared.messages_left[at_group].fetch_sub(1, SeqCst) <= 0
        {
            return;
        }
        let due_us = if plan.from_sending { now / 1_000 } else { due_ns / 1_000 };
        let stream = (plan.seed as u32).wrapping_add(publisher.stream);
        let stamp = PayloadStamp { time_us: due_us, stream, seq: publisher.seq };
        publisher.seq = publisher.seq.wrapping_add(1);
        let has_id = publishing.qos != QoS::AtMostOnce;
        let packet_id = has_id.then(|| publisher.next_packet_id()).and_then(PacketId::new);
        let mut filled = String::new();
        let mut topic = &publisher.topic;
        if let Some(template) = &publisher.template {
            let who = TemplateValues {
                number: client.number,
                topics: plan.groups[at_group].topics,
                message: u64::from(stamp.seq),
                client_id: &client.id,
                user_name: &publisher.user_name,
            };
            let mut rng =
                super::distribution::client_rng(plan, client.index ^ u64::from(stamp.seq) << 32);
            filled = template.fill(&who, &mut rng);
            topic = &filled;
        }
        let mut out = std::mem::take(&mut client.out);
        if out.capacity() == 0 {
            out = self.spares.pop().unwrap_or_default();
        }
        let publish = Publish {
            dup: false,
            qos: publishing.qos,
            retain: publishing.retain,
            topic,
            packet_id,
            properties: Properties::default(),
            payload: self.payloads[at_group].next(stamp, now),
        };
        publish.encode(client.version, &mut out);
        self.stats.add(LoadCounter::PayloadOut, publish.payload.len() as u64);
        drop(filled);
        client.out = out;
        match packet_id {
            Some(id) => {
                publisher.flights.push_back(PublishFlight { packet_id: id.get(), due_us });
                self.flights += 1;
            }
            None => self.written.push(due_us),
        }
        self.expected += publisher.consumer_count;
        self.stats.add(LoadCounter::Pub, 1);
        self.stats.record(LatencySampler::Lateness, now.saturating_sub(due_ns) / 1_000);
        if !client.is_dirty {
            client.is_dirty = true;
            self.dirty.push(at);
        }
    }

    /// Writes the gathered output of each client in `dirty`, with one `write` per client.
    pub(super) fn flush(&mut self) {
        // Messages that come due meanwhile go to a new list and are written before the rest.
        let mut dirty = std::mem::take(&mut self.dirty);
        for (nth, at) in dirty.drain(..).enumerate() {
            self.clients[at as usize].is_dirty = false;
            self.write(at);
            if nth % STEPS_PER_TIME_CHECK == STEPS_PER_TIME_CHECK - 1 {
                self.publish_if_due();
            }
        }
        dirty.append(&mut self.dirty);
        self.dirty = dirty;
        self.endpoints.send_pending();
        if !self.written.is_empty() {
            let now_us = self.clock.now_ns() / 1_000;
            for due_us in self.written.drain(..) {
                self.stats.add(LoadCounter::PubSucc, 1);
                if due_us >= self.measured_us.0 && due_us < self.measured_us.1 {
                    self.stats.record(LatencySampler::Pub, now_us - due_us.min(now_us));
                }
            }
        }
    }

    /// Continues with pending output and the backlog when the socket is writable again.
    pub(super) fn resume_writing(&mut self, at: u32) {
        if let Some(wire) = &mut self.clients[at as usize].transport
            && let Err(error) = wire.flush()
        {
            return self.drop_connection(at, LoadFailure::from_io(&error));
        }
        if self.clients[at as usize].unsent_len() > 0 {
            self.write(at);
            self.send_backlog(at);
        }
    }

    fn write(&mut self, at: u32) {
        let client = &mut self.clients[at as usize];
        let Some(wire) = &mut client.transport else { return };
        while client.out_from < client.out.len() {
            match wire.write(&client.out[client.out_from..], &mut self.endpoints) {
                Ok(Some(written)) => {
                    client.out_from += written;
                    self.stats.add(LoadCounter::BytesOut, written as u64);
                }
                Ok(None) => return,
                Err(error) => return self.drop_connection(at, LoadFailure::from_io(&error)),
            }
        }
        let mut spare = std::mem::take(&mut client.out);
        client.out_from = 0;
        if self.spares.len() < SPARES_MAX && spare.capacity() <= SPARE_BYTES_MAX {
            spare.clear();
            self.spares.push(spare);
        }
    }
}

/// Messages that a publisher of a closed loop may send before the thread reads acknowledgements.
const CLOSED_LOOP_BURST: usize = 16;

#[inline]
fn has_room(publishing: &PublishPlan, flights: usize, unsent: usize) -> bool {
    let inflight = usize::from(publishing.inflight);
    let has_ids = publishing.qos == QoS::AtMostOnce || flights < usize::from(u16::MAX);
    let has_window = publishing.qos == QoS::AtMostOnce || inflight == 0 || flights < inflight;
    unsent < UNSENT_BYTES_MAX && has_ids && has_window
}
