//! Unix sockets, where the calls of the standard library could block without a limit.

mod child_socket;
mod responder;

use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use rustix::fs::{Mode, fchmod};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, socket_with,
};

pub use child_socket::{SocketToChild, inherited_socket};
pub use responder::{UnixResponder, UnixResponderError, make_directory};

/// Backlog of a listener, as in the standard library.
const BACKLOG: i32 = 128;
/// Longest path of a socket in bytes (unix(7)).
const PATH_BYTES_MAX: usize = 107;

/// Returns a socket address; the path needs room for a terminating NUL byte.
fn address_of(path: &Path) -> io::Result<SocketAddrUnix> {
    let invalid = || io::Error::new(io::ErrorKind::InvalidInput, "not a valid socket path");
    if path.as_os_str().len() > PATH_BYTES_MAX {
        return Err(invalid());
    }
    SocketAddrUnix::new(path).map_err(|_| invalid())
}

/// Connects to the listener at `path` without blocking; the returned stream blocks.
///
/// # Errors
///
/// Of connect(2): `WouldBlock` if the queue of a stopped listener is full.
pub fn connect_without_waiting(path: &Path) -> io::Result<UnixStream> {
    let address = address_of(path)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &address)?;
    let stream = UnixStream::from(socket);
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
    let address = address_of(path)?;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    fchmod(&socket, Mode::from_raw_mode(mode))?;
    bind(&socket, &address)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket.into())
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
        // listen(2) may be repeated.
        rustix::net::listen(&listener, 1).unwrap();
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
