//! Sampler for the live view of path measurements: snapshots of the current row from the counts
//! that its flows or connections publish, plus the counts of completed rows.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use horolog_record::{
    LiveCounts, LivePartProgress, LivePartSummary, LiveSnapshot, Percentiles, Progress,
    ProgressSlots, SNAPSHOT_INTERVAL,
};

/// Interval between checks for the end of the row.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// Observer of rows while they are measured.
pub trait PathRowObserver: Sync {
    /// Called with a snapshot of the current row, twice a second, and once when the row is
    /// complete.
    fn snapshot(&self, snapshot: LiveSnapshot);

    /// Called with the summary of a completed row.
    fn row_ended(&self, row: LivePartSummary);
}

/// Planned values of the current row.
#[derive(Clone, Copy, Debug)]
pub(super) struct CurrentRowPlan<'a> {
    pub(super) index: usize,
    /// Row name.
    pub(super) name: &'a str,
    pub(super) rate: Option<f64>,
    pub(super) duration_s: Option<f64>,
    /// True if bytes are measured rather than replies.
    pub(super) is_transfer: bool,
}

/// Sampler with the total counts of completed rows.
#[derive(Debug)]
pub(super) struct PathLiveSampler {
    started_at: Instant,
    previous_rows: LiveCounts,
}

impl PathLiveSampler {
    pub(super) fn new() -> Self {
        Self { started_at: Instant::now(), previous_rows: LiveCounts::default() }
    }

    /// Passes snapshots to the observer until `is_done` is set.
    pub(super) fn sample_until(
        &self,
        observer: &dyn PathRowObserver,
        current_row: CurrentRowPlan<'_>,
        slots: &ProgressSlots,
        is_done: &AtomicBool,
    ) {
        let interval = Duration::from_nanos(SNAPSHOT_INTERVAL.as_ns().unsigned_abs());
        let (begun, mut progress) = (Instant::now(), Progress::default());
        let (mut last, mut last_counts) = (begun, LiveCounts::default());
        while !is_done.load(Ordering::Relaxed) {
            thread::sleep(CHECK_INTERVAL);
            let now = Instant::now();
            if now - last < interval {
                continue;
            }
            slots.sum(&mut progress);
            let increase = progress.counts.since(&last_counts);
            let elapsed = (begun.elapsed().as_secs_f64(), (now - last).as_secs_f64());
            observer.snapshot(self.build_snapshot(current_row, elapsed, &increase, &progress));
            (last, last_counts) = (now, progress.counts);
        }
    }

    /// Builds a snapshot: `elapsed_s` since the start of the row, and `gained`, the counts of the
    /// last `gained_s` seconds.
    fn build_snapshot(
        &self,
        current_row: CurrentRowPlan<'_>,
        (elapsed_s, gained_s): (f64, f64),
        gained: &LiveCounts,
        progress: &Progress,
    ) -> LiveSnapshot {
        let per_second = |count: u64| count as f64 / gained_s.max(1e-9);
        let mut counts = self.previous_rows;
        counts.add(&progress.counts);
        LiveSnapshot {
            at_s: self.started_at.elapsed().as_secs_f64(),
            intended_rate: current_row.rate,
            sent_rate: per_second(gained.sent),
            received_rate: per_second(gained.received),
            byte_rate: current_row.is_transfer.then(|| per_second(gained.bytes)),
            unanswered_ratio: gained.unanswered() as f64 / gained.sent.max(1) as f64,
            counts,
            part: LivePartProgress {
                index: current_row.index,
                name: current_row.name.to_owned(),
                elapsed_s,
                duration_s: current_row.duration_s,
                counts: progress.counts,
            },
            latency_ns: Percentiles::from_recorder(&progress.latency),
            lateness_ns: None,
        }
    }

    /// Reports a completed row and adds its counts to the totals.
    pub(super) fn report_row(
        &mut self,
        observer: &dyn PathRowObserver,
        current_row: CurrentRowPlan<'_>,
        counts: LiveCounts,
        row: LivePartSummary,
    ) {
        let progress = Progress { counts, ..Progress::default() };
        let snapshot =
            self.build_snapshot(current_row, (row.duration_s, row.duration_s), &counts, &progress);
        let byte_rate = row.byte_rate.or(snapshot.byte_rate);
        self.previous_rows.add(&counts);
        observer.snapshot(LiveSnapshot { latency_ns: row.latency_ns, byte_rate, ..snapshot });
        observer.row_ended(LivePartSummary {
            index: current_row.index,
            name: current_row.name.to_owned(),
            ..row
        });
    }
}

/// Observer that stores all it receives.
#[cfg(test)]
#[derive(Default)]
pub(super) struct RecordingObserver(
    pub(super) std::sync::Mutex<(Vec<LiveSnapshot>, Vec<LivePartSummary>)>,
);

#[cfg(test)]
impl PathRowObserver for RecordingObserver {
    fn snapshot(&self, snapshot: LiveSnapshot) {
        self.0.lock().unwrap().0.push(snapshot);
    }

    fn row_ended(&self, row: LivePartSummary) {
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
            let under =
                CurrentRowPlan { index, name: "a", rate: None, duration_s: None, is_transfer };
            let counts = LiveCounts { sent: 4, received: 3, bytes: 10, ..LiveCounts::default() };
            let row = LivePartSummary { duration_s: 2.0, lost: 1, ..LivePartSummary::default() };
            sampler.report_row(&observer, under, counts, row);
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
