//! Stores each result for comparison with later ones. A result is never lost if the store cannot
//! take it: it is then written to a file of its own, and a message names that file.

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

/// The store in a user's directory of data.
const FILE: &str = "horolog/runs.sqlite";
/// Store of root's results while the home directory belongs to another user, as with `sudo -E`: in
/// that directory, they would lock its owner out.
const OF_THE_SYSTEM: &str = "/var/lib/horolog/runs.sqlite";

/// Directories for results that cannot be stored elsewhere.
const FALLBACK_DIRECTORIES: [&str; 2] = ["/var/tmp", "/dev/shm"];

/// Destination of a result.
enum StoreDestination {
    /// It is not stored.
    None,
    /// It goes to the store in this file.
    Store(PathBuf),
    /// There is no directory for a store.
    NoHome,
}

/// Store of results.
#[derive(Args, Clone, Debug)]
pub(crate) struct StoreArgs {
    /// File of the result store [default: horolog/runs.sqlite in the user's data directory].
    #[arg(long, value_name = "FILE")]
    store: Option<PathBuf>,
}

/// Destination of a result in the store.
#[derive(Args, Clone, Debug)]
pub(crate) struct KeepArgs {
    #[command(flatten)]
    store: StoreArgs,
    /// Do not store the result.
    #[arg(long)]
    no_store: bool,
}

impl StoreArgs {
    fn destination(&self) -> StoreDestination {
        let variable = || env::var_os(STORE_VARIABLE).filter(|value| !value.is_empty());
        match self.store.clone().or_else(|| variable().map(PathBuf::from)) {
            Some(path) if path == Path::new(STORE_NONE) => StoreDestination::None,
            Some(path) => StoreDestination::Store(path),
            None => usual(of_user).map_or(StoreDestination::NoHome, StoreDestination::Store),
        }
    }

    /// The store's file, for commands on the store itself.
    pub(crate) fn there(&self) -> Result<PathBuf, CommandFailure> {
        if let StoreDestination::Store(path) = self.destination() {
            return Ok(path);
        }
        Err(CommandFailure::usage(format!(
            "there is no store without a home directory, or with {STORE_VARIABLE}={STORE_NONE}; \
             give one with --store"
        )))
    }

    /// Opens the store, if there is one, for changes.
    pub(crate) fn open(&self) -> Result<Store, CommandFailure> {
        Ok(Store::open_existing(&self.there()?)?)
    }

    /// Opens the store, if there is one, for reading.
    pub(crate) fn open_to_read(&self) -> Result<Store, CommandFailure> {
        Ok(Store::open_to_read(&self.there()?)?)
    }
}

impl KeepArgs {
    /// Stores a result, or reports why that failed and where the result is instead. A result that
    /// is not stored, and whose own file failed, is written to another one.
    pub(crate) fn store_result(&self, result: &impl Serialize, own_file_failed: bool) {
        let destination =
            if self.no_store { StoreDestination::None } else { self.store.destination() };
        match destination {
            StoreDestination::Store(path) => store_result(&path, &to_json(result)),
            StoreDestination::None if own_file_failed => {
                rescue(None, "its file failed", &to_json(result));
            }
            StoreDestination::None => {}
            StoreDestination::NoHome => rescue(
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

fn store_result(path: &Path, text: &str) {
    // All measurements have these fields.
    let Ok(facts) = ResultFacts::parse(text) else { return };
    match Store::open(path).and_then(|mut store| store.add(&facts, text)) {
        Ok(id) => output::print_status(&format!("kept as run {id}")),
        Err(error) => rescue(path.parent(), &error.to_string(), text),
    }
}

/// Writes a result that is not stored to a file of its own, and reports the reason and the path.
fn rescue(first: Option<&Path>, why: &str, text: &str) {
    let Ok(facts) = ResultFacts::parse(text) else { return };
    let remedy = write_rescue_file(first, &facts.key, text).map_or_else(
        || "and no other place for it was found".to_owned(),
        |file| format!("it is in {}", file.display()),
    );
    output::print_note(&format!("horolog: the result is not kept as a run: {why}; {remedy}"));
}

/// Writes a result to a file of its own: in this directory, else in the current one, else in a
/// directory for temporary files.
fn write_rescue_file(first: Option<&Path>, key: &str, text: &str) -> Option<PathBuf> {
    let name = format!("horolog-{key}.json");
    let directories = [first.map(Path::to_owned), env::current_dir().ok(), Some(env::temp_dir())];
    let directories =
        directories.into_iter().flatten().chain(FALLBACK_DIRECTORIES.map(PathBuf::from));
    directories.map(|directory| directory.join(&name)).find(|file| {
        ResultDestination::open(file).and_then(|destination| destination.write(text)).is_ok()
    })
}

/// An environment variable of this user, whose home directory is also known to the system.
fn of_user(name: &str) -> Option<OsString> {
    let set = env::var_os(name).filter(|value| !value.is_empty());
    set.or_else(|| env::home_dir().filter(|_| name == "HOME").map(PathBuf::into_os_string))
}

/// The store of this user, by the XDG Base Directory Specification, in which only absolute paths
/// count.
fn usual(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let directory = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    if let Some(data) = directory("XDG_DATA_HOME") {
        return Some(data.join(FILE));
    }
    let home = directory("HOME")?;
    let owner = |path: &Path| fs::metadata(path).ok().map(|file| file.uid());
    let user = owner(Path::new("/proc/self"));
    if user == Some(0) && owner(&home) != user {
        return Some(OF_THE_SYSTEM.into());
    }
    Some(home.join(".local/share").join(FILE))
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
            usual(|name| match name {
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
        store_result(&store, RESULT);
        let key = ResultFacts::parse(RESULT).unwrap().key;
        let file = directory.path().join(format!("horolog-{key}.json"));
        assert_eq!(fs::read_to_string(file).unwrap(), RESULT);
        assert!(fs::read_to_string(store).unwrap().starts_with("this is no store"));
    }

    #[test]
    fn result_is_stored_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("new/runs.sqlite");
        store_result(&path, RESULT);
        store_result(&path, RESULT);
        let store = Store::open_existing(&path).unwrap();
        let runs = store.list(&horolog_store::RunFilter::default()).unwrap();
        assert_eq!(runs.len(), 1);
        assert_eq!(store.result(runs[0].id).unwrap(), RESULT);
    }
}
