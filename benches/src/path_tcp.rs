//! Latency and bandwidth of TCP over one lab link, compared with the values of qperf and, for
//! bandwidth, iperf3, alternating: a ratio of two consecutive runs depends less on the host than
//! either value.
//!
//! qperf's latency is the mean of half a round trip and has no percentiles, so means are compared.
//! All tools use one connection and the sockets' default settings, and none is pinned to a core.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use horolog_lab::{Lab, LabConfig, RunningProgram};
use horolog_record::PathTcpResult;
use horolog_sys::namespace::die_with_parent;
use serde_json::Value;

use crate::figure::{Figure, Goal};

const TIMEOUT: Duration = Duration::from_secs(10);
/// Duration of a run; qperf and iperf3 take only whole seconds.
const SECONDS: u32 = 2;
/// Message sizes of the latency measurements, in bytes.
const LATENCY_SIZES: [u32; 2] = [1, 1_024];
/// Message sizes of the bandwidth measurements, in bytes.
const BANDWIDTH_SIZES: [u32; 2] = [1_024, 65_536];
/// Goals of the ratios of latency and bandwidth: at most 5% worse than qperf.
const GOALS: [f64; 2] = [1.05, 0.95];
const PORT: u16 = 8_625;
/// Limits on traffic above that of any run: qperf and iperf3 have no limits.
const UNBOUNDED_ARGUMENTS: [&str; 4] = ["--tcp-bytes", "1T", "--tcp-bytes-per-hour", "1000T"];
const IPERF_PORT: u16 = 5_201;
const QPERF_PORT: u16 = 19_765;

/// Far ends of all tools, which run during the whole benchmark and are idle between requests.
struct FarEnds {
    lab: Lab,
    _running: [RunningProgram; 3],
}

/// Measures all tools `rounds` times and compares them.
pub(crate) fn measure(binary: &Path, rounds: usize) -> Result<Vec<Figure>> {
    let ends = FarEnds::start(binary)?;
    let mut figures = Vec::new();
    for size in LATENCY_SIZES {
        let [mut ours, mut theirs] = [Vec::new(), Vec::new()];
        for round in 1..=rounds {
            ours.push(ends.horolog(binary, size, true)?);
            theirs.push(ends.qperf(size, true)?);
            print_runs("latency", size, round, rounds, &[ours.last(), theirs.last()]);
        }
        let [ours, theirs] = [("horolog", ours), ("qperf", theirs)]
            .map(|(who, runs)| Figure::new(format!("TCP latency, {size} B: {who}"), "us", runs));
        let name = format!("TCP latency, {size} B: horolog to qperf");
        let ratio = Figure::ratio(name, &ours, &theirs).with(Goal::Below(GOALS[0]));
        figures.extend([ours, theirs, ratio]);
    }
    for size in BANDWIDTH_SIZES {
        let mut runs = [Vec::new(), Vec::new(), Vec::new()];
        for round in 1..=rounds {
            runs[0].push(ends.horolog(binary, size, false)?);
            runs[1].push(ends.qperf(size, false)?);
            runs[2].push(ends.iperf(size)?);
            print_runs("bandwidth", size, round, rounds, &runs.each_ref().map(|runs| runs.last()));
        }
        let [ours, qperf, iperf] = runs;
        let [ours, qperf, iperf] =
            [("horolog", ours), ("qperf", qperf), ("iperf3", iperf)].map(|(who, runs)| {
                Figure::new(format!("TCP bandwidth, {size} B: {who}"), "MB/s", runs)
            });
        let ratio = |who: &str, to: &Figure| {
            Figure::ratio(format!("TCP bandwidth, {size} B: horolog to {who}"), &ours, to)
        };
        let ratios = [
            ratio("qperf", &qperf).with(Goal::AtLeast(GOALS[1])),
            ratio("iperf3", &iperf).with(Goal::AtLeast(GOALS[1])),
        ];
        figures.extend([ours, qperf, iperf]);
        figures.extend(ratios);
    }
    Ok(figures)
}

fn print_runs(what: &str, size: u32, round: usize, rounds: usize, runs: &[Option<&f64>]) {
    let runs: Vec<_> = runs.iter().flatten().map(|run| format!("{run:.2}")).collect();
    eprintln!("round {round} of {rounds}: {what} of {size} B: {}", runs.join(", "));
}

impl FarEnds {
    fn start(binary: &Path) -> Result<Self> {
        let lab = Lab::new(&LabConfig::default())?;
        let at = |port| SocketAddr::from((lab.server().first_interface().ipv4, port));
        let start = |program: &Path, arguments: &[&str], port: u16| -> Result<RunningProgram> {
            let mut command = lab.server().command(program);
            command.args(arguments);
            let mut running = RunningProgram::start(&mut command)?;
            running.await_ready(TIMEOUT, || listens(&lab, port))?;
            Ok(running)
        };
        let ours = at(PORT).to_string();
        let running = [
            start(
                binary,
                &[&["path", "serve", "--listen", &ours][..], &UNBOUNDED_ARGUMENTS].concat(),
                PORT,
            )?,
            start(Path::new("qperf"), &[], QPERF_PORT)
                .context("cannot run qperf; scripts/setup.sh --peers fetches it")?,
            start(Path::new("iperf3"), &["-s"], IPERF_PORT)
                .context("cannot run iperf3; scripts/setup.sh --peers fetches it")?,
        ];
        Ok(Self { lab, _running: running })
    }

    fn stdout_of(&self, program: &Path, arguments: &[&str]) -> Result<Vec<u8>> {
        let mut command = self.lab.client().command(program);
        command.args(arguments).stdin(Stdio::null());
        let output = run(&mut command)?;
        ensure!(output.status.success(), "{arguments:?}: {output:?}");
        Ok(output.stdout)
    }

    fn target(&self) -> String {
        self.lab.server().first_interface().ipv4.to_string()
    }

    /// Measures with Horolog: the mean latency in µs, or the rate in MB/s.
    fn horolog(&self, binary: &Path, size: u32, is_latency: bool) -> Result<f64> {
        let what = if is_latency { "--latency" } else { "--bandwidth" };
        let (target, size) = (self.target(), size.to_string());
        let time = format!("{SECONDS}s");
        let arguments = ["path", "tcp", &target, "-s", &size, "-t", &time, what, "--json", "-"];
        let result: PathTcpResult = serde_json::from_slice(&self.stdout_of(binary, &arguments)?)?;
        if is_latency {
            let times = result.latency.first().and_then(|row| row.rtt_ns.as_ref());
            return Ok(times.context("no latency")?.mean / 2e3);
        }
        Ok(result.bandwidth.first().context("no bandwidth")?.rate / 1e6)
    }

    fn qperf(&self, size: u32, is_latency: bool) -> Result<f64> {
        let test = if is_latency { "tcp_lat" } else { "tcp_bw" };
        let (target, size, time) = (self.target(), size.to_string(), SECONDS.to_string());
        let arguments = [&target, "-t", &time, "-m", &size, "-uu", test];
        let stdout_of = self.stdout_of(Path::new("qperf"), &arguments)?;
        parse_qperf(&String::from_utf8(stdout_of)?)
    }

    fn iperf(&self, size: u32) -> Result<f64> {
        let (target, size, time) = (self.target(), size.to_string(), SECONDS.to_string());
        let arguments = ["-c", &target, "-t", &time, "-l", &size, "-J"];
        let stdout_of: Value =
            serde_json::from_slice(&self.stdout_of(Path::new("iperf3"), &arguments)?)?;
        let bits = stdout_of["end"]["sum_received"]["bits_per_second"].as_f64();
        Ok(bits.context("no rate in the output of iperf3")? / 8e6)
    }
}

fn run(command: &mut Command) -> Result<std::process::Output> {
    Ok(die_with_parent(command).output()?)
}

/// Returns true if a program listens on a port of the server host. Reads the kernel's table,
/// because a connection would be a test of qperf or iperf3.
fn listens(lab: &Lab, port: u16) -> bool {
    let wanted = format!(":{port:04X} ");
    let is_listening = |line: &str| {
        let mut words = line.split_whitespace();
        let local = words.nth(1).map(|local| format!("{local} "));
        local.is_some_and(|local| local.ends_with(&wanted)) && words.nth(1) == Some("0A")
    };
    let has_listener = || {
        ["/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"]
            .iter()
            .filter_map(|file| std::fs::read_to_string(file).ok())
            .any(|text| text.lines().any(is_listening))
    };
    lab.server().run(has_listener).unwrap_or(false)
}

/// Parses `latency = 9.3 us` or `bw = 2.1e+09 bytes/sec` into µs or MB/s.
fn parse_qperf(stdout_of: &str) -> Result<f64> {
    for line in stdout_of.lines() {
        let Some((name, value)) = line.split_once('=') else { continue };
        let mut words = value.split_whitespace();
        let number: f64 = words.next().unwrap_or_default().replace(',', "").parse()?;
        let factor = match (name.trim(), words.next()) {
            ("latency", Some("sec")) => 1e6,
            ("latency", Some("ms")) | ("bw", Some("GB/sec")) => 1e3,
            ("latency", Some("us")) | ("bw", Some("MB/sec")) => 1.0,
            ("latency", Some("ns")) | ("bw", Some("KB/sec")) => 1e-3,
            ("bw", Some("bytes/sec")) => 1e-6,
            ("latency" | "bw", unit) => bail!("unknown unit of qperf: {unit:?}"),
            _ => continue,
        };
        return Ok(number * factor);
    }
    bail!("no value in the output of qperf: {stdout_of}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn qperf_output_is_parsed() {
        let close = |stdout_of: &str, expected: f64| {
            let figure = parse_qperf(stdout_of).unwrap();
            assert!((figure - expected).abs() < 1e-9, "{stdout_of}: {figure}");
        };
        close("tcp_lat:\n    latency  =  9,300 ns\n", 9.3);
        close("tcp_lat:\n    latency  =  9.3 us\n", 9.3);
        close("tcp_bw:\n    bw  =  2.08 GB/sec\n", 2_080.0);
        close("tcp_bw:\n    bw  =  118,000,000 bytes/sec\n", 118.0);
        assert!(parse_qperf("").is_err() && parse_qperf("bw = 1 furlong").is_err());
    }
}
