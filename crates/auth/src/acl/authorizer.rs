//! Authorization by an HTTP server, with EMQX's requests and answers, and with those of
//! mosquitto-go-auth and NanoMQ, where the status alone decides.
//!
//! Shards send requests; tasks of the control plane's runtime wait for answers. Decisions are
//! cached by the session, not here.

use crate::http_answer::StatusDecision;
use crate::remote::http_call::{HttpAnswerFormat, HttpCall, HttpCallSettings};
use crate::remote::template::{AuthVariable, AuthVariableSource};
use broker::interface::authz::{AuthzDecision, AuthzRequest};
use broker::options::client_groups::AuthzOptions;
use engine::ConnectionLiveness;
use engine::limited_log::LimitedLog;
use net::control_runtime::ControlRuntime;
use net::http_client::{HttpResponse as Said, HttpRoute};
use net::http_proxy::HttpProxy;
use net::server_pool::{
    ConnectionPool, PoolError, RemoteError, RemoteLimits, RemoteServer, RequestGuard,
};
use rustls::ClientConfig;
use std::sync::{Arc, Mutex, PoisonError};
use tracing::warn;

/// Values of the option rows about authorization by HTTP.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HttpAuthzSettings {
    pub answer: HttpAnswerFormat,
    pub call: HttpCallSettings,
    pub proxy: HttpProxy,
    pub cache_s: u32,
}

impl HttpAuthzSettings {
    /// Returns the options for the shards; `None` if no authorization server is configured.
    pub fn broker_settings(&self) -> Option<AuthzOptions> {
        let is_particular = self.call.uses_variable(AuthVariable::QoS)
            || self.call.uses_variable(AuthVariable::Retain);
        let asks =
            AuthzOptions { cache_ms: self.cache_s * 1000, uses_qos_or_retain: is_particular };
        self.call.url.is_some().then_some(asks)
    }
}

/// Servers that authorize the clients of each listener; `None` if no server is configured.
#[derive(Default)]
pub struct ListenerAuthzPools {
    /// Server for listeners without an entry in `own`; `None` if no server is configured.
    pub all: Option<Arc<ConnectionPool<HttpAuthzServer>>>,
    /// Server of each listener that has its own option, indexed by `ListenerId`; `Some(None)`
    /// disables the server for the listener.
    pub own: Vec<Option<Option<Arc<ConnectionPool<HttpAuthzServer>>>>>,
}

impl From<Option<Arc<ConnectionPool<HttpAuthzServer>>>> for ListenerAuthzPools {
    fn from(all: Option<Arc<ConnectionPool<HttpAuthzServer>>>) -> ListenerAuthzPools {
        ListenerAuthzPools { all, own: Vec::new() }
    }
}

/// Authorizes publishes and subscriptions through HTTP servers. All shards share one authorizer.
#[derive(Default)]
pub struct Authorizer {
    servers: Mutex<ListenerAuthzPools>,
    failure_log: LimitedLog,
}

impl Authorizer {
    /// Replaces the servers. Requests in progress still use the earlier ones.
    pub fn replace_servers(&self, desks: impl Into<ListenerAuthzPools>) {
        *self.servers.lock().unwrap_or_else(PoisonError::into_inner) = desks.into();
    }

    /// Sends a shard's request, on the shard's thread. `reply` is called later with the decision.
    pub fn authorize(
        &self,
        runtime: &ControlRuntime,
        question: AuthzRequest,
        reply: impl FnOnce(AuthzDecision) + Send + 'static,
    ) {
        let desks = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        let own = desks.own.get(usize::from(question.listener.0)).and_then(Option::as_ref);
        let desk = own.unwrap_or(&desks.all).clone();
        drop(desks);
        let Some(desk) = desk else { return reply(AuthzDecision::Unavailable) };
        let trouble = self.failure_log.clone();
        let Some(asked) = RequestGuard::new(desk) else {
            log_authz_failure(&trouble, "too many questions wait");
            return reply(AuthzDecision::Unavailable);
        };
        runtime.spawn(async move {
            let found = asked.run(&question, &ConnectionLiveness::default()).await;
            let answer = found.unwrap_or_else(|why| {
                match why {
                    PoolError::Abandoned => {}
                    PoolError::Busy => log_authz_failure(&trouble, "too many questions wait"),
                    PoolError::Failed(why) => log_authz_failure(&trouble, &why),
                }
                AuthzDecision::Unavailable
            });
            // The slot of the request is free before the reply arrives.
            drop(asked);
            reply(answer);
        });
    }
}

fn log_authz_failure(trouble: &LimitedLog, why: &str) {
    let why = why.to_string();
    trouble.log(1, move |count| {
        warn!(target: "godwit::permission", %why, count, "nobody can say what a client may do");
    });
}

/// An HTTP server that authorizes actions of clients.
pub struct HttpAuthzServer {
    call: HttpCall,
    answer: HttpAnswerFormat,
    ports: Vec<Option<u16>>,
}

impl HttpAuthzServer {
    /// Returns the pool of connections to the server; `None` without a URL.
    pub fn connection_pool(
        settings: &HttpAuthzSettings,
        tls: Option<Arc<ClientConfig>>,
        bounds: RemoteLimits,
        ports: &[Option<u16>],
    ) -> Option<Arc<ConnectionPool<HttpAuthzServer>>> {
        let route = HttpRoute { tls, proxy: settings.proxy.clone(), follows_redirects: false };
        let call = HttpCall::new(&settings.call, &route)?;
        let (answer, ports) = (settings.answer, ports.to_vec());
        Some(ConnectionPool::new(HttpAuthzServer { call, answer, ports }, bounds))
    }
}

impl RemoteServer for HttpAuthzServer {
    type Conn = ();
    type Question = AuthzRequest;
    type Reply = AuthzDecision;

    /// Succeeds at once: the HTTP client opens connections itself, as many as it has concurrent
    /// requests.
    async fn connect(&self) -> Result<(), String> {
        Ok(())
    }

    async fn request(
        &self,
        _conn: &mut (),
        question: &AuthzRequest,
    ) -> Result<AuthzDecision, RemoteError> {
        let values = AuthVariableSource::AuthzRequest { question, ports: &self.ports };
        // What a client says of itself is text: it always has a question.
        let Some((target, body)) = self.call.build_request(values) else {
            return Ok(AuthzDecision::Deny);
        };
        let said = self.call.send(&target, body).await?;
        read_answer(&said, self.answer).map_err(RemoteError::ErrorReply)
    }
}

fn read_answer(said: &Said, form: HttpAnswerFormat) -> Result<AuthzDecision, String> {
    match form {
        HttpAnswerFormat::Json => read_json_answer(said),
        HttpAnswerFormat::Emqx if said.status == 200 && !said.is_json => {
            Err("its answer is not said to be JSON, which acl.http_answer asks for".to_string())
        }
        HttpAnswerFormat::Emqx => read_json_answer(said),
        HttpAnswerFormat::Status => match StatusDecision::of(said) {
            StatusDecision::Allow => Ok(AuthzDecision::Allow),
            StatusDecision::Deny | StatusDecision::Ignore => Ok(AuthzDecision::Deny),
            StatusDecision::ReadBody => read_json_answer(said),
            StatusDecision::ServerFailed => Err(format!("it answered with status {}", said.status)),
        },
        HttpAnswerFormat::Text => match StatusDecision::of_text(said) {
            StatusDecision::Allow => Ok(AuthzDecision::Allow),
            StatusDecision::ServerFailed => Err(format!("it answered with status {}", said.status)),
            _ => Ok(AuthzDecision::Deny),
        },
    }
}

/// Reads an answer in EMQX's form: 204 allows, 401 and 403 deny, 200 decides by `result` in JSON or
/// by a word. An HTML page, such as a proxy's, is an error.
fn read_json_answer(said: &Said) -> Result<AuthzDecision, String> {
    let word = match said.status {
        204 => return Ok(AuthzDecision::Allow),
        401 | 403 => return Ok(AuthzDecision::Deny),
        200 if said.is_json => {
            let body: Option<serde_json::Value> = serde_json::from_slice(&said.body).ok();
            let body = body.ok_or("its answer is not JSON")?;
            body.get("result").and_then(|word| word.as_str()).unwrap_or_default().to_string()
        }
        200 if said.body.is_empty() => return Ok(AuthzDecision::Allow),
        200 => String::from_utf8_lossy(&said.body).trim().to_lowercase(),
        status => return Err(format!("it answered with status {status}")),
    };
    match word.as_str() {
        "allow" => Ok(AuthzDecision::Allow),
        "ok" if !said.is_json => Ok(AuthzDecision::Allow),
        // There is no further backend.
        "deny" | "ignore" => Ok(AuthzDecision::Deny),
        _ => Err("its answer is not allow, deny or ignore".to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(status: u16, is_json: bool, body: &str) -> Option<AuthzDecision> {
        let body = body.to_string().into_bytes().into();
        read_answer(&Said { status, is_json, body, ..Said::default() }, HttpAnswerFormat::Json).ok()
    }

    #[test]
    fn a_status_or_a_word_decides_where_the_option_says_so() {
        let said = |form, status, is_json, body: &str| {
            let body = body.to_string().into_bytes().into();
            read_answer(&Said { status, is_json, body, ..Said::default() }, form).ok()
        };
        use HttpAnswerFormat::{Status, Text};
        for (form, status, is_json, body, answer) in [
            (Status, 200, false, "", Some(AuthzDecision::Allow)),
            (Status, 200, true, r#"{"code":0}"#, Some(AuthzDecision::Allow)),
            (Status, 200, false, "<html>welcome</html>", Some(AuthzDecision::Allow)),
            (Status, 200, true, r#"{"result":"deny"}"#, Some(AuthzDecision::Deny)),
            (Status, 200, false, "ignore", Some(AuthzDecision::Deny)),
            (Status, 404, false, "", Some(AuthzDecision::Deny)),
            (Status, 503, false, "", None),
            (Text, 200, false, "ok", Some(AuthzDecision::Allow)),
            (Text, 200, false, "", Some(AuthzDecision::Deny)),
            (Text, 500, false, "ok", None),
        ] {
            assert_eq!(said(form, status, is_json, body), answer, "{form:?} {status} {body}");
        }
    }

    #[test]
    fn an_answer_is_a_status_a_word_or_an_object() {
        for (status, is_json, body) in [
            (204, false, ""),
            (200, false, ""),
            (200, false, "allow"),
            (200, false, "OK\n"),
            (200, true, r#"{"result":"allow","more":1}"#),
        ] {
            assert_eq!(said(status, is_json, body), Some(AuthzDecision::Allow), "{status} {body}");
        }
        for (status, is_json, body) in [
            (401, false, ""),
            (403, true, r#"{"result":"allow"}"#),
            (200, false, "deny"),
            (200, true, r#"{"result":"deny"}"#),
            (200, true, r#"{"result":"ignore"}"#),
        ] {
            assert_eq!(said(status, is_json, body), Some(AuthzDecision::Deny), "{status} {body}");
        }
    }

    #[test]
    fn nothing_else_is_an_answer() {
        for (status, is_json, body) in [
            (200, false, "<html>welcome</html>"),
            (200, false, r#"{"result":"allow"}"#),
            (200, true, ""),
            (200, true, "allow"),
            (200, true, r#"{"result":"Allow"}"#),
            (200, true, r#"{"result":true}"#),
            (200, true, r#"{"result":"ok"}"#),
            (301, false, ""),
            (404, true, r#"{"result":"allow"}"#),
            (500, false, "allow"),
        ] {
            assert_eq!(said(status, is_json, body), None, "{status} {body}");
        }
    }
}
