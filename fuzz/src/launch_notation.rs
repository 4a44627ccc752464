//! Arbitrary text as the notation of an instant. Parsing and resolving never panic, an error is one
//! line, a parsed notation is unchanged after it was written and parsed again, and an instant is in
//! the past only where that is allowed.
#![no_main]

use horolog_launch::InstantTimescale;
use horolog_launch::notation::{PresentTime, TimeNotation, ZoneOrTimescale};
use jiff::tz::TimeZone;
use libfuzzer_sys::fuzz_target;

/// POSIX time zone with daylight saving time.
const BERLIN: &str = "CET-1CEST,M3.5.0,M10.5.0/3";

fuzz_target!(|bytes: &[u8]| {
    let Some((seconds, text)) = bytes.split_first_chunk::<4>() else { return };
    let Ok(text) = str::from_utf8(text) else { return };
    let notation = match text.parse::<TimeNotation>() {
        Ok(notation) => notation,
        Err(error) => return assert!(!error.to_string().contains('\n'), "{error}"),
    };
    assert_eq!(notation.to_string().parse::<TimeNotation>(), Ok(notation.clone()));
    let utc_ns = i64::from(u32::from_le_bytes(*seconds)) * 1_000_000_000;
    let zone = TimeZone::posix(BERLIN).expect("a POSIX time zone");
    let now = PresentTime { utc_ns, tai_minus_utc_s: Some(37), zone };
    for default in [ZoneOrTimescale::Local, ZoneOrTimescale::Utc, ZoneOrTimescale::Tai] {
        match notation.resolve(&now, default, false) {
            Ok(instant) => {
                let ahead_ns =
                    if instant.scale == InstantTimescale::Tai { 37_000_000_000 } else { 0 };
                assert!(instant.ns >= utc_ns + ahead_ns, "{instant} is in the past");
            }
            Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
        }
        let _ = notation.resolve(&now, default, true);
    }
});
