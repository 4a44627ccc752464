//! Costs from results of other commands: the statistic of a measurement that stands for each cost.
//! A value that a result lacks yields no cost, and the prediction reports this.
//!
//! For the gaps in which a core is taken from every thread, `host interrupt` reports their number
//! and their distribution. The gaps are divided into classes by percentile: up to the median, from
//! there to the 90th percentile, and so on up to the maximum. Each class is as frequent as in the
//! measurement, and all its gaps are taken to be as long as its longest.

use horolog_record::{
    CyclePredictCost, CyclePredictCostKind as Kind, CyclePredictPercentile as Worst, Distribution,
    Finding, Host, HostAllResult, HostClockResult, HostConditions, HostInterruptResult,
    HostSwitchResult, HostTimerResult, OsNoise, OsNoiseGapSummary, PathUdpResult, SchedulingPolicy,
    Severity,
};

use super::HostCosts;

mod findings;
#[cfg(test)]
mod tests;

pub use findings::{real_time_share, source_findings};

const SECOND_NS: u64 = 1_000_000_000;
/// Classes of gaps, the longest first: upper percentile, and share of the gaps that lie between
/// this and the next lower percentile, in ten-thousandths.
const GAP_CLASSES: [(Worst, u64); 6] = [
    (Worst::Max, 1),
    (Worst::P99_99, 9),
    (Worst::P99_9, 90),
    (Worst::P99, 900),
    (Worst::P90, 4_000),
    (Worst::P50, 5_000),
];
const SHARES_SUM: u64 = 10_000;

/// Measurement and its origin.
#[derive(Clone, Debug)]
pub struct CostInput {
    /// Path of the file, or another description of the origin.
    pub name: String,
    /// Record of the measurement.
    pub measured: CostSourceResult,
}

/// Result from which costs are taken.
#[derive(Clone, Debug)]
pub enum CostSourceResult {
    /// Result of `horolog host switch`.
    Switch(Box<HostSwitchResult>),
    /// Result of `horolog host timer`.
    Timer(Box<HostTimerResult>),
    /// Result of `horolog host interrupt`.
    Interrupt(Box<HostInterruptResult>),
    /// Result of `horolog host clock`.
    Clock(Box<HostClockResult>),
    /// Result of `horolog path udp`.
    Path(Box<PathUdpResult>),
}

impl CostSourceResult {
    /// Returns the records in a result of `horolog host all` from which costs are taken.
    #[must_use]
    pub fn from_host_all(all: HostAllResult) -> Vec<Self> {
        let parts = [
            all.switch.map(|one| Self::Switch(Box::new(one))),
            all.timer.map(|one| Self::Timer(Box::new(one))),
            all.interrupt.map(|one| Self::Interrupt(Box::new(one))),
            all.clock.map(|one| Self::Clock(Box::new(one))),
        ];
        parts.into_iter().flatten().collect()
    }

    /// Returns the host of the measurement.
    #[must_use]
    pub fn host(&self) -> &Host {
        match self {
            Self::Switch(one) => &one.host,
            Self::Timer(one) => &one.host,
            Self::Interrupt(one) => &one.host,
            Self::Clock(one) => &one.host,
            Self::Path(one) => &one.host,
        }
    }

    /// Returns the findings of the measurement.
    fn findings(&self) -> &[Finding] {
        match self {
            Self::Switch(one) => &one.findings,
            Self::Timer(one) => &one.findings,
            Self::Interrupt(one) => &one.findings,
            Self::Clock(one) => &one.findings,
            Self::Path(one) => &one.findings,
        }
    }

    fn conditions(&self) -> Option<&HostConditions> {
        match self {
            Self::Switch(one) => Some(&one.conditions),
            Self::Timer(one) => Some(&one.conditions),
            Self::Interrupt(one) => Some(&one.conditions),
            Self::Clock(_) | Self::Path(_) => None,
        }
    }
}

/// Returns the costs from all measurements; `worst` is the percentile that stands for a worst case.
#[must_use]
pub fn extract_costs(sources: &[CostInput], worst: Worst) -> HostCosts {
    let tick = sources.iter().find_map(|source| match &source.measured {
        CostSourceResult::Clock(clock) => {
            clock.tick.hz.filter(|hz| *hz > 0).map(|hz| SchedulerTick {
                every_ns: SECOND_NS / u64::from(hz),
                description: format!("{hz} ticks a second ({})", source.name),
            })
        }
        _ => None,
    });
    let of = |source: &CostInput| {
        let extractor = CostExtractor { source: &source.name, worst };
        match &source.measured {
            CostSourceResult::Switch(result) => extractor.switch_cost(result),
            CostSourceResult::Timer(result) => extractor.release_costs(result),
            CostSourceResult::Interrupt(result) => extractor.interrupt_costs(result, tick.as_ref()),
            CostSourceResult::Path(result) => extractor.message_costs(result),
            CostSourceResult::Clock(_) => Vec::new(),
        }
    };
    HostCosts::new(sources.iter().flat_map(of).collect())
}

/// Scheduler tick: its interval, and a description.
struct SchedulerTick {
    every_ns: u64,
    description: String,
}

struct CostExtractor<'a> {
    source: &'a str,
    worst: Worst,
}

impl CostExtractor<'_> {
    fn cost(&self, kind: Kind, ns: u64, statistic: String) -> CyclePredictCost {
        CyclePredictCost {
            kind,
            core: None,
            ns,
            every_ns: None,
            part: None,
            bytes: None,
            half_ns: None,
            source: self.source.to_owned(),
            statistic,
        }
    }

    /// Returns the cost of a context switch, the largest repetition. There is no distribution of
    /// single switches, and interrupts during them are counted separately.
    fn switch_cost(&self, result: &HostSwitchResult) -> Vec<CyclePredictCost> {
        let steps = result.steps.iter().flat_map(|steps| &steps.repetitions);
        let by_steps = steps.filter_map(|one| one.per_switch_ns).reduce(f64::max);
        let exchanges = result.exchanges.iter().flat_map(|exchange| &exchange.repetitions);
        let by_exchanges = exchanges.filter_map(|one| one.per_switch_ns).reduce(f64::max);
        let found = by_steps
            .map(|ns| (ns, "a switch by the eight steps, the largest repetition"))
            .or_else(|| by_exchanges.map(|ns| (ns, "a switch of a turn, the largest repetition")));
        let (ns, figure) = match found {
            Some((ns, figure)) if ns.is_finite() && ns >= 0.0 => (ns.ceil() as u64, figure),
            _ => return Vec::new(),
        };
        vec![self.cost(Kind::Switch, ns, figure.to_owned())]
    }

    fn release_costs(&self, result: &HostTimerResult) -> Vec<CyclePredictCost> {
        let of = |core: &horolog_record::CoreWakeupLatency| {
            let ns = self.worst.value_ns(core.latency_ns.as_ref()?);
            let policy = match core.scheduling.policy {
                SchedulingPolicy::Fifo => "real time",
                SchedulingPolicy::Other => "ordinary",
            };
            let figure = format!("latency of wake-ups, {} ({policy})", self.worst.name());
            Some(CyclePredictCost { core: Some(core.core), ..self.cost(Kind::Release, ns, figure) })
        };
        result.cores.iter().filter_map(of).collect()
    }

    fn message_costs(&self, result: &PathUdpResult) -> Vec<CyclePredictCost> {
        let of = |row: &horolog_record::PathUdpRow| {
            let rtt = row.rtt_ns.as_ref()?;
            let ns = self.worst.value_ns(rtt);
            let figure = format!(
                "round trip to {}, {}; the published form uses half of it",
                result.target.name,
                self.worst.name()
            );
            Some(CyclePredictCost {
                bytes: Some(row.length),
                half_ns: Some(ns / 2),
                ..self.cost(Kind::Message, ns, figure)
            })
        };
        result.rows.iter().filter_map(of).collect()
    }

    fn interrupt_costs(
        &self,
        result: &HostInterruptResult,
        tick: Option<&SchedulerTick>,
    ) -> Vec<CyclePredictCost> {
        let of = |core: &OsNoise| {
            let mut costs = self.tick_cost(core, tick);
            let ticks = if costs.is_empty() { None } else { tick };
            costs.extend(self.gap_costs(core, Kind::Interrupt, core.by_others, ticks));
            costs.extend(self.gap_costs(core, Kind::Threads, core.by_threads, None));
            costs
        };
        result.os_noise.iter().flat_map(of).collect()
    }

    /// Returns the cost of the tick, taken to be as long as the median gap, but no longer than the
    /// longest gap that no thread caused; longer ticks are in the classes of gaps. Without such
    /// gaps, it is the threshold of a gap. Empty if the interval of the tick is unknown.
    fn tick_cost(&self, core: &OsNoise, tick: Option<&SchedulerTick>) -> Vec<CyclePredictCost> {
        let Some(SchedulerTick { every_ns, description: figure }) = tick else { return Vec::new() };
        let gaps = core.gap_ns.as_ref().filter(|_| core.by_others.gaps > 0);
        let (ns, length) = match gaps {
            Some(gaps) => (gaps.p50.min(core.by_others.max_ns), "as long as the median gap"),
            None => (core.threshold_ns, "no longer than what counts as a gap"),
        };
        let figure = format!("{figure}, each {length}");
        vec![CyclePredictCost {
            core: Some(core.core),
            every_ns: Some(*every_ns),
            ..self.cost(Kind::Scheduler, ns, figure)
        }]
    }

    /// Returns the costs of the gaps of one kind, by class, the shortest class first; classes above
    /// the percentile `worst` are omitted. The size of a class is known only for all kinds
    /// together, so the gaps of this kind are taken to be the longest.
    fn gap_costs(
        &self,
        core: &OsNoise,
        kind: Kind,
        of_kind: OsNoiseGapSummary,
        tick: Option<&SchedulerTick>,
    ) -> Vec<CyclePredictCost> {
        let Some(all) = &core.gap_ns else { return Vec::new() };
        let mut remaining = of_kind.gaps;
        let mut costs = Vec::new();
        for (part, share) in GAP_CLASSES {
            let count = share.saturating_mul(all.count).div_ceil(SHARES_SUM).min(remaining);
            remaining -= count;
            // Ticks are among the shortest gaps and have a cost of their own.
            let ticks = tick.map_or(0, |tick| core.duration_ns / tick.every_ns.max(1));
            let class_count = if part == Worst::P50 { count.saturating_sub(ticks) } else { count };
            if class_count == 0 || part > self.worst {
                continue;
            }
            costs.push(self.gap_cost(
                core,
                kind,
                (part, class_count),
                part.value_ns(all).min(of_kind.max_ns),
            ));
        }
        costs.reverse();
        costs
    }

    fn gap_cost(
        &self,
        core: &OsNoise,
        kind: Kind,
        (part, count): (Worst, u64),
        ns: u64,
    ) -> CyclePredictCost {
        let figure =
            format!("gaps up to {}, {count} in {} ms", part.name(), core.duration_ns / 1_000_000);
        CyclePredictCost {
            core: Some(core.core),
            every_ns: Some((core.duration_ns / count).max(1)),
            part: Some(part),
            ..self.cost(kind, ns, figure)
        }
    }
}

/// Returns true if a finding makes the values of a result uncertain.
fn is_serious(finding: &Finding) -> bool {
    finding.severity >= Severity::Warning
}

/// Returns the share of values above the percentile, in ten-thousandths; for the maximum, that of
/// P99.99.
const fn share_above(worst: Worst) -> u64 {
    match worst {
        Worst::P50 => 5_000,
        Worst::P90 => 1_000,
        Worst::P99 => 100,
        Worst::P99_9 => 10,
        Worst::P99_99 | Worst::Max => 1,
    }
}

/// Returns true if there are too few values for the percentile (for the maximum, P99.99) to be
/// below the maximum.
fn has_few_values(times: &Distribution, worst: Worst) -> bool {
    times.count.saturating_mul(share_above(worst)) < SHARES_SUM
}
