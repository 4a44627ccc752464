//! Scenarios of a server that is calibrated by a receiver at a pseudo-terminal, and of the
//! consumers of its samples. Test hosts have no pulse input, so only sentences and errors of
//! missing devices are covered. Every server here uses `--no-clock-control` or lacks the privilege
//! to set the clock, because the clock is that of the host.

use std::fs;
use std::path::Path;
use std::process::{Child, Command};

use anyhow::{Context, Result, ensure};
use horolog_lab::receiver::{SimulatedGnssReceiver, week_rollover_offset};
use horolog_lab::{Lab, LabConfig};
use horolog_time::Span;
use horolog_wire::ntp::LeapIndicator;
use serde_json::Value;
use tempfile::TempDir;

use crate::chronyd::ChronydClient;
use crate::process::{Engine, Server, TIMEOUT, binary, run_to_end, server_address, wait_until};
use crate::scenario::{Need, Scenario};
use crate::server_sandbox::check_confined;
use crate::server_sources::{ShmUnit, is_unsynchronised, source_state};
use crate::{ROOT, calibration, client, scenarios};

/// Offset of the receiver from the system clock.
const RECEIVER_OFFSET: Span = Span::from_ms(2_700);
/// Maximum error: the server assumes that a sentence is sent half a second after its second.
const ERROR_MAX: Span = Span::from_ms(600);
/// Unit of shared memory that no other scenario uses.
const UNIT: u8 = 215;
const CHRONYD: &[Need] = &[Need::Root, Need::Peer("chronyd"), Need::Peer("chronyc")];
const SETPRIV: &[Need] = &[Need::Root, Need::Peer("setpriv")];

pub(crate) fn all() -> Vec<Scenario> {
    let mut all = Vec::from(scenarios!(ROOT, calibration:
        sentences_alone_are_served_and_exported,
        missing_devices_are_named,
    ));
    all.extend(scenarios!(CHRONYD, calibration: chronyd_reads_exported_samples));
    all.extend(scenarios!(SETPRIV, calibration: a_clock_steered_by_another_daemon_is_not_touched));
    all
}

/// Starts a server that is calibrated by the receiver and does not control the clock.
fn start_calibrated(lab: &Lab, receiver: &Path, more: &[&str]) -> Result<Server> {
    let gnss = format!("{}:115200", receiver.display());
    let mut arguments = vec!["--gnss", &gnss, "--no-clock-control", "--sandbox", "required"];
    arguments.extend(more);
    let at = server_address(lab, false)?;
    Server::start_without_local(lab.server(), Engine::Socket, &[at], &arguments)
}

fn is_near(offset: Span) -> bool {
    (RECEIVER_OFFSET - ERROR_MAX..RECEIVER_OFFSET + ERROR_MAX).contains(&offset)
}

/// Waits until the calibration is in the given state, and returns its status.
fn await_state(server: &Server, state: &str) -> Result<Value> {
    wait_until(state, || Ok(server.status()?["calibration"]["state"] == state))?;
    Ok(server.status()?["calibration"].take())
}

/// Waits until the calibration reports `why` as the reason for having no time.
fn await_reason(server: &Server, why: &str) -> Result<()> {
    wait_until(why, || {
        let reason = server.status()?["calibration"]["reason"].take();
        Ok(reason.as_str().is_some_and(|reason| reason.contains(why)))
    })
}

/// Checks that the time of the sentences is served within their error bound of half a second, that
/// another server reads it from shared memory and over a socket, and that miscounted weeks are not
/// served.
fn sentences_alone_are_served_and_exported() -> Result<()> {
    let _unit = ShmUnit(UNIT);
    let directory = TempDir::new()?;
    let (name, socket) = (directory.path().join("gnss"), directory.path().join("ours.sock"));
    let receiver = SimulatedGnssReceiver::start(&name, RECEIVER_OFFSET)?;
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let (unit, socket) = (UNIT.to_string(), socket.display().to_string());
    let outputs = ["--coarse-output", "--shm-output", &unit, "--sock-output", &socket];
    let server = start_calibrated(&lab, &name, &outputs)?;
    let status = await_state(&server, "coarse")?;
    check_confined(&server.status()?)?;
    ensure!(status["controls_clock"] == false, "{status}");
    ensure!(status["sentences"]["accepted"].as_u64() > Some(0), "{status}");
    wait_until("the receiver's time is served", || {
        let reply = client::query_from(lab.client(), at)?;
        ensure!(is_unsynchronised(&reply.header) || is_near(reply.offset()), "{reply:?}");
        Ok(!is_unsynchronised(&reply.header))
    })?;
    let header = client::query_from(lab.client(), at)?.header;
    ensure!((header.leap, header.stratum) == (LeapIndicator::None, 1), "{header:?}");
    ensure!(&header.reference_id == b"GNSS", "{header:?}");
    ensure!(header.root_dispersion.to_span() > Span::from_ms(499), "{header:?}");

    // The second server makes the socket long after the first one began to send to it.
    let second = (lab.client().first_interface().ipv4, 1123).into();
    let sources = [format!("shm:{UNIT}"), format!("sock:{socket}")];
    let arguments = ["--source", &sources[0], "--source", &sources[1]];
    let consumer =
        Server::start_without_local(lab.client(), Engine::Socket, &[second], &arguments)?;
    wait_until("both outputs are used", || {
        let is_used = |state: String| state == "selected" || state == "truechimer";
        Ok(is_used(source_state(&consumer, "shm")?) && is_used(source_state(&consumer, "sock")?))
    })?;
    wait_until("the time of the outputs is served", || {
        let reply = client::query_from(lab.server(), second)?;
        ensure!(is_unsynchronised(&reply.header) || is_near(reply.offset()), "{reply:?}");
        Ok(!is_unsynchronised(&reply.header))
    })?;
    consumer.end("TERM")?;

    receiver.set_offset(week_rollover_offset(RECEIVER_OFFSET, 1));
    wait_until("miscounted weeks are not served", || {
        let reply = client::query_from(lab.client(), at)?;
        ensure!(is_unsynchronised(&reply.header) || is_near(reply.offset()), "{reply:?}");
        Ok(is_unsynchronised(&reply.header))
    })?;
    await_reason(&server, "reported time is 1024 weeks ahead")?;
    receiver.disconnect();
    await_reason(&server, "its line was closed")?;
    receiver.set_offset(RECEIVER_OFFSET);
    receiver.reconnect(&name)?;
    await_state(&server, "coarse")?;
    server.end("TERM")?;
    Ok(())
}

/// Returns the last offset in seconds that chronyd measured of a reference clock; positive if the
/// local clock is ahead.
fn offset_of(sources: &str, name: &str) -> Option<f64> {
    let line = sources.lines().find(|line| line.starts_with('#') && line.contains(name))?;
    let fields: Vec<_> = line.split(',').collect();
    let was_reached = fields.get(5)? != &"0";
    fields.get(8)?.parse().ok().filter(|_| was_reached)
}

/// Checks that a chronyd that starts after the server, without control of the clock, reads the
/// offset of the receiver from shared memory and from its own socket.
fn chronyd_reads_exported_samples() -> Result<()> {
    let _unit = ShmUnit(UNIT);
    let directory = TempDir::new()?;
    let (name, socket) = (directory.path().join("gnss"), directory.path().join("chrony.sock"));
    let _receiver = SimulatedGnssReceiver::start(&name, RECEIVER_OFFSET)?;
    let lab = Lab::new(&LabConfig::default())?;
    let (unit, socket) = (UNIT.to_string(), socket.display().to_string());
    let outputs = ["--coarse-output", "--shm-output", &unit, "--sock-output", &socket];
    let server = start_calibrated(&lab, &name, &outputs)?;
    await_state(&server, "coarse")?;
    let lines = [
        format!("refclock SHM {UNIT}:perm=0666 refid SHMH poll 1 noselect"),
        format!("refclock SOCK {socket} refid SOKH poll 1 noselect"),
    ];
    let chronyd = ChronydClient::start(lab.client(), &lines, |_| Ok(()))?;
    wait_until("chronyd reads the receiver's offset from both outputs", || {
        let sources = chronyd.query("-c sources")?;
        let offsets = ["SHMH", "SOKH"].map(|name| offset_of(&sources, name));
        let is_right = |offset: f64| is_near(Span::from_ns((-offset * 1e9) as i64));
        let wrong = offsets.iter().flatten().any(|offset| *offset != 0.0 && !is_right(*offset));
        ensure!(!wrong, "{sources}");
        Ok(offsets.into_iter().all(|offset| offset.is_some_and(is_right)))
    })?;
    server.end("TERM")?;
    Ok(())
}

/// Checks that an absent or unsuitable device, or a wrong option, is named in the error.
fn missing_devices_are_named() -> Result<()> {
    let directory = TempDir::new()?;
    let name = directory.path().join("gnss");
    let _receiver = SimulatedGnssReceiver::start(&name, RECEIVER_OFFSET)?;
    let lab = Lab::new(&LabConfig::default())?;
    for (arguments, expected) in [
        (["--pps", "/dev/pps77"].as_slice(), "/dev/pps77: no such device"),
        (&["--pps", "/dev/null"], "/dev/null: it does not support these pulse edges"),
        (&["--pps", "gpio:/dev/gpiochip77,line=4"], "/dev/gpiochip77: no such device"),
        (&["--pps", "extts:/dev/ptp77"], "/dev/ptp77: no such device"),
        (&["--pps", "bell:/dev/pps0"], "--pps bell:/dev/pps0: unknown pulse 'bell'"),
        (&["--pulse-width", "100ms"], "--pps"),
        (&["--holdover-limit", "1s"], "the holdover limit is at least 10 s"),
        (
            &["--clock-error-log", "/there-is-none/log"],
            "cannot write the clock-error log /there-is-none/log",
        ),
        (&["--local"], "cannot be used with"),
    ] {
        let Err(error) = start_calibrated(&lab, &name, arguments) else {
            anyhow::bail!("{arguments:?} is accepted");
        };
        ensure!(error.to_string().contains(expected), "{arguments:?}: {error}");
    }
    let Err(error) = start_calibrated(&lab, Path::new("/dev/there-is-none"), &[]) else {
        anyhow::bail!("an absent serial line is accepted");
    };
    ensure!(error.to_string().contains("no such serial line"), "{error}");
    Ok(())
}

/// Program with the name and the privileges of a daemon that steers the clock, without doing so.
struct FakeDaemon(Child);

impl FakeDaemon {
    fn start(directory: &Path) -> Result<Self> {
        let path = directory.join("chronyd");
        fs::copy("/bin/sleep", &path)?;
        Ok(Self(Command::new(path).arg("60").spawn()?))
    }
}

impl Drop for FakeDaemon {
    fn drop(&mut self) {
        // The program may have exited already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Checks that a server refuses to start, with advice in one line, while another daemon steers the
/// clock or without the privilege to set it. The server here lacks the privilege in any case.
fn a_clock_steered_by_another_daemon_is_not_touched() -> Result<()> {
    let directory = TempDir::new()?;
    let name = directory.path().join("gnss");
    let _receiver = SimulatedGnssReceiver::start(&name, RECEIVER_OFFSET)?;
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?.to_string();
    let refusal = || -> Result<String> {
        let mut command = lab.server().command("setpriv");
        command.args(["--bounding-set=-sys_time", "--inh-caps=-sys_time"]).arg(binary()?);
        command.args(["serve", "--engine", "socket", "--listen", &at, "--gnss"]).arg(&name);
        let output = run_to_end(&mut command, TIMEOUT)?;
        ensure!(output.status.code() == Some(3), "{output:?}");
        let stderr = String::from_utf8(output.stderr).context("stderr is not UTF-8")?;
        ensure!(stderr.lines().count() == 1, "{stderr}");
        Ok(stderr)
    };
    let daemon = FakeDaemon::start(directory.path())?;
    let steered = refusal()?;
    ensure!(steered.contains("already steers the system clock"), "{steered}");
    ensure!(steered.contains("--no-clock-control"), "{steered}");
    drop(daemon);
    // Other daemons may steer the clock of the host, independently of this scenario.
    let stderr = refusal()?;
    let is_named = stderr.contains("requires CAP_SYS_TIME") || stderr.contains("steers the system");
    ensure!(is_named && stderr.contains("--no-clock-control"), "{stderr}");
    Ok(())
}
