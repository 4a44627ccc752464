//! Three groups of scenarios, each run by a process of its own, one scenario after the other.
//! Scenarios that measure, or load a server, have a group to themselves, since two of them at once
//! would disturb each other's results. Those of the other groups mostly wait, for a peer to answer
//! or a second to pass, and use little of the machine: they run in parallel with the first and wait
//! as long as it takes.
//!
//! Each group's process has a parent of its own ([`crate::supervisor`]): for the first group that
//! is the process that was started, for the others a child of it. So each finds its own leftovers.
//! Leftovers in namespaces and on interfaces are searched for in the group that measures; the
//! others create no named namespace and examine processes alone.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::process::{Child, Command, ExitCode, Stdio};

use anyhow::{Context as _, Result};
use horolog_record::{STORE_NONE, STORE_VARIABLE};
use horolog_sys::namespace::die_with_parent;
use libtest_mimic::{Arguments, Trial};
use tempfile::tempfile;

use crate::retry::Failures;
use crate::{duration_report, supervisor};

/// What stands before the other arguments of the process whose scenarios measure.
pub(crate) const MEASURING: &str = "measuring";
/// And of those whose scenarios wait: for peers of servers and clocks, and for what is run,
/// planned, installed and documented.
pub(crate) const WAITING: [&str; 2] = ["peers", "operation"];
/// And of the parent of one that waits, before the name of that group.
pub(crate) const WAITING_PARENT: &str = "waiting-parent";

/// Whether this is a process whose scenarios wait.
pub(crate) fn is_waiting() -> bool {
    std::env::args().nth(1).is_some_and(|first| WAITING.contains(&&*first))
}

/// The groups.
pub(crate) struct ScenarioGroups {
    pub(crate) measuring: Vec<Trial>,
    /// In the order of [`WAITING`].
    pub(crate) waiting: [Vec<Trial>; WAITING.len()],
}

impl ScenarioGroups {
    /// Runs all, each in a process of its own; or lists what is in them.
    pub(crate) fn run(self, arguments: &[String]) -> ExitCode {
        let parsed = parse(arguments);
        if parsed.list {
            let all = self.measuring.into_iter().chain(self.waiting.into_iter().flatten());
            return libtest_mimic::run(&parsed, all.collect()).exit_code();
        }
        exit_code(run_all(&arguments[1..]))
    }

    /// Runs the scenarios of the group of this name, in this process.
    pub(crate) fn run_one(self, name: &str, arguments: &[String]) -> ExitCode {
        let waiting = WAITING.into_iter().zip(self.waiting);
        let mut all = std::iter::once((MEASURING, self.measuring)).chain(waiting);
        let scenarios = all.find(|(group, _)| *group == name).map(|(_, scenarios)| scenarios);
        let conclusion = libtest_mimic::run(&parse(arguments), scenarios.unwrap_or_default());
        if let Some(report) = duration_report::report() {
            println!("{name}: {report}");
        }
        conclusion.exit_code()
    }
}

/// Runs a group that waits, as its parent; the first of the arguments is its name.
pub(crate) fn run_waiting(arguments: &[String]) -> ExitCode {
    let run = || {
        let (name, arguments) = arguments.split_first().context("no group")?;
        supervisor::become_parent()?;
        let waiting = started(&mut prepared(&[name], arguments)?)?;
        let [status] = supervisor::wait_for(&[waiting])?;
        let held = nothing_is_left_over()?;
        // As the group ended, so that it is known whether some failed or something else went wrong.
        Ok(if held { status.code() } else { None })
    };
    match run() {
        Ok(code) => code.map_or(ExitCode::FAILURE, |code| ExitCode::from(code as u8)),
        Err(error) => exit_code(Err(error)),
    }
}

/// A group that waits, what it writes, and the names of what fails in it.
struct WaitingGroup {
    stdout: File,
    stderr: File,
    failures: Failures,
}

impl WaitingGroup {
    fn start(name: &str, arguments: &[String]) -> Result<(Self, Child)> {
        // Not pipes: whatever the group leaves would hold them open.
        let this = Self { stdout: tempfile()?, stderr: tempfile()?, failures: Failures::new()? };
        let mut command = prepared(&[WAITING_PARENT, name], arguments)?;
        command.stdout(this.stdout.try_clone()?).stderr(this.stderr.try_clone()?);
        let child = started(command.envs([this.failures.variable()]))?;
        Ok((this, child))
    }

    /// Passes on what it wrote.
    fn print_output(self) -> Result<Failures> {
        io::stderr().write_all(&written(self.stderr)?)?;
        io::stdout().write_all(&written(self.stdout)?)?;
        Ok(self.failures)
    }
}

/// Whether all of all groups held, and nothing is left.
fn run_all(arguments: &[String]) -> Result<bool> {
    supervisor::become_parent()?;
    let [(peers, first), (operation, second)] =
        [WaitingGroup::start(WAITING[0], arguments)?, WaitingGroup::start(WAITING[1], arguments)?];
    let failures = Failures::new()?;
    let measuring = started(prepared(&[MEASURING], arguments)?.envs([failures.variable()]))?;
    let [peers_ended, operation_ended, measured] =
        supervisor::wait_for(&[first, second, measuring])?;
    println!("Beside these ran those that wait:");
    let groups = [
        (MEASURING, failures, measured),
        (WAITING[0], peers.print_output()?, peers_ended),
        (WAITING[1], operation.print_output()?, operation_ended),
    ];
    let mut all = true;
    for (name, failures, ended) in groups {
        // Who asks for some by name has few or none beside them.
        all &= match failures.to_retry(ended)? {
            Some(names) if arguments.is_empty() => all_pass_alone(name, &names)?,
            _ => ended.success(),
        };
    }
    Ok(all & nothing_is_left_over()?)
}

/// Whether each of these holds when nothing runs beside it.
fn all_pass_alone(group: &str, names: &[String]) -> Result<bool> {
    println!("Once more, with nothing beside them: {}", names.join(", "));
    let mut all = true;
    for name in names {
        let arguments = ["--exact".to_owned(), name.clone()];
        let child = started(&mut prepared(&[group], &arguments)?)?;
        let [status] = supervisor::wait_for(&[child])?;
        all &= status.success();
    }
    Ok(all)
}

fn nothing_is_left_over() -> Result<bool> {
    let left = supervisor::left_over()?;
    if !left.is_empty() {
        eprintln!("left behind when all scenarios were over: {}", left.join(", "));
    }
    Ok(left.is_empty())
}

fn written(mut file: File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn parse(arguments: &[String]) -> Arguments {
    let mut parsed = Arguments::from_iter(arguments);
    parsed.test_threads = Some(1);
    parsed
}

/// This program with these words before the other arguments, whose output goes where this one's
/// goes.
fn prepared(words: &[&str], arguments: &[String]) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe().context("cannot find this program")?);
    // What tests measure is nobody's result; those of the store name their own.
    command.env(STORE_VARIABLE, STORE_NONE);
    command.args(words).args(arguments).stdin(Stdio::null());
    Ok(command)
}

fn started(command: &mut Command) -> Result<Child> {
    die_with_parent(command).spawn().context("cannot start a group")
}

fn exit_code(outcome: Result<bool>) -> ExitCode {
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("the groups: {error:#}");
            ExitCode::FAILURE
        }
    }
}
