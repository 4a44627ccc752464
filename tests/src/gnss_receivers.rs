//! Scenarios of a GNSS receiver at a pseudo-terminal: its time is served, and the state of its line
//! is reported.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use horolog_lab::receiver::{SimulatedGnssReceiver, time_sentences, week_rollover_offset};
use horolog_lab::{Lab, LabConfig, RunningProgram};
use horolog_sys::clock::ClockRealtime;
use horolog_time::{Clock, NS_PER_S, Span};
use horolog_wire::ntp::LeapIndicator;
use libtest_mimic::Trial;
use serde_json::Value;
use tempfile::TempDir;

use crate::process::{Engine, Server, TIMEOUT, server_address};
use crate::scenario::{Need, in_path};
use crate::server_sandbox::is_confined;
use crate::server_sources::{is_unsynchronised, state_of, wait_until};
use crate::{ROOT, client, gnss_receivers, scenarios};

/// The receiver is ahead of the system clock by so much.
const TRUTH: Span = Span::from_ms(2_700);
/// Sentences come in the second that they name, on a busy machine not always at its beginning.
const ERROR_MAX: Span = Span::from_ms(600);

const GPSD: &[Need] = &[Need::Root, Need::Peer("gpsd"), Need::Peer("unshare")];
const GPSFAKE: &[Need] =
    &[Need::Root, Need::Peer("gpsd"), Need::Peer("gpsfake"), Need::Peer("unshare")];

/// All of them.
pub(crate) fn all() -> Vec<Trial> {
    let mut all = Vec::from(scenarios!(ROOT, gnss_receivers:
        sentences_are_followed,
        an_implausible_date_is_not_served_and_a_correct_one_recovers,
        a_saved_time_reveals_a_clock_that_was_set_back,
        a_line_that_ends_is_reopened,
        invalid_lines_are_named,
    ));
    all.extend(scenarios!(GPSD, gnss_receivers: gpsd_passes_the_time_on));
    all.extend(scenarios!(GPSFAKE, gnss_receivers: gpsfake_plays_a_receiver_to_gpsd));
    all
}

/// Without a pulse the time of the sentences is served, as uncertain as that is; a receiver that
/// lost its fix, or count of the weeks, is not believed any more.
fn sentences_are_followed() -> Result<()> {
    let directory = TempDir::new()?;
    let name = directory.path().join("gnss");
    let receiver = SimulatedGnssReceiver::start(&name, TRUTH)?;
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let source = format!("gnss:{},baud=115200,refid=GPS", name.display());
    let server = Server::start_as(lab.server(), Engine::Socket, &[at], &["--source", &source])?;
    wait_until("its time is served", || {
        let reply = client::query_from(lab.client(), at)?;
        let off = reply.offset() - TRUTH;
        let is_right = (-ERROR_MAX..ERROR_MAX).contains(&off);
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
    receiver.set_offset(week_rollover_offset(TRUTH, -1));
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

/// How often a server has rejected a time for one of these reasons.
fn rejected(server: &Server, reasons: &[&str]) -> Result<u64> {
    let status = server.status()?;
    let sources = status["sources"].as_array().cloned().unwrap_or_default();
    let counts = sources.iter().map(|source| &source["rejected"]);
    let counts = counts.chain([&status["calibration"]["sentences"]]);
    let of = |counts: &Value| reasons.iter().filter_map(|name| counts[*name].as_u64()).sum::<u64>();
    Ok(counts.map(of).sum())
}

/// The servers of this test: each with a receiver of its own, by which its clock would be
/// calibrated, or which is a mere source.
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
            Server::start_as(lab.server(), Engine::Socket, &[at], arguments)
        };
        let calibrated = start(at[0], &["--gnss", &names[0], "--no-clock-control"])?;
        Ok(Self { receivers, servers: [calibrated, start(at[1], &["--source", &source])?], at })
    }

    fn set_offsets(&self, ahead: Span) {
        self.receivers.iter().for_each(|receiver| receiver.set_offset(ahead));
    }

    /// Waits until both servers have rejected this; neither serves it meanwhile.
    fn reject(&self, lab: &Lab, ahead: Span, reasons: &[&str]) -> Result<()> {
        self.set_offsets(ahead);
        let before: Vec<_> =
            self.servers.iter().map(|server| rejected(server, reasons)).collect::<Result<_>>()?;
        for ((server, at), before) in self.servers.iter().zip(self.at).zip(before) {
            wait_until(reasons[0], || {
                let reply = client::query_from(lab.client(), at)?;
                let is_near = (-ERROR_MAX..ERROR_MAX).contains(&(reply.offset() - TRUTH));
                ensure!(is_unsynchronised(&reply.header) || is_near, "{reasons:?}: {reply:?}");
                let is_out =
                    is_unsynchronised(&reply.header) && rejected(server, reasons)? > before;
                Ok(is_out && state_of(server, "gnss")? == "unusable")
            })?;
        }
        Ok(())
    }

    /// Waits until both servers serve this.
    fn serve(&self, lab: &Lab, ahead: Span) -> Result<()> {
        for at in self.at {
            wait_until("the time is served", || {
                let reply = client::query_from(lab.client(), at)?;
                let is_near = (-ERROR_MAX..ERROR_MAX).contains(&(reply.offset() - ahead));
                Ok(!is_unsynchronised(&reply.header) && is_near)
            })?;
        }
        Ok(())
    }
}

/// The epoch of GPS with status A, as receivers say it before they have the almanac, is not served,
/// and the right date is a moment later; nor is one that is days off from then on, before the
/// operator says so. Each is counted by its reason.
fn an_implausible_date_is_not_served_and_a_correct_one_recovers() -> Result<()> {
    const DAY: i64 = 86_400 * NS_PER_S;
    /// 1980-01-06
    const EPOCH: Span = Span::from_ns(315_964_800 * NS_PER_S);
    let directory = TempDir::new()?;
    let lab = Lab::new(&LabConfig::default())?;
    let ago = EPOCH - Span::from_ns(ClockRealtime.now().as_ns());
    let judged = ServerPair::start(&lab, directory.path(), ago)?;
    judged.reject(&lab, ago, &["before_build", "too_far"])?;
    judged.set_offsets(TRUTH);
    judged.serve(&lab, TRUTH)?;
    // Ahead, since days ago the program may not have been built.
    let days = TRUTH + Span::from_ns(5 * DAY);
    judged.reject(&lab, days, &["apart"])?;
    judged.servers.iter().try_for_each(|server| server.signal("HUP"))?;
    judged.serve(&lab, days)?;
    for server in judged.servers {
        let ended = server.end("TERM")?;
        let message = "and neither is confirmed; if it is right, confirm it with: kill -HUP";
        ensure!(ended.stderr.contains(message), "{}", ended.stderr);
    }
    Ok(())
}

/// A server keeps the time on disk, to the second of its end, also where it may open no files any
/// more; a system clock that is behind it contradicts nobody at the next start.
fn a_saved_time_reveals_a_clock_that_was_set_back() -> Result<()> {
    const DAY: i64 = 86_400 * NS_PER_S;
    let directory = TempDir::new()?;
    let (name, saved) = (directory.path().join("gnss"), directory.path().join("saved-time"));
    let saved_text = saved.display().to_string();
    let days = Span::from_ns(5 * DAY);
    let receiver = SimulatedGnssReceiver::start(&name, TRUTH)?;
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let source = format!("gnss:{}", name.display());
    let arguments = ["--source", &source, "--saved-time", &saved_text, "--sandbox", "required"];
    let start = || Server::start_as(lab.server(), Engine::Socket, &[at], &arguments);
    let server = start()?;
    wait_until("its time is served", || Ok(server.status()?["synchronised"] == true))?;
    server.end("TERM")?;
    let seconds: i64 = fs::read_to_string(&saved)?.trim().parse()?;
    let off = (ClockRealtime.now() + TRUTH).to_timespec().0 - seconds;
    ensure!((-1..=3).contains(&off), "{off} s are missing");
    // As after five days in which the system clock stood still.
    receiver.set_offset(TRUTH + days);
    fs::write(&saved, format!("{}", seconds + days.as_ns() / NS_PER_S - 60))?;
    let server = start()?;
    wait_until("the receiver is believed", || {
        let reply = client::query_from(lab.client(), at)?;
        let off = reply.offset() - TRUTH - days;
        Ok(!is_unsynchronised(&reply.header) && (-ERROR_MAX..ERROR_MAX).contains(&off))
    })?;
    server.end("TERM").map(drop)
}

/// A line that ends is told, and read again when it is there again under its name, which the
/// sandbox lets it.
fn a_line_that_ends_is_reopened() -> Result<()> {
    let directory = TempDir::new()?;
    let name = directory.path().join("gnss");
    let receiver = SimulatedGnssReceiver::start(&name, TRUTH)?;
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let source = format!("gnss:{}", name.display());
    let arguments = ["--source", &source, "--sandbox", "required"];
    let server = Server::start_as(lab.server(), Engine::Socket, &[at], &arguments)?;
    wait_until("its time is served", || Ok(state_of(&server, "gnss")? == "selected"))?;
    is_confined(&server.status()?)?;
    receiver.disconnect();
    wait_until("a line that ended is no source", || {
        Ok(state_of(&server, "gnss")? == "unresponsive")
    })?;
    wait_until("its time is not served", || {
        Ok(is_unsynchronised(&client::query_from(lab.client(), at)?.header))
    })?;
    receiver.reconnect(&name)?;
    wait_until("its time is served again", || Ok(state_of(&server, "gnss")? == "selected"))?;
    let ended = server.end("TERM")?;
    ensure!(ended.stderr.contains("its line was closed"), "{}", ended.stderr);
    Ok(())
}

/// A line that is not there, or none, is named in one line.
fn invalid_lines_are_named() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    for (source, expected) in [
        ("gnss:/dev/there-is-none", "/dev/there-is-none: no such serial line"),
        ("gnss:/dev/null", "/dev/null: not a serial line of this speed"),
        ("gnss:/dev/null,baud=1200", "baud takes one of 4800, 9600"),
    ] {
        let arguments = ["--source", source];
        let Err(error) = Server::start_as(lab.server(), Engine::Socket, &[at], &arguments) else {
            anyhow::bail!("{source} is taken");
        };
        ensure!(error.to_string().contains(expected), "{source}: {error}");
    }
    Ok(())
}

/// gpsd reads the receiver at its line; its reports are one source, and the sentences that it
/// passes on are another.
fn gpsd_passes_the_time_on() -> Result<()> {
    let directory = TempDir::new()?;
    let name = directory.path().join("gnss");
    let _receiver = SimulatedGnssReceiver::start(&name, TRUTH)?;
    let lab = Lab::new(&LabConfig::default())?;
    // Its shared memory is to go with it; it runs in the foreground, without waiting for a client,
    // at the path that the name stands for.
    let mut command = lab.server().command("unshare");
    command.args(["--ipc", "gpsd", "-N", "-n"]).arg(name.canonicalize()?);
    let mut gpsd = RunningProgram::start(&mut command)?;
    let at_gpsd = SocketAddr::from(([127, 0, 0, 1], 2947));
    gpsd.await_ready(TIMEOUT, || {
        lab.server().run(|| TcpStream::connect(at_gpsd)).is_ok_and(|connected| connected.is_ok())
    })?;
    let at = server_address(&lab, false)?;
    for arguments in [["--source", "gpsd"].as_slice(), &["--gnss", "gpsd", "--no-clock-control"]] {
        let server = Server::start_as(lab.server(), Engine::Socket, &[at], arguments)?;
        wait_until("its time is served", || {
            let reply = client::query_from(lab.client(), at)?;
            let off = reply.offset() - TRUTH;
            let is_right = (-ERROR_MAX..ERROR_MAX).contains(&off);
            ensure!(is_unsynchronised(&reply.header) || is_right, "{arguments:?}: {reply:?}");
            Ok(!is_unsynchronised(&reply.header))
        })?;
        server.end("TERM")?;
    }
    Ok(())
}

/// gpsfake plays a log to gpsd, a second of it in about a second; its time is served, as far as it
/// can be known from sentences that come when they come.
fn gpsfake_plays_a_receiver_to_gpsd() -> Result<()> {
    const LINES_A_SECOND: i64 = 2;
    const SECONDS: i64 = 120;
    let directory = TempDir::new()?;
    let log = directory.path().join("log.nmea");
    let start = (ClockRealtime.now() + TRUTH).to_timespec().0;
    let lines = (0..SECONDS).map(|second| time_sentences(start + second, true));
    fs::write(&log, lines.collect::<String>())?;
    let lab = Lab::new(&LabConfig::default())?;
    let mut command = lab.server().command("unshare");
    // In a process namespace of its own, which ends with it: it would leave its gpsd behind.
    command.args(["--ipc", "--pid", "--fork", "--kill-child", "gpsfake", "-1"]);
    command.args(["-P", "2947", "-c"]);
    command.arg(format!("{}", 1.0 / LINES_A_SECOND as f64)).arg(&log);
    // Where it lies in the cache, what it needs lies beside it.
    let peers = in_path("gpsfake").and_then(|path| path.parent()?.parent().map(Path::to_owned));
    let peers = peers.context("gpsfake has no directory")?;
    command.env("PYTHONPATH", peers.join("lib/python3/dist-packages"));
    command.env("LD_LIBRARY_PATH", peers.join("lib/x86_64-linux-gnu"));
    command.env("TMPDIR", directory.path());
    let _gpsfake = RunningProgram::start(&mut command)?;
    let at = server_address(&lab, false)?;
    let server = Server::start_as(lab.server(), Engine::Socket, &[at], &["--source", "gpsd"])?;
    wait_until("its time is served", || {
        let reply = client::query_from(lab.client(), at)?;
        let off = reply.offset() - TRUTH;
        // The player is late by its start, and by a little for each line.
        let is_right = (Span::from_ns(-60 * NS_PER_S)..Span::from_ns(NS_PER_S)).contains(&off);
        ensure!(is_unsynchronised(&reply.header) || is_right, "{reply:?}");
        Ok(!is_unsynchronised(&reply.header))
    })?;
    server.end("TERM").map(drop)
}
