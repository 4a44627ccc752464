//! Unix sockets, where the calls of the standard library could block without a limit.

mod child_socket;
mod responder;

use std::ffi::{c_char, c_int};
use std::io;
use std::mem::{offset_of, zeroed};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use crate::descriptor::check;
use crate::socket::DatagramSocket;

pub use child_socket::{SocketToChild, inherited_socket};
pub use responder::{UnixResponder, UnixResponderError, make_directory};

/// Backlog of a listener, as in the standard library.
const BACKLOG: c_int = 128;

/// Returns a socket address with its length in bytes.
fn address_of(path: &Path) -> io::Result<(libc::sockaddr_un, libc::socklen_t)> {
    // SAFETY: a structure of numbers, for which all zeros are valid.
    let mut address: libc::sockaddr_un = unsafe { zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let bytes = path.as_os_str().as_bytes();
    // The path needs room for a terminating NUL byte.
    if bytes.len() >= address.sun_path.len() || bytes.contains(&0) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a valid socket path"));
    }
    for (slot, byte) in address.sun_path.iter_mut().zip(bytes) {
        *slot = *byte as c_char;
    }
    let length = offset_of!(libc::sockaddr_un, sun_path) + bytes.len() + 1;
    Ok((address, length as libc::socklen_t))
}

/// Connects to the listener at `path` without blocking; the returned stream blocks.
///
/// # Errors
///
/// Of connect(2): `WouldBlock` if the queue of a stopped listener is full.
pub fn connect_without_waiting(path: &Path) -> io::Result<UnixStream> {
    let (address, length) = address_of(path)?;
    let socket = DatagramSocket::open(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_NONBLOCK, 0)?;
    // SAFETY: an open descriptor; the address and its length, alive for the call.
    check(unsafe {
        libc::connect(socket.as_fd().as_raw_fd(), (&raw const address).cast(), length)
    })?;
    let stream = UnixStream::from(socket.into_descriptor());
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// Listens on `path`. Access is restricted by `mode`, less the process's umask, from the beginning:
/// the kernel creates the file with the mode of the socket (`unix_bind_bsd` of
/// `net/unix/af_unix.c`).
///
/// # Errors
///
/// Of bind(2): `AddrInUse` if the path exists.
fn listen(path: &Path, mode: u32) -> io::Result<UnixListener> {
    let (address, length) = address_of(path)?;
    let socket = DatagramSocket::open(libc::AF_UNIX, libc::SOCK_STREAM, 0)?;
    let descriptor = socket.as_fd().as_raw_fd();
    // SAFETY: an open descriptor and a number.
    check(unsafe { libc::fchmod(descriptor, mode) })?;
    // SAFETY: an open descriptor; the address and its length, alive for the call.
    check(unsafe { libc::bind(descriptor, (&raw const address).cast(), length) })?;
    // SAFETY: an open descriptor and a number.
    check(unsafe { libc::listen(descriptor, BACKLOG) })?;
    Ok(socket.into_descriptor().into())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn a_socket_is_open_to_those_alone_that_it_is_for() {
        for mode in [0o600, 0o640] {
            let name = format!("horolog.{}.{mode}.sock", std::process::id());
            let path = std::env::temp_dir().join(name);
            let listener = listen(&path, mode).unwrap();
            assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, mode);
            let mut client = connect_without_waiting(&path).unwrap();
            client.write_all(b"hello").unwrap();
            drop(client);
            let mut text = String::new();
            listener.accept().unwrap().0.read_to_string(&mut text).unwrap();
            assert_eq!(text, "hello");
            assert_eq!(listen(&path, mode).unwrap_err().kind(), io::ErrorKind::AddrInUse);
            std::fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn a_stopped_listener_is_waited_for_no_longer_than_a_present_one() {
        let path = std::env::temp_dir().join(format!("horolog.{}.sock", std::process::id()));
        assert_eq!(connect_without_waiting(&path).unwrap_err().kind(), io::ErrorKind::NotFound);
        let listener = UnixListener::bind(&path).unwrap();
        // SAFETY: an open descriptor and a number; listen(2) may be repeated.
        check(unsafe { libc::listen(listener.as_raw_fd(), 1) }).unwrap();
        let mut first = connect_without_waiting(&path).unwrap();
        let _second = connect_without_waiting(&path).unwrap();
        assert_eq!(connect_without_waiting(&path).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        listener.accept().unwrap().0.write_all(b"hello").unwrap();
        let mut text = String::new();
        first.read_to_string(&mut text).unwrap();
        assert_eq!(text, "hello");
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn what_is_no_path_is_refused() {
        for bad in ["a".repeat(108), "a\0b".to_owned()] {
            let error = connect_without_waiting(Path::new(&bad)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        }
    }
}
