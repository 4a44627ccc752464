//! Memory of this process: locking it in RAM, and its resident size.

use std::{fs, io};

use rustix::mm::{MlockAllFlags, mlockall, munlockall};
use rustix::param::page_size;

/// Guard of the memory of this process, locked in RAM by mlockall(2); dropping it unlocks it.
#[derive(Debug)]
pub struct LockedMemoryGuard(());

impl LockedMemoryGuard {
    /// Locks all present and future memory.
    ///
    /// # Errors
    ///
    /// Of mlockall(2), usually for lack of `CAP_IPC_LOCK` and too small a `RLIMIT_MEMLOCK`.
    pub fn lock() -> io::Result<Self> {
        Self::lock_with(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE)
    }

    /// Locks the present memory only; later allocations do not count towards `RLIMIT_MEMLOCK`.
    ///
    /// # Errors
    ///
    /// Errors of [`Self::lock`].
    pub fn lock_present() -> io::Result<Self> {
        Self::lock_with(MlockAllFlags::CURRENT)
    }

    fn lock_with(flags: MlockAllFlags) -> io::Result<Self> {
        mlockall(flags)?;
        Ok(Self(()))
    }
}

impl Drop for LockedMemoryGuard {
    fn drop(&mut self) {
        // Fails only where nothing is locked.
        let _ = munlockall();
    }
}

/// Returns this process's resident memory in bytes (proc(5), `/proc/self/statm`).
///
/// # Errors
///
/// If the proc file system is missing.
pub fn resident_bytes() -> io::Result<u64> {
    let statm = fs::read_to_string("/proc/self/statm")?;
    let pages: u64 = statm
        .split_whitespace()
        .nth(1)
        .and_then(|field| field.parse().ok())
        .ok_or(io::ErrorKind::InvalidData)?;
    Ok(pages * page_size() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_written_becomes_resident() {
        const MORE: usize = 64 << 20;
        let before = resident_bytes().unwrap();
        let block = std::hint::black_box(vec![1u8; MORE]);
        let after = resident_bytes().unwrap();
        // Other tests run concurrently and may free some of theirs.
        assert!(after > before + MORE as u64 / 2, "{before} then {after}, {} B", block.len());
    }
}
