//! File access restricted by Landlock (Documentation/userspace-api/landlock.rst). Open files remain
//! usable.

use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError, RulesetStatus,
    path_beneath_rules,
};

/// Restricted rights: those on files as of Linux 6.2. Later ones concern sockets and devices, which
/// are restricted in other ways.
const RIGHTS: ABI = ABI::V3;

/// Degree to which Landlock is enforced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LandlockStatus {
    /// All requested rights are restricted.
    Full,
    /// Only the rights that this kernel supports are restricted.
    Partial,
    /// Not enforced: the kernel has no Landlock, or it is disabled.
    None,
}

/// Restricts this thread and those started later: they may read below `readable`, read and write
/// below `writable`, and access no other file. Nothing can be executed. Missing paths are skipped.
///
/// # Errors
///
/// If the kernel has Landlock and refuses the rules.
pub fn confine_files(
    readable: &[PathBuf],
    writable: &[PathBuf],
) -> Result<LandlockStatus, RulesetError> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let write = AccessFs::from_all(RIGHTS) & !AccessFs::Execute;
    let status = Ruleset::default()
        .handle_access(AccessFs::from_all(RIGHTS))?
        .create()?
        .add_rules(path_beneath_rules(readable.iter().map(Path::new), read))?
        .add_rules(path_beneath_rules(writable.iter().map(Path::new), write))?
        .restrict_self()?;
    Ok(match status.ruleset {
        RulesetStatus::FullyEnforced => LandlockStatus::Full,
        RulesetStatus::PartiallyEnforced => LandlockStatus::Partial,
        RulesetStatus::NotEnforced => LandlockStatus::None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_named_can_be_reached() {
        // Landlock holds for this thread alone.
        std::thread::spawn(|| {
            let own = std::env::temp_dir().join(format!("horolog-files-{}", std::process::id()));
            std::fs::create_dir_all(&own).unwrap();
            let extent = confine_files(&["/proc".into()], std::slice::from_ref(&own)).unwrap();
            if extent == LandlockStatus::None {
                std::fs::remove_dir_all(&own).unwrap();
                return;
            }
            std::fs::read("/proc/self/stat").unwrap();
            std::fs::write(own.join("a"), "b").unwrap();
            for forbidden in ["/etc/passwd", "/usr/bin/env"] {
                let error = std::fs::read(forbidden).unwrap_err();
                assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied, "{forbidden}");
            }
            assert!(std::fs::write("/proc/self/comm", "x").is_err(), "readable is not writable");
            assert!(std::process::Command::new("/usr/bin/env").output().is_err(), "executed");
            std::fs::remove_file(own.join("a")).unwrap();
            std::fs::remove_dir_all(&own).unwrap_or(());
        })
        .join()
        .unwrap();
        let own = std::env::temp_dir().join(format!("horolog-files-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(own);
    }
}
