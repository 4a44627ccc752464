//! Memory shared with other processes, as atomic words.

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::null_mut;
use std::slice::from_raw_parts;
use std::sync::atomic::{AtomicU32, AtomicU64};

use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

/// Word that several processes may read and write.
///
/// # Safety
///
/// The type is an atomic, for which any bits are valid.
pub(crate) unsafe trait SharedWord: Sync {}

// SAFETY: an atomic number.
unsafe impl SharedWord for AtomicU32 {}
// SAFETY: as above.
unsafe impl SharedWord for AtomicU64 {}

/// Mapped words, which other processes may change at any time.
#[derive(Debug)]
pub(crate) struct SharedMapping<W: SharedWord> {
    words: *const W,
    len: usize,
}

// SAFETY: the memory is only accessed through atomics, and stays mapped while the value lives, in
// any thread.
unsafe impl<W: SharedWord> Send for SharedMapping<W> {}
// SAFETY: as above; atomics may be used by several threads at once.
unsafe impl<W: SharedWord> Sync for SharedMapping<W> {}

impl<W: SharedWord> SharedMapping<W> {
    /// Maps the first `len` words of a file, which must not shrink; without a file, new words, all
    /// 0, that are shared with forked processes.
    ///
    /// # Errors
    ///
    /// Of mmap(2); `InvalidInput` if `len` is 0.
    pub(crate) fn map(file: Option<BorrowedFd<'_>>, len: usize) -> io::Result<Self> {
        let bytes = len * size_of::<W>();
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: the kernel chooses where, so nothing of this process is replaced.
        let address = unsafe {
            match file {
                Some(file) => mmap(null_mut(), bytes, access, flags, file, 0),
                None => mmap_anonymous(null_mut(), bytes, access, flags),
            }
        }?;
        Ok(Self { words: address.cast_const().cast(), len })
    }

    /// Returns the words.
    pub(crate) fn words(&self) -> &[W] {
        // SAFETY: the mapping is page-aligned, holds this many words, and lives as long as `self`;
        // any bits are a valid word, and other processes may write them, as atomics allow.
        unsafe { from_raw_parts(self.words, self.len) }
    }
}

impl<W: SharedWord> Drop for SharedMapping<W> {
    fn drop(&mut self) {
        // SAFETY: mapped in `map` and nowhere unmapped; no reference outlives `self`.
        let _ = unsafe { munmap(self.words.cast_mut().cast(), self.len * size_of::<W>()) };
    }
}
