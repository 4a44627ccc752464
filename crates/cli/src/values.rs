//! How values are written on the command line: rates, times and reference identifiers, each with
//! its units. Pure.

mod list;

use std::net::SocketAddr;
use std::time::Duration;

pub(crate) use horolog_load::text::{duration, rate};
pub(crate) use list::{numbers, sizes};

use horolog_time::{NS_PER_S, Span};
use horolog_wire::ntp::Leap;

/// An address with a port.
pub(crate) fn socket_address(text: &str) -> Result<SocketAddr, String> {
    let form = "write an address and a port, such as 192.0.2.1:123 or [2001:db8::1]:123";
    text.parse().map_err(|_| form.to_owned())
}

/// How many of something there are to be, at least one.
pub(crate) fn count(text: &str) -> Result<u32, String> {
    match rate(text) {
        Ok(number) if (1.0..=f64::from(u32::MAX)).contains(&number) && number.fract() == 0.0 => {
            Ok(number as u32)
        }
        _ => Err("write a number from 1 up, such as 500, 10k or 1M".to_owned()),
    }
}

/// A whole number of bytes that is not zero. As iperf3 takes lengths, and as qperf's `K` has it, k
/// is 1,024 in either case, and so is KiB, up to T and TiB; kB is 1,000, up to TB.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let form = "write a size in bytes, such as 1448, 64k (65536), 64kB (64000) or 16M";
    let unit_at = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let unit = unit.to_ascii_lowercase();
    let power = |letter: &str| "kmgt".find(letter).map(|place| place as i32 + 1);
    let factor = match unit.len() {
        0 => Some(1.0),
        1 => power(&unit).map(|power| 1024_f64.powi(power)),
        2 if unit.ends_with('b') => power(&unit[..1]).map(|power| 1000_f64.powi(power)),
        3 if unit.ends_with("ib") => power(&unit[..1]).map(|power| 1024_f64.powi(power)),
        _ => None,
    };
    let size = number.parse::<f64>().ok().zip(factor).map(|(number, factor)| number * factor);
    match size {
        // Up to there every whole number has a double.
        Some(size) if (1.0..=2_f64.powi(53)).contains(&size) && size.fract() == 0.0 => {
            Ok(size as u64)
        }
        _ => Err(form.to_owned()),
    }
}

/// One rate, or a lowest and a highest with a hyphen between them.
pub(crate) fn rates(text: &str) -> Result<(f64, f64), String> {
    let (low, high) = text.split_once('-').unwrap_or((text, text));
    let (low, high) = (rate(low)?, rate(high)?);
    if low <= high { Ok((low, high)) } else { Err("the lower rate comes first".into()) }
}

/// A time written like [`duration`], or in minutes, hours or days of 24 hours, that is not zero.
pub(crate) fn long_duration(text: &str) -> Result<Duration, String> {
    let scaled = |unit: char, seconds: f64| {
        let number = text.strip_suffix(unit)?.parse::<f64>().ok()?;
        Duration::try_from_secs_f64(number * seconds).ok()
    };
    let long = [('m', 60.0), ('h', 3_600.0), ('d', 86_400.0)];
    let long = long.into_iter().find_map(|(unit, seconds)| scaled(unit, seconds));
    match long.map_or_else(|| duration(text), Ok) {
        Ok(Duration::ZERO) => Err("the time must be longer than 0".into()),
        Ok(duration) => Ok(duration),
        Err(_) => Err("write a time such as 90s, 30m, 24h or 7d".into()),
    }
}

/// A time that is not zero.
pub(crate) fn positive_duration(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("the time must be longer than 0".into()),
        duration => Ok(duration),
    }
}

/// A span of time written like [`duration`].
pub(crate) fn span(text: &str) -> Result<Span, String> {
    let ns = i64::try_from(duration(text)?.as_nanos());
    ns.map(Span::from_ns)
        .map_err(|_| format!("longer than {} years", i64::MAX / NS_PER_S / 31_557_600))
}

/// The same, not zero.
pub(crate) fn positive_span(text: &str) -> Result<Span, String> {
    positive_duration(text).and_then(|_| span(text))
}

/// The same of either sign.
pub(crate) fn signed_span(text: &str) -> Result<Span, String> {
    match text.strip_prefix('-') {
        None => span(text.strip_prefix('+').unwrap_or(text)),
        Some(magnitude) => span(magnitude).map(|span| Span::from_ns(-span.as_ns())),
    }
}

/// A share from 0 to below 1, as a number or in percent: `0.0001`, `0.01%`.
pub(crate) fn ratio(text: &str) -> Result<f64, String> {
    let ratio = match text.strip_suffix('%') {
        Some(number) => number.parse::<f64>().map(|number| number / 100.0),
        None => text.parse(),
    };
    match ratio {
        Ok(ratio) if (0.0..1.0).contains(&ratio) => Ok(ratio),
        _ => Err("write a share from 0 to below 1, such as 0.0001 or 0.01%".into()),
    }
}

/// A reference identifier: up to four printable ASCII characters, or an IPv4 address.
pub(crate) fn reference_id(text: &str) -> Result<[u8; 4], String> {
    if let Ok(address) = text.parse::<std::net::Ipv4Addr>() {
        return Ok(address.octets());
    }
    let bytes = text.as_bytes();
    if bytes.is_empty() || bytes.len() > 4 || !bytes.iter().all(u8::is_ascii_graphic) {
        return Err("write one to four printable ASCII characters or an IPv4 address".into());
    }
    let mut id = [0; 4];
    id[..bytes.len()].copy_from_slice(bytes);
    Ok(id)
}

/// A leap indicator: 0 to 3, or in words.
pub(crate) fn leap(text: &str) -> Result<Leap, String> {
    match text {
        "0" | "none" => Ok(Leap::None),
        "1" | "insert" => Ok(Leap::Insert),
        "2" | "delete" => Ok(Leap::Delete),
        "3" | "unsynchronised" => Ok(Leap::Unsynchronised),
        _ => Err("write none, insert, delete, unsynchronised or 0 to 3".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn times_with_units() {
        assert_eq!(span("3ns"), Ok(Span::from_ns(3)));
        assert_eq!(signed_span("1.95e-6"), Ok(Span::from_ns(1_950)));
        assert_eq!(signed_span("-1.45us"), Ok(Span::from_ns(-1_450)));
        assert_eq!(signed_span("+0"), Ok(Span::ZERO));
        assert!(signed_span("--1").is_err() && signed_span("1e300").is_err());
        assert!(positive_duration("0ms").is_err());
    }

    #[test]
    fn long_times_in_minutes_and_hours() {
        assert_eq!(long_duration("30m"), Ok(Duration::from_mins(30)));
        assert_eq!(long_duration("1.5h"), Ok(Duration::from_mins(90)));
        assert_eq!(long_duration("1d"), Ok(Duration::from_hours(24)));
        assert_eq!(long_duration("300ms"), Ok(Duration::from_millis(300)));
        assert_eq!(long_duration("90"), Ok(Duration::from_secs(90)));
        for bad in ["", "m", "0h", "-1m", "infh", "d"] {
            assert!(long_duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn shares() {
        assert_eq!(ratio("0.01%"), Ok(0.0001));
        assert_eq!(ratio("0"), Ok(0.0));
        assert!(ratio("100%").is_err() && ratio("-1").is_err());
    }

    #[test]
    fn reference_identifiers() {
        assert_eq!(reference_id("GPS"), Ok(*b"GPS\0"));
        assert_eq!(reference_id("192.0.2.1"), Ok([192, 0, 2, 1]));
        assert!(reference_id("GNSS1").is_err() && reference_id("").is_err());
        assert!(reference_id("é").is_err());
    }
}
