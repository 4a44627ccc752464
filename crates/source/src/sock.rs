//! Unix datagram socket as a time source, in the format of the SOCK driver of chronyd, which gpsd
//! supports. A datagram is one sample of 40 bytes in host byte order.

use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use horolog_sys::explain::explain;
use horolog_time::{NS_PER_S, Span, Timestamp, Utc};
use horolog_wire::ntp::LeapIndicator;

use crate::reference::{ReferenceClock, ReferenceClockSettings};
use crate::shm::report_or_refusal;
use crate::{ClockReadings, PollableTimeSource, SourceError, SourceEstimate};

/// Length of a sample, in bytes.
pub const SOCK_SAMPLE_LEN: usize = 40;
/// Magic number at the end of a sample: "SOCK".
const SAMPLE_MAGIC: u32 = 0x534f_434b;
/// Maximum number of datagrams read at one poll.
const DATAGRAMS_MAX: usize = 64;
/// Maximum valid offset, in seconds: the range of an instant.
const OFFSET_MAX_S: f64 = 9e9;
/// Assumed error bound of a sample, which has no field for it.
const SAMPLE_ERROR_MAX: Span = Span::from_ns(1_000);

/// Sample in the format of the SOCK driver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SockSample {
    /// Reading of the system clock.
    pub system: Timestamp<Utc>,
    /// True time minus the system clock.
    pub offset: Span,
    /// True for a pulse, which marks a second without identifying it.
    pub pulse: bool,
    /// Leap indicator.
    pub leap: LeapIndicator,
}

impl SockSample {
    /// Parses a datagram; `None` if its length, magic number or range is wrong.
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
            0 => LeapIndicator::None,
            1 => LeapIndicator::Insert,
            2 => LeapIndicator::Delete,
            _ => LeapIndicator::Unsynchronised,
        };
        if word(36)? != SAMPLE_MAGIC || !in_range {
            return None;
        }
        Some(Self {
            system: Timestamp::from_timespec(long(0)?, microseconds * 1_000),
            offset: Span::from_ns((offset_s * NS_PER_S as f64).round() as i64),
            pulse: word(24)? != 0,
            leap,
        })
    }

    /// Encodes the datagram; the clock reading is truncated to microseconds.
    #[must_use]
    pub fn emit(&self) -> [u8; SOCK_SAMPLE_LEN] {
        let (seconds, nanoseconds) = self.system.to_timespec();
        let mut bytes = [0; SOCK_SAMPLE_LEN];
        bytes[..8].copy_from_slice(&seconds.to_ne_bytes());
        bytes[8..16].copy_from_slice(&i64::from(nanoseconds / 1_000).to_ne_bytes());
        bytes[16..24].copy_from_slice(&self.offset.as_seconds().to_ne_bytes());
        bytes[24..28].copy_from_slice(&u32::from(self.pulse).to_ne_bytes());
        bytes[28..32].copy_from_slice(&u32::from(self.leap as u8).to_ne_bytes());
        bytes[36..].copy_from_slice(&SAMPLE_MAGIC.to_ne_bytes());
        bytes
    }
}

/// Time source that receives samples on a datagram socket.
pub(crate) struct SockSource {
    name: String,
    path: PathBuf,
    socket: UnixDatagram,
    clock: ReferenceClock,
}

impl SockSource {
    pub(crate) fn open(
        name: String,
        path: &Path,
        claim: ReferenceClockSettings,
    ) -> Result<Self, SourceError> {
        let failed = |error: io::Error| {
            let why = explain(&error);
            SourceError::Unusable(format!("cannot create the socket {}: {why}", path.display()))
        };
        let socket = bind_replacing(path).map_err(failed)?;
        socket.set_nonblocking(true).map_err(failed)?;
        Ok(Self { name, path: path.to_owned(), socket, clock: ReferenceClock::new(claim) })
    }
}

/// Checks that a socket can be created at `path`: the directory exists, and there is no other kind
/// of file. An existing socket may belong to the running server.
pub(crate) fn check_can_create(path: &Path) -> Result<(), SourceError> {
    let failed = |why: &str| {
        Err(SourceError::Unusable(format!("cannot create the socket {}: {why}", path.display())))
    };
    if !path.parent().is_some_and(Path::is_dir) {
        return failed("no such directory");
    }
    match fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => failed("another file has this name"),
        _ => Ok(()),
    }
}

/// Binds the socket; replaces a stale socket, but no other file.
fn bind_replacing(path: &Path) -> io::Result<UnixDatagram> {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    let is_abandoned = || {
        let connected = UnixDatagram::unbound().and_then(|socket| socket.connect(path));
        connected.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
    };
    if is_socket && is_abandoned() {
        fs::remove_file(path)?;
    }
    UnixDatagram::bind(path)
}

impl Drop for SockSource {
    fn drop(&mut self) {
        // A file that is already gone is no error.
        let _ = fs::remove_file(&self.path);
    }
}

impl PollableTimeSource for SockSource {
    fn name(&self) -> &str {
        &self.name
    }

    fn poll(&mut self, readings: &ClockReadings) -> Result<Option<SourceEstimate>, SourceError> {
        let mut buffer = [0; SOCK_SAMPLE_LEN + 1];
        let mut error = SourceError::NoData("no sample received on its socket".into());
        let mut has_sample = false;
        for _ in 0..DATAGRAMS_MAX {
            let Ok(length) = self.socket.recv(&mut buffer) else { break };
            match SockSample::parse(&buffer[..length]) {
                Some(sample) if sample.leap == LeapIndicator::Unsynchronised => {
                    return Err(SourceError::Unusable(
                        "it reports that it is not synchronised".into(),
                    ));
                }
                Some(sample) if !sample.pulse => {
                    has_sample = true;
                    self.clock.set_leap(sample.leap);
                    let truth = sample.system + sample.offset;
                    self.clock.push_sample(readings, sample.system, truth, SAMPLE_ERROR_MAX);
                }
                Some(_) => {
                    error = SourceError::NoData(
                        "only pulses are received, which do not name a second".into(),
                    );
                }
                None => {
                    error = SourceError::NoData("the data on its socket are not samples".into());
                }
            }
        }
        if has_sample { report_or_refusal(&mut self.clock, readings) } else { Err(error) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::reference::tests::{CLAIM, readings};

    #[test]
    fn microseconds_beyond_a_second_are_refused_before_they_overflow() {
        let mut bytes = [0; SOCK_SAMPLE_LEN];
        bytes[36..].copy_from_slice(&SAMPLE_MAGIC.to_ne_bytes());
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
        let mut sock = SockSource::open("sock".into(), &path, CLAIM).unwrap();
        let in_use = SockSource::open("sock".into(), &path, CLAIM);
        let in_use = in_use.err().expect("a socket that is listened on is not taken").to_string();
        assert!(!in_use.contains("os error"), "{in_use}");
        let feeder = UnixDatagram::unbound().unwrap();
        let now = readings(5_000);
        assert!(matches!(sock.poll(&now), Err(SourceError::NoData(_))));
        let sample = SockSample {
            system: now.realtime(),
            offset: Span::from_ns(-2_500),
            pulse: false,
            leap: LeapIndicator::Insert,
        };
        feeder.send_to(b"noise", &path).unwrap();
        feeder.send_to(&SockSample { pulse: true, ..sample }.emit(), &path).unwrap();
        feeder.send_to(&sample.emit(), &path).unwrap();
        let report = sock.poll(&now).unwrap().unwrap();
        assert_eq!((report.offset, report.leap), (Span::from_ns(-2_000), LeapIndicator::Insert));
        drop(sock);
        assert!(!path.exists());
    }

    #[test]
    fn an_existing_file_is_not_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notes");
        fs::write(&path, "keep").unwrap();
        assert!(SockSource::open("sock".into(), &path, CLAIM).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "keep");
    }

    proptest! {
        #[test]
        fn samples_round_trip(us in -1i64 << 50..1 << 50, offset in -1i64 << 51..1 << 51, pulse: bool, leap in 0u8..4) {
            let sample = SockSample {
                system: Timestamp::from_ns(us * 1_000),
                offset: Span::from_ns(offset),
                pulse,
                leap: LeapIndicator::from_bits(leap),
            };
            prop_assert_eq!(SockSample::parse(&sample.emit()), Some(sample));
            let mut other = sample.emit();
            other[36] ^= 1;
            prop_assert_eq!(SockSample::parse(&other), None);
            prop_assert_eq!(SockSample::parse(&other[1..]), None);
        }
    }
}
