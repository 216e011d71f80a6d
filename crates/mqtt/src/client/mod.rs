//! The client's half of the protocol, sans I/O: for bridges and other links, `godwit pub` and
//! `sub`, and tests. The load tester uses only [`ServerLimits`], to read CONNACK.
//!
//! [`ClientSession`] combines all parts: CONNECT and CONNACK, packet ids, acknowledgements in both
//! directions, topic aliases of the server, and the messages that the next connection sends again.
//! A client may also use single parts, for example if it takes its packet ids from elsewhere.
//! Packets arrive decoded and leave as values; the caller writes packets, waits, and supplies the
//! time.

mod aliases;
mod keep_alive;
mod packet_ids;
mod server_limits;
mod session;
mod unacknowledged;

pub use aliases::{IncomingAliases, OutgoingAliases, TopicAliasChoice};
pub use keep_alive::{KeepAlive, KeepAliveStep};
pub use packet_ids::PacketIds;
pub use server_limits::ServerLimits;
pub use session::{ClientSession, ConnAckFault, receipt, success_ack};
pub use unacknowledged::{AckOutcome, UnacknowledgedPacket, UnacknowledgedPackets};
