//! Kinds of options that are queries of databases with SQL.

use crate::remote::template::AuthTemplate;
use crate::tables::sql::SqlQuery;
use config::value::{OptionKind, TextCheck};
use net::sql::SqlDatabase;

/// Returns the kind of a required query for a user.
pub(super) const fn user_query<D: SqlDatabase>() -> OptionKind {
    let check: TextCheck = |text| match query::<D>(text)? {
        Some(_) => Ok(()),
        None => Err("it is empty, use a query".into()),
    };
    OptionKind::Text { of: "a query", check }
}

/// Returns the kind of a query that may be empty.
pub(super) const fn any_query<D: SqlDatabase>() -> OptionKind {
    OptionKind::Text { of: "a query", check: |text| query::<D>(text).map(|_| ()) }
}

/// Parses a query; an empty text disables it.
pub(super) fn query<D: SqlDatabase>(text: &str) -> Result<Option<AuthTemplate>, String> {
    SqlQuery::parse(text, D::placeholder)?;
    Ok(Some(AuthTemplate::parse(text, false)?).filter(|_| !text.is_empty()))
}
