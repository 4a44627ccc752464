//! A tree: its nodes, whose child each is and at which place, and the transmission delays of its
//! edges. Right by its type: it has one root, and everything else hangs below that.

use std::collections::VecDeque;

/// Nodes of a tree.
pub const NODES_MAX: usize = 65_536;
/// Nodes of a cycle that are named.
const CYCLE_SHOWN: usize = 8;

/// Why nodes and edges are no tree.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ShapeError {
    /// Too many nodes.
    #[error("{0} nodes are too many; a tree takes {NODES_MAX}")]
    Nodes(usize),
    /// Too many nodes of a regular tree, which are not counted to the end.
    #[error(
        "{degree} children a node and {depth} levels below the root are too many; a tree takes {NODES_MAX} nodes"
    )]
    Regular {
        /// Children of each inner node.
        degree: usize,
        /// Edges from the root to each leaf.
        depth: usize,
    },
    /// No node, or one alone.
    #[error("a tree has two nodes or more; with one there is no delay")]
    Alone,
    /// A degree of 0.
    #[error("a tree whose nodes have no children is one node; give a degree and a depth from 1 up")]
    Nothing,
    /// An edge from a node to itself.
    #[error("node '{name}' is its own child")]
    Oneself {
        /// The edge, by its place.
        edge: usize,
        /// The node.
        name: String,
    },
    /// A node with two parents.
    #[error("node '{child}' has two parents, '{first}' and '{second}'; a tree gives it one")]
    Parents {
        /// The second edge to it, by its place.
        edge: usize,
        /// The node.
        child: String,
        /// Its parent by the first edge.
        first: String,
        /// Its parent by the second one.
        second: String,
    },
    /// An edge twice.
    #[error("'{child}' is a child of '{parent}' already")]
    Twice {
        /// The second edge, by its place.
        edge: usize,
        /// From where.
        parent: String,
        /// To where.
        child: String,
    },
    /// A circle.
    #[error("there is a cycle: {0}; a tree has none, so take one of its edges away")]
    Cycle(String),
    /// A circle, and no node that is outside of it or below.
    #[error("there is no root, because every node has a parent: {0}")]
    NoRoot(String),
    /// Two nodes without a parent.
    #[error("'{0}' and '{1}' both have no parent; a tree has one root")]
    Roots(String, String),
}

/// An edge from a parent to a child; nodes are given by their places in a list.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Edge {
    /// The parent.
    pub from: usize,
    /// The child.
    pub to: usize,
    /// The transmission delay c, in ns.
    pub delay_ns: f64,
}

/// A node of a tree.
#[derive(Clone, PartialEq, Debug)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// The node above it; the root has none.
    pub parent: Option<usize>,
    /// Its place among its parent's children, in the order in which they are served.
    pub place: usize,
    /// Edges between the root and it.
    pub depth: usize,
    /// The transmission delay from its parent, in ns; the root's is 0.
    pub delay_ns: f64,
    /// Its children, in the order in which they are served.
    pub children: Vec<usize>,
}

/// A tree. Its nodes stand level by level, the root first, and so each behind its parent; the
/// children of a node stand together, in the order in which they are served.
#[derive(Clone, PartialEq, Debug)]
pub struct Tree {
    nodes: Vec<Node>,
}

impl Tree {
    /// Makes the tree of these nodes and edges. The children of a node are served in the order of
    /// the edges. Names are for messages and are not compared.
    ///
    /// # Panics
    ///
    /// When an edge names a place that is not in the list.
    pub fn new(names: &[String], edges: &[Edge]) -> Result<Self, ShapeError> {
        match names.len() {
            0 | 1 => return Err(ShapeError::Alone),
            many if many > NODES_MAX => return Err(ShapeError::Nodes(many)),
            _ => {}
        }
        let parents = parents(names, edges)?;
        let mut below = vec![Vec::new(); names.len()];
        for edge in edges {
            below[edge.from].push(edge.to);
        }
        let root = root(names, &parents)?;
        let mut nodes: Vec<Node> = Vec::with_capacity(names.len());
        // Places in the list, and what is known of the node from above.
        let mut next = VecDeque::from([(root, None, 0, 0)]);
        while let Some((at, parent, place, depth)) = next.pop_front() {
            let own = nodes.len();
            if let Some(parent) = parent {
                let parent: &mut Node = &mut nodes[parent];
                parent.children.push(own);
            }
            for (place, child) in below[at].iter().enumerate() {
                next.push_back((*child, Some(own), place, depth + 1));
            }
            nodes.push(Node {
                name: names[at].clone(),
                parent,
                place,
                depth,
                delay_ns: parents[at].map_or(0.0, |edge| edge.delay_ns),
                children: Vec::with_capacity(below[at].len()),
            });
        }
        if nodes.len() < names.len() {
            // Whoever is not below the root has nobody above it that has no parent.
            return Err(ShapeError::Cycle(cycle(names, &parents)));
        }
        Ok(Self { nodes })
    }

    /// The tree whose inner nodes all have `degree` children and whose leaves are all `depth` edges
    /// from the root. Nodes are called by their number, level by level, from 0 on.
    pub fn regular(degree: usize, depth: usize, delay_ns: f64) -> Result<Self, ShapeError> {
        if degree == 0 || depth == 0 {
            return Err(ShapeError::Nothing);
        }
        let (mut level, mut count) = (1usize, 1usize);
        for _ in 0..depth {
            level = level.saturating_mul(degree);
            count = count.saturating_add(level);
            if count > NODES_MAX {
                return Err(ShapeError::Regular { degree, depth });
            }
        }
        let names: Vec<String> = (0..count).map(|number| number.to_string()).collect();
        let edge = |to: usize| Edge { from: (to - 1) / degree, to, delay_ns };
        let edges: Vec<Edge> = (1..count).map(edge).collect();
        Self::new(&names, &edges)
    }

    /// Its nodes.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The most children that a node has.
    #[must_use]
    pub fn degree_max(&self) -> usize {
        self.nodes.iter().map(|node| node.children.len()).max().unwrap_or(0)
    }

    /// Edges from the root to the farthest leaf.
    #[must_use]
    pub fn depth(&self) -> usize {
        // Levels stand in their order.
        self.nodes.last().map_or(0, |node| node.depth)
    }

    /// The places of a node and of all that are above it, from the root on.
    #[must_use]
    pub fn path(&self, to: usize) -> Vec<usize> {
        let above = |at: &usize| self.nodes[*at].parent;
        let mut path: Vec<usize> = std::iter::successors(Some(to), above).collect();
        path.reverse();
        path
    }

    /// How many nodes are below each, itself counted.
    #[must_use]
    pub fn sizes(&self) -> Vec<usize> {
        let mut sizes = vec![1; self.nodes.len()];
        for (at, node) in self.nodes.iter().enumerate().rev() {
            if let Some(parent) = node.parent {
                sizes[parent] += sizes[at];
            }
        }
        sizes
    }

    /// The same tree with this delay for every edge.
    #[must_use]
    pub fn with_delay(mut self, delay_ns: f64) -> Self {
        for node in self.nodes.iter_mut().filter(|node| node.parent.is_some()) {
            node.delay_ns = delay_ns;
        }
        self
    }
}

/// The edge by which each node hangs.
fn parents<'a>(names: &[String], edges: &'a [Edge]) -> Result<Vec<Option<&'a Edge>>, ShapeError> {
    let mut parents: Vec<Option<&Edge>> = vec![None; names.len()];
    for (at, edge) in edges.iter().enumerate() {
        let (from, to) = (|| names[edge.from].clone(), || names[edge.to].clone());
        if edge.from == edge.to {
            return Err(ShapeError::Oneself { edge: at, name: to() });
        }
        match parents[edge.to] {
            None => parents[edge.to] = Some(edge),
            Some(first) if first.from == edge.from => {
                return Err(ShapeError::Twice { edge: at, parent: from(), child: to() });
            }
            Some(first) => {
                let first = names[first.from].clone();
                return Err(ShapeError::Parents { edge: at, child: to(), first, second: from() });
            }
        }
    }
    Ok(parents)
}

/// The one node that hangs from none.
fn root(names: &[String], parents: &[Option<&Edge>]) -> Result<usize, ShapeError> {
    let mut roots = (0..names.len()).filter(|at| parents[*at].is_none());
    match (roots.next(), roots.next()) {
        (Some(root), None) => Ok(root),
        (Some(one), Some(other)) => {
            Err(ShapeError::Roots(names[one].clone(), names[other].clone()))
        }
        (None, _) => Err(ShapeError::NoRoot(cycle(names, parents))),
    }
}

/// The first cycle that there is, as text.
fn cycle(names: &[String], parents: &[Option<&Edge>]) -> String {
    // By whom each was met first; who meets one that itself has met goes round.
    let mut met = vec![None; names.len()];
    for start in 0..names.len() {
        let mut at = start;
        while met[at].is_none() {
            met[at] = Some(start);
            match parents[at] {
                Some(edge) => at = edge.from,
                None => break,
            }
        }
        if met[at] != Some(start) || parents[at].is_none() {
            continue;
        }
        let above = |at: &usize| parents[*at].map(|edge| edge.from);
        let mut round: Vec<usize> = std::iter::successors(Some(at), above)
            .enumerate()
            .take_while(|(step, next)| *step == 0 || *next != at)
            .map(|(_, next)| next)
            .collect();
        round.reverse();
        let shown = round.iter().take(CYCLE_SHOWN).map(|at| names[*at].as_str());
        let mut shown: Vec<&str> = shown.collect();
        shown.push(if round.len() > CYCLE_SHOWN { "…" } else { &names[round[0]] });
        return shown.join(" → ");
    }
    String::new()
}
