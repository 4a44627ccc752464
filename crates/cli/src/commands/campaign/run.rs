//! `horolog campaign run`: a plan by name or file, in private hosts or by agents, its result as
//! text, JSON and page.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::fs::File;
use std::io::Read;
use std::path::Path;

use clap::Args;
use horolog_campaign::local::{self, Addresses, Here, LocalError, LocalOptions, Observer};
use horolog_campaign::order::News;
use horolog_campaign::place::{Placed, Placement};
use horolog_campaign::plan::{PLAN_BYTES_MAX, Plan};
use horolog_campaign::{AgentName, Fault};
use horolog_report::{html, table, to_json};

use super::over_nats::OverNatsArgs;
use super::plans;
use crate::failure::{Failure, no_error};
use crate::files::FileArgs;
use crate::output::{self, Progress};

/// What is said of a NATS server and of agents, of which private hosts have none.
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
    "lead",
    "grace",
    "lost_after",
    "broker_patience",
    "clock_ahead",
];

/// Run a plan: place its roles, start all of them at one instant, and make one result of theirs.
///
/// The roles go to the agents that are there ('horolog campaign list'), each of which judges its
/// part by its policy, or with --local to private hosts of this machine. The result is written as
/// soon as all have ended. Ctrl-C ends the measurements, and the result is of what ran until then.
/// A run over NATS that was killed goes on with --resume.
///
/// Exit status: 1 where a part failed, was lost or told of an error; 2 where the plan is wrong; 3
/// where agents refuse or are missing, or the NATS server cannot be used.
#[derive(Args, Debug)]
pub(super) struct RunArgs {
    /// The plan: a file, or the name of one that comes with the program ('horolog campaign plans').
    #[arg(required_unless_present = "resume", conflicts_with = "resume")]
    plan: Option<String>,
    /// Run it in private hosts of this machine, one for each agent that it needs; needs root.
    #[arg(long, conflicts_with_all = OF_NATS)]
    local: bool,
    /// Give these hosts addresses of IPv6, by which they reach one another.
    #[arg(long, requires = "local")]
    ipv6: bool,
    /// Give a parameter of the plan another value; may be given several times.
    #[arg(long, value_name = "NAME=VALUE", value_parser = setting, conflicts_with = "resume")]
    set: Vec<(String, String)>,
    /// Say where each part would run, and run nothing.
    #[arg(long, requires = "local")]
    check: bool,
    #[command(flatten)]
    over_nats: OverNatsArgs,
    #[command(flatten)]
    files: FileArgs,
}

fn setting(text: &str) -> Result<(String, String), String> {
    let split = text.split_once('=').filter(|(name, _)| !name.is_empty());
    let (name, value) = split.ok_or("write a parameter and its value, such as generators=4")?;
    Ok((name.to_owned(), value.to_owned()))
}

impl From<LocalError> for Failure {
    fn from(error: LocalError) -> Self {
        if error.is_usage() { Self::usage(error) } else { Self::environment(error) }
    }
}

/// The text of a plan, and what to call it in complaints.
fn text(plan: &str) -> Result<(String, String), Failure> {
    if let Some(shipped) = plans::find(plan) {
        return Ok((shipped.text.to_owned(), format!("plan {plan}")));
    }
    let cannot = |error: std::io::Error| {
        let known = plans::names();
        let names = format!("plans that come with the program: {known}");
        Failure::usage(format!("cannot read plan {plan}: {error}; {names}"))
    };
    let mut text = String::new();
    let file = File::open(Path::new(plan)).map_err(cannot)?;
    // One byte more, by which a file that is too long is known.
    file.take(PLAN_BYTES_MAX as u64 + 1).read_to_string(&mut text).map_err(cannot)?;
    Ok((text, plan.to_owned()))
}

fn located(name: &str, fault: &Fault) -> Failure {
    Failure::usage(fault.of_file(name))
}

struct Shown {
    progress: Progress,
}

impl Observer for Shown {
    fn news(&mut self, agent: &AgentName, news: &News) {
        match news {
            News::Started { job, .. } => self.progress.doing(&format!("{job} on {agent} runs")),
            News::Progress { job, text } => {
                self.progress.doing(&format!("{job} on {agent}: {}", text.trim()));
            }
            News::Ended { job } => self.progress.doing(&format!("{job} on {agent} has ended")),
            News::Accepted { .. } | News::Refused { .. } | News::Ready | News::NotReady { .. } => {}
        }
    }

    fn is_ending(&self) -> bool {
        output::flow().is_break()
    }
}

pub(super) fn run(args: &RunArgs) -> Result<(), Failure> {
    let Some(plan) = &args.plan else {
        return args.over_nats.resume(&args.files);
    };
    let (text, name) = text(plan)?;
    if !args.local {
        // A plan that is wrong is told with its name, and needs no agents.
        Plan::parse(&text, &args.set).map_err(|fault| located(&name, &fault))?;
        return args.over_nats.run((text, &name), args.set.clone(), &args.files);
    }
    let plan = Plan::parse(&text, &args.set).map_err(|fault| located(&name, &fault))?;
    let addresses = if args.ipv6 { Addresses::V6 } else { Addresses::V4 };
    let Here { placement, .. } =
        local::place_here(&plan, addresses).map_err(|error| match error {
            LocalError::Place(fault) => Failure::usage(fault.of_file(&name)),
            other => other.into(),
        })?;
    if args.check {
        return output::line(&placed(&placement));
    }
    let files = args.files.open()?;
    output::end_gently()?;
    let program = std::env::current_exe().map_err(Failure::environment)?;
    let options = LocalOptions { program, command: output::command_line(), addresses };
    let mut shown = Shown { progress: Progress::new() };
    shown.progress.doing("services are started");
    let result = local::run(&plan, &options, &mut shown);
    shown.progress.finish();
    let result = result?;
    files.write(&result, [to_json, html::campaign], table::campaign)?;
    no_error(&result.findings)
}

/// Where each part runs, in lines.
fn placed(placement: &Placement) -> String {
    let line = |Placed { agent, address, job, .. }: &Placed| {
        let options = job.options.iter();
        let options = options.map(|(name, values)| format!("{name}={}", values.join(",")));
        let options: Vec<_> = options.collect();
        let when = if job.service { " (service)" } else { "" };
        format!("{} on {agent} ({address}): {}{when} {}", job.id, job.kind, options.join(" "))
    };
    placement.jobs.iter().map(line).collect::<Vec<_>>().join("\n")
}
