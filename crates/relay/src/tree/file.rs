//! A tree as a person writes it, in a TOML file: nodes, edges with their delays, and how long
//! engines take.

use std::collections::HashMap;
use std::fmt::Write;

use serde::Deserialize;
use toml::Spanned;

use super::fault::{check_name, quoted, time_ns, us};
use super::{Edge, Engine, Fault, NODES_MAX, Processing, ShapeError, Tree};

/// Engines of a file: one, and one that takes its place.
pub const ENGINES_MAX: usize = 2;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Raw {
    nodes: Spanned<Vec<Spanned<String>>>,
    #[serde(default)]
    processing: Vec<Spanned<RawProcessing>>,
    #[serde(default, rename = "edge")]
    edges: Vec<Spanned<RawEdge>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RawProcessing {
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

/// What a tree file says.
#[derive(Clone, PartialEq, Debug)]
pub struct TreeFile {
    /// The tree.
    pub tree: Tree,
    /// The engines in the order in which the file names them first; the second takes the place of
    /// the first. There may be none.
    pub engines: Vec<Engine>,
}

impl TreeFile {
    /// Reads a tree file.
    pub fn parse(text: &str) -> Result<Self, Fault> {
        let raw: Raw = toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            let reason = error.message().split_whitespace().collect::<Vec<_>>().join(" ");
            Fault::at(text, at, reason)
        })?;
        let reader = Reader { text };
        let names = reader.names(&raw.nodes)?;
        let places = reader.places(&raw.nodes)?;
        let edges = reader.edges(&raw.edges, &places)?;
        let tree = Tree::new(&names, &edges).map_err(|error| {
            let at = match &error {
                ShapeError::Oneself { edge, .. }
                | ShapeError::Parents { edge, .. }
                | ShapeError::Twice { edge, .. } => raw.edges[*edge].span().start,
                _ => raw.nodes.span().start,
            };
            Fault::at(text, at, error)
        })?;
        let engines = reader.engines(&raw.processing, &places, &tree)?;
        Ok(Self { tree, engines })
    }

    /// The same as a file. Times have a thousandth of a nanosecond.
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
                    us(node.delay_ns)
                );
            }
        }
        text
    }

    fn write_engine(&self, text: &mut String, engine: &Engine) {
        let usual = engine.processing[0];
        for (at, node) in self.tree.nodes().iter().enumerate() {
            let own = engine.processing[at];
            if at > 0 && (own == usual || node.children.is_empty()) {
                continue;
            }
            let _ = write!(text, "\n[[processing]]\nengine = \"{}\"\n", engine.name);
            if at > 0 {
                let _ = writeln!(text, "node = \"{}\"", node.name);
            }
            let (first, next) = (us(own.first_ns), us(own.next_ns));
            let _ = write!(text, "first-us = {first}\nnext-us = {next}\n");
        }
    }
}

/// Turns what stands in a text into what it means, or says where it means nothing.
struct Reader<'a> {
    text: &'a str,
}

/// The place of each node in the list, by its name.
type Places<'a> = HashMap<&'a str, usize>;

impl Reader<'_> {
    fn fault<T>(&self, at: &Spanned<T>, reason: impl std::fmt::Display) -> Fault {
        Fault::at(self.text, at.span().start, reason)
    }

    fn names(&self, nodes: &Spanned<Vec<Spanned<String>>>) -> Result<Vec<String>, Fault> {
        if nodes.get_ref().len() > NODES_MAX {
            return Err(self.fault(nodes, ShapeError::Nodes(nodes.get_ref().len())));
        }
        let name = |name: &Spanned<String>| {
            check_name(name.get_ref()).map_err(|reason| self.fault(name, reason))?;
            Ok(name.get_ref().clone())
        };
        nodes.get_ref().iter().map(name).collect()
    }

    fn places<'a>(&self, nodes: &'a Spanned<Vec<Spanned<String>>>) -> Result<Places<'a>, Fault> {
        let mut places = Places::new();
        for (at, name) in nodes.get_ref().iter().enumerate() {
            if places.insert(name.get_ref(), at).is_some() {
                let reason = format!("node '{}' is in the list already", name.get_ref());
                return Err(self.fault(name, reason));
            }
        }
        Ok(places)
    }

    fn place(&self, name: &Spanned<String>, places: &Places<'_>) -> Result<usize, Fault> {
        places.get(name.get_ref().as_str()).copied().ok_or_else(|| {
            let shown = quoted(name.get_ref());
            self.fault(name, format!("there is no node '{shown}' in the list of nodes"))
        })
    }

    fn edges(&self, edges: &[Spanned<RawEdge>], places: &Places<'_>) -> Result<Vec<Edge>, Fault> {
        let edge = |edge: &Spanned<RawEdge>| {
            let RawEdge { from, to, delay_us } = edge.get_ref();
            let delay_ns = self.time("delay-us", delay_us)?;
            Ok(Edge { from: self.place(from, places)?, to: self.place(to, places)?, delay_ns })
        };
        edges.iter().map(edge).collect()
    }

    fn time(&self, what: &str, us: &Spanned<f64>) -> Result<f64, Fault> {
        time_ns(what, *us.get_ref()).map_err(|reason| self.fault(us, reason))
    }

    fn engines(
        &self,
        entries: &[Spanned<RawProcessing>],
        places: &Places<'_>,
        tree: &Tree,
    ) -> Result<Vec<Engine>, Fault> {
        // The tree's order is another than that of the list.
        let in_tree: HashMap<&str, usize> =
            tree.nodes().iter().enumerate().map(|(at, node)| (node.name.as_str(), at)).collect();
        let mut engines: Vec<Entries<'_>> = Vec::new();
        for entry in entries {
            let RawProcessing { engine, node, first_us, next_us } = entry.get_ref();
            check_name(engine.get_ref()).map_err(|_| {
                self.fault(engine, "an engine is named like a node, such as \"host-based\"")
            })?;
            let processing = Processing {
                first_ns: self.time("first-us", first_us)?,
                next_ns: self.time("next-us", next_us)?,
            };
            let of = match engines.iter().position(|known| known.name == engine.get_ref()) {
                Some(known) => known,
                None if engines.len() == ENGINES_MAX => {
                    let reason = format!("a tree is compared with {ENGINES_MAX} engines at most");
                    return Err(self.fault(engine, reason));
                }
                None => {
                    let (name, begins) = (engine.get_ref().as_str(), entry.span().start);
                    engines.push(Entries { name, begins, ..Entries::default() });
                    engines.len() - 1
                }
            };
            let known = &mut engines[of];
            let before = match node {
                None => known.usual.replace(processing),
                Some(node) => {
                    self.place(node, places)?;
                    known.own.insert(in_tree[node.get_ref().as_str()], processing)
                }
            };
            if before.is_some() {
                let reason = format!("engine '{}' has this processing already", known.name);
                return Err(self.fault(entry, reason));
            }
        }
        let all_of = |entries: &Entries<'_>| {
            entries.engine(tree).map_err(|node| {
                let reason = format!(
                    "engine '{}' has no processing for node '{node}', nor one for all nodes",
                    entries.name
                );
                Fault::at(self.text, entries.begins, reason)
            })
        };
        engines.iter().map(all_of).collect()
    }
}

/// What a file says of one engine.
#[derive(Default)]
struct Entries<'a> {
    name: &'a str,
    /// The byte where the first entry stands.
    begins: usize,
    /// For all nodes that have none of their own.
    usual: Option<Processing>,
    own: HashMap<usize, Processing>,
}

impl Entries<'_> {
    /// The engine at each node, or the name of an inner node that it knows nothing of.
    fn engine(&self, tree: &Tree) -> Result<Engine, String> {
        let of = |(at, node): (usize, &super::Node)| {
            let known = self.own.get(&at).copied().or(self.usual);
            let known = known.or_else(|| node.children.is_empty().then(Processing::default));
            known.ok_or_else(|| node.name.clone())
        };
        let processing = tree.nodes().iter().enumerate().map(of).collect::<Result<_, _>>()?;
        Ok(Engine { name: self.name.to_owned(), processing })
    }
}
