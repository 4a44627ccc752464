//! Outcome of a run at instants: wake-up and start latencies, and the results of the programs.

use horolog_record::{AtEnd, AtProgram, AtResult, AtScheduling, Distribution};

use super::TableStyle;
use super::grid::{self, Cell, Column, ColumnGroup};
use super::shapes::{distributions, put};
use super::summary::{finding_lines, wrapped};
use crate::units::{ABSENT, full_count, human_ns, period_ns};

const NAME_WIDTH: usize = 13;
/// Maximum length of a program that is shown.
const PROGRAM_MAX: usize = 40;

/// Returns the lines for the terminal, without a newline at the end.
#[must_use]
pub fn at(result: &AtResult, style: &TableStyle) -> String {
    let late = [("wake-up", &result.woken_late_ns), ("start", &result.started_late_ns)];
    let late = late.into_iter().filter_map(|(name, late)| Some((name, late.as_ref()?)));
    let late: Vec<_> = late.collect();
    let mut lines = wrapped(&summary(result), "", "  ", style);
    if result.every_ns.is_none() {
        let phrases: Vec<_> = late
            .iter()
            .map(|(name, late)| format!("{name} latency {}", human_ns(late.max)))
            .collect();
        if !phrases.is_empty() {
            lines.push(format!("  {}", phrases.join(", ")));
        }
    } else if !late.is_empty() {
        let titles = ["count", "min", "mean", "p50", "p90", "p99", "p99.9", "max"];
        let mut columns = vec![Column::left("", NAME_WIDTH)];
        columns.extend(titles.map(|title| Column::right(title, 8)));
        let group = [ColumnGroup { title: "", columns }];
        lines.extend(grid::header(&group, style.colour).lines().skip(1).map(str::to_owned));
        for (name, late) in &late {
            let mut cells = vec![Cell::plain((*name).to_owned())];
            cells.extend(figures(late).map(Cell::plain));
            lines.push(grid::row(&group, &cells, style.colour));
        }
        let late: Vec<_> = late.iter().map(|(name, late)| ((*name).to_owned(), *late)).collect();
        put(&mut lines, distributions("latency", &late, style));
    }
    for one in &result.programs {
        lines.extend(wrapped(&program(one), "  ", "    ", style));
    }
    lines.extend(finding_lines(&result.findings, style));
    lines.join("\n")
}

pub(crate) fn figures(late: &Distribution) -> [String; 8] {
    // A percentile needs some samples beyond it.
    let of = |ns: u64, count: u64| {
        if late.count < count { ABSENT.to_owned() } else { human_ns(ns) }
    };
    [
        full_count(late.count),
        human_ns(late.min),
        human_ns(late.mean.round() as u64),
        human_ns(late.p50),
        of(late.p90, 10),
        of(late.p99, 100),
        of(late.p99_9, 1_000),
        human_ns(late.max),
    ]
}

pub(crate) fn summary(result: &AtResult) -> String {
    let scheduling = match result.scheduling {
        AtScheduling::RealTime => "real-time (SCHED_FIFO)".to_owned(),
        AtScheduling::Ordinary => {
            format!("SCHED_OTHER, timer slack {}", human_ns(result.timer_slack_ns))
        }
    };
    let head_start = result.head_start_ns.map_or_else(String::new, |head_start_ns| {
        format!(", priority hold {}", human_ns(head_start_ns))
    });
    let locked = if result.memory_locked { ", memory locked" } else { "" };
    let scheduling = format!("{scheduling}{head_start}{locked}");
    let ended = match result.end {
        AtEnd::Done => "",
        AtEnd::Interrupted => ", ended by a signal",
    };
    match result.every_ns {
        None if result.met == 0 => format!("{}: not reached{ended}", result.first),
        None => format!("{}: started, {scheduling}{ended}", result.first),
        Some(every_ns) => format!(
            "From {} every {}: {} started, {} missed, {scheduling}{ended}",
            result.first,
            period_ns(every_ns),
            full_count(result.met),
            full_count(result.missed)
        ),
    }
}

pub(crate) fn program(program: &AtProgram) -> String {
    let mut name: String = program.program.join(" ").replace('\n', "; ");
    if name.chars().count() > PROGRAM_MAX {
        name = name.chars().take(PROGRAM_MAX - 1).chain(['…']).collect();
    }
    let status = program
        .last_status
        .map_or_else(String::new, |status| format!(", last exit status {status}"));
    format!(
        "'{name}': {} run{}, {} failed{status}",
        full_count(program.runs),
        if program.runs == 1 { "" } else { "s" },
        full_count(program.failed)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn output_matches_the_expected_text() {
        let style = TableStyle { colour: false, width: 100 };
        let text = at(&fixture::at(), &style);
        assert_eq!(text, include_str!("at.txt").trim_end(), "\n{text}");
    }

    #[test]
    fn one_start_time_takes_a_line_or_two() {
        let style = TableStyle::default();
        let mut result = fixture::at();
        result.every_ns = None;
        result.programs.clear();
        result.findings.clear();
        let text = at(&result, &style);
        assert!(text.starts_with("2026-01-02T03:04:05Z: started, real-time"), "{text}");
        assert!(text.contains("wake-up latency ") && text.lines().count() == 2, "{text}");
        (result.met, result.end) = (0, AtEnd::Interrupted);
        (result.woken_late_ns, result.started_late_ns) = (None, None);
        assert_eq!(at(&result, &style), "2026-01-02T03:04:05Z: not reached, ended by a signal");
    }
}
