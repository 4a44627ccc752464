//! The send interface: an interface of the relay's own, by which a program on the same host hands a
//! packet over once. What such a program sends does not pass where packets come in, so neither a
//! socket that listens there nor the kernel's body would see it. The program sends to the group, by
//! a route through this interface; the relay reads the frame, and puts it back in as if it had come
//! by a wire where the kernel's body has the group, or has the sockets send the copies.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use horolog_sys::netlink::{Netlink, NetlinkError};
use horolog_sys::tap::Tap;
use horolog_wire::frame::UdpFrame;

/// What the kernel allows: a program's packet is never fragmented on its way to the relay.
const MTU: u32 = 65_521;
/// A frame of that.
pub(crate) const FRAME_BYTES_MAX: usize = MTU as usize + 14;

/// Why there is no send interface.
#[derive(Debug, thiserror::Error)]
pub enum SendInterfaceError {
    /// It cannot be made.
    #[error(
        "cannot make the send interface '{0}': {1}; it needs CAP_NET_ADMIN, and a name of at most \
             15 letters that no other interface has"
    )]
    Make(String, #[source] io::Error),
    /// It cannot be switched on.
    #[error("the send interface '{0}': {1}")]
    SwitchOn(String, #[source] NetlinkError),
}

/// The interface; it goes with the relay, however that ends.
#[derive(Debug)]
pub struct SendInterface {
    tap: Tap,
    index: u32,
}

impl SendInterface {
    /// Makes the interface in the calling thread's network namespace and switches it on. It has no
    /// address, and no route leads through it but those that are made.
    pub fn open(name: &str) -> Result<Self, SendInterfaceError> {
        let tap = Tap::open(name).map_err(|error| SendInterfaceError::Make(name.into(), error))?;
        let failed = |error| SendInterfaceError::SwitchOn(tap.name().into(), error);
        let mut netlink = Netlink::open().map_err(failed)?;
        let index = netlink.link_by_name(tap.name()).map_err(failed)?.index;
        netlink.set_link_mtu(index, MTU).map_err(failed)?;
        netlink.set_link_up(index).map_err(failed)?;
        Ok(Self { tap, index })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.tap.name()
    }

    pub(crate) const fn index(&self) -> u32 {
        self.index
    }

    /// Takes a frame that was sent by the interface; `None` where there is none.
    pub(crate) fn receive<'a>(&self, buffer: &'a mut [u8]) -> io::Result<Option<&'a [u8]>> {
        match self.tap.receive(buffer) {
            Ok(length) => Ok(buffer.get(..length)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Puts a frame in as if it had come by a wire. What the kernel's programs do with it is done
    /// when this returns.
    pub(crate) fn put_in(&self, frame: &[u8]) -> io::Result<()> {
        self.tap.send(frame)
    }
}

impl AsFd for SendInterface {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.tap.as_fd()
    }
}

/// The length of the IP packet in a frame that the kernel's programs would copy if a group is
/// theirs; `None` where there is something about it that they leave to others.
pub(crate) fn plain_length(frame: &[u8], udp: &UdpFrame<'_>) -> Option<u32> {
    let headers = if udp.destination.is_ipv4() { 28 } else { 48 };
    let is_plain = udp.options_len == 0 && udp.trailer_len == 0 && frame.len() < FRAME_BYTES_MAX;
    is_plain.then_some(udp.payload.len() as u32 + headers)
}
