//! The contract for an HTTP server, and its own tests: requests, answers, timeouts and lost
//! servers.

use super::super::http::{HttpAuthServer, HttpAuthSettings};
use super::super::remote::RemoteBackend;
use super::super::remote::http_call::{HttpCallSettings, HttpParamPlacement};
use super::super::remote::template::AuthTemplate;
use super::web::{TestWebServer, WebRequest, WebResponse};
use super::*;
use net::control_runtime::ControlRuntime;
use net::http_client::SCHEMES;
use net::server_pool::RemoteLimits;
use net::server_url::ServerUrl;
use transport::TlsClientOptions;

pub(super) const BOUNDS: RemoteLimits =
    RemoteLimits { timeout_ms: 5_000, connections_max: 2, questions_max: 100 };

pub(super) fn settings(web: &TestWebServer, form: HttpParamPlacement) -> HttpAuthSettings {
    let template = |text: &str| AuthTemplate::parse(text, true).unwrap();
    let url = ServerUrl::parse(&format!("{}/auth?from=%a", web.url()), SCHEMES).unwrap();
    let target = template(&url.path);
    let params = [("clientid", "%c"), ("username", "${username}"), ("password", "%P")];
    let call = HttpCallSettings {
        url: Some((url, target)),
        form,
        params: params.map(|(name, text)| (name.to_string(), template(text))).into(),
        headers: vec![("x-key".into(), SecretBytes(b"an api's key".as_slice().into()))],
    };
    HttpAuthSettings { call, takes_rules: true, ..HttpAuthSettings::default() }
}

pub(super) fn backend(settings: &HttpAuthSettings, bounds: RemoteLimits) -> Arc<dyn AuthBackend> {
    let http = HttpAuthServer::new(settings, None, &[Some(1883)]).unwrap();
    Arc::new(RemoteBackend::new(http, bounds, Arc::new(ControlRuntime::default())))
}

/// Knows ann, with the password "right".
fn judge(asked: &WebRequest) -> WebResponse {
    let said: serde_json::Value = serde_json::from_str(&asked.body).unwrap();
    let text = |name: &str| said[name].as_str().unwrap_or_default().to_string();
    let result = match (text("username").as_str(), text("password").as_str()) {
        ("ann", "right") => "allow",
        ("ann", _) => "deny",
        _ => "ignore",
    };
    WebResponse::Json(200, format!(r#"{{"result":"{result}"}}"#))
}

fn subject(backend: Arc<dyn AuthBackend>) -> ContractSubject {
    ContractSubject {
        backend,
        right: claim(Some("ann"), Some(b"right")),
        wrong: claim(Some("ann"), Some(b"wrong")),
        stranger: claim(Some("bob"), Some(b"right")),
        user: "ann",
    }
}

#[test]
fn a_server_that_is_asked_by_http_stands_the_contract() {
    let web = TestWebServer::start(0, None, judge);
    stands(&subject(backend(&settings(&web, HttpParamPlacement::Json), BOUNDS)));
    let settings = HttpAuthSettings { cache_s: 60, ..settings(&web, HttpParamPlacement::Json) };
    stands(&subject(backend(&settings, BOUNDS)));
}

#[test]
fn each_way_to_ask_says_the_same() {
    let web =
        TestWebServer::start(0, None, |_| WebResponse::Json(200, r#"{"result":"allow"}"#.into()));
    let strange = claim(Some("a&b=c\"'%41\r\nX: y"), Some(b"p\0{}"));
    let encoded = "clientid=id&username=a%26b%3Dc%22%27%2541%0D%0AX%3A%20y&password=p%00%7B%7D";
    for (form, line, body) in [
        (
            HttpParamPlacement::Query,
            format!("GET /auth?from=192.0.2.1&{encoded} HTTP/1.1"),
            String::new(),
        ),
        (
            HttpParamPlacement::Encoded,
            "POST /auth?from=192.0.2.1 HTTP/1.1".into(),
            encoded.to_string(),
        ),
        (
            HttpParamPlacement::Json,
            "POST /auth?from=192.0.2.1 HTTP/1.1".into(),
            r#"{"clientid":"id","password":"p\u0000{}","username":"a&b=c\"'%41\r\nX: y"}"#.into(),
        ),
    ] {
        let authenticator = authenticator_for(&[backend(&settings(&web, form), BOUNDS)]);
        assert!(answer(&authenticator, &strange).is_ok());
        let [asked] = &web.asked()[..] else { panic!("one question") };
        assert_eq!((asked.line.as_str(), asked.body.as_str()), (line.as_str(), body.as_str()));
        assert!(asked.headers.contains(&"x-key: an api's key".to_string()), "{asked:?}");
        let host = format!("host: localhost:{}", web.port);
        assert!(asked.headers.contains(&host), "{asked:?}");
        assert!(!asked.headers.iter().any(|header| header.starts_with("X: y")), "{asked:?}");
    }
}

#[test]
fn no_name_leads_out_of_the_path() {
    let web =
        TestWebServer::start(0, None, |_| WebResponse::Json(200, r#"{"result":"allow"}"#.into()));
    let mut settings = settings(&web, HttpParamPlacement::Json);
    let (url, _) = settings.call.url.take().unwrap();
    settings.call.url = Some((url, AuthTemplate::parse("/users/%u/%c?way=%u", true).unwrap()));
    let authenticator = authenticator_for(&[backend(&settings, BOUNDS)]);
    for name in ["..", ".", "../..", "x/../y", "..\\x"] {
        assert!(answer(&authenticator, &claim(Some(name), Some(b"x"))).is_err(), "{name}");
    }
    assert!(web.asked().is_empty());
    for name in ["...", "a..", "%2e%2e", "a/b"] {
        assert!(answer(&authenticator, &claim(Some(name), Some(b"x"))).is_ok(), "{name}");
    }
    let asked = web.asked();
    assert!(asked.iter().all(|one| one.line.starts_with("POST /users/")), "{asked:?}");
    assert!(asked[2].line.contains("/users/%252e%252e/id"), "{:?}", asked[2]);
    assert!(asked[3].line.contains("/users/a%2Fb/id?way=a%2Fb"), "{:?}", asked[3]);
}

/// A server that receives only the client identifier does not confirm the user name.
#[test]
fn a_name_that_the_server_was_not_asked_about_is_nobodys() {
    let web =
        TestWebServer::start(0, None, |_| WebResponse::Json(200, r#"{"result":"allow"}"#.into()));
    let asked = settings(&web, HttpParamPlacement::Json);
    let mut by_id = settings(&web, HttpParamPlacement::Json);
    by_id.call.params.retain(|(name, _)| name == "clientid");
    for (settings, user) in [(asked, "ann"), (by_id, "")] {
        for cache_s in [0, 60] {
            let settings = HttpAuthSettings { cache_s, ..settings.clone() };
            let authenticator = authenticator_for(&[backend(&settings, BOUNDS)]);
            for _ in 0..2 {
                assert_eq!(
                    answer(&authenticator, &claim(Some("ann"), Some(b"x"))),
                    Ok(user.into())
                );
            }
        }
    }
}

#[test]
fn an_answer_is_good_for_its_own_question_and_for_its_time() {
    let web = TestWebServer::start(0, None, judge);
    let settings = HttpAuthSettings { cache_s: 60, ..settings(&web, HttpParamPlacement::Json) };
    let subject = subject(backend(&settings, BOUNDS));
    let first = authenticator_for(std::slice::from_ref(&subject.backend));
    for _ in 0..3 {
        assert_eq!(answer(&first, &subject.right), Ok("ann".into()));
        assert_eq!(answer(&first, &subject.wrong), Err(Refusal::BadCredentials));
        assert_eq!(answer(&first, &subject.stranger), Err(Refusal::BadCredentials));
    }
    assert_eq!(web.asked().len(), 3);
    // Without a cache each is asked.
    let settings = HttpAuthSettings { cache_s: 0, ..settings };
    let second = authenticator_for(&[backend(&settings, BOUNDS)]);
    for _ in 0..3 {
        assert_eq!(answer(&second, &subject.right), Ok("ann".into()));
    }
    assert_eq!(web.asked().len(), 3);
    // Trouble is no answer.
    let busy = TestWebServer::start(0, None, |_| WebResponse::Json(503, String::new()));
    let settings =
        HttpAuthSettings { cache_s: 60, ..self::settings(&busy, HttpParamPlacement::Json) };
    let third = authenticator_for(&[backend(&settings, BOUNDS)]);
    for _ in 0..3 {
        assert_eq!(answer(&third, &subject.right), Err(Refusal::NoVerdict));
    }
    assert_eq!(busy.asked().len(), 3);
}

#[test]
fn what_the_answer_grants_is_granted() {
    let web = TestWebServer::start(0, None, |_| {
        let rules = r#"[{"permission":"allow","action":"publish","topic":"a/${clientid}",
            "qos":1,"retain":false},{"permission":"deny","action":"all","topic":"b/#"}]"#;
        let more = r#""is_superuser":true,"groups":["x"],"expire_at":4e9"#;
        let body = format!(r#"{{"result":"allow",{more},"acl":{rules}}}"#);
        WebResponse::Json(200, body)
    });
    let settings = HttpAuthSettings { cache_s: 60, ..settings(&web, HttpParamPlacement::Json) };
    let authenticator = authenticator_for(&[backend(&settings, BOUNDS)]);
    for _ in 0..2 {
        let verdict =
            ask(&authenticator, &claim(Some("ann"), Some(b"x"))).recv_timeout(SOON).unwrap();
        let AuthDecision::Allow(principal) = verdict else { panic!("{verdict:?}") };
        assert!(principal.is_superuser && principal.expires_in_ms.is_some());
        assert_eq!(principal.groups.len(), 1);
        are_the_rules_of(RULES, principal.permissions);
    }
    assert_eq!(web.asked().len(), 1);
}

#[test]
fn silence_is_waited_for_only_so_long_and_by_only_so_many() {
    let web = TestWebServer::start(0, None, |asked| match asked.body.contains("quick") {
        true => WebResponse::Json(200, r#"{"result":"allow"}"#.into()),
        false => WebResponse::Silence,
    });
    let bounds = RemoteLimits { timeout_ms: 300, connections_max: 1, questions_max: 3 };
    let authenticator =
        authenticator_for(&[backend(&settings(&web, HttpParamPlacement::Json), bounds)]);
    let all: Vec<_> =
        (0..10).map(|_| ask(&authenticator, &claim(Some("slow"), Some(b"x")))).collect();
    let all: Vec<_> =
        all.iter().map(|one| user_of(one.recv_timeout(SOON).unwrap()).unwrap_err()).collect();
    let with = |refusal| all.iter().filter(|one| **one == refusal).count();
    assert_eq!((with(Refusal::NoVerdict), with(Refusal::TooBusy)), (3, 7), "{all:?}");
    // A request that timed out must not hold a slot.
    assert_eq!(answer(&authenticator, &claim(Some("quick"), Some(b"x"))), Ok("quick".into()));
}

#[test]
fn a_server_is_not_asked_about_clients_that_have_gone() {
    let (goes_on, waits) = std::sync::mpsc::channel::<()>();
    let waits = std::sync::Mutex::new(waits);
    let web = TestWebServer::start(0, None, move |asked| {
        // The first request is answered after the other requests have arrived.
        let _ = waits.lock().expect("one connection").recv_timeout(SOON);
        judge(asked)
    });
    let bounds = RemoteLimits { timeout_ms: 60_000, connections_max: 1, questions_max: 100 };
    let subject = subject(backend(&settings(&web, HttpParamPlacement::Json), bounds));
    let authenticator = authenticator_for(std::slice::from_ref(&subject.backend));
    let all: Vec<_> = (0..30)
        .map(|_| {
            let liveness = ConnectionLiveness::default();
            (ask_while(&authenticator, &subject.right, &liveness), liveness)
        })
        .collect();
    // Clients that are refused at once pass the queue: all earlier clients were sent to the
    // backend.
    let (here, gone) = all.split_at(5);
    gone.iter().for_each(|(_, liveness)| liveness.close());
    drop(goes_on);
    for (answer, _) in here {
        assert_eq!(user_of(answer.recv_timeout(SOON).unwrap()), Ok("ann".into()));
    }
    // One of the closed connections may have been sent before it closed.
    let answered = gone.iter().filter(|(answer, _)| answer.recv_timeout(SOON).is_ok()).count();
    assert!(answered <= 1, "{answered}");
    let asked = web.asked().len();
    assert!((5..=6).contains(&asked), "{asked}");
}

#[test]
fn a_server_that_was_gone_is_asked_again() {
    let web = TestWebServer::start(0, None, judge);
    let subject = subject(backend(&settings(&web, HttpParamPlacement::Json), BOUNDS));
    let authenticator = authenticator_for(std::slice::from_ref(&subject.backend));
    assert_eq!(answer(&authenticator, &subject.right), Ok("ann".into()));
    // A server that closes idle connections causes no failure.
    web.drop_connections();
    assert_eq!(answer(&authenticator, &subject.right), Ok("ann".into()));
    let port = web.port;
    drop(web);
    assert_eq!(answer(&authenticator, &subject.right), Err(Refusal::NoVerdict));
    assert_eq!(answer(&authenticator, &subject.stranger), Err(Refusal::NoVerdict));
    let web = TestWebServer::start(port, None, judge);
    assert_eq!(answer_at_last(&authenticator, &subject.right), Ok("ann".into()));
    assert_eq!(answer(&authenticator, &subject.wrong), Err(Refusal::BadCredentials));
    drop(web);
    // A server that closes after every answer is asked over a new connection each time.
    let curt = TestWebServer::start(port, None, |_| {
        WebResponse::JsonAndClose(r#"{"result":"allow"}"#.into())
    });
    assert_eq!(answer_at_last(&authenticator, &subject.right), Ok("ann".into()));
    for _ in 0..20 {
        assert_eq!(answer(&authenticator, &subject.right), Ok("ann".into()));
    }
    drop(curt);
}

#[test]
fn over_tls_only_the_server_that_we_trust_is_asked() {
    let folder = certificates("contract-http");
    let tls = served(&folder);
    let web = TestWebServer::start(0, Some(tls), judge);
    let settings = settings(&web, HttpParamPlacement::Json);
    let with = |authority: &str| -> Arc<dyn AuthBackend> {
        let file = folder.join(authority).display().to_string();
        let trust = TlsClientOptions { authorities: Some(file), ..TlsClientOptions::default() }
            .client_config()
            .unwrap();
        let http = HttpAuthServer::new(&settings, Some(trust), &[]).unwrap();
        Arc::new(RemoteBackend::new(http, BOUNDS, Arc::new(ControlRuntime::default())))
    };
    stands(&subject(with("ca.pem")));
    web.asked();
    let right = claim(Some("ann"), Some(b"right"));
    assert_eq!(
        answer(&authenticator_for(&[with("stranger-ca.pem")]), &right),
        Err(Refusal::NoVerdict)
    );
    // No request is sent in plain text to a server that should use TLS.
    assert!(web.asked().is_empty());
    let _ = std::fs::remove_dir_all(folder);
}
