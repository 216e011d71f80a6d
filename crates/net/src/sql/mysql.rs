//! MySQL and MariaDB client, limited to the protocol of prepared queries ("Client/Server Protocol"
//! of the manuals): greeting, TLS, the two usual authentication methods, and queries with bound
//! values.

use super::mysql_packets::{self, END, MysqlPacketReader, MysqlPacketStream, put_text};
use super::{InsertError, SqlDatabase};
use crate::endpoint::{AsyncStream, ServerEndpoint};
use crate::server_pool::RemoteError;
use crate::server_url::{ServerUrl, percent_decode};
use crate::table_row::TableRow;
use ring::digest;
use rustls::ClientConfig;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::net::TcpStream;

pub struct MysqlDatabase {
    endpoint: ServerEndpoint,
    user: String,
    password: String,
    database: String,
}

pub const SCHEMES: &[&str] = &["mysql", "mariadb"];
const PORT: u16 = 3306;

pub struct MysqlConnection {
    packets: MysqlPacketStream<Box<dyn AsyncStream>>,
    /// Prepared statements of the connection, by their text.
    prepared: HashMap<String, MysqlStatement>,
    packet_bytes_max: Option<usize>,
}

#[derive(Clone, Copy)]
struct MysqlStatement {
    id: u32,
    values: usize,
}

/// Greeting of the server.
struct MysqlGreeting {
    capabilities: u32,
    challenge: Vec<u8>,
    proof: String,
}

const LONG_PASSWORD: u32 = 1;
const CONNECT_WITH_DB: u32 = 1 << 3;
const PROTOCOL_41: u32 = 1 << 9;
const SSL: u32 = 1 << 11;
const TRANSACTIONS: u32 = 1 << 13;
const SECURE_CONNECTION: u32 = 1 << 15;
const PLUGIN_AUTH: u32 = 1 << 19;
const NEEDED: u32 = PROTOCOL_41 | SECURE_CONNECTION | PLUGIN_AUTH;

const NATIVE: &str = "mysql_native_password";
const CACHING: &str = "caching_sha2_password";
const CHALLENGE_BYTES: usize = 20;
/// utf8mb4_general_ci, known to every version.
const UTF8MB4: u8 = 45;
const PACKET_BYTES_MAX: u32 = 1 << 24;

const OK: u8 = 0x00;
const MORE: u8 = 0x01;
const ERROR: u8 = 0xff;
/// Values after MORE in the exchange of caching_sha2_password: the server has accepted a hash, or
/// requests the password itself.
const FAST_AUTH_OK: u8 = 3;
const FULL_AUTH_NEEDED: u8 = 4;

const PREPARE: u8 = 0x16;
const EXECUTE: u8 = 0x17;
const TYPE_STRING: u8 = 0xfd;
const TYPE_BLOB: u8 = 0xfc;
const STATEMENT: u8 = 0x03;
const MALFORMED_ANSWER: &str = "it makes no sense";

impl MysqlDatabase {
    pub fn new(url: &ServerUrl, tls: Option<Arc<ClientConfig>>) -> MysqlDatabase {
        let port = url.port.unwrap_or(PORT);
        let path = url.path.trim_start_matches('/');
        MysqlDatabase {
            endpoint: ServerEndpoint { host: url.host.clone(), port, tls },
            user: url.user.clone().unwrap_or_else(|| "root".into()),
            password: url.password.clone().unwrap_or_default(),
            database: percent_decode(path.split('?').next().unwrap_or_default())
                .unwrap_or_default(),
        }
    }

    async fn handshake(
        &self,
        stream: TcpStream,
    ) -> Result<MysqlPacketStream<Box<dyn AsyncStream>>, String> {
        let mut plain = MysqlPacketStream::new(stream);
        let greeting = MysqlGreeting::read(&plain.read().await?)?;
        let mut packets = match &self.endpoint.tls {
            None => plain.map(|stream| Box::new(stream) as Box<dyn AsyncStream>),
            Some(_) if greeting.capabilities & SSL == 0 => {
                return Err("it does not speak TLS".into());
            }
            Some(tls) => {
                plain.write(&self.handshake_header(SSL)).await?;
                let (stream, sequence) = plain.into_parts();
                MysqlPacketStream::at(self.endpoint.start_tls(stream, tls.clone()).await?, sequence)
            }
        };
        let ssl = if self.endpoint.tls.is_some() { SSL } else { 0 };
        let mut out = self.handshake_header(ssl);
        out.extend(self.user.as_bytes());
        out.push(0);
        let proof = self.auth_response(&greeting.proof, &greeting.challenge).unwrap_or_default();
        out.push(proof.len() as u8);
        out.extend(proof);
        if !self.database.is_empty() {
            out.extend(self.database.as_bytes());
            out.push(0);
        }
        out.extend(greeting.proof.as_bytes());
        out.push(0);
        packets.write(&out).await?;
        self.authenticate(&mut packets, greeting).await?;
        Ok(packets)
    }

    /// Returns the beginning of the handshake response: the whole SSLRequest packet before TLS, or
    /// else the first part of the response.
    fn handshake_header(&self, ssl: u32) -> Vec<u8> {
        let named = if self.database.is_empty() { 0 } else { CONNECT_WITH_DB };
        let flags = LONG_PASSWORD | TRANSACTIONS | NEEDED | named | ssl;
        let mut out = flags.to_le_bytes().to_vec();
        out.extend(PACKET_BYTES_MAX.to_le_bytes());
        out.push(UTF8MB4);
        out.extend([0; 23]);
        out
    }

    /// Authenticates until the server accepts or rejects, or requests an unsupported method.
    async fn authenticate(
        &self,
        packets: &mut MysqlPacketStream<Box<dyn AsyncStream>>,
        greeting: MysqlGreeting,
    ) -> Result<(), String> {
        let mut name = greeting.proof;
        loop {
            let said = packets.read().await?;
            match said.split_first() {
                Some((&OK, _)) => return Ok(()),
                Some((&ERROR, rest)) => return Err(describe_error(rest)),
                Some((&END, rest)) => {
                    let mut rest = MysqlPacketReader(rest);
                    name = rest.text_to_zero().ok_or(MALFORMED_ANSWER)?;
                    let challenge = rest.0.get(..CHALLENGE_BYTES).ok_or(MALFORMED_ANSWER)?;
                    let proof = self.auth_response(&name, challenge);
                    packets.write(&proof.ok_or("it wants a proof that we do not know")?).await?;
                }
                Some((&MORE, &[FAST_AUTH_OK])) if name == CACHING => {}
                // The server has no cached verifier of the password and requests the password
                // itself.
                Some((&MORE, &[FULL_AUTH_NEEDED]))
                    if name == CACHING && self.endpoint.tls.is_some() =>
                {
                    let mut password = self.password.clone().into_bytes();
                    password.push(0);
                    packets.write(&password).await?;
                }
                Some((&MORE, &[FULL_AUTH_NEEDED])) if name == CACHING => {
                    return Err("it wants the password in plain text, which needs TLS".into());
                }
                _ => return Err(MALFORMED_ANSWER.into()),
            }
        }
    }

    /// Returns the authentication response to the server's challenge; `None` for an unknown method.
    fn auth_response(&self, name: &str, challenge: &[u8]) -> Option<Vec<u8>> {
        let algorithm = match name {
            NATIVE => &digest::SHA1_FOR_LEGACY_USE_ONLY,
            CACHING => &digest::SHA256,
            _ => return None,
        };
        if self.password.is_empty() {
            return Some(Vec::new());
        }
        let hash = |bytes: &[u8]| digest::digest(algorithm, bytes);
        let once = hash(self.password.as_bytes());
        let twice = hash(once.as_ref());
        let mixed = match name {
            NATIVE => hash(&[challenge, twice.as_ref()].concat()),
            _ => hash(&[twice.as_ref(), challenge].concat()),
        };
        Some(once.as_ref().iter().zip(mixed.as_ref()).map(|(one, by)| one ^ by).collect())
    }
}

impl MysqlGreeting {
    fn read(bytes: &[u8]) -> Result<MysqlGreeting, String> {
        if let Some((&ERROR, rest)) = bytes.split_first() {
            return Err(describe_error(rest));
        }
        let greeting = MysqlGreeting::parse(bytes).ok_or(MALFORMED_ANSWER)?;
        match greeting.capabilities & NEEDED == NEEDED {
            true => Ok(greeting),
            false => Err("it is too old".into()),
        }
    }

    fn parse(bytes: &[u8]) -> Option<MysqlGreeting> {
        let mut rest = MysqlPacketReader(bytes);
        if rest.take(1)? != [10] {
            return None;
        }
        rest.text_to_zero()?;
        rest.take(4)?;
        let mut challenge = rest.take(8)?.to_vec();
        rest.take(1)?;
        let low = rest.read_number(2)?;
        rest.take(3)?;
        let high = rest.read_number(2)?;
        rest.take(11)?;
        challenge.extend(rest.take(CHALLENGE_BYTES - 8)?);
        rest.take(1)?;
        let proof = rest.text_to_zero()?;
        Some(MysqlGreeting { capabilities: (high << 16 | low) as u32, challenge, proof })
    }
}

impl SqlDatabase for MysqlDatabase {
    type Conn = MysqlConnection;
    const NAME: &'static str = "mysql";

    fn placeholder(_: usize) -> String {
        "?".into()
    }

    async fn connect(&self) -> Result<MysqlConnection, String> {
        let stream = self.endpoint.connect_tcp().await?;
        let packets = self.handshake(stream).await;
        let packets = packets.map_err(|why| format!("{}: {why}", self.endpoint))?;
        Ok(MysqlConnection { packets, prepared: HashMap::new(), packet_bytes_max: None })
    }

    async fn query(
        &self,
        conn: &mut MysqlConnection,
        query: &str,
        values: &[Vec<u8>],
    ) -> Result<Vec<TableRow>, RemoteError> {
        let prepared = match conn.prepared.get(query) {
            Some(known) => *known,
            None => conn.prepare(query).await?,
        };
        if prepared.values != values.len() {
            return Err(RemoteError::ErrorReply("it sees other placeholders than we do".into()));
        }
        let mut out = vec![EXECUTE];
        out.extend(prepared.id.to_le_bytes());
        out.push(0);
        out.extend(1_u32.to_le_bytes());
        if !values.is_empty() {
            // No value is NULL, and each value is a string.
            out.extend(vec![0; values.len().div_ceil(8)]);
            out.push(1);
            values.iter().for_each(|_| out.extend([TYPE_STRING, 0]));
            values.iter().for_each(|value| put_text(&mut out, value));
        }
        conn.packets.begin();
        conn.packets.write(&out).await.map_err(RemoteError::Broken)?;
        conn.read_rows().await
    }

    async fn insert(
        &self,
        conn: &mut MysqlConnection,
        statement: &str,
        rows: &[Vec<Option<Vec<u8>>>],
    ) -> Result<(), InsertError> {
        let known = conn.prepared.get(statement).copied();
        let prepared = match known {
            Some(known) => known,
            None => conn.prepare(statement).await.map_err(InsertError::Remote)?,
        };
        if rows.iter().any(|row| row.len() != prepared.values) {
            let why = "it sees other placeholders than we do".to_string();
            return Err(InsertError::Remote(RemoteError::ErrorReply(why)));
        }
        let longest = conn.packet_bytes_max().await.map_err(InsertError::Remote)?;
        conn.run_statement("START TRANSACTION").await?;
        for row in rows {
            let execute = execution(prepared, row);
            let inserted = match execute.len() < longest {
                true => conn.execute(&execute).await,
                false => Err(InsertError::Row("it is longer than max_allowed_packet".into())),
            };
            if let Err(denied) = inserted {
                conn.run_statement("ROLLBACK").await?;
                return Err(denied);
            }
        }
        conn.run_statement("COMMIT").await
    }
}

/// Returns the packet that inserts a row.
fn execution(prepared: MysqlStatement, row: &[Option<Vec<u8>>]) -> Vec<u8> {
    let mut out = vec![EXECUTE];
    out.extend(prepared.id.to_le_bytes());
    out.push(0);
    out.extend(1_u32.to_le_bytes());
    if row.is_empty() {
        return out;
    }
    let mut nulls = vec![0_u8; row.len().div_ceil(8)];
    for (at, _) in row.iter().enumerate().filter(|(_, value)| value.is_none()) {
        nulls[at / 8] |= 1 << (at % 8);
    }
    out.extend(nulls);
    out.push(1);
    for value in row {
        let is_text = value.as_ref().is_none_or(|value| std::str::from_utf8(value).is_ok());
        out.extend([if is_text { TYPE_STRING } else { TYPE_BLOB }, 0]);
    }
    row.iter().flatten().for_each(|value| put_text(&mut out, value));
    out
}

impl MysqlConnection {
    async fn execute(&mut self, execute: &[u8]) -> Result<(), InsertError> {
        self.packets.begin();
        self.packets
            .write(execute)
            .await
            .map_err(|why| InsertError::Remote(RemoteError::Broken(why)))?;
        self.read_result().await
    }

    async fn run_statement(&mut self, statement: &str) -> Result<(), InsertError> {
        self.execute(&[&[STATEMENT], statement.as_bytes()].concat()).await
    }

    /// Reads the result of a statement, and discards its rows.
    async fn read_result(&mut self) -> Result<(), InsertError> {
        let first = self
            .packets
            .read()
            .await
            .map_err(|why| InsertError::Remote(RemoteError::Broken(why)))?;
        match first.split_first() {
            Some((&OK, _)) => return Ok(()),
            Some((&ERROR, rest)) => return Err(insert_error(rest)),
            _ => {}
        }
        // Column definitions and then rows, each list with an end packet.
        let mut ends = 0;
        while ends < 2 {
            let said = self.packets.read().await;
            let said = said.map_err(|why| InsertError::Remote(RemoteError::Broken(why)))?;
            match said.split_first() {
                Some((&ERROR, rest)) => return Err(insert_error(rest)),
                Some((&END, rest)) if rest.len() < 8 => ends += 1,
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns the server's `max_allowed_packet` in bytes. A longer packet would end the
    /// connection.
    async fn packet_bytes_max(&mut self) -> Result<usize, RemoteError> {
        if let Some(known) = self.packet_bytes_max {
            return Ok(known);
        }
        let text = "SELECT CAST(@@max_allowed_packet AS CHAR) AS longest";
        let prepared = self.prepare(text).await?;
        self.packets.begin();
        let out = execution(prepared, &[]);
        self.packets.write(&out).await.map_err(RemoteError::Broken)?;
        let rows = self.read_rows().await?;
        let longest = rows.first().and_then(|row| row.text("longest"));
        let longest = longest.and_then(|longest| longest.parse().ok());
        let longest: usize = longest.ok_or_else(|| RemoteError::Broken(MALFORMED_ANSWER.into()))?;
        let longest = longest.min(mysql_packets::PACKET_BYTES_MAX);
        self.packet_bytes_max = Some(longest);
        Ok(longest)
    }
}

/// Converts an error of an insert. Invalid values (SQLSTATE 22) and violated constraints (23) are
/// [`InsertError::Row`]; MySQL reports some of these errors by number only.
fn insert_error(rest: &[u8]) -> InsertError {
    let number = MysqlPacketReader(rest).read_number(2).unwrap_or_default();
    let state = rest.get(2..).and_then(|rest| rest.strip_prefix(b"#")).unwrap_or_default();
    let is_row = state.starts_with(b"22") || state.starts_with(b"23");
    match is_row || [1265, 1366, 1406].contains(&number) {
        true => InsertError::Row(describe_error(rest)),
        false => InsertError::Remote(RemoteError::ErrorReply(describe_error(rest))),
    }
}

impl MysqlConnection {
    async fn prepare(&mut self, text: &str) -> Result<MysqlStatement, RemoteError> {
        self.packets.begin();
        let out = [&[PREPARE], text.as_bytes()].concat();
        self.packets.write(&out).await.map_err(RemoteError::Broken)?;
        let said = self.read_answer().await?;
        let no_sense = || RemoteError::Broken(MALFORMED_ANSWER.into());
        let mut rest = MysqlPacketReader(&said);
        let mut number = |bytes| rest.read_number(bytes).ok_or_else(no_sense);
        let (kind, id, columns, values) = (number(1)?, number(4)?, number(2)?, number(2)?);
        if kind != u64::from(OK) {
            return Err(no_sense());
        }
        for count in [values, columns] {
            // Skips the definitions of parameters and columns: results repeat the column
            // definitions.
            for _ in 0..if count == 0 { 0 } else { count + 1 } {
                self.packets.read().await.map_err(RemoteError::Broken)?;
            }
        }
        let prepared = MysqlStatement { id: id as u32, values: values as usize };
        self.prepared.insert(text.to_string(), prepared);
        Ok(prepared)
    }

    async fn read_rows(&mut self) -> Result<Vec<TableRow>, RemoteError> {
        let no_sense = || RemoteError::Broken(MALFORMED_ANSWER.into());
        let first = self.read_answer().await?;
        let count = MysqlPacketReader(&first).read_length().ok_or_else(no_sense)?;
        let mut columns = Vec::new();
        for _ in 0..count {
            let column = self.packets.read().await.map_err(RemoteError::Broken)?;
            columns.push(mysql_packets::MysqlColumn::parse(&column).ok_or_else(no_sense)?);
        }
        if count == 0 {
            return Err(RemoteError::ErrorReply("the query brings no rows".into()));
        }
        self.packets.read().await.map_err(RemoteError::Broken)?;
        let mut rows = Vec::new();
        loop {
            let said = self.read_answer().await?;
            if said.first() == Some(&END) && said.len() < 9 {
                return Ok(rows);
            }
            rows.push(mysql_packets::parse_binary_row(&columns, &said).ok_or_else(no_sense)?);
        }
    }

    async fn read_answer(&mut self) -> Result<Vec<u8>, RemoteError> {
        let said = self.packets.read().await.map_err(RemoteError::Broken)?;
        match said.split_first() {
            Some((&ERROR, rest)) => Err(RemoteError::ErrorReply(describe_error(rest))),
            _ => Ok(said),
        }
    }
}

/// Returns the message and the number of a server's error.
fn describe_error(rest: &[u8]) -> String {
    let mut rest = MysqlPacketReader(rest);
    let number = rest.read_number(2).unwrap_or_default();
    let words = rest.0.get(6..).filter(|_| rest.0.first() == Some(&b'#')).unwrap_or(rest.0);
    format!("{} ({number})", String::from_utf8_lossy(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(password: &str) -> MysqlDatabase {
        let url = ServerUrl::parse(&format!("mysql://godwit:{password}@h/db"), SCHEMES).unwrap();
        MysqlDatabase::new(&url, None)
    }

    /// A server keeps the double hash, undoes the mixing and has the single hash to compare.
    #[test]
    fn a_server_that_keeps_the_double_hash_finds_the_password_right() {
        let challenge = [7; CHALLENGE_BYTES];
        for (name, by) in [(NATIVE, &digest::SHA1_FOR_LEGACY_USE_ONLY), (CACHING, &digest::SHA256)]
        {
            let hash = |bytes: &[u8]| digest::digest(by, bytes).as_ref().to_vec();
            let kept = hash(&hash(b"secret"));
            let mixed = match name {
                NATIVE => hash(&[&challenge[..], &kept].concat()),
                _ => hash(&[&kept[..], &challenge].concat()),
            };
            let proof = server("secret").auth_response(name, &challenge).unwrap();
            let once: Vec<u8> = proof.iter().zip(&mixed).map(|(one, by)| one ^ by).collect();
            assert_eq!(hash(&once), kept, "{name}");
            assert_eq!(server("").auth_response(name, &challenge), Some(Vec::new()));
        }
        assert_eq!(server("secret").auth_response("mysql_clear_password", &challenge), None);
    }

    #[test]
    fn a_greeting_is_read_and_nothing_shorter() {
        let mut bytes = b"\x0a8.4.0\0\x01\0\0\0AAAAAAAA\0".to_vec();
        let flags = (NEEDED | SSL).to_le_bytes();
        bytes.extend(&flags[..2]);
        bytes.extend([UTF8MB4, 2, 0]);
        bytes.extend(&flags[2..]);
        bytes.extend([21, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        bytes.extend(b"BBBBBBBBBBBB\0caching_sha2_password\0");
        let greeting = MysqlGreeting::parse(&bytes).unwrap();
        assert_eq!(greeting.challenge, b"AAAAAAAABBBBBBBBBBBB");
        assert_eq!((greeting.proof.as_str(), greeting.capabilities & SSL), (CACHING, SSL));
        (0..bytes.len()).for_each(|len| assert!(MysqlGreeting::read(&bytes[..len]).is_err()));
        assert_eq!(
            MysqlGreeting::read(b"\xff\x10\x04#08004Too many").err().unwrap(),
            "Too many (1040)"
        );
    }
}
