//! Verification of token signatures by `ring`, the provider of TLS, for `jsonwebtoken`, which has
//! no cryptography of its own.
//!
//! Invariant: a key verifies algorithms of its own family only, so a public key never serves as a
//! secret.

use jsonwebtoken::crypto::{CryptoProvider, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{ErrorKind, Result};
use jsonwebtoken::signature::{Error as SignatureError, Verifier};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind};
use ring::signature::{self, UnparsedPublicKey};
use ring::{hmac, rsa};

static RING_PROVIDER: CryptoProvider = CryptoProvider {
    // This program signs no tokens.
    signer_factory: |_, _| Err(ErrorKind::UnsupportedAlgorithm.into()),
    verifier_factory: RingVerifier::create,
    // Needed only to convert keys to JWKs, which this program does not do.
    key_utils: KeyUtils::new_unimplemented(),
};

/// Installs `ring` as the provider of `jsonwebtoken`. To be called before each use; repeated calls
/// cost nothing.
pub(crate) fn install_ring_provider() {
    let _ = RING_PROVIDER.install_default();
}

struct RingVerifier {
    algorithm: Algorithm,
    key: DecodingKey,
}

impl RingVerifier {
    fn create(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>> {
        if key.family() != algorithm.family() {
            return Err(ErrorKind::InvalidAlgorithm.into());
        }
        Ok(Box::new(RingVerifier { algorithm: *algorithm, key: key.clone() }))
    }
}

impl JwtVerifier for RingVerifier {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

impl Verifier<Vec<u8>> for RingVerifier {
    fn verify(&self, signed: &[u8], by: &Vec<u8>) -> std::result::Result<(), SignatureError> {
        let verified = match self.key.kind() {
            DecodingKeyKind::SecretOrDer(bytes) => verify(self.algorithm, bytes, signed, by),
            DecodingKeyKind::RsaModulusExponent { n, e } => {
                verify_rsa(self.algorithm, n, e, signed, by)
            }
        };
        verified.ok_or_else(SignatureError::new)
    }
}

fn verify(algorithm: Algorithm, key: &[u8], signed: &[u8], by: &[u8]) -> Option<()> {
    let verify_mac = |kind| hmac::verify(&hmac::Key::new(kind, key), signed, by).ok();
    let verify_point = |kind| UnparsedPublicKey::new(kind, key).verify(signed, by).ok();
    match algorithm {
        Algorithm::HS256 => verify_mac(hmac::HMAC_SHA256),
        Algorithm::HS384 => verify_mac(hmac::HMAC_SHA384),
        Algorithm::HS512 => verify_mac(hmac::HMAC_SHA512),
        Algorithm::ES256 => verify_point(&signature::ECDSA_P256_SHA256_FIXED),
        Algorithm::ES384 => verify_point(&signature::ECDSA_P384_SHA384_FIXED),
        Algorithm::EdDSA => {
            UnparsedPublicKey::new(&signature::ED25519, key).verify(signed, by).ok()
        }
        _ => None,
    }
}

fn verify_rsa(algorithm: Algorithm, n: &[u8], e: &[u8], signed: &[u8], by: &[u8]) -> Option<()> {
    let kind = match algorithm {
        Algorithm::RS256 => &signature::RSA_PKCS1_2048_8192_SHA256,
        Algorithm::RS384 => &signature::RSA_PKCS1_2048_8192_SHA384,
        Algorithm::RS512 => &signature::RSA_PKCS1_2048_8192_SHA512,
        Algorithm::PS256 => &signature::RSA_PSS_2048_8192_SHA256,
        Algorithm::PS384 => &signature::RSA_PSS_2048_8192_SHA384,
        Algorithm::PS512 => &signature::RSA_PSS_2048_8192_SHA512,
        _ => return None,
    };
    rsa::PublicKeyComponents { n, e }.verify(kind, signed, by).ok()
}
