//! SCRAM-SHA-256 (RFC 5802, RFC 7677) as a client: a password is proved without being sent, and
//! the server proves that it knew it.

use crate::identity::base64::Alphabet;
use crate::identity::hash::is_same;
use ring::rand::{SecureRandom, SystemRandom};
use ring::{digest, hmac, pbkdf2};
use std::num::NonZeroU32;

pub(super) struct Scram {
    password: String,
    /// `n=,r=NONCE`; PostgreSQL knows the user already.
    first: String,
    nonce: String,
}

/// What the server's last word has to be.
pub(super) struct Signature(Vec<u8>);

/// A server that asks for more would stop us.
const ROUNDS_MAX: u32 = 1_000_000;

impl Scram {
    pub(super) fn new(password: &str) -> Result<Scram, String> {
        let mut chance = [0; 18];
        let drawn = SystemRandom::new().fill(&mut chance);
        drawn.map_err(|_| "the system gives no random bytes".to_string())?;
        Ok(Scram::with_nonce(password, "", &Alphabet::Standard.encode(&chance)))
    }

    fn with_nonce(password: &str, user: &str, nonce: &str) -> Scram {
        let first = format!("n={user},r={nonce}");
        Scram { password: password.into(), first, nonce: nonce.into() }
    }

    /// Without channel binding.
    pub(super) fn first(&self) -> String {
        format!("n,,{}", self.first)
    }

    /// The answer to `r=NONCE,s=SALT,i=ROUNDS`.
    pub(super) fn last(&self, server: &str) -> Option<(String, Signature)> {
        let part = |name: &str| server.split(',').find_map(|part| part.strip_prefix(name));
        let nonce = part("r=")
            .filter(|nonce| nonce.len() > self.nonce.len() && nonce.starts_with(&self.nonce))?;
        let salt = Alphabet::Standard.decode(part("s=")?)?;
        let rounds: NonZeroU32 = part("i=")?.parse().ok()?;
        if rounds.get() > ROUNDS_MAX {
            return None;
        }
        let mut salted = [0; 32];
        let by = pbkdf2::PBKDF2_HMAC_SHA256;
        pbkdf2::derive(by, rounds, &salt, self.password.as_bytes(), &mut salted);
        let sign = |key: &[u8], said: &[u8]| {
            let key = hmac::Key::new(hmac::HMAC_SHA256, key);
            hmac::sign(&key, said).as_ref().to_vec()
        };
        let client_key = sign(&salted, b"Client Key");
        let stored_key = digest::digest(&digest::SHA256, &client_key);
        // c= is the header of the first message, "n,,".
        let last = format!("c=biws,r={nonce}");
        let all = format!("{},{server},{last}", self.first);
        let by = sign(stored_key.as_ref(), all.as_bytes());
        let proof: Vec<u8> = client_key.iter().zip(by).map(|(key, by)| key ^ by).collect();
        let signature = sign(&sign(&salted, b"Server Key"), all.as_bytes());
        let mut proof = Alphabet::Standard.encode(&proof);
        while !proof.len().is_multiple_of(4) {
            proof.push('=');
        }
        Some((format!("{last},p={proof}"), Signature(signature)))
    }
}

impl Signature {
    /// Whether this is the `v=SIGNATURE` of somebody who knows the password.
    pub(super) fn is(&self, server: &str) -> bool {
        let signature = server.strip_prefix("v=").and_then(|text| Alphabet::Standard.decode(text));
        signature.is_some_and(|signature| is_same(&signature, &self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 7677, 3.
    #[test]
    fn the_example_of_the_standard_holds() {
        let scram = Scram::with_nonce("pencil", "user", "rOprNGfwEbeRWgbNEkqO");
        assert_eq!(scram.first(), "n,,n=user,r=rOprNGfwEbeRWgbNEkqO");
        let server = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                      s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
        let (last, signature) = scram.last(server).unwrap();
        assert_eq!(
            last,
            "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
             p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
        );
        assert!(signature.is("v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="));
        assert!(!signature.is("v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G5="));
        assert!(!signature.is("e=invalid-proof") && !signature.is(""));
    }

    #[test]
    fn a_server_that_did_not_hear_us_is_not_answered() {
        let scram = Scram::with_nonce("pencil", "", "abc");
        for server in [
            "r=abc,s=W22Z,i=4096",
            "r=xabc1,s=W22Z,i=4096",
            "r=abcd,s=W22Z,i=0",
            "r=abcd,s=W22Z,i=99999999",
            "r=abcd,s=!,i=1",
            "r=abcd,i=1",
            "",
        ] {
            assert!(scram.last(server).is_none(), "{server}");
        }
    }
}
