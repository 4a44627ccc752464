//! Start and end of a session with a far end: identification, clock comparison, final counts.
//! Requests are retried.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use horolog_sys::clock::{ClockMonotonic, realtime_minus_monotonic};
use horolog_sys::datagram::{self, WaitMode};
use horolog_sys::socket::DatagramSocket;
use horolog_time::{Clock, Timestamp};
use horolog_wire::path_probe::{FLAG_WARM_UP, HEADER_LEN, HELLO_LEN, Header, PathDatagramKind};
use horolog_wire::stamp;

use super::codec::ProbeCodec;
use super::error::UdpPathError;
use crate::path::serve::udp::kernel_hash;

/// Name of the far end in messages.
pub(super) const FAR_END_NAME: &str = "'horolog path serve'";
/// Name of a STAMP far end in messages.
const REFLECTOR_NAME: &str = "a STAMP session-reflector ('horolog path serve --stamp')";
/// Maximum number of attempts of a request.
const ATTEMPTS: u32 = 5;
/// Timeout of the first attempt; that of the n-th is n times as long.
const ATTEMPT_TIMEOUT: Duration = Duration::from_millis(100);

/// Content of a welcome.
#[derive(Clone, Copy, Debug)]
pub(super) struct UdpWelcome {
    pub(super) session: u64,
    /// True if the far end runs on this kernel and so shares its clock.
    pub(super) same_clock: bool,
    /// Error bound of the far end's clock in ns; `None` if it is not synchronised.
    pub(super) error_ns: Option<u64>,
    /// Minimum length in bytes of probes that the far end echoes.
    pub(super) length_min: u64,
}

/// Returns a random number.
pub(super) fn random_number() -> u64 {
    RandomState::new().hash_one(0)
}

/// Sends a hello on a connected socket; returns the welcome.
pub(super) fn request_session(
    socket: &DatagramSocket,
    to: SocketAddr,
    flags: u8,
) -> Result<UdpWelcome, UdpPathError> {
    let number = random_number() as u32;
    let mut request = [0; HELLO_LEN];
    Header { flags, ..Header::new(PathDatagramKind::Hello, 0, number) }.emit(&mut request);
    let mut is_foreign = false;
    let reply = send_request(socket, &request, |bytes| match Header::parse(bytes) {
        Ok((header, _)) if header.sequence == number && header.kind != PathDatagramKind::Hello => {
            Some(header)
        }
        Ok(_) => None,
        Err(_) => {
            is_foreign = true;
            None
        }
    });
    match reply {
        Ok(Some(welcome)) if welcome.kind == PathDatagramKind::Welcome => {
            let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
            let same = |boot_id: &str| welcome.received_ns == kernel_hash(boot_id, number);
            Ok(UdpWelcome {
                session: welcome.session,
                same_clock: boot_id.is_ok_and(|boot_id| same(&boot_id)),
                error_ns: u64::try_from(welcome.sent_ns).ok(),
                length_min: match welcome.traffic_class {
                    0 => HEADER_LEN as u64,
                    length => length.into(),
                },
            })
        }
        Ok(Some(full)) if full.kind == PathDatagramKind::Refusal => {
            Err(UdpPathError::SessionLimitReached(to))
        }
        Ok(_) if is_foreign => Err(UdpPathError::OtherProtocol(to, FAR_END_NAME)),
        Ok(_) => Err(UdpPathError::NoReply(to, FAR_END_NAME)),
        Err(source) => Err(send_error(to, source, FAR_END_NAME)),
    }
}

fn send_error(to: SocketAddr, source: io::Error, other: &'static str) -> UdpPathError {
    match source.kind() {
        io::ErrorKind::ConnectionRefused => UdpPathError::NothingListens(to, other),
        _ => UdpPathError::Socket { address: to, source },
    }
}

/// Checks that a STAMP session-reflector replies.
pub(super) fn check_reflector(
    socket: &DatagramSocket,
    to: SocketAddr,
    codec: &ProbeCodec,
) -> Result<(), UdpPathError> {
    let mut request = [0; stamp::PACKET_LEN];
    let now =
        || Timestamp::from_ns((ClockMonotonic.now() + realtime_minus_monotonic().offset).as_ns());
    codec.write_request(&mut request, 0, true, now());
    match send_request(socket, &request, |bytes| codec.parse_reply(bytes, now())) {
        Ok(Some(_)) => Ok(()),
        Ok(None) => Err(UdpPathError::NoReply(to, REFLECTOR_NAME)),
        Err(source) => Err(send_error(to, source, REFLECTOR_NAME)),
    }
}

/// Makes the far end store the session, so that load before the first probe is counted. Sends a
/// warm-up probe; a late echo of it is ignored.
pub(super) fn begin_session(socket: &DatagramSocket, session: u64) -> io::Result<()> {
    let mut request = [0; HEADER_LEN];
    Header { flags: FLAG_WARM_UP, ..Header::new(PathDatagramKind::Probe, session, u32::MAX) }
        .emit(&mut request);
    let echo = send_request(socket, &request, |bytes| {
        let (header, _) = Header::parse(bytes).ok()?;
        (header.kind == PathDatagramKind::Echo && header.session == session).then_some(())
    });
    echo.map(|_| ())
}

/// Ends a session; returns the far end's counts datagram, `None` if it does not answer.
pub(super) fn end_session(socket: &DatagramSocket, session: u64) -> Option<Header> {
    let mut request = [0; HEADER_LEN];
    Header::new(PathDatagramKind::End, session, 0).emit(&mut request);
    let counts_header = send_request(socket, &request, |bytes| {
        let (header, _) = Header::parse(bytes).ok()?;
        (header.kind == PathDatagramKind::Counts && header.session == session).then_some(header)
    });
    counts_header.ok().flatten()
}

/// Sends a request until `read` accepts a reply or all attempts are used (`None`). An ICMP error
/// "port unreachable" is returned as an error from the second attempt on.
fn send_request<T>(
    socket: &DatagramSocket,
    request: &[u8],
    mut read: impl FnMut(&[u8]) -> Option<T>,
) -> io::Result<Option<T>> {
    // A reply is no longer than its request; a longer one is truncated.
    let mut buffer = [0; HELLO_LEN];
    let mut refused = None;
    for attempt in 1..=ATTEMPTS {
        let until = Instant::now() + ATTEMPT_TIMEOUT * attempt;
        match datagram::send(socket.as_fd(), request) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => refused = Some(error),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            socket.set_receive_timeout(left)?;
            match datagram::receive(socket.as_fd(), &mut buffer, WaitMode::Blocking) {
                Ok(len) => {
                    if let Some(answer) = read(&buffer[..len]) {
                        return Ok(Some(answer));
                    }
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => {}
                    io::ErrorKind::ConnectionRefused => {
                        refused = Some(error);
                        break;
                    }
                    _ => return Err(error),
                },
            }
        }
        if refused.is_some() && attempt > 1 {
            break;
        }
    }
    refused.map_or(Ok(None), Err)
}
