//! Sampler of a running measurement whose counts grow: makes snapshots from the progress of its
//! threads, the counts of earlier parts and the plan, and passes them to the observer. It measures
//! nothing itself.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use horolog_time::Span;

use crate::{
    LiveCounts, LivePartSummary, PartPlan, PartProgress, Percentiles, Progress, ProgressSlots,
    RequestValues, RunObserver, SNAPSHOT_INTERVAL, Snapshot,
};

/// [`SNAPSHOT_INTERVAL`] as a duration.
const INTERVAL: Duration = Duration::from_nanos(SNAPSHOT_INTERVAL.as_ns().unsigned_abs());

/// Sampler of a run, with its observer and the state that snapshots need from earlier ones.
pub struct LiveSampler<'o, P = LivePartSummary, E = ()> {
    /// Observer of the run.
    pub observer: &'o mut (dyn RunObserver<P, E> + Send),
    run_start: Instant,
    /// Sum of the counts of earlier parts.
    previous_counts: LiveCounts,
    /// Index of the current part, and the counts at its start.
    current: (usize, LiveCounts),
    /// Time in seconds and counts of the last snapshot.
    last: (f64, LiveCounts),
}

impl<'o, P, E> LiveSampler<'o, P, E> {
    /// Creates the sampler of a run that starts now.
    pub fn new(observer: &'o mut (dyn RunObserver<P, E> + Send)) -> Self {
        let zero = LiveCounts::default();
        Self {
            observer,
            run_start: Instant::now(),
            previous_counts: zero,
            current: (0, zero),
            last: (0.0, zero),
        }
    }

    /// Begins a part, with its counts at 0.
    pub fn begin(&mut self, part: usize) {
        let zero = LiveCounts::default();
        (self.current, self.last) = ((part, zero), (0.0, zero));
    }

    /// Passes a snapshot of the counts, `elapsed` after they began, to the observer.
    pub fn sample(&mut self, plan: &PartPlan, elapsed: Span, progress: &Progress) {
        let (now, counts) = (elapsed.as_seconds(), progress.counts);
        if plan.index != self.current.0 {
            // The part began between two snapshots: its counts start at those of the last one.
            self.current = (plan.index, self.last.1);
        }
        let (last_s, last_counts) = std::mem::replace(&mut self.last, (now, counts));
        let mut total = self.previous_counts;
        total.add(&counts);
        let values = RequestValues {
            counts: total,
            part_counts: counts.since(&self.current.1),
            latency_ns: Percentiles::from_histogram(&progress.latency),
            lateness_ns: Percentiles::from_histogram(&progress.lateness),
            ..rates(plan, &counts.since(&last_counts), now - last_s)
        };
        self.pass_on(plan.progress((now - plan.begun_s).max(0.0)), &values);
    }

    /// Passes the final snapshot of counts to the observer, if it wants one. `counts` are all since
    /// they began; `ended` has the counts, the percentiles and any byte rate of the last part, over
    /// whose `duration_s` seconds the rates are means.
    pub fn finish(
        &mut self,
        plan: &PartPlan,
        duration_s: f64,
        counts: &LiveCounts,
        ended: RequestValues,
    ) {
        self.previous_counts.add(counts);
        if !self.observer.wants_snapshots() {
            return;
        }
        let RequestValues { part_counts, latency_ns, lateness_ns, byte_rate, .. } = ended;
        let rates = rates(plan, &part_counts, duration_s);
        let values = RequestValues {
            byte_rate: byte_rate.or(rates.byte_rate),
            counts: self.previous_counts,
            part_counts,
            latency_ns,
            lateness_ns,
            ..rates
        };
        self.pass_on(plan.progress(duration_s), &values);
    }

    /// Runs `measure` while another thread passes snapshots of a part to the observer. `measure`
    /// receives a slot for the progress of each of its threads; none if no snapshots are wanted.
    pub fn sample_during<T>(
        &mut self,
        plan: &PartPlan,
        threads: usize,
        measure: impl FnOnce(Option<&ProgressSlots>) -> T,
    ) -> T {
        if !self.observer.wants_snapshots() {
            return measure(None);
        }
        let slots = ProgressSlots::new(threads);
        let (alive, ended) = mpsc::channel::<()>();
        self.begin(plan.index);
        thread::scope(|scope| {
            let slots = &slots;
            scope.spawn(move || {
                let (begun, mut progress) = (Instant::now(), Progress::default());
                while ended.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                    slots.sum(&mut progress);
                    let elapsed = Span::from_ns(begun.elapsed().as_nanos() as i64);
                    self.sample(plan, elapsed, &progress);
                }
            });
            // Dropped at the end, even by a panic, which ends the thread.
            let _alive = alive;
            measure(Some(slots))
        })
    }

    fn pass_on(&mut self, part: PartProgress, values: &RequestValues) {
        let at_s = self.run_start.elapsed().as_secs_f64();
        self.observer.snapshot(Snapshot { at_s, part, values: *values });
    }
}

/// Returns the rates of counts that were gained in this many seconds, without other values.
fn rates(plan: &PartPlan, gained: &LiveCounts, over_s: f64) -> RequestValues {
    let per_second = |count: u64| count as f64 / over_s.max(1e-9);
    RequestValues {
        intended_rate: plan.intended_rate,
        sent_rate: per_second(gained.sent),
        received_rate: per_second(gained.received),
        byte_rate: plan.is_transfer.then(|| per_second(gained.bytes)),
        unanswered_ratio: gained.unanswered() as f64 / gained.sent.max(1) as f64,
        ..RequestValues::default()
    }
}

/// Timer of snapshots, for runs that poll more often than these are due.
#[derive(Debug)]
pub struct SnapshotTimer {
    run_start: Instant,
    next: Instant,
}

impl SnapshotTimer {
    /// Starts the timer with the run; the first snapshot is due at once.
    #[must_use]
    pub fn start() -> Self {
        let now = Instant::now();
        Self { run_start: now, next: now }
    }

    /// Passes a snapshot to the observer, if it wants one and one is due or the part has ended.
    pub fn publish<P, E, V>(
        &mut self,
        observer: &mut dyn RunObserver<P, E, V>,
        has_ended: bool,
        observe: impl FnOnce() -> (PartProgress, V),
    ) {
        let now = Instant::now();
        if (now >= self.next || has_ended) && observer.wants_snapshots() {
            self.next = now + INTERVAL;
            let at_s = (now - self.run_start).as_secs_f64();
            let (part, values) = observe();
            observer.snapshot(Snapshot { at_s, part, values });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock_slot;

    /// Observer that stores all it receives.
    #[derive(Default)]
    struct Recorded {
        wants: bool,
        snapshots: Vec<Snapshot>,
        ended: Vec<usize>,
    }

    impl RunObserver for Recorded {
        fn wants_snapshots(&self) -> bool {
            self.wants
        }

        fn snapshot(&mut self, snapshot: Snapshot) {
            self.snapshots.push(snapshot);
        }

        fn part_ended(&mut self, index: usize, _: &LivePartSummary) {
            self.ended.push(index);
        }
    }

    fn recorded(run: impl FnOnce(&mut LiveSampler<'_>)) -> Vec<Snapshot> {
        let mut observer = Recorded { wants: true, ..Recorded::default() };
        run(&mut LiveSampler::new(&mut observer));
        observer.snapshots
    }

    fn counts(sent: u64, received: u64) -> LiveCounts {
        LiveCounts { sent, received, ..LiveCounts::default() }
    }

    fn so_far(sent: u64, received: u64) -> Progress {
        Progress { counts: counts(sent, received), ..Progress::default() }
    }

    fn under(index: usize) -> PartPlan {
        let (intended_rate, begun_s, duration_s) = (Some(100.0), index as f64, Some(1.0));
        PartPlan { index, intended_rate, begun_s, duration_s, ..PartPlan::default() }
    }

    fn ended(part_counts: LiveCounts) -> RequestValues {
        RequestValues { part_counts, ..RequestValues::default() }
    }

    #[test]
    fn rates_cover_the_time_since_the_last_snapshot_and_counts_all_trials() {
        let snapshots = recorded(|sampler| {
            sampler.begin(0);
            sampler.sample(&under(0), Span::from_ms(500), &so_far(50, 40));
            sampler.finish(&under(0), 1.0, &counts(100, 90), ended(counts(100, 90)));
            sampler.begin(1);
            sampler.sample(&under(1), Span::from_ms(500), &so_far(10, 10));
        });
        let [first, last, next] = [0, 1, 2].map(|index| &snapshots[index].values);
        assert_eq!((first.sent_rate as u64, first.received_rate as u64), (100, 80));
        assert_eq!((first.counts.sent, first.part_counts.sent), (50, 50));
        assert_eq!((last.sent_rate as u64, last.received_rate as u64), (100, 90));
        assert!((last.unanswered_ratio - 0.1).abs() < 1e-9, "{last:?}");
        assert_eq!((next.counts.sent, next.part_counts.sent), (110, 10));
        assert_eq!((next.sent_rate as u64, next.unanswered_ratio), (20, 0.0));
    }

    #[test]
    fn phases_of_a_profile_are_distinguished() {
        let snapshots = recorded(|sampler| {
            sampler.begin(0);
            sampler.sample(&under(0), Span::from_ms(900), &so_far(90, 90));
            sampler.sample(&under(1), Span::from_ms(1_400), &so_far(140, 140));
        });
        let second = &snapshots[1];
        assert_eq!((second.values.counts.sent, second.values.part_counts.sent), (140, 50));
        assert!((second.part.elapsed_s - 0.4).abs() < 1e-9);
    }

    #[test]
    fn rows_add_up_and_only_transfers_have_a_rate_of_bytes() {
        let snapshots = recorded(|sampler| {
            for (index, is_transfer) in [false, true].into_iter().enumerate() {
                let plan =
                    PartPlan { index, name: "a".to_owned(), is_transfer, ..PartPlan::default() };
                let counts = LiveCounts { bytes: 10, ..counts(4, 3) };
                sampler.finish(&plan, 2.0, &counts, ended(counts));
            }
        });
        let [first, second] = [0, 1].map(|index| &snapshots[index].values);
        assert_eq!((first.counts.sent, second.counts.sent), (4, 8));
        assert_eq!((second.part_counts.sent, snapshots[1].part.index), (4, 1));
        assert_eq!(snapshots[1].part.name, "a");
        assert_eq!((first.byte_rate, second.byte_rate), (None, Some(5.0)));
        assert!((first.unanswered_ratio - 0.25).abs() < 1e-9 && first.sent_rate > 1.9);
    }

    #[test]
    fn client_progress_is_sampled_meanwhile_and_at_the_end() {
        let plan = PartPlan { duration_s: Some(2.0), ..PartPlan::default() };
        let snapshots = recorded(|sampler| {
            sampler.sample_during(&plan, 1, |slots| {
                let mut progress = lock_slot(slots.unwrap().slot(0).unwrap());
                progress.counts = counts(3, 2);
                (0..2).for_each(|_| progress.latency.record(5_000_000));
                drop(progress);
                thread::sleep(Duration::from_millis(1_200));
            });
            sampler.finish(&plan, 2.0, &counts(4, 3), ended(counts(4, 3)));
        });
        let first = &snapshots[0].values;
        assert_eq!((first.counts.sent, first.counts.received), (3, 2));
        assert!(first.latency_ns.is_some_and(|times| times.p50 / 1_000 == 5_000), "{first:?}");
        let last = &snapshots.last().unwrap().values;
        assert_eq!((last.counts.sent, last.sent_rate, last.intended_rate), (4, 2.0, None));
    }

    #[test]
    fn progress_is_not_published_without_an_observer() {
        let mut observer = Recorded::default();
        let mut sampler = LiveSampler::new(&mut observer);
        sampler.sample_during(&under(0), 1, |slots| assert!(slots.is_none()));
        sampler.finish(&under(0), 1.0, &counts(4, 3), ended(counts(4, 3)));
        sampler.observer.part_ended(0, &LivePartSummary::default());
        assert_eq!((observer.snapshots.len(), observer.ended), (0, vec![0]));
    }

    #[test]
    fn a_timer_publishes_at_intervals_and_at_the_end_of_a_part() {
        let mut observer = Recorded { wants: true, ..Recorded::default() };
        let mut timer = SnapshotTimer::start();
        for has_ended in [false, false, true, false] {
            timer.publish(&mut observer, has_ended, Default::default);
        }
        assert_eq!(observer.snapshots.len(), 2);
        observer.wants = false;
        timer.publish(&mut observer, true, || unreachable!("unwanted"));
    }
}
