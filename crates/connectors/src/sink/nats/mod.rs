//! A sink into NATS: messages become messages of a JetStream stream. All messages of a batch are in
//! flight together, and each gets an acknowledgement.
//!
//! A message has an id which stays the same when it is sent again, so a stream which has the
//! message already does not store a duplicate.

#[cfg(test)]
mod hostile_tests;
pub(super) mod options;
mod protocol;
pub(super) mod subject;

use self::protocol::{NatsConnection, NatsEndpoint, NatsReply, publish};
use self::subject::{NatsSubject, encode};
use super::columns::SinkColumns;
use super::delivered_ahead::DeliveredAhead;
use super::destination::{BatchError, SinkError};
use super::message::SinkMessage;
use crate::{ClientTlsCell, lock};
use net::scram::nonce;
use net::server_url::ServerUrl;
use serde_json::Value;
use std::fmt;
use std::sync::Arc;

/// Values of the option rows `nats.*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NatsSettings {
    /// At least one server. All have the scheme, the user and the password of the first.
    pub servers: Vec<ServerUrl>,
    pub subject: NatsSubject,
    pub headers: SinkColumns,
}

/// A sink into NATS.
pub(super) struct NatsSink {
    settings: NatsSettings,
    tls: ClientTlsCell,
    /// Index of the server of the present, last or next connection.
    at: usize,
    conn: Option<NatsConnection>,
    ahead: DeliveredAhead,
    /// Random prefix of message ids and of the inbox, unique to this process.
    own: String,
}

/// Acknowledgements of the sent messages.
struct NatsAcks {
    results: Vec<Option<Result<(), SinkError>>>,
    /// Reason for the end of the connection.
    end: Option<SinkError>,
}

/// Default of a server's largest control line in bytes.
const LINE_BYTES_MAX: usize = 4096;

impl NatsSink {
    pub(super) fn new(settings: &NatsSettings, tls: ClientTlsCell) -> NatsSink {
        let own = nonce().unwrap_or_default();
        NatsSink {
            settings: settings.clone(),
            tls,
            at: 0,
            conn: None,
            ahead: DeliveredAhead::default(),
            own,
        }
    }

    pub(super) async fn connect(&mut self) -> Result<(), String> {
        self.conn = None;
        self.conn = Some(self.connect_any().await?);
        Ok(())
    }

    /// Connects to the first server which accepts, beginning with the last good one.
    async fn connect_any(&mut self) -> Result<NatsConnection, String> {
        let (inbox, servers) = (self.inbox(), &self.settings.servers);
        let tls = lock(&self.tls).clone().filter(|_| servers[0].scheme == "tls");
        let mut whys = Vec::new();
        for _ in servers {
            let at = self.at;
            // A cancelled call continues with the next server.
            self.at = (at + 1) % servers.len();
            let way = NatsEndpoint { url: &servers[at], tls: tls.clone(), inbox: &inbox };
            match way.connect().await {
                Ok(conn) => {
                    self.at = at;
                    return Ok(conn);
                }
                Err(why) => whys.push(why),
            }
        }
        Err(whys.join("; "))
    }

    fn inbox(&self) -> String {
        format!("_INBOX.{}", self.own)
    }

    pub(super) async fn deliver(&mut self, batch: &[Arc<SinkMessage>]) -> Result<(), BatchError> {
        let sent = self.ahead.undelivered(batch);
        // A cancelled call drops the connection, so no later batch reads stale replies.
        let (mut conn, was_there) = match self.conn.take() {
            Some(conn) => (conn, true),
            None => (self.connect_any().await.map_err(BatchError::transient)?, false),
        };
        let mut heard = self.publish_and_collect_acks(&mut conn, &sent).await;
        // Servers close idle connections, so a failure leads to a new connection.
        if was_there && heard.is_empty() {
            conn = self.connect_any().await.map_err(BatchError::transient)?;
            heard = self.publish_and_collect_acks(&mut conn, &sent).await;
        }
        if heard.end.is_none() {
            self.conn = Some(conn);
        }
        self.ahead.record_results(batch, &sent, heard.into_results())
    }

    /// Publishes the messages which the server accepts by size, and collects their
    /// acknowledgements.
    async fn publish_and_collect_acks(
        &mut self,
        conn: &mut NatsConnection,
        messages: &[&Arc<SinkMessage>],
    ) -> NatsAcks {
        let mut heard = NatsAcks { results: Vec::with_capacity(messages.len()), end: None };
        let (mut out, inbox) = (Vec::new(), self.inbox());
        for (at, message) in messages.iter().enumerate() {
            let (subject, headers) = (self.settings.subject.fill(message), self.headers(message));
            let bytes = headers.len() + message.payload.len();
            heard.results.push(
                match describe_oversize(subject.len(), bytes, conn.message_bytes_max) {
                    Some(why) => Some(Err(SinkError::Rejected(why))),
                    None => {
                        publish(&subject, &inbox, at, &headers, &message.payload, &mut out);
                        None
                    }
                },
            );
        }
        if let Err(why) = conn.send(&out).await {
            // The server may have sent the reason before it closed the connection.
            let said = conn.read_reply().await;
            heard.end = Some(match said {
                Ok(NatsReply::Error(why)) => classify_server_error(why),
                _ => SinkError::transient(why),
            });
            return heard;
        }
        drop(out);
        let mut left = heard.results.iter().filter(|said| said.is_none()).count();
        while left > 0 {
            let (to, said) = match conn.read_reply().await {
                Ok(NatsReply::Ack { to, body }) => (to, parse_ack(&body)),
                Ok(NatsReply::NoResponders { to }) => {
                    (to, Err(self.no_responder_error(messages.get(to))))
                }
                Ok(NatsReply::Pong) => continue,
                Ok(NatsReply::Error(why)) => {
                    heard.end = Some(classify_server_error(why));
                    break;
                }
                Err(why) => {
                    heard.end = Some(SinkError::transient(why));
                    break;
                }
            };
            if let Some(place @ None) = heard.results.get_mut(to) {
                *place = Some(said);
                left -= 1;
            }
        }
        heard
    }

    fn headers(&self, message: &SinkMessage) -> Vec<u8> {
        let mut text = format!("NATS/1.0\r\n{ID}: {}-{}\r\n", self.own, message.taken_ns);
        for (name, value) in self.settings.headers.iter_texts(message) {
            if value.is_empty() {
                continue;
            }
            text.push_str(name);
            text.push_str(": ");
            for c in value.chars() {
                if c.is_control() { encode(c, &mut text) } else { text.push(c) }
            }
            text.push_str("\r\n");
        }
        text.push_str("\r\n");
        text.into_bytes()
    }

    fn no_responder_error(&self, message: Option<&&Arc<SinkMessage>>) -> SinkError {
        let subject = message.map(|message| self.settings.subject.fill(message));
        let why = format!("no stream takes {}", subject.unwrap_or_default());
        SinkError::transient(why)
    }
}

/// Header with the id by which a stream recognizes duplicates.
const ID: &str = "Nats-Msg-Id";

impl NatsAcks {
    /// Whether the connection failed before any message was acknowledged.
    fn is_empty(&self) -> bool {
        let is_down = matches!(self.end, Some(SinkError::Transient { .. }));
        is_down && self.results.iter().all(|said| !matches!(said, Some(Ok(()))))
    }

    fn into_results(self) -> Vec<Result<(), SinkError>> {
        let silent = || SinkError::transient("no answer".into());
        let end = self.end;
        let said =
            |said: Option<_>| said.unwrap_or_else(|| Err(end.clone().unwrap_or_else(silent)));
        self.results.into_iter().map(said).collect()
    }
}

/// Returns the reason for which the server would close the connection for a message of this size;
/// `None` if the size is allowed.
fn describe_oversize(subject_bytes: usize, bytes: usize, bytes_max: usize) -> Option<String> {
    if bytes > bytes_max {
        return Some(format!("{bytes} bytes with its headers, and it takes {bytes_max}"));
    }
    // The control line also holds the verb, the inbox and two numbers.
    let line = subject_bytes + 128;
    (line > LINE_BYTES_MAX).then(|| format!("a subject of {subject_bytes} bytes is too long"))
}

/// Classifies an error which the server sends before it closes the connection, or instead of an
/// acknowledgement.
fn classify_server_error(why: String) -> SinkError {
    match why.to_ascii_lowercase() {
        said if said.starts_with("maximum payload") => SinkError::Rejected(why),
        said if said.starts_with("maximum control line") => SinkError::Rejected(why),
        _ => SinkError::transient(why),
    }
}

/// Parses a stream's acknowledgement of a message.
fn parse_ack(body: &[u8]) -> Result<(), SinkError> {
    let down = |why: &str| Err(SinkError::transient(why.to_string()));
    let Ok(said) = serde_json::from_slice::<Value>(body) else {
        return down("the other end is not a stream");
    };
    let error = &said["error"];
    if error.is_null() {
        return match said["stream"].is_string() {
            true => Ok(()),
            false => down("the other end is not a stream"),
        };
    }
    let code = error["err_code"].as_u64().or(error["code"].as_u64()).unwrap_or_default();
    let why = format!("{} ({code})", error["description"].as_str().unwrap_or("refused"));
    match REFUSED.contains(&code) {
        true => Err(SinkError::Rejected(why)),
        false => Err(SinkError::transient(why)),
    }
}

/// Error codes which refuse a message for good: too large, too many headers, invalid time to live.
/// Errors about the stream (no space, sealed, no leader) pass, or an operator fixes them.
const REFUSED: &[u64] = &[10054, 10097, 10165];

/// Text for logs, without user and password.
impl fmt::Display for NatsSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let servers: Vec<String> = self.servers.iter().map(ToString::to_string).collect();
        f.write_str(&servers.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_be_refused_again_is_told_from_what_passes() {
        let error = |code: u64| {
            format!(
                r#"{{"error":{{"code":400,"err_code":{code},"description":"no"}},"stream":"s"}}"#
            )
        };
        for (body, is_taken, is_refused) in [
            (r#"{"stream":"s","seq":1}"#.to_string(), true, false),
            (r#"{"stream":"s","seq":1,"duplicate":true}"#.to_string(), true, false),
            (error(10054), false, true),
            (error(10077), false, false),
            (error(10023), false, false),
            (r#"{"error":{"code":503}}"#.to_string(), false, false),
            ("{}".to_string(), false, false),
            ("pong".to_string(), false, false),
        ] {
            let said = parse_ack(body.as_bytes());
            assert_eq!(said.is_ok(), is_taken, "{body}");
            assert_eq!(matches!(said, Err(SinkError::Rejected(_))), is_refused, "{body}");
        }
        for (why, is_refused) in [
            ("Maximum Payload Violation", true),
            ("maximum control line exceeded", true),
            ("Permissions Violation for Publish to \"a\"", false),
            ("Stale Connection", false),
        ] {
            assert_eq!(
                matches!(classify_server_error(why.into()), SinkError::Rejected(_)),
                is_refused,
                "{why}"
            );
        }
    }
}
