//! Pair of connected Unix datagram sockets, one end of which is for a child program. Messages carry
//! the time of their send call, regardless of the scheduling of the receiver.

use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::time::Duration;

use horolog_time::{Timestamp, Utc};
use rustix::net::sockopt::{socket_domain, socket_type};
use rustix::net::{AddressFamily, SocketType};

use crate::datagram::{MsghdrBuffers, WaitMode};
use crate::descriptor::{inherited, pass_descriptor, set_option};

/// Socket connected to a child program: the local end of the pair.
#[derive(Debug)]
pub struct SocketToChild {
    socket: UnixDatagram,
    header: MsghdrBuffers,
}

impl SocketToChild {
    /// Creates a pair and passes one end to the program that `command` starts, as the descriptor
    /// `number`. The returned socket must live until the program is started.
    ///
    /// # Errors
    ///
    /// If no descriptors are available.
    pub fn pair(command: &mut Command, number: RawFd) -> io::Result<(Self, UnixDatagram)> {
        let (here, there) = UnixDatagram::pair()?;
        set_option(here.as_fd(), libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, &1_i32)?;
        pass_descriptor(command, there.as_raw_fd(), number);
        Ok((Self { socket: here, header: MsghdrBuffers::new() }, there))
    }

    /// Sends a message, without waiting.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if the queue of the other end is full, `ConnectionRefused` if the other end is
    /// closed.
    pub fn send(&self, bytes: &[u8]) -> io::Result<()> {
        crate::datagram::send(self.socket.as_fd(), bytes)
    }

    /// Waits up to `wait` for a message; returns its length, truncated to the buffer, and the time
    /// of its send call (`SO_TIMESTAMPNS`). A zero `wait` is replaced by one microsecond.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there was no message.
    pub fn recv(
        &mut self,
        buffer: &mut [u8],
        wait: Duration,
    ) -> io::Result<(usize, Timestamp<Utc>)> {
        // A timeout of 0 would disable the timeout.
        self.socket.set_read_timeout(Some(wait.max(Duration::from_micros(1))))?;
        self.receive_message(buffer, WaitMode::Blocking)
    }

    /// Returns a pending message without blocking.
    ///
    /// # Errors
    ///
    /// Errors of [`SocketToChild::recv`].
    pub fn try_recv(&mut self, buffer: &mut [u8]) -> io::Result<(usize, Timestamp<Utc>)> {
        self.receive_message(buffer, WaitMode::NonBlocking)
    }

    fn receive_message(
        &mut self,
        buffer: &mut [u8],
        wait: WaitMode,
    ) -> io::Result<(usize, Timestamp<Utc>)> {
        let received = self.header.receive(self.socket.as_fd(), buffer, wait)?;
        let received_at = received.control.received_at.ok_or(io::ErrorKind::InvalidData)?;
        Ok((received.len, received_at))
    }
}

/// Returns the end that the parent program passed under this descriptor number. Call it at most
/// once for each number.
///
/// # Errors
///
/// `InvalidInput` if the descriptor is no Unix datagram socket; it is then left open.
pub fn inherited_socket(number: RawFd) -> io::Result<UnixDatagram> {
    let descriptor = inherited(number, |descriptor| {
        socket_domain(descriptor) == Ok(AddressFamily::UNIX)
            && socket_type(descriptor) == Ok(SocketType::DGRAM)
    })?;
    Ok(descriptor.into())
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::process::Stdio;

    use super::*;
    use crate::clock::ClockRealtime;
    use horolog_time::Clock;

    #[test]
    fn messages_of_a_program_are_received_by_its_descriptor_with_timestamps() {
        let mut command = Command::new("sh");
        command.args(["-c", "printf begin >&9; sleep 0.1; printf end >&9; [ $(dd bs=9 count=1 <&9 2>/dev/null) = stop ] && exit 3"]);
        let (mut here, there) = SocketToChild::pair(&mut command, 9).unwrap();
        let before = ClockRealtime.now();
        let mut child = command.stdin(Stdio::null()).spawn().unwrap();
        drop(there);
        child.try_wait().unwrap();
        let mut buffer = [0; 64];
        let timeout = Duration::from_secs(20);
        let (len, begun) = here.recv(&mut buffer, timeout).unwrap();
        assert_eq!(&buffer[..len], b"begin");
        let (len, ended) = here.recv(&mut buffer, timeout).unwrap();
        assert_eq!(&buffer[..len], b"end");
        assert!(before <= begun && (ended - begun).as_ns() >= 100_000_000, "{begun:?} {ended:?}");
        assert_eq!(here.try_recv(&mut buffer).unwrap_err().kind(), ErrorKind::WouldBlock);
        here.send(b"stop").unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(3));
        assert_eq!(here.send(b"release").unwrap_err().kind(), ErrorKind::ConnectionRefused);
    }

    #[test]
    fn only_a_socket_of_the_right_kind_is_taken_over() {
        assert_eq!(inherited_socket(-1).unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(inherited_socket(987_654).unwrap_err().kind(), ErrorKind::InvalidInput);
        let (stream, other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert_eq!(
            inherited_socket(stream.as_raw_fd()).unwrap_err().kind(),
            ErrorKind::InvalidInput
        );
        // It was left alone.
        std::io::Write::write_all(&mut &other, b"x").unwrap();
        let (here, there) = UnixDatagram::pair().unwrap();
        let number = std::os::fd::IntoRawFd::into_raw_fd(there);
        inherited_socket(number).unwrap().send(b"hello").unwrap();
        let mut buffer = [0; 8];
        assert_eq!(here.recv(&mut buffer).unwrap(), 5);
    }
}
