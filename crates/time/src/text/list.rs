//! Value parser of lists of numbers and ranges: `64,128,1000..5000:1000,1..64k:*2` is 64, 128, then
//! 1,000 to 5,000 in steps of 1,000, then the powers of two from 1 to 64k. The suffix k is 1,000
//! for rates and counts, and 1,024 for sizes in bytes. Pure.

use super::{QuantityError, Rate, Size};

/// Largest number of elements of a list. It limits the memory for a range with a very small step.
pub(super) const NUMBERS_MAX: usize = 10_000;

/// Relative tolerance by which a number of a range may exceed its end, for rounding of the steps.
const ROUNDING: f64 = 1e-9;

/// Parser of a single number.
type NumberParser = fn(&str) -> Result<f64, QuantityError>;

/// Parses a list of numbers in the notation of [`Rate`], and keeps its order.
pub fn numbers(text: &str) -> Result<Vec<f64>, QuantityError> {
    parse_list(text, |text| text.parse().map(Rate::per_second), "5k, 5k..50k:5k or 1k..1M:*2")
}

/// Parses a list of sizes in the notation of [`Size`] to bytes, and keeps its order.
pub fn sizes(text: &str) -> Result<Vec<u64>, QuantityError> {
    let number: NumberParser = |text| text.parse().map(|size: Size| size.bytes() as f64);
    let sizes = parse_list(text, number, "64, 1000..5000:1000 or 1..64k:*2")?;
    let whole = |size: f64| {
        (size.fract() == 0.0).then_some(size as u64).ok_or(QuantityError::SizeFraction(size))
    };
    sizes.into_iter().map(whole).collect()
}

fn parse_list(
    text: &str,
    parse_number: NumberParser,
    examples: &'static str,
) -> Result<Vec<f64>, QuantityError> {
    let wrong = |part: &str| {
        let is_zero = part.parse::<f64>().is_ok_and(|number| number == 0.0);
        let reason = if is_zero { "is too little" } else { "is no number or range" };
        QuantityError::ListPart { part: part.to_owned(), reason, examples }
    };
    let mut numbers = Vec::new();
    for part in text.split(',') {
        match part.split_once("..") {
            None => numbers.push(parse_number(part).map_err(|_| wrong(part))?),
            Some((from, rest)) => {
                extend_by_range(&mut numbers, from, rest, parse_number)
                    .ok_or_else(|| wrong(part))?;
            }
        }
        if numbers.len() > NUMBERS_MAX {
            return Err(QuantityError::ListTooLong);
        }
    }
    Ok(numbers)
}

/// Adds the numbers of the range `start..end:step` or `start..end:*factor`; `None` if the range is
/// invalid. `end_and_step` is the text after `..`.
fn extend_by_range(
    numbers: &mut Vec<f64>,
    start: &str,
    end_and_step: &str,
    parse_number: NumberParser,
) -> Option<()> {
    let (end, step) = end_and_step.split_once(':')?;
    let (mut next, end) = (parse_number(start).ok()?, parse_number(end).ok()?);
    let (factor, step) = match step.strip_prefix('*') {
        Some(factor) => (factor.parse().map(Rate::per_second).ok()?, 0.0),
        None => (1.0, parse_number(step).ok()?),
    };
    if next > end || (factor <= 1.0 && step <= 0.0) {
        return None;
    }
    // This may add one number more than allowed, by which the caller detects a list that is too
    // long.
    while next <= end * (1.0 + ROUNDING) && numbers.len() <= NUMBERS_MAX {
        numbers.push(next);
        next = next * factor + step;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_ranges() {
        assert_eq!(
            numbers("64,1.5k,1000..5000:1000").unwrap(),
            [64.0, 1500.0, 1e3, 2e3, 3e3, 4e3, 5e3]
        );
        assert_eq!(numbers("1..10:*2").unwrap(), [1.0, 2.0, 4.0, 8.0]);
        assert_eq!(numbers("5k..50k:5k").unwrap().len(), 10);
        assert_eq!(numbers("0.1..0.5:0.1").unwrap().len(), 5, "rounding loses no number");
        assert_eq!(numbers("7..7:1").unwrap(), [7.0]);
    }

    #[test]
    fn invalid_list_is_refused() {
        for bad in ["", ",", "1,", "a", "2..1:1", "1..2", "1..2:", "1..2:0", "1..2:*1", "1..2:-1"] {
            assert!(numbers(bad).unwrap_err().to_string().contains("no number or range"), "{bad}");
        }
        assert!(sizes("64,0").unwrap_err().to_string().starts_with("'0' is too little; "));
        assert!(numbers("1..1M:0.001").unwrap_err().to_string().contains("more than 10000"));
        assert!(numbers("1..2:*1.0000000001").unwrap_err().to_string().contains("more than 10000"));
    }

    #[test]
    fn sizes_are_of_bytes() {
        let doubled: Vec<u64> = (0..=16).map(|power| 1 << power).collect();
        for sweep in ["1..64k:*2", "1..64K:*2", "1..64KiB:*2", "1..65536:*2"] {
            assert_eq!(sizes(sweep).unwrap(), doubled, "{sweep}");
        }
        assert_eq!(sizes("64,1.5k,1000..3000:1000").unwrap(), [64, 1_536, 1_000, 2_000, 3_000]);
        assert_eq!(sizes("1kB..3kB:1kB").unwrap(), [1_000, 2_000, 3_000]);
        for bad in ["", "-1", "1.5", "a", "1..2", "1..4:*0.5"] {
            assert!(sizes(bad).unwrap_err().to_string().contains("no number or range"), "{bad}");
        }
        assert!(sizes("1..9:*1.5").unwrap_err().to_string().contains("to 1.5 bytes"));
    }
}
