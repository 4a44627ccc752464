//! Input tree of `relay tree`: read from a file, regular by degree and depth, or built from delays
//! between pairs of nodes.

use std::fs;
use std::path::Path;

use horolog_record::AlternativeTree;
use horolog_relay::tree::{
    EngineProcessingTimes, PairDelays, Tree, TreeFile, alternative_trees, compact_tree,
};

use super::RelayTreeArgs;
use crate::failure::CommandFailure;

/// Names of the engines of --user-space and --in-kernel.
const USER_SPACE: &str = "user-space";
const IN_KERNEL: &str = "in-kernel";

/// Tree and engines specified by the arguments.
pub(super) struct TreeInput {
    pub(super) tree: Tree,
    pub(super) engines: Vec<EngineProcessingTimes>,
    /// Trees built from the same delays, for comparison; empty without --pairwise.
    pub(super) shapes: Vec<AlternativeTree>,
}

pub(super) fn read_input(args: &RelayTreeArgs) -> Result<TreeInput, CommandFailure> {
    let input = if let Some(path) = &args.file {
        let file = TreeFile::parse(&read_text(path)?);
        let TreeFile { tree, engines } = file.map_err(|fault| file_error(path, fault))?;
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
            "no processing time of a node given; add --user-space FIRST,NEXT such as 20us,6us, \
             or --measure",
        ));
    }
    Ok(TreeInput { engines, ..input })
}

/// Returns the engines of --user-space and --in-kernel, each with the same times at all nodes.
fn engines_of_flags(args: &RelayTreeArgs, tree: &Tree) -> Vec<EngineProcessingTimes> {
    let flags = [(USER_SPACE, args.user_space), (IN_KERNEL, args.in_kernel)];
    let specified = flags.into_iter().filter_map(|(name, times)| Some((name, times?)));
    specified.map(|(name, times)| EngineProcessingTimes::uniform(name, tree, times)).collect()
}

fn from_pairs(args: &RelayTreeArgs, path: &Path) -> Result<TreeInput, CommandFailure> {
    let pairs = PairDelays::parse(&read_text(path)?).map_err(|fault| file_error(path, fault))?;
    let no_node = |name: &String| {
        CommandFailure::usage(format!("{}: no node '{name}' for --root", path.display()))
    };
    let named = args.root.as_ref().map(|name| pairs.index_of(name).ok_or_else(|| no_node(name)));
    let root = named.transpose()?.unwrap_or(0);
    let degree_max = args.degree_max.unwrap_or(1) as usize;
    // Without --user-space the processing time counts as 0: only the link delays matter.
    let processing = args.user_space.unwrap_or_default();
    let tree = compact_tree(&pairs, root, degree_max, processing)
        .map_err(|error| file_error(path, error))?;
    let shapes = alternative_trees(&tree, &pairs, root, processing);
    Ok(TreeInput { tree, engines: Vec::new(), shapes })
}

fn read_text(path: &Path) -> Result<String, CommandFailure> {
    fs::read_to_string(path)
        .map_err(|error| CommandFailure::usage(format!("cannot read {}: {error}", path.display())))
}

fn file_error(path: &Path, fault: impl std::fmt::Display) -> CommandFailure {
    CommandFailure::usage(format!("{}, {fault}", path.display()))
}
