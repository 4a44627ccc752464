//! Receiver of a group's packets, many in one system call.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;

use horolog_sys::message::MmsghdrTable;

use crate::ReceivedPacket;
use crate::group_socket::GroupSocket;

/// Maximum number of packets of one receive call.
const SLOTS: usize = 64;
/// Size of the buffer of one packet, in bytes: longer than any datagram.
const BYTES_MAX: usize = 65_536;
/// Distance of the buffers, in bytes: a cache line more than their size, so that the beginnings of
/// packets do not all map to one set of a cache.
const STRIDE: usize = BYTES_MAX + 64;

/// Receiver with a buffer for each packet of a receive call, and the kernel's metadata of each.
#[derive(Debug)]
pub(crate) struct PacketReceiver {
    messages: MmsghdrTable,
    bytes: Box<[u8]>,
}

impl PacketReceiver {
    pub(crate) fn new() -> Self {
        let bytes = vec![0; SLOTS * STRIDE].into_boxed_slice();
        Self { messages: MmsghdrTable::new(SLOTS), bytes }
    }

    /// Receives the waiting packets of a socket; returns their number, possibly 0.
    pub(crate) fn receive(&mut self, socket: &GroupSocket) -> io::Result<usize> {
        let buffers = self.bytes.chunks_mut(STRIDE).map(|chunk| &mut chunk[..BYTES_MAX]);
        match self.messages.receive(socket.as_fd(), buffers) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
            received => received,
        }
    }

    /// Returns one of the packets of the latest call, with its payload.
    pub(crate) fn packet(&self, socket: &GroupSocket, slot: usize) -> (ReceivedPacket, &[u8]) {
        let received = self.messages.received(slot);
        let bytes = &self.bytes[slot * STRIDE..][..received.len];
        let (listen, control) = (socket.listen, received.control);
        let destination = match control.local {
            Some(local) if listen.ip().is_unspecified() => (local, listen.port()).into(),
            _ => listen,
        };
        let packet = ReceivedPacket {
            source: received.remote.unwrap_or(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0)),
            destination,
            // A destination of several hosts other than the group's own is invalid for a unicast
            // group.
            to_group: listen.ip().is_multicast() || !control.is_unicast(),
            hop_limit: control.hop_limit,
            payload_len: bytes.len(),
        };
        (packet, bytes)
    }
}
