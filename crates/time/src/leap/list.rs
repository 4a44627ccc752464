//! The list `leap-seconds.list` that the IERS publishes, and NIST and the IETF copy: which leap
//! seconds there were and will be, until when that is known, and a hash by which damage is found.
//! It is refused as a whole when any of it cannot be right; nothing is guessed or mended.

use sha1::{Digest, Sha1};

use super::{Leap, LeapKind, NS_PER_DAY};
use crate::{NS_PER_S, Span, Timestamp, UNIX_EPOCH_IN_NTP_SECONDS, Utc};

/// A longer text is no list of leap seconds: the real one has some 5,000 bytes.
pub const LIST_BYTES_MAX: usize = 1 << 16;
/// The IERS publishes every half year, and the list expires half a year later still.
const EXPIRY_IS_NEAR: Span = Span::from_ns(28 * NS_PER_DAY);

/// Why a text is not a list of leap seconds.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}: {fault}")]
pub struct ListError {
    /// The line, counted from 1; the last one where something is missing.
    pub line: usize,
    /// What is wrong there.
    pub fault: ListFault,
}

/// What is wrong with a line of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ListFault {
    /// The text is longer than any list.
    #[error("the text goes on past {LIST_BYTES_MAX} bytes, so it is no list of leap seconds")]
    TooLong,
    /// A number is not one, or there are more or fewer than the line has.
    #[error(
        "{0} expected; get the list anew, for example from https://data.iana.org/time-zones/data/leap-seconds.list"
    )]
    Numbers(&'static str),
    /// An instant outside of the years 1900 to 2262.
    #[error("an instant out of reach; get the list anew")]
    Instant,
    /// A leap second that does not come at the end of a day, or not after the one before.
    #[error("leap seconds come at the end of a day, in their order; get the list anew")]
    Order,
    /// More than one second at once, or none.
    #[error("TAI minus UTC changes by one second at a time; get the list anew")]
    Change,
    /// A line that may stand there once stands there twice.
    #[error("a second line '{0}'; get the list anew")]
    Twice(&'static str),
    /// A line that has to be there is not.
    #[error("the list ends without a line '{0}'; get the list anew")]
    Missing(&'static str),
    /// The hash is not that of the data.
    #[error("the hash does not fit the data, so the list was damaged or changed; get it anew")]
    Hash,
}

/// How far a list can be relied on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Validity {
    /// It says all that is to come for now.
    Valid,
    /// The same, but it expires within 28 days.
    ExpiresSoon,
    /// A leap second may have been decided of which it knows nothing. It is right of what was.
    Expired,
}

/// A list of leap seconds whose hash was found right.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeapList {
    leaps: Vec<Leap>,
    /// TAI minus UTC before the first of them, in seconds.
    first_offset_s: i32,
    updated: Timestamp<Utc>,
    expires: Timestamp<Utc>,
}

impl LeapList {
    /// Reads the text of a list.
    ///
    /// Its lines: `#$ N` when it was last changed and `#@ N` until when it holds, in seconds of
    /// NTP; `#h` with the SHA-1 hash, five hexadecimal words, over the digits of all other numbers
    /// in their order; `N T` the instant from which TAI minus UTC is `T` seconds. What follows a
    /// `#` otherwise is a comment.
    pub fn parse(text: &str) -> Result<Self, ListError> {
        let mut reader = Reader::default();
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

    /// When it was last changed.
    #[must_use]
    pub const fn updated(&self) -> Timestamp<Utc> {
        self.updated
    }

    /// Until when it says all that is to come.
    #[must_use]
    pub const fn expires(&self) -> Timestamp<Utc> {
        self.expires
    }

    /// The leap seconds, in their order.
    #[must_use]
    pub fn leaps(&self) -> &[Leap] {
        &self.leaps
    }

    /// TAI minus UTC after the leaps up to `now`, in seconds. `passing` is a leap whose step is not
    /// made yet on the scale of `now`, and so does not count.
    #[must_use]
    pub fn tai_minus_utc_s(&self, now: Timestamp<Utc>, passing: Option<Leap>) -> i32 {
        let past = self.leaps.iter().filter(|leap| Some(**leap) != passing);
        let past = past.filter(|leap| leap.midnight <= now);
        self.first_offset_s - past.map(|leap| (leap.step().as_ns() / NS_PER_S) as i32).sum::<i32>()
    }

    /// How far it can be relied on at `now`.
    #[must_use]
    pub fn validity(&self, now: Timestamp<Utc>) -> Validity {
        if now >= self.expires {
            Validity::Expired
        } else if self.expires - now <= EXPIRY_IS_NEAR {
            Validity::ExpiresSoon
        } else {
            Validity::Valid
        }
    }
}

/// What was read so far.
#[derive(Default)]
struct Reader {
    hasher: Sha1,
    updated: Option<Timestamp<Utc>>,
    expires: Option<Timestamp<Utc>>,
    hash: Option<(usize, [u32; 5])>,
    first_offset_s: Option<i32>,
    entry: Option<(Timestamp<Utc>, i32)>,
    leaps: Vec<Leap>,
    lines: usize,
}

impl Reader {
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

    /// Reads the numbers of a part of a line, and counts their digits into the hash.
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
            self.leaps.push(Leap { midnight, kind });
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

fn set<T>(place: &mut Option<T>, value: T, name: &'static str) -> Result<(), ListFault> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(ListFault::Twice(name)),
    }
}

/// Exactly `N` numbers with white space between them.
fn numbers<T: Copy + Default, const N: usize>(
    text: &str,
    read: impl Fn(&str) -> Option<T>,
) -> Option<[T; N]> {
    let mut words = text.split_ascii_whitespace();
    let mut found = [T::default(); N];
    for place in &mut found {
        *place = read(words.next()?)?;
    }
    words.next().is_none().then_some(found)
}

/// The instant that so many seconds since 1900 stand for; no era wraps in a list.
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
