//! HTTP servers and proxies with excessive, wrong or incomplete answers, redirects, and requests as
//! a proxy receives them.

use super::*;
use crate::hostile_server::HostileAnswer::{Bytes, Endless};
use crate::hostile_server::{HostileAnswer, run_on_small_stack, serve};
use crate::server_pool::{ConnectionPool, RemoteLimits, RemoteServer, RequestGuard};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use transport::ConnectionLiveness;

const OURS: &str = "it is the test's own";
const TLS_HANDSHAKE: &[u8] = &[22];
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

fn client(url: &str, route: &HttpRoute) -> HttpClient {
    HttpClient::new(&ServerUrl::parse(url, SCHEMES).unwrap(), route)
}

fn to_port(port: u16) -> HttpClient {
    client(&format!("http://127.0.0.1:{port}"), &HttpRoute::default())
}

/// Returns the status and the body, or the error.
async fn post(client: &HttpClient, target: &str) -> Result<(u16, String), String> {
    let headers = [("x-key".to_string(), "secret".to_string())];
    let answer = client.request("POST", target, &headers, b"body".to_vec()).await;
    let answer = answer.map_err(RemoteError::into_text)?;
    Ok((answer.status, String::from_utf8_lossy(&answer.body).into_owned()))
}

fn ask(script: Vec<HostileAnswer>) -> Result<(u16, String), String> {
    let client = to_port(serve(script));
    run_on_small_stack(async move { post(&client, "/").await })
}

/// Answers each request with the next of `answers`, on any connection.
fn serve_each(answers: Vec<String>) -> (u16, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect(OURS);
    let port = listener.local_addr().expect(OURS).port();
    let heard: Arc<Mutex<Vec<String>>> = Arc::default();
    let (own, answers) = (heard.clone(), Arc::new(Mutex::new(answers.into_iter())));
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (own, answers) = (own.clone(), answers.clone());
            thread::spawn(move || answer_each(stream.expect(OURS), &own, &answers));
        }
    });
    (port, heard)
}

fn answer_each(
    mut stream: TcpStream,
    heard: &Mutex<Vec<String>>,
    answers: &Mutex<impl Iterator<Item = String>>,
) {
    let mut request = Vec::new();
    let mut chunk = [0; 4096];
    while let Ok(read @ 1..) = stream.read(&mut chunk) {
        request.extend_from_slice(&chunk[..read]);
        if request.starts_with(TLS_HANDSHAKE) {
            return;
        }
        let is_whole = request.ends_with(b"body") || request.starts_with(b"CONNECT");
        if is_whole && request.windows(4).any(|end| end == b"\r\n\r\n") {
            let text = String::from_utf8_lossy(&std::mem::take(&mut request)).into_owned();
            heard.lock().unwrap().push(text);
            let Some(answer) = answers.lock().unwrap().next() else { return };
            let _ = stream.write_all(answer.as_bytes());
        }
    }
}

fn redirect(status: u16, to: &str) -> String {
    format!("HTTP/1.1 {status} Elsewhere\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n")
}

#[test]
fn an_answer_has_a_bound_however_it_is_sent() {
    let head = |more: &str| format!("HTTP/1.1 200 OK\r\n{more}\r\n").into_bytes();
    for (first, others) in [
        (head("Content-Length: 4611686018427387904\r\n"), vec![b'x'; 65_536]),
        (head("Transfer-Encoding: chunked\r\n"), b"400\r\n".to_vec()),
        (head("Connection: close\r\n"), vec![b'x'; 65_536]),
    ] {
        let others = match others.len() {
            5 => [&others[..], &[b'x'; 0x400], b"\r\n"].concat(),
            _ => others,
        };
        let why = ask(vec![Endless(first, others)]).unwrap_err();
        assert!(why.ends_with("its answer is longer than we read"), "{why}");
    }
    let whole = "x".repeat(ANSWER_BYTES_MAX);
    let bytes = [&head(&format!("Content-Length: {ANSWER_BYTES_MAX}\r\n"))[..], whole.as_bytes()];
    assert_eq!(ask(vec![Bytes(bytes.concat())]), Ok((200, whole)));
}

#[test]
fn a_head_without_end_is_no_answer() {
    let first = b"HTTP/1.1 200 OK\r\n".to_vec();
    for others in [&b"X: y\r\n"[..], b"x", b"X: y\r\n z\r\n"] {
        assert!(ask(vec![Endless(first.clone(), others.repeat(1000))]).is_err());
    }
    for wrong in ["", "HTTP/2 200\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "\0"] {
        assert!(ask(vec![Bytes(wrong.into())]).is_err(), "{wrong}");
    }
    let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    assert!(ask(vec![Endless(chunked, b"1;".repeat(1000))]).is_err());
}

#[test]
fn a_redirection_is_followed_within_the_server_where_that_is_allowed() {
    let (elsewhere, strange) = serve_each(vec![OK.into()]);
    for (answers, follows, wanted) in [
        (vec![redirect(308, "/b?c=d"), OK.into()], true, Ok((200, "ok".to_string()))),
        (vec![redirect(307, "/b"), OK.into()], false, Ok((307, String::new()))),
        (vec![redirect(302, "/b"), OK.into()], true, Ok((302, String::new()))),
        (vec![redirect(303, "/b"), OK.into()], true, Ok((303, String::new()))),
        (
            vec![redirect(307, &format!("http://127.0.0.1:{elsewhere}/b"))],
            true,
            Ok((307, String::new())),
        ),
        (vec![redirect(307, "https://127.0.0.1/b")], true, Ok((307, String::new()))),
        (vec![redirect(307, "/b"); 10], true, Ok((307, String::new()))),
    ] {
        let (port, heard) = serve_each(answers.clone());
        let route = HttpRoute { follows_redirects: follows, ..HttpRoute::default() };
        let client = client(&format!("http://ann:pw@127.0.0.1:{port}"), &route);
        let found = run_on_small_stack(async move { post(&client, "/a").await });
        assert_eq!(found, wanted, "{answers:?}");
        let heard = heard.lock().unwrap();
        assert!(heard.len() <= 1 + REDIRECTS_MAX, "{}", heard.len());
        assert!(heard.iter().all(|request| request.contains("x-key: secret")), "{heard:?}");
        assert!(heard.iter().all(|request| !request.contains("referer")), "{heard:?}");
        if found == Ok((200, "ok".to_string())) {
            assert!(heard[1].starts_with("POST /b?c=d HTTP/1.1\r\n"), "{heard:?}");
            assert!(heard[1].ends_with("\r\n\r\nbody"), "{heard:?}");
        }
    }
    assert!(strange.lock().unwrap().is_empty());
}

fn through(port: u16, user: &str) -> HttpRoute {
    let proxy = HttpProxy::parse(&format!("http://{user}127.0.0.1:{port}")).unwrap();
    HttpRoute { proxy, ..HttpRoute::default() }
}

#[test]
fn a_proxy_gets_the_request_whole_or_no_more_than_the_name() {
    let (port, heard) = serve_each(vec![OK.into(), "HTTP/1.1 200 Yes\r\n\r\n".into()]);
    let route = through(port, "pete:p%40w@");
    let plain = client("http://ann:pw@broker.invalid:8080", &route);
    let secret = client("https://ann:pw@broker.invalid", &route);
    let found = run_on_small_stack(async move {
        assert_eq!(plain.check_reachable().await, Ok(()));
        [post(&plain, "/a?b").await, post(&secret, "/a?b").await]
    });
    assert_eq!(found[0], Ok((200, "ok".to_string())));
    assert!(found[1].as_ref().unwrap_err().starts_with("broker.invalid:443: "), "{found:?}");
    let heard = heard.lock().unwrap();
    let proof = "basic cGV0ZTpwQHc=";
    assert!(heard[0].starts_with("POST http://broker.invalid:8080/a?b HTTP/1.1\r\n"), "{heard:?}");
    assert!(heard[0].contains("authorization: Basic YW5uOnB3"), "{heard:?}");
    let says_who = |text: &str| text.to_lowercase().contains(&proof.to_lowercase());
    assert!(says_who(&heard[0]), "{heard:?}");
    assert!(heard[1].starts_with("CONNECT broker.invalid:443 HTTP/1.1\r\n"), "{heard:?}");
    assert!(says_who(&heard[1]) && !heard[1].contains("YW5uOnB3"), "{heard:?}");
    assert!(!heard[1].contains("x-key"), "{heard:?}");
}

#[test]
fn a_proxy_that_refuses_or_does_not_end_is_no_way() {
    let refuses = Bytes(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n".to_vec());
    let endless = Endless(b"HTTP/1.1 200 Yes\r\n".to_vec(), b"X: y\r\n".repeat(1000));
    let wrong = Bytes(b"220 mail.example ESMTP\r\n\r\n".to_vec());
    for answer in [refuses, endless, wrong, Bytes(Vec::new())] {
        let client = client("https://broker.invalid", &through(serve(vec![answer]), ""));
        let found = run_on_small_stack(async move {
            client.request("GET", "/", &[], Vec::new()).await.map(|answer| answer.status)
        });
        assert!(matches!(found, Err(RemoteError::Unreachable(_))), "{found:?}");
    }
}

#[test]
fn a_proxy_is_a_url_without_a_path_or_the_environment() {
    assert_eq!(HttpProxy::parse(""), Ok(HttpProxy::None));
    assert_eq!(HttpProxy::parse("environment"), Ok(HttpProxy::Environment));
    let shown = format!("{:?}", HttpProxy::parse("http://ann:secret@proxy:3128/").unwrap());
    assert!(!shown.contains("secret"), "{shown}");
    for wrong in ["proxy:3128", "https://proxy", "socks5://proxy", "http://proxy/a", "env"] {
        assert!(HttpProxy::parse(wrong).is_err(), "{wrong}");
    }
}

struct PooledServer(HttpClient);

impl RemoteServer for PooledServer {
    type Conn = ();
    type Question = ();
    type Reply = u16;

    async fn connect(&self) -> Result<(), String> {
        Ok(())
    }

    async fn request(&self, _conn: &mut (), _question: &()) -> Result<u16, RemoteError> {
        Ok(self.0.request("POST", "/", &[], b"body".to_vec()).await?.status)
    }
}

/// Counts accepted connections, and answers on each, in one write or two.
fn serve_counted(is_split: bool) -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect(OURS);
    let port = listener.local_addr().expect(OURS).port();
    let accepted = Arc::new(AtomicUsize::new(0));
    let own = accepted.clone();
    thread::spawn(move || {
        for stream in listener.incoming() {
            own.fetch_add(1, Relaxed);
            let mut stream = stream.expect(OURS);
            stream.set_nodelay(true).expect(OURS);
            thread::spawn(move || {
                let (head, body) = OK.split_at(if is_split { OK.len() - 2 } else { OK.len() });
                let mut request = Vec::new();
                let mut chunk = [0; 4096];
                while let Ok(read @ 1..) = stream.read(&mut chunk) {
                    request.extend_from_slice(&chunk[..read]);
                    if request.ends_with(b"body") {
                        request.clear();
                        let _ = stream.write_all(head.as_bytes());
                        let _ = stream.write_all(body.as_bytes());
                    }
                }
            });
        }
    });
    (port, accepted)
}

#[test]
fn there_are_as_many_connections_as_questions_at_once_and_no_more() {
    for (is_split, connections_max) in [(false, 1), (true, 1), (false, 3), (true, 3)] {
        let (port, accepted) = serve_counted(is_split);
        let bounds = RemoteLimits { timeout_ms: 20_000, connections_max, questions_max: 1000 };
        let pool = ConnectionPool::new(PooledServer(to_port(port)), bounds);
        run_on_small_stack(async move {
            let all: Vec<_> = (0..300)
                .map(|_| {
                    let guard = RequestGuard::new(pool.clone()).unwrap();
                    let liveness = ConnectionLiveness::default();
                    tokio::spawn(async move { guard.run(&(), &liveness).await.unwrap() })
                })
                .collect();
            for one in all {
                assert_eq!(one.await.unwrap(), 200);
            }
        });
        assert_eq!(accepted.load(Relaxed), connections_max);
    }
}

/// The pool of connections to a server applies the back-off to the HTTP client as well.
#[test]
fn nobody_dials_for_a_while_after_a_failure() {
    let port = TcpListener::bind("127.0.0.1:0").and_then(|one| one.local_addr()).unwrap().port();
    let bounds = RemoteLimits { timeout_ms: 5_000, connections_max: 1, questions_max: 10 };
    let pool = ConnectionPool::new(PooledServer(to_port(port)), bounds);
    run_on_small_stack(async move {
        let run = async || {
            let guard = RequestGuard::new(pool.clone()).unwrap();
            guard.run(&(), &ConnectionLiveness::default()).await
        };
        assert!(format!("{:?}", run().await).contains("refused"));
        // A server listens now, but receives no request before the pause is over.
        let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
        assert!(format!("{:?}", run().await).contains("refused"));
        listener.set_nonblocking(true).unwrap();
        assert!(listener.accept().is_err());
    });
}
