//! A tree of lab hosts with relays in it, and the delays of packets through it.
//!
//! Node n of the tree is host n + 1; host 0 sends to the root. To observe the arrival of a packet
//! at a node whose relay receives it, the tree is measured level by level: each time it ends at one
//! level, whose nodes receive at another port than their relays. The part above a node is then the
//! same, and its delay consists of nothing else.

use std::net::SocketAddr;

use horolog_lab::{HOSTS_MAX, Lab, LabConfig, LabHost as PrivateHost};
use horolog_relay::tree::Tree;
use horolog_relay::{GroupSpec, HOP_LIMIT, Network, Relay, TableSpec};

use super::delay_samples::DelaySamples;
use super::engine::{CopyEngine, verify_engine};
use super::probe_sender::{ProbeSender, ProbeSink, ProbeTrain, SinkDelays};
use crate::failure::CommandFailure;
use crate::output;

/// Port of a node's relay ...
const PORT: u16 = 5_000;
/// ... and of the node itself, when the tree ends at it.
const SINK_PORT: u16 = 5_001;
/// Rate limit above the rate of the probe trains.
const RATE: u64 = 1_000_000;
const COPY_RATE: u64 = 100_000_000;

/// A tree of hosts.
pub(super) struct TreeTestbed {
    tree: Tree,
    lab: Lab,
    probe_sender: ProbeSender,
    /// True if tables have the last child first.
    pub(super) reversed: bool,
}

/// Running relays of the inner nodes, and a sink at every node.
pub(super) struct RunningRelays {
    relays: Vec<(usize, Relay)>,
    sinks: Vec<ProbeSink>,
}

impl TreeTestbed {
    pub(super) fn open(tree: &Tree) -> Result<Self, CommandFailure> {
        let nodes = tree.nodes().len();
        if nodes >= HOSTS_MAX {
            let most = HOSTS_MAX - 1;
            let reason = format!("{nodes} nodes exceed the lab, which has at most {most} hosts");
            return Err(CommandFailure::usage(reason));
        }
        let above: Vec<usize> =
            tree.nodes().iter().map(|node| node.parent.map_or(0, |parent| parent + 1)).collect();
        let config = LabConfig { ipv6: false, client_networks: Vec::new(), ..LabConfig::default() };
        let lab = Lab::tree(&above, &config)?;
        let probe_sender = ProbeSender::open(lab.client())?;
        Ok(Self { tree: tree.clone(), lab, probe_sender, reversed: false })
    }

    pub(super) fn tree(&self) -> &Tree {
        &self.tree
    }

    fn host(&self, node: usize) -> &PrivateHost {
        self.lab.host(node + 1)
    }

    fn address(&self, node: usize) -> SocketAddr {
        SocketAddr::new(self.host(node).first_interface().ipv4.into(), PORT)
    }

    fn sink(&self, node: usize) -> SocketAddr {
        SocketAddr::new(self.host(node).first_interface().ipv4.into(), SINK_PORT)
    }

    /// Starts a relay at each inner node, and opens a sink at every node.
    pub(super) fn start(&self, kind: CopyEngine) -> Result<RunningRelays, CommandFailure> {
        let mut running = RunningRelays { relays: Vec::new(), sinks: Vec::new() };
        for (at, node) in self.tree.nodes().iter().enumerate() {
            running.sinks.push(ProbeSink::open(self.host(at), self.sink(at))?);
            if !node.children.is_empty() {
                let spec = self.spec(at, node.depth + 1)?;
                running.relays.push((at, self.host(at).run(|| kind.start(&spec))??));
            }
        }
        Ok(running)
    }

    /// Ends the tree at a level and measures the arrivals at the nodes there, and at the leaves
    /// above; returns those nodes as well.
    fn level(
        &mut self,
        level: usize,
        running: &RunningRelays,
        train: &ProbeTrain,
    ) -> Result<(Vec<usize>, SinkDelays), CommandFailure> {
        let nodes = self.tree.nodes();
        for (at, relay) in &running.relays {
            // Farther up, tables are as before; relays from the level on receive nothing.
            if (1..=2).contains(&level.saturating_sub(nodes[*at].depth)) {
                let children = self.children(*at, level);
                let change = |spec: &mut TableSpec| {
                    spec.groups.iter_mut().for_each(|group| group.children.clone_from(&children));
                    Ok(())
                };
                self.host(*at).run(|| relay.change(change))??;
                verify_engine(relay)?;
            }
        }
        let is_end = |at: &usize| {
            let node = &nodes[*at];
            node.depth == level || node.depth < level && node.children.is_empty()
        };
        let ends: Vec<usize> = (0..nodes.len()).filter(is_end).collect();
        let sinks: Vec<&ProbeSink> = ends.iter().map(|at| &running.sinks[*at]).collect();
        let root = if level == 0 { self.sink(0) } else { self.address(0) };
        let arrivals = self.probe_sender.run(root, &sinks, train)?;
        if running.relays.iter().any(|(_, relay)| relay.has_died()) {
            return Err(CommandFailure::environment("a relay in a lab host has exited; see above"));
        }
        Ok((ends, arrivals))
    }

    /// The destinations of a node's relay when the tree ends at a level.
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
    fn spec(&self, at: usize, level: usize) -> Result<TableSpec, CommandFailure> {
        let node = &self.tree.nodes()[at];
        // A relay sends from the address that it listens on.
        let source = match node.parent {
            Some(parent) => self.address(parent).ip(),
            None => self.lab.client().first_interface().ipv4.into(),
        };
        let network = |text: String| text.parse::<Network>().map_err(CommandFailure::environment);
        let children = self.children(at, level);
        let destinations = children.iter().map(|child| network(child.ip().to_string()));
        Ok(TableSpec {
            destinations: destinations.collect::<Result<_, _>>()?,
            copy_rate: COPY_RATE,
            groups: vec![GroupSpec {
                name: "tree".to_owned(),
                listen: self.address(at),
                interface: None,
                sources: vec![network(source.to_string())?],
                rate: RATE,
                hop_limit: HOP_LIMIT,
                fragment: true,
                children,
            }],
        })
    }

    /// Ends the tree at each of its levels once.
    pub(super) fn run_round(
        &mut self,
        running: &RunningRelays,
        train: &ProbeTrain,
        pool: &mut DelaySamples,
    ) -> Result<(), CommandFailure> {
        for level in 0..=self.tree.depth() {
            if output::flow().is_break() {
                break;
            }
            let (ends, arrivals) = self.level(level, running, train)?;
            pool.add(level, &ends, &arrivals);
        }
        Ok(())
    }
}
