//! Parser of a notation: words, each of which is a time, a day, a zone, or a part of these. Their
//! order is free if it is unambiguous, and no word is read twice.

mod numbers;

use std::str::FromStr;

use jiff::civil::Time;

use super::{
    DateWord, MONTHS, Notation, NotationError, Shift, ShiftUnit, TimeWord, WEEKDAYS, Zone,
};

impl FromStr for Notation {
    type Err = NotationError;

    fn from_str(text: &str) -> Result<Self, NotationError> {
        let mut reader = NotationParser { words: words(text), at: 0, ..NotationParser::default() };
        while let Some(word) = reader.next() {
            reader.word(&word)?;
        }
        reader.finish()
    }
}

/// Splits the text into words in lower case. A sign is a word of its own, except in an offset from
/// UTC.
fn words(text: &str) -> Vec<String> {
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
struct NotationParser {
    words: Vec<String>,
    at: usize,
    time: Option<TimeWord>,
    date: Option<DateWord>,
    zone: Option<Zone>,
    shifts: Vec<Shift>,
}

impl NotationParser {
    fn next(&mut self) -> Option<String> {
        let word = self.words.get(self.at)?.clone();
        self.at += 1;
        Some(word)
    }

    fn peek(&self) -> Option<&str> {
        self.words.get(self.at).map(String::as_str)
    }

    fn word(&mut self, word: &str) -> Result<(), NotationError> {
        let clock = |hour| TimeWord::Clock(Time::constant(hour, 0, 0, 0));
        match word {
            "now" => self.set_time(TimeWord::Now, word),
            "noon" => self.set_time(clock(12), word),
            "midnight" => self.set_time(clock(0), word),
            "teatime" => self.set_time(clock(16), word),
            "today" => self.set_date(DateWord::Today, word),
            "tomorrow" => self.set_date(DateWord::Tomorrow, word),
            "z" | "utc" | "gmt" | "zulu" => self.set_zone(Zone::Utc, word),
            "tai" => self.set_zone(Zone::Tai, word),
            "local" => self.set_zone(Zone::Local, word),
            "+" => self.shift(false),
            "-" => self.shift(true),
            "next" => self.following(),
            _ => self.other(word),
        }
    }

    fn other(&mut self, word: &str) -> Result<(), NotationError> {
        if let Some(day) = weekday(word) {
            return self.set_date(DateWord::Weekday { day, next: false }, word);
        }
        if let Some(month) = month(word) {
            return self.month(month, word);
        }
        self.number(word)
    }

    /// Parses `next week`, `next monday`.
    fn following(&mut self) -> Result<(), NotationError> {
        let word = self.next().ok_or_else(|| NotationError::Unknown("next".into()))?;
        if let Some(day) = weekday(&word) {
            return self.set_date(DateWord::Weekday { day, next: true }, &word);
        }
        let unit = unit(&word).ok_or_else(|| NotationError::Unknown(format!("next {word}")))?;
        self.shifts.push(Shift { back: false, amount: 1, unit });
        Ok(())
    }

    /// Parses the text after a sign: `2 min`, `2min`.
    fn shift(&mut self, back: bool) -> Result<(), NotationError> {
        let sign = if back { "-" } else { "+" };
        let word = self.next().ok_or_else(|| NotationError::Amount(sign.into()))?;
        let digits = word.bytes().take_while(u8::is_ascii_digit).count();
        let (number, mut name) = (&word[..digits], word[digits..].to_owned());
        let mut increment = format!("{sign} {word}");
        if name.is_empty() {
            name = self.next().ok_or_else(|| NotationError::Amount(increment.clone()))?;
            increment = format!("{increment} {name}");
        }
        let amount = number.parse().map_err(|_| NotationError::Amount(increment.clone()))?;
        let unit = unit(&name).ok_or(NotationError::Amount(increment))?;
        self.shifts.push(Shift { back, amount, unit });
        Ok(())
    }

    /// Parses `oct 22`, `oct 22 2018`.
    fn month(&mut self, month: i8, word: &str) -> Result<(), NotationError> {
        let day = self.peek().and_then(numbers::short);
        let day = day.ok_or_else(|| NotationError::MonthAlone(word.into()))?;
        self.at += 1;
        self.month_day(month, day, word)
    }

    /// Parses the year, if one follows.
    fn month_day(&mut self, month: i8, day: i8, word: &str) -> Result<(), NotationError> {
        let year = self.peek().and_then(numbers::year);
        let Some(year) = year else {
            // Checked against a leap year: the actual year is determined later.
            numbers::date(2000, month, day).map_err(|_| NotationError::Day {
                year: None,
                month,
                day,
            })?;
            return self.set_date(DateWord::MonthDay { month, day }, word);
        };
        self.at += 1;
        self.set_date(DateWord::Date(numbers::date(year, month, day)?), word)
    }

    fn set_time(&mut self, time: TimeWord, word: &str) -> Result<(), NotationError> {
        set(&mut self.time, time, "time", word)
    }

    fn set_date(&mut self, date: DateWord, word: &str) -> Result<(), NotationError> {
        set(&mut self.date, date, "day", word)
    }

    fn set_zone(&mut self, zone: Zone, word: &str) -> Result<(), NotationError> {
        set(&mut self.zone, zone, "zone", word)
    }

    fn finish(self) -> Result<Notation, NotationError> {
        let Self { words, time, date, zone, shifts, .. } = self;
        if words.is_empty() {
            return Err(NotationError::Empty);
        }
        if let Some(TimeWord::Epoch(_)) = time
            && (date.is_some() || zone.is_some_and(|zone| !matches!(zone, Zone::Utc | Zone::Tai)))
        {
            return Err(NotationError::Whole(words.join(" ")));
        }
        Ok(Notation { time: time.unwrap_or(TimeWord::Now), date, zone, shifts })
    }
}

fn set<T>(
    field: &mut Option<T>,
    value: T,
    what: &'static str,
    word: &str,
) -> Result<(), NotationError> {
    if field.replace(value).is_some() {
        return Err(NotationError::Twice { what, word: word.to_owned() });
    }
    Ok(())
}

/// Returns true if the word is the name or its first three letters.
fn is_name(word: &str, name: &str) -> bool {
    word == name || (word.len() == 3 && name.starts_with(word))
}

fn weekday(word: &str) -> Option<jiff::civil::Weekday> {
    WEEKDAYS.iter().find(|(name, _)| is_name(word, name)).map(|(_, day)| *day)
}

fn month(word: &str) -> Option<i8> {
    let index = MONTHS.iter().position(|name| is_name(word, name))?;
    i8::try_from(index + 1).ok()
}

fn unit(word: &str) -> Option<ShiftUnit> {
    ShiftUnit::ALL.into_iter().find(|unit| unit.names().contains(&word))
}
