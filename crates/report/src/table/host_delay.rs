//! Terminal text of a host's delays: for each setting a table of the overshoot by function, and the
//! tested claims.

use horolog_record::{DelayClaimVerdict, DelayMeasurement, HostDelayResult, WaitFunction};

use super::TableStyle;
use super::grid::CellTone;
use super::shapes::{SparklineGroup, SparklineRow, SparklineScale, SparklineUnit};
use super::summary::{finding_lines, limit_lines, wrapped};
use crate::host_delay::{
    CLAIMS, INTERRUPTED_TITLES, NOTE, SLACK, cells_of, delays, interrupted, is_measured,
    resumption, setting, tally, verdict,
};
use crate::units::{ABSENT, human_ns};

const NAME_WIDTH: usize = 25;
const CELL_WIDTH: usize = 8;
const SIGNALS_WIDTH: usize = 10;
/// Titles of the columns with the worst values over all delays, after those of single delays.
const WORST: [&str; 2] = ["p99", "max"];

/// Returns the lines for the terminal, without a newline at the end.
#[must_use]
pub fn host_delay(result: &HostDelayResult, style: &TableStyle) -> String {
    let mut lines = Vec::new();
    for index in 0..result.settings.len() {
        lines.push(CellTone::Strong.paint(&setting(result, index), style.colour));
        if is_measured(result, index) {
            lines.extend(overshoots(result, index, style));
            lines.extend(tails(result, index, style));
        }
        lines.push(String::new());
    }
    lines.extend(wrapped(NOTE, "  ", "    ", style));
    lines.extend(wrapped(SLACK, "  ", "    ", style));
    lines.extend(signals(result, style));
    lines.extend(claims(result, style));
    lines.extend(limit_lines(&result.limits, style));
    lines.extend(finding_lines(&result.findings, style));
    lines.join("\n")
}

/// Returns a row for each function: the median at each delay, and the worst of all delays.
fn overshoots(result: &HostDelayResult, index: usize, style: &TableStyle) -> Vec<String> {
    let all = delays(result);
    let room = style.width.saturating_sub(NAME_WIDTH + WORST.len() * (CELL_WIDTH + 1));
    let shown = all.len().min((room / (CELL_WIDTH + 1)).max(2));
    let delays = &all[..shown];
    let titles = delays.iter().map(|delay| human_ns(*delay).replace(".00", "").replace(".0", ""));
    let titles = titles.chain(WORST.map(str::to_owned));
    let head = format!("{:<NAME_WIDTH$}{}", "median overshoot at", cells(titles));
    let mut lines = vec![CellTone::Strong.paint(head.trim_end(), style.colour)];
    for kind in WaitFunction::ALL {
        let of_kind = cells_of(result, index).filter(|cell| cell.function == kind);
        if of_kind.clone().next().is_none() {
            continue;
        }
        let median = |delay: &u64| {
            let cell = of_kind.clone().find(|cell| cell.requested_ns == *delay);
            figure(cell.and_then(|cell| Some(cell.overshoot_ns.as_ref()?.p50)))
        };
        let worst = |of: fn(&horolog_record::Distribution) -> u64| {
            let values = of_kind
                .clone()
                .filter_map(|cell: &DelayMeasurement| Some(of(cell.overshoot_ns.as_ref()?)));
            figure(values.max())
        };
        let figures = delays.iter().map(median).chain([worst(|one| one.p99), worst(|one| one.max)]);
        lines.push(format!("{:<NAME_WIDTH$}{}", kind.name(), cells(figures)));
    }
    lines
}

/// Returns sparklines of the 99th percentile over the requested delay, one per function.
fn tails(result: &HostDelayResult, index: usize, style: &TableStyle) -> Vec<String> {
    let delays = delays(result);
    let row = |kind: &WaitFunction| {
        let cell = |delay: &u64| {
            cells_of(result, index)
                .find(|cell| cell.function == *kind && cell.requested_ns == *delay)
        };
        let tail = |delay| Some(cell(delay)?.overshoot_ns.as_ref()?.p99 as f64);
        let tails = delays.iter().map(tail);
        SparklineRow::in_order(
            kind.name().to_owned(),
            tails,
            SparklineScale::Log,
            SparklineUnit::Time,
        )
    };
    let (Some(first), Some(last)) = (delays.first(), delays.last()) else { return Vec::new() };
    let title = format!("p99 by requested delay, {} to {}", human_ns(*first), human_ns(*last));
    let rows = WaitFunction::ALL.iter().map(row).collect();
    SparklineGroup::in_order(title, delays.len(), rows).lines(style)
}

fn figure(ns: Option<u64>) -> String {
    ns.map_or_else(|| ABSENT.to_owned(), human_ns)
}

fn cells(texts: impl Iterator<Item = String>) -> String {
    columns(texts, CELL_WIDTH)
}

/// Returns texts flush right in columns of one width.
fn columns(texts: impl Iterator<Item = String>, width: usize) -> String {
    let padded: Vec<_> = texts.map(|text| format!(" {text:>width$}")).collect();
    padded.concat()
}

fn signals(result: &HostDelayResult, style: &TableStyle) -> Vec<String> {
    if result.interrupted.is_empty() {
        return Vec::new();
    }
    let titles = INTERRUPTED_TITLES.map(str::to_owned).into_iter();
    let head =
        format!("{:<NAME_WIDTH$}{}", "nanosleep under signals", columns(titles, SIGNALS_WIDTH));
    let mut lines = vec![String::new(), CellTone::Strong.paint(&head, style.colour)];
    lines.extend(result.interrupted.iter().map(|one| {
        let name = resumption(one.resumption);
        format!("{name:<NAME_WIDTH$}{}", columns(interrupted(one).into_iter(), SIGNALS_WIDTH))
    }));
    lines
}

fn claims(result: &HostDelayResult, style: &TableStyle) -> Vec<String> {
    if result.claims.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![String::new(), CellTone::Strong.paint(CLAIMS, style.colour)];
    for claim in &result.claims {
        let word = verdict(claim.verdict);
        let text = match claim.verdict {
            DelayClaimVerdict::Elsewhere => format!("{} {}", claim.statement, claim.evidence),
            _ => format!("{} → {word}: {}", claim.statement, claim.evidence),
        };
        let mark = match claim.verdict {
            DelayClaimVerdict::Holds => "  + ",
            DelayClaimVerdict::Fails => "  - ",
            DelayClaimVerdict::NotMeasured => "  ? ",
            DelayClaimVerdict::Elsewhere => "  > ",
        };
        lines.extend(wrapped(&text, mark, "    ", style));
    }
    lines.push(format!("  {}", tally(result)));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn output_matches_the_expected_text() {
        let style = TableStyle { colour: false, width: 100 };
        let text = host_delay(&fixture::host_delay(), &style);
        assert_eq!(text, include_str!("host_delay.txt").trim_end(), "\n{text}");
    }

    #[test]
    fn a_setting_that_was_not_reached_has_no_table() {
        let mut result = fixture::host_delay();
        result.cells.retain(|cell| cell.setting == 0);
        let text = host_delay(&result, &TableStyle { colour: false, width: 100 });
        assert!(text.contains("SCHED_OTHER, minimal slack: not measured\n\n"), "{text}");
        assert_eq!(text.matches("median overshoot at").count(), 1);
    }

    #[test]
    fn a_narrow_terminal_keeps_the_worst() {
        let style = TableStyle { colour: false, width: 60 };
        let text = host_delay(&fixture::host_delay(), &style);
        assert!(text.contains("max") && text.contains("nanosleep"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }

    #[test]
    fn a_delay_that_was_not_measured_is_a_gap_and_one_is_no_series() {
        let mut result = fixture::host_delay();
        let is_gap = |one: &DelayMeasurement| {
            one.function == WaitFunction::Nanosleep && one.requested_ns == 100_000
        };
        for cell in result.cells.iter_mut().filter(|cell| is_gap(cell)) {
            cell.overshoot_ns = None;
        }
        let text = host_delay(&result, &TableStyle { colour: false, width: 100 });
        assert!(text.contains("\n  nanosleep |_ _#| 93.7 µs to 264 µs\n"), "{text}");
        result.cells.retain(|cell| cell.requested_ns == 1_000);
        assert!(!host_delay(&result, &TableStyle::default()).contains("p99 by"));
    }
}
