//! Answers, tokens and tables of other projects as data: each row is a form from another project's
//! documents with its meaning here, tried with every kind of client, with anonymous clients allowed
//! and refused.

use super::super::password_format::{PasswordFormat, PasswordHashKind, SaltPosition};
use super::*;

/// Returns the lines of a table as fields separated by tabs.
pub(super) fn rows(text: &'static str) -> impl Iterator<Item = Vec<&'static str>> {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| line.split('\t').collect())
}

/// Returns a stored hash of the password "secret".
pub(super) fn hash() -> &'static str {
    include_str!("../vectors/mosquitto_7.txt").trim().trim_start_matches("ann:")
}

/// `tagged`, `sha256 prefix`, `pbkdf2_sha512 1000`
pub(super) fn password_form(text: &str) -> PasswordFormat {
    let (kind, more) = text.split_once(' ').unwrap_or((text, ""));
    let kind = match kind {
        "pbkdf2_sha256" => PasswordHashKind::Pbkdf2Sha256,
        "pbkdf2_sha512" => PasswordHashKind::Pbkdf2Sha512,
        "sha256" => PasswordHashKind::Sha256,
        "sha512" => PasswordHashKind::Sha512,
        "tagged" => PasswordHashKind::Tagged,
        other => panic!("no such form: {other}"),
    };
    let salt = match more {
        "none" => SaltPosition::None,
        "suffix" => SaltPosition::Suffix,
        _ => SaltPosition::Prefix,
    };
    PasswordFormat { hash_kind: kind, salt, rounds: more.parse().unwrap_or(1) }
}

/// Converts `allow:publish:a/#:qos=0,1 deny:all:*` to the text of an ACL file; `*` is every topic.
fn rules_file(text: &str) -> String {
    let one = |rule: &str| {
        let parts: Vec<&str> = rule.split(':').collect();
        let [permission, action, topic, conditions @ ..] = &parts[..] else {
            panic!("no rule: {rule}")
        };
        let mut out = format!("[[rule]]\n{permission} = \"{action}\"\n");
        if *topic != "*" {
            out.push_str(&format!("topic = \"{topic}\"\n"));
        }
        for condition in conditions {
            match condition.split_once('=') {
                Some(("qos", all)) => out.push_str(&format!("qos = [{all}]\n")),
                Some((name, value)) => out.push_str(&format!("{name} = {value}\n")),
                None => panic!("no condition: {condition}"),
            }
        }
        out
    };
    text.split(' ').filter(|rule| !rule.is_empty() && *rule != "nothing").map(one).collect()
}

/// Checks that a principal's rules equal those of the text.
pub(super) fn has_rules(principal: &broker::peer::authentication::Principal, text: &str) {
    are_the_rules_of(&rules_file(text), principal.permissions.clone());
}

/// Compares a decision with the expected result in the tables. `is_named` is true if the client
/// sends more than a client id or a certificate.
pub(super) fn is_as_told(
    verdict: AuthDecision,
    answer: &str,
    is_named: bool,
    anonymous: bool,
) -> Result<(), String> {
    let came = match &verdict {
        AuthDecision::Allow(principal) if principal.is_superuser => "superuser".to_string(),
        AuthDecision::Allow(_) => "allow".to_string(),
        AuthDecision::Challenge { .. } => "a challenge".to_string(),
        AuthDecision::Deny(refusal) => format!("{refusal:?}"),
    };
    let wanted = match answer {
        "allow" | "superuser" => answer.to_string(),
        "none" => format!("{:?}", Refusal::NoVerdict),
        "ignore" if !is_named && anonymous => "allow".to_string(),
        "ignore" if !is_named => format!("{:?}", Refusal::NotWelcome),
        "deny" | "ignore" | "unknown" | "wrong" => format!("{:?}", Refusal::BadCredentials),
        other => panic!("no such answer: {other}"),
    };
    if came == wanted { Ok(()) } else { Err(format!("{came}, not {wanted}")) }
}

/// Returns an authenticator with one backend.
pub(super) fn authenticator_with(
    backend: &Arc<dyn AuthBackend>,
    anonymous: bool,
) -> Arc<Authenticator> {
    Authenticator::new(BackendChain { anonymous, ..chain(std::slice::from_ref(backend)) }, LIMITS)
}

pub(super) fn verdict(authenticator: &Arc<Authenticator>, request: &AuthRequest) -> AuthDecision {
    ask(authenticator, request).recv_timeout(SOON).expect("an answer")
}

#[cfg(feature = "http")]
mod answers {
    use super::super::http::{BOUNDS, backend, settings};
    use super::super::web::{TestWebServer, WebResponse};
    use super::*;
    use crate::http::HttpAuthSettings;
    use crate::remote::http_call::{HttpAnswerFormat, HttpParamPlacement};

    #[test]
    fn an_answer_by_http_means_what_it_means_to_others() {
        let mut wrongs = Vec::new();
        for row in rows(include_str!("forms/http.tsv")) {
            let [whose, form, status, kind, body, answer] = row[..] else { panic!("{row:?}") };
            let said = WebResponse::Custom(status.parse().unwrap(), kind, body);
            let web = TestWebServer::start(0, None, move |_| said.clone());
            let answer_form = match form {
                "json" => HttpAnswerFormat::Json,
                "emqx" => HttpAnswerFormat::Emqx,
                "status" => HttpAnswerFormat::Status,
                "text" => HttpAnswerFormat::Text,
                other => panic!("no such form: {other}"),
            };
            let settings = HttpAuthSettings {
                answer: answer_form,
                ..settings(&web, HttpParamPlacement::Json)
            };
            let backend = backend(&settings, BOUNDS);
            for anonymous in [false, true] {
                let authenticator = authenticator_with(&backend, anonymous);
                for (request, is_named) in [
                    (claim(Some("ann"), Some(b"right")), true),
                    (claim(None, None), false),
                    (certified("ann"), false),
                ] {
                    let verdict = verdict(&authenticator, &request);
                    let is = is_as_told(verdict, answer, is_named, anonymous);
                    wrongs.extend(is.err().map(|why| {
                        format!("{whose}, {form}: {status} {kind} {body:?}, {request:?}: {why}")
                    }));
                }
            }
        }
        assert!(wrongs.is_empty(), "{}", wrongs.join("\n"));
    }
}

#[test]
fn a_token_means_what_it_means_to_others() {
    for row in rows(include_str!("forms/tokens.tsv")) {
        let [whose, header, claims, answer, rest @ ..] = &row[..] else { panic!("{row:?}") };
        let more = if claims.is_empty() { String::new() } else { format!(",{claims}") };
        let body = format!(r#"{{"sub":"ann","device":"d1","iss":"us","aud":"mqtt"{more}}}"#);
        let token = test_tokens::signed(header, &body);
        let judged = test_tokens::validate_token(&jwt::ParsedJwt::parse(&token).expect("a token"));
        match (judged, *answer) {
            (Ok(principal), "allow") => match rest.first() {
                Some(rules) => has_rules(&principal, rules),
                None => assert_eq!(principal.permissions, None, "{whose}: {claims}"),
            },
            (Err(why), answer) if why.contains(answer) => {}
            (other, answer) => panic!("{whose}: {header} {claims}: {other:?}, not {answer}"),
        }
    }
}

#[test]
fn a_token_needs_no_name_beside_it_and_nothing_is_as_good() {
    let body =
        |exp: &str| format!(r#"{{"sub":"ann","device":"d","iss":"us","aud":"mqtt","exp":{exp}}}"#);
    let token = |exp: &str| test_tokens::signed(r#"{"alg":"HS256"}"#, &body(exp));
    let tokens: Arc<dyn AuthBackend> = Arc::new(jwt::tests::tokens());
    for anonymous in [false, true] {
        let authenticator = authenticator_with(&tokens, anonymous);
        for name in [None, Some(""), Some("ann"), Some("somebody else")] {
            for (exp, answer) in
                [("32503680000", "allow"), ("\"32503680000\"", "allow"), ("1000", "deny")]
            {
                let request = claim(name, Some(token(exp).as_bytes()));
                let verdict = verdict(&authenticator, &request);
                is_as_told(verdict, answer, true, anonymous).unwrap();
            }
            let verdict = verdict(&authenticator, &claim(name, Some(b"no token")));
            is_as_told(verdict, "unknown", true, anonymous).unwrap();
        }
        for request in [claim(None, None), certified("ann")] {
            is_as_told(verdict(&authenticator, &request), "ignore", false, anonymous).unwrap();
        }
    }
}
