//! Words with digits: times of day, dates, combined dates and times as in RFC 3339, offsets from
//! UTC, and seconds since 1970.

use jiff::civil::{Date, Time};

use super::{DaySpec, TimeNotationError, TimeNotationParser, TimeOfDaySpec, ZoneOrTimescale};

/// Returns true if a word ends in a positive offset from UTC, after a date and time or `utc`.
pub(super) fn has_offset(word: &str) -> bool {
    let Some((before, after)) = word.rsplit_once('+') else { return false };
    let is_instant = before.contains('t') && before.contains(':') && before.contains('-');
    parse_offset(after).is_some() && (before == "utc" || is_instant)
}

/// Parses an offset such as `01:00` or `0100` into seconds.
fn parse_offset(text: &str) -> Option<i32> {
    let digits = text.replacen(':', "", 1);
    if digits.len() != 4 || !is_digits(&digits) {
        return None;
    }
    let (hours, minutes) = (digits[..2].parse::<i32>().ok()?, digits[2..].parse::<i32>().ok()?);
    (hours < 24 && minutes < 60).then_some((hours * 60 + minutes) * 60)
}

/// Parses a number of one or two digits.
pub(super) fn short_number(word: &str) -> Option<i8> {
    ((1..=2).contains(&word.len()) && is_digits(word)).then(|| word.parse().ok()).flatten()
}

/// Parses a year after a month and a day: four digits.
pub(super) fn parse_year(word: &str) -> Option<i16> {
    (word.len() == 4 && is_digits(word)).then(|| word.parse().ok()).flatten()
}

/// Returns the date if it exists.
pub(super) fn existing_date(year: i16, month: i8, day: i8) -> Result<Date, TimeNotationError> {
    Date::new(year, month, day).map_err(|_| TimeNotationError::NoSuchDay {
        year: Some(year),
        month,
        day,
    })
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn unknown_word(word: &str) -> TimeNotationError {
    TimeNotationError::Unknown(word.to_owned())
}

impl TimeNotationParser {
    /// Parses a word that begins with a digit, `@` or `utc`.
    pub(super) fn parse_number(&mut self, word: &str) -> Result<(), TimeNotationError> {
        if let Some(epoch) = word.strip_prefix('@') {
            let ns = parse_epoch_ns(epoch).ok_or_else(|| unknown_word(word))?;
            return self.set_time(TimeOfDaySpec::Epoch(ns), word);
        }
        if let Some(offset) = word.strip_prefix("utc") {
            let zone = parse_signed_offset(offset).ok_or_else(|| unknown_word(word))?;
            return self.set_zone(zone, word);
        }
        if !word.starts_with(|letter: char| letter.is_ascii_digit()) {
            return Err(unknown_word(word));
        }
        if let Some((day, time)) = word.split_once('t')
            && day.contains('-')
        {
            let day = year_month_day(day, '-').ok_or_else(|| unknown_word(word))??;
            self.set_date(DaySpec::Date(day), word)?;
            return self.parse_clock(time, word);
        }
        if word.contains(':') {
            return self.parse_clock(word, word);
        }
        if let Some(date) = delimited_date(word) {
            return self.set_date(DaySpec::Date(date?), word);
        }
        self.parse_digits(word)
    }

    /// Parses and sets a time such as `21:00` or `21:00:30.25`, optionally followed by `am`, `pm`,
    /// `z`, `utc`, `tai` or an offset. `word` is the whole word, for errors.
    fn parse_clock(&mut self, text: &str, word: &str) -> Result<(), TimeNotationError> {
        let clock_bytes =
            text.bytes().take_while(|&byte| matches!(byte, b'0'..=b'9' | b':' | b'.'));
        let (clock, rest) = text.split_at(clock_bytes.count());
        let mut parts = clock.split(':');
        let hour = parts.next().and_then(short_number).ok_or_else(|| unknown_word(word))?;
        let minute =
            parts.next().map_or(Some(0), one_or_two_digits).ok_or_else(|| unknown_word(word))?;
        let (second, ns) = match parts.next() {
            None => (0, 0),
            Some(text) => parse_seconds(text).ok_or_else(|| unknown_word(word))?,
        };
        if parts.next().is_some() {
            return Err(unknown_word(word));
        }
        let meridiem = match rest {
            "am" | "pm" => Some(rest.to_owned()),
            "" => self.take_meridiem(),
            _ => None,
        };
        match rest {
            "" | "am" | "pm" => {}
            "z" | "utc" => self.set_zone(ZoneOrTimescale::Utc, word)?,
            "tai" => self.set_zone(ZoneOrTimescale::Tai, word)?,
            offset => {
                let zone = parse_signed_offset(offset).ok_or_else(|| unknown_word(word))?;
                self.set_zone(zone, word)?;
            }
        }
        let hour = hour_of_day(hour, meridiem.as_deref(), word)?;
        // A leap second ends a UTC hour; in zones with quarter-hour offsets that is minute 14, 29,
        // 44 or 59.
        if second == 60 && minute % 15 == 14 {
            return Err(TimeNotationError::LeapSecond(word.to_owned()));
        }
        let time = Time::new(hour, minute, second, ns);
        self.set_time(
            TimeOfDaySpec::Clock(time.map_err(|_| TimeNotationError::InvalidMinute(word.into()))?),
            word,
        )
    }

    /// Parses digits: a time of one to four digits, optionally with `am` or `pm`; a day before a
    /// month name; or a date `MMDDYY` or `MMDDYYYY`.
    fn parse_digits(&mut self, word: &str) -> Result<(), TimeNotationError> {
        let meridiem = ["am", "pm"].into_iter().find(|half| word.ends_with(half));
        let digits = meridiem.map_or(word, |half| &word[..word.len() - half.len()]);
        if !is_digits(digits) {
            return Err(unknown_word(word));
        }
        let part = |range: std::ops::Range<usize>| one_or_two_digits(&digits[range]).unwrap_or(0);
        match digits.len() {
            1 | 2 => {
                if meridiem.is_none()
                    && let Some(month) = self.peek().and_then(super::month_number)
                {
                    self.next_index += 1;
                    return self.set_month_day(month, part(0..digits.len()), word);
                }
                self.set_hour_minute(part(0..digits.len()), 0, meridiem, word)
            }
            3 => self.set_hour_minute(part(0..1), part(1..3), meridiem, word),
            4 => self.set_hour_minute(part(0..2), part(2..4), meridiem, word),
            6 | 8 if meridiem.is_none() => {
                let (month, day) = (part(0..2), part(2..4));
                let year = parse_short_year(&digits[4..]).ok_or_else(|| unknown_word(word))?;
                self.set_date(DaySpec::Date(existing_date(year, month, day)?), word)
            }
            _ => Err(unknown_word(word)),
        }
    }

    fn set_hour_minute(
        &mut self,
        hour: i8,
        minute: i8,
        meridiem: Option<&str>,
        word: &str,
    ) -> Result<(), TimeNotationError> {
        let meridiem = meridiem.map(str::to_owned).or_else(|| self.take_meridiem());
        let hour = hour_of_day(hour, meridiem.as_deref(), word)?;
        let time = Time::new(hour, minute, 0, 0);
        self.set_time(
            TimeOfDaySpec::Clock(time.map_err(|_| TimeNotationError::InvalidMinute(word.into()))?),
            word,
        )
    }

    /// Consumes the next word if it is `am` or `pm`.
    fn take_meridiem(&mut self) -> Option<String> {
        let meridiem = self.peek().filter(|word| matches!(*word, "am" | "pm"))?.to_owned();
        self.next_index += 1;
        Some(meridiem)
    }
}

fn hour_of_day(hour: i8, meridiem: Option<&str>, word: &str) -> Result<i8, TimeNotationError> {
    match (hour, meridiem) {
        (0..=23, None) => Ok(hour),
        (1..=12, Some("am")) => Ok(hour % 12),
        (1..=12, Some(_)) => Ok(hour % 12 + 12),
        _ => Err(TimeNotationError::InvalidHour(word.to_owned())),
    }
}

/// Parses one or two digits.
fn one_or_two_digits(text: &str) -> Option<i8> {
    short_number(text)
}

/// Parses `30` or `30.25` into seconds and nanoseconds.
fn parse_seconds(text: &str) -> Option<(i8, i32)> {
    let (second, fraction) = text.split_once('.').unwrap_or((text, "0"));
    Some((one_or_two_digits(second)?, i32::try_from(parse_fraction_ns(fraction)?).ok()?))
}

/// Parses up to nine digits after a decimal point of seconds, into nanoseconds.
fn parse_fraction_ns(digits: &str) -> Option<i64> {
    if digits.len() > 9 || !is_digits(digits) {
        return None;
    }
    format!("{digits:0<9}").parse().ok()
}

/// Parses seconds since 1970, such as `1700000000` or `-1.5`, into nanoseconds.
fn parse_epoch_ns(text: &str) -> Option<i64> {
    let (sign, text) = text.strip_prefix('-').map_or((1, text), |text| (-1, text));
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, "0"));
    if !is_digits(seconds) {
        return None;
    }
    let seconds = seconds.parse::<i64>().ok()?.checked_mul(1_000_000_000)?;
    Some(sign * seconds.checked_add(parse_fraction_ns(fraction)?)?)
}

fn parse_signed_offset(text: &str) -> Option<ZoneOrTimescale> {
    let (sign, offset) = match text.strip_prefix('-') {
        Some(offset) => (-1, offset),
        None => (1, text.strip_prefix('+')?),
    };
    parse_offset(offset).map(|seconds| ZoneOrTimescale::Offset(sign * seconds))
}

/// Parses four digits, or two of this century.
fn parse_short_year(text: &str) -> Option<i16> {
    match text.len() {
        2 if is_digits(text) => text.parse::<i16>().ok().map(|year| 2000 + year),
        _ => parse_year(text),
    }
}

/// Parses `YYYY-MM-DD`, `YYYY/MM/DD`, `MM/DD/YYYY` or `DD.MM.YYYY`, the last two also with two
/// digits for the year; `None` if the word does not have that form.
fn delimited_date(word: &str) -> Option<Result<Date, TimeNotationError>> {
    if word.contains('-') {
        return year_month_day(word, '-');
    }
    if word.contains('/') {
        return year_month_day(word, '/').or_else(|| {
            let [month, day, year] = three_parts(word, '/')?;
            Some(existing_date(
                parse_short_year(year)?,
                one_or_two_digits(month)?,
                one_or_two_digits(day)?,
            ))
        });
    }
    let [day, month, year] = three_parts(word, '.')?;
    Some(existing_date(parse_short_year(year)?, one_or_two_digits(month)?, one_or_two_digits(day)?))
}

fn year_month_day(text: &str, separator: char) -> Option<Result<Date, TimeNotationError>> {
    let [year_text, month, day] = three_parts(text, separator)?;
    Some(existing_date(parse_year(year_text)?, one_or_two_digits(month)?, one_or_two_digits(day)?))
}

fn three_parts(text: &str, separator: char) -> Option<[&str; 3]> {
    let parts: Vec<_> = text.split(separator).collect();
    parts.try_into().ok()
}
