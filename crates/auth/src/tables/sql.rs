//! SQL servers: two queries with bound parameters.

use super::{collect_permissions, read_acl_entry, read_proof};
use crate::password_format::PasswordFormat;
use crate::remote::template::{AuthTemplate, AuthVariable, AuthVariableSource};
use crate::remote::{IdentityLookup, IdentityServer};
use broker::AuthRequest;
use net::server_pool::{RemoteError, RemoteServer};
use net::server_url::ServerUrl;
use net::sql::SqlDatabase;
use std::sync::Arc;

/// Values of the option rows about an SQL server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SqlAuthSettings {
    pub url: Option<ServerUrl>,
    pub tls: bool,
    /// Query for a client's password hash.
    pub user: Option<AuthTemplate>,
    /// Query for a client's rules.
    pub rules: Option<AuthTemplate>,
}

/// A query with bound parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqlQuery {
    pub text: String,
    values: Vec<AuthVariable>,
}

impl SqlQuery {
    pub fn parse(text: &str, mark: fn(usize) -> String) -> Result<SqlQuery, String> {
        SqlQuery::new(&AuthTemplate::parse(text, false)?, mark)
    }

    fn new(template: &AuthTemplate, mark: fn(usize) -> String) -> Result<SqlQuery, String> {
        let (text, values) = template.bind(mark)?;
        if values.contains(&AuthVariable::Password) {
            return Err("the password is checked here and told to nobody: leave it out".into());
        }
        Ok(SqlQuery { text, values })
    }

    /// Returns the parameters; `None` if a value is not text that a table can hold.
    fn fill(&self, values: AuthVariableSource<'_>) -> Option<Vec<Vec<u8>>> {
        let all = self.values.iter().map(|value| value.resolve(values).into_owned());
        let is_text = |value: &Vec<u8>| !value.contains(&0) && std::str::from_utf8(value).is_ok();
        all.map(|value| Some(value).filter(is_text)).collect()
    }
}

pub struct SqlAuthServer<D> {
    database: D,
    user: SqlQuery,
    rules: Option<SqlQuery>,
    form: PasswordFormat,
    ports: Vec<Option<u16>>,
}

impl<D: SqlDatabase> SqlAuthServer<D> {
    /// Returns the server; `None` without a user query. The queries were validated with the
    /// options.
    pub fn new(
        database: D,
        settings: &SqlAuthSettings,
        form: PasswordFormat,
        ports: &[Option<u16>],
    ) -> Option<SqlAuthServer<D>> {
        let query = |template: &AuthTemplate| SqlQuery::new(template, D::placeholder).ok();
        let user = query(settings.user.as_ref()?)?;
        let rules = settings.rules.as_ref().map(query);
        // A wrong query for rules must not be ignored.
        let rules = if rules == Some(None) { return None } else { rules.flatten() };
        Some(SqlAuthServer { database, user, rules, form, ports: ports.to_vec() })
    }

    /// Whether the query uses the user name; otherwise a row does not confirm the name.
    fn is_asked_by_name(&self) -> bool {
        self.user.values.contains(&AuthVariable::UserName)
    }
}

impl<D: SqlDatabase> IdentityServer for SqlAuthServer<D> {
    fn name(&self) -> &'static str {
        D::NAME
    }

    /// Whether the client has a password, and a user name if the query uses one: otherwise the
    /// client is known by its identifier or certificate.
    fn can_identify(&self, request: &AuthRequest) -> bool {
        request.password.is_some() && (request.user_name.is_some() || !self.is_asked_by_name())
    }
}

impl<D: SqlDatabase> RemoteServer for SqlAuthServer<D> {
    type Conn = D::Conn;
    type Question = AuthRequest;
    type Reply = IdentityLookup;

    async fn connect(&self) -> Result<Self::Conn, String> {
        self.database.connect().await
    }

    async fn request(
        &self,
        conn: &mut Self::Conn,
        request: &AuthRequest,
    ) -> Result<IdentityLookup, RemoteError> {
        let values = AuthVariableSource::Client { request, ports: &self.ports };
        let Some(bound) = self.user.fill(values) else { return Ok(IdentityLookup::UnknownClient) };
        let rows = self.database.query(conn, &self.user.text, &bound).await?;
        let row = match &rows[..] {
            [] => return Ok(IdentityLookup::UnknownClient),
            [row] => row,
            _ => return Err(RemoteError::ErrorReply("there are several such users".into())),
        };
        let (stored, mut principal) =
            read_proof(row, request, &self.form).map_err(RemoteError::ErrorReply)?;
        if !self.is_asked_by_name() {
            principal.user = None;
        }
        if let Some(rules) = &self.rules {
            let Some(bound) = rules.fill(values) else { return Ok(IdentityLookup::UnknownClient) };
            let rows = self.database.query(conn, &rules.text, &bound).await?;
            let all = collect_permissions(rows.iter().map(read_acl_entry));
            let all =
                all.map_err(|why| RemoteError::ErrorReply(format!("the client's rules: {why}")));
            principal.permissions = Some(Arc::new(all?));
        }
        Ok(IdentityLookup::Proof { stored, principal: Box::new(principal) })
    }
}
