//! Parser of `leap-seconds.list`, which the IERS publishes and NIST and the IETF copy: past and
//! coming leap seconds, an expiry date, and a SHA-1 hash. An invalid list is rejected as a whole;
//! nothing is repaired.

use sha1::{Digest, Sha1};

use super::{LeapKind, LeapSecond, NS_PER_DAY};
use crate::{NS_PER_S, Span, Timestamp, UNIX_EPOCH_IN_NTP_SECONDS, Utc};

/// Maximum length of a list: the real one has some 5,000 bytes.
pub const LIST_BYTES_MAX: usize = 1 << 16;
/// Time before expiry from which a warning is due. The IERS publishes a list every half year, which
/// expires half a year after the next one.
const EXPIRY_WARNING_LEAD: Span = Span::from_ns(28 * NS_PER_DAY);

/// Reason for which a text is not a list of leap seconds.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}: {fault}")]
pub struct LeapListError {
    /// Line number from 1; the last line if the text is too long or an element is missing.
    pub line: usize,
    /// Reason for which that line is rejected.
    pub fault: LeapListErrorKind,
}

/// Reason for which a line of a list is rejected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LeapListErrorKind {
    /// Text longer than any list.
    #[error("the text exceeds {LIST_BYTES_MAX} bytes, so it is not a leap second list")]
    TooLong,
    /// Invalid number, or more or fewer numbers than the line has.
    #[error(
        "{0} expected; download the list again, for example from \
         https://data.iana.org/time-zones/data/leap-seconds.list"
    )]
    Numbers(&'static str),
    /// Instant outside the years 1900 to 2262.
    #[error("an instant out of range; download the list again")]
    Instant,
    /// Leap second that is not at the end of a UTC day, or not after the previous one.
    #[error("leap seconds must be at the end of a day, in order; download the list again")]
    Order,
    /// Change of TAI minus UTC by other than one second.
    #[error("TAI minus UTC changes by one second at a time; download the list again")]
    Change,
    /// Duplicate of a line that may occur only once.
    #[error("a second line '{0}'; download the list again")]
    Duplicate(&'static str),
    /// Missing line.
    #[error("the line '{0}' is missing; download the list again")]
    Missing(&'static str),
    /// Hash that does not match the data.
    #[error(
        "the hash does not match the data, so the list was damaged or changed; download it \
             again"
    )]
    Hash,
}

/// Validity of a list at an instant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LeapListValidity {
    /// Not expired.
    Valid,
    /// Not expired, but expiring within 28 days.
    ExpiresSoon,
    /// Expired: later leap seconds may be missing. The list remains correct for the past.
    Expired,
}

/// List of leap seconds with a verified hash.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeapList {
    leaps: Vec<LeapSecond>,
    /// TAI minus UTC before the first leap second of the list, in seconds.
    first_offset_s: i32,
    updated: Timestamp<Utc>,
    expires: Timestamp<Utc>,
}

impl LeapList {
    /// Parses the text of a list.
    ///
    /// Lines: `#$ N` states the last change and `#@ N` the expiry, in NTP seconds; `#h` the SHA-1
    /// hash over the digits of all other numbers, in their order, as five hexadecimal words; `N T`
    /// the instant from which TAI minus UTC is `T` seconds. Any other text after `#` is a comment.
    pub fn parse(text: &str) -> Result<Self, LeapListError> {
        let mut parser = LeapListParser::default();
        let mut last = 0;
        for (number, line) in (1..).zip(text.lines()) {
            last = number;
            parser.parse_line(line).map_err(|fault| LeapListError { line: number, fault })?;
        }
        if text.len() > LIST_BYTES_MAX {
            return Err(LeapListError { line: last, fault: LeapListErrorKind::TooLong });
        }
        parser.finish().map_err(|(line, fault)| LeapListError { line: line.unwrap_or(last), fault })
    }

    /// Returns the instant of the list's last change.
    #[must_use]
    pub const fn updated(&self) -> Timestamp<Utc> {
        self.updated
    }

    /// Returns the expiry: the instant until which the list is complete.
    #[must_use]
    pub const fn expires(&self) -> Timestamp<Utc> {
        self.expires
    }

    /// Returns the leap seconds in chronological order.
    #[must_use]
    pub fn leaps(&self) -> &[LeapSecond] {
        &self.leaps
    }

    /// Returns TAI minus UTC at `now`, in seconds. `active_leap` is a leap second whose step has
    /// not been made yet on the timescale of `now`, and is not counted.
    #[must_use]
    pub fn tai_minus_utc_s(&self, now: Timestamp<Utc>, active_leap: Option<LeapSecond>) -> i32 {
        let past = self.leaps.iter().filter(|leap| Some(**leap) != active_leap);
        let past = past.filter(|leap| leap.midnight <= now);
        self.first_offset_s - past.map(|leap| (leap.step().as_ns() / NS_PER_S) as i32).sum::<i32>()
    }

    /// Returns the validity of the list at `now`.
    #[must_use]
    pub fn validity(&self, now: Timestamp<Utc>) -> LeapListValidity {
        if now >= self.expires {
            LeapListValidity::Expired
        } else if self.expires - now <= EXPIRY_WARNING_LEAD {
            LeapListValidity::ExpiresSoon
        } else {
            LeapListValidity::Valid
        }
    }
}

/// Parser of a list, with the content so far.
#[derive(Default)]
struct LeapListParser {
    hasher: Sha1,
    updated: Option<Timestamp<Utc>>,
    expires: Option<Timestamp<Utc>>,
    hash: Option<(usize, [u32; 5])>,
    first_offset_s: Option<i32>,
    entry: Option<(Timestamp<Utc>, i32)>,
    leaps: Vec<LeapSecond>,
    lines: usize,
}

impl LeapListParser {
    fn parse_line(&mut self, line: &str) -> Result<(), LeapListErrorKind> {
        self.lines += 1;
        if let Some(rest) = line.strip_prefix("#$") {
            let [seconds] = self.parse_hashed(rest, "the seconds of the last change")?;
            return set_once(&mut self.updated, from_ntp_seconds(seconds)?, "#$");
        }
        if let Some(rest) = line.strip_prefix("#@") {
            let [seconds] = self.parse_hashed(rest, "the seconds of the expiry")?;
            return set_once(&mut self.expires, from_ntp_seconds(seconds)?, "#@");
        }
        if let Some(rest) = line.strip_prefix("#h") {
            let words = parse_numbers(rest, |word| u32::from_str_radix(word, 16).ok());
            let words = words.ok_or(LeapListErrorKind::Numbers("five hexadecimal words"))?;
            return set_once(&mut self.hash, (self.lines, words), "#h");
        }
        let data = line.split('#').next().unwrap_or_default();
        if data.trim_ascii().is_empty() {
            return Ok(());
        }
        let [seconds, tai_minus_utc] = self.parse_hashed(data, "seconds and TAI minus UTC")?;
        self.add_entry(from_ntp_seconds(seconds)?, tai_minus_utc)
    }

    /// Parses the numbers of a part of a line, and adds their digits to the hash.
    fn parse_hashed<const N: usize>(
        &mut self,
        part: &str,
        expected: &'static str,
    ) -> Result<[i64; N], LeapListErrorKind> {
        let parse_digits = |word: &str| {
            let only_digits = word.bytes().all(|byte| byte.is_ascii_digit());
            only_digits.then(|| word.parse().ok()).flatten()
        };
        let found =
            parse_numbers(part, parse_digits).ok_or(LeapListErrorKind::Numbers(expected))?;
        part.split_ascii_whitespace().for_each(|word| self.hasher.update(word));
        Ok(found)
    }

    fn add_entry(
        &mut self,
        midnight: Timestamp<Utc>,
        tai_minus_utc: i64,
    ) -> Result<(), LeapListErrorKind> {
        let Ok(tai_minus_utc) = i32::try_from(tai_minus_utc) else {
            return Err(LeapListErrorKind::Change);
        };
        if midnight.as_ns() % NS_PER_DAY != 0 {
            return Err(LeapListErrorKind::Order);
        }
        if let Some((before, offset_before)) = self.entry {
            let kind = match i64::from(tai_minus_utc) - i64::from(offset_before) {
                1 => LeapKind::Insert,
                -1 => LeapKind::Delete,
                _ => return Err(LeapListErrorKind::Change),
            };
            if midnight <= before {
                return Err(LeapListErrorKind::Order);
            }
            self.leaps.push(LeapSecond { midnight, kind });
        }
        self.first_offset_s.get_or_insert(tai_minus_utc);
        self.entry = Some((midnight, tai_minus_utc));
        Ok(())
    }

    fn finish(self) -> Result<LeapList, (Option<usize>, LeapListErrorKind)> {
        let missing = |what| (None, LeapListErrorKind::Missing(what));
        let (line, words) = self.hash.ok_or(missing("#h"))?;
        let updated = self.updated.ok_or(missing("#$"))?;
        let expires = self.expires.ok_or(missing("#@"))?;
        let first_offset_s = self.first_offset_s.ok_or(missing("seconds TAI-UTC"))?;
        let found = words.map(u32::to_be_bytes);
        if self.hasher.finalize()[..] != *found.as_flattened() {
            return Err((Some(line), LeapListErrorKind::Hash));
        }
        Ok(LeapList { leaps: self.leaps, first_offset_s, updated, expires })
    }
}

fn set_once<T>(
    slot: &mut Option<T>,
    value: T,
    name: &'static str,
) -> Result<(), LeapListErrorKind> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(LeapListErrorKind::Duplicate(name)),
    }
}

/// Parses exactly `N` numbers separated by white space.
fn parse_numbers<T: Copy + Default, const N: usize>(
    text: &str,
    parse_word: impl Fn(&str) -> Option<T>,
) -> Option<[T; N]> {
    let mut words = text.split_ascii_whitespace();
    let mut found = [T::default(); N];
    for slot in &mut found {
        *slot = parse_word(words.next()?)?;
    }
    words.next().is_none().then_some(found)
}

/// Converts seconds since 1900 to an instant. In a list these numbers are not limited to one NTP
/// era.
fn from_ntp_seconds(ntp_seconds: i64) -> Result<Timestamp<Utc>, LeapListErrorKind> {
    ntp_seconds
        .checked_sub(i64::from(UNIX_EPOCH_IN_NTP_SECONDS))
        .and_then(|seconds| seconds.checked_mul(NS_PER_S))
        .map(Timestamp::from_ns)
        .ok_or(LeapListErrorKind::Instant)
}

#[cfg(test)]
#[path = "list_tests.rs"]
pub(crate) mod tests;
