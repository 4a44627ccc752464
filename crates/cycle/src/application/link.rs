//! Link of a node to its peers: sends messages with the faults of the plan, and derives detections
//! about the peers from what arrives and what does not.

use std::collections::VecDeque;

use horolog_record::CycleTestDetectionKind as Kind;
use horolog_time::{Monotonic, Timestamp};

use super::fault::NodeFaultInjector;
use super::plan::{ApplicationTestPlan, PipelineStage};
use crate::entry::PeriodEntry;
use crate::node::mesh::{Mesh, SuperstepId};
use crate::task::SuperstepMessage;

/// Largest number of timed-out messages remembered, in case they still arrive.
const TIMED_OUT_MAX: usize = 1_024;

/// Receiver of detections: kind, node, count, and number of earlier detections that are retracted.
pub(super) type DetectionSink<'a> = &'a mut dyn FnMut(Kind, Option<u16>, u32, u32);

/// Mesh of a node, with fault injection and detection.
pub(super) struct FaultInjectionMesh<'a> {
    mesh: Mesh,
    own_index: u16,
    plan: &'a ApplicationTestPlan,
    pub(super) faults: NodeFaultInjector<'a>,
    timed_out: VecDeque<(u16, SuperstepId)>,
}

impl<'a> FaultInjectionMesh<'a> {
    pub(super) fn new(mesh: Mesh, plan: &'a ApplicationTestPlan, own_index: u16) -> Self {
        Self {
            mesh,
            own_index,
            plan,
            faults: NodeFaultInjector::new(plan, own_index),
            timed_out: VecDeque::new(),
        }
    }

    /// Processes new arrivals, detects nodes that have timed out, and excludes them from waits.
    /// Without an instrument, only processes arrivals.
    pub(super) fn process_received(&mut self, period: u64, sink: DetectionSink<'_>) {
        self.mesh.process_received();
        // Without messages and barriers no node can time out.
        let communicates =
            self.plan.stages.iter().any(|stage| stage.message.is_some() || stage.barrier);
        for node in (0..self.plan.nodes).filter(|node| *node != self.own_index) {
            // A peer that has sent nothing is counted as if from period 0.
            let periods_since_message =
                period.saturating_sub(self.mesh.latest_period(node).unwrap_or(0));
            let is_timed_out =
                communicates && periods_since_message > u64::from(self.plan.node_timeout);
            let Some(instrument) = self.mesh.instrument_mut() else { continue };
            let ignored = &mut instrument.ignored[usize::from(node)];
            if is_timed_out && !*ignored {
                sink(Kind::NodeTimeout, Some(node), 1, 0);
            }
            *ignored = is_timed_out;
        }
        self.report_received(sink);
    }

    /// Runs the message exchange and the barrier of a stage. `due_ns` is the release of the period
    /// in ns of the run, `deadline` the end of the waits. Returns the index of a fault once for
    /// each injection.
    pub(super) fn synchronise(
        &mut self,
        stage: &PipelineStage,
        step_id: SuperstepId,
        (due_ns, deadline): (u64, Timestamp<Monotonic>),
        entry: &mut PeriodEntry,
        sink: DetectionSink<'_>,
    ) -> Vec<u16> {
        let mut injected = Vec::new();
        if let Some(bytes) = stage.message {
            injected = self.set_dispositions(due_ns, stage);
            let message = SuperstepMessage { bytes, to: stage.to };
            self.mesh.exchange(step_id, message, deadline).record_messages(entry);
            self.report_missing(step_id, sink);
            self.report_received(sink);
        }
        if stage.barrier {
            self.mesh.barrier(step_id, deadline).record_barrier(entry);
            self.report_received(sink);
        }
        injected
    }

    /// Sets the disposition of the next message to each receiver; returns the faults injected by
    /// this.
    fn set_dispositions(&mut self, due_ns: u64, stage: &PipelineStage) -> Vec<u16> {
        let Some(instrument) = self.mesh.instrument_mut() else { return Vec::new() };
        let nodes = self.plan.nodes;
        let next = (self.own_index + 1) % nodes;
        let mut injected = Vec::new();
        for node in (0..nodes).filter(|node| *node != self.own_index) {
            let is_receiver = match stage.to {
                crate::task::MessageDestination::All => true,
                crate::task::MessageDestination::Next => node == next,
            };
            if is_receiver {
                let (disposition, fault) = self.faults.disposition(due_ns);
                instrument.dispositions[usize::from(node)] = disposition;
                injected.extend(fault);
            }
        }
        injected
    }

    /// Reports the nodes whose messages were missing in an exchange, and remembers the messages.
    fn report_missing(&mut self, step_id: SuperstepId, sink: DetectionSink<'_>) {
        let Some(instrument) = self.mesh.instrument_mut() else { return };
        for node in std::mem::take(&mut instrument.missing) {
            sink(Kind::MessageMissing, Some(node), 1, 0);
            self.timed_out.push_back((node, step_id));
            if self.timed_out.len() > TIMED_OUT_MAX {
                self.timed_out.pop_front();
            }
        }
    }

    /// Reports messages with a long transit time, and retracts the detection of those that had been
    /// missing.
    fn report_received(&mut self, sink: DetectionSink<'_>) {
        let Some(instrument) = self.mesh.instrument_mut() else { return };
        for received in std::mem::take(&mut instrument.received) {
            let stage = self.plan.stages.get(usize::from(received.step_id.1));
            if stage.is_some_and(|stage| received.transit_ns > stage.late_after_ns) {
                sink(Kind::MessageLate, Some(received.node), 1, 0);
            }
            let position =
                self.timed_out.iter().position(|one| *one == (received.node, received.step_id));
            if let Some(at) = position {
                self.timed_out.remove(at);
                sink(Kind::MessageMissing, Some(received.node), 0, 1);
            }
        }
    }
}
