//! Replays transcripts against a process over TCP in real time: this broker or any other. No other
//! module of the crate uses a socket or the machine's clock.
//!
//! The lines of each client are compared in order. Lines of different clients have no order on a
//! network. An unexpected packet is detected when the next expected line, or the end of the
//! transcript, meets it instead.

use crate::packet_line;
use crate::parsed_transcript::{ParsedTranscript, ScriptAction, ScriptLine};
use mqtt::{Packet, ProtocolVersion};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Properties of CONNACK that any server may send in addition to those of the transcript.
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

/// Timeouts and strictness of a replay.
#[derive(Clone, Copy, Debug)]
pub struct ReplayOptions {
    /// Longest time to wait for an expected line.
    pub timeout: Duration,
    /// Time for events that cannot be observed: a cut, a QoS 0 message without subscribers.
    pub pause: Duration,
    /// Whether to compare reason strings, which every broker may choose or omit.
    pub reason_strings: bool,
}

impl Default for ReplayOptions {
    fn default() -> ReplayOptions {
        let (patience, pause) = (Duration::from_secs(3), Duration::from_millis(30));
        ReplayOptions { timeout: patience, pause, reason_strings: true }
    }
}

/// Runs a transcript against a broker. The error contains the lines so far and the unexpected line.
pub fn replay(
    script: &ParsedTranscript,
    broker: SocketAddr,
    manner: ReplayOptions,
) -> Result<(), String> {
    let client = || ReplayClient { timeout: manner.timeout, ..ReplayClient::default() };
    let mut clients: Vec<ReplayClient> = script.clients.iter().map(|_| client()).collect();
    let clients = &mut clients[..];
    let mut said = String::new();
    let mut lines = script.lines.iter().peekable();
    while let Some(line) = lines.next() {
        match line {
            ScriptLine::Other(_) => {}
            ScriptLine::Act { text, act } => {
                said = format!("{said}{text}\n");
                act_on(clients, act, broker).map_err(|why| format!("{said}{why}"))?;
                let quiet = !matches!(lines.peek(), Some(ScriptLine::Expect { .. }));
                if quiet
                    && !matches!(
                        act,
                        ScriptAction::Send { held: true, .. } | ScriptAction::Pass { .. }
                    )
                {
                    std::thread::sleep(manner.pause);
                }
            }
            ScriptLine::Expect { client, text } => {
                let name = &script.clients[*client];
                said = format!("{said}{name}< {text}\n");
                let came = clients[*client].next(text);
                let exact = |line: &str| match manner.reason_strings {
                    true => line.to_string(),
                    false => packet_line::strip_values(line, &["reason_string"]),
                };
                if !packet_line::matches_expected(&exact(text), &exact(&came)) {
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

fn act_on(
    clients: &mut [ReplayClient],
    act: &ScriptAction,
    broker: SocketAddr,
) -> Result<(), String> {
    match act {
        ScriptAction::Pass { ms } => std::thread::sleep(Duration::from_millis(*ms)),
        ScriptAction::Cut { client } => clients[*client].stream = None,
        ScriptAction::Trickle { client } => clients[*client].trickles = true,
        ScriptAction::Send { client, packet, held } => {
            clients[*client].send(packet, *held, broker)?
        }
        ScriptAction::AnswerAuth { .. }
        | ScriptAction::Bans { .. }
        | ScriptAction::Caches { .. }
        | ScriptAction::SetListener { .. }
        | ScriptAction::CloseAll
        | ScriptAction::BacklogStore { .. }
        | ScriptAction::Disk { .. }
        | ScriptAction::Drain
        | ScriptAction::FillStore { .. }
        | ScriptAction::SetAddress { .. }
        | ScriptAction::AnswerAuthz { .. }
        | ScriptAction::Power
        | ScriptAction::RefuseGrowth { .. }
        | ScriptAction::Reload { .. }
        | ScriptAction::Resume { .. }
        | ScriptAction::Rule { .. }
        | ScriptAction::Rules { .. }
        | ScriptAction::Stall { .. }
        | ScriptAction::PrintRecordCounts
        | ScriptAction::ChangeAuthz { .. }
        | ScriptAction::PrintAuthzRequests => {
            return Err("only the simulator does this".into());
        }
    }
    Ok(())
}

/// A client over TCP.
#[derive(Debug, Default)]
struct ReplayClient {
    stream: Option<TcpStream>,
    version: Option<ProtocolVersion>,
    held: Vec<u8>,
    unread: Vec<u8>,
    trickles: bool,
    timeout: Duration,
}

impl ReplayClient {
    fn version(&self) -> ProtocolVersion {
        self.version.unwrap_or(ProtocolVersion::V5)
    }

    fn send(&mut self, packet: &str, held: bool, broker: SocketAddr) -> Result<(), String> {
        self.held.extend(packet_line::encode(packet, self.version())?);
        if self.stream.is_none() {
            self.version = packet_line::version_of(&self.held).or(self.version);
        }
        if held {
            return Ok(());
        }
        if self.stream.is_none() {
            let stream = TcpStream::connect(broker).map_err(|why| format!("{broker}: {why}"))?;
            let set = stream.set_nodelay(true).and(stream.set_read_timeout(Some(self.timeout)));
            set.map_err(|why| why.to_string())?;
            self.unread.clear();
            self.stream = Some(stream);
        }
        let bytes = std::mem::take(&mut self.held);
        let chunk = if self.trickles { 1 } else { bytes.len().max(1) };
        if let Some(stream) = &mut self.stream {
            // A broker which closes early is detected by the missing answer.
            let _ = bytes.chunks(chunk).try_for_each(|bytes| stream.write_all(bytes));
        }
        Ok(())
    }

    /// Returns the next line. Properties in `SERVER_LIMITS` appear only if `expected` contains
    /// them.
    fn next(&mut self, expected: &str) -> String {
        loop {
            if let Some((line, len)) = packet_line::decode(&self.unread, self.version()) {
                self.unread.drain(..len);
                let unasked = |name: &&&str| !expected.contains(&format!(" {name}="));
                let unasked: Vec<&str> = SERVER_LIMITS.iter().filter(unasked).copied().collect();
                return match line.starts_with("CONNACK ") {
                    true => packet_line::strip_values(&line, &unasked),
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
        *self = ReplayClient {
            version: self.version,
            timeout: self.timeout,
            ..ReplayClient::default()
        };
        "CLOSED".into()
    }

    fn leftover(&mut self) -> Option<String> {
        let stream = self.stream.as_ref()?;
        stream.set_read_timeout(Some(Duration::from_millis(1))).ok()?;
        Some(self.next("")).filter(|line| line != "nothing")
    }
}

/// Ends the sessions and then clears the retained messages that a transcript leaves behind.
pub fn clean_up(script: &ParsedTranscript, broker: SocketAddr) {
    let sent = script.lines.iter().filter_map(|line| match line {
        ScriptLine::Act { act: ScriptAction::Send { packet, .. }, .. } => Some(packet.as_str()),
        _ => None,
    });
    let mut topics = Vec::new();
    for packet in sent {
        let Ok(bytes) = packet_line::encode(packet, ProtocolVersion::V5) else { continue };
        let Ok(Some(frame)) = mqtt::split_frame(&bytes, u32::MAX) else { continue };
        match Packet::decode(frame, ProtocolVersion::V5) {
            Ok(Packet::Connect(connect)) => {
                let will = connect.will.filter(|will| will.retain);
                topics.extend(will.map(|will| will.topic.to_string()));
                if !connect.client_id.is_empty() {
                    let id = connect.client_id.escape_default();
                    send_lines(broker, &[format!("CONNECT id=\"{id}\"")]);
                }
            }
            Ok(Packet::Publish(publish)) if publish.retain => topics.push(publish.topic.into()),
            _ => {}
        }
    }
    let clear = |topic: &String| format!("PUBLISH \"{topic}\" qos=0 retain \"\"");
    let lines: Vec<String> = topics.iter().filter(|topic| !topic.is_empty()).map(clear).collect();
    if !lines.is_empty() {
        send_lines(broker, &[vec!["CONNECT id=cleaner".to_string()], lines].concat());
    }
}

/// Sends lines on a connection of their own and waits for its end.
fn send_lines(broker: SocketAddr, lines: &[String]) {
    let mut client =
        ReplayClient { timeout: ReplayOptions::default().timeout, ..ReplayClient::default() };
    let sent = lines.iter().try_for_each(|line| client.send(line, true, broker));
    let sent = sent.and_then(|()| client.send("DISCONNECT", false, broker));
    while sent.is_ok() && client.stream.is_some() && client.next("") != "nothing" {}
}
