//! Clocks of a host: facts with their meaning, and a row of figures for each clock.

use horolog_record::HostClockResult;

use super::TableStyle;
use super::grid::{self, Column, Tone};
use super::summary::{finding_lines, wrapped};
use crate::facts::FactGroup;
use crate::host_clock::{CLOCK_TITLES, CLOCKS_NOTE, figures, groups};

const NAME_WIDTH: usize = 18;
const WIDTHS: [usize; 6] = [10, 9, 9, 11, 12, 10];
/// Width of a fact's name in columns.
const FACT_WIDTH: usize = 22;

/// Returns the lines for the terminal, without a newline at the end.
#[must_use]
pub fn host_clock(result: &HostClockResult, style: &TableStyle) -> String {
    let mut lines = fact_lines(&groups(result), style);
    lines.push(String::new());
    lines.extend(clocks(result, style));
    lines.extend(wrapped(CLOCKS_NOTE, "  ", "    ", style));
    lines.extend(finding_lines(&result.findings, style));
    lines.join("\n")
}

/// Returns facts below their headings, each with its meaning below it.
pub(super) fn fact_lines(groups: &[FactGroup], style: &TableStyle) -> Vec<String> {
    let mut lines = Vec::new();
    for group in groups {
        lines.push(Tone::Strong.paint(group.title, style.colour));
        for fact in &group.facts {
            let name = format!("  {:<FACT_WIDTH$} ", fact.name);
            let rest = " ".repeat(FACT_WIDTH + 3);
            lines.extend(wrapped(&fact.value, &name, &rest, style));
            if !fact.meaning.is_empty() {
                lines.extend(wrapped(&fact.meaning, "      ", "      ", style));
            }
        }
    }
    lines
}

fn clocks(result: &HostClockResult, style: &TableStyle) -> Vec<String> {
    let name = Column::left("CLOCK_", NAME_WIDTH);
    let titles = CLOCK_TITLES.iter().zip(WIDTHS);
    let columns: Vec<_> = titles.map(|(title, width)| Column::right(title, width)).collect();
    let read = result.clocks.iter().filter(|clock| clock.error.is_none());
    let rows: Vec<_> = read.map(|clock| (clock.name.clone(), figures(clock).to_vec())).collect();
    let mut lines = grid::blocks([name.clone(), name], &columns, &rows, style);
    for clock in &result.clocks {
        if let Some(error) = &clock.error {
            lines.extend(wrapped(error, &format!("{:<NAME_WIDTH$} ", clock.name), "    ", style));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn output_matches_the_expected_text() {
        let style = TableStyle { colour: false, width: 100 };
        let text = host_clock(&fixture::host_clock(), &style);
        assert_eq!(text, include_str!("host_clock.txt").trim_end(), "\n{text}");
    }

    #[test]
    fn a_narrow_terminal_has_the_rest_below() {
        let style = TableStyle { colour: false, width: 60 };
        let text = host_clock(&fixture::host_clock(), &style);
        assert!(text.contains("cost") && text.contains("± bound"), "{text}");
        // A path is not broken.
        assert!(text.lines().all(|line| line.chars().count() <= 75), "{text}");
    }
}
