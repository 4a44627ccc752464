//! Periodic tasks: a row for each task of each node, bars of execution to period, and the joint
//! results of several nodes.

use horolog_record::CycleResult;

use super::TableStyle;
use super::grid::{self, Column};
use super::summary::{finding_lines, limit_lines, wrapped};
use crate::cycle::{
    EXTRA, EXTRA_MEANING, FIGURES, MEANING, TaskRow, cross_node_sentences, extra, facts, figures,
    is_parallel, percent, rows,
};

const NAME_WIDTH: usize = 16;
const NARROW: usize = 8;
const CELL_WIDTH: usize = 9;
/// Maximum and minimum width of a bar of one period, and the width of the figures after it.
const BAR: usize = 40;
const BAR_MIN: usize = 10;
const BEHIND: usize = 38;

/// Returns the lines for the terminal, without a newline at the end.
#[must_use]
pub fn cycle(result: &CycleResult, style: &TableStyle) -> String {
    let rows = rows(result);
    let named = |cells: fn(&TaskRow<'_>) -> Vec<String>| -> Vec<(String, Vec<String>)> {
        rows.iter().map(|row| (row.name(result), cells(row))).collect()
    };
    let names = [Column::left("task", NAME_WIDTH), Column::left("task", NARROW)];
    let of_figures = named(|row| figures(row).to_vec());
    let mut lines = grid::blocks(names.clone(), &columns(&FIGURES), &of_figures, style);
    lines.push(String::new());
    lines.extend(rows.iter().map(|row| bar(row, result, style)));
    if is_parallel(result) {
        lines.push(String::new());
        let of_extra = named(|row| extra(row.task).to_vec());
        lines.extend(grid::blocks(names, &columns(&EXTRA), &of_extra, style));
    }
    lines.push(String::new());
    for text in cross_node_sentences(result).iter().chain(&facts(result)) {
        lines.extend(wrapped(text, "  ", "    ", style));
    }
    lines.extend(wrapped(MEANING, "  ", "    ", style));
    if is_parallel(result) {
        lines.extend(wrapped(EXTRA_MEANING, "  ", "    ", style));
    }
    lines.extend(limit_lines(&result.limits, style));
    lines.extend(finding_lines(&result.findings, style));
    lines.join("\n")
}

fn columns(titles: &[&'static str]) -> Vec<Column<'static>> {
    titles.iter().map(|title| Column::right(title, CELL_WIDTH)).collect()
}

/// Returns execution to period as a bar of one period: `#` to the mean, `-` to the largest.
fn bar(row: &TaskRow<'_>, result: &CycleResult, style: &TableStyle) -> String {
    let width = style.width.saturating_sub(NAME_WIDTH + 3 + BEHIND).clamp(BAR_MIN, BAR);
    let (mean, most) = (row.ratio(), row.ratio_max());
    let columns = |ratio: Option<f64>| (ratio.unwrap_or(0.0) * width as f64).round() as usize;
    let (to_mean, to_most) = (columns(mean).min(width), columns(most).min(width));
    let drawn = "#".repeat(to_mean) + &"-".repeat(to_most.saturating_sub(to_mean));
    let end = if columns(most) > width { '>' } else { '|' };
    format!(
        "{:<NAME_WIDTH$} |{drawn:<width$}{end} {} of the period, {} max",
        row.name(result),
        percent(mean),
        percent(most)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn output_matches_the_expected_text() {
        let style = TableStyle { colour: false, width: 100 };
        let text = cycle(&fixture::cycle(), &style);
        assert_eq!(text, include_str!("cycle.txt").trim_end(), "\n{text}");
    }

    #[test]
    fn bars_fit_a_narrow_terminal() {
        let style = TableStyle { colour: false, width: 80 };
        let text = cycle(&fixture::cycle(), &style);
        let bars: Vec<_> = text.lines().filter(|line| line.contains(" of the period, ")).collect();
        assert!(bars.len() > 1 && bars.iter().all(|bar| bar.chars().count() <= 80), "{text}");
        assert!(bars.iter().all(|bar| bar.contains('#')), "{text}");
    }

    #[test]
    fn a_run_without_periods_has_no_figures() {
        let mut result = fixture::cycle();
        for task in result.runs.iter_mut().flat_map(|run| &mut run.nodes).flat_map(|n| &mut n.tasks)
        {
            (task.start_latency_ns, task.execution_ns, task.response_ns) = (None, None, None);
            (task.periods, task.served) = (0, None);
        }
        let text = cycle(&result, &TableStyle { colour: false, width: 60 });
        assert!(!text.contains("NaN") && text.contains("- of the period"), "{text}");
    }
}
