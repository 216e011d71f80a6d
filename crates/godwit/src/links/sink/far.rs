//! What a sink hands batches to.

use super::files::Files;
use super::kafka::Kafka;
use super::message::Message;
use super::nats::Nats;
use super::parquet::Parquet;
use super::settings::{SinkSettings, Target};
use super::sql::Tables;
use super::sqlite::Sqlite;
use super::stream::Stream;
use super::web::Web;
use super::worker::Worker;
use crate::identity::tables::mysql::Mysql;
use crate::identity::tables::postgres::Postgres;
use crate::links::Credentials;
use std::sync::Arc;
use std::time::Duration;

/// Why a batch, or the end of it, did not go.
#[derive(Debug)]
pub(super) struct Setback {
    /// So many of it, from the front, the far side has all the same.
    pub(super) taken: usize,
    pub(super) what: What,
}

#[derive(Clone, Debug)]
pub(super) enum What {
    /// It would be refused again.
    Refused(String),
    /// The options give nothing to write of it, so nobody is asked.
    Unwritable(String),
    /// Nobody is there, or not in order.
    Down { why: String, after: Option<Duration> },
}

impl What {
    pub(super) fn down(why: String) -> What {
        What::Down { why, after: None }
    }
}

impl Setback {
    pub(super) fn down(why: String) -> Setback {
        Setback { taken: 0, what: What::down(why) }
    }

    pub(super) fn refused(why: String) -> Setback {
        Setback { taken: 0, what: What::Refused(why) }
    }
}

pub(super) enum Far {
    Files(Worker<Files>),
    Kafka(Kafka),
    Mysql(Tables<Mysql>),
    Nats(Nats),
    Parquet(Worker<Parquet>),
    Postgres(Tables<Postgres>),
    Sqlite(Worker<Sqlite>),
    Stream(Stream),
    Web(Web),
}

impl Far {
    pub(super) fn new(settings: &SinkSettings, tls: Credentials) -> Far {
        match &settings.target {
            Target::Files(own) => Far::Files(Worker::new(Files::new(own))),
            Target::Kafka(own) => Far::Kafka(Kafka::new(own, tls)),
            Target::Mysql(own) => Far::Mysql(Tables::new(own, tls)),
            Target::Nats(own) => Far::Nats(Nats::new(own, tls)),
            Target::Parquet(own) => Far::Parquet(Worker::new(Parquet::new(own))),
            Target::Postgres(own) => Far::Postgres(Tables::new(own, tls)),
            Target::Sqlite(own) => Far::Sqlite(Worker::new(Sqlite::new(own))),
            Target::Stream(own) => Far::Stream(Stream::new(own, tls)),
            Target::Web(own) => Far::Web(Web::new(own, tls)),
        }
    }

    /// Whether it is a thread of ours, and a disk.
    pub(super) fn is_here(&self) -> bool {
        matches!(self, Far::Files(_) | Far::Parquet(_) | Far::Sqlite(_))
    }

    /// Makes sure that somebody is there.
    pub(super) async fn connect(&mut self) -> Result<(), String> {
        match self {
            Far::Files(files) => files.connect().await,
            Far::Kafka(kafka) => kafka.connect().await,
            Far::Mysql(tables) => tables.connect().await,
            Far::Nats(nats) => nats.connect().await,
            Far::Parquet(files) => files.connect().await,
            Far::Postgres(tables) => tables.connect().await,
            Far::Sqlite(tables) => tables.connect().await,
            Far::Stream(stream) => stream.connect().await,
            Far::Web(web) => web.connect().await,
        }
    }

    /// When it says that all went well, the far side has what it was given.
    /// What it was given before is written, or never will be.
    pub(super) async fn end(&mut self) {
        match self {
            Far::Files(worker) => worker.end().await,
            Far::Parquet(worker) => worker.end().await,
            Far::Sqlite(worker) => worker.end().await,
            _ => {}
        }
    }

    pub(super) async fn take(&mut self, batch: &[Arc<Message>]) -> Result<(), Setback> {
        match self {
            Far::Files(files) => files.take(batch).await,
            Far::Kafka(kafka) => kafka.take(batch).await,
            Far::Mysql(tables) => tables.take(batch).await,
            Far::Nats(nats) => nats.take(batch).await,
            Far::Parquet(files) => files.take(batch).await,
            Far::Postgres(tables) => tables.take(batch).await,
            Far::Sqlite(tables) => tables.take(batch).await,
            Far::Stream(stream) => stream.take(batch).await,
            Far::Web(web) => web.take(batch).await,
        }
    }
}
