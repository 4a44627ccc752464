//! Costs from results of other commands: the value of a measurement that stands for each cost. A
//! value that a result lacks yields no cost, and this is reported.
//!
//! For the gaps that take the core from every thread, `host interrupt` reports their number and
//! their distribution. So gaps are counted in parts: those up to the median, those between it and
//! the 90th percentile, and so on up to the longest. Each part is as frequent as in the
//! measurement, and each of its gaps is as long as the longest of the part.

use horolog_record::{
    CyclePredictCost, CyclePredictCostKind as Kind, CyclePredictPercentile as Worst, Distribution,
    Finding, Host, HostAllResult, HostClockResult, HostConditions, HostInterruptResult,
    HostSwitchResult, HostTimerResult, OsNoise, OsNoiseShare, PathUdpResult, SchedulingPolicy,
    Severity,
};

use super::Costs;

mod findings;
#[cfg(test)]
mod tests;

pub use findings::{real_time_share, source_findings};

const SECOND_NS: u64 = 1_000_000_000;
/// Share of the gaps that are in a part and above the one before it, in ten thousandths.
const PARTS: [(Worst, u64); 6] = [
    (Worst::Max, 1),
    (Worst::P99_99, 9),
    (Worst::P99_9, 90),
    (Worst::P99, 900),
    (Worst::P90, 4_000),
    (Worst::P50, 5_000),
];
const WHOLE: u64 = 10_000;

/// Measurement, with its origin.
#[derive(Clone, Debug)]
pub struct CostInput {
    /// The file, or another description of its origin.
    pub name: String,
    /// Its record.
    pub measured: CostRecord,
}

/// Result from which costs are taken.
#[derive(Clone, Debug)]
pub enum CostRecord {
    /// Of `horolog host switch`.
    Switch(Box<HostSwitchResult>),
    /// Of `horolog host timer`.
    Timer(Box<HostTimerResult>),
    /// Of `horolog host interrupt`.
    Interrupt(Box<HostInterruptResult>),
    /// Of `horolog host clock`.
    Clock(Box<HostClockResult>),
    /// Of `horolog path udp`.
    Path(Box<PathUdpResult>),
}

impl CostRecord {
    /// Returns the parts of a result of `horolog host all` from which costs are taken.
    #[must_use]
    pub fn parts(all: HostAllResult) -> Vec<Self> {
        let parts = [
            all.switch.map(|one| Self::Switch(Box::new(one))),
            all.timer.map(|one| Self::Timer(Box::new(one))),
            all.interrupt.map(|one| Self::Interrupt(Box::new(one))),
            all.clock.map(|one| Self::Clock(Box::new(one))),
        ];
        parts.into_iter().flatten().collect()
    }

    /// Returns the host on which it was measured.
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

    /// Returns its own findings.
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

/// Returns all costs of measurements, each by the value that is taken for its worst.
#[must_use]
pub fn costs(sources: &[CostInput], worst: Worst) -> Costs {
    let tick = sources.iter().find_map(|source| match &source.measured {
        CostRecord::Clock(clock) => clock.tick.hz.filter(|hz| *hz > 0).map(|hz| Tick {
            every_ns: SECOND_NS / u64::from(hz),
            figure: format!("{hz} ticks a second ({})", source.name),
        }),
        _ => None,
    });
    let of = |source: &CostInput| {
        let taker = CostExtractor { source: &source.name, worst };
        match &source.measured {
            CostRecord::Switch(result) => taker.switch(result),
            CostRecord::Timer(result) => taker.timer(result),
            CostRecord::Interrupt(result) => taker.interrupt(result, tick.as_ref()),
            CostRecord::Path(result) => taker.path(result),
            CostRecord::Clock(_) => Vec::new(),
        }
    };
    Costs::new(sources.iter().flat_map(of).collect())
}

/// Interval of the scheduler's tick.
struct Tick {
    every_ns: u64,
    figure: String,
}

struct CostExtractor<'a> {
    source: &'a str,
    worst: Worst,
}

impl CostExtractor<'_> {
    fn cost(&self, kind: Kind, ns: u64, figure: String) -> CyclePredictCost {
        CyclePredictCost {
            kind,
            core: None,
            ns,
            every_ns: None,
            part: None,
            bytes: None,
            half_ns: None,
            source: self.source.to_owned(),
            statistic: figure,
        }
    }

    /// Returns the cost of a switch, the largest repetition: a switch has no distribution, and the
    /// effect of interrupts on it is counted as interrupts.
    fn switch(&self, result: &HostSwitchResult) -> Vec<CyclePredictCost> {
        let steps = result.steps.iter().flat_map(|steps| &steps.repetitions);
        let by_steps = steps.filter_map(|one| one.per_switch_ns).reduce(f64::max);
        let turns = result.exchanges.iter().flat_map(|exchange| &exchange.repetitions);
        let by_turns = turns.filter_map(|one| one.per_switch_ns).reduce(f64::max);
        let found = by_steps
            .map(|ns| (ns, "a switch by the eight steps, the largest repetition"))
            .or_else(|| by_turns.map(|ns| (ns, "a switch of a turn, the largest repetition")));
        let (ns, figure) = match found {
            Some((ns, figure)) if ns.is_finite() && ns >= 0.0 => (ns.ceil() as u64, figure),
            _ => return Vec::new(),
        };
        vec![self.cost(Kind::Switch, ns, figure.to_owned())]
    }

    fn timer(&self, result: &HostTimerResult) -> Vec<CyclePredictCost> {
        let of = |core: &horolog_record::TimerCore| {
            let ns = self.worst.of(core.latency_ns.as_ref()?);
            let policy = match core.scheduling.policy {
                SchedulingPolicy::Fifo => "real time",
                SchedulingPolicy::Other => "ordinary",
            };
            let figure = format!("latency of wake-ups, {} ({policy})", self.worst.name());
            Some(CyclePredictCost { core: Some(core.core), ..self.cost(Kind::Release, ns, figure) })
        };
        result.cores.iter().filter_map(of).collect()
    }

    fn path(&self, result: &PathUdpResult) -> Vec<CyclePredictCost> {
        let of = |row: &horolog_record::PathRow| {
            let rtt = row.rtt_ns.as_ref()?;
            let ns = self.worst.of(rtt);
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

    fn interrupt(
        &self,
        result: &HostInterruptResult,
        tick: Option<&Tick>,
    ) -> Vec<CyclePredictCost> {
        let of = |core: &OsNoise| {
            let mut costs = self.tick(core, tick);
            let ticks = if costs.is_empty() { None } else { tick };
            costs.extend(self.gaps(core, Kind::Interrupt, core.by_others, ticks));
            costs.extend(self.gaps(core, Kind::Threads, core.by_threads, None));
            costs
        };
        result.os_noise.iter().flat_map(of).collect()
    }

    /// Returns the tick as long as the median gap: longer ones are among the other parts. If there
    /// was no gap it is shorter than the threshold of a gap.
    fn tick(&self, core: &OsNoise, tick: Option<&Tick>) -> Vec<CyclePredictCost> {
        let Some(Tick { every_ns, figure }) = tick else { return Vec::new() };
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

    /// Returns the gaps of one kind in parts, the longest first: the number in a part is known of
    /// all gaps together, so those of the kind are taken for the longest of them.
    fn gaps(
        &self,
        core: &OsNoise,
        kind: Kind,
        of_kind: OsNoiseShare,
        tick: Option<&Tick>,
    ) -> Vec<CyclePredictCost> {
        let Some(all) = &core.gap_ns else { return Vec::new() };
        let mut left = of_kind.gaps;
        let mut costs = Vec::new();
        for (part, share) in PARTS {
            let count = share.saturating_mul(all.count).div_ceil(WHOLE).min(left);
            left -= count;
            // Ticks are among the shortest, and have a cost of their own.
            let ticks = tick.map_or(0, |tick| core.duration_ns / tick.every_ns.max(1));
            let counted = if part == Worst::P50 { count.saturating_sub(ticks) } else { count };
            if counted == 0 || part > self.worst {
                continue;
            }
            costs.push(self.gap(core, kind, (part, counted), part.of(all).min(of_kind.max_ns)));
        }
        costs.reverse();
        costs
    }

    fn gap(
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

/// Returns true if a finding of a result weakens its values.
fn is_serious(finding: &Finding) -> bool {
    finding.severity >= Severity::Warning
}

/// Returns the share above the percentile, in ten thousandths.
const fn above(worst: Worst) -> u64 {
    match worst {
        Worst::P50 => 5_000,
        Worst::P90 => 1_000,
        Worst::P99 => 100,
        Worst::P99_9 => 10,
        Worst::P99_99 | Worst::Max => 1,
    }
}

/// Returns true if a distribution has so few values that its percentile is little more than its
/// largest.
fn is_short(times: &Distribution, worst: Worst) -> bool {
    times.count.saturating_mul(above(worst)) < WHOLE
}
