//! The tree that was asked for: from a file, by degree and depth, or made from delays between
//! pairs.

use std::fs;
use std::path::Path;

use horolog_record::{RelayTreeShape, RelayTreeShapeKind};
use horolog_relay::tree::{
    BuildError, Engine, Pairs, Processing, Tree, TreeFile, chain, compact, delays, star,
};

use super::TreeArgs;
use crate::failure::Failure;

/// Names of the two engines that flags tell of.
const HOST_BASED: &str = "host-based";
const IN_KERNEL: &str = "in-kernel";

/// What is known before anything is measured.
pub(super) struct Given {
    pub(super) tree: Tree,
    pub(super) engines: Vec<Engine>,
    /// Other trees over the same nodes.
    pub(super) shapes: Vec<RelayTreeShape>,
}

pub(super) fn read(args: &TreeArgs) -> Result<Given, Failure> {
    let given = if let Some(path) = &args.file {
        let file = TreeFile::parse(&text(path)?);
        let TreeFile { tree, engines } = file.map_err(|fault| located(path, fault))?;
        Given { tree, engines, shapes: Vec::new() }
    } else if let Some(path) = &args.pairwise {
        from_pairs(args, path)?
    } else {
        let (degree, depth) = (args.degree.unwrap_or(1), args.depth.unwrap_or(1));
        let delay_ns = args.delay.as_nanos() as f64;
        let tree = Tree::regular(degree as usize, depth as usize, delay_ns);
        Given { tree: tree.map_err(Failure::usage)?, engines: Vec::new(), shapes: Vec::new() }
    };
    let told = told(args, &given.tree);
    let engines = if told.is_empty() { given.engines } else { told };
    if engines.is_empty() && !args.measure.measure {
        return Err(Failure::usage(
            "nothing says how long a node takes; give --host-based FIRST,NEXT such as 20us,6us, or \
             --measure",
        ));
    }
    Ok(Given { engines, ..given })
}

/// The engines of the flags.
fn told(args: &TreeArgs, tree: &Tree) -> Vec<Engine> {
    let flags = [(HOST_BASED, args.host_based), (IN_KERNEL, args.in_kernel)];
    let told = flags.into_iter().filter_map(|(name, times)| Some((name, times?)));
    told.map(|(name, times)| Engine::uniform(name, tree, times)).collect()
}

/// How a tree is made from pairs and a root.
type Make = fn(&Pairs, usize) -> Result<Tree, BuildError>;

fn from_pairs(args: &TreeArgs, path: &Path) -> Result<Given, Failure> {
    let pairs = Pairs::parse(&text(path)?).map_err(|fault| located(path, fault))?;
    let no_node = |name: &String| {
        Failure::usage(format!("{}: there is no node '{name}' for --root", path.display()))
    };
    let named = args.root.as_ref().map(|name| pairs.place(name).ok_or_else(|| no_node(name)));
    let root = named.transpose()?.unwrap_or(0);
    let degree_max = args.degree_max.unwrap_or(1) as usize;
    // Where it is to be measured, how long a node takes is not known yet: the delays alone count.
    let processing = args.host_based.unwrap_or_default();
    let tree =
        compact(&pairs, root, degree_max, processing).map_err(|error| located(path, error))?;
    let mut shapes = vec![shape(RelayTreeShapeKind::Compact, &tree, processing)];
    let others: [(_, Make); 2] =
        [(RelayTreeShapeKind::Star, star), (RelayTreeShapeKind::Chain, chain)];
    for (kind, make) in others {
        // One for which a pair is not known is not there to be compared with.
        shapes.extend(make(&pairs, root).ok().map(|tree| shape(kind, &tree, processing)));
    }
    Ok(Given { tree, engines: Vec::new(), shapes })
}

fn shape(kind: RelayTreeShapeKind, tree: &Tree, processing: Processing) -> RelayTreeShape {
    let all = delays(tree, &Engine::uniform(HOST_BASED, tree, processing));
    RelayTreeShape {
        kind,
        degree_max: tree.degree_max(),
        depth: tree.depth(),
        tree_ns: all.tree_ns,
        mean_ns: all.mean_ns,
    }
}

fn text(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path)
        .map_err(|error| Failure::usage(format!("cannot read {}: {error}", path.display())))
}

fn located(path: &Path, fault: impl std::fmt::Display) -> Failure {
    Failure::usage(format!("{}, {fault}", path.display()))
}
