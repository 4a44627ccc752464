//! The store itself: opening, adding, listing, finding, naming and removing.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{
    Connection, OpenFlags, OptionalExtension as _, Row, Transaction, TransactionBehavior, params,
};

use crate::error::StoreError;
use crate::facts::{self, Facts};
use crate::migration::{self, Found, VERSION};
use crate::packing;
use crate::reference::{Reference, is_key};

/// How long another process may hold the store.
const PATIENCE: Duration = Duration::from_secs(5);
/// How many runs an ambiguous reference names.
const NAMED_MAX: i64 = 5;
/// What a list is read from, in the order of [`Run`]'s fields.
const COLUMNS: &str = "id, key, schema, started, command, errors, warnings, bytes, name, broken";

/// A run that is kept, without its result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Run {
    /// Its number; later ones have higher numbers, and none is given twice.
    pub id: i64,
    /// What its result says of it.
    pub facts: Facts,
    /// Bytes of its result as text.
    pub bytes: u64,
    /// The name that somebody gave it.
    pub name: Option<String>,
}

/// Which runs to list.
#[derive(Clone, Default, Debug)]
pub struct Filter {
    /// The beginning of their schema behind `horolog.`, such as `load`.
    pub kind: Option<String>,
    /// Not before this instant, RFC 3339 in UTC.
    pub since: Option<String>,
    /// The last so many.
    pub last: Option<u32>,
}

/// An open store.
#[derive(Debug)]
pub struct Store {
    connection: Connection,
    path: PathBuf,
}

impl Store {
    /// Opens the store at `path`; makes it, and its directory for this user alone, where there is
    /// none.
    ///
    /// # Errors
    ///
    /// What is there is no store, or of a newer version, or somebody holds it.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        if let Some(directory) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
            made.map_err(|source| StoreError::Directory { path: directory.to_owned(), source })?;
        }
        Self::connect(path, OpenFlags::SQLITE_OPEN_CREATE)
    }

    /// Opens the store at `path`, if there is one.
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

    /// Opens the store at `path` to read in it, if there is one: a store that cannot be written, or
    /// has no room beside it, is read as it lies.
    ///
    /// # Errors
    ///
    /// Those of [`open_existing`](Self::open_existing), and [`StoreError::Older`].
    pub fn open_to_read(path: &Path) -> Result<Self, StoreError> {
        match Self::open_existing(path) {
            Err(error @ (StoreError::Unopened { .. } | StoreError::Full(_))) if path.is_file() => {
                Self::read_only(path).map_err(|read| {
                    // What stands in the way of reading is told, unless it is the same.
                    if matches!(read, StoreError::Unopened { .. }) { error } else { read }
                })
            }
            opened => opened,
        }
    }

    /// Opens it without writing anything, not even beside it. That is right only where nobody else
    /// is writing, so a store with writes that are not yet in its file is left to who may write.
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
        connection.busy_timeout(PATIENCE).map_err(of)?;
        let path = path.to_owned();
        match migration::found(&connection).map_err(|source| StoreError::of(&path, source))? {
            Found::Ready => Ok(Self { connection, path }),
            Found::Newer(found) => Err(StoreError::Newer { path, found, known: VERSION }),
            Found::Older(found) => Err(StoreError::Older { path, found, known: VERSION }),
            Found::Strange => Err(strange(path)),
        }
    }

    fn connect(path: &Path, more: OpenFlags) -> Result<Self, StoreError> {
        let of = |source| StoreError::of(path, source);
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | more;
        let mut connection = Connection::open_with_flags(path, flags).map_err(of)?;
        connection.busy_timeout(PATIENCE).map_err(of)?;
        match migration::migrate(&mut connection).map_err(of)? {
            // The older ones are of this version by now.
            Found::Ready | Found::Older(_) => {}
            Found::Newer(found) => {
                return Err(StoreError::Newer { path: path.to_owned(), found, known: VERSION });
            }
            Found::Strange => return Err(strange(path.to_owned())),
        }
        // Readers and a writer do not wait for one another. Not every file system can do that, and
        // without it all is as right, but slower.
        let _: Result<String, _> =
            connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0));
        connection.pragma_update(None, "foreign_keys", true).map_err(of)?;
        Ok(Self { connection, path: path.to_owned() })
    }

    fn error(&self) -> impl Fn(rusqlite::Error) -> StoreError + '_ {
        |source| StoreError::of(&self.path, source)
    }

    /// Keeps a result, and gives its number; one that is there already keeps its own.
    ///
    /// # Errors
    ///
    /// There is no room, or somebody else holds the store.
    pub fn add(&mut self, facts: &Facts, text: &str) -> Result<i64, StoreError> {
        let path = self.path.clone();
        let transaction = self.begun().map_err(|source| StoreError::of(&path, source))?;
        let added = add(&transaction, facts, text).and_then(|(id, _)| {
            transaction.commit()?;
            Ok(id)
        });
        added.map_err(|source| StoreError::of(&path, source))
    }

    /// Keeps results, all of them or none, and says how many were not there before.
    ///
    /// # Errors
    ///
    /// Those of [`add`](Self::add).
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

    /// A transaction that writes, and so waits for other writers now.
    fn begun(&mut self) -> rusqlite::Result<Transaction<'_>> {
        self.connection.transaction_with_behavior(TransactionBehavior::Immediate)
    }

    /// The runs that are kept, the latest start last.
    ///
    /// # Errors
    ///
    /// The store is damaged.
    pub fn list(&self, filter: &Filter) -> Result<Vec<Run>, StoreError> {
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
        let read = || -> rusqlite::Result<Vec<Run>> {
            let mut statement = self.connection.prepare(&sql)?;
            let rows = statement.query_map(params![kind, filter.since, last], run)?;
            rows.collect()
        };
        read().map_err(self.error())
    }

    /// The run that is meant.
    ///
    /// # Errors
    ///
    /// There is none, or there are several.
    pub fn find(&self, reference: &Reference) -> Result<Run, StoreError> {
        let found = match reference {
            Reference::Last(back) => self.runs("1 ORDER BY id DESC LIMIT 1 OFFSET ?1", back),
            Reference::Named(name) => self.named(name),
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

    /// By name, then by number, then by key.
    fn named(&self, name: &str) -> rusqlite::Result<Vec<Run>> {
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

    fn runs(&self, condition: &str, value: impl rusqlite::ToSql) -> rusqlite::Result<Vec<Run>> {
        let sql = format!("SELECT {COLUMNS} FROM run WHERE {condition}");
        let mut statement = self.connection.prepare(&sql)?;
        statement.query_map([value], run)?.collect()
    }

    /// A run's result, as its command wrote it.
    ///
    /// # Errors
    ///
    /// It is damaged, or gone.
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
            return Err(damaged("it is damaged, since it does not have its key any more"));
        }
        Ok(text)
    }

    /// Gives a run a name, or takes it away.
    ///
    /// # Errors
    ///
    /// Another run has the name.
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

    /// Removes runs, all of them or, where one is not there, none.
    ///
    /// # Errors
    ///
    /// One is not there.
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

/// A file's name as SQLite takes it with a parameter (RFC 3986, section 2.1), which says that
/// nobody writes it.
fn uri(path: &Path) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/-_.~".contains(byte);
    let escaped = path.as_os_str().as_encoded_bytes().iter().map(|byte| {
        if plain(byte) { char::from(*byte).to_string() } else { format!("%{byte:02X}") }
    });
    format!("file:{}?immutable=1", escaped.collect::<String>())
}

/// Adds a result, where it is not there, and says whether that was so.
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

/// Without a meaning of its own in a pattern.
fn escaped(text: &str) -> String {
    let escape = |c| if matches!(c, '\\' | '%' | '_') { vec!['\\', c] } else { vec![c] };
    text.chars().flat_map(escape).collect()
}

fn run(row: &Row<'_>) -> rusqlite::Result<Run> {
    let count = |index| Ok::<_, rusqlite::Error>(row.get::<_, i64>(index)?.max(0) as u64);
    Ok(Run {
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
