//! HTTP request of a backend: URL, method, headers and parameters.

use super::template::{AuthTemplate, AuthVariable, AuthVariableSource};
use broker::peer::authentication::SecretBytes;
use net::http_client::{HttpClient, HttpResponse, HttpRoute};
use net::server_pool::RemoteError;
use net::server_url::{ServerUrl, has_dot_segments, percent_encode};

/// Values of the option rows about a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HttpCallSettings {
    /// Server, and path and query, which may have placeholders.
    pub url: Option<(ServerUrl, AuthTemplate)>,
    pub form: HttpParamPlacement,
    /// Names of parameters, with the template of each value.
    pub params: Vec<(String, AuthTemplate)>,
    /// Header names and values, which may be API keys.
    pub headers: Vec<(String, SecretBytes)>,
}

/// Part of the HTTP request that contains the parameters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HttpParamPlacement {
    /// In the query of a GET.
    Query,
    /// In the body of a POST, as a form.
    Encoded,
    /// In the body of a POST, as a JSON object.
    #[default]
    Json,
}

/// Part of the HTTP response that contains the decision about a client: the status or the body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HttpAnswerFormat {
    /// A JSON object in the form of EMQX 5 or mosquitto-go-auth, or a word.
    #[default]
    Json,
    /// Only EMQX 5's `result`, in a JSON object or a form.
    Emqx,
    /// The status alone, as in EMQX 4 and NanoMQ.
    Status,
    /// The word `ok`, as in mosquitto-go-auth.
    Text,
}

pub struct HttpCall {
    client: HttpClient,
    target: AuthTemplate,
    form: HttpParamPlacement,
    params: Vec<(String, AuthTemplate)>,
    headers: Vec<(String, String)>,
}

impl HttpCallSettings {
    /// Whether the URL or a parameter uses the variable.
    pub fn uses_variable(&self, value: AuthVariable) -> bool {
        let target = self.url.iter().map(|(_, target)| target);
        let mut all = self.params.iter().map(|(_, template)| template).chain(target);
        all.any(|template| template.has(value))
    }
}

impl HttpCall {
    /// Prepares the request of the options. Returns `None` if the options have no URL.
    pub fn new(settings: &HttpCallSettings, route: &HttpRoute) -> Option<HttpCall> {
        let (url, target) = settings.url.as_ref()?;
        let text = |secret: &SecretBytes| String::from_utf8_lossy(&secret.0).into_owned();
        let headers = settings.headers.iter();
        let mut headers: Vec<(String, String)> =
            headers.map(|(name, value)| (name.clone(), text(value))).collect();
        let kind = match settings.form {
            HttpParamPlacement::Query => None,
            HttpParamPlacement::Encoded => Some("application/x-www-form-urlencoded"),
            HttpParamPlacement::Json => Some("application/json"),
        };
        let is_said = headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type"));
        let kind = kind.filter(|_| !is_said);
        headers.extend(kind.map(|kind| ("content-type".to_string(), kind.to_string())));
        Some(HttpCall {
            client: HttpClient::new(url, route),
            target: target.clone(),
            form: settings.form,
            params: settings.params.clone(),
            headers,
        })
    }

    pub async fn send(&self, target: &str, body: Vec<u8>) -> Result<HttpResponse, RemoteError> {
        let method = if self.form == HttpParamPlacement::Query { "GET" } else { "POST" };
        self.client.request(method, target, &self.headers, body).await
    }

    /// Returns the target and the body. `None` if a value is not UTF-8, as JSON requires, or leads
    /// out of the configured path.
    pub fn build_request(&self, values: AuthVariableSource<'_>) -> Option<(String, Vec<u8>)> {
        let mut target = self.target.fill_url(values);
        if has_dot_segments(&target) {
            return None;
        }
        if !target.starts_with('/') {
            target.insert(0, '/');
        }
        match self.form {
            HttpParamPlacement::Json => {
                let mut body = serde_json::Map::new();
                for (name, template) in &self.params {
                    let value = String::from_utf8(template.fill(values)).ok()?;
                    body.insert(name.clone(), value.into());
                }
                Some((target, serde_json::Value::Object(body).to_string().into_bytes()))
            }
            HttpParamPlacement::Encoded => Some((target, self.encode_params(values).into_bytes())),
            HttpParamPlacement::Query => {
                let query = self.encode_params(values);
                if !query.is_empty() {
                    target.push(if target.contains('?') { '&' } else { '?' });
                    target.push_str(&query);
                }
                Some((target, Vec::new()))
            }
        }
    }

    fn encode_params(&self, values: AuthVariableSource<'_>) -> String {
        let mut out = String::new();
        for (name, template) in &self.params {
            if !out.is_empty() {
                out.push('&');
            }
            percent_encode(name.as_bytes(), &mut out);
            out.push('=');
            percent_encode(&template.fill(values), &mut out);
        }
        out
    }
}
