//! Access control after an import: each question of the table `tests/import/mosquitto_access.txt`
//! is put to mosquitto and to the broker with the imported configuration. The imported broker must
//! never permit more.

use crate::broker::{PATIENCE, godwit, run, scratch};
use crate::certs;
use crate::clients::unused_port;
use crate::installed::installed;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const TABLE: &str = include_str!("../import/mosquitto_access.txt");
/// Time without a packet after which a message counts as not delivered.
const NOTHING: Duration = Duration::from_millis(400);

/// A mosquitto configuration with its files, and the questions about its access control.
#[derive(Default)]
struct AccessCase {
    name: String,
    config: String,
    files: Vec<(String, String)>,
    questions: Vec<AccessQuestion>,
}

struct AccessQuestion {
    line: usize,
    listener: String,
    client: String,
    action: String,
    is_allowed: bool,
    is_exact: bool,
}

fn cases() -> Vec<AccessCase> {
    let mut cases: Vec<AccessCase> = Vec::new();
    for (at, line) in TABLE.lines().enumerate() {
        if let Some(name) = line.strip_prefix('[') {
            let name = name.trim_end_matches(']').to_string();
            cases.push(AccessCase { name, ..AccessCase::default() });
            continue;
        }
        let Some(case) = cases.last_mut().filter(|_| !line.is_empty()) else { continue };
        let Some(text) = line.strip_prefix("    ") else {
            case.questions.push(question(at + 1, line));
            continue;
        };
        match text.split_once("| ") {
            Some((name, text)) => {
                let text = text.replace("\\t", "\t").replace("\\r", "\r").replace("\\s", " ");
                match case.files.iter_mut().find(|(there, _)| there == name) {
                    Some((_, all)) => *all += &format!("{text}\n"),
                    None => case.files.push((name.to_string(), format!("{text}\n"))),
                }
            }
            None => case.config += &format!("{text}\n"),
        }
    }
    cases
}

fn question(line: usize, text: &str) -> AccessQuestion {
    let words: Vec<&str> = text.split_whitespace().collect();
    let [listener, client, action, answer, rest @ ..] = &words[..] else {
        panic!("line {line}: {text}");
    };
    assert!(["yes", "no"].contains(answer) && ["", "="].contains(&rest.concat().as_str()));
    AccessQuestion {
        line,
        listener: listener.to_string(),
        client: client.to_string(),
        action: action.replace('_', " "),
        is_allowed: *answer == "yes",
        is_exact: !rest.is_empty(),
    }
}

#[test]
fn an_import_lets_nobody_in_whom_mosquitto_keeps_out() {
    let Some(mosquitto) = installed("mosquitto", "mosquitto") else { return };
    let cases = cases();
    let questions: usize = cases.iter().map(|case| case.questions.len()).sum();
    assert!(cases.len() >= 40 && questions >= 100, "{} {questions}", cases.len());
    let mut wrongs = Vec::new();
    let has_v6 = TcpListener::bind("[::1]:0").is_ok();
    let needs_v6 =
        |case: &AccessCase| ["::1", "ipv6"].iter().any(|word| case.config.contains(word));
    let cases = cases.iter().filter(|case| has_v6 || !needs_v6(case));
    for (at, case) in cases.enumerate() {
        let folder = scratch(&format!("import-access-{at}"));
        let ports = [unused_port(), unused_port(), unused_port()];
        let config = prepare(&folder, case, &ports);
        let theirs = {
            let mut command = Command::new(&mosquitto);
            command.args([Path::new("-c"), &config]);
            let process = ReadyBroker::start(command, &folder.join("theirs"), " running");
            answers(case, &folder, &ports, process.is_some())
        };
        let ours = {
            let out = folder.join("godwit.toml");
            let text = |path: &Path| path.display().to_string();
            let (config, out) = (text(&config), text(&out));
            let imported = run(&["import", &config, "--from", "mosquitto", "--out", &out]);
            let started = (imported.0 == Some(0)).then(|| {
                let command = godwit(&["serve", "--memory", "--config", &out]);
                ReadyBroker::start(command, &folder.join("ours"), "started")
            });
            let process = started.flatten();
            answers(case, &folder, &ports, process.is_some())
        };
        for (question, (theirs, ours)) in case.questions.iter().zip(theirs.into_iter().zip(ours)) {
            let AccessQuestion { line, listener, client, action, is_allowed, is_exact } = question;
            let (Some(theirs), Some(ours)) = (theirs, ours) else { continue };
            let what = format!("{line}: [{}] {listener} {client} {action}", case.name);
            if theirs != *is_allowed {
                wrongs.push(format!("{what}: mosquitto says {theirs}"));
            }
            if ours && !is_allowed || ours != *is_allowed && *is_exact {
                let log = fs::read_to_string(folder.join("ours")).unwrap_or_default();
                wrongs.push(format!("{what}: the import says {ours}\n{log}"));
            }
        }
    }
    assert!(wrongs.is_empty(), "{}", wrongs.join("\n"));
}

/// Writes the files of a case and its configuration, with these ports for the listeners. Returns
/// the path of the configuration.
fn prepare(folder: &Path, case: &AccessCase, ports: &[String; 3]) -> PathBuf {
    let shown = folder.display().to_string();
    for (file, users) in [("users", &["ann:x", "bob:y", "dev:z"][..]), ("others", &["eve:x"])] {
        fs::write(folder.join(file), "").expect("a file of the test's own");
        for user in users {
            let (name, password) = user.split_once(':').expect("a name and a password");
            let path = folder.join(file).display().to_string();
            let made = Command::new("mosquitto_passwd")
                .args(["-b", &path, name, password])
                .stderr(Stdio::null())
                .status();
            assert!(made.expect("mosquitto_passwd can be run").success());
        }
    }
    fs::create_dir(folder.join("certs")).expect("a folder of the test's own");
    certs::make(&folder.join("certs")).expect("files of the test's own");
    for (name, text) in &case.files {
        let path = folder.join(name);
        let inside = path.parent().expect("a folder of the test's own");
        fs::create_dir_all(inside).expect("a folder of the test's own");
        let text = ["A", "B", "C"].iter().zip(ports).fold(text.clone(), |text, (name, port)| {
            text.replace(&format!("listener {name} "), &format!("listener {port} "))
        });
        let text = text.replace("DIR", &shown);
        fs::write(path, text).expect("a file of the test's own");
    }
    let mut config = "user root\n".to_string();
    for line in case.config.lines() {
        let words = line.split(' ').map(|word| match word {
            "A" => ports[0].clone(),
            "B" => ports[1].clone(),
            "C" => ports[2].clone(),
            word => word.replace("DIR", &shown),
        });
        config += &words.collect::<Vec<_>>().join(" ");
        config.push('\n');
    }
    let path = folder.join("mosquitto.conf");
    fs::write(&path, config).expect("a file of the test's own");
    path
}

/// A started broker that has reported its readiness.
struct ReadyBroker(Child);

impl ReadyBroker {
    /// Starts a broker and waits until its log contains `word`. Returns `None` if the process ends
    /// before.
    fn start(mut command: Command, log: &Path, word: &str) -> Option<ReadyBroker> {
        let file = File::create(log).expect("a file of the test's own");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
        let mut started = ReadyBroker(command.spawn().expect("the program can be run"));
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            if fs::read_to_string(log).is_ok_and(|said| said.contains(word)) {
                return Some(started);
            }
            if started.0.try_wait().expect("it was started").is_some() {
                return None;
            }
            thread::sleep(Duration::from_millis(10));
        }
        panic!("{}: no line with {word:?}", log.display());
    }
}

impl Drop for ReadyBroker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the answer to each question of the case; `None` if this host lacks the address that the
/// question needs.
fn answers(
    case: &AccessCase,
    folder: &Path,
    ports: &[String; 3],
    is_there: bool,
) -> Vec<Option<bool>> {
    let answer = |question: &AccessQuestion| {
        let (name, way) = question.listener.split_at(1);
        let port = &ports["ABC".find(name).expect("A, B or C")];
        let ip: IpAddr = match way {
            "" => [127, 0, 0, 1].into(),
            "6" => "::1".parse().expect("an address"),
            _ => outer()?,
        };
        let address = SocketAddr::new(ip, port.parse().expect("a port"));
        Some(is_there && asks(question, address, folder))
    };
    case.questions.iter().map(answer).collect()
}

/// Returns an address of this host other than loopback, if there is one.
fn outer() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback()).then_some(address)
}

fn asks(question: &AccessQuestion, address: SocketAddr, folder: &Path) -> bool {
    for (way, files) in [("tls", &[][..]), ("cert", &["client.pem", "client.key"])] {
        if let Some(client) = question.client.strip_prefix(way) {
            return connects_by_tls(client, files, address, folder);
        }
    }
    let Some(mut conn) = AccessTestConn::open(address, &question.client) else { return false };
    let mut words = question.action.split(':');
    let patience = if question.is_allowed { PATIENCE } else { NOTHING };
    match (words.next(), words.next(), words.next()) {
        (Some("connect"), ..) => true,
        (Some("publish"), Some(topic), _) => conn.publish(topic),
        (Some("read"), Some(filter), Some(topic)) => {
            if !conn.subscribe(filter) {
                return false;
            }
            let publisher = AccessTestConn::open(address, "dev:z")
                .or_else(|| AccessTestConn::open(address, "-"));
            let Some(mut publisher) = publisher else { return false };
            publisher.publish(topic) && conn.receives(topic, patience)
        }
        _ => panic!("{}: no such action", question.action),
    }
}

fn connects_by_tls(client: &str, files: &[&str], address: SocketAddr, folder: &Path) -> bool {
    let path = |file: &str| folder.join("certs").join(file).display().to_string();
    let mut command = Command::new("mosquitto_pub");
    let (host, port) = (address.ip().to_string(), address.port().to_string());
    command.args(["-h", &host, "-p", &port, "-t", "t", "-m", "x", "-q", "1", "-i", "by-tls"]);
    command.args(["--cafile", &path("ca.pem")]);
    if let [certificate, key] = files {
        command.args(["--cert", &path(certificate), "--key", &path(key)]);
    }
    if let Some((user, password)) = client.split_once(':') {
        command.args(["-u", user, "-P", password]);
    }
    let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.expect("mosquitto_pub can be run").success()
}

/// A connection of an MQTT 5.0 client.
pub(crate) struct AccessTestConn {
    stream: TcpStream,
    read: Vec<u8>,
}

fn text(text: &str) -> Vec<u8> {
    let len = u16::try_from(text.len()).expect("a short text");
    [&len.to_be_bytes(), text.as_bytes()].concat()
}

fn packet(first: u8, body: &[u8]) -> Vec<u8> {
    assert!(body.len() < 128);
    [&[first, body.len() as u8], body].concat()
}

impl AccessTestConn {
    /// Connects as `NAME:PASSWORD#ID`, where `-` is no name. Returns `None` if the broker refuses
    /// the client.
    pub(crate) fn open(address: SocketAddr, client: &str) -> Option<AccessTestConn> {
        let (client, id) = client.split_once('#').unwrap_or((client, "some-id"));
        let stream = TcpStream::connect_timeout(&address, PATIENCE).ok()?;
        let (name, password) = match client.split_once(':') {
            Some((name, password)) => (Some(name), Some(password)),
            None => (Some(client).filter(|name| *name != "-"), None),
        };
        let id = if name == Some("dev") { "publisher" } else { id };
        let flags = 2 | u8::from(name.is_some()) << 7 | u8::from(password.is_some()) << 6;
        let mut body = [&text("MQTT")[..], &[5, flags, 0, 60, 0], &text(id)].concat();
        body.extend(name.into_iter().chain(password).flat_map(text));
        let mut conn = AccessTestConn { stream, read: Vec::new() };
        conn.stream.write_all(&packet(0x10, &body)).ok()?;
        let (first, body) = conn.receive(PATIENCE)?;
        (first == 0x20 && body.get(1) == Some(&0)).then_some(conn)
    }

    /// Reads a packet: first byte and body. Returns `None` at the end of the connection, or if no
    /// packet arrives within `patience`.
    fn receive(&mut self, patience: Duration) -> Option<(u8, Vec<u8>)> {
        let until = Instant::now() + patience;
        loop {
            if let [first, len, rest @ ..] = &self.read[..]
                && *len < 128
                && rest.len() >= usize::from(*len)
            {
                let (first, end) = (*first, 2 + usize::from(*len));
                let body = self.read[2..end].to_vec();
                self.read.drain(..end);
                return Some((first, body));
            }
            let left = until.saturating_duration_since(Instant::now());
            self.stream.set_read_timeout(Some(left.max(Duration::from_millis(1)))).ok()?;
            let mut bytes = [0; 1024];
            match self.stream.read(&mut bytes) {
                Ok(0) => return None,
                Ok(len) => self.read.extend(&bytes[..len]),
                Err(_) => return None,
            }
        }
    }

    /// Publishes at QoS 1. Returns whether PUBACK has a success code.
    pub(crate) fn publish(&mut self, topic: &str) -> bool {
        let body = [&text(topic)[..], &[0, 1, 0], b"x"].concat();
        if self.stream.write_all(&packet(0x32, &body)).is_err() {
            return false;
        }
        match self.receive(PATIENCE) {
            Some((0x40, body)) => body.get(2).is_none_or(|reason| *reason < 0x80),
            _ => false,
        }
    }

    pub(crate) fn subscribe(&mut self, filter: &str) -> bool {
        let body = [&[0, 2, 0], &text(filter)[..], &[0]].concat();
        if self.stream.write_all(&packet(0x82, &body)).is_err() {
            return false;
        }
        match self.receive(PATIENCE) {
            Some((0x90, body)) => body.last().is_some_and(|reason| *reason < 0x80),
            _ => false,
        }
    }

    fn receives(&mut self, topic: &str, patience: Duration) -> bool {
        while let Some((first, body)) = self.receive(patience) {
            if first & 0xf0 == 0x30 && body.starts_with(&text(topic)) {
                return true;
            }
        }
        false
    }
}
