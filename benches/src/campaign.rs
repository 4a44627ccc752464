//! Start latency and start spread of a campaign's agents: fifty processes on this host, with a real
//! NATS server, each of which sends a few requests to a time server. All fifty share a few cores,
//! unlike the agents of a fleet: the measured values are upper bounds for a fleet.
//!
//! The release of a process at its start time is reported separately from the begin of its
//! measurement, because all processes compete for the same few cores at that time.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use horolog_lab::{Lab, LabConfig, LabHost, RunningProgram};
use serde_json::Value;
use tempfile::TempDir;

use crate::figure::{Figure, Goal};

const AGENTS: usize = 50;
/// Goal of the time from the command to the last start, in seconds.
const START_GOAL_S: f64 = 5.0;
/// Goal of the 99th percentile of the start latency, in ms.
const LATENCY_GOAL_MS: f64 = 5.0;
/// Timeout of the registration of all agents.
const TIMEOUT: Duration = Duration::from_mins(1);

fn plan() -> String {
    format!(
        r#"
schema = "horolog.plan/2"
name = "bench"
duration-max = "30s"
max-offset = "100ms"

[[role]]
name = "ask"
kind = "query"
count = {AGENTS}
[role.options]
target = "127.0.0.1"
"#
    )
}

/// Starts a program on the lab host; it runs as long as the returned value lives.
fn start_program(host: &LabHost, program: &Path, arguments: &[&str]) -> Result<RunningProgram> {
    Ok(RunningProgram::start(host.command(program).args(arguments))?)
}

fn agents(host: &LabHost, binary: &Path, directory: &Path) -> Result<Vec<RunningProgram>> {
    let agent = |number: usize| {
        let state = directory.join(format!("state{number}")).display().to_string();
        let name = format!("n{number}");
        let arguments = ["campaign", "agent", "--name", &name, "--state", &state];
        let clock = ["--clock-server", "127.0.0.1", "--address", "127.0.0.1"];
        start_program(host, binary, &[&arguments[..], &clock].concat())
    };
    let agents = (1..=AGENTS).map(agent).collect::<Result<Vec<_>>>()?;
    let started = Instant::now();
    loop {
        let mut list = host.command(binary);
        let stdout = list.args(["campaign", "list", "--json"]).output()?.stdout;
        let list: Value = serde_json::from_slice(&stdout).unwrap_or_default();
        if list["agents"].as_array().is_some_and(|agents| agents.len() == AGENTS) {
            return Ok(agents);
        }
        ensure!(started.elapsed() < TIMEOUT, "cannot list all agents: timeout");
        thread::sleep(Duration::from_millis(500));
    }
}

/// Latencies of the starts of a campaign.
struct CampaignStarts {
    /// Time from the command to the last start, in seconds.
    took_s: f64,
    /// Start latency of each job, in ms.
    latency_ms: Vec<f64>,
    /// Time from the start time to the begin of each measurement, in ms, by its own result, which
    /// has a resolution of 1 ms.
    begin_ms: Vec<f64>,
}

fn run(host: &LabHost, binary: &Path, directory: &Path) -> Result<CampaignStarts> {
    let (plan, result) = (directory.join("plan.toml"), directory.join("result.json"));
    let mut command: Command = host.command(binary);
    command.args(["campaign", "run", "--json"]).arg(&result).arg(&plan);
    let began = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let output = command.stdin(Stdio::null()).output()?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {}", output.status, stderr.trim());
    let result: Value = serde_json::from_slice(&fs::read(result)?)?;
    let instant_ns = result["start"]["instant_ns"].as_i64().context("no start time")?;
    let parts = result["parts"].as_array().context("no parts")?;
    let starts: Option<Vec<_>> = parts.iter().map(|part| part["started_ns"].as_i64()).collect();
    let starts = starts.filter(|starts| starts.len() == AGENTS).context("missing starts")?;
    let last_ns = starts.iter().max().context("no job was started")?;
    let took_s = (last_ns - began.as_nanos() as i64) as f64 / 1e9;
    let late_ms = starts.iter().map(|start_ns| (start_ns - instant_ns) as f64 / 1e6).collect();
    let begun = |part: &Value| {
        let text = part["result"]["started"].as_str()?;
        Some(after_ms(instant_ns, text)? as f64)
    };
    let begun_ms: Option<Vec<_>> = parts.iter().map(begun).collect();
    Ok(CampaignStarts {
        took_s,
        latency_ms: late_ms,
        begin_ms: begun_ms.context("a result has no start time")?,
    })
}

/// Returns the time from an instant to an RFC 3339 time with milliseconds, in ms. They must lie
/// within 30 s of each other, because only the seconds of the minute are compared.
fn after_ms(instant_ns: i64, text: &str) -> Option<i64> {
    let (_, time) = text.strip_suffix('Z')?.rsplit_once(':')?;
    let (seconds, millis) = time.split_once('.')?;
    let ms = seconds.parse::<i64>().ok()? * 1_000 + millis.parse::<i64>().ok()?;
    let instant_ms = instant_ns / 1_000_000 % 60_000;
    Some((ms - instant_ms + 30_000).rem_euclid(60_000) - 30_000)
}

/// Returns the 99th percentile (nearest rank).
fn p99(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let rank = (values.len() as f64 * 0.99).ceil() as usize;
    values.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

/// Runs a campaign of fifty agents `rounds` times.
pub(crate) fn measure(binary: &Path, rounds: usize) -> Result<Vec<Figure>> {
    let lab = Lab::new(&LabConfig { ipv6: false, ..LabConfig::default() })?;
    let (host, directory) = (lab.client(), TempDir::new()?);
    let path = |name: &str| directory.path().join(name).display().to_string();
    fs::write(directory.path().join("plan.toml"), plan())?;
    let (store, log, socket) = (path("store"), path("nats.log"), path("status.sock"));
    let nats = ["--jetstream", "--store_dir", &store, "--addr", "127.0.0.1", "--log", &log];
    let _nats = start_program(host, Path::new("nats-server"), &nats)
        .context("nats-server is not in PATH; scripts/setup.sh --peers fetches it")?;
    let serve = ["serve", "--local", "--listen", "127.0.0.1:123", "--engine", "socket"];
    let _time = start_program(host, binary, &[&serve[..], &["--status-socket", &socket]].concat())?;
    let _agents = agents(host, binary, directory.path())?;
    let (mut starts, mut late, mut begun) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        let run = run(host, binary, directory.path())?;
        starts.push(run.took_s);
        late.push(p99(run.latency_ms));
        begun.push(p99(run.begin_ms));
    }
    let name = |what: &str| format!("campaign: {AGENTS} agents, {what}");
    let start = Figure::new(name("from the command to the last start"), "s", starts);
    let late = Figure::new(name("p99 of the start behind the instant"), "ms", late);
    let begun = Figure::new(name("p99 of the first action behind the instant"), "ms", begun);
    Ok(vec![start.with(Goal::Below(START_GOAL_S)), late.with(Goal::Below(LATENCY_GOAL_MS)), begun])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_of_a_record_counts_from_the_start_time() {
        let instant_ns = 1_795_468_859_990_000_000;
        assert_eq!(after_ms(instant_ns, "2026-11-24T00:01:00.012Z"), Some(22));
        assert_eq!(after_ms(instant_ns, "2026-11-24T00:00:59.989Z"), Some(-1));
        assert_eq!(after_ms(instant_ns, "now"), None);
    }
}
