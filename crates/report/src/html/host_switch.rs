//! HTML report of a run of switches: histogram and tail of each exchange, and all figures.

use horolog_record::{Distribution, HostSwitchResult, SwitchExchange};

use super::data::{row, table};
use super::escape::each;
use super::host_timer::paragraph;
use super::latency::{PlotTarget, histogram, tail};
use super::sections::{
    PageBody, command_line, drawn_alone, facts, findings, host_facts, limits, section,
};
use super::{PageTemplate, headline};
use crate::limits::failed;
use crate::table::host_switch::{
    METHOD, exchange_cells, exchange_name, exchange_titles, facts as sentences, steps_rows,
};
use crate::units::full_count;

const TABLE: &str = "exchanges";
const HISTOGRAM: PlotTarget =
    PlotTarget { id: "turns-histogram", title: "Histogram of turns", described_by: TABLE };
const TAIL: PlotTarget =
    PlotTarget { id: "turns-tail", title: "Turn percentiles", described_by: TABLE };

/// Returns the page as HTML. It holds the whole result as JSON in the element `result`.
#[must_use]
pub fn host_switch(result: &HostSwitchResult) -> String {
    let body = body(result);
    PageTemplate {
        kind: "host switch",
        failed: failed(&result.limits),
        heading: "switches between processes and threads".to_owned(),
        lead: format!(
            "{} turns per repetition, started {}",
            full_count(result.turns),
            result.started
        ),
        verdict: headline::host_switch(result),
        main: body.sections() + &section("Run and host", &machine(result)),
        note: METHOD,
        schema: &result.schema,
        plots: body.plots,
        result,
    }
    .render()
}

/// Returns the content for the result.
pub(super) fn body(result: &HostSwitchResult) -> PageBody {
    let turns = distributions(result);
    let plots = vec![histogram(&HISTOGRAM, &turns), tail(&TAIL, &turns)];
    let (plotted, plots) = drawn_alone(plots);
    let exchanges = each(&result.exchanges, |one| row(&exchange_name(one), exchange_cells(one)));
    let sections = vec![
        ("Limits", limits(&result.limits)),
        ("Findings", findings(&result.findings)),
        ("The eight steps", steps(result)),
        ("Exchanges", table(TABLE, "Exchanges", &exchange_titles(), &exchanges)),
        ("Distribution of turns", plotted),
        ("Method", each(sentences(result), |line| paragraph(&line))),
    ];
    PageBody { sections, plots }
}

fn steps(result: &HostSwitchResult) -> String {
    let repetitions = result.steps.iter().map(|steps| steps.repetitions.len()).max().unwrap_or(0);
    let numbers: Vec<String> = (1..=repetitions).map(|number| number.to_string()).collect();
    let titles: Vec<&str> =
        std::iter::once("median").chain(numbers.iter().map(String::as_str)).collect();
    let rows =
        each(&result.steps, |steps| each(steps_rows(steps), |(name, cells)| row(&name, cells)));
    table("steps", "Switches by the eight steps", &titles, &rows)
}

fn distributions(result: &HostSwitchResult) -> Vec<(String, &Distribution)> {
    let of = |one| -> Option<(String, &Distribution)> {
        let exchange: &SwitchExchange = one;
        Some((exchange_name(exchange), exchange.turn_ns.as_ref()?))
    };
    result.exchanges.iter().filter_map(of).collect()
}

fn machine(result: &HostSwitchResult) -> String {
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
    fn both_methods_are_shown_and_no_text_becomes_markup() {
        let mut result = fixture::host_switch();
        result.findings[0].message = "<img src=x>".to_owned();
        let page = host_switch(&result);
        assert!(!page.contains("<img"));
        assert!(page.contains("process switch, each") && page.contains("plot-turns-histogram"));
        assert!(page.contains("futex, process, across cores"));
    }

    #[test]
    fn a_run_without_figures_still_makes_a_page() {
        let mut result = fixture::host_switch();
        result.steps.clear();
        result.exchanges.clear();
        let page = host_switch(&result);
        let (_, rest) = page.split_once("<main>").unwrap();
        let (main, _) = rest.split_once("</main>").unwrap();
        assert!(!main.contains("NaN") && !main.contains("plot-"), "{main}");
    }
}
