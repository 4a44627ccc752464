//! Taking packets of a group from its socket, many in one system call.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;

use horolog_sys::message::MessageTable;

use crate::Packet;
use crate::outlet::Outlet;

/// Packets of one call.
const SLOTS: usize = 64;
/// More than any datagram has.
const BYTES_MAX: usize = 65_536;
/// A cache line more, so that the beginnings of packets do not all fall into one set of a cache.
const STRIDE: usize = BYTES_MAX + 64;

/// Room for packets, and what the kernel told of each.
#[derive(Debug)]
pub(crate) struct Receiver {
    messages: MessageTable,
    bytes: Box<[u8]>,
}

impl Receiver {
    pub(crate) fn new() -> Self {
        let bytes = vec![0; SLOTS * STRIDE].into_boxed_slice();
        Self { messages: MessageTable::new(SLOTS), bytes }
    }

    /// Takes what waits at a socket; how many there were, which may be none.
    pub(crate) fn receive(&mut self, outlet: &Outlet) -> io::Result<usize> {
        let buffers = self.bytes.chunks_mut(STRIDE).map(|chunk| &mut chunk[..BYTES_MAX]);
        match self.messages.receive(outlet.as_fd(), buffers) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
            received => received,
        }
    }

    /// One of the packets that were taken from a socket last, and its payload.
    pub(crate) fn packet(&self, outlet: &Outlet, slot: usize) -> (Packet, &[u8]) {
        let received = self.messages.received(slot);
        let bytes = &self.bytes[slot * STRIDE..][..received.len];
        let (listen, control) = (outlet.listen, received.control);
        let destination = match control.local {
            Some(local) if listen.ip().is_unspecified() => (local, listen.port()).into(),
            _ => listen,
        };
        let packet = Packet {
            source: received.remote.unwrap_or(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0)),
            destination,
            to_group: listen.ip().is_multicast() || control.to_group,
            hop_limit: control.hop_limit,
            payload: bytes.len(),
        };
        (packet, bytes)
    }
}
