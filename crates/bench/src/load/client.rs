//! A client of the load: state of its connection, pending output, and received streams.

use super::transport::{ClientTransport, QuicEndpoints};
use crate::template::BenchTemplate;
use crate::track::StreamTracks;
use mqtt::ProtocolVersion;
use std::collections::VecDeque;

/// States of a `LoadClient`. A failure leads to `Waiting` while retries are left, else to `Over`.
///
/// ```text
/// Waiting -> Opening -> AwaitingConnAck -> Subscribing -> Live
///    ^          |              |               |           |
///    +----------+--------------+---------------+-----------+   retry, otherwise Over
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientState {
    Waiting,
    /// TCP, and TLS, WebSocket or QUIC if configured, are connecting.
    Opening,
    /// CONNECT is sent; CONNACK is awaited.
    AwaitingConnAck,
    /// SUBSCRIBE is sent; SUBACK is awaited.
    Subscribing,
    Live,
    Over,
}

#[derive(Debug)]
pub(crate) struct LoadClient {
    pub(crate) transport: Option<ClientTransport>,
    pub(crate) state: ClientState,
    pub(crate) version: ProtocolVersion,
    /// Whether the client has bytes to write and is listed in `LoadThread::dirty`.
    pub(crate) is_dirty: bool,
    /// Whether a PINGREQ is unanswered: at the next interval the connection counts as lost.
    pub(crate) is_pinging: bool,
    /// Whether the client was `Live` once or has failed for good, so that the start need not wait
    /// longer.
    pub(crate) is_settled: bool,
    pub(crate) was_live: bool,
    pub(crate) group: u16,
    pub(crate) retries: u32,
    /// Index in `LoadThread::shares` of the client's shared subscription.
    pub(crate) shared_group: Option<u32>,
    pub(crate) number: u64,
    /// Index among all clients of the test; selects the target and the local address.
    pub(crate) index: u64,
    /// Times of the current connection attempt and of its last request.
    pub(crate) opened_ns: u64,
    pub(crate) requested_ns: u64,
    /// Time when the connection was lost; zero before a loss.
    pub(crate) lost_ns: u64,
    pub(crate) id: Box<str>,
    pub(crate) filters: Box<[String]>,
    /// The received part of an incomplete packet.
    pub(crate) tail: Vec<u8>,
    pub(crate) out: Vec<u8>,
    pub(crate) out_from: usize,
    pub(crate) tracks: StreamTracks,
    pub(crate) publisher: Option<Box<LoadPublisher>>,
}

#[derive(Debug)]
pub(crate) struct LoadPublisher {
    pub(crate) topic: String,
    /// Parsed `topic`, if that differs from message to message.
    pub(crate) template: Option<BenchTemplate>,
    /// Stream number within the test; the number in payloads adds the first stream of the test.
    pub(crate) stream: u32,
    /// Number of messages published so far.
    pub(crate) seq: u32,
    pub(crate) packet_id: u16,
    /// Number of consumers of the publisher's topic.
    pub(crate) consumer_count: u64,
    pub(crate) flights: VecDeque<PublishFlight>,
    /// Number of due messages without room; the oldest was due at `backlog_due_ns`.
    pub(crate) backlog_len: u32,
    pub(crate) backlog_due_ns: u64,
    pub(crate) user_name: String,
}

/// Message that waits for PUBACK or PUBCOMP.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PublishFlight {
    pub(crate) packet_id: u16,
    pub(crate) due_us: u64,
}

impl LoadClient {
    pub(crate) fn unsent_len(&self) -> usize {
        self.out.len() - self.out_from
    }

    /// Closes the connection and clears the state that belongs to the connection alone.
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

    /// Removes and returns the flight with the packet id of an acknowledgement: mostly the first,
    /// because brokers answer in order. `None` if no flight has the id.
    #[inline]
    pub(crate) fn acknowledge(&mut self, packet_id: u16) -> Option<PublishFlight> {
        if self.flights.front().is_some_and(|flight| flight.packet_id == packet_id) {
            return self.flights.pop_front();
        }
        let at = self.flights.iter().position(|flight| flight.packet_id == packet_id)?;
        self.flights.remove(at)
    }
}
