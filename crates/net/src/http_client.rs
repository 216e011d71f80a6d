//! HTTP/1.1 as a client, by reqwest: one request, one answer, both bounded.
//!
//! Invariant: a request goes where its URL says. A proxy is used where an option names one, and a
//! redirection is followed where an option allows it and scheme, host and port stay the same.

use crate::endpoint::ServerEndpoint;
use crate::http_proxy::HttpProxy;
use crate::server_pool::RemoteError;
use crate::server_url::ServerUrl;
use bytes::{Bytes, BytesMut};
use reqwest::header::{self, HeaderMap, HeaderName, HeaderValue};
use reqwest::redirect::{Action, Attempt, Policy};
use reqwest::{Client, Method, StatusCode, Url};
use rustls::crypto::ring::default_provider;
use rustls::{ClientConfig, RootCertStore};
use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use transport::tls_errors::describe_io_error;

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

/// The way of requests to a server.
#[derive(Clone, Default)]
pub struct HttpRoute {
    /// For `https`; without it no certificate is trusted.
    pub tls: Option<Arc<ClientConfig>>,
    pub proxy: HttpProxy,
    /// Whether redirections within the server are followed, see [`decide_redirect`].
    pub follows_redirects: bool,
}

/// Sends requests to one server. Its clones share their connections, of which there are as many as
/// requests at a time.
#[derive(Clone)]
pub struct HttpClient {
    client: Client,
    /// The server, for errors.
    endpoint: ServerEndpoint,
    /// The proxy, or else the server.
    first_hop: ServerEndpoint,
    /// Scheme, host and port.
    origin: String,
    user: Option<String>,
    password: Option<String>,
}

pub const SCHEMES: &[&str] = &["http", "https"];
/// A longer answer is none.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;
/// A connection that nobody uses for longer is closed: a firewall may have dropped it.
const IDLE_MAX: Duration = Duration::from_secs(60);
const REDIRECTS_MAX: usize = 5;

impl HttpClient {
    pub fn new(url: &ServerUrl, route: &HttpRoute) -> HttpClient {
        let is_tls = url.scheme == "https";
        let port = url.port.unwrap_or(if is_tls { 443 } else { 80 });
        let tls = route.tls.clone().filter(|_| is_tls);
        let endpoint = ServerEndpoint { host: url.host.clone(), port, tls };
        let origin = url.to_string();
        let first_hop = route.proxy.endpoint(&origin).unwrap_or_else(|| endpoint.clone());
        HttpClient {
            client: build_client(route),
            endpoint,
            first_hop,
            origin,
            user: url.user.clone(),
            password: url.password.clone(),
        }
    }

    /// Makes sure that somebody listens, and speaks TLS where that is wanted, without a request.
    pub async fn check_reachable(&self) -> Result<(), String> {
        let mut stream = self.first_hop.connect().await?;
        let _ = stream.shutdown().await;
        Ok(())
    }

    /// `headers` were checked when they were read, and `target` begins with `/`.
    pub async fn request(
        &self,
        method: &str,
        target: &str,
        headers: &[(String, String)],
        body: Vec<u8>,
    ) -> Result<HttpResponse, RemoteError> {
        let no_request = || RemoteError::ErrorReply("this is not a request".into());
        let method = Method::from_bytes(method.as_bytes()).map_err(|_| no_request())?;
        let url = Url::parse(&format!("{}{target}", self.origin)).map_err(|_| no_request())?;
        let mut request = self.client.request(method, url).headers(header_map(headers)).body(body);
        if let Some(user) = &self.user {
            request = request.basic_auth(user, Some(self.password.as_deref().unwrap_or_default()));
        }
        let request = request.build().map_err(|_| no_request())?;
        let answer =
            self.client.execute(request).await.map_err(|error| self.remote_error(error))?;
        self.read_response(answer).await
    }

    async fn read_response(
        &self,
        mut answer: reqwest::Response,
    ) -> Result<HttpResponse, RemoteError> {
        let text = |name| answer.headers().get(name).and_then(|value| value.to_str().ok());
        let kind = text(header::CONTENT_TYPE).unwrap_or_default();
        let (is_json, is_form) = (kind.contains("json"), kind.contains("x-www-form-urlencoded"));
        let retry_after_s = text(header::RETRY_AFTER).and_then(|wait| wait.trim().parse().ok());
        let status = answer.status().as_u16();
        let mut body = BytesMut::new();
        while let Some(chunk) = answer.chunk().await.map_err(|error| self.remote_error(error))? {
            if body.len() + chunk.len() > ANSWER_BYTES_MAX {
                let why = format!("{}: its answer is longer than we read", self.endpoint);
                return Err(RemoteError::Broken(why));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(HttpResponse { status, is_json, is_form, body: body.freeze(), retry_after_s })
    }

    fn remote_error(&self, error: reqwest::Error) -> RemoteError {
        let is_unreachable = error.is_connect();
        let why = format!("{}: {}", self.endpoint, describe_error(&error.without_url()));
        if is_unreachable { RemoteError::Unreachable(why) } else { RemoteError::Broken(why) }
    }
}

fn build_client(route: &HttpRoute) -> Client {
    let redirects =
        if route.follows_redirects { Policy::custom(decide_redirect) } else { Policy::none() };
    let tls = route.tls.as_deref().cloned().unwrap_or_else(trust_nobody);
    let builder = Client::builder()
        .tls_backend_preconfigured(tls)
        .redirect(redirects)
        .referer(false)
        .tcp_nodelay(true)
        .pool_idle_timeout(IDLE_MAX)
        .default_headers(HeaderMap::from_iter([
            (header::ACCEPT, HeaderValue::from_static("application/json")),
            (header::USER_AGENT, HeaderValue::from_static("godwit")),
        ]));
    route.proxy.apply(builder).build().expect("TLS is ready, and the rest is constant")
}

fn trust_nobody() -> ClientConfig {
    ClientConfig::builder_with_provider(default_provider().into())
        .with_safe_default_protocol_versions()
        .expect("ring has them")
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth()
}

/// Follows a redirection that repeats the request as it is (RFC 9110, 15.4.8 and 15.4.9) and leads
/// to the same scheme, host and port: others would get headers that are not for them, or a GET
/// without the body. What is not followed is an answer with its status.
fn decide_redirect(attempt: Attempt) -> Action {
    let repeats = [StatusCode::TEMPORARY_REDIRECT, StatusCode::PERMANENT_REDIRECT];
    let from = attempt.previous().last().map(Url::origin);
    let is_within = from.is_some_and(|from| from == attempt.url().origin());
    let is_short = attempt.previous().len() <= REDIRECTS_MAX;
    match repeats.contains(&attempt.status()) && is_within && is_short {
        true => attempt.follow(),
        false => attempt.stop(),
    }
}

fn header_map(headers: &[(String, String)]) -> HeaderMap {
    let checked = headers.iter().filter_map(|(name, value)| {
        let value = HeaderValue::from_str(value).ok()?;
        Some((HeaderName::from_bytes(name.as_bytes()).ok()?, value))
    });
    let mut all = HeaderMap::new();
    checked.for_each(|(name, value)| _ = all.append(name, value));
    all
}

/// The cause, which is the last of a chain; of an error of TLS it is inside one of I/O.
fn describe_error(error: &reqwest::Error) -> String {
    let mut cause: &dyn Error = error;
    while let Some(next) = cause.source() {
        cause = next;
        if let Some(error) = cause.downcast_ref::<io::Error>() {
            return describe_io_error(error);
        }
    }
    cause.to_string()
}

/// Whether this can stand in a request.
pub fn check_header(name: &str, value: &str) -> Result<(), String> {
    let ours = ["host", "content-length", "transfer-encoding", "connection"];
    if ours.iter().any(|own| name.eq_ignore_ascii_case(own)) {
        return Err(format!("the header {name} is ours to write"));
    }
    let is_name = HeaderName::from_bytes(name.as_bytes()).is_ok();
    let is_value = HeaderValue::from_str(value).is_ok();
    match is_name && is_value {
        true => Ok(()),
        false => Err("no header of HTTP, use NAME = \"VALUE\" without line breaks".into()),
    }
}

#[cfg(test)]
#[path = "http_client_tests.rs"]
mod tests;
