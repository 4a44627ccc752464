//! Gain by another engine: equations (3) to (7) as differences of two delays, of all nodes and of
//! one at a time.

use super::{Tree, TreeDelays, TreeEngine, tree_delays};

/// Share below which times differ by rounding only.
const ROUNDING: f64 = 1e-9;

/// Assumption of equation (4) about a tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Equation4Assumption {
    /// Inner nodes have the same number of children, two or more.
    SameDegree,
    /// All leaves are at the same depth.
    SameDepth,
    /// All nodes have the same processing time.
    SameProcessing,
    /// The slowest leaf is the same with both engines. Equation (3) assumes this too.
    SamePath,
    /// Each node on the path to it serves the next at the same index, so that there is one gain for
    /// all of them.
    SameIndex,
}

/// Equation (4): the gain of D in a regular tree, `(log_m n) · ΔTP`.
#[derive(Clone, PartialEq, Debug)]
pub struct Equation4 {
    /// Assumptions that do not hold; (4) applies if this is empty.
    pub violated_assumptions: Vec<Equation4Assumption>,
    /// m: the children of the root, and so of each inner node.
    pub degree: usize,
    /// ΔTP: the gain of one node on the path to the slowest leaf, in ns.
    pub processing_ns: f64,
    /// Value as published, n being all nodes: it counts more nodes than are on the path, in ns.
    pub all_nodes_ns: Option<f64>,
    /// With n the leaves, whose logarithm is the depth: exact, in ns.
    pub leaves_ns: Option<f64>,
}

/// Gain of one node.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct NodeGain {
    /// ΔTP: the mean gain over its copies by the other engine, in ns; 0 for a leaf.
    pub processing_ns: f64,
    /// ΔD if only its engine is replaced, in ns.
    pub tree_ns: f64,
    /// Gain of the mean delay by that, in ns.
    pub mean_ns: f64,
}

/// Gain of a tree by another engine.
#[derive(Clone, PartialEq, Debug)]
pub struct ReplacementGain {
    /// ΔD, all engines being replaced, in ns: (1) less (2).
    pub tree_ns: f64,
    /// Gain of the mean delay, in ns: (5) less (6).
    pub mean_ns: f64,
    /// (3): the sum of the gains of the nodes on the path to the slowest leaf, in ns. It is ΔD if
    /// that leaf is the slowest with the other engine too.
    pub along_path_ns: f64,
    /// True if it is.
    pub same_path: bool,
    /// (4).
    pub equation_4: Equation4,
    /// (7) as published, in ns: the sum of ΔTP of all inner nodes but the root, by |V| - 1. It
    /// leaves out the root, and weighs each node once; by (5) and (6) each copy counts once for
    /// each node that is reached by it.
    pub mean_as_published_ns: f64,
    /// Each node, in the tree's order.
    pub nodes: Vec<NodeGain>,
}

/// Returns the gain of the tree if `after` replaces `before`, everywhere and at each node alone.
#[must_use]
pub fn replacement_gain(tree: &Tree, before: &TreeEngine, after: &TreeEngine) -> ReplacementGain {
    let (old, new) = (tree_delays(tree, before), tree_delays(tree, after));
    let nodes = node_gains(tree, before, after, &old);
    let inner = tree.nodes().iter().zip(&nodes).skip(1);
    let published_sum: f64 = inner.map(|(_, gain)| gain.processing_ns).sum();
    let same_path = is_slowest(&new, old.slowest_leaf);
    let path = tree.path_from_root(old.slowest_leaf);
    ReplacementGain {
        tree_ns: old.tree_ns - new.tree_ns,
        mean_ns: old.mean_ns - new.mean_ns,
        along_path_ns: path[1..]
            .iter()
            .map(|at| earlier_departure_ns(tree, before, after, *at))
            .sum(),
        same_path,
        equation_4: equation_4(tree, before, after, &path, same_path),
        mean_as_published_ns: published_sum / (tree.nodes().len() - 1) as f64,
        nodes,
    }
}

/// Returns the time by which the copy for a node leaves its parent earlier.
fn earlier_departure_ns(tree: &Tree, before: &TreeEngine, after: &TreeEngine, at: usize) -> f64 {
    before.departure_delay_ns(tree, at) - after.departure_delay_ns(tree, at)
}

fn is_slowest(delays: &TreeDelays, leaf: usize) -> bool {
    delays.node_ns[leaf] >= delays.tree_ns * (1.0 - ROUNDING)
}

/// Returns the gain of replacing each node alone, in a number of steps that is linear in the nodes.
fn node_gains(
    tree: &Tree,
    before: &TreeEngine,
    after: &TreeEngine,
    old: &TreeDelays,
) -> Vec<NodeGain> {
    let (sizes, largest_below) = (tree.subtree_sizes(), largest_delays_below(tree, old));
    let elsewhere = largest_delay_elsewhere(tree, &largest_below);
    let receivers = (tree.nodes().len() - 1) as f64;
    let node_gain = |(at, node): (usize, &super::TreeNode)| {
        if node.children.is_empty() {
            return NodeGain { processing_ns: 0.0, tree_ns: 0.0, mean_ns: 0.0 };
        }
        let earlier_ns = |child: &usize| earlier_departure_ns(tree, before, after, *child);
        let sum: f64 = node.children.iter().map(earlier_ns).sum();
        let reached = node.children.iter().map(|child| sizes[*child] as f64 * earlier_ns(child));
        let slowest = node.children.iter().map(|child| largest_below[*child] - earlier_ns(child));
        NodeGain {
            processing_ns: sum / node.children.len() as f64,
            tree_ns: old.tree_ns - slowest.fold(elsewhere[at], f64::max),
            mean_ns: reached.sum::<f64>() / receivers,
        }
    };
    tree.nodes().iter().enumerate().map(node_gain).collect()
}

/// Returns, for each node, the largest delay of a leaf that is the node or below it.
fn largest_delays_below(tree: &Tree, old: &TreeDelays) -> Vec<f64> {
    let mut largest = vec![f64::NEG_INFINITY; tree.nodes().len()];
    for (at, node) in tree.nodes().iter().enumerate().rev() {
        if node.children.is_empty() {
            largest[at] = old.node_ns[at];
        }
        if let Some(parent) = node.parent {
            largest[parent] = largest[parent].max(largest[at]);
        }
    }
    largest
}

/// Returns, for each node, the largest delay of a leaf that is neither the node nor below it.
fn largest_delay_elsewhere(tree: &Tree, largest_below: &[f64]) -> Vec<f64> {
    let mut elsewhere = vec![f64::NEG_INFINITY; tree.nodes().len()];
    for (at, node) in tree.nodes().iter().enumerate() {
        // The largest of the siblings before each child, then of those after it.
        let mut largest = elsewhere[at];
        for child in &node.children {
            elsewhere[*child] = largest;
            largest = largest.max(largest_below[*child]);
        }
        largest = f64::NEG_INFINITY;
        for child in node.children.iter().rev() {
            elsewhere[*child] = elsewhere[*child].max(largest);
            largest = largest.max(largest_below[*child]);
        }
    }
    elsewhere
}

fn equation_4(
    tree: &Tree,
    before: &TreeEngine,
    after: &TreeEngine,
    path: &[usize],
    same_path: bool,
) -> Equation4 {
    let nodes = tree.nodes();
    let (degree, depth) = (nodes[0].children.len(), tree.depth());
    let is_inner = |at: &usize| !nodes[*at].children.is_empty();
    let inner = || (0..nodes.len()).filter(is_inner);
    let leaves = || (0..nodes.len()).filter(|at| !is_inner(at));
    let same =
        |engine: &TreeEngine| inner().all(|at| engine.processing[at] == engine.processing[0]);
    let holds = [
        (
            Equation4Assumption::SameDegree,
            degree > 1 && inner().all(|at| nodes[at].children.len() == degree),
        ),
        (Equation4Assumption::SameDepth, leaves().all(|at| nodes[at].depth == depth)),
        (Equation4Assumption::SameProcessing, same(before) && same(after)),
        (Equation4Assumption::SamePath, same_path),
        (
            Equation4Assumption::SameIndex,
            path[1..].windows(2).all(|two| nodes[two[0]].child_index == nodes[two[1]].child_index),
        ),
    ];
    let violated_assumptions =
        holds.into_iter().filter(|(_, holds)| !holds).map(|(what, _)| what).collect();
    let processing_ns = earlier_departure_ns(tree, before, after, path[1]);
    let logarithm = |count: usize| (count as f64).ln() / (degree as f64).ln();
    Equation4 {
        violated_assumptions,
        degree,
        processing_ns,
        // There is no logarithm to the base of 1.
        all_nodes_ns: (degree > 1).then(|| logarithm(nodes.len()) * processing_ns),
        leaves_ns: (degree > 1).then(|| logarithm(leaves().count()) * processing_ns),
    }
}
