//! The socket of a group: its packets come in by it, and its copies leave by it, from the port that
//! the group listens at. So a relay's copies are known by their source.

use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use horolog_sys::netlink::NetlinkError;
use horolog_sys::socket::Socket;

use crate::GroupSpec;
use crate::joins::{Ground, Interfaces};

/// Room for bursts that come while copies of others leave.
const RECEIVE_BYTES: usize = 8 << 20;
/// A neighbour that is being asked for holds up to 208 KiB of what was sent (arp(7),
/// `unres_qlen_bytes`); this is room for some 300 of them, so that none takes the room of others.
const SEND_BYTES: usize = 64 << 20;

/// Why a group cannot be listened to.
#[derive(Debug, thiserror::Error)]
pub enum OutletError {
    /// Somebody else does.
    #[error("another program listens at {0}; end it, or choose another port")]
    InUse(SocketAddr),
    /// It is not this host's.
    #[error("{0} is no address of this host")]
    NotLocal(SocketAddr),
    /// A low port.
    #[error("listening at {0} needs root or CAP_NET_BIND_SERVICE; or choose a port from 1024 up")]
    Privilege(SocketAddr),
    /// There is no such interface.
    #[error("{0}")]
    Interface(NetlinkError),
    /// The kernel does not let it join the multicast group.
    #[error("cannot join {0}: {1}; name an interface that takes multicast")]
    Join(IpAddr, io::Error),
    /// Anything else.
    #[error("cannot listen at {0}: {1}")]
    Other(SocketAddr, io::Error),
}

/// A group's socket.
#[derive(Debug)]
pub(crate) struct Outlet {
    /// A number that no other has.
    pub(crate) token: u64,
    pub(crate) listen: SocketAddr,
    interface: Option<String>,
    /// The index of the interface that a multicast group is joined on; 0 where it is not known.
    joined_on: u32,
    /// Whether that interface was gone when it was last looked for.
    lost: AtomicBool,
    socket: Socket,
    /// The hop limit that the socket sends with; 0 while that is not known.
    hop_limit: AtomicU8,
}

/// The first token; those below have other meanings.
pub(crate) const TOKEN_MIN: u64 = 16;
static NEXT_TOKEN: AtomicU64 = AtomicU64::new(TOKEN_MIN);

impl Outlet {
    /// Opens the socket of a group, and joins where it is a multicast one; but not on the relay's
    /// send interface `own`, whose packets come to the relay without. It may listen at a part of
    /// where `others` of this relay do, or they at a part of its own, and nobody else there.
    pub(crate) fn open(
        group: &GroupSpec,
        own: Option<u32>,
        others: &[&Self],
    ) -> Result<Self, OutletError> {
        let listen = group.listen;
        let other = |error| OutletError::Other(listen, error);
        let is_multicast = listen.ip().is_multicast();
        let found =
            if is_multicast { Interfaces::look().and_then(|mut all| all.of(group)) } else { Ok(0) };
        let joined_on = found.map_err(OutletError::Interface)?;
        let joins = is_multicast && own != Some(joined_on);
        let socket = Socket::udp(listen).map_err(other)?;
        prepare(&socket, listen).map_err(other)?;
        let named = group.interface.as_ref().map_or(0, |_| joined_on);
        let at = with_scope(listen, named);
        bind_beside(&socket, at, others).map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => OutletError::InUse(listen),
            io::ErrorKind::AddrNotAvailable => OutletError::NotLocal(listen),
            io::ErrorKind::PermissionDenied => OutletError::Privilege(listen),
            _ => other(error),
        })?;
        if joins {
            socket
                .join(listen.ip(), joined_on)
                .map_err(|error| OutletError::Join(listen.ip(), error))?;
        }
        Ok(Self {
            token: NEXT_TOKEN.fetch_add(1, Ordering::Relaxed),
            listen,
            interface: group.interface.clone(),
            joined_on,
            lost: AtomicBool::new(false),
            socket,
            hop_limit: AtomicU8::new(0),
        })
    }

    /// Whether it is what this group needs, unless its interface is another one by now.
    pub(crate) fn serves(&self, group: &GroupSpec) -> bool {
        (self.listen, &self.interface) == (group.listen, &group.interface)
    }

    /// What has become of the interface that its group is joined on.
    pub(crate) fn ground(&self, group: &GroupSpec, interfaces: &mut Interfaces) -> Ground {
        interfaces.ground(group, self.joined_on)
    }

    /// Notes whether that interface is gone; what was noted before.
    pub(crate) fn note_lost(&self, lost: bool) -> bool {
        self.lost.swap(lost, Ordering::Relaxed)
    }

    /// Whether that interface was gone when it was last looked for.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }

    /// Whether one of the two is a wildcard that the other is a part of.
    fn overlaps(&self, at: SocketAddr) -> bool {
        let listen = self.listen;
        let is_any = listen.ip().is_unspecified() || at.ip().is_unspecified();
        is_any && (listen.port(), listen.is_ipv4()) == (at.port(), at.is_ipv4())
    }

    /// Whether others may be bound beside it. Multicast groups are shared anyway.
    fn share(&self, on: bool) -> io::Result<()> {
        if self.listen.ip().is_multicast() { Ok(()) } else { self.socket.share_address(on) }
    }

    pub(crate) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Has what is sent from now on leave with this hop limit.
    pub(crate) fn set_hop_limit(&self, limit: u8) -> io::Result<()> {
        if self.hop_limit.load(Ordering::Relaxed) != limit {
            self.socket.set_hop_limit(self.listen, limit)?;
            self.hop_limit.store(limit, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Packets that the kernel dropped because the socket's buffer was full.
    pub(crate) fn dropped(&self) -> io::Result<u32> {
        self.socket.drops()
    }
}

impl AsFd for Outlet {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn prepare(socket: &Socket, listen: SocketAddr) -> io::Result<()> {
    if listen.is_ipv6() {
        socket.set_v6_only(true)?;
    }
    if listen.ip().is_multicast() {
        socket.share_address(true)?;
        socket.take_own_groups(listen.ip())?;
    }
    if listen.ip().is_unspecified() {
        // What comes to a multicast group is for the group that listens there.
        socket.take_own_groups(listen.ip())?;
        socket.tell_local_address(listen)?;
    }
    socket.tell_hop_limit(listen)?;
    socket.never_fragment(listen)?;
    socket.set_receive_buffer(RECEIVE_BYTES)?;
    socket.set_send_buffer(SEND_BYTES).map(drop)
}

/// Binds a socket. Where others of this relay listen at a part of the address, or it is a part of
/// theirs, the kernel is asked to let them share it for as long as that takes: so the sockets of
/// other programs are in the way as ever, before and after.
fn bind_beside(socket: &Socket, at: SocketAddr, others: &[&Outlet]) -> io::Result<()> {
    let beside = || others.iter().filter(|other| other.overlaps(at));
    if beside().next().is_none() {
        return socket.bind(at);
    }
    let share = |on: bool| {
        let stays = at.ip().is_multicast();
        (if stays { Ok(()) } else { socket.share_address(on) })?;
        beside().try_for_each(|other| other.share(on))
    };
    let bound = share(true).and_then(|()| socket.bind(at));
    share(false).and(bound)
}

/// A group of the link alone needs its interface in the address (RFC 4007).
fn with_scope(listen: SocketAddr, interface: u32) -> SocketAddr {
    match listen {
        SocketAddr::V6(v6) if v6.ip().is_multicast() && v6.scope_id() == 0 => {
            SocketAddrV6::new(*v6.ip(), v6.port(), v6.flowinfo(), interface).into()
        }
        other => other,
    }
}
