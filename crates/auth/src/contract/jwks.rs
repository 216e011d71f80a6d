//! The contract for tokens with keys from another server, and the life of these keys.

use super::super::jwks::RemoteJwks;
use super::super::jwt::{JwtBackend, JwtClaimNames, JwtKeySource, JwtValidator, TokenLocation};
use super::http::BOUNDS;
use super::web::{TestWebServer, WebResponse};
use super::*;
use net::base64::Base64Variant;
use net::control_runtime::ControlRuntime;
use net::http_client::SCHEMES;
use net::server_url::ServerUrl;

const SECRETS: [&[u8]; 2] = [test_tokens::SECRET, b"another secret of thirty-two bytes"];

fn set(names: &[&str]) -> String {
    let key = |name: &&str| {
        let secret = Base64Variant::Url.encode(SECRETS[usize::from(*name == "new")]);
        format!(r#"{{"kty":"oct","kid":"{name}","k":"{secret}"}}"#)
    };
    format!(r#"{{"keys":[{}]}}"#, names.iter().map(key).collect::<Vec<_>>().join(","))
}

fn backend(url: &str, before: &[Arc<RemoteJwks>]) -> (Arc<RemoteJwks>, Arc<dyn AuthBackend>) {
    let url = ServerUrl::parse(url, SCHEMES).unwrap();
    let runtime = Arc::new(ControlRuntime::default());
    let set = RemoteJwks::new(&url, None, 3600, BOUNDS, runtime, before);
    let claims = JwtClaimNames { user: "sub".into(), ..JwtClaimNames::default() };
    let reading = JwtValidator { place: TokenLocation::Password, claims }.into();
    (set.clone(), Arc::new(JwtBackend { keys: JwtKeySource::Url(set), reading }))
}

fn token(user: &str, key: &str) -> AuthRequest {
    let header = format!(r#"{{"alg":"HS256","kid":"{key}"}}"#);
    let body = format!(r#"{{"sub":"{user}"}}"#);
    let text = match key {
        "new" => test_tokens::signed_by(SECRETS[1], &header, &body),
        _ => test_tokens::signed(&header, &body),
    };
    claim(None, Some(text.as_bytes()))
}

#[test]
fn tokens_whose_keys_are_published_stand_the_contract() {
    let web = TestWebServer::start(0, None, |_| WebResponse::Json(200, set(&["old"])));
    stands(&ContractSubject {
        backend: backend(&web.url(), &[]).1,
        right: token("ann", "old"),
        wrong: token("ann", "new"),
        stranger: claim(Some("ann"), Some(b"right")),
        user: "ann",
    });
    let lines: Vec<String> = web.asked().into_iter().map(|asked| asked.line).collect();
    assert!(lines.iter().all(|line| line == "GET / HTTP/1.1"), "{lines:?}");
}

#[test]
fn a_key_that_is_not_here_is_looked_for_but_not_all_the_time() {
    let keys = Arc::new(Mutex::new(vec!["old"]));
    let published = keys.clone();
    let web = TestWebServer::start(0, None, move |_| {
        WebResponse::Json(200, set(&published.lock().unwrap()))
    });
    let (set, backend) = backend(&web.url(), &[]);
    let authenticator = authenticator_for(&[backend]);
    assert_eq!(answer(&authenticator, &token("ann", "old")), Ok("ann".into()));
    assert_eq!(web.asked().len(), 1, "fetched at the start, and waited for");
    keys.lock().unwrap().push("new");
    // The set was fetched a moment ago, and names of keys are easily invented.
    for _ in 0..10 {
        assert_eq!(answer(&authenticator, &token("ann", "new")), Err(Refusal::BadCredentials));
    }
    assert_eq!(web.asked().len(), 0);
    set.let_time_pass();
    assert_eq!(answer(&authenticator, &token("ann", "new")), Ok("ann".into()));
    assert_eq!(answer(&authenticator, &token("ann", "none")), Err(Refusal::BadCredentials));
    assert_eq!(web.asked().len(), 1);
}

#[test]
fn keys_stay_when_no_others_can_be_had() {
    let web = TestWebServer::start(0, None, |_| WebResponse::Json(200, set(&["old"])));
    let (url, port) = (web.url(), web.port);
    let (set, first) = backend(&url, &[]);
    let authenticator = authenticator_for(&[first]);
    assert_eq!(answer(&authenticator, &token("ann", "old")), Ok("ann".into()));
    drop(web);
    set.let_time_pass();
    assert_eq!(answer(&authenticator, &token("ann", "new")), Err(Refusal::BadCredentials));
    assert_eq!(answer(&authenticator, &token("ann", "old")), Ok("ann".into()));
    // A reload keeps the keys.
    authenticator.replace_backends(chain(&[backend(&url, std::slice::from_ref(&set)).1]), LIMITS);
    assert_eq!(answer(&authenticator, &token("ann", "old")), Ok("ann".into()));
    // An error page is not a secret.
    let page = TestWebServer::start(port, None, |_| {
        WebResponse::Html(200, "a page of more than thirty-two bytes")
    });
    set.let_time_pass();
    assert_eq!(answer(&authenticator, &token("ann", "old")), Ok("ann".into()));
    let header = r#"{"alg":"HS256","kid":"page"}"#;
    let forged = b"a page of more than thirty-two bytes";
    let forged = test_tokens::signed_by(forged, header, r#"{"sub":"ann"}"#);
    let refused = answer(&authenticator, &claim(None, Some(forged.as_bytes())));
    assert_eq!(refused, Err(Refusal::BadCredentials));
    drop(page);
}

#[test]
fn a_start_without_keys_lets_nobody_in_until_they_are_there() {
    let web = TestWebServer::start(0, None, |_| WebResponse::Json(404, String::new()));
    let (url, port) = (web.url(), web.port);
    let (set, backend) = backend(&url, &[]);
    let authenticator = authenticator_for(&[backend]);
    assert_eq!(answer(&authenticator, &token("ann", "old")), Err(Refusal::NoVerdict));
    assert_eq!(
        answer(&authenticator, &claim(Some("ann"), Some(b"x"))),
        Err(Refusal::BadCredentials)
    );
    drop(web);
    let web = TestWebServer::start(port, None, |_| WebResponse::Json(200, self::set(&["old"])));
    set.let_time_pass();
    assert_eq!(answer_at_last(&authenticator, &token("ann", "old")), Ok("ann".into()));
    drop(web);
}
