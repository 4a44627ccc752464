//! Packet sockets (packet(7)): Ethernet frames sent and received below the network stack.
//! [`crate::message`] transfers the frames, without addresses, because the socket is bound to its
//! interface.

use std::ffi::CString;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::descriptor::{check, get_option, set_option};
use crate::socket::DatagramSocket;

/// Frames counted by a packet socket since the previous query.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PacketSocketStatistics {
    /// Frames that passed the filter, including those that were dropped.
    pub passed: u32,
    /// Frames dropped because the socket's buffer was full.
    pub dropped: u32,
}

/// Protocol number for frames of every protocol, for [`bind`] (`ETH_P_ALL`).
pub const ANY_PROTOCOL: u16 = libc::ETH_P_ALL as u16;

/// Opens a packet socket that receives nothing until it is bound, so that a filter attached before
/// binding applies to every frame.
///
/// # Errors
///
/// `PermissionDenied` without `CAP_NET_RAW`.
pub fn open() -> io::Result<DatagramSocket> {
    DatagramSocket::open(AddressFamily::PACKET, SocketType::RAW, SocketFlags::empty())
}

/// Binds a packet socket to the interface with index `interface` (0 for all), to receive frames
/// with this `EtherType` ([`ANY_PROTOCOL`] for all frames, `None` for no frames).
pub fn bind(socket: &DatagramSocket, interface: u32, ether_type: Option<u16>) -> io::Result<()> {
    let index = i32::try_from(interface).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: a plain C structure of numbers, for which all bytes zero is valid.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as libc::sa_family_t;
    address.sll_protocol = ether_type.unwrap_or(0).to_be();
    address.sll_ifindex = index;
    // SAFETY: the address and its size, alive for the call.
    check(unsafe {
        libc::bind(
            socket.as_fd().as_raw_fd(),
            (&raw const address).cast(),
            size_of::<libc::sockaddr_ll>() as libc::socklen_t,
        )
    })
    .map(drop)
}

/// Sends frames directly to the driver, bypassing traffic control (`PACKET_QDISC_BYPASS`). Without
/// that queue, frames for which the driver has no room are refused.
pub fn bypass_queueing(socket: &DatagramSocket) -> io::Result<()> {
    socket.switch_on(libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS)
}

/// Excludes frames sent by this host from reception (`PACKET_IGNORE_OUTGOING`, Linux 4.20).
pub fn ignore_outgoing(socket: &DatagramSocket) -> io::Result<()> {
    socket.switch_on(libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING)
}

/// Makes the interface receive frames to a multicast MAC address while the socket is open
/// (`PACKET_ADD_MEMBERSHIP`).
pub fn join_group(socket: &DatagramSocket, interface: u32, group: [u8; 6]) -> io::Result<()> {
    let index = i32::try_from(interface).map_err(|_| io::ErrorKind::InvalidInput)?;
    let mut request = libc::packet_mreq {
        mr_ifindex: index,
        mr_type: libc::PACKET_MR_MULTICAST as libc::c_ushort,
        mr_alen: group.len() as libc::c_ushort,
        mr_address: [0; 8],
    };
    request.mr_address[..group.len()].copy_from_slice(&group);
    set_option(socket.as_fd(), libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &request)
}

/// Returns the counts of frames since the previous call (`PACKET_STATISTICS`).
pub fn statistics(socket: &DatagramSocket) -> io::Result<PacketSocketStatistics> {
    let [passed, dropped] = get_option(socket.as_fd(), libc::SOL_PACKET, libc::PACKET_STATISTICS)?;
    Ok(PacketSocketStatistics { passed, dropped })
}

/// Returns the index of the interface named `name` in this network namespace.
///
/// # Errors
///
/// `NotFound` if there is none.
pub fn interface_index(name: &str) -> io::Result<u32> {
    let name = CString::new(name).map_err(|_| io::ErrorKind::NotFound)?;
    // SAFETY: a string that ends in zero, alive for the call.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::ErrorKind::NotFound.into()),
        index => Ok(index),
    }
}

/// Returns true if an interface has this index in this network namespace.
#[must_use]
pub fn interface_exists(index: u32) -> bool {
    let mut name = [0; libc::IFNAMSIZ];
    // SAFETY: room for the longest name and its final zero, alive for the call.
    !unsafe { libc::if_indextoname(index, name.as_mut_ptr()) }.is_null()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_that_is_not_there_has_no_index() {
        assert!(interface_index("lo").unwrap() > 0);
        for name in ["", "no-such-link", "a\0b"] {
            assert_eq!(interface_index(name).unwrap_err().kind(), io::ErrorKind::NotFound);
        }
    }
}
