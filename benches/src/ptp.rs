//! Capacity of each PTP master: the same search by the same generator against each in turn, for
//! delay requests and for those of NetSync Monitor, each of which is answered by three messages.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use horolog_load::LoadProcedure;
use horolog_load::ptp::PtpRequestOptions;
use horolog_record::{CapacitySearchGoal, SearchEndReason};
use horolog_stats::{GoalLossRatio, SearchConfig};

use crate::capacity::{LOSS_RATIO_MAX, PTP_DELAY, PTP_MONITOR};
use crate::figure::{Figure, Goal};
use crate::ptp_masters::{MASTERS, Master, RunningMaster};

/// Interval of the Sync messages that a master sends in the background (log2 of seconds).
const LOG_SYNC_INTERVAL: i8 = 0;

/// Kinds of request: name, options, and goal of the ratio of Horolog's rate to that of ptp4l.
const KINDS: [(&str, PtpRequestOptions, f64); 2] =
    [("Delay_Resp", PTP_DELAY, 30.0), ("NetSync Monitor", PTP_MONITOR, 3.0)];

/// Searches for the capacity of both masters `rounds` times and compares them.
pub(crate) fn measure(binary: &Path, rounds: usize) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for (kind, plan, goal) in KINDS {
        let mut runs = MASTERS.map(|_| Vec::new());
        for round in 1..=rounds {
            for (master, runs) in MASTERS.into_iter().zip(&mut runs) {
                let rate = capacity(master, binary, plan)?;
                eprintln!("round {round} of {rounds}: {kind}: {}: {rate:.0}/s", master.name());
                runs.push(rate);
            }
        }
        let mut names = MASTERS.iter().map(|master| format!("PTP, {kind}: {}", master.name()));
        let both = runs.map(|runs| Figure::new(names.next().unwrap_or_default(), "/s", runs));
        let [ptp4l, ours] = &both;
        let ratio = Figure::ratio(format!("PTP, {kind}: horolog to ptp4l"), ours, ptp4l);
        figures.extend(both.iter().cloned().chain([ratio.with(Goal::AtLeast(goal))]));
    }
    Ok(figures)
}

/// Returns the search of `capacity` with a lower minimum rate, which a master in user space
/// sustains on a busy host.
fn search() -> Result<LoadProcedure> {
    let mut config = SearchConfig::new(GoalLossRatio::new(LOSS_RATIO_MAX)?, 100.0, 20e6);
    config.final_duration = Duration::from_millis(500);
    config.duration_sum = Duration::from_millis(1500);
    Ok(LoadProcedure::Search { kind: CapacitySearchGoal::Ndr, config })
}

fn capacity(master: Master, binary: &Path, plan: PtpRequestOptions) -> Result<f64> {
    let started = RunningMaster::new(master, binary, LOG_SYNC_INTERVAL)?;
    let search = started.load(plan, search()?)?.search.context("the search has no result")?;
    let name = master.name();
    ensure!(search.end != SearchEndReason::BelowMin, "{name} loses requests at the minimum rate");
    if matches!(search.end, SearchEndReason::GeneratorLimit | SearchEndReason::CappedAtMax) {
        eprintln!("{name}: the search ended at the generator's limit");
    }
    Ok(search.rate)
}
