//! Deliveries of a stream to a consumer: in order, missing, late or duplicate, counted exactly.
//!
//! Invariant: every sequence number below `next` was received, is part of a hole, or counts in
//! `forgotten`.

use crate::limits::HOLES_MAX;
use std::ops::Range;

#[derive(Clone, Debug)]
pub(crate) struct StreamTrack {
    pub(crate) stream: u32,
    first: u32,
    next: u32,
    /// Present only after a fault: most tracks never need the memory.
    faults: Option<Box<TrackFaults>>,
}

#[derive(Clone, Debug, Default)]
struct TrackFaults {
    /// Ranges of missing sequence numbers, ascending.
    holes: Vec<Range<u32>>,
    /// Missing sequence numbers of holes that were dropped above `HOLES_MAX`.
    forgotten: u64,
    duplicates: u64,
    late: u64,
}

/// Sums over the tracks of several streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TrackTotals {
    /// Received messages without duplicates.
    pub(crate) received: u64,
    /// Sequence numbers below the highest received number that never arrived.
    pub(crate) holes: u64,
    pub(crate) duplicates: u64,
    /// Messages that arrived after a message that was sent later.
    pub(crate) reordered: u64,
}

impl StreamTrack {
    /// Starts a track. A consumer that subscribed before the first message expects numbers from 0
    /// (`first`); a later consumer starts with the first number received.
    pub(crate) fn new(stream: u32, first: u32) -> StreamTrack {
        StreamTrack { stream, first, next: first, faults: None }
    }

    #[inline]
    pub(crate) fn receive(&mut self, seq: u32) {
        if seq == self.next {
            self.next = seq.wrapping_add(1);
        } else {
            self.receive_out_of_order(seq);
        }
    }

    fn receive_out_of_order(&mut self, seq: u32) {
        let trouble = self.faults.get_or_insert_default();
        if seq > self.next {
            trouble.holes.push(self.next..seq);
            if trouble.holes.len() > HOLES_MAX {
                let oldest = trouble.holes.remove(0);
                trouble.forgotten += u64::from(oldest.end - oldest.start);
            }
            self.next = seq.wrapping_add(1);
            return;
        }
        // Most late messages are only slightly late: search the last hole that begins at or before.
        let at = trouble.holes.partition_point(|hole| hole.start <= seq);
        match at.checked_sub(1).map(|at| (at, trouble.holes[at].clone())) {
            Some((at, hole)) if hole.contains(&seq) => {
                trouble.late += 1;
                let rest = [hole.start..seq, seq + 1..hole.end];
                trouble.holes.splice(at..=at, rest.into_iter().filter(|part| !part.is_empty()));
            }
            _ => trouble.duplicates += 1,
        }
    }

    pub(crate) fn totals(&self) -> TrackTotals {
        let trouble = self.faults.as_deref();
        let holes = trouble.map_or(0, |trouble| {
            let kept = trouble.holes.iter().map(|hole| u64::from(hole.end - hole.start));
            kept.sum::<u64>() + trouble.forgotten
        });
        TrackTotals {
            received: u64::from(self.next - self.first) - holes,
            holes,
            duplicates: trouble.map_or(0, |trouble| trouble.duplicates),
            reordered: trouble.map_or(0, |trouble| trouble.late),
        }
    }
}

impl std::ops::AddAssign for TrackTotals {
    fn add_assign(&mut self, other: TrackTotals) {
        self.received += other.received;
        self.holes += other.holes;
        self.duplicates += other.duplicates;
        self.reordered += other.reordered;
    }
}

/// For each stream that a consumer receives, the received sequence numbers; ascending by stream. A
/// stream is the messages of one publisher.
#[derive(Clone, Debug, Default)]
pub(crate) struct StreamTracks {
    tracks: Vec<StreamTrack>,
    /// Index of the last message's track: the next message is often from the same publisher or the
    /// following publisher.
    last: usize,
}

impl StreamTracks {
    #[inline]
    pub(crate) fn receive(&mut self, stream: u32, seq: u32, first: Option<u32>) {
        for at in [self.last, self.last + 1] {
            if let Some(track) = self.tracks.get_mut(at).filter(|track| track.stream == stream) {
                self.last = at;
                return track.receive(seq);
            }
        }
        self.last = match self.tracks.binary_search_by_key(&stream, |track| track.stream) {
            Ok(at) => at,
            Err(at) => {
                self.tracks.insert(at, StreamTrack::new(stream, first.unwrap_or(seq)));
                at
            }
        };
        self.tracks[self.last].receive(seq);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &StreamTrack> {
        self.tracks.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tracked(seqs: &[u32]) -> TrackTotals {
        let mut tracks = StreamTracks::default();
        seqs.iter().for_each(|&seq| tracks.receive(5, seq, Some(0)));
        tracks.iter().next().expect("one stream").totals()
    }

    #[test]
    fn order_without_loss_is_no_trouble() {
        let expected = TrackTotals { received: 4, ..TrackTotals::default() };
        assert_eq!(tracked(&[0, 1, 2, 3]), expected);
    }

    #[test]
    fn what_never_came_is_a_hole_from_the_first_number_on() {
        let expected = TrackTotals { received: 2, holes: 4, ..TrackTotals::default() };
        assert_eq!(tracked(&[1, 5]), expected);
    }

    #[test]
    fn late_is_reordered_and_fills_its_hole() {
        let expected = TrackTotals { received: 6, reordered: 3, ..TrackTotals::default() };
        assert_eq!(tracked(&[0, 5, 2, 1, 3]).holes, 1);
        assert_eq!(tracked(&[4, 5, 2, 3, 0, 1]), TrackTotals { reordered: 4, ..expected });
        assert_eq!(tracked(&[0, 4, 2, 1, 3, 5]), expected);
    }

    #[test]
    fn twice_is_a_duplicate_however_late() {
        let expected = TrackTotals { received: 3, duplicates: 3, ..TrackTotals::default() };
        assert_eq!(tracked(&[0, 0, 1, 2, 1, 0]), expected);
        // A late message that arrives twice is late once and a duplicate once.
        let expected =
            TrackTotals { received: 3, duplicates: 1, reordered: 1, ..TrackTotals::default() };
        assert_eq!(tracked(&[0, 2, 1, 1]), expected);
    }

    #[test]
    fn holes_above_the_bound_stay_lost() {
        let count = HOLES_MAX as u32 + 100;
        let every_second: Vec<u32> = (0..count).map(|at| at * 2 + 1).collect();
        let expected =
            TrackTotals { received: count.into(), holes: count.into(), ..TrackTotals::default() };
        assert_eq!(tracked(&every_second), expected);
    }

    #[test]
    fn who_came_later_misses_nothing_from_before() {
        let mut tracks = StreamTracks::default();
        for seq in [70, 71, 73] {
            tracks.receive(1, seq, None);
        }
        let expected = TrackTotals { received: 3, holes: 1, ..TrackTotals::default() };
        assert_eq!(tracks.iter().next().expect("one stream").totals(), expected);
    }

    #[test]
    fn streams_are_kept_apart_in_any_order_of_arrival() {
        let mut tracks = StreamTracks::default();
        for seq in 0..10 {
            for stream in [9, 3, 7, 1, 4] {
                tracks.receive(stream, seq, Some(0));
            }
        }
        let all: Vec<u64> = tracks.iter().map(|track| track.totals().received).collect();
        assert_eq!(all, [10; 5]);
    }
}
