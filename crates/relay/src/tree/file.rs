//! Tree as written by a person, in a TOML file: nodes, edges with their delays, and processing
//! times of engines.

use std::collections::HashMap;
use std::fmt::Write;

use serde::Deserialize;
use toml::Spanned;

use super::error::{check_name, checked_time_ns, printable_name, to_us};
use super::{
    EngineProcessingTimes, NODES_MAX, ProcessingTime, Tree, TreeEdge, TreeFileError, TreeShapeError,
};

/// Maximum number of engines in a file: one, and one that replaces it.
pub const ENGINES_MAX: usize = 2;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RawTree {
    nodes: Spanned<Vec<Spanned<String>>>,
    #[serde(default)]
    processing: Vec<Spanned<RawProcessingTime>>,
    #[serde(default, rename = "edge")]
    edges: Vec<Spanned<RawEdge>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RawProcessingTime {
    engine: Spanned<String>,
    node: Option<Spanned<String>>,
    first_us: Spanned<f64>,
    next_us: Spanned<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RawEdge {
    from: Spanned<String>,
    to: Spanned<String>,
    delay_us: Spanned<f64>,
}

/// Content of a tree file.
#[derive(Clone, PartialEq, Debug)]
pub struct TreeFile {
    /// The tree.
    pub tree: Tree,
    /// Engines in the order of their first mention in the file; the second replaces the first.
    /// There may be none.
    pub engines: Vec<EngineProcessingTimes>,
}

impl TreeFile {
    /// Parses a tree file.
    pub fn parse(text: &str) -> Result<Self, TreeFileError> {
        let raw: RawTree = toml::from_str(text).map_err(|error| {
            let byte = error.span().map_or(0, |span| span.start);
            let reason = error.message().split_whitespace().collect::<Vec<_>>().join(" ");
            TreeFileError::at_byte(text, byte, reason)
        })?;
        let reader = TreeFileReader { text };
        let names = reader.names(&raw.nodes)?;
        let indices = reader.node_indices(&raw.nodes)?;
        let edges = reader.edges(&raw.edges, &indices)?;
        let tree = Tree::new(&names, &edges).map_err(|error| {
            let byte = match &error {
                TreeShapeError::SelfLoop { edge, .. }
                | TreeShapeError::TwoParents { edge, .. }
                | TreeShapeError::DuplicateEdge { edge, .. } => raw.edges[*edge].span().start,
                _ => raw.nodes.span().start,
            };
            TreeFileError::at_byte(text, byte, error)
        })?;
        let engines = reader.engines(&raw.processing, &indices, &tree)?;
        Ok(Self { tree, engines })
    }

    /// Renders the tree as a file, with times in µs at full precision.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let nodes = self.tree.nodes();
        // Writing to memory does not fail.
        let mut text = String::from("nodes = [");
        for (at, node) in nodes.iter().enumerate() {
            let before = if at % 8 == 0 { "\n    " } else { " " };
            let _ = write!(text, "{before}\"{}\",", node.name);
        }
        text.push_str("\n]\n");
        for engine in &self.engines {
            self.write_engine(&mut text, engine);
        }
        for node in nodes {
            if let Some(parent) = node.parent {
                let _ = write!(
                    text,
                    "\n[[edge]]\nfrom = \"{}\"\nto = \"{}\"\ndelay-us = {}\n",
                    nodes[parent].name,
                    node.name,
                    to_us(node.delay_ns)
                );
            }
        }
        text
    }

    fn write_engine(&self, text: &mut String, engine: &EngineProcessingTimes) {
        let default_processing = engine.processing[0];
        for (at, node) in self.tree.nodes().iter().enumerate() {
            let node_processing = engine.processing[at];
            if at > 0 && (node_processing == default_processing || node.children.is_empty()) {
                continue;
            }
            let _ = write!(text, "\n[[processing]]\nengine = \"{}\"\n", engine.name);
            if at > 0 {
                let _ = writeln!(text, "node = \"{}\"", node.name);
            }
            let (first, next) = (to_us(node_processing.first_ns), to_us(node_processing.next_ns));
            let _ = write!(text, "first-us = {first}\nnext-us = {next}\n");
        }
    }
}

/// Reader of a parsed file, whose errors have line numbers.
struct TreeFileReader<'a> {
    text: &'a str,
}

/// Index of each node in the list, by its name.
type NodeIndices<'a> = HashMap<&'a str, usize>;

impl TreeFileReader<'_> {
    fn error_at<T>(&self, at: &Spanned<T>, reason: impl std::fmt::Display) -> TreeFileError {
        TreeFileError::at_byte(self.text, at.span().start, reason)
    }

    fn names(&self, nodes: &Spanned<Vec<Spanned<String>>>) -> Result<Vec<String>, TreeFileError> {
        if nodes.get_ref().len() > NODES_MAX {
            return Err(self.error_at(nodes, TreeShapeError::TooManyNodes(nodes.get_ref().len())));
        }
        let name = |name: &Spanned<String>| {
            check_name(name.get_ref()).map_err(|reason| self.error_at(name, reason))?;
            Ok(name.get_ref().clone())
        };
        nodes.get_ref().iter().map(name).collect()
    }

    fn node_indices<'a>(
        &self,
        nodes: &'a Spanned<Vec<Spanned<String>>>,
    ) -> Result<NodeIndices<'a>, TreeFileError> {
        let mut indices = NodeIndices::new();
        for (at, name) in nodes.get_ref().iter().enumerate() {
            if indices.insert(name.get_ref(), at).is_some() {
                let reason = format!("node '{}' is listed twice", name.get_ref());
                return Err(self.error_at(name, reason));
            }
        }
        Ok(indices)
    }

    fn node_index(
        &self,
        name: &Spanned<String>,
        indices: &NodeIndices<'_>,
    ) -> Result<usize, TreeFileError> {
        indices.get(name.get_ref().as_str()).copied().ok_or_else(|| {
            let shown = printable_name(name.get_ref());
            self.error_at(name, format!("node '{shown}' is not in the list of nodes"))
        })
    }

    fn edges(
        &self,
        edges: &[Spanned<RawEdge>],
        indices: &NodeIndices<'_>,
    ) -> Result<Vec<TreeEdge>, TreeFileError> {
        let edge = |edge: &Spanned<RawEdge>| {
            let RawEdge { from, to, delay_us } = edge.get_ref();
            let delay_ns = self.time("delay-us", delay_us)?;
            Ok(TreeEdge {
                from: self.node_index(from, indices)?,
                to: self.node_index(to, indices)?,
                delay_ns,
            })
        };
        edges.iter().map(edge).collect()
    }

    fn time(&self, what: &str, us: &Spanned<f64>) -> Result<f64, TreeFileError> {
        checked_time_ns(what, *us.get_ref()).map_err(|reason| self.error_at(us, reason))
    }

    fn engines(
        &self,
        entries: &[Spanned<RawProcessingTime>],
        indices: &NodeIndices<'_>,
        tree: &Tree,
    ) -> Result<Vec<EngineProcessingTimes>, TreeFileError> {
        // The tree's order differs from that of the list.
        let tree_indices: HashMap<&str, usize> =
            tree.nodes().iter().enumerate().map(|(at, node)| (node.name.as_str(), at)).collect();
        let mut engines: Vec<EngineFileEntries<'_>> = Vec::new();
        for entry in entries {
            let RawProcessingTime { engine, node, first_us, next_us } = entry.get_ref();
            check_name(engine.get_ref()).map_err(|_| {
                self.error_at(
                    engine,
                    "invalid engine name; use the characters of node names, as in \
                                    \"user-space\"",
                )
            })?;
            let processing = ProcessingTime {
                first_ns: self.time("first-us", first_us)?,
                next_ns: self.time("next-us", next_us)?,
            };
            let engine_index = match engines.iter().position(|known| known.name == engine.get_ref())
            {
                Some(known) => known,
                None if engines.len() == ENGINES_MAX => {
                    let reason = format!("a tree supports at most {ENGINES_MAX} engines");
                    return Err(self.error_at(engine, reason));
                }
                None => {
                    let (name, first_offset) = (engine.get_ref().as_str(), entry.span().start);
                    engines.push(EngineFileEntries {
                        name,
                        first_offset,
                        ..EngineFileEntries::default()
                    });
                    engines.len() - 1
                }
            };
            let entries_of_engine = &mut engines[engine_index];
            let before = match node {
                None => entries_of_engine.default_processing.replace(processing),
                Some(node) => {
                    self.node_index(node, indices)?;
                    entries_of_engine
                        .node_processing
                        .insert(tree_indices[node.get_ref().as_str()], processing)
                }
            };
            if before.is_some() {
                let reason =
                    format!("engine '{}' has this processing already", entries_of_engine.name);
                return Err(self.error_at(entry, reason));
            }
        }
        let to_engine = |entries: &EngineFileEntries<'_>| {
            entries.engine(tree).map_err(|node| {
                let reason = format!(
                    "engine '{}' has no processing for node '{node}', nor one for all nodes",
                    entries.name
                );
                TreeFileError::at_byte(self.text, entries.first_offset, reason)
            })
        };
        engines.iter().map(to_engine).collect()
    }
}

/// Processing times of a file for one engine.
#[derive(Default)]
struct EngineFileEntries<'a> {
    name: &'a str,
    /// Byte offset of the engine's first entry.
    first_offset: usize,
    /// Processing time of all nodes without an entry of their own.
    default_processing: Option<ProcessingTime>,
    node_processing: HashMap<usize, ProcessingTime>,
}

impl EngineFileEntries<'_> {
    /// Returns the engine with its processing time at each node; the error is the name of an inner
    /// node without an entry.
    fn engine(&self, tree: &Tree) -> Result<EngineProcessingTimes, String> {
        let processing_at = |(at, node): (usize, &super::TreeNode)| {
            let known = self.node_processing.get(&at).copied().or(self.default_processing);
            let known = known.or_else(|| node.children.is_empty().then(ProcessingTime::default));
            known.ok_or_else(|| node.name.clone())
        };
        let processing =
            tree.nodes().iter().enumerate().map(processing_at).collect::<Result<_, _>>()?;
        Ok(EngineProcessingTimes { name: self.name.to_owned(), processing })
    }
}
