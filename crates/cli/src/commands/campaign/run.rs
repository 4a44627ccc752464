//! `horolog campaign run`: a plan by name or file, in lab hosts or by agents, its result as text,
//! JSON and HTML report.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::fs::File;
use std::io::Read;
use std::path::Path;

use clap::Args;
use horolog_campaign::local::{
    self, CampaignObserver, LabAddresses, LocalError, LocalOptions, LocalPlacement,
};
use horolog_campaign::order::OrderEvent;
use horolog_campaign::placement::{PlacedJob, Placement};
use horolog_campaign::plan::{PLAN_BYTES_MAX, Plan};
use horolog_campaign::{AgentName, FileError};
use horolog_report::{RenderResult, to_json};

use super::over_nats::OverNatsArgs;
use super::plans;
use crate::failure::{CommandFailure, no_error};
use crate::files::FileArgs;
use crate::output::{self, ProgressLine};

/// Options of a NATS server and of agents, which do not apply to lab hosts.
const OF_NATS: [&str; 15] = [
    "servers",
    "creds",
    "nkey",
    "user",
    "password_file",
    "ca",
    "cert",
    "key",
    "tls_required",
    "replicas",
    "lead_time",
    "grace",
    "agent_timeout",
    "broker_timeout",
    "inject_clock_offset",
];

/// Run a plan: assign its roles, start all of them at one instant, and merge their results into
/// one.
///
/// Roles are assigned to the agents that are present ('horolog campaign list'), each of which
/// checks its part against its policy, or with --local to lab hosts on this host. The result is
/// written as soon as all parts have ended. Ctrl-C ends the measurements, and the result contains
/// what ran until then. A run over NATS whose controller was killed continues with --resume.
///
/// Exit status: 1 if a part failed, was lost or reported an error-level finding; 2 if the plan is
/// invalid; 3 if agents refuse or are missing, or the NATS server cannot be used.
#[derive(Args, Debug)]
pub(super) struct CampaignRunArgs {
    /// Plan: a file, or the name of a built-in plan ('horolog campaign plans').
    #[arg(required_unless_present = "resume", conflicts_with = "resume")]
    plan: Option<String>,
    /// Run the plan in lab hosts on this host, one for each agent that it needs; requires root.
    #[arg(long, conflicts_with_all = OF_NATS)]
    local: bool,
    /// Give the lab hosts IPv6 addresses, by which they reach one another.
    #[arg(long, requires = "local")]
    ipv6: bool,
    /// Set a parameter of the plan. Repeatable.
    #[arg(long, value_name = "NAME=VALUE", value_parser = setting, conflicts_with = "resume")]
    set: Vec<(String, String)>,
    /// Print the placement of each part without running anything.
    #[arg(long, requires = "local")]
    check: bool,
    #[command(flatten)]
    over_nats: OverNatsArgs,
    #[command(flatten)]
    files: FileArgs,
}

fn setting(text: &str) -> Result<(String, String), String> {
    let split = text.split_once('=').filter(|(name, _)| !name.is_empty());
    let (name, value) = split.ok_or("expected NAME=VALUE, such as generators=4")?;
    Ok((name.to_owned(), value.to_owned()))
}

impl From<LocalError> for CommandFailure {
    fn from(error: LocalError) -> Self {
        if error.is_usage_error() { Self::usage(error) } else { Self::environment(error) }
    }
}

/// The text of a plan, and its name in error messages.
fn text(plan: &str) -> Result<(String, String), CommandFailure> {
    if let Some(shipped) = plans::find(plan) {
        return Ok((shipped.text.to_owned(), format!("plan {plan}")));
    }
    let cannot = |error: std::io::Error| {
        let known = plans::names();
        let names = format!("built-in plans: {known}");
        CommandFailure::usage(format!("cannot read plan {plan}: {error}; {names}"))
    };
    let mut text = String::new();
    let file = File::open(Path::new(plan)).map_err(cannot)?;
    // One byte more, to detect a file that is too long.
    file.take(PLAN_BYTES_MAX as u64 + 1).read_to_string(&mut text).map_err(cannot)?;
    Ok((text, plan.to_owned()))
}

fn located(name: &str, fault: &FileError) -> CommandFailure {
    CommandFailure::usage(fault.in_file(name))
}

struct Shown {
    progress: ProgressLine,
}

impl CampaignObserver for Shown {
    fn event(&mut self, agent: &AgentName, event: &OrderEvent) {
        match event {
            OrderEvent::Started { job, .. } => {
                self.progress.set_message(&format!("{job} on {agent}: started"));
            }
            OrderEvent::Progress { job, text } => {
                self.progress.set_message(&format!("{job} on {agent}: {}", text.trim()));
            }
            OrderEvent::Ended { job } => {
                self.progress.set_message(&format!("{job} on {agent}: ended"));
            }
            OrderEvent::Accepted { .. }
            | OrderEvent::Refused { .. }
            | OrderEvent::Ready
            | OrderEvent::NotReady { .. } => {}
        }
    }

    fn is_stop_requested(&self) -> bool {
        output::flow().is_break()
    }
}

pub(super) fn run(args: &CampaignRunArgs) -> Result<(), CommandFailure> {
    let Some(plan) = &args.plan else {
        return args.over_nats.resume(&args.files);
    };
    let (text, name) = text(plan)?;
    if !args.local {
        // An invalid plan is reported with its name, and needs no agents.
        Plan::parse(&text, &args.set).map_err(|fault| located(&name, &fault))?;
        return args.over_nats.run((text, &name), args.set.clone(), &args.files);
    }
    let plan = Plan::parse(&text, &args.set).map_err(|fault| located(&name, &fault))?;
    let addresses = if args.ipv6 { LabAddresses::V6 } else { LabAddresses::V4 };
    let LocalPlacement { placement, .. } =
        local::assign_to_lab_hosts(&plan, addresses).map_err(|error| match error {
            LocalError::Placement(fault) => CommandFailure::usage(fault.in_file(&name)),
            other => other.into(),
        })?;
    if args.check {
        return output::line(&placed(&placement));
    }
    let files = args.files.open()?;
    output::install_interrupt_handler()?;
    let program = std::env::current_exe().map_err(CommandFailure::environment)?;
    let options = LocalOptions { program, command: output::command_line(), addresses };
    let mut shown = Shown { progress: ProgressLine::new() };
    shown.progress.set_message("starting services");
    let result = local::run(&plan, &options, &mut shown);
    shown.progress.finish();
    let result = result?;
    files.write(&result, [to_json, RenderResult::page], RenderResult::text)?;
    no_error(&result.findings)
}

/// The host of each part, in lines.
fn placed(placement: &Placement) -> String {
    let line = |PlacedJob { agent, address, job, .. }: &PlacedJob| {
        let options = job.options.iter();
        let options = options.map(|(name, values)| format!("{name}={}", values.join(",")));
        let options: Vec<_> = options.collect();
        let when = if job.service { " (service)" } else { "" };
        format!("{} on {agent} ({address}): {}{when} {}", job.id, job.kind, options.join(" "))
    };
    placement.jobs.iter().map(line).collect::<Vec<_>>().join("\n")
}
