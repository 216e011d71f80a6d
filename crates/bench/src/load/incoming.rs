//! Input of the load threads: splits bytes into packets and applies each packet to its client.

use super::client::ClientState;
use super::payload;
use super::thread::LoadThread;
use crate::limits::PACKET_BYTES_MAX;
use crate::load_stats::{LatencySampler, LoadCounter, LoadFailure, LoadStats};
use crate::plan::StartMode;
use crate::stamp::{PayloadStamp, TIME_MASK};
use mqtt::client::ServerLimits;
use mqtt::{
    ConnAck, Disconnect, PacketFrame, PacketType, Publish, PublishAck, QoS, ReasonCode, SubAck,
    Violation,
};

impl LoadThread {
    /// Reads all there is. `ends`: the peer is done, so the end of the stream must be found.
    pub(super) fn receive(&mut self, at: u32, ends: bool) {
        let mut buffer = std::mem::take(&mut self.buffer);
        let received = self.receive_into(at, ends, &mut buffer);
        self.buffer = buffer;
        self.ages.flush(&mut self.stats);
        if let Err(failure) = received {
            self.drop_connection(at, failure);
        }
    }

    fn receive_into(
        &mut self,
        at: u32,
        ends: bool,
        buffer: &mut Vec<u8>,
    ) -> Result<(), LoadFailure> {
        loop {
            let client = &mut self.clients[at as usize];
            let Some(wire) = &mut client.transport else { return Ok(()) };
            let tail = client.tail.len();
            if tail * 2 > buffer.len() {
                buffer.resize(tail * 4, 0);
            }
            buffer[..tail].copy_from_slice(&client.tail);
            let read = wire.read(&mut buffer[tail..], &mut self.endpoints);
            let read = read.map_err(|error| LoadFailure::from_io(&error))?;
            let Some(read) = read else { return Ok(()) };
            if read == 0 {
                return Err(LoadFailure::Closed);
            }
            let is_all = wire.short_read_is_all() && tail + read < buffer.len() && !ends;
            self.stats.add(LoadCounter::BytesIn, read as u64);
            let now_ns = self.clock.now_ns();
            let used = self.read_packets(at, &buffer[..tail + read], now_ns)?;
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

    /// Handles every complete packet of `bytes` and returns the number of bytes used.
    fn read_packets(&mut self, at: u32, bytes: &[u8], now_ns: u64) -> Result<usize, LoadFailure> {
        let mut used = 0;
        while let Some(frame) = mqtt::split_frame(&bytes[used..], PACKET_BYTES_MAX)? {
            let from = used;
            used += frame.len;
            if frame.packet_type() != PacketType::Publish as u8 {
                self.dispatch_packet(at, frame, now_ns)?;
                continue;
            }
            let publish = Publish::decode(frame, self.clients[at as usize].version)?;
            self.count_message(at, &publish, now_ns);
            if publish.qos == QoS::AtMostOnce {
                let (first, rest) = bytes[from..].split_at(frame.len);
                used += self.count_repeats(at, first, publish.payload.len(), rest, now_ns / 1_000);
            }
        }
        Ok(used)
    }

    /// Counts the messages of QoS 0 in `rest` whose bytes before the payload equal the `first`
    /// packet, without decoding. Returns the number of bytes used; ends at the first different
    /// packet.
    fn count_repeats(
        &mut self,
        at: u32,
        first: &[u8],
        payload: usize,
        rest: &[u8],
        now_us: u64,
    ) -> usize {
        let head = &first[..first.len() - payload];
        let client = &mut self.clients[at as usize];
        let tracks = match client.shared_group {
            Some(share) => &mut self.shares[share as usize],
            None => &mut client.tracks,
        };
        let seq_first = (self.plan.start == StartMode::Together).then_some(0);
        let mut count = 0;
        for message in rest.chunks_exact(first.len()) {
            let stamp = message.strip_prefix(head).and_then(PayloadStamp::read);
            let Some(stamp) = stamp else { break };
            let age_us = stamp.age_us(now_us);
            let due_us = now_us - age_us;
            if due_us >= self.measured_us.0 && due_us < self.measured_us.1 {
                self.ages.add(age_us, &mut self.stats);
            }
            tracks.receive(stamp.stream, stamp.seq, seq_first);
            count += 1;
        }
        self.stats.add(LoadCounter::Recv, count);
        self.stats.add(LoadCounter::PayloadIn, count * payload as u64);
        self.received += count;
        count as usize * first.len()
    }

    fn count_message(&mut self, at: u32, publish: &Publish<'_>, now_ns: u64) {
        let client = &mut self.clients[at as usize];
        self.stats.add(LoadCounter::Recv, 1);
        self.stats.add(LoadCounter::PayloadIn, publish.payload.len() as u64);
        self.received += 1;
        let now_us = now_ns / 1_000;
        if let Some(stamp) = PayloadStamp::read(publish.payload) {
            let age_us = stamp.age_us(now_us);
            let due_us = now_us - age_us;
            if due_us >= self.measured_us.0 && due_us < self.measured_us.1 {
                self.ages.add(age_us, &mut self.stats);
            }
            // With `StartMode::Together` all consumers subscribe before the first message, so every
            // gap is a loss.
            let first = (self.plan.start == StartMode::Together).then_some(0);
            let tracks = match client.shared_group {
                Some(share) => &mut self.shares[share as usize],
                None => &mut client.tracks,
            };
            tracks.receive(stamp.stream, stamp.seq, first);
        } else {
            self.stats.add(LoadCounter::RecvForeign, 1);
            let fields = &self.plan.groups[usize::from(client.group)].fields;
            if let Some(sent_ms) = payload::sent_ms(fields, publish.payload) {
                let age_ms = (now_ns / 1_000_000).saturating_sub(sent_ms);
                self.stats.record(LatencySampler::Sub, age_ms.saturating_mul(1_000).min(TIME_MASK));
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

    fn dispatch_packet(
        &mut self,
        at: u32,
        frame: PacketFrame<'_>,
        now_ns: u64,
    ) -> Result<(), LoadFailure> {
        let version = self.clients[at as usize].version;
        let kind = PacketType::from_byte(frame.first).ok_or(Violation::MalformedPacketType)?;
        match kind {
            PacketType::ConnAck => {
                let connack = ConnAck::decode(frame, version)?;
                self.on_connack(at, &connack, now_ns)
            }
            PacketType::SubAck => {
                let suback = SubAck::decode(frame, version)?;
                self.on_suback(at, suback.codes, now_ns)
            }
            PacketType::PubAck | PacketType::PubComp => {
                let ack = PublishAck::decode(frame, version)?;
                self.on_publish_ack(at, &ack, now_ns);
                Ok(())
            }
            PacketType::PubRec => {
                let ack = PublishAck::decode(frame, version)?;
                if ack.reason.is_error() {
                    self.on_publish_ack(at, &ack, now_ns);
                } else {
                    self.count_unmatched(ack.reason);
                    self.send_ack(at, PacketType::PubRel, ack.packet_id);
                }
                Ok(())
            }
            PacketType::PubRel => {
                let ack = PublishAck::decode(frame, version)?;
                self.send_ack(at, PacketType::PubComp, ack.packet_id);
                Ok(())
            }
            PacketType::PingResp => {
                self.clients[at as usize].is_pinging = false;
                Ok(())
            }
            PacketType::Disconnect => {
                let disconnect = Disconnect::decode(frame, version)?;
                Err(LoadFailure::Disconnected(disconnect.reason.code()))
            }
            _ => Err(LoadFailure::Violation(format!("{kind:?} from a broker"))),
        }
    }

    fn on_connack(
        &mut self,
        at: u32,
        connack: &ConnAck<'_>,
        now_ns: u64,
    ) -> Result<(), LoadFailure> {
        let client = &mut self.clients[at as usize];
        if client.state != ClientState::AwaitingConnAck {
            return Err(LoadFailure::Violation("CONNACK without CONNECT".into()));
        }
        // The scenario defines the load: the limits are discarded, and only a refusal counts.
        ServerLimits::from_connack(connack)
            .map_err(|reason| LoadFailure::ConnAck(reason.code()))?;
        self.stats.record(LatencySampler::Connect, (now_ns - client.requested_ns) / 1_000);
        self.stats.add(LoadCounter::ConnectSucc, 1);
        if client.filters.is_empty() {
            self.mark_live(at);
        } else {
            self.send_subscribe(at, now_ns);
        }
        Ok(())
    }

    fn on_suback(&mut self, at: u32, codes: &[u8], now_ns: u64) -> Result<(), LoadFailure> {
        let client = &mut self.clients[at as usize];
        if client.state != ClientState::Subscribing {
            return Err(LoadFailure::Violation("SUBACK without SUBSCRIBE".into()));
        }
        self.stats.record(LatencySampler::Subscribe, (now_ns - client.requested_ns) / 1_000);
        let refused = codes.iter().filter(|code| **code >= 0x80).count() as u64;
        self.stats.add(LoadCounter::Sub, codes.len() as u64 - refused);
        self.stats.add(LoadCounter::SubFail, refused);
        if let Some(code) = codes.iter().find(|code| **code >= 0x80) {
            return Err(LoadFailure::SubAck(*code));
        }
        self.mark_live(at);
        Ok(())
    }

    fn on_publish_ack(&mut self, at: u32, ack: &PublishAck<'_>, now_ns: u64) {
        let Some(publisher) = &mut self.clients[at as usize].publisher else { return };
        let Some(flight) = publisher.acknowledge(ack.packet_id.get()) else { return };
        self.flights -= 1;
        let now_us = now_ns / 1_000;
        if ack.reason.is_error() {
            // The refused message will not be delivered, so the drain does not wait for its
            // deliveries.
            let fan = publisher.consumer_count;
            self.stats.add(LoadCounter::PubFail, 1);
            self.stats.record_failure(LoadFailure::PubAck(ack.reason.code()));
            self.received += fan;
        } else {
            self.count_unmatched(ack.reason);
            self.stats.add(LoadCounter::PubSucc, 1);
            if flight.due_us >= self.measured_us.0 && flight.due_us < self.measured_us.1 {
                self.stats.record(LatencySampler::Pub, now_us - flight.due_us.min(now_us));
            }
        }
        self.send_backlog(at);
    }

    fn count_unmatched(&mut self, reason: ReasonCode) {
        if reason == ReasonCode::NoMatchingSubscribers {
            self.stats.add(LoadCounter::PubNoSub, 1);
        }
    }
}

/// Messages of one read with the same age, recorded together: most were sent together.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AgeBatch {
    us: u64,
    count: u64,
}

impl AgeBatch {
    #[inline]
    fn add(&mut self, age_us: u64, stats: &mut LoadStats) {
        if self.us != age_us {
            self.flush(stats);
            self.us = age_us;
        }
        self.count += 1;
    }

    #[inline]
    fn flush(&mut self, stats: &mut LoadStats) {
        if self.count > 0 {
            stats.record_many(LatencySampler::Sub, self.us, self.count);
            self.count = 0;
        }
    }
}
