//! A sink that is Redis: a message is an entry of a stream, and a batch one pipeline.
//! It is no transaction: Redis 7.0 whose default user is off drops these when it reads its AOF.

use super::ahead::Ahead;
use super::columns::Columns;
use super::far::{Setback, What};
use super::message::Message;
use super::template::{Template, Tongue};
use crate::identity::remote::Trouble;
use crate::identity::remote::url::Url;
use crate::identity::tables::ANSWER_BYTES_MAX;
use crate::identity::tables::resp::{Conn, Said, Way, write};
use crate::links::{Credentials, lock};
use std::sync::Arc;

/// What the options say of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StreamSettings {
    pub(crate) url: Url,
    pub(crate) key: Template,
    pub(crate) fields: Columns,
    /// 0 is without end.
    pub(crate) entries_max: u64,
}

pub(super) struct Stream {
    settings: StreamSettings,
    tls: Credentials,
    conn: Option<Conn>,
    ahead: Ahead,
}

impl Stream {
    pub(super) fn new(settings: &StreamSettings, tls: Credentials) -> Stream {
        Stream { settings: settings.clone(), tls, conn: None, ahead: Ahead::default() }
    }

    pub(super) async fn connect(&mut self) -> Result<(), String> {
        self.conn = None;
        let way = Way::new(&self.settings.url, lock(&self.tls).clone());
        let mut conn = way.connect(ANSWER_BYTES_MAX).await?;
        // One that reads its files, or wants a password, says so to this.
        match conn.ask(&["PING"]).await {
            Ok(_) => self.conn = Some(conn),
            Err(Trouble::Answered(why) | Trouble::Broken(why)) => return Err(why),
        }
        Ok(())
    }

    pub(super) async fn take(&mut self, batch: &[Arc<Message>]) -> Result<(), Setback> {
        let sent = self.ahead.missing(batch);
        if sent.is_empty() {
            return Ok(());
        }
        // Whoever stops waiting leaves no connection behind that is in the middle of something.
        let Some(mut conn) = self.conn.take() else {
            return Err(Setback::down("it is not connected".into()));
        };
        let said = match tell(&mut conn, &self.commands(&sent), sent.len()).await {
            Ok(said) => said,
            Err(Trouble::Answered(why) | Trouble::Broken(why)) => return Err(Setback::down(why)),
        };
        self.conn = Some(conn);
        let outcome = |said| match said {
            Said::Denied(why) if why.starts_with("WRONGTYPE") => Err(What::Refused(why)),
            Said::Denied(why) => Err(What::down(why)),
            _ => Ok(()),
        };
        self.ahead.settle(batch, &sent, said.into_iter().map(outcome).collect())
    }

    fn commands(&self, batch: &[&Arc<Message>]) -> Vec<u8> {
        let mut out = Vec::new();
        for message in batch {
            let mut key = Vec::new();
            self.settings.key.fill(message, Tongue::Bytes, &mut key);
            let mut words = vec![b"XADD".to_vec(), key];
            if self.settings.entries_max > 0 {
                let most = self.settings.entries_max.to_string().into_bytes();
                words.extend([b"MAXLEN".to_vec(), b"~".to_vec(), most]);
            }
            words.push(b"*".to_vec());
            self.settings.fields.push_words(message, &mut words);
            write(&words, &mut out);
        }
        out
    }
}

/// What is said of each of so many commands.
async fn tell(conn: &mut Conn, commands: &[u8], count: usize) -> Result<Vec<Said>, Trouble> {
    conn.tell(commands).await?;
    let mut all = Vec::with_capacity(count);
    for _ in 0..count {
        all.push(conn.hear().await?);
    }
    Ok(all)
}
