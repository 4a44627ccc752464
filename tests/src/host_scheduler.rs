//! Scenarios of `horolog host timer`, `switch` and `interrupt`: a core that is busy at a higher
//! priority is found by its late wake-ups and as OS noise.

use std::fs;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use horolog_sys::affinity::{self, RealTimeSchedulingOutcome};
use serde_json::Value;
use tempfile::TempDir;

use crate::load_command::UnprivilegedCopy;
use crate::process::{TIMEOUT, binary, run_to_end};
use crate::scenario::{Need, Scenario};
use crate::{ROOT, host_scheduler, scenarios};

/// Busy time of the core in each period.
const BUSY_TIME: Duration = Duration::from_millis(6);
/// Idle time of the core in each period.
const IDLE_TIME: Duration = Duration::from_millis(54);
/// Real-time priority of the busy thread, above that of the measuring threads, 80.
const BUSY_PRIORITY: i32 = 95;

const SETPRIV: &[Need] = &[Need::Root, Need::Peer("setpriv")];

pub(crate) fn all() -> Vec<Scenario> {
    let mut all = Vec::from(scenarios!(ROOT, host_scheduler:
        a_busy_core_is_found_by_its_wake_ups,
        os_noise_is_found_with_its_source,
        switches_are_measured_by_every_method,
        handlers_run_in_the_kernel_and_in_user_space,
    ));
    all.extend(scenarios!(SETPRIV, host_scheduler: missing_privileges_are_reported));
    all.extend(scenarios!(&[], host_scheduler: invalid_host_measurements_are_refused));
    all
}

fn host(arguments: &[&str]) -> Result<Output> {
    run_to_end(Command::new(binary()?).arg("host").args(arguments), TIMEOUT)
}

/// Returns the result of a command, which must succeed.
fn measure(arguments: &[&str]) -> Result<Value> {
    let output = host(&[arguments, &["--json", "-"]].concat())?;
    ensure!(output.status.success(), "{arguments:?}: {output:?}");
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Executes `run` while a thread at a high priority periodically takes the core.
pub(crate) fn run_while_busy<T>(core: usize, run: impl FnOnce() -> Result<T>) -> Result<T> {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let busy = scope.spawn(|| -> Result<()> {
            affinity::pin_to_core(core)?;
            let scheduling = affinity::try_real_time(BUSY_PRIORITY);
            ensure!(matches!(scheduling, RealTimeSchedulingOutcome::RealTime), "{scheduling:?}");
            while !stop.load(Ordering::Relaxed) {
                let begun = Instant::now();
                while begun.elapsed() < BUSY_TIME {}
                thread::sleep(IDLE_TIME);
            }
            Ok(())
        });
        let outcome = run();
        stop.store(true, Ordering::Relaxed);
        busy.join().map_err(|_| anyhow::anyhow!("the busy thread panicked"))??;
        outcome
    })
}

pub(crate) fn last_core() -> Result<usize> {
    affinity::allowed_cores()?.last().copied().context("no core")
}

fn number(value: &Value) -> Result<u64> {
    value.as_u64().with_context(|| format!("no number: {value}"))
}

/// In each busy time, a wake-up is late by most of it, and the periods in it are counted as missed.
pub(crate) fn a_busy_core_is_found_by_its_wake_ups() -> Result<()> {
    let core = last_core()?;
    let name = core.to_string();
    let settings = ["timer", "-c", &name, "-t", "600ms", "-i", "1ms"];
    let result = run_while_busy(core, || measure(&settings))?;
    let found = &result["cores"][0];
    ensure!(found["scheduling"]["policy"] == "fifo", "{found}");
    let latency = &found["latency_ns"];
    ensure!(number(&latency["count"])? == 600, "a period is missing: {latency}");
    let busy_ns = BUSY_TIME.as_nanos() as u64;
    ensure!(number(&latency["max"])? > busy_ns / 2, "{latency}");
    // About ten busy times, each with about five missed periods.
    ensure!(number(&found["missed"])? >= 15, "{found}");
    let codes: Vec<_> = result["findings"].as_array().context("no findings")?.iter().collect();
    ensure!(codes.iter().any(|one| one["code"] == "periods-missed"), "{codes:?}");

    let broken = run_while_busy(core, || host(&["timer", "-c", &name, "-t", "2s", "-b", "3ms"]))?;
    ensure!(broken.status.code() == Some(1), "{broken:?}");
    let stderr = String::from_utf8(broken.stderr)?;
    ensure!(stderr.contains("s late in its period"), "{stderr}");
    Ok(())
}

/// The measuring thread is not a real-time thread, so that OS noise from one at a higher priority
/// is attributed to threads.
pub(crate) fn os_noise_is_found_with_its_source() -> Result<()> {
    let core = last_core()?;
    let name = core.to_string();
    let spin = ["interrupt", "-c", &name, "--handlers", "timerfd", "-n", "1", "-r", "1"];
    let spin = [&spin[..], &["-t", "600ms"]].concat();
    let result = run_while_busy(core, || measure(&spin))?;
    let found = &result["os_noise"][0];
    let threads = &found["by_threads"];
    let busy_ns = BUSY_TIME.as_nanos() as u64;
    ensure!(number(&threads["gaps"])? >= 5, "{found}");
    ensure!(number(&threads["max_ns"])? >= busy_ns * 8 / 10, "{found}");
    ensure!(number(&threads["total_ns"])? >= busy_ns * 5, "{found}");
    // The scheduler's own count of waiting time, which is independent of gaps.
    let waited_ns = number(&found["run_delay_ns"])?;
    ensure!(waited_ns >= busy_ns * 5, "{found}");
    // The host of a virtual machine may take the core for longer than the busy thread.
    let longest = found["longest"].as_array().context("no longest gaps")?;
    ensure!(longest.iter().any(|gap| gap["by_threads"] == true), "{longest:?}");

    let limited = [&spin[..], &["--fail-if", "gap>1ms"]].concat();
    let output = run_while_busy(core, || host(&limited))?;
    ensure!(output.status.code() == Some(1), "{output:?}");
    Ok(())
}

/// All eight steps and the exchanges have plausible times.
pub(crate) fn switches_are_measured_by_every_method() -> Result<()> {
    let directory = TempDir::new()?;
    let page = directory.path().join("switch.html");
    let page = page.to_str().context("no text")?;
    let result = measure(&["switch", "-n", "500", "-r", "3", "--html", page])?;
    ensure!(result["schema"] == "horolog.host-switch/2", "{result}");
    for steps in result["steps"].as_array().context("no steps")? {
        let repetitions = steps["repetitions"].as_array().context("no repetitions")?;
        ensure!(repetitions.len() == 3, "{steps}");
        for repetition in repetitions {
            ensure!(number(&repetition["switches"])? >= 495, "{repetition}");
            let [alone, both] = ["loop_ns", "turns_ns"].map(|name| number(&repetition[name]));
            ensure!(both? > alone?, "a turn is shorter than its call: {repetition}");
        }
        let value_of =
            |name: &str| steps[name].as_f64().with_context(|| format!("{name}: {steps}"));
        // Two switches and a call take longer than one switch.
        ensure!(value_of("paper_ns")? > value_of("per_switch_ns")?, "{steps}");
    }
    let exchanges = result["exchanges"].as_array().context("no exchanges")?;
    let cores = affinity::allowed_cores()?.len().min(2);
    ensure!(exchanges.len() == 6 * cores, "{}", exchanges.len());
    for exchange in exchanges {
        ensure!(number(&exchange["turn_ns"]["count"])? == 1_500, "{exchange}");
        let first = &exchange["repetitions"][0];
        ensure!(first["turn_ns"].as_f64() > first["baseline_ns"].as_f64(), "{first}");
        if exchange["placement"] == "same-core" {
            ensure!(first["switches_per_turn"].as_f64() >= Some(0.95), "{first}");
        }
    }
    ensure!(fs::read_to_string(page)?.contains("plot-turns-histogram"), "no histogram");
    Ok(())
}

pub(crate) fn handlers_run_in_the_kernel_and_in_user_space() -> Result<()> {
    let core = last_core()?.to_string();
    let settings = ["interrupt", "-c", &core, "-n", "100", "-r", "5", "-t", "50ms"];
    let result = measure(&settings)?;
    let handlers = result["handlers"].as_array().context("no handlers")?;
    ensure!(handlers.len() == 3, "{handlers:?}");
    for handler in handlers {
        ensure!(handler["error"].is_null() && handler["elsewhere"] == 0, "{handler}");
        ensure!(number(&handler["delay_ns"]["count"])? == 500, "{handler}");
        ensure!(handler["repetitions"].as_array().is_some_and(|all| all.len() == 5), "{handler}");
    }
    // A thread is woken by the interrupt in which the kernel handler runs. The handlers run one
    // after another, so that a single minimum depends on the time at which it was measured.
    let least = |index: usize| number(&handlers[index]["delay_ns"]["min"]);
    let kernel = least(0)?;
    ensure!(kernel < least(1)?.max(least(2)?), "{kernel} {} {}", least(1)?, least(2)?);
    Ok(())
}

/// With the usual limits, an ordinary user may load no BPF program and have no real-time thread.
pub(crate) fn missing_privileges_are_reported() -> Result<()> {
    let user = UnprivilegedCopy::new()?;
    let run = |arguments: &[&str]| -> Result<Output> {
        let mut command = user.command(Command::new("setpriv"));
        run_to_end(command.arg("host").args(arguments), TIMEOUT)
    };
    let short = ["interrupt", "--handlers", "kernel", "-n", "10", "-r", "1", "-t", "0"];
    let output = run(&short)?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(3) && stderr.contains("nothing was measured"), "{stderr}");
    let delay = ["delay", "--no-claims", "-f", "nanosleep", "-d", "1ms", "-n", "5", "--policy"];
    let fifo = run(&[&delay[..], &["fifo"]].concat())?;
    let stderr = String::from_utf8_lossy(&fifo.stderr);
    ensure!(fifo.status.code() == Some(3) && stderr.contains("nothing was measured"), "{stderr}");
    ensure!(String::from_utf8_lossy(&fifo.stdout).contains("not measured"), "{fifo:?}");
    // A partial measurement is not a failure, and a limit names the failed combination.
    let part = run(&[&delay[..], &["other,fifo", "--fail-if", "p50>1ns"]].concat())?;
    let stderr = String::from_utf8_lossy(&part.stderr);
    ensure!(part.status.code() == Some(1), "{stderr}");
    ensure!(stderr.contains("(nanosleep of 1.00 ms, SCHED_OTHER, "), "{stderr}");
    Ok(())
}

pub(crate) fn invalid_host_measurements_are_refused() -> Result<()> {
    for (arguments, status, expected) in [
        (["timer", "-c", "8000"].as_slice(), 2, "core 8000 is not available"),
        (&["timer", "-c", "0-1"], 2, "write cores as"),
        (&["timer", "-i", "1us"], 2, "at least 50us"),
        (&["timer", "-i", "1s", "-t", "10ms"], 2, "shorter than one --interval"),
        (&["timer", "-p", "100"], 2, "100"),
        (&["timer", "-p", "5", "--sched-other"], 2, "cannot be used with"),
        (&["timer", "--fail-if", "median>1us"], 2, "name a metric"),
        (&["timer", "--fail-if", "p99>1"], 2, "write a time with its unit"),
        (&["timer", "--json", "/nowhere/at/all"], 3, "/nowhere/at/all"),
        (&["switch", "-n", "1M"], 2, "1M"),
        (&["switch", "-n", "60000"], 2, "60000"),
        (&["switch", "-c", "0..2"], 2, "one core, or two"),
        (&["switch", "--fail-if", "os-noise>1%"], 2, "name a metric"),
        (&["interrupt", "-i", "1us"], 2, "20us to 1s"),
        (&["interrupt", "--handlers", "apc"], 2, "apc"),
        (&["interrupt", "--fail-if", "os-noise>1us"], 2, "write a share"),
        (&["interrupt", "--json", "-", "--html", "-"], 2, "only one of"),
    ] {
        let output = host(arguments)?;
        let stderr = String::from_utf8(output.stderr).context("no text")?;
        ensure!(output.status.code() == Some(status), "{arguments:?}: {stderr}");
        ensure!(stderr.contains(expected), "{arguments:?}: {stderr}");
        ensure!(stderr.lines().count() == 1, "{arguments:?}: {stderr}");
    }
    Ok(())
}
