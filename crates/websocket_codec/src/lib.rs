//! WebSocket frames (RFC 6455, 5), sans I/O, for client and server. [`FrameDecoder`] decodes frames
//! of a stream in place, [`MessageDecoder`] reads whole messages, and [`write_frame`] writes
//! frames.
//!
//! Invariants: the decoders check the length of a frame before they buffer its payload, and the
//! result does not depend on how the bytes are split.

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
