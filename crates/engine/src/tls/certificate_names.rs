//! The names in a certificate: its subject, and its subject alternative names.

use broker::{AlternativeName, PeerCertificate};
use std::fmt::Write as _;
use std::net::IpAddr;
use x509_parser::certificate::X509Certificate;
use x509_parser::der_parser::asn1_rs::Tag;
use x509_parser::extensions::GeneralName;
use x509_parser::oid_registry::OID_X509_COMMON_NAME;
use x509_parser::prelude::FromDer;
use x509_parser::x509::X509Name;

pub(super) fn parse_certificate(der: &[u8]) -> Option<PeerCertificate> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let (common_name, subject) = subject(certificate.subject());
    // RFC 5280, 4.2.1.6.
    let names = certificate.subject_alternative_name().ok().flatten();
    let names = names.iter().flat_map(|names| &names.value.general_names);
    let alternatives = names.filter_map(alternative).collect();
    Some(PeerCertificate { common_name, subject, alternatives })
}

/// Returns the CN, and the whole subject in the order of RFC 4514: the most specific part first.
/// With several CNs there is no common name, since programs differ in their choice.
fn subject(name: &X509Name<'_>) -> (Option<Box<str>>, Box<str>) {
    let (mut common_names, mut parts) = (Vec::new(), Vec::new());
    for set in name.iter() {
        let mut several = Vec::new();
        for pair in set.iter() {
            let (kind, value) = (pair.attr_type(), pair.attr_value());
            let text = text(value.tag(), value.data);
            if *kind == OID_X509_COMMON_NAME {
                common_names.push(text.clone().map(String::into_boxed_str));
            }
            several.push(attribute(kind.as_bytes(), value.data, text));
        }
        parts.push(several.join("+"));
    }
    parts.reverse();
    let common_name = match common_names.len() {
        1 => common_names.remove(0),
        _ => None,
    };
    (common_name, parts.join(",").into())
}

/// Decodes a name. `None` for control characters, which other programs may read as another name,
/// and for string types other than UTF-8, printable, IA5 and BMP.
fn text(tag: Tag, contents: &[u8]) -> Option<String> {
    let text = match tag {
        Tag::Utf8String | Tag::PrintableString | Tag::Ia5String => {
            String::from_utf8(contents.to_vec()).ok()?
        }
        Tag::BmpString if contents.len().is_multiple_of(2) => {
            let units = contents.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]));
            char::decode_utf16(units).collect::<Result<_, _>>().ok()?
        }
        _ => return None,
    };
    is_name(&text).then_some(text)
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && !text.chars().any(char::is_control)
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

/// Escapes the special characters of a value (RFC 4514, 2.4).
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

/// Returns an OID in decimal notation. `x509_parser` decodes the first two numbers from one octet,
/// which is wrong from 2.40 on.
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

fn alternative(name: &GeneralName<'_>) -> Option<AlternativeName> {
    let named = |text: &str| is_name(text).then(|| text.into());
    match name {
        GeneralName::RFC822Name(text) => named(text).map(AlternativeName::Email),
        GeneralName::DNSName(text) => named(text).map(AlternativeName::Dns),
        GeneralName::URI(text) => named(text).map(AlternativeName::Uri),
        GeneralName::IPAddress(contents) => {
            let v4 = <[u8; 4]>::try_from(*contents).map(IpAddr::from);
            let any = v4.or_else(|_| <[u8; 16]>::try_from(*contents).map(IpAddr::from));
            any.ok().map(AlternativeName::Address)
        }
        _ => None,
    }
}

const CN: &[u8] = &[0x55, 4, 3];
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

    const ALTERNATIVES: &[u8] = &[0x55, 0x1d, 17];
    const OCTETS: u8 = 0x04;
    const OID: u8 = 0x06;
    const UTF8: u8 = 0x0c;
    const PRINTABLE: u8 = 0x13;
    const SEQUENCE: u8 = 0x30;
    const SET: u8 = 0x31;

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

    /// Encodes a certificate with these names, and with the minimum of all other fields.
    fn named(subject: &[Vec<u8>], alternatives: &[Vec<u8>]) -> Vec<u8> {
        let subject: Vec<&[u8]> = subject.iter().map(Vec::as_slice).collect();
        let alternatives: Vec<&[u8]> = alternatives.iter().map(Vec::as_slice).collect();
        let names = der(OCTETS, &[&der(SEQUENCE, &alternatives)]);
        let extension = der(SEQUENCE, &[&der(OID, &[ALTERNATIVES]), &names]);
        let algorithm = der(SEQUENCE, &[&der(OID, &[&[0x2b, 0x65, 0x70]])]);
        let time = der(0x17, &[b"260101000000Z"]);
        let bits: &[u8] = &[3, 1, 0];
        let signed = der(
            SEQUENCE,
            &[
                &der(0xa0, &[&[2, 1, 2]]),
                &[2, 1, 9],
                &algorithm,
                &der(SEQUENCE, &[]),
                &der(SEQUENCE, &[&time, &time]),
                &der(SEQUENCE, &subject),
                &der(SEQUENCE, &[&algorithm, bits]),
                &der(0xa3, &[&der(SEQUENCE, &[&extension])]),
            ],
        );
        der(SEQUENCE, &[&signed, &algorithm, bits])
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
    fn of_several_common_names_none_is_the_name() {
        let subject = [attribute(CN, UTF8, b"dev1"), attribute(CN, UTF8, b"admin")];
        let read = parse_certificate(&named(&subject, &[])).unwrap();
        assert_eq!(read.common_name, None);
        assert_eq!(&*read.subject, "CN=admin,CN=dev1");
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
