//! Fixtures of several fuzz targets: the time server, the timestamps of its requests, and the NTS
//! keys. All are constant, so that an input has the same effect in every run.

mod nts;

pub use nts::{cookie, cookie_keys, session};

use horolog_server::{ClockPage, SystemVariables};
use horolog_time::{NO_STEP, NOMINAL_RATE, NtpShort, NtpTimestamp, Span, Timebase, Timestamp};
use horolog_wire::ntp::LeapIndicator;

/// Receive timestamp of the request (T2).
pub const RECEIVED: NtpTimestamp = NtpTimestamp::from_bits(0xe000_0000_2000_0000);

/// Transmit timestamp of the reply (T3).
pub const TRANSMIT: NtpTimestamp = NtpTimestamp::from_bits(0xe000_0000_2000_1235);

/// Returns the clock page of a synchronised server of stratum 1.
#[must_use]
pub fn page() -> ClockPage {
    ClockPage {
        variables: SystemVariables {
            leap: LeapIndicator::None,
            stratum: 1,
            precision: -25,
            root_delay: NtpShort::from_bits(0x10),
            root_dispersion: NtpShort::from_bits(0x20),
            reference_id: *b"PPS\0",
            reference: NtpTimestamp::from_bits(0xe000_0000_0000_0000),
        },
        timebase: Timebase {
            anchor: Timestamp::from_ns(100_000_000_000),
            ntp_at_anchor: NtpTimestamp::from_bits(0xe000_0000_1000_0000),
            rate: NOMINAL_RATE,
            expires: Timestamp::from_ns(101_000_000_000),
            step_at: NO_STEP,
            step: 0,
        },
        realtime_minus_monotonic: Span::from_ns(1_700_000_000_000_000_000),
        realtime_step: Span::ZERO,
        tai_minus_utc_s: None,
        root_distance: Span::ZERO,
        root_distance_recent_max: Span::ZERO,
        leap_after: LeapIndicator::None,
    }
}
