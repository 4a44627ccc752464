//! Parser of a notation: words, each of which is a time, a day, a zone, or a part of these. Their
//! order is free if it is unambiguous, and no word is read twice.

mod numbers;

use std::str::FromStr;

use jiff::civil::Time;

use super::{
    DaySpec, IncrementUnit, MONTHS, TimeIncrement, TimeNotation, TimeNotationError, TimeOfDaySpec,
    WEEKDAYS, ZoneOrTimescale,
};

impl FromStr for TimeNotation {
    type Err = TimeNotationError;

    fn from_str(text: &str) -> Result<Self, TimeNotationError> {
        let mut parser = TimeNotationParser {
            words: split_words(text),
            next_index: 0,
            ..TimeNotationParser::default()
        };
        while let Some(word) = parser.next() {
            parser.parse_word(&word)?;
        }
        parser.finish()
    }
}

/// Splits the text at white space and commas into words in lower case. A plus sign is a word of its
/// own, except in an offset from UTC; a minus sign is not separated.
fn split_words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    for word in text.to_lowercase().split([' ', '\t', '\n', ',']).filter(|word| !word.is_empty()) {
        if numbers::has_offset(word) {
            words.push(word.to_owned());
            continue;
        }
        for (index, part) in word.split('+').enumerate() {
            if index > 0 {
                words.push("+".to_owned());
            }
            if !part.is_empty() {
                words.push(part.to_owned());
            }
        }
    }
    words
}

#[derive(Default)]
struct TimeNotationParser {
    words: Vec<String>,
    next_index: usize,
    time: Option<TimeOfDaySpec>,
    date: Option<DaySpec>,
    zone: Option<ZoneOrTimescale>,
    increments: Vec<TimeIncrement>,
}

impl TimeNotationParser {
    fn next(&mut self) -> Option<String> {
        let word = self.words.get(self.next_index)?.clone();
        self.next_index += 1;
        Some(word)
    }

    fn peek(&self) -> Option<&str> {
        self.words.get(self.next_index).map(String::as_str)
    }

    fn parse_word(&mut self, word: &str) -> Result<(), TimeNotationError> {
        let clock = |hour| TimeOfDaySpec::Clock(Time::constant(hour, 0, 0, 0));
        match word {
            "now" => self.set_time(TimeOfDaySpec::Now, word),
            "noon" => self.set_time(clock(12), word),
            "midnight" => self.set_time(clock(0), word),
            "teatime" => self.set_time(clock(16), word),
            "today" => self.set_date(DaySpec::Today, word),
            "tomorrow" => self.set_date(DaySpec::Tomorrow, word),
            "z" | "utc" | "gmt" | "zulu" => self.set_zone(ZoneOrTimescale::Utc, word),
            "tai" => self.set_zone(ZoneOrTimescale::Tai, word),
            "local" => self.set_zone(ZoneOrTimescale::Local, word),
            "+" => self.parse_increment(false),
            "-" => self.parse_increment(true),
            "next" => self.parse_next(),
            _ => self.parse_day_or_number(word),
        }
    }

    fn parse_day_or_number(&mut self, word: &str) -> Result<(), TimeNotationError> {
        if let Some(day) = weekday(word) {
            return self.set_date(DaySpec::Weekday { day, next: false }, word);
        }
        if let Some(month) = month_number(word) {
            return self.parse_month(month, word);
        }
        self.parse_number(word)
    }

    /// Parses `next week`, `next monday`.
    fn parse_next(&mut self) -> Result<(), TimeNotationError> {
        let word = self.next().ok_or_else(|| TimeNotationError::Unknown("next".into()))?;
        if let Some(day) = weekday(&word) {
            return self.set_date(DaySpec::Weekday { day, next: true }, &word);
        }
        let unit = increment_unit(&word)
            .ok_or_else(|| TimeNotationError::Unknown(format!("next {word}")))?;
        self.increments.push(TimeIncrement { is_negative: false, amount: 1, unit });
        Ok(())
    }

    /// Parses the text after a sign: `2 min`, `2min`.
    fn parse_increment(&mut self, is_negative: bool) -> Result<(), TimeNotationError> {
        let sign = if is_negative { "-" } else { "+" };
        let word = self.next().ok_or_else(|| TimeNotationError::InvalidIncrement(sign.into()))?;
        let digits = word.bytes().take_while(u8::is_ascii_digit).count();
        let (number, mut name) = (&word[..digits], word[digits..].to_owned());
        let mut increment = format!("{sign} {word}");
        if name.is_empty() {
            name = self
                .next()
                .ok_or_else(|| TimeNotationError::InvalidIncrement(increment.clone()))?;
            increment = format!("{increment} {name}");
        }
        let amount =
            number.parse().map_err(|_| TimeNotationError::InvalidIncrement(increment.clone()))?;
        let unit = increment_unit(&name).ok_or(TimeNotationError::InvalidIncrement(increment))?;
        self.increments.push(TimeIncrement { is_negative, amount, unit });
        Ok(())
    }

    /// Parses `oct 22`, `oct 22 2018`.
    fn parse_month(&mut self, month: i8, word: &str) -> Result<(), TimeNotationError> {
        let day = self.peek().and_then(numbers::short_number);
        let day = day.ok_or_else(|| TimeNotationError::MonthWithoutDay(word.into()))?;
        self.next_index += 1;
        self.set_month_day(month, day, word)
    }

    /// Sets the day of a month, with the year if one follows.
    fn set_month_day(&mut self, month: i8, day: i8, word: &str) -> Result<(), TimeNotationError> {
        let year = self.peek().and_then(numbers::parse_year);
        let Some(year) = year else {
            // Checked against a leap year: the actual year is determined later.
            numbers::existing_date(2000, month, day).map_err(|_| TimeNotationError::NoSuchDay {
                year: None,
                month,
                day,
            })?;
            return self.set_date(DaySpec::MonthDay { month, day }, word);
        };
        self.next_index += 1;
        self.set_date(DaySpec::Date(numbers::existing_date(year, month, day)?), word)
    }

    fn set_time(&mut self, time: TimeOfDaySpec, word: &str) -> Result<(), TimeNotationError> {
        set_once(&mut self.time, time, "time", word)
    }

    fn set_date(&mut self, date: DaySpec, word: &str) -> Result<(), TimeNotationError> {
        set_once(&mut self.date, date, "day", word)
    }

    fn set_zone(&mut self, zone: ZoneOrTimescale, word: &str) -> Result<(), TimeNotationError> {
        set_once(&mut self.zone, zone, "zone", word)
    }

    fn finish(self) -> Result<TimeNotation, TimeNotationError> {
        let Self { words, time, date, zone, increments, .. } = self;
        if words.is_empty() {
            return Err(TimeNotationError::Empty);
        }
        if let Some(TimeOfDaySpec::Epoch(_)) = time
            && (date.is_some()
                || zone.is_some_and(|zone| {
                    !matches!(zone, ZoneOrTimescale::Utc | ZoneOrTimescale::Tai)
                }))
        {
            return Err(TimeNotationError::CompleteInstant(words.join(" ")));
        }
        Ok(TimeNotation { time: time.unwrap_or(TimeOfDaySpec::Now), date, zone, increments })
    }
}

fn set_once<T>(
    field: &mut Option<T>,
    value: T,
    what: &'static str,
    word: &str,
) -> Result<(), TimeNotationError> {
    if field.replace(value).is_some() {
        return Err(TimeNotationError::Repeated { what, word: word.to_owned() });
    }
    Ok(())
}

/// Returns true if the word is the name or its first three letters.
fn is_name_or_abbreviation(word: &str, name: &str) -> bool {
    word == name || (word.len() == 3 && name.starts_with(word))
}

fn weekday(word: &str) -> Option<jiff::civil::Weekday> {
    WEEKDAYS.iter().find(|(name, _)| is_name_or_abbreviation(word, name)).map(|(_, day)| *day)
}

fn month_number(word: &str) -> Option<i8> {
    let index = MONTHS.iter().position(|name| is_name_or_abbreviation(word, name))?;
    i8::try_from(index + 1).ok()
}

fn increment_unit(word: &str) -> Option<IncrementUnit> {
    IncrementUnit::ALL.into_iter().find(|unit| unit.names().contains(&word))
}
