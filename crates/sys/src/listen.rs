//! Sockets that take TCP connections. The connections themselves are the standard library's.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, AsRawFd};

use crate::descriptor::{check, set_option};
use crate::socket::Socket;

/// A TCP socket that listens at `address` and never blocks, with up to `backlog` connections
/// waiting to be accepted, or as many as the system allows if that is less. One of IPv6 leaves IPv4
/// alone.
///
/// # Errors
///
/// Of socket(2), bind(2) and listen(2), such as an address that is in use.
pub fn tcp(address: SocketAddr, backlog: u32) -> io::Result<TcpListener> {
    let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let socket = Socket::open(family, libc::SOCK_STREAM | libc::SOCK_NONBLOCK, 0)?;
    // A server that is started again finds connections of its predecessor in TIME_WAIT.
    set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_REUSEADDR, &(1 as libc::c_int))?;
    if address.is_ipv6() {
        socket.set_v6_only(true)?;
    }
    socket.bind(address)?;
    let backlog = libc::c_int::try_from(backlog).unwrap_or(libc::c_int::MAX);
    // SAFETY: a descriptor that is open and a number.
    check(unsafe { libc::listen(socket.as_fd().as_raw_fd(), backlog) })?;
    Ok(TcpListener::from(socket.into_descriptor()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;

    #[test]
    fn it_takes_connections_and_does_not_wait_for_them() {
        let listener = tcp("127.0.0.1:0".parse().unwrap(), 4).unwrap();
        assert_eq!(listener.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (_, peer) = listener.accept().unwrap();
        assert_eq!(peer, client.local_addr().unwrap());
        let taken = tcp(listener.local_addr().unwrap(), 4).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
    }
}
