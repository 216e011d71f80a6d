//! A server that is asked what a client may do: how it is asked, what its answers mean, what its
//! silence and its death do.

use super::super::remote::Bounds;
use super::super::remote::call::{CallSettings, Form};
use super::super::remote::http::SCHEMES;
use super::super::remote::template::Template;
use super::super::remote::url::Url;
use super::http::BOUNDS;
use super::web::{Asked, Said, Web};
use super::*;
use crate::acl::warden::{PermitSettings, Permits, Warden};
use crate::runtime::Runtime;
use broker::ask::{Action, Answer, Question};
use carrier::Trust;

fn settings(web: &Web, form: Form) -> PermitSettings {
    let template = |text: &str| Template::parse_wish(text).unwrap();
    let url = Url::parse(&format!("{}/acl?from=%a", web.url()), SCHEMES).unwrap();
    let target = template(&url.path);
    let params = [("a", "${action}"), ("q", "${qos}"), ("t", "%t"), ("u", "%u")];
    let call = CallSettings {
        url: Some((url, target)),
        form,
        params: params.map(|(name, text)| (name.to_string(), template(text))).into(),
        headers: vec![("x-key".into(), Secret(b"an api's key".as_slice().into()))],
    };
    PermitSettings { call, cache_s: 60, ..PermitSettings::default() }
}

/// A warden, and the thread that asks for it.
#[derive(Default)]
struct Lodge {
    warden: Warden,
    runtime: Runtime,
}

fn lodge(settings: &PermitSettings, bounds: Bounds) -> Lodge {
    let lodge = Lodge::default();
    lodge.warden.change(Permits::desk(settings, None, bounds, &[Some(1883)]));
    lodge
}

fn question(topic: &str) -> Question {
    Question {
        client_id: "id".into(),
        namespace: "".into(),
        user: Some("ann".into()),
        address: Some([192, 0, 2, 1].into()),
        listener: ListenerId(0),
        common_name: None,
        action: Action::Publish,
        topic: topic.into(),
        qos: 1,
        retain: false,
    }
}

fn ask(lodge: &Lodge, question: Question) -> Receiver<Answer> {
    let (sender, receiver) = channel();
    lodge.warden.hear(&lodge.runtime, question, move |answer| _ = sender.send(answer));
    receiver
}

fn answer(lodge: &Lodge, topic: &str) -> Answer {
    ask(lodge, question(topic)).recv_timeout(SOON).expect("an answer")
}

/// Says of a topic what the topic says.
fn judge(asked: &Asked) -> Said {
    let said: serde_json::Value = serde_json::from_str(&asked.body).unwrap();
    match said["t"].as_str().unwrap_or_default() {
        "page" => Said::Html(200, "<html>welcome</html>"),
        "slow" => Said::Silence,
        "forbidden" => Said::Json(403, String::new()),
        "fault" => Said::Json(500, r#"{"result":"allow"}"#.into()),
        "empty" => Said::Html(200, ""),
        word => Said::Json(200, format!(r#"{{"result":"{word}"}}"#)),
    }
}

#[test]
fn each_way_to_ask_says_the_same() {
    let web = Web::start(0, None, |_| Said::Json(200, r#"{"result":"allow"}"#.into()));
    let strange = "a&b=c\"'%41/+ \u{e9}";
    let encoded = "a=publish&q=1&t=a%26b%3Dc%22%27%2541%2F%2B%20%C3%A9&u=ann";
    for (form, line, body) in [
        (Form::Query, format!("GET /acl?from=192.0.2.1&{encoded} HTTP/1.1"), String::new()),
        (Form::Encoded, "POST /acl?from=192.0.2.1 HTTP/1.1".into(), encoded.to_string()),
        (
            Form::Json,
            "POST /acl?from=192.0.2.1 HTTP/1.1".into(),
            "{\"a\":\"publish\",\"q\":\"1\",\"t\":\"a&b=c\\\"'%41/+ \u{e9}\",\"u\":\"ann\"}".into(),
        ),
    ] {
        assert_eq!(answer(&lodge(&settings(&web, form), BOUNDS), strange), Answer::Allow);
        let [asked] = &web.asked()[..] else { panic!("one question") };
        assert_eq!((asked.line.as_str(), asked.body.as_str()), (line.as_str(), body.as_str()));
        assert!(asked.headers.contains(&"x-key: an api's key".to_string()), "{asked:?}");
    }
    let asks = settings(&web, Form::Json).asks().unwrap();
    assert_eq!((asks.kept_ms, asks.is_particular), (60_000, true), "it is told of the QoS");
}

#[test]
fn what_the_server_says_is_what_the_client_may() {
    let web = Web::start(0, None, judge);
    let bounds = Bounds { timeout_ms: 300, ..BOUNDS };
    let lodge = lodge(&settings(&web, Form::Json), bounds);
    for (topic, expected) in [
        ("allow", Answer::Allow),
        ("empty", Answer::Allow),
        ("deny", Answer::Deny),
        ("ignore", Answer::Deny),
        ("forbidden", Answer::Deny),
        ("page", Answer::Silence),
        ("fault", Answer::Silence),
        ("nonsense", Answer::Silence),
        ("slow", Answer::Silence),
        ("allow", Answer::Allow),
    ] {
        assert_eq!(answer(&lodge, topic), expected, "{topic}");
    }
    lodge.warden.change(None);
    assert_eq!(answer(&lodge, "allow"), Answer::Silence, "nobody is asked");
}

#[test]
fn silence_is_waited_for_only_so_long_and_by_only_so_many() {
    let web = Web::start(0, None, judge);
    let bounds = Bounds { timeout_ms: 300, connections_max: 1, questions_max: 3 };
    let lodge = lodge(&settings(&web, Form::Json), bounds);
    let begun = std::time::Instant::now();
    let all: Vec<_> = (0..10).map(|_| ask(&lodge, question("slow"))).collect();
    // Those for whom there is no place hear at once.
    let at_once = all.iter().rev().take(7).all(|one| one.try_recv() == Ok(Answer::Silence));
    assert!(at_once && begun.elapsed() < SOON);
    for one in &all[..3] {
        assert_eq!(one.recv_timeout(SOON), Ok(Answer::Silence));
    }
    // Nobody who waited in vain keeps a place.
    assert_eq!(answer(&lodge, "allow"), Answer::Allow);
}

#[test]
fn a_server_that_was_gone_is_asked_again() {
    let web = Web::start(0, None, judge);
    let lodge = lodge(&settings(&web, Form::Json), BOUNDS);
    assert_eq!(answer(&lodge, "allow"), Answer::Allow);
    web.drop_connections();
    assert_eq!(answer(&lodge, "allow"), Answer::Allow, "nobody notices");
    let port = web.port;
    drop(web);
    assert_eq!(answer(&lodge, "allow"), Answer::Silence);
    let web = Web::start(port, None, judge);
    let begun = std::time::Instant::now();
    while answer(&lodge, "allow") == Answer::Silence && begun.elapsed() < SOON {
        std::thread::yield_now();
    }
    assert_eq!(answer(&lodge, "allow"), Answer::Allow);
    assert_eq!(answer(&lodge, "deny"), Answer::Deny);
    drop(web);
}

#[test]
fn over_tls_only_the_server_that_we_trust_is_asked() {
    let folder = certificates("contract-permits");
    let web = Web::start(0, Some(served(&folder)), judge);
    let settings = settings(&web, Form::Json);
    let with = |authority: &str| {
        let file = folder.join(authority).display().to_string();
        let trust = Trust { authorities: Some(file), ..Trust::default() }.config().unwrap();
        let lodge = Lodge::default();
        lodge.warden.change(Permits::desk(&settings, Some(trust), BOUNDS, &[]));
        lodge
    };
    assert_eq!(answer(&with("ca.pem"), "allow"), Answer::Allow);
    web.asked();
    assert_eq!(answer(&with("stranger-ca.pem"), "allow"), Answer::Silence);
    assert!(web.asked().is_empty());
    let _ = std::fs::remove_dir_all(folder);
}
