//! HTML report of the log of a clock's error: offsets and accepted and rejected pulses over time,
//! frequency and corrections, state changes and steps.

use horolog_record::{ClockLogPoint, ClockLogResult, LoggedClock};

use super::data::{row, table};
use super::escape::each;
use super::plot::{AxisScale, Plot, PlotAxis, PlotMark, PlotSeries, PlotUnit, PlotView, PlotViews};
use super::sections::{drawn_alone, section};
use super::time_series::{TimeSeriesSettings, downsample};
use super::{PageTemplate, headline};
use crate::clock_log::{NOTE, clock_name, figures};
use crate::units::{full_count, seconds, signed_mean_ns};

/// Maximum number of state changes that are marked in the plot.
const MARKS_MAX: usize = 24;

/// Function that returns the points of a clock for one line of a plot.
type PointSelector = fn(&LoggedClock) -> &Vec<ClockLogPoint>;

/// Returns the page as HTML. It holds the drawn data as JSON in the element `result`.
#[must_use]
pub fn clock_log(result: &ClockLogResult) -> String {
    let drawn = &without_most_points(result);
    let plots = vec![offsets(drawn), frequencies(drawn)];
    let (plotted, plots) = drawn_alone(plots);
    let rows = each(&result.clocks, |clock| row(&clock_name(clock), figures(clock)));
    let titles = ["lines with an offset", "mean", "deviation", "min", "max", "steps"];
    let main = [
        section("Offset", &table("offsets", "Offsets", &titles, &rows)),
        section("Over time", &plotted),
        section("Pulses", &verdicts(result)),
        section("States and steps", &events(result)),
    ];
    PageTemplate {
        kind: "clock log",
        failed: None,
        heading: result.file.clone(),
        lead: format!("{} lines", full_count(result.lines)),
        verdict: headline::clock_log(result),
        main: main.concat(),
        note: NOTE,
        schema: &result.schema,
        plots,
        result: drawn,
    }
    .render()
}

/// Returns a copy of the result with as many points as a plot can show.
fn without_most_points(result: &ClockLogResult) -> ClockLogResult {
    let mut result = result.clone();
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
    result
}

/// Returns the lines of all clocks, omitting empty ones.
fn series(result: &ClockLogResult, lines: &[(&str, PointSelector)]) -> Vec<PlotSeries> {
    let line = |clock: &LoggedClock, (label, points): &(&str, PointSelector)| {
        let points = points(clock).iter().map(|point| (point.at_s, point.value));
        let label = format!("{}, {label}", clock_name(clock));
        TimeSeriesSettings::UNEVEN.line(label, points.collect())
    };
    let all = result.clocks.iter().flat_map(|clock| lines.iter().map(move |one| line(clock, one)));
    all.filter(|series| !series.points.is_empty()).collect()
}

fn offsets(result: &ClockLogResult) -> Plot {
    let offset: (&str, PointSelector) = ("offset", |clock| &clock.offsets);
    let pulses: [(&str, PointSelector); 2] =
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
    let lines: [(&str, PointSelector); 2] =
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
    use crate::fixture;
    use crate::html::main_of;

    #[test]
    fn offsets_pulses_and_states_are_drawn_and_no_text_becomes_markup() {
        let mut result = fixture::clock_log();
        result.file = "<img src=x>".to_owned();
        let page = clock_log(&result);
        assert!(!page.contains("<img") && page.contains("&lt;img src=x&gt;"));
        for expected in ["plot-offset", "plot-frequency", "outlier", "holdover", "step of -5.00 µs"]
        {
            assert!(page.contains(expected), "{expected}");
        }
        assert!(page.contains("rejected pulses") && page.contains("correction"));
    }

    #[test]
    fn a_long_log_keeps_its_extremes_and_makes_no_large_page() {
        let mut result = fixture::clock_log();
        let point = |at: i32| ClockLogPoint { at_s: f64::from(at), value: f64::from(at % 7) };
        result.clocks[0].offsets = (0..100_000).map(point).collect();
        result.clocks[0].offsets[4_321].value = -9e6;
        let page = clock_log(&result);
        assert!(page.len() < 700_000, "{}", page.len());
        assert!(main_of(&page).contains("<td>100,000</td>"), "figures of all lines");
        let offsets = without_most_points(&result).clocks.remove(0).offsets;
        assert!(offsets.iter().any(|point| point.value < -8e6));
    }

    #[test]
    fn an_empty_log_still_makes_a_page() {
        let result = ClockLogResult { clocks: Vec::new(), lines: 0, ..fixture::clock_log() };
        let page = clock_log(&result);
        let main = main_of(&page);
        assert!(!main.contains("NaN") && !main.contains("plot-"), "{main}");
    }
}
