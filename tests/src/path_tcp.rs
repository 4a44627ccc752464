//! Scenarios of `horolog path tcp`: measurements over a lab link with a description of both ends, a
//! far end that vanishes or is busy, and invalid arguments.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Output};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use horolog_lab::{Lab, LabConfig, LabHost, RunningProgram};
use serde_json::Value;
use tempfile::TempDir;

use crate::process::{TIMEOUT, binary, run_to_end};
use crate::scenario::{Queue, Scenario};
use crate::{ROOT, path_tcp, scenarios};

const PORT: u16 = 8_625;

pub(crate) fn all() -> Vec<Scenario> {
    let sizes = scenarios!(ROOT, path_tcp: sizes_are_measured_and_both_ends_described);
    let mut all = Vec::from(sizes.map(|scenario| scenario.in_queue(Queue::Exclusive)));
    all.extend(scenarios!(ROOT, path_tcp:
        a_vanished_far_end_is_reported,
        a_reached_limit_is_reported,
        path_errors_are_reported,
    ));
    all
}

/// Returns the address of a far end on the lab's server host.
pub(crate) fn far_end_address(lab: &Lab) -> SocketAddr {
    (lab.server().first_interface().ipv4, PORT).into()
}

/// Starts a far end on the lab's server host, and waits until it accepts connections.
pub(crate) fn start_far_end(lab: &Lab, arguments: &[&str]) -> Result<RunningProgram> {
    let at = far_end_address(lab);
    let mut command = lab.server().command(binary()?);
    command.args(["path", "serve", "--listen", &at.to_string()]).args(arguments);
    let mut running = RunningProgram::start(&mut command)?;
    let answers = || lab.client().run(|| TcpStream::connect(at).is_ok()).unwrap_or(false);
    running.await_ready(TIMEOUT, answers)?;
    Ok(running)
}

/// Runs a command of `horolog path` on a host.
pub(crate) fn run_path(host: &LabHost, arguments: &[&str]) -> Result<Output> {
    run_to_end(host.command(binary()?).arg("path").args(arguments), TIMEOUT)
}

/// Runs a command of `horolog path` that must end with this status; returns its result.
pub(crate) fn path_result(host: &LabHost, arguments: &[&str], status: i32) -> Result<Value> {
    let directory = TempDir::new()?;
    let file = directory.path().join("result.json");
    let file_text = file.to_str().context("no text")?;
    let output = run_path(host, &[arguments, &["--json", file_text]].concat())?;
    ensure!(output.status.code() == Some(status), "{arguments:?}: {output:?}");
    Ok(serde_json::from_str(&fs::read_to_string(&file)?)?)
}

fn sizes_are_measured_and_both_ends_described() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let _far = start_far_end(&lab, &[])?;
    let target = far_end_address(&lab).to_string();
    let settings = ["tcp", &target, "-s", "1,1448,65536", "-t", "80ms", "--warm-up", "10ms"];
    let limits = ["--both-directions", "-c", "2", "--fail-if", "p50>10s"];
    let json = path_result(lab.client(), &[&settings[..], &limits[..]].concat(), 0)?;
    ensure!(json["schema"] == "horolog.path-tcp/2", "{json}");
    let latency = json["latency"].as_array().context("no latency")?;
    let bandwidth = json["bandwidth"].as_array().context("no bandwidth")?;
    ensure!((latency.len(), bandwidth.len()) == (3, 6), "{json}");
    for row in latency {
        ensure!(row["round_trips"].as_u64() > Some(0) && row["tcp"]["mss_bytes"] == 1_448, "{row}");
    }
    for row in bandwidth {
        ensure!(row["rate"].as_f64() > Some(0.0) && row["tcp"]["cwnd"].as_u64() > Some(0), "{row}");
    }
    let (near, far) = (&json["near"], &json["far"]);
    ensure!(near["interface"] == "veth0" && far["nic"] == "veth" && far["mtu"] == 1_500, "{json}");
    ensure!(far["kernel"] == near["kernel"] && far["cpu"] == near["cpu"], "{far}");
    // Larger messages have a higher rate.
    let rate = |index: usize| bandwidth[index]["rate"].as_f64().unwrap_or(0.0);
    ensure!(rate(4) > 4.0 * rate(0) && rate(5) > 4.0 * rate(1), "{bandwidth:?}");

    let broken = ["tcp", &target, "--bandwidth", "-t", "50ms", "--fail-if", "bandwidth<1000G"];
    let broken = run_path(lab.client(), &broken)?;
    let stderr = String::from_utf8_lossy(&broken.stderr).into_owned();
    ensure!(broken.status.code() == Some(1) && stderr.contains("bandwidth<1000G"), "{stderr}");
    Ok(())
}

fn a_vanished_far_end_is_reported() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let far = start_far_end(&lab, &[])?;
    let target = far_end_address(&lab).to_string();
    let json = thread::scope(|scope| {
        let measured =
            scope.spawn(|| path_result(lab.client(), &["tcp", &target, "-s", "1", "-t", "30s"], 1));
        thread::sleep(Duration::from_millis(400));
        drop(far);
        measured.join().map_err(|_| anyhow::anyhow!("the measurement panicked"))?
    })?;
    let findings = json["findings"].as_array().context("no findings")?;
    ensure!(findings.iter().any(|one| one["code"] == "far-end-unreachable"), "{json}");
    ensure!(
        json["latency"][0]["round_trips"].as_u64() > Some(0),
        "round trips before the failure are missing: {json}"
    );
    ensure!(json["bandwidth"].as_array().is_some_and(Vec::is_empty), "{json}");
    Ok(())
}

fn a_reached_limit_is_reported() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let _far = start_far_end(&lab, &["--tcp-bytes", "1M", "--tcp-bytes-per-hour", "3MB"])?;
    let target = far_end_address(&lab).to_string();
    for (arguments, part) in [
        (&["tcp", "-s", "1k", "-t", "20s"][..], "latency"),
        (&["tcp", "--bandwidth", "-t", "20s"], "bandwidth"),
    ] {
        let json = path_result(lab.client(), &[arguments, &[&target]].concat(), 1)?;
        let findings = json["findings"].as_array().context("no findings")?;
        let found = findings.iter().find(|one| one["code"] == "far-end-limit");
        let message = found.and_then(|one| one["message"].as_str()).context("no such finding")?;
        ensure!(message.contains("its limit for a connection is 1048576 bytes"), "{message}");
        ensure!(json[part].as_array().is_some_and(|rows| rows.len() == 1), "{json}");
    }
    // The rest of the hourly limit is less than that of a connection.
    let json = path_result(lab.client(), &["tcp", "-s", "1k", "-t", "20s", &target], 1)?;
    ensure!(json.to_string().contains("connections is 3000000 bytes in an hour"), "{json}");
    let refused = run_path(lab.client(), &["tcp", &target])?;
    let stderr = String::from_utf8_lossy(&refused.stderr).into_owned();
    ensure!(refused.status.code() == Some(3) && stderr.contains("try again in"), "{stderr}");
    Ok(())
}

fn path_errors_are_reported() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let _far = start_far_end(&lab, &["--tcp-connections", "1", "--tcp-time", "3s"])?;
    let at = far_end_address(&lab).to_string();
    let closed = SocketAddr::new(far_end_address(&lab).ip(), 9).to_string();
    for (arguments, status, expected) in [
        (["tcp", &closed].as_slice(), 3, "no program listens on"),
        (&["stall", &closed], 3, "no program listens on"),
        (&["tcp", &at, "-c", "2"], 3, "its limit is 1 connection; use fewer"),
        (&["tcp", &at, "-t", "5s"], 2, "a connection is 3000 ms"),
        (&["tcp", &at, "-c", "0"], 2, "from 1 to 64, not 0"),
        (&["tcp", &at, "-s", "0"], 2, "'0' is too little"),
        (&["tcp", &at, "-s", "1.5"], 2, "no number or range"),
        (&["tcp", &at, "-s", "1G"], 2, "message sizes are from 1 to"),
        (&["tcp", &at, "-s", "900M"], 2, "message sizes are from 1 to"),
        (&["tcp", "224.0.0.1"], 2, "not the address of one host"),
        (&["tcp", &at, "--fail-if", "p98>1us"], 2, "name a metric"),
        (&["tcp"], 2, "<TARGET>"),
        (&["stall", &at, "-n", "1"], 2, "from 2 to"),
        (&["stall", &at, "-b", "1.5"], 2, "invalid number of writes in a batch: 1.5"),
        (&["stall", &at, "--stall-threshold", "1us"], 2, "a stall is from"),
        (&["stall", "--watch", "0"], 2, "0 is not in 1..="),
        (&["stall", "--watch", "80", "-i", "nowhere0"], 3, "interface 'nowhere0' not found"),
        (&["stall"], 2, "give a TARGET that runs"),
        (&["serve", "--listen", &closed], 3, "cannot listen on"),
        (&["serve", "--listen", "nowhere"], 2, "write an address and a port"),
    ] {
        let output = run_path(lab.client(), arguments)?;
        let stderr = String::from_utf8(output.stderr).context("no text")?;
        ensure!(
            output.status.code() == Some(status),
            "{arguments:?}: {:?}, {stderr}",
            output.status
        );
        ensure!(stderr.contains(expected), "{arguments:?}: {stderr}");
        ensure!(stderr.lines().count() == 1, "{arguments:?}: {stderr}");
    }
    // A program with another protocol at the port is reported.
    let other = std::net::TcpListener::bind("127.0.0.1:0")?;
    let at = other.local_addr()?.to_string();
    let speaker = thread::spawn(move || {
        other.accept().map(|(mut stream, _)| {
            std::io::Write::write_all(&mut stream, b"220 mail.example ESMTP at your service\r\n")
        })
    });
    let output = run_to_end(Command::new(binary()?).args(["path", "tcp", &at]), TIMEOUT)?;
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(stderr.contains("'horolog path serve' of this version"), "{stderr}");
    drop(speaker.join());
    Ok(())
}
