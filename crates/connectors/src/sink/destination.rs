//! What a sink hands batches to.

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

/// Why a batch, or the end of it, did not go.
#[derive(Debug)]
pub(super) struct BatchError {
    /// Number of messages at the front that were delivered all the same.
    pub(super) accepted: usize,
    pub(super) error: SinkError,
}

#[derive(Clone, Debug)]
pub(super) enum SinkError {
    /// The destination would refuse the message again.
    Rejected(String),
    /// The options give nothing to write of it, so nobody is asked.
    Unwritable(String),
    /// The destination is not reachable, or not in order.
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

    /// Whether it is a thread of ours, and a disk.
    pub(super) fn is_local_disk(&self) -> bool {
        matches!(
            self,
            SinkDestination::Files(_) | SinkDestination::Parquet(_) | SinkDestination::Sqlite(_)
        )
    }

    /// Makes sure that somebody is there.
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

    /// When it says that all went well, the far side has what it was given.
    /// What it was given before is written, or never will be.
    pub(super) async fn finish(&mut self) {
        match self {
            SinkDestination::Files(worker) => worker.finish().await,
            SinkDestination::Parquet(worker) => worker.finish().await,
            SinkDestination::Sqlite(worker) => worker.finish().await,
            _ => {}
        }
    }

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
