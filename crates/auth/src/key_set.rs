//! Keys that verify tokens: a JWK set (RFC 7517), public keys in PEM, or a secret.
//!
//! A key accepts only algorithms of its own kind, so a public key never serves as a secret,
//! whatever algorithm a token names.

use config::source::describe_read_error;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm};
use jsonwebtoken::{Algorithm, DecodingKey};
use serde_json::Value;
use std::fs;
use std::path::Path;
use x509_parser::oid_registry::{OID_EC_P256, OID_NIST_EC_P384, OID_SIG_ED25519};
use x509_parser::pem::Pem;
use x509_parser::prelude::FromDer;
use x509_parser::public_key::PublicKey;
use x509_parser::x509::SubjectPublicKeyInfo;

#[derive(Debug, Default)]
pub struct KeySet {
    all: Vec<VerificationKey>,
}

/// A key; its `Debug` form hides the key itself.
#[derive(Debug)]
struct VerificationKey {
    id: Option<String>,
    /// The only algorithm of the key (`alg`), if present.
    algorithm: Option<KeyAlgorithm>,
    key: DecodingKey,
}

/// Shortest secret; a shorter secret could be guessed (RFC 7518, 3.2).
const SECRET_BYTES_MIN: usize = 32;
const P256_POINT_BYTES: usize = 1 + 2 * 32;
const P384_POINT_BYTES: usize = 1 + 2 * 48;
const INCOMPLETE_KEY: &str = "a key of the set is not whole";

impl KeySet {
    /// Reads a file of keys. The error names the file and does not repeat its content.
    pub fn read(path: &Path) -> Result<KeySet, String> {
        let shown = path.display();
        let bytes = fs::read(path)
            .map_err(|error| describe_read_error(path, "key file (auth.jwt_keys)", &error))?;
        let keys = KeySet::parse(&bytes).map_err(|why| format!("{shown}: {why}"))?;
        match keys.all.is_empty() {
            true => Err(format!("{shown}: it has no key that can be used")),
            false => Ok(keys),
        }
    }

    pub fn parse(bytes: &[u8]) -> Result<KeySet, String> {
        let text = std::str::from_utf8(bytes).unwrap_or_default();
        let start = text.trim_start();
        let all = if start.starts_with('{') {
            KeySet::parse_set(text)?
        } else if start.starts_with("-----BEGIN") {
            KeySet::parse_pem(text)?
        } else {
            let secret = bytes.strip_suffix(b"\n").unwrap_or(bytes);
            vec![VerificationKey::new(KeySet::secret(secret)?)]
        };
        Ok(KeySet { all })
    }

    fn secret(bytes: &[u8]) -> Result<DecodingKey, String> {
        if bytes.len() < SECRET_BYTES_MIN {
            return Err(format!("the secret is too short, use {SECRET_BYTES_MIN} bytes or more"));
        }
        Ok(DecodingKey::from_secret(bytes))
    }

    /// Parses a JWK set. Keys for other uses and of unknown kinds are left out.
    fn parse_set(text: &str) -> Result<Vec<VerificationKey>, String> {
        let set: Value = serde_json::from_str(text)
            .map_err(|error| format!("not JSON, which a JWK set is: line {}", error.line()))?;
        let keys = set.get("keys").and_then(Value::as_array).ok_or("a JWK set has \"keys\"")?;
        keys.iter().filter_map(|key| VerificationKey::from_jwk(key).transpose()).collect()
    }

    fn parse_pem(text: &str) -> Result<Vec<VerificationKey>, String> {
        let mut all = Vec::new();
        for block in Pem::iter_from_buffer(text.as_bytes()) {
            let block = block.ok().filter(|block| block.label == "PUBLIC KEY").ok_or(
                "in PEM only \"PUBLIC KEY\" is taken; openssl pkey \
                                            -pubout writes one",
            )?;
            all.push(VerificationKey::new(read_public_key(&block.contents).ok_or(
                "a PEM key is of no kind that we know: RSA, P-256, P-384 \
                                         and Ed25519 are",
            )?));
        }
        Ok(all)
    }

    /// Parses a JWK set from a server. A set without a usable key is an error.
    pub fn from_set(bytes: &[u8]) -> Result<KeySet, String> {
        let all = KeySet::parse_set(std::str::from_utf8(bytes).unwrap_or_default())?;
        match all.is_empty() {
            true => Err("the set has no key that can be used".into()),
            false => Ok(KeySet { all }),
        }
    }

    /// Whether the set has a key that `id` may refer to.
    pub fn knows(&self, id: Option<&str>) -> bool {
        self.all.iter().any(|key| key.id.is_none() || id.is_none() || key.id.as_deref() == id)
    }

    pub fn from_secret(secret: &[u8]) -> KeySet {
        KeySet { all: vec![VerificationKey::new(DecodingKey::from_secret(secret))] }
    }

    /// Returns the keys that may have signed a token with this algorithm and key identifier.
    pub fn candidates(
        &self,
        algorithm: Algorithm,
        id: Option<&str>,
    ) -> impl Iterator<Item = &DecodingKey> {
        let fits = move |key: &&VerificationKey| {
            let named = key.id.is_none() || id.is_none() || key.id.as_deref() == id;
            let only = key.algorithm.is_none_or(|only| only == algorithm.into());
            named && only && key.key.family() == algorithm.family()
        };
        self.all.iter().filter(fits).map(|key| &key.key)
    }
}

impl VerificationKey {
    fn new(key: DecodingKey) -> VerificationKey {
        VerificationKey { id: None, algorithm: None, key }
    }

    /// Reads a JWK; `None` for keys of another use or an unknown kind.
    fn from_jwk(fields: &Value) -> Result<Option<VerificationKey>, String> {
        let word = |name: &str| fields.get(name).and_then(Value::as_str);
        if word("use").is_some_and(|usage| usage != "sig") {
            return Ok(None);
        }
        let kind = word("kty").ok_or("a key of the set has no \"kty\"")?;
        match (kind, word("crv")) {
            ("oct" | "RSA", _) | ("OKP", Some("Ed25519")) | ("EC", Some("P-256" | "P-384")) => {}
            _ => return Ok(None),
        }
        let jwk: Jwk = serde_json::from_value(fields.clone()).map_err(|_| INCOMPLETE_KEY)?;
        let key = DecodingKey::from_jwk(&jwk).map_err(|_| INCOMPLETE_KEY)?;
        let bytes = key.try_get_as_bytes().unwrap_or_default();
        let key = match &jwk.algorithm {
            AlgorithmParameters::EllipticCurve(point) => {
                let width = match point.curve {
                    EllipticCurve::P256 => P256_POINT_BYTES,
                    _ => P384_POINT_BYTES,
                };
                if bytes.len() != width {
                    return Err(INCOMPLETE_KEY.into());
                }
                key
            }
            AlgorithmParameters::OctetKey(_) => KeySet::secret(bytes)?,
            _ => key,
        };
        let (id, algorithm) = (jwk.common.key_id, jwk.common.key_algorithm);
        Ok(Some(VerificationKey { id, algorithm, key }))
    }
}

/// Reads a SubjectPublicKeyInfo (RFC 5280, 4.1.2.7).
fn read_public_key(der: &[u8]) -> Option<DecodingKey> {
    let (rest, info) = SubjectPublicKeyInfo::from_der(der).ok()?;
    if !rest.is_empty() {
        return None;
    }
    let bits = &*info.subject_public_key.data;
    match info.parsed().ok()? {
        PublicKey::RSA(key) => {
            let bare = |number: &[u8]| number.strip_prefix(&[0]).unwrap_or(number).to_vec();
            let (modulus, exponent) = (bare(key.modulus), bare(key.exponent));
            Some(DecodingKey::from_rsa_raw_components(&modulus, &exponent))
        }
        PublicKey::EC(_) => {
            let curve = info.algorithm.parameters.as_ref()?.as_oid().ok()?;
            let width = match () {
                () if curve == OID_EC_P256 => P256_POINT_BYTES,
                () if curve == OID_NIST_EC_P384 => P384_POINT_BYTES,
                () => return None,
            };
            (bits.len() == width).then(|| DecodingKey::from_ec_der(bits))
        }
        _ if info.algorithm.algorithm == OID_SIG_ED25519 => Some(DecodingKey::from_ed_der(bits)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jwt_crypto;
    use net::base64::Base64Variant;
    use ring::hmac;

    const PEMS: [(&str, &str, &str); 4] = [
        ("RS256", include_str!("vectors/rsa.pem"), include_str!("vectors/rs256.txt")),
        ("PS384", include_str!("vectors/rsa.pem"), include_str!("vectors/ps384.txt")),
        ("ES256", include_str!("vectors/ec.pem"), include_str!("vectors/es256.txt")),
        ("EdDSA", include_str!("vectors/ed.pem"), include_str!("vectors/eddsa.txt")),
    ];
    const ALGORITHMS: [&str; 13] = [
        "none", "HS256", "HS384", "HS512", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512",
        "ES256", "ES384", "EdDSA",
    ];

    fn parts(token: &str) -> (&[u8], Vec<u8>) {
        let (said, by) = token.trim().rsplit_once('.').unwrap();
        (said.as_bytes(), Base64Variant::Url.decode(by).unwrap())
    }

    impl KeySet {
        /// Whether one of the keys verifies the signature.
        fn verify(&self, algorithm: &str, id: Option<&str>, said: &[u8], by: &[u8]) -> bool {
            let Ok(algorithm) = algorithm.parse() else { return false };
            let by = Base64Variant::Url.encode(by);
            jwt_crypto::install_ring_provider();
            self.candidates(algorithm, id)
                .any(|key| jsonwebtoken::crypto::verify(&by, said, key, algorithm).unwrap())
        }
    }

    #[test]
    fn a_key_verifies_with_its_own_algorithm_only() {
        for (algorithm, pem, token) in PEMS {
            let keys = KeySet::parse(pem.as_bytes()).unwrap();
            let (said, by) = parts(token);
            for other in ALGORITHMS {
                assert_eq!(keys.verify(other, None, said, &by), other == algorithm, "{other}");
            }
            assert!(!keys.verify(algorithm, None, &said[1..], &by));
            assert!(!keys.verify(algorithm, None, said, &by[1..]));
            assert!(!keys.verify(algorithm, None, said, &[]));
            // The public key as a secret: the confusion of kinds.
            let mac = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, pem.as_bytes()), said);
            assert!(!keys.verify("HS256", None, said, mac.as_ref()));
        }
    }

    /// The keys and signatures are the examples of RFC 7515, A.1 and A.3, and of RFC 8037, A.4.
    #[test]
    fn the_examples_of_the_standards_hold() {
        let keys = KeySet::parse(include_bytes!("vectors/rfc_set.json")).unwrap();
        assert_eq!(keys.all.len(), 3);
        for line in include_str!("vectors/rfc_tokens.txt").lines() {
            let (algorithm, token) = line.split_once(' ').unwrap();
            let (said, by) = parts(token);
            assert!(keys.verify(algorithm, None, said, &by), "{algorithm}");
            assert!(keys.verify(algorithm, Some("unnamed"), said, &by), "{algorithm}");
        }
    }

    #[test]
    fn keys_are_found_by_their_names_and_kept_to_their_algorithms() {
        let secret = Base64Variant::Url.encode(&[7; 32]);
        let set = format!(r#"{{"keys":[{{"kty":"oct","kid":"a","alg":"HS384","k":"{secret}"}}]}}"#);
        let keys = KeySet::parse(set.as_bytes()).unwrap();
        let sign = |kind| hmac::sign(&hmac::Key::new(kind, &[7; 32]), b"said");
        let by = sign(hmac::HMAC_SHA384);
        assert!(keys.verify("HS384", Some("a"), b"said", by.as_ref()));
        assert!(!keys.verify("HS384", Some("b"), b"said", by.as_ref()));
        assert!(!keys.verify("HS256", Some("a"), b"said", sign(hmac::HMAC_SHA256).as_ref()));
    }

    #[test]
    fn what_is_no_key_is_refused_without_repeating_it() {
        for (file, why) in [
            ("short", "too short"),
            ("{\"keys\": [", "not JSON"),
            ("{}", "has \"keys\""),
            ("{\"keys\":[{}]}", "no \"kty\""),
            ("{\"keys\":[{\"kty\":\"RSA\",\"n\":\"AQAB\"}]}", "not whole"),
            ("{\"keys\":[{\"kty\":\"oct\",\"k\":\"AQAB\"}]}", "too short"),
            ("-----BEGIN PRIVATE KEY-----\nx\n-----END PRIVATE KEY-----", "only \"PUBLIC KEY\""),
            ("-----BEGIN PUBLIC KEY-----\nAQAB\n-----END PUBLIC KEY-----", "of no kind"),
        ] {
            let told = KeySet::parse(file.as_bytes()).unwrap_err();
            assert!(told.contains(why), "{told}");
        }
        let rsa =
            Base64Variant::Standard.decode(&PEMS[0].1.lines().skip(1).take(7).collect::<String>());
        if let Some(der) = rsa {
            (0..der.len()).for_each(|len| _ = read_public_key(&der[..len]));
        }
    }
}
