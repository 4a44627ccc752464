//! Parsing of rates, times, counts and sizes as written on the command line and in files.

use std::time::Duration;

/// Parses a positive number with an optional decimal multiplier k or M: `1000`, `1.5k`, `4M`.
pub fn rate(text: &str) -> Result<f64, String> {
    let (number, factor) = match text.strip_suffix(['k', 'K']) {
        Some(number) => (number, 1e3),
        None => match text.strip_suffix(['m', 'M']) {
            Some(number) => (number, 1e6),
            None => (text, 1.0),
        },
    };
    let rate = number.parse::<f64>().map(|number| number * factor);
    match rate {
        Ok(rate) if rate.is_finite() && rate > 0.0 => Ok(rate),
        _ => Err("write a positive number of requests per second, such as 1000, 1.5k or 4M".into()),
    }
}

/// Parses a time in seconds, or with a unit of `ns`, `us`, `µs`, `ms`, `s`, `m`, `h` or `d` (24
/// hours).
pub fn duration(text: &str) -> Result<Duration, String> {
    const UNITS: [(&str, f64); 9] = [
        ("ns", 1e-9),
        ("us", 1e-6),
        ("µs", 1e-6),
        ("ms", 1e-3),
        ("s", 1.0),
        ("m", 60.0),
        ("h", 3_600.0),
        ("d", 86_400.0),
        ("", 1.0),
    ];
    let parse = |(unit, seconds): (&str, f64)| {
        let number = text.strip_suffix(unit)?.parse::<f64>().ok()?;
        Duration::try_from_secs_f64(number * seconds).ok()
    };
    UNITS.into_iter().find_map(parse).ok_or_else(|| {
        "write a time in seconds, or with a unit, such as 2, 100ms, 30m or 7d".into()
    })
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

#[cfg(test)]
mod tests {
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
}
