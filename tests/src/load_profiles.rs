//! Scenarios of load profiles: soaks, profiles and overloads, a server restart in the middle of a
//! run, and an interruption by SIGINT. No limit of a duration fails on a busy machine.

use std::fs;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use horolog_lab::{Lab, LabConfig};
use horolog_record::{FindingCode, LoadResult, LoadTimeSeries, Trial as LoadTrial};

use crate::load_command::{
    StartedProgram, TIMEOUT, check_sums, has_finding, load, only_trial, parse,
    unsent_requests_finding,
};
use crate::process::{Engine, Server, run_to_end, server_address};
use crate::scenario::{Need, Scenario};
use crate::search::{CAPACITY, SelectiveServer};
use crate::usage_error::{USAGE, check_refusal};
use crate::{load_profiles, scenarios};

/// Time between the end of a server and its restart.
const OUTAGE: Duration = Duration::from_millis(500);

pub(crate) fn all() -> Vec<Scenario> {
    const ROOT: &[Need] = &[Need::Root];
    scenarios!(ROOT, load_profiles:
        a_soak_is_counted_in_intervals,
        a_restarted_server_shows_as_an_outage_of_its_length,
        a_server_that_dies_in_a_ramp_is_found,
        an_interrupted_soak_keeps_its_result,
        a_profile_is_followed_phase_by_phase,
        invalid_load_profiles_are_refused,
        an_overload_ends_and_the_server_recovers,
    )
    .into()
}

const ALL_ENGINES: [&str; 3] = ["udp", "packet", "xdp"];

/// Starts a load with an engine, which writes its result to `r.json` in its own directory.
fn start_load(lab: &Lab, at: SocketAddr, engine: &str, more: &[&str]) -> Result<StartedProgram> {
    let target = at.to_string();
    let all = [&[&*target, "--engine", engine, "--json", "r.json"], more].concat();
    StartedProgram::start(&mut load(lab.client(), &all)?)
}

/// Waits for the successful end of a load, and returns its result.
fn end_load(run: &mut StartedProgram) -> Result<LoadResult> {
    let (status, _) = run.end()?;
    ensure!(status.success(), "{status}: {}", run.read("stderr")?);
    parse(run.read("r.json")?.as_bytes())
}

fn series(result: &LoadResult) -> Result<&LoadTimeSeries> {
    result.series.as_ref().context("no series")
}

/// Checks that the intervals of each trial add up to its counts, and leave no gap.
pub(crate) fn check_points(result: &LoadResult) -> Result<()> {
    let points = &series(result)?.points;
    for (index, trial) in result.trials.iter().enumerate() {
        check_sums(trial)?;
        let sum = |count: fn(&horolog_record::LoadSeriesPoint) -> u64| -> u64 {
            points.iter().filter(|point| point.trial == index).map(count).sum()
        };
        let counted = [sum(|p| p.sent), sum(|p| p.received), sum(|p| p.lost), sum(|p| p.late)];
        let LoadTrial { sent, received, lost, late, .. } = *trial;
        ensure!(counted == [sent, received, lost, late], "{counted:?} in intervals, {trial:?}");
    }
    let interval_s = series(result)?.interval_s;
    let even = |(index, point): (usize, &horolog_record::LoadSeriesPoint)| {
        (point.at_s - index as f64 * interval_s).abs() < 1e-6
    };
    ensure!(points.iter().enumerate().all(even), "gap between intervals: {points:?}");
    Ok(())
}

/// Each interval has a table row and a data point, and together they contain every request.
pub(crate) fn a_soak_is_counted_in_intervals() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let _server = Server::start(lab.server(), Engine::Socket, &[at], &[])?;
    for engine in ALL_ENGINES {
        let soak = ["-r", "2k", "--soak", "1s", "--interval", "100ms", "--html", "r.html"];
        let mut run = start_load(&lab, at, engine, &soak)?;
        let result = end_load(&mut run)?;
        check_points(&result)?;
        let points = &series(&result)?.points;
        ensure!(points.len() == 10, "{} intervals", points.len());
        let trial = only_trial(&result)?;
        let was_behind = has_finding(&result, FindingCode::GeneratorBehind);
        ensure!(trial.sent == 2000 || was_behind, "{trial:?}");
        let each = points.iter().all(|point| point.sent.abs_diff(200) <= 1);
        ensure!(each || was_behind, "{points:?}");
        let rows = run.read("stdout")?.lines().filter(|line| line.contains(" s ")).count();
        ensure!(rows >= 10, "{rows} rows");
        ensure!(run.read("r.html")?.contains("plot-loss-over-time"), "no plot");
    }
    Ok(())
}

/// A restart of the server in a soak shows as an outage of its length.
pub(crate) fn a_restarted_server_shows_as_an_outage_of_its_length() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let start = || Server::start(lab.server(), Engine::Socket, &[at], &[]);
    for engine in ALL_ENGINES {
        let server = start()?;
        // More than half a second passes before the first row, which waits for late replies.
        let soak = ["-r", "2k", "--soak", "3s", "--interval", "100ms"];
        let mut run = start_load(&lab, at, engine, &soak)?;
        run.wait_until(|stdout, _| stdout.lines().count() >= 4)?;
        server.end("KILL")?;
        let died = Instant::now();
        thread::sleep(OUTAGE);
        let server = start()?;
        let restarted_after = died.elapsed();
        let result = end_load(&mut run)?;
        drop(server);
        check_points(&result)?;
        ensure!(has_finding(&result, FindingCode::ServerOutage), "{:?}", result.findings);
        let lasted = |outage: &horolog_record::Outage| outage.to_s - outage.from_s;
        let longest = result.outages.iter().max_by(|a, b| lasted(a).total_cmp(&lasted(b)));
        let longest = longest.context("no outage")?;
        // The outage begins and ends a little earlier than the measured time does.
        let (low, high) = (OUTAGE.as_secs_f64() * 0.9, restarted_after.as_secs_f64() + 0.5);
        ensure!((low..=high).contains(&lasted(longest)), "{longest:?} is not {low} to {high} s");
        ensure!(longest.ended, "{longest:?}");
        let inside = |point: &&horolog_record::LoadSeriesPoint| {
            point.at_s > longest.from_s + 0.05 && point.at_s + 0.15 < longest.to_s
        };
        let points = &series(&result)?.points;
        let during_outage: Vec<_> = points.iter().filter(inside).collect();
        ensure!(
            !during_outage.is_empty() && during_outage.iter().all(|one| one.received == 0),
            "{during_outage:?}"
        );
    }
    Ok(())
}

/// The death of the server in a ramp is found, and the result is complete.
pub(crate) fn a_server_that_dies_in_a_ramp_is_found() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    for engine in ALL_ENGINES {
        let server = Server::start(lab.server(), Engine::Socket, &[at], &[])?;
        let ramp = ["-r", "1k-2k", "-x", "2", "-t", "0.8", "--timeout", "200ms"];
        let mut run = start_load(&lab, at, engine, &ramp)?;
        // The first trial has ended, and the second has begun.
        run.wait_until(|stdout, _| stdout.lines().count() >= 3)?;
        thread::sleep(Duration::from_millis(200));
        server.end("KILL")?;
        let result = end_load(&mut run)?;
        ensure!(result.trials.len() == 2 && result.trials[1].received > 0, "{:?}", result.trials);
        let finding =
            result.findings.iter().find(|finding| finding.code == FindingCode::ServerOutage);
        let finding = finding.with_context(|| format!("{engine}: {:?}", result.findings))?;
        ensure!(finding.message.contains("replies did not resume"), "{finding:?}");
        ensure!(result.outages.iter().any(|one| one.trial == 1 && !one.ended), "{result:?}");
    }
    Ok(())
}

/// SIGINT ends a soak early, with the result so far.
pub(crate) fn an_interrupted_soak_keeps_its_result() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let _server = Server::start(lab.server(), Engine::Socket, &[at], &[])?;
    for engine in ALL_ENGINES {
        let soak = ["-r", "1k", "--soak", "10m", "--interval", "100ms", "--timeout", "100ms"];
        let mut run = start_load(&lab, at, engine, &soak)?;
        run.wait_until(|stdout, _| stdout.lines().count() >= 5)?;
        run.signal("INT")?;
        let result = end_load(&mut run)?;
        check_points(&result)?;
        ensure!(has_finding(&result, FindingCode::Interrupted), "{:?}", result.findings);
        ensure!(unsent_requests_finding(&result).is_none(), "{:?}", result.findings);
        ensure!(series(&result)?.points.len() >= 3, "{:?}", result.series);
    }
    Ok(())
}

const PROFILE: &str = "[[phase]]\nname = \"calm\"\nrate = \"1k\"\nduration = \"300ms\"\n\
                       [[phase]]\nname = \"rise\"\nrate = 1000\nto = \"3k\"\nduration = 0.4\n\
                       [[phase]]\nname = \"spike\"\nrate = \"5k\"\nduration = \"100ms\"\n";

/// Each phase is a trial with the name and the rate of the phase.
pub(crate) fn a_profile_is_followed_phase_by_phase() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let _server = Server::start(lab.server(), Engine::Socket, &[at], &[])?;
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("profile.toml");
    fs::write(&file, PROFILE)?;
    let file = file.display().to_string();
    for engine in ["udp", "packet", "xdp"] {
        let mut run = start_load(&lab, at, engine, &["--profile", &file])?;
        let result = end_load(&mut run)?;
        check_points(&result)?;
        let names: Vec<_> = result.trials.iter().filter_map(|one| one.phase.as_deref()).collect();
        ensure!(names == ["calm", "rise", "spike"], "{names:?}");
        let stdout = run.read("stdout")?;
        ensure!(names.iter().all(|name| stdout.contains(name)), "{stdout}");
        let sent: Vec<_> = result.trials.iter().map(|trial| trial.sent).collect();
        let right = sent.iter().zip([300, 800, 500]).all(|(sent, right)| sent.abs_diff(right) <= 2);
        ensure!(right || has_finding(&result, FindingCode::GeneratorBehind), "{sent:?}");
    }
    Ok(())
}

/// Invalid profiles and options are refused in one line, which names the file, the line and the
/// key.
pub(crate) fn invalid_load_profiles_are_refused() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("wrong.toml");
    fs::write(&file, "[[phase]]\nrate = \"1k\"\nduration = \"soon\"\n")?;
    let file = file.display().to_string();
    let cases: [(&[&str], &[&str]); 8] = [
        (&["--profile", &file], &["wrong.toml", "line 3", "'duration'"]),
        (&["--profile", "/nowhere/p.toml"], &["/nowhere/p.toml", "cannot read"]),
        (&["--soak", "1s"], &["--rate"]),
        (&["--soak", "1s", "-r", "1k-2k"], &["one rate", "-r"]),
        (
            &["--soak", "1s", "-r", "1k", "--interval", "300ms"],
            &["300 ms", "multiple of the interval"],
        ),
        (&["--soak", "100h", "-r", "1k"], &["at most"]),
        (&["--overload", "0.5", "-r", "1k"], &["--overload", "from 1"]),
        (&["--interval", "1s"], &["--interval", "--soak"]),
    ];
    for (arguments, named) in cases {
        let arguments = [&["192.0.2.2", "--engine", "udp"], arguments].concat();
        let output = run_to_end(&mut load(lab.client(), &arguments)?, TIMEOUT)?;
        check_refusal(&output, USAGE, named).with_context(|| format!("{arguments:?}"))?;
    }
    Ok(())
}

/// A server of known capacity loses the excess of an overload, and recovers afterwards.
pub(crate) fn an_overload_ends_and_the_server_recovers() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let _server = SelectiveServer::start_limited(&lab, at)?;
    let rate = format!("{CAPACITY}");
    let overload = ["--threads", "1", "-r", &rate, "--overload", "4", "-t", "0.6"];
    for engine in ["udp", "xdp"] {
        let mut run = start_load(&lab, at, engine, &overload)?;
        let result = end_load(&mut run)?;
        check_points(&result)?;
        let names: Vec<_> = result.trials.iter().filter_map(|one| one.phase.as_deref()).collect();
        ensure!(names == ["before", "overload", "after"], "{names:?}");
        let found = result.overload.as_ref().context("no overload")?;
        ensure!((found.base_rate - CAPACITY / 2.0).abs() < 1.0, "{found:?}");
        let lost = result.trials[1].loss_ratio();
        ensure!(lost > 0.3, "{lost} lost at four times the capacity");
        ensure!(found.answered_rate < 2.0 * CAPACITY, "{found:?}");
        // On a busy machine, the server may not recover before the end.
        let is_not_recovered = has_finding(&result, FindingCode::NotRecovered);
        ensure!(found.recovery_ms.is_some() != is_not_recovered, "{found:?} {:?}", result.findings);
        ensure!(run.read("stdout")?.contains("k/s answered; recovered"), "{}", run.read("stdout")?);
    }
    Ok(())
}
