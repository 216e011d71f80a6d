//! Reads the extension of a ClientHello that rustls ignores: the record length of a device without
//! memory for 16 KiB (max_fragment_length, RFC 6066, 4).

use mqtt::ByteReader;

/// Result of [`preview_hello`] on the first bytes of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HelloPreview {
    /// The first record is not whole yet.
    Incomplete,
    /// Bytes of plain text in a record which the client takes at most; `None` is the 16 KiB of
    /// every client without the extension.
    Fragment(Option<usize>),
}

/// Looks into the first record of a connection. Bytes other than a ClientHello give no limit:
/// rustls finds the error.
pub(super) fn preview_hello(raw: &[u8]) -> HelloPreview {
    match raw {
        [HANDSHAKE, _, _, high, low, body @ ..] => {
            let len = usize::from(u16::from_be_bytes([*high, *low]));
            match body.get(..len) {
                Some(body) => HelloPreview::Fragment(max_fragment_len(body)),
                None if len > RECORD_BYTES_MAX => HelloPreview::Fragment(None),
                None => HelloPreview::Incomplete,
            }
        }
        [HANDSHAKE, ..] | [] => HelloPreview::Incomplete,
        _ => HelloPreview::Fragment(None),
    }
}

/// Returns the limit of the extension in a ClientHello (RFC 8446, 4.1.2), if present and valid.
fn max_fragment_len(handshake: &[u8]) -> Option<usize> {
    let mut hello = ByteReader::new(handshake);
    if hello.u8()? != CLIENT_HELLO {
        return None;
    }
    // Length; version and random.
    hello.bytes(3)?;
    hello.bytes(34)?;
    // Session id, cipher suites, compression methods.
    hello.vector_be(1)?;
    hello.vector_be(2)?;
    hello.vector_be(1)?;
    let mut extensions = ByteReader::new(hello.vector_be(2)?);
    loop {
        let kind = extensions.array()?;
        let body = extensions.vector_be(2)?;
        if kind == MAX_FRAGMENT_LENGTH {
            return match body {
                [code @ 1..=4] => Some(256 << code),
                _ => None,
            };
        }
    }
}

const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const MAX_FRAGMENT_LENGTH: [u8; 2] = [0, 1];
/// Length of the longest encrypted record (RFC 5246, 6.2.3).
const RECORD_BYTES_MAX: usize = (1 << 14) + 2048;

#[cfg(test)]
mod tests {
    use super::*;

    fn record(extensions: &[u8]) -> Vec<u8> {
        let mut hello = vec![CLIENT_HELLO, 0, 0, 0, 3, 3];
        hello.extend([7; 32]);
        hello.extend([0, 0, 2, 0x13, 1, 1, 0]);
        hello.extend((extensions.len() as u16).to_be_bytes());
        hello.extend(extensions);
        let mut record = vec![HANDSHAKE, 3, 1];
        record.extend((hello.len() as u16).to_be_bytes());
        record.extend(hello);
        record
    }

    #[test]
    fn each_code_of_max_fragment_length_is_a_size() {
        for (code, bytes) in [(1, 512), (2, 1024), (3, 2048), (4, 4096)] {
            let raw = record(&[0, 23, 0, 0, 0, 1, 0, 1, code]);
            assert_eq!(preview_hello(&raw), HelloPreview::Fragment(Some(bytes)));
        }
        for wrong in [&[0, 1, 0, 1, 0][..], &[0, 1, 0, 1, 5], &[0, 1, 0, 2, 1, 1], &[0, 23, 0, 0]] {
            assert_eq!(preview_hello(&record(wrong)), HelloPreview::Fragment(None));
        }
    }

    #[test]
    fn a_hello_that_is_cut_anywhere_is_waited_for() {
        let raw = record(&[0, 1, 0, 1, 2]);
        for end in 0..raw.len() {
            assert_eq!(preview_hello(&raw[..end]), HelloPreview::Incomplete, "{end}");
        }
        assert_eq!(preview_hello(b"\x10\x0d\0\x04MQTT"), HelloPreview::Fragment(None));
        assert_eq!(preview_hello(&[22, 3, 1, 0xff, 0xff, 1]), HelloPreview::Fragment(None));
    }

    #[test]
    fn a_hello_with_wrong_lengths_has_no_limit() {
        let whole = record(&[0, 1, 0, 1, 2]);
        for at in 5..whole.len() {
            for byte in [0, 1, 0x7f, 0xff] {
                let mut raw = whole.clone();
                raw[at] = byte;
                assert!(matches!(preview_hello(&raw), HelloPreview::Fragment(_)));
            }
        }
    }
}
