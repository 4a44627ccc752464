//! Notation of rates, times, counts and sizes on the command line and in files: parsers, and
//! printers whose output they parse.

mod list;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

pub use list::{numbers, sizes};

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
const MULTIPLIERS: [(&str, f64); 6] =
    [("k", 1e3), ("K", 1e3), ("m", 1e6), ("M", 1e6), ("G", 1e9), ("", 1.0)];
/// Up to this limit every whole number is exact as a double.
const WHOLE_MAX: f64 = (1_u64 << 53) as f64;

/// Reason for which a text is not a quantity: what to write instead. The caller states the text and
/// its place, as in `invalid value '1h' for '--rate': write a positive number …`.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum QuantityError {
    /// Not a [`Rate`].
    #[error("write a positive number per second, such as 950, 1.5k, 4M or 1G")]
    Rate,
    /// Range whose first rate is the higher one.
    #[error("the lower rate comes first")]
    RateOrder,
    /// Not a time.
    #[error("write a time in seconds, or with a unit, such as 2, 100ms, 30m or 7d")]
    Time,
    /// Number without a unit where seconds are hardly intended.
    #[error("write a time with its unit, such as 200us")]
    TimeWithoutUnit,
    /// Time of length 0.
    #[error("the time must be longer than 0")]
    ZeroTime,
    /// Time longer than a [`Span`] can be.
    #[error("the time must be shorter than {} years", i64::MAX / NS_PER_S / 31_557_600)]
    TimeTooLong,
    /// Not a count.
    #[error("write a number of at least 1, such as 500, 10k or 1M")]
    Count,
    /// Not a [`Size`].
    #[error("write a size in bytes, such as 1448, 64k (65536), 64kB (64000) or 16M")]
    Size,
    /// Not a ratio.
    #[error("write a share from 0 to 1, such as 0.001 or 0.1%")]
    Ratio,
    /// Not a factor.
    #[error("write a positive number, such as 1.5")]
    Factor,
    /// Part of a list that is not a number or a range.
    #[error("'{}' {reason}; write such as {examples}", part.escape_debug())]
    ListPart {
        /// Text of the part.
        part: String,
        /// Predicate of the part, such as `is no number or range`.
        reason: &'static str,
        /// Valid lists.
        examples: &'static str,
    },
    /// List with too many numbers.
    #[error("these are more than {} numbers; take larger steps", list::NUMBERS_MAX)]
    ListTooLong,
    /// Size in a range that is not a whole number of bytes.
    #[error("a step leads to {0} bytes; take steps of whole bytes")]
    SizeFraction(f64),
}

impl From<QuantityError> for String {
    fn from(error: QuantityError) -> Self {
        error.to_string()
    }
}

/// Parses a number with one of these units, and multiplies it by its factor.
fn scaled(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let with_unit =
        |(unit, factor): &(&str, f64)| Some(text.strip_suffix(unit)?.parse::<f64>().ok()? * factor);
    units.iter().find_map(with_unit)
}

/// Positive rate per second. Its notation is a number with an optional decimal multiplier k, M or G
/// and an optional `/s`: `1000`, `1.5k`, `4M/s`.
#[derive(Clone, Copy, PartialEq, PartialOrd, Debug)]
pub struct Rate(f64);

impl Rate {
    /// Returns the number of events per second.
    #[must_use]
    pub const fn per_second(self) -> f64 {
        self.0
    }
}

impl FromStr for Rate {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let rate = scaled(text.strip_suffix("/s").unwrap_or(text), &MULTIPLIERS);
        let rate = rate.filter(|rate| rate.is_finite() && *rate > 0.0);
        rate.map(Self).ok_or(QuantityError::Rate)
    }
}

/// Prints the rate with the largest multiplier for which the text is exact.
impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_exact = |&(_, factor): &(&str, f64)| {
            self.0 >= factor && (self.0 / factor * factor).to_bits() == self.0.to_bits()
        };
        let multiplier = [("G", 1e9), ("M", 1e6), ("k", 1e3)].into_iter().find(is_exact);
        let (unit, factor) = multiplier.unwrap_or(("", 1.0));
        write!(f, "{}{unit}", self.0 / factor)
    }
}

/// Parses a rate, or a range of two rates separated by a hyphen; returns its ends, per second.
pub fn rates(text: &str) -> Result<(f64, f64), QuantityError> {
    let (low, high) = text.split_once('-').unwrap_or((text, text));
    let (low, high) = (low.parse::<Rate>()?, high.parse::<Rate>()?);
    if low <= high { Ok((low.0, high.0)) } else { Err(QuantityError::RateOrder) }
}

/// Size in bytes, from 1 to 2^53. Its units k (as in iperf3 and qperf) and KiB are 1,024 bytes, and
/// kB is 1,000 bytes; correspondingly up to T, TiB and TB, in either case.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Size(u64);

impl Size {
    /// Returns the number of bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

impl FromStr for Size {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
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
        let size = size.filter(|size| (1.0..=WHOLE_MAX).contains(size) && size.fract() == 0.0);
        size.map(|size| Self(size as u64)).ok_or(QuantityError::Size)
    }
}

/// Prints the size in the largest of the units T, G, M, k and bytes of which it is a multiple.
impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let power = (self.0.trailing_zeros() / 10).min(4);
        let unit = ["", "k", "M", "G", "T"][power as usize];
        write!(f, "{}{unit}", self.0 >> (10 * power))
    }
}

/// Parses a time with an optional sign in the notation of [`duration`]. `{:#}` prints a span in it.
impl FromStr for Span {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        match text.strip_prefix('-') {
            None => span(text.strip_prefix('+').unwrap_or(text)),
            Some(magnitude) => span(magnitude).map(|span| -span),
        }
    }
}

/// Parses a time in seconds, or with a unit of `ns`, `us`, `µs`, `ms`, `s`, `m`, `h` or `d` (24
/// hours), to whole ns.
pub fn duration(text: &str) -> Result<Duration, QuantityError> {
    Duration::try_from_secs_f64(ns(text)? / 1e9).map_err(|_| QuantityError::Time)
}

/// Parses a time as [`duration`] does, to ns with their fraction.
pub fn ns(text: &str) -> Result<f64, QuantityError> {
    let ns = scaled(text, &TIME_UNITS).filter(|ns| ns.is_finite() && *ns >= 0.0);
    ns.ok_or(QuantityError::Time)
}

/// Parses a time as [`ns`] does; a number other than 0 needs a unit.
pub fn ns_with_unit(text: &str) -> Result<f64, QuantityError> {
    match text.parse::<f64>() {
        Ok(number) if number > 0.0 => Err(QuantityError::TimeWithoutUnit),
        _ => ns(text),
    }
}

/// Parses a non-zero time as [`duration`] does.
pub fn positive_duration(text: &str) -> Result<Duration, QuantityError> {
    match duration(text)? {
        Duration::ZERO => Err(QuantityError::ZeroTime),
        duration => Ok(duration),
    }
}

/// Parses a non-negative time as [`duration`] does, to a span.
pub fn span(text: &str) -> Result<Span, QuantityError> {
    let ns = i64::try_from(duration(text)?.as_nanos());
    ns.map(Span::from_ns).map_err(|_| QuantityError::TimeTooLong)
}

/// Parses a time above 0 as [`duration`] does, to a span.
pub fn positive_span(text: &str) -> Result<Span, QuantityError> {
    positive_duration(text).and_then(|_| span(text))
}

/// Parses a whole number from 1 to the maximum of its type, and at most 2^53, with an optional
/// decimal multiplier as a [`Rate`] has.
pub fn count<N: TryFrom<u64>>(text: &str) -> Result<N, QuantityError> {
    let number = scaled(text, &MULTIPLIERS);
    let number =
        number.filter(|number| (1.0..=WHOLE_MAX).contains(number) && number.fract() == 0.0);
    number.and_then(|number| N::try_from(number as u64).ok()).ok_or(QuantityError::Count)
}

/// Parses a finite number of at least 0, as it is or in percent: `0.001`, `0.1%`.
#[must_use]
pub fn fraction(text: &str) -> Option<f64> {
    let number = match text.strip_suffix('%') {
        Some(number) => number.parse::<f64>().map(|number| number / 100.0),
        None => text.parse(),
    };
    number.ok().filter(|number| number.is_finite() && *number >= 0.0)
}

/// Parses a share from 0 to 1 as [`fraction`] does.
pub fn ratio(text: &str) -> Result<f64, QuantityError> {
    fraction(text).filter(|ratio| *ratio <= 1.0).ok_or(QuantityError::Ratio)
}

/// Parses a positive, finite number.
pub fn factor(text: &str) -> Result<f64, QuantityError> {
    let factor = text.parse().ok().filter(|factor: &f64| factor.is_finite() && *factor > 0.0);
    factor.ok_or(QuantityError::Factor)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn rates_with_multipliers() {
        for (text, rate) in [("1.5k", 1500.0), ("4M", 4e6), ("45k/s", 45e3), ("1.5G", 1.5e9)] {
            assert_eq!(text.parse(), Ok(Rate(rate)), "{text}");
        }
        for bad in ["", "0", "-1", "k", "1e999", "nan", "inf", "1T", "1 k", "1/s/s", "1 /s"] {
            assert_eq!(bad.parse::<Rate>(), Err(QuantityError::Rate), "{bad}");
        }
        for (rate, text) in [(950.0, "950"), (1500.0, "1.5k"), (4e6, "4M"), (0.1, "0.1")] {
            assert_eq!(Rate(rate).to_string(), text);
        }
    }

    #[test]
    fn times_with_units() {
        assert_eq!(duration("2"), Ok(Duration::from_secs(2)));
        assert_eq!(duration("1.5ms"), Ok(Duration::from_micros(1500)));
        assert_eq!(duration("50us"), Ok(Duration::from_micros(50)));
        for bad in ["", "-1", "1w", "s", "nan", "1e300", "1 s"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn rates_alone_and_as_a_range() {
        assert_eq!(rates("1000-2k"), Ok((1000.0, 2000.0)));
        assert_eq!(rates("7"), Ok((7.0, 7.0)));
        assert_eq!(rates("2k-1k"), Err(QuantityError::RateOrder));
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
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
        for bad in ["", "k", "0", "-1k", "1.5", "1kk", "1iB", "1KBi", "1e3", "nan", "9000T", "1 k"]
        {
            assert_eq!(bad.parse::<Size>(), Err(QuantityError::Size), "{bad}");
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
            assert_eq!(ns(bad), Err(QuantityError::Time), "{bad}");
        }
    }

    #[test]
    fn spans_with_a_sign() {
        assert_eq!(span("3ns"), Ok(Span::from_ns(3)));
        for (text, ns) in [("1.95e-6", 1_950), ("-1.45us", -1_450), ("+0", 0)] {
            assert_eq!(text.parse(), Ok(Span::from_ns(ns)), "{text}");
        }
        assert!("--1".parse::<Span>().is_err() && "1e300".parse::<Span>().is_err());
        assert_eq!(span("1e10"), Err(QuantityError::TimeTooLong));
        assert!(QuantityError::TimeTooLong.to_string().contains("292 years"));
        assert!(positive_span("0ms").is_err() && positive_duration("0ms").is_err());
    }

    #[test]
    fn counts_fit_their_type() {
        assert_eq!((count("10k"), count("0.5k")), (Ok(10_000_u32), Ok(500_u32)));
        assert_eq!(
            (count("5G"), count::<u32>("5G")),
            (Ok(5_000_000_000_u64), Err(QuantityError::Count))
        );
        for bad in ["", "0", "1.5", "-1", "1/s", "nan", "1e300"] {
            assert_eq!(count::<u64>(bad), Err(QuantityError::Count), "{bad}");
        }
    }

    #[test]
    fn shares_and_factors() {
        assert_eq!((ratio("0.1%"), ratio("1"), ratio("0")), (Ok(0.001), Ok(1.0), Ok(0.0)));
        for bad in ["", "101%", "-1", "nan", "1 %"] {
            assert_eq!(ratio(bad), Err(QuantityError::Ratio), "{bad}");
        }
        assert_eq!((fraction("250%"), fraction("inf")), (Some(2.5), None));
        assert_eq!((factor("1.5"), factor("0")), (Ok(1.5), Err(QuantityError::Factor)));
    }

    #[test]
    fn limits_of_times_need_a_unit() {
        assert_eq!((ns_with_unit("200us"), ns_with_unit("0")), (Ok(200e3), Ok(0.0)));
        assert_eq!(ns_with_unit("200"), Err(QuantityError::TimeWithoutUnit));
        assert_eq!(ns_with_unit("infs"), Err(QuantityError::Time));
    }

    proptest! {
        /// A double distinguishes each ns of up to 13 days, with rounding.
        #[test]
        fn printed_spans_are_parsed(ns in -(1_i64 << 50)..1 << 50, shift in 0..50) {
            let span = Span::from_ns(ns >> shift);
            prop_assert_eq!(format!("{span:#}").parse(), Ok(span));
        }

        #[test]
        fn printed_rates_are_parsed(rate in prop_oneof![
            prop::num::f64::POSITIVE, 1e-3..1e12, (1_u32..).prop_map(f64::from),
        ]) {
            prop_assert_eq!(Rate(rate).to_string().parse(), Ok(Rate(rate)));
        }

        #[test]
        fn printed_sizes_are_parsed(bytes in 1..=1_u64 << 53, shift in 0..53_u32) {
            let size = Size(((bytes >> shift) << (shift / 2)).max(1));
            prop_assert_eq!(size.to_string().parse(), Ok(size));
        }

        #[test]
        fn any_text_is_judged(text: String) {
            let _ = (text.parse::<Rate>(), text.parse::<Span>(), text.parse::<Size>());
            let _ = (count::<u32>(&text), fraction(&text), sizes(&text), numbers(&text));
        }
    }
}
