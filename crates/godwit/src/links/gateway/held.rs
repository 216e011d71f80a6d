//! PUBLISHes of the session here that find no room among sockets, in their order. They stand aside
//! so that what this broker acknowledges behind them is heard: sockets that talk until they are
//! heard, and read only then, would wait for it.
//!
//! Invariant: beyond `HELD_BYTES_MAX` nothing is held but what the session's Receive Maximum lets
//! come with QoS 1.

use std::collections::VecDeque;

#[derive(Default)]
pub(super) struct Held {
    frames: VecDeque<Box<[u8]>>,
    bytes: usize,
}

const HELD_BYTES_MAX: usize = 256 * 1024;
/// What one costs beside its bytes.
const FRAME_BYTES: usize = 32;

impl Held {
    pub(super) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.bytes >= HELD_BYTES_MAX
    }

    /// A whole packet.
    pub(super) fn push(&mut self, frame: &[u8]) {
        self.bytes += cost(frame);
        self.frames.push_back(frame.into());
    }

    pub(super) fn pop(&mut self) -> Option<Box<[u8]>> {
        let frame = self.frames.pop_front()?;
        self.bytes -= cost(&frame);
        Some(frame)
    }

    /// The session sends again what has a QoS; the others nobody else has.
    pub(super) fn forget_what_comes_again(&mut self) {
        self.frames.retain(|frame| !has_qos(frame));
        self.bytes = self.frames.iter().map(|frame| cost(frame)).sum();
    }

    /// Says how many of them nobody has now.
    pub(super) fn forget(&mut self) -> usize {
        self.forget_what_comes_again();
        self.bytes = 0;
        std::mem::take(&mut self.frames).len()
    }
}

fn cost(frame: &[u8]) -> usize {
    frame.len() + FRAME_BYTES
}

/// [MQTT-3.3.1]: bits 2 and 1 of a PUBLISH's first byte.
fn has_qos(frame: &[u8]) -> bool {
    frame.first().is_some_and(|first| first & 0x06 != 0)
}
