//! SQL servers: queries with bound parameters, and rows to insert.

#[cfg(feature = "mysql")]
pub mod mysql;
#[cfg(feature = "mysql")]
mod mysql_packets;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "postgres")]
mod postgres_values;

use crate::server_pool::RemoteError;
use crate::table_row::TableRow;
use std::future::Future;

/// A client of an SQL server.
pub trait SqlDatabase: Send + Sync + 'static {
    type Conn: Send + 'static;
    const NAME: &'static str;

    /// Returns the placeholder of a query's nth parameter, counted from 1.
    fn placeholder(n: usize) -> String;

    fn connect(&self) -> impl Future<Output = Result<Self::Conn, String>> + Send;

    fn query(
        &self,
        conn: &mut Self::Conn,
        query: &str,
        values: &[Vec<u8>],
    ) -> impl Future<Output = Result<Vec<TableRow>, RemoteError>> + Send;

    /// Runs a statement once for each row of parameters, in one transaction: all rows or none.
    fn insert(
        &self,
        conn: &mut Self::Conn,
        statement: &str,
        rows: &[Vec<Option<Vec<u8>>>],
    ) -> impl Future<Output = Result<(), InsertError>> + Send;
}

/// Error of [`SqlDatabase::insert`].
#[derive(Debug)]
pub enum InsertError {
    /// The table rejects a row; the connection and other rows are unaffected.
    Row(String),
    Remote(RemoteError),
}

/// Error of a placeholder inside quotes.
pub const BOUND: &str =
    "a placeholder is bound, not written into the text: it stands without quotes";

/// Returns the SQL quote that is open at the end of `text`, given the quote open at its beginning.
pub fn quote_after(mut quote: Option<char>, text: &str) -> Option<char> {
    for c in text.chars().filter(|c| matches!(c, '\'' | '"' | '`')) {
        quote = match quote {
            None => Some(c),
            Some(open) if open == c => None,
            open => open,
        };
    }
    quote
}
