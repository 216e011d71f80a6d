//! Base64 as password files and tokens have it (RFC 4648), with or without padding.

use base64ct::{Base64, Base64Unpadded, Base64Url, Base64UrlUnpadded, Encoding};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Alphabet {
    /// `+` and `/`
    Standard,
    /// `-` and `_`
    Url,
}

impl Alphabet {
    /// Without padding.
    pub(crate) fn encode(self, bytes: &[u8]) -> String {
        match self {
            Alphabet::Standard => Base64Unpadded::encode_string(bytes),
            Alphabet::Url => Base64UrlUnpadded::encode_string(bytes),
        }
    }

    pub(crate) fn decode(self, text: &str) -> Option<Vec<u8>> {
        let decoded = match (self, text.ends_with('=')) {
            (Alphabet::Standard, true) => Base64::decode_vec(text),
            (Alphabet::Standard, false) => Base64Unpadded::decode_vec(text),
            (Alphabet::Url, true) => Base64Url::decode_vec(text),
            (Alphabet::Url, false) => Base64UrlUnpadded::decode_vec(text),
        };
        decoded.ok()
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
