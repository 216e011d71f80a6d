//! The PROXY protocol, versions 1 and 2, as a receiver
//! (haproxy.org/download/2.9/doc/proxy-protocol.txt): a proxy names its client before the first
//! byte of the connection itself.
//!
//! ```text
//! v1   "PROXY TCP4 192.0.2.1 198.51.100.7 56324 1883\r\n"
//! v2   signature (12) | version, command | family, protocol | length (2) | addresses | TLVs
//! ```
//!
//! Where a listener expects a header, a missing one is an error: a client that could omit the
//! header could also send a header of its own.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Versions of the PROXY protocol that a listener accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyVersions {
    V1,
    V2,
    /// Accepts a header of either version.
    Both,
}

/// A complete header, as returned by [`read_header`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProxyHeader {
    pub len: usize,
    /// Address of the client. `None` for the command LOCAL, an unknown family, UDP and unix
    /// sockets: the address of the socket counts.
    pub source: Option<SocketAddr>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyError {
    /// An invalid address or port, or an address family unknown to the header's version.
    BadAddress,
    /// A version or command which version 2 does not define.
    UnknownCommand,
    /// A header of the version excluded by [`ProxyVersions`].
    WrongVersion,
    /// The bytes begin with neither version's signature.
    NoHeader,
    TooLong,
}

impl fmt::Display for ProxyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ProxyError::BadAddress => "the PROXY header has a wrong address",
            ProxyError::UnknownCommand => "the PROXY header has an unknown command",
            ProxyError::WrongVersion => {
                "the PROXY header is of a version that this listener does not take"
            }
            ProxyError::NoHeader => "the PROXY header is missing",
            ProxyError::TooLong => "the PROXY header is too long",
        })
    }
}

impl std::error::Error for ProxyError {}

/// Reads the header at the beginning of `bytes`; `None` as long as the header is incomplete.
pub fn read_header(
    bytes: &[u8],
    versions: ProxyVersions,
) -> Result<Option<ProxyHeader>, ProxyError> {
    if bytes.is_empty() {
        return Ok(None);
    }
    if matches_prefix(bytes, SIGNATURE) {
        return match versions {
            ProxyVersions::V1 => Err(ProxyError::WrongVersion),
            _ => read_v2(bytes),
        };
    }
    if matches_prefix(bytes, V1) {
        return match versions {
            ProxyVersions::V2 => Err(ProxyError::WrongVersion),
            _ => read_v1(bytes),
        };
    }
    Err(ProxyError::NoHeader)
}

/// Checks two properties of [`read_header`] for any bytes: a header never ends beyond the bytes,
/// and more bytes change neither a complete header nor an error. For the fuzzer and its corpus.
pub fn probe(bytes: &[u8]) {
    for versions in [ProxyVersions::V1, ProxyVersions::V2, ProxyVersions::Both] {
        let mut before = Ok(None);
        for len in 0..=bytes.len().min(PROBED_MAX) {
            let now = read_header(&bytes[..len], versions);
            assert!(before == Ok(None) || before == now, "{before:?}, then {now:?}");
            assert!(!matches!(now, Ok(Some(header)) if header.len > len), "{now:?} of {len}");
            before = now;
        }
    }
}

/// Whether `bytes` begins with `with`, or is a beginning of `with`.
fn matches_prefix(bytes: &[u8], with: &[u8]) -> bool {
    let len = bytes.len().min(with.len());
    bytes[..len] == with[..len]
}

fn read_v1(bytes: &[u8]) -> Result<Option<ProxyHeader>, ProxyError> {
    let seen = &bytes[..bytes.len().min(V1_BYTES_MAX)];
    let Some(end) = seen.windows(2).position(|pair| pair == b"\r\n") else {
        return if seen.len() == V1_BYTES_MAX { Err(ProxyError::TooLong) } else { Ok(None) };
    };
    let line = std::str::from_utf8(&seen[V1.len()..end]).map_err(|_| ProxyError::BadAddress)?;
    let len = end + 2;
    let mut words = line.split(' ');
    let family = words.next().unwrap_or_default();
    if family == "UNKNOWN" {
        return Ok(Some(ProxyHeader { len, source: None }));
    }
    let mut ip = || match family {
        "TCP4" => words.next()?.parse::<Ipv4Addr>().ok().map(IpAddr::V4),
        "TCP6" => words.next()?.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
        _ => None,
    };
    let (from, to) = (ip(), ip());
    let (from_port, to_port) = (words.next().and_then(port), words.next().and_then(port));
    match (from, to, from_port, to_port, words.next()) {
        (Some(from), Some(_), Some(port), Some(_), None) => {
            Ok(Some(ProxyHeader { len, source: Some(SocketAddr::new(from, port)) }))
        }
        _ => Err(ProxyError::BadAddress),
    }
}

/// Parses decimal digits without leading zeros.
fn port(text: &str) -> Option<u16> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit());
    let padded = text.len() > 1 && text.starts_with('0');
    if plain && !padded { text.parse().ok() } else { None }
}

fn read_v2(bytes: &[u8]) -> Result<Option<ProxyHeader>, ProxyError> {
    let Some(&[command, family, high, low]) = bytes.get(SIGNATURE.len()..V2_HEAD_BYTES) else {
        return Ok(None);
    };
    let rest = usize::from(u16::from_be_bytes([high, low]));
    if rest > V2_REST_BYTES_MAX {
        return Err(ProxyError::TooLong);
    }
    let from_itself = match command {
        0x20 => true,
        0x21 => false,
        _ => return Err(ProxyError::UnknownCommand),
    };
    let len = V2_HEAD_BYTES + rest;
    let Some(rest) = bytes.get(V2_HEAD_BYTES..len) else { return Ok(None) };
    if from_itself {
        return Ok(Some(ProxyHeader { len, source: None }));
    }
    let source = match family {
        // TCP over IPv4: both addresses, then both ports.
        0x11 => {
            let Some((ip, rest)) = rest.split_first_chunk::<4>() else {
                return Err(ProxyError::BadAddress);
            };
            Some((IpAddr::from(*ip), rest.get(4..8)))
        }
        // The same over IPv6.
        0x21 => {
            let Some((ip, rest)) = rest.split_first_chunk::<16>() else {
                return Err(ProxyError::BadAddress);
            };
            Some((IpAddr::from(*ip), rest.get(16..20)))
        }
        // Unspecified, UDP and unix sockets carry no usable address of a client.
        0x00 | 0x12 | 0x22 | 0x31 | 0x32 => None,
        _ => return Err(ProxyError::BadAddress),
    };
    let source = match source {
        Some((ip, Some(&[high, low, ..]))) => {
            Some(SocketAddr::new(ip, u16::from_be_bytes([high, low])))
        }
        Some(_) => return Err(ProxyError::BadAddress),
        None => None,
    };
    Ok(Some(ProxyHeader { len, source }))
}

const PROBED_MAX: usize = 8 * 1024;
const V1: &[u8] = b"PROXY ";
/// Length of the longest header of version 1 with its line end, by the specification.
const V1_BYTES_MAX: usize = 107;
const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
const V2_HEAD_BYTES: usize = 16;
/// Bound of the bytes after the fixed part: addresses take at most 216, the rest are TLVs with
/// names and ids.
const V2_REST_BYTES_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn v2(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let mut bytes = SIGNATURE.to_vec();
        bytes.extend([command, family]);
        bytes.extend((rest.len() as u16).to_be_bytes());
        bytes.extend(rest);
        bytes
    }

    /// Checks that a complete header is read, that each part of the header gives `None`, and that
    /// bytes behind it are not consumed.
    fn check(header: &[u8], source: Option<&str>) {
        let source = source.map(|source| source.parse().unwrap());
        let mut bytes = header.to_vec();
        bytes.extend(b"\x10\x0c");
        let whole = ProxyHeader { len: header.len(), source };
        assert_eq!(read_header(&bytes, ProxyVersions::Both), Ok(Some(whole)));
        for len in 0..header.len() {
            assert_eq!(read_header(&header[..len], ProxyVersions::Both), Ok(None), "{len} bytes");
        }
    }

    #[test]
    fn headers_name_the_client_of_the_proxy() {
        check(b"PROXY TCP4 192.0.2.1 198.51.100.7 56324 1883\r\n", Some("192.0.2.1:56324"));
        check(b"PROXY TCP6 2001:db8::1 ::1 1 65535\r\n", Some("[2001:db8::1]:1"));
        check(b"PROXY UNKNOWN\r\n", None);
        check(b"PROXY UNKNOWN ff::1 ff::1 0 0\r\n", None);
        let v4 = [192, 0, 2, 1, 198, 51, 100, 7, 0xdc, 0x04, 0x07, 0x5b];
        check(&v2(0x21, 0x11, &v4), Some("192.0.2.1:56324"));
        let mut v6 = [0; 36];
        (v6[15], v6[32]) = (1, 1);
        check(&v2(0x21, 0x21, &v6), Some("[::1]:256"));
        // With TLVs, from the proxy itself, and from a family without addresses.
        check(&v2(0x21, 0x11, &[&v4[..], &[4, 0, 1, 0]].concat()), Some("192.0.2.1:56324"));
        check(&v2(0x20, 0x11, &v4), None);
        check(&v2(0x20, 0x00, b""), None);
        check(&v2(0x21, 0x31, &[0; 216]), None);
    }

    #[test]
    fn wrong_headers_are_refused() {
        let wrong: &[(&[u8], ProxyError)] = &[
            (b"\x10\x0c\0\x04MQTT", ProxyError::NoHeader),
            (b"PROXX", ProxyError::NoHeader),
            (b"\r\n\r\nQ", ProxyError::NoHeader),
            (b"PROXY TCP4 192.0.2.1 198.51.100.7 56324\r\n", ProxyError::BadAddress),
            (b"PROXY TCP4 192.0.2.1 198.51.100.7 1 2 3\r\n", ProxyError::BadAddress),
            (b"PROXY TCP4 ::1 ::1 1 2\r\n", ProxyError::BadAddress),
            (b"PROXY TCP4 192.0.2.1 198.51.100.7 65536 2\r\n", ProxyError::BadAddress),
            (b"PROXY TCP4 192.0.2.1 198.51.100.7 +1 2\r\n", ProxyError::BadAddress),
            (b"PROXY TCP4 192.0.2.1 198.51.100.7 01 2\r\n", ProxyError::BadAddress),
            (b"PROXY TCP4  192.0.2.1 198.51.100.7 1 2\r\n", ProxyError::BadAddress),
            (b"PROXY UDP4 192.0.2.1 198.51.100.7 1 2\r\n", ProxyError::BadAddress),
            (b"PROXY \xff\r\n", ProxyError::BadAddress),
        ];
        for (bytes, why) in wrong {
            assert_eq!(
                read_header(bytes, ProxyVersions::Both),
                Err(*why),
                "{}",
                bytes.escape_ascii()
            );
        }
        assert_eq!(
            read_header(&[b"PROXY ", &[b'1'; 101][..]].concat(), ProxyVersions::V1),
            Err(ProxyError::TooLong)
        );
        assert_eq!(
            read_header(&v2(0x31, 0x11, &[0; 12]), ProxyVersions::V2),
            Err(ProxyError::UnknownCommand)
        );
        assert_eq!(
            read_header(&v2(0x22, 0x11, &[0; 12]), ProxyVersions::V2),
            Err(ProxyError::UnknownCommand)
        );
        assert_eq!(
            read_header(&v2(0x21, 0x11, &[0; 11]), ProxyVersions::V2),
            Err(ProxyError::BadAddress)
        );
        assert_eq!(
            read_header(&v2(0x21, 0x21, &[0; 15]), ProxyVersions::V2),
            Err(ProxyError::BadAddress)
        );
        assert_eq!(
            read_header(&v2(0x21, 0x41, &[0; 12]), ProxyVersions::V2),
            Err(ProxyError::BadAddress)
        );
        let long = v2(0x21, 0x11, &[0; V2_REST_BYTES_MAX + 1]);
        assert_eq!(
            read_header(&long[..V2_HEAD_BYTES], ProxyVersions::V2),
            Err(ProxyError::TooLong)
        );
    }

    #[test]
    fn a_listener_takes_only_the_version_that_it_was_told() {
        let (one, two) = (b"PROXY UNKNOWN\r\n", v2(0x20, 0, b""));
        assert_eq!(read_header(one, ProxyVersions::V2), Err(ProxyError::WrongVersion));
        assert_eq!(read_header(&two, ProxyVersions::V1), Err(ProxyError::WrongVersion));
        assert!(read_header(one, ProxyVersions::V1).unwrap().is_some());
        assert!(read_header(&two, ProxyVersions::V2).unwrap().is_some());
    }
}
