//! Redis sink: a message is an entry of a stream, and a batch is a pipeline. The pipeline is not a
//! transaction: Redis 7.0 with the default user off drops transactions when it reads its AOF.

use super::columns::SinkColumns;
use super::delivered_ahead::DeliveredAhead;
use super::destination::{BatchError, SinkError};
use super::message::SinkMessage;
use super::template::{SinkTemplate, ValueEncoding};
use crate::{ClientTlsCell, lock};
use net::redis::{RedisConnection, RedisEndpoint, RedisReply, push_command};
use net::server_pool::RemoteError;
use net::server_url::ServerUrl;
use net::table_row::ANSWER_BYTES_MAX;
use std::sync::Arc;

/// Values of the option rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisStreamSettings {
    pub url: ServerUrl,
    pub key: SinkTemplate,
    pub fields: SinkColumns,
    /// Approximate bound of entries in a stream (MAXLEN ~); 0 means no bound.
    pub entries_max: u64,
}

pub(super) struct RedisStreamSink {
    settings: RedisStreamSettings,
    tls: ClientTlsCell,
    conn: Option<RedisConnection>,
    ahead: DeliveredAhead,
}

impl RedisStreamSink {
    pub(super) fn new(settings: &RedisStreamSettings, tls: ClientTlsCell) -> RedisStreamSink {
        RedisStreamSink {
            settings: settings.clone(),
            tls,
            conn: None,
            ahead: DeliveredAhead::default(),
        }
    }

    pub(super) async fn connect(&mut self) -> Result<(), String> {
        self.conn = None;
        let way = RedisEndpoint::new(&self.settings.url, lock(&self.tls).clone());
        let mut conn = way.connect(ANSWER_BYTES_MAX).await?;
        // A server that is loading its files or requires a password answers with an error.
        conn.run_command(&["PING"]).await.map_err(RemoteError::into_text)?;
        self.conn = Some(conn);
        Ok(())
    }

    pub(super) async fn deliver(&mut self, batch: &[Arc<SinkMessage>]) -> Result<(), BatchError> {
        let sent = self.ahead.undelivered(batch);
        if sent.is_empty() {
            return Ok(());
        }
        // A cancelled call drops the connection, because its pipeline may be incomplete.
        let Some(mut conn) = self.conn.take() else {
            return Err(BatchError::transient("it is not connected".into()));
        };
        let said = match run_pipeline(&mut conn, &self.commands(&sent), sent.len()).await {
            Ok(said) => said,
            Err(error) => return Err(BatchError::transient(error.into_text())),
        };
        self.conn = Some(conn);
        let outcome = |said| match said {
            RedisReply::Error(why) if why.starts_with("WRONGTYPE") => Err(SinkError::Rejected(why)),
            RedisReply::Error(why) => Err(SinkError::transient(why)),
            _ => Ok(()),
        };
        self.ahead.record_results(batch, &sent, said.into_iter().map(outcome).collect())
    }

    fn commands(&self, batch: &[&Arc<SinkMessage>]) -> Vec<u8> {
        let mut out = Vec::new();
        for message in batch {
            let mut key = Vec::new();
            self.settings.key.fill(message, ValueEncoding::Bytes, &mut key);
            let mut words = vec![b"XADD".to_vec(), key];
            if self.settings.entries_max > 0 {
                let most = self.settings.entries_max.to_string().into_bytes();
                words.extend([b"MAXLEN".to_vec(), b"~".to_vec(), most]);
            }
            words.push(b"*".to_vec());
            self.settings.fields.push_name_values(message, &mut words);
            push_command(&words, &mut out);
        }
        out
    }
}

/// Returns the reply to each of the commands.
async fn run_pipeline(
    conn: &mut RedisConnection,
    commands: &[u8],
    count: usize,
) -> Result<Vec<RedisReply>, RemoteError> {
    conn.send(commands).await?;
    let mut all = Vec::with_capacity(count);
    for _ in 0..count {
        all.push(conn.read_reply().await?);
    }
    Ok(all)
}
