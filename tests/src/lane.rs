//! Two lanes, each a process whose scenarios run one after the other. Those that measure, or load a
//! server, have a lane of their own, since two of them at once would disturb each other's figures.
//! Those of the other lane wait for most of their time, for a peer to answer or a second to pass,
//! and ask for little of the machine: they run beside the first and wait as long as it takes.
//!
//! Each lane's process has a parent of its own ([`crate::supervisor`]): of the first lane that is
//! the process that was started, of the second one a child of it. So each finds what it has left
//! itself. What a scenario leaves behind in namespaces and on interfaces is looked for in the lane
//! that measures; the one that waits makes no namespace with a name and looks at processes alone.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::process::{Child, Command, ExitCode, Stdio};

use anyhow::{Context as _, Result};
use horolog_record::{STORE_NONE, STORE_VARIABLE};
use horolog_sys::namespace::die_with_parent;
use libtest_mimic::{Arguments, Trial};
use tempfile::tempfile;

use crate::again::Failures;
use crate::{slowest, supervisor};

/// What stands before the other arguments of the processes whose scenarios measure and wait.
pub(crate) const MEASURING: &str = "measuring";
pub(crate) const WAITING: &str = "waiting";
/// And of the parent of the one that waits.
pub(crate) const BESIDE: &str = "beside";

/// Whether this is the process whose scenarios wait.
pub(crate) fn is_waiting() -> bool {
    std::env::args().nth(1).is_some_and(|first| first == WAITING)
}

/// The two lanes.
pub(crate) struct Lanes {
    pub(crate) measuring: Vec<Trial>,
    pub(crate) waiting: Vec<Trial>,
}

impl Lanes {
    /// Runs both, each in a process of its own; or lists what is in both.
    pub(crate) fn run(self, arguments: &[String]) -> ExitCode {
        let parsed = parse(arguments);
        if parsed.list {
            let all = self.measuring.into_iter().chain(self.waiting).collect();
            return libtest_mimic::run(&parsed, all).exit_code();
        }
        exit_code(both(&arguments[1..]))
    }

    /// Runs the scenarios that measure, in this process.
    pub(crate) fn run_measuring(self, arguments: &[String]) -> ExitCode {
        run(arguments, self.measuring)
    }

    /// Runs the scenarios that wait, in this process.
    pub(crate) fn run_waiting(self, arguments: &[String]) -> ExitCode {
        run(arguments, self.waiting)
    }
}

fn run(arguments: &[String], scenarios: Vec<Trial>) -> ExitCode {
    let conclusion = libtest_mimic::run(&parse(arguments), scenarios);
    println!("{}", slowest::told());
    conclusion.exit_code()
}

/// Runs the lane that waits, as its parent.
pub(crate) fn beside(arguments: &[String]) -> ExitCode {
    let run = || {
        supervisor::become_parent()?;
        let waiting = start(WAITING, arguments, Stdio::inherit(), Stdio::inherit())?;
        let [status] = supervisor::wait_for(&[waiting])?;
        Ok(status.success() & nothing_is_left()?)
    };
    exit_code(run())
}

/// Whether all of both lanes held, and nothing is left.
fn both(arguments: &[String]) -> Result<bool> {
    supervisor::become_parent()?;
    // Not pipes: whatever the lane leaves would hold them open.
    let (stdout, stderr) = (tempfile()?, tempfile()?);
    let beside = start(BESIDE, arguments, stdout.try_clone()?.into(), stderr.try_clone()?.into())?;
    let failures = Failures::new()?;
    let measuring =
        started(prepared(MEASURING, arguments)?.envs([failures.variable()]), MEASURING)?;
    let [waited, measured] = supervisor::wait_for(&[beside, measuring])?;
    println!("Beside these ran those that wait:");
    io::stderr().write_all(&written(stderr)?)?;
    io::stdout().write_all(&written(stdout)?)?;
    // Who asks for some by name has few or none beside them.
    let measured = match failures.to_try_again(measured)? {
        Some(names) if arguments.is_empty() => all_hold_alone(&names)?,
        _ => measured.success(),
    };
    Ok(waited.success() & measured & nothing_is_left()?)
}

/// Whether each of these holds when nothing runs beside it.
fn all_hold_alone(names: &[String]) -> Result<bool> {
    println!("Once more, with nothing beside them: {}", names.join(", "));
    let mut all = true;
    for name in names {
        let arguments = ["--exact".to_owned(), name.clone()];
        let child = started(&mut prepared(MEASURING, &arguments)?, MEASURING)?;
        let [status] = supervisor::wait_for(&[child])?;
        all &= status.success();
    }
    Ok(all)
}

fn nothing_is_left() -> Result<bool> {
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

fn start(mode: &str, arguments: &[String], stdout: Stdio, stderr: Stdio) -> Result<Child> {
    started(prepared(mode, arguments)?.stdout(stdout).stderr(stderr), mode)
}

/// This program as a lane of this mode, whose output goes where this one's goes.
fn prepared(mode: &str, arguments: &[String]) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe().context("cannot find this program")?);
    // What tests measure is nobody's result; those of the store name their own.
    command.env(STORE_VARIABLE, STORE_NONE);
    command.arg(mode).args(arguments).stdin(Stdio::null());
    Ok(command)
}

fn started(command: &mut Command, mode: &str) -> Result<Child> {
    let child = die_with_parent(command).spawn();
    child.with_context(|| format!("cannot start the lane '{mode}'"))
}

fn exit_code(outcome: Result<bool>) -> ExitCode {
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("the lanes: {error:#}");
            ExitCode::FAILURE
        }
    }
}
