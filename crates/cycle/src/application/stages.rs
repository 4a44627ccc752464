//! Stages of an application as work: reports are taken and checked, the computation for them and
//! for the stage is done, and the node synchronises with its peers.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::os::fd::AsFd;

use horolog_record::CycleTestDetectionKind as Kind;
use horolog_sys::clock::MonotonicClock;
use horolog_sys::datagram::{MessageHeader, WaitMode};
use horolog_sys::socket::Socket;
use horolog_time::{Clock, Monotonic, Span, Timestamp};

use super::fault::NodeFaults;
use super::intake::{Intake, IntakeOutcome, SequenceOrder as Numbers};
use super::link::MeshLink;
use super::node::TestOrder;
use super::node_event::{NodeEvent, NodeEventKind};
use super::plan::{REPORT_MAX, Stage, TestPlan};
use crate::entry::PeriodEntry;
use crate::node::periods::{Period, PeriodWork, WorkOutcome};
use crate::ring::RingWriter;
use crate::synthetic_load::{SyntheticLoad, units_of};
use crate::task::Compute;

/// Datagrams read for each report that may be taken: those from other senders are skipped.
const READS_PER_REPORT: usize = 4;

/// Work of a node in a period.
pub(super) struct Stages<'a> {
    plan: &'a TestPlan,
    load: SyntheticLoad,
    unit_ns: f64,
    factor: f64,
    link: Option<MeshLink<'a>>,
    faults: NodeFaults<'a>,
    intake: Reports<'a>,
    writer: &'a RefCell<RingWriter<'a>>,
    begin: Timestamp<Monotonic>,
    noticed: Vec<(NodeEventKind, u32, u32)>,
    taken: IntakeTotals,
}

/// Intake of reports.
struct Reports<'a> {
    socket: Socket,
    sources: &'a [SocketAddr],
    known: Intake,
    envelope: MessageHeader,
    bytes: Vec<u8>,
}

/// Usable reports, and their total length.
#[derive(Clone, Copy, Default)]
struct IntakeTotals {
    reports: u64,
    bytes: u64,
}

impl<'a> Stages<'a> {
    pub(super) fn new(
        order: &'a TestOrder,
        (load, unit_ns): (SyntheticLoad, f64),
        link: Option<MeshLink<'a>>,
        (socket, sources): (Socket, &'a [SocketAddr]),
        writer: &'a RefCell<RingWriter<'a>>,
        begin: Timestamp<Monotonic>,
    ) -> Self {
        let plan = &order.plan;
        let known = Intake::new(plan.sources.iter().map(|source| source.late_after_ns));
        let bytes = vec![0; REPORT_MAX as usize + 1];
        Self {
            plan,
            load,
            unit_ns,
            factor: order.load,
            link,
            faults: NodeFaults::new(plan, order.node),
            intake: Reports { socket, sources, known, envelope: MessageHeader::new(), bytes },
            writer,
            begin,
            noticed: Vec::new(),
            taken: IntakeTotals::default(),
        }
    }

    fn stage(&mut self, at: usize, period: &Period, entry: &mut PeriodEntry) {
        let plan = self.plan;
        let stage = &plan.stages[at];
        let due_ns = (period.due - self.begin).as_ns().max(0).unsigned_abs();
        let begun = MonotonicClock.now();
        if stage.intake {
            self.taken = self.take();
        }
        self.compute(stage, due_ns);
        let computed = MonotonicClock.now();
        entry.compute_ns = (computed - begun).as_ns().unsigned_abs();
        let next = period.due + Span::from_ns(plan.period_ns as i64);
        let limit = stage.wait_ns.map_or(next, |ns| next.min(computed + Span::from_ns(ns as i64)));
        let Some(link) = &mut self.link else { return };
        let noticed = &mut self.noticed;
        let mut sink = |kind, of, count, undone| {
            note(noticed, NodeEventKind::Detected(kind, of), count, undone);
        };
        let step_id = (period.cycle, at as u16);
        let injected = link.synchronise(stage, step_id, (due_ns, limit), entry, &mut sink);
        for fault in injected {
            note(noticed, NodeEventKind::Injected(fault), 1, 0);
        }
        if let Some(of) = entry.straggler
            && entry.idle_ns > plan.response_limit_ns
        {
            note(noticed, NodeEventKind::Detected(Kind::StragglerNode, Some(of)), 1, 0);
        }
    }

    /// Computes for the stage, and for its reports.
    fn compute(&mut self, stage: &Stage, due_ns: u64) {
        let IntakeTotals { reports, bytes } = self.taken;
        let of_reports = stage.per_report_ns as f64 * reports as f64;
        let of_bytes = stage.per_byte_ns * bytes as f64;
        let wanted_ns = stage.compute_ns as f64 * self.factor + of_reports + of_bytes;
        let (slowness, _) = self.faults.compute_factor(due_ns);
        let ns = Compute::Ns((wanted_ns * slowness).round() as u64);
        self.load.run(units_of(ns, self.unit_ns));
    }

    /// Takes the reports that have arrived, up to the budget.
    fn take(&mut self) -> IntakeTotals {
        let mut amount = IntakeTotals::default();
        let Reports { socket, sources, known, envelope, bytes } = &mut self.intake;
        for _ in 0..(self.plan.budget as usize).saturating_mul(READS_PER_REPORT) {
            if amount.reports >= u64::from(self.plan.budget) {
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
            let now_ns = MonotonicClock.now().as_ns();
            let taken = known.take(from, &bytes[..received.len], now_ns);
            if matches!(taken, IntakeOutcome::Whole { .. }) {
                amount.reports += 1;
                amount.bytes += received.len as u64;
            }
            notices(taken, &mut self.noticed);
        }
        amount
    }

    /// Publishes the detections since the last call.
    fn publish_detections(&mut self, cycle: u64) {
        let at_ns = MonotonicClock.now().as_ns();
        let mut writer = self.writer.borrow_mut();
        for (subject, count, undone) in self.noticed.drain(..) {
            let notice = NodeEvent { subject, cycle, at_ns, count, retracted: undone };
            writer.push_words(notice.to_words());
        }
    }
}

/// Records the detections that follow from a datagram's classification.
fn notices(taken: IntakeOutcome, noticed: &mut Vec<(NodeEventKind, u32, u32)>) {
    let mut of = |kind, source, count, undone| {
        note(noticed, NodeEventKind::Detected(kind, source), count, undone);
    };
    let most = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
    match taken {
        IntakeOutcome::Whole { source, is_late, order } => {
            if is_late {
                of(Kind::Late, Some(source), 1, 0);
            }
            match order {
                Numbers::After(0) => {}
                Numbers::After(lost) => of(Kind::Lost, Some(source), most(lost), 0),
                Numbers::Found => of(Kind::Lost, Some(source), 0, 1),
                Numbers::Repeated => of(Kind::Repeated, Some(source), 1, 0),
            }
        }
        IntakeOutcome::End { source, lost } if lost > 0 => {
            of(Kind::Lost, Some(source), most(lost), 0);
        }
        IntakeOutcome::Damaged(source) => of(Kind::DataError, source, 1, 0),
        IntakeOutcome::End { .. } | IntakeOutcome::Foreign => {}
    }
}

/// Adds to the detections of the same kind in this period, of which there are few.
fn note(
    noticed: &mut Vec<(NodeEventKind, u32, u32)>,
    subject: NodeEventKind,
    count: u32,
    undone: u32,
) {
    match noticed.iter_mut().find(|(known, ..)| *known == subject) {
        Some((_, counted, none)) => {
            *counted = counted.saturating_add(count);
            *none = none.saturating_add(undone);
        }
        None => noticed.push((subject, count, undone)),
    }
}

impl PeriodWork for Stages<'_> {
    fn run(
        &mut self,
        period: &Period,
        entry: &mut PeriodEntry,
        put: &mut dyn FnMut(&PeriodEntry),
    ) -> WorkOutcome {
        let due_ns = (period.due - self.begin).as_ns().max(0).unsigned_abs();
        self.taken = IntakeTotals::default();
        let noticed = &mut self.noticed;
        if let Some(link) = &mut self.link {
            let mut sink = |kind, of, count, undone| {
                note(noticed, NodeEventKind::Detected(kind, of), count, undone);
            };
            link.listen(period.cycle, &mut sink);
        }
        let (_, slow) = self.faults.compute_factor(due_ns);
        for fault in slow {
            note(noticed, NodeEventKind::Injected(fault), 1, 0);
        }
        period.steps(self.plan.stages.len(), entry, put, |at, step| self.stage(at, period, step));
        self.publish_detections(period.cycle);
        WorkOutcome::Done
    }
}
