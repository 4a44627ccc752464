//! Wire formats of Horolog, as bytes and as values. Each module holds one format: a private
//! `Layout`, which is its table of bytes, and a public value with `parse` and `emit`.
//!
//! `parse` takes any bytes and never panics; it returns a value that is valid by its type, with the
//! rest of the bytes. `emit` writes a value to the front of a buffer and returns its length; it
//! panics only if the buffer is shorter than the value's stated length, which is the caller's
//! mistake and never depends on received bytes. No I/O, no allocation, no clock.

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

/// Reason for which bytes are not a value of the format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Malformed {
    /// Fewer bytes than the format's header or its length field needs.
    Truncated,
    /// Version field of another protocol.
    Version,
    /// Length field that contradicts another or the available bytes.
    Length,
    /// Invalid checksum.
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
