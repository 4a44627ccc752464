//! A tree of private hosts with relays in it, and the delays of what is sent through it.
//!
//! The node with the number n of the tree is host n + 1; host 0 sends to the root. To see when a
//! packet comes to a node whose relay takes it, the tree is measured level by level: each time it
//! ends at one level, whose nodes receive at another port than their relays. What is above a node
//! is the same then, and its delay is made of nothing else.

use std::net::SocketAddr;

use horolog_lab::{HOSTS_MAX, Host as PrivateHost, Lab, LabConfig};
use horolog_relay::tree::Tree;
use horolog_relay::{GroupSpec, HOP_LIMIT, Network, Relay, Spec};

use super::courier::{Arrivals, Courier, Course, Sink};
use super::engine::{Maker, in_its_place};
use super::pool::Pool;
use crate::failure::Failure;
use crate::output;

/// Where the relay of a node listens ...
const PORT: u16 = 5_000;
/// ... and where the node itself does, when the tree ends at it.
const SINK_PORT: u16 = 5_001;
/// Neither limit is to be met by what is sent here.
const RATE: u64 = 1_000_000;
const COPY_RATE: u64 = 100_000_000;

/// A tree of hosts.
pub(super) struct Stage {
    tree: Tree,
    lab: Lab,
    courier: Courier,
    /// Whether tables have the last child first.
    pub(super) reversed: bool,
}

/// What runs in the hosts: the relays of the inner nodes, and a sink at every node.
pub(super) struct Cast {
    relays: Vec<(usize, Relay)>,
    sinks: Vec<Sink>,
}

impl Stage {
    pub(super) fn open(tree: &Tree) -> Result<Self, Failure> {
        let nodes = tree.nodes().len();
        if nodes >= HOSTS_MAX {
            let most = HOSTS_MAX - 1;
            let reason = format!("{nodes} nodes are too many for private hosts; they take {most}");
            return Err(Failure::usage(reason));
        }
        let above: Vec<usize> =
            tree.nodes().iter().map(|node| node.parent.map_or(0, |parent| parent + 1)).collect();
        let config = LabConfig { ipv6: false, client_networks: Vec::new(), ..LabConfig::default() };
        let lab = Lab::tree(&above, &config)?;
        let courier = Courier::open(lab.client())?;
        Ok(Self { tree: tree.clone(), lab, courier, reversed: false })
    }

    pub(super) fn tree(&self) -> &Tree {
        &self.tree
    }

    fn host(&self, node: usize) -> &PrivateHost {
        self.lab.host(node + 1)
    }

    fn address(&self, node: usize) -> SocketAddr {
        SocketAddr::new(self.host(node).port().ipv4.into(), PORT)
    }

    fn sink(&self, node: usize) -> SocketAddr {
        SocketAddr::new(self.host(node).port().ipv4.into(), SINK_PORT)
    }

    /// Starts a relay at each inner node, and opens a sink at every node.
    pub(super) fn start(&self, kind: Maker) -> Result<Cast, Failure> {
        let mut cast = Cast { relays: Vec::new(), sinks: Vec::new() };
        for (at, node) in self.tree.nodes().iter().enumerate() {
            cast.sinks.push(Sink::open(self.host(at), self.sink(at))?);
            if !node.children.is_empty() {
                let spec = self.spec(at, node.depth + 1)?;
                cast.relays.push((at, self.host(at).run(|| kind.start(&spec))??));
            }
        }
        Ok(cast)
    }

    /// Ends the tree at a level and takes what comes to the nodes there, and to the leaves above;
    /// tells which those are.
    fn level(
        &mut self,
        level: usize,
        cast: &Cast,
        course: &Course,
    ) -> Result<(Vec<usize>, Arrivals), Failure> {
        let nodes = self.tree.nodes();
        for (at, relay) in &cast.relays {
            // Farther up, tables are as before; those from the level on hear of nothing.
            if (1..=2).contains(&level.saturating_sub(nodes[*at].depth)) {
                let children = self.children(*at, level);
                let change = |spec: &mut Spec| {
                    spec.groups.iter_mut().for_each(|group| group.children.clone_from(&children));
                    Ok(())
                };
                self.host(*at).run(|| relay.change(change))??;
                in_its_place(relay)?;
            }
        }
        let is_end = |at: &usize| {
            let node = &nodes[*at];
            node.depth == level || node.depth < level && node.children.is_empty()
        };
        let ends: Vec<usize> = (0..nodes.len()).filter(is_end).collect();
        let sinks: Vec<&Sink> = ends.iter().map(|at| &cast.sinks[*at]).collect();
        let root = if level == 0 { self.sink(0) } else { self.address(0) };
        let arrivals = self.courier.run(root, &sinks, course)?;
        if cast.relays.iter().any(|(_, relay)| relay.has_died()) {
            return Err(Failure::environment("a relay in a private host has ended; see above"));
        }
        Ok((ends, arrivals))
    }

    /// Where a node's relay sends copies when the tree ends at a level.
    fn children(&self, at: usize, level: usize) -> Vec<SocketAddr> {
        let nodes = self.tree.nodes();
        let to = |child: &usize| {
            let is_end = nodes[*child].depth == level || nodes[*child].children.is_empty();
            if is_end { self.sink(*child) } else { self.address(*child) }
        };
        let mut children: Vec<SocketAddr> = nodes[at].children.iter().map(to).collect();
        if self.reversed {
            children.reverse();
        }
        children
    }

    /// The table of a node's relay when the tree ends at a level.
    fn spec(&self, at: usize, level: usize) -> Result<Spec, Failure> {
        let node = &self.tree.nodes()[at];
        // A relay sends from where it listens.
        let source = match node.parent {
            Some(parent) => self.address(parent).ip(),
            None => self.lab.client().port().ipv4.into(),
        };
        let network = |text: String| text.parse::<Network>().map_err(Failure::environment);
        let children = self.children(at, level);
        let destinations = children.iter().map(|child| network(child.ip().to_string()));
        Ok(Spec {
            destinations: destinations.collect::<Result<_, _>>()?,
            copy_rate: COPY_RATE,
            groups: vec![GroupSpec {
                name: "tree".to_owned(),
                listen: self.address(at),
                interface: None,
                sources: vec![network(source.to_string())?],
                rate: RATE,
                hop_limit: HOP_LIMIT,
                children,
            }],
        })
    }

    /// Ends the tree at each of its levels once.
    pub(super) fn round(
        &mut self,
        cast: &Cast,
        course: &Course,
        pool: &mut Pool,
    ) -> Result<(), Failure> {
        for level in 0..=self.tree.depth() {
            if output::flow().is_break() {
                break;
            }
            let (ends, arrivals) = self.level(level, cast, course)?;
            pool.add(level, &ends, &arrivals);
        }
        Ok(())
    }
}
