//! PPS devices `/dev/ppsN` (`linux/pps.h`; RFC 2783): pulses that the kernel timestamps. Only the
//! captured edges are configured.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::Duration;

use horolog_time::{Timestamp, Utc};

use crate::descriptor::check;

/// `struct pps_ktime`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct PpsTime {
    seconds: i64,
    nanoseconds: i32,
    flags: u32,
}

impl PpsTime {
    fn to_timestamp(self) -> Timestamp<Utc> {
        Timestamp::from_timespec(self.seconds, self.nanoseconds.into())
    }
}

/// `struct pps_kinfo`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct PpsInfo {
    assert_sequence: u32,
    clear_sequence: u32,
    assert: PpsTime,
    clear: PpsTime,
    mode: i32,
}

/// `struct pps_fdata`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct PpsFetch {
    info: PpsInfo,
    timeout: PpsTime,
}

/// `struct pps_kparams`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct PpsParameters {
    version: i32,
    mode: i32,
    assert_offset: PpsTime,
    clear_offset: PpsTime,
}

const CAPTURE_ASSERT: i32 = 0x01;
const CAPTURE_CLEAR: i32 = 0x02;
const FORMAT_TIMESPEC: i32 = 0x1000;
const API_VERSION: i32 = 1;

/// Returns an ioctl number, which encodes the size of a pointer to the structure.
const fn request(direction: u64, number: u64) -> u64 {
    direction << 30 | (size_of::<*const ()>() as u64) << 16 | (b'p' as u64) << 8 | number
}

const READ: u64 = 2;
const WRITE: u64 = 1;
const GET_PARAMETERS: u64 = request(READ, 0xa1);
const SET_PARAMETERS: u64 = request(WRITE, 0xa2);
const GET_CAPABILITIES: u64 = request(READ, 0xa3);
const FETCH: u64 = request(READ | WRITE, 0xa4);

/// Last edge of one kind: sequence number and instant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PpsEdge {
    /// Number that increases by one with each edge of this kind, modulo 2^32.
    pub sequence: u32,
    /// `CLOCK_REALTIME` at the edge.
    pub at: Timestamp<Utc>,
}

/// Last edges of both kinds. The sequence number of a kind that is not captured does not change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PpsEdges {
    /// Assert edge: the signal became active.
    pub assert: PpsEdge,
    /// Clear edge: the signal became inactive.
    pub clear: PpsEdge,
}

/// Kinds of edges to capture.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PpsCaptureMode {
    /// True to capture assert edges.
    pub assert: bool,
    /// True to capture clear edges.
    pub clear: bool,
}

impl PpsCaptureMode {
    const fn mode(self) -> i32 {
        (if self.assert { CAPTURE_ASSERT } else { 0 })
            | (if self.clear { CAPTURE_CLEAR } else { 0 })
    }
}

/// Open PPS device `/dev/ppsN`.
#[derive(Debug)]
pub struct PpsDevice {
    file: File,
}

impl PpsDevice {
    /// Opens the device and enables the capture of these edges.
    ///
    /// # Errors
    ///
    /// If there is no such device, it may not be read, it is no source of pulses (`ENOTTY`), it
    /// cannot capture these edges (`Unsupported`), or they are not captured and this process may
    /// not change that (`CAP_SYS_TIME`).
    pub fn open(path: &Path, capture: PpsCaptureMode) -> io::Result<Self> {
        let file = File::open(path)?;
        let (mut able, mut parameters) = (0_i32, PpsParameters::default());
        call_ioctl(&file, GET_CAPABILITIES, &mut able)?;
        if capture.mode() & !able != 0 {
            return Err(io::ErrorKind::Unsupported.into());
        }
        call_ioctl(&file, GET_PARAMETERS, &mut parameters)?;
        if capture.mode() & !parameters.mode != 0 {
            parameters.version = API_VERSION;
            parameters.mode |= capture.mode() | FORMAT_TIMESPEC;
            call_ioctl(&file, SET_PARAMETERS, &mut parameters)?;
        }
        Ok(Self { file })
    }

    /// Waits up to `wait` for an edge; `None` at the timeout or after a signal. With a zero `wait`
    /// it returns the last edges at once.
    ///
    /// # Errors
    ///
    /// If the device is gone.
    pub fn wait(&mut self, wait: Duration) -> io::Result<Option<PpsEdges>> {
        let timeout = PpsTime {
            seconds: i64::try_from(wait.as_secs()).unwrap_or(i64::MAX),
            nanoseconds: wait.subsec_nanos().cast_signed(),
            flags: 0,
        };
        let mut fetch = PpsFetch { timeout, ..PpsFetch::default() };
        match call_ioctl(&self.file, FETCH, &mut fetch) {
            Ok(()) => Ok(Some(fetch.info.edges())),
            Err(error) if is_timeout(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl PpsInfo {
    fn edges(&self) -> PpsEdges {
        PpsEdges {
            assert: PpsEdge { sequence: self.assert_sequence, at: self.assert.to_timestamp() },
            clear: PpsEdge { sequence: self.clear_sequence, at: self.clear.to_timestamp() },
        }
    }
}

/// Returns true after a timeout or a signal.
fn is_timeout(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ETIMEDOUT | libc::EINTR))
}

fn call_ioctl<T>(file: &File, request: u64, value: &mut T) -> io::Result<()> {
    // SAFETY: each request is made with the C structure of numbers that `linux/pps.h` names for it,
    // which outlives the call; the tests check the sizes against that header.
    check(unsafe { libc::ioctl(file.as_raw_fd(), request as _, std::ptr::from_mut(value)) })
        .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_structures_are_those_of_the_kernel() {
        // linux/pps.h, where a pointer has eight bytes.
        assert_eq!(GET_PARAMETERS, 0x8008_70a1);
        assert_eq!(SET_PARAMETERS, 0x4008_70a2);
        assert_eq!(GET_CAPABILITIES, 0x8008_70a3);
        assert_eq!(FETCH, 0xc008_70a4);
        assert_eq!((size_of::<PpsTime>(), size_of::<PpsInfo>()), (16, 48));
        assert_eq!((size_of::<PpsFetch>(), size_of::<PpsParameters>()), (64, 40));
        assert_eq!(std::mem::offset_of!(PpsInfo, assert), 8);
        assert_eq!(std::mem::offset_of!(PpsFetch, timeout), 48);
        assert_eq!(std::mem::offset_of!(PpsParameters, clear_offset), 24);
    }

    #[test]
    fn edges_are_read() {
        let time = |seconds, nanoseconds| PpsTime { seconds, nanoseconds, flags: 0 };
        let info = PpsInfo {
            assert_sequence: 7,
            clear_sequence: 6,
            assert: time(1_700_000_000, 12),
            clear: time(1_699_999_999, 100_000_012),
            mode: 0,
        };
        let PpsEdges { assert, clear } = info.edges();
        assert_eq!((assert.sequence, assert.at.to_timespec()), (7, (1_700_000_000, 12)));
        assert_eq!((clear.sequence, clear.at.to_timespec()), (6, (1_699_999_999, 100_000_012)));
        let both = PpsCaptureMode { assert: true, clear: true };
        assert_eq!((both.mode(), PpsCaptureMode { assert: false, ..both }.mode()), (3, 2));
    }

    #[test]
    fn what_is_no_source_of_pulses_is_refused() {
        let capture = PpsCaptureMode { assert: true, clear: false };
        let none = PpsDevice::open(Path::new("/dev/null"), capture).unwrap_err();
        assert_eq!(none.raw_os_error(), Some(libc::ENOTTY));
        let gone = PpsDevice::open(Path::new("/dev/there-is-none"), capture).unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::NotFound);
        assert!(is_timeout(&io::Error::from_raw_os_error(libc::ETIMEDOUT)));
        assert!(!is_timeout(&none));
    }
}
