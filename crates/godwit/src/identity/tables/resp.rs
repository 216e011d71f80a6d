//! The protocol of Redis (RESP2), as far as a few commands need it. Words travel apart, so a value
//! is never more than a word of its own.

use crate::identity::remote::Trouble;
use crate::identity::remote::dial::{Endpoint, Wire};
use crate::identity::remote::url::{Url, decode};
use rustls::ClientConfig;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};

pub(crate) const SCHEMES: &[&str] = &["redis", "rediss"];
const PORT: u16 = 6379;

/// The way to a server, and as whom.
pub(crate) struct Way {
    endpoint: Endpoint,
    user: Option<String>,
    password: Option<String>,
    database: String,
}

pub(crate) struct Conn {
    wire: BufReader<Box<dyn Wire>>,
    /// An answer with more is none.
    answer_bytes_max: usize,
    bytes_left: usize,
}

/// What the server says.
pub(crate) enum Said {
    Text(Vec<u8>),
    Nothing,
    /// Of what are no lists.
    List(Vec<Said>),
    /// An error is one line, and the server goes on.
    Denied(String),
}

impl Way {
    /// `tls` is for `rediss`.
    pub(crate) fn new(url: &Url, tls: Option<Arc<ClientConfig>>) -> Way {
        let tls = tls.filter(|_| url.scheme == "rediss");
        let port = url.port.unwrap_or(PORT);
        Way {
            endpoint: Endpoint { host: url.host.clone(), port, tls },
            user: url.user.clone(),
            password: url.password.clone(),
            database: decode(url.path.trim_start_matches('/')).unwrap_or_default(),
        }
    }

    pub(crate) async fn connect(&self, answer_bytes_max: usize) -> Result<Conn, String> {
        let wire = BufReader::new(self.endpoint.open().await?);
        let mut conn = Conn { wire, answer_bytes_max, bytes_left: 0 };
        match self.introduce(&mut conn).await {
            Ok(()) => Ok(conn),
            Err(Trouble::Answered(why) | Trouble::Broken(why)) => {
                Err(format!("{}: {why}", self.endpoint))
            }
        }
    }

    async fn introduce(&self, conn: &mut Conn) -> Result<(), Trouble> {
        if let Some(password) = &self.password {
            let mut words = vec!["AUTH"];
            words.extend(self.user.as_deref());
            words.push(password);
            conn.ask(&words).await?;
        }
        if !self.database.is_empty() {
            conn.ask(&["SELECT", &self.database]).await?;
        }
        Ok(())
    }
}

impl Conn {
    pub(crate) async fn ask(&mut self, words: &[impl AsRef<[u8]>]) -> Result<Said, Trouble> {
        let mut out = Vec::new();
        write(words, &mut out);
        self.tell(&out).await?;
        match self.hear().await? {
            Said::Denied(why) => Err(Trouble::Answered(why)),
            said => Ok(said),
        }
    }

    /// Commands that were written, whose answers are heard later.
    pub(crate) async fn tell(&mut self, commands: &[u8]) -> Result<(), Trouble> {
        let broken = |error: std::io::Error| Trouble::Broken(error.to_string());
        self.wire.write_all(commands).await.map_err(broken)?;
        self.wire.flush().await.map_err(broken)
    }

    /// One answer.
    pub(crate) async fn hear(&mut self) -> Result<Said, Trouble> {
        self.bytes_left = self.answer_bytes_max;
        let (kind, text) = self.read_line().await?;
        if kind != b'*' {
            return self.read_value(kind, text).await;
        }
        let len: i64 = text.parse().map_err(|_| no_sense())?;
        let mut list = Vec::new();
        for _ in 0..len.max(0) {
            let (kind, text) = self.read_line().await?;
            list.push(self.read_value(kind, text).await?);
        }
        Ok(Said::List(list))
    }

    async fn read_value(&mut self, kind: u8, text: String) -> Result<Said, Trouble> {
        match kind {
            b'$' => {
                let len: i64 = text.parse().map_err(|_| no_sense())?;
                let Ok(len) = usize::try_from(len) else { return Ok(Said::Nothing) };
                let mut value = vec![0; self.spend(len.saturating_add(2))?];
                let read = self.wire.read_exact(&mut value).await;
                read.map_err(|error| Trouble::Broken(error.to_string()))?;
                value.truncate(len);
                Ok(Said::Text(value))
            }
            b'+' | b':' => Ok(Said::Text(text.into_bytes())),
            b'-' => Ok(Said::Denied(text)),
            _ => Err(no_sense()),
        }
    }

    /// Its first byte and the rest without its end.
    async fn read_line(&mut self) -> Result<(u8, String), Trouble> {
        let mut line = Vec::new();
        while line.last() != Some(&b'\n') {
            self.spend(1)?;
            let byte = self.wire.read_u8().await;
            line.push(byte.map_err(|error| Trouble::Broken(error.to_string()))?);
        }
        let text = String::from_utf8(line).map_err(|_| no_sense())?;
        let rest = text.get(1..).ok_or_else(no_sense)?.trim_end().to_string();
        Ok((text.as_bytes()[0], rest))
    }

    fn spend(&mut self, bytes: usize) -> Result<usize, Trouble> {
        let left = self.bytes_left.checked_sub(bytes);
        self.bytes_left =
            left.ok_or_else(|| Trouble::Broken("it answers with more than we read".to_string()))?;
        Ok(bytes)
    }
}

/// One command.
pub(crate) fn write(words: &[impl AsRef<[u8]>], out: &mut Vec<u8>) {
    out.extend(format!("*{}\r\n", words.len()).into_bytes());
    for word in words {
        let word = word.as_ref();
        out.extend(format!("${}\r\n", word.len()).into_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

pub(crate) fn no_sense() -> Trouble {
    Trouble::Broken("it makes no sense".into())
}
