//! Scenarios of the views of `horolog cycle run` and `horolog cycle test`: tasks, nodes and faults
//! on a terminal, divided work, limits, and runs that are interrupted once or twice.

use std::fs;
use std::process::{Child, Command, Output, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use horolog_sys::namespace::die_with_parent;
use serde_json::Value;
use tempfile::TempDir;

use crate::launch_after::processes;
use crate::live_views::{LiveTerminal, is_past_first_second};
use crate::process::{TIMEOUT, binary, run_to_end, signal, wait_until};
use crate::scenario::Scenario;
use crate::usage_error::{USAGE, check_refusal};
use crate::{cycle_views, scenarios};

/// Exit status after a second interrupt.
const INTERRUPTED_STATUS: i32 = 130;

pub(crate) fn all() -> Vec<Scenario> {
    Vec::from(scenarios!(&[], cycle_views:
        tasks_are_shown_on_a_terminal_and_a_key_ends_them,
        a_test_is_shown_on_a_terminal_and_a_key_ends_it,
        work_is_divided_among_the_nodes,
        a_limit_with_a_value_passes_or_fails,
        an_interrupt_keeps_the_counts_and_a_second_one_ends_at_once,
        an_interrupt_ends_a_run_before_its_start,
    ))
}

fn cycle(arguments: &[&str]) -> Result<Output> {
    run_to_end(Command::new(binary()?).args(["cycle", "run"]).args(arguments), TIMEOUT)
}

fn task(result: &Value, run: usize, node: usize) -> &Value {
    &result["runs"][run]["nodes"][node]["tasks"][0]
}

/// Starts `horolog cycle` on a pseudo-terminal.
fn start_on_terminal(arguments: &[&str]) -> Result<LiveTerminal> {
    let mut command = Command::new("setsid");
    command.arg("--ctty").arg(binary()?).arg("cycle").args(arguments);
    command.args(["--live", "--no-store"]);
    LiveTerminal::start(command)
}

fn start_live_run(arguments: &[&str]) -> Result<LiveTerminal> {
    let run = ["run", "-p", "20ms", "-n", "2", "--policy", "other"];
    start_on_terminal(&[&run[..], arguments].concat())
}

fn tasks_are_shown_on_a_terminal_and_a_key_ends_them() -> Result<()> {
    let directory = TempDir::new()?;
    let path = directory.path().join("result.json").display().to_string();
    let run = start_live_run(&["-u", "100", "-t", "500ms"])?;
    let (status, stdout, screen) = run.end()?;
    ensure!(status == 0 && stdout.contains("node2"), "{status}: {stdout}");
    ensure!((screen.alternate_count, screen.restored_count) == (1, 1), "terminal was not restored");
    // A key ends a long run with the counts so far.
    let mut run = start_live_run(&["-u", "100", "-t", "10m", "--json", &path])?;
    let all = ["run 1 of 1: ", " of 600.0 s", "node1        task ", "node2        task ", "missed"];
    let plot = ["execution to period over time", "%"];
    let is_complete = |text: &str| all.iter().chain(&plot).all(|part| text.contains(part));
    run.until(|text| is_complete(text) && is_past_first_second(text, "run 1 of 1: "))?;
    run.press("q")?;
    let (status, stdout, screen) = run.end()?;
    ensure!(status == 0 && screen.restored_count == 1, "{status}: {stdout}");
    let result: Value = serde_json::from_slice(&fs::read(&path)?)?;
    ensure!(task(&result, 0, 1)["periods"].as_u64() > Some(0), "{result}");
    ensure!(result["findings"].to_string().contains("\"interrupted\""), "{result}");
    // Without a terminal, `--live` is refused before any run or file.
    let log = directory.path().join("log.csv");
    let log_to = log.display().to_string();
    let refused = cycle(&["--live", "-p", "20ms", "-u", "100", "-t", "1s", "--log", &log_to])?;
    check_refusal(&refused, USAGE, &["--live needs a terminal"])?;
    ensure!(!log.exists(), "a refused run wrote the log");
    Ok(())
}

/// Test with a state, and then a node that is stopped; both last longer than a view may be late on
/// a busy machine.
const TEST: &str = "schema = \"horolog.test/2\"\nname = \"seen\"\ntime = \"8s\"\n\
    period = \"50ms\"\nnode-timeout = 3\n\
    [[stage]]\nname = \"meet\"\ncompute = \"1ms\"\nbarrier = true\nwait = \"20ms\"\n\
    [[state]]\nname = \"first\"\nfrom = \"0s\"\nto = \"3s\"\n\
    [[fault]]\nkind = \"stop\"\nat = \"3s\"\nfor = \"2s\"\nnode = 2\nstate = \"alone\"\n";

fn a_test_is_shown_on_a_terminal_and_a_key_ends_it() -> Result<()> {
    let directory = TempDir::new()?;
    let path = |name: &str| directory.path().join(name).display().to_string();
    let (test, json) = (path("test.toml"), path("result.json"));
    fs::write(&test, TEST)?;
    let mut run = start_on_terminal(&["test", &test])?;
    let contains_all = |parts: &'static [&'static str]| {
        move |text: &str| parts.iter().all(|part| text.contains(part))
    };
    run.until(contains_all(&[
        "load 1: ",
        " of 8.0 s",
        "state first",
        "node1 ",
        "node2 ",
        "stop node2 ",
    ]))?;
    run.until(contains_all(&["state alone", "response to deadline over time"]))?;
    let is_detected = |text: &str| {
        let row = text.lines().find(|line| line.starts_with("stop node2"));
        row.is_some_and(|row| row.contains(" 3.0 s         1 ") && row.ends_with('-'))
            && row.is_some_and(|row| row.contains(" ms"))
    };
    run.until(|text| is_detected(text))?;
    let (status, stdout, screen) = run.end()?;
    ensure!(status == 0 && stdout.contains("stop node2"), "{status}: {stdout}");
    ensure!((screen.alternate_count, screen.restored_count) == (1, 1), "terminal was not restored");
    // A key ends a long test with the counts so far.
    let mut run = start_on_terminal(&["test", "--time", "10m", "--json", &json])?;
    run.until(|text| is_past_first_second(text, "load 1: "))?;
    run.press("q")?;
    let (status, stdout, screen) = run.end()?;
    ensure!(status == 0 && screen.restored_count == 1, "{status}: {stdout}");
    let result: Value = serde_json::from_slice(&fs::read(&json)?)?;
    ensure!(result["run"]["nodes"][0]["periods"].as_u64() > Some(0), "{result}");
    ensure!(result["findings"].to_string().contains("\"interrupted\""), "{result}");
    let mut elsewhere = Command::new(binary()?);
    let refused = run_to_end(elsewhere.args(["cycle", "test", "--live"]), TIMEOUT)?;
    check_refusal(&refused, USAGE, &["--live needs a terminal"])
}

fn work_is_divided_among_the_nodes() -> Result<()> {
    let divided = |more: &[&str]| -> Result<Value> {
        let settings = ["--json", "-", "-p", "20ms", "-u", "900", "-b", "-t", "200ms"];
        let nodes = ["-n", "1,2", "--policy", "other"];
        let output = cycle(&[&settings[..], &nodes, more].concat())?;
        ensure!(output.status.success(), "{output:?}");
        Ok(serde_json::from_slice(&output.stdout)?)
    };
    let units = |result: &Value, run: usize, node: usize| task(result, run, node)["units"].as_u64();
    let result = divided(&["--split-work"])?;
    let found = [units(&result, 0, 0), units(&result, 1, 0), units(&result, 1, 1)];
    ensure!(found == [Some(900), Some(450), Some(450)], "{found:?}");
    // Each number of nodes has a speed-up, 1 for the first.
    let speedups = result["speedups"].as_array().context("no speed-ups")?;
    let nodes: Vec<_> = speedups.iter().filter_map(|one| one["nodes"].as_u64()).collect();
    ensure!(nodes == [1, 2] && speedups[0]["speedup"] == 1.0, "{speedups:?}");
    let result = divided(&[])?;
    ensure!([units(&result, 1, 0), units(&result, 1, 1)] == [Some(900); 2], "{result}");
    Ok(())
}

fn a_limit_with_a_value_passes_or_fails() -> Result<()> {
    // Each period takes more than twice its deadline.
    let run = ["--json", "-", "-p", "20ms", "-t", "100ms"];
    let run_with_limits = |limits: &[&str]| -> Result<(Option<i32>, Value)> {
        let output = cycle(&[&run[..], limits, &["--", "sleep", "0.05"]].concat())?;
        let result: Value = serde_json::from_slice(&output.stdout)?;
        Ok((output.status.code(), result["limits"].clone()))
    };
    let passing = ["--fail-if", "execution-max>3600s", "--fail-if", "start-latency-max>3600s"];
    let (status, limits) = run_with_limits(&passing)?;
    ensure!(status == Some(0), "{limits}");
    for limit in limits.as_array().context("no limits")? {
        ensure!(limit["failed"] == false && limit["scope"] == "task 'task' on node1", "{limit}");
    }
    let (status, limits) = run_with_limits(&[
        "--fail-if",
        "execution-mean>50ms",
        "--fail-if",
        "missed>99%",
        passing[0],
        passing[1],
    ])?;
    // The first two limits fail; the third passes and does not change the status.
    ensure!(status == Some(1), "{limits}");
    let failed: Vec<_> = (0..3).map(|at| limits[at]["failed"].as_bool()).collect();
    ensure!(failed == [Some(true), Some(true), Some(false)], "{limits}");
    ensure!(limits[1]["value"] == 1.0 && limits[0]["bound"] == 5e7, "{limits}");
    Ok(())
}

/// Starts a run of two nodes with a command or program that sleeps, and waits until it does.
fn start_sleeping(directory: &TempDir, kind: &[&str], sleep: &str) -> Result<Child> {
    let stderr = fs::File::create(directory.path().join("stderr"))?;
    let mut command = Command::new(binary()?);
    command.args(["cycle", "run", "--json", "-", "-p", "20ms", "-t", "60s", "--timeout", "120s"]);
    command.args(["-n", "2"]).args(kind).args(["--", "sleep", sleep]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(stderr);
    let run = die_with_parent(&mut command).spawn()?;
    let line = format!("sleep {sleep}");
    // A program that never reports readiness blocks the start of the second node.
    let wanted = if kind.is_empty() { 2 } else { 1 };
    wait_until("commands that sleep", || Ok(count_exact(&line)? == wanted))?;
    Ok(run)
}

/// Number of processes whose command line is exactly `line`; the nodes' command lines only contain
/// it.
fn count_exact(line: &str) -> Result<usize> {
    let is_own = |pid: &u32| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&words).replace('\0', " ").trim() == line
    };
    Ok(processes(line)?.iter().filter(|pid| is_own(pid)).count())
}

fn an_interrupt_keeps_the_counts_and_a_second_one_ends_at_once() -> Result<()> {
    let directory = TempDir::new()?;
    let run = start_sleeping(&directory, &[], "62.25")?;
    signal(&run, "INT")?;
    let output = run.wait_with_output()?;
    ensure!(output.status.code() == Some(0), "{output:?}");
    let result: Value = serde_json::from_slice(&output.stdout)?;
    // The interrupted period is not counted.
    ensure!(task(&result, 0, 0)["periods"] == 0 && task(&result, 0, 1)["failed"] == 0, "{result}");
    ensure!(result["findings"].to_string().contains("\"interrupted\""), "{result}");
    ensure!(count_exact("sleep 62.25")? == 0, "'sleep 62.25' still runs");

    let run = start_sleeping(&directory, &[], "62.5")?;
    signal(&run, "INT")?;
    let is_reported =
        || Ok(fs::read_to_string(directory.path().join("stderr"))?.contains("once more"));
    wait_until("report of the first interrupt", is_reported)?;
    signal(&run, "INT")?;
    let output = run.wait_with_output()?;
    // The run may have ended after the first interrupt.
    let is_through = output.status.code() == Some(0) && !output.stdout.is_empty();
    let is_ended = output.status.code() == Some(INTERRUPTED_STATUS) && output.stdout.is_empty();
    ensure!(is_ended || is_through, "{output:?}");
    wait_until("no command that sleeps", || Ok(count_exact("sleep 62.5")? == 0))
}

/// A program has two minutes to become ready; an interrupt ends this wait.
fn an_interrupt_ends_a_run_before_its_start() -> Result<()> {
    let directory = TempDir::new()?;
    let run = start_sleeping(&directory, &["--program"], "62.75")?;
    let begun = Instant::now();
    signal(&run, "INT")?;
    let output = run.wait_with_output()?;
    let stderr = fs::read_to_string(directory.path().join("stderr"))?;
    ensure!(output.status.code() == Some(3), "{output:?}: {stderr}");
    ensure!(
        stderr.contains("node1 is not ready: the run was interrupted before it was"),
        "{stderr}"
    );
    ensure!(begun.elapsed() < TIMEOUT, "{:?}", begun.elapsed());
    ensure!(count_exact("sleep 62.75")? == 0, "'sleep 62.75' still runs");
    Ok(())
}
