//! `AF_XDP` sockets: frames that an XDP program redirects to one arrive in memory shared with this
//! process, and frames that the process sends leave by the interface, both bypassing the network
//! stack (Linux, `Documentation/networking/af_xdp.rst`). A socket serves one receive queue of one
//! interface. The caller interprets the frames.

mod ring;
mod umem;

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use libc::{SOL_XDP, c_int, xdp_desc};

use crate::abi::XSK_FRAME_MAX;
use crate::{Interface, XdpError};
use ring::Ring;
use umem::{FRAME_BYTES, Umem};

/// Bytes that the program prepends to a frame: the monotonic instant of its arrival, in ns.
const TIMESTAMP_BYTES: usize = 8;
/// Entries of the rings of incoming frames; a power of two. At 200,000 a second they fill up in 10
/// ms: a few time slices, which a thread that shares its core may have to wait.
const RECEIVE_RING: u32 = 2048;
/// Entries of the rings of outgoing frames; a power of two.
const TRANSMIT_RING: u32 = 512;
/// Number of frames: one for each entry of the fill ring and of the transmit ring.
const FRAMES: u32 = RECEIVE_RING + TRANSMIT_RING;
/// Longest frame that can be sent or received.
const FRAME_MAX: usize = FRAME_BYTES - 256;
const _: () = assert!(FRAME_MAX == XSK_FRAME_MAX);
/// Length of a frame that must not leave: longer than its memory, so the kernel skips it.
const WITHDRAWN: u32 = 2 * FRAME_BYTES as u32;

/// An `AF_XDP` socket, bound to one queue; it receives once it is in a program's map.
pub struct XskSocket {
    // Unmapped and closed in this order: the kernel releases the memory with the descriptor.
    fill: Ring<u64>,
    completion: Ring<u64>,
    receive: Ring<xdp_desc>,
    transmit: Ring<xdp_desc>,
    descriptor: OwnedFd,
    memory: Umem,
    /// Frames that are neither with the kernel nor in use.
    free: Vec<u64>,
    /// Frames withdrawn from the end of the transmit ring, in order. The kernel may already have
    /// sent some at their start; while there are any, nothing is added after them.
    withdrawn: Vec<u64>,
    /// Frames that the kernel has skipped, by its last report.
    passed_over: u64,
}

/// A received frame.
#[derive(Clone, Copy, Debug)]
pub struct XskFrame<'a> {
    /// Contents of the frame.
    pub bytes: &'a [u8],
    /// Arrival at the program, on the monotonic clock, in ns.
    pub received_ns: u64,
}

impl XskSocket {
    /// Opens a socket on receive queue `queue` of the interface. The kernel copies frames.
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
        set(socket, libc::XDP_UMEM_REG, &memory.registration())?;
        for (ring, entries) in [
            (libc::XDP_UMEM_FILL_RING, RECEIVE_RING),
            (libc::XDP_UMEM_COMPLETION_RING, TRANSMIT_RING),
            (libc::XDP_RX_RING, RECEIVE_RING),
            (libc::XDP_TX_RING, TRANSMIT_RING),
        ] {
            set(socket, ring, &entries)?;
        }
        let offsets = offsets(socket)?;
        let fill = libc::XDP_UMEM_PGOFF_FILL_RING as libc::off_t;
        let completion = libc::XDP_UMEM_PGOFF_COMPLETION_RING as libc::off_t;
        let mut opened = Self {
            fill: Ring::map(socket, fill, offsets.fr, RECEIVE_RING)?,
            completion: Ring::map(socket, completion, offsets.cr, TRANSMIT_RING)?,
            receive: Ring::map(socket, libc::XDP_PGOFF_RX_RING, offsets.rx, RECEIVE_RING)?,
            transmit: Ring::map(socket, libc::XDP_PGOFF_TX_RING, offsets.tx, TRANSMIT_RING)?,
            free: (RECEIVE_RING..FRAMES).map(offset_of_frame).collect(),
            withdrawn: Vec::with_capacity(TRANSMIT_RING as usize),
            passed_over: 0,
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

    /// Passes up to `limit` frames that have arrived to `take`, without waiting, and returns their
    /// number. A frame's memory is returned to the kernel when `take` returns.
    pub fn receive(&mut self, limit: usize, mut take: impl FnMut(XskFrame<'_>)) -> usize {
        let room = self.fill.free();
        let count = self.receive.ready().min(limit as u32).min(room);
        for _ in 0..count {
            let descriptor = self.receive.consume();
            let stamp = descriptor.addr.saturating_sub(TIMESTAMP_BYTES as u64);
            let stamp = self.memory.bytes(stamp, TIMESTAMP_BYTES).first_chunk().copied();
            take(XskFrame {
                bytes: self.memory.bytes(descriptor.addr, descriptor.len as usize),
                received_ns: u64::from_ne_bytes(stamp.unwrap_or_default()),
            });
            // The kernel finds the frame that contains an address.
            self.fill.produce(descriptor.addr);
        }
        if count > 0 {
            self.receive.release();
            self.fill.publish();
        }
        count as usize
    }

    /// Waits up to `wait` until a frame has arrived; returns true if one has. A signal ends the
    /// wait as if the time were over.
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

    /// Queues a frame that `write` writes into the buffer and returns the length of, 0 for none;
    /// returns true if there is one. It leaves with [`XskSocket::flush`].
    pub fn push(&mut self, write: impl FnOnce(&mut [u8]) -> usize) -> bool {
        if !self.withdrawn.is_empty() && !self.recover() {
            return false;
        }
        if self.free.is_empty() {
            self.reclaim();
        }
        if self.transmit.free() == 0 {
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

    /// Sends the queued frames and returns how many did not leave; with an error none did. They do
    /// not leave later either.
    ///
    /// # Errors
    ///
    /// Errors of the interface itself: it is down, or removed.
    pub fn flush(&mut self) -> io::Result<usize> {
        self.transmit.publish();
        let moved = self.move_along();
        let left = if self.is_drained() { 0 } else { self.withdraw() };
        self.reclaim();
        moved.map(|()| left)
    }

    /// Makes the kernel take the frames in the transmit ring, as far as the interface has room for
    /// them.
    fn move_along(&mut self) -> io::Result<()> {
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

    /// Returns true if the kernel has taken all frames in the transmit ring.
    fn is_drained(&mut self) -> bool {
        self.transmit.free() == TRANSMIT_RING
    }

    /// Makes the kernel skip the frames left in the transmit ring, and returns their number: an
    /// interface that comes up after minutes must not send outdated frames. The kernel copies
    /// frames, so it reads the ring in system calls of this thread only, and the entries can be
    /// rewritten in between. They cannot be removed: the kernel may have cached that they exist,
    /// and may have taken the first of them without having reported it.
    fn withdraw(&mut self) -> usize {
        let withdrawn = &mut self.withdrawn;
        let before = withdrawn.len();
        self.transmit.rewrite(|entry| {
            if entry.len != WITHDRAWN {
                withdrawn.push(entry.addr);
            }
            xdp_desc { len: WITHDRAWN, ..entry }
        });
        self.withdrawn.len() - before
    }

    /// Reclaims the memory of withdrawn frames if the kernel has skipped them; returns true if it
    /// has.
    fn recover(&mut self) -> bool {
        if self.move_along().is_err() || !self.is_drained() {
            return false;
        }
        let mut statistics = no_statistics();
        if get(self.descriptor.as_fd(), libc::XDP_STATISTICS, &mut statistics).is_err() {
            return false;
        }
        let passed_over = (statistics.tx_invalid_descs - self.passed_over) as usize;
        self.passed_over = statistics.tx_invalid_descs;
        // It processes the ring in order: earlier frames were taken, and are returned as others
        // are.
        let taken = self.withdrawn.len().saturating_sub(passed_over);
        self.free.extend(self.withdrawn.drain(..).skip(taken));
        true
    }

    /// Reclaims frames that have left.
    fn reclaim(&mut self) {
        let done = self.completion.ready();
        for _ in 0..done {
            let addr = self.completion.consume();
            self.free.push(addr);
        }
        if done > 0 {
            self.completion.release();
        }
    }

    /// Returns a second handle, to read the number of dropped frames.
    ///
    /// # Errors
    ///
    /// The limit of open descriptors of the process.
    pub fn drops(&self) -> io::Result<XskDrops> {
        self.descriptor.try_clone().map(XskDrops)
    }
}

/// Counter of the frames that an [`XskSocket`] had no room for.
#[derive(Debug)]
pub struct XskDrops(OwnedFd);

impl XskDrops {
    /// Returns the number of frames dropped for lack of room since the socket was opened.
    ///
    /// # Errors
    ///
    /// Errors of the kernel.
    pub fn count(&self) -> io::Result<u64> {
        let mut statistics = no_statistics();
        get(self.0.as_fd(), libc::XDP_STATISTICS, &mut statistics)?;
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
        // A NIC's queue keeps its own memory: other frames that come in by it are not slowed.
        sxdp_flags: libc::XDP_USE_NEED_WAKEUP | libc::XDP_COPY,
        sxdp_ifindex: interface,
        sxdp_queue_id: queue,
        sxdp_shared_umem_fd: 0,
    };
    let len = size_of::<libc::sockaddr_xdp>() as libc::socklen_t;
    // SAFETY: the address and its length, alive for the call.
    check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) }).map(drop)
}

fn offsets(socket: BorrowedFd<'_>) -> io::Result<libc::xdp_mmap_offsets> {
    // SAFETY: a structure of numbers, for which all bytes zero is valid.
    let mut offsets: libc::xdp_mmap_offsets = unsafe { std::mem::zeroed() };
    get(socket, libc::XDP_MMAP_OFFSETS, &mut offsets)?;
    Ok(offsets)
}

fn check(result: c_int) -> io::Result<c_int> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn set<T>(socket: BorrowedFd<'_>, option: c_int, value: &T) -> io::Result<()> {
    let len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the pointer and length are those of `value`, which outlives the call.
    let result = unsafe {
        libc::setsockopt(socket.as_raw_fd(), SOL_XDP, option, std::ptr::from_ref(value).cast(), len)
    };
    check(result).map(drop)
}

fn get<T>(socket: BorrowedFd<'_>, option: c_int, value: &mut T) -> io::Result<()> {
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
