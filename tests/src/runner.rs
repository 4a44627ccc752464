//! Runs scenarios, queue after queue ([`Queue`]). Each runs isolated ([`crate::isolation`]) and is
//! started by this program, which prints its output if it fails.

use std::env;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{Read as _, Seek as _};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use horolog_sys::namespace::die_with_parent;
use horolog_sys::process::{ProcessHandle, in_new_session};
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use tempfile::tempfile;

use crate::isolation::isolated;
use crate::scenario::{Queue, Scenario, UnmetRequirement, is_root};

/// First argument with which this program runs one scenario, before its name.
pub(crate) const ONE: &str = "one";

/// Longest duration of a scenario; one that still runs is killed and fails.
const DURATION_MAX: Duration = Duration::from_mins(10);
/// Maximum number of scenarios in the report of durations.
const REPORTED_MAX: usize = 12;

/// First argument with which this program runs scenarios in its own session, before the arguments
/// that select them.
pub(crate) const IN_SESSION: &str = "in-session";

/// Runs the scenarios that the arguments select, or lists them: in one session without a terminal.
/// Sessions of their own would get cores by session (sched(7), autogroup), and a pinned thread has
/// been seen to wait 0.2 s for that of another session.
/// Returns true if none failed.
pub(crate) fn run(arguments: &[String]) -> Result<bool> {
    let mut command = Command::new(env::current_exe().context("cannot find this program")?);
    command.arg(IN_SESSION).args(arguments);
    Ok(die_with_parent(in_new_session(&mut command)).status()?.success())
}

/// Runs the scenarios that the arguments, after the name of the program, select, or lists them.
/// Returns true if none failed.
pub(crate) fn run_in_session(arguments: &[String], mut scenarios: Vec<Scenario>) -> bool {
    let mut parsed = Arguments::from_iter(arguments);
    if parsed.list {
        let trials = scenarios.into_iter().map(trial).collect();
        return !libtest_mimic::run(&parsed, trials).has_failed();
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let width_max = parsed.test_threads.unwrap_or(usize::MAX);
    let mut failures = Vec::new();
    let mut has_failed = false;
    for queue in Queue::ALL {
        set_precedence(queue);
        let begun = Instant::now();
        let width = queue.width(cores).min(width_max);
        parsed.test_threads = Some(width);
        let waiting = scenarios.extract_if(.., |scenario| scenario.queue == queue);
        let conclusion = libtest_mimic::run(&parsed, waiting.map(trial).collect());
        has_failed |= conclusion.has_failed();
        let outcomes = take_outcomes();
        if let Some(report) = format_durations(&outcomes) {
            let (name, took) = (queue.name(), begun.elapsed().as_secs_f64());
            println!("{name}, {width} at a time, {took:.0} s: {report}");
        }
        failures.extend(outcomes.into_iter().filter(|outcome| outcome.error.is_some()));
    }
    // Repeated last, where a log that is cut still has them.
    for Outcome { name, error, .. } in failures {
        println!("failed: {name}: {}", error.unwrap_or_default().trim_end());
    }
    !has_failed
}

/// Runs the scenario called `name` in this process.
pub(crate) fn run_one(name: &str, scenarios: Vec<Scenario>) -> Result<()> {
    let scenario = scenarios.into_iter().find(|scenario| scenario.name == name);
    let scenario = scenario.with_context(|| format!("no scenario is called {name}"))?;
    (scenario.run)().map_err(anyhow::Error::msg)
}

fn trial(scenario: Scenario) -> Trial {
    Trial::ignorable_test(scenario.name.clone(), move || {
        match scenario.needs.iter().find_map(|need| need.unmet_requirement()) {
            Some(UnmetRequirement::Machine(reason)) => return Ok(Completion::ignored_with(reason)),
            Some(UnmetRequirement::Peer(what)) => return without_peer(&what),
            None => {}
        }
        let begun = Instant::now();
        let error = run_isolated(&scenario.name).err().map(|error| format!("{error:#}"));
        let (took, name) = (begun.elapsed(), scenario.name);
        let mut outcomes = OUTCOMES.lock().unwrap_or_else(PoisonError::into_inner);
        outcomes.push(Outcome { name, took, error: error.clone() });
        error.map_or(Ok(Completion::Completed), |error| Err(error.into()))
    })
}

/// Runs the scenario called `name` in a process of its own. The error is the output of a scenario
/// that failed.
fn run_isolated(name: &str) -> Result<()> {
    let mut outputs = tempfile()?;
    let runner = env::current_exe().context("cannot find this program")?;
    let mut command = isolated(&runner, &[ONE, name])?;
    // A file instead of a pipe, which a process left behind would hold open.
    command.stdout(outputs.try_clone()?).stderr(outputs.try_clone()?);
    let mut child = command.spawn().context("cannot start the scenario")?;
    let has_ended = ProcessHandle::open(child.id())?.wait(DURATION_MAX)?;
    if !has_ended {
        child.kill()?;
    }
    let status = child.wait()?;
    ensure!(has_ended, "killed after {DURATION_MAX:?}\n{}", read_all(&mut outputs)?);
    ensure!(status.success(), "{}", read_all(&mut outputs)?);
    Ok(())
}

/// Gives the session of this process the weight of any other (sched(7), autogroup), or three times
/// that for a queue that needs the cores when it wants them. More would delay threads of the
/// kernel, which deliver packets at the weight of one session.
fn set_precedence(queue: Queue) {
    let nice = if queue.takes_precedence() { "-5" } else { "0" };
    // Ignored: without privilege, or in a kernel without such groups, scenarios run as they are.
    let _ = fs::write("/proc/self/autogroup", nice);
}

fn read_all(file: &mut File) -> Result<String> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Reports a missing peer: as ignored, but as an error to root, who can install it, and in
/// continuous integration, which has to have it.
fn without_peer(what: &str) -> Result<Completion, Failed> {
    let reason = format!("needs {what}; install it with scripts/setup.sh --peers");
    if is_root() || env::var_os("CI").is_some_and(|ci| ci == "true") {
        return Err(format!("{reason} and run `make scenarios`").into());
    }
    Ok(Completion::ignored_with(reason))
}

/// Outcome of a scenario that ran.
struct Outcome {
    name: String,
    took: Duration,
    /// Output of a scenario that failed.
    error: Option<String>,
}

static OUTCOMES: Mutex<Vec<Outcome>> = Mutex::new(Vec::new());

fn take_outcomes() -> Vec<Outcome> {
    std::mem::take(&mut OUTCOMES.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Returns the slowest scenarios in descending order, with the sum of all durations; `None` if
/// none ran.
fn format_durations(outcomes: &[Outcome]) -> Option<String> {
    if outcomes.is_empty() {
        return None;
    }
    let sum: Duration = outcomes.iter().map(|outcome| outcome.took).sum();
    let mut text = format!("{} scenarios took {:.0} s:", outcomes.len(), sum.as_secs_f64());
    let mut slowest: Vec<_> = outcomes.iter().collect();
    slowest.sort_by_key(|outcome| std::cmp::Reverse(outcome.took));
    for Outcome { name, took, .. } in slowest.into_iter().take(REPORTED_MAX) {
        // Writing to memory does not fail.
        let _ = write!(text, "\n{:6.1} s  {name}", took.as_secs_f64());
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slowest_scenarios_are_first() {
        let outcomes = [(1_500, "b"), (3_000, "a")].map(|(ms, name)| Outcome {
            name: name.to_owned(),
            took: Duration::from_millis(ms),
            error: None,
        });
        let text = "2 scenarios took 4 s:\n   3.0 s  a\n   1.5 s  b";
        assert_eq!(format_durations(&outcomes).as_deref(), Some(text));
        assert_eq!(format_durations(&[]), None);
    }
}
