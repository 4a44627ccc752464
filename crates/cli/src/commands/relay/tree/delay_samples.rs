//! Arrivals at the nodes of a tree, by level and round, and the delays derived from them. Pure.
//!
//! Delays count from the arrival of a packet at the root: the median of the root's own level is
//! subtracted from those of the others.

use horolog_record::{Distribution, RelayTreeCalibration, RelayTreeMeasured};
use horolog_relay::tree::Tree;
use horolog_stats::Recorder;

use super::probe_sender::SinkDelays;

/// The arrivals of all rounds.
pub(super) struct DelaySamples {
    tree: Tree,
    /// Delays by packet at each node.
    nodes: Vec<Vec<Option<u64>>>,
    /// Delay of each packet to the last leaf.
    last: Vec<Option<u64>>,
}

impl DelaySamples {
    pub(super) fn new(tree: &Tree) -> Self {
        let nodes = vec![Vec::new(); tree.nodes().len()];
        Self { tree: tree.clone(), nodes, last: Vec::new() }
    }

    /// Adds the arrivals at these nodes when the tree ended at a level.
    pub(super) fn add(&mut self, level: usize, ends: &[usize], arrivals: &SinkDelays) {
        let is_whole = level == self.tree.depth();
        for (at, arrivals) in ends.iter().zip(arrivals) {
            // Leaves above the last level receive each time; only the whole tree counts.
            if is_whole || self.tree.nodes()[*at].depth == level && !self.is_leaf(*at) {
                self.nodes[*at].extend(arrivals);
            }
        }
        if is_whole {
            self.last.extend(last(arrivals));
        }
    }

    fn is_leaf(&self, at: usize) -> bool {
        self.tree.nodes()[at].children.is_empty()
    }

    fn median(&self, at: usize) -> Option<u64> {
        distribution(&self.nodes[at], 0).map(|all| all.p50)
    }

    /// The calibration of the root from a tree of one level; `None` without arrivals.
    pub(super) fn calibration(&self, reversed: bool) -> Option<RelayTreeCalibration> {
        let source_ns = self.median(0)? as f64;
        let copy = |at: usize| self.median(at).map(|ns| ns as f64 - source_ns);
        let copies_ns: Vec<f64> = (1..self.nodes.len()).map(copy).collect::<Option<_>>()?;
        let (first_ns, next_ns) = match line(&copies_ns) {
            (first_ns, next_ns) if next_ns >= 0.0 => (first_ns, next_ns),
            // A falling line is replaced by a level one through its middle.
            _ => (copies_ns.iter().sum::<f64>() / copies_ns.len() as f64, 0.0),
        };
        let first_ns = first_ns.max(0.0);
        Some(RelayTreeCalibration { source_ns, copies_ns, reversed, first_ns, next_ns })
    }

    /// The measurement of the tree.
    pub(super) fn measured(&self, calibration: RelayTreeCalibration) -> RelayTreeMeasured {
        let base_ns = self.median(0).unwrap_or(0);
        let nodes: Vec<Option<Distribution>> =
            self.nodes.iter().map(|all| distribution(all, base_ns)).collect();
        let median = |at: usize| nodes[at].as_ref().map(|node| node.p50 as f64);
        let receivers = 1..nodes.len();
        let leaves: Option<Vec<f64>> =
            receivers.clone().filter(|at| self.is_leaf(*at)).map(median).collect();
        let all: Option<Vec<f64>> = receivers.clone().map(median).collect();
        let lost = self.nodes.iter().flatten().filter(|one| one.is_none()).count();
        RelayTreeMeasured {
            calibration,
            last_leaf_ns: distribution(&self.last, base_ns),
            tree_ns: leaves.map(|all| all.into_iter().fold(0.0, f64::max)),
            mean_ns: all.map(|all| all.into_iter().sum::<f64>() / receivers.len() as f64),
            lost: lost as u64,
            nodes,
        }
    }
}

/// The delay of each packet to the last node; `None` for one that did not reach all.
fn last(arrivals: &SinkDelays) -> Vec<Option<u64>> {
    let packets = arrivals.first().map_or(0, Vec::len);
    let of = |packet: usize| {
        let all: Option<Vec<u64>> = arrivals.iter().map(|sink| sink[packet]).collect();
        all?.into_iter().max()
    };
    (0..packets).map(of).collect()
}

/// The arrivals, less `base_ns` each.
fn distribution(arrivals: &[Option<u64>], base_ns: u64) -> Option<Distribution> {
    let mut recorder = Recorder::new();
    for ns in arrivals.iter().flatten() {
        recorder.record(ns.saturating_sub(base_ns));
    }
    Distribution::from_recorder(&recorder)
}

/// The least-squares line through values at 0, 1, 2 and so on: its value at 0, and its slope.
pub(super) fn line(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let (middle, mean) = ((count - 1.0) / 2.0, values.iter().sum::<f64>() / count);
    let (mut above, mut square) = (0.0, 0.0);
    for (at, value) in values.iter().enumerate() {
        let from_middle = at as f64 - middle;
        above += from_middle * (value - mean);
        square += from_middle * from_middle;
    }
    let rise = if square > 0.0 { above / square } else { 0.0 };
    (mean - rise * middle, rise)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_goes_through_what_lies_on_one() {
        let near = |(a, b): (f64, f64), (c, d): (f64, f64)| (a - c).abs() + (b - d).abs() < 1e-9;
        assert!(near(line(&[20.0, 26.0, 32.0]), (20.0, 6.0)));
        assert!(near(line(&[7.0]), (7.0, 0.0)));
        assert!(near(line(&[1.0, 0.0]), (1.0, -1.0)));
    }

    #[test]
    fn the_last_has_what_all_have() {
        let arrivals = vec![vec![Some(3), Some(9), None], vec![Some(5), Some(4), Some(1)]];
        assert_eq!(last(&arrivals), [Some(5), Some(9), None]);
        assert_eq!(distribution(&last(&arrivals), 4).map(|all| (all.min, all.max)), Some((1, 5)));
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
