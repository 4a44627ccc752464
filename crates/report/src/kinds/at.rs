//! Outcome of a run at instants: wake-up and start latencies, and the results of the programs.

use horolog_record::{AtOutcome, AtProgramResult, AtResult, AtScheduling, Distribution};

use crate::document::{
    BlockContent, DescribeResult, DistributionSet, HeadlineMetric, ResultDocument, run_of,
};
use crate::html::data::{headed, row};
use crate::html::escape::each;
use crate::html::sections::paragraph;
use crate::metrics::Metric;
use crate::table::TableStyle;
use crate::table::grid::{self, GridCell, GridColumn, GridColumnGroup};
use crate::table::summary::wrapped;
use crate::units::{ABSENT, full_count, human_ns, period_ns};

const TABLE: &str = "latency";
const TITLES: [&str; 8] = ["count", "min", "mean", "p50", "p90", "p99", "p99.9", "max"];
const NAME_WIDTH: usize = 13;
/// Maximum length, in characters, of a program's command line that is shown.
const PROGRAM_MAX: usize = 40;

impl DescribeResult for AtResult {
    fn document(&self) -> ResultDocument<'_> {
        const HEADING: &str = "Latency";
        let latest = self.started_late_ns.as_ref().or(self.woken_late_ns.as_ref());
        let (name, value) = match latest {
            Some(late) => ("Start latency, max", human_ns(late.max)),
            None => ("Start times reached", full_count(self.met)),
        };
        let mut blocks = vec![
            BlockContent::Custom(Box::new(|style| lines(self, style)), table(self)).under(HEADING),
        ];
        // A single instant makes no distribution.
        if self.every_ns.is_some() {
            blocks.push(BlockContent::Distributions(distributions(self)).under(HEADING));
        }
        blocks.extend([
            BlockContent::Remarks(self.programs.iter().map(program).collect()).under("Programs"),
            BlockContent::PageNote(
                "Latency counts from the start time on the clock that defines it.",
            )
            .under(""),
        ]);
        ResultDocument {
            kind: "at",
            heading: format!("at {}", self.first),
            lead: format!("started {}", self.started),
            headline: HeadlineMetric {
                name: name.to_owned(),
                value: Some(value),
                sentence: summary(self),
            },
            blocks,
            method: "",
            limits: &[],
            findings: &self.findings,
            run: run_of!(self),
        }
    }

    fn metrics() -> Vec<Metric<Self>> {
        vec![
            Metric::times("woken-late", |result: &Self| result.woken_late_ns.as_ref()),
            Metric::times("started-late", |result: &Self| result.started_late_ns.as_ref()),
        ]
    }
}

/// Returns the summary and the latencies, for a terminal.
fn lines(result: &AtResult, style: &TableStyle) -> Vec<String> {
    let mut lines = wrapped(&summary(result), "", "  ", style);
    let late = late(result);
    if late.is_empty() {
        return lines;
    }
    if result.every_ns.is_none() {
        let phrase = |(name, late): &(String, &Distribution)| {
            format!("{name} latency {}", human_ns(late.max))
        };
        lines.push(format!("  {}", late.iter().map(phrase).collect::<Vec<_>>().join(", ")));
        return lines;
    }
    let mut columns = vec![GridColumn::left("", NAME_WIDTH)];
    columns.extend(TITLES.map(|title| GridColumn::right(title, 8)));
    let group = [GridColumnGroup { title: "", columns }];
    lines.extend(grid::header(&group, style.colour).lines().skip(1).map(str::to_owned));
    for (name, late) in late {
        let mut cells = vec![GridCell::plain(name)];
        cells.extend(figures(late).map(GridCell::plain));
        lines.push(grid::row(&group, &cells, style.colour));
    }
    lines
}

/// Returns the latencies for a page.
fn table(result: &AtResult) -> String {
    let rows = each(late(result), |(name, late)| row(&name, figures(late)));
    if rows.is_empty() {
        paragraph("No start time was reached.")
    } else {
        headed(TABLE, "Latency", ("latency", &TITLES), &rows)
    }
}

fn distributions(result: &AtResult) -> DistributionSet<'_> {
    DistributionSet {
        quantity: "latency",
        entries: late(result),
        histogram: Some(("late-histogram", "Histogram of latency")),
        percentiles: Some(("late-tail", "Latency percentiles")),
        described_by: TABLE,
    }
}

fn late(result: &AtResult) -> Vec<(String, &Distribution)> {
    let all = [("wake-up", &result.woken_late_ns), ("start", &result.started_late_ns)];
    all.into_iter().filter_map(|(name, late)| Some((name.to_owned(), late.as_ref()?))).collect()
}

fn figures(late: &Distribution) -> [String; 8] {
    // A percentile is shown only if enough samples lie beyond it.
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

fn summary(result: &AtResult) -> String {
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
        AtOutcome::Done => "",
        AtOutcome::Interrupted => ", ended by a signal",
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

fn program(program: &AtProgramResult) -> String {
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
    use crate::document::RenderableResult;
    use crate::fixture;

    #[test]
    fn one_start_time_takes_a_line_or_two() {
        let style = TableStyle::default();
        let mut result: AtResult = fixture::sample("at");
        result.every_ns = None;
        result.programs.clear();
        result.findings.clear();
        let text = result.text(&style);
        assert!(text.starts_with("2026-01-02T03:04:05Z: started, real-time"), "{text}");
        assert!(text.contains("wake-up latency ") && text.lines().count() == 2, "{text}");
        (result.met, result.end) = (0, AtOutcome::Interrupted);
        (result.woken_late_ns, result.started_late_ns) = (None, None);
        assert_eq!(result.text(&style), "2026-01-02T03:04:05Z: not reached, ended by a signal");
    }
}
