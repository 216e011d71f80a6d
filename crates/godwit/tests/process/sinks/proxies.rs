//! HTTP requests of sinks through a proxy, given by an option or by the environment, and redirects.

use super::contract::{OURS, SinkRig, wait_until};
use super::own::server;
use super::tls::{certificates, served};
use crate::broker::{TestBroker, scratch};
use crate::clients;
use crate::ports::free_port;
use crate::stub::{TestWebServer, WebResponse};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// Starts a CONNECT proxy. Returns its port and the heads of the received requests.
fn proxy() -> (u16, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect(OURS);
    let port = listener.local_addr().expect(OURS).port();
    let heard: Arc<Mutex<Vec<String>>> = Arc::default();
    let own = heard.clone();
    thread::spawn(move || {
        for near in listener.incoming().flatten() {
            let own = own.clone();
            thread::spawn(move || connect_and_carry(near, &own));
        }
    });
    (port, heard)
}

fn connect_and_carry(mut near: TcpStream, heard: &Mutex<Vec<String>>) {
    let mut reader = BufReader::new(near.try_clone().expect(OURS));
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).unwrap_or_default() == 0 {
            return;
        }
    }
    heard.lock().expect(OURS).push(head.clone());
    let to = head.split_whitespace().nth(1).expect("CONNECT HOST:PORT");
    let mut far = TcpStream::connect(to).expect("it listens");
    near.write_all(b"HTTP/1.1 200 Connected\r\n\r\n").expect(OURS);
    let (mut from, mut back) = (far.try_clone().expect(OURS), near.try_clone().expect(OURS));
    thread::spawn(move || carry(&mut from, &mut back));
    carry(&mut reader, &mut far);
    let _ = far.shutdown(Shutdown::Both);
}

fn carry(from: &mut impl Read, to: &mut TcpStream) {
    let _ = std::io::copy(from, to);
    let _ = to.shutdown(Shutdown::Write);
}

fn hook(url: &str, more: &str) -> String {
    format!(
        "[[sink]]\nname = \"s\"\nfilters = [\"a\"]\nretry_min_ms = 20\nretry_max_s = 1\n\
         batch.wait_ms = 0\nhttp.url = \"{url}\"\n{more}\n"
    )
}

#[test]
fn https_goes_through_a_proxy_unread() {
    let folder = certificates("sink-proxy");
    let web =
        TestWebServer::start(0, Some(served(&folder)), |_| WebResponse::Json(200, String::new()));
    let (port, heard) = proxy();
    let options = format!(
        "http.proxy = \"http://pete:hunter2@127.0.0.1:{port}\"\ntls.ca = \"{}/ca.pem\"\n",
        folder.display()
    );
    let edge = SinkRig::start("sink-proxy-options", &hook(&web.url(), &options), &[]);
    edge.publish(&["-t", "a", "-m", "secret", "-q", "1"]);
    wait_until("it came", || web.asked().iter().any(|asked| asked.body.contains("secret")));
    let heard = heard.lock().expect(OURS);
    let line = format!("CONNECT localhost:{} HTTP/1.1\r\n", web.port);
    assert!(!heard.is_empty() && heard.iter().all(|head| head.starts_with(&line)), "{heard:?}");
    let proof = "proxy-authorization: basic cgv0ztpodw50zxiy";
    assert!(heard.iter().all(|head| head.to_lowercase().contains(proof)), "{heard:?}");
    fs::remove_dir_all(folder).unwrap();
}

/// The environment variables count only if the option `http.proxy` is "environment".
#[test]
fn the_environment_names_a_proxy() {
    let asked_of_proxy = Arc::new(Mutex::new(Vec::new()));
    let own = asked_of_proxy.clone();
    let proxy = TestWebServer::start(0, None, move |asked| {
        own.lock().expect(OURS).push(asked.line.clone());
        WebResponse::Json(200, String::new())
    });
    let straight = TestWebServer::start(0, None, |_| WebResponse::Json(200, String::new()));
    let named = format!("http://127.0.0.1:{}", proxy.port);
    let environment = [("HTTP_PROXY", named.as_str()), ("NO_PROXY", "127.0.0.1")];
    let file = scratch("sink-proxy-environment").join("godwit.toml");
    let broker = |url: &str, more: &str| {
        fs::write(&file, hook(url, more)).expect(OURS);
        let config = ["--config", file.to_str().expect(OURS), "--set", "sys.interval_s=1"];
        let broker = TestBroker::start_with(&environment, &config);
        clients::publish(&broker.port(), &["-t", "a", "-m", "told", "-q", "1"]);
        broker
    };
    let by_environment = "http.proxy = \"environment\"";
    let url = format!("http://localhost:{}/hook", straight.port);
    let _far = broker(&url, by_environment);
    wait_until("the proxy is asked", || !asked_of_proxy.lock().expect(OURS).is_empty());
    assert_eq!(asked_of_proxy.lock().expect(OURS)[0], format!("POST {url} HTTP/1.1"));
    assert!(straight.asked().is_empty());
    // What NO_PROXY names is asked itself, and without the option everything.
    for (host, more) in [("127.0.0.1", by_environment), ("localhost", "")] {
        let _near = broker(&format!("http://{host}:{}/hook", straight.port), more);
        wait_until("it comes", || {
            straight.asked().iter().any(|asked| asked.line == "POST /hook HTTP/1.1")
        });
    }
    assert_eq!(asked_of_proxy.lock().expect(OURS).len(), 1);
}

#[test]
fn a_redirection_delivers_nothing_unless_it_is_followed() {
    let port = free_port();
    let mut edge = SinkRig::start("sink-redirect", &hook("http://127.0.0.1:1/", ""), &[]);
    let (_web, heard) = server(port, |_| WebResponse::Json(200, String::new()));
    let turns = TestWebServer::start(0, None, |asked| match asked.line.as_str() {
        "POST /new HTTP/1.1" => WebResponse::Json(200, String::new()),
        _ => WebResponse::Custom(302, "-", ""),
    });
    edge.reload(&hook(&format!("{}/old", turns.url()), "http.follow_redirects = true"));
    edge.publish(&["-t", "a", "-m", "kept", "-q", "1"]);
    edge.wait_for_value("last_error", |value| value.contains("HTTP 302"));
    edge.wait_for_value("out/messages", |value| value == "0");
    edge.reload(&hook(&format!("http://127.0.0.1:{port}"), ""));
    wait_until("it comes", || heard.lock().expect(OURS).join("").contains("kept"));
}
