//! `horolog query`: flags to a query, its result as text, JSON, page and table.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

mod figures;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clap::Args;
use horolog_io::target::{Family, TargetName};
use horolog_probe::query::{Algorithm, COUNT, KE_PORT, NtsOptions, Query, QueryOptions, Trust};
use horolog_report::{csv, html, table, to_json};

use self::figures::Figure;
use crate::ci::CiArgs;
use crate::failure::{Failure, verdict};
use crate::files::Files;
use crate::keep::KeepArgs;
use crate::limit::Limit;
use crate::output::{self, Progress};
use crate::values;

/// Ask time servers how far their clocks are from this machine's, once or over a long run, several
/// side by side.
///
/// An exchange has four timestamps: T1 when the request left and T4 when the reply came, by this
/// machine's clock; T2 when the request came and T3 when the reply left, by the server's. They give
/// the offset θ = ((T2 − T1) + (T3 − T4)) / 2 and the round-trip delay δ = (T4 − T1) − (T3 − T2)
/// (RFC 5905, section 8; equations (6) and (7) of Liu, Wu and Wang 2020,
/// doi:10.13875/j.issn.1674-0637.2020-01-0018-11). The offset is off by at most half the delay and
/// the dispersion, which is shown as its bound; what is shown of each server is the exchange of the
/// least delay. Jitter is the root mean square of the others' distance from it.
///
/// More than 8 exchanges are described by mean, standard deviation, root mean square, extremes and
/// percentiles of offset, delay and dispersion, by the drift (the straight line through the
/// offsets) and by the overlapping Allan deviation of the offsets at octaves of the interval. All
/// of them are against this machine's clock, so they include what that clock does; differences
/// between servers do not. For the accuracy test of the paper: --count 10000 --interval 1s.
///
/// T1 and T4 are taken by the kernel where it can, else by this program; the result says which.
#[derive(Args, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(crate) struct QueryArgs {
    /// The servers, each as ADDRESS, ADDRESS:PORT, [IPV6]:PORT, NAME or NAME:PORT.
    #[arg(value_name = "SERVER", required = true)]
    targets: Vec<TargetName>,
    /// Exchanges with each server, up to 1000000; one whose reply is lost counts too.
    #[arg(short = 'n', long, value_name = "N", default_value_t = COUNT)]
    count: u64,
    /// Time from one exchange to the next [default: 200ms; for public addresses 1s, and 16s for
    /// more than 8 exchanges, which are the least there].
    #[arg(long, value_name = "TIME", value_parser = values::positive_duration)]
    interval: Option<Duration>,
    /// How long a reply may take, 1ms to 60s; later ones count as late. The next exchange waits for
    /// the end of this one.
    #[arg(long, value_name = "TIME", value_parser = values::positive_duration, default_value = "1s")]
    timeout: Duration,
    /// NTP version of the requests, 1 to 4.
    #[arg(long, value_name = "N", default_value_t = 4)]
    ntp_version: u8,
    /// Ask in interleaved mode (RFC 9769): T3 is then when the reply really left, which the next
    /// reply tells. One more request is sent at the end.
    #[arg(long)]
    interleaved: bool,
    /// Take T1 and T4 by the network card's own clock, converted to the system's; where it cannot,
    /// by the kernel. Needs CAP_NET_ADMIN and a card with such a clock (`ethtool -T`).
    #[arg(long)]
    hardware_timestamps: bool,
    /// Interface to ask by [default: where the route leads].
    #[arg(short, long, value_name = "IF")]
    interface: Option<String>,
    /// Only IPv4 addresses of names.
    #[arg(short = '4', conflicts_with = "ipv6")]
    ipv4: bool,
    /// Only IPv6 addresses of names.
    #[arg(short = '6')]
    ipv6: bool,
    /// The servers with public addresses are yours: ask them as often as you like.
    #[arg(long)]
    i_own_this_target: bool,
    /// Authenticate requests by NTS (RFC 8915), each with a fresh cookie, and verify the replies.
    #[arg(long, requires = "ca")]
    nts: bool,
    /// The server for NTS key establishment: HOST or HOST:PORT [default: each server, port 4460].
    #[arg(long, value_name = "HOST", requires = "nts", value_parser = establishment)]
    nts_ke: Option<TargetName>,
    /// PEM file of the certificates to trust in key establishment.
    #[arg(long, value_name = "FILE", requires = "nts")]
    ca: Option<PathBuf>,
    /// The name that the certificate has to be for [default: the one that the server is called by].
    #[arg(long, value_name = "NAME", requires = "nts")]
    nts_name: Option<String>,
    /// Write the result, with every sample, to this file; to standard output with -, instead of the
    /// text.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the result as a page with plots to this file.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// End with status 1 if this holds of a server, such as 'offset>1ms' or 'loss>10%'; may be
    /// given more than once. Metrics: offset (either way), bound, delay, of the exchange of the
    /// least delay; jitter; mean, rms, max (either way), of all offsets; loss. What was not
    /// measured breaks its limit.
    #[arg(long, value_name = "LIMIT", value_parser = figures::limit)]
    fail_if: Vec<Limit<Figure>>,
    #[command(flatten)]
    ci: CiArgs,
    #[command(flatten)]
    keep: KeepArgs,
    /// Write every sample as a line of comma-separated values to this file; to standard output with
    /// -, instead of the text.
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
}

fn establishment(text: &str) -> Result<TargetName, String> {
    TargetName::parse(text, KE_PORT).map_err(|error| error.to_string())
}

impl QueryArgs {
    fn resolve(self) -> Result<QueryOptions, Failure> {
        let nts = if self.nts {
            Some(NtsOptions {
                establishment: self.nts_ke,
                name: self.nts_name,
                trust: Trust::from_pem_file(self.ca.as_deref()).map_err(Failure::usage)?,
                algorithms: vec![Algorithm::AesSivCmac256, Algorithm::Aes128GcmSiv],
            })
        } else {
            None
        };
        Ok(QueryOptions {
            family: match (self.ipv4, self.ipv6) {
                (true, _) => Some(Family::V4),
                (_, true) => Some(Family::V6),
                _ => None,
            },
            interface: self.interface,
            i_own_this_target: self.i_own_this_target,
            count: self.count,
            interval: self.interval,
            timeout: self.timeout,
            version: self.ntp_version,
            interleaved: self.interleaved,
            nts,
            hardware_timestamps: self.hardware_timestamps,
            command: output::command_line(),
            ..QueryOptions::new(self.targets)
        })
    }
}

pub(crate) fn run(args: QueryArgs) -> Result<(), Failure> {
    let flags = [("--json", &args.json), ("--html", &args.html), ("--csv", &args.csv)];
    args.ci.open(&flags.map(|(flag, path)| (flag, path.as_deref())))?;
    let files = Files::open(flags)?.kept(&args.keep);
    let limits = args.fail_if.clone();
    let options = args.resolve()?;
    output::end_gently()?;
    let query = Query::prepare(options)?;
    let (total, done) = (query.exchanges(), AtomicU64::new(0));
    let progress = Progress::new();
    let one_more = || {
        progress.counted(done.fetch_add(1, Ordering::Relaxed) + 1, total, "exchanges");
    };
    let mut result = query.run(&one_more, &|| output::flow().is_break());
    progress.finish();
    result.limits = limits.iter().map(|limit| figures::judge(limit, &result)).collect();
    files.write(&result, [to_json, html::query, csv::query], table::query)?;
    verdict(&result.limits, &result.findings)
}
