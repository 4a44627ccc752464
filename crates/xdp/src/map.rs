//! Memory-mapped BPF array maps: entries are read and written without a system call. BPF programs
//! access them concurrently, so accesses are volatile or atomic, except the clearing of an entry.
//! Each entry has one writer at a time, by convention; fields that several write are atomic.

use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::XdpError;

/// Memory-mapped array map (`BPF_F_MMAPABLE`) of entries of type `T`.
pub(crate) struct MappedArrayMap<T> {
    base: NonNull<u8>,
    bytes: usize,
    stride: usize,
    entries: u32,
    entry: PhantomData<T>,
}

// SAFETY: the mapping belongs to the process, not to a thread, and is only reached through raw or
// atomic accesses to plain data that is valid in every bit pattern.
unsafe impl<T: Send> Send for MappedArrayMap<T> {}
// SAFETY: as above; concurrent writers of one entry would at worst mix plain bytes.
unsafe impl<T: Sync> Sync for MappedArrayMap<T> {}

impl<T: FromBytes + IntoBytes + Immutable + KnownLayout> MappedArrayMap<T> {
    /// Maps `entries` entries of the map behind `descriptor`. The kernel pads each entry to a
    /// multiple of 8 bytes.
    pub(crate) fn map(descriptor: BorrowedFd<'_>, entries: u32) -> Result<Self, XdpError> {
        const { assert!(align_of::<T>() <= 8, "aligned by the stride") };
        let stride = size_of::<T>().next_multiple_of(8);
        let bytes = (stride * entries as usize).next_multiple_of(page_size());
        // SAFETY: a fresh shared mapping of a descriptor that is open; nothing else is touched.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                descriptor.as_fd().as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(XdpError::Map(std::io::Error::last_os_error()));
        }
        let base = NonNull::new(base.cast()).ok_or_else(|| {
            XdpError::Map(std::io::Error::other("the kernel mapped it at address 0"))
        })?;
        Ok(Self { base, bytes, stride, entries, entry: PhantomData })
    }

    pub(crate) const fn entries(&self) -> u32 {
        self.entries
    }

    fn entry(&self, index: u32) -> *mut T {
        assert!(index < self.entries, "entry {index} of {}", self.entries);
        // SAFETY: the index was checked, so the entry lies within the mapping; the mapping is
        // page-aligned and the stride a multiple of 8, the largest alignment of such types.
        unsafe { self.base.as_ptr().add(index as usize * self.stride).cast() }
    }

    /// Returns a copy of one entry; it may be torn if the entry is being written.
    pub(crate) fn read(&self, index: u32) -> T
    where
        T: Copy,
    {
        // SAFETY: `entry` points into the mapping, aligned, and every bit pattern is a `T`.
        unsafe { std::ptr::read_volatile(self.entry(index)) }
    }

    /// Returns a copy of one entry on the heap, for types too large for the stack; it may be torn
    /// if the entry is being written.
    pub(crate) fn read_boxed(&self, index: u32) -> Box<T> {
        const { assert!(size_of::<T>().is_multiple_of(8) && align_of::<T>() == 8, "whole words") };
        let source = self.entry(index).cast::<u64>();
        let mut copy = Box::<T>::new_uninit();
        let words = copy.as_mut_ptr().cast::<u64>();
        for word in 0..size_of::<T>() / 8 {
            // SAFETY: `word` counts the words of one `T`, so both pointers stay within their
            // objects; both are aligned to 8, the entry by its stride and the copy by its type.
            unsafe { words.add(word).write(std::ptr::read_volatile(source.add(word))) };
        }
        // SAFETY: every word was written, and every bit pattern is a `T`.
        unsafe { copy.assume_init() }
    }

    /// Replaces one entry.
    pub(crate) fn write(&self, index: u32, value: &T)
    where
        T: Copy,
    {
        // SAFETY: `entry` points into the mapping and is aligned.
        unsafe { std::ptr::write_volatile(self.entry(index), *value) }
    }

    /// Sets all bytes of one entry to zero.
    pub(crate) fn clear(&self, index: u32) {
        let entry = self.entry(index).cast::<u8>();
        // SAFETY: the entry lies within the mapping and zero is a valid `T`.
        unsafe { std::ptr::write_bytes(entry, 0, size_of::<T>()) }
    }

    /// Returns an aligned 64-bit field at `offset` bytes from the start of one entry, for accesses
    /// that need a memory order.
    pub(crate) fn atomic(&self, index: u32, offset: usize) -> &AtomicU64 {
        assert!(offset + 8 <= size_of::<T>() && offset.is_multiple_of(8), "field at {offset}");
        // SAFETY: the field lies within the mapping, which lives as long as `self`; it is aligned
        // to 8, and all accesses to it on this side go through this atomic or are volatile.
        unsafe { AtomicU64::from_ptr(self.entry(index).cast::<u8>().add(offset).cast()) }
    }

    /// Writes `part` into one entry, `offset` bytes from its start.
    pub(crate) fn write_part<P>(&self, index: u32, offset: usize, part: &P)
    where
        P: IntoBytes + Immutable + Copy,
    {
        const { assert!(align_of::<P>() <= 8, "aligned by the offset") };
        assert!(offset + size_of::<P>() <= size_of::<T>() && offset.is_multiple_of(8));
        let entry = self.entry(index).cast::<u8>();
        // SAFETY: the part lies within the entry and is aligned to 8.
        unsafe { std::ptr::write_volatile(entry.add(offset).cast::<P>(), *part) }
    }
}

impl<T> Drop for MappedArrayMap<T> {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping that `map` made; nothing borrows from it any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

fn page_size() -> usize {
    // SAFETY: queries a constant of the system.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(4096)
}
