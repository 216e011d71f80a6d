//! Hashed passwords: argon2id, in which this program stores passwords, and the forms of mosquitto's
//! files and of other databases.
//!
//! | form | meaning |
//! |---|---|
//! | `$argon2id$v=19$m=KIB,t=PASSES,p=LANES$SALT$HASH` | argon2id (RFC 9106), as a PHC string |
//! | `$2b$COST$SALT_AND_HASH` | bcrypt; `$2a$` and `$2y$` are the same |
//! | `$7$ROUNDS$SALT$HASH` | PBKDF2 with HMAC-SHA-512 |
//! | `$scram-sha-256$ROUNDS$SALT$STORED$SERVER` | keys of SCRAM (RFC 5802, 3) |
//! | `$6$SALT$HASH` | SHA-512 of the password and the salt, once: weak |

use super::verified_cache::VerifiedCache;
use argon2::{Algorithm, Argon2, Block, Params, Version};
use net::base64::Base64Variant;
use net::scram::equals_in_constant_time;
use net::scram::{self, ScramVerifier};
use ring::rand::{SecureRandom, SystemRandom};
use ring::{digest, pbkdf2};
use std::cell::Cell;
use std::fmt;
use std::num::NonZeroU32;

#[derive(Clone, PartialEq, Eq)]
pub enum PasswordHash {
    Argon2id {
        cost: Argon2Cost,
        salt: Box<[u8]>,
        hash: Box<[u8]>,
    },
    /// The complete text, since bcrypt's format holds cost, salt and hash in an encoding of its
    /// own.
    Bcrypt(Box<str>),
    Pbkdf2 {
        rounds: NonZeroU32,
        salt: Box<[u8]>,
        hash: Box<[u8]>,
    },
    Scram(Box<ScramVerifier>),
    Sha512 {
        salt: Box<[u8]>,
        hash: Box<[u8]>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Argon2Cost {
    pub memory_kib: u32,
    pub passes: u32,
    pub lanes: u32,
}

/// Default cost, some 4 ms of one core: for many devices that reconnect at once to a gateway with
/// little memory.
const COST: Argon2Cost = Argon2Cost { memory_kib: 8_192, passes: 1, lanes: 1 };
/// OWASP's first choice, some 20 ms of one core: for passwords chosen by people.
const COST_STRONG: Argon2Cost = Argon2Cost { memory_kib: 19_456, passes: 2, lanes: 1 };
const SALT_BYTES: usize = 16;
const HASH_BYTES: usize = 32;
/// Largest memory accepted from a file; a larger value would exhaust the broker's host.
const MEMORY_KIB_MAX: u32 = 1024 * 1024;
const PASSES_MAX: u32 = 64;
pub const ROUNDS_MAX: u32 = 10_000_000;
/// Largest cost of bcrypt, whose work doubles with each step: 15 takes some seconds.
const BCRYPT_COST_MAX: u32 = 15;
const BCRYPT_LETTERS: usize = 53;
const SHA512_BYTES: usize = 64;
/// Smallest number of blocks to allocate: the GNU allocator returns pieces above 32 MiB to the
/// system at once, and keeps smaller pieces after a while. Untouched pages of a piece cost nothing.
const BLOCKS_MIN: usize = 33 * 1024;

impl PasswordHash {
    /// Hashes a new password with `COST`.
    pub fn from_password(password: &[u8]) -> Result<PasswordHash, String> {
        PasswordHash::argon2id_of(password, COST)
    }

    /// Hashes a new password with `COST_STRONG`: over five times the work for attackers and for
    /// each login.
    pub fn from_password_strong(password: &[u8]) -> Result<PasswordHash, String> {
        PasswordHash::argon2id_of(password, COST_STRONG)
    }

    fn argon2id_of(password: &[u8], cost: Argon2Cost) -> Result<PasswordHash, String> {
        let mut salt = [0; SALT_BYTES];
        let drawn = SystemRandom::new().fill(&mut salt);
        drawn.map_err(|_| "the system gives no random bytes".to_string())?;
        let hash = argon2id(cost, &salt, password, HASH_BYTES);
        let hash = hash.ok_or("argon2 does not take this password: it is too long")?;
        Ok(PasswordHash::Argon2id { cost, salt: salt.into(), hash })
    }

    /// Derives a [`ScramVerifier`] of a new password.
    pub fn scram_from_password(password: &[u8]) -> Result<PasswordHash, String> {
        let verifier =
            ScramVerifier::from_password(password).ok_or("the system gives no random bytes")?;
        Ok(PasswordHash::Scram(verifier.into()))
    }

    /// Parses a stored hash. The error says what is wrong and what would be right, and never
    /// repeats the text, which may be a password.
    pub fn parse(text: &str) -> Result<PasswordHash, &'static str> {
        let mut parts = text.split('$');
        if parts.next() != Some("") {
            return Err(NO_HASH);
        }
        let kind = parts.next().unwrap_or_default();
        let parts: Vec<&str> = parts.collect();
        let bytes = |text: &str| Base64Variant::Standard.decode(text).map(Vec::into_boxed_slice);
        let parsed = match (kind, &parts[..]) {
            ("6", [salt, hash]) => {
                bytes(salt).zip(bytes(hash)).map(|(salt, hash)| PasswordHash::Sha512 { salt, hash })
            }
            ("7", [rounds, salt, hash]) => {
                let rounds = rounds.parse().ok().filter(|n: &NonZeroU32| n.get() <= ROUNDS_MAX);
                rounds
                    .zip(bytes(salt).zip(bytes(hash)))
                    .map(|(rounds, (salt, hash))| PasswordHash::Pbkdf2 { rounds, salt, hash })
            }
            ("argon2id", ["v=19", cost, salt, hash]) => Argon2Cost::parse(cost)
                .zip(bytes(salt).zip(bytes(hash)))
                .map(|(cost, (salt, hash))| PasswordHash::Argon2id { cost, salt, hash }),
            ("scram-sha-256", [rounds, salt, stored, server]) => {
                scram_hash_from_parts(rounds, bytes(salt), bytes(stored), bytes(server))
            }
            ("2a" | "2b" | "2y", [cost, hash]) => {
                let letter = |byte: u8| byte.is_ascii_alphanumeric() || b"./".contains(&byte);
                let is_whole = hash.len() == BCRYPT_LETTERS && hash.bytes().all(letter);
                let cost = cost.parse().ok().filter(|cost| (4..=BCRYPT_COST_MAX).contains(cost));
                cost.filter(|_| is_whole).map(|_| PasswordHash::Bcrypt(text.into()))
            }
            ("2a" | "2b" | "2y" | "6" | "7" | "argon2id" | "scram-sha-256", _) => None,
            _ => return Err(NO_HASH),
        };
        parsed.filter(PasswordHash::has_valid_lengths).ok_or(BROKEN_HASH)
    }

    fn has_valid_lengths(&self) -> bool {
        match self {
            PasswordHash::Argon2id { salt, hash, .. } => salt.len() >= 8 && hash.len() >= 16,
            PasswordHash::Bcrypt(_) => true,
            PasswordHash::Scram(verifier) => verifier.salt.len() >= 8,
            PasswordHash::Pbkdf2 { hash, .. } | PasswordHash::Sha512 { hash, .. } => {
                hash.len() == SHA512_BYTES
            }
        }
    }

    /// Whether verification is slow enough to cache a positive result.
    fn is_slow(&self) -> bool {
        !matches!(self, PasswordHash::Sha512 { .. })
    }

    /// Verifies a password, by the cache `known` if the same password was verified before.
    pub fn verify_with_cache(&self, password: &[u8], known: Option<&VerifiedCache>) -> bool {
        match known.filter(|_| self.is_slow()) {
            Some(known) => known.check(&self.to_string(), password, || self.verify(password)),
            None => self.verify(password),
        }
    }

    /// Does the work of [`PasswordHash::verify`], regardless of the cache, so that response times
    /// do not differ.
    pub fn simulate_verify(&self, password: &[u8], known: Option<&VerifiedCache>) {
        if let Some(known) = known.filter(|_| self.is_slow()) {
            known.simulate_check(&self.to_string(), password);
        }
        std::hint::black_box(self.verify(password));
    }

    /// Verifies a password, in the same time for right and wrong passwords.
    pub fn verify(&self, password: &[u8]) -> bool {
        match self {
            PasswordHash::Argon2id { cost, salt, hash } => {
                let own = argon2id(*cost, salt, password, hash.len());
                own.is_some_and(|own| equals_in_constant_time(&own, hash))
            }
            PasswordHash::Bcrypt(text) => bcrypt::verify(password, text).unwrap_or(false),
            PasswordHash::Pbkdf2 { rounds, salt, hash } => {
                let by = pbkdf2::PBKDF2_HMAC_SHA512;
                pbkdf2::verify(by, *rounds, salt, password, hash).is_ok()
            }
            PasswordHash::Scram(verifier) => verifier.matches_password(password),
            PasswordHash::Sha512 { salt, hash } => {
                let mut salted = digest::Context::new(&digest::SHA512);
                salted.update(password);
                salted.update(salt);
                equals_in_constant_time(salted.finish().as_ref(), hash)
            }
        }
    }
}

fn scram_hash_from_parts(
    rounds: &str,
    salt: Option<Box<[u8]>>,
    stored: Option<Box<[u8]>>,
    server: Option<Box<[u8]>>,
) -> Option<PasswordHash> {
    let rounds = rounds.parse().ok().filter(|n: &NonZeroU32| n.get() <= ROUNDS_MAX)?;
    let key = |key: Box<[u8]>| <[u8; scram::KEY_BYTES]>::try_from(&*key).ok();
    let (stored, server) = (stored.and_then(key)?, server.and_then(key)?);
    Some(PasswordHash::Scram(ScramVerifier { rounds, salt: salt?, stored, server }.into()))
}

impl Argon2Cost {
    /// Parses the parameters of an argon2id hash, such as `m=19456,t=2,p=1`. Returns `None` if
    /// malformed or above the bounds of memory and passes.
    fn parse(text: &str) -> Option<Argon2Cost> {
        let mut values = [0; 3];
        let mut parts = text.split(',');
        for (value, name) in values.iter_mut().zip(["m=", "t=", "p="]) {
            *value = parts.next()?.strip_prefix(name)?.parse().ok()?;
        }
        let [memory_kib, passes, lanes] = values;
        let bounded = memory_kib <= MEMORY_KIB_MAX && passes <= PASSES_MAX;
        let legal = Params::new(memory_kib, passes, lanes, None).is_ok();
        let cost = Argon2Cost { memory_kib, passes, lanes };
        (bounded && legal && parts.next().is_none()).then_some(cost)
    }
}

fn argon2id(cost: Argon2Cost, salt: &[u8], password: &[u8], len: usize) -> Option<Box<[u8]>> {
    let params = Params::new(cost.memory_kib, cost.passes, cost.lanes, Some(len)).ok()?;
    let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
    let count = argon2.params().block_count();
    let mut hash = vec![0; len];
    let mut blocks = BLOCKS.take();
    if blocks.len() < count {
        blocks = Vec::with_capacity(count.max(BLOCKS_MIN));
        blocks.resize(count, Block::default());
    }
    // The first pass writes each block before any read.
    let blocks_used = &mut blocks[..count];
    let done = argon2.hash_password_into_with_memory(password, salt, &mut hash, blocks_used);
    BLOCKS.set(blocks);
    done.ok().map(|()| hash.into())
}

thread_local! {
    /// Memory of this thread's last hash. A new allocation with clearing would take a third to a
    /// half of a hash's time.
    static BLOCKS: Cell<Vec<Block>> = const { Cell::new(Vec::new()) };
}

/// Frees this thread's hash memory (`BLOCKS`).
pub fn free_memory() {
    drop(BLOCKS.take());
}

/// The form in a file, which `parse` reads.
impl fmt::Display for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |bytes: &[u8]| Base64Variant::Standard.encode(bytes);
        match self {
            PasswordHash::Argon2id {
                cost: Argon2Cost { memory_kib, passes, lanes },
                salt,
                hash,
            } => {
                let (salt, hash) = (text(salt), text(hash));
                write!(f, "$argon2id$v=19$m={memory_kib},t={passes},p={lanes}${salt}${hash}")
            }
            PasswordHash::Bcrypt(text) => f.write_str(text),
            PasswordHash::Pbkdf2 { rounds, salt, hash } => {
                write!(f, "$7${rounds}${}${}", text(salt), text(hash))
            }
            PasswordHash::Scram(known) => {
                let (salt, stored, server) =
                    (text(&known.salt), text(&known.stored), text(&known.server));
                write!(f, "$scram-sha-256${}${salt}${stored}${server}", known.rounds)
            }
            PasswordHash::Sha512 { salt, hash } => write!(f, "$6${}${}", text(salt), text(hash)),
        }
    }
}

/// Hides the hash, which must not appear in logs.
impl fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

const NO_HASH: &str = "no hash that we know stands after the colon ($argon2id$, $2b$, $7$, $6$ and \
                       $scram-sha-256$ are known); `godwit passwd FILE USER` writes one";
const BROKEN_HASH: &str = "the hash is not whole, or asks for more work than we would do; \
                           `godwit passwd FILE USER` writes a new one";

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 7914 has PBKDF2 with SHA-256 only; mosquitto_passwd 2.0.21 wrote these two hashes.
    const SEVEN: &str = include_str!("vectors/mosquitto_7.txt");
    const SIX: &str = include_str!("vectors/mosquitto_6.txt");

    #[test]
    fn what_we_write_we_read() {
        let hash = PasswordHash::from_password(b"secret").unwrap();
        let text = hash.to_string();
        assert!(text.starts_with("$argon2id$v=19$m=8192,t=1,p=1$"), "{text}");
        assert_eq!(PasswordHash::parse(&text), Ok(hash.clone()));
        // Earlier content and size of the reused memory do not matter.
        let strong = PasswordHash::from_password_strong(b"secret").unwrap();
        assert!(strong.to_string().starts_with("$argon2id$v=19$m=19456,t=2,p=1$"));
        assert!(strong.verify(b"secret") && hash.verify(b"secret") && !strong.verify(b"Secret"));
        free_memory();
        assert!(strong.verify(b"secret") && hash.verify(b"secret"));
        assert!(hash.verify(b"secret") && !hash.verify(b"Secret") && !hash.verify(b""));
        assert_ne!(PasswordHash::from_password(b"secret").unwrap(), hash, "a salt is drawn");
        assert_eq!(format!("{hash:?}"), "***");
    }

    #[test]
    fn what_mosquitto_wrote_we_read() {
        for line in [SEVEN, SIX] {
            let (_, text) = line.trim().split_once(':').unwrap();
            let hash = PasswordHash::parse(text).unwrap();
            assert!(hash.verify(b"secret") && !hash.verify(b"secrets"), "{text}");
            assert_eq!(PasswordHash::parse(&hash.to_string()), Ok(hash));
        }
    }

    /// The vector of the argon2 reference implementation's test.c: version 0x13, 2 passes, 256 KiB.
    #[test]
    fn argon2id_is_the_one_of_the_reference() {
        let text = "$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ\
                    $nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4";
        assert!(PasswordHash::parse(text).unwrap().verify(b"password"));
    }

    /// From the test vectors that OpenBSD's bcrypt and its ports share.
    #[test]
    fn bcrypt_is_the_one_of_openbsd() {
        for (password, text) in [
            ("", "$2a$06$DCq7YPn5Rq63x1Lad4cll.TV4S6ytwfsfvkgY8jIucDrjc8deX1s."),
            ("a", "$2a$06$m0CrhHm10qJ3lXRY.5zDGO3rS2KdeeWLuGmsfGlMfOxih58VYVfxe"),
        ] {
            let hash = PasswordHash::parse(text).unwrap();
            assert!(hash.verify(password.as_bytes()) && !hash.verify(b"b"), "{text}");
            assert_eq!(hash.to_string(), text);
        }
    }

    #[test]
    fn what_is_no_hash_is_refused_without_repeating_it() {
        for text in ["", "secret", "plain$text", "$5$a$b", "$2x$12$abc"] {
            assert_eq!(PasswordHash::parse(text), Err(NO_HASH), "{text}");
        }
        for text in [
            "$6$c2FsdA==$c2hvcnQ=",
            "$2b$12$abc",
            "$2b$31$DCq7YPn5Rq63x1Lad4cll.TV4S6ytwfsfvkgY8jIucDrjc8deX1s.",
            "$2b$06$DCq7YPn5Rq63x1Lad4cll.TV4S6ytwfsfvkgY8jIucDrjc8deX1!.",
            "$7$0$c2FsdA==$c2hvcnQ=",
            "$7$99999999$c2FsdA==$c2hvcnQ=",
            "$argon2id$v=19$m=256,t=2$c29tZXNhbHQ$nf65EOgLrQMR",
            "$argon2id$v=19$m=99999999,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEg",
            "$argon2id$v=16$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEg",
        ] {
            assert_eq!(PasswordHash::parse(text), Err(BROKEN_HASH), "{text}");
        }
    }
}
