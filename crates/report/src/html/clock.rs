//! HTML report of a clock's simulation: the error of both methods over time, their Allan
//! deviations, and all figures.

use horolog_record::{AllanDeviation, ClockMethod, ClockResult};

use super::data::{row, table};
use super::escape::each;
use super::plot::{Axis, AxisScale, Choice, Plot, PlotUnit};
use super::sections::{
    columns, command_line, drawn_alone, facts, findings, host_facts, limits, paragraph, section,
};
use super::stability::{allan_plot, allan_table};
use super::time_series::TimeSeriesSettings;
use super::{PageTemplate, headline};
use crate::clock::{DEFINITION, LITERATURE, conditions, counts, long_time, method_name, outage};
use crate::limits::failed;
use crate::table::query::{figure_texts, seconds};
use crate::units::{ABSENT, full_count};

/// Distance from 0 up to which the scale of the plot is linear, in ns.
const KNEE_NS: f64 = 100.0;

const STABILITY: &str = "Overlapping, of the clock's error in service (NIST SP 1065). Slope −1 \
                         where the clock follows the pulses.";

/// Returns the page as HTML. It holds the whole result as JSON in the element `result`.
#[must_use]
pub fn clock(result: &ClockResult) -> String {
    let plots = vec![over_time(result), allan_plot(STABILITY, &stability(result))];
    let (figures, plots) = drawn_alone(plots);
    let main = [
        section("Limits", &limits(&result.limits)),
        section("Findings", &findings(&result.findings)),
        section("Error", &errors(result)),
        section("Over time", &figures),
        section("Outages", &outages(result)),
        section("Pulses and sentences", &each(counts(result), |line| paragraph(&line))),
        section("Allan deviation", &allan_table(&stability(result))),
        section("Simulation and host", &machine(result)),
    ];
    PageTemplate {
        kind: "clock simulate",
        failed: failed(&result.limits),
        heading: format!("{}, {}", result.oscillator.name, long_time(result.duration_s)),
        lead: format!("Seed {}: {}", result.seed, conditions(result)),
        verdict: headline::clock(result),
        main: main.concat(),
        note: DEFINITION,
        schema: &result.schema,
        plots,
        result,
    }
    .render()
}

/// Returns the plot of each clock's error, the largest in each group of points.
fn over_time(result: &ClockResult) -> Plot {
    let series = |method: &ClockMethod| {
        let points = method.series.iter().map(|stretch| {
            let worst = stretch.min_ns.unsigned_abs().max(stretch.max_ns.unsigned_abs());
            (stretch.begin_s as f64, worst as f64)
        });
        TimeSeriesSettings::EVEN.line(method_name(method.kind).to_owned(), points.collect())
    };
    Plot {
        id: "error",
        title: "Error over time",
        hint: "Largest absolute error of each interval. The axis is linear up to 100 ns.",
        described_by: "errors",
        x: Axis { label: "time", short: "time", unit: PlotUnit::Seconds, scale: AxisScale::Linear },
        y: Axis {
            label: "error",
            short: "error",
            unit: PlotUnit::Ns,
            scale: AxisScale::Knee { knee: KNEE_NS },
        },
        points: false,
        bars: false,
        marks: Vec::new(),
        shown: Choice::one(result.methods.iter().map(series)),
    }
}

/// Returns the methods with their Allan deviations.
fn stability(result: &ClockResult) -> Vec<(&str, &[AllanDeviation])> {
    result.methods.iter().map(|one| (method_name(one.kind), one.allan.as_slice())).collect()
}

fn errors(result: &ClockResult) -> String {
    const TITLES: [&str; 11] =
        ["seconds", "mean", "deviation", "RMS", "min", "p1", "p5", "p50", "p95", "p99", "max"];
    let rows = each(&result.methods, |method| {
        let cells = match &method.error_ns {
            Some(figures) => std::iter::once(full_count(figures.count))
                .chain(figure_texts(figures, true))
                .collect(),
            None => vec![ABSENT.to_owned(); TITLES.len()],
        };
        row(method_name(method.kind), cells)
    });
    let lock = result.locked_after_s.map_or_else(
        || "The servo never locked.".to_owned(),
        |seconds| format!("The servo locked after {}.", long_time(seconds)),
    );
    let table = table("errors", "Clock error", &TITLES, &rows);
    [paragraph(&lock), table, paragraph(LITERATURE)].concat()
}

fn outages(result: &ClockResult) -> String {
    each(&result.methods, |method| {
        each(&method.outages, |one| paragraph(&outage(method, one, result.duration_s)))
    })
}

fn machine(result: &ClockResult) -> String {
    let oscillator = &result.oscillator;
    let ppb = |value: f64| Some(format!("{value} ppb"));
    let run = facts(&[
        ("Command", Some(command_line(&result.command))),
        ("Started", Some(result.started.clone())),
        ("Clock", Some(if result.steered { "steered" } else { "estimated only" }.to_owned())),
    ]);
    let oscillator = facts(&[
        ("Oscillator", Some(oscillator.name.clone())),
        ("Frequency", ppb(oscillator.frequency_ppb)),
        ("White FM at 1 s", ppb(oscillator.white_fm_ppb)),
        ("Flicker FM", ppb(oscillator.flicker_fm_ppb)),
        ("Random walk FM at 1 s", ppb(oscillator.random_walk_fm_ppb)),
        ("Ageing per day", ppb(oscillator.ageing_ppb_per_day)),
        (
            "Temperature",
            Some(format!(
                "± {} ppb in {}",
                oscillator.temperature_ppb,
                seconds(oscillator.temperature_period_s)
            )),
        ),
    ]);
    columns(&[run, oscillator, host_facts(&result.host)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use crate::html::main_of;

    #[test]
    fn both_methods_are_shown_and_the_literature_is_no_rival() {
        let page = clock(&fixture::clock());
        assert!(page.contains("set at each pulse") && page.contains("6.93 µs"));
        assert!(page.contains("not comparable with a simulation"));
        assert!(page.contains("recovered 22 s after its end") && page.contains("not recovered"));
    }

    #[test]
    fn a_clock_that_was_never_locked_still_makes_a_page() {
        let mut result = fixture::clock();
        result.locked_after_s = None;
        for method in &mut result.methods {
            (method.error_ns, method.allan, method.series) = (None, Vec::new(), Vec::new());
        }
        let page = clock(&result);
        let main = main_of(&page);
        assert!(main.contains("never locked") && !main.contains("plot-"), "{main}");
    }
}
