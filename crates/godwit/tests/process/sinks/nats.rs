//! Sinks to streams of a real NATS server (JetStream).

use super::contract::{OURS, SinkPlace, SinkRig, SinkRow, stands, wait_for};
use super::relay::{NEVER, TcpRelay};
use super::tls::certificates;
use crate::installed::is_installed;
use crate::ports::free_port;
use crate::servers::{ServerProcess, folder};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

struct NatsPlace {
    folder: PathBuf,
    port: u16,
    relay: TcpRelay,
    /// Additional text of the server's configuration.
    own: String,
    started: Option<ServerProcess>,
}

const WHO: &str = "godwit:it%27s%20secret";
const USERS: &str = r#"authorization: { users: [
    { user: godwit, password: "it's secret" }
    { user: narrow, password: "it's secret"
      permissions: { publish: "mqtt.a.ok", subscribe: "_INBOX.>" } }
] }"#;

impl NatsPlace {
    fn new(name: &str, own: &str) -> NatsPlace {
        let folder = folder(name, "root");
        let own = own.replace("FOLDER", &folder.display().to_string());
        let port = free_port();
        let mut nats = NatsPlace { folder, port, relay: TcpRelay::to(port), own, started: None };
        nats.start();
        nats
    }

    fn client(&self) -> Option<NatsTestClient> {
        NatsTestClient::connect(self.port)
    }

    /// Sends a request about the stream `rows` to the JetStream API, and returns the response.
    fn order(&self, what: &str, body: &Value) -> Value {
        let subject = format!("$JS.API.STREAM.{what}.rows");
        let said = self.client().expect("it is there").ask(&subject, body);
        assert!(said["error"].is_null(), "{said}");
        said
    }

    fn make(&self, more: &Value) {
        self.order("CREATE", &stream(more));
    }

    fn stored(&self) -> Vec<StoredNatsMessage> {
        let Some(mut client) = self.client() else { return Vec::new() };
        let known = client.ask("$JS.API.STREAM.INFO.rows", &json!({}));
        let count = known["state"]["messages"].as_u64().unwrap_or_default();
        static READERS: AtomicU32 = AtomicU32::new(0);
        let to = format!("reader.{}", READERS.fetch_add(1, SeqCst));
        client.send(&format!("SUB {to} 2\r\n"));
        let consumer = json!({"stream_name": "rows", "config": {
            "deliver_subject": to, "deliver_policy": "all", "ack_policy": "none",
            "replay_policy": "instant"}});
        client.publish("$JS.API.CONSUMER.CREATE.rows", &consumer.to_string());
        (0..count).map(|_| client.hear("2")).collect()
    }
}

/// Returns the configuration of a stream on disk for all subjects below `mqtt.`, changed by `more`.
fn stream(more: &Value) -> Value {
    let mut stream = json!({"name": "rows", "subjects": ["mqtt.>"], "storage": "file"});
    for (key, value) in more.as_object().expect("an object") {
        stream[key] = value.clone();
    }
    stream
}

impl SinkPlace for NatsPlace {
    const NAME: &'static str = "nats";

    fn options(&self) -> String {
        let port = self.port;
        format!(
            "nats.url = \"nats://{WHO}@127.0.0.1:{port}\"\nnats.subject = \"mqtt.${{topic}}\"\n"
        )
    }

    fn rows(&self) -> Vec<SinkRow> {
        self.stored().iter().map(StoredNatsMessage::row).collect()
    }

    fn stop(&mut self) {
        self.started = None;
    }

    fn start(&mut self) {
        let file = self.folder.join("nats.conf");
        let NatsPlace { folder, port, own, .. } = self;
        let folder = folder.display();
        let options =
            format!("listen: \"127.0.0.1:{port}\"\njetstream: {{ store_dir: {folder} }}\n{own}\n");
        fs::write(&file, options).expect(OURS);
        let command = ["nats-server", "-c", &file.display().to_string()];
        self.started = Some(ServerProcess::new(&command, "root", "TERM", "Server is ready"));
    }

    fn clear(&mut self) {
        self.order("PURGE", &json!({}));
    }

    fn relay(&self) -> Option<&TcpRelay> {
        Some(&self.relay)
    }
}

impl Drop for NatsPlace {
    fn drop(&mut self) {
        self.started = None;
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A message as stored in the stream.
struct StoredNatsMessage {
    subject: String,
    headers: String,
    payload: String,
}

impl StoredNatsMessage {
    fn row(&self) -> SinkRow {
        let levels = self.subject.strip_prefix("mqtt.").expect("a subject of ours").split('.');
        let topic = levels.map(decoded).collect::<Vec<_>>().join("/");
        (topic, self.payload.clone())
    }

    fn header(&self, name: &str) -> &str {
        let mut lines = self.headers.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).unwrap_or_default()
    }
}

fn decoded(level: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), level.as_bytes());
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        match (*byte, after) {
            // A level that is empty.
            (b'%', []) => {}
            (b'%', [high, low, after @ ..]) => {
                let digits = String::from_utf8(vec![*high, *low]).expect("two digits");
                bytes.push(u8::from_str_radix(&digits, 16).expect("two digits"));
                rest = after;
            }
            (byte, _) => bytes.push(byte),
        }
    }
    String::from_utf8(bytes).expect("a topic is text")
}

/// A minimal NATS client, which reads the stream.
struct NatsTestClient {
    stream: BufReader<TcpStream>,
}

impl NatsTestClient {
    fn connect(port: u16) -> Option<NatsTestClient> {
        let stream = BufReader::new(TcpStream::connect(("127.0.0.1", port)).ok()?);
        let mut client = NatsTestClient { stream };
        client.line();
        client.send(
            "CONNECT {\"verbose\":false,\"headers\":true,\"user\":\"godwit\",\
             \"pass\":\"it's secret\"}\r\nSUB answers 1\r\n",
        );
        Some(client)
    }

    fn send(&mut self, text: &str) {
        self.stream.get_mut().write_all(text.as_bytes()).expect("it listens");
    }

    fn publish(&mut self, subject: &str, body: &str) {
        self.send(&format!("PUB {subject} answers {}\r\n{body}\r\n", body.len()));
    }

    fn ask(&mut self, subject: &str, body: &Value) -> Value {
        self.publish(subject, &body.to_string());
        serde_json::from_str(&self.hear("1").payload).expect("an answer is JSON")
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        assert!(self.stream.read_line(&mut line).expect("a line") > 0, "it went");
        line
    }

    /// Returns the next message of the subscription with the id `wanted`.
    fn hear(&mut self, wanted: &str) -> StoredNatsMessage {
        loop {
            let line = self.line();
            let words: Vec<&str> = line.split_whitespace().collect();
            assert_ne!(words[0], "-ERR", "{line}");
            if words[0] == "PING" {
                self.send("PONG\r\n");
            }
            if !words[0].ends_with("MSG") {
                continue;
            }
            let number = |back: usize| words[words.len() - back].parse::<usize>().expect("bytes");
            let head = if words[0] == "HMSG" { number(2) } else { 0 };
            let mut body = vec![0; number(1) + 2];
            self.stream.read_exact(&mut body).expect("the message");
            if words[2] == wanted {
                let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
                let (headers, payload) = (&body[..head], &body[head..number(1)]);
                let (headers, payload) = (text(headers), text(payload));
                return StoredNatsMessage { subject: words[1].into(), headers, payload };
            }
        }
    }
}

#[test]
fn nats_stands_the_contract() {
    if is_installed("NATS", "nats-server") {
        let mut nats = NatsPlace::new("sink-nats", &format!("{USERS}\nmax_payload: 8MB"));
        nats.make(&json!({}));
        stands(&mut nats);
    }
}

fn options(nats: &NatsPlace, who: &str, more: &str) -> String {
    format!(
        "[[sink]]\nname = \"s\"\nfilters = [\"#\"]\nretry_min_ms = 50\nretry_max_s = 1\n\
         refused_tries = 2\nbatch.wait_ms = 300\nnats.url = \"{who}@localhost:{}\"\n\
         nats.subject = \"mqtt.${{topic}}\"\n{more}",
        nats.port
    )
}

fn is_rows(nats: &NatsPlace, wanted: &[(&str, &str)]) {
    let rows: Vec<SinkRow> = wanted.iter().map(|(a, b)| (a.to_string(), b.to_string())).collect();
    wait_for(nats, "rows", |found| found == rows);
}

#[test]
fn streams_of_nats_wait_for_room_and_pass_over_what_is_too_large() {
    if !is_installed("NATS", "nats-server") {
        return;
    }
    let tls = certificates("sink-nats-own-tls");
    let own = format!(
        "{USERS}\nmax_payload: 8192\nallow_non_tls: true\n\
         tls: {{ cert_file: \"{0}/server.pem\", key_file: \"{0}/server.key\" }}",
        tls.display()
    );
    let nats = NatsPlace::new("sink-nats-own-server", &own);
    let by_tls = |name: &str, ca: &str| {
        let (who, ca) = (WHO.replace("godwit", name), format!("{}/{ca}", tls.display()));
        options(&nats, &format!("tls://{who}"), &format!("tls.ca = \"{ca}\"\n"))
    };
    let mut edge = SinkRig::start("sink-nats-own", &by_tls("godwit", "stranger-ca.pem"), &[]);
    edge.wait_for_value("last_error", |value| value.contains("certificate"));
    edge.reload(&by_tls("nobody", "ca.pem"));
    edge.wait_for_value("last_error", |value| value.contains("Authorization Violation"));
    edge.reload(&by_tls("godwit", "ca.pem"));
    edge.wait_for_value("state", |value| value == "1");
    let publish = |edge: &SinkRig, topic: &str, payload: &str| {
        edge.publish(&["-t", topic, "-m", payload, "-q", "1"]);
    };

    // No stream, and then one without room.
    publish(&edge, "a/x", "1");
    edge.wait_for_value("last_error", |value| value.contains("no stream takes mqtt.a.x"));
    nats.make(&json!({"max_msgs": 3, "discard": "new"}));
    edge.wait_for_value("out/messages", |value| value == "1");
    ["2", "3", "4"].into_iter().for_each(|payload| publish(&edge, "a/x", payload));
    edge.wait_for_value("last_error", |value| value.contains("(10077)"));
    nats.order("UPDATE", &stream(&json!({"max_msg_size": 1000, "discard": "new"})));
    edge.wait_for_value("out/messages", |value| value == "4");
    edge.wait_for_value("dropped/refused", |value| value == "0");

    // Too large for the stream, for the server, and in its name.
    let name = format!("a/{}", "long".repeat(1200));
    publish(&edge, "a/x", "5");
    for (at, (topic, len, why)) in [
        ("a/large", 1000, "(10054)"),
        ("a/huge", 9000, "it takes 8192"),
        (&name, 1, "a subject of"),
    ]
    .into_iter()
    .enumerate()
    {
        publish(&edge, topic, &"x".repeat(len));
        edge.wait_for_value("last_error", |value| value.contains(why));
        edge.wait_for_value("dropped/refused", |value| value == (at + 1).to_string());
    }
    publish(&edge, "a//*.$", "6");
    edge.wait_for_value("out/messages", |value| value == "6");
    let x = |payload| ("a/x", payload);
    is_rows(&nats, &[x("1"), x("2"), x("3"), x("4"), x("5"), ("a//*.$", "6")]);
    let stored = nats.stored();
    let last = stored.last().expect("the last");
    assert_eq!((last.header("topic"), last.header("qos")), ("a//*.$", "1"));
    assert_eq!((last.header("event"), last.header("clientid")), ("message.publish", ""));

    // Who may not write there waits until somebody lets it.
    edge.reload(&by_tls("narrow", "ca.pem"));
    publish(&edge, "a/ok", "7");
    edge.wait_for_value("out/messages", |value| value == "7");
    publish(&edge, "a/denied", "8");
    edge.wait_for_value("last_error", |value| value.contains("Permissions Violation"));
    edge.reload(&by_tls("godwit", "ca.pem"));
    edge.wait_for_value("out/messages", |value| value == "8");
    assert_eq!(nats.stored().len(), 8);
    let _ = fs::remove_dir_all(tls);
}

#[test]
fn nats_by_token_and_only_with_tls() {
    if !is_installed("NATS", "nats-server") {
        return;
    }
    let tls = certificates("sink-nats-token-tls");
    let own = format!(
        "authorization: {{ token: \"to/ken\" }}\n\
         tls: {{ cert_file: \"{0}/server.pem\", key_file: \"{0}/server.key\" }}",
        tls.display()
    );
    let nats = NatsPlace::new("sink-nats-token-server", &own);
    let mut edge = SinkRig::start("sink-nats-token", &options(&nats, "nats://to%2Fken", ""), &[]);
    edge.wait_for_value("last_error", |value| value.contains("it wants TLS: use tls://"));
    let ca = format!("tls.ca = \"{}/ca.pem\"\n", tls.display());
    edge.reload(&options(&nats, "tls://wrong", &ca));
    edge.wait_for_value("last_error", |value| value.contains("Authorization Violation"));
    edge.reload(&options(&nats, "tls://to%2Fken", &ca));
    edge.wait_for_value("state", |value| value == "1");
    let _ = fs::remove_dir_all(tls);
}

#[test]
fn what_nats_has_although_nobody_heard_so_is_stored_once() {
    if !is_installed("NATS", "nats-server") {
        return;
    }
    let nats = NatsPlace::new("sink-nats-again-server", USERS);
    nats.make(&json!({}));
    let (relay, port) = (&nats.relay, nats.relay.port);
    let text = format!(
        "[[sink]]\nname = \"s\"\nfilters = [\"a\"]\ntimeout_ms = 500\nretry_min_ms = 50\n\
         retry_max_s = 1\nnats.url = \"nats://{WHO}@127.0.0.1:{port}\"\n\
         nats.subject = \"mqtt.${{topic}}\"\n"
    );
    let edge = SinkRig::start("sink-nats-again", &text, &[]);
    edge.wait_for_value("state", |value| value == "1");
    relay.late(NEVER);
    for (qos, from) in [("1", 0), ("2", 40)] {
        edge.count("a", qos, from..from + 40);
    }
    wait_for(&nats, "it has them", |rows| rows.len() >= 40);
    edge.wait_for_value("last_error", |value| value.contains("no answer within 500 ms"));
    relay.late(0);
    edge.wait_for_value("out/messages", |value| value == "80");
    edge.wait_until_done();
    let wanted: Vec<SinkRow> = (0..80).map(|number| ("a".into(), number.to_string())).collect();
    let mut rows = nats.rows();
    rows.sort_by_key(|(_, number)| number.parse::<u32>().unwrap_or_default());
    assert_eq!(rows, wanted, "each of them once");
}

#[test]
fn another_server_of_nats_is_used_while_one_is_away() {
    if !is_installed("NATS", "nats-server") {
        return;
    }
    let [mut first, mut second] = ["first", "second"].map(|name| {
        let nats = NatsPlace::new(&format!("sink-nats-{name}"), USERS);
        nats.make(&json!({}));
        nats
    });
    let others = |silent: u16| {
        let more = format!("timeout_ms = 500\nnats.others = [\"localhost:{}\"]\n", second.port);
        let text = options(&first, &format!("nats://{WHO}"), &more);
        text.replace(&format!("@localhost:{}", first.port), &format!("@localhost:{silent}"))
    };
    let (text, own) = (others(first.port), free_port());
    // Who accepts and says nothing keeps nobody for longer than the timeout.
    let silent = TcpListener::bind(("127.0.0.1", own)).expect(OURS);
    let mut edge = SinkRig::start("sink-nats-others", &others(own), &[]);
    let publish = |edge: &SinkRig, payload: &str| {
        edge.publish(&["-t", "a", "-m", payload, "-q", "1"]);
    };
    edge.wait_for_value("state", |value| value == "1");
    publish(&edge, "1");
    is_rows(&second, &[("a", "1")]);
    drop(silent);
    edge.reload(&text);
    edge.wait_for_value("state", |value| value == "1");
    publish(&edge, "2");
    is_rows(&first, &[("a", "2")]);
    first.stop();
    publish(&edge, "3");
    is_rows(&second, &[("a", "1"), ("a", "3")]);
    first.start();
    publish(&edge, "4");
    is_rows(&second, &[("a", "1"), ("a", "3"), ("a", "4")]);
    second.stop();
    publish(&edge, "5");
    is_rows(&first, &[("a", "2"), ("a", "5")]);
    edge.wait_for_value("server", |value| !value.contains("secret") && value.contains(", "));
}
