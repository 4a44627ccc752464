//! What a sentence says of the time: RMC and ZDA of any talker (IEC 61162-1). Reading the fields is
//! the `nmea` crate's; what it does not know is the second 60, of which there is one now and then.

use std::ops::Range;

use horolog_time::{Timestamp, Utc};
use nmea::sentences::rmc::RmcStatusOfFix;
use nmea::sentences::{parse_rmc, parse_zda};
use nmea::{NmeaSentence, SentenceType};

use super::frame::TEXT_MAX;

/// Where the fields begin, and where the seconds of the time of day stand, which comes first.
const FIELDS: usize = 6;
const SECONDS: Range<usize> = 10..12;

/// A sentence that tells a time of day and a date.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sentence {
    /// The time that it names; of the second 60 the same part of the second before.
    pub utc: Timestamp<Utc>,
    /// It names the second 60, which follows that of `utc`.
    pub is_leap_second: bool,
    /// Whether the receiver says that it knows the time; `None` where the sentence has no field for
    /// that.
    pub is_valid: Option<bool>,
}

/// What is wrong with a sentence that should tell the time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SentenceError {
    /// A field cannot be read.
    #[error("its sentences cannot be read")]
    Unreadable,
    /// It has no time or no date, as of a receiver that was just started.
    #[error("it does not know the time yet")]
    Empty,
}

impl Sentence {
    /// Reads the text between `$` and `*` of a sentence whose checksum was right; `None` of one
    /// that says nothing of the time.
    #[must_use]
    pub fn read(text: &str) -> Option<Result<Self, SentenceError>> {
        // As long as a sentence can be, and of characters of one byte.
        let mut plain = [0; TEXT_MAX];
        let plain = plain.get_mut(..text.len()).filter(|_| text.is_ascii())?;
        plain.copy_from_slice(text.as_bytes());
        let kind = match plain.get(2..FIELDS)? {
            b"RMC," => SentenceType::RMC,
            b"ZDA," => SentenceType::ZDA,
            _ => return None,
        };
        let seconds = plain.get_mut(SECONDS);
        let is_leap_second = seconds.as_ref().is_some_and(|seconds| **seconds == *b"60");
        if let Some(seconds) = seconds.filter(|_| is_leap_second) {
            seconds.copy_from_slice(b"59");
        }
        // ASCII, as it was.
        let (talker_id, data) = str::from_utf8(plain).ok()?.split_at(FIELDS);
        let sentence =
            NmeaSentence { talker_id: &talker_id[..2], message_id: kind, data, checksum: 0 };
        Some(Self::of(sentence).map(|sentence| Self { is_leap_second, ..sentence }))
    }

    fn of(sentence: NmeaSentence<'_>) -> Result<Self, SentenceError> {
        let (date, time, is_valid) = if sentence.message_id == SentenceType::RMC {
            let rmc = parse_rmc(sentence).map_err(|_| SentenceError::Unreadable)?;
            let is_valid = rmc.status_of_fix != RmcStatusOfFix::Invalid;
            (rmc.fix_date, rmc.fix_time, Some(is_valid))
        } else {
            let zda = parse_zda(sentence).map_err(|_| SentenceError::Unreadable)?;
            (zda.utc_date(), zda.utc_time, None)
        };
        let (Some(date), Some(time)) = (date, time) else { return Err(SentenceError::Empty) };
        let utc = date.and_time(time).and_utc();
        let utc = Timestamp::from_timespec(utc.timestamp(), utc.timestamp_subsec_nanos().into());
        Ok(Self { utc, is_leap_second: false, is_valid })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(seconds: i64) -> Timestamp<Utc> {
        Timestamp::from_timespec(seconds, 0)
    }

    fn read(text: &str) -> Sentence {
        Sentence::read(text).unwrap().unwrap()
    }

    const FEBRUARY_27: i64 = 1_551_255_173; // 2019-02-27 08:12:53 UTC

    #[test]
    fn both_kinds_of_any_talker_tell_the_time() {
        let known = Sentence { utc: at(FEBRUARY_27), is_leap_second: false, is_valid: Some(true) };
        for talker in ["GN", "GP", "GA", "BD", "GB", "GL", "XX"] {
            let rmc = format!("{talker}RMC,081253.00,A,3413.1,N,10855.2,E,0.0,,270219,,,A");
            assert_eq!(read(&rmc), known);
            let zda = format!("{talker}ZDA,081253.00,27,02,2019,00,00");
            assert_eq!(read(&zda), Sentence { is_valid: None, ..known });
        }
        assert_eq!(read("GNRMC,081253,A,,,,,,,270219,,,A,V"), known);
        let tenth = read("GPZDA,081253.10,27,02,2019,,").utc;
        assert_eq!(tenth.as_ns(), FEBRUARY_27 * 1_000_000_000 + 100_000_000);
    }

    #[test]
    fn a_receiver_without_satellites_says_so() {
        let void = "GNRMC,081253.00,V,,,,,,,270219,,,N";
        assert_eq!(read(void).is_valid, Some(false));
        for empty in ["GNRMC,,V,,,,,,,,,,N", "GPZDA,,,,,,", "GPZDA,081253.00,,,,,"] {
            assert_eq!(Sentence::read(empty), Some(Err(SentenceError::Empty)), "{empty}");
        }
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
    fn others_are_passed_over_and_nonsense_is_refused() {
        for other in ["", "GN", "GNGGA,081253.00", "GNRMCX,1", "PUBX,00", "GNRMC", "GN\u{e9}RMC,1"]
        {
            assert_eq!(Sentence::read(other), None, "{other}");
        }
        for wrong in ["GNRMC,", "GNRMC,0812", "GNRMC,251253.00,A,,,,,,,270219,,,A", "GPZDA,1,2"] {
            assert_eq!(Sentence::read(wrong), Some(Err(SentenceError::Unreadable)), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn no_text_is_too_much(text in "\\PC{0,150}", kind in "(GN(RMC|ZDA),)?[0-9.,AVNEW*-]{0,110}") {
            let _ = Sentence::read(&text);
            let _ = Sentence::read(&kind);
        }

        #[test]
        fn every_second_is_read_back(seconds in 946_684_800i64..4_102_444_800) {
            let time = chrono::DateTime::from_timestamp(seconds, 0).unwrap();
            let zda = time.format("GPZDA,%H%M%S.00,%d,%m,%Y,00,00").to_string();
            prop_assert_eq!(read(&zda).utc, at(seconds));
            if seconds < 3_565_987_200 { // two digits of a year go as far as 2082
                let rmc = time.format("GPRMC,%H%M%S.00,A,,,,,,,%d%m%y,,,A").to_string();
                prop_assert_eq!(read(&rmc).utc, at(seconds));
            }
        }
    }
}
