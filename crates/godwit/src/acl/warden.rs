//! A server that is asked by HTTP what a client may do, with EMQX's questions and answers, and
//! those of mosquitto-go-auth and NanoMQ, who read the status alone.
//!
//! Shards ask; the control plane's runtime waits. Nothing is remembered here: that is the
//! session's.

use crate::identity::answer::StatusAnswer;
use crate::identity::remote::call::{AnswerForm, Call, CallSettings};
use crate::identity::remote::http::Answer as Said;
use crate::identity::remote::template::{Value, Values};
use crate::identity::remote::{Asked, Bounds, Desk, Server, Trouble, Unanswered};
use crate::runtime::Runtime;
use crate::withheld::LogRateLimiter;
use broker::ask::{Answer, Question};
use broker::options::Asks;
use engine::ConnectionLiveness;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::client::conn::http1::SendRequest;
use rustls::ClientConfig;
use std::sync::{Arc, Mutex, PoisonError};
use tracing::warn;

/// What the rows of the table say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PermitSettings {
    pub(crate) answer: AnswerForm,
    pub(crate) call: CallSettings,
    pub(crate) cache_s: u32,
}

impl PermitSettings {
    /// What the shards are told.
    pub(crate) fn asks(&self) -> Option<Asks> {
        let is_particular = self.call.says(Value::QoS) || self.call.says(Value::Retain);
        let asks = Asks { kept_ms: self.cache_s * 1000, is_particular };
        self.call.url.is_some().then_some(asks)
    }
}

/// Whom the shards ask about the clients of each listener; none where nobody is asked.
#[derive(Default)]
pub(crate) struct ListenerDesks {
    /// Of listeners without an entry.
    pub(crate) all: Option<Arc<Desk<Permits>>>,
    /// By `ListenerId`.
    pub(crate) own: Vec<Option<Option<Arc<Desk<Permits>>>>>,
}

impl From<Option<Arc<Desk<Permits>>>> for ListenerDesks {
    fn from(all: Option<Arc<Desk<Permits>>>) -> ListenerDesks {
        ListenerDesks { all, own: Vec::new() }
    }
}

/// Shared by the shards, which ask.
#[derive(Default)]
pub(crate) struct Warden {
    desks: Mutex<ListenerDesks>,
    trouble: LogRateLimiter,
}

impl Warden {
    /// Another server for whatever is asked from now on.
    pub(crate) fn change(&self, desks: impl Into<ListenerDesks>) {
        *self.desks.lock().unwrap_or_else(PoisonError::into_inner) = desks.into();
    }

    /// A question of a shard, on the shard's thread.
    pub(crate) fn hear(
        &self,
        runtime: &Runtime,
        question: Question,
        reply: impl FnOnce(Answer) + Send + 'static,
    ) {
        let desks = self.desks.lock().unwrap_or_else(PoisonError::into_inner);
        let own = desks.own.get(usize::from(question.listener.0)).and_then(Option::as_ref);
        let desk = own.unwrap_or(&desks.all).clone();
        drop(desks);
        let Some(desk) = desk else { return reply(Answer::Silence) };
        let trouble = self.trouble.clone();
        let Some(asked) = Asked::new(desk) else {
            tell(&trouble, "too many questions wait");
            return reply(Answer::Silence);
        };
        runtime.spawn(async move {
            let found = asked.find(&question, &ConnectionLiveness::default()).await;
            let answer = found.unwrap_or_else(|why| {
                match why {
                    Unanswered::Abandoned => {}
                    Unanswered::Busy => tell(&trouble, "too many questions wait"),
                    Unanswered::Failed(why) => tell(&trouble, &why),
                }
                Answer::Silence
            });
            // Its place is free before anybody hears of it.
            drop(asked);
            reply(answer);
        });
    }
}

fn tell(trouble: &LogRateLimiter, why: &str) {
    let why = why.to_string();
    trouble.log(1, move |count| {
        warn!(target: "godwit::permission", %why, count, "nobody can say what a client may do");
    });
}

/// The server.
pub(crate) struct Permits {
    call: Call,
    answer: AnswerForm,
    ports: Vec<Option<u16>>,
}

impl Permits {
    /// `None` where there is no URL.
    pub(crate) fn desk(
        settings: &PermitSettings,
        tls: Option<Arc<ClientConfig>>,
        bounds: Bounds,
        ports: &[Option<u16>],
    ) -> Option<Arc<Desk<Permits>>> {
        let call = Call::new(&settings.call, tls)?;
        let (answer, ports) = (settings.answer, ports.to_vec());
        Some(Desk::new(Permits { call, answer, ports }, bounds))
    }
}

impl Server for Permits {
    type Conn = SendRequest<Full<Bytes>>;
    type Question = Question;
    type Found = Answer;

    async fn connect(&self) -> Result<Self::Conn, String> {
        self.call.connect().await
    }

    async fn ask(&self, conn: &mut Self::Conn, question: &Question) -> Result<Answer, Trouble> {
        let values = Values::Wish { question, ports: &self.ports };
        // What a client says of itself is text: it always has a question.
        let Some((target, body)) = self.call.question(values) else { return Ok(Answer::Deny) };
        let said = self.call.ask(conn, &target, body).await?;
        read(&said, self.answer).map_err(Trouble::Answered)
    }
}

fn read(said: &Said, form: AnswerForm) -> Result<Answer, String> {
    match form {
        AnswerForm::Json => read_words(said),
        AnswerForm::Status => match StatusAnswer::of(said) {
            StatusAnswer::Allow => Ok(Answer::Allow),
            StatusAnswer::Deny | StatusAnswer::Ignore => Ok(Answer::Deny),
            StatusAnswer::Says => read_words(said),
            StatusAnswer::Trouble => Err(format!("it answered with status {}", said.status)),
        },
        AnswerForm::Text => match StatusAnswer::of_text(said) {
            StatusAnswer::Allow => Ok(Answer::Allow),
            StatusAnswer::Trouble => Err(format!("it answered with status {}", said.status)),
            _ => Ok(Answer::Deny),
        },
    }
}

/// A page of somebody between us is no answer.
fn read_words(said: &Said) -> Result<Answer, String> {
    let word = match said.status {
        204 => return Ok(Answer::Allow),
        401 | 403 => return Ok(Answer::Deny),
        200 if said.is_json => {
            let body: Option<serde_json::Value> = serde_json::from_slice(&said.body).ok();
            let body = body.ok_or("its answer is no JSON")?;
            body.get("result").and_then(|word| word.as_str()).unwrap_or_default().to_string()
        }
        200 if said.body.is_empty() => return Ok(Answer::Allow),
        200 => String::from_utf8_lossy(&said.body).trim().to_lowercase(),
        status => return Err(format!("it answered with status {status}")),
    };
    match word.as_str() {
        "allow" => Ok(Answer::Allow),
        "ok" if !said.is_json => Ok(Answer::Allow),
        // Nobody else is asked.
        "deny" | "ignore" => Ok(Answer::Deny),
        _ => Err("its answer is not allow, deny or ignore".to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(status: u16, is_json: bool, body: &str) -> Option<Answer> {
        let body = body.to_string().into_bytes().into();
        read(&Said { status, is_json, body, ..Said::default() }, AnswerForm::Json).ok()
    }

    #[test]
    fn a_status_or_a_word_decides_where_the_option_says_so() {
        let said = |form, status, is_json, body: &str| {
            let body = body.to_string().into_bytes().into();
            read(&Said { status, is_json, body, ..Said::default() }, form).ok()
        };
        use AnswerForm::{Status, Text};
        for (form, status, is_json, body, answer) in [
            (Status, 200, false, "", Some(Answer::Allow)),
            (Status, 200, true, r#"{"code":0}"#, Some(Answer::Allow)),
            (Status, 200, false, "<html>welcome</html>", Some(Answer::Allow)),
            (Status, 200, true, r#"{"result":"deny"}"#, Some(Answer::Deny)),
            (Status, 200, false, "ignore", Some(Answer::Deny)),
            (Status, 404, false, "", Some(Answer::Deny)),
            (Status, 503, false, "", None),
            (Text, 200, false, "ok", Some(Answer::Allow)),
            (Text, 200, false, "", Some(Answer::Deny)),
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
            assert_eq!(said(status, is_json, body), Some(Answer::Allow), "{status} {body}");
        }
        for (status, is_json, body) in [
            (401, false, ""),
            (403, true, r#"{"result":"allow"}"#),
            (200, false, "deny"),
            (200, true, r#"{"result":"deny"}"#),
            (200, true, r#"{"result":"ignore"}"#),
        ] {
            assert_eq!(said(status, is_json, body), Some(Answer::Deny), "{status} {body}");
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
