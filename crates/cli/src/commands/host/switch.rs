//! `horolog host switch`: measures the cost of context switches, and writes the result as text,
//! JSON and HTML report.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use clap::Args;
use horolog_probe::host::switch::{self, HostSwitchOptions, TURNS_MAX};
use horolog_record::HostSwitchResult;

use super::{CoreList, MeasuringThreadArgs, parse_core_list};
use crate::failure::CommandFailure;
use crate::files::ResultFileArgs;
use crate::limit::MetricLimit;
use crate::output::{self, ProgressLine};

/// Measure the cost of switching between processes and between threads.
///
/// Follows the eight steps of Hao, Xue and Qin, "Performance and test method for real-time parallel
/// system", Computer Engineering 36 (2010), 8, 267-269, doi:10.3969/j.issn.1000-3428.2010.08.093
/// (section 4.1.1): n calls of sched_yield alone, then n ping-pong round trips (turns) with a child
/// (a process, then a thread) of the same real-time priority on the same core. Each turn has two
/// switches, so the cost of a switch is (turn - 2 calls) / 2; the value of the paper, turn - call,
/// includes two switches and the call of one side.
///
/// Then measures turns in which one side wakes the other and waits, by a pipe, a futex and an
/// eventfd, on one core and across two; their cost of a switch excludes the same calls made alone,
/// as in lmbench. A repetition whose cost of a switch is negative has no value.
#[derive(Args, Debug)]
pub(crate) struct HostSwitchArgs {
    /// Cores of the two sides for turns across cores, such as 0,1; turns on one core use the first
    /// [default: the first two that this process may run on].
    #[arg(short, long, value_name = "LIST", value_parser = parse_core_pair)]
    cores: Option<CoreList>,
    /// Turns (round trips) of each repetition, up to 50000; more, without sleeping, would trigger
    /// real-time throttling (sched_rt_runtime_us).
    #[arg(short = 'n', long, value_name = "N", default_value_t = 5_000,
          value_parser = clap::value_parser!(u64).range(100..=TURNS_MAX))]
    turns: u64,
    /// Repetitions of each measurement.
    #[arg(short, long, value_name = "N", default_value_t = 5,
          value_parser = clap::value_parser!(u16).range(1..=1_000))]
    repetitions: u16,
    #[command(flatten)]
    threads: MeasuringThreadArgs,
    /// Exit with status 1 if this expression is true, such as 'process>5us' or 'pipe>20us'.
    /// Repeatable. A limit on a metric that was not measured fails.
    ///
    /// Metrics: process, thread (one switch, by the eight steps); pipe, futex, eventfd (mean round
    /// trip, which has two switches, at the worst of: one core or two, thread or process).
    #[arg(long, value_name = "LIMIT", value_parser = MetricLimit::<HostSwitchResult>::parse)]
    fail_if: Vec<MetricLimit<HostSwitchResult>>,
    #[command(flatten)]
    files: ResultFileArgs,
}

fn parse_core_pair(text: &str) -> Result<CoreList, String> {
    match parse_core_list(text)? {
        CoreList(cores) if cores.len() > 2 => Err("one core, or two".into()),
        cores => Ok(cores),
    }
}

pub(super) fn run(args: HostSwitchArgs) -> Result<(), CommandFailure> {
    let files = args.files.open()?;
    output::install_interrupt_handler()?;
    let options = HostSwitchOptions {
        cores: args.cores.map(|list| list.0).unwrap_or_default(),
        turns: args.turns,
        repetitions: args.repetitions.into(),
        priority: args.threads.priority(),
        hold_awake: !args.threads.allow_idle_states,
        command: output::command_line(),
    };
    let progress = ProgressLine::new();
    let report_progress = |done, total| progress.set_count(done, total, "repetitions");
    let mut result =
        switch::run(options, &report_progress, &|| output::check_stop_request().is_break())?;
    progress.finish();
    files.finish(&mut result, &args.fail_if)
}
