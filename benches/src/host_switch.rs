//! Round trip through a pipe between two processes on one core, compared with `perf bench sched
//! pipe`, which measures the same: both pinned to the last core, with real-time threads of the same
//! priority, so that no other thread runs in between, alternating.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::figure::{Figure, Goal};
use crate::host_timer::last_core;

const TURNS: u32 = 20_000;
const PRIORITY: &str = "80";

/// Measures with both programs `rounds` times and compares them.
pub(crate) fn measure(binary: &Path, rounds: usize) -> Result<Vec<Figure>> {
    if Command::new("perf").arg("--version").output().is_err() {
        eprintln!("skipping host-switch: cannot run perf");
        return Ok(Vec::new());
    }
    let core = last_core().to_string();
    let (mut theirs, mut ours) = (Vec::new(), Vec::new());
    for round in 1..=rounds {
        let (perf, own) = (perf(&core)?, horolog(binary, &core)?);
        eprintln!(
            "round {round} of {rounds}: perf bench sched pipe {perf:.3} us, horolog {own:.3} us"
        );
        theirs.push(perf);
        ours.push(own);
    }
    let name = "a turn through a pipe, one core";
    let theirs = Figure::new(format!("{name}: perf bench"), "us", theirs);
    let ours = Figure::new(format!("{name}: horolog"), "us", ours);
    let medians = vec![ours.median() / theirs.median()];
    let ratio = Figure::new("a turn: horolog to perf bench, medians", "", medians);
    Ok(vec![theirs, ours, ratio.with(Goal::Below(1.1))])
}

/// Returns the mean time of a round trip, in µs.
fn perf(core: &str) -> Result<f64> {
    let turns = TURNS.to_string();
    let mut command = Command::new("chrt");
    command.args(["-f", PRIORITY, "taskset", "-c", core]);
    command.args(["perf", "bench", "-f", "simple", "sched", "pipe", "-l", &turns]);
    let output = command.output().context("cannot run chrt")?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "perf bench: {}", String::from_utf8_lossy(&output.stderr));
    let seconds: f64 = text.trim().parse().with_context(|| format!("invalid output: '{text}'"))?;
    Ok(seconds * 1e6 / f64::from(TURNS))
}

fn horolog(binary: &Path, core: &str) -> Result<f64> {
    let turns = TURNS.to_string();
    let arguments = ["host", "switch", "-p", PRIORITY, "-c", core, "-n", &turns, "-r", "1"];
    let arguments = [&arguments[..], &["--allow-idle-states", "--json", "-"]].concat();
    let output = Command::new(binary).args(arguments).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let result: Value = serde_json::from_slice(&output.stdout)?;
    let exchanges = result["exchanges"].as_array().context("no exchanges")?;
    let pipe = exchanges.iter().find(|one| one["mechanism"] == "pipe" && one["peer"] == "process");
    let turn = pipe.and_then(|one| one["turn_mean_ns"].as_f64()).context("no turn")?;
    Ok(turn / 1e3)
}
