//! Destinations of sinks: the interface between batches and their targets.
//!
//! A new destination is a file of this folder with `new`, `connect` and `deliver`, or a
//! `BlockingSink` behind a [`SinkWorker`]; then a variant here and of [`SinkTarget`], option rows,
//! and a `SinkPlace` in the tests of the program. `deliver` returns `Ok` only when the whole batch
//! is stored, may get a message twice, and may be cancelled after `timeout_ms`: it takes the
//! connection out of `self` before the first `await`. CONTRIBUTING.md has every step.

use super::files::FileSink;
use super::kafka::KafkaSink;
use super::message::SinkMessage;
use super::nats::NatsSink;
use super::parquet::ParquetSink;
use super::redis_stream::RedisStreamSink;
use super::settings::{SinkSettings, SinkTarget};
use super::sql::SqlSink;
use super::sqlite::SqliteSink;
use super::webhook::WebhookSink;
use super::worker::SinkWorker;
use crate::ClientTlsCell;
use net::sql::mysql::MysqlDatabase;
use net::sql::postgres::PostgresDatabase;
use std::sync::Arc;
use std::time::Duration;

/// Reason why a batch, or the rest of it, was not delivered.
#[derive(Debug)]
pub(super) struct BatchError {
    /// Number of messages at the front of the batch which were delivered.
    pub(super) accepted: usize,
    pub(super) error: SinkError,
}

/// Failure of a message or of the destination. The variant decides whether the sink retries.
#[derive(Clone, Debug)]
pub(super) enum SinkError {
    /// The destination would refuse the message again.
    Rejected(String),
    /// The templates yield nothing to write for this message, so the destination is not asked.
    Unwritable(String),
    /// The destination is not reachable or not working. `after` is the delay which the destination
    /// asked for.
    Transient { why: String, after: Option<Duration> },
}

impl SinkError {
    pub(super) fn transient(why: String) -> SinkError {
        SinkError::Transient { why, after: None }
    }
}

impl BatchError {
    pub(super) fn transient(why: String) -> BatchError {
        BatchError { accepted: 0, error: SinkError::transient(why) }
    }

    pub(super) fn rejected(why: String) -> BatchError {
        BatchError { accepted: 0, error: SinkError::Rejected(why) }
    }
}

/// A destination by its kind. Files run on a thread of their own, see [`SinkWorker`].
pub(super) enum SinkDestination {
    Files(SinkWorker<FileSink>),
    Kafka(KafkaSink),
    Mysql(SqlSink<MysqlDatabase>),
    Nats(NatsSink),
    Parquet(SinkWorker<ParquetSink>),
    Postgres(SqlSink<PostgresDatabase>),
    Sqlite(SinkWorker<SqliteSink>),
    Stream(RedisStreamSink),
    Web(WebhookSink),
}

impl SinkDestination {
    pub(super) fn new(settings: &SinkSettings, tls: ClientTlsCell) -> SinkDestination {
        match &settings.target {
            SinkTarget::Files(own) => SinkDestination::Files(SinkWorker::new(FileSink::new(own))),
            SinkTarget::Kafka(own) => SinkDestination::Kafka(KafkaSink::new(own, tls)),
            SinkTarget::Mysql(own) => SinkDestination::Mysql(SqlSink::new(own, tls)),
            SinkTarget::Nats(own) => SinkDestination::Nats(NatsSink::new(own, tls)),
            SinkTarget::Parquet(own) => {
                SinkDestination::Parquet(SinkWorker::new(ParquetSink::new(own)))
            }
            SinkTarget::Postgres(own) => SinkDestination::Postgres(SqlSink::new(own, tls)),
            SinkTarget::Sqlite(own) => {
                SinkDestination::Sqlite(SinkWorker::new(SqliteSink::new(own)))
            }
            SinkTarget::Stream(own) => SinkDestination::Stream(RedisStreamSink::new(own, tls)),
            SinkTarget::Web(own) => SinkDestination::Web(WebhookSink::new(own, tls)),
        }
    }

    /// Whether the destination is a local disk, behind a thread of its own.
    pub(super) fn is_local_disk(&self) -> bool {
        matches!(
            self,
            SinkDestination::Files(_) | SinkDestination::Parquet(_) | SinkDestination::Sqlite(_)
        )
    }

    /// Connects to the destination, or checks that its files can be written.
    pub(super) async fn connect(&mut self) -> Result<(), String> {
        match self {
            SinkDestination::Files(files) => files.connect().await,
            SinkDestination::Kafka(kafka) => kafka.connect().await,
            SinkDestination::Mysql(tables) => tables.connect().await,
            SinkDestination::Nats(nats) => nats.connect().await,
            SinkDestination::Parquet(files) => files.connect().await,
            SinkDestination::Postgres(tables) => tables.connect().await,
            SinkDestination::Sqlite(tables) => tables.connect().await,
            SinkDestination::Stream(stream) => stream.connect().await,
            SinkDestination::Web(web) => web.connect().await,
        }
    }

    /// Waits until earlier writes of a local destination are done: another sink may write to the
    /// same files.
    pub(super) async fn finish(&mut self) {
        match self {
            SinkDestination::Files(worker) => worker.finish().await,
            SinkDestination::Parquet(worker) => worker.finish().await,
            SinkDestination::Sqlite(worker) => worker.finish().await,
            _ => {}
        }
    }

    /// Delivers a batch. Returns success only if the destination has accepted every message.
    pub(super) async fn deliver(&mut self, batch: &[Arc<SinkMessage>]) -> Result<(), BatchError> {
        match self {
            SinkDestination::Files(files) => files.deliver(batch).await,
            SinkDestination::Kafka(kafka) => kafka.deliver(batch).await,
            SinkDestination::Mysql(tables) => tables.deliver(batch).await,
            SinkDestination::Nats(nats) => nats.deliver(batch).await,
            SinkDestination::Parquet(files) => files.deliver(batch).await,
            SinkDestination::Postgres(tables) => tables.deliver(batch).await,
            SinkDestination::Sqlite(tables) => tables.deliver(batch).await,
            SinkDestination::Stream(stream) => stream.deliver(batch).await,
            SinkDestination::Web(web) => web.deliver(batch).await,
        }
    }
}
