//! What a log says of a connection that we end: how it was seen and which option decides.

use crate::broker_event::BrokerEvent;
use crate::conn::CloseReason;
use crate::input::ConnId;
use crate::limits::CONNECT_BYTES_MAX;
use crate::outbox::Outbox;
use crate::peer::PeerAddress;
use crate::shard::Shard;
use mqtt::{PacketFrame, PacketType, Violation};

/// With which TLS begins. As MQTT it would be a CONNECT with reserved flags.
const TLS_HANDSHAKE: u8 = 0x16;

fn may_be_connect(first: u8) -> bool {
    first != TLS_HANDSHAKE && PacketType::from_byte(first) == Some(PacketType::Connect)
}

/// Names the protocol that a connection begins with, by its first byte.
fn describe_first_byte(first: u8) -> String {
    match (first, PacketType::from_byte(first)) {
        (TLS_HANDSHAKE, _) => {
            "the first bytes are TLS, and this listener is none (tls:// is)".to_string()
        }
        (b'A'..=b'Z', _) => {
            "the first bytes are text, as of HTTP, and not MQTT (ws:// takes WebSocket)".to_string()
        }
        (_, Some(other)) => format!("the first packet is {other:?}, and not CONNECT"),
        (_, None) => format!("the first byte is {first:#04x}, which is not MQTT"),
    }
}

/// The option that decides over what a client broke, where one does.
fn deciding_option(violation: Violation) -> Option<&'static str> {
    match violation {
        Violation::AliasOutOfRange => Some("connection.topic_alias_max"),
        Violation::PacketTooLarge => Some("connection.packet_bytes_max"),
        Violation::ReceiveMaximumExceeded => Some("connection.receive_maximum"),
        _ => None,
    }
}

/// Returns the text that the log adds to a violation's name.
pub(crate) fn describe_violation(violation: Violation, detail: Box<str>) -> Box<str> {
    if !detail.is_empty() {
        return detail;
    }
    let option = deciding_option(violation).map(|option| format!(" ({option})"));
    format!("{}{}", violation.description(), option.unwrap_or_default()).into()
}

impl Shard {
    /// Notes the first packet of a connection if it was not CONNECT.
    pub(crate) fn detail_first_packet(&mut self, frame: PacketFrame<'_>, is_live: bool) {
        if !is_live && !may_be_connect(frame.first) {
            self.violation_detail = describe_first_byte(frame.first).into();
        }
    }

    /// Ends a connection whose first byte cannot begin a CONNECT, without waiting for the rest.
    pub(crate) fn check_first_byte(&mut self, conn: ConnId, bytes: &[u8], out: &mut Outbox) {
        let Some(&first) = bytes.first() else { return };
        if !may_be_connect(first) {
            self.violation_detail = describe_first_byte(first).into();
            out.consumed += bytes.len();
            self.end_connection(conn, CloseReason::Violation(Violation::ConnectExpected), out);
        }
    }

    /// A transport ended before it was ready.
    pub(crate) fn note_not_opened(
        &mut self,
        peer: PeerAddress,
        why: &dyn std::error::Error,
        out: &mut Outbox,
    ) {
        self.sessions.counters.connections_not_opened += 1;
        match self.not_opened.count(self.now, peer, &why.to_string()) {
            Some((peer, why, count)) => {
                out.events.push(BrokerEvent::NotOpened { peer, why, count })
            }
            None => self.plan_event_flush(),
        }
    }

    /// Whether one more end may be told of, and how many before it were not.
    pub(crate) fn count_end_event(&mut self) -> Option<u64> {
        let told = self.end_log_limiter.count(self.now);
        if told.is_none() {
            self.plan_event_flush();
        }
        told
    }

    /// Notes the error in a packet's fixed header.
    #[cold]
    pub(crate) fn detail_frame(&mut self, bytes: &[u8], bytes_max: u32, is_live: bool) {
        let first = bytes.first().copied().unwrap_or_default();
        let is_large = mqtt::expected_len(bytes).filter(|len| *len > bytes_max as usize);
        self.violation_detail = match is_large {
            Some(len) if is_live => {
                format!("a packet of {len} bytes, and connection.packet_bytes_max = {bytes_max}")
                    .into()
            }
            Some(len) => format!(
                "{}: {len} bytes, and the most before CONNECT is done is {bytes_max} \
                 (connection.packet_bytes_max, at most {CONNECT_BYTES_MAX})",
                describe_first_byte(first)
            )
            .into(),
            None if is_live => Box::default(),
            None => describe_first_byte(first).into(),
        };
    }
}
