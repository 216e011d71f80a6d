//! The contract of authorization by HTTP: requests, answers, timeouts and lost servers.

use super::super::remote::http_call::{HttpCallSettings, HttpParamPlacement};
use super::super::remote::template::AuthTemplate;
use super::http::BOUNDS;
use super::web::{TestWebServer, WebRequest, WebResponse};
use super::*;
use crate::acl::authorizer::{Authorizer, HttpAuthzServer, HttpAuthzSettings};
use broker::access_rules::acl_rules::AclAction;
use broker::interface::authz::{AuthzDecision, AuthzRequest};
use net::control_runtime::ControlRuntime;
use net::http_client::SCHEMES;
use net::server_pool::RemoteLimits;
use net::server_url::ServerUrl;
use transport::TlsClientOptions;

fn settings(web: &TestWebServer, form: HttpParamPlacement) -> HttpAuthzSettings {
    let template = |text: &str| AuthTemplate::parse_wish(text).unwrap();
    let url = ServerUrl::parse(&format!("{}/acl?from=%a", web.url()), SCHEMES).unwrap();
    let target = template(&url.path);
    let params = [("a", "${action}"), ("q", "${qos}"), ("t", "%t"), ("u", "%u")];
    let call = HttpCallSettings {
        url: Some((url, target)),
        form,
        params: params.map(|(name, text)| (name.to_string(), template(text))).into(),
        headers: vec![("x-key".into(), SecretBytes(b"an api's key".as_slice().into()))],
    };
    HttpAuthzSettings { call, cache_s: 60, ..HttpAuthzSettings::default() }
}

/// An authorizer with its runtime.
#[derive(Default)]
struct AuthorizerFixture {
    authorizer: Authorizer,
    runtime: ControlRuntime,
}

fn authorizer_fixture(settings: &HttpAuthzSettings, bounds: RemoteLimits) -> AuthorizerFixture {
    let fixture = AuthorizerFixture::default();
    fixture.authorizer.replace_servers(HttpAuthzServer::connection_pool(
        settings,
        None,
        bounds,
        &[Some(1883)],
    ));
    fixture
}

fn question(topic: &str) -> AuthzRequest {
    AuthzRequest {
        client_id: "id".into(),
        namespace: "".into(),
        user: Some("ann".into()),
        address: Some([192, 0, 2, 1].into()),
        listener: ListenerId(0),
        common_name: None,
        action: AclAction::Publish,
        topic: topic.into(),
        qos: 1,
        retain: false,
    }
}

fn ask(fixture: &AuthorizerFixture, question: AuthzRequest) -> Receiver<AuthzDecision> {
    let (sender, receiver) = channel();
    fixture.authorizer.authorize(&fixture.runtime, question, move |answer| _ = sender.send(answer));
    receiver
}

fn answer(fixture: &AuthorizerFixture, topic: &str) -> AuthzDecision {
    ask(fixture, question(topic)).recv_timeout(SOON).expect("an answer")
}

/// Answers as the authorization server. The topic of the request selects the response.
fn judge(asked: &WebRequest) -> WebResponse {
    let said: serde_json::Value = serde_json::from_str(&asked.body).unwrap();
    match said["t"].as_str().unwrap_or_default() {
        "page" => WebResponse::Html(200, "<html>welcome</html>"),
        "slow" => WebResponse::Silence,
        "forbidden" => WebResponse::Json(403, String::new()),
        "fault" => WebResponse::Json(500, r#"{"result":"allow"}"#.into()),
        "empty" => WebResponse::Html(200, ""),
        word => WebResponse::Json(200, format!(r#"{{"result":"{word}"}}"#)),
    }
}

#[test]
fn each_way_to_ask_says_the_same() {
    let web =
        TestWebServer::start(0, None, |_| WebResponse::Json(200, r#"{"result":"allow"}"#.into()));
    let strange = "a&b=c\"'%41/+ \u{e9}";
    let encoded = "a=publish&q=1&t=a%26b%3Dc%22%27%2541%2F%2B%20%C3%A9&u=ann";
    for (form, line, body) in [
        (
            HttpParamPlacement::Query,
            format!("GET /acl?from=192.0.2.1&{encoded} HTTP/1.1"),
            String::new(),
        ),
        (
            HttpParamPlacement::Encoded,
            "POST /acl?from=192.0.2.1 HTTP/1.1".into(),
            encoded.to_string(),
        ),
        (
            HttpParamPlacement::Json,
            "POST /acl?from=192.0.2.1 HTTP/1.1".into(),
            "{\"a\":\"publish\",\"q\":\"1\",\"t\":\"a&b=c\\\"'%41/+ \u{e9}\",\"u\":\"ann\"}".into(),
        ),
    ] {
        assert_eq!(
            answer(&authorizer_fixture(&settings(&web, form), BOUNDS), strange),
            AuthzDecision::Allow
        );
        let [asked] = &web.asked()[..] else { panic!("one question") };
        assert_eq!((asked.line.as_str(), asked.body.as_str()), (line.as_str(), body.as_str()));
        assert!(asked.headers.contains(&"x-key: an api's key".to_string()), "{asked:?}");
    }
    let asks = settings(&web, HttpParamPlacement::Json).broker_settings().unwrap();
    assert_eq!((asks.cache_ms, asks.uses_qos_or_retain), (60_000, true), "it is told of the QoS");
}

#[test]
fn what_the_server_says_is_what_the_client_may() {
    let web = TestWebServer::start(0, None, judge);
    let bounds = RemoteLimits { timeout_ms: 300, ..BOUNDS };
    let fixture = authorizer_fixture(&settings(&web, HttpParamPlacement::Json), bounds);
    for (topic, expected) in [
        ("allow", AuthzDecision::Allow),
        ("empty", AuthzDecision::Allow),
        ("deny", AuthzDecision::Deny),
        ("ignore", AuthzDecision::Deny),
        ("forbidden", AuthzDecision::Deny),
        ("page", AuthzDecision::Unavailable),
        ("fault", AuthzDecision::Unavailable),
        ("nonsense", AuthzDecision::Unavailable),
        ("slow", AuthzDecision::Unavailable),
        ("allow", AuthzDecision::Allow),
    ] {
        assert_eq!(answer(&fixture, topic), expected, "{topic}");
    }
    fixture.authorizer.replace_servers(None);
    assert_eq!(answer(&fixture, "allow"), AuthzDecision::Unavailable, "nobody is asked");
}

#[test]
fn silence_is_waited_for_only_so_long_and_by_only_so_many() {
    let web = TestWebServer::start(0, None, judge);
    let bounds = RemoteLimits { timeout_ms: 300, connections_max: 1, questions_max: 3 };
    let fixture = authorizer_fixture(&settings(&web, HttpParamPlacement::Json), bounds);
    let begun = std::time::Instant::now();
    let all: Vec<_> = (0..10).map(|_| ask(&fixture, question("slow"))).collect();
    // Requests without a free slot are refused at once.
    let at_once =
        all.iter().rev().take(7).all(|one| one.try_recv() == Ok(AuthzDecision::Unavailable));
    assert!(at_once && begun.elapsed() < SOON);
    for one in &all[..3] {
        assert_eq!(one.recv_timeout(SOON), Ok(AuthzDecision::Unavailable));
    }
    // A request that timed out must not hold a slot.
    assert_eq!(answer(&fixture, "allow"), AuthzDecision::Allow);
}

#[test]
fn a_server_that_was_gone_is_asked_again() {
    let web = TestWebServer::start(0, None, judge);
    let fixture = authorizer_fixture(&settings(&web, HttpParamPlacement::Json), BOUNDS);
    assert_eq!(answer(&fixture, "allow"), AuthzDecision::Allow);
    web.drop_connections();
    assert_eq!(answer(&fixture, "allow"), AuthzDecision::Allow, "nobody notices");
    let port = web.port;
    drop(web);
    assert_eq!(answer(&fixture, "allow"), AuthzDecision::Unavailable);
    let web = TestWebServer::start(port, None, judge);
    let begun = std::time::Instant::now();
    while answer(&fixture, "allow") == AuthzDecision::Unavailable && begun.elapsed() < SOON {
        std::thread::yield_now();
    }
    assert_eq!(answer(&fixture, "allow"), AuthzDecision::Allow);
    assert_eq!(answer(&fixture, "deny"), AuthzDecision::Deny);
    drop(web);
}

#[test]
fn over_tls_only_the_server_that_we_trust_is_asked() {
    let folder = certificates("contract-permits");
    let web = TestWebServer::start(0, Some(served(&folder)), judge);
    let settings = settings(&web, HttpParamPlacement::Json);
    let with = |authority: &str| {
        let file = folder.join(authority).display().to_string();
        let trust = TlsClientOptions { authorities: Some(file), ..TlsClientOptions::default() }
            .client_config()
            .unwrap();
        let fixture = AuthorizerFixture::default();
        fixture.authorizer.replace_servers(HttpAuthzServer::connection_pool(
            &settings,
            Some(trust),
            BOUNDS,
            &[],
        ));
        fixture
    };
    assert_eq!(answer(&with("ca.pem"), "allow"), AuthzDecision::Allow);
    web.asked();
    assert_eq!(answer(&with("stranger-ca.pem"), "allow"), AuthzDecision::Unavailable);
    assert!(web.asked().is_empty());
    let _ = std::fs::remove_dir_all(folder);
}
