//! Scenarios of `horolog at`: instants, series of instants, background jobs and refusals. No
//! scenario checks latency.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use horolog_sys::namespace::die_with_parent;
use serde_json::Value;
use tempfile::TempDir;

use crate::launch_after::processes;
use crate::process::{TIMEOUT, binary, run_to_end, signal, signal_to, wait_until};
use crate::scenario::Scenario;
use crate::{ROOT, launch_at, scenarios};

/// POSIX time zone of Central Europe, independent of zone files.
const CENTRAL_EUROPE: &str = "CET-1CEST,M3.5.0,M10.5.0/3";

pub(crate) fn all() -> Vec<Scenario> {
    let mut all = Vec::from(scenarios!(&[], launch_at:
        lines_run_in_their_order_and_the_first_failure_is_passed_on,
        instants_of_a_series_are_on_the_grid,
        overrun_instants_are_missed_and_counted,
        a_signal_ends_the_wait_and_the_programs,
        invalid_instants_are_refused_in_one_line,
        a_job_waits_in_the_background_and_is_cancelled,
        a_job_runs_in_the_background,
        running_and_waiting_jobs_are_distinguished,
        a_killed_job_is_lost_and_no_other_is_affected,
        systemd_receives_the_unit_of_a_job,
    ));
    all.extend(scenarios!(ROOT, launch_at:
        a_command_inherits_the_scheduling_of_its_starter,
        refused_settings_are_reported_and_omitted,
    ));
    all
}

fn at(arguments: &[&str]) -> Result<Output> {
    run_to_end(Command::new(binary()?).arg("at").args(arguments), TIMEOUT)
}

fn text(bytes: &[u8]) -> Result<&str> {
    str::from_utf8(bytes).context("output is not UTF-8")
}

/// Runs `horolog at` with its own job queue.
fn run_queued(state: &Path, arguments: &[&str]) -> Result<Output> {
    let mut command = Command::new(binary()?);
    command.arg("at").args(arguments).env("XDG_STATE_HOME", state);
    let output = run_to_end(&mut command, TIMEOUT)?;
    ensure!(output.status.success(), "{arguments:?}: {output:?}");
    Ok(output)
}

fn list_jobs(state: &Path) -> Result<Vec<Value>> {
    let output = run_queued(state, &["list", "--backend", "process", "--json"])?;
    let list: Value = serde_json::from_slice(&output.stdout)?;
    Ok(list["jobs"].as_array().context("no jobs")?.clone())
}

fn lines_run_in_their_order_and_the_first_failure_is_passed_on() -> Result<()> {
    let directory = TempDir::new()?;
    let json = directory.path().join("at.json").to_string_lossy().into_owned();
    let lines = ["-c", "echo a; exit 5", "-c", "echo b", "-c", "echo c; exit 6"];
    let output = at(&[&["now+100ms", "--json", &json][..], &lines[..]].concat())?;
    ensure!(output.status.code() == Some(5), "{output:?}");
    ensure!(text(&output.stdout)? == "a\nb\nc\n", "{output:?}");
    ensure!(text(&output.stderr)?.contains("wake-up latency"), "{output:?}");
    let result: Value = serde_json::from_str(&fs::read_to_string(&json)?)?;
    ensure!(result["schema"] == "horolog.at/2" && result["met"] == 1, "{result}");
    ensure!(result["programs"][2]["last_status"] == 6, "{result}");
    for late in ["woken_late_ns", "started_late_ns"] {
        ensure!(result[late]["count"] == 1, "{late}: {result}");
    }
    // With `--parallel`, the second command does not wait for the first.
    let fifo = directory.path().join("fifo");
    let (read, write) = (format!("read x < {0}", fifo.display()), fifo.display().to_string());
    let make = Command::new("mkfifo").arg(&fifo).status()?;
    ensure!(make.success(), "mkfifo");
    let output =
        at(&["now", "--allow-past", "--parallel", "-c", &read, "-c", &format!("echo > {write}")])?;
    ensure!(output.status.success(), "{output:?}");
    let missing = at(&["now", "--allow-past", "--", "/nowhere/at/all"])?;
    ensure!(missing.status.code() == Some(127), "{missing:?}");
    Ok(())
}

fn instants_of_a_series_are_on_the_grid() -> Result<()> {
    const EVERY_NS: i64 = 20_000_000;
    let output = at(&["--every", "20ms", "--count", "6", "--json", "-", "-q", "--", "true"])?;
    ensure!(output.status.success(), "{output:?}");
    let result: Value = serde_json::from_slice(&output.stdout)?;
    let first_ns = result["first_ns"].as_i64().context("no first instant")?;
    ensure!(first_ns % EVERY_NS == 0 && result["every_ns"] == EVERY_NS, "{result}");
    ensure!(result["met"] == 6 && result["programs"][0]["runs"] == 6, "{result}");
    ensure!(result["woken_late_ns"]["count"] == 6, "{result}");
    // A series from a past instant keeps the grid of that instant.
    let from = ["@1000000000.007", "--every", "20ms", "--count", "2", "--json", "-", "-q"];
    let result: Value = serde_json::from_slice(&at(&from)?.stdout)?;
    let first_ns = result["first_ns"].as_i64().context("no first instant")?;
    ensure!(first_ns % EVERY_NS == 7_000_000 && result["met"] == 2, "{result}");
    // On TAI, with or without the offset in the kernel.
    let tai = at(&["--every", "20ms", "--count", "2", "--tai", "--tai-offset", "37", "-q"])?;
    ensure!(matches!(tai.status.code(), Some(0 | 2)), "{tai:?}");
    Ok(())
}

/// Prints a shell's nice value, real-time priority, policy (0 `SCHED_OTHER`, 1 `SCHED_FIFO`, 3
/// `SCHED_BATCH`) and timer slack.
const SCHEDULING_SCRIPT: &str = r#"cut -d" " -f19,40,41 /proc/$$/stat; cat /proc/$$/timerslack_ns"#;

/// Runs `at` through a program that changes its scheduling; returns its output and its result.
fn run_under(words: &[&str], arguments: &[&str]) -> Result<(Output, Value)> {
    let directory = TempDir::new()?;
    let json = directory.path().join("at.json");
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).arg(binary()?).args(["at", "now + 150 ms", "--json"]).arg(&json);
    let output = run_to_end(command.args(arguments), TIMEOUT)?;
    ensure!(output.status.success(), "{output:?}");
    Ok((output, serde_json::from_str(&fs::read_to_string(&json)?)?))
}

fn a_command_inherits_the_scheduling_of_its_starter() -> Result<()> {
    let facts = |words: &[&str], arguments: &[&str], line: &str| {
        let (output, result) = run_under(words, &[arguments, &["-q", "-c", line]].concat())?;
        ensure!(result["scheduling"] == "real-time" && result["memory_locked"] == true, "{result}");
        Ok((text(&output.stdout)?.to_owned(), result["head_start_ns"].as_u64()))
    };
    let plain = &["nice", "-n", "0"];
    let usual = fs::read_to_string("/proc/self/timerslack_ns")?;
    let later = format!("sleep 0.05; {SCHEDULING_SCRIPT}");
    // The scenario runner may itself have a nice value.
    let own = Command::new("nice").output()?.stdout;
    if text(&own)?.trim() == "0" {
        let ended = facts(plain, &[], &later)?;
        ensure!(ended == (format!("0 0 0\n{usual}"), Some(5_000_000)), "{ended:?}");
        let (held, _) = facts(plain, &["--priority-hold", "500ms"], SCHEDULING_SCRIPT)?;
        ensure!(held.starts_with("0 39 1\n"), "{held}");
        // Processes that the command starts are not real-time.
        let (child, _) = facts(
            plain,
            &["--priority-hold", "500ms"],
            &format!("sh -c '{{ {SCHEDULING_SCRIPT}; }}'; :"),
        )?;
        ensure!(child.starts_with("0 0 0\n"), "{child}");
    }
    let none = facts(plain, &["--priority-hold", "0ms"], SCHEDULING_SCRIPT)?;
    ensure!(none.0.ends_with(&format!(" 0 0\n{usual}")) && none.1.is_none(), "{none:?}");
    // Any other scheduling of `at` is that of the command from the start, and its children inherit
    // it.
    let batch = facts(&["chrt", "--batch", "0", "nice", "-n", "7"], &[], SCHEDULING_SCRIPT)?;
    ensure!(batch.0.ends_with(&format!(" 0 3\n{usual}")) && batch.1.is_none(), "{batch:?}");
    let fifo = facts(&["chrt", "--fifo", "7"], &[], SCHEDULING_SCRIPT)?;
    ensure!(fifo.0.contains(" 7 1\n") && fifo.1.is_none(), "{fifo:?}");
    Ok(())
}

fn refused_settings_are_reported_and_omitted() -> Result<()> {
    let bare = ["setpriv", "--bounding-set", "-sys_nice,-ipc_lock,-sys_resource", "--inh-caps"];
    let words = [&bare[..], &["-sys_nice,-ipc_lock,-sys_resource", "prlimit"]].concat();
    let words = [&words[..], &["--rtprio=0", "--memlock=65536"]].concat();
    // The timer slack of another process is readable only with the right to set it.
    let (output, result) = run_under(&words, &["-c", "cut -d' ' -f19,40,41 /proc/$$/stat"])?;
    ensure!(result["scheduling"] == "ordinary" && result["memory_locked"] == false, "{result}");
    ensure!(text(&output.stdout)?.ends_with(" 0 0\n"), "{output:?}");
    let stderr = text(&output.stderr)?;
    for expected in ["SCHED_FIFO was refused", "Memory could not be locked"] {
        // Once before the instant, and once in the report.
        ensure!(stderr.matches(expected).count() == 2, "{expected}: {stderr}");
    }
    Ok(())
}

fn overrun_instants_are_missed_and_counted() -> Result<()> {
    let series = ["--every", "20ms", "--count", "3", "--json", "-", "-q"];
    let output = at(&[&series[..], &["--", "sleep", "0.05"]].concat())?;
    let result: Value = serde_json::from_slice(&output.stdout)?;
    ensure!(result["met"] == 3 && result["programs"][0]["runs"] == 3, "{result}");
    // Two missed instants for each of the first two runs, or more on a busy machine.
    ensure!(result["missed"].as_u64().is_some_and(|missed| missed >= 4), "{result}");
    Ok(())
}

fn a_signal_ends_the_wait_and_the_programs() -> Result<()> {
    let marker = "sleep 62.25";
    for (when, line) in [("now + 1 hour", "true"), ("now + 50 ms", "exec sleep 62.25")] {
        let mut command = Command::new(binary()?);
        command.args(["at", "-q", when, "-c", line]);
        let mut child = die_with_parent(&mut command).spawn()?;
        let found = if line == "true" { "at -q now + 1 hour" } else { marker };
        let count = if line == "true" { 1 } else { 2 };
        let status = format!("/proc/{}/status", child.id());
        let there = wait_until("start of the wait", || {
            Ok(blocks_terminate(&status)? && processes(found)?.len() >= count)
        });
        let signalled = there.and_then(|()| signal(&child, "TERM"));
        let ended = child.wait()?;
        signalled?;
        ensure!(ended.code() == Some(143), "{when}: {ended:?}");
    }
    wait_until("end of the program", || Ok(processes(marker)?.is_empty()))
}

/// Returns true if a process blocks SIGTERM, and thus handles it itself (`proc_pid_status(5)`).
fn blocks_terminate(status: &str) -> Result<bool> {
    const TERMINATE: u64 = 1 << (15 - 1);
    let status = fs::read_to_string(status)?;
    let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:"));
    Ok(u64::from_str_radix(blocked.context("no signals")?.trim(), 16)? & TERMINATE != 0)
}

fn invalid_instants_are_refused_in_one_line() -> Result<()> {
    for (arguments, status, expected) in [
        (["2018/10/22"].as_slice(), 2, "is in the past"),
        (&["31 February"], 2, "31 February does not exist"),
        (&["25:00"], 2, "invalid hour"),
        (&["2:30 2099-03-29"], 2, "does not exist"),
        (&["elevenses"], 2, "cannot parse 'elevenses'"),
        (&[], 2, "no time specified"),
        (&["now", "--count", "2"], 2, "--every"),
        (&["--every", "1us"], 2, "at least 100us"),
        (&["noon", "--detach"], 2, "needs a command"),
        (&["noon", "--tai", "--utc"], 2, "cannot be used with"),
        (&["cancel", "none"], 2, "no job 'none'"),
    ] {
        let mut command = Command::new(binary()?);
        command.arg("at").args(arguments).env("TZ", CENTRAL_EUROPE);
        let output = run_to_end(&mut command, TIMEOUT)?;
        let stderr = text(&output.stderr)?;
        ensure!(output.status.code() == Some(status), "{arguments:?}: {output:?}");
        ensure!(stderr.contains(expected), "{arguments:?}: {stderr}");
        ensure!(stderr.lines().count() == 1, "{arguments:?}: {stderr}");
    }
    Ok(())
}

fn a_job_waits_in_the_background_and_is_cancelled() -> Result<()> {
    let state = TempDir::new()?;
    let ran = state.path().join("ran").to_string_lossy().into_owned();
    let job = ["--detach", "--backend", "process", "now + 63 s", "--", "touch", &ran];
    let output = run_queued(state.path(), &job)?;
    let stdout = text(&output.stdout)?;
    ensure!(stdout.starts_with("job 1: ") && stdout.lines().count() == 1, "{stdout}");
    let jobs = list_jobs(state.path())?;
    ensure!(jobs.len() == 1 && jobs[0]["standing"] == "waiting", "{jobs:?}");
    ensure!(jobs[0]["programs"][0][0] == "touch", "{jobs:?}");
    let directory = state.path().join("horolog/at");
    for (path, mode) in [(directory.clone(), 0o700), (directory.join("1.json"), 0o600)] {
        let found = fs::metadata(&path)?.permissions().mode() & 0o777;
        ensure!(found == mode, "{}: {found:o}", path.display());
    }
    let pid = jobs[0]["pid"].as_u64().context("no process")?;
    let stdout = text(&run_queued(state.path(), &["cancel", "1"])?.stdout)?.to_owned();
    ensure!(stdout == "job 1: cancelled\n", "{stdout}");
    ensure!(
        list_jobs(state.path())?.is_empty() && !Path::new(&ran).exists(),
        "cancelled job is left"
    );
    wait_until("end of its process", || Ok(!Path::new(&format!("/proc/{pid}/exe")).exists()))?;
    ensure!(fs::read_dir(&directory)?.next().is_none(), "files are left");
    Ok(())
}

fn a_job_runs_in_the_background() -> Result<()> {
    let state = TempDir::new()?;
    let ran = state.path().join("ran");
    let line = format!("echo said; pwd > {}", ran.display());
    let job = ["--detach", "--backend", "process", "now + 100 ms", "--run", &line];
    run_queued(state.path(), &job)?;
    wait_until("job end", || {
        Ok(ran.exists() && list_jobs(state.path())?[0]["standing"] == "finished")
    })?;
    let ended = &list_jobs(state.path())?[0];
    ensure!(ended["status"] == 0 && ended["ended"].is_string(), "{ended}");
    ensure!(ended["programs"][0][0] == *line && ended["first"].is_string(), "{ended}");
    let log = fs::read_to_string(state.path().join("horolog/at/1.log"))?;
    ensure!(log.starts_with("said\n") && log.contains("started"), "{log}");
    let own = std::env::current_dir()?;
    ensure!(fs::read_to_string(&ran)?.trim_end() == own.to_string_lossy(), "wrong directory");
    run_queued(state.path(), &["cancel", "--finished"])?;
    ensure!(list_jobs(state.path())?.is_empty(), "finished job is left");
    Ok(())
}

fn running_and_waiting_jobs_are_distinguished() -> Result<()> {
    let state = TempDir::new()?;
    let fifo = state.path().join("fifo").to_string_lossy().into_owned();
    ensure!(Command::new("mkfifo").arg(&fifo).status()?.success(), "mkfifo");
    let line = format!("read x < {fifo}; exit 7");
    let detach = ["--detach", "--backend", "process", "--quiet"];
    run_queued(state.path(), &[&detach[..], &["now + 1 s", "--run", &line]].concat())?;
    let standing = |expected: &str| {
        wait_until(expected, || Ok(list_jobs(state.path())?[0]["standing"] == expected))
    };
    standing("waiting")?;
    standing("running")?;
    fs::write(&fifo, "go\n")?;
    standing("finished")?;
    let ended = &list_jobs(state.path())?[0];
    ensure!(ended["status"] == 7 && ended["log"].is_null(), "{ended}");
    let shown =
        text(&run_queued(state.path(), &["list", "--backend", "process"])?.stdout)?.to_owned();
    ensure!(shown.contains(" with status 7 ") && shown.contains("exit 7"), "{shown}");
    // Cancellation of a running job ends its commands; a successful job without output leaves
    // nothing.
    run_queued(state.path(), &[&detach[..], &["now", "--allow-past", "--run", &line]].concat())?;
    wait_until("job start", || Ok(list_jobs(state.path())?[1]["standing"] == "running"))?;
    run_queued(state.path(), &["cancel", "2"])?;
    run_queued(state.path(), &[&detach[..], &["now", "--allow-past", "--", "true"]].concat())?;
    wait_until("job end", || Ok(list_jobs(state.path())?.len() == 1))?;
    run_queued(state.path(), &["cancel", "--finished"])?;
    ensure!(list_jobs(state.path())?.is_empty(), "finished jobs are left");
    let mut without_home = Command::new(binary()?);
    let home = state.path().join("none");
    without_home.args(["at", "--detach", "--backend", "process", "now + 1 h", "--", "true"]);
    let output = run_to_end(without_home.env_remove("XDG_STATE_HOME").env("HOME", &home), TIMEOUT)?;
    let stderr = text(&output.stderr)?;
    ensure!(output.status.code() == Some(3) && stderr.contains("not a directory"), "{output:?}");
    ensure!(!home.exists(), "home directory was created");
    Ok(())
}

fn a_killed_job_is_lost_and_no_other_is_affected() -> Result<()> {
    // The kernel counts the start time of a process, by which reused PIDs are recognised, in 10 ms.
    std::thread::sleep(std::time::Duration::from_millis(20));
    let state = TempDir::new()?;
    run_queued(state.path(), &["--detach", "--backend", "process", "now + 64 s", "--", "true"])?;
    let file = state.path().join("horolog/at/1.json");
    let mut job: Value = serde_json::from_str(&fs::read_to_string(&file)?)?;
    let pid = job["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok()).context("no process")?;
    signal_to(pid, "KILL")?;
    wait_until("job loss", || Ok(list_jobs(state.path())?[0]["standing"] == "lost"))?;
    // The PID now belongs to another process, this one.
    job["pid"] = std::process::id().into();
    fs::write(&file, job.to_string())?;
    ensure!(list_jobs(state.path())?[0]["standing"] == "lost", "PID of another process");
    run_queued(state.path(), &["cancel", "1"])?;
    // A truncated file is listed as unreadable, and can be removed.
    fs::write(&file, &job.to_string()[..40])?;
    ensure!(list_jobs(state.path())?[0]["standing"] == "unreadable", "truncated file");
    run_queued(state.path(), &["cancel", "1"])?;
    ensure!(list_jobs(state.path())?.is_empty(), "cancelled job is left");
    Ok(())
}

/// Jobs are passed to systemd, here a script that records its arguments, and its errors are
/// reported.
fn systemd_receives_the_unit_of_a_job() -> Result<()> {
    let directory = TempDir::new()?;
    let log = directory.path().join("arguments");
    let script = |name: &str, rest: &str| -> Result<()> {
        let path = directory.path().join(name);
        let log = log.display();
        fs::write(&path, format!("#!/bin/sh\nprintf '%s\\n' {name} \"$@\" >> {log}\n{rest}\n"))?;
        Ok(fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?)
    };
    script("systemd-run", "exit 0")?;
    let unit = "horolog-at-7f-1.timer loaded active waiting 2099-01-01T12:00:00Z: echo";
    script("systemctl", &format!("case \"$*\" in *list-units*) echo '{unit}';; esac"))?;
    let path = format!("{}:/usr/bin:/bin", directory.path().display());
    let call = |path: &str, arguments: &[&str]| {
        let mut command = Command::new(binary()?);
        command.arg("at").args(arguments).env("PATH", path);
        run_to_end(&mut command, TIMEOUT)
    };
    let job =
        ["--detach", "--backend", "systemd", "--utc", "12:00 2099-01-01", "--", "echo", "$HOME"];
    let output = call(&path, &job)?;
    ensure!(output.status.success(), "{output:?}");
    let words = fs::read_to_string(&log)?;
    for expected in ["--on-calendar=2099-01-01 11:59:55.000000 UTC", "$$HOME", "--allow-past"] {
        ensure!(words.lines().any(|word| word == expected), "{expected}: {words}");
    }
    let list = call(&path, &["list", "--backend", "systemd"])?;
    ensure!(text(&list.stdout)?.starts_with("7f-1  systemd  2099-01-01"), "{list:?}");
    let cancel = call(&path, &["cancel", "--backend", "systemd", "7f-1"])?;
    ensure!(cancel.status.success(), "{cancel:?}");
    ensure!(fs::read_to_string(&log)?.ends_with("stop\nhorolog-at-7f-1.timer\n"), "not stopped");
    let unknown = call(&path, &["cancel", "--backend", "systemd", "80-1"])?;
    ensure!(unknown.status.code() == Some(2), "{unknown:?}");
    script("systemd-run", "echo 'Failed to connect to bus: No such file' >&2; exit 1")?;
    for (path, expected) in [(&*path, "Failed to connect to bus"), ("/nowhere", "systemd-run")] {
        let refused = call(path, &job)?;
        let stderr = text(&refused.stderr)?;
        ensure!(refused.status.code() == Some(3) && stderr.contains(expected), "{refused:?}");
        ensure!(stderr.lines().count() == 1, "{stderr}");
    }
    Ok(())
}
