//! Notation of rates, times, counts and sizes on the command line and in files: its parser, and its
//! printer for times.

use std::time::Duration;

use crate::{NS_PER_S, Span};

/// Units of time, with their length in ns. A bare number is in seconds.
const TIME_UNITS: [(&str, f64); 9] = [
    ("ns", 1.0),
    ("us", 1e3),
    ("µs", 1e3),
    ("ms", 1e6),
    ("s", 1e9),
    ("m", 60e9),
    ("h", 3_600e9),
    ("d", 86_400e9),
    ("", 1e9),
];
/// Decimal multipliers of rates and counts.
const MULTIPLIERS: [(&str, f64); 5] = [("k", 1e3), ("K", 1e3), ("m", 1e6), ("M", 1e6), ("", 1.0)];

/// Expected form of a time.
const TIME_FORM: &str = "write a time in seconds, or with a unit, such as 2, 100ms, 30m or 7d";

/// Parses a number with one of these units, and multiplies it by its factor.
fn scaled(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let with_unit =
        |(unit, factor): &(&str, f64)| Some(text.strip_suffix(unit)?.parse::<f64>().ok()? * factor);
    units.iter().find_map(with_unit)
}

/// Parses a positive number with an optional decimal multiplier k or M: `1000`, `1.5k`, `4M`.
pub fn rate(text: &str) -> Result<f64, String> {
    scaled(text, &MULTIPLIERS).filter(|rate| rate.is_finite() && *rate > 0.0).ok_or_else(|| {
        "write a positive number of requests per second, such as 1000, 1.5k or 4M".into()
    })
}

/// Parses a time in seconds, or with a unit of `ns`, `us`, `µs`, `ms`, `s`, `m`, `h` or `d` (24
/// hours), to whole ns.
pub fn duration(text: &str) -> Result<Duration, String> {
    Duration::try_from_secs_f64(ns(text)? / 1e9).map_err(|_| TIME_FORM.into())
}

/// Parses a time as [`duration`] does, to ns with their fraction.
pub fn ns(text: &str) -> Result<f64, String> {
    let ns = scaled(text, &TIME_UNITS).filter(|ns| ns.is_finite() && *ns >= 0.0);
    ns.ok_or_else(|| TIME_FORM.into())
}

/// Formats a time exactly, in ns, us, ms or s, such that [`duration`] parses it.
#[must_use]
pub fn format_duration(time: Duration) -> String {
    let ns = time.as_nanos();
    let (unit_ns, unit) = match ns {
        1..1_000 => (1, "ns"),
        1_000..1_000_000 => (1_000, "us"),
        1_000_000..1_000_000_000 => (1_000_000, "ms"),
        _ => (1_000_000_000, "s"),
    };
    let fraction = format!("{:09}", ns % unit_ns * (1_000_000_000 / unit_ns));
    let fraction = fraction.trim_end_matches('0');
    let point = if fraction.is_empty() { "" } else { "." };
    format!("{}{point}{fraction}{unit}", ns / unit_ns)
}

/// Parses a whole number from 1 to 4,294,967,295, with an optional decimal multiplier k or M.
pub fn count(text: &str) -> Result<u32, String> {
    match rate(text) {
        Ok(number) if (1.0..=f64::from(u32::MAX)).contains(&number) && number.fract() == 0.0 => {
            Ok(number as u32)
        }
        _ => Err("write a number of at least 1, such as 500, 10k or 1M".to_owned()),
    }
}

/// Parses a size as a whole number of bytes from 1 to 2^53. The units k (as in iperf3 and qperf)
/// and KiB are 1,024 bytes, and kB is 1,000 bytes; correspondingly up to T, TiB and TB, in either
/// case.
pub fn size(text: &str) -> Result<u64, String> {
    let form = "write a size in bytes, such as 1448, 64k (65536), 64kB (64000) or 16M";
    let unit_at = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let unit = unit.to_ascii_lowercase();
    let power = |letter: &str| "kmgt".find(letter).map(|index| index as i32 + 1);
    let factor = match unit.len() {
        0 => Some(1.0),
        1 => power(&unit).map(|power| 1024_f64.powi(power)),
        2 if unit.ends_with('b') => power(&unit[..1]).map(|power| 1000_f64.powi(power)),
        3 if unit.ends_with("ib") => power(&unit[..1]).map(|power| 1024_f64.powi(power)),
        _ => None,
    };
    let size = number.parse::<f64>().ok().zip(factor).map(|(number, factor)| number * factor);
    match size {
        // Up to this limit every whole number is exact as a double.
        Some(size) if (1.0..=2_f64.powi(53)).contains(&size) && size.fract() == 0.0 => {
            Ok(size as u64)
        }
        _ => Err(form.to_owned()),
    }
}

/// Parses a rate, or a range of two rates separated by a hyphen; returns its ends.
pub fn rates(text: &str) -> Result<(f64, f64), String> {
    let (low, high) = text.split_once('-').unwrap_or((text, text));
    let (low, high) = (rate(low)?, rate(high)?);
    if low <= high { Ok((low, high)) } else { Err("the lower rate comes first".into()) }
}

/// Parses a non-zero time as [`duration`] does.
pub fn positive_duration(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("the time must be longer than 0".into()),
        duration => Ok(duration),
    }
}

/// Parses a non-negative time as [`duration`] does, to a span.
pub fn span(text: &str) -> Result<Span, String> {
    let ns = i64::try_from(duration(text)?.as_nanos());
    ns.map(Span::from_ns)
        .map_err(|_| format!("longer than {} years", i64::MAX / NS_PER_S / 31_557_600))
}

/// Parses a time above 0 as [`duration`] does, to a span.
pub fn positive_span(text: &str) -> Result<Span, String> {
    positive_duration(text).and_then(|_| span(text))
}

/// Parses a time as [`duration`] does, with an optional sign, to a span.
pub fn signed_span(text: &str) -> Result<Span, String> {
    match text.strip_prefix('-') {
        None => span(text.strip_prefix('+').unwrap_or(text)),
        Some(magnitude) => span(magnitude).map(|span| Span::from_ns(-span.as_ns())),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn rates_with_multipliers() {
        assert_eq!(rate("1.5k"), Ok(1500.0));
        assert_eq!(rate("4M"), Ok(4e6));
        for bad in ["", "0", "-1", "k", "1e999", "nan", "inf", "1G"] {
            assert!(rate(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn times_with_units() {
        assert_eq!(duration("2"), Ok(Duration::from_secs(2)));
        assert_eq!(duration("1.5ms"), Ok(Duration::from_micros(1500)));
        assert_eq!(duration("50us"), Ok(Duration::from_micros(50)));
        for bad in ["", "-1", "1w", "s", "nan", "1e300"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn rates_alone_and_as_a_range() {
        assert_eq!(rates("1000-2k"), Ok((1000.0, 2000.0)));
        assert_eq!(rates("7"), Ok((7.0, 7.0)));
        assert!(rates("2k-1k").is_err());
    }

    #[test]
    fn sizes_with_units() {
        for (text, bytes) in [
            ("1", 1),
            ("64k", 65_536),
            ("64K", 65_536),
            ("64KiB", 65_536),
            ("64kB", 64_000),
            ("1.5k", 1_536),
            ("3MB", 3_000_000),
            ("16G", 1 << 34),
            ("1T", 1 << 40),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for bad in ["", "k", "0", "-1k", "1.5", "1kk", "1iB", "1KBi", "1e3", "nan", "9000T", "1 k"]
        {
            assert!(size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn times_in_minutes_hours_and_days() {
        assert_eq!(positive_duration("30m"), Ok(Duration::from_mins(30)));
        assert_eq!(positive_duration("1.5h"), Ok(Duration::from_mins(90)));
        assert_eq!(positive_duration("1d"), Ok(Duration::from_hours(24)));
        assert_eq!(positive_duration("300ms"), Ok(Duration::from_millis(300)));
        assert_eq!(positive_duration("90"), Ok(Duration::from_secs(90)));
        for bad in ["", "m", "0h", "-1m", "infh", "d"] {
            assert!(positive_duration(bad).is_err(), "{bad}");
        }
    }
    #[test]
    fn times_with_a_fraction_of_a_ns() {
        assert_eq!((ns("0.25ns"), ns("200us"), ns("0.5us")), (Ok(0.25), Ok(200e3), Ok(500.0)));
        assert_eq!((ns("0"), ns("1d")), (Ok(0.0), Ok(86_400e9)));
        for bad in ["", "ns", "-1ns", "nan", "infs", "1e300"] {
            assert_eq!(ns(bad), Err(TIME_FORM.to_owned()), "{bad}");
        }
    }

    #[test]
    fn spans_with_a_sign() {
        assert_eq!(span("3ns"), Ok(Span::from_ns(3)));
        assert_eq!(signed_span("1.95e-6"), Ok(Span::from_ns(1_950)));
        assert_eq!(signed_span("-1.45us"), Ok(Span::from_ns(-1_450)));
        assert_eq!(signed_span("+0"), Ok(Span::ZERO));
        assert!(signed_span("--1").is_err() && signed_span("1e300").is_err());
        assert!(span("1e10").unwrap_err().starts_with("longer than 29"));
        assert!(positive_span("0ms").is_err() && positive_duration("0ms").is_err());
    }

    #[test]
    fn times_are_printed_in_their_unit() {
        for (ns, text) in [
            (0, "0s"),
            (7, "7ns"),
            (1_500, "1.5us"),
            (20_000_000, "20ms"),
            (180_000_000_000, "180s"),
            (2_250_000_000, "2.25s"),
        ] {
            assert_eq!(format_duration(Duration::from_nanos(ns)), text);
        }
    }

    proptest! {
        /// A double distinguishes each ns of up to 13 days, with rounding.
        #[test]
        fn printed_times_are_parsed(ns in 0..1u64 << 50) {
            let time = Duration::from_nanos(ns);
            prop_assert_eq!(duration(&format_duration(time)), Ok(time));
        }

        #[test]
        fn any_text_is_judged(text: String) {
            let _ = (rate(&text), signed_span(&text), count(&text), size(&text));
        }
    }
}
