//! The names in a certificate: its subject, and the alternatives beside it.

use super::der::{BMP, BOOLEAN, DerReader, IA5, OCTETS, OID, PRINTABLE, SEQUENCE, SET, UTF8};
use broker::{AlternativeName, PeerCertificate};
use std::fmt::Write as _;
use std::net::IpAddr;

pub(super) fn parse_certificate(der: &[u8]) -> Option<PeerCertificate> {
    let mut body = DerReader::new(DerReader::new(der).expect(SEQUENCE)?);
    let mut signed = DerReader::new(body.expect(SEQUENCE)?);
    // Version; serial number, algorithm, issuer and validity; subject; key; extensions.
    signed.optional(0xa0);
    for _ in 0..4 {
        signed.element()?;
    }
    let (common_name, subject) = subject(signed.expect(SEQUENCE)?)?;
    signed.element()?;
    let mut alternatives = Vec::new();
    while let Some((tag, contents)) = signed.element() {
        if tag == 0xa3 {
            alternatives = find_alternatives(contents).unwrap_or_default();
        }
    }
    Some(PeerCertificate { common_name, subject, alternatives })
}

/// The most specific CN, and everything as RFC 4514 writes it: the most specific first.
fn subject(name: &[u8]) -> Option<(Option<Box<str>>, Box<str>)> {
    let (mut common_name, mut parts) = (None, Vec::new());
    let mut name = DerReader::new(name);
    while let Some(set) = name.optional(SET) {
        let (mut set, mut several) = (DerReader::new(set), Vec::new());
        while let Some(pair) = set.optional(SEQUENCE) {
            let mut pair = DerReader::new(pair);
            let kind = pair.expect(OID)?;
            let (tag, contents) = pair.element()?;
            let text = text(tag, contents);
            if kind == CN {
                common_name = text.clone().map(String::into_boxed_str);
            }
            several.push(attribute(kind, contents, text));
        }
        parts.push(several.join("+"));
    }
    parts.reverse();
    Some((common_name, parts.join(",").into()))
}

/// Text without control characters, which would read as another name somewhere.
fn text(tag: u8, contents: &[u8]) -> Option<String> {
    let text = match tag {
        UTF8 | PRINTABLE | IA5 => String::from_utf8(contents.to_vec()).ok()?,
        BMP if contents.len().is_multiple_of(2) => {
            let units = contents.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]));
            char::decode_utf16(units).collect::<Result<_, _>>().ok()?
        }
        _ => return None,
    };
    (!text.is_empty() && !text.chars().any(char::is_control)).then_some(text)
}

fn attribute(kind: &[u8], contents: &[u8], text: Option<String>) -> String {
    let known = ATTRIBUTES.iter().find(|(oid, _)| *oid == kind);
    let name = known.map_or_else(|| dotted(kind), |(_, name)| (*name).to_string());
    match text {
        Some(text) => format!("{name}={}", escaped(&text)),
        None => {
            let mut hex = format!("{name}=#");
            contents.iter().for_each(|byte| _ = write!(hex, "{byte:02x}"));
            hex
        }
    }
}

/// RFC 4514, 2.4.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    let last = text.chars().count() - 1;
    for (at, char) in text.chars().enumerate() {
        let edge = char == ' ' && (at == 0 || at == last) || char == '#' && at == 0;
        if edge || matches!(char, '"' | '+' | ',' | ';' | '<' | '>' | '\\') {
            escaped.push('\\');
        }
        escaped.push(char);
    }
    escaped
}

fn dotted(oid: &[u8]) -> String {
    let (mut text, mut number, mut first) = (String::new(), 0_u64, true);
    for byte in oid {
        number = number << 7 | u64::from(byte & 0x7f);
        if byte & 0x80 != 0 {
            continue;
        }
        if first {
            let root = (number / 40).min(2);
            let _ = write!(text, "{root}.{}", number - 40 * root);
            first = false;
        } else {
            let _ = write!(text, ".{number}");
        }
        number = 0;
    }
    text
}

/// RFC 5280, 4.2.1.6.
fn find_alternatives(extensions: &[u8]) -> Option<Vec<AlternativeName>> {
    let mut extensions = DerReader::new(DerReader::new(extensions).expect(SEQUENCE)?);
    let mut found = Vec::new();
    while let Some(extension) = extensions.optional(SEQUENCE) {
        let mut extension = DerReader::new(extension);
        if extension.expect(OID)? != ALTERNATIVES {
            continue;
        }
        extension.optional(BOOLEAN);
        let names = DerReader::new(extension.expect(OCTETS)?).expect(SEQUENCE)?;
        let mut names = DerReader::new(names);
        while let Some((tag, contents)) = names.element() {
            found.extend(alternative(tag, contents));
        }
    }
    Some(found)
}

fn alternative(tag: u8, contents: &[u8]) -> Option<AlternativeName> {
    let text = || text(IA5, contents).map(String::into_boxed_str);
    match tag {
        0x81 => text().map(AlternativeName::Email),
        0x82 => text().map(AlternativeName::Dns),
        0x86 => text().map(AlternativeName::Uri),
        0x87 => {
            let v4 = <[u8; 4]>::try_from(contents).map(IpAddr::from);
            let any = v4.or_else(|_| <[u8; 16]>::try_from(contents).map(IpAddr::from));
            any.ok().map(AlternativeName::Address)
        }
        _ => None,
    }
}

const CN: &[u8] = &[0x55, 4, 3];
const ALTERNATIVES: &[u8] = &[0x55, 0x1d, 17];
/// Attribute types of RFC 4514, and `emailAddress`, which most programs print too.
const ATTRIBUTES: &[(&[u8], &str)] = &[
    (CN, "CN"),
    (&[0x55, 4, 6], "C"),
    (&[0x55, 4, 7], "L"),
    (&[0x55, 4, 8], "ST"),
    (&[0x55, 4, 9], "STREET"),
    (&[0x55, 4, 10], "O"),
    (&[0x55, 4, 11], "OU"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 1], "UID"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25], "DC"),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1], "emailAddress"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn der(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
        let contents = parts.concat();
        let mut bytes = vec![tag];
        match contents.len() {
            len @ 0..=127 => bytes.push(len as u8),
            len => bytes.extend([0x82, (len >> 8) as u8, len as u8]),
        }
        bytes.extend(contents);
        bytes
    }

    fn attribute(oid: &[u8], tag: u8, value: &[u8]) -> Vec<u8> {
        der(SET, &[&der(SEQUENCE, &[&der(OID, &[oid]), &der(tag, &[value])])])
    }

    /// A certificate as far as names go.
    fn named(subject: &[Vec<u8>], alternatives: &[Vec<u8>]) -> Vec<u8> {
        let subject: Vec<&[u8]> = subject.iter().map(Vec::as_slice).collect();
        let alternatives: Vec<&[u8]> = alternatives.iter().map(Vec::as_slice).collect();
        let names = der(OCTETS, &[&der(SEQUENCE, &alternatives)]);
        let extension = der(SEQUENCE, &[&der(OID, &[ALTERNATIVES]), &names]);
        let empty = der(SEQUENCE, &[]);
        let signed = der(
            SEQUENCE,
            &[
                &der(0xa0, &[&[2, 1, 2]]),
                &[2, 1, 9],
                &empty,
                &empty,
                &empty,
                &der(SEQUENCE, &subject),
                &empty,
                &der(0xa3, &[&der(SEQUENCE, &[&extension])]),
            ],
        );
        der(SEQUENCE, &[&signed, &empty, &[3, 1, 0]])
    }

    #[test]
    fn subject_and_alternatives_are_read() {
        let subject = [
            attribute(&[0x55, 4, 6], PRINTABLE, b"DE"),
            attribute(&[0x55, 4, 10], UTF8, b"Birds, Ltd."),
            attribute(&[0x55, 4, 3], UTF8, b"sensor-7"),
        ];
        let alternatives = [
            der(0x82, &[b"*.example.org"]),
            der(0x87, &[&[192, 0, 2, 1]]),
            der(0x86, &[b"urn:sensor:7"]),
            der(0x81, &[b"a@example.org"]),
        ];
        let read = parse_certificate(&named(&subject, &alternatives)).unwrap();
        assert_eq!(read.common_name.as_deref(), Some("sensor-7"));
        assert_eq!(&*read.subject, "CN=sensor-7,O=Birds\\, Ltd.,C=DE");
        let expected = [
            AlternativeName::Dns("*.example.org".into()),
            AlternativeName::Address([192, 0, 2, 1].into()),
            AlternativeName::Uri("urn:sensor:7".into()),
            AlternativeName::Email("a@example.org".into()),
        ];
        assert_eq!(read.alternatives, expected);
    }

    #[test]
    fn a_name_with_a_control_character_is_no_name() {
        let read = parse_certificate(&named(&[attribute(CN, UTF8, b"admin\0.evil")], &[])).unwrap();
        assert_eq!(read.common_name, None);
        assert_eq!(&*read.subject, "CN=#61646d696e002e6576696c");
    }

    #[test]
    fn a_certificate_that_is_cut_anywhere_is_read_without_harm() {
        let whole = named(&[attribute(CN, UTF8, b"a")], &[der(0x82, &[b"a.example.org"])]);
        for len in 0..whole.len() {
            assert!(parse_certificate(&whole[..len]).is_none(), "{len} bytes");
        }
        for at in 0..whole.len() {
            let mut bent = whole.clone();
            bent[at] ^= 0xff;
            let _ = parse_certificate(&bent);
        }
    }

    #[test]
    fn unknown_attributes_have_their_number() {
        assert_eq!(dotted(&[0x2a, 0x86, 0x48]), "1.2.840");
        assert_eq!(dotted(&[0x88, 0x37]), "2.999");
        assert_eq!(escaped(" a;b "), "\\ a\\;b\\ ");
        assert_eq!(escaped("#1"), "\\#1");
    }
}
