//! Looks at a row while it is measured: what its flows or connections have counted so far, put
//! beside what came in the rows before. It sees what it is given and asks for nothing.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use horolog_record::{
    LOOK_EVERY, Look, LookCounts, LookEnded, LookPart, Percentiles, Slots, SoFar,
};

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
    /// What it is called.
    pub(super) name: &'a str,
    pub(super) rate: Option<f64>,
    pub(super) duration_s: Option<f64>,
    /// Whether bytes are what is measured, and not replies.
    pub(super) is_transfer: bool,
}

/// What is remembered from one row to the next.
#[derive(Debug)]
pub(super) struct Lookout {
    begun: Instant,
    before: LookCounts,
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
            byte_rate: under.is_transfer.then(|| per_second(gained.bytes)),
            unanswered_ratio: gained.unanswered() as f64 / gained.sent.max(1) as f64,
            counts,
            part: LookPart {
                index: under.index,
                name: under.name.to_owned(),
                elapsed_s,
                duration_s: under.duration_s,
                counts: so_far.counts,
            },
            latency_ns: Percentiles::of_recorder(&so_far.latency),
            lateness_ns: None,
        }
    }

    /// Tells of a row that is over, with what was counted in it.
    pub(super) fn end(
        &mut self,
        onlooker: &dyn Onlooker,
        under: Under<'_>,
        counts: LookCounts,
        row: LookEnded,
    ) {
        let so_far = SoFar { counts, ..SoFar::default() };
        let look = self.look(under, (row.duration_s, row.duration_s), &counts, &so_far);
        let byte_rate = row.byte_rate.or(look.byte_rate);
        self.before.add(&counts);
        onlooker.look(Look { latency_ns: row.latency_ns, byte_rate, ..look });
        onlooker.ended(LookEnded { index: under.index, name: under.name.to_owned(), ..row });
    }
}

/// An onlooker that keeps all it sees.
#[cfg(test)]
#[derive(Default)]
pub(super) struct Seen(pub(super) std::sync::Mutex<(Vec<Look>, Vec<LookEnded>)>);

#[cfg(test)]
impl Onlooker for Seen {
    fn look(&self, look: Look) {
        self.0.lock().unwrap().0.push(look);
    }

    fn ended(&self, row: LookEnded) {
        self.0.lock().unwrap().1.push(row);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_add_up_and_only_transfers_have_a_rate_of_bytes() {
        let (seen, mut lookout) = (Seen::default(), Lookout::new());
        for (index, is_transfer) in [false, true].into_iter().enumerate() {
            let under = Under { index, name: "a", rate: None, duration_s: None, is_transfer };
            let counts = LookCounts { sent: 4, received: 3, bytes: 10, ..LookCounts::default() };
            let row = LookEnded { duration_s: 2.0, lost: 1, ..LookEnded::default() };
            lookout.end(&seen, under, counts, row);
        }
        let (looks, ended) = seen.0.into_inner().unwrap();
        assert_eq!((looks[0].counts.sent, looks[1].counts.sent), (4, 8));
        assert_eq!((looks[1].part.counts.sent, looks[1].part.index), (4, 1));
        assert_eq!((looks[0].byte_rate, looks[1].byte_rate), (None, Some(5.0)));
        assert!((looks[0].unanswered_ratio - 0.25).abs() < 1e-9 && looks[0].sent_rate > 1.9);
        assert_eq!((ended[1].index, &*ended[1].name, ended[1].lost), (1, "a", 1));
    }
}
