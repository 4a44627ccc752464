//! Stats of one task on one node: sums and distributions of its entries. Pure.

use horolog_record::{
    CycleSeriesPoint, Distribution, ParallelOverhead, PollingServerResult, ProgramStateResult,
};
use horolog_stats::Histogram;

use crate::entry::{PeriodEntry, PeriodEntryKind, PeriodOutcome};
use crate::task::{Task, TaskWork};

/// Number of buckets into which the time series of a run is divided, at most.
const BUCKETS_MAX: u64 = 400;

/// Stats of a task's entries so far.
#[derive(Debug)]
pub(crate) struct TaskStats {
    period_ns: u64,
    deadline_ns: u64,
    offset_ns: u64,
    periods_per_bucket: u64,
    messages_per_period: u64,
    undisturbed_ns: Option<f64>,
    is_polling: bool,
    pub(crate) periods: u64,
    pub(crate) missed: u64,
    pub(crate) overrun: u64,
    pub(crate) failed: u64,
    pub(crate) unreleased: u64,
    pub(crate) messages_missing: u64,
    pub(crate) barriers_broken: u64,
    pub(crate) start_latency: Histogram,
    pub(crate) execution: Histogram,
    pub(crate) response: Histogram,
    pub(crate) computation: Histogram,
    pub(crate) communication: Histogram,
    pub(crate) idle: Histogram,
    pub(crate) barrier: Histogram,
    served: Histogram,
    backlog: u32,
    backlog_max: u32,
    states: Vec<ProgramStateStats>,
    buckets: Vec<TimeBucket>,
    last_entry: Option<PeriodEntry>,
}

/// Stats of the periods in which a program was in one state.
#[derive(Debug)]
struct ProgramStateStats {
    name: String,
    periods: u64,
    missed: u64,
    execution: Histogram,
    response: Histogram,
}

#[derive(Clone, Copy, Default, Debug)]
struct TimeBucket {
    periods: u64,
    execution_sum_ns: u128,
    execution_max_ns: u64,
    start_latency_max_ns: u64,
    missed: u64,
}

impl TaskStats {
    /// Creates the stats of a task with this number of periods. `undisturbed_ns` is the computation
    /// of a period without any disturbance, if it is known.
    pub(crate) fn new(task: &Task, cycles: u64, undisturbed_ns: Option<f64>) -> Self {
        let messages = match &task.work {
            TaskWork::Steps(steps) => steps.iter().filter(|step| step.message.is_some()).count(),
            _ => 0,
        };
        let states = match &task.work {
            TaskWork::Program(program) => {
                program.states.iter().map(|name| ProgramStateStats::new(name)).collect()
            }
            _ => Vec::new(),
        };
        Self {
            period_ns: task.period_ns,
            deadline_ns: task.deadline_ns,
            offset_ns: task.offset_ns,
            periods_per_bucket: cycles.div_ceil(BUCKETS_MAX).max(1),
            messages_per_period: messages as u64,
            undisturbed_ns,
            is_polling: matches!(task.work, TaskWork::Polling(_)),
            periods: 0,
            missed: 0,
            overrun: 0,
            failed: 0,
            unreleased: 0,
            messages_missing: 0,
            barriers_broken: 0,
            start_latency: Histogram::new(),
            execution: Histogram::new(),
            response: Histogram::new(),
            computation: Histogram::new(),
            communication: Histogram::new(),
            idle: Histogram::new(),
            barrier: Histogram::new(),
            served: Histogram::new(),
            backlog: 0,
            backlog_max: 0,
            states,
            buckets: Vec::new(),
            last_entry: None,
        }
    }

    /// Adds an entry; those of supersteps are ignored, because the entry of the period includes
    /// them.
    pub(crate) fn add(&mut self, entry: &PeriodEntry) {
        match entry.kind {
            PeriodEntryKind::Period => self.add_period(entry),
            PeriodEntryKind::NotReleased => self.unreleased += u64::from(entry.backlog),
            PeriodEntryKind::Event => self.served.record(entry.response_ns()),
            // The entry of the period includes the times of its steps.
            PeriodEntryKind::Step(_) => {}
        }
    }

    fn add_period(&mut self, entry: &PeriodEntry) {
        let is_missed = entry.is_missed(self.deadline_ns);
        self.periods += 1;
        self.missed += u64::from(is_missed);
        self.overrun += u64::from(entry.is_overrun);
        self.failed += u64::from(entry.end != PeriodOutcome::Success);
        self.messages_missing += u64::from(entry.missing);
        self.barriers_broken += u64::from(entry.is_broken);
        // The times of an abandoned period are not those of completed work.
        if entry.end == PeriodOutcome::Abandoned {
            return;
        }
        self.start_latency.record(entry.start_latency_ns);
        self.execution.record(entry.execution_ns);
        self.response.record(entry.response_ns());
        self.computation.record(entry.compute_ns);
        self.communication.record(entry.communicate_ns);
        self.idle.record(entry.idle_ns);
        self.barrier.record(entry.barrier_ns);
        self.backlog = entry.backlog;
        self.backlog_max = self.backlog_max.max(entry.backlog);
        let state = entry.state.and_then(|at| self.states.get_mut(usize::from(at)));
        if let Some(state) = state {
            state.add(entry, is_missed);
        }
        let at = usize::try_from(entry.period / self.periods_per_bucket).unwrap_or(usize::MAX);
        // A task of this crate has no more periods than were planned.
        if at <= BUCKETS_MAX as usize {
            if self.buckets.len() <= at {
                self.buckets.resize(at + 1, TimeBucket::default());
            }
            self.buckets[at].add(entry, is_missed);
        }
        self.last_entry = Some(*entry);
    }

    /// Returns the ratio of execution time to period of the last period that was not abandoned, and
    /// true if it missed its deadline. `None` before the first.
    pub(crate) fn last_ratio(&self) -> Option<(f64, bool)> {
        let ratio = |entry: PeriodEntry| {
            (entry.execution_ns as f64 / self.period_ns as f64, entry.is_missed(self.deadline_ns))
        };
        self.last_entry.map(ratio)
    }

    /// Returns the mean overhead of a period beyond computation; all 0 before the first period.
    /// `latency_ns` is the latency of a minimum-size message.
    pub(crate) fn overhead(&self, latency_ns: Option<u64>) -> ParallelOverhead {
        if self.periods == 0 {
            return ParallelOverhead::default();
        }
        let mean = |sum: u128| sum as f64 / self.periods as f64;
        let messages_ns = mean(self.communication.sum());
        let shortest_ns = latency_ns.unwrap_or(0).saturating_mul(self.messages_per_period) as f64;
        let latency_ns = messages_ns.min(shortest_ns);
        // Interrupts, other threads on the core, and other disturbances of the computation.
        let disturbance_ns =
            |undisturbed_ns: f64| (mean(self.computation.sum()) - undisturbed_ns).max(0.0);
        let disturbed_ns = self.undisturbed_ns.map_or(0.0, disturbance_ns);
        ParallelOverhead {
            communication_latency_ns: latency_ns + mean(self.barrier.sum()),
            communication_volume_ns: messages_ns - latency_ns,
            idle_ns: mean(self.idle.sum()),
            system_ns: mean(self.start_latency.sum()) + disturbed_ns,
        }
    }

    /// Returns the record of the served events; `None` if the task is not a polling server.
    pub(crate) fn served(&self) -> Option<PollingServerResult> {
        self.is_polling.then(|| PollingServerResult {
            events: self.served.count(),
            backlog: self.backlog.into(),
            backlog_max: self.backlog_max.into(),
            response_ns: Distribution::from_histogram(&self.served),
        })
    }

    /// Returns the record of each state of a program that had periods.
    pub(crate) fn states(&self) -> Vec<ProgramStateResult> {
        let record = |state: &ProgramStateStats| ProgramStateResult {
            name: state.name.clone(),
            periods: state.periods,
            missed: state.missed,
            execution_ns: Distribution::from_histogram(&state.execution),
            response_ns: Distribution::from_histogram(&state.response),
        };
        self.states.iter().filter(|state| state.periods > 0).map(record).collect()
    }

    /// Returns the time series of the run, without empty buckets.
    pub(crate) fn series(&self) -> Vec<CycleSeriesPoint> {
        let period_ns = self.period_ns as f64;
        let bucket = |(at, time_bucket): (u64, &TimeBucket)| CycleSeriesPoint {
            at_s: (self.offset_ns as f64 + (at * self.periods_per_bucket) as f64 * period_ns) / 1e9,
            ratio_mean: time_bucket.execution_sum_ns as f64
                / time_bucket.periods as f64
                / period_ns,
            ratio_max: time_bucket.execution_max_ns as f64 / period_ns,
            start_latency_max_ns: time_bucket.start_latency_max_ns,
            missed: time_bucket.missed,
        };
        (0..)
            .zip(&self.buckets)
            .filter(|(_, time_bucket)| time_bucket.periods > 0)
            .map(bucket)
            .collect()
    }
}

impl ProgramStateStats {
    fn new(name: &str) -> Self {
        let (execution, response) = (Histogram::new(), Histogram::new());
        Self { name: name.to_owned(), periods: 0, missed: 0, execution, response }
    }

    fn add(&mut self, entry: &PeriodEntry, is_missed: bool) {
        self.periods += 1;
        self.missed += u64::from(is_missed);
        self.execution.record(entry.execution_ns);
        self.response.record(entry.response_ns());
    }
}

impl TimeBucket {
    fn add(&mut self, entry: &PeriodEntry, is_missed: bool) {
        self.periods += 1;
        self.execution_sum_ns += u128::from(entry.execution_ns);
        self.execution_max_ns = self.execution_max_ns.max(entry.execution_ns);
        self.start_latency_max_ns = self.start_latency_max_ns.max(entry.start_latency_ns);
        self.missed += u64::from(is_missed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::TaskSet;

    fn task(lines: &str) -> Task {
        let text = format!(
            "[[task]]\nname = \"a\"\nperiod = \"1ms\"\ndeadline = \"500us\"\noffset = \"10us\"\n\
             {lines}"
        );
        TaskSet::parse(&text).unwrap().tasks()[0].clone()
    }

    fn period(cycle: u64, late_ns: u64, spent_ns: u64) -> PeriodEntry {
        PeriodEntry {
            start_latency_ns: late_ns,
            execution_ns: spent_ns,
            ..PeriodEntry::new(PeriodEntryKind::Period, cycle)
        }
    }

    #[test]
    fn lateness_and_execution_together_miss_a_deadline() {
        let mut stats = TaskStats::new(&task("units = 1"), 800, None);
        stats.add(&period(0, 100_000, 400_000));
        assert_eq!((stats.periods, stats.missed), (1, 0));
        stats.add(&period(1, 100_001, 400_000));
        stats.add(&period(2, 0, 500_001));
        assert_eq!((stats.periods, stats.missed), (3, 2));
        assert_eq!(stats.last_ratio(), Some((0.500_001, true)));
        let series = stats.series();
        assert_eq!(series.len(), 2);
        assert_eq!((series[0].at_s, series[0].ratio_mean), (0.000_01, 0.4));
        assert_eq!((series[0].missed, series[0].start_latency_max_ns), (1, 100_001));
        assert_eq!((series[1].at_s, series[1].missed), (0.002_01, 1));
    }

    #[test]
    fn the_extra_cost_is_split_into_its_terms() {
        let mut stats = TaskStats::new(&task("message = 1000\nbarrier = true"), 10, Some(900.0));
        let entry = PeriodEntry {
            compute_ns: 1_000,
            communicate_ns: 300,
            idle_ns: 50,
            barrier_ns: 20,
            ..period(0, 7, 2_000)
        };
        stats.add(&entry);
        stats.add(&PeriodEntry { period: 1, ..entry });
        let overhead = ParallelOverhead {
            communication_latency_ns: 120.0 + 20.0,
            communication_volume_ns: 180.0,
            idle_ns: 50.0,
            system_ns: 107.0,
        };
        assert_eq!(stats.overhead(Some(120)), overhead);
        let all = ParallelOverhead {
            communication_latency_ns: 320.0,
            communication_volume_ns: 0.0,
            ..overhead
        };
        assert_eq!(stats.overhead(Some(900)), all, "no more than there was");
        assert_eq!(
            TaskStats::new(&task("units = 1"), 1, None).overhead(None),
            ParallelOverhead::default()
        );
    }

    #[test]
    fn events_are_counted_apart_from_periods() {
        let mut stats =
            TaskStats::new(&task("[task.polling]\nrate = 1\nunits = 1\nbudget = 1"), 10, None);
        stats.add(&PeriodEntry {
            start_latency_ns: 30,
            execution_ns: 5,
            ..PeriodEntry::new(PeriodEntryKind::Event, 0)
        });
        stats.add(&PeriodEntry { backlog: 3, ..period(0, 0, 5) });
        stats.add(&PeriodEntry { backlog: 1, ..period(1, 0, 0) });
        let served = stats.served().unwrap();
        assert_eq!((served.events, served.backlog, served.backlog_max), (1, 1, 3));
        assert_eq!(served.response_ns.unwrap().max, 35);
        assert_eq!(stats.periods, 2);
        assert_eq!(TaskStats::new(&task("units = 1"), 1, None).served(), None);
    }
}
