//! Test of an application: states, faults, nodes, stages, sources, the search, and the scorecard.

use horolog_record::CycleTestResult;

use super::TableStyle;
use super::grid::{Column, Tone, blocks};
use super::shapes::distributions;
use super::summary::footer;
use crate::cycle_test::{
    FAULTS, METHOD, NODES, Rows, SCORES, SOURCES, STAGES, STATES, TRIALS, fault_rows, heading,
    node_rows, score_rows, score_sentences, sentences, source_rows, stage_rows, state_rows,
    trial_rows,
};

const NAME_WIDTH: usize = 20;
const SCORE_WIDTH: usize = 36;
const NARROW: usize = 12;
const CELL_WIDTH: usize = 10;
const WIDE: usize = 12;

/// Returns the lines for the terminal, without a newline at the end.
#[must_use]
pub fn cycle_test(result: &CycleTestResult, style: &TableStyle) -> String {
    let mut lines = vec![Tone::Strong.paint(&heading(result), style.colour)];
    let mut block = |name: &'static str, titles: &[&'static str], rows: &Rows, width: usize| {
        if rows.is_empty() {
            return;
        }
        lines.push(String::new());
        let cells = |title: &&'static str| {
            Column::right(title, if *title == "grade" { WIDE } else { CELL_WIDTH })
        };
        let columns: Vec<Column<'static>> = titles.iter().map(cells).collect();
        let names = [Column::left(name, width), Column::left(name, NARROW)];
        lines.extend(blocks(names, &columns, rows, style));
    };
    if let Some(search) = &result.search {
        block("load", &TRIALS, &trial_rows(search), NAME_WIDTH);
    }
    if let Some(run) = &result.run {
        block("state", &STATES, &state_rows(run), NAME_WIDTH);
        block("fault", &FAULTS, &fault_rows(run), NAME_WIDTH);
        block("node", &NODES, &node_rows(run), NAME_WIDTH);
        block("stage", &STAGES, &stage_rows(run), NAME_WIDTH);
        block("source", &SOURCES, &source_rows(run), NAME_WIDTH);
    }
    block("scorecard", &SCORES, &score_rows(result), SCORE_WIDTH);
    lines.push(String::new());
    let states = result.run.iter().flat_map(|run| &run.states);
    let states = states.filter_map(|one| Some((one.name.clone(), one.response_ns.as_ref()?)));
    let drawn = distributions("response by state", &states.collect::<Vec<_>>(), style);
    if !drawn.is_empty() {
        lines.extend(drawn);
        lines.push(String::new());
    }
    let method = score_sentences(result).into_iter().chain([METHOD.to_owned()]);
    let limits_and_findings = (&result.limits[..], &result.findings[..]);
    lines.extend(footer(sentences(result), method, limits_and_findings, style));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn output_matches_the_expected_text() {
        let style = TableStyle { colour: false, width: 100 };
        let text = cycle_test(&fixture::cycle_test(), &style);
        assert_eq!(text, include_str!("cycle_test.txt").trim_end(), "\n{text}");
    }

    #[test]
    fn nothing_at_all_is_no_error_and_a_search_is_reported() {
        let mut result = fixture::cycle_test();
        result.search = Some(fixture::cycle_test_search());
        let text = cycle_test(&result, &TableStyle::default());
        assert!(text.starts_with("command and control: load 1.250 without a miss"), "{text}");
        assert!(text.contains("Largest load without a miss 1.250, smallest with misses"));
        (result.run, result.search) = (None, None);
        result.scorecard.clear();
        let text = cycle_test(&result, &TableStyle::default());
        assert!(text.starts_with("command and control: no run") && !text.contains("NaN"), "{text}");
    }
}
