//! Servers that are asked in SQL: two queries, whose values travel beside them.

use super::{Row, permissions};
use crate::identity::password::Form;
use crate::identity::remote::template::{Template, Value, Values};
use crate::identity::remote::url::Url;
use crate::identity::remote::{Found, Identifies, Server, Trouble};
use broker::Claim;
use std::future::Future;
use std::sync::Arc;

/// What the rows of the option table say of one server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TableSettings {
    pub(crate) url: Option<Url>,
    pub(crate) tls: bool,
    /// What brings a client's hash, ...
    pub(crate) user: Option<Template>,
    /// ... and what brings its rules.
    pub(crate) rules: Option<Template>,
}

/// A server that is asked in SQL.
pub(crate) trait Database: Send + Sync + 'static {
    type Conn: Send + 'static;
    const NAME: &'static str;

    /// How a query names its nth value, from 1 on.
    fn mark(n: usize) -> String;

    fn connect(&self) -> impl Future<Output = Result<Self::Conn, String>> + Send;

    fn query(
        &self,
        conn: &mut Self::Conn,
        query: &Query,
        values: &[Vec<u8>],
    ) -> impl Future<Output = Result<Vec<Row>, Trouble>> + Send;

    /// Runs a statement once for each row of values, in one transaction: all of it, or nothing.
    #[cfg(feature = "sink")]
    fn insert(
        &self,
        conn: &mut Self::Conn,
        statement: &str,
        rows: &[Vec<Option<Vec<u8>>>],
    ) -> impl Future<Output = Result<(), Denied>> + Send;
}

/// Why rows were not inserted.
#[cfg(feature = "sink")]
#[derive(Debug)]
pub(crate) enum Denied {
    /// A row is what the table does not take; the connection is good for others.
    Row(String),
    Trouble(Trouble),
}

/// A query whose values travel beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Query {
    pub(crate) text: String,
    values: Vec<Value>,
}

impl Query {
    pub(crate) fn parse(text: &str, mark: fn(usize) -> String) -> Result<Query, String> {
        Query::new(&Template::parse(text, false)?, mark)
    }

    fn new(template: &Template, mark: fn(usize) -> String) -> Result<Query, String> {
        let (text, values) = template.bind(mark)?;
        if values.contains(&Value::Password) {
            return Err("the password is checked here and told to nobody: leave it out".into());
        }
        Ok(Query { text, values })
    }

    /// None where one is no text that a table could hold.
    fn fill(&self, values: Values<'_>) -> Option<Vec<Vec<u8>>> {
        let all = self.values.iter().map(|value| value.of(values).into_owned());
        let is_text = |value: &Vec<u8>| !value.contains(&0) && std::str::from_utf8(value).is_ok();
        all.map(|value| Some(value).filter(is_text)).collect()
    }
}

pub(crate) struct Tables<D> {
    database: D,
    user: Query,
    rules: Option<Query>,
    form: Form,
    ports: Vec<Option<u16>>,
}

impl<D: Database> Tables<D> {
    /// The queries were checked when they were read.
    pub(crate) fn new(
        database: D,
        settings: &TableSettings,
        form: Form,
        ports: &[Option<u16>],
    ) -> Option<Tables<D>> {
        let query = |template: &Template| Query::new(template, D::mark).ok();
        let user = query(settings.user.as_ref()?)?;
        let rules = settings.rules.as_ref().map(query);
        // Rules that cannot be asked for are not left out.
        let rules = if rules == Some(None) { return None } else { rules.flatten() };
        Some(Tables { database, user, rules, form, ports: ports.to_vec() })
    }
}

impl<D: Database> Identifies for Tables<D> {
    fn name(&self) -> &'static str {
        D::NAME
    }

    /// A client may have a password and be known by its id or by its certificate alone.
    fn is_for(&self, claim: &Claim) -> bool {
        let needs_name = self.user.values.contains(&Value::UserName);
        claim.password.is_some() && (claim.user_name.is_some() || !needs_name)
    }
}

impl<D: Database> Server for Tables<D> {
    type Conn = D::Conn;
    type Question = Claim;
    type Found = Found;

    async fn connect(&self) -> Result<Self::Conn, String> {
        self.database.connect().await
    }

    async fn ask(&self, conn: &mut Self::Conn, claim: &Claim) -> Result<Found, Trouble> {
        let values = Values::Client { claim, ports: &self.ports };
        let Some(bound) = self.user.fill(values) else { return Ok(Found::Nobody) };
        let rows = self.database.query(conn, &self.user, &bound).await?;
        let row = match &rows[..] {
            [] => return Ok(Found::Nobody),
            [row] => row,
            _ => return Err(Trouble::Answered("there are several such users".into())),
        };
        let (stored, mut grant) = row.proof(claim, &self.form).map_err(Trouble::Answered)?;
        if let Some(rules) = &self.rules {
            let Some(bound) = rules.fill(values) else { return Ok(Found::Nobody) };
            let rows = self.database.query(conn, rules, &bound).await?;
            let all = permissions(rows.iter().map(Row::entry));
            let all = all.map_err(|why| Trouble::Answered(format!("the client's rules: {why}")));
            grant.permissions = Some(Arc::new(all?));
        }
        Ok(Found::Proof { stored, grant: Box::new(grant) })
    }
}
