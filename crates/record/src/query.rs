//! The result of `horolog query`: how far servers' clocks are from this machine's, as often as they
//! were asked, and what that says of them.
//!
//! Of the four timestamps of an exchange, T1 and T4 are this machine's and T2 and T3 the server's.
//! Offset and delay are worked out from them as RFC 5905, section 8, has it; these are equations
//! (6) and (7) of Liu, Wu and Wang, "Design of NTP server based on multi-core processor" (Journal
//! of Time and Frequency, 2020, doi:10.13875/j.issn.1674-0637.2020-01-0018-11).

use std::collections::BTreeMap;
use std::net::IpAddr;

use horolog_stats::Spread;
use serde::{Deserialize, Serialize};

use crate::{Finding, Host, InvalidReason, LimitResult};

/// The schema's name and version.
pub const QUERY_SCHEMA: &str = "horolog.query/1";

/// A whole run against one server or several at the same time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueryResult {
    /// [`QUERY_SCHEMA`].
    pub schema: String,
    /// When the run began, RFC 3339.
    pub started: String,
    /// The command that was given.
    pub command: Vec<String>,
    /// The machine that asked, whose clock the servers' are compared with.
    pub host: Host,
    /// NTP version of the requests.
    pub ntp_version: u8,
    /// Whether requests were in interleaved mode (RFC 9769).
    pub interleaved: bool,
    /// Exchanges with each server that were asked for.
    pub count: u64,
    /// The time from one exchange to the next, in ns.
    pub interval_ns: u64,
    /// A reply that takes longer than this counts as late, in ns.
    pub reply_timeout_ns: u64,
    /// The servers, in the order in which they were named.
    pub servers: Vec<ServerResult>,
    /// How far apart the servers are, each pair once.
    pub differences: Vec<Difference>,
    /// The limits of `--fail-if`; earlier results have none.
    #[serde(default)]
    pub limits: Vec<LimitResult>,
    /// Doubts about the numbers.
    pub findings: Vec<Finding>,
}

/// One server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServerResult {
    /// The server as it was named, with the port where that is not 123.
    pub name: String,
    /// Its address, where the name has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// The UDP port; after key establishment it may be another than was named.
    pub port: u16,
    /// How exchanges were authenticated, where they were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nts: Option<NtsUse>,
    /// The interface whose own clock was asked for timestamps, and the number of that clock, where
    /// there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware_clock: Option<HardwareClock>,
    /// What the server said of itself in its last valid reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub says: Option<ServerState>,
    /// What became of the requests.
    pub counts: QueryCounts,
    /// Why the server was asked less often than was planned, where it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<QueryEnd>,
    /// By whom the timestamps of requests that left (T1) were taken.
    pub transmit_stamps: StampCounts,
    /// By whom the timestamps of replies that came (T4) were taken.
    pub receive_stamps: StampCounts,
    /// The offset by equation (6), in ns: how far the server's clock is ahead of this machine's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset_ns: Option<Figures>,
    /// The round-trip delay by equation (7), in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_ns: Option<Figures>,
    /// The dispersion of a sample (RFC 5905, section 8), in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dispersion_ns: Option<Figures>,
    /// The sample of the least delay, which tells the offset best (RFC 5905, section 10).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best: Option<Best>,
    /// Root mean square of the other samples' distance from the best one's offset (RFC 5905,
    /// section 10), in ns; absent with fewer than two samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter_ns: Option<f64>,
    /// The straight line through the offsets, where there are three samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drift: Option<Drift>,
    /// The overlapping Allan deviation of the offsets, by rising averaging time.
    pub allan: Vec<AllanDeviation>,
    /// The samples in the order in which they were taken. Left out of a page where they are many.
    pub samples: Vec<Sample>,
}

/// How exchanges were authenticated by NTS (RFC 8915).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NtsUse {
    /// The server that established the keys, with its port.
    pub establishment: String,
    /// The AEAD algorithm.
    pub algorithm: String,
    /// Key establishments, the first one included.
    pub establishments: u64,
}

/// An interface's own clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HardwareClock {
    /// The interface.
    pub interface: String,
    /// N of `/dev/ptpN`.
    pub clock: u32,
    /// How far its last comparison with the system clock may have been off, in ns. The dispersion
    /// of each sample includes it.
    pub conversion_uncertainty_ns: u64,
}

/// What a server says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerState {
    /// Leap indicator.
    pub leap: LeapState,
    /// NTP version of the reply.
    pub version: u8,
    /// Stratum; 16 is unsynchronised.
    pub stratum: u8,
    /// Reference identifier as text: four characters of stratum 1, an IPv4 address or a hash above.
    pub reference_id: String,
    /// The time from the reference clock and back, in ns.
    pub root_delay_ns: u64,
    /// How far the server may be off from the reference clock beside that, in ns.
    pub root_dispersion_ns: u64,
    /// Precision of the server's clock, log2 of seconds.
    pub precision: i8,
}

/// The leap indicator (RFC 5905, figure 9).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LeapState {
    /// No leap second is near.
    None,
    /// The last minute of the day has 61 seconds.
    Insert,
    /// The last minute of the day has 59 seconds.
    Delete,
    /// The clock is not synchronised.
    Unsynchronised,
}

/// What became of the requests to a server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueryCounts {
    /// Requests that left.
    pub sent: u64,
    /// Valid replies within the time allowed, each request's first one only.
    pub received: u64,
    /// `sent` less `received`: neither late nor invalid replies are taken off.
    pub lost: u64,
    /// Valid replies in interleaved mode, of `received`.
    pub interleaved: u64,
    /// Further replies to a request that was answered already.
    pub duplicate: u64,
    /// Replies that came after the time allowed.
    pub late: u64,
    /// Replies that were not valid, by reason.
    pub invalid: BTreeMap<InvalidReason, u64>,
    /// Kisses of death (RFC 5905, section 7.4), by their code.
    pub kisses: BTreeMap<String, u64>,
    /// Messages of the network that the server or its port cannot be reached (ICMP).
    pub unreachable: u64,
    /// Requests that the own sending path refused; they are not among `sent`.
    pub refused: u64,
}

/// Why a server was asked less often than was planned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueryEnd {
    /// The kind of reason.
    pub reason: QueryEndReason,
    /// What happened.
    pub message: String,
}

/// The kinds of reason why a server was not asked any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum QueryEndReason {
    /// The run was ended before it was through.
    Interrupted,
    /// The server demanded it by a kiss of death.
    Kiss,
    /// The name has no address.
    Unresolved,
    /// There is no way to the server, or no socket for it.
    Unreachable,
    /// Key establishment gave no keys.
    NoKeys,
}

/// How many timestamps were taken by whom.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StampCounts {
    /// By the network card.
    pub hardware: u64,
    /// By the kernel.
    pub kernel: u64,
    /// By this program.
    pub user: u64,
}

/// Who took a timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StampKind {
    /// The network card.
    Hardware,
    /// The kernel.
    Kernel,
    /// This program.
    User,
}

/// Figures of signed values in nanoseconds, exact.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// How many values there were; never 0.
    pub count: u64,
    /// Arithmetic mean.
    pub mean: f64,
    /// Standard deviation of the population.
    pub stddev: f64,
    /// Root mean square.
    pub rms: f64,
    /// Smallest value.
    pub min: i64,
    /// 1st percentile.
    pub p1: i64,
    /// 5th percentile.
    pub p5: i64,
    /// Median.
    pub p50: i64,
    /// 95th percentile.
    pub p95: i64,
    /// 99th percentile.
    pub p99: i64,
    /// Largest value.
    pub max: i64,
}

impl From<Spread> for Figures {
    fn from(spread: Spread) -> Self {
        let Spread { count, mean, stddev, rms, min, p1, p5, p50, p95, p99, max } = spread;
        Self { count: count as u64, mean, stddev, rms, min, p1, p5, p50, p95, p99, max }
    }
}

/// The best sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Best {
    /// Its offset.
    pub offset_ns: i64,
    /// Its delay.
    pub delay_ns: i64,
    /// Its dispersion.
    pub dispersion_ns: u64,
    /// Half the delay and the dispersion: the offset is off by no more, whichever way the packets
    /// took longer.
    pub bound_ns: u64,
}

/// The straight line through the offsets, by least squares.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Drift {
    /// How much the server's clock gains on this machine's, in parts per million.
    pub ppm: f64,
    /// Standard error of that, if what the line leaves over is white noise.
    pub error_ppm: f64,
    /// Standard deviation of what the line leaves over, in ns.
    pub residual_ns: f64,
}

/// The Allan deviation at one averaging time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct AllanDeviation {
    /// The averaging time, in seconds.
    pub tau_s: f64,
    /// The deviation of the fractional frequency, without a unit.
    pub deviation: f64,
    /// Second differences that it was worked out from.
    pub terms: u64,
}

/// One exchange. Instants are in ns since 1970 (UTC, leap seconds not counted).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// Intervals from the start of the run to this exchange; lost ones are missing.
    pub sequence: u64,
    /// When the request left, by this machine's clock.
    pub t1_ns: i64,
    /// When it came, by the server's clock.
    pub t2_ns: i64,
    /// When the reply left, by the server's clock.
    pub t3_ns: i64,
    /// When it came, by this machine's clock.
    pub t4_ns: i64,
    /// Equation (6): ((T2 − T1) + (T3 − T4)) / 2.
    pub offset_ns: i64,
    /// Equation (7): (T4 − T1) − (T3 − T2).
    pub delay_ns: i64,
    /// The server's precision, this machine's, and what a clock gains in T4 − T1 (RFC 5905, section
    /// 8).
    pub dispersion_ns: u64,
    /// Who took T1.
    pub transmit: StampKind,
    /// Who took T4.
    pub receive: StampKind,
    /// Whether T3 is that of an interleaved reply: when the reply really left.
    pub interleaved: bool,
}

impl Sample {
    /// How far the offset may be off, in ns: half the delay and the dispersion.
    #[must_use]
    pub const fn bound_ns(&self) -> u64 {
        (self.delay_ns.unsigned_abs() / 2).saturating_add(self.dispersion_ns)
    }
}

/// How far two servers are apart.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    /// The index of one server.
    pub first: usize,
    /// The index of the other.
    pub second: usize,
    /// Exchanges with both that belong together.
    pub pairs: u64,
    /// The first one's offset less the second one's, of the pair with the tightest bound, in ns.
    pub offset_ns: i64,
    /// How far that may be off, in ns.
    pub bound_ns: u64,
    /// The same, the mean of all pairs, in ns.
    pub mean_ns: f64,
    /// Whether the two cannot both be right within their bounds.
    pub contradiction: bool,
}
