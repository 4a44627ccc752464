//! Anonymous shared memory between a process and programs that it starts (`memfd_create(2)`):
//! 64-bit words that either side may read and write at any time. It exists until the last of them
//! has ended.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::process::Command;
use std::sync::atomic::AtomicU64;

use rustix::fs::{
    MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create,
};

use crate::descriptor::{inherited, pass_descriptor};
use crate::shared_mapping::SharedMapping;

/// Name of the region in `/proc/PID/maps`.
const NAME: &str = "horolog";
/// Seals that fix the size, so that no mapped page can be truncated.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// Mapped words of a memfd that is shared with other programs.
#[derive(Debug)]
pub struct MemfdSharedMemory {
    mapping: SharedMapping<AtomicU64>,
    descriptor: OwnedFd,
}

impl MemfdSharedMemory {
    /// Creates a region of `len` words, all 0.
    ///
    /// # Errors
    ///
    /// If there is no memory or descriptor; `InvalidInput` if `len` is 0.
    pub fn create(len: usize) -> io::Result<Self> {
        let bytes = len.checked_mul(size_of::<u64>()).ok_or(io::ErrorKind::InvalidInput)?;
        let descriptor = memfd_create(NAME, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&descriptor, bytes as u64)?;
        fcntl_add_seals(&descriptor, SEALS)?;
        Self::map(descriptor)
    }

    /// Maps the region that the parent program passed under this descriptor number. Call it at most
    /// once for each number.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the descriptor is no such region; it is then left open.
    pub fn from_inherited(number: RawFd) -> io::Result<Self> {
        Self::map(inherited(number, |descriptor| fcntl_get_seals(descriptor) == Ok(SEALS))?)
    }

    fn map(descriptor: OwnedFd) -> io::Result<Self> {
        let bytes = usize::try_from(fstat(&descriptor)?.st_size);
        let len = bytes.map_err(|_| io::ErrorKind::InvalidInput)? / size_of::<u64>();
        Ok(Self { mapping: SharedMapping::map(Some(descriptor.as_fd()), len)?, descriptor })
    }

    /// Returns the words, which other processes may change at any time.
    #[must_use]
    pub fn words(&self) -> &[AtomicU64] {
        self.mapping.words()
    }

    /// Passes the region to a program under this descriptor number, which no other passed
    /// descriptor may have.
    pub fn pass_to<'a>(&self, command: &'a mut Command, number: RawFd) -> &'a mut Command {
        pass_descriptor(command, self.descriptor.as_raw_fd(), number)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;

    #[test]
    fn what_is_written_into_one_mapping_is_read_in_another() {
        let one = MemfdSharedMemory::create(1_000).unwrap();
        assert!(
            one.words().len() == 1_000 && one.words().iter().all(|word| word.load(Relaxed) == 0)
        );
        let other = MemfdSharedMemory::map(one.descriptor.try_clone().unwrap()).unwrap();
        one.words()[999].store(7, Relaxed);
        assert_eq!(other.words()[999].load(Relaxed), 7);
        drop(one);
        assert_eq!(other.words()[999].load(Relaxed), 7);
    }

    #[test]
    fn a_program_finds_it_under_its_number() {
        let region = MemfdSharedMemory::create(3).unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "readlink /proc/self/fd/9; printf abcdefgh >&9"]);
        let output = region.pass_to(&mut command, 9).output().unwrap();
        let shown = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && shown.contains("memfd:horolog"), "{shown}");
        assert_eq!(region.words()[0].load(Relaxed).to_ne_bytes(), *b"abcdefgh");
    }

    #[test]
    fn what_is_no_region_is_refused() {
        assert_eq!(
            MemfdSharedMemory::create(usize::MAX).unwrap_err().kind(),
            io::ErrorKind::InvalidInput
        );
        assert!(MemfdSharedMemory::create(0).is_err());
        for number in [-1, 0, 1_000_000] {
            let refused = MemfdSharedMemory::from_inherited(number).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
        }
    }
}
