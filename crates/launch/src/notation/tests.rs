//! What is understood and what is not, and when that is in a zone with summer time.

use jiff::civil::{date, time};
use jiff::tz::TimeZone;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::instant::{InstantTimescale, TimescaleInstant};

/// Central Europe: clocks go forward on 29 March 2026 and back on 25 October 2026.
const BERLIN: &str = "CET-1CEST,M3.5.0,M10.5.0/3";

fn now(utc: &str) -> PresentTime {
    let time: jiff::Timestamp = utc.parse().unwrap();
    PresentTime {
        utc_ns: time.as_nanosecond() as i64,
        tai_minus_utc_s: Some(37),
        zone: TimeZone::posix(BERLIN).unwrap(),
    }
}

fn at(text: &str, utc: &str) -> Result<TimescaleInstant, InstantResolveError> {
    text.parse::<TimeNotation>().unwrap().resolve(&now(utc), ZoneOrTimescale::Local, false)
}

/// When it is in UTC.
fn when(text: &str, utc: &str) -> String {
    at(text, utc).map_or_else(|error| error.to_string(), |instant| instant.to_string())
}

#[test]
fn the_notations_of_at() {
    // A Wednesday in winter: 12:00 in UTC is 13:00 there.
    let present = "2026-01-14T12:00:00.5Z";
    for (text, expected) in [
        ("now", "2026-01-14T12:00:00.5Z"),
        ("now+2min", "2026-01-14T12:02:00.5Z"),
        ("now + 2 minutes", "2026-01-14T12:02:00.5Z"),
        ("now + 250 ms", "2026-01-14T12:00:00.75Z"),
        ("+ 1 hour", "2026-01-14T13:00:00.5Z"),
        ("21:00", "2026-01-14T20:00:00Z"),
        ("2100", "2026-01-14T20:00:00Z"),
        ("9pm", "2026-01-14T20:00:00Z"),
        ("9:00 PM", "2026-01-14T20:00:00Z"),
        ("21", "2026-01-14T20:00:00Z"),
        ("21:00:30.25", "2026-01-14T20:00:30.25Z"),
        ("21:00Z", "2026-01-14T21:00:00Z"),
        ("21:00 utc", "2026-01-14T21:00:00Z"),
        ("11:00", "2026-01-15T10:00:00Z"),
        ("12am", "2026-01-14T23:00:00Z"),
        ("midnight", "2026-01-14T23:00:00Z"),
        ("noon", "2026-01-15T11:00:00Z"),
        ("noon tomorrow", "2026-01-15T11:00:00Z"),
        ("teatime", "2026-01-14T15:00:00Z"),
        ("teatime friday", "2026-01-16T15:00:00Z"),
        ("10am wed", "2026-01-21T09:00:00Z"),
        ("2pm wednesday", "2026-01-14T13:00:00Z"),
        ("2pm next wednesday", "2026-01-21T13:00:00Z"),
        ("4pm + 3 days", "2026-01-17T15:00:00Z"),
        ("11am + 3 days", "2026-01-17T10:00:00Z"),
        ("4pm next week", "2026-01-21T15:00:00Z"),
        ("2018/10/22 + 10 years", "2028-10-22T11:00:00.5Z"),
        ("2028/10/22", "2028-10-22T11:00:00.5Z"),
        ("21:00 2028-10-22", "2028-10-22T19:00:00Z"),
        ("2028-10-22 21:00", "2028-10-22T19:00:00Z"),
        ("2028-10-22T21:00:00Z", "2028-10-22T21:00:00Z"),
        ("2028-10-22T21:00:00.5+05:30", "2028-10-22T15:30:00.5Z"),
        ("2028-10-22T21:00-0100", "2028-10-22T22:00:00Z"),
        ("10:00 Oct 22", "2026-10-22T08:00:00Z"),
        ("10:00 22 October 2028", "2028-10-22T08:00:00Z"),
        ("10:00 Jan 2", "2027-01-02T09:00:00Z"),
        ("10:00 10/22/28", "2028-10-22T08:00:00Z"),
        ("10:00 22.10.2028", "2028-10-22T08:00:00Z"),
        ("10:00 102228", "2028-10-22T08:00:00Z"),
        ("@1800000000.5", "2027-01-15T08:00:00.5Z"),
        ("21:00 TAI", "2026-01-14T21:00:00 TAI"),
        ("2028-10-22T21:00:00 TAI", "2028-10-22T21:00:00 TAI"),
        ("now tai + 1 s", "2026-01-14T12:00:38.5 TAI"),
        ("now + 1 month", "2026-02-14T12:00:00.5Z"),
        ("noon Jan 31 + 1 month", "2026-02-28T11:00:00Z"),
    ] {
        assert_eq!(when(text, present), expected, "{text}");
    }
}

#[test]
fn a_time_that_has_passed_is_tomorrow_s_also_over_a_change_of_clocks() {
    // 21:30 in Berlin on the eve of the day with 23 hours, and of that with 25.
    assert_eq!(when("21:00", "2026-03-28T20:30:00Z"), "2026-03-29T19:00:00Z");
    assert_eq!(when("21:00", "2026-10-24T19:30:00Z"), "2026-10-25T20:00:00Z");
    assert_eq!(when("22:00", "2026-03-28T20:30:00Z"), "2026-03-28T21:00:00Z");
    // A day on is the same time of day, 24 hours on are not.
    assert_eq!(when("now + 1 day", "2026-03-28T20:30:00Z"), "2026-03-29T19:30:00Z");
    assert_eq!(when("now + 24 hours", "2026-03-28T20:30:00Z"), "2026-03-29T20:30:00Z");
    // To the nanosecond now is not past.
    assert_eq!(when("21:30", "2026-03-28T20:30:00Z"), "2026-03-28T20:30:00Z");
}

#[test]
fn a_time_that_there_is_twice_is_the_first_that_is_to_come() {
    assert_eq!(when("2:30 2026-10-25", "2026-10-24T12:00:00Z"), "2026-10-25T00:30:00Z");
    assert_eq!(when("2:30", "2026-10-25T00:45:00Z"), "2026-10-25T01:30:00Z");
    assert_eq!(when("2:30", "2026-10-25T01:45:00Z"), "2026-10-26T01:30:00Z");
}

#[test]
fn a_time_that_clocks_skip_is_refused() {
    let eve = ["2:30 2026-03-29", "2:30", "2:30 tomorrow", "2:30 Sunday", "2:30 Mar 29"];
    for text in eve {
        let error = at(text, "2026-03-28T12:00:00Z");
        assert!(matches!(error, Err(InstantResolveError::Gap { .. })), "{text}: {error:?}");
    }
    for text in ["2:00 2026-03-29", "2:30 2026-03-29", "2:59:59.9 2026-03-29"] {
        let message = when(text, "2026-03-28T12:00:00Z");
        let change = "clocks go from 2026-03-29 02:00 straight to 2026-03-29 03:00 (UTC+01 becomes";
        assert!(message.contains(change), "{text}: {message}");
    }
    assert_eq!(when("2:30 2026-03-29 UTC", "2026-03-28T12:00:00Z"), "2026-03-29T02:30:00Z");
    // After that hour of that day it is tomorrow's.
    assert_eq!(when("2:30", "2026-03-29T12:00:00Z"), "2026-03-30T00:30:00Z");
}

#[test]
fn a_day_without_a_year_is_the_next_one_that_there_is() {
    for (text, present, expected) in [
        ("noon Feb 29 UTC", "2026-01-14T12:00:00Z", "2028-02-29T12:00:00Z"),
        ("29 February noon UTC", "2026-11-26T12:00:00Z", "2028-02-29T12:00:00Z"),
        ("noon Feb 29 UTC", "2028-02-29T11:59:59Z", "2028-02-29T12:00:00Z"),
        ("noon Feb 29 UTC", "2028-02-29T12:00:01Z", "2032-02-29T12:00:00Z"),
        ("noon Feb 29 UTC", "2096-03-01T00:00:00Z", "2104-02-29T12:00:00Z"),
        ("noon Feb 29 UTC + 1 year", "2026-01-14T12:00:00Z", "2029-02-28T12:00:00Z"),
        ("noon Feb 28 UTC", "2026-03-01T00:00:00Z", "2027-02-28T12:00:00Z"),
        ("noon Dec 31 UTC", "2026-12-31T12:00:01Z", "2027-12-31T12:00:00Z"),
        // Clocks skipped it in 2026, which is past; they do not in 2027.
        ("2:30 Mar 29", "2026-04-10T12:00:00Z", "2027-03-29T00:30:00Z"),
    ] {
        assert_eq!(when(text, present), expected, "{text} at {present}");
    }
    for (text, words) in [
        ("Feb 30", "30 February does not exist"),
        ("31 April", "31 April does not exist"),
        ("Feb 29 2026", "29 February 2026 does not exist"),
        ("2100-02-29", "29 February 2100 does not exist"),
        ("29.02.2027", "29 February 2027 does not exist"),
    ] {
        let error = text.parse::<TimeNotation>().unwrap_err().to_string();
        assert!(error.contains(words), "{text}: {error}");
    }
}

#[test]
fn what_is_past_or_unknown_is_refused() {
    let present = "2026-01-14T12:00:00Z";
    for text in ["2018/10/22", "11:00 today", "@5", "now - 1 s", "2026-01-14T11:59:59.999Z"] {
        assert!(matches!(at(text, present), Err(InstantResolveError::Past(_))), "{text}");
    }
    let notation: TimeNotation = "2018/10/22".parse().unwrap();
    assert!(notation.resolve(&now(present), ZoneOrTimescale::Utc, true).is_ok());
    let notation: TimeNotation = "21:00 TAI".parse().unwrap();
    let unknown = PresentTime { tai_minus_utc_s: None, ..now(present) };
    let error = notation.resolve(&unknown, ZoneOrTimescale::Local, false);
    assert_eq!(error, Err(InstantResolveError::TaiUnknown));
    assert!(matches!(at("2500-01-01", present), Err(InstantResolveError::OutOfRange(_))));
    assert!(matches!(
        at("now + 4294967295 years", present),
        Err(InstantResolveError::OutOfRange(_))
    ));
}

#[test]
fn an_instant_is_read_as_it_was_shown() {
    for (scale, ns) in [
        (InstantTimescale::Utc, 1_800_000_000_000_000_001),
        (InstantTimescale::Tai, 19_000_000_005),
    ] {
        let instant = TimescaleInstant { scale, ns };
        let notation: TimeNotation = instant.to_notation().parse().unwrap();
        let again = notation.resolve(&now("1970-01-01T00:00:00Z"), ZoneOrTimescale::Local, true);
        assert_eq!(again, Ok(instant));
    }
}

#[test]
fn what_is_no_notation_is_refused_in_a_line() {
    for (text, expected) in [
        ("", "no time specified"),
        ("elevenses", "cannot parse 'elevenses'"),
        ("25:00", "invalid hour"),
        ("2500", "invalid hour"),
        ("13pm", "invalid hour"),
        ("0am", "invalid hour"),
        ("21:60", "invalid minute"),
        ("1260", "invalid minute"),
        ("23:59:60", "leap second"),
        ("2017-01-01T05:29:60+05:30", "leap second"),
        ("21:30:60", "invalid minute"),
        ("31 February", "31 February does not exist"),
        ("2026-02-31", "31 February 2026 does not exist"),
        ("10/32/26", "32 October 2026 does not exist"),
        ("2026-13-01", "month 13 does not exist"),
        ("21:00 22:00", "second time"),
        ("today tomorrow", "second day"),
        ("21:00Z tai", "second zone"),
        ("now + 2", "not a valid increment"),
        ("now + two minutes", "not a valid increment"),
        ("now + 5000000000 s", "not a valid increment"),
        ("now + 2 m", "not a valid increment"),
        ("now +", "not a valid increment"),
        ("Oct", "lacks a day"),
        ("next", "cannot parse"),
        ("@5 tomorrow", "a complete instant"),
        ("12:00:00:00", "cannot parse"),
        ("1:2:3.0000000001", "cannot parse"),
    ] {
        let error = text.parse::<TimeNotation>().expect_err(text).to_string();
        assert!(error.contains(expected) && !error.contains('\n'), "{text}: {error}");
    }
}

fn notation() -> impl Strategy<Value = TimeNotation> {
    let clock = (0..24_i8, 0..60_i8, 0..60_i8, 0..1_000_000_000_i32).prop_map(
        |(hour, minute, second, ns)| TimeOfDaySpec::Clock(time(hour, minute, second, ns)),
    );
    let epoch = (i64::MIN + 1..=i64::MAX).prop_map(TimeOfDaySpec::Epoch);
    let day = prop_oneof![
        Just(DaySpec::Today),
        Just(DaySpec::Tomorrow),
        (select(&WEEKDAYS[..]), any::<bool>())
            .prop_map(|((_, day), next)| DaySpec::Weekday { day, next }),
        (1..=12_i8, 1..=28_i8).prop_map(|(month, day)| DaySpec::MonthDay { month, day }),
        (0..=9999_i16, 1..=12_i8, 1..=28_i8)
            .prop_map(|(year, month, day)| DaySpec::Date(date(year, month, day))),
    ];
    let zone = prop_oneof![
        Just(ZoneOrTimescale::Local),
        Just(ZoneOrTimescale::Utc),
        Just(ZoneOrTimescale::Tai),
        (-1439..1440_i32).prop_map(|minutes| ZoneOrTimescale::Offset(minutes * 60)),
    ];
    let shift = (any::<bool>(), any::<u32>(), select(&IncrementUnit::ALL[..]))
        .prop_map(|(back, amount, unit)| TimeIncrement { is_negative: back, amount, unit });
    let shifts = vec(shift, 0..3);
    let of_clock =
        (prop_oneof![Just(TimeOfDaySpec::Now), clock], option::of(day), option::of(zone));
    let scales = option::of(select(&[ZoneOrTimescale::Utc, ZoneOrTimescale::Tai][..]));
    let of_epoch = (epoch, Just(None), scales);
    (prop_oneof![of_clock, of_epoch], shifts).prop_map(|((time, date, zone), shifts)| {
        TimeNotation { time, date, zone, increments: shifts }
    })
}

proptest! {
    #[test]
    fn any_notation_is_the_same_after_it_was_written_and_read(notation in notation()) {
        let text = notation.to_string();
        prop_assert_eq!(text.parse::<TimeNotation>(), Ok(notation), "{}", text);
    }

    #[test]
    fn what_is_resolved_is_not_past(notation in notation(), utc_ns in 0..4_000_000_000_000_000_000_i64) {
        let now = PresentTime { utc_ns, ..now("2026-01-01T00:00:00Z") };
        if let Ok(instant) = notation.resolve(&now, ZoneOrTimescale::Local, false) {
            let ahead_ns = if instant.scale == InstantTimescale::Tai { 37_000_000_000 } else { 0 };
            prop_assert!(instant.ns >= utc_ns + ahead_ns);
        }
    }

    #[test]
    fn no_text_makes_it_panic(text in "\\PC*", utc_ns: i64) {
        if let Ok(notation) = text.parse::<TimeNotation>() {
            let now = PresentTime { utc_ns, ..now("2026-01-01T00:00:00Z") };
            let _ = notation.resolve(&now, ZoneOrTimescale::Local, true);
        }
    }

    #[test]
    fn words_in_any_order_do_not_make_it_panic(
        words in vec("(now|noon|[0-9]{1,5}|[0-9]{1,2}:[0-9]{1,2}(:[0-9.]{1,4})?|am|pm|\\+|-|oct|mon|next|min|years|tai|z|[0-9/.-]{3,10}|@-?[0-9.]{1,12}|t)", 0..6)
    ) {
        if let Ok(notation) = words.join(" ").parse::<TimeNotation>() {
            let text = notation.to_string();
            prop_assert_eq!(text.parse::<TimeNotation>(), Ok(notation), "{}", text);
        }
    }
}

#[test]
fn an_invalid_increment_is_quoted_as_written() {
    for (text, message) in [
        ("now + 0.5s", "'+ 0.5s' is not a valid increment"),
        ("now+1.5 hours", "'+ 1.5' is not a valid increment"),
        ("now + 5 moons", "'+ 5 moons'"),
        ("now -", "'-'"),
    ] {
        let error = text.parse::<TimeNotation>().unwrap_err().to_string();
        assert!(error.starts_with(message) && error.contains("now + 500ms"), "{error}");
    }
}
