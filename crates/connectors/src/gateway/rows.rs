//! Options of a `[[gateway]]` and of its rules, as tables of [`OptionRow`].

use super::address::SocketAddress;
use super::formats::MultipartPolicy;
use super::rules::GatewayRuleSettings;
use super::settings::GatewaySettings;
use crate::bridge::relay::RetainedPolicy;
use crate::bridge::settings::TOPIC;
use crate::option_rows::{retry_max_s, retry_min_ms, tls_ca, tls_certificate, tls_key};
use broker::limits::LINK_IDS;
use broker::peer::authentication::SecretBytes;
use config::row::{ANY, OptionRow, bytes, count};
use config::value::{OptionKind, OptionValue, file_mode};
use zmtp_sp::{ProtocolFamily, SocketType};

const PLACES: OptionKind = OptionKind::List {
    of: "URLs like tcp://127.0.0.1:5555",
    check: |text| SocketAddress::parse(text).map(drop),
};
const MODE: OptionKind =
    OptionKind::Text { of: "a file mode like \"660\"", check: |text| file_mode(text).map(drop) };
const WORD: OptionKind = OptionKind::Text {
    of: "a sign like \".\"",
    check: |text| match text.is_empty() || text.contains(['+', '#', '\0']) {
        true => Err("it needs a sign, and none of + and #".to_string()),
        false => Ok(()),
    },
};

const GROUPS: OptionKind = OptionKind::List {
    of: "names of groups",
    check: |text| match text.is_empty() || text.starts_with(LINK_IDS) {
        true => Err("a group has a name, which does not begin with $link/".to_string()),
        false => Ok(()),
    },
};

fn parse_addresses(value: &OptionValue) -> Vec<SocketAddress> {
    let place = |text: &String| SocketAddress::parse(text).expect("the row has checked it");
    value.list().iter().map(place).collect()
}

pub const ROWS: &[OptionRow<GatewaySettings>] = &[
    OptionRow {
        key: "name",
        kind: ANY,
        default: "",
        live: true,
        also_for: &[],
        short: "what the gateway is called here: in logs, in `$SYS/broker/gateway/` and in the \
               store",
        long: "Its queue belongs to the name. A gateway whose name is gone from the file is gone \
               with its queue.",
        source: "",
        set: |gateway, value| gateway.name = value.text().into(),
    },
    OptionRow {
        key: "protocol",
        kind: OptionKind::Choice(&["zmq", "sp"]),
        default: "zmq",
        live: true,
        also_for: &[],
        short: "whose sockets they are: those of ZeroMQ, or of nanomsg and NNG",
        long: "zmq is ZMTP 3.0 and 3.1 with the mechanisms NULL and PLAIN; sp is what nanomsg, \
               NNG and mangos speak.",
        source: "rfc.zeromq.org/spec/37; sp-tcp-mapping-01",
        set: |gateway, value| {
            gateway.family =
                if value.text() == "sp" { ProtocolFamily::Sp } else { ProtocolFamily::Zmq };
        },
    },
    OptionRow {
        key: "pattern",
        kind: OptionKind::Choice(SocketType::NAMES),
        default: "pub",
        live: true,
        also_for: &[],
        short: "what kind of socket ours is; the others are of the kind that goes with it",
        long: "pub, sub, push, pull, pair, req and rep are of both; xpub and xsub of zmq; pair1, \
               bus, surveyor and respondent of sp. Clients of MQTT ask by req and surveyor, and \
               answer by rep and respondent.",
        source: "",
        set: |gateway, value| {
            gateway.pattern = SocketType::from_name(value.text()).expect("it is one of the names");
        },
    },
    OptionRow {
        key: "listen",
        kind: PLACES,
        default: "",
        live: true,
        also_for: &[],
        short: "where sockets connect to it: tcp://HOST:PORT, ipc:///PATH, tls+tcp://, ws:// or \
               wss://",
        long: "zmq has tcp and ipc. Where sockets of other hosts could come in they have to show \
               who they are: by user_name and password (zmq), by certificates that tls.ca vouches \
               for (sp), or `allow_anonymous` is true.",
        source: "",
        set: |gateway, value| gateway.listen = parse_addresses(value),
    },
    OptionRow {
        key: "dial",
        kind: PLACES,
        default: "",
        live: true,
        also_for: &[],
        short: "where it connects to; each of them is a peer",
        long: "",
        source: "",
        set: |gateway, value| gateway.dial = parse_addresses(value),
    },
    OptionRow {
        key: "form",
        kind: OptionKind::Choice(&["auto", "frames", "delimited", "json", "raw"]),
        default: "auto",
        live: true,
        also_for: &[],
        short: "how a topic and a payload become a message of theirs",
        long: "frames: the topic is the first frame, the payload the others. delimited: topic, \
               delimiter and payload in one frame. json: an object with topic, payload, qos, \
               retain and properties; what is no text is a data URL in it. raw: the payload \
               alone. auto is raw for what asks and answers, else frames for zmq and delimited \
               for sp.",
        source: "",
        set: |gateway, value| gateway.form_given = value.text().into(),
    },
    OptionRow {
        key: "delimiter",
        kind: ANY,
        default: "/",
        live: true,
        also_for: &[],
        short: "what stands between topic and payload in form = \"delimited\"",
        long: "As NanoMQ has it: where it is the separator too, the topic has as many levels as \
               the filter of its rule; else it ends at the first delimiter.",
        source: "",
        set: |gateway, value| gateway.delimiter = value.text().into(),
    },
    OptionRow {
        key: "separator",
        kind: WORD,
        default: "/",
        live: true,
        also_for: &[],
        short: "what stands between the levels of a topic among sockets",
        long: "With \".\" what they call weather.london is weather/london here.",
        source: "",
        set: |gateway, value| gateway.separator = value.text().into(),
    },
    OptionRow {
        key: "multipart",
        kind: OptionKind::Choice(&["join", "json", "refuse"]),
        default: "join",
        live: true,
        also_for: &[],
        short: "what becomes of a payload of several frames",
        long: "They are joined, or become an array of texts in JSON, or the message is dropped \
               and counted as unreadable.",
        source: "",
        set: |gateway, value| {
            gateway.multipart = match value.text() {
                "json" => MultipartPolicy::Json,
                "refuse" => MultipartPolicy::Refuse,
                _ => MultipartPolicy::Join,
            }
        },
    },
    OptionRow {
        key: "user_name",
        kind: ANY,
        default: "",
        live: true,
        also_for: &[],
        short: "the user name of PLAIN: ours where it connects, and what is asked for where it \
               listens",
        long: "Of zmq alone. PLAIN sends it as it is.",
        source: "rfc.zeromq.org/spec/24",
        set: |gateway, value| gateway.user_name = value.text().into(),
    },
    OptionRow {
        key: "password",
        kind: OptionKind::Hidden(&ANY),
        default: "",
        live: true,
        also_for: &[],
        short: "the password of PLAIN",
        long: "It is not shown anywhere.",
        source: "rfc.zeromq.org/spec/24",
        set: |gateway, value| {
            let text = value.text();
            gateway.password = (!text.is_empty()).then(|| SecretBytes(text.as_bytes().into()));
        },
    },
    OptionRow {
        key: "connect_timeout_s",
        kind: count(1, 3600, "seconds"),
        default: "10",
        live: true,
        also_for: &[],
        short: "how long connecting may take, and a handshake on either side",
        long: "",
        source: "",
        set: |gateway, value| gateway.connect_timeout_s = value.u32(),
    },
    retry_min_ms("the first wait before it connects again", |gateway, value| {
        gateway.retry_min_ms = value.u32();
    }),
    retry_max_s("the longest wait before it connects again", "", |gateway, value| {
        gateway.retry_max_s = value.u32();
    }),
    OptionRow {
        key: "answer_timeout_ms",
        kind: count(1, 3_600_000, "milliseconds"),
        default: "5000",
        live: true,
        also_for: &[],
        short: "how long a question waits for its answer, in both directions",
        long: "Of a survey it is how long answers are taken.",
        source: "",
        set: |gateway, value| gateway.answer_timeout_ms = value.u32(),
    },
    OptionRow {
        key: "response_topic",
        kind: TOPIC,
        default: "",
        live: true,
        also_for: &[],
        short: "where clients answer what sockets have asked; empty is gateway/NAME/answers",
        long: "It is the Response Topic of what rep and respondent publish.",
        source: "MQTT 5.0, 4.10",
        set: |gateway, value| gateway.response_topic = value.text().into(),
    },
    OptionRow {
        key: "message_bytes_max",
        kind: bytes(1 << 10, 256 << 20),
        default: "1MiB",
        live: true,
        also_for: &[],
        short: "largest message in either direction, with all of its frames",
        long: "A socket that sends a larger one is disconnected before that is stored; a larger \
               one of ours is dropped and counted.",
        source: "",
        set: |gateway, value| gateway.message_bytes_max = value.u32(),
    },
    OptionRow {
        key: "peers_max",
        kind: count(1, 65_535, "sockets"),
        default: "1000",
        live: true,
        also_for: &[],
        short: "sockets that may be connected to each place of listen",
        long: "",
        source: "",
        set: |gateway, value| gateway.peers_max = value.u32(),
    },
    OptionRow {
        key: "peers_bytes_max",
        kind: bytes(1 << 10, 1 << 31),
        default: "64MiB",
        live: true,
        also_for: &[],
        short: "bytes of messages that are half-way here and of subscriptions, of all sockets \
               together",
        long: "Beyond it the socket that has most of them is disconnected, and that is counted as \
               no_room. A subscription counts as its bytes and 256. Questions of clients that \
               wait for answers of sockets have a quarter of it beside that, for their topics \
               and Correlation Data and 256 bytes each; questions of sockets another quarter, \
               for what stands before them (48 bytes a frame more) and 256 bytes each.",
        source: "",
        set: |gateway, value| gateway.peers_bytes_max = value.u32(),
    },
    OptionRow {
        key: "peer.queue_messages_max",
        kind: count(1, 1_000_000, "messages"),
        default: "1000",
        live: true,
        also_for: &[],
        short: "messages that wait for one socket",
        long: "What goes to all passes by a socket that is slow, and is counted as peer_slow. \
               What goes to one waits in the session here, under its queue options.",
        source: "",
        set: |gateway, value| gateway.queue_messages_max = value.u32(),
    },
    OptionRow {
        key: "peer.queue_bytes_max",
        kind: bytes(1 << 10, 1 << 30),
        default: "2MiB",
        live: true,
        also_for: &[],
        short: "bytes that wait for one socket",
        long: "",
        source: "",
        set: |gateway, value| gateway.queue_bytes_max = value.u32(),
    },
    OptionRow {
        key: "identity.user",
        kind: ANY,
        default: "",
        live: true,
        also_for: &[],
        short: "the user as whom the gateway publishes and subscribes here; empty is nobody whom \
                permissions judge",
        long: "With it `acl.file` and the server of `acl.http_url` decide about each message and \
               each filter as for any client of that user: what they refuse is counted as \
               refused_here, a filter that they refuse stands in the log and in last_error, and \
               the gateway goes on with the others. Its client id is `$link/gateway/NAME`. \
               Without it the gateway may do what its own rules say and whatever answers ask for.",
        source: "",
        set: |gateway, value| gateway.identity_given.user = value.text().into(),
    },
    OptionRow {
        key: "identity.groups",
        kind: GROUPS,
        default: "",
        live: true,
        also_for: &[],
        short: "groups that this user is in, beside those that `acl.file` has it in",
        long: "",
        source: "",
        set: |gateway, value| {
            let names = value.list().iter().map(|name| name.as_str().into());
            gateway.identity_given.groups = names.collect();
        },
    },
    OptionRow {
        key: "peer.subscriptions_max",
        kind: count(1, 100_000, "subscriptions"),
        default: "1000",
        live: true,
        also_for: &[],
        short: "subscriptions of one socket of zmq, of at most 1,024 bytes each",
        long: "A socket that asks for more is disconnected.",
        source: "",
        set: |gateway, value| gateway.subscriptions_max = value.u32(),
    },
    OptionRow {
        key: "ipc.mode",
        kind: MODE,
        default: "660",
        live: true,
        also_for: &[],
        short: "permissions of the files of ipc places that it listens at",
        long: "Who may write to the file may connect.",
        source: "",
        set: |gateway, value| {
            gateway.ipc_mode = file_mode(value.text()).expect("the row has checked it")
        },
    },
    tls_ca(
        "PEM file of the CAs that vouch for the others",
        "Where it listens, it makes their certificate required; where it connects, empty \
               are those that this host trusts.",
        |gateway, value| {
            gateway.tls.authorities = value.text().into();
        },
    ),
    tls_certificate(|gateway, value| gateway.tls.certificate = value.text().into()),
    tls_key(|gateway, value| gateway.tls.key = value.text().into()),
    OptionRow {
        key: "tls.server_name",
        kind: ANY,
        default: "",
        live: true,
        also_for: &[],
        short: "the name that the certificate of who listens must have; empty is the URL's host",
        long: "",
        source: "RFC 6066, 3",
        set: |gateway, value| gateway.tls.server_name = value.text().into(),
    },
];

pub const OUT_ROWS: &[OptionRow<GatewayRuleSettings>] = &[
    OptionRow {
        key: "filter",
        kind: ANY,
        default: "",
        live: true,
        also_for: &[],
        short: "the topics, as they are called here",
        long: "Of rules that overlap the first counts.",
        source: "MQTT 5.0, 4.7",
        set: |rule, value| rule.filter = value.text().into(),
    },
    OptionRow {
        key: "topic",
        kind: ANY,
        default: "",
        live: true,
        also_for: &[],
        short: "what they are called among sockets; empty leaves them as they are",
        long: "`${topic}` stands for the whole topic, `${1}`, `${2}` and so on for what stands at \
               the filter's wildcards, `${gateway}` for the gateway's name.",
        source: "",
        set: |rule, value| rule.topic = value.text().into(),
    },
    OptionRow {
        key: "qos",
        kind: count(0, 1, ""),
        default: "1",
        live: true,
        also_for: &[],
        short: "the QoS that they are subscribed to with",
        long: "With 1 they wait for sockets, where the pattern does, on the disk if there is one.",
        source: "MQTT 5.0, 4.3",
        set: |rule, value| rule.qos = value.number() as u8,
    },
    OptionRow {
        key: "retained",
        kind: OptionKind::Choice(&["once", "always", "never"]),
        default: "once",
        live: true,
        also_for: &[],
        short: "whether what is retained already is sent: when the rule is new, whenever the \
               gateway starts, or not",
        long: "",
        source: "MQTT 5.0, 3.8.3.1",
        set: |rule, value| rule.retained = RetainedPolicy::from_word(value.text()),
    },
];

pub const IN_ROWS: &[OptionRow<GatewayRuleSettings>] = &[
    OptionRow {
        key: "filter",
        kind: ANY,
        default: "",
        live: true,
        also_for: &[],
        short: "the topics, as sockets call them, with `/` between levels whatever the separator \
               is",
        long: "Sub and xsub ask for what begins like the filter up to its first wildcard. Of \
               rules that overlap the first counts. What is raw has none.",
        source: "MQTT 5.0, 4.7",
        set: |rule, value| rule.filter = value.text().into(),
    },
    OptionRow {
        key: "topic",
        kind: ANY,
        default: "",
        live: true,
        also_for: &[],
        short: "what they are called here; empty leaves them as they are",
        long: "As of rules outward. What is raw has a topic without ${topic}. No topic becomes \
               one that begins with $ unless this does.",
        source: "",
        set: |rule, value| rule.topic = value.text().into(),
    },
    OptionRow {
        key: "qos",
        kind: count(0, 1, ""),
        default: "1",
        live: true,
        also_for: &[],
        short: "the QoS that they are published with",
        long: "With 1 no socket is read while this broker acknowledges nothing more.",
        source: "MQTT 5.0, 4.3",
        set: |rule, value| rule.qos = value.number() as u8,
    },
    OptionRow {
        key: "retain",
        kind: OptionKind::Bool,
        default: "false",
        live: true,
        also_for: &[],
        short: "whether they are retained here",
        long: "",
        source: "MQTT 5.0, 3.3.1.3",
        set: |rule, value| rule.retain = value.bool(),
    },
];
