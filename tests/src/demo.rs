//! Scenarios of `horolog demo`: its candidates for root and for an ordinary user, and a killed demo
//! that leaves no process. Performance is for the benchmarks.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use horolog_lab::{Lab, LabConfig};
use horolog_record::{DEMO_SCHEMA, DemoCandidateResult, DemoResult, FindingCode, LoadEngineKind};

use crate::load_command::{StartedProgram, UnprivilegedCopy, check_sums, has_finding, parse};
use crate::process::{binary, run_to_end};

const SECONDS: &str = "0.5";
/// Timeout of a demo, with four searches of half a second per trial.
const TIMEOUT: Duration = Duration::from_mins(2);
/// Timeout of the kernel's removal of processes and BPF programs.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(2);
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Checks the result and the HTML report, for root and other users.
fn check_result(result: &DemoResult, page: &str) -> Result<()> {
    ensure!(result.schema == DEMO_SCHEMA, "{}", result.schema);
    ensure!(page.contains("</html>") && page.contains(DEMO_SCHEMA), "HTML report is incomplete");
    for candidate in &result.candidates {
        ensure!(page.contains(&candidate.label), "HTML report lacks {}", candidate.label);
        let command = candidate.server_command.join(" ");
        ensure!(command.starts_with("horolog serve --local"), "{command}");
        check_load(candidate).with_context(|| candidate.label.clone())?;
    }
    Ok(())
}

fn check_load(candidate: &DemoCandidateResult) -> Result<()> {
    let load = &candidate.load;
    ensure!(load.search.is_some() && !load.trials.is_empty(), "no search");
    ensure!(load.trials.iter().any(|trial| trial.received > 0), "no trial received a reply");
    ensure!(!has_finding(load, FindingCode::InvalidReplies), "{:?}", load.findings);
    load.trials.iter().try_for_each(check_sums)
}

/// Number of candidates that were started with all of these arguments.
fn count(result: &DemoResult, arguments: &[&str]) -> usize {
    let has_all = |candidate: &&DemoCandidateResult| {
        arguments.iter().all(|&argument| candidate.server_command.iter().any(|own| own == argument))
    };
    result.candidates.iter().filter(has_all).count()
}

/// For root, the candidates are sockets with a shared lock, sockets with one thread to one per
/// core, and XDP.
pub(crate) fn root_measures_every_server() -> Result<()> {
    let directory = tempfile::TempDir::new()?;
    let mut command = Command::new(binary()?);
    command.args(["demo", "--time", SECONDS]).current_dir(directory.path());
    let output = run_to_end(&mut command, TIMEOUT)?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{stderr}");
    let read = |name: &str| fs::read_to_string(directory.path().join(name));
    let result: DemoResult = parse(read("result.json")?.as_bytes())?;
    check_result(&result, &read("report.html")?)?;
    ensure!(count(&result, &["shared-lock"]) == 1, "{:?}", result.candidates);
    ensure!(count(&result, &["socket"]) >= 2, "no candidates without locks");
    ensure!(count(&result, &["--engine", "xdp"]) == 1, "no XDP candidate");
    let engines: BTreeSet<_> = result.candidates.iter().map(|one| one.load.engine.name()).collect();
    ensure!(engines.len() == 1, "candidates have different load engines: {engines:?}");
    ensure!(result.findings.is_empty(), "{:?}", result.findings);
    let table = String::from_utf8_lossy(&output.stdout);
    for candidate in &result.candidates {
        ensure!(table.contains(&candidate.label), "{} is not in {table}", candidate.label);
    }
    ensure!(stderr.contains("wrote result.json and report.html"), "{stderr}");
    Ok(())
}

/// For an ordinary user, the candidates are sockets on loopback, and a finding names the omitted
/// ones.
pub(crate) fn an_ordinary_user_measures_socket_engines() -> Result<()> {
    // The loopback interface of a lab host carries no other traffic.
    let lab = Lab::new(&LabConfig::default())?;
    let unprivileged = UnprivilegedCopy::new()?;
    let mut command = unprivileged.command(lab.client().command("setpriv"));
    let output = run_to_end(command.args(["demo", "--time", SECONDS]), TIMEOUT)?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{stderr}");
    let result: DemoResult = parse(&fs::read(unprivileged.path("result.json"))?)?;
    check_result(&result, &fs::read_to_string(unprivileged.path("report.html"))?)?;
    ensure!(count(&result, &["shared-lock"]) == 1, "{:?}", result.candidates);
    ensure!(count(&result, &["--engine", "xdp"]) == 0, "XDP candidate without privilege");
    ensure!(
        result.candidates.iter().all(|one| one.load.engine == LoadEngineKind::Udp),
        "load engine is not udp"
    );
    let is_reported = result.findings.iter().any(|finding| {
        finding.code == FindingCode::EngineFallback
            && ["XDP", "skipped"].iter().all(|word| finding.message.contains(word))
    });
    ensure!(is_reported && stderr.contains("skipped") && stderr.contains("root"), "{stderr}");
    Ok(())
}

/// Returns the child processes of `parent`.
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

/// Returns the network namespace of a process; `None` if it has ended.
fn network_namespace(process: u32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{process}/ns/net")).ok()
}

/// Returns the processes in a network namespace.
fn processes_in_namespace(network: &PathBuf) -> Result<Vec<u32>> {
    let entries = fs::read_dir("/proc").context("cannot list the processes")?;
    let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    Ok(numbers.filter(|&number| network_namespace(number).as_ref() == Some(network)).collect())
}

/// SIGKILL of a demo ends its server, the last process in the lab host; so the kernel removes the
/// namespace and the programs attached to its interfaces.
pub(crate) fn a_killed_demonstration_leaves_nothing() -> Result<()> {
    let mut demo = StartedProgram::start(Command::new(binary()?).args(["demo", "--time", "5"]))?;
    let own = network_namespace(std::process::id()).context("no network")?;
    let started = Instant::now();
    let (server, network) = loop {
        let server = children(demo.child.id())?.into_iter().next();
        // Before the server executes, it is in the demo's own namespace.
        let network = server.and_then(network_namespace).filter(|network| *network != own);
        if let Some(found) = server.zip(network) {
            break found;
        }
        ensure!(demo.child.try_wait()?.is_none(), "demo ended early: {}", demo.read("stderr")?);
        ensure!(started.elapsed() < TIMEOUT, "demo starts no server");
        thread::sleep(POLL_INTERVAL);
    };
    // In the middle of a trial.
    thread::sleep(Duration::from_millis(300));
    demo.child.kill()?;
    demo.child.wait()?;
    let killed = Instant::now();
    while !processes_in_namespace(&network)?.is_empty() {
        ensure!(
            killed.elapsed() < REMOVAL_TIMEOUT,
            "processes are left: {:?}",
            processes_in_namespace(&network)?
        );
        thread::sleep(POLL_INTERVAL);
    }
    ensure!(
        network_namespace(server).is_none_or(|other| other != network),
        "server is still running"
    );
    Ok(())
}
