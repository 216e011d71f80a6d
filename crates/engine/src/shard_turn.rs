//! A shard of the broker during a turn: input goes in with the time of the turn, and output comes
//! out as one [`Outbox`], whose messages to other shards leave by the rings.

use crate::clock::SystemClock;
use crate::ring::ShardRings;
use broker::{
    BrokerEvent, BrokerOptions, ConnId, Effect, MonotonicMs, Outbox, PeerAddress, ProcessPause,
    RecordChange, RecordSpace, Refusal, Shard, ShardId, ShardInput,
};
use std::sync::Arc;
use std::time::Instant;

pub(crate) type EventLogger = Arc<dyn Fn(&BrokerEvent) + Send + Sync>;

pub(crate) struct ShardTurn {
    id: ShardId,
    shard: Shard,
    rings: ShardRings,
    clock: SystemClock,
    log: EventLogger,
    out: Outbox,
    now: MonotonicMs,
    /// Work done since the last [`ShardTurn::take_work`].
    work: u64,
}

/// Outcome of bytes passed to the shard, besides the number consumed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BytesOutcome {
    has_deliveries: bool,
    moves: bool,
}

impl BytesOutcome {
    /// Whether the bytes caused a delivery.
    #[inline]
    pub(crate) fn has_deliveries(self) -> bool {
        self.has_deliveries
    }

    /// Whether the connection moves to another shard, which reads on.
    #[inline]
    pub(crate) fn moves(self) -> bool {
        self.moves
    }
}

/// Capacity of an outbox lane, in messages, up to which the lane keeps its memory.
const LANE_KEPT: usize = 64;
/// Work of one delivered message, as a number of received bytes of about the same cost.
const WORK_OF_DELIVERY: u64 = 16;
/// Pauses of at least so many milliseconds are logged by shard 0.
const LOGGED_PAUSE_MS: u64 = 2_000;

impl ShardTurn {
    pub(crate) fn new(
        id: ShardId,
        shard: Shard,
        rings: ShardRings,
        clock: SystemClock,
        log: EventLogger,
    ) -> ShardTurn {
        let out = Outbox::new(rings.shards());
        ShardTurn { id, shard, rings, clock, log, out, now: MonotonicMs::default(), work: 0 }
    }

    pub(crate) fn id(&self) -> ShardId {
        self.id
    }

    #[inline]
    pub(crate) fn now(&self) -> MonotonicMs {
        self.now
    }

    pub(crate) fn clock(&self) -> &SystemClock {
        &self.clock
    }

    /// The shard, to ask for its state; input goes through [`ShardTurn::handle`].
    #[inline]
    pub(crate) fn shard(&self) -> &Shard {
        &self.shard
    }

    pub(crate) fn options(&self) -> &BrokerOptions {
        self.shard.options()
    }

    #[inline]
    pub(crate) fn rings(&self) -> &ShardRings {
        &self.rings
    }

    #[inline]
    pub(crate) fn rings_mut(&mut self) -> &mut ShardRings {
        &mut self.rings
    }

    pub(crate) fn log(&self, event: &BrokerEvent) {
        (self.log)(event);
    }

    /// Sets the time of the turn, and passes the offset of the time of day to the shard. Shard 0
    /// logs a step and stores a clock record.
    pub(crate) fn begin(&mut self, moment: Instant) {
        self.now = self.clock.at(moment);
        let Some(by_ms) = self.shard.set_time_of_day(self.clock.time_of_day_offset_ms()) else {
            return;
        };
        if self.id == ShardId(0) {
            self.keep_clock();
            self.log(&BrokerEvent::TimeOfDayStepped { by_ms });
        }
    }

    #[inline]
    pub(crate) fn handle(&mut self, input: ShardInput<'_>) {
        self.shard.handle(self.now, input, &mut self.out);
    }

    /// Fires the timers of the shard, if any is due.
    pub(crate) fn tick(&mut self) {
        if self.shard.next_tick().is_some_and(|at| at <= self.now) {
            self.handle(ShardInput::Tick);
        }
    }

    /// Passes received bytes to the shard. [`ShardTurn::consumed`] has the number of bytes taken.
    #[inline]
    pub(crate) fn consume_bytes(&mut self, conn: ConnId, bytes: &[u8]) -> BytesOutcome {
        let before = self.out.deliveries;
        let decided = self.out.effects.len();
        self.handle(ShardInput::Bytes { conn, bytes });
        let has_deliveries = self.out.deliveries > before;
        let moves = matches!(self.out.effects.get(decided), Some(Effect::Move { .. }));
        BytesOutcome { has_deliveries, moves }
    }

    /// Number of bytes consumed by the last [`ShardTurn::consume_bytes`].
    #[inline]
    pub(crate) fn consumed(&self) -> usize {
        self.out.consumed
    }

    /// Whether the outbox takes no more output in this turn.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.out.is_full()
    }

    /// Whether the outbox has output to perform; messages to other shards do not count.
    pub(crate) fn has_output(&self) -> bool {
        !self.out.is_empty()
    }

    /// Adds consumed bytes to the work of the turn.
    #[inline]
    pub(crate) fn count_consumed(&mut self, bytes: usize) {
        self.work += bytes as u64;
    }

    /// Returns the work since the last call: consumed bytes, and [`WORK_OF_DELIVERY`] for each
    /// delivery.
    pub(crate) fn take_work(&mut self) -> u64 {
        std::mem::take(&mut self.work)
    }

    /// Whether connections from `address` are banned. The refusal is counted and logged.
    pub(crate) fn refuse_banned_address(&mut self, address: PeerAddress) -> bool {
        self.shard.refuse_banned_address(self.now, address, &mut self.out)
    }

    pub(crate) fn note_refused_connection(&mut self, address: PeerAddress, refusal: Refusal) {
        self.shard.note_refused_connection(self.now, address, refusal, &mut self.out);
    }

    /// Reports the memory held by the sockets of the shard.
    pub(crate) fn set_socket_bytes(&mut self, bytes: usize) {
        self.shard.set_socket_bytes(bytes);
    }

    /// Bytes which the sockets hold above their share of the memory.
    pub(crate) fn socket_bytes_excess(&mut self) -> usize {
        self.shard.socket_bytes_excess()
    }

    /// Whether the sockets hold more than their share of the memory.
    pub(crate) fn are_sockets_over_budget(&mut self) -> bool {
        self.shard.are_sockets_over_budget()
    }

    /// Ends the catch-up after a pause: all received bytes are read, and the shard extends
    /// deadlines which passed during the pause.
    pub(crate) fn note_pause(&mut self, pause: ProcessPause) {
        self.shard.note_pause(pause);
        let ms = pause.until.0 - pause.from.0;
        if ms >= LOGGED_PAUSE_MS && self.id == ShardId(0) {
            self.log(&BrokerEvent::ProcessPaused { ms });
        }
    }
}

/// The way to the store.
impl ShardTurn {
    /// Stores a clock record with the records of the turn.
    pub(crate) fn keep_clock(&mut self) {
        self.shard.keep_clock(&self.clock.reading());
    }

    /// Stores a clock record if one is due and no other shard has stored it.
    pub(crate) fn keep_due_clock(&mut self) {
        if self.clock.claim_clock_record(self.now, self.shard.has_records()) {
            self.keep_clock();
        }
    }

    pub(crate) fn take_records(&mut self) -> (Vec<RecordChange>, bool) {
        self.shard.take_records()
    }

    pub(crate) fn set_store_full(&mut self, is_full: bool) {
        self.shard.set_store_full(is_full);
    }

    /// Reports the backlog of the store; `parked_bytes` is the memory of refused records.
    pub(crate) fn note_backlog(&mut self, is_backlogged: bool, parked_bytes: usize) {
        self.shard.set_store_backlog_bytes(parked_bytes);
        self.shard.set_store_backlogged(self.now, is_backlogged, &mut self.out);
    }

    /// Holds messages back whose records the store refuses, by `is_parked`.
    pub(crate) fn hold_unwritten(&mut self, is_parked: impl Fn(RecordSpace, &[u8]) -> bool) {
        self.out.hold_unwritten(is_parked);
    }

    /// Lets messages go which were held back, once the store has taken all records.
    pub(crate) fn release_held(&mut self) {
        let shard = &self.shard;
        self.out.release_held(|cross| shard.update_late_message(cross));
    }
}

/// The output of the turn.
impl ShardTurn {
    /// Whether messages for other shards wait in the lanes. Without any, the lanes are noted as
    /// empty.
    pub(crate) fn has_lane_messages(&mut self) -> bool {
        let is_empty = self.out.lanes.iter().all(|lane| lane.is_empty());
        if is_empty {
            self.out.note_lane_lengths();
        }
        !is_empty
    }

    /// Moves the messages for other shards from the lanes into the rings, as many as fit, and wakes
    /// the receivers. Returns whether a ring or a lane is larger than usual.
    pub(crate) fn push_lanes(&mut self, on_worker: bool) -> bool {
        let mut is_large = false;
        for (to, lane) in self.out.lanes.iter_mut().enumerate() {
            if lane.is_empty() {
                continue;
            }
            let Some(is_grown) = self.rings.push_messages(to, lane, on_worker) else { continue };
            is_large |= is_grown || lane.capacity() > LANE_KEPT;
        }
        self.out.note_lane_lengths();
        is_large
    }

    /// Takes the outbox to perform it, with the writes traced if the shard traces.
    pub(crate) fn take_outbox(&mut self) -> Outbox {
        if self.shard.is_tracing() {
            self.shard.trace_writes(&mut self.out);
        }
        std::mem::take(&mut self.out)
    }

    /// Returns the performed outbox, for the next turn.
    pub(crate) fn return_outbox(&mut self, mut out: Outbox) {
        self.rings.note_blocked(out.lanes.iter().any(|lane| !lane.is_empty()));
        self.work += out.deliveries as u64 * WORK_OF_DELIVERY;
        out.clear();
        self.out = out;
    }

    /// Whether the buffer of the outbox is larger than `kept` bytes.
    pub(crate) fn has_large_arena(&self, kept: usize) -> bool {
        self.out.arena.capacity() > kept
    }

    /// Whether a ring or a lane is larger than usual.
    pub(crate) fn has_large_lanes(&self) -> bool {
        self.rings.are_grown() || self.out.is_large(LANE_KEPT)
    }

    /// Frees the memory of the outbox and of the rings that a burst has left behind.
    pub(crate) fn free_buffers(&mut self) {
        self.rings.shrink();
        self.out.free_buffers(LANE_KEPT);
    }
}
