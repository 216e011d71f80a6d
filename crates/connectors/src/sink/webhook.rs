//! A sink which sends HTTP requests: a webhook, or the line protocol of InfluxDB.

use super::columns::SinkColumns;
use super::destination::{BatchError, SinkError};
use super::influx::InfluxLines;
use super::message::SinkMessage;
use super::template::{SinkTemplate, ValueEncoding};
use crate::{ClientTlsCell, lock};
use broker::peer::authentication::SecretBytes;
use net::http_client::{HttpClient, HttpRoute};
use net::http_proxy::HttpProxy;
use net::server_pool::RemoteError;
use net::server_url::ServerUrl;
use rustls::ClientConfig;
use std::sync::Arc;
use std::time::Duration;

/// Values of the option rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookSettings {
    pub url: ServerUrl,
    pub proxy: HttpProxy,
    pub follows_redirects: bool,
    pub method: String,
    /// Header names and values, which may be API keys. One header is `content-type`.
    pub headers: Vec<(String, SecretBytes)>,
    pub body: WebhookBody,
    pub tongue: ValueEncoding,
    pub together: RequestBatching,
    /// Statuses which refuse the message itself: a retry would fail again.
    pub refused: Vec<u16>,
}

/// Form of a message in a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WebhookBody {
    Columns(SinkColumns),
    Template(SinkTemplate),
    /// Lines of InfluxDB's line protocol.
    Lines(InfluxLines),
}

/// Batching of messages into requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RequestBatching {
    /// A JSON array for each batch.
    #[default]
    Array,
    /// A line for each message.
    Lines,
    /// A request for each message.
    Single,
}

pub(super) struct WebhookSink {
    settings: WebhookSettings,
    tls: ClientTlsCell,
    headers: Vec<(String, String)>,
    client: Option<(Option<Arc<ClientConfig>>, HttpClient)>,
}

impl WebhookSink {
    pub(super) fn new(settings: &WebhookSettings, tls: ClientTlsCell) -> WebhookSink {
        let text = |secret: &SecretBytes| String::from_utf8_lossy(&secret.0).into_owned();
        let headers = settings.headers.iter();
        let headers = headers.map(|(name, value)| (name.clone(), text(value))).collect();
        WebhookSink { settings: settings.clone(), tls, headers, client: None }
    }

    /// Returns the client, with its connections; a new client after a change of the TLS settings.
    fn http_client(&mut self) -> HttpClient {
        let tls = lock(&self.tls).clone();
        if let Some((known, client)) = &self.client
            && known.as_ref().map(Arc::as_ptr) == tls.as_ref().map(Arc::as_ptr)
        {
            return client.clone();
        }
        let WebhookSettings { url, proxy, follows_redirects, .. } = &self.settings;
        let (proxy, follows_redirects) = (proxy.clone(), *follows_redirects);
        let client =
            HttpClient::new(url, &HttpRoute { tls: tls.clone(), proxy, follows_redirects });
        self.client = Some((tls, client.clone()));
        client
    }

    pub(super) async fn connect(&mut self) -> Result<(), String> {
        self.client = None;
        self.http_client().check_reachable().await
    }

    pub(super) async fn deliver(&mut self, batch: &[Arc<SinkMessage>]) -> Result<(), BatchError> {
        if self.settings.together != RequestBatching::Single {
            let (body, count, unwritable) = self.build_body(batch);
            if count > 0 {
                self.send(body).await.map_err(|what| BatchError { accepted: 0, error: what })?;
            }
            return match unwritable {
                Some(why) => Err(BatchError { accepted: count, error: SinkError::Unwritable(why) }),
                None => Ok(()),
            };
        }
        for (taken, message) in batch.iter().enumerate() {
            let mut body = Vec::new();
            let written = self.write(message, &mut body);
            written
                .map_err(|why| BatchError { accepted: taken, error: SinkError::Unwritable(why) })?;
            self.send(body).await.map_err(|what| BatchError { accepted: taken, error: what })?;
        }
        Ok(())
    }

    /// Returns the body, the number of messages in it from the front of the batch, and why the next
    /// message is not in it.
    fn build_body(&self, batch: &[Arc<SinkMessage>]) -> (Vec<u8>, usize, Option<String>) {
        let is_array = self.settings.together == RequestBatching::Array;
        let mut body = if is_array { vec![b'['] } else { Vec::new() };
        for (at, message) in batch.iter().enumerate() {
            if is_array && at > 0 {
                body.push(b',');
            }
            if let Err(why) = self.write(message, &mut body) {
                return (body, at, Some(why));
            }
            if !is_array {
                body.push(b'\n');
            }
        }
        if is_array {
            body.push(b']');
        }
        (body, batch.len(), None)
    }

    /// Appends a message, or returns why there is nothing to write.
    fn write(&self, message: &SinkMessage, out: &mut Vec<u8>) -> Result<(), String> {
        match &self.settings.body {
            WebhookBody::Columns(columns) => columns.write_json(message, out),
            WebhookBody::Template(template) => template.fill(message, self.settings.tongue, out),
            WebhookBody::Lines(lines) => return lines.write(message, out),
        }
        Ok(())
    }

    async fn send(&mut self, body: Vec<u8>) -> Result<(), SinkError> {
        let client = self.http_client();
        let path = match self.settings.url.path.as_str() {
            "" => "/".to_string(),
            query if query.starts_with('?') => format!("/{query}"),
            path => path.to_string(),
        };
        // A server may close an idle connection, so the first failure leads to a retry.
        for is_again in [false, true] {
            let (method, headers) = (&self.settings.method, &self.headers);
            match client.request(method, &path, headers, body.clone()).await {
                Ok(answer) => {
                    let after = answer.retry_after_s.map(Duration::from_secs);
                    return classify_response(
                        &self.settings.refused,
                        answer.status,
                        after,
                        &answer.body,
                    );
                }
                Err(RemoteError::ErrorReply(why) | RemoteError::Unreachable(why)) => {
                    return Err(SinkError::transient(why));
                }
                Err(RemoteError::Broken(why)) if is_again => return Err(SinkError::transient(why)),
                Err(RemoteError::Broken(_)) => {}
            }
        }
        unreachable!("the second time it is one or the other")
    }
}

/// Parses a status of the option `http.refused_statuses`.
pub(super) fn parse_status(text: &str) -> Result<u16, String> {
    match text.parse() {
        Ok(status @ 400..=599) => Ok(status),
        _ => Err(format!("{text:?} is not a status that refuses anything, use \"400\" to \"599\"")),
    }
}

fn classify_response(
    refused: &[u16],
    status: u16,
    after: Option<Duration>,
    body: &[u8],
) -> Result<(), SinkError> {
    let said = String::from_utf8_lossy(&body[..body.len().min(SAID_BYTES_MAX)]);
    let said: String = said.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let why = format!("HTTP {status} {said}").trim_end().to_string();
    match status {
        200..=299 => Ok(()),
        _ if refused.contains(&status) => Err(SinkError::Rejected(why)),
        // The status passes, or concerns the request's sender or address: an operator fixes the
        // cause, and no message is lost.
        _ => Err(SinkError::Transient { why, after }),
    }
}

/// Number of bytes of a refusing response in the log.
const SAID_BYTES_MAX: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_be_refused_again_is_told_from_what_passes() {
        for (status, is_taken, is_refused) in [
            (200, true, false),
            (204, true, false),
            (301, false, false),
            (400, false, true),
            (401, false, false),
            (404, false, false),
            (408, false, false),
            (413, false, true),
            (429, false, false),
            (451, false, true),
            (500, false, false),
            (503, false, false),
        ] {
            let found = classify_response(&[400, 413, 451], status, None, b"no\n");
            assert_eq!(found.is_ok(), is_taken, "{status}");
            assert_eq!(matches!(found, Err(SinkError::Rejected(_))), is_refused, "{status}");
        }
    }
}
