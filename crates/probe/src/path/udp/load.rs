//! Load on the path: datagrams without content, in a given ratio to requests, to the far end or to
//! all hosts of the link. The far end counts them and never answers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::AsFd;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use horolog_io::target::is_public;
use horolog_sys::datagram;
use horolog_sys::netlink::Netlink;
use horolog_sys::socket::DatagramSocket;
use horolog_sys::zone::zone_index;
use horolog_wire::path_probe::{Header, PathDatagramKind};

use super::error::UdpPathError;
use super::flow::open_connected_socket;
use super::options::{LoadAddressingMode, PathUdpOptions};
use super::shared::SharedRowState;

/// Longest wait for room in the send buffer before the end condition is checked.
const WRITABLE_WAIT_MAX: Duration = Duration::from_millis(10);
/// All-nodes multicast address of a link (RFC 4291, section 2.7.1).
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// Load generator of the path.
pub(super) struct PathLoadGenerator {
    socket: DatagramSocket,
    bytes: Vec<u8>,
}

/// Returns the destination of load: as requested, otherwise broadcast if the far end is at a
/// non-public address on the same link, else unicast.
pub(super) fn load_destination(options: &PathUdpOptions, to: SocketAddr) -> LoadAddressingMode {
    options.load_destination.unwrap_or_else(|| {
        let is_near = !is_public(to.ip()) && link_interface(to).is_ok();
        if is_near { LoadAddressingMode::Broadcast } else { LoadAddressingMode::Unicast }
    })
}

/// Returns the index of the interface to a far end on the same link, or the reason why it is not.
fn link_interface(to: SocketAddr) -> Result<u32, String> {
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
        let socket = match load_destination(options, to) {
            LoadAddressingMode::Unicast => open_connected_socket(options, to).map_err(failed)?,
            LoadAddressingMode::Broadcast => open_broadcast_socket(options, to)?,
        };
        Ok(Self { socket, bytes: vec![0; options.load_length as usize] })
    }

    /// Sends load whenever the ratio permits, until the requests are done.
    pub(super) fn send_load(
        mut self,
        shared: &SharedRowState<'_>,
        session: u64,
        is_done: &AtomicBool,
    ) {
        let mut number = 0_u32;
        while shared.wait_to_load(is_done) {
            Header::new(PathDatagramKind::Load, session, number).emit(&mut self.bytes);
            match datagram::send(self.socket.as_fd(), &self.bytes) {
                Ok(()) => {
                    number = number.wrapping_add(1);
                    shared.gate.count_load();
                }
                // Not counted; it is sent again when there is room.
                Err(_) if shared.should_stop() => break,
                Err(_) => {
                    let _ = self.socket.wait_writable(WRITABLE_WAIT_MAX);
                }
            }
        }
    }
}

fn open_broadcast_socket(
    options: &PathUdpOptions,
    to: SocketAddr,
) -> Result<DatagramSocket, UdpPathError> {
    let cannot = |reason: String| UdpPathError::BroadcastUnavailable(to, reason);
    let failed = |source| UdpPathError::Socket { address: to, source };
    let index = link_interface(to).map_err(cannot)?;
    let mut netlink = Netlink::open().map_err(|error| cannot(error.to_string()))?;
    let link = netlink.link_by_index(index).map_err(|error| cannot(error.to_string()))?;
    let all: SocketAddr = match to.ip() {
        IpAddr::V4(_) => (Ipv4Addr::BROADCAST, to.port()).into(),
        IpAddr::V6(_) => SocketAddrV6::new(ALL_NODES, to.port(), 0, index).into(),
    };
    let socket = DatagramSocket::udp(all).map_err(failed)?;
    socket.bind_to_interface(&link.name).map_err(failed)?;
    socket.allow_broadcast().map_err(failed)?;
    socket.allow_fragmentation(all).map_err(failed)?;
    if options.dscp != 0 {
        socket.set_traffic_class(all, options.dscp << 2).map_err(failed)?;
    }
    socket.connect(all).map_err(failed)?;
    Ok(socket)
}
