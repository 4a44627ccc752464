//! Delays to the nodes of a tree, collected over rounds and levels, and their statistics. Pure.
//!
//! The result counts delays from the arrival of a packet at the root: the median delay from the
//! sender to the root is subtracted from the delays to the other nodes.

use horolog_record::{Distribution, RelayTreeCalibration, RelayTreeMeasurement};
use horolog_relay::tree::Tree;
use horolog_stats::Histogram;

use super::probe_sender::SinkDelays;

/// Delays of packets from the sender to the nodes, in ns, of all rounds.
pub(super) struct DelaySamples {
    tree: Tree,
    /// For each node, the delay of each packet; `None` if it did not arrive.
    nodes: Vec<Vec<Option<u64>>>,
    /// Delay of each packet to the leaf at which it arrived last; `None` if it did not reach all
    /// leaves.
    last_leaf: Vec<Option<u64>>,
}

impl DelaySamples {
    pub(super) fn new(tree: &Tree) -> Self {
        let nodes = vec![Vec::new(); tree.nodes().len()];
        Self { tree: tree.clone(), nodes, last_leaf: Vec::new() }
    }

    /// Adds delays of packets to `ends`, the leaves of the tree when it was cut off below `level`.
    pub(super) fn add(&mut self, level: usize, ends: &[usize], arrivals: &SinkDelays) {
        let is_whole_tree = level == self.tree.depth();
        for (at, arrivals) in ends.iter().zip(arrivals) {
            // Leaves above the last level are measured with each level below them. Only their
            // delays in the whole tree count.
            if is_whole_tree || self.tree.nodes()[*at].depth == level && !self.is_leaf(*at) {
                self.nodes[*at].extend(arrivals);
            }
        }
        if is_whole_tree {
            self.last_leaf.extend(last_delays(arrivals));
        }
    }

    fn is_leaf(&self, at: usize) -> bool {
        self.tree.nodes()[at].children.is_empty()
    }

    fn median(&self, at: usize) -> Option<u64> {
        distribution(&self.nodes[at], 0).map(|all| all.p50)
    }

    /// Returns the calibration of the root in a tree of one level; `None` if a node received
    /// nothing. `reversed` is true if the table lists the children in reverse order.
    pub(super) fn calibration(&self, reversed: bool) -> Option<RelayTreeCalibration> {
        let source_ns = self.median(0)? as f64;
        let copy = |at: usize| self.median(at).map(|ns| ns as f64 - source_ns);
        let copies_ns: Vec<f64> = (1..self.nodes.len()).map(copy).collect::<Option<_>>()?;
        let (first_ns, next_ns) = match fit_line(&copies_ns) {
            (first_ns, next_ns) if next_ns >= 0.0 => (first_ns, next_ns),
            // A line with negative slope is replaced by a constant, its mean.
            _ => (copies_ns.iter().sum::<f64>() / copies_ns.len() as f64, 0.0),
        };
        let first_ns = first_ns.max(0.0);
        Some(RelayTreeCalibration { source_ns, copies_ns, reversed, first_ns, next_ns })
    }

    /// Returns the statistics of the measured delays; `calibration` is included unchanged.
    pub(super) fn measured(&self, calibration: RelayTreeCalibration) -> RelayTreeMeasurement {
        let base_ns = self.median(0).unwrap_or(0);
        let nodes: Vec<Option<Distribution>> =
            self.nodes.iter().map(|all| distribution(all, base_ns)).collect();
        let median = |at: usize| nodes[at].as_ref().map(|node| node.p50 as f64);
        let receivers = 1..nodes.len();
        let leaves: Option<Vec<f64>> =
            receivers.clone().filter(|at| self.is_leaf(*at)).map(median).collect();
        let all: Option<Vec<f64>> = receivers.clone().map(median).collect();
        let lost = self.nodes.iter().flatten().filter(|one| one.is_none()).count();
        RelayTreeMeasurement {
            calibration,
            last_leaf_ns: distribution(&self.last_leaf, base_ns),
            tree_ns: leaves.map(|all| all.into_iter().fold(0.0, f64::max)),
            mean_ns: all.map(|all| all.into_iter().sum::<f64>() / receivers.len() as f64),
            lost: lost as u64,
            nodes,
        }
    }
}

/// Returns the delay of each packet to the last sink; `None` if it did not arrive at all sinks.
fn last_delays(arrivals: &SinkDelays) -> Vec<Option<u64>> {
    let packets = arrivals.first().map_or(0, Vec::len);
    let last_delay = |packet: usize| {
        let all: Option<Vec<u64>> = arrivals.iter().map(|sink| sink[packet]).collect();
        all?.into_iter().max()
    };
    (0..packets).map(last_delay).collect()
}

/// Returns the distribution of the delays after subtraction of `base_ns`, at least 0; `None`
/// without arrivals.
fn distribution(arrivals: &[Option<u64>], base_ns: u64) -> Option<Distribution> {
    let mut histogram = Histogram::new();
    for ns in arrivals.iter().flatten() {
        histogram.record(ns.saturating_sub(base_ns));
    }
    Distribution::from_histogram(&histogram)
}

/// Returns intercept and slope of the least-squares line through `values` at x = 0, 1, 2 and so on.
pub(super) fn fit_line(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let (middle, mean) = ((count - 1.0) / 2.0, values.iter().sum::<f64>() / count);
    let (mut sum_xy, mut sum_xx) = (0.0, 0.0);
    for (at, value) in values.iter().enumerate() {
        let x_centred = at as f64 - middle;
        sum_xy += x_centred * (value - mean);
        sum_xx += x_centred * x_centred;
    }
    let slope = if sum_xx > 0.0 { sum_xy / sum_xx } else { 0.0 };
    (mean - slope * middle, slope)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_goes_through_what_lies_on_one() {
        let near = |(a, b): (f64, f64), (c, d): (f64, f64)| (a - c).abs() + (b - d).abs() < 1e-9;
        assert!(near(fit_line(&[20.0, 26.0, 32.0]), (20.0, 6.0)));
        assert!(near(fit_line(&[7.0]), (7.0, 0.0)));
        assert!(near(fit_line(&[1.0, 0.0]), (1.0, -1.0)));
    }

    #[test]
    fn the_last_has_what_all_have() {
        let arrivals = vec![vec![Some(3), Some(9), None], vec![Some(5), Some(4), Some(1)]];
        assert_eq!(last_delays(&arrivals), [Some(5), Some(9), None]);
        assert_eq!(
            distribution(&last_delays(&arrivals), 4).map(|all| (all.min, all.max)),
            Some((1, 5))
        );
        assert_eq!(distribution(&[None], 0), None);
    }

    #[test]
    fn rounds_of_a_tree_are_taken_together() {
        let tree = Tree::regular(2, 1, 0.0).unwrap();
        let mut pool = DelaySamples::new(&tree);
        for _ in 0..2 {
            pool.add(0, &[0], &vec![vec![Some(9), Some(9)]]);
            pool.add(1, &[1, 2], &vec![vec![Some(14), Some(14)], vec![Some(12), None]]);
        }
        let calibration = pool.calibration(true).unwrap();
        assert_eq!(calibration.copies_ns, [5.0, 3.0]);
        let falls = (calibration.first_ns - 4.0).abs() + calibration.next_ns.abs();
        assert!(falls < 1e-9 && calibration.reversed, "{calibration:?}");
        let measured = pool.measured(calibration);
        assert_eq!((measured.lost, measured.tree_ns, measured.mean_ns), (2, Some(5.0), Some(4.0)));
        assert_eq!(measured.nodes[1].as_ref().map(|node| node.count), Some(4));
        assert_eq!(measured.last_leaf_ns.map(|all| (all.count, all.p50)), Some((2, 5)));
        assert!(DelaySamples::new(&tree).calibration(false).is_none());
    }

    #[test]
    fn a_leaf_above_the_last_level_counts_in_the_whole_tree_alone() {
        let edges = [(0, 1), (0, 2), (1, 3)];
        let edge = |(from, to)| horolog_relay::tree::TreeEdge { from, to, delay_ns: 0.0 };
        let names: Vec<String> = (0..4).map(|at| at.to_string()).collect();
        let mut pool = DelaySamples::new(&Tree::new(&names, &edges.map(edge)).unwrap());
        pool.add(1, &[1, 2], &vec![vec![Some(1)], vec![Some(2)]]);
        pool.add(2, &[2, 3], &vec![vec![Some(3)], vec![Some(4)]]);
        assert_eq!(pool.nodes, [vec![], vec![Some(1)], vec![Some(3)], vec![Some(4)]]);
    }
}
