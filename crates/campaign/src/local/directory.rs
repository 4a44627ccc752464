//! Private directory of a run in lab hosts, removed at the end of the run. A run holds a lock on
//! its directory; the next run removes directories without a lock, which killed runs have left.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, SystemTime};

use horolog_sys::undo::UndoGuard;

use crate::CampaignId;

const PREFIX: &str = "horolog-";
const LOCK: &str = "lock";
/// Smallest age for removal: the run of a younger directory may not have locked it yet.
const AGE_MIN: Duration = Duration::from_mins(1);

/// Guard of the directory of a local run: drop removes the directory and releases the lock.
pub(super) struct LocalRunDirectoryGuard {
    _undo: UndoGuard,
    _lock: File,
}

/// Creates the directory of a campaign in `within`, and removes stale ones. Returns its path and
/// its guard; a second Ctrl-C, which skips the guard's drop, removes the directory as well.
pub(super) fn create_run_directory(
    within: &Path,
    campaign: &CampaignId,
) -> io::Result<(std::path::PathBuf, LocalRunDirectoryGuard)> {
    remove_stale(within, AGE_MIN);
    let path = within.join(format!("{PREFIX}{campaign}"));
    let (gone, made) = (path.clone(), path.clone());
    let create = || DirBuilder::new().mode(0o700).create(&made);
    let ((), undo) = UndoGuard::after_change(create, move || drop(fs::remove_dir_all(&gone)))?;
    let lock = File::create_new(path.join(LOCK))?;
    lock.try_lock()?;
    Ok((path, LocalRunDirectoryGuard { _undo: undo, _lock: lock }))
}

/// Removes the directories of this user's killed runs.
fn remove_stale(within: &Path, age_min: Duration) {
    let Ok(entries) = fs::read_dir(within) else { return };
    for path in entries.filter_map(Result::ok).map(|entry| entry.path()) {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        // An inaccessible directory belongs to another user.
        if name.starts_with(PREFIX) && is_stale(&path, age_min).unwrap_or(false) {
            let _ = fs::remove_dir_all(&path);
        }
    }
}

fn is_stale(path: &Path, age_min: Duration) -> io::Result<bool> {
    let metadata = fs::symlink_metadata(path)?;
    let age = SystemTime::now().duration_since(metadata.modified()?).unwrap_or_default();
    let own = fs::metadata("/proc/self")?.uid();
    if !metadata.is_dir() || metadata.uid() != own || age < age_min {
        return Ok(false);
    }
    Ok(File::open(path.join(LOCK))?.try_lock().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_run_has_left_is_removed_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let within = directory.path();
        let (path, own) = create_run_directory(within, &"c-1".parse().unwrap()).unwrap();
        for name in ["horolog-left", "horolog-without-lock", "other"] {
            fs::create_dir(within.join(name)).unwrap();
        }
        for name in ["horolog-left", "other"] {
            fs::write(within.join(name).join(LOCK), "").unwrap();
        }
        remove_stale(within, AGE_MIN);
        assert!(within.join("horolog-left").exists(), "it may be a run's that begins");
        remove_stale(within, Duration::ZERO);
        assert!(!within.join("horolog-left").exists());
        assert!(path.exists() && within.join("other").exists());
        assert!(within.join("horolog-without-lock").exists());
        drop(own);
        assert!(!path.exists());
    }
}
