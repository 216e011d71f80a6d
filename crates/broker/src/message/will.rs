//! The will, a message published when a client's connection ends without DISCONNECT, and delayed
//! messages with their publishers.

use crate::ids::RecordNumber;
use crate::memory::cost;
use crate::message::Message;
use mqtt::QoS;
use std::sync::Arc;

#[derive(Clone, Debug)]
pub(crate) struct SessionWill {
    pub(crate) topic: Box<str>,
    pub(crate) payload: Box<[u8]>,
    /// Encoded properties for subscribers, in the client's order [MQTT-3.1.3-10].
    pub(crate) properties: Box<[u8]>,
    pub(crate) qos: QoS,
    pub(crate) retain: bool,
    pub(crate) delay_s: u32,
    pub(crate) expiry_s: u32,
}

impl SessionWill {
    pub(crate) fn bytes(&self) -> u64 {
        (self.topic.len() + self.payload.len() + self.properties.len()) as u64 + cost::KEPT * 2
    }
}

/// The publisher of a delayed message, for rules: its connection may have ended by then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DelayedPublisher {
    /// Client id with its namespace.
    pub(crate) client_id: Box<str>,
    pub(crate) user: Option<Arc<str>>,
    /// Address of the publisher when it sent the message.
    pub(crate) address: Option<Box<str>>,
}

/// A delayed message with its publisher. `message` has the due time as its time of publication.
#[derive(Debug)]
pub(crate) struct DelayedMessage {
    pub(crate) by: DelayedPublisher,
    pub(crate) message: Message,
    /// Key of the record in the store: see `records::delayed_key`.
    pub(crate) key: Option<(u8, RecordNumber)>,
}

impl DelayedMessage {
    pub(crate) fn bytes(&self) -> u64 {
        (self.by.len() + self.message.bytes()) as u64 + cost::DELAYED
    }
}
