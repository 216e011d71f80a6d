//! A small HTTP server for tests, with and without TLS, which answers by a function and can restart
//! on the same port.

use super::ports::free_port;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// A request that the server received.
#[derive(Clone, Debug, Default)]
pub(super) struct WebRequest {
    pub(super) line: String,
    pub(super) headers: Vec<String>,
    pub(super) body: String,
}

#[derive(Clone)]
pub(super) enum WebResponse {
    Json(u16, String),
    Html(u16, &'static str),
    /// Response with a status, a body and a content type, in the order of the fields; `-` for no
    /// content type.
    Custom(u16, &'static str, &'static str),
    /// No answer.
    Silence,
    /// The connection is closed after the answer, without an announcement.
    JsonAndClose(String),
}

pub(super) struct TestWebServer {
    pub(super) port: u16,
    open: Arc<TestWebServerState>,
    thread: Option<JoinHandle<()>>,
}

/// A panic with the lock held fails the test.
const WHOLE: &str = "nobody panicked";

struct ResponseHandler(Box<dyn Fn(&WebRequest) -> WebResponse + Send + Sync>);

struct TestWebServerState {
    tls: Option<Arc<ServerConfig>>,
    answer: ResponseHandler,
    streams: Mutex<Vec<TcpStream>>,
    asked: Mutex<Vec<WebRequest>>,
    is_closed: AtomicBool,
}

impl TestWebServer {
    /// Starts a server. Port 0 selects a port that no other test gets.
    pub(super) fn start(
        port: u16,
        tls: Option<Arc<ServerConfig>>,
        answer: impl Fn(&WebRequest) -> WebResponse + Send + Sync + 'static,
    ) -> TestWebServer {
        let port = if port == 0 { free_port() } else { port };
        let listener = listen(port);
        let open = Arc::new(TestWebServerState {
            tls,
            answer: ResponseHandler(Box::new(answer)),
            streams: Mutex::default(),
            asked: Mutex::default(),
            is_closed: AtomicBool::new(false),
        });
        let own = open.clone();
        let thread = thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if own.is_closed.load(Ordering::SeqCst) {
                    return;
                }
                own.streams.lock().expect(WHOLE).push(stream.try_clone().expect("a descriptor"));
                let own = own.clone();
                thread::spawn(move || own.serve(stream));
            }
        });
        TestWebServer { port, open, thread: Some(thread) }
    }

    pub(super) fn url(&self) -> String {
        let scheme = if self.open.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://localhost:{}", self.port)
    }

    /// Returns the requests since the last call.
    pub(super) fn asked(&self) -> Vec<WebRequest> {
        std::mem::take(&mut *self.open.asked.lock().expect(WHOLE))
    }

    pub(super) fn drop_connections(&self) {
        for stream in self.open.streams.lock().expect(WHOLE).drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

/// Listens on the port, with retries: a child process of another test may hold the old socket until
/// its `exec`.
fn listen(port: u16) -> TcpListener {
    let until = Instant::now() + PATIENCE;
    loop {
        match TcpListener::bind(("127.0.0.1", port)) {
            Ok(listener) => return listener,
            Err(why) => assert!(Instant::now() < until, "nobody else has {port}: {why}"),
        }
        thread::yield_now();
    }
}

const PATIENCE: Duration = Duration::from_secs(5);

impl Drop for TestWebServer {
    fn drop(&mut self) {
        self.open.is_closed.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
        self.thread.take().map(JoinHandle::join);
        self.drop_connections();
    }
}

impl TestWebServerState {
    fn serve(&self, stream: TcpStream) {
        // `streams` has a copy of the descriptor, so that the test can close the connection.
        let own = stream.try_clone().expect("a descriptor");
        match &self.tls {
            Some(tls) => {
                let conn = ServerConnection::new(tls.clone()).expect("TLS");
                self.talk(StreamOwned::new(conn, stream));
            }
            None => self.talk(stream),
        }
        let _ = own.shutdown(Shutdown::Both);
    }

    fn talk(&self, stream: impl Read + Write) {
        let mut stream = BufReader::new(stream);
        while let Some(asked) = read(&mut stream) {
            let said = (self.answer.0)(&asked);
            self.asked.lock().expect(WHOLE).push(asked);
            let (status, kind, body) = match &said {
                WebResponse::Json(status, body) => (*status, "application/json", body.as_str()),
                WebResponse::JsonAndClose(body) => (200, "application/json", body.as_str()),
                WebResponse::Html(status, body) => (*status, "text/html", *body),
                WebResponse::Custom(status, kind, body) => (*status, *kind, *body),
                WebResponse::Silence => continue,
            };
            let len = body.len();
            // A server with too many requests says when to retry.
            let wait = if status == 429 { "Retry-After: 1\r\n" } else { "" };
            let kind =
                if kind == "-" { String::new() } else { format!("Content-Type: {kind}\r\n") };
            let head = format!("HTTP/1.1 {status} X\r\n{wait}{kind}");
            let all = format!("{head}Content-Length: {len}\r\n\r\n{body}");
            if stream.get_mut().write_all(all.as_bytes()).is_err() {
                return;
            }
            let _ = stream.get_mut().flush();
            if matches!(said, WebResponse::JsonAndClose(_)) {
                return;
            }
        }
    }
}

fn read(stream: &mut impl BufRead) -> Option<WebRequest> {
    let mut asked = WebRequest::default();
    let mut line = String::new();
    while stream.read_line(&mut line).ok()? > 0 {
        let text = line.trim_end().to_string();
        line.clear();
        if asked.line.is_empty() {
            asked.line = text;
        } else if text.is_empty() {
            let len = asked.headers.iter().find_map(|one| one.strip_prefix("content-length: "));
            let mut body = vec![0; len.map_or(0, |len| len.parse().expect("a number"))];
            stream.read_exact(&mut body).ok()?;
            asked.body = String::from_utf8(body).expect("text");
            return Some(asked);
        } else {
            asked.headers.push(text);
        }
    }
    None
}
