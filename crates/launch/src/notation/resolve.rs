//! Instant of a notation: a pure function of the notation, the present time, the time zone and the
//! TAI − UTC offset.

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::{AmbiguousOffset, Offset, TimeZone};
use jiff::{Span, Timestamp};

use super::{
    DaySpec, IncrementUnit, TimeIncrement, TimeNotation, TimeNotationError, TimeOfDaySpec,
    ZoneOrTimescale,
};
use crate::instant::{InstantTimescale, SECOND_NS, TimescaleInstant};

/// Present time and local time zone.
#[derive(Clone, Debug)]
pub struct PresentTime {
    /// UTC, in ns since 1970.
    pub utc_ns: i64,
    /// TAI minus UTC in seconds, if known.
    pub tai_minus_utc_s: Option<i32>,
    /// Time zone of this host.
    pub zone: TimeZone,
}

/// Reason why an instant does not exist.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum InstantResolveError {
    /// The calendar has no such day.
    #[error(transparent)]
    Notation(#[from] TimeNotationError),
    /// The instant is in the past.
    #[error(
        "{0} is in the past; write a later time, such as 'now + 2 minutes' or '21:00 \
             tomorrow'"
    )]
    Past(String),
    /// The time is skipped when clocks are set forward.
    #[error(
        "{} does not exist in {zone}: clocks go from {} straight to {} (UTC{before} becomes \
         UTC{after}); write a time before or after the change, or --utc",
        minute(*time), minute(*from), minute(*to)
    )]
    Gap {
        /// Time that does not exist.
        time: DateTime,
        /// IANA name of the time zone, or a description without one.
        zone: String,
        /// Time shown by clocks when they are set forward.
        from: DateTime,
        /// Time shown by clocks right after the change.
        to: DateTime,
        /// Offset from UTC before the change.
        before: Offset,
        /// Offset from UTC after the change.
        after: Offset,
    },
    /// The kernel does not know the TAI offset.
    #[error(
        "the kernel's TAI offset is unset; have the time daemon set it (chronyd: leapsectz \
         right/UTC), or use --tai-offset 37"
    )]
    TaiUnknown,
    /// The instant is out of the range of the clocks.
    #[error("{0} is out of range; write an instant before the year 2262")]
    OutOfRange(String),
}

impl TimeNotation {
    /// Resolves the notation to an instant. `zone` applies to a notation without a zone. A past
    /// instant is an error unless `allow_past`.
    pub fn resolve(
        &self,
        now: &PresentTime,
        zone: ZoneOrTimescale,
        allow_past: bool,
    ) -> Result<TimescaleInstant, InstantResolveError> {
        let zone = self.zone.unwrap_or(zone);
        let (zone, scale) = match zone {
            ZoneOrTimescale::Local => (now.zone.clone(), InstantTimescale::Utc),
            ZoneOrTimescale::Utc => (TimeZone::UTC, InstantTimescale::Utc),
            ZoneOrTimescale::Tai => (TimeZone::UTC, InstantTimescale::Tai),
            ZoneOrTimescale::Offset(seconds) => {
                let offset = Offset::from_seconds(seconds);
                (offset.map_err(|_| self.out_of_range())?.to_time_zone(), InstantTimescale::Utc)
            }
        };
        let scale_minus_utc_s = match scale {
            InstantTimescale::Utc => 0,
            InstantTimescale::Tai => now.tai_minus_utc_s.ok_or(InstantResolveError::TaiUnknown)?,
        };
        let now_ns = now.utc_ns.saturating_add(i64::from(scale_minus_utc_s) * SECOND_NS);
        let resolver = InstantResolver { notation: self, now_ns, zone };
        let ns = resolver.instant_ns()?;
        if ns < now_ns && !allow_past {
            return Err(InstantResolveError::Past(TimescaleInstant { scale, ns }.to_string()));
        }
        Ok(TimescaleInstant { scale, ns })
    }

    fn out_of_range(&self) -> InstantResolveError {
        InstantResolveError::OutOfRange(self.to_string())
    }
}

/// Largest number of years from one 29 February to the next: 8 around 2100, which is not a leap
/// year.
const LEAP_YEAR_GAP_MAX: usize = 8;

struct InstantResolver<'a> {
    notation: &'a TimeNotation,
    now_ns: i64,
    zone: TimeZone,
}

impl InstantResolver<'_> {
    fn instant_ns(&self) -> Result<i64, InstantResolveError> {
        let (increments, out_of_range) =
            (&self.notation.increments, || self.notation.out_of_range());
        let now = Timestamp::from_nanosecond(self.now_ns.into()).map_err(|_| out_of_range())?;
        let present = now.to_zoned(self.zone.clone()).datetime();
        let has_calendar_unit = increments.iter().any(|shift| shift.unit.length_ns().is_none());
        let start = match self.notation.time {
            TimeOfDaySpec::Epoch(ns) => Some(ns),
            TimeOfDaySpec::Now if self.notation.date.is_none() => Some(self.now_ns),
            TimeOfDaySpec::Now | TimeOfDaySpec::Clock(_) => None,
        };
        match start {
            Some(ns) if !has_calendar_unit => self.add_fixed_increments(ns),
            Some(ns) => {
                let start = Timestamp::from_nanosecond(ns.into()).map_err(|_| out_of_range())?;
                self.resolve_civil(start.to_zoned(self.zone.clone()).datetime())
            }
            None => {
                let time = match self.notation.time {
                    TimeOfDaySpec::Clock(time) => time,
                    TimeOfDaySpec::Now | TimeOfDaySpec::Epoch(_) => present.time(),
                };
                self.resolve_day(present.date(), time)
            }
        }
    }

    /// Resolves the time of day on the day of the notation. Without a day or with a weekday, a time
    /// that has passed means the next day or the next week.
    fn resolve_day(&self, today: Date, time: Time) -> Result<i64, InstantResolveError> {
        let days_later = |days: i64| {
            let span = Span::new().try_days(days);
            span.and_then(|span| today.checked_add(span)).map_err(|_| self.notation.out_of_range())
        };
        let (first, repeat_days) = match self.notation.date {
            None => (today, Some(1)),
            Some(DaySpec::Today) => (today, None),
            Some(DaySpec::Tomorrow) => (days_later(1)?, None),
            Some(DaySpec::Date(date)) => (date, None),
            Some(DaySpec::Weekday { day, next }) => {
                let days = i64::from(today.weekday().until(day));
                if next && days == 0 {
                    (days_later(7)?, None)
                } else {
                    (days_later(days)?, Some(7))
                }
            }
            Some(DaySpec::MonthDay { month, day }) => {
                return self.resolve_month_day(today, month, day, time);
            }
        };
        let ns = self.resolve_civil(first.to_datetime(time));
        let Some(days) = repeat_days else { return ns };
        match ns {
            Ok(ns) if ns >= self.now_ns => Ok(ns),
            // Skipped by the clocks, but not yet past.
            Err(error @ InstantResolveError::Gap { .. })
                if first.to_datetime(time) > self.civil_now() =>
            {
                Err(error)
            }
            Ok(_) | Err(InstantResolveError::Gap { .. }) => {
                let span = Span::new().try_days(days).map_err(|_| self.notation.out_of_range())?;
                let repeated_date =
                    first.checked_add(span).map_err(|_| self.notation.out_of_range())?;
                self.resolve_civil(repeated_date.to_datetime(time))
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the date and time that the clocks of the zone show now.
    fn civil_now(&self) -> DateTime {
        let now = Timestamp::from_nanosecond(self.now_ns.into()).unwrap_or_default();
        now.to_zoned(self.zone.clone()).datetime()
    }

    /// Resolves the time in the first year that has this day and in which it has not passed.
    fn resolve_month_day(
        &self,
        today: Date,
        month: i8,
        day: i8,
        time: Time,
    ) -> Result<i64, InstantResolveError> {
        for year in (today.year()..).take(LEAP_YEAR_GAP_MAX + 1) {
            let Ok(date) = Date::new(year, month, day) else { continue };
            let start = date.to_datetime(time);
            match self.resolve_civil(start) {
                Ok(ns) if ns < self.now_ns => {}
                Err(InstantResolveError::Gap { .. }) if start <= self.civil_now() => {}
                answer => return answer,
            }
        }
        Err(self.notation.out_of_range())
    }

    /// Resolves a civil date and time of the zone: adds the calendar increments, converts the sum
    /// to an instant, and adds the increments of fixed length. A time that occurs twice means the
    /// first instant, or the second once the first has passed.
    fn resolve_civil(&self, start: DateTime) -> Result<i64, InstantResolveError> {
        let out_of_range = |_| self.notation.out_of_range();
        let mut civil = start;
        for increment in &self.notation.increments {
            civil = civil
                .checked_add(calendar_span(*increment).map_err(out_of_range)?)
                .map_err(out_of_range)?;
        }
        let offset = match self.zone.to_ambiguous_timestamp(civil).offset() {
            AmbiguousOffset::Unambiguous { offset } => offset,
            AmbiguousOffset::Gap { before, after } => {
                return Err(self.gap_error(civil, before, after));
            }
            AmbiguousOffset::Fold { before, after } => {
                // The first of the two instants, or the second once the first has passed.
                let first = before.to_timestamp(civil).map_err(out_of_range)?;
                if self.add_fixed_increments(timestamp_ns(first, self.notation)?)? >= self.now_ns {
                    before
                } else {
                    after
                }
            }
        };
        let time = offset.to_timestamp(civil).map_err(out_of_range)?;
        self.add_fixed_increments(timestamp_ns(time, self.notation)?)
    }

    /// Returns the error for a time that the clocks of the zone never show.
    fn gap_error(&self, civil: DateTime, before: Offset, after: Offset) -> InstantResolveError {
        // Interpreted with the offset before the change, the skipped time lies at or after the
        // change.
        let change = before.to_timestamp(civil).ok().and_then(|interpreted| {
            let next = interpreted.checked_add(Span::new().nanoseconds(1)).ok()?;
            self.zone.preceding(next).next().map(|change| change.timestamp())
        });
        let shown = |offset: Offset| change.map_or(civil, |change| offset.to_datetime(change));
        InstantResolveError::Gap {
            time: civil,
            zone: self.zone.iana_name().unwrap_or("the local time zone").to_owned(),
            from: shown(before),
            to: shown(after),
            before,
            after,
        }
    }

    /// Adds the increments of fixed length, in order.
    fn add_fixed_increments(&self, ns: i64) -> Result<i64, InstantResolveError> {
        let add = |ns: i64, increment: &TimeIncrement| {
            let Some(length_ns) = increment.unit.length_ns() else { return Some(ns) };
            let by_ns = length_ns.checked_mul(increment.amount.into())?;
            if increment.is_negative { ns.checked_sub(by_ns) } else { ns.checked_add(by_ns) }
        };
        let sum = self.notation.increments.iter().try_fold(ns, add);
        sum.ok_or_else(|| self.notation.out_of_range())
    }
}

/// Formats a date and time to the minute.
fn minute(time: DateTime) -> String {
    time.strftime("%Y-%m-%d %H:%M").to_string()
}

fn timestamp_ns(time: Timestamp, notation: &TimeNotation) -> Result<i64, InstantResolveError> {
    i64::try_from(time.as_nanosecond()).map_err(|_| notation.out_of_range())
}

/// Returns the calendar part of an increment: zero for one of fixed length. One month after the
/// 31st is the last day of the next month.
fn calendar_span(increment: TimeIncrement) -> Result<Span, jiff::Error> {
    let amount = i64::from(increment.amount) * if increment.is_negative { -1 } else { 1 };
    let span = Span::new();
    match increment.unit {
        IncrementUnit::Day => span.try_days(amount),
        IncrementUnit::Week => span.try_weeks(amount),
        IncrementUnit::Month => span.try_months(amount),
        IncrementUnit::Year => span.try_years(amount),
        IncrementUnit::Millisecond
        | IncrementUnit::Second
        | IncrementUnit::Minute
        | IncrementUnit::Hour => Ok(span),
    }
}
