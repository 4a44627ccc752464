//! Input tree: from a file, by degree and depth, or built from delays between pairs.

use std::fs;
use std::path::Path;

use horolog_record::{AlternativeTree, AlternativeTreeKind};
use horolog_relay::tree::{
    BuildError, PairDelays, ProcessingTime, Tree, TreeEngine, TreeFile, chain_tree, compact_tree,
    star_tree, tree_delays,
};

use super::TreeArgs;
use crate::failure::CommandFailure;

/// Names of the two engines of the flags.
const HOST_BASED: &str = "host-based";
const IN_KERNEL: &str = "in-kernel";

/// Input of the command, known before anything is measured.
pub(super) struct TreeInput {
    pub(super) tree: Tree,
    pub(super) engines: Vec<TreeEngine>,
    /// Other trees over the same nodes.
    pub(super) shapes: Vec<AlternativeTree>,
}

pub(super) fn read(args: &TreeArgs) -> Result<TreeInput, CommandFailure> {
    let input = if let Some(path) = &args.file {
        let file = TreeFile::parse(&text(path)?);
        let TreeFile { tree, engines } = file.map_err(|fault| located(path, fault))?;
        TreeInput { tree, engines, shapes: Vec::new() }
    } else if let Some(path) = &args.pairwise {
        from_pairs(args, path)?
    } else {
        let (degree, depth) = (args.degree.unwrap_or(1), args.depth.unwrap_or(1));
        let delay_ns = args.delay.as_nanos() as f64;
        let tree = Tree::regular(degree as usize, depth as usize, delay_ns);
        TreeInput {
            tree: tree.map_err(CommandFailure::usage)?,
            engines: Vec::new(),
            shapes: Vec::new(),
        }
    };
    let specified = engines_of_flags(args, &input.tree);
    let engines = if specified.is_empty() { input.engines } else { specified };
    if engines.is_empty() && !args.measure.measure {
        return Err(CommandFailure::usage(
            "no processing time of a node given; add --host-based FIRST,NEXT such as 20us,6us, \
             or --measure",
        ));
    }
    Ok(TreeInput { engines, ..input })
}

/// The engines of the flags.
fn engines_of_flags(args: &TreeArgs, tree: &Tree) -> Vec<TreeEngine> {
    let flags = [(HOST_BASED, args.host_based), (IN_KERNEL, args.in_kernel)];
    let specified = flags.into_iter().filter_map(|(name, times)| Some((name, times?)));
    specified.map(|(name, times)| TreeEngine::uniform(name, tree, times)).collect()
}

/// Function that builds a tree from pairs and a root.
type Make = fn(&PairDelays, usize) -> Result<Tree, BuildError>;

fn from_pairs(args: &TreeArgs, path: &Path) -> Result<TreeInput, CommandFailure> {
    let pairs = PairDelays::parse(&text(path)?).map_err(|fault| located(path, fault))?;
    let no_node = |name: &String| {
        CommandFailure::usage(format!("{}: no node '{name}' for --root", path.display()))
    };
    let named = args.root.as_ref().map(|name| pairs.index_of(name).ok_or_else(|| no_node(name)));
    let root = named.transpose()?.unwrap_or(0);
    let degree_max = args.degree_max.unwrap_or(1) as usize;
    // Before a measurement the processing time of a node is not known: the delays alone count.
    let processing = args.host_based.unwrap_or_default();
    let tree =
        compact_tree(&pairs, root, degree_max, processing).map_err(|error| located(path, error))?;
    let mut shapes = vec![shape(AlternativeTreeKind::Compact, &tree, processing)];
    let others: [(_, Make); 2] =
        [(AlternativeTreeKind::Star, star_tree), (AlternativeTreeKind::Chain, chain_tree)];
    for (kind, make) in others {
        // A tree with an unknown pair is left out of the comparison.
        shapes.extend(make(&pairs, root).ok().map(|tree| shape(kind, &tree, processing)));
    }
    Ok(TreeInput { tree, engines: Vec::new(), shapes })
}

fn shape(kind: AlternativeTreeKind, tree: &Tree, processing: ProcessingTime) -> AlternativeTree {
    let all = tree_delays(tree, &TreeEngine::uniform(HOST_BASED, tree, processing));
    AlternativeTree {
        kind,
        degree_max: tree.degree_max(),
        depth: tree.depth(),
        tree_ns: all.tree_ns,
        mean_ns: all.mean_ns,
    }
}

fn text(path: &Path) -> Result<String, CommandFailure> {
    fs::read_to_string(path)
        .map_err(|error| CommandFailure::usage(format!("cannot read {}: {error}", path.display())))
}

fn located(path: &Path, fault: impl std::fmt::Display) -> CommandFailure {
    CommandFailure::usage(format!("{}, {fault}", path.display()))
}
