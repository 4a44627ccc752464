//! Flags that several commands of `horolog load` share: limits, capture, counters of the server's
//! host, timestamp offsets, compliant clients, extension fields and MACs.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use horolog_counters::BearerToken;
use horolog_http::Url;
use horolog_load::capture::{CaptureOptions, PACKETS_MAX};
use horolog_load::compliant_clients::CompliantClientOptions;
use horolog_load::limit::{LoadMetricLimit, MetricPrerequisite};
use horolog_load::offset::ServerOffsetOptions;
use horolog_load::remote_counters::RemoteCounterOptions;
use horolog_load::trailer::{KeyFile, KeyTable, RequestExtensionField, TrailerOptions};
use horolog_record::{CapacitySearchGoal, Finding, LimitResult};
use horolog_sys::private_file;
use horolog_time::{Span, text};
use horolog_wire::prefix::Prefix;
use zeroize::Zeroizing;

use crate::failure::{CommandFailure, check_findings, check_limits};
use crate::values;

/// Limits on the measured values.
#[derive(Args, Debug, Default)]
pub(crate) struct LoadMetricLimitArgs {
    /// Exit with status 1 if this expression is true for any trial, such as 'loss>0.1%' or
    /// 'p99>200us'; in a search, for the trials at the rate found. Repeatable. A limit on a metric
    /// that was not measured fails.
    ///
    /// Metrics: loss (without a valid reply in time), late (lost, but answered after the timeout),
    /// duplicate, invalid, unsynchronised (shares of the requests sent), compliant-loss (share of
    /// the compliant clients' requests that were lost), rate (sent per second), ndr and pdr (result
    /// of a search), p50, p90, p99, p99.9, p99.99, max (round trip), and these six with the prefix
    /// response- (the server's response time, by its own timestamps; unknown for PTP delay requests
    /// and grants), lateness- (send lateness) or offset- (absolute error of timestamps, with
    /// --measure-offset), such as response-p99.
    #[arg(long, value_name = "LIMIT")]
    fail_if: Vec<LoadMetricLimit>,
}

impl LoadMetricLimitArgs {
    /// Returns the limits; an error if one requires a feature that is not among `features`, those
    /// of the run.
    pub(crate) fn resolve(
        self,
        features: &[MetricPrerequisite],
    ) -> Result<Vec<LoadMetricLimit>, CommandFailure> {
        check_features(&self.fail_if, features)?;
        Ok(self.fail_if)
    }
}

/// Returns an error if a limit requires a feature that the run does not have.
pub(crate) fn check_features(
    limits: &[LoadMetricLimit],
    features: &[MetricPrerequisite],
) -> Result<(), CommandFailure> {
    for limit in limits {
        let required = limit.required_feature().filter(|wants| !features.contains(wants));
        let missing = match required {
            None => continue,
            Some(MetricPrerequisite::Search(CapacitySearchGoal::Ndr)) => {
                "a search; add --search ndr"
            }
            Some(MetricPrerequisite::Search(CapacitySearchGoal::Pdr)) => {
                "a search; add --search pdr"
            }
            Some(MetricPrerequisite::Offsets) => "offsets; add --measure-offset",
            Some(MetricPrerequisite::CompliantClients) => {
                "compliant clients; add --compliant-clients"
            }
        };
        let text = limit.text();
        return Err(CommandFailure::usage(format!("the limit '{text}' is for {missing}")));
    }
    Ok(())
}

/// Returns an error (exit status 1) if a finding of a load is an error, which takes precedence, or
/// if a limit failed.
pub(crate) fn check_findings_and_limits(
    findings: &[Finding],
    limits: &[LimitResult],
) -> Result<(), CommandFailure> {
    check_findings(findings)?;
    check_limits(limits)
}

/// Capture of the requests and replies, for Wireshark.
#[derive(Args, Debug)]
pub(crate) struct PacketCaptureArgs {
    /// Write the requests and replies to FILE in pcapng format. Above 10000 requests/s a sample is
    /// written: one request in two, four, eight and so on, with its reply. Requires CAP_NET_RAW and
    /// the engine packet or udp, and reduces the rate.
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// Largest number of packets to write [default: 1M].
    #[arg(long, value_name = "PACKETS", requires = "pcap", value_parser = text::count::<u64>)]
    pcap_max: Option<u64>,
}

impl PacketCaptureArgs {
    pub(crate) fn resolve(self) -> Option<CaptureOptions> {
        let packets_max = self.pcap_max.unwrap_or(PACKETS_MAX);
        self.pcap.map(|path| CaptureOptions { path, packets_max })
    }
}

/// Remote counters of the server's host.
#[derive(Args, Debug, Default)]
pub(crate) struct RemoteCounterArgs {
    /// URL of 'horolog counters' on the server's host, such as http://192.0.2.1:9323; read before
    /// and after each trial to locate losses.
    #[arg(long, value_name = "URL", requires = "counters_token_file", value_parser = parse_url)]
    counters: Option<Url>,
    /// File with the token for the counters of --counters.
    #[arg(long, value_name = "FILE", requires = "counters")]
    counters_token_file: Option<PathBuf>,
}

fn parse_url(text: &str) -> Result<Url, String> {
    text.parse().map_err(|error: horolog_http::UrlError| error.to_string())
}

impl RemoteCounterArgs {
    pub(crate) fn resolve(self) -> Result<Option<RemoteCounterOptions>, CommandFailure> {
        let (Some(url), Some(file)) = (self.counters, self.counters_token_file) else {
            return Ok(None);
        };
        let token = BearerToken::load(&file).map_err(CommandFailure::usage)?;
        Ok(Some(RemoteCounterOptions { url, token }))
    }
}

/// Measurement of timestamp offsets.
#[derive(Args, Debug, Default)]
pub(crate) struct TimestampOffsetMeasurementArgs {
    /// Measure the error of the server's transmit timestamps: the kernel receive time of the reply,
    /// minus the timestamp, minus this correction for transit and receiving, such as 0, 1.95e-6
    /// (seconds) or 2us.
    ///
    /// Only for NTP and NetSync Monitor requests: PTP delay responses and grants carry no transmit
    /// timestamp. Both clocks must be correct. The xdp engine takes the receive time slightly
    /// earlier, in the driver's receive path.
    #[arg(long, value_name = "CORRECTION", allow_hyphen_values = true)]
    measure_offset: Option<Span>,
    /// Use the mean of the server's receive and transmit timestamps instead of the latter.
    #[arg(long, requires = "measure_offset")]
    offset_mean: bool,
    /// Measure offsets by the timestamps of the NIC's clock instead of the kernel's; the whole
    /// seconds by which its timescale is ahead of UTC are subtracted. Not with the xdp engine.
    #[arg(long, requires = "measure_offset")]
    hardware_timestamps: bool,
}

impl TimestampOffsetMeasurementArgs {
    /// Returns true if timestamp offsets are measured.
    pub(crate) const fn is_measured(&self) -> bool {
        self.measure_offset.is_some()
    }

    pub(crate) fn resolve(self) -> Option<ServerOffsetOptions> {
        let (mean_of_server, hardware) = (self.offset_mean, self.hardware_timestamps);
        self.measure_offset.map(|correction| ServerOffsetOptions {
            correction,
            mean_of_server,
            hardware,
        })
    }
}

/// Measurements of single clients.
#[derive(Args, Debug, Default)]
pub(crate) struct PerClientMeasurementArgs {
    /// Count per client (8 bytes each) and report the fairness of the server: the smallest, median
    /// and largest share of a client's requests that were answered, Jain's index of these shares,
    /// and the number of clients without replies.
    #[arg(long, conflicts_with_all = ["random_sources", "profile", "overload"])]
    fairness: bool,
    /// Run N low-rate clients with their own addresses beside the load, and report the share of
    /// them and of their requests that rate limiting affects. Requires the engine xdp or packet.
    ///
    /// They send the same requests as the load, but in NTP's basic mode and without NTS. Not in
    /// 'load mix', and not with PTP over Ethernet, --soak, --profile or --overload.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000),
          conflicts_with_all = ["soak", "profile", "overload"])]
    compliant_clients: Option<u32>,
    /// Interval between the requests of each compliant client.
    #[arg(long, value_name = "TIME", default_value = "16s", requires = "compliant_clients",
          value_parser = values::positive_duration)]
    compliant_interval: Duration,
    /// Requests that each compliant client sends at once, 1 to 64.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "compliant_clients",
          value_parser = clap::value_parser!(u32).range(1..=64))]
    compliant_burst: u32,
    /// Network of the compliant clients [default: an unused part of the load's network].
    #[arg(long, value_name = "NETWORK/BITS", requires = "compliant_clients")]
    compliant_source: Option<Prefix>,
}

impl PerClientMeasurementArgs {
    /// Returns true if requests and replies are counted per client, to report the fairness.
    pub(crate) const fn has_fairness(&self) -> bool {
        self.fairness
    }

    /// Returns the options of the compliant clients; `None` without --compliant-clients.
    pub(crate) fn compliant_clients(&self) -> Option<CompliantClientOptions> {
        Some(CompliantClientOptions {
            clients: self.compliant_clients?,
            interval: self.compliant_interval,
            burst: self.compliant_burst,
            network: self.compliant_source,
        })
    }
}

/// Maximum length of a key file, in bytes.
const KEY_FILE_LEN_MAX: u64 = 1 << 20;

/// Trailer of the requests.
#[derive(Args, Debug)]
pub(crate) struct TrailerArgs {
    /// Authenticate requests by a MAC with this key of --keys; replies must carry a MAC of the same
    /// key.
    #[arg(long, value_name = "ID", requires = "keys")]
    key: Option<u32>,
    /// File of symmetric keys in the format of chronyd and ntpd: IDENTIFIER TYPE KEY on each line.
    #[arg(long, value_name = "FILE", requires = "key")]
    keys: Option<PathBuf>,
    /// Append an extension field (RFC 7822) to the header (in 'load mix', of ntp-mac requests): its
    /// type, and its body in hexadecimal digits, padded to a valid length. Repeatable.
    #[arg(long, value_name = "TYPE[:BODY]")]
    extension: Vec<RequestExtensionField>,
}

impl TrailerArgs {
    pub(crate) fn resolve(self) -> Result<TrailerOptions, CommandFailure> {
        let mac = match (self.key, &self.keys) {
            (Some(id), Some(path)) => Some((Arc::new(read_key_table(path, id)?), id)),
            _ => None,
        };
        Ok(TrailerOptions { fields: self.extension, mac })
    }
}

/// Reads a file of symmetric keys; an error if the key `id` is missing or unusable.
fn read_key_table(path: &Path, id: u32) -> Result<KeyTable, CommandFailure> {
    let at = path.display();
    let text = private_file::read_bytes(path, KEY_FILE_LEN_MAX).map(Zeroizing::new);
    let text = text.map_err(|error| CommandFailure::environment(format!("--keys {at} {error}")))?;
    let KeyFile { keys, unused } = KeyFile::parse(&text);
    match (keys.get(id), unused.is_empty()) {
        (Some(_), _) => Ok(keys),
        (None, true) => {
            Err(CommandFailure::usage(format!("--keys {at} has no key {id}; use one of that file")))
        }
        (None, false) => Err(CommandFailure::usage(format!(
            "--keys {at}: key {id} is not usable; unusable keys: {unused}"
        ))),
    }
}
