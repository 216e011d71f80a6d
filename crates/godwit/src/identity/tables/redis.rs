//! Redis: a client is a hash, and so are its rules.

use super::resp::{Conn, Said, Way, no_sense};
use super::{ANSWER_BYTES_MAX, Row, action_word, permissions};
use crate::acl::entry::Entry;
use crate::identity::password::Form;
use crate::identity::remote::template::{Template, Value, Values};
use crate::identity::remote::url::Url;
use crate::identity::remote::{Found, Identifies, Server, Trouble};
use broker::Claim;
use rustls::ClientConfig;
use std::sync::Arc;

pub(crate) struct Redis {
    way: Way,
    ask: Command,
    rules: Option<Command>,
    form: Form,
    ports: Vec<Option<u16>>,
}

/// Words that travel apart, so a value is never more than a part of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Command {
    words: Vec<Template>,
    /// Of HMGET; HGETALL brings its own.
    fields: Option<Vec<String>>,
}

impl Command {
    /// `HMGET KEY FIELD...`, `HGET KEY FIELD`, `GET KEY` or `HGETALL KEY`
    pub(crate) fn parse(text: &str) -> Result<Command, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let name = words.first().map(|name| name.to_ascii_uppercase()).unwrap_or_default();
        let fields = match (name.as_str(), &words[..]) {
            ("HMGET", [_, _, fields @ ..]) if !fields.is_empty() => {
                Some(fields.iter().map(ToString::to_string).collect())
            }
            ("HGET", [_, _, field]) => Some(vec![field.to_string()]),
            // As mosquitto-go-auth has it: the value is the hash.
            ("GET", [_, _]) => Some(vec!["password_hash".to_string()]),
            ("HGETALL", [_, _]) => None,
            _ => {
                let why = "no command that we send, use HMGET KEY FIELD..., HGET KEY FIELD, GET \
                           KEY or HGETALL KEY";
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

    async fn row(&self, conn: &mut Conn, values: Values<'_>) -> Result<Row, Trouble> {
        let words: Vec<Vec<u8>> = self.words.iter().map(|word| word.fill(values)).collect();
        let all = match conn.ask(&words).await? {
            Said::List(all) => all,
            one => vec![one],
        };
        let mut texts = Vec::new();
        for said in all {
            texts.push(match said {
                Said::Text(text) => Some(text),
                Said::Nothing => None,
                Said::List(_) | Said::Denied(_) => return Err(no_sense()),
            });
        }
        let mut row = Row::default();
        match &self.fields {
            Some(fields) => {
                let known = fields.iter().zip(texts);
                row.0 = known.filter_map(|(name, value)| Some((name.clone(), value?))).collect();
            }
            None => {
                for pair in texts.chunks_exact(2) {
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
        Some(Redis {
            way: Way::new(settings.url.as_ref()?, tls),
            ask: settings.user.clone()?,
            rules: settings.rules.clone(),
            form,
            ports: ports.to_vec(),
        })
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
                    action: action_word(&text.to_lowercase()).into(),
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

    /// A client may have a password and be known by its id or by its certificate alone.
    fn is_for(&self, claim: &Claim) -> bool {
        let needs_name = self.ask.words.iter().any(|word| word.has(Value::UserName));
        claim.password.is_some() && (claim.user_name.is_some() || !needs_name)
    }
}

impl Server for Redis {
    type Conn = Conn;
    type Question = Claim;
    type Found = Found;

    async fn connect(&self) -> Result<Conn, String> {
        self.way.connect(ANSWER_BYTES_MAX).await
    }

    async fn ask(&self, conn: &mut Conn, claim: &Claim) -> Result<Found, Trouble> {
        let values = Values::Client { claim, ports: &self.ports };
        let row = self.ask.row(conn, values).await?;
        if row.0.is_empty() {
            return Ok(Found::Nobody);
        }
        let (stored, mut grant) = row.proof(claim, &self.form).map_err(Trouble::Answered)?;
        if let Some(rules) = &self.rules {
            let row = rules.row(conn, values).await?;
            let all = Redis::rules(&row).and_then(|all| permissions(all.into_iter().map(Ok)));
            let all = all.map_err(|why| Trouble::Answered(format!("the client's rules: {why}")));
            grant.permissions = Some(Arc::new(all?));
        }
        Ok(Found::Proof { stored, grant: Box::new(grant) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_hashes_are_read() {
        assert!(Command::parse("hmget user:${username} password_hash salt").is_ok());
        assert!(Command::parse_rules("HGETALL acl:${clientid}").is_ok());
        for wrong in ["", "GET", "HGET x", "HMGET x", "HGETALL", "HGETALL x y", "FLUSHALL"] {
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
