//! PTP hardware clocks: ioctls of `/dev/ptpN` (`linux/ptp_clock.h`) that read the clock and the
//! system clock together. Read only.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use horolog_time::{NS_PER_S, Timestamp, Utc};

use crate::descriptor::check;

/// Readings that the kernel takes for one request, and its limit.
const READINGS_PER_REQUEST: usize = 10;
const READINGS_MAX: usize = 25;

/// `struct ptp_clock_time`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct PtpTime {
    seconds: i64,
    nanoseconds: u32,
    reserved: u32,
}

impl PtpTime {
    fn as_ns(self) -> i64 {
        self.seconds.saturating_mul(NS_PER_S).saturating_add(self.nanoseconds.into())
    }
}

/// `struct ptp_clock_caps`: twenty numbers, the seventh of which is true if the device supports
/// cross timestamping.
type PtpClockCaps = [i32; 20];
const CROSS_TIMESTAMPING: usize = 6;

/// `struct ptp_sys_offset_extended`: system clock, device, system clock for each reading.
#[repr(C)]
struct PtpSysOffsetExtended {
    readings: u32,
    reserved: [u32; 3],
    times: [[PtpTime; 3]; READINGS_MAX],
}

/// `struct ptp_sys_offset`: system clock and device alternately.
#[repr(C)]
struct PtpSysOffset {
    readings: u32,
    reserved: [u32; 3],
    times: [PtpTime; 2 * READINGS_MAX + 1],
}

/// `struct ptp_sys_offset_precise`: one cross timestamp.
#[repr(C)]
#[derive(Default)]
struct PtpSysOffsetPrecise {
    device: PtpTime,
    realtime: PtpTime,
    raw: PtpTime,
    reserved: [u32; 4],
}

const fn request<T>(direction: u64, number: u64) -> u64 {
    direction << 30 | (size_of::<T>() as u64) << 16 | (b'=' as u64) << 8 | number
}

const READ: u64 = 2;
const WRITE: u64 = 1;
const GET_CAPABILITIES: u64 = request::<PtpClockCaps>(READ, 1);
const BASIC: u64 = request::<PtpSysOffset>(WRITE, 5);
const PRECISE: u64 = request::<PtpSysOffsetPrecise>(READ | WRITE, 8);
const EXTENDED: u64 = request::<PtpSysOffsetExtended>(READ | WRITE, 9);

/// Reading of a PTP hardware clock between two readings of the system clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PhcReading {
    /// `CLOCK_REALTIME` before the reading.
    pub before: Timestamp<Utc>,
    /// Reading of the hardware clock, in ns since 1970 on its own timescale.
    pub phc_ns: i64,
    /// `CLOCK_REALTIME` after the reading.
    pub after: Timestamp<Utc>,
}

/// Ioctl by which a clock is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ReadMethod {
    Precise,
    Extended,
    Basic,
}

/// Open PTP hardware clock `/dev/ptpN`.
#[derive(Debug)]
pub struct PhcDevice {
    file: File,
    method: ReadMethod,
}

impl PhcDevice {
    /// Opens the clock and finds out whether it supports cross timestamps.
    ///
    /// # Errors
    ///
    /// If there is no such device, it may not be read, or it is no PTP clock.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let mut capabilities: PtpClockCaps = [0; 20];
        call_ioctl(&file, GET_CAPABILITIES, &mut capabilities)?;
        let precise = capabilities[CROSS_TIMESTAMPING] != 0;
        Ok(Self { file, method: if precise { ReadMethod::Precise } else { ReadMethod::Extended } })
    }

    /// Reads both clocks: by a cross timestamp if supported, otherwise by the tightest of several
    /// readings. After a refused ioctl the next method is used from then on.
    pub fn read(&mut self) -> io::Result<PhcReading> {
        if self.method == ReadMethod::Precise {
            match self.read_precise() {
                Err(error) if is_refusal(&error) => self.method = ReadMethod::Extended,
                answer => return answer,
            }
        }
        if self.method == ReadMethod::Extended {
            match self.read_extended() {
                Err(error) if is_refusal(&error) => self.method = ReadMethod::Basic,
                answer => return answer,
            }
        }
        self.read_basic()
    }

    fn read_precise(&self) -> io::Result<PhcReading> {
        let mut answer = PtpSysOffsetPrecise::default();
        call_ioctl(&self.file, PRECISE, &mut answer)?;
        let realtime = Timestamp::from_ns(answer.realtime.as_ns());
        Ok(PhcReading { before: realtime, phc_ns: answer.device.as_ns(), after: realtime })
    }

    fn read_extended(&self) -> io::Result<PhcReading> {
        let mut answer = PtpSysOffsetExtended {
            readings: READINGS_PER_REQUEST as u32,
            reserved: [0; 3],
            times: [[PtpTime::default(); 3]; READINGS_MAX],
        };
        call_ioctl(&self.file, EXTENDED, &mut answer)?;
        tightest_reading(answer.times[..READINGS_PER_REQUEST].iter().copied())
    }

    fn read_basic(&self) -> io::Result<PhcReading> {
        let mut answer = PtpSysOffset {
            readings: READINGS_PER_REQUEST as u32,
            reserved: [0; 3],
            times: [PtpTime::default(); 2 * READINGS_MAX + 1],
        };
        call_ioctl(&self.file, BASIC, &mut answer)?;
        let triples =
            (0..READINGS_PER_REQUEST).map(|at| [0, 1, 2].map(|step| answer.times[2 * at + step]));
        tightest_reading(triples)
    }
}

fn tightest_reading(triples: impl Iterator<Item = [PtpTime; 3]>) -> io::Result<PhcReading> {
    let reading = |[before, phc, after]: [PtpTime; 3]| PhcReading {
        before: Timestamp::from_ns(before.as_ns()),
        phc_ns: phc.as_ns(),
        after: Timestamp::from_ns(after.as_ns()),
    };
    // A bracket that ends before it starts contains a step of the system clock.
    let whole = triples.map(reading).filter(|reading| reading.after >= reading.before);
    whole
        .min_by_key(|reading| (reading.after - reading.before).as_ns())
        .ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Returns true if the device or the kernel does not support the request.
fn is_refusal(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOTTY | libc::EINVAL))
}

fn call_ioctl<T>(file: &File, request: u64, answer: &mut T) -> io::Result<()> {
    // SAFETY: the request's number holds the size of `T`, which is a C structure of numbers that
    // outlives the call, so that the kernel reads and writes nothing else.
    check(unsafe { libc::ioctl(file.as_raw_fd(), request as _, std::ptr::from_mut(answer)) })
        .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_those_of_the_kernel() {
        // linux/ptp_clock.h: _IOR('=', 1, 80), _IOW('=', 5, 832), _IOWR('=', 8, 64) and
        // _IOWR('=', 9, 1216).
        assert_eq!(GET_CAPABILITIES, 0x8050_3d01);
        assert_eq!(BASIC, 0x4340_3d05);
        assert_eq!(PRECISE, 0xc040_3d08);
        assert_eq!(EXTENDED, 0xc4c0_3d09);
    }

    #[test]
    fn the_tightest_bracket_is_taken_and_a_torn_one_is_not() {
        let time = |nanoseconds| PtpTime { seconds: 1, nanoseconds, reserved: 0 };
        let brackets = [[10, 500, 90], [100, 600, 120], [200, 700, 150]];
        let reading =
            tightest_reading(brackets.into_iter().map(|triple| triple.map(time))).unwrap();
        assert_eq!(reading.phc_ns, 1_000_000_600);
        assert_eq!((reading.after - reading.before).as_ns(), 20);
        assert!(tightest_reading([[9, 5, 1].map(time)].into_iter()).is_err());
    }

    #[test]
    fn what_is_no_clock_is_refused() {
        assert!(PhcDevice::open(Path::new("/dev/null")).is_err());
        assert!(PhcDevice::open(Path::new("/dev/there-is-none")).is_err());
    }
}
