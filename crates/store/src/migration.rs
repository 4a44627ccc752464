//! The tables, and how those of an older version become those of this one: each step brings a store
//! from one version to the next, in the transaction that found it old.

use rusqlite::{Connection, TransactionBehavior};

/// Written into the file, so that other programs' files are told from a store: `HoRL`.
pub(crate) const APPLICATION: i64 = 0x486f_524c;

/// From no tables to version 1, from 1 to 2, and so on.
const STEPS: [&str; 1] = [
    // Texts are apart from what is listed, so that a list reads none of them.
    "CREATE TABLE run (
         id INTEGER PRIMARY KEY AUTOINCREMENT,
         key TEXT NOT NULL UNIQUE,
         schema TEXT NOT NULL,
         started TEXT NOT NULL,
         command TEXT NOT NULL,
         errors INTEGER NOT NULL,
         warnings INTEGER NOT NULL,
         bytes INTEGER NOT NULL,
         name TEXT UNIQUE
     ) STRICT;
     CREATE INDEX run_by_start ON run (started);
     CREATE TABLE result (
         run INTEGER PRIMARY KEY REFERENCES run (id) ON DELETE CASCADE,
         packed BLOB NOT NULL
     ) STRICT;",
];

/// The newest version, which new stores have.
pub(crate) const VERSION: i64 = STEPS.len() as i64;

/// What a file is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Found {
    /// A store of this version.
    Ready,
    /// A store of a version that is not known here.
    Newer(i64),
    /// A database of something else.
    Strange,
}

fn pragma(connection: &Connection, name: &str) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, name, |row| row.get(0))
}

/// Brings a database to this version.
pub(crate) fn migrate(connection: &mut Connection) -> rusqlite::Result<Found> {
    // All that is looked at is of one instant: another process may be making the store.
    let reading = connection.transaction()?;
    if let Some(found) = look(&reading)? {
        return Ok(found);
    }
    drop(reading);
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Another process may have done it meanwhile.
    if let Some(found) = look(&transaction)? {
        return Ok(found);
    }
    let from = pragma(&transaction, "user_version")?;
    for step in STEPS.iter().skip(from.max(0) as usize) {
        transaction.execute_batch(step)?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION)?;
    transaction.pragma_update(None, "user_version", VERSION)?;
    transaction.commit()?;
    Ok(Found::Ready)
}

/// What it is, unless it is empty or old.
fn look(connection: &Connection) -> rusqlite::Result<Option<Found>> {
    let (application, version) =
        (pragma(connection, "application_id")?, pragma(connection, "user_version")?);
    let tables: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    Ok(match (application, version) {
        (0, 0) if tables == 0 => None,
        (APPLICATION, VERSION) => Some(Found::Ready),
        (APPLICATION, version @ 0..VERSION) if version > 0 => None,
        (APPLICATION, version) => Some(Found::Newer(version)),
        _ => Some(Found::Strange),
    })
}
