//! One MQTT client: what it is doing, what it still has to send, and what it has received.

use super::transport::{ClientTransport, QuicEndpoints};
use crate::track::StreamTracks;
use mqtt::ProtocolVersion;
use std::collections::VecDeque;

/// ```text
/// Waiting -> Opening -> Greeting -> Subscribing -> Live
///    ^          |          |            |           |
///    +----------+----------+------------+-----------+   while it may try again
///                              otherwise Over
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientState {
    Waiting,
    /// TCP (and what lies between it and MQTT) is connecting.
    Opening,
    /// CONNECT is sent.
    AwaitingConnAck,
    /// SUBSCRIBE is sent.
    Subscribing,
    Live,
    Over,
}

#[derive(Debug)]
pub(crate) struct LoadClient {
    pub(crate) transport: Option<ClientTransport>,
    pub(crate) state: ClientState,
    pub(crate) version: ProtocolVersion,
    /// Whether the client has bytes to write, and is in the thread's list of such clients.
    pub(crate) is_dirty: bool,
    /// A PINGREQ is unanswered.
    pub(crate) is_pinging: bool,
    /// Whether the client was live once or has failed for good: the start does not wait for it.
    pub(crate) is_settled: bool,
    pub(crate) was_live: bool,
    pub(crate) group: u16,
    pub(crate) retries: u32,
    /// Index of its shared subscription among the thread's.
    pub(crate) shared_group: Option<u32>,
    pub(crate) number: u64,
    /// Index among all clients of the test: decides target and local address.
    pub(crate) index: u64,
    /// When this attempt began, and its last request.
    pub(crate) opened_ns: u64,
    pub(crate) requested_ns: u64,
    /// When its connection was lost; zero before that.
    pub(crate) lost_ns: u64,
    pub(crate) id: Box<str>,
    pub(crate) filters: Box<[String]>,
    /// The beginning of a packet whose end has not come.
    pub(crate) tail: Vec<u8>,
    pub(crate) out: Vec<u8>,
    pub(crate) out_from: usize,
    pub(crate) tracks: StreamTracks,
    pub(crate) publisher: Option<Box<LoadPublisher>>,
}

#[derive(Debug)]
pub(crate) struct LoadPublisher {
    pub(crate) topic: String,
    /// Stream number within the test; with the test's first stream added it is the number on the
    /// wire.
    pub(crate) stream: u32,
    /// Messages so far.
    pub(crate) seq: u32,
    pub(crate) packet_id: u16,
    /// Consumers of its topic.
    pub(crate) consumer_count: u64,
    pub(crate) flights: VecDeque<PublishFlight>,
    /// Messages that were due and found no room, the oldest of them due at `backlog_due_ns`.
    pub(crate) backlog_len: u32,
    pub(crate) backlog_due_ns: u64,
    pub(crate) user_name: String,
}

/// A message that waits for its PUBACK or PUBCOMP.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PublishFlight {
    pub(crate) packet_id: u16,
    pub(crate) due_us: u64,
}

impl LoadClient {
    pub(crate) fn unsent_len(&self) -> usize {
        self.out.len() - self.out_from
    }

    /// Ends the connection, and forgets what belonged to it alone.
    pub(crate) fn close(&mut self, outlets: &mut QuicEndpoints) {
        if let Some(wire) = self.transport.take() {
            wire.close(outlets);
        }
        self.is_pinging = false;
        self.tail = Vec::new();
        self.out = Vec::new();
        self.out_from = 0;
    }
}

impl LoadPublisher {
    pub(crate) fn next_packet_id(&mut self) -> u16 {
        self.packet_id = self.packet_id.checked_add(1).unwrap_or(1);
        self.packet_id
    }

    /// Takes the flight of an acknowledgement; brokers answer in order, so it is mostly the first.
    #[inline]
    pub(crate) fn acknowledge(&mut self, packet_id: u16) -> Option<PublishFlight> {
        if self.flights.front().is_some_and(|flight| flight.packet_id == packet_id) {
            return self.flights.pop_front();
        }
        let at = self.flights.iter().position(|flight| flight.packet_id == packet_id)?;
        self.flights.remove(at)
    }
}
