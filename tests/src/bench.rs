//! Scenarios of `horolog bench`: the output of an experiment, and its errors. The measured values
//! depend on the host and are not checked.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use horolog_record::{
    BENCH_NTS_SCHEMA, BenchCoresResult, BenchNtsResult, FindingCode, NtsMixCapacity, RequestMode,
};

use crate::load_command::{UnprivilegedCopy, check_sums, has_finding, parse};
use crate::process::{binary, run_to_end};
use crate::scenario::{Need, Scenario};
use crate::scenarios;

/// Timeout of a run, much longer than four searches of about half a second each.
const TIMEOUT: Duration = Duration::from_mins(2);

pub(crate) fn all() -> Vec<Scenario> {
    use crate::bench;
    Vec::from(scenarios!(&[Need::Root], bench:
        authentication_is_measured,
        responses_are_counted_by_cores,
        impossible_requests_are_refused,
    ))
}

/// Checks that each mix of requests has the intended share, and that every authentic reply counts
/// as valid.
fn check(capacity: &NtsMixCapacity) -> Result<()> {
    let load = &capacity.load;
    ensure!(load.mode == RequestMode::NtpNts && load.search.is_some(), "{load:?}");
    ensure!(!has_finding(load, FindingCode::InvalidReplies), "{:?}", load.findings);
    ensure!(load.trials.iter().any(|trial| trial.received > 0), "no reply");
    let threads = capacity.threads.to_string();
    let has_all = capacity.server_command.windows(2).any(|pair| pair == ["--threads", &*threads]);
    ensure!(has_all, "{:?}", capacity.server_command);
    ensure!(capacity.cpu_ns_per_reply.is_some_and(|ns| ns > 0.0), "{capacity:?}");
    for trial in &load.trials {
        check_sums(trial)?;
        let authenticated = trial.authenticated.unwrap_or_default();
        ensure!(trial.responses.nts == authenticated.received, "{trial:?}");
        let expected = trial.sent * u64::from(capacity.authenticated_percent) / 100;
        // Each of the generator's lanes rounds separately.
        ensure!(authenticated.sent.abs_diff(expected) <= 64, "{trial:?}");
    }
    Ok(())
}

/// Checks that two numbers of threads and two shares, over sockets, give four capacities in a table
/// and in a file.
fn authentication_is_measured() -> Result<()> {
    let directory = tempfile::TempDir::new()?;
    let path = directory.path().join("result.json");
    let mut command = Command::new(binary()?);
    command.args(["bench", "nts", "--threads", "1,2,1", "--shares", "0,100", "--time", "0.2"]);
    command.args(["--engine", "socket", "--json"]).arg(&path).env("TMPDIR", directory.path());
    let output = run_to_end(&mut command, TIMEOUT)?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{stderr}");
    let result: BenchNtsResult = parse(&std::fs::read(&path)?)?;
    ensure!(result.schema == BENCH_NTS_SCHEMA, "{}", result.schema);
    let combinations: Vec<_> =
        result.capacities.iter().map(|one| (one.threads, one.authenticated_percent)).collect();
    ensure!(combinations == [(1, 0), (1, 100), (2, 0), (2, 100)], "{combinations:?}");
    result.capacities.iter().try_for_each(check)?;
    let table = String::from_utf8_lossy(&output.stdout);
    for text in ["threads", "authenticated", "100%", "lossless", "CPU per reply"] {
        ensure!(table.contains(text), "no '{text}' in {table}");
    }
    let left: Vec<_> = std::fs::read_dir(directory.path())?.collect::<Result<_, _>>()?;
    ensure!(left.len() == 1, "left behind: {left:?}");
    Ok(())
}

/// Checks that a wrong option is refused in one line with its status, and so is the command for an
/// unprivileged user.
fn impossible_requests_are_refused() -> Result<()> {
    for (arguments, text) in [
        (["--threads", "0"], "from 1 to"),
        (["--shares", "101"], "101"),
        (["--time", "0"], "longer than 0"),
        (["--engine", "steam"], "steam"),
    ] {
        let mut command = Command::new(binary()?);
        let output = run_to_end(command.args(["bench", "nts"]).args(arguments), TIMEOUT)?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.code() == Some(2), "{arguments:?}: {}: {stderr}", output.status);
        ensure!(stderr.contains(text) && stderr.lines().count() == 1, "{arguments:?}: {stderr}");
    }
    let mut command = Command::new(binary()?);
    let missing = ["bench", "nts", "--nts-master-secret", "/nonexistent/secret"];
    let output = run_to_end(command.args(missing), TIMEOUT)?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(3) && stderr.contains("cannot be read"), "{stderr}");
    let user = UnprivilegedCopy::new()?;
    let output = run_to_end(user.command(Command::new("setpriv")).args(["bench", "nts"]), TIMEOUT)?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(3) && stderr.lines().count() == 1, "{stderr}");
    Ok(())
}

/// Checks the responses of two numbers of cores, at rates within and above their capacity.
fn responses_are_counted_by_cores() -> Result<()> {
    let directory = tempfile::TempDir::new()?;
    let [json, html] = ["result.json", "page.html"].map(|name| directory.path().join(name));
    let bench = || -> Result<Command> {
        let mut command = Command::new(binary()?);
        command.args(["bench", "cores", "--cores", "1,2", "--repetitions", "2", "-t", "0.1"]);
        command.env("TMPDIR", directory.path());
        Ok(command)
    };
    let mut command = bench()?;
    command.args(["--rates", "1k,10k,20M", "--required-rate", "2k", "--loss-ratio", "5%"]);
    let output = run_to_end(command.arg("--json").arg(&json).arg("--html").arg(&html), TIMEOUT)?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{stderr}");
    let result: BenchCoresResult = parse(&std::fs::read(&json)?)?;
    let capture = result.capture.context("no capture")?;
    ensure!(capture.has_equal_counts() && capture.captured > 0, "{capture:?}");
    ensure!(result.columns.iter().map(|column| column.cores).eq([1, 2]), "{:?}", result.columns);
    for column in &result.columns {
        let rates: Vec<_> = column.points.iter().map(|point| point.rate as u64).collect();
        ensure!(rates == [1_000, 2_000, 10_000, 20_000_000], "{rates:?}");
        for point in &column.points {
            ensure!(point.runs.len() == 2 && point.runs.iter().all(|run| run.sent > 0));
            ensure!(point.runs.iter().all(|run| run.received <= run.sent), "{point:?}");
        }
        let full = column.full_answer_rate().unwrap_or_default();
        ensure!((2e3..1e6).contains(&full), "{column:?}");
    }
    let table = String::from_utf8_lossy(&output.stdout);
    for text in ["Responses per second", "46,098", "46,089", "required", "agree.", "+67.9%"] {
        ensure!(table.contains(text), "no '{text}' in {table}");
    }
    ensure!(std::fs::read_to_string(&html)?.contains("id=\"plot-runs\""), "no plot in the report");

    let mut command = bench()?;
    let output = run_to_end(command.args(["--rates", "1k", "--required-rate", "15M"]), TIMEOUT)?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(1) && stderr.contains("15.0 M/s"), "{stderr}");
    for (arguments, text) in [
        (["--rates", "5k..1k:5k"], "no number or range"),
        (["--required-rate", "none"], "positive number"),
        (["--repetitions", "0"], "1..=1000"),
    ] {
        let mut command = Command::new(binary()?);
        let output = run_to_end(command.args(["bench", "cores"]).args(arguments), TIMEOUT)?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.code() == Some(2), "{arguments:?}: {}: {stderr}", output.status);
        ensure!(stderr.contains(text) && stderr.lines().count() == 1, "{arguments:?}: {stderr}");
    }
    Ok(())
}
