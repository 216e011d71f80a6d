//! MQTT 3.1, 3.1.1 and 5.0: bytes to packets and back, in one path.
//!
//! No I/O, no clock, no thread: a function of its arguments. Decoding borrows from the bytes it is
//! given and allocates nothing; every length is checked before it is used. The version is data:
//! 3.1.1 is MQTT 5 without properties and with fewer reason codes, and only `decode` and `encode`
//! know the difference.
#![forbid(unsafe_code)]

pub mod encode;
pub mod filters;
pub mod frame;
pub mod packet;
pub mod property;
pub mod reason_code;
pub mod text;
pub mod topic;
pub mod violation;

mod decode;
mod display;

pub use display::TextExcerpt;
pub use encode::{PINGREQ, PINGRESP, encode_remaining_len, varint_len};
pub use filters::{FilterListBuf, SubscriptionListBuf};
pub use frame::{PacketFrame, expected_len, split_frame};
pub use packet::*;
pub use property::{Properties, PropertiesBuf, Property};
pub use reason_code::ReasonCode;
pub use topic::{SharedFilter, filter_matches};
pub use violation::Violation;
