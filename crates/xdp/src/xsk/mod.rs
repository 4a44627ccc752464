//! `AF_XDP` sockets: what an XDP program redirects to one is handed to this process in shared
//! memory, and what the process hands over leaves by the interface, both past the network stack
//! (Linux,
//! `Documentation/networking/af_xdp.rst`). A socket serves one receive queue of one interface. What
//! the frames hold is the caller's.

mod memory;
mod ring;

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use libc::{SOL_XDP, c_int, xdp_desc};

use crate::{Interface, XdpError};
use memory::{FRAME_BYTES, Memory};
use ring::Ring;

/// Bytes that the program puts in front of a frame: the monotonic instant at which it came, in ns.
const STAMP_BYTES: usize = 8;
/// Entries of the rings by which frames come in; a power of two. At 200,000 a second they fill up
/// in 10 ms: a few time slices, which a thread that shares its core may have to wait.
const RECEIVE_RING: u32 = 2048;
/// Entries of the rings by which frames leave; a power of two.
const TRANSMIT_RING: u32 = 512;
/// Frames: one for each entry of the fill ring and of the transmit ring.
const FRAMES: u32 = RECEIVE_RING + TRANSMIT_RING;
/// The longest frame that can be sent or received.
const FRAME_MAX: usize = FRAME_BYTES - 256;
/// The length of a frame that must not leave: longer than its memory, so the kernel passes it over.
const WITHDRAWN: u32 = 2 * FRAME_BYTES as u32;

/// An `AF_XDP` socket, bound to one queue; it receives once it stands in a program's map.
pub struct XskSocket {
    // Unmapped and closed in this order: the kernel lets go of the memory with the descriptor.
    fill: Ring<u64>,
    completion: Ring<u64>,
    receive: Ring<xdp_desc>,
    transmit: Ring<xdp_desc>,
    descriptor: OwnedFd,
    memory: Memory,
    /// Frames that are neither with the kernel nor in use.
    free: Vec<u64>,
    /// Frames that were withdrawn from the end of the transmit ring, in order. Of some at their
    /// beginning the kernel may have been quicker; while there are any, nothing is added behind.
    withdrawn: Vec<u64>,
    /// Frames that the kernel has passed over, as far as was asked.
    passed_over: u64,
}

/// What a frame was received with.
#[derive(Clone, Copy, Debug)]
pub struct XskFrame<'a> {
    /// The frame.
    pub bytes: &'a [u8],
    /// When the program saw it, on the monotonic clock, in ns.
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
        let memory = Memory::new(FRAMES)?;
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

    /// Hands up to `limit` frames that have come to `take`, without waiting, and returns how many.
    /// A frame's memory goes back to the kernel when `take` returns.
    pub fn receive(&mut self, limit: usize, mut take: impl FnMut(XskFrame<'_>)) -> usize {
        let room = self.fill.free();
        let count = self.receive.ready().min(limit as u32).min(room);
        for _ in 0..count {
            let descriptor = self.receive.consume();
            let stamp = descriptor.addr.saturating_sub(STAMP_BYTES as u64);
            let stamp = self.memory.bytes(stamp, STAMP_BYTES).first_chunk().copied();
            take(XskFrame {
                bytes: self.memory.bytes(descriptor.addr, descriptor.len as usize),
                received_ns: u64::from_ne_bytes(stamp.unwrap_or_default()),
            });
            // The kernel finds the frame that an address lies in.
            self.fill.produce(descriptor.addr);
        }
        if count > 0 {
            self.receive.release();
            self.fill.publish();
        }
        count as usize
    }

    /// Waits up to `wait` until a frame has come; says whether one has. A signal ends the wait as
    /// if the time were over.
    ///
    /// # Errors
    ///
    /// What the kernel refused.
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

    /// Readies a frame that `write` puts into the buffer handed to it and returns the length of, 0
    /// for none; says whether there is one. It leaves with [`XskSocket::flush`].
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

    /// Sends what was readied and returns how many frames did not leave; with an error that is all.
    /// They do not leave later either.
    ///
    /// # Errors
    ///
    /// What the interface itself suffers from: it is down, or gone.
    pub fn flush(&mut self) -> io::Result<usize> {
        self.transmit.publish();
        let moved = self.move_along();
        let left = if self.is_drained() { 0 } else { self.withdraw() };
        self.reclaim();
        moved.map(|()| left)
    }

    /// Has the kernel take what is in the transmit ring, as far as the interface has room for it.
    fn move_along(&mut self) -> io::Result<()> {
        // Without a driver of its own each call sends a few dozen frames and says if more are left,
        // or ends with a frame that was dropped or passed over.
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

    /// Whether the kernel has taken all that is in the transmit ring.
    fn is_drained(&mut self) -> bool {
        self.transmit.free() == TRANSMIT_RING
    }

    /// Makes the kernel pass over what is left in the transmit ring, and returns how many frames
    /// that is: an interface that comes up after minutes is not to send what was true then. The
    /// kernel copies frames, so it reads the ring in system calls of this thread only, and the
    /// entries can be rewritten in between. They cannot be taken back: the kernel may remember that
    /// they are there, and may have taken the first of them without having said so.
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

    /// Takes the memory of withdrawn frames back if the kernel has passed them over; says whether
    /// it has.
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
        // It goes through the ring in order: those before were taken, and come back as others do.
        let taken = self.withdrawn.len().saturating_sub(passed_over);
        self.free.extend(self.withdrawn.drain(..).skip(taken));
        true
    }

    /// Takes frames back that have left.
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

    /// A second handle, to ask how many frames were dropped.
    ///
    /// # Errors
    ///
    /// When the process has no descriptor left.
    pub fn drops(&self) -> io::Result<XskDrops> {
        self.descriptor.try_clone().map(XskDrops)
    }
}

/// Tells how many frames an [`XskSocket`] had no room for.
#[derive(Debug)]
pub struct XskDrops(OwnedFd);

impl XskDrops {
    /// Frames that came in when there was no room for them, since the socket was opened.
    ///
    /// # Errors
    ///
    /// What the kernel refused.
    pub fn count(&self) -> io::Result<u64> {
        let mut statistics = no_statistics();
        get(self.0.as_fd(), libc::XDP_STATISTICS, &mut statistics)?;
        // The three stand apart: no room in the ring, no free frame, and anything else.
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
        // A queue of a card keeps its own memory: what else comes in by it is not slowed.
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
