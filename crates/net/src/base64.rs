//! Base64 (RFC 4648) with or without padding, for password files and tokens.

use base64ct::{Base64, Base64Unpadded, Base64Url, Base64UrlUnpadded, Encoding};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base64Variant {
    /// Alphabet with `+` and `/` (RFC 4648, 4).
    Standard,
    /// Alphabet with `-` and `_`, safe in URLs and file names (RFC 4648, 5).
    Url,
}

impl Base64Variant {
    /// Encodes without padding.
    pub fn encode(self, bytes: &[u8]) -> String {
        match self {
            Base64Variant::Standard => Base64Unpadded::encode_string(bytes),
            Base64Variant::Url => Base64UrlUnpadded::encode_string(bytes),
        }
    }

    pub fn decode(self, text: &str) -> Option<Vec<u8>> {
        let decoded = match (self, text.ends_with('=')) {
            (Base64Variant::Standard, true) => Base64::decode_vec(text),
            (Base64Variant::Standard, false) => Base64Unpadded::decode_vec(text),
            (Base64Variant::Url, true) => Base64Url::decode_vec(text),
            (Base64Variant::Url, false) => Base64UrlUnpadded::decode_vec(text),
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
            assert_eq!(Base64Variant::Standard.encode(bytes.as_bytes()), bare);
            for text in [text, bare] {
                assert_eq!(Base64Variant::Url.decode(text).unwrap(), bytes.as_bytes());
            }
        }
        assert_eq!(Base64Variant::Url.encode(&[0xfb, 0xff]), "-_8");
        assert_eq!(Base64Variant::Standard.decode("+/8").unwrap(), [0xfb, 0xff]);
    }

    #[test]
    fn what_is_no_base64_is_refused() {
        for text in ["Z", "Zm9vY", "Zg=", "Z===", "Zh", "Zm9", "-_8", "Zm 9v", "Zg==Zg=="] {
            assert_eq!(Base64Variant::Standard.decode(text), None, "{text}");
        }
        assert_eq!(Base64Variant::Url.decode("+/8"), None);
    }
}
