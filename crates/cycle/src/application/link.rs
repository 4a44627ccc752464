//! Link of a node to its peers: messages with the faults of the plan, and the node's detections
//! about its peers from what arrives and what does not.

use std::collections::VecDeque;

use horolog_record::CycleTestDetectionKind as Kind;
use horolog_time::{Monotonic, Timestamp};

use super::fault::NodeFaults;
use super::plan::{Stage, TestPlan};
use crate::entry::PeriodEntry;
use crate::node::mesh::{Mesh, StepId};
use crate::task::StepMessage;

/// Messages that timed out and may still arrive, at most.
const TIMED_OUT_MAX: usize = 1_024;

/// Receiver of detections: kind, node, count, and number of earlier ones that are retracted.
pub(super) type DetectionSink<'a> = &'a mut dyn FnMut(Kind, Option<u16>, u32, u32);

/// The peers of one node.
pub(super) struct MeshLink<'a> {
    mesh: Mesh,
    own: u16,
    plan: &'a TestPlan,
    pub(super) faults: NodeFaults<'a>,
    timed_out: VecDeque<(u16, StepId)>,
}

impl<'a> MeshLink<'a> {
    pub(super) fn new(mesh: Mesh, plan: &'a TestPlan, own: u16) -> Self {
        Self { mesh, own, plan, faults: NodeFaults::new(plan, own), timed_out: VecDeque::new() }
    }

    /// Takes new arrivals, and detects nodes from which no message arrives any longer.
    pub(super) fn listen(&mut self, cycle: u64, sink: DetectionSink<'_>) {
        self.mesh.listen();
        // If no node sends anything, no node times out.
        let meets = self.plan.stages.iter().any(|stage| stage.message.is_some() || stage.barrier);
        for node in (0..self.plan.nodes).filter(|node| *node != self.own) {
            // No node sends anything before the first period.
            let periods_since_message =
                cycle.saturating_sub(self.mesh.latest_period(node).unwrap_or(0));
            let is_timed_out = meets && periods_since_message > u64::from(self.plan.node_timeout);
            let Some(account) = self.mesh.account() else { continue };
            let ignored = &mut account.ignored[usize::from(node)];
            if is_timed_out && !*ignored {
                sink(Kind::NodeTimeout, Some(node), 1, 0);
            }
            *ignored = is_timed_out;
        }
        self.report_received(sink);
    }

    /// Runs the exchange and the barrier of a stage. Returns the injected faults, each once for
    /// each injection.
    pub(super) fn synchronise(
        &mut self,
        stage: &Stage,
        step_id: StepId,
        (due_ns, limit): (u64, Timestamp<Monotonic>),
        entry: &mut PeriodEntry,
        sink: DetectionSink<'_>,
    ) -> Vec<u16> {
        let mut injected = Vec::new();
        if let Some(bytes) = stage.message {
            injected = self.decide(due_ns, stage);
            let message = StepMessage { bytes, to: stage.to };
            self.mesh.exchange(step_id, message, limit).of_messages(entry);
            self.give_up(step_id, sink);
            self.report_received(sink);
        }
        if stage.barrier {
            self.mesh.barrier(step_id, limit).of_barrier(entry);
            self.report_received(sink);
        }
        injected
    }

    /// Decides the disposition of the next message to each of its receivers.
    fn decide(&mut self, due_ns: u64, stage: &Stage) -> Vec<u16> {
        let Some(account) = self.mesh.account() else { return Vec::new() };
        let nodes = self.plan.nodes;
        let next = (self.own + 1) % nodes;
        let mut injected = Vec::new();
        for node in (0..nodes).filter(|node| *node != self.own) {
            let gets = match stage.to {
                crate::task::Audience::All => true,
                crate::task::Audience::Next => node == next,
            };
            if gets {
                let (disposition, fault) = self.faults.disposition(due_ns);
                account.dispositions[usize::from(node)] = disposition;
                injected.extend(fault);
            }
        }
        injected
    }

    /// Reports the nodes whose messages were missing in an exchange.
    fn give_up(&mut self, step_id: StepId, sink: DetectionSink<'_>) {
        let Some(account) = self.mesh.account() else { return };
        for node in std::mem::take(&mut account.missing) {
            sink(Kind::MessageMissing, Some(node), 1, 0);
            self.timed_out.push_back((node, step_id));
            if self.timed_out.len() > TIMED_OUT_MAX {
                self.timed_out.pop_front();
            }
        }
    }

    /// Reports messages with a long transit time, and retracts those that had timed out.
    fn report_received(&mut self, sink: DetectionSink<'_>) {
        let Some(account) = self.mesh.account() else { return };
        for received in std::mem::take(&mut account.received) {
            let stage = self.plan.stages.get(usize::from(received.step_id.1));
            if stage.is_some_and(|stage| received.transit_ns > stage.late_after_ns) {
                sink(Kind::MessageLate, Some(received.node), 1, 0);
            }
            let was =
                self.timed_out.iter().position(|one| *one == (received.node, received.step_id));
            if let Some(at) = was {
                self.timed_out.remove(at);
                sink(Kind::MessageMissing, Some(received.node), 0, 1);
            }
        }
    }
}
