//! `horolog host switch`: flags to a run of switches, its result as text, JSON and page.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use clap::Args;
use horolog_probe::host::switch::{self, SwitchOptions, TURNS_MAX};
use horolog_record::{
    HostSwitchResult, LimitUnit, SwitchExchange, SwitchPartner, SwitchSteps, SwitchWay,
};
use horolog_report::{html, table, to_json};

use super::cores::{CoreList, ThreadArgs, core_list};
use crate::failure::{Failure, verdict};
use crate::files::FileArgs;
use crate::limit::{Limit, Limited};
use crate::output::{self, Progress};

/// What can be limited.
#[derive(Clone, Copy, Debug)]
pub(super) enum Figure {
    /// A switch by the eight steps.
    Switch(SwitchPartner),
    /// The mean turn of each exchange.
    Turn(SwitchWay),
}

const FIGURES: [Limited<Figure>; 5] = [
    ("process", LimitUnit::Ns, Figure::Switch(SwitchPartner::Process)),
    ("thread", LimitUnit::Ns, Figure::Switch(SwitchPartner::Thread)),
    ("pipe", LimitUnit::Ns, Figure::Turn(SwitchWay::Pipe)),
    ("futex", LimitUnit::Ns, Figure::Turn(SwitchWay::Futex)),
    ("eventfd", LimitUnit::Ns, Figure::Turn(SwitchWay::Eventfd)),
];

/// What it costs to switch between processes and between threads.
///
/// By the eight steps of Hao, Xue and Qin 2010 (section 4.1.1): n calls of sched_yield alone, then
/// n turns with a child (a process, then a thread) of the same real-time priority on the same core.
/// Each turn has two switches; the figure for each switch has both sides' calls taken off, the
/// document's own has one side's. Then turns that hand over and wait, by a pipe, a futex and an
/// eventfd, on one core and across two; their figure for each switch has the same calls alone taken
/// off, as lmbench does. A figure that comes out negative is refused.
#[derive(Args, Debug)]
pub(crate) struct SwitchArgs {
    /// The core of the one side, and that of the other for turns across cores, such as 0,1
    /// [default: the first two that this process may run on].
    #[arg(short, long, value_name = "LIST", value_parser = pair)]
    cores: Option<CoreList>,
    /// Turns of each repetition, up to 50000: more, which do not sleep, would run into the
    /// throttling of real-time threads.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 5_000,
          value_parser = clap::value_parser!(u64).range(100..=TURNS_MAX))]
    turns: u64,
    /// Repetitions of each measurement.
    #[arg(short, long, value_name = "N", default_value_t = 5,
          value_parser = clap::value_parser!(u16).range(1..=1_000))]
    repetitions: u16,
    #[command(flatten)]
    threads: ThreadArgs,
    /// End with status 1 if this holds, such as 'process>5us' or 'pipe>20us'; may be given more
    /// than once. Figures: process, thread (a switch by the eight steps), pipe, futex, eventfd (the
    /// mean turn, the worst place and partner). What was not measured breaks its limit.
    #[arg(long, value_name = "LIMIT", value_parser = limit)]
    fail_if: Vec<Limit<Figure>>,
    #[command(flatten)]
    files: FileArgs,
}

fn pair(text: &str) -> Result<CoreList, String> {
    match core_list(text)? {
        CoreList(cores) if cores.len() > 2 => Err("one core, or two".into()),
        cores => Ok(cores),
    }
}

pub(super) fn limit(text: &str) -> Result<Limit<Figure>, String> {
    Limit::parse(text, FIGURES)
}

pub(super) fn run(args: SwitchArgs) -> Result<(), Failure> {
    let files = args.files.open()?;
    output::end_gently()?;
    let options = SwitchOptions {
        cores: args.cores.map(|list| list.0).unwrap_or_default(),
        turns: args.turns,
        repetitions: args.repetitions.into(),
        priority: args.threads.priority(),
        hold_awake: !args.threads.leave_idle_states,
        command: output::command_line(),
    };
    let progress = Progress::new();
    let told = |done, total| progress.counted(done, total, "repetitions");
    let mut result = switch::run(options, &told, &|| output::flow().is_break())?;
    progress.finish();
    let judge = |limit: &Limit<Figure>| limit.judge_named(measured(&result, limit.figure));
    result.limits = args.fail_if.iter().map(judge).collect();
    files.write(&result, [to_json, html::host_switch], table::host_switch)?;
    verdict(&result.limits, &result.findings)
}

/// All that was measured of a figure.
pub(super) fn measured(result: &HostSwitchResult, figure: Figure) -> Vec<(String, Option<f64>)> {
    match figure {
        Figure::Switch(partner) => {
            let steps = result.steps.iter().filter(|steps| steps.partner == partner);
            let per_switch = |steps: &SwitchSteps| {
                (format!("a {}", table::partner_name(steps.partner)), steps.per_switch_ns)
            };
            steps.map(per_switch).collect()
        }
        Figure::Turn(way) => {
            let exchanges = result.exchanges.iter().filter(|exchange| exchange.way == way);
            let turn = |one: &SwitchExchange| (table::exchange_name(one), one.turn_mean_ns);
            exchanges.map(turn).collect()
        }
    }
}
