//! Snapshots of a row while it is measured: the counts that its flows or connections have
//! published, with the results of the rows before. It uses published progress only.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use horolog_record::{
    LiveCounts, PartProgress, PartSummary, Percentiles, Progress, ProgressSlots, SNAPSHOT_INTERVAL,
    Snapshot,
};

/// Interval between checks for the end of the row.
const TICK: Duration = Duration::from_millis(20);

/// Observer of rows while they are measured.
pub trait PathObserver: Sync {
    /// Takes a snapshot of the current row, twice a second, and one when it is over.
    fn snapshot(&self, snapshot: Snapshot);

    /// Takes the summary of a completed row.
    fn ended(&self, row: PartSummary);
}

/// Row being measured, as planned.
#[derive(Clone, Copy, Debug)]
pub(super) struct CurrentRow<'a> {
    pub(super) index: usize,
    /// Row name.
    pub(super) name: &'a str,
    pub(super) rate: Option<f64>,
    pub(super) duration_s: Option<f64>,
    /// True if bytes are measured rather than replies.
    pub(super) is_transfer: bool,
}

/// State carried from one row to the next.
#[derive(Debug)]
pub(super) struct PathLiveSampler {
    begun: Instant,
    before: LiveCounts,
}

impl PathLiveSampler {
    pub(super) fn new() -> Self {
        Self { begun: Instant::now(), before: LiveCounts::default() }
    }

    /// Passes snapshots to the observer until the row is over.
    pub(super) fn sample_until(
        &self,
        observer: &dyn PathObserver,
        under: CurrentRow<'_>,
        slots: &ProgressSlots,
        is_done: &AtomicBool,
    ) {
        let every = Duration::from_nanos(SNAPSHOT_INTERVAL.as_ns().unsigned_abs());
        let (begun, mut so_far) = (Instant::now(), Progress::default());
        let (mut last, mut counted) = (begun, LiveCounts::default());
        while !is_done.load(Ordering::Relaxed) {
            thread::sleep(TICK);
            let now = Instant::now();
            if now - last < every {
                continue;
            }
            slots.sum(&mut so_far);
            let gained = so_far.counts.since(&counted);
            let elapsed = (begun.elapsed().as_secs_f64(), (now - last).as_secs_f64());
            observer.snapshot(self.build_snapshot(under, elapsed, &gained, &so_far));
            (last, counted) = (now, so_far.counts);
        }
    }

    /// Builds a snapshot at a time since the start of the row, with the gain of the last interval
    /// in seconds.
    fn build_snapshot(
        &self,
        under: CurrentRow<'_>,
        (elapsed_s, gained_s): (f64, f64),
        gained: &LiveCounts,
        so_far: &Progress,
    ) -> Snapshot {
        let per_second = |count: u64| count as f64 / gained_s.max(1e-9);
        let mut counts = self.before;
        counts.add(&so_far.counts);
        Snapshot {
            at_s: self.begun.elapsed().as_secs_f64(),
            intended_rate: under.rate,
            sent_rate: per_second(gained.sent),
            received_rate: per_second(gained.received),
            byte_rate: under.is_transfer.then(|| per_second(gained.bytes)),
            unanswered_ratio: gained.unanswered() as f64 / gained.sent.max(1) as f64,
            counts,
            part: PartProgress {
                index: under.index,
                name: under.name.to_owned(),
                elapsed_s,
                duration_s: under.duration_s,
                counts: so_far.counts,
            },
            latency_ns: Percentiles::from_recorder(&so_far.latency),
            lateness_ns: None,
        }
    }

    /// Reports a completed row, with its counts.
    pub(super) fn end(
        &mut self,
        observer: &dyn PathObserver,
        under: CurrentRow<'_>,
        counts: LiveCounts,
        row: PartSummary,
    ) {
        let so_far = Progress { counts, ..Progress::default() };
        let snapshot =
            self.build_snapshot(under, (row.duration_s, row.duration_s), &counts, &so_far);
        let byte_rate = row.byte_rate.or(snapshot.byte_rate);
        self.before.add(&counts);
        observer.snapshot(Snapshot { latency_ns: row.latency_ns, byte_rate, ..snapshot });
        observer.ended(PartSummary { index: under.index, name: under.name.to_owned(), ..row });
    }
}

/// Observer that stores all it receives.
#[cfg(test)]
#[derive(Default)]
pub(super) struct RecordingObserver(pub(super) std::sync::Mutex<(Vec<Snapshot>, Vec<PartSummary>)>);

#[cfg(test)]
impl PathObserver for RecordingObserver {
    fn snapshot(&self, snapshot: Snapshot) {
        self.0.lock().unwrap().0.push(snapshot);
    }

    fn ended(&self, row: PartSummary) {
        self.0.lock().unwrap().1.push(row);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_add_up_and_only_transfers_have_a_rate_of_bytes() {
        let (observer, mut sampler) = (RecordingObserver::default(), PathLiveSampler::new());
        for (index, is_transfer) in [false, true].into_iter().enumerate() {
            let under = CurrentRow { index, name: "a", rate: None, duration_s: None, is_transfer };
            let counts = LiveCounts { sent: 4, received: 3, bytes: 10, ..LiveCounts::default() };
            let row = PartSummary { duration_s: 2.0, lost: 1, ..PartSummary::default() };
            sampler.end(&observer, under, counts, row);
        }
        let (snapshots, ended) = observer.0.into_inner().unwrap();
        assert_eq!((snapshots[0].counts.sent, snapshots[1].counts.sent), (4, 8));
        assert_eq!((snapshots[1].part.counts.sent, snapshots[1].part.index), (4, 1));
        assert_eq!((snapshots[0].byte_rate, snapshots[1].byte_rate), (None, Some(5.0)));
        assert!(
            (snapshots[0].unanswered_ratio - 0.25).abs() < 1e-9 && snapshots[0].sent_rate > 1.9
        );
        assert_eq!((ended[1].index, &*ended[1].name, ended[1].lost), (1, "a", 1));
    }
}
