//! The keys that tokens are signed with: a JWK set (RFC 7517), public keys in PEM, or a secret.
//!
//! A key knows the algorithms of its own kind and no others, so a public key is never taken for a
//! secret, whatever a token says of itself.

use config::source::describe_read_error;
use net::base64::Base64Variant;
use ring::signature::{self, UnparsedPublicKey, VerificationAlgorithm};
use ring::{hmac, rsa};
use serde_json::Value;
use std::fs;
use std::path::Path;

#[derive(Debug, Default)]
pub struct KeySet {
    all: Vec<VerificationKey>,
}

#[derive(Debug)]
struct VerificationKey {
    id: Option<String>,
    /// The only algorithm that it is for, where its owner says so.
    algorithm: Option<String>,
    material: KeyMaterial,
}

enum KeyMaterial {
    Curve { kind: EllipticCurve, point: Vec<u8> },
    Rsa { modulus: Vec<u8>, exponent: Vec<u8> },
    Secret(Vec<u8>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EllipticCurve {
    Ed25519,
    P256,
    P384,
}

/// No key is for logs.
impl std::fmt::Debug for KeyMaterial {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

/// A shorter secret can be guessed (RFC 7518, 3.2).
const SECRET_BYTES_MIN: usize = 32;
const PEM_BEGIN: &str = "-----BEGIN PUBLIC KEY-----";
const PEM_END: &str = "-----END PUBLIC KEY-----";

impl KeySet {
    /// The error is a sentence that names the file and repeats nothing of it.
    pub fn read(path: &Path) -> Result<KeySet, String> {
        let shown = path.display();
        let bytes = fs::read(path)
            .map_err(|error| describe_read_error(path, "key file (auth.jwt_keys)", &error))?;
        let keys = KeySet::parse(&bytes).map_err(|why| format!("{shown}: {why}"))?;
        match keys.all.is_empty() {
            true => Err(format!("{shown}: there is no key that we can use in it")),
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
            vec![VerificationKey::new(KeySet::secret(secret.to_vec())?)]
        };
        Ok(KeySet { all })
    }

    fn secret(bytes: Vec<u8>) -> Result<KeyMaterial, String> {
        if bytes.len() < SECRET_BYTES_MIN {
            return Err(format!("the secret is too short, use {SECRET_BYTES_MIN} bytes or more"));
        }
        Ok(KeyMaterial::Secret(bytes))
    }

    /// Keys that are for something else, or of kinds that we do not know, are left out.
    fn parse_set(text: &str) -> Result<Vec<VerificationKey>, String> {
        let set: Value = serde_json::from_str(text)
            .map_err(|error| format!("not JSON, which a JWK set is: line {}", error.line()))?;
        let keys = set.get("keys").and_then(Value::as_array).ok_or("a JWK set has \"keys\"")?;
        let mut all = Vec::new();
        for key in keys {
            let word = |name: &str| key.get(name).and_then(Value::as_str);
            let bytes = |name: &str| word(name).and_then(|text| Base64Variant::Url.decode(text));
            if word("use").is_some_and(|usage| usage != "sig") {
                continue;
            }
            let material = match (word("kty"), word("crv")) {
                (Some("oct"), _) => match bytes("k") {
                    Some(secret) => Some(KeySet::secret(secret)?),
                    None => None,
                },
                (Some("RSA"), _) => bytes("n")
                    .zip(bytes("e"))
                    .map(|(modulus, exponent)| KeyMaterial::Rsa { modulus, exponent }),
                (Some("OKP"), Some("Ed25519")) => bytes("x")
                    .map(|point| KeyMaterial::Curve { kind: EllipticCurve::Ed25519, point }),
                (Some("EC"), Some("P-256")) => {
                    uncompressed_point(EllipticCurve::P256, bytes("x"), bytes("y"), 32)
                }
                (Some("EC"), Some("P-384")) => {
                    uncompressed_point(EllipticCurve::P384, bytes("x"), bytes("y"), 48)
                }
                (None, _) => return Err("a key of the set has no \"kty\"".into()),
                _ => continue,
            };
            let material = material.ok_or("a key of the set is not whole")?;
            let (id, algorithm) = (word("kid").map(String::from), word("alg").map(String::from));
            all.push(VerificationKey { id, algorithm, material });
        }
        Ok(all)
    }

    fn parse_pem(text: &str) -> Result<Vec<VerificationKey>, String> {
        let mut all = Vec::new();
        let mut rest = text.trim();
        while !rest.is_empty() {
            let body = rest.strip_prefix(PEM_BEGIN).and_then(|rest| rest.split_once(PEM_END));
            let (body, after) = body.ok_or(
                "in PEM only \"PUBLIC KEY\" is taken; openssl pkey \
                                            -pubout writes one",
            )?;
            let letters: String = body.split_whitespace().collect();
            let key =
                Base64Variant::Standard.decode(&letters).and_then(|der| read_public_key(&der));
            all.push(VerificationKey::new(key.ok_or(
                "a PEM key is of no kind that we know: RSA, P-256, P-384 \
                                         and Ed25519 are",
            )?));
            rest = after.trim_start();
        }
        Ok(all)
    }

    /// Parses a JWK set, as a server publishes it.
    #[cfg(feature = "http")]
    pub fn from_set(bytes: &[u8]) -> Result<KeySet, String> {
        let all = KeySet::parse_set(std::str::from_utf8(bytes).unwrap_or_default())?;
        match all.is_empty() {
            true => Err("there is no key that we can use in the set".into()),
            false => Ok(KeySet { all }),
        }
    }

    /// Whether there is one that a token may mean by this name.
    #[cfg(feature = "http")]
    pub fn knows(&self, id: Option<&str>) -> bool {
        self.all.iter().any(|key| key.id.is_none() || id.is_none() || key.id.as_deref() == id)
    }

    pub fn from_secret(secret: &[u8]) -> KeySet {
        KeySet { all: vec![VerificationKey::new(KeyMaterial::Secret(secret.to_vec()))] }
    }

    /// Whether one of the keys signed this.
    pub fn verify(&self, algorithm: &str, id: Option<&str>, said: &[u8], by: &[u8]) -> bool {
        let fits = |key: &&VerificationKey| {
            let named = key.id.is_none() || id.is_none() || key.id.as_deref() == id;
            named && key.algorithm.as_deref().is_none_or(|only| only == algorithm)
        };
        self.all.iter().filter(fits).any(|key| key.material.verify(algorithm, said, by))
    }
}

impl VerificationKey {
    fn new(material: KeyMaterial) -> VerificationKey {
        VerificationKey { id: None, algorithm: None, material }
    }
}

impl KeyMaterial {
    fn verify(&self, algorithm: &str, said: &[u8], by: &[u8]) -> bool {
        match self {
            KeyMaterial::Secret(secret) => {
                let kind = match algorithm {
                    "HS256" => hmac::HMAC_SHA256,
                    "HS384" => hmac::HMAC_SHA384,
                    "HS512" => hmac::HMAC_SHA512,
                    _ => return false,
                };
                hmac::verify(&hmac::Key::new(kind, secret), said, by).is_ok()
            }
            KeyMaterial::Rsa { modulus, exponent } => {
                let kind = match algorithm {
                    "RS256" => &signature::RSA_PKCS1_2048_8192_SHA256,
                    "RS384" => &signature::RSA_PKCS1_2048_8192_SHA384,
                    "RS512" => &signature::RSA_PKCS1_2048_8192_SHA512,
                    "PS256" => &signature::RSA_PSS_2048_8192_SHA256,
                    "PS384" => &signature::RSA_PSS_2048_8192_SHA384,
                    "PS512" => &signature::RSA_PSS_2048_8192_SHA512,
                    _ => return false,
                };
                let key = rsa::PublicKeyComponents { n: modulus, e: exponent };
                key.verify(kind, said, by).is_ok()
            }
            KeyMaterial::Curve { kind, point } => {
                let kind: &dyn VerificationAlgorithm = match (kind, algorithm) {
                    (EllipticCurve::Ed25519, "EdDSA") => &signature::ED25519,
                    (EllipticCurve::P256, "ES256") => &signature::ECDSA_P256_SHA256_FIXED,
                    (EllipticCurve::P384, "ES384") => &signature::ECDSA_P384_SHA384_FIXED,
                    _ => return false,
                };
                UnparsedPublicKey::new(kind, point).verify(said, by).is_ok()
            }
        }
    }
}

/// 04, x, y, each as wide as the curve.
fn uncompressed_point(
    kind: EllipticCurve,
    x: Option<Vec<u8>>,
    y: Option<Vec<u8>>,
    width: usize,
) -> Option<KeyMaterial> {
    let (x, y) = x.zip(y).filter(|(x, y)| x.len() == width && y.len() == width)?;
    Some(KeyMaterial::Curve { kind, point: [vec![4], x, y].concat() })
}

/// SubjectPublicKeyInfo (RFC 5280, 4.1.2.7): a sequence of the algorithm and a bit string.
fn read_public_key(der: &[u8]) -> Option<KeyMaterial> {
    let (whole, rest) = read_der_element(der, SEQUENCE)?;
    let (algorithm, key) = read_der_element(whole, SEQUENCE).filter(|_| rest.is_empty())?;
    let (key, _) = read_der_element(key, BIT_STRING)?;
    let key = key.strip_prefix(&[0])?;
    let (kind, parameters) = read_der_element(algorithm, OBJECT_ID)?;
    match kind {
        RSA_ENCRYPTION => {
            let (numbers, _) = read_der_element(key, SEQUENCE)?;
            let (modulus, exponent) = read_der_element(numbers, INTEGER)?;
            let (exponent, _) = read_der_element(exponent, INTEGER)?;
            let bare = |number: &[u8]| number.strip_prefix(&[0]).unwrap_or(number).to_vec();
            Some(KeyMaterial::Rsa { modulus: bare(modulus), exponent: bare(exponent) })
        }
        EC_PUBLIC_KEY => {
            let kind = match read_der_element(parameters, OBJECT_ID)?.0 {
                PRIME256V1 => EllipticCurve::P256,
                SECP384R1 => EllipticCurve::P384,
                _ => return None,
            };
            Some(KeyMaterial::Curve { kind, point: key.to_vec() })
        }
        ED25519 => Some(KeyMaterial::Curve { kind: EllipticCurve::Ed25519, point: key.to_vec() }),
        _ => None,
    }
}

/// The content of a DER element and what follows it.
fn read_der_element(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let rest = der.strip_prefix(&[tag])?;
    let (first, rest) = rest.split_first()?;
    let (len, rest) = match first {
        0..=0x7f => (usize::from(*first), rest),
        0x81 => (usize::from(*rest.first()?), rest.get(1..)?),
        0x82 => {
            let (len, rest) = rest.split_first_chunk::<2>()?;
            (usize::from(u16::from_be_bytes(*len)), rest)
        }
        _ => return None,
    };
    rest.split_at_checked(len)
}

const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const OBJECT_ID: u8 = 0x06;
const SEQUENCE: u8 = 0x30;
/// 1.2.840.113549.1.1.1
const RSA_ENCRYPTION: &[u8] = b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x01";
/// 1.2.840.10045.2.1
const EC_PUBLIC_KEY: &[u8] = b"\x2a\x86\x48\xce\x3d\x02\x01";
/// 1.2.840.10045.3.1.7
const PRIME256V1: &[u8] = b"\x2a\x86\x48\xce\x3d\x03\x01\x07";
/// 1.3.132.0.34
const SECP384R1: &[u8] = b"\x2b\x81\x04\x00\x22";
/// 1.3.101.112
const ED25519: &[u8] = b"\x2b\x65\x70";

#[cfg(test)]
mod tests {
    use super::*;

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

    /// RFC 7515, A.1 and A.3; RFC 8037, A.4.
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
