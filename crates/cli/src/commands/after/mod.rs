//! `horolog after`: flags to conditions, one wait, its report, and then the program in this one's
//! place.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process;
use std::time::Duration;

use clap::Args;
use horolog_launch::{
    Backoff, Change, Condition, Endpoint, UdpEndpoint, WaitOptions, Waited, status_of_error, wait,
};
use horolog_record::{AfterEnd, AfterResult, Dependency};
use horolog_report::table;
use horolog_sys::{start, undo};
use horolog_time::Span;

use crate::failure::Failure;
use crate::output::{self, Destination};
use crate::values;

/// Run a command once what it depends on is there.
///
/// All conditions must hold. Each is tried again and again, with pauses that grow, until it does;
/// what has held for longer than a second when the last one holds is tried once more. Then the
/// command takes the place of this one: its exit status and its signals are its own. Without a
/// command the outcome is printed. Exit status: 1 if the deadline passed, 128 and its number if a
/// signal ended the wait.
#[derive(Args, Debug)]
pub(crate) struct AfterArgs {
    /// So much time has passed, such as 180s.
    #[arg(long, value_name = "TIME", value_parser = values::long_duration)]
    delay: Option<Duration>,
    /// A TCP port takes connections.
    #[arg(long, value_name = "HOST:PORT")]
    tcp: Vec<Endpoint>,
    /// A UDP port answers: to a request of its protocol at ports 123 and 53, to a byte or to
    /// ',send=HEX' at others. With ',silence=ok' it is enough that it does not refuse.
    #[arg(long, value_name = "HOST:PORT[,send=HEX][,silence=ok]")]
    udp: Vec<UdpEndpoint>,
    /// A file, directory or device is there.
    #[arg(long, value_name = "PATH")]
    file: Vec<PathBuf>,
    /// A file system is mounted there.
    #[arg(long, value_name = "PATH")]
    mount: Vec<PathBuf>,
    /// A name has an address.
    #[arg(long, value_name = "NAME")]
    dns: Vec<String>,
    /// The system clock is synchronised and off by no more than this, as chronyd, ntpd or the
    /// kernel says.
    #[arg(long, value_name = "TIME", value_parser = values::positive_span)]
    clock: Option<Span>,
    /// A command of the shell ends with status 0; it has nothing to read and is not shown.
    #[arg(long, value_name = "COMMAND")]
    succeeds: Vec<String>,
    /// Give up after this time, with status 1 [default: never].
    #[arg(short, long, value_name = "TIME", value_parser = values::long_duration)]
    deadline: Option<Duration>,
    #[command(flatten)]
    looks: LooksArgs,
    /// Write the result of the wait to this file; to standard output with -.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Say nothing of the wait, but why it failed.
    #[arg(short, long)]
    quiet: bool,
    /// The command to run then, with its arguments.
    #[arg(last = true, value_name = "COMMAND")]
    program: Vec<OsString>,
}

/// How a condition is tried.
#[derive(Args, Debug)]
struct LooksArgs {
    /// Time from the first try of a condition to the second.
    #[arg(long, value_name = "TIME", value_parser = values::positive_duration,
          default_value = "100ms")]
    interval: Duration,
    /// The longest time from one try to the next.
    #[arg(long, value_name = "TIME", value_parser = values::long_duration, default_value = "5s")]
    interval_max: Duration,
    /// How much longer each pause between tries is than the one before it.
    #[arg(long, value_name = "FACTOR", value_parser = factor, default_value = "2")]
    backoff: f64,
    /// How long one try may take.
    #[arg(long, value_name = "TIME", value_parser = values::positive_duration,
          default_value = "5s")]
    patience: Duration,
}

fn factor(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(factor) if (1.0..=100.0).contains(&factor) => Ok(factor),
        _ => Err("write a factor from 1 to 100".into()),
    }
}

impl AfterArgs {
    fn conditions(&self) -> Result<Vec<Condition>, Failure> {
        let empty = |what: &str| Failure::usage(format!("--{what} needs a name that is not empty"));
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
            return Err(Failure::usage(
                "nothing is given to wait for; give --delay, --tcp, --udp, --dns, --file, --mount, \
                 --clock or --succeeds",
            ));
        }
        Ok(all)
    }
}

pub(crate) fn run(args: &AfterArgs) -> Result<(), Failure> {
    let conditions = args.conditions()?;
    // A result that cannot be kept is complained of, and nothing is kept from running by that.
    let json = match (args.json.as_deref().map(Destination::open).transpose(), &*args.program) {
        (Err(failure), [_, ..]) => {
            failure.report();
            None
        }
        (json, _) => json?,
    };
    let is_stdout = args.json.as_deref().is_some_and(output::is_stdout);
    let shown = args.program.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let looks = &args.looks;
    let options = WaitOptions {
        conditions,
        deadline: args.deadline,
        backoff: Backoff {
            first: looks.interval,
            factor: looks.backoff,
            longest: looks.interval_max.max(looks.interval),
        },
        patience: looks.patience,
        command: output::command_line(),
        program: shown,
    };
    let tell = |dependency: &Dependency, _: Change| {
        if !args.quiet {
            output::note(&format!("horolog: {}", table::after_line(dependency)));
        }
    };
    let Waited { result, signal } = wait(options, tell).map_err(Failure::environment)?;
    // Tries that hang are left behind: from here on the process ends by itself.
    let written = json.map_or(Ok(()), |file| file.write(&horolog_report::to_json(&result)));
    if let Some(came) = signal {
        show(args, &result, is_stdout);
        undo::exit(128 + came.signal.number());
    }
    if result.end == AfterEnd::Deadline {
        show(args, &result, is_stdout);
        give_up(&missing(&result));
    }
    let Some((name, arguments)) = args.program.split_first() else {
        written?;
        show(args, &result, is_stdout);
        return Ok(());
    };
    if let Err(failure) = written {
        failure.report();
    }
    become_program(name, arguments)
}

/// The outcome as text: on standard output, where nothing else goes there.
fn show(args: &AfterArgs, result: &AfterResult, is_stdout: bool) {
    if args.quiet {
        return;
    }
    let text = table::after(result, &output::table_style());
    if is_stdout || !args.program.is_empty() {
        output::note(&text);
    } else if let Err(failure) = output::line(&text) {
        give_up(&failure);
    }
}

/// Why it failed, in a line.
fn missing(result: &AfterResult) -> Failure {
    let missing = result.dependencies.iter().filter(|dependency| !dependency.held);
    let missing: Vec<_> = missing
        .map(|dependency| {
            let seen = dependency.seen.as_deref().unwrap_or("the first try has not ended");
            format!("{} ({seen})", table::dependency_name(dependency))
        })
        .collect();
    Failure::Limit(format!("the deadline passed; did not hold: {}", missing.join(", ")))
}

/// Ends the process, and with it the tries that are under way.
fn give_up(failure: &Failure) -> ! {
    failure.report();
    undo::exit(failure.status().into())
}

/// Runs the program in this one's place, or says why it cannot and ends with the status that shells
/// have for that.
fn become_program(name: &OsStr, arguments: &[OsString]) -> Result<(), Failure> {
    // What was kept back for the wait ends the program, not this.
    start::let_signals_through().map_err(Failure::environment)?;
    let error = process::Command::new(name).args(arguments).exec();
    output::note(&format!(
        "horolog: cannot run '{}': {error}; check its name and permissions",
        name.display()
    ));
    undo::exit(status_of_error(&error))
}
