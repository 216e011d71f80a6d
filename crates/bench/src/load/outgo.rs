//! What goes out: requests, acknowledgements, messages when they are due, and the writing.

use super::client::{Client, Flight, State};
use super::pace::on_grid;
use super::thread::{Load, STEPS_A_LOOK};
use crate::limits::{SPARE_BYTES_MAX, SPARES_MAX, UNSENT_BYTES_MAX};
use crate::plan::{Pace, Publishing};
use crate::stamp::Stamp;
use crate::tally::{Count, Failure, Sampler};
use crate::template::{self, Who};
use mqtt::property::{PropertiesBuf, Property};
use mqtt::{
    Connect, Disconnect, PacketId, PacketType, Properties, Publish, QoS, Reason, Subscribe,
    SubscribeOptions, SubscriptionsBuf,
};
use std::sync::atomic::Ordering::SeqCst;

impl Load {
    pub(super) fn greet(&mut self, at: u32) {
        let plan = std::sync::Arc::clone(&self.plan);
        self.clients[at as usize].state = State::Greeting;
        self.send(at, |client, out| {
            let group = &plan.groups[usize::from(client.group)];
            let mut chance = super::crew::chance(&plan, client.place);
            let who = Who {
                number: client.number,
                topics: group.topics,
                client_id: &client.id,
                ..Who::default()
            };
            let user_name = group.user_name(&who, &mut chance);
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

    pub(super) fn subscribe(&mut self, at: u32, now_ns: u64) {
        let client = &mut self.clients[at as usize];
        client.state = State::Subscribing;
        client.asked_ns = now_ns;
        let qos = self.plan.groups[usize::from(client.group)].subscribe_qos;
        self.send(at, |client, out| {
            let mut filters = SubscriptionsBuf::default();
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

    pub(super) fn say_goodbye(&mut self, at: u32) {
        self.send(at, |client, out| {
            let reason = Reason::NormalDisconnection;
            let properties = Properties::default();
            Disconnect { reason, properties }.encode(client.version, out);
        });
    }

    #[inline]
    pub(super) fn send_ack(&mut self, at: u32, kind: PacketType, packet_id: PacketId) {
        let [high, low] = packet_id.get().to_be_bytes();
        self.send(at, |_, out| out.extend_from_slice(&[kind.first_byte(), 2, high, low]));
    }

    /// Lets `encode` append to what the client has to write.
    #[inline]
    pub(super) fn send(&mut self, at: u32, encode: impl FnOnce(&Client, &mut Vec<u8>)) {
        let client = &mut self.clients[at as usize];
        if client.wire.is_none() {
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

    /// Publishes what the schedule wants by now. True where a closed loop could go on at once.
    pub(super) fn publish_due(&mut self, now: u64) -> bool {
        let until = self.shared.publish_until_ns.load(SeqCst);
        if now < self.shared.start_ns.load(SeqCst) {
            return false;
        }
        for group in 0..self.lines.len() {
            // What is due rests until its place on the grid has come.
            let by = now - now % crate::limits::GRID_NS;
            while let Some((at_ns, at)) = self.lines[group].take_due(by) {
                // A turn that comes late still sends what was due in time.
                if at_ns >= until || self.shared.left[group].load(SeqCst) <= 0 {
                    self.lines[group].clear();
                    break;
                }
                self.due(at, on_grid(at_ns), now);
            }
        }
        if now >= until {
            self.end_publishing();
            return false;
        }
        self.publish_as_taken(now)
    }

    fn due(&mut self, at: u32, due_ns: u64, now: u64) {
        let client = &mut self.clients[at as usize];
        let group = &self.plan.groups[usize::from(client.group)];
        let (Some(publisher), Some(publishing)) = (&mut client.publisher, &group.publish) else {
            return;
        };
        if client.state != State::Live {
            self.tally.add(Count::PubMissed, 1);
            return;
        }
        let unsent = client.out.len() - client.out_from;
        if publisher.behind > 0 || !has_room(publishing, publisher.flights.len(), unsent) {
            if publisher.behind == 0 {
                publisher.behind_from = due_ns;
            }
            publisher.behind += 1;
            self.tally.add(Count::PubOverrun, 1);
            return;
        }
        self.publish(at, due_ns, now);
    }

    /// Sends what was due before and found no room.
    pub(super) fn catch_up(&mut self, at: u32) {
        while let Some(due_ns) = self.overdue(at) {
            let now = self.clock.now_ns();
            self.publish(at, due_ns, now);
        }
    }

    fn overdue(&mut self, at: u32) -> Option<u64> {
        let client = &mut self.clients[at as usize];
        let unsent = client.unsent();
        let publisher = client.publisher.as_mut()?;
        let group = &self.plan.groups[usize::from(client.group)];
        let publishing = group.publish.as_ref()?;
        let has_room = has_room(publishing, publisher.flights.len(), unsent);
        if client.state != State::Live || publisher.behind == 0 || !has_room {
            return None;
        }
        let due_ns = publisher.behind_from;
        publisher.behind -= 1;
        if let Pace::EveryNs(interval) = publishing.pace {
            publisher.behind_from += interval;
        }
        Some(due_ns)
    }

    fn publish_as_taken(&mut self, now: u64) -> bool {
        let mut room = false;
        for group in 0..self.takers.len() {
            let count = self.takers[group].clients.len();
            if count == 0 {
                continue;
            }
            let threads = self.plan.threads as u64;
            let under_way = self.shared.under_way();
            let mut budget = self.plan.window.saturating_sub(under_way).div_ceil(threads);
            // Not all that fits at once: what comes in is read in between.
            let (mut tries, mut without_room) = (count * TAKEN_AT_ONCE, 0);
            while tries > 0
                && without_room < count
                && budget > 0
                && self.shared.left[group].load(SeqCst) > 0
            {
                tries -= 1;
                let takers = &mut self.takers[group];
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
            // Where nobody has room, an acknowledgement or a writable socket will tell.
            room |= budget > 0 && without_room < count;
        }
        room
    }

    /// How many deliveries it causes, or `None` where the publisher has no room.
    fn publish_if_room(&mut self, group: usize, at: u32, now: u64) -> Option<u64> {
        let client = &self.clients[at as usize];
        let publisher = client.publisher.as_ref()?;
        let publishing = self.plan.groups[group].publish.as_ref()?;
        let fan = publisher.fan;
        let has_room = has_room(publishing, publisher.flights.len(), client.unsent());
        if client.state != State::Live || !has_room {
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
        if publishing.messages_max.is_some() && self.shared.left[at_group].fetch_sub(1, SeqCst) <= 0
        {
            return;
        }
        let due_us = if plan.from_sending { now / 1_000 } else { due_ns / 1_000 };
        let stream = (plan.seed as u32).wrapping_add(publisher.stream);
        let stamp = Stamp { time_us: due_us, stream, seq: publisher.seq };
        publisher.seq = publisher.seq.wrapping_add(1);
        let has_id = publishing.qos != QoS::AtMostOnce;
        let packet_id = has_id.then(|| publisher.next_packet_id()).and_then(PacketId::new);
        let mut filled = String::new();
        let mut topic = &publisher.topic;
        if template::changes(topic) {
            let who = Who {
                number: client.number,
                topics: plan.groups[at_group].topics,
                message: u64::from(stamp.seq),
                client_id: &client.id,
                user_name: &publisher.user_name,
            };
            let mut chance = super::crew::chance(plan, client.place ^ u64::from(stamp.seq) << 32);
            filled = template::fill(topic, &who, &mut chance);
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
        self.tally.add(Count::PayloadOut, publish.payload.len() as u64);
        drop(filled);
        client.out = out;
        match packet_id {
            Some(id) => {
                publisher.flights.push_back(Flight { packet_id: id.get(), due_us });
                self.flights += 1;
            }
            None => self.written.push(due_us),
        }
        self.expected += publisher.fan;
        self.tally.add(Count::Pub, 1);
        self.tally.record(Sampler::Lateness, now.saturating_sub(due_ns) / 1_000);
        if !client.is_dirty {
            client.is_dirty = true;
            self.dirty.push(at);
        }
    }

    /// Writes what has gathered, once a client.
    pub(super) fn flush(&mut self) {
        // What comes due meanwhile makes a list of its own, and is written before the rest.
        let mut dirty = std::mem::take(&mut self.dirty);
        for (nth, at) in dirty.drain(..).enumerate() {
            self.clients[at as usize].is_dirty = false;
            self.write(at);
            if nth % STEPS_A_LOOK == STEPS_A_LOOK - 1 {
                self.keep_time();
            }
        }
        dirty.append(&mut self.dirty);
        self.dirty = dirty;
        self.outlets.send();
        if !self.written.is_empty() {
            let now_us = self.clock.now_ns() / 1_000;
            for due_us in self.written.drain(..) {
                self.tally.add(Count::PubSucc, 1);
                if due_us >= self.measured_us.0 && due_us < self.measured_us.1 {
                    self.tally.record(Sampler::Pub, now_us - due_us.min(now_us));
                }
            }
        }
    }

    /// The socket has room again.
    pub(super) fn go_on(&mut self, at: u32) {
        if let Some(wire) = &mut self.clients[at as usize].wire
            && let Err(error) = wire.push()
        {
            return self.lose(at, Failure::of(&error));
        }
        if self.clients[at as usize].unsent() > 0 {
            self.write(at);
            self.catch_up(at);
        }
    }

    fn write(&mut self, at: u32) {
        let client = &mut self.clients[at as usize];
        let Some(wire) = &mut client.wire else { return };
        while client.out_from < client.out.len() {
            match wire.write(&client.out[client.out_from..], &mut self.outlets) {
                Ok(Some(written)) => {
                    client.out_from += written;
                    self.tally.add(Count::BytesOut, written as u64);
                }
                Ok(None) => return,
                Err(error) => return self.lose(at, Failure::of(&error)),
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

/// Messages that a publisher of a closed loop may send before others' answers are read.
const TAKEN_AT_ONCE: usize = 16;

#[inline]
fn has_room(publishing: &Publishing, flights: usize, unsent: usize) -> bool {
    let inflight = usize::from(publishing.inflight);
    let has_ids = publishing.qos == QoS::AtMostOnce || flights < usize::from(u16::MAX);
    let has_window = publishing.qos == QoS::AtMostOnce || inflight == 0 || flights < inflight;
    unsent < UNSENT_BYTES_MAX && has_ids && has_window
}
