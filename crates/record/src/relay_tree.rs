//! Result of `horolog relay tree`: predictions of the delay model for a tree of relays, and
//! measurements on real ones.

use serde::{Deserialize, Serialize};

use crate::{Distribution, Finding, Host, LimitResult};

/// The schema's name and version.
pub const RELAY_TREE_SCHEMA: &str = "horolog.relay-tree/2";

/// Tree and its delays. Lists "by node" have an entry for each of [`RelayTreeResult::nodes`], in
/// that order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RelayTreeResult {
    /// [`RELAY_TREE_SCHEMA`].
    pub schema: String,
    /// Start of the run, RFC 3339.
    pub started: String,
    /// Command line of the run.
    pub command: Vec<String>,
    /// Host of the run.
    pub host: Host,
    /// Nodes, level by level, the root first.
    pub nodes: Vec<RelayTreeNode>,
    /// Engines: the existing one, and one that would replace it.
    pub engines: Vec<RelayTreeEngine>,
    /// Gain by the second engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gain: Option<RelayTreeGain>,
    /// Other trees over the same nodes, if the tree was generated here.
    pub shapes: Vec<RelayTreeShape>,
    /// Method of measurement, if delays were measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<RelayTreeMethod>,
    /// Limits of `--fail-if`.
    pub limits: Vec<LimitResult>,
    /// Findings about the result.
    pub findings: Vec<Finding>,
}

/// Node of the tree.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RelayTreeNode {
    /// Name.
    pub name: String,
    /// Index of its parent among the nodes; absent for the root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<usize>,
    /// Position among its parent's children, in the order in which they are served, from 0.
    pub child_index: usize,
    /// Number of edges between the root and it.
    pub depth: usize,
    /// c: transmission delay from its parent, in ns.
    pub delay_ns: f64,
}

/// Delays with one engine at all nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RelayTreeEngine {
    /// Name.
    pub name: String,
    /// By node: processing time.
    pub processing: Vec<RelayTreeProcessing>,
    /// By node: d from the root by the model, in ns.
    pub delays_ns: Vec<f64>,
    /// D by equation (1) or (2): largest delay of a leaf, in ns.
    pub tree_ns: f64,
    /// Leaf with that delay.
    pub slowest: usize,
    /// Mean of all nodes but the root by equation (5) or (6), in ns.
    pub mean_ns: f64,
    /// Measured delays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<RelayTreeMeasured>,
}

/// Time of a node until the copy for a child leaves: `first_ns` plus `next_ns` for each child
/// before it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RelayTreeProcessing {
    /// Time until the first copy leaves, in ns.
    pub first_ns: f64,
    /// Time between copies, in ns.
    pub next_ns: f64,
}

/// Measurement on relays in lab hosts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RelayTreeMeasured {
    /// Calibration of a single node, from which the delays were predicted.
    pub calibration: RelayTreeCalibration,
    /// By node: from the packet's arrival at the root to its arrival at the node, in ns; absent if
    /// nothing arrived.
    pub nodes: Vec<Option<Distribution>>,
    /// By packet: until its arrival at the last leaf, in ns. Packets lost on the way to a leaf are
    /// excluded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_leaf_ns: Option<Distribution>,
    /// D: largest median of a leaf, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree_ns: Option<f64>,
    /// Mean of the medians of all nodes but the root, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean_ns: Option<f64>,
    /// Copies not received, of all nodes together.
    pub lost: u64,
}

/// Calibration of one relay with the largest number of children of a node in the tree.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RelayTreeCalibration {
    /// Median time from sending until the packet reached the kernel of the next host, in ns. It is
    /// subtracted, since delays begin with the packet's arrival at the root.
    pub source_ns: f64,
    /// p by position: median time from the packet's arrival at the relay to its arrival at that
    /// child, in ns; `first_ns` and `next_ns` are the straight line through them. Links of lab
    /// hosts take no time of their own: passing a packet on is work of the sender.
    pub copies_ns: Vec<f64>,
    /// True if the engine serves the last child of its table first. It then received its tables in
    /// reverse, so that children are served in the tree's order.
    pub reversed: bool,
    /// Time until the first copy leaves, in ns.
    pub first_ns: f64,
    /// Time between copies, in ns.
    pub next_ns: f64,
}

impl RelayTreeResult {
    /// Returns the model's mean of the leaves only, in ns: of all receivers, if the nodes above
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

/// Method of measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RelayTreeMethod {
    /// Counted packets, at each level of the tree and with each engine.
    pub packets: u64,
    /// Repetitions over all levels in which they were sent.
    pub repetitions: u64,
    /// Uncounted packets before them, at each level of a repetition.
    pub warm_up: u64,
    /// Time between packets, in ns.
    pub interval_ns: u64,
    /// Payload of each packet, in bytes.
    pub payload: usize,
    /// True if the CPUs were kept out of idle states that take time to leave.
    pub idle_states_held: bool,
}

/// Gain by replacing engines.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RelayTreeGain {
    /// ΔD: all engines replaced, equation (1) minus (2), in ns.
    pub tree_ns: f64,
    /// Gain of the mean delay, equation (5) minus (6), in ns.
    pub mean_ns: f64,
    /// Equation (3): combined gain of the nodes on the path to the slowest leaf, in ns.
    pub along_path_ns: f64,
    /// True if that leaf is the slowest with either engine, as equation (3) assumes.
    pub same_path: bool,
    /// Equation (4).
    pub regular: RelayTreeEquation4,
    /// Equation (7) as published, in ns: without the root, and each node once.
    pub published_mean_ns: f64,
    /// By node: gain if only its engine is replaced.
    pub nodes: Vec<RelayTreeNodeGain>,
    /// ΔD as measured, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_tree_ns: Option<f64>,
    /// Gain of the mean delay as measured, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_mean_ns: Option<f64>,
}

/// Equation (4): `ΔD = (log_m n) · ΔTP`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RelayTreeEquation4 {
    /// Unsatisfied assumptions; the equation applies if this is empty.
    pub broken: Vec<RelayTreeAssumption>,
    /// m: children of an inner node.
    pub degree: usize,
    /// ΔTP: gain of one node on the path to the slowest leaf, in ns.
    pub processing_ns: f64,
    /// Equation with n as the number of all nodes, as published, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub all_nodes_ns: Option<f64>,
    /// Equation with n as the number of leaves, which makes it exact, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leaves_ns: Option<f64>,
}

/// Assumptions of equation (4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RelayTreeAssumption {
    /// Inner nodes have the same number of children, two or more.
    SameDegree,
    /// Leaves have the same distance from the root.
    SameDepth,
    /// Nodes have the same processing time.
    SameNodes,
    /// The slowest leaf is the same with either engine.
    SamePath,
    /// Each node on the path to it serves the next at the same position.
    SameIndex,
}

/// Gain by one node.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RelayTreeNodeGain {
    /// ΔTP: mean over its copies, in ns.
    pub processing_ns: f64,
    /// ΔD if only this node is replaced, in ns.
    pub tree_ns: f64,
    /// Gain of the mean delay, likewise, in ns.
    pub mean_ns: f64,
}

/// Another tree over the same nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RelayTreeShape {
    /// Kind of tree.
    pub kind: RelayTreeShapeKind,
    /// Largest number of children of a node.
    pub degree_max: usize,
    /// Edges from the root to the farthest leaf.
    pub depth: usize,
    /// D, in ns.
    pub tree_ns: f64,
    /// Mean delay, in ns.
    pub mean_ns: f64,
}

/// Kinds of trees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RelayTreeShapeKind {
    /// Tree of the compact tree algorithm, to which the result applies.
    Compact,
    /// Star: the root serves all others.
    Star,
    /// Chain: each node serves one other.
    Chain,
}
