//! Storage of results in the result store (SQLite), for comparison with later ones. A result that
//! cannot be stored is written to a JSON file instead, which a message on standard error names.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::env;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use clap::Args;
use horolog_record::{STORE_NONE, STORE_VARIABLE};
use horolog_report::to_json;
use horolog_store::{ResultFacts, Store};
use serde::Serialize;

use crate::failure::CommandFailure;
use crate::output::{self, ResultDestination};

/// Path of the store, relative to the user's data directory.
const STORE_FILE: &str = "horolog/runs.sqlite";
/// Store of root's results if the home directory belongs to another user, as with `sudo -E`: a
/// store in that directory would be owned by root, and the other user could not write to it.
const SYSTEM_STORE_FILE: &str = "/var/lib/horolog/runs.sqlite";

/// Last directories to try for the file of a result that cannot be stored.
const FALLBACK_DIRECTORIES: [&str; 2] = ["/var/tmp", "/dev/shm"];

/// Store to use, by `--store`, the environment and the home directory.
enum StoreLocation {
    /// The user has disabled the store.
    None,
    /// Path of the store's file.
    Store(PathBuf),
    /// No store is named, and neither `XDG_DATA_HOME` nor a home directory is usable for the
    /// default one.
    NoHome,
}

/// Store of results.
#[derive(Args, Clone, Debug)]
pub(crate) struct StoreArgs {
    /// File of the result store [default: $HOROLOG_STORE, otherwise horolog/runs.sqlite in
    /// $XDG_DATA_HOME or ~/.local/share].
    #[arg(long, value_name = "FILE")]
    store: Option<PathBuf>,
}

/// Destination of a result in the store.
#[derive(Args, Clone, Debug)]
pub(crate) struct StoreResultArgs {
    #[command(flatten)]
    store: StoreArgs,
    /// Do not store the result.
    #[arg(long)]
    no_store: bool,
}

impl StoreArgs {
    fn destination(&self) -> StoreLocation {
        let variable = || env::var_os(STORE_VARIABLE).filter(|value| !value.is_empty());
        match self.store.clone().or_else(|| variable().map(PathBuf::from)) {
            Some(path) if path == Path::new(STORE_NONE) => StoreLocation::None,
            Some(path) => StoreLocation::Store(path),
            None => default_path(user_variable).map_or(StoreLocation::NoHome, StoreLocation::Store),
        }
    }

    /// Returns the path of the store's file, for commands on the store itself; an error if the
    /// store is disabled or there is no home directory.
    pub(crate) fn path(&self) -> Result<PathBuf, CommandFailure> {
        if let StoreLocation::Store(path) = self.destination() {
            return Ok(path);
        }
        Err(CommandFailure::usage(format!(
            "there is no store without a home directory, or with {STORE_VARIABLE}={STORE_NONE}; \
             give one with --store"
        )))
    }

    /// Opens an existing store for changes; an error if the file does not exist.
    pub(crate) fn open(&self) -> Result<Store, CommandFailure> {
        Ok(Store::open_existing(&self.path()?)?)
    }

    /// Opens an existing store for reading; an error if the file does not exist.
    pub(crate) fn open_to_read(&self) -> Result<Store, CommandFailure> {
        Ok(Store::open_to_read(&self.path()?)?)
    }
}

impl StoreResultArgs {
    /// Stores a result. If that fails, writes the result to a JSON file and reports the reason and
    /// the path. If the store is disabled, does so only if `own_file_failed`, that is if a file
    /// that the user named for the result could not be written.
    pub(crate) fn store_result(&self, result: &impl Serialize, own_file_failed: bool) {
        let destination =
            if self.no_store { StoreLocation::None } else { self.store.destination() };
        match destination {
            StoreLocation::Store(path) => store_or_rescue(&path, &to_json(result)),
            StoreLocation::None if own_file_failed => {
                rescue_result(None, "its file failed", &to_json(result));
            }
            StoreLocation::None => {}
            StoreLocation::NoHome => rescue_result(
                None,
                &format!(
                    "there is no home directory for a store; give one with --store or \
                     {STORE_VARIABLE}"
                ),
                &to_json(result),
            ),
        }
    }
}

fn store_or_rescue(path: &Path, text: &str) {
    // A result of any measurement has the fields that this requires.
    let Ok(facts) = ResultFacts::parse(text) else { return };
    match Store::open(path).and_then(|mut store| store.add(&facts, text)) {
        Ok(id) => output::print_terminal_note(&format!("kept as run {id}")),
        Err(error) => rescue_result(path.parent(), &error.to_string(), text),
    }
}

/// Writes a result that could not be stored to a JSON file, and reports the reason and the path on
/// standard error.
fn rescue_result(preferred_directory: Option<&Path>, reason: &str, text: &str) {
    let Ok(facts) = ResultFacts::parse(text) else { return };
    let remedy = write_rescue_file(preferred_directory, &facts.key, text).map_or_else(
        || "and no other place for it was found".to_owned(),
        |file| format!("it is in {}", file.display()),
    );
    output::print_note(&format!("horolog: the result is not kept as a run: {reason}; {remedy}"));
}

/// Writes a result to `horolog-KEY.json` in the first directory that permits it: the preferred one,
/// the current one, that for temporary files, then [`FALLBACK_DIRECTORIES`]. Returns its path,
/// `None` if all failed.
fn write_rescue_file(preferred_directory: Option<&Path>, key: &str, text: &str) -> Option<PathBuf> {
    let name = format!("horolog-{key}.json");
    let directories =
        [preferred_directory.map(Path::to_owned), env::current_dir().ok(), Some(env::temp_dir())];
    let directories =
        directories.into_iter().flatten().chain(FALLBACK_DIRECTORIES.map(PathBuf::from));
    directories.map(|directory| directory.join(&name)).find(|file| {
        ResultDestination::open(file).and_then(|destination| destination.write(text)).is_ok()
    })
}

/// Returns an environment variable; `None` if it is unset or empty. `HOME` then defaults to the
/// home directory in the user database.
fn user_variable(name: &str) -> Option<OsString> {
    let value = env::var_os(name).filter(|value| !value.is_empty());
    value.or_else(|| env::home_dir().filter(|_| name == "HOME").map(PathBuf::into_os_string))
}

/// Returns the path of the default store: in `XDG_DATA_HOME`, else in `~/.local/share`; for root
/// with the `HOME` of another user, [`SYSTEM_STORE_FILE`]. Relative paths are ignored (XDG Base
/// Directory Specification); `None` if neither variable is usable.
fn default_path(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let directory = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    if let Some(data) = directory("XDG_DATA_HOME") {
        return Some(data.join(STORE_FILE));
    }
    let home = directory("HOME")?;
    let owner = |path: &Path| fs::metadata(path).ok().map(|file| file.uid());
    let user = owner(Path::new("/proc/self"));
    if user == Some(0) && owner(&home) != user {
        return Some(SYSTEM_STORE_FILE.into());
    }
    Some(home.join(".local/share").join(STORE_FILE))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESULT: &str =
        r#"{"schema": "horolog.load/2", "started": "2026-01-01T00:00:00Z", "command": []}"#;

    #[test]
    fn a_store_is_where_the_specification_has_it() {
        let home = tempfile::tempdir().unwrap();
        let of = |data: Option<&str>, home: Option<&Path>| {
            default_path(|name| match name {
                "XDG_DATA_HOME" => data.map(OsString::from),
                _ => home.map(|home| home.as_os_str().to_owned()),
            })
        };
        let own = home.path().join(".local/share/horolog/runs.sqlite");
        assert_eq!(of(Some("/d"), None), Some("/d/horolog/runs.sqlite".into()));
        assert_eq!(of(Some("d"), Some(home.path())), Some(own.clone()), "no whole path");
        assert_eq!(of(None, Some(home.path())), Some(own));
        assert_eq!(of(None, None), None);
    }

    #[test]
    fn result_without_a_usable_store_is_written_to_a_file() {
        let directory = tempfile::tempdir().unwrap();
        let store = directory.path().join("runs.sqlite");
        fs::write(&store, "this is no store, but somebody's letter, and long enough at that")
            .unwrap();
        store_or_rescue(&store, RESULT);
        let key = ResultFacts::parse(RESULT).unwrap().key;
        let file = directory.path().join(format!("horolog-{key}.json"));
        assert_eq!(fs::read_to_string(file).unwrap(), RESULT);
        assert!(fs::read_to_string(store).unwrap().starts_with("this is no store"));
    }

    #[test]
    fn result_is_stored_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("new/runs.sqlite");
        store_or_rescue(&path, RESULT);
        store_or_rescue(&path, RESULT);
        let store = Store::open_existing(&path).unwrap();
        let runs = store.list(&horolog_store::RunFilter::default()).unwrap();
        assert_eq!(runs.len(), 1);
        assert_eq!(store.result(runs[0].id).unwrap(), RESULT);
    }
}
