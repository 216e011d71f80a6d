//! Sinks into SQL servers: a batch is one transaction, and values are bound as parameters.

use super::destination::{BatchError, SinkError};
use super::message::{MessageField, MessageValue, SinkMessage};
use super::settings::InsertStatement;
use super::template::text_of;
use crate::{ClientTlsCell, lock};
use net::server_url::ServerUrl;
use net::sql::mysql::MysqlDatabase;
use net::sql::postgres::PostgresDatabase;
use net::sql::{InsertError, SqlDatabase};
use rustls::ClientConfig;
use std::sync::Arc;

/// Values of the option rows `sql.*` for a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqlSinkSettings {
    pub url: ServerUrl,
    pub insertion: InsertStatement,
}

/// Constructor of a database client from the option `sql.url`.
pub(super) trait SqlSinkDatabase: SqlDatabase {
    fn from_url(url: &ServerUrl, tls: Option<Arc<ClientConfig>>) -> Self;
}

impl SqlSinkDatabase for MysqlDatabase {
    fn from_url(url: &ServerUrl, tls: Option<Arc<ClientConfig>>) -> MysqlDatabase {
        MysqlDatabase::new(url, tls)
    }
}

impl SqlSinkDatabase for PostgresDatabase {
    fn from_url(url: &ServerUrl, tls: Option<Arc<ClientConfig>>) -> PostgresDatabase {
        PostgresDatabase::new(url, tls)
    }
}

/// A sink into an SQL server; `D` is the client.
pub(super) struct SqlSink<D: SqlDatabase> {
    settings: SqlSinkSettings,
    tls: ClientTlsCell,
    conn: Option<(D, D::Conn)>,
}

impl<D: SqlSinkDatabase> SqlSink<D> {
    pub(super) fn new(settings: &SqlSinkSettings, tls: ClientTlsCell) -> SqlSink<D> {
        SqlSink { settings: settings.clone(), tls, conn: None }
    }

    pub(super) async fn connect(&mut self) -> Result<(), String> {
        self.conn = None;
        let server = D::from_url(&self.settings.url, lock(&self.tls).clone());
        let mut conn = server.connect().await?;
        for statement in &self.settings.insertion.setup {
            match server.insert(&mut conn, statement, &[Vec::new()]).await {
                Ok(()) => {}
                Err(InsertError::Row(why)) => return Err(format!("sql.setup: {why}")),
                Err(InsertError::Remote(error)) => {
                    return Err(format!("sql.setup: {}", error.into_text()));
                }
            }
        }
        self.conn = Some((server, conn));
        Ok(())
    }

    pub(super) async fn deliver(&mut self, batch: &[Arc<SinkMessage>]) -> Result<(), BatchError> {
        // A cancelled call drops the connection, so no transaction is left open on it.
        let Some((server, mut conn)) = self.conn.take() else {
            return Err(BatchError::transient("it is not connected".into()));
        };
        let InsertStatement { text, fields, .. } = &self.settings.insertion;
        let row = |message: &Arc<SinkMessage>| {
            fields.iter().map(|field| bound_value(message, field)).collect()
        };
        let rows: Vec<Vec<Option<Vec<u8>>>> = batch.iter().map(row).collect();
        let what = match server.insert(&mut conn, text, &rows).await {
            Ok(()) => {
                self.conn = Some((server, conn));
                return Ok(());
            }
            Err(InsertError::Row(why)) => {
                self.conn = Some((server, conn));
                SinkError::Rejected(why)
            }
            Err(InsertError::Remote(error)) => SinkError::transient(error.into_text()),
        };
        Err(BatchError { accepted: 0, error: what })
    }
}

/// Returns a bound value as text, or as bytes if it is not UTF-8.
fn bound_value(message: &SinkMessage, field: &MessageField) -> Option<Vec<u8>> {
    match message.value(field) {
        MessageValue::Nothing => None,
        MessageValue::Bytes(bytes) => Some(bytes.into_owned()),
        value => Some(text_of(&value).into_owned().into_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_value_is_null_and_an_empty_text_is_not() {
        let payload = br#"{"null":null,"text":"","number":1.5,"is":true}"#.to_vec();
        let message = SinkMessage { payload, topic: "a".into(), ..SinkMessage::default() };
        for (name, expected) in [
            ("payload.gone", None),
            ("payload.null", None),
            ("payload.text.deeper", None),
            ("topic[2]", None),
            ("clientid", None),
            ("properties.user.unit", None),
            ("payload.text", Some("")),
            ("payload.number", Some("1.5")),
            ("payload.is", Some("true")),
        ] {
            let field = MessageField::parse(name).unwrap();
            let expected = expected.map(|text| text.as_bytes().to_vec());
            assert_eq!(bound_value(&message, &field), expected, "{name}");
        }
    }
}
