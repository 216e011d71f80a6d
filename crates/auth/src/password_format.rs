//! Passwords in databases of other projects: a hash with its parameters, or a hash described by
//! options, with a salt in a separate column.

use super::password_hash::{PasswordHash, ROUNDS_MAX};
use super::verified_cache::VerifiedCache;
use net::base64::Base64Variant;
use net::scram::equals_in_constant_time;
use ring::{digest, pbkdf2};
use std::num::NonZeroU32;

/// Format of the password hashes in a database: hash function, position of the salt, and rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PasswordFormat {
    pub hash_kind: PasswordHashKind,
    pub salt: SaltPosition,
    /// Number of iterations of PBKDF2.
    pub rounds: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PasswordHashKind {
    Pbkdf2Sha256,
    Pbkdf2Sha512,
    Sha256,
    Sha512,
    /// The hash function is in the prefix of each stored hash: `$argon2id$`, `$2b$`, `$7$` or
    /// `$6$`.
    #[default]
    Tagged,
}

/// Position of the salt if it is hashed once together with the password.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SaltPosition {
    None,
    #[default]
    Prefix,
    Suffix,
}

/// A stored password, to compare with a client's password by [`StoredPassword::verify`].
pub enum StoredPassword {
    Digest { by: &'static digest::Algorithm, before: Vec<u8>, after: Vec<u8>, hash: Vec<u8> },
    Pbkdf2 { by: pbkdf2::Algorithm, rounds: NonZeroU32, salt: Vec<u8>, hash: Vec<u8> },
    Tagged(PasswordHash),
}

impl PasswordFormat {
    /// Parses a stored hash. The error does not repeat the text.
    pub fn parse_hash(&self, hash: &str, salt: &[u8]) -> Result<StoredPassword, &'static str> {
        let (digest, pbkdf2) = match self.hash_kind {
            PasswordHashKind::Tagged if hash.starts_with("PBKDF2$") => {
                return named_pbkdf2(hash).ok_or("its hash (PBKDF2$) is not whole");
            }
            PasswordHashKind::Tagged => {
                return PasswordHash::parse(hash).map(StoredPassword::Tagged).map_err(
                    |_| "its hash is of no kind that we know ($argon2id$, $2b$, $7$ and $6$ are)",
                );
            }
            PasswordHashKind::Sha256 | PasswordHashKind::Pbkdf2Sha256 => {
                (&digest::SHA256, pbkdf2::PBKDF2_HMAC_SHA256)
            }
            PasswordHashKind::Sha512 | PasswordHashKind::Pbkdf2Sha512 => {
                (&digest::SHA512, pbkdf2::PBKDF2_HMAC_SHA512)
            }
        };
        let hash = decode_hex(hash).ok_or("its hash is not in hexadecimal digits")?;
        if matches!(self.hash_kind, PasswordHashKind::Sha256 | PasswordHashKind::Sha512) {
            if hash.len() != digest.output_len() {
                return Err("its hash is not as long as auth.password_form says");
            }
            let (before, after) = match self.salt {
                SaltPosition::None => (Vec::new(), Vec::new()),
                SaltPosition::Prefix => (salt.to_vec(), Vec::new()),
                SaltPosition::Suffix => (Vec::new(), salt.to_vec()),
            };
            return Ok(StoredPassword::Digest { by: digest, before, after, hash });
        }
        if hash.len() < HASH_BYTES_MIN {
            return Err("its hash is too short to prove anything");
        }
        let rounds = NonZeroU32::new(self.rounds).ok_or("auth.password_rounds is 0")?;
        Ok(StoredPassword::Pbkdf2 { by: pbkdf2, rounds, salt: salt.to_vec(), hash })
    }
}

impl StoredPassword {
    /// Verifies a password, by the cache `known` if the same password was verified before.
    pub fn verify_with_cache(&self, password: &[u8], known: Option<&VerifiedCache>) -> bool {
        match self {
            StoredPassword::Tagged(hash) => hash.verify_with_cache(password, known),
            StoredPassword::Digest { .. } => self.verify(password),
            StoredPassword::Pbkdf2 { by, rounds, salt, hash } => match known {
                Some(known) => {
                    let text = pbkdf2_text(*by, *rounds, salt, hash);
                    known.check(&text, password, || self.verify(password))
                }
                None => self.verify(password),
            },
        }
    }

    /// Does the work of [`StoredPassword::verify`], regardless of the cache, so that response times
    /// do not differ.
    pub fn simulate_verify(&self, password: &[u8], known: Option<&VerifiedCache>) {
        match self {
            StoredPassword::Tagged(hash) => return hash.simulate_verify(password, known),
            StoredPassword::Digest { .. } => {}
            StoredPassword::Pbkdf2 { by, rounds, salt, hash } => {
                let text = pbkdf2_text(*by, *rounds, salt, hash);
                known.iter().for_each(|known| known.simulate_check(&text, password));
            }
        }
        std::hint::black_box(self.verify(password));
    }

    /// Verifies a password, in the same time for right and wrong passwords.
    pub fn verify(&self, password: &[u8]) -> bool {
        match self {
            StoredPassword::Digest { by, before, after, hash } => {
                let mut own = digest::Context::new(by);
                [before, password, after].into_iter().for_each(|part| own.update(part));
                equals_in_constant_time(own.finish().as_ref(), hash)
            }
            StoredPassword::Pbkdf2 { by, rounds, salt, hash } => {
                pbkdf2::verify(*by, *rounds, salt, password, hash).is_ok()
            }
            StoredPassword::Tagged(hash) => hash.verify(password),
        }
    }
}

/// Parses mosquitto-go-auth's `PBKDF2$sha512$ROUNDS$SALT$HASH`; salt and hash are base64.
fn named_pbkdf2(text: &str) -> Option<StoredPassword> {
    let parts: Vec<&str> = text.split('$').collect();
    let [_, kind, rounds, salt, hash] = parts[..] else { return None };
    let by = match kind {
        "sha256" => pbkdf2::PBKDF2_HMAC_SHA256,
        "sha512" => pbkdf2::PBKDF2_HMAC_SHA512,
        _ => return None,
    };
    let rounds = rounds.parse().ok().filter(|rounds: &NonZeroU32| rounds.get() <= ROUNDS_MAX)?;
    let hash = Base64Variant::Standard.decode(hash).filter(|hash| hash.len() >= HASH_BYTES_MIN)?;
    Some(StoredPassword::Pbkdf2 { by, rounds, salt: Base64Variant::Standard.decode(salt)?, hash })
}

/// Returns a text for `VerifiedCache` that is unique to this hash.
fn pbkdf2_text(by: pbkdf2::Algorithm, rounds: NonZeroU32, salt: &[u8], hash: &[u8]) -> String {
    let is_sha256 = by == pbkdf2::PBKDF2_HMAC_SHA256;
    format!("pbkdf2 {is_sha256} {rounds} {salt:?} {hash:?}")
}

/// Shortest hash; a shorter hash could be matched by guessing.
const HASH_BYTES_MIN: usize = 16;

fn decode_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u32>> = text.chars().map(|c| c.to_digit(16)).collect();
    let digits = digits.filter(|digits| digits.len().is_multiple_of(2))?;
    Some(digits.chunks_exact(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(kind: PasswordHashKind, salt: SaltPosition) -> PasswordFormat {
        PasswordFormat { hash_kind: kind, salt, rounds: 1 }
    }

    /// Output of sha256sum for "saltsecret" and "secret", and of sha512sum for "secretsalt".
    #[test]
    fn a_salt_stands_where_the_options_say() {
        let prefixed = "bede90386d450cea8b77b822f8887065e4e5abf132c2f9dccfcc7fbd4cba5e35";
        let suffixed = "138f75cab47d01d0a813badb38f612dc46604ae669544eb9003f71928d3cb3a7\
                        e5a0d7ac63f6697bdccc56f2e2c784b616241227df5122436f847a2634ef6e2f";
        let bare = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
        for (form, hash) in [
            (form(PasswordHashKind::Sha256, SaltPosition::Prefix), prefixed),
            (form(PasswordHashKind::Sha512, SaltPosition::Suffix), suffixed),
            (form(PasswordHashKind::Sha256, SaltPosition::None), bare),
        ] {
            let stored = form.parse_hash(hash, b"salt").ok().unwrap();
            assert!(stored.verify(b"secret") && !stored.verify(b"Secret") && !stored.verify(b""));
            assert!(form.parse_hash(&hash.to_uppercase(), b"salt").ok().unwrap().verify(b"secret"));
            assert!(
                !form.parse_hash(hash, b"tlas").ok().unwrap().verify(b"secret") || hash == bare
            );
        }
    }

    /// RFC 7914, 11: PBKDF2-HMAC-SHA-256 of "passwd" and "salt", one round.
    #[test]
    fn pbkdf2_is_the_one_of_the_standard() {
        let hash = "55ac046e56e3089fec1691c22544b605f94185216dde0465e68b9d57c20dacbc\
                    49ca9cccf179b645991664b39d77ef317c71b845b1e30bd509112041d3a19783";
        let form = form(PasswordHashKind::Pbkdf2Sha256, SaltPosition::None);
        assert!(form.parse_hash(hash, b"salt").ok().unwrap().verify(b"passwd"));
        assert!(!form.parse_hash(hash, b"salt").ok().unwrap().verify(b"password"));
    }

    #[test]
    fn what_cannot_be_a_hash_is_refused_without_repeating_it() {
        for (form, hash) in [
            (form(PasswordHashKind::Tagged, SaltPosition::None), "hunter2"),
            (form(PasswordHashKind::Sha256, SaltPosition::None), "hunter2"),
            (form(PasswordHashKind::Sha256, SaltPosition::None), ""),
            (form(PasswordHashKind::Sha512, SaltPosition::None), "abcd"),
            (form(PasswordHashKind::Pbkdf2Sha512, SaltPosition::None), "abcd"),
            (
                PasswordFormat {
                    rounds: 0,
                    ..form(PasswordHashKind::Pbkdf2Sha512, SaltPosition::None)
                },
                &"ab".repeat(32),
            ),
        ] {
            let why = form.parse_hash(hash, b"").err().unwrap();
            assert!(!why.contains("hunter2") && !why.contains("abcd"), "{why}");
        }
    }
}
