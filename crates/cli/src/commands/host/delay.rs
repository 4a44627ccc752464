//! `horolog host delay`: flags to a measurement of the functions by which programs wait.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::time::Duration;

use clap::Args;
use horolog_probe::host::delay::{HostDelayOptions, measure};
use horolog_record::{
    FindingCode, HostDelayResult, SchedulingPolicy, TimerSlackSetting, WaitFunction,
};
use horolog_report::units::human_ns;
use horolog_report::{html, setting_name, table, to_json};

use crate::failure::{CommandFailure, no_lack, verdict};
use crate::files::FileArgs;
use crate::limit::{Limit, TimeOf, time_metrics};
use crate::output::{self, ProgressLine};
use crate::values;

/// Longest delay; longer ones are of no interest.
const DELAY_MAX: Duration = Duration::from_mins(1);
const DELAYS_MAX: usize = 40;

/// Measure the accuracy of the functions by which programs wait: sleep, alarm and pause, usleep,
/// nanosleep, clock_nanosleep, select, poll, epoll, timerfd, io_uring.
///
/// Each function is called with each delay that it supports, with SCHED_OTHER and SCHED_FIFO, with
/// the inherited timer slack and with the least. The overshoot is the time from the requested to
/// the actual end of a wait. Common beliefs about clocks and sleep functions on Linux (claims) are
/// then compared with the measured values. Waits of 5ms and more are measured in parallel; the
/// whole takes about 20 s. Signal handlers, scheduling and slack of this process stay as they are.
#[derive(Args, Debug)]
pub(crate) struct HostDelayArgs {
    /// Functions, such as 'nanosleep,select' [default: all]: sleep, alarm-pause, poll, epoll-wait,
    /// usleep, select, nanosleep, clock-nanosleep, clock-nanosleep-absolute, epoll-pwait2, timerfd,
    /// io-uring.
    #[arg(short, long, value_name = "LIST", value_delimiter = ',', value_parser = function)]
    functions: Vec<WaitFunction>,
    /// Delays to request, such as '50us,2ms', up to 1m.
    #[arg(short, long, value_name = "LIST", value_delimiter = ',', value_parser = delay,
          default_value = "1us,10us,100us,1ms,10ms,100ms,1s")]
    delays: Vec<Duration>,
    /// Waits of each function at each delay; for long delays as many as fit into a second, at least
    /// three.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 100,
          value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    samples: u64,
    /// Scheduling policies of the waiting threads, such as 'other' [default: other,fifo].
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = policy)]
    policy: Vec<SchedulingPolicy>,
    /// Timer slack: default (as inherited) or minimal (1 ns) [default: default,minimal].
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = slack)]
    slack: Vec<TimerSlackSetting>,
    /// Skip the comparison with common beliefs about clocks and sleep functions, and the test of
    /// sleeps interrupted by signals.
    #[arg(long)]
    no_claims: bool,
    /// Exit with status 1 if this expression is true for the overshoot of any function at any
    /// delay, such as 'p99>1ms'. Repeatable. Delays that were not measured are left out; a limit
    /// fails if none was measured.
    ///
    /// Metrics: mean, p50, p90, p99, p99.9, max.
    #[arg(long, value_name = "LIMIT", value_parser = limit)]
    fail_if: Vec<Limit<TimeOf>>,
    #[command(flatten)]
    files: FileArgs,
}

pub(super) fn limit(text: &str) -> Result<Limit<TimeOf>, String> {
    Limit::parse(text, time_metrics(|of| of))
}

fn function(text: &str) -> Result<WaitFunction, String> {
    let names = || WaitFunction::ALL.map(WaitFunction::name).join(", ");
    let found = WaitFunction::ALL.into_iter().find(|kind| kind.name() == text);
    found.ok_or_else(|| format!("write one of {}", names()))
}

fn delay(text: &str) -> Result<Duration, String> {
    match values::long_duration(text)? {
        long if long > DELAY_MAX => Err("at most 1m".into()),
        delay => Ok(delay),
    }
}

fn policy(text: &str) -> Result<SchedulingPolicy, String> {
    match text {
        "other" => Ok(SchedulingPolicy::Other),
        "fifo" => Ok(SchedulingPolicy::Fifo),
        _ => Err("write other or fifo".into()),
    }
}

fn slack(text: &str) -> Result<TimerSlackSetting, String> {
    match text {
        "default" => Ok(TimerSlackSetting::Default),
        "minimal" => Ok(TimerSlackSetting::Minimal),
        _ => Err("write default or minimal".into()),
    }
}

/// The specified values, each once and in order; all if none is specified.
fn selected_values<T: Copy + PartialEq>(specified: &[T], all: &[T]) -> Vec<T> {
    let mut once = Vec::new();
    for one in if specified.is_empty() { all } else { specified } {
        if !once.contains(one) {
            once.push(*one);
        }
    }
    once
}

impl HostDelayArgs {
    fn options(&self) -> Result<HostDelayOptions, CommandFailure> {
        let mut delays = selected_values(&self.delays, &[]);
        delays.sort_unstable();
        let options = HostDelayOptions {
            functions: selected_values(&self.functions, &WaitFunction::ALL),
            delays,
            samples: self.samples,
            policies: selected_values(
                &self.policy,
                &[SchedulingPolicy::Other, SchedulingPolicy::Fifo],
            ),
            slacks: selected_values(
                &self.slack,
                &[TimerSlackSetting::Default, TimerSlackSetting::Minimal],
            ),
            claims: !self.no_claims,
            command: output::command_line(),
        };
        if options.delays.len() > DELAYS_MAX {
            return Err(CommandFailure::usage(format!("at most {DELAYS_MAX} delays; give fewer")));
        }
        if !options.has_possible_wait() {
            return Err(CommandFailure::usage(
                "no function supports these delays: sleep and alarm-pause take whole seconds, \
                 poll and epoll-wait whole milliseconds, usleep and select whole microseconds",
            ));
        }
        Ok(options)
    }
}

pub(super) fn run(args: &HostDelayArgs) -> Result<(), CommandFailure> {
    let options = args.options()?;
    let files = args.files.open()?;
    output::install_interrupt_handler()?;
    let progress = ProgressLine::new();
    let is_over = || output::flow().is_break();
    let mut result = measure(options, &|what| progress.set_message(what), &is_over);
    progress.finish();
    let judge = |limit: &Limit<TimeOf>| limit.judge_named(overshoots(&result, limit.metric));
    result.limits = args.fail_if.iter().map(judge).collect();
    files.write(&result, [to_json, html::host_delay], table::host_delay)?;
    verdict(&result.limits, &result.findings)?;
    no_lack(lack(&result))
}

/// The reason why there is no value at all; `None` if there is one, or the run was ended before.
fn lack(result: &HostDelayResult) -> Option<String> {
    let is_measured = result.cells.iter().any(|cell| cell.overshoot_ns.is_some());
    let is_ended = result.findings.iter().any(|finding| finding.code == FindingCode::Interrupted);
    let of_settings = result.settings.iter().filter_map(|setting| setting.error.clone());
    let of_cells = result.cells.iter().filter_map(|cell| cell.error.clone());
    of_settings.chain(of_cells).next().filter(|_| !is_measured && !is_ended)
}

/// The metric of each function at each delay that was measured.
pub(super) fn overshoots(
    result: &HostDelayResult,
    of: TimeOf,
) -> impl Iterator<Item = (String, Option<f64>)> {
    result.cells.iter().filter_map(move |cell| {
        let overshoot = cell.overshoot_ns.as_ref()?;
        let setting = result.settings.get(cell.setting).map_or("", setting_name);
        let (function, delay) = (cell.function.name(), human_ns(cell.requested_ns));
        Some((format!("{function} of {delay}, {setting}"), Some(of(overshoot))))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_nothing_is_measured_twice() {
        assert_eq!(function("epoll-pwait2"), Ok(WaitFunction::EpollPwait2));
        assert!(function("nap").is_err_and(|why| why.contains("clock-nanosleep")));
        assert_eq!(selected_values(&[3, 1, 3], &[7]), [3, 1]);
        assert_eq!(selected_values(&[], &[7, 8]), [7, 8]);
        for wrong in ["0", "2m", "soon", ""] {
            assert!(delay(wrong).is_err(), "{wrong}");
        }
        assert!(policy("rr").is_err() && slack("none").is_err() && limit("p98>1ms").is_err());
    }
}
