//! `horolog path stall`: flags to a search for stalls or a watch over a port, the result as text,
//! JSON and HTML report.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

mod live;

use std::time::Duration;

use clap::Args;
use horolog_io::target::TargetName;
use horolog_probe::path::stall::{PortWatch, StallOptions, StallRun, StallSnapshot, WatchOptions};
use horolog_record::{
    Distribution, LimitUnit, PathStallResult, StallMeasurement, StallPattern, StallSocketOption,
    WatchedConnection,
};
use horolog_report::{RenderResult, stall_pattern, to_json};

use self::live::StallLiveView;
use super::tcp::{family, target};
use crate::failure::{CommandFailure, verdict};
use crate::files::FileArgs;
use crate::limit::{Limit, LimitedMetric};
use crate::live::needs_a_terminal_on_stderr;
use crate::output::{self, ProgressLine};
use crate::values;

/// Longest watch.
const WATCH_MAX: Duration = Duration::from_hours(24);

/// Find TCP write patterns that stall until a timer expires (delayed ACK, Nagle's algorithm, a full
/// congestion window, TCP_CORK), and their remedies.
///
/// With a 'horolog path serve' at TARGET, patterns of writing are run with each socket option: a
/// single write, two small writes before a read, two writes of exactly one segment (MSS) each,
/// batches of 132-byte writes, a header and a body by sendfile, the same with TCP_CORK, ended by
/// closing the connection or never cleared. With --watch PORT, the traffic of other programs is
/// observed instead. No setting of the kernel is ever changed.
#[derive(Args, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(crate) struct StallArgs {
    /// Far end: ADDRESS or NAME, each with an optional :PORT; a link-local address as
    /// IPV6%INTERFACE or [IPV6%INTERFACE]:PORT [default port: 8625].
    #[arg(value_name = "TARGET", value_parser = target, conflicts_with = "watch")]
    target: Option<TargetName>,
    /// Observe the connections of this port, of this host or forwarded by it, and send nothing.
    #[arg(short, long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    watch: Option<u16>,
    /// Interface to observe [default: all].
    #[arg(short, long, value_name = "IF", requires = "watch")]
    interface: Option<String>,
    /// Duration of the observation, up to 24h.
    #[arg(short, long, value_name = "TIME", value_parser = values::long_duration,
          default_value = "10s", requires = "watch")]
    time: Duration,
    /// Exchanges of each pattern with each option.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 10)]
    count: u32,
    /// Numbers of writes in a batch; a batch is run for each number of the list.
    #[arg(short, long, value_name = "LIST", value_parser = batches, default_value = "1..32:1",
          conflicts_with = "watch")]
    batches: Batches,
    /// Time by which an exchange must take longer than one without a stall to count as stalled.
    #[arg(long, value_name = "TIME", value_parser = values::positive_duration,
          default_value = "10ms")]
    stall_threshold: Duration,
    /// Idle time of a connection before its congestion window is examined again.
    #[arg(long, value_name = "TIME", value_parser = values::duration, default_value = "400ms")]
    pause: Duration,
    /// Do not examine packets, even if permitted.
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
    /// Metrics: stalled (share of exchanges without an option that stalled, or of observed
    /// replies), longest (the longest stall, or the longest exchange of a pattern without an
    /// option).
    #[arg(long, value_name = "LIMIT", value_parser = limit)]
    fail_if: Vec<Limit<StallMetric>>,
    /// Show the connections on the terminal while they are observed: q, Escape and Ctrl-C end it
    /// with the result so far.
    #[arg(long, requires = "watch")]
    live: bool,
    #[command(flatten)]
    files: FileArgs,
}

/// Batches of writes.
#[derive(Clone, Debug)]
struct Batches(Vec<u32>);

fn batches(text: &str) -> Result<Batches, String> {
    let whole = |number: f64| {
        let is_one = number >= 1.0 && number.fract() == 0.0 && number < 1e6;
        is_one
            .then_some(number as u32)
            .ok_or_else(|| format!("invalid number of writes in a batch: {number}"))
    };
    let form = |_| "expected writes per batch, at least 1, such as 4, 1..32:1 or 3,8,16".to_owned();
    let numbers = values::numbers(text).map_err(form)?;
    numbers.into_iter().map(whole).collect::<Result<_, _>>().map(Batches)
}

pub(super) fn run(args: &StallArgs) -> Result<(), CommandFailure> {
    let measured = || match (args.watch, &args.target) {
        (Some(port), _) => watch(args, port),
        (None, Some(target)) => search(args, target),
        (None, None) => Err(CommandFailure::usage(
            "give a TARGET that runs 'horolog path serve', or --watch PORT to observe traffic of \
             other programs",
        )),
    };
    if args.live {
        needs_a_terminal_on_stderr()?;
    }
    let files = args.files.open()?;
    let mut result = measured()?;
    let judge = |limit: &Limit<StallMetric>| limit.judge_named((limit.metric)(&result));
    result.limits = args.fail_if.iter().map(judge).collect();
    files.write(&result, [to_json, RenderResult::page], RenderResult::text)?;
    verdict(&result.limits, &result.findings)
}

fn search(args: &StallArgs, target: &TargetName) -> Result<PathStallResult, CommandFailure> {
    let path = StallRun::open(StallOptions {
        target: target.clone(),
        family: family(args.ipv4, args.ipv6),
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
    let report_progress = |done| progress.counted(done, total, "rows");
    let result = path.run(&report_progress, &|| output::flow().is_break());
    progress.finish();
    Ok(result)
}

fn watch(args: &StallArgs, port: u16) -> Result<PathStallResult, CommandFailure> {
    if args.time > WATCH_MAX {
        return Err(CommandFailure::usage("--watch takes at most 24h"));
    }
    // A thread captures packets, and inherits the blocked signals.
    output::install_interrupt_handler()?;
    let watch = PortWatch::open(WatchOptions {
        port,
        interface: args.interface.clone(),
        time: args.time,
        stall_min: args.stall_threshold,
        packets: !args.no_capture,
        command: output::command_line(),
    })?;
    let live = args.live.then(|| StallLiveView::start(port)).transpose()?;
    let shows = live.as_ref().map(|live| |snapshot| live.snapshot(snapshot));
    let observer = shows.as_ref().map(|shows| shows as &dyn Fn(StallSnapshot));
    Ok(watch.run(&|| output::flow().is_break(), observer))
}

/// A metric, with the names of its values; `None` if it was not measured.
pub(super) type StallMetric = fn(&PathStallResult) -> Vec<NamedMetric>;
type NamedMetric = (String, Option<f64>);

const FIGURES: [LimitedMetric<StallMetric>; 2] =
    [("stalled", LimitUnit::Ratio, stalled), ("longest", LimitUnit::Ns, longest)];

pub(super) fn limit(text: &str) -> Result<Limit<StallMetric>, String> {
    Limit::parse(text, FIGURES)
}

fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

fn plain(result: &PathStallResult) -> impl Iterator<Item = &StallMeasurement> {
    // A forgotten cork always waits.
    result.cells.iter().filter(|cell| {
        cell.option == StallSocketOption::None && cell.pattern != StallPattern::CorkForgotten
    })
}

fn stalled(result: &PathStallResult) -> Vec<NamedMetric> {
    let Some(watch) = &result.watched else {
        let (stalled, all) = plain(result)
            .fold((0, 0), |(part, all), cell| (part + cell.stalled, all + cell.exchanges));
        return vec![("all patterns without an option".to_owned(), share(stalled, all))];
    };
    let stalls = |one: &WatchedConnection| one.client_stalls + one.server_stalls;
    let stalled: u64 = watch.connections.iter().map(stalls).sum();
    let share = match watch.connections.iter().map(|one| one.answers).sum::<Option<u64>>() {
        Some(answers) => share(stalled, answers).map(|share| share.min(1.0)),
        // Sockets do not report the number of responses: any stall counts as the whole.
        None if stalled > 0 => Some(1.0),
        None => (!watch.connections.is_empty()).then_some(0.0),
    };
    vec![("all connections".to_owned(), share)]
}

fn longest(result: &PathStallResult) -> Vec<NamedMetric> {
    let max = |times: &Distribution| Some(times.max as f64);
    let Some(watch) = &result.watched else {
        let all = plain(result).filter_map(|cell| {
            let times = cell.exchange_ns.as_ref()?;
            Some((format!("{}, no option", stall_pattern(cell)), max(times)))
        });
        return all.collect();
    };
    let of = |one: &WatchedConnection| {
        // A connection without stalls was watched as well.
        let longest = one.stall_ns.as_ref().map_or(Some(0.0), max);
        (format!("{} from {}", one.server, one.client), longest)
    };
    watch.connections.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_whole_numbers() {
        assert_eq!(batches("1..4:1,32").unwrap().0, [1, 2, 3, 4, 32]);
        for wrong in ["0", "1.5", "", "x"] {
            assert!(batches(wrong).is_err_and(|why| why.contains("batch")), "{wrong}");
        }
    }

    #[test]
    fn stalls_are_limited_by_share_and_time() {
        assert!(limit("stalled>0%").is_ok() && limit("longest > 100ms").is_ok());
        for wrong in ["", "stalled", "stalled<1%", "longest>", "p99>1ms", "stalled>200%"] {
            assert!(limit(wrong).is_err(), "{wrong}");
        }
    }
}
