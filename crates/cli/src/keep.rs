//! Keeping each result in the store, where later ones can be compared with it. What was measured is
//! never lost to a store that cannot take it: then it becomes a file of its own, and that is said.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use clap::Args;
use horolog_record::{STORE_NONE, STORE_VARIABLE};
use horolog_report::to_json;
use horolog_store::{Facts, Store};
use serde::Serialize;

use crate::failure::Failure;
use crate::output::{self, Destination};

/// The store in a user's directory of data.
const FILE: &str = "horolog/runs.sqlite";
/// Where root's results go while the home directory is somebody else's, as with `sudo -E`: in that
/// one, they would shut its owner out.
const OF_THE_SYSTEM: &str = "/var/lib/horolog/runs.sqlite";

/// Where results without room elsewhere may go.
const LAST_PLACES: [&str; 2] = ["/var/tmp", "/dev/shm"];

/// What is to become of a result.
enum Place {
    /// Nobody wants it kept.
    Nowhere,
    /// It goes to the store of this file.
    Store(PathBuf),
    /// There is no directory for a store.
    Homeless,
}

/// Which store.
#[derive(Args, Clone, Debug)]
pub(crate) struct StoreArgs {
    /// The store of results; without it, horolog/runs.sqlite in the user's directory of data.
    #[arg(long, value_name = "FILE")]
    store: Option<PathBuf>,
}

/// Where a result is kept.
#[derive(Args, Clone, Debug)]
pub(crate) struct KeepArgs {
    #[command(flatten)]
    store: StoreArgs,
    /// Keep the result in no store.
    #[arg(long)]
    no_store: bool,
}

impl StoreArgs {
    fn place(&self) -> Place {
        let variable = || env::var_os(STORE_VARIABLE).filter(|value| !value.is_empty());
        match self.store.clone().or_else(|| variable().map(PathBuf::from)) {
            Some(path) if path == Path::new(STORE_NONE) => Place::Nowhere,
            Some(path) => Place::Store(path),
            None => usual(of_user).map_or(Place::Homeless, Place::Store),
        }
    }

    /// The store's file, for commands that are about it.
    pub(crate) fn there(&self) -> Result<PathBuf, Failure> {
        if let Place::Store(path) = self.place() {
            return Ok(path);
        }
        Err(Failure::usage(format!(
            "there is no store without a home directory, or with {STORE_VARIABLE}={STORE_NONE}; \
             give one with --store"
        )))
    }

    /// Opens the store, if there is one, to change something in it.
    pub(crate) fn open(&self) -> Result<Store, Failure> {
        Ok(Store::open_existing(&self.there()?)?)
    }

    /// Opens the store, if there is one, to read in it.
    pub(crate) fn open_to_read(&self) -> Result<Store, Failure> {
        Ok(Store::open_to_read(&self.there()?)?)
    }
}

impl KeepArgs {
    /// Keeps a result, or says why not and where it is instead. A result that nobody wants kept,
    /// and whose own file failed, is written to another one.
    pub(crate) fn keep(&self, result: &impl Serialize, own_file_failed: bool) {
        let place = if self.no_store { Place::Nowhere } else { self.store.place() };
        match place {
            Place::Store(path) => keep(&path, &to_json(result)),
            Place::Nowhere if own_file_failed => rescue(None, "its file failed", &to_json(result)),
            Place::Nowhere => {}
            Place::Homeless => rescue(
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

fn keep(path: &Path, text: &str) {
    // All that is measured has these fields.
    let Ok(facts) = Facts::of(text) else { return };
    match Store::open(path).and_then(|mut store| store.add(&facts, text)) {
        Ok(id) => output::aside(&format!("kept as run {id}")),
        Err(error) => rescue(path.parent(), &error.to_string(), text),
    }
}

/// Writes a result that is not kept to a file of its own, and says why and where.
fn rescue(first: Option<&Path>, why: &str, text: &str) {
    let Ok(facts) = Facts::of(text) else { return };
    let told = beside(first, &facts.key, text).map_or_else(
        || "and no other place for it was found".to_owned(),
        |file| format!("it is in {}", file.display()),
    );
    output::note(&format!("horolog: the result is not kept as a run: {why}; {told}"));
}

/// Writes a result to a file of its own: in this directory, else in the current one, else where
/// what is temporary goes.
fn beside(first: Option<&Path>, key: &str, text: &str) -> Option<PathBuf> {
    let name = format!("horolog-{key}.json");
    let places = [first.map(Path::to_owned), env::current_dir().ok(), Some(env::temp_dir())];
    let places = places.into_iter().flatten().chain(LAST_PLACES.map(PathBuf::from));
    places.map(|place| place.join(&name)).find(|file| {
        Destination::open(file).and_then(|destination| destination.write(text)).is_ok()
    })
}

/// A variable of this user, whose home directory is known to the system as well.
fn of_user(name: &str) -> Option<OsString> {
    let set = env::var_os(name).filter(|value| !value.is_empty());
    set.or_else(|| env::home_dir().filter(|_| name == "HOME").map(PathBuf::into_os_string))
}

/// The store of this user, by the XDG Base Directory Specification, which has only whole paths
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
        r#"{"schema": "horolog.load/1", "started": "2026-01-01T00:00:00Z", "command": []}"#;

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
    fn what_no_store_takes_is_a_file_beside_it() {
        let directory = tempfile::tempdir().unwrap();
        let store = directory.path().join("runs.sqlite");
        fs::write(&store, "this is no store, but somebody's letter, and long enough at that")
            .unwrap();
        keep(&store, RESULT);
        let key = Facts::of(RESULT).unwrap().key;
        let file = directory.path().join(format!("horolog-{key}.json"));
        assert_eq!(fs::read_to_string(file).unwrap(), RESULT);
        assert!(fs::read_to_string(store).unwrap().starts_with("this is no store"));
    }

    #[test]
    fn a_result_is_kept_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("new/runs.sqlite");
        keep(&path, RESULT);
        keep(&path, RESULT);
        let store = Store::open_existing(&path).unwrap();
        let runs = store.list(&horolog_store::Filter::default()).unwrap();
        assert_eq!(runs.len(), 1);
        assert_eq!(store.result(runs[0].id).unwrap(), RESULT);
    }
}
