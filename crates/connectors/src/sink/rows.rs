//! The table of a sink's options.

use super::settings::{
    FileFormat, SinkSettings, check_column, check_database, check_point_time, check_template,
    check_type, influx_url,
};
use super::{http_options, influx, influx_time, kafka, nats};
use crate::events::NAMES;
use crate::option_rows::{HOST_CAS, retry_max_s, retry_min_ms, tls_ca, tls_certificate, tls_key};
use broker::peer::authentication::SecretBytes;
use config::row::{ANY, OptionRow, count};
use config::value::{NumberUnit, OptionKind};
use net::server_url::ServerUrl;
use net::{http_client, redis};

pub(super) const TEMPLATE: OptionKind =
    OptionKind::Text { of: "text with ${topic} and the like", check: check_template };
const FILTERS: OptionKind = OptionKind::List {
    of: "topic filters",
    check: |text| match mqtt::topic::check_filter(text) {
        Ok(()) if !text.starts_with("$share/") => Ok(()),
        _ => Err(format!("{text:?} is not a topic filter that a sink may have")),
    },
};
const EVENTS: OptionKind = OptionKind::List {
    of: "events, or *",
    check: |text| match text == "*" || NAMES.contains(&text) {
        true => Ok(()),
        false => Err(format!("{text:?} is not an event, use * or {}", NAMES.join(", "))),
    },
};

const fn never(min: u64, max: u64, unit: NumberUnit) -> OptionKind {
    OptionKind::Number { min, max, unit, word: Some(("never", 0)) }
}

/// Options of all sinks, and of each kind with its own table.
pub const ROWS: &[OptionRow<SinkSettings>] = &joined::<LEN>(PARTS);

const PARTS: &[&[OptionRow<SinkSettings>]] =
    &[OWN, http_options::ROWS, kafka::options::ROWS, nats::options::ROWS];
const LEN: usize =
    OWN.len() + http_options::ROWS.len() + kafka::options::ROWS.len() + nats::options::ROWS.len();

const fn joined<const N: usize>(
    parts: &[&[OptionRow<SinkSettings>]],
) -> [OptionRow<SinkSettings>; N] {
    let mut all = [OWN[0]; N];
    let (mut at, mut part) = (0, 0);
    while part < parts.len() {
        let mut row = 0;
        while row < parts[part].len() {
            all[at] = parts[part][row];
            at += 1;
            row += 1;
        }
        part += 1;
    }
    all
}

const OWN: &[OptionRow<SinkSettings>] = &[
    OptionRow {
        key: "name",
        kind: ANY,
        default: "",
        live: true,
        also_for: &[],
        short: "what the sink is called here: in logs, in `$SYS/broker/sink/` and in the store",
        long: "Its queue belongs to the name. A sink whose name is gone from the file is gone \
               with its queue.",
        source: "",
        set: |sink, value| sink.name = value.text().into(),
    },
    OptionRow {
        key: "filters",
        kind: FILTERS,
        default: "",
        live: true,
        also_for: &[],
        short: "the topics whose messages it gets",
        long: "",
        source: "MQTT 5.0, 4.7",
        set: |sink, value| sink.filters = value.list().to_vec(),
    },
    OptionRow {
        key: "retained",
        kind: OptionKind::Choice(&["never", "once"]),
        default: "never",
        live: true,
        also_for: &[],
        short: "whether what is retained already is sent when a filter is new",
        long: "",
        source: "MQTT 5.0, 3.8.3.1",
        set: |sink, value| sink.takes_retained = value.text() == "once",
    },
    OptionRow {
        key: "events",
        kind: EVENTS,
        default: "",
        live: true,
        also_for: &[],
        short: "what happened to clients, sessions and messages that it gets too; `*` is all of it",
        long: "An event is a message without a topic, whose payload is a JSON object. It is kept \
               in memory only, and when more than `events_max` wait it is dropped and counted. \
               `message.delivered` and `message.acked`, and so `*`, are an event for each message \
               and each client that gets it.",
        source: "",
        set: |sink, value| sink.events = value.list().to_vec(),
    },
    OptionRow {
        key: "events_max",
        kind: count(1, 1_000_000, "events"),
        default: "4096",
        live: true,
        also_for: &[],
        short: "events that may wait",
        long: "Also they hold at most 64 MiB of messages: payloads, topics and properties count.",
        source: "",
        set: |sink, value| sink.events_max = value.number() as usize,
    },
    OptionRow {
        key: "batch.messages_max",
        kind: count(1, 10_000, "messages"),
        default: "500",
        live: true,
        also_for: &[],
        short: "how many messages a batch has at most",
        long: "",
        source: "",
        set: |sink, value| sink.batch.messages_max = value.u32(),
    },
    OptionRow {
        key: "batch.bytes_max",
        kind: OptionKind::Number { min: 1, max: 1 << 30, unit: NumberUnit::Bytes, word: None },
        default: "1MiB",
        live: true,
        also_for: &[],
        short: "with how many bytes a batch is full",
        long: "The message that fills it is the last one, however large it is.",
        source: "",
        set: |sink, value| sink.batch.bytes_max = value.u32(),
    },
    OptionRow {
        key: "batch.wait_ms",
        kind: count(0, 3_600_000, "milliseconds"),
        default: "100",
        live: true,
        also_for: &[],
        short: "how long its first message waits for others",
        long: "",
        source: "",
        set: |sink, value| sink.batch.wait_ms = value.u32(),
    },
    OptionRow {
        key: "timeout_ms",
        kind: count(10, 3_600_000, "milliseconds"),
        default: "10000",
        live: true,
        also_for: &[],
        short: "how long connecting may take, and taking a batch",
        long: "A disk of this host that takes longer is told in the log, and waited for.",
        source: "",
        set: |sink, value| sink.timeout_ms = value.u32(),
    },
    retry_min_ms("the first wait before it tries again", |sink, value| {
        sink.retry_min_ms = value.u32();
    }),
    retry_max_s(
        "the longest wait before it tries again",
        "A server that asks for a longer one (Retry-After) gets this one.",
        |sink, value| {
            sink.retry_max_s = value.u32();
        },
    ),
    OptionRow {
        key: "refused_tries",
        kind: count(1, 1000, "tries"),
        default: "3",
        live: true,
        also_for: &[],
        short: "how often a batch is tried that is refused for good",
        long: "As by HTTP 400, or for a value that its column does not take. Then halves of it \
               are tried, so that only what is refused by itself is not taken. Who refused \
               something for good is taken at its word for a minute: further batches are halved \
               at once.",
        source: "",
        set: |sink, value| sink.refused_tries = value.u32(),
    },
    OptionRow {
        key: "refused",
        kind: OptionKind::Choice(&["skip", "stop"]),
        default: "skip",
        live: true,
        also_for: &[],
        short: "what becomes of a message that is refused for good",
        long: "It is passed over and counted; or the sink stops and keeps its queue, until SIGHUP \
               has the options read or the broker is started again.",
        source: "",
        set: |sink, value| sink.refused_stops = value.text() == "stop",
    },
    OptionRow {
        key: "columns",
        kind: OptionKind::List { of: "NAME=${...}", check: check_column },
        default: "timestamp_ms=${timestamp_ms},event=${event},clientid=${clientid},topic=${topic},\
                  qos=${qos},retain=${retain},payload=${payload}",
        live: true,
        also_for: &[],
        short: "what is written of a message, in this order: to a file, by HTTP, into Redis",
        long: "In JSON a payload that is JSON stays JSON. What is not an UTF-8 becomes a data URL, \
               `data:;base64,...`.",
        source: "",
        set: |sink, value| sink.given.columns = value.list().to_vec(),
    },
    OptionRow {
        key: "file.path",
        kind: TEMPLATE,
        default: "",
        live: true,
        also_for: &[],
        short: "the file that it appends to",
        long: "With `${topic[1]}` and the like there are several. A value stays within its part \
               of the path: what is no letter, digit, `-`, `_` or `.` is written as %XX.",
        source: "",
        set: |sink, value| sink.given.file_path = value.text().into(),
    },
    OptionRow {
        key: "file.format",
        kind: OptionKind::Choice(&["json", "csv", "parquet"]),
        default: "json",
        live: true,
        also_for: &[],
        short: "a JSON object a line, CSV with the columns' names in its first line, or Parquet",
        long: "A file of Parquet cannot be added to, so each batch is one, with its time in its \
               name, as in `messages.20261122T163000-000.parquet`: make batches large \
               (`batch.messages_max`, `batch.bytes_max`, `batch.wait_ms`).",
        source: "RFC 4180",
        set: |sink, value| {
            sink.given.file_is_parquet = value.text() == "parquet";
            sink.given.file.format = match value.text() {
                "csv" => FileFormat::Csv,
                _ => FileFormat::Json,
            };
        },
    },
    OptionRow {
        key: "file.types",
        kind: OptionKind::List { of: "NAME=TYPE", check: check_type },
        default: "",
        live: true,
        also_for: &[],
        short: "types of columns in Parquet: boolean, bytes, double, int64, string, timestamp_ms",
        long: "What is not named is a string. What is not there is null, and a message with a \
               value of another type is refused.",
        source: "",
        set: |sink, value| sink.given.file_types = value.list().to_vec(),
    },
    OptionRow {
        key: "file.rotate_bytes",
        kind: never(1024, 1 << 50, NumberUnit::Bytes),
        default: "64MiB",
        live: true,
        also_for: &[],
        short: "how large a file may be; then it is renamed, and another one begun",
        long: "Its name gets the time, as in `messages.jsonl.20261122T163000-000`.",
        source: "",
        set: |sink, value| sink.given.file.rotate_bytes = value.number(),
    },
    OptionRow {
        key: "file.rotate_s",
        kind: never(1, 366 * 86_400, NumberUnit::Named("seconds")),
        default: "never",
        live: true,
        also_for: &[],
        short: "how long one file is written: 3600 is from one full hour (UTC) to the next",
        long: "It is renamed when the next message comes.",
        source: "",
        set: |sink, value| sink.given.file.rotate_s = value.u32(),
    },
    OptionRow {
        key: "file.keep",
        kind: OptionKind::Number {
            min: 1,
            max: 100_000,
            unit: NumberUnit::Named("files"),
            word: Some(("all", 0)),
        },
        default: "all",
        live: true,
        also_for: &[],
        short: "how many renamed files stay; older ones are removed",
        long: "",
        source: "",
        set: |sink, value| sink.given.file.keep = value.u32(),
    },
    OptionRow {
        key: "file.sync",
        kind: OptionKind::Bool,
        default: "true",
        live: true,
        also_for: &[],
        short: "whether a batch is on the disk before it is acknowledged",
        long: "Without, what was written last may be gone after a power cut.",
        source: "",
        set: |sink, value| sink.given.file.sync = value.bool(),
    },
    OptionRow {
        key: "influx.url",
        kind: OptionKind::Hidden(&OptionKind::Text {
            of: "a URL like http://HOST:8086/write?db=NAME",
            check: |text| match text {
                "" => Ok(()),
                text => influx_url(text).map(drop),
            },
        }),
        default: "",
        live: true,
        also_for: &[],
        short: "where InfluxDB, or who speaks its line protocol, takes lines",
        long: "`http://HOST:8086/api/v2/write?org=ORG&bucket=BUCKET` of 2.x; \
               `http://USER:PASSWORD@HOST:8086/write?db=NAME` of 1.x.",
        source: "",
        set: |sink, value| sink.given.influx.url = value.text().into(),
    },
    OptionRow {
        key: "influx.token",
        kind: OptionKind::Hidden(&OptionKind::Text {
            of: "a token",
            check: |text| http_client::check_header("authorization", text),
        }),
        default: "",
        live: true,
        also_for: &[],
        short: "the token of an InfluxDB 2.x",
        long: "",
        source: "",
        set: |sink, value| {
            let token = value.text();
            sink.given.influx.token =
                (!token.is_empty()).then(|| SecretBytes(token.as_bytes().into()));
        },
    },
    OptionRow {
        key: "influx.measurement",
        kind: TEMPLATE,
        default: "",
        live: true,
        also_for: &[],
        short: "the measurement of a line",
        long: "",
        source: "",
        set: |sink, value| sink.given.influx.measurement = value.text().into(),
    },
    OptionRow {
        key: "influx.tags",
        kind: OptionKind::List { of: "NAME=${...}", check: check_column },
        default: "",
        live: true,
        also_for: &[],
        short: "the tags of a line; one that is empty is left out",
        long: "Each value makes a series: take levels of topics that clients cannot choose as \
               they like.",
        source: "",
        set: |sink, value| sink.given.influx.tags = value.list().to_vec(),
    },
    OptionRow {
        key: "influx.fields",
        kind: OptionKind::List {
            of: "NAME=${...}, NAME=${...}i or NAME=\"${...}\"",
            check: |text| influx::parse_field(text).map(drop),
        },
        default: "",
        live: true,
        also_for: &[],
        short: "the fields of a line; one that is not there is left out",
        long: "`x=${payload.x}` is what it is in JSON: a number (a float), true or false, or a \
               string. `x=${payload.x}i` is an integer, `x=\"${payload.x}\"` a string whatever \
               it is. A text with a placeholder that has no value is not there, and a message \
               without any field has no line.",
        source: "",
        set: |sink, value| sink.given.influx.fields = value.list().to_vec(),
    },
    OptionRow {
        key: "influx.time",
        kind: OptionKind::Text { of: "${payload.at} and the like", check: check_point_time },
        default: "",
        live: true,
        also_for: &[],
        short: "the time of a line, from the message; empty: when the sink took the message",
        long: "A number of `influx.time_unit`s since 1970, with a fraction or without, or a time \
               of RFC 3339. A message without the value gets the sink's time; one whose value is \
               not a time is refused. Lines of one series with one time are one point to \
               InfluxDB, and the last one stays.",
        source: "",
        set: |sink, value| sink.given.influx.time = value.text().into(),
    },
    OptionRow {
        key: "influx.time_unit",
        kind: OptionKind::Choice(influx_time::UNIT_NAMES),
        default: "ms",
        live: true,
        also_for: &[],
        short: "what a number of influx.time counts",
        long: "",
        source: "",
        set: |sink, value| sink.given.influx.time_unit = value.text().into(),
    },
    OptionRow {
        key: "redis.url",
        kind: OptionKind::Hidden(&OptionKind::Text {
            of: "a URL like redis://USER:PASSWORD@HOST/0",
            check: |text| match text {
                "" => Ok(()),
                text => ServerUrl::parse(text, redis::SCHEMES).map(drop),
            },
        }),
        default: "",
        live: true,
        also_for: &[],
        short: "the Redis server whose stream gets an entry a message; rediss is with TLS",
        long: "The number behind the host is the database. An entry's fields are the `columns`. \
               A batch is one pipeline. It needs Redis 5.0.",
        source: "",
        set: |sink, value| sink.given.redis = value.text().into(),
    },
    OptionRow {
        key: "redis.key",
        kind: TEMPLATE,
        default: "",
        live: true,
        also_for: &[],
        short: "the key of the stream",
        long: "With `${topic[1]}` and the like there are several.",
        source: "",
        set: |sink, value| sink.given.redis_key = value.text().into(),
    },
    OptionRow {
        key: "redis.entries_max",
        kind: OptionKind::Number {
            min: 1,
            max: 1 << 40,
            unit: NumberUnit::Named("entries"),
            word: Some(("all", 0)),
        },
        default: "all",
        live: true,
        also_for: &[],
        short: "how many entries a stream keeps, roughly (MAXLEN ~); older ones go",
        long: "",
        source: "",
        set: |sink, value| sink.given.redis_entries_max = value.number(),
    },
    OptionRow {
        key: "sql.url",
        kind: OptionKind::Hidden(&OptionKind::Text {
            of: "postgres://USER:PASSWORD@HOST/DATABASE, mysql://... or sqlite:PATH",
            check: check_database,
        }),
        default: "",
        live: true,
        also_for: &[],
        short: "the database that gets rows: PostgreSQL, MySQL or MariaDB, or a file of SQLite",
        long: "TimescaleDB is PostgreSQL. A batch is one transaction.",
        source: "",
        set: |sink, value| sink.given.sql = value.text().into(),
    },
    OptionRow {
        key: "sql.statement",
        kind: TEMPLATE,
        default: "",
        live: true,
        also_for: &[],
        short: "what inserts one message",
        long: "Placeholders stand without quotes: each is bound as a value of the statement, and \
               never becomes a part of its text. What is not there is NULL.",
        source: "",
        set: |sink, value| sink.given.statement = value.text().into(),
    },
    OptionRow {
        key: "sql.setup",
        kind: OptionKind::List { of: "statements", check: |_| Ok(()) },
        default: "",
        live: true,
        also_for: &[],
        short: "statements that every new connection begins with, as CREATE TABLE IF NOT EXISTS",
        long: "",
        source: "",
        set: |sink, value| sink.given.setup = value.list().to_vec(),
    },
    OptionRow {
        key: "sql.tls",
        kind: OptionKind::Bool,
        default: "false",
        live: true,
        also_for: &[],
        short: "whether the database is asked to speak TLS; one that does not is not spoken to",
        long: "",
        source: "",
        set: |sink, value| sink.given.sql_tls = value.bool(),
    },
    tls_ca("PEM file of the CAs that vouch for the server", HOST_CAS, |sink, value| {
        sink.tls.authorities = value.text().into();
    }),
    tls_certificate(|sink, value| sink.tls.certificate = value.text().into()),
    tls_key(|sink, value| sink.tls.key = value.text().into()),
];
