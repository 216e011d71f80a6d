//! Messages on their way to sockets.

use mqtt::PacketId;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use zmtp_sp::MultipartMessage;

/// A message on its way to one peer or several.
#[derive(Debug)]
pub(super) struct PeerMessage {
    pub(super) message: MultipartMessage,
    /// Receipt for the local session, due when the message has arrived, or for a request with its
    /// response.
    pub(super) receipt: Option<SessionReceipt>,
    /// Topic of the message at this broker, for the log; empty for messages to several peers.
    pub(super) topic: Box<str>,
    /// Number of peers which disconnected while the message was in flight to them, see
    /// `QuarantineQueue`.
    pub(super) ends: AtomicU32,
}

impl PeerMessage {
    pub(super) fn is_request(&self) -> bool {
        self.message.request_id().is_some()
    }
}

/// A due acknowledgement: the number of the connection to the local session, and the packet id.
pub(super) type SessionReceipt = (u64, PacketId);

pub(super) type PeerId = u64;

/// Memory of a message in addition to its bytes.
const PARCEL_BYTES: usize = 64;

pub(super) fn cost(message: &MultipartMessage) -> usize {
    message.len() + PARCEL_BYTES * (1 + message.envelope.len() + message.frames.len())
}

/// Creates a message without a topic for the log.
pub(super) fn parcel(
    message: MultipartMessage,
    receipt: Option<SessionReceipt>,
) -> Arc<PeerMessage> {
    named("", message, receipt)
}

/// Creates a message to one peer, with the topic for the log.
pub(super) fn named(
    topic: &str,
    message: MultipartMessage,
    receipt: Option<SessionReceipt>,
) -> Arc<PeerMessage> {
    Arc::new(PeerMessage { message, receipt, topic: topic.into(), ends: AtomicU32::new(0) })
}
