//! The client's half of SCRAM, for servers to which this program authenticates.

use super::equals_in_constant_time;
use super::{ScramHash, field, nonce};
use crate::base64::Base64Variant;
use base64ct::{Base64, Encoding};
use std::num::NonZeroU32;

pub struct ScramClient {
    sha: ScramHash,
    password: String,
    /// Client's first message without the GS2 header: `n=USER,r=NONCE`.
    first: String,
    nonce: String,
}

/// The signature that the server must send at the end.
pub struct ScramServerSignature(Vec<u8>);

/// Largest number of iterations accepted from a server; more would block the thread.
const ROUNDS_MAX: u32 = 1_000_000;

impl ScramClient {
    /// Creates a client with an empty user name: PostgreSQL has received the name already.
    pub fn new(password: &str) -> Result<ScramClient, String> {
        let nonce = nonce().ok_or("the system gives no random bytes")?;
        Ok(ScramClient::with_nonce(password, "", &nonce))
    }

    pub fn with_hash(sha: ScramHash, user: &str, password: &str) -> Result<ScramClient, String> {
        let nonce = nonce().ok_or("the system gives no random bytes")?;
        let user = user.replace('=', "=3D").replace(',', "=2C");
        Ok(ScramClient { sha, ..ScramClient::with_nonce(password, &user, &nonce) })
    }

    pub fn with_nonce(password: &str, user: &str, nonce: &str) -> ScramClient {
        let first = format!("n={user},r={nonce}");
        ScramClient {
            sha: ScramHash::Sha256,
            password: password.into(),
            first,
            nonce: nonce.into(),
        }
    }

    /// Returns the first message, without channel binding.
    pub fn client_first_message(&self) -> String {
        format!("n,,{}", self.first)
    }

    /// Returns the client's final message and the signature to expect, for the server's first
    /// message `r=NONCE,s=SALT,i=ROUNDS`. `None` if that message is malformed or has too many
    /// rounds.
    pub fn client_final_message(&self, server: &str) -> Option<(String, ScramServerSignature)> {
        let nonce = field(server, "r=")
            .filter(|nonce| nonce.len() > self.nonce.len() && nonce.starts_with(&self.nonce))?;
        let salt = Base64Variant::Standard.decode(field(server, "s=")?)?;
        let rounds: NonZeroU32 = field(server, "i=")?.parse().ok()?;
        if rounds.get() > ROUNDS_MAX {
            return None;
        }
        let sha = self.sha;
        let salted = sha.salted(self.password.as_bytes(), rounds, &salt);
        let client_key = sha.mac(&salted, b"Client Key");
        // c= is the header of the first message, "n,,".
        let last = format!("c=biws,r={nonce}");
        let all = format!("{},{server},{last}", self.first);
        let mut proof = sha.mac(&sha.hash(&client_key), all.as_bytes());
        proof.iter_mut().zip(client_key).for_each(|(proof, key)| *proof ^= key);
        let signature = sha.mac(&sha.mac(&salted, b"Server Key"), all.as_bytes());
        Some((
            format!("{last},p={}", Base64::encode_string(&proof)),
            ScramServerSignature(signature),
        ))
    }
}

impl ScramServerSignature {
    /// Whether `server` is a `v=SIGNATURE` that proves knowledge of the password.
    pub fn matches(&self, server: &str) -> bool {
        let signature =
            server.strip_prefix("v=").and_then(|text| Base64Variant::Standard.decode(text));
        signature.is_some_and(|signature| equals_in_constant_time(&signature, &self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the example of RFC 7677, 3.
    #[test]
    fn the_example_of_the_standard_holds() {
        let client = ScramClient::with_nonce("pencil", "user", "rOprNGfwEbeRWgbNEkqO");
        assert_eq!(client.client_first_message(), "n,,n=user,r=rOprNGfwEbeRWgbNEkqO");
        let server = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                      s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
        let (last, signature) = client.client_final_message(server).unwrap();
        assert_eq!(
            last,
            "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
             p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
        );
        assert!(signature.matches("v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="));
        assert!(!signature.matches("v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G5="));
        assert!(!signature.matches("e=invalid-proof") && !signature.matches(""));
    }

    /// Computed by Python's hashlib and hmac from the same values; no standard has an example.
    #[test]
    fn a_longer_hash_makes_longer_proofs_in_the_same_way() {
        let client = ScramClient::with_nonce("pencil", "user", "rOprNGfwEbeRWgbNEkqO");
        let client = ScramClient { sha: ScramHash::Sha512, ..client };
        let server = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                      s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
        let (last, signature) = client.client_final_message(server).unwrap();
        let proof = "gMGXRcevScNtxZ6/8lQYpGtnsNAc3mGcmNomv+xnoOMw+3R2xNJdMNnzMlTN8PPC6wdp6dybEmDYXY\
                     TxwnYPJQ==";
        assert!(last.ends_with(&format!(",p={proof}")), "{last}");
        assert!(signature.matches(
            "v=ZQnYEgWQMFmmsM8aQMF0nDDCy/AgCzkwk8CmMZYcMg0vSVlKDanekLtifDSeVGT4+\
                              5ZxXnJq199RVG2rR7N7Zw=="
        ));
    }

    #[test]
    fn a_server_that_did_not_hear_us_is_not_answered() {
        let client = ScramClient::with_nonce("pencil", "", "abc");
        for server in [
            "r=abc,s=W22Z,i=4096",
            "r=xabc1,s=W22Z,i=4096",
            "r=abcd,s=W22Z,i=0",
            "r=abcd,s=W22Z,i=99999999",
            "r=abcd,s=!,i=1",
            "r=abcd,i=1",
            "",
        ] {
            assert!(client.client_final_message(server).is_none(), "{server}");
        }
    }
}
