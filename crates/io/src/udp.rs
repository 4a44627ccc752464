//! UDP sockets as packet devices: one for a listener, one for each of several that share a port, or
//! one that is connected to its peer. Independent of protocols and threads.

mod options;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use horolog_sys::message::{MessageTable, OutgoingDatagram, TransmitTimestamp};
use horolog_sys::socket::Socket;
use horolog_wire::ethernet::{MacAddress, VlanTag};

use crate::batch::{Batch, BatchPacket, PacketMetadata};
use crate::device::BatchDevice;
use crate::queue::{self, DropCounter, KernelQueue, send_all};
pub use options::{UdpError, UdpOptions};

/// Local and remote end of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Endpoints {
    /// Source of a received datagram, or destination of one to send. Unspecified with port 0 (the
    /// default): the peer to which the socket is connected.
    pub remote: SocketAddr,
    /// Local destination address of a received datagram, or source address of one to send.
    /// Unspecified (the default): the socket's own, or the kernel's choice.
    pub local: IpAddr,
    /// Index of the receiving interface, 0 if unknown. Sending follows the routing table instead; a
    /// link-local `remote` carries its interface as scope.
    pub interface: u32,
    /// Multicast group that a received datagram was sent to, if the kernel reports it, as it does
    /// to a socket bound to a wildcard address.
    pub group: Option<IpAddr>,
    /// True if a received datagram was sent to one address of this host alone: to no multicast or
    /// broadcast address, of IP or of the link. Reported if [`UdpOptions::report_unicast`] is set,
    /// otherwise true.
    pub unicast: bool,
    /// Link of a received datagram and of its reply, if the device works on frames.
    pub link: Option<FrameEndpoints>,
}

/// Local and remote end of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameEndpoints {
    /// Source of a received frame, or destination of one to send.
    pub remote: MacAddress,
    /// Local end of the frame.
    pub local: MacAddress,
    /// VLAN tag, if present.
    pub vlan: Option<VlanTag>,
    /// Local destination port of the datagram.
    pub local_port: u16,
}

impl Endpoints {
    /// Returns the ends of a datagram to `remote`, from a local address chosen by the kernel.
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
            group: None,
            unicast: true,
            link: None,
        }
    }
}

/// UDP socket. See [`BatchDevice`] for its behaviour.
#[derive(Debug)]
pub struct UdpDevice {
    socket: Socket,
    table: MessageTable,
    local: SocketAddr,
    send_wait: Duration,
    drops: DropCounter,
    transmit_timestamp: Option<TransmitTimestamp>,
    reports_unicast: bool,
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
        let bound =
            if options.report_unicast { socket.bind_to_host(local) } else { socket.bind(local) };
        bound.map_err(|error| match error.kind() {
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
            transmit_timestamp: options.transmit_timestamps,
            reports_unicast: options.report_unicast,
        })
    }

    /// Opens a socket connected to `remote`, with an address and port chosen by the kernel.
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

    /// Opens a socket on `local` connected to `remote`. With a group as `local` it receives what
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

    /// Returns a second device on the same socket, for another thread.
    ///
    /// # Errors
    ///
    /// If the process has no descriptor left.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self {
            socket: self.socket.try_clone()?,
            table: MessageTable::new(self.table.slots()),
            local: self.local,
            send_wait: self.send_wait,
            drops: DropCounter::default(),
            transmit_timestamp: self.transmit_timestamp,
            reports_unicast: self.reports_unicast,
        })
    }

    /// Returns the address and port that the socket is bound to.
    #[must_use]
    pub fn local_address(&self) -> SocketAddr {
        self.local
    }

    /// Steers each datagram for a shared port to the socket whose index in the order of binding is
    /// the number of the CPU that received it, modulo `sockets`. To be called on one of the
    /// sockets, after all are bound.
    ///
    /// # Errors
    ///
    /// Errors of the kernel.
    pub fn steer_by_cpu(&self, sockets: u32) -> io::Result<()> {
        self.socket.steer_by_cpu(sockets)
    }

    /// Steers as [`UdpDevice::steer_by_cpu`], with the datagrams of more than `len_max` bytes for
    /// the second half of the sockets and the others for the first; within a half the receiving CPU
    /// decides, or chance.
    ///
    /// # Errors
    ///
    /// Errors of the kernel.
    pub fn steer_by_length(&self, sockets: u32, len_max: u32, by_cpu: bool) -> io::Result<()> {
        self.socket.steer_by_length(sockets, len_max, by_cpu)
    }

    /// Waits up to `wait` until this socket or the other can be received from, or packets of either
    /// were looped back; returns true if so.
    ///
    /// # Errors
    ///
    /// Errors of the kernel.
    pub fn wait_either(&self, other: &Self, wait: Duration) -> io::Result<bool> {
        self.socket.wait_either(&other.socket, wait)
    }

    /// Joins a multicast group on the interface with this index, and sends to groups on that
    /// interface only, within its link and not back to this host.
    ///
    /// # Errors
    ///
    /// Errors of the kernel.
    pub fn join(&self, group: IpAddr, interface: u32) -> io::Result<()> {
        self.socket.join(group, interface)
    }

    /// Returns the number of datagrams that the kernel dropped at this socket since it was opened,
    /// because its receive buffer was full. Must be called at least once in 2^32 drops.
    ///
    /// # Errors
    ///
    /// Errors of the kernel.
    pub fn dropped(&mut self) -> io::Result<u64> {
        self.socket.drops().map(|drops| self.drops.advance(drops))
    }
}

impl KernelQueue<Endpoints> for UdpDevice {
    fn socket(&self) -> &Socket {
        &self.socket
    }

    fn try_receive(&mut self, batch: &mut Batch<Endpoints>) -> io::Result<usize> {
        let count = self.table.receive(self.socket.as_fd(), batch.buffers_mut())?;
        let (table, own, reports_unicast) = (&self.table, self.local.ip(), self.reports_unicast);
        batch.fill(count, |slot| {
            let received = table.received(slot);
            let remote = received.remote.unwrap_or(Endpoints::default().remote);
            PacketMetadata::received(
                &received,
                Endpoints {
                    remote: canonical(remote),
                    local: received.control.local.unwrap_or(own).to_canonical(),
                    interface: received.control.interface,
                    group: received.control.group(),
                    unicast: !reports_unicast || received.is_unicast(),
                    link: None,
                },
            )
        });
        Ok(count)
    }
}

impl BatchDevice for UdpDevice {
    type Address = Endpoints;

    fn receive(&mut self, batch: &mut Batch<Endpoints>, wait: Duration) -> io::Result<usize> {
        queue::receive(self, batch, wait)
    }

    fn send(&mut self, batch: &mut Batch<Endpoints>) -> io::Result<usize> {
        let (table, socket, family, stamp) =
            (&mut self.table, &self.socket, self.local, self.transmit_timestamp);
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

/// Sets the options that must be set before the socket is bound.
fn prepare(socket: &Socket, local: SocketAddr, options: &UdpOptions) -> io::Result<()> {
    if local.is_ipv6() {
        socket.set_v6_only(options.v6_only)?;
    }
    if options.share_port {
        socket.set_reuse_port()?;
    }
    if let Some(stamp) = options.transmit_timestamps {
        socket.enable_timestamps(local, stamp == TransmitTimestamp::Hardware)?;
    } else if options.receive_timestamps || options.hardware_timestamps {
        socket.enable_receive_timestamps(options.hardware_timestamps)?;
    }
    if options.report_unicast {
        socket.enable_unicast_detection(local)?;
    } else if local.ip().is_unspecified() {
        socket.enable_packet_info(local)?;
    }
    if let Some(bytes) = options.receive_buffer {
        socket.set_receive_buffer(bytes)?;
    }
    if let Some(bytes) = options.send_buffer {
        socket.set_send_buffer(bytes)?;
    }
    Ok(())
}

/// Returns the kernel's metadata for a packet sent from a socket bound to `bound`. Only a wildcard
/// socket needs the local address: any other has just the one.
fn outgoing(
    packet: BatchPacket<'_, Endpoints>,
    bound: SocketAddr,
    stamp: Option<TransmitTimestamp>,
) -> OutgoingDatagram<'_> {
    let Endpoints { remote, local, .. } = packet.address;
    let chosen = bound.ip().is_unspecified() && !local.is_unspecified();
    OutgoingDatagram {
        bytes: packet.bytes,
        remote: (!packet.address.is_connected_peer()).then(|| for_family(remote, bound)),
        local: chosen.then(|| for_family(SocketAddr::new(local, 0), bound).ip()),
        transmit_timestamp: stamp.filter(|_| packet.wants_timestamp),
    }
}

/// Converts an IPv4 address on an IPv6 socket to an IPv4-mapped one (RFC 4291 section 2.5.5.2).
fn for_family(address: SocketAddr, bound: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V4(v4) if bound.is_ipv6() => (v4.ip().to_ipv6_mapped(), v4.port()).into(),
        other => other,
    }
}

/// Reverses [`for_family`]; keeps the scope of a link-local address.
fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        IpAddr::V4(v4) => (v4, address.port()).into(),
        IpAddr::V6(_) => address,
    }
}

#[cfg(test)]
mod tests;
