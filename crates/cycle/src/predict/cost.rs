//! Costs of the host that affect the tasks of a core. Each value names the measurement that it is
//! from; [`super::source`] extracts them.

use horolog_record::{CyclePredictCost, CyclePredictCostKind as Kind, CyclePredictPercentile};

use super::window::RecurringWork;

/// All costs of a host, each with the measurement that it is from.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct HostCosts {
    list: Vec<CyclePredictCost>,
}

/// Latency of a message, in ns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SafeAndPublishedLatency {
    /// Round-trip time, which the latency in neither direction exceeds.
    pub(super) safe_ns: u64,
    /// Half of the round-trip time, as in the paper.
    pub(super) half_ns: u64,
}

/// Costs that affect the tasks of one core.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct CoreCosts {
    /// Duration of a context switch, in ns.
    pub(super) switch_ns: u64,
    /// Longest start latency, in ns.
    pub(super) release_ns: u64,
    /// Scheduler tick; empty if its cost is unknown.
    pub(super) scheduler: Vec<RecurringWork>,
    /// Interrupts and, for sched-other tasks, other threads.
    pub(super) interrupts: Vec<RecurringWork>,
}

impl CoreCosts {
    /// Returns the work other than tasks that occupies the core.
    pub(super) fn non_task_work(&self) -> impl Iterator<Item = RecurringWork> {
        self.scheduler.iter().chain(&self.interrupts).copied()
    }

    /// Returns the costs of a task that can migrate between this number of cores: it may meet all
    /// their recurring work, and the work in progress on them.
    pub(super) fn for_migrating_task(&self, cores: u64) -> Self {
        let in_progress_ns = self.non_task_work().map(|one| one.ns).fold(0, u64::saturating_add);
        let on_all_cores = |all: &[RecurringWork]| {
            let one = |one: &RecurringWork| RecurringWork {
                ns: one.ns.saturating_mul(cores),
                jitter_ns: in_progress_ns,
                ..*one
            };
            all.iter().map(one).collect()
        };
        Self {
            scheduler: on_all_cores(&self.scheduler),
            interrupts: on_all_cores(&self.interrupts),
            ..self.clone()
        }
    }
}

impl HostCosts {
    /// Creates the collection of these costs.
    #[must_use]
    pub fn new(list: Vec<CyclePredictCost>) -> Self {
        Self { list }
    }

    /// Returns all costs as recorded in the result.
    #[must_use]
    pub fn list(&self) -> &[CyclePredictCost] {
        &self.list
    }

    /// Returns true if there is a cost of this kind.
    pub(super) fn has(&self, kind: Kind) -> bool {
        self.list.iter().any(|cost| cost.kind == kind)
    }

    /// Returns the costs of a task on this core, or on any core for `None`. Other threads affect
    /// only sched-other tasks. A core without measurements has the worst values of all measured
    /// cores; a cost that was never measured counts as 0.
    pub(super) fn core_costs(&self, core: Option<usize>, is_sched_other: bool) -> CoreCosts {
        let longest =
            |kind| self.costs_on_core(kind, core).iter().map(|cost| cost.ns).max().unwrap_or(0);
        let mut interrupts = self.recurring_costs(Kind::Interrupt, core);
        if is_sched_other {
            interrupts.extend(self.recurring_costs(Kind::Threads, core));
        }
        CoreCosts {
            switch_ns: longest(Kind::Switch),
            release_ns: longest(Kind::Release),
            scheduler: self.recurring_costs(Kind::Scheduler, core),
            interrupts,
        }
    }

    /// Returns the latency of a message of this length: the largest latency of measured messages up
    /// to the shortest measured length that is at least as long. A message longer than all measured
    /// ones counts as several of the longest, in sequence. `None` if no message was measured.
    pub(super) fn message_latency(&self, bytes: u64) -> Option<SafeAndPublishedLatency> {
        let length = |cost: &CyclePredictCost| cost.bytes.unwrap_or(0);
        let messages = || self.list.iter().filter(|cost| cost.kind == Kind::Message);
        let longer = messages().map(length).filter(|length| *length >= bytes).min();
        let measured = longer.or_else(|| messages().map(length).max())?.max(1);
        let pieces = bytes.div_ceil(measured).max(1);
        let up_to = || messages().filter(|cost| length(cost) <= measured);
        let longest = |of: fn(&CyclePredictCost) -> u64| up_to().map(of).max().unwrap_or(0);
        Some(SafeAndPublishedLatency {
            safe_ns: longest(|cost| cost.ns).saturating_mul(pieces),
            half_ns: longest(|cost| cost.half_ns.unwrap_or(cost.ns)).saturating_mul(pieces),
        })
    }

    /// Returns the length of the longest measured message, in bytes.
    pub(super) fn longest_message(&self) -> Option<u64> {
        self.list.iter().filter(|cost| cost.kind == Kind::Message).filter_map(|one| one.bytes).max()
    }

    /// Returns true if this kind of cost was measured on this core, or for all cores.
    pub(super) fn has_measurement(&self, kind: Kind, core: usize) -> bool {
        self.list
            .iter()
            .any(|cost| cost.kind == kind && cost.core.is_none_or(|measured| measured == core))
    }

    /// Returns the costs of a kind on a core; if none was measured there, those of all cores.
    fn costs_on_core(&self, kind: Kind, core: Option<usize>) -> Vec<&CyclePredictCost> {
        let here = |cost: &CyclePredictCost| match core {
            Some(core) if self.has_measurement(kind, core) => cost.core.is_none_or(|of| of == core),
            _ => true,
        };
        self.list.iter().filter(|cost| cost.kind == kind && here(cost)).collect()
    }

    /// Returns the recurring costs of a kind: for each class of gaps, the longest duration and the
    /// shortest interval.
    fn recurring_costs(&self, kind: Kind, core: Option<usize>) -> Vec<RecurringWork> {
        let all = self.costs_on_core(kind, core);
        let part = |part: Option<CyclePredictPercentile>| {
            let of_part = || all.iter().filter(|cost| cost.part == part);
            let ns = of_part().map(|cost| cost.ns).max()?;
            let every_ns = of_part().filter_map(|cost| cost.every_ns).min()?;
            Some(RecurringWork { ns, every_ns, jitter_ns: 0 })
        };
        let parts = CyclePredictPercentile::ALL.map(Some).into_iter().chain([None]);
        parts.filter_map(part).collect()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn cost(kind: Kind, core: Option<usize>, ns: u64) -> CyclePredictCost {
        CyclePredictCost {
            kind,
            core,
            ns,
            every_ns: None,
            part: None,
            bytes: None,
            half_ns: None,
            source: "a test".to_owned(),
            statistic: "made up".to_owned(),
        }
    }

    pub(crate) fn message(bytes: u64, ns: u64, half_ns: u64) -> CyclePredictCost {
        CyclePredictCost {
            bytes: Some(bytes),
            half_ns: Some(half_ns),
            ..cost(Kind::Message, None, ns)
        }
    }

    pub(crate) fn every(
        kind: Kind,
        core: Option<usize>,
        part: Option<CyclePredictPercentile>,
        ns: u64,
        every_ns: u64,
    ) -> CyclePredictCost {
        CyclePredictCost { every_ns: Some(every_ns), part, ..cost(kind, core, ns) }
    }

    #[test]
    fn a_longer_message_takes_no_less_time() {
        let costs = HostCosts::new(vec![message(64, 90, 45), message(1_000, 60, 30)]);
        let safe_ns = |bytes| costs.message_latency(bytes).map(|latency| latency.safe_ns);
        assert_eq!([64, 65, 1_001].map(safe_ns), [Some(90), Some(90), Some(180)]);
        assert_eq!(HostCosts::default().message_latency(1), None);
    }

    #[test]
    fn a_core_has_its_own_costs_and_no_core_the_worst_of_all() {
        let (p50, max) = (Some(CyclePredictPercentile::P50), Some(CyclePredictPercentile::Max));
        let costs = HostCosts::new(vec![
            cost(Kind::Switch, None, 7),
            cost(Kind::Release, Some(0), 10),
            cost(Kind::Release, Some(1), 30),
            every(Kind::Interrupt, Some(0), p50, 3, 1_000),
            every(Kind::Interrupt, Some(0), max, 90, 100_000),
            every(Kind::Interrupt, Some(1), p50, 2, 500),
            every(Kind::Threads, Some(1), max, 9_000, 10_000),
        ]);
        let shown = |core, is_ordinary| {
            let found = costs.core_costs(core, is_ordinary);
            let all = found.interrupts.iter().map(|one| (one.ns, one.every_ns));
            (found.switch_ns, found.release_ns, all.collect::<Vec<_>>())
        };
        assert_eq!(shown(Some(0), false), (7, 10, vec![(3, 1_000), (90, 100_000)]));
        assert_eq!(shown(Some(1), false), (7, 30, vec![(2, 500)]));
        assert_eq!(shown(None, false), (7, 30, vec![(3, 500), (90, 100_000)]));
        assert_eq!(shown(Some(1), true).2.len(), 2, "other threads count too");
        assert_eq!(shown(Some(8), false), shown(None, false), "one that was not measured");
    }
}
