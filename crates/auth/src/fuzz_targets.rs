//! What must hold for any bytes: those of a file that an administrator wrote, and of a token that a
//! stranger sent. For the fuzzer, and for its corpora.

use crate::key_set::KeySet;
use crate::test_tokens;

/// Rules as text, which both formats of the file and a test have to make something of.
pub fn check_acl(bytes: &[u8]) {
    crate::acl::fuzz_acl_text(&String::from_utf8_lossy(bytes));
}

/// Text as a token, as its header, and as what it says.
pub fn check_token(bytes: &[u8]) {
    test_tokens::fuzz_token(&String::from_utf8_lossy(bytes));
}

/// A file of keys: PEM, a set, or a secret.
pub fn check_keys(bytes: &[u8]) {
    if let Err(why) = KeySet::parse(bytes) {
        assert!(!why.is_empty(), "a reason");
    }
}
