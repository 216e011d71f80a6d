//! Sinks that are servers of SQL: a batch is one transaction, and values travel beside the
//! statement.

use super::far::{Setback, What};
use super::message::{Field, Message, Value};
use super::settings::Insertion;
use super::template::text_of;
use crate::identity::remote::Trouble;
use crate::identity::remote::url::Url;
use crate::identity::tables::mysql::Mysql;
use crate::identity::tables::postgres::Postgres;
use crate::identity::tables::sql::{Database, Denied};
use crate::links::{Credentials, lock};
use rustls::ClientConfig;
use std::sync::Arc;

/// What the options say of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SqlSettings {
    pub(crate) url: Url,
    pub(crate) insertion: Insertion,
}

/// How such a server is made of its options.
pub(super) trait Made: Database {
    fn made(url: &Url, tls: Option<Arc<ClientConfig>>) -> Self;
}

impl Made for Mysql {
    fn made(url: &Url, tls: Option<Arc<ClientConfig>>) -> Mysql {
        Mysql::new(url, tls)
    }
}

impl Made for Postgres {
    fn made(url: &Url, tls: Option<Arc<ClientConfig>>) -> Postgres {
        Postgres::new(url, tls)
    }
}

pub(super) struct Tables<D: Database> {
    settings: SqlSettings,
    tls: Credentials,
    conn: Option<(D, D::Conn)>,
}

impl<D: Made> Tables<D> {
    pub(super) fn new(settings: &SqlSettings, tls: Credentials) -> Tables<D> {
        Tables { settings: settings.clone(), tls, conn: None }
    }

    pub(super) async fn connect(&mut self) -> Result<(), String> {
        self.conn = None;
        let server = D::made(&self.settings.url, lock(&self.tls).clone());
        let mut conn = server.connect().await?;
        for statement in &self.settings.insertion.setup {
            match server.insert(&mut conn, statement, &[Vec::new()]).await {
                Ok(()) => {}
                Err(
                    Denied::Row(why)
                    | Denied::Trouble(Trouble::Answered(why) | Trouble::Broken(why)),
                ) => {
                    return Err(format!("sql.setup: {why}"));
                }
            }
        }
        self.conn = Some((server, conn));
        Ok(())
    }

    pub(super) async fn take(&mut self, batch: &[Arc<Message>]) -> Result<(), Setback> {
        // Whoever stops waiting leaves no connection behind that is in the middle of something.
        let Some((server, mut conn)) = self.conn.take() else {
            return Err(Setback::down("it is not connected".into()));
        };
        let Insertion { text, fields, .. } = &self.settings.insertion;
        let row =
            |message: &Arc<Message>| fields.iter().map(|field| bound(message, field)).collect();
        let rows: Vec<Vec<Option<Vec<u8>>>> = batch.iter().map(row).collect();
        let what = match server.insert(&mut conn, text, &rows).await {
            Ok(()) => {
                self.conn = Some((server, conn));
                return Ok(());
            }
            Err(Denied::Row(why)) => {
                self.conn = Some((server, conn));
                What::Refused(why)
            }
            Err(Denied::Trouble(Trouble::Answered(why) | Trouble::Broken(why))) => What::down(why),
        };
        Err(Setback { taken: 0, what })
    }
}

/// As text, but for bytes that are none.
fn bound(message: &Message, field: &Field) -> Option<Vec<u8>> {
    match message.value(field) {
        Value::Nothing => None,
        Value::Bytes(bytes) => Some(bytes.into_owned()),
        value => Some(text_of(&value).into_owned().into_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_value_is_null_and_an_empty_text_is_not() {
        let payload = br#"{"null":null,"text":"","number":1.5,"is":true}"#.to_vec();
        let message = Message { payload, topic: "a".into(), ..Message::default() };
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
            let field = Field::parse(name).unwrap();
            let expected = expected.map(|text| text.as_bytes().to_vec());
            assert_eq!(bound(&message, &field), expected, "{name}");
        }
    }
}
