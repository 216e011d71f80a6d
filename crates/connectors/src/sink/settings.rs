//! Settings of a `[[sink]]`, with the checks across options. The rows are in `rows`.

use super::columns::{self, SinkColumns};
use super::influx::InfluxLines;
use super::influx_time::PointTime;
use super::kafka::KafkaSettings;
use super::kafka::options::KafkaOptions;
use super::message::MessageField;
use super::nats::NatsSettings;
use super::nats::options::NatsOptions;
use super::parquet::{ParquetColumnType, check_types, parse_type};
use super::redis_stream::RedisStreamSettings;
use super::sql::SqlSinkSettings;
use super::sqlite::SqliteSettings;
use super::template::{SinkTemplate, ValueEncoding};
use super::webhook::{RequestBatching, WebhookBody, WebhookSettings};
use crate::option_rows::{LinkTlsSettings, check_retry};
use broker::peer::authentication::SecretBytes;
use net::http_proxy::HttpProxy;
use net::server_url::ServerUrl;
use net::sql::{SqlDatabase, mysql, postgres};
use net::{http_client, redis};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

pub use super::rows::ROWS;

/// Settings of a sink. [`SinkSettings::resolve_options`] computes `target` from `given`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SinkSettings {
    pub name: Arc<str>,
    pub filters: Vec<String>,
    /// Whether rules of this broker send rows to the sink.
    pub takes_rows: bool,
    pub takes_retained: bool,
    /// Names of wanted events, or "*" for all.
    pub events: Vec<String>,
    pub events_max: usize,
    pub batch: BatchLimits,
    pub timeout_ms: u32,
    pub retry_min_ms: u32,
    pub retry_max_s: u32,
    pub refused_tries: u32,
    /// Whether a refused message stops the sink until a reload, instead of being skipped.
    pub refused_stops: bool,
    pub tls: LinkTlsSettings,
    pub(super) given: SinkTargetOptions,
    pub target: SinkTarget,
    /// Limits of the local session.
    pub limits: Arc<broker::BrokerOptions>,
}

/// Bounds of a batch: the first one reached completes the batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchLimits {
    pub messages_max: u32,
    pub bytes_max: u32,
    pub wait_ms: u32,
}

/// Values of the option rows about the destination, as given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SinkTargetOptions {
    pub(super) columns: Vec<String>,
    pub(super) file: FileSinkSettings,
    pub(super) file_path: String,
    pub(super) file_types: Vec<String>,
    pub(super) file_is_parquet: bool,
    pub(super) url: String,
    pub(super) proxy: HttpProxy,
    pub(super) follows_redirects: bool,
    pub(super) method: String,
    pub(super) headers: Vec<(String, SecretBytes)>,
    pub(super) content_type: String,
    pub(super) body: String,
    pub(super) together: RequestBatching,
    pub(super) refused_statuses: Vec<u16>,
    pub(super) influx: InfluxOptions,
    pub(super) kafka: KafkaOptions,
    pub(super) nats: NatsOptions,
    pub(super) redis: String,
    pub(super) redis_key: String,
    pub(super) redis_entries_max: u64,
    pub(super) sql: String,
    pub(super) statement: String,
    pub(super) setup: Vec<String>,
    pub(super) sql_tls: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct InfluxOptions {
    pub(super) url: String,
    pub(super) token: Option<SecretBytes>,
    pub(super) measurement: String,
    pub(super) tags: Vec<String>,
    pub(super) fields: Vec<String>,
    pub(super) time: String,
    pub(super) time_unit: String,
}

/// Destination of a sink, with its checked settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SinkTarget {
    Files(FileSinkSettings),
    Kafka(KafkaSettings),
    Mysql(SqlSinkSettings),
    Nats(NatsSettings),
    Parquet(FileSinkSettings),
    Postgres(SqlSinkSettings),
    Sqlite(SqliteSettings),
    Stream(RedisStreamSettings),
    Web(Box<WebhookSettings>),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileSinkSettings {
    pub(super) path: SinkTemplate,
    pub(super) format: FileFormat,
    pub(super) columns: SinkColumns,
    /// Types of Parquet columns; a column without an entry is text.
    pub(super) types: Vec<(String, ParquetColumnType)>,
    /// Length after which a file is renamed; 0 means never.
    pub(super) rotate_bytes: u64,
    pub(super) rotate_s: u32,
    /// Number of renamed files which stay; 0 means all.
    pub(super) keep: u32,
    pub(super) sync: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FileFormat {
    Csv,
    #[default]
    Json,
}

/// A statement which inserts one message. Values are bound as parameters and never become part of
/// the text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InsertStatement {
    pub(super) text: String,
    pub(super) fields: Vec<MessageField>,
    /// Statements to run on each new connection.
    pub(super) setup: Vec<String>,
}

impl Default for SinkTarget {
    fn default() -> SinkTarget {
        SinkTarget::Files(FileSinkSettings::default())
    }
}

pub(super) const SQLITE: &str = "sqlite:";
const SERVERS: &[&str] = &["postgres", "postgresql", "mysql", "mariadb"];

impl SinkSettings {
    /// Whether the sink connects with TLS.
    pub fn uses_tls(&self) -> bool {
        match &self.target {
            SinkTarget::Mysql(_) | SinkTarget::Postgres(_) => self.given.sql_tls,
            SinkTarget::Kafka(kafka) => kafka.has_tls,
            SinkTarget::Nats(nats) => nats.servers[0].scheme == "tls",
            SinkTarget::Stream(stream) => stream.url.scheme == "rediss",
            SinkTarget::Web(web) => web.url.scheme == "https",
            SinkTarget::Files(_) | SinkTarget::Parquet(_) | SinkTarget::Sqlite(_) => false,
        }
    }

    /// Returns the absolute path of the sink's files, with placeholders, so equal paths compare as
    /// equal.
    pub fn file_path(&self) -> Option<PathBuf> {
        let given = &self.given.file_path;
        let is_file = matches!(&self.target, SinkTarget::Files(_) | SinkTarget::Parquet(_));
        is_file.then(|| std::path::absolute(given).unwrap_or_else(|_| given.into()))
    }

    /// Returns the default of `session.inflight_max`: two batches, so the next one is gathered
    /// while one is in flight.
    pub fn inflight_max(&self) -> u16 {
        u16::try_from(2 * self.batch.messages_max).unwrap_or(u16::MAX)
    }

    /// Checks the options and builds `target`. The error names the wrong or missing option.
    pub fn resolve_options(&mut self) -> Result<(), String> {
        let given = &self.given;
        let named = [
            !given.file_path.is_empty(),
            !given.url.is_empty(),
            !given.influx.url.is_empty(),
            !given.kafka.servers.is_empty(),
            !given.nats.url.is_empty(),
            !given.redis.is_empty(),
            !given.sql.is_empty(),
        ];
        let several = "a sink leads to one place: give it one of file.path, http.url, \
                       influx.url, kafka.servers, nats.url, redis.url and sql.url";
        if named.iter().filter(|is_named| **is_named).count() != 1 {
            return Err(several.to_string());
        }
        check_retry(self.retry_min_ms, self.retry_max_s)?;
        self.target = if !given.file_path.is_empty() {
            given.file_target()?
        } else if !given.url.is_empty() {
            given.webhook_target()?
        } else if !given.influx.url.is_empty() {
            given.influx_target()?
        } else if !given.kafka.servers.is_empty() {
            given.kafka.build_target(self.timeout_ms)?
        } else if !given.nats.url.is_empty() {
            given.nats.build_target()?
        } else if !given.redis.is_empty() {
            given.stream_target()?
        } else {
            given.database_target()?
        };
        Ok(())
    }
}

impl SinkTargetOptions {
    fn file_target(&self) -> Result<SinkTarget, String> {
        let (path, columns) =
            (SinkTemplate::parse(&self.file_path)?, SinkColumns::parse(&self.columns)?);
        let types = self.file_types.iter().map(|text| parse_type(text));
        let types = types.collect::<Result<Vec<_>, _>>()?;
        let is_typed = !types.is_empty();
        let files = FileSinkSettings { path, columns, types, ..self.file.clone() };
        match (self.file_is_parquet, is_typed) {
            (true, _) => check_types(&files).map(|()| SinkTarget::Parquet(files)),
            (false, false) => Ok(SinkTarget::Files(files)),
            (false, true) => Err("file.types are of file.format = \"parquet\"".to_string()),
        }
    }

    fn webhook_target(&self) -> Result<SinkTarget, String> {
        let kind = self.content_type.to_ascii_lowercase();
        let tongue = match () {
            () if kind.contains("json") => ValueEncoding::Json,
            () if kind.contains("form-urlencoded") => ValueEncoding::Url,
            () => ValueEncoding::Plain,
        };
        let body = match self.body.is_empty() {
            true => WebhookBody::Columns(SinkColumns::parse(&self.columns)?),
            false => WebhookBody::Template(SinkTemplate::parse(&self.body)?),
        };
        match &body {
            WebhookBody::Template(template) if tongue == ValueEncoding::Json => {
                template.check_json().map_err(|why| format!("http.body: {why}"))?;
            }
            WebhookBody::Template(_) if self.together == RequestBatching::Array => {
                let why = "http.batch = \"array\" is JSON: use \"lines\" or \"alone\"";
                return Err(why.to_string());
            }
            WebhookBody::Columns(_) if tongue != ValueEncoding::Json => {
                return Err("without http.body it is JSON: let http.content_type say so".into());
            }
            _ => {}
        }
        let mut headers = self.headers.clone();
        let kind = SecretBytes(self.content_type.as_bytes().into());
        headers.push(("content-type".into(), kind));
        let url = ServerUrl::parse(&self.url, http_client::SCHEMES)?;
        let (method, together) = (self.method.clone(), self.together);
        let refused = self.refused_statuses.clone();
        Ok(SinkTarget::Web(Box::new(WebhookSettings {
            url,
            proxy: self.proxy.clone(),
            follows_redirects: self.follows_redirects,
            method,
            headers,
            body,
            tongue,
            together,
            refused,
        })))
    }

    fn influx_target(&self) -> Result<SinkTarget, String> {
        let (proxy, follows_redirects) = (self.proxy.clone(), self.follows_redirects);
        let refused = self.refused_statuses.clone();
        let target = self.influx.build_target()?;
        let web = WebhookSettings { proxy, follows_redirects, refused, ..target };
        Ok(SinkTarget::Web(Box::new(web)))
    }

    fn stream_target(&self) -> Result<SinkTarget, String> {
        if self.redis_key.is_empty() {
            return Err("redis.url needs redis.key, which names the stream".to_string());
        }
        let (url, key) =
            (ServerUrl::parse(&self.redis, redis::SCHEMES)?, SinkTemplate::parse(&self.redis_key)?);
        let fields = SinkColumns::parse(&self.columns)?;
        if fields.is_empty() {
            return Err("redis.url needs columns, which are an entry's fields".to_string());
        }
        let entries_max = self.redis_entries_max;
        Ok(SinkTarget::Stream(RedisStreamSettings { url, key, fields, entries_max }))
    }

    fn database_target(&self) -> Result<SinkTarget, String> {
        if let Some(path) = self.sql.strip_prefix(SQLITE) {
            let (path, insertion) =
                (PathBuf::from(path), self.insert_statement(|n| format!("?{n}"))?);
            return Ok(SinkTarget::Sqlite(SqliteSettings { path, insertion }));
        }
        let url = ServerUrl::parse(&self.sql, SERVERS)?;
        match url.scheme.as_str() {
            "postgres" | "postgresql" => {
                let insertion = self.insert_statement(postgres::PostgresDatabase::placeholder)?;
                Ok(SinkTarget::Postgres(SqlSinkSettings { url, insertion }))
            }
            _ => {
                let insertion = self.insert_statement(mysql::MysqlDatabase::placeholder)?;
                Ok(SinkTarget::Mysql(SqlSinkSettings { url, insertion }))
            }
        }
    }

    fn insert_statement(&self, mark: fn(usize) -> String) -> Result<InsertStatement, String> {
        if self.statement.is_empty() {
            return Err("sql.url needs sql.statement, which inserts one message".to_string());
        }
        let (text, fields) = SinkTemplate::parse(&self.statement)?.bind(mark)?;
        Ok(InsertStatement { text, fields, setup: self.setup.clone() })
    }
}

impl InfluxOptions {
    /// Builds the target of an InfluxDB sink, without the options of requests, which `http` sets.
    fn build_target(&self) -> Result<WebhookSettings, String> {
        if self.measurement.is_empty() || self.fields.is_empty() {
            return Err("influx.url needs influx.measurement and influx.fields".to_string());
        }
        let time = PointTime::parse(&self.time, &self.time_unit)?;
        let lines = InfluxLines::parse(&self.measurement, &self.tags, &self.fields, time)?;
        let url = influx_url(&self.url)?;
        let kind =
            ("content-type".to_string(), SecretBytes(b"text/plain; charset=utf-8"[..].into()));
        let mut headers = vec![kind];
        if let Some(token) = &self.token {
            if url.user.is_some() {
                return Err("influx.token and a user in influx.url: use one of them".to_string());
            }
            let token = [b"Token ", &token.0[..]].concat();
            headers.push(("authorization".to_string(), SecretBytes(token.into())));
        }
        let (method, body) = ("POST".to_string(), WebhookBody::Lines(lines));
        let (tongue, together) = (ValueEncoding::Plain, RequestBatching::Lines);
        Ok(WebhookSettings {
            url,
            proxy: HttpProxy::None,
            follows_redirects: false,
            method,
            headers,
            body,
            tongue,
            together,
            refused: Vec::new(),
        })
    }
}

/// Parses the URL of InfluxDB, also for the check of the option.
pub(super) fn influx_url(text: &str) -> Result<ServerUrl, String> {
    let url = ServerUrl::parse(text, http_client::SCHEMES)?;
    match url.path.split_once('?') {
        Some((_, query)) if query.contains("precision=") => {
            Err("precision is ours to say, it is nanoseconds: leave it out".to_string())
        }
        Some((path, _)) if path.ends_with("/write") => Ok(url),
        _ => Err("no place to write to, use http://HOST:8086/write?db=NAME, or \
                  http://HOST:8086/api/v2/write?org=ORG&bucket=BUCKET"
            .to_string()),
    }
}

/// Checks the URL of a database.
pub(super) fn check_database(text: &str) -> Result<(), String> {
    match text.strip_prefix(SQLITE) {
        _ if text.is_empty() => Ok(()),
        Some("") => Err("sqlite: needs a path, use sqlite:/var/lib/messages.db".to_string()),
        Some(_) => Ok(()),
        None => {
            ServerUrl::parse(text, SERVERS).map(drop).map_err(|why| format!("{why} or sqlite:PATH"))
        }
    }
}

pub(super) fn check_template(text: &str) -> Result<(), String> {
    SinkTemplate::parse(text).map(drop)
}

pub(super) fn check_point_time(text: &str) -> Result<(), String> {
    PointTime::parse(text, "").map(drop)
}

pub(super) fn check_type(text: &str) -> Result<(), String> {
    parse_type(text).map(drop)
}

pub(super) fn check_column(text: &str) -> Result<(), String> {
    columns::parse(text).map(drop)
}

/// Text for logs: the place of the destination without secrets.
impl fmt::Display for SinkTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SinkTarget::Files(files) | SinkTarget::Parquet(files) => match files.path.only_text() {
                Some(path) => f.write_str(&path),
                None => f.write_str("files"),
            },
            SinkTarget::Mysql(sql) | SinkTarget::Postgres(sql) => write!(f, "{}", sql.url),
            SinkTarget::Kafka(kafka) => write!(f, "{kafka}"),
            SinkTarget::Nats(nats) => write!(f, "{nats}"),
            SinkTarget::Sqlite(sqlite) => write!(f, "{SQLITE}{}", sqlite.path.display()),
            SinkTarget::Stream(stream) => write!(f, "{}", stream.url),
            SinkTarget::Web(web) => write!(f, "{}", web.url),
        }
    }
}
