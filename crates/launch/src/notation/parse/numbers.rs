//! Words with digits: times of day, dates, both joined as in RFC 3339, and seconds since 1970.

use jiff::civil::{Date, Time};

use super::{DateWord, NotationError, NotationParser, TimeWord, Zone};

/// Returns true if a word is a date and a time with an offset from UTC, or such an offset.
pub(super) fn has_offset(word: &str) -> bool {
    let Some((before, after)) = word.rsplit_once('+') else { return false };
    let is_instant = before.contains('t') && before.contains(':') && before.contains('-');
    offset_of(after).is_some() && (before == "utc" || is_instant)
}

/// Parses `01:00` or `0100`, in seconds.
fn offset_of(text: &str) -> Option<i32> {
    let digits = text.replacen(':', "", 1);
    if digits.len() != 4 || !is_digits(&digits) {
        return None;
    }
    let (hours, minutes) = (digits[..2].parse::<i32>().ok()?, digits[2..].parse::<i32>().ok()?);
    (hours < 24 && minutes < 60).then_some((hours * 60 + minutes) * 60)
}

/// Parses the number of a day: one or two digits.
pub(super) fn short(word: &str) -> Option<i8> {
    ((1..=2).contains(&word.len()) && is_digits(word)).then(|| word.parse().ok()).flatten()
}

/// Parses a year after a month and a day: four digits.
pub(super) fn year(word: &str) -> Option<i16> {
    (word.len() == 4 && is_digits(word)).then(|| word.parse().ok()).flatten()
}

/// Returns the date if it exists.
pub(super) fn date(year: i16, month: i8, day: i8) -> Result<Date, NotationError> {
    Date::new(year, month, day).map_err(|_| NotationError::Day { year: Some(year), month, day })
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn unknown(word: &str) -> NotationError {
    NotationError::Unknown(word.to_owned())
}

impl NotationParser {
    /// Parses a word that begins with a digit or is the offset of a zone.
    pub(super) fn number(&mut self, word: &str) -> Result<(), NotationError> {
        if let Some(epoch) = word.strip_prefix('@') {
            let ns = epoch_ns(epoch).ok_or_else(|| unknown(word))?;
            return self.set_time(TimeWord::Epoch(ns), word);
        }
        if let Some(offset) = word.strip_prefix("utc") {
            let zone = signed_offset(offset).ok_or_else(|| unknown(word))?;
            return self.set_zone(zone, word);
        }
        if !word.starts_with(|letter: char| letter.is_ascii_digit()) {
            return Err(unknown(word));
        }
        if let Some((day, time)) = word.split_once('t')
            && day.contains('-')
        {
            let day = ymd(day, '-').ok_or_else(|| unknown(word))??;
            self.set_date(DateWord::Date(day), word)?;
            return self.clock(time, word);
        }
        if word.contains(':') {
            return self.clock(word, word);
        }
        if let Some(date) = separated(word) {
            return self.set_date(DateWord::Date(date?), word);
        }
        self.bare(word)
    }

    /// Parses `21:00`, `21:00:30.25`, optionally followed by `am`, `pm`, `z` or an offset.
    fn clock(&mut self, text: &str, word: &str) -> Result<(), NotationError> {
        let end = text.bytes().take_while(|&byte| matches!(byte, b'0'..=b'9' | b':' | b'.'));
        let (clock, rest) = text.split_at(end.count());
        let mut parts = clock.split(':');
        let hour = parts.next().and_then(short).ok_or_else(|| unknown(word))?;
        let minute = parts.next().map_or(Some(0), two).ok_or_else(|| unknown(word))?;
        let (second, ns) = match parts.next() {
            None => (0, 0),
            Some(text) => second_of(text).ok_or_else(|| unknown(word))?,
        };
        if parts.next().is_some() {
            return Err(unknown(word));
        }
        let half = match rest {
            "am" | "pm" => Some(rest.to_owned()),
            "" => self.half_of_day(),
            _ => None,
        };
        match rest {
            "" | "am" | "pm" => {}
            "z" | "utc" => self.set_zone(Zone::Utc, word)?,
            "tai" => self.set_zone(Zone::Tai, word)?,
            offset => {
                let zone = signed_offset(offset).ok_or_else(|| unknown(word))?;
                self.set_zone(zone, word)?;
            }
        }
        let hour = hour_of(hour, half.as_deref(), word)?;
        // End of a UTC hour in any zone: offsets are multiples of a quarter of an hour.
        if second == 60 && minute % 15 == 14 {
            return Err(NotationError::LeapSecond(word.to_owned()));
        }
        let time = Time::new(hour, minute, second, ns);
        self.set_time(TimeWord::Clock(time.map_err(|_| NotationError::Minute(word.into()))?), word)
    }

    /// Parses digits alone, or followed by `am` or `pm`.
    fn bare(&mut self, word: &str) -> Result<(), NotationError> {
        let half = ["am", "pm"].into_iter().find(|half| word.ends_with(half));
        let digits = half.map_or(word, |half| &word[..word.len() - half.len()]);
        if !is_digits(digits) {
            return Err(unknown(word));
        }
        let part = |range: std::ops::Range<usize>| two(&digits[range]).unwrap_or(0);
        match digits.len() {
            1 | 2 => {
                if half.is_none()
                    && let Some(month) = self.peek().and_then(super::month)
                {
                    self.at += 1;
                    return self.month_day(month, part(0..digits.len()), word);
                }
                self.hour_minute(part(0..digits.len()), 0, half, word)
            }
            3 => self.hour_minute(part(0..1), part(1..3), half, word),
            4 => self.hour_minute(part(0..2), part(2..4), half, word),
            6 | 8 if half.is_none() => {
                let (month, day) = (part(0..2), part(2..4));
                let year = year_of(&digits[4..]).ok_or_else(|| unknown(word))?;
                self.set_date(DateWord::Date(date(year, month, day)?), word)
            }
            _ => Err(unknown(word)),
        }
    }

    fn hour_minute(
        &mut self,
        hour: i8,
        minute: i8,
        half: Option<&str>,
        word: &str,
    ) -> Result<(), NotationError> {
        let half = half.map(str::to_owned).or_else(|| self.half_of_day());
        let hour = hour_of(hour, half.as_deref(), word)?;
        let time = Time::new(hour, minute, 0, 0);
        self.set_time(TimeWord::Clock(time.map_err(|_| NotationError::Minute(word.into()))?), word)
    }

    /// Parses `am` or `pm` as a word of its own.
    fn half_of_day(&mut self) -> Option<String> {
        let half = self.peek().filter(|word| matches!(*word, "am" | "pm"))?.to_owned();
        self.at += 1;
        Some(half)
    }
}

fn hour_of(hour: i8, half: Option<&str>, word: &str) -> Result<i8, NotationError> {
    match (hour, half) {
        (0..=23, None) => Ok(hour),
        (1..=12, Some("am")) => Ok(hour % 12),
        (1..=12, Some(_)) => Ok(hour % 12 + 12),
        _ => Err(NotationError::Hour(word.to_owned())),
    }
}

/// Parses one or two digits.
fn two(text: &str) -> Option<i8> {
    short(text)
}

/// Parses `30` or `30.25` into seconds and nanoseconds.
fn second_of(text: &str) -> Option<(i8, i32)> {
    let (second, fraction) = text.split_once('.').unwrap_or((text, "0"));
    Some((two(second)?, i32::try_from(fraction_ns(fraction)?).ok()?))
}

/// Parses up to nine digits after a decimal point.
fn fraction_ns(digits: &str) -> Option<i64> {
    if digits.len() > 9 || !is_digits(digits) {
        return None;
    }
    format!("{digits:0<9}").parse().ok()
}

/// Parses `1700000000`, `-1.5`.
fn epoch_ns(text: &str) -> Option<i64> {
    let (sign, text) = text.strip_prefix('-').map_or((1, text), |text| (-1, text));
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, "0"));
    if !is_digits(seconds) {
        return None;
    }
    let seconds = seconds.parse::<i64>().ok()?.checked_mul(1_000_000_000)?;
    Some(sign * seconds.checked_add(fraction_ns(fraction)?)?)
}

fn signed_offset(text: &str) -> Option<Zone> {
    let (sign, offset) = match text.strip_prefix('-') {
        Some(offset) => (-1, offset),
        None => (1, text.strip_prefix('+')?),
    };
    offset_of(offset).map(|seconds| Zone::Offset(sign * seconds))
}

/// Parses four digits, or two of this century.
fn year_of(text: &str) -> Option<i16> {
    match text.len() {
        2 if is_digits(text) => text.parse::<i16>().ok().map(|year| 2000 + year),
        _ => year(text),
    }
}

/// Parses a date whose parts are separated; `None` if the word is none.
fn separated(word: &str) -> Option<Result<Date, NotationError>> {
    if word.contains('-') {
        return ymd(word, '-');
    }
    if word.contains('/') {
        return ymd(word, '/').or_else(|| {
            let [month, day, year] = three(word, '/')?;
            Some(date(year_of(year)?, two(month)?, two(day)?))
        });
    }
    let [day, month, year] = three(word, '.')?;
    Some(date(year_of(year)?, two(month)?, two(day)?))
}

fn ymd(text: &str, separator: char) -> Option<Result<Date, NotationError>> {
    let [year_text, month, day] = three(text, separator)?;
    Some(date(year(year_text)?, two(month)?, two(day)?))
}

fn three(text: &str, separator: char) -> Option<[&str; 3]> {
    let parts: Vec<_> = text.split(separator).collect();
    parts.try_into().ok()
}
