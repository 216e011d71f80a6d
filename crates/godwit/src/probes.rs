//! What must hold for any bytes: those of a file that an administrator wrote, and of a token that a
//! stranger sent. For the fuzzer, and for its corpora.

use crate::identity::forge;
use crate::identity::keys::Keys;

/// Rules as text, which both formats of the file and a test have to make something of.
pub fn acl(bytes: &[u8]) {
    crate::acl::probe(&String::from_utf8_lossy(bytes));
}

/// Text as a token, as its header, and as what it says.
pub fn token(bytes: &[u8]) {
    forge::probe(&String::from_utf8_lossy(bytes));
}

/// A file of keys: PEM, a set, or a secret.
pub fn keys(bytes: &[u8]) {
    if let Err(why) = Keys::parse(bytes) {
        assert!(!why.is_empty(), "a reason");
    }
}
