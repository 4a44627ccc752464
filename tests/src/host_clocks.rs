//! Scenarios of `horolog host clock` and `horolog host delay`: they report a timer slack and a time
//! namespace that were set before, and refuse invalid requests.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::thread;

use anyhow::{Context, Result, anyhow, ensure};
use horolog_sys::affinity::set_timer_slack_ns;
use serde_json::Value;
use tempfile::TempDir;

use crate::process::{TIMEOUT, binary, run_to_end};
use crate::scenario::Scenario;
use crate::{ROOT, host_clocks, scenarios};

/// Timer slack that no system sets by itself, longer than the delay that a busy machine adds.
const SLACK_NS: u32 = 23_000_000;

pub(crate) fn all() -> Vec<Scenario> {
    let mut all = Vec::from(scenarios!(ROOT, host_clocks: a_time_namespace_is_detected));
    all.extend(scenarios!(&[], host_clocks:
        the_clocks_are_shown_in_every_format,
        an_inherited_slack_appears_in_the_delays,
        limits_are_checked_and_no_setting_remains_changed,
        impossible_requests_are_refused,
    ));
    all
}

fn host(arguments: &[&str]) -> Result<Output> {
    run_to_end(Command::new(binary()?).arg("host").args(arguments), TIMEOUT)
}

/// Returns the JSON result of a command, which must succeed.
fn result_of(arguments: &[&str]) -> Result<Value> {
    let output = host(&[arguments, &["--json", "-"]].concat())?;
    ensure!(output.status.success(), "{arguments:?}: {output:?}");
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Returns the JSON result of a command that inherits another timer slack from its starting thread.
fn json_with_slack(arguments: &'static [&'static str]) -> Result<Value> {
    let started = thread::spawn(move || {
        set_timer_slack_ns(SLACK_NS)?;
        result_of(arguments)
    });
    started.join().map_err(|_| anyhow!("a panic"))?
}

fn path_text(path: &Path) -> Result<&str> {
    path.to_str().context("no text")
}

fn the_clocks_are_shown_in_every_format() -> Result<()> {
    let directory = TempDir::new()?;
    let of = |name: &str| directory.path().join(name);
    let (file, page) = (of("clock.json"), of("clock.html"));
    let files = ["--json", path_text(&file)?, "--html", path_text(&page)?];
    let output = host(&[&["clock", "-t", "300ms"][..], &files].concat())?;
    ensure!(output.status.success(), "{output:?}");
    let table = String::from_utf8(output.stdout)?;
    for expected in ["HZ", "jiffies", "clocksource", "MONOTONIC_RAW", "timer slack", "RTC"] {
        ensure!(table.contains(expected), "{expected}: {table}");
    }
    let result: Value = serde_json::from_str(&fs::read_to_string(&file)?)?;
    ensure!(result["schema"] == "horolog.host-clock/2", "{result}");
    // The coarse clock steps once per tick, which gives an independent tick length.
    let tick = |name: &str| result["tick"][name].as_u64().context("no tick");
    ensure!(tick("tick_ns")?.abs_diff(tick("coarse_resolution_ns")?) < 1_000, "{result}");
    ensure!(tick("hz")?.abs_diff(1_000_000_000 / tick("tick_ns")?) <= 1, "{result}");
    let clocks = result["clocks"].as_array().context("no clocks")?;
    let of = |name| clocks.iter().find(|clock| clock["name"] == name).context("no such clock");
    let rate = of("BOOTTIME")?["rate_ppm"].as_f64().context("no rate")?;
    let error_bound = of("BOOTTIME")?["rate_error_bound_ppm"].as_f64().context("no error bound")?;
    ensure!(rate.abs() <= error_bound + 0.001, "rate against MONOTONIC: {rate} ± {error_bound}");
    ensure!(of("MONOTONIC_COARSE")?["step_ns"].as_u64() > of("MONOTONIC")?["step_ns"].as_u64());
    ensure!(fs::read_to_string(&page)?.trim_end().ends_with("</html>"), "incomplete HTML report");
    let slack = json_with_slack(&["clock", "-t", "50ms"])?;
    ensure!(slack["waking"]["timer_slack_ns"] == SLACK_NS, "{}", slack["waking"]);
    Ok(())
}

/// Time namespace with a longer uptime.
fn a_time_namespace_is_detected() -> Result<()> {
    if !Path::new("/proc/self/ns/time").exists() {
        return Ok(());
    }
    let mut command = Command::new("unshare");
    command.args(["--time", "--fork", "--monotonic", "4000", "--boottime", "7000"]);
    command.arg(binary()?).args(["host", "clock", "-t", "50ms", "--json", "-"]);
    let output = run_to_end(&mut command, TIMEOUT)?;
    ensure!(output.status.success(), "{output:?}");
    let waking = &serde_json::from_slice::<Value>(&output.stdout)?["waking"];
    ensure!(waking["namespace_monotonic_ns"] == 4_000_000_000_000_u64, "{waking}");
    ensure!(waking["namespace_boottime_ns"] == 7_000_000_000_000_u64, "{waking}");
    Ok(())
}

/// Returns the median overshoots of `nanosleep`, in ns, one per setting.
fn medians(result: &Value) -> Result<Vec<u64>> {
    let cells = result["cells"].as_array().context("no cells")?;
    let median = |cell: &Value| cell["overshoot_ns"]["p50"].as_u64().context("no median");
    cells.iter().map(median).collect()
}

fn an_inherited_slack_appears_in_the_delays() -> Result<()> {
    let arguments: &[_] =
        &["delay", "-f", "nanosleep", "-d", "1ms", "-n", "15", "--policy", "other", "--no-claims"];
    let wide = json_with_slack(arguments)?;
    ensure!(wide["schema"] == "horolog.host-delay/2", "{wide}");
    ensure!(wide["settings"][0]["slack_ns"] == SLACK_NS, "{wide}");
    let codes = wide["findings"].as_array().context("no findings")?;
    ensure!(codes.iter().any(|finding| finding["code"] == "timer-slack-large"), "{wide}");
    let [by_default, minimal] = medians(&wide)?[..] else { anyhow::bail!("{wide}") };
    // A timer with slack expires with the next interrupt, or at the end of the slack.
    ensure!(by_default > 3 * minimal, "medians of {by_default} and {minimal} ns");
    ensure!(wide["cells"][0]["early"] == 0 && wide["claims"].as_array().is_some_and(Vec::is_empty));
    Ok(())
}

fn limits_are_checked_and_no_setting_remains_changed() -> Result<()> {
    let directory = TempDir::new()?;
    let page = directory.path().join("delay.html");
    let arguments =
        ["delay", "-d", "1us,100us", "-n", "5", "--policy", "other", "--slack", "default"];
    let limit = ["--fail-if", "p50>10s", "--html", path_text(&page)?];
    let result = result_of(&[&arguments[..], &limit].concat())?;
    let claims = result["claims"].as_array().context("no claims")?;
    let verdict = |id| claims.iter().find(|claim| claim["id"] == id).map(|one| &one["verdict"]);
    // Claims with the same verdict on every supported kernel and C library.
    for (id, expected) in [
        ("time-before", "holds"),
        ("usleep-at-least", "holds"),
        ("sleep-is-alarm", "fails"),
        ("usleep-limit", "fails"),
        ("nanosleep-interrupted", "holds"),
        ("delayed-ack-40-ms", "elsewhere"),
    ] {
        ensure!(verdict(id).is_some_and(|one| one == expected), "{id}: {claims:?}");
    }
    let interrupted = result["interrupted"].as_array().context("no signals")?;
    ensure!(interrupted.len() == 4 && interrupted[3]["ended"] == false, "{interrupted:?}");
    ensure!(fs::read_to_string(&page)?.contains("plot-median"), "no plot");
    let broken = host(&[
        "delay",
        "-f",
        "poll",
        "-d",
        "1ms",
        "-n",
        "2",
        "--no-claims",
        "--fail-if",
        "max>0",
    ])?;
    ensure!(broken.status.code() == Some(1), "{broken:?}");
    Ok(())
}

fn impossible_requests_are_refused() -> Result<()> {
    for (arguments, status, expected) in [
        (["clock", "-t", "2h"].as_slice(), 2, "at most 1h"),
        (&["clock", "--json", "/nowhere/at/all"], 3, "/nowhere/at/all"),
        (&["clock", "--json", "-", "--html", "-"], 2, "standard output"),
        (&["delay", "-f", "nap"], 2, "alarm-pause"),
        (&["delay", "-d", "soon"], 2, "soon"),
        (&["delay", "-d", "2m"], 2, "at most 1m"),
        (&["delay", "-f", "sleep", "-d", "1ms"], 2, "sleep and alarm-pause take whole seconds"),
        (&["delay", "-n", "0"], 2, "0"),
        (&["delay", "--policy", "rr"], 2, "other or fifo"),
        (&["delay", "--slack", "none"], 2, "default or minimal"),
        (&["delay", "--fail-if", "p98>1ms"], 2, "p99"),
        (&["nic", "no-such-if"], 3, "no interface 'no-such-if'"),
        (&["nic", "a-name-that-is-far-too-long"], 3, "no interface"),
        (&["nic"], 2, "IF"),
    ] {
        let output = host(arguments)?;
        let stderr = String::from_utf8(output.stderr).context("no text")?;
        let ended = output.status;
        ensure!(ended.code() == Some(status), "{arguments:?}: {ended:?}, {stderr}");
        ensure!(stderr.contains(expected), "{arguments:?}: {stderr}");
        ensure!(stderr.lines().count() == 1, "{arguments:?}: {stderr}");
    }
    Ok(())
}
