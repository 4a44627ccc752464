//! The list `leap-seconds.list` published by the IERS and copied by NIST and the IETF: past and
//! coming leap seconds, its expiry, and a hash that detects damage. It is rejected as a whole if
//! any part is invalid; nothing is guessed or repaired.

use sha1::{Digest, Sha1};

use super::{LeapKind, LeapSecond, NS_PER_DAY};
use crate::{NS_PER_S, Span, Timestamp, UNIX_EPOCH_IN_NTP_SECONDS, Utc};

/// Maximum length of a list: the real one has some 5,000 bytes.
pub const LIST_BYTES_MAX: usize = 1 << 16;
/// Time before expiry from which it is near. The IERS publishes every half year, and the list
/// expires half a year later still.
const EXPIRY_IS_NEAR: Span = Span::from_ns(28 * NS_PER_DAY);

/// Reason for which a text is not a list of leap seconds.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}: {fault}")]
pub struct ListError {
    /// Line, counted from 1; the last one if something is missing.
    pub line: usize,
    /// Error in that line.
    pub fault: ListFault,
}

/// Error in a line of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ListFault {
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
    /// Leap second that is not at the end of a day, or not after the previous one.
    #[error("leap seconds must be at the end of a day, in order; download the list again")]
    Order,
    /// Change by more than one second, or by none.
    #[error("TAI minus UTC changes by one second at a time; download the list again")]
    Change,
    /// Duplicate of a line that may occur once.
    #[error("a second line '{0}'; download the list again")]
    Twice(&'static str),
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

/// Validity of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LeapListValidity {
    /// Complete for the present.
    Valid,
    /// Complete for the present, but expiring within 28 days.
    ExpiresSoon,
    /// Expired: a leap second unknown to the list may have been decided. It is correct for the
    /// past.
    Expired,
}

/// List of leap seconds with a verified hash.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeapList {
    leaps: Vec<LeapSecond>,
    /// TAI minus UTC before the first leap second, in seconds.
    first_offset_s: i32,
    updated: Timestamp<Utc>,
    expires: Timestamp<Utc>,
}

impl LeapList {
    /// Parses the text of a list.
    ///
    /// Its lines: `#$ N` with its last change and `#@ N` with its expiry, in seconds of NTP; `#h`
    /// with the SHA-1 hash, five hexadecimal words, over the digits of all other numbers in their
    /// order; `N T` with the instant from which TAI minus UTC is `T` seconds. Any other text after
    /// a `#` is a comment.
    pub fn parse(text: &str) -> Result<Self, ListError> {
        let mut reader = LeapListParser::default();
        let mut last = 0;
        for (number, line) in (1..).zip(text.lines()) {
            last = number;
            reader.line(line).map_err(|fault| ListError { line: number, fault })?;
        }
        if text.len() > LIST_BYTES_MAX {
            return Err(ListError { line: last, fault: ListFault::TooLong });
        }
        reader.finish().map_err(|(line, fault)| ListError { line: line.unwrap_or(last), fault })
    }

    /// Returns the instant of its last change.
    #[must_use]
    pub const fn updated(&self) -> Timestamp<Utc> {
        self.updated
    }

    /// Returns the instant until which it is complete.
    #[must_use]
    pub const fn expires(&self) -> Timestamp<Utc> {
        self.expires
    }

    /// Returns the leap seconds in chronological order.
    #[must_use]
    pub fn leaps(&self) -> &[LeapSecond] {
        &self.leaps
    }

    /// Returns TAI minus UTC after the leaps up to `now`, in seconds. `passing` is a leap whose
    /// step has not been made yet on the scale of `now`, and so does not count.
    #[must_use]
    pub fn tai_minus_utc_s(&self, now: Timestamp<Utc>, passing: Option<LeapSecond>) -> i32 {
        let past = self.leaps.iter().filter(|leap| Some(**leap) != passing);
        let past = past.filter(|leap| leap.midnight <= now);
        self.first_offset_s - past.map(|leap| (leap.step().as_ns() / NS_PER_S) as i32).sum::<i32>()
    }

    /// Returns its validity at `now`.
    #[must_use]
    pub fn validity(&self, now: Timestamp<Utc>) -> LeapListValidity {
        if now >= self.expires {
            LeapListValidity::Expired
        } else if self.expires - now <= EXPIRY_IS_NEAR {
            LeapListValidity::ExpiresSoon
        } else {
            LeapListValidity::Valid
        }
    }
}

/// Content parsed so far.
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
    fn line(&mut self, line: &str) -> Result<(), ListFault> {
        self.lines += 1;
        if let Some(rest) = line.strip_prefix("#$") {
            let [seconds] = self.hashed(rest, "the seconds of the last change")?;
            return set(&mut self.updated, instant(seconds)?, "#$");
        }
        if let Some(rest) = line.strip_prefix("#@") {
            let [seconds] = self.hashed(rest, "the seconds of the expiry")?;
            return set(&mut self.expires, instant(seconds)?, "#@");
        }
        if let Some(rest) = line.strip_prefix("#h") {
            let words = numbers(rest, |word| u32::from_str_radix(word, 16).ok());
            let words = words.ok_or(ListFault::Numbers("five hexadecimal words"))?;
            return set(&mut self.hash, (self.lines, words), "#h");
        }
        let data = line.split('#').next().unwrap_or_default();
        if data.trim_ascii().is_empty() {
            return Ok(());
        }
        let [seconds, tai_minus_utc] = self.hashed(data, "seconds and TAI minus UTC")?;
        self.entry(instant(seconds)?, tai_minus_utc)
    }

    /// Parses the numbers of a part of a line, and adds their digits to the hash.
    fn hashed<const N: usize>(
        &mut self,
        part: &str,
        expected: &'static str,
    ) -> Result<[i64; N], ListFault> {
        let read = |word: &str| {
            let only_digits = word.bytes().all(|byte| byte.is_ascii_digit());
            only_digits.then(|| word.parse().ok()).flatten()
        };
        let found = numbers(part, read).ok_or(ListFault::Numbers(expected))?;
        part.split_ascii_whitespace().for_each(|word| self.hasher.update(word));
        Ok(found)
    }

    fn entry(&mut self, midnight: Timestamp<Utc>, tai_minus_utc: i64) -> Result<(), ListFault> {
        let Ok(tai_minus_utc) = i32::try_from(tai_minus_utc) else {
            return Err(ListFault::Change);
        };
        if midnight.as_ns() % NS_PER_DAY != 0 {
            return Err(ListFault::Order);
        }
        if let Some((before, offset_before)) = self.entry {
            let kind = match i64::from(tai_minus_utc) - i64::from(offset_before) {
                1 => LeapKind::Insert,
                -1 => LeapKind::Delete,
                _ => return Err(ListFault::Change),
            };
            if midnight <= before {
                return Err(ListFault::Order);
            }
            self.leaps.push(LeapSecond { midnight, kind });
        }
        self.first_offset_s.get_or_insert(tai_minus_utc);
        self.entry = Some((midnight, tai_minus_utc));
        Ok(())
    }

    fn finish(self) -> Result<LeapList, (Option<usize>, ListFault)> {
        let missing = |what| (None, ListFault::Missing(what));
        let (line, words) = self.hash.ok_or(missing("#h"))?;
        let updated = self.updated.ok_or(missing("#$"))?;
        let expires = self.expires.ok_or(missing("#@"))?;
        let first_offset_s = self.first_offset_s.ok_or(missing("seconds TAI-UTC"))?;
        let found = words.map(u32::to_be_bytes);
        if self.hasher.finalize()[..] != *found.as_flattened() {
            return Err((Some(line), ListFault::Hash));
        }
        Ok(LeapList { leaps: self.leaps, first_offset_s, updated, expires })
    }
}

fn set<T>(slot: &mut Option<T>, value: T, name: &'static str) -> Result<(), ListFault> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(ListFault::Twice(name)),
    }
}

/// Parses exactly `N` numbers separated by white space.
fn numbers<T: Copy + Default, const N: usize>(
    text: &str,
    read: impl Fn(&str) -> Option<T>,
) -> Option<[T; N]> {
    let mut words = text.split_ascii_whitespace();
    let mut found = [T::default(); N];
    for slot in &mut found {
        *slot = read(words.next()?)?;
    }
    words.next().is_none().then_some(found)
}

/// Returns the instant of a number of seconds since 1900; no era wraps in a list.
fn instant(ntp_seconds: i64) -> Result<Timestamp<Utc>, ListFault> {
    ntp_seconds
        .checked_sub(i64::from(UNIX_EPOCH_IN_NTP_SECONDS))
        .and_then(|seconds| seconds.checked_mul(NS_PER_S))
        .map(Timestamp::from_ns)
        .ok_or(ListFault::Instant)
}

#[cfg(test)]
#[path = "list_tests.rs"]
pub(crate) mod tests;
