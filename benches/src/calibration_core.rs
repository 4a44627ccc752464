//! Benefit of calibrating on another core than the one that replies: a server with one socket
//! thread, without calibration, with calibration on the same core, and with calibration on another
//! core, in turn.
//!
//! One search finds the rate of each. Rates of sockets vary by more than a calibration can
//! cost, so the share of a core that the calibration threads take, by the scheduler's count, is
//! reported as well: it is what the core loses when they share it. The error of the clock is the
//! delay with which the receiver's sentences are timestamped while the server is busy. The receiver
//! is simulated and records when it sent each; the server's samples come back over
//! `--sock-output`.
//!
//! No pulse is used: the kernel timestamps it on whichever core the thread runs, so that the core
//! matters less. By sentences alone the error bound is half a second, far above all differences
//! here. On a machine with two cores the generator runs on the other core as well.

use std::path::Path;

use anyhow::{Context, Result};
use horolog_stats::ExactSummary;

use crate::calibrated_server::{Busy, CalibratedServer, CalibrationCore};
use crate::capacity;
use crate::figure::Figure;

const CALIBRATION_CORES: [CalibrationCore; 3] =
    [CalibrationCore::Nowhere, CalibrationCore::SameCore, CalibrationCore::OtherCore];
/// The two of them that calibrate.
const CALIBRATING: [CalibrationCore; 2] = [CalibrationCore::SameCore, CalibrationCore::OtherCore];

/// The share of what the server takes without a calibration at which it is looked at.
const SHARE: f64 = 0.9;

/// Metric of a busy server: its name, its unit, and its value in a run.
type Part = (&'static str, &'static str, fn(&Busy) -> f64);

const PARTS: [Part; 3] = [
    ("calibrating threads, share of a core", "%", |busy| busy.core_share * 100.0),
    ("sentences late, p50", "us", |busy| microseconds(&busy.delays, |delays| delays.p50)),
    ("sentences late, max", "us", |busy| microseconds(&busy.delays, |delays| delays.max)),
];

fn microseconds(delays: &ExactSummary, of: fn(&ExactSummary) -> i64) -> f64 {
    of(delays) as f64 / 1e3
}

/// Measures all places `rounds` times and compares them.
pub(crate) fn measure(binary: &Path, rounds: usize) -> Result<Vec<Figure>> {
    let mut rates = CALIBRATION_CORES.map(|_| Vec::new());
    let mut busy: [Vec<Busy>; 2] = Default::default();
    for round in 1..=rounds {
        for (core, rates) in CALIBRATION_CORES.into_iter().zip(&mut rates) {
            let server = CalibratedServer::start(core, binary)?;
            let search = server.load(capacity::search()?)?.search;
            let rate = search.context("the search did not end")?.rate;
            eprintln!("round {round} of {rounds}: calibration {}: {rate:.0}/s", core.name());
            rates.push(rate);
        }
        // Both at one rate.
        let rate = rates[0].last().copied().unwrap_or_default() * SHARE;
        for (core, runs) in CALIBRATING.into_iter().zip(&mut busy) {
            let run = CalibratedServer::start(core, binary)?.busy_at(rate)?;
            let parts = PARTS.map(|(what, unit, of)| format!("{what}: {:.3} {unit}", of(&run)));
            eprintln!(
                "round {round} of {rounds}: {} at {rate:.0}/s: {}",
                core.name(),
                parts.join(", ")
            );
            runs.push(run);
        }
    }
    let rates = CALIBRATION_CORES.into_iter().zip(rates).map(|(core, runs)| {
        Figure::new(format!("requests taken, calibration {}", core.name()), "/s", runs)
    });
    let mut figures: Vec<Figure> = rates.collect();
    let ratio = |name: &str, to: usize| Figure::ratio(name, &figures[2], &figures[to]);
    let ratios = [
        ratio("requests taken, calibration on another core to the same", 1),
        ratio("requests taken, calibration on another core to none", 0),
    ];
    figures.extend(ratios);
    for (what, unit, of) in PARTS {
        let [same, other] = [0, 1].map(|index| {
            let name = format!("{what}: {}", CALIBRATING[index].name());
            Figure::new(name, unit, busy[index].iter().map(of).collect())
        });
        let ratio = Figure::ratio(format!("{what}: another core to the same"), &other, &same);
        figures.extend([same, other, ratio]);
    }
    Ok(figures)
}
