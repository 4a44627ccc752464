//! WHEN, in words, with the flags that say what it is counted by, to an instant.

use std::time::Duration;

use clap::Args;
use horolog_launch::notation::{Notation, NotationError, Now, ResolveError, Zone};
use horolog_launch::{Instant, Scale};
use horolog_sys::adjtimex::kernel_clock;
use horolog_sys::alarm_clock::AlarmClock;
use jiff::tz::TimeZone;

use crate::failure::Failure;

const SECOND_NS: i64 = 1_000_000_000;

/// When, and by which timescale.
#[derive(Args, Debug)]
pub(super) struct MomentArgs {
    /// When; several words are one.
    #[arg(value_name = "WHEN")]
    when: Vec<String>,
    /// WHEN is in UTC.
    #[arg(long, conflicts_with = "tai")]
    utc: bool,
    /// WHEN is in TAI.
    #[arg(long)]
    tai: bool,
    /// How far TAI is ahead of UTC in seconds, where the kernel does not know.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(i32).range(10..=200))]
    tai_offset: Option<i32>,
    /// An instant that is past is met at once.
    #[arg(long, hide = true)]
    past_too: bool,
}

impl MomentArgs {
    /// How far TAI is ahead of UTC in seconds, as far as is known.
    pub(super) fn tai_ahead_s(&self) -> i32 {
        let kernel_s = kernel_clock().map_or(0, |clock| clock.tai_offset_s);
        if kernel_s == 0 { self.tai_offset.unwrap_or(0) } else { kernel_s }
    }

    /// The instant; of a series it may be past.
    pub(super) fn instant(&self, every: Option<Duration>) -> Result<Instant, Failure> {
        let kernel_s = kernel_clock().map_or(0, |clock| clock.tai_offset_s);
        let kernel_s = (kernel_s != 0).then_some(kernel_s);
        if let (Some(told), Some(known)) = (self.tai_offset, kernel_s)
            && told != known
        {
            return Err(Failure::usage(format!(
                "the kernel says that TAI is {known} s ahead of UTC, and --tai-offset {told}; \
                 leave it out"
            )));
        }
        let now = Now {
            utc_ns: AlarmClock::Realtime.now_ns(),
            tai_minus_utc_s: kernel_s.or(self.tai_offset),
            zone: TimeZone::system(),
        };
        let instant = self.resolved(&now, every)?;
        Ok(match (instant.scale, kernel_s) {
            // The kernel's TAI clock shows UTC: it is waited for by UTC.
            (Scale::Tai, None) => {
                let ahead_ns = i64::from(self.tai_offset.unwrap_or(0)) * SECOND_NS;
                Instant { scale: Scale::Utc, ns: instant.ns.saturating_sub(ahead_ns) }
            }
            _ => instant,
        })
    }

    fn resolved(&self, now: &Now, every: Option<Duration>) -> Result<Instant, Failure> {
        let zone = match (self.utc, self.tai) {
            (true, _) => Zone::Utc,
            (_, true) => Zone::Tai,
            _ => Zone::Local,
        };
        let text = self.when.join(" ");
        if let (true, Some(_)) = (text.trim().is_empty(), every) {
            let scale = if self.tai { Scale::Tai } else { Scale::Utc };
            if self.tai && now.tai_minus_utc_s.is_none() {
                return Err(ResolveError::TaiUnknown.into());
            }
            return Ok(Instant { scale, ns: 0 });
        }
        let notation: Notation = text.parse()?;
        Ok(notation.resolve(now, zone, self.past_too || every.is_some())?)
    }
}

/// An instant, and what the clock on the wall shows then.
pub(super) fn shown(instant: Instant) -> String {
    let local = instant.local(&TimeZone::system()).filter(|local| !local.ends_with(" UTC"));
    let local = local.map_or_else(String::new, |local| format!(" ({local})"));
    format!("{instant}{local}")
}

impl From<NotationError> for Failure {
    fn from(error: NotationError) -> Self {
        Self::usage(error)
    }
}

impl From<ResolveError> for Failure {
    fn from(error: ResolveError) -> Self {
        match error {
            ResolveError::TaiUnknown => Self::environment(error),
            error => Self::usage(error),
        }
    }
}
