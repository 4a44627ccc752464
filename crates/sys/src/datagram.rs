//! Single datagrams with one system call each and no other work, for exchanges in which 100 ns
//! matter. Batches use [`crate::message`].

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::address::SockaddrBuffer;
use crate::ancillary::{AncillaryData, CAPACITY as CONTROL_CAPACITY, ControlBuffer, write_source};
use crate::message::ReceivedDatagramInfo;

/// Blocking mode of a receive call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitMode {
    /// Blocks until a datagram arrives or the receive timeout of the socket expires.
    Blocking,
    /// Never blocks (`MSG_DONTWAIT`).
    NonBlocking,
}

impl WaitMode {
    const fn flags(self) -> libc::c_int {
        match self {
            Self::Blocking => 0,
            Self::NonBlocking => libc::MSG_DONTWAIT,
        }
    }
}

fn length_or_error(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Sends a datagram to the socket's connected peer, without blocking.
pub fn send(socket: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<()> {
    // SAFETY: the bytes and their number, only read during the call.
    let sent = unsafe {
        libc::send(socket.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), libc::MSG_DONTWAIT)
    };
    length_or_error(sent).map(drop)
}

/// Sends a datagram to `remote`, without blocking.
///
/// # Errors
///
/// Of sendto(2): `WouldBlock` if the socket buffer is full, [`TOO_LONG`], [`NO_BUFFERS`].
pub fn send_to(socket: BorrowedFd<'_>, bytes: &[u8], remote: SocketAddr) -> io::Result<()> {
    let (raw, address_len) = SockaddrBuffer::encode(remote);
    // SAFETY: the bytes and the address with their lengths, only read during the call.
    let sent = unsafe {
        libc::sendto(
            socket.as_raw_fd(),
            bytes.as_ptr().cast(),
            bytes.len(),
            libc::MSG_DONTWAIT,
            raw.as_ptr(),
            address_len as libc::socklen_t,
        )
    };
    length_or_error(sent).map(drop)
}

/// Error number for a datagram above the path MTU or the largest datagram length.
pub const TOO_LONG: i32 = libc::EMSGSIZE;
/// Error number for a datagram that found no room in the queue of a device.
pub const NO_BUFFERS: i32 = libc::ENOBUFS;

/// Receives a datagram, truncated to the buffer, and returns the number of bytes stored.
///
/// # Errors
///
/// `WouldBlock` if none arrived, and network errors of an earlier datagram.
pub fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8], wait: WaitMode) -> io::Result<usize> {
    // SAFETY: the buffer and its length, which the kernel may fill during the call.
    length_or_error(unsafe {
        libc::recv(socket.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), wait.flags())
    })
}

/// Buffers for the source address and the ancillary data of a datagram (`struct msghdr`).
#[derive(Clone)]
pub struct MsghdrBuffers {
    address: SockaddrBuffer,
    address_len: usize,
    control: ControlBuffer,
    /// Separate buffer for ancillary data of outgoing datagrams.
    source: ControlBuffer,
}

impl Default for MsghdrBuffers {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for MsghdrBuffers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MsghdrBuffers").finish_non_exhaustive()
    }
}

impl MsghdrBuffers {
    /// Creates empty buffers.
    #[must_use]
    pub fn new() -> Self {
        let empty = ControlBuffer([0; CONTROL_CAPACITY]);
        Self { address: SockaddrBuffer::default(), address_len: 0, control: empty, source: empty }
    }

    /// Receives a datagram with its ancillary data.
    ///
    /// # Errors
    ///
    /// Errors of [`receive`].
    pub fn receive(
        &mut self,
        socket: BorrowedFd<'_>,
        buffer: &mut [u8],
        wait: WaitMode,
    ) -> io::Result<ReceivedDatagramInfo> {
        self.receive_with(socket, buffer, wait.flags())
    }

    /// Receives a datagram with its source address but without ancillary data, in a cheaper call.
    ///
    /// # Errors
    ///
    /// Errors of [`receive`].
    pub fn receive_with_source(
        &mut self,
        socket: BorrowedFd<'_>,
        buffer: &mut [u8],
        wait: WaitMode,
    ) -> io::Result<ReceivedDatagramInfo> {
        let mut address_len = SockaddrBuffer::CAPACITY as libc::socklen_t;
        let flags = wait.flags() | libc::MSG_TRUNC;
        // SAFETY: the buffer and its length, the envelope's own room for an address and its length,
        // all alive for the call and not borrowed elsewhere.
        let len = length_or_error(unsafe {
            libc::recvfrom(
                socket.as_raw_fd(),
                buffer.as_mut_ptr().cast(),
                buffer.len(),
                flags,
                self.address.as_mut_ptr(),
                &raw mut address_len,
            )
        })?;
        self.address_len = (address_len as usize).min(SockaddrBuffer::CAPACITY);
        Ok(ReceivedDatagramInfo {
            len: len.min(buffer.len()),
            truncated: len > buffer.len(),
            remote: self.address.decode(self.address_len),
            control: AncillaryData::default(),
        })
    }

    /// Reads the transmit timestamp of a sent datagram from the socket's error queue; never blocks.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there is none.
    pub fn receive_transmit_timestamp(
        &mut self,
        socket: BorrowedFd<'_>,
    ) -> io::Result<AncillaryData> {
        let flags = libc::MSG_DONTWAIT | libc::MSG_ERRQUEUE;
        self.receive_with(socket, &mut [], flags).map(|received| received.control)
    }

    fn receive_with(
        &mut self,
        socket: BorrowedFd<'_>,
        buffer: &mut [u8],
        flags: libc::c_int,
    ) -> io::Result<ReceivedDatagramInfo> {
        let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        let mut header = empty_header();
        header.msg_name = self.address.as_mut_ptr().cast();
        header.msg_namelen = SockaddrBuffer::CAPACITY as libc::socklen_t;
        header.msg_iov = &raw mut part;
        header.msg_iovlen = 1;
        header.msg_control = self.control.0.as_mut_ptr().cast();
        header.msg_controllen = CONTROL_CAPACITY as _;
        // SAFETY: the header points to the envelope's own parts and to the caller's buffer, each
        // with its own length, all alive for the call and not borrowed elsewhere.
        let len =
            length_or_error(unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, flags) })?;
        self.address_len = (header.msg_namelen as usize).min(SockaddrBuffer::CAPACITY);
        let control_len = CONTROL_CAPACITY.min(header.msg_controllen as _);
        Ok(ReceivedDatagramInfo {
            len: len.min(buffer.len()),
            truncated: header.msg_flags & libc::MSG_TRUNC != 0,
            remote: self.address.decode(self.address_len),
            control: AncillaryData::parse(&self.control.0[..control_len]),
        })
    }

    /// Sends a datagram to the source of the last received one, without blocking; with the source
    /// address `local` if given, as a reply from a socket with a wildcard address needs.
    pub fn reply(
        &mut self,
        socket: BorrowedFd<'_>,
        bytes: &[u8],
        local: Option<IpAddr>,
    ) -> io::Result<()> {
        let Some(local) = local else { return self.reply_from_default(socket, bytes) };
        // The kernel does not write through the buffer of an outgoing message.
        let base = bytes.as_ptr().cast_mut().cast();
        let mut part = libc::iovec { iov_base: base, iov_len: bytes.len() };
        let mut header = empty_header();
        header.msg_name = self.address.as_mut_ptr().cast();
        header.msg_namelen = self.address_len as libc::socklen_t;
        header.msg_iov = &raw mut part;
        header.msg_iovlen = 1;
        header.msg_controllen = write_source(&mut self.source, local) as _;
        header.msg_control = self.source.0.as_mut_ptr().cast();
        // SAFETY: as for recvmsg; the kernel only reads.
        let sent =
            unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const header, libc::MSG_DONTWAIT) };
        length_or_error(sent).map(drop)
    }

    fn reply_from_default(&self, socket: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<()> {
        // SAFETY: the bytes and the address, each with its length, only read during the call.
        let sent = unsafe {
            libc::sendto(
                socket.as_raw_fd(),
                bytes.as_ptr().cast(),
                bytes.len(),
                libc::MSG_DONTWAIT,
                self.address.as_ptr(),
                self.address_len as libc::socklen_t,
            )
        };
        length_or_error(sent).map(drop)
    }
}

fn empty_header() -> libc::msghdr {
    // SAFETY: a plain C structure of numbers and pointers, for which all bytes zero is valid.
    unsafe { std::mem::zeroed() }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::time::Duration;

    use super::*;
    use crate::socket::DatagramSocket;

    fn pair(address: &str) -> (DatagramSocket, DatagramSocket, SocketAddr) {
        let any: SocketAddr = address.parse().unwrap();
        let (near, far) = (DatagramSocket::udp(any).unwrap(), DatagramSocket::udp(any).unwrap());
        far.bind(any).unwrap();
        let at = far.local_address().unwrap();
        near.connect(at).unwrap();
        for socket in [&near, &far] {
            socket.set_receive_timeout(Duration::from_secs(5)).unwrap();
        }
        (near, far, at)
    }

    #[test]
    fn a_datagram_is_received_with_its_class_and_hop_limit_and_answered() {
        let (near, far, at) = pair("127.0.0.1:0");
        near.set_traffic_class(at, 46 << 2).unwrap();
        near.set_hop_limit(at, 77).unwrap();
        far.enable_traffic_class(at, true).unwrap();
        far.enable_hop_limit(at).unwrap();
        send(near.as_fd(), b"question").unwrap();
        let (mut envelope, mut buffer) = (MsghdrBuffers::new(), [0; 64]);
        let received = envelope.receive(far.as_fd(), &mut buffer, WaitMode::Blocking).unwrap();
        assert_eq!(&buffer[..received.len], b"question");
        assert_eq!(received.remote, Some(near.local_address().unwrap()));
        assert_eq!(received.control.traffic_class, Some(46 << 2));
        assert_eq!(received.control.hop_limit, Some(77));
        envelope.reply(far.as_fd(), b"answer", Some(at.ip())).unwrap();
        assert_eq!(receive(near.as_fd(), &mut buffer, WaitMode::Blocking).unwrap(), 6);
        assert_eq!(&buffer[..6], b"answer");
        let nothing = receive(near.as_fd(), &mut buffer, WaitMode::NonBlocking).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn a_datagram_is_received_without_ancillary_data_and_answered() {
        let (near, far, _) = pair("127.0.0.1:0");
        send(near.as_fd(), b"question").unwrap();
        let (mut envelope, mut buffer) = (MsghdrBuffers::new(), [0; 4]);
        let received =
            envelope.receive_with_source(far.as_fd(), &mut buffer, WaitMode::Blocking).unwrap();
        assert_eq!((received.len, received.truncated), (4, true), "cut to the buffer");
        assert_eq!(received.remote, Some(near.local_address().unwrap()));
        assert_eq!(received.control, AncillaryData::default());
        envelope.reply(far.as_fd(), b"answer", None).unwrap();
        let mut answer = [0; 8];
        assert_eq!(receive(near.as_fd(), &mut answer, WaitMode::Blocking).unwrap(), 6);
        let nothing = envelope.receive_with_source(far.as_fd(), &mut buffer, WaitMode::NonBlocking);
        assert_eq!(nothing.unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn a_wait_ends_at_the_timeout() {
        let (near, _far, _) = pair("127.0.0.1:0");
        near.set_receive_timeout(Duration::from_millis(2)).unwrap();
        let nothing = receive(near.as_fd(), &mut [0; 8], WaitMode::Blocking).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn sent_datagrams_have_timestamps_and_numbers() {
        let (near, _far, at) = pair("127.0.0.1:0");
        near.enable_all_timestamps().unwrap();
        assert!(near.path_mtu(at).unwrap() >= 1_280);
        let mut envelope = MsghdrBuffers::new();
        for id in 0..3 {
            send(near.as_fd(), b"x").unwrap();
            let stamp = (0..1_000).find_map(|_| {
                std::thread::sleep(Duration::from_micros(100));
                envelope.receive_transmit_timestamp(near.as_fd()).ok()
            });
            let stamp = stamp.unwrap();
            assert_eq!(stamp.timestamp_id, Some(id));
            assert!(stamp.received_at.is_some());
        }
    }

    #[test]
    fn a_datagram_is_sent_to_its_destination_in_one_piece() {
        let (_, far, at) = pair("127.0.0.1:0");
        let near = DatagramSocket::udp(at).unwrap();
        near.never_fragment(at).unwrap();
        send_to(near.as_fd(), b"hello", at).unwrap();
        let mut buffer = [0; 8];
        assert_eq!(receive(far.as_fd(), &mut buffer, WaitMode::Blocking).unwrap(), 5);
        // The loopback interface takes 65,536 bytes, headers included.
        let refused = send_to(near.as_fd(), &vec![0; 65_520], at).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(TOO_LONG));
    }

    #[test]
    fn a_long_datagram_goes_in_fragments() {
        let (near, far, at) = pair("127.0.0.1:0");
        near.allow_fragmentation(at).unwrap();
        let bytes = vec![7; 65_507];
        send(near.as_fd(), &bytes).unwrap();
        let mut buffer = vec![0; 65_536];
        assert_eq!(receive(far.as_fd(), &mut buffer, WaitMode::Blocking).unwrap(), bytes.len());
    }
}
