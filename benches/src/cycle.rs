//! Start latency, compared with cyclictest's (rt-tests): two nodes with a core each, a period of a
//! millisecond, `SCHED_FIFO` at the same priority, memory locked, idle states disabled,
//! alternating; and the time that measurement adds to a period, which the product measures itself.
//!
//! A node does the work of cyclictest's thread, and also transfers ten words. The core with the
//! higher latency counts.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tempfile::NamedTempFile;

use crate::figure::{Figure, Goal};
use crate::host_timer::histogram_p99_ns;

const CYCLES: u64 = 5_000;
const PRIORITY: &str = "80";
const CORES: &str = "0,1";
/// Goal of the ratio of the start latencies, horolog to cyclictest.
const LATENCY_RATIO_GOAL: f64 = 1.5;
/// Goal of the time that measurement adds to a period, in ns.
const COST_GOAL_NS: f64 = 1_000.0;

/// Measures with both programs `rounds` times and compares them.
pub(crate) fn measure(binary: &Path, rounds: usize) -> Result<Vec<Figure>> {
    let (mut theirs, mut ours, mut costs) = (Vec::new(), Vec::new(), Vec::new());
    for round in 1..=rounds {
        let p99 = cyclictest()?;
        let (lateness, cost_ns) = horolog(binary)?;
        eprintln!(
            "round {round} of {rounds}: p99 cyclictest {p99:.2} us, horolog {lateness:.2} us, \
             measuring {cost_ns} ns a period"
        );
        theirs.push(p99);
        ours.push(lateness);
        costs.push(cost_ns);
    }
    let theirs = Figure::new("lateness of releases, p99: cyclictest", "us", theirs);
    let ours = Figure::new("lateness of releases, p99: horolog, two nodes", "us", ours);
    let ratio = Figure::ratio_of_medians("lateness, p99: horolog to cyclictest", &ours, &theirs);
    let cost = Figure::new("what measuring adds to a period", "ns", costs);
    Ok(vec![
        theirs,
        ours,
        ratio.with(Goal::Below(LATENCY_RATIO_GOAL)),
        cost.with(Goal::Below(COST_GOAL_NS)),
    ])
}

/// Returns the higher start latency (p99) of the two nodes in µs, and the larger cost of
/// measurement in ns.
fn horolog(binary: &Path) -> Result<(f64, f64)> {
    let time = format!("{CYCLES}ms");
    let output = Command::new(binary)
        .args(["cycle", "run", "--period", "1ms", "--units", "1", "--nodes", "2"])
        .args(["--core", CORES, "--priority", PRIORITY, "--time", &time, "--json", "-"])
        .output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let result: Value = serde_json::from_slice(&output.stdout)?;
    let nodes = result["runs"][0]["nodes"].as_array().context("no nodes")?;
    let (mut p99, mut cost_ns) = (0.0_f64, 0.0_f64);
    for task in nodes.iter().map(|node| &node["tasks"][0]) {
        ensure!(task["scheduling"]["policy"] == "fifo", "real-time scheduling was refused");
        p99 = p99.max(task["start_latency_ns"]["p99"].as_f64().context("no start latency")?);
        cost_ns = cost_ns.max(task["cost"]["period_ns"].as_f64().context("no cost")?);
    }
    Ok((p99 / 1e3, cost_ns))
}

/// Returns the higher latency (p99) of two threads, in µs.
fn cyclictest() -> Result<f64> {
    let file = NamedTempFile::new()?;
    let json = format!("--json={}", file.path().display());
    let cycles = CYCLES.to_string();
    let mut command = Command::new("cyclictest");
    command.args(["-q", "-N", "-m", "-p", PRIORITY, "-t", "2", "-a", CORES, "-i", "1000"]);
    command.args(["-d", "0", "-l", &cycles, "-h", "1000000", &json]).stdout(Stdio::null());
    let status =
        command.status().context("cannot run cyclictest; scripts/setup.sh --peers installs it")?;
    ensure!(status.success(), "cyclictest failed: {status}");
    let result: Value = serde_json::from_str(&std::fs::read_to_string(file.path())?)?;
    let mut p99 = 0.0_f64;
    for thread in ["0", "1"] {
        p99 = p99.max(histogram_p99_ns(&result["thread"][thread], CYCLES)? as f64);
    }
    Ok(p99 / 1e3)
}
