//! What a log says of a connection that we end: how it was seen and which option decides.

use crate::broker_event::BrokerEvent;
use crate::conn::CloseReason;
use crate::input::{ConnId, SessionId};
use crate::limits::CONNECT_BYTES_MAX;
use crate::outbox::Outbox;
use crate::peer::PeerAddress;
use crate::shard::Shard;
use mqtt::text::PacketReader;
use mqtt::topic::check_filter;
use mqtt::{PacketFrame, PacketType, ProtocolVersion, SharedFilter, Violation};

/// With which TLS begins. As MQTT it would be a CONNECT with reserved flags.
const TLS_HANDSHAKE: u8 = 0x16;

fn may_be_connect(first: u8) -> bool {
    first != TLS_HANDSHAKE && PacketType::from_byte(first) == Some(PacketType::Connect)
}

/// Names the protocol that a connection begins with.
fn describe_first_bytes(bytes: &[u8]) -> String {
    let first = bytes.first().copied().unwrap_or_default();
    if is_proxy_header(bytes) {
        return "the first bytes are a PROXY header, and this listener takes none \
                (proxy.protocol = true)"
            .to_string();
    }
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

/// Whether the bytes begin as a PROXY header of version 1 or 2 does.
fn is_proxy_header(bytes: &[u8]) -> bool {
    bytes.starts_with(b"PROXY ") || bytes.starts_with(b"\r\n\r\n\0\r\nQUIT\n")
}

/// Protocol levels, as a CONNECT names them.
const LEVELS: &str = "3 (MQTT 3.1, named MQIsdp), 4 (3.1.1) and 5 (5.0) are accepted";

/// Describes the protocol name and level of a CONNECT that has an unknown one.
fn describe_protocol(body: &[u8]) -> Option<String> {
    let mut reader = PacketReader::new(body);
    let name = printable(reader.binary().ok()?);
    let level = reader.u8().ok()?;
    Some(format!("asked for protocol {name} with level {level}: {LEVELS}"))
}

/// Describes a PUBLISH whose topic has a wildcard, the only error of a topic that is text.
fn describe_topic(body: &[u8]) -> Option<String> {
    let topic = printable(PacketReader::new(body).binary().ok()?);
    let said = Violation::TopicNameInvalid.description();
    Some(format!("{said}: {topic} has a wildcard (+ or #), which only a filter may have"))
}

/// Describes the first invalid filter of a SUBSCRIBE or UNSUBSCRIBE.
fn describe_filter(frame: PacketFrame<'_>, version: ProtocolVersion) -> Option<String> {
    let mut reader = PacketReader::new(frame.body);
    reader.u16().ok()?;
    if version.is_v5() {
        let len = reader.varint().ok()?;
        reader.bytes(len as usize).ok()?;
    }
    while let Ok(bytes) = reader.binary() {
        let filter = std::str::from_utf8(bytes).ok()?;
        if let Some(why) = filter_error(filter) {
            let said = Violation::TopicFilterInvalid.description();
            return Some(format!("{said}: {} {why}", printable(bytes)));
        }
        if PacketType::from_byte(frame.first) == Some(PacketType::Subscribe) {
            reader.u8().ok()?;
        }
    }
    None
}

/// Why a text is not a topic filter.
fn filter_error(filter: &str) -> Option<&'static str> {
    let plain = match SharedFilter::parse(filter) {
        Err(_) => return Some("is not $share/GROUP/FILTER with a valid group and filter"),
        Ok(shared) => shared.map_or(filter, |shared| shared.filter),
    };
    if check_filter(plain).is_ok() {
        return None;
    }
    let levels = || plain.split('/');
    Some(match plain {
        "" => "is empty",
        _ if levels().any(|level| level.len() > 1 && level.contains(['+', '#'])) => {
            "has a wildcard (+ or #) that is not a level of its own"
        }
        _ => "has a # that is not the last level",
    })
}

/// A topic in quotes, cut for the log, which escapes what is not printable.
fn printable(bytes: &[u8]) -> String {
    let shown = &bytes[..bytes.len().min(PRINTED_BYTES_MAX)];
    let dots = if shown.len() < bytes.len() { "..." } else { "" };
    format!("\"{}{dots}\"", String::from_utf8_lossy(shown))
}

const PRINTED_BYTES_MAX: usize = 128;

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
    /// Notes what was wrong with the packet that ended a connection: the first one, or a topic.
    #[cold]
    pub(crate) fn detail_packet(
        &mut self,
        frame: PacketFrame<'_>,
        bytes: &[u8],
        session: Option<SessionId>,
        end: CloseReason,
    ) {
        let detail = match (session, end) {
            (None, _) if !may_be_connect(frame.first) => Some(describe_first_bytes(bytes)),
            (None, CloseReason::Violation(Violation::ProtocolVersionUnknown)) => {
                describe_protocol(frame.body)
            }
            (Some(_), CloseReason::Violation(Violation::TopicNameInvalid)) => {
                describe_topic(frame.body)
            }
            (Some(session), CloseReason::Violation(Violation::TopicFilterInvalid)) => {
                describe_filter(frame, self.sessions.get(session).version)
            }
            _ => None,
        };
        if let Some(detail) = detail {
            self.violation_detail = detail.into();
        }
    }

    /// Ends a connection whose first byte cannot begin a CONNECT, without waiting for the rest.
    pub(crate) fn check_first_byte(&mut self, conn: ConnId, bytes: &[u8], out: &mut Outbox) {
        let Some(&first) = bytes.first() else { return };
        if !may_be_connect(first) {
            self.violation_detail = describe_first_bytes(bytes).into();
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
            Some(len) if may_be_connect(first) => format!(
                "a CONNECT of {len} bytes, and the most is {bytes_max} \
                 (connection.packet_bytes_max, at most {CONNECT_BYTES_MAX})"
            )
            .into(),
            None if is_live || may_be_connect(first) => Box::default(),
            _ => describe_first_bytes(bytes).into(),
        };
    }
}
