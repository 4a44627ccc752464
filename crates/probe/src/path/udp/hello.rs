//! The beginning and the end of a session with a far end: who answers, whose clock that is by, and
//! at last what it counted. Each question is asked again a few times and then given up.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use horolog_sys::clock::{MonotonicClock, realtime_minus_monotonic};
use horolog_sys::datagram::{self, Wait};
use horolog_sys::socket::Socket;
use horolog_time::{Clock, Timestamp};
use horolog_wire::path_probe::{FLAG_WARM_UP, HEADER_LEN, HELLO_LEN, Header, Kind};
use horolog_wire::stamp;

use super::codec::Codec;
use super::error::PathError;
use crate::path::serve::udp::kernel_hash;

/// What the other side is called in messages.
pub(super) const SERVE: &str = "'horolog path serve'";
/// The other side of STAMP.
const REFLECTOR: &str = "a STAMP session-reflector ('horolog path serve --stamp')";
/// Times that a question is asked.
const TRIES: u32 = 5;
/// How long an answer may take, each time longer.
const PATIENCE: Duration = Duration::from_millis(100);

/// What a far end says of itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Welcome {
    pub(super) session: u64,
    /// It runs on this very kernel.
    pub(super) same_clock: bool,
    /// The most that its clock may be off, in ns; `None` where it is not synchronised.
    pub(super) error_ns: Option<u64>,
}

/// Numbers that nobody can foresee.
pub(super) fn number() -> u64 {
    RandomState::new().hash_one(0)
}

/// Asks for a session by a connected socket.
pub(super) fn hello(socket: &Socket, to: SocketAddr, flags: u8) -> Result<Welcome, PathError> {
    let number = number() as u32;
    let mut question = [0; HELLO_LEN];
    Header { flags, ..Header::new(Kind::Hello, 0, number) }.emit(&mut question);
    let mut is_foreign = false;
    let answer = ask(socket, &question, |bytes| match Header::parse(bytes) {
        Ok((header, _)) if header.sequence == number && header.kind != Kind::Hello => Some(header),
        Ok(_) => None,
        Err(_) => {
            is_foreign = true;
            None
        }
    });
    match answer {
        Ok(Some(welcome)) if welcome.kind == Kind::Welcome => {
            let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
            let same = |boot_id: &str| welcome.received_ns == kernel_hash(boot_id, number);
            Ok(Welcome {
                session: welcome.session,
                same_clock: boot_id.is_ok_and(|boot_id| same(&boot_id)),
                error_ns: u64::try_from(welcome.sent_ns).ok(),
            })
        }
        Ok(Some(full)) if full.kind == Kind::Full => Err(PathError::Full(to)),
        Ok(_) if is_foreign => Err(PathError::Foreign(to, SERVE)),
        Ok(_) => Err(PathError::Silent(to, SERVE)),
        Err(source) => Err(unasked(to, source, SERVE)),
    }
}

fn unasked(to: SocketAddr, source: io::Error, other: &'static str) -> PathError {
    match source.kind() {
        io::ErrorKind::ConnectionRefused => PathError::Refused(to, other),
        _ => PathError::Socket { address: to, source },
    }
}

/// Asks whether a session-reflector of STAMP answers.
pub(super) fn reflected(socket: &Socket, to: SocketAddr, codec: &Codec) -> Result<(), PathError> {
    let mut question = [0; stamp::PACKET_LEN];
    let now =
        || Timestamp::from_ns((MonotonicClock.now() + realtime_minus_monotonic().offset).as_ns());
    codec.write(&mut question, 0, true, now());
    match ask(socket, &question, |bytes| codec.read(bytes, now())) {
        Ok(Some(_)) => Ok(()),
        Ok(None) => Err(PathError::Silent(to, REFLECTOR)),
        Err(source) => Err(unasked(to, source, REFLECTOR)),
    }
}

/// Has the far end remember a session, so that load which comes before the first probe counts. An
/// echo that comes later is one of the warm-up.
pub(super) fn begin(socket: &Socket, session: u64) -> io::Result<()> {
    let mut question = [0; HEADER_LEN];
    Header { flags: FLAG_WARM_UP, ..Header::new(Kind::Probe, session, u32::MAX) }
        .emit(&mut question);
    let echo = ask(socket, &question, |bytes| {
        let (header, _) = Header::parse(bytes).ok()?;
        (header.kind == Kind::Echo && header.session == session).then_some(())
    });
    echo.map(|_| ())
}

/// Ends a session; the far end's tally of it, where it still says.
pub(super) fn end(socket: &Socket, session: u64) -> Option<Header> {
    let mut question = [0; HEADER_LEN];
    Header::new(Kind::End, session, 0).emit(&mut question);
    let tally = ask(socket, &question, |bytes| {
        let (header, _) = Header::parse(bytes).ok()?;
        (header.kind == Kind::Tally && header.session == session).then_some(header)
    });
    tally.ok().flatten()
}

/// Asks until there is an answer that `read` takes, or no try is left.
fn ask<T>(
    socket: &Socket,
    question: &[u8],
    mut read: impl FnMut(&[u8]) -> Option<T>,
) -> io::Result<Option<T>> {
    // An answer is no longer than the question; of what is longer nothing behind is wanted.
    let mut buffer = [0; HELLO_LEN];
    let mut refused = None;
    for attempt in 1..=TRIES {
        let until = Instant::now() + PATIENCE * attempt;
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
            match datagram::receive(socket.as_fd(), &mut buffer, Wait::Asleep) {
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
