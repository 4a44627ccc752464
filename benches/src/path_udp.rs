//! Latency of a UDP path by two tools: `path udp` with its far end, and sockperf's ping-pong,
//! between lab hosts, alternating; once with both blocked until a datagram arrives, once with both
//! busy-polling.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use horolog_lab::{Lab, LabConfig, LabHost, RunningProgram};
use horolog_record::PathUdpResult;

use crate::figure::{Figure, Goal};

/// Minimum number of alternating runs.
const ROUNDS_MIN: usize = 7;
const TIMEOUT: Duration = Duration::from_secs(10);
const HOROLOG_PORT: u16 = 8_625;
const SOCKPERF_PORT: u16 = 11_111;
/// Goal of the ratio to sockperf: no higher, apart from the variation between equal runs.
const GOAL: Goal = Goal::Below(1.005);

/// Receive mode of both tools.
#[derive(Clone, Copy)]
struct ReceiveMode {
    name: &'static str,
    horolog_options: &'static [&'static str],
    sockperf_options: &'static [&'static str],
}

const RECEIVE_MODES: [ReceiveMode; 2] = [
    ReceiveMode { name: "asleep", horolog_options: &[], sockperf_options: &[] },
    ReceiveMode {
        name: "busy polling",
        horolog_options: &["--busy-poll"],
        sockperf_options: &["--nonblocked"],
    },
];

/// Percentiles of half the round trip of one run, in ns.
struct LatencyPercentiles {
    p50: f64,
    p99: f64,
}

/// Measures in both receive modes and compares the tools.
pub(crate) fn measure(binary: &Path, rounds: usize) -> Result<Vec<Figure>> {
    let rounds = rounds.max(ROUNDS_MIN);
    let lab = Lab::new(&LabConfig { ipv6: false, ..LabConfig::default() })?;
    let mut figures = Vec::new();
    for form in RECEIVE_MODES {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for round in 1..=rounds {
            theirs.push(sockperf(&lab, form)?);
            ours.push(horolog(&lab, binary, form)?);
            let (a, b) = (&ours[round - 1], &theirs[round - 1]);
            eprintln!(
                "round {round} of {rounds}, {}: p50 {:.0} to {:.0} ns, p99 {:.0} to {:.0} ns",
                form.name, a.p50, b.p50, a.p99, b.p99
            );
        }
        for (figure, of) in
            [("p50", (|run| run.p50) as fn(&LatencyPercentiles) -> f64), ("p99", |run| run.p99)]
        {
            let name = |tool: &str| format!("UDP path, {}, {figure}: {tool}", form.name);
            let all = |runs: &[LatencyPercentiles]| runs.iter().map(of).collect();
            let own = Figure::new(name("horolog"), "ns", all(&ours));
            let peer = Figure::new(name("sockperf"), "ns", all(&theirs));
            let ratio = Figure::ratio_of_medians(name("horolog to sockperf"), &own, &peer);
            figures.extend([own, peer, ratio.with(GOAL)]);
        }
    }
    Ok(figures)
}

/// Starts a far end, which runs only while its near end measures: two that busy-poll would share a
/// core.
fn start_far_end(command: &mut Command, host: &LabHost, port: u16) -> Result<RunningProgram> {
    let mut running = RunningProgram::start(command)?;
    let listed = || fs::read_to_string("/proc/thread-self/net/udp").unwrap_or_default();
    let listens = |sockets: String| sockets.contains(&format!(":{port:04X} "));
    running.await_ready(TIMEOUT, || host.run(listed).is_ok_and(listens))?;
    Ok(running)
}

fn horolog(lab: &Lab, binary: &Path, form: ReceiveMode) -> Result<LatencyPercentiles> {
    let at = format!("{}:{HOROLOG_PORT}", lab.server().first_interface().ipv4);
    let mut serve = lab.server().command(binary);
    serve.args(["path", "serve", "-l", &at]).args(form.horolog_options);
    let _far = start_far_end(&mut serve, lab.server(), HOROLOG_PORT)?;
    let mut near = lab.client().command(binary);
    near.args(["path", "udp", &at, "--time", "1s", "--json", "-"]).args(form.horolog_options);
    let output = near.output()?;
    ensure!(output.status.success(), "horolog: {output:?}");
    let result: PathUdpResult = serde_json::from_slice(&output.stdout)?;
    let delay = result.rows.first().and_then(|row| row.delay_ns.as_ref()).context("no delay")?;
    Ok(LatencyPercentiles { p50: delay.p50 as f64, p99: delay.p99 as f64 })
}

fn sockperf(lab: &Lab, form: ReceiveMode) -> Result<LatencyPercentiles> {
    let address = lab.server().first_interface().ipv4.to_string();
    let port = SOCKPERF_PORT.to_string();
    let at = ["-i", &address, "-p", &port];
    let mut server = lab.server().command("sockperf");
    server.arg("server").args(at).args(form.sockperf_options);
    let _server = start_far_end(&mut server, lab.server(), SOCKPERF_PORT)?;
    let mut client = lab.client().command("sockperf");
    client.arg("ping-pong").args(at).args(["-t", "1", "-m", "64"]).args(form.sockperf_options);
    let output = client.output().context("cannot run sockperf; is it installed?")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let percentile = |name: &str| {
        let line = text.lines().find(|line| line.contains(&format!("percentile {name}")));
        let value = line.and_then(|line| line.rsplit('=').next()?.trim().parse::<f64>().ok());
        value.map(|us| us * 1e3).with_context(|| format!("no percentile {name}: {text}"))
    };
    Ok(LatencyPercentiles { p50: percentile("50.000")?, p99: percentile("99.000")? })
}
