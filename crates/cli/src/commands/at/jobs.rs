//! `horolog at list` and `horolog at cancel`: background jobs of every backend.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use clap::Args;
use horolog_launch::{JobQueueEntry, JobState, QueuedJob, Systemd, SystemdJob};
use serde_json::{Value, json};

use super::{JobBackend, detach};
use crate::failure::CommandFailure;
use crate::output;

/// List the background jobs that wait or run, and finished jobs that failed or left output.
#[derive(Args, Debug)]
pub(super) struct AtListArgs {
    /// List only the jobs of this backend.
    #[arg(long, value_name = "BACKEND")]
    backend: Option<JobBackend>,
    /// Write JSON instead of text.
    #[arg(long)]
    json: bool,
}

/// Cancel background jobs: remove waiting ones, end running ones, and delete the records of
/// finished jobs.
#[derive(Args, Debug)]
pub(super) struct AtCancelArgs {
    /// Jobs to cancel, as named by 'horolog at list'.
    #[arg(value_name = "JOB", required_unless_present = "finished")]
    jobs: Vec<String>,
    /// Delete the records (exit status and output) of all finished jobs.
    #[arg(long)]
    finished: bool,
    /// Cancel only jobs of this backend.
    #[arg(long, value_name = "BACKEND")]
    backend: Option<JobBackend>,
}

pub(super) fn list(args: &AtListArgs) -> Result<(), CommandFailure> {
    let systemd = detach::find_systemd(args.backend);
    let entries = match (args.backend, detach::open_queue()) {
        (Some(JobBackend::Systemd), _) => Vec::new(),
        // A system service has no HOME, and therefore no queue; its systemd jobs are listed.
        (None, Err(_)) if systemd.is_some() => Vec::new(),
        (_, queue) => queue?.list()?,
    };
    let units = systemd.map_or_else(|| Ok(Vec::new()), Systemd::list)?;
    if args.json {
        let jobs = entries.iter().map(entry_json).chain(units.iter().map(unit_json));
        let jobs: Vec<_> = jobs.collect();
        let list = json!({ "schema": "horolog.at-list/1", "jobs": jobs });
        return output::print_line(horolog_report::to_json(&list).trim_end());
    }
    if entries.is_empty() && units.is_empty() {
        output::print_note("horolog: no jobs");
    }
    for entry in &entries {
        output::print_line(&entry_line(entry))?;
    }
    for unit in &units {
        let SystemdJob { id, description, .. } = unit;
        output::print_line(&format!("{id}  systemd  {description}"))?;
    }
    Ok(())
}

fn entry_line(entry: &JobQueueEntry) -> String {
    let standing = match &entry.state {
        JobState::Unreadable(why) => format!("{}: job file {why}", state_name(&entry.state)),
        standing => state_name(standing).to_owned(),
    };
    let ended = entry.job.as_ref().and_then(|job| job.ended.as_ref());
    let ended = ended.map_or_else(String::new, |ended| match ended.status {
        Some(status) => format!(" {} with status {status}", ended.at),
        None => format!(" {} by a signal", ended.at),
    });
    let job = entry.job.as_ref().map_or_else(String::new, |job| format!("  {}", job_summary(job)));
    let log = match (&entry.state, &entry.log) {
        (JobState::Waiting | JobState::Running | JobState::Starting, _) | (_, None) => {
            String::new()
        }
        (_, Some(log)) => format!("  output: {}", log.display()),
    };
    format!("{}  {standing}{ended}{job}{log}", entry.id)
}

fn job_summary(job: &QueuedJob) -> String {
    let programs: Vec<_> = job.programs.iter().map(|words| words.join(" ")).collect();
    let programs = programs.join("; ").replace(char::is_control, " ");
    let every = job.every_ns.map_or_else(String::new, |every_ns| {
        format!(" every {}", horolog_report::units::period_ns(every_ns))
    });
    format!("{}{every}  {programs}", job.first)
}

const fn state_name(standing: &JobState) -> &'static str {
    match standing {
        JobState::Waiting => "waiting",
        JobState::Running => "running",
        JobState::Starting => "starting",
        JobState::Lost => "lost",
        JobState::Ended => "finished",
        JobState::Unreadable(_) => "unreadable",
    }
}

fn entry_json(entry: &JobQueueEntry) -> Value {
    let ended = entry.job.as_ref().and_then(|job| job.ended.as_ref());
    json!({
        "id": entry.id.to_string(),
        "keeper": "process",
        "standing": state_name(&entry.state),
        "first": entry.job.as_ref().map(|job| &job.first),
        "every_ns": entry.job.as_ref().and_then(|job| job.every_ns),
        "programs": entry.job.as_ref().map(|job| &job.programs),
        "pid": entry.job.as_ref().map(|job| job.process.pid),
        "ended": ended.map(|ended| &ended.at),
        "status": ended.and_then(|ended| ended.status),
        "log": entry.log,
    })
}

fn unit_json(unit: &SystemdJob) -> Value {
    json!({
        "id": unit.id,
        "keeper": "systemd",
        "units": unit.units,
        "description": unit.description,
    })
}

pub(super) fn cancel(args: &AtCancelArgs) -> Result<(), CommandFailure> {
    if args.finished {
        let queue = detach::open_queue()?;
        let is_finished =
            |entry: &JobQueueEntry| matches!(entry.state, JobState::Ended | JobState::Lost);
        for entry in queue.list()?.into_iter().filter(is_finished) {
            queue.cancel(entry.id)?;
            output::print_line(&format!("job {}: removed", entry.id))?;
        }
    }
    // Every job is tried; the first failure determines the exit status.
    let failures: Vec<_> = args.jobs.iter().filter_map(|job| cancel_job(args, job).err()).collect();
    failures.into_iter().next().map_or(Ok(()), Err)
}

fn cancel_job(args: &AtCancelArgs, job: &str) -> Result<(), CommandFailure> {
    let number = job.parse::<u32>().ok().filter(|_| args.backend != Some(JobBackend::Systemd));
    let done = match (number, detach::find_systemd(args.backend)) {
        (Some(id), _) => match detach::open_queue()?.cancel(id)?.state {
            JobState::Waiting | JobState::Running | JobState::Starting => "cancelled",
            _ => "removed",
        },
        (None, Some(systemd)) => systemd.cancel(job).map(|_| "cancelled")?,
        (None, None) => {
            return Err(CommandFailure::usage(format!(
                "no job '{job}'; 'horolog at list' lists the jobs"
            )));
        }
    };
    output::print_line(&format!("job {job}: {done}"))
}
