//! `horolog path tcp`: flags to a TCP measurement, and its result as text, JSON and HTML report.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::time::Duration;

use clap::Args;
use horolog_io::target::{AddressFamily, TargetName};
use horolog_probe::path::tcp::{PORT, PathTcpOptions, PathTcpRun, TcpDirections};
use horolog_record::{LiveRun, PathTcpResult, TcpSettings};

use crate::failure::CommandFailure;
use crate::files::ResultFileArgs;
use crate::limit::MetricLimit;
use crate::live::{RunDisplay, require_terminal};
use crate::output;
use crate::values;
use horolog_time::text::QuantityError;

/// Default size of latency messages, in bytes: the smallest.
const LATENCY_SIZE: u64 = 1;
/// Default size of bandwidth messages, in bytes.
const BANDWIDTH_SIZE: u64 = 65_536;

/// Measure latency and bandwidth of TCP to a 'horolog path serve', by message size.
///
/// Latency is half the round trip of a message; bandwidth is the receive rate of messages that are
/// sent without waiting for replies. The result describes both hosts (CPU, kernel, interface); then
/// latency and the bandwidth in each direction measured have a row for each size, with the kernel's
/// view of the connection (TCP_INFO).
#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "they are independent switches")]
pub(crate) struct PathTcpArgs {
    /// Far end: ADDRESS or NAME, each with an optional :PORT [default port: 8625].
    #[arg(value_name = "TARGET", value_parser = parse_target)]
    target: TargetName,
    /// Message sizes in bytes, such as 64,128, 1000..5000:1000 (step 1000) or 1..64k:*2 (doubled);
    /// k is 1024 and kB 1000 [default: 1 for latency, 64k for bandwidth].
    #[arg(short, long, value_name = "LIST", value_parser = parse_sizes)]
    sizes: Option<MessageSizes>,
    /// Measure only latency.
    #[arg(long, conflicts_with = "bandwidth")]
    latency: bool,
    /// Measure only bandwidth.
    #[arg(long)]
    bandwidth: bool,
    /// Measure the bandwidth from the far end to this host as well.
    #[arg(long, conflicts_with = "latency")]
    both_directions: bool,
    /// Duration of each row, up to 1m.
    #[arg(short, long, value_name = "TIME", value_parser = values::positive_duration,
          default_value = "1s")]
    time: Duration,
    /// Warm-up time before each row, which is not counted.
    #[arg(long, value_name = "TIME", value_parser = values::duration, default_value = "50ms")]
    warm_up: Duration,
    /// Concurrent connections.
    #[arg(short, long, value_name = "N", default_value_t = 1)]
    connections: u32,
    /// Disable Nagle's algorithm, at both ends (TCP_NODELAY).
    #[arg(long)]
    no_delay: bool,
    /// Acknowledge without delay, at both ends (TCP_QUICKACK, set again before every receive).
    #[arg(long)]
    quick_ack: bool,
    /// Hold back partial segments until the end of each message, at both ends (TCP_CORK); only in
    /// latency rows.
    #[arg(long)]
    cork: bool,
    /// Send without copying from the program to the kernel (MSG_ZEROCOPY); only in bandwidth rows,
    /// from this host.
    #[arg(long, conflicts_with = "latency")]
    zero_copy: bool,
    /// Use IPv4.
    #[arg(short = '4', long)]
    ipv4: bool,
    /// Use IPv6.
    #[arg(short = '6', long, conflicts_with = "ipv4")]
    ipv6: bool,
    /// Exit with status 1 if this expression is true for any row, such as 'p99>100us' or
    /// 'bandwidth<100M'. Repeatable. A limit on a metric that was not measured fails.
    ///
    /// Metrics: mean, p50, p90, p99, p99.9, max (of the latency), bandwidth (bytes per second, in
    /// either direction; in limits k, M and G are powers of 1000).
    #[arg(long, value_name = "LIMIT", value_parser = MetricLimit::<PathTcpResult>::parse)]
    fail_if: Vec<MetricLimit<PathTcpResult>>,
    /// Show each row on the terminal while it is measured: q, Escape and Ctrl-C end the run with
    /// the result so far.
    #[arg(long)]
    live: bool,
    #[command(flatten)]
    files: ResultFileArgs,
}

/// Message sizes in bytes, as one value of a flag.
#[derive(Clone, Debug)]
struct MessageSizes(Vec<u64>);

pub(super) fn parse_target(text: &str) -> Result<TargetName, String> {
    TargetName::parse(text, PORT).map_err(|error| error.to_string())
}

fn parse_sizes(text: &str) -> Result<MessageSizes, QuantityError> {
    values::sizes(text).map(MessageSizes)
}

pub(super) const fn address_family(ipv4: bool, ipv6: bool) -> Option<AddressFamily> {
    match (ipv4, ipv6) {
        (true, _) => Some(AddressFamily::V4),
        (_, true) => Some(AddressFamily::V6),
        _ => None,
    }
}

fn duration_ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl PathTcpArgs {
    fn options(&self) -> PathTcpOptions {
        let sizes = |default_size: u64, is_wanted: bool| match &self.sizes {
            _ if !is_wanted => Vec::new(),
            Some(MessageSizes(sizes)) => sizes.clone(),
            None => vec![default_size],
        };
        PathTcpOptions {
            target: self.target.clone(),
            family: address_family(self.ipv4, self.ipv6),
            latency_sizes: sizes(LATENCY_SIZE, !self.bandwidth),
            bandwidth_sizes: sizes(BANDWIDTH_SIZE, !self.latency),
            directions: TcpDirections { forward: true, backward: self.both_directions },
            settings: TcpSettings {
                no_delay: self.no_delay,
                quick_ack: self.quick_ack,
                cork: self.cork,
                zero_copy: self.zero_copy,
                connections: self.connections,
                time_ns: duration_ns(self.time),
                warm_up_ns: duration_ns(self.warm_up),
            },
            command: output::command_line(),
        }
    }
}

pub(super) fn run(args: &PathTcpArgs) -> Result<(), CommandFailure> {
    let files = args.files.open()?;
    if args.live {
        require_terminal()?;
    }
    let path = PathTcpRun::open(args.options())?;
    output::install_interrupt_handler()?;
    let run = LiveRun::new("path tcp", args.target.to_string(), "row");
    let mut display = RunDisplay::start(run, args.live)?;
    let result = path.run(&|| output::check_stop_request().is_break(), &mut display);
    display.finish();
    let mut result = result?;
    files.finish(&mut result, &args.fail_if)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_whole_bytes() {
        assert_eq!(parse_sizes("1..64k:*2").unwrap().0.last(), Some(&65_536));
        assert_eq!(parse_sizes("64,1.5k").unwrap().0, [64, 1_536]);
        for wrong in ["0", "1.5", "-1", "", "a", "1e300"] {
            assert!(parse_sizes(wrong).is_err(), "{wrong}");
        }
    }
}
