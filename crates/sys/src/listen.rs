//! Listening TCP sockets. Connections are those of the standard library, except for `TCP_CORK`.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;

use rustix::net::{SocketFlags, SocketType};

use crate::descriptor::set_option;
use crate::explain::explain;
use crate::socket::{DatagramSocket, family_of};

/// Default listen addresses: the wildcards of the IP versions that this kernel supports.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WildcardAddresses {
    /// `0.0.0.0`, `[::]` or both.
    pub addresses: Vec<SocketAddr>,
    /// Notice about an IP version that the kernel does not support.
    pub missing: Option<String>,
}

impl WildcardAddresses {
    /// Opens a socket of each IP version to find those that are available. If neither is, both are
    /// returned, so that listening reports the error.
    #[must_use]
    pub fn supported_by_kernel(port: u16) -> Self {
        Self::available_with(port, |any| {
            let socket = DatagramSocket::udp(any)?;
            if any.is_ipv6() {
                socket.set_v6_only(true)?;
            }
            socket.bind(any)
        })
    }

    fn available_with(port: u16, open: impl Fn(SocketAddr) -> io::Result<()>) -> Self {
        let both = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
        let errors = both.map(|ip: IpAddr| open((ip, 0).into()).err().filter(is_missing));
        let address = |ip| SocketAddr::new(ip, port);
        let (addresses, missing) = match errors {
            [None, Some(error)] => (vec![address(both[0])], Some(("IPv6", "IPv4", error))),
            [Some(error), None] => (vec![address(both[1])], Some(("IPv4", "IPv6", error))),
            _ => (both.map(address).to_vec(), None),
        };
        let missing = missing.map(|(lacks, has, error)| {
            format!("{lacks} is not available ({}); listening on {has} only", explain(&error))
        });
        Self { addresses, missing }
    }
}

/// Returns true if an error of opening a wildcard address means that its IP version is disabled or
/// denied, as opposed to a lack of resources.
fn is_missing(error: &io::Error) -> bool {
    let errors = [libc::EAFNOSUPPORT, libc::EPROTONOSUPPORT, libc::EADDRNOTAVAIL];
    let denied = [libc::EPERM, libc::EACCES];
    error.raw_os_error().is_some_and(|code| errors.contains(&code) || denied.contains(&code))
}

/// Opens a non-blocking TCP socket that listens on `address`, with up to `backlog` pending
/// connections (at most `net.core.somaxconn`). An IPv6 socket does not accept IPv4.
///
/// # Errors
///
/// Of socket(2), bind(2) and listen(2), such as an address that is in use.
pub fn listen_tcp(address: SocketAddr, backlog: u32) -> io::Result<TcpListener> {
    let socket =
        DatagramSocket::open(family_of(address), SocketType::STREAM, SocketFlags::NONBLOCK)?;
    // Connections of a previous process may still be in TIME_WAIT.
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_v6_only(true)?;
    }
    socket.bind(address)?;
    rustix::net::listen(&socket, i32::try_from(backlog).unwrap_or(i32::MAX))?;
    Ok(TcpListener::from(socket.into_descriptor()))
}

/// Delays written data until a segment is full, or the stream is shut down or closed (`TCP_CORK`,
/// tcp(7)), so that the last data and the FIN leave in one segment.
///
/// # Errors
///
/// Of setsockopt(2); the stream is then as it was.
pub fn set_cork(stream: &TcpStream) -> io::Result<()> {
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
        set_cork(&client).unwrap();
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
    fn a_missing_ip_version_is_omitted_from_the_default_addresses() {
        let addresses = |texts: &[&str]| -> Vec<SocketAddr> {
            texts.iter().map(|text| text.parse().unwrap()).collect()
        };
        let without = |lacks: fn(SocketAddr) -> bool, code: i32| {
            let refused = move || Err(io::Error::from_raw_os_error(code));
            WildcardAddresses::available_with(
                123,
                move |any| if lacks(any) { refused() } else { Ok(()) },
            )
        };
        let is_ipv6 = |any: SocketAddr| any.is_ipv6();
        for code in [libc::EAFNOSUPPORT, libc::EADDRNOTAVAIL, libc::EACCES] {
            let found = without(is_ipv6, code);
            assert_eq!(found.addresses, addresses(&["0.0.0.0:123"]));
            let line = found.missing.unwrap();
            assert!(line.starts_with("IPv6 is not") && line.ends_with("IPv4 only"), "{line}");
        }
        let found = without(|any| any.is_ipv4(), libc::EAFNOSUPPORT);
        assert_eq!(found.addresses, addresses(&["[::]:123"]));
        let both = addresses(&["0.0.0.0:123", "[::]:123"]);
        for found in [without(|_| true, libc::EAFNOSUPPORT), without(is_ipv6, libc::EMFILE)] {
            assert_eq!((found.addresses, found.missing), (both.clone(), None));
        }
    }

    #[test]
    fn it_takes_connections_and_does_not_wait_for_them() {
        let listener = listen_tcp("127.0.0.1:0".parse().unwrap(), 4).unwrap();
        assert_eq!(listener.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (_, peer) = listener.accept().unwrap();
        assert_eq!(peer, client.local_addr().unwrap());
        let taken = listen_tcp(listener.local_addr().unwrap(), 4).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
    }
}
