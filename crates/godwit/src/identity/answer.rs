//! What an HTTP server says of a client, in the forms that other brokers take it: as EMQX 5 has it,
//! `{"result": "allow", "is_superuser": false, "acl": [...], "expire_at": 1893456000}`; by its
//! status, as EMQX 4 and NanoMQ; as a word or `{"ok": true}`, as mosquitto-go-auth.

use super::backend::Outcome;
use super::remote::call::AnswerForm;
use super::remote::http::Answer;
use super::remote::url::decode;
use crate::acl::entry::Entry;
use broker::Claim;
use broker::judge::Grant;
use broker::permissions::Permissions;
use serde_json::Value;
use std::sync::Arc;

/// More of them is a mistake, and memory for each session.
const RULES_MAX: usize = 10_000;

/// What the status of an answer says, and a body that may be anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StatusAnswer {
    Allow,
    Deny,
    Ignore,
    /// An object that has a result: its words count.
    Says,
    /// The server cannot say.
    Trouble,
}

impl StatusAnswer {
    /// 200 is yes, every other status below 500 no. A body that says no is not passed over.
    pub(crate) fn of(answer: &Answer) -> StatusAnswer {
        match answer.status {
            200 => {}
            500.. => return StatusAnswer::Trouble,
            _ => return StatusAnswer::Deny,
        }
        let said = String::from_utf8_lossy(&answer.body).trim().to_lowercase();
        match said.as_str() {
            "ignore" => StatusAnswer::Ignore,
            "deny" | "false" => StatusAnswer::Deny,
            _ if said.starts_with('{') => match serde_json::from_slice::<Value>(&answer.body) {
                Ok(body) if body.get("result").is_some() && answer.is_json => StatusAnswer::Says,
                Ok(body) if says_no(&body) => StatusAnswer::Deny,
                _ => StatusAnswer::Allow,
            },
            _ => StatusAnswer::Allow,
        }
    }

    /// The word `ok` is yes.
    pub(crate) fn of_text(answer: &Answer) -> StatusAnswer {
        match answer.status {
            500.. => StatusAnswer::Trouble,
            200 if answer.body.trim_ascii() == b"ok" => StatusAnswer::Allow,
            _ => StatusAnswer::Deny,
        }
    }
}

/// An object that is sent as something else, or as mosquitto-go-auth has it.
fn says_no(body: &Value) -> bool {
    let is_no = |word: &Value| *word == Value::Bool(false) || word == "deny" || word == "false";
    ["result", "ok", "Ok"].iter().any(|name| body.get(name).is_some_and(is_no))
}

/// `takes_rules` says whether the answer may bring any; `now` is in seconds.
pub(super) fn read(
    answer: &Answer,
    form: AnswerForm,
    claim: &Claim,
    takes_rules: bool,
    now: u64,
) -> Outcome {
    let status = match form {
        AnswerForm::Json => StatusAnswer::Says,
        AnswerForm::Status => StatusAnswer::of(answer),
        AnswerForm::Text => StatusAnswer::of_text(answer),
    };
    match status {
        StatusAnswer::Allow => Outcome::Allow(Box::new(grant(claim))),
        StatusAnswer::Deny => Outcome::Deny(SAYS_SO),
        StatusAnswer::Ignore => Outcome::Ignore,
        StatusAnswer::Says => read_result(answer, claim, takes_rules, now),
        StatusAnswer::Trouble => Outcome::Fail(no_answer(answer.status)),
    }
}

fn read_result(answer: &Answer, claim: &Claim, takes_rules: bool, now: u64) -> Outcome {
    let body = match answer.status {
        200 if answer.is_json => match serde_json::from_slice(&answer.body) {
            Ok(body) => body,
            Err(_) => return Outcome::Fail("its answer is no JSON".into()),
        },
        200 if answer.is_form => match read_form(&answer.body) {
            Some(body) => body,
            None => return Outcome::Fail("its answer is no form".into()),
        },
        200 => {
            return Outcome::Fail(
                "its answer is not said to be JSON: auth.http_answer has other forms".into(),
            );
        }
        204 => return Outcome::Allow(Box::new(grant(claim))),
        401 | 403 => return Outcome::Deny(SAYS_SO),
        408 | 429 => return Outcome::Fail(no_answer(answer.status)),
        // As EMQX 5 has it: the server knows nothing of the client.
        400..500 => return Outcome::Ignore,
        status => return Outcome::Fail(no_answer(status)),
    };
    judge(&body, claim, takes_rules, now)
        .unwrap_or_else(|why| Outcome::Fail(format!("its answer cannot be read: {why}")))
}

const SAYS_SO: &str = "the server says so";

fn no_answer(status: u16) -> String {
    format!("it answered with status {status}")
}

/// `result=allow&is_superuser=true`
fn read_form(body: &[u8]) -> Option<Value> {
    let text = std::str::from_utf8(body).ok()?.trim();
    let field = |field: &str| {
        let (name, value) = field.split_once('=')?;
        let plain = |text: &str| decode(&text.replace('+', " "));
        Some((plain(name)?, Value::String(plain(value)?)))
    };
    text.split('&').map(field).collect::<Option<serde_json::Map<_, _>>>().map(Value::Object)
}

fn judge(
    body: &Value,
    claim: &Claim,
    takes_rules: bool,
    now: u64,
) -> Result<Outcome, &'static str> {
    let ok = body.get("ok").or_else(|| body.get("Ok"));
    match (body.get("result").map(Value::as_str), ok) {
        (Some(Some("allow")), None | Some(Value::Bool(true))) => {}
        (None, Some(Value::Bool(true))) => {}
        (Some(Some("deny")), _) | (None, Some(Value::Bool(false))) => {
            return Ok(Outcome::Deny(SAYS_SO));
        }
        (Some(Some("ignore")), None) => return Ok(Outcome::Ignore),
        _ => return Err("its result is not allow, deny or ignore"),
    }
    let mut grant = grant(claim);
    grant.is_superuser = body.get("is_superuser").is_some_and(is_true);
    if let Some(groups) = body.get("groups") {
        let text = |group: &Value| group.as_str().map(Arc::from);
        let groups = groups.as_array().and_then(|all| all.iter().map(text).collect());
        grant.groups = groups.ok_or("groups is no list of names")?;
    }
    match body.get("expire_at") {
        None | Some(Value::Null) => {}
        Some(at) => match seconds(at) {
            Some(at) if at > now as f64 => {
                grant.expires_in_ms = Some(((at - now as f64) * 1000.0) as u64);
            }
            Some(_) => return Ok(Outcome::Deny("the server's answer has expired")),
            None => return Err("expire_at is no time in seconds"),
        },
    }
    match body.get("acl") {
        None | Some(Value::Null) => {}
        Some(_) if !takes_rules => return Err("it has rules (acl), and auth.http_acl is false"),
        Some(rules) => grant.permissions = Some(Arc::new(read_rules(rules)?)),
    }
    Ok(Outcome::Allow(Box::new(grant)))
}

/// What EMQX takes for true; anything else is false.
fn is_true(value: &Value) -> bool {
    match value {
        Value::Bool(yes) => *yes,
        Value::Number(number) => number.as_u64().is_some_and(|number| number > 0),
        Value::String(word) => word == "true" || word == "1",
        _ => false,
    }
}

/// A number, or one in quotes.
fn seconds(value: &Value) -> Option<f64> {
    value.as_f64().or_else(|| value.as_str()?.parse::<u64>().ok().map(|seconds| seconds as f64))
}

/// It is who it says it is, since the server knows what it was told.
fn grant(claim: &Claim) -> Grant {
    Grant { user: claim.user_name.as_deref().map(Arc::from), ..Grant::default() }
}

fn read_rules(rules: &Value) -> Result<Permissions, &'static str> {
    let rules = rules.as_array().ok_or("acl is no list of rules")?;
    if rules.len() > RULES_MAX {
        return Err("acl has too many rules");
    }
    let mut all = Vec::new();
    for rule in rules {
        all.extend(Entry::from_json(rule, "")?.rules()?);
    }
    Ok(Permissions::new(all))
}

#[cfg(test)]
mod tests {
    use super::*;
    use broker::judge::Secret;
    use broker::{Address, ListenerId};

    fn claim() -> Claim {
        Claim {
            peer: Address::Network(([192, 0, 2, 1], 1).into()),
            version: mqtt::Version::V5,
            client_id: "id".into(),
            user_name: Some("ann".into()),
            password: Some(Secret(b"x".as_slice().into())),
            listener: ListenerId(0),
            step: None,
            certificate: None,
        }
    }

    fn said(status: u16, body: &str) -> Outcome {
        let body = body.to_string().into_bytes().into();
        let answer = Answer { status, is_json: true, body, ..Answer::default() };
        read(&answer, AnswerForm::Json, &claim(), true, 1000)
    }

    fn granted(body: &str) -> Grant {
        match said(200, body) {
            Outcome::Allow(grant) => *grant,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_answer_says_who_the_client_is_and_what_it_may_do() {
        let grant = granted(
            r#"{"result":"allow","is_superuser":true,"groups":["a","b"],"expire_at":1010.5,
                "client_attrs":{"x":"y"},"acl":[
                {"permission":"allow","action":"publish","topic":"a/${username}","qos":[0,1],
                 "retain":true},
                {"permission":"deny","action":"all","topics":["b","c/#"],"qos":"2"}]}"#,
        );
        assert_eq!(grant.user.as_deref(), Some("ann"));
        assert_eq!(grant.groups, ["a".into(), "b".into()]);
        assert_eq!((grant.is_superuser, grant.expires_in_ms), (true, Some(10_500)));
        assert_eq!(grant.permissions.unwrap().len(), 2);
        let grant = granted(r#"{"result":"allow"}"#);
        assert_eq!(
            (grant.is_superuser, grant.expires_in_ms, grant.permissions),
            (false, None, None)
        );
        assert!(matches!(said(204, ""), Outcome::Allow(_)));
    }

    #[test]
    fn nothing_else_lets_anybody_in() {
        assert!(matches!(said(200, r#"{"result":"ignore"}"#), Outcome::Ignore));
        assert!(matches!(said(404, r#"{"result":"allow"}"#), Outcome::Ignore));
        for (status, body) in [
            (200, r#"{"result":"deny","is_superuser":true}"#),
            (200, r#"{"result":"allow","expire_at":1000}"#),
            (401, ""),
            (403, r#"{"result":"allow"}"#),
        ] {
            assert!(matches!(said(status, body), Outcome::Deny(_)), "{status} {body}");
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
            assert!(matches!(said(status, body), Outcome::Fail(_)), "{status} {body}");
        }
        let html =
            Answer { status: 200, body: b"{\"result\":\"allow\"}"[..].into(), ..Answer::default() };
        assert!(matches!(read(&html, AnswerForm::Json, &claim(), true, 0), Outcome::Fail(_)));
        let rules = Answer {
            status: 200,
            is_json: true,
            body: br#"{"result":"allow","acl":[]}"#[..].into(),
            ..Answer::default()
        };
        assert!(matches!(read(&rules, AnswerForm::Json, &claim(), false, 0), Outcome::Fail(_)));
    }
}
