//! `AF_XDP` sockets. Frames that an XDP program redirects to a socket arrive in memory shared with
//! this process, and frames that the process sends leave by the interface; both bypass the network
//! stack (Linux, `Documentation/networking/af_xdp.rst`). A socket serves one receive queue of one
//! interface. The caller interprets the frames.

mod ring;

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::time::Duration;

use libc::{SOL_XDP, c_int, xdp_desc};
use ring::Ring;

use crate::abi::XSK_FRAME_MAX;
use crate::{Interface, XdpError};

/// Length of the receive timestamp that the program prepends to a frame: monotonic time in ns.
const TIMESTAMP_BYTES: usize = 8;
/// Entries of the fill and receive rings; a power of two. At 200,000 frames a second they fill up
/// in 10 ms, a few time slices, which a thread that shares its core may have to wait.
const RECEIVE_RING: u32 = 2048;
/// Entries of the transmit and completion rings; a power of two.
const TRANSMIT_RING: u32 = 512;
/// Number of frames: one for each entry of the fill ring and of the transmit ring.
const FRAMES: u32 = RECEIVE_RING + TRANSMIT_RING;
/// Longest frame that can be sent or received, in bytes.
const FRAME_MAX: usize = FRAME_BYTES - 256;
const _: () = assert!(FRAME_MAX == XSK_FRAME_MAX);
/// Length that marks a frame as withdrawn: it exceeds the frame memory, so the kernel skips the
/// descriptor.
const WITHDRAWN_LEN: u32 = 2 * FRAME_BYTES as u32;

/// `AF_XDP` socket bound to one receive queue; it receives once it is in the map of an XDP program.
pub struct XskSocket {
    // Unmapped and closed in this order: the kernel releases the memory with the descriptor.
    fill: Ring<u64>,
    completion: Ring<u64>,
    receive: Ring<xdp_desc>,
    transmit: Ring<xdp_desc>,
    descriptor: OwnedFd,
    memory: Umem,
    /// Offsets of the frames that neither the kernel nor a ring holds.
    free: Vec<u64>,
    /// Offsets of the frames withdrawn from the transmit ring, in order. The kernel may already
    /// have sent the first of them; nothing is queued until they are reclaimed.
    withdrawn: Vec<u64>,
    /// Frames that the kernel has skipped so far (`tx_invalid_descs`).
    skipped: u64,
}

/// Frame received by an [`XskSocket`].
#[derive(Clone, Copy, Debug)]
pub struct XskFrame<'a> {
    /// Contents of the frame.
    pub bytes: &'a [u8],
    /// Arrival at the XDP program on the monotonic clock, in ns.
    pub received_ns: u64,
}

impl XskSocket {
    /// Opens a socket in copy mode on receive queue `queue` of the interface.
    pub fn open(interface: &Interface, queue: u32) -> Result<Self, XdpError> {
        Self::try_open(interface.index, queue).map_err(|source| match source.raw_os_error() {
            Some(libc::EPERM) => XdpError::QueuePrivilege { interface: interface.name.clone() },
            Some(libc::EBUSY) => XdpError::QueueBusy { interface: interface.name.clone(), queue },
            _ => XdpError::Queue { interface: interface.name.clone(), queue, source },
        })
    }

    fn try_open(interface: u32, queue: u32) -> io::Result<Self> {
        // SAFETY: three numbers in, a new descriptor out, owned from here on.
        let descriptor = unsafe {
            let raw = check(libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0))?;
            OwnedFd::from_raw_fd(raw)
        };
        let socket = descriptor.as_fd();
        let memory = Umem::new(FRAMES)?;
        set_option(socket, libc::XDP_UMEM_REG, &memory.registration())?;
        for (ring, entries) in [
            (libc::XDP_UMEM_FILL_RING, RECEIVE_RING),
            (libc::XDP_UMEM_COMPLETION_RING, TRANSMIT_RING),
            (libc::XDP_RX_RING, RECEIVE_RING),
            (libc::XDP_TX_RING, TRANSMIT_RING),
        ] {
            set_option(socket, ring, &entries)?;
        }
        let offsets = ring_offsets(socket)?;
        let fill = libc::XDP_UMEM_PGOFF_FILL_RING as libc::off_t;
        let completion = libc::XDP_UMEM_PGOFF_COMPLETION_RING as libc::off_t;
        let mut opened = Self {
            fill: Ring::map(socket, fill, offsets.fr, RECEIVE_RING)?,
            completion: Ring::map(socket, completion, offsets.cr, TRANSMIT_RING)?,
            receive: Ring::map(socket, libc::XDP_PGOFF_RX_RING, offsets.rx, RECEIVE_RING)?,
            transmit: Ring::map(socket, libc::XDP_PGOFF_TX_RING, offsets.tx, TRANSMIT_RING)?,
            free: (RECEIVE_RING..FRAMES).map(offset_of_frame).collect(),
            withdrawn: Vec::with_capacity(TRANSMIT_RING as usize),
            skipped: 0,
            memory,
            descriptor,
        };
        for frame in 0..RECEIVE_RING {
            opened.fill.produce(offset_of_frame(frame));
        }
        opened.fill.publish();
        bind(opened.descriptor.as_fd(), interface, queue)?;
        Ok(opened)
    }

    /// Calls `handle` for up to `limit` frames that have arrived, without waiting, and returns
    /// their number. A frame's memory returns to the kernel after its call of `handle`.
    pub fn receive(&mut self, limit: usize, mut handle: impl FnMut(XskFrame<'_>)) -> usize {
        let room = self.fill.free_entries();
        let count = self.receive.ready_entries().min(limit as u32).min(room);
        for _ in 0..count {
            let descriptor = self.receive.consume();
            let offset = descriptor.addr.saturating_sub(TIMESTAMP_BYTES as u64);
            let timestamp = self.memory.bytes(offset, TIMESTAMP_BYTES).first_chunk().copied();
            handle(XskFrame {
                bytes: self.memory.bytes(descriptor.addr, descriptor.len as usize),
                received_ns: u64::from_ne_bytes(timestamp.unwrap_or_default()),
            });
            // Any address within a frame returns the whole frame to the kernel.
            self.fill.produce(descriptor.addr);
        }
        if count > 0 {
            self.receive.release();
            self.fill.publish();
        }
        count as usize
    }

    /// Waits up to `wait` for a frame; returns true if one has arrived. A signal ends the wait
    /// early.
    ///
    /// # Errors
    ///
    /// Errors of the kernel.
    pub fn wait(&self, wait: Duration) -> io::Result<bool> {
        let timeout = libc::timespec {
            tv_sec: i64::try_from(wait.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: wait.subsec_nanos().into(),
        };
        let descriptor = self.descriptor.as_raw_fd();
        let mut entry = libc::pollfd { fd: descriptor, events: libc::POLLIN, revents: 0 };
        // SAFETY: one pollfd and one timespec, both alive for the call; a null mask is allowed.
        let ready = unsafe { libc::ppoll(&raw mut entry, 1, &raw const timeout, std::ptr::null()) };
        match check(ready) {
            Ok(count) => Ok(count > 0),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Queues a frame for [`XskSocket::flush`]. `write` fills the buffer and returns the length in
    /// bytes, 0 for no frame. Returns false if there is no frame or no room, or the kernel has not
    /// skipped all withdrawn frames yet.
    pub fn push(&mut self, write: impl FnOnce(&mut [u8]) -> usize) -> bool {
        if !self.withdrawn.is_empty() && !self.reclaim_withdrawn() {
            return false;
        }
        if self.free.is_empty() {
            self.reclaim();
        }
        if self.transmit.free_entries() == 0 {
            return false;
        }
        let Some(addr) = self.free.pop() else { return false };
        let buffer = self.memory.bytes_mut(addr, FRAME_MAX);
        let len = write(buffer).min(buffer.len()) as u32;
        if len == 0 {
            self.free.push(addr);
            return false;
        }
        self.transmit.produce(xdp_desc { addr, len, options: 0 });
        true
    }

    /// Sends the queued frames and returns the number that did not leave. They are withdrawn and do
    /// not leave later. After an error, their number is unknown.
    ///
    /// # Errors
    ///
    /// Errors of the interface itself: it is down, or removed.
    pub fn flush(&mut self) -> io::Result<usize> {
        self.transmit.publish();
        let result = self.drive_transmit();
        let unsent = if self.is_drained() { 0 } else { self.withdraw() };
        self.reclaim();
        result.map(|()| unsent)
    }

    /// Makes the kernel send the frames in the transmit ring, as far as the interface has room.
    fn drive_transmit(&mut self) -> io::Result<()> {
        // Without support in the driver each call sends a few dozen frames and reports whether more
        // are left, or ends with a frame that was dropped or skipped.
        for _ in 0..=TRANSMIT_RING {
            if self.is_drained() || !self.transmit.needs_wakeup() {
                break;
            }
            // SAFETY: an empty message on an open descriptor: the call moves the ring along.
            let sent = unsafe {
                libc::sendto(
                    self.descriptor.as_raw_fd(),
                    std::ptr::null(),
                    0,
                    libc::MSG_DONTWAIT,
                    std::ptr::null(),
                    0,
                )
            };
            if sent >= 0 {
                continue;
            }
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EAGAIN | libc::EINTR | libc::EBUSY) => self.reclaim(),
                Some(libc::ENOBUFS) => break,
                _ => return Err(error),
            }
        }
        Ok(())
    }

    /// Returns true if the kernel has consumed all frames in the transmit ring.
    fn is_drained(&mut self) -> bool {
        self.transmit.free_entries() == TRANSMIT_RING
    }

    /// Withdraws the frames left in the transmit ring and returns the number of those not withdrawn
    /// before: an interface that comes up after minutes must not send outdated frames. In copy mode
    /// the kernel reads the ring only in system calls of this thread, so entries can be rewritten
    /// in between. They cannot be removed, because the kernel may have cached that they exist, and
    /// may have consumed the first of them without having reported it.
    fn withdraw(&mut self) -> usize {
        let withdrawn = &mut self.withdrawn;
        let before = withdrawn.len();
        self.transmit.rewrite(|entry| {
            if entry.len != WITHDRAWN_LEN {
                withdrawn.push(entry.addr);
            }
            xdp_desc { len: WITHDRAWN_LEN, ..entry }
        });
        self.withdrawn.len() - before
    }

    /// Reclaims the withdrawn frames once the kernel has skipped them; returns true if all of them
    /// were reclaimed.
    fn reclaim_withdrawn(&mut self) -> bool {
        if self.drive_transmit().is_err() || !self.is_drained() {
            return false;
        }
        let mut statistics = no_statistics();
        if get_option(self.descriptor.as_fd(), libc::XDP_STATISTICS, &mut statistics).is_err() {
            return false;
        }
        let skipped = (statistics.tx_invalid_descs - self.skipped) as usize;
        self.skipped = statistics.tx_invalid_descs;
        // The kernel processes the ring in order: the first frames were sent before the withdrawal,
        // and return through the completion ring.
        let taken = self.withdrawn.len().saturating_sub(skipped);
        self.free.extend(self.withdrawn.drain(..).skip(taken));
        true
    }

    /// Reclaims the frames in the completion ring, which have left.
    fn reclaim(&mut self) {
        let done = self.completion.ready_entries();
        for _ in 0..done {
            let addr = self.completion.consume();
            self.free.push(addr);
        }
        if done > 0 {
            self.completion.release();
        }
    }

    /// Returns a reader of the number of dropped frames, usable by another thread.
    ///
    /// # Errors
    ///
    /// The limit of open descriptors of the process.
    pub fn drop_counter(&self) -> io::Result<XskDropCounter> {
        self.descriptor.try_clone().map(XskDropCounter)
    }
}

/// Reader of the number of received frames that the kernel dropped at an [`XskSocket`].
#[derive(Debug)]
pub struct XskDropCounter(OwnedFd);

impl XskDropCounter {
    /// Returns the number of received frames dropped since the socket was opened: for lack of room
    /// in the receive ring or of a free frame, or for another reason.
    ///
    /// # Errors
    ///
    /// Errors of the kernel.
    pub fn count(&self) -> io::Result<u64> {
        let mut statistics = no_statistics();
        get_option(self.0.as_fd(), libc::XDP_STATISTICS, &mut statistics)?;
        // The three are separate: no room in the ring, no free frame, and anything else.
        let full = statistics.rx_ring_full + statistics.rx_fill_ring_empty_descs;
        Ok(statistics.rx_dropped + full)
    }
}

impl AsFd for XskSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl std::fmt::Debug for XskSocket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("XskSocket").field("free", &self.free.len()).finish_non_exhaustive()
    }
}

fn no_statistics() -> libc::xdp_statistics {
    // SAFETY: a structure of numbers, for which all bytes zero is valid.
    unsafe { std::mem::zeroed() }
}

fn offset_of_frame(number: u32) -> u64 {
    u64::from(number) * FRAME_BYTES as u64
}

fn bind(socket: BorrowedFd<'_>, interface: u32, queue: u32) -> io::Result<()> {
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        // Copy mode: the NIC's queue keeps its own memory, so frames for the network stack are not
        // slowed.
        sxdp_flags: libc::XDP_USE_NEED_WAKEUP | libc::XDP_COPY,
        sxdp_ifindex: interface,
        sxdp_queue_id: queue,
        sxdp_shared_umem_fd: 0,
    };
    let len = size_of::<libc::sockaddr_xdp>() as libc::socklen_t;
    // SAFETY: the address and its length, alive for the call.
    check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) }).map(drop)
}

fn ring_offsets(socket: BorrowedFd<'_>) -> io::Result<libc::xdp_mmap_offsets> {
    // SAFETY: a structure of numbers, for which all bytes zero is valid.
    let mut offsets: libc::xdp_mmap_offsets = unsafe { std::mem::zeroed() };
    get_option(socket, libc::XDP_MMAP_OFFSETS, &mut offsets)?;
    Ok(offsets)
}

fn check(result: c_int) -> io::Result<c_int> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn set_option<T>(socket: BorrowedFd<'_>, option: c_int, value: &T) -> io::Result<()> {
    let len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the pointer and length are those of `value`, which outlives the call.
    let result = unsafe {
        libc::setsockopt(socket.as_raw_fd(), SOL_XDP, option, std::ptr::from_ref(value).cast(), len)
    };
    check(result).map(drop)
}

fn get_option<T>(socket: BorrowedFd<'_>, option: c_int, value: &mut T) -> io::Result<()> {
    let mut len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the pointer and length are those of `value`, which holds numbers only.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            SOL_XDP,
            option,
            std::ptr::from_mut(value).cast(),
            &raw mut len,
        )
    };
    check(result).map(drop)
}

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
