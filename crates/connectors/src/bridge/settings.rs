//! Options of a `[[bridge]]` and of its rules, as tables of [`OptionRow`].

use super::relay::{BridgeRule, BridgeRules, LoopDetection, RetainedPolicy};
use super::remote_session::scheme;
use crate::option_rows::{
    HOST_CAS, LinkTlsSettings, retry_max_s, retry_min_ms, tls_ca, tls_certificate, tls_key,
};
use crate::topic_map::TopicMap;
use broker::peer::authentication::SecretBytes;
use config::row::{ANY, EXPIRY, OptionRow, count};
use config::value::{NumberUnit, OptionKind};
use mqtt::{ProtocolVersion, QoS};
use net::server_url::ServerUrl;
use std::sync::Arc;
use std::time::Duration;

/// Settings of a bridge, from [`ROWS`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BridgeSettings {
    pub name: Arc<str>,
    pub servers: Vec<ServerUrl>,
    pub version: ProtocolVersion,
    pub client_id: String,
    pub user_name: String,
    pub password: SecretBytes,
    pub keep_alive_s: u16,
    pub answer_timeout_s: u32,
    pub connect_timeout_s: u32,
    pub retry_min_ms: u32,
    pub retry_max_s: u32,
    /// Seconds between attempts to return to the first server; 0 means never.
    pub return_s: u32,
    pub session_expiry_s: u32,
    /// Largest packet to the remote broker in bytes; 0 means the remote broker's Maximum Packet
    /// Size alone.
    pub packet_bytes_max: u32,
    pub status_topic: String,
    pub tls: LinkTlsSettings,
    pub rules: Arc<BridgeRules>,
    /// Whether rules of this broker send rows to the bridge.
    pub takes_rows: bool,
    pub detects_loops: bool,
    /// Whether this process has further bridges.
    pub has_neighbours: bool,
    /// Limits of the local session.
    pub limits: Arc<broker::BrokerOptions>,
}

impl Default for BridgeSettings {
    fn default() -> BridgeSettings {
        BridgeSettings {
            name: "".into(),
            servers: Vec::new(),
            version: ProtocolVersion::V5,
            client_id: String::new(),
            user_name: String::new(),
            password: SecretBytes(Box::default()),
            keep_alive_s: 0,
            answer_timeout_s: 0,
            connect_timeout_s: 0,
            retry_min_ms: 0,
            retry_max_s: 0,
            return_s: 0,
            session_expiry_s: 0,
            packet_bytes_max: 0,
            status_topic: String::new(),
            tls: LinkTlsSettings::default(),
            rules: Arc::default(),
            takes_rows: false,
            detects_loops: false,
            has_neighbours: false,
            limits: Arc::default(),
        }
    }
}

impl BridgeSettings {
    /// Whether any server uses TLS.
    pub fn uses_tls(&self) -> bool {
        self.servers.iter().any(|url| scheme(url).is_tls)
    }

    /// Returns the bound of outgoing packets in bytes, in addition to the remote broker's.
    pub fn packet_bytes_max(&self) -> u32 {
        if self.packet_bytes_max == 0 { u32::MAX } else { self.packet_bytes_max }
    }

    /// Returns the silence of the remote broker after which the connection is lost: keep alive plus
    /// response timeout.
    pub fn silence_limit(&self) -> Duration {
        let answer_timeout = Duration::from_secs(u64::from(self.answer_timeout_s));
        Duration::from_secs(u64::from(self.keep_alive_s)) + answer_timeout
    }

    /// Returns the client id at the remote broker: the option, or the host's name and the bridge's
    /// name.
    pub fn remote_client_id(&self) -> String {
        if !self.client_id.is_empty() {
            return self.client_id.clone();
        }
        let host = rustix::system::uname();
        format!("{}-{}", host.nodename().to_string_lossy(), self.name)
    }

    /// Returns the loop detection for a connection to this server, or `None` if the option is off.
    pub fn loop_detection(&self, server: usize) -> Option<LoopDetection> {
        let url = &self.servers[server];
        let remote = format!("{}:{}", url.host, url.port.unwrap_or(scheme(url).port));
        let detection = || {
            LoopDetection::new(&self.name, &self.remote_client_id(), &remote, self.has_neighbours)
        };
        self.detects_loops.then(detection)
    }

    /// Returns filters of local topics to which inward rules write and which no outward rule
    /// subscribes. A bridge of 3.1.1 has to count the messages of local clients there, see
    /// [`LoopDetection`]. Empty without loop detection, and in 5.0, where the path is enough.
    pub fn watched_filters(&self) -> Vec<String> {
        if !self.detects_loops || self.version.is_v5() {
            return Vec::new();
        }
        let is_carried =
            |filter: &String| self.rules.outward.iter().any(|rule| rule.map.filter == *filter);
        let mut filters: Vec<String> =
            self.rules.inward.iter().map(|rule| rule.map.name_filter()).collect();
        filters.sort_unstable();
        filters.dedup();
        filters.retain(|filter| !is_carried(filter));
        filters
    }
}

/// A rule as given by its options, before the checks of `build_rule`.
#[derive(Clone, Debug, Default)]
pub struct BridgeRuleSettings {
    filter: String,
    topic: String,
    qos: u8,
    clears_retain: bool,
    retained: RetainedPolicy,
}

impl BridgeRuleSettings {
    pub fn build_rule(&self, bridge: &str) -> Result<BridgeRule, String> {
        if self.filter.is_empty() {
            return Err("a rule needs filter = \"...\", the topics that it is for".to_string());
        }
        Ok(BridgeRule {
            map: TopicMap::parse(&self.filter, &self.topic, ("bridge", bridge))?,
            qos: QoS::from_bits(self.qos).unwrap_or_default(),
            keeps_retain: !self.clears_retain,
            retained: self.retained,
        })
    }
}

/// Schemes of servers.
pub const SCHEMES: [&str; 5] = ["tcp", "tls", "ws", "wss", "quic"];

/// Returns the default of `session.inflight_max` for a bridge: many messages in flight hide a long
/// round trip, if the remote broker can limit their number.
pub fn inflight_max(version: ProtocolVersion) -> u16 {
    // In 3.1.1 a broker cannot announce a limit, and closes the connection above its own: mosquitto
    // above 20 unfinished QoS 2 messages, EMQX above 100.
    if version.is_v5() { 16_384 } else { 20 }
}

const SERVERS: OptionKind = OptionKind::Hidden(&OptionKind::List {
    of: "URLs like tls://broker.example:8883",
    check: |text| ServerUrl::parse(text, &SCHEMES).map(drop),
});
pub const TOPIC: OptionKind = OptionKind::Text {
    of: "a topic name",
    check: |text| match text.is_empty() || mqtt::topic::check_topic(text).is_ok() {
        true => Ok(()),
        false => Err("no topic name, use one without + and #".to_string()),
    },
};

pub const ROWS: &[OptionRow<BridgeSettings>] = &[
    OptionRow {
        key: "name",
        kind: ANY,
        default: "",
        live: true,
        also_for: &[],
        short: "what the bridge is called here: in logs, in `$SYS/broker/bridge/` and in the store",
        long: "Its queue belongs to the name. A bridge whose name is gone from the file is gone \
               with its queue.",
        source: "",
        set: |bridge, value| bridge.name = value.text().into(),
    },
    OptionRow {
        key: "servers",
        kind: SERVERS,
        default: "",
        live: true,
        also_for: &[],
        short: "where the other broker is: tcp://, tls://, ws://, wss:// or quic://HOST:PORT",
        long: "Of several the first that answers is taken, in their order. A path counts for ws \
               and wss, and is /mqtt without one.",
        source: "",
        set: |bridge, value| {
            let url =
                |text: &String| ServerUrl::parse(text, &SCHEMES).expect("the row has checked it");
            bridge.servers = value.list().iter().map(url).collect();
        },
    },
    OptionRow {
        key: "version",
        kind: OptionKind::Choice(&["5.0", "3.1.1"]),
        default: "5.0",
        live: true,
        also_for: &[],
        short: "the version of MQTT that is spoken there",
        long: "With 3.1.1 the connection is marked as a bridge's, as mosquitto has it, so that \
               what goes out does not come back; a broker that refuses the mark is spoken to \
               without it, and what comes back with the same name and payload is dropped here. \
               A broker cannot say in 3.1.1 how much it takes at once: 20 messages are under way \
               unless `session.inflight_max` of the bridge says another number.",
        source: "",
        set: |bridge, value| {
            bridge.version =
                if value.text() == "5.0" { ProtocolVersion::V5 } else { ProtocolVersion::V311 };
        },
    },
    OptionRow {
        key: "client_id",
        kind: ANY,
        default: "",
        live: true,
        also_for: &[],
        short: "the client id there; empty is this host's name, a dash and the bridge's name",
        long: "",
        source: "MQTT 5.0, 3.1.3.1",
        set: |bridge, value| bridge.client_id = value.text().into(),
    },
    OptionRow {
        key: "user_name",
        kind: ANY,
        default: "",
        live: true,
        also_for: &[],
        short: "the user name there",
        long: "",
        source: "MQTT 5.0, 3.1.3.5",
        set: |bridge, value| bridge.user_name = value.text().into(),
    },
    OptionRow {
        key: "password",
        kind: OptionKind::Hidden(&ANY),
        default: "",
        live: true,
        also_for: &[],
        short: "the password there",
        long: "It is not shown anywhere.",
        source: "MQTT 5.0, 3.1.3.6",
        set: |bridge, value| bridge.password = SecretBytes(value.text().as_bytes().into()),
    },
    OptionRow {
        key: "keep_alive_s",
        kind: count(1, 65_535, "seconds"),
        default: "30",
        live: true,
        also_for: &[],
        short: "silence of the other broker after which it is asked whether it is there",
        long: "",
        source: "MQTT 5.0, 3.1.2.10",
        set: |bridge, value| bridge.keep_alive_s = value.u16(),
    },
    OptionRow {
        key: "answer_timeout_s",
        kind: count(1, 3600, "seconds"),
        default: "10",
        live: true,
        also_for: &[],
        short: "how long it has for an answer to that",
        long: "So a dead line is noticed `keep_alive_s` and `answer_timeout_s` after the last \
               word that came, whatever is said into it meanwhile. Nothing is lost by a line that \
               dies: what was not acknowledged is sent again.",
        source: "",
        set: |bridge, value| bridge.answer_timeout_s = value.u32(),
    },
    OptionRow {
        key: "connect_timeout_s",
        kind: count(1, 3600, "seconds"),
        default: "10",
        live: true,
        also_for: &[],
        short: "how long connecting may take, from the name's lookup to CONNACK",
        long: "",
        source: "",
        set: |bridge, value| bridge.connect_timeout_s = value.u32(),
    },
    retry_min_ms("the first wait before it connects again", |bridge, value| {
        bridge.retry_min_ms = value.u32();
    }),
    retry_max_s("the longest wait before it connects again", "", |bridge, value| {
        bridge.retry_max_s = value.u32();
    }),
    OptionRow {
        key: "return_s",
        kind: OptionKind::Number {
            min: 1,
            max: 86_400,
            unit: NumberUnit::Named("seconds"),
            word: Some(("never", 0)),
        },
        default: "60",
        live: true,
        also_for: &[],
        short: "how often the first of `servers` is tried while another one is used",
        long: "Once it answers, the bridge goes back to it.",
        source: "",
        set: |bridge, value| bridge.return_s = value.u32(),
    },
    OptionRow {
        key: "session_expiry_s",
        kind: EXPIRY,
        default: "never",
        live: true,
        also_for: &[],
        short: "how long the other broker is to keep what it has for us while we are away (5.0)",
        long: "",
        source: "MQTT 5.0, 3.1.2.11.2",
        set: |bridge, value| bridge.session_expiry_s = value.u32(),
    },
    OptionRow {
        key: "packet_bytes_max",
        kind: OptionKind::Number {
            min: 0,
            max: 268_435_460,
            unit: NumberUnit::Bytes,
            word: Some(("off", 0)),
        },
        default: "off",
        live: true,
        also_for: &[],
        short: "largest packet that is sent there, for brokers that hang up on larger ones",
        long: "What is larger is dropped, and counted as `packet_too_large`. In 5.0 the other \
               broker says what it takes (Maximum Packet Size), and the lower of both counts. In \
               3.1.1 it cannot, and hangs up on what it does not take: say its limit here, of \
               mosquitto its `max_packet_size`, or such a message is sent again with each \
               connection, and holds up what is behind it. After the third time the log and \
               `last_error` name the message.",
        source: "MQTT 5.0, 3.2.2.3.6",
        set: |bridge, value| bridge.packet_bytes_max = value.u32(),
    },
    OptionRow {
        key: "status_topic",
        kind: TOPIC,
        default: "",
        live: true,
        also_for: &[],
        short: "topic there that says whether the bridge is connected: 1 or 0, retained",
        long: "The 0 is the connection's will.",
        source: "MQTT 5.0, 3.1.2.5",
        set: |bridge, value| bridge.status_topic = value.text().into(),
    },
    OptionRow {
        key: "loop_detection",
        kind: OptionKind::Bool,
        default: "true",
        live: true,
        also_for: &[],
        short: "whether messages that come round by other bridges are stopped",
        long: "A message that passes a bridge of a ring again is dropped, counted as `loop` and \
               logged with the bridges that it came by. In 5.0 its path tells: a User Property \
               `godwit-path`, which a bridge adds to the third equal message within 10 seconds, \
               and to all that follow. Where a bridge of 3.1.1 is on the way, equal messages are \
               counted. `docs/bridges.md` says what that can take for a loop.",
        source: "",
        set: |bridge, value| bridge.detects_loops = value.bool(),
    },
    tls_ca("PEM file of the CAs that vouch for the servers", HOST_CAS, |bridge, value| {
        bridge.tls.authorities = value.text().into();
    }),
    tls_certificate(|bridge, value| bridge.tls.certificate = value.text().into()),
    tls_key(|bridge, value| bridge.tls.key = value.text().into()),
    OptionRow {
        key: "tls.alpn",
        kind: OptionKind::List { of: "protocol names", check: |_| Ok(()) },
        default: "",
        live: true,
        also_for: &[],
        short: "protocols that TLS asks for (ALPN)",
        long: "AWS IoT Core wants x-amzn-mqtt-ca on port 443. QUIC asks for mqtt without one.",
        source: "RFC 7301",
        set: |bridge, value| bridge.tls.alpn = value.list().to_vec(),
    },
    OptionRow {
        key: "tls.server_name",
        kind: ANY,
        default: "",
        live: true,
        also_for: &[],
        short: "the name that the server's certificate must have; empty is the URL's host",
        long: "",
        source: "RFC 6066, 3",
        set: |bridge, value| bridge.tls.server_name = value.text().into(),
    },
];

pub const RULE_ROWS: &[OptionRow<BridgeRuleSettings>] = &[
    OptionRow {
        key: "filter",
        kind: ANY,
        default: "",
        live: true,
        also_for: &[],
        short: "the topics, as they are called where they come from",
        long: "Of what comes in also a $share/GROUP/FILTER: with one group several bridges share \
               the work. Of rules that overlap the first counts.",
        source: "MQTT 5.0, 4.7",
        set: |rule, value| rule.filter = value.text().into(),
    },
    OptionRow {
        key: "topic",
        kind: ANY,
        default: "",
        live: true,
        also_for: &[],
        short: "what they are called on the other side; empty leaves them as they are",
        long: "`${topic}` stands for the whole topic, `${1}`, `${2}` and so on for what stands at \
               the filter's wildcards, `${bridge}` for the bridge's name. A response topic is \
               named so that the answer comes back by the rules of the other direction.",
        source: "",
        set: |rule, value| rule.topic = value.text().into(),
    },
    OptionRow {
        key: "qos",
        kind: count(0, 2, ""),
        default: "2",
        live: true,
        also_for: &[],
        short: "the highest QoS that they have on the other side",
        long: "",
        source: "MQTT 5.0, 4.3",
        set: |rule, value| rule.qos = value.number() as u8,
    },
    OptionRow {
        key: "retain",
        kind: OptionKind::Choice(&["keep", "clear"]),
        default: "keep",
        live: true,
        also_for: &[],
        short: "whether a retained message is one on the other side",
        long: "",
        source: "MQTT 5.0, 3.3.1.3",
        set: |rule, value| rule.clears_retain = value.text() == "clear",
    },
    OptionRow {
        key: "retained",
        kind: OptionKind::Choice(&["once", "always", "never"]),
        default: "once",
        live: true,
        also_for: &[],
        short: "whether what is retained already is sent: when the rule is new, always, or not",
        long: "Always is with every connection, where a broker that speaks 3.1.1 knows nothing \
               else.",
        source: "MQTT 5.0, 3.8.3.1",
        set: |rule, value| rule.retained = RetainedPolicy::from_word(value.text()),
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LinkSettings;

    #[test]
    fn a_server_is_its_host_and_port_however_they_are_written() {
        let of = |servers: &[&str]| BridgeSettings {
            client_id: "c".into(),
            servers: servers.iter().map(|url| ServerUrl::parse(url, &SCHEMES).unwrap()).collect(),
            ..BridgeSettings::default()
        };
        let shares = |one: &str, other: &str| !of(&[one]).shared_servers(&of(&[other])).is_empty();
        for (one, other) in [
            ("tcp://h", "tcp://h:1883"),
            ("tls://h:8883", "tls://H"),
            ("quic://h", "quic://h:14567"),
            ("ws://h:80/a", "ws://h:80"),
        ] {
            assert!(shares(one, other) && shares(other, one), "{one} {other}");
        }
        for (one, other) in [("tcp://h", "tls://h"), ("tcp://h", "tcp://h:1884")] {
            assert!(!shares(one, other), "{one} {other}");
        }
    }
}
