//! Result of `horolog bench relay`: copies per second that a relay sends without loss, by packet
//! size, number of children and engine; CPU cost and added delay of a copy.

use serde::{Deserialize, Serialize};

use crate::{Distribution, Finding, Host, SearchEndReason};

/// The schema's name and version.
pub const BENCH_RELAY_SCHEMA: &str = "horolog.bench-relay/2";

/// Largest ratio of the highest to the lowest total over all numbers of children that counts as
/// flat.
pub const FLAT_RATIO_MAX: f64 = 1.25;

/// Relative decrease of a total from one number of children to the next that still counts as noise:
/// two searches for the same value differ by as much.
const FALL_TOLERANCE: f64 = 0.05;

/// Result of the experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BenchRelayResult {
    /// [`BENCH_RELAY_SCHEMA`].
    pub schema: String,
    /// Start of the run, RFC 3339.
    pub started: String,
    /// Command line of the run.
    pub command: Vec<String>,
    /// Host shared by source, relay and receivers.
    pub host: Host,
    /// Repetitions of each search; the engines take turns.
    pub repetitions: u32,
    /// Loss ratio that still counts as lossless.
    pub loss_ratio: f64,
    /// Number of hosts on which the children run, each behind an interface of its own at the relay.
    pub receivers: usize,
    /// Baseline without a relay, one entry per packet size.
    pub direct: Vec<NoRelayBaseline>,
    /// One entry per packet size, number of children and engine.
    pub cells: Vec<RelayConfigurationResult>,
    /// Findings about the experiment as a whole.
    pub findings: Vec<Finding>,
}

/// Engine that sends the copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RelayEngineKind {
    /// `send`: one system call per copy.
    Send,
    /// `sendmmsg`: one system call for many copies.
    Sendmmsg,
    /// In-kernel copies by XDP programs in the driver.
    Xdp,
}

impl RelayEngineKind {
    /// All variants.
    pub const ALL: [Self; 3] = [Self::Send, Self::Sendmmsg, Self::Xdp];

    /// Name, as taken by `horolog relay run --engine`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Sendmmsg => "sendmmsg",
            Self::Xdp => "xdp",
        }
    }
}

/// Baseline without a relay: rates and costs of source and receiver. The packets end at the
/// interface from which a relay would receive them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NoRelayBaseline {
    /// Bytes of UDP payload.
    pub size_bytes: usize,
    /// Threads of the source, each on its own core.
    pub source_threads: usize,
    /// Packets received per second while the source sends at its maximum rate.
    pub rate: f64,
    /// CPU time of receiving a frame that never was a socket buffer, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receiving_frame_ns: Option<f64>,
    /// CPU time of receiving a packet sent by a socket, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receiving_socket_ns: Option<f64>,
}

/// Results of one engine with one number of children and one packet size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RelayConfigurationResult {
    /// Bytes of UDP payload.
    pub size_bytes: usize,
    /// Children; each receives a copy of each packet.
    pub children: usize,
    /// Engine that sent the copies.
    pub engine: RelayEngineKind,
    /// Threads of the source, each on its own core.
    pub source_threads: usize,
    /// Largest number of packets that the source sends together.
    pub batch: u32,
    /// Command that ran the relay.
    pub relay_command: Vec<String>,
    /// One entry per repetition that was reached.
    pub repetitions: Vec<RelayRepetition>,
    /// From the sending of a packet by the source to its first copy, in ns; from all trials at half
    /// the rate found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_copy_ns: Option<Distribution>,
    /// From the sending of a packet by the source to its last copy, in ns; from the same trials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_copy_ns: Option<Distribution>,
    /// From the sending of a packet to its arrival at the interface from which a relay would
    /// receive it, in ns; measured without a relay at the same rates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direct_ns: Option<Distribution>,
}

/// One repetition: the result of a search for the highest rate without loss.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RelayRepetition {
    /// Copies per second received by all children together, at the highest rate at which none was
    /// lost; 0 if there was none.
    pub copies_per_s: f64,
    /// Highest packet rate without loss, per second; absent if there was none.
    pub lower: Option<f64>,
    /// Lowest packet rate above `lower` at which copies were lost, per second; absent if none was
    /// reached.
    pub upper: Option<f64>,
    /// Reason for the end of the search.
    pub end: SearchEndReason,
    /// Number of trials in the search.
    pub trials: usize,
    /// Copies received out of order or more than once, over all trials of the search.
    pub disordered: u64,
    /// Trial at half the rate found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub half_rate: Option<RelayHalfRateTrial>,
}

/// Trial at half of the highest rate without loss, in which the CPU cost is measured. Delays are
/// measured in a further trial at the same rate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RelayHalfRateTrial {
    /// Packets sent per second.
    pub rate: f64,
    /// Copies received.
    pub copies: u64,
    /// Copies not received, or late.
    pub lost: u64,
    /// CPU time of the whole host per copy, without the source's, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_ns_per_copy: Option<f64>,
    /// CPU time of the receivers per copy, in ns, as measured without a relay; included in
    /// `cpu_ns_per_copy`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receiving_ns_per_copy: Option<f64>,
}

impl RelayHalfRateTrial {
    /// Returns the relay's CPU time per copy, in ns, at least 0: the host's time minus the shares
    /// of source and receivers. `None` if a time was not measured.
    #[must_use]
    pub fn relay_ns_per_copy(&self) -> Option<f64> {
        Some((self.cpu_ns_per_copy? - self.receiving_ns_per_copy?).max(0.0))
    }
}

/// Returns the median of the finite values; `None` if there are none.
fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<_> = values.filter(|value| value.is_finite()).collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        count if count % 2 == 1 => Some(values[middle]),
        _ => Some(f64::midpoint(values[middle - 1], values[middle])),
    }
}

impl RelayConfigurationResult {
    /// Returns the copies per second of all children together without loss: the median of the
    /// repetitions, of which those that found no rate count as 0. `None` without a repetition, or
    /// if the median is 0.
    #[must_use]
    pub fn copies_per_s(&self) -> Option<f64> {
        median(self.repetitions.iter().map(|repetition| repetition.copies_per_s))
            .filter(|rate| *rate > 0.0)
    }

    /// Returns the delay added by the relay to the first copy at half of the rate: the differences
    /// of the 50th and of the 99th percentiles, in ns; negative if copies arrived sooner. `None` if
    /// the delay with or without the relay was not measured.
    #[must_use]
    pub fn added_ns(&self) -> Option<[i64; 2]> {
        let (direct, relayed) = (self.direct_ns.as_ref()?, self.first_copy_ns.as_ref()?);
        let percentiles: [fn(&Distribution) -> u64; 2] = [|times| times.p50, |times| times.p99];
        Some(
            percentiles.map(|percentile| {
                percentile(relayed).cast_signed() - percentile(direct).cast_signed()
            }),
        )
    }

    /// Returns the host's CPU time per copy without the source's, in ns, at half the rate: the
    /// median of the repetitions.
    #[must_use]
    pub fn cpu_ns_per_copy(&self) -> Option<f64> {
        median(self.half_rate_trials().filter_map(|half| half.cpu_ns_per_copy))
    }

    /// Returns the relay's share of the host's CPU time per copy, in ns: the median of the
    /// repetitions.
    #[must_use]
    pub fn relay_ns_per_copy(&self) -> Option<f64> {
        median(self.half_rate_trials().filter_map(RelayHalfRateTrial::relay_ns_per_copy))
    }

    fn half_rate_trials(&self) -> impl Iterator<Item = &RelayHalfRateTrial> {
        self.repetitions.iter().filter_map(|repetition| repetition.half_rate.as_ref())
    }
}

/// Shape of an engine's totals (copies per second to all children) of one packet size over the
/// number of children.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RelayScaling {
    /// Highest total of copies per second.
    pub highest: f64,
    /// Ratio of the highest total to the lowest.
    pub spread: f64,
    /// Total with the most children as a multiple of the total with the fewest.
    pub growth: f64,
    /// Ratio of the largest to the smallest number of children: the value of `growth` if the total
    /// grew linearly.
    pub more_children: f64,
    /// Number of children up to which the total never fell by more than 5% from one number of
    /// children to the next.
    pub grows_to: usize,
    /// True if the total never falls by more than 5% and the last total is more than
    /// [`FLAT_RATIO_MAX`] times the first.
    pub always_grows: bool,
}

impl RelayScaling {
    /// Returns true if the highest total is at most [`FLAT_RATIO_MAX`] times the lowest.
    #[must_use]
    pub fn is_flat(&self) -> bool {
        self.spread <= FLAT_RATIO_MAX
    }

    /// Computes the shape from pairs (children, copies per second) in rising order of children;
    /// `None` for fewer than two.
    fn from_totals(totals: &[(usize, f64)]) -> Option<Self> {
        let (first, last) = (totals.first()?, totals.last().filter(|_| totals.len() > 1)?);
        let rates = || totals.iter().map(|(_, rate)| *rate);
        let (highest, lowest) = (rates().reduce(f64::max)?, rates().reduce(f64::min)?);
        let falls = |pair: &[(usize, f64)]| pair[1].1 < pair[0].1 * (1.0 - FALL_TOLERANCE);
        let fall = totals.windows(2).position(falls);
        Some(Self {
            highest,
            spread: highest / lowest,
            growth: last.1 / first.1,
            more_children: last.0 as f64 / first.0.max(1) as f64,
            grows_to: totals[fall.unwrap_or(totals.len() - 1)].0,
            always_grows: fall.is_none() && last.1 / first.1 > FLAT_RATIO_MAX,
        })
    }
}

impl BenchRelayResult {
    /// Returns the measured packet sizes in bytes, in the order of the result.
    #[must_use]
    pub fn sizes(&self) -> Vec<usize> {
        distinct(self.cells.iter().map(|cell| cell.size_bytes))
    }

    /// Returns the numbers of children measured with a packet size, in the order of the result.
    #[must_use]
    pub fn child_counts(&self, size_bytes: usize) -> Vec<usize> {
        let cells = self.cells.iter().filter(|cell| cell.size_bytes == size_bytes);
        distinct(cells.map(|cell| cell.children))
    }

    /// Returns the measured engines, in the order of [`RelayEngineKind::ALL`].
    #[must_use]
    pub fn engines(&self) -> Vec<RelayEngineKind> {
        let is_measured = |engine: &RelayEngineKind| {
            self.cells.iter().any(|measurement| measurement.engine == *engine)
        };
        RelayEngineKind::ALL.into_iter().filter(is_measured).collect()
    }

    /// Returns the entry of one packet size, number of children and engine; `None` if it was not
    /// measured.
    #[must_use]
    pub fn cell(
        &self,
        size: usize,
        children: usize,
        engine: RelayEngineKind,
    ) -> Option<&RelayConfigurationResult> {
        self.cells
            .iter()
            .find(|cell| (cell.size_bytes, cell.children, cell.engine) == (size, children, engine))
    }

    /// Returns the ratio of the XDP engine's copies per second to those of `send`; `None` if one of
    /// them has no rate.
    #[must_use]
    pub fn xdp_to_send_ratio(&self, size: usize, children: usize) -> Option<f64> {
        let copies_per_s = |engine| self.cell(size, children, engine)?.copies_per_s();
        Some(copies_per_s(RelayEngineKind::Xdp)? / copies_per_s(RelayEngineKind::Send)?)
    }

    /// Returns the mean gain of the XDP engine over `send` for one packet size, in percent, over
    /// all numbers of children for which both have a rate; `None` if there are none. Reports show
    /// it beside the published gain.
    #[must_use]
    pub fn mean_gain_percent(&self, size: usize) -> Option<f64> {
        let children = self.child_counts(size);
        let gains: Vec<_> = children
            .iter()
            .filter_map(|&children| self.xdp_to_send_ratio(size, children))
            .collect();
        let sum: f64 = gains.iter().map(|ratio| (ratio - 1.0) * 100.0).sum();
        (!gains.is_empty()).then(|| sum / gains.len() as f64)
    }

    /// Returns the shape of an engine's totals over the number of children; `None` if fewer than
    /// two of them have a rate.
    #[must_use]
    pub fn scaling(&self, size: usize, engine: RelayEngineKind) -> Option<RelayScaling> {
        let mut children = self.child_counts(size);
        children.sort_unstable();
        let total = |children| Some((children, self.cell(size, children, engine)?.copies_per_s()?));
        RelayScaling::from_totals(&children.into_iter().filter_map(total).collect::<Vec<_>>())
    }
}

fn distinct<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut distinct_values = Vec::new();
    for value in values {
        if !distinct_values.contains(&value) {
            distinct_values.push(value);
        }
    }
    distinct_values
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(copies_per_s: f64, end: SearchEndReason) -> RelayRepetition {
        RelayRepetition {
            copies_per_s,
            lower: None,
            upper: None,
            end,
            trials: 1,
            disordered: 0,
            half_rate: None,
        }
    }

    fn cell(children: usize, engine: RelayEngineKind, rates: &[f64]) -> RelayConfigurationResult {
        RelayConfigurationResult {
            size_bytes: 64,
            children,
            engine,
            source_threads: 1,
            batch: 16,
            relay_command: Vec::new(),
            repetitions: rates
                .iter()
                .map(|rate| round(*rate, SearchEndReason::Converged))
                .collect(),
            first_copy_ns: None,
            last_copy_ns: None,
            direct_ns: None,
        }
    }

    fn result(cells: Vec<RelayConfigurationResult>) -> BenchRelayResult {
        BenchRelayResult {
            schema: BENCH_RELAY_SCHEMA.to_owned(),
            started: String::new(),
            command: Vec::new(),
            host: Host::read(),
            repetitions: 3,
            loss_ratio: 0.0,
            receivers: 1,
            direct: Vec::new(),
            cells,
            findings: Vec::new(),
        }
    }

    #[test]
    fn the_median_of_the_rounds_counts() {
        let rates = |rates| cell(1, RelayEngineKind::Send, rates).copies_per_s();
        assert_eq!(rates(&[5.0, 1.0, 3.0]), Some(3.0));
        assert_eq!(rates(&[5.0, 1.0]), Some(3.0));
        assert_eq!((rates(&[]), rates(&[0.0, 0.0, 9.0])), (None, None));
    }

    #[test]
    fn the_gain_is_the_mean_over_the_numbers_of_children() {
        let (send, xdp) = (RelayEngineKind::Send, RelayEngineKind::Xdp);
        let result = result(vec![
            cell(2, send, &[1e6]),
            cell(2, xdp, &[3e6]),
            cell(4, send, &[1e6]),
            cell(4, xdp, &[5e6]),
            cell(8, xdp, &[6e6]),
        ]);
        assert_eq!(result.xdp_to_send_ratio(64, 4), Some(5.0));
        assert_eq!(result.mean_gain_percent(64), Some(300.0));
        assert_eq!(result.mean_gain_percent(128), None);
        assert_eq!((result.child_counts(64), result.engines()), (vec![2, 4, 8], vec![send, xdp]));
    }

    #[test]
    fn shapes_are_classified() {
        let flat = RelayScaling::from_totals(&[(1, 0.9e6), (2, 1e6), (4, 1.1e6)]).unwrap();
        assert!(flat.is_flat());
        let growing =
            RelayScaling::from_totals(&[(1, 1e6), (2, 3e6), (4, 2.9e6), (8, 4e6)]).unwrap();
        assert!(!growing.is_flat() && growing.always_grows);
        assert_eq!((growing.grows_to, growing.growth, growing.more_children), (8, 4.0, 8.0));
        let hardly = RelayScaling::from_totals(&[(2, 1e6), (32, 1.1e6)]).unwrap();
        assert!(hardly.is_flat() && !hardly.always_grows);
        let broken = RelayScaling::from_totals(&[(1, 1e6), (2, 3e6), (4, 2e6)]).unwrap();
        assert_eq!((broken.grows_to, broken.always_grows, broken.highest), (2, false, 3e6));
        assert_eq!(RelayScaling::from_totals(&[(1, 1e6)]), None);
    }

    #[test]
    fn what_is_added_is_above_the_way_without_a_relay() {
        let times = |times: &[u64]| {
            let mut histogram = horolog_stats::Histogram::new();
            for ns in times {
                histogram.record(*ns);
            }
            Distribution::from_histogram(&histogram)
        };
        let empty = cell(2, RelayEngineKind::Xdp, &[]);
        let with = RelayConfigurationResult {
            first_copy_ns: times(&[30, 50]),
            direct_ns: times(&[10, 60]),
            ..empty.clone()
        };
        assert_eq!(with.added_ns(), Some([20, -10]));
        assert_eq!(RelayConfigurationResult { direct_ns: None, ..with.clone() }.added_ns(), None);
        assert_eq!(RelayConfigurationResult { first_copy_ns: None, ..with }.added_ns(), None);
    }

    #[test]
    fn the_relay_costs_what_the_receivers_do_not() {
        let half = RelayHalfRateTrial {
            rate: 1e5,
            copies: 1,
            lost: 0,
            cpu_ns_per_copy: Some(200.0),
            receiving_ns_per_copy: Some(60.0),
        };
        assert_eq!(half.relay_ns_per_copy(), Some(140.0));
        assert_eq!(
            RelayHalfRateTrial { receiving_ns_per_copy: None, ..half }.relay_ns_per_copy(),
            None
        );
    }
}
