//! What a log says of a connection that we end: how it was seen and which option decides.

use crate::conn::End;
use crate::input::ConnId;
use crate::limits::CONNECT_BYTES_MAX;
use crate::note::Note;
use crate::outbox::Outbox;
use crate::peer::Address;
use crate::shard::Shard;
use mqtt::{Frame, PacketType, Violation};

/// With which TLS begins. As MQTT it would be a CONNECT with reserved flags.
const TLS_HANDSHAKE: u8 = 0x16;

fn may_be_connect(first: u8) -> bool {
    first != TLS_HANDSHAKE && PacketType::from_byte(first) == Some(PacketType::Connect)
}

/// Whose protocol a connection begins with, as its first byte tells.
fn first_packet(first: u8) -> String {
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
fn option_of(violation: Violation) -> Option<&'static str> {
    match violation {
        Violation::AliasOutOfRange => Some("connection.topic_alias_max"),
        Violation::PacketTooLarge => Some("connection.packet_bytes_max"),
        Violation::ReceiveMaximumExceeded => Some("connection.receive_maximum"),
        _ => None,
    }
}

/// What a log says of a violation beside its name.
pub(crate) fn detail_of(violation: Violation, detail: Box<str>) -> Box<str> {
    if !detail.is_empty() {
        return detail;
    }
    let option = option_of(violation).map(|option| format!(" ({option})"));
    format!("{}{}", violation.what(), option.unwrap_or_default()).into()
}

impl Shard {
    /// What came first, where that was not CONNECT.
    pub(crate) fn detail_first(&mut self, frame: Frame<'_>, is_live: bool) {
        if !is_live && !may_be_connect(frame.first) {
            self.violation_detail = first_packet(frame.first).into();
        }
    }

    /// Nobody waits for the rest of a first packet that is not CONNECT.
    pub(crate) fn check_first(&mut self, conn: ConnId, bytes: &[u8], out: &mut Outbox) {
        let Some(&first) = bytes.first() else { return };
        if !may_be_connect(first) {
            self.violation_detail = first_packet(first).into();
            out.consumed += bytes.len();
            self.end(conn, End::Violation(Violation::ConnectExpected), out);
        }
    }

    /// A transport ended before it was ready.
    pub(crate) fn not_opened(
        &mut self,
        peer: Address,
        why: &dyn std::error::Error,
        out: &mut Outbox,
    ) {
        self.sessions.counters.connections_not_opened += 1;
        match self.not_opened.count(self.now, peer, &why.to_string()) {
            Some((peer, why, count)) => out.notes.push(Note::NotOpened { peer, why, count }),
            None => self.plan_notes(),
        }
    }

    /// Whether one more end may be told of, and how many before it were not.
    pub(crate) fn tells_end(&mut self) -> Option<u64> {
        let told = self.ended_noted.count(self.now);
        if told.is_none() {
            self.plan_notes();
        }
        told
    }

    /// What is wrong with a packet's first bytes.
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
                first_packet(first)
            )
            .into(),
            None if is_live => Box::default(),
            None => first_packet(first).into(),
        };
    }
}
