//! Scenarios of `horolog cycle predict`: bounds from costs in files and from newly measured costs,
//! the exit statuses that follow, and refusals of task sets without a prediction.

use std::fs;
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use horolog_record::{
    CyclePredictCostKind, CyclePredictResult, CyclePredictVerdict as Verdict, FindingCode,
};
use tempfile::TempDir;

use crate::process::{binary, run_to_end};
use crate::scenario::Scenario;
use crate::{cycle_predict, scenarios};

/// Timeout of a command: enough for a short measurement on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(90);
/// Sample results of another machine, with all optional values present.
const SAMPLES: &str = concat!(env!("HOROLOG_REPOSITORY"), "crates/record/samples");

const TASKS: &str = "[[task]]\nname = \"control\"\nperiod = \"500ms\"\npriority = 80\n\
                   compute = \"20ms\"\n[[task]]\nname = \"log\"\nperiod = \"2s\"\npriority = 10\n\
                   compute = \"100ms\"\n";

pub(crate) fn all() -> Vec<Scenario> {
    Vec::from(scenarios!(&[], cycle_predict:
        bounds_follow_from_files,
        bounds_follow_from_measured_costs,
        missed_deadlines_and_unknown_bounds_end_in_status_1,
        unpredictable_tasks_are_refused,
    ))
}

fn predict(arguments: &[&str]) -> Result<Output> {
    run_to_end(Command::new(binary()?).args(["cycle", "predict"]).args(arguments), TIMEOUT)
}

fn read(output: &Output) -> Result<CyclePredictResult> {
    serde_json::from_slice(&output.stdout).with_context(|| format!("{output:?}"))
}

fn write(directory: &TempDir, name: &str, text: &str) -> Result<String> {
    let path = directory.path().join(name);
    fs::write(&path, text)?;
    Ok(path.to_string_lossy().into_owned())
}

fn sample(name: &str) -> String {
    format!("{SAMPLES}/{name}.json")
}

fn bounds_follow_from_files() -> Result<()> {
    let directory = TempDir::new()?;
    let tasks = write(&directory, "tasks.toml", TASKS)?;
    let (host, path) = (sample("host_all"), sample("path_udp"));
    let page = directory.path().join("page.html").to_string_lossy().into_owned();
    let files = ["--costs", &*host, "--costs", &*path, "--percentile", "p99"];
    let output = predict(&[&[&*tasks], &files[..], &["--json", "-", "--html", &*page]].concat())?;
    let result = read(&output)?;
    ensure!(output.status.success(), "{output:?}");
    ensure!(result.costs.iter().all(|cost| cost.source == host || cost.source == path));
    for task in &result.tasks {
        let (safe, published) = (task.safe.as_ref(), task.as_published.as_ref());
        let (safe, printed) = safe.zip(published).context("a bound is missing")?;
        ensure!(printed.response_ns < safe.response_ns, "{task:?}");
        ensure!(task.verdict == Verdict::Schedulable && safe.dominant.is_some(), "{task:?}");
    }
    ensure!(result.tasks[1].before == ["control"], "{:?}", result.tasks[1]);
    ensure!(
        result.findings.iter().any(|one| one.code == FindingCode::CostFromOtherMachine),
        "no finding that costs are of another machine"
    );
    ensure!(fs::read_to_string(&page)?.contains("class=\"term\""));
    let failed = predict(&[&[&*tasks], &files[..], &["--fail-if", "response>1us"]].concat())?;
    ensure!(failed.status.code() == Some(1), "{failed:?}");
    ensure!(String::from_utf8(failed.stderr)?.contains("response>1us"));
    Ok(())
}

fn bounds_follow_from_measured_costs() -> Result<()> {
    let directory = TempDir::new()?;
    // Long periods, so that noise of the machine causes no missed deadline.
    let tasks = write(&directory, "tasks.toml", TASKS)?;
    let output =
        predict(&[&tasks, "--measure", "--time", "5s", "--percentile", "p90", "--json", "-"])?;
    let result = read(&output)?;
    for kind in [CyclePredictCostKind::Switch, CyclePredictCostKind::Release] {
        let found = result.costs.iter().find(|cost| cost.kind == kind);
        let cost = found.with_context(|| format!("no cost of {kind:?}"))?;
        ensure!(cost.source == "the measurement now", "{cost:?}");
    }
    ensure!(
        result.findings.iter().all(|one| one.code != FindingCode::CostFromOtherMachine),
        "costs of this machine are reported as of another"
    );
    Ok(())
}

fn missed_deadlines_and_unknown_bounds_end_in_status_1() -> Result<()> {
    let directory = TempDir::new()?;
    let host = sample("host_all");
    let lines = |compute: &str, rest: &str| {
        format!("[[task]]\nname = \"a\"\nperiod = \"100ms\"\ncompute = \"{compute}\"\n{rest}")
    };
    for (name, text, words, verdict) in [
        ("late", lines("99ms", ""), "task 'a' is not schedulable", Verdict::Unschedulable),
        ("far", lines("200ms", ""), "task 'a' is not schedulable", Verdict::Unschedulable),
        ("sends", lines("1ms", "message = 64\n"), "a message of 64 bytes", Verdict::Unknown),
    ] {
        let tasks = write(&directory, name, &text)?;
        let output = predict(&[&tasks, "--costs", &host, "--json", "-"])?;
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.code() == Some(1) && stderr.contains(words), "{name}: {stderr}");
        ensure!(read(&output)?.tasks[0].verdict == verdict, "{name}");
    }
    Ok(())
}

/// Checks that a command is refused in one line that contains `words`, with the status of wrong
/// usage.
fn check_refused(arguments: &[&str], words: &str) -> Result<()> {
    let output = predict(arguments)?;
    let stderr = String::from_utf8(output.stderr)?;
    ensure!(output.status.code() == Some(2), "{arguments:?}: {:?} {stderr}", output.status);
    let is_line = stderr.starts_with("horolog: ") && stderr.lines().count() == 1;
    ensure!(is_line && stderr.contains(words), "{arguments:?}: {stderr}");
    Ok(())
}

fn unpredictable_tasks_are_refused() -> Result<()> {
    let directory = TempDir::new()?;
    let host = sample("host_all");
    let task = |lines: &str| format!("[[task]]\nname = \"a\"\nperiod = \"10ms\"\n{lines}\n");
    for (name, text, words) in [
        ("toml", "[[task".to_owned(), "line 1: "),
        ("none", "task = []".to_owned(), "there are 0 tasks"),
        ("field", task("colour = 1"), "line 4: unknown field"),
        (
            "program",
            task("program = [\"x\"]"),
            "task 'a': the execution time of its program is unknown",
        ),
        ("units", task("units = 7"), "task 'a': the execution time of its units is unknown"),
    ] {
        let path = write(&directory, name, &text)?;
        check_refused(&[&path, "--costs", &host], words)?;
        // Refused before any measurement.
        check_refused(&[&path, "--measure"], words)?;
    }
    let tasks = write(&directory, "tasks.toml", TASKS)?;
    let (text, other) = (write(&directory, "x", "no")?, sample("load"));
    check_refused(&[&tasks], "--costs")?;
    check_refused(&[&tasks, "--costs", &text], "not a result: ")?;
    check_refused(&[&tasks, "--costs", &other], "its schema is horolog.load/2; give a result of")?;
    check_refused(&[&tasks, "--costs", "/nowhere"], "cannot read /nowhere")?;
    let run = ["--measured", &*other];
    check_refused(&[&[&*tasks, "--measure"], &run[..]].concat(), "give a result of 'cycle run'")?;
    check_refused(&["/nowhere", "--measure"], "cannot read /nowhere")?;
    check_refused(&[&tasks, "--costs", &host, "--percentile", "p42"], "write one of p50")?;
    check_refused(&[&tasks, "--costs", &host, "--time", "9s"], "--measure")?;
    check_refused(&[&tasks, "--costs", &host, "--fail-if", "margin>1ms"], "name a metric")?;
    check_refused(&[&tasks, "--measure", "--time", "1s"], "5s to 1h")
}
