//! Redis, as far as a few commands need its protocol (RESP2): a client is a hash, and so are its
//! rules.

use super::{ANSWER_BYTES_MAX, Row, permissions};
use crate::acl::entry::Entry;
use crate::identity::password::Form;
use crate::identity::remote::dial::{Endpoint, Wire};
use crate::identity::remote::template::{Template, Value, Values};
use crate::identity::remote::url::{Url, decode};
use crate::identity::remote::{Found, Identifies, Server, Trouble};
use broker::Claim;
use rustls::ClientConfig;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};

pub(crate) struct Redis {
    endpoint: Endpoint,
    user: Option<String>,
    password: Option<String>,
    database: String,
    ask: Command,
    rules: Option<Command>,
    form: Form,
    ports: Vec<Option<u16>>,
}

pub(crate) const SCHEMES: &[&str] = &["redis", "rediss"];
const PORT: u16 = 6379;

/// Words that travel apart, so a value is never more than a part of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Command {
    words: Vec<Template>,
    /// Of HMGET; HGETALL brings its own.
    fields: Option<Vec<String>>,
}

pub(crate) struct Conn {
    wire: BufReader<Box<dyn Wire>>,
    bytes_left: usize,
}

/// What the server says.
enum Said {
    Text(Vec<u8>),
    Nothing,
    List(Vec<Option<Vec<u8>>>),
}

impl Command {
    /// `HMGET KEY FIELD...` or `HGETALL KEY`
    pub(crate) fn parse(text: &str) -> Result<Command, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let name = words.first().map(|name| name.to_ascii_uppercase()).unwrap_or_default();
        let fields = match (name.as_str(), &words[..]) {
            ("HMGET", [_, _, fields @ ..]) if !fields.is_empty() => {
                Some(fields.iter().map(ToString::to_string).collect())
            }
            ("HGETALL", [_, _]) => None,
            _ => {
                let why = "no command that we send, use HMGET KEY FIELD... or HGETALL KEY";
                return Err(why.into());
            }
        };
        let words: Result<Vec<Template>, String> =
            words.iter().map(|word| Template::parse(word, false)).collect();
        let words = words?;
        if words.iter().any(|word| word.has(Value::Password)) {
            return Err("the password is checked here and told to nobody: leave it out".into());
        }
        Ok(Command { words, fields })
    }

    /// Rules are all that a key has.
    pub(crate) fn parse_rules(text: &str) -> Result<Command, String> {
        let command = Command::parse(text)?;
        match command.fields {
            None => Ok(command),
            Some(_) => Err("rules are read with HGETALL KEY".into()),
        }
    }

    fn row(&self, said: Said) -> Result<Row, Trouble> {
        let Said::List(values) = said else { return Err(no_sense()) };
        let mut row = Row::default();
        match &self.fields {
            Some(fields) => {
                let known = fields.iter().zip(values);
                row.0 = known.filter_map(|(name, value)| Some((name.clone(), value?))).collect();
            }
            None => {
                for pair in values.chunks_exact(2) {
                    let [Some(name), Some(value)] = pair else { return Err(no_sense()) };
                    row.0.push((String::from_utf8_lossy(name).into_owned(), value.clone()));
                }
            }
        }
        Ok(row)
    }
}

impl Redis {
    /// The commands were checked when they were read.
    pub(crate) fn new(
        settings: &RedisSettings,
        tls: Option<Arc<ClientConfig>>,
        form: Form,
        ports: &[Option<u16>],
    ) -> Option<Redis> {
        let url = settings.url.as_ref()?;
        let tls = tls.filter(|_| url.scheme == "rediss");
        let port = url.port.unwrap_or(PORT);
        Some(Redis {
            endpoint: Endpoint { host: url.host.clone(), port, tls },
            user: url.user.clone(),
            password: url.password.clone(),
            database: decode(url.path.trim_start_matches('/')).unwrap_or_default(),
            ask: settings.user.clone()?,
            rules: settings.rules.clone(),
            form,
            ports: ports.to_vec(),
        })
    }

    async fn introduce(&self, conn: &mut Conn) -> Result<(), Trouble> {
        if let Some(password) = &self.password {
            let mut words = vec!["AUTH"];
            words.extend(self.user.as_deref());
            words.push(password);
            conn.tell(words.iter().map(|word| word.as_bytes())).await?;
        }
        if !self.database.is_empty() {
            conn.tell([&b"SELECT"[..], self.database.as_bytes()].into_iter()).await?;
        }
        Ok(())
    }

    fn rules(row: &Row) -> Result<Vec<Entry>, &'static str> {
        let entry = |(topic, value): &(String, Vec<u8>)| {
            let text = std::str::from_utf8(value).map_err(|_| "a rule is no text")?.trim();
            let mut entry = match text.starts_with('{') {
                true => {
                    let value = serde_json::from_str(text).map_err(|_| "a rule is no JSON")?;
                    Entry::from_json(&value, "allow")?
                }
                false => Entry {
                    permission: "allow".into(),
                    action: text.to_lowercase(),
                    ..Entry::default()
                },
            };
            if entry.permission != "allow" {
                return Err("the fields of a hash have no order, so they can only allow");
            }
            entry.topics.push(topic.clone());
            Ok(entry)
        };
        row.0.iter().map(entry).collect()
    }
}

/// What the rows of the option table say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RedisSettings {
    pub(crate) url: Option<Url>,
    pub(crate) user: Option<Command>,
    pub(crate) rules: Option<Command>,
}

impl Identifies for Redis {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn is_for(&self, claim: &Claim) -> bool {
        claim.user_name.is_some() && claim.password.is_some()
    }
}

impl Server for Redis {
    type Conn = Conn;
    type Question = Claim;
    type Found = Found;

    async fn connect(&self) -> Result<Conn, String> {
        let wire = BufReader::new(self.endpoint.open().await?);
        let mut conn = Conn { wire, bytes_left: 0 };
        match self.introduce(&mut conn).await {
            Ok(()) => Ok(conn),
            Err(Trouble::Answered(why) | Trouble::Broken(why)) => {
                Err(format!("{}: {why}", self.endpoint))
            }
        }
    }

    async fn ask(&self, conn: &mut Conn, claim: &Claim) -> Result<Found, Trouble> {
        let values = Values::Client { claim, ports: &self.ports };
        let row = conn.row(&self.ask, values).await?;
        if row.0.is_empty() {
            return Ok(Found::Nobody);
        }
        let (stored, mut grant) = row.proof(claim, &self.form).map_err(Trouble::Answered)?;
        if let Some(rules) = &self.rules {
            let row = conn.row(rules, values).await?;
            let all = Redis::rules(&row).and_then(|all| permissions(all.into_iter().map(Ok)));
            let all = all.map_err(|why| Trouble::Answered(format!("the client's rules: {why}")));
            grant.permissions = Some(Arc::new(all?));
        }
        Ok(Found::Proof { stored, grant: Box::new(grant) })
    }
}

impl Conn {
    async fn row(&mut self, command: &Command, values: Values<'_>) -> Result<Row, Trouble> {
        let words: Vec<Vec<u8>> = command.words.iter().map(|word| word.fill(values)).collect();
        let said = self.tell(words.iter().map(Vec::as_slice)).await?;
        command.row(said)
    }

    async fn tell<'a>(
        &mut self,
        words: impl ExactSizeIterator<Item = &'a [u8]>,
    ) -> Result<Said, Trouble> {
        let mut out = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            out.extend(format!("${}\r\n", word.len()).into_bytes());
            out.extend(word);
            out.extend(b"\r\n");
        }
        let broken = |error: std::io::Error| Trouble::Broken(error.to_string());
        self.wire.write_all(&out).await.map_err(broken)?;
        self.wire.flush().await.map_err(broken)?;
        self.bytes_left = ANSWER_BYTES_MAX;
        match self.read_line().await? {
            (b'*', len) => {
                let len: i64 = len.parse().map_err(|_| no_sense())?;
                let mut list = Vec::new();
                for _ in 0..len.max(0) {
                    let (kind, text) = self.read_line().await?;
                    list.push(match (kind, self.read_value(kind, text).await?) {
                        (_, Said::Text(text)) => Some(text),
                        (_, Said::Nothing) => None,
                        (_, Said::List(_)) => return Err(no_sense()),
                    });
                }
                Ok(Said::List(list))
            }
            // An error is one line, and the server goes on.
            (b'-', why) => Err(Trouble::Answered(why)),
            (kind, text) => self.read_value(kind, text).await,
        }
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

fn no_sense() -> Trouble {
    Trouble::Broken("it makes no sense".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_hashes_are_read() {
        assert!(Command::parse("hmget user:${username} password_hash salt").is_ok());
        assert!(Command::parse_rules("HGETALL acl:${clientid}").is_ok());
        for wrong in ["", "GET x", "HMGET x", "HGETALL", "HGETALL x y", "FLUSHALL"] {
            assert!(Command::parse(wrong).unwrap_err().starts_with("no command"), "{wrong}");
        }
        assert!(Command::parse("HGETALL ${user}").is_err());
        assert!(Command::parse("HGETALL ${password}").unwrap_err().contains("leave it out"));
        assert!(Command::parse_rules("HMGET x y").is_err());
    }

    #[test]
    fn rules_are_fields_of_a_hash() {
        let row = |topic: &str, value: &str| Row(vec![(topic.into(), value.into())]);
        let rules = |row: Row| Redis::rules(&row)?[0].rules();
        let [rule] = &rules(row("a/#", "publish")).unwrap()[..] else { panic!("one rule") };
        assert!(rule.allows && rule.publish && !rule.subscribe);
        let json = r#"{"action": "subscribe", "qos": [1, 2]}"#;
        let [rule] = &rules(row("a/#", json)).unwrap()[..] else { panic!("one rule") };
        assert!(rule.allows && rule.subscribe && rule.qos == 0b110);
        for wrong in ["", "publish,subscribe", "{", r#"{"action":"all","permission":"deny"}"#] {
            assert!(rules(row("a", wrong)).is_err(), "{wrong}");
        }
    }
}
