//! Ring of an `AF_XDP` socket: a single-producer, single-consumer queue in memory shared with the
//! kernel (Linux, `Documentation/networking/af_xdp.rst`). This process is the producer of the fill
//! and transmit rings and the consumer of the other two.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use libc::xdp_ring_offset;

/// Mapped ring of entries `T`. `produced` and `consumed` are local copies of the two shared
/// counters.
pub(super) struct Ring<T> {
    base: NonNull<u8>,
    bytes: usize,
    offsets: xdp_ring_offset,
    entries: u32,
    produced: u32,
    consumed: u32,
    entry: std::marker::PhantomData<T>,
}

// SAFETY: the mapping belongs to the process; this end of the ring is used by the owner of the
// `Ring`, one thread at a time, and the entries are plain numbers.
unsafe impl<T: Send> Send for Ring<T> {}

impl<T: Copy> Ring<T> {
    /// Maps a ring of `entries` entries, a power of two, that the kernel has created for the
    /// socket.
    pub(super) fn map(
        socket: BorrowedFd<'_>,
        page_offset: libc::off_t,
        offsets: xdp_ring_offset,
        entries: u32,
    ) -> io::Result<Self> {
        let bytes = offsets.desc as usize + entries as usize * size_of::<T>();
        // SAFETY: a fresh shared mapping of an open descriptor; nothing else is touched.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                socket.as_raw_fd(),
                page_offset,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let entry = std::marker::PhantomData;
        Ok(Self { base, bytes, offsets, entries, produced: 0, consumed: 0, entry })
    }

    fn counter(&self, offset: u64) -> &AtomicU32 {
        // SAFETY: the kernel returned the offset of an aligned 32-bit counter within this mapping,
        // which lives as long as `self`; both ends use atomic accesses.
        unsafe { AtomicU32::from_ptr(self.base.as_ptr().add(offset as usize).cast()) }
    }

    fn slot(&self, index: u32) -> *mut T {
        let index = (index & (self.entries - 1)) as usize;
        // SAFETY: the index is below the number of entries, for which the mapping has room after
        // the offset that the kernel returned.
        unsafe { self.base.as_ptr().add(self.offsets.desc as usize).cast::<T>().add(index) }
    }

    /// Returns the number of entries that can be written now (producer).
    pub(super) fn free_entries(&mut self) -> u32 {
        self.consumed = self.counter(self.offsets.consumer).load(Ordering::Acquire);
        self.entries - self.produced.wrapping_sub(self.consumed)
    }

    /// Writes an entry, which the kernel reads after [`Ring::publish`] (producer). An entry must be
    /// free.
    pub(super) fn produce(&mut self, value: T) {
        debug_assert!(self.produced.wrapping_sub(self.consumed) < self.entries);
        // SAFETY: the slot lies in the mapping, is aligned for `T` by the kernel's layout, and is
        // not read by the kernel before it is published.
        unsafe { self.slot(self.produced).write_volatile(value) };
        self.produced = self.produced.wrapping_add(1);
    }

    /// Publishes the written entries to the kernel (producer).
    pub(super) fn publish(&mut self) {
        self.counter(self.offsets.producer).store(self.produced, Ordering::Release);
    }

    /// Replaces each published entry that the kernel has not released by the result of `change` for
    /// it, in order (producer). The kernel may have read some of them, but must not be reading now.
    pub(super) fn rewrite(&mut self, mut change: impl FnMut(T) -> T) {
        let unreleased = self.entries - self.free_entries();
        for index in (0..unreleased).map(|ahead| self.consumed.wrapping_add(ahead)) {
            // SAFETY: the slot lies in the mapping and was written by `produce`; the other end does
            // not read now, as the caller ensures.
            unsafe {
                let slot = self.slot(index);
                slot.write_volatile(change(slot.read_volatile()));
            }
        }
    }

    /// Returns the number of entries that can be read now (consumer).
    pub(super) fn ready_entries(&mut self) -> u32 {
        self.produced = self.counter(self.offsets.producer).load(Ordering::Acquire);
        self.produced.wrapping_sub(self.consumed)
    }

    /// Reads the next entry, which must be ready (consumer).
    pub(super) fn consume(&mut self) -> T {
        debug_assert!(self.produced != self.consumed);
        // SAFETY: the slot lies in the mapping and was written before the kernel published it.
        let value = unsafe { self.slot(self.consumed).read_volatile() };
        self.consumed = self.consumed.wrapping_add(1);
        value
    }

    /// Releases the entries read so far to the kernel (consumer).
    pub(super) fn release(&mut self) {
        self.counter(self.offsets.consumer).store(self.consumed, Ordering::Release);
    }

    /// Returns true if the kernel needs a system call before it continues with this ring.
    pub(super) fn needs_wakeup(&self) -> bool {
        self.counter(self.offsets.flags).load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping that `map` made; nothing borrows from it any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}
