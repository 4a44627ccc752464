//! UMEM of an `AF_XDP` socket: frames of equal size that kernel and process exchange by their
//! offsets (Linux, `Documentation/networking/af_xdp.rst`).

use std::io;
use std::ptr::NonNull;

/// Size of one frame in bytes, including the kernel's headroom: the smallest that all NICs accept.
pub(super) const FRAME_BYTES: usize = 2048;

/// Page-aligned memory of contiguous frames.
pub(super) struct Umem {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to the process; frames are accessed through `&mut` or `&` of their
// one owner, and the rings separate out the frames that the kernel may write to.
unsafe impl Send for Umem {}

impl Umem {
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

    /// Returns the argument of `XDP_UMEM_REG`.
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

    /// Returns up to `len` bytes from `offset` on, fewer at the end of the memory. They must belong
    /// to this process, not to the kernel.
    pub(super) fn bytes(&self, offset: u64, len: usize) -> &[u8] {
        let (offset, len) = self.clip(offset, len);
        // SAFETY: the range lies within the mapping, which lives as long as `self`; the kernel does
        // not write to frames that belong to this process.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(offset), len) }
    }

    /// Returns the bytes of [`Umem::bytes`] for writing.
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

impl Drop for Umem {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping that `new` made; nothing borrows from it any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}
