//! `horolog path stall`: flags to a search for TCP write patterns that stall or to the observation
//! of a port, and the result as text, JSON and HTML report.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

mod live;

use std::time::Duration;

use clap::Args;
use horolog_io::target::TargetName;
use horolog_probe::path::stall::{PathStallOptions, PathStallRun, StallWatch, StallWatchOptions};
use horolog_record::{LiveRun, PathStallResult};

use super::tcp::{address_family, parse_target};
use crate::failure::CommandFailure;
use crate::files::ResultFileArgs;
use crate::limit::MetricLimit;
use crate::live::{RunDisplay, require_terminal};
use crate::output::{self, ProgressLine};
use crate::values;

/// Longest observation of a port.
const WATCH_TIME_MAX: Duration = Duration::from_hours(24);

/// Find TCP write patterns that stall until a timer expires (delayed ACK, Nagle's algorithm, a full
/// congestion window, TCP_CORK), and their remedies.
///
/// With a 'horolog path serve' at TARGET, several write patterns are run without and with each
/// socket option that may remedy stalls. The patterns are: a single write; two small writes before
/// a read; two writes of exactly one segment (MSS) each; batches of 132-byte writes; a header, and
/// a body by sendfile; the same with TCP_CORK that only closing the connection clears; the same
/// with TCP_CORK that is never cleared.
///
/// With --watch PORT, the traffic of other programs is observed instead. No setting of the kernel
/// is ever changed.
#[derive(Args, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(crate) struct PathStallArgs {
    /// Far end: ADDRESS or NAME, each with an optional :PORT; a link-local address as
    /// IPV6%INTERFACE or [IPV6%INTERFACE]:PORT [default port: 8625].
    #[arg(value_name = "TARGET", value_parser = parse_target, conflicts_with = "watch")]
    target: Option<TargetName>,
    /// Observe connections to this port, of this host or forwarded by it, and send nothing.
    #[arg(short, long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    watch: Option<u16>,
    /// Interface to observe [default: all].
    #[arg(short, long, value_name = "IF", requires = "watch")]
    interface: Option<String>,
    /// Duration of the observation, up to 24h.
    #[arg(short, long, value_name = "TIME", value_parser = values::positive_duration,
          default_value = "10s", requires = "watch")]
    time: Duration,
    /// Repetitions of each pattern (exchanges) with each socket option and without any; at most 3
    /// where TCP_CORK is never cleared.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 10)]
    count: u32,
    /// Numbers of writes in a batch; the batch pattern is run for each number of the list.
    #[arg(short, long, value_name = "LIST", value_parser = parse_batch_sizes, default_value = "1..32:1",
          conflicts_with = "watch")]
    batches: BatchSizes,
    /// Time by which an exchange must be longer than the median single write to count as stalled;
    /// with --watch, time for which data must have been held back.
    #[arg(long, value_name = "TIME", value_parser = values::positive_duration,
          default_value = "10ms")]
    stall_threshold: Duration,
    /// Idle time of a connection before and after which its congestion window is read, to show
    /// whether slow start begins again (tcp_slow_start_after_idle).
    #[arg(long, value_name = "TIME", value_parser = values::duration, default_value = "400ms")]
    pause: Duration,
    /// Do not capture packets, even if permitted: infer the causes of stalls from TCP_INFO and
    /// timing alone.
    #[arg(long)]
    no_capture: bool,
    /// Use IPv4.
    #[arg(short = '4', long, conflicts_with = "watch")]
    ipv4: bool,
    /// Use IPv6.
    #[arg(short = '6', long, conflicts_with_all = ["ipv4", "watch"])]
    ipv6: bool,
    /// Exit with status 1 if this expression is true, such as 'stalled>0%' or 'longest>100ms'.
    /// Repeatable. A limit on a metric that was not measured fails.
    ///
    /// Metrics: stalled (share of exchanges without a socket option that stalled, or of observed
    /// replies), longest (longest stall observed, or longest exchange without a socket option).
    #[arg(long, value_name = "LIMIT", value_parser = MetricLimit::<PathStallResult>::parse)]
    fail_if: Vec<MetricLimit<PathStallResult>>,
    /// Show the connections on the terminal while they are observed: q, Escape and Ctrl-C end the
    /// observation with the result so far.
    #[arg(long, requires = "watch")]
    live: bool,
    #[command(flatten)]
    files: ResultFileArgs,
}

/// Numbers of writes per batch, as one value of a flag.
#[derive(Clone, Debug)]
struct BatchSizes(Vec<u32>);

fn parse_batch_sizes(text: &str) -> Result<BatchSizes, String> {
    let whole_number = |number: f64| {
        let is_one = number >= 1.0 && number.fract() == 0.0 && number < 1e6;
        is_one
            .then_some(number as u32)
            .ok_or_else(|| format!("invalid number of writes in a batch: {number}"))
    };
    let form = |_| "expected writes per batch, at least 1, such as 4, 1..32:1 or 3,8,16".to_owned();
    let numbers = values::numbers(text).map_err(form)?;
    numbers.into_iter().map(whole_number).collect::<Result<_, _>>().map(BatchSizes)
}

pub(super) fn run(args: &PathStallArgs) -> Result<(), CommandFailure> {
    let measure = || match (args.watch, &args.target) {
        (Some(port), _) => watch(args, port),
        (None, Some(target)) => search(args, target),
        (None, None) => Err(CommandFailure::usage(
            "give a TARGET that runs 'horolog path serve', or --watch PORT to observe traffic of \
             other programs",
        )),
    };
    if args.live {
        require_terminal()?;
    }
    let files = args.files.open()?;
    let mut result = measure()?;
    files.finish(&mut result, &args.fail_if)
}

fn search(args: &PathStallArgs, target: &TargetName) -> Result<PathStallResult, CommandFailure> {
    let path = PathStallRun::open(PathStallOptions {
        target: target.clone(),
        family: address_family(args.ipv4, args.ipv6),
        count: args.count,
        batches: args.batches.0.clone(),
        stall_min: args.stall_threshold,
        pause: args.pause,
        packets: !args.no_capture,
        command: output::command_line(),
    })?;
    output::install_interrupt_handler()?;
    let progress = ProgressLine::new();
    let total = path.row_count();
    let report_progress = |done| progress.set_count(done, total, "rows");
    let result = path.run(&report_progress, &|| output::check_stop_request().is_break());
    progress.finish();
    Ok(result)
}

fn watch(args: &PathStallArgs, port: u16) -> Result<PathStallResult, CommandFailure> {
    if args.time > WATCH_TIME_MAX {
        return Err(CommandFailure::usage("--watch takes at most 24h"));
    }
    // The thread that captures packets inherits the signal mask, so signals are blocked first.
    output::install_interrupt_handler()?;
    let watch = StallWatch::open(StallWatchOptions {
        port,
        interface: args.interface.clone(),
        time: args.time,
        stall_min: args.stall_threshold,
        packets: !args.no_capture,
        command: output::command_line(),
    })?;
    let run = LiveRun::new("path stall", format!("watching port {port}"), "");
    let initial_state = live::NO_CONNECTIONS.to_owned();
    let mut display = RunDisplay::start(LiveRun { initial_state, ..run }, args.live)?;
    let result = watch.run(&mut display);
    display.finish();
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_whole_numbers() {
        assert_eq!(parse_batch_sizes("1..4:1,32").unwrap().0, [1, 2, 3, 4, 32]);
        for wrong in ["0", "1.5", "", "x"] {
            assert!(parse_batch_sizes(wrong).is_err_and(|why| why.contains("batch")), "{wrong}");
        }
    }
}
