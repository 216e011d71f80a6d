//! Base64 as password files and tokens have it (RFC 4648), with or without padding.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Alphabet {
    /// `+` and `/`
    Standard,
    /// `-` and `_`
    Url,
}

impl Alphabet {
    fn letters(self) -> impl Fn(u8) -> u8 {
        let (sixty_two, sixty_three) = match self {
            Alphabet::Standard => (b'+', b'/'),
            Alphabet::Url => (b'-', b'_'),
        };
        move |value| match value & 63 {
            value @ 0..26 => b'A' + value,
            value @ 26..52 => b'a' + value - 26,
            value @ 52..62 => b'0' + value - 52,
            62 => sixty_two,
            _ => sixty_three,
        }
    }

    fn value(self, letter: u8) -> Option<u32> {
        let value = match (letter, self) {
            (b'A'..=b'Z', _) => letter - b'A',
            (b'a'..=b'z', _) => letter - b'a' + 26,
            (b'0'..=b'9', _) => letter - b'0' + 52,
            (b'+', Alphabet::Standard) | (b'-', Alphabet::Url) => 62,
            (b'/', Alphabet::Standard) | (b'_', Alphabet::Url) => 63,
            _ => return None,
        };
        Some(u32::from(value))
    }

    /// Without padding.
    pub(crate) fn encode(self, bytes: &[u8]) -> String {
        let letter = self.letters();
        let mut text = String::new();
        for chunk in bytes.chunks(3) {
            let all = chunk.iter().fold(0, |all, byte| all << 8 | u32::from(*byte));
            let all = all << (8 * (3 - chunk.len()));
            for at in 0..=chunk.len() {
                text.push(char::from(letter((all >> (18 - 6 * at)) as u8)));
            }
        }
        text
    }

    pub(crate) fn decode(self, text: &str) -> Option<Vec<u8>> {
        let unpadded = text.trim_end_matches('=');
        if text.len() > unpadded.len() && !text.len().is_multiple_of(4) {
            return None;
        }
        let mut bytes = Vec::with_capacity(unpadded.len() * 3 / 4);
        for chunk in unpadded.as_bytes().chunks(4) {
            let mut all = 0;
            for letter in chunk {
                all = all << 6 | self.value(*letter)?;
            }
            all <<= 6 * (4 - chunk.len());
            let [_, three @ ..] = all.to_be_bytes();
            let whole = match chunk.len() {
                4 => 3,
                len @ (2 | 3) => len - 1,
                _ => return None,
            };
            // Bits that no byte takes up are zero: one text for one value.
            if three[whole..].iter().any(|byte| *byte != 0) {
                return None;
            }
            bytes.extend_from_slice(&three[..whole]);
        }
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_standard_shows_comes_out() {
        // RFC 4648, 10
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            let bare = text.trim_end_matches('=');
            assert_eq!(Alphabet::Standard.encode(bytes.as_bytes()), bare);
            for text in [text, bare] {
                assert_eq!(Alphabet::Url.decode(text).unwrap(), bytes.as_bytes());
            }
        }
        assert_eq!(Alphabet::Url.encode(&[0xfb, 0xff]), "-_8");
        assert_eq!(Alphabet::Standard.decode("+/8").unwrap(), [0xfb, 0xff]);
    }

    #[test]
    fn what_is_no_base64_is_refused() {
        for text in ["Z", "Zm9vY", "Zg=", "Z===", "Zh", "Zm9", "-_8", "Zm 9v", "Zg==Zg=="] {
            assert_eq!(Alphabet::Standard.decode(text), None, "{text}");
        }
        assert_eq!(Alphabet::Url.decode("+/8"), None);
    }
}
