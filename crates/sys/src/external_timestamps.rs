//! External timestamps of a PTP hardware clock `/dev/ptpN` (`linux/ptp_clock.h`): edges of an input
//! that the clock timestamps, and the pin of the input.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::time::Duration;

use horolog_time::NS_PER_S;

use rustix::event::PollFlags;

use crate::descriptor::{check, wait_for};

/// `struct ptp_extts_request`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct ExternalTimestampRequest {
    channel: u32,
    flags: u32,
    reserved: [u32; 2],
}

/// `struct ptp_pin_desc`.
#[repr(C)]
#[derive(Clone, Copy)]
struct PtpPin {
    name: [u8; 64],
    index: u32,
    function: u32,
    channel: u32,
    reserved: [u32; 5],
}

const ENABLE: u32 = 1;
const RISING: u32 = 1 << 1;
const FALLING: u32 = 1 << 2;
const STRICT: u32 = 1 << 3;
const FUNCTION_EXTERNAL_TIMESTAMP: u32 = 1;
const WRITE: u64 = 1;
const REQUEST: u64 = write_request::<ExternalTimestampRequest>(11);
const SET_PIN: u64 = write_request::<PtpPin>(16);
/// `struct ptp_extts_event`.
const EVENT_LEN: usize = 32;

const fn write_request<T>(number: u64) -> u64 {
    WRITE << 30 | (size_of::<T>() as u64) << 16 | (b'=' as u64) << 8 | number
}

/// Timestamp of an edge by a PTP hardware clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExternalTimestamp {
    /// Nanoseconds since 1970 on the clock's own timescale.
    pub phc_ns: i64,
    /// Number of the input channel.
    pub channel: u32,
}

impl ExternalTimestamp {
    fn parse(bytes: &[u8; EVENT_LEN]) -> Self {
        let word = |at: usize| u32::from_ne_bytes([0, 1, 2, 3].map(|byte| bytes[at + byte]));
        let seconds = i64::from_ne_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|byte| bytes[byte]));
        let phc_ns = seconds.saturating_mul(NS_PER_S).saturating_add(word(8).into());
        Self { phc_ns, channel: word(16) }
    }
}

/// Enabled external timestamp channel; dropping it disables the channel.
#[derive(Debug)]
pub struct ExternalTimestampChannel {
    file: File,
    channel: u32,
}

impl ExternalTimestampChannel {
    /// Enables timestamps of rising or falling edges on a channel, and assigns `pin` to the channel
    /// if given. A NIC that can only timestamp both kinds, or the other kind, refuses.
    ///
    /// # Errors
    ///
    /// If there is no such clock, channel or pin, or the clock is not writable.
    pub fn open(path: &Path, channel: u32, pin: Option<u32>, is_rising: bool) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        if let Some(index) = pin {
            let mut pin = PtpPin {
                name: [0; 64],
                index,
                function: FUNCTION_EXTERNAL_TIMESTAMP,
                channel,
                reserved: [0; 5],
            };
            call_ioctl(&file, SET_PIN, &mut pin)?;
        }
        let edge = if is_rising { RISING } else { FALLING };
        let mut request =
            ExternalTimestampRequest { channel, flags: ENABLE | edge | STRICT, reserved: [0; 2] };
        call_ioctl(&file, REQUEST, &mut request)?;
        Ok(Self { file, channel })
    }

    /// Waits up to `wait` for an edge on this channel; `None` at the timeout, after a signal, or if
    /// the edge was on another channel.
    ///
    /// # Errors
    ///
    /// If the clock is gone.
    pub fn wait(&mut self, wait: Duration) -> io::Result<Option<ExternalTimestamp>> {
        if !wait_for(self.file.as_fd(), PollFlags::IN, wait)? {
            return Ok(None);
        }
        let mut bytes = [0; EVENT_LEN];
        self.file.read_exact(&mut bytes)?;
        let event = ExternalTimestamp::parse(&bytes);
        Ok((event.channel == self.channel).then_some(event))
    }
}

impl Drop for ExternalTimestampChannel {
    fn drop(&mut self) {
        let mut off = ExternalTimestampRequest {
            channel: self.channel,
            ..ExternalTimestampRequest::default()
        };
        // A clock that was removed refuses the request.
        let _ = call_ioctl(&self.file, REQUEST, &mut off);
    }
}

fn call_ioctl<T>(file: &File, request: u64, value: &mut T) -> io::Result<()> {
    // SAFETY: the request's number holds the size of `T`, which is a C structure of numbers that
    // outlives the call.
    check(unsafe { libc::ioctl(file.as_raw_fd(), request as _, std::ptr::from_mut(value)) })
        .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_those_of_the_kernel() {
        // linux/ptp_clock.h: _IOW('=', 11, 16) and _IOW('=', 16, 96).
        assert_eq!(REQUEST, 0x4010_3d0b);
        assert_eq!(SET_PIN, 0x4060_3d10);
        assert_eq!(std::mem::offset_of!(PtpPin, function), 68);
    }

    #[test]
    fn an_event_by_hand() {
        let mut bytes = [0; EVENT_LEN];
        bytes[..8].copy_from_slice(&1_700_000_037_i64.to_ne_bytes());
        bytes[8..12].copy_from_slice(&25_u32.to_ne_bytes());
        bytes[16..20].copy_from_slice(&1_u32.to_ne_bytes());
        let event = ExternalTimestamp::parse(&bytes);
        let expected = ExternalTimestamp { phc_ns: 1_700_000_037_000_000_025, channel: 1 };
        assert_eq!(event, expected);
    }

    #[test]
    fn what_is_no_clock_is_refused() {
        let none =
            ExternalTimestampChannel::open(Path::new("/dev/null"), 0, Some(1), true).unwrap_err();
        assert_eq!(none.raw_os_error(), Some(libc::ENOTTY));
        let none = ExternalTimestampChannel::open(Path::new("/dev/there-is-none"), 0, None, true);
        assert!(none.is_err());
    }
}
