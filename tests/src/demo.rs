//! Scenarios of `horolog demo`: what it shows to root and to an ordinary user, and that nothing is
//! left of it when it is killed. Its figures are for the benchmarks.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use horolog_lab::{Lab, LabConfig};
use horolog_record::{DEMO_SCHEMA, DemoCandidateResult, DemoResult, FindingCode, LoadEngineKind};

use crate::load_command::{Started, UnprivilegedCopy, check_sums, has, parse};
use crate::process::{binary, run_to_end};

const SECONDS: &str = "1";
/// Much longer than four searches take that send for about a second each.
const TIMEOUT: Duration = Duration::from_mins(2);
/// The kernel takes programs and processes away a moment after they are let go.
const MOMENT: Duration = Duration::from_secs(2);
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Checks what both kinds of user get, and returns the candidates.
fn check(result: &DemoResult, page: &str) -> Result<()> {
    ensure!(result.schema == DEMO_SCHEMA, "{}", result.schema);
    ensure!(page.contains("</html>") && page.contains(DEMO_SCHEMA), "the page is not whole");
    for candidate in &result.candidates {
        ensure!(page.contains(&candidate.label), "{} is not on the page", candidate.label);
        let command = candidate.server_command.join(" ");
        ensure!(command.starts_with("horolog serve --local"), "{command}");
        check_load(candidate).with_context(|| candidate.label.clone())?;
    }
    Ok(())
}

fn check_load(candidate: &DemoCandidateResult) -> Result<()> {
    let load = &candidate.load;
    ensure!(load.search.is_some() && !load.trials.is_empty(), "no search");
    ensure!(load.trials.iter().any(|trial| trial.received > 0), "no reply at all");
    ensure!(!has(load, FindingCode::InvalidReplies), "{:?}", load.findings);
    load.trials.iter().try_for_each(check_sums)
}

/// How many candidates were started with all of these arguments.
fn count(result: &DemoResult, arguments: &[&str]) -> usize {
    let has_all = |candidate: &&DemoCandidateResult| {
        arguments.iter().all(|&argument| candidate.server_command.iter().any(|own| own == argument))
    };
    result.candidates.iter().filter(has_all).count()
}

/// Root sees sockets behind locks, sockets from one thread to one for each core, and XDP.
pub(crate) fn root_measures_every_server() -> Result<()> {
    let directory = tempfile::TempDir::new()?;
    let mut command = Command::new(binary()?);
    command.args(["demo", "--time", SECONDS]).current_dir(directory.path());
    let output = run_to_end(&mut command, TIMEOUT)?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{stderr}");
    let read = |name: &str| fs::read_to_string(directory.path().join(name));
    let result: DemoResult = parse(read("result.json")?.as_bytes())?;
    check(&result, &read("report.html")?)?;
    ensure!(count(&result, &["shared-lock"]) == 1, "{:?}", result.candidates);
    ensure!(count(&result, &["socket"]) >= 2, "sockets without locks are not there");
    ensure!(count(&result, &["--engine", "xdp"]) == 1, "XDP is not there");
    let engines: BTreeSet<_> = result.candidates.iter().map(|one| one.load.engine.name()).collect();
    ensure!(engines.len() == 1, "they were not loaded alike: {engines:?}");
    ensure!(result.findings.is_empty(), "{:?}", result.findings);
    let table = String::from_utf8_lossy(&output.stdout);
    for candidate in &result.candidates {
        ensure!(table.contains(&candidate.label), "{} is not in {table}", candidate.label);
    }
    ensure!(stderr.contains("wrote result.json and report.html"), "{stderr}");
    Ok(())
}

/// An ordinary user sees sockets on loopback, and is told what was left out.
pub(crate) fn an_ordinary_user_measures_socket_engines() -> Result<()> {
    // For a loopback interface of its own, where nobody else is.
    let lab = Lab::new(&LabConfig::default())?;
    let unprivileged = UnprivilegedCopy::new()?;
    let mut command = unprivileged.command(lab.client().command("setpriv"));
    let output = run_to_end(command.args(["demo", "--time", SECONDS]), TIMEOUT)?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{stderr}");
    let result: DemoResult = parse(&fs::read(unprivileged.path("result.json"))?)?;
    check(&result, &fs::read_to_string(unprivileged.path("report.html"))?)?;
    ensure!(count(&result, &["shared-lock"]) == 1, "{:?}", result.candidates);
    ensure!(count(&result, &["--engine", "xdp"]) == 0, "XDP without privilege");
    ensure!(
        result.candidates.iter().all(|one| one.load.engine == LoadEngineKind::Udp),
        "another engine"
    );
    let is_reported = result.findings.iter().any(|finding| {
        finding.code == FindingCode::EngineFallback
            && ["XDP", "skipped"].iter().all(|word| finding.message.contains(word))
    });
    ensure!(is_reported && stderr.contains("skipped") && stderr.contains("root"), "{stderr}");
    Ok(())
}

/// The processes that this one started.
fn children(parent: u32) -> Result<Vec<u32>> {
    let entries = fs::read_dir("/proc").context("cannot list the processes")?;
    let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let parent = parent.to_string();
    Ok(numbers
        .filter(|number: &u32| {
            // "PID (NAME) STATE PARENT ...", where the name may hold anything (proc_pid_stat(5)).
            let stat = fs::read_to_string(format!("/proc/{number}/stat")).unwrap_or_default();
            stat.rsplit_once(") ").is_some_and(|(_, tail)| tail.split(' ').nth(1) == Some(&*parent))
        })
        .collect())
}

/// The network that a process is in, if it is still there.
fn network_of(process: u32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{process}/ns/net")).ok()
}

/// Processes of this machine that are in a network.
fn processes_in(network: &PathBuf) -> Result<Vec<u32>> {
    let entries = fs::read_dir("/proc").context("cannot list the processes")?;
    let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    Ok(numbers.filter(|&number| network_of(number).as_ref() == Some(network)).collect())
}

/// After kill -9 of a demonstration, its server is gone, and with it the last process in its
/// private host; so the host is gone too, and whatever was attached to its interfaces.
pub(crate) fn a_killed_demonstration_leaves_nothing() -> Result<()> {
    let mut demo = Started::start(Command::new(binary()?).args(["demo", "--time", "5"]))?;
    let own = network_of(std::process::id()).context("no network")?;
    let started = Instant::now();
    let (server, network) = loop {
        let server = children(demo.child.id())?.into_iter().next();
        // Until it has started, it is where the demonstration is.
        let network = server.and_then(network_of).filter(|network| *network != own);
        if let Some(found) = server.zip(network) {
            break found;
        }
        ensure!(demo.child.try_wait()?.is_none(), "it ended: {}", demo.read("stderr")?);
        ensure!(started.elapsed() < TIMEOUT, "it starts no server");
        thread::sleep(POLL_INTERVAL);
    };
    // Into the middle of a trial.
    thread::sleep(Duration::from_millis(300));
    demo.child.kill()?;
    demo.child.wait()?;
    let killed = Instant::now();
    while !processes_in(&network)?.is_empty() {
        ensure!(killed.elapsed() < MOMENT, "still there: {:?}", processes_in(&network)?);
        thread::sleep(POLL_INTERVAL);
    }
    ensure!(network_of(server).is_none_or(|other| other != network), "the server is still there");
    Ok(())
}
