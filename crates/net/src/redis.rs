//! Subset of the Redis protocol (RESP2). Each word of a command is sent with its length, so a value
//! can never become a command.

use crate::endpoint::{AsyncStream, ServerEndpoint};
use crate::server_pool::RemoteError;
use crate::server_url::{ServerUrl, percent_decode};
use rustls::ClientConfig;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};

pub const SCHEMES: &[&str] = &["redis", "rediss"];
const PORT: u16 = 6379;

/// Address and credentials of a Redis server.
pub struct RedisEndpoint {
    endpoint: ServerEndpoint,
    user: Option<String>,
    password: Option<String>,
    database: String,
}

pub struct RedisConnection {
    wire: BufReader<Box<dyn AsyncStream>>,
    /// Maximum reply, in bytes; a longer reply is an error.
    answer_bytes_max: usize,
    bytes_left: usize,
}

/// A reply of the server.
pub enum RedisReply {
    Text(Vec<u8>),
    Nil,
    /// List without nested lists.
    List(Vec<RedisReply>),
    /// Error reply: a single line; the connection stays usable.
    Error(String),
}

impl RedisEndpoint {
    /// Takes address, credentials and database from the URL. `tls` is used for the scheme `rediss`
    /// only.
    pub fn new(url: &ServerUrl, tls: Option<Arc<ClientConfig>>) -> RedisEndpoint {
        let tls = tls.filter(|_| url.scheme == "rediss");
        let port = url.port.unwrap_or(PORT);
        RedisEndpoint {
            endpoint: ServerEndpoint { host: url.host.clone(), port, tls },
            user: url.user.clone(),
            password: url.password.clone(),
            database: percent_decode(url.path.trim_start_matches('/')).unwrap_or_default(),
        }
    }

    pub async fn connect(&self, answer_bytes_max: usize) -> Result<RedisConnection, String> {
        let wire = BufReader::new(self.endpoint.connect().await?);
        let mut conn = RedisConnection { wire, answer_bytes_max, bytes_left: 0 };
        match self.authenticate(&mut conn).await {
            Ok(()) => Ok(conn),
            Err(error) => Err(format!("{}: {}", self.endpoint, error.into_text())),
        }
    }

    async fn authenticate(&self, conn: &mut RedisConnection) -> Result<(), RemoteError> {
        if let Some(password) = &self.password {
            let mut words = vec!["AUTH"];
            words.extend(self.user.as_deref());
            words.push(password);
            conn.run_command(&words).await?;
        }
        if !self.database.is_empty() {
            conn.run_command(&["SELECT", &self.database]).await?;
        }
        Ok(())
    }
}

impl RedisConnection {
    pub async fn run_command(
        &mut self,
        words: &[impl AsRef<[u8]>],
    ) -> Result<RedisReply, RemoteError> {
        let mut out = Vec::new();
        push_command(words, &mut out);
        self.send(&out).await?;
        match self.read_reply().await? {
            RedisReply::Error(why) => Err(RemoteError::ErrorReply(why)),
            said => Ok(said),
        }
    }

    /// Sends encoded commands without waiting; [`Self::read_reply`] reads the replies.
    pub async fn send(&mut self, commands: &[u8]) -> Result<(), RemoteError> {
        let broken = |error: std::io::Error| RemoteError::Broken(error.to_string());
        self.wire.write_all(commands).await.map_err(broken)?;
        self.wire.flush().await.map_err(broken)
    }

    /// Reads a reply.
    pub async fn read_reply(&mut self) -> Result<RedisReply, RemoteError> {
        self.bytes_left = self.answer_bytes_max;
        let (kind, text) = self.read_line().await?;
        if kind != b'*' {
            return self.read_value(kind, text).await;
        }
        let len: i64 = text.parse().map_err(|_| malformed_answer())?;
        let mut list = Vec::new();
        for _ in 0..len.max(0) {
            let (kind, text) = self.read_line().await?;
            list.push(self.read_value(kind, text).await?);
        }
        Ok(RedisReply::List(list))
    }

    async fn read_value(&mut self, kind: u8, text: String) -> Result<RedisReply, RemoteError> {
        match kind {
            b'$' => {
                let len: i64 = text.parse().map_err(|_| malformed_answer())?;
                let Ok(len) = usize::try_from(len) else { return Ok(RedisReply::Nil) };
                let mut value = vec![0; self.consume_limit(len.saturating_add(2))?];
                let read = self.wire.read_exact(&mut value).await;
                read.map_err(|error| RemoteError::Broken(error.to_string()))?;
                value.truncate(len);
                Ok(RedisReply::Text(value))
            }
            b'+' | b':' => Ok(RedisReply::Text(text.into_bytes())),
            b'-' => Ok(RedisReply::Error(text)),
            _ => Err(malformed_answer()),
        }
    }

    /// Reads a line. Returns its first byte, and the rest without the line end.
    async fn read_line(&mut self) -> Result<(u8, String), RemoteError> {
        let mut line = Vec::new();
        while line.last() != Some(&b'\n') {
            self.consume_limit(1)?;
            let byte = self.wire.read_u8().await;
            line.push(byte.map_err(|error| RemoteError::Broken(error.to_string()))?);
        }
        let text = String::from_utf8(line).map_err(|_| malformed_answer())?;
        let rest = text.get(1..).ok_or_else(malformed_answer)?.trim_end().to_string();
        Ok((text.as_bytes()[0], rest))
    }

    fn consume_limit(&mut self, bytes: usize) -> Result<usize, RemoteError> {
        let left = self.bytes_left.checked_sub(bytes);
        self.bytes_left = left
            .ok_or_else(|| RemoteError::Broken("it answers with more than we read".to_string()))?;
        Ok(bytes)
    }
}

/// Appends a command to `out`.
pub fn push_command(words: &[impl AsRef<[u8]>], out: &mut Vec<u8>) {
    out.extend(format!("*{}\r\n", words.len()).into_bytes());
    for word in words {
        let word = word.as_ref();
        out.extend(format!("${}\r\n", word.len()).into_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

pub fn malformed_answer() -> RemoteError {
    RemoteError::Broken("it makes no sense".into())
}
