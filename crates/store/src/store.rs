//! Store: opening, adding, listing, finding, naming and removing.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{
    Connection, OpenFlags, OptionalExtension as _, Row, Transaction, TransactionBehavior, params,
};

use crate::error::StoreError;
use crate::facts::{self, ResultFacts};
use crate::migration::{self, DatabaseState, VERSION};
use crate::packing;
use crate::reference::{RunReference, is_key};

/// Timeout for another process that holds the store.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Largest number of runs listed for an ambiguous reference.
const CANDIDATES_MAX: i64 = 5;
/// Columns from which [`run_from_row`] builds a [`RunMetadata`], in this order.
const METADATA_COLUMNS: &str =
    "id, key, schema, started, command, errors, warnings, bytes, name, broken";

/// Stored run, without its result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunMetadata {
    /// Number; runs stored later have higher numbers, and none is reused.
    pub id: i64,
    /// Facts of the run's result.
    pub facts: ResultFacts,
    /// Size of the result as text, in bytes.
    pub bytes: u64,
    /// Name assigned by the user; `None` without one.
    pub name: Option<String>,
}

/// Filter of the runs to list; a field that is `None` filters nothing.
#[derive(Clone, Default, Debug)]
pub struct RunFilter {
    /// Prefix of the schema after `horolog.`, such as `load`.
    pub kind: Option<String>,
    /// Earliest start, RFC 3339 in UTC.
    pub since: Option<String>,
    /// Largest number of runs; the latest are selected.
    pub last: Option<u32>,
}

/// Open connection to a store's file.
#[derive(Debug)]
pub struct Store {
    connection: Connection,
    path: PathBuf,
}

impl Store {
    /// Opens the store at `path`, and migrates one of an older version. Creates it if it does not
    /// exist, and its directory with access for this user only.
    ///
    /// # Errors
    ///
    /// Fails if the directory cannot be created, if the file cannot be opened for writing, is not a
    /// store or has a newer version, or if another process holds its lock.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        if let Some(directory) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            let created = DirBuilder::new().recursive(true).mode(0o700).create(directory);
            created
                .map_err(|source| StoreError::Directory { path: directory.to_owned(), source })?;
        }
        Self::connect(path, OpenFlags::SQLITE_OPEN_CREATE)
    }

    /// Opens the store at `path`, which must exist, for reading and writing, and migrates one of an
    /// older version.
    ///
    /// # Errors
    ///
    /// [`StoreError::Absent`], and the errors of [`open`](Self::open).
    pub fn open_existing(path: &Path) -> Result<Self, StoreError> {
        if path.exists() {
            Self::connect(path, OpenFlags::empty())
        } else {
            Err(StoreError::Absent(path.to_owned()))
        }
    }

    /// Opens the store at `path`, which must exist, for reading. It is opened and migrated as by
    /// [`open_existing`](Self::open_existing), but read-only if it cannot be written, or if there
    /// is no space for the shared-memory file next to it.
    ///
    /// # Errors
    ///
    /// Errors of [`open_existing`](Self::open_existing), and [`StoreError::OlderVersion`].
    pub fn open_to_read(path: &Path) -> Result<Self, StoreError> {
        match Self::open_existing(path) {
            Err(error @ (StoreError::CannotOpen { .. } | StoreError::NoSpace(_)))
                if path.is_file() =>
            {
                Self::open_read_only(path).map_err(|read_error| {
                    // Returns the error of the read-only attempt, unless it only repeats the first
                    // error.
                    if matches!(read_error, StoreError::CannotOpen { .. }) {
                        error
                    } else {
                        read_error
                    }
                })
            }
            opened => opened,
        }
    }

    /// Opens the store read-only. With an absent or empty write-ahead log it is opened as
    /// immutable, which needs no other file but is correct only while no other process writes.
    /// Otherwise SQLite needs the shared-memory file next to it.
    fn open_read_only(path: &Path) -> Result<Self, StoreError> {
        let store_error = |source| StoreError::from_sqlite(path, source);
        let mut wal_path = path.as_os_str().to_owned();
        wal_path.push("-wal");
        let is_wal_empty = std::fs::metadata(wal_path).map_or(true, |log| log.len() == 0);
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = if is_wal_empty {
            let name = immutable_uri(path);
            Connection::open_with_flags(name, flags | OpenFlags::SQLITE_OPEN_URI)
                .map_err(store_error)?
        } else {
            Connection::open_with_flags(path, flags).map_err(store_error)?
        };
        connection.busy_timeout(BUSY_TIMEOUT).map_err(store_error)?;
        let path = path.to_owned();
        match migration::database_state(&connection)
            .map_err(|source| StoreError::from_sqlite(&path, source))?
        {
            DatabaseState::Current => Ok(Self { connection, path }),
            DatabaseState::Newer(found) => {
                Err(StoreError::NewerVersion { path, found, known: VERSION })
            }
            DatabaseState::Older(found) => {
                Err(StoreError::OlderVersion { path, found, known: VERSION })
            }
            DatabaseState::Foreign => Err(foreign_database(path)),
        }
    }

    fn connect(path: &Path, extra_flags: OpenFlags) -> Result<Self, StoreError> {
        let store_error = |source| StoreError::from_sqlite(path, source);
        let flags =
            OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | extra_flags;
        let mut connection = Connection::open_with_flags(path, flags).map_err(store_error)?;
        connection.busy_timeout(BUSY_TIMEOUT).map_err(store_error)?;
        match migration::migrate(&mut connection).map_err(store_error)? {
            // Older stores have been migrated to this version.
            DatabaseState::Current | DatabaseState::Older(_) => {}
            DatabaseState::Newer(found) => {
                return Err(StoreError::NewerVersion {
                    path: path.to_owned(),
                    found,
                    known: VERSION,
                });
            }
            DatabaseState::Foreign => return Err(foreign_database(path.to_owned())),
        }
        // In WAL mode, readers and the writer do not wait for each other. Not every file system
        // supports it; without it, access is slower but equally correct.
        let _: Result<String, _> =
            connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0));
        connection.pragma_update(None, "foreign_keys", true).map_err(store_error)?;
        Ok(Self { connection, path: path.to_owned() })
    }

    fn error_converter(&self) -> impl Fn(rusqlite::Error) -> StoreError + '_ {
        |source| StoreError::from_sqlite(&self.path, source)
    }

    /// Stores a result and returns its number; a result that is stored already keeps its number.
    ///
    /// # Errors
    ///
    /// Fails if there is no space, or if another process holds the lock of the store.
    pub fn add(&mut self, facts: &ResultFacts, text: &str) -> Result<i64, StoreError> {
        let path = self.path.clone();
        let transaction =
            self.begin_transaction().map_err(|source| StoreError::from_sqlite(&path, source))?;
        let added = add(&transaction, facts, text).and_then(|(id, _)| {
            transaction.commit()?;
            Ok(id)
        });
        added.map_err(|source| StoreError::from_sqlite(&path, source))
    }

    /// Stores all results or none, and returns the number of those that were not stored before.
    ///
    /// # Errors
    ///
    /// Errors of [`add`](Self::add).
    pub fn add_all(&mut self, results: &[(ResultFacts, String)]) -> Result<usize, StoreError> {
        let path = self.path.clone();
        let mut added = || {
            let transaction = self.begin_transaction()?;
            let mut new = 0;
            for (facts, text) in results {
                new += usize::from(add(&transaction, facts, text)?.1);
            }
            transaction.commit()?;
            Ok(new)
        };
        added().map_err(|source| StoreError::from_sqlite(&path, source))
    }

    /// Begins a writing transaction, which waits for other writers immediately.
    fn begin_transaction(&mut self) -> rusqlite::Result<Transaction<'_>> {
        self.connection.transaction_with_behavior(TransactionBehavior::Immediate)
    }

    /// Returns the stored runs, the latest start last.
    ///
    /// # Errors
    ///
    /// Fails if the store is damaged.
    pub fn list(&self, filter: &RunFilter) -> Result<Vec<RunMetadata>, StoreError> {
        let sql = format!(
            "SELECT {METADATA_COLUMNS} FROM (
                 SELECT {METADATA_COLUMNS} FROM run
                 WHERE (?1 IS NULL OR schema LIKE 'horolog.' || ?1 || '%' ESCAPE '\\')
                   AND (?2 IS NULL OR started >= ?2)
                 ORDER BY started DESC, id DESC LIMIT ?3
             ) ORDER BY started, id"
        );
        let kind = filter.kind.as_deref().map(escape_like);
        let last = filter.last.map_or(-1, i64::from);
        let read = || -> rusqlite::Result<Vec<RunMetadata>> {
            let mut statement = self.connection.prepare(&sql)?;
            let rows = statement.query_map(params![kind, filter.since, last], run_from_row)?;
            rows.collect()
        };
        read().map_err(self.error_converter())
    }

    /// Returns the referenced run.
    ///
    /// # Errors
    ///
    /// Fails if no run or several runs match.
    pub fn find(&self, reference: &RunReference) -> Result<RunMetadata, StoreError> {
        let found = match reference {
            RunReference::Last(back) => {
                self.query_runs("1 ORDER BY id DESC LIMIT 1 OFFSET ?1", back)
            }
            RunReference::Named(name) => self.find_by_text(name),
        };
        let mut found = found.map_err(self.error_converter())?;
        match found.len() {
            0 => Err(StoreError::RunNotFound(reference.to_string())),
            1 => Ok(found.remove(0)),
            _ => {
                let ids = found.iter().map(|run| run.id).collect();
                Err(StoreError::Ambiguous { name: reference.to_string(), ids })
            }
        }
    }

    /// Returns the run with this name; if there is none, that with this number; if there is none,
    /// the runs with this key prefix, at most [`CANDIDATES_MAX`].
    fn find_by_text(&self, name: &str) -> rusqlite::Result<Vec<RunMetadata>> {
        let by_name = self.query_runs("name = ?1", name)?;
        if !by_name.is_empty() {
            return Ok(by_name);
        }
        if let Ok(id) = name.parse::<i64>() {
            let by_number = self.query_runs("id = ?1", id)?;
            if !by_number.is_empty() {
                return Ok(by_number);
            }
        }
        if is_key(name) {
            self.query_runs(&format!("key >= ?1 AND key < ?1 || 'g' LIMIT {CANDIDATES_MAX}"), name)
        } else {
            Ok(Vec::new())
        }
    }

    fn query_runs(
        &self,
        condition: &str,
        value: impl rusqlite::ToSql,
    ) -> rusqlite::Result<Vec<RunMetadata>> {
        let sql = format!("SELECT {METADATA_COLUMNS} FROM run WHERE {condition}");
        let mut statement = self.connection.prepare(&sql)?;
        statement.query_map([value], run_from_row)?.collect()
    }

    /// Returns the JSON text of a run's result, as its command wrote it.
    ///
    /// # Errors
    ///
    /// Fails if the result is damaged or the run was deleted.
    pub fn result(&self, id: i64) -> Result<String, StoreError> {
        let damaged = |detail: &str| StoreError::DamagedRun {
            path: self.path.clone(),
            id,
            detail: detail.to_owned(),
        };
        let sql = "SELECT key, packed FROM run JOIN result ON run = id WHERE id = ?1";
        let found: Option<(String, Vec<u8>)> = self
            .connection
            .query_row(sql, [id], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()
            .map_err(|source| match StoreError::from_sqlite(&self.path, source) {
                StoreError::Damaged { detail, .. } => damaged(&detail),
                other => other,
            })?;
        let (key, packed) = found.ok_or_else(|| StoreError::RunNotFound(id.to_string()))?;
        let text = packing::unpack(&packed).ok_or_else(|| damaged("it is damaged"))?;
        if facts::result_key(&facts::compact_json(&text)) != key {
            return Err(damaged("it is damaged: its key does not match"));
        }
        Ok(text)
    }

    /// Assigns a name to a run, or removes its name if `name` is `None`.
    ///
    /// # Errors
    ///
    /// Fails if another run has the name, or the run does not exist.
    pub fn set_name(&mut self, id: i64, name: Option<&str>) -> Result<(), StoreError> {
        if let Some(name) = name {
            let other = self.query_runs("name = ?1", name).map_err(self.error_converter())?;
            if let Some(other) = other.iter().find(|run| run.id != id) {
                return Err(StoreError::NameTaken { name: name.to_owned(), id: other.id });
            }
        }
        let named =
            self.connection.execute("UPDATE run SET name = ?2 WHERE id = ?1", params![id, name]);
        match named.map_err(self.error_converter())? {
            0 => Err(StoreError::RunNotFound(id.to_string())),
            _ => Ok(()),
        }
    }

    /// Removes all these runs or, if one does not exist, none.
    ///
    /// # Errors
    ///
    /// Fails if one does not exist.
    pub fn delete(&mut self, ids: &[i64]) -> Result<(), StoreError> {
        let path = self.path.clone();
        let store_error = |source| StoreError::from_sqlite(&path, source);
        let transaction = self.connection.transaction().map_err(store_error)?;
        for id in ids {
            let deleted =
                transaction.execute("DELETE FROM run WHERE id = ?1", [id]).map_err(store_error)?;
            if deleted == 0 {
                return Err(StoreError::RunNotFound(id.to_string()));
            }
        }
        transaction.commit().map_err(store_error)
    }
}

fn foreign_database(path: PathBuf) -> StoreError {
    let detail = "it is a database of another program".to_owned();
    StoreError::Damaged { path, detail }
}

/// Returns the path as an SQLite URI (percent-encoding of RFC 3986, section 2.1) with a parameter
/// that declares the file immutable.
fn immutable_uri(path: &Path) -> String {
    let is_unescaped = |byte: &u8| byte.is_ascii_alphanumeric() || b"/-_.~".contains(byte);
    let escaped = path.as_os_str().as_encoded_bytes().iter().map(|byte| {
        if is_unescaped(byte) { char::from(*byte).to_string() } else { format!("%{byte:02X}") }
    });
    format!("file:{}?immutable=1", escaped.collect::<String>())
}

/// Adds a result unless it is stored already; returns its number, and true if it is new.
fn add(
    transaction: &Transaction<'_>,
    facts: &ResultFacts,
    text: &str,
) -> rusqlite::Result<(i64, bool)> {
    let existing = transaction
        .query_row("SELECT id FROM run WHERE key = ?1", [&facts.key], |row| row.get(0))
        .optional()?;
    if let Some(id) = existing {
        return Ok((id, false));
    }
    let [errors, warnings] = facts.findings.map(|count| count as i64);
    transaction.execute(
        "INSERT INTO run (key, schema, started, command, errors, warnings, bytes, broken)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        params![
            facts.key,
            facts.schema,
            facts.started,
            facts.command,
            errors,
            warnings,
            text.len() as i64,
            facts.failed_limits as i64
        ],
    )?;
    let id = transaction.last_insert_rowid();
    let packed = packing::pack(text);
    transaction.execute("INSERT INTO result (run, packed) VALUES (?1, ?2)", params![id, packed])?;
    Ok((id, true))
}

/// Escapes the wildcards of an SQL LIKE pattern.
fn escape_like(text: &str) -> String {
    let escape = |c| if matches!(c, '\\' | '%' | '_') { vec!['\\', c] } else { vec![c] };
    text.chars().flat_map(escape).collect()
}

fn run_from_row(row: &Row<'_>) -> rusqlite::Result<RunMetadata> {
    let count = |index| Ok::<_, rusqlite::Error>(row.get::<_, i64>(index)?.max(0) as u64);
    Ok(RunMetadata {
        id: row.get(0)?,
        facts: ResultFacts {
            key: row.get(1)?,
            schema: row.get(2)?,
            started: row.get(3)?,
            command: row.get(4)?,
            findings: [count(5)?, count(6)?],
            failed_limits: count(9)?,
        },
        bytes: count(7)?,
        name: row.get(8)?,
    })
}

#[cfg(test)]
mod tests;
