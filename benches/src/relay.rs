//! Gain of a relay from copies in the kernel: `bench relay` with the XDP engine and with one system
//! call per copy, in one run, alternating.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use horolog_record::{BenchRelayResult, RelayConfigurationResult, RelayEngineKind};

use crate::figure::{Figure, Goal};

const SIZES: &str = "64,128,256,512";
const CHILDREN: &str = "2,4,8,16,32";
/// Number of children with the highest goal.
const FULL_GOAL_CHILDREN: usize = 16;
const RATIO_FULL: Goal = Goal::AtLeast(5.0);
const RATIO: Goal = Goal::AtLeast(2.3);
/// Goal of the copies per second to [`FULL_GOAL_CHILDREN`] children, of the smallest size.
const TOTAL: Goal = Goal::AtLeast(4e6);
/// Goal of the delay that a relay adds to the first copy at half load, in ns.
const FIRST_COPY_NS: Goal = Goal::Below(20_000.0);

/// Measures all sizes and numbers of children, and compares the engines.
pub(crate) fn measure(binary: &Path, rounds: usize) -> Result<Vec<Figure>> {
    let mut command = Command::new(binary);
    command.args(["bench", "relay", "--sizes", SIZES, "--children", CHILDREN]);
    command.args(["--engines", "send,xdp", "--repetitions", &rounds.to_string(), "--json", "-"]);
    let output = command.stderr(std::process::Stdio::inherit()).output()?;
    ensure!(output.status.success(), "horolog bench relay: {}", output.status);
    let result: BenchRelayResult = serde_json::from_slice(&output.stdout)?;
    let mut figures = Vec::new();
    for size in result.sizes() {
        for children in result.child_counts(size) {
            figures.extend(row_metrics(&result, size, children)?);
        }
    }
    Ok(figures)
}

fn row_metrics(result: &BenchRelayResult, size: usize, children: usize) -> Result<Vec<Figure>> {
    let cell = |engine| result.cell(size, children, engine).context("no result of an engine");
    let (send, xdp) = (cell(RelayEngineKind::Send)?, cell(RelayEngineKind::Xdp)?);
    let name = |what: &str| format!("relay, {size} B to {children}: {what}");
    let totals = |cell: &RelayConfigurationResult| {
        let runs = cell.repetitions.iter().map(|round| round.copies_per_s).collect();
        Figure::new(name(cell.engine.name()), "/s", runs)
    };
    let is_full = children == FULL_GOAL_CHILDREN;
    let (host_based, mut in_kernel) = (totals(send), totals(xdp));
    let ratio = Figure::ratio(name("xdp to send"), &in_kernel, &host_based);
    let ratio = ratio.with(if is_full { RATIO_FULL } else { RATIO });
    if is_full && result.sizes().first() == Some(&size) {
        in_kernel = in_kernel.with(TOTAL);
    }
    let added = xdp.added_ns().map(|[p50, _]| p50 as f64);
    let added = Figure::new(name("first copy's added p50"), "ns", added.into_iter().collect());
    Ok(vec![host_based, in_kernel, ratio, added.with(FIRST_COPY_NS)])
}
