//! Trees of relays and the delay of a packet through them: the model of Cao, Su and Lu, "A
//! mechanism improving the forwarding throughput of application layer multicast" (Journal of
//! National University of Defense Technology 30(2), 2008), section 2. All of it is pure, except
//! that results contain the time and facts of the host.
//!
//! A tree has a root, from which packets come, and edges along which copies go. The delay d(u, v)
//! is the sum along the path: the processing p of each node but the last, and the transmission
//! delay c of each edge. The delay of the tree, D, is the largest d from the root to a leaf:
//! equation (1) for host-based relaying, (2) for the other. The mean delay is that of all nodes but
//! the root: (5) and (6). The gains are the differences: (3) and (4) of D, (7) of the mean.
//!
//! The paper gives a node one processing time. But children are served one after another (its
//! figure 1), so a child's delay depends on its index: here the copy for the child at index i,
//! counted from 0, leaves `first + i · next` after the packet arrived at the node. With `next` 0 it
//! is the paper's model.

mod build;
mod delay;
mod error;
mod file;
mod gain;
mod pairs;
mod result;
mod shape;
#[cfg(test)]
mod tests;

pub use build::{TreeBuildError, chain_tree, compact_tree, star_tree};
pub use delay::{EngineProcessingTimes, ProcessingTime, TreeDelays, delay_between, tree_delays};
pub use error::TreeFileError;
pub use file::{ENGINES_MAX, TreeFile};
pub use gain::{
    EngineReplacementGain, NodeReplacementGain, RegularTreeGainAssumption,
    RegularTreeReplacementGain, replacement_gain,
};
pub use pairs::{PAIR_NODES_MAX, PairDelays};
pub use result::{alternative_trees, predicted_result, tree_toml};
pub use shape::{NODES_MAX, Tree, TreeEdge, TreeNode, TreeShapeError};
