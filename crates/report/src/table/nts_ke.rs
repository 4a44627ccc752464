//! Terminal rows of a load on an NTS-KE server, one per trial of a search.

use horolog_record::{Distribution, NtsKeTrial};

use super::TableStyle;
use super::grid::{self, CellTone, GridCell, GridColumn, GridColumnGroup};
use crate::units::{ABSENT, amount, full_count, human_ns, percent_of};

fn groups() -> Vec<GridColumnGroup<'static>> {
    let right = GridColumn::right;
    vec![
        GridColumnGroup {
            title: "NTS-KE exchanges",
            columns: vec![right("intended/s", 10), right("started/s", 9), right("clients", 7)],
        },
        GridColumnGroup { title: "", columns: vec![right("failed", 7)] },
        GridColumnGroup {
            title: "from the intended start",
            columns: ["p50", "p90", "p99", "max"].map(|title| right(title, 7)).to_vec(),
        },
    ]
}

/// Returns the two lines above the rows of a search's trials, without a newline at the end.
#[must_use]
pub fn nts_ke_header(style: &TableStyle) -> String {
    grid::header(&groups(), style.colour)
}

/// Returns a trial of a search in a line, without a newline at the end.
#[must_use]
pub fn nts_ke_row(trial: &NtsKeTrial, style: &TableStyle) -> String {
    let absent = || ABSENT.to_owned();
    let rate = |rate: f64| amount(rate).map_or_else(absent, |rate| format!("{rate:.0}"));
    let tone = if trial.lost > 0 { CellTone::Bad } else { CellTone::Plain };
    let mut cells = vec![
        GridCell::plain(trial.intended_rate.map_or_else(absent, rate)),
        GridCell::plain(rate(trial.achieved_rate)),
        GridCell::plain(full_count(trial.clients)),
        GridCell { text: percent_of(trial.lost, trial.sent), tone },
    ];
    let figures: [fn(&Distribution) -> u64; 4] =
        [|times| times.p50, |times| times.p90, |times| times.p99, |times| times.max];
    let time = |figure: fn(&Distribution) -> u64| {
        let text = trial.handshake_ns.as_ref().map(|times| human_ns(figure(times)));
        GridCell::plain(text.unwrap_or_else(absent))
    };
    cells.extend(figures.map(time));
    grid::row(&groups(), &cells, style.colour)
}
