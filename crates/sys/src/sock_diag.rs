//! TCP connections of this network namespace with their kernel state, by `sock_diag`(7), as shown
//! by `ss -ti`. Requires no privilege.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use netlink_sys::protocols::NETLINK_SOCK_DIAG;

use crate::tcp::TcpInfo;

/// Length of `struct nlmsghdr`.
const HEADER_LEN: usize = 16;
/// `SOCK_DIAG_BY_FAMILY` and `INET_DIAG_INFO` of `linux/sock_diag.h` and `linux/inet_diag.h`.
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const INET_DIAG_INFO: u16 = 2;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// `NLM_F_REQUEST | NLM_F_DUMP`.
const REQUEST_ALL: u16 = 0x301;
/// Bit of the established state.
const ESTABLISHED: u32 = 1 << 1;
/// Length of `struct inet_diag_req_v2` and of `struct inet_diag_msg`.
const REQUEST_LEN: usize = 56;
const MESSAGE_LEN: usize = 72;

/// TCP connection of this host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TcpConnection {
    /// Local address and port.
    pub local: SocketAddr,
    /// Remote address and port.
    pub remote: SocketAddr,
    /// State of the connection.
    pub info: TcpInfo,
}

/// `sock_diag` netlink socket.
#[derive(Debug)]
pub struct SockDiag {
    socket: netlink_sys::Socket,
    sequence: u32,
}

impl SockDiag {
    /// Opens the socket in the network namespace of the calling thread.
    pub fn open() -> io::Result<Self> {
        let mut socket = netlink_sys::Socket::new(NETLINK_SOCK_DIAG)?;
        socket.bind_auto()?;
        socket.connect(&netlink_sys::SocketAddr::new(0, 0))?;
        Ok(Self { socket, sequence: 0 })
    }

    /// Returns the established IPv4 and IPv6 connections with this port at either end.
    ///
    /// # Errors
    ///
    /// Of netlink(7), such as a kernel without `sock_diag`.
    pub fn connections(&mut self, port: u16) -> io::Result<Vec<TcpConnection>> {
        let mut found = Vec::new();
        for family in [libc::AF_INET, libc::AF_INET6] {
            self.dump(family as u8, &mut found)?;
        }
        found.retain(|one: &TcpConnection| one.local.port() == port || one.remote.port() == port);
        Ok(found)
    }

    fn dump(&mut self, family: u8, connections: &mut Vec<TcpConnection>) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        self.socket.send(&request(family, self.sequence), 0)?;
        loop {
            let (datagram, _) = self.socket.recv_from_full()?;
            if parse_datagram(&datagram, self.sequence, connections)? {
                return Ok(());
            }
        }
    }
}

fn request(family: u8, sequence: u32) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_LEN + REQUEST_LEN);
    bytes.extend(((HEADER_LEN + REQUEST_LEN) as u32).to_ne_bytes());
    bytes.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    bytes.extend(REQUEST_ALL.to_ne_bytes());
    bytes.extend(sequence.to_ne_bytes());
    bytes.extend(0_u32.to_ne_bytes());
    bytes.extend([family, libc::IPPROTO_TCP as u8, 1 << (INET_DIAG_INFO - 1), 0]);
    bytes.extend(ESTABLISHED.to_ne_bytes());
    // An all-zero inet_diag_sockid matches any addresses.
    bytes.resize(HEADER_LEN + REQUEST_LEN, 0);
    bytes
}

/// Processes the messages of a datagram; returns true if it is the last one.
fn parse_datagram(
    mut datagram: &[u8],
    sequence: u32,
    connections: &mut Vec<TcpConnection>,
) -> io::Result<bool> {
    let malformed = || io::Error::from(io::ErrorKind::InvalidData);
    while datagram.len() >= HEADER_LEN {
        let length = u32_at(datagram, 0).unwrap_or(0) as usize;
        let message = datagram.get(HEADER_LEN..length).ok_or_else(malformed)?;
        let kind = u16_at(datagram, 4);
        let is_ours = u32_at(datagram, 8) == Some(sequence);
        datagram = datagram.get(length.next_multiple_of(4)..).unwrap_or_default();
        match kind {
            _ if !is_ours => {}
            Some(NLMSG_DONE) => return Ok(true),
            Some(NLMSG_ERROR) => {
                let errno = u32_at(message, 0).ok_or_else(malformed)? as i32;
                return Err(io::Error::from_raw_os_error(errno.saturating_neg()));
            }
            Some(SOCK_DIAG_BY_FAMILY) => connections.extend(connection(message)),
            _ => {}
        }
    }
    Ok(false)
}

/// Parses a connection from `struct inet_diag_msg` and its attributes.
fn connection(message: &[u8]) -> Option<TcpConnection> {
    let is_ipv4 = i32::from(*message.first()?) == libc::AF_INET;
    let port = |at: usize| Some(u16::from_be_bytes(*message.get(at..)?.first_chunk()?));
    let address = |at: usize| -> Option<IpAddr> {
        let bytes = message.get(at..)?;
        Some(if is_ipv4 {
            Ipv4Addr::from(*bytes.first_chunk::<4>()?).into()
        } else {
            Ipv6Addr::from(*bytes.first_chunk::<16>()?).to_canonical()
        })
    };
    let local = SocketAddr::new(address(8)?, port(4)?);
    let remote = SocketAddr::new(address(24)?, port(6)?);
    let mut attributes = message.get(MESSAGE_LEN..)?;
    while attributes.len() >= 4 {
        let length = usize::from(u16_at(attributes, 0)?);
        let value = attributes.get(4..length)?;
        if u16_at(attributes, 2) == Some(INET_DIAG_INFO) {
            return Some(TcpConnection { local, remote, info: TcpInfo::parse(value) });
        }
        attributes = attributes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    None
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::tcp::{TcpState, tests::pair};

    #[test]
    fn both_ends_of_a_connection_are_found() {
        let (mut near, far) = pair();
        near.write_all(b"five!").unwrap();
        let port = far.local_addr().unwrap().port();
        let found = SockDiag::open().unwrap().connections(port).unwrap();
        let end = found.iter().find(|one| one.local == far.local_addr().unwrap()).unwrap();
        assert_eq!(end.remote, near.local_addr().unwrap());
        assert_eq!((end.info.state(), end.info.bytes_received), (TcpState::Established, 5));
        assert_eq!(found.len(), 2, "{found:?}");
    }

    #[test]
    fn what_is_cut_short_is_no_connection_and_no_panic() {
        let whole = request(2, 7);
        for length in 0..whole.len() {
            let mut found = Vec::new();
            // Any outcome will do; none of these is a connection.
            let _ = parse_datagram(&whole[..length], 7, &mut found);
            assert!(found.is_empty());
            assert_eq!(connection(&whole[..length]), None);
        }
    }
}
