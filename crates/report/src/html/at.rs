//! HTML report of a run at instants: wake-up and start latencies, as figures and as a plot, and the
//! results of the programs.

use horolog_record::{AtResult, Distribution};

use super::PageTemplate;
use super::data::{headed, row};
use super::escape::each;
use super::latency::{PlotTarget, histogram, tail};
use super::sections::{drawn_alone, findings, machine, paragraph, section, verdict};
use crate::table::at::{figures, program, summary};
use crate::units::{full_count, human_ns};

const TABLE: &str = "latency";
const TITLES: [&str; 8] = ["count", "min", "mean", "p50", "p90", "p99", "p99.9", "max"];
const HISTOGRAM: PlotTarget =
    PlotTarget { id: "late-histogram", title: "Histogram of latency", described_by: TABLE };
const TAIL: PlotTarget =
    PlotTarget { id: "late-tail", title: "Latency percentiles", described_by: TABLE };

/// Returns the page as HTML. It holds the whole result as JSON in the element `result`.
#[must_use]
pub fn at(result: &AtResult) -> String {
    let late = late(result);
    // A single instant makes no distribution.
    let (plotted, plots) = match result.every_ns {
        Some(_) => drawn_alone(vec![histogram(&HISTOGRAM, &late), tail(&TAIL, &late)]),
        None => (String::new(), Vec::new()),
    };
    let rows = each(&late, |(name, late)| row(name, figures(late)));
    let table = if rows.is_empty() {
        paragraph("No start time was reached.")
    } else {
        headed(TABLE, "Latency", ("latency", &TITLES), &rows)
    };
    let main = [
        section("Findings", &findings(&result.findings)),
        section("Latency", &(table + &plotted)),
        section("Programs", &each(&result.programs, |one| paragraph(&program(one)))),
        section("Run and host", &machine(&result.command, &result.started, &result.host)),
    ];
    PageTemplate {
        kind: "at",
        failed: None,
        heading: format!("at {}", result.first),
        lead: format!("started {}", result.started),
        verdict: top(result),
        main: main.concat(),
        note: "Latency counts from the start time on the clock that defines it.",
        schema: &result.schema,
        plots,
        result,
    }
    .render()
}

fn late(result: &AtResult) -> Vec<(String, &Distribution)> {
    let all = [("wake-up", &result.woken_late_ns), ("start", &result.started_late_ns)];
    all.into_iter().filter_map(|(name, late)| Some((name.to_owned(), late.as_ref()?))).collect()
}

/// Returns the start latency of the last of the first programs, or the number of instants that were
/// met.
fn top(result: &AtResult) -> String {
    let latest = result.started_late_ns.as_ref().or(result.woken_late_ns.as_ref());
    match latest {
        Some(late) => verdict("Start latency, max", &human_ns(late.max), &summary(result), &[]),
        None => verdict("Start times reached", &full_count(result.met), &summary(result), &[]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use crate::html::main_of;

    #[test]
    fn lateness_is_drawn_where_there_were_several_instants() {
        let mut result = fixture::at();
        assert!(main_of(&at(&result)).contains("plot-late-tail"));
        result.every_ns = None;
        assert!(!main_of(&at(&result)).contains("plot-late-tail"));
        (result.woken_late_ns, result.started_late_ns, result.met) = (None, None, 0);
        let page = at(&result);
        assert!(main_of(&page).contains("No start time was reached"), "{page}");
    }
}
