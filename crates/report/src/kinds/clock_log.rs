//! Document of the log of a clock's error: one row per clock, its pulses, state changes and steps,
//! and offsets, pulses, frequencies and corrections over time.

use horolog_record::{ClockLogPoint, ClockLogResult, LoggedClock};
use horolog_stats::ExactSummary;

use crate::document::{
    BlockContent, DescribeResult, HeadlineMetric, NameColumn, NamedRow, NamedRowTable,
    ResultDocument, RunFacts,
};
use crate::html::data::{row, table};
use crate::html::escape::each;
use crate::html::plot::{
    AxisScale, Plot, PlotAxis, PlotMark, PlotSeries, PlotUnit, PlotView, PlotViews,
};
use crate::html::time_series::{TimeSeriesDrawingLimits, downsample};
use crate::table::TableStyle;
use crate::table::shapes::{SparklineGroup, SparklineRow, SparklineScale, SparklineUnit};
use crate::units::{ABSENT, full_count, mean_ns, seconds, signed_mean_ns, signed_ns};

const METHOD: &str = "Offset: lead of the system clock, from each line that has one. Time counts \
                      from the first line.";

const TITLES: [&str; 6] = ["offsets", "mean", "deviation", "min", "max", "steps"];
/// Maximum number of state changes that are listed individually.
const STATES_SHOWN: usize = 12;
/// Maximum number of state changes that are marked in the plot.
const MARKS_MAX: usize = 24;

/// Function that returns the points of a clock for one line of a plot.
type LoggedClockPointsSelector = fn(&LoggedClock) -> &Vec<ClockLogPoint>;

impl DescribeResult for ClockLogResult {
    fn document(&self) -> ResultDocument<'_> {
        const OVER_TIME: &str = "Over time";
        let title = format!("{}: {} lines", self.file, full_count(self.lines));
        ResultDocument {
            kind: "clock log",
            heading: self.file.clone(),
            lead: format!("{} lines", full_count(self.lines)),
            headline: headline(self),
            blocks: vec![
                BlockContent::Title(title).under(""),
                BlockContent::Table(offset_table(self)).under("Offset"),
                BlockContent::Shape(Box::new(|style| shapes(self, style))).under("Offset"),
                BlockContent::Introduction(counts(self)).under("Offset"),
                BlockContent::Plot(offsets(self), String::new()).under(OVER_TIME),
                BlockContent::Plot(frequencies(self), String::new()).under(OVER_TIME),
                BlockContent::Markup(Box::new(|| verdicts(self))).under("Pulses"),
                BlockContent::Markup(Box::new(|| events(self))).under("States and steps"),
            ],
            method: METHOD,
            limits: &[],
            findings: &[],
            run: RunFacts::unknown(&self.schema),
        }
    }

    /// Returns a copy with as many points as a plot can show.
    fn embedded(&self) -> Option<Self> {
        let mut result = self.clone();
        for clock in &mut result.clocks {
            for points in [
                &mut clock.offsets,
                &mut clock.believed,
                &mut clock.refused,
                &mut clock.frequencies,
                &mut clock.corrections,
            ] {
                let pairs = points.iter().map(|point| (point.at_s, point.value)).collect();
                let pairs = downsample(pairs).into_iter();
                *points = pairs.map(|(at_s, value)| ClockLogPoint { at_s, value }).collect();
            }
        }
        Some(result)
    }
}

/// Returns the last offset of the clock with the most offsets.
fn headline(result: &ClockLogResult) -> HeadlineMetric {
    let most = result.clocks.iter().max_by_key(|clock| clock.offsets.len());
    let last = most.and_then(|clock| clock.offsets.last());
    HeadlineMetric {
        name: "Last offset".to_owned(),
        value: last.map(|point| signed_mean_ns(point.value)),
        sentence: most.map_or_else(
            || "The log contains no clock.".to_owned(),
            |clock| format!("{}, in the last line with an offset.", clock_name(clock)),
        ),
    }
}

/// Returns the name of the clock with which the system clock is compared.
fn clock_name(clock: &LoggedClock) -> String {
    if clock.name.is_empty() { "pulses".to_owned() } else { clock.name.clone() }
}

fn offset_table(result: &ClockLogResult) -> NamedRowTable {
    let row = |clock| NamedRow::new(clock_name(clock), figures(clock));
    NamedRowTable {
        id: "offsets",
        label: "Offsets",
        names: NameColumn::words("system clock versus", 24).or("versus", 12),
        columns: TITLES.map(|title| (title.into(), 10)).to_vec(),
        rows: result.clocks.iter().map(row).collect(),
    }
}

/// Returns the cells of a clock, in the order of [`TITLES`].
fn figures(clock: &LoggedClock) -> [String; 6] {
    let steps = full_count(clock.steps.len() as u64);
    let absent = || ABSENT.to_owned();
    match ExactSummary::from_values(clock.offsets.iter().map(|point| point.value.round() as i64)) {
        None => ["0".to_owned(), absent(), absent(), absent(), absent(), steps],
        Some(offset) => [
            full_count(offset.count),
            signed_mean_ns(offset.mean),
            if offset.count < 2 { absent() } else { mean_ns(offset.stddev) },
            signed_ns(offset.min),
            signed_ns(offset.max),
            steps,
        ],
    }
}

/// Returns sentences on the pulses and states of the clocks, and on restarts of the host.
fn counts(result: &ClockLogResult) -> Vec<String> {
    let of_clock = |clock: &LoggedClock| {
        let counts = clock.verdicts.iter();
        let counts: Vec<_> =
            counts.map(|(verdict, count)| format!("{verdict} {}", full_count(*count))).collect();
        let states = clock.states.iter().take(STATES_SHOWN);
        let states: Vec<_> =
            states.map(|one| format!("{} from {}", one.state, seconds(one.at_s))).collect();
        let more = match clock.states.len().saturating_sub(STATES_SHOWN) {
            0 => String::new(),
            more => format!(", and {more} more changes"),
        };
        let texts = [counts.join(", "), states.join(", ") + &more];
        let known = texts.into_iter().filter(|text| !text.is_empty());
        known.map(|text| format!("{}: {text}", clock_name(clock))).collect::<Vec<_>>()
    };
    let restarts = format!("{} host restarts.", full_count(result.restarts));
    let restarts = (result.restarts > 0).then_some(restarts);
    result.clocks.iter().flat_map(of_clock).chain(restarts).collect()
}

/// Returns sparklines of offset, frequency and correction over time.
fn shapes(result: &ClockLogResult, style: &TableStyle) -> Vec<String> {
    let row = |name: String, points: &[ClockLogPoint], unit| {
        let points = points.iter().map(|point| (point.at_s, point.value)).collect();
        SparklineRow { name, points, scale: SparklineScale::Range, unit }
    };
    let offset = |clock| row(clock_name(clock), &clock.offsets, SparklineUnit::Offset);
    let offsets = result.clocks.iter().map(offset).collect();
    let frequencies = result.clocks.iter().flat_map(|clock| {
        let name = |what: &str| format!("{}, {what}", clock_name(clock));
        [
            row(name("frequency"), &clock.frequencies, SparklineUnit::Ppb),
            row(name("correction"), &clock.corrections, SparklineUnit::Ppb),
        ]
    });
    let mut lines = SparklineGroup::over_time("offset over time", offsets).lines(style);
    let frequencies = SparklineGroup::over_time("frequency over time", frequencies.collect());
    lines.extend(frequencies.lines(style));
    lines
}

/// Returns the lines of all clocks, omitting empty ones.
fn series(result: &ClockLogResult, lines: &[(&str, LoggedClockPointsSelector)]) -> Vec<PlotSeries> {
    let line = |clock: &LoggedClock, (label, points): &(&str, LoggedClockPointsSelector)| {
        let points = points(clock).iter().map(|point| (point.at_s, point.value));
        let label = format!("{}, {label}", clock_name(clock));
        TimeSeriesDrawingLimits::UNEVEN.line(label, points.collect())
    };
    let all = result.clocks.iter().flat_map(|clock| lines.iter().map(move |one| line(clock, one)));
    all.filter(|series| !series.points.is_empty()).collect()
}

fn offsets(result: &ClockLogResult) -> Plot {
    let offset: (&str, LoggedClockPointsSelector) = ("offset", |clock| &clock.offsets);
    let pulses: [(&str, LoggedClockPointsSelector); 2] =
        [("accepted pulses", |clock| &clock.believed), ("rejected pulses", |clock| &clock.refused)];
    let states = result.clocks.iter().flat_map(|clock| &clock.states);
    let marks = states.take(MARKS_MAX).map(|state| PlotMark {
        axis: "x",
        at: state.at_s,
        label: state.state.clone(),
    });
    let all = [offset, pulses[0], pulses[1]];
    Plot {
        id: "offset",
        title: "Offset over time",
        hint: "Lead of the system clock. Vertical lines are state changes.",
        described_by: "offsets",
        x: PlotAxis::ELAPSED,
        y: PlotAxis {
            label: "offset",
            short: "offset",
            unit: PlotUnit::Signed,
            scale: AxisScale::Linear,
        },
        points: true,
        bars: false,
        marks: marks.collect(),
        shown: PlotViews {
            chooser: "show",
            view: 0,
            views: vec![
                PlotView { label: "offset".into(), series: series(result, &[offset]) },
                PlotView { label: "with pulses".into(), series: series(result, &all) },
            ],
        },
    }
}

fn frequencies(result: &ClockLogResult) -> Plot {
    let lines: [(&str, LoggedClockPointsSelector); 2] =
        [("frequency", |clock| &clock.frequencies), ("correction", |clock| &clock.corrections)];
    Plot {
        id: "frequency",
        title: "Frequency and its correction",
        hint: "Parts per billion: frequency error without correction, and the correction.",
        described_by: "offsets",
        x: PlotAxis::ELAPSED,
        y: PlotAxis { label: "ppb", short: "ppb", unit: PlotUnit::Count, scale: AxisScale::Linear },
        points: false,
        bars: false,
        marks: Vec::new(),
        shown: PlotViews::one(series(result, &lines)),
    }
}

fn verdicts(result: &ClockLogResult) -> String {
    let rows = each(&result.clocks, |clock| {
        each(&clock.verdicts, |(verdict, count)| row(verdict, [full_count(*count)]))
    });
    if rows.is_empty() { rows } else { table("pulses", "Pulses", &["pulses"], &rows) }
}

fn events(result: &ClockLogResult) -> String {
    let rows = each(&result.clocks, |clock| {
        let states = each(&clock.states, |state| row(&state.state, [seconds(state.at_s)]));
        let steps = each(&clock.steps, |step| {
            row(&format!("step of {}", signed_mean_ns(step.value)), [seconds(step.at_s)])
        });
        states + &steps
    });
    if rows.is_empty() { rows } else { table("events", "States and steps", &["time"], &rows) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::RenderableResult;
    use crate::fixture;
    use crate::html::main_of;

    #[test]
    fn a_narrow_terminal_keeps_every_figure() {
        let text = fixture::sample::<ClockLogResult>("clock_log")
            .text(&TableStyle { colour: false, width: 60 });
        assert!(text.contains("versus") && text.contains(" steps"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 60), "{text}");
    }

    #[test]
    fn a_value_logged_once_is_no_series() {
        let mut result: ClockLogResult = fixture::sample("clock_log");
        result.clocks[0].offsets.truncate(1);
        result.clocks[0].corrections.clear();
        let lines = shapes(&result, &TableStyle { colour: false, width: 80 });
        assert!(lines.len() == 2 && lines[1].starts_with("  pulses, frequency |"), "{lines:?}");
    }

    #[test]
    fn offsets_pulses_and_states_are_drawn_and_no_text_becomes_markup() {
        let mut result: ClockLogResult = fixture::sample("clock_log");
        result.file = "<img src=x>".to_owned();
        let page = result.page();
        assert!(!page.contains("<img") && page.contains("&lt;img src=x&gt;"));
        for expected in ["plot-offset", "plot-frequency", "outlier", "holdover", "step of -5.00 µs"]
        {
            assert!(page.contains(expected), "{expected}");
        }
        assert!(page.contains("rejected pulses") && page.contains("correction"));
    }

    #[test]
    fn a_long_log_keeps_its_extremes_and_makes_no_large_page() {
        let mut result: ClockLogResult = fixture::sample("clock_log");
        let point = |at: i32| ClockLogPoint { at_s: f64::from(at), value: f64::from(at % 7) };
        result.clocks[0].offsets = (0..100_000).map(point).collect();
        result.clocks[0].offsets[4_321].value = -9e6;
        let page = result.page();
        assert!(page.len() < 700_000, "{}", page.len());
        assert!(main_of(&page).contains("<td>100,000</td>"), "figures of all lines");
        let offsets = result.embedded().unwrap().clocks.remove(0).offsets;
        assert!(offsets.iter().any(|point| point.value < -8e6));
    }

    #[test]
    fn an_empty_log_still_makes_a_page() {
        let result =
            ClockLogResult { clocks: Vec::new(), lines: 0, ..fixture::sample("clock_log") };
        let page = result.page();
        let main = main_of(&page);
        assert!(!main.contains("NaN") && !main.contains("plot-"), "{main}");
    }
}
