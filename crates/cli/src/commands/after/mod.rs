//! `horolog after`: waits until conditions hold, reports the outcome, and then replaces this
//! process by the given command (execve(2)).

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process;
use std::time::Duration;

use clap::Args;
use horolog_launch::{
    Backoff, Condition, ConditionChange, ConditionWaitOptions, ConditionWaitOutcome, Endpoint,
    UdpEndpoint, status_of_error, wait,
};
use horolog_record::{AfterDependencyResult, AfterOutcome, AfterResult};
use horolog_report::{RenderableResult, after_line, dependency_name};
use horolog_sys::{spawn, undo};
use horolog_time::Span;

use crate::failure::CommandFailure;
use crate::output::{self, ResultDestination};
use crate::values;

/// Run a command once all given conditions hold.
///
/// Each condition is checked repeatedly, with growing pauses, until it holds; when the last one
/// holds, those last checked more than a second ago are checked once more, and if one fails the
/// wait continues. The command then replaces this process (exec): signals reach it directly, and
/// its exit status is that of 'after'. Without a command the outcome is printed. If no command is
/// started, the exit status is 0 if none was given and the conditions hold, 1 if the deadline
/// passed, 127 if the command does not exist, 126 if it cannot be run, and 128 plus the signal
/// number if a signal ended the wait.
#[derive(Args, Debug)]
pub(crate) struct AfterArgs {
    /// Wait until this time has passed since the start of this command, such as 180s.
    #[arg(long, value_name = "TIME", value_parser = values::positive_duration)]
    delay: Option<Duration>,
    /// Wait until a TCP port accepts connections. Repeatable.
    #[arg(long, value_name = "HOST:PORT")]
    tcp: Vec<Endpoint>,
    /// Wait until a UDP port replies: to an NTP request at port 123, a DNS query at port 53,
    /// otherwise to one byte, or to the bytes of send=HEX. With no-reply=ok it is enough that the
    /// port does not refuse (no ICMP port unreachable). Repeatable.
    #[arg(long, value_name = "HOST:PORT[,send=HEX][,no-reply=ok]")]
    udp: Vec<UdpEndpoint>,
    /// Wait until a file, directory or device exists. Repeatable.
    #[arg(long, value_name = "PATH")]
    file: Vec<PathBuf>,
    /// Wait until a file system is mounted at PATH. Repeatable.
    #[arg(long, value_name = "PATH")]
    mount: Vec<PathBuf>,
    /// Wait until a name resolves to an address. Repeatable.
    #[arg(long, value_name = "NAME")]
    dns: Vec<String>,
    /// Wait until the system clock is synchronised with an error bound of at most TIME, as reported
    /// by chronyd, ntpd or the kernel.
    #[arg(long, value_name = "TIME", value_parser = values::positive_span)]
    clock: Option<Span>,
    /// Wait until a shell command exits with status 0. It has no input, and its output is
    /// discarded. Repeatable.
    #[arg(long, value_name = "COMMAND")]
    succeeds: Vec<String>,
    /// Give up after this time, with status 1 [default: never].
    #[arg(short, long, value_name = "TIME", value_parser = values::positive_duration)]
    deadline: Option<Duration>,
    #[command(flatten)]
    checks: ConditionCheckArgs,
    /// Write the result of the wait to FILE as JSON, or to standard output with '-'.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Print only the reason for a failure.
    #[arg(short, long)]
    quiet: bool,
    /// Command to run, with its arguments.
    #[arg(last = true, value_name = "COMMAND")]
    program: Vec<OsString>,
}

/// Schedule of the checks of a condition.
#[derive(Args, Debug)]
struct ConditionCheckArgs {
    /// Pause between the first and the second check of a condition.
    #[arg(long, value_name = "TIME", value_parser = values::positive_duration,
          default_value = "100ms")]
    retry_interval: Duration,
    /// Longest pause between two checks.
    #[arg(long, value_name = "TIME", value_parser = values::positive_duration, default_value = "5s")]
    retry_interval_max: Duration,
    /// Ratio of each pause to the one before it.
    #[arg(long, value_name = "FACTOR", value_parser = parse_backoff_factor, default_value = "2")]
    backoff: f64,
    /// Timeout of one check.
    #[arg(long, value_name = "TIME", value_parser = values::positive_duration,
          default_value = "5s")]
    try_timeout: Duration,
}

fn parse_backoff_factor(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(factor) if (1.0..=100.0).contains(&factor) => Ok(factor),
        _ => Err("write a factor from 1 to 100".into()),
    }
}

impl AfterArgs {
    fn conditions(&self) -> Result<Vec<Condition>, CommandFailure> {
        let empty = |what: &str| CommandFailure::usage(format!("--{what} needs a non-empty name"));
        if self.dns.iter().any(String::is_empty) {
            return Err(empty("dns"));
        }
        if self.succeeds.iter().any(String::is_empty) {
            return Err(empty("succeeds"));
        }
        let mut all: Vec<_> = self.delay.into_iter().map(Condition::Delay).collect();
        all.extend(self.tcp.iter().cloned().map(Condition::Tcp));
        all.extend(self.udp.iter().cloned().map(Condition::Udp));
        all.extend(self.dns.iter().cloned().map(Condition::Dns));
        all.extend(self.file.iter().cloned().map(Condition::File));
        all.extend(self.mount.iter().cloned().map(Condition::Mount));
        all.extend(self.clock.map(Condition::Clock));
        all.extend(self.succeeds.iter().cloned().map(Condition::Command));
        if all.is_empty() {
            return Err(CommandFailure::usage(
                "no condition to wait for; give --delay, --tcp, --udp, --dns, --file, --mount, \
                 --clock or --succeeds",
            ));
        }
        Ok(all)
    }
}

pub(crate) fn run(args: &AfterArgs) -> Result<(), CommandFailure> {
    let conditions = args.conditions()?;
    // A result file that cannot be opened is reported and does not keep the program from running.
    let json = match (args.json.as_deref().map(ResultDestination::open).transpose(), &*args.program)
    {
        (Err(failure), [_, ..]) => {
            failure.report();
            None
        }
        (json, _) => json?,
    };
    let is_stdout = args.json.as_deref().is_some_and(output::is_stdout);
    let program_words =
        args.program.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let checks = &args.checks;
    let options = ConditionWaitOptions {
        conditions,
        deadline: args.deadline,
        backoff: Backoff {
            first: checks.retry_interval,
            factor: checks.backoff,
            longest: checks.retry_interval_max.max(checks.retry_interval),
        },
        check_timeout: checks.try_timeout,
        command: output::command_line(),
        program: program_words,
    };
    let print_change = |dependency: &AfterDependencyResult, _: ConditionChange| {
        if !args.quiet {
            output::print_note(&format!("horolog: {}", after_line(dependency)));
        }
    };
    let ConditionWaitOutcome { result, signal } =
        wait(options, print_change).map_err(CommandFailure::environment)?;
    // Checks that hang are not joined: every path below ends or replaces this process.
    let written = json.map_or(Ok(()), |file| file.write(&horolog_report::to_json(&result)));
    if let Some(caught) = signal {
        print_outcome(args, &result, is_stdout);
        undo::exit(128 + caught.signal.number());
    }
    if result.end == AfterOutcome::Deadline {
        print_outcome(args, &result, is_stdout);
        exit_with_failure(&deadline_failure(&result));
    }
    let Some((name, arguments)) = args.program.split_first() else {
        written?;
        print_outcome(args, &result, is_stdout);
        return Ok(());
    };
    if let Err(failure) = written {
        failure.report();
    }
    exec_program(name, arguments)
}

/// Prints the outcome of the wait: on standard output, or on standard error if the JSON result or a
/// command uses standard output. Prints nothing with `--quiet`.
fn print_outcome(args: &AfterArgs, result: &AfterResult, is_stdout: bool) {
    if args.quiet {
        return;
    }
    let text = result.text(&output::table_style());
    if is_stdout || !args.program.is_empty() {
        output::print_note(&text);
    } else if let Err(failure) = output::print_line(&text) {
        exit_with_failure(&failure);
    }
}

/// Returns the failure of a wait whose deadline passed, with the conditions that did not hold and
/// the outcome of the last check of each.
fn deadline_failure(result: &AfterResult) -> CommandFailure {
    let missing = result.dependencies.iter().filter(|dependency| !dependency.held);
    let missing: Vec<_> = missing
        .map(|dependency| {
            let outcome = dependency.last_check.as_deref().unwrap_or("first try not finished");
            format!("{} ({outcome})", dependency_name(dependency))
        })
        .collect();
    CommandFailure::Measurement(format!("deadline passed: not met: {}", missing.join(", ")))
}

/// Reports the failure and exits with its status, without waiting for checks in progress.
fn exit_with_failure(failure: &CommandFailure) -> ! {
    failure.report();
    undo::exit(failure.status().into())
}

/// Replaces this process by the program. If that fails, reports the error and exits with the status
/// of shells for it (126 or 127).
fn exec_program(name: &OsStr, arguments: &[OsString]) -> Result<(), CommandFailure> {
    // The program would inherit the signal mask of the wait, and never receive Ctrl-C or SIGTERM.
    spawn::unblock_all_signals().map_err(CommandFailure::environment)?;
    let error = process::Command::new(name).args(arguments).exec();
    output::print_note(&format!(
        "horolog: cannot run '{}': {error}; check its name and permissions",
        name.display()
    ));
    undo::exit(status_of_error(&error))
}
