//! Scenarios of `horolog runs compare`, with measured results and changed samples: a server with a
//! wrong clock, variation between runs, selected metrics, damaged results.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use horolog_lab::{Lab, LabConfig};
use horolog_record::{CompareVerdict, ComparedMetricKind, RunsCompareResult};
use serde_json::Value;
use tempfile::TempDir;

use crate::process::{Engine, Server, TIMEOUT, binary, run_to_end, server_address};
use crate::scenario::Scenario;
use crate::{ROOT, runs_compare, scenarios};

/// Offset of the less accurate server, in ns.
const OFFSET: f64 = 5e6;
const OFFSET_ERROR_MAX: f64 = 1e5;

pub(crate) fn all() -> Vec<Scenario> {
    let mut all = Vec::from(scenarios!(ROOT, runs_compare: a_less_accurate_server_is_found));
    all.extend(scenarios!(&[], runs_compare: unsound_and_failed_results_are_reported));
    all
}

/// Damaged samples are refused; lower rates and missed detections are worse.
fn unsound_and_failed_results_are_reported() -> Result<()> {
    let directory = TempDir::new()?;
    let write_result = |name: &str, result: &Value| -> Result<String> {
        let path = directory.path().join(name);
        fs::write(&path, result.to_string())?;
        Ok(path.to_str().context("path is not UTF-8")?.to_owned())
    };
    let load = sample("load")?;
    let sound = write_result("load.json", &load)?;
    let mut wrong = load.clone();
    wrong["trials"][0]["sent"] = "x".into();
    let mut damaged = load.clone();
    damaged["trials"][0]["rtt_ns"]["histogram"] = "AAAA".into();
    for (name, result, expected) in [
        ("wrong.json", &wrong, "trials[0].sent"),
        ("damaged.json", &damaged, "rtt of 500,000/s is damaged"),
    ] {
        let output = compare(&[&sound, &write_result(name, result)?])?;
        let stderr = String::from_utf8(output.stderr)?;
        ensure!(output.status.code() == Some(3) && stderr.contains(expected), "{stderr}");
    }
    let mut slow = load;
    (slow["search"]["lower"], slow["search"]["upper"]) = (1e3.into(), 1.1e3.into());
    slow["search"]["rate"] = 1e3.into();
    let output = compare(&[&sound, &write_result("slow.json", &slow)?, "--metric", "capacity"])?;
    let stdout = String::from_utf8(output.stdout)?;
    ensure!(output.status.code() == Some(1) && stdout.contains("worse"), "{stdout}");
    let test = sample("cycle_test")?;
    let mut undetected = test.clone();
    undetected["run"]["faults"][0]["detected"] = Value::Null;
    let before = write_result("test.json", &test)?;
    let output = compare(&[&before, &write_result("undetected.json", &undetected)?])?;
    let stdout = String::from_utf8(output.stdout)?;
    ensure!(output.status.code() == Some(1) && stdout.contains("none"), "{stdout}");
    Ok(())
}

/// Reads the sample result called `name`.
fn sample(name: &str) -> Result<Value> {
    let named = |path: &PathBuf| path.file_stem().is_some_and(|stem| stem == name);
    let path = crate::runs::samples()?.into_iter().find(named).context("no such sample")?;
    Ok(serde_json::from_slice(&fs::read(path)?)?)
}

fn compare(arguments: &[&str]) -> Result<Output> {
    let mut command = Command::new(binary()?);
    run_to_end(command.args(["runs", "compare"]).args(arguments), TIMEOUT)
}

fn a_less_accurate_server_is_found() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let directory = TempDir::new()?;
    let query = |name: &str| -> Result<String> {
        let path: PathBuf = directory.path().join(name);
        let path = path.to_str().context("path is not UTF-8")?.to_owned();
        let mut command = lab.client().command(binary()?);
        command.args(["query", &at.to_string(), "-n", "50", "--interval", "5ms", "--json", &path]);
        let output = run_to_end(&mut command, TIMEOUT)?;
        ensure!(output.status.success(), "{output:?}");
        Ok(path)
    };
    let server = Server::start(lab.server(), Engine::Socket, &[at], &[])?;
    let right = [query("a.json")?, query("b.json")?, query("c.json")?];
    drop(server);
    let moved = format!("{OFFSET}");
    let _server = Server::start(lab.server(), Engine::Socket, &[at], &["--test-offset", &moved])?;
    let off = [query("d.json")?, query("e.json")?, query("f.json")?];

    // An unchanged server is not worse. Delays are not compared here: they vary on any host.
    let same = compare(&[&right[0], &right[1], "--metric", "offset"])?;
    ensure!(same.status.success(), "{same:?}");
    let worse = compare(&[&right[0], &off[0], "--metric", "offset", "--json", "-"])?;
    ensure!(worse.status.code() == Some(1), "{worse:?}");
    let result: RunsCompareResult = serde_json::from_slice(&worse.stdout)?;
    let [figure] = &result.metrics[..] else { anyhow::bail!("{result:?}") };
    let (low, high) = figure.low.zip(figure.high).context("no confidence interval")?;
    let is_right = figure.verdict == CompareVerdict::Worse
        && figure.metric == ComparedMetricKind::Offset
        && figure.later.is_some_and(|later| (later - OFFSET).abs() < OFFSET_ERROR_MAX)
        && low < high
        && low > OFFSET - 2.0 * OFFSET_ERROR_MAX;
    ensure!(is_right, "{figure:?}");

    let (files, [right, off]) = (right.clone(), [right.join(","), off.join(",")]);
    let several = compare(&[&right, &off, "--threshold", "100000%", "--json", "-"])?;
    let result: RunsCompareResult = serde_json::from_slice(&several.stdout)?;
    let repeats = [&result.earlier_repeats, &result.later_repeats].map(Vec::len);
    ensure!(repeats == [2, 2] && result.threshold > 999.0, "{result:?}");
    let is_delay = |one: &&horolog_record::ComparedMetric| one.name == "delay";
    let median = result.metrics.iter().find(is_delay).context("no metric of delays")?;
    ensure!(median.low.is_some() && median.verdict != CompareVerdict::Worse, "{median:?}");
    let comparison = compare(&[&right, &off])?;
    let text = String::from_utf8(comparison.stdout)?;
    ensure!(text.contains(" and 2 more versus ") && text.contains("offset of "), "{text}");

    let twice = compare(&[&format!("{0},{0}", files[0]), &off])?;
    let stderr = String::from_utf8(twice.stderr)?;
    ensure!(twice.status.code() == Some(2) && stderr.contains("is the same run as"), "{stderr}");

    let nothing = compare(&[&right, &off, "--metric", "no-such-metric"])?;
    ensure!(nothing.status.code() == Some(2), "{nothing:?}");
    Ok(())
}
