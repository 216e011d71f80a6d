//! Properties that hold for any bytes: files of administrators, and tokens of unknown clients. For
//! the fuzzer and its corpora.

use crate::key_set::KeySet;
use crate::test_tokens;

/// Parses bytes as an ACL file, in both formats.
pub fn check_acl(bytes: &[u8]) {
    crate::acl::fuzz_acl_text(&String::from_utf8_lossy(bytes));
}

/// Parses bytes as a token, as its header, and as its claims.
pub fn check_token(bytes: &[u8]) {
    test_tokens::fuzz_token(&String::from_utf8_lossy(bytes));
}

/// Parses bytes as a file of keys: PEM, a JWK set, or a secret.
pub fn check_keys(bytes: &[u8]) {
    if let Err(why) = KeySet::parse(bytes) {
        assert!(!why.is_empty(), "a reason");
    }
}
