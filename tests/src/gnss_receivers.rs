//! Scenarios of GNSS receivers on a pseudo-terminal: their time is served, and the state of the
//! line is reported.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use horolog_lab::receiver::{SimulatedGnssReceiver, time_sentences, week_rollover_offset};
use horolog_lab::{Lab, LabConfig, RunningProgram};
use horolog_sys::clock::ClockRealtime;
use horolog_time::{Clock, NS_PER_S, Span};
use horolog_wire::ntp::LeapIndicator;
use serde_json::Value;
use tempfile::TempDir;

use crate::process::{Engine, Server, TIMEOUT, server_address, wait_until};
use crate::scenario::{Need, Scenario, in_path};
use crate::server_sandbox::check_confined;
use crate::server_sources::{is_unsynchronised, source_state};
use crate::{ROOT, client, gnss_receivers, scenarios};

/// Offset of the receiver from the system clock.
const RECEIVER_OFFSET: Span = Span::from_ms(2_700);
/// Maximum error of served time: on a busy machine, sentences may be late within their second.
const ERROR_MAX: Span = Span::from_ms(600);

const GPSD: &[Need] = &[Need::Root, Need::Peer("gpsd"), Need::Peer("unshare")];
const GPSFAKE: &[Need] =
    &[Need::Root, Need::Peer("gpsd"), Need::Peer("gpsfake"), Need::Peer("unshare")];

pub(crate) fn all() -> Vec<Scenario> {
    let mut all = Vec::from(scenarios!(ROOT, gnss_receivers:
        sentence_time_is_served,
        an_implausible_date_is_not_served_and_a_correct_one_recovers,
        a_saved_time_reveals_a_clock_that_was_set_back,
        a_line_that_ends_is_reopened,
        invalid_lines_are_named,
    ));
    all.extend(scenarios!(GPSD, gnss_receivers: gpsd_passes_the_time_on));
    all.extend(scenarios!(GPSFAKE, gnss_receivers: gpsfake_time_is_served));
    all
}

/// Without a pulse, the time of sentences is served with its uncertainty; it is no longer served
/// after loss of the fix or a wrong week count.
fn sentence_time_is_served() -> Result<()> {
    let directory = TempDir::new()?;
    let name = directory.path().join("gnss");
    let receiver = SimulatedGnssReceiver::start(&name, RECEIVER_OFFSET)?;
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let source = format!("gnss:{},baud=115200,refid=GPS", name.display());
    let server =
        Server::start_without_local(lab.server(), Engine::Socket, &[at], &["--source", &source])?;
    wait_until("its time is served", || {
        let reply = client::query_from(lab.client(), at)?;
        let is_right = reply.has_offset(RECEIVER_OFFSET, ERROR_MAX);
        ensure!(is_unsynchronised(&reply.header) || is_right, "{reply:?}");
        Ok(!is_unsynchronised(&reply.header))
    })?;
    let header = client::query_from(lab.client(), at)?.header;
    ensure!((header.leap, header.stratum) == (LeapIndicator::None, 1), "{header:?}");
    ensure!(&header.reference_id == b"GPS\0", "{header:?}");
    ensure!(header.root_dispersion.to_span() > Span::from_ms(499), "{header:?}");
    receiver.set_fix(false);
    wait_until("a receiver without a fix is not used", || {
        Ok(is_unsynchronised(&client::query_from(lab.client(), at)?.header))
    })?;
    receiver.set_fix(true);
    wait_until("its time is served again", || {
        Ok(!is_unsynchronised(&client::query_from(lab.client(), at)?.header))
    })?;
    receiver.set_offset(week_rollover_offset(RECEIVER_OFFSET, -1));
    wait_until("miscounted weeks are not served", || {
        let reply = client::query_from(lab.client(), at)?;
        let is_near = reply.offset() > Span::ZERO;
        ensure!(is_near || is_unsynchronised(&reply.header), "a wrong time: {reply:?}");
        Ok(is_unsynchronised(&reply.header))
    })?;
    let ended = server.end("TERM")?;
    for message in ["the receiver has no fix", "reported time is 1024 weeks behind"] {
        ensure!(ended.stderr.contains(message), "{message}: {}", ended.stderr);
    }
    Ok(())
}

/// Number of reported times that a server has rejected for one of these reasons.
fn rejected_count(server: &Server, reasons: &[&str]) -> Result<u64> {
    let status = server.status()?;
    let sources = status["sources"].as_array().cloned().unwrap_or_default();
    let counts = sources.iter().map(|source| &source["rejected"]);
    let counts = counts.chain([&status["calibration"]["sentences"]]);
    let of = |counts: &Value| reasons.iter().filter_map(|name| counts[*name].as_u64()).sum::<u64>();
    Ok(counts.map(of).sum())
}

/// Two servers, each with its own receiver: one is calibrated by it, the other uses it as a source.
struct ServerPair {
    receivers: [SimulatedGnssReceiver; 2],
    servers: [Server; 2],
    at: [SocketAddr; 2],
}

impl ServerPair {
    fn start(lab: &Lab, directory: &Path, ahead: Span) -> Result<Self> {
        let names = ["calibrated", "source"].map(|name| directory.join(name));
        let [one, two] = names.each_ref().map(|name| SimulatedGnssReceiver::start(name, ahead));
        let receivers = [one?, two?];
        let first = server_address(lab, false)?;
        let at = [first, SocketAddr::new(first.ip(), first.port() + 1)];
        let names = names.map(|name| name.display().to_string());
        let source = format!("gnss:{}", names[1]);
        let start = |at, arguments: &[&str]| {
            Server::start_without_local(lab.server(), Engine::Socket, &[at], arguments)
        };
        let calibrated = start(at[0], &["--gnss", &names[0], "--no-clock-control"])?;
        Ok(Self { receivers, servers: [calibrated, start(at[1], &["--source", &source])?], at })
    }

    fn set_offsets(&self, ahead: Span) {
        self.receivers.iter().for_each(|receiver| receiver.set_offset(ahead));
    }

    /// Waits until both servers have rejected the time at this offset; neither may serve it.
    fn wait_until_rejected(&self, lab: &Lab, ahead: Span, reasons: &[&str]) -> Result<()> {
        self.set_offsets(ahead);
        let before: Vec<_> = self
            .servers
            .iter()
            .map(|server| rejected_count(server, reasons))
            .collect::<Result<_>>()?;
        for ((server, at), before) in self.servers.iter().zip(self.at).zip(before) {
            wait_until(reasons[0], || {
                let reply = client::query_from(lab.client(), at)?;
                let is_near = reply.has_offset(RECEIVER_OFFSET, ERROR_MAX);
                ensure!(is_unsynchronised(&reply.header) || is_near, "{reasons:?}: {reply:?}");
                let is_out =
                    is_unsynchronised(&reply.header) && rejected_count(server, reasons)? > before;
                Ok(is_out && source_state(server, "gnss")? == "unusable")
            })?;
        }
        Ok(())
    }

    /// Waits until both servers serve the time at this offset.
    fn wait_until_served(&self, lab: &Lab, ahead: Span) -> Result<()> {
        for at in self.at {
            wait_until("the time is served", || {
                let reply = client::query_from(lab.client(), at)?;
                Ok(!is_unsynchronised(&reply.header) && reply.has_offset(ahead, ERROR_MAX))
            })?;
        }
        Ok(())
    }
}

/// The GPS epoch with status A, as from a receiver without almanac, is not served, and a subsequent
/// correct date is. A later step by days is served only after the operator's confirmation. Each
/// rejection is counted by its reason.
fn an_implausible_date_is_not_served_and_a_correct_one_recovers() -> Result<()> {
    const DAY: i64 = 86_400 * NS_PER_S;
    /// 1980-01-06
    const EPOCH: Span = Span::from_ns(315_964_800 * NS_PER_S);
    let directory = TempDir::new()?;
    let lab = Lab::new(&LabConfig::default())?;
    let ago = EPOCH - Span::from_ns(ClockRealtime.now().as_ns());
    let pair = ServerPair::start(&lab, directory.path(), ago)?;
    pair.wait_until_rejected(&lab, ago, &["before_build", "too_far"])?;
    pair.set_offsets(RECEIVER_OFFSET);
    pair.wait_until_served(&lab, RECEIVER_OFFSET)?;
    // Ahead, since a date some days ago may precede the build.
    let days = RECEIVER_OFFSET + Span::from_ns(5 * DAY);
    pair.wait_until_rejected(&lab, days, &["apart"])?;
    pair.servers.iter().try_for_each(|server| server.signal("HUP"))?;
    pair.wait_until_served(&lab, days)?;
    for server in pair.servers {
        let ended = server.end("TERM")?;
        let message = "and neither is confirmed; if it is right, confirm it with: kill -HUP";
        ensure!(ended.stderr.contains(message), "{}", ended.stderr);
    }
    Ok(())
}

/// A server saves the time, exact to the second of its end, in spite of its sandbox; a system clock
/// behind the saved time does not contradict the receiver at the next start.
fn a_saved_time_reveals_a_clock_that_was_set_back() -> Result<()> {
    const DAY: i64 = 86_400 * NS_PER_S;
    let directory = TempDir::new()?;
    let (name, saved) = (directory.path().join("gnss"), directory.path().join("saved-time"));
    let saved_text = saved.display().to_string();
    let days = Span::from_ns(5 * DAY);
    let receiver = SimulatedGnssReceiver::start(&name, RECEIVER_OFFSET)?;
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let source = format!("gnss:{}", name.display());
    let arguments = ["--source", &source, "--saved-time", &saved_text, "--sandbox", "required"];
    let start = || Server::start_without_local(lab.server(), Engine::Socket, &[at], &arguments);
    let server = start()?;
    wait_until("its time is served", || Ok(server.status()?["synchronised"] == true))?;
    server.end("TERM")?;
    let seconds: i64 = fs::read_to_string(&saved)?.trim().parse()?;
    let off = (ClockRealtime.now() + RECEIVER_OFFSET).to_timespec().0 - seconds;
    ensure!((-1..=3).contains(&off), "saved time is {off} s behind");
    // State after five days in which the system clock stood still.
    receiver.set_offset(RECEIVER_OFFSET + days);
    fs::write(&saved, format!("{}", seconds + days.as_ns() / NS_PER_S - 60))?;
    let server = start()?;
    wait_until("the receiver is believed", || {
        let reply = client::query_from(lab.client(), at)?;
        let is_right = reply.has_offset(RECEIVER_OFFSET + days, ERROR_MAX);
        Ok(!is_unsynchronised(&reply.header) && is_right)
    })?;
    server.end("TERM").map(drop)
}

/// The end of a line is reported, and the line is reopened under its name, within the sandbox.
fn a_line_that_ends_is_reopened() -> Result<()> {
    let directory = TempDir::new()?;
    let name = directory.path().join("gnss");
    let receiver = SimulatedGnssReceiver::start(&name, RECEIVER_OFFSET)?;
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let source = format!("gnss:{}", name.display());
    let arguments = ["--source", &source, "--sandbox", "required"];
    let server = Server::start_without_local(lab.server(), Engine::Socket, &[at], &arguments)?;
    wait_until("its time is served", || Ok(source_state(&server, "gnss")? == "selected"))?;
    check_confined(&server.status()?)?;
    receiver.disconnect();
    wait_until("the source of a closed line is unresponsive", || {
        Ok(source_state(&server, "gnss")? == "unresponsive")
    })?;
    wait_until("its time is not served", || {
        Ok(is_unsynchronised(&client::query_from(lab.client(), at)?.header))
    })?;
    receiver.reconnect(&name)?;
    wait_until("its time is served again", || Ok(source_state(&server, "gnss")? == "selected"))?;
    let ended = server.end("TERM")?;
    ensure!(ended.stderr.contains("its line was closed"), "{}", ended.stderr);
    Ok(())
}

/// A missing line, or a file that is not a serial line, is reported in one line.
fn invalid_lines_are_named() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    for (source, expected) in [
        ("gnss:/dev/there-is-none", "/dev/there-is-none: no such serial line"),
        ("gnss:/dev/null", "/dev/null: not a serial line of this speed"),
        ("gnss:/dev/null,baud=1200", "baud takes one of 4800, 9600"),
    ] {
        let arguments = ["--source", source];
        let Err(error) =
            Server::start_without_local(lab.server(), Engine::Socket, &[at], &arguments)
        else {
            anyhow::bail!("{source} was accepted");
        };
        ensure!(error.to_string().contains(expected), "{source}: {error}");
    }
    Ok(())
}

/// gpsd reads the receiver: with its reports as a source, or its sentences as calibration, the time
/// is served.
fn gpsd_passes_the_time_on() -> Result<()> {
    let directory = TempDir::new()?;
    let name = directory.path().join("gnss");
    let _receiver = SimulatedGnssReceiver::start(&name, RECEIVER_OFFSET)?;
    let lab = Lab::new(&LabConfig::default())?;
    // Its shared memory ends with its IPC namespace. It runs in the foreground, without waiting for
    // a client, on the canonical path.
    let mut command = lab.server().command("unshare");
    command.args(["--ipc", "gpsd", "-N", "-n"]).arg(name.canonicalize()?);
    let mut gpsd = RunningProgram::start(&mut command)?;
    let at_gpsd = SocketAddr::from(([127, 0, 0, 1], 2947));
    gpsd.await_ready(TIMEOUT, || {
        lab.server().run(|| TcpStream::connect(at_gpsd)).is_ok_and(|connected| connected.is_ok())
    })?;
    let at = server_address(&lab, false)?;
    for arguments in [["--source", "gpsd"].as_slice(), &["--gnss", "gpsd", "--no-clock-control"]] {
        let server = Server::start_without_local(lab.server(), Engine::Socket, &[at], arguments)?;
        wait_until("its time is served", || {
            let reply = client::query_from(lab.client(), at)?;
            let is_right = reply.has_offset(RECEIVER_OFFSET, ERROR_MAX);
            ensure!(is_unsynchronised(&reply.header) || is_right, "{arguments:?}: {reply:?}");
            Ok(!is_unsynchronised(&reply.header))
        })?;
        server.end("TERM")?;
    }
    Ok(())
}

/// gpsfake replays a log to gpsd in about real time: the time is served, within the uncertainty of
/// the arrival of sentences.
fn gpsfake_time_is_served() -> Result<()> {
    const LINES_A_SECOND: i64 = 2;
    const SECONDS: i64 = 120;
    let directory = TempDir::new()?;
    let log = directory.path().join("log.nmea");
    let start = (ClockRealtime.now() + RECEIVER_OFFSET).to_timespec().0;
    let lines = (0..SECONDS).map(|second| time_sentences(start + second, true));
    fs::write(&log, lines.collect::<String>())?;
    let lab = Lab::new(&LabConfig::default())?;
    let mut command = lab.server().command("unshare");
    // In its own PID namespace, since gpsfake does not end its gpsd.
    command.args(["--ipc", "--pid", "--fork", "--kill-child", "gpsfake", "-1"]);
    command.args(["-P", "2947", "-c"]);
    command.arg(format!("{}", 1.0 / LINES_A_SECOND as f64)).arg(&log);
    // A cached gpsfake has its libraries beside it.
    let peers = in_path("gpsfake").and_then(|path| path.parent()?.parent().map(Path::to_owned));
    let peers = peers.context("gpsfake has no directory")?;
    command.env("PYTHONPATH", peers.join("lib/python3/dist-packages"));
    command.env("LD_LIBRARY_PATH", peers.join("lib/x86_64-linux-gnu"));
    command.env("TMPDIR", directory.path());
    let _gpsfake = RunningProgram::start(&mut command)?;
    let at = server_address(&lab, false)?;
    let server =
        Server::start_without_local(lab.server(), Engine::Socket, &[at], &["--source", "gpsd"])?;
    wait_until("its time is served", || {
        let reply = client::query_from(lab.client(), at)?;
        let off = reply.offset() - RECEIVER_OFFSET;
        // The replay is late by its start-up, and by some time for each line.
        let is_right = (Span::from_ns(-60 * NS_PER_S)..Span::from_ns(NS_PER_S)).contains(&off);
        ensure!(is_unsynchronised(&reply.header) || is_right, "{reply:?}");
        Ok(!is_unsynchronised(&reply.header))
    })?;
    server.end("TERM").map(drop)
}
