//! Errors of store operations; their messages name the remedy.

use std::path::{Path, PathBuf};

use rusqlite::{ErrorCode, ffi};
use thiserror::Error;

/// Reason why a store operation failed.
#[derive(Debug, Error)]
pub enum StoreError {
    /// The store's directory cannot be created.
    #[error("cannot create the directory {} for the store: {source}", path.display())]
    Directory {
        /// Path of the directory.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The store does not exist, and the operation does not create it.
    #[error(
        "the store {} does not exist yet; it is created by the first measurement",
        .0.display()
    )]
    Absent(PathBuf),
    /// Another process holds the store for longer than the timeout.
    #[error("the store {} is locked by another program; try again when that is done", .0.display())]
    Locked(PathBuf),
    /// The store's file system has no space left, or SQLite cannot use its shared-memory file.
    #[error("cannot write the store {}: no space left; free some or choose another with \
             --store", .0.display())]
    NoSpace(PathBuf),
    /// The store cannot be opened, or not for writing.
    #[error(
        "the store {} cannot be {}: {why}; choose another with --store",
        path.display(), done(*written)
    )]
    CannotOpen {
        /// Path of the store's file.
        path: PathBuf,
        /// True if the file is open but cannot be written; false if it cannot be opened.
        written: bool,
        /// Reason why the file cannot be opened.
        why: String,
    },
    /// A stored run is damaged, or the part of the file that contains it.
    #[error(
        "run {id} in {} cannot be read: {detail}; 'horolog runs export' writes the others",
        path.display()
    )]
    DamagedRun {
        /// Path of the store's file.
        path: PathBuf,
        /// Number of the run.
        id: i64,
        /// Description of the damage.
        detail: String,
    },
    /// The store has an older version, and cannot be written.
    #[error(
        "the store {} has version {found} and must be written for an upgrade to version {known}; \
         copy it to a writable directory",
        path.display()
    )]
    OlderVersion {
        /// Path of the store's file.
        path: PathBuf,
        /// Version of the store.
        found: i64,
        /// Version of this program's stores.
        known: i64,
    },
    /// The file is not a store, or is damaged.
    #[error("{} is damaged, or not a store: {detail}; choose another with --store", path.display())]
    Damaged {
        /// Path of the store's file.
        path: PathBuf,
        /// Error from SQLite, or that the database belongs to another program.
        detail: String,
    },
    /// The store was created by a newer version of this program.
    #[error(
        "the store {} has version {found}, and this program supports {known}; use a newer one",
        path.display()
    )]
    NewerVersion {
        /// Path of the store's file.
        path: PathBuf,
        /// Version of the store.
        found: i64,
        /// Newest version known to this program.
        known: i64,
    },
    /// No run matches the reference.
    #[error("run '{0}' not found; see 'horolog runs list'")]
    RunNotFound(String),
    /// Several runs match the reference.
    #[error("'{name}' matches the runs {}; write more of it", list(ids))]
    Ambiguous {
        /// Reference as written by the user.
        name: String,
        /// Numbers of the first matching runs.
        ids: Vec<i64>,
    },
    /// Another run has this name.
    #[error("the name '{name}' belongs to run {id} already; rename that run first")]
    NameTaken {
        /// Name that is to be assigned.
        name: String,
        /// Number of the run that has the name.
        id: i64,
    },
    /// Any other error.
    #[error("the store {}: {source}", path.display())]
    Other {
        /// Path of the store's file.
        path: PathBuf,
        /// Error from SQLite.
        source: rusqlite::Error,
    },
}

fn list(ids: &[i64]) -> String {
    ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

const fn done(written: bool) -> &'static str {
    if written { "written" } else { "opened" }
}

/// Returns the reason why a file cannot be opened for reading and writing, as the operating system
/// reports it; if it reports none, the file's directory is stated as the obstacle.
fn open_failure_reason(path: &Path) -> String {
    let metadata = std::fs::metadata(path);
    if metadata.as_ref().is_ok_and(std::fs::Metadata::is_dir) {
        return "it is a directory".to_owned();
    }
    let opened = match metadata {
        Ok(_) => std::fs::OpenOptions::new().read(true).write(true).open(path).map(drop),
        Err(error) => Err(error),
    };
    opened.err().map_or_else(
        || "its directory must be writable for this user".to_owned(),
        |error| error.to_string(),
    )
}

/// Returns true if SQLite could not create, extend or map the shared-memory file (`-shm`) next to a
/// store, by which readers and the writer coordinate.
const fn is_shared_memory_failure(code: i32) -> bool {
    matches!(code, ffi::SQLITE_IOERR_SHMSIZE | ffi::SQLITE_IOERR_SHMOPEN | ffi::SQLITE_IOERR_SHMMAP)
}

impl StoreError {
    /// Converts an SQLite error of the store at `path` into the variant that names a remedy, or
    /// [`Self::Other`].
    pub(crate) fn from_sqlite(path: &Path, source: rusqlite::Error) -> Self {
        let path = path.to_owned();
        let extended = source.sqlite_error().map(|error| error.extended_code);
        match source.sqlite_error_code() {
            Some(ErrorCode::SystemIoFailure) if extended.is_some_and(is_shared_memory_failure) => {
                Self::NoSpace(path)
            }
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Locked(path),
            Some(ErrorCode::DiskFull) => Self::NoSpace(path),
            Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => {
                let why = open_failure_reason(&path);
                let written = source.sqlite_error_code() == Some(ErrorCode::ReadOnly);
                Self::CannotOpen { path, written, why }
            }
            Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => {
                Self::Damaged { path, detail: source.to_string() }
            }
            _ => Self::Other { path, source },
        }
    }
}
