//! How long copies take with one engine: equations (1) and (5) where it is host-based, (2) and (6)
//! where it is not.

use super::Tree;

/// How long a node takes until the copy for a child leaves.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Processing {
    /// From when the packet has come to when the first copy leaves, in ns.
    pub first_ns: f64,
    /// From one copy to the next, in ns.
    pub next_ns: f64,
}

impl Processing {
    /// p for the child at a place, counted from 0, in ns.
    #[must_use]
    pub fn copy_ns(self, place: usize) -> f64 {
        self.first_ns + place as f64 * self.next_ns
    }
}

/// What makes the copies, and how long that takes.
#[derive(Clone, PartialEq, Debug)]
pub struct Engine {
    /// Its name, such as `host-based`.
    pub name: String,
    /// Its processing at each node of a tree, in the tree's order. Leaves make no copies; what
    /// stands for them is not looked at.
    pub processing: Vec<Processing>,
}

impl Engine {
    /// An engine that takes as long at every node of a tree.
    #[must_use]
    pub fn uniform(name: &str, tree: &Tree, processing: Processing) -> Self {
        Self { name: name.to_owned(), processing: vec![processing; tree.nodes().len()] }
    }

    /// p of the parent of a node until the copy for that node leaves; 0 for the root.
    pub(super) fn before_ns(&self, tree: &Tree, at: usize) -> f64 {
        let node = &tree.nodes()[at];
        node.parent.map_or(0.0, |parent| self.processing[parent].copy_ns(node.place))
    }
}

/// The delays of a tree with one engine.
#[derive(Clone, PartialEq, Debug)]
pub struct Delays {
    /// d(root, v) of each node, in ns, in the tree's order.
    pub node_ns: Vec<f64>,
    /// D: the largest to a leaf, in ns.
    pub tree_ns: f64,
    /// The leaf that has it, the first of several.
    pub slowest: usize,
    /// The mean of all nodes but the root, in ns.
    pub mean_ns: f64,
}

/// d from the root to every node, D and the mean, by the definitions of section 2.1.
#[must_use]
pub fn delays(tree: &Tree, engine: &Engine) -> Delays {
    let mut node_ns: Vec<f64> = Vec::with_capacity(tree.nodes().len());
    for (at, node) in tree.nodes().iter().enumerate() {
        let above = node.parent.map_or(0.0, |parent| node_ns[parent]);
        node_ns.push(above + engine.before_ns(tree, at) + node.delay_ns);
    }
    let mut slowest = 0;
    let leaves = tree.nodes().iter().enumerate().filter(|(_, node)| node.children.is_empty());
    for (at, _) in leaves {
        if slowest == 0 || node_ns[at] > node_ns[slowest] {
            slowest = at;
        }
    }
    // A tree has two nodes or more.
    let mean_ns = node_ns.iter().sum::<f64>() / (node_ns.len() - 1) as f64;
    Delays { tree_ns: node_ns[slowest], slowest, mean_ns, node_ns }
}

/// d(u, v), in ns; `None` where `v` is not below `u`.
#[must_use]
pub fn between(tree: &Tree, engine: &Engine, u: usize, v: usize) -> Option<f64> {
    let path = tree.path(v);
    let from = path.iter().position(|at| *at == u)?;
    let hop = |at: &usize| engine.before_ns(tree, *at) + tree.nodes()[*at].delay_ns;
    Some(path[from + 1..].iter().map(hop).sum())
}
