//! Prediction for tasks: their bounds, the terms of these, and the underlying costs.

use horolog_record::CyclePredictResult;

use super::TableStyle;
use super::grid::{Column, Tone, blocks};
use super::shapes::{Bar, bars_up_to};
use super::summary::footer;
use crate::cycle_predict::{
    METHOD, bounds, cost_lines, heading, rows, sentences, term_rows, terms, titles,
};
use crate::units::{human_ns, percent};

const NAMES: [Column<'static>; 2] = [Column::left("task", 20), Column::left("task", 12)];
const BOUNDS: [Column<'static>; 2] = [Column::left("bound", 24), Column::left("bound", 16)];
const WIDTH: usize = 13;
const NARROW: usize = 9;

/// Returns the lines for the terminal, without a newline at the end.
#[must_use]
pub fn cycle_predict(result: &CyclePredictResult, style: &TableStyle) -> String {
    let mut lines = vec![Tone::Strong.paint(&heading(result), style.colour), String::new()];
    let column = |title: &'static str| match title {
        "schedule" | "largest" => Column::right(title, WIDTH),
        "verdict" => Column::right(title, NARROW - 1),
        _ => Column::right(title, NARROW),
    };
    let columns: Vec<Column<'static>> = titles(result).into_iter().map(column).collect();
    lines.extend(blocks(NAMES, &columns, &rows(result), style));
    lines.push(String::new());
    let columns: Vec<Column<'static>> =
        terms(result).into_iter().map(|term| Column::right(term.name(), WIDTH)).collect();
    if !columns.is_empty() {
        lines.extend(blocks(BOUNDS, &columns, &term_rows(result), style));
        lines.push(String::new());
    }
    let drawn = drawn(result, style);
    if !drawn.is_empty() {
        lines.extend(drawn);
        lines.push(String::new());
    }
    let method = std::iter::once(METHOD.to_owned()).chain(cost_lines(result));
    let limits_and_findings = (&result.limits[..], &result.findings[..]);
    lines.extend(footer(sentences(result), method, limits_and_findings, style));
    lines.join("\n")
}

/// Returns the share of its deadline that each bound takes.
fn drawn(result: &CyclePredictResult, style: &TableStyle) -> Vec<String> {
    let all = bounds(result).into_iter().map(|(name, task, bound)| {
        let share = bound.response_ns as f64 / task.deadline_ns.max(1) as f64;
        let times = [bound.response_ns, task.deadline_ns].map(human_ns);
        let value_text = format!("{}, {} of {}", percent(share), times[0], times[1]);
        Bar::plain(name, Some(share), value_text)
    });
    bars_up_to("bounds relative to deadlines", &all.collect::<Vec<_>>(), 1.0, style)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn output_matches_the_expected_text() {
        let style = TableStyle { colour: false, width: 100 };
        let text = cycle_predict(&fixture::cycle_predict(), &style);
        assert_eq!(text, include_str!("cycle_predict.txt").trim_end(), "\n{text}");
    }

    #[test]
    fn nothing_at_all_is_no_error_and_many_cores_are_counted() {
        let mut result = fixture::cycle_predict();
        let mut cost = result.costs[1].clone();
        cost.core = Some(77);
        result.costs.extend([cost.clone(), cost]);
        let text = cycle_predict(&result, &TableStyle::default());
        assert!(text.contains("2 more, of cores from 8 on"), "{text}");
        result.tasks.clear();
        result.costs.clear();
        assert!(cycle_predict(&result, &TableStyle::default()).starts_with("0 of 0 tasks"));
    }

    #[test]
    fn a_bound_beyond_its_deadline_is_marked_and_no_deadline_is_no_error() {
        let mut result = fixture::cycle_predict();
        result.tasks[0].deadline_ns = 0;
        let lines = drawn(&result, &TableStyle { colour: false, width: 80 });
        assert!(lines[1].contains("#>| >9999%, 3.59 ms of 0 ns"), "{lines:?}");
    }
}
