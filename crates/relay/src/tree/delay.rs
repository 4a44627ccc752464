//! Delays of copies with one engine: equations (1) and (5) of Cao, Su and Lu 2008 if it is
//! host-based, (2) and (6) if not (see the module `tree`).

use super::Tree;

/// Processing time p of a node, from the arrival of a packet to the departure of the copy for a
/// child.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct ProcessingTime {
    /// Time from the arrival of the packet to the departure of the first copy, in ns.
    pub first_ns: f64,
    /// Time from one copy to the next, in ns.
    pub next_ns: f64,
}

impl ProcessingTime {
    /// Returns p for the child at an index, counted from 0, in ns.
    #[must_use]
    pub fn copy_ns(self, index: usize) -> f64 {
        self.first_ns + index as f64 * self.next_ns
    }
}

/// Processing times of one engine at the nodes of a tree, at which it makes the copies.
#[derive(Clone, PartialEq, Debug)]
pub struct EngineProcessingTimes {
    /// Name of the engine, such as `user-space`.
    pub name: String,
    /// Processing time at each node, in the tree's order. Leaves make no copies; their values are
    /// ignored.
    pub processing: Vec<ProcessingTime>,
}

impl EngineProcessingTimes {
    /// Makes an engine with the same processing at every node of a tree.
    #[must_use]
    pub fn uniform(name: &str, tree: &Tree, processing: ProcessingTime) -> Self {
        Self { name: name.to_owned(), processing: vec![processing; tree.nodes().len()] }
    }

    /// Returns the time from the arrival of a packet at a node's parent to the departure of the
    /// node's copy, in ns; 0 for the root.
    pub(super) fn departure_delay_ns(&self, tree: &Tree, at: usize) -> f64 {
        let node = &tree.nodes()[at];
        node.parent.map_or(0.0, |parent| self.processing[parent].copy_ns(node.child_index))
    }
}

/// Delays of a tree with one engine.
#[derive(Clone, PartialEq, Debug)]
pub struct TreeDelays {
    /// d(root, v) of each node, in ns, in the tree's order.
    pub node_ns: Vec<f64>,
    /// D: the largest delay from the root to a leaf, in ns.
    pub tree_ns: f64,
    /// Index of the leaf with the largest delay, the first of several.
    pub slowest_leaf: usize,
    /// Mean delay of all nodes but the root, in ns.
    pub mean_ns: f64,
}

/// Returns d from the root to every node, D and the mean, by the definitions of the paper's section
/// 2.1.
#[must_use]
pub fn tree_delays(tree: &Tree, engine: &EngineProcessingTimes) -> TreeDelays {
    let mut node_ns: Vec<f64> = Vec::with_capacity(tree.nodes().len());
    for (at, node) in tree.nodes().iter().enumerate() {
        let above = node.parent.map_or(0.0, |parent| node_ns[parent]);
        node_ns.push(above + engine.departure_delay_ns(tree, at) + node.delay_ns);
    }
    let mut slowest_leaf = 0;
    let leaves = tree.nodes().iter().enumerate().filter(|(_, node)| node.children.is_empty());
    for (at, _) in leaves {
        if slowest_leaf == 0 || node_ns[at] > node_ns[slowest_leaf] {
            slowest_leaf = at;
        }
    }
    // A tree has two nodes or more.
    let mean_ns = node_ns.iter().sum::<f64>() / (node_ns.len() - 1) as f64;
    TreeDelays { tree_ns: node_ns[slowest_leaf], slowest_leaf, mean_ns, node_ns }
}

/// Returns d(u, v), in ns; 0 if `u` is `v`, `None` if `v` is not below `u`.
#[must_use]
pub fn delay_between(
    tree: &Tree,
    engine: &EngineProcessingTimes,
    u: usize,
    v: usize,
) -> Option<f64> {
    let path = tree.path_from_root(v);
    let from = path.iter().position(|at| *at == u)?;
    let hop = |at: &usize| engine.departure_delay_ns(tree, *at) + tree.nodes()[*at].delay_ns;
    Some(path[from + 1..].iter().map(hop).sum())
}
