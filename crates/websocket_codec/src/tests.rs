//! Tests of encoding and decoding frames of both sides, with literal bytes and payloads of all
//! sizes.

use crate::*;

const KEY: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];
const FROM_CLIENT: FrameRules =
    FrameRules { from_client: true, accepts_text: true, payload_bytes_max: 70_000 };
const FROM_SERVER: FrameRules = FrameRules { from_client: false, ..FROM_CLIENT };

fn frame(opcode: FrameOpcode, payload: &[u8], key: Option<[u8; 4]>) -> Vec<u8> {
    let mut out = Vec::new();
    let (front, back) = payload.split_at(payload.len() / 2);
    write_frame(opcode, payload.len(), [front, back], key, &mut out);
    out
}

#[test]
fn frames_are_those_of_the_rfc() {
    // RFC 6455, 5.7.
    assert_eq!(frame(FrameOpcode::Text, b"Hello", None), b"\x81\x05Hello");
    let masked = b"\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58";
    assert_eq!(frame(FrameOpcode::Text, b"Hello", Some(KEY)), masked);
    assert_eq!(frame(FrameOpcode::Ping, b"Hello", None), b"\x89\x05Hello");
    let header = |len| frame(FrameOpcode::Binary, &vec![0; len], None)[..10].to_vec();
    assert_eq!(header(256)[..4], *b"\x82\x7e\x01\x00");
    assert_eq!(header(65_536), *b"\x82\x7f\0\0\0\0\0\x01\0\0");
}

#[test]
fn each_side_reads_what_the_other_writes_in_any_pieces() {
    for (rules, key) in [(FROM_CLIENT, Some(KEY)), (FROM_SERVER, None)] {
        for len in [0_usize, 1, 125, 126, 65_535, 65_536] {
            let payload: Vec<u8> = (0..len).map(|at| at as u8).collect();
            let bytes = frame(FrameOpcode::Binary, &payload, key);
            for piece in [7, 1_000, bytes.len()] {
                let (mut stream, mut answers, mut out) =
                    (FrameDecoder::default(), Vec::new(), Vec::new());
                for piece in bytes.chunks(piece) {
                    let mut piece = piece.to_vec();
                    let progress = stream.decode(&mut piece, 0, &rules, key, &mut answers);
                    assert_eq!(progress, Ok(StreamProgress::Open));
                    out.extend(piece);
                }
                assert!(out == payload && answers.is_empty(), "{len} bytes");
            }
            let (mut whole, mut messages) = (MessageDecoder::default(), Vec::new());
            let progress = whole.decode(&bytes, &rules, key, &mut Vec::new(), |message| {
                messages.push(message.to_vec());
            });
            assert_eq!(progress, Ok(MessageProgress { taken: bytes.len(), is_closed: false }));
            assert!(messages == [payload], "{len} bytes");
        }
    }
}

#[test]
fn a_message_is_joined_of_its_fragments_and_bounded_as_a_whole() {
    let rules = FrameRules { payload_bytes_max: 5, ..FROM_SERVER };
    let decode = |bytes: &[u8]| {
        let (mut decoder, mut answers, mut messages) =
            (MessageDecoder::default(), Vec::new(), Vec::new());
        let progress = decoder.decode(bytes, &rules, Some(KEY), &mut answers, |message| {
            messages.push(message.to_vec());
        });
        (messages, answers, progress.map(|progress| progress.is_closed))
    };
    let (messages, answers, closed) = decode(b"\x01\x02ab\x89\x01!\x80\x03cde\x82\x01f");
    assert_eq!((messages, closed), (vec![b"abcde".to_vec(), b"f".to_vec()], Ok(false)));
    assert_eq!(answers, frame(FrameOpcode::Pong, b"!", Some(KEY)));
    assert_eq!(decode(b"\x01\x03abc\x80\x03").2, Err(FrameError::TooLong), "together");
    assert_eq!(decode(b"\x82\x06").2, Err(FrameError::TooLong));
    assert_eq!(decode(b"\x80\x01a").2, Err(FrameError::Fragment));
    assert_eq!(decode(b"\x01\x01a\x01\x01b").2, Err(FrameError::Fragment));
    let (_, answers, closed) = decode(b"\x88\x02\x03\xe9");
    assert_eq!((answers, closed), (frame(FrameOpcode::Close, b"\x03\xe9", Some(KEY)), Ok(true)));
}

#[test]
fn masks_belong_to_clients_alone() {
    let text = FrameRules { accepts_text: false, ..FROM_SERVER };
    assert_eq!(header_len(0x82, 0x01, &FROM_CLIENT), Err(FrameError::Unmasked));
    assert_eq!(header_len(0x82, 0x81, &FROM_SERVER), Err(FrameError::Masked));
    assert_eq!(header_len(0x81, 0x01, &text), Err(FrameError::Text));
    assert_eq!(header_len(0x81, 0x01, &FROM_SERVER), Ok(2));
    assert_eq!(header_len(0x82, 0xff, &FROM_CLIENT), Ok(HEADER_BYTES_MAX));
}
