//! The stages of an application as work: reports are taken in and checked, all is computed that
//! they and the stage ask for, and the other nodes are met.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::os::fd::AsFd;

use horolog_record::CycleTestNotice as Kind;
use horolog_sys::clock::MonotonicClock;
use horolog_sys::datagram::{Envelope, Wait};
use horolog_sys::socket::Socket;
use horolog_time::{Clock, Monotonic, Span, Timestamp};

use super::fault::Faults;
use super::intake::{Intake, Order as Numbers, Taken};
use super::link::Link;
use super::node::Order;
use super::notice::{Notice, Subject};
use super::plan::{Plan, REPORT_MAX, Stage};
use crate::entry::Entry;
use crate::load::{Load, units_of};
use crate::node::periods::{Period, Work, Worked};
use crate::ring::Writer;
use crate::task::Compute;

/// Datagrams that are looked at for each that may be taken: strangers' are passed over.
const LOOKED_AT: usize = 4;

/// What a node does in a period.
pub(super) struct Stages<'a> {
    plan: &'a Plan,
    load: Load,
    unit_ns: f64,
    factor: f64,
    link: Option<Link<'a>>,
    faults: Faults<'a>,
    intake: Reports<'a>,
    writer: &'a RefCell<Writer<'a>>,
    begin: Timestamp<Monotonic>,
    noticed: Vec<(Subject, u32, u32)>,
    taken: Amount,
}

/// Where reports come in.
struct Reports<'a> {
    socket: Socket,
    sources: &'a [SocketAddr],
    known: Intake,
    envelope: Envelope,
    bytes: Vec<u8>,
}

/// Reports that can be used, and how long they are together.
#[derive(Clone, Copy, Default)]
struct Amount {
    reports: u64,
    bytes: u64,
}

impl<'a> Stages<'a> {
    pub(super) fn new(
        order: &'a Order,
        (load, unit_ns): (Load, f64),
        link: Option<Link<'a>>,
        (socket, sources): (Socket, &'a [SocketAddr]),
        writer: &'a RefCell<Writer<'a>>,
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
            faults: Faults::new(plan, order.node),
            intake: Reports { socket, sources, known, envelope: Envelope::new(), bytes },
            writer,
            begin,
            noticed: Vec::new(),
            taken: Amount::default(),
        }
    }

    fn stage(&mut self, at: usize, period: &Period, entry: &mut Entry) {
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
        let mut told =
            |kind, of, count, undone| note(noticed, Subject::Noticed(kind, of), count, undone);
        let place = (period.cycle, at as u16);
        let injected = link.meet(stage, place, (due_ns, limit), entry, &mut told);
        for fault in injected {
            note(noticed, Subject::Injected(fault), 1, 0);
        }
        if let Some(of) = entry.awaited
            && entry.idle_ns > plan.slow_after_ns
        {
            note(noticed, Subject::Noticed(Kind::NodeAwaited, Some(of)), 1, 0);
        }
    }

    /// Computes what the stage asks for, and what reports do.
    fn compute(&mut self, stage: &Stage, due_ns: u64) {
        let Amount { reports, bytes } = self.taken;
        let of_reports = stage.per_report_ns as f64 * reports as f64;
        let of_bytes = stage.per_byte_ns * bytes as f64;
        let wanted_ns = stage.compute_ns as f64 * self.factor + of_reports + of_bytes;
        let (slowness, _) = self.faults.slowness(due_ns);
        let ns = Compute::Ns((wanted_ns * slowness).round() as u64);
        self.load.run(units_of(ns, self.unit_ns));
    }

    /// Takes what has come, up to the budget.
    fn take(&mut self) -> Amount {
        let mut amount = Amount::default();
        let Reports { socket, sources, known, envelope, bytes } = &mut self.intake;
        for _ in 0..(self.plan.budget as usize).saturating_mul(LOOKED_AT) {
            if amount.reports >= u64::from(self.plan.budget) {
                break;
            }
            let received = match envelope.receive_plain(socket.as_fd(), bytes, Wait::Never) {
                Ok(received) => received,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                // Of an earlier datagram that could not be delivered.
                Err(_) => continue,
            };
            let from = received.remote.and_then(|from| {
                sources.iter().position(|source| *source == from).map(|at| at as u16)
            });
            // Only sources of this test are listened to.
            if from.is_none() {
                continue;
            }
            let now_ns = MonotonicClock.now().as_ns();
            let taken = known.take(from, &bytes[..received.len], now_ns);
            if matches!(taken, Taken::Whole { .. }) {
                amount.reports += 1;
                amount.bytes += received.len as u64;
            }
            notices(taken, &mut self.noticed);
        }
        amount
    }

    /// Hands over what was noticed since the last time.
    fn tell(&mut self, cycle: u64) {
        let at_ns = MonotonicClock.now().as_ns();
        let mut writer = self.writer.borrow_mut();
        for (subject, count, undone) in self.noticed.drain(..) {
            let notice = Notice { subject, cycle, at_ns, count, undone };
            writer.push_words(notice.to_words());
        }
    }
}

/// What a report, or what is none, is noticed as.
fn notices(taken: Taken, noticed: &mut Vec<(Subject, u32, u32)>) {
    let mut of = |kind, source, count, undone| {
        note(noticed, Subject::Noticed(kind, source), count, undone);
    };
    let most = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
    match taken {
        Taken::Whole { source, is_late, order } => {
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
        Taken::End { source, lost } if lost > 0 => of(Kind::Lost, Some(source), most(lost), 0),
        Taken::Damaged(source) => of(Kind::DataError, source, 1, 0),
        Taken::End { .. } | Taken::Foreign => {}
    }
}

/// Adds to what is noticed of the same in this period, of which there are few.
fn note(noticed: &mut Vec<(Subject, u32, u32)>, subject: Subject, count: u32, undone: u32) {
    match noticed.iter_mut().find(|(known, ..)| *known == subject) {
        Some((_, counted, none)) => {
            *counted = counted.saturating_add(count);
            *none = none.saturating_add(undone);
        }
        None => noticed.push((subject, count, undone)),
    }
}

impl Work for Stages<'_> {
    fn run(&mut self, period: &Period, entry: &mut Entry, put: &mut dyn FnMut(&Entry)) -> Worked {
        let due_ns = (period.due - self.begin).as_ns().max(0).unsigned_abs();
        self.taken = Amount::default();
        let noticed = &mut self.noticed;
        if let Some(link) = &mut self.link {
            let mut told =
                |kind, of, count, undone| note(noticed, Subject::Noticed(kind, of), count, undone);
            link.listen(period.cycle, &mut told);
        }
        let (_, slow) = self.faults.slowness(due_ns);
        for fault in slow {
            note(noticed, Subject::Injected(fault), 1, 0);
        }
        period.steps(self.plan.stages.len(), entry, put, |at, step| self.stage(at, period, step));
        self.tell(period.cycle);
        Worked::Done
    }
}
