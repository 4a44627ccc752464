//! Result of `horolog bench relay`: copies that a relay sends without loss, for each packet size,
//! number of children and engine; cost and added delay of a copy.

use serde::{Deserialize, Serialize};

use crate::{Distribution, Finding, Host, SearchEnd};

/// The schema's name and version.
pub const BENCH_RELAY_SCHEMA: &str = "horolog.bench-relay/2";

/// Largest ratio of the highest to the lowest total over all numbers of children that counts as
/// flat.
pub const FLAT_RATIO_MAX: f64 = 1.25;

/// Largest relative fall of a total, compared with fewer children, that does not count as a fall:
/// two searches for the same value differ by that much.
const FALL_MAX: f64 = 0.05;

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
    /// Hosts of the children, each behind its own interface of the relay.
    pub receivers: usize,
    /// The path without a relay, for each size.
    pub direct: Vec<RelayDirect>,
    /// One entry per size, number of children and engine.
    pub cells: Vec<RelayCell>,
    /// Findings about the experiment as a whole.
    pub findings: Vec<Finding>,
}

/// Engine that sends the copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RelayEngine {
    /// One system call per copy: host-based.
    Send,
    /// One system call for many copies: host-based.
    Sendmmsg,
    /// XDP in the kernel's driver path.
    Xdp,
}

impl RelayEngine {
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

/// Rates of source and receiver without a relay: the packets end at the interface from which a
/// relay would receive them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RelayDirect {
    /// Bytes of UDP payload.
    pub size_bytes: usize,
    /// Threads of the source, each on its own core.
    pub source_threads: usize,
    /// Packets received per second while the source sent as fast as it can.
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
pub struct RelayCell {
    /// Bytes of UDP payload.
    pub size_bytes: usize,
    /// Children; each receives a copy of each packet.
    pub children: usize,
    /// Engine that sent the copies.
    pub engine: RelayEngine,
    /// Threads of the source, each on its own core.
    pub source_threads: usize,
    /// Largest number of packets that the source sends together.
    pub batch: u32,
    /// Command that ran the relay.
    pub relay_command: Vec<String>,
    /// One entry per repetition that was reached.
    pub repetitions: Vec<RelayRepetition>,
    /// From the sending of a packet by the source to its first copy, in all repetitions at half the
    /// rate found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_copy_ns: Option<Distribution>,
    /// From the sending of a packet by the source to its last copy, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_copy_ns: Option<Distribution>,
    /// From the sending of a packet to the interface from which the relay receives, without a
    /// relay: same rates, threads and repetitions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direct_ns: Option<Distribution>,
}

/// Result of one search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RelayRepetition {
    /// Copies per second received by all children together, at the highest rate at which none was
    /// lost; 0 if there was none.
    pub copies_per_s: f64,
    /// Highest packet rate without loss, if any.
    pub lower: Option<f64>,
    /// Lowest packet rate above it with loss, if any.
    pub upper: Option<f64>,
    /// Reason for the end of the search.
    pub end: SearchEnd,
    /// Number of trials in the search.
    pub trials: usize,
    /// Copies received out of order or twice in any of its trials.
    pub disordered: u64,
    /// Packets per second of the trial at half the rate, and the cost of a copy in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub half_rate: Option<RelayHalfRate>,
}

/// Trial at half of the highest rate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RelayHalfRate {
    /// Packets sent per second.
    pub rate: f64,
    /// Copies received.
    pub copies: u64,
    /// Copies not received, or late.
    pub lost: u64,
    /// CPU time of the whole host per copy, without the source's, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_ns_per_copy: Option<f64>,
    /// Receivers' share of it, in ns, as measured without a relay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receiving_ns_per_copy: Option<f64>,
}

impl RelayHalfRate {
    /// Returns the relay's CPU time per copy, in ns: the host's time minus the shares of source and
    /// receivers.
    #[must_use]
    pub fn relay_ns_per_copy(&self) -> Option<f64> {
        Some((self.cpu_ns_per_copy? - self.receiving_ns_per_copy?).max(0.0))
    }
}

/// Returns the middle value, or the mean of the two middle values if their number is even.
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

impl RelayCell {
    /// Returns the copies per second of all children together without loss: the median of the
    /// repetitions. `None` if no repetition completed or none found a rate.
    #[must_use]
    pub fn copies_per_s(&self) -> Option<f64> {
        median(self.repetitions.iter().map(|round| round.copies_per_s)).filter(|rate| *rate > 0.0)
    }

    /// Returns the delay added by the relay to the first copy at half of the rate: the differences
    /// of the 50th and of the 99th percentiles, in ns; negative if copies arrived sooner.
    #[must_use]
    pub fn added_ns(&self) -> Option<[i64; 2]> {
        let (direct, relayed) = (self.direct_ns.as_ref()?, self.first_copy_ns.as_ref()?);
        let percentiles: [fn(&Distribution) -> u64; 2] = [|times| times.p50, |times| times.p99];
        Some(percentiles.map(|of| of(relayed).cast_signed() - of(direct).cast_signed()))
    }

    /// Returns the host's CPU time per copy without the source's, in ns, at half the rate.
    #[must_use]
    pub fn cpu_ns_per_copy(&self) -> Option<f64> {
        median(self.halves().filter_map(|half| half.cpu_ns_per_copy))
    }

    /// Returns the relay's share of it, in ns.
    #[must_use]
    pub fn relay_ns_per_copy(&self) -> Option<f64> {
        median(self.halves().filter_map(RelayHalfRate::relay_ns_per_copy))
    }

    fn halves(&self) -> impl Iterator<Item = &RelayHalfRate> {
        self.repetitions.iter().filter_map(|round| round.half_rate.as_ref())
    }
}

/// Shape of the totals of one size over the number of children.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RelayShape {
    /// Highest total of copies per second.
    pub highest: f64,
    /// Ratio of the highest total to the lowest.
    pub spread: f64,
    /// Total with the most children as a multiple of the total with the fewest.
    pub growth: f64,
    /// The most children as a multiple of the fewest: the value of `growth` for linear growth.
    pub more_children: f64,
    /// Number of children up to which each greater number gave at least the same total.
    pub grows_to: usize,
    /// True if that holds for all numbers of children and the last total exceeds the first by more
    /// than counts as flat.
    pub always_grows: bool,
}

impl RelayShape {
    /// Returns true if the number of children makes no great difference.
    #[must_use]
    pub fn is_flat(&self) -> bool {
        self.spread <= FLAT_RATIO_MAX
    }

    /// Computes the shape from pairs (children, copies per second) in rising order of children;
    /// `None` for fewer than two.
    fn of(totals: &[(usize, f64)]) -> Option<Self> {
        let (first, last) = (totals.first()?, totals.last().filter(|_| totals.len() > 1)?);
        let rates = || totals.iter().map(|(_, rate)| *rate);
        let (highest, lowest) = (rates().reduce(f64::max)?, rates().reduce(f64::min)?);
        let falls = |pair: &[(usize, f64)]| pair[1].1 < pair[0].1 * (1.0 - FALL_MAX);
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
    /// Returns the measured sizes, in order.
    #[must_use]
    pub fn sizes(&self) -> Vec<usize> {
        distinct(self.cells.iter().map(|cell| cell.size_bytes))
    }

    /// Returns the numbers of children measured with a size, in order.
    #[must_use]
    pub fn children(&self, size_bytes: usize) -> Vec<usize> {
        let cells = self.cells.iter().filter(|cell| cell.size_bytes == size_bytes);
        distinct(cells.map(|cell| cell.children))
    }

    /// Returns the measured engines, in the order of their names' declaration.
    #[must_use]
    pub fn engines(&self) -> Vec<RelayEngine> {
        let is_there = |engine: &RelayEngine| self.cells.iter().any(|cell| cell.engine == *engine);
        RelayEngine::ALL.into_iter().filter(is_there).collect()
    }

    /// Returns the entry of one size, number of children and engine.
    #[must_use]
    pub fn cell(&self, size: usize, children: usize, engine: RelayEngine) -> Option<&RelayCell> {
        self.cells
            .iter()
            .find(|cell| (cell.size_bytes, cell.children, cell.engine) == (size, children, engine))
    }

    /// Returns the ratio of the in-kernel engine's total to that of `send`.
    #[must_use]
    pub fn ratio(&self, size: usize, children: usize) -> Option<f64> {
        let of = |engine| self.cell(size, children, engine)?.copies_per_s();
        Some(of(RelayEngine::Xdp)? / of(RelayEngine::Send)?)
    }

    /// Returns the mean gain of the in-kernel engine over all numbers of children, in percent of
    /// the total of `send`: the value published for each size.
    #[must_use]
    pub fn mean_gain_percent(&self, size: usize) -> Option<f64> {
        let children = self.children(size);
        let gains: Vec<_> =
            children.iter().filter_map(|&children| self.ratio(size, children)).collect();
        let sum: f64 = gains.iter().map(|ratio| (ratio - 1.0) * 100.0).sum();
        (!gains.is_empty()).then(|| sum / gains.len() as f64)
    }

    /// Returns the shape of an engine's totals over the number of children.
    #[must_use]
    pub fn shape(&self, size: usize, engine: RelayEngine) -> Option<RelayShape> {
        let mut children = self.children(size);
        children.sort_unstable();
        let total = |children| Some((children, self.cell(size, children, engine)?.copies_per_s()?));
        RelayShape::of(&children.into_iter().filter_map(total).collect::<Vec<_>>())
    }
}

fn distinct<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut known = Vec::new();
    for value in values {
        if !known.contains(&value) {
            known.push(value);
        }
    }
    known
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(copies_per_s: f64, end: SearchEnd) -> RelayRepetition {
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

    fn cell(children: usize, engine: RelayEngine, rates: &[f64]) -> RelayCell {
        RelayCell {
            size_bytes: 64,
            children,
            engine,
            source_threads: 1,
            batch: 16,
            relay_command: Vec::new(),
            repetitions: rates.iter().map(|rate| round(*rate, SearchEnd::Converged)).collect(),
            first_copy_ns: None,
            last_copy_ns: None,
            direct_ns: None,
        }
    }

    fn result(cells: Vec<RelayCell>) -> BenchRelayResult {
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
        let rates = |rates| cell(1, RelayEngine::Send, rates).copies_per_s();
        assert_eq!(rates(&[5.0, 1.0, 3.0]), Some(3.0));
        assert_eq!(rates(&[5.0, 1.0]), Some(3.0));
        assert_eq!((rates(&[]), rates(&[0.0, 0.0, 9.0])), (None, None));
    }

    #[test]
    fn the_gain_is_the_mean_over_the_numbers_of_children() {
        let (send, xdp) = (RelayEngine::Send, RelayEngine::Xdp);
        let result = result(vec![
            cell(2, send, &[1e6]),
            cell(2, xdp, &[3e6]),
            cell(4, send, &[1e6]),
            cell(4, xdp, &[5e6]),
            cell(8, xdp, &[6e6]),
        ]);
        assert_eq!(result.ratio(64, 4), Some(5.0));
        assert_eq!(result.mean_gain_percent(64), Some(300.0));
        assert_eq!(result.mean_gain_percent(128), None);
        assert_eq!((result.children(64), result.engines()), (vec![2, 4, 8], vec![send, xdp]));
    }

    #[test]
    fn shapes_are_classified() {
        let flat = RelayShape::of(&[(1, 0.9e6), (2, 1e6), (4, 1.1e6)]).unwrap();
        assert!(flat.is_flat());
        let growing = RelayShape::of(&[(1, 1e6), (2, 3e6), (4, 2.9e6), (8, 4e6)]).unwrap();
        assert!(!growing.is_flat() && growing.always_grows);
        assert_eq!((growing.grows_to, growing.growth, growing.more_children), (8, 4.0, 8.0));
        let hardly = RelayShape::of(&[(2, 1e6), (32, 1.1e6)]).unwrap();
        assert!(hardly.is_flat() && !hardly.always_grows);
        let broken = RelayShape::of(&[(1, 1e6), (2, 3e6), (4, 2e6)]).unwrap();
        assert_eq!((broken.grows_to, broken.always_grows, broken.highest), (2, false, 3e6));
        assert_eq!(RelayShape::of(&[(1, 1e6)]), None);
    }

    #[test]
    fn what_is_added_is_above_the_way_without_a_relay() {
        let times = |times: &[u64]| {
            let mut recorder = horolog_stats::Recorder::new();
            for ns in times {
                recorder.record(*ns);
            }
            Distribution::of_recorder(&recorder)
        };
        let empty = cell(2, RelayEngine::Xdp, &[]);
        let with = RelayCell {
            first_copy_ns: times(&[30, 50]),
            direct_ns: times(&[10, 60]),
            ..empty.clone()
        };
        assert_eq!(with.added_ns(), Some([20, -10]));
        assert_eq!(RelayCell { direct_ns: None, ..with.clone() }.added_ns(), None);
        assert_eq!(RelayCell { first_copy_ns: None, ..with }.added_ns(), None);
    }

    #[test]
    fn the_relay_costs_what_the_receivers_do_not() {
        let half = RelayHalfRate {
            rate: 1e5,
            copies: 1,
            lost: 0,
            cpu_ns_per_copy: Some(200.0),
            receiving_ns_per_copy: Some(60.0),
        };
        assert_eq!(half.relay_ns_per_copy(), Some(140.0));
        assert_eq!(RelayHalfRate { receiving_ns_per_copy: None, ..half }.relay_ns_per_copy(), None);
    }
}
