//! Lines of JSON between a controller and its agents, each with a proof that the sender knows the
//! token. The token itself is never sent.
//!
//! ```text
//!   agent       nonce
//!   controller  nonce                     key = HMAC(token, both nonces)
//!   either      HMAC(key, direction, count, body) body
//! ```
//!
//! Direction and count are part of the proof: a line cannot be replayed, reflected or omitted.

use ring::hmac::{HMAC_SHA256, Key, Tag, sign, verify};
use ring::rand::{SecureRandom, SystemRandom};
use serde_json::Value;
use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;

#[derive(Debug)]
pub(super) struct AgentLink {
    from: LinkReceiver,
    to: LinkSender,
}

/// The receiving half of an `AgentLink`; `received` counts the lines for the proof.
#[derive(Debug)]
pub(super) struct LinkReceiver {
    stream: BufReader<TcpStream>,
    key: Key,
    side: LinkSide,
    received: u64,
}

/// The sending half of an `AgentLink`, which may move to another thread.
#[derive(Debug)]
pub(super) struct LinkSender {
    stream: TcpStream,
    key: Key,
    side: LinkSide,
    sent: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LinkSide {
    Agent,
    Controller,
}

impl AgentLink {
    pub(super) fn open(stream: TcpStream, token: &str, side: LinkSide) -> io::Result<AgentLink> {
        stream.set_nodelay(true)?;
        let mut from = BufReader::new(stream.try_clone()?);
        let own = nonce()?;
        let (agents, controllers) = match side {
            LinkSide::Agent => {
                writeln!(&stream, "{own}")?;
                (own, read_line(&mut from, NONCE_BYTES_MAX)?)
            }
            LinkSide::Controller => {
                let agents = read_line(&mut from, NONCE_BYTES_MAX)?;
                writeln!(&stream, "{own}")?;
                (agents, own)
            }
        };
        let token = Key::new(HMAC_SHA256, token.as_bytes());
        let both = sign(&token, format!("{agents} {controllers}").as_bytes());
        let key = Key::new(HMAC_SHA256, both.as_ref());
        let from = LinkReceiver { stream: from, key: key.clone(), side, received: 0 };
        Ok(AgentLink { from, to: LinkSender { stream, key, side, sent: 0 } })
    }

    pub(super) fn send(&mut self, value: &Value) -> io::Result<()> {
        self.to.send(value)
    }

    pub(super) fn receive(&mut self) -> io::Result<Value> {
        self.from.receive()
    }

    pub(super) fn stream(&self) -> &TcpStream {
        &self.to.stream
    }

    pub(super) fn halves(self) -> (LinkReceiver, LinkSender) {
        (self.from, self.to)
    }
}

impl LinkReceiver {
    pub(super) fn receive(&mut self) -> io::Result<Value> {
        let line = read_line(&mut self.stream, self.side.line_bytes_max())?;
        let wrong = || io::Error::new(io::ErrorKind::PermissionDenied, "the token is another");
        let (proof, body) = line.split_once(' ').ok_or_else(wrong)?;
        let other = match self.side {
            LinkSide::Agent => LinkSide::Controller,
            LinkSide::Controller => LinkSide::Agent,
        };
        let proof = parse_hex(proof).ok_or_else(wrong)?;
        verify(&self.key, &signed_bytes(other, self.received, body), &proof)
            .map_err(|_| wrong())?;
        self.received += 1;
        serde_json::from_str(body).map_err(io::Error::other)
    }
}

impl LinkSide {
    /// Largest line that this side accepts. Any peer can reach an agent, and a line is stored
    /// before its proof is checked, so the bound of requests is small.
    fn line_bytes_max(self) -> u64 {
        match self {
            LinkSide::Agent => REQUEST_BYTES_MAX,
            LinkSide::Controller => REPORT_BYTES_MAX,
        }
    }
}

impl LinkSender {
    pub(super) fn send(&mut self, value: &Value) -> io::Result<()> {
        let body = value.to_string();
        let proof = sign(&self.key, &signed_bytes(self.side, self.sent, &body));
        self.sent += 1;
        self.stream.write_all(format!("{} {body}\n", hex(&proof)).as_bytes())
    }
}

fn signed_bytes(side: LinkSide, count: u64, body: &str) -> Vec<u8> {
    format!("{side:?} {count} {body}").into_bytes()
}

fn nonce() -> io::Result<String> {
    let mut bytes = [0; 16];
    SystemRandom::new().fill(&mut bytes).map_err(|_| io::Error::other("no randomness here"))?;
    let mut text = String::new();
    bytes.iter().for_each(|byte| {
        let _ = write!(text, "{byte:02x}");
    });
    Ok(text)
}

fn hex(tag: &Tag) -> String {
    let mut text = String::new();
    for byte in tag.as_ref() {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

fn parse_hex(hex: &str) -> Option<Vec<u8>> {
    if !hex.is_ascii() {
        return None;
    }
    let pairs = (0..hex.len()).step_by(2);
    pairs.map(|at| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok()).collect()
}

/// Reads a line without its end. A longer line than `bytes_max` is an error.
fn read_line(from: &mut impl BufRead, bytes_max: u64) -> io::Result<String> {
    let mut line = String::new();
    from.take(bytes_max).read_line(&mut line)?;
    match line.pop() {
        Some('\n') => Ok(line),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
        Some(_) => Err(io::Error::other("a line that does not end")),
    }
}

const NONCE_BYTES_MAX: u64 = 100;
/// Bound of a request, which contains the text of a scenario.
const REQUEST_BYTES_MAX: u64 = 1024 * 1024;
/// Bound of a report, which may list many thousand streams in one line.
const REPORT_BYTES_MAX: u64 = 256 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::net::TcpListener;
    use std::thread;

    fn pair(token_a: &str, token_b: &str) -> (AgentLink, AgentLink) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a port");
        let address = listener.local_addr().expect("it is bound");
        let token = token_b.to_string();
        let other = thread::spawn(move || {
            let stream = TcpStream::connect(address).expect("it listens");
            AgentLink::open(stream, &token, LinkSide::Controller).expect("nonces are open")
        });
        let (stream, _) = listener.accept().expect("it connects");
        let agent = AgentLink::open(stream, token_a, LinkSide::Agent).expect("nonces are open");
        (agent, other.join().expect("it connected"))
    }

    #[test]
    fn both_sides_hear_each_other_with_the_same_token() {
        let (mut agent, mut controller) = pair("secret", "secret");
        for n in 0..3 {
            controller.send(&json!({ "n": n })).expect("sent");
            assert_eq!(agent.receive().expect("proved"), json!({ "n": n }));
            agent.send(&json!([n])).expect("sent");
            assert_eq!(controller.receive().expect("proved"), json!([n]));
        }
    }

    #[test]
    fn another_token_proves_nothing() {
        let (mut agent, mut controller) = pair("secret", "guess");
        controller.send(&json!({ "ask": "run" })).expect("sent");
        let error = agent.receive().expect_err("not proved");
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    }

    /// A peer that has not yet proved knowledge of the token must not make the agent buffer much
    /// data.
    #[test]
    fn an_agent_holds_no_long_line() {
        let (mut agent, mut controller) = pair("secret", "guess");
        let long = "x".repeat(4 * REQUEST_BYTES_MAX as usize);
        // The rest of the line stays unread in the kernel.
        let sending = thread::spawn(move || controller.send(&json!(long)));
        let error = agent.receive().expect_err("too long");
        assert_eq!(error.to_string(), "a line that does not end");
        drop(agent);
        let _ = sending.join().expect("it came to an end");
    }

    #[test]
    fn a_line_said_again_proves_nothing() {
        let (mut agent, mut controller) = pair("secret", "secret");
        controller.send(&json!(1)).expect("sent");
        controller.to.sent = 0;
        controller.send(&json!(1)).expect("sent");
        assert!(agent.receive().is_ok());
        assert!(agent.receive().is_err());
    }
}
