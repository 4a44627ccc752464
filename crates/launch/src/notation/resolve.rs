//! When a notation is: a pure function of it, the present, the time zone and how far TAI is ahead.

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::{AmbiguousOffset, Offset, TimeZone};
use jiff::{Span, Timestamp};

use super::{DateWord, Notation, NotationError, Shift, TimeWord, Unit, Zone};
use crate::instant::{Instant, SECOND_NS, Scale};

/// The present, and what local time is.
#[derive(Clone, Debug)]
pub struct Now {
    /// UTC, in ns since 1970.
    pub utc_ns: i64,
    /// How far TAI is ahead of UTC in seconds, where that is known.
    pub tai_minus_utc_s: Option<i32>,
    /// This machine's time zone.
    pub zone: TimeZone,
}

/// Why there is no such instant.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ResolveError {
    /// The calendar has no such day.
    #[error(transparent)]
    Notation(#[from] NotationError),
    /// It has been.
    #[error("{0} is past; write a later one, such as 'now + 2 minutes' or '21:00 tomorrow'")]
    Past(String),
    /// Clocks are set forward over it.
    #[error(
        "{} does not exist in {zone}: clocks go from {} straight to {} (UTC{before} becomes \
         UTC{after}); write a time before or after the change, or --utc",
        minute(*time), minute(*from), minute(*to)
    )]
    Gap {
        /// The time that there is not.
        time: DateTime,
        /// The time zone.
        zone: String,
        /// What clocks show when they are set forward.
        from: DateTime,
        /// And right after.
        to: DateTime,
        /// The offset from UTC before.
        before: Offset,
        /// And after.
        after: Offset,
    },
    /// The kernel does not know TAI.
    #[error(
        "the kernel does not know how far TAI is ahead of UTC; let the daemon that keeps the clock \
         set it (chronyd: leapsectz right/UTC), or give it with --tai-offset 37"
    )]
    TaiUnknown,
    /// It is out of the reach of the clocks.
    #[error("{0} is beyond the reach of the clock; write an instant before the year 2262")]
    Reach(String),
}

impl Notation {
    /// When it is. What has no zone of its own is in `zone`. An instant that is past is an error,
    /// unless `past_too`.
    pub fn resolve(&self, now: &Now, zone: Zone, past_too: bool) -> Result<Instant, ResolveError> {
        let zone = self.zone.unwrap_or(zone);
        let (zone, scale) = match zone {
            Zone::Local => (now.zone.clone(), Scale::Utc),
            Zone::Utc => (TimeZone::UTC, Scale::Utc),
            Zone::Tai => (TimeZone::UTC, Scale::Tai),
            Zone::Offset(seconds) => {
                let offset = Offset::from_seconds(seconds);
                (offset.map_err(|_| self.reach())?.to_time_zone(), Scale::Utc)
            }
        };
        let ahead_s = match scale {
            Scale::Utc => 0,
            Scale::Tai => now.tai_minus_utc_s.ok_or(ResolveError::TaiUnknown)?,
        };
        let now_ns = now.utc_ns.saturating_add(i64::from(ahead_s) * SECOND_NS);
        let resolver = Resolver { notation: self, now_ns, zone };
        let ns = resolver.instant()?;
        if ns < now_ns && !past_too {
            return Err(ResolveError::Past(Instant { scale, ns }.to_string()));
        }
        Ok(Instant { scale, ns })
    }

    fn reach(&self) -> ResolveError {
        ResolveError::Reach(self.to_string())
    }
}

struct Resolver<'a> {
    notation: &'a Notation,
    now_ns: i64,
    zone: TimeZone,
}

impl Resolver<'_> {
    fn instant(&self) -> Result<i64, ResolveError> {
        let (shifts, reach) = (&self.notation.shifts, || self.notation.reach());
        let now = Timestamp::from_nanosecond(self.now_ns.into()).map_err(|_| reach())?;
        let present = now.to_zoned(self.zone.clone()).datetime();
        let by_calendar = shifts.iter().any(|shift| shift.unit.length_ns().is_none());
        let start = match self.notation.time {
            TimeWord::Epoch(ns) => Some(ns),
            TimeWord::Now if self.notation.date.is_none() => Some(self.now_ns),
            TimeWord::Now | TimeWord::Clock(_) => None,
        };
        match start {
            Some(ns) if !by_calendar => self.later(ns),
            Some(ns) => {
                let start = Timestamp::from_nanosecond(ns.into()).map_err(|_| reach())?;
                self.of_civil(start.to_zoned(self.zone.clone()).datetime())
            }
            None => {
                let time = match self.notation.time {
                    TimeWord::Clock(time) => time,
                    TimeWord::Now | TimeWord::Epoch(_) => present.time(),
                };
                self.of_day(present.date(), time)
            }
        }
    }

    /// On the first day that is meant, or on the next one of its kind once that has passed.
    fn of_day(&self, today: Date, time: Time) -> Result<i64, ResolveError> {
        let after = |days: i64| {
            let span = Span::new().try_days(days);
            span.and_then(|span| today.checked_add(span)).map_err(|_| self.notation.reach())
        };
        let (first, again) = match self.notation.date {
            None => (today, Some(1)),
            Some(DateWord::Today) => (today, None),
            Some(DateWord::Tomorrow) => (after(1)?, None),
            Some(DateWord::Date(date)) => (date, None),
            Some(DateWord::Weekday { day, next }) => {
                let days = i64::from(today.weekday().until(day));
                if next && days == 0 { (after(7)?, None) } else { (after(days)?, Some(7)) }
            }
            Some(DateWord::MonthDay { month, day }) => {
                return self.of_month_day(today, month, day, time);
            }
        };
        let ns = self.of_civil(first.to_datetime(time));
        let Some(days) = again else { return ns };
        match ns {
            Ok(ns) if ns >= self.now_ns => Ok(ns),
            // What was not today for want of the hour may yet be to come.
            Err(error @ ResolveError::Gap { .. }) if time > self.time_of_day() => Err(error),
            Ok(_) | Err(ResolveError::Gap { .. }) => {
                let span = Span::new().try_days(days).map_err(|_| self.notation.reach())?;
                let later = first.checked_add(span).map_err(|_| self.notation.reach())?;
                self.of_civil(later.to_datetime(time))
            }
            Err(error) => Err(error),
        }
    }

    fn time_of_day(&self) -> Time {
        let now = Timestamp::from_nanosecond(self.now_ns.into()).unwrap_or_default();
        now.to_zoned(self.zone.clone()).time()
    }

    /// This year, or next year once it has passed.
    fn of_month_day(
        &self,
        today: Date,
        month: i8,
        day: i8,
        time: Time,
    ) -> Result<i64, ResolveError> {
        let of = |year: i16| {
            let date = Date::new(year, month, day);
            let none = NotationError::Day { year: Some(year), month, day };
            self.of_civil(date.map_err(|_| none)?.to_datetime(time))
        };
        match of(today.year()) {
            Ok(ns) if ns < self.now_ns => of(today.year().saturating_add(1)),
            answer => answer,
        }
    }

    /// What the clocks of the zone show at it, with what is added.
    fn of_civil(&self, start: DateTime) -> Result<i64, ResolveError> {
        let reach = |_| self.notation.reach();
        let mut civil = start;
        for shift in &self.notation.shifts {
            civil = civil.checked_add(calendar_span(*shift).map_err(reach)?).map_err(reach)?;
        }
        let offset = match self.zone.to_ambiguous_timestamp(civil).offset() {
            AmbiguousOffset::Unambiguous { offset } => offset,
            AmbiguousOffset::Gap { before, after } => return Err(self.gap(civil, before, after)),
            AmbiguousOffset::Fold { before, after } => {
                // The first of the two, or the second once the first has passed.
                let first = before.to_timestamp(civil).map_err(reach)?;
                if self.later(ns_of(first, self.notation)?)? >= self.now_ns {
                    before
                } else {
                    after
                }
            }
        };
        let time = offset.to_timestamp(civil).map_err(reach)?;
        self.later(ns_of(time, self.notation)?)
    }

    /// Why clocks of the zone never show it.
    fn gap(&self, civil: DateTime, before: Offset, after: Offset) -> ResolveError {
        // Counted on by the offset of before, it is at the change or behind it.
        let change = before.to_timestamp(civil).ok().and_then(|behind| {
            let next = behind.checked_add(Span::new().nanoseconds(1)).ok()?;
            self.zone.preceding(next).next().map(|change| change.timestamp())
        });
        let shown = |offset: Offset| change.map_or(civil, |change| offset.to_datetime(change));
        ResolveError::Gap {
            time: civil,
            zone: self.zone.iana_name().unwrap_or("the local time zone").to_owned(),
            from: shown(before),
            to: shown(after),
            before,
            after,
        }
    }

    /// With the spans that are added, in order.
    fn later(&self, ns: i64) -> Result<i64, ResolveError> {
        let add = |ns: i64, shift: &Shift| {
            let Some(length_ns) = shift.unit.length_ns() else { return Some(ns) };
            let by_ns = length_ns.checked_mul(shift.amount.into())?;
            if shift.back { ns.checked_sub(by_ns) } else { ns.checked_add(by_ns) }
        };
        let sum = self.notation.shifts.iter().try_fold(ns, add);
        sum.ok_or_else(|| self.notation.reach())
    }
}

/// A time of day, to the minute.
fn minute(time: DateTime) -> String {
    time.strftime("%Y-%m-%d %H:%M").to_string()
}

fn ns_of(time: Timestamp, notation: &Notation) -> Result<i64, ResolveError> {
    i64::try_from(time.as_nanosecond()).map_err(|_| notation.reach())
}

/// What a shift adds by the calendar: nothing where it is a span of time. From the 31st a month on
/// is the last day of the next month.
fn calendar_span(shift: Shift) -> Result<Span, jiff::Error> {
    let amount = i64::from(shift.amount) * if shift.back { -1 } else { 1 };
    let span = Span::new();
    match shift.unit {
        Unit::Day => span.try_days(amount),
        Unit::Week => span.try_weeks(amount),
        Unit::Month => span.try_months(amount),
        Unit::Year => span.try_years(amount),
        Unit::Millisecond | Unit::Second | Unit::Minute | Unit::Hour => Ok(span),
    }
}
