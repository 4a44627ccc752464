//! `horolog at list` and `horolog at cancel`: jobs in the background, whoever keeps them.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use clap::Args;
use horolog_launch::{Entry, Job, Standing, Systemd, Unit};
use serde_json::{Value, json};

use super::{Keeper, detach};
use crate::failure::Failure;
use crate::output;

/// List the jobs that wait in the background, those that run, and those that are over and failed or
/// left output.
#[derive(Args, Debug)]
pub(super) struct ListArgs {
    /// Ask only those that this keeper keeps.
    #[arg(long, value_name = "KEEPER")]
    by: Option<Keeper>,
    /// Write JSON instead of the text.
    #[arg(long)]
    json: bool,
}

/// Cancel jobs in the background: one that waits is not run, one that runs is ended, and what is
/// left of one that is over is removed.
#[derive(Args, Debug)]
pub(super) struct CancelArgs {
    /// The jobs, as 'horolog at list' names them.
    #[arg(value_name = "JOB", required_unless_present = "ended")]
    jobs: Vec<String>,
    /// Remove what is left of all jobs that are over: how they ended, and their output.
    #[arg(long)]
    ended: bool,
    /// Ask this keeper only.
    #[arg(long, value_name = "KEEPER")]
    by: Option<Keeper>,
}

pub(super) fn list(args: &ListArgs) -> Result<(), Failure> {
    let systemd = detach::systemd(args.by);
    let entries = match (args.by, detach::queue()) {
        (Some(Keeper::Systemd), _) => Vec::new(),
        // A service has no HOME, and so no queue.
        (None, Err(_)) if systemd.is_some() => Vec::new(),
        (_, queue) => queue?.list()?,
    };
    let units = systemd.map_or_else(|| Ok(Vec::new()), Systemd::list)?;
    if args.json {
        let jobs = entries.iter().map(entry_json).chain(units.iter().map(unit_json));
        let jobs: Vec<_> = jobs.collect();
        let list = json!({ "schema": "horolog.at-list/1", "jobs": jobs });
        return output::line(horolog_report::to_json(&list).trim_end());
    }
    if entries.is_empty() && units.is_empty() {
        output::note("horolog: no jobs");
    }
    for entry in &entries {
        output::line(&entry_line(entry))?;
    }
    for unit in &units {
        let Unit { id, description, .. } = unit;
        output::line(&format!("{id}  systemd  {description}"))?;
    }
    Ok(())
}

fn entry_line(entry: &Entry) -> String {
    let standing = match &entry.standing {
        Standing::Unreadable(why) => format!("{}, its file {why}", name(&entry.standing)),
        standing => name(standing).to_owned(),
    };
    let ended = entry.job.as_ref().and_then(|job| job.ended.as_ref());
    let ended = ended.map_or_else(String::new, |ended| match ended.status {
        Some(status) => format!(" {} with status {status}", ended.at),
        None => format!(" {} by a signal", ended.at),
    });
    let job = entry.job.as_ref().map_or_else(String::new, |job| format!("  {}", job_text(job)));
    let log = match (&entry.standing, &entry.log) {
        (Standing::Waiting | Standing::Running | Standing::Starting, _) | (_, None) => {
            String::new()
        }
        (_, Some(log)) => format!("  output: {}", log.display()),
    };
    format!("{}  {standing}{ended}{job}{log}", entry.id)
}

fn job_text(job: &Job) -> String {
    let programs: Vec<_> = job.programs.iter().map(|words| words.join(" ")).collect();
    let programs = programs.join("; ").replace(char::is_control, " ");
    let every = job.every_ns.map_or_else(String::new, |every_ns| {
        format!(" every {}", horolog_report::units::period_ns(every_ns))
    });
    format!("{}{every}  {programs}", job.first)
}

const fn name(standing: &Standing) -> &'static str {
    match standing {
        Standing::Waiting => "waiting",
        Standing::Running => "running",
        Standing::Starting => "starting",
        Standing::Lost => "lost",
        Standing::Ended => "ended",
        Standing::Unreadable(_) => "unreadable",
    }
}

fn entry_json(entry: &Entry) -> Value {
    let ended = entry.job.as_ref().and_then(|job| job.ended.as_ref());
    json!({
        "id": entry.id.to_string(),
        "keeper": "process",
        "standing": name(&entry.standing),
        "first": entry.job.as_ref().map(|job| &job.first),
        "every_ns": entry.job.as_ref().and_then(|job| job.every_ns),
        "programs": entry.job.as_ref().map(|job| &job.programs),
        "pid": entry.job.as_ref().map(|job| job.process.pid),
        "ended": ended.map(|ended| &ended.at),
        "status": ended.and_then(|ended| ended.status),
        "log": entry.log,
    })
}

fn unit_json(unit: &Unit) -> Value {
    json!({
        "id": unit.id,
        "keeper": "systemd",
        "units": unit.units,
        "description": unit.description,
    })
}

pub(super) fn cancel(args: &CancelArgs) -> Result<(), Failure> {
    if args.ended {
        let queue = detach::queue()?;
        let is_over = |entry: &Entry| matches!(entry.standing, Standing::Ended | Standing::Lost);
        for entry in queue.list()?.into_iter().filter(is_over) {
            queue.cancel(entry.id)?;
            output::line(&format!("job {}: removed", entry.id))?;
        }
    }
    // Each is tried, and the first failure told.
    let failures: Vec<_> = args.jobs.iter().filter_map(|job| one(args, job).err()).collect();
    failures.into_iter().next().map_or(Ok(()), Err)
}

fn one(args: &CancelArgs, job: &str) -> Result<(), Failure> {
    let number = job.parse::<u32>().ok().filter(|_| args.by != Some(Keeper::Systemd));
    let done = match (number, detach::systemd(args.by)) {
        (Some(id), _) => match detach::queue()?.cancel(id)?.standing {
            Standing::Waiting | Standing::Running | Standing::Starting => "cancelled",
            _ => "removed",
        },
        (None, Some(systemd)) => systemd.cancel(job).map(|_| "cancelled")?,
        (None, None) => {
            return Err(Failure::usage(format!(
                "there is no job '{job}'; 'horolog at list' shows those that there are"
            )));
        }
    };
    output::line(&format!("job {job}: {done}"))
}
