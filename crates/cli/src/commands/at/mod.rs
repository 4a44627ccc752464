//! `horolog at`: runs programs at an instant or periodically, in this process or as a background
//! job, and reports their start latency.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

mod detach;
mod jobs;
mod when;

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use horolog_launch::{
    JobQueue, ProgramSpec, TimedRunOptions, TimedRunOutcome, TimescaleInstant, await_go_ahead,
    run_timed,
};
use horolog_record::{AtOutcome, Finding};
use horolog_report::RenderableResult;
use horolog_sys::undo::{self, UndoGuard};

use crate::failure::CommandFailure;
use crate::output::{self, ResultDestination};
use crate::values;
use when::StartTimeArgs;

/// Run commands at an exact time, or periodically from then on.
///
/// WHEN is written as for at(1): 'now + 2 minutes', 21:00 (tomorrow once it has passed), 9pm, noon,
/// teatime, 'noon tomorrow', '10am monday', 2028-10-22, 'Oct 22 2028'; or as 2028-10-22T21:00:00Z
/// or as Unix time, @1855861200.5. WHEN is local time unless it ends with Z, UTC, TAI or an offset,
/// or --utc or --tai is given. With --every and without WHEN, the first run is at the next multiple
/// of the period since the Unix epoch. The start latency (actual minus intended start time) of the
/// command is printed at the end. The exit status is that of the first command that failed, 127 for
/// one that does not exist.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct AtArgs {
    #[command(subcommand)]
    command: Option<AtCommand>,
    #[command(flatten)]
    start_time: StartTimeArgs,
    #[command(flatten)]
    recurrence: RecurrenceArgs,
    #[command(flatten)]
    programs: ScheduledProgramArgs,
    /// Time for which commands keep real-time priority. Commands start with it, if permitted, to
    /// start on time, and then return to the scheduling policy of this process. 0: start without
    /// real-time priority.
    #[arg(long, value_name = "TIME", value_parser = values::duration, default_value = "5ms")]
    priority_hold: Duration,
    /// Write the result to FILE as JSON, or to standard output with '-'.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Print nothing but the reason if a command cannot be started.
    #[arg(short, long)]
    quiet: bool,
    /// Wait in the background: as a systemd timer if systemd is running, otherwise as a separate
    /// process.
    #[arg(long)]
    detach: bool,
    /// Backend of --detach that runs the job [default: systemd if it is running, otherwise
    /// process].
    #[arg(long, value_name = "BACKEND", requires = "detach")]
    backend: Option<JobBackend>,
    /// File of this job in the queue.
    #[arg(long, hide = true, value_name = "FILE")]
    job: Option<PathBuf>,
}

/// Jobs in the background.
#[derive(Subcommand, Debug)]
enum AtCommand {
    List(jobs::AtListArgs),
    Cancel(jobs::AtCancelArgs),
}

/// Backend that waits for the start time of a background job and runs it.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum JobBackend {
    /// systemd, as a transient timer.
    Systemd,
    /// A separate process for each job, recorded by a file in $XDG_STATE_HOME/horolog/at, or
    /// ~/.local/state/horolog/at.
    Process,
}

/// A series of instants.
#[derive(Args, Debug, Clone)]
struct RecurrenceArgs {
    /// Run the commands at WHEN and then once each period, until Ctrl-C or --count. Runs that fall
    /// due while the commands still run are skipped and counted as missed.
    #[arg(long, value_name = "TIME", value_parser = parse_period)]
    every: Option<Duration>,
    /// End after this many runs; missed ones do not count.
    #[arg(long, value_name = "NUMBER", requires = "every", value_parser = values::count)]
    count: Option<u32>,
}

fn parse_period(text: &str) -> Result<Duration, String> {
    match values::positive_duration(text)? {
        short if short < Duration::from_micros(100) => Err("at least 100us".into()),
        period => Ok(period),
    }
}

/// Commands to run.
#[derive(Args, Debug, Clone)]
struct ScheduledProgramArgs {
    /// Run this shell line. Repeatable; each line waits for the one before it.
    #[arg(short = 'c', long = "run", value_name = "LINE", conflicts_with = "program")]
    lines: Vec<String>,
    /// Start all lines of --run at the same time, instead of each after the one before it.
    #[arg(long, requires = "lines")]
    parallel: bool,
    /// Command to run, with its arguments; without one, only the start latency is measured.
    #[arg(last = true, value_name = "COMMAND")]
    program: Vec<OsString>,
}

impl ScheduledProgramArgs {
    fn programs(&self) -> Vec<ProgramSpec> {
        if self.program.is_empty() {
            return self.lines.iter().cloned().map(ProgramSpec::ShellLine).collect();
        }
        vec![ProgramSpec::Argv(self.program.clone())]
    }
}

pub(crate) fn run(args: &AtArgs) -> Result<(), CommandFailure> {
    match &args.command {
        Some(AtCommand::List(args)) => return jobs::list(args),
        Some(AtCommand::Cancel(args)) => return jobs::cancel(args),
        None => {}
    }
    let first = args.start_time.instant(args.recurrence.every)?;
    if args.detach {
        return detach::run(args, first);
    }
    let Some(file) = &args.job else {
        if !args.quiet && (args.recurrence.every.is_none() || when::is_future(first)) {
            output::print_note(&format!(
                "horolog: waiting until {}",
                when::format_with_local_time(first)
            ));
        }
        return exit_with_status(run_in_process(args, first, Box::new(|_| ()))?);
    };
    let (queue, id) = JobQueue::of_file(file)
        .ok_or_else(|| CommandFailure::usage(format!("{} is not a job file", file.display())))?;
    if !await_go_ahead(io::stdin().lock()) {
        return Err(CommandFailure::environment("this job is not in the queue"));
    }
    let mut running_lock = queue.open_running_lock(id)?;
    let status = Arc::new(OnceLock::new());
    // An undo action runs on every kind of exit, so that the queue always records the outcome.
    let job_status = Arc::clone(&status);
    let finish = move || queue.finish(id, job_status.get().copied());
    let ((), _entry) = UndoGuard::after_change(|| Ok::<_, CommandFailure>(()), finish)?;
    let ended =
        run_in_process(args, first, Box::new(move |is_running| running_lock.set(is_running)));
    let code = ended.unwrap_or_else(|failure| {
        failure.report();
        failure.status().into()
    });
    // Cannot fail: no other thread sets the status.
    let _ = status.set(code);
    exit_with_status(code)
}

/// Exits with `status`, after changes to the host are undone; returns if it is 0.
fn exit_with_status(status: i32) -> Result<(), CommandFailure> {
    if status == 0 { Ok(()) } else { undo::exit(status) }
}

/// Waits for `first` and runs the commands from this process, and returns the exit status.
/// `running` is called with true when commands start and with false when none runs any more.
fn run_in_process(
    args: &AtArgs,
    first: TimescaleInstant,
    running: Box<dyn FnMut(bool)>,
) -> Result<i32, CommandFailure> {
    let json = args.json.as_deref().map(ResultDestination::open).transpose()?;
    let programs = args.programs.programs();
    let is_stdout = args.json.as_deref().is_some_and(output::is_stdout);
    let to_stderr = is_stdout || !programs.is_empty();
    let options = TimedRunOptions {
        first,
        every: args.recurrence.every,
        count: args.recurrence.count.map(u64::from),
        programs,
        in_parallel: args.programs.parallel,
        own_group: args.job.is_some(),
        head_start: args.priority_hold,
        command: output::command_line(),
    };
    let print_refusals = |refused: &[Finding]| {
        for finding in refused.iter().filter(|_| !args.quiet) {
            output::print_note(&format!("horolog: {}", finding.message));
        }
    };
    let outcome =
        run_timed(options, print_refusals, running).map_err(CommandFailure::environment)?;
    let written = json.map_or(Ok(()), |file| file.write(&horolog_report::to_json(&outcome.result)));
    if !args.quiet {
        let text = outcome.result.text(&output::table_style());
        if to_stderr {
            output::print_note(&text);
        } else {
            output::print_line(&text)?;
        }
    }
    written?;
    Ok(exit_status(args, &outcome))
}

/// Returns the exit status: 128 plus the number of the signal that interrupted the run (for a
/// series without `--count` a signal is the normal end), otherwise the status of the first command
/// that failed, or 0. Prints the reason if a command could not be started.
fn exit_status(args: &AtArgs, outcome: &TimedRunOutcome) -> i32 {
    if let Some(reason) = &outcome.not_started {
        output::print_note(&format!("horolog: {reason}; check its name and permissions"));
    }
    // For a series without --count a signal is the normal end, not an interruption.
    let is_endless = args.recurrence.every.is_some() && args.recurrence.count.is_none();
    match (outcome.failed, outcome.signal) {
        (_, Some(caught)) if outcome.result.end == AtOutcome::Interrupted && !is_endless => {
            128 + caught.signal.number()
        }
        (Some(status), _) => status,
        _ => 0,
    }
}
