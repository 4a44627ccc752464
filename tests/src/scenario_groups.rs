//! Three groups of scenarios. Each group runs in a process of its own, one scenario after the
//! other.
//! Scenarios that measure or load a server form one group, since two of them at once would disturb
//! each other's results. Those of the other groups mostly wait, for a reply of a peer or for time
//! to
//! pass, and use little of the host: they run in parallel with the first group.
//!
//! Each group's process has a parent of its own ([`crate::supervisor`]), which finds the leftovers
//! of this group alone: for the first group the initial process, for the others a child of it. The
//! measuring group checks namespaces and interfaces for leftovers; the others create no named
//! namespace and check only processes.

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

/// First argument of the process that runs the measuring group.
pub(crate) const MEASURING: &str = "measuring";
/// First arguments of the processes that run the waiting groups: peers of servers and clocks;
/// launched programs, campaigns, installation and documentation.
pub(crate) const WAITING: [&str; 2] = ["peers", "operation"];
/// First argument of the parent of a waiting group, before the name of the group.
pub(crate) const WAITING_PARENT: &str = "waiting-parent";

/// Returns true if this process runs a waiting group.
pub(crate) fn is_waiting() -> bool {
    std::env::args().nth(1).is_some_and(|first| WAITING.contains(&&*first))
}

/// Scenarios of each group.
pub(crate) struct ScenarioGroups {
    pub(crate) measuring: Vec<Trial>,
    /// In the order of [`WAITING`].
    pub(crate) waiting: [Vec<Trial>; WAITING.len()],
}

impl ScenarioGroups {
    /// Runs every group in a process of its own, or lists all scenarios.
    pub(crate) fn run(self, arguments: &[String]) -> ExitCode {
        let parsed = parse(arguments);
        if parsed.list {
            let all = self.measuring.into_iter().chain(self.waiting.into_iter().flatten());
            return libtest_mimic::run(&parsed, all.collect()).exit_code();
        }
        exit_code(run_all(&arguments[1..]))
    }

    /// Runs the scenarios of the group called `name` in this process.
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

/// Runs a waiting group as its parent; the first argument is the name of the group.
pub(crate) fn run_waiting(arguments: &[String]) -> ExitCode {
    let run = || {
        let (name, arguments) = arguments.split_first().context("missing name of a group")?;
        supervisor::become_parent()?;
        let waiting = spawn_group(&mut group_command(&[name], arguments)?)?;
        let [status] = supervisor::wait_for(&[waiting])?;
        let is_clean = has_no_leftovers()?;
        // Status of the group: it distinguishes failed scenarios from other failures.
        Ok(if is_clean { status.code() } else { None })
    };
    match run() {
        Ok(code) => code.map_or(ExitCode::FAILURE, |code| ExitCode::from(code as u8)),
        Err(error) => exit_code(Err(error)),
    }
}

/// Waiting group with its output and the names of its failed scenarios.
struct WaitingGroup {
    stdout: File,
    stderr: File,
    failures: Failures,
}

impl WaitingGroup {
    fn start(name: &str, arguments: &[String]) -> Result<(Self, Child)> {
        // Files instead of pipes, which a process left behind by the group would hold open.
        let this = Self { stdout: tempfile()?, stderr: tempfile()?, failures: Failures::new()? };
        let mut command = group_command(&[WAITING_PARENT, name], arguments)?;
        command.stdout(this.stdout.try_clone()?).stderr(this.stderr.try_clone()?);
        let child = spawn_group(command.envs([this.failures.variable()]))?;
        Ok((this, child))
    }

    /// Prints the group's output and returns its failures.
    fn print_output(self) -> Result<Failures> {
        io::stderr().write_all(&read_output(self.stderr)?)?;
        io::stdout().write_all(&read_output(self.stdout)?)?;
        Ok(self.failures)
    }
}

/// Runs all groups. Returns true if all scenarios passed and nothing is left behind.
fn run_all(arguments: &[String]) -> Result<bool> {
    supervisor::become_parent()?;
    let [(peers, first), (operation, second)] =
        [WaitingGroup::start(WAITING[0], arguments)?, WaitingGroup::start(WAITING[1], arguments)?];
    let failures = Failures::new()?;
    let measuring =
        spawn_group(group_command(&[MEASURING], arguments)?.envs([failures.variable()]))?;
    let [peers_ended, operation_ended, measured] =
        supervisor::wait_for(&[first, second, measuring])?;
    println!("Groups that ran in parallel with these:");
    let groups = [
        (MEASURING, failures, measured),
        (WAITING[0], peers.print_output()?, peers_ended),
        (WAITING[1], operation.print_output()?, operation_ended),
    ];
    let mut all_passed = true;
    for (name, failures, ended) in groups {
        // Scenarios selected by name had few or none in parallel.
        all_passed &= match failures.to_retry(ended)? {
            Some(names) if arguments.is_empty() => all_pass_alone(name, &names)?,
            _ => ended.success(),
        };
    }
    Ok(all_passed & has_no_leftovers()?)
}

/// Runs scenarios one by one with nothing in parallel. Returns true if all pass.
fn all_pass_alone(group: &str, names: &[String]) -> Result<bool> {
    println!("Second attempts, with nothing in parallel: {}", names.join(", "));
    let mut all_passed = true;
    for name in names {
        let arguments = ["--exact".to_owned(), name.clone()];
        let child = spawn_group(&mut group_command(&[group], &arguments)?)?;
        let [status] = supervisor::wait_for(&[child])?;
        all_passed &= status.success();
    }
    Ok(all_passed)
}

fn has_no_leftovers() -> Result<bool> {
    let left = supervisor::remaining_processes()?;
    if !left.is_empty() {
        eprintln!("left behind after all scenarios: {}", left.join(", "));
    }
    Ok(left.is_empty())
}

fn read_output(mut file: File) -> io::Result<Vec<u8>> {
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

/// Returns a command that runs this program with `words` before `arguments` and inherits its
/// output.
fn group_command(words: &[&str], arguments: &[String]) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe().context("cannot find this program")?);
    // Results of scenarios are not stored; scenarios of the store set a store of their own.
    command.env(STORE_VARIABLE, STORE_NONE);
    command.args(words).args(arguments).stdin(Stdio::null());
    Ok(command)
}

fn spawn_group(command: &mut Command) -> Result<Child> {
    die_with_parent(command).spawn().context("cannot start a group")
}

fn exit_code(outcome: Result<bool>) -> ExitCode {
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("cannot run the groups: {error:#}");
            ExitCode::FAILURE
        }
    }
}
