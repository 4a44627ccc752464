//! Arbitrary bytes as a line of gpsd. Parsing never panics, the times of a sample do not overflow,
//! and a leap second is in the future and within the range of an eight-bit week number.
#![no_main]

use horolog_source::{GpsdLine, NextLeap, ReceiverLeapReport};
use horolog_time::Timestamp;
use libfuzzer_sys::fuzz_target;

/// 2026-11-22, the time at which the lines are received.
const NOW: Timestamp<horolog_time::Utc> = Timestamp::from_ns(1_795_305_600_000_000_000);

fuzz_target!(|bytes: &[u8]| {
    if let Some(GpsdLine::Sample { true_time, system, .. }) = GpsdLine::parse(bytes) {
        let _ = (true_time - system).as_seconds();
    }
    if let Some(report) = ReceiverLeapReport::from_gpsd(bytes, NOW) {
        assert!((30..=60).contains(&report.tai_minus_utc_s));
        if let Some(NextLeap::At(leap)) = report.next {
            let days = (leap.midnight - NOW).as_seconds() / 86_400.0;
            assert!((0.0..=904.0).contains(&days), "{leap:?}");
        }
    }
});
