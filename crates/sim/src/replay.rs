//! The same transcripts against a process: over TCP, in real time, ours or anybody's. This is the
//! only module of the crate that touches a socket or the clock of the machine.
//!
//! What a client gets is compared line by line as the text says it; between clients there is no
//! order on a network. What nobody asked for is found when the next expected line, or the end of
//! the transcript, finds it in its place.

use crate::line;
use crate::script::{Act, Line, Script};
use mqtt::{Packet, Version};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// What CONNACK may say of any server beside what the transcript asks for.
const SERVER_LIMITS: [&str; 9] = [
    "receive_maximum",
    "maximum_packet_size",
    "topic_alias_maximum",
    "server_keep_alive",
    "retain_available",
    "maximum_qos",
    "wildcard_available",
    "subscription_id_available",
    "shared_available",
];

/// How patient a replay is, and how exact.
#[derive(Clone, Copy, Debug)]
pub struct Manner {
    /// How long an expected line may take.
    pub patience: Duration,
    /// How long what nobody sees (a cut, a QoS 0 message without subscribers) may take.
    pub pause: Duration,
    /// Reason strings are each broker's own words, or none.
    pub reason_strings: bool,
}

impl Default for Manner {
    fn default() -> Manner {
        let (patience, pause) = (Duration::from_secs(3), Duration::from_millis(30));
        Manner { patience, pause, reason_strings: true }
    }
}

/// Runs a transcript against a broker. The error says what came instead.
pub fn replay(script: &Script, broker: SocketAddr, manner: Manner) -> Result<(), String> {
    let client = || Client { patience: manner.patience, ..Client::default() };
    let mut clients: Vec<Client> = script.clients.iter().map(|_| client()).collect();
    let clients = &mut clients[..];
    let mut said = String::new();
    let mut lines = script.lines.iter().peekable();
    while let Some(line) = lines.next() {
        match line {
            Line::Other(_) => {}
            Line::Act { text, act } => {
                said = format!("{said}{text}\n");
                act_on(clients, act, broker).map_err(|why| format!("{said}{why}"))?;
                let quiet = !matches!(lines.peek(), Some(Line::Expect { .. }));
                if quiet && !matches!(act, Act::Send { held: true, .. } | Act::Pass { .. }) {
                    std::thread::sleep(manner.pause);
                }
            }
            Line::Expect { client, text } => {
                let name = &script.clients[*client];
                said = format!("{said}{name}< {text}\n");
                let came = clients[*client].next(text);
                let exact = |line: &str| match manner.reason_strings {
                    true => line.to_string(),
                    false => line::without(line, &["reason_string"]),
                };
                if !line::agrees(&exact(text), &exact(&came)) {
                    return Err(format!("{said}but {name} got: {came}"));
                }
            }
        }
    }
    std::thread::sleep(manner.pause);
    for (client, name) in clients.iter_mut().zip(&script.clients) {
        if let Some(line) = client.leftover() {
            return Err(format!("{said}and then {name} got: {line}"));
        }
    }
    Ok(())
}

fn act_on(clients: &mut [Client], act: &Act, broker: SocketAddr) -> Result<(), String> {
    match act {
        Act::Pass { ms } => std::thread::sleep(Duration::from_millis(*ms)),
        Act::Cut { client } => clients[*client].stream = None,
        Act::Trickle { client } => clients[*client].trickles = true,
        Act::Send { client, packet, held } => clients[*client].send(packet, *held, broker)?,
        Act::Answer { .. }
        | Act::Bans { .. }
        | Act::Caches { .. }
        | Act::By { .. }
        | Act::CloseAll
        | Act::Crowd { .. }
        | Act::Disk { .. }
        | Act::Drain
        | Act::Fill { .. }
        | Act::From { .. }
        | Act::Permit { .. }
        | Act::Power
        | Act::Refuse { .. }
        | Act::Reload { .. }
        | Act::Resume { .. }
        | Act::Rule { .. }
        | Act::Rules { .. }
        | Act::Stall { .. }
        | Act::Stored
        | Act::Warden { .. }
        | Act::WardenAsked => {
            return Err("only the simulator does this".into());
        }
    }
    Ok(())
}

#[derive(Debug, Default)]
struct Client {
    stream: Option<TcpStream>,
    version: Option<Version>,
    held: Vec<u8>,
    unread: Vec<u8>,
    trickles: bool,
    patience: Duration,
}

impl Client {
    fn version(&self) -> Version {
        self.version.unwrap_or(Version::V5)
    }

    fn send(&mut self, packet: &str, held: bool, broker: SocketAddr) -> Result<(), String> {
        self.held.extend(line::encode(packet, self.version())?);
        if self.stream.is_none() {
            self.version = line::version_of(&self.held).or(self.version);
        }
        if held {
            return Ok(());
        }
        if self.stream.is_none() {
            let stream = TcpStream::connect(broker).map_err(|why| format!("{broker}: {why}"))?;
            let set = stream.set_nodelay(true).and(stream.set_read_timeout(Some(self.patience)));
            set.map_err(|why| why.to_string())?;
            self.unread.clear();
            self.stream = Some(stream);
        }
        let bytes = std::mem::take(&mut self.held);
        let chunk = if self.trickles { 1 } else { bytes.len().max(1) };
        if let Some(stream) = &mut self.stream {
            // A broker that closes early is seen by what it answers.
            let _ = bytes.chunks(chunk).try_for_each(|bytes| stream.write_all(bytes));
        }
        Ok(())
    }

    /// The next line, as far as `expected` asks for its parts.
    fn next(&mut self, expected: &str) -> String {
        loop {
            if let Some((line, len)) = line::decode(&self.unread, self.version()) {
                self.unread.drain(..len);
                let unasked = |name: &&&str| !expected.contains(&format!(" {name}="));
                let unasked: Vec<&str> = SERVER_LIMITS.iter().filter(unasked).copied().collect();
                return match line.starts_with("CONNACK ") {
                    true => line::without(&line, &unasked),
                    false => line,
                };
            }
            let mut chunk = vec![0; 64 * 1024];
            let Some(stream) = &mut self.stream else { return "CLOSED".into() };
            match stream.read(&mut chunk) {
                Ok(0) => return self.close(),
                Ok(len) => self.unread.extend_from_slice(&chunk[..len]),
                Err(why) if matches!(why.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    return "nothing".into();
                }
                Err(why) if why.kind() == ErrorKind::Interrupted => {}
                Err(_) => return self.close(),
            }
        }
    }

    fn close(&mut self) -> String {
        *self = Client { version: self.version, patience: self.patience, ..Client::default() };
        "CLOSED".into()
    }

    fn leftover(&mut self) -> Option<String> {
        let stream = self.stream.as_ref()?;
        stream.set_read_timeout(Some(Duration::from_millis(1))).ok()?;
        Some(self.next("")).filter(|line| line != "nothing")
    }
}

/// Ends the sessions and then clears the retained messages that a transcript leaves behind.
pub fn clean_up(script: &Script, broker: SocketAddr) {
    let sent = script.lines.iter().filter_map(|line| match line {
        Line::Act { act: Act::Send { packet, .. }, .. } => Some(packet.as_str()),
        _ => None,
    });
    let mut topics = Vec::new();
    for packet in sent {
        let Ok(bytes) = line::encode(packet, Version::V5) else { continue };
        let Ok(Some(frame)) = mqtt::cut(&bytes, u32::MAX) else { continue };
        match Packet::decode(frame, Version::V5) {
            Ok(Packet::Connect(connect)) => {
                let will = connect.will.filter(|will| will.retain);
                topics.extend(will.map(|will| will.topic.to_string()));
                if !connect.client_id.is_empty() {
                    let id = connect.client_id.escape_default();
                    say(broker, &[format!("CONNECT id=\"{id}\"")]);
                }
            }
            Ok(Packet::Publish(publish)) if publish.retain => topics.push(publish.topic.into()),
            _ => {}
        }
    }
    let clear = |topic: &String| format!("PUBLISH \"{topic}\" qos=0 retain \"\"");
    let lines: Vec<String> = topics.iter().filter(|topic| !topic.is_empty()).map(clear).collect();
    if !lines.is_empty() {
        say(broker, &[vec!["CONNECT id=cleaner".to_string()], lines].concat());
    }
}

/// Sends lines on a connection of their own and waits for its end.
fn say(broker: SocketAddr, lines: &[String]) {
    let mut client = Client { patience: Manner::default().patience, ..Client::default() };
    let sent = lines.iter().try_for_each(|line| client.send(line, true, broker));
    let sent = sent.and_then(|()| client.send("DISCONNECT", false, broker));
    while sent.is_ok() && client.stream.is_some() && client.next("") != "nothing" {}
}
