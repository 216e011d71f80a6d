//! The client protocol of NATS, as far as acknowledged messages need it: INFO, TLS, CONNECT, one
//! inbox, HPUB, PING and PONG, and errors.

use net::endpoint::{AsyncStream, ServerEndpoint};
use net::server_url::ServerUrl;
use rustls::ClientConfig;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};

pub(super) const SCHEMES: &[&str] = &["nats", "tls"];
const PORT: u16 = 4222;

/// The address, TLS and inbox by which the sink connects to a server.
pub(super) struct NatsEndpoint<'a> {
    pub(super) url: &'a ServerUrl,
    pub(super) tls: Option<Arc<ClientConfig>>,
    /// Subject for acknowledgements; its last level is the index of the message in the batch.
    pub(super) inbox: &'a str,
}

/// A connection to one server, after CONNECT.
pub(super) struct NatsConnection {
    wire: BufReader<Box<dyn AsyncStream>>,
    inbox: String,
    /// Largest message in bytes, headers included; INFO may change the bound.
    pub(super) message_bytes_max: usize,
}

/// A message of the server to the sink.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NatsReply {
    Ack {
        /// Index of the acknowledged message in the batch.
        to: usize,
        body: Vec<u8>,
    },
    /// No stream listens on the subject.
    NoResponders {
        to: usize,
    },
    Pong,
    /// An error, mostly before the server closes the connection.
    Error(String),
}

/// Facts about a server from its INFO.
struct NatsServerInfo {
    has_headers: bool,
    has_tls: bool,
    needs_tls: bool,
    message_bytes_max: usize,
}

/// Bound of a line: replies are short, but INFO lists all servers of a cluster.
const LINE_BYTES_MAX: u64 = 256 * 1024;
const BODY_BYTES_MAX: usize = 256 * 1024;

impl NatsEndpoint<'_> {
    pub(super) async fn connect(&self) -> Result<NatsConnection, String> {
        let port = self.url.port.unwrap_or(PORT);
        let endpoint = ServerEndpoint { host: self.url.host.clone(), port, tls: None };
        self.handshake(&endpoint).await.map_err(|why| match why.starts_with(&self.url.host) {
            true => why,
            false => format!("{endpoint}: {why}"),
        })
    }

    async fn handshake(&self, endpoint: &ServerEndpoint) -> Result<NatsConnection, String> {
        let mut plain = BufReader::new(endpoint.connect_tcp().await?);
        let greeting = NatsServerInfo::read(&read_line(&mut plain).await?)?;
        if !greeting.has_headers {
            return Err("it knows no headers: NATS 2.2 does".into());
        }
        // Bytes after the plain INFO could come from an attacker in the middle.
        if !plain.buffer().is_empty() {
            return Err(NO_SENSE.into());
        }
        let stream = plain.into_inner();
        let wire: Box<dyn AsyncStream> = match &self.tls {
            Some(_) if !greeting.has_tls => return Err("it has no TLS: use nats://".into()),
            Some(tls) => endpoint.start_tls(stream, tls.clone()).await?,
            None if greeting.needs_tls => return Err("it wants TLS: use tls://".into()),
            None => Box::new(stream),
        };
        let message_bytes_max = greeting.message_bytes_max;
        let inbox = self.inbox.to_string();
        let mut conn = NatsConnection { wire: BufReader::new(wire), inbox, message_bytes_max };
        let hello =
            format!("CONNECT {}\r\nSUB {}.* 1\r\nPING\r\n", self.connect_options(), self.inbox);
        conn.send(hello.as_bytes()).await?;
        loop {
            match conn.read_reply().await? {
                NatsReply::Pong => return Ok(conn),
                NatsReply::Error(why) => return Err(why),
                NatsReply::Ack { .. } | NatsReply::NoResponders { .. } => {}
            }
        }
    }

    fn connect_options(&self) -> Value {
        let mut hello = json!({
            "verbose": false, "pedantic": false, "echo": false, "headers": true,
            "no_responders": true, "tls_required": self.tls.is_some(), "protocol": 1,
            "name": "godwit", "lang": "rust", "version": env!("CARGO_PKG_VERSION"),
        });
        match (&self.url.user, &self.url.password) {
            (Some(token), None) => hello["auth_token"] = json!(token),
            (user, password) => {
                for (name, value) in [("user", user), ("pass", password)] {
                    if let Some(value) = value {
                        hello[name] = json!(value);
                    }
                }
            }
        }
        hello
    }
}

impl NatsServerInfo {
    fn read(line: &str) -> Result<NatsServerInfo, String> {
        let (verb, rest) = line.split_once(' ').unwrap_or_default();
        let is_greeting = verb.eq_ignore_ascii_case("INFO");
        let said = is_greeting.then(|| serde_json::from_str::<Value>(rest).ok()).flatten();
        let said = said.ok_or("it does not greet as NATS does")?;
        let is = |name: &str| said[name].as_bool() == Some(true);
        Ok(NatsServerInfo {
            has_headers: is("headers"),
            has_tls: is("tls_required") || is("tls_available"),
            needs_tls: is("tls_required"),
            message_bytes_max: bytes_max(&said).unwrap_or(usize::MAX),
        })
    }
}

fn bytes_max(said: &Value) -> Option<usize> {
    usize::try_from(said["max_payload"].as_u64()?).ok()
}

impl NatsConnection {
    pub(super) async fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.wire.write_all(bytes).await.map_err(|error| error.to_string())?;
        self.wire.flush().await.map_err(|error| error.to_string())
    }

    /// Returns the next reply. Answers PING and reads INFO on the way.
    pub(super) async fn read_reply(&mut self) -> Result<NatsReply, String> {
        loop {
            let line = read_line(&mut self.wire).await?;
            let (verb, rest) = line.split_once(' ').unwrap_or((&line, ""));
            match verb.to_ascii_uppercase().as_str() {
                "MSG" => return self.read_message(rest, false).await,
                "HMSG" => return self.read_message(rest, true).await,
                "PING" => self.send(b"PONG\r\n").await?,
                "PONG" => return Ok(NatsReply::Pong),
                "-ERR" => return Ok(NatsReply::Error(rest.trim().trim_matches('\'').to_string())),
                "INFO" => {
                    let said = serde_json::from_str(rest).map_err(|_| NO_SENSE)?;
                    self.message_bytes_max = bytes_max(&said).unwrap_or(self.message_bytes_max);
                }
                "+OK" => {}
                _ => return Err(NO_SENSE.into()),
            }
        }
    }

    /// Reads a message with the arguments `SUBJECT SID [REPLY] [HEADER-BYTES] ALL-BYTES`.
    async fn read_message(&mut self, line: &str, has_headers: bool) -> Result<NatsReply, String> {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let len = |back: usize| -> Option<usize> {
            words.get(words.len().checked_sub(back)?)?.parse().ok()
        };
        let all = len(1).filter(|all| *all <= BODY_BYTES_MAX).ok_or(NO_SENSE)?;
        let headers = if has_headers { len(2).filter(|len| *len <= all) } else { Some(0) };
        let headers = headers.ok_or(NO_SENSE)?;
        let to = words
            .first()
            .and_then(|subject| subject.strip_prefix(&self.inbox)?.strip_prefix('.')?.parse().ok());
        let to = to.ok_or(NO_SENSE)?;
        let mut body = vec![0; all + 2];
        self.wire.read_exact(&mut body).await.map_err(|error| error.to_string())?;
        body.truncate(all);
        if body[..headers].starts_with(b"NATS/1.0 503") {
            return Ok(NatsReply::NoResponders { to });
        }
        body.drain(..headers);
        Ok(NatsReply::Ack { to, body })
    }
}

/// Reads a line of at most `LINE_BYTES_MAX`. Returns the line without its end.
async fn read_line(wire: &mut BufReader<impl AsyncRead + Unpin>) -> Result<String, String> {
    let mut line = Vec::new();
    let read = wire.take(LINE_BYTES_MAX).read_until(b'\n', &mut line).await;
    read.map_err(|error| error.to_string())?;
    match line.last() {
        Some(b'\n') => {}
        _ if line.len() as u64 == LINE_BYTES_MAX => return Err(NO_SENSE.into()),
        _ => return Err("it closed the connection".into()),
    }
    let text = String::from_utf8(line).map_err(|_| NO_SENSE)?;
    Ok(text.trim_end().to_string())
}

/// Appends a message whose acknowledgement goes to level `at` of the inbox.
pub(super) fn publish(
    subject: &str,
    inbox: &str,
    at: usize,
    headers: &[u8],
    payload: &[u8],
    out: &mut Vec<u8>,
) {
    let (head, all) = (headers.len(), headers.len() + payload.len());
    out.extend_from_slice(format!("HPUB {subject} {inbox}.{at} {head} {all}\r\n").as_bytes());
    out.extend_from_slice(headers);
    out.extend_from_slice(payload);
    out.extend_from_slice(b"\r\n");
}

const NO_SENSE: &str = "it makes no sense";
