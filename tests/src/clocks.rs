//! Scenarios of `horolog clock`: views and logs of a server that is calibrated by a receiver at a
//! pseudo-terminal, comparison of the kernel's clocks, and errors of missing devices. Test hosts
//! have no hardware clock and no pulse input.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use horolog_lab::{Lab, LabConfig};
use horolog_time::Span;
use serde_json::Value;
use tempfile::TempDir;

use crate::process::{Engine, Server, TIMEOUT, binary, run_to_end, server_address, wait_until};
use crate::scenario::Scenario;
use crate::{ROOT, clocks, scenarios};
use horolog_lab::receiver::SimulatedGnssReceiver;

/// Offset of the receiver from the system clock; negative, so that the sign is visible in all
/// views.
const RECEIVER_OFFSET: Span = Span::from_ms(-2_700);
/// Maximum error: a sentence determines the time to half a second.
const ERROR_MAX_NS: u64 = 600_000_000;

pub(crate) fn all() -> Vec<Scenario> {
    let mut all = Vec::from(scenarios!(ROOT, clocks: a_servers_clock_is_shown_logged_and_drawn));
    all.extend(scenarios!(&[], clocks:
        the_kernels_clocks_are_compared,
        clock_errors_are_reported,
    ));
    all
}

fn clock(arguments: &[&str]) -> Result<Output> {
    run_to_end(Command::new(binary()?).arg("clock").args(arguments), TIMEOUT)
}

/// Returns stdout of a `clock` command that must succeed.
fn stdout_of(arguments: &[&str]) -> Result<String> {
    let output = clock(arguments)?;
    ensure!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).context("stdout is not UTF-8")
}

fn path_text(path: &Path) -> Result<&str> {
    path.to_str().context("the path is not UTF-8")
}

/// Checks the view of a server's clock, and plots of the two logs: by `clock log` and by the
/// server.
fn a_servers_clock_is_shown_logged_and_drawn() -> Result<()> {
    let directory = TempDir::new()?;
    let of = |name: &str| directory.path().join(name);
    let (gnss, own, log, page) = (of("gnss"), of("own"), of("log"), of("page.html"));
    let _receiver = SimulatedGnssReceiver::start(&gnss, RECEIVER_OFFSET)?;
    let lab = Lab::new(&LabConfig::default())?;
    let device = format!("{}:115200", gnss.display());
    let mut arguments = vec!["--gnss", &device, "--no-clock-control"];
    arguments.extend(["--clock-error-log", path_text(&own)?]);
    let at = server_address(&lab, false)?;
    let server = Server::start_without_local(lab.server(), Engine::Socket, &[at], &arguments)?;
    wait_until("coarse", || Ok(server.status()?["calibration"]["state"] == "coarse"))?;
    let socket = path_text(server.socket())?.to_owned();

    let shown = stdout_of(&["show", "--status-socket", &socket])?;
    for expected in ["coarse, sentences only", "system clock not steered", "sources: "] {
        ensure!(shown.contains(expected), "{expected}: {shown}");
    }
    let line = shown.lines().find(|line| line.contains("system clock ahead of UTC"));
    let line = line.context("no offset")?;
    ensure!(line.contains('+') && line.ends_with(" s"), "{line}");
    let json: Value =
        serde_json::from_str(&stdout_of(&["show", "--status-socket", &socket, "--json"])?)?;
    ensure!(json["calibration"]["state"] == "coarse" && json.get("counters").is_none(), "{json}");

    let path = path_text(&log)?;
    stdout_of(&["log", path, "--status-socket", &socket, "-i", "100ms", "-t", "1s"])?;
    let lines: Vec<Value> =
        fs::read_to_string(&log)?.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let calibration = || lines.iter().filter(|line| line["clock"] == "calibration");
    ensure!(calibration().count() >= 5 && calibration().count() < lines.len(), "{lines:?}");
    for line in &lines {
        let Some(offset_ns) = line["offset_ns"].as_i64() else { continue };
        let is_system = line["clock"].as_str().is_some_and(|name| name.contains("system"));
        let off_ns = (offset_ns + RECEIVER_OFFSET.as_ns()).unsigned_abs();
        ensure!(is_system || off_ns < ERROR_MAX_NS, "{line}");
    }
    let drawn = stdout_of(&["plot", path, "--html", path_text(&page)?])?;
    ensure!(drawn.contains("calibration: coarse from 0 s\n"), "{drawn}");
    let html = fs::read_to_string(&page)?;
    ensure!(html.contains("plot-offset") && html.trim_end().ends_with("</html>"), "{}", html.len());

    server.end("TERM")?;
    let gone = clock(&["show", "--status-socket", &socket])?;
    ensure!(gone.status.code() == Some(3), "{gone:?}");
    // Without a pulse the server's log is empty, or has only lines of the state.
    let of_server = clock(&["plot", path_text(&own)?])?;
    let is_empty = fs::metadata(&own)?.len() == 0;
    let expected = if is_empty { 2 } else { 0 };
    ensure!(of_server.status.code() == Some(expected), "{of_server:?}");
    Ok(())
}

/// Checks that TAI differs from UTC by whole seconds; the rate of the oscillator is arbitrary.
fn the_kernels_clocks_are_compared() -> Result<()> {
    let directory = TempDir::new()?;
    let of = |name: &str| directory.path().join(name);
    let (json, html, log) = (of("compare.json"), of("compare.html"), of("log"));
    let files = ["--json", path_text(&json)?, "--html", path_text(&html)?];
    let settings = ["compare", "raw", "monotonic", "tai", "-i", "20ms", "-t", "1s"];
    let table = stdout_of(&[&settings[..], &files[..]].concat())?;
    ensure!(table.contains("system clock versus") && table.contains("ppm"), "{table}");
    let result: Value = serde_json::from_str(&fs::read_to_string(&json)?)?;
    ensure!(result["schema"] == "horolog.clock-compare/2", "{result}");
    let clocks = result["clocks"].as_array().context("no clocks")?;
    for clock in clocks {
        ensure!(clock["offset_ns"]["count"] == 51 && clock["missed"] == 0, "{clock}");
        ensure!(clock["allan"].as_array().is_some_and(|points| points.len() >= 4), "{clock}");
    }
    let tai = clocks.iter().find(|clock| clock["name"] == "tai").context("no TAI")?;
    for sample in tai["samples"].as_array().context("no samples")? {
        let off_ns = sample["offset_ns"].as_i64().context("no offset")?.unsigned_abs();
        ensure!(off_ns <= sample["error_bound_ns"].as_u64().context("no error bound")?, "{sample}");
    }
    ensure!(fs::read_to_string(&html)?.contains("plot-allan"), "no plot in the report");

    let path = path_text(&log)?;
    stdout_of(&["log", path, "tai", "-i", "1ms", "-t", "200ms", "--size", "4096"])?;
    let before = fs::metadata(of("log.1"))?.len();
    ensure!(before <= 4_096 && fs::metadata(&log)?.len() <= 4_096, "{before}");
    let drawn = stdout_of(&["plot", path])?;
    ensure!(drawn.contains("tai"), "{drawn}");

    let limited = |limit| {
        let settings = ["compare", "raw", "monotonic", "tai", "-i", "5ms", "-t", "250ms"];
        clock(&[&settings[..], &["--fail-if", limit]].concat())
    };
    let (broken, passed) = (limited("max>0ns")?, limited("max>100s")?);
    ensure!(
        (broken.status.code(), passed.status.code()) == (Some(1), Some(0)),
        "{broken:?} {passed:?}"
    );
    Ok(())
}

fn clock_errors_are_reported() -> Result<()> {
    let directory = TempDir::new()?;
    let log = directory.path().join("log");
    fs::write(&log, "{\"monotonic_ns\":1}\nnonsense\n")?;
    let log = path_text(&log)?;
    for (arguments, status, expected) in [
        (["compare", "/dev/ptp77"].as_slice(), 3, "/dev/ptp77: no such clock"),
        (&["compare", "/dev/pps77"], 3, "/dev/pps77: no such clock"),
        (&["compare", "quartz"], 2, "unknown clock 'quartz'"),
        (&["compare", "raw,edge=clear"], 2, "unknown option 'edge=clear'"),
        (&["compare", "-i", "1us"], 2, "at least 1ms"),
        (&["compare", "-i", "1ms", "-t", "24h"], 2, "readings are kept"),
        (&["compare", "--fail-if", "recovery>1s"], 2, "mean, stddev, rms, p99, max"),
        (&["compare", "--json", "/nowhere/at/all"], 3, "/nowhere/at/all"),
        (&["show", "--status-socket", "/nowhere.sock"], 3, "no server answers at /nowhere.sock"),
        (&["show", "--live"], 2, "--live needs a terminal"),
        (&["log", "/nowhere/at/all", "raw"], 3, "cannot write /nowhere/at/all"),
        (&["log", "-", "/dev/ptp77"], 3, "/dev/ptp77: no such clock"),
        (&["log", "-", "--status-socket", "/nowhere.sock"], 3, "no server answers"),
        (&["plot", "/nowhere/at/all"], 3, "cannot read /nowhere/at/all"),
        (&["plot", log], 2, "line 2: "),
    ] {
        let output = clock(arguments)?;
        let stderr = String::from_utf8(output.stderr).context("stderr is not UTF-8")?;
        ensure!(
            output.status.code() == Some(status),
            "{arguments:?}: {:?}, {stderr}",
            output.status
        );
        ensure!(stderr.contains(expected), "{arguments:?}: {stderr}");
        ensure!(stderr.lines().count() == 1, "{arguments:?}: {stderr}");
    }
    Ok(())
}
