//! The latency of a UDP path as each tool finds it: `path udp` with its far end against sockperf's
//! ping-pong, between lab hosts, in turn; with both sleeping until a datagram arrives, and with
//! both busy-polling.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use horolog_lab::{Lab, LabConfig, LabHost, RunningProgram};
use horolog_record::PathUdpResult;

use crate::figure::{Figure, Goal};

/// Alternating runs, at least.
const ROUNDS_MIN: usize = 7;
const TIMEOUT: Duration = Duration::from_secs(10);
const OURS_PORT: u16 = 8_625;
const THEIRS_PORT: u16 = 11_111;
/// No higher, but for what two runs of the same differ by in their last digit.
const GOAL: Goal = Goal::Below(1.005);

/// How both tools wait for datagrams.
#[derive(Clone, Copy)]
struct Form {
    name: &'static str,
    ours: &'static [&'static str],
    theirs: &'static [&'static str],
}

const FORMS: [Form; 2] = [
    Form { name: "asleep", ours: &[], theirs: &[] },
    Form { name: "busy polling", ours: &["--busy-poll"], theirs: &["--nonblocked"] },
];

/// Half the round trip of one run, in ns.
struct Run {
    p50: f64,
    p99: f64,
}

/// Measures in both forms and compares.
pub(crate) fn measure(binary: &Path, rounds: usize) -> Result<Vec<Figure>> {
    let rounds = rounds.max(ROUNDS_MIN);
    let lab = Lab::new(&LabConfig { ipv6: false, ..LabConfig::default() })?;
    let mut figures = Vec::new();
    for form in FORMS {
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
        for (figure, of) in [("p50", (|run| run.p50) as fn(&Run) -> f64), ("p99", |run| run.p99)] {
            let name = |tool: &str| format!("UDP path, {}, {figure}: {tool}", form.name);
            let all = |runs: &[Run]| runs.iter().map(of).collect();
            let own = Figure::new(name("horolog"), "ns", all(&ours));
            let peer = Figure::new(name("sockperf"), "ns", all(&theirs));
            let ratio = Figure::ratio_of_medians(name("horolog to sockperf"), &own, &peer);
            figures.extend([own, peer, ratio.with(GOAL)]);
        }
    }
    Ok(figures)
}

/// A server that runs while its client measures: two that busy-poll would share a core.
fn served(command: &mut Command, host: &LabHost, port: u16) -> Result<RunningProgram> {
    let mut running = RunningProgram::start(command)?;
    let listed = || fs::read_to_string("/proc/thread-self/net/udp").unwrap_or_default();
    let listens = |sockets: String| sockets.contains(&format!(":{port:04X} "));
    running.await_ready(TIMEOUT, || host.run(listed).is_ok_and(listens))?;
    Ok(running)
}

fn horolog(lab: &Lab, binary: &Path, form: Form) -> Result<Run> {
    let at = format!("{}:{OURS_PORT}", lab.server().first_interface().ipv4);
    let mut serve = lab.server().command(binary);
    serve.args(["path", "serve", "-l", &at]).args(form.ours);
    let _far = served(&mut serve, lab.server(), OURS_PORT)?;
    let mut near = lab.client().command(binary);
    near.args(["path", "udp", &at, "--time", "1s", "--json", "-"]).args(form.ours);
    let output = near.output()?;
    ensure!(output.status.success(), "horolog: {output:?}");
    let result: PathUdpResult = serde_json::from_slice(&output.stdout)?;
    let delay = result.rows.first().and_then(|row| row.delay_ns.as_ref()).context("no T")?;
    Ok(Run { p50: delay.p50 as f64, p99: delay.p99 as f64 })
}

fn sockperf(lab: &Lab, form: Form) -> Result<Run> {
    let address = lab.server().first_interface().ipv4.to_string();
    let port = THEIRS_PORT.to_string();
    let at = ["-i", &address, "-p", &port];
    let mut server = lab.server().command("sockperf");
    server.arg("server").args(at).args(form.theirs);
    let _server = served(&mut server, lab.server(), THEIRS_PORT)?;
    let mut client = lab.client().command("sockperf");
    client.arg("ping-pong").args(at).args(["-t", "1", "-m", "64"]).args(form.theirs);
    let output = client.output().context("is sockperf installed?")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let percentile = |name: &str| {
        let line = text.lines().find(|line| line.contains(&format!("percentile {name}")));
        let value = line.and_then(|line| line.rsplit('=').next()?.trim().parse::<f64>().ok());
        value.map(|us| us * 1e3).with_context(|| format!("sockperf tells no {name}: {text}"))
    };
    Ok(Run { p50: percentile("50.000")?, p99: percentile("99.000")? })
}
