//! HTTP/1.1 as a client: one request, one answer, both bounded. Redirections are not followed, so
//! nothing is sent anywhere but where the option says.

use crate::endpoint::ServerEndpoint;
use crate::server_pool::RemoteError;
use crate::server_url::ServerUrl;
use base64ct::{Base64, Encoding};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Request, header};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use std::sync::Arc;

/// A connection that requests are sent over.
pub type HttpConnection = SendRequest<Full<Bytes>>;

#[derive(Default)]
pub struct HttpResponse {
    pub status: u16,
    pub is_json: bool,
    /// `application/x-www-form-urlencoded`
    pub is_form: bool,
    pub body: Bytes,
    /// Seconds to wait, where the server says so (RFC 9110, 10.2.3).
    pub retry_after_s: Option<u64>,
}

/// Sends requests to one server.
#[derive(Clone)]
pub struct HttpClient {
    endpoint: ServerEndpoint,
    /// As the Host header has it.
    authority: String,
    /// `Basic` and what follows of the URL's user and password.
    authorization: Option<String>,
}

pub const SCHEMES: &[&str] = &["http", "https"];
/// A longer answer is none.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;

impl HttpClient {
    /// `tls` is for `https`.
    pub fn new(url: &ServerUrl, tls: Option<Arc<ClientConfig>>) -> HttpClient {
        let is_tls = url.scheme == "https";
        let port = url.port.unwrap_or(if is_tls { 443 } else { 80 });
        let endpoint = ServerEndpoint { host: url.host.clone(), port, tls: tls.filter(|_| is_tls) };
        let shown = url.to_string();
        let authority = shown.split_once("://").map_or("", |(_, rest)| rest).to_string();
        let authorization = url.user.as_ref().map(|user| {
            let password = url.password.as_deref().unwrap_or_default();
            format!("Basic {}", Base64::encode_string(format!("{user}:{password}").as_bytes()))
        });
        HttpClient { endpoint, authority, authorization }
    }

    pub async fn connect(&self) -> Result<HttpConnection, String> {
        let stream = TokioIo::new(self.endpoint.connect().await?);
        let (sender, conn) = http1::handshake(stream)
            .await
            .map_err(|error| format!("{}: {error}", self.endpoint))?;
        // It ends with its sender, or with the peer.
        tokio::spawn(async move { _ = conn.await });
        Ok(sender)
    }

    /// `headers` were checked when they were read.
    pub async fn request(
        &self,
        sender: &mut HttpConnection,
        method: &str,
        target: &str,
        headers: &[(String, String)],
        body: Vec<u8>,
    ) -> Result<HttpResponse, RemoteError> {
        let broken = |error: &dyn std::fmt::Display| {
            RemoteError::Broken(format!("{}: {error}", self.endpoint))
        };
        let mut request = Request::builder()
            .method(method)
            .uri(target)
            .header(header::HOST, &self.authority)
            .header(header::ACCEPT, "application/json")
            .header(header::USER_AGENT, "godwit");
        if let Some(authorization) = &self.authorization {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(Bytes::from(body)));
        let request =
            request.map_err(|_| RemoteError::ErrorReply("this is not a request".into()))?;
        sender.ready().await.map_err(|error| broken(&error))?;
        let answer = sender.send_request(request).await.map_err(|error| broken(&error))?;
        let status = answer.status().as_u16();
        let kind = answer.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let is_json = kind.is_some_and(|kind| kind.contains("json"));
        let is_form = kind.is_some_and(|kind| kind.contains("x-www-form-urlencoded"));
        let wait = answer.headers().get(header::RETRY_AFTER).and_then(|wait| wait.to_str().ok());
        let retry_after_s = wait.and_then(|wait| wait.trim().parse().ok());
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|error| broken(&error))?.to_bytes();
        Ok(HttpResponse { status, is_json, is_form, body, retry_after_s })
    }
}

/// Whether this can stand in a request.
pub fn check_header(name: &str, value: &str) -> Result<(), String> {
    let ours = ["host", "content-length", "transfer-encoding", "connection"];
    if ours.iter().any(|own| name.eq_ignore_ascii_case(own)) {
        return Err(format!("the header {name} is ours to write"));
    }
    let is_name = header::HeaderName::from_bytes(name.as_bytes()).is_ok();
    let is_value = header::HeaderValue::from_str(value).is_ok();
    match is_name && is_value {
        true => Ok(()),
        false => Err("no header of HTTP, use NAME = \"VALUE\" without line breaks".into()),
    }
}
