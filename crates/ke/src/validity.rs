//! Validity period of a certificate (RFC 5280, section 4.1.2.5): a minimal DER parser that skips
//! all other fields. Nothing is verified.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

const INTEGER: u8 = 0x02;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
/// Explicitly tagged field 0: the version.
const VERSION: u8 = 0xa0;
const S_PER_DAY: i64 = 86_400;

/// Validity period of a certificate, both ends included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CertificateValidity {
    /// The first instant.
    pub not_before: SystemTime,
    /// The last instant.
    pub not_after: SystemTime,
}

impl CertificateValidity {
    /// Parses the validity period of a certificate in DER; `None` if it is not a certificate.
    /// Instants before 1970 are returned as 1970.
    #[must_use]
    pub fn parse(certificate: &[u8]) -> Option<Self> {
        let (certificate, _) = read_element(certificate, SEQUENCE)?;
        let (mut fields, _) = read_element(certificate, SEQUENCE)?;
        if let Some((_, rest)) = read_element(fields, VERSION) {
            fields = rest;
        }
        // Serial number, signature algorithm, issuer.
        for tag in [INTEGER, SEQUENCE, SEQUENCE] {
            fields = read_element(fields, tag)?.1;
        }
        let (validity, _) = read_element(fields, SEQUENCE)?;
        let (not_before, rest) = read_time(validity)?;
        let (not_after, _) = read_time(rest)?;
        Some(Self { not_before, not_after })
    }
}

/// Returns the content of the DER element at the beginning of `bytes`, and the bytes after it;
/// `None` if it has another tag or is incomplete.
fn read_element(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (&[found, first], rest) = bytes.split_first_chunk()?;
    if found != tag {
        return None;
    }
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        // Up to four bytes of length; no certificate is longer.
        0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (digits.iter().fold(0, |sum, &digit| sum << 8 | usize::from(digit)), rest)
        }
        _ => return None,
    };
    rest.split_at_checked(length)
}

fn read_time(bytes: &[u8]) -> Option<(SystemTime, &[u8])> {
    if let Some((text, rest)) = read_element(bytes, UTC_TIME) {
        let [year, month_to_second @ ..] = parse_two_digits::<6>(text)?;
        // Two digits represent 1950 to 2049.
        let year = if year < 50 { 2000 + year } else { 1900 + year };
        return Some((to_system_time(year, month_to_second)?, rest));
    }
    let (text, rest) = read_element(bytes, GENERALIZED_TIME)?;
    let [century, year, month_to_second @ ..] = parse_two_digits::<7>(text)?;
    Some((to_system_time(century * 100 + year, month_to_second)?, rest))
}

/// Parses a time of `N` two-digit numbers and a final `Z`.
fn parse_two_digits<const N: usize>(text: &[u8]) -> Option<[i64; N]> {
    let (pairs, end) = text.as_chunks::<2>();
    let pairs: &[[u8; 2]; N] = pairs.try_into().ok()?;
    let digits = pairs.as_flattened().iter().all(u8::is_ascii_digit);
    let number = |[ten, one]: [u8; 2]| i64::from(ten - b'0') * 10 + i64::from(one - b'0');
    (digits && end == b"Z").then(|| pairs.map(number))
}

fn to_system_time(year: i64, [month, day, hour, minute, second]: [i64; 5]) -> Option<SystemTime> {
    let is_valid = (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour < 24
        && minute < 60
        && second <= 60;
    if !is_valid {
        return None;
    }
    let seconds =
        days_since_epoch(year, month, day) * S_PER_DAY + hour * 3600 + minute * 60 + second;
    Some(UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}

/// Returns the number of days from 1970-01-01 to a date of the Gregorian calendar. Years are
/// counted from March, so that a leap day is the last day of its year.
fn days_since_epoch(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    // From March on, the months have 31, 30, 31, 30, 31 days, repeatedly.
    let before_month = (153 * month + 2) / 5;
    // 0000-03-01, the first day of this count, is 719,468 days before 1970-01-01; one day more,
    // since `day` counts from 1.
    year * 365 + leap_days + before_month + day - 719_469
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(text: &str) -> SystemTime {
        humantime::parse_rfc3339(text).unwrap()
    }

    fn utc(text: &str) -> Vec<u8> {
        [&[UTC_TIME, text.len() as u8], text.as_bytes()].concat()
    }

    #[test]
    fn a_certificate_of_a_library() {
        let mut parameters = rcgen::CertificateParams::new(["localhost".into()]).unwrap();
        parameters.not_before = rcgen::date_time_ymd(1999, 12, 31);
        parameters.not_after = rcgen::date_time_ymd(2096, 2, 29);
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = parameters.self_signed(&key).unwrap();
        let expected = CertificateValidity {
            not_before: at("1999-12-31T00:00:00Z"),
            not_after: at("2096-02-29T00:00:00Z"),
        };
        let der = certificate.der();
        assert_eq!(CertificateValidity::parse(der), Some(expected));
        for cut in 0..der.len() {
            assert_eq!(CertificateValidity::parse(&der[..cut]), None, "{cut}");
        }
    }

    #[test]
    fn both_forms_of_time() {
        assert_eq!(read_time(&utc("261122012251Z")), Some((at("2026-11-22T01:22:51Z"), &[][..])));
        let general = [&[GENERALIZED_TIME, 15], &b"20500101000000Z"[..]].concat();
        assert_eq!(read_time(&general).unwrap().0, at("2050-01-01T00:00:00Z"));
        // 50 is 1950, before the epoch.
        assert_eq!(read_time(&utc("500101000000Z")).unwrap().0, UNIX_EPOCH);
        for wrong in ["261322012251Z", "2611220122511", "26112201225Z", "2611220122+1Z"] {
            assert_eq!(read_time(&utc(wrong)), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn dates_as_another_library_counts_them(day in 0u64..100_000) {
            let time = UNIX_EPOCH + Duration::from_secs(day * 86_400);
            let text = humantime::format_rfc3339_seconds(time).to_string();
            let number = |from: usize, to: usize| text[from..to].parse().unwrap();
            prop_assert_eq!(days_since_epoch(number(0, 4), number(5, 7), number(8, 10)), day as i64);
        }
    }
}
