//! Looks at a row while it is measured: what its flows have counted so far, put beside what came in
//! the rows before. It sees what it is given and asks for nothing.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use horolog_record::{
    LOOK_EVERY, Look, LookCounts, LookEnded, LookPart, PathRow, Percentiles, Slots, SoFar,
};

use super::options::RowPlan;

/// How often is looked whether the row is over.
const TICK: Duration = Duration::from_millis(20);

/// Who looks on while rows are measured.
pub trait Onlooker: Sync {
    /// A look at the row that is measured, twice a second, and one when it is over.
    fn look(&self, look: Look);

    /// A row is over.
    fn ended(&self, row: LookEnded);
}

/// The row that is measured, as it was planned.
#[derive(Clone, Copy, Debug)]
pub(super) struct Under<'a> {
    pub(super) index: usize,
    pub(super) plan: &'a RowPlan,
    pub(super) rate: Option<f64>,
    pub(super) duration_s: Option<f64>,
}

/// What is remembered from one row to the next.
#[derive(Debug)]
pub(super) struct Lookout {
    begun: Instant,
    before: LookCounts,
}

/// What a row is called.
fn name(plan: &RowPlan) -> String {
    format!("{} bytes, R {}", plan.length, plan.load_ratio)
}

impl Lookout {
    pub(super) fn new() -> Self {
        Self { begun: Instant::now(), before: LookCounts::default() }
    }

    /// Hands looks over until the row is over.
    pub(super) fn watch(
        &self,
        onlooker: &dyn Onlooker,
        under: Under<'_>,
        slots: &Slots,
        is_done: &AtomicBool,
    ) {
        let every = Duration::from_nanos(LOOK_EVERY.as_ns().unsigned_abs());
        let (begun, mut so_far) = (Instant::now(), SoFar::default());
        let (mut last, mut counted) = (begun, LookCounts::default());
        while !is_done.load(Ordering::Relaxed) {
            thread::sleep(TICK);
            let now = Instant::now();
            if now - last < every {
                continue;
            }
            slots.sum(&mut so_far);
            let gained = so_far.counts.since(&counted);
            let elapsed = (begun.elapsed().as_secs_f64(), (now - last).as_secs_f64());
            onlooker.look(self.look(under, elapsed, &gained, &so_far));
            (last, counted) = (now, so_far.counts);
        }
    }

    /// A look so long after the row's beginning, with what was gained in so many seconds.
    fn look(
        &self,
        under: Under<'_>,
        (elapsed_s, gained_s): (f64, f64),
        gained: &LookCounts,
        so_far: &SoFar,
    ) -> Look {
        let per_second = |count: u64| count as f64 / gained_s.max(1e-9);
        let mut counts = self.before;
        counts.add(&so_far.counts);
        Look {
            at_s: self.begun.elapsed().as_secs_f64(),
            offered_rate: under.rate,
            sent_rate: per_second(gained.sent),
            received_rate: per_second(gained.received),
            byte_rate: None,
            unanswered_ratio: gained.unanswered() as f64 / gained.sent.max(1) as f64,
            counts,
            part: LookPart {
                index: under.index,
                name: name(under.plan),
                elapsed_s,
                duration_s: under.duration_s,
                counts: so_far.counts,
            },
            latency_ns: Percentiles::of_recorder(&so_far.latency),
            lateness_ns: None,
        }
    }

    /// Tells of a row that is over.
    pub(super) fn end(&mut self, onlooker: &dyn Onlooker, under: Under<'_>, row: &PathRow) {
        let so_far = SoFar { counts: counts(row), ..SoFar::default() };
        let elapsed = (row.duration_s, row.duration_s);
        let look = self.look(under, elapsed, &so_far.counts, &so_far);
        let latency_ns = row.rtt_ns.as_ref().map(Percentiles::of);
        self.before.add(&so_far.counts);
        onlooker.look(Look { latency_ns, ..look });
        onlooker.ended(LookEnded {
            index: under.index,
            name: name(under.plan),
            offered_rate: row.planned_rate,
            achieved_rate: row.achieved_rate,
            duration_s: row.duration_s,
            sent: row.counts.sent,
            received: row.counts.received,
            lost: row.counts.lost,
            late: row.counts.late,
            invalid: row.counts.invalid,
            latency_ns,
            ..LookEnded::default()
        });
    }
}

fn counts(row: &PathRow) -> LookCounts {
    LookCounts {
        sent: row.counts.sent,
        received: row.counts.received,
        late: row.counts.late,
        duplicate: row.counts.duplicate,
        invalid: row.counts.invalid,
        refused: row.counts.refused,
        ..LookCounts::default()
    }
}
