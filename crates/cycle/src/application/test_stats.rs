//! Stats of a test run: sums over its periods, detections and injections; for each fault its
//! detections, the first of them with node and time, and the time to recovery. Pure.

use std::collections::BTreeMap;

use horolog_record::{
    CycleTestDetectionKind as Kind, CycleTestFaultKind as FaultKind, CycleTestFaultResult,
    CycleTestFirstDetection, CycleTestStageTimes, CycleTestStateResult, DetectionCount,
    DetectionCountByNode, Distribution,
};
use horolog_stats::Histogram;

use super::node_event::{NodeFaultEvent, NodeFaultEventKind, can_explain};
use super::plan::{ApplicationTestPlan, FaultSpec};
use super::run::NodeSnapshot;
use crate::entry::{PeriodEntry, PeriodEntryKind};
use crate::run::node_name;

/// Largest number of detections stored for each fault, to find the first one after its injection.
const FIRST_MAX: usize = 4_096;

/// Stats of a node's periods in an application test.
#[derive(Default)]
pub(super) struct NodeStats {
    pub(super) periods: u64,
    pub(super) missed: u64,
    pub(super) overrun: u64,
    pub(super) response: Histogram,
    pub(super) computation: Histogram,
    pub(super) communication: Histogram,
    pub(super) idle: Histogram,
    /// Response time of the last period, in ns.
    last_response_ns: u64,
}

#[derive(Default)]
struct RunStateStats {
    periods: u64,
    missed: u64,
    response: Histogram,
    execution: Histogram,
}

#[derive(Clone, Copy, Default)]
struct PipelineStageStats {
    entries: u64,
    computation_ns: u128,
    communication_ns: u128,
    idle_ns: u128,
    barrier_ns: u128,
}

#[derive(Clone, Default)]
struct FaultStats {
    injected: u64,
    first_ns: Option<u64>,
    /// Actual end, in ns of the run, if it is known better than from the plan.
    ended_ns: Option<u64>,
    detections: BTreeMap<Kind, i64>,
    first_detections: Vec<(u64, u16, Kind)>,
}

/// Completion of a period by the nodes, and whether any node was disturbed in it.
#[derive(Clone, Copy, Default)]
struct PeriodCompletion {
    nodes_ended: u16,
    is_disturbed: bool,
}

/// Stats of a run of an application test.
pub(super) struct ApplicationTestStats<'a> {
    plan: &'a ApplicationTestPlan,
    begin_ns: i64,
    pub(super) nodes: Vec<NodeStats>,
    stages: Vec<PipelineStageStats>,
    states: Vec<(&'a str, RunStateStats)>,
    periods: Vec<PeriodCompletion>,
    detections: BTreeMap<(Kind, u16, Option<u16>), i64>,
    faults: Vec<FaultStats>,
    /// Time at which each node exited early, in ns of the run.
    pub(super) exited_ns: Vec<Option<u64>>,
    /// Number of missed deadlines that no fault can explain.
    pub(super) missed_unexplained: u64,
}

impl<'a> ApplicationTestStats<'a> {
    /// Creates the stats of a plan whose first release is at this instant of `CLOCK_MONOTONIC`.
    pub(super) fn new(plan: &'a ApplicationTestPlan, begin_ns: i64) -> Self {
        let nodes = usize::from(plan.nodes);
        let states = plan.state_names().into_iter().map(|name| (name, RunStateStats::default()));
        Self {
            plan,
            begin_ns,
            nodes: (0..nodes).map(|_| NodeStats::default()).collect(),
            stages: vec![PipelineStageStats::default(); plan.stages.len()],
            states: states.collect(),
            periods: vec![PeriodCompletion::default(); plan.period_count() as usize],
            detections: BTreeMap::new(),
            faults: vec![FaultStats::default(); plan.faults.len()],
            exited_ns: vec![None; nodes],
            missed_unexplained: 0,
        }
    }

    /// Adds a node's entry of a period or of a stage.
    pub(super) fn add_entry(&mut self, node: u16, entry: &PeriodEntry) {
        if entry.kind == PeriodEntryKind::Period {
            self.add_period(node, entry);
        }
        if let PeriodEntryKind::Step(stage) = entry.kind
            && let Some(stats) = self.stages.get_mut(usize::from(stage))
        {
            stats.add(entry);
        }
    }

    fn add_period(&mut self, node: u16, entry: &PeriodEntry) {
        let Some(test_period) =
            usize::try_from(entry.period).ok().and_then(|at| self.periods.get_mut(at))
        else {
            return;
        };
        test_period.nodes_ended += 1;
        let due_ns = entry.period.saturating_mul(self.plan.period_ns);
        let response_ns = entry.response_ns();
        let is_missed = response_ns > self.plan.deadline_ns;
        let node_stats = &mut self.nodes[usize::from(node)];
        node_stats.periods += 1;
        node_stats.missed += u64::from(is_missed);
        node_stats.overrun += u64::from(entry.is_overrun);
        node_stats.last_response_ns = response_ns;
        node_stats.response.record(response_ns);
        node_stats.computation.record(entry.compute_ns);
        node_stats.communication.record(entry.communicate_ns);
        node_stats.idle.record(entry.idle_ns);
        let state = self.plan.state_at(due_ns);
        if let Some((_, state_stats)) = self.states.iter_mut().find(|(name, _)| *name == state) {
            state_stats.periods += 1;
            state_stats.missed += u64::from(is_missed);
            state_stats.response.record(response_ns);
            state_stats.execution.record(entry.execution_ns);
        }
        let at_ns = due_ns.saturating_add(response_ns);
        if is_missed {
            self.add_detections(node, (Kind::DeadlineMissed, None), (entry.period, at_ns), (1, 0));
            let is_near =
                |fault: &FaultSpec| self.is_near(fault, at_ns) || self.is_near(fault, due_ns);
            self.missed_unexplained += u64::from(!self.plan.faults.iter().any(is_near));
        }
        if entry.is_broken {
            self.add_detections(node, (Kind::BarrierBroken, None), (entry.period, at_ns), (1, 0));
        }
    }

    /// Adds an event of a node, a detection or an injection.
    pub(super) fn add_event(&mut self, node: u16, event: &NodeFaultEvent) {
        let at_ns = event.at_ns.saturating_sub(self.begin_ns).max(0).unsigned_abs();
        let counts = (event.count, event.retracted);
        match event.kind {
            NodeFaultEventKind::Detected(kind, of) => {
                self.add_detections(node, (kind, of), (event.period, at_ns), counts);
            }
            NodeFaultEventKind::Injected(fault) => {
                let due_ns = event.period.saturating_mul(self.plan.period_ns);
                self.add_injections(usize::from(fault), u64::from(event.count), due_ns);
            }
        }
    }

    /// Adds `count` injections of a fault; the first of them occurred at `first_ns` of the run.
    /// Does nothing if `count` is 0.
    pub(super) fn add_injections(&mut self, fault: usize, count: u64, first_ns: u64) {
        if let Some(stats) = self.faults.get_mut(fault).filter(|_| count > 0) {
            stats.injected += count;
            stats.first_ns = Some(stats.first_ns.map_or(first_ns, |known| known.min(first_ns)));
        }
    }

    /// Sets the actual end of a fault, in ns of the run.
    pub(super) fn set_end(&mut self, fault: usize, at_ns: u64) {
        if let Some(stats) = self.faults.get_mut(fault) {
            stats.ended_ns = Some(at_ns);
        }
    }

    fn add_detections(
        &mut self,
        detected_by: u16,
        (kind, of): (Kind, Option<u16>),
        (cycle, at_ns): (u64, u64),
        (count, retracted): (u32, u32),
    ) {
        let change = i64::from(count) - i64::from(retracted);
        *self.detections.entry((kind, detected_by, of)).or_default() += change;
        if count > 0
            && let Some(test_period) =
                usize::try_from(cycle).ok().and_then(|at| self.periods.get_mut(at))
        {
            test_period.is_disturbed = true;
        }
        for at in 0..self.faults.len() {
            let fault = &self.plan.faults[at];
            if !can_explain(fault, kind, of) || !self.is_near(fault, at_ns) {
                continue;
            }
            let stats = &mut self.faults[at];
            *stats.detections.entry(kind).or_default() += change;
            if count > 0 && stats.first_detections.len() < FIRST_MAX {
                stats.first_detections.push((at_ns, detected_by, kind));
            }
        }
    }

    /// Returns true if `at_ns` lies between the start of a fault and the latest time of its
    /// effects.
    fn is_near(&self, fault: &FaultSpec, at_ns: u64) -> bool {
        let plan = self.plan;
        let periods = u64::from(plan.node_timeout).saturating_add(plan.steady.into());
        let after_ns = periods.saturating_mul(plan.period_ns).saturating_add(fault.delay_ns);
        // A stopped node catches up after the fault, and misses deadlines meanwhile.
        let catch_up_ns = if fault.kind == FaultKind::Stop { fault.for_ns } else { 0 };
        let until_ns = fault.end_ns().saturating_add(after_ns).saturating_add(catch_up_ns);
        (fault.at_ns..=until_ns).contains(&at_ns)
    }

    /// Returns the time from `end_ns` to recovery: to the release of the first of
    /// [`ApplicationTestPlan::steady`] consecutive periods without any disturbance on the remaining
    /// nodes. `None` without recovery.
    fn recovery_time_ns(&self, end_ns: u64) -> Option<u64> {
        let (period_ns, steady) = (self.plan.period_ns, self.plan.steady as usize);
        let first = usize::try_from(end_ns.div_ceil(period_ns)).ok()?;
        let mut undisturbed_count = 0;
        for at in first..self.periods.len() {
            undisturbed_count = if self.is_undisturbed(at) { undisturbed_count + 1 } else { 0 };
            if undisturbed_count == steady {
                let released_ns = (at + 1 - steady) as u64 * period_ns;
                return Some(released_ns - end_ns);
            }
        }
        None
    }

    fn is_undisturbed(&self, at: usize) -> bool {
        let due_ns = at as u64 * self.plan.period_ns;
        let is_running = |died: &&Option<u64>| died.is_none_or(|died_ns| died_ns > due_ns);
        let running_count = self.exited_ns.iter().filter(is_running).count();
        let PeriodCompletion { nodes_ended: ended, is_disturbed: is_amiss } = self.periods[at];
        !is_amiss && running_count > 0 && usize::from(ended) >= running_count
    }

    /// Returns a snapshot of each node.
    pub(super) fn snapshot(&self) -> Vec<NodeSnapshot> {
        let deadline_ns = self.plan.deadline_ns as f64;
        let snapshot = |(node, stats): (u16, &NodeStats)| NodeSnapshot {
            name: node_name(node),
            periods: stats.periods,
            missed: stats.missed,
            ratio: (stats.periods > 0).then(|| stats.last_response_ns as f64 / deadline_ns),
            has_exited: self.exited_ns[usize::from(node)].is_some(),
        };
        (0..).zip(&self.nodes).map(snapshot).collect()
    }

    /// Returns the record of each state that had periods.
    pub(super) fn states(&self) -> Vec<CycleTestStateResult> {
        let record = |(name, stats): &(&str, RunStateStats)| CycleTestStateResult {
            name: (*name).to_owned(),
            periods: stats.periods,
            missed: stats.missed,
            response_ns: Distribution::from_histogram(&stats.response),
            execution_ns: Distribution::from_histogram(&stats.execution),
        };
        self.states.iter().filter(|(_, stats)| stats.periods > 0).map(record).collect()
    }

    /// Returns the record of each stage: its mean times over all its entries.
    pub(super) fn stages(&self) -> Vec<CycleTestStageTimes> {
        let record = |(stage, stats): (&super::plan::PipelineStage, &PipelineStageStats)| {
            let mean = |sum: u128| sum as f64 / stats.entries.max(1) as f64;
            CycleTestStageTimes {
                name: stage.name.clone(),
                computation_ns: mean(stats.computation_ns),
                communication_ns: mean(stats.communication_ns),
                idle_ns: mean(stats.idle_ns),
                barrier_ns: mean(stats.barrier_ns),
            }
        };
        self.plan.stages.iter().zip(&self.stages).map(record).collect()
    }

    /// Returns the load imbalance: the largest mean computation of a node over the mean of all
    /// nodes that completed periods, minus 1. `None` with fewer than two such nodes or without
    /// computation.
    pub(super) fn imbalance(&self) -> Option<f64> {
        let means: Vec<f64> =
            self.nodes.iter().filter_map(NodeStats::computation_mean_ns).collect();
        let mean = means.iter().sum::<f64>() / means.len().max(1) as f64;
        let most = means.iter().copied().fold(0.0, f64::max);
        (means.len() > 1 && mean > 0.0).then_some(most / mean - 1.0)
    }

    /// Returns the records of the detections, without those that were retracted.
    pub(super) fn detection_records(&self) -> Vec<DetectionCountByNode> {
        let record = |((kind, by, of), count): (&(Kind, u16, Option<u16>), &i64)| {
            let count = u64::try_from(*count).ok().filter(|count| *count > 0)?;
            let of = of.and_then(|of| self.subject_name(*kind, of));
            Some(DetectionCountByNode { kind: *kind, by: node_name(*by), of, count })
        };
        self.detections.iter().filter_map(record).collect()
    }

    fn subject_name(&self, kind: Kind, of: u16) -> Option<String> {
        match kind {
            Kind::DataError | Kind::Lost | Kind::Late | Kind::Repeated => {
                self.plan.sources.get(usize::from(of)).map(|source| source.name.clone())
            }
            _ => Some(node_name(of)),
        }
    }

    /// Returns the record of each fault: its injections and detections, the first detection and the
    /// recovery.
    pub(super) fn faults(&self) -> Vec<CycleTestFaultResult> {
        self.plan
            .faults
            .iter()
            .zip(&self.faults)
            .map(|(fault, stats)| self.fault_record(fault, stats))
            .collect()
    }

    fn fault_record(&self, fault: &FaultSpec, stats: &FaultStats) -> CycleTestFaultResult {
        let seconds = |ns: u64| ns as f64 / 1e9;
        let source = fault.source.and_then(|at| self.plan.sources.get(usize::from(at)));
        let counted = |(kind, count): (&Kind, &i64)| {
            let count = u64::try_from(*count).ok().filter(|count| *count > 0)?;
            Some(DetectionCount { kind: *kind, count })
        };
        let first = stats.first_ns.and_then(|first_ns| {
            let after = stats.first_detections.iter().filter(|(at_ns, ..)| *at_ns >= first_ns);
            let (at_ns, by, kind) = after.min_by_key(|(at_ns, ..)| *at_ns)?;
            Some(CycleTestFirstDetection {
                after_ns: at_ns - first_ns,
                by: node_name(*by),
                kind: *kind,
            })
        });
        let end_ns = stats.ended_ns.unwrap_or(fault.end_ns().saturating_add(fault.delay_ns));
        CycleTestFaultResult {
            kind: fault.kind,
            of: source.map(|source| source.name.clone()).or_else(|| fault.node.map(node_name)),
            at_s: seconds(fault.at_ns),
            duration_s: (fault.for_ns > 0).then(|| seconds(fault.for_ns)),
            state: fault.state.clone(),
            injected: stats.injected,
            first_s: stats.first_ns.map(seconds),
            detections: stats.detections.iter().filter_map(counted).collect(),
            detected: first,
            recovered_after_ns: (stats.injected > 0)
                .then(|| self.recovery_time_ns(end_ns))
                .flatten(),
        }
    }
}

impl NodeStats {
    fn computation_mean_ns(&self) -> Option<f64> {
        (self.periods > 0).then(|| self.computation.sum() as f64 / self.periods as f64)
    }
}

impl PipelineStageStats {
    fn add(&mut self, entry: &PeriodEntry) {
        self.entries += 1;
        self.computation_ns += u128::from(entry.compute_ns);
        self.communication_ns += u128::from(entry.communicate_ns);
        self.idle_ns += u128::from(entry.idle_ns);
        self.barrier_ns += u128::from(entry.barrier_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: &str = "schema = \"horolog.test/2\"\nname = \"a\"\ntime = \"5s\"\nperiod = \"100ms\"\n\
        deadline = \"80ms\"\nsteady = 3\n[[stage]]\nname = \"s\"\nintake = true\nbarrier = true\n\
        [[source]]\nname = \"r\"\nrate = 10\nsize = 64\n\
        [[state]]\nname = \"first\"\nfrom = \"0s\"\nto = \"1s\"\n\
        [[fault]]\nkind = \"data-error\"\nat = \"1s\"\nfor = \"500ms\"\nsource = \"r\"\n\
        [[fault]]\nkind = \"stop\"\nat = \"3s\"\nfor = \"500ms\"\nnode = 2\nstate = \"alone\"\n";
    const MS: u64 = 1_000_000;

    fn period(cycle: u64, response_ms: u64) -> PeriodEntry {
        let spent_ns = response_ms * MS;
        PeriodEntry {
            execution_ns: spent_ns,
            compute_ns: spent_ns,
            ..PeriodEntry::new(PeriodEntryKind::Period, cycle)
        }
    }

    fn detections(kind: Kind, of: u16, cycle: u64, at_ms: u64) -> NodeFaultEvent {
        let subject = NodeFaultEventKind::Detected(kind, Some(of));
        NodeFaultEvent {
            kind: subject,
            period: cycle,
            at_ns: (at_ms * MS) as i64,
            count: 1,
            retracted: 0,
        }
    }

    /// All periods of both nodes, those of the second in a stretch as long as is said.
    fn account(
        plan: &ApplicationTestPlan,
        slow: std::ops::Range<u64>,
        response_ms: u64,
    ) -> ApplicationTestStats<'_> {
        let mut account = ApplicationTestStats::new(plan, 0);
        for cycle in 0..plan.period_count() {
            account.add_entry(0, &period(cycle, 10));
            let ms = if slow.contains(&cycle) { response_ms } else { 30 };
            account.add_entry(1, &period(cycle, ms));
        }
        account
    }

    #[test]
    fn recovery_counts_from_the_end_to_the_first_of_the_steady_periods() {
        let plan = ApplicationTestPlan::parse(PLAN).unwrap();
        // Stopped from 3 s to 3.52 s; what follows is late up to the period of 3.8 s.
        let mut account = account(&plan, 30..39, 90);
        account.add_injections(1, 1, 3_000 * MS);
        account.set_end(1, 3_520 * MS);
        account.add_event(0, &detections(Kind::NodeTimeout, 1, 34, 3_400));
        let [_, stop] = &account.faults()[..] else { panic!("two faults") };
        assert_eq!(stop.recovered_after_ns, Some((3_900 - 3_520) * MS));
        assert_eq!(stop.detection_count(Kind::DeadlineMissed), 9);
        assert_eq!(stop.detection_count(Kind::NodeTimeout), 1);
        let first = stop.detected.as_ref().unwrap();
        assert_eq!((first.after_ns, first.kind), (90 * MS, Kind::DeadlineMissed));
        assert_eq!((first.by.as_str(), account.missed_unexplained), ("node2", 0));
        let states: Vec<_> =
            account.states().into_iter().map(|s| (s.name, s.periods, s.missed)).collect();
        let state = |name: &str, periods, missed| (name.to_owned(), periods, missed);
        assert_eq!(states, [state("first", 20, 0), state("alone", 10, 5), state("plain", 70, 4)]);
        assert!((account.imbalance().unwrap() - 0.6).abs() < 0.05);
    }

    #[test]
    fn what_is_never_well_again_has_not_recovered() {
        let plan = ApplicationTestPlan::parse(PLAN).unwrap();
        let mut account = account(&plan, 35..50, 90);
        account.add_injections(1, 1, 3_000 * MS);
        account.set_end(1, 3_500 * MS);
        let stop = &account.faults()[1];
        assert!(!stop.has_recovered() && stop.recovered_after_ns.is_none(), "{stop:?}");
        assert!(account.faults()[0].has_recovered(), "nothing was injected");
    }

    #[test]
    fn only_what_a_fault_explains_is_noticed_of_it() {
        let plan = ApplicationTestPlan::parse(PLAN).unwrap();
        let mut account = account(&plan, 0..0, 0);
        account.add_injections(0, 2, 1_010 * MS);
        account.add_event(1, &detections(Kind::DataError, 0, 9, 990));
        account.add_event(1, &detections(Kind::DataError, 0, 11, 1_100));
        account.add_event(0, &detections(Kind::DataError, 0, 12, 1_200));
        account.add_event(0, &detections(Kind::Lost, 0, 12, 1_200));
        let undone =
            NodeFaultEvent { count: 0, retracted: 1, ..detections(Kind::Lost, 0, 13, 1_300) };
        account.add_event(0, &undone);
        let error = &account.faults()[0];
        assert_eq!((error.injected, error.detection_count(Kind::DataError)), (2, 2));
        assert_eq!(error.detections.len(), 1);
        let first = error.detected.as_ref().unwrap();
        assert_eq!((first.after_ns, first.by.as_str()), (90 * MS, "node2"));
        assert_eq!(error.recovered_after_ns, Some(0));
        let all = account.detection_records();
        assert_eq!(all.iter().map(|one| one.count).sum::<u64>(), 3, "what was found is not lost");
        assert!(all.iter().all(|one| one.of.as_deref() == Some("r")));
    }

    /// A node that is ended is not waited for to be well again.
    #[test]
    fn the_rest_is_well_without_the_one_that_is_gone() {
        let text = PLAN.replace("\"stop\"", "\"end\"").replace("3s\"\nfor = \"500ms\"\n", "3s\"\n");
        let plan = ApplicationTestPlan::parse(&text.replace("state = \"alone\"\n", "")).unwrap();
        let mut account = ApplicationTestStats::new(&plan, 0);
        for cycle in 0..plan.period_count() {
            account.add_entry(0, &period(cycle, if (30..33).contains(&cycle) { 99 } else { 10 }));
            if cycle < 30 {
                account.add_entry(1, &period(cycle, 10));
            }
        }
        account.add_injections(1, 1, 3_000 * MS);
        account.set_end(1, 3_000 * MS);
        assert!(!account.faults()[1].has_recovered());
        account.exited_ns[1] = Some(3_000 * MS);
        assert_eq!(account.faults()[1].recovered_after_ns, Some(300 * MS));
    }
}
