//! The file of pre-shared keys in mosquitto's format: a line `IDENTITY:KEY` per client, with the
//! key in hexadecimal. Blank lines and lines that begin with `#` are ignored.

use config::source::{self, LineErrors};
use engine::tls::psk::{IDENTITY_BYTES_MAX, KEY_BYTES_MAX, PskKeys};
use std::collections::HashMap;
use std::path::Path;

type PskByIdentity = HashMap<Box<str>, Box<[u8]>>;

/// Reads the file; the error has a sentence for each wrong line.
pub fn read_psk_file(path: &Path) -> Result<PskKeys, Vec<String>> {
    let keys = source::read(path, "file of keys (tls.psk_file)", "identities are", parse)?;
    PskKeys::new(keys).map_err(|why| vec![format!("tls.psk_file: OpenSSL: {why}")])
}

fn parse(text: &str) -> Result<PskByIdentity, LineErrors> {
    let (mut keys, mut wrongs) = (PskByIdentity::new(), LineErrors::new());
    for (at, line) in text.lines().enumerate() {
        let line = line.trim_end();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Err(why) = parse_psk_line(&mut keys, line) {
            wrongs.push((at + 1, why));
        }
    }
    if keys.is_empty() && wrongs.is_empty() {
        wrongs.push((1, format!("nobody has a key, use lines like {FORM}")));
    }
    if wrongs.is_empty() { Ok(keys) } else { Err(wrongs) }
}

/// Parses a line. Errors do not repeat text that may be a key in the wrong place.
fn parse_psk_line(keys: &mut PskByIdentity, line: &str) -> Result<(), String> {
    // A key has no colon, and an identity may be a URN.
    let Some((identity, key)) = line.rsplit_once(':') else {
        return Err(format!("a colon is missing, use {FORM}"));
    };
    if identity.is_empty() {
        return Err(format!("the identity before the colon is missing, use {FORM}"));
    }
    if identity.len() > IDENTITY_BYTES_MAX {
        return Err(format!("the identity is too long, use at most {IDENTITY_BYTES_MAX} bytes"));
    }
    if identity.contains(char::is_control) {
        return Err("an identity has no control characters".to_string());
    }
    let key = decode_key(key).ok_or_else(|| {
        format!(
            "the key of {identity:?} is not hexadecimal, use two digits a byte, at most \
             {KEY_BYTES_MAX} bytes (openssl rand -hex 32)"
        )
    })?;
    match keys.insert(identity.into(), key) {
        None => Ok(()),
        Some(_) => Err(format!("identity {identity:?} stands above already, leave one line")),
    }
}

fn decode_key(hex: &str) -> Option<Box<[u8]>> {
    let digits: Option<Vec<u8>> =
        hex.chars().map(|digit| Some(digit.to_digit(16)? as u8)).collect();
    let digits = digits.filter(|digits| digits.len().is_multiple_of(2))?;
    let bytes: Box<[u8]> = digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect();
    (1..=KEY_BYTES_MAX).contains(&bytes.len()).then_some(bytes)
}

const FORM: &str = "IDENTITY:KEY, the key in hexadecimal";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_an_identity_and_a_key() {
        let keys = parse("# ours\n\nsensor-7:00fF10\r\nurn:dev:mac:1:a1\n").unwrap();
        assert_eq!(&*keys["sensor-7"], [0, 0xff, 0x10]);
        assert_eq!(&*keys["urn:dev:mac:1"], [0xa1]);
        assert_eq!(keys.len(), 2);
    }

    #[test]
    fn every_wrong_line_is_told_and_no_key_is() {
        let (long, large) = ("i".repeat(129), "ab".repeat(257));
        let text = format!(
            "c0ffee\n:c0ffee\na:c0ffe\na:0xc0ffee\na:\n{long}:c0ffee\nb\u{7}:c0ffee\nb:{large}\n\
             c:c0ffee\nc:c0ffee\n"
        );
        let wrongs = parse(&text).unwrap_err();
        let lines: Vec<usize> = wrongs.iter().map(|(line, _)| *line).collect();
        assert_eq!(lines, [1, 2, 3, 4, 5, 6, 7, 8, 10]);
        assert!(wrongs.iter().all(|(_, why)| !why.contains("c0ffe")), "{wrongs:?}");
        assert_eq!(wrongs[0].1, "a colon is missing, use IDENTITY:KEY, the key in hexadecimal");
        assert!(wrongs[2].1.contains("two digits a byte"), "{wrongs:?}");
        assert_eq!(wrongs[8].1, "identity \"c\" stands above already, leave one line");
    }

    #[test]
    fn a_file_without_a_key_lets_nobody_in_and_says_so() {
        let wrongs = parse("# later\n").unwrap_err();
        assert_eq!(
            wrongs[0].1,
            "nobody has a key, use lines like IDENTITY:KEY, the key in hexadecimal"
        );
    }
}
