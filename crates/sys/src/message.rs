//! Batches of datagrams in one system call: recvmmsg(2) and sendmmsg(2). A [`MessageTable`] owns
//! the kernel's structures for them; the bytes belong to the caller. It never blocks.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::address::RawAddress;
use crate::ancillary::{
    CAPACITY as CONTROL_CAPACITY, ControlBuffer, write_source, write_timestamp_request,
};
use crate::descriptor::check;
use crate::socket::LINK_GROUP_LEN;

pub use crate::ancillary::{AncillaryData, TransmitTimestamp};

/// Kernel tables for a batch of datagrams: headers, buffer references, addresses and control
/// messages. Allocated once.
///
/// The tables point into one another and into the caller's buffers, and all of those pointers are
/// written anew at the start of each call and used by the kernel before that call ends. So a table
/// can be moved between calls, and no pointer in it is ever followed outside of one. Every call has
/// to write each header anyway, for the kernel overwrites the lengths in it.
pub struct MessageTable {
    headers: Box<[libc::mmsghdr]>,
    buffers: Box<[libc::iovec]>,
    addresses: Box<[RawAddress]>,
    controls: Box<[ControlBuffer]>,
}

// SAFETY: the raw pointers are what keeps the compiler from deriving this; they are never followed
// outside of a call that has just written them (see the type), so no thread depends on another's.
unsafe impl Send for MessageTable {}

/// Received datagram. Its bytes are in the caller's buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Received {
    /// Bytes in the buffer.
    pub len: usize,
    /// The datagram was longer than the buffer (`MSG_TRUNC`).
    pub truncated: bool,
    /// Source address; `None` if that is no IP address, as on packet sockets.
    pub remote: Option<SocketAddr>,
    /// Ancillary data from the kernel.
    pub control: AncillaryData,
}

impl Received {
    /// Returns true if it was sent to one address of this host alone; valid for sockets with
    /// [`crate::socket::Socket::enable_unicast_detection`].
    #[must_use]
    pub fn is_unicast(&self) -> bool {
        self.len != LINK_GROUP_LEN && self.control.is_unicast()
    }
}

/// A datagram to send.
#[derive(Clone, Copy, Debug)]
pub struct OutgoingDatagram<'a> {
    /// Its bytes.
    pub bytes: &'a [u8],
    /// Destination; `None`: the peer that the socket is connected or bound to.
    pub remote: Option<SocketAddr>,
    /// Required source address; `None`: the socket's, or the kernel's choice.
    pub local: Option<IpAddr>,
    /// Requested transmit timestamp, with which a copy comes back; see
    /// [`MessageTable::receive_errors`].
    pub transmit_timestamp: Option<TransmitTimestamp>,
}

impl MessageTable {
    /// Creates tables for up to `slots` datagrams in a call.
    #[must_use]
    pub fn new(slots: usize) -> Self {
        let empty_buffer = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        Self {
            headers: vec![empty_header(); slots].into_boxed_slice(),
            buffers: vec![empty_buffer; slots].into_boxed_slice(),
            addresses: vec![RawAddress::default(); slots].into_boxed_slice(),
            controls: vec![ControlBuffer([0; CONTROL_CAPACITY]); slots].into_boxed_slice(),
        }
    }

    /// Returns the maximum number of datagrams in a call.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.headers.len()
    }

    /// Receives pending datagrams from the socket's queue, without blocking, one into each of
    /// `buffers` (as many as there are slots). Returns their number; [`MessageTable::received`]
    /// describes each.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if nothing is pending, and pending errors of the socket.
    pub fn receive<'a>(
        &mut self,
        socket: BorrowedFd<'_>,
        buffers: impl Iterator<Item = &'a mut [u8]>,
    ) -> io::Result<usize> {
        self.receive_with(socket, buffers, libc::MSG_DONTWAIT)
    }

    /// Receives from the socket's error queue like [`MessageTable::receive`]: copies of the packets
    /// that were sent with a request for a transmit timestamp, as they left, including the link
    /// header if the device has one. The timestamps are in [`Received::control`].
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
            self.link(slot, RawAddress::CAPACITY, CONTROL_CAPACITY);
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

    /// Returns the datagram in `slot` of the last [`MessageTable::receive`].
    ///
    /// # Panics
    ///
    /// If there is no such slot.
    #[must_use]
    pub fn received(&self, slot: usize) -> Received {
        let header = &self.headers[slot];
        let control_len = CONTROL_CAPACITY.min(header.msg_hdr.msg_controllen as _);
        Received {
            len: (header.msg_len as usize).min(self.buffers[slot].iov_len),
            truncated: header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
            remote: self.addresses[slot].decode(header.msg_hdr.msg_namelen as usize),
            control: AncillaryData::parse(&self.controls[slot].0[..control_len]),
        }
    }

    /// Sends `messages` (as many as there are slots) in order, without blocking. Returns the number
    /// sent, which is lower if one of them was refused; the error then appears when that one is
    /// sent first.
    ///
    /// # Errors
    ///
    /// The refusal of the first message: `WouldBlock` if the socket's buffer is full.
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
                let (raw, length) = RawAddress::encode(remote);
                self.addresses[slot] = raw;
                length
            });
            let control = &mut self.controls[slot];
            let source_len = message.local.map_or(0, |local| write_source(control, local));
            let control_len = message
                .transmit_timestamp
                .map_or(source_len, |stamp| write_timestamp_request(control, source_len, stamp));
            self.link(slot, address_len, control_len);
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

    /// Points the slot's header at its parts; a part of no length is omitted.
    fn link(&mut self, slot: usize, address_len: usize, control_len: usize) {
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

impl std::fmt::Debug for MessageTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MessageTable").field("slots", &self.slots()).finish_non_exhaustive()
    }
}

fn empty_header() -> libc::mmsghdr {
    // SAFETY: a plain C structure of numbers and pointers, for which all bytes zero is valid.
    unsafe { std::mem::zeroed() }
}

/// Returns true if an error of [`MessageTable::send`] concerns the one packet alone (no room in the
/// device's queue, no route, too long, not allowed by a firewall, an invalid address), so that the
/// next may be tried. Any other is the socket's or the interface's own.
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
