//! Fixtures of several fuzz targets: the timestamps of a request and its reply, and the NTS keys.
//! All are constant, so that an input has the same effect in every run.

mod nts;

pub use nts::{cookie, cookie_keys, session};

use horolog_time::NtpTimestamp;

/// Receive timestamp of the request (T2).
pub const RECEIVED: NtpTimestamp = NtpTimestamp::from_bits(0xe000_0000_2000_0000);

/// Transmit timestamp of the reply (T3).
pub const TRANSMIT: NtpTimestamp = NtpTimestamp::from_bits(0xe000_0000_2000_1235);
