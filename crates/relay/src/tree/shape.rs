//! Tree: its nodes, the parent and index of each, and the transmission delays of its edges. Valid
//! by construction: it has one root, and every other node is below that.

use std::collections::VecDeque;

/// Maximum number of nodes of a tree.
pub const NODES_MAX: usize = 65_536;
/// Maximum number of nodes of a cycle that a message names.
const CYCLE_NODES_SHOWN: usize = 8;

/// Reason for which nodes and edges are not a tree.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TreeShapeError {
    /// Too many nodes.
    #[error("{0} nodes exceed the limit of {NODES_MAX} of a tree")]
    TooManyNodes(usize),
    /// A regular tree with too many nodes.
    #[error(
        "{degree} children per node and {depth} levels below the root exceed the limit of \
         {NODES_MAX} nodes of a tree"
    )]
    RegularTooLarge {
        /// Children of each inner node.
        degree: usize,
        /// Edges from the root to each leaf.
        depth: usize,
    },
    /// Fewer than two nodes.
    #[error("a tree has at least two nodes; a single node has no delay")]
    TooFewNodes,
    /// A regular tree with a degree or depth of 0.
    #[error(
        "a tree whose nodes have no children is a single node; choose a degree and a depth of \
             at least 1"
    )]
    ZeroDegreeOrDepth,
    /// An edge from a node to itself.
    #[error("node '{name}' is its own child")]
    SelfLoop {
        /// Index of the edge.
        edge: usize,
        /// Name of the node.
        name: String,
    },
    /// A node with two parents.
    #[error("node '{child}' has two parents, '{first}' and '{second}'; keep one")]
    TwoParents {
        /// Index of the second edge to the node.
        edge: usize,
        /// Name of the node with two parents.
        child: String,
        /// Parent by the first edge.
        first: String,
        /// Parent by the second edge.
        second: String,
    },
    /// A duplicate edge.
    #[error("'{child}' is listed twice as a child of '{parent}'")]
    DuplicateEdge {
        /// Index of the second edge.
        edge: usize,
        /// Parent of the child.
        parent: String,
        /// Child of the duplicate edge.
        child: String,
    },
    /// Nodes that form a cycle, as text.
    #[error("the edges contain a cycle: {0}; remove one of them")]
    Cycle(String),
    /// Every node has a parent, so there is a cycle and no root.
    #[error("the tree has no root, because every node has a parent: {0}")]
    NoRoot(String),
    /// Two nodes without a parent.
    #[error("'{0}' and '{1}' both have no parent; a tree has one root")]
    SeveralRoots(String, String),
}

/// Edge from a parent to a child; nodes are identified by their indices in a list.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TreeEdge {
    /// Index of the parent.
    pub from: usize,
    /// Index of the child.
    pub to: usize,
    /// The transmission delay c, in ns.
    pub delay_ns: f64,
}

/// Node of a tree.
#[derive(Clone, PartialEq, Debug)]
pub struct TreeNode {
    /// Name of the node.
    pub name: String,
    /// Index of the parent in the tree; `None` for the root.
    pub parent: Option<usize>,
    /// Index among the parent's children, in the order in which they are served.
    pub child_index: usize,
    /// Number of edges from the root to the node.
    pub depth: usize,
    /// Transmission delay from the parent, in ns; 0 for the root.
    pub delay_ns: f64,
    /// Children, in the order in which they are served.
    pub children: Vec<usize>,
}

/// Tree. Its nodes are in level order, the root first, so that each comes after its parent; the
/// children of a node are adjacent, in the order in which they are served.
#[derive(Clone, PartialEq, Debug)]
pub struct Tree {
    nodes: Vec<TreeNode>,
}

impl Tree {
    /// Makes the tree of these nodes and edges; an error if they are not one. The children of a
    /// node are served in the order of the edges. Names are for messages and are not compared.
    ///
    /// # Panics
    ///
    /// If an edge has an index that is not in the list.
    pub fn new(names: &[String], edges: &[TreeEdge]) -> Result<Self, TreeShapeError> {
        match names.len() {
            0 | 1 => return Err(TreeShapeError::TooFewNodes),
            many if many > NODES_MAX => return Err(TreeShapeError::TooManyNodes(many)),
            _ => {}
        }
        let parents = parent_edges(names, edges)?;
        let mut child_lists = vec![Vec::new(); names.len()];
        for edge in edges {
            child_lists[edge.from].push(edge.to);
        }
        let root = find_root(names, &parents)?;
        let mut nodes: Vec<TreeNode> = Vec::with_capacity(names.len());
        // Nodes still to be added, breadth first: the index in the list, and the parent, child
        // index and depth in the tree.
        let mut queue = VecDeque::from([(root, None, 0, 0)]);
        while let Some((at, parent, child_index, depth)) = queue.pop_front() {
            let node_index = nodes.len();
            if let Some(parent) = parent {
                let parent: &mut TreeNode = &mut nodes[parent];
                parent.children.push(node_index);
            }
            for (index, child) in child_lists[at].iter().enumerate() {
                queue.push_back((*child, Some(node_index), index, depth + 1));
            }
            nodes.push(TreeNode {
                name: names[at].clone(),
                parent,
                child_index,
                depth,
                delay_ns: parents[at].map_or(0.0, |edge| edge.delay_ns),
                children: Vec::with_capacity(child_lists[at].len()),
            });
        }
        if nodes.len() < names.len() {
            // A node that is not below the root has no ancestor without a parent.
            return Err(TreeShapeError::Cycle(describe_cycle(names, &parents)));
        }
        Ok(Self { nodes })
    }

    /// Makes the tree whose inner nodes all have `degree` children, whose leaves are all `depth`
    /// edges from the root, and whose edges all have this delay. Nodes are named by their number,
    /// level by level, from 0 on. An error for a degree or depth of 0, or more than [`NODES_MAX`]
    /// nodes.
    pub fn regular(degree: usize, depth: usize, delay_ns: f64) -> Result<Self, TreeShapeError> {
        if degree == 0 || depth == 0 {
            return Err(TreeShapeError::ZeroDegreeOrDepth);
        }
        let (mut level, mut count) = (1usize, 1usize);
        for _ in 0..depth {
            level = level.saturating_mul(degree);
            count = count.saturating_add(level);
            if count > NODES_MAX {
                return Err(TreeShapeError::RegularTooLarge { degree, depth });
            }
        }
        let names: Vec<String> = (0..count).map(|number| number.to_string()).collect();
        let edge = |to: usize| TreeEdge { from: (to - 1) / degree, to, delay_ns };
        let edges: Vec<TreeEdge> = (1..count).map(edge).collect();
        Self::new(&names, &edges)
    }

    /// Returns the nodes in level order, the root first.
    #[must_use]
    pub fn nodes(&self) -> &[TreeNode] {
        &self.nodes
    }

    /// Returns the largest number of children of a node.
    #[must_use]
    pub fn degree_max(&self) -> usize {
        self.nodes.iter().map(|node| node.children.len()).max().unwrap_or(0)
    }

    /// Returns the number of edges from the root to the farthest leaf.
    #[must_use]
    pub fn depth(&self) -> usize {
        // Nodes are in level order, so the last one is the deepest.
        self.nodes.last().map_or(0, |node| node.depth)
    }

    /// Returns the indices of a node and of all its ancestors, from the root on.
    #[must_use]
    pub fn path_from_root(&self, to: usize) -> Vec<usize> {
        let above = |at: &usize| self.nodes[*at].parent;
        let mut path: Vec<usize> = std::iter::successors(Some(to), above).collect();
        path.reverse();
        path
    }

    /// Returns the number of nodes in the subtree of each node, itself included.
    #[must_use]
    pub fn subtree_sizes(&self) -> Vec<usize> {
        let mut sizes = vec![1; self.nodes.len()];
        for (at, node) in self.nodes.iter().enumerate().rev() {
            if let Some(parent) = node.parent {
                sizes[parent] += sizes[at];
            }
        }
        sizes
    }

    /// Returns the tree with this delay for every edge, in ns.
    #[must_use]
    pub fn with_delay(mut self, delay_ns: f64) -> Self {
        for node in self.nodes.iter_mut().filter(|node| node.parent.is_some()) {
            node.delay_ns = delay_ns;
        }
        self
    }
}

/// Returns, for each node, the edge from its parent; `None` for nodes without a parent. An error
/// for a loop, a duplicate edge or a second parent.
fn parent_edges<'a>(
    names: &[String],
    edges: &'a [TreeEdge],
) -> Result<Vec<Option<&'a TreeEdge>>, TreeShapeError> {
    let mut parents: Vec<Option<&TreeEdge>> = vec![None; names.len()];
    for (at, edge) in edges.iter().enumerate() {
        let (from, to) = (|| names[edge.from].clone(), || names[edge.to].clone());
        if edge.from == edge.to {
            return Err(TreeShapeError::SelfLoop { edge: at, name: to() });
        }
        match parents[edge.to] {
            None => parents[edge.to] = Some(edge),
            Some(first) if first.from == edge.from => {
                return Err(TreeShapeError::DuplicateEdge {
                    edge: at,
                    parent: from(),
                    child: to(),
                });
            }
            Some(first) => {
                let first = names[first.from].clone();
                return Err(TreeShapeError::TwoParents {
                    edge: at,
                    child: to(),
                    first,
                    second: from(),
                });
            }
        }
    }
    Ok(parents)
}

/// Returns the index of the only node without a parent; an error if there are several or none.
fn find_root(names: &[String], parents: &[Option<&TreeEdge>]) -> Result<usize, TreeShapeError> {
    let mut roots = (0..names.len()).filter(|at| parents[*at].is_none());
    match (roots.next(), roots.next()) {
        (Some(root), None) => Ok(root),
        (Some(one), Some(other)) => {
            Err(TreeShapeError::SeveralRoots(names[one].clone(), names[other].clone()))
        }
        (None, _) => Err(TreeShapeError::NoRoot(describe_cycle(names, parents))),
    }
}

/// Returns the first cycle as text, with at most [`CYCLE_NODES_SHOWN`] nodes; empty if there is
/// none.
fn describe_cycle(names: &[String], parents: &[Option<&TreeEdge>]) -> String {
    // Start of the walk that first visited each node. A walk that returns to one of its own nodes
    // has found a cycle.
    let mut visited_in = vec![None; names.len()];
    for start in 0..names.len() {
        let mut at = start;
        while visited_in[at].is_none() {
            visited_in[at] = Some(start);
            match parents[at] {
                Some(edge) => at = edge.from,
                None => break,
            }
        }
        if visited_in[at] != Some(start) || parents[at].is_none() {
            continue;
        }
        let above = |at: &usize| parents[*at].map(|edge| edge.from);
        let mut cycle_nodes: Vec<usize> = std::iter::successors(Some(at), above)
            .enumerate()
            .take_while(|(step, next)| *step == 0 || *next != at)
            .map(|(_, next)| next)
            .collect();
        cycle_nodes.reverse();
        let shown = cycle_nodes.iter().take(CYCLE_NODES_SHOWN).map(|at| names[*at].as_str());
        let mut shown: Vec<&str> = shown.collect();
        shown.push(if cycle_nodes.len() > CYCLE_NODES_SHOWN {
            "…"
        } else {
            &names[cycle_nodes[0]]
        });
        return shown.join(" → ");
    }
    String::new()
}
