//! Store: opening, adding, listing, finding, naming and removing.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{
    Connection, OpenFlags, OptionalExtension as _, Row, Transaction, TransactionBehavior, params,
};

use crate::error::StoreError;
use crate::facts::{self, Facts};
use crate::migration::{self, DatabaseState, VERSION};
use crate::packing;
use crate::reference::{RunReference, is_key};

/// Timeout for another process that holds the store.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Largest number of runs listed for an ambiguous reference.
const NAMED_MAX: i64 = 5;
/// Columns of a list, in the order of [`RunMetadata`]'s fields.
const COLUMNS: &str = "id, key, schema, started, command, errors, warnings, bytes, name, broken";

/// Stored run, without its result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunMetadata {
    /// Number; later runs have higher numbers, and none is reused.
    pub id: i64,
    /// Facts of its result.
    pub facts: Facts,
    /// Size of its result as text, in bytes.
    pub bytes: u64,
    /// Name assigned by the user.
    pub name: Option<String>,
}

/// Selection of runs to list.
#[derive(Clone, Default, Debug)]
pub struct RunFilter {
    /// Start of the schema after `horolog.`, such as `load`.
    pub kind: Option<String>,
    /// Earliest start, RFC 3339 in UTC.
    pub since: Option<String>,
    /// Largest number of runs, counted from the latest.
    pub last: Option<u32>,
}

/// Open store.
#[derive(Debug)]
pub struct Store {
    connection: Connection,
    path: PathBuf,
}

impl Store {
    /// Opens the store at `path`; creates it, and its directory for this user only, if it does not
    /// exist.
    ///
    /// # Errors
    ///
    /// Fails if the file is no store or has a newer version, or another process holds it.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        if let Some(directory) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
            made.map_err(|source| StoreError::Directory { path: directory.to_owned(), source })?;
        }
        Self::connect(path, OpenFlags::SQLITE_OPEN_CREATE)
    }

    /// Opens the store at `path`, if it exists.
    ///
    /// # Errors
    ///
    /// [`StoreError::Absent`], and those of [`open`](Self::open).
    pub fn open_existing(path: &Path) -> Result<Self, StoreError> {
        if path.exists() {
            Self::connect(path, OpenFlags::empty())
        } else {
            Err(StoreError::Absent(path.to_owned()))
        }
    }

    /// Opens the store at `path` for reading, if it exists: a store that cannot be written, or
    /// without space for a file next to it, is opened read-only.
    ///
    /// # Errors
    ///
    /// Errors of [`open_existing`](Self::open_existing), and [`StoreError::Older`].
    pub fn open_to_read(path: &Path) -> Result<Self, StoreError> {
        match Self::open_existing(path) {
            Err(error @ (StoreError::Unopened { .. } | StoreError::Full(_))) if path.is_file() => {
                Self::read_only(path).map_err(|read| {
                    // The reading error is returned unless it is the same.
                    if matches!(read, StoreError::Unopened { .. }) { error } else { read }
                })
            }
            opened => opened,
        }
    }

    /// Opens it without writing anything, not even next to it. That is only correct while no other
    /// process writes, so a store with writes that are not yet in its file is left to users with
    /// write permission.
    fn read_only(path: &Path) -> Result<Self, StoreError> {
        let of = |source| StoreError::of(path, source);
        let mut log = path.as_os_str().to_owned();
        log.push("-wal");
        let is_whole = std::fs::metadata(log).map_or(true, |log| log.len() == 0);
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = if is_whole {
            let name = uri(path);
            Connection::open_with_flags(name, flags | OpenFlags::SQLITE_OPEN_URI).map_err(of)?
        } else {
            Connection::open_with_flags(path, flags).map_err(of)?
        };
        connection.busy_timeout(BUSY_TIMEOUT).map_err(of)?;
        let path = path.to_owned();
        match migration::found(&connection).map_err(|source| StoreError::of(&path, source))? {
            DatabaseState::Ready => Ok(Self { connection, path }),
            DatabaseState::Newer(found) => Err(StoreError::Newer { path, found, known: VERSION }),
            DatabaseState::Older(found) => Err(StoreError::Older { path, found, known: VERSION }),
            DatabaseState::Strange => Err(strange(path)),
        }
    }

    fn connect(path: &Path, more: OpenFlags) -> Result<Self, StoreError> {
        let of = |source| StoreError::of(path, source);
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | more;
        let mut connection = Connection::open_with_flags(path, flags).map_err(of)?;
        connection.busy_timeout(BUSY_TIMEOUT).map_err(of)?;
        match migration::migrate(&mut connection).map_err(of)? {
            // Older stores have been migrated to this version.
            DatabaseState::Ready | DatabaseState::Older(_) => {}
            DatabaseState::Newer(found) => {
                return Err(StoreError::Newer { path: path.to_owned(), found, known: VERSION });
            }
            DatabaseState::Strange => return Err(strange(path.to_owned())),
        }
        // Readers and a writer do not wait for one another (WAL). Not every file system supports
        // that; without it everything is equally correct, but slower.
        let _: Result<String, _> =
            connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0));
        connection.pragma_update(None, "foreign_keys", true).map_err(of)?;
        Ok(Self { connection, path: path.to_owned() })
    }

    fn error(&self) -> impl Fn(rusqlite::Error) -> StoreError + '_ {
        |source| StoreError::of(&self.path, source)
    }

    /// Stores a result and returns its number; an already stored result retains its number.
    ///
    /// # Errors
    ///
    /// Fails if there is no space, or another process holds the store.
    pub fn add(&mut self, facts: &Facts, text: &str) -> Result<i64, StoreError> {
        let path = self.path.clone();
        let transaction = self.begun().map_err(|source| StoreError::of(&path, source))?;
        let added = add(&transaction, facts, text).and_then(|(id, _)| {
            transaction.commit()?;
            Ok(id)
        });
        added.map_err(|source| StoreError::of(&path, source))
    }

    /// Stores all results or none, and returns the number of new ones.
    ///
    /// # Errors
    ///
    /// Errors of [`add`](Self::add).
    pub fn add_all(&mut self, results: &[(Facts, String)]) -> Result<usize, StoreError> {
        let path = self.path.clone();
        let mut added = || {
            let transaction = self.begun()?;
            let mut new = 0;
            for (facts, text) in results {
                new += usize::from(add(&transaction, facts, text)?.1);
            }
            transaction.commit()?;
            Ok(new)
        };
        added().map_err(|source| StoreError::of(&path, source))
    }

    /// Begins a writing transaction, which waits for other writers immediately.
    fn begun(&mut self) -> rusqlite::Result<Transaction<'_>> {
        self.connection.transaction_with_behavior(TransactionBehavior::Immediate)
    }

    /// Returns the stored runs, the latest start last.
    ///
    /// # Errors
    ///
    /// Fails if the store is damaged.
    pub fn list(&self, filter: &RunFilter) -> Result<Vec<RunMetadata>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM (
                 SELECT {COLUMNS} FROM run
                 WHERE (?1 IS NULL OR schema LIKE 'horolog.' || ?1 || '%' ESCAPE '\\')
                   AND (?2 IS NULL OR started >= ?2)
                 ORDER BY started DESC, id DESC LIMIT ?3
             ) ORDER BY started, id"
        );
        let kind = filter.kind.as_deref().map(escaped);
        let last = filter.last.map_or(-1, i64::from);
        let read = || -> rusqlite::Result<Vec<RunMetadata>> {
            let mut statement = self.connection.prepare(&sql)?;
            let rows = statement.query_map(params![kind, filter.since, last], run)?;
            rows.collect()
        };
        read().map_err(self.error())
    }

    /// Returns the referenced run.
    ///
    /// # Errors
    ///
    /// Fails if no run or several runs match.
    pub fn find(&self, reference: &RunReference) -> Result<RunMetadata, StoreError> {
        let found = match reference {
            RunReference::Last(back) => self.runs("1 ORDER BY id DESC LIMIT 1 OFFSET ?1", back),
            RunReference::Named(name) => self.named(name),
        };
        let mut found = found.map_err(self.error())?;
        match found.len() {
            0 => Err(StoreError::NoRun(reference.to_string())),
            1 => Ok(found.remove(0)),
            _ => {
                let ids = found.iter().map(|run| run.id).collect();
                Err(StoreError::Ambiguous { name: reference.to_string(), ids })
            }
        }
    }

    /// Finds runs by name, then by number, then by key.
    fn named(&self, name: &str) -> rusqlite::Result<Vec<RunMetadata>> {
        let by_name = self.runs("name = ?1", name)?;
        if !by_name.is_empty() {
            return Ok(by_name);
        }
        if let Ok(id) = name.parse::<i64>() {
            let by_number = self.runs("id = ?1", id)?;
            if !by_number.is_empty() {
                return Ok(by_number);
            }
        }
        if is_key(name) {
            self.runs(&format!("key >= ?1 AND key < ?1 || 'g' LIMIT {NAMED_MAX}"), name)
        } else {
            Ok(Vec::new())
        }
    }

    fn runs(
        &self,
        condition: &str,
        value: impl rusqlite::ToSql,
    ) -> rusqlite::Result<Vec<RunMetadata>> {
        let sql = format!("SELECT {COLUMNS} FROM run WHERE {condition}");
        let mut statement = self.connection.prepare(&sql)?;
        statement.query_map([value], run)?.collect()
    }

    /// Returns a run's result, as its command wrote it.
    ///
    /// # Errors
    ///
    /// Fails if the result is damaged, or deleted.
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
            .map_err(|source| match StoreError::of(&self.path, source) {
                StoreError::Damaged { detail, .. } => damaged(&detail),
                other => other,
            })?;
        let (key, packed) = found.ok_or_else(|| StoreError::NoRun(id.to_string()))?;
        let text = packing::unpack(&packed).ok_or_else(|| damaged("it is damaged"))?;
        if facts::key(&facts::one_line(&text)) != key {
            return Err(damaged("it is damaged: its key does not match"));
        }
        Ok(text)
    }

    /// Assigns a name to a run, or removes it.
    ///
    /// # Errors
    ///
    /// Fails if another run has the name.
    pub fn name(&mut self, id: i64, name: Option<&str>) -> Result<(), StoreError> {
        if let Some(name) = name {
            let other = self.runs("name = ?1", name).map_err(self.error())?;
            if let Some(other) = other.iter().find(|run| run.id != id) {
                return Err(StoreError::NameTaken { name: name.to_owned(), id: other.id });
            }
        }
        let named =
            self.connection.execute("UPDATE run SET name = ?2 WHERE id = ?1", params![id, name]);
        match named.map_err(self.error())? {
            0 => Err(StoreError::NoRun(id.to_string())),
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
        let of = |source| StoreError::of(&path, source);
        let transaction = self.connection.transaction().map_err(of)?;
        for id in ids {
            let gone = transaction.execute("DELETE FROM run WHERE id = ?1", [id]).map_err(of)?;
            if gone == 0 {
                return Err(StoreError::NoRun(id.to_string()));
            }
        }
        transaction.commit().map_err(of)
    }
}

fn strange(path: PathBuf) -> StoreError {
    let detail = "it is a database of another program".to_owned();
    StoreError::Damaged { path, detail }
}

/// Returns a file's name as an SQLite URI (RFC 3986, section 2.1) with a parameter that declares it
/// immutable.
fn uri(path: &Path) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/-_.~".contains(byte);
    let escaped = path.as_os_str().as_encoded_bytes().iter().map(|byte| {
        if plain(byte) { char::from(*byte).to_string() } else { format!("%{byte:02X}") }
    });
    format!("file:{}?immutable=1", escaped.collect::<String>())
}

/// Adds a result if it does not exist, and returns its number and whether it was new.
fn add(transaction: &Transaction<'_>, facts: &Facts, text: &str) -> rusqlite::Result<(i64, bool)> {
    let there = transaction
        .query_row("SELECT id FROM run WHERE key = ?1", [&facts.key], |row| row.get(0))
        .optional()?;
    if let Some(id) = there {
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
            facts.broken as i64
        ],
    )?;
    let id = transaction.last_insert_rowid();
    let packed = packing::pack(text);
    transaction.execute("INSERT INTO result (run, packed) VALUES (?1, ?2)", params![id, packed])?;
    Ok((id, true))
}

/// Escapes the characters with a meaning in a pattern.
fn escaped(text: &str) -> String {
    let escape = |c| if matches!(c, '\\' | '%' | '_') { vec!['\\', c] } else { vec![c] };
    text.chars().flat_map(escape).collect()
}

fn run(row: &Row<'_>) -> rusqlite::Result<RunMetadata> {
    let count = |index| Ok::<_, rusqlite::Error>(row.get::<_, i64>(index)?.max(0) as u64);
    Ok(RunMetadata {
        id: row.get(0)?,
        facts: Facts {
            key: row.get(1)?,
            schema: row.get(2)?,
            started: row.get(3)?,
            command: row.get(4)?,
            findings: [count(5)?, count(6)?],
            broken: count(9)?,
        },
        bytes: count(7)?,
        name: row.get(8)?,
    })
}

#[cfg(test)]
mod tests;
