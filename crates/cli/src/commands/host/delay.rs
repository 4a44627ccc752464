//! `horolog host delay`: measures the accuracy of sleep and wait functions, and writes the result
//! as text, JSON and HTML report.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::time::Duration;

use clap::Args;
use horolog_probe::host::delay::{HostDelayOptions, measure};
use horolog_record::{
    FindingCode, HostDelayResult, SchedulingPolicy, TimerSlackSetting, WaitFunction,
};

use crate::failure::{CommandFailure, fail_if_unmeasured};
use crate::files::ResultFileArgs;
use crate::limit::MetricLimit;
use crate::output::{self, ProgressLine};
use crate::values;

/// Longest delay of `--delays`.
const DELAY_MAX: Duration = Duration::from_mins(1);
/// Maximum number of different delays.
const DELAYS_MAX: usize = 40;

/// Measure the accuracy of the functions by which programs wait: sleep, alarm and pause, usleep,
/// nanosleep, clock_nanosleep, select, poll, epoll, timerfd, io_uring.
///
/// Each function is called with each delay that it supports, with SCHED_OTHER and SCHED_FIFO, with
/// the inherited timer slack and with the smallest. The overshoot is the time from the requested to
/// the actual end of a wait. Common beliefs about clocks and sleep functions on Linux (claims) are
/// then compared with the measured values. Waits of 5ms and more are measured in parallel; the
/// command takes about 20 s. Signal handlers, scheduling and slack of this process stay as they
/// are.
#[derive(Args, Debug)]
pub(crate) struct HostDelayArgs {
    /// Functions, separated by commas: sleep, alarm-pause, poll, epoll-wait, usleep, select,
    /// nanosleep, clock-nanosleep, clock-nanosleep-absolute, epoll-pwait2, timerfd, io-uring
    /// [default: all].
    #[arg(short, long, value_name = "LIST", value_delimiter = ',', value_parser = parse_function)]
    functions: Vec<WaitFunction>,
    /// Delays to request, such as '50us,2ms', up to 1m.
    #[arg(short, long, value_name = "LIST", value_delimiter = ',', value_parser = parse_delay,
          default_value = "1us,10us,100us,1ms,10ms,100ms,1s")]
    delays: Vec<Duration>,
    /// Waits of each function at each delay; at long delays as many as fit into a second, at least
    /// three.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 100,
          value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    samples: u64,
    /// Scheduling policies of the waiting threads: other, fifo [default: other,fifo].
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse_policy)]
    policy: Vec<SchedulingPolicy>,
    /// Timer slack: default (as inherited) or minimal (1 ns) [default: default,minimal].
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse_slack)]
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
    #[arg(long, value_name = "LIMIT", value_parser = MetricLimit::<HostDelayResult>::parse)]
    fail_if: Vec<MetricLimit<HostDelayResult>>,
    #[command(flatten)]
    files: ResultFileArgs,
}

fn parse_function(text: &str) -> Result<WaitFunction, String> {
    let names = || WaitFunction::ALL.map(WaitFunction::name).join(", ");
    let found = WaitFunction::ALL.into_iter().find(|kind| kind.name() == text);
    found.ok_or_else(|| format!("write one of {}", names()))
}

fn parse_delay(text: &str) -> Result<Duration, String> {
    match values::positive_duration(text)? {
        long if long > DELAY_MAX => Err("at most 1m".into()),
        delay => Ok(delay),
    }
}

fn parse_policy(text: &str) -> Result<SchedulingPolicy, String> {
    match text {
        "other" => Ok(SchedulingPolicy::Other),
        "fifo" => Ok(SchedulingPolicy::Fifo),
        _ => Err("write other or fifo".into()),
    }
}

fn parse_slack(text: &str) -> Result<TimerSlackSetting, String> {
    match text {
        "default" => Ok(TimerSlackSetting::Default),
        "minimal" => Ok(TimerSlackSetting::Minimal),
        _ => Err("write default or minimal".into()),
    }
}

/// Returns the specified values in their order without duplicates; `all` if none is specified.
fn distinct_or_all<T: Copy + PartialEq>(specified: &[T], all: &[T]) -> Vec<T> {
    let mut distinct = Vec::new();
    for one in if specified.is_empty() { all } else { specified } {
        if !distinct.contains(one) {
            distinct.push(*one);
        }
    }
    distinct
}

impl HostDelayArgs {
    fn options(&self) -> Result<HostDelayOptions, CommandFailure> {
        let mut delays = distinct_or_all(&self.delays, &[]);
        delays.sort_unstable();
        let options = HostDelayOptions {
            functions: distinct_or_all(&self.functions, &WaitFunction::ALL),
            delays,
            samples: self.samples,
            policies: distinct_or_all(
                &self.policy,
                &[SchedulingPolicy::Other, SchedulingPolicy::Fifo],
            ),
            slacks: distinct_or_all(
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
    let is_over = || output::check_stop_request().is_break();
    let mut result = measure(options, &|what| progress.set_message(what), &is_over);
    progress.finish();
    files.finish(&mut result, &args.fail_if)?;
    fail_if_unmeasured(unmeasured_reason(&result))
}

/// Returns the first error if nothing was measured; `None` if there is a value, or the run was
/// interrupted.
fn unmeasured_reason(result: &HostDelayResult) -> Option<String> {
    let is_measured = result.cells.iter().any(|cell| cell.overshoot_ns.is_some());
    let is_ended = result.findings.iter().any(|finding| finding.code == FindingCode::Interrupted);
    let setting_errors = result.settings.iter().filter_map(|setting| setting.error.clone());
    let cell_errors = result.cells.iter().filter_map(|cell| cell.error.clone());
    setting_errors.chain(cell_errors).next().filter(|_| !is_measured && !is_ended)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_nothing_is_measured_twice() {
        assert_eq!(parse_function("epoll-pwait2"), Ok(WaitFunction::EpollPwait2));
        assert!(parse_function("nap").is_err_and(|why| why.contains("clock-nanosleep")));
        assert_eq!(distinct_or_all(&[3, 1, 3], &[7]), [3, 1]);
        assert_eq!(distinct_or_all(&[], &[7, 8]), [7, 8]);
        for wrong in ["0", "2m", "soon", ""] {
            assert!(parse_delay(wrong).is_err(), "{wrong}");
        }
        assert!(parse_policy("rr").is_err() && parse_slack("none").is_err());
    }
}
