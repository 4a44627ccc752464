//! Flags of `horolog serve` for the time sources.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::path::PathBuf;

use clap::Args;
use horolog_server::{PlausibilityConfig, SourceConfig};
use horolog_source::{PlausibilityRuleParameters, SourceSpec};
use horolog_time::{NS_PER_S, Timestamp, Utc};
use jiff::civil::Date;
use jiff::tz::TimeZone;

use crate::build_date::BUILD_DATE;
use crate::failure::CommandFailure;

#[derive(Args, Debug)]
pub(crate) struct ServeTimeSourceArgs {
    /// Time source. Repeatable; the majority of several decides [default: system; none with --local
    /// or --gnss].
    ///
    /// system: the system clock, with the state that chronyd (at its socket, then at 127.0.0.1:323)
    /// or ntpd (at 127.0.0.1:123) reports, otherwise the kernel. To use one of them only:
    /// system:kernel, system,chronyd=PATH, system,chronyd=ADDR:PORT, system,ntpd=ADDR:PORT. Beside
    /// ntpd, which occupies port 123 of its addresses, this server needs --listen with another
    /// port.
    ///
    /// phc:/dev/ptpN: a PTP hardware clock, on TAI (scale=tai, with tai-offset=SECONDS if the
    /// kernel does not have it) or on UTC (scale=utc). shm:UNIT: shared memory, as in ntpd's SHM
    /// reference clock driver. sock:PATH: a socket, as in chronyd's SOCK reference clock driver.
    /// gpsd[:HOST:PORT]. gnss:/dev/LINE: the NMEA sentences of a GNSS receiver on a serial line,
    /// with baud=N (9600); unlike --gnss it does not discipline the clock. All kinds but system
    /// take stratum=N (1 to 15, served while the source is selected), refid=ID, offset=TIME (added
    /// to the source's time) and uncertainty=TIME (added to its error bound).
    #[arg(long, value_name = "KIND[:ARG][,KEY=VALUE...]", conflicts_with = "local")]
    source: Vec<String>,
    /// Earliest plausible time; an earlier one is not served and sets no clock. A date from 1970 to
    /// 2149, as in 2026-11-26, or with a time of day, as in 2026-11-26T08:30:00Z [default: the
    /// build date of this program].
    #[arg(long, value_name = "DATE", value_parser = instant)]
    plausible_from: Option<Timestamp<Utc>>,
    /// Years after --plausible-from in which a time is plausible, 1 to 100.
    #[arg(long, value_name = "N", default_value_t = PlausibilityRuleParameters::DEFAULT_VALIDITY_YEARS,
          value_parser = clap::value_parser!(u16).range(1..=100))]
    plausible_years: u16,
    /// File in which a confirmed time is saved every hour and at the end [default: saved-time in
    /// $STATE_DIRECTORY, as set by systemd, otherwise none].
    ///
    /// After the next start, a source's time that is more than a day earlier than the saved time is
    /// used only if another source agrees with it or the operator confirms it by SIGHUP.
    #[arg(long, value_name = "FILE")]
    saved_time: Option<PathBuf>,
}

/// Exclusive upper limit of `--plausible-from`, 2150-01-01T00:00:00Z: with the 100 years of
/// `--plausible-years` added, it is in the range of [`Timestamp`].
const INSTANT_END: Timestamp<Utc> = Timestamp::from_ns(5_680_281_600 * NS_PER_S);

/// Parses a date, which stands for its midnight in UTC, or an RFC 3339 date and time, to whole
/// seconds. The range is 1970 to 2149.
fn instant(text: &str) -> Result<Timestamp<Utc>, String> {
    let instant = match text.parse::<Date>() {
        Ok(date) if !text.contains(['T', ' ']) => {
            date.to_zoned(TimeZone::UTC).map(|zoned| zoned.timestamp())
        }
        _ => text.parse::<jiff::Timestamp>(),
    };
    let instant = instant.map_err(|_| {
        format!("'{text}' is not a date; write it as in 2026-11-26 or 2026-11-26T08:30:00Z")
    })?;
    let instant = Timestamp::from_timespec(instant.as_second(), 0);
    if !(Timestamp::from_ns(0)..INSTANT_END).contains(&instant) {
        return Err(format!("'{text}' is out of range: give a date from 1970 to 2149"));
    }
    Ok(instant)
}

impl ServeTimeSourceArgs {
    /// Resolves the range of plausible times and the file of the saved time.
    pub(crate) fn plausibility(&self) -> PlausibilityConfig {
        let state_directory =
            || std::env::var_os("STATE_DIRECTORY").filter(|path| !path.is_empty());
        let default_path = || state_directory().map(|path| PathBuf::from(path).join("saved-time"));
        PlausibilityConfig {
            build: self.plausible_from.unwrap_or(BUILD_DATE),
            reach: PlausibilityRuleParameters::span_of_years(self.plausible_years),
            saved_time: self.saved_time.clone().or_else(default_path),
        }
    }

    /// Resolves the time sources. Without `--source`, the system clock is the only one, or none if
    /// `local` (for `--local` and `--gnss`). `keep_stratum` and `keep_root_delay` are true if flags
    /// set these values, which then take precedence over those of the sources.
    pub(crate) fn resolve(
        self,
        local: bool,
        keep_stratum: bool,
        keep_root_delay: bool,
    ) -> Result<SourceConfig, CommandFailure> {
        let texts = match (self.source.is_empty(), local) {
            (true, true) => Vec::new(),
            (true, false) => vec!["system".to_owned()],
            (false, _) => self.source,
        };
        let parse = |text: &String| {
            text.parse::<SourceSpec>()
                .map_err(|error| CommandFailure::usage(format!("--source {text}: {error}")))
        };
        let sources = texts.iter().map(parse).collect::<Result<_, _>>()?;
        Ok(SourceConfig { sources, keep_stratum, keep_root_delay })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_in_utc() {
        let at = |seconds| Ok(Timestamp::from_timespec(seconds, 0));
        assert_eq!(instant("2026-11-26"), at(1_795_651_200));
        assert_eq!(instant("2026-11-26T08:30:00Z"), at(1_795_681_800));
        assert_eq!(instant("2026-11-26T08:30:00+01:00"), at(1_795_678_200));
        for wrong in ["", "2026", "26.11.2026", "2026-11-26T08:30:00", "2026-13-01", "0x7f"] {
            assert!(instant(wrong).unwrap_err().contains("as in 2026-11-26"), "{wrong}");
        }
        assert_eq!(instant("2149-12-31"), at(5_680_195_200));
        for never in ["9999-01-01", "2150-01-01", "1969-12-31"] {
            assert!(instant(never).unwrap_err().contains("out of range"), "{never}");
        }
    }
}
