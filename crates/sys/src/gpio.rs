//! Edges of a GPIO line with kernel timestamps: `/dev/gpiochipN`, version 2 of its interface
//! (`linux/gpio.h`). Lines are only used as inputs.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, FromRawFd};
use std::path::Path;
use std::time::Duration;

use horolog_time::{Timestamp, Utc};

use rustix::event::PollFlags;

use crate::descriptor::{check, wait_for};

const LINES_MAX: usize = 64;
const NAME_MAX: usize = 32;
const ATTRIBUTES_MAX: usize = 10;

/// `struct gpio_v2_line_config_attribute`; no attribute is used.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct GpioLineAttribute {
    identifier: u32,
    padding: u32,
    value: u64,
    mask: u64,
}

/// `struct gpio_v2_line_request` with its `struct gpio_v2_line_config`.
#[repr(C)]
struct GpioLineRequest {
    offsets: [u32; LINES_MAX],
    consumer: [u8; NAME_MAX],
    flags: u64,
    attributes: u32,
    config_padding: [u32; 5],
    attribute: [GpioLineAttribute; ATTRIBUTES_MAX],
    lines: u32,
    event_buffer: u32,
    padding: [u32; 5],
    descriptor: i32,
}

const INPUT: u64 = 1 << 2;
const EDGE_RISING: u64 = 1 << 4;
const EDGE_FALLING: u64 = 1 << 5;
const EVENT_CLOCK_REALTIME: u64 = 1 << 11;
/// `_IOWR(0xB4, 0x07, struct gpio_v2_line_request)`.
const GET_LINE: u64 = 3 << 30 | (size_of::<GpioLineRequest>() as u64) << 16 | 0xb4 << 8 | 0x07;
/// Size of `struct gpio_v2_line_event`, of which the first 24 bytes are read.
const EVENT_LEN: usize = 48;
const RISING: u32 = 1;
/// Edges that the kernel buffers until they are read.
const EVENT_BUFFER_LEN: u32 = 16;

/// Edge of a GPIO line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GpioLineEvent {
    /// `CLOCK_REALTIME` at the edge.
    pub at: Timestamp<Utc>,
    /// True if the line rose.
    pub is_rising: bool,
    /// Count of the edges of the line, including those that the buffer had no room for.
    pub sequence: u32,
}

impl GpioLineEvent {
    fn parse(bytes: &[u8; EVENT_LEN]) -> Self {
        let word = |at: usize| u32::from_ne_bytes([0, 1, 2, 3].map(|byte| bytes[at + byte]));
        let ns = u64::from_ne_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|byte| bytes[byte]));
        Self {
            at: Timestamp::from_ns(i64::try_from(ns).unwrap_or(i64::MAX)),
            is_rising: word(8) == RISING,
            sequence: word(20),
        }
    }
}

/// GPIO line that is requested as input.
#[derive(Debug)]
pub struct GpioLine {
    events: File,
}

impl GpioLine {
    /// Requests the line with this number as input, with events for both edges.
    ///
    /// # Errors
    ///
    /// If the chip does not exist or is not accessible, it has no such line (`EINVAL`), or another
    /// process uses the line (`EBUSY`).
    pub fn open(chip: &Path, line: u32) -> io::Result<Self> {
        let chip = File::open(chip)?;
        let mut request = GpioLineRequest {
            offsets: [0; LINES_MAX],
            consumer: [0; NAME_MAX],
            flags: INPUT | EDGE_RISING | EDGE_FALLING | EVENT_CLOCK_REALTIME,
            attributes: 0,
            config_padding: [0; 5],
            attribute: [GpioLineAttribute::default(); ATTRIBUTES_MAX],
            lines: 1,
            event_buffer: EVENT_BUFFER_LEN,
            padding: [0; 5],
            descriptor: -1,
        };
        request.offsets[0] = line;
        request.consumer[..7].copy_from_slice(b"horolog");
        // SAFETY: the request's number holds the size of the structure, which outlives the call.
        check(unsafe { libc::ioctl(chip.as_raw_fd(), GET_LINE as _, &raw mut request) })?;
        if request.descriptor <= 0 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        // SAFETY: the kernel has just made this descriptor, and it has no other owner.
        Ok(Self { events: unsafe { File::from_raw_fd(request.descriptor) } })
    }

    /// Waits up to `wait` for an edge; `None` at the timeout or after a signal.
    ///
    /// # Errors
    ///
    /// If the chip is gone.
    pub fn wait(&mut self, wait: Duration) -> io::Result<Option<GpioLineEvent>> {
        if !wait_for(self.events.as_fd(), PollFlags::IN, wait)? {
            return Ok(None);
        }
        let mut bytes = [0; EVENT_LEN];
        self.events.read_exact(&mut bytes)?;
        Ok(Some(GpioLineEvent::parse(&bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_request_is_that_of_the_kernel() {
        // linux/gpio.h: _IOWR(0xB4, 0x07, 592 bytes).
        assert_eq!(GET_LINE, 0xc250_b407);
        assert_eq!(std::mem::offset_of!(GpioLineRequest, flags), 288);
        assert_eq!(std::mem::offset_of!(GpioLineRequest, lines), 560);
        assert_eq!(std::mem::offset_of!(GpioLineRequest, descriptor), 588);
    }

    #[test]
    fn an_event_by_hand() {
        let mut bytes = [0; EVENT_LEN];
        bytes[..8].copy_from_slice(&1_700_000_000_000_000_123_u64.to_ne_bytes());
        bytes[8..12].copy_from_slice(&1_u32.to_ne_bytes());
        bytes[12..16].copy_from_slice(&18_u32.to_ne_bytes());
        bytes[16..20].copy_from_slice(&9_u32.to_ne_bytes());
        bytes[20..24].copy_from_slice(&8_u32.to_ne_bytes());
        let event = GpioLineEvent::parse(&bytes);
        let at = Timestamp::from_ns(1_700_000_000_000_000_123);
        assert_eq!(event, GpioLineEvent { at, is_rising: true, sequence: 8 });
        bytes[8] = 2;
        assert!(!GpioLineEvent::parse(&bytes).is_rising);
    }

    #[test]
    fn what_is_no_chip_is_refused() {
        let none = GpioLine::open(Path::new("/dev/null"), 1).unwrap_err();
        assert_eq!(none.raw_os_error(), Some(libc::ENOTTY));
        assert!(GpioLine::open(Path::new("/dev/there-is-none"), 1).is_err());
    }
}
