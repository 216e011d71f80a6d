//! Writes a packet as one line of the transcript language, for traces and for tests that compare
//! lines.
//!
//! ```text
//!   PUBLISH 7 "a/b" qos=1 dup "payload" expiry=60 user="name":"value"
//! ```
//!
//! Names are short where the packet makes them clear; the parser in the `sim` crate reads the same
//! language.

use crate::packet::*;
use crate::property::{Properties, Property};
use crate::reason_code::ReasonCode;
use std::fmt::{self, Display, Formatter, Write};

impl Display for Packet<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Packet::Connect(packet) => packet.fmt(f),
            Packet::ConnAck(packet) => {
                write!(f, "CONNACK present={}", u8::from(packet.session_present))?;
                write_reason(f, packet.reason, packet.properties)
            }
            Packet::Publish(packet) => packet.fmt(f),
            Packet::PubAck(packet) => write_ack(f, "PUBACK", packet),
            Packet::PubRec(packet) => write_ack(f, "PUBREC", packet),
            Packet::PubRel(packet) => write_ack(f, "PUBREL", packet),
            Packet::PubComp(packet) => write_ack(f, "PUBCOMP", packet),
            Packet::Subscribe(packet) => packet.fmt(f),
            Packet::SubAck(packet) => {
                write_codes(f, "SUBACK", packet.packet_id, packet.codes)?;
                write_properties(f, "", packet.properties)
            }
            Packet::Unsubscribe(packet) => {
                write!(f, "UNSUBSCRIBE {}", packet.packet_id)?;
                for filter in packet.filters {
                    write!(f, " {}", QuotedBytes(filter.as_bytes()))?;
                }
                write_properties(f, "", packet.properties)
            }
            Packet::UnsubAck(packet) => {
                write_codes(f, "UNSUBACK", packet.packet_id, packet.codes)?;
                write_properties(f, "", packet.properties)
            }
            Packet::PingReq => f.write_str("PINGREQ"),
            Packet::PingResp => f.write_str("PINGRESP"),
            Packet::Disconnect(packet) => {
                f.write_str("DISCONNECT")?;
                write_reason(f, packet.reason, packet.properties)
            }
            Packet::Auth(packet) => {
                f.write_str("AUTH")?;
                write_reason(f, packet.reason, packet.properties)
            }
        }
    }
}

impl Display for Connect<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "CONNECT id={}", BareOrQuoted(self.client_id))?;
        match self.version {
            ProtocolVersion::V31 => f.write_str(" v=31")?,
            ProtocolVersion::V311 => f.write_str(" v=311")?,
            ProtocolVersion::V5 => {}
        }
        if self.is_bridge {
            f.write_str(" bridge")?;
        }
        if !self.clean_start {
            f.write_str(" clean=0")?;
        }
        if self.keep_alive_s > 0 {
            write!(f, " keep_alive={}", self.keep_alive_s)?;
        }
        write_properties(f, "", self.properties)?;
        if let Some(will) = &self.will {
            write!(f, " will={}", QuotedBytes(will.topic.as_bytes()))?;
            write!(f, " will_payload={}", QuotedBytes(will.payload))?;
            if will.qos != QoS::AtMostOnce {
                write!(f, " will_qos={}", will.qos as u8)?;
            }
            if will.retain {
                f.write_str(" will_retain")?;
            }
            write_properties(f, "will_", will.properties)?;
        }
        if let Some(user_name) = self.user_name {
            write!(f, " user_name={}", BareOrQuoted(user_name))?;
        }
        // A trace is read by people: the presence of a password is all they need.
        if self.password.is_some() {
            f.write_str(" password=*")?;
        }
        Ok(())
    }
}

impl Display for Publish<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("PUBLISH")?;
        if let Some(packet_id) = self.packet_id {
            write!(f, " {packet_id}")?;
        }
        write!(f, " {} qos={}", QuotedBytes(self.topic.as_bytes()), self.qos as u8)?;
        if self.dup {
            f.write_str(" dup")?;
        }
        if self.retain {
            f.write_str(" retain")?;
        }
        write!(f, " {}", QuotedBytes(self.payload))?;
        write_properties(f, "", self.properties)
    }
}

impl Display for Subscribe<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "SUBSCRIBE {}", self.packet_id)?;
        for (filter, options) in self.filters {
            write!(f, " {} qos={}", QuotedBytes(filter.as_bytes()), options.qos as u8)?;
            if options.no_local {
                f.write_str(" no_local")?;
            }
            if options.retain_as_published {
                f.write_str(" retain_as_published")?;
            }
            if options.retain_handling > 0 {
                write!(f, " retain_handling={}", options.retain_handling)?;
            }
        }
        write_properties(f, "", self.properties)
    }
}

fn write_ack(f: &mut Formatter<'_>, name: &str, packet: &PublishAck<'_>) -> fmt::Result {
    write!(f, "{name} {}", packet.packet_id)?;
    write_reason(f, packet.reason, packet.properties)
}

/// Writes the codes of SUBACK and UNSUBACK: granted QoS as a number, codes from 0x10 on in
/// hexadecimal, as the specification does.
fn write_codes(f: &mut Formatter<'_>, name: &str, id: PacketId, codes: &[u8]) -> fmt::Result {
    write!(f, "{name} {id}")?;
    if codes.is_empty() {
        return Ok(());
    }
    for (at, code) in codes.iter().enumerate() {
        f.write_str(if at == 0 { " [" } else { " " })?;
        if *code < 0x10 { write!(f, "{code}")? } else { write!(f, "{code:#04x}")? }
    }
    f.write_char(']')
}

fn write_reason(f: &mut Formatter<'_>, reason: ReasonCode, all: Properties<'_>) -> fmt::Result {
    if reason != ReasonCode::Success {
        write!(f, " {reason:?}")?;
    }
    write_properties(f, "", all)
}

fn write_properties(f: &mut Formatter<'_>, prefix: &str, all: Properties<'_>) -> fmt::Result {
    for property in all.iter() {
        write!(f, " {prefix}{property}")?;
    }
    Ok(())
}

impl Display for Property<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match *self {
            Property::PayloadFormatIndicator(value) => write!(f, "payload_format={value}"),
            Property::MessageExpiryInterval(value) => write!(f, "expiry={value}"),
            Property::ContentType(value) => write!(f, "content_type={}", BareOrQuoted(value)),
            Property::ResponseTopic(value) => write!(f, "response_topic={}", BareOrQuoted(value)),
            Property::CorrelationData(value) => write!(f, "correlation={}", QuotedBytes(value)),
            Property::SubscriptionIdentifier(value) => write!(f, "subscription_id={value}"),
            Property::SessionExpiryInterval(value) => write!(f, "expiry={value}"),
            Property::AssignedClientIdentifier(value) => {
                write!(f, "assigned_id={}", BareOrQuoted(value))
            }
            Property::ServerKeepAlive(value) => write!(f, "server_keep_alive={value}"),
            Property::AuthenticationMethod(value) => {
                write!(f, "auth_method={}", BareOrQuoted(value))
            }
            Property::AuthenticationData(value) => write!(f, "auth={}", QuotedBytes(value)),
            Property::RequestProblemInformation(value) => write!(f, "request_problem={value}"),
            Property::WillDelayInterval(value) => write!(f, "delay={value}"),
            Property::RequestResponseInformation(value) => write!(f, "request_response={value}"),
            Property::ResponseInformation(value) => write!(f, "response={}", BareOrQuoted(value)),
            Property::ServerReference(value) => {
                write!(f, "server_reference={}", BareOrQuoted(value))
            }
            Property::ReasonString(value) => write!(f, "reason_string={}", BareOrQuoted(value)),
            Property::ReceiveMaximum(value) => write!(f, "receive_maximum={value}"),
            Property::TopicAliasMaximum(value) => write!(f, "topic_alias_maximum={value}"),
            Property::TopicAlias(value) => write!(f, "alias={value}"),
            Property::MaximumQoS(value) => write!(f, "maximum_qos={value}"),
            Property::RetainAvailable(value) => write!(f, "retain_available={value}"),
            Property::UserProperty(name, value) => {
                write!(f, "user={}:{}", QuotedBytes(name.as_bytes()), QuotedBytes(value.as_bytes()))
            }
            Property::MaximumPacketSize(value) => write!(f, "maximum_packet_size={value}"),
            Property::WildcardSubscriptionAvailable(value) => {
                write!(f, "wildcard_available={value}")
            }
            Property::SubscriptionIdentifierAvailable(value) => {
                write!(f, "subscription_id_available={value}")
            }
            Property::SharedSubscriptionAvailable(value) => write!(f, "shared_available={value}"),
        }
    }
}

/// Writes text of letters, digits and `-_./` bare, and all remaining text as [`QuotedBytes`].
struct BareOrQuoted<'a>(&'a str);

impl Display for BareOrQuoted<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
        match !self.0.is_empty() && self.0.bytes().all(plain) {
            true => f.write_str(self.0),
            false => write!(f, "{}", QuotedBytes(self.0.as_bytes())),
        }
    }
}

/// Writes text in quotes, with printable ASCII and escapes only; bytes other than UTF-8 as `hex:`;
/// and at least 41 equal printable bytes as the byte and its count.
struct QuotedBytes<'a>(&'a [u8]);

impl Display for QuotedBytes<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Some((first, rest)) = self.0.split_first()
            && rest.len() >= REPEATS_MIN
            && rest.iter().all(|byte| byte == first)
            && first.is_ascii_graphic()
        {
            return write!(f, "\"{}\"*{}", first.escape_ascii(), self.0.len());
        }
        let Ok(text) = std::str::from_utf8(self.0) else {
            f.write_str("hex:")?;
            return self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"));
        };
        f.write_char('"')?;
        for letter in text.chars() {
            match letter {
                '"' | '\\' => write!(f, "\\{letter}")?,
                ' '..='~' => f.write_char(letter)?,
                _ => write!(f, "{}", letter.escape_default())?,
            }
        }
        f.write_char('"')
    }
}

const REPEATS_MIN: usize = 40;

/// The first 256 bytes of a topic or another text of a peer, for a log or error that escapes the
/// characters which are not printable. Bytes that are not UTF-8 are written as `\xff`, and `...`
/// stands for the rest.
pub struct TextExcerpt<'a>(pub &'a [u8]);

impl Display for TextExcerpt<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let TextExcerpt(bytes) = *self;
        let is_inside = |at: usize| bytes.get(at).is_some_and(|byte| byte & 0xC0 == 0x80);
        // The last character is left out rather than cut.
        let end = (EXCERPT_BYTES_MAX - 3..=EXCERPT_BYTES_MAX).rev().find(|at| !is_inside(*at));
        let end = end.unwrap_or(EXCERPT_BYTES_MAX).min(bytes.len());
        for chunk in bytes[..end].utf8_chunks() {
            f.write_str(chunk.valid())?;
            chunk.invalid().iter().try_for_each(|byte| write!(f, "\\x{byte:02x}"))?;
        }
        if end < bytes.len() { f.write_str("...") } else { Ok(()) }
    }
}

const EXCERPT_BYTES_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use crate::*;

    #[test]
    fn an_excerpt_is_cut_between_characters_and_shows_bytes_that_are_not_text() {
        let excerpt = |bytes: &[u8]| TextExcerpt(bytes).to_string();
        assert_eq!(excerpt(b""), "");
        assert_eq!(excerpt(b"a/\xff\xe4b"), r"a/\xff\xe4b");
        assert_eq!(excerpt(&[b'a'; 256]), "a".repeat(256));
        let long = format!("a{}", "\u{1F980}".repeat(64));
        assert_eq!(excerpt(long.as_bytes()), format!("a{}...", "\u{1F980}".repeat(63)));
        assert_eq!(excerpt(&[0x80; 300]), format!("{}...", r"\x80".repeat(256)));
    }

    fn line(bytes: &[u8]) -> String {
        let frame = split_frame(bytes, u32::MAX).unwrap().unwrap();
        Packet::decode(frame, ProtocolVersion::V5).unwrap().to_string()
    }

    #[test]
    fn packets_are_lines_of_the_transcript_language() {
        assert_eq!(line(b"\x20\x03\x01\x00\x00"), "CONNACK present=1");
        assert_eq!(line(b"\x30\x06\x00\x01t\x00a\""), r#"PUBLISH "t" qos=0 "a\"""#);
        assert_eq!(
            line(b"\x3b\x09\x00\x01t\x00\x07\x02\x01\x01\xff"),
            r#"PUBLISH 7 "t" qos=1 dup retain hex:ff payload_format=1"#
        );
        assert_eq!(line(b"\x90\x06\x00\x01\x00\x01\x87\x00"), "SUBACK 1 [1 0x87 0]");
        assert_eq!(line(b"\xe0\x01\x8e"), "DISCONNECT SessionTakenOver");
        assert_eq!(line(b"\x40\x03\x00\x09\x10"), "PUBACK 9 NoMatchingSubscribers");
        assert_eq!(
            line(b"\x82\x07\x00\x01\x00\x00\x01+\x2d"),
            r#"SUBSCRIBE 1 "+" qos=1 no_local retain_as_published retain_handling=2"#
        );
    }

    #[test]
    fn long_repetitions_are_counted() {
        let payload = [b'x'; 100];
        let mut buf = Vec::new();
        let publish = Publish {
            dup: false,
            qos: QoS::AtMostOnce,
            retain: false,
            topic: "caf\u{e9}",
            packet_id: None,
            properties: Properties::default(),
            payload: &payload,
        };
        publish.encode(ProtocolVersion::V5, &mut buf);
        assert_eq!(line(&buf), r#"PUBLISH "caf\u{e9}" qos=0 "x"*100"#);
    }
}
