//! `horolog at`: flags to an instant and programs, one run here or handed to the background, and
//! its report.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

mod detach;
mod jobs;
mod moment;

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use horolog_launch::{Instant, Program, Queue, StrikeOptions, Struck, is_taken_over, strike};
use horolog_record::{AtEnd, Finding};
use horolog_report::table;
use horolog_sys::undo::{self, Undo};

use crate::failure::Failure;
use crate::output::{self, Destination};
use crate::values;
use moment::MomentArgs;

/// Run commands at an exact instant, or every period from it on.
///
/// WHEN is written as for at(1): 'now + 2 minutes', 21:00 (tomorrow once it has passed), 9pm, noon,
/// teatime, 'noon tomorrow', '10am monday', 2018/10/22, 'Oct 22 2028'; or as 2028-10-22T21:00:00Z
/// or @1855774800.5. It is local time unless it ends with Z, UTC or TAI. With --every and no WHEN
/// it is the next whole period since 1970. How late the command was started is said at the end, and
/// its exit status is passed on.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct AtArgs {
    #[command(subcommand)]
    command: Option<JobCommand>,
    #[command(flatten)]
    moment: MomentArgs,
    #[command(flatten)]
    series: SeriesArgs,
    #[command(flatten)]
    programs: ProgramArgs,
    /// How long commands keep the real-time priority that they are started with at an instant,
    /// where it is allowed; then they are scheduled as this command is. With 0 they are at once.
    #[arg(long, value_name = "TIME", value_parser = values::duration, default_value = "5ms")]
    head_start: Duration,
    /// Write the result to this file; to standard output with -.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Say nothing of it, but why a command could not be started.
    #[arg(short, long)]
    quiet: bool,
    /// Wait in the background: systemd keeps the job where it runs, and else a process of its own.
    #[arg(long)]
    detach: bool,
    /// Who keeps the job, where that is not to be found out.
    #[arg(long, value_name = "KEEPER", requires = "detach")]
    by: Option<Keeper>,
    /// The file of this job in the queue.
    #[arg(long, hide = true, value_name = "FILE")]
    job: Option<PathBuf>,
}

/// Jobs in the background.
#[derive(Subcommand, Debug)]
enum JobCommand {
    List(jobs::ListArgs),
    Cancel(jobs::CancelArgs),
}

/// Who keeps jobs in the background.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Keeper {
    /// systemd, as a transient timer.
    Systemd,
    /// A process of its own for each, with a file in the queue.
    Process,
}

/// A series of instants.
#[derive(Args, Debug, Clone)]
struct SeriesArgs {
    /// Run the commands again every so often from WHEN on, until Ctrl-C or --count. Instants that
    /// pass while they still run are missed and counted.
    #[arg(long, value_name = "TIME", value_parser = period)]
    every: Option<Duration>,
    /// End after so many instants.
    #[arg(long, value_name = "NUMBER", requires = "every", value_parser = values::count)]
    count: Option<u32>,
}

fn period(text: &str) -> Result<Duration, String> {
    match values::long_duration(text)? {
        short if short < Duration::from_micros(100) => Err("100us at least".into()),
        period => Ok(period),
    }
}

/// What is run.
#[derive(Args, Debug, Clone)]
struct ProgramArgs {
    /// A line for the shell to run; may be given more than once, and each line then waits for the
    /// one before it.
    #[arg(short = 'c', long = "run", value_name = "LINE", conflicts_with = "program")]
    lines: Vec<String>,
    /// Run all lines at once.
    #[arg(long, requires = "lines")]
    together: bool,
    /// The command to run, with its arguments; without any, lateness alone is measured.
    #[arg(last = true, value_name = "COMMAND")]
    program: Vec<OsString>,
}

impl ProgramArgs {
    fn programs(&self) -> Vec<Program> {
        if self.program.is_empty() {
            return self.lines.iter().cloned().map(Program::Line).collect();
        }
        vec![Program::Words(self.program.clone())]
    }
}

pub(crate) fn run(args: &AtArgs) -> Result<(), Failure> {
    match &args.command {
        Some(JobCommand::List(args)) => return jobs::list(args),
        Some(JobCommand::Cancel(args)) => return jobs::cancel(args),
        None => {}
    }
    let first = args.moment.instant(args.series.every)?;
    if args.detach {
        return detach::run(args, first);
    }
    let Some(file) = &args.job else {
        if !args.quiet && (args.series.every.is_none() || moment::is_to_come(first)) {
            output::note(&format!("horolog: waiting until {}", moment::shown(first)));
        }
        return exit(run_here(args, first, Box::new(|_| ()))?);
    };
    let (queue, id) = Queue::of_file(file)
        .ok_or_else(|| Failure::usage(format!("{} is no file of a job", file.display())))?;
    if !is_taken_over(io::stdin().lock()) {
        return Err(Failure::environment("this job was not entered in the queue"));
    }
    let mut mark = queue.mark(id)?;
    let status = Arc::new(OnceLock::new());
    // However it ends, the queue has it.
    let of_job = Arc::clone(&status);
    let finish = move || queue.finish(id, of_job.get().copied());
    let ((), _entry) = Undo::after(|| Ok::<_, Failure>(()), finish)?;
    let ended = run_here(args, first, Box::new(move |is_running| mark.set(is_running)));
    let code = ended.unwrap_or_else(|failure| {
        failure.report();
        failure.status().into()
    });
    // Nobody else sets it.
    let _ = status.set(code);
    exit(code)
}

/// Ends with a status that is a command's own.
fn exit(status: i32) -> Result<(), Failure> {
    if status == 0 { Ok(()) } else { undo::exit(status) }
}

/// Waits and runs in this process, and gives the exit status. `running` hears when commands run and
/// when none does.
fn run_here(args: &AtArgs, first: Instant, running: Box<dyn FnMut(bool)>) -> Result<i32, Failure> {
    let json = args.json.as_deref().map(Destination::open).transpose()?;
    let programs = args.programs.programs();
    let is_stdout = args.json.as_deref().is_some_and(output::is_stdout);
    let to_stderr = is_stdout || !programs.is_empty();
    let options = StrikeOptions {
        first,
        every: args.series.every,
        count: args.series.count.map(u64::from),
        programs,
        together: args.programs.together,
        own_group: args.job.is_some(),
        head_start: args.head_start,
        command: output::command_line(),
    };
    let tell = |refused: &[Finding]| {
        for finding in refused.iter().filter(|_| !args.quiet) {
            output::note(&format!("horolog: {}", finding.message));
        }
    };
    let struck = strike(options, tell, running).map_err(Failure::environment)?;
    let written = json.map_or(Ok(()), |file| file.write(&horolog_report::to_json(&struck.result)));
    if !args.quiet {
        let text = table::at(&struck.result, &output::table_style());
        if to_stderr {
            output::note(&text);
        } else {
            output::line(&text)?;
        }
    }
    written?;
    Ok(status(args, &struck))
}

/// The status of the first command that failed, or of the signal that came.
fn status(args: &AtArgs, struck: &Struck) -> i32 {
    if let Some(reason) = &struck.not_started {
        output::note(&format!("horolog: {reason}; check its name and permissions"));
    }
    // A series without end is ended by a signal, and by nothing else.
    let endless = args.series.every.is_some() && args.series.count.is_none();
    match (struck.failed, struck.signal) {
        (_, Some(came)) if struck.result.end == AtEnd::Interrupted && !endless => {
            128 + came.signal.number()
        }
        (Some(status), _) => status,
        _ => 0,
    }
}
