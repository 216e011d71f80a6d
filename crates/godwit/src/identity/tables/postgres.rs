//! PostgreSQL, as far as two queries need its protocol (version 3.0, chapter "Frontend/Backend
//! Protocol" of its manual): start, TLS, SCRAM, and one query with values beside it.

#[cfg(feature = "sink")]
use super::sql::Denied;
use super::sql::{Database, Query};
use super::{ANSWER_BYTES_MAX, Row};
use crate::identity::remote::Trouble;
use crate::identity::remote::dial::{Endpoint, Wire};
use crate::identity::remote::url::{Url, decode};
use crate::identity::scram::client::Client;
use rustls::ClientConfig;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};

pub(crate) struct Postgres {
    endpoint: Endpoint,
    user: String,
    password: String,
    database: String,
}

pub(crate) const SCHEMES: &[&str] = &["postgres", "postgresql"];
const PORT: u16 = 5432;
const PROTOCOL: u32 = 196_608;
const SSL_REQUEST: u32 = 80_877_103;

pub(crate) struct Conn {
    wire: Box<dyn Wire>,
    /// Of the answer that is being read.
    bytes_left: usize,
    /// A statement that the server knows, and the kinds of its values.
    #[cfg(feature = "sink")]
    prepared: Option<(String, Vec<u32>)>,
}

#[cfg(feature = "sink")]
const PREPARED: &str = "rows";

/// A message of the server's: its type and what is in it.
struct Message {
    kind: u8,
    body: Vec<u8>,
}

/// Messages of ours, to be written at once.
#[derive(Default)]
struct Outgoing(Vec<u8>);

impl Postgres {
    pub(crate) fn new(url: &Url, tls: Option<Arc<ClientConfig>>) -> Postgres {
        let port = url.port.unwrap_or(PORT);
        let user = url.user.clone().unwrap_or_else(|| "postgres".into());
        let path = url.path.trim_start_matches('/');
        let database = decode(path.split('?').next().unwrap_or_default()).unwrap_or_default();
        Postgres {
            endpoint: Endpoint { host: url.host.clone(), port, tls },
            database: if database.is_empty() { user.clone() } else { database },
            password: url.password.clone().unwrap_or_default(),
            user,
        }
    }

    async fn open(&self) -> Result<Box<dyn Wire>, String> {
        let mut stream = self.endpoint.dial().await?;
        let Some(tls) = &self.endpoint.tls else { return Ok(Box::new(stream)) };
        let mut ask = 8_u32.to_be_bytes().to_vec();
        ask.extend(SSL_REQUEST.to_be_bytes());
        let broken = |error| format!("{}: {error}", self.endpoint);
        stream.write_all(&ask).await.map_err(broken)?;
        // One byte and no more: what followed it in plain text would be somebody else's.
        match stream.read_u8().await.map_err(broken)? {
            b'S' => self.endpoint.secure(stream, tls.clone()).await,
            _ => Err(format!("{}: it does not speak TLS", self.endpoint)),
        }
    }

    async fn introduce(&self, conn: &mut Conn) -> Result<(), String> {
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
                b'R' => self.prove(conn, &message.body).await?,
                b'E' => return Err(error(&message.body)),
                b'Z' => return Ok(()),
                // Parameters, keys to cancel with, notices.
                _ => {}
            }
        }
    }

    async fn prove(&self, conn: &mut Conn, asked: &[u8]) -> Result<(), String> {
        let (kind, rest) = asked.split_first_chunk().ok_or(NO_SENSE)?;
        match u32::from_be_bytes(*kind) {
            0 => Ok(()),
            3 if self.endpoint.tls.is_some() => {
                let mut out = Outgoing::default();
                out.message(b'p', |body| text(body, &self.password));
                conn.write(&out.0).await
            }
            3 => Err("it wants the password in plain text, which needs TLS".into()),
            10 if rest.split(|byte| *byte == 0).any(|name| name == MECHANISM.as_bytes()) => {
                self.prove_by_scram(conn).await
            }
            _ => Err("it wants another proof than SCRAM-SHA-256".into()),
        }
    }

    async fn prove_by_scram(&self, conn: &mut Conn) -> Result<(), String> {
        let scram = Client::new(&self.password)?;
        let mut out = Outgoing::default();
        out.message(b'p', |body| {
            text(body, MECHANISM);
            value(body, scram.first().as_bytes());
        });
        conn.write(&out.0).await?;
        let (last, signature) = scram.last(&conn.said(11).await?).ok_or(NO_SENSE)?;
        let mut out = Outgoing::default();
        out.message(b'p', |body| body.extend(last.as_bytes()));
        conn.write(&out.0).await?;
        match signature.is(&conn.said(12).await?) {
            true => Ok(()),
            false => Err("it does not know the password itself".into()),
        }
    }
}

const MECHANISM: &str = "SCRAM-SHA-256";
const NO_SENSE: &str = "it makes no sense";

impl Database for Postgres {
    type Conn = Conn;
    const NAME: &'static str = "postgres";

    fn mark(n: usize) -> String {
        format!("${n}")
    }

    async fn connect(&self) -> Result<Conn, String> {
        let mut conn = Conn {
            wire: self.open().await?,
            bytes_left: ANSWER_BYTES_MAX,
            #[cfg(feature = "sink")]
            prepared: None,
        };
        let met = self.introduce(&mut conn).await;
        met.map_err(|why| format!("{}: {why}", self.endpoint))?;
        Ok(conn)
    }

    /// The server finds out what kind each value is of, and everything is written as text.
    async fn query(
        &self,
        conn: &mut Conn,
        query: &Query,
        values: &[Vec<u8>],
    ) -> Result<Vec<Row>, Trouble> {
        let mut out = Outgoing::default();
        out.message(b'P', |body| {
            text(body, "");
            text(body, &query.text);
            body.extend([0, 0]);
        });
        out.message(b'B', |body| {
            text(body, "");
            text(body, "");
            body.extend([0, 0]);
            body.extend((values.len() as u16).to_be_bytes());
            values.iter().for_each(|one| value(body, one));
            body.extend([0, 0]);
        });
        out.message(b'D', |body| {
            body.push(b'P');
            text(body, "");
        });
        out.message(b'E', |body| {
            text(body, "");
            body.extend([0; 4]);
        });
        out.message(b'S', |_| {});
        conn.write(&out.0).await.map_err(Trouble::Broken)?;
        conn.rows().await
    }

    #[cfg(feature = "sink")]
    async fn insert(
        &self,
        conn: &mut Conn,
        statement: &str,
        rows: &[Vec<Option<Vec<u8>>>],
    ) -> Result<(), Denied> {
        let kinds = conn.prepare(statement).await?;
        if rows.iter().any(|row| row.len() != kinds.len()) {
            let why = "it sees other placeholders than we do".to_string();
            return Err(Denied::Trouble(Trouble::Answered(why)));
        }
        let mut out = Outgoing::default();
        for row in rows {
            out.bind(row, &kinds);
        }
        // What stands before it is one transaction.
        out.message(b'S', |_| {});
        conn.bytes_left = ANSWER_BYTES_MAX;
        let (read, mut write) = tokio::io::split(&mut conn.wire);
        let mut wire = Counted { wire: read, bytes_left: &mut conn.bytes_left };
        // Its answers are read while it is told, or both would wait for each other.
        let told = async {
            write.write_all(&out.0).await.map_err(|error| error.to_string())?;
            write.flush().await.map_err(|error| error.to_string())
        };
        let (told, done) = tokio::join!(told, wire.done());
        match (done, told) {
            (Ok(()), Ok(())) => Ok(()),
            (Err(denied), _) => Err(denied),
            (_, Err(why)) => Err(Denied::Trouble(Trouble::Broken(why))),
        }
    }
}

/// Bytes as they are, which text would not be.
#[cfg(feature = "sink")]
const BYTEA: u32 = 17;

/// What a server says, read while it may say only so much more.
struct Counted<'a, R> {
    wire: R,
    bytes_left: &'a mut usize,
}

impl<R: AsyncRead + Unpin> Counted<'_, R> {
    async fn message(&mut self) -> Result<Message, String> {
        let broken = |error: std::io::Error| error.to_string();
        let kind = self.wire.read_u8().await.map_err(broken)?;
        let len = self.wire.read_u32().await.map_err(broken)? as usize;
        let len = len.checked_sub(4).filter(|len| len <= self.bytes_left);
        let len = len.ok_or("it answers with more than we read")?;
        *self.bytes_left -= len;
        let mut body = vec![0; len];
        self.wire.read_exact(&mut body).await.map_err(broken)?;
        Ok(Message { kind, body })
    }

    /// Until it is ready for more; rows are nothing that anybody asked for.
    #[cfg(feature = "sink")]
    async fn done(&mut self) -> Result<(), Denied> {
        let mut wrong = None;
        loop {
            let message = self.message().await;
            let message = message.map_err(|why| Denied::Trouble(Trouble::Broken(why)))?;
            match message.kind {
                b'E' => wrong = Some(denied(&message.body)),
                b'Z' => return wrong.map_or(Ok(()), Err),
                _ => {}
            }
        }
    }
}

/// Values that are wrong (SQLSTATE 22), that break a rule of the table (23), or are too large (54).
#[cfg(feature = "sink")]
fn denied(body: &[u8]) -> Denied {
    let code = body.split(|byte| *byte == 0).find_map(|field| field.strip_prefix(b"C"));
    let is_row =
        code.is_some_and(|code| [b"22", b"23", b"54"].iter().any(|class| code.starts_with(*class)));
    match is_row {
        true => Denied::Row(error(body)),
        false => Denied::Trouble(Trouble::Answered(error(body))),
    }
}

impl Conn {
    /// The kinds of a statement's values, which the server knows by then.
    #[cfg(feature = "sink")]
    async fn prepare(&mut self, statement: &str) -> Result<Vec<u32>, Denied> {
        if let Some((known, kinds)) = &self.prepared
            && known == statement
        {
            return Ok(kinds.clone());
        }
        self.prepared = None;
        let mut out = Outgoing::default();
        out.message(b'C', |body| {
            body.push(b'S');
            text(body, PREPARED);
        });
        out.message(b'P', |body| {
            text(body, PREPARED);
            text(body, statement);
            body.extend([0, 0]);
        });
        out.message(b'D', |body| {
            body.push(b'S');
            text(body, PREPARED);
        });
        out.message(b'S', |_| {});
        let broken = |why| Denied::Trouble(Trouble::Broken(why));
        self.write(&out.0).await.map_err(broken)?;
        self.bytes_left = ANSWER_BYTES_MAX;
        let (mut kinds, mut wrong) = (Vec::new(), None);
        loop {
            let Message { kind, body } = self.read().await.map_err(broken)?;
            match kind {
                b't' => {
                    let all = body.get(2..).unwrap_or_default().chunks_exact(4);
                    kinds = all
                        .map(|kind| kind.iter().fold(0, |all, byte| all << 8 | u32::from(*byte)))
                        .collect();
                }
                b'E' => wrong = Some(Denied::Trouble(Trouble::Answered(error(&body)))),
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

    async fn rows(&mut self) -> Result<Vec<Row>, Trouble> {
        self.bytes_left = ANSWER_BYTES_MAX;
        let (mut columns, mut rows, mut wrong) = (Vec::new(), Vec::new(), None);
        let no_sense = || Trouble::Broken(NO_SENSE.into());
        loop {
            let message = self.read().await.map_err(Trouble::Broken)?;
            match message.kind {
                b'T' => columns = names(&message.body).ok_or_else(no_sense)?,
                b'D' => rows.push(row(&columns, &message.body).ok_or_else(no_sense)?),
                b'E' => wrong = Some(error(&message.body)),
                b'Z' => return wrong.map_or(Ok(rows), |why| Err(Trouble::Answered(why))),
                _ => {}
            }
        }
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.wire.write_all(bytes).await.map_err(|error| error.to_string())?;
        self.wire.flush().await.map_err(|error| error.to_string())
    }

    async fn read(&mut self) -> Result<Message, String> {
        let Conn { wire, bytes_left, .. } = self;
        Counted { wire, bytes_left }.message().await
    }

    /// The server's next word in a proof of this kind.
    async fn said(&mut self, kind: u32) -> Result<String, String> {
        let Message { kind: b'R', body } = self.read_past_notices().await? else {
            return Err(NO_SENSE.into());
        };
        let said = body.strip_prefix(&kind.to_be_bytes()[..]).ok_or(NO_SENSE)?;
        String::from_utf8(said.to_vec()).map_err(|_| NO_SENSE.into())
    }

    async fn read_past_notices(&mut self) -> Result<Message, String> {
        loop {
            let message = self.read().await?;
            match message.kind {
                b'E' => return Err(error(&message.body)),
                b'N' => {}
                _ => return Ok(message),
            }
        }
    }
}

impl Outgoing {
    fn message(&mut self, kind: u8, body: impl FnOnce(&mut Vec<u8>)) {
        self.0.push(kind);
        let at = self.0.len();
        self.0.extend([0; 4]);
        body(&mut self.0);
        let len = (self.0.len() - at) as u32;
        self.0[at..at + 4].copy_from_slice(&len.to_be_bytes());
    }
}

#[cfg(feature = "sink")]
impl Outgoing {
    /// One row, and that it is to be inserted.
    fn bind(&mut self, row: &[Option<Vec<u8>>], kinds: &[u32]) {
        self.message(b'B', |body| {
            text(body, "");
            text(body, PREPARED);
            body.extend((row.len() as u16).to_be_bytes());
            kinds.iter().for_each(|kind| body.extend(u16::from(*kind == BYTEA).to_be_bytes()));
            body.extend((row.len() as u16).to_be_bytes());
            for one in row {
                match one {
                    Some(one) => value(body, one),
                    None => body.extend((-1_i32).to_be_bytes()),
                }
            }
            body.extend([0, 0]);
        });
        self.message(b'E', |body| {
            text(body, "");
            body.extend([0; 4]);
        });
    }
}

/// It has no NUL in it: options and values were looked at.
fn text(body: &mut Vec<u8>, text: &str) {
    body.extend(text.as_bytes());
    body.push(0);
}

fn value(body: &mut Vec<u8>, value: &[u8]) {
    body.extend((value.len() as u32).to_be_bytes());
    body.extend(value);
}

/// Of a RowDescription.
fn names(body: &[u8]) -> Option<Vec<String>> {
    let (count, mut rest) = body.split_first_chunk()?;
    let mut names = Vec::new();
    for _ in 0..u16::from_be_bytes(*count) {
        let end = rest.iter().position(|byte| *byte == 0)?;
        names.push(String::from_utf8(rest[..end].to_vec()).ok()?);
        rest = rest.get(end + 19..)?;
    }
    Some(names)
}

/// Of a DataRow.
fn row(columns: &[String], body: &[u8]) -> Option<Row> {
    let (count, mut rest) = body.split_first_chunk()?;
    if usize::from(u16::from_be_bytes(*count)) != columns.len() {
        return None;
    }
    let mut row = Row::default();
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
fn error(body: &[u8]) -> String {
    let fields = body.split(|byte| *byte == 0);
    let field = |kind: u8| {
        let of = fields.clone().find(|field| field.first() == Some(&kind));
        of.map(|field| String::from_utf8_lossy(&field[1..]).into_owned()).unwrap_or_default()
    };
    format!("{} ({})", field(b'M'), field(b'C'))
}
