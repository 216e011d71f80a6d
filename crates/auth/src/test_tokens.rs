//! Tokens signed by tests, to check the validator.

use super::jwt::{JwtClaimNames, JwtValidator, ParsedJwt, TokenLocation};
use super::key_set::KeySet;
use broker::peer::authentication::Principal;
use net::base64::Base64Variant;
use ring::hmac;

pub const SECRET: &[u8] = b"a secret of thirty-two bytes, ok";
pub(super) const HS256: &str = r#"{"alg":"HS256"}"#;
const BODY: &str = r#"{"sub":"ann","device":"d1","iss":"us","aud":["x","mqtt"]}"#;
/// The current time of the tests, in seconds.
const NOW_S: u64 = 1000;

pub fn signed(header: &str, body: &str) -> String {
    signed_by(SECRET, header, body)
}

pub fn signed_by(secret: &[u8], header: &str, body: &str) -> String {
    let text = |text: &str| Base64Variant::Url.encode(text.as_bytes());
    let said = format!("{}.{}", text(header), text(body));
    let by = sign(secret, &said);
    format!("{said}.{by}")
}

fn sign(secret: &[u8], said: &str) -> String {
    let by = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), said.as_bytes());
    Base64Variant::Url.encode(by.as_ref())
}

pub(super) fn reading() -> JwtValidator {
    let claims = JwtClaimNames {
        user: "sub".into(),
        client_id: "device".into(),
        groups: "groups".into(),
        namespace: String::new(),
        permissions: "acl".into(),
        issuer: "us".into(),
        audience: "mqtt".into(),
        ..JwtClaimNames::default()
    };
    JwtValidator { place: TokenLocation::Password, claims }
}

pub(super) fn validate_token(token: &ParsedJwt<'_>) -> Result<Principal, &'static str> {
    reading().validate(&KeySet::from_secret(SECRET), token, NOW_S)
}

/// Checks any token: only signed tokens are accepted, with any content.
pub fn fuzz_token(text: &str) {
    if let Some(token) = ParsedJwt::parse(text)
        && validate_token(&token).is_ok()
    {
        let (said, by) = text.rsplit_once('.').unwrap_or_default();
        assert_eq!(by, sign(SECRET, said), "{text:?} is believed");
    }
    for (header, body) in [(HS256, text), (text, BODY)] {
        let text = signed(header, body);
        if let Some(token) = ParsedJwt::parse(&text)
            && let Ok(principal) = validate_token(&token)
        {
            let named = principal.user.is_some_and(|user| !user.is_empty());
            assert!(named && principal.client_id.is_some(), "{text:?} is let in without a name");
        }
    }
}
