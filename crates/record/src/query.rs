//! Result of `horolog query`: offsets between the clocks of time servers and that of this host, one
//! sample per exchange, and their statistics.
//!
//! T1 to T4 are the four timestamps of an exchange: T1 and T4 by this host, T2 and T3 by the
//! server. Offset and delay follow from them as in RFC 5905, section 8; these are equations (6) and
//! (7) of Liu, Wu and Wang, "Design of NTP server based on multi-core processor" (Journal of Time
//! and Frequency, 2020, doi:10.13875/j.issn.1674-0637.2020-01-0018-11).

use std::collections::BTreeMap;
use std::net::IpAddr;

use horolog_stats::ExactSummary;
use serde::{Deserialize, Serialize};

use crate::{Finding, Host, InvalidReplyReason, LimitResult};

/// The schema's name and version.
pub const QUERY_SCHEMA: &str = "horolog.query/2";

/// Result of one run against one server or several at the same time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueryResult {
    /// [`QUERY_SCHEMA`].
    pub schema: String,
    /// Start of the run, RFC 3339.
    pub started: String,
    /// Command line of the run.
    pub command: Vec<String>,
    /// Host that sent the requests; offsets are relative to its clock.
    pub host: Host,
    /// NTP version of the requests.
    pub ntp_version: u8,
    /// True if requests were in interleaved mode (RFC 9769).
    pub interleaved: bool,
    /// Requested exchanges with each server.
    pub count: u64,
    /// Time between exchanges, in ns.
    pub interval_ns: u64,
    /// Timeout of a reply, in ns; a later one counts as late.
    pub reply_timeout_ns: u64,
    /// Servers, in the order of the command line.
    pub servers: Vec<QueryServerResult>,
    /// Differences between the offsets of servers, one entry per pair with comparable exchanges.
    pub differences: Vec<ServerOffsetDifference>,
    /// Limits of `--fail-if`; absent from earlier results.
    #[serde(default)]
    pub limits: Vec<LimitResult>,
    /// Findings about the result.
    pub findings: Vec<Finding>,
}

/// Result for one server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueryServerResult {
    /// Name of the server as on the command line, with the port if it is not 123.
    pub name: String,
    /// Address of the server; absent if its name could not be resolved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// UDP port; NTS-KE may have negotiated another port than the one on the command line.
    pub port: u16,
    /// NTS authentication of the exchanges; absent without NTS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nts: Option<NtsUseSummary>,
    /// Interface and PHC from which hardware timestamps were requested; absent if none were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware_clock: Option<PhcTimestampSource>,
    /// State of the server in its last valid reply; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_state: Option<QueriedServerState>,
    /// Outcomes of the requests.
    pub counts: QueryCounts,
    /// Reason why fewer requests were sent than planned; absent if all were sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<EarlyQueryEnd>,
    /// Sources of the timestamps of sent requests (T1).
    pub transmit_timestamps: TimestampCounts,
    /// Sources of the timestamps of received replies (T4).
    pub receive_timestamps: TimestampCounts,
    /// Offset by equation (6), in ns: positive if the server's clock is ahead of this host's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset_ns: Option<ExactSummary>,
    /// Round-trip delay by equation (7), in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_ns: Option<ExactSummary>,
    /// Dispersion of a sample (RFC 5905, section 8), in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dispersion_ns: Option<ExactSummary>,
    /// Sample with the least delay, which gives the best offset (RFC 5905, section 10).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best: Option<BestSample>,
    /// Jitter (RFC 5905, section 10): root mean square of the differences between the offset of the
    /// best sample and those of the others, in ns; absent with fewer than two samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter_ns: Option<f64>,
    /// Drift, by a straight line through the offsets; absent with fewer than three samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drift: Option<ClockDrift>,
    /// Overlapping Allan deviation of the offsets, by rising averaging time.
    pub allan: Vec<AllanDeviation>,
    /// Samples in the order in which they were taken. Omitted from an HTML report if there are
    /// many.
    pub samples: Vec<ExchangeSample>,
}

/// Authentication of exchanges by NTS (RFC 8915).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NtsUseSummary {
    /// NTS-KE server that supplied the keys, as name and port.
    pub ke_server: String,
    /// AEAD algorithm.
    pub algorithm: String,
    /// NTS-KE exchanges, including the first.
    pub ke_exchanges: u64,
    /// NTP server and port that NTS-KE named; absent if it is the target itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// Number of NTS-KE exchanges made because requests under the old keys were rejected or not
    /// answered.
    #[serde(default)]
    pub renewals: u64,
    /// Attempts to renew keys by NTS-KE that yielded none.
    #[serde(default)]
    pub renewals_failed: u64,
    /// AEAD algorithm that is no longer offered because keys obtained for it did not fit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub abandoned_algorithm: Option<String>,
}

/// PHC of an interface, as source of hardware timestamps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhcTimestampSource {
    /// Name of the interface.
    pub interface: String,
    /// N of `/dev/ptpN`.
    pub clock: u32,
    /// Error bound of the latest comparison between PHC and system clock, in ns; included in the
    /// dispersion of each sample.
    pub conversion_uncertainty_ns: u64,
}

/// State of a server as reported in its reply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueriedServerState {
    /// Leap indicator.
    pub leap: LeapState,
    /// NTP version of the reply.
    pub version: u8,
    /// Stratum; 0 and 16 are unsynchronised.
    pub stratum: u8,
    /// Reference identifier as text: four characters for stratum 1, an IPv4 address or a hash
    /// above; for stratum 0 a code such as `INIT`.
    pub reference_id: String,
    /// Round-trip delay to the reference clock, in ns.
    pub root_delay_ns: u64,
    /// Root dispersion: total dispersion relative to the reference clock, in ns.
    pub root_dispersion_ns: u64,
    /// Precision of the server's clock, log2 of seconds.
    pub precision: i8,
}

/// Leap indicator (RFC 5905, figure 9).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LeapState {
    /// No pending leap second.
    None,
    /// The last minute of the day has 61 seconds.
    Insert,
    /// The last minute of the day has 59 seconds.
    Delete,
    /// The clock is not synchronised.
    Unsynchronised,
}

/// Outcomes of the requests to a server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueryCounts {
    /// Requests sent.
    pub sent: u64,
    /// Valid replies within the timeout, only the first to each request.
    pub received: u64,
    /// `sent` minus `received`; it includes requests with late or invalid replies.
    pub lost: u64,
    /// Valid replies of `received` that were in interleaved mode.
    pub interleaved: u64,
    /// Replies of `received` whose server reports that it is not synchronised; absent from earlier
    /// results.
    #[serde(default)]
    pub unsynchronised: u64,
    /// Further replies to a request that was already answered.
    pub duplicate: u64,
    /// Replies after the timeout.
    pub late: u64,
    /// Invalid replies by reason.
    pub invalid: BTreeMap<InvalidReplyReason, u64>,
    /// Kisses of death (RFC 5905, section 7.4), by code.
    pub kisses: BTreeMap<String, u64>,
    /// ICMP messages that the server or its port is unreachable.
    pub unreachable: u64,
    /// Requests refused by the own sending path; they are not included in `sent`.
    pub refused: u64,
}

/// Reason why fewer requests were sent to a server than planned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EarlyQueryEnd {
    /// Kind of reason.
    pub reason: QueryEndReason,
    /// Description of the event.
    pub message: String,
}

/// Kinds of reasons for which requests to a server stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum QueryEndReason {
    /// The run was ended before completion.
    Interrupted,
    /// The server sent a kiss of death.
    Kiss,
    /// The name could not be resolved to an address.
    Unresolved,
    /// There is no route to the server, or no socket could be opened for it.
    Unreachable,
    /// NTS-KE yielded no keys.
    NoKeys,
}

/// Counts of timestamps by source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimestampCounts {
    /// Timestamps by the NIC.
    pub hardware: u64,
    /// Timestamps by the kernel.
    pub kernel: u64,
    /// Timestamps by this program.
    pub user: u64,
}

/// Source of a timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TimestampSource {
    /// NIC.
    Hardware,
    /// Kernel.
    Kernel,
    /// This program.
    User,
}

/// Sample with the least delay; one with an impossibly negative delay only if there is no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BestSample {
    /// Offset of the sample, in ns.
    pub offset_ns: i64,
    /// Delay of the sample, in ns.
    pub delay_ns: i64,
    /// Dispersion of the sample, in ns.
    pub dispersion_ns: u64,
    /// Error bound of the offset, in ns: half the magnitude of the delay plus the dispersion.
    pub bound_ns: u64,
}

/// Drift: slope of the offsets by a least-squares straight line.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClockDrift {
    /// Gain of the server's clock over this host's, in parts per million.
    pub ppm: f64,
    /// Standard error of `ppm`, assuming white noise of the residuals.
    pub error_ppm: f64,
    /// Standard deviation of the residuals, in ns.
    pub residual_ns: f64,
}

/// Allan deviation at one averaging time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct AllanDeviation {
    /// Averaging time, in seconds.
    pub tau_s: f64,
    /// Deviation of the fractional frequency, dimensionless.
    pub deviation: f64,
    /// Number of second differences from which it was computed.
    pub terms: u64,
}

/// Sample of one exchange. T1 to T4 are in ns since 1970 (UTC without leap seconds).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExchangeSample {
    /// Number of the exchange; numbers of lost exchanges are missing.
    pub sequence: u64,
    /// Departure of the request, by this host's clock.
    pub t1_ns: i64,
    /// Arrival of the request, by the server's clock.
    pub t2_ns: i64,
    /// Departure of the reply, by the server's clock.
    pub t3_ns: i64,
    /// Arrival of the reply, by this host's clock.
    pub t4_ns: i64,
    /// Offset by equation (6), in ns: ((T2 − T1) + (T3 − T4)) / 2.
    pub offset_ns: i64,
    /// Delay by equation (7), in ns: (T4 − T1) − (T3 − T2).
    pub delay_ns: i64,
    /// Sum of the server's precision, this host's, and the possible gain of a clock in T4 − T1 (RFC
    /// 5905, section 8).
    pub dispersion_ns: u64,
    /// Source of T1.
    pub transmit: TimestampSource,
    /// Source of T4.
    pub receive: TimestampSource,
    /// True if T3 is the actual transmit timestamp from an interleaved reply (RFC 9769).
    pub interleaved: bool,
}

impl ExchangeSample {
    /// Returns the error bound of the offset, in ns: half the magnitude of the delay plus the
    /// dispersion.
    #[must_use]
    pub const fn error_bound_ns(&self) -> u64 {
        (self.delay_ns.unsigned_abs() / 2).saturating_add(self.dispersion_ns)
    }
}

/// Difference between the offsets of two servers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServerOffsetDifference {
    /// Index of the first server.
    pub first: usize,
    /// Index of the second server.
    pub second: usize,
    /// Number of compared pairs: exchanges with the same number with both servers, without those
    /// whose delay is impossible.
    pub pairs: u64,
    /// Offset of the first server minus that of the second, of the pair with the tightest bound, in
    /// ns.
    pub offset_ns: i64,
    /// Error bound of that difference, in ns.
    pub bound_ns: u64,
    /// Mean difference of all pairs, in ns.
    pub mean_ns: f64,
    /// True if the servers contradict each other: the difference exceeds its error bound plus the
    /// errors that both servers state (root dispersion and half the root delay). Never true for an
    /// unsynchronised server, which states no time.
    pub contradiction: bool,
}
