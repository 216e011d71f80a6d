//! Options of a sink into Kafka.

use super::KafkaSettings;
use super::protocol::{SaslCredentials, SaslMechanism};
use crate::sink::columns::{self, SinkColumns};
use crate::sink::message::SinkMessage;
use crate::sink::settings::{SinkSettings, SinkTarget, check_template};
use crate::sink::template::SinkTemplate;
use broker::peer::authentication::SecretBytes;
use config::row::{ANY, OptionRow};
use config::value::OptionKind;
use net::scram::ScramHash;

/// Values of the option rows `kafka.*`, before the checks of `build_target`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KafkaOptions {
    pub servers: Vec<String>,
    topic: String,
    key: String,
    headers: Vec<String>,
    has_tls: bool,
    mechanism: SaslMechanism,
    user: String,
    password: Option<SecretBytes>,
}

impl KafkaOptions {
    pub(crate) fn build_target(&self, timeout_ms: u32) -> Result<SinkTarget, String> {
        if self.topic.is_empty() {
            return Err("kafka.servers needs kafka.topic".to_string());
        }
        let who = match (&self.password, self.user.as_str()) {
            (None, "") => None,
            (None, _) | (_, "") => {
                return Err("kafka.user and kafka.password go together".to_string());
            }
            (Some(password), user) => {
                let password = String::from_utf8_lossy(&password.0).into_owned();
                Some(SaslCredentials { mechanism: self.mechanism, user: user.into(), password })
            }
        };
        let servers =
            self.servers.iter().map(|text| parse_server(text)).collect::<Result<_, _>>()?;
        let key = (!self.key.is_empty()).then(|| SinkTemplate::parse(&self.key)).transpose()?;
        Ok(SinkTarget::Kafka(KafkaSettings {
            servers,
            has_tls: self.has_tls,
            who,
            topic: parse_topic(&self.topic)?,
            key,
            headers: SinkColumns::parse(&self.headers)?,
            timeout_ms,
        }))
    }
}

/// Parses `HOST:PORT`; an IPv6 address has brackets.
fn parse_server(text: &str) -> Result<(String, u16), String> {
    let wrong = || format!("{text:?} is not a server, use HOST:9092");
    let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let port = port.parse().ok().filter(|port| *port > 0).ok_or_else(wrong)?;
    let is_name = |c: char| c.is_ascii_alphanumeric() || "-._:".contains(c);
    match !host.is_empty() && host.chars().all(is_name) {
        true => Ok((host.to_string(), port)),
        false => Err(wrong()),
    }
}

fn parse_topic(text: &str) -> Result<SinkTemplate, String> {
    let template = SinkTemplate::parse(text)?;
    let sample = template.fill_by(&SinkMessage::default(), |_, _, topic| topic.push('x'));
    let is_legal = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    match sample.chars().all(is_legal) && super::is_legal(&sample) {
        true => Ok(template),
        false => Err(format!(
            "{text:?} is not a topic of Kafka: use letters, digits, \".\", \"_\", \"-\""
        )),
    }
}

pub(crate) const ROWS: &[OptionRow<SinkSettings>] = &[
    OptionRow {
        key: "kafka.servers",
        kind: OptionKind::List { of: "HOST:PORT", check: |text| parse_server(text).map(drop) },
        default: "",
        live: true,
        also_for: &[],
        short: "brokers of the Kafka cluster whose topics get a record a message",
        long: "The first that answers says who the others are. A batch is one request to each \
               broker that leads a partition, and all replicas in sync have what is acknowledged \
               (acks=all). It needs Kafka 1.0.",
        source: "",
        set: |sink, value| sink.given.kafka.servers = value.list().to_vec(),
    },
    OptionRow {
        key: "kafka.topic",
        kind: OptionKind::Text {
            of: "a topic of Kafka, which may have ${topic[1]} and the like in it",
            check: |text| match text {
                "" => Ok(()),
                text => parse_topic(text).map(drop),
            },
        },
        default: "",
        live: true,
        also_for: &[],
        short: "the topic of a record",
        long: "In `${topic}` each `/` is a dot; what a topic of Kafka does not have is `_`. The \
               sink makes no topics, and waits for one that is not there.",
        source: "",
        set: |sink, value| sink.given.kafka.topic = value.text().into(),
    },
    OptionRow {
        key: "kafka.key",
        kind: OptionKind::Text { of: "text with ${topic} and the like", check: check_template },
        default: "",
        live: true,
        also_for: &[],
        short: "the key of a record; those of one key keep their order, in one partition",
        long: "The partition is the one where Kafka's own clients put the key. Without, a record \
               has no key, and each batch goes to another partition; so does a record whose key \
               has a placeholder without a value.",
        source: "",
        set: |sink, value| sink.given.kafka.key = value.text().into(),
    },
    OptionRow {
        key: "kafka.headers",
        kind: OptionKind::List { of: "NAME=${...}", check: |text| columns::parse(text).map(drop) },
        default: "topic=${topic},event=${event},clientid=${clientid},qos=${qos},retain=${retain}",
        live: true,
        also_for: &[],
        short: "the headers of a record; one that is empty is left out",
        long: "The record's own timestamp is `${timestamp_ms}`.",
        source: "",
        set: |sink, value| sink.given.kafka.headers = value.list().to_vec(),
    },
    OptionRow {
        key: "kafka.tls",
        kind: OptionKind::Bool,
        default: "false",
        live: true,
        also_for: &[],
        short: "whether its brokers are spoken to with TLS",
        long: "",
        source: "",
        set: |sink, value| sink.given.kafka.has_tls = value.bool(),
    },
    OptionRow {
        key: "kafka.sasl",
        kind: OptionKind::Choice(&["plain", "scram-sha-256", "scram-sha-512"]),
        default: "plain",
        live: true,
        also_for: &[],
        short: "how kafka.user proves who it is; plain tells the password",
        long: "",
        source: "RFC 4616, RFC 7677",
        set: |sink, value| {
            sink.given.kafka.mechanism = match value.text() {
                "scram-sha-256" => SaslMechanism::Scram(ScramHash::Sha256),
                "scram-sha-512" => SaslMechanism::Scram(ScramHash::Sha512),
                _ => SaslMechanism::Plain,
            };
        },
    },
    OptionRow {
        key: "kafka.user",
        kind: ANY,
        default: "",
        live: true,
        also_for: &[],
        short: "who it is to the brokers; without they do not ask",
        long: "",
        source: "",
        set: |sink, value| sink.given.kafka.user = value.text().into(),
    },
    OptionRow {
        key: "kafka.password",
        kind: OptionKind::Hidden(&OptionKind::Text { of: "a password", check: |_| Ok(()) }),
        default: "",
        live: true,
        also_for: &[],
        short: "its password",
        long: "",
        source: "",
        set: |sink, value| {
            let text = value.text();
            sink.given.kafka.password =
                (!text.is_empty()).then(|| SecretBytes(text.as_bytes().into()));
        },
    },
];
