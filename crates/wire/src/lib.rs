//! The formats that Horolog speaks, as bytes and as values. Each module holds one format: a private
//! `Layout`, which is its table of bytes, and a public value with `parse` and `emit`.
//!
//! `parse` takes any bytes and never panics; what it returns is right by its type, and the rest of
//! the bytes comes with it. `emit` writes a value to the front of a buffer and says how long it
//! was; it panics only when the buffer is shorter than the value's stated length, which is the
//! caller's mistake and never depends on received bytes. No I/O, no allocation, no clock.

pub mod checksum;
pub mod chrony;
pub mod control;
pub mod ethernet;
pub mod frame;
pub mod ipv4;
pub mod ipv6;
pub mod ntp;
pub mod path_probe;
pub mod ptp;
pub mod stamp;
pub mod udp;

/// Why bytes are not a value of the format that they were read as.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Malformed {
    /// Fewer bytes than the format's header or its length field needs.
    Truncated,
    /// A version field of another protocol.
    Version,
    /// A length field that contradicts another or the bytes at hand.
    Length,
    /// A checksum that does not fit.
    Checksum,
}

impl core::fmt::Display for Malformed {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Truncated => "truncated",
            Self::Version => "wrong version",
            Self::Length => "wrong length",
            Self::Checksum => "wrong checksum",
        })
    }
}

impl core::error::Error for Malformed {}
