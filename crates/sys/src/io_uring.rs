//! Minimal `io_uring` that waits for timeouts (`IORING_OP_TIMEOUT`), one request at a time. The
//! layout is that of `linux/io_uring.h`.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::descriptor::{check, check_new};

const ENTRIES: u32 = 1;
const OP_TIMEOUT: u8 = 11;
const ENTER_GETEVENTS: libc::c_uint = 1;
/// Mapping offsets of the submission ring, the completion ring and the submission entries.
const OFFSET_SUBMISSION: libc::off_t = 0;
const OFFSET_COMPLETION: libc::off_t = 0x800_0000;
const OFFSET_ENTRIES: libc::off_t = 0x1000_0000;

/// `struct io_sqring_offsets` and `struct io_cqring_offsets`: ten 32-bit words each.
type RingOffsets = [u32; 10];

/// `struct io_uring_params`.
#[repr(C)]
#[derive(Default)]
struct RingParameters {
    submission_entries: u32,
    completion_entries: u32,
    flags: u32,
    thread: [u32; 2],
    features: u32,
    reserved: [u32; 4],
    submission: RingOffsets,
    completion: RingOffsets,
}

/// Fields of `struct io_uring_sqe` that a timeout uses.
#[repr(C)]
#[derive(Clone, Copy)]
struct SubmissionEntry {
    operation: u8,
    flags: u8,
    priority: u16,
    descriptor: i32,
    count: u64,
    address: u64,
    length: u32,
    timeout_flags: u32,
    user_data: u64,
    rest: [u64; 3],
}

/// `struct io_uring_cqe`.
#[repr(C)]
#[derive(Clone, Copy)]
struct CompletionEntry {
    user_data: u64,
    result: i32,
    flags: u32,
}

/// `struct __kernel_timespec`.
#[repr(C)]
struct KernelTimespec {
    seconds: i64,
    nanoseconds: i64,
}

/// Mapping of memory shared with the kernel.
#[derive(Debug)]
struct RingMapping {
    start: *mut u8,
    length: usize,
}

// SAFETY: the memory belongs to the value alone in this process, wherever it goes.
unsafe impl Send for RingMapping {}

impl RingMapping {
    fn new(ring: &OwnedFd, length: usize, offset: libc::off_t) -> io::Result<Self> {
        // SAFETY: a new mapping at an address that the kernel chooses.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                ring.as_raw_fd(),
                offset,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { start: start.cast(), length })
    }

    /// Returns a pointer to the `T` at `offset`, which must be aligned and within the mapping.
    fn pointer_at<T>(&self, offset: usize) -> io::Result<*mut T> {
        let end = offset.checked_add(size_of::<T>()).filter(|end| *end <= self.length);
        if end.is_none() || !offset.is_multiple_of(align_of::<T>()) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        // SAFETY: within the mapping, as was just checked.
        Ok(unsafe { self.start.add(offset) }.cast())
    }
}

impl Drop for RingMapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and nothing points into it any more.
        let _ = unsafe { libc::munmap(self.start.cast(), self.length) };
    }
}

/// `io_uring` that only waits for timeouts.
#[derive(Debug)]
pub struct TimeoutRing {
    submission: RingMapping,
    completion: RingMapping,
    entries: RingMapping,
    /// Offsets of ring fields in the mappings.
    submission_tail: usize,
    completion_head: usize,
    completion_tail: usize,
    completion_mask: u32,
    completions_at: usize,
    // Dropped after the mappings of it.
    ring: OwnedFd,
}

impl TimeoutRing {
    /// Creates a ring.
    ///
    /// # Errors
    ///
    /// If the kernel has none, or it is forbidden (`kernel.io_uring_disabled`, a sandbox).
    pub fn open() -> io::Result<Self> {
        let mut parameters = RingParameters::default();
        // SAFETY: the structure of the size that the kernel expects, alive for the call; a new
        // descriptor out, owned from here on.
        let ring = unsafe {
            let result = libc::syscall(libc::SYS_io_uring_setup, ENTRIES, &raw mut parameters);
            check_new(result as libc::c_int)
        }?;
        let RingParameters { submission_entries, completion_entries, .. } = parameters;
        // struct io_sqring_offsets: head, tail, ring_mask, ring_entries, flags, dropped, array.
        let [_, tail, _, _, _, _, array, ..] = parameters.submission.map(|word| word as usize);
        // struct io_cqring_offsets: head, tail, ring_mask, ring_entries, overflow, cqes.
        let [head, completion_tail, mask, _, _, completions, ..] =
            parameters.completion.map(|word| word as usize);
        let submission_length = array + submission_entries as usize * size_of::<u32>();
        let completion_length =
            completions + completion_entries as usize * size_of::<CompletionEntry>();
        let submission = RingMapping::new(&ring, submission_length, OFFSET_SUBMISSION)?;
        let completion = RingMapping::new(&ring, completion_length, OFFSET_COMPLETION)?;
        let length = submission_entries as usize * size_of::<SubmissionEntry>();
        let entries = RingMapping::new(&ring, length, OFFSET_ENTRIES)?;
        // SAFETY: both words lie in their mappings; the ring is not in use yet.
        let completion_mask = unsafe {
            submission.pointer_at::<u32>(array)?.write(0);
            completion.pointer_at::<u32>(mask)?.read()
        };
        Ok(Self {
            submission,
            completion,
            entries,
            submission_tail: tail,
            completion_head: head,
            completion_tail,
            completion_mask,
            completions_at: completions,
            ring,
        })
    }

    /// Waits once for this delay.
    ///
    /// # Errors
    ///
    /// `Interrupted` if a signal ended the wait; the timeout is then still in flight, so the ring
    /// cannot be used again. Other errors of the kernel.
    pub fn wait(&mut self, delay: Duration) -> io::Result<()> {
        let time = KernelTimespec {
            seconds: i64::try_from(delay.as_secs()).unwrap_or(i64::MAX),
            nanoseconds: delay.subsec_nanos().into(),
        };
        let request = SubmissionEntry {
            operation: OP_TIMEOUT,
            flags: 0,
            priority: 0,
            descriptor: -1,
            // 0: the timeout does not end after a number of other completions.
            count: 0,
            address: std::ptr::from_ref(&time) as u64,
            length: 1,
            timeout_flags: 0,
            user_data: 0,
            rest: [0; 3],
        };
        // SAFETY: the one entry of the ring, which the kernel does not read until the tail
        // moves.
        unsafe { self.entries.pointer_at::<SubmissionEntry>(0)?.write(request) };
        // SAFETY: the word lies in the mapping, is aligned, and is shared with the kernel alone.
        let tail =
            unsafe { AtomicU32::from_ptr(self.submission.pointer_at(self.submission_tail)?) };
        tail.store(tail.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
        let no_mask = std::ptr::null::<libc::sigset_t>();
        // SAFETY: one request in the ring, whose time outlives the call: the kernel copies it when
        // the request is submitted, in this call.
        let result = unsafe {
            libc::syscall(
                libc::SYS_io_uring_enter,
                self.ring.as_raw_fd(),
                1,
                1,
                ENTER_GETEVENTS,
                no_mask,
                0_usize,
            )
        };
        check(result as libc::c_int)?;
        self.take_completion()
    }

    /// Removes the completion from the ring and returns its result; `Interrupted` if there is none.
    fn take_completion(&mut self) -> io::Result<()> {
        // SAFETY: both words lie in the mapping, are aligned, and are shared with the kernel alone.
        let (head, tail) = unsafe {
            (
                AtomicU32::from_ptr(self.completion.pointer_at(self.completion_head)?),
                AtomicU32::from_ptr(self.completion.pointer_at(self.completion_tail)?),
            )
        };
        let position = head.load(Ordering::Relaxed);
        if position == tail.load(Ordering::Acquire) {
            // The wait ended before the timeout expired.
            return Err(io::ErrorKind::Interrupted.into());
        }
        let index = (position & self.completion_mask) as usize;
        let at = self.completions_at + index * size_of::<CompletionEntry>();
        // SAFETY: an entry within the mapping that the kernel has written, as the tail shows.
        let result = unsafe { self.completion.pointer_at::<CompletionEntry>(at)?.read() }.result;
        head.store(position.wrapping_add(1), Ordering::Release);
        match -result {
            // `ETIME` is the result of an expired timeout.
            libc::ETIME | 0 => Ok(()),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_are_the_kernel_s() {
        assert_eq!(size_of::<RingParameters>(), 120);
        assert_eq!(size_of::<SubmissionEntry>(), 64);
        assert_eq!((size_of::<CompletionEntry>(), size_of::<KernelTimespec>()), (16, 16));
    }

    #[test]
    fn timeouts_follow_one_another() {
        // A sandbox may forbid it.
        let Ok(mut ring) = TimeoutRing::open() else { return };
        for _ in 0..40 {
            let begun = std::time::Instant::now();
            ring.wait(Duration::from_micros(200)).unwrap();
            assert!(begun.elapsed() >= Duration::from_micros(200));
        }
    }
}
