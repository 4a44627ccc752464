//! Beginning and end of a session with a far end: identification, clock, and the final counts. Each
//! request is retried a few times before giving up.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use horolog_sys::clock::{MonotonicClock, realtime_minus_monotonic};
use horolog_sys::datagram::{self, WaitMode};
use horolog_sys::socket::Socket;
use horolog_time::{Clock, Timestamp};
use horolog_wire::path_probe::{FLAG_WARM_UP, HEADER_LEN, HELLO_LEN, Header, PathDatagramKind};
use horolog_wire::stamp;

use super::codec::Codec;
use super::error::UdpPathError;
use crate::path::serve::udp::kernel_hash;

/// Name of the far end in messages.
pub(super) const SERVE: &str = "'horolog path serve'";
/// Name of a STAMP far end in messages.
const REFLECTOR: &str = "a STAMP session-reflector ('horolog path serve --stamp')";
/// Attempts of a request.
const TRIES: u32 = 5;
/// Timeout of the first attempt; each further one waits longer.
const ATTEMPT_TIMEOUT: Duration = Duration::from_millis(100);

/// Far end's description of itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct UdpWelcome {
    pub(super) session: u64,
    /// True if it runs on this kernel.
    pub(super) same_clock: bool,
    /// Error bound of its clock, in ns; `None` if it is not synchronised.
    pub(super) error_ns: Option<u64>,
    /// Length of the shortest probe that it echoes.
    pub(super) length_min: u64,
}

/// Returns an unpredictable number.
pub(super) fn number() -> u64 {
    RandomState::new().hash_one(0)
}

/// Requests a session over a connected socket.
pub(super) fn hello(
    socket: &Socket,
    to: SocketAddr,
    flags: u8,
) -> Result<UdpWelcome, UdpPathError> {
    let number = number() as u32;
    let mut question = [0; HELLO_LEN];
    Header { flags, ..Header::new(PathDatagramKind::Hello, 0, number) }.emit(&mut question);
    let mut is_foreign = false;
    let answer = send_request(socket, &question, |bytes| match Header::parse(bytes) {
        Ok((header, _)) if header.sequence == number && header.kind != PathDatagramKind::Hello => {
            Some(header)
        }
        Ok(_) => None,
        Err(_) => {
            is_foreign = true;
            None
        }
    });
    match answer {
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
        Ok(Some(full)) if full.kind == PathDatagramKind::Full => Err(UdpPathError::Full(to)),
        Ok(_) if is_foreign => Err(UdpPathError::Foreign(to, SERVE)),
        Ok(_) => Err(UdpPathError::NoReply(to, SERVE)),
        Err(source) => Err(unasked(to, source, SERVE)),
    }
}

fn unasked(to: SocketAddr, source: io::Error, other: &'static str) -> UdpPathError {
    match source.kind() {
        io::ErrorKind::ConnectionRefused => UdpPathError::Refused(to, other),
        _ => UdpPathError::Socket { address: to, source },
    }
}

/// Checks that a STAMP session-reflector answers.
pub(super) fn reflected(
    socket: &Socket,
    to: SocketAddr,
    codec: &Codec,
) -> Result<(), UdpPathError> {
    let mut question = [0; stamp::PACKET_LEN];
    let now =
        || Timestamp::from_ns((MonotonicClock.now() + realtime_minus_monotonic().offset).as_ns());
    codec.write(&mut question, 0, true, now());
    match send_request(socket, &question, |bytes| codec.read(bytes, now())) {
        Ok(Some(_)) => Ok(()),
        Ok(None) => Err(UdpPathError::NoReply(to, REFLECTOR)),
        Err(source) => Err(unasked(to, source, REFLECTOR)),
    }
}

/// Makes the far end store a session, so that load which arrives before the first probe counts. An
/// echo that arrives later belongs to the warm-up.
pub(super) fn begin(socket: &Socket, session: u64) -> io::Result<()> {
    let mut question = [0; HEADER_LEN];
    Header { flags: FLAG_WARM_UP, ..Header::new(PathDatagramKind::Probe, session, u32::MAX) }
        .emit(&mut question);
    let echo = send_request(socket, &question, |bytes| {
        let (header, _) = Header::parse(bytes).ok()?;
        (header.kind == PathDatagramKind::Echo && header.session == session).then_some(())
    });
    echo.map(|_| ())
}

/// Ends a session; returns the far end's counts of it, if it still answers.
pub(super) fn end(socket: &Socket, session: u64) -> Option<Header> {
    let mut question = [0; HEADER_LEN];
    Header::new(PathDatagramKind::End, session, 0).emit(&mut question);
    let tally = send_request(socket, &question, |bytes| {
        let (header, _) = Header::parse(bytes).ok()?;
        (header.kind == PathDatagramKind::Tally && header.session == session).then_some(header)
    });
    tally.ok().flatten()
}

/// Sends a request until `read` accepts an answer, or no attempt is left.
fn send_request<T>(
    socket: &Socket,
    question: &[u8],
    mut read: impl FnMut(&[u8]) -> Option<T>,
) -> io::Result<Option<T>> {
    // An answer is no longer than the request; a longer one may be truncated.
    let mut buffer = [0; HELLO_LEN];
    let mut refused = None;
    for attempt in 1..=TRIES {
        let until = Instant::now() + ATTEMPT_TIMEOUT * attempt;
        match datagram::send(socket.as_fd(), question) {
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
