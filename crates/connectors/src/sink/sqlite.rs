//! A sink into an SQLite file: a batch is one transaction.

use super::destination::BatchError;
use super::message::{MessageField, MessageValue, SinkMessage};
use super::rotation::{FileInode, inode_at};
use super::settings::InsertStatement;
use super::worker::BlockingSink;
use config::source::absolute_path;
use rusqlite::types::Value as Bound;
use rusqlite::{Connection, Error, ErrorCode, OpenFlags, params_from_iter};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Values of the option rows `sql.*` for a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqliteSettings {
    pub path: PathBuf,
    pub insertion: InsertStatement,
}

/// The SQLite sink, on the thread of a `SinkWorker`.
pub(super) struct SqliteSink {
    settings: SqliteSettings,
    open: Option<OpenSqlite>,
}

struct OpenSqlite {
    conn: Connection,
    /// Identity of the database file, to notice a replaced file.
    inode: FileInode,
}

/// Longest wait for the lock while another process writes.
const BUSY_MAX: Duration = Duration::from_secs(2);

impl SqliteSink {
    pub(super) fn new(settings: &SqliteSettings) -> SqliteSink {
        SqliteSink { settings: settings.clone(), open: None }
    }

    fn connect(&self) -> Result<OpenSqlite, String> {
        // The path names a file: no URI with options, and no database in memory.
        let flags = OpenFlags::default() & !OpenFlags::SQLITE_OPEN_URI;
        let path = &self.settings.path;
        let named = |why: String| {
            let path = absolute_path(path);
            format!("{} (option sql.url) cannot be opened: {why}", path.display())
        };
        let conn =
            Connection::open_with_flags(path, flags).map_err(|error| named(error.to_string()))?;
        let inode = inode_at(path).map_err(|error| named(error.to_string()))?;
        self.prepare(&conn).map_err(|error| error.to_string())?;
        Ok(OpenSqlite { conn, inode })
    }

    fn prepare(&self, conn: &Connection) -> Result<(), Error> {
        conn.busy_timeout(BUSY_MAX)?;
        // In WAL mode readers do not block the sink; "full" syncs each commit to the disk.
        conn.pragma_update(None, "journal_mode", "wal")?;
        conn.pragma_update(None, "synchronous", "full")?;
        for statement in &self.settings.insertion.setup {
            conn.execute_batch(statement)?;
        }
        conn.prepare(&self.settings.insertion.text).map(drop)
    }

    /// Opens the file again if another process has renamed or removed it. SQLite itself would
    /// continue with the old file.
    fn reopen_if_replaced(&mut self) -> Result<(), String> {
        let is_here =
            |open: &OpenSqlite| inode_at(&self.settings.path).is_ok_and(|at| at == open.inode);
        match &self.open {
            Some(open) if !is_here(open) => {
                // The WAL beside the path belongs to the old file. Without a checkpoint its
                // transactions would be lost, or the WAL would be taken for the new file's. A
                // failure here cannot be repaired.
                let _ = open.conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
                self.open()
            }
            _ => Ok(()),
        }
    }

    fn insert(&mut self, batch: &[Arc<SinkMessage>]) -> Result<(), Error> {
        let insertion = &self.settings.insertion;
        let Some(open) = &mut self.open else { return Err(Error::InvalidQuery) };
        let transaction = open.conn.transaction()?;
        {
            let mut statement = transaction.prepare(&insertion.text)?;
            for message in batch {
                let values = insertion.fields.iter().map(|field| bound_value(message, field));
                statement.execute(params_from_iter(values))?;
            }
        }
        transaction.commit()
    }
}

impl Clone for SqliteSink {
    fn clone(&self) -> SqliteSink {
        SqliteSink::new(&self.settings)
    }
}

impl BlockingSink for SqliteSink {
    const NAME: &'static str = "sink-sqlite";

    fn open(&mut self) -> Result<(), String> {
        self.open = None;
        self.open = Some(self.connect()?);
        Ok(())
    }

    fn deliver(&mut self, batch: &[Arc<SinkMessage>]) -> Result<(), BatchError> {
        self.reopen_if_replaced().map_err(BatchError::transient)?;
        self.insert(batch).map_err(|error| match is_permanent(&error) {
            true => BatchError::rejected(error.to_string()),
            false => BatchError::transient(error.to_string()),
        })
    }
}

/// Returns a bound value with its own SQLite type.
fn bound_value(message: &SinkMessage, field: &MessageField) -> Bound {
    match message.value(field) {
        MessageValue::Nothing => Bound::Null,
        MessageValue::Bool(is) => Bound::Integer(is.into()),
        MessageValue::Number(number) => Bound::Integer(number as i64),
        MessageValue::Json(json) => match (json.as_i64(), json.as_f64()) {
            (Some(number), _) => Bound::Integer(number),
            (None, Some(number)) => Bound::Real(number),
            (None, None) => Bound::Text(json.to_string()),
        },
        MessageValue::Bytes(bytes) => match String::from_utf8(bytes.into_owned()) {
            Ok(text) => Bound::Text(text),
            Err(error) => Bound::Blob(error.into_bytes()),
        },
    }
}

/// Whether the error is about the row, and not about the database.
fn is_permanent(error: &Error) -> bool {
    match error {
        Error::SqliteFailure(failure, _) => matches!(
            failure.code,
            ErrorCode::ConstraintViolation | ErrorCode::TypeMismatch | ErrorCode::TooBig
        ),
        _ => false,
    }
}
