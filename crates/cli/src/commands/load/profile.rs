//! Flags of a load whose rate follows a load profile: a soak, a profile from a file, an overload.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use horolog_load::load_profile::LoadProfile;
use horolog_load::{LoadJob, OverloadTest, profile_file};

use crate::failure::CommandFailure;
use crate::values;

/// Load profile: the course of the rate over time.
#[derive(Args, Debug, Default)]
pub(crate) struct ProfileArgs {
    /// Hold the rate of -r for this time (such as 90s, 30m, 24h) and count each interval
    /// separately, without gaps between them; Ctrl-C ends it with the result so far.
    #[arg(long, value_name = "TIME", value_parser = values::long_duration, requires = "rate",
          conflicts_with_all = ["search", "time", "profile", "overload"])]
    soak: Option<Duration>,
    /// Follow the phases of a TOML file: [[phase]] tables with the keys name, rate, to (for a rate
    /// that changes linearly) and duration, preceded by the key interval.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["search", "time", "rate", "overload"])]
    profile: Option<PathBuf>,
    /// Send R/2, then FACTOR times R, then R/2 again, where R is the rate of -r or the one that a
    /// search found, and report the recovery time; -t is the duration of the first two phases
    /// [default factor: 3].
    #[arg(long, value_name = "FACTOR", num_args = 0..=1, default_missing_value = "3",
          value_parser = factor)]
    overload: Option<f64>,
    /// Length of the intervals of a soak, profile or overload [default: 1s in a soak, 100ms
    /// otherwise].
    #[arg(long, value_name = "TIME", value_parser = values::positive_duration)]
    interval: Option<Duration>,
}

fn factor(text: &str) -> Result<f64, String> {
    let factor = text.parse::<f64>().ok().filter(|factor| (1.0..=1000.0).contains(factor));
    factor.ok_or_else(|| "expected a factor of the rate from 1 to 1000, such as 3".to_owned())
}

/// Kind of the rows of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RowKind {
    /// A row for each trial.
    Trials,
    /// A row for each phase, with its name.
    Phases,
    /// A row for each interval.
    Intervals,
}

impl ProfileArgs {
    /// The kind of the rows.
    pub(crate) const fn rows(&self) -> RowKind {
        if self.soak.is_some() {
            RowKind::Intervals
        } else if self.profile.is_some() || self.overload.is_some() {
            RowKind::Phases
        } else {
            RowKind::Trials
        }
    }

    /// The overload options, if requested; `time` is the duration of its phases.
    pub(crate) fn overload(&self, time: Option<Duration>, searches: bool) -> Option<OverloadTest> {
        let usual = OverloadTest::default();
        Some(OverloadTest {
            factor: self.overload?,
            // A search uses it differently.
            time: time.filter(|_| !searches).unwrap_or(usual.time),
            interval: self.interval.unwrap_or(usual.interval),
            ..usual
        })
    }

    /// The job, if the rate follows a load profile from the start.
    pub(crate) fn job(
        &self,
        rate: Option<(f64, f64)>,
        searches: bool,
    ) -> Result<Option<LoadJob>, CommandFailure> {
        let one_rate = || match rate {
            Some((low, high)) if low.total_cmp(&high).is_eq() => Ok(low),
            Some(_) => Err(CommandFailure::usage("give one rate with -r, not a range")),
            None => Err(CommandFailure::usage("give the rate with -r, or search it with --search")),
        };
        if let Some(duration) = self.soak {
            let profile = LoadProfile::soak(one_rate()?, duration, self.interval);
            return profile.map(LoadJob::Profile).map(Some).map_err(CommandFailure::usage);
        }
        if let Some(path) = &self.profile {
            let text = fs::read_to_string(path).map_err(|error| {
                CommandFailure::usage(format!(
                    "cannot read the profile {}: {error}",
                    path.display()
                ))
            })?;
            let profile = profile_file::parse(&text, self.interval)
                .map_err(|fault| CommandFailure::usage(format!("{}: {fault}", path.display())))?;
            return Ok(Some(LoadJob::Profile(profile)));
        }
        if self.overload.is_some() && !searches {
            return one_rate().map(LoadJob::Overload).map(Some);
        }
        if self.interval.is_some() && self.overload.is_none() {
            let reason = "--interval is for --soak, --profile and --overload; add one of them";
            return Err(CommandFailure::usage(reason));
        }
        Ok(None)
    }
}
