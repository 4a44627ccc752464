//! Wake-up latency, compared with cyclictest's (rt-tests): one thread on the last core, a period of
//! a millisecond, `SCHED_FIFO` at the same priority, memory locked, idle states disabled,
//! alternating.
//!
//! Both sleep by `clock_nanosleep` until absolute instants, so the latency is that of the kernel
//! and must be equal; the goal is a median of Horolog below the highest of cyclictest's runs.
//! cyclictest's percentile is computed from its histogram in nanoseconds.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tempfile::NamedTempFile;

use crate::figure::{Figure, Goal};

const CYCLES: u64 = 5_000;
const PRIORITY: &str = "80";

/// Mean and 99th percentile of a run, in µs.
type LatencyRun = [f64; 2];

const STATISTICS: [&str; 2] = ["mean", "p99"];

/// Measures with both programs `rounds` times and compares them.
pub(crate) fn measure(binary: &Path, rounds: usize) -> Result<Vec<Figure>> {
    let core = last_core().to_string();
    let mut runs: [Vec<LatencyRun>; 2] = Default::default();
    for round in 1..=rounds {
        let ([theirs, ours], names) =
            ([cyclictest(&core)?, horolog(binary, &core)?], ["cyclictest", "horolog"]);
        for ((run, name), runs) in [theirs, ours].into_iter().zip(names).zip(&mut runs) {
            let [mean, p99] = run;
            eprintln!("round {round} of {rounds}: {name}: mean {mean:.2} us, p99 {p99:.2} us");
            runs.push(run);
        }
    }
    let mut figures = Vec::new();
    for (index, part) in STATISTICS.into_iter().enumerate() {
        let figure = |name: &str, runs: &[LatencyRun]| {
            let values = runs.iter().map(|run| run[index]).collect();
            Figure::new(format!("wake-up latency, {part}: {name}"), "us", values)
        };
        let [theirs, ours] = &runs;
        let (theirs, ours) = (figure("cyclictest", theirs), figure("horolog", ours));
        let highest = theirs.runs.iter().copied().fold(f64::NAN, f64::max);
        let within = Figure::new(
            format!("{part}: our median to cyclictest's highest run"),
            "",
            vec![ours.median() / highest],
        );
        let medians = Figure::new(
            format!("{part}: horolog to cyclictest, medians"),
            "",
            vec![ours.median() / theirs.median()],
        );
        figures.extend([theirs, ours, medians, within.with(Goal::Below(1.0))]);
    }
    Ok(figures)
}

/// Returns the number of the last core, which has less load from the host's interrupts than the
/// first.
pub(crate) fn last_core() -> usize {
    std::thread::available_parallelism().map_or(0, |cores| cores.get() - 1)
}

fn horolog(binary: &Path, core: &str) -> Result<LatencyRun> {
    let time = format!("{CYCLES}ms");
    let arguments = ["host", "timer", "-c", core, "-i", "1ms", "-t", &time, "-p", PRIORITY];
    let output = Command::new(binary).args(arguments).args(["--json", "-"]).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let result: Value = serde_json::from_slice(&output.stdout)?;
    let core = &result["cores"][0];
    ensure!(core["scheduling"]["policy"] == "fifo", "real-time scheduling was refused");
    let figure = |name: &str| core["latency_ns"][name].as_f64().context("no latency");
    Ok([figure("mean")? / 1e3, figure("p99")? / 1e3])
}

fn cyclictest(core: &str) -> Result<LatencyRun> {
    let file = NamedTempFile::new()?;
    let json = format!("--json={}", file.path().display());
    let cycles = CYCLES.to_string();
    let mut command = Command::new("cyclictest");
    command.args(["-q", "-N", "-m", "-p", PRIORITY, "-t", "1", "-a", core, "-i", "1000"]);
    command.args(["-l", &cycles, "-h", "1000000", &json]).stdout(Stdio::null());
    let status =
        command.status().context("cannot run cyclictest; scripts/setup.sh --peers installs it")?;
    ensure!(status.success(), "cyclictest failed: {status}");
    let result: Value = serde_json::from_str(&std::fs::read_to_string(file.path())?)?;
    let thread = &result["thread"]["0"];
    let mean = thread["avg"].as_f64().context("no mean in cyclictest's result")?;
    let p99 = histogram_p99_ns(thread, CYCLES)?;
    Ok([mean / 1e3, p99 as f64 / 1e3])
}

/// Returns the 99th percentile in ns of `cycles` latencies of a thread in cyclictest's result.
pub(crate) fn histogram_p99_ns(thread: &Value, cycles: u64) -> Result<u64> {
    let histogram =
        thread["histogram"].as_object().context("no histogram in cyclictest's result")?;
    let counts: BTreeMap<u64, u64> = histogram
        .iter()
        .filter_map(|(ns, count)| Some((ns.parse().ok()?, count.as_u64()?)))
        .collect();
    percentile(&counts, cycles, 0.99).context("cyclictest's p99 is above 1 ms")
}

/// Returns the smallest value that `share` of `count` values do not exceed; values that are missing
/// in the histogram count as above its range.
fn percentile(histogram: &BTreeMap<u64, u64>, count: u64, share: f64) -> Option<u64> {
    let rank = (count as f64 * share).ceil() as u64;
    let mut cumulative = 0;
    histogram.iter().find_map(|(value, count)| {
        cumulative += count;
        (cumulative >= rank).then_some(*value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentile_counts_values_above_the_histogram() {
        let histogram = BTreeMap::from([(10, 98), (20, 1)]);
        assert_eq!(percentile(&histogram, 100, 0.98), Some(10));
        assert_eq!(percentile(&histogram, 100, 0.99), Some(20));
        assert_eq!(percentile(&histogram, 100, 1.0), None);
    }
}
