//! Document of a result of `horolog host timer`: wake-up latencies by core with their distributions
//! and time series, and the host conditions.

use horolog_record::{CoreWakeupLatency, HostTimerResult, LimitUnit};

use super::host_all::timer;
use crate::document::{
    BlockContent, DescribeResult, DistributionSet, HeadlineMetric, NameColumn, NamedRow,
    NamedRowTable, ResultDocument, run_of,
};
use crate::host::{LATENCY_TITLES, conditions, latency_figures, scheduling};
use crate::html::latency::time_axis;
use crate::html::plot::{Plot, PlotAxis, PlotViews};
use crate::html::time_series::TimeSeriesDrawingLimits;
use crate::metrics::{Metric, NamedItems, judged_by_fields, of_items};
use crate::table::shapes::{SparklineGroup, SparklineRow, SparklineScale, SparklineUnit};
use crate::units::{full_count, human_ns, sentence};

const TABLE: &str = "latencies";

const METHOD: &str = "Latency: from the intended wake-up to the first clock reading \
     of the thread. Missed: periods that had ended before the thread waited for them; their \
     latency counts.";

impl DescribeResult for HostTimerResult {
    fn document(&self) -> ResultDocument<'_> {
        const SHAPES: &str = "Distribution and time series";
        let worst = self.cores.iter().filter_map(|core| Some(core.latency_ns.as_ref()?.p99)).max();
        ResultDocument {
            kind: "host timer",
            heading: format!("wake-ups every {}", human_ns(self.interval_ns)),
            lead: format!(
                "{} periods on each of {} cores, started {}",
                full_count(self.planned),
                self.cores.len(),
                self.started
            ),
            headline: HeadlineMetric {
                name: "Wake-up latency, p99".to_owned(),
                value: worst.map(human_ns),
                sentence: sentence(&timer(self)),
            },
            blocks: vec![
                BlockContent::Table(latencies(self)).under("Latencies"),
                BlockContent::Distributions(distributions(self)).under(SHAPES),
                BlockContent::Plot(over_time(self), String::new()).under(SHAPES),
                BlockContent::Shape(Box::new(|style| sparklines(self).lines(style))).under(SHAPES),
                BlockContent::Remarks(facts(self)).under("Method"),
            ],
            method: METHOD,
            limits: &self.limits,
            findings: &self.findings,
            run: run_of!(self),
        }
    }

    fn metrics() -> Vec<Metric<Self>> {
        let latency = Metric::times("latency", |core: &CoreWakeupLatency| core.latency_ns.as_ref());
        let missed = Metric::number("missed", LimitUnit::Ratio, |core: &CoreWakeupLatency| {
            core.latency_ns.as_ref().map(|all| core.missed as f64 / all.count as f64)
        });
        of_items(named_cores, latency.with_statistics("").into_iter().chain([missed])).collect()
    }
}

judged_by_fields!(HostTimerResult);

fn named_cores(result: &HostTimerResult) -> NamedItems<'_, CoreWakeupLatency> {
    result.cores.iter().map(|core| (name(core), core)).collect()
}

fn name(core: &CoreWakeupLatency) -> String {
    format!("core {}", core.core)
}

fn latencies(result: &HostTimerResult) -> NamedRowTable {
    let width = |title: &str| if title == "count" { 10 } else { 9 };
    let columns = LATENCY_TITLES.map(|title| (title.into(), width(title)));
    let row = |core: &CoreWakeupLatency| {
        let cells = [full_count(core.missed)].into_iter();
        let cells = cells.chain(latency_figures(core.latency_ns.as_ref()));
        NamedRow::new(core.core.to_string(), cells.collect::<Vec<_>>())
    };
    NamedRowTable {
        id: TABLE,
        label: "Wake-up latencies",
        names: NameColumn::numbers("core", 4, |core| format!("core {core}")),
        columns: std::iter::once(("missed".into(), 6)).chain(columns).collect(),
        rows: result.cores.iter().map(row).collect(),
    }
}

fn distributions(result: &HostTimerResult) -> DistributionSet<'_> {
    let cores = result.cores.iter();
    DistributionSet {
        quantity: "latency",
        entries: cores.filter_map(|core| Some((name(core), core.latency_ns.as_ref()?))).collect(),
        histogram: Some(("wake-ups-histogram", "Histogram of latencies")),
        percentiles: Some(("wake-ups-tail", "Latency percentiles")),
        described_by: TABLE,
    }
}

fn sparklines(result: &HostTimerResult) -> SparklineGroup {
    let row = |core: &CoreWakeupLatency| SparklineRow {
        name: name(core),
        points: core.series.iter().map(|one| (one.at_s, one.max_ns as f64)).collect(),
        scale: SparklineScale::Log,
        unit: SparklineUnit::Time,
    };
    SparklineGroup::over_time("largest latency over time", result.cores.iter().map(row).collect())
}

fn over_time(result: &HostTimerResult) -> Plot {
    let series = |core: &CoreWakeupLatency| {
        let points = core.series.iter().map(|one| (one.at_s, one.max_ns.max(1) as f64));
        TimeSeriesDrawingLimits::EVEN.line(name(core), points.collect())
    };
    Plot {
        id: "latency-over-time",
        title: "Largest latency over time",
        hint: "Maximum of each group of periods.",
        described_by: TABLE,
        x: PlotAxis::ELAPSED,
        y: time_axis(),
        points: false,
        bars: false,
        marks: Vec::new(),
        shown: PlotViews::one(result.cores.iter().map(series)),
    }
}

/// Returns the conditions of the measurement, in sentences.
fn facts(result: &HostTimerResult) -> Vec<String> {
    let mut facts = Vec::new();
    if let Some(core) = result.cores.first() {
        facts.push(format!(
            "One thread per core, {}, period {}.",
            scheduling(&core.scheduling),
            human_ns(result.interval_ns)
        ));
    }
    facts.push(conditions(&result.conditions));
    facts.extend(result.cores.iter().map(|core| {
        let cost = &core.cost;
        let [clock, cycle, past] = [cost.clock_ns, cost.cycle_ns, cost.past_ns].map(human_ns);
        format!(
            "Overhead on core {}: {clock} for the clock reading in each latency, {cycle} per \
             period; a wait for a past time takes {past}.",
            core.core
        )
    }));
    facts
}
