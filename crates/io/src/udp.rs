//! UDP sockets as packet devices: one for a listener, one for each of several that share a port, or
//! one that is connected to its peer. Independent of protocols and threads.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use horolog_sys::explain::explain;
use horolog_sys::message::{MmsghdrTable, OutgoingDatagram, TransmitTimestampSource};
use horolog_sys::socket::DatagramSocket;
use horolog_wire::ethernet::{MacAddress, VlanTag};

use crate::batch::{Batch, BatchPacket, PacketMetadata};
use crate::device::BatchDevice;
use crate::queue::{self, DropCounter, SocketBatchReceiver, send_all};

/// Remote and local address of a datagram, and how it was received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DatagramEndpoints {
    /// Source of a received datagram, or destination of one to send. Unspecified with port 0 (the
    /// default): the peer of a connected socket.
    pub remote: SocketAddr,
    /// Destination address of a received datagram on this host, or source address of one to send,
    /// which only a wildcard socket uses. Unspecified (the default): the kernel's choice.
    pub local: IpAddr,
    /// Index of the receiving interface; 0 if unknown. Ignored when sending, where the routing
    /// table decides; a link-local `remote` carries its interface as scope.
    pub interface: u32,
    /// Multicast group to which a received datagram was sent, if the kernel reports it, as for
    /// sockets bound to a wildcard address.
    pub group: Option<IpAddr>,
    /// True if a received datagram was sent to a unicast address of this host, at the link layer
    /// and the IP layer. Reported if [`UdpDeviceOptions::report_unicast`] is set, otherwise always
    /// true.
    pub unicast: bool,
    /// MAC addresses, VLAN tag and local port of a received datagram and its reply, if the device
    /// works on frames.
    pub link: Option<FrameEndpoints>,
}

/// Link-layer endpoints of a frame, and the local port of its datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameEndpoints {
    /// Source MAC address of a received frame, or destination of one to send.
    pub remote: MacAddress,
    /// Destination MAC address of a received frame, or source of one to send.
    pub local: MacAddress,
    /// VLAN tag, if present.
    pub vlan: Option<VlanTag>,
    /// Local UDP port: destination of a received datagram, source of one to send.
    pub local_port: u16,
}

impl DatagramEndpoints {
    /// Returns the endpoints of a datagram to `remote`, from a local address chosen by the kernel.
    #[must_use]
    #[inline]
    pub fn to_remote(remote: SocketAddr) -> Self {
        Self { remote, ..Self::default() }
    }

    fn is_connected_peer(&self) -> bool {
        self.remote.port() == 0 && self.remote.ip().is_unspecified()
    }
}

impl Default for DatagramEndpoints {
    fn default() -> Self {
        let unspecified = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        Self {
            remote: SocketAddr::new(unspecified, 0),
            local: unspecified,
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
    socket: DatagramSocket,
    table: MmsghdrTable,
    local: SocketAddr,
    send_wait: Duration,
    drops: DropCounter,
    transmit_timestamp: Option<TransmitTimestampSource>,
    reports_unicast: bool,
}

impl UdpDevice {
    /// Binds to `local`; port 0 lets the kernel choose one.
    ///
    /// # Errors
    ///
    /// See [`UdpDeviceError`].
    pub fn bind(local: SocketAddr, options: &UdpDeviceOptions) -> Result<Self, UdpDeviceError> {
        let other = |error| UdpDeviceError::Other(local, error);
        let socket = DatagramSocket::udp(local).map_err(other)?;
        set_options(&socket, local, options).map_err(other)?;
        if let Some(name) = &options.interface {
            socket.bind_to_interface(name).map_err(|error| match error.kind() {
                io::ErrorKind::NotFound => UdpDeviceError::NoInterface(name.clone()),
                _ => other(error),
            })?;
        }
        let bound =
            if options.report_unicast { socket.bind_to_host(local) } else { socket.bind(local) };
        bound.map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => UdpDeviceError::InUse(local),
            io::ErrorKind::AddrNotAvailable => UdpDeviceError::NotLocal(local),
            io::ErrorKind::PermissionDenied => UdpDeviceError::Privilege(local),
            _ => other(error),
        })?;
        let bound = socket.local_address().map_err(other)?;
        Ok(Self {
            socket,
            table: MmsghdrTable::new(options.slots),
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
    /// See [`UdpDeviceError`].
    pub fn connect(remote: SocketAddr, options: &UdpDeviceOptions) -> Result<Self, UdpDeviceError> {
        let any = match remote {
            SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
            SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
        };
        Self::connect_from(any, remote, options)
    }

    /// Opens a socket on `local` connected to `remote`. If `local` is a multicast group, the socket
    /// receives what `remote` sends to the group once it has joined the group ([`Self::join`]).
    ///
    /// # Errors
    ///
    /// See [`UdpDeviceError`].
    pub fn connect_from(
        local: SocketAddr,
        remote: SocketAddr,
        options: &UdpDeviceOptions,
    ) -> Result<Self, UdpDeviceError> {
        let mut device = Self::bind(local, options)?;
        device
            .socket
            .connect(remote)
            .map_err(|error| UdpDeviceError::Unreachable(remote, error))?;
        device.local =
            device.socket.local_address().map_err(|error| UdpDeviceError::Other(remote, error))?;
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
            table: MmsghdrTable::new(self.table.slots()),
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

    /// Steers each datagram for a shared port (`SO_REUSEPORT`) to the socket with the number of the
    /// receiving CPU, modulo `sockets`, in the order of binding. Called once, on any of the
    /// sockets, after all are bound.
    ///
    /// # Errors
    ///
    /// Errors of the kernel.
    pub fn steer_by_cpu(&self, sockets: u32) -> io::Result<()> {
        self.socket.steer_by_cpu(sockets)
    }

    /// Steers datagrams with payloads of more than `len_max` bytes to the second half of the
    /// `sockets` that share the port, in the order of binding, and the others to the first half.
    /// Within a half, the receiving CPU selects the socket if `by_cpu`, otherwise a random number.
    ///
    /// # Errors
    ///
    /// Errors of the kernel.
    pub fn steer_by_length(&self, sockets: u32, len_max: u32, by_cpu: bool) -> io::Result<()> {
        self.socket.steer_by_length(sockets, len_max, by_cpu)
    }

    /// Waits up to `wait` until this socket or `other` has a received packet, or a sent one that is
    /// looped back. Returns true if one of them has, false after a timeout or a signal.
    ///
    /// # Errors
    ///
    /// Errors of the kernel.
    pub fn wait_either(&self, other: &Self, wait: Duration) -> io::Result<bool> {
        self.socket.wait_either(&other.socket, wait)
    }

    /// Joins a multicast group on the interface with this index. Datagrams to groups are then sent
    /// on that interface only, with the default TTL of 1 and without loopback to this host.
    ///
    /// # Errors
    ///
    /// Errors of the kernel.
    pub fn join(&self, group: IpAddr, interface: u32) -> io::Result<()> {
        self.socket.join(group, interface)
    }

    /// Returns the number of datagrams that the kernel dropped at this socket since it was opened,
    /// usually because its receive buffer was full. Must be called at least once in 2^32 drops.
    ///
    /// # Errors
    ///
    /// Errors of the kernel.
    pub fn dropped(&mut self) -> io::Result<u64> {
        self.socket.drops().map(|drops| self.drops.update(drops))
    }
}

impl SocketBatchReceiver<DatagramEndpoints> for UdpDevice {
    fn socket(&self) -> &DatagramSocket {
        &self.socket
    }

    fn try_receive(&mut self, batch: &mut Batch<DatagramEndpoints>) -> io::Result<usize> {
        let count = self.table.receive(self.socket.as_fd(), batch.buffers_mut())?;
        let (table, bound_ip, reports_unicast) =
            (&self.table, self.local.ip(), self.reports_unicast);
        batch.fill(count, |slot| {
            let received = table.received(slot);
            let remote = received.remote.unwrap_or(DatagramEndpoints::default().remote);
            PacketMetadata::received(
                &received,
                DatagramEndpoints {
                    remote: canonical(remote),
                    local: received.control.local.unwrap_or(bound_ip).to_canonical(),
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
    type Address = DatagramEndpoints;

    fn receive(
        &mut self,
        batch: &mut Batch<DatagramEndpoints>,
        wait: Duration,
    ) -> io::Result<usize> {
        queue::receive(self, batch, wait)
    }

    fn send(&mut self, batch: &mut Batch<DatagramEndpoints>) -> io::Result<usize> {
        let (table, socket, family, timestamp_source) =
            (&mut self.table, &self.socket, self.local, self.transmit_timestamp);
        send_all(socket, batch.len(), self.send_wait, |first| {
            let packets = batch.iter().skip(first);
            table.send(
                socket.as_fd(),
                packets.map(|packet| outgoing_datagram(packet, family, timestamp_source)),
            )
        })
    }

    fn receive_transmitted(&mut self, batch: &mut Batch<DatagramEndpoints>) -> io::Result<usize> {
        queue::receive_transmitted(self.socket.as_fd(), &mut self.table, batch, |control| {
            DatagramEndpoints { interface: control.interface, ..DatagramEndpoints::default() }
        })
    }
}

impl AsFd for UdpDevice {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Sets the options that must precede binding.
fn set_options(
    socket: &DatagramSocket,
    local: SocketAddr,
    options: &UdpDeviceOptions,
) -> io::Result<()> {
    if local.is_ipv6() {
        socket.set_v6_only(options.v6_only)?;
    }
    if options.share_port {
        socket.set_reuse_port()?;
    }
    if let Some(source) = options.transmit_timestamps {
        socket.enable_timestamps(local, source == TransmitTimestampSource::Hardware)?;
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

/// Returns the packet in the kernel's form, for a socket bound to `bound`. The source address is
/// set only on a wildcard socket; any other has just one.
fn outgoing_datagram(
    packet: BatchPacket<'_, DatagramEndpoints>,
    bound: SocketAddr,
    timestamp_source: Option<TransmitTimestampSource>,
) -> OutgoingDatagram<'_> {
    let DatagramEndpoints { remote, local, .. } = packet.address;
    let chosen = bound.ip().is_unspecified() && !local.is_unspecified();
    OutgoingDatagram {
        bytes: packet.bytes,
        remote: (!packet.address.is_connected_peer()).then(|| for_socket_family(remote, bound)),
        local: chosen.then(|| for_socket_family(SocketAddr::new(local, 0), bound).ip()),
        transmit_timestamp: timestamp_source.filter(|_| packet.wants_timestamp),
    }
}

/// Converts an IPv4 address on an IPv6 socket to an IPv4-mapped one (RFC 4291 section 2.5.5.2);
/// other addresses are unchanged.
fn for_socket_family(address: SocketAddr, bound: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V4(v4) if bound.is_ipv6() => (v4.ip().to_ipv6_mapped(), v4.port()).into(),
        other => other,
    }
}

/// Reverses [`for_socket_family`]: converts an IPv4-mapped address to IPv4.
fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        IpAddr::V4(v4) => (v4, address.port()).into(),
        IpAddr::V6(_) => address,
    }
}

#[cfg(test)]
mod tests;

/// Options of a UDP device.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub struct UdpDeviceOptions {
    /// Maximum number of datagrams per system call; more datagrams take several calls.
    pub slots: usize,
    /// True if several sockets may share the address and port (`SO_REUSEPORT`).
    pub share_port: bool,
    /// True to take kernel receive timestamps; they are also taken if hardware or transmit
    /// timestamps are requested.
    pub receive_timestamps: bool,
    /// True to report hardware receive timestamps, if the interface takes them. Ignored if
    /// `transmit_timestamps` is set, whose source then applies to both directions.
    pub hardware_timestamps: bool,
    /// Source of transmit timestamps; `None` requests none. With hardware timestamps, received
    /// datagrams get them too, otherwise only kernel timestamps.
    pub transmit_timestamps: Option<TransmitTimestampSource>,
    /// True to report whether each datagram was sent to a unicast address
    /// ([`crate::DatagramEndpoints::unicast`]). A server needs that: with `SO_REUSEPORT` every
    /// socket of the port receives a copy of a multicast or broadcast datagram.
    pub report_unicast: bool,
    /// True to set `IPV6_V6ONLY`, so that an IPv6 wildcard listener receives no IPv4 datagrams.
    pub v6_only: bool,
    /// Receive buffer size to request, in bytes; the system's default if `None`.
    pub receive_buffer: Option<usize>,
    /// Send buffer size to request, in bytes; the system's default if `None`.
    pub send_buffer: Option<usize>,
    /// Name of the interface to which the socket is bound; any interface if `None`.
    pub interface: Option<String>,
    /// Time that [`crate::BatchDevice::send`] waits each time for room in a full send buffer before
    /// it drops the rest of the batch. Zero: no wait.
    pub send_wait: Duration,
}

impl Default for UdpDeviceOptions {
    fn default() -> Self {
        Self {
            slots: 32,
            share_port: false,
            receive_timestamps: true,
            hardware_timestamps: false,
            transmit_timestamps: None,
            report_unicast: false,
            v6_only: true,
            receive_buffer: None,
            send_buffer: None,
            interface: None,
            send_wait: Duration::ZERO,
        }
    }
}

/// Reason for which a UDP device could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum UdpDeviceError {
    /// Address in use by another socket.
    #[error("cannot use {0}: address in use by another program; stop it or choose another port")]
    InUse(SocketAddr),
    /// Address that this host does not have; with [`UdpDeviceOptions::report_unicast`] also a
    /// multicast or broadcast address.
    #[error("cannot use {0}: not an address of this host; choose one that `ip address` shows")]
    NotLocal(SocketAddr),
    /// Port that this process may not bind, being below the unprivileged range.
    #[error("cannot use {0}: root or CAP_NET_BIND_SERVICE is required; choose a port from 1024 up")]
    Privilege(SocketAddr),
    /// Missing interface.
    #[error("cannot use interface {0}: not found; choose one that `ip link` shows")]
    NoInterface(String),
    /// Peer to which the socket could not be connected, for instance for lack of a route.
    #[error("cannot reach {0}: {why}; check the address and the route to it", why = explain(.1))]
    Unreachable(SocketAddr, io::Error),
    /// Any other error of the kernel.
    #[error("cannot open a UDP socket for {0}: {why}", why = explain(.1))]
    Other(SocketAddr, io::Error),
}
