//! What comes in: bytes cut into packets, and what each packet means to its client.

use super::client::State;
use super::payload;
use super::thread::Load;
use crate::limits::PACKET_BYTES_MAX;
use crate::plan::Start;
use crate::stamp::{Stamp, TIME_MASK};
use crate::tally::{Count, Failure, Sampler, Tally};
use mqtt::{Ack, ConnAck, Disconnect, Frame, PacketType, Publish, QoS, Reason, SubAck, Violation};

impl Load {
    /// Reads all there is. `ends`: the peer is done, so the end of the stream must be found.
    pub(super) fn receive(&mut self, at: u32, ends: bool) {
        let mut buffer = std::mem::take(&mut self.buffer);
        let received = self.receive_into(at, ends, &mut buffer);
        self.buffer = buffer;
        self.ages.settle(&mut self.tally);
        if let Err(failure) = received {
            self.lose(at, failure);
        }
    }

    fn receive_into(&mut self, at: u32, ends: bool, buffer: &mut Vec<u8>) -> Result<(), Failure> {
        loop {
            let client = &mut self.clients[at as usize];
            let Some(wire) = &mut client.wire else { return Ok(()) };
            let tail = client.tail.len();
            if tail * 2 > buffer.len() {
                buffer.resize(tail * 4, 0);
            }
            buffer[..tail].copy_from_slice(&client.tail);
            let read = wire.read(&mut buffer[tail..], &mut self.outlets);
            let read = read.map_err(|error| Failure::of(&error))?;
            let Some(read) = read else { return Ok(()) };
            if read == 0 {
                return Err(Failure::Closed);
            }
            let is_all = wire.short_read_is_all() && tail + read < buffer.len() && !ends;
            self.tally.add(Count::BytesIn, read as u64);
            let now_ns = self.clock.now_ns();
            let used = self.packets(at, &buffer[..tail + read], now_ns)?;
            let client = &mut self.clients[at as usize];
            let rest = &buffer[used..tail + read];
            if rest.is_empty() {
                client.tail = Vec::new();
            } else {
                client.tail.clear();
                client.tail.extend_from_slice(rest);
            }
            if is_all {
                return Ok(());
            }
        }
    }

    /// Takes every whole packet; how many bytes they were.
    fn packets(&mut self, at: u32, bytes: &[u8], now_ns: u64) -> Result<usize, Failure> {
        let mut used = 0;
        while let Some(frame) = mqtt::cut(&bytes[used..], PACKET_BYTES_MAX)? {
            let from = used;
            used += frame.len;
            if frame.packet_type() != PacketType::Publish as u8 {
                self.packet(at, frame, now_ns)?;
                continue;
            }
            let publish = Publish::decode(frame, self.clients[at as usize].version)?;
            self.message(at, &publish, now_ns);
            if publish.qos == QoS::AtMostOnce {
                let (first, rest) = bytes[from..].split_at(frame.len);
                used += self.repeats(at, first, publish.payload.len(), rest, now_ns / 1_000);
            }
        }
        Ok(used)
    }

    /// Messages of QoS 0 that begin as the one before them differ in their payloads only, so
    /// there is nothing to decode. Takes those that follow each other; how many bytes they were.
    fn repeats(
        &mut self,
        at: u32,
        first: &[u8],
        payload: usize,
        rest: &[u8],
        now_us: u64,
    ) -> usize {
        let head = &first[..first.len() - payload];
        let client = &mut self.clients[at as usize];
        let tracks = match client.share {
            Some(share) => &mut self.shares[share as usize],
            None => &mut client.tracks,
        };
        let seq_first = (self.plan.start == Start::Together).then_some(0);
        let mut count = 0;
        for message in rest.chunks_exact(first.len()) {
            let stamp = message.strip_prefix(head).and_then(Stamp::read);
            let Some(stamp) = stamp else { break };
            let age_us = stamp.age_us(now_us);
            let due_us = now_us - age_us;
            if due_us >= self.measured_us.0 && due_us < self.measured_us.1 {
                self.ages.add(age_us, &mut self.tally);
            }
            tracks.receive(stamp.stream, stamp.seq, seq_first);
            count += 1;
        }
        self.tally.add(Count::Recv, count);
        self.tally.add(Count::PayloadIn, count * payload as u64);
        self.received += count;
        count as usize * first.len()
    }

    fn message(&mut self, at: u32, publish: &Publish<'_>, now_ns: u64) {
        let client = &mut self.clients[at as usize];
        self.tally.add(Count::Recv, 1);
        self.tally.add(Count::PayloadIn, publish.payload.len() as u64);
        self.received += 1;
        let now_us = now_ns / 1_000;
        if let Some(stamp) = Stamp::read(publish.payload) {
            let age_us = stamp.age_us(now_us);
            let due_us = now_us - age_us;
            if due_us >= self.measured_us.0 && due_us < self.measured_us.1 {
                self.ages.add(age_us, &mut self.tally);
            }
            // Who was subscribed before anyone published has missed what it did not see.
            let first = (self.plan.start == Start::Together).then_some(0);
            let tracks = match client.share {
                Some(share) => &mut self.shares[share as usize],
                None => &mut client.tracks,
            };
            tracks.receive(stamp.stream, stamp.seq, first);
        } else {
            self.tally.add(Count::RecvForeign, 1);
            let fields = &self.plan.groups[usize::from(client.group)].fields;
            if let Some(sent_ms) = payload::sent_ms(fields, publish.payload) {
                let age_ms = (now_ns / 1_000_000).saturating_sub(sent_ms);
                self.tally.record(Sampler::Sub, age_ms.saturating_mul(1_000).min(TIME_MASK));
            }
        }
        if let Some(packet_id) = publish.packet_id {
            let kind = match publish.qos {
                QoS::ExactlyOnce => PacketType::PubRec,
                _ => PacketType::PubAck,
            };
            self.send_ack(at, kind, packet_id);
        }
    }

    fn packet(&mut self, at: u32, frame: Frame<'_>, now_ns: u64) -> Result<(), Failure> {
        let version = self.clients[at as usize].version;
        let kind = PacketType::from_byte(frame.first).ok_or(Violation::MalformedPacketType)?;
        match kind {
            PacketType::ConnAck => {
                let connack = ConnAck::decode(frame, version)?;
                self.welcome(at, connack.reason, now_ns)
            }
            PacketType::SubAck => {
                let suback = SubAck::decode(frame, version)?;
                self.subscribed(at, suback.codes, now_ns)
            }
            PacketType::PubAck | PacketType::PubComp => {
                let ack = Ack::decode(frame, version)?;
                self.published(at, &ack, now_ns);
                Ok(())
            }
            PacketType::PubRec => {
                let ack = Ack::decode(frame, version)?;
                if ack.reason.is_error() {
                    self.published(at, &ack, now_ns);
                } else {
                    self.count_unwanted(ack.reason);
                    self.send_ack(at, PacketType::PubRel, ack.packet_id);
                }
                Ok(())
            }
            PacketType::PubRel => {
                let ack = Ack::decode(frame, version)?;
                self.send_ack(at, PacketType::PubComp, ack.packet_id);
                Ok(())
            }
            PacketType::PingResp => {
                self.clients[at as usize].is_pinging = false;
                Ok(())
            }
            PacketType::Disconnect => {
                let disconnect = Disconnect::decode(frame, version)?;
                Err(Failure::Disconnected(disconnect.reason.code()))
            }
            _ => Err(Failure::Violation(format!("{kind:?} from a broker"))),
        }
    }

    fn welcome(&mut self, at: u32, reason: Reason, now_ns: u64) -> Result<(), Failure> {
        let client = &mut self.clients[at as usize];
        if client.state != State::Greeting {
            return Err(Failure::Violation("CONNACK without CONNECT".into()));
        }
        if reason.is_error() {
            return Err(Failure::ConnAck(reason.code()));
        }
        self.tally.record(Sampler::Connect, (now_ns - client.asked_ns) / 1_000);
        self.tally.add(Count::ConnectSucc, 1);
        if client.filters.is_empty() {
            self.live(at);
        } else {
            self.subscribe(at, now_ns);
        }
        Ok(())
    }

    fn subscribed(&mut self, at: u32, codes: &[u8], now_ns: u64) -> Result<(), Failure> {
        let client = &mut self.clients[at as usize];
        if client.state != State::Subscribing {
            return Err(Failure::Violation("SUBACK without SUBSCRIBE".into()));
        }
        self.tally.record(Sampler::Subscribe, (now_ns - client.asked_ns) / 1_000);
        let refused = codes.iter().filter(|code| **code >= 0x80).count() as u64;
        self.tally.add(Count::Sub, codes.len() as u64 - refused);
        self.tally.add(Count::SubFail, refused);
        if let Some(code) = codes.iter().find(|code| **code >= 0x80) {
            return Err(Failure::SubAck(*code));
        }
        self.live(at);
        Ok(())
    }

    fn published(&mut self, at: u32, ack: &Ack<'_>, now_ns: u64) {
        let Some(publisher) = &mut self.clients[at as usize].publisher else { return };
        let Some(flight) = publisher.land(ack.packet_id.get()) else { return };
        self.flights -= 1;
        let now_us = now_ns / 1_000;
        if ack.reason.is_error() {
            // It will not arrive, and nobody should wait for it.
            let fan = publisher.fan;
            self.tally.add(Count::PubFail, 1);
            self.tally.fail(Failure::PubAck(ack.reason.code()));
            self.received += fan;
        } else {
            self.count_unwanted(ack.reason);
            self.tally.add(Count::PubSucc, 1);
            if flight.due_us >= self.measured_us.0 && flight.due_us < self.measured_us.1 {
                self.tally.record(Sampler::Pub, now_us - flight.due_us.min(now_us));
            }
        }
        self.catch_up(at);
    }

    fn count_unwanted(&mut self, reason: Reason) {
        if reason == Reason::NoMatchingSubscribers {
            self.tally.add(Count::PubNoSub, 1);
        }
    }
}

/// Messages of one read were mostly sent together: one entry in the times serves all of an age.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ages {
    us: u64,
    count: u64,
}

impl Ages {
    #[inline]
    fn add(&mut self, age_us: u64, tally: &mut Tally) {
        if self.us != age_us {
            self.settle(tally);
            self.us = age_us;
        }
        self.count += 1;
    }

    #[inline]
    fn settle(&mut self, tally: &mut Tally) {
        if self.count > 0 {
            tally.record_many(Sampler::Sub, self.us, self.count);
            self.count = 0;
        }
    }
}
