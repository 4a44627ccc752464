//! Document of a result of `horolog clock compare`: one row per clock, offsets over time, and steps
//! of the system clock.

use horolog_record::{
    AllanDeviation, ClockCompareResult, ClockSample, ComparedClock, ExactSummary, LimitUnit,
};

use crate::document::{
    BlockContent, DescribeResult, HeadlineMetric, NameColumn, NamedRow, NamedRowTable,
    ResultDocument, run_of,
};
use crate::html::plot::{AxisScale, Plot, PlotAxis, PlotUnit, PlotViews};
use crate::html::stability::{allan_plot, allan_table, allan_text};
use crate::html::time_series::TimeSeriesDrawingLimits;
use crate::metrics::{Metric, MetricValue, NamedItems, judged_by_fields, known, of_items};
use crate::table::TableStyle;
use crate::table::shapes::{
    SparklineGroup, SparklineRow, SparklineScale, SparklineUnit, allan as allan_lines,
};
use crate::units::{
    ABSENT, figure_texts, full_count, human_ns, seconds, signed_mean_ns, signed_ns,
};

/// Maximum number of samples of a clock that are retained in the page's copy of the result; if
/// there are more, all are omitted.
const SAMPLES_MAX: usize = 1_000;

const STABILITY: &str = "Overlapping, of the offset. Slope −1 indicates reading noise; a rise \
                         indicates wander.";

/// Titles and widths of the columns.
const COLUMNS: [(&str, usize); 7] = [
    ("mean", 10),
    ("deviation", 9),
    ("min", 10),
    ("max", 10),
    ("frequency", 14),
    ("± bound", 8),
    ("readings", 9),
];
/// Maximum number of steps that are listed one by one.
const STEPS_SHOWN: usize = 5;

const METHOD: &str = "Offset: lead of the system clock over the clock; for \
                                  CLOCK_MONOTONIC_RAW and CLOCK_MONOTONIC, since the first \
                                  reading. Frequency: rate of that lead. Bound: error bound, half \
                                  of a reading's duration (median).";

impl DescribeResult for ClockCompareResult {
    fn document(&self) -> ResultDocument<'_> {
        const SHAPES: &str = "Offset and stability";
        let names: Vec<_> = self.clocks.iter().map(|clock| clock.name.as_str()).collect();
        let deviations = self.clocks.iter().filter_map(allan).collect();
        ResultDocument {
            kind: "clock compare",
            heading: format!("system clock versus {}", names.join(", ")),
            lead: format!(
                "{} readings of each, one every {}, started {}",
                full_count(self.count),
                human_ns(self.interval_ns),
                self.started
            ),
            headline: headline(self),
            blocks: vec![
                BlockContent::Table(table(self)).under("Clocks"),
                BlockContent::Shape(Box::new(|style| shapes(self, style))).under("Clocks"),
                BlockContent::Introduction(deviations).under("Clocks"),
                BlockContent::Remarks(steps(self).into_iter().collect()).under("Clocks"),
                BlockContent::Plot(over_time(self), String::new()).under(SHAPES),
                BlockContent::Plot(allan_plot(STABILITY, &stability(self)), String::new())
                    .under(SHAPES),
                BlockContent::Markup(Box::new(|| allan_table(&stability(self))))
                    .under("Allan deviation"),
            ],
            method: METHOD,
            limits: &self.limits,
            findings: &self.findings,
            run: run_of!(self),
        }
    }

    fn embedded(&self) -> Option<Self> {
        let mut result = self.clone();
        for clock in &mut result.clocks {
            if clock.samples.len() > SAMPLES_MAX {
                clock.samples.clear();
            }
        }
        Some(result)
    }

    fn metrics() -> Vec<Metric<Self>> {
        let limited = |(name, statistic): OffsetStatistic| {
            Metric::new(name, LimitUnit::Ns, move |clock: &ComparedClock| {
                // Offsets of a clock with an arbitrary epoch are relative to its first reading,
                // so one reading yields no value.
                let offsets = clock.offset_ns.as_ref();
                let offsets = offsets.filter(|all| !clock.from_first || all.count > 1);
                vec![(String::new(), offsets.and_then(statistic))]
            })
        };
        let compared = Metric::value("offset", |clock: &ComparedClock| {
            known(clock.offset_ns.as_ref().zip(clock.error_bound_ns.as_ref()), |(offset, bound)| {
                MetricValue::Offset(offset.p50 as f64, bound.p50 as f64)
            })
        });
        let metrics = OFFSET_STATISTICS.map(limited).into_iter().chain([compared]);
        of_items(clocks, metrics).collect()
    }
}

judged_by_fields!(ClockCompareResult);

fn clocks(result: &ClockCompareResult) -> NamedItems<'_, ComparedClock> {
    result.clocks.iter().map(|clock| (clock.name.clone(), clock)).collect()
}

/// Name of a statistic of clock offsets, and the function that returns it, in ns; `None` if there
/// are too few offsets.
pub(super) type OffsetStatistic = (&'static str, fn(&ExactSummary) -> Option<f64>);

/// Statistics of clock offsets that can be limited: absolute values.
pub(super) const OFFSET_STATISTICS: [OffsetStatistic; 5] = [
    ("mean", |offsets| Some(offsets.mean.abs())),
    ("stddev", |offsets| (offsets.count > 1).then_some(offsets.stddev)),
    ("rms", |offsets| Some(offsets.rms)),
    ("p99", |offsets| Some(larger_magnitude(offsets.p1, offsets.p99))),
    ("max", |offsets| Some(larger_magnitude(offsets.min, offsets.max))),
];

/// Returns the larger absolute value of two offsets, in ns.
pub(super) fn larger_magnitude(low: i64, high: i64) -> f64 {
    low.unsigned_abs().max(high.unsigned_abs()) as f64
}

/// Returns the mean offset of the system clock from the first clock that could be read.
fn headline(result: &ClockCompareResult) -> HeadlineMetric {
    let read = result.clocks.iter().find_map(|one| Some((one, one.offset_ns.as_ref()?)));
    HeadlineMetric {
        name: "System clock ahead by".to_owned(),
        value: read.map(|(_, offset)| signed_mean_ns(offset.mean)),
        sentence: read.map_or_else(
            || "No clock was readable.".to_owned(),
            |(clock, offset)| {
                let (low, high) = (signed_ns(offset.min), signed_ns(offset.max));
                let count = offset.count;
                format!("Mean of {count} readings against {}; {low} to {high}.", clock.name)
            },
        ),
    }
}

fn table(result: &ClockCompareResult) -> NamedRowTable {
    let row = |clock: &ComparedClock| NamedRow::new(&*clock.name, figures(clock));
    NamedRowTable {
        id: "offsets",
        label: "Offsets",
        names: NameColumn::words("system clock versus", 23).or("versus", 9),
        columns: COLUMNS.map(|(title, width)| (title.into(), width)).to_vec(),
        rows: result.clocks.iter().map(row).collect(),
    }
}

/// Returns the cells of a clock, in the order of [`COLUMNS`].
fn figures(clock: &ComparedClock) -> [String; 7] {
    let absent = || ABSENT.to_owned();
    let [mean, deviation, _, min, .., max] = clock
        .offset_ns
        .map_or_else(|| std::array::from_fn(|_| absent()), |figures| figure_texts(&figures, true));
    let frequency = clock.drift.filter(|drift| drift.ppm.is_finite());
    let error_bound = clock.error_bound_ns.map(|figures| human_ns(figures.p50.unsigned_abs()));
    [
        mean,
        deviation,
        min,
        max,
        frequency.map_or_else(absent, |drift| format!("{:+.4} ppm", drift.ppm)),
        error_bound.unwrap_or_else(absent),
        full_count(clock.samples.len() as u64),
    ]
}

/// Returns sparklines of the offsets over time, and of the Allan deviation.
fn shapes(result: &ClockCompareResult, style: &TableStyle) -> Vec<String> {
    let row = |clock: &ComparedClock| {
        let point = |sample: &ClockSample| (sample.slot as f64, sample.offset_ns as f64);
        let points = clock.samples.iter().map(point).collect();
        SparklineRow {
            name: clock.name.clone(),
            points,
            scale: SparklineScale::Range,
            unit: SparklineUnit::Offset,
        }
    };
    let rows = result.clocks.iter().map(row).collect();
    let last = result.clocks.iter().flat_map(|clock| &clock.samples).map(|one| one.slot).max();
    let planned = last.map_or(0, |last| last.saturating_add(1).max(result.count));
    let interval_ns = result.interval_ns;
    let sparklines = SparklineGroup::over_intervals("offset over time", planned, interval_ns, rows);
    let mut lines = sparklines.lines(style);
    let allan = result.clocks.iter().map(|one| (&*one.name, &one.allan[..]));
    lines.extend(allan_lines(&allan.collect::<Vec<_>>(), style));
    lines
}

fn over_time(result: &ClockCompareResult) -> Plot {
    let interval_s = result.interval_ns as f64 / 1e9;
    let series = |clock: &ComparedClock| {
        let point =
            |sample: &ClockSample| (sample.slot as f64 * interval_s, sample.offset_ns as f64);
        TimeSeriesDrawingLimits::of(interval_s)
            .line(clock.name.clone(), clock.samples.iter().map(point).collect())
    };
    Plot {
        id: "offset",
        title: "Offset over time",
        hint: "Lead of the system clock over each clock.",
        described_by: "offsets",
        x: PlotAxis::ELAPSED,
        y: PlotAxis {
            label: "offset",
            short: "offset",
            unit: PlotUnit::Signed,
            scale: AxisScale::Linear,
        },
        points: false,
        bars: false,
        marks: Vec::new(),
        shown: PlotViews::one(result.clocks.iter().map(series)),
    }
}

fn stability(result: &ClockCompareResult) -> Vec<(&str, &[AllanDeviation])> {
    result.clocks.iter().map(|one| (one.name.as_str(), one.allan.as_slice())).collect()
}

fn allan(clock: &ComparedClock) -> Option<String> {
    Some(format!("Allan deviation, {}: {}", clock.name, allan_text(&clock.allan)?))
}

/// Returns the steps of the system clock; `None` if there were none.
fn steps(result: &ClockCompareResult) -> Option<String> {
    let step = |step: &horolog_record::ClockStep| {
        let at_s = step.slot as f64 * (result.interval_ns as f64 / 1e9);
        format!("{} at {}", signed_ns(step.step_ns), seconds(at_s))
    };
    let shown: Vec<_> = result.steps.iter().take(STEPS_SHOWN).map(step).collect();
    let more = match result.steps.len().saturating_sub(STEPS_SHOWN) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    (!shown.is_empty()).then(|| format!("Steps of the system clock: {}{more}", shown.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::RenderableResult;
    use crate::fixture;

    #[test]
    fn a_narrow_terminal_keeps_every_figure() {
        let text = fixture::sample::<ClockCompareResult>("clock_compare")
            .text(&TableStyle { colour: false, width: 60 });
        for (title, _) in COLUMNS {
            assert!(text.contains(&format!(" {title}")), "{title}: {text}");
        }
        let tables = text.lines().take_while(|line| !line.starts_with("offset over"));
        assert!(tables.clone().count() == 10, "two blocks: {text}");
        assert!(tables.into_iter().all(|line| line.chars().count() <= 60), "{text}");
    }

    #[test]
    fn readings_that_failed_are_a_gap() {
        let mut result: ClockCompareResult = fixture::sample("clock_compare");
        result.clocks.truncate(1);
        result.clocks[0].samples.retain(|sample| !(2..4).contains(&sample.slot));
        let lines = shapes(&result, &TableStyle { colour: false, width: 100 });
        let marks = lines[1].split('|').nth(1).unwrap();
        let gap = marks.len() - marks.replace(' ', "").len();
        assert!((1..=3).contains(&gap) && marks.ends_with('#'), "{lines:?}");
        result.clocks[0].samples.truncate(1);
        assert!(!shapes(&result, &TableStyle::default())[0].starts_with("offset"));
    }
}
