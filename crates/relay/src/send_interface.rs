//! Send interface: an interface of the relay's own, by which a program on the same host sends a
//! packet to the relay once. Packets of such a program do not pass an ingress interface, so neither
//! a socket that listens there nor the XDP engine would receive them. The program sends to the
//! group, by a route through this interface; the relay reads the frame, and injects it as if it had
//! arrived from a wire if the XDP engine has the group, or otherwise has the sockets send the
//! copies.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use horolog_sys::explain::explain;
use horolog_sys::netlink::{Netlink, NetlinkError};
use horolog_sys::tap::TapInterface;
use horolog_wire::frame::UdpFrame;

/// MTU, the largest that the kernel permits: a program's packet is never fragmented on its way to
/// the relay.
const MTU: u32 = 65_521;
/// Bytes of a frame with this MTU.
pub(crate) const FRAME_BYTES_MAX: usize = MTU as usize + 14;

/// Reason for which there is no send interface.
#[derive(Debug, thiserror::Error)]
pub enum LocalSenderInterfaceError {
    /// The interface cannot be created.
    #[error(
        "cannot create the send interface '{0}': {why}; it needs CAP_NET_ADMIN, and an unused name \
         of at most 15 characters", why = explain(.1))]
    Create(String, #[source] io::Error),
    /// The interface cannot be brought up.
    #[error("the send interface '{0}': {1}")]
    BringUp(String, #[source] NetlinkError),
}

/// Send interface: a TAP device by which programs on this host send to the relay. It ends with the
/// relay, however that ends.
#[derive(Debug)]
pub struct LocalSenderInterface {
    tap: TapInterface,
    index: u32,
}

impl LocalSenderInterface {
    /// Creates the interface in the calling thread's network namespace and brings it up. It has no
    /// address, and no routes but those added by the user.
    pub fn open(name: &str) -> Result<Self, LocalSenderInterfaceError> {
        let tap = TapInterface::open(name)
            .map_err(|error| LocalSenderInterfaceError::Create(name.into(), error))?;
        let failed = |error| LocalSenderInterfaceError::BringUp(tap.name().into(), error);
        let mut netlink = Netlink::open().map_err(failed)?;
        let index = netlink.link_by_name(tap.name()).map_err(failed)?.index;
        netlink.set_link_mtu(index, MTU).map_err(failed)?;
        netlink.set_link_up(index).map_err(failed)?;
        Ok(Self { tap, index })
    }

    /// Returns the name of the interface.
    #[must_use]
    pub fn name(&self) -> &str {
        self.tap.name()
    }

    pub(crate) const fn index(&self) -> u32 {
        self.index
    }

    /// Receives a frame that a program sent by the interface; `None` if none is waiting.
    pub(crate) fn receive<'a>(&self, buffer: &'a mut [u8]) -> io::Result<Option<&'a [u8]>> {
        match self.tap.receive(buffer) {
            Ok(length) => Ok(buffer.get(..length)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Injects a frame as if it had arrived from a wire. The XDP programs have processed it when
    /// this returns.
    pub(crate) fn inject(&self, frame: &[u8]) -> io::Result<()> {
        self.tap.send(frame)
    }
}

impl AsFd for LocalSenderInterface {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.tap.as_fd()
    }
}

/// Returns the length of the IP packet in a frame, in bytes, if the XDP programs would copy it for
/// a group that they have; `None` if it has a property that they leave to the socket engine.
pub(crate) fn injectable_length(frame: &[u8], udp: &UdpFrame<'_>) -> Option<u32> {
    let headers = if udp.destination.is_ipv4() { 28 } else { 48 };
    let is_injectable =
        udp.options_len == 0 && udp.trailer_len == 0 && frame.len() < FRAME_BYTES_MAX;
    is_injectable.then_some(udp.payload.len() as u32 + headers)
}
