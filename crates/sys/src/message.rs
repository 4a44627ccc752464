//! Batches of datagrams in one system call: recvmmsg(2) and sendmmsg(2). A [`MmsghdrTable`] owns
//! the kernel's structures; the caller owns the payload buffers. No call blocks.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::address::SockaddrBuffer;
use crate::ancillary::{
    CAPACITY as CONTROL_CAPACITY, ControlBuffer, write_source, write_timestamp_request,
};
use crate::descriptor::check;
use crate::socket::LINK_GROUP_LEN;

pub use crate::ancillary::{AncillaryData, TransmitTimestampSource};

/// Kernel tables for a batch of datagrams: headers, buffer references, addresses and control
/// messages. Allocated once.
///
/// The tables contain pointers to one another and to the caller's buffers. Each call writes all of
/// them before it uses them, so a table may be moved between calls, and no pointer is followed
/// outside of a call. The headers must be rewritten anyway, because the kernel overwrites their
/// lengths.
pub struct MmsghdrTable {
    headers: Box<[libc::mmsghdr]>,
    buffers: Box<[libc::iovec]>,
    addresses: Box<[SockaddrBuffer]>,
    controls: Box<[ControlBuffer]>,
}

// SAFETY: the raw pointers are what keeps the compiler from deriving this; they are never followed
// outside of a call that has just written them (see the type), so no thread depends on another's.
unsafe impl Send for MmsghdrTable {}

/// Received datagram, whose bytes are in the buffer of the caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReceivedDatagramInfo {
    /// Number of bytes in the buffer.
    pub len: usize,
    /// True if the datagram was longer than the buffer (`MSG_TRUNC`).
    pub truncated: bool,
    /// Source address; `None` if it is not an IP address, as on packet sockets.
    pub remote: Option<SocketAddr>,
    /// Ancillary data from the kernel.
    pub control: AncillaryData,
}

impl ReceivedDatagramInfo {
    /// Returns true if the destination is this host alone, at IP and link layer. Requires
    /// [`crate::socket::DatagramSocket::enable_unicast_detection`].
    #[must_use]
    pub fn is_unicast(&self) -> bool {
        self.len != LINK_GROUP_LEN && self.control.is_unicast()
    }
}

/// Datagram to send, with its addresses.
#[derive(Clone, Copy, Debug)]
pub struct OutgoingDatagram<'a> {
    /// Payload.
    pub bytes: &'a [u8],
    /// Destination; `None` for the connected peer, or the bound interface of a packet socket.
    pub remote: Option<SocketAddr>,
    /// Source address; `None` for the socket's or the kernel's choice.
    pub local: Option<IpAddr>,
    /// Requested transmit timestamp, which returns with a copy of the packet; see
    /// [`MmsghdrTable::receive_errors`].
    pub transmit_timestamp: Option<TransmitTimestampSource>,
}

impl MmsghdrTable {
    /// Creates tables for up to `slots` datagrams in a call.
    #[must_use]
    pub fn new(slots: usize) -> Self {
        let empty_buffer = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        Self {
            headers: vec![empty_header(); slots].into_boxed_slice(),
            buffers: vec![empty_buffer; slots].into_boxed_slice(),
            addresses: vec![SockaddrBuffer::default(); slots].into_boxed_slice(),
            controls: vec![ControlBuffer([0; CONTROL_CAPACITY]); slots].into_boxed_slice(),
        }
    }

    /// Returns the maximum number of datagrams in a call.
    #[must_use]
    #[inline]
    pub fn slots(&self) -> usize {
        self.headers.len()
    }

    /// Receives pending datagrams, without blocking, one into each of `buffers` (at most
    /// [`MmsghdrTable::slots`]). Returns their number; [`MmsghdrTable::received`] describes each.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if nothing is pending, and pending errors of the socket.
    #[inline]
    pub fn receive<'a>(
        &mut self,
        socket: BorrowedFd<'_>,
        buffers: impl Iterator<Item = &'a mut [u8]>,
    ) -> io::Result<usize> {
        self.receive_with(socket, buffers, libc::MSG_DONTWAIT)
    }

    /// Receives from the socket's error queue like [`MmsghdrTable::receive`]: copies of sent
    /// packets for which a transmit timestamp was requested, including the link header if the
    /// device has one. The timestamps are in [`ReceivedDatagramInfo::control`].
    ///
    /// # Errors
    ///
    /// `WouldBlock` if nothing is pending there.
    pub fn receive_errors<'a>(
        &mut self,
        socket: BorrowedFd<'_>,
        buffers: impl Iterator<Item = &'a mut [u8]>,
    ) -> io::Result<usize> {
        self.receive_with(socket, buffers, libc::MSG_DONTWAIT | libc::MSG_ERRQUEUE)
    }

    fn receive_with<'a>(
        &mut self,
        socket: BorrowedFd<'_>,
        buffers: impl Iterator<Item = &'a mut [u8]>,
        flags: libc::c_int,
    ) -> io::Result<usize> {
        let mut count = 0;
        for (slot, buffer) in (0..self.slots()).zip(buffers) {
            self.buffers[slot] =
                libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
            self.fill_header(slot, SockaddrBuffer::CAPACITY, CONTROL_CAPACITY);
            count = slot + 1;
        }
        // SAFETY: the first `count` headers were written above and point to this table's own parts,
        // which live on the heap and stay put during the call, and to buffers that the caller lent
        // exclusively for 'a, which outlasts the call. Every length is that of what it stands by.
        let received = check(unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                self.headers.as_mut_ptr(),
                count as libc::c_uint,
                flags as _,
                std::ptr::null_mut(),
            )
        })?;
        Ok(received as usize)
    }

    /// Returns the datagram in `slot` of the last receive call.
    ///
    /// # Panics
    ///
    /// If there is no such slot.
    #[must_use]
    pub fn received(&self, slot: usize) -> ReceivedDatagramInfo {
        let header = &self.headers[slot];
        let control_len = CONTROL_CAPACITY.min(header.msg_hdr.msg_controllen as _);
        ReceivedDatagramInfo {
            len: (header.msg_len as usize).min(self.buffers[slot].iov_len),
            truncated: header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
            remote: self.addresses[slot].decode(header.msg_hdr.msg_namelen as usize),
            control: AncillaryData::parse(&self.controls[slot].0[..control_len]),
        }
    }

    /// Sends `messages` in order (at most [`MmsghdrTable::slots`]), without blocking. Returns the
    /// number sent; it is lower if a message was refused, and sending from that message on returns
    /// its error.
    ///
    /// # Errors
    ///
    /// Error of the first message, such as `WouldBlock` for a full socket buffer.
    pub fn send<'a>(
        &mut self,
        socket: BorrowedFd<'_>,
        messages: impl Iterator<Item = OutgoingDatagram<'a>>,
    ) -> io::Result<usize> {
        let mut count = 0;
        for (slot, message) in (0..self.slots()).zip(messages) {
            // The kernel does not write through the buffers of an outgoing message.
            let base = message.bytes.as_ptr().cast_mut().cast();
            self.buffers[slot] = libc::iovec { iov_base: base, iov_len: message.bytes.len() };
            let address_len = message.remote.map_or(0, |remote| {
                let (raw, length) = SockaddrBuffer::encode(remote);
                self.addresses[slot] = raw;
                length
            });
            let control = &mut self.controls[slot];
            let source_len = message.local.map_or(0, |local| write_source(control, local));
            let control_len = message
                .transmit_timestamp
                .map_or(source_len, |stamp| write_timestamp_request(control, source_len, stamp));
            self.fill_header(slot, address_len, control_len);
            count = slot + 1;
        }
        // SAFETY: as for recvmmsg, save that the kernel only reads the bytes, which the caller lent
        // for 'a; it writes the headers alone, which are this table's. Where the C library declares
        // narrower lengths than the kernel reads, zeros are next to them since `empty_header`.
        let sent = check(unsafe {
            // Not the library's function: musl's makes a system call for each message.
            libc::syscall(
                libc::SYS_sendmmsg,
                socket.as_raw_fd(),
                self.headers.as_mut_ptr(),
                count as libc::c_uint,
                libc::MSG_DONTWAIT,
            ) as libc::c_int
        })?;
        Ok(sent as usize)
    }

    /// Sets the pointers of the slot's header; empty parts are null.
    fn fill_header(&mut self, slot: usize, address_len: usize, control_len: usize) {
        let header = &mut self.headers[slot].msg_hdr;
        header.msg_name = std::ptr::null_mut();
        if address_len > 0 {
            header.msg_name = self.addresses[slot].as_mut_ptr().cast();
        }
        header.msg_namelen = address_len as libc::socklen_t;
        header.msg_iov = &raw mut self.buffers[slot];
        header.msg_iovlen = 1;
        header.msg_control = std::ptr::null_mut();
        if control_len > 0 {
            header.msg_control = self.controls[slot].0.as_mut_ptr().cast();
        }
        header.msg_controllen = control_len as _;
        header.msg_flags = 0;
    }
}

impl std::fmt::Debug for MmsghdrTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MmsghdrTable").field("slots", &self.slots()).finish_non_exhaustive()
    }
}

fn empty_header() -> libc::mmsghdr {
    // SAFETY: a plain C structure of numbers and pointers, for which all bytes zero is valid.
    unsafe { std::mem::zeroed() }
}

/// Returns true if an error of [`MmsghdrTable::send`] concerns only the one packet (such as device
/// queue full, no route, too long, firewall, invalid address), so that the next may be tried. Other
/// errors concern the socket or the interface.
#[must_use]
pub fn is_refusal(error: &io::Error) -> bool {
    use io::ErrorKind as Kind;
    matches!(
        error.kind(),
        Kind::ConnectionRefused
            | Kind::HostUnreachable
            | Kind::NetworkUnreachable
            | Kind::PermissionDenied
            | Kind::AddrNotAvailable
            | Kind::InvalidInput
            | Kind::OutOfMemory
            | Kind::Interrupted
    ) || matches!(
        error.raw_os_error(),
        Some(libc::ENOBUFS | libc::EMSGSIZE | libc::EAFNOSUPPORT | libc::EDESTADDRREQ)
    )
}
