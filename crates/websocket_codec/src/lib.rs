//! Frames of WebSocket (RFC 6455, 5), sans I/O, for either side. [`FrameDecoder`] takes them off a
//! stream in place, [`MessageDecoder`] reads whole messages, and [`write_frame`] writes them.
//!
//! Invariants: nothing is kept of a frame whose length was not checked before, and the result does
//! not depend on the pieces in which the bytes arrive.

#![forbid(unsafe_code)]

mod close;
mod frame;
mod message_decoder;
mod stream_decoder;
#[cfg(test)]
mod tests;

pub use close::{CloseStatus, write_close};
pub use frame::{
    CONTROL_BYTES_MAX, FrameError, FrameHeader, FrameOpcode, FrameRules, HEADER_BYTES_MAX,
    HEADER_ROOM, apply_mask, header_len, wrap_in_place, write_frame,
};
pub use message_decoder::{MessageDecoder, MessageProgress};
pub use stream_decoder::{FrameDecoder, StreamProgress};
