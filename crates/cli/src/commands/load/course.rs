//! The flags of a load whose rate follows a course: a soak, a profile from a file, an overload.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use horolog_load::course::Course;
use horolog_load::{Job, Surge, profile};

use crate::failure::Failure;
use crate::values;

/// How the rate of a load goes on.
#[derive(Args, Debug, Default)]
pub(crate) struct CourseArgs {
    /// Hold the rate of -r for so long (such as 90s, 30m, 24h) and count each interval apart,
    /// without a gap between them; Ctrl-C ends it with the result so far.
    #[arg(long, value_name = "TIME", value_parser = values::long_duration, requires = "rate",
          conflicts_with_all = ["search", "time", "profile", "overload"])]
    soak: Option<Duration>,
    /// Follow the phases of a TOML file: [[phase]] tables with the keys name, rate, to (for a rate
    /// that rises or falls evenly) and duration, and interval before them.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["search", "time", "rate", "overload"])]
    profile: Option<PathBuf>,
    /// Offer half of the rate of -r, or of the one that a search found, then FACTOR times that
    /// rate, then the half again, and say how long after that all is as before; -t is how long the
    /// first two are held.
    #[arg(long, value_name = "FACTOR", num_args = 0..=1, default_missing_value = "3",
          value_parser = factor)]
    overload: Option<f64>,
    /// How finely a course is counted [default: 1s in a soak, 100ms otherwise].
    #[arg(long, value_name = "TIME", value_parser = values::positive_duration)]
    interval: Option<Duration>,
}

fn factor(text: &str) -> Result<f64, String> {
    let factor = text.parse::<f64>().ok().filter(|factor| (1.0..=1000.0).contains(factor));
    factor.ok_or_else(|| "write how many times the rate, from 1 to 1000, such as 3".to_owned())
}

/// How the rows of a run are told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rows {
    /// A row for each trial.
    Trials,
    /// A row for each phase, with its name.
    Phases,
    /// A row for each interval.
    Intervals,
}

impl CourseArgs {
    /// How the rows are told.
    pub(crate) const fn rows(&self) -> Rows {
        if self.soak.is_some() {
            Rows::Intervals
        } else if self.profile.is_some() || self.overload.is_some() {
            Rows::Phases
        } else {
            Rows::Trials
        }
    }

    /// What an overload asks for, where one is wanted; `time` is how long its phases last.
    pub(crate) fn surge(&self, time: Option<Duration>, searches: bool) -> Option<Surge> {
        let usual = Surge::default();
        Some(Surge {
            factor: self.overload?,
            // A search has another use for it.
            time: time.filter(|_| !searches).unwrap_or(usual.time),
            interval: self.interval.unwrap_or(usual.interval),
            ..usual
        })
    }

    /// The job, where the rate follows a course from the start.
    pub(crate) fn job(
        &self,
        rate: Option<(f64, f64)>,
        searches: bool,
    ) -> Result<Option<Job>, Failure> {
        let one_rate = || match rate {
            Some((low, high)) if low.total_cmp(&high).is_eq() => Ok(low),
            Some(_) => Err(Failure::usage("give one rate with -r, not a range")),
            None => Err(Failure::usage("give the rate with -r, or have it found with --search")),
        };
        if let Some(duration) = self.soak {
            let course = Course::soak(one_rate()?, duration, self.interval);
            return course.map(Job::Course).map(Some).map_err(Failure::usage);
        }
        if let Some(path) = &self.profile {
            let text = fs::read_to_string(path).map_err(|error| {
                Failure::usage(format!("cannot read the profile {}: {error}", path.display()))
            })?;
            let course = profile::parse(&text, self.interval)
                .map_err(|fault| Failure::usage(format!("{}: {fault}", path.display())))?;
            return Ok(Some(Job::Course(course)));
        }
        if self.overload.is_some() && !searches {
            return one_rate().map(Job::Overload).map(Some);
        }
        if self.interval.is_some() && self.overload.is_none() {
            let reason = "--interval is for --soak, --profile and --overload; add one of them";
            return Err(Failure::usage(reason));
        }
        Ok(None)
    }
}
