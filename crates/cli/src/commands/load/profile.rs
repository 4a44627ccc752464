//! Flags of a load whose rate follows a load profile: a soak, a profile from a file, an overload.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use horolog_load::load_profile::LoadProfile;
use horolog_load::{LoadProcedure, OverloadTestOptions, profile_file};

use crate::failure::CommandFailure;
use crate::values;

/// Load profile: the course of the rate over time.
#[derive(Args, Debug, Default)]
pub(crate) struct LoadProfileArgs {
    /// Hold the rate of -r for this time (such as 90s, 30m, 24h) and count each interval
    /// separately, without gaps between them; Ctrl-C ends the soak with the result so far.
    #[arg(long, value_name = "TIME", value_parser = values::positive_duration, requires = "rate",
          conflicts_with_all = ["search", "time", "profile", "overload"])]
    soak: Option<Duration>,
    /// Follow the phases of a TOML file: [[phase]] tables with the keys name, rate, to (for a rate
    /// that changes linearly) and duration, after an optional key interval.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["search", "time", "rate", "overload"])]
    profile: Option<PathBuf>,
    /// Send R/2, then FACTOR times R, then R/2 again, where R is the rate of -r or the one that a
    /// search found, and report the recovery time [default factor: 3].
    ///
    /// Each of the first two phases lasts for the time of -t, or with --search for 2s; the third
    /// lasts twice as long.
    #[arg(long, value_name = "FACTOR", num_args = 0..=1, default_missing_value = "3",
          value_parser = parse_factor)]
    overload: Option<f64>,
    /// Length of the intervals of a soak, profile or overload; overrides the profile's key
    /// [default: 1s in a soak, otherwise 100ms].
    #[arg(long, value_name = "TIME", value_parser = values::positive_duration)]
    interval: Option<Duration>,
}

fn parse_factor(text: &str) -> Result<f64, String> {
    let factor = text.parse::<f64>().ok().filter(|factor| (1.0..=1000.0).contains(factor));
    factor.ok_or_else(|| "expected a factor of the rate from 1 to 1000, such as 3".to_owned())
}

/// Kind of the rows in the table of a load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LoadRowKind {
    /// One row per trial.
    Trials,
    /// One row per phase, with its name.
    Phases,
    /// One row per interval.
    Intervals,
}

impl LoadProfileArgs {
    /// Returns the kind of the table's rows.
    pub(crate) const fn row_kind(&self) -> LoadRowKind {
        if self.soak.is_some() {
            LoadRowKind::Intervals
        } else if self.profile.is_some() || self.overload.is_some() {
            LoadRowKind::Phases
        } else {
            LoadRowKind::Trials
        }
    }

    /// Returns the options of the overload test; `None` without --overload. `time` is the value of
    /// -t: the duration of each of the first two phases, unless the run includes a search.
    pub(crate) fn overload_test(
        &self,
        time: Option<Duration>,
        is_search: bool,
    ) -> Option<OverloadTestOptions> {
        let defaults = OverloadTestOptions::default();
        Some(OverloadTestOptions {
            factor: self.overload?,
            // In a search, -t is the duration of its full-length trials.
            time: time.filter(|_| !is_search).unwrap_or(defaults.time),
            interval: self.interval.unwrap_or(defaults.interval),
            ..defaults
        })
    }

    /// Returns the job of a soak, a profile file or an overload at the rate of -r; `None` for a
    /// ramp and a search. An error if the flags do not fit together.
    pub(crate) fn job(
        &self,
        rate: Option<(f64, f64)>,
        is_search: bool,
    ) -> Result<Option<LoadProcedure>, CommandFailure> {
        let one_rate = || match rate {
            Some((low, high)) if low.total_cmp(&high).is_eq() => Ok(low),
            Some(_) => Err(CommandFailure::usage("give one rate with -r, not a range")),
            None => Err(CommandFailure::usage("give the rate with -r, or search it with --search")),
        };
        if let Some(duration) = self.soak {
            let profile = LoadProfile::soak(one_rate()?, duration, self.interval);
            return profile.map(LoadProcedure::Profile).map(Some).map_err(CommandFailure::usage);
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
            return Ok(Some(LoadProcedure::Profile(profile)));
        }
        if self.overload.is_some() && !is_search {
            return one_rate().map(LoadProcedure::Overload).map(Some);
        }
        if self.interval.is_some() && self.overload.is_none() {
            let reason = "--interval is for --soak, --profile and --overload; add one of them";
            return Err(CommandFailure::usage(reason));
        }
        Ok(None)
    }
}
