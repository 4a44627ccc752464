//! Scenarios of metrics, health, notifications to the service manager, and the live view.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use horolog_lab::{Lab, LabConfig, LabHost};
use tempfile::TempDir;

use crate::process::{Engine, Server, TIMEOUT, binary, run_to_end, server_address, signal};
use crate::scenario::{Scenario, scenario};
use crate::{ROOT, client, scenarios, server_metrics};

const REQUESTS: u64 = 5;

pub(crate) fn all() -> Vec<Scenario> {
    let mut all = Vec::from(scenarios!(ROOT, server_metrics:
        health_follows_the_clock,
        the_service_manager_is_notified,
    ));
    all.extend(scenarios!(&[], server_metrics: the_live_view_needs_a_terminal));
    for engine in Engine::ALL {
        let name = format!("server_metrics::requests_are_counted::{}", engine.name());
        all.push(scenario(name, ROOT, move || requests_are_counted(engine)));
    }
    all
}

fn http_get(host: &LabHost, at: SocketAddr, path: &str) -> Result<String> {
    let mut stream = host.run(|| TcpStream::connect(at))??;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes())?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply)?;
    Ok(reply)
}

fn metrics_address(at: SocketAddr) -> SocketAddr {
    SocketAddr::new(at.ip(), 9123)
}

/// The metrics contain the replies of either engine.
fn requests_are_counted(engine: Engine) -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let metrics = metrics_address(at).to_string();
    let _server = Server::start(lab.server(), engine, &[at], &["--metrics", &metrics])?;
    for _ in 0..REQUESTS {
        client::query_from(lab.client(), at)?;
    }
    let label = match engine {
        Engine::Socket => "socket",
        Engine::Xdp => "xdp-ipv4",
    };
    let line = format!("horolog_replies_total{{engine=\"{label}\"}} {REQUESTS}");
    let started = Instant::now();
    loop {
        let text = http_get(lab.client(), metrics_address(at), "/metrics")?;
        ensure!(text.starts_with("HTTP/1.0 200 OK\r\n") && text.ends_with("# EOF\n"), "{text}");
        // A thread counts a batch after sending it.
        if text.lines().any(|found| found == line) {
            return Ok(());
        }
        ensure!(started.elapsed() < TIMEOUT, "{line} is missing: {text}");
    }
}

/// A server that reports itself as unsynchronised is not healthy.
pub(crate) fn health_follows_the_clock() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let metrics = metrics_address(at).to_string();
    for (leap, code) in [("none", "200"), ("unsynchronised", "503")] {
        let arguments = ["--metrics", &metrics, "--leap", leap];
        let _server = Server::start(lab.server(), Engine::Socket, &[at], &arguments)?;
        let reply = http_get(lab.client(), metrics_address(at), "/healthz")?;
        ensure!(reply.starts_with(&format!("HTTP/1.0 {code} ")), "{leap}: {reply}");
    }
    Ok(())
}

/// Notifications are ready, alive, reloading with its instant, ready and stopping (`sd_notify(3)`).
pub(crate) fn the_service_manager_is_notified() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let directory = TempDir::new()?;
    let path = directory.path().join("notify");
    let manager = UnixDatagram::bind(&path)?;
    manager.set_read_timeout(Some(TIMEOUT))?;
    let mut command = lab.server().command(binary()?);
    command.args(["serve", "--local", "--engine", "socket", "--listen", &at.to_string()]);
    command.arg("--status-socket").arg(directory.path().join("status.sock"));
    command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "10000000");
    horolog_sys::namespace::die_with_parent(&mut command);
    let mut child =
        command.stderr(std::process::Stdio::null()).stdout(std::process::Stdio::null()).spawn()?;
    let await_notification = |wanted: &[&str]| -> Result<()> {
        let mut buffer = [0; 512];
        let started = Instant::now();
        while started.elapsed() < TIMEOUT {
            let length = manager.recv(&mut buffer).context("no notification")?;
            let text = String::from_utf8_lossy(&buffer[..length]);
            if wanted.iter().all(|wanted| text.contains(wanted)) {
                return Ok(());
            }
        }
        anyhow::bail!("no notification of {wanted:?}");
    };
    let outcome = await_notification(&["READY=1"])
        .and_then(|()| await_notification(&["WATCHDOG=1"]))
        .and_then(|()| signal(&child, "HUP"))
        .and_then(|()| await_notification(&["RELOADING=1", "MONOTONIC_USEC="]))
        .and_then(|()| await_notification(&["READY=1"]))
        .and_then(|()| signal(&child, "TERM"))
        .and_then(|()| await_notification(&["STOPPING=1"]));
    if outcome.is_err() {
        let _ = child.kill();
    }
    let ended = child.wait()?;
    outcome?;
    ensure!(ended.success(), "{ended}");
    thread::sleep(Duration::from_millis(10));
    Ok(())
}

/// The live view is refused if stdout is no terminal.
pub(crate) fn the_live_view_needs_a_terminal() -> Result<()> {
    let mut command = Command::new(binary()?);
    let output =
        run_to_end(command.args(["status", "--live", "--status-socket", "/nowhere"]), TIMEOUT)?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(2), "{} with {stderr}", output.status);
    ensure!(stderr.lines().count() == 1 && stderr.contains("terminal"), "{stderr}");
    Ok(())
}
