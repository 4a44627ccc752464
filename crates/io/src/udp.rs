//! UDP sockets as packet devices: one for a listener, one for each of several that share a port, or
//! one that is connected to its peer. Protocols and threads are none of its business.

mod options;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use horolog_sys::message::{MessageTable, Outgoing, TransmitStamp};
use horolog_sys::socket::Socket;
use horolog_wire::ethernet::{MacAddress, VlanTag};

use crate::batch::{Batch, Note, Packet};
use crate::device::Device;
use crate::queue::{self, DropCounter, Queue, send_all};
pub use options::{UdpError, UdpOptions};

/// The two ends of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Endpoints {
    /// Where a received datagram came from, or where one to send goes. Unspecified with port 0
    /// (the default): the peer to which the socket is connected.
    pub remote: SocketAddr,
    /// The address of this host to which a received datagram was sent, or from which one to send
    /// must leave. Unspecified (the default): the socket's own, or the kernel's choice.
    pub local: IpAddr,
    /// Index of the interface by which a datagram came in, 0 where that is not known. Sending
    /// follows the routing table instead; a link-local `remote` carries its interface as scope.
    pub interface: u32,
    /// Whether a received datagram was sent to a multicast group, as far as the kernel told: to a
    /// socket bound to a wildcard address it does.
    pub to_group: bool,
    /// The link that a datagram came by and that its reply is to take, where the device works on
    /// frames.
    pub link: Option<Link>,
}

/// The two ends of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Link {
    /// Where a received frame came from, or where one to send goes.
    pub remote: MacAddress,
    /// The other end, this host's.
    pub local: MacAddress,
    /// The VLAN tag, where there is one.
    pub vlan: Option<VlanTag>,
    /// The port of this host that the datagram was sent to.
    pub local_port: u16,
}

impl Endpoints {
    /// A datagram to `remote`, from whatever local address the kernel chooses.
    #[must_use]
    pub fn to(remote: SocketAddr) -> Self {
        Self { remote, ..Self::default() }
    }

    fn is_connected_peer(&self) -> bool {
        self.remote.port() == 0 && self.remote.ip().is_unspecified()
    }
}

impl Default for Endpoints {
    fn default() -> Self {
        let nowhere = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        Self {
            remote: SocketAddr::new(nowhere, 0),
            local: nowhere,
            interface: 0,
            to_group: false,
            link: None,
        }
    }
}

/// A UDP socket. See [`Device`] for what it does.
#[derive(Debug)]
pub struct UdpDevice {
    socket: Socket,
    table: MessageTable,
    local: SocketAddr,
    send_wait: Duration,
    drops: DropCounter,
    stamp: Option<TransmitStamp>,
}

impl UdpDevice {
    /// Binds to `local`; port 0 lets the kernel choose one.
    ///
    /// # Errors
    ///
    /// See [`UdpError`].
    pub fn bind(local: SocketAddr, options: &UdpOptions) -> Result<Self, UdpError> {
        let other = |error| UdpError::Other(local, error);
        let socket = Socket::udp(local).map_err(other)?;
        prepare(&socket, local, options).map_err(other)?;
        if let Some(name) = &options.interface {
            socket.bind_to_interface(name).map_err(|error| match error.kind() {
                io::ErrorKind::NotFound => UdpError::NoInterface(name.clone()),
                _ => other(error),
            })?;
        }
        socket.bind(local).map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => UdpError::InUse(local),
            io::ErrorKind::AddrNotAvailable => UdpError::NotLocal(local),
            io::ErrorKind::PermissionDenied => UdpError::Privilege(local),
            _ => other(error),
        })?;
        let bound = socket.local_address().map_err(other)?;
        Ok(Self {
            socket,
            table: MessageTable::new(options.slots),
            local: bound,
            send_wait: options.send_wait,
            drops: DropCounter::default(),
            stamp: options.transmit_timestamps,
        })
    }

    /// Opens a socket that talks to `remote` alone, from an address and port of
    /// the kernel's choice.
    ///
    /// # Errors
    ///
    /// See [`UdpError`].
    pub fn connect(remote: SocketAddr, options: &UdpOptions) -> Result<Self, UdpError> {
        let any = match remote {
            SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
            SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
        };
        Self::connect_from(any, remote, options)
    }

    /// Opens a socket that talks to `remote` alone, from `local`. A group as `local` receives what
    /// `remote` sends to the group.
    ///
    /// # Errors
    ///
    /// See [`UdpError`].
    pub fn connect_from(
        local: SocketAddr,
        remote: SocketAddr,
        options: &UdpOptions,
    ) -> Result<Self, UdpError> {
        let mut device = Self::bind(local, options)?;
        device.socket.connect(remote).map_err(|error| UdpError::Unreachable(remote, error))?;
        device.local =
            device.socket.local_address().map_err(|error| UdpError::Other(remote, error))?;
        Ok(device)
    }

    /// A second device on the same socket, for another thread.
    ///
    /// # Errors
    ///
    /// When the process has no descriptor left.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self {
            socket: self.socket.try_clone()?,
            table: MessageTable::new(self.table.slots()),
            local: self.local,
            send_wait: self.send_wait,
            drops: DropCounter::default(),
            stamp: self.stamp,
        })
    }

    /// The address and port that the socket is bound to.
    #[must_use]
    pub fn local_address(&self) -> SocketAddr {
        self.local
    }

    /// Hands each datagram for a shared port to the socket whose place in the order of binding
    /// is the number of the CPU that received it, modulo `sockets`. Call it on one of the
    /// sockets, when all are bound.
    ///
    /// # Errors
    ///
    /// What the kernel refused.
    pub fn steer_by_cpu(&self, sockets: u32) -> io::Result<()> {
        self.socket.steer_by_cpu(sockets)
    }

    /// As [`UdpDevice::steer_by_cpu`], with the datagrams of more than `len_max` bytes for the
    /// second half of the sockets and the others for the first; within a half the receiving CPU
    /// chooses, or chance.
    ///
    /// # Errors
    ///
    /// What the kernel refused.
    pub fn steer_by_length(&self, sockets: u32, len_max: u32, by_cpu: bool) -> io::Result<()> {
        self.socket.steer_by_length(sockets, len_max, by_cpu)
    }

    /// Waits up to `wait` until this socket or the other can be received from, or something came
    /// back of what either sent; says whether that is so.
    ///
    /// # Errors
    ///
    /// What the kernel refused.
    pub fn wait_either(&self, other: &Self, wait: Duration) -> io::Result<bool> {
        self.socket.wait_either(&other.socket, wait)
    }

    /// Joins a multicast group on an interface, given by its index, and sends to groups by that
    /// interface alone, no further than its link and not back to this host.
    ///
    /// # Errors
    ///
    /// What the kernel refused.
    pub fn join(&self, group: IpAddr, interface: u32) -> io::Result<()> {
        self.socket.join(group, interface)
    }

    /// Datagrams that the kernel dropped at this socket since it was opened, because its receive
    /// buffer was full. To be asked at least once in 2^32 drops.
    ///
    /// # Errors
    ///
    /// What the kernel refused.
    pub fn dropped(&mut self) -> io::Result<u64> {
        self.socket.drops().map(|drops| self.drops.advance(drops))
    }
}

impl Queue<Endpoints> for UdpDevice {
    fn socket(&self) -> &Socket {
        &self.socket
    }

    fn try_receive(&mut self, batch: &mut Batch<Endpoints>) -> io::Result<usize> {
        let count = self.table.receive(self.socket.as_fd(), batch.buffers_mut())?;
        let (table, own) = (&self.table, self.local.ip());
        batch.fill(count, |slot| {
            let received = table.received(slot);
            let remote = received.remote.unwrap_or(Endpoints::default().remote);
            Note::received(
                &received,
                Endpoints {
                    remote: canonical(remote),
                    local: received.control.local.unwrap_or(own).to_canonical(),
                    interface: received.control.interface,
                    to_group: received.control.to_group,
                    link: None,
                },
            )
        });
        Ok(count)
    }
}

impl Device for UdpDevice {
    type Address = Endpoints;

    fn receive(&mut self, batch: &mut Batch<Endpoints>, wait: Duration) -> io::Result<usize> {
        queue::receive(self, batch, wait)
    }

    fn send(&mut self, batch: &mut Batch<Endpoints>) -> io::Result<usize> {
        let (table, socket, family, stamp) =
            (&mut self.table, &self.socket, self.local, self.stamp);
        send_all(socket, batch.len(), self.send_wait, |first| {
            let packets = batch.iter().skip(first);
            table.send(socket.as_fd(), packets.map(|packet| outgoing(packet, family, stamp)))
        })
    }

    fn sent(&mut self, batch: &mut Batch<Endpoints>) -> io::Result<usize> {
        queue::sent(self.socket.as_fd(), &mut self.table, batch, |control| Endpoints {
            interface: control.interface,
            ..Endpoints::default()
        })
    }
}

impl AsFd for UdpDevice {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Sets what has to be set before the socket is bound.
fn prepare(socket: &Socket, local: SocketAddr, options: &UdpOptions) -> io::Result<()> {
    if local.is_ipv6() {
        socket.set_v6_only(options.v6_only)?;
    }
    if options.share_port {
        socket.share_port()?;
    }
    if let Some(stamp) = options.transmit_timestamps {
        socket.tell_times(local, stamp == TransmitStamp::Hardware)?;
    } else if options.receive_timestamps || options.hardware_timestamps {
        socket.tell_receive_time(options.hardware_timestamps)?;
    }
    if local.ip().is_unspecified() {
        socket.tell_local_address(local)?;
    }
    if let Some(bytes) = options.receive_buffer {
        socket.set_receive_buffer(bytes)?;
    }
    if let Some(bytes) = options.send_buffer {
        socket.set_send_buffer(bytes)?;
    }
    Ok(())
}

/// What the kernel is told about a packet that leaves from a socket bound to `bound`. Only a
/// wildcard socket has to be told the local address: any other has just the one.
fn outgoing(
    packet: Packet<'_, Endpoints>,
    bound: SocketAddr,
    stamp: Option<TransmitStamp>,
) -> Outgoing<'_> {
    let Endpoints { remote, local, .. } = packet.address;
    let chosen = bound.ip().is_unspecified() && !local.is_unspecified();
    Outgoing {
        bytes: packet.bytes,
        remote: (!packet.address.is_connected_peer()).then(|| for_family(remote, bound)),
        local: chosen.then(|| for_family(SocketAddr::new(local, 0), bound).ip()),
        stamp: stamp.filter(|_| packet.stamp),
    }
}

/// An IPv4 address on an IPv6 socket is written as an IPv4-mapped one (RFC 4291 section 2.5.5.2).
fn for_family(address: SocketAddr, bound: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V4(v4) if bound.is_ipv6() => (v4.ip().to_ipv6_mapped(), v4.port()).into(),
        other => other,
    }
}

/// The reverse of [`for_family`]; keeps the scope of a link-local address.
fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        IpAddr::V4(v4) => (v4, address.port()).into(),
        IpAddr::V6(_) => address,
    }
}

#[cfg(test)]
mod tests;
