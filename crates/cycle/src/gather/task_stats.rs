//! Stats of one task on one node: the sums of its entries. Pure.

use horolog_record::{CycleBucket, CycleOverhead, CycleServed, CycleState, Distribution};
use horolog_stats::Recorder;

use crate::entry::{EntryKind, PeriodEnd, PeriodEntry};
use crate::task::{Task, TaskWork};

/// Buckets in the time series of a run, at most.
const STRETCHES: u64 = 400;

/// Stats so far.
#[derive(Debug)]
pub(crate) struct TaskStats {
    period_ns: u64,
    deadline_ns: u64,
    offset_ns: u64,
    stretch: u64,
    messages: u64,
    undisturbed_ns: Option<f64>,
    is_polling: bool,
    pub(crate) periods: u64,
    pub(crate) missed: u64,
    pub(crate) overrun: u64,
    pub(crate) failed: u64,
    pub(crate) unreleased: u64,
    pub(crate) messages_missing: u64,
    pub(crate) barriers_broken: u64,
    pub(crate) lateness: Recorder,
    pub(crate) execution: Recorder,
    pub(crate) response: Recorder,
    pub(crate) computation: Recorder,
    pub(crate) communication: Recorder,
    pub(crate) idle: Recorder,
    pub(crate) barrier: Recorder,
    served: Recorder,
    left: u32,
    left_max: u32,
    states: Vec<ProgramStateStats>,
    stretches: Vec<TimeBucket>,
    last: Option<PeriodEntry>,
}

/// Periods in which a program was in one state.
#[derive(Debug)]
struct ProgramStateStats {
    name: String,
    periods: u64,
    missed: u64,
    execution: Recorder,
    response: Recorder,
}

#[derive(Clone, Copy, Default, Debug)]
struct TimeBucket {
    periods: u64,
    spent_ns: u128,
    spent_max_ns: u64,
    lateness_max_ns: u64,
    missed: u64,
}

impl TaskStats {
    /// Makes the stats of a task with this number of periods, each of which has this undisturbed
    /// computation, if that is known.
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
            stretch: cycles.div_ceil(STRETCHES).max(1),
            messages: messages as u64,
            undisturbed_ns,
            is_polling: matches!(task.work, TaskWork::Polling(_)),
            periods: 0,
            missed: 0,
            overrun: 0,
            failed: 0,
            unreleased: 0,
            messages_missing: 0,
            barriers_broken: 0,
            lateness: Recorder::new(),
            execution: Recorder::new(),
            response: Recorder::new(),
            computation: Recorder::new(),
            communication: Recorder::new(),
            idle: Recorder::new(),
            barrier: Recorder::new(),
            served: Recorder::new(),
            left: 0,
            left_max: 0,
            states,
            stretches: Vec::new(),
            last: None,
        }
    }

    /// Adds an entry.
    pub(crate) fn add(&mut self, entry: &PeriodEntry) {
        match entry.part {
            EntryKind::Period => self.period(entry),
            EntryKind::NotReleased => self.unreleased += u64::from(entry.backlog),
            EntryKind::Event => self.served.record(entry.response_ns()),
            // Its period includes it in its sums.
            EntryKind::Step(_) => {}
        }
    }

    fn period(&mut self, entry: &PeriodEntry) {
        let is_missed = entry.is_missed(self.deadline_ns);
        self.periods += 1;
        self.missed += u64::from(is_missed);
        self.overrun += u64::from(entry.is_overrun);
        self.failed += u64::from(entry.end != PeriodEnd::Well);
        self.messages_missing += u64::from(entry.missing);
        self.barriers_broken += u64::from(entry.is_broken);
        // The times are not those of the work.
        if entry.end == PeriodEnd::Abandoned {
            return;
        }
        self.lateness.record(entry.start_latency_ns);
        self.execution.record(entry.execution_ns);
        self.response.record(entry.response_ns());
        self.computation.record(entry.compute_ns);
        self.communication.record(entry.communicate_ns);
        self.idle.record(entry.idle_ns);
        self.barrier.record(entry.barrier_ns);
        self.left = entry.backlog;
        self.left_max = self.left_max.max(entry.backlog);
        let state = entry.state.and_then(|at| self.states.get_mut(usize::from(at)));
        if let Some(state) = state {
            state.add(entry, is_missed);
        }
        let at = usize::try_from(entry.cycle / self.stretch).unwrap_or(usize::MAX);
        // A task of this crate has no more periods than were planned.
        if at <= STRETCHES as usize {
            if self.stretches.len() <= at {
                self.stretches.resize(at + 1, TimeBucket::default());
            }
            self.stretches[at].add(entry, is_missed);
        }
        self.last = Some(*entry);
    }

    /// Returns the ratio of execution to period of the last counted period, and whether it was
    /// missed.
    pub(crate) fn last(&self) -> Option<(f64, bool)> {
        let ratio = |entry: PeriodEntry| {
            (entry.execution_ns as f64 / self.period_ns as f64, entry.is_missed(self.deadline_ns))
        };
        self.last.map(ratio)
    }

    /// Returns the cost of a period beyond computation, given the latency of the shortest message.
    pub(crate) fn overhead(&self, latency_ns: Option<u64>) -> CycleOverhead {
        if self.periods == 0 {
            return CycleOverhead::default();
        }
        let mean = |sum: u128| sum as f64 / self.periods as f64;
        let messages_ns = mean(self.communication.sum());
        let shortest_ns = latency_ns.unwrap_or(0).saturating_mul(self.messages) as f64;
        let latency_ns = messages_ns.min(shortest_ns);
        // Interrupts, other threads on the core, and any other disturbance of computing.
        let beyond = |undisturbed_ns: f64| (mean(self.computation.sum()) - undisturbed_ns).max(0.0);
        let disturbed_ns = self.undisturbed_ns.map_or(0.0, beyond);
        CycleOverhead {
            communication_latency_ns: latency_ns + mean(self.barrier.sum()),
            communication_volume_ns: messages_ns - latency_ns,
            idle_ns: mean(self.idle.sum()),
            system_ns: mean(self.lateness.sum()) + disturbed_ns,
        }
    }

    /// Returns the served events of a task that serves them.
    pub(crate) fn served(&self) -> Option<CycleServed> {
        self.is_polling.then(|| CycleServed {
            events: self.served.count(),
            backlog: self.left.into(),
            backlog_max: self.left_max.into(),
            response_ns: Distribution::of_recorder(&self.served),
        })
    }

    /// Returns the periods of each marked state.
    pub(crate) fn states(&self) -> Vec<CycleState> {
        let record = |state: &ProgramStateStats| CycleState {
            name: state.name.clone(),
            periods: state.periods,
            missed: state.missed,
            execution_ns: Distribution::of_recorder(&state.execution),
            response_ns: Distribution::of_recorder(&state.response),
        };
        self.states.iter().filter(|state| state.periods > 0).map(record).collect()
    }

    /// Returns the time series of the run.
    pub(crate) fn series(&self) -> Vec<CycleBucket> {
        let period_ns = self.period_ns as f64;
        let bucket = |(at, stretch): (u64, &TimeBucket)| CycleBucket {
            at_s: (self.offset_ns as f64 + (at * self.stretch) as f64 * period_ns) / 1e9,
            ratio_mean: stretch.spent_ns as f64 / stretch.periods as f64 / period_ns,
            ratio_max: stretch.spent_max_ns as f64 / period_ns,
            start_latency_max_ns: stretch.lateness_max_ns,
            missed: stretch.missed,
        };
        (0..).zip(&self.stretches).filter(|(_, stretch)| stretch.periods > 0).map(bucket).collect()
    }
}

impl ProgramStateStats {
    fn new(name: &str) -> Self {
        let (execution, response) = (Recorder::new(), Recorder::new());
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
        self.spent_ns += u128::from(entry.execution_ns);
        self.spent_max_ns = self.spent_max_ns.max(entry.execution_ns);
        self.lateness_max_ns = self.lateness_max_ns.max(entry.start_latency_ns);
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
            ..PeriodEntry::new(EntryKind::Period, cycle)
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
        assert_eq!(stats.last(), Some((0.500_001, true)));
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
        stats.add(&PeriodEntry { cycle: 1, ..entry });
        let overhead = CycleOverhead {
            communication_latency_ns: 120.0 + 20.0,
            communication_volume_ns: 180.0,
            idle_ns: 50.0,
            system_ns: 107.0,
        };
        assert_eq!(stats.overhead(Some(120)), overhead);
        let all = CycleOverhead {
            communication_latency_ns: 320.0,
            communication_volume_ns: 0.0,
            ..overhead
        };
        assert_eq!(stats.overhead(Some(900)), all, "no more than there was");
        assert_eq!(
            TaskStats::new(&task("units = 1"), 1, None).overhead(None),
            CycleOverhead::default()
        );
    }

    #[test]
    fn events_are_counted_apart_from_periods() {
        let mut stats =
            TaskStats::new(&task("[task.polling]\nrate = 1\nunits = 1\nbudget = 1"), 10, None);
        stats.add(&PeriodEntry {
            start_latency_ns: 30,
            execution_ns: 5,
            ..PeriodEntry::new(EntryKind::Event, 0)
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
