//! Load on the path: meaningless datagrams at a given ratio to valid ones, to the far end or to all
//! hosts of its link. The far end counts them and never answers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::AsFd;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use horolog_io::target::is_public;
use horolog_sys::datagram;
use horolog_sys::netlink::Netlink;
use horolog_sys::socket::Socket;
use horolog_sys::zone::zone_index;
use horolog_wire::path_probe::{Header, PathDatagramKind};

use super::error::UdpPathError;
use super::flow::connected;
use super::options::{LoadKind, PathUdpOptions};
use super::shared::RowState;

/// Longest single wait for room in the socket.
const ROOM: Duration = Duration::from_millis(10);
/// All hosts of a link (RFC 4291, section 2.7.1).
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// Load generator of the path.
pub(super) struct PathLoadGenerator {
    socket: Socket,
    bytes: Vec<u8>,
}

/// Returns the destination of load: as requested, otherwise broadcast if the far end is on the
/// link.
pub(super) fn kind(options: &PathUdpOptions, to: SocketAddr) -> LoadKind {
    options.load_kind.unwrap_or_else(|| {
        let is_near = !is_public(to.ip()) && interface(to).is_ok();
        if is_near { LoadKind::Broadcast } else { LoadKind::Unicast }
    })
}

/// Returns the interface on whose link the far end is reached without a router.
fn interface(to: SocketAddr) -> Result<u32, String> {
    let mut netlink = Netlink::open().map_err(|error| error.to_string())?;
    let route = netlink.route_get(to.ip(), zone_index(to)).map_err(|error| error.to_string())?;
    if route.local {
        return Err("the far end is this host".to_owned());
    }
    match route.gateway {
        Some(gateway) => Err(format!("it is behind the router {gateway}")),
        None => Ok(route.index),
    }
}

impl PathLoadGenerator {
    pub(super) fn open(options: &PathUdpOptions, to: SocketAddr) -> Result<Self, UdpPathError> {
        let failed = |source| UdpPathError::Socket { address: to, source };
        let socket = match kind(options, to) {
            LoadKind::Unicast => connected(options, to).map_err(failed)?,
            LoadKind::Broadcast => broadcast(options, to)?,
        };
        Ok(Self { socket, bytes: vec![0; options.load_length as usize] })
    }

    /// Sends the load that requests are owed until there are no more of them.
    pub(super) fn run(mut self, shared: &RowState<'_>, session: u64, is_done: &AtomicBool) {
        let mut number = 0_u32;
        while shared.before_load(is_done) {
            Header::new(PathDatagramKind::Load, session, number).emit(&mut self.bytes);
            match datagram::send(self.socket.as_fd(), &self.bytes) {
                Ok(()) => {
                    number = number.wrapping_add(1);
                    shared.gate.count_load();
                }
                // Only time is lost: it is sent again when there is room.
                Err(_) if shared.is_to_end() => break,
                Err(_) => {
                    let _ = self.socket.wait_writable(ROOM);
                }
            }
        }
    }
}

fn broadcast(options: &PathUdpOptions, to: SocketAddr) -> Result<Socket, UdpPathError> {
    let cannot = |reason: String| UdpPathError::Broadcast(to, reason);
    let failed = |source| UdpPathError::Socket { address: to, source };
    let index = interface(to).map_err(cannot)?;
    let mut netlink = Netlink::open().map_err(|error| cannot(error.to_string()))?;
    let link = netlink.link_by_index(index).map_err(|error| cannot(error.to_string()))?;
    let all: SocketAddr = match to.ip() {
        IpAddr::V4(_) => (Ipv4Addr::BROADCAST, to.port()).into(),
        IpAddr::V6(_) => SocketAddrV6::new(ALL_NODES, to.port(), 0, index).into(),
    };
    let socket = Socket::udp(all).map_err(failed)?;
    socket.bind_to_interface(&link.name).map_err(failed)?;
    socket.allow_broadcast().map_err(failed)?;
    socket.allow_fragmentation(all).map_err(failed)?;
    if options.dscp != 0 {
        socket.set_traffic_class(all, options.dscp << 2).map_err(failed)?;
    }
    socket.connect(all).map_err(failed)?;
    Ok(socket)
}
