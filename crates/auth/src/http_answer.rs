//! Answers of an HTTP server in the forms of other brokers: EMQX 5's
//! `{"result": "allow", "is_superuser": false, "acl": [...], "expire_at": 1893456000}`; the status
//! alone, as in EMQX 4 and NanoMQ; a word or `{"ok": true}`, as in mosquitto-go-auth.

use super::backend::BackendOutcome;
use super::remote::http_call::HttpAnswerFormat;
use crate::acl::entry::AclEntry;
use broker::AuthRequest;
use broker::access_rules::acl_rules::AclRuleSet;
use broker::peer::authentication::Principal;
use net::http_client::HttpResponse;
use net::server_url::percent_decode;
use serde_json::Value;
use std::sync::Arc;

/// Largest number of rules in an answer, since each session stores its rules. More are an error.
const RULES_MAX: usize = 10_000;

/// Decision of an answer by its status, with any body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusDecision {
    Allow,
    Deny,
    Ignore,
    /// The body is an object with `result`, which decides.
    ReadBody,
    /// The status is 500 or above, so the server has not decided.
    ServerFailed,
}

impl StatusDecision {
    /// Decides by the status: 200 allows, any other status below 500 denies. A body that denies
    /// counts also with 200.
    pub fn of(answer: &HttpResponse) -> StatusDecision {
        match answer.status {
            200 => {}
            500.. => return StatusDecision::ServerFailed,
            _ => return StatusDecision::Deny,
        }
        let said = String::from_utf8_lossy(&answer.body).trim().to_lowercase();
        match said.as_str() {
            "ignore" => StatusDecision::Ignore,
            "deny" | "false" => StatusDecision::Deny,
            _ if said.starts_with('{') => match serde_json::from_slice::<Value>(&answer.body) {
                Ok(body) if body.get("result").is_some() && answer.is_json => {
                    StatusDecision::ReadBody
                }
                Ok(body) if body_denies(&body) => StatusDecision::Deny,
                _ => StatusDecision::Allow,
            },
            _ => StatusDecision::Allow,
        }
    }

    /// Decides by the text: only 200 with the word `ok` allows.
    pub fn of_text(answer: &HttpResponse) -> StatusDecision {
        match answer.status {
            500.. => StatusDecision::ServerFailed,
            200 if answer.body.trim_ascii() == b"ok" => StatusDecision::Allow,
            _ => StatusDecision::Deny,
        }
    }
}

/// Whether an object denies: one with another content type, or in mosquitto-go-auth's form.
fn body_denies(body: &Value) -> bool {
    let is_no = |word: &Value| *word == Value::Bool(false) || word == "deny" || word == "false";
    ["result", "ok", "Ok"].iter().any(|name| body.get(name).is_some_and(is_no))
}

/// Reads an answer in the given form. `takes_rules` is whether rules are accepted; `now` is in
/// seconds of the Unix epoch.
pub(super) fn read_outcome(
    answer: &HttpResponse,
    form: HttpAnswerFormat,
    request: &AuthRequest,
    takes_rules: bool,
    now: u64,
) -> BackendOutcome {
    let status = match form {
        HttpAnswerFormat::Json | HttpAnswerFormat::Emqx => StatusDecision::ReadBody,
        HttpAnswerFormat::Status => StatusDecision::of(answer),
        HttpAnswerFormat::Text => StatusDecision::of_text(answer),
    };
    match status {
        StatusDecision::Allow => BackendOutcome::Allow(Box::new(principal_of_request(request))),
        StatusDecision::Deny => BackendOutcome::Deny(SAYS_SO),
        StatusDecision::Ignore => BackendOutcome::Ignore,
        StatusDecision::ReadBody => {
            read_result(answer, form == HttpAnswerFormat::Emqx, request, takes_rules, now)
        }
        StatusDecision::ServerFailed => BackendOutcome::Fail(describe_status(answer.status)),
    }
}

/// Reads an answer. With `is_emqx` only fields of EMQX 5 count.
fn read_result(
    answer: &HttpResponse,
    is_emqx: bool,
    request: &AuthRequest,
    takes_rules: bool,
    now: u64,
) -> BackendOutcome {
    let body = match answer.status {
        200 if answer.is_json => match serde_json::from_slice(&answer.body) {
            Ok(body) => body,
            Err(_) => return BackendOutcome::Fail("its answer is not JSON".into()),
        },
        200 if answer.is_form => match read_form(&answer.body) {
            Some(body) => body,
            None => return BackendOutcome::Fail("its answer is not a form".into()),
        },
        200 => {
            return BackendOutcome::Fail(
                "its answer is not said to be JSON: auth.http_answer has other forms".into(),
            );
        }
        204 => return BackendOutcome::Allow(Box::new(principal_of_request(request))),
        401 | 403 => return BackendOutcome::Deny(SAYS_SO),
        408 | 429 => return BackendOutcome::Fail(describe_status(answer.status)),
        // As in EMQX 5: the server does not know the client.
        400..500 => return BackendOutcome::Ignore,
        status => return BackendOutcome::Fail(describe_status(status)),
    };
    if let Some(why) = not_of_emqx(&body, answer.is_json).filter(|_| is_emqx) {
        return BackendOutcome::Fail(format!("its answer cannot be read: {why}"));
    }
    evaluate_body(&body, request, takes_rules, now)
        .unwrap_or_else(|why| BackendOutcome::Fail(format!("its answer cannot be read: {why}")))
}

/// Latest time in seconds that EMQX accepts, 9999-12-31; EMQX reads larger numbers as milliseconds
/// and fails.
const EMQX_EXPIRE_AT_MAX: i64 = 253_402_300_799;

/// Returns the reason for which EMQX 5 would refuse an answer that is accepted as `json`; `None` if
/// EMQX would accept the answer.
fn not_of_emqx(body: &Value, is_json: bool) -> Option<&'static str> {
    let expires = body.get("expire_at").filter(|at| is_json && !at.is_null());
    let is_time = |at: &Value| at.as_i64().is_some_and(|at| at <= EMQX_EXPIRE_AT_MAX);
    match body {
        _ if body.get("result").is_none() => Some("it has no result"),
        _ if body.get("clientid_override").is_some() => Some("clientid_override is not known here"),
        _ if expires.is_some_and(|at| !is_time(at)) => Some("expire_at is not a time in seconds"),
        _ => None,
    }
}

const SAYS_SO: &str = "the server says so";

fn describe_status(status: u16) -> String {
    format!("it answered with status {status}")
}

/// Parses a URL-encoded body such as `result=allow&is_superuser=true` into an object of texts.
/// Returns `None` if a field has no `=` or the body is not UTF-8.
fn read_form(body: &[u8]) -> Option<Value> {
    let text = std::str::from_utf8(body).ok()?.trim();
    let field = |field: &str| {
        let (name, value) = field.split_once('=')?;
        let plain = |text: &str| percent_decode(&text.replace('+', " "));
        Some((plain(name)?, Value::String(plain(value)?)))
    };
    text.split('&').map(field).collect::<Option<serde_json::Map<_, _>>>().map(Value::Object)
}

fn evaluate_body(
    body: &Value,
    request: &AuthRequest,
    takes_rules: bool,
    now: u64,
) -> Result<BackendOutcome, &'static str> {
    let ok = body.get("ok").or_else(|| body.get("Ok"));
    match (body.get("result").map(Value::as_str), ok) {
        (Some(Some("allow")), None | Some(Value::Bool(true))) => {}
        (None, Some(Value::Bool(true))) => {}
        (Some(Some("deny")), _) | (None, Some(Value::Bool(false))) => {
            return Ok(BackendOutcome::Deny(SAYS_SO));
        }
        (Some(Some("ignore")), None) => return Ok(BackendOutcome::Ignore),
        _ => return Err("its result is not allow, deny or ignore"),
    }
    let mut principal = principal_of_request(request);
    principal.is_superuser = body.get("is_superuser").is_some_and(is_true);
    if let Some(groups) = body.get("groups") {
        let text = |group: &Value| group.as_str().map(Arc::from);
        let groups = groups.as_array().and_then(|all| all.iter().map(text).collect());
        principal.groups = groups.ok_or("groups is not a list of names")?;
    }
    match body.get("expire_at") {
        None | Some(Value::Null) => {}
        Some(at) => match read_seconds(at) {
            Some(at) if at > now as f64 => {
                principal.expires_in_ms = Some(((at - now as f64) * 1000.0) as u64);
            }
            Some(_) => return Ok(BackendOutcome::Deny("the server's answer has expired")),
            None => return Err("expire_at is not a time in seconds"),
        },
    }
    match body.get("acl") {
        None | Some(Value::Null) => {}
        Some(_) if !takes_rules => return Err("it has rules (acl), and auth.http_acl is false"),
        Some(rules) => principal.permissions = Some(Arc::new(read_rules(rules)?)),
    }
    Ok(BackendOutcome::Allow(Box::new(principal)))
}

/// Whether EMQX reads the value as true; any other value is false.
fn is_true(value: &Value) -> bool {
    match value {
        Value::Bool(yes) => *yes,
        Value::Number(number) => number.as_u64().is_some_and(|number| number > 0),
        Value::String(word) => word == "true" || word == "1",
        _ => false,
    }
}

/// Reads a number, or a number in quotes.
fn read_seconds(value: &Value) -> Option<f64> {
    value.as_f64().or_else(|| value.as_str()?.parse::<u64>().ok().map(|seconds| seconds as f64))
}

/// Returns the [`Principal`] with the user name of the request, which the server has accepted.
fn principal_of_request(request: &AuthRequest) -> Principal {
    Principal { user: request.user_name.as_deref().map(Arc::from), ..Principal::default() }
}

fn read_rules(rules: &Value) -> Result<AclRuleSet, &'static str> {
    let rules = rules.as_array().ok_or("acl is not a list of rules")?;
    if rules.len() > RULES_MAX {
        return Err("acl has too many rules");
    }
    let mut all = Vec::new();
    for rule in rules {
        all.extend(AclEntry::from_json(rule, "")?.to_rules()?);
    }
    Ok(AclRuleSet::new(all))
}

#[cfg(test)]
mod tests {
    use super::*;
    use broker::peer::authentication::SecretBytes;
    use broker::{ListenerId, PeerAddress};

    fn claim() -> AuthRequest {
        AuthRequest {
            peer: PeerAddress::Network(([192, 0, 2, 1], 1).into()),
            version: mqtt::ProtocolVersion::V5,
            client_id: "id".into(),
            user_name: Some("ann".into()),
            password: Some(SecretBytes(b"x".as_slice().into())),
            listener: ListenerId(0),
            step: None,
            certificate: None,
        }
    }

    fn said(status: u16, body: &str) -> BackendOutcome {
        let body = body.to_string().into_bytes().into();
        let answer = HttpResponse { status, is_json: true, body, ..HttpResponse::default() };
        read_outcome(&answer, HttpAnswerFormat::Json, &claim(), true, 1000)
    }

    fn granted(body: &str) -> Principal {
        match said(200, body) {
            BackendOutcome::Allow(principal) => *principal,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_answer_says_who_the_client_is_and_what_it_may_do() {
        let principal = granted(
            r#"{"result":"allow","is_superuser":true,"groups":["a","b"],"expire_at":1010.5,
                "client_attrs":{"x":"y"},"acl":[
                {"permission":"allow","action":"publish","topic":"a/${username}","qos":[0,1],
                 "retain":true},
                {"permission":"deny","action":"all","topics":["b","c/#"],"qos":"2"}]}"#,
        );
        assert_eq!(principal.user.as_deref(), Some("ann"));
        assert_eq!(principal.groups, ["a".into(), "b".into()]);
        assert_eq!((principal.is_superuser, principal.expires_in_ms), (true, Some(10_500)));
        assert_eq!(principal.permissions.unwrap().len(), 2);
        let principal = granted(r#"{"result":"allow"}"#);
        assert_eq!(
            (principal.is_superuser, principal.expires_in_ms, principal.permissions),
            (false, None, None)
        );
        assert!(matches!(said(204, ""), BackendOutcome::Allow(_)));
    }

    #[test]
    fn nothing_else_lets_anybody_in() {
        assert!(matches!(said(200, r#"{"result":"ignore"}"#), BackendOutcome::Ignore));
        assert!(matches!(said(404, r#"{"result":"allow"}"#), BackendOutcome::Ignore));
        for (status, body) in [
            (200, r#"{"result":"deny","is_superuser":true}"#),
            (200, r#"{"result":"allow","expire_at":1000}"#),
            (401, ""),
            (403, r#"{"result":"allow"}"#),
        ] {
            assert!(matches!(said(status, body), BackendOutcome::Deny(_)), "{status} {body}");
        }
        for (status, body) in [
            (200, ""),
            (200, "allow"),
            (200, r#"{"result":"Allow"}"#),
            (200, r#"{"result":true}"#),
            (200, r#"{"result":"allow","groups":"a"}"#),
            (200, r#"{"result":"allow","expire_at":"soon"}"#),
            (200, r#"{"result":"allow","ok":false}"#),
            (200, r#"{"ok":"true"}"#),
            (200, r#"{"result":"allow","acl":{"pub":["a"]}}"#),
            (200, r#"{"result":"allow","acl":[{"permission":"allow","topic":"a"}]}"#),
            (
                200,
                r#"{"result":"allow","acl":[{"permission":"deny","action":"all","topic":"a",
                    "ip_address":"::1"}]}"#,
            ),
            (301, r#"{"result":"allow"}"#),
            (429, r#"{"result":"allow"}"#),
            (500, r#"{"result":"allow"}"#),
        ] {
            assert!(matches!(said(status, body), BackendOutcome::Fail(_)), "{status} {body}");
        }
        let html = HttpResponse {
            status: 200,
            body: b"{\"result\":\"allow\"}"[..].into(),
            ..HttpResponse::default()
        };
        assert!(matches!(
            read_outcome(&html, HttpAnswerFormat::Json, &claim(), true, 0),
            BackendOutcome::Fail(_)
        ));
        let rules = HttpResponse {
            status: 200,
            is_json: true,
            body: br#"{"result":"allow","acl":[]}"#[..].into(),
            ..HttpResponse::default()
        };
        assert!(matches!(
            read_outcome(&rules, HttpAnswerFormat::Json, &claim(), false, 0),
            BackendOutcome::Fail(_)
        ));
    }
}
