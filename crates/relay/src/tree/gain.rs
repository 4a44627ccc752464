//! Reduction of the delays by another engine: equations (3) to (7) of Cao, Su and Lu 2008 (see the
//! module `tree`), for the replacement at all nodes, and at one node at a time.

use super::{EngineProcessingTimes, Tree, TreeDelays, tree_delays};

/// Relative difference up to which two delays count as equal.
const ROUNDING: f64 = 1e-9;

/// Assumption of equation (4) about a tree and its engines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RegularTreeGainAssumption {
    /// Inner nodes have the same number of children, two or more.
    SameDegree,
    /// All leaves are at the same depth.
    SameDepth,
    /// All inner nodes have the same processing time.
    SameProcessing,
    /// The slowest leaf is the same with both engines. Equation (3) assumes this too.
    SamePath,
    /// Every node on the path to the slowest leaf has the same child index, so that the gain is the
    /// same for all of them.
    SameIndex,
}

/// Equation (4): the reduction of D in a regular tree, `(log_m n) · ΔTP`.
#[derive(Clone, PartialEq, Debug)]
pub struct RegularTreeReplacementGain {
    /// Assumptions that do not hold; equation (4) applies if this is empty.
    pub violated_assumptions: Vec<RegularTreeGainAssumption>,
    /// m: the children of the root, and so of each inner node.
    pub degree: usize,
    /// ΔTP: the reduction of the processing time of one node on the path to the slowest leaf, in
    /// ns.
    pub processing_ns: f64,
    /// Value of the published formula, in which n is the number of all nodes, in ns; too large,
    /// because `log_m` of that exceeds the depth. `None` if `degree` is below 2.
    pub all_nodes_ns: Option<f64>,
    /// Value with n as the number of leaves, whose logarithm is the depth: exact, in ns. `None` if
    /// `degree` is below 2.
    pub leaves_ns: Option<f64>,
}

/// Reduction of the delays if only this node's engine is replaced.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct NodeReplacementGain {
    /// ΔTP: the mean reduction of the node's processing time over its copies, in ns; 0 for a leaf.
    pub processing_ns: f64,
    /// Reduction of D, in ns.
    pub tree_ns: f64,
    /// Reduction of the mean delay, in ns.
    pub mean_ns: f64,
}

/// Reduction of the delays of a tree if another engine replaces its engine.
#[derive(Clone, PartialEq, Debug)]
pub struct EngineReplacementGain {
    /// ΔD: reduction of D if the engine of all nodes is replaced, in ns; (1) minus (2).
    pub tree_ns: f64,
    /// Reduction of the mean delay, in ns; (5) minus (6).
    pub mean_ns: f64,
    /// Equation (3): the sum of the reductions at the nodes on the path to the slowest leaf, in ns.
    /// It is ΔD if that leaf is the slowest with the other engine too.
    pub along_path_ns: f64,
    /// True if the slowest leaf is the same with both engines.
    pub same_path: bool,
    /// Equation (4), for regular trees.
    pub equation_4: RegularTreeReplacementGain,
    /// Equation (7) as published, in ns: the sum of ΔTP of all inner nodes but the root, divided by
    /// |V| − 1. It omits the root and weights each node by 1; (5) and (6) weight each copy by the
    /// number of nodes that it reaches.
    pub mean_as_published_ns: f64,
    /// Reduction by each node alone, in the tree's order.
    pub nodes: Vec<NodeReplacementGain>,
}

/// Returns the reductions if `after` replaces `before`, at all nodes and at each node alone.
#[must_use]
pub fn replacement_gain(
    tree: &Tree,
    before: &EngineProcessingTimes,
    after: &EngineProcessingTimes,
) -> EngineReplacementGain {
    let (old, new) = (tree_delays(tree, before), tree_delays(tree, after));
    let nodes = node_gains(tree, before, after, &old);
    let inner = tree.nodes().iter().zip(&nodes).skip(1);
    let published_sum: f64 = inner.map(|(_, gain)| gain.processing_ns).sum();
    let same_path = is_slowest(&new, old.slowest_leaf);
    let path = tree.path_from_root(old.slowest_leaf);
    EngineReplacementGain {
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

/// Returns the time by which the copy for a node leaves its parent earlier with `after`, in ns.
fn earlier_departure_ns(
    tree: &Tree,
    before: &EngineProcessingTimes,
    after: &EngineProcessingTimes,
    at: usize,
) -> f64 {
    before.departure_delay_ns(tree, at) - after.departure_delay_ns(tree, at)
}

fn is_slowest(delays: &TreeDelays, leaf: usize) -> bool {
    delays.node_ns[leaf] >= delays.tree_ns * (1.0 - ROUNDING)
}

/// Returns the reductions if each node's engine is replaced alone, in time linear in the number of
/// nodes.
fn node_gains(
    tree: &Tree,
    before: &EngineProcessingTimes,
    after: &EngineProcessingTimes,
    old: &TreeDelays,
) -> Vec<NodeReplacementGain> {
    let (sizes, largest_below) = (tree.subtree_sizes(), largest_delays_below(tree, old));
    let elsewhere = largest_delay_elsewhere(tree, &largest_below);
    let receivers = (tree.nodes().len() - 1) as f64;
    let node_gain = |(at, node): (usize, &super::TreeNode)| {
        if node.children.is_empty() {
            return NodeReplacementGain { processing_ns: 0.0, tree_ns: 0.0, mean_ns: 0.0 };
        }
        let earlier_ns = |child: &usize| earlier_departure_ns(tree, before, after, *child);
        let sum: f64 = node.children.iter().map(earlier_ns).sum();
        let reached = node.children.iter().map(|child| sizes[*child] as f64 * earlier_ns(child));
        let slowest = node.children.iter().map(|child| largest_below[*child] - earlier_ns(child));
        NodeReplacementGain {
            processing_ns: sum / node.children.len() as f64,
            tree_ns: old.tree_ns - slowest.fold(elsewhere[at], f64::max),
            mean_ns: reached.sum::<f64>() / receivers,
        }
    };
    tree.nodes().iter().enumerate().map(node_gain).collect()
}

/// Returns, for each node, the largest delay of a leaf of its subtree, in ns.
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

/// Returns, for each node, the largest delay of a leaf outside its subtree, in ns; −∞ if there is
/// none.
fn largest_delay_elsewhere(tree: &Tree, largest_below: &[f64]) -> Vec<f64> {
    let mut elsewhere = vec![f64::NEG_INFINITY; tree.nodes().len()];
    for (at, node) in tree.nodes().iter().enumerate() {
        // Largest delay of the siblings before each child, then of those after it.
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
    before: &EngineProcessingTimes,
    after: &EngineProcessingTimes,
    path: &[usize],
    same_path: bool,
) -> RegularTreeReplacementGain {
    let nodes = tree.nodes();
    let (degree, depth) = (nodes[0].children.len(), tree.depth());
    let is_inner = |at: &usize| !nodes[*at].children.is_empty();
    let inner = || (0..nodes.len()).filter(is_inner);
    let leaves = || (0..nodes.len()).filter(|at| !is_inner(at));
    let same = |engine: &EngineProcessingTimes| {
        inner().all(|at| engine.processing[at] == engine.processing[0])
    };
    let holds = [
        (
            RegularTreeGainAssumption::SameDegree,
            degree > 1 && inner().all(|at| nodes[at].children.len() == degree),
        ),
        (RegularTreeGainAssumption::SameDepth, leaves().all(|at| nodes[at].depth == depth)),
        (RegularTreeGainAssumption::SameProcessing, same(before) && same(after)),
        (RegularTreeGainAssumption::SamePath, same_path),
        (
            RegularTreeGainAssumption::SameIndex,
            path[1..].windows(2).all(|two| nodes[two[0]].child_index == nodes[two[1]].child_index),
        ),
    ];
    let violated_assumptions =
        holds.into_iter().filter(|(_, holds)| !holds).map(|(what, _)| what).collect();
    let processing_ns = earlier_departure_ns(tree, before, after, path[1]);
    let logarithm = |count: usize| (count as f64).ln() / (degree as f64).ln();
    RegularTreeReplacementGain {
        violated_assumptions,
        degree,
        processing_ns,
        // There is no logarithm to the base of 1.
        all_nodes_ns: (degree > 1).then(|| logarithm(nodes.len()) * processing_ns),
        leaves_ns: (degree > 1).then(|| logarithm(leaves().count()) * processing_ns),
    }
}
