//! Time in the sentences RMC and ZDA of any talker (IEC 61162-1, NMEA 0183). Time of day and date
//! are required, and in RMC status and mode. Other fields may be missing or malformed, since
//! receivers and versions of the standard differ in them. Pure.

use horolog_time::leap::Date;
use horolog_time::{NS_PER_S, Span, Timestamp, Utc};

/// Two-digit years from here on are of the 20th century: GPS time begins in 1980.
const CENTURY_PIVOT: i64 = 80;
/// Digits of a fraction that are read: those down to a nanosecond.
const FRACTION_DIGITS: usize = 9;

/// Talker identifier: the two characters before the sentence formatter. Receivers that share a line
/// differ in it.
pub type Talker = [u8; 2];

/// Sentence with a time of day and a date.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ParsedSentence {
    /// Talker of the sentence.
    pub talker: Talker,
    /// UTC in the sentence; for second 60, the same fraction of second 59.
    pub utc: Timestamp<Utc>,
    /// True if the sentence is of second 60, the one after that of `utc`.
    pub is_leap_second: bool,
    /// True if the sentence itself reports a fix; ZDA has no field for it.
    pub reports_fix: bool,
}

/// Reason why a sentence of a kind with time contains none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SentenceError {
    /// The receiver of this talker has no fix.
    #[error("{1}")]
    NoFix(Talker, NoFix),
    /// Time of day or date is empty, as after a start of the receiver.
    #[error("the receiver has no time yet")]
    NoTime,
    /// A required field is missing or invalid.
    #[error("invalid sentence: {0} is missing or malformed")]
    Unreadable(SentenceField),
}

/// Reason in RMC why there is no fix. By IEC 61162-1 the status is V for each mode below, but some
/// receivers send A. The navigational status after the mode is not considered: receivers that do
/// not support it send V there, even with a fix.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NoFix {
    /// Status V or empty, and a missing or empty time or date.
    #[error("the receiver has no fix yet")]
    NoTimeYet,
    /// Status V or empty.
    #[error("the receiver has no fix")]
    Void,
    /// Mode N (not valid).
    #[error("the receiver has no fix: mode N, data not valid")]
    NotValid,
    /// Mode E (estimated).
    #[error("the receiver has no fix: mode E, estimated by dead reckoning")]
    Estimated,
    /// Mode M (manual).
    #[error("the receiver has no fix: mode M, entered by hand")]
    Manual,
    /// Mode S (simulator).
    #[error("the receiver has no fix: mode S, a simulator")]
    Simulated,
}

/// Required field of a sentence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SentenceField {
    /// Status (A or V).
    Status,
    /// Hours, minutes and seconds.
    TimeOfDay,
    /// Day, month and year.
    Date,
}

impl SentenceError {
    /// Returns the defect of a malformed sentence; `None` for a well-formed one without a time.
    pub(super) const fn rejection(self) -> Option<&'static str> {
        match self {
            Self::NoFix(..) | Self::NoTime => None,
            Self::Unreadable(SentenceField::Status) => Some("no readable status"),
            Self::Unreadable(SentenceField::TimeOfDay) => Some("no readable time of day"),
            Self::Unreadable(SentenceField::Date) => Some("no readable date"),
        }
    }
}

impl std::fmt::Display for SentenceField {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Status => "its status",
            Self::TimeOfDay => "its time of day",
            Self::Date => "its date",
        })
    }
}

impl ParsedSentence {
    /// Parses the text between `$` and `*` of a sentence with a right checksum; `None` for
    /// sentences without time and date.
    #[must_use]
    pub fn parse(text: &str) -> Option<Result<Self, SentenceError>> {
        let (talker, fields) = text.as_bytes().split_first_chunk()?;
        let fields = SentenceFields(fields);
        match fields.get(0)? {
            b"RMC" => Some(Self::from_rmc(*talker, fields)),
            b"ZDA" => Some(Self::from_zda(*talker, fields)),
            _ => None,
        }
    }

    fn from_rmc(talker: Talker, fields: SentenceFields<'_>) -> Result<Self, SentenceError> {
        let [time, status, date, mode] = [1, 2, 9, 12].map(|index| fields.get(index));
        let is_empty = [time, date].into_iter().any(|field| field.is_none_or(<[u8]>::is_empty));
        let no_fix = match (status, mode.unwrap_or_default()) {
            (Some(b"V" | b"v" | b""), _) if is_empty => NoFix::NoTimeYet,
            (Some(b"V" | b"v" | b""), _) => NoFix::Void,
            (Some(b"A" | b"a" | b"D" | b"d"), b"N" | b"n") => NoFix::NotValid,
            (Some(b"A" | b"a" | b"D" | b"d"), b"E" | b"e") => NoFix::Estimated,
            (Some(b"A" | b"a" | b"D" | b"d"), b"M" | b"m") => NoFix::Manual,
            (Some(b"A" | b"a" | b"D" | b"d"), b"S" | b"s") => NoFix::Simulated,
            (Some(b"A" | b"a" | b"D" | b"d"), _) => {
                let date = date.ok_or(SentenceError::Unreadable(SentenceField::Date))?;
                return Self::from_fields(talker, time, digit_pairs(date), true);
            }
            _ => return Err(SentenceError::Unreadable(SentenceField::Status)),
        };
        Err(SentenceError::NoFix(talker, no_fix))
    }

    fn from_zda(talker: Talker, fields: SentenceFields<'_>) -> Result<Self, SentenceError> {
        let [time, day, month, year] = [1, 2, 3, 4].map(|index| fields.get(index));
        let (Some(day), Some(month), Some(year)) = (day, month, year) else {
            return Err(SentenceError::Unreadable(SentenceField::Date));
        };
        Self::from_fields(talker, time, Some([day, month, year]), false)
    }

    fn from_fields(
        talker: Talker,
        time: Option<&[u8]>,
        date: Option<[&[u8]; 3]>,
        reports_fix: bool,
    ) -> Result<Self, SentenceError> {
        let time = time.ok_or(SentenceError::Unreadable(SentenceField::TimeOfDay))?;
        let is_zero = |field: &&[u8]| field.iter().all(|byte| *byte == b'0');
        if time.is_empty() || date.is_some_and(|date| date.iter().all(is_zero)) {
            return Err(SentenceError::NoTime);
        }
        let (time_of_day, is_leap_second) =
            time_of_day(time).ok_or(SentenceError::Unreadable(SentenceField::TimeOfDay))?;
        let Date(midnight) =
            date.and_then(parse_date).ok_or(SentenceError::Unreadable(SentenceField::Date))?;
        Ok(Self { talker, utc: midnight + time_of_day, is_leap_second, reports_fix })
    }
}

/// Comma-separated fields of a sentence after its talker.
#[derive(Clone, Copy)]
pub(super) struct SentenceFields<'a>(&'a [u8]);

impl<'a> SentenceFields<'a> {
    /// Creates the fields from the text after the talker.
    pub(super) const fn from_text(text: &'a [u8]) -> Self {
        Self(text)
    }

    /// Returns a field without surrounding blanks, `None` if the sentence is shorter; index 0 is
    /// the sentence formatter.
    pub(super) fn get(self, index: usize) -> Option<&'a [u8]> {
        self.0.split(|byte| *byte == b',').nth(index).map(<[u8]>::trim_ascii)
    }
}

/// Splits six digits into pairs; an empty field yields three empty ones, any other length `None`.
fn digit_pairs(date: &[u8]) -> Option<[&[u8]; 3]> {
    match date.len() {
        0 => Some([date; 3]),
        6 => Some([&date[..2], &date[2..4], &date[4..]]),
        _ => None,
    }
}

/// Parses a time of day; returns true with it for second 60, which is replaced by 59. `None` if it
/// is malformed.
fn time_of_day(time: &[u8]) -> Option<(Span, bool)> {
    let point = time.iter().position(|byte| *byte == b'.').unwrap_or(time.len());
    let (whole, fraction) = (&time[..point], time.get(point + 1..).unwrap_or_default());
    let [hour, minute, second] = digit_pairs(whole)?.map(parse_number);
    let (hour, minute, second) = (hour?, minute?, second?);
    if hour > 23 || minute > 59 || second > 60 || !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let digits = fraction.iter().copied().chain(std::iter::repeat(b'0')).take(FRACTION_DIGITS);
    let ns = digits.fold(0, |ns, digit| 10 * ns + i64::from(digit - b'0'));
    let seconds = (hour * 60 + minute) * 60 + second.min(59);
    Some((Span::from_ns(seconds * NS_PER_S + ns), second == 60))
}

/// Parses day, month and a year of two or four digits; `None` if there is no such day.
fn parse_date(date: [&[u8]; 3]) -> Option<Date> {
    let [day, month, year] = date.map(parse_number);
    let year = match (date[2].len(), year?) {
        (2, year) if year >= CENTURY_PIVOT => 1900 + year,
        (2, year) => 2000 + year,
        (4, year) => year,
        _ => return None,
    };
    Date::from_calendar(year, month?, day?)
}

/// Parses one to four digits; `None` for any other text.
fn parse_number(field: &[u8]) -> Option<i64> {
    let is_number = (1..=4).contains(&field.len()) && field.iter().all(u8::is_ascii_digit);
    is_number.then(|| field.iter().fold(0, |number, digit| 10 * number + i64::from(digit - b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(seconds: i64) -> Timestamp<Utc> {
        Timestamp::from_timespec(seconds, 0)
    }

    fn read(text: &str) -> ParsedSentence {
        ParsedSentence::parse(text).unwrap().unwrap()
    }

    fn error(text: &str) -> SentenceError {
        ParsedSentence::parse(text).unwrap().unwrap_err()
    }

    const FEBRUARY_27: i64 = 1_551_255_173; // 2019-02-27 08:12:53 UTC

    #[test]
    fn both_kinds_of_any_talker_name_the_time() {
        for talker in ["GN", "GP", "GA", "BD", "GB", "GL", "GQ", "QZ", "GI", "IN", "XX"] {
            let known = ParsedSentence {
                talker: talker.as_bytes().try_into().unwrap(),
                utc: at(FEBRUARY_27),
                is_leap_second: false,
                reports_fix: true,
            };
            let rmc = format!("{talker}RMC,081253.00,A,3413.1,N,10855.2,E,0.0,,270219,,,A");
            assert_eq!(read(&rmc), known);
            let zda = format!("{talker}ZDA,081253.00,27,02,2019,00,00");
            assert_eq!(read(&zda), ParsedSentence { reports_fix: false, ..known });
        }
        let tenth = read("GPZDA,081253.10,27,02,2019,,").utc;
        assert_eq!(tenth.as_ns(), FEBRUARY_27 * 1_000_000_000 + 100_000_000);
        let long = read("GPRMC,081253.9999999999,A,,,,,,,270219,,").utc;
        assert_eq!(long.as_ns(), FEBRUARY_27 * 1_000_000_000 + 999_999_999);
    }

    #[test]
    fn what_is_behind_the_date_or_between_may_be_absent_or_odd() {
        for text in [
            "GPRMC,081253,A,4807.038,N,01131.000,E,0.02,31.66,270219",
            "GPRMC,081253,A,4807.038,N,01131.000,E,0.02,31.66,270219,,E",
            "GNRMC,081253,A,,N,,E,,,270219,,,A",
            "GNRMC,081253.,A,481.4808,N,2350.6841,E,  0.0, 31.6,270219,,",
            "GPRMC,081253,A,nothing,x,?,,-0.0,-1.6,270219,2.00,W,A",
            "GPRMC, 081253 , A ,,,,,,, 270219 ,,,D",
            "GNRMC,081253.000,D,,,,,,,270219,,,F,S",
            "GNRMC,081253.000,A,,,,,,,270219,,,R,V",
            "GNRMC,081253.00,A,3150.7,N,11711.9,E,0.0,,270219,,,A,V,X,,,,,,",
            "GNRMC,081253,A,,,,,,,270219,,,?",
            "GPZDA,081253.00,27,02,2019",
            "GPZDA,081253,27,02,2019,+03,00",
            "GPZDA,081253,27,2,2019,-01,15",
            "GPZDA,081253.0000000,27,02,19,zone",
        ] {
            assert_eq!(
                ParsedSentence::parse(text).unwrap().map(|one| one.utc),
                Ok(at(FEBRUARY_27)),
                "{text}"
            );
        }
    }

    #[test]
    fn a_receiver_without_a_fix_is_known_by_its_status_or_its_mode() {
        let known = [
            ("GNRMC,,V,,,,,,,,,,N", NoFix::NoTimeYet),
            ("GARMC,081253.00,V", NoFix::NoTimeYet),
            ("GPRMC,,,,,,,,,,,", NoFix::NoTimeYet),
            ("GNRMC,081253.00,V,,,,,,,270219,,,N", NoFix::Void),
            ("GNRMC,081253.00,V,3413.1,N,10855.2,E,,,270219,,,E,V", NoFix::Void),
            ("GNRMC,081253.00,A,3413.1,N,10855.2,E,,,270219,,,N", NoFix::NotValid),
            ("GNRMC,081253.00,A,3413.1,N,10855.2,E,,,270219,,,E,S", NoFix::Estimated),
            ("GNRMC,081253.00,A,3413.1,N,10855.2,E,,,270219,,,M", NoFix::Manual),
            ("GNRMC,081253.00,A,3413.1,N,10855.2,E,,,270219,,,n", NoFix::NotValid),
            ("GNRMC,081253.00,v,3413.1,N,10855.2,E,,,270219,,,n", NoFix::Void),
            ("GNRMC,081253.00,A,3413.1,N,10855.2,E,,,270219,,,S,V", NoFix::Simulated),
        ];
        for (text, why) in known {
            let talker = text.as_bytes()[..2].try_into().unwrap();
            assert_eq!(error(text), SentenceError::NoFix(talker, why), "{text}");
        }
        for text in [
            "GPZDA,,,,,,",
            "GPZDA,081253.00,,,,,",
            "GPZDA,081253.19,,,,00,00",
            "GPZDA,000012.00,00,00,0000,00,00",
            "GNRMC,,A,,,,,,,270219,,,A",
            "GNRMC,081253,A,,,,,,,,,,A",
            "GNRMC,081253,A,,,,,,,000000,,,A",
        ] {
            assert_eq!(error(text), SentenceError::NoTime, "{text}");
        }
    }

    /// A receiver names the beginning of GPS before it knows better, and so it may the year 1999.
    #[test]
    fn years_of_two_digits_are_from_1980_to_2079() {
        let year = |digits: &str| Date(read(&format!("GPRMC,000000,A,,,,,,,0601{digits}")).utc);
        for (digits, date) in [
            ("80", "1980-01-06"),
            ("99", "1999-01-06"),
            ("00", "2000-01-06"),
            ("26", "2026-01-06"),
            ("79", "2079-01-06"),
        ] {
            assert_eq!(year(digits).to_string(), date);
            let zda = format!("GPZDA,000000,06,01,{digits},,");
            assert_eq!(Date(read(&zda).utc).to_string(), date);
        }
        assert_eq!(Date(read("GPZDA,000000,06,01,2080,,").utc).to_string(), "2080-01-06");
    }

    #[test]
    fn a_leap_second_is_the_one_behind_the_last() {
        // 2016-12-31 23:59:60
        for text in ["GPZDA,235960.00,31,12,2016,00,00", "GNRMC,235960.00,A,,,,,,,311216,,,A"] {
            let leap = read(text);
            assert!(leap.is_leap_second);
            assert_eq!(leap.utc, at(1_483_228_799));
        }
        assert!(!read("GPZDA,235959.60,31,12,2016,00,00").is_leap_second);
    }

    #[test]
    fn others_are_passed_over_and_nonsense_is_refused_by_field() {
        for other in ["", "GN", "GNGGA,081253.00", "GNRMCX,1", "PUBX,00", "GN\u{e9}RMC,1"] {
            assert_eq!(ParsedSentence::parse(other), None, "{other}");
        }
        for (wrong, field) in [
            ("GNRMC", SentenceField::Status),
            ("GNRMC,", SentenceField::Status),
            ("GNRMC,081253,X,,,,,,,270219,,,A", SentenceField::Status),
            ("GNRMC,081253,A,,,,,,", SentenceField::Date),
            ("GNRMC,081253,A,,,,,,,2702,,,A", SentenceField::Date),
            ("GNRMC,081253,A,,,,,,,300219,,,A", SentenceField::Date),
            ("GNRMC,081253,A,,,,,,,27\u{e9}19,,,A", SentenceField::Date),
            ("GNRMC,251253.00,A,,,,,,,270219,,,A", SentenceField::TimeOfDay),
            ("GNRMC,081261,A,,,,,,,270219,,,A", SentenceField::TimeOfDay),
            ("GNRMC,0812,A,,,,,,,270219,,,A", SentenceField::TimeOfDay),
            ("GNRMC,081253.0x,A,,,,,,,270219,,,A", SentenceField::TimeOfDay),
            ("GNRMC,081253.-1,A,,,,,,,270219,,,A", SentenceField::TimeOfDay),
            ("GPZDA,1,2", SentenceField::Date),
            ("GPZDA,081253,+7,02,2019", SentenceField::Date),
            ("GPZDA,081253,27,02,12019", SentenceField::Date),
        ] {
            assert_eq!(error(wrong), SentenceError::Unreadable(field), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn no_text_is_too_much(text in "\\PC{0,150}", kind in "(GN(RMC|ZDA),)?[0-9.,AVNEW*-]{0,110}") {
            let _ = ParsedSentence::parse(&text);
            let _ = ParsedSentence::parse(&kind);
        }

        #[test]
        fn every_second_is_read_back(seconds in 946_684_800i64..4_102_444_800) {
            let time = jiff::Timestamp::from_second(seconds).unwrap();
            let zda = time.strftime("GPZDA,%H%M%S.00,%d,%m,%Y,00,00").to_string();
            prop_assert_eq!(read(&zda).utc, at(seconds));
            if seconds < 3_471_292_800 { // two digits of a year go as far as 2079
                let front = time.strftime("GPRMC,%H%M%S.00,A,,,,,,,%d%m");
                let year = time.strftime("%Y").to_string();
                let rmc = format!("{front}{},,,A", &year[2..]);
                prop_assert_eq!(read(&rmc).utc, at(seconds));
            }
        }
    }
}
