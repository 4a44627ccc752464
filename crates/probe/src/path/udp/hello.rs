//! The beginning and the end of a session with a far end: who answers, whose clock that is by, and
//! at last what it counted. Each question is asked again a few times and then given up.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use horolog_sys::datagram::{self, Wait};
use horolog_sys::socket::Socket;
use horolog_wire::path_probe::{Counted, HEADER_LEN, HELLO_LEN, Header, Kind};

use super::error::PathError;
use crate::path::serve::udp::kernel_hash;

/// What the other side is called in messages.
pub(super) const SERVE: &str = "horolog path serve";
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
    let source = match answer {
        Ok(Some(welcome)) if welcome.kind == Kind::Welcome => {
            let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
            let same = |boot_id: &str| welcome.received_ns == kernel_hash(boot_id, number);
            return Ok(Welcome {
                session: welcome.session,
                same_clock: boot_id.is_ok_and(|boot_id| same(&boot_id)),
                error_ns: u64::try_from(welcome.sent_ns).ok(),
            });
        }
        Ok(Some(full)) if full.kind == Kind::Full => return Err(PathError::Full(to)),
        Ok(_) if is_foreign => return Err(PathError::Foreign(to, SERVE)),
        Ok(_) => return Err(PathError::Silent(to, SERVE)),
        Err(source) => source,
    };
    Err(match source.kind() {
        io::ErrorKind::ConnectionRefused => PathError::Refused(to, SERVE),
        _ => PathError::Socket { address: to, source },
    })
}

/// Ends a session; what the far end counted in it, where it still says.
pub(super) fn end(socket: &Socket, session: u64) -> Option<Counted> {
    let mut question = [0; HEADER_LEN];
    Header::new(Kind::End, session, 0).emit(&mut question);
    let tally = ask(socket, &question, |bytes| {
        let (header, _) = Header::parse(bytes).ok()?;
        (header.kind == Kind::Tally && header.session == session).then_some(header.counted)
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
