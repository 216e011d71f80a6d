//! PostgreSQL, as far as two queries need its protocol (version 3.0, chapter "Frontend/Backend
//! Protocol" of its manual): start, TLS, SCRAM, and one query with values beside it.

use super::{InsertError, SqlDatabase};
use crate::endpoint::{AsyncStream, ServerEndpoint};
use crate::scram::client::ScramClient;
use crate::server_pool::RemoteError;
use crate::server_url::{ServerUrl, percent_decode};
use crate::table_row::{ANSWER_BYTES_MAX, TableRow};
use rustls::ClientConfig;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};

pub struct PostgresDatabase {
    endpoint: ServerEndpoint,
    user: String,
    password: String,
    database: String,
}

pub const SCHEMES: &[&str] = &["postgres", "postgresql"];
const PORT: u16 = 5432;
const PROTOCOL: u32 = 196_608;
const SSL_REQUEST: u32 = 80_877_103;

pub struct PostgresConnection {
    wire: Box<dyn AsyncStream>,
    /// Remaining bytes of the answer that is being read.
    bytes_left: usize,
    /// A statement that the server knows, and the kinds of its values.
    prepared: Option<(String, Vec<u32>)>,
}

const PREPARED: &str = "rows";

/// A message of the server's: its type and what is in it.
struct PostgresMessage {
    kind: u8,
    body: Vec<u8>,
}

/// Messages of ours, to be written at once.
#[derive(Default)]
struct PostgresRequest(Vec<u8>);

impl PostgresDatabase {
    pub fn new(url: &ServerUrl, tls: Option<Arc<ClientConfig>>) -> PostgresDatabase {
        let port = url.port.unwrap_or(PORT);
        let user = url.user.clone().unwrap_or_else(|| "postgres".into());
        let path = url.path.trim_start_matches('/');
        let database =
            percent_decode(path.split('?').next().unwrap_or_default()).unwrap_or_default();
        PostgresDatabase {
            endpoint: ServerEndpoint { host: url.host.clone(), port, tls },
            database: if database.is_empty() { user.clone() } else { database },
            password: url.password.clone().unwrap_or_default(),
            user,
        }
    }

    async fn open(&self) -> Result<Box<dyn AsyncStream>, String> {
        let mut stream = self.endpoint.connect_tcp().await?;
        let Some(tls) = &self.endpoint.tls else { return Ok(Box::new(stream)) };
        let mut ask = 8_u32.to_be_bytes().to_vec();
        ask.extend(SSL_REQUEST.to_be_bytes());
        let broken = |error| format!("{}: {error}", self.endpoint);
        stream.write_all(&ask).await.map_err(broken)?;
        // One byte and no more: what followed it in plain text would be somebody else's.
        match stream.read_u8().await.map_err(broken)? {
            b'S' => self.endpoint.start_tls(stream, tls.clone()).await,
            _ => Err(format!("{}: it does not speak TLS", self.endpoint)),
        }
    }

    async fn startup(&self, conn: &mut PostgresConnection) -> Result<(), String> {
        let mut hello = PROTOCOL.to_be_bytes().to_vec();
        let who = [
            ("user", self.user.as_str()),
            ("database", &self.database),
            ("client_encoding", "UTF8"),
            ("application_name", "godwit"),
        ];
        for text in who.iter().flat_map(|(name, value)| [name, value]) {
            hello.extend(text.as_bytes());
            hello.push(0);
        }
        hello.push(0);
        let mut out = ((hello.len() + 4) as u32).to_be_bytes().to_vec();
        out.append(&mut hello);
        conn.write(&out).await?;
        loop {
            let message = conn.read().await?;
            match message.kind {
                b'R' => self.authenticate(conn, &message.body).await?,
                b'E' => return Err(describe_error(&message.body)),
                b'Z' => return Ok(()),
                // Parameters, keys to cancel with, notices.
                _ => {}
            }
        }
    }

    async fn authenticate(
        &self,
        conn: &mut PostgresConnection,
        asked: &[u8],
    ) -> Result<(), String> {
        let (kind, rest) = asked.split_first_chunk().ok_or(MALFORMED_ANSWER)?;
        match u32::from_be_bytes(*kind) {
            0 => Ok(()),
            3 if self.endpoint.tls.is_some() => {
                let mut out = PostgresRequest::default();
                out.push_message(b'p', |body| push_text(body, &self.password));
                conn.write(&out.0).await
            }
            3 => Err("it wants the password in plain text, which needs TLS".into()),
            10 if rest.split(|byte| *byte == 0).any(|name| name == MECHANISM.as_bytes()) => {
                self.authenticate_by_scram(conn).await
            }
            _ => Err("it wants another proof than SCRAM-SHA-256".into()),
        }
    }

    async fn authenticate_by_scram(&self, conn: &mut PostgresConnection) -> Result<(), String> {
        let scram = ScramClient::new(&self.password)?;
        let mut out = PostgresRequest::default();
        out.push_message(b'p', |body| {
            push_text(body, MECHANISM);
            push_value(body, scram.client_first_message().as_bytes());
        });
        conn.write(&out.0).await?;
        let (last, signature) = scram
            .client_final_message(&conn.read_auth_message(11).await?)
            .ok_or(MALFORMED_ANSWER)?;
        let mut out = PostgresRequest::default();
        out.push_message(b'p', |body| body.extend(last.as_bytes()));
        conn.write(&out.0).await?;
        match signature.matches(&conn.read_auth_message(12).await?) {
            true => Ok(()),
            false => Err("it does not know the password itself".into()),
        }
    }
}

const MECHANISM: &str = "SCRAM-SHA-256";
const MALFORMED_ANSWER: &str = "it makes no sense";

impl SqlDatabase for PostgresDatabase {
    type Conn = PostgresConnection;
    const NAME: &'static str = "postgres";

    fn placeholder(n: usize) -> String {
        format!("${n}")
    }

    async fn connect(&self) -> Result<PostgresConnection, String> {
        let mut conn = PostgresConnection {
            wire: self.open().await?,
            bytes_left: ANSWER_BYTES_MAX,
            prepared: None,
        };
        let met = self.startup(&mut conn).await;
        met.map_err(|why| format!("{}: {why}", self.endpoint))?;
        Ok(conn)
    }

    /// The server finds out what kind each value is of, and everything is written as text.
    async fn query(
        &self,
        conn: &mut PostgresConnection,
        query: &str,
        values: &[Vec<u8>],
    ) -> Result<Vec<TableRow>, RemoteError> {
        let mut out = PostgresRequest::default();
        out.push_message(b'P', |body| {
            push_text(body, "");
            push_text(body, query);
            body.extend([0, 0]);
        });
        out.push_message(b'B', |body| {
            push_text(body, "");
            push_text(body, "");
            body.extend([0, 0]);
            body.extend((values.len() as u16).to_be_bytes());
            values.iter().for_each(|one| push_value(body, one));
            body.extend([0, 0]);
        });
        out.push_message(b'D', |body| {
            body.push(b'P');
            push_text(body, "");
        });
        out.push_message(b'E', |body| {
            push_text(body, "");
            body.extend([0; 4]);
        });
        out.push_message(b'S', |_| {});
        conn.write(&out.0).await.map_err(RemoteError::Broken)?;
        conn.read_rows().await
    }

    async fn insert(
        &self,
        conn: &mut PostgresConnection,
        statement: &str,
        rows: &[Vec<Option<Vec<u8>>>],
    ) -> Result<(), InsertError> {
        let kinds = conn.prepare(statement).await?;
        if rows.iter().any(|row| row.len() != kinds.len()) {
            let why = "it sees other placeholders than we do".to_string();
            return Err(InsertError::Remote(RemoteError::ErrorReply(why)));
        }
        let mut out = PostgresRequest::default();
        for row in rows {
            out.bind(row, &kinds);
        }
        // What stands before it is one transaction.
        out.push_message(b'S', |_| {});
        conn.bytes_left = ANSWER_BYTES_MAX;
        let (read, mut write) = tokio::io::split(&mut conn.wire);
        let mut wire = PostgresMessageReader { wire: read, bytes_left: &mut conn.bytes_left };
        // Its answers are read while it is told, or both would wait for each other.
        let told = async {
            write.write_all(&out.0).await.map_err(|error| error.to_string())?;
            write.flush().await.map_err(|error| error.to_string())
        };
        let (told, done) = tokio::join!(told, wire.read_until_ready());
        match (done, told) {
            (Ok(()), Ok(())) => Ok(()),
            (Err(denied), _) => Err(denied),
            (_, Err(why)) => Err(InsertError::Remote(RemoteError::Broken(why))),
        }
    }
}

/// Bytes as they are, which text would not be.
const BYTEA: u32 = 17;

/// Reads messages of a server within a bound on their bytes.
struct PostgresMessageReader<'a, R> {
    wire: R,
    bytes_left: &'a mut usize,
}

impl<R: AsyncRead + Unpin> PostgresMessageReader<'_, R> {
    async fn read_message(&mut self) -> Result<PostgresMessage, String> {
        let broken = |error: std::io::Error| error.to_string();
        let kind = self.wire.read_u8().await.map_err(broken)?;
        let len = self.wire.read_u32().await.map_err(broken)? as usize;
        let len = len.checked_sub(4).filter(|len| len <= self.bytes_left);
        let len = len.ok_or("it answers with more than we read")?;
        *self.bytes_left -= len;
        let mut body = vec![0; len];
        self.wire.read_exact(&mut body).await.map_err(broken)?;
        Ok(PostgresMessage { kind, body })
    }

    /// Reads until the server is ready for a query; rows are ignored.
    async fn read_until_ready(&mut self) -> Result<(), InsertError> {
        let mut wrong = None;
        loop {
            let message = self.read_message().await;
            let message = message.map_err(|why| InsertError::Remote(RemoteError::Broken(why)))?;
            match message.kind {
                b'E' => wrong = Some(insert_error(&message.body)),
                b'Z' => return wrong.map_or(Ok(()), Err),
                _ => {}
            }
        }
    }
}

/// Values that are wrong (SQLSTATE 22), that break a rule of the table (23), or are too large (54).
fn insert_error(body: &[u8]) -> InsertError {
    let code = body.split(|byte| *byte == 0).find_map(|field| field.strip_prefix(b"C"));
    let is_row =
        code.is_some_and(|code| [b"22", b"23", b"54"].iter().any(|class| code.starts_with(*class)));
    match is_row {
        true => InsertError::Row(describe_error(body)),
        false => InsertError::Remote(RemoteError::ErrorReply(describe_error(body))),
    }
}

impl PostgresConnection {
    /// The kinds of a statement's values, which the server knows by then.
    async fn prepare(&mut self, statement: &str) -> Result<Vec<u32>, InsertError> {
        if let Some((known, kinds)) = &self.prepared
            && known == statement
        {
            return Ok(kinds.clone());
        }
        self.prepared = None;
        let mut out = PostgresRequest::default();
        out.push_message(b'C', |body| {
            body.push(b'S');
            push_text(body, PREPARED);
        });
        out.push_message(b'P', |body| {
            push_text(body, PREPARED);
            push_text(body, statement);
            body.extend([0, 0]);
        });
        out.push_message(b'D', |body| {
            body.push(b'S');
            push_text(body, PREPARED);
        });
        out.push_message(b'S', |_| {});
        let broken = |why| InsertError::Remote(RemoteError::Broken(why));
        self.write(&out.0).await.map_err(broken)?;
        self.bytes_left = ANSWER_BYTES_MAX;
        let (mut kinds, mut wrong) = (Vec::new(), None);
        loop {
            let PostgresMessage { kind, body } = self.read().await.map_err(broken)?;
            match kind {
                b't' => {
                    let all = body.get(2..).unwrap_or_default().chunks_exact(4);
                    kinds = all
                        .map(|kind| kind.iter().fold(0, |all, byte| all << 8 | u32::from(*byte)))
                        .collect();
                }
                b'E' => {
                    wrong =
                        Some(InsertError::Remote(RemoteError::ErrorReply(describe_error(&body))))
                }
                b'Z' => break,
                _ => {}
            }
        }
        match wrong {
            Some(wrong) => Err(wrong),
            None => {
                self.prepared = Some((statement.to_string(), kinds.clone()));
                Ok(kinds)
            }
        }
    }

    async fn read_rows(&mut self) -> Result<Vec<TableRow>, RemoteError> {
        self.bytes_left = ANSWER_BYTES_MAX;
        let (mut columns, mut rows, mut wrong) = (Vec::new(), Vec::new(), None);
        let no_sense = || RemoteError::Broken(MALFORMED_ANSWER.into());
        loop {
            let message = self.read().await.map_err(RemoteError::Broken)?;
            match message.kind {
                b'T' => columns = parse_column_names(&message.body).ok_or_else(no_sense)?,
                b'D' => rows.push(parse_data_row(&columns, &message.body).ok_or_else(no_sense)?),
                b'E' => wrong = Some(describe_error(&message.body)),
                b'Z' => return wrong.map_or(Ok(rows), |why| Err(RemoteError::ErrorReply(why))),
                _ => {}
            }
        }
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.wire.write_all(bytes).await.map_err(|error| error.to_string())?;
        self.wire.flush().await.map_err(|error| error.to_string())
    }

    async fn read(&mut self) -> Result<PostgresMessage, String> {
        let PostgresConnection { wire, bytes_left, .. } = self;
        PostgresMessageReader { wire, bytes_left }.read_message().await
    }

    /// The server's next word in a proof of this kind.
    async fn read_auth_message(&mut self, kind: u32) -> Result<String, String> {
        let PostgresMessage { kind: b'R', body } = self.read_past_notices().await? else {
            return Err(MALFORMED_ANSWER.into());
        };
        let said = body.strip_prefix(&kind.to_be_bytes()[..]).ok_or(MALFORMED_ANSWER)?;
        String::from_utf8(said.to_vec()).map_err(|_| MALFORMED_ANSWER.into())
    }

    async fn read_past_notices(&mut self) -> Result<PostgresMessage, String> {
        loop {
            let message = self.read().await?;
            match message.kind {
                b'E' => return Err(describe_error(&message.body)),
                b'N' => {}
                _ => return Ok(message),
            }
        }
    }
}

impl PostgresRequest {
    fn push_message(&mut self, kind: u8, body: impl FnOnce(&mut Vec<u8>)) {
        self.0.push(kind);
        let at = self.0.len();
        self.0.extend([0; 4]);
        body(&mut self.0);
        let len = (self.0.len() - at) as u32;
        self.0[at..at + 4].copy_from_slice(&len.to_be_bytes());
    }
}

impl PostgresRequest {
    /// Adds the messages that insert a row.
    fn bind(&mut self, row: &[Option<Vec<u8>>], kinds: &[u32]) {
        self.push_message(b'B', |body| {
            push_text(body, "");
            push_text(body, PREPARED);
            body.extend((row.len() as u16).to_be_bytes());
            kinds.iter().for_each(|kind| body.extend(u16::from(*kind == BYTEA).to_be_bytes()));
            body.extend((row.len() as u16).to_be_bytes());
            for one in row {
                match one {
                    Some(one) => push_value(body, one),
                    None => body.extend((-1_i32).to_be_bytes()),
                }
            }
            body.extend([0, 0]);
        });
        self.push_message(b'E', |body| {
            push_text(body, "");
            body.extend([0; 4]);
        });
    }
}

/// Writes a text, which contains no NUL since options and values were checked.
fn push_text(body: &mut Vec<u8>, text: &str) {
    body.extend(text.as_bytes());
    body.push(0);
}

fn push_value(body: &mut Vec<u8>, value: &[u8]) {
    body.extend((value.len() as u32).to_be_bytes());
    body.extend(value);
}

/// Parses the column names of a RowDescription.
fn parse_column_names(body: &[u8]) -> Option<Vec<String>> {
    let (count, mut rest) = body.split_first_chunk()?;
    let mut names = Vec::new();
    for _ in 0..u16::from_be_bytes(*count) {
        let end = rest.iter().position(|byte| *byte == 0)?;
        names.push(String::from_utf8(rest[..end].to_vec()).ok()?);
        rest = rest.get(end + 19..)?;
    }
    Some(names)
}

/// Parses a DataRow.
fn parse_data_row(columns: &[String], body: &[u8]) -> Option<TableRow> {
    let (count, mut rest) = body.split_first_chunk()?;
    if usize::from(u16::from_be_bytes(*count)) != columns.len() {
        return None;
    }
    let mut row = TableRow::default();
    for name in columns {
        let (len, after) = rest.split_first_chunk()?;
        rest = after;
        // Below zero is NULL.
        if let Ok(len) = usize::try_from(i32::from_be_bytes(*len)) {
            let (value, after) = rest.split_at_checked(len)?;
            row.0.push((name.clone(), value.to_vec()));
            rest = after;
        }
    }
    Some(row)
}

/// The message and the code of an ErrorResponse; its details may repeat values.
fn describe_error(body: &[u8]) -> String {
    let fields = body.split(|byte| *byte == 0);
    let field = |kind: u8| {
        let of = fields.clone().find(|field| field.first() == Some(&kind));
        of.map(|field| String::from_utf8_lossy(&field[1..]).into_owned()).unwrap_or_default()
    };
    format!("{} ({})", field(b'M'), field(b'C'))
}
