//! Users and rules in Redis: the credentials of a client are one hash, and the rules another.

use super::{action_word, collect_permissions, read_proof};
use crate::acl::entry::AclEntry;
use crate::password_format::PasswordFormat;
use crate::remote::template::{AuthTemplate, AuthVariable, AuthVariableSource};
use crate::remote::{IdentityLookup, IdentityServer};
use broker::AuthRequest;
use net::redis::{RedisConnection, RedisEndpoint, RedisReply, malformed_answer};
use net::server_pool::{RemoteError, RemoteServer};
use net::server_url::ServerUrl;
use net::table_row::{ANSWER_BYTES_MAX, TableRow};
use rustls::ClientConfig;
use std::sync::Arc;

pub struct RedisAuthServer {
    endpoint: RedisEndpoint,
    user_command: RedisCommand,
    rules: Option<RedisCommand>,
    form: PasswordFormat,
    ports: Vec<Option<u16>>,
}

/// A command with its words sent separately, so that a value cannot become more than its own word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisCommand {
    words: Vec<AuthTemplate>,
    /// Field names of HMGET; `None` for HGETALL, which returns names.
    fields: Option<Vec<String>>,
}

impl RedisCommand {
    /// Parses a command of the forms `HMGET KEY FIELD...`, `HGET KEY FIELD`, `GET KEY` and `HGETALL
    /// KEY`. Any other command is an error.
    pub fn parse(text: &str) -> Result<RedisCommand, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let name = words.first().map(|name| name.to_ascii_uppercase()).unwrap_or_default();
        let fields = match (name.as_str(), &words[..]) {
            ("HMGET", [_, _, fields @ ..]) if !fields.is_empty() => {
                Some(fields.iter().map(ToString::to_string).collect())
            }
            ("HGET", [_, _, field]) => Some(vec![field.to_string()]),
            // As in mosquitto-go-auth, the value is the hash.
            ("GET", [_, _]) => Some(vec!["password_hash".to_string()]),
            ("HGETALL", [_, _]) => None,
            _ => {
                let why = "no command that we send, use HMGET KEY FIELD..., HGET KEY FIELD, GET \
                           KEY or HGETALL KEY";
                return Err(why.into());
            }
        };
        let words: Result<Vec<AuthTemplate>, String> =
            words.iter().map(|word| AuthTemplate::parse(word, false)).collect();
        let words = words?;
        if words.iter().any(|word| word.has(AuthVariable::Password)) {
            return Err("the password is checked here and told to nobody: leave it out".into());
        }
        Ok(RedisCommand { words, fields })
    }

    /// Parses the command for rules, which must be HGETALL.
    pub fn parse_rules(text: &str) -> Result<RedisCommand, String> {
        let command = RedisCommand::parse(text)?;
        match command.fields {
            None => Ok(command),
            Some(_) => Err("rules are read with HGETALL KEY".into()),
        }
    }

    async fn query_row(
        &self,
        conn: &mut RedisConnection,
        values: AuthVariableSource<'_>,
    ) -> Result<TableRow, RemoteError> {
        let words: Vec<Vec<u8>> = self.words.iter().map(|word| word.fill(values)).collect();
        let all = match conn.run_command(&words).await? {
            RedisReply::List(all) => all,
            one => vec![one],
        };
        let mut texts = Vec::new();
        for said in all {
            texts.push(match said {
                RedisReply::Text(text) => Some(text),
                RedisReply::Nil => None,
                RedisReply::List(_) | RedisReply::Error(_) => return Err(malformed_answer()),
            });
        }
        let mut row = TableRow::default();
        match &self.fields {
            Some(fields) => {
                let known = fields.iter().zip(texts);
                row.0 = known.filter_map(|(name, value)| Some((name.clone(), value?))).collect();
            }
            None => {
                for pair in texts.chunks_exact(2) {
                    let [Some(name), Some(value)] = pair else { return Err(malformed_answer()) };
                    row.0.push((String::from_utf8_lossy(name).into_owned(), value.clone()));
                }
            }
        }
        Ok(row)
    }
}

impl RedisAuthServer {
    /// Returns the server; `None` without a URL or a user command. The commands were validated with
    /// the options.
    pub fn new(
        settings: &RedisAuthSettings,
        tls: Option<Arc<ClientConfig>>,
        form: PasswordFormat,
        ports: &[Option<u16>],
    ) -> Option<RedisAuthServer> {
        Some(RedisAuthServer {
            endpoint: RedisEndpoint::new(settings.url.as_ref()?, tls),
            user_command: settings.user.clone()?,
            rules: settings.rules.clone(),
            form,
            ports: ports.to_vec(),
        })
    }

    fn rules(row: &TableRow) -> Result<Vec<AclEntry>, &'static str> {
        let entry = |(topic, value): &(String, Vec<u8>)| {
            let text = std::str::from_utf8(value).map_err(|_| "a rule is not text")?.trim();
            let mut entry = match text.starts_with('{') {
                true => {
                    let value = serde_json::from_str(text).map_err(|_| "a rule is not JSON")?;
                    AclEntry::from_json(&value, "allow")?
                }
                false => AclEntry {
                    permission: "allow".into(),
                    action: action_word(&text.to_lowercase()).into(),
                    ..AclEntry::default()
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

/// Values of the `auth.redis_*` options.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RedisAuthSettings {
    pub url: Option<ServerUrl>,
    pub user: Option<RedisCommand>,
    pub rules: Option<RedisCommand>,
}

impl RedisAuthServer {
    /// Whether the command uses the user name; otherwise a result does not confirm the name.
    fn is_asked_by_name(&self) -> bool {
        self.user_command.words.iter().any(|word| word.has(AuthVariable::UserName))
    }
}

impl IdentityServer for RedisAuthServer {
    fn name(&self) -> &'static str {
        "redis"
    }

    /// Whether the client has a password, and a user name if the command uses one: otherwise the
    /// client is known by its identifier or certificate.
    fn can_identify(&self, request: &AuthRequest) -> bool {
        request.password.is_some() && (request.user_name.is_some() || !self.is_asked_by_name())
    }
}

impl RemoteServer for RedisAuthServer {
    type Conn = RedisConnection;
    type Question = AuthRequest;
    type Reply = IdentityLookup;

    async fn connect(&self) -> Result<RedisConnection, String> {
        self.endpoint.connect(ANSWER_BYTES_MAX).await
    }

    async fn request(
        &self,
        conn: &mut RedisConnection,
        request: &AuthRequest,
    ) -> Result<IdentityLookup, RemoteError> {
        let values = AuthVariableSource::Client { request, ports: &self.ports };
        let row = self.user_command.query_row(conn, values).await?;
        if row.0.is_empty() {
            return Ok(IdentityLookup::UnknownClient);
        }
        let (stored, mut principal) =
            read_proof(&row, request, &self.form).map_err(RemoteError::ErrorReply)?;
        if !self.is_asked_by_name() {
            principal.user = None;
        }
        if let Some(rules) = &self.rules {
            let row = rules.query_row(conn, values).await?;
            let all = RedisAuthServer::rules(&row)
                .and_then(|all| collect_permissions(all.into_iter().map(Ok)));
            let all =
                all.map_err(|why| RemoteError::ErrorReply(format!("the client's rules: {why}")));
            principal.permissions = Some(Arc::new(all?));
        }
        Ok(IdentityLookup::Proof { stored, principal: Box::new(principal) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_hashes_are_read() {
        assert!(RedisCommand::parse("hmget user:${username} password_hash salt").is_ok());
        assert!(RedisCommand::parse_rules("HGETALL acl:${clientid}").is_ok());
        for wrong in ["", "GET", "HGET x", "HMGET x", "HGETALL", "HGETALL x y", "FLUSHALL"] {
            assert!(RedisCommand::parse(wrong).unwrap_err().starts_with("no command"), "{wrong}");
        }
        assert!(RedisCommand::parse("HGETALL ${user}").is_err());
        assert!(RedisCommand::parse("HGETALL ${password}").unwrap_err().contains("leave it out"));
        assert!(RedisCommand::parse_rules("HMGET x y").is_err());
    }

    #[test]
    fn rules_are_fields_of_a_hash() {
        let row = |topic: &str, value: &str| TableRow(vec![(topic.into(), value.into())]);
        let rules = |row: TableRow| RedisAuthServer::rules(&row)?[0].to_rules();
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
