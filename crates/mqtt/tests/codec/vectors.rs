//! Replays `vectors/*.txt`: bytes, each with the packet or the violation that they encode.
//!
//! ```text
//! version  bytes (hex, and quoted ASCII), on as many lines as they need
//!          = the packet; encoding it gives the same bytes
//!          ~ the packet; encoding it gives shorter bytes for the same packet
//!          ! the violation
//!          ? incomplete, wait for more
//! ```
//!
//! The version is `v3.1`, `v3.1.1`, `v5`, `v3.x` for the first two or `any` for all. An indented
//! line continues the one above it.

use crate::show::show;
use mqtt::*;
use std::fs;
use std::path::Path;

const PACKET_BYTES_MAX: u32 = 1 << 20;

/// An entry of a vector file, for one protocol version.
#[derive(Debug)]
pub(crate) struct Vector {
    /// File and line of the entry.
    pub(crate) place: String,
    pub(crate) version: ProtocolVersion,
    pub(crate) bytes: Vec<u8>,
    pub(crate) sign: char,
    pub(crate) meaning: String,
}

#[test]
fn bytes_mean_what_the_vectors_say() {
    let vectors = load();
    assert!(vectors.len() > 400, "{} vectors", vectors.len());
    let wrong: Vec<String> = vectors.iter().filter_map(contradiction).collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Returns the difference between a vector and the codec, if any.
fn contradiction(vector: &Vector) -> Option<String> {
    let (sign, meaning, encoded) = read(&vector.bytes, vector.version);
    let means = |sign| vector.sign == sign && vector.meaning == meaning;
    let is_right = match sign {
        '=' if encoded == vector.bytes => means('='),
        '=' => {
            let again = read(&encoded, vector.version);
            means('~') && again.1 == meaning && encoded.len() <= vector.bytes.len()
        }
        _ => means(sign),
    };
    (!is_right).then(|| {
        let Vector { place, version, .. } = vector;
        let encoded = encoded.escape_ascii();
        format!("{place} {version:?}\n  {sign} {meaning}\n  encoded: {encoded}")
    })
}

/// Decodes and encodes the bytes. Returns the sign of the entry, the packet or violation as text,
/// and the encoded bytes.
fn read(bytes: &[u8], version: ProtocolVersion) -> (char, String, Vec<u8>) {
    let frame = match split_frame(bytes, PACKET_BYTES_MAX) {
        Ok(Some(frame)) => frame,
        Ok(None) => return ('?', String::new(), Vec::new()),
        Err(violation) => return ('!', format!("{violation:?}"), Vec::new()),
    };
    assert_eq!(frame.len, bytes.len(), "length of {}", bytes.escape_ascii());
    assert_eq!(expected_len(bytes), Some(frame.len));
    match Packet::decode(frame, version) {
        Ok(packet) => {
            let version = match packet {
                Packet::Connect(connect) => connect.version,
                _ => version,
            };
            let mut encoded = Vec::new();
            packet.encode(version, &mut encoded);
            ('=', show(&packet), encoded)
        }
        Err(violation) => ('!', format!("{violation:?}"), Vec::new()),
    }
}

pub(crate) fn load() -> Vec<Vector> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("vectors");
    let mut files: Vec<_> =
        fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    let mut vectors = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let name = file.file_name().unwrap().to_string_lossy();
        parse(&name, &text, &mut vectors);
    }
    vectors
}

fn parse(name: &str, text: &str, vectors: &mut Vec<Vector>) {
    let lines: Vec<(usize, &str)> = (1..).zip(text.lines()).collect();
    let mut rest = lines.as_slice();
    while let Some((&(number, line), after)) = rest.split_first() {
        rest = after;
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let indented = rest.iter().take_while(|(_, line)| line.starts_with(' ')).count();
        let (entry, after) = rest.split_at(indented);
        rest = after;
        let place = format!("{name}:{number}");
        let lines = entry.iter().map(|(_, line)| line.trim());
        let is_meaning = |line: &&str| line.starts_with(['=', '~', '!', '?']);
        let bytes_lines = lines.clone().take_while(|line| !is_meaning(line));
        let (versions, first_bytes) = line.split_once(' ').unwrap_or((line, ""));
        let bytes = bytes(&bytes_lines.fold(first_bytes.to_string(), |sum, line| sum + " " + line));
        let meaning: Vec<&str> = lines.skip_while(|line| !is_meaning(line)).collect();
        let meaning = meaning.join(" ");
        let sign = meaning.chars().next().unwrap_or_else(|| panic!("{place}: no meaning"));
        for &version in versions_of(versions) {
            vectors.push(Vector {
                place: place.clone(),
                version,
                bytes: bytes.clone(),
                sign,
                meaning: meaning[1..].trim().to_string(),
            });
        }
    }
}

fn versions_of(word: &str) -> &'static [ProtocolVersion] {
    match word {
        "any" => &[ProtocolVersion::V31, ProtocolVersion::V311, ProtocolVersion::V5],
        "v3.x" => &[ProtocolVersion::V31, ProtocolVersion::V311],
        "v3.1" => &[ProtocolVersion::V31],
        "v3.1.1" => &[ProtocolVersion::V311],
        "v5" => &[ProtocolVersion::V5],
        _ => panic!("version {word}"),
    }
}

/// Parses bytes: hexadecimal digits outside of quotes, ASCII inside.
fn bytes(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    for (i, part) in text.split('"').enumerate() {
        if i % 2 == 1 {
            out.extend(part.bytes());
            continue;
        }
        let digits: Vec<u8> = part
            .split_whitespace()
            .flat_map(str::chars)
            .map(|c| c.to_digit(16).unwrap() as u8)
            .collect();
        assert!(digits.len().is_multiple_of(2), "half a byte in {text}");
        out.extend(digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]));
    }
    out
}
