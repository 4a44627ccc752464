//! Tree of relays in lab hosts, and the measurement of packet delays through it.
//!
//! Node n of the tree is lab host n + 1; host 0 sends to the root. A relay is the only receiver of
//! its packets, so arrivals at inner nodes are observed by measuring the tree level by level: the
//! tree is cut off below one level, whose nodes receive with a probe sink at another port instead.
//! The relays above do the same work as in the whole tree, so the delay to the node is the same.

use std::net::SocketAddr;

use horolog_lab::{HOSTS_MAX, Lab, LabConfig, LabHost as PrivateHost};
use horolog_record::RelayEngineKind;
use horolog_relay::tree::Tree;
use horolog_relay::{GroupSpec, HOP_LIMIT, IpNetwork, Relay, RoutingTableSpec};

use super::delay_samples::DelaySamples;
use super::engine::{start_relay, verify_engine};
use super::probe_sender::{ProbeSender, ProbeSink, ProbeTrain, SinkDelays};
use crate::{ExperimentError, ExperimentObserver};

/// UDP port of a node's relay.
const RELAY_PORT: u16 = 5_000;
/// UDP port of a node's probe sink, for a tree that is cut off at that node.
const SINK_PORT: u16 = 5_001;
/// Rate limit of a group, in packets per second: above the rate of the probe trains.
const RATE: u64 = 1_000_000;
const COPY_RATE: u64 = 100_000_000;

/// Lab hosts for the nodes of a tree, and the sender of probes to its root.
pub(super) struct RelayTreeTestbed<'a> {
    tree: Tree,
    lab: Lab,
    probe_sender: ProbeSender<'a>,
    observer: &'a dyn ExperimentObserver,
    /// True if each relay's table lists the children in reverse order.
    pub(super) reversed: bool,
}

/// Running relays of the inner nodes, and the probe sinks of all nodes.
pub(super) struct RunningRelayTree {
    relays: Vec<(usize, Relay)>,
    sinks: Vec<ProbeSink>,
}

impl<'a> RelayTreeTestbed<'a> {
    pub(super) fn open(
        tree: &Tree,
        observer: &'a dyn ExperimentObserver,
    ) -> Result<Self, ExperimentError> {
        let nodes = tree.nodes().len();
        if nodes >= HOSTS_MAX {
            let most = HOSTS_MAX - 1;
            let reason = format!("{nodes} nodes exceed the lab, which has at most {most} hosts");
            return Err(ExperimentError::options(reason));
        }
        let parent_hosts: Vec<usize> =
            tree.nodes().iter().map(|node| node.parent.map_or(0, |parent| parent + 1)).collect();
        let config = LabConfig { ipv6: false, client_networks: Vec::new(), ..LabConfig::default() };
        let lab = Lab::tree(&parent_hosts, &config)?;
        let probe_sender = ProbeSender::open(lab.client(), observer)?;
        Ok(Self { tree: tree.clone(), lab, probe_sender, observer, reversed: false })
    }

    pub(super) fn tree(&self) -> &Tree {
        &self.tree
    }

    fn host(&self, node: usize) -> &PrivateHost {
        self.lab.host(node + 1)
    }

    fn relay_address(&self, node: usize) -> SocketAddr {
        SocketAddr::new(self.host(node).first_interface().ipv4.into(), RELAY_PORT)
    }

    fn sink_address(&self, node: usize) -> SocketAddr {
        SocketAddr::new(self.host(node).first_interface().ipv4.into(), SINK_PORT)
    }

    /// Starts a relay at each inner node, and opens a probe sink at every node.
    pub(super) fn start(&self, kind: RelayEngineKind) -> Result<RunningRelayTree, ExperimentError> {
        let mut running = RunningRelayTree { relays: Vec::new(), sinks: Vec::new() };
        for (at, node) in self.tree.nodes().iter().enumerate() {
            running.sinks.push(ProbeSink::open(self.host(at), self.sink_address(at))?);
            if !node.children.is_empty() {
                let spec = self.table_spec(at, node.depth + 1)?;
                running.relays.push((at, self.host(at).run(|| start_relay(kind, &spec))??));
            }
        }
        Ok(running)
    }

    /// Cuts the tree off below a level, sends a probe train, and returns the nodes that are then
    /// leaves (those of the level, and leaves above it) with the delays to them.
    fn measure_level(
        &mut self,
        level: usize,
        running: &RunningRelayTree,
        train: &ProbeTrain,
    ) -> Result<(Vec<usize>, SinkDelays), ExperimentError> {
        let nodes = self.tree.nodes();
        for (at, relay) in &running.relays {
            // Only the relays one and two levels above `level` have other destinations than at the
            // previous level. Relays at or below `level` receive nothing.
            if (1..=2).contains(&level.saturating_sub(nodes[*at].depth)) {
                let children = self.child_addresses(*at, level);
                let change = |spec: &mut RoutingTableSpec| {
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
        let root = if level == 0 { self.sink_address(0) } else { self.relay_address(0) };
        let arrivals = self.probe_sender.run(root, &sinks, train)?;
        if running.relays.iter().any(|(_, relay)| relay.has_died()) {
            return Err(ExperimentError::host("a relay in a lab host has exited; see above"));
        }
        Ok((ends, arrivals))
    }

    /// Returns the destinations of a node's relay if the tree is cut off below a level.
    fn child_addresses(&self, at: usize, level: usize) -> Vec<SocketAddr> {
        let nodes = self.tree.nodes();
        let to = |child: &usize| {
            let is_end = nodes[*child].depth == level || nodes[*child].children.is_empty();
            if is_end { self.sink_address(*child) } else { self.relay_address(*child) }
        };
        let mut children: Vec<SocketAddr> = nodes[at].children.iter().map(to).collect();
        if self.reversed {
            children.reverse();
        }
        children
    }

    /// Returns the table of a node's relay if the tree is cut off below a level.
    fn table_spec(&self, at: usize, level: usize) -> Result<RoutingTableSpec, ExperimentError> {
        let node = &self.tree.nodes()[at];
        // The source address of a copy is the address at which the parent's relay listens.
        let source = match node.parent {
            Some(parent) => self.relay_address(parent).ip(),
            None => self.lab.client().first_interface().ipv4.into(),
        };
        let network = |text: String| text.parse::<IpNetwork>().map_err(ExperimentError::host);
        let children = self.child_addresses(at, level);
        let destinations = children.iter().map(|child| network(child.ip().to_string()));
        Ok(RoutingTableSpec {
            destinations: destinations.collect::<Result<_, _>>()?,
            copy_rate: COPY_RATE,
            groups: vec![GroupSpec {
                name: "tree".to_owned(),
                listen: self.relay_address(at),
                interface: None,
                sources: vec![network(source.to_string())?],
                rate: RATE,
                hop_limit: HOP_LIMIT,
                fragment: true,
                children,
            }],
        })
    }

    /// Measures each level once and adds the delays to `samples`; ends early if interrupted.
    pub(super) fn run_round(
        &mut self,
        running: &RunningRelayTree,
        train: &ProbeTrain,
        samples: &mut DelaySamples,
    ) -> Result<(), ExperimentError> {
        for level in 0..=self.tree.depth() {
            if self.observer.flow().is_break() {
                break;
            }
            let (ends, arrivals) = self.measure_level(level, running, train)?;
            samples.add(level, &ends, &arrivals);
        }
        Ok(())
    }
}
