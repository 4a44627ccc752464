//! Anonymous shared memory between a process and programs that it starts (`memfd_create(2)`):
//! 64-bit words that either side may read and write at any time. It exists until the last of them
//! has ended.

use std::ffi::CStr;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::process::Command;
use std::ptr::null_mut;
use std::slice::from_raw_parts;
use std::sync::atomic::AtomicU64;

use crate::descriptor::{check, check_new, pass_descriptor};

/// Name of the region in `/proc/PID/maps`.
const NAME: &CStr = c"horolog";
/// Seals that fix the size, so that no mapped page can be truncated.
const SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

/// Mapped words of a memfd that is shared with other programs.
#[derive(Debug)]
pub struct MemfdSharedMemory {
    words: *const AtomicU64,
    len: usize,
    descriptor: OwnedFd,
}

// SAFETY: the memory is only accessed through atomics, and stays mapped while the value lives, in
// any thread.
unsafe impl Send for MemfdSharedMemory {}
// SAFETY: as above; atomics may be used by several threads at once.
unsafe impl Sync for MemfdSharedMemory {}

impl MemfdSharedMemory {
    /// Creates a region of `len` words, all 0.
    ///
    /// # Errors
    ///
    /// If there is no memory or descriptor; `InvalidInput` if `len` is 0.
    pub fn create(len: usize) -> io::Result<Self> {
        let bytes = len.checked_mul(size_of::<u64>()).and_then(|bytes| bytes.try_into().ok());
        let bytes: libc::off_t = bytes.ok_or(io::ErrorKind::InvalidInput)?;
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: a text that ends with a zero, and flags; the new descriptor has no other owner.
        let descriptor = unsafe { check_new(libc::memfd_create(NAME.as_ptr(), flags)) }?;
        // SAFETY: an open descriptor and numbers.
        check(unsafe { libc::ftruncate(descriptor.as_raw_fd(), bytes) })?;
        // SAFETY: an open descriptor and numbers.
        check(unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_ADD_SEALS, SEALS) })?;
        Self::map(descriptor)
    }

    /// Maps the region that the parent program passed under this descriptor number. Call it at most
    /// once for each number.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the descriptor is no such region; it is then left open.
    pub fn from_inherited(number: RawFd) -> io::Result<Self> {
        // SAFETY: numbers only; a number that is no descriptor is an error.
        let seals = check(unsafe { libc::fcntl(number, libc::F_GET_SEALS) });
        if number < 3 || seals.map_err(|_| io::ErrorKind::InvalidInput)? != SEALS {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: it is open, and a region of ours, which nothing in a new program opens by itself:
        // the program that started this one left it for this call.
        let descriptor = unsafe { OwnedFd::from_raw_fd(number) };
        // SAFETY: an open descriptor and numbers.
        check(unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) })?;
        Self::map(descriptor)
    }

    fn map(descriptor: OwnedFd) -> io::Result<Self> {
        // SAFETY: a plain C structure of numbers, for which all bytes zero is valid.
        let mut facts: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: an open descriptor; the structure outlives the call.
        check(unsafe { libc::fstat(descriptor.as_raw_fd(), &raw mut facts) })?;
        let bytes = usize::try_from(facts.st_size).map_err(|_| io::ErrorKind::InvalidInput)?;
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: the kernel chooses where, so nothing of this process is replaced; an open
        // descriptor.
        let address =
            unsafe { libc::mmap(null_mut(), bytes, access, flags, descriptor.as_raw_fd(), 0) };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { words: address.cast_const().cast(), len: bytes / size_of::<u64>(), descriptor })
    }

    /// Returns the words, which other processes may change at any time.
    #[must_use]
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is page-aligned, holds this many words, cannot shrink (it is sealed),
        // and lives as long as `self`; any bits are a valid word, and other processes may write
        // them, as atomics allow.
        unsafe { from_raw_parts(self.words, self.len) }
    }

    /// Passes the region to a program under this descriptor number, which no other passed
    /// descriptor may have.
    pub fn pass_to<'a>(&self, command: &'a mut Command, number: RawFd) -> &'a mut Command {
        pass_descriptor(command, self.descriptor.as_raw_fd(), number)
    }
}

impl Drop for MemfdSharedMemory {
    fn drop(&mut self) {
        // SAFETY: mapped in `map` and nowhere unmapped; no reference outlives `self`.
        unsafe { libc::munmap(self.words.cast_mut().cast(), self.len * size_of::<u64>()) };
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
