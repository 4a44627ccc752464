//! Terminal rows of a run over time: one per interval, and names before the rows of the phases of a
//! load profile.

use horolog_record::{LoadSeriesPoint, Percentiles};

use super::TableStyle;
use super::grid::{self, CellTone, GridCell, GridColumn, GridColumnGroup};
use crate::units::{ABSENT, full_count, human_ns, percent_of};

/// Width of the names before rows; longer ones are cut.
const LABEL: usize = 15;

fn groups() -> Vec<GridColumnGroup<'static>> {
    let right = GridColumn::right;
    vec![
        GridColumnGroup { title: "interval", columns: vec![right("from", 9), right("sent", 11)] },
        GridColumnGroup {
            title: "requests",
            columns: vec![right("lost", 7), right("late", 7), right("invalid", 7)],
        },
        GridColumnGroup {
            title: "round trip",
            columns: ["p50", "p90", "p99", "p99.9", "max"].map(|title| right(title, 7)).to_vec(),
        },
    ]
}

/// Returns the two lines above the rows of intervals, without a newline at the end.
#[must_use]
pub fn interval_header(style: &TableStyle) -> String {
    grid::header(&groups(), style.colour)
}

/// Returns one interval, without a newline at the end.
#[must_use]
pub fn interval_row(point: &LoadSeriesPoint, style: &TableStyle) -> String {
    let share = |part: u64, tone: CellTone| {
        let tone = if part > 0 { tone } else { CellTone::Plain };
        GridCell { text: percent_of(part, point.sent), tone }
    };
    let figures: [fn(&Percentiles) -> u64; 5] =
        [|rtt| rtt.p50, |rtt| rtt.p90, |rtt| rtt.p99, |rtt| rtt.p99_9, |rtt| rtt.max];
    let time = |figure: fn(&Percentiles) -> u64| {
        let text = point.rtt_ns.as_ref().map(|rtt| human_ns(figure(rtt)));
        GridCell::plain(text.unwrap_or_else(|| ABSENT.to_owned()))
    };
    let mut cells = vec![
        GridCell::plain(format!("{:.2} s", point.at_s)),
        GridCell::plain(full_count(point.sent)),
        share(point.lost, CellTone::Bad),
        share(point.late, CellTone::Warning),
        share(point.invalid, CellTone::Warning),
    ];
    cells.extend(figures.map(time));
    grid::row(&groups(), &cells, style.colour)
}

/// Returns the style for rows that follow a name: its width is reduced by that of the name.
#[must_use]
pub const fn behind_label(style: &TableStyle) -> TableStyle {
    TableStyle { colour: style.colour, width: style.width.saturating_sub(LABEL + 1) }
}

/// Returns the lines with the name before the last of them.
#[must_use]
pub fn labelled(label: &str, lines: &str) -> String {
    let count = lines.lines().count();
    let label: String = label.chars().filter(|c| !c.is_control()).take(LABEL).collect();
    let line = |(index, line): (usize, &str)| {
        let label = if index + 1 == count { &*label } else { "" };
        format!("{label:LABEL$} {line}")
    };
    lines.lines().enumerate().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(lost: u64) -> LoadSeriesPoint {
        let rtt = Percentiles { p50: 3_000, p90: 5_000, p99: 9_000, p99_9: 20_000, max: 1_000_000 };
        LoadSeriesPoint {
            at_s: 12.0,
            trial: 0,
            intended_rate: 50e3,
            sent: 50_000,
            received: 50_000 - lost,
            lost,
            late: 0,
            invalid: 0,
            unsynchronised: 0,
            rtt_ns: (lost < 50_000).then_some(rtt),
        }
    }

    #[test]
    fn rows_line_up_with_the_header() {
        let style = TableStyle::default();
        let header = interval_header(&style);
        let width = header.lines().nth(1).unwrap().chars().count();
        for lost in [0, 3, 50_000] {
            let row = interval_row(&point(lost), &style);
            assert_eq!(row.chars().count(), width, "\n{header}\n{row}");
        }
        assert!(interval_row(&point(3), &style).contains("12.00 s"));
        let coloured = TableStyle { colour: true, ..style };
        assert!(interval_row(&point(3), &coloured).contains("\x1b[1;31m"));
    }

    #[test]
    fn a_name_stands_before_the_row() {
        assert_eq!(labelled("phase", "a\nb"), "                a\nphase           b");
        assert_eq!(labelled("a\nvery long phases", "row"), "avery long phas row");
    }
}
