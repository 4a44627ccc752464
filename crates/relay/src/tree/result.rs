//! Conversion of the model's delays to the record of a result, and of a result to a tree file.
//! Pure, except that a record contains the time and facts of the host.

use super::{
    EngineProcessingTimes, EngineReplacementGain, PairDelays, ProcessingTime,
    RegularTreeGainAssumption, Tree, TreeBuildError, TreeEdge, TreeFile, TreeNode, chain_tree,
    replacement_gain, star_tree, tree_delays,
};
use horolog_record::{
    AlternativeTree, AlternativeTreeKind, Host, NodeProcessingTime, RELAY_TREE_SCHEMA,
    RegularTreeAssumption, RegularTreeGain, RelayTreeEngineDelays, RelayTreeGain, RelayTreeNode,
    RelayTreeNodeGain, RelayTreeResult, rfc3339_now,
};

/// Returns the result of the model for a tree with these engines; with two engines, also the gain
/// of the second. `command` is the command line.
#[must_use]
pub fn predicted_result(
    tree: &Tree,
    engines: &[EngineProcessingTimes],
    command: Vec<String>,
) -> RelayTreeResult {
    let gain = match engines {
        [before, after] => Some(gain_record(replacement_gain(tree, before, after))),
        _ => None,
    };
    RelayTreeResult {
        schema: RELAY_TREE_SCHEMA.to_owned(),
        started: rfc3339_now(),
        command,
        host: Host::read(),
        nodes: tree.nodes().iter().map(node_record).collect(),
        engines: engines.iter().map(|engine| predicted_delays(tree, engine)).collect(),
        gain,
        shapes: Vec::new(),
        method: None,
        limits: Vec::new(),
        findings: Vec::new(),
    }
}

fn node_record(node: &TreeNode) -> RelayTreeNode {
    RelayTreeNode {
        name: node.name.clone(),
        parent: node.parent,
        child_index: node.child_index,
        depth: node.depth,
        delay_ns: node.delay_ns,
    }
}

fn predicted_delays(tree: &Tree, engine: &EngineProcessingTimes) -> RelayTreeEngineDelays {
    let all = tree_delays(tree, engine);
    let times =
        |one: &ProcessingTime| NodeProcessingTime { first_ns: one.first_ns, next_ns: one.next_ns };
    RelayTreeEngineDelays {
        name: engine.name.clone(),
        processing: engine.processing.iter().map(times).collect(),
        delays_ns: all.node_ns,
        tree_ns: all.tree_ns,
        slowest: all.slowest_leaf,
        mean_ns: all.mean_ns,
        measured: None,
    }
}

fn gain_record(gain: EngineReplacementGain) -> RelayTreeGain {
    let nodes = gain.nodes.iter().map(|node| RelayTreeNodeGain {
        processing_ns: node.processing_ns,
        tree_ns: node.tree_ns,
        mean_ns: node.mean_ns,
    });
    let regular = gain.equation_4;
    RelayTreeGain {
        tree_ns: gain.tree_ns,
        mean_ns: gain.mean_ns,
        along_path_ns: gain.along_path_ns,
        same_path: gain.same_path,
        published_mean_ns: gain.mean_as_published_ns,
        nodes: nodes.collect(),
        regular: RegularTreeGain {
            broken: regular.violated_assumptions.into_iter().map(assumption_record).collect(),
            degree: regular.degree,
            processing_ns: regular.processing_ns,
            all_nodes_ns: regular.all_nodes_ns,
            leaves_ns: regular.leaves_ns,
        },
        measured_tree_ns: None,
        measured_mean_ns: None,
    }
}

const fn assumption_record(assumption: RegularTreeGainAssumption) -> RegularTreeAssumption {
    match assumption {
        RegularTreeGainAssumption::SameDegree => RegularTreeAssumption::SameDegree,
        RegularTreeGainAssumption::SameDepth => RegularTreeAssumption::SameDepth,
        RegularTreeGainAssumption::SameProcessing => RegularTreeAssumption::SameNodes,
        RegularTreeGainAssumption::SamePath => RegularTreeAssumption::SamePath,
        RegularTreeGainAssumption::SameIndex => RegularTreeAssumption::SameIndex,
    }
}

/// Function that builds a tree from the delays between pairs; its second argument is the root's
/// index.
type TreeConstructor = fn(&PairDelays, usize) -> Result<Tree, TreeBuildError>;

/// Returns the trees for comparison with a compact tree of these pairs, which is the first of them.
/// A tree that needs a pair whose delay is unknown is left out.
#[must_use]
pub fn alternative_trees(
    compact: &Tree,
    pairs: &PairDelays,
    root: usize,
    processing: ProcessingTime,
) -> Vec<AlternativeTree> {
    let others: [(_, TreeConstructor); 2] =
        [(AlternativeTreeKind::Star, star_tree), (AlternativeTreeKind::Chain, chain_tree)];
    let mut trees = vec![alternative_tree(AlternativeTreeKind::Compact, compact, processing)];
    for (kind, build) in others {
        trees.extend(build(pairs, root).ok().map(|tree| alternative_tree(kind, &tree, processing)));
    }
    trees
}

fn alternative_tree(
    kind: AlternativeTreeKind,
    tree: &Tree,
    processing: ProcessingTime,
) -> AlternativeTree {
    let all = tree_delays(tree, &EngineProcessingTimes::uniform("", tree, processing));
    AlternativeTree {
        kind,
        degree_max: tree.degree_max(),
        depth: tree.depth(),
        tree_ns: all.tree_ns,
        mean_ns: all.mean_ns,
    }
}

/// Returns the tree of a result, with the processing times of its engines, as a tree file.
#[must_use]
pub fn tree_toml(result: &RelayTreeResult) -> String {
    let names: Vec<String> = result.nodes.iter().map(|node| node.name.clone()).collect();
    let parent_edge = |(to, node): (usize, &RelayTreeNode)| {
        Some(TreeEdge { from: node.parent?, to, delay_ns: node.delay_ns })
    };
    let edges: Vec<TreeEdge> = result.nodes.iter().enumerate().filter_map(parent_edge).collect();
    let times =
        |one: &NodeProcessingTime| ProcessingTime { first_ns: one.first_ns, next_ns: one.next_ns };
    let engines = result.engines.iter().map(|engine| EngineProcessingTimes {
        name: engine.name.clone(),
        processing: engine.processing.iter().map(times).collect(),
    });
    let engines = engines.collect();
    // The nodes of a result are those of a valid tree, so this does not fail.
    Tree::new(&names, &edges)
        .map_or_else(|_| String::new(), |tree| TreeFile { tree, engines }.to_toml())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_of_a_result_is_read_again() {
        let tree = Tree::regular(3, 2, 1_500.0).unwrap();
        let times = ProcessingTime { first_ns: 20_000.0, next_ns: 6_000.0 };
        let engines = vec![EngineProcessingTimes::uniform("user-space", &tree, times)];
        let result = predicted_result(&tree, &engines, Vec::new());
        assert_eq!(TreeFile::parse(&tree_toml(&result)), Ok(TreeFile { tree, engines }));
    }
}
