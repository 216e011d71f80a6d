//! The results of a tick. The broker writes only to the [`Outbox`]; the engine performs it once.
//!
//! Bytes for a connection are a [`ConnWrite`]: its own bytes with ranges of the tick's shared arena
//! inserted between them. A message to many receivers in the same wire form is encoded once into
//! the arena, and each receiver's `ConnWrite` refers to the range. Adjacent ranges are merged, so a
//! subscriber of a whole topic ends the tick with a single range.

use crate::broker_event::BrokerEvent;
use crate::ids::{ArenaRange, ConnId, RequestId, ShardId};
use crate::interface::authz::AuthzRequest;
use crate::interface::input::ShardMessage;
use crate::interface::store_access::{RecordSpace, StoreReadRequest, queue_key};
use crate::limits;
use crate::peer::PeerInfo;
use crate::peer::authentication::AuthRequest;
use std::collections::VecDeque;

/// A range of the arena, inserted before byte `at` of the connection's own bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct WriteSegment {
    at: u32,
    range: ArenaRange,
}

impl WriteSegment {
    const EMPTY: WriteSegment = WriteSegment { at: 0, range: ArenaRange { start: 0, end: 0 } };
}

/// The bytes for a connection in this tick. The size is one cache line, since a message to a
/// thousand subscribers touches a thousand `ConnWrite`s.
#[repr(align(64))]
#[derive(Debug)]
pub struct ConnWrite {
    pub conn: ConnId,
    /// The last segment. An empty range stands for "no segment yet".
    last: WriteSegment,
    pub own: Vec<u8>,
    segments: Vec<WriteSegment>,
}

const _: () = assert!(size_of::<ConnWrite>() == 64 || size_of::<usize>() != 8);

impl ConnWrite {
    pub(crate) fn new(conn: ConnId) -> ConnWrite {
        ConnWrite { conn, last: WriteSegment::EMPTY, own: Vec::new(), segments: Vec::new() }
    }

    /// Appends a range of the arena. A range which continues the last segment is merged with it.
    #[inline]
    pub fn push_shared(&mut self, range: ArenaRange) {
        let at = self.own.len() as u32;
        if self.last.at == at && self.last.range.end == range.start {
            self.last.range.end = range.end;
            return;
        }
        if self.last.range.len() > 0 {
            self.segments.push(self.last);
        }
        self.last = WriteSegment { at, range };
    }

    fn segments(&self) -> impl Iterator<Item = &WriteSegment> {
        self.segments.iter().chain(Some(&self.last).filter(|last| last.range.len() > 0))
    }

    pub fn len(&self) -> usize {
        let shared: usize = self.segments().map(|segment| segment.range.len()).sum();
        self.own.len() + shared
    }

    pub fn is_empty(&self) -> bool {
        self.own.is_empty() && self.last.range.len() == 0
    }

    /// Returns the slices to write, in order. `arena` is the `Outbox::arena` of the same tick.
    pub fn slices<'a>(&'a self, arena: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        let mut from = 0;
        let shared = self.segments().flat_map(move |segment| {
            let own = &self.own[from..segment.at as usize];
            from = segment.at as usize;
            [own, &arena[segment.range.start as usize..segment.range.end as usize]]
        });
        shared.chain([&self.own[self.last.at as usize..]]).filter(|slice| !slice.is_empty())
    }

    /// Upper bound of the number of `slices`, in constant time.
    pub fn slices_max(&self) -> usize {
        2 * self.segments.len() + 3
    }

    fn clear(&mut self) {
        self.last = WriteSegment::EMPTY;
        self.own.clear();
        self.segments.clear();
        if self.own.capacity() > OWN_BYTES_KEPT {
            self.own = Vec::new();
        }
        if self.segments.capacity() > SEGMENTS_KEPT {
            self.segments = Vec::new();
        }
    }
}

/// An action which the engine performs after the writes of the tick.
#[derive(Debug, PartialEq, Eq)]
pub enum Effect {
    /// Close the connection after its last write. `conn` is free afterwards: no
    /// `ShardInput::Closed` follows.
    Close {
        conn: ConnId,
    },
    /// Hand the transport to another shard, with `peer` and all bytes that were not consumed (the
    /// CONNECT included). `conn` is free afterwards.
    Move {
        conn: ConnId,
        shard: ShardId,
        peer: PeerInfo,
    },
    /// Stop reading from this connection until `Resume`.
    Hold {
        conn: ConnId,
    },
    Resume {
        conn: ConnId,
    },
    /// Ask the authenticator whether this client may connect. The answer is
    /// `ShardInput::AuthDecided` with the same `case`. The connection is held until then, at most
    /// for `BrokerOptions::verdict_timeout_ms`.
    Authenticate {
        conn: ConnId,
        case: u32,
        request: Box<AuthRequest>,
    },
    /// Ask the authorizer for a decision. The answer is `ShardInput::AuthzAnswered` with the same
    /// `request_id`. The connection is held until then, at most for
    /// `BrokerOptions::verdict_timeout_ms`.
    Authorize {
        request_id: RequestId,
        question: Box<AuthzRequest>,
    },
    /// Answer with `ShardInput::StoreReady`, which lends the store for reading.
    ReadStore {
        reading: StoreReadRequest,
    },
}

/// The results of a tick: bytes to write, effects, messages to shards (`lanes`) and events. The
/// engine performs all but the lanes, then calls `clear`.
#[derive(Debug, Default)]
pub struct Outbox {
    pub arena: Vec<u8>,
    writes: Vec<ConnWrite>,
    writes_len: usize,
    pub effects: Vec<Effect>,
    /// Messages to each shard, in order. The engine moves messages from the front into the rings.
    pub lanes: Vec<VecDeque<ShardMessage>>,
    /// For each lane, the messages which wait until the store has written their record.
    held: Vec<VecDeque<ShardMessage>>,
    /// Number of messages at the front of each lane which found no room in the ring. `release_held`
    /// inserts the held messages behind them and before all later messages.
    left: Vec<usize>,
    pub events: Vec<BrokerEvent>,
    /// Number of bytes that the last `ShardInput::Bytes` consumed.
    pub consumed: usize,
    pub deliveries: usize,
    /// Steps of retained cursors and cache requests in this turn: see
    /// `limits::CURSOR_STEPS_PER_TURN`.
    pub cursor_steps: u32,
    bytes: usize,
}

impl Outbox {
    pub fn new(shards: usize) -> Outbox {
        Outbox { lanes: (0..shards).map(|_| Default::default()).collect(), ..Outbox::default() }
    }

    /// Holds messages back while the store refuses a batch; `waits` returns whether a key is in the
    /// refused batch. A `ShardMessage` with such a key as its origin stays here: its receiver could
    /// delete the record before the record is written, and the record would then stay for ever.
    pub fn hold_unwritten(&mut self, waits: impl Fn(RecordSpace, &[u8]) -> bool) {
        self.held.resize_with(self.lanes.len(), VecDeque::new);
        self.left.resize(self.lanes.len(), 0);
        for ((lane, held), left) in self.lanes.iter_mut().zip(&mut self.held).zip(&mut self.left) {
            let before = std::mem::take(left);
            for (at, cross) in std::mem::take(lane).into_iter().enumerate() {
                let stays = cross.origin().is_some_and(|place| {
                    waits(RecordSpace::Queues, &queue_key(place.number, place.position))
                });
                if stays {
                    held.push_back(cross);
                } else {
                    *left += usize::from(at < before);
                    lane.push_back(cross);
                }
            }
        }
    }

    /// Puts held messages back into the lanes, changed by `late`, once the store has taken all
    /// writes.
    pub fn release_held(&mut self, late: impl Fn(ShardMessage) -> ShardMessage) {
        let left = self.left.iter().copied().chain(std::iter::repeat(0));
        for ((lane, held), left) in self.lanes.iter_mut().zip(self.held.drain(..)).zip(left) {
            let mut new = lane.split_off(left.min(lane.len()));
            lane.extend(held.into_iter().map(&late));
            lane.append(&mut new);
        }
    }

    /// Records the lengths of the lanes after the engine has filled the rings.
    pub fn note_lane_lengths(&mut self) {
        self.left.clear();
        self.left.extend(self.lanes.iter().map(VecDeque::len));
    }

    /// Whether the tick has reached its bound of deliveries or bytes.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.deliveries >= limits::OUTBOX_DELIVERIES_MAX
            || self.arena.len() + self.bytes >= limits::OUTBOX_BYTES_MAX
    }

    pub fn is_empty(&self) -> bool {
        self.writes_len == 0 && self.effects.is_empty() && self.events.is_empty()
    }

    /// Adds bytes which `is_full` counts in addition to the arena's.
    #[inline]
    pub fn count_bytes(&mut self, bytes: usize) {
        self.bytes += bytes;
    }

    pub fn writes(&self) -> &[ConnWrite] {
        &self.writes[..self.writes_len]
    }

    /// Returns the `ConnWrite` of a connection in this tick. `slot` is the caller's cache of the
    /// index: it is checked here, and outdated from the next tick on.
    #[inline]
    pub fn write(&mut self, conn: ConnId, slot: &mut u32) -> &mut ConnWrite {
        let index = *slot as usize;
        if index < self.writes_len && self.writes[index].conn == conn {
            return &mut self.writes[index];
        }
        *slot = self.writes_len as u32;
        if self.writes_len == self.writes.len() {
            self.writes.push(ConnWrite::new(conn));
        }
        let write = &mut self.writes[self.writes_len];
        write.conn = conn;
        self.writes_len += 1;
        write
    }

    /// Frees the memory of empty buffers after a burst. Lanes of at most `lane_kept` capacity stay.
    pub fn free_buffers(&mut self, lane_kept: usize) {
        let all = self.lanes.iter_mut().chain(&mut self.held);
        for lane in all.filter(|lane| lane.is_empty() && lane.capacity() > lane_kept) {
            *lane = VecDeque::new();
        }
        if self.writes_len == 0 {
            (self.writes, self.arena) = (Vec::new(), Vec::new());
        }
        if self.effects.is_empty() && self.events.is_empty() {
            (self.effects, self.events) = (Vec::new(), Vec::new());
        }
    }

    /// Whether a lane has more capacity than `lane_kept`.
    pub fn is_large(&self, lane_kept: usize) -> bool {
        self.lanes.iter().any(|lane| lane.capacity() > lane_kept)
    }

    /// Empties the outbox once the engine has performed everything but the lanes. Buffers stay for
    /// the next tick, except those which a burst made large.
    pub fn clear(&mut self) {
        self.writes[..self.writes_len].iter_mut().for_each(ConnWrite::clear);
        if self.writes.len() > WRITES_KEPT {
            self.writes.truncate(WRITES_KEPT);
        }
        self.arena.clear();
        if self.arena.capacity() > 2 * limits::OUTBOX_BYTES_MAX {
            self.arena = Vec::new();
        }
        self.writes_len = 0;
        self.effects.clear();
        self.events.clear();
        self.deliveries = 0;
        self.cursor_steps = 0;
        self.bytes = 0;
    }
}

const OWN_BYTES_KEPT: usize = 64 * 1024;
const SEGMENTS_KEPT: usize = 1024;
const WRITES_KEPT: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{MonotonicMs, QueueRecordId, RecordNumber};
    use crate::message::{IncomingPublish, Message};

    fn word(ticket: u64, origin: Option<QueueRecordId>) -> ShardMessage {
        ShardMessage::Publish {
            message: Message::new(&IncomingPublish::new("t", b"", MonotonicMs(0))),
            ticket,
            origin,
        }
    }

    fn tickets(lane: &VecDeque<ShardMessage>) -> Vec<u64> {
        let ticket = |cross: &ShardMessage| match cross {
            ShardMessage::Publish { ticket, .. } => *ticket,
            _ => 0,
        };
        lane.iter().map(ticket).collect()
    }

    #[test]
    fn what_was_held_comes_behind_what_the_ring_had_no_room_for() {
        let mut out = Outbox::new(1);
        out.lanes[0].push_back(word(1, None));
        out.note_lane_lengths();
        let parked = QueueRecordId { number: RecordNumber(1), position: 1 };
        out.lanes[0].extend([word(2, Some(parked)), word(3, None)]);
        out.hold_unwritten(|_, _| true);
        assert_eq!(tickets(&out.lanes[0]), [1, 3]);
        out.note_lane_lengths();
        out.lanes[0].push_back(word(4, None));
        out.release_held(|cross| cross);
        assert_eq!(tickets(&out.lanes[0]), [1, 3, 2, 4]);
    }
}
