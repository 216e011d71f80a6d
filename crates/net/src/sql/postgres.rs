//! PostgreSQL by `tokio-postgres`. This crate provides the connections, timeouts and byte bounds of
//! answers.

use super::postgres_values::{PostgresParameter, text_row};
use super::{InsertError, SqlDatabase};
use crate::client_driver::{AnswerLimit, ClientDriver, LimitedStream};
use crate::endpoint::{AsyncStream, ServerEndpoint};
use crate::server_pool::RemoteError;
use crate::server_url::{ServerUrl, percent_decode};
use crate::table_row::{ANSWER_BYTES_MAX, TableRow};
use futures_util::future::{join_all, join3};
use rustls::ClientConfig;
use std::error::Error as _;
use std::future::Future;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_postgres::error::Severity;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Config, Error, NoTls, Statement};

pub struct PostgresDatabase {
    endpoint: ServerEndpoint,
    config: Config,
}

pub const SCHEMES: &[&str] = &["postgres", "postgresql"];
const PORT: u16 = 5432;
/// SSLRequest: the length of the message and the code that asks for TLS.
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];

pub struct PostgresConnection {
    client: Client,
    driver: ClientDriver,
    limit: AnswerLimit,
    /// The last prepared statement, with its text.
    prepared: Option<(String, Statement)>,
}

impl PostgresDatabase {
    pub fn new(url: &ServerUrl, tls: Option<Arc<ClientConfig>>) -> PostgresDatabase {
        let port = url.port.unwrap_or(PORT);
        let user = url.user.as_deref().unwrap_or("postgres");
        let path = url.path.trim_start_matches('/');
        let database =
            percent_decode(path.split('?').next().unwrap_or_default()).unwrap_or_default();
        let mut config = Config::new();
        config.user(user).password(url.password.as_deref().unwrap_or_default());
        config.dbname(if database.is_empty() { user } else { &database });
        config.application_name("godwit");
        PostgresDatabase { endpoint: ServerEndpoint { host: url.host.clone(), port, tls }, config }
    }

    async fn open(&self) -> Result<Box<dyn AsyncStream>, String> {
        let mut stream = self.endpoint.connect_tcp().await?;
        let Some(tls) = &self.endpoint.tls else { return Ok(Box::new(stream)) };
        let broken = |error| format!("{}: {error}", self.endpoint);
        stream.write_all(&SSL_REQUEST).await.map_err(broken)?;
        // Exactly one byte is read: plain text after it could come from an attacker.
        match stream.read_u8().await.map_err(broken)? {
            b'S' => self.endpoint.start_tls(stream, tls.clone()).await,
            _ => Err(format!("{}: it does not speak TLS", self.endpoint)),
        }
    }
}

/// Returns the reason to refuse a request for authentication, given the start of the server's
/// message: without TLS `tokio-postgres` would send the password in plain text or as MD5. `None` if
/// the method is safe.
fn weak_proof(head: &[u8]) -> Option<&'static str> {
    match head {
        [b'R', 0, 0, 0, _, 0, 0, 0, 3, ..] => {
            Some("it wants the password in plain text, which needs TLS")
        }
        [b'R', 0, 0, 0, _, 0, 0, 0, 5, ..] => Some("it wants a proof by MD5, which needs TLS"),
        _ => None,
    }
}

impl SqlDatabase for PostgresDatabase {
    type Conn = PostgresConnection;
    const NAME: &'static str = "postgres";

    fn placeholder(n: usize) -> String {
        format!("${n}")
    }

    async fn connect(&self) -> Result<PostgresConnection, String> {
        let limit = AnswerLimit::new();
        let refusal = if self.endpoint.tls.is_some() { |_: &[u8]| None } else { weak_proof };
        let stream = LimitedStream::new(self.open().await?, limit.clone(), refusal);
        let opened = self.config.connect_raw(stream, NoTls).await;
        let (client, connection) =
            opened.map_err(|error| format!("{}: {}", self.endpoint, describe_error(&error)))?;
        let driver = ClientDriver::new(async move {
            match connection.await {
                Ok(()) => "the connection is closed".to_string(),
                Err(error) => describe_error(&error),
            }
        });
        Ok(PostgresConnection { client, driver, limit, prepared: None })
    }

    /// Sends parameters as text of `Type::UNKNOWN`; the server infers the type of each.
    async fn query(
        &self,
        conn: &mut PostgresConnection,
        query: &str,
        values: &[Vec<u8>],
    ) -> Result<Vec<TableRow>, RemoteError> {
        conn.limit.begin();
        let values: Vec<_> = values.iter().map(|value| PostgresParameter(Some(value))).collect();
        let typed = values.iter().map(|value| (value as &(dyn ToSql + Sync), Type::UNKNOWN));
        let typed: Vec<_> = typed.collect();
        let rows = conn.driver.run(conn.client.query_typed(query, &typed)).await;
        let rows = rows.map_err(RemoteError::Broken)?.map_err(|error| remote_error(&error))?;
        let mut bytes_left = ROWS_BYTES_MAX;
        rows.iter().map(|row| text_row(row, &mut bytes_left)).collect()
    }

    /// Inserts the rows by one transaction; a single row needs no `BEGIN`.
    async fn insert(
        &self,
        conn: &mut PostgresConnection,
        statement: &str,
        rows: &[Vec<Option<Vec<u8>>>],
    ) -> Result<(), InsertError> {
        let statement = conn.prepare(statement).await.map_err(InsertError::Remote)?;
        if rows.iter().any(|row| row.len() != statement.params().len()) {
            let why = "it sees other placeholders than we do".to_string();
            return Err(InsertError::Remote(RemoteError::ErrorReply(why)));
        }
        conn.limit.begin_pipeline();
        let client = &conn.client;
        let inserted = match rows {
            [row] => conn.driver.run(insert_row(client, &statement, row)).await,
            rows => conn.driver.run(insert_rows(client, &statement, rows)).await,
        };
        let inserted = inserted.map_err(|why| InsertError::Remote(RemoteError::Broken(why)))?;
        inserted.map_err(|error| insert_error(&error))
    }
}

/// Byte bound of all rows. Larger than the bound of an answer, because each value here has its
/// column's name, while the server sends the names once.
const ROWS_BYTES_MAX: usize = 4 * ANSWER_BYTES_MAX;

fn insert_row<'a>(
    client: &'a Client,
    statement: &'a Statement,
    row: &'a [Option<Vec<u8>>],
) -> impl Future<Output = Result<(), Error>> + 'a {
    let values = row.iter().map(|value| PostgresParameter(value.as_deref()));
    async move { client.execute_raw(statement, values).await.map(drop) }
}

/// Sends `BEGIN`, all rows and `COMMIT` before the first answer: requests go out in the order of
/// their first poll. The first error counts, since the server skips the statements after an error.
async fn insert_rows(
    client: &Client,
    statement: &Statement,
    rows: &[Vec<Option<Vec<u8>>>],
) -> Result<(), Error> {
    let inserts = join_all(rows.iter().map(|row| insert_row(client, statement, row)));
    let (begun, inserted, committed) =
        join3(client.batch_execute("BEGIN"), inserts, client.batch_execute("COMMIT")).await;
    begun?;
    inserted.into_iter().collect::<Result<(), Error>>()?;
    committed
}

impl PostgresConnection {
    async fn prepare(&mut self, text: &str) -> Result<Statement, RemoteError> {
        if let Some((known, statement)) = &self.prepared
            && known == text
        {
            return Ok(statement.clone());
        }
        self.prepared = None;
        self.limit.begin();
        let statement = self.driver.run(self.client.prepare(text)).await;
        let statement =
            statement.map_err(RemoteError::Broken)?.map_err(|error| remote_error(&error))?;
        self.prepared = Some((text.to_string(), statement.clone()));
        Ok(statement)
    }
}

/// Converts an error. After a fatal error the server closes, and after an error of the library the
/// state of the connection is unknown: both are [`RemoteError::Broken`].
fn remote_error(error: &Error) -> RemoteError {
    let severity = error.as_db_error().map(|error| error.parsed_severity());
    let is_over = |severity| matches!(severity, Some(Severity::Fatal | Severity::Panic));
    match severity {
        Some(severity) if !is_over(severity) => RemoteError::ErrorReply(describe_error(error)),
        _ => RemoteError::Broken(describe_error(error)),
    }
}

/// Converts an error of an insert: wrong values (SQLSTATE 22), violated constraints (23) and
/// excessive sizes (54) are [`InsertError::Row`].
fn insert_error(error: &Error) -> InsertError {
    let class = error.code().and_then(|code| code.code().get(..2));
    match class {
        Some("22" | "23" | "54") => InsertError::Row(describe_error(error)),
        _ => InsertError::Remote(remote_error(error)),
    }
}

/// Returns the message and the code of the server's error; its details may repeat values.
fn describe_error(error: &Error) -> String {
    match (error.as_db_error(), error.source()) {
        (Some(error), _) => format!("{} ({})", error.message(), error.code().code()),
        (None, Some(cause)) => cause.to_string(),
        (None, None) => error.to_string(),
    }
}

#[cfg(test)]
#[path = "postgres_tests.rs"]
mod tests;
