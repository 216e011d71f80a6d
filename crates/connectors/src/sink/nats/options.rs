//! Options of a sink into NATS.

use super::protocol::SCHEMES;
use super::subject::NatsSubject;
use super::{ID, NatsSettings};
use crate::sink::columns::{self, SinkColumns};
use crate::sink::settings::{SinkSettings, SinkTarget};
use config::row::OptionRow;
use config::value::OptionKind;
use net::server_url::ServerUrl;

/// Values of the option rows `nats.*`, before the checks of `build_target`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NatsOptions {
    pub url: String,
    others: Vec<String>,
    subject: String,
    headers: Vec<String>,
}

impl NatsOptions {
    pub(crate) fn build_target(&self) -> Result<SinkTarget, String> {
        if self.subject.is_empty() {
            return Err("nats.url needs nats.subject, as \"mqtt.${topic}\"".to_string());
        }
        let (url, subject) =
            (ServerUrl::parse(&self.url, SCHEMES)?, NatsSubject::parse(&self.subject)?);
        let headers = SinkColumns::parse(&self.headers)?;
        let others = self.others.iter().map(|text| parse_other_server(text));
        let others = others.collect::<Result<Vec<_>, _>>()?.into_iter();
        let others =
            others.map(|ServerUrl { host, port, .. }| ServerUrl { host, port, ..url.clone() });
        let servers = std::iter::once(url.clone()).chain(others).collect();
        Ok(SinkTarget::Nats(NatsSettings { servers, subject, headers }))
    }
}

/// Parses `HOST:PORT`. The error does not quote the value, which may contain a password.
fn parse_other_server(text: &str) -> Result<ServerUrl, String> {
    match ServerUrl::parse(&format!("nats://{text}"), SCHEMES) {
        Ok(url) if url.user.is_none() && url.password.is_none() && url.path.is_empty() => Ok(url),
        _ => Err("no server is named so, use HOST:4222; the rest is as in nats.url".to_string()),
    }
}

fn check_header(text: &str) -> Result<(), String> {
    let (name, _) = columns::parse(text)?;
    if name.eq_ignore_ascii_case(ID) {
        return Err(format!("{ID} is what the sink knows messages by, leave it out"));
    }
    match name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b':') {
        true => Ok(()),
        false => Err(format!("{name:?} is not a header's name, use letters, digits and -")),
    }
}

pub(crate) const ROWS: &[OptionRow<SinkSettings>] = &[
    OptionRow {
        key: "nats.url",
        kind: OptionKind::Hidden(&OptionKind::Text {
            of: "a URL like nats://USER:PASSWORD@HOST:4222",
            check: |text| match text {
                "" => Ok(()),
                text => ServerUrl::parse(text, SCHEMES).map(drop),
            },
        }),
        default: "",
        live: true,
        also_for: &[],
        short: "the NATS server whose stream (JetStream) gets a message a message; tls is with TLS",
        long: "A user without a password is a token. A batch is under way together, and each \
               message is answered. It needs NATS 2.2.",
        source: "",
        set: |sink, value| sink.given.nats.url = value.text().into(),
    },
    OptionRow {
        key: "nats.others",
        kind: OptionKind::List {
            of: "HOST:PORT",
            check: |text| parse_other_server(text).map(drop),
        },
        default: "",
        live: true,
        also_for: &[],
        short: "other servers of the same cluster: each is tried where the one before is not there",
        long: "Scheme, user and password are those of `nats.url`. It stays where it is until that \
               one goes.",
        source: "",
        set: |sink, value| sink.given.nats.others = value.list().to_vec(),
    },
    OptionRow {
        key: "nats.subject",
        kind: OptionKind::Text {
            of: "a subject like mqtt.${topic}",
            check: |text| match text {
                "" => Ok(()),
                text => NatsSubject::parse(text).map(drop),
            },
        },
        default: "",
        live: true,
        also_for: &[],
        short: "the subject of a message",
        long: "In `${topic}` each `/` is a dot. A dot, `*`, `>`, `%` and white space of a value \
               are written as %XX, `$` and `_` where the subject begins with them, and a level \
               that is empty as `%`.",
        source: "",
        set: |sink, value| sink.given.nats.subject = value.text().into(),
    },
    OptionRow {
        key: "nats.headers",
        kind: OptionKind::List { of: "NAME=${...}", check: check_header },
        default: "topic=${topic},event=${event},clientid=${clientid},qos=${qos},retain=${retain},\
                  timestamp_ms=${timestamp_ms}",
        live: true,
        also_for: &[],
        short: "the headers of a message; one that is empty is left out",
        long: "Control characters are written as %XX.",
        source: "",
        set: |sink, value| sink.given.nats.headers = value.list().to_vec(),
    },
];
