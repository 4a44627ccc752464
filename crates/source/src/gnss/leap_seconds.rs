//! Leap second reports of a receiver: TAI minus UTC, and the next leap second. On a serial line,
//! u-blox's PUBX,04 contains the former; gpsd reports it in TPV, and both in SUBFRAME as received
//! from satellites. Pure.

use horolog_time::leap::{LeapKind, LeapSecond};
use horolog_time::{NS_PER_S, Timestamp, Utc};
use serde::Deserialize;

/// TAI minus GPS time (IS-GPS-200, section 3.3.4).
const TAI_MINUS_GPS_S: i32 = 19;
/// Plausible values of TAI minus UTC in this century, in seconds; any other is a damaged report.
const TAI_MINUS_UTC_RANGE_S: std::ops::RangeInclusive<i32> = 30..=60;
/// Unix time of the GPS epoch, 1980-01-06.
const GPS_EPOCH_S: i64 = 315_964_800;
const DAY_S: i64 = 86_400;
const WEEK_S: i64 = 7 * DAY_S;
/// Modulus of the week number: satellites send the low eight bits of the week of a leap second.
const WEEK_MODULUS: i64 = 256;

/// Leap second data of one report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReceiverLeapReport {
    /// TAI minus UTC, in seconds.
    pub tai_minus_utc_s: i32,
    /// Next leap second; `None` if this kind of report does not contain it.
    pub next: Option<NextLeap>,
}

/// Next leap second as reported by satellites.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NextLeap {
    /// No leap second is scheduled.
    Unscheduled,
    /// Announced leap second.
    At(LeapSecond),
}

impl NextLeap {
    /// Returns the leap second; `None` if none is scheduled.
    #[must_use]
    pub const fn leap(self) -> Option<LeapSecond> {
        match self {
            Self::Unscheduled => None,
            Self::At(leap) => Some(leap),
        }
    }
}

/// Fields of a gpsd report that concern leap seconds.
#[derive(Deserialize)]
struct GpsdLeapReport {
    class: String,
    mode: Option<i64>,
    leapseconds: Option<i32>,
    #[serde(rename = "IONO")]
    page: Option<GpsLeapPage>,
}

/// Page 18 of subframe 4 (IS-GPS-200, section 20.3.3.5.1.6), from which gpsd makes `IONO`.
#[derive(Deserialize)]
struct GpsLeapPage {
    /// `Δt_LS` and `Δt_LSF`: GPS minus UTC in seconds, now and after the leap second.
    ls: i32,
    lsf: i32,
    /// Week of the leap second, and the day of that week (1 to 7) at whose end it is.
    #[serde(rename = "WNlsf")]
    week: i64,
    #[serde(rename = "DN")]
    day: i64,
}

/// Lowest mode of TPV with a fix.
const MODE_WITH_FIX: i64 = 2;

impl ReceiverLeapReport {
    /// Parses the text between `$` and `*` of a sentence with a right checksum; `None` if it
    /// contains no leap seconds, or only the firmware's default value (suffix `D`).
    #[must_use]
    pub fn from_sentence(text: &str) -> Option<Self> {
        let mut fields = text.split(',');
        let is_time = fields.next()? == "PUBX" && fields.next()? == "04";
        let leap_seconds = fields.nth(4).filter(|_| is_time)?;
        Self::from_gps(leap_seconds.parse().ok()?, None)
    }

    /// Parses a JSON line of gpsd. `now` resolves the truncated week number, so it may be wrong by
    /// up to two years. `None` if the line contains no plausible leap seconds, or is a TPV without
    /// a fix.
    #[must_use]
    pub fn from_gpsd(line: &[u8], now: Timestamp<Utc>) -> Option<Self> {
        let report: GpsdLeapReport = serde_json::from_slice(line).ok()?;
        match report.class.as_str() {
            "TPV" if report.mode? >= MODE_WITH_FIX => Self::from_gps(report.leapseconds?, None),
            "SUBFRAME" => {
                let page = report.page?;
                let next = page.next_leap(now)?;
                // Satellites continue to send both values for days after the leap second.
                let ls = if next == NextLeap::Unscheduled { page.lsf } else { page.ls };
                Self::from_gps(ls, Some(next))
            }
            _ => None,
        }
    }

    fn from_gps(gps_minus_utc_s: i32, next: Option<NextLeap>) -> Option<Self> {
        let tai_minus_utc_s = gps_minus_utc_s.checked_add(TAI_MINUS_GPS_S)?;
        TAI_MINUS_UTC_RANGE_S.contains(&tai_minus_utc_s).then_some(Self { tai_minus_utc_s, next })
    }
}

impl GpsLeapPage {
    /// Returns the next leap second; `None` if the page is inconsistent.
    fn next_leap(&self, now: Timestamp<Utc>) -> Option<NextLeap> {
        let kind = match self.lsf.checked_sub(self.ls)? {
            0 => return Some(NextLeap::Unscheduled),
            1 => LeapKind::Insert,
            -1 => LeapKind::Delete,
            _ => return None,
        };
        if !(0..=1_023).contains(&self.week) || !(1..=7).contains(&self.day) {
            return None;
        }
        // Of the weeks with these eight low bits, the one nearest to now.
        let current_week = (now.as_ns() / NS_PER_S - GPS_EPOCH_S).div_euclid(WEEK_S);
        let weeks_ahead = (self.week - current_week + WEEK_MODULUS / 2).rem_euclid(WEEK_MODULUS)
            - WEEK_MODULUS / 2;
        let midnight_s = GPS_EPOCH_S + (current_week + weeks_ahead) * WEEK_S + self.day * DAY_S;
        let midnight = Timestamp::from_ns(midnight_s.checked_mul(NS_PER_S)?);
        let leap = LeapSecond { midnight, kind };
        let is_pending = leap.midnight > now;
        Some(if is_pending { NextLeap::At(leap) } else { NextLeap::Unscheduled })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// 2016-12-01 and the leap second at the end of that month.
    const DECEMBER: Timestamp<Utc> = Timestamp::from_ns(1_480_550_400 * NS_PER_S);
    const LEAP: LeapSecond = LeapSecond {
        midnight: Timestamp::from_ns(1_483_228_800 * NS_PER_S),
        kind: LeapKind::Insert,
    };

    fn page(ls: i32, lsf: i32, week: i64, day: i64) -> String {
        format!(
            "{{\"class\":\"SUBFRAME\",\"device\":\"/dev/ttyACM0\",\"tSV\":7,\"frame\":4,\
             \"scaled\":false,\"pageid\":56,\"IONO\":{{\"a0\":12,\"WNt\":152,\"ls\":{ls},\
             \"WNlsf\":{week},\"DN\":{day},\"lsf\":{lsf}}}}}\r"
        )
    }

    fn subframe(ls: i32, lsf: i32, week: i64, day: i64) -> Option<ReceiverLeapReport> {
        ReceiverLeapReport::from_gpsd(page(ls, lsf, week, day).as_bytes(), DECEMBER)
    }

    #[test]
    fn a_number_that_satellites_sent_is_read_and_the_makers_is_not() {
        let of = |field: &str| {
            let text =
                format!("PUBX,04,073731.00,091202,113851.00,1196,{field},1930,-2660.664,43,");
            ReceiverLeapReport::from_sentence(&text)
        };
        assert_eq!(of("18"), Some(ReceiverLeapReport { tai_minus_utc_s: 37, next: None }));
        for other in ["18D", "", "10", "42", "-18", "x", "99999999999"] {
            assert_eq!(of(other), None, "{other}");
        }
        for other in ["PUBX,00,1,2,3,4,18,", "GPRMC,04,1,2,3,4,18", "PUBX,04", "PUBX", ""] {
            assert_eq!(ReceiverLeapReport::from_sentence(other), None, "{other}");
        }
    }

    #[test]
    fn gpsd_reports_the_number_where_there_is_a_fix() {
        let of = |line: &str| ReceiverLeapReport::from_gpsd(line.as_bytes(), DECEMBER);
        let line = "{\"class\":\"TPV\",\"device\":\"/dev/pts/1\",\"mode\":3,\
                    \"time\":\"2026-11-22T20:00:00.000Z\",\"leapseconds\":18,\"lat\":46.5}\r";
        assert_eq!(of(line), Some(ReceiverLeapReport { tai_minus_utc_s: 37, next: None }));
        assert_eq!(of(&line.replace("\"mode\":3", "\"mode\":1")), None);
        assert_eq!(of(&line.replace("\"leapseconds\":18,", "")), None);
        assert_eq!(of(&line.replace(":18", ":2147483647")), None);
        assert_eq!(of("{\"class\":\"SKY\"}"), None);
        assert_eq!(of("nonsense"), None);
    }

    /// Week 1929, day 7 (a Saturday), as was sent in the second half of 2016: 137 by its eight
    /// bits.
    #[test]
    fn the_satellites_name_the_next_leap_second() {
        let reported = |next| Some(ReceiverLeapReport { tai_minus_utc_s: 36, next: Some(next) });
        assert_eq!(subframe(17, 18, 137, 7), reported(NextLeap::At(LEAP)));
        assert_eq!(
            subframe(17, 18, 1_929 % 1_024, 7),
            reported(NextLeap::At(LEAP)),
            "more of its bits"
        );
        assert_eq!(subframe(17, 17, 137, 7), reported(NextLeap::Unscheduled));
        let deleted = LeapSecond { kind: LeapKind::Delete, ..LEAP };
        assert_eq!(subframe(17, 16, 137, 7), reported(NextLeap::At(deleted)));
        let after = LEAP.midnight + horolog_time::Span::from_ns(1);
        let late = ReceiverLeapReport::from_gpsd(page(17, 18, 137, 7).as_bytes(), after);
        let past = ReceiverLeapReport { tai_minus_utc_s: 37, next: Some(NextLeap::Unscheduled) };
        assert_eq!(late, Some(past), "the number behind it holds");
        for (ls, lsf, week, day) in [(17, 19, 137, 7), (17, 18, 137, 0), (17, 18, 137, 8)] {
            assert_eq!(subframe(ls, lsf, week, day), None);
        }
        assert_eq!(subframe(17, 18, -1, 7), None);
    }

    proptest! {
        #[test]
        fn any_page_is_refused_or_names_a_day_within_years(
            ls in any::<i32>(), lsf in any::<i32>(), week in any::<i64>(), day in any::<i64>(),
            now in any::<i64>(),
        ) {
            let line = page(ls, lsf, week, day);
            let now = Timestamp::from_ns(now);
            if let Some(report) = ReceiverLeapReport::from_gpsd(line.as_bytes(), now) {
                prop_assert!(TAI_MINUS_UTC_RANGE_S.contains(&report.tai_minus_utc_s));
                if let Some(NextLeap::At(leap)) = report.next {
                    let ahead = (leap.midnight - now).as_ns();
                    prop_assert!((1..=129 * WEEK_S * NS_PER_S).contains(&ahead));
                }
            }
        }

        #[test]
        fn any_text_is_taken(text in ".{0,120}", bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = ReceiverLeapReport::from_sentence(&text);
            let _ = ReceiverLeapReport::from_gpsd(&bytes, DECEMBER);
        }
    }
}
