//! What can be wrong with a store, in words that say what to do.

use std::path::{Path, PathBuf};

use rusqlite::{ErrorCode, ffi};
use thiserror::Error;

/// Why a store could not do what it was asked.
#[derive(Debug, Error)]
pub enum StoreError {
    /// Its directory cannot be made.
    #[error("cannot make the directory {} for the store: {source}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// It is not there, and is only to be read.
    #[error("there is no store {} yet; each measurement is kept in it", .0.display())]
    Absent(PathBuf),
    /// Somebody else holds it for longer than was waited.
    #[error("the store {} is held by another program; try again when that is done", .0.display())]
    Locked(PathBuf),
    /// Its file system has no room.
    #[error("there is no room for the store {}; make some, or give another with --store", .0.display())]
    Full(PathBuf),
    /// It cannot be opened, or not be written in.
    #[error("the store {} cannot be {}: {why}; give another with --store", path.display(), done(*written))]
    Unopened {
        /// The file.
        path: PathBuf,
        /// Whether it was to be written in as well.
        written: bool,
        /// The reason.
        why: String,
    },
    /// A run of it is damaged, or the part of the file where it is.
    #[error(
        "run {id} in {} cannot be read: {detail}; 'horolog runs export' writes the others",
        path.display()
    )]
    DamagedRun {
        /// The file.
        path: PathBuf,
        /// The run's number.
        id: i64,
        /// What is wrong with it.
        detail: String,
    },
    /// It is of an older version, and cannot be written.
    #[error(
        "the store {} has version {found} and has to be written to become one of version {known}; \
         copy it where this user may write",
        path.display()
    )]
    Older {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: i64,
        /// The version of this program's stores.
        known: i64,
    },
    /// It is no store, or a damaged one.
    #[error("{} is damaged, or no store: {detail}; give another with --store", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What SQLite says of it.
        detail: String,
    },
    /// A newer program has made it.
    #[error(
        "the store {} has version {found}, and this program knows {known}; use a newer one",
        path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: i64,
        /// The newest that is known here.
        known: i64,
    },
    /// No run is meant.
    #[error("no run '{0}' is kept; see 'horolog runs list'")]
    NoRun(String),
    /// Several runs may be meant.
    #[error("'{name}' may be any of the runs {}; write more of it", list(ids))]
    Ambiguous {
        /// What was asked for.
        name: String,
        /// Some of those that it may be.
        ids: Vec<i64>,
    },
    /// Another run has this name.
    #[error("run {id} is called '{name}' already; name it otherwise first")]
    NameTaken {
        /// The name.
        name: String,
        /// Whose it is.
        id: i64,
    },
    /// Anything else.
    #[error("the store {}: {source}", path.display())]
    Other {
        /// The file.
        path: PathBuf,
        /// What SQLite says.
        source: rusqlite::Error,
    },
}

fn list(ids: &[i64]) -> String {
    ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

const fn done(written: bool) -> &'static str {
    if written { "written" } else { "opened" }
}

/// Why a file cannot be opened for reading and writing, as far as the system tells.
fn unopened(path: &Path) -> String {
    let there = std::fs::metadata(path);
    if there.as_ref().is_ok_and(std::fs::Metadata::is_dir) {
        return "it is a directory".to_owned();
    }
    let written = match there {
        Ok(_) => std::fs::OpenOptions::new().read(true).write(true).open(path).map(drop),
        Err(error) => Err(error),
    };
    written.err().map_or_else(
        || "this user has to be allowed to write in its directory".to_owned(),
        |error| error.to_string(),
    )
}

/// Whether SQLite could not make the file beside a store in which its readers and its writer find
/// one another, or not as long as it has to be.
const fn needs_room(code: i32) -> bool {
    matches!(code, ffi::SQLITE_IOERR_SHMSIZE | ffi::SQLITE_IOERR_SHMOPEN | ffi::SQLITE_IOERR_SHMMAP)
}

impl StoreError {
    /// What SQLite says of the store at `path`, as far as a person can do something about it.
    pub(crate) fn of(path: &Path, source: rusqlite::Error) -> Self {
        let path = path.to_owned();
        let extended = source.sqlite_error().map(|error| error.extended_code);
        match source.sqlite_error_code() {
            Some(ErrorCode::SystemIoFailure) if extended.is_some_and(needs_room) => {
                Self::Full(path)
            }
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Locked(path),
            Some(ErrorCode::DiskFull) => Self::Full(path),
            Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => {
                let why = unopened(&path);
                let written = source.sqlite_error_code() == Some(ErrorCode::ReadOnly);
                Self::Unopened { path, written, why }
            }
            Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => {
                Self::Damaged { path, detail: source.to_string() }
            }
            _ => Self::Other { path, source },
        }
    }
}
