//! A message on its way to sockets.

use mqtt::PacketId;
use patterns::MultipartMessage;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

/// A message on its way to a peer, or to several.
#[derive(Debug)]
pub(super) struct PeerMessage {
    pub(super) message: MultipartMessage,
    /// What its session here waits for: that it is written, or that it has a question's answer.
    pub(super) receipt: Option<SessionReceipt>,
    /// What it is called here, where it goes to one peer.
    pub(super) topic: Box<str>,
    /// So many peers went while it was half-way to them.
    pub(super) ends: AtomicU32,
}

impl PeerMessage {
    pub(super) fn is_request(&self) -> bool {
        self.message.request_id().is_some()
    }
}

/// An acknowledgement that a connection to the session here owes. The number is the connection's.
pub(super) type SessionReceipt = (u64, PacketId);

pub(super) type PeerId = u64;

/// What a message costs beside its bytes.
const PARCEL_BYTES: usize = 64;

pub(super) fn cost(message: &MultipartMessage) -> usize {
    message.len() + PARCEL_BYTES * (1 + message.envelope.len() + message.frames.len())
}

/// One of which nobody has to be told what it is.
pub(super) fn parcel(
    message: MultipartMessage,
    receipt: Option<SessionReceipt>,
) -> Arc<PeerMessage> {
    named("", message, receipt)
}

/// One that goes to one peer.
pub(super) fn named(
    topic: &str,
    message: MultipartMessage,
    receipt: Option<SessionReceipt>,
) -> Arc<PeerMessage> {
    Arc::new(PeerMessage { message, receipt, topic: topic.into(), ends: AtomicU32::new(0) })
}
