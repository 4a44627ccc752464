//! Scenarios of privileges that a server drops: the state of the process in the kernel, files out
//! of its reach, and the service that it continues to provide.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use horolog_lab::{Lab, LabConfig};
use serde_json::Value;
use tempfile::TempDir;

use crate::process::{Engine, Server, TIMEOUT, run_to_end, server_address};
use crate::scenario::{Scenario, scenario};
use crate::{ROOT, client, scenarios, server_sandbox};

/// `CAP_NET_BIND_SERVICE` and `CAP_SYS_NICE`.
const RETAINED_CAPABILITIES: u64 = 1 << 10 | 1 << 23;
/// Unprivileged user that every system has, by name and number.
const UNPRIVILEGED_USER: (&str, &str) = ("nobody", "65534");

pub(crate) fn all() -> Vec<Scenario> {
    let mut all = Vec::from(scenarios!(ROOT, server_sandbox:
        files_elsewhere_cannot_be_read,
        without_the_sandbox_privileges_remain,
    ));
    for engine in Engine::ALL {
        let name = |of: &str| format!("server_sandbox::{of}::{}", engine.name());
        all.push(scenario(name("every_thread_is_confined"), ROOT, move || {
            every_thread_is_confined(engine)
        }));
        all.push(scenario(name("a_server_of_another_user_answers"), ROOT, move || {
            a_server_of_another_user_answers(engine)
        }));
    }
    all
}

/// Returns a field of each thread's `/proc/PID/task/TID/status`.
fn thread_fields(status: &Value, field: &str) -> Result<Vec<String>> {
    let pid = status["pid"].as_u64().context("no pid")?;
    let mut values = Vec::new();
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let text = fs::read_to_string(thread?.path().join("status"))?;
        let found = text.lines().find_map(|line| line.strip_prefix(field));
        values.push(found.with_context(|| format!("no {field}"))?.trim().to_owned());
    }
    ensure!(values.len() > 2, "{} threads", values.len());
    Ok(values)
}

fn check_threads(status: &Value, field: &str, wanted: impl Fn(&str) -> bool) -> Result<()> {
    let values = thread_fields(status, field)?;
    ensure!(values.iter().all(|value| wanted(value)), "{field} {values:?}");
    Ok(())
}

pub(crate) fn check_confined(status: &Value) -> Result<()> {
    check_threads(status, "NoNewPrivs:", |value| value == "1")?;
    check_threads(status, "Seccomp:", |value| value == "2")?;
    for set in ["CapEff:", "CapPrm:", "CapBnd:"] {
        check_threads(status, set, |value| {
            u64::from_str_radix(value, 16).is_ok_and(|set| set & !RETAINED_CAPABILITIES == 0)
        })?;
    }
    for part in ["capabilities", "no-new-privileges", "seccomp"] {
        let in_force = status["sandbox"]["in_force"].as_array().context("no list")?;
        ensure!(in_force.iter().any(|name| name == part), "{part}: {}", status["sandbox"]);
    }
    Ok(())
}

/// No thread has more privileges than it needs; the server sends replies, also from a new address
/// of its host.
fn every_thread_is_confined(engine: Engine) -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let any = SocketAddr::from(([0, 0, 0, 0], at.port()));
    let server = Server::start(lab.server(), engine, &[any], &[])?;
    client::query_from(lab.client(), at)?;
    check_confined(&server.status()?)?;
    let new = SocketAddr::from(([192, 0, 2, 77], at.port()));
    let address = format!("{}/32", new.ip());
    for (host, what) in [(lab.server(), "address"), (lab.client(), "route")] {
        let mut command = host.command("ip");
        command.args([what, "add", &address, "dev", &host.first_interface().name]);
        let output = run_to_end(&mut command, TIMEOUT)?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    // Addresses are updated every second; until then the sockets send the replies.
    let started = Instant::now();
    let by_engine = |status: &Value| match engine {
        Engine::Socket => status["counters"]["answered"].as_u64(),
        Engine::Xdp => status["xdp_counters"]["answered_ipv4"].as_u64(),
    };
    while by_engine(&server.status()?) < Some(2) {
        client::query_from(lab.client(), new)?;
        ensure!(started.elapsed() < TIMEOUT, "no reply by {engine:?} at {new}");
        thread::sleep(Duration::from_millis(100));
    }
    ensure!(server.status()?["clock"]["publish_errors"] == 0, "{}", server.status()?);
    let ended = server.end("TERM")?;
    ensure!(ended.status.success(), "{}", ended.status);
    Ok(())
}

/// A server that runs as another user sends replies from port 123, without more privileges than it
/// needs.
fn a_server_of_another_user_answers(engine: Engine) -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let directory = TempDir::new()?;
    // Writable for every user, unlike the directory of a scenario's status socket.
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777))?;
    let socket = directory.path().join("other.sock").to_string_lossy().into_owned();
    let arguments = ["--user", UNPRIVILEGED_USER.0];
    let server = Server::start_at(lab.server(), engine, &[at], &socket, &arguments)?;
    client::query_from(lab.client(), at)?;
    let status = server.status()?;
    check_confined(&status)?;
    check_threads(&status, "Uid:", |value| {
        value.split_whitespace().all(|id| id == UNPRIVILEGED_USER.1)
    })?;
    check_threads(&status, "Gid:", |value| {
        value.split_whitespace().all(|id| id == UNPRIVILEGED_USER.1)
    })?;
    let ended = server.end("TERM")?;
    ensure!(ended.status.success(), "{}", ended.status);
    Ok(())
}

/// A configuration that was replaced by a link to a file elsewhere is not read.
pub(crate) fn files_elsewhere_cannot_be_read() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let (directory, elsewhere) = (TempDir::new()?, TempDir::new()?);
    let path = directory.path().join("horolog.toml");
    let text = format!("local = true\nlisten = ['{at}']\n");
    fs::write(&path, &text)?;
    let other = elsewhere.path().join("other.toml");
    fs::write(&other, format!("{text}stratum = 3\n"))?;
    let config = path.to_string_lossy().into_owned();
    let server = Server::start_without_local(lab.server(), Engine::Socket, &[], &["-c", &config])?;
    let in_force = server.status()?["sandbox"]["in_force"].to_string();
    fs::remove_file(&path)?;
    symlink(&other, &path)?;
    server.signal("HUP")?;
    let started = Instant::now();
    let error = loop {
        let status = server.status()?;
        let reload = &status["reload"];
        if let Some(error) = reload["last_reload_error"].as_str() {
            break error.to_owned();
        }
        // Without Landlock in the kernel, which the status shows, the file can be read.
        if reload["done"] == 1 && !in_force.contains("landlock") {
            return Ok(());
        }
        let is_pending = started.elapsed() < TIMEOUT && reload["done"] == 0;
        ensure!(is_pending, "the file was read: {status}");
        thread::sleep(Duration::from_millis(20));
    };
    ensure!(error.contains("cannot read") && error.contains("ermission denied"), "{error}");
    client::query_from(lab.client(), at)?;
    Ok(())
}

/// With the sandbox switched off, the server keeps all privileges.
pub(crate) fn without_the_sandbox_privileges_remain() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let server = Server::start(lab.server(), Engine::Socket, &[at], &["--sandbox", "off"])?;
    let status = server.status()?;
    check_threads(&status, "Seccomp:", |value| value == "0")?;
    check_threads(&status, "NoNewPrivs:", |value| value == "0")?;
    ensure!(status["sandbox"]["in_force"].as_array().is_some_and(Vec::is_empty), "{status}");
    Ok(())
}
