//! The contract for tokens whose keys another server publishes, and what becomes of the keys.

use super::super::base64::Alphabet;
use super::super::jwks::Jwks;
use super::super::jwt::{Claims, Place, Reading, Source, Tokens};
use super::super::remote::http::SCHEMES;
use super::super::remote::url::Url;
use super::http::BOUNDS;
use super::web::{Said, Web};
use super::*;
use crate::runtime::Runtime;

const SECRETS: [&[u8]; 2] = [forge::SECRET, b"another secret of thirty-two bytes"];

fn set(names: &[&str]) -> String {
    let key = |name: &&str| {
        let secret = Alphabet::Url.encode(SECRETS[usize::from(*name == "new")]);
        format!(r#"{{"kty":"oct","kid":"{name}","k":"{secret}"}}"#)
    };
    format!(r#"{{"keys":[{}]}}"#, names.iter().map(key).collect::<Vec<_>>().join(","))
}

fn backend(url: &str, before: &[Arc<Jwks>]) -> (Arc<Jwks>, Arc<dyn Backend>) {
    let url = Url::parse(url, SCHEMES).unwrap();
    let runtime = Arc::new(Runtime::default());
    let set = Jwks::new(&url, None, 3600, BOUNDS, runtime, before);
    let claims = Claims { user: "sub".into(), ..Claims::default() };
    let reading = Reading { place: Place::Password, claims }.into();
    (set.clone(), Arc::new(Tokens { keys: Source::Url(set), reading }))
}

fn token(user: &str, key: &str) -> Claim {
    let header = format!(r#"{{"alg":"HS256","kid":"{key}"}}"#);
    let body = format!(r#"{{"sub":"{user}"}}"#);
    let text = match key {
        "new" => forge::signed_by(SECRETS[1], &header, &body),
        _ => forge::signed(&header, &body),
    };
    claim(None, Some(text.as_bytes()))
}

#[test]
fn tokens_whose_keys_are_published_stand_the_contract() {
    let web = Web::start(0, None, |_| Said::Json(200, set(&["old"])));
    stands(&Subject {
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
    let web = Web::start(0, None, move |_| Said::Json(200, set(&published.lock().unwrap())));
    let (set, backend) = backend(&web.url(), &[]);
    let porter = porter(&[backend]);
    assert_eq!(answer(&porter, &token("ann", "old")), Ok("ann".into()));
    assert_eq!(web.asked().len(), 1, "fetched at the start, and waited for");
    keys.lock().unwrap().push("new");
    // It was looked for a moment ago: names of keys are invented easily.
    for _ in 0..10 {
        assert_eq!(answer(&porter, &token("ann", "new")), Err(Refusal::BadCredentials));
    }
    assert_eq!(web.asked().len(), 0);
    set.let_time_pass();
    assert_eq!(answer(&porter, &token("ann", "new")), Ok("ann".into()));
    assert_eq!(answer(&porter, &token("ann", "none")), Err(Refusal::BadCredentials));
    assert_eq!(web.asked().len(), 1);
}

#[test]
fn keys_stay_when_no_others_can_be_had() {
    let web = Web::start(0, None, |_| Said::Json(200, set(&["old"])));
    let (url, port) = (web.url(), web.port);
    let (set, first) = backend(&url, &[]);
    let porter = porter(&[first]);
    assert_eq!(answer(&porter, &token("ann", "old")), Ok("ann".into()));
    drop(web);
    set.let_time_pass();
    assert_eq!(answer(&porter, &token("ann", "new")), Err(Refusal::BadCredentials));
    assert_eq!(answer(&porter, &token("ann", "old")), Ok("ann".into()));
    // Nor does a reload lose them.
    porter.change(chain(&[backend(&url, std::slice::from_ref(&set)).1]), LIMITS);
    assert_eq!(answer(&porter, &token("ann", "old")), Ok("ann".into()));
    // What says that there is nothing is no secret.
    let page = Web::start(port, None, |_| Said::Html(200, "a page of more than thirty-two bytes"));
    set.let_time_pass();
    assert_eq!(answer(&porter, &token("ann", "old")), Ok("ann".into()));
    let header = r#"{"alg":"HS256","kid":"page"}"#;
    let forged = b"a page of more than thirty-two bytes";
    let forged = forge::signed_by(forged, header, r#"{"sub":"ann"}"#);
    let refused = answer(&porter, &claim(None, Some(forged.as_bytes())));
    assert_eq!(refused, Err(Refusal::BadCredentials));
    drop(page);
}

#[test]
fn a_start_without_keys_lets_nobody_in_until_they_are_there() {
    let web = Web::start(0, None, |_| Said::Json(404, String::new()));
    let (url, port) = (web.url(), web.port);
    let (set, backend) = backend(&url, &[]);
    let porter = porter(&[backend]);
    assert_eq!(answer(&porter, &token("ann", "old")), Err(Refusal::NoVerdict));
    assert_eq!(answer(&porter, &claim(Some("ann"), Some(b"x"))), Err(Refusal::BadCredentials));
    drop(web);
    let web = Web::start(port, None, |_| Said::Json(200, self::set(&["old"])));
    set.let_time_pass();
    assert_eq!(answer_at_last(&porter, &token("ann", "old")), Ok("ann".into()));
    drop(web);
}
