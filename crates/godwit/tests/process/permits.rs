//! Authorization by an HTTP server, with the real program and real clients: which actions are
//! authorized, how often, what waits, and the effects of a reload and of an unreachable server.

use crate::broker::{TestBroker, TestProgram, godwit, run, scratch};
use crate::stub::{TestWebServer, WebRequest, WebResponse};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Answers as the authorization server: allows topics below `a/`, denies other topics, and never
/// answers for `slow`.
fn judge(asked: &WebRequest) -> WebResponse {
    let topic = asked.body.split('&').find_map(|pair| pair.strip_prefix("t=")).unwrap_or_default();
    match topic {
        "slow" => WebResponse::Silence,
        _ if topic.starts_with("a%2F") => WebResponse::Html(200, "ok"),
        _ => WebResponse::Json(403, String::new()),
    }
}

fn configure(file: &Path, port: u16, more: &str) {
    let source = format!(
        "[acl]\nhttp_url = \"http://api:hunter2@127.0.0.1:{port}/acl\"\nhttp_method = \"post_form\"\n\
         http_params = {{ t = \"%t\", c = \"%c\", d = \"${{action}}\" }}\n\
         http_headers = {{ x-key = \"hunter3\" }}\n{more}"
    );
    fs::write(file, source).expect("the scratch folder can be written");
}

fn publish(broker: &TestBroker, arguments: &[&str]) -> Option<i32> {
    let fixed = ["pub", "-p", &broker.port(), "-V", "5", "-q", "1", "-m", "x", "-i", "p"];
    run(&[&fixed, arguments].concat()).0
}

fn bodies(web: &TestWebServer) -> Vec<String> {
    web.asked().into_iter().map(|asked| asked.body).collect()
}

#[test]
fn an_http_server_says_what_clients_may_do() {
    let web = TestWebServer::start(0, None, judge);
    let folder = scratch("permits-http");
    let (file, rules) = (folder.join("godwit.toml"), folder.join("rules.toml"));
    fs::write(&rules, "[[rule]]\nallow = \"all\"\ntopic = \"free\"\n").unwrap();
    let more = format!("file = \"{}\"\n[auth]\nbackend_timeout_ms = 2000\n", rules.display());
    configure(&file, web.port, &more);
    let config = ["--config", file.to_str().unwrap()];
    let mut broker = TestBroker::start(&config);
    assert_eq!(publish(&broker, &["-t", "free"]), Some(0));
    assert_eq!(bodies(&web), [""; 0], "a rule speaks of it");
    assert_eq!(publish(&broker, &["-t", "a/x", "--repeat", "20"]), Some(0));
    assert_eq!(bodies(&web), ["c=p&d=publish&t=a%2Fx"], "one answer for twenty messages");
    assert_eq!(publish(&broker, &["-t", "b"]), Some(135));
    let will = ["--will-topic", "b", "--will-payload", "x"];
    assert_eq!(publish(&broker, &[&["-t", "a/x"], &will[..]].concat()), Some(135));
    web.asked();
    // Clients of others.
    let port = broker.port();
    let mosquitto = |name: &str, arguments: &[&str]| {
        let mut command = Command::new(name);
        command.args(["-p", &port, "-i", "m", "-d"]).args(arguments);
        let output = command.output().expect("it is installed");
        String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap()
    };
    let said = mosquitto("mosquitto_sub", &["-t", "b/#", "-E"]);
    assert!(said.contains("Subscribed (mid: 1): 128") || said.contains("rejected"), "{said}");
    let said = mosquitto("mosquitto_pub", &["-t", "a/m", "-m", "x", "-q", "2", "-V", "5"]);
    assert!(said.contains("PUBREC (Mid: 1)") && !said.contains("135"), "{said}");
    let asked = ["c=m&d=subscribe&t=b%2F%23", "c=m&d=publish&t=a%2Fm"];
    assert_eq!(bodies(&web), asked);
    let port = web.port;
    drop(web);
    assert_eq!(publish(&broker, &["-t", "a/x"]), Some(135), "nobody can say");
    broker.program.wait_for("nobody can say what a client may do");
    let _web = TestWebServer::start(port, None, judge);
    let begun = Instant::now();
    while publish(&broker, &["-t", "a/x"]) != Some(0) {
        assert!(begun.elapsed() < Duration::from_secs(60), "it is asked again");
    }
    broker.program.signal("TERM");
    broker.program.wait_for("stopped");
    let all = broker.program.seen().join("\n");
    assert!(all.contains("permits       by http://127.0.0.1:"), "{all}");
    assert!(all.contains("not permitted"), "{all}");
    let (code, stdout, stderr) = run(&[&["check"], &config[..]].concat());
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    assert!(!all.contains("hunter") && !stdout.contains("hunter"), "{all}{stdout}");
}

#[test]
fn who_waits_for_an_answer_keeps_nobody_else_waiting() {
    let web = TestWebServer::start(0, None, judge);
    let file = scratch("permits-slow").join("godwit.toml");
    configure(&file, web.port, "[auth]\nbackend_timeout_ms = 3000\n");
    let broker = TestBroker::start(&["--config", file.to_str().unwrap()]);
    let begun = Instant::now();
    let slow = ["pub", "-p", &broker.port(), "-V", "5", "-q", "1", "-m", "x", "-t", "slow"];
    let slow = TestProgram::start(godwit(&slow));
    while bodies(&web).is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(60), "somebody is asked");
    }
    assert_eq!(publish(&broker, &["-t", "a/x"]), Some(0));
    let other = begun.elapsed();
    assert_eq!(slow.finish().0, Some(135), "the time is over");
    assert!(begun.elapsed() >= Duration::from_millis(3000) && other < begun.elapsed());
    assert!(other < Duration::from_millis(3000), "{other:?}");
}

#[test]
fn what_a_client_said_before_it_went_is_asked_about() {
    let web = TestWebServer::start(0, None, judge);
    let file = scratch("permits-gone").join("godwit.toml");
    configure(&file, web.port, "");
    let broker = TestBroker::start(&["--config", file.to_str().unwrap()]);
    let port = broker.port();
    let mut sub =
        TestProgram::start(godwit(&["sub", "-p", &port, "-d", "-C", "10", "-t", "a/#", "-i", "s"]));
    sub.wait_for("SUBACK");
    for _ in 0..10 {
        // It says DISCONNECT and goes at once.
        let pub_ = ["-p", &port, "-t", "a/x", "-m", "x", "-q", "0"];
        let status = Command::new("mosquitto_pub").args(pub_).status();
        assert!(status.expect("it is installed").success());
    }
    assert_eq!(sub.finish(), (Some(0), "x\n".repeat(10)));
    assert_eq!(bodies(&web).len(), 11, "each connection is asked about once");
}

#[test]
fn a_reload_asks_about_who_is_connected() {
    let web =
        TestWebServer::start(0, None, |_| WebResponse::Json(200, r#"{"result":"allow"}"#.into()));
    let file = scratch("permits-reload").join("godwit.toml");
    configure(&file, web.port, "");
    let mut broker = TestBroker::start(&["--config", file.to_str().unwrap()]);
    let port = broker.port();
    let sub = ["sub", "-p", &port, "-i", "s", "-d", "-C", "2", "-v", "-t", "a/#", "-t", "b"];
    let mut sub = TestProgram::start(godwit(&sub));
    sub.wait_for("SUBACK");
    assert_eq!(publish(&broker, &["-t", "b"]), Some(0));
    sub.wait_for("PUBLISH");
    web.asked();
    // The same server again, and another mind.
    let port = web.port;
    drop(web);
    let web = TestWebServer::start(port, None, |asked| match asked.body.as_str() {
        "c=s&d=subscribe&t=b" => WebResponse::Json(403, String::new()),
        _ => WebResponse::Json(204, String::new()),
    });
    broker.program.signal("HUP");
    // Shards and whoever reads the options say their lines as they come.
    broker.program.wait_for("keep the subscription");
    if !broker.program.seen().iter().any(|line| line.contains("options read again")) {
        broker.program.wait_for("options read again");
    }
    let mut all = bodies(&web);
    all.sort();
    assert_eq!(all, ["c=s&d=subscribe&t=a%2F%23", "c=s&d=subscribe&t=b"]);
    assert_eq!(publish(&broker, &["-t", "b"]), Some(0));
    assert_eq!(publish(&broker, &["-t", "a/1"]), Some(0));
    assert_eq!(sub.finish(), (Some(0), "b x\na/1 x\n".to_string()));
}

#[test]
fn what_cannot_be_asked_is_told_with_its_line() {
    let file = scratch("permits-wrong").join("godwit.toml");
    let source = "[acl]\nhttp_url = \"http://api:hunter2@host/${password}\"\n\
                  http_params = { p = \"%P\" }\nhttp_cache_s = \"long\"\n";
    fs::write(&file, source).unwrap();
    let path = file.to_str().unwrap();
    let (code, stdout, stderr) = run(&["check", "--config", path]);
    assert_eq!((code, stdout.as_str()), (Some(2), ""));
    let lines = stderr.replace(path, "F");
    for line in ["F:2: acl.http_url", "F:3: acl.http_params", "F:4: acl.http_cache_s"] {
        assert!(lines.contains(line), "{line} is not in\n{lines}");
    }
    assert!(lines.contains("use one of") && !lines.contains("hunter"), "{lines}");
}
