//! Scenarios of `horolog host all`: all parts run and are complete, a part without a privilege
//! reports it while others run, a busy core is among the worst findings, and the host's settings
//! stay unchanged.

use std::fs;
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use horolog_lab::{Lab, LabConfig};
use horolog_sys::namespace::die_with_parent;
use serde_json::Value;
use tempfile::TempDir;

use crate::host_scheduler::{last_core, run_while_busy};
use crate::load_command::UnprivilegedCopy;
use crate::process::{TIMEOUT, binary, run_to_end};
use crate::scenario::{Need, Queue, Scenario};
use crate::{ROOT, host_all, scenarios};

const SETPRIV: &[Need] = &[Need::Root, Need::Peer("setpriv")];
/// Timeout of a run of some seconds on a busy machine.
const RUN_TIMEOUT: Duration = TIMEOUT.saturating_mul(9);
const PARTS: [&str; 5] = ["clock", "delay", "timer", "switch", "interrupt"];
/// Settings that a measurement could change and not restore.
const UNCHANGED_SETTINGS: [&str; 5] = [
    "/proc/sys/kernel/sched_rt_runtime_us",
    "/proc/sys/kernel/sched_rt_period_us",
    "/proc/sys/kernel/timer_migration",
    "/proc/sys/kernel/bpf_stats_enabled",
    "/sys/devices/system/clocksource/clocksource0/current_clocksource",
];

pub(crate) fn all() -> Vec<Scenario> {
    let judging = scenarios!(ROOT, host_all:
        all_parts_run_and_leave_the_host_unchanged,
        a_busy_core_is_among_the_worst_findings,
    );
    let mut all = Vec::from(judging.map(|scenario| scenario.in_queue(Queue::Exclusive)));
    all.extend(scenarios!(SETPRIV, host_all: parts_without_privilege_report_it_and_the_others_run));
    all.extend(scenarios!(&[], host_all: impossible_measurements_are_refused));
    all
}

fn array_of<'a>(value: &'a Value, name: &str) -> Result<&'a Vec<Value>> {
    value[name].as_array().with_context(|| format!("no {name}: {value}"))
}

/// Returns the result, and checks the exit status and the number of worst findings.
fn checked_result(output: &Output) -> Result<Value> {
    let result: Value =
        serde_json::from_slice(&output.stdout).with_context(|| format!("no result: {output:?}"))?;
    let expected = i32::from(result["verdict"] == "unfit");
    ensure!(output.status.code() == Some(expected), "{}: {output:?}", result["verdict"]);
    ensure!(array_of(&result, "worst_findings")?.len() <= 3, "{}", result["worst_findings"]);
    Ok(result)
}

/// Returns the severities of all findings of a result and its parts.
fn severities(result: &Value) -> Vec<&str> {
    let parts = PARTS.iter().map(|part| &result[*part]);
    let records = parts.chain(result["nics"].as_array().into_iter().flatten()).chain([result]);
    let findings = records.filter_map(|record| record["findings"].as_array()).flatten();
    findings.filter_map(|finding| finding["severity"].as_str()).collect()
}

/// Returns the present settings. `/dev/cpu_dma_latency` is not one of them: a request there ends
/// with its process, and parallel scenarios may make one as well.
fn settings() -> Result<Vec<Option<Vec<u8>>>> {
    let all: Vec<_> = UNCHANGED_SETTINGS.map(|path| fs::read(path).ok()).into();
    ensure!(all[0].is_some(), "no setting can be read: {all:?}");
    Ok(all)
}

pub(crate) fn all_parts_run_and_leave_the_host_unchanged() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let server = lab.server();
    let directory = TempDir::new()?;
    let page = directory.path().join("all.html");
    let before = settings()?;
    let mut command = server.command(binary()?);
    command.args(["host", "all", "-t", "5s", "--json", "-", "--html"]).arg(&page);
    let result = checked_result(&run_to_end(die_with_parent(&mut command), RUN_TIMEOUT)?)?;
    let after = settings()?;
    ensure!(after == before, "settings changed: {before:?} to {after:?}");

    ensure!(result["schema"] == "horolog.host-all/2", "{result}");
    for part in PARTS {
        let schema = format!("horolog.host-{part}/2");
        ensure!(result[part]["schema"] == *schema, "{part}: {}", result["parts"]);
    }
    let nics: Vec<_> = array_of(&result, "nics")?.iter().map(|one| &one["interface"]).collect();
    ensure!(nics == [&server.first_interface().name], "wrong NICs: {nics:?}");
    let outcomes = array_of(&result, "parts")?;
    ensure!(outcomes.len() == PARTS.len() + 1, "{outcomes:?}");
    for outcome in outcomes {
        let state = outcome["state"].as_str().context("no state")?;
        ensure!(["measured", "reduced"].contains(&state), "{outcome}");
        let why = array_of(outcome, "reason")?;
        ensure!(why.is_empty() == (state == "measured"), "{outcome}");
    }
    let all = severities(&result);
    let verdict = match (all.contains(&"error"), all.contains(&"warning")) {
        (true, _) => "unfit",
        (false, true) => "marginal",
        (false, false) => "fit",
    };
    ensure!(result["verdict"] == verdict, "{} of {all:?}", result["verdict"]);
    let page = fs::read_to_string(page)?;
    for shown in ["plot-median", "plot-wake-ups-histogram", "plot-turns-histogram", "plot-gaps"] {
        ensure!(page.contains(shown), "{shown}");
    }
    Ok(())
}

/// An unprivileged user.
pub(crate) fn parts_without_privilege_report_it_and_the_others_run() -> Result<()> {
    let user = UnprivilegedCopy::new()?;
    let mut command = user.command(Command::new("setpriv"));
    command.args(["host", "all", "-t", "5s", "--skip", "delay", "--json", "-"]);
    let result = checked_result(&run_to_end(&mut command, RUN_TIMEOUT)?)?;
    let outcomes = array_of(&result, "parts")?;
    let of = |part: &str| -> Result<(String, String)> {
        let outcome = outcomes.iter().find(|one| one["part"] == part).context("no such part")?;
        Ok((
            outcome["state"].as_str().context("no state")?.to_owned(),
            outcome["reason"].to_string(),
        ))
    };
    for part in ["timer", "switch", "interrupt"] {
        let (state, why) = of(part)?;
        ensure!(state == "reduced" && why.contains("SCHED_FIFO was refused"), "{part}: {why}");
        ensure!(result[part]["schema"].is_string(), "{part} gave nothing");
    }
    let (_, why) = of("interrupt")?;
    ensure!(why.contains("returned no values"), "missing privilege is not a reason: {why}");
    ensure!(of("delay")?.0 == "skipped" && result.get("delay").is_none(), "{outcomes:?}");
    ensure!(of("clock")?.0 == "measured", "{outcomes:?}");
    let core = &array_of(&result["timer"], "cores")?[0];
    ensure!(core["latency_ns"]["count"].as_u64() > Some(100), "{core}");
    let findings = array_of(&result["timer"], "findings")?;
    let is_refused = |one: &Value| one["code"] == "real-time-refused";
    ensure!(findings.iter().any(is_refused), "{findings:?}");
    // A busy machine may have three worse findings.
    let worst = array_of(&result, "worst_findings")?.iter();
    let refused = worst.filter(|one| is_refused(&one["finding"])).count();
    ensure!(refused <= 1, "repeated finding of several parts: {}", result["worst_findings"]);
    ensure!(result["verdict"] != "fit", "{}", result["verdict"]);
    Ok(())
}

/// A thread at a higher priority that takes a tenth of the core's time: wake-ups are late, and OS
/// noise is reported.
pub(crate) fn a_busy_core_is_among_the_worst_findings() -> Result<()> {
    let core = last_core()?;
    let directory = TempDir::new()?;
    let file = directory.path().join("all.json");
    let mut command = Command::new(binary()?);
    command.args(["host", "all", "-t", "6s", "--skip", "delay,switch,nic", "--json"]).arg(&file);
    command.args(["--fail-if", "interrupt.gap>3ms", "--fail-if", "switch.pipe>1s"]);
    let output = run_while_busy(core, || run_to_end(&mut command, RUN_TIMEOUT))?;
    ensure!(output.status.code() == Some(1), "{output:?}");
    let result: Value = serde_json::from_str(&fs::read_to_string(&file)?)?;
    ensure!(result["verdict"] == "unfit", "{}", result["verdict"]);
    let worst = array_of(&result, "worst_findings")?;
    let about = |code: &str| {
        let message = |one: &Value| one["finding"]["message"].as_str().map(str::to_owned);
        let found = worst.iter().find(|one| one["finding"]["code"] == code).and_then(message);
        found.with_context(|| format!("no {code}: {worst:?}"))
    };
    let late = about("wakeup-latency-high")?;
    ensure!(late.starts_with(&format!("Core {core} wakes up")), "{late}");
    ensure!(worst[0]["part"] == "timer" && worst[0]["finding"]["severity"] == "error", "{worst:?}");
    // Other load of the machine may make another core busier.
    let is_reported = |one: &Value| {
        let message = one["finding"]["message"].as_str().unwrap_or_default();
        let is_own = message.starts_with(&format!("Core {core} was taken"));
        one["finding"]["code"] == "os-noise" && (is_own || one["others"] != 0)
    };
    ensure!(worst.iter().any(is_reported), "{worst:?}");
    let limits = array_of(&result, "limits")?;
    ensure!(limits.iter().all(|limit| limit["failed"] == true), "{limits:?}");
    ensure!(limits[1].get("value").is_none(), "switches were not measured: {limits:?}");
    let table = String::from_utf8(output.stdout)?;
    for shown in ["not fit", "skipped", "  → ", "limit 'interrupt.gap>3ms' failed"] {
        ensure!(table.contains(shown), "{shown}: {table}");
    }
    Ok(())
}

pub(crate) fn impossible_measurements_are_refused() -> Result<()> {
    for (arguments, status, expected) in [
        (["-t", "1s"].as_slice(), 2, "5s to 1h"),
        (&["--skip", "card"], 2, "write one of clock, delay"),
        (&["--skip", "clock,delay,timer,switch,interrupt,nic"], 2, "no parts left to measure"),
        (&["--fail-if", "p99>1ms"], 2, "name a metric (delay.mean, "),
        (&["--fail-if", "timer.pipe>1ms"], 2, "name a metric"),
        (&["--json", "/nowhere/at/all"], 3, "/nowhere/at/all"),
        (&["--json", "-", "--html", "-"], 2, "only one of"),
    ] {
        let mut command = Command::new(binary()?);
        let output = run_to_end(command.args(["host", "all"]).args(arguments), TIMEOUT)?;
        let stderr = String::from_utf8(output.stderr).context("no text")?;
        ensure!(output.status.code() == Some(status), "{arguments:?}: {stderr}");
        ensure!(stderr.contains(expected), "{arguments:?}: {stderr}");
        ensure!(stderr.lines().count() == 1, "{arguments:?}: {stderr}");
    }
    Ok(())
}
