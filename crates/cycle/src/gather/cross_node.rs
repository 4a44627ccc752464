//! Stats of a task that several nodes share: the values of each period over all nodes, by equation
//! (2) of Hao, Xue and Qin, "Performance and test method for real-time parallel system" (2010).
//! Pure.

use std::collections::BTreeMap;

use horolog_record::{CycleSharedTaskResult, CycleSuperstepTimes};

use crate::entry::{PeriodEntry, PeriodEntryKind};

/// Largest number of periods for which entries of some nodes are missing. Beyond it the oldest ones
/// are discarded.
const WAITING_MAX: usize = 16_384;

/// Stats of the complete periods so far.
#[derive(Debug)]
pub(crate) struct CrossNodeStats {
    task: String,
    nodes: usize,
    steps: usize,
    incomplete: BTreeMap<u64, PeriodAcrossNodes>,
    periods: u64,
    computed_ns: Vec<u128>,
    straggler_periods: Vec<u64>,
    waited_ns: u128,
    span_ns: u128,
    sums: Vec<SuperstepMaxima>,
}

/// One period of all nodes; times are in ns from its release.
#[derive(Clone, Debug)]
struct PeriodAcrossNodes {
    start_ns: u64,
    end_ns: u64,
    computed_ns: Vec<Option<u64>>,
    idle_ns: Vec<u64>,
    steps: Vec<SuperstepMaxima>,
}

/// Maxima over all nodes, or their sums over periods, in ns.
#[derive(Clone, Copy, Default, Debug)]
struct SuperstepMaxima {
    computation: u128,
    communication: u128,
    barrier: u128,
}

impl CrossNodeStats {
    /// Creates the stats of a task with this number of nodes and supersteps.
    pub(crate) fn new(task: &str, nodes: usize, steps: usize) -> Self {
        Self {
            task: task.to_owned(),
            nodes,
            steps,
            incomplete: BTreeMap::new(),
            periods: 0,
            computed_ns: vec![0; nodes],
            straggler_periods: vec![0; nodes],
            waited_ns: 0,
            span_ns: 0,
            sums: vec![SuperstepMaxima::default(); steps],
        }
    }

    /// Adds a node's entry of a period or superstep; other kinds of entries are ignored.
    pub(crate) fn add(&mut self, node: usize, entry: &PeriodEntry) {
        let step = match entry.kind {
            PeriodEntryKind::Step(step) => usize::from(step),
            PeriodEntryKind::Period => 0,
            PeriodEntryKind::Event | PeriodEntryKind::NotReleased => return,
        };
        if step >= self.steps || node >= self.nodes {
            return;
        }
        let (nodes, steps) = (self.nodes, self.steps);
        let period = self
            .incomplete
            .entry(entry.period)
            .or_insert_with(|| PeriodAcrossNodes::new(nodes, steps));
        if entry.kind != PeriodEntryKind::Period || steps == 1 {
            period.steps[step].update_maxima(entry);
        }
        if entry.kind == PeriodEntryKind::Period {
            period.add_entry(node, entry);
            if period.computed_ns.iter().all(Option::is_some)
                && let Some(complete) = self.incomplete.remove(&entry.period)
            {
                self.add_complete(&complete);
            }
        }
        while self.incomplete.len() > WAITING_MAX {
            self.incomplete.pop_first();
        }
    }

    fn add_complete(&mut self, complete: &PeriodAcrossNodes) {
        self.periods += 1;
        for (sum, computed) in self.computed_ns.iter_mut().zip(&complete.computed_ns) {
            *sum += u128::from(computed.unwrap_or(0));
        }
        if let Some((node, waited_ns)) = complete.straggler() {
            self.straggler_periods[node] += 1;
            self.waited_ns += u128::from(waited_ns);
        }
        self.span_ns += u128::from(complete.end_ns.saturating_sub(complete.start_ns));
        for (sum, largest) in self.sums.iter_mut().zip(&complete.steps) {
            sum.computation += largest.computation;
            sum.communication += largest.communication;
            sum.barrier += largest.barrier;
        }
    }

    /// Returns the record of the task; `None` if no period is complete.
    pub(crate) fn to_record(&self) -> Option<CycleSharedTaskResult> {
        if self.periods == 0 {
            return None;
        }
        let mean = |sum: u128| sum as f64 / self.periods as f64;
        let all: u128 = self.computed_ns.iter().sum();
        let most = self.computed_ns.iter().max().copied().unwrap_or(0);
        let steps: Vec<_> = self
            .sums
            .iter()
            .map(|sum| CycleSuperstepTimes {
                computation_max_ns: mean(sum.computation),
                communication_max_ns: mean(sum.communication),
                barrier_ns: mean(sum.barrier),
            })
            .collect();
        let of = |step: &CycleSuperstepTimes| {
            step.computation_max_ns + step.communication_max_ns + step.barrier_ns
        };
        Some(CycleSharedTaskResult {
            task: self.task.clone(),
            periods: self.periods,
            imbalance: if all > 0 {
                most as f64 * self.nodes as f64 / all as f64 - 1.0
            } else {
                0.0
            },
            straggler_periods: self.straggler_periods.clone(),
            waited_ns: mean(self.waited_ns),
            span_ns: mean(self.span_ns),
            predicted_ns: steps.iter().map(of).sum(),
            steps,
        })
    }
}

impl PeriodAcrossNodes {
    fn new(nodes: usize, steps: usize) -> Self {
        Self {
            start_ns: u64::MAX,
            end_ns: 0,
            computed_ns: vec![None; nodes],
            idle_ns: vec![0; nodes],
            steps: vec![SuperstepMaxima::default(); steps],
        }
    }

    fn add_entry(&mut self, node: usize, entry: &PeriodEntry) {
        self.start_ns = self.start_ns.min(entry.start_latency_ns);
        self.end_ns = self.end_ns.max(entry.response_ns());
        self.computed_ns[node] = Some(entry.compute_ns);
        self.idle_ns[node] = entry.idle_ns;
    }

    /// Returns the straggler, the node that waited least itself, and the difference between the
    /// longest wait of a node and its own, in ns. `None` if no node waited longer than it.
    fn straggler(&self) -> Option<(usize, u64)> {
        let (node, least_ns) = self.idle_ns.iter().enumerate().min_by_key(|(_, idle)| **idle)?;
        let longest_ns = self.idle_ns.iter().max()?;
        Some((node, longest_ns - least_ns)).filter(|(_, waited_ns)| *waited_ns > 0)
    }
}

impl SuperstepMaxima {
    fn update_maxima(&mut self, entry: &PeriodEntry) {
        self.computation = self.computation.max(entry.compute_ns.into());
        self.communication = self.communication.max(entry.communicate_ns.into());
        self.barrier = self.barrier.max(entry.barrier_ns.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn period(cycle: u64, late_ns: u64, compute_ns: u64, idle_ns: u64) -> PeriodEntry {
        let spent_ns = compute_ns + idle_ns + 100;
        PeriodEntry {
            start_latency_ns: late_ns,
            execution_ns: spent_ns,
            compute_ns,
            idle_ns,
            ..PeriodEntry::new(PeriodEntryKind::Period, cycle)
        }
    }

    #[test]
    fn the_largest_of_all_nodes_counts_and_who_is_waited_for_is_known() {
        let mut joint = CrossNodeStats::new("a", 2, 1);
        joint.add(0, &period(0, 5, 1_000, 2_010));
        assert_eq!(joint.to_record(), None, "one node is not all");
        joint.add(0, &period(1, 5, 1_000, 2_010));
        joint.add(1, &period(0, 10, 3_000, 10));
        joint.add(1, &period(1, 10, 3_000, 10));
        let result = joint.to_record().unwrap();
        assert_eq!((result.periods, result.imbalance), (2, 0.5));
        assert_eq!((result.straggler_periods.as_slice(), result.waited_ns), (&[0, 2][..], 2_000.0));
        let sums = (result.steps[0].computation_max_ns, result.predicted_ns, result.span_ns);
        assert_eq!(sums, (3_000.0, 3_000.0, 3_115.0));
    }

    #[test]
    fn without_waiting_there_is_no_straggler() {
        let mut joint = CrossNodeStats::new("a", 2, 1);
        joint.add(0, &period(0, 0, 1_000, 0));
        joint.add(1, &period(0, 0, 3_000, 0));
        assert_eq!(joint.to_record().unwrap().straggler_periods, [0, 0]);
    }

    #[test]
    fn steps_have_their_own_largest() {
        let mut joint = CrossNodeStats::new("a", 2, 2);
        for (node, computes) in [(0, [100, 900]), (1, [500, 200])] {
            for (step, compute_ns) in (0..).zip(computes) {
                joint.add(
                    node,
                    &PeriodEntry { compute_ns, ..PeriodEntry::new(PeriodEntryKind::Step(step), 3) },
                );
            }
            joint.add(node, &period(3, 0, computes.iter().sum(), 0));
        }
        let result = joint.to_record().unwrap();
        let largest: Vec<_> = result.steps.iter().map(|step| step.computation_max_ns).collect();
        assert_eq!((largest, result.predicted_ns), (vec![500.0, 900.0], 1_400.0));
    }

    #[test]
    fn a_node_that_sends_nothing_does_not_fill_the_memory() {
        let mut joint = CrossNodeStats::new("a", 2, 1);
        for cycle in 0..WAITING_MAX as u64 + 10 {
            joint.add(0, &period(cycle, 0, 1, 0));
        }
        assert_eq!(joint.incomplete.len(), WAITING_MAX);
        joint.add(9, &period(0, 0, 1, 0));
        joint.add(0, &PeriodEntry::new(PeriodEntryKind::Step(7), 0));
    }
}
