//! HTML report of a test of an application: response times in each state, injected faults and their
//! detection, and all figures.

use horolog_record::{CycleTestResult, CycleTestRun, Distribution};

use super::data::table_unless_empty;
use super::escape::each;
use super::latency::{PlotTarget, tail};
use super::sections::{PageBody, drawn_alone, findings, limits, machine, paragraph, section};
use super::{PageTemplate, headline};
use crate::cycle_test::{
    FAULTS, METHOD, NODES, Rows, SCORES, SOURCES, STAGES, STATES, TRIALS, fault_rows, heading,
    node_rows, score_rows, score_sentences, sentences, source_rows, stage_rows, state_rows,
    trial_rows,
};
use crate::limits::failed;

const STATES_ID: &str = "states";
const RESPONSE: PlotTarget = PlotTarget {
    id: "response",
    title: "Response time percentiles by state",
    described_by: STATES_ID,
};

/// Returns the page as HTML. It holds the whole result as JSON in the element `result`.
#[must_use]
pub fn cycle_test(result: &CycleTestResult) -> String {
    let body = body(result);
    let run = machine(&result.command, &result.started, &result.host);
    PageTemplate {
        kind: "cycle test",
        failed: failed(&result.limits),
        heading: heading(result),
        lead: format!("started {}", result.started),
        verdict: headline::cycle_test(result),
        main: body.sections() + &section("Run and host", &run),
        note: METHOD,
        schema: &result.schema,
        plots: body.plots,
        result,
    }
    .render()
}

fn body(result: &CycleTestResult) -> PageBody {
    let run = result.run.as_ref();
    let (plotted, plots) = drawn_alone(run.map(plot).into_iter().collect());
    let of = |id, label, titles: (&str, &[&str]), rows: fn(&CycleTestRun) -> Rows| {
        run.map_or_else(String::new, |run| table_unless_empty(id, label, titles, rows(run)))
    };
    let trials = result.search.as_ref().map_or_else(String::new, |search| {
        table_unless_empty("trials", "Runs of the search", ("load", &TRIALS), trial_rows(search))
    });
    let scale = each(score_sentences(result), |line| paragraph(&line));
    let sections = vec![
        ("Limits", limits(&result.limits)),
        ("Findings", findings(&result.findings)),
        ("Summary", each(sentences(result), |line| paragraph(&line))),
        ("Search", trials),
        ("States", of(STATES_ID, "Periods by state", ("state", &STATES), state_rows) + &plotted),
        ("Faults", of("faults", "Injected faults", ("fault", &FAULTS), fault_rows)),
        ("Nodes", of("nodes", "Nodes", ("node", &NODES), node_rows)),
        ("Stages", of("stages", "Stages, means per period", ("stage", &STAGES), stage_rows)),
        ("Sources", of("sources", "Sources of reports", ("source", &SOURCES), source_rows)),
        (
            "Scorecard",
            table_unless_empty("scorecard", "Scorecard", ("scale", &SCORES), score_rows(result))
                + &scale,
        ),
    ];
    PageBody { sections, plots }
}

/// Returns the plot of the response times of the states.
fn plot(run: &CycleTestRun) -> super::plot::Plot {
    let named = |state: &horolog_record::CycleTestState| {
        Some((state.name.clone(), state.response_ns.clone()?))
    };
    let states: Vec<(String, Distribution)> = run.states.iter().filter_map(named).collect();
    let borrowed: Vec<_> = states.iter().map(|(name, one)| (name.clone(), one)).collect();
    tail(&RESPONSE, &borrowed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use crate::html::main_of;

    #[test]
    fn all_is_shown_and_no_text_becomes_markup() {
        let mut result = fixture::cycle_test();
        result.search = Some(fixture::cycle_test_search());
        result.application.name = "<img src=x>".to_owned();
        result.findings[0].message = "<img src=y>".to_owned();
        if let Some(run) = &mut result.run {
            run.states[0].name = "<b>".to_owned();
            run.faults[0].of = Some("<i>".to_owned());
        }
        result.scorecard[0].basis = "<u>".to_owned();
        let page = cycle_test(&result);
        let main = main_of(&page);
        for tag in ["<img", "<b>", "<i>", "<u>"] {
            assert!(!main.contains(tag), "{tag}");
        }
        for id in ["states", "faults", "nodes", "stages", "sources", "scorecard", "trials"] {
            assert!(main.contains(&format!("id=\"{id}\"")), "{id}");
        }
        assert!(main.contains("plot-response") && !main.contains("<thead><tr><td></td>"));
    }

    #[test]
    fn a_result_without_figures_still_makes_a_page() {
        let mut result = fixture::cycle_test();
        result.run = None;
        result.scorecard.clear();
        let page = cycle_test(&result);
        assert!(!main_of(&page).contains("NaN") && !main_of(&page).contains("id=\"faults\""));
    }
}
