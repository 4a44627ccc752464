//! The page of a run at instants: how late it woke and started, as figures and as a plot, and what
//! became of the programs.

use horolog_record::{AtResult, Distribution};

use super::Page;
use super::data::{headed, row};
use super::escape::each;
use super::latency::{Place, histogram, tail};
use super::sections::{drawn_alone, findings, machine, paragraph, section, verdict};
use crate::table::at::{figures, program, summary};
use crate::units::{full_count, human_ns};

const TABLE: &str = "lateness";
const TITLES: [&str; 8] = ["count", "min", "mean", "p50", "p90", "p99", "p99.9", "max"];
const HISTOGRAM: Place =
    Place { id: "late-histogram", title: "Histogram of lateness", described_by: TABLE };
const TAIL: Place = Place { id: "late-tail", title: "Lateness by rarity", described_by: TABLE };

/// The page as HTML. It holds the whole result as JSON in the element `result`.
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
        paragraph("No instant was met.")
    } else {
        headed(TABLE, "Lateness", ("late", &TITLES), &rows)
    };
    let main = [
        section("Findings", &findings(&result.findings)),
        section("Lateness", &(table + &plotted)),
        section("Programs", &each(&result.programs, |one| paragraph(&program(one)))),
        section("Run and machine", &machine(&result.command, &result.started, &result.host)),
    ];
    Page {
        kind: "at",
        failed: None,
        heading: format!("at {}", result.first),
        lead: format!("started {}", result.started),
        verdict: top(result),
        main: main.concat(),
        note: "Lateness is counted from the instant on the clock that tells it.",
        schema: &result.schema,
        plots,
        result,
    }
    .render()
}

fn late(result: &AtResult) -> Vec<(String, &Distribution)> {
    let all = [("woken", &result.woken_late_ns), ("started", &result.started_late_ns)];
    all.into_iter().filter_map(|(name, late)| Some((name.to_owned(), late.as_ref()?))).collect()
}

/// How late the last of the first programs began, or how many instants were met.
fn top(result: &AtResult) -> String {
    let latest = result.started_late_ns.as_ref().or(result.woken_late_ns.as_ref());
    match latest {
        Some(late) => verdict("Late at most", &human_ns(late.max), &summary(result), &[]),
        None => verdict("Instants met", &full_count(result.met), &summary(result), &[]),
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
        assert!(main_of(&page).contains("No instant was met"), "{page}");
    }
}
