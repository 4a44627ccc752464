//! HTML report of a comparison of clocks: offsets over time, Allan deviations, and all figures.

use horolog_record::{AllanDeviation, ClockCompareResult, ClockSample, ComparedClock};

use super::data::{row, table};
use super::escape::each;
use super::plot::{Axis, AxisScale, Choice, Plot, PlotUnit};
use super::sections::{drawn_alone, findings, limits, machine, paragraph, section};
use super::stability::{allan_plot, allan_table};
use super::time_series::TimeSeriesSettings;
use super::{PageTemplate, headline};
use crate::limits::failed;
use crate::table::clock_compare::{OFFSETS, figures, steps};
use crate::units::{full_count, human_ns};

/// Maximum number of samples of a clock that are retained in the page's copy of the result.
const SAMPLES_MAX: usize = 1_000;

const STABILITY: &str = "Overlapping, of the offset. Slope −1 indicates reading noise; a rise \
                         indicates wander.";

/// Returns the page as HTML. It holds the result as JSON in the element `result`, without the
/// samples of clocks that have more than a thousand: those are in the result file.
#[must_use]
pub fn clock_compare(result: &ClockCompareResult) -> String {
    let plots = vec![over_time(result), allan_plot(STABILITY, &stability(result))];
    let (plotted, plots) = drawn_alone(plots);
    let stepped = steps(result).map_or_else(String::new, |line| paragraph(&line));
    let rows = each(&result.clocks, |clock| row(&clock.name, figures(clock)));
    let titles = ["mean", "deviation", "min", "max", "frequency", "± bound", "readings"];
    let main = [
        section("Limits", &limits(&result.limits)),
        section("Findings", &findings(&result.findings)),
        section("Clocks", &(table("offsets", "Offsets", &titles, &rows) + &stepped)),
        section("Offset and stability", &plotted),
        section("Allan deviation", &allan_table(&stability(result))),
        section("Run and host", &machine(&result.command, &result.started, &result.host)),
    ];
    let names: Vec<_> = result.clocks.iter().map(|clock| clock.name.as_str()).collect();
    PageTemplate {
        kind: "clock compare",
        failed: failed(&result.limits),
        heading: format!("system clock versus {}", names.join(", ")),
        lead: format!(
            "{} readings of each, one every {}, started {}",
            full_count(result.count),
            human_ns(result.interval_ns),
            result.started
        ),
        verdict: headline::clock_compare(result),
        main: main.concat(),
        note: OFFSETS,
        schema: &result.schema,
        plots,
        result: &without_most_samples(result),
    }
    .render()
}

fn without_most_samples(result: &ClockCompareResult) -> ClockCompareResult {
    let mut result = result.clone();
    for clock in &mut result.clocks {
        if clock.samples.len() > SAMPLES_MAX {
            clock.samples.clear();
        }
    }
    result
}

fn over_time(result: &ClockCompareResult) -> Plot {
    let interval_s = result.interval_ns as f64 / 1e9;
    let series = |clock: &ComparedClock| {
        let point =
            |sample: &ClockSample| (sample.slot as f64 * interval_s, sample.offset_ns as f64);
        TimeSeriesSettings::of(interval_s)
            .line(clock.name.clone(), clock.samples.iter().map(point).collect())
    };
    Plot {
        id: "offset",
        title: "Offset over time",
        hint: "Lead of the system clock over each clock.",
        described_by: "offsets",
        x: Axis { label: "time", short: "time", unit: PlotUnit::Seconds, scale: AxisScale::Linear },
        y: Axis {
            label: "offset",
            short: "offset",
            unit: PlotUnit::Signed,
            scale: AxisScale::Linear,
        },
        points: false,
        bars: false,
        marks: Vec::new(),
        shown: Choice::one(result.clocks.iter().map(series)),
    }
}

fn stability(result: &ClockCompareResult) -> Vec<(&str, &[AllanDeviation])> {
    result.clocks.iter().map(|one| (one.name.as_str(), one.allan.as_slice())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use crate::html::main_of;

    #[test]
    fn all_clocks_are_shown_and_no_name_becomes_markup() {
        let mut result = fixture::clock_compare();
        result.clocks[0].name = "<img src=x>".to_owned();
        let page = clock_compare(&result);
        assert!(!page.contains("<img") && page.contains("&lt;img src=x&gt;"));
        assert!(page.contains("/dev/pps0") && page.contains("plot-offset"));
        assert!(page.contains("-1.50 ms at 17 s"));
    }

    #[test]
    fn clocks_without_a_reading_still_make_a_page() {
        let mut result = fixture::clock_compare();
        result.clocks.drain(..2);
        let page = clock_compare(&result);
        let main = main_of(&page);
        assert!(!main.contains("NaN") && !main.contains("plot-"), "{main}");
    }
}
