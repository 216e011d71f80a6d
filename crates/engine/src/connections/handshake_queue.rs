//! Sockets in a handshake, unknown to the broker, with their deadlines; and the bounds on what the
//! layers below MQTT may spend in one turn.

use broker::{MonotonicMs, ProcessPause};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Handshakes of a shard. A handshake costs a thousand times as much as the bytes it reads, so each
/// turn spends at most [`HANDSHAKES_PER_TURN`] on handshakes.
#[derive(Debug)]
pub(crate) struct HandshakeQueue {
    /// Sockets with their deadlines in order.
    waiting: VecDeque<(MonotonicMs, u32)>,
    connect_timeout_ms: u32,
    /// Time spent on handshakes in this turn.
    time: Duration,
    /// Bytes decoded by layers in this turn without yielding MQTT.
    layer_bytes: usize,
}

/// Time for handshakes in one turn; ready sockets beyond the bound are listed for the next turn.
const HANDSHAKES_PER_TURN: Duration = Duration::from_millis(1);
/// Bytes that layers may decode in one turn without yielding MQTT before all sockets with layers
/// have to wait. Frames of no or few bytes cost work without filling a tick with MQTT.
const LAYER_BYTES_PER_TURN: usize = 64 * 1024;

impl HandshakeQueue {
    pub(super) fn new(connect_timeout_ms: u32) -> HandshakeQueue {
        HandshakeQueue {
            waiting: VecDeque::new(),
            connect_timeout_ms,
            time: Duration::ZERO,
            layer_bytes: 0,
        }
    }

    pub(super) fn change_timeout(&mut self, connect_timeout_ms: u32) {
        self.connect_timeout_ms = connect_timeout_ms;
    }

    /// Deadline of a handshake that starts now.
    pub(super) fn deadline(&self, now: MonotonicMs) -> MonotonicMs {
        MonotonicMs(now.0 + u64::from(self.connect_timeout_ms))
    }

    pub(super) fn push(&mut self, until: MonotonicMs, index: u32) {
        self.waiting.push_back((until, index));
    }

    /// First socket of the queue with its deadline.
    pub(super) fn first(&self) -> Option<(MonotonicMs, u32)> {
        self.waiting.front().copied()
    }

    pub(super) fn pop(&mut self) {
        self.waiting.pop_front();
    }

    pub(super) fn take_all(&mut self) -> VecDeque<(MonotonicMs, u32)> {
        std::mem::take(&mut self.waiting)
    }

    /// Returns the deadline `until`, extended by the last pause of the process.
    pub(super) fn extend(&self, until: MonotonicMs, pause: ProcessPause) -> MonotonicMs {
        pause.extend(until, self.connect_timeout_ms)
    }

    /// First deadline of the queue, extended by the last pause of the process.
    pub(super) fn next_deadline(&self, pause: ProcessPause) -> Option<MonotonicMs> {
        self.first().map(|(until, _)| self.extend(until, pause))
    }

    /// Whether the time for handshakes in this turn is spent.
    pub(super) fn is_spent(&self) -> bool {
        self.time >= HANDSHAKES_PER_TURN
    }

    /// Whether twice the time for handshakes in this turn is spent, so that not even the datagrams
    /// of further handshakes are read.
    pub(super) fn is_overspent(&self) -> bool {
        self.time >= 2 * HANDSHAKES_PER_TURN
    }

    /// Counts the time since `began` for handshakes.
    pub(super) fn count_since(&mut self, began: Option<Instant>) {
        self.time += began.map_or(Duration::ZERO, |began| began.elapsed());
    }

    /// Counts the time of a handshake that has started, so that even the shortest one counts.
    pub(super) fn count_start(&mut self, began: Instant) {
        self.time += began.elapsed().max(Duration::from_micros(1));
    }

    /// Whether the layers have decoded so much without yielding MQTT that their sockets wait.
    pub(super) fn has_layer_excess(&self) -> bool {
        self.layer_bytes >= LAYER_BYTES_PER_TURN
    }

    pub(super) fn count_layer_bytes(&mut self, bytes: usize) {
        self.layer_bytes += bytes;
    }

    pub(super) fn end_turn(&mut self) {
        self.time = Duration::ZERO;
        self.layer_bytes = 0;
    }
}
