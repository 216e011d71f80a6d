//! HTTP/1.1 client by reqwest: a request with its response, both bounded in bytes.
//!
//! Invariant: a request goes to the server of its URL. A proxy needs an option. A redirect needs an
//! option, and the same scheme, host and port.

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
    /// Whether the content type is `application/x-www-form-urlencoded`.
    pub is_form: bool,
    pub body: Bytes,
    /// Retry-After of the response, in seconds (RFC 9110, 10.2.3).
    pub retry_after_s: Option<u64>,
}

/// Route to a server: TLS, proxy and redirects.
#[derive(Clone, Default)]
pub struct HttpRoute {
    /// TLS configuration for `https`; `None` trusts no certificate.
    pub tls: Option<Arc<ClientConfig>>,
    pub proxy: HttpProxy,
    /// Whether the client follows redirects within the server, see `decide_redirect`.
    pub follows_redirects: bool,
}

/// HTTP client of one server. Clones share their connections; the number of connections is the
/// number of concurrent requests.
#[derive(Clone)]
pub struct HttpClient {
    client: Client,
    /// Server, for error texts.
    endpoint: ServerEndpoint,
    /// Proxy, or the server without a proxy.
    first_hop: ServerEndpoint,
    /// Origin of the server: scheme, host and port.
    origin: String,
    user: Option<String>,
    password: Option<String>,
}

pub const SCHEMES: &[&str] = &["http", "https"];
/// Maximum response body, in bytes; a longer body is an error.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;
/// Idle time after which a connection is closed: a firewall may have dropped an older one.
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

    /// Connects, with a TLS handshake for `https`, and closes without a request.
    pub async fn check_reachable(&self) -> Result<(), String> {
        let mut stream = self.first_hop.connect().await?;
        let _ = stream.shutdown().await;
        Ok(())
    }

    /// Sends a request and reads the response. `headers` were checked by [`check_header`], and
    /// `target` begins with `/`.
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

/// Follows a redirect that repeats the request unchanged (RFC 9110, 15.4.8 and 15.4.9) to the same
/// scheme, host and port. Any other redirect would send the headers to another server, or a GET
/// without the body; the redirect then counts as the response, with its status.
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

/// Returns the text of the root cause; a TLS error is inside an I/O error.
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

/// Checks that a header may be set by an option: a valid name and value, and not a header that the
/// client itself writes.
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
