//! `horolog campaign run`: runs a plan in lab hosts or by agents, and writes the merged result as
//! text, JSON and HTML report.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::fs::File;
use std::io::Read;
use std::ops::ControlFlow;
use std::path::Path;

use clap::Args;
use horolog_campaign::FileContentError;
use horolog_campaign::local::{
    self, AgentOrderEvent, LabAddressFamily, LocalCampaignError, LocalCampaignOptions,
    PlanOnLabHosts,
};
use horolog_campaign::order::OrderEvent;
use horolog_campaign::placement::{PlacedJob, Placement};
use horolog_campaign::plan::{PLAN_BYTES_MAX, Plan};
use horolog_record::RunObserver;

use super::over_nats::NatsCampaignArgs;
use super::plans;
use crate::failure::{CommandFailure, check_findings};
use crate::files::ResultFileArgs;
use crate::output::{self, ProgressLine};

/// IDs of the clap arguments that concern NATS servers and agents, and conflict with `--local`.
const NATS_ARGUMENT_IDS: [&str; 15] = [
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

/// Run a plan: assign its roles, start all of them at the same time, and merge their results into
/// one.
///
/// Roles are assigned to the agents that are present ('horolog campaign list'), or with --local to
/// lab hosts on this host. Each agent checks its part against its policy. The result is written as
/// soon as all parts have ended. Ctrl-C ends the measurements, and the result contains what ran
/// until then. A run over NATS whose controller was killed continues with --resume.
///
/// Exit status: 1 if a part failed, was lost or reported an error-level finding; 2 if the plan is
/// invalid; 3 if agents refuse or are missing, or the NATS server cannot be used.
#[derive(Args, Debug)]
pub(super) struct CampaignRunArgs {
    /// Plan: a file, or the name of a built-in plan ('horolog campaign plans').
    #[arg(required_unless_present = "resume", conflicts_with = "resume")]
    plan: Option<String>,
    /// Run the plan in lab hosts on this host, one for each agent that it needs; requires root.
    #[arg(long, conflicts_with_all = NATS_ARGUMENT_IDS)]
    local: bool,
    /// Give the lab hosts IPv6 addresses, by which they reach one another.
    #[arg(long, requires = "local")]
    ipv6: bool,
    /// Set a parameter of the plan. Repeatable.
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_parameter, conflicts_with = "resume")]
    set: Vec<(String, String)>,
    /// With --local, print the placement of each role without running anything.
    #[arg(long, requires = "local")]
    check: bool,
    #[command(flatten)]
    nats: NatsCampaignArgs,
    #[command(flatten)]
    files: ResultFileArgs,
}

fn parse_parameter(text: &str) -> Result<(String, String), String> {
    let split = text.split_once('=').filter(|(name, _)| !name.is_empty());
    let (name, value) = split.ok_or("expected NAME=VALUE, such as generators=4")?;
    Ok((name.to_owned(), value.to_owned()))
}

impl From<LocalCampaignError> for CommandFailure {
    fn from(error: LocalCampaignError) -> Self {
        if error.is_usage_error() { Self::usage(error) } else { Self::environment(error) }
    }
}

/// Reads a built-in plan or a plan file. Returns its text, and its name in error messages.
fn read_plan(plan: &str) -> Result<(String, String), CommandFailure> {
    if let Some(builtin) = plans::find_plan(plan) {
        return Ok((builtin.text.to_owned(), format!("plan {plan}")));
    }
    let cannot = |error: std::io::Error| {
        let known = plans::plan_names();
        let names = format!("built-in plans: {known}");
        CommandFailure::usage(format!("cannot read plan {plan}: {error}; {names}"))
    };
    let mut text = String::new();
    let file = File::open(Path::new(plan)).map_err(cannot)?;
    // Reads one byte above the limit, so that the parser detects a file that is too long.
    file.take(PLAN_BYTES_MAX as u64 + 1).read_to_string(&mut text).map_err(cannot)?;
    Ok((text, plan.to_owned()))
}

fn plan_failure(name: &str, fault: &FileContentError) -> CommandFailure {
    CommandFailure::usage(fault.in_file(name))
}

struct CampaignProgressObserver {
    progress: ProgressLine,
}

impl RunObserver<(), AgentOrderEvent> for CampaignProgressObserver {
    fn event(&mut self, (agent, event): &AgentOrderEvent) {
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

    fn flow(&self) -> ControlFlow<()> {
        output::check_stop_request()
    }
}

pub(super) fn run(args: &CampaignRunArgs) -> Result<(), CommandFailure> {
    let Some(plan) = &args.plan else {
        return args.nats.resume(&args.files);
    };
    let (text, name) = read_plan(plan)?;
    if !args.local {
        // Parsed here for its errors only: they are reported before agents are contacted.
        Plan::parse(&text, &args.set).map_err(|fault| plan_failure(&name, &fault))?;
        return args.nats.run((text, &name), args.set.clone(), &args.files);
    }
    let plan = Plan::parse(&text, &args.set).map_err(|fault| plan_failure(&name, &fault))?;
    let addresses = if args.ipv6 { LabAddressFamily::V6 } else { LabAddressFamily::V4 };
    let PlanOnLabHosts { placement, .. } =
        local::assign_to_lab_hosts(&plan, addresses).map_err(|error| match error {
            LocalCampaignError::Placement(fault) => CommandFailure::usage(fault.in_file(&name)),
            other => other.into(),
        })?;
    if args.check {
        return output::print_line(&placement_text(&placement));
    }
    let files = args.files.open()?;
    output::install_interrupt_handler()?;
    let program = std::env::current_exe().map_err(CommandFailure::environment)?;
    let options = LocalCampaignOptions { program, command: output::command_line(), addresses };
    let mut observer = CampaignProgressObserver { progress: ProgressLine::new() };
    observer.progress.set_message("starting services");
    let result = local::run(&plan, &options, &mut observer);
    observer.progress.finish();
    let result = result?;
    files.write(&result)?;
    check_findings(&result.findings)
}

/// Formats a placement, with one line for each job: job, agent, address, kind and options.
fn placement_text(placement: &Placement) -> String {
    let line = |PlacedJob { agent, address, job, .. }: &PlacedJob| {
        let options = job.options.iter();
        let options = options.map(|(name, values)| format!("{name}={}", values.join(",")));
        let options: Vec<_> = options.collect();
        let when = if job.service { " (service)" } else { "" };
        format!("{} on {agent} ({address}): {}{when} {}", job.id, job.kind, options.join(" "))
    };
    placement.jobs.iter().map(line).collect::<Vec<_>>().join("\n")
}
