//! Benefit of calibration on another core than the one that replies: compares a server with one
//! socket thread without calibration, with calibration on the same core and with calibration on
//! another core, alternating.
//!
//! One search finds the rate of each. Rates of sockets vary by more than a calibration can cost, so
//! the share of a core that the calibration threads use, by the scheduler's count, is reported as
//! well: a shared core loses that much. The error of the clock is the delay with which the
//! receiver's sentences are timestamped while the server is busy. The receiver is simulated and
//! records the send time of each sentence; the server reports its samples over `--sock-output`.
//!
//! No pulse is used: the kernel timestamps it independently of the thread, so that the core of the
//! thread matters less. With sentences only, the error bound is half a second, far above all
//! differences here. On a host with two cores the generator runs on the other core as well.

use std::path::Path;

use anyhow::{Context, Result};
use horolog_stats::ExactSummary;

use crate::calibrated_server::{BusyMeasurement, CalibratedServer, CalibrationCore};
use crate::capacity;
use crate::figure::Figure;

const CALIBRATION_CORES: [CalibrationCore; 3] =
    [CalibrationCore::Disabled, CalibrationCore::SameCore, CalibrationCore::OtherCore];
/// Cores of [`CALIBRATION_CORES`] that calibrate.
const CALIBRATING_CORES: [CalibrationCore; 2] =
    [CalibrationCore::SameCore, CalibrationCore::OtherCore];

/// Load of a busy server, as a share of the rate found without calibration.
const LOAD_SHARE: f64 = 0.9;

/// Metric of a busy server: name, unit, and function that returns its value.
type BusyMetric = (&'static str, &'static str, fn(&BusyMeasurement) -> f64);

const BUSY_METRICS: [BusyMetric; 3] = [
    ("calibrating threads, share of a core", "%", |busy| busy.core_share * 100.0),
    ("sentences late, p50", "us", |busy| microseconds(&busy.delays, |delays| delays.p50)),
    ("sentences late, max", "us", |busy| microseconds(&busy.delays, |delays| delays.max)),
];

fn microseconds(delays: &ExactSummary, of: fn(&ExactSummary) -> i64) -> f64 {
    of(delays) as f64 / 1e3
}

/// Measures all cores `rounds` times and compares them.
pub(crate) fn measure(binary: &Path, rounds: usize) -> Result<Vec<Figure>> {
    let mut rates = CALIBRATION_CORES.map(|_| Vec::new());
    let mut busy: [Vec<BusyMeasurement>; 2] = Default::default();
    for round in 1..=rounds {
        for (core, rates) in CALIBRATION_CORES.into_iter().zip(&mut rates) {
            let server = CalibratedServer::start(core, binary)?;
            let search = server.load(capacity::search()?)?.search;
            let rate = search.context("the search has no result")?.rate;
            eprintln!("round {round} of {rounds}: calibration {}: {rate:.0}/s", core.name());
            rates.push(rate);
        }
        // The same load for both cores, so that their delays are comparable.
        let rate = rates[0].last().copied().unwrap_or_default() * LOAD_SHARE;
        for (core, runs) in CALIBRATING_CORES.into_iter().zip(&mut busy) {
            let run = CalibratedServer::start(core, binary)?.measure_at(rate)?;
            let parts =
                BUSY_METRICS.map(|(what, unit, of)| format!("{what}: {:.3} {unit}", of(&run)));
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
    for (what, unit, of) in BUSY_METRICS {
        let [same, other] = [0, 1].map(|index| {
            let name = format!("{what}: {}", CALIBRATING_CORES[index].name());
            Figure::new(name, unit, busy[index].iter().map(of).collect())
        });
        let ratio = Figure::ratio(format!("{what}: another core to the same"), &other, &same);
        figures.extend([same, other, ratio]);
    }
    Ok(figures)
}
