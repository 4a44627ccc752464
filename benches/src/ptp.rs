//! How much each PTP master answers: the same search by the same generator against one after the
//! other, in turn, for requests of the delay and for those of NetSync Monitor, each of which takes
//! three messages to answer.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use horolog_load::LoadProcedure;
use horolog_load::ptp::PtpRequestOptions;
use horolog_record::{CapacitySearchGoal, SearchEndReason};
use horolog_stats::{GoalLossRatio, SearchConfig};

use crate::capacity::{LOSS, PTP_DELAY, PTP_MONITOR};
use crate::figure::{Figure, Goal};
use crate::ptp_masters::{MASTERS, Master, Started};

/// Interval of Sync messages, which a master sends in the background.
const LOG_SYNC_INTERVAL: i8 = 0;

/// Kind of request, its name, and the goal of our rate relative to that of ptp4l.
const KINDS: [(&str, PtpRequestOptions, f64); 2] =
    [("Delay_Resp", PTP_DELAY, 30.0), ("NetSync Monitor", PTP_MONITOR, 3.0)];

/// Searches for both masters' capacity `rounds` times and compares them.
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

/// The search of `capacity`, from a rate on that a master in user space takes on a busy machine.
fn search() -> Result<LoadProcedure> {
    let mut config = SearchConfig::new(GoalLossRatio::new(LOSS)?, 100.0, 20e6);
    config.final_duration = Duration::from_millis(500);
    config.duration_sum = Duration::from_millis(1500);
    Ok(LoadProcedure::Search { kind: CapacitySearchGoal::Ndr, config })
}

fn capacity(master: Master, binary: &Path, plan: PtpRequestOptions) -> Result<f64> {
    let started = Started::new(master, binary, LOG_SYNC_INTERVAL)?;
    let search = started.load(plan, search()?)?.search.context("the search did not end")?;
    let name = master.name();
    ensure!(search.end != SearchEndReason::BelowMin, "{name} loses requests at the lowest rate");
    if matches!(search.end, SearchEndReason::GeneratorLimit | SearchEndReason::CappedAtMax) {
        eprintln!("{name}: the generator's limit, not the master's");
    }
    Ok(search.rate)
}
