//! Log details for a connection that the broker ends: the cause as seen in the packet, and the
//! option that decides.

use crate::broker_event::BrokerEvent;
use crate::connection::connection_table::ConnectionTable;
use crate::ids::SessionId;
use crate::interface::outbox::Outbox;
use crate::limits::CONNECT_BYTES_MAX;
use crate::peer::PeerAddress;
use crate::refusal::CloseReason;
use crate::session::session_table::SessionTable;
use mqtt::text::{PacketReader, check_text};
use mqtt::topic::{filter_error, topic_error};
use mqtt::{PacketFrame, PacketType, ProtocolVersion, TextExcerpt, Violation};

/// First byte of a TLS record with a handshake. In MQTT: a CONNECT with reserved flags.
const TLS_HANDSHAKE: u8 = 0x16;

pub(crate) fn may_be_connect(first: u8) -> bool {
    first != TLS_HANDSHAKE && PacketType::from_byte(first) == Some(PacketType::Connect)
}

/// Describes the protocol that the first bytes of a connection belong to.
pub(crate) fn describe_first_bytes(bytes: &[u8]) -> String {
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

/// Whether the bytes start with a PROXY header of version 1 or 2.
fn is_proxy_header(bytes: &[u8]) -> bool {
    bytes.starts_with(b"PROXY ") || bytes.starts_with(b"\r\n\r\n\0\r\nQUIT\n")
}

/// The accepted protocol levels of CONNECT, for the log.
const LEVELS: &str = "3 (MQTT 3.1, named MQIsdp), 4 (3.1.1) and 5 (5.0) are accepted";

/// Describes the protocol name and level of a CONNECT with an unknown protocol.
fn describe_protocol(body: &[u8]) -> Option<String> {
    let mut reader = PacketReader::new(body);
    let name = quoted(reader.binary().ok()?);
    let level = reader.u8().ok()?;
    Some(format!("asked for protocol {name} with level {level}: {LEVELS}"))
}

/// Describes the error in the topic of a PUBLISH or will; `None` if the topic is valid.
fn describe_topic(field: &str, topic: &[u8], violation: Violation) -> Option<String> {
    let why = topic_error(topic)?;
    Some(format!("{}: {field} {} {why}", violation.description(), quoted(topic)))
}

/// Returns the topic of a PUBLISH, unchecked.
fn publish_topic(body: &[u8]) -> Option<&[u8]> {
    PacketReader::new(body).binary().ok()
}

/// Returns the topic of a CONNECT's will, unchecked; `None` without a will or if an earlier field
/// is malformed.
fn will_topic(body: &[u8]) -> Option<&[u8]> {
    let mut reader = PacketReader::new(body);
    reader.binary().ok()?;
    let level = reader.u8().ok()?;
    let flags = reader.u8().ok()?;
    reader.u16().ok()?;
    let has_properties = level == ProtocolVersion::V5 as u8;
    if has_properties {
        skip_properties(&mut reader)?;
    }
    let client_id = reader.binary().ok()?;
    if flags & WILL_FLAG == 0 || check_text(client_id).is_err() {
        return None;
    }
    if has_properties {
        skip_properties(&mut reader)?;
    }
    reader.binary().ok()
}

/// Whether an invalid topic is a possible cause of the violation.
fn is_of_text(violation: Violation) -> bool {
    matches!(
        violation,
        Violation::MalformedNul | Violation::MalformedUtf8 | Violation::TopicNameInvalid
    )
}

fn skip_properties(reader: &mut PacketReader<'_>) -> Option<()> {
    let len = reader.varint().ok()?;
    reader.bytes(len as usize).ok().map(|_| ())
}

/// The Will Flag of CONNECT.
const WILL_FLAG: u8 = 0b0000_0100;

/// Describes the first invalid filter of a SUBSCRIBE or UNSUBSCRIBE; `None` if the packet's error
/// is another one.
fn describe_filter(frame: PacketFrame<'_>, version: ProtocolVersion) -> Option<String> {
    let mut reader = PacketReader::new(frame.body);
    reader.u16().ok()?;
    if version.is_v5() {
        skip_properties(&mut reader)?;
    }
    while let Ok(bytes) = reader.binary() {
        let filter = std::str::from_utf8(bytes).ok()?;
        if let Some(why) = filter_error(filter) {
            let said = Violation::TopicFilterInvalid.description();
            return Some(format!("{said}: {} {why}", quoted(bytes)));
        }
        if PacketType::from_byte(frame.first) == Some(PacketType::Subscribe) {
            reader.u8().ok()?;
        }
    }
    None
}

/// Returns a text of the peer in quotes, as [`TextExcerpt`] shortens and escapes the bytes.
fn quoted(bytes: &[u8]) -> String {
    format!("\"{}\"", TextExcerpt(bytes))
}

/// Returns the option whose value the client exceeded; `None` for a breach of the protocol alone.
fn deciding_option(violation: Violation) -> Option<&'static str> {
    match violation {
        Violation::AliasOutOfRange => Some("connection.topic_alias_max"),
        Violation::PacketTooLarge => Some("connection.packet_bytes_max"),
        Violation::ReceiveMaximumExceeded => Some("connection.receive_maximum"),
        _ => None,
    }
}

/// Returns the log text for a violation: `detail`, or the description and option if `detail` is
/// empty.
pub(crate) fn describe_violation(violation: Violation, detail: Box<str>) -> Box<str> {
    if !detail.is_empty() {
        return detail;
    }
    let option = deciding_option(violation).map(|option| format!(" ({option})"));
    format!("{}{}", violation.description(), option.unwrap_or_default()).into()
}

impl ConnectionTable {
    /// Stores the cause of the end in `violation_detail`, from the last packet: first bytes of
    /// another protocol, an unknown protocol level, or an invalid topic or filter.
    #[cold]
    pub(crate) fn detail_packet(
        &mut self,
        frame: PacketFrame<'_>,
        bytes: &[u8],
        session: Option<SessionId>,
        end: CloseReason,
        sessions: &SessionTable,
    ) {
        let detail = match (session, end) {
            (None, _) if !may_be_connect(frame.first) => Some(describe_first_bytes(bytes)),
            (None, CloseReason::Violation(Violation::ProtocolVersionUnknown)) => {
                describe_protocol(frame.body)
            }
            (None, CloseReason::Violation(violation)) if is_of_text(violation) => {
                let topic = will_topic(frame.body);
                topic.and_then(|topic| describe_topic("the will topic", topic, violation))
            }
            (Some(_), CloseReason::Violation(violation)) if is_of_text(violation) => {
                let is_publish = PacketType::from_byte(frame.first) == Some(PacketType::Publish);
                let topic = publish_topic(frame.body).filter(|_| is_publish);
                topic.and_then(|topic| describe_topic("the topic", topic, violation))
            }
            (Some(session), CloseReason::Violation(Violation::TopicFilterInvalid)) => {
                describe_filter(frame, sessions.get(session).version)
            }
            _ => None,
        };
        if let Some(detail) = detail {
            self.violation_detail = detail.into();
        }
    }

    /// Counts a transport that failed before the first MQTT byte, for example in the TLS handshake,
    /// and reports the failure within the limits of `PeerLog`.
    pub(crate) fn note_not_opened(
        &mut self,
        peer: PeerAddress,
        why: &dyn std::error::Error,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) {
        sessions.counters.connections_not_opened += 1;
        match self.not_opened.count(sessions.context.now, peer, &why.to_string()) {
            Some((peer, why, count)) => {
                out.events.push(BrokerEvent::NotOpened { peer, why, count })
            }
            None => sessions.context.plan_event_flush(),
        }
    }

    /// Counts the end of a connection. Returns the number of withheld reports if this end may be
    /// reported, and `None` if `LogBurstLimiter` withholds the report.
    pub(crate) fn count_end_event(&mut self, sessions: &mut SessionTable) -> Option<u64> {
        let count = self.end_log_limiter.count(1, sessions.context.now);
        if count.is_none() {
            sessions.context.plan_event_flush();
        }
        count.map(|count| count - 1)
    }

    /// Stores the error in a packet's fixed header in `violation_detail`.
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
