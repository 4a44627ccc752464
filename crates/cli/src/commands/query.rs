//! `horolog query`: flags to query options, and the result as text, JSON, HTML report and CSV.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clap::Args;
use horolog_io::target::{AddressFamily, TargetName};
use horolog_probe::query::{
    AeadAlgorithm, COUNT, KE_PORT, PreparedQuery, QueryNtsOptions, QueryOptions, TrustAnchors,
};
use horolog_record::QueryResult;
use horolog_report::{RenderableResult, csv, to_json};

use crate::ci::CiOutputArgs;
use crate::failure::CommandFailure;
use crate::files::ResultFiles;
use crate::limit::MetricLimit;
use crate::output::{self, ProgressLine};
use crate::result_store::StoreResultArgs;
use crate::values;

/// Measure the clock offsets of one or more time servers from this host, once or over a long run.
///
/// An exchange has four timestamps: T1 when the request left and T4 when the reply arrived, by this
/// host's clock; T2 when the request arrived and T3 when the reply left, by the server's. They give
/// the offset θ = ((T2 − T1) + (T3 − T4)) / 2 and the round-trip delay δ = (T4 − T1) − (T3 − T2)
/// (RFC 5905, section 8; equations (6) and (7) of Liu, Wu and Wang, "Design of NTP server based on
/// multi-core processor", Journal of Time and Frequency 43 (2020), 1, 18-28,
/// doi:10.13875/j.issn.1674-0637.2020-01-0018-11). The error of the offset is at most its bound,
/// δ/2 + ε, relative to the server's clock. The dispersion ε is the precision of both clocks plus
/// 15 ppm of T4 − T1 (plus the conversion error of hardware timestamps). Root delay and root
/// dispersion of the server are not included. The result shows each server's exchange with the
/// least delay. Jitter (RFC 5905) is the root mean square of the differences between the offsets of
/// the other exchanges and the offset of that one.
///
/// More than 8 exchanges are described by mean, standard deviation, root mean square, extremes and
/// percentiles of offset, delay and dispersion, by the drift (frequency offset: slope of the
/// least-squares line through the offsets) and by the overlapping Allan deviation of the offsets at
/// averaging times of 1, 2, 4, ... intervals. All values are relative to this host's clock and
/// include its errors; differences between servers do not. An offset is positive if the server's
/// clock is ahead. The accuracy test of the paper is --count 10000 --interval 1s.
///
/// T1 and T4 are taken by the kernel if possible, otherwise by this program; the result states
/// which.
#[derive(Args, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(crate) struct QueryArgs {
    /// Servers, each as ADDRESS, ADDRESS:PORT, [IPV6]:PORT, NAME or NAME:PORT; a link-local address
    /// as IPV6%INTERFACE or [IPV6%INTERFACE]:PORT.
    #[arg(value_name = "SERVER", required = true)]
    targets: Vec<TargetName>,
    /// Exchanges with each server, up to 1000000, including lost ones.
    #[arg(short = 'n', long, value_name = "N", default_value_t = COUNT)]
    count: u64,
    /// Interval between exchanges [default: 200ms; for public addresses without
    /// --i-own-this-target, 1s for up to 8 exchanges and 16s for more, which are also the minimum].
    #[arg(long, value_name = "TIME", value_parser = values::positive_duration)]
    interval: Option<Duration>,
    /// Timeout of a reply, 1ms to 60s. An exchange without a reply by then is lost; a later reply
    /// is counted as late. The next exchange starts only after a reply or the timeout.
    #[arg(long, value_name = "TIME", value_parser = values::positive_duration, default_value = "1s")]
    timeout: Duration,
    /// NTP version of the requests, 1 to 4.
    #[arg(long, value_name = "N", default_value_t = 4)]
    ntp_version: u8,
    /// Send requests in interleaved mode (RFC 9769): T3 is then the actual transmit time, which the
    /// next reply carries. One more request is sent at the end.
    #[arg(long)]
    interleaved: bool,
    /// Take T1 and T4 from the NIC's clock, converted to the system clock, or from the kernel if
    /// that fails. Requires CAP_NET_ADMIN and a NIC with a PHC (`ethtool -T`).
    #[arg(long)]
    hardware_timestamps: bool,
    /// Interface to send from [default: by the route].
    #[arg(short, long, value_name = "IF")]
    interface: Option<String>,
    /// Use only IPv4 addresses of names.
    #[arg(short = '4', conflicts_with = "ipv6")]
    ipv4: bool,
    /// Use only IPv6 addresses of names.
    #[arg(short = '6')]
    ipv6: bool,
    /// Confirm that servers with public addresses are yours, which removes the limits on requests
    /// to them.
    #[arg(long)]
    i_own_this_target: bool,
    /// Authenticate requests by NTS (RFC 8915), each with a fresh cookie, and verify the replies.
    #[arg(long, requires = "ca")]
    nts: bool,
    /// NTS-KE server: HOST or HOST:PORT [default: each server, port 4460].
    #[arg(long, value_name = "HOST", requires = "nts", value_parser = parse_nts_ke_server)]
    nts_ke: Option<TargetName>,
    /// PEM file of the certificates to trust in NTS-KE; required with --nts.
    #[arg(long, value_name = "FILE", requires = "nts")]
    ca: Option<PathBuf>,
    /// Name that the certificate must be valid for [default: the NTS-KE server as given].
    #[arg(long, value_name = "NAME", requires = "nts")]
    nts_name: Option<String>,
    /// Write the result with every sample to FILE as JSON; '-' writes it to standard output instead
    /// of the text.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write an HTML report with plots to FILE.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Exit with status 1 if this expression is true for a server, such as 'offset>1ms' or
    /// 'loss>10%'. Repeatable. A limit on a metric that was not measured fails.
    ///
    /// Metrics: offset (absolute value), bound and delay of the exchange with the least delay;
    /// jitter; mean (absolute value of the mean), rms and max (largest absolute value) of all
    /// offsets; loss and unsynchronised (shares of the requests).
    #[arg(long, value_name = "LIMIT", value_parser = MetricLimit::<QueryResult>::parse)]
    fail_if: Vec<MetricLimit<QueryResult>>,
    #[command(flatten)]
    ci: CiOutputArgs,
    #[command(flatten)]
    store_args: StoreResultArgs,
    /// Write every sample to FILE as a line of comma-separated values; '-' writes them to standard
    /// output instead of the text.
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
}

fn parse_nts_ke_server(text: &str) -> Result<TargetName, String> {
    TargetName::parse(text, KE_PORT).map_err(|error| error.to_string())
}

impl QueryArgs {
    fn resolve(self) -> Result<QueryOptions, CommandFailure> {
        let nts = if self.nts {
            Some(QueryNtsOptions {
                ke_server: self.nts_ke,
                name: self.nts_name,
                trust: TrustAnchors::from_pem_file(self.ca.as_deref())
                    .map_err(CommandFailure::usage)?,
                algorithms: vec![AeadAlgorithm::AesSivCmac256, AeadAlgorithm::Aes128GcmSiv],
            })
        } else {
            None
        };
        Ok(QueryOptions {
            family: match (self.ipv4, self.ipv6) {
                (true, _) => Some(AddressFamily::V4),
                (_, true) => Some(AddressFamily::V6),
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

pub(crate) fn run(args: QueryArgs) -> Result<(), CommandFailure> {
    let flags = [("--json", &args.json), ("--html", &args.html), ("--csv", &args.csv)];
    args.ci.open(&flags.map(|(flag, path)| (flag, path.as_deref())))?;
    let files = ResultFiles::open(flags)?.with_store(&args.store_args);
    let limits = args.fail_if.clone();
    let options = args.resolve()?;
    output::install_interrupt_handler()?;
    let query = PreparedQuery::prepare(options)?;
    let (total, done) = (query.exchange_count(), AtomicU64::new(0));
    let progress = ProgressLine::new();
    let count_exchange = || {
        progress.set_count(done.fetch_add(1, Ordering::Relaxed) + 1, total, "exchanges");
    };
    let mut result = query.run(&count_exchange, &|| output::check_stop_request().is_break());
    progress.finish();
    files.finish_with(&mut result, &limits, [to_json, RenderableResult::page, csv::query])
}
