//! How rates and times are written by people, on the command line and in files. Pure.

use std::time::Duration;

/// A number with an optional decimal multiplier: `1000`, `1.5k`, `4M`.
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

/// A time in seconds, or with one of the units `ns`, `us`, `ms`, `s`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let units = [("ns", 1e-9), ("us", 1e-6), ("µs", 1e-6), ("ms", 1e-3), ("s", 1.0), ("", 1.0)];
    let parse = |(unit, factor): (&str, f64)| {
        let number = text.strip_suffix(unit)?.parse::<f64>().ok()?;
        Duration::try_from_secs_f64(number * factor).ok()
    };
    units
        .into_iter()
        .find_map(parse)
        .ok_or_else(|| "write a time in seconds, such as 2, 0.5 or 100ms".into())
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
        for bad in ["", "-1", "1h", "s", "nan", "1e300"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }
}
