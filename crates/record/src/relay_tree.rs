//! The result of `horolog relay tree`: what the delay model says of a tree of relays, and what was
//! measured on real ones.

use serde::{Deserialize, Serialize};

use crate::{Distribution, Finding, Host, LimitResult};

/// The schema's name and version.
pub const RELAY_TREE_SCHEMA: &str = "horolog.relay-tree/1";

/// A tree and its delays. Lists "by node" have an entry for each of [`RelayTreeResult::nodes`], in
/// that order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RelayTreeResult {
    /// [`RELAY_TREE_SCHEMA`].
    pub schema: String,
    /// When the run began, RFC 3339.
    pub started: String,
    /// The command that was given.
    pub command: Vec<String>,
    /// The machine.
    pub host: Host,
    /// The nodes, level by level, the root first.
    pub nodes: Vec<RelayTreeNode>,
    /// The engines: the one that is there, and one that would take its place.
    pub engines: Vec<RelayTreeEngine>,
    /// What the second engine gains.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gain: Option<RelayTreeGain>,
    /// Other trees over the same nodes, where the tree was made here.
    pub shapes: Vec<RelayTreeShape>,
    /// How delays were measured, where they were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<RelayTreeMethod>,
    /// The limits of `--fail-if`.
    pub limits: Vec<LimitResult>,
    /// Doubts about the figures.
    pub findings: Vec<Finding>,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RelayTreeNode {
    /// Its name.
    pub name: String,
    /// The place of its parent among the nodes; the root has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<usize>,
    /// Its place among its parent's children, in the order in which they are served, from 0 on.
    pub place: usize,
    /// Edges between the root and it.
    pub depth: usize,
    /// c: the transmission delay from its parent, in ns.
    pub delay_ns: f64,
}

/// The delays with one engine at all nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RelayTreeEngine {
    /// Its name.
    pub name: String,
    /// By node: how long it takes.
    pub processing: Vec<RelayTreeProcessing>,
    /// By node: d from the root by the model, in ns.
    pub delays_ns: Vec<f64>,
    /// D by equation (1) or (2): the largest delay of a leaf, in ns.
    pub tree_ns: f64,
    /// The leaf that has it.
    pub slowest: usize,
    /// The mean of all nodes but the root by equation (5) or (6), in ns.
    pub mean_ns: f64,
    /// The same measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<RelayTreeMeasured>,
}

/// How long a node takes until the copy for a child leaves: `first_ns` and, for each child before
/// it, `next_ns`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RelayTreeProcessing {
    /// Until the first copy leaves, in ns.
    pub first_ns: f64,
    /// From one copy to the next, in ns.
    pub next_ns: f64,
}

/// What was measured on relays in private hosts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RelayTreeMeasured {
    /// What one node took alone, by which the delays were predicted.
    pub calibration: RelayTreeCalibration,
    /// By node: from when the root had a packet to when the node had it, in ns; absent where
    /// nothing came.
    pub nodes: Vec<Option<Distribution>>,
    /// For each packet: to when the last leaf had it, in ns. Packets that are lost on the way to a
    /// leaf are left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_leaf_ns: Option<Distribution>,
    /// D: the largest median of a leaf, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree_ns: Option<f64>,
    /// The mean of the medians of all nodes but the root, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean_ns: Option<f64>,
    /// Copies that did not come, of all nodes together.
    pub lost: u64,
}

/// One relay with as many children as a node of the tree has at most.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RelayTreeCalibration {
    /// From sending to when the kernel of the next host had the packet, in ns, the median. It is
    /// taken off, since delays begin when the root has a packet.
    pub source_ns: f64,
    /// p by place: from when the relay had the packet to when that child had it, in ns, the median;
    /// the straight line through them is `first_ns` and `next_ns`. Links of private hosts take no
    /// time of their own: to hand a packet over is work of whoever sends it.
    pub copies_ns: Vec<f64>,
    /// Whether the engine serves the last child of its table first. Then it was given tables the
    /// other way round, so that children are served in the tree's order.
    pub reversed: bool,
    /// Until the first copy leaves, in ns.
    pub first_ns: f64,
    /// From one copy to the next, in ns.
    pub next_ns: f64,
}

impl RelayTreeResult {
    /// The mean of the leaves alone by the model, in ns: of all who receive, where the nodes above
    /// them only relay (the proxy architecture).
    #[must_use]
    pub fn leaves_mean_ns(&self, engine: &RelayTreeEngine) -> Option<f64> {
        let mut is_leaf = vec![true; self.nodes.len()];
        for parent in self.nodes.iter().filter_map(|node| node.parent) {
            *is_leaf.get_mut(parent)? = false;
        }
        let delays = engine.delays_ns.iter().zip(&is_leaf);
        let leaves: Vec<f64> = delays.filter(|(_, is_leaf)| **is_leaf).map(|(ns, _)| *ns).collect();
        (!leaves.is_empty()).then(|| leaves.iter().sum::<f64>() / leaves.len() as f64)
    }
}

/// How delays were measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RelayTreeMethod {
    /// Packets that counted, at each level of the tree and with each engine.
    pub packets: u64,
    /// Rounds over all levels in which they were sent.
    pub rounds: u64,
    /// Packets before them that did not count, at each level of a round.
    pub warm_up: u64,
    /// From one packet to the next, in ns.
    pub interval_ns: u64,
    /// The payload of each, in bytes.
    pub payload: usize,
    /// Whether the processors were kept out of idle states that take time to leave.
    pub awake: bool,
}

/// What replacing engines gains.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RelayTreeGain {
    /// ΔD: all engines replaced, equation (1) less (2), in ns.
    pub tree_ns: f64,
    /// The same of the mean delay, equation (5) less (6), in ns.
    pub mean_ns: f64,
    /// Equation (3): what the nodes on the way to the slowest leaf gain together, in ns.
    pub along_path_ns: f64,
    /// Whether that leaf is the slowest with either engine, as equation (3) assumes.
    pub same_path: bool,
    /// Equation (4).
    pub regular: RelayTreeEquation4,
    /// Equation (7) as it is printed, in ns: without the root, and each node once.
    pub printed_mean_ns: f64,
    /// By node: what it gains if its engine alone is replaced.
    pub nodes: Vec<RelayTreeNodeGain>,
    /// ΔD as measured, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_tree_ns: Option<f64>,
    /// The gain of the mean delay as measured, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_mean_ns: Option<f64>,
}

/// Equation (4): `ΔD = (log_m n) · ΔTP`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RelayTreeEquation4 {
    /// What does not hold of what it assumes; it applies where this is empty.
    pub broken: Vec<RelayTreeAssumption>,
    /// m: the children of an inner node.
    pub degree: usize,
    /// ΔTP: what one node on the way to the slowest leaf gains, in ns.
    pub processing_ns: f64,
    /// With n all nodes, as it is printed, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub all_nodes_ns: Option<f64>,
    /// With n the leaves, which makes it exact, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leaves_ns: Option<f64>,
}

/// What equation (4) assumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RelayTreeAssumption {
    /// Inner nodes have the same number of children, two or more.
    SameDegree,
    /// Leaves are as far from the root.
    SameDepth,
    /// Nodes take as long.
    SameNodes,
    /// The slowest leaf is the same with either engine.
    SamePath,
    /// Each node on the way to it serves the next at the same place.
    SamePlace,
}

/// What one node gains.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RelayTreeNodeGain {
    /// ΔTP: the mean over its copies, in ns.
    pub processing_ns: f64,
    /// ΔD if it alone is replaced, in ns.
    pub tree_ns: f64,
    /// The same of the mean delay, in ns.
    pub mean_ns: f64,
}

/// Another tree over the same nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RelayTreeShape {
    /// What kind of tree.
    pub kind: RelayTreeShapeKind,
    /// The most children of a node.
    pub degree_max: usize,
    /// Edges from the root to the farthest leaf.
    pub depth: usize,
    /// D, in ns.
    pub tree_ns: f64,
    /// The mean delay, in ns.
    pub mean_ns: f64,
}

/// Kinds of trees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RelayTreeShapeKind {
    /// By the compact tree algorithm, the one that the result is about.
    Compact,
    /// The root serves all others.
    Star,
    /// Each node serves one other.
    Chain,
}
