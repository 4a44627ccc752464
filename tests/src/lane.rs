//! Two lanes, each a process whose scenarios run one after the other. Those that measure, or load a
//! server, have a lane of their own, since two of them at once would disturb each other's figures.
//! Those of the other lane wait for most of their time, for a peer to answer or a second to pass,
//! and ask for little of the machine: they run beside the first and wait as long as it takes.
//!
//! What a scenario leaves behind in namespaces and on interfaces is looked for in the lane that
//! measures; the one that waits makes no namespace with a name and looks at its processes alone.

use std::io::{self, Write as _};
use std::process::{Child, Command, ExitCode, Output, Stdio};
use std::thread;

use anyhow::{Context as _, Result, anyhow};
use horolog_sys::namespace::die_with_parent;
use libtest_mimic::{Arguments, Trial};

/// What stands before the other arguments of the process whose scenarios wait.
pub(crate) const WAITING: &str = "waiting";

/// Whether this is that process.
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
        let waiting = match start(&arguments[1..]) {
            Ok(waiting) => waiting,
            Err(error) => return told(&error),
        };
        let collector = thread::spawn(move || waiting.wait_with_output());
        let measured = libtest_mimic::run(&parsed, self.measuring);
        let waited = collector.join().map_err(|_| anyhow!("the thread that reads it panicked"));
        match waited.and_then(|output| passed_on(&output?)) {
            Ok(true) => measured.exit_code(),
            Ok(false) => ExitCode::FAILURE,
            Err(error) => told(&error),
        }
    }

    /// Runs the scenarios that wait, in this process.
    pub(crate) fn run_waiting(self, arguments: &[String]) -> ExitCode {
        libtest_mimic::run(&parse(arguments), self.waiting).exit_code()
    }
}

/// What `arguments`, of which the first is the program's name, ask for.
fn parse(arguments: &[String]) -> Arguments {
    let mut parsed = Arguments::from_iter(arguments);
    parsed.test_threads = Some(1);
    parsed
}

fn start(arguments: &[String]) -> Result<Child> {
    let mut command = Command::new(std::env::current_exe().context("cannot find this program")?);
    command.arg(WAITING).args(arguments).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    die_with_parent(&mut command).spawn().context("cannot start the lane that waits")
}

/// Prints what the other lane printed, and says whether all of it held.
fn passed_on(output: &Output) -> Result<bool> {
    println!("Beside these ran those that wait:");
    io::stderr().write_all(&output.stderr)?;
    io::stdout().write_all(&output.stdout)?;
    Ok(output.status.success())
}

fn told(error: &anyhow::Error) -> ExitCode {
    eprintln!("the lane that waits: {error:#}");
    ExitCode::FAILURE
}
