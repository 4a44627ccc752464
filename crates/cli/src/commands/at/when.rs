//! Flags for the start time of `horolog at`: WHEN and its timescale, resolved to an instant.

use std::env;
use std::time::Duration;

use clap::Args;
use horolog_launch::notation::{
    InstantResolveError, PresentTime, TimeNotation, TimeNotationError, ZoneOrTimescale,
};
use horolog_launch::{InstantTimescale, TimescaleInstant, kernel_tai_minus_utc_s};
use jiff::tz::TimeZone;

use crate::failure::CommandFailure;

const SECOND_NS: i64 = 1_000_000_000;

/// Instant and its timescale.
#[derive(Args, Debug)]
pub(super) struct StartTimeArgs {
    /// Time of the start, in one or several words.
    #[arg(value_name = "WHEN")]
    when: Vec<String>,
    /// Interpret WHEN as UTC.
    #[arg(long, conflicts_with = "tai")]
    utc: bool,
    /// Interpret WHEN as TAI.
    #[arg(long)]
    tai: bool,
    /// Offset of TAI from UTC in seconds, for a kernel that does not report it.
    #[arg(long, value_name = "SECONDS", value_parser = parse_tai_offset)]
    tai_offset: Option<i32>,
    /// Accept an instant in the past and run at once.
    #[arg(long, hide = true)]
    allow_past: bool,
}

/// Parses TAI minus UTC in whole seconds, 10 to 200.
fn parse_tai_offset(text: &str) -> Result<i32, String> {
    let ahead_s = text.parse().ok().filter(|ahead_s| (10..=200).contains(ahead_s));
    ahead_s.ok_or_else(|| "expected whole seconds from 10 to 200, such as 37".into())
}

impl StartTimeArgs {
    /// Returns TAI minus UTC in seconds: the kernel's value, otherwise that of `--tai-offset`,
    /// otherwise 0.
    pub(super) fn tai_minus_utc_s(&self) -> i32 {
        kernel_tai_minus_utc_s().or(self.tai_offset).unwrap_or(0)
    }

    /// Returns the instant of the first start. It may be in the past if the commands are repeated
    /// (`every`) or with `--allow-past`.
    pub(super) fn instant(
        &self,
        every: Option<Duration>,
    ) -> Result<TimescaleInstant, CommandFailure> {
        let utc_ns = InstantTimescale::Utc.clock().now_ns();
        self.instant_at(utc_ns, local_zone()?, kernel_tai_minus_utc_s(), every)
    }

    /// Returns the instant of the first start, resolved at the present time `utc_ns` (Unix time in
    /// ns). `kernel_s` is the kernel's TAI minus UTC in seconds, if it is set.
    fn instant_at(
        &self,
        utc_ns: i64,
        zone: TimeZone,
        kernel_s: Option<i32>,
        every: Option<Duration>,
    ) -> Result<TimescaleInstant, CommandFailure> {
        if let (Some(configured), Some(known)) = (self.tai_offset, kernel_s)
            && configured != known
        {
            return Err(CommandFailure::usage(format!(
                "the kernel has TAI {known} s ahead of UTC, but --tai-offset is {configured}; omit it"
            )));
        }
        let now = PresentTime { utc_ns, tai_minus_utc_s: kernel_s.or(self.tai_offset), zone };
        let instant = self.resolve_instant(&now, every)?;
        Ok(match (instant.scale, kernel_s) {
            // CLOCK_TAI equals UTC as long as the kernel's offset is not set: wait by UTC instead.
            (InstantTimescale::Tai, None) => {
                let ahead_ns = i64::from(self.tai_offset.unwrap_or(0)) * SECOND_NS;
                TimescaleInstant {
                    scale: InstantTimescale::Utc,
                    ns: instant.ns.saturating_sub(ahead_ns),
                }
            }
            _ => instant,
        })
    }

    fn resolve_instant(
        &self,
        now: &PresentTime,
        every: Option<Duration>,
    ) -> Result<TimescaleInstant, CommandFailure> {
        let zone = match (self.utc, self.tai) {
            (true, _) => ZoneOrTimescale::Utc,
            (_, true) => ZoneOrTimescale::Tai,
            _ => ZoneOrTimescale::Local,
        };
        let text = self.when.join(" ");
        if let (true, Some(every)) = (text.trim().is_empty(), every) {
            let (scale, ahead_s) = if self.tai {
                (InstantTimescale::Tai, now.tai_minus_utc_s.ok_or(InstantResolveError::TaiUnknown)?)
            } else {
                (InstantTimescale::Utc, 0)
            };
            let now_ns = now.utc_ns.saturating_add(i64::from(ahead_s) * SECOND_NS);
            let every_ns = i64::try_from(every.as_nanos()).unwrap_or(i64::MAX).max(1);
            let periods = now_ns.div_euclid(every_ns).saturating_add(1);
            return Ok(TimescaleInstant { scale, ns: periods.saturating_mul(every_ns) });
        }
        let notation: TimeNotation = text.parse()?;
        Ok(notation.resolve(now, zone, self.allow_past || every.is_some())?)
    }
}

/// Returns true if the instant is in the future.
pub(super) fn is_future(instant: TimescaleInstant) -> bool {
    instant.ns > instant.scale.clock().now_ns()
}

/// Returns the local time zone, or UTC if the system has none. It is an error if TZ names a zone
/// that does not exist.
fn local_zone() -> Result<TimeZone, CommandFailure> {
    match (TimeZone::try_system(), env::var_os("TZ")) {
        (Err(_), Some(name)) => Err(CommandFailure::usage(format!(
            "TZ is '{}', which is not a time zone of this host; 'ls /usr/share/zoneinfo' lists \
             them (package tzdata)",
            name.display()
        ))),
        (zone, _) => Ok(zone.unwrap_or(TimeZone::UTC)),
    }
}

/// Formats an instant, followed by the local time in parentheses unless that is UTC.
pub(super) fn format_with_local_time(instant: TimescaleInstant) -> String {
    let local = instant.format_local(&TimeZone::system()).filter(|local| !local.ends_with(" UTC"));
    let local = local.map_or_else(String::new, |local| format!(" ({local})"));
    format!("{instant}{local}")
}

impl From<TimeNotationError> for CommandFailure {
    fn from(error: TimeNotationError) -> Self {
        Self::usage(error)
    }
}

impl From<InstantResolveError> for CommandFailure {
    fn from(error: InstantResolveError) -> Self {
        match error {
            InstantResolveError::TaiUnknown => Self::environment(error),
            error => Self::usage(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    /// 2027-01-15T08:00:00Z.
    const NOW_S: i64 = 1_800_000_000;

    #[derive(Parser)]
    struct Words {
        #[command(flatten)]
        start_time: StartTimeArgs,
    }

    fn instant(
        words: &[&str],
        kernel_s: i32,
        every: Option<Duration>,
    ) -> Result<TimescaleInstant, CommandFailure> {
        let words = Words::try_parse_from([&["at"], words].concat()).unwrap();
        let kernel_s = (kernel_s != 0).then_some(kernel_s);
        words.start_time.instant_at(NOW_S * SECOND_NS, TimeZone::UTC, kernel_s, every)
    }

    fn in_s(scale: InstantTimescale, s: i64) -> TimescaleInstant {
        TimescaleInstant { scale, ns: s * SECOND_NS }
    }

    #[test]
    fn tai_is_waited_for_by_its_own_clock_where_the_kernel_knows_it() {
        let tai = |words: &[&str], kernel_s| instant(words, kernel_s, None).unwrap();
        // When it is 8:00:00 UTC, TAI shows 8:00:37.
        assert_eq!(tai(&["8:01", "TAI"], 37), in_s(InstantTimescale::Tai, NOW_S + 60));
        assert_eq!(tai(&["--tai", "8:00:38"], 37), in_s(InstantTimescale::Tai, NOW_S + 38));
        assert_eq!(tai(&["now", "+", "1min", "TAI"], 37), in_s(InstantTimescale::Tai, NOW_S + 97));
        assert_eq!(tai(&["8:01", "TAI", "--tai-offset", "37"], 37).scale, InstantTimescale::Tai);
        // 8:00:36 TAI has been, and is tomorrow's.
        assert_eq!(tai(&["8:00:36", "TAI"], 37), in_s(InstantTimescale::Tai, NOW_S + 86_400 + 36));
        // UTC is not touched by it.
        assert_eq!(tai(&["--utc", "8:01"], 37), in_s(InstantTimescale::Utc, NOW_S + 60));
    }

    #[test]
    fn error_of_invalid_tai_offset_has_an_example() {
        assert_eq!(parse_tai_offset("37"), Ok(37));
        for wrong in ["foo", "9", "201", "37.5", ""] {
            assert!(
                parse_tai_offset(wrong).is_err_and(|why| why.contains("such as 37")),
                "{wrong}"
            );
        }
    }

    #[test]
    fn leap_second_is_expressible_in_tai_only() {
        // 23:59:60 UTC at the end of 2016 was 0:00:36 TAI.
        let leap = ["2017-01-01", "0:00:36", "TAI", "--allow-past"];
        assert_eq!(instant(&leap, 37, None).unwrap(), in_s(InstantTimescale::Tai, 1_483_228_836));
    }

    #[test]
    fn where_the_kernel_does_not_know_tai_it_is_waited_for_by_utc() {
        let resolved = instant(&["8:01", "TAI", "--tai-offset", "37"], 0, None).unwrap();
        assert_eq!(resolved, in_s(InstantTimescale::Utc, NOW_S + 60 - 37));
        let unknown = instant(&["8:01", "TAI"], 0, None).unwrap_err();
        assert!(matches!(unknown, CommandFailure::Environment(_)), "{unknown:?}");
        let contradicts = instant(&["8:01", "TAI", "--tai-offset", "36"], 37, None).unwrap_err();
        assert!(matches!(contradicts, CommandFailure::Usage(_)), "{contradicts:?}");
    }

    #[test]
    fn a_series_in_tai_is_on_whole_periods_of_tai() {
        let every = Some(Duration::from_mins(1));
        // It is a whole minute of UTC, and 37 seconds past one of TAI: the next ones.
        assert_eq!(instant(&[], 37, every).unwrap(), in_s(InstantTimescale::Utc, NOW_S + 60));
        assert_eq!(
            instant(&["--tai"], 37, every).unwrap(),
            in_s(InstantTimescale::Tai, NOW_S + 60)
        );
        let by_utc = instant(&["--tai", "--tai-offset", "37"], 0, every).unwrap();
        assert_eq!(by_utc, in_s(InstantTimescale::Utc, NOW_S + 60 - 37));
        assert!(instant(&["--tai"], 0, every).is_err());
    }
}
