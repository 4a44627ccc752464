//! Any text as the notation of an instant. Reading and resolving it never panics, an error is
//! one line, what can be read is the same when it was written and read again, and no instant
//! is past that was not allowed to be.
#![no_main]

use horolog_launch::InstantTimescale;
use horolog_launch::notation::{PresentTime, TimeNotation, ZoneOrTimescale};
use jiff::tz::TimeZone;
use libfuzzer_sys::fuzz_target;

/// With a change of clocks twice a year.
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
    let zone = TimeZone::posix(BERLIN).expect("a rule of POSIX");
    let now = PresentTime { utc_ns, tai_minus_utc_s: Some(37), zone };
    for default in [ZoneOrTimescale::Local, ZoneOrTimescale::Utc, ZoneOrTimescale::Tai] {
        match notation.resolve(&now, default, false) {
            Ok(instant) => {
                let ahead_ns =
                    if instant.scale == InstantTimescale::Tai { 37_000_000_000 } else { 0 };
                assert!(instant.ns >= utc_ns + ahead_ns, "{instant} is past");
            }
            Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
        }
        let _ = notation.resolve(&now, default, true);
    }
});
