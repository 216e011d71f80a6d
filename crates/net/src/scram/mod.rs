//! SCRAM-SHA-256 (RFC 5802, RFC 7677): a client proves its password without sending it, and
//! verifies that the server knows the password too. This is the server's half.
//!
//! Names and passwords are compared byte by byte, without SASLprep (RFC 4013), as in the rest of
//! this program. Channel binding is not supported.

pub mod client;

use crate::base64::Base64Variant;
use base64ct::{Base64, Encoding};
use ring::rand::{SecureRandom, SystemRandom};
use ring::{digest, hmac, pbkdf2};
use std::num::NonZeroU32;

pub const METHOD: &str = "SCRAM-SHA-256";
pub const KEY_BYTES: usize = 32;
const SALT_BYTES: usize = 16;
/// Number of iterations, the minimum of RFC 7677, 4. The client does the work.
const ROUNDS: NonZeroU32 = NonZeroU32::new(4096).expect("it is not 0");

/// Hash function of the exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScramHash {
    Sha256,
    /// For servers of other projects; this program's own verifiers use SHA-256.
    Sha512,
}

/// A server's record of a password, which is not sufficient to authenticate with.
#[derive(Clone, PartialEq, Eq)]
pub struct ScramVerifier {
    pub rounds: NonZeroU32,
    pub salt: Box<[u8]>,
    /// Hash of the client's key, which the client proves to have (StoredKey).
    pub stored: [u8; KEY_BYTES],
    /// The server's key, for the server's own proof (ServerKey).
    pub server: [u8; KEY_BYTES],
}

/// Messages of both sides before the proof.
#[derive(Debug, PartialEq, Eq)]
pub struct ScramExchange<'a> {
    pub user: String,
    /// The GS2 header, which `c=` repeats: channel binding, and the authorization identity.
    header: &'a str,
    client_first: &'a str,
    server_first: String,
}

impl ScramVerifier {
    /// Derives the verifier of a new password, with a random salt; `None` if the system has no
    /// random bytes.
    pub fn from_password(password: &[u8]) -> Option<ScramVerifier> {
        let mut salt = [0; SALT_BYTES];
        SystemRandom::new().fill(&mut salt).ok()?;
        Some(ScramVerifier::derive(password, ROUNDS, &salt))
    }

    fn derive(password: &[u8], rounds: NonZeroU32, salt: &[u8]) -> ScramVerifier {
        let salted = salt_password(password, rounds, salt);
        let client = mac(&salted, b"Client Key");
        ScramVerifier {
            rounds,
            salt: salt.into(),
            stored: hash(&client),
            server: mac(&salted, b"Server Key"),
        }
    }

    /// Returns a verifier for an unknown user: always the same for a name, so that repeated
    /// attempts reveal nothing.
    pub fn decoy(key: &[u8], user: &str) -> ScramVerifier {
        let bytes = mac(key, user.as_bytes());
        let salt = bytes[..SALT_BYTES].into();
        ScramVerifier { rounds: ROUNDS, salt, stored: bytes, server: bytes }
    }

    pub fn matches_password(&self, password: &[u8]) -> bool {
        let own = ScramVerifier::derive(password, self.rounds, &self.salt);
        equals_in_constant_time(&own.stored, &self.stored)
    }
}

impl<'a> ScramExchange<'a> {
    /// Reads the client's first message. The answer still has to be found: see `answer`.
    pub fn parse_client_first(data: &'a [u8]) -> Result<ScramExchange<'a>, &'static str> {
        let text = std::str::from_utf8(data).map_err(|_| NO_SCRAM)?;
        // The messages, including extensions, are stored with NUL as separator: see `to_memory`.
        if text.contains('\0') {
            return Err(NO_SCRAM);
        }
        let mut parts = text.splitn(3, ',');
        let (flag, acts_as) = (parts.next().unwrap_or_default(), parts.next().ok_or(NO_SCRAM)?);
        let client_first = parts.next().ok_or(NO_SCRAM)?;
        if flag.starts_with("p=") {
            return Err("it wants channel binding, which we do not have");
        }
        if !matches!(flag, "n" | "y") {
            return Err(NO_SCRAM);
        }
        let mut parts = client_first.split(',');
        let user = parts.next().and_then(|part| part.strip_prefix("n=")).ok_or(NO_SCRAM)?;
        let user = unescape_name(user).ok_or(NO_SCRAM)?;
        match acts_as {
            "" => {}
            _ if acts_as.strip_prefix("a=").and_then(unescape_name).as_deref() == Some(&user) => {}
            _ => return Err("it wants to act as somebody else"),
        }
        let nonce = parts.next().and_then(|part| part.strip_prefix("r=")).ok_or(NO_SCRAM)?;
        if nonce.is_empty() || !nonce.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(NO_SCRAM);
        }
        let header = &text[..text.len() - client_first.len()];
        Ok(ScramExchange { user, header, client_first, server_first: String::new() })
    }

    /// Adds the server's first message.
    pub fn with_server_first(mut self, verifier: &ScramVerifier, nonce: &str) -> ScramExchange<'a> {
        let theirs = field(self.client_first, "r=").unwrap_or_default();
        let (salt, rounds) = (Base64::encode_string(&verifier.salt), verifier.rounds);
        self.server_first = format!("r={theirs}{nonce},s={salt},i={rounds}");
        self
    }

    pub fn server_first(&self) -> &str {
        &self.server_first
    }

    /// Serializes the exchange for the client's next step. No part contains a NUL.
    pub fn to_memory(&self) -> Vec<u8> {
        [&self.user, self.header, self.client_first, &self.server_first].join("\0").into_bytes()
    }

    pub fn from_memory(memory: &'a [u8]) -> Option<ScramExchange<'a>> {
        let mut parts = std::str::from_utf8(memory).ok()?.split('\0');
        let user = parts.next()?.into();
        let (header, client_first) = (parts.next()?, parts.next()?);
        let server_first = parts.next()?.into();
        parts.next().is_none().then_some(ScramExchange { user, header, client_first, server_first })
    }

    /// Checks the client's last message for its proof, and returns the server's proof.
    pub fn verify(&self, verifier: &ScramVerifier, data: &[u8]) -> Result<String, &'static str> {
        let text = std::str::from_utf8(data).map_err(|_| NO_SCRAM)?;
        let (without_proof, proof) = text.rsplit_once(",p=").ok_or(NO_SCRAM)?;
        if field(text, "c=") != Some(&Base64::encode_string(self.header.as_bytes())) {
            return Err("it repeats another beginning");
        }
        if field(text, "r=") != field(&self.server_first, "r=") {
            return Err("it repeats another nonce");
        }
        let proof = Base64Variant::Standard.decode(proof).and_then(|proof| proof.try_into().ok());
        let proof: [u8; KEY_BYTES] = proof.ok_or(NO_SCRAM)?;
        let said = format!("{},{},{without_proof}", self.client_first, self.server_first);
        let mut key = mac(&verifier.stored, said.as_bytes());
        key.iter_mut().zip(proof).for_each(|(key, proof)| *key ^= proof);
        if !equals_in_constant_time(&hash(&key), &verifier.stored) {
            return Err("wrong password");
        }
        Ok(format!("v={}", Base64::encode_string(&mac(&verifier.server, said.as_bytes()))))
    }
}

/// Returns the salted password, from which all keys are derived.
fn salt_password(password: &[u8], rounds: NonZeroU32, salt: &[u8]) -> [u8; KEY_BYTES] {
    array(&ScramHash::Sha256.salted(password, rounds, salt))
}

/// Returns one half of a nonce; `None` without random bytes.
pub fn nonce() -> Option<String> {
    let mut bytes = [0; 18];
    SystemRandom::new().fill(&mut bytes).ok()?;
    Some(Base64::encode_string(&bytes))
}

/// Returns the rest of the first part that starts with `name`, such as `r=`; `None` without such a
/// part.
fn field<'t>(message: &'t str, name: &str) -> Option<&'t str> {
    message.split(',').find_map(|part| part.strip_prefix(name))
}

/// Returns a name with `=2C` and `=3D` replaced by comma and equals sign (RFC 5802, 5.1).
fn unescape_name(text: &str) -> Option<String> {
    let mut parts = text.split('=');
    let mut name = parts.next()?.to_string();
    for part in parts {
        let rest = match part.split_at_checked(2)? {
            ("2C", rest) => ",".to_string() + rest,
            ("3D", rest) => "=".to_string() + rest,
            _ => return None,
        };
        name += &rest;
    }
    (!name.is_empty() && !name.contains('\0')).then_some(name)
}

fn mac(key: &[u8], of: &[u8]) -> [u8; KEY_BYTES] {
    array(&ScramHash::Sha256.mac(key, of))
}

fn hash(of: &[u8]) -> [u8; KEY_BYTES] {
    array(&ScramHash::Sha256.hash(of))
}

fn array(key: &[u8]) -> [u8; KEY_BYTES] {
    let mut bytes = [0; KEY_BYTES];
    bytes.copy_from_slice(key);
    bytes
}

impl ScramHash {
    fn salted(self, password: &[u8], rounds: NonZeroU32, salt: &[u8]) -> Vec<u8> {
        let (algorithm, len) = match self {
            ScramHash::Sha256 => (pbkdf2::PBKDF2_HMAC_SHA256, digest::SHA256_OUTPUT_LEN),
            ScramHash::Sha512 => (pbkdf2::PBKDF2_HMAC_SHA512, digest::SHA512_OUTPUT_LEN),
        };
        let mut salted = vec![0; len];
        pbkdf2::derive(algorithm, rounds, salt, password, &mut salted);
        salted
    }

    fn mac(self, key: &[u8], of: &[u8]) -> Vec<u8> {
        let algorithm = match self {
            ScramHash::Sha256 => hmac::HMAC_SHA256,
            ScramHash::Sha512 => hmac::HMAC_SHA512,
        };
        hmac::sign(&hmac::Key::new(algorithm, key), of).as_ref().to_vec()
    }

    fn hash(self, of: &[u8]) -> Vec<u8> {
        let algorithm = match self {
            ScramHash::Sha256 => &digest::SHA256,
            ScramHash::Sha512 => &digest::SHA512,
        };
        digest::digest(algorithm, of).as_ref().to_vec()
    }
}

const NO_SCRAM: &str = "that is not SCRAM";

/// Compares in a time that does not depend on the place of a difference.
pub fn equals_in_constant_time(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len()
        && one.iter().zip(other).fold(0, |all, (one, other)| all | (one ^ other)) == 0
}

#[cfg(test)]
mod tests {
    use super::client::ScramClient;
    use super::*;

    /// Otherwise a server that once received a proof could send the message to which the proof
    /// belongs.
    #[test]
    fn nobody_says_our_part() {
        let verifier = ScramVerifier::from_password(b"right").unwrap();
        let (theirs, rogue) = ("n,,n=ann,r=abc", "r=abcROGUE,s=AAAA,i=4096");
        for smuggled in [format!("{theirs},{rogue}\0{rogue}"), format!("{theirs}\0{rogue}")] {
            assert!(
                ScramExchange::parse_client_first(smuggled.as_bytes()).is_err(),
                "{smuggled:?}"
            );
        }
        let said = ScramExchange::parse_client_first(theirs.as_bytes())
            .unwrap()
            .with_server_first(&verifier, "ours");
        let memory = said.to_memory();
        assert_eq!(ScramExchange::from_memory(&memory), Some(said));
        assert_eq!(ScramExchange::from_memory(&[&memory[..], b"\0r=abc"].concat()), None);
    }

    /// Checks the example of RFC 7677, 3.
    #[test]
    fn the_example_of_the_standard_holds() {
        let salt = Base64::decode_vec("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        let verifier = ScramVerifier::derive(b"pencil", ROUNDS, &salt);
        let first = "n,,n=user,r=rOprNGfwEbeRWgbNEkqO";
        let said = ScramExchange::parse_client_first(first.as_bytes()).unwrap();
        let said = said.with_server_first(&verifier, "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0");
        assert_eq!(
            said.server_first(),
            "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
        );
        let last = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                    p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
        let client = ScramClient::with_nonce("pencil", "user", "rOprNGfwEbeRWgbNEkqO");
        assert_eq!(client.client_final_message(said.server_first()).unwrap().0, last);
        let memory = said.to_memory();
        let said = ScramExchange::from_memory(&memory).unwrap();
        assert_eq!(said.user, "user");
        assert_eq!(
            said.verify(&verifier, last.as_bytes()),
            Ok("v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=".into())
        );
        for (wrong, right) in [("c=biws", "c=eSws"), ("k0,", "k1,"), ("dHz", "eHz"), (",p=", ",q=")]
        {
            let last = last.replacen(wrong, right, 1);
            assert!(said.verify(&verifier, last.as_bytes()).is_err(), "{last}");
        }
        assert!(verifier.matches_password(b"pencil") && !verifier.matches_password(b"pencils"));
    }

    #[test]
    fn names_have_commas_and_a_client_acts_as_itself() {
        let user =
            |first: &str| ScramExchange::parse_client_first(first.as_bytes()).map(|said| said.user);
        assert_eq!(user("n,,n=a=2Cb=3Dc,r=x"), Ok("a,b=c".into()));
        assert_eq!(user("y,a=ann,n=ann,r=x"), Ok("ann".into()));
        for first in [
            "",
            "n",
            "n,",
            "n,,",
            "n,,n=,r=x",
            "n,,n=a=2c,r=x",
            "n,,n=a=,r=x",
            "n,,n=a",
            "n,,n=a,r=",
            "n,,n=a,r=\u{e4}",
            "n,,m=x,n=a,r=x",
            "n,a=bob,n=ann,r=x",
            "p=tls-unique,,n=a,r=x",
            "x,,n=a,r=x",
        ] {
            assert!(user(first).is_err(), "{first}");
        }
        assert!(ScramExchange::parse_client_first(b"\xff").is_err());
    }
}
