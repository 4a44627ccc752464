//! Socket of a group: it receives the group's packets and sends their copies, from the port that
//! the group listens on. So a relay's copies are recognisable by their source.

use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use horolog_sys::explain::explain;
use horolog_sys::netlink::NetlinkError;
use horolog_sys::socket::DatagramSocket;

use crate::memberships::{HostInterfaces, JoinedInterfaceState};
use crate::{GroupSpec, PacketCopies};

/// Size of the receive buffer, in bytes: room for bursts that arrive while copies of other packets
/// are sent.
const RECEIVE_BUFFER_BYTES: usize = 8 << 20;
/// Size of the send buffer, in bytes. An unresolved neighbour holds up to 208 KiB of unsent packets
/// (arp(7), `unres_qlen_bytes`); this is room for some 300 such neighbours.
const SEND_BUFFER_BYTES: usize = 64 << 20;

/// Reason for which a group's address cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum GroupSocketError {
    /// Another socket uses the address.
    #[error("cannot listen on {0}: address in use; stop the other program, or choose another port")]
    InUse(SocketAddr),
    /// The address is not one of this host.
    #[error("cannot listen on {0}: not an address of this host")]
    NotLocal(SocketAddr),
    /// The port is privileged.
    #[error(
        "cannot listen on {0}: root or CAP_NET_BIND_SERVICE is required; or choose a port from \
             1024 up"
    )]
    Privilege(SocketAddr),
    /// The interface for the multicast group does not exist, or the kernel does not report it.
    #[error("{0}")]
    Interface(NetlinkError),
    /// The kernel refuses to join the multicast group.
    #[error("cannot join {0}: {why}; name an interface with multicast", why = explain(.1))]
    Join(IpAddr, io::Error),
    /// Any other error.
    #[error("cannot listen on {0}: {why}", why = explain(.1))]
    Other(SocketAddr, io::Error),
}

/// UDP socket that receives the packets of one group and sends their copies.
#[derive(Debug)]
pub(crate) struct GroupSocket {
    /// Unique number of the socket, its token for epoll.
    pub(crate) token: u64,
    pub(crate) listen: SocketAddr,
    interface: Option<String>,
    /// Index of the interface for a multicast group; 0 if unknown, or if the group is unicast. On
    /// the send interface no group is joined.
    joined_on: u32,
    /// True if the interface on which the group is joined was gone at the latest check.
    is_interface_gone: AtomicBool,
    socket: DatagramSocket,
    /// Hop limit that is set on the socket; 0 while unknown.
    hop_limit: AtomicU8,
    /// True if the kernel fragments packets of the socket.
    fragment: AtomicBool,
}

/// First token of a group socket; lower ones have other meanings in the worker's epoll.
pub(crate) const TOKEN_MIN: u64 = 16;
static NEXT_TOKEN: AtomicU64 = AtomicU64::new(TOKEN_MIN);

impl GroupSocket {
    /// Opens the socket of a group, and joins a multicast group. No group is joined on the send
    /// interface, whose frames the relay reads directly. The address may overlap those of `others`,
    /// sockets of this relay, by a wildcard; an address in use by another program is an error.
    pub(crate) fn open(
        group: &GroupSpec,
        send_interface_index: Option<u32>,
        others: &[&Self],
    ) -> Result<Self, GroupSocketError> {
        let listen = group.listen;
        let other = |error| GroupSocketError::Other(listen, error);
        let is_multicast = listen.ip().is_multicast();
        let interface_index = if is_multicast {
            HostInterfaces::query().and_then(|mut all| all.group_interface_index(group))
        } else {
            Ok(0)
        };
        let joined_on = interface_index.map_err(GroupSocketError::Interface)?;
        let should_join = is_multicast && send_interface_index != Some(joined_on);
        let socket = DatagramSocket::udp(listen).map_err(other)?;
        set_socket_options(&socket, listen).map_err(other)?;
        let scope = group.interface.as_ref().map_or(0, |_| joined_on);
        let bind_address = with_scope(listen, scope);
        bind_shared(&socket, bind_address, others).map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => GroupSocketError::InUse(listen),
            io::ErrorKind::AddrNotAvailable => GroupSocketError::NotLocal(listen),
            io::ErrorKind::PermissionDenied => GroupSocketError::Privilege(listen),
            _ => other(error),
        })?;
        if should_join {
            socket
                .join(listen.ip(), joined_on)
                .map_err(|error| GroupSocketError::Join(listen.ip(), error))?;
        }
        Ok(Self {
            token: NEXT_TOKEN.fetch_add(1, Ordering::Relaxed),
            listen,
            interface: group.interface.clone(),
            joined_on,
            is_interface_gone: AtomicBool::new(false),
            socket,
            hop_limit: AtomicU8::new(0),
            fragment: AtomicBool::new(false),
        })
    }

    /// Returns true if the socket has the group's address and interface name. The interface itself
    /// may have been replaced since the socket was opened.
    pub(crate) fn is_for_group(&self, group: &GroupSpec) -> bool {
        (self.listen, &self.interface) == (group.listen, &group.interface)
    }

    /// Returns the state of the interface on which the socket has joined the group.
    pub(crate) fn join_state(
        &self,
        group: &GroupSpec,
        interfaces: &mut HostInterfaces,
    ) -> JoinedInterfaceState {
        interfaces.join_state(group, self.joined_on)
    }

    /// Records whether the interface of the joined group is gone (`lost`); returns the previous
    /// value.
    pub(crate) fn set_interface_gone(&self, lost: bool) -> bool {
        self.is_interface_gone.swap(lost, Ordering::Relaxed)
    }

    /// Returns true if the interface of the joined group was gone at the latest check.
    pub(crate) fn is_interface_gone(&self) -> bool {
        self.is_interface_gone.load(Ordering::Relaxed)
    }

    /// Returns true if either address is a wildcard, with the same port and IP version.
    fn overlaps(&self, address: SocketAddr) -> bool {
        let listen = self.listen;
        let is_any = listen.ip().is_unspecified() || address.ip().is_unspecified();
        is_any && (listen.port(), listen.is_ipv4()) == (address.port(), address.is_ipv4())
    }

    /// Allows or forbids further sockets on the socket's address. Multicast addresses are shared
    /// anyway.
    fn set_sharing(&self, on: bool) -> io::Result<()> {
        if self.listen.ip().is_multicast() { Ok(()) } else { self.socket.set_reuse_address(on) }
    }

    pub(crate) fn socket(&self) -> &DatagramSocket {
        &self.socket
    }

    /// Sets the hop limit and the fragmentation of the socket as `copies` need them.
    pub(crate) fn prepare_for(&self, copies: &PacketCopies<'_>) -> io::Result<()> {
        let (limit, fragment) = (copies.hop_limit, copies.group.spec.fragment);
        if self.hop_limit.load(Ordering::Relaxed) != limit {
            self.socket.set_hop_limit(self.listen, limit)?;
            self.hop_limit.store(limit, Ordering::Relaxed);
        }
        if self.fragment.load(Ordering::Relaxed) != fragment {
            if fragment {
                self.socket.allow_fragmentation(self.listen)?;
            } else {
                self.socket.never_fragment(self.listen)?;
            }
            self.fragment.store(fragment, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Returns the number of packets that the kernel dropped because the receive buffer was full.
    pub(crate) fn socket_drops(&self) -> io::Result<u32> {
        self.socket.drops()
    }
}

impl AsFd for GroupSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn set_socket_options(socket: &DatagramSocket, listen: SocketAddr) -> io::Result<()> {
    if listen.is_ipv6() {
        socket.set_v6_only(true)?;
    }
    if listen.ip().is_multicast() {
        socket.set_reuse_address(true)?;
        socket.only_joined_groups(listen.ip())?;
    } else {
        socket.drop_link_groups()?;
    }
    if listen.ip().is_unspecified() {
        // Packets to a multicast group are for the group that listens on it.
        socket.only_joined_groups(listen.ip())?;
        socket.enable_packet_info(listen)?;
    }
    socket.enable_hop_limit(listen)?;
    socket.never_fragment(listen)?;
    socket.set_receive_buffer(RECEIVE_BUFFER_BYTES)?;
    socket.set_send_buffer(SEND_BUFFER_BYTES).map(drop)
}

/// Binds a socket. If it overlaps other sockets of this relay, `SO_REUSEADDR` is set on all of them
/// for this call only, so that the sockets of other programs conflict as usual, before and after.
fn bind_shared(
    socket: &DatagramSocket,
    address: SocketAddr,
    others: &[&GroupSocket],
) -> io::Result<()> {
    let overlapping = || others.iter().filter(|other| other.overlaps(address));
    let bind = || {
        if address.ip().is_multicast() {
            socket.bind(address)
        } else {
            socket.bind_to_host(address)
        }
    };
    if overlapping().next().is_none() {
        return bind();
    }
    let set_sharing = |on: bool| {
        let is_shared_anyway = address.ip().is_multicast();
        (if is_shared_anyway { Ok(()) } else { socket.set_reuse_address(on) })?;
        overlapping().try_for_each(|other| other.set_sharing(on))
    };
    let bound = set_sharing(true).and_then(|()| bind());
    set_sharing(false).and(bound)
}

/// Adds the interface index as scope ID (RFC 4007) to an IPv6 multicast address without one.
fn with_scope(listen: SocketAddr, interface: u32) -> SocketAddr {
    match listen {
        SocketAddr::V6(v6) if v6.ip().is_multicast() && v6.scope_id() == 0 => {
            SocketAddrV6::new(*v6.ip(), v6.port(), v6.flowinfo(), interface).into()
        }
        other => other,
    }
}
