//! Authentication by an HTTP server, with the real program: permissions from the server's answers,
//! an unreachable server, and secrets that the log must not contain.

use crate::broker::{TestBroker, run, scratch};
use crate::stub::{TestWebServer, WebRequest, WebResponse};
use std::fs;

/// Answers as an HTTP authentication server. The user ann has the password "secret" and may publish
/// below `a/`; bob has the same password and invalid rules; root is a superuser.
fn judge(asked: &WebRequest) -> WebResponse {
    if asked.line.starts_with("GET /keys ") {
        return WebResponse::Html(404, "nothing here");
    }
    let rules = r#"[{"permission":"allow","action":"publish","topic":"a/${username}"}]"#;
    let body = match asked.body.as_str() {
        "p=secret&u=ann" => format!(r#"{{"result":"allow","acl":{rules}}}"#),
        "p=secret&u=bob" => r#"{"result":"allow","acl":[{"topic":"a"}]}"#.to_string(),
        "p=secret&u=root" => r#"{"result":"allow","is_superuser":true}"#.to_string(),
        _ => r#"{"result":"deny"}"#.to_string(),
    };
    WebResponse::Json(200, body)
}

fn options(web: &TestWebServer) -> String {
    format!(
        "[auth]\nhttp_url = \"http://api:hunter2@127.0.0.1:{}/auth\"\nhttp_method = \"post_form\"\n\
         http_params = {{ u = \"%u\", p = \"%P\" }}\nhttp_headers = {{ x-key = \"hunter3\" }}\n\
         http_acl = true\nbackend_timeout_ms = 2000\n[log]\nlevel = \"debug\"\n",
        web.port
    )
}

fn publish(broker: &TestBroker, user: &str, password: &str, topic: &str) -> Option<i32> {
    let who = ["-u", user, "-P", password, "-V", "5", "-q", "1", "-t", topic, "-m", "x"];
    run(&[&["pub", "-p", &broker.port()], &who[..]].concat()).0
}

#[test]
fn an_http_server_says_who_comes_in_and_what_it_may_do() {
    let web = TestWebServer::start(0, None, judge);
    let file = scratch("backends-http").join("godwit.toml");
    fs::write(&file, options(&web)).unwrap();
    let config = ["--config", file.to_str().unwrap()];
    let mut broker = TestBroker::start(&config);
    assert_eq!(publish(&broker, "ann", "secret", "a/ann"), Some(0));
    assert_eq!(publish(&broker, "ann", "secret", "a/bob"), Some(135));
    assert_eq!(publish(&broker, "root", "secret", "a/bob"), Some(0));
    assert_eq!(publish(&broker, "ann", "Secret", "a/ann"), Some(134));
    assert_eq!(publish(&broker, "bob", "secret", "a"), Some(136), "rules that make no sense");
    let asked = web.asked();
    let wants = |text: &str| asked.iter().all(|one| one.headers.iter().any(|line| line == text));
    assert!(wants("authorization: Basic YXBpOmh1bnRlcjI=") && wants("x-key: hunter3"), "{asked:?}");
    let port = web.port;
    drop(web);
    assert_eq!(publish(&broker, "ann", "secret", "a/ann"), Some(136), "nobody can say");
    // Another file of options, another server.
    let web = TestWebServer::start(0, None, judge);
    fs::write(&file, options(&web)).unwrap();
    assert_ne!(web.port, port);
    broker.program.signal("HUP");
    broker.program.wait_for("options read again");
    assert_eq!(publish(&broker, "ann", "secret", "a/ann"), Some(0));
    broker.program.signal("TERM");
    broker.program.wait_for("stopped");
    let all = broker.program.seen().join("\n");
    assert!(all.contains("asked         http://127.0.0.1:"), "{all}");
    assert!(all.contains("its answer cannot be read") && all.contains("refused"), "{all}");
    for secret in ["hunter", "secret", "YXBpOmh1"] {
        assert!(!all.to_lowercase().contains(secret), "{all}");
    }
    let (code, stdout, stderr) = run(&[&["check"], &config[..]].concat());
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    assert!(stdout.contains("http://api:***@127.0.0.1:"), "{stdout}");
    assert!(!stdout.contains("hunter"), "{stdout}");
}

#[test]
fn keys_that_are_not_published_yet_stop_nobody_from_starting() {
    let web = TestWebServer::start(0, None, judge);
    let keys = format!("auth.jwt_keys=http://127.0.0.1:{}/keys", web.port);
    let broker = TestBroker::start(&["--set", &keys]);
    let token = "eyJhbGciOiJIUzI1NiJ9.e30.c2lnbmVk";
    assert_eq!(publish(&broker, "ann", token, "a"), Some(136));
    assert_eq!(publish(&broker, "ann", "no token", "a"), Some(134));
}

#[test]
fn what_cannot_be_asked_is_told_with_its_line_and_without_its_secrets() {
    let file = scratch("backends-wrong").join("godwit.toml");
    let source = "[auth]\nhttp_url = \"ftp://api:hunter2@host/\"\njwt_keys = \"https://\"\n\
                  http_params = { u = \"%x\" }\nhttp_headers = { \"x y\" = \"hunter2\" }\n\
                  http_method = \"put\"\npostgres_url = \"postgres://a:hunter2@h:0/\"\n\
                  postgres_user = \"SELECT 1 WHERE u = '${username}'\"\n\
                  postgres_rules = \"SELECT ${password}\"\n";
    fs::write(&file, source).unwrap();
    let path = file.to_str().unwrap();
    let (code, stdout, stderr) = run(&["check", "--config", path]);
    assert_eq!((code, stdout.as_str()), (Some(2), ""));
    let lines = stderr.replace(path, "F");
    for line in [
        "F:2: auth.http_url",
        "F:3: auth.jwt_keys",
        "F:4: auth.http_params",
        "F:5: auth.http_headers",
        "F:6: auth.http_method",
        "F:7: auth.postgres_url",
        "F:8: auth.postgres_user",
        "F:9: auth.postgres_rules",
    ] {
        assert!(lines.contains(line), "{line} is not in\n{lines}");
    }
    assert!(!stderr.contains("hunter"), "{stderr}");
}
