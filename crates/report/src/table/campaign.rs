//! Campaign: the measurements of each role over all its parts, and the end of each part.

use horolog_record::CampaignResult;

use super::TableStyle;
use super::grid::{self, Column};
use super::shapes::{Bar, worst_first};
use super::summary::{finding_lines, wrapped};
use crate::breakdown::{BreakdownRow, breakdowns};
use crate::campaign::{METHOD, PART_TITLES, RoleTable, figures, part, sentences};

/// Returns the lines for the terminal, without a newline at the end.
#[must_use]
pub fn campaign(result: &CampaignResult, style: &TableStyle) -> String {
    let mut lines = Vec::new();
    for text in sentences(result) {
        lines.extend(wrapped(&text, "", "  ", style));
    }
    let start = result.start.as_ref();
    let parts = RoleTable {
        caption: "Parts; start: after the start time".to_owned(),
        titles: PART_TITLES.to_vec(),
        rows: result.parts.iter().map(|one| part(one, start)).collect(),
    };
    for figures in figures(result).into_iter().chain([parts]) {
        lines.push(String::new());
        lines.extend(wrapped(&figures.caption, "", "  ", style));
        lines.extend(grid(&figures, style));
    }
    for one in breakdowns(result) {
        let [_, first, second] = one.titles;
        let bar = |row: &BreakdownRow| {
            let [a, b] = &row.numbers;
            Bar::plain(row.name.clone(), Some(row.size), format!("{first} {a}, {second} {b}"))
        };
        let all: Vec<_> = one.all.iter().map(bar).collect();
        let bars = worst_first(one.about.trim_end_matches('.'), &all, one.full, style);
        if !bars.is_empty() {
            lines.push(String::new());
            lines.extend(bars);
        }
    }
    lines.push(String::new());
    lines.extend(wrapped(METHOD, "  ", "    ", style));
    lines.extend(finding_lines(&result.findings, style));
    lines.join("\n")
}

/// Returns columns as wide as their content.
fn grid(figures: &RoleTable, style: &TableStyle) -> Vec<String> {
    let width = |index: usize, title: &str| {
        let cells = figures.rows.iter().filter_map(|(_, cells)| cells.get(index));
        cells.map(|cell| cell.chars().count()).chain([title.chars().count()]).max().unwrap_or(0)
    };
    let (first, rest) = figures.titles.split_first().map_or(("", &[][..]), |(a, b)| (*a, b));
    let names = figures.rows.iter().map(|(name, _)| name.chars().count());
    let name = Column::left(first, names.chain([first.chars().count()]).max().unwrap_or(0));
    let columns: Vec<_> = rest
        .iter()
        .enumerate()
        .map(|(index, title)| Column::right(title, width(index, title)))
        .collect();
    grid::blocks([name.clone(), name], &columns, &figures.rows, style)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn output_matches_the_expected_text() {
        let style = TableStyle { colour: false, width: 100 };
        let text = campaign(&fixture::campaign(), &style);
        assert_eq!(text, include_str!("campaign.txt").trim_end(), "\n{text}");
    }

    #[test]
    fn a_narrow_terminal_has_the_rest_below() {
        let style = TableStyle { colour: false, width: 60 };
        let text = campaign(&fixture::campaign(), &style);
        assert!(text.contains("p99.9") && text.contains("load.2"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 60), "{text}");
    }

    #[test]
    fn of_many_rows_the_worst_are_drawn() {
        let mut result = fixture::campaign();
        for role in &mut result.roles {
            if let horolog_record::MergedResults::Paths { pairs, .. } = &mut role.merged {
                let pair = pairs[0].clone();
                pairs.extend((0..20).map(|at| {
                    let mut pair = pair.clone();
                    pair.from = format!("m{at}");
                    pair.rtt_ns.as_mut().unwrap().p99 = 1_000_000 * (at + 1);
                    pair
                }));
            }
        }
        let text = campaign(&result, &TableStyle { colour: false, width: 80 });
        let first = text.split("round trip at 64 bytes, p99:\n").nth(1).unwrap();
        assert!(first.starts_with("  m19 to n2 |####"), "{text}");
        assert!(first.contains("\n  and 6 more were better\n"), "{text}");
    }
}
