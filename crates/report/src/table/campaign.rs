//! A campaign: what each role measured in all its places, and how each part ended.

use horolog_record::CampaignResult;

use super::TableStyle;
use super::grid::{self, Column};
use super::summary::{finding_lines, wrapped};
use crate::campaign::{Figures, METHOD, PART_TITLES, figures, part, sentences};

/// The lines for the terminal, without a newline at the end.
#[must_use]
pub fn campaign(result: &CampaignResult, style: &TableStyle) -> String {
    let mut lines = Vec::new();
    for text in sentences(result) {
        lines.extend(wrapped(&text, "", "  ", style));
    }
    let start = result.start.as_ref();
    let parts = Figures {
        caption: "Parts; start: after the instant".to_owned(),
        titles: PART_TITLES.to_vec(),
        rows: result.parts.iter().map(|one| part(one, start)).collect(),
    };
    for figures in figures(result).into_iter().chain([parts]) {
        lines.push(String::new());
        lines.extend(wrapped(&figures.caption, "", "  ", style));
        lines.extend(grid(&figures, style));
    }
    lines.push(String::new());
    lines.extend(wrapped(METHOD, "  ", "    ", style));
    lines.extend(finding_lines(&result.findings, style));
    lines.join("\n")
}

/// Columns as wide as what stands in them.
fn grid(figures: &Figures, style: &TableStyle) -> Vec<String> {
    let width = |place: usize, title: &str| {
        let cells = figures.rows.iter().filter_map(|(_, cells)| cells.get(place));
        cells.map(|cell| cell.chars().count()).chain([title.chars().count()]).max().unwrap_or(0)
    };
    let (first, rest) = figures.titles.split_first().map_or(("", &[][..]), |(a, b)| (*a, b));
    let names = figures.rows.iter().map(|(name, _)| name.chars().count());
    let name = Column::left(first, names.chain([first.chars().count()]).max().unwrap_or(0));
    let columns: Vec<_> = rest
        .iter()
        .enumerate()
        .map(|(place, title)| Column::right(title, width(place, title)))
        .collect();
    grid::blocks([name.clone(), name], &columns, &figures.rows, style)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn looks_like_this() {
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
}
