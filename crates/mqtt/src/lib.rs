//! MQTT 3.1, 3.1.1 and 5.0: decodes and encodes packets, in one path for all versions, and the
//! client's half of the protocol.
//!
//! The crate is free of I/O, clocks and threads. Decoding borrows from its input and allocates
//! nothing; every length is checked before use. The version is data: 3.1.1 is MQTT 5 without
//! properties and with fewer reason codes, and only `decode` and `encode` know the difference.
#![forbid(unsafe_code)]

pub mod client;
pub mod encode;
pub mod filters;
pub mod frame;
pub mod packet;
pub mod property;
pub mod reason_code;
pub mod template;
pub mod text;
pub mod topic;
pub mod violation;

mod byte_reader;
mod decode;
mod display;

pub use byte_reader::ByteReader;
pub use display::TextExcerpt;
pub use encode::{PINGREQ, PINGRESP, encode_remaining_len, varint_len};
pub use filters::{FilterListBuf, SubscriptionListBuf};
pub use frame::{PacketFrame, expected_len, split_frame};
pub use packet::*;
pub use property::{Properties, PropertiesBuf, Property};
pub use reason_code::ReasonCode;
pub use topic::{SharedFilter, filter_matches};
pub use violation::Violation;
