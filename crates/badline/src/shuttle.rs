//! What carries packets from one end to the other: out of the device, into a heap by when they are
//! due, and back into the device with the addresses of the other end.

use crate::chance::Chance;
use crate::{Counts, HERE, Weather, lock};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tappers::linux::Tun;

pub(crate) struct Shuttle {
    tun: Tun,
    weather: Arc<Mutex<Weather>>,
    counts: Arc<Counts>,
    under_way: UnderWay,
}

/// Packets that have left one end and are not at the other.
struct UnderWay {
    chance: Chance,
    /// By when they are due and, of those that are due at once, in their order.
    packets: BinaryHeap<Reverse<(Instant, u64, Vec<u8>)>>,
    taken: u64,
    /// Each way: when what was let go so far will have left, where there is a limit.
    free_at: [Instant; 2],
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Goes,
    Late,
    Lost,
}

/// How soon it notices that it is to end.
const LOOKS_UP_EVERY: Duration = Duration::from_millis(50);
/// What would wait longer for a slow line is lost, as where a router's queue is full.
const QUEUE_MAX: Duration = Duration::from_millis(500);
const PACKET_BYTES_MAX: usize = 64 * 1024;

impl Shuttle {
    pub(crate) fn new(
        tun: Tun,
        weather: Arc<Mutex<Weather>>,
        counts: Arc<Counts>,
        seed: u64,
    ) -> Shuttle {
        Shuttle { tun, weather, counts, under_way: UnderWay::new(seed, Instant::now()) }
    }

    /// Waits for a packet or for when one is due, and carries what there is.
    pub(crate) fn turn(&mut self) {
        let left = self.under_way.next_at().map(|due| due.saturating_duration_since(now()));
        let left = left.map_or(LOOKS_UP_EVERY, |left| left.min(LOOKS_UP_EVERY));
        let left = Timespec::try_from(left).ok();
        let _ = poll(&mut [PollFd::new(&self.tun, PollFlags::IN)], left.as_ref());
        let weather = *lock(&self.weather);
        let mut buffer = [0; PACKET_BYTES_MAX];
        while let Ok(len) = self.tun.recv(&mut buffer) {
            let Some((is_outward, packet)) = turned(&buffer[..len]) else { continue };
            match self.under_way.take(is_outward, packet, weather, now()) {
                Fate::Goes => {}
                Fate::Late => _ = self.counts.late.fetch_add(1, Relaxed),
                Fate::Lost => _ = self.counts.lost.fetch_add(1, Relaxed),
            }
        }
        while let Some(packet) = self.under_way.give(now()) {
            // What is under way when the line is cut does not arrive either. What the kernel does
            // not take is lost, as anywhere.
            let is_there = !weather.is_cut && self.tun.send(&packet).is_ok();
            let count = if is_there { &self.counts.carried } else { &self.counts.lost };
            count.fetch_add(1, Relaxed);
        }
    }
}

fn now() -> Instant {
    Instant::now()
}

impl UnderWay {
    fn new(seed: u64, now: Instant) -> UnderWay {
        UnderWay {
            chance: Chance::new(seed),
            packets: BinaryHeap::new(),
            taken: 0,
            free_at: [now, now],
        }
    }

    fn take(&mut self, is_outward: bool, packet: Vec<u8>, weather: Weather, now: Instant) -> Fate {
        if weather.is_cut || self.chance.percent(weather.loss_percent) {
            return Fate::Lost;
        }
        let mut due = now + weather.delay;
        if weather.bytes_per_s > 0 {
            let free_at = &mut self.free_at[usize::from(is_outward)];
            let begins = (*free_at).max(now);
            if begins - now > QUEUE_MAX {
                return Fate::Lost;
            }
            let takes = packet.len() as f64 / weather.bytes_per_s as f64;
            *free_at = begins + Duration::from_secs_f64(takes);
            due += *free_at - now;
        }
        let is_late = self.chance.percent(weather.late_percent);
        if is_late {
            due += weather.late_by;
        }
        self.taken += 1;
        self.packets.push(Reverse((due, self.taken, packet)));
        if is_late { Fate::Late } else { Fate::Goes }
    }

    fn next_at(&self) -> Option<Instant> {
        self.packets.peek().map(|Reverse((due, ..))| *due)
    }

    fn give(&mut self, now: Instant) -> Option<Vec<u8>> {
        self.next_at().filter(|due| *due <= now)?;
        self.packets.pop().map(|Reverse((.., packet))| packet)
    }
}

/// The packet as the other end gets it, and whether it comes from `HERE`. The third byte of each
/// address says whose it is: 0 is here, 1 there, and 2 more is how the other one is called. One
/// goes up by as much as the other goes down, so the sums over both stay what they were.
fn turned(packet: &[u8]) -> Option<(bool, Vec<u8>)> {
    let is_version_4 = packet.first().is_some_and(|byte| byte >> 4 == 4);
    let from = packet.get(12..16)?;
    let is_outward = from == HERE.octets();
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
    use crate::{ACROSS, THERE};

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
        let sent = packet(HERE.octets(), ACROSS.octets());
        let (is_outward, came) = turned(&sent).unwrap();
        assert!(is_outward);
        assert_eq!(came[16..20], THERE.octets());
        assert_eq!(sum(&sent), sum(&came));
        let answer = packet(THERE.octets(), came[12..16].try_into().unwrap());
        let (is_outward, came) = turned(&answer).unwrap();
        assert!(!is_outward);
        assert_eq!(came[12..20], packet(ACROSS.octets(), HERE.octets())[12..20]);
        assert_eq!(sum(&answer), sum(&came));
    }

    /// What arrives, of bytes 0, 1, 2 and so on that are said every millisecond, and when.
    fn arrivals(weather: Weather, count: u8) -> Vec<(u8, u64)> {
        let from = Instant::now();
        let mut under_way = UnderWay::new(1, from);
        let mut came = Vec::new();
        for ms in 0..2000 {
            let now = from + Duration::from_millis(ms);
            if ms < u64::from(count) {
                under_way.take(true, vec![ms as u8; 100], weather, now);
            }
            while let Some(packet) = under_way.give(now) {
                came.push((packet[0], ms));
            }
        }
        came
    }

    #[test]
    fn packets_are_late_lost_overtaken_and_slowed_down_as_the_weather_says() {
        let fair = Weather { delay: Duration::from_millis(100), ..Weather::default() };
        let in_time: Vec<(u8, u64)> = (0..200).map(|at| (at, u64::from(at) + 100)).collect();
        assert_eq!(arrivals(fair, 200), in_time);
        let came = arrivals(Weather { loss_percent: 10.0, ..fair }, 200);
        assert!((170..190).contains(&came.len()), "{}", came.len());
        assert!(came.iter().all(|one| in_time.contains(one)));
        let late_by = Duration::from_millis(5);
        let came = arrivals(Weather { late_percent: 10.0, late_by, ..fair }, 200);
        let overtaken = came.windows(2).filter(|pair| pair[0].0 > pair[1].0).count();
        assert!(came.len() == 200 && (10..30).contains(&overtaken), "{came:?}");
        // Ten milliseconds for each, and half a second's worth may wait.
        let came = arrivals(Weather { bytes_per_s: 10_000, ..fair }, 200);
        assert!(came.windows(2).all(|pair| pair[1].1 - pair[0].1 == 10), "{came:?}");
        assert!((50..75).contains(&came.len()), "{}", came.len());
        assert!(arrivals(Weather { is_cut: true, ..fair }, 200).is_empty());
    }

    #[test]
    fn what_is_no_packet_of_the_line_goes_nowhere() {
        assert!(turned(&[]).is_none());
        assert!(turned(&[0x45; 19]).is_none());
        assert!(turned(&packet(HERE.octets(), THERE.octets())).is_none());
        assert!(turned(&packet([198, 18, 200, 1], ACROSS.octets())).is_none());
        let mut newer = packet(HERE.octets(), ACROSS.octets());
        newer[0] = 0x60;
        assert!(turned(&newer).is_none());
    }
}
