//! What an HTTP server says of a client, as EMQX's HTTP authentication has it:
//! `{"result": "allow", "is_superuser": false, "acl": [...], "expire_at": 1893456000}`.

use super::backend::Outcome;
use super::remote::http::Answer;
use crate::acl::entry::Entry;
use broker::Claim;
use broker::judge::Grant;
use broker::permissions::Permissions;
use serde_json::Value;
use std::sync::Arc;

/// More of them is a mistake, and memory for each session.
const RULES_MAX: usize = 10_000;

/// `takes_rules` says whether the answer may bring any; `now` is in seconds.
pub(super) fn read(answer: &Answer, claim: &Claim, takes_rules: bool, now: u64) -> Outcome {
    match answer.status {
        200 if answer.is_json => match serde_json::from_slice(&answer.body) {
            Ok(body) => judge(&body, claim, takes_rules, now)
                .unwrap_or_else(|why| Outcome::Fail(format!("its answer cannot be read: {why}"))),
            Err(_) => Outcome::Fail("its answer is no JSON".into()),
        },
        200 => Outcome::Fail("its answer is not said to be JSON".into()),
        204 => Outcome::Allow(Box::new(grant(claim))),
        401 | 403 => Outcome::Deny("the server says so"),
        status => Outcome::Fail(format!("it answered with status {status}")),
    }
}

fn judge(
    body: &Value,
    claim: &Claim,
    takes_rules: bool,
    now: u64,
) -> Result<Outcome, &'static str> {
    match body.get("result").and_then(Value::as_str) {
        Some("allow") => {}
        Some("deny") => return Ok(Outcome::Deny("the server says so")),
        Some("ignore") => return Ok(Outcome::Ignore),
        _ => return Err("its result is not allow, deny or ignore"),
    }
    let mut grant = grant(claim);
    grant.is_superuser = match body.get("is_superuser") {
        None | Some(Value::Null) => false,
        Some(Value::Bool(yes)) => *yes,
        Some(_) => return Err("is_superuser is not true or false"),
    };
    if let Some(groups) = body.get("groups") {
        let text = |group: &Value| group.as_str().map(Arc::from);
        let groups = groups.as_array().and_then(|all| all.iter().map(text).collect());
        grant.groups = groups.ok_or("groups is no list of names")?;
    }
    match body.get("expire_at") {
        None | Some(Value::Null) => {}
        Some(at) => match at.as_f64() {
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
        read(&Answer { status, is_json: true, body, ..Answer::default() }, &claim(), true, 1000)
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
            (200, r#"{"result":"allow","is_superuser":"true"}"#),
            (200, r#"{"result":"allow","groups":"a"}"#),
            (200, r#"{"result":"allow","expire_at":"2030"}"#),
            (200, r#"{"result":"allow","acl":{"pub":["a"]}}"#),
            (200, r#"{"result":"allow","acl":[{"permission":"allow","topic":"a"}]}"#),
            (
                200,
                r#"{"result":"allow","acl":[{"permission":"deny","action":"all","topic":"a",
                    "ip_address":"::1"}]}"#,
            ),
            (301, r#"{"result":"allow"}"#),
            (404, r#"{"result":"allow"}"#),
            (500, r#"{"result":"allow"}"#),
        ] {
            assert!(matches!(said(status, body), Outcome::Fail(_)), "{status} {body}");
        }
        let html =
            Answer { status: 200, body: b"{\"result\":\"allow\"}"[..].into(), ..Answer::default() };
        assert!(matches!(read(&html, &claim(), true, 0), Outcome::Fail(_)));
        let rules = Answer {
            status: 200,
            is_json: true,
            body: br#"{"result":"allow","acl":[]}"#[..].into(),
            ..Answer::default()
        };
        assert!(matches!(read(&rules, &claim(), false, 0), Outcome::Fail(_)));
    }
}
