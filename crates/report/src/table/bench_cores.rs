//! Terminal text of `bench cores`: two tables with measured and published values side by side.

use horolog_record::{BenchCoresResult, CoreCountResult};

use super::TableStyle;
use super::grid::CellTone;
use super::shapes::{TextBar, bars};
use super::summary::{finding_lines, wrapped};
use crate::cores::{TextTable, capacities, cores, responses, sentences};
use crate::units::{ABSENT, human_rate};

/// Separator between measured and published figures.
const RULE: &str = " | ";
const PUBLISHED: &str = "published";

/// Returns both tables, their conclusions and the findings, without a newline at the end.
#[must_use]
pub fn bench_cores(result: &BenchCoresResult, style: &TableStyle) -> String {
    let mut lines = Vec::new();
    for sheet in [responses(result), capacities(result)] {
        lines.extend(sheet_lines(&sheet, style));
        lines.push(String::new());
    }
    let drawn = drawn(result, style);
    if !drawn.is_empty() {
        lines.extend(drawn);
        lines.push(String::new());
    }
    for sentence in sentences(result) {
        lines.extend(wrapped(&sentence, "", "  ", style));
    }
    lines.extend(finding_lines(&result.findings, style));
    lines.join("\n")
}

/// Returns the capacity on each number of cores.
fn drawn(result: &BenchCoresResult, style: &TableStyle) -> Vec<String> {
    let bar = |column: &CoreCountResult| {
        let capacity = column.capacity();
        let rate = |rate: Option<f64>| rate.map_or_else(|| ABSENT.to_owned(), human_rate);
        let (min, max) = (capacity.map(|one| one.min), capacity.map(|one| one.max));
        TextBar {
            name: cores(column.cores),
            size: min,
            tail: max,
            value_text: format!("{} to {}", rate(min), rate(max)),
        }
    };
    let all: Vec<_> = result.columns.iter().map(bar).collect();
    bars("capacity, # to the minimum, - to the maximum", &all, style)
}

fn sheet_lines(sheet: &TextTable, style: &TableStyle) -> Vec<String> {
    let widths: Vec<_> = (0..sheet.columns.len())
        .map(|index| {
            let cells = sheet.rows.iter().map(|row| &row[index]);
            cells.chain([&sheet.columns[index]]).map(|text| text.chars().count()).max()
        })
        .map(Option::unwrap_or_default)
        .collect();
    let line = |cells: &[String]| {
        let pad =
            |(index, text): (usize, &String)| format!("{text:>width$}", width = widths[index]);
        let cells: Vec<_> = cells.iter().enumerate().map(pad).collect();
        let (own, published) = cells.split_at(sheet.published_at);
        (own.join("  "), published.join("  "))
    };
    let joined = |(own, published): (String, String)| {
        format!("{own}{RULE}{published}").trim_end().to_owned()
    };
    let (own, published) = line(&sheet.columns);
    let above = format!("{:1$}{RULE}{PUBLISHED}", "", own.chars().count());
    let strong = |text: &str| CellTone::Strong.paint(text, style.colour);
    let head = [sheet.title.clone(), above, joined((own, published))];
    let rows = sheet.rows.iter().map(|row| joined(line(row)));
    head.iter().map(|text| strong(text)).chain(rows).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn output_matches_the_expected_text() {
        let text = bench_cores(&fixture::cores(), &TableStyle { colour: false, width: 80 });
        assert_eq!(text, include_str!("bench_cores_table.txt").trim_end(), "\n{text}");
    }

    #[test]
    fn an_experiment_that_was_ended_at_once_still_makes_a_table() {
        let mut result = fixture::cores();
        result.columns.clear();
        let text = bench_cores(&result, &TableStyle::default());
        assert!(text.contains("46,098") && text.contains("not measured"), "{text}");
    }

    #[test]
    fn a_server_that_was_never_saturated_has_no_bar() {
        let mut result = fixture::cores();
        result.columns[1].points.pop();
        assert!(drawn(&result, &TableStyle::default()).is_empty(), "one bar is none");
    }
}
