//! JSON Web Tokens (RFC 7519) as credentials: the signed claims name the client, its expiry and its
//! permissions.

use super::backend::{AuthBackend, BackendOutcome, BackendReply};
#[cfg(feature = "http")]
use super::jwks::RemoteJwks;
use super::key_set::KeySet;
use crate::acl::entry::AclEntry;
use crate::jwt_crypto;
use broker::AuthRequest;
use broker::access_rules::acl_rules::{AclRule, AclRuleSet, TopicPattern};
use broker::peer::authentication::Principal;
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, Validation};
use net::base64::Base64Variant;
use serde_json::Value;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

pub struct JwtBackend {
    pub keys: JwtKeySource,
    pub reading: Arc<JwtValidator>,
}

/// Source of the keys: a file, or the URL of a JWK set.
pub enum JwtKeySource {
    File(KeySet),
    #[cfg(feature = "http")]
    Url(Arc<RemoteJwks>),
}

/// Validates tokens by a [`KeySet`] and [`JwtClaimNames`].
#[derive(Debug)]
pub struct JwtValidator {
    pub place: TokenLocation,
    pub claims: JwtClaimNames,
}

/// Field of CONNECT that contains the token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TokenLocation {
    #[default]
    Password,
    UserName,
}

/// Names of the claims; an empty name disables a claim. `issuer` and `audience` are required
/// values, and empty accepts any value.
#[derive(Clone, Debug, Default)]
pub struct JwtClaimNames {
    pub user: String,
    pub client_id: String,
    pub groups: String,
    pub namespace: String,
    pub permissions: String,
    pub issuer: String,
    pub audience: String,
    pub matched: MatchedNames,
}

/// Names that must be equal in CONNECT and in the token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MatchedNames {
    pub user: bool,
    pub client_id: bool,
}

/// Tolerance in seconds for a token that is not valid yet, because the clocks of two hosts may
/// differ.
const EARLY_S: u64 = 5;
const NO_KEY: &str = "no key of ours signed the token";
const OTHER_ISSUER: &str = "the token is of another issuer";
const OTHER_AUDIENCE: &str = "the token is for somebody else";

impl JwtValidator {
    /// Returns the token of a request, at the [`TokenLocation`]. A text without the form of a token
    /// is a password for other backends.
    fn find_token<'a>(&self, request: &'a AuthRequest) -> Option<ParsedJwt<'a>> {
        let text = match self.place {
            TokenLocation::Password => {
                let bytes = request.password.as_ref().map(|secret| &secret.0[..]);
                bytes.and_then(|bytes| std::str::from_utf8(bytes).ok())
            }
            TokenLocation::UserName => request.user_name.as_deref(),
        };
        text.and_then(ParsedJwt::parse)
    }

    pub fn check(&self, keys: &KeySet, request: &AuthRequest) -> BackendOutcome {
        let Some(token) = self.find_token(request) else { return BackendOutcome::Ignore };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        match self.validate(keys, &token, now) {
            Ok(principal) => match self.claims.matched.differing_name(&principal, request) {
                None => BackendOutcome::Allow(Box::new(principal)),
                Some(why) => BackendOutcome::Deny(why),
            },
            Err(why) => BackendOutcome::Deny(why),
        }
    }

    pub(super) fn validate(
        &self,
        keys: &KeySet,
        token: &ParsedJwt<'_>,
        now: u64,
    ) -> Result<Principal, &'static str> {
        let word = |name: &str| token.header_field(name);
        if token.header.get("crit").is_some() {
            return Err("the token asks for what we do not know");
        }
        let algorithm = word("alg").ok_or("the token names no algorithm")?;
        let algorithm = algorithm.parse().map_err(|_| NO_KEY)?;
        let body = self.verify_signature(keys, algorithm, token)?;
        let expires_in_ms = remaining_lifetime_ms(&body, now)?;
        let names = &self.claims;
        let text = |name: &str| body.get(name).and_then(Value::as_str).filter(|t| !t.is_empty());
        let user = text(&names.user).ok_or("the token does not say who the client is")?;
        let client_id = match names.client_id.as_str() {
            "" => None,
            name => Some(text(name).ok_or("the token does not say the client id")?.into()),
        };
        let permissions = match names.permissions.as_str() {
            "" => None,
            name => body.get(name).map(read_rules).transpose()?.map(Arc::new),
        };
        let groups = match names.groups.as_str() {
            "" => Vec::new(),
            name => body.get(name).map(read_groups).transpose()?.unwrap_or_default(),
        };
        let namespace = match names.namespace.as_str() {
            "" => None,
            // Without a namespace the client would see the topics of all clients.
            name => Some(text(name).ok_or("the token does not say the namespace")?.into()),
        };
        Ok(Principal {
            user: Some(user.into()),
            client_id,
            namespace,
            groups,
            permissions,
            expires_in_ms,
            ..Principal::default()
        })
    }

    /// Returns the claims of a token with a valid signature, issuer and audience.
    fn verify_signature(
        &self,
        keys: &KeySet,
        algorithm: Algorithm,
        token: &ParsedJwt<'_>,
    ) -> Result<Value, &'static str> {
        let validation = self.claims.validation(algorithm);
        jwt_crypto::install_ring_provider();
        for key in keys.candidates(algorithm, token.header_field("kid")) {
            match jsonwebtoken::decode(token.text, key, &validation) {
                Ok(token) => return Ok(token.claims),
                Err(error) => match error.kind() {
                    ErrorKind::InvalidSignature => continue,
                    ErrorKind::InvalidIssuer => return Err(OTHER_ISSUER),
                    ErrorKind::InvalidAudience => return Err(OTHER_AUDIENCE),
                    ErrorKind::MissingRequiredClaim(claim) if claim == "iss" => {
                        return Err(OTHER_ISSUER);
                    }
                    ErrorKind::MissingRequiredClaim(_) => return Err(OTHER_AUDIENCE),
                    _ => return Err("this is not a token"),
                },
            }
        }
        Err(NO_KEY)
    }
}

impl MatchedNames {
    /// Returns the error if the user name or client id of CONNECT differs from that of the token. A
    /// token without a client id is valid for every client id.
    fn differing_name(self, of: &Principal, request: &AuthRequest) -> Option<&'static str> {
        let id = of.client_id.as_deref();
        if self.user && request.user_name.as_deref() != of.user.as_deref() {
            return Some("the token is for another user name than that of CONNECT");
        }
        (self.client_id && id.is_some_and(|id| *id != *request.client_id))
            .then_some("the token is for another client id than that of CONNECT")
    }
}

impl JwtClaimNames {
    /// Checks of all but the times, which others write in forms that the library does not read, and
    /// against a clock that a test cannot set.
    fn validation(&self, algorithm: Algorithm) -> Validation {
        let mut validation = Validation::new(algorithm);
        validation.validate_exp = false;
        validation.required_spec_claims.clear();
        validation.validate_aud = !self.audience.is_empty();
        if validation.validate_aud {
            validation.set_audience(&[&self.audience]);
            validation.required_spec_claims.insert("aud".into());
        }
        if !self.issuer.is_empty() {
            validation.set_issuer(&[&self.issuer]);
            validation.required_spec_claims.insert("iss".into());
        }
        validation
    }
}

impl AuthBackend for JwtBackend {
    fn name(&self) -> &'static str {
        "jwt"
    }

    fn start(&self) {
        #[cfg(feature = "http")]
        if let JwtKeySource::Url(set) = &self.keys {
            set.start_fetching();
        }
    }

    fn authenticate(&self, request: &AuthRequest, reply: BackendReply) {
        match &self.keys {
            JwtKeySource::File(keys) => reply.send(self.reading.check(keys, request)),
            #[cfg(feature = "http")]
            JwtKeySource::Url(set) => match self.reading.find_token(request) {
                Some(token) => {
                    set.authenticate(&self.reading, request, token.header_field("kid"), reply)
                }
                None => reply.send(BackendOutcome::Ignore),
            },
        }
    }
}

/// Reads a list of names, or one name. A malformed element is an error, since a rule may deny
/// access to that group.
fn read_groups(value: &Value) -> Result<Vec<Arc<str>>, &'static str> {
    let all = match value {
        Value::Array(all) => &all[..],
        one => std::slice::from_ref(one),
    };
    let names: Option<_> = all.iter().map(|name| name.as_str().map(Arc::from)).collect();
    names.ok_or("the token's groups are not names")
}

/// A token `HEADER.BODY.SIGNATURE`, of which only the header is parsed: the header names the key
/// that verifies the signature.
pub(super) struct ParsedJwt<'a> {
    header: Value,
    text: &'a str,
}

impl ParsedJwt<'_> {
    pub(super) fn parse(text: &str) -> Option<ParsedJwt<'_>> {
        let (signed, signature) = text.rsplit_once('.')?;
        let (header, body) = signed.split_once('.')?;
        let header = serde_json::from_slice(&Base64Variant::Url.decode(header)?).ok()?;
        Base64Variant::Url.decode(signature)?;
        let is_token = Value::is_object(&header) && !body.contains('.');
        is_token.then_some(ParsedJwt { header, text })
    }

    fn header_field(&self, name: &str) -> Option<&str> {
        self.header.get(name).and_then(Value::as_str)
    }
}

/// Returns the remaining lifetime in milliseconds; `None` without an expiry.
fn remaining_lifetime_ms(body: &Value, now: u64) -> Result<Option<u64>, &'static str> {
    let time = |name: &str| match body.get(name) {
        None => Ok(None),
        // RFC 7519 allows fractions; EMQX takes numbers in quotes as well.
        Some(value) => value
            .as_f64()
            .or_else(|| value.as_str()?.parse::<u64>().ok().map(|seconds| seconds as f64))
            .filter(|seconds| *seconds >= 0.0)
            .map(|seconds| Some(seconds as u64))
            .ok_or("a time of the token is not a number"),
    };
    if time("nbf")?.is_some_and(|from| from > now + EARLY_S) {
        return Err("the token is not valid yet");
    }
    if time("iat")?.is_some_and(|from| from > now + EARLY_S) {
        return Err("the token was issued in the future");
    }
    match time("exp")? {
        Some(until) if until <= now => Err("the token has expired"),
        Some(until) => Ok(Some((until - now).saturating_mul(1000))),
        None => Ok(None),
    }
}

/// Reads `[{"allow": "publish", "topic": ["a/#"]}, {"deny": "all", "topic": "b"}]`: rules as in the
/// ACL file, for this client. A malformed rule is an error.
fn read_rules(value: &Value) -> Result<AclRuleSet, &'static str> {
    let rules = match value {
        Value::Object(lists) => rules_of_topic_lists(lists),
        Value::Array(all) => {
            let rules: Option<Vec<Vec<AclRule>>> = all.iter().map(read_rule).collect();
            rules.map(|rules| rules.concat())
        }
        _ => None,
    };
    rules.map(AclRuleSet::new).ok_or("the token's rules are not as they have to be")
}

/// Reads a rule of a list: as in the ACL file, or with EMQX's `permission` and `action`.
fn read_rule(value: &Value) -> Option<Vec<AclRule>> {
    if value.get("permission").is_some() {
        return AclEntry::from_json(value, "").and_then(|entry| entry.to_rules()).ok();
    }
    read_own_rule(value).map(|rule| vec![rule])
}

/// Reads `{"pub": [...], "sub": [...], "all": [...]}`, the form of older EMQX tokens: other topics
/// are refused, and no other rules apply.
fn rules_of_topic_lists(lists: &serde_json::Map<String, Value>) -> Option<Vec<AclRule>> {
    let mut rules = Vec::new();
    for (name, topics) in lists {
        if !["all", "pub", "sub"].contains(&name.as_str()) {
            return None;
        }
        for topic in topics.as_array()? {
            let topics = vec![topic.as_str()?.to_string()];
            let (permission, action) = ("allow".to_string(), name.clone());
            rules.extend(
                AclEntry { permission, action, topics, ..AclEntry::default() }.to_rules().ok()?,
            );
        }
    }
    rules.push(AclRule { publish: true, subscribe: true, ..AclRule::default() });
    Some(rules)
}

fn read_own_rule(value: &Value) -> Option<AclRule> {
    let fields = value.as_object()?;
    let mut rule = AclRule::default();
    let mut deeds = 0;
    for (name, value) in fields {
        match name.as_str() {
            "allow" | "deny" => {
                deeds += 1;
                rule.allows = name == "allow";
                (rule.publish, rule.subscribe) = match value.as_str()? {
                    "all" => (true, true),
                    "publish" => (true, false),
                    "subscribe" => (false, true),
                    _ => return None,
                };
            }
            "topic" => {
                let one = std::slice::from_ref(value);
                for topic in value.as_array().map_or(one, Vec::as_slice) {
                    rule.topics.push(TopicPattern::parse(topic.as_str()?).ok()?);
                }
            }
            "qos" => {
                let one = std::slice::from_ref(value);
                let all = value.as_array().map_or(one, Vec::as_slice).iter();
                let bit = |qos: &Value| Some(1 << qos.as_u64().filter(|qos| *qos <= 2)?);
                rule.qos = all.map(bit).try_fold(0, |bits, bit: Option<u8>| Some(bits | bit?))?;
            }
            "retain" => rule.retain = Some(value.as_bool()?),
            _ => return None,
        }
    }
    // As in the ACL file, RETAIN cannot restrict a subscription.
    let fits = rule.qos != 0 && !(rule.subscribe && rule.retain.is_some());
    (deeds == 1 && fits && !rule.topics.is_empty()).then_some(rule)
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::test_tokens::{self, HS256, SECRET, reading, signed, validate_token};
    use crate::{fuzz_targets, mutations};

    pub fn tokens() -> JwtBackend {
        let keys = JwtKeySource::File(KeySet::from_secret(SECRET));
        JwtBackend { keys, reading: reading().into() }
    }

    fn read(header: &str, body: &str) -> Result<Principal, &'static str> {
        let token = signed(header, body);
        validate_token(&ParsedJwt::parse(&token).expect("a token"))
    }

    /// Returns claims in which fields of `more` replace the default fields.
    fn body(more: &str) -> String {
        let body = format!(r#"{{"sub":"ann","device":"d1","iss":"us","aud":["x","mqtt"]{more}}}"#);
        serde_json::from_str::<Value>(&body).unwrap().to_string()
    }

    #[test]
    fn whatever_a_token_says_is_understood_or_refused() {
        let more = r#","exp":1010.5,"nbf":1004,"groups":["a"],"acl":[{"allow":"all","topic":"a"}]"#;
        let body = body(more);
        let right = signed(HS256, &body);
        for samples in [
            &[&*right, &signed(r#"{"alg":"none"}"#, &body)],
            &[&*body, r#"{"exp":-1,"aud":"mqtt"}"#],
            &[HS256, r#"{"alg":"ES256","kid":"a"}"#],
        ] {
            mutations::for_each_mutation(samples, test_tokens::fuzz_token);
        }
    }

    #[test]
    fn whatever_a_set_of_keys_says_is_understood_or_refused() {
        let set = format!(
            r#"{{"keys":[{{"kty":"oct","k":"{}"}},{{"kty":"RSA","n":"AQAB","e":"AQAB"}}]}}"#,
            Base64Variant::Url.encode(SECRET)
        );
        let other = r#"{"keys":[{"kty":"EC","crv":"P-256","x":"","y":""}]}"#;
        mutations::for_each_mutation(&[&set, other], |set| {
            fuzz_targets::check_keys(set.as_bytes())
        });
    }

    #[test]
    fn what_was_signed_is_believed() {
        let principal = read(HS256, &body(r#","exp":1010.5,"nbf":1004"#)).unwrap();
        assert_eq!(principal.user.as_deref(), Some("ann"));
        assert_eq!(principal.client_id.as_deref(), Some("d1"));
        assert_eq!(principal.expires_in_ms, Some(10_000));
        assert_eq!((principal.permissions, principal.groups), (None, Vec::new()));
        let groups = |claim: &str| read(HS256, &body(claim)).unwrap().groups;
        assert_eq!(groups(r#","groups":["a","b"]"#), ["a".into(), "b".into()]);
        assert_eq!(groups(r#","groups":"a""#), ["a".into()]);
        assert!(read(HS256, &body(r#","groups":["a",1]"#)).is_err());
        let rules = r#","acl":[{"allow":"publish","topic":"a/${clientid}"},
            {"deny":"all","topic":["b","c/#"]}]"#;
        assert_eq!(read(HS256, &body(rules)).unwrap().permissions.unwrap().len(), 2);
    }

    #[test]
    fn a_name_of_connect_is_that_of_the_token_where_it_has_to_be() {
        let all = |user, client_id| MatchedNames { user, client_id };
        let token = signed(HS256, &body(""));
        for (matched, user, id, is_in) in [
            (all(false, false), Some("bob"), "x", true),
            (all(true, false), Some("ann"), "x", true),
            (all(true, false), Some("bob"), "d1", false),
            (all(true, false), None, "d1", false),
            (all(false, true), Some("bob"), "d1", true),
            (all(false, true), Some("ann"), "d2", false),
            (all(false, true), Some("ann"), "", false),
            (all(true, true), Some("ann"), "d1", true),
        ] {
            let claims = JwtClaimNames { matched, ..reading().claims };
            let reading = JwtValidator { place: TokenLocation::Password, claims };
            let request = AuthRequest {
                client_id: id.into(),
                ..crate::contract::claim(user, Some(token.as_bytes()))
            };
            let outcome = reading.check(&KeySet::from_secret(SECRET), &request);
            assert_eq!(matches!(outcome, BackendOutcome::Allow(_)), is_in, "{user:?} {id}");
        }
    }

    #[test]
    fn a_token_that_is_to_name_a_namespace_names_one() {
        let claims = JwtClaimNames { namespace: "tenant".into(), ..reading().claims };
        let reading = JwtValidator { place: TokenLocation::Password, claims };
        let read = |more| {
            let token = signed(HS256, &body(more));
            let token = ParsedJwt::parse(&token).expect("a token");
            let keys = KeySet::from_secret(SECRET);
            reading.validate(&keys, &token, 1000).map(|one| one.namespace)
        };
        assert_eq!(read(r#","tenant":"acme""#), Ok(Some("acme".into())));
        assert_eq!(read(""), Err("the token does not say the namespace"));
        assert_eq!(read(r#","tenant":"""#), Err("the token does not say the namespace"));
    }

    #[test]
    fn what_is_not_right_is_not() {
        for (more, why) in [
            (r#","exp":1000"#, "the token has expired"),
            (r#","exp":"1000""#, "the token has expired"),
            (r#","exp":"soon""#, "a time of the token is not a number"),
            (r#","iat":1006"#, "the token was issued in the future"),
            (r#","iat":"1006""#, "the token was issued in the future"),
            (r#","iat":null"#, "a time of the token is not a number"),
            (r#","exp":-1"#, "a time of the token is not a number"),
            (r#","nbf":1006"#, "the token is not valid yet"),
            (r#","iss":"them""#, "the token is of another issuer"),
            (r#","aud":"http""#, "the token is for somebody else"),
            (r#","sub":"""#, "the token does not say who the client is"),
            (r#","sub":7"#, "the token does not say who the client is"),
            (r#","device":null"#, "the token does not say the client id"),
            (r#","acl":{"pub":"a"}"#, "the token's rules are not as they have to be"),
            (r#","acl":{"deny":["a"]}"#, "the token's rules are not as they have to be"),
            (r#","acl":[{"allow":"all"}]"#, "the token's rules are not as they have to be"),
            (
                r#","acl":[{"deny":"all","topic":"a","retain":true}]"#,
                "the token's rules are not as they have to be",
            ),
            (
                r#","acl":[{"deny":"all","topic":"a","qos":[]}]"#,
                "the token's rules are not as they have to be",
            ),
            (
                r#","acl":[{"allow":"all","topic":"a","user":"bob"}]"#,
                "the token's rules are not as they have to be",
            ),
        ] {
            assert_eq!(read(HS256, &body(more)).unwrap_err(), why, "{more}");
        }
    }

    /// RFC 7519, 4: another parser might use the other of two equal claims.
    #[test]
    fn a_token_that_makes_a_claim_twice_is_refused() {
        for (twice, why) in [
            (r#""iss":"us","iss":"us""#, "this is not a token"),
            (r#""aud":"mqtt","aud":"mqtt""#, "this is not a token"),
            (r#""exp":2000,"exp":1500"#, "this is not a token"),
        ] {
            let body = format!(r#"{{"sub":"ann","device":"d1",{twice}}}"#);
            assert_eq!(read(HS256, &body).unwrap_err(), why, "{twice}");
        }
    }

    #[test]
    fn a_token_does_not_choose_how_it_is_checked() {
        let unsigned = "no key of ours signed the token";
        for header in [
            r#"{"alg":"none"}"#,
            r#"{"alg":"None"}"#,
            r#"{"alg":"RS256"}"#,
            r#"{"alg":"HS512"}"#,
            r#"{"alg":"hs256"}"#,
            r#"{"alg":""}"#,
        ] {
            assert_eq!(read(header, &body("")).unwrap_err(), unsigned, "{header}");
        }
        assert!(read(r#"{"alg":7}"#, &body("")).is_err());
        assert!(read(r#"{"alg":"HS256","crit":["exp"]}"#, &body("")).is_err());
        let token = signed(r#"{"alg":"none"}"#, &body(""));
        let bare = &token[..=token.rfind('.').unwrap()];
        assert_eq!(validate_token(&ParsedJwt::parse(bare).unwrap()).unwrap_err(), unsigned);
    }

    #[test]
    fn what_is_no_token_is_left_to_others() {
        for text in ["", "secret", "a.b.c", "..", "e30", "e30.e30", "W10.e30.x", "e30.e30.e30.e30"]
        {
            assert!(ParsedJwt::parse(text).is_none(), "{text}");
        }
        assert!(ParsedJwt::parse("e30.e30.").is_some());
    }
}
