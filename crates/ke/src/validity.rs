//! Validity period of a certificate (RFC 5280, section 4.1.2.5): a minimal DER parser that skips
//! all other fields. Nothing is verified.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::civil::{Date, DateTime, Time};

const INTEGER: u8 = 0x02;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
/// Explicitly tagged field 0: the version.
const VERSION: u8 = 0xa0;
const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);

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
        let year = i16::from(year) + if year < 50 { 2000 } else { 1900 };
        return Some((to_system_time(year, month_to_second)?, rest));
    }
    let (text, rest) = read_element(bytes, GENERALIZED_TIME)?;
    let [century, year, month_to_second @ ..] = parse_two_digits::<7>(text)?;
    let year = i16::from(century) * 100 + i16::from(year);
    Some((to_system_time(year, month_to_second)?, rest))
}

/// Parses a time of `N` two-digit numbers and a final `Z`.
fn parse_two_digits<const N: usize>(text: &[u8]) -> Option<[i8; N]> {
    let (pairs, end) = text.as_chunks::<2>();
    let pairs: &[[u8; 2]; N] = pairs.try_into().ok()?;
    let digits = pairs.as_flattened().iter().all(u8::is_ascii_digit);
    let number = |[ten, one]: [u8; 2]| ((ten - b'0') * 10 + (one - b'0')).cast_signed();
    (digits && end == b"Z").then(|| pairs.map(number))
}

fn to_system_time(year: i16, [month, day, hour, minute, second]: [i8; 5]) -> Option<SystemTime> {
    // A leap second counts as the second after it.
    let is_leap_second = second == 60;
    let second = if is_leap_second { 59 } else { second };
    let date = Date::new(year, month, day).ok()?;
    let time = Time::new(hour, minute, second, 0).ok()?;
    let seconds =
        date.to_datetime(time).duration_since(EPOCH).as_secs() + i64::from(is_leap_second);
    Some(UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SystemTime {
        text.parse::<jiff::Timestamp>().unwrap().into()
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
        // The end of a certificate that does not expire (RFC 5280, section 4.1.2.5).
        let last = [&[GENERALIZED_TIME, 15], &b"99991231235959Z"[..]].concat();
        let end = UNIX_EPOCH + Duration::from_secs(253_402_300_799);
        assert_eq!(read_time(&last).unwrap().0, end);
        let leap_second = read_time(&utc("161231235960Z")).unwrap().0;
        assert_eq!(leap_second, at("2017-01-01T00:00:00Z"));
        for wrong in
            ["260230012251Z", "261322012251Z", "2611220122511", "26112201225Z", "2611220122+1Z"]
        {
            assert_eq!(read_time(&utc(wrong)), None, "{wrong}");
        }
    }
}
