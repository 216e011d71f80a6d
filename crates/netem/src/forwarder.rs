//! Carries packets between the two ends: from the device into a heap ordered by due time, and back
//! into the device with the addresses of the other end.

use crate::rng::NetemRng;
use crate::{CLIENT_ADDRESS, NetworkConditions, PacketCounts, lock_conditions};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tappers::linux::Tun;

pub(crate) struct PacketForwarder {
    tun: Tun,
    conditions: Arc<Mutex<NetworkConditions>>,
    counts: Arc<PacketCounts>,
    delay_queue: DelayQueue,
}

/// Packets on their way, ordered by due time.
struct DelayQueue {
    rng: NetemRng,
    /// Packets with their due time and sequence number, which keeps the order of packets due at the
    /// same time.
    packets: BinaryHeap<Reverse<(Instant, u64, Vec<u8>)>>,
    accepted: u64,
    /// For each direction: when the packets accepted so far will have left, under the limit
    /// `bytes_per_s`.
    free_at: [Instant; 2],
}

/// Decision of [`DelayQueue::enqueue`] about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PacketFate {
    OnTime,
    Late,
    Lost,
}

/// Interval at which the forwarder checks whether to stop.
const STOP_CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// Longest wait for a slow line; beyond this a packet is dropped, as by a router whose queue is
/// full.
const QUEUE_MAX: Duration = Duration::from_millis(500);
const PACKET_BYTES_MAX: usize = 64 * 1024;

impl PacketForwarder {
    pub(crate) fn new(
        tun: Tun,
        weather: Arc<Mutex<NetworkConditions>>,
        counts: Arc<PacketCounts>,
        seed: u64,
    ) -> PacketForwarder {
        PacketForwarder {
            tun,
            conditions: weather,
            counts,
            delay_queue: DelayQueue::new(seed, Instant::now()),
        }
    }

    /// Waits for a packet, or until a packet is due, and forwards all packets that are due.
    pub(crate) fn forward_packets(&mut self) {
        let left = self.delay_queue.next_due().map(|due| due.saturating_duration_since(now()));
        let left = left.map_or(STOP_CHECK_INTERVAL, |left| left.min(STOP_CHECK_INTERVAL));
        let left = Timespec::try_from(left).ok();
        let _ = poll(&mut [PollFd::new(&self.tun, PollFlags::IN)], left.as_ref());
        let weather = *lock_conditions(&self.conditions);
        let mut buffer = [0; PACKET_BYTES_MAX];
        while let Ok(len) = self.tun.recv(&mut buffer) {
            let Some((is_outward, packet)) = readdress(&buffer[..len]) else { continue };
            match self.delay_queue.enqueue(is_outward, packet, weather, now()) {
                PacketFate::OnTime => {}
                PacketFate::Late => _ = self.counts.late.fetch_add(1, Relaxed),
                PacketFate::Lost => _ = self.counts.lost.fetch_add(1, Relaxed),
            }
        }
        while let Some(packet) = self.delay_queue.pop_due(now()) {
            // Packets on their way are lost as well when the line is cut. A packet refused by the
            // kernel counts as lost.
            let is_there = !weather.is_cut && self.tun.send(&packet).is_ok();
            let count = if is_there { &self.counts.carried } else { &self.counts.lost };
            count.fetch_add(1, Relaxed);
        }
    }
}

fn now() -> Instant {
    Instant::now()
}

impl DelayQueue {
    fn new(seed: u64, now: Instant) -> DelayQueue {
        DelayQueue {
            rng: NetemRng::new(seed),
            packets: BinaryHeap::new(),
            accepted: 0,
            free_at: [now, now],
        }
    }

    fn enqueue(
        &mut self,
        is_outward: bool,
        packet: Vec<u8>,
        weather: NetworkConditions,
        now: Instant,
    ) -> PacketFate {
        if weather.is_cut || self.rng.occurs(weather.loss_percent) {
            return PacketFate::Lost;
        }
        let mut due = now + weather.delay;
        if weather.bytes_per_s > 0 {
            let free_at = &mut self.free_at[usize::from(is_outward)];
            let begins = (*free_at).max(now);
            if begins - now > QUEUE_MAX {
                return PacketFate::Lost;
            }
            let takes = packet.len() as f64 / weather.bytes_per_s as f64;
            *free_at = begins + Duration::from_secs_f64(takes);
            due += *free_at - now;
        }
        let is_late = self.rng.occurs(weather.reorder_percent);
        if is_late {
            due += weather.reorder_delay;
        }
        self.accepted += 1;
        self.packets.push(Reverse((due, self.accepted, packet)));
        if is_late { PacketFate::Late } else { PacketFate::OnTime }
    }

    fn next_due(&self) -> Option<Instant> {
        self.packets.peek().map(|Reverse((due, ..))| *due)
    }

    fn pop_due(&mut self, now: Instant) -> Option<Vec<u8>> {
        self.next_due().filter(|due| *due <= now)?;
        self.packets.pop().map(|Reverse((.., packet))| packet)
    }
}

/// Rewrites the addresses of a packet as its receiver has to see them: the source becomes the
/// sender's alias across the line, and the destination the receiver's real address. Returns the
/// packet and whether its source was [`CLIENT_ADDRESS`]; `None` for packets that do not go from a
/// real address to an alias. The third byte of an address is 0 for the client and 1 for the server,
/// and 2 more in an alias. Source and destination change by opposite amounts, so checksums over
/// both stay valid.
fn readdress(packet: &[u8]) -> Option<(bool, Vec<u8>)> {
    let is_version_4 = packet.first().is_some_and(|byte| byte >> 4 == 4);
    let from = packet.get(12..16)?;
    let is_outward = from == CLIENT_ADDRESS.octets();
    let mut packet = packet.to_vec();
    let (from, to) = (packet[14], *packet.get(18)?);
    let is_ours = is_version_4 && from < 2 && (2..4).contains(&to);
    packet[14] = from + 2;
    packet[18] = to.wrapping_sub(2);
    is_ours.then_some((is_outward, packet))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{IMPAIRED_SERVER_ADDRESS, SERVER_ADDRESS};

    fn packet(from: [u8; 4], to: [u8; 4]) -> Vec<u8> {
        let mut packet = vec![0; 20];
        packet[0] = 0x45;
        packet[12..16].copy_from_slice(&from);
        packet[16..20].copy_from_slice(&to);
        packet
    }

    fn sum(packet: &[u8]) -> u32 {
        let word = |pair: &[u8]| u32::from(u16::from_be_bytes([pair[0], pair[1]]));
        packet.chunks(2).map(word).sum()
    }

    #[test]
    fn a_packet_gets_the_addresses_of_the_other_end_and_keeps_its_sum() {
        let sent = packet(CLIENT_ADDRESS.octets(), IMPAIRED_SERVER_ADDRESS.octets());
        let (is_outward, came) = readdress(&sent).unwrap();
        assert!(is_outward);
        assert_eq!(came[16..20], SERVER_ADDRESS.octets());
        assert_eq!(sum(&sent), sum(&came));
        let answer = packet(SERVER_ADDRESS.octets(), came[12..16].try_into().unwrap());
        let (is_outward, came) = readdress(&answer).unwrap();
        assert!(!is_outward);
        assert_eq!(
            came[12..20],
            packet(IMPAIRED_SERVER_ADDRESS.octets(), CLIENT_ADDRESS.octets())[12..20]
        );
        assert_eq!(sum(&answer), sum(&came));
    }

    /// Sends bytes 0, 1, 2 and so on, one per millisecond, and returns the bytes that arrive, each
    /// with its time in milliseconds.
    fn arrivals(weather: NetworkConditions, count: u8) -> Vec<(u8, u64)> {
        let from = Instant::now();
        let mut under_way = DelayQueue::new(1, from);
        let mut came = Vec::new();
        for ms in 0..2000 {
            let now = from + Duration::from_millis(ms);
            if ms < u64::from(count) {
                under_way.enqueue(true, vec![ms as u8; 100], weather, now);
            }
            while let Some(packet) = under_way.pop_due(now) {
                came.push((packet[0], ms));
            }
        }
        came
    }

    #[test]
    fn packets_are_late_lost_overtaken_and_slowed_down_as_the_weather_says() {
        let fair =
            NetworkConditions { delay: Duration::from_millis(100), ..NetworkConditions::default() };
        let in_time: Vec<(u8, u64)> = (0..200).map(|at| (at, u64::from(at) + 100)).collect();
        assert_eq!(arrivals(fair, 200), in_time);
        let came = arrivals(NetworkConditions { loss_percent: 10.0, ..fair }, 200);
        assert!((170..190).contains(&came.len()), "{}", came.len());
        assert!(came.iter().all(|one| in_time.contains(one)));
        let late_by = Duration::from_millis(5);
        let came = arrivals(
            NetworkConditions { reorder_percent: 10.0, reorder_delay: late_by, ..fair },
            200,
        );
        let overtaken = came.windows(2).filter(|pair| pair[0].0 > pair[1].0).count();
        assert!(came.len() == 200 && (10..30).contains(&overtaken), "{came:?}");
        // 10 ms for each packet, and at most half a second of packets waits.
        let came = arrivals(NetworkConditions { bytes_per_s: 10_000, ..fair }, 200);
        assert!(came.windows(2).all(|pair| pair[1].1 - pair[0].1 == 10), "{came:?}");
        assert!((50..75).contains(&came.len()), "{}", came.len());
        assert!(arrivals(NetworkConditions { is_cut: true, ..fair }, 200).is_empty());
    }

    #[test]
    fn what_is_no_packet_of_the_line_goes_nowhere() {
        assert!(readdress(&[]).is_none());
        assert!(readdress(&[0x45; 19]).is_none());
        assert!(readdress(&packet(CLIENT_ADDRESS.octets(), SERVER_ADDRESS.octets())).is_none());
        assert!(readdress(&packet([198, 18, 200, 1], IMPAIRED_SERVER_ADDRESS.octets())).is_none());
        let mut newer = packet(CLIENT_ADDRESS.octets(), IMPAIRED_SERVER_ADDRESS.octets());
        newer[0] = 0x60;
        assert!(readdress(&newer).is_none());
    }
}
