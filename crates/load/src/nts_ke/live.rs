//! Snapshots of a running NTS-KE load: all clients publish their counts to one slot, and the
//! observer receives them twice a second.

use std::convert::Infallible;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use horolog_record::{
    LiveSnapshot, NtsKeTrial, Percentiles, Progress, SNAPSHOT_INTERVAL, lock_slot,
};
use horolog_time::Span;

use crate::request_tracker::TrialCounts;
use crate::run::{CurrentTrial, LiveSampler};

/// Observer of a running NTS-KE load.
pub trait NtsKeObserver {
    /// Returns true if snapshots of running trials are wanted.
    fn wants_snapshots(&self) -> bool {
        false
    }

    /// Takes a snapshot of a running trial, twice a second, and one at its end.
    fn snapshot(&mut self, _snapshot: LiveSnapshot) {}

    /// Receives the record of a finished trial.
    fn trial_ended(&mut self, _index: usize, _trial: &NtsKeTrial) {}
}

/// Observer that ignores everything.
impl NtsKeObserver for () {}

/// Progress of all clients in a trial; `None` if it is not observed.
pub(super) struct NtsKeProgress(Option<Mutex<Progress>>);

impl NtsKeProgress {
    pub(super) fn count_started(&self) {
        if let Some(slot) = &self.0 {
            lock_slot(slot).counts.sent += 1;
        }
    }

    pub(super) fn completed(&self, time: Duration) {
        if let Some(slot) = &self.0 {
            let mut progress = lock_slot(slot);
            progress.counts.received += 1;
            progress.latency.record(time.as_nanos() as u64);
        }
    }
}

/// Sampler of a load: observer, state of the snapshots, and index of the current trial.
pub(super) struct NtsKeSampler<'a> {
    observer: &'a mut dyn NtsKeObserver,
    sampler: LiveSampler,
    index: usize,
}

impl<'a> NtsKeSampler<'a> {
    pub(super) fn new(observer: &'a mut dyn NtsKeObserver) -> Self {
        Self { observer, sampler: LiveSampler::new(), index: 0 }
    }

    /// Returns a progress slot for the next trial.
    pub(super) fn progress_for_trial(&self) -> NtsKeProgress {
        NtsKeProgress(self.observer.wants_snapshots().then(Mutex::default))
    }

    /// Reports snapshots until all senders of `all_ended` are dropped.
    pub(super) fn sample_until_end(
        &mut self,
        all_ended: &Receiver<Infallible>,
        progress: &NtsKeProgress,
        (rate, duration): (Option<f64>, Duration),
    ) {
        let Some(slot) = &progress.0 else { return };
        let (begun, mut current) = (Instant::now(), Progress::default());
        let snapshot_interval = Duration::from_nanos(SNAPSHOT_INTERVAL.as_ns().unsigned_abs());
        self.sampler.begin(self.index);
        while all_ended.recv_timeout(snapshot_interval) == Err(RecvTimeoutError::Timeout) {
            current.clear();
            current.merge(&lock_slot(slot));
            let elapsed = Span::from_ns(begun.elapsed().as_nanos() as i64);
            let snapshot = self.sampler.sample(
                &self.current_trial(rate, duration.as_secs_f64()),
                elapsed,
                &current,
            );
            self.observer.snapshot(snapshot);
        }
    }

    /// Reports the end of a trial.
    pub(super) fn finish_trial(&mut self, trial: &NtsKeTrial) {
        if self.observer.wants_snapshots() {
            let counts = TrialCounts {
                sent: trial.sent,
                received: trial.received,
                ..TrialCounts::default()
            };
            let current_trial = self.current_trial(trial.intended_rate, trial.duration_s);
            if let Some(snapshot) =
                self.sampler.final_snapshot(&current_trial, std::iter::once(&counts))
            {
                let latency_ns = trial.handshake_ns.as_ref().map(Percentiles::from_distribution);
                self.observer.snapshot(LiveSnapshot { latency_ns, ..snapshot });
            }
        }
        self.observer.trial_ended(self.index, trial);
        self.index += 1;
    }

    const fn current_trial(&self, rate: Option<f64>, duration_s: f64) -> CurrentTrial<'static> {
        CurrentTrial { index: self.index, name: "", rate, begun_s: 0.0, duration_s }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    #[derive(Default)]
    struct SnapshotRecorder {
        wants: bool,
        snapshots: Vec<LiveSnapshot>,
        ended: Vec<usize>,
    }

    impl NtsKeObserver for SnapshotRecorder {
        fn wants_snapshots(&self) -> bool {
            self.wants
        }

        fn snapshot(&mut self, snapshot: LiveSnapshot) {
            self.snapshots.push(snapshot);
        }

        fn trial_ended(&mut self, index: usize, _: &NtsKeTrial) {
            self.ended.push(index);
        }
    }

    fn trial() -> NtsKeTrial {
        NtsKeTrial {
            intended_rate: None,
            achieved_rate: 1.0,
            duration_s: 2.0,
            clients: 1,
            sent: 4,
            received: 3,
            lost: 1,
            failures: BTreeMap::new(),
            handshake_ns: None,
        }
    }

    #[test]
    fn client_progress_is_sampled_meanwhile_and_at_the_end() {
        let mut recorder = SnapshotRecorder { wants: true, ..SnapshotRecorder::default() };
        let mut sampler = NtsKeSampler::new(&mut recorder);
        let (progress, (alive, over)) = (sampler.progress_for_trial(), mpsc::channel());
        thread::scope(|scope| {
            scope.spawn(|| {
                (0..3).for_each(|_| progress.count_started());
                (0..2).for_each(|_| progress.completed(Duration::from_millis(5)));
                thread::sleep(Duration::from_millis(1_200));
                drop(alive);
            });
            sampler.sample_until_end(&over, &progress, (None, Duration::from_secs(2)));
        });
        sampler.finish_trial(&trial());
        let first = &recorder.snapshots[0];
        assert_eq!((first.counts.sent, first.counts.received), (3, 2));
        assert!(first.latency_ns.is_some_and(|times| times.p50 / 1_000 == 5_000), "{first:?}");
        let last = recorder.snapshots.last().unwrap();
        assert_eq!((last.counts.sent, last.sent_rate, last.intended_rate), (4, 2.0, None));
        assert_eq!(recorder.ended, [0]);
    }

    #[test]
    fn progress_is_not_published_without_an_observer() {
        let mut recorder = SnapshotRecorder::default();
        let mut sampler = NtsKeSampler::new(&mut recorder);
        let (progress, (alive, over)) = (sampler.progress_for_trial(), mpsc::channel());
        drop(alive);
        progress.count_started();
        assert!(progress.0.is_none());
        sampler.sample_until_end(&over, &progress, (None, Duration::ZERO));
        sampler.finish_trial(&trial());
        assert_eq!((recorder.snapshots.len(), recorder.ended), (0, vec![0]));
    }
}
