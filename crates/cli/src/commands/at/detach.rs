//! `horolog at --detach`: starts a background job, as a transient systemd timer or as a waiting
//! process with an entry in the queue. Either executes `horolog at` again with the same options.

use std::env;
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use horolog_launch::{
    BackgroundError, BackgroundJobSpec, ClaimedJobNumber, InstantTimescale, JobQueue,
    JobQueueError, Systemd, SystemdError, TimescaleInstant, TransientTimer, start_background,
};

use super::{AtArgs, JobBackend, when};
use crate::failure::CommandFailure;
use crate::output;

/// Environment variables passed to a systemd job. The others are left out, because every user can
/// read the environment of a unit.
const PASSED_VARIABLES: [&str; 5] = ["PATH", "HOME", "LANG", "LC_ALL", "TZ"];

impl From<SystemdError> for CommandFailure {
    fn from(error: SystemdError) -> Self {
        match error {
            SystemdError::NoJob(_) => Self::usage(error),
            error => Self::environment(error),
        }
    }
}

impl From<JobQueueError> for CommandFailure {
    fn from(error: JobQueueError) -> Self {
        match error {
            JobQueueError::NoJob(_) => Self::usage(error),
            error => Self::environment(error),
        }
    }
}

impl From<BackgroundError> for CommandFailure {
    fn from(error: BackgroundError) -> Self {
        match error {
            BackgroundError::Queue(error) => error.into(),
            error @ BackgroundError::Start(_) => Self::environment(error),
        }
    }
}

/// Opens the job queue of this user, in `XDG_STATE_HOME` or under `HOME`.
pub(super) fn open_queue() -> Result<JobQueue, CommandFailure> {
    let path = |name| env::var_os(name).map(PathBuf::from);
    Ok(JobQueue::default_directory(path("XDG_STATE_HOME"), path("HOME"))?)
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

/// Returns the systemd manager for jobs of this user; `None` if the backend is
/// [`JobBackend::Process`], or no backend is selected and systemd does not run.
pub(super) fn find_systemd(by: Option<JobBackend>) -> Option<Systemd> {
    let runtime = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    match by {
        Some(JobBackend::Process) => None,
        Some(JobBackend::Systemd) => Some(Systemd::unchecked(is_root())),
        None => Systemd::find_running(is_root(), runtime.as_deref()),
    }
}

pub(super) fn run(args: &AtArgs, first: TimescaleInstant) -> Result<(), CommandFailure> {
    let directory = env::current_dir().map_err(|error| {
        CommandFailure::environment(format!(
            "working directory: {error}; change to an existing one"
        ))
    })?;
    if args.programs.programs().is_empty() {
        return Err(CommandFailure::usage("--detach needs a command to run; give one after '--'"));
    }
    if args.json.as_deref().is_some_and(output::is_stdout) {
        return Err(CommandFailure::usage(
            "--json - needs a standard output, which a background job does not have; give a file",
        ));
    }
    match find_systemd(args.backend) {
        Some(systemd) => start_systemd_job(args, first, systemd, &directory),
        None => start_job_process(args, first, &directory),
    }
}

fn start_systemd_job(
    args: &AtArgs,
    first: TimescaleInstant,
    systemd: Systemd,
    directory: &Path,
) -> Result<(), CommandFailure> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let id = format!("{:x}-{}", now.as_secs(), std::process::id());
    let executable = env::current_exe().map_err(CommandFailure::environment)?;
    let mut program = vec![executable.into_os_string()];
    program.extend(waiting_process_arguments(args, first, directory, None));
    let environment = PASSED_VARIABLES.iter().filter_map(|name| Some((*name, env::var_os(name)?)));
    let environment: Vec<_> = environment.collect();
    let description = format!("{first}: {}", programs_summary(args));
    systemd.start(
        &id,
        &TransientTimer {
            first,
            now_ns: InstantTimescale::Utc.clock().now_ns(),
            tai_minus_utc_ns: i64::from(args.start_time.tai_minus_utc_s()) * 1_000_000_000,
            description: &description,
            directory,
            environment: &environment,
            program: &program,
        },
    )?;
    output::print_line(&format!(
        "job {id}: {}, run by systemd; output: journalctl -u horolog-at-{id}.service",
        when::format_with_local_time(first)
    ))
}

fn start_job_process(
    args: &AtArgs,
    first: TimescaleInstant,
    directory: &Path,
) -> Result<(), CommandFailure> {
    let every = args.recurrence.every.map(|every| every.as_nanos());
    let description = BackgroundJobSpec {
        first: first.to_string(),
        every_ns: every.map(|every| u64::try_from(every).unwrap_or(u64::MAX)),
        programs: args
            .programs
            .programs()
            .iter()
            .map(horolog_launch::ProgramSpec::to_words)
            .collect(),
        directory: directory.display().to_string(),
    };
    let arguments_of_claim =
        |claim: &ClaimedJobNumber| waiting_process_arguments(args, first, directory, Some(claim));
    let started_job = start_background(&open_queue()?, description, arguments_of_claim)?;
    output::print_line(&format!(
        "job {}: {}, process {}; output: {}",
        started_job.job.id,
        when::format_with_local_time(first),
        started_job.job.process.pid,
        started_job.log.display()
    ))
}

/// Returns the programs of the job as one line without control characters.
fn programs_summary(args: &AtArgs) -> String {
    let programs = args.programs.programs();
    let programs: Vec<_> = programs.iter().map(|program| program.to_words().join(" ")).collect();
    programs.join("; ").replace(char::is_control, " ")
}

/// Returns the arguments with which this program waits in the background for `first`; `claim` is
/// the job's file in the queue, if the backend is a process.
fn waiting_process_arguments(
    args: &AtArgs,
    first: TimescaleInstant,
    directory: &Path,
    claim: Option<&ClaimedJobNumber>,
) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec!["at".into(), "--allow-past".into()];
    let mut option = |name: &str, value: OsString| words.extend([OsString::from(name), value]);
    if let Some(claim) = claim {
        option("--job", claim.file.clone().into_os_string());
    }
    if let Some(every) = args.recurrence.every {
        option("--every", format!("{}ns", every.as_nanos()).into());
    }
    if let Some(count) = args.recurrence.count {
        option("--count", count.to_string().into());
    }
    option("--priority-hold", format!("{}ns", args.priority_hold.as_nanos()).into());
    if let Some(json) = &args.json {
        option("--json", directory.join(json).into_os_string());
    }
    for line in &args.programs.lines {
        words.push(format!("--run={line}").into());
    }
    words.extend(args.programs.parallel.then(|| "--parallel".into()));
    words.extend(args.quiet.then(|| "--quiet".into()));
    words.push(first.to_notation().into());
    if !args.programs.program.is_empty() {
        words.push("--".into());
        words.extend(args.programs.program.iter().cloned());
    }
    words
}
