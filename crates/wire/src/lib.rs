//! Wire formats used by Horolog. Each module holds one format: a private layout type, the byte
//! layout for zerocopy, and a public type with `parse` and `emit`.
//!
//! `parse` accepts any bytes without a panic and mostly returns a value with the remaining bytes.
//! `emit` writes a value to the front of a buffer and returns its length; it panics only if the
//! buffer is too short or the value cannot be encoded, which never depends on received bytes. No
//! I/O, no allocation, no clock. One format is of text: [`prefix`], for addresses in options and
//! files.

pub mod checksum;
pub mod chrony;
pub mod control;
pub mod ethernet;
pub mod frame;
pub mod ipv4;
pub mod ipv6;
pub mod ntp;
pub mod path_probe;
pub mod prefix;
pub mod ptp;
pub mod stamp;
pub mod udp;

/// Reason why bytes cannot be parsed as a format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ParseError {
    /// Fewer bytes than the header or a length field requires.
    Truncated,
    /// Version, magic number, mode or type of another protocol.
    Version,
    /// Length field or field value that is invalid or contradicts the available bytes.
    Length,
    /// Invalid checksum.
    Checksum,
}

impl core::fmt::Display for ParseError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Truncated => "truncated",
            Self::Version => "wrong version",
            Self::Length => "wrong length",
            Self::Checksum => "wrong checksum",
        })
    }
}

impl core::error::Error for ParseError {}
