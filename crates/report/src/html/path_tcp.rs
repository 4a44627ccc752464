//! HTML report of a measurement of TCP: latency and bandwidth over the size of messages, and all
//! figures.

use horolog_record::{Distribution, PathTcpResult, TcpDirection};

use super::data::{row, table};
use super::escape::each;
use super::plot::{Axis, AxisScale, Choice, Plot, PlotSeries, PlotUnit};
use super::sections::{
    columns, command_line, drawn_alone, facts, findings, host_facts, limits, section,
};
use super::{PageTemplate, headline};
use crate::limits::failed;
use crate::table::path_tcp::{DEFINITION, bandwidth, end, latency, settings, target, way};
use crate::units::full_count;

const LATENCY: [&str; 12] = [
    "mean",
    "p50",
    "p90",
    "p99",
    "p99.9",
    "max",
    "round trips",
    "cwnd",
    "mss",
    "rtt",
    "retrans",
    "ato",
];
const BANDWIDTH: [&str; 9] =
    ["rate", "bits", "messages", "bytes", "cwnd", "mss", "rtt", "retrans", "copied"];

/// Returns the page as HTML. It holds the whole result as JSON in the element `result`.
#[must_use]
pub fn path_tcp(result: &PathTcpResult) -> String {
    let plots = vec![latency_plot(result), bandwidth_plot(result)];
    let (plotted, plots) = drawn_alone(plots);
    let main = [
        section("Limits", &limits(&result.limits)),
        section("Findings", &findings(&result.findings)),
        section("Latency", &latencies(result)),
        section("Bandwidth", &bandwidths(result)),
        section("By message size", &plotted),
        section("Ends and host", &ends(result)),
    ];
    PageTemplate {
        kind: "path tcp",
        failed: failed(&result.limits),
        heading: format!("TCP to {}", target(&result.target)),
        lead: format!("{}, started {}", settings(result), result.started),
        verdict: headline::path_tcp(result),
        main: main.concat(),
        note: DEFINITION,
        schema: &result.schema,
        plots,
        result,
    }
    .render()
}

fn latencies(result: &PathTcpResult) -> String {
    if result.latency.is_empty() {
        return String::new();
    }
    let rows = each(&result.latency, |one| {
        row(&format!("{} B", full_count(one.size_bytes)), latency(one))
    });
    table("latencies", "Latency", &LATENCY, &rows)
}

fn bandwidths(result: &PathTcpResult) -> String {
    if result.bandwidth.is_empty() {
        return String::new();
    }
    let rows = each(&result.bandwidth, |one| {
        let name = format!("{} B {}", full_count(one.size_bytes), way(one.direction));
        row(&name, bandwidth(one))
    });
    table("bandwidths", "Bandwidth", &BANDWIDTH, &rows)
}

fn sizes() -> Axis {
    Axis {
        label: "message size, bytes",
        short: "size",
        unit: PlotUnit::Count,
        scale: AxisScale::Log,
    }
}

fn latency_plot(result: &PathTcpResult) -> Plot {
    let series = |label: &str, of: fn(&Distribution) -> u64| {
        let points = result.latency.iter().filter_map(|row| {
            let ns = of(row.rtt_ns.as_ref()?) as f64 / 2.0;
            // A logarithmic axis has no position for values that are not positive.
            (row.size_bytes > 0 && ns > 0.0).then_some((row.size_bytes as f64, ns))
        });
        PlotSeries::new(label.to_owned(), points.collect())
    };
    Plot {
        id: "latency",
        title: "Latency",
        hint: "Half a round trip.",
        described_by: "latencies",
        x: sizes(),
        y: Axis { label: "latency", short: "latency", unit: PlotUnit::Ns, scale: AxisScale::Log },
        points: true,
        bars: false,
        marks: Vec::new(),
        shown: Choice::one([
            series("p50", |times| times.p50),
            series("p99", |times| times.p99),
            series("p99.9", |times| times.p99_9),
        ]),
    }
}

fn bandwidth_plot(result: &PathTcpResult) -> Plot {
    let series = |direction: TcpDirection| {
        let rows = result.bandwidth.iter().filter(|row| row.direction == direction);
        let points = rows.filter(|row| row.size_bytes > 0 && row.rate > 0.0);
        let points = points.map(|row| (row.size_bytes as f64, row.rate)).collect();
        PlotSeries::new(way(direction).to_owned(), points)
    };
    Plot {
        id: "bandwidth",
        title: "Bandwidth",
        hint: "Bytes per second received.",
        described_by: "bandwidths",
        x: sizes(),
        y: Axis {
            label: "bytes per second",
            short: "rate",
            unit: PlotUnit::Rate,
            scale: AxisScale::Log,
        },
        points: true,
        bars: false,
        marks: Vec::new(),
        shown: Choice::one([TcpDirection::Forward, TcpDirection::Backward].map(series)),
    }
}

fn ends(result: &PathTcpResult) -> String {
    let run = facts(&[
        ("Near end", Some(end(Some(&result.near)))),
        ("Far end", Some(end(result.far.as_ref()))),
        ("Command", Some(command_line(&result.command))),
        ("Started", Some(result.started.clone())),
    ]);
    columns(&[run, host_facts(&result.host)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use crate::html::main_of;

    #[test]
    fn sizes_are_shown_and_no_fact_becomes_markup() {
        let mut result = fixture::path_tcp();
        result.far.as_mut().unwrap().cpu = Some("<img src=x>".to_owned());
        let page = path_tcp(&result);
        assert!(!page.contains("<img") && page.contains("&lt;img src=x&gt;"));
        assert!(page.contains("plot-latency") && page.contains("plot-bandwidth"));
    }

    #[test]
    fn a_run_without_rows_still_makes_a_page() {
        let mut result = fixture::path_tcp();
        result.latency.clear();
        result.bandwidth.clear();
        result.far = None;
        let page = path_tcp(&result);
        let main = main_of(&page);
        assert!(!main.contains("NaN") && !main.contains("plot-"), "{main}");
    }
}
