//! Delays of copies with one engine: equations (1) and (5) if it is host-based, (2) and (6) if not.

use super::Tree;

/// Processing time of a node until the copy for a child leaves.
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

/// Engine that makes the copies, with its processing times.
#[derive(Clone, PartialEq, Debug)]
pub struct TreeEngine {
    /// Its name, such as `host-based`.
    pub name: String,
    /// Its processing at each node of a tree, in the tree's order. Leaves make no copies; their
    /// values are ignored.
    pub processing: Vec<ProcessingTime>,
}

impl TreeEngine {
    /// Makes an engine with the same processing at every node of a tree.
    #[must_use]
    pub fn uniform(name: &str, tree: &Tree, processing: ProcessingTime) -> Self {
        Self { name: name.to_owned(), processing: vec![processing; tree.nodes().len()] }
    }

    /// Returns p of the parent of a node until the copy for that node leaves; 0 for the root.
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
    /// D: the largest to a leaf, in ns.
    pub tree_ns: f64,
    /// Leaf with this delay, the first of several.
    pub slowest_leaf: usize,
    /// Mean of all nodes but the root, in ns.
    pub mean_ns: f64,
}

/// Returns d from the root to every node, D and the mean, by the definitions of section 2.1.
#[must_use]
pub fn tree_delays(tree: &Tree, engine: &TreeEngine) -> TreeDelays {
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

/// Returns d(u, v), in ns; `None` if `v` is not below `u`.
#[must_use]
pub fn delay_between(tree: &Tree, engine: &TreeEngine, u: usize, v: usize) -> Option<f64> {
    let path = tree.path_from_root(v);
    let from = path.iter().position(|at| *at == u)?;
    let hop = |at: &usize| engine.departure_delay_ns(tree, *at) + tree.nodes()[*at].delay_ns;
    Some(path[from + 1..].iter().map(hop).sum())
}
