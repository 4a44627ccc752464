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
    /// The store's file; none where nothing is to be kept.
    pub(crate) fn path(&self) -> Option<PathBuf> {
        let named = self.store.clone().or_else(|| env::var_os(STORE_VARIABLE).map(PathBuf::from));
        match named {
            Some(path) if path == Path::new(STORE_NONE) => None,
            Some(path) => Some(path),
            None => usual(|name| env::var_os(name)),
        }
    }

    /// The store's file, for commands that are about it.
    pub(crate) fn there(&self) -> Result<PathBuf, Failure> {
        self.path().ok_or_else(|| {
            Failure::usage(format!(
                "there is no store without a home directory, or with {STORE_VARIABLE}={STORE_NONE}; \
                 give one with --store"
            ))
        })
    }

    /// Opens the store, if there is one.
    pub(crate) fn open(&self) -> Result<Store, Failure> {
        Ok(Store::open_existing(&self.there()?)?)
    }
}

impl KeepArgs {
    /// Keeps a result, or says why not and where it is instead.
    pub(crate) fn keep(&self, result: &impl Serialize) {
        let path = self.store.path().filter(|_| !self.no_store);
        if let Some(path) = path {
            keep(&path, &to_json(result));
        }
    }
}

fn keep(path: &Path, text: &str) {
    // All that is measured has these fields.
    let Ok(facts) = Facts::of(text) else { return };
    let kept = Store::open(path).and_then(|mut store| store.add(&facts, text));
    match kept {
        Ok(id) => output::aside(&format!("kept as run {id}")),
        Err(error) => {
            let instead = beside(path, &facts.key, text);
            let told = instead.map_or_else(
                || "and no other place for it was found".to_owned(),
                |file| format!("it is in {}", file.display()),
            );
            output::note(&format!("horolog: the result is not kept as a run: {error}; {told}"));
        }
    }
}

/// Writes a result to a file of its own: beside the store, else here, else where what is temporary
/// goes.
fn beside(store: &Path, key: &str, text: &str) -> Option<PathBuf> {
    let name = format!("horolog-{key}.json");
    let places =
        [store.parent().map(Path::to_owned), env::current_dir().ok(), Some(env::temp_dir())];
    places.into_iter().flatten().map(|place| place.join(&name)).find(|file| {
        Destination::open(file).and_then(|destination| destination.write(text)).is_ok()
    })
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
