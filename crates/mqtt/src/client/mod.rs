//! The client's half of the protocol, sans I/O: for whoever speaks to a broker.
//!
//! [`ClientSession`] is the whole of it: CONNECT and CONNACK, packet ids, acknowledgements of both
//! directions, topic aliases of the server, and what is sent again by the next connection. Its
//! parts stand alone too, for a client whose packet ids are another's, or whose messages are too
//! many for a session each. Packets come decoded and leave as values; the caller writes them,
//! waits, and says what time it is.

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
