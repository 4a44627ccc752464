//! HTML report of a run of wake-ups: histogram, tail and time series of each core, and all figures.

use horolog_record::{Distribution, HostTimerResult, TimerCore};

use super::data::{row, table};
use super::escape::{each, text};
use super::latency::{PlotTarget, histogram, tail, time_axis};
use super::plot::{Axis, AxisScale, Choice, Plot, PlotUnit};
use super::sections::{
    PageBody, command_line, drawn_alone, facts, findings, host_facts, limits, section,
};
use super::time_series::TimeSeriesSettings;
use super::{PageTemplate, headline};
use crate::host::LATENCY_TITLES;
use crate::limits::failed;
use crate::table::host_timer::{LATENCY, cells, facts as sentences};
use crate::units::{full_count, human_ns};

const TABLE: &str = "latencies";
const HISTOGRAM: PlotTarget =
    PlotTarget { id: "wake-ups-histogram", title: "Histogram of latencies", described_by: TABLE };
const TAIL: PlotTarget =
    PlotTarget { id: "wake-ups-tail", title: "Latency percentiles", described_by: TABLE };

/// Returns the page as HTML. It holds the whole result as JSON in the element `result`.
#[must_use]
pub fn host_timer(result: &HostTimerResult) -> String {
    let body = body(result);
    PageTemplate {
        kind: "host timer",
        failed: failed(&result.limits),
        heading: format!("wake-ups every {}", human_ns(result.interval_ns)),
        lead: format!(
            "{} periods on each of {} cores, started {}",
            full_count(result.planned),
            result.cores.len(),
            result.started
        ),
        verdict: headline::host_timer(result),
        main: body.sections() + &section("Run and host", &machine(result)),
        note: LATENCY,
        schema: &result.schema,
        plots: body.plots,
        result,
    }
    .render()
}

/// Returns the content for the result.
pub(super) fn body(result: &HostTimerResult) -> PageBody {
    let cores = distributions(result);
    let plots = vec![histogram(&HISTOGRAM, &cores), tail(&TAIL, &cores), over_time(result)];
    let (plotted, plots) = drawn_alone(plots);
    let rows = each(&result.cores, |core| row(&format!("core {}", core.core), cells(core)));
    let titles = [&["missed"], &LATENCY_TITLES[..]].concat();
    let sections = vec![
        ("Limits", limits(&result.limits)),
        ("Findings", findings(&result.findings)),
        ("Latencies", table(TABLE, "Wake-up latencies", &titles, &rows)),
        ("Distribution and time series", plotted),
        ("Method", each(sentences(result), |line| paragraph(&line))),
    ];
    PageBody { sections, plots }
}

pub(super) fn paragraph(line: &str) -> String {
    format!("<p>{}</p>\n", text(line))
}

fn distributions(result: &HostTimerResult) -> Vec<(String, &Distribution)> {
    let named = |core: &TimerCore| format!("core {}", core.core);
    let of = |core| Some((named(core), core.latency_ns.as_ref()?));
    result.cores.iter().filter_map(of).collect()
}

fn over_time(result: &HostTimerResult) -> Plot {
    let series = |core: &TimerCore| {
        let points = core.series.iter().map(|one| (one.at_s, one.max_ns.max(1) as f64));
        TimeSeriesSettings::EVEN.line(format!("core {}", core.core), points.collect())
    };
    Plot {
        id: "latency-over-time",
        title: "Largest latency over time",
        hint: "Maximum of each group of periods.",
        described_by: TABLE,
        x: Axis { label: "time", short: "time", unit: PlotUnit::Seconds, scale: AxisScale::Linear },
        y: time_axis(),
        points: false,
        bars: false,
        marks: Vec::new(),
        shown: Choice::one(result.cores.iter().map(series)),
    }
}

fn machine(result: &HostTimerResult) -> String {
    let run = facts(&[
        ("Command", Some(command_line(&result.command))),
        ("Started", Some(result.started.clone())),
    ]);
    format!("<div class=\"columns\">\n{run}{}</div>\n", host_facts(&result.host))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn each_core_is_shown_and_no_text_becomes_markup() {
        let mut result = fixture::host_timer();
        result.findings[0].message = "<img src=x>".to_owned();
        result.conditions.idle_driver = Some("<img src=y>".to_owned());
        let page = host_timer(&result);
        assert!(!page.contains("<img"));
        assert!(page.contains("core 1") && page.contains("plot-wake-ups-histogram"));
        assert!(page.contains("SCHED_FIFO at priority 80"));
    }

    #[test]
    fn a_run_without_periods_still_makes_a_page() {
        let mut result = fixture::host_timer();
        for core in &mut result.cores {
            (core.latency_ns, core.series) = (None, Vec::new());
        }
        let page = host_timer(&result);
        let (_, rest) = page.split_once("<main>").unwrap();
        let (main, _) = rest.split_once("</main>").unwrap();
        assert!(!main.contains("NaN") && !main.contains("plot-"), "{main}");
    }
}
