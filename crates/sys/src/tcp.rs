//! TCP options of Linux beyond the standard library: options of tcp(7) that decide when segments
//! and acknowledgements leave, `TCP_INFO`, and sendfile(2), for streams of the standard library.

mod info;
mod zero_copy;

use std::fs::File;
use std::io::{self, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use libc::{IPPROTO_TCP, SOL_SOCKET, c_int};

use rustix::fs::{MemfdFlags, memfd_create, sendfile};
use rustix::net::sockopt::tcp_congestion;

use crate::descriptor::{get_option, get_option_bytes, set_option};
use crate::posix_clock::PosixClockId;

pub use info::{TcpInfo, TcpState};
pub use zero_copy::ZeroCopySender;

/// Socket option for the longest delay of an acknowledgement, in microseconds (`TCP_DELACK_MAX_US`
/// in linux/tcp.h, Linux 6.15); the libraries do not have it yet.
const TCP_DELACK_MAX_US: c_int = 46;

/// Delays partial segments until corking is disabled (`TCP_CORK`).
pub fn set_cork(stream: &TcpStream, on: bool) -> io::Result<()> {
    set_option(stream.as_fd(), IPPROTO_TCP, libc::TCP_CORK, &c_int::from(on))
}

/// Enables immediate acknowledgements, or delayed ones if `on` is false (`TCP_QUICKACK`). The
/// setting is not permanent: the kernel continues by its own rules.
pub fn set_quick_ack(stream: &TcpStream, on: bool) -> io::Result<()> {
    set_option(stream.as_fd(), IPPROTO_TCP, libc::TCP_QUICKACK, &c_int::from(on))
}

/// Limits the delay of acknowledgements at this end (`TCP_DELACK_MAX_US`).
///
/// # Errors
///
/// `ENOPROTOOPT` on a kernel before 6.15.
pub fn set_delayed_ack_max(stream: &TcpStream, longest: Duration) -> io::Result<()> {
    let us = c_int::try_from(longest.as_micros()).unwrap_or(c_int::MAX);
    set_option(stream.as_fd(), IPPROTO_TCP, TCP_DELACK_MAX_US, &us)
}

/// Returns the longest delay of acknowledgements at this end, if the kernel reports it.
#[must_use]
pub fn delayed_ack_max(stream: &TcpStream) -> Option<Duration> {
    let value = get_option::<1>(stream.as_fd(), IPPROTO_TCP, TCP_DELACK_MAX_US);
    value.ok().map(|[us]| Duration::from_micros(us.into()))
}

/// Returns the state of a connection (`TCP_INFO`).
pub fn info(stream: &TcpStream) -> io::Result<TcpInfo> {
    info_of(stream.as_fd())
}

fn info_of(socket: BorrowedFd<'_>) -> io::Result<TcpInfo> {
    let mut bytes = [0_u8; TcpInfo::BYTES];
    let length = get_option_bytes(socket, IPPROTO_TCP, libc::TCP_INFO, &mut bytes)?;
    Ok(TcpInfo::parse(bytes.get(..length).unwrap_or(&bytes)))
}

/// Returns the name of the congestion control algorithm (`TCP_CONGESTION`).
pub fn congestion_control(stream: &TcpStream) -> io::Result<String> {
    Ok(tcp_congestion(stream)?)
}

/// Sends up to `length` bytes of a file from `offset` on without a copy through this process
/// (sendfile(2)); returns their number.
pub fn send_file(
    stream: &TcpStream,
    file: BorrowedFd<'_>,
    offset: u64,
    length: usize,
) -> io::Result<usize> {
    Ok(sendfile(stream, file, Some(&mut { offset }), length)?)
}

/// Creates an anonymous file in memory with these bytes (`memfd_create`(2)).
pub fn memory_file(bytes: &[u8]) -> io::Result<File> {
    let mut file = File::from(memfd_create("horolog", MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    Ok(file)
}

/// Allows zero-copy transmission from the program's memory (`SO_ZEROCOPY`).
pub(crate) fn allow_zero_copy(stream: &TcpStream) -> io::Result<()> {
    set_option(stream.as_fd(), SOL_SOCKET, libc::SO_ZEROCOPY, &(1 as c_int))
}

/// Returns the interval of the timer interrupt, 1/HZ: the resolution of the kernel's coarse clock,
/// which advances with it.
pub fn timer_interval() -> io::Result<Duration> {
    let ns = PosixClockId::MONOTONIC_COARSE.resolution_ns()?;
    Ok(Duration::from_nanos(ns.unsigned_abs()))
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::Read;
    use std::net::TcpListener;

    use super::*;

    pub(crate) fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    #[test]
    fn a_connection_reports_its_state() {
        let (mut near, mut far) = pair();
        near.write_all(b"twelve bytes").unwrap();
        far.read_exact(&mut [0; 12]).unwrap();
        let info = info(&far).unwrap();
        assert_eq!(info.state(), TcpState::Established);
        assert_eq!(info.bytes_received, 12);
        assert!(info.mss > 0 && info.cwnd > 0 && info.ato > Duration::ZERO, "{info:?}");
        assert!(!congestion_control(&near).unwrap().is_empty());
        drop(near);
    }

    #[test]
    fn a_cork_holds_back_and_its_removal_sends() {
        let (mut near, mut far) = pair();
        set_cork(&near, true).unwrap();
        near.write_all(b"head").unwrap();
        assert_eq!(info(&near).unwrap().not_sent, 4);
        set_cork(&near, false).unwrap();
        far.read_exact(&mut [0; 4]).unwrap();
        assert_eq!(info(&near).unwrap().not_sent, 0);
        set_quick_ack(&near, true).unwrap();
    }

    #[test]
    fn a_file_goes_out() {
        let (near, mut far) = pair();
        let file = memory_file(b"a file in memory").unwrap();
        assert_eq!(send_file(&near, file.as_fd(), 2, 4).unwrap(), 4);
        let mut received = [0; 4];
        far.read_exact(&mut received).unwrap();
        assert_eq!(&received, b"file");
    }

    #[test]
    fn the_tick_is_one_of_those_that_kernels_have() {
        let hz = 1.0 / timer_interval().unwrap().as_secs_f64();
        assert!((24.0..=1_200.0).contains(&hz), "{hz}");
    }

    #[test]
    fn the_longest_acknowledgement_delay_is_stored_or_refused() {
        let (near, _far) = pair();
        let longest = Duration::from_millis(10);
        // An older kernel does not know the option.
        if set_delayed_ack_max(&near, longest).is_ok() {
            assert!(delayed_ack_max(&near).unwrap().abs_diff(longest) <= timer_interval().unwrap());
        }
    }
}
