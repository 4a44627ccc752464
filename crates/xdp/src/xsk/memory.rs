//! The memory of an `AF_XDP` socket: frames of one size that kernel and process hand to one another
//! by their offsets (UMEM; Linux, `Documentation/networking/af_xdp.rst`).

use std::io;
use std::ptr::NonNull;

/// Bytes of one frame, headroom for the kernel included: the smallest that it takes on all cards.
pub(super) const FRAME_BYTES: usize = 2048;

/// So many frames in a row, aligned to a page.
pub(super) struct Memory {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to the process; frames are reached through `&mut` or `&` of their one
// owner, and which frames the kernel may write to is kept apart by the rings.
unsafe impl Send for Memory {}

impl Memory {
    pub(super) fn new(frames: u32) -> io::Result<Self> {
        let bytes = frames as usize * FRAME_BYTES;
        // SAFETY: a fresh private mapping of memory of its own.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, bytes })
    }

    /// What the kernel registers.
    pub(super) fn registration(&self) -> libc::xdp_umem_reg {
        libc::xdp_umem_reg {
            addr: self.base.as_ptr() as u64,
            len: self.bytes as u64,
            chunk_size: FRAME_BYTES as u32,
            headroom: 0,
            flags: 0,
            tx_metadata_len: 0,
        }
    }

    /// `len` bytes from `offset` on, which this process owns now; fewer where the memory ends.
    pub(super) fn bytes(&self, offset: u64, len: usize) -> &[u8] {
        let (offset, len) = self.clip(offset, len);
        // SAFETY: the range lies within the mapping, which lives as long as `self`; the kernel does
        // not write to frames that it has handed over and not been given back.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(offset), len) }
    }

    /// As [`Memory::bytes`], to be written.
    pub(super) fn bytes_mut(&mut self, offset: u64, len: usize) -> &mut [u8] {
        let (offset, len) = self.clip(offset, len);
        // SAFETY: as above, and `&mut self` keeps other references away.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr().add(offset), len) }
    }

    fn clip(&self, offset: u64, len: usize) -> (usize, usize) {
        let offset = usize::try_from(offset).unwrap_or(usize::MAX).min(self.bytes);
        (offset, len.min(self.bytes - offset))
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping that `new` made; nothing borrows from it any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}
