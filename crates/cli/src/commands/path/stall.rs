//! `horolog path stall`: flags to a search for stalls or a watch over a port, the result as text,
//! JSON and page.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

mod figures;
mod live;

use std::time::Duration;

use clap::Args;
use horolog_io::target::TargetName;
use horolog_probe::path::stall::{StallOptions, StallPath, Watch, WatchGlance, WatchOptions};
use horolog_record::PathStallResult;
use horolog_report::{html, table, to_json};

use self::figures::{Figure, limit};
use self::live::Live;
use super::tcp::{family, target};
use crate::failure::{Failure, verdict};
use crate::files::FileArgs;
use crate::limit::Limit;
use crate::live::needs_a_terminal_beside;
use crate::output::{self, Progress};
use crate::values;

/// Longest watch.
const WATCH_MAX: Duration = Duration::from_hours(24);

/// Find the ways of writing to a TCP connection that wait for a timer (delayed acknowledgements,
/// Nagle's algorithm, a full congestion window, a cork), and what cures them.
///
/// With a 'horolog path serve' at TARGET, patterns of writing are run under each option of sockets:
/// a single write, two small writes before a read, whole segments, batches of 132 bytes, a header
/// and a body by sendfile, a cork that is closed or forgotten. With --watch PORT, the traffic of
/// other programs is watched instead. No setting of the kernel is ever changed.
#[derive(Args, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(crate) struct StallArgs {
    /// The far end: ADDRESS, NAME, either with :PORT [default port: 8625].
    #[arg(value_name = "TARGET", value_parser = target, conflicts_with = "watch")]
    target: Option<TargetName>,
    /// Watch the connections of this port, of this host or passing by it, and send nothing.
    #[arg(short, long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    watch: Option<u16>,
    /// Interface to watch [default: all].
    #[arg(short, long, value_name = "IF", requires = "watch")]
    interface: Option<String>,
    /// How long to watch, up to 24h.
    #[arg(short, long, value_name = "TIME", value_parser = values::long_duration,
          default_value = "10s", requires = "watch")]
    time: Duration,
    /// Exchanges of each pattern under each option.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 10)]
    count: u32,
    /// Writes in a batch, one number for each batch that is tried.
    #[arg(short, long, value_name = "LIST", value_parser = batches, default_value = "1..32:1",
          conflicts_with = "watch")]
    batches: Batches,
    /// How much longer than one that waits for nothing an exchange takes that stalled.
    #[arg(long, value_name = "TIME", value_parser = values::positive_duration,
          default_value = "10ms")]
    stall_min: Duration,
    /// How long a connection is left alone before its congestion window is looked at again.
    #[arg(long, value_name = "TIME", value_parser = values::duration, default_value = "400ms")]
    pause: Duration,
    /// Do not look at the packets, even where this may.
    #[arg(long)]
    no_packets: bool,
    /// Use IPv4.
    #[arg(short = '4', long, conflicts_with = "watch")]
    ipv4: bool,
    /// Use IPv6.
    #[arg(short = '6', long, conflicts_with_all = ["ipv4", "watch"])]
    ipv6: bool,
    /// End with status 1 if this holds, such as 'stalled>0%' or 'longest>100ms'; may be given more
    /// than once. Metrics: stalled (share of exchanges without an option that stalled, of answers
    /// where packets were watched), longest (the longest stall, or the longest exchange of a
    /// pattern without an option). What was not measured breaks its limit.
    #[arg(long, value_name = "LIMIT", value_parser = limit)]
    fail_if: Vec<Limit<Figure>>,
    /// Show the connections on the terminal while they are watched: q, Escape and Ctrl-C end the
    /// watch with what there is by then.
    #[arg(long, requires = "watch")]
    live: bool,
    #[command(flatten)]
    files: FileArgs,
}

/// Writes in batches.
#[derive(Clone, Debug)]
struct Batches(Vec<u32>);

fn batches(text: &str) -> Result<Batches, String> {
    let whole = |number: f64| {
        let is_one = number >= 1.0 && number.fract() == 0.0 && number < 1e6;
        is_one
            .then_some(number as u32)
            .ok_or_else(|| format!("a batch cannot have {number} writes"))
    };
    let form = |_| "write writes in a batch, 1 at least, such as 4, 1..32:1 or 3,8,16".to_owned();
    let numbers = values::numbers(text).map_err(form)?;
    numbers.into_iter().map(whole).collect::<Result<_, _>>().map(Batches)
}

pub(super) fn run(args: &StallArgs) -> Result<(), Failure> {
    let measured = || match (args.watch, &args.target) {
        (Some(port), _) => watch(args, port),
        (None, Some(target)) => search(args, target),
        (None, None) => Err(Failure::usage(
            "give a TARGET where 'horolog path serve' runs, or --watch PORT to watch other \
             programs' traffic",
        )),
    };
    if args.live {
        needs_a_terminal_beside()?;
    }
    let files = args.files.open()?;
    let mut result = measured()?;
    let judge = |limit: &Limit<Figure>| limit.judge_named((limit.figure)(&result));
    result.limits = args.fail_if.iter().map(judge).collect();
    files.write(&result, [to_json, html::path_stall], table::path_stall)?;
    verdict(&result.limits, &result.findings)
}

fn search(args: &StallArgs, target: &TargetName) -> Result<PathStallResult, Failure> {
    let path = StallPath::open(StallOptions {
        target: target.clone(),
        family: family(args.ipv4, args.ipv6),
        count: args.count,
        batches: args.batches.0.clone(),
        stall_min: args.stall_min,
        pause: args.pause,
        packets: !args.no_packets,
        command: output::command_line(),
    })?;
    output::end_gently()?;
    let progress = Progress::new();
    let total = path.rows();
    let told = |done| progress.counted(done, total, "rows");
    let result = path.run(&told, &|| output::flow().is_break());
    progress.finish();
    Ok(result)
}

fn watch(args: &StallArgs, port: u16) -> Result<PathStallResult, Failure> {
    if args.time > WATCH_MAX {
        return Err(Failure::usage("a port is watched for at most 24h"));
    }
    // Packets are watched by a thread, which inherits what is blocked.
    output::end_gently()?;
    let watch = Watch::open(WatchOptions {
        port,
        interface: args.interface.clone(),
        time: args.time,
        stall_min: args.stall_min,
        packets: !args.no_packets,
        command: output::command_line(),
    })?;
    let live = args.live.then(|| Live::start(port)).transpose()?;
    let shows = live.as_ref().map(|live| |glance| live.look(glance));
    let onlooker = shows.as_ref().map(|shows| shows as &dyn Fn(WatchGlance));
    Ok(watch.run(&|| output::flow().is_break(), onlooker))
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
}
