//! Passwords as the tables of other servers have them: a hash that says what it is, or one that
//! the options have to explain, with a salt beside it.

use super::base64::Alphabet;
use super::hash::{Hash, ROUNDS_MAX, is_same};
use super::verified::VerifiedCache;
use ring::{digest, pbkdf2};
use std::num::NonZeroU32;

/// What stands in a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Form {
    pub(crate) kind: Kind,
    pub(crate) salt: Salt,
    /// Of PBKDF2.
    pub(crate) rounds: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Kind {
    Pbkdf2Sha256,
    Pbkdf2Sha512,
    Sha256,
    Sha512,
    /// `$argon2id$`, `$2b$`, `$7$` or `$6$`
    #[default]
    Tagged,
}

/// Where it stands when both are hashed once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Salt {
    None,
    #[default]
    Prefix,
    Suffix,
}

/// What a password is compared with.
pub(crate) enum Stored {
    Digest { by: &'static digest::Algorithm, before: Vec<u8>, after: Vec<u8>, hash: Vec<u8> },
    Pbkdf2 { by: pbkdf2::Algorithm, rounds: NonZeroU32, salt: Vec<u8>, hash: Vec<u8> },
    Tagged(Hash),
}

impl Form {
    /// The error repeats nothing of what stands there.
    pub(crate) fn read(&self, hash: &str, salt: &[u8]) -> Result<Stored, &'static str> {
        let (digest, pbkdf2) = match self.kind {
            Kind::Tagged if hash.starts_with("PBKDF2$") => {
                return named_pbkdf2(hash).ok_or("its hash (PBKDF2$) is not whole");
            }
            Kind::Tagged => {
                return Hash::parse(hash).map(Stored::Tagged).map_err(
                    |_| "its hash is of no kind that we know ($argon2id$, $2b$, $7$ and $6$ are)",
                );
            }
            Kind::Sha256 | Kind::Pbkdf2Sha256 => (&digest::SHA256, pbkdf2::PBKDF2_HMAC_SHA256),
            Kind::Sha512 | Kind::Pbkdf2Sha512 => (&digest::SHA512, pbkdf2::PBKDF2_HMAC_SHA512),
        };
        let hash = unhex(hash).ok_or("its hash is not in hexadecimal digits")?;
        if matches!(self.kind, Kind::Sha256 | Kind::Sha512) {
            if hash.len() != digest.output_len() {
                return Err("its hash is not as long as auth.password_form says");
            }
            let (before, after) = match self.salt {
                Salt::None => (Vec::new(), Vec::new()),
                Salt::Prefix => (salt.to_vec(), Vec::new()),
                Salt::Suffix => (Vec::new(), salt.to_vec()),
            };
            return Ok(Stored::Digest { by: digest, before, after, hash });
        }
        if hash.len() < HASH_BYTES_MIN {
            return Err("its hash is too short to prove anything");
        }
        let rounds = NonZeroU32::new(self.rounds).ok_or("auth.password_rounds is 0")?;
        Ok(Stored::Pbkdf2 { by: pbkdf2, rounds, salt: salt.to_vec(), hash })
    }
}

impl Stored {
    /// By the cache where the same was right before, else by work.
    pub(crate) fn is_known_to_be_of(&self, password: &[u8], known: Option<&VerifiedCache>) -> bool {
        match self {
            Stored::Tagged(hash) => hash.is_known_to_be_of(password, known),
            Stored::Digest { .. } => self.is_of(password),
            Stored::Pbkdf2 { by, rounds, salt, hash } => match known {
                Some(known) => {
                    let text = pbkdf2_text(*by, *rounds, salt, hash);
                    known.check(&text, password, || self.is_of(password))
                }
                None => self.is_of(password),
            },
        }
    }

    /// As much work as for a wrong password, whatever is in the cache.
    pub(crate) fn pretend_to_check(&self, password: &[u8], known: Option<&VerifiedCache>) {
        match self {
            Stored::Tagged(hash) => return hash.pretend_to_check(password, known),
            Stored::Digest { .. } => {}
            Stored::Pbkdf2 { by, rounds, salt, hash } => {
                let text = pbkdf2_text(*by, *rounds, salt, hash);
                known.iter().for_each(|known| known.pretend(&text, password));
            }
        }
        std::hint::black_box(self.is_of(password));
    }

    /// Takes as long for a wrong password as for the right one.
    pub(crate) fn is_of(&self, password: &[u8]) -> bool {
        match self {
            Stored::Digest { by, before, after, hash } => {
                let mut own = digest::Context::new(by);
                [before, password, after].into_iter().for_each(|part| own.update(part));
                is_same(own.finish().as_ref(), hash)
            }
            Stored::Pbkdf2 { by, rounds, salt, hash } => {
                pbkdf2::verify(*by, *rounds, salt, password, hash).is_ok()
            }
            Stored::Tagged(hash) => hash.is_of(password),
        }
    }
}

/// `PBKDF2$sha512$ROUNDS$SALT$HASH`, as mosquitto-go-auth writes it; salt and hash are base64.
fn named_pbkdf2(text: &str) -> Option<Stored> {
    let parts: Vec<&str> = text.split('$').collect();
    let [_, kind, rounds, salt, hash] = parts[..] else { return None };
    let by = match kind {
        "sha256" => pbkdf2::PBKDF2_HMAC_SHA256,
        "sha512" => pbkdf2::PBKDF2_HMAC_SHA512,
        _ => return None,
    };
    let rounds = rounds.parse().ok().filter(|rounds: &NonZeroU32| rounds.get() <= ROUNDS_MAX)?;
    let hash = Alphabet::Standard.decode(hash).filter(|hash| hash.len() >= HASH_BYTES_MIN)?;
    Some(Stored::Pbkdf2 { by, rounds, salt: Alphabet::Standard.decode(salt)?, hash })
}

/// A text that no other hash has.
fn pbkdf2_text(by: pbkdf2::Algorithm, rounds: NonZeroU32, salt: &[u8], hash: &[u8]) -> String {
    let is_sha256 = by == pbkdf2::PBKDF2_HMAC_SHA256;
    format!("pbkdf2 {is_sha256} {rounds} {salt:?} {hash:?}")
}

/// A shorter one is guessed.
const HASH_BYTES_MIN: usize = 16;

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u32>> = text.chars().map(|c| c.to_digit(16)).collect();
    let digits = digits.filter(|digits| digits.len().is_multiple_of(2))?;
    Some(digits.chunks_exact(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(kind: Kind, salt: Salt) -> Form {
        Form { kind, salt, rounds: 1 }
    }

    /// As sha256sum makes them of "saltsecret" and "secret", and sha512sum of "secretsalt".
    #[test]
    fn a_salt_stands_where_the_options_say() {
        let prefixed = "bede90386d450cea8b77b822f8887065e4e5abf132c2f9dccfcc7fbd4cba5e35";
        let suffixed = "138f75cab47d01d0a813badb38f612dc46604ae669544eb9003f71928d3cb3a7\
                        e5a0d7ac63f6697bdccc56f2e2c784b616241227df5122436f847a2634ef6e2f";
        let bare = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
        for (form, hash) in [
            (form(Kind::Sha256, Salt::Prefix), prefixed),
            (form(Kind::Sha512, Salt::Suffix), suffixed),
            (form(Kind::Sha256, Salt::None), bare),
        ] {
            let stored = form.read(hash, b"salt").ok().unwrap();
            assert!(stored.is_of(b"secret") && !stored.is_of(b"Secret") && !stored.is_of(b""));
            assert!(form.read(&hash.to_uppercase(), b"salt").ok().unwrap().is_of(b"secret"));
            assert!(!form.read(hash, b"tlas").ok().unwrap().is_of(b"secret") || hash == bare);
        }
    }

    /// RFC 7914, 11: PBKDF2-HMAC-SHA-256 of "passwd" and "salt", one round.
    #[test]
    fn pbkdf2_is_the_one_of_the_standard() {
        let hash = "55ac046e56e3089fec1691c22544b605f94185216dde0465e68b9d57c20dacbc\
                    49ca9cccf179b645991664b39d77ef317c71b845b1e30bd509112041d3a19783";
        let form = form(Kind::Pbkdf2Sha256, Salt::None);
        assert!(form.read(hash, b"salt").ok().unwrap().is_of(b"passwd"));
        assert!(!form.read(hash, b"salt").ok().unwrap().is_of(b"password"));
    }

    #[test]
    fn what_cannot_be_a_hash_is_refused_without_repeating_it() {
        for (form, hash) in [
            (form(Kind::Tagged, Salt::None), "hunter2"),
            (form(Kind::Sha256, Salt::None), "hunter2"),
            (form(Kind::Sha256, Salt::None), ""),
            (form(Kind::Sha512, Salt::None), "abcd"),
            (form(Kind::Pbkdf2Sha512, Salt::None), "abcd"),
            (Form { rounds: 0, ..form(Kind::Pbkdf2Sha512, Salt::None) }, &"ab".repeat(32)),
        ] {
            let why = form.read(hash, b"").err().unwrap();
            assert!(!why.contains("hunter2") && !why.contains("abcd"), "{why}");
        }
    }
}
