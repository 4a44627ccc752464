//! A Unix datagram socket that others send samples to, as to chronyd's driver SOCK; gpsd does. One
//! datagram is one sample of 40 bytes in this machine's own byte order.

use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use horolog_time::{NS_PER_S, Span, Timestamp, Utc};
use horolog_wire::ntp::Leap;

use crate::reference::{Claim, ReferenceClock};
use crate::shm::answer;
use crate::{Fault, Look, Report, Source};

/// Length of a sample, in bytes.
pub const SOCK_SAMPLE_LEN: usize = 40;
/// What stands at its end: "SOCK".
const MAGIC: u32 = 0x534f_434b;
/// Datagrams that are read at one poll.
const DATAGRAMS_MAX: usize = 64;
/// An offset beyond this is not one, in seconds: the reach of an instant.
const OFFSET_MAX_S: f64 = 9e9;
/// How far a sample may be wrong, which it does not say.
const UNCERTAINTY: Span = Span::from_ns(1_000);

/// A sample.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SockSample {
    /// What the system clock showed.
    pub system: Timestamp<Utc>,
    /// True time minus the system clock.
    pub offset: Span,
    /// Whether it is a pulse, which marks a second without saying which.
    pub pulse: bool,
    /// Leap indicator.
    pub leap: Leap,
}

impl SockSample {
    /// Reads a datagram; `None` when it is not of the right length, kind or range.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; SOCK_SAMPLE_LEN] = bytes.try_into().ok()?;
        let long = |at: usize| Some(i64::from_ne_bytes(*bytes[at..].first_chunk()?));
        let word = |at: usize| Some(u32::from_ne_bytes(*bytes[at..].first_chunk()?));
        let offset_s = f64::from_ne_bytes(*bytes[16..].first_chunk()?);
        let microseconds = long(8)?;
        let in_range = (0..1_000_000).contains(&microseconds)
            && offset_s.is_finite()
            && offset_s.abs() < OFFSET_MAX_S;
        let leap = match word(28)? {
            0 => Leap::None,
            1 => Leap::Insert,
            2 => Leap::Delete,
            _ => Leap::Unsynchronised,
        };
        if word(36)? != MAGIC || !in_range {
            return None;
        }
        Some(Self {
            system: Timestamp::from_timespec(long(0)?, microseconds * 1_000),
            offset: Span::from_ns((offset_s * NS_PER_S as f64).round() as i64),
            pulse: word(24)? != 0,
            leap,
        })
    }

    /// Writes the datagram; the system clock's reading is cut to microseconds.
    #[must_use]
    pub fn emit(&self) -> [u8; SOCK_SAMPLE_LEN] {
        let (seconds, nanoseconds) = self.system.to_timespec();
        let mut bytes = [0; SOCK_SAMPLE_LEN];
        bytes[..8].copy_from_slice(&seconds.to_ne_bytes());
        bytes[8..16].copy_from_slice(&i64::from(nanoseconds / 1_000).to_ne_bytes());
        bytes[16..24].copy_from_slice(&self.offset.as_seconds().to_ne_bytes());
        bytes[24..28].copy_from_slice(&u32::from(self.pulse).to_ne_bytes());
        bytes[28..32].copy_from_slice(&u32::from(self.leap as u8).to_ne_bytes());
        bytes[36..].copy_from_slice(&MAGIC.to_ne_bytes());
        bytes
    }
}

/// The source.
pub(crate) struct Sock {
    name: String,
    path: PathBuf,
    socket: UnixDatagram,
    clock: ReferenceClock,
}

impl Sock {
    pub(crate) fn open(name: String, path: &Path, claim: Claim) -> Result<Self, Fault> {
        let failed =
            |error| Fault::Unusable(format!("cannot make the socket {}: {error}", path.display()));
        let socket = bind(path).map_err(failed)?;
        socket.set_nonblocking(true).map_err(failed)?;
        Ok(Self { name, path: path.to_owned(), socket, clock: ReferenceClock::new(claim) })
    }
}

/// Whether a socket may stand at `path`: its directory is there, and nothing else is in its place.
/// One that is there may be that of the server that runs.
pub(crate) fn may_be_made(path: &Path) -> Result<(), Fault> {
    let failed = |why: &str| {
        Err(Fault::Unusable(format!("cannot make the socket {}: {why}", path.display())))
    };
    if !path.parent().is_some_and(Path::is_dir) {
        return failed("there is no such directory");
    }
    match fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => failed("something else is there"),
        _ => Ok(()),
    }
}

/// Binds the socket in place of one that was left behind, and of nothing else.
fn bind(path: &Path) -> io::Result<UnixDatagram> {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    let abandoned = || {
        let connected = UnixDatagram::unbound().and_then(|socket| socket.connect(path));
        connected.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
    };
    if is_socket && abandoned() {
        fs::remove_file(path)?;
    }
    UnixDatagram::bind(path)
}

impl Drop for Sock {
    fn drop(&mut self) {
        // Gone already is as good.
        let _ = fs::remove_file(&self.path);
    }
}

impl Source for Sock {
    fn name(&self) -> &str {
        &self.name
    }

    fn poll(&mut self, look: &Look) -> Result<Option<Report>, Fault> {
        let mut buffer = [0; SOCK_SAMPLE_LEN + 1];
        let mut fault = Fault::Silent("no sample has come to its socket".into());
        let mut some = false;
        for _ in 0..DATAGRAMS_MAX {
            let Ok(length) = self.socket.recv(&mut buffer) else { break };
            match SockSample::parse(&buffer[..length]) {
                Some(sample) if sample.leap == Leap::Unsynchronised => {
                    return Err(Fault::Unusable("it says that it is not synchronised".into()));
                }
                Some(sample) if !sample.pulse => {
                    some = true;
                    self.clock.set_leap(sample.leap);
                    let truth = sample.system + sample.offset;
                    self.clock.take(look, sample.system, truth, UNCERTAINTY);
                }
                Some(_) => fault = Fault::Silent("only pulses come, which name no second".into()),
                None => fault = Fault::Silent("what comes to its socket is no sample".into()),
            }
        }
        if some { answer(&mut self.clock, look) } else { Err(fault) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::reference::tests::{CLAIM, look};

    #[test]
    fn microseconds_beyond_a_second_are_refused_before_they_overflow() {
        let mut bytes = [0; SOCK_SAMPLE_LEN];
        bytes[36..].copy_from_slice(&MAGIC.to_ne_bytes());
        assert!(SockSample::parse(&bytes).is_some());
        for microseconds in [i64::MAX, i64::MIN, -1, 1_000_000] {
            bytes[8..16].copy_from_slice(&microseconds.to_ne_bytes());
            assert!(SockSample::parse(&bytes).is_none(), "{microseconds}");
        }
    }

    #[test]
    fn samples_come_through_the_socket_and_it_goes_with_the_source() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("gps.sock");
        drop(UnixDatagram::bind(&path).unwrap());
        let mut sock = Sock::open("sock".into(), &path, CLAIM).unwrap();
        let in_use = Sock::open("sock".into(), &path, CLAIM);
        assert!(in_use.is_err(), "a socket that is listened on is not taken");
        let feeder = UnixDatagram::unbound().unwrap();
        let now = look(5_000);
        assert!(matches!(sock.poll(&now), Err(Fault::Silent(_))));
        let sample = SockSample {
            system: now.realtime(),
            offset: Span::from_ns(-2_500),
            pulse: false,
            leap: Leap::Insert,
        };
        feeder.send_to(b"noise", &path).unwrap();
        feeder.send_to(&SockSample { pulse: true, ..sample }.emit(), &path).unwrap();
        feeder.send_to(&sample.emit(), &path).unwrap();
        let report = sock.poll(&now).unwrap().unwrap();
        assert_eq!((report.offset, report.leap), (Span::from_ns(-2_000), Leap::Insert));
        drop(sock);
        assert!(!path.exists());
    }

    #[test]
    fn a_file_in_the_way_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notes");
        fs::write(&path, "keep").unwrap();
        assert!(Sock::open("sock".into(), &path, CLAIM).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "keep");
    }

    proptest! {
        #[test]
        fn samples_round_trip(us in -1i64 << 50..1 << 50, offset in -1i64 << 51..1 << 51, pulse: bool, leap in 0u8..4) {
            let sample = SockSample {
                system: Timestamp::from_ns(us * 1_000),
                offset: Span::from_ns(offset),
                pulse,
                leap: Leap::from_bits(leap),
            };
            prop_assert_eq!(SockSample::parse(&sample.emit()), Some(sample));
            let mut other = sample.emit();
            other[36] ^= 1;
            prop_assert_eq!(SockSample::parse(&other), None);
            prop_assert_eq!(SockSample::parse(&other[1..]), None);
        }
    }
}
