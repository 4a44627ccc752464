//! `horolog path udp`: flags to a UDP measurement, and its result as table, JSON and HTML report.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::time::Duration;

use clap::{Args, ValueEnum};
use horolog_io::target::{AddressFamily, TargetName};
use horolog_probe::path::udp::{
    LoadAddressingMode, PathUdpOptions, PathUdpRun, REPLY_TIMEOUT, TABLE_4, UdpPathError,
    UdpRowPlan, WARM_UP,
};
use horolog_record::{LiveRun, PathUdpResult};
use horolog_time::text::{QuantityError, Rate, Size};
use horolog_wire::{path_probe, stamp};

use crate::failure::CommandFailure;
use crate::files::ResultFileArgs;
use crate::limit::MetricLimit;
use crate::live::{RunDisplay, require_terminal};
use crate::output;
use crate::values;

/// Measure UDP datagrams to a far end ('horolog path serve') and back: half the round trip (T), the
/// share that is lost (M) and, of those that arrive, the share in order (S).
///
/// Without --rate each request waits for the reply to the one before it (ping-pong). With --rate
/// requests are sent at a fixed rate, and latency counts from the intended send time. A row of the
/// result is measured for each length and each load ratio R: for each request, R further datagrams
/// (the load), which get no reply, as defined by Hao, Xue and Qin, "Performance and test method for
/// real-time parallel system", Computer Engineering 36 (2010), 8, 267-269,
/// doi:10.3969/j.issn.1000-3428.2010.08.093.
#[derive(Args, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(crate) struct PathUdpArgs {
    /// Far end, as ADDRESS, ADDRESS:PORT, [IPV6]:PORT, NAME or NAME:PORT [default port: 8625, for
    /// STAMP 862].
    #[arg(value_name = "TARGET")]
    target: String,
    /// Payload lengths in bytes, such as 64,1000..5000:1000 (step 1000) or 64..32k:*2 (doubled),
    /// from 16 (STAMP: 44) to 65507; k is 1024 and kB 1000. Datagrams longer than the MTU are
    /// fragmented.
    #[arg(short, long, value_name = "LIST", default_value = "64", value_parser = parse_lengths)]
    sizes: NumberList<u64>,
    /// Duration of each row.
    #[arg(short, long, value_name = "TIME", value_parser = values::positive_duration,
          default_value = "1s", conflicts_with = "count")]
    time: Duration,
    /// Requests of each row, in all flows together, instead of --time.
    #[arg(short = 'n', long, value_name = "N", value_parser = values::count)]
    count: Option<u32>,
    /// Requests per second, in all flows together, regardless of replies [default: ping-pong].
    #[arg(short, long, value_name = "RATE")]
    rate: Option<Rate>,
    /// Uncounted warm-up requests of each row and flow; with --rate at most as many as are sent in
    /// one second.
    #[arg(long, value_name = "N", default_value_t = WARM_UP)]
    warm_up: u64,
    /// Timeout of a reply, 1ms to 60s [default: 500ms].
    #[arg(long, value_name = "TIME", value_parser = values::positive_duration)]
    timeout: Option<Duration>,
    /// Concurrent flows, each with its own port, up to 64.
    #[arg(short, long, value_name = "N", default_value_t = 1)]
    flows: u64,
    /// Load ratios R, such as 0,50: load datagrams sent for each request. Each length is measured
    /// with each ratio. Not with --stamp.
    #[arg(short = 'R', long, value_name = "LIST", default_value = "0", value_parser = parse_load_ratios)]
    load_ratio: NumberList<f64>,
    /// Destination of the load [default: broadcast if the far end is on this host's link, as in the
    /// paper; then every host of the link receives the load].
    #[arg(long, value_enum, value_name = "KIND")]
    load_destination: Option<LoadAddressingModeArg>,
    /// Payload bytes of a load datagram.
    #[arg(long, value_name = "SIZE", default_value = "2000")]
    load_length: Size,
    /// Measure the rows of Table 4 of the paper of Hao, Xue and Qin: 1000 to 5000 bytes with R of
    /// 0, 50 and 100, in the order of the table.
    #[arg(long, conflicts_with_all = ["sizes", "load_ratio"])]
    table4: bool,
    /// DSCP of requests, 0 to 63 or a name such as ef, af41 or cs5; the DSCP with which requests
    /// and replies arrive is reported.
    #[arg(long, value_name = "DSCP", value_parser = parse_dscp, default_value = "0")]
    dscp: u8,
    /// Poll for replies continuously instead of sleeping; occupies a CPU for each flow.
    #[arg(short, long)]
    busy_poll: bool,
    /// Also use kernel timestamps at both ends, which separate host delay from wire delay.
    #[arg(long)]
    timestamps: bool,
    /// Send to a STAMP session-reflector (RFC 8762, without authentication) instead.
    #[arg(long)]
    stamp: bool,
    /// Confirm that a STAMP reflector with a public address is yours.
    #[arg(long, requires = "stamp")]
    i_own_this_target: bool,
    /// Interface to send from [default: by the route].
    #[arg(short, long, value_name = "IF")]
    interface: Option<String>,
    /// Use only IPv4 addresses of a name.
    #[arg(short = '4', conflicts_with = "ipv6")]
    ipv4: bool,
    /// Use only IPv6 addresses of a name.
    #[arg(short = '6')]
    ipv6: bool,
    /// Exit with status 1 if this expression is true for any row, such as 'loss>0.1%' or
    /// 'p99>200us'. Repeatable. A limit on a metric that was not measured fails.
    ///
    /// Metrics: loss (M, a share of the requests), reordered (1 - S) and duplicates (shares of the
    /// replies); of T (half the round trip): mean, p50, p90, p99, p99.9, max.
    #[arg(long, value_name = "LIMIT", value_parser = MetricLimit::<PathUdpResult>::parse)]
    fail_if: Vec<MetricLimit<PathUdpResult>>,
    /// Show each row on the terminal while it is measured: q, Escape and Ctrl-C end the run with
    /// the result so far.
    #[arg(long)]
    live: bool,
    #[command(flatten)]
    files: ResultFileArgs,
}

/// List as one value of a flag; clap treats the elements of a bare `Vec` as separate values.
#[derive(Clone, Debug)]
struct NumberList<T>(Vec<T>);

#[derive(Clone, Copy, Debug, ValueEnum)]
enum LoadAddressingModeArg {
    Unicast,
    Broadcast,
}

fn parse_lengths(text: &str) -> Result<NumberList<u64>, QuantityError> {
    values::sizes(text).map(NumberList)
}

/// Parses a list of load ratios; 0 means no load.
fn parse_load_ratios(text: &str) -> Result<NumberList<f64>, String> {
    let part = |part: &str| if part == "0" { Ok(vec![0.0]) } else { values::numbers(part) };
    let parts: Vec<_> = text.split(',').map(part).collect::<Result<_, _>>()?;
    Ok(NumberList(parts.concat()))
}

/// Parses a DSCP: a number, or a name of RFC 2474 (cs), RFC 2597 (af), RFC 3246 (ef), RFC 5865 (va)
/// or RFC 8622 (le).
fn parse_dscp(text: &str) -> Result<u8, String> {
    let wrong = || "write a DSCP from 0 to 63, or ef, va, le, cs0 to cs7, af11 to af43".to_owned();
    let name = text.to_ascii_lowercase();
    let digit = |at: usize, from: u8, to: u8| {
        let digit = name.as_bytes().get(at).map(|byte| byte.wrapping_sub(b'0'));
        digit.filter(|digit| (from..=to).contains(digit))
    };
    match &*name {
        "ef" => return Ok(46),
        "va" => return Ok(44),
        "le" => return Ok(1),
        _ => {}
    }
    if name.starts_with("cs") && name.len() == 3 {
        return digit(2, 0, 7).map(|class| class * 8).ok_or_else(wrong);
    }
    if name.starts_with("af") && name.len() == 4 {
        let class = digit(2, 1, 4).zip(digit(3, 1, 3));
        return class.map(|(class, drop)| class * 8 + drop * 2).ok_or_else(wrong);
    }
    name.parse().ok().filter(|number| *number < 64).ok_or_else(wrong)
}

impl From<UdpPathError> for CommandFailure {
    fn from(error: UdpPathError) -> Self {
        if error.is_usage_error() { Self::usage(error) } else { Self::environment(error) }
    }
}

impl PathUdpArgs {
    fn resolve(self) -> Result<PathUdpOptions, CommandFailure> {
        let port = if self.stamp { stamp::PORT } else { path_probe::PORT };
        let target = TargetName::parse(&self.target, port).map_err(CommandFailure::usage)?;
        let defaults = PathUdpOptions::new(target);
        let row_plans = |length: &u64| {
            let length = *length;
            self.load_ratio.0.iter().map(move |&load_ratio| UdpRowPlan { length, load_ratio })
        };
        let rows = if self.table4 {
            TABLE_4.to_vec()
        } else {
            self.sizes.0.iter().flat_map(row_plans).collect()
        };
        Ok(PathUdpOptions {
            rows,
            family: match (self.ipv4, self.ipv6) {
                (true, _) => Some(AddressFamily::V4),
                (_, true) => Some(AddressFamily::V6),
                _ => None,
            },
            interface: self.interface,
            is_stamp: self.stamp,
            i_own_this_target: self.i_own_this_target,
            time: self.time,
            count: self.count.map(u64::from),
            rate: self.rate.map(Rate::per_second),
            warm_up: self.warm_up,
            timeout: self.timeout.unwrap_or(REPLY_TIMEOUT),
            flows: self.flows,
            load_destination: self.load_destination.map(|kind| match kind {
                LoadAddressingModeArg::Unicast => LoadAddressingMode::Unicast,
                LoadAddressingModeArg::Broadcast => LoadAddressingMode::Broadcast,
            }),
            load_length: self.load_length.bytes(),
            dscp: self.dscp,
            busy_polling: self.busy_poll,
            kernel_timestamps: self.timestamps,
            command: output::command_line(),
            ..defaults
        })
    }
}

pub(super) fn run(args: PathUdpArgs) -> Result<(), CommandFailure> {
    let files = args.files.open()?;
    let limits = args.fail_if.clone();
    let (live, target) = (args.live, args.target.clone());
    if live {
        require_terminal()?;
    }
    let options = args.resolve()?;
    output::install_interrupt_handler()?;
    let path = PathUdpRun::prepare(options)?;
    let mut display = RunDisplay::start(LiveRun::new("path udp", target, "row"), live)?;
    let result = path.run(&|| output::check_stop_request().is_break(), &mut display);
    display.finish();
    let mut result = result?;
    files.finish(&mut result, &limits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dscp_has_a_number_and_may_have_a_name() {
        for (text, number) in
            [("0", 0), ("63", 63), ("EF", 46), ("cs5", 40), ("af41", 34), ("af13", 14), ("le", 1)]
        {
            assert_eq!(parse_dscp(text), Ok(number), "{text}");
        }
        for wrong in ["", "64", "-1", "af51", "af14", "cs8", "cs", "fast"] {
            assert!(parse_dscp(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn lengths_are_whole() {
        assert_eq!(parse_lengths("64,1000..3000:1000").unwrap().0, [64, 1_000, 2_000, 3_000]);
        assert_eq!(parse_lengths("16k..32k:*2").unwrap().0, [16_384, 32_768]);
        assert!(parse_lengths("64.5").is_err() && parse_lengths("x").is_err());
        assert_eq!(parse_load_ratios("0,50..100:50").unwrap().0, [0.0, 50.0, 100.0]);
        assert!(
            parse_load_ratios("").is_err()
                && parse_load_ratios("0,").is_err()
                && parse_load_ratios("-1").is_err()
        );
    }
}
