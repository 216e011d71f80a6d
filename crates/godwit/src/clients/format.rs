//! `-F FORMAT`: how `godwit sub` prints a message. Compiled once, checked at start.

use mqtt::{Property, Publish};
use net::timestamp::UnixTimestamp;
use std::io::{self, Write};

#[derive(Debug)]
pub(super) struct MessageFormat {
    parts: Vec<MessageFormatPart>,
}

#[derive(Debug, PartialEq, Eq)]
enum MessageFormatPart {
    Literal(Vec<u8>),
    /// The letter after `%`.
    Field(char),
}

/// Letters after `%` in the format of `-F`, and their meanings.
pub(super) const FIELDS: &[(char, &str)] = &[
    ('t', "topic"),
    ('p', "payload"),
    ('x', "payload as hexadecimal digits"),
    ('X', "the same in capitals"),
    ('l', "payload length in bytes"),
    ('q', "QoS"),
    ('r', "1 if retained, else 0"),
    ('d', "1 if repeated, else 0"),
    ('m', "packet id"),
    ('I', "time of arrival, ISO 8601 in UTC"),
    ('U', "time of arrival, seconds since 1970"),
    ('A', "topic alias"),
    ('C', "content type"),
    ('D', "correlation data"),
    ('E', "message expiry interval"),
    ('F', "payload format indicator"),
    ('P', "user properties, name:value"),
    ('R', "response topic"),
    ('S', "subscription identifiers"),
    ('%', "%"),
];

impl MessageFormat {
    /// Returns the format for `-v`, and for no flag at all.
    pub(super) fn plain(verbose: bool, newline: bool) -> MessageFormat {
        let mut parts = Vec::new();
        if verbose {
            parts
                .extend([MessageFormatPart::Field('t'), MessageFormatPart::Literal(b" ".to_vec())]);
        }
        parts.push(MessageFormatPart::Field('p'));
        if newline {
            parts.push(MessageFormatPart::Literal(b"\n".to_vec()));
        }
        MessageFormat { parts }
    }

    pub(super) fn parse(text: &str, newline: bool) -> Result<MessageFormat, String> {
        let mut parts = Vec::new();
        let mut literal = String::new();
        let mut chars = text.chars();
        while let Some(char) = chars.next() {
            match char {
                '\\' => literal.push(escape(chars.next())?),
                '%' => match chars.next() {
                    Some('%') => literal.push('%'),
                    Some(letter) if FIELDS.iter().any(|(known, _)| *known == letter) => {
                        if !literal.is_empty() {
                            let bytes = std::mem::take(&mut literal).into_bytes();
                            parts.push(MessageFormatPart::Literal(bytes));
                        }
                        parts.push(MessageFormatPart::Field(letter));
                    }
                    other => return Err(unknown_letter(other)),
                },
                _ => literal.push(char),
            }
        }
        if newline {
            literal.push('\n');
        }
        if !literal.is_empty() {
            parts.push(MessageFormatPart::Literal(literal.into_bytes()));
        }
        Ok(MessageFormat { parts })
    }

    pub(super) fn write(
        &self,
        message: &Publish<'_>,
        now: UnixTimestamp,
        out: &mut impl Write,
    ) -> io::Result<()> {
        for part in &self.parts {
            match part {
                MessageFormatPart::Literal(bytes) => out.write_all(bytes)?,
                MessageFormatPart::Field(letter) => write_field(*letter, message, now, out)?,
            }
        }
        Ok(())
    }
}

fn write_field(
    letter: char,
    message: &Publish<'_>,
    now: UnixTimestamp,
    out: &mut impl Write,
) -> io::Result<()> {
    match letter {
        't' => out.write_all(message.topic.as_bytes()),
        'p' => out.write_all(message.payload),
        'x' => message.payload.iter().try_for_each(|byte| write!(out, "{byte:02x}")),
        'X' => message.payload.iter().try_for_each(|byte| write!(out, "{byte:02X}")),
        'l' => write!(out, "{}", message.payload.len()),
        'q' => write!(out, "{}", message.qos as u8),
        'r' => write!(out, "{}", u8::from(message.retain)),
        'd' => write!(out, "{}", u8::from(message.dup)),
        'm' => write!(out, "{}", message.packet_id.map_or(0, u16::from)),
        'I' => write!(out, "{}+0000", now.seconds()),
        'U' => write!(out, "{}.{:09}", now.0.as_secs(), now.0.subsec_nanos()),
        _ => write_properties(letter, message, out),
    }
}

/// Writes a property of the message by a letter of [`FIELDS`]; an absent property is empty.
fn write_properties(letter: char, message: &Publish<'_>, out: &mut impl Write) -> io::Result<()> {
    let mut space = "";
    for property in message.properties.iter() {
        match (letter, property) {
            ('A', Property::TopicAlias(alias)) => write!(out, "{alias}")?,
            ('C', Property::ContentType(text)) | ('R', Property::ResponseTopic(text)) => {
                out.write_all(text.as_bytes())?;
            }
            ('D', Property::CorrelationData(bytes)) => out.write_all(bytes)?,
            ('E', Property::MessageExpiryInterval(seconds)) => write!(out, "{seconds}")?,
            ('F', Property::PayloadFormatIndicator(indicator)) => write!(out, "{indicator}")?,
            ('P', Property::UserProperty(name, value)) => {
                write!(out, "{space}{name}:{value}")?;
                space = " ";
            }
            ('S', Property::SubscriptionIdentifier(id)) => {
                write!(out, "{space}{id}")?;
                space = " ";
            }
            _ => {}
        }
    }
    Ok(())
}

fn escape(char: Option<char>) -> Result<char, String> {
    match char {
        Some('n') => Ok('\n'),
        Some('r') => Ok('\r'),
        Some('t') => Ok('\t'),
        Some('0') => Ok('\0'),
        Some('\\') => Ok('\\'),
        _ => Err("-F: after \\ use n, r, t, 0 or \\".to_string()),
    }
}

fn unknown_letter(letter: Option<char>) -> String {
    let letters: String = FIELDS.iter().map(|(letter, _)| *letter).collect();
    let letter = letter.map_or(String::new(), String::from);
    format!("-F: there is no %{letter}, use % with one of {letters}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use mqtt::{PropertiesBuf, QoS};
    use std::time::Duration;

    fn show(format: &MessageFormat) -> String {
        let mut properties = PropertiesBuf::default();
        properties
            .push(Property::UserProperty("a", "b"))
            .push(Property::UserProperty("c", "d"))
            .push(Property::ContentType("text"))
            .push(Property::SubscriptionIdentifier(7));
        let message = Publish {
            dup: false,
            qos: QoS::AtLeastOnce,
            retain: true,
            topic: "a/b",
            packet_id: mqtt::PacketId::new(9),
            properties: properties.as_properties(),
            payload: b"h\xFFi",
        };
        let mut out = Vec::new();
        format.write(&message, UnixTimestamp(Duration::from_millis(1_500)), &mut out).unwrap();
        out.iter().map(|byte| char::from(*byte)).collect()
    }

    #[test]
    fn formats_print_fields_and_escapes() {
        let format =
            MessageFormat::parse(r"%t|%x|%X|%l|%q|%r|%d|%m|%I|%U|%P|%C|%S|%R|%%\t\\", false);
        assert_eq!(
            show(&format.unwrap()),
            "a/b|68ff69|68FF69|3|1|1|0|9|1970-01-01T00:00:01+0000|1.500000000|a:b c:d|text|7||%\t\\"
        );
        assert_eq!(show(&MessageFormat::parse("%p", true).unwrap()), "h\u{FF}i\n");
        assert_eq!(show(&MessageFormat::plain(true, true)), "a/b h\u{FF}i\n");
        assert_eq!(show(&MessageFormat::plain(false, false)), "h\u{FF}i");
    }

    #[test]
    fn wrong_formats_say_what_there_is() {
        assert_eq!(
            MessageFormat::parse("%j", true).unwrap_err(),
            "-F: there is no %j, use % with one of tpxXlqrdmIUACDEFPRS%"
        );
        assert!(MessageFormat::parse("%", true).is_err());
        assert!(MessageFormat::parse("\\", true).is_err());
    }
}
