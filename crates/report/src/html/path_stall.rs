//! HTML report of a search for stalls: times of exchanges by pattern and option, published claims
//! on stalls compared with them, and all figures.

use horolog_record::{PathStallResult, SocketOption, StallCell, StallPattern};

use super::data::{row, table};
use super::escape::each;
use super::plot::{Axis, AxisScale, Choice, Plot, PlotSeries, PlotUnit};
use super::sections::{
    columns, command_line, drawn_alone, facts, findings, host_facts, limits, paragraph, section,
};
use super::{PageTemplate, headline};
use crate::limits::failed;
use crate::stall;
use crate::table::path_tcp::{end, target};

/// Returns the page as HTML. It holds the whole result as JSON in the element `result`.
#[must_use]
pub fn path_stall(result: &PathStallResult) -> String {
    let (plotted, plots) = drawn_alone(vec![batches(result)]);
    let main = [
        section("Limits", &limits(&result.limits)),
        section("Findings", &findings(&result.findings)),
        section("Patterns", &cells(result)),
        section("Batches", &plotted),
        section("Claims about stalls", &claims(result)),
        section("Observed connections", &watched(result)),
        section("Kernel, ends and host", &ends(result)),
    ];
    let heading = match (&result.target, &result.watched) {
        (Some(far), _) => format!("Stalls of TCP to {}", target(far)),
        (None, Some(watch)) => format!("Stalls at port {}", watch.port),
        (None, None) => "Stalls of TCP".to_owned(),
    };
    PageTemplate {
        kind: "path stall",
        failed: failed(&result.limits),
        heading,
        lead: format!("{}; started {}", stall::evidence(result), result.started),
        verdict: headline::path_stall(result),
        main: main.concat(),
        note: stall::DEFINITION,
        schema: &result.schema,
        plots,
        result,
    }
    .render()
}

fn cells(result: &PathStallResult) -> String {
    if result.cells.is_empty() {
        return String::new();
    }
    let rows = each(&result.cells, |cell| {
        row(&format!("{}; {}", stall::pattern(cell), stall::option(cell.option)), stall::cell(cell))
    });
    let lines = stall::packets(result).into_iter().chain(stall::window(result));
    let lines = each(lines, |line| paragraph(&line));
    table("cells", "Patterns", &stall::COLUMNS, &rows) + &lines
}

/// Returns the plot of the median exchange of each batch, under each option.
fn batches(result: &PathStallResult) -> Plot {
    let options = [
        SocketOption::None,
        SocketOption::NoDelay,
        SocketOption::QuickAckOnce,
        SocketOption::QuickAckEach,
        SocketOption::Cork,
    ];
    let series = |option: SocketOption| {
        let of = |cell: &&StallCell| cell.pattern == StallPattern::Batch && cell.option == option;
        let points = result.cells.iter().filter(of).filter_map(|cell| {
            let p50 = cell.exchange_ns.as_ref()?.p50;
            (p50 > 0).then_some((f64::from(cell.writes), p50 as f64))
        });
        let label = if option == SocketOption::None { "no option" } else { stall::option(option) };
        PlotSeries::new(label.to_owned(), points.collect())
    };
    Plot {
        id: "batches",
        title: "Batches",
        hint: "Median time of N small writes and N reads.",
        described_by: "cells",
        x: Axis {
            label: "writes",
            short: "writes",
            unit: PlotUnit::Count,
            scale: AxisScale::Linear,
        },
        y: Axis { label: "exchange", short: "time", unit: PlotUnit::Ns, scale: AxisScale::Log },
        points: true,
        bars: false,
        marks: Vec::new(),
        shown: Choice::one(options.map(series)),
    }
}

fn claims(result: &PathStallResult) -> String {
    if result.claims.is_empty() {
        return String::new();
    }
    let rows = each(&result.claims, |claim| {
        row(&claim.statement, [stall::held(claim.holds).to_owned(), claim.evidence.clone()])
    });
    table("claims", "Claims about stalls", &["here", "value"], &rows)
}

fn watched(result: &PathStallResult) -> String {
    let Some(watch) = &result.watched else { return String::new() };
    let rows = each(&watch.connections, |one| row(&one.server, stall::connection(one)));
    let line = paragraph(&stall::watched(watch));
    table("watched", "Observed connections", &stall::WATCHED_COLUMNS, &rows) + &line
}

fn ends(result: &PathStallResult) -> String {
    let run = facts(&[
        ("Kernel settings", Some(stall::kernel(&result.kernel))),
        ("Near end", Some(end(Some(&result.near)))),
        ("Far end", result.target.as_ref().map(|_| end(result.far.as_ref()))),
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
    fn patterns_and_claims_are_shown_and_nothing_becomes_markup() {
        let mut result = fixture::path_stall();
        result.claims[0].evidence = "<img src=x>".to_owned();
        let page = path_stall(&result);
        assert!(!page.contains("<img") && page.contains("&lt;img src=x&gt;"));
        assert!(page.contains("plot-batches") && page.contains("Nagle + delayed ACK"));
        assert!(page.contains("192.0.2.9:443"));
    }

    #[test]
    fn a_run_without_cells_still_makes_a_page() {
        let mut result = fixture::path_stall();
        result.cells.clear();
        result.target = None;
        result.watched = None;
        let page = path_stall(&result);
        let main = main_of(&page);
        assert!(!main.contains("NaN") && !main.contains("plot-"), "{main}");
    }
}
