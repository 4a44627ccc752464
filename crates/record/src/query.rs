//! Result of `horolog query`: offsets of servers' clocks from this host's, one per exchange, and
//! their evaluation.
//!
//! Of the four timestamps of an exchange, T1 and T4 are this host's and T2 and T3 the server's.
//! Offset and delay are computed from them as in RFC 5905, section 8; these are equations (6) and
//! (7) of Liu, Wu and Wang, "Design of NTP server based on multi-core processor" (Journal of Time
//! and Frequency, 2020, doi:10.13875/j.issn.1674-0637.2020-01-0018-11).

use std::collections::BTreeMap;
use std::net::IpAddr;

use horolog_stats::ExactSummary;
use serde::{Deserialize, Serialize};

use crate::{Finding, Host, InvalidReason, LimitResult};

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
    /// Host that sent the requests, with whose clock the servers' are compared.
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
    /// Servers, in the order named.
    pub servers: Vec<ServerResult>,
    /// Offsets between servers, each pair once.
    pub differences: Vec<Difference>,
    /// Limits of `--fail-if`; absent from earlier results.
    #[serde(default)]
    pub limits: Vec<LimitResult>,
    /// Findings about the result.
    pub findings: Vec<Finding>,
}

/// Result for one server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServerResult {
    /// Name of the server as given, with the port if that is not 123.
    pub name: String,
    /// Address, if the name has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// UDP port; after NTS-KE it may differ from the one named.
    pub port: u16,
    /// Authentication of the exchanges, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nts: Option<NtsUse>,
    /// Interface from whose PHC timestamps were requested, and the number of that PHC, if there was
    /// one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware_clock: Option<HardwareClock>,
    /// State of the server in its last valid reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_state: Option<ServerState>,
    /// Outcomes of the requests.
    pub counts: QueryCounts,
    /// Reason for fewer requests than planned, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<QueryEnd>,
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
    /// Root mean square of the distances of the other samples' offsets from that of the best one
    /// (RFC 5905, section 10), in ns; absent with fewer than two samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter_ns: Option<f64>,
    /// Straight line through the offsets, if there are three samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drift: Option<Drift>,
    /// Overlapping Allan deviation of the offsets, by rising averaging time.
    pub allan: Vec<AllanDeviation>,
    /// Samples in the order in which they were taken. Omitted from an HTML report if there are
    /// many.
    pub samples: Vec<ExchangeSample>,
}

/// Authentication of exchanges by NTS (RFC 8915).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NtsUse {
    /// NTS-KE server that supplied the keys, with its port.
    pub ke_server: String,
    /// AEAD algorithm.
    pub algorithm: String,
    /// NTS-KE exchanges, including the first.
    pub ke_exchanges: u64,
    /// NTP server that NTS-KE named instead of the target, with its port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// NTS-KE exchanges after requests under the old keys were rejected or not answered.
    #[serde(default)]
    pub renewals: u64,
    /// Attempts at such an exchange that yielded no keys.
    #[serde(default)]
    pub renewals_failed: u64,
    /// AEAD algorithm that is no longer offered because keys obtained for it did not fit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub abandoned_algorithm: Option<String>,
}

/// PHC of an interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HardwareClock {
    /// Interface.
    pub interface: String,
    /// N of `/dev/ptpN`.
    pub clock: u32,
    /// Error bound of its last comparison with the system clock, in ns. The dispersion of each
    /// sample includes it.
    pub conversion_uncertainty_ns: u64,
}

/// State that a server reports about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerState {
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
    /// Dispersion relative to the reference clock in addition to that, in ns.
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
    /// `sent` minus `received`; late and invalid replies are not subtracted.
    pub lost: u64,
    /// Valid replies in interleaved mode, of `received`.
    pub interleaved: u64,
    /// Replies of `received` whose server reports that it is not synchronised; absent from earlier
    /// results.
    #[serde(default)]
    pub unsynchronised: u64,
    /// Further replies to an already answered request.
    pub duplicate: u64,
    /// Replies after the timeout.
    pub late: u64,
    /// Invalid replies by reason.
    pub invalid: BTreeMap<InvalidReason, u64>,
    /// Kisses of death (RFC 5905, section 7.4), by code.
    pub kisses: BTreeMap<String, u64>,
    /// Network messages that the server or its port is unreachable (ICMP).
    pub unreachable: u64,
    /// Requests refused by the own sending path; they are not included in `sent`.
    pub refused: u64,
}

/// Reason for which a server received fewer requests than planned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueryEnd {
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
    /// The server demanded it by a kiss of death.
    Kiss,
    /// The name has no address.
    Unresolved,
    /// There is no route to the server, or no socket for it.
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

/// Sample with the least delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BestSample {
    /// Offset of the sample.
    pub offset_ns: i64,
    /// Delay of the sample.
    pub delay_ns: i64,
    /// Dispersion of the sample.
    pub dispersion_ns: u64,
    /// Half the delay plus the dispersion: the error bound of the offset, whichever direction took
    /// longer.
    pub bound_ns: u64,
}

/// Straight line through the offsets, by least squares.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Drift {
    /// Gain of the server's clock over this host's, in parts per million.
    pub ppm: f64,
    /// Standard error of that gain, if the residuals are white noise.
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
    /// Second differences used.
    pub terms: u64,
}

/// One exchange. Instants are in ns since 1970 (UTC, leap seconds not counted).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExchangeSample {
    /// Intervals from the start of the run to this exchange; lost ones are missing.
    pub sequence: u64,
    /// Departure of the request, by this host's clock.
    pub t1_ns: i64,
    /// Arrival of the request, by the server's clock.
    pub t2_ns: i64,
    /// Departure of the reply, by the server's clock.
    pub t3_ns: i64,
    /// Arrival of the reply, by this host's clock.
    pub t4_ns: i64,
    /// Equation (6): ((T2 − T1) + (T3 − T4)) / 2.
    pub offset_ns: i64,
    /// Equation (7): (T4 − T1) − (T3 − T2).
    pub delay_ns: i64,
    /// Sum of the server's precision, this host's, and the possible gain of a clock in T4 − T1 (RFC
    /// 5905, section 8).
    pub dispersion_ns: u64,
    /// Source of T1.
    pub transmit: TimestampSource,
    /// Source of T4.
    pub receive: TimestampSource,
    /// True if T3 is that of an interleaved reply: the actual departure of the reply.
    pub interleaved: bool,
}

impl ExchangeSample {
    /// Returns the error bound of the offset, in ns: half the delay plus the dispersion.
    #[must_use]
    pub const fn bound_ns(&self) -> u64 {
        (self.delay_ns.unsigned_abs() / 2).saturating_add(self.dispersion_ns)
    }
}

/// Offset between two servers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    /// Index of the first server.
    pub first: usize,
    /// Index of the second server.
    pub second: usize,
    /// Matching exchanges with both.
    pub pairs: u64,
    /// Offset of the first server minus that of the second, of the pair with the tightest bound, in
    /// ns.
    pub offset_ns: i64,
    /// Error bound of that difference, in ns.
    pub bound_ns: u64,
    /// Mean difference of all pairs, in ns.
    pub mean_ns: f64,
    /// True if the two cannot both be correct within this bound and the errors that they state for
    /// their own time (root dispersion and half the root delay). An unsynchronised server states no
    /// time, so there is no contradiction.
    pub contradiction: bool,
}
