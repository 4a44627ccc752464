//! Wake-up latencies: a row for each core, and what was held still meanwhile.

use horolog_record::{HostTimerResult, TimerCore};

use super::TableStyle;
use super::grid::{self, Cell, Column, Group};
use super::summary::{finding_lines, limit_lines, wrapped};
use crate::host::{LATENCY_TITLES, conditions, latency_figures, scheduling};
use crate::units::{full_count, human_ns};

const CORE_WIDTH: usize = 4;
const MISSED_WIDTH: usize = 6;
const COUNT_WIDTH: usize = 10;
const TIME_WIDTH: usize = 9;
/// Columns that are always shown.
const SHOWN_MIN: usize = 5;

/// What a latency is.
pub(crate) const LATENCY: &str = "Latency: from the instant at which a thread was to wake up to its first reading of the \
     clock. Missed: periods that were over before their thread came to wait for them; they count \
     with their latency.";

/// The lines for the terminal, without a newline at the end.
#[must_use]
pub fn host_timer(result: &HostTimerResult, style: &TableStyle) -> String {
    let group = [Group { title: "", columns: columns(style) }];
    let header = grid::header(&group, style.colour);
    let mut lines: Vec<_> = header.lines().skip(1).map(str::to_owned).collect();
    for core in &result.cores {
        let cells: Vec<_> = cells(core).map(Cell::plain).into();
        let shown = &cells[..group[0].columns.len()];
        lines.push(grid::row(&group, shown, style.colour).trim_end().to_owned());
    }
    for text in facts(result).iter().map(String::as_str).chain([LATENCY]) {
        lines.extend(wrapped(text, "  ", "    ", style));
    }
    lines.extend(limit_lines(&result.limits, style));
    lines.extend(finding_lines(&result.findings, style));
    lines.join("\n")
}

fn columns(style: &TableStyle) -> Vec<Column> {
    let mut columns =
        vec![Column::right("core", CORE_WIDTH), Column::right("missed", MISSED_WIDTH)];
    let figures = LATENCY_TITLES.iter().enumerate().map(|(place, title)| {
        Column::right(title, if place == 0 { COUNT_WIDTH } else { TIME_WIDTH })
    });
    columns.extend(figures);
    let width = |columns: &[Column]| columns.iter().map(|column| column.width + 1).sum::<usize>();
    while columns.len() > SHOWN_MIN && width(&columns) > style.width.saturating_add(1) {
        columns.pop();
    }
    columns
}

/// One core's cells: its number, missed periods, and [`LATENCY_TITLES`].
pub(crate) fn cells(core: &TimerCore) -> [String; 10] {
    let [count, min, mean, p50, p99, p99_9, max, deviation] =
        latency_figures(core.latency_ns.as_ref());
    let missed = full_count(core.missed);
    [core.core.to_string(), missed, count, min, mean, p50, p99, p99_9, max, deviation]
}

/// What was measured and how, in sentences.
pub(crate) fn facts(result: &HostTimerResult) -> Vec<String> {
    let mut facts = Vec::new();
    if let Some(core) = result.cores.first() {
        facts.push(format!(
            "One thread for each core, {}, a period of {}.",
            scheduling(&core.scheduling),
            human_ns(result.interval_ns)
        ));
    }
    facts.push(conditions(&result.conditions));
    facts.extend(result.cores.iter().map(|core| {
        let cost = &core.cost;
        let [clock, cycle, past] = [cost.clock_ns, cost.cycle_ns, cost.past_ns].map(human_ns);
        format!(
            "Own cost on core {}: {clock} for the clock in each latency, {cycle} for a period; \
             waiting for an instant that is past takes {past}.",
            core.core
        )
    }));
    facts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn looks_like_this() {
        let style = TableStyle { colour: false, width: 100 };
        let text = host_timer(&fixture::host_timer(), &style);
        assert_eq!(text, include_str!("host_timer.txt").trim_end(), "\n{text}");
    }

    #[test]
    fn a_narrow_terminal_keeps_the_mean() {
        let style = TableStyle { colour: false, width: 44 };
        let text = host_timer(&fixture::host_timer(), &style);
        assert!(text.contains("mean") && !text.contains("deviation"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 44), "{text}");
    }
}
