//! Stages of an application as the work of a node: it receives and classifies reports, computes for
//! them and for the stage, and synchronises with its peers.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::os::fd::AsFd;

use horolog_record::CycleTestDetectionKind as Kind;
use horolog_sys::clock::ClockMonotonic;
use horolog_sys::datagram::{MsghdrBuffers, WaitMode};
use horolog_sys::socket::DatagramSocket;
use horolog_time::{Clock, Monotonic, Span, Timestamp};

use super::fault::NodeFaultInjector;
use super::intake::{ReceivedReportClass, ReceivedReportClassifier, SequenceOrder as Numbers};
use super::link::FaultInjectionMesh;
use super::node::ApplicationNodeOrder;
use super::node_event::{NodeFaultEvent, NodeFaultEventKind};
use super::plan::{ApplicationTestPlan, PipelineStage, REPORT_MAX};
use crate::entry::PeriodEntry;
use crate::node::periods::{CurrentPeriod, PeriodWork, WorkOutcome};
use crate::ring::RingWriter;
use crate::synthetic_load::{SyntheticLoad, units_of};
use crate::task::ComputeAmount;

/// Upper limit of the datagrams read for each report of the budget; those that are not usable
/// reports of this test do not count towards the budget.
const READS_PER_REPORT: usize = 4;

/// Work of a node in a period: all stages of the plan.
pub(super) struct PipelineWork<'a> {
    plan: &'a ApplicationTestPlan,
    load: SyntheticLoad,
    unit_ns: f64,
    factor: f64,
    link: Option<FaultInjectionMesh<'a>>,
    faults: NodeFaultInjector<'a>,
    receiver: SimulatedReportReceiver<'a>,
    writer: &'a RefCell<RingWriter<'a>>,
    begin: Timestamp<Monotonic>,
    events: Vec<(NodeFaultEventKind, u32, u32)>,
    intake_totals: UsableReportTotals,
}

/// Receiver and classifier of the reports of simulated sources.
struct SimulatedReportReceiver<'a> {
    socket: DatagramSocket,
    sources: &'a [SocketAddr],
    intake: ReceivedReportClassifier,
    envelope: MsghdrBuffers,
    bytes: Vec<u8>,
}

/// Number and total length (in bytes) of usable reports.
#[derive(Clone, Copy, Default)]
struct UsableReportTotals {
    reports: u64,
    bytes: u64,
}

impl<'a> PipelineWork<'a> {
    pub(super) fn new(
        order: &'a ApplicationNodeOrder,
        (load, unit_ns): (SyntheticLoad, f64),
        link: Option<FaultInjectionMesh<'a>>,
        (socket, sources): (DatagramSocket, &'a [SocketAddr]),
        writer: &'a RefCell<RingWriter<'a>>,
        begin: Timestamp<Monotonic>,
    ) -> Self {
        let plan = &order.plan;
        let intake =
            ReceivedReportClassifier::new(plan.sources.iter().map(|source| source.late_after_ns));
        let bytes = vec![0; REPORT_MAX as usize + 1];
        Self {
            plan,
            load,
            unit_ns,
            factor: order.load,
            link,
            faults: NodeFaultInjector::new(plan, order.node),
            receiver: SimulatedReportReceiver {
                socket,
                sources,
                intake,
                envelope: MsghdrBuffers::new(),
                bytes,
            },
            writer,
            begin,
            events: Vec::new(),
            intake_totals: UsableReportTotals::default(),
        }
    }

    fn run_stage(&mut self, index: usize, period: &CurrentPeriod, entry: &mut PeriodEntry) {
        let plan = self.plan;
        let stage = &plan.stages[index];
        let due_ns = (period.released_at - self.begin).as_ns().max(0).unsigned_abs();
        let begun = ClockMonotonic.now();
        if stage.intake {
            self.intake_totals = self.receive_reports();
        }
        self.run_computation(stage, due_ns);
        let computed = ClockMonotonic.now();
        entry.compute_ns = (computed - begun).as_ns().unsigned_abs();
        let next = period.released_at + Span::from_ns(plan.period_ns as i64);
        let deadline =
            stage.wait_ns.map_or(next, |ns| next.min(computed + Span::from_ns(ns as i64)));
        let Some(link) = &mut self.link else { return };
        let events = &mut self.events;
        let mut sink = |kind, of, count, undone| {
            add_event(events, NodeFaultEventKind::Detected(kind, of), count, undone);
        };
        let step_id = (period.number, index as u16);
        let injected = link.synchronise(stage, step_id, (due_ns, deadline), entry, &mut sink);
        for fault in injected {
            add_event(events, NodeFaultEventKind::Injected(fault), 1, 0);
        }
        if let Some(of) = entry.straggler
            && entry.idle_ns > plan.response_limit_ns
        {
            add_event(events, NodeFaultEventKind::Detected(Kind::StragglerNode, Some(of)), 1, 0);
        }
    }

    /// Computes for the stage and for the reports received so far in the period, multiplied by
    /// active slow faults.
    fn run_computation(&mut self, stage: &PipelineStage, due_ns: u64) {
        let UsableReportTotals { reports, bytes } = self.intake_totals;
        let of_reports = stage.per_report_ns as f64 * reports as f64;
        let of_bytes = stage.per_byte_ns * bytes as f64;
        let computation_ns = stage.compute_ns as f64 * self.factor + of_reports + of_bytes;
        let (factor, _) = self.faults.compute_factor(due_ns);
        let ns = ComputeAmount::Ns((computation_ns * factor).round() as u64);
        self.load.run(units_of(ns, self.unit_ns));
    }

    /// Receives and classifies the reports that have arrived, until as many usable ones as the
    /// budget.
    fn receive_reports(&mut self) -> UsableReportTotals {
        let mut totals = UsableReportTotals::default();
        let SimulatedReportReceiver { socket, sources, intake, envelope, bytes } =
            &mut self.receiver;
        for _ in 0..(self.plan.budget as usize).saturating_mul(READS_PER_REPORT) {
            if totals.reports >= u64::from(self.plan.budget) {
                break;
            }
            let received =
                match envelope.receive_with_source(socket.as_fd(), bytes, WaitMode::NonBlocking) {
                    Ok(received) => received,
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                    // The error is that of an earlier datagram that could not be delivered.
                    Err(_) => continue,
                };
            let from = received.remote.and_then(|from| {
                sources.iter().position(|source| *source == from).map(|at| at as u16)
            });
            // Only sources of this test are accepted.
            if from.is_none() {
                continue;
            }
            let now_ns = ClockMonotonic.now().as_ns();
            let outcome = intake.classify(from, &bytes[..received.len], now_ns);
            if matches!(outcome, ReceivedReportClass::Usable { .. }) {
                totals.reports += 1;
                totals.bytes += received.len as u64;
            }
            record_detections(outcome, &mut self.events);
        }
        totals
    }

    /// Publishes the events since the last call.
    fn publish_events(&mut self, cycle: u64) {
        let at_ns = ClockMonotonic.now().as_ns();
        let mut writer = self.writer.borrow_mut();
        for (subject, count, undone) in self.events.drain(..) {
            let event =
                NodeFaultEvent { kind: subject, period: cycle, at_ns, count, retracted: undone };
            writer.push_words(event.to_words());
        }
    }
}

/// Records the detections that follow from the classification of a datagram.
fn record_detections(
    outcome: ReceivedReportClass,
    events: &mut Vec<(NodeFaultEventKind, u32, u32)>,
) {
    let mut add = |kind, source, count, undone| {
        add_event(events, NodeFaultEventKind::Detected(kind, source), count, undone);
    };
    let saturated = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
    match outcome {
        ReceivedReportClass::Usable { source, is_late, order } => {
            if is_late {
                add(Kind::Late, Some(source), 1, 0);
            }
            match order {
                Numbers::NewHighest(0) => {}
                Numbers::NewHighest(lost) => add(Kind::Lost, Some(source), saturated(lost), 0),
                Numbers::Reordered => add(Kind::Lost, Some(source), 0, 1),
                Numbers::Duplicate => add(Kind::Repeated, Some(source), 1, 0),
            }
        }
        ReceivedReportClass::EndOfSource { source, lost } if lost > 0 => {
            add(Kind::Lost, Some(source), saturated(lost), 0);
        }
        ReceivedReportClass::Damaged(source) => add(Kind::DataError, source, 1, 0),
        ReceivedReportClass::EndOfSource { .. } | ReceivedReportClass::Foreign => {}
    }
}

/// Adds to the event of the same kind in this period, or appends a new one; the list is short.
fn add_event(
    events: &mut Vec<(NodeFaultEventKind, u32, u32)>,
    subject: NodeFaultEventKind,
    count: u32,
    undone: u32,
) {
    match events.iter_mut().find(|(known, ..)| *known == subject) {
        Some((_, counted, retracted)) => {
            *counted = counted.saturating_add(count);
            *retracted = retracted.saturating_add(undone);
        }
        None => events.push((subject, count, undone)),
    }
}

impl PeriodWork for PipelineWork<'_> {
    fn run(
        &mut self,
        period: &CurrentPeriod,
        entry: &mut PeriodEntry,
        publish: &mut dyn FnMut(&PeriodEntry),
    ) -> WorkOutcome {
        let due_ns = (period.released_at - self.begin).as_ns().max(0).unsigned_abs();
        self.intake_totals = UsableReportTotals::default();
        let events = &mut self.events;
        if let Some(link) = &mut self.link {
            let mut sink = |kind, of, count, undone| {
                add_event(events, NodeFaultEventKind::Detected(kind, of), count, undone);
            };
            link.process_received(period.number, &mut sink);
        }
        let (_, slow) = self.faults.compute_factor(due_ns);
        for fault in slow {
            add_event(events, NodeFaultEventKind::Injected(fault), 1, 0);
        }
        period.run_steps(self.plan.stages.len(), entry, publish, |at, step| {
            self.run_stage(at, period, step);
        });
        self.publish_events(period.number);
        WorkOutcome::Done
    }
}
