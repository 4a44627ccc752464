//! Scenarios of `horolog after`: conditions are met while they are waited for, or never.

use std::fs;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::process::{Command, Output};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use horolog_lab::{Lab, LabConfig};
use horolog_sys::namespace::die_with_parent;
use serde_json::Value;
use tempfile::TempDir;

use crate::process::{TIMEOUT, binary, run_to_end, signal, wait_until};
use crate::scenario::{Need, Scenario};
use crate::{ROOT, launch_after, scenarios};

/// Time until a condition is met: long enough for several checks.
const DELAY: Duration = Duration::from_millis(250);
const UNSYNCHRONISED: &[Need] = &[Need::UnsynchronisedClock];

pub(crate) fn all() -> Vec<Scenario> {
    let mut all = Vec::from(scenarios!(&[], launch_after:
        a_port_that_opens_later_is_waited_for,
        a_server_that_answers_later_is_waited_for,
        a_failing_command_is_retried,
        a_deadline_ends_the_wait_and_its_checks,
        a_terminated_wait_leaves_nothing,
        impossible_conditions_are_refused,
    ));
    all.extend(scenarios!(UNSYNCHRONISED, launch_after: an_unsynchronised_clock_is_waited_for));
    all.extend(scenarios!(ROOT, launch_after:
        a_mount_that_appears_is_waited_for,
        an_unresponsive_name_server_does_not_delay_the_deadline,
    ));
    all
}

fn after(arguments: &[&str]) -> Result<Output> {
    run_to_end(Command::new(binary()?).arg("after").args(arguments), TIMEOUT)
}

fn text(bytes: &[u8]) -> Result<&str> {
    str::from_utf8(bytes).context("output is not UTF-8")
}

/// Returns the processes whose command lines contain `with`.
pub(crate) fn processes(with: &str) -> Result<Vec<u32>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
        // Empty if the process has ended meanwhile.
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        if String::from_utf8_lossy(&line).replace('\0', " ").contains(with) {
            found.push(pid);
        }
    }
    Ok(found)
}

/// The command then runs, and determines the exit status.
fn a_port_that_opens_later_is_waited_for() -> Result<()> {
    let directory = TempDir::new()?;
    let json = directory.path().join("after.json");
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
    let opener = thread::spawn(move || {
        thread::sleep(DELAY);
        let listener = TcpListener::bind(free)?;
        listener.accept().map(drop)
    });
    let (port, json_text) = (free.to_string(), json.to_string_lossy().into_owned());
    let wait =
        ["--tcp", &port, "--retry-interval", "20ms", "--deadline", "8s", "--json", &json_text];
    let output = after(&[&wait[..], &["--", "sh", "-c", "echo ran; exit 7"]].concat())?;
    opener.join().map_err(|_| anyhow::anyhow!("the opener panicked"))??;
    ensure!(output.status.code() == Some(7), "{output:?}");
    ensure!(text(&output.stdout)? == "ran\n", "{output:?}");
    ensure!(text(&output.stderr)?.contains(&format!("tcp {port} met after")), "{output:?}");
    let result: Value = serde_json::from_str(&fs::read_to_string(&json)?)?;
    ensure!(result["schema"] == "horolog.after/2" && result["end"] == "held", "{result}");
    let tries = result["dependencies"][0]["tries"].as_u64().context("no tries")?;
    ensure!(tries >= 3, "{result}");
    Ok(())
}

/// The port first refuses, then does not reply, then answers.
fn a_server_that_answers_later_is_waited_for() -> Result<()> {
    let free = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
    let server = thread::spawn(move || {
        thread::sleep(DELAY / 2);
        let socket = UdpSocket::bind(free)?;
        let mut request = [0; 8];
        socket.recv_from(&mut request)?;
        let (length, from) = socket.recv_from(&mut request)?;
        socket.send_to(&request[..length], from).map(|_| request)
    });
    let target = format!("{free},send=c0ffee");
    let output = after(&[
        "--udp",
        &target,
        "--retry-interval",
        "20ms",
        "--try-timeout",
        "50ms",
        "--deadline",
        "8s",
    ])?;
    let request = server.join().map_err(|_| anyhow::anyhow!("the server panicked"))??;
    ensure!(output.status.success() && request[..3] == [0xc0, 0xff, 0xee], "{output:?}");
    let table = text(&output.stdout)?;
    ensure!(table.contains("answers") && table.contains("Condition met after"), "{table}");
    Ok(())
}

fn a_failing_command_is_retried() -> Result<()> {
    let directory = TempDir::new()?;
    let count = directory.path().join("count");
    let line = format!("echo x >> {0}; test $(wc -l < {0}) -ge 3", count.display());
    let output = after(&["--succeeds", &line, "--retry-interval", "10ms", "--json", "-", "-q"])?;
    let result: Value = serde_json::from_slice(&output.stdout)?;
    ensure!(result["dependencies"][0]["tries"] == 3, "{result}");
    ensure!(fs::read_to_string(&count)?.lines().count() == 3, "number of tries is not 3");
    ensure!(output.stderr.is_empty(), "{output:?}");
    Ok(())
}

/// The command does not run, pending checks are killed, and each unmet condition is named.
fn a_deadline_ends_the_wait_and_its_checks() -> Result<()> {
    let directory = TempDir::new()?;
    let (never, ran) = (directory.path().join("never"), directory.path().join("ran"));
    let (never, ran_text) = (never.to_string_lossy().into_owned(), ran.to_string_lossy());
    let wait = ["--file", "/", "--file", &never, "--succeeds", "sleep 61.25 & sleep 61.25"];
    let output = after(&[&wait[..], &["--deadline", "300ms", "--", "touch", &ran_text]].concat())?;
    ensure!(output.status.code() == Some(1) && !ran.exists(), "{output:?}");
    let stderr = text(&output.stderr)?;
    for expected in ["2 of 3 conditions not met", "it does not exist", "first try not finished"] {
        ensure!(stderr.contains(expected), "{expected}: {stderr}");
    }
    wait_until("end of the pending check", || Ok(processes("sleep 61.25")?.is_empty()))
}

fn a_terminated_wait_leaves_nothing() -> Result<()> {
    for (name, status, marker) in
        [("TERM", Some(143), "61.5"), ("INT", Some(130), "61.75"), ("KILL", None, "61.875")]
    {
        let line = format!("exec sleep {marker}");
        // Shells ignore SIGINT for background commands, and `horolog` would inherit this.
        let mut command = Command::new("env");
        command.arg("--default-signal=INT").arg(binary()?);
        command.args(["after", "-q", "--succeeds", &line, "--", "true"]);
        let mut child = die_with_parent(&mut command).spawn()?;
        let sleep = format!("sleep {marker}");
        let started = wait_until("start of the check", || {
            // The command line of `horolog` contains the text as well.
            Ok(processes(&sleep)?.len() >= 2)
        });
        let signalled = started.and_then(|()| signal(&child, name));
        let ended = child.wait()?;
        signalled?;
        ensure!(ended.code() == status, "{name}: {ended:?}");
        wait_until("end of the check", || Ok(processes(&sleep)?.is_empty()))?;
    }
    Ok(())
}

fn an_unsynchronised_clock_is_waited_for() -> Result<()> {
    let output = after(&["--clock", "1ms", "--deadline", "200ms"])?;
    ensure!(output.status.code() == Some(1), "{output:?}");
    ensure!(text(&output.stdout)?.contains("not synchronised"), "{output:?}");
    Ok(())
}

fn a_mount_that_appears_is_waited_for() -> Result<()> {
    let directory = TempDir::new()?;
    let mount_point = directory.path().join("a place");
    fs::create_dir(&mount_point)?;
    let script = "\"$1\" after --mount \"$2\" --retry-interval 20ms --deadline 8s --json - -q & \
                  sleep 0.25; mount -t tmpfs none \"$2\"; wait $!";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, "sh"]).arg(binary()?).arg(&mount_point);
    let output = run_to_end(&mut command, TIMEOUT)?;
    ensure!(output.status.success(), "{output:?}");
    let result: Value = serde_json::from_slice(&output.stdout)?;
    let mount = &result["dependencies"][0];
    ensure!(mount["last_check"] == "tmpfs is mounted", "{result}");
    ensure!(mount["tries"].as_u64().is_some_and(|tries| tries >= 3), "{result}");
    Ok(())
}

/// The deadline holds although the resolver waits for 20 s.
fn an_unresponsive_name_server_does_not_delay_the_deadline() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let server = lab.server().first_interface().ipv4;
    let unresponsive = lab.server().run(|| UdpSocket::bind((server, 53)))??;
    let directory = TempDir::new()?;
    let resolver = directory.path().join("resolv.conf");
    fs::write(&resolver, format!("nameserver {server}\noptions timeout:20 attempts:2\n"))?;
    let script = "mount --bind \"$2\" /etc/resolv.conf && \
                  exec \"$1\" after --dns nas.example --deadline 300ms";
    let mut command = lab.client().command("unshare");
    command.args(["--mount", "sh", "-c", script, "sh"]).arg(binary()?).arg(&resolver);
    let output = run_to_end(&mut command, TIMEOUT)?;
    ensure!(output.status.code() == Some(1), "{output:?}");
    ensure!(text(&output.stdout)?.contains("first try not finished"), "{output:?}");
    unresponsive.set_nonblocking(true)?;
    unresponsive.recv(&mut [0; 512]).context("the name server received no request")?;
    Ok(())
}

fn impossible_conditions_are_refused() -> Result<()> {
    for (arguments, status, expected) in [
        (["-d", "1s"].as_slice(), 2, "no condition to wait for"),
        (&["--tcp", "nas"], 2, "write a host and a port"),
        (&["--udp", "nas:9,send=x"], 2, "send=HEX"),
        (&["--delay", "tomorrow"], 2, "write a time"),
        (&["--file", "/", "--backoff", "0.5"], 2, "a factor from 1 to 100"),
        (&["--file", "/", "--json", "/nowhere/at/all"], 3, "cannot write /nowhere/at/all"),
        (&["-q", "--file", "/", "--", "/nowhere/at/all"], 127, "cannot run '/nowhere/at/all'"),
        (&["-q", "--file", "/", "--", "/etc/passwd"], 126, "cannot run '/etc/passwd'"),
        // The command runs although the result cannot be written.
        (&["-q", "--file", "/", "--json", "/dev/full", "--", "true"], 0, "cannot write /dev/full"),
        (&["-q", "--file", "/", "--json", "/nowhere/a", "--", "true"], 0, "cannot write /nowhere"),
    ] {
        let output = after(arguments)?;
        let stderr = text(&output.stderr)?;
        ensure!(output.status.code() == Some(status), "{arguments:?}: {output:?}");
        ensure!(stderr.contains(expected), "{arguments:?}: {stderr}");
        ensure!(stderr.lines().count() == 1, "{arguments:?}: {stderr}");
    }
    check_without_reader(&["after", "--file", "/"])?;
    check_without_reader(&["at", "--every", "5ms", "--count", "2"])?;
    check_without_reader(&["at", "now", "--allow-past", "-c", "true"])
}

/// Checks that a command succeeds with its outputs a pipe without a reader, and with its outputs
/// closed.
fn check_without_reader(arguments: &[&str]) -> Result<()> {
    let directory = TempDir::new()?;
    let status = directory.path().join("status");
    let piped = "to=$1; shift; { sleep 0.05; \"$@\"; echo $? > \"$to\"; } 2>&1 | true";
    let closed = "to=$1; shift; \"$@\" >&- 2>&-; echo $? > \"$to\"";
    for script in [piped, closed] {
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh"]).arg(&status).arg(binary()?).args(arguments);
        run_to_end(&mut command, TIMEOUT)?;
        let status = fs::read_to_string(&status)?;
        ensure!(status == "0\n", "{arguments:?}: {script}: {status}");
    }
    Ok(())
}
