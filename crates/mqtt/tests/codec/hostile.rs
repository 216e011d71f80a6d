//! Invalid and arbitrary bytes: decoding never panics, and an accepted packet can be encoded and
//! decoded again.

use crate::vectors;
use mqtt::*;
use proptest::prelude::*;

const VERSIONS: [ProtocolVersion; 3] =
    [ProtocolVersion::V31, ProtocolVersion::V311, ProtocolVersion::V5];

/// Decodes the bytes. If that succeeds, encodes the packet and checks that decoding returns the
/// same packet.
fn check(bytes: &[u8], version: ProtocolVersion) {
    let Ok(Some(frame)) = split_frame(bytes, 1 << 20) else { return };
    let Ok(packet) = Packet::decode(frame, version) else { return };
    let version = match packet {
        Packet::Connect(connect) => connect.version,
        _ => version,
    };
    let mut encoded = Vec::new();
    packet.encode(version, &mut encoded);
    let frame = split_frame(&encoded, 1 << 20).expect("well formed").expect("complete");
    assert_eq!(frame.len, encoded.len());
    assert_eq!(Packet::decode(frame, version), Ok(packet), "{}", bytes.escape_ascii());
}

/// Returns a frame with the first byte `first` and a header that fits the body.
fn framed(first: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![first];
    encode_remaining_len(body.len(), &mut bytes);
    bytes.extend_from_slice(body);
    bytes
}

#[test]
fn every_vector_in_every_version_with_every_byte_changed() {
    for vector in vectors::load() {
        let mut bytes = vector.bytes;
        for i in 0..bytes.len() {
            let original = bytes[i];
            for changed in [0, 1, 0x7F, 0x80, 0xFF, original ^ 1, original.wrapping_add(1)] {
                bytes[i] = changed;
                VERSIONS.into_iter().for_each(|version| check(&bytes, version));
            }
            bytes[i] = original;
        }
    }
}

#[test]
fn every_vector_cut_anywhere_under_a_header_that_fits() {
    for vector in vectors::load() {
        let Ok(Some(frame)) = split_frame(&vector.bytes, 1 << 20) else { continue };
        for end in 0..frame.body.len() {
            let bytes = framed(frame.first, &frame.body[..end]);
            VERSIONS.into_iter().for_each(|version| check(&bytes, version));
        }
    }
}

#[test]
fn every_first_byte_over_short_bodies() {
    for first in 0..=u8::MAX {
        for body in [&b""[..], b"\0", b"\0\x01", b"\0\x01\0", b"\0\x01\0\0", b"\0\x01\0\0\0"] {
            VERSIONS.into_iter().for_each(|version| check(&framed(first, body), version));
        }
    }
}

proptest! {
    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        VERSIONS.into_iter().for_each(|version| check(&bytes, version));
    }

    #[test]
    fn any_body(first in any::<u8>(), body in prop::collection::vec(0_u8..0x30, 0..48)) {
        VERSIONS.into_iter().for_each(|version| check(&framed(first, &body), version));
    }
}
