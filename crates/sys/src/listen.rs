//! Sockets that take TCP connections. The connections themselves are the standard library's, save
//! for how their end is sent.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
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

/// Holds back what is written from now on until a segment is full or the stream is shut down or
/// closed (`TCP_CORK`, tcp(7)): the last words and the end of the stream leave in one segment.
///
/// # Errors
///
/// Of setsockopt(2); the stream is then as it was.
pub fn hold_back(stream: &TcpStream) -> io::Result<()> {
    set_option(stream.as_fd(), libc::IPPROTO_TCP, libc::TCP_CORK, &(1 as libc::c_int))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::Shutdown;
    use std::time::Duration;

    #[test]
    fn what_is_held_back_comes_with_the_end() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        hold_back(&client).unwrap();
        client.write_all(b"bye").unwrap();
        server.set_nonblocking(true).unwrap();
        assert_eq!(server.read(&mut [0; 8]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        client.shutdown(Shutdown::Write).unwrap();
        server.set_nonblocking(false).unwrap();
        server.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut all = Vec::new();
        server.read_to_end(&mut all).unwrap();
        assert_eq!(all, b"bye");
    }

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
